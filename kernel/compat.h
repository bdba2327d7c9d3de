/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between the kernels that we build for: Debian's 6.1, 6.12 and 7.3, and others in
 * between. All version switches are in this file. Kbuild detects what no version number tells.
 */
#ifndef IDLEWISE_COMPAT_H
#define IDLEWISE_COMPAT_H

#include <linux/cpuidle.h>
#include <linux/hrtimer.h>
#include <linux/kprobes.h>
#include <linux/percpu.h>
#include <linux/static_call.h>
#include <linux/version.h>

#include <asm/hardirq.h>
#include <asm/msr.h>
#include <asm/mwait.h>
#include <asm/nospec-branch.h>
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
#include <asm/processor.h>
#else
#include <asm/cpuid/api.h>
#endif

/*
 * A driver that handles RCU itself must tell RCU, and make lockdep assume that interrupts are on,
 * since a wait may enable them without lockdep's knowledge. Since 6.3 one function does all that.
 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
#include <linux/context_tracking.h>
#include <linux/instrumentation.h>
#include <linux/irqflags.h>
static __always_inline void idlewise_rcu_idle_enter(void)
{
	trace_hardirqs_on_prepare();
	lockdep_hardirqs_on_prepare();
	instrumentation_end();
	ct_idle_enter();
	lockdep_hardirqs_on(_THIS_IP_);
}

static __always_inline void idlewise_rcu_idle_exit(void)
{
	lockdep_hardirqs_off(_THIS_IP_);
	ct_idle_exit();
	instrumentation_begin();
}
#else
#define idlewise_rcu_idle_enter()	ct_cpuidle_enter()
#define idlewise_rcu_idle_exit()	ct_cpuidle_exit()
#endif

/* Renamed in 6.16, and in the stable kernels of that time. */
#ifdef IDLEWISE_CLEARS_BUFFERS
#define idlewise_clear_cpu_buffers()	x86_idle_clear_cpu_buffers()
#else
#define idlewise_clear_cpu_buffers()	mds_idle_clear_cpu_buffers()
#endif

/* What enter_dead() returns: nothing since 6.16. */
#ifdef IDLEWISE_PLAY_DEAD
#define IDLEWISE_DEAD void
#else
#define IDLEWISE_DEAD int
#endif

static inline void idlewise_timer_setup(struct hrtimer *timer,
					enum hrtimer_restart (*function)(struct hrtimer *))
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer->function = function;
#else
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#endif
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
#define idlewise_read_msr_safe(msr, value)	rdmsrl_safe(msr, value)
#else
#define idlewise_read_msr_safe(msr, value)	rdmsrq_safe(msr, value)
#endif

/* Until 6.8, erratum 400 and idle=halt choose the idle routine before anything about MWAIT is asked. */
#define IDLEWISE_E400_DECIDES	(LINUX_VERSION_CODE < KERNEL_VERSION(6, 9, 0))

/* CPUID's leaf 5 was renamed. */
#ifndef CPUID_LEAF_MWAIT
#define CPUID_LEAF_MWAIT	CPUID_MWAIT_LEAF
#endif

/* The number of interrupts so far by which other CPUs woke this one. */
static __always_inline unsigned int idlewise_ipi_count(void)
{
#ifdef IDLEWISE_IRQ_COUNTS
	return this_cpu_read(irq_stat.counts[IRQ_COUNT_RESCHEDULE]) +
	       this_cpu_read(irq_stat.counts[IRQ_COUNT_CALL_FUNCTION]);
#else
	return this_cpu_read(irq_stat.irq_resched_count) + this_cpu_read(irq_stat.irq_call_count);
#endif
}

/* The address of a function that is not exported, after its landing pad if any; or NULL. */
static inline void *idlewise_function(const char *name)
{
	struct kprobe probe = { .symbol_name = name };
	void *at;

	if (register_kprobe(&probe))
		return NULL;
	at = probe.addr;
	unregister_kprobe(&probe);
	return at;
}

/*
 * Such functions are called directly, as static calls. Kernels that check indirect calls (IBT) have
 * sealed them against those, because the kernel itself does not take their addresses.
 */
#define IDLEWISE_DEFINE_CALL(function)	DEFINE_STATIC_CALL_NULL(idlewise_call_##function, function)
#define IDLEWISE_CALL(function)		static_call(idlewise_call_##function)

/* Whether the kernel has the function and it may be called. */
#define IDLEWISE_FIND(function)							\
({										\
	void *at = idlewise_function(#function);				\
										\
	if (at)									\
		static_call_update(idlewise_call_##function, (typeof(function) *)at);	\
	!!at;									\
})

#endif /* IDLEWISE_COMPAT_H */
