/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A governor uses functions that the kernel does not export. A module looks them up when it is
 * loaded. For replay (IDLEWISE_KERNEL_H) the headers have them.
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

#define governor_choice_param(name, ...) module_param(name, uint, 0644)

#else

#include <linux/kallsyms.h>

#include "compat.h"

/* From drivers/cpuidle/cpuidle.h, which modules cannot include. */
int cpuidle_switch_governor(struct cpuidle_governor *governor);

IDLEWISE_DEFINE_CALL(tick_nohz_get_sleep_length);
IDLEWISE_DEFINE_CALL(tick_nohz_tick_stopped);
IDLEWISE_DEFINE_CALL(tick_nohz_idle_got_tick);
IDLEWISE_DEFINE_CALL(cpuidle_governor_latency_req);
IDLEWISE_DEFINE_CALL(cpuidle_register_governor);
IDLEWISE_DEFINE_CALL(cpuidle_switch_governor);
IDLEWISE_DEFINE_CALL(kallsyms_lookup_name);

#define tick_nohz_get_sleep_length(next)	IDLEWISE_CALL(tick_nohz_get_sleep_length)(next)
#define tick_nohz_tick_stopped()		IDLEWISE_CALL(tick_nohz_tick_stopped)()
#define tick_nohz_idle_got_tick()		IDLEWISE_CALL(tick_nohz_idle_got_tick)()
#define cpuidle_governor_latency_req(cpu)	IDLEWISE_CALL(cpuidle_governor_latency_req)(cpu)

static struct cpuidle_governor **current_governor;
/* The governor to return to when a driver that asked for its own goes, as cpuidle-haltpoll does. */
static struct cpuidle_governor **previous_governor;
static struct list_head *governors;

/*
 * The kernel does not count references to governors, so the module counts the devices that it
 * governs. While there are any, it can only be removed after another governor has been chosen.
 */
#define governor_in_use()	__module_get(THIS_MODULE)
#define governor_out_of_use()	module_put(THIS_MODULE)

/* A parameter with a maximum value. */
#define governor_choice_param(name, most)					\
static int set_##name(const char *text, const struct kernel_param *parameter)	\
{										\
	return param_set_uint_minmax(text, parameter, 0, most);			\
}										\
static const struct kernel_param_ops name##_ops = { .set = set_##name, .get = param_get_uint };	\
module_param_cb(name, &name##_ops, &name, 0644)

/*
 * Other governors call some of these at that very moment. So only kallsyms_lookup_name is found by a
 * kprobe, which rewrites the function for a while, and it finds the others.
 */
#define GOVERNOR_FIND(function)								\
({											\
	void *at = (void *)IDLEWISE_CALL(kallsyms_lookup_name)(#function);		\
											\
	if (at)										\
		static_call_update(idlewise_call_##function, (typeof(function) *)at);	\
	!!at;										\
})

static int governor_register(struct cpuidle_governor *governor)
{
	int error;

	if (!IDLEWISE_FIND(kallsyms_lookup_name) || !GOVERNOR_FIND(tick_nohz_get_sleep_length) ||
	    !GOVERNOR_FIND(tick_nohz_tick_stopped) || !GOVERNOR_FIND(tick_nohz_idle_got_tick) ||
	    !GOVERNOR_FIND(cpuidle_governor_latency_req) ||
	    !GOVERNOR_FIND(cpuidle_register_governor) || !GOVERNOR_FIND(cpuidle_switch_governor)) {
		pr_err(KBUILD_MODNAME ": cannot find what governors call; this needs a kernel with kprobes\n");
		return -EOPNOTSUPP;
	}
	current_governor = (void *)IDLEWISE_CALL(kallsyms_lookup_name)("cpuidle_curr_governor");
	previous_governor = (void *)IDLEWISE_CALL(kallsyms_lookup_name)("cpuidle_prev_governor");
	governors = (void *)IDLEWISE_CALL(kallsyms_lookup_name)("cpuidle_governors");
	if (!current_governor || !previous_governor || !governors) {
		pr_err(KBUILD_MODNAME ": cannot find the list of governors; this needs a kernel with CONFIG_KALLSYMS_ALL\n");
		return -EOPNOTSUPP;
	}
	error = IDLEWISE_CALL(cpuidle_register_governor)(governor);
	if (error)
		pr_err(KBUILD_MODNAME ": a governor %s is registered already, or cpuidle is off (%d)\n",
		       governor->name, error);
	return error;
}

/*
 * Removes the governor from the list while no CPU can choose it. It may still be the current
 * governor (with no devices, or chosen again meanwhile), or the one that a driver will restore when
 * it goes. In both cases the best of the others takes its place.
 */
static void governor_unregister(struct cpuidle_governor *governor)
{
	struct cpuidle_governor *other, *best = NULL;

	cpuidle_pause_and_lock();
	list_del(&governor->governor_list);
	list_for_each_entry(other, governors, governor_list) {
		if (!best || other->rating > best->rating)
			best = other;
	}
	/*
	 * Without another governor there is none, as before the first was registered. The module's
	 * references say that no device is governed, so nothing asks this one.
	 */
	if (*current_governor == governor && IDLEWISE_CALL(cpuidle_switch_governor)(best))
		*current_governor = NULL;
	if (*previous_governor == governor)
		*previous_governor = best;
	cpuidle_resume_and_unlock();
}

#endif /* IDLEWISE_KERNEL_H */

#endif /* IDLEWISE_GOVERNOR_SYMBOLS_H */
