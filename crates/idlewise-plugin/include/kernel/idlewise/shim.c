/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Turns a kernel governor into one for idlewise. It is compiled together with the governor, and provides
 * the part of the kernel's idle loop that a governor can see.
 */
#include <idlewise/kernel.h>

struct idlewise_kernel_now idlewise_now;

struct cpuidle_governor *idlewise_registered;
struct cpuidle_driver idlewise_driver = { .name = "idlewise" };
struct cpuidle_device idlewise_cpu = { .registered = 1, .enabled = 1 };
static uint32_t disabled;

/* Why the governor can't be used: the error of its enable, or INT_MIN if it registered nothing. */
__attribute__((visibility("default"))) int idlewise_kernel_problem;

int idlewise_governor_init(void);

int cpuidle_register_governor(struct cpuidle_governor *gov)
{
	if (!gov || !gov->select)
		return -22; /* EINVAL */
	/* If a file has several, the kernel would use the one with the highest rating. */
	if (!idlewise_registered || gov->rating > idlewise_registered->rating)
		idlewise_registered = gov;
	return 0;
}

static void take(const struct idlewise_device *from)
{
	idlewise_cpu.last_residency_ns = from->last_residency_ns;
	idlewise_cpu.poll_limit_ns = from->poll_limit_ns;
	idlewise_cpu.last_state_idx = from->last_state;
	idlewise_cpu.poll_time_limit = from->poll_time_limit;
}

static void give(struct idlewise_device *to)
{
	to->last_residency_ns = idlewise_cpu.last_residency_ns;
	to->poll_limit_ns = idlewise_cpu.poll_limit_ns;
	to->last_state = idlewise_cpu.last_state_idx;
	to->poll_time_limit = idlewise_cpu.poll_time_limit;
}

static void enable(const struct idlewise_machine *machine, struct idlewise_device *shared)
{
	idlewise_now.tick_nsec = machine->tick_period_ns;
	idlewise_driver.state_count = machine->state_count;
	for (uint32_t i = 0; i < machine->state_count; i++) {
		const struct idlewise_state *from = &machine->states[i];
		struct cpuidle_state *state = &idlewise_driver.states[i];
		state->name[0] = state->desc[0] = 'S';
		state->name[1] = state->desc[1] = '0' + i;
		state->exit_latency_ns = from->exit_latency_ns;
		state->target_residency_ns = from->target_residency_ns;
		state->exit_latency = from->exit_latency_ns / NSEC_PER_USEC;
		state->target_residency = from->target_residency_ns / NSEC_PER_USEC;
		state->flags = from->is_polling ? CPUIDLE_FLAG_POLLING : 0;
	}
	idlewise_governor_init();
	if (!idlewise_registered) {
		idlewise_kernel_problem = INT_MIN;
		return;
	}
	take(shared);
	if (idlewise_registered->enable)
		idlewise_kernel_problem =
			idlewise_registered->enable(&idlewise_driver, &idlewise_cpu);
	give(shared);
}

static int select_state(struct idlewise_context *context, struct idlewise_device *shared,
			bool *stop_tick)
{
	int state;

	take(shared);
	if (context->disabled != disabled) {
		disabled = context->disabled;
		for (int i = 0; i < CPUIDLE_STATE_MAX; i++)
			idlewise_cpu.states_usage[i].disable = (disabled >> i) & 1;
	}
	idlewise_now.context = context;
	idlewise_now.clock_ns = context->now_ns;
	idlewise_now.latency_limit_ns = context->latency_limit_ns;
	idlewise_now.iowait_count = context->iowait_count;
	idlewise_now.tick_stopped = context->tick_stopped;
	idlewise_now.idle_calls++;
	idlewise_now.next_hrtimer_ns = KTIME_MAX;
	if (context->sleep_length_ns != IDLEWISE_FAR_AWAY_NS)
		idlewise_now.next_hrtimer_ns = context->now_ns + context->sleep_length_ns;
	idlewise_cpu.next_hrtimer = idlewise_now.next_hrtimer_ns;
	state = idlewise_registered->select(&idlewise_driver, &idlewise_cpu, stop_tick);
	BUG_ON(idlewise_now.is_in_fpu_section);
	idlewise_now.context = NULL;
	give(shared);
	return state;
}

static void reflect(const struct idlewise_outcome *outcome, struct idlewise_device *shared)
{
	if (!idlewise_registered->reflect)
		return;
	take(shared);
	idlewise_now.clock_ns = outcome->now_ns;
	idlewise_now.got_tick = outcome->got_tick;
	idlewise_registered->reflect(&idlewise_cpu, outcome->entered);
	BUG_ON(idlewise_now.is_in_fpu_section);
	give(shared);
}

IDLEWISE_GOVERNOR(.enable = enable, .select = select_state, .reflect = reflect);
