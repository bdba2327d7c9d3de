//! The timer events oriented governor, TEO, after Linux's teo.c: Copyright (C) 2018-2021 Intel Corporation (Rafael J.
//! Wysocki).
//!
//! Observation
//! -----------
//! On most machines timers end far more stays than anything else, and the time of the next timer is known.
//! So the deepest state that the next timer allows is right, unless other interrupts come first. What
//! matters then is not how long such stays are on average, but which state they would have justified: a
//! rare long stay does not outweigh many short ones.
//!
//! Terms
//! -----
//! - *Bin* i holds lengths from state i's target residency up to the next state's. The last is open.
//! - The *sleep length* is the time to the next timer.
//! - A stay is a *hit* of bin i if stay and sleep length both fall into i: the timer ended it, or nearly so.
//! - It is an *intercept* of bin i if the stay falls into i and the sleep length into a deeper bin:
//!   something else came first.
//! - *Metrics*: the hits and intercepts of each bin. Each is a sum of pulses of 1,024 that loses an eighth
//!   with every stay. So their *total* never exceeds about 8,192.
//!
//! Learning
//! --------
//! Each selection first adds the last stay to the metrics. Its length is the measured one minus half the
//! exit latency, because wake-ups are rarely as slow as the worst case. If the tick or the polling limit
//! ended it, or if it lasted as long as the timer promised, it counts as ended by the timer: a hit.
//!
//! Selecting
//! ---------
//! 1. The candidate is the deepest enabled state (6.1: that the sleep length allows).
//! 2. If there are more intercepts above the candidate than stays that were not hits above it, the CPU will
//!    probably wake early. Then go up, state by state, until more than half of those intercepts lie in
//!    between, since stays mostly lasted that long.
//! 3. A state above the latency limit is replaced by the deepest one within it.
//! 4. 6.12 reads the timers only now, and not if the candidate is shallow anyway.
//! 5. The tick continues if the state polls or the expected stay is below a tick. A state that this tick
//!    would cut short is replaced by a shallower one.
//!
//! Releases
//! --------
//! 6.1.192 always reads the timers first. It also keeps the bins of the last nine stays that were
//! intercepts. If five of the nine lie above the candidate, that is a reason to go up even if the metrics,
//! which fade slowly, do not show it yet. It expects a stay of the length in the middle of the bin.
//!
//! 6.12.117 reads the timers last and does without the nine. If the deepest state's target residency is
//! below a tick, it counts hits beyond one tick in a bin of their own (*tick hits*). With them the metrics
//! show whether stopping the tick pays off.
//!
//! Known limitations
//! -----------------
//! - With the kernel's zeroed device, the first selection learns from a stay that never happened: a hit.
//! - The latency limit may lead to state 0 even if that is disabled.
//! - With the tick stopped it does not go up to states below one tick, but step 3 does not check that.

use core::hint::select_unpredictable;

use idlewise_core::{
    Context, Decision, Device, FAR_AWAY_NS, Governor, Outcome, STATE_COUNT_MAX, SleepLength,
    StateIndex,
};

use crate::menu::SHORT_STAY_NS;
use crate::states::States;

/// What one stay adds to a metric.
const PULSE: u32 = 1_024;
/// A metric loses one eighth with each stay.
const FADE_SHIFT: u32 = 3;
/// The number of recent stays that 6.1 remembers individually.
const RECENT_COUNT: usize = 9;
/// Room for the bins and [`NO_BIN`]. A power of two, so that a mask bounds the index.
const SLOT_COUNT: usize = 16;
/// The bin of a stay that was no intercept. It is counted like the others, because which stays are
/// intercepts is too random for a branch.
const NO_BIN: u8 = SLOT_COUNT as u8 - 1;

/// A release of teo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeoRelease {
    /// Debian's 6.1.192-2: timers first, and the last nine stays individually.
    V6_1,
    /// Debian's 6.12.117-1: timers last, and hits beyond one tick.
    V6_12,
}

/// The metrics of one bin.
#[derive(Clone, Copy, Debug)]
struct Bin {
    hits: u32,
    intercepts: u32,
}

/// The metrics of all bins; those beyond the table stay at 0.
#[derive(Clone, Debug)]
struct Metrics {
    bins: [Bin; STATE_COUNT_MAX],
    /// 6.12: hits beyond one tick, if the deepest state's target residency is below that.
    tick_hits: u32,
    total: u32,
}

/// 6.1: which of the last nine stays were intercepts, and their bins.
#[derive(Clone, Debug)]
struct RecentIntercepts {
    bins: [u8; RECENT_COUNT],
    next: u8,
    counts: [u32; SLOT_COUNT],
}

/// The timer events oriented governor of one CPU.
#[derive(Clone, Debug)]
pub struct Teo {
    release: TeoRelease,
    tick_period_ns: i64,
    metrics: Metrics,
    recent: RecentIntercepts,
    /// From the last selection; [`FAR_AWAY_NS`] if the timers were not read.
    sleep_length_ns: i64,
    span: Span,
}

/// The time from selection to reflection, including the loop's own work. The kernel keeps both in one
/// field. Nothing is learnt from a selection without reflection.
#[derive(Clone, Copy, Debug)]
enum Span {
    SelectedAt { clock_ns: u64 },
    Lasted { span_ns: i64 },
}

/// Sums over the bins above a state.
#[derive(Clone, Copy, Default)]
struct Above {
    hits: u32,
    intercepts: u32,
    recent: u32,
}

/// The result of a walk down the enabled states.
#[derive(Clone, Copy)]
struct Candidate {
    shallowest: StateIndex,
    deepest: StateIndex,
    /// The deepest within the latency limit, or 0 if there is none, even if 0 is disabled.
    deepest_quick: StateIndex,
    /// Above `deepest`.
    above: Above,
}

/// A state, and the expected length of the stay.
#[derive(Clone, Copy)]
struct Choice {
    state: StateIndex,
    /// The shallowest state that a correction may choose.
    shallowest: StateIndex,
    expected_ns: i64,
    /// Time to the timer or the tick, whichever is first.
    next_event_ns: i64,
}

impl Metrics {
    const fn new() -> Self {
        let bins = [Bin { hits: 0, intercepts: 0 }; STATE_COUNT_MAX];
        Metrics { bins, tick_hits: 0, total: 0 }
    }
}

impl RecentIntercepts {
    const fn new() -> Self {
        let mut counts = [0; SLOT_COUNT];
        counts[NO_BIN as usize] = RECENT_COUNT as u32;
        RecentIntercepts { bins: [NO_BIN; RECENT_COUNT], next: 0, counts }
    }

    #[inline]
    fn push(&mut self, bin: Option<StateIndex>) {
        let newest = bin.map_or(NO_BIN, |bin| bin as u8);
        if let Some(slot) = self.bins.get_mut(usize::from(self.next)) {
            let oldest = core::mem::replace(slot, newest);
            self.counts[usize::from(oldest) % SLOT_COUNT] -= 1;
            self.counts[usize::from(newest) % SLOT_COUNT] += 1;
        }
        self.next = if usize::from(self.next) + 1 < RECENT_COUNT { self.next + 1 } else { 0 };
    }

    /// All stays. The counts follow from them.
    fn oldest_first(&self) -> impl Iterator<Item = u8> {
        let (newer, older) = self.bins.split_at(usize::from(self.next) % RECENT_COUNT);
        older.iter().chain(newer).copied()
    }
}

impl Teo {
    /// Creates a governor without history. See [`idlewise_core::tick_period_ns`] for `tick_period_ns`.
    pub const fn new(release: TeoRelease, tick_period_ns: u32) -> Self {
        Teo {
            release,
            tick_period_ns: tick_period_ns as i64,
            metrics: Metrics::new(),
            recent: RecentIntercepts::new(),
            sleep_length_ns: 0,
            span: Span::Lasted { span_ns: 0 },
        }
    }

    /// Adds the stay in `entered` to the metrics.
    #[inline]
    fn learn(&mut self, states: States<'_>, entered: StateIndex, last_residency_ns: u64) {
        let stay_ns = self.stay_ns(states, entered, last_residency_ns);
        let Metrics { bins, tick_hits, total } = &mut self.metrics;
        let mut timer_bin = 0;
        let mut stay_bin = 0;
        let mut sum = 0;
        for (index, (bin, state)) in bins.iter_mut().zip(states.slots()).enumerate() {
            bin.hits -= bin.hits >> FADE_SHIFT;
            bin.intercepts -= bin.intercepts >> FADE_SHIFT;
            sum += bin.hits + bin.intercepts;
            // Compared as signed with the sleep length, which may be overdue, and as unsigned with the
            // stay.
            let timer_reaches = state.target_residency_ns as i64 <= self.sleep_length_ns;
            let stay_reaches = timer_reaches & (state.target_residency_ns <= stay_ns);
            timer_bin = if timer_reaches { index } else { timer_bin };
            stay_bin = if stay_reaches { index } else { stay_bin };
        }
        *tick_hits -= *tick_hits >> FADE_SHIFT;
        // This already includes the pulse that follows.
        *total = sum + *tick_hits + PULSE;

        let counts_ticks = self.release == TeoRelease::V6_12
            && states.target_residency_ns(states.deepest()) < self.tick_period_ns;
        let timer_is_beyond = counts_ticks && self.sleep_length_ns >= self.tick_period_ns;
        let is_tick_hit = timer_is_beyond && stay_ns >= self.tick_period_ns as u64;
        let is_hit = timer_bin == stay_bin && !timer_is_beyond;
        // The conditions are as random as the stays, so this avoids a branch.
        let pulse = |is_it: bool| if is_it { PULSE } else { 0 };
        *tick_hits += pulse(is_tick_hit);
        if let Some(bin) = bins.get_mut(stay_bin) {
            bin.hits += pulse(is_hit);
            bin.intercepts += pulse(!is_hit & !is_tick_hit);
        }
        if self.release == TeoRelease::V6_1 {
            self.recent.push((!is_hit).then_some(stay_bin));
        }
    }

    /// How long the CPU was asleep; `u64::MAX` if the stay counts as ended by the timer.
    #[inline]
    fn stay_ns(&self, states: States<'_>, entered: StateIndex, last_residency_ns: u64) -> u64 {
        let span_ns = match self.span {
            Span::Lasted { span_ns } => span_ns,
            Span::SelectedAt { clock_ns } => clock_ns as i64,
        };
        if span_ns >= self.sleep_length_ns {
            return u64::MAX;
        }
        let latency_ns = states.exit_latency_ns(entered) as u64;
        let asleep_ns = last_residency_ns.wrapping_sub(latency_ns / 2);
        select_unpredictable(last_residency_ns >= latency_ns, asleep_ns, last_residency_ns / 2)
    }

    /// Walks the enabled states whose target residency is at most `span_ns`, and at most one beyond: the
    /// shallowest enabled one. Returns `None` if all states are disabled.
    #[inline]
    fn candidate(
        &self,
        states: States<'_>,
        latency_limit_ns: i64,
        span_ns: i64,
    ) -> Option<Candidate> {
        let start =
            Candidate { shallowest: 0, deepest: 0, deepest_quick: 0, above: Above::default() };
        let mut candidate = (!states.is_disabled(0)).then_some(start);
        let mut above = Above::default();
        for (index, state) in states.slots().iter().enumerate().skip(1) {
            let bin = self.metrics.bins[index - 1];
            above.hits += bin.hits;
            above.intercepts += bin.intercepts;
            above.recent += self.recent.counts[index - 1];
            if states.is_disabled(index) {
                continue;
            }
            let found =
                candidate.get_or_insert(Candidate { shallowest: index, deepest: index, ..start });
            if state.target_residency_ns as i64 > span_ns {
                break;
            }
            found.deepest = index;
            found.above = above;
            if state.exit_latency_ns as i64 <= latency_limit_ns {
                found.deepest_quick = index;
            }
        }
        candidate
    }

    /// Whether intercepts above the candidate outnumber all stays except the hits above it.
    #[inline]
    fn is_often_intercepted(&self, above: Above) -> bool {
        2 * above.intercepts > self.metrics.total.wrapping_sub(above.hits)
    }

    /// Goes up from `candidate` to the first state with most intercepts at or below it (`is_majority` of
    /// the sums in between). If that state is disabled or not `is_deep_enough` for a stopped tick, returns
    /// the last state on the way that was both enabled and deep enough.
    #[inline]
    fn intercepting_state(
        &self,
        states: States<'_>,
        candidate: StateIndex,
        is_majority: impl Fn(Above) -> bool,
        is_deep_enough: impl Fn(StateIndex) -> bool,
    ) -> StateIndex {
        let mut between = Above::default();
        let mut suitable = candidate;
        for index in (0..candidate.min(STATE_COUNT_MAX)).rev() {
            between.intercepts += self.metrics.bins[index].intercepts;
            between.recent += self.recent.counts[index];
            let is_enabled = !states.is_disabled(index);
            if is_majority(between) {
                return if is_enabled && is_deep_enough(index) { index } else { suitable };
            }
            if is_enabled && is_deep_enough(index) {
                suitable = index;
            } else if is_enabled && suitable == candidate {
                // States further up are even shallower.
                break;
            }
        }
        candidate
    }

    /// 6.1: the timers are read first, and the metrics may only lead to a shallower state.
    #[inline]
    fn select_timers_first(&mut self, states: States<'_>, context: &Context<'_>) -> Decision {
        let SleepLength { sleep_length_ns, next_event_ns } = context.sleep_length();
        self.sleep_length_ns = sleep_length_ns;
        let mut choice =
            Choice { state: 0, shallowest: 0, expected_ns: sleep_length_ns, next_event_ns };
        if let Some(found) = self.candidate(states, context.latency_limit_ns, sleep_length_ns) {
            choice.shallowest = found.shallowest;
            choice.state = found.deepest;
            if found.deepest != found.shallowest {
                choice = self.heed_intercepts(states, context, found, choice);
                // The expected length does not change.
                choice.state = choice.state.min(found.deepest_quick);
            }
        }
        self.settle_tick(states, context, choice)
    }

    /// 6.1: a shallower choice if intercepts are likely by the metrics or by the last nine stays.
    #[inline]
    fn heed_intercepts(
        &self,
        states: States<'_>,
        context: &Context<'_>,
        found: Candidate,
        choice: Choice,
    ) -> Choice {
        let above = found.above;
        let often = self.is_often_intercepted(above);
        let recently = above.recent > RECENT_COUNT as u32 / 2;
        if !often && !recently {
            return choice;
        }
        let is_majority = |between: Above| {
            (!recently || 2 * between.recent > above.recent)
                && (!often || 2 * between.intercepts > above.intercepts)
        };
        let middle_ns = |bin: StateIndex| {
            (states.target_residency_ns(bin) + states.target_residency_ns(bin + 1)) / 2
        };
        let is_deep_enough =
            |bin: StateIndex| !context.tick_stopped || middle_ns(bin) >= self.tick_period_ns;
        let state = self.intercepting_state(states, found.deepest, is_majority, is_deep_enough);
        if state == found.deepest {
            choice
        } else {
            Choice { state, expected_ns: middle_ns(state), ..choice }
        }
    }

    /// 6.12: the metrics come first, and the timers only if a state deep enough to matter is left.
    #[inline]
    fn select_timers_last(&mut self, states: States<'_>, context: &Context<'_>) -> Decision {
        self.sleep_length_ns = FAR_AWAY_NS;
        let found = if states.len() < 2 {
            None
        } else {
            self.candidate(states, context.latency_limit_ns, FAR_AWAY_NS)
        };
        let Some(found) = found else {
            return Decision { state: 0, stop_tick: false };
        };
        let tick_half_ns = self.tick_period_ns / 2;
        if found.deepest == found.shallowest {
            // There is no choice of state, only of the tick. A state with a short target residency expects
            // a short stay.
            let expected_ns = states.target_residency_ns(found.deepest);
            let state = found.deepest;
            let choice =
                Choice { state, shallowest: state, expected_ns, next_event_ns: tick_half_ns };
            return self.settle_tick(states, context, choice);
        }
        let uncapped = self.likely_state(states, context, found);
        let state = uncapped.min(found.deepest_quick);
        let is_shallow = states.is_polling(0) && states.target_residency_ns(state) < SHORT_STAY_NS;
        if uncapped == 0 {
            // Intercepts led here. Without the sleep length it could not be checked later whether they were
            // right.
            self.sleep_length_ns = context.sleep_length().sleep_length_ns;
        }
        if state == 0 || is_shallow {
            return Decision { state, stop_tick: false };
        }
        let choice = self.fit_to_timers(states, context, found.shallowest, state);
        self.settle_tick(states, context, choice)
    }

    /// 6.12: the candidate, or a shallower state if intercepts are likely.
    #[inline]
    fn likely_state(
        &self,
        states: States<'_>,
        context: &Context<'_>,
        found: Candidate,
    ) -> StateIndex {
        if !self.is_often_intercepted(found.above) {
            return found.deepest;
        }
        let is_majority = |between: Above| 2 * between.intercepts > found.above.intercepts;
        let is_deep_enough = |state: StateIndex| {
            !context.tick_stopped || states.target_residency_ns(state) >= self.tick_period_ns
        };
        self.intercepting_state(states, found.deepest, is_majority, is_deep_enough)
    }

    /// 6.12: reads the timers, and takes a shallower state if they require it.
    #[inline]
    fn fit_to_timers(
        &mut self,
        states: States<'_>,
        context: &Context<'_>,
        shallowest: StateIndex,
        candidate: StateIndex,
    ) -> Choice {
        let SleepLength { sleep_length_ns, next_event_ns } = context.sleep_length();
        self.sleep_length_ns = sleep_length_ns;
        let is_cut_short = states.target_residency_ns(candidate) > sleep_length_ns;
        let state = if is_cut_short {
            states.shallower_within(candidate, sleep_length_ns)
        } else {
            candidate
        };
        let intercepts: u32 = self.metrics.bins.iter().map(|bin| bin.intercepts).sum();
        let total = self.metrics.total;
        // If more than five in eight stays end before the tick would, stopping it is in vain.
        let ends_before_tick = states.target_residency_ns(state) < self.tick_period_ns
            && intercepts > total / 2 + total / 8;
        let expected_ns = if ends_before_tick { self.tick_period_ns / 2 } else { sleep_length_ns };
        Choice { state, shallowest, expected_ns, next_event_ns }
    }

    /// Decides whether to stop the tick. Chooses a shallower state if the tick would cut this one short.
    #[inline]
    fn settle_tick(&self, states: States<'_>, context: &Context<'_>, choice: Choice) -> Decision {
        let Choice { state, shallowest, expected_ns, next_event_ns } = choice;
        let stays_on = states.is_polling(state) || expected_ns < self.tick_period_ns;
        if context.tick_stopped || !stays_on {
            return Decision { state, stop_tick: true };
        }
        let is_cut_short = state > shallowest && states.target_residency_ns(state) > next_event_ns;
        let state =
            if is_cut_short { states.shallower_within(state, next_event_ns) } else { state };
        Decision { state, stop_tick: false }
    }
}

impl Governor for Teo {
    #[inline]
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        let states = States::of(context);
        // There is nothing to learn from a refused entry.
        if let Some(entered) = device.last_state.take() {
            self.learn(states, entered, device.last_residency_ns);
        }
        self.span = Span::SelectedAt { clock_ns: context.now_ns };
        match self.release {
            TeoRelease::V6_1 => self.select_timers_first(states, context),
            TeoRelease::V6_12 => self.select_timers_last(states, context),
        }
    }

    #[inline]
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        device.last_state = Some(outcome.entered);
        // Only the tick, or the polling limit, ended the stay. The CPU might have slept until the timer.
        let was_rescued = device.poll_time_limit
            || outcome.got_tick && self.sleep_length_ns > self.tick_period_ns;
        let span_ns = if was_rescued {
            device.poll_time_limit = false;
            self.sleep_length_ns
        } else {
            let started_ns = match self.span {
                Span::SelectedAt { clock_ns } => clock_ns,
                Span::Lasted { span_ns } => span_ns as u64,
            };
            outcome.now_ns.wrapping_sub(started_ns) as i64
        };
        self.span = Span::Lasted { span_ns };
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        // The other variant holds a time of day, and only exists between select and reflect.
        let Span::Lasted { span_ns } = self.span else { return false };
        note(span_ns as u64);
        note(self.sleep_length_ns as u64);
        let Metrics { bins, tick_hits, total } = &self.metrics;
        for bin in bins {
            note(u64::from(bin.hits));
            note(u64::from(bin.intercepts));
        }
        note(u64::from(*tick_hits));
        note(u64::from(*total));
        self.recent.oldest_first().for_each(|bin| note(u64::from(bin)));
        true
    }
}
