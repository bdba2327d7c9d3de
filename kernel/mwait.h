/* SPDX-License-Identifier: GPL-2.0 */
/*
 * MWAIT: what CPUID lists, waiting with it, and the state in which a CPU goes offline.
 *
 * Test builds can claim that CPUID lists hints (emulated_mwait=, in the format of leaf 5's EDX).
 * They then wait in a loop, so that the code for deep states runs in a virtual machine. They do not
 * emulate sleeping.
 */
#ifndef IDLEWISE_MWAIT_H
#define IDLEWISE_MWAIT_H

#include <linux/sched.h>
#include <linux/sched/idle.h>

#include <asm/cpufeature.h>
#include <asm/mwait.h>
#include <asm/processor.h>
#include <asm/smp.h>

#include "compat.h"
#include "idlewise_states.h"
#include "umwait.h"

#ifdef IDLEWISE_PLAY_DEAD
IDLEWISE_DEFINE_CALL(mwait_play_dead);
#endif

#ifdef IDLEWISE_TEST

static uint emulated_mwait;
module_param(emulated_mwait, uint, 0444);
MODULE_PARM_DESC(emulated_mwait, "EDX of CPUID's leaf 5 for an MWAIT that is emulated (default: 0, the CPU's own MWAIT)");

static int last_dead_hint = -1;
module_param(last_dead_hint, int, 0444);
MODULE_PARM_DESC(last_dead_hint, "The hint by which a CPU went offline last (-1: none did)");

#else

#define emulated_mwait	0

#endif

static struct idlewise_mwait_leaf idlewise_mwait_leaf(void)
{
	struct idlewise_mwait_leaf leaf = { 0 };
	u32 eax, ebx, ecx, edx;

	if (emulated_mwait)
		return (struct idlewise_mwait_leaf){ true, true, emulated_mwait };
	if (boot_cpu_data.cpuid_level < CPUID_LEAF_MWAIT)
		return leaf;
	cpuid(CPUID_LEAF_MWAIT, &eax, &ebx, &ecx, &edx);
	leaf.enumerates_extensions = ecx & CPUID5_ECX_EXTENSIONS_SUPPORTED;
	if (leaf.enumerates_extensions) {
		leaf.breaks_on_interrupt = ecx & CPUID5_ECX_INTERRUPT_BREAK;
		leaf.substate_counts = edx;
	}
	return leaf;
}

/*
 * The kernel's own function, including buffers and errata. But if masked interrupts don't end
 * MWAIT, they must be enabled, and before 6.10 the kernel's function does not do that.
 */
static __always_inline void idlewise_mwait(u32 hint, bool breaks_on_interrupt)
{
	if (emulated_mwait) {
		idlewise_soft_wait();
		return;
	}
	if (breaks_on_interrupt) {
		mwait_idle_with_hints(hint, MWAIT_ECX_INTERRUPT_BREAK);
		return;
	}
	idlewise_clear_cpu_buffers();
	if (!current_set_polling_and_test()) {
		__monitor(&current_thread_info()->flags, 0, 0);
		if (!need_resched()) {
			__sti_mwait(hint, 0);
			raw_local_irq_disable();
		}
	}
	current_clr_polling();
}

/*
 * An offline CPU that waits with HLT keeps its package awake. Since 6.16 the kernel asks the driver
 * where to wait, and provides a function for that, which does not return. Older kernels ask CPUID
 * themselves.
 */
#ifdef IDLEWISE_PLAY_DEAD

static inline bool idlewise_can_play_dead(void)
{
	return IDLEWISE_FIND(mwait_play_dead);
}

static inline void idlewise_play_dead(u32 hint)
{
#ifdef IDLEWISE_TEST
	last_dead_hint = hint;
#endif
	IDLEWISE_CALL(mwait_play_dead)(hint);
}

#else

static inline bool idlewise_can_play_dead(void)
{
	return false;
}

static inline void idlewise_play_dead(u32 hint)
{
}

#endif

#endif /* IDLEWISE_MWAIT_H */
