/* SPDX-License-Identifier: GPL-2.0 */
/*
 * UMONITOR and UMWAIT in the kernel, and the administrator's limits on them (IA32_UMWAIT_CONTROL,
 * /sys/devices/system/cpu/umwait_control).
 *
 * Test builds (IDLEWISE_TEST=1) put a LOCK prefix before both instructions. Every CPU then raises
 * an invalid-opcode exception, and a die notifier emulates them: it arms the monitor on a word, and
 * waits until the word changes, an interrupt is pending, or the deadline passes. So the driver's
 * own code, including operands and flags, runs on CPUs without the instructions. Not emulated:
 * monitoring a whole cache line instead of a word, spurious wake-ups, and power.
 */
#ifndef IDLEWISE_UMWAIT_H
#define IDLEWISE_UMWAIT_H

#include <linux/kdebug.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sched/idle.h>

#include <asm/apic.h>
#include <asm/cpufeature.h>
#include <asm/msr.h>
#include <asm/processor-flags.h>
#include <asm/ptrace.h>
#include <asm/trapnr.h>
#include <asm/tsc.h>

#include "idlewise_states.h"

#ifdef IDLEWISE_TEST
#define IDLEWISE_TRAP	".byte 0xf0; "
#else
#define IDLEWISE_TRAP	""
#endif

/* umonitor %rax */
static __always_inline void idlewise_umonitor(const void *line)
{
	asm volatile(IDLEWISE_TRAP ".byte 0xf3, 0x0f, 0xae, 0xf0" : : "a" (line) : "memory");
}

/*
 * umwait %ecx, with the longest deadline that EDX:EAX can hold. Interrupts stay masked. They still
 * end the wait, and are handled after it. If an STI before the wait enabled them, one could start a
 * timer or wake a task unnoticed, because an NMI right after the STI ends the shadow that holds off
 * interrupts. Returns whether the control's limit ended the wait (CF).
 */
static __always_inline bool idlewise_umwait(u32 hint)
{
	bool limited;

	asm volatile(IDLEWISE_TRAP ".byte 0xf2, 0x0f, 0xae, 0xf1"
		     : "=@ccc" (limited)
		     : "c" (hint), "d" (~0U), "a" (~0U)
		     : "memory");
	return limited;
}

#ifndef IDLEWISE_TEST

static inline bool idlewise_has_waitpkg(void)
{
	return boot_cpu_has(X86_FEATURE_WAITPKG);
}

static inline u32 idlewise_umwait_control(void)
{
	u64 control;

	return idlewise_read_msr_safe(MSR_IA32_UMWAIT_CONTROL, &control) ? 0 : (u32)control;
}

static inline int idlewise_umwait_start(void)
{
	return 0;
}

static inline void idlewise_umwait_stop(void)
{
}

static inline void idlewise_count_inside(int step)
{
}

static inline bool idlewise_has_soft_wait(void)
{
	return false;
}

static __always_inline void idlewise_soft_wait(void)
{
}

static __always_inline void idlewise_linger(void)
{
}

#else /* IDLEWISE_TEST */

static uint emulated_control = 100000;
module_param(emulated_control, uint, 0644);
MODULE_PARM_DESC(emulated_control, "IA32_UMWAIT_CONTROL as the emulation has it: bit 0 forbids C0.2, bits 2 to 31 are the longest wait in TSC cycles (default: 100000)");

static uint linger_us;
module_param(linger_us, uint, 0644);
MODULE_PARM_DESC(linger_us, "How long CPU 1 is slow to leave a state, as one that its hypervisor runs late; in microseconds (default: 0)");

static atomic_long_t emulated_c01_count, emulated_c02_count;
static atomic_long_t emulated_limit_count, emulated_open_count;

static int count_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%ld\n", atomic_long_read((atomic_long_t *)param->arg));
}

static const struct kernel_param_ops count_ops = { .get = count_get };
module_param_cb(emulated_c01_count, &count_ops, &emulated_c01_count, 0444);
MODULE_PARM_DESC(emulated_c01_count, "How many waits ran as C0.1");
module_param_cb(emulated_c02_count, &count_ops, &emulated_c02_count, 0444);
MODULE_PARM_DESC(emulated_c02_count, "How many waits ran as C0.2");
module_param_cb(emulated_limit_count, &count_ops, &emulated_limit_count, 0444);
MODULE_PARM_DESC(emulated_limit_count, "How many waits the control's limit ended");
module_param_cb(emulated_open_count, &count_ops, &emulated_open_count, 0444);
MODULE_PARM_DESC(emulated_open_count, "How many waits began with interrupts let in");

struct idlewise_monitor {
	const unsigned long *word;
	unsigned long armed;
};

static DEFINE_PER_CPU(struct idlewise_monitor, idlewise_monitor);
static atomic_t inside_count;

/* Counts the CPUs inside enter(). */
static inline void idlewise_count_inside(int step)
{
	atomic_add(step, &inside_count);
}

static inline bool idlewise_has_waitpkg(void)
{
	return true;
}

static inline u32 idlewise_umwait_control(void)
{
	return emulated_control;
}

static noinstr bool idlewise_interrupt_is_pending(void)
{
	int i;

	for (i = 0; i < 8; i++)
		if (apic->read(APIC_IRR + i * 0x10))
			return true;
	return false;
}

static inline bool idlewise_has_soft_wait(void)
{
	return true;
}

/* MWAIT's semantics with a break on masked interrupts, without MWAIT. Interrupts are off. */
static noinstr void idlewise_soft_wait(void)
{
	if (!current_set_polling_and_test()) {
		while (!need_resched() && !idlewise_interrupt_is_pending())
			cpu_relax();
	}
	current_clr_polling();
}

/* Delays between the end of a wait and telling RCU about it. */
static noinstr void idlewise_linger(void)
{
	u64 end = rdtsc() + (u64)linger_us * (tsc_khz / 1000);

	while (linger_us && raw_smp_processor_id() == 1 && rdtsc() < end)
		cpu_relax();
}

static void idlewise_emulate_umwait(struct pt_regs *regs)
{
	const struct idlewise_monitor *monitor = this_cpu_ptr(&idlewise_monitor);
	u64 limit = idlewise_umwait_control() & ~3U;
	u64 deadline = (u64)(u32)regs->dx << 32 | (u32)regs->ax;
	u64 end = limit ? rdtsc() + limit : ~0ULL;
	bool is_c01 = regs->cx & 1 || idlewise_umwait_control() & 1;

	atomic_long_inc(is_c01 ? &emulated_c01_count : &emulated_c02_count);
	if (regs->flags & X86_EFLAGS_IF)
		atomic_long_inc(&emulated_open_count);
	regs->flags &= ~(X86_EFLAGS_CF | X86_EFLAGS_OF | X86_EFLAGS_SF | X86_EFLAGS_ZF |
			 X86_EFLAGS_AF | X86_EFLAGS_PF);
	while (READ_ONCE(*monitor->word) == monitor->armed && !idlewise_interrupt_is_pending()) {
		u64 now = rdtsc();

		if (now >= deadline)
			return;
		if (now >= end) {
			regs->flags |= X86_EFLAGS_CF;
			atomic_long_inc(&emulated_limit_count);
			return;
		}
		cpu_relax();
	}
}

static int idlewise_emulate(struct notifier_block *block, unsigned long event, void *data)
{
	static const u8 umonitor[] = { 0xf0, 0xf3, 0x0f, 0xae, 0xf0 };
	static const u8 umwait[] = { 0xf0, 0xf2, 0x0f, 0xae, 0xf1 };
	struct die_args *args = data;
	struct pt_regs *regs = args->regs;

	if (event != DIE_TRAP || args->trapnr != X86_TRAP_UD || user_mode(regs))
		return NOTIFY_DONE;
	if (!memcmp((void *)regs->ip, umonitor, sizeof(umonitor))) {
		struct idlewise_monitor *monitor = this_cpu_ptr(&idlewise_monitor);

		monitor->word = (const unsigned long *)regs->ax;
		monitor->armed = READ_ONCE(*monitor->word);
	} else if (!memcmp((void *)regs->ip, umwait, sizeof(umwait))) {
		idlewise_emulate_umwait(regs);
	} else {
		return NOTIFY_DONE;
	}
	regs->ip += sizeof(umwait);
	return NOTIFY_STOP;
}

static struct notifier_block idlewise_emulator = { .notifier_call = idlewise_emulate };

static int idlewise_umwait_start(void)
{
	pr_info("test build: UMONITOR and UMWAIT are emulated\n");
	return register_die_notifier(&idlewise_emulator);
}

/* Called before anything that enter() uses is freed. */
static void idlewise_umwait_stop(void)
{
	int inside = atomic_read(&inside_count);

	WARN(inside, "%d CPUs are inside enter() still\n", inside);
	unregister_die_notifier(&idlewise_emulator);
}

#endif /* IDLEWISE_TEST */

#endif /* IDLEWISE_UMWAIT_H */
