// SPDX-License-Identifier: GPL-2.0
/*
 * A package whose energy can be read, for tests: virtual machines have none. It registers the
 * powercap zone intel-rapl:0, named package-0, as the driver of RAPL does. Its counter says what the
 * CPUs would have drawn by the powers and costs that the module was loaded with:
 *
 *   for each CPU  power_mw of the state that it is in, or running_mw, and cost_uj of a state each
 *                 time that it leaves it
 *   the package   rest_mw, whatever the CPUs do
 *
 * The parameters are in no file, so a program can learn them only by measuring. What CPUs do is taken
 * from the tracepoint cpu_idle and a clock, not from the kernel's counts of stays and of time in
 * states: a program that reads these wrong finds other figures.
 *
 * The counter wraps at range_uj, as RAPL's does. Not emulated: package states, temperatures, noise,
 * and updates every millisecond only.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cpuidle.h>
#include <linux/err.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/powercap.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>

#include <trace/events/power.h>

#define RUNNING	(-1)
#define PJ_PER_UJ	1000000ULL

static uint power_mw[CPUIDLE_STATE_MAX];
module_param_array(power_mw, uint, NULL, 0);
MODULE_PARM_DESC(power_mw, "What a CPU draws in each state, in milliwatts");
static uint cost_uj[CPUIDLE_STATE_MAX];
module_param_array(cost_uj, uint, NULL, 0);
MODULE_PARM_DESC(cost_uj, "What entering and leaving each state takes, in microjoules");
static uint running_mw;
module_param(running_mw, uint, 0);
MODULE_PARM_DESC(running_mw, "What a CPU draws that does not idle, in milliwatts");
static uint rest_mw;
module_param(rest_mw, uint, 0);
MODULE_PARM_DESC(rest_mw, "What the rest of the package draws, in milliwatts");
static u64 range_uj = 262143328850ULL;
module_param(range_uj, ullong, 0);
MODULE_PARM_DESC(range_uj, "The counter's last value before 0, in microjoules");

/* A CPU's energy up to a time. */
struct account {
	raw_spinlock_t lock;
	u64 energy_pj;
	u64 until_ns;
	int state;
};

static DEFINE_PER_CPU(struct account, accounts);
static u64 start_ns;

/* Milliwatts times nanoseconds are picojoules. */
static void settle(struct account *account)
{
	u64 now_ns = ktime_get_mono_fast_ns();
	uint mw = account->state == RUNNING ? running_mw : power_mw[account->state];

	lockdep_assert_held(&account->lock);
	/* The clock may step back a little when it is adjusted. */
	if (now_ns <= account->until_ns)
		return;
	account->energy_pj += (now_ns - account->until_ns) * mw;
	account->until_ns = now_ns;
}

static void see_idle(void *data, unsigned int state, unsigned int cpu)
{
	struct account *account = per_cpu_ptr(&accounts, cpu);
	unsigned long flags;

	raw_spin_lock_irqsave(&account->lock, flags);
	settle(account);
	if (state != (unsigned int)PWR_EVENT_EXIT) {
		account->state = min_t(unsigned int, state, CPUIDLE_STATE_MAX - 1);
	} else if (account->state != RUNNING) {
		account->energy_pj += cost_uj[account->state] * PJ_PER_UJ;
		account->state = RUNNING;
	}
	raw_spin_unlock_irqrestore(&account->lock, flags);
}

static int get_energy_uj(struct powercap_zone *zone, u64 *energy_uj)
{
	u64 energy_pj = (ktime_get_mono_fast_ns() - start_ns) * rest_mw;
	int cpu;

	for_each_possible_cpu(cpu) {
		struct account *account = per_cpu_ptr(&accounts, cpu);
		unsigned long flags;

		raw_spin_lock_irqsave(&account->lock, flags);
		settle(account);
		energy_pj += account->energy_pj;
		raw_spin_unlock_irqrestore(&account->lock, flags);
	}
	div64_u64_rem(div64_u64(energy_pj, PJ_PER_UJ), range_uj + 1, energy_uj);
	return 0;
}

static int get_max_energy_range_uj(struct powercap_zone *zone, u64 *max_range_uj)
{
	*max_range_uj = range_uj;
	return 0;
}

static const struct powercap_zone_ops zone_ops = {
	.get_energy_uj = get_energy_uj,
	.get_max_energy_range_uj = get_max_energy_range_uj,
};

/* The framework wants these even of a zone without limits, and never calls them. */
static int set_nothing(struct powercap_zone *zone, int id, u64 value)
{
	return -EOPNOTSUPP;
}

static int get_nothing(struct powercap_zone *zone, int id, u64 *value)
{
	return -EOPNOTSUPP;
}

static const struct powercap_zone_constraint_ops no_limits = {
	.set_power_limit_uw = set_nothing,
	.get_power_limit_uw = get_nothing,
	.set_time_window_us = set_nothing,
	.get_time_window_us = get_nothing,
};

static const struct powercap_control_type_ops control_ops = {};
static struct powercap_control_type *control;
static struct powercap_zone *zone;

static void nothing(void *info)
{
}

static int __init energy_init(void)
{
	int cpu, error;

	start_ns = ktime_get_mono_fast_ns();
	for_each_possible_cpu(cpu) {
		struct account *account = per_cpu_ptr(&accounts, cpu);

		raw_spin_lock_init(&account->lock);
		account->until_ns = start_ns;
		account->state = RUNNING;
	}
	error = register_trace_cpu_idle(see_idle, NULL);
	if (error)
		return error;
	/* CPUs that idle are seen when they do it again. */
	on_each_cpu(nothing, NULL, 1);
	control = powercap_register_control_type(NULL, "intel-rapl", &control_ops);
	if (IS_ERR(control)) {
		error = PTR_ERR(control);
		goto unwatch;
	}
	zone = powercap_register_zone(NULL, control, "package-0", NULL, &zone_ops, 0,
				     &no_limits);
	if (IS_ERR(zone)) {
		error = PTR_ERR(zone);
		goto unregister;
	}
	return 0;

unregister:
	powercap_unregister_control_type(control);
unwatch:
	unregister_trace_cpu_idle(see_idle, NULL);
	tracepoint_synchronize_unregister();
	return error;
}

static void __exit energy_exit(void)
{
	powercap_unregister_zone(control, zone);
	powercap_unregister_control_type(control);
	unregister_trace_cpu_idle(see_idle, NULL);
	tracepoint_synchronize_unregister();
}

module_init(energy_init);
module_exit(energy_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A package's energy counter that shows planted powers and costs, for tests");
