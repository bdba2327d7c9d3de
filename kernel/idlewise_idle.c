// SPDX-License-Identifier: GPL-2.0
/*
 * idlewise_idle: a cpuidle driver with user-wait states, auto-promotion and wake-up accounting.
 *
 * States come from `states=` or from CPUID: POLL; C0.2 if the CPU has WAITPKG; C1 by MWAIT, or by
 * HLT if MWAIT C1 does not exist.
 *
 * C0.1, C0.2: UMWAIT, monitoring the idle task's flags, without a deadline of its own.
 * IA32_UMWAIT_CONTROL ends it, and forbids C0.2 if the administrator disabled that. A stay that the
 * control ended is an idle stay like any other; the governor is asked again.
 *
 * Wake-ups without an interrupt: the polling flag stays set while a state monitors the flags, so
 * that the scheduler and the senders of function calls store instead of sending an IPI. The driver
 * looks for what ended a stay only if the tracepoint or debugfs's `accounting` is on. Otherwise it
 * reads no counter, clock or interrupt controller, and no waker pays.
 *
 * Promotion: entering a state in `promote=` starts a timer for the next enabled state's target
 * residency plus twice its exit latency. The timer only ends the stay. The governor sees a stay
 * that was long enough for the deeper state, and learns from it. So it must be a single stay, which
 * the control's limit does not end. No timer is started if PM QoS forbids the next state. The list
 * can be changed at any time; each CPU follows it from its next entry on.
 *
 * Deep states: MWAIT hints beyond C1 need more than the instruction (idlewise_duties). What
 * firmware or another driver chose in MSRs (demotion, C1E promotion) does not change.
 *
 * Not included: latencies of states that CPUID lists but nobody measured (name them in `states=`),
 * coupled states, and decisions about the tick.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpuidle.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched/idle.h>
#include <linux/sched/smt.h>
#include <linux/slab.h>
#include <linux/stop_machine.h>
#include <linux/sysfs.h>
#include <linux/tick.h>

#include <asm/fpu/api.h>
#include <asm/fpu/types.h>
#include <asm/fpu/xcr.h>
#include <asm/processor.h>
#include <asm/spec-ctrl.h>
#include <asm/special_insns.h>
#include <asm/tsc.h>

#include "compat.h"
#include "exits.h"
#include "idlewise_states.h"
#include "mwait.h"
#include "umwait.h"
#include "wakes.h"

static char *states;
module_param(states, charp, 0444);
MODULE_PARM_DESC(states, "State table, NAME[@METHOD]:EXIT_LATENCY/TARGET_RESIDENCY in microseconds, comma-separated (default: from CPUID), e.g. POLL,C0.2:0.2/0.2,C1:2/2,C6@0x20:290/800");

static const struct kernel_param_ops promote_ops;
module_param_cb(promote, &promote_ops, NULL, 0644);
MODULE_PARM_DESC(promote, "Names of the states that a timer gets a CPU out of, comma-separated, or all (default: none); can be changed while the driver runs");

static char *disable = "";
module_param(disable, charp, 0444);
MODULE_PARM_DESC(disable, "Names of the states that are disabled until sysfs enables them, comma-separated (default: none), e.g. C0.2");

static_assert(IDLEWISE_STATE_COUNT_MAX <= CPUIDLE_STATE_MAX);
static_assert(IDLEWISE_NAME_LENGTH_MAX < CPUIDLE_NAME_LEN);

struct idlewise_cpu {
	struct cpuidle_device device;
	struct hrtimer promotion;
	bool is_registered;
	/* The CPU is offline, perhaps through our enter_dead(). */
	bool holds_module;
};

static struct idlewise_table table;
static struct idlewise_duties state_duties[IDLEWISE_STATE_COUNT_MAX];
static struct cpuidle_driver driver = { .name = "idlewise" };
static struct idlewise_cpu __percpu *cpus;
static unsigned long promoted_states, disabled_states;
/* What promote= said before there was a table; both under the module's parameter lock. */
static char promote_at_load[IDLEWISE_STATE_COUNT_MAX * (IDLEWISE_NAME_LENGTH_MAX + 1)];
static bool promotion_is_settled;
static enum cpuhp_state hotplug_state;
static struct idlewise_boot_answer boot_answer;
static struct idlewise_mwait_leaf mwait_leaf;
static bool has_dead_state;
IDLEWISE_DEFINE_CALL(cpuidle_governor_latency_req);

/* Waiting. RCU is not watching, so nothing may be traced or probed: noinstr. */

static __always_inline void wait_halted(void)
{
	raw_safe_halt();
	idlewise_linger();
	raw_local_irq_disable();
}

/*
 * Returns whether the control's limit ended the wait, or with is_unlimited waits again. Clears CPU
 * buffers like MWAIT, because in C0.1 and C0.2, too, a sibling gets the resources this CPU leaves.
 */
static __always_inline bool wait_user(u32 hint, bool is_unlimited)
{
	bool limited = false;

	idlewise_clear_cpu_buffers();
	if (!current_set_polling_and_test()) {
		do {
			idlewise_umonitor(&current_thread_info()->flags);
			limited = !need_resched() && idlewise_umwait(hint);
		} while (limited && is_unlimited);
	}
	current_clr_polling();
	return limited;
}

static __always_inline bool wait_in(const struct idlewise_state *state, bool is_unlimited)
{
	switch (state->method) {
	case IDLEWISE_UMWAIT:
		return wait_user(state->hint, is_unlimited);
	case IDLEWISE_MWAIT:
		idlewise_mwait(state->hint, mwait_leaf.breaks_on_interrupt);
		return false;
	case IDLEWISE_SOFT:
		idlewise_soft_wait();
		return false;
	default:
		if (idlewise_exits_take_time())
			idlewise_wait_pending();
		else
			wait_halted();
		return false;
	}
}

/* Like wait_user(), for all methods. Interrupts are off before and after. */
static noinstr bool wait_unwatched(const struct idlewise_state *state,
				   struct idlewise_duties duties, bool is_unlimited)
{
	bool lifts_ibrs = duties.lift_ibrs && sched_smt_active();
	bool leaves_slowly = idlewise_exits_take_time() && !need_resched();
	u64 spec_ctrl = 0;
	bool limited;

	instrumentation_begin();
	idlewise_rcu_idle_enter();
	if (lifts_ibrs) {
		spec_ctrl = spec_ctrl_current();
		__update_spec_ctrl(0);
	}
	limited = wait_in(state, is_unlimited);
	if (leaves_slowly)
		idlewise_leave(state - table.states);
	idlewise_linger();
	if (lifts_ibrs)
		__update_spec_ctrl(spec_ctrl);
	idlewise_rcu_idle_exit();
	instrumentation_end();
	return limited;
}

/* A core whose tile registers are in use goes no deeper. Their user finds them in memory. */
static void release_tiles(void)
{
	if (xfeatures_in_use() & XFEATURE_MASK_XTILE) {
		kernel_fpu_begin_mask(0);
		tile_release();
		kernel_fpu_end();
	}
}

/* Promotion */

static enum hrtimer_restart promotion_expired(struct hrtimer *timer)
{
	return HRTIMER_NORESTART;
}

/* How long a stay may last before it is ended in favour of a deeper state; 0: without limit. */
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

/*
 * Returns false if the state cannot be entered after all. If the state stops the local timer,
 * cpuidle has already handed the timer's next event to the broadcast device, which would not learn
 * of a timer started now. So the event is taken back, and handed over again.
 */
static bool start_promotion(struct idlewise_cpu *cpu, int index, u64 span_ns)
{
	bool timer_stops = driver.states[index].flags & CPUIDLE_FLAG_TIMER_STOP;

	if (timer_stops)
		tick_broadcast_exit();
	hrtimer_start(&cpu->promotion, ns_to_ktime(span_ns), HRTIMER_MODE_REL_PINNED_HARD);
	if (timer_stops && tick_broadcast_enter()) {
		hrtimer_try_to_cancel(&cpu->promotion);
		return false;
	}
	return true;
}

/* The callbacks */

static int idlewise_enter(struct cpuidle_device *device, struct cpuidle_driver *drv, int index)
{
	struct idlewise_cpu *cpu = container_of(device, struct idlewise_cpu, device);
	const struct idlewise_state *state = &table.states[index];
	struct idlewise_duties duties = state_duties[index];
	bool is_observed = stays_are_observed();
	u64 promotion_ns = promotion_span_ns(device, index);
	struct idlewise_stay stay;
	bool limited;

	if (promotion_ns && !start_promotion(cpu, index, promotion_ns))
		return -EBUSY;
	idlewise_count_inside(1);
	if (is_observed)
		stay = stay_begins();
	if (duties.release_tiles)
		release_tiles();
	limited = wait_unwatched(state, duties, promotion_ns);
	/* Pinned and handled in hard interrupts, which are off: it is not running now. */
	if (promotion_ns)
		hrtimer_try_to_cancel(&cpu->promotion);
	if (is_observed)
		stay_ended(state, index, stay, promotion_ns, limited);
	idlewise_count_inside(-1);
	return index;
}

/* For suspend-to-idle: the clocks are suspended, so this uses neither timers nor time. */
static int idlewise_enter_s2idle(struct cpuidle_device *device, struct cpuidle_driver *drv,
				 int index)
{
	if (state_duties[index].release_tiles)
		release_tiles();
	wait_unwatched(&table.states[index], state_duties[index], false);
	return 0;
}

/* Runs on an offline CPU. Returns only if the CPU could not wait this way. */
static IDLEWISE_DEAD idlewise_enter_dead(struct cpuidle_device *device, int index)
{
	idlewise_play_dead(table.states[index].hint);
	return (IDLEWISE_DEAD)-ENODEV;
}

/* The table */

static struct idlewise_boot_facts boot_facts(void)
{
	bool has_c1 = mwait_leaf.substate_counts >> 4 & 0xf;
	/* The kernel clears the feature then, so only the CPU still tells the two apart. */
	bool leaf_missing = boot_cpu_data.cpuid_level < CPUID_LEAF_MWAIT &&
			    (cpuid_ecx(1) & BIT(X86_FEATURE_MWAIT & 31));

	return (struct idlewise_boot_facts){
		.poll_requested = boot_option_idle_override == IDLE_POLL,
		.xen_decided = boot_cpu_has(X86_FEATURE_XENPV),
		.halt_decided = IDLEWISE_E400_DECIDES && boot_option_idle_override == IDLE_HALT,
		.has_e400 = IDLEWISE_E400_DECIDES && boot_cpu_has_bug(X86_BUG_AMD_E400),
		.halt_requested = boot_option_idle_override == IDLE_HALT,
		.mwait_forbidden = boot_option_idle_override == IDLE_NOMWAIT,
		.no_mwait = !boot_cpu_has(X86_FEATURE_MWAIT) && !leaf_missing,
		.leaf_missing = leaf_missing,
		.monitor_bug = boot_cpu_has_bug(X86_BUG_MONITOR),
		.c1e_found = boot_cpu_has_bug(X86_BUG_AMD_APIC_C1E),
		.no_extensions = !mwait_leaf.enumerates_extensions,
		.has_c1 = has_c1,
		.no_c1 = !has_c1,
		.tdx_guest = boot_cpu_has(X86_FEATURE_TDX_GUEST),
	};
}

static struct idlewise_cpu_facts cpu_facts(void)
{
	return (struct idlewise_cpu_facts){
		.timer_always_runs = boot_cpu_has(X86_FEATURE_ARAT),
		.tsc_always_runs = boot_cpu_has(X86_FEATURE_NONSTOP_TSC),
		.c1_stops_timer = boot_cpu_has_bug(X86_BUG_AMD_APIC_C1E),
		.has_tiles = boot_cpu_has(X86_FEATURE_AMX_TILE),
		.keeps_ibrs = boot_cpu_has(X86_FEATURE_KERNEL_IBRS),
		.breaks_on_interrupt = mwait_leaf.breaks_on_interrupt,
	};
}

/*
 * Whether C1 uses MWAIT, according to CPUID and idle=nomwait. Not idle=halt, which is how a user
 * keeps the distribution's drivers from loading (README).
 */
static bool c1_is_mwait(struct idlewise_boot_facts facts)
{
	facts.poll_requested = false;
	facts.halt_decided = false;
	facts.halt_requested = false;
	/* Here the duties keep the timer running. */
	facts.has_e400 = false;
	return idlewise_default_idle(facts).is_mwait;
}

static const char *default_states(struct idlewise_boot_facts facts)
{
	bool monitors = !boot_cpu_has_bug(X86_BUG_MONITOR) && !facts.mwait_forbidden;

	return idlewise_has_waitpkg() && monitors ? "POLL,C0.2:0.2/0.2,C1:2/2" : "POLL,C1:2/2";
}

/* Gives each state a method that this CPU has and the administrator allows. */
static int settle_methods(struct idlewise_boot_facts facts)
{
	bool mwait_is_c1 = c1_is_mwait(facts);
	int index;

	for (index = 0; index < table.state_count; index++) {
		struct idlewise_state *state = &table.states[index];
		bool monitors;

		if (state->method == IDLEWISE_C1) {
			state->method = mwait_is_c1 ? IDLEWISE_MWAIT : IDLEWISE_HLT;
			state->hint = 0;
		}
		monitors = state->method == IDLEWISE_MWAIT || state->method == IDLEWISE_UMWAIT;
		if (monitors && facts.mwait_forbidden) {
			pr_err("states: idle=nomwait is on the kernel's command line, so no %s; use %s@hlt\n",
			       state->name, state->name);
			return -ENODEV;
		}
		if (state->method == IDLEWISE_MWAIT &&
		    (!boot_cpu_has(X86_FEATURE_MWAIT) ||
		     !idlewise_hint_is_listed(mwait_leaf, state->hint))) {
			pr_err("states: this CPU has no MWAIT hint 0x%02x for %s; name another, or %s@hlt\n",
			       state->hint, state->name, state->name);
			return -ENODEV;
		}
		if (state->method == IDLEWISE_UMWAIT && !idlewise_has_waitpkg()) {
			pr_err("states: this CPU has no WAITPKG, so no %s; leave it out\n",
			       state->name);
			return -ENODEV;
		}
		if (monitors && boot_cpu_has_bug(X86_BUG_MONITOR)) {
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

/* The states in a list, as bits; `all` stands for those that don't poll. */
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

/* Promotes the states in a list, or changes nothing. */
static int settle_promotion(const char *list)
{
	static bool can_ask_for_limits;
	unsigned long named = 0;
	int error = named_states("promote", list, &named);

	if (error)
		return error;
	if (test_bit(0, &named) && table.states[0].method == IDLEWISE_POLL) {
		pr_err("promote: POLL ends by a limit of its own; name other states\n");
		return -EINVAL;
	}
	/* Found before any CPU sees that it has to ask. */
	if (named && !can_ask_for_limits)
		can_ask_for_limits = IDLEWISE_FIND(cpuidle_governor_latency_req);
	if (named && !can_ask_for_limits) {
		pr_err("promote: needs kprobes to ask for PM QoS limits, and this kernel has none; promote no state\n");
		return -EOPNOTSUPP;
	}
	WRITE_ONCE(promoted_states, named);
	return 0;
}

/* Called under the module's parameter lock: before there is a table, and by sysfs. */
static int promote_set(const char *value, const struct kernel_param *parameter)
{
	char list[sizeof(promote_at_load)] = "";
	size_t length = strcspn(value, "\n");

	if (length >= sizeof(list)) {
		pr_err("promote: longer than a list of all states can be\n");
		return -EINVAL;
	}
	memcpy(list, value, length);
	if (promotion_is_settled)
		return settle_promotion(list);
	memcpy(promote_at_load, list, sizeof(list));
	return 0;
}

static int promote_get(char *buffer, const struct kernel_param *parameter)
{
	int index, length = 0;

	for (index = 0; index < table.state_count; index++)
		if (test_bit(index, &promoted_states))
			length += sysfs_emit_at(buffer, length, "%s%s", length ? "," : "",
						table.states[index].name);
	return length + sysfs_emit_at(buffer, length, "\n");
}

static const struct kernel_param_ops promote_ops = {
	.set = promote_set,
	.get = promote_get,
};

static int settle_promotion_at_load(void)
{
	int error;

	kernel_param_lock(THIS_MODULE);
	error = settle_promotion(promote_at_load);
	promotion_is_settled = !error;
	kernel_param_unlock(THIS_MODULE);
	return error;
}

static void fill_driver(void)
{
	struct idlewise_cpu_facts facts = cpu_facts();
	int index;

	for (index = 0; index < table.state_count; index++) {
		const struct idlewise_state *from = &table.states[index];
		struct cpuidle_state *to = &driver.states[index];
		struct idlewise_duties duties = idlewise_duties(from, facts);

		state_duties[index] = duties;
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
		/* The microsecond fields stay 0, or cpuidle would round the others to them. */
		to->flags = CPUIDLE_FLAG_RCU_IDLE;
		if (duties.timer_stop)
			to->flags |= CPUIDLE_FLAG_TIMER_STOP;
		if (duties.leave_mm)
			to->flags |= CPUIDLE_FLAG_TLB_FLUSHED;
		if (test_bit(index, &disabled_states))
			to->flags |= CPUIDLE_FLAG_OFF;
		to->enter = idlewise_enter;
		if (duties.suspend_to_idle)
			to->enter_s2idle = idlewise_enter_s2idle;
		if (duties.play_dead && idlewise_can_play_dead()) {
			to->enter_dead = idlewise_enter_dead;
			has_dead_state = true;
		}
	}
	driver.state_count = table.state_count;
}

/* Loading and unloading */

static void release_module(struct idlewise_cpu *cpu)
{
	if (cpu->holds_module)
		module_put(THIS_MODULE);
	cpu->holds_module = false;
}

/*
 * The CPU will go through enter_dead() into the kernel's own code. Only its coming back online
 * shows that it has left ours, so the module stays until then.
 */
static int take_offline(unsigned int number)
{
	struct idlewise_cpu *cpu = per_cpu_ptr(cpus, number);

	if (!has_dead_state || cpu->holds_module)
		return 0;
	if (!try_module_get(THIS_MODULE))
		return -EAGAIN;
	cpu->holds_module = true;
	return 0;
}

static int bring_online(unsigned int number)
{
	struct idlewise_cpu *cpu = per_cpu_ptr(cpus, number);
	int error;

	release_module(cpu);
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

static int do_nothing(void *data)
{
	return 0;
}

static void unregister(void)
{
	int number;

	/* A CPU may have been removed from the machine meanwhile. */
	for_each_possible_cpu(number) {
		struct idlewise_cpu *cpu = per_cpu_ptr(cpus, number);

		if (cpu->is_registered)
			cpuidle_unregister_device(&cpu->device);
		cpu->is_registered = false;
		release_module(cpu);
	}
	cpuidle_unregister_driver(&driver);
	/*
	 * No CPU will enter again, but one may still be on its way out. Unregistering wakes CPUs
	 * and waits for a grace period, but that ignores CPUs that RCU is not watching. An
	 * interrupt sent to all of them would not be enough either, since HLT's are handled inside
	 * enter(). The stopper runs on a CPU only once the scheduler has replaced the idle task, or
	 * a thread that injects idle time. Both leave enter() first.
	 */
	stop_machine(do_nothing, NULL, NULL);
}

/* Reports how the administrator's limits affect the table's UMWAIT states. */
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

		if (idlewise_latency_is_doubtful(&table.states[index]))
			pr_warn("states: %s takes longer to leave (%lld ns) than it has to last (%lld ns); were the two swapped?\n",
				state->name, state->exit_latency_ns, state->target_residency_ns);
		pr_info("state %d: %s (%s), exit latency %lld ns, target residency %lld ns%s%s\n",
			index, state->name, state->desc, state->exit_latency_ns,
			state->target_residency_ns,
			test_bit(index, &promoted_states) ? ", promoted" : "",
			test_bit(index, &disabled_states) ?
				", disabled until sysfs enables it" : "");
	}
	report_umwait_control();
}

static int __init idlewise_init(void)
{
	struct idlewise_boot_facts facts;
	struct idlewise_error wrong;
	const char *text;
	int error, index;

	mwait_leaf = idlewise_mwait_leaf();
	facts = boot_facts();
	text = states ? states : default_states(facts);
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
	error = settle_methods(facts);
	if (!error)
		error = idlewise_settle_exits(&table);
	if (!error)
		error = settle_promotion_at_load();
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
		const char *option = facts.halt_requested ?
			"idle=halt initcall_blacklist=acpi_processor_driver_init" : "idle=halt";

		if (!other)
			pr_err("cpuidle takes no driver (%d); boot without cpuidle.off=1\n", error);
		else
			pr_err("cpuidle driver %s is registered already; boot with %s so that it makes room (%d)\n",
			       other->name, option, error);
		goto stop_umwait;
	}
	/* Before the first CPU can enter one. */
	for (index = 0; index < table.state_count; index++)
		if (state_duties[index].tsc_stop)
			mark_tsc_unstable("idlewise_idle: stops in deep idle states");
	error = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "idlewise/idle:online", bring_online,
				  take_offline);
	if (error < 0)
		goto unregister;
	hotplug_state = error;
	show_wakes(&table);
	report_table();
	return 0;

unregister:
	unregister();
stop_umwait:
	idlewise_umwait_stop();
free_cpus:
	free_percpu(cpus);
	return error;
}

static void __exit idlewise_exit(void)
{
	hide_wakes();
	cpuhp_remove_state_nocalls(hotplug_state);
	unregister();
	idlewise_umwait_stop();
	free_percpu(cpus);
}

module_init(idlewise_init);
module_exit(idlewise_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The idlewise developers");
MODULE_DESCRIPTION("cpuidle driver with C0.1/C0.2 (UMWAIT), auto-promotion and IPI-less wake accounting");
MODULE_VERSION("0.1.0");
