//! A governor that learns when idle periods end, and prices what it could do.
//!
//! Observation
//! -----------
//! An idle period ends at its timer, whose distance is known, or earlier, by something that nobody announced.
//! Only the second has to be learnt. Energy and priced delay are linear in time. So for a state that is
//! entered once, nothing matters but the mean of what is left of the idle period, and for a decision that
//! can be taken again later, nothing but that mean and the probability of getting there.
//!
//! Terms
//! -----
//! - A *gap* is an idle period as the workload made it. It may have several stays: the tick and the limit of a
//!   polling state end a stay, but not the gap. What has passed of it is its *age*.
//! - *Bins* hold lengths of gaps, two per doubling from 512 ns on. The last is open.
//! - The *hazard* of a bin is the probability that a gap which reaches it ends in it, other than by its timer.
//!   A gap that its timer ended says that the bins before were survived, and nothing about later ones
//!   (a censored observation). So a hazard, unlike a share of the gaps, is not wrong where timers differ.
//! - A *belief* is a set of hazards. There are two: one of the last 16 gaps or so that reached each bin, and one
//!   of the last 127 among those that followed a gap of the same size (four *sizes*).
//! - λ is the price of delay: at 1, waiting for the CPU costs what polling as long costs.
//!
//! Believing
//! ---------
//! 1. Each gap moves the hazards of the bins that it survived towards 0, and that of its last bin towards 1. The
//!    first gap that reaches a bin moves it nearly all the way, the nth by 1/n, down to 1/16 or 1/127. So a bin
//!    that is seldom reached keeps its few observations for long.
//! 2. The two beliefs bet on each gap. The logarithm of the ratio of the probabilities that they gave to what
//!    happened, summed over the last 16 gaps or so, is their relative weight. In a steady workload they agree; in
//!    bursts, the size of the last gap tells where in the burst we are; after a change, the short memory wins.
//! 3. Without history every hazard is 0.15: a gap of any order of magnitude is possible. The cheapest plan is then
//!    a shallow state and another look at the tick. (With hazards of 0, the first guess is the deepest state, as
//!    teo's is. In the first 60 gaps that costs three times as much.) A bin that has never been reached after a gap
//!    of this size has the hazard that it has after any.
//!
//! Pricing
//! -------
//! The kernel's table says when a state pays off, not what it draws. The power of a state is assumed from its
//! target residency (`SHAPE`), in shares of polling. The energy of a transition follows: a stay of the target
//! residency costs the same in the state and in the next shallower one. A walk over the bins from the gap's age
//! to the timer gives the probability of reaching each bin and the mean time until then. With these, every plan
//! has an expected cost:
//!
//! - enter a state and stop the tick;
//! - enter a state, keep the tick, and decide again there, if the gap lasts so long. The tick wakes the CPU, and
//!   that is priced;
//! - poll until the end of a bin, and decide again then, for nothing.
//!
//! A plan's second decision is priced as if it were the last. The cheapest plan wins.
//!
//! The walk multiplies weights and never divides by them: if all costs carry the same factor, their order is
//! right. So there is no division, and no floating point, in a decision.
//!
//! When it is wrong
//! ----------------
//! - Where a machine's powers are far from `SHAPE`, choices near a break-even are wrong, by as much as the powers.
//!   Target residencies then also say less about energy than they should.
//! - Gaps that depend on more than the size of the one before (periods of three, say) are mixed up.
//! - Where gaps come in two lengths on either side of a break-even at random, nobody can be right, and it pays
//!   what the mean demands.
//! - A gap that lasts beyond the last bin is taken for one of at most 84 ms or so. A state with a longer target
//!   residency is not entered.
//! - An event within an exit latency before the timer passes for the timer's.
//! - The exit latency that is taken off a stay is the table's worst case, so real gaps look shorter than they are.
//! - λ is what it is told. It does not know who waits.

use crate::{
    Context, Decision, Device, FAR_AWAY_NS, Governor, Outcome, STATE_COUNT_MAX, StateIndex,
    StateTable,
};

/// The number of bins.
const BIN_COUNT: usize = 32;
/// The upper end of the first bin is 2 to this, in nanoseconds.
const FIRST_BIN_SHIFT: u32 = 9;
/// The longest time beyond the start of the last bin, in nanoseconds.
const LAST_BIN_NS: u64 = 1 << 26;
/// Longer times are cut off, so that a product with [`ONE`] and a weight fits.
const TIME_MAX_NS: u64 = 1 << 30;
/// The largest price of delay, in [`Lambda::ONE`].
const LAMBDA_MAX: u32 = 16;
/// The power of polling, and a λ of 1: 10 fractional bits.
const ONE: u64 = 1 << 10;
/// A hazard of 1.
const CERTAIN: u32 = 1 << 16;
/// Polling plans end by then. Longer ones gain nothing (`docs/hazard.md`).
const POLL_MAX_NS: u64 = 64 << 10;
/// Bins in which a polling plan can end.
const POLL_BIN_COUNT: usize = 16;
/// The shortest poll, because the loop looks at its clock only now and then.
const POLL_MIN_NS: u64 = 200;
/// A stay that the tick ended and the next decision belong to one gap if no more passed in between. The tick's
/// handler takes 2 to 4 us.
const RESUME_MAX_NS: u64 = 20_000;
/// What a tick costs at running power besides the exit latency. Assumed, as in the replay.
const TICK_WORK_NS: u64 = 3_000;
/// The sizes of gaps that a belief distinguishes end below these lengths, in nanoseconds.
const SIZE_ENDS_NS: [u64; SIZE_COUNT - 1] = [10_000, 100_000, 1_000_000];
const SIZE_COUNT: usize = 4;
/// A hazard without any observation, of [`CERTAIN`].
const PRIOR: u16 = 9_830;
/// How many observations the beliefs keep.
const RECENT_COUNT: u8 = 16;
const AFTER_SIZE_COUNT: u8 = 127;
/// The bets lose a sixteenth with each gap.
const BET_FADE_SHIFT: u32 = 4;
/// The least weight of a belief, of [`CERTAIN`]: it may be right after the next change.
const WEIGHT_MIN: u32 = 3_277;
/// A bet never gives less than this to anything, of [`CERTAIN`], so that one surprise does not decide alone.
const BET_MIN: u32 = 131;

/// How far the nth observation of a bin moves its hazard, of [`CERTAIN`]: 1 / (n + 0.1).
const STEPS: [u16; AFTER_SIZE_COUNT as usize + 1] = {
    let mut steps = [0; AFTER_SIZE_COUNT as usize + 1];
    let mut n = 1;
    while n < steps.len() {
        steps[n] = (CERTAIN * 10 / (10 * n as u32 + 1)) as u16;
        n += 1;
    }
    steps
};

/// The assumed power of a state by its target residency in nanoseconds, in shares of [`ONE`]. In between, the
/// relation is linear in the logarithms. The values are AgileWatts' for a Skylake server core (Yahya et al.,
/// 2022). Published target residencies of C1E are 4 to 20 us; the middle one costs least where the guess is
/// wrong (`docs/hazard.md`).
const SHAPE: [(u64, u64); 3] = [(1_000, 369), (10_000, 225), (600_000, 26)];

/// The governor's name, and what it does.
pub const HAZARD: (&str, &str) = (
    "hazard",
    "learns when gaps end before their timer, and takes the plan that costs least; delay costs ¼ of \
     polling, or X times as much with hazard:lambda=X",
);

/// The price of delay: what a second of it costs, in seconds of polling. At most 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lambda(u32);

impl Lambda {
    /// A quarter of the power of polling.
    pub const QUARTER: Lambda = Lambda(ONE as u32 / 4);

    /// From 1024ths of the power of polling. More than 16 times that counts as 16 times.
    pub const fn from_1024ths(parts: u32) -> Self {
        let max = LAMBDA_MAX * ONE as u32;
        Lambda(if parts < max { parts } else { max })
    }

    /// In 1024ths of the power of polling.
    pub const fn as_1024ths(self) -> u32 {
        self.0
    }
}

/// The hazards of all bins, and how often each was reached, up to a belief's memory.
#[derive(Clone, Debug)]
struct Belief {
    hazards: [u16; BIN_COUNT],
    counts: [u8; BIN_COUNT],
}

/// What a state costs. A cost is a power in shares of [`ONE`] times nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct StateCost {
    power: u32,
    exit_latency_ns: u32,
    /// Entering and leaving.
    transition: u64,
    /// The delay at the end.
    delay: u64,
}

/// One CPU's governor of expected costs. See the top of `hazard.rs`.
#[derive(Clone, Debug)]
pub struct Hazard {
    lambda: Lambda,
    costs: [StateCost; STATE_COUNT_MAX],
    /// 0 until the states are priced.
    state_count: u8,
    recent: Belief,
    after_size: [Belief; SIZE_COUNT],
    /// The logarithm (base 2, 8 fractional bits) of how much more likely `after_size` found the last gaps than
    /// `recent` did.
    bet: i32,
    last_size: u8,
    /// The gap goes on: the tick or a polling limit ended the last stay.
    is_open: bool,
    /// What has passed of the gap, up to the last reflection or selection.
    age_ns: u64,
    timer_left_ns: u64,
    reflected_at_ns: u64,
}

/// A walk over the bins, and what it found at its points of decision. All masses and times carry the same
/// factor: the sum of the beliefs' weights.
struct Walk {
    /// At the beginning.
    mass: u64,
    /// The mean time until the end of the gap.
    time: u64,
    /// Mass and time at the next tick, if the gap can last so long.
    tick: Option<(u64, u64)>,
    /// Mass and time at the beginning of bins, from the second one that is walked on.
    polls: [(u64, u64); POLL_BIN_COUNT],
}

/// The cheapest plan so far.
#[derive(Clone, Copy)]
struct Plan {
    cost: u64,
    state: StateIndex,
    stop_tick: bool,
    poll_ns: u64,
}

/// The bin of a length.
#[inline]
fn bin_of(ns: u64) -> usize {
    if ns < 1 << FIRST_BIN_SHIFT {
        return 0;
    }
    let octave = ns.ilog2();
    let half = (ns >> (octave - 1)) & 1;
    ((2 * (octave - FIRST_BIN_SHIFT)) as usize + half as usize + 1).min(BIN_COUNT - 1)
}

/// The shortest length in a bin.
#[inline]
const fn bin_start_ns(bin: usize) -> u64 {
    match bin {
        0 => 0,
        _ => (2 + ((bin as u64 - 1) & 1)) << (FIRST_BIN_SHIFT as usize - 1 + (bin - 1) / 2),
    }
}

/// The logarithm to base 2, with 8 fractional bits; linear between powers of two. `x` must not be 0.
#[inline]
const fn log2(x: u64) -> i32 {
    let whole = x.ilog2();
    let fraction = if whole >= 8 { x >> (whole - 8) } else { x << (8 - whole) };
    ((whole as i32) << 8) | (fraction as i32 & 0xff)
}

/// The inverse of [`log2`], for results from 1 to 2^32.
#[inline]
const fn exp2(log: i32) -> u64 {
    let mantissa = 256 + (log as u64 & 0xff);
    (mantissa << (log >> 8)) >> 8
}

/// The assumed power of a state with this target residency.
fn assumed_power(target_residency_ns: u64) -> u64 {
    if target_residency_ns <= SHAPE[0].0 {
        return SHAPE[0].1;
    }
    for pair in SHAPE.windows(2) {
        let ((short_ns, high), (long_ns, low)) = (pair[0], pair[1]);
        if target_residency_ns < long_ns {
            let part = log2(target_residency_ns) - log2(short_ns);
            let whole = log2(long_ns) - log2(short_ns);
            return exp2(log2(high) - (log2(high) - log2(low)) * part / whole);
        }
    }
    SHAPE[SHAPE.len() - 1].1
}

impl Belief {
    const NONE: Belief = Belief { hazards: [PRIOR; BIN_COUNT], counts: [0; BIN_COUNT] };

    /// The hazard of a bin, or that of `other` if there is no observation.
    #[inline]
    fn hazard(&self, bin: usize, other: &Belief) -> u32 {
        let bin = bin % BIN_COUNT;
        let belief = if self.counts[bin] == 0 { other } else { self };
        u32::from(belief.hazards[bin])
    }

    /// The logarithm of the probability that a gap gets to bin `last`, and ends there if it is an event.
    #[inline]
    fn probability(&self, last: usize, is_event: bool, other: &Belief) -> i32 {
        let bet = |bin| self.hazard(bin, other).clamp(BET_MIN, CERTAIN - BET_MIN);
        let mut mass = u64::from(CERTAIN) << 16;
        for bin in 0..last {
            mass = (mass * u64::from(CERTAIN - bet(bin))) >> 16;
        }
        if is_event {
            mass = (mass * u64::from(bet(last))) >> 16;
        }
        log2(mass.max(1))
    }

    /// Learns from a gap that got to bin `last`, and ended there unless its timer did it.
    #[inline]
    fn learn(&mut self, last: usize, is_event: bool, count_max: u8) {
        let last = last.min(BIN_COUNT - 1);
        for (hazard, count) in self.hazards.iter_mut().zip(&mut self.counts).take(last) {
            *count = (*count + 1).min(count_max);
            let old = u32::from(*hazard);
            // Rounded up, so that it reaches 0.
            let step = u32::from(STEPS[usize::from(*count) & 127]);
            *hazard = (old - (old * step).div_ceil(CERTAIN)) as u16;
        }
        if is_event {
            let (hazard, count) = (&mut self.hazards[last], &mut self.counts[last]);
            *count = (*count + 1).min(count_max);
            let old = u32::from(*hazard);
            let step = u32::from(STEPS[usize::from(*count) & 127]);
            *hazard = (old + (((CERTAIN - 1 - old) * step) >> 16)) as u16;
        }
    }
}

impl Hazard {
    /// Creates a governor without history for this price of delay.
    pub const fn new(lambda: Lambda) -> Self {
        Hazard {
            lambda,
            costs: [StateCost { power: 0, exit_latency_ns: 0, transition: 0, delay: 0 };
                STATE_COUNT_MAX],
            state_count: 0,
            recent: Belief::NONE,
            after_size: [Belief::NONE; SIZE_COUNT],
            bet: 0,
            last_size: 0,
            is_open: false,
            age_ns: 0,
            timer_left_ns: 0,
            reflected_at_ns: 0,
        }
    }

    /// Prices the states. Once in a governor's life, so it may divide.
    #[cold]
    fn price(&mut self, states: &StateTable) {
        let mut shallower = StateCost { power: ONE as u32, ..StateCost::default() };
        for (index, (cost, state)) in self.costs.iter_mut().zip(states.as_slice()).enumerate() {
            let target_ns = state.target_residency_ns.min(TIME_MAX_NS);
            let exit_latency_ns = state.exit_latency_ns.min(TIME_MAX_NS);
            let power = match (state.is_polling, index) {
                (true, _) => ONE as u32,
                (false, 0) => assumed_power(target_ns) as u32,
                // A deeper state draws less, or it would not be there.
                (false, _) => (assumed_power(target_ns) as u32).min(shallower.power * 15 / 16),
            };
            let saved = if index == 0 { 0 } else { u64::from(shallower.power - power) };
            *cost = StateCost {
                power,
                exit_latency_ns: exit_latency_ns as u32,
                transition: shallower.transition + saved * target_ns,
                delay: u64::from(self.lambda.0) * exit_latency_ns,
            };
            shallower = *cost;
        }
        self.state_count = states.len() as u8;
    }

    /// Learns from a gap that has ended.
    #[inline]
    fn end_gap(&mut self, gap_ns: u64, is_event: bool) {
        self.is_open = false;
        self.age_ns = 0;
        let last = bin_of(gap_ns);
        let after_size = &mut self.after_size[usize::from(self.last_size) % SIZE_COUNT];
        let margin = after_size.probability(last, is_event, &self.recent)
            - self.recent.probability(last, is_event, &self.recent);
        self.bet += margin - (self.bet >> BET_FADE_SHIFT);
        after_size.learn(last, is_event, AFTER_SIZE_COUNT);
        self.recent.learn(last, is_event, RECENT_COUNT);
        self.last_size = SIZE_ENDS_NS.iter().map(|&end_ns| u8::from(gap_ns >= end_ns)).sum();
    }

    /// The weights of the beliefs: recent, after size.
    #[inline]
    fn weights(&self) -> (u64, u64) {
        let margin = self.bet.unsigned_abs().min(15 << 8);
        let weaker = exp2((16 << 8) - margin as i32).max(u64::from(WEIGHT_MIN));
        let stronger = u64::from(CERTAIN);
        if self.bet > 0 { (weaker, stronger) } else { (stronger, weaker) }
    }

    /// Walks from the gap's age to its timer.
    #[inline]
    fn walk(&self, tick_left_ns: Option<u64>) -> Walk {
        let (mut recent, mut after_size) = self.weights();
        let by_size = &self.after_size[usize::from(self.last_size) % SIZE_COUNT];
        let age_ns = self.age_ns;
        let end_ns = age_ns + self.timer_left_ns;
        let (first, last) = (bin_of(age_ns), bin_of(end_ns));
        let mut walk = Walk {
            mass: recent + after_size,
            time: 0,
            tick: None,
            polls: [(0, 0); POLL_BIN_COUNT],
        };
        let tick_at_ns = tick_left_ns.map(|left_ns| age_ns + left_ns);
        for bin in first..=last {
            let mass = recent + after_size;
            if bin > first {
                if let Some(poll) = walk.polls.get_mut(bin - first - 1) {
                    *poll = (mass, walk.time);
                }
            }
            let (from_ns, bin_end_ns) = (bin_start_ns(bin).max(age_ns), bin_start_ns(bin + 1));
            let is_open = bin == BIN_COUNT - 1;
            let until_ns =
                if is_open { end_ns.min(from_ns + LAST_BIN_NS) } else { end_ns.min(bin_end_ns) };
            let width_ns = until_ns - from_ns;
            let mut ending = (
                (recent * u64::from(self.recent.hazard(bin, &self.recent))) >> 16,
                (after_size * u64::from(by_size.hazard(bin, &self.recent))) >> 16,
            );
            if is_open {
                ending = (ending.0 / 2, ending.1 / 2);
            } else if until_ns < bin_end_ns || from_ns > bin_start_ns(bin) {
                // Only a part of the bin lies ahead. Its width is 2 or 3 times a power of two.
                let part = part_of_bin(width_ns, bin);
                ending = ((ending.0 * part) >> 10, (ending.1 * part) >> 10);
            }
            let ending_mass = ending.0 + ending.1;
            if let Some(tick_at_ns) = tick_at_ns {
                if walk.tick.is_none() && tick_at_ns < until_ns {
                    let before_ns = tick_at_ns.saturating_sub(from_ns);
                    let until_tick =
                        if is_open { 0 } else { (ending_mass * part_of_bin(before_ns, bin)) >> 10 };
                    let mass_at_tick = mass - until_tick.min(ending_mass);
                    let time = walk.time + (mass + mass_at_tick) / 2 * before_ns;
                    walk.tick = Some((mass_at_tick, time));
                }
            }
            walk.time += (2 * mass - ending_mass) / 2 * width_ns;
            recent -= ending.0;
            after_size -= ending.1;
        }
        walk
    }

    /// The cost of the best state for the rest of the gap, if there is no further decision.
    #[inline]
    fn rest_cost(&self, allowed: u32, mass: u64, time: u64) -> u64 {
        let mut best = u64::MAX / 4;
        for (index, cost) in self.costs[..self.state_count()].iter().enumerate() {
            let all = u64::from(cost.power) * time + (cost.transition + cost.delay) * mass;
            best = if (allowed >> index) & 1 != 0 { best.min(all) } else { best };
        }
        best
    }

    #[inline]
    fn state_count(&self) -> usize {
        usize::from(self.state_count).min(STATE_COUNT_MAX)
    }

    /// The cheapest plan. `allowed` has a bit for each state that may be entered, and is not 0.
    #[inline]
    fn plan(&self, allowed: u32, can_poll: bool, walk: &Walk) -> Plan {
        let mut best = Plan { cost: u64::MAX, state: 0, stop_tick: true, poll_ns: 0 };
        let tick_rest = walk.tick.map(|(mass, time)| {
            (mass, time, self.rest_cost(allowed, mass, walk.time.saturating_sub(time)))
        });
        for (state, cost) in self.costs[..self.state_count()].iter().enumerate() {
            if (allowed >> state) & 1 == 0 {
                continue;
            }
            let power = u64::from(cost.power);
            let alone = power * walk.time + (cost.transition + cost.delay) * walk.mass;
            if alone < best.cost {
                best = Plan { cost: alone, state, stop_tick: true, poll_ns: 0 };
            }
            let Some((mass, time, rest)) = tick_rest else { continue };
            let wake_ns = u64::from(cost.exit_latency_ns) + TICK_WORK_NS;
            let kept = power * time
                + cost.transition * walk.mass
                + cost.delay * (walk.mass - mass)
                + ONE * wake_ns * mass
                + rest;
            if kept < best.cost {
                best = Plan { cost: kept, state, stop_tick: false, poll_ns: 0 };
            }
        }
        if can_poll {
            self.plan_poll(allowed, walk, &mut best);
        }
        best
    }

    /// Replaces the plan by polling if that is cheaper.
    #[inline]
    fn plan_poll(&self, allowed: u32, walk: &Walk, best: &mut Plan) {
        let first = bin_of(self.age_ns);
        // No state draws less than the deepest, or is entered for less than the shallowest.
        let deepest = &self.costs[(31 - allowed.leading_zeros()) as usize % STATE_COUNT_MAX];
        let shallowest = &self.costs[allowed.trailing_zeros() as usize % STATE_COUNT_MAX];
        let (power, transition) = (u64::from(deepest.power), shallowest.transition);
        for (index, &(mass, time)) in walk.polls.iter().enumerate() {
            // Later polls only cost more.
            if mass == 0 || ONE * time >= best.cost {
                break;
            }
            let left = walk.time.saturating_sub(time);
            if ONE * time + power * left + transition * mass >= best.cost {
                continue;
            }
            let poll_ns = bin_start_ns(first + 1 + index) - self.age_ns;
            if poll_ns > POLL_MAX_NS {
                break;
            }
            let rest = self.rest_cost(allowed, mass, left);
            let cost = ONE * time + rest;
            if cost < best.cost {
                *best = Plan { cost, state: 0, stop_tick: false, poll_ns };
            }
        }
        if ONE * walk.time < best.cost {
            *best = Plan { cost: 0, state: 0, stop_tick: false, poll_ns: POLL_MAX_NS };
        }
    }
}

/// The part of a bin that a width is, in 1024ths. Both bins of a doubling are equally wide, by a power of two.
#[inline]
fn part_of_bin(width_ns: u64, bin: usize) -> u64 {
    let shift = match bin {
        0 => FIRST_BIN_SHIFT,
        _ => FIRST_BIN_SHIFT - 1 + (bin as u32 - 1) / 2,
    };
    ((width_ns << 10) >> shift).min(1 << 10)
}

/// A bit for each state that is enabled and within the latency limit; if there is none, for the shallowest
/// enabled one, or the first.
#[inline]
fn allowed_states(context: &Context<'_>) -> u32 {
    let enabled = !u32::from(context.disabled.bits()) & ((1 << context.states.len()) - 1);
    let limit_ns = u64::try_from(context.latency_limit_ns).unwrap_or(0);
    let mut allowed = 0;
    for (index, state) in context.states.as_slice().iter().enumerate() {
        allowed |= u32::from(state.exit_latency_ns <= limit_ns) << index;
    }
    match (allowed & enabled, enabled) {
        (0, 0) => 1,
        (0, enabled) => enabled & enabled.wrapping_neg(),
        (allowed, _) => allowed,
    }
}

impl Governor for Hazard {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        if self.state_count == 0 {
            self.price(context.states);
        }
        if self.is_open {
            let passed_ns = context.now_ns.wrapping_sub(self.reflected_at_ns);
            if passed_ns <= RESUME_MAX_NS {
                self.age_ns = (self.age_ns + passed_ns).min(TIME_MAX_NS);
            } else {
                // A task ran, so the gap had ended.
                self.end_gap(self.age_ns, true);
            }
        }
        let timers = context.sleep_length();
        let positive = |ns: i64| u64::try_from(ns).unwrap_or(0).min(TIME_MAX_NS);
        self.timer_left_ns = positive(timers.sleep_length_ns);
        // The tick matters only if it comes before the timer.
        let is_ticking = !context.tick_stopped && timers.next_event_ns < timers.sleep_length_ns;
        let tick_left_ns = is_ticking.then(|| positive(timers.next_event_ns));

        let allowed = allowed_states(context);
        let polls = u32::from(context.states.get(0).is_polling);
        let can_poll = allowed & polls != 0;
        let walk = self.walk(tick_left_ns);
        let asleep = allowed & !polls;
        let plan = if asleep == 0 {
            Plan { cost: 0, state: 0, stop_tick: false, poll_ns: POLL_MAX_NS }
        } else {
            self.plan(asleep, can_poll, &walk)
        };
        if context.states.get(plan.state).is_polling {
            device.poll_limit_ns = plan.poll_ns.max(POLL_MIN_NS);
        }
        // Stopping the tick takes time, and in front of a timer it changes nothing.
        let is_needless = !context.tick_stopped
            && timers.next_event_ns != FAR_AWAY_NS
            && timers.next_event_ns >= timers.sleep_length_ns;
        Decision { state: plan.state, stop_tick: plan.stop_tick && !is_needless }
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        let entered = &self.costs[outcome.entered.min(STATE_COUNT_MAX - 1)];
        let residency_ns = device.last_residency_ns.min(TIME_MAX_NS);
        let stay_ns = residency_ns.saturating_sub(u64::from(entered.exit_latency_ns));
        self.reflected_at_ns = outcome.now_ns;
        let hit_limit = core::mem::take(&mut device.poll_time_limit);
        if residency_ns >= self.timer_left_ns {
            self.end_gap(self.age_ns + stay_ns, false);
        } else if outcome.got_tick || hit_limit {
            self.age_ns = (self.age_ns + residency_ns).min(TIME_MAX_NS);
            self.is_open = true;
        } else {
            self.end_gap(self.age_ns + stay_ns, true);
        }
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        note(self.bet as u64);
        note(u64::from(self.last_size));
        note(u64::from(self.is_open));
        note(self.age_ns);
        for belief in [&self.recent].into_iter().chain(&self.after_size) {
            for (&hazard, &count) in belief.hazards.iter().zip(&belief.counts) {
                note((u64::from(hazard) << 8) | u64::from(count));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DisabledMask, IdleState, SleepLength};

    #[test]
    fn bins_are_two_per_doubling() {
        for bin in 1..BIN_COUNT {
            let start_ns = bin_start_ns(bin);
            assert_eq!((bin_of(start_ns - 1), bin_of(start_ns)), (bin - 1, bin));
            let width_ns = bin_start_ns(bin + 1) - start_ns;
            assert_eq!(part_of_bin(width_ns, bin), 1 << 10);
        }
        assert_eq!([bin_start_ns(1), bin_start_ns(2), bin_start_ns(3)], [512, 768, 1_024]);
        assert_eq!(bin_of(u64::MAX), BIN_COUNT - 1);
    }

    #[test]
    fn is_at_most_a_kibibyte() {
        assert!(size_of::<Hazard>() <= 1_024, "{}", size_of::<Hazard>());
    }

    fn spr() -> StateTable {
        let states = [(1_000, 1_000), (2_000, 4_000), (290_000, 800_000)];
        let [c1, c1e, c6] = states.map(|(exit_ns, target_ns)| IdleState::new(exit_ns, target_ns));
        StateTable::new(&[IdleState::POLL, c1, c1e, c6]).unwrap()
    }

    /// Selects, stays `gap_ns`, and reflects; the tick is far away.
    fn stay(
        governor: &mut Hazard,
        context: &Context<'_>,
        now_ns: &mut u64,
        gap_ns: u64,
    ) -> Decision {
        let mut device = Device::default();
        let mut context = Context::new(context.states, context.timers());
        context.tick_stopped = true;
        context.now_ns = *now_ns;
        let decision = governor.select(&context, &mut device);
        let entered = decision.state;
        let residency_ns = gap_ns + context.states.get(entered).exit_latency_ns;
        device.last_residency_ns = residency_ns;
        *now_ns += residency_ns;
        let outcome = Outcome { entered, is_overruled: false, got_tick: false, now_ns: *now_ns };
        governor.reflect(&outcome, &mut device);
        *now_ns += 50_000;
        decision
    }

    fn timer(ns: i64) -> SleepLength {
        SleepLength { sleep_length_ns: ns, next_event_ns: ns }
    }

    #[test]
    fn keeps_the_tick_without_a_history() {
        let states = spr();
        let timers = SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: 1_000_000 };
        let context = Context::new(&states, timers);
        let decision = Hazard::new(Lambda::QUARTER).select(&context, &mut Device::default());
        assert_eq!(decision, Decision { state: 2, stop_tick: false });
    }

    #[test]
    fn learns_what_interrupts_do_and_not_what_timers_do() {
        let states = spr();
        let mut now_ns = 0;
        let far = Context::new(&states, timer(FAR_AWAY_NS));
        let near = Context::new(&states, timer(3_000_000));
        let mut governor = Hazard::new(Lambda::QUARTER);
        for _ in 0..100 {
            stay(&mut governor, &near, &mut now_ns, 3_000_000);
        }
        assert_eq!(
            stay(&mut governor, &far, &mut now_ns, 3_000_000).state,
            3,
            "only timers so far"
        );
        for _ in 0..200 {
            stay(&mut governor, &far, &mut now_ns, 50_000);
        }
        assert_eq!(stay(&mut governor, &far, &mut now_ns, 50_000).state, 2, "events since then");
    }

    #[test]
    fn the_price_of_delay_moves_the_break_even() {
        let states = spr();
        let at = |parts| {
            let context = Context::new(&states, timer(1_500_000));
            let (mut governor, mut now_ns) = (Hazard::new(Lambda::from_1024ths(parts)), 0);
            for _ in 0..100 {
                stay(&mut governor, &context, &mut now_ns, 1_500_000);
            }
            stay(&mut governor, &context, &mut now_ns, 1_500_000).state
        };
        assert_eq!((at(0), at(1_024)), (3, 2));
    }

    /// Short gaps, and a long one after each fourth. The tick is kept for a second decision.
    #[test]
    fn keeps_the_tick_where_it_does_not_know() {
        let states = spr();
        let mut now_ns = 0;
        let far = Context::new(&states, timer(FAR_AWAY_NS));
        let mut governor = Hazard::new(Lambda::QUARTER);
        for turn in 0..400 {
            let gap_ns = if turn * 7_919 % 16 == 0 { 60_000_000 } else { 40_000 };
            stay(&mut governor, &far, &mut now_ns, gap_ns);
        }
        let timers = SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: 200_000 };
        let mut context = Context::new(&states, timers);
        context.now_ns = now_ns;
        let decision = governor.select(&context, &mut Device::default());
        assert_eq!(decision, Decision { state: 2, stop_tick: false });
    }

    #[test]
    fn obeys_limits_and_disabled_states() {
        let states = spr();
        let mut context = Context::new(&states, timer(FAR_AWAY_NS));
        let select = |context: &Context<'_>| {
            Hazard::new(Lambda::QUARTER).select(context, &mut Device::default()).state
        };
        context.disabled = DisabledMask::NONE.with(3);
        assert_eq!(select(&context), 2);
        context.latency_limit_ns = 1_000;
        assert_eq!(select(&context), 1);
        context.latency_limit_ns = -1;
        assert_eq!(select(&context), 0);
        context.disabled = DisabledMask::NONE.with(0).with(1);
        assert_eq!(select(&context), 2, "something has to be entered");
    }

    /// Every sum fits, whatever the table, the history and the price: debug builds panic if one does not.
    #[test]
    fn bears_extreme_tables_and_times() {
        let day_ns = 86_400 * 1_000_000_000;
        let tables = [
            StateTable::new(&[IdleState::POLL]).unwrap(),
            StateTable::new(&[IdleState::new(day_ns, 0)]).unwrap(),
            StateTable::new(&[IdleState::new(day_ns, day_ns); STATE_COUNT_MAX]).unwrap(),
            StateTable::new(&[IdleState::POLL, IdleState::new(0, 0), IdleState::new(0, day_ns)])
                .unwrap(),
            spr(),
        ];
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for table in &tables {
            for parts in [0, 256, u32::MAX] {
                let mut governor = Hazard::new(Lambda::from_1024ths(parts));
                let mut device = Device::default();
                for _ in 0..2_000 {
                    let mut any_ns = || next() >> (next() % 64);
                    let sleep_length_ns = any_ns() as i64;
                    let next_event_ns = sleep_length_ns.min(any_ns() as i64);
                    let timers = SleepLength { sleep_length_ns, next_event_ns };
                    let mut context = Context::new(table, timers);
                    context.now_ns = any_ns();
                    context.tick_stopped = any_ns() % 2 == 0;
                    context.latency_limit_ns = any_ns() as i64;
                    context.disabled = DisabledMask::from_bits(any_ns() as u16);
                    let decision = governor.select(&context, &mut device);
                    assert!(decision.state < table.len());
                    device.last_residency_ns = any_ns();
                    device.poll_time_limit = any_ns() % 4 == 0;
                    let got_tick = any_ns() % 2 == 0;
                    let entered = decision.state;
                    let now_ns = context.now_ns.wrapping_add(any_ns());
                    let outcome = Outcome { entered, is_overruled: false, got_tick, now_ns };
                    governor.reflect(&outcome, &mut device);
                }
            }
        }
    }
}
