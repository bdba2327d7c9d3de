/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Exits that really take their time, in test builds (real_exits=1). A virtual machine leaves every
 * state at once, so nothing could be measured there, and no change of a setting would cost anything.
 *
 * What ends a stay has happened, and nobody knows it yet: a word was stored, or an interrupt is
 * pending. Hardware gets the CPU back to work from here, and its first instruction comes later. So
 * the driver lets that time pass with interrupts masked, before any handler, in the same place for
 * all methods: a wake-up by a store takes as long as one by an interrupt. HLT lets its interrupt in
 * and so cannot be used; a loop that looks for a pending interrupt replaces it, and unlike MWAIT's
 * it leaves the polling flag alone, so that wakers send their IPI.
 *
 * A CPU that was already told to run something does not enter, and so does not leave either. POLL is
 * the kernel's own, and leaves at once.
 *
 * Not emulated: the time to enter, package states, and exits that vary.
 */
#ifndef IDLEWISE_EXITS_H
#define IDLEWISE_EXITS_H

#include "idlewise_states.h"
#include "umwait.h"

#ifndef IDLEWISE_TEST

static inline int idlewise_settle_exits(const struct idlewise_table *table)
{
	return 0;
}

static __always_inline bool idlewise_exits_take_time(void)
{
	return false;
}

static __always_inline void idlewise_wait_pending(void)
{
}

static __always_inline void idlewise_leave(int index)
{
}

#else /* IDLEWISE_TEST */

static bool real_exits;
module_param(real_exits, bool, 0644);
MODULE_PARM_DESC(real_exits, "Whether leaving a state takes as long as exits_us or the table says (default: no)");

static uint exits_us[IDLEWISE_STATE_COUNT_MAX];
static int exits_us_count;
module_param_array(exits_us, uint, &exits_us_count, 0444);
MODULE_PARM_DESC(exits_us, "How long leaving each state really takes, in the table's order, in microseconds (default: the table's exit latencies)");

static u64 exit_cycles[IDLEWISE_STATE_COUNT_MAX];

static int idlewise_settle_exits(const struct idlewise_table *table)
{
	int index;

	if (exits_us_count && exits_us_count != table->state_count) {
		pr_err("exits_us: %d times for %d states; name one for each\n", exits_us_count,
		       table->state_count);
		return -EINVAL;
	}
	for (index = 0; index < table->state_count; index++) {
		u64 exit_ns = exits_us_count ? 1000ULL * exits_us[index] :
			      table->states[index].exit_latency_ns;

		exit_cycles[index] = exit_ns * tsc_khz / 1000000;
	}
	return 0;
}

static __always_inline bool idlewise_exits_take_time(void)
{
	return READ_ONCE(real_exits);
}

/* HLT until an interrupt is pending, which stays pending. Interrupts are off. */
static noinstr void idlewise_wait_pending(void)
{
	while (!idlewise_interrupt_is_pending())
		cpu_relax();
}

/*
 * Passes a state's exit latency. What ended the stay has just been seen; interrupts are off. Under
 * QEMU a pause lets another CPU run first, so near the end there is none.
 */
static noinstr void idlewise_leave(int index)
{
	u64 end = rdtsc() + exit_cycles[index], near = tsc_khz / 1000 * 8;

	while (rdtsc() + near < end)
		cpu_relax();
	while (rdtsc() < end)
		barrier();
}

#endif /* IDLEWISE_TEST */

#endif /* IDLEWISE_EXITS_H */
