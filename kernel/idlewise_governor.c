// SPDX-License-Identifier: GPL-2.0
/*
 * idlewise_governor: menu's decisions, with a choice of three rules for one case.
 *
 * After menu.c: Copyright (C) 2006-2007 Adam Belay, 2009 Intel Corporation (Arjan van de Ven)
 *
 * While the tick is stopped, nothing corrects a forecast that is too short. `rule` says what to do
 * with a forecast below a tick. It can be changed at any time, and applies to all CPUs:
 *
 *   0 timer       use the next timer instead, as released kernels do. A packet every 500 us with a
 *                 timer 10 ms away then pays the deepest state's exit latency each time.
 *   1 min         use the shorter of the two (Ionut Nechita, January 2026). A wrong forecast can
 *                 keep the CPU shallow until that timer.
 *   2 safe-range  use the timer only if it is more than two ticks away, which bounds the harm.
 *
 * Everything else follows menu of 6.12. The forecast is the shorter of the corrected time to the
 * next timer and the typical length of the last eight stays. The deepest enabled state that fits
 * the forecast and the latency limit is selected. A short forecast keeps the tick. idlewise-linux's
 * menu.rs is the same algorithm in Rust, with a long explanation.
 *
 * What 6.1 did for tasks that wait for I/O is left out.
 */

#include <linux/cpuidle.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/string.h>
#include <linux/tick.h>

#include "governor_symbols.h"

#define DECADE_COUNT		6
#define FULL_SHARE		1024
#define FACTOR_WEIGHT		8
#define UNITY_FACTOR		(FULL_SHARE * FACTOR_WEIGHT)
#define LONG_STAY_NS		(50 * NSEC_PER_MSEC)
#define TICK_ENDED_STAY_NS	(LONG_STAY_NS * 9 / 10)
#define SHORT_STAY_NS		(15 * NSEC_PER_USEC)
#define INTERVAL_COUNT		8
#define KEPT_COUNT_MIN		6
#define STEADY_DEVIATION_US	20
/* The mean must exceed six standard deviations. Squared. */
#define MEAN_TO_VARIANCE	36
#define NONE			U64_MAX

enum rule { RULE_TIMER, RULE_MIN, RULE_SAFE_RANGE };

static unsigned int rule;
governor_choice_param(rule, RULE_SAFE_RANGE);
MODULE_PARM_DESC(rule, "A forecast below a tick while the tick is stopped gives way to: 0 the next timer (default, as released), 1 the shorter of both, 2 the timer if it is more than two ticks away");

/* What one CPU has learnt. */
struct history {
	bool is_new_stay;
	bool tick_ended_it;
	u64 next_timer_ns;
	unsigned int factor;
	unsigned int factors[DECADE_COUNT];
	u32 intervals_us[INTERVAL_COUNT];
	unsigned int next_interval;
};

static DEFINE_PER_CPU(struct history, histories);

/* Learning */

static unsigned int decade(u64 span_ns)
{
	unsigned int index = 0;
	u64 start_ns = 10 * NSEC_PER_USEC;

	for (; index < DECADE_COUNT - 1 && span_ns >= start_ns; index++)
		start_ns *= 10;
	return index;
}

static void push_interval(struct history *history, u32 interval_us)
{
	history->intervals_us[history->next_interval] = interval_us;
	history->next_interval = (history->next_interval + 1) % INTERVAL_COUNT;
}

/* How long the CPU would have stayed, as far as is known. */
static u64 stay_ns(struct cpuidle_driver *driver, struct cpuidle_device *device,
		   const struct history *history)
{
	const struct cpuidle_state *state = &driver->states[device->last_state_idx];
	u64 measured_ns = device->last_residency_ns;

	if (history->tick_ended_it && history->next_timer_ns > TICK_NSEC)
		return TICK_ENDED_STAY_NS;
	if (device->poll_time_limit && state->flags & CPUIDLE_FLAG_POLLING)
		return history->next_timer_ns;
	/* Below two exit latencies the state may never have been reached: assume half. */
	if (measured_ns > 2 * state->exit_latency_ns)
		return measured_ns - state->exit_latency_ns;
	return measured_ns / 2;
}

static void learn(struct cpuidle_driver *driver, struct cpuidle_device *device,
		  struct history *history)
{
	unsigned int *factor = &history->factors[history->factor];
	u64 stay, share = FULL_SHARE;

	if (!history->is_new_stay) {
		/* Refused, or the first select: an interval that is never typical. */
		if (!device->last_residency_ns)
			push_interval(history, U32_MAX);
		return;
	}
	history->is_new_stay = false;
	stay = min(stay_ns(driver, device, history), history->next_timer_ns);
	if (history->next_timer_ns && stay < LONG_STAY_NS)
		share = div64_u64(FULL_SHARE * stay, history->next_timer_ns);
	*factor += (unsigned int)share - *factor / FACTOR_WEIGHT;
	push_interval(history, (u32)div_u64(stay, NSEC_PER_USEC));
}

/* Forecasting */

/* The mean of the stays up to `longest_us` if it is steady, or else NONE; and the longest. */
static u64 steady_mean_us(const u32 *intervals_us, u32 *longest_us, unsigned int *count)
{
	u64 sum = 0, deviation = 0, mean, variance;
	u32 longest = 0;
	unsigned int i;

	*count = 0;
	for (i = 0; i < INTERVAL_COUNT; i++) {
		if (intervals_us[i] > *longest_us)
			continue;
		sum += intervals_us[i];
		longest = max(longest, intervals_us[i]);
		(*count)++;
	}
	*longest_us = longest;
	if (!longest)
		return NONE;
	mean = div_u64(sum, *count);
	for (i = 0; i < INTERVAL_COUNT; i++) {
		s64 difference = (s64)intervals_us[i] - (s64)mean;

		if (intervals_us[i] <= longest)
			deviation += difference * difference;
	}
	variance = div_u64(deviation, *count);
	if (variance <= STEADY_DEVIATION_US * STEADY_DEVIATION_US)
		return mean;
	/* The product would overflow if stays differed by more than 20 minutes. */
	if (variance <= U64_MAX / MEAN_TO_VARIANCE && mean * mean > variance * MEAN_TO_VARIANCE &&
	    *count >= KEPT_COUNT_MIN)
		return mean;
	return NONE;
}

static u64 typical_ns(const struct history *history)
{
	/* Longer stays are no sign of a regular interrupt. */
	u32 longest_us = INT_MAX;
	unsigned int count;

	for (;;) {
		u64 mean_us = steady_mean_us(history->intervals_us, &longest_us, &count);

		if (mean_us != NONE)
			return mean_us * NSEC_PER_USEC;
		if (!longest_us || count <= KEPT_COUNT_MIN)
			return NONE;
		/* Try again without the longest, as long as six remain. */
		longest_us--;
	}
}

/* The time to the timer times its factor, in whole microseconds. */
static u64 corrected_timer_ns(const struct history *history)
{
	const u64 unit = (u64)UNITY_FACTOR * NSEC_PER_USEC;
	u64 scaled = history->next_timer_ns * history->factors[history->factor];

	return (u64)(u32)div64_u64(scaled + unit / 2, unit) * NSEC_PER_USEC;
}

static u64 instead_of_short(const struct history *history, u64 predicted_ns)
{
	u64 timer_ns = history->next_timer_ns;

	switch (READ_ONCE(rule)) {
	case RULE_MIN:
		return min(predicted_ns, timer_ns);
	case RULE_SAFE_RANGE:
		return timer_ns > 2 * TICK_NSEC ? timer_ns : predicted_ns;
	default:
		return timer_ns;
	}
}

/* Choosing */

/* What a choice is based on. */
struct question {
	struct cpuidle_driver *driver;
	struct cpuidle_device *device;
	u64 predicted_ns;
	u64 next_timer_ns;
	s64 next_event_ns;
	s64 latency_limit_ns;
	bool tick_stopped;
};

static bool is_disabled(const struct question *question, int index)
{
	return question->device->states_usage[index].disable;
}

static bool replaces_polling(const struct question *question, int next)
{
	const struct cpuidle_state *state = &question->driver->states[next];

	return state->target_residency_ns < SHORT_STAY_NS &&
	       (u64)state->exit_latency_ns <= question->predicted_ns &&
	       state->exit_latency_ns <= question->latency_limit_ns &&
	       (u64)state->target_residency_ns <= question->next_timer_ns;
}

/* `next` is the first state that does not fit the forecast. */
static int stop_before(struct question *question, int next, int shallower)
{
	const struct cpuidle_state *states = question->driver->states;

	if (states[shallower].flags & CPUIDLE_FLAG_POLLING && replaces_polling(question, next)) {
		question->predicted_ns = states[next].target_residency_ns;
		return next;
	}
	if (question->predicted_ns < TICK_NSEC)
		return shallower;
	if (!question->tick_stopped) {
		/* Pretend the stay is what the state needs, so that the tick is kept. */
		question->predicted_ns = states[shallower].target_residency_ns;
		return shallower;
	}
	/* Nothing will correct this: rather too deep, if the timer leaves room. */
	if (states[shallower].target_residency_ns < TICK_NSEC &&
	    states[next].target_residency_ns <= question->next_event_ns)
		return next;
	return shallower;
}

static int choose(struct question *question)
{
	const struct cpuidle_state *states = question->driver->states;
	int index, chosen = -1;

	for (index = 0; index < question->driver->state_count; index++) {
		if (is_disabled(question, index))
			continue;
		if (chosen < 0)
			chosen = index;
		if (states[index].exit_latency_ns > question->latency_limit_ns)
			break;
		if ((u64)states[index].target_residency_ns > question->predicted_ns)
			return stop_before(question, index, chosen);
		chosen = index;
	}
	return max(chosen, 0);
}

/* Whether to stop the tick. If not, replaces a state that the tick would cut short. */
static bool settle_tick(const struct question *question, int *chosen)
{
	const struct cpuidle_state *states = question->driver->states;
	int index;

	if (question->tick_stopped || (!(states[*chosen].flags & CPUIDLE_FLAG_POLLING) &&
				       question->predicted_ns >= TICK_NSEC))
		return true;
	if (*chosen > 0 && states[*chosen].target_residency_ns > question->next_event_ns) {
		for (index = *chosen - 1; index >= 0; index--) {
			if (is_disabled(question, index))
				continue;
			*chosen = index;
			if (states[index].target_residency_ns <= question->next_event_ns)
				break;
		}
	}
	return false;
}

static int idlewise_select(struct cpuidle_driver *driver, struct cpuidle_device *device,
			   bool *stop_tick)
{
	struct history *history = this_cpu_ptr(&histories);
	const struct cpuidle_state *states = driver->states;
	struct question question = {
		.driver = driver,
		.device = device,
		.latency_limit_ns = cpuidle_governor_latency_req(device->cpu),
		.tick_stopped = tick_nohz_tick_stopped(),
	};
	u64 habit_ns;
	ktime_t next_event;
	int chosen;

	learn(driver, device, history);
	habit_ns = typical_ns(history);
	question.predicted_ns = habit_ns;
	if (habit_ns > SHORT_STAY_NS || question.tick_stopped) {
		s64 timer_ns = tick_nohz_get_sleep_length(&next_event);

		if (timer_ns < 0) {
			/* Overdue: it fires as soon as interrupts are enabled. */
			timer_ns = 0;
			next_event = 0;
		}
		history->next_timer_ns = timer_ns;
		history->factor = decade(timer_ns);
		question.predicted_ns = min(habit_ns, corrected_timer_ns(history));
	} else {
		/* Reading the timers would cost more than a wrong state. */
		history->next_timer_ns = KTIME_MAX;
		history->factor = DECADE_COUNT - 1;
		next_event = TICK_NSEC / 2;
	}
	question.next_timer_ns = history->next_timer_ns;
	question.next_event_ns = next_event;

	if (driver->state_count <= 1 || !question.latency_limit_ns ||
	    ((history->next_timer_ns < (u64)states[1].target_residency_ns ||
	      question.latency_limit_ns < states[1].exit_latency_ns) &&
	     !is_disabled(&question, 0))) {
		*stop_tick = !(states[0].flags & CPUIDLE_FLAG_POLLING);
		return 0;
	}
	if (question.tick_stopped && question.predicted_ns < TICK_NSEC)
		question.predicted_ns = instead_of_short(history, question.predicted_ns);
	chosen = choose(&question);
	*stop_tick = settle_tick(&question, &chosen);
	return chosen;
}

static void idlewise_reflect(struct cpuidle_device *device, int index)
{
	struct history *history = this_cpu_ptr(&histories);

	device->last_state_idx = index;
	history->is_new_stay = true;
	history->tick_ended_it = tick_nohz_idle_got_tick();
}

static int idlewise_enable(struct cpuidle_driver *driver, struct cpuidle_device *device)
{
	struct history *history = &per_cpu(histories, device->cpu);
	unsigned int i;

	memset(history, 0, sizeof(*history));
	for (i = 0; i < DECADE_COUNT; i++)
		history->factors[i] = UNITY_FACTOR;
	governor_in_use();
	return 0;
}

static void idlewise_disable(struct cpuidle_driver *driver, struct cpuidle_device *device)
{
	governor_out_of_use();
}

static struct cpuidle_governor idlewise_governor = {
	.name = "idlewise",
	/* Below all others: loading the module must not change a machine's governor. */
	.rating = 1,
	.enable = idlewise_enable,
	.disable = idlewise_disable,
	.select = idlewise_select,
	.reflect = idlewise_reflect,
};

static int __init idlewise_init(void)
{
	return governor_register(&idlewise_governor);
}

static void __exit idlewise_exit(void)
{
	governor_unregister(&idlewise_governor);
}

module_init(idlewise_init);
module_exit(idlewise_exit);

MODULE_LICENSE("GPL");
MODULE_AUTHOR("The idlewise developers");
MODULE_DESCRIPTION("cpuidle governor: menu with a choice of what to believe while the tick is stopped");
