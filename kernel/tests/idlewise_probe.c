// SPDX-License-Identifier: GPL-2.0
/*
 * idlewise_probe: records what a governor saw and what it decided, for tests.
 *
 * Run `insmod idlewise_probe.ko select=menu_select reflect=menu_reflect` before loading the driver.
 * /sys/kernel/debug/idlewise_probe/cpuN is then that CPU's decision log
 * (conformance/decisions/README.md), beginning when the governor was enabled. Kretprobes record
 * calls of the two functions named, and of those that tell a governor about timers and the tick.
 * The column at_ns, which the format ignores, is CLOCK_MONOTONIC at select, a trace's clock.
 *
 * Only the first ROW_COUNT_MAX decisions of a CPU are kept; later ones are counted.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuidle.h>
#include <linux/debugfs.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched/clock.h>
#include <linux/sched/stat.h>
#include <linux/seq_file.h>
#include <linux/tick.h>
#include <linux/timekeeping.h>
#include <linux/vmalloc.h>

#include "compat.h"

#define ROW_COUNT_MAX	65536

static char *select = "menu_select";
module_param(select, charp, 0444);
MODULE_PARM_DESC(select, "The governor's select function");
static char *reflect = "menu_reflect";
module_param(reflect, charp, 0444);
MODULE_PARM_DESC(reflect, "The governor's reflect function");
/*
 * Our read of the clock comes before the governor's, and a microsecond can decide whether a gap goes on.
 */
static ulong select_clock, reflect_clock;
module_param(select_clock, ulong, 0444);
MODULE_PARM_DESC(select_clock, "Where select has just read the clock, in bytes from its start");
module_param(reflect_clock, ulong, 0444);
MODULE_PARM_DESC(reflect_clock, "The same for reflect");

struct row {
	s64 at_ns;
	u64 clock_select_ns, clock_reflect_ns;
	s64 sleep_length_ns, delta_next_ns, latency_req_ns;
	u64 residency_ns, poll_limit_ns, poll_limit_after_ns;
	u32 disabled_mask, iowaiters;
	int state, entered, last_state;
	u8 sleep_length_calls;
	s8 got_tick;
	bool tick_stopped, stop_tick, poll_time_limit, poll_time_limit_after;
};

struct cpu_log {
	struct row *rows;
	unsigned int count, dropped_count;
	/* The row between a select and the next. */
	struct row *open;
	bool is_reflected;
	struct cpuidle_device *device;
};

static DEFINE_PER_CPU(struct cpu_log, logs);
static struct dentry *folder;
IDLEWISE_DEFINE_CALL(tick_nohz_tick_stopped);
IDLEWISE_DEFINE_CALL(cpuidle_governor_latency_req);
IDLEWISE_DEFINE_CALL(nr_iowait_cpu);

/* Copies the device's state at the end of a row; nobody else writes it between rows. */
static void close_row(struct cpu_log *log)
{
	struct row *row = log->open;

	if (!row)
		return;
	if (!log->is_reflected) {
		/* The loop found work to do and entered no state. */
		row->entered = -EBUSY;
		row->clock_reflect_ns = local_clock();
		row->poll_time_limit = log->device->poll_time_limit;
		row->poll_limit_ns = log->device->poll_limit_ns;
	}
	row->last_state = log->device->last_state_idx;
	row->poll_time_limit_after = log->device->poll_time_limit;
	row->poll_limit_after_ns = log->device->poll_limit_ns;
	log->open = NULL;
}

struct select_arguments {
	bool *stop_tick;
};

static int select_entered(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct select_arguments *kept = (void *)instance->data;
	struct cpuidle_driver *driver = (void *)regs->di;
	struct cpu_log *log = this_cpu_ptr(&logs);
	struct row *row;
	int i;

	log->device = (void *)regs->si;
	close_row(log);
	if (log->count == ROW_COUNT_MAX) {
		log->dropped_count++;
		return 1;
	}
	kept->stop_tick = (void *)regs->dx;
	row = &log->rows[log->count++];
	row->at_ns = ktime_get_ns();
	row->clock_select_ns = local_clock();
	row->tick_stopped = IDLEWISE_CALL(tick_nohz_tick_stopped)();
	row->latency_req_ns = IDLEWISE_CALL(cpuidle_governor_latency_req)(log->device->cpu);
	row->iowaiters = IDLEWISE_CALL(nr_iowait_cpu)(log->device->cpu);
	for (i = 0; i < driver->state_count; i++)
		row->disabled_mask |= log->device->states_usage[i].disable ? BIT(i) : 0;
	row->got_tick = -1;
	log->is_reflected = false;
	log->open = row;
	return 0;
}

static int select_read_clock(struct kprobe *probe, struct pt_regs *regs)
{
	struct row *row = this_cpu_ptr(&logs)->open;

	if (row)
		row->clock_select_ns = regs_return_value(regs);
	return 0;
}

static int reflect_read_clock(struct kprobe *probe, struct pt_regs *regs)
{
	struct row *row = this_cpu_ptr(&logs)->open;

	if (row)
		row->clock_reflect_ns = regs_return_value(regs);
	return 0;
}

static int select_returned(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct select_arguments *kept = (void *)instance->data;
	struct row *row = this_cpu_ptr(&logs)->open;

	if (row) {
		row->state = (int)regs_return_value(regs);
		row->stop_tick = *kept->stop_tick;
	}
	return 0;
}

static int sleep_length_entered(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	*(ktime_t **)instance->data = (void *)regs->di;
	return 0;
}

static int sleep_length_returned(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct row *row = this_cpu_ptr(&logs)->open;

	if (row) {
		row->sleep_length_ns = (s64)regs_return_value(regs);
		row->delta_next_ns = **(ktime_t **)instance->data;
		row->sleep_length_calls++;
	}
	return 0;
}

/* Asking clears the flag, and the idle loop may ask after the governor: use the first answer. */
static int got_tick_returned(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct cpu_log *log = this_cpu_ptr(&logs);
	struct row *row = log->open;

	if (row && log->is_reflected && row->got_tick < 0)
		row->got_tick = regs_return_value(regs) & 1;
	return 0;
}

static int reflect_entered(struct kprobe *probe, struct pt_regs *regs)
{
	struct cpuidle_device *device = (void *)regs->di;
	struct cpu_log *log = this_cpu_ptr(&logs);
	struct row *row = log->open;

	if (row) {
		row->entered = (int)regs->si;
		row->residency_ns = device->last_residency_ns;
		row->poll_time_limit = device->poll_time_limit;
		row->poll_limit_ns = device->poll_limit_ns;
		row->clock_reflect_ns = local_clock();
		log->is_reflected = true;
	}
	return 0;
}

static struct kretprobe select_probe = {
	.entry_handler = select_entered,
	.handler = select_returned,
	.data_size = sizeof(struct select_arguments),
};

static struct kretprobe sleep_length_probe = {
	.kp.symbol_name = "tick_nohz_get_sleep_length",
	.entry_handler = sleep_length_entered,
	.handler = sleep_length_returned,
	.data_size = sizeof(ktime_t *),
};

static struct kretprobe got_tick_probe = {
	.kp.symbol_name = "tick_nohz_idle_got_tick",
	.handler = got_tick_returned,
};

static struct kprobe reflect_probe = { .pre_handler = reflect_entered };
static struct kprobe select_clock_probe = { .pre_handler = select_read_clock };
static struct kprobe reflect_clock_probe = { .pre_handler = reflect_read_clock };
static struct kprobe *clock_probes[] = { &select_clock_probe, &reflect_clock_probe };
static int clock_probe_count;
static struct kretprobe *kretprobes[] = { &select_probe, &sleep_length_probe, &got_tick_probe };

static int log_show(struct seq_file *file, void *data)
{
	struct cpu_log *log = file->private;
	unsigned int i;

	seq_puts(file, "row,at_ns,enable,clock_select_ns,sleep_length_ns,delta_next_ns,tick_stopped,latency_req_ns,iowaiters,disabled_mask,state,stop_tick,sleep_length_calls,entered,residency_ns,poll_time_limit,poll_limit_init_ns,clock_reflect_ns,got_tick_seen,dev_last_state_idx,dev_poll_time_limit,dev_poll_limit_ns\n");
	/* The last row may be incomplete. */
	for (i = 0; i + 1 < log->count; i++) {
		const struct row *row = &log->rows[i];

		seq_printf(file, "%u,%lld,%d,%llu,%lld,%lld,%d,%lld,%u,%u,%d,%d,%u,%d,%llu,%d,%llu,%llu,%d,%d,%d,%llu\n",
			   i, row->at_ns, i == 0, row->clock_select_ns, row->sleep_length_ns,
			   row->delta_next_ns, row->tick_stopped, row->latency_req_ns,
			   row->iowaiters, row->disabled_mask, row->state, row->stop_tick,
			   row->sleep_length_calls, row->entered, row->residency_ns,
			   row->poll_time_limit, row->poll_limit_ns, row->clock_reflect_ns,
			   row->got_tick, row->last_state, row->poll_time_limit_after,
			   row->poll_limit_after_ns);
	}
	if (log->dropped_count)
		pr_warn("%u decisions were too many to keep\n", log->dropped_count);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(log);

static void stop(void)
{
	int cpu;

	debugfs_remove_recursive(folder);
	unregister_kprobes(clock_probes, clock_probe_count);
	unregister_kprobe(&reflect_probe);
	unregister_kretprobes(kretprobes, ARRAY_SIZE(kretprobes));
	for_each_possible_cpu(cpu)
		vfree(per_cpu(logs, cpu).rows);
}

static int __init probe_init(void)
{
	char name[16];
	int cpu, error;

	if (!IDLEWISE_FIND(tick_nohz_tick_stopped) ||
	    !IDLEWISE_FIND(cpuidle_governor_latency_req) || !IDLEWISE_FIND(nr_iowait_cpu))
		return -EOPNOTSUPP;
	for_each_possible_cpu(cpu) {
		struct cpu_log *log = &per_cpu(logs, cpu);

		log->rows = vzalloc(array_size(ROW_COUNT_MAX, sizeof(*log->rows)));
		if (!log->rows)
			goto free_rows;
	}
	select_probe.kp.symbol_name = select;
	reflect_probe.symbol_name = reflect;
	error = register_kretprobes(kretprobes, ARRAY_SIZE(kretprobes));
	if (!error)
		error = register_kprobe(&reflect_probe);
	if (!error && select_clock && reflect_clock) {
		select_clock_probe.symbol_name = select;
		select_clock_probe.offset = select_clock;
		reflect_clock_probe.symbol_name = reflect;
		reflect_clock_probe.offset = reflect_clock;
		error = register_kprobes(clock_probes, ARRAY_SIZE(clock_probes));
		clock_probe_count = error ? 0 : ARRAY_SIZE(clock_probes);
	}
	if (error) {
		pr_err("cannot probe %s and %s: %d\n", select, reflect, error);
		stop();
		return error;
	}
	folder = debugfs_create_dir("idlewise_probe", NULL);
	for_each_possible_cpu(cpu) {
		snprintf(name, sizeof(name), "cpu%d", cpu);
		debugfs_create_file(name, 0400, folder, &per_cpu(logs, cpu), &log_fops);
	}
	return 0;

free_rows:
	for_each_possible_cpu(cpu)
		vfree(per_cpu(logs, cpu).rows);
	return -ENOMEM;
}

static void __exit probe_exit(void)
{
	stop();
}

module_init(probe_init);
module_exit(probe_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Records what a cpuidle governor saw and answered, for tests");
