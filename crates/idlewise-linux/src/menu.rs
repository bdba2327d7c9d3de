//! The menu governor.
//!
//! The idea
//! --------
//! A state pays if the CPU stays long enough. The longest possible stay is known: it ends at the
//! next timer. How much of it will be left by other interrupts is a habit of the machine, so menu
//! learns two habits and believes the shorter forecast.
//!
//! Correction factors
//! ------------------
//! How a stay relates to the time to the next timer depends on that time's order of magnitude: an
//! idle CPU with a timer in 20 µs mostly reaches it, one with a timer in a second mostly doesn't. So
//! there is a factor for each decade up to 100 ms, a running average of stay / timer over about eight
//! stays. Stays from 50 ms on count as having reached the timer: nothing is to be gained beyond.
//!
//! Typical interval
//! ----------------
//! Evenly spaced interrupts have no timer at all; `intervals.rs` finds them in the last eight stays.
//!
//! From forecast to state
//! ----------------------
//! The deepest enabled state whose target residency fits into the forecast and whose exit latency
//! fits under the limit. Around that:
//!
//! 1. Polling burns a core, so a real state is taken instead if the next timer leaves room for it.
//! 2. The tick goes on if the forecast is below one tick or the state polls: then the next tick
//!    corrects a wrong forecast. A state that the tick would cut short gives way to a shallower one.
//! 3. With the tick stopped nothing corrects a wrong forecast: a CPU that polls or halts lightly may
//!    do so until a timer seconds away. A short forecast is then not believed; the timer is.
//!
//! What one stay teaches
//! ---------------------
//! Its measured length less the exit latency, with two exceptions. If the tick ended it although a
//! timer was further away, the forecast was too short and nobody knows by how much: 45 ms. If polling
//! ended at its time limit, the wake-up didn't come: the time to the timer.
//!
//! Releases
//! --------
//! 6.12 leaves the timers unread while the tick runs and the typical interval is at most 15 µs, since
//! reading them costs more than a wrong state would. It dropped what 6.1 does for tasks that wait for
//! I/O: factors of their own, and a latency limit of forecast / (1 + 10 · tasks). 7.2 takes short stays
//! for exceptions too when it looks for a typical one, and doubts a short forecast with the tick stopped
//! only if the timer is more than two ticks away. Each difference is a field of [`MenuRelease`]; all are
//! in `menu_select` and what it calls, in 6.1.192's, 6.12.117's and 7.2.13's
//! `drivers/cpuidle/governors/menu.c`.
//!
//! Variants
//! --------
//! Point 3 hurts where interrupts come every 500 µs, are served without a task (so the tick stays
//! stopped) and the next timer is 10 ms away: each pays the deep state's exit latency. `+min`
//! (Ionut Nechita, "cpuidle: menu: Use min() to prevent deep C-states when tick is stopped", January
//! 2026, not merged) takes the shorter of forecast and timer, and has the danger of point 3 in full.
//! `+safe-range` believes the forecast only if the timer is at most two ticks away, which bounds it; it
//! came of that discussion, and 7.2 has it.
//!
//! Known limitations
//! -----------------
//! Microseconds are cut to 32 bits: an interval of 71 minutes and 35 seconds counts as almost none, and
//! a corrected sleep length wraps twice, once in 64 and once in 32 bits. Kept, bit for bit.

use core::hint::select_unpredictable;

use idlewise_core::{
    Context, Decision, Device, FAR_AWAY_NS, Governor, Outcome, SleepLength, StateIndex,
};

use crate::intervals::{RecentIntervals, TypicalRule};
use crate::states::States;

/// Decades of the time to the next timer: below 10 µs, …, below 100 ms, and beyond.
const DECADE_COUNT: usize = 6;
/// Lower bounds of the decades after the first.
const DECADE_START_NS: [u64; DECADE_COUNT - 1] =
    [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// One stay that reached its timer, in a factor.
const FULL_SHARE: u64 = 1_024;
/// A new stay is an eighth of a factor.
const FACTOR_WEIGHT: u32 = 8;
/// The factor that leaves the time to the timer as it is; the sum of eight full shares.
const UNITY_FACTOR: u32 = FULL_SHARE as u32 * FACTOR_WEIGHT;
/// From here on a stay is as good as one that reached its timer.
const LONG_STAY_NS: u64 = 50_000_000;
/// What a stay counts that only the tick ended: long, but short of [`LONG_STAY_NS`].
const TICK_ENDED_STAY_NS: u64 = LONG_STAY_NS * 9 / 10;
const NS_PER_US: u64 = 1_000;
/// The interval that stands for a stay that never was (`UINT_MAX`): it is longer than any other, so
/// it never makes a typical length.
const NO_INTERVAL_US: u32 = u32::MAX;
/// Up to here a forecast is short enough to act on without reading the timers, and a state harmless
/// enough to replace polling (`RESIDENCY_THRESHOLD_NS` in 6.12's `drivers/cpuidle/governors/gov.h`).
pub(crate) const SHORT_STAY_NS: i64 = 15_000;

/// What to make of a forecast below one tick while the tick is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedTickRule {
    /// Take the time to the next timer instead, as 6.1 and 6.12 do.
    NextTimer,
    /// Take the shorter of both.
    Shorter,
    /// Take the time to the next timer if that is more than two ticks away, else the forecast: 7.2.
    NextTimerBeyondTwoTicks,
}

/// A release of menu, by what it does differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MenuRelease {
    /// 6.12: a short typical interval is acted on without reading the timers.
    skips_timers: bool,
    /// 6.12: polling gives way only to a state that is about as cheap.
    replaces_polling_rarely: bool,
    /// 6.12: a state slower than the limit ends the search even if the forecast doesn't pay for it.
    checks_latency_first: bool,
    typical_rule: TypicalRule,
    /// 6.1: tasks that wait for I/O have factors of their own and tighten the latency limit.
    weighs_iowait: bool,
    /// 6.1, 6.12: a table's only state needs no forecast.
    knows_only_state: bool,
    stopped_tick_rule: StoppedTickRule,
}

impl MenuRelease {
    /// Debian's 6.1.192-2.
    pub const V6_1: MenuRelease = MenuRelease {
        skips_timers: false,
        replaces_polling_rarely: false,
        checks_latency_first: false,
        typical_rule: TypicalRule::LongestDropped { zero_counts: true },
        weighs_iowait: true,
        knows_only_state: true,
        stopped_tick_rule: StoppedTickRule::NextTimer,
    };
    /// Debian's 6.12.117-1.
    pub const V6_12: MenuRelease = MenuRelease {
        skips_timers: true,
        replaces_polling_rarely: true,
        checks_latency_first: true,
        typical_rule: TypicalRule::LongestDropped { zero_counts: false },
        weighs_iowait: false,
        knows_only_state: true,
        stopped_tick_rule: StoppedTickRule::NextTimer,
    };
    /// 6.12.117-1 with the proposed `min()`.
    pub const V6_12_MIN: MenuRelease =
        MenuRelease { stopped_tick_rule: StoppedTickRule::Shorter, ..Self::V6_12 };
    /// 6.12.117-1 with a bound on how long a wrong forecast can last.
    pub const V6_12_SAFE_RANGE: MenuRelease =
        MenuRelease { stopped_tick_rule: StoppedTickRule::NextTimerBeyondTwoTicks, ..Self::V6_12 };
    /// Debian's 7.2.13-1.
    pub const V7_2: MenuRelease = MenuRelease {
        typical_rule: TypicalRule::FarthestDropped,
        knows_only_state: false,
        ..Self::V6_12_SAFE_RANGE
    };
}

/// What ended a stay that menu hasn't learnt from yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StayEnd {
    Tick,
    Other,
}

/// The menu governor of one CPU.
#[derive(Clone, Debug)]
pub struct Menu {
    release: MenuRelease,
    tick_period_ns: u64,
    /// The stay since the last select; `None` if there was none or it is learnt from.
    stay_end: Option<StayEnd>,
    next_timer_ns: u64,
    /// Which factor the last forecast used.
    factor_index: usize,
    /// Without tasks that wait for I/O, then with them.
    factors: [u32; 2 * DECADE_COUNT],
    intervals: RecentIntervals,
}

/// What the timers said.
#[derive(Clone, Copy)]
struct Timers {
    were_read: bool,
    /// To the nearer of timer and tick.
    next_event_ns: i64,
    /// Looked for, if whether to read the timers depended on it.
    habit: Habit,
}

/// The typical length of recent stays. Looking for it takes half of the time that a decision takes,
/// so nobody looks before it matters.
#[derive(Clone, Copy)]
enum Habit {
    Unsought,
    Sought { typical_ns: Option<u64> },
}

/// What the choice of a state rests on.
#[derive(Clone, Copy)]
struct Forecast {
    predicted_ns: u64,
    /// To the nearer of timer and tick.
    next_event_ns: i64,
    latency_limit_ns: i64,
}

impl Menu {
    /// A governor without history. `tick_period_ns` as [`idlewise_core::tick_period_ns`] gives it.
    pub const fn new(release: MenuRelease, tick_period_ns: u32) -> Self {
        Menu {
            release,
            tick_period_ns: tick_period_ns as u64,
            stay_end: None,
            next_timer_ns: 0,
            factor_index: 0,
            factors: [UNITY_FACTOR; 2 * DECADE_COUNT],
            intervals: RecentIntervals::new(),
        }
    }

    /// Learns from the last stay, or notes that there was none.
    #[inline]
    fn learn(&mut self, states: States<'_>, device: &Device) {
        if let Some(end) = self.stay_end.take() {
            let stay_ns = self.stay_ns(end, states, device).min(self.next_timer_ns);
            self.adjust_factor(stay_ns);
            // Cut to 32 bits, as the kernel's intervals are.
            self.intervals.push((stay_ns / NS_PER_US) as u32);
        } else if device.last_residency_ns == 0 {
            // The driver refused the state. Without this, a typical length that led to a refused
            // state would be found again and again. The very first select looks the same.
            self.intervals.push(NO_INTERVAL_US);
        }
    }

    /// How long the CPU would have stayed, as far as anyone knows.
    #[inline]
    fn stay_ns(&self, end: StayEnd, states: States<'_>, device: &Device) -> u64 {
        let entered = device.last_state.unwrap_or(0);
        if end == StayEnd::Tick && self.next_timer_ns > self.tick_period_ns {
            return TICK_ENDED_STAY_NS;
        }
        if device.poll_time_limit && states.is_polling(entered) {
            return self.next_timer_ns;
        }
        // The wake-up came before the first instruction did. A stay of less than two exit latencies
        // may never have reached the state, so its latency is a guess: half of the stay.
        let exit_latency_ns = states.exit_latency_ns(entered) as u64;
        let measured_ns = device.last_residency_ns;
        let is_long = measured_ns > 2 * exit_latency_ns;
        let asleep_ns = measured_ns.wrapping_sub(exit_latency_ns);
        // As random as the stays: a wrong guess of the branch costs more than the sum.
        select_unpredictable(is_long, asleep_ns, measured_ns / 2)
    }

    #[inline]
    fn adjust_factor(&mut self, stay_ns: u64) {
        let share = if self.next_timer_ns > 0 && stay_ns < LONG_STAY_NS {
            FULL_SHARE * stay_ns / self.next_timer_ns
        } else {
            FULL_SHARE
        };
        if let Some(factor) = self.factors.get_mut(self.factor_index) {
            *factor = *factor - *factor / FACTOR_WEIGHT + share as u32;
        }
    }

    #[inline]
    fn typical_ns(&self) -> Option<u64> {
        let typical_us = self.intervals.typical_us(self.release.typical_rule);
        typical_us.map(|us| u64::from(us) * NS_PER_US)
    }

    /// Reads the timers, unless a short typical interval makes that superfluous: then no timer is
    /// assumed, and a tick half a period away.
    #[inline]
    fn watch_timers(&mut self, context: &Context<'_>) -> Timers {
        let (were_read, habit) = if self.release.skips_timers && !context.tick_stopped {
            let typical_ns = self.typical_ns();
            let is_short = typical_ns.is_some_and(|ns| ns <= SHORT_STAY_NS as u64);
            (!is_short, Habit::Sought { typical_ns })
        } else {
            (true, Habit::Unsought)
        };
        let timers = if were_read { context.sleep_length() } else { self.no_timer() };
        // An overdue timer fires as soon as interrupts are on.
        let is_overdue = timers.sleep_length_ns < 0;
        self.next_timer_ns = if is_overdue { 0 } else { timers.sleep_length_ns as u64 };
        let decade = DECADE_START_NS.iter().filter(|&&ns| self.next_timer_ns >= ns).count();
        let has_iowait = self.release.weighs_iowait && context.iowait_count > 0;
        self.factor_index = decade + if has_iowait { DECADE_COUNT } else { 0 };
        let next_event_ns = if is_overdue { 0 } else { timers.next_event_ns };
        Timers { were_read, next_event_ns, habit }
    }

    fn no_timer(&self) -> SleepLength {
        let next_event_ns = (self.tick_period_ns / 2) as i64;
        SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns }
    }

    /// Whether state 0 is the answer without any forecast. It then is even if it is disabled, when
    /// no latency is allowed or there is nothing else.
    #[inline]
    fn is_shallowest_forced(&self, states: States<'_>, context: &Context<'_>) -> bool {
        let limit_ns = context.latency_limit_ns;
        let next_is_excluded = self.next_timer_ns < states.target_residency_ns(1) as u64
            || limit_ns < states.exit_latency_ns(1);
        let is_only = self.release.knows_only_state && states.len() <= 1;
        is_only || limit_ns == 0 || next_is_excluded && !states.is_disabled(0)
    }

    #[inline]
    fn forecast(&self, context: &Context<'_>, timers: Timers) -> Forecast {
        let timer_ns = if timers.were_read { self.corrected_timer_ns() } else { u64::MAX };
        // The released rule puts the timer in place of any short forecast.
        let is_habit_moot = context.tick_stopped
            && timer_ns < self.tick_period_ns
            && self.release.stopped_tick_rule == StoppedTickRule::NextTimer;
        let typical_ns = match timers.habit {
            Habit::Sought { typical_ns } => typical_ns,
            Habit::Unsought if is_habit_moot => None,
            Habit::Unsought => self.typical_ns(),
        };
        let mut predicted_ns = timer_ns.min(typical_ns.unwrap_or(u64::MAX));
        if context.tick_stopped && predicted_ns < self.tick_period_ns {
            predicted_ns = self.instead_of_short(predicted_ns);
        }
        let mut latency_limit_ns = context.latency_limit_ns;
        if self.release.weighs_iowait && !context.tick_stopped {
            latency_limit_ns = tightened_limit_ns(context, predicted_ns);
        }
        let next_event_ns = timers.next_event_ns;
        Forecast { predicted_ns, next_event_ns, latency_limit_ns }
    }

    /// The time to the timer times its factor, in whole microseconds, half ones rounded up.
    #[inline]
    fn corrected_timer_ns(&self) -> u64 {
        const NS_FACTORS_PER_US: u64 = UNITY_FACTOR as u64 * NS_PER_US;
        let factor = self.factors.get(self.factor_index).copied().unwrap_or(UNITY_FACTOR);
        // A timer days away wraps here, and its microseconds are cut to 32 bits.
        let scaled = self.next_timer_ns.wrapping_mul(u64::from(factor));
        let corrected_us = (scaled.wrapping_add(NS_FACTORS_PER_US / 2) / NS_FACTORS_PER_US) as u32;
        u64::from(corrected_us) * NS_PER_US
    }

    /// What replaces a forecast below one tick while the tick is stopped.
    #[inline]
    fn instead_of_short(&self, predicted_ns: u64) -> u64 {
        match self.release.stopped_tick_rule {
            StoppedTickRule::NextTimer => self.next_timer_ns,
            StoppedTickRule::Shorter => predicted_ns.min(self.next_timer_ns),
            StoppedTickRule::NextTimerBeyondTwoTicks => {
                let is_beyond = self.next_timer_ns > 2 * self.tick_period_ns;
                if is_beyond { self.next_timer_ns } else { predicted_ns }
            }
        }
    }

    /// The deepest state that the forecast pays for, and the forecast as that choice leaves it.
    #[inline]
    fn choose(
        &self,
        states: States<'_>,
        context: &Context<'_>,
        forecast: Forecast,
    ) -> (StateIndex, u64) {
        let predicted_ns = forecast.predicted_ns;
        let mut chosen = None;
        for (index, state) in states.slots().iter().enumerate() {
            if states.is_disabled(index) {
                continue;
            }
            // The shallowest enabled state needs no reason.
            let current = *chosen.get_or_insert(index);
            let is_too_slow = state.exit_latency_ns as i64 > forecast.latency_limit_ns;
            let pays = state.target_residency_ns <= predicted_ns;
            if is_too_slow && (pays || self.release.checks_latency_first) {
                break;
            }
            if !pays {
                return self.stop_before(index, current, states, context, forecast);
            }
            chosen = Some(index);
        }
        // Without any enabled state only state 0 is left.
        (chosen.unwrap_or(0), predicted_ns)
    }

    /// Ends the search at `next`, the first state that the forecast doesn't pay for.
    #[inline]
    fn stop_before(
        &self,
        next: StateIndex,
        current: StateIndex,
        states: States<'_>,
        context: &Context<'_>,
        forecast: Forecast,
    ) -> (StateIndex, u64) {
        let predicted_ns = forecast.predicted_ns;
        let next_residency_ns = states.target_residency_ns(next);
        let current_residency_ns = states.target_residency_ns(current);
        if states.is_polling(current) && self.replaces_polling(next, states, forecast) {
            (next, next_residency_ns as u64)
        } else if predicted_ns < self.tick_period_ns {
            (current, predicted_ns)
        } else if !context.tick_stopped {
            // A shallow choice for a long forecast: as if the stay were just what the state needs,
            // so that the tick goes on and the next one looks again.
            (current, current_residency_ns as u64)
        } else {
            let is_shallow = current_residency_ns < self.tick_period_ns as i64;
            let reaches_timer = next_residency_ns <= forecast.next_event_ns;
            (if is_shallow && reaches_timer { next } else { current }, predicted_ns)
        }
    }

    /// Whether `next` is worth it just for not polling.
    #[inline]
    fn replaces_polling(&self, next: StateIndex, states: States<'_>, forecast: Forecast) -> bool {
        let residency_ns = states.target_residency_ns(next);
        let latency_ns = states.exit_latency_ns(next);
        let is_cheap = !self.release.replaces_polling_rarely
            || residency_ns < SHORT_STAY_NS && latency_ns as u64 <= forecast.predicted_ns;
        is_cheap
            && latency_ns <= forecast.latency_limit_ns
            && residency_ns as u64 <= self.next_timer_ns
    }

    /// Decides on the tick, and gives way to a shallower state if the tick would cut this one short.
    #[inline]
    fn settle_tick(
        &self,
        (state, predicted_ns): (StateIndex, u64),
        states: States<'_>,
        context: &Context<'_>,
        next_event_ns: i64,
    ) -> Decision {
        let stays_on = states.is_polling(state) || predicted_ns < self.tick_period_ns;
        if context.tick_stopped || !stays_on {
            return Decision { state, stop_tick: true };
        }
        let is_cut_short = states.target_residency_ns(state) > next_event_ns;
        let state =
            if is_cut_short { states.shallower_within(state, next_event_ns) } else { state };
        Decision { state, stop_tick: false }
    }
}

/// 6.1's latency limit: the more tasks wait for I/O, the less of the forecast may be spent on waking.
#[inline]
fn tightened_limit_ns(context: &Context<'_>, predicted_ns: u64) -> i64 {
    // The kernel's sum is an int; a divisor of 0 can't come out, because the sum is odd.
    let divisor = 1_u32.wrapping_add(context.iowait_count.wrapping_mul(10)) as i32 as u64;
    let interactive_ns = if divisor == 1 { predicted_ns } else { predicted_ns / divisor };
    // Compared as unsigned numbers: a negative limit counts as none.
    (context.latency_limit_ns as u64).min(interactive_ns) as i64
}

impl Governor for Menu {
    #[inline]
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        let states = States::of(context);
        self.learn(states, device);
        let timers = self.watch_timers(context);
        if self.is_shallowest_forced(states, context) {
            Decision { state: 0, stop_tick: !states.is_polling(0) }
        } else {
            let forecast = self.forecast(context, timers);
            let choice = self.choose(states, context, forecast);
            self.settle_tick(choice, states, context, timers.next_event_ns)
        }
    }

    #[inline]
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        device.last_state = Some(outcome.entered);
        self.stay_end = Some(if outcome.got_tick { StayEnd::Tick } else { StayEnd::Other });
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        note(self.stay_end.map_or(0, |end| 1 + end as u64));
        note(self.next_timer_ns);
        note(self.factor_index as u64);
        self.factors.iter().for_each(|factor| note(u64::from(*factor)));
        self.intervals.oldest_first().for_each(|us| note(u64::from(us)));
        true
    }
}
