// SPDX-License-Identifier: GPL-2.0
/*
 * idlewise_costs: what a governor asks for and how long it decides, for tests/governors.
 *
 * `insmod idlewise_costs.ko time=1` measures how long the current governor's select takes. Without
 * time=1, it counts the queries of the sleep length and the ticks that were stopped. Not both at
 * once: the probe that counts queries takes some of the time. Removing the module ends it. The file
 * parameters/costs in /sys/module/idlewise_costs has selects, nanoseconds in select, queries and
 * stopped ticks, summed over the CPUs. Do not choose another governor meanwhile.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuidle.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/tracepoint.h>

#include <asm/tsc.h>

#include "compat.h"

struct costs {
	u64 select_count, select_cycles, query_count, stop_count;
};

static bool time;
module_param(time, bool, 0444);
MODULE_PARM_DESC(time, "Measure the time in select, instead of counting queries and stopped ticks");

static DEFINE_PER_CPU(struct costs, costs);
static struct cpuidle_governor *governor;
static int (*governor_select)(struct cpuidle_driver *driver, struct cpuidle_device *device, bool *stop_tick);
static struct tracepoint *tick_stop;

unsigned long kallsyms_lookup_name(const char *name);
IDLEWISE_DEFINE_CALL(kallsyms_lookup_name);

static int show_costs(char *buffer, const struct kernel_param *param)
{
	struct costs sum = { 0 };
	int cpu;

	for_each_possible_cpu(cpu) {
		struct costs *one = &per_cpu(costs, cpu);

		sum.select_count += READ_ONCE(one->select_count);
		sum.select_cycles += READ_ONCE(one->select_cycles);
		sum.query_count += READ_ONCE(one->query_count);
		sum.stop_count += READ_ONCE(one->stop_count);
	}
	return scnprintf(buffer, PAGE_SIZE, "%llu %llu %llu %llu\n", sum.select_count,
			 sum.select_cycles * 1000000 / tsc_khz, sum.query_count, sum.stop_count);
}

static const struct kernel_param_ops costs_ops = { .get = show_costs };
module_param_cb(costs, &costs_ops, NULL, 0444);
MODULE_PARM_DESC(costs, "Selects, ns in select, queries of the sleep length, stopped ticks");

/* Interrupts are off. */
static int timed_select(struct cpuidle_driver *driver, struct cpuidle_device *device, bool *stop_tick)
{
	struct costs *own = this_cpu_ptr(&costs);
	u64 start = rdtsc();
	int state = governor_select(driver, device, stop_tick);

	own->select_cycles += rdtsc() - start;
	own->select_count++;
	return state;
}

static int count_query(struct kprobe *probe, struct pt_regs *registers)
{
	this_cpu_inc(costs.query_count);
	return 0;
}
NOKPROBE_SYMBOL(count_query);

static void count_stop(void *data, int success, int dependency)
{
	if (success)
		this_cpu_inc(costs.stop_count);
}

static struct kprobe query = {
	.symbol_name = "tick_nohz_get_sleep_length",
	.pre_handler = count_query,
};

static void find_tick_stop(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "tick_stop"))
		tick_stop = tracepoint;
}

static void use_select(int (*select)(struct cpuidle_driver *driver, struct cpuidle_device *device,
				     bool *stop_tick))
{
	cpuidle_pause_and_lock();
	governor->select = select;
	cpuidle_resume_and_unlock();
}

static int __init costs_init(void)
{
	struct cpuidle_governor **current_governor;
	int error;

	if (!time) {
		for_each_kernel_tracepoint(find_tick_stop, NULL);
		if (!tick_stop)
			return -EOPNOTSUPP;
		error = register_kprobe(&query);
		if (error)
			return error;
		error = tracepoint_probe_register(tick_stop, count_stop, NULL);
		if (error)
			unregister_kprobe(&query);
		return error;
	}
	if (!IDLEWISE_FIND(kallsyms_lookup_name))
		return -EOPNOTSUPP;
	current_governor = (void *)IDLEWISE_CALL(kallsyms_lookup_name)("cpuidle_curr_governor");
	if (!current_governor || !*current_governor)
		return -EOPNOTSUPP;
	governor = *current_governor;
	governor_select = governor->select;
	use_select(timed_select);
	return 0;
}

static void __exit costs_exit(void)
{
	if (time) {
		use_select(governor_select);
		return;
	}
	tracepoint_probe_unregister(tick_stop, count_stop, NULL);
	tracepoint_synchronize_unregister();
	unregister_kprobe(&query);
}

module_init(costs_init);
module_exit(costs_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("What a cpuidle governor asks for and how long it decides, for idlewise's tests");
