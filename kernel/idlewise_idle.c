// SPDX-License-Identifier: GPL-2.0
/*
 * idlewise_idle: a cpuidle driver with user-wait states, auto-promotion and wake accounting.
 *
 * States come from `states=` or from CPUID: POLL; C0.2 where the CPU has WAITPKG; C1 by MWAIT, or
 * by HLT where MWAIT C1 does not exist. What each of our three ideas does here:
 *
 * C0.1, C0.2 - UMWAIT with interrupts on, monitoring the idle task's flags, without a deadline of
 * its own: IA32_UMWAIT_CONTROL ends it, and forbids C0.2 where the administrator says so. A stay
 * that the control ended is an idle stay like any other; the governor is asked again.
 *
 * Wakes without an interrupt - the polling flag stays set while a state monitors the flags, so that
 * the scheduler's and the function calls' senders store instead of sending an IPI. Counted per CPU:
 * wakes by a store, by an IPI, and free rides, which are further wakes that found one on its way.
 *
 * Promotion - entering a state of `promote=` starts a timer at the next enabled state's target
 * residency plus twice its exit latency. It only ends the stay: the governor sees a stay that was
 * long enough for the deeper state and learns. It is not started where PM QoS forbids that state.
 *
 * Not in here: latencies of states that CPUID lists but nobody measured (name them in `states=`),
 * coupled states, suspend states, and any opinion about the tick.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpuidle.h>
#include <linux/debugfs.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched/clock.h>
#include <linux/sched/idle.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/tracepoint.h>

#include <asm/apic.h>
#include <asm/irq_vectors.h>
#include <asm/msr.h>
#include <asm/mwait.h>
#include <asm/processor.h>

#include "compat.h"
#include "idlewise_states.h"
#include "umwait.h"

#define CREATE_TRACE_POINTS
#include "idlewise_idle_trace.h"

static char *states;
module_param(states, charp, 0444);
MODULE_PARM_DESC(states, "State table, NAME[@METHOD]:EXIT_LATENCY/TARGET_RESIDENCY in microseconds, comma-separated (default: from CPUID), e.g. POLL,C0.2:0.1/0.1,C1:2/2,C6@0x20:290/800");

static char *promote = "";
module_param(promote, charp, 0444);
MODULE_PARM_DESC(promote, "Names of the states that a timer gets a CPU out of, comma-separated, or all (default: none)");

static char *disable = "";
module_param(disable, charp, 0444);
MODULE_PARM_DESC(disable, "Names of the states that are disabled until sysfs enables them, comma-separated (default: none), e.g. C0.2");

enum idlewise_wake {
	IDLEWISE_WAKE_STORE,
	IDLEWISE_WAKE_IPI,
	IDLEWISE_WAKE_PROMOTION,
	IDLEWISE_WAKE_DEADLINE,
	IDLEWISE_WAKE_INTERRUPT,
	IDLEWISE_WAKE_COUNT,
};

static const char * const wake_names[IDLEWISE_WAKE_COUNT] = {
	"store", "ipi", "promotion", "deadline", "interrupt",
};

struct idlewise_cpu {
	struct cpuidle_device device;
	struct hrtimer promotion;
	bool is_registered;
	/* Wakes that other CPUs sent here without an IPI; theirs to add to. */
	atomic_long_t silent_wake_count;
	/* The rest is written by this CPU alone. */
	u64 wake_counts[IDLEWISE_STATE_COUNT_MAX][IDLEWISE_WAKE_COUNT];
	u64 stay_ns[IDLEWISE_STATE_COUNT_MAX];
	u64 free_ride_count;
};

static struct idlewise_table table;
static struct cpuidle_driver driver = { .name = "idlewise" };
static struct idlewise_cpu __percpu *cpus;
static unsigned long promoted_states, disabled_states;
static enum cpuhp_state hotplug_state;
static struct dentry *debugfs_folder;
static struct idlewise_boot_answer boot_answer;
static struct tracepoint *silent_wake_tracepoint;
IDLEWISE_DEFINE_CALL(cpuidle_governor_latency_req);
/* ECX of MWAIT: whether masked interrupts end it, or they must be let in. */
static u32 mwait_breaks_on_interrupt;

/* Waiting */

/* Whether a reschedule or call IPI waits for interrupts to be let in; their vectors adjoin. */
static bool ipi_is_pending(void)
{
	const u32 vectors = BIT(RESCHEDULE_VECTOR & 31) | BIT(CALL_FUNCTION_VECTOR & 31) |
			    BIT(CALL_FUNCTION_SINGLE_VECTOR & 31);

	BUILD_BUG_ON(RESCHEDULE_VECTOR >> 5 != 7 || CALL_FUNCTION_VECTOR >> 5 != 7 ||
		     CALL_FUNCTION_SINGLE_VECTOR >> 5 != 7);
	return apic->read(APIC_IRR + 0x70) & vectors;
}

static __always_inline void wait_halted(void)
{
	raw_safe_halt();
	raw_local_irq_disable();
}

/* Returns whether the control's deadline ended it. */
static __always_inline bool wait_user(u32 hint)
{
	bool deadline = false;

	if (!current_set_polling_and_test()) {
		idlewise_umonitor(&current_thread_info()->flags);
		if (!need_resched()) {
			deadline = idlewise_sti_umwait(hint);
			raw_local_irq_disable();
		}
	}
	current_clr_polling();
	return deadline;
}

/* The kernel's own way, but for CPUs whose MWAIT masked interrupts don't end: these are let in. */
static __always_inline void wait_monitored(u32 hint)
{
	if (mwait_breaks_on_interrupt) {
		mwait_idle_with_hints(hint, mwait_breaks_on_interrupt);
		return;
	}
	if (!current_set_polling_and_test()) {
		__monitor(&current_thread_info()->flags, 0, 0);
		if (!need_resched()) {
			__sti_mwait(hint, 0);
			raw_local_irq_disable();
		}
	}
	current_clr_polling();
}

static __always_inline bool wait_in(const struct idlewise_state *state)
{
	switch (state->method) {
	case IDLEWISE_UMWAIT:
		return wait_user(state->hint);
	case IDLEWISE_MWAIT:
		wait_monitored(state->hint);
		return false;
	case IDLEWISE_SOFT:
		if (!current_set_polling_and_test())
			idlewise_soft_wait();
		current_clr_polling();
		return false;
	default:
		wait_halted();
		return false;
	}
}

/* Promotion */

static enum hrtimer_restart promotion_expired(struct hrtimer *timer)
{
	return HRTIMER_NORESTART;
}

/* How long a stay in a state may last before it is ended for a deeper one's sake; 0: forever. */
static u64 promotion_span_ns(struct cpuidle_device *device, int index)
{
	s64 limit_ns;
	int next;

	if (!test_bit(index, &promoted_states))
		return 0;
	limit_ns = IDLEWISE_CALL(cpuidle_governor_latency_req)(device->cpu);
	for (next = index + 1; next < driver.state_count; next++) {
		if (device->states_usage[next].disable)
			continue;
		if (driver.states[next].exit_latency_ns > limit_ns)
			return 0;
		return driver.states[next].target_residency_ns +
		       2 * driver.states[next].exit_latency_ns;
	}
	return 0;
}

static int idlewise_enter(struct cpuidle_device *device, struct cpuidle_driver *drv, int index)
{
	struct idlewise_cpu *cpu = container_of(device, struct idlewise_cpu, device);
	const struct idlewise_state *state = &table.states[index];
	long silent_wakes = atomic_long_read(&cpu->silent_wake_count);
	u64 promotion_ns = promotion_span_ns(device, index);
	unsigned int ipis = idlewise_ipi_count();
	u64 start_ns = local_clock(), stay_ns;
	enum idlewise_wake wake;
	bool deadline;

	if (promotion_ns)
		hrtimer_start(&cpu->promotion, ns_to_ktime(promotion_ns),
			      HRTIMER_MODE_REL_PINNED_HARD);
	idlewise_rcu_idle_enter();
	deadline = wait_in(state);
	idlewise_rcu_idle_exit();
	stay_ns = local_clock() - start_ns;
	/* Pinned and handled in hard interrupts, which are off: it can't be running now. */
	if (promotion_ns)
		hrtimer_try_to_cancel(&cpu->promotion);

	silent_wakes = atomic_long_read(&cpu->silent_wake_count) - silent_wakes;
	if (silent_wakes > 0) {
		wake = IDLEWISE_WAKE_STORE;
		cpu->free_ride_count += silent_wakes - 1;
	} else if (idlewise_ipi_count() != ipis || ipi_is_pending()) {
		wake = IDLEWISE_WAKE_IPI;
	} else if (promotion_ns && stay_ns >= promotion_ns) {
		/* By the clock: the handler may not have run yet. */
		wake = IDLEWISE_WAKE_PROMOTION;
	} else {
		wake = deadline ? IDLEWISE_WAKE_DEADLINE : IDLEWISE_WAKE_INTERRUPT;
	}
	cpu->wake_counts[index][wake]++;
	cpu->stay_ns[index] += stay_ns;
	trace_idlewise_wake(index, wake, stay_ns);
	return index;
}

/* Accounting: the scheduler tells of each wake that it sent as a store. */

static void silent_wake(void *data, int cpu)
{
	atomic_long_inc(&per_cpu_ptr(cpus, cpu)->silent_wake_count);
}

static void find_silent_wake(struct tracepoint *tracepoint, void *data)
{
	if (!strcmp(tracepoint->name, "sched_wake_idle_without_ipi"))
		silent_wake_tracepoint = tracepoint;
}

static int wakes_show(struct seq_file *file, void *data)
{
	int cpu, index, wake;

	seq_printf(file, "%-4s %-*s %15s", "cpu", IDLEWISE_NAME_LENGTH_MAX, "state", "stay_ns");
	for (wake = 0; wake < IDLEWISE_WAKE_COUNT; wake++)
		seq_printf(file, " %12s", wake_names[wake]);
	seq_puts(file, "\n");
	for_each_online_cpu(cpu) {
		const struct idlewise_cpu *of = per_cpu_ptr(cpus, cpu);

		for (index = 0; index < table.state_count; index++) {
			/* POLL is the kernel's own and counts in sysfs only. */
			if (table.states[index].method == IDLEWISE_POLL)
				continue;
			seq_printf(file, "%-4d %-*s %15llu", cpu, IDLEWISE_NAME_LENGTH_MAX,
				   table.states[index].name, of->stay_ns[index]);
			for (wake = 0; wake < IDLEWISE_WAKE_COUNT; wake++)
				seq_printf(file, " %12llu", of->wake_counts[index][wake]);
			seq_puts(file, "\n");
		}
		seq_printf(file, "%-4d free_rides %llu\n", cpu, of->free_ride_count);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(wakes);

/* The table */

static bool mwait_hint_exists(u32 hint)
{
	u32 eax, ebx, ecx, edx;
	unsigned int substate_count;

	if (!boot_cpu_has(X86_FEATURE_MWAIT) || boot_cpu_data.cpuid_level < CPUID_LEAF_MWAIT)
		return false;
	cpuid(CPUID_LEAF_MWAIT, &eax, &ebx, &ecx, &edx);
	if (ecx & CPUID5_ECX_INTERRUPT_BREAK)
		mwait_breaks_on_interrupt = MWAIT_ECX_INTERRUPT_BREAK;
	if (!(ecx & CPUID5_ECX_EXTENSIONS_SUPPORTED))
		return hint == 0;
	substate_count = edx >> (4 * (MWAIT_HINT2CSTATE(hint) + 1)) & MWAIT_SUBSTATE_MASK;
	return MWAIT_HINT2CSTATE(hint) < 7 && MWAIT_HINT2SUBSTATE(hint) < substate_count;
}

static struct idlewise_boot_facts boot_facts(void)
{
	struct idlewise_boot_facts facts = {
		.poll_requested = boot_option_idle_override == IDLE_POLL,
		.halt_requested = boot_option_idle_override == IDLE_HALT,
		.mwait_forbidden = boot_option_idle_override == IDLE_NOMWAIT,
		.has_driver = cpuidle_get_driver(),
		.mwait_supported = boot_cpu_has(X86_FEATURE_MWAIT),
		.mwait_broken = boot_cpu_has_bug(X86_BUG_MONITOR) ||
				boot_cpu_has_bug(X86_BUG_AMD_APIC_C1E),
	};
	u32 eax, ebx, ecx, edx;

	if (boot_cpu_data.cpuid_level >= CPUID_LEAF_MWAIT) {
		cpuid(CPUID_LEAF_MWAIT, &eax, &ebx, &ecx, &edx);
		facts.enumerates_extensions = ecx & CPUID5_ECX_EXTENSIONS_SUPPORTED;
		facts.c1_substate_count = (edx & MWAIT_C1_SUBSTATE_MASK) >> 4;
	}
	return facts;
}

/*
 * Whether C1 is MWAIT's: what CPUID says, and idle=nomwait. Not idle=halt, which is how a user
 * keeps the distribution's drivers away (README).
 */
static bool c1_is_mwait(struct idlewise_boot_facts facts)
{
	facts.poll_requested = false;
	facts.halt_requested = false;
	facts.has_driver = false;
	return !strncmp(idlewise_default_idle(facts).routine, "MWAIT", 5);
}

static const char *default_states(void)
{
	return idlewise_has_waitpkg() && !boot_cpu_has_bug(X86_BUG_MONITOR) ?
		       "POLL,C0.2:0.1/0.1,C1:2/2" : "POLL,C1:2/2";
}

/* Makes each state's method one that this CPU has. */
static int settle_methods(bool mwait_is_c1)
{
	int index;

	for (index = 0; index < table.state_count; index++) {
		struct idlewise_state *state = &table.states[index];

		if (state->method == IDLEWISE_C1) {
			state->method = mwait_is_c1 ? IDLEWISE_MWAIT : IDLEWISE_HLT;
			state->hint = 0;
		}
		if (state->method == IDLEWISE_MWAIT && !mwait_hint_exists(state->hint)) {
			pr_err("states: this CPU has no MWAIT hint 0x%02x for %s; name another, or %s@hlt\n",
			       state->hint, state->name, state->name);
			return -ENODEV;
		}
		if (state->method == IDLEWISE_UMWAIT && !idlewise_has_waitpkg()) {
			pr_err("states: this CPU has no WAITPKG, so no %s; leave it out\n",
			       state->name);
			return -ENODEV;
		}
		if ((state->method == IDLEWISE_MWAIT || state->method == IDLEWISE_UMWAIT) &&
		    boot_cpu_has_bug(X86_BUG_MONITOR)) {
			pr_err("states: this CPU's monitor misses stores, so no %s; use %s@hlt\n",
			       state->name, state->name);
			return -ENODEV;
		}
		if (state->method == IDLEWISE_SOFT && !idlewise_has_soft_wait()) {
			pr_err("states: %s@soft is for test builds; use a hint or hlt\n",
			       state->name);
			return -EINVAL;
		}
	}
	return 0;
}

/* The states that a list names, as bits; `all` are those that don't poll. */
static int named_states(const char *parameter, const char *list, unsigned long *named)
{
	const char *at = list;

	while (*at) {
		size_t length = strcspn(at, ",");
		bool is_all = length == 3 && !strncmp(at, "all", 3);
		bool found = is_all;
		int index;

		for (index = 0; index < table.state_count; index++) {
			const struct idlewise_state *state = &table.states[index];
			bool is_named = strlen(state->name) == length &&
					!strncmp(at, state->name, length);

			if (is_named || (is_all && state->method != IDLEWISE_POLL))
				*named |= BIT(index);
			if (is_named)
				found = true;
		}
		if (!found) {
			pr_err("%s: no state %.*s in the table; name states or all\n", parameter,
			       (int)length, at);
			return -EINVAL;
		}
		at += length + (at[length] == ',');
	}
	return 0;
}

static int settle_promotion(void)
{
	int error = named_states("promote", promote, &promoted_states);

	if (error || !promoted_states)
		return error;
	if (test_bit(0, &promoted_states) && table.states[0].method == IDLEWISE_POLL) {
		pr_err("promote: POLL ends by a limit of its own; name other states\n");
		return -EINVAL;
	}
	if (!IDLEWISE_FIND(cpuidle_governor_latency_req)) {
		pr_err("promote: needs kprobes to ask for PM QoS limits, and this kernel has none; load without promote=\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

static void fill_driver(void)
{
	int index;

	for (index = 0; index < table.state_count; index++) {
		const struct idlewise_state *from = &table.states[index];
		struct cpuidle_state *to = &driver.states[index];

		if (from->method == IDLEWISE_POLL) {
			cpuidle_poll_state_init(&driver);
			if (test_bit(index, &disabled_states))
				to->flags |= CPUIDLE_FLAG_OFF;
			continue;
		}
		strscpy(to->name, from->name, sizeof(to->name));
		switch (from->method) {
		case IDLEWISE_UMWAIT:
			snprintf(to->desc, sizeof(to->desc), "UMWAIT %s",
				 from->hint == IDLEWISE_C01 ? "C0.1" : "C0.2");
			break;
		case IDLEWISE_MWAIT:
			snprintf(to->desc, sizeof(to->desc), "MWAIT 0x%02x", from->hint);
			break;
		default:
			strscpy(to->desc, from->method == IDLEWISE_SOFT ? "SOFTWARE WAIT" : "HLT",
				sizeof(to->desc));
		}
		to->exit_latency_ns = from->exit_latency_ns;
		to->target_residency_ns = from->target_residency_ns;
		/* The fields in microseconds stay 0: cpuidle would round the others to them. */
		to->flags = CPUIDLE_FLAG_RCU_IDLE;
		if ((from->method == IDLEWISE_MWAIT && MWAIT_HINT2CSTATE(from->hint) &&
		     !boot_cpu_has(X86_FEATURE_ARAT)) ||
		    (from->method == IDLEWISE_HLT && boot_cpu_has_bug(X86_BUG_AMD_APIC_C1E)))
			to->flags |= CPUIDLE_FLAG_TIMER_STOP;
		if (test_bit(index, &disabled_states))
			to->flags |= CPUIDLE_FLAG_OFF;
		to->enter = idlewise_enter;
	}
	driver.state_count = table.state_count;
}

/* Loading and unloading */

static int bring_online(unsigned int number)
{
	struct idlewise_cpu *cpu = per_cpu_ptr(cpus, number);
	int error;

	if (cpu->is_registered)
		return 0;
	idlewise_timer_setup(&cpu->promotion, promotion_expired);
	cpu->device.cpu = number;
	error = cpuidle_register_device(&cpu->device);
	if (error) {
		pr_err("CPU %u: no cpuidle device: %d\n", number, error);
		return error;
	}
	cpu->is_registered = true;
	return 0;
}

static void unregister_devices(void)
{
	int number;

	/* One may have been removed from the machine meanwhile. */
	for_each_possible_cpu(number) {
		struct idlewise_cpu *cpu = per_cpu_ptr(cpus, number);

		if (cpu->is_registered)
			cpuidle_unregister_device(&cpu->device);
		cpu->is_registered = false;
	}
}

/* What the administrator's limits do to the table's UMWAIT states. */
static void report_umwait_control(void)
{
	u32 control = idlewise_umwait_control();
	int index;

	for (index = 0; index < table.state_count; index++) {
		if (table.states[index].method != IDLEWISE_UMWAIT)
			continue;
		pr_info("%s: umwait_control ends it after %u TSC cycles%s%s\n",
			table.states[index].name, control & ~3U, control & ~3U ? "" : " (never)",
			control & 1 && table.states[index].hint == IDLEWISE_C02 ?
				", and makes it C0.1 (enable_c02 is 0)" : "");
	}
}

static void report_table(void)
{
	int index;

	pr_info("without a driver this CPU would idle by %s: %s\n", boot_answer.routine,
		boot_answer.reason);
	for (index = 0; index < driver.state_count; index++) {
		const struct cpuidle_state *state = &driver.states[index];

		pr_info("state %d: %s (%s), exit latency %lld ns, target residency %lld ns%s%s\n",
			index, state->name, state->desc, state->exit_latency_ns,
			state->target_residency_ns,
			test_bit(index, &promoted_states) ? ", promoted" : "",
			test_bit(index, &disabled_states) ? ", disabled until sysfs enables it" : "");
	}
	report_umwait_control();
}

static int __init idlewise_init(void)
{
	struct idlewise_boot_facts facts = boot_facts();
	const char *text = states ? states : default_states();
	struct idlewise_error wrong;
	int error;

	boot_answer = idlewise_default_idle(facts);
	if (facts.poll_requested) {
		pr_err("idle=poll is on the kernel's command line, so no CPU asks a driver; boot without it\n");
		return -ENODEV;
	}
	if (!idlewise_parse_table(text, &table, &wrong)) {
		pr_err("states: at character %d, '%.20s': %s\n", wrong.at + 1, text + wrong.at,
		       wrong.why);
		return -EINVAL;
	}
	error = settle_methods(c1_is_mwait(facts));
	if (!error)
		error = settle_promotion();
	if (!error)
		error = named_states("disable", disable, &disabled_states);
	if (error)
		return error;
	fill_driver();

	cpus = alloc_percpu(struct idlewise_cpu);
	if (!cpus)
		return -ENOMEM;
	error = idlewise_umwait_start();
	if (error)
		goto free_cpus;
	error = cpuidle_register_driver(&driver);
	if (error) {
		const struct cpuidle_driver *other = cpuidle_get_driver();

		if (!other)
			pr_err("cpuidle takes no driver (%d); boot without cpuidle.off=1\n", error);
		else
			pr_err("cpuidle driver %s is registered already; boot with %s so that it makes room (%d)\n",
			       other->name, facts.halt_requested ?
			       "idle=halt initcall_blacklist=acpi_processor_driver_init" : "idle=halt",
			       error);
		goto stop_umwait;
	}
	for_each_kernel_tracepoint(find_silent_wake, NULL);
	if (!silent_wake_tracepoint ||
	    tracepoint_probe_register(silent_wake_tracepoint, silent_wake, NULL)) {
		silent_wake_tracepoint = NULL;
		pr_warn("this kernel does not tell of wakes without an IPI; they count as interrupts\n");
	}
	error = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "idlewise/idle:online", bring_online, NULL);
	if (error < 0)
		goto unregister;
	hotplug_state = error;
	debugfs_folder = debugfs_create_dir("idlewise", NULL);
	if (IS_ERR(debugfs_folder))
		pr_warn("no accounting to read: this kernel has no debugfs, or was booted with debugfs=off\n");
	else
		debugfs_create_file("wakes", 0400, debugfs_folder, NULL, &wakes_fops);
	report_table();
	return 0;

unregister:
	unregister_devices();
	if (silent_wake_tracepoint)
		tracepoint_probe_unregister(silent_wake_tracepoint, silent_wake, NULL);
	tracepoint_synchronize_unregister();
	cpuidle_unregister_driver(&driver);
stop_umwait:
	idlewise_umwait_stop();
free_cpus:
	free_percpu(cpus);
	return error;
}

static void __exit idlewise_exit(void)
{
	debugfs_remove_recursive(debugfs_folder);
	cpuhp_remove_state_nocalls(hotplug_state);
	unregister_devices();
	if (silent_wake_tracepoint)
		tracepoint_probe_unregister(silent_wake_tracepoint, silent_wake, NULL);
	tracepoint_synchronize_unregister();
	cpuidle_unregister_driver(&driver);
	idlewise_umwait_stop();
	free_percpu(cpus);
}

module_init(idlewise_init);
module_exit(idlewise_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The idlewise developers");
MODULE_DESCRIPTION("cpuidle driver with C0.1/C0.2 (UMWAIT), auto-promotion and IPI-less wake accounting");
MODULE_VERSION("0.1.0");
