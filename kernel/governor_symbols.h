/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A governor uses functions that the kernel does not export. As a module it looks them up when it
 * is loaded; where the governor's file is compiled for replay (IDLEWISE_KERNEL_H), they are there.
 */
#ifndef IDLEWISE_GOVERNOR_SYMBOLS_H
#define IDLEWISE_GOVERNOR_SYMBOLS_H

#ifdef IDLEWISE_KERNEL_H

#define governor_in_use()
#define governor_out_of_use()
#define governor_register(governor) cpuidle_register_governor(governor)
static inline void governor_unregister(struct cpuidle_governor *governor)
{
}

#else

#include "compat.h"

static struct {
	ktime_t (*sleep_length)(ktime_t *next_event);
	bool (*tick_stopped)(void);
	bool (*got_tick)(void);
	s64 (*latency_limit)(unsigned int cpu);
	int (*register_governor)(struct cpuidle_governor *governor);
} symbols;

#define tick_nohz_get_sleep_length(next_event)	symbols.sleep_length(next_event)
#define tick_nohz_tick_stopped()		symbols.tick_stopped()
#define tick_nohz_idle_got_tick()		symbols.got_tick()
#define cpuidle_governor_latency_req(cpu)	symbols.latency_limit(cpu)

/*
 * The kernel counts no references to governors, so the module counts the devices that it governs:
 * it can be removed once another governor has been chosen.
 */
#define governor_in_use()	__module_get(THIS_MODULE)
#define governor_out_of_use()	module_put(THIS_MODULE)

static int governor_register(struct cpuidle_governor *governor)
{
	const struct {
		const char *name;
		void **to;
	} wanted[] = {
		{ "tick_nohz_get_sleep_length", (void **)&symbols.sleep_length },
		{ "tick_nohz_tick_stopped", (void **)&symbols.tick_stopped },
		{ "tick_nohz_idle_got_tick", (void **)&symbols.got_tick },
		{ "cpuidle_governor_latency_req", (void **)&symbols.latency_limit },
		{ "cpuidle_register_governor", (void **)&symbols.register_governor },
	};
	unsigned int i;
	int error;

	for (i = 0; i < ARRAY_SIZE(wanted); i++) {
		*wanted[i].to = idlewise_function(wanted[i].name);
		if (!*wanted[i].to) {
			pr_err(KBUILD_MODNAME ": cannot find %s; this needs a kernel with kprobes\n",
			       wanted[i].name);
			return -EOPNOTSUPP;
		}
	}
	error = symbols.register_governor(governor);
	if (error)
		pr_err(KBUILD_MODNAME ": a governor %s is registered already, or cpuidle is off (%d)\n",
		       governor->name, error);
	return error;
}

/* Nobody uses it, since the module is being removed; off the list while no CPU can choose it. */
static void governor_unregister(struct cpuidle_governor *governor)
{
	cpuidle_pause_and_lock();
	list_del(&governor->governor_list);
	cpuidle_resume_and_unlock();
}

#endif /* IDLEWISE_KERNEL_H */

#endif /* IDLEWISE_GOVERNOR_SYMBOLS_H */
