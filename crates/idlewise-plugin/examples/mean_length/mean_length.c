// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * An example of a governor of several files: it expects the geometric mean of the last stays, or the next timer
 * if that is sooner. Try it with --governor crates/idlewise-plugin/examples/mean_length/
 */
#include <asm/fpu/api.h>
#include <linux/cpuidle.h>
#include <linux/module.h>
#include <linux/tick.h>

#include "../gov.h"
#include "mean_length.h"

static DEFINE_PER_CPU(struct mean_length, means);

static int mean_length_select(struct cpuidle_driver *drv, struct cpuidle_device *dev, bool *stop_tick)
{
	s64 latency_limit_ns = cpuidle_governor_latency_req(dev->cpu);
	ktime_t next_tick_ns;
	s64 expected_ns = tick_nohz_get_sleep_length(&next_tick_ns);
	int selected = 0;

	if (this_cpu_ptr(&means)->count > 0) {
		kernel_fpu_begin();
		expected_ns = min(expected_ns, (s64)mean_length_ns(this_cpu_ptr(&means)));
		kernel_fpu_end();
	}
	for (int i = 1; i < drv->state_count; i++) {
		struct cpuidle_state *state = &drv->states[i];

		if (!dev->states_usage[i].disable && state->target_residency_ns <= expected_ns &&
		    state->exit_latency_ns <= latency_limit_ns)
			selected = i;
	}
	*stop_tick = expected_ns > TICK_NSEC;
	return selected;
}

static void mean_length_reflect(struct cpuidle_device *dev, int index)
{
	kernel_fpu_begin();
	mean_length_add(this_cpu_ptr(&means), dev->last_residency_ns);
	kernel_fpu_end();
}

static struct cpuidle_governor mean_length_governor = {
	.name = "mean_length",
	.rating = 1,
	.select = mean_length_select,
	.reflect = mean_length_reflect,
};

static int __init mean_length_init(void)
{
	return cpuidle_register_governor(&mean_length_governor);
}
postcore_initcall(mean_length_init);
