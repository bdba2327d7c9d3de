// SPDX-License-Identifier: GPL-2.0
/*
 * idlewise_bench: what waking an idle CPU costs the one that waits and the one that wakes.
 *
 * Write `SOURCE TARGET COUNT GAP_US` to debugfs' idlewise_bench/run, read idlewise_bench/samples: a
 * line of CSV for each of COUNT wakes of CPU TARGET by CPU SOURCE, GAP_US apart, in TSC cycles:
 *
 *   wake_cycles    from before the function call was sent to its first instruction on TARGET, idle
 *                  until then: exit latency and delivery (Karny's measurement, 2022)
 *   idle_cycles    what sending that call took the sender
 *   waking_cycles  what sending a second one took, right behind the first: TARGET is waking
 *   busy_cycles    what sending one took while TARGET runs a loop
 *
 * The calls don't wait (Pallipadi's measurement, 2012). Which idle state TARGET is in is for the
 * reader of these figures to force: disable the others in sysfs.
 *
 * Not in here: statistics, and a common clock for CPUs whose TSCs differ (refused).
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/cpu.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include <asm/tsc.h>

#include "compat.h"

#define COUNT_MAX	1000000
#define GAP_MAX_US	1000000
/* How long to wait for the target to go idle before a sample is given up. */
#define IDLE_WAIT_MAX_US	100000

struct sample {
	u64 wake_cycles;
	u32 idle_cycles;
	u32 waking_cycles;
	u32 busy_cycles;
};

struct request {
	unsigned int source, target, count, gap_us;
	struct completion spins, done;
	int error;
};

/* One run at a time; also guards the samples. */
static DEFINE_MUTEX(lock);
static struct sample *samples;
static unsigned int sample_count, given_up_count;
static struct dentry *folder;

IDLEWISE_DEFINE_CALL(idle_cpu);

struct call {
	call_single_data_t data;
	u64 arrived_at;
	int is_pending;
};

static void arrive(void *info)
{
	struct call *call = info;

	WRITE_ONCE(call->arrived_at, rdtsc_ordered());
	/* The time is there before the sender, in await(), sees that it is. */
	smp_store_release(&call->is_pending, 0);
}

/* Sends a call that nobody waits for; returns what sending took. */
static u32 send(struct call *call, unsigned int target, u64 *sent_at)
{
	u64 start;

	call->is_pending = 1;
	INIT_CSD(&call->data, arrive, call);
	start = rdtsc_ordered();
	smp_call_function_single_async(target, &call->data);
	*sent_at = start;
	return (u32)(rdtsc_ordered() - start);
}

static void await(struct call *call)
{
	/* Pairs with arrive(). */
	while (smp_load_acquire(&call->is_pending))
		cpu_relax();
}

/* 0: the target is idle; -EAGAIN: not for long. */
static int await_idle(const struct request *request)
{
	unsigned int waited_us = 0;

	usleep_range(request->gap_us, request->gap_us + 1);
	while (!IDLEWISE_CALL(idle_cpu)(request->target)) {
		if (kthread_should_stop())
			return -EINTR;
		/* A thread whose CPU went offline runs elsewhere, maybe on the target, which then never idles. */
		if (raw_smp_processor_id() != request->source)
			return -ENODEV;
		if (waited_us++ > IDLE_WAIT_MAX_US)
			return -EAGAIN;
		udelay(1);
		cond_resched();
	}
	if (kthread_should_stop())
		return -EINTR;
	/* From idle task to idle state. */
	udelay(5);
	return 0;
}

/*
 * Whether both CPUs are still what they were. Until preemption is enabled again it stays so: a CPU
 * goes offline by stopping all others. A call to one that is gone would never arrive.
 */
static bool in_place(const struct request *request)
{
	lockdep_assert_preemption_disabled();
	return cpu_online(request->target) && smp_processor_id() == request->source;
}

static struct call first, second;

/*
 * Keeps the target busy, and no other CPU: where that one is offline the thread runs elsewhere, even
 * on the source's CPU, which in a kernel without preemption would not run anything else again.
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

/* The call that finds the target in a loop of ours. */
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

static int measure(void *data)
{
	struct request *request = data;
	unsigned int i;

	sample_count = 0;
	given_up_count = 0;
	for (i = 0; i < request->count; i++) {
		struct sample *sample = &samples[sample_count];
		u64 sent_at, second_sent_at;

		request->error = await_idle(request);
		if (request->error == -EAGAIN) {
			request->error = 0;
			given_up_count++;
			continue;
		}
		if (request->error)
			break;
		preempt_disable();
		if (!in_place(request)) {
			preempt_enable();
			request->error = -ENODEV;
			break;
		}
		sample->idle_cycles = send(&first, request->target, &sent_at);
		sample->waking_cycles = send(&second, request->target, &second_sent_at);
		await(&first);
		await(&second);
		preempt_enable();
		sample->wake_cycles = first.arrived_at - sent_at;
		sample_count++;
	}
	if (!request->error)
		request->error = measure_busy(request);
	if (request->error == -ENODEV)
		pr_err("run: CPU %u or %u went offline\n", request->source, request->target);
	complete(&request->done);
	return 0;
}

static int check(const struct request *request)
{
	if (request->source >= nr_cpu_ids || request->target >= nr_cpu_ids ||
	    !cpu_online(request->source) || !cpu_online(request->target)) {
		pr_err("run: CPU %u or %u is not online\n", request->source, request->target);
		return -ENODEV;
	}
	if (request->source == request->target) {
		pr_err("run: source and target are both CPU %u; name two\n", request->source);
		return -EINVAL;
	}
	if (!request->count || request->count > COUNT_MAX || !request->gap_us ||
	    request->gap_us > GAP_MAX_US) {
		pr_err("run: expected 1 to %u wakes, 1 to %u us apart\n", COUNT_MAX, GAP_MAX_US);
		return -EINVAL;
	}
	return 0;
}

static ssize_t run_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	struct request request = { 0 };
	struct task_struct *task;
	u64 numbers[4];
	char text[64];
	int error, end = 0;

	if (length >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, length))
		return -EFAULT;
	text[length] = '\0';
	/* Wider than they may be, since what is too large for its type would wrap. */
	if (sscanf(text, "%llu %llu %llu %llu%n", &numbers[0], &numbers[1], &numbers[2],
		   &numbers[3], &end) != 4 || *skip_spaces(text + end)) {
		pr_err("run: expected SOURCE TARGET COUNT GAP_US, such as 0 1 10000 200\n");
		return -EINVAL;
	}
	request.source = min_t(u64, numbers[0], UINT_MAX);
	request.target = min_t(u64, numbers[1], UINT_MAX);
	request.count = min_t(u64, numbers[2], UINT_MAX);
	request.gap_us = min_t(u64, numbers[3], UINT_MAX);
	error = check(&request);
	if (error)
		return error;
	if (mutex_lock_interruptible(&lock))
		return -EINTR;
	vfree(samples);
	sample_count = 0;
	samples = vzalloc(array_size(request.count, sizeof(*samples)));
	error = samples ? 0 : -ENOMEM;
	if (!error) {
		init_completion(&request.done);
		task = kthread_create_on_cpu(measure, &request, request.source,
					     "idlewise_bench/%u");
		error = PTR_ERR_OR_ZERO(task);
		if (!error) {
			get_task_struct(task);
			wake_up_process(task);
			error = wait_for_completion_interruptible(&request.done);
			/* Waits for its end; nothing of it runs or looks at the request after this. */
			kthread_stop(task);
			put_task_struct(task);
			error = error ? -EINTR : request.error;
		}
	}
	mutex_unlock(&lock);
	return error ? error : length;
}

static const struct file_operations run_fops = {
	.owner = THIS_MODULE,
	.write = run_write,
};

static int samples_show(struct seq_file *file, void *data)
{
	unsigned int i;

	if (mutex_lock_interruptible(&lock))
		return -EINTR;
	seq_printf(file, "# tsc_khz %u, given up %u (the target did not go idle)\n", tsc_khz,
		   given_up_count);
	seq_puts(file, "wake_cycles,idle_cycles,waking_cycles,busy_cycles\n");
	for (i = 0; i < sample_count; i++)
		seq_printf(file, "%llu,%u,%u,%u\n", samples[i].wake_cycles, samples[i].idle_cycles,
			   samples[i].waking_cycles, samples[i].busy_cycles);
	mutex_unlock(&lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(samples);

static int __init idlewise_bench_init(void)
{
	if (check_tsc_unstable()) {
		pr_err("the CPUs' TSCs don't agree, so no span between two CPUs can be measured\n");
		return -ENODEV;
	}
	if (!IDLEWISE_FIND(idle_cpu)) {
		pr_err("cannot find idle_cpu; this needs a kernel with kprobes\n");
		return -EOPNOTSUPP;
	}
	folder = debugfs_create_dir("idlewise_bench", NULL);
	if (IS_ERR(folder)) {
		pr_err("this kernel has no debugfs, or was booted with debugfs=off; boot without that\n");
		return PTR_ERR(folder);
	}
	debugfs_create_file("run", 0200, folder, NULL, &run_fops);
	debugfs_create_file("samples", 0400, folder, NULL, &samples_fops);
	return 0;
}

static void __exit idlewise_bench_exit(void)
{
	/* Waits for writers and readers. */
	debugfs_remove_recursive(folder);
	vfree(samples);
}

module_init(idlewise_bench_init);
module_exit(idlewise_bench_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The idlewise developers");
MODULE_DESCRIPTION("What waking an idle CPU costs: wake-up latency and the sender's cost");
MODULE_VERSION("0.1.0");
