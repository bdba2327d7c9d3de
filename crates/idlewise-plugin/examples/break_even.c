/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Break even: selects the deepest state that the mean of recent stays would have justified. */
#include <idlewise_governor.h>

static int64_t mean_ns; /* of all stays; the newest has a weight of 1/8 */

static int select(struct idlewise_context *context, struct idlewise_device *device, bool *stop_tick)
{
	const struct idlewise_machine *machine = context->machine;
	int64_t timer_ns = idlewise_sleep_length_ns(context, 0);
	int64_t expected_ns = timer_ns < mean_ns ? timer_ns : mean_ns;
	int best = 0;

	for (int i = 0; i < (int)machine->state_count; i++) {
		const struct idlewise_state *state = &machine->states[i];
		if (context->disabled >> i & 1)
			continue;
		if (state->target_residency_ns <= expected_ns &&
		    state->exit_latency_ns <= context->latency_limit_ns)
			best = i;
	}
	*stop_tick = expected_ns > machine->tick_period_ns;
	return best;
}

static void reflect(const struct idlewise_outcome *outcome, struct idlewise_device *device)
{
	mean_ns += ((int64_t)device->last_residency_ns - mean_ns) / 8;
}

IDLEWISE_GOVERNOR(.select = select, .reflect = reflect);
