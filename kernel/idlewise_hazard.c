// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * idlewise_hazard: a cpuidle governor that learns when idle periods end before their timer, and
 * takes the plan that costs least.
 *
 * It is the algorithm of idlewise-core's hazard, which explains what it believes, what it prices
 * and when it is wrong. Both decide the same; a test compares them. In short:
 *
 * - An idle period as the workload made it is a gap. Ticks and polling limits end stays, not gaps.
 * - Lengths of gaps fall into bins, two per doubling from 512 ns on. Four bins are a word of 64
 *   bits. Each lane holds the share of gaps that lasted beyond the bin, of those that reached the
 *   word. A gap moves the lanes of the words that it reached, all four at once.
 * - There are four such beliefs, by the size of the gap before.
 * - With the probability of lasting so long and the mean time until then, every plan has an expected
 *   cost: a state with the tick stopped; a state with the tick kept, and a second decision; polling
 *   for a while, and then a second decision.
 * - How often gaps are pauses of more than 25 ms, and how long these take, is remembered for longer
 *   than beliefs last. A pause after the tick was stopped is spent in the state then chosen.
 * - Powers are assumed from target residencies. `lambda` is the price of delay, in 1024ths of what
 *   polling as long costs. It can be changed at any time.
 *
 * A decision uses integers only, and no division.
 */

#include <linux/cpuidle.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched/clock.h>
#include <linux/string.h>
#include <linux/tick.h>

#include "governor_symbols.h"

#define WORD_COUNT		8
#define LANE_COUNT		4
#define BIN_COUNT		(WORD_COUNT * LANE_COUNT)
#define SIZE_COUNT		4
#define FIRST_BIN_SHIFT		9
#define TAIL_NS			(1ULL << 26)
/* Longer latencies and residencies of states are cut off, so that products fit. */
#define TIME_MAX_NS		(1ULL << 30)
/* Longer gaps and distances of timers are cut off. */
#define LENGTH_MAX_NS		(1ULL << 33)
/* The end of the last bin, beyond which a gap is a pause. */
#define PAUSE_NS		(3ULL << 23)
#define PAUSE_MEMORY_SHIFT	8
#define PAUSE_FIRST_SHARE_SHIFT	7
#define PAUSE_FEAR_SHIFT	9
#define LAMBDA_MAX		(16 * 1024)
/* The power of polling. */
#define ONE			1024ULL
#define ALL			0x7fffULL
#define SHARE_SHIFT		15
#define LANES			0x0001000100010001ULL
/* Each bin loses 15 %. */
#define PRIOR			0x42d04e9b5c7a6ccbULL
#define MASS_SHIFT		31
#define PRICED_MASS_BITS	13
#define CODE_BITS		5
#define CODE_MASK		((1ULL << CODE_BITS) - 1)
#define COST_MAX		(U64_MAX >> (CODE_BITS + 1))
#define BEHIND_COUNT		4
#define POLL_WORD_COUNT		4
/* The end of the last word that is polled. */
#define POLL_MAX_NS		(3ULL << 15)
#define POLL_MIN_NS		200
#define RESUME_MAX_NS		20000ULL
#define RESUME_SHARE_SHIFT	3
#define HANDLER_SPREAD_SHIFT	2
#define HANDLER_RISE_SHIFT	2
#define HANDLER_FALL_SHIFT	5
#define HANDLER_MAX_NS		128000U
#define TICK_WORK_NS		3000U
#define UNKNOWN_REST_MIN_NS	1000ULL
#define SHORT_WORD_COUNT	3
#define SHORT_SHARE_SHIFT	4
#define TICK_GUESS_NS		2000000ULL
#define STEADY_COUNT		15

static unsigned int lambda = 2048;
governor_choice_param(lambda, LAMBDA_MAX);
MODULE_PARM_DESC(lambda, "Price of delay, in 1024ths of what polling as long costs (default 2048)");

struct belief {
	u64 words[WORD_COUNT];
	u8 counts[WORD_COUNT];
};

/* The probability of lasting until the end of each word, and the mean time until then. */
struct outlook {
	u32 masses[WORD_COUNT];
	u64 times[WORD_COUNT];
};

struct state_cost {
	u32 power;
	u32 exit_latency_ns;
	/* Entering and leaving, and the delay at the end. */
	u64 once;
	/* What it costs more if the tick is the end, besides the handler. */
	s64 tick;
};

/* What was decided in front of a short gap, and for which states; 0: nothing. */
struct short_plan {
	u32 poll_ns;
	u16 allowed;
	u8 state;
};

struct hazard {
	struct state_cost costs[CPUIDLE_STATE_MAX];
	struct belief beliefs[SIZE_COUNT];
	struct outlook outlooks[SIZE_COUNT];
	u8 behind[SIZE_COUNT];
	u8 polls[SIZE_COUNT];
	struct short_plan short_plans[SIZE_COUNT];
	u64 age_ns;
	u64 timer_left_ns;
	u64 reflected_at_ns;
	/* The share of the gaps that are pauses, times 2^MASS_SHIFT, and their mean length. */
	u32 pause_mass;
	u64 pause_ns;
	/* What the tick's handler is known to take. */
	u32 handler_ns;
	u32 asleep;
	u32 lambda;
	/* 0 until the states are priced. */
	u8 state_count;
	u8 known_sizes;
	u8 last_size;
	bool is_open;
	/* The tick ended the last stay. */
	bool got_tick;
};

static DEFINE_PER_CPU(struct hazard, hazards);

/* Bins and lanes */

static __always_inline unsigned int bin_of(u64 ns)
{
	unsigned int octave = fls64(ns | 1ULL << (FIRST_BIN_SHIFT - 1)) - 1;
	unsigned int bin = 2 * octave + (ns >> (octave - 1) & 1);

	bin = bin < 2 * FIRST_BIN_SHIFT - 1 ? 0 : bin - (2 * FIRST_BIN_SHIFT - 1);
	return bin < BIN_COUNT ? bin : BIN_COUNT;
}

static __always_inline unsigned int bin_width_shift(unsigned int bin)
{
	return bin ? FIRST_BIN_SHIFT - 1 + (bin - 1) / 2 : FIRST_BIN_SHIFT;
}

static __always_inline u64 bin_start_ns(unsigned int bin)
{
	return bin ? (2ULL + ((bin - 1) & 1)) << (FIRST_BIN_SHIFT - 1 + (bin - 1) / 2) : 0;
}

static __always_inline u64 share(u64 word, unsigned int lane)
{
	return word >> (16 * lane) & 0xffff;
}

/* The mean time in a word, in half widths of its second bin. */
static __always_inline u64 time_in_word(u64 word, unsigned int index)
{
	u64 first = share(word, 0);
	u64 time = ALL + 3 * first + 4 * share(word, 1) + 6 * share(word, 2) + 4 * share(word, 3);

	return index ? time : time + 3 * (ALL + first);
}

static __always_inline u64 lanes_below(unsigned int lane)
{
	return (1ULL << (16 * lane)) - 1;
}

/* A part of how far each lane has to go, rounded up. */
static __always_inline u64 part_of(u64 far, unsigned int shift, u64 round, u64 kept)
{
	return (far + round) >> shift & kept;
}

/* Pricing */

/* To base 2, with 8 fractional bits. */
static int log2_of(u64 x)
{
	int whole = fls64(x) - 1;
	u64 fraction = whole >= 8 ? x >> (whole - 8) : x << (8 - whole);

	return whole << 8 | (int)(fraction & 0xff);
}

static u64 exp2_of(int log)
{
	return (256 + (u64)(log & 0xff)) << (log >> 8) >> 8;
}

/* A power between two points; linear in the logarithms. */
static u32 between(u64 target_ns, u64 short_ns, u64 high, u64 long_ns, u64 low)
{
	int part = log2_of(target_ns) - log2_of(short_ns);
	int whole = log2_of(long_ns) - log2_of(short_ns);

	return exp2_of(log2_of(high) - (log2_of(high) - log2_of(low)) * part / whole);
}

static u32 assumed_power(u64 target_ns)
{
	if (target_ns <= 1000)
		return 369;
	if (target_ns < 10000)
		return between(target_ns, 1000, 369, 10000, 225);
	if (target_ns < 600000)
		return between(target_ns, 10000, 225, 600000, 26);
	return 26;
}

static noinline void price(struct hazard *hazard, const struct cpuidle_driver *driver)
{
	u64 transition = 0;
	u32 shallower = ONE;
	int i;

	hazard->lambda = READ_ONCE(lambda);
	for (i = 0; i < driver->state_count; i++) {
		const struct cpuidle_state *state = &driver->states[i];
		struct state_cost *cost = &hazard->costs[i];
		u64 target_ns = min_t(u64, state->target_residency_ns, TIME_MAX_NS);
		u64 exit_latency_ns = min_t(u64, state->exit_latency_ns, TIME_MAX_NS);
		u64 delay = hazard->lambda * exit_latency_ns;

		cost->power = assumed_power(target_ns);
		if (state->flags & CPUIDLE_FLAG_POLLING)
			cost->power = ONE;
		else if (i)
			/* A deeper state draws less, or it would not be there. */
			cost->power = min_t(u32, cost->power, shallower * 15 / 16);
		if (i)
			transition += (u64)(shallower - cost->power) * target_ns;
		cost->exit_latency_ns = exit_latency_ns;
		cost->once = transition + delay;
		cost->tick = (s64)(ONE * exit_latency_ns) - (s64)delay;
		shallower = cost->power;
	}
	hazard->state_count = driver->state_count;
}

/* The cost of the best state for the rest of the gap, if there is no further decision. */
static __always_inline u64 rest_cost(const struct hazard *hazard, u32 allowed, u64 mass, u64 time)
{
	u64 best = COST_MAX;
	unsigned int i;

	for (i = 0; i < hazard->state_count; i++) {
		const struct state_cost *cost = &hazard->costs[i];
		u64 all = cost->power * time + cost->once * mass;

		if (allowed >> i & 1)
			best = min(best, all);
	}
	return best;
}

/* Learning */

static __always_inline void mass_after(const struct outlook *outlook, unsigned int words, u64 *mass,
				       u64 *time)
{
	*mass = words ? outlook->masses[words - 1] : 1ULL << MASS_SHIFT;
	*time = words ? outlook->times[words - 1] : 0;
}

/* Brings what follows from a belief up to date. */
static __always_inline void look_ahead(struct hazard *hazard, unsigned int size)
{
	const unsigned int shift = MASS_SHIFT + 1 - PRICED_MASS_BITS;
	struct outlook *outlook = &hazard->outlooks[size];
	u64 mass = 1ULL << MASS_SHIFT, time = 0, best;
	unsigned int i;

	for (i = 0; i < WORD_COUNT; i++) {
		u64 word = hazard->beliefs[size].words[i];

		time += mass * time_in_word(word, i) >> SHARE_SHIFT << (FIRST_BIN_SHIFT - 3 + 2 * i);
		mass = mass * share(word, LANE_COUNT - 1) >> SHARE_SHIFT;
		outlook->masses[i] = mass;
		outlook->times[i] = time;
	}
	hazard->behind[size] = 0;
	time = (time + mass * TAIL_NS) >> shift;
	best = rest_cost(hazard, hazard->asleep, (1ULL << MASS_SHIFT) >> shift, time) << CODE_BITS;
	for (i = 1; i <= POLL_WORD_COUNT; i++) {
		u64 polled = outlook->times[i - 1] >> shift;
		u64 cost = ONE * polled + rest_cost(hazard, hazard->asleep,
						    outlook->masses[i - 1] >> shift, time - polled);

		best = min(best, cost << CODE_BITS | i);
	}
	hazard->polls[size] = best & CODE_MASK;
	hazard->short_plans[size].allowed = 0;
}

/* How long to poll was chosen at another price. */
static noinline void look_ahead_again(struct hazard *hazard)
{
	unsigned int size;

	for (size = 0; size < SIZE_COUNT; size++) {
		if (hazard->known_sizes >> size & 1)
			look_ahead(hazard, size);
	}
}

/* Begins the belief after a size that has not occurred yet as a copy of another. */
static noinline void begin_belief(struct hazard *hazard, unsigned int size, unsigned int teacher)
{
	hazard->known_sizes |= 1 << size;
	hazard->beliefs[size] = hazard->beliefs[teacher];
	memset(hazard->beliefs[size].counts, 0, sizeof(hazard->beliefs[size].counts));
	look_ahead(hazard, size);
}

/*
 * Learns how often gaps are pauses, and how long these take. A timer that came early says nothing,
 * and one that ended a pause says only that it may be longer.
 */
static __always_inline void learn_pause(struct hazard *hazard, u64 survived_ns, bool is_event)
{
	if (survived_ns < PAUSE_NS) {
		if (is_event)
			hazard->pause_mass -= hazard->pause_mass >> PAUSE_MEMORY_SHIFT;
		return;
	}
	hazard->pause_mass += ((1U << MASS_SHIFT) - hazard->pause_mass) >> PAUSE_MEMORY_SHIFT;
	if (is_event || survived_ns > hazard->pause_ns)
		hazard->pause_ns = (hazard->pause_ns + min_t(u64, survived_ns, LENGTH_MAX_NS)) / 2;
}

/* Learns from a gap that has ended, by its timer or by an event. */
static __always_inline void end_gap(struct hazard *hazard, u64 gap_ns, u64 survived_ns, bool is_event)
{
	/* A word's nth observation moves it by a half, a quarter, an eighth and so on. */
	static const struct step {
		u64 round;
		u64 kept;
		unsigned int shift;
	} steps[] = {
#define STEP(n) { .round = LANES * ((1 << (n)) - 1), .kept = LANES * (0xffff >> (n)), .shift = (n) }
		STEP(1), STEP(2), STEP(2), STEP(3), STEP(3), STEP(3), STEP(3), STEP(4), STEP(4),
		STEP(4), STEP(4), STEP(4), STEP(4), STEP(4), STEP(4), STEP(5),
#undef STEP
	};
	unsigned int bin = bin_of(survived_ns), last = bin / LANE_COUNT, size = hazard->last_size, i;
	struct belief *belief = &hazard->beliefs[size];
	bool is_new = belief->counts[0] < STEADY_COUNT;

	hazard->is_open = false;
	hazard->age_ns = 0;
	for (i = 0; i < last; i++) {
		const struct step *step = &steps[belief->counts[i]];
		u64 word = belief->words[i];

		belief->words[i] = word + part_of(LANES * ALL - word, step->shift, step->round, step->kept);
		belief->counts[i] += belief->counts[i] < STEADY_COUNT;
	}
	if (last < WORD_COUNT) {
		const struct step *step = &steps[belief->counts[last]];
		u64 survived = lanes_below(bin % LANE_COUNT), ended = is_event ? ~survived : 0;
		u64 word = belief->words[last];
		u64 rise = part_of(LANES * ALL - word, step->shift, step->round, step->kept);
		/* No share becomes 0: that would hide what is known of gaps that last longer. */
		u64 fall = part_of(word - LANES, step->shift, step->round, step->kept);

		belief->words[last] = word + (rise & survived) - (fall & ended);
		belief->counts[last] += belief->counts[last] < STEADY_COUNT;
	}
	learn_pause(hazard, survived_ns, is_event);
	hazard->behind[size]++;
	if (hazard->behind[size] >= BEHIND_COUNT || is_new)
		look_ahead(hazard, size);
	hazard->last_size = (gap_ns >= 10 * NSEC_PER_USEC) + (gap_ns >= 100 * NSEC_PER_USEC) +
			    (gap_ns >= NSEC_PER_MSEC);
	if (!(hazard->known_sizes >> hazard->last_size & 1))
		begin_belief(hazard, hazard->last_size, size);
}

/* Deciding */

/* The probability of lasting so long, and the mean time until then. */
static __always_inline void look_at(const struct hazard *hazard, u64 ns, u64 *mass_then, u64 *time_then)
{
	unsigned int bin = bin_of(ns), index = bin / LANE_COUNT, lane = bin % LANE_COUNT;
	unsigned int width_shift, later_shift;
	u64 word, into_ns, mass, time, part, after[LANE_COUNT], before[LANE_COUNT], passed[LANE_COUNT];

	mass_after(&hazard->outlooks[hazard->last_size], index, &mass, &time);
	if (bin >= BIN_COUNT) {
		*mass_then = mass;
		*time_then = time + mass * min_t(u64, ns - bin_start_ns(BIN_COUNT), TAIL_NS);
		return;
	}
	word = hazard->beliefs[hazard->last_size].words[index];
	after[0] = mass * share(word, 0) >> SHARE_SHIFT;
	after[1] = mass * share(word, 1) >> SHARE_SHIFT;
	after[2] = mass * share(word, 2) >> SHARE_SHIFT;
	after[3] = mass * share(word, 3) >> SHARE_SHIFT;
	before[0] = mass;
	before[1] = after[0];
	before[2] = after[1];
	before[3] = after[2];
	width_shift = bin_width_shift(bin - lane);
	later_shift = FIRST_BIN_SHIFT - 1 + 2 * index;
	passed[0] = 0;
	passed[1] = (mass + after[0]) / 2 << width_shift;
	passed[2] = passed[1] + ((after[0] + after[1]) / 2 << later_shift);
	passed[3] = passed[2] + ((after[1] + after[2]) / 2 << later_shift);
	into_ns = ns - bin_start_ns(bin);
	part = into_ns << 10 >> bin_width_shift(bin);
	*mass_then = before[lane] - ((before[lane] - after[lane]) >> 10) * part;
	*time_then = time + passed[lane] + (before[lane] + *mass_then) / 2 * into_ns;
}

/* What is ahead at a decision. Masses and times carry the same factor. */
struct ahead {
	u64 mass;
	u64 time;
	bool has_tick;
	u64 tick_mass;
	u64 tick_time;
	/* The mean time in pauses besides, which only a stay without the tick has to sit out. */
	u64 pause_time;
};

/* The mean time in pauses that is feared, whatever was seen. */
static __always_inline u64 feared_time(u64 mass, u64 timer_left_ns)
{
	return mass * timer_left_ns >> PAUSE_FEAR_SHIFT;
}

/* The mean time in pauses that a belief leaves out, until the timer. */
static __always_inline u64 time_left_out(const struct hazard *hazard, u64 age_mass, unsigned int shift)
{
	u64 end_mass = hazard->outlooks[hazard->last_size].masses[WORD_COUNT - 1];
	u64 mass = min(max((u64)hazard->pause_mass, end_mass), age_mass) >> shift;
	u64 all = mass * min(hazard->timer_left_ns, hazard->pause_ns);
	u64 believed = (end_mass >> shift) * min(hazard->timer_left_ns, TAIL_NS);

	return max(all > believed ? all - believed : 0,
		   feared_time(age_mass >> shift, hazard->timer_left_ns));
}

/*
 * What is ahead of a gap about whose age no belief says anything. It may last as long again; a
 * pause, as long as pauses do.
 */
static __always_inline struct ahead ahead_of_old(const struct hazard *hazard, bool has_tick,
						 u64 tick_left_ns)
{
	u64 known_ns = hazard->age_ns < PAUSE_NS ? UNKNOWN_REST_MIN_NS : hazard->pause_ns;
	u64 rest_ns = min(hazard->timer_left_ns, max3(hazard->age_ns, UNKNOWN_REST_MIN_NS, known_ns));
	u64 mass = 1ULL << (PRICED_MASS_BITS - 1);

	return (struct ahead){
		.mass = mass,
		.time = mass * rest_ns,
		.has_tick = has_tick,
		.tick_mass = mass,
		.tick_time = mass * min(tick_left_ns, rest_ns),
		.pause_time = feared_time(mass, hazard->timer_left_ns),
	};
}

/* The cheapest way to sleep: its cost, twice its state, and 1 if the tick stops. */
static __always_inline u64 plan_sleep(const struct hazard *hazard, u32 allowed, const struct ahead *ahead)
{
	u64 best = U64_MAX, rest = 0;
	u32 least_power = hazard->costs[fls(allowed) - 1].power;
	unsigned int i;

	if (ahead->has_tick)
		rest = rest_cost(hazard, allowed, ahead->tick_mass, ahead->time - ahead->tick_time) +
		       ONE * hazard->handler_ns * ahead->tick_mass;
	for (i = 0; i < hazard->state_count; i++) {
		const struct state_cost *cost = &hazard->costs[i];
		u64 once = cost->once * ahead->mass;
		/* Every other plan looks again, and ends in the deepest state. */
		u64 power_above = cost->power > least_power ? cost->power - least_power : 0;
		u64 in_pauses = power_above * ahead->pause_time;
		u64 cheaper = (once + cost->power * ahead->time + in_pauses) << CODE_BITS | 1;

		if (ahead->has_tick) {
			u64 kept = once + cost->power * ahead->tick_time + rest +
				   (u64)(cost->tick * (s64)ahead->tick_mass);

			cheaper = min(cheaper, kept << CODE_BITS);
		}
		cheaper |= 2 * i;
		if (allowed >> i & 1)
			best = min(best, cheaper);
	}
	return best;
}

struct plan {
	int state;
	bool stop_tick;
	u64 poll_ns;
};

static __always_inline struct plan sleeping(u64 best)
{
	return (struct plan){ .state = (best & CODE_MASK) / 2, .stop_tick = best & 1 };
}

static struct plan make_plan(const struct hazard *hazard, u32 asleep, bool can_poll, bool has_tick,
			     u64 tick_left_ns)
{
	u64 age_ns = hazard->age_ns;
	u64 until_ns = age_ns + hazard->timer_left_ns;
	u64 age_mass = 1ULL << MASS_SHIFT, age_time = 0, mass, time, best, end_ns;
	struct ahead ahead = { .has_tick = has_tick };
	unsigned int shift, words = hazard->polls[hazard->last_size];

	if (age_ns >= PAUSE_NS)
		age_mass = 0;
	else if (age_ns)
		look_at(hazard, age_ns, &age_mass, &age_time);
	if (!age_mass) {
		ahead = ahead_of_old(hazard, has_tick, tick_left_ns);
		return sleeping(plan_sleep(hazard, asleep, &ahead));
	}
	shift = fls64(age_mass) > PRICED_MASS_BITS ? fls64(age_mass) - PRICED_MASS_BITS : 0;
	look_at(hazard, until_ns, &mass, &time);
	ahead.mass = age_mass >> shift;
	ahead.time = time > age_time ? (time - age_time) >> shift : 0;
	if (has_tick) {
		look_at(hazard, age_ns + tick_left_ns, &mass, &time);
		ahead.tick_mass = mass >> shift;
		ahead.tick_time = min(time > age_time ? (time - age_time) >> shift : 0, ahead.time);
	}
	ahead.pause_time = time_left_out(hazard, age_mass, shift);
	best = plan_sleep(hazard, asleep, &ahead);
	if (!can_poll)
		return sleeping(best);
	if (ONE * ahead.time <= best >> CODE_BITS)
		return (struct plan){ .poll_ns = POLL_MAX_NS };
	end_ns = bin_start_ns(words * LANE_COUNT);
	if (end_ns > age_ns && end_ns <= until_ns) {
		u64 polled, cost;

		mass_after(&hazard->outlooks[hazard->last_size], words, &mass, &time);
		polled = min(time > age_time ? (time - age_time) >> shift : 0, ahead.time);
		cost = ONE * polled + rest_cost(hazard, asleep, mass >> shift, ahead.time - polled);
		if (cost < best >> CODE_BITS)
			return (struct plan){ .poll_ns = end_ns - age_ns };
	}
	return sleeping(best);
}

/* Whether hardly any gap that begins now lasts beyond 25 us, so that no timer matters. */
static __always_inline bool is_short(const struct hazard *hazard)
{
	u32 mass = hazard->outlooks[hazard->last_size].masses[SHORT_WORD_COUNT - 1];

	return !hazard->age_ns && mass < 1U << (MASS_SHIFT - SHORT_SHARE_SHIFT);
}

/*
 * The plan in front of a short gap, if it keeps the tick. Worked out anew when the outlook is, or
 * when other states are allowed.
 */
static __always_inline bool take_short_plan(struct hazard *hazard, u32 allowed, u32 polls,
					    struct plan *plan)
{
	struct short_plan *known = &hazard->short_plans[hazard->last_size];

	hazard->timer_left_ns = LENGTH_MAX_NS;
	if (known->allowed != allowed) {
		*plan = make_plan(hazard, hazard->asleep, allowed & polls, true, TICK_GUESS_NS);
		if (plan->stop_tick)
			return false;
		*known = (struct short_plan){ plan->poll_ns, allowed, plan->state };
	}
	*plan = (struct plan){ .state = known->state, .poll_ns = known->poll_ns };
	return true;
}

/*
 * A bit for each state that is enabled and within the latency limit; if there is none, for the
 * shallowest enabled one, or the first.
 */
static __always_inline u32 allowed_states(const struct cpuidle_driver *driver,
					  const struct cpuidle_device *device)
{
	s64 limit_ns = max_t(s64, cpuidle_governor_latency_req(device->cpu), 0);
	u32 enabled = 0, allowed = 0;
	int i;

	for (i = 0; i < driver->state_count; i++) {
		enabled |= (u32)!device->states_usage[i].disable << i;
		allowed |= (u32)(driver->states[i].exit_latency_ns <= limit_ns) << i;
	}
	allowed &= enabled;
	if (allowed)
		return allowed;
	return enabled ? enabled & -enabled : 1;
}

static u64 positive(s64 ns)
{
	return ns < 0 ? 0 : min_t(u64, ns, LENGTH_MAX_NS);
}

/*
 * Whether the gap goes on after so much time awake: no more than the tick's handler ran. What that
 * is known to take is what seven of eight ticks took.
 */
static __always_inline bool goes_on(struct hazard *hazard, u64 passed_ns)
{
	u64 known_ns = hazard->handler_ns;
	u64 longest_ns = max(RESUME_MAX_NS, hazard->age_ns);

	if (hazard->got_tick && passed_ns <= longest_ns) {
		u64 now_ns = clamp(passed_ns, known_ns - (known_ns >> HANDLER_FALL_SHIFT),
				   known_ns + (known_ns >> HANDLER_RISE_SHIFT));

		hazard->handler_ns = clamp_t(u64, now_ns, TICK_WORK_NS, HANDLER_MAX_NS);
	}
	return passed_ns <= max3(RESUME_MAX_NS, hazard->age_ns >> RESUME_SHARE_SHIFT,
				 min(longest_ns, known_ns << HANDLER_SPREAD_SHIFT));
}

static int hazard_select(struct cpuidle_driver *driver, struct cpuidle_device *device, bool *stop_tick)
{
	struct hazard *hazard = this_cpu_ptr(&hazards);
	bool tick_stopped = tick_nohz_tick_stopped(), has_tick;
	struct plan plan = { .poll_ns = POLL_MAX_NS };
	bool is_new_price = hazard->lambda != READ_ONCE(lambda), was_priced = hazard->state_count;
	u32 allowed, polls;
	ktime_t next_event;
	s64 timer_ns;

	if (!was_priced || is_new_price)
		price(hazard, driver);
	if (hazard->is_open) {
		u64 passed_ns = local_clock() - hazard->reflected_at_ns;

		if (goes_on(hazard, passed_ns))
			hazard->age_ns = min_t(u64, hazard->age_ns + passed_ns, LENGTH_MAX_NS);
		else
			/* A task ran. Nothing unannounced was seen until then. */
			end_gap(hazard, hazard->age_ns, hazard->age_ns, false);
	}
	allowed = allowed_states(driver, device);
	polls = !!(driver->states[0].flags & CPUIDLE_FLAG_POLLING);
	hazard->asleep = allowed & ~polls;
	if (was_priced && is_new_price)
		look_ahead_again(hazard);
	*stop_tick = false;
	/* Asking for the timer takes longer than all else here. */
	if (tick_stopped || !hazard->asleep || !is_short(hazard) ||
	    !take_short_plan(hazard, allowed, polls, &plan)) {
		timer_ns = tick_nohz_get_sleep_length(&next_event);
		hazard->timer_left_ns = positive(timer_ns);
		/* The tick matters only if it comes before the timer. */
		has_tick = !tick_stopped && next_event < timer_ns;
		if (hazard->asleep)
			plan = make_plan(hazard, hazard->asleep, allowed & polls, has_tick,
					 positive(next_event));
		/* Stopping the tick takes time, and in front of a timer it changes nothing. */
		*stop_tick = plan.stop_tick &&
			     (tick_stopped || next_event == KTIME_MAX || next_event < timer_ns);
	}
	if (polls && !plan.state)
		device->poll_limit_ns = max_t(u64, plan.poll_ns, POLL_MIN_NS);
	return plan.state;
}

static void hazard_reflect(struct cpuidle_device *device, int index)
{
	struct hazard *hazard = this_cpu_ptr(&hazards);
	u64 residency_ns = min_t(u64, device->last_residency_ns, LENGTH_MAX_NS);
	u64 exit_latency_ns = hazard->costs[index].exit_latency_ns;
	u64 gap_ns = hazard->age_ns + (residency_ns > exit_latency_ns ? residency_ns - exit_latency_ns : 0);
	bool hit_limit = device->poll_time_limit, got_tick = tick_nohz_idle_got_tick();

	device->poll_time_limit = false;
	hazard->reflected_at_ns = local_clock();
	if (residency_ns >= hazard->timer_left_ns) {
		end_gap(hazard, gap_ns, hazard->age_ns + hazard->timer_left_ns, false);
	} else if (got_tick || hit_limit) {
		hazard->age_ns = min_t(u64, hazard->age_ns + residency_ns, LENGTH_MAX_NS);
		hazard->is_open = true;
		hazard->got_tick = got_tick;
	} else {
		end_gap(hazard, gap_ns, gap_ns, true);
	}
}

static int hazard_enable(struct cpuidle_driver *driver, struct cpuidle_device *device)
{
	struct hazard *hazard = &per_cpu(hazards, device->cpu);
	unsigned int size, i;

	memset(hazard, 0, sizeof(*hazard));
	hazard->known_sizes = 1;
	hazard->pause_mass = 1U << (MASS_SHIFT - PAUSE_FIRST_SHARE_SHIFT);
	hazard->pause_ns = LENGTH_MAX_NS;
	hazard->handler_ns = TICK_WORK_NS;
	for (size = 0; size < SIZE_COUNT; size++) {
		for (i = 0; i < WORD_COUNT; i++)
			hazard->beliefs[size].words[i] = PRIOR;
	}
	/* No state is priced yet, so this foresees no poll. */
	look_ahead(hazard, 0);
	hazard->polls[0] = 0;
	device->poll_limit_ns = 0;
	governor_in_use();
	return 0;
}

static void hazard_disable(struct cpuidle_driver *driver, struct cpuidle_device *device)
{
	/* The kernel computes a limit only where there is none, so ours would outlive us. */
	device->poll_limit_ns = 0;
	governor_out_of_use();
}

static struct cpuidle_governor hazard_governor = {
	.name = "hazard",
	/* Below all others: loading the module must not change a machine's governor. */
	.rating = 1,
	.enable = hazard_enable,
	.disable = hazard_disable,
	.select = hazard_select,
	.reflect = hazard_reflect,
};

static int __init hazard_init(void)
{
	BUILD_BUG_ON(sizeof(struct hazard) > 1024);
	/* A plan's code is twice its state, and 1 if the tick stops. */
	BUILD_BUG_ON(2 * CPUIDLE_STATE_MAX > 1 << CODE_BITS);
	return governor_register(&hazard_governor);
}

static void __exit hazard_exit(void)
{
	governor_unregister(&hazard_governor);
}

module_init(hazard_init);
module_exit(hazard_exit);

MODULE_LICENSE("Dual MIT/GPL");
MODULE_AUTHOR("The idlewise developers");
MODULE_DESCRIPTION("cpuidle governor that learns when idle periods end and takes the cheapest plan");
