// SPDX-License-Identifier: GPL-2.0
/*
 * idlewise_bench: measures an idle CPU's wake-up latency, and what waking it costs the waker.
 *
 * Wake-ups by another CPU: write `SOURCE TARGET COUNT GAP_US` to debugfs' idlewise_bench/run, then
 * read idlewise_bench/samples. It has a line of CSV for each of COUNT wake-ups of CPU TARGET by CPU
 * SOURCE, GAP_US apart, in TSC cycles:
 *
 *   wake_cycles    wake-up latency: from before the function call was sent to TARGET's first
 *                  instruction out of its idle state, that is, exit latency and delivery (Karny's
 *                  measurement, 2022)
 *   call_cycles    from before the call was sent to the function's first instruction. That is the
 *                  same if an interrupt ends the state. If a store does, the function is called
 *                  only after the idle loop has restarted the tick and told the governor.
 *   idle_cycles    how long sending that call took the sender
 *   waking_cycles  how long sending a second call took, right after the first: TARGET is waking
 *   busy_cycles    how long sending a call took while TARGET ran a loop
 *
 * The calls don't wait (Pallipadi's measurement, 2012).
 *
 * Wake-ups out of known states: write `SOURCE TARGET COUNT GAP_US GAP_MAX_US` to
 * idlewise_bench/state_run, then read idlewise_bench/state_samples. The gaps are random between the
 * two, and the source is awake all the time, so that no sleep of its own is part of the figure. It
 * has a line for each wake-up that found the target idle:
 *
 *   wake_cycles    as above
 *   send_cycles    how long sending the call took
 *   state          the idle state that the governor had selected, by its number in sysfs
 *
 * Wake-ups by a timer: write `TARGET COUNT GAP_US` to idlewise_bench/timer_run, then read
 * idlewise_bench/timer_samples. It has a line for each of COUNT timers of CPU TARGET's own, GAP_US
 * ahead, that expired while the CPU was idle:
 *
 *   interrupt_ns   interrupt latency: from the time for which the timer was set to its handler's
 *                  first instruction (Bityutskiy's measurement with wult, 2023)
 *
 * The tracepoint cpu_idle shows whether a CPU is idle and since when; other samples are dropped.
 * The reader must force the idle state of TARGET, by disabling the others in sysfs.
 *
 * This module does not compute statistics. It refuses CPUs whose TSCs differ.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/build_bug.h>
#include <linux/cache.h>
#include <linux/completion.h>
#include <linux/cpu.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include <asm/tsc.h>

#include <trace/events/power.h>

#include "compat.h"

#define COUNT_MAX	1000000
#define GAP_MAX_US	1000000
/* How long to wait for the target to go idle before a sample is dropped. */
#define IDLE_WAIT_MAX_US	100000

struct sample {
	u64 wake_cycles;
	u64 call_cycles;
	u32 idle_cycles;
	u32 waking_cycles;
	u32 busy_cycles;
};

/* A wake-up out of a known state. */
struct state_sample {
	u64 wake_cycles;
	u32 send_cycles;
	u32 state;
};

struct request {
	unsigned int source, target, count, gap_us, gap_max_us;
	const struct measurement *of;
	struct completion spins, done;
	int error;
};

/*
 * A kind of measurement: the file to write to, and what handles it. Timers have no source. Gaps are
 * all the same unless there is a longest one.
 */
struct measurement {
	const char *file;
	const char *arguments;
	bool has_source;
	bool has_gap_max;
	/* Makes room for this many samples, replacing those of the last run. */
	int (*prepare)(unsigned int count);
	int (*measure_idle)(struct request *request);
	/* May be NULL. */
	int (*measure_busy)(struct request *request);
};

/* Allows one run at a time, and protects the samples. */
static DEFINE_MUTEX(lock);
static struct sample *samples;
static struct state_sample *state_samples;
static s64 *interrupts_ns;
static unsigned int sample_count, given_up_count, interrupt_count, timer_given_up_count;
static unsigned int state_sample_count, state_given_up_count;
static struct dentry *folder;

/*
 * What each side writes has its own cache lines, and so does what the target's idle loop records.
 * The source reads the target's lines only before it sends, and while it waits for the answer.
 */
struct idle_watch {
	/* In cycles. Written and read only by the target. */
	u64 entered_at;
	u64 left_at;
	/* The last state that was entered. */
	u32 state;
	/* Read by the source. */
	bool is_idle;
} ____cacheline_aligned_in_smp;

static struct idle_watch watch;
static unsigned int watched_cpu __read_mostly;

struct answer {
	u64 arrived_at;
	/* When the target last entered and last left an idle state, and which. */
	u64 entered_at;
	u64 left_at;
	u32 state;
	bool is_there;
};

struct call {
	call_single_data_t data ____cacheline_aligned_in_smp;
	struct answer answer ____cacheline_aligned_in_smp;
};

static_assert(offsetof(struct call, answer) % SMP_CACHE_BYTES == 0);
static_assert(sizeof(struct idle_watch) % SMP_CACHE_BYTES == 0);

static void see_idle(void *data, unsigned int state, unsigned int cpu)
{
	u64 now;

	if (cpu != READ_ONCE(watched_cpu))
		return;
	now = rdtsc_ordered();
	if (state == (unsigned int)PWR_EVENT_EXIT) {
		watch.left_at = now;
		WRITE_ONCE(watch.is_idle, false);
	} else {
		watch.entered_at = now;
		watch.state = state;
		WRITE_ONCE(watch.is_idle, true);
	}
}

static void nothing(void *info)
{
}

/* Makes the target record when it idles. It may be idle already, so it records once at first. */
static int watch_idle(unsigned int target)
{
	int error;

	memset(&watch, 0, sizeof(watch));
	WRITE_ONCE(watched_cpu, target);
	error = register_trace_cpu_idle(see_idle, NULL);
	if (error)
		return error;
	smp_call_function_single(target, nothing, NULL, 1);
	return 0;
}

static void unwatch_idle(void)
{
	unregister_trace_cpu_idle(see_idle, NULL);
	tracepoint_synchronize_unregister();
}

/* Whether the CPU was in an idle state at a given time, which must be recent. */
static bool was_idle(u64 at, u64 entered_at, u64 left_at)
{
	return entered_at && entered_at <= at && (left_at < entered_at || left_at >= at);
}

static void arrive(void *info)
{
	struct call *call = info;

	call->answer.arrived_at = rdtsc_ordered();
	call->answer.entered_at = watch.entered_at;
	call->answer.left_at = watch.left_at;
	call->answer.state = watch.state;
	/* Publishes all of the above to the sender, which waits in await(). */
	smp_store_release(&call->answer.is_there, true);
}

/* Sends a call that nobody waits for. Returns how long sending took. */
static u32 send(struct call *call, unsigned int target, u64 *sent_at)
{
	u64 start;

	call->answer.is_there = false;
	INIT_CSD(&call->data, arrive, call);
	start = rdtsc_ordered();
	smp_call_function_single_async(target, &call->data);
	*sent_at = start;
	return (u32)(rdtsc_ordered() - start);
}

static void await(struct call *call)
{
	/* Pairs with arrive(). */
	while (!smp_load_acquire(&call->answer.is_there))
		cpu_relax();
}

/* From sending a call to the target's first instruction out of its idle state. */
static u64 wake_cycles(const struct answer *answer, u64 sent_at)
{
	/* An interrupt calls the function before the idle loop reports the exit. */
	return (answer->left_at >= sent_at ? answer->left_at : answer->arrived_at) - sent_at;
}

/* Returns 0 when the target is idle, or -EAGAIN if that takes too long. */
static int await_idle(const struct request *request)
{
	unsigned int waited_us = 0;

	usleep_range(request->gap_us, request->gap_us + 1);
	while (!READ_ONCE(watch.is_idle)) {
		if (kthread_should_stop())
			return -EINTR;
		/* If its CPU goes offline, the thread may run on the target, which never idles. */
		if (raw_smp_processor_id() != request->source)
			return -ENODEV;
		if (waited_us++ > IDLE_WAIT_MAX_US)
			return -EAGAIN;
		udelay(1);
		cond_resched();
	}
	if (kthread_should_stop())
		return -EINTR;
	/* Wait for the CPU to get from the tracepoint into the state. */
	udelay(5);
	return 0;
}

/*
 * Whether both CPUs are online and the same as before. That holds until preemption is enabled,
 * because a CPU goes offline by stopping all others. A call to an offline CPU never arrives.
 */
static bool in_place(const struct request *request)
{
	lockdep_assert_preemption_disabled();
	return cpu_online(request->target) && smp_processor_id() == request->source;
}

static struct call first, second;

/*
 * Keeps only the target busy. If the target is offline, the thread would run elsewhere, even on the
 * source's CPU, which in a kernel without preemption would never run anything else again.
 */
static int spin(void *data)
{
	struct request *request = data;

	complete(&request->spins);
	while (!kthread_should_stop()) {
		if (raw_smp_processor_id() != request->target)
			return -ENODEV;
		cpu_relax();
		cond_resched();
	}
	return 0;
}

/* Measures the call while the target runs a loop. */
static int measure_busy(struct request *request)
{
	struct task_struct *task;
	unsigned int i;
	int error = 0, spin_error;
	u64 sent_at;

	init_completion(&request->spins);
	task = kthread_create_on_cpu(spin, request, request->target, "idlewise_spin/%u");
	if (IS_ERR(task))
		return PTR_ERR(task);
	get_task_struct(task);
	wake_up_process(task);
	wait_for_completion(&request->spins);
	for (i = 0; i < sample_count && !kthread_should_stop(); i++) {
		preempt_disable();
		if (!in_place(request)) {
			preempt_enable();
			error = -ENODEV;
			break;
		}
		samples[i].busy_cycles = send(&first, request->target, &sent_at);
		await(&first);
		preempt_enable();
		cond_resched();
	}
	spin_error = kthread_stop(task);
	put_task_struct(task);
	return error ? error : spin_error;
}

static int measure_wakes(struct request *request)
{
	unsigned int i;

	for (i = 0; i < request->count; i++) {
		struct sample *sample = &samples[sample_count];
		u64 sent_at, second_sent_at;
		int error = await_idle(request);

		if (error == -EAGAIN) {
			given_up_count++;
			continue;
		}
		if (error)
			return error;
		preempt_disable();
		if (!in_place(request)) {
			preempt_enable();
			return -ENODEV;
		}
		sample->idle_cycles = send(&first, request->target, &sent_at);
		sample->waking_cycles = send(&second, request->target, &second_sent_at);
		await(&first);
		await(&second);
		preempt_enable();
		if (!was_idle(sent_at, first.answer.entered_at, first.answer.left_at)) {
			given_up_count++;
			continue;
		}
		sample->call_cycles = first.answer.arrived_at - sent_at;
		sample->wake_cycles = wake_cycles(&first.answer, sent_at);
		sample_count++;
	}
	return 0;
}

/* Lets a random time pass, awake: a source that slept would wake up its package before the target. */
static int pass_gap(const struct request *request)
{
	u64 spread_ns = (u64)(request->gap_max_us - request->gap_us) * NSEC_PER_USEC;
	u64 gap_ns = (u64)request->gap_us * NSEC_PER_USEC +
		     mul_u64_u32_shr(spread_ns, get_random_u32(), 32);
	u64 end_ns = ktime_get_ns() + gap_ns;

	while (ktime_get_ns() < end_ns) {
		if (kthread_should_stop())
			return -EINTR;
		cpu_relax();
		cond_resched();
	}
	return 0;
}

static int measure_states(struct request *request)
{
	unsigned int i;

	for (i = 0; i < request->count; i++) {
		struct state_sample *sample = &state_samples[state_sample_count];
		int error = pass_gap(request);
		u64 sent_at;

		if (error)
			return error;
		if (!READ_ONCE(watch.is_idle)) {
			state_given_up_count++;
			continue;
		}
		/* As in await_idle(). */
		udelay(5);
		preempt_disable();
		if (!in_place(request)) {
			preempt_enable();
			return -ENODEV;
		}
		sample->send_cycles = send(&first, request->target, &sent_at);
		await(&first);
		preempt_enable();
		if (!was_idle(sent_at, first.answer.entered_at, first.answer.left_at)) {
			state_given_up_count++;
			continue;
		}
		sample->wake_cycles = wake_cycles(&first.answer, sent_at);
		sample->state = first.answer.state;
		state_sample_count++;
	}
	return 0;
}

/* One of the target's timers. */
struct expiry {
	struct hrtimer timer;
	struct completion fired;
	s64 late_ns;
	bool was_idle;
};

static struct expiry expiry;

static enum hrtimer_restart expire(struct hrtimer *timer)
{
	s64 late_ns = ktime_to_ns(ktime_sub(ktime_get(), hrtimer_get_expires(timer)));
	u64 now_cycles = rdtsc_ordered();
	u64 due_cycles = now_cycles - mul_u64_u32_div(late_ns, tsc_khz, USEC_PER_SEC);

	expiry.late_ns = late_ns;
	expiry.was_idle = smp_processor_id() == READ_ONCE(watched_cpu) &&
			  was_idle(due_cycles, watch.entered_at, watch.left_at);
	complete(&expiry.fired);
	return HRTIMER_NORESTART;
}

/* Runs on the target, and sleeps while the target idles. */
static int measure_timers(struct request *request)
{
	unsigned int i;
	int error = 0;

	idlewise_timer_setup(&expiry.timer, expire);
	for (i = 0; i < request->count; i++) {
		if (kthread_should_stop()) {
			error = -EINTR;
			break;
		}
		reinit_completion(&expiry.fired);
		/* A timer fires on the CPU that starts it, unless that CPU goes offline. */
		preempt_disable();
		if (smp_processor_id() != request->target) {
			preempt_enable();
			error = -ENODEV;
			break;
		}
		hrtimer_start(&expiry.timer, ktime_add_us(ktime_get(), request->gap_us),
			      HRTIMER_MODE_ABS_PINNED_HARD);
		preempt_enable();
		wait_for_completion(&expiry.fired);
		if (expiry.was_idle)
			interrupts_ns[interrupt_count++] = expiry.late_ns;
		else
			timer_given_up_count++;
	}
	/* The handler has reported, but may still be running. */
	hrtimer_cancel(&expiry.timer);
	return error;
}

static int prepare_wakes(unsigned int count)
{
	vfree(samples);
	sample_count = 0;
	given_up_count = 0;
	samples = vzalloc(array_size(count, sizeof(*samples)));
	return samples ? 0 : -ENOMEM;
}

static int prepare_states(unsigned int count)
{
	vfree(state_samples);
	state_sample_count = 0;
	state_given_up_count = 0;
	state_samples = vzalloc(array_size(count, sizeof(*state_samples)));
	return state_samples ? 0 : -ENOMEM;
}

static int prepare_timers(unsigned int count)
{
	vfree(interrupts_ns);
	interrupt_count = 0;
	timer_given_up_count = 0;
	interrupts_ns = vzalloc(array_size(count, sizeof(*interrupts_ns)));
	return interrupts_ns ? 0 : -ENOMEM;
}

static const struct measurement wakes = {
	.file = "run",
	.arguments = "SOURCE TARGET COUNT GAP_US, such as 0 1 10000 200",
	.has_source = true,
	.prepare = prepare_wakes,
	.measure_idle = measure_wakes,
	.measure_busy = measure_busy,
};

static const struct measurement states = {
	.file = "state_run",
	.arguments = "SOURCE TARGET COUNT GAP_US GAP_MAX_US, such as 0 1 10000 300 1100",
	.has_source = true,
	.has_gap_max = true,
	.prepare = prepare_states,
	.measure_idle = measure_states,
};

static const struct measurement timers = {
	.file = "timer_run",
	.arguments = "TARGET COUNT GAP_US, such as 1 10000 200",
	.prepare = prepare_timers,
	.measure_idle = measure_timers,
};

/* Accepts the request's numbers and nothing else. */
static int parse(char *text, struct request *request)
{
	unsigned int *numbers[] = {
		&request->source, &request->target, &request->count, &request->gap_us,
		&request->gap_max_us,
	};
	unsigned int next = request->of->has_source ? 0 : 1;
	unsigned int end = ARRAY_SIZE(numbers) - (request->of->has_gap_max ? 0 : 1);
	char *word;

	while ((word = strsep(&text, " \t\n"))) {
		if (!*word)
			continue;
		if (next == end || kstrtouint(word, 10, numbers[next]))
			return -EINVAL;
		next++;
	}
	if (!request->of->has_gap_max)
		request->gap_max_us = request->gap_us;
	return next == end ? 0 : -EINVAL;
}

static int check_cpu(const struct request *request, unsigned int cpu)
{
	if (cpu < nr_cpu_ids && cpu_online(cpu))
		return 0;
	pr_err("%s: CPU %u is not online\n", request->of->file, cpu);
	return -ENODEV;
}

static int check(const struct request *request)
{
	const struct measurement *of = request->of;
	int error = check_cpu(request, request->target);

	if (!error && of->has_source)
		error = check_cpu(request, request->source);
	if (error)
		return error;
	if (of->has_source && request->source == request->target) {
		pr_err("%s: source and target are both CPU %u; name two\n", of->file,
		       request->source);
		return -EINVAL;
	}
	if (!request->count || request->count > COUNT_MAX || !request->gap_us ||
	    request->gap_max_us < request->gap_us || request->gap_max_us > GAP_MAX_US) {
		pr_err("%s: expected 1 to %u wakes, 1 to %u us apart\n", of->file, COUNT_MAX,
		       GAP_MAX_US);
		return -EINVAL;
	}
	return 0;
}

/* The thread runs on the source or, if there is none, on the target. */
static int measure(void *data)
{
	struct request *request = data;
	int error = watch_idle(request->target);

	if (!error) {
		error = request->of->measure_idle(request);
		unwatch_idle();
	}
	if (!error && request->of->measure_busy)
		error = request->of->measure_busy(request);
	if (error == -ENODEV)
		pr_err("%s: a CPU of the measurement went offline\n", request->of->file);
	request->error = error;
	complete(&request->done);
	return 0;
}

/* Runs until the request is complete or a signal arrives. */
static int run(struct request *request)
{
	unsigned int cpu = request->of->has_source ? request->source : request->target;
	struct task_struct *task;
	int error = request->of->prepare(request->count);

	if (error)
		return error;
	init_completion(&request->done);
	task = kthread_create_on_cpu(measure, request, cpu, "idlewise_bench/%u");
	if (IS_ERR(task))
		return PTR_ERR(task);
	get_task_struct(task);
	wake_up_process(task);
	error = wait_for_completion_interruptible(&request->done);
	/* Waits until the thread ends; after that nothing uses the request. */
	kthread_stop(task);
	put_task_struct(task);
	return error ? -EINTR : request->error;
}

static ssize_t run_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	struct request request = { .of = file->private_data };
	char text[64] = "";
	int error;

	if (length < sizeof(text) && copy_from_user(text, from, length))
		return -EFAULT;
	/* If the text is too long, it is empty here, which is no valid request. */
	error = parse(text, &request);
	if (error) {
		pr_err("%s: expected %s\n", request.of->file, request.of->arguments);
		return error;
	}
	error = check(&request);
	if (error)
		return error;
	if (mutex_lock_interruptible(&lock))
		return -EINTR;
	error = run(&request);
	mutex_unlock(&lock);
	return error ? error : length;
}

static const struct file_operations run_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = run_write,
};

static int samples_show(struct seq_file *file, void *data)
{
	unsigned int i;

	if (mutex_lock_interruptible(&lock))
		return -EINTR;
	seq_printf(file, "# tsc_khz %u, given up %u (the target did not go idle)\n", tsc_khz,
		   given_up_count);
	seq_puts(file, "wake_cycles,call_cycles,idle_cycles,waking_cycles,busy_cycles\n");
	for (i = 0; i < sample_count; i++) {
		const struct sample *sample = &samples[i];

		seq_printf(file, "%llu,%llu,%u,%u,%u\n", sample->wake_cycles, sample->call_cycles,
			   sample->idle_cycles, sample->waking_cycles, sample->busy_cycles);
	}
	mutex_unlock(&lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(samples);

static int state_samples_show(struct seq_file *file, void *data)
{
	unsigned int i;

	if (mutex_lock_interruptible(&lock))
		return -EINTR;
	seq_printf(file, "# tsc_khz %u, given up %u (the target did not go idle)\n", tsc_khz,
		   state_given_up_count);
	seq_puts(file, "wake_cycles,send_cycles,state\n");
	for (i = 0; i < state_sample_count; i++) {
		const struct state_sample *sample = &state_samples[i];

		seq_printf(file, "%llu,%u,%u\n", sample->wake_cycles, sample->send_cycles,
			   sample->state);
	}
	mutex_unlock(&lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(state_samples);

static int timer_samples_show(struct seq_file *file, void *data)
{
	unsigned int i;

	if (mutex_lock_interruptible(&lock))
		return -EINTR;
	seq_printf(file, "# given up %u (the target was not idle)\n", timer_given_up_count);
	seq_puts(file, "interrupt_ns\n");
	for (i = 0; i < interrupt_count; i++)
		seq_printf(file, "%lld\n", interrupts_ns[i]);
	mutex_unlock(&lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(timer_samples);

static int __init idlewise_bench_init(void)
{
	if (check_tsc_unstable()) {
		pr_err("the CPUs' TSCs don't agree, so no span between two CPUs can be measured\n");
		return -ENODEV;
	}
	init_completion(&expiry.fired);
	folder = debugfs_create_dir("idlewise_bench", NULL);
	if (IS_ERR(folder)) {
		pr_err("this kernel has no debugfs, or was booted with debugfs=off; boot without that\n");
		return PTR_ERR(folder);
	}
	debugfs_create_file(wakes.file, 0200, folder, (void *)&wakes, &run_fops);
	debugfs_create_file("samples", 0400, folder, NULL, &samples_fops);
	debugfs_create_file(states.file, 0200, folder, (void *)&states, &run_fops);
	debugfs_create_file("state_samples", 0400, folder, NULL, &state_samples_fops);
	debugfs_create_file(timers.file, 0200, folder, (void *)&timers, &run_fops);
	debugfs_create_file("timer_samples", 0400, folder, NULL, &timer_samples_fops);
	return 0;
}

static void __exit idlewise_bench_exit(void)
{
	/* Waits for readers and writers. */
	debugfs_remove_recursive(folder);
	vfree(samples);
	vfree(state_samples);
	vfree(interrupts_ns);
}

module_init(idlewise_bench_init);
module_exit(idlewise_bench_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The idlewise developers");
MODULE_DESCRIPTION("What waking an idle CPU costs: wake-up latency, interrupt latency and the sender's cost");
MODULE_VERSION("0.1.0");
