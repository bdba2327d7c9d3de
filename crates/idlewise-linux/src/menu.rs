//! The menu governor, after Linux's menu.c: Copyright (C) 2006-2007 Adam Belay, 2009 Intel Corporation (Arjan van de Ven).
//!
//! The idea
//! --------
//! A state pays off if the CPU stays long enough. The longest possible stay is known, because the next
//! timer ends it. How much of it other interrupts leave is characteristic of the machine. So menu learns
//! two such habits and uses the shorter of the two forecasts.
//!
//! Correction factors
//! ------------------
//! How a stay relates to the time to the next timer depends on that time's order of magnitude. An idle CPU
//! with a timer in 20 µs mostly reaches it; one with a timer in a second mostly doesn't. So there is a
//! factor for each decade up to 100 ms: a running average of stay / timer over about eight stays. Stays of
//! 50 ms or more count as having reached the timer, because a longer one would gain nothing.
//!
//! Typical interval
//! ----------------
//! Evenly spaced interrupts come without a timer. `intervals.rs` finds them in the last eight stays.
//!
//! From forecast to state
//! ----------------------
//! menu selects the deepest enabled state whose target residency fits into the forecast and whose exit
//! latency is within the limit. In addition:
//!
//! 1. Polling burns a core, so another state is used instead if the next timer leaves room for it.
//! 2. The tick continues if the forecast is below one tick or the state polls, so that the next tick can
//!    correct a wrong forecast. A state that the tick would cut short is replaced by a shallower one.
//! 3. With the tick stopped, nothing corrects a wrong forecast. A CPU that polls or halts lightly might do
//!    so until a timer seconds away. So a short forecast is then replaced by the time to the timer.
//!
//! What is learnt from a stay
//! --------------------------
//! Its measured length minus the exit latency, with two exceptions. If the tick ended it although a
//! timer was further away, the forecast was too short by an unknown amount: 45 ms count. If polling
//! ended at its time limit, the wake-up didn't come: the time to the timer counts.
//!
//! Releases
//! --------
//! 6.12 does not read the timers while the tick runs and the typical interval is at most 15 µs, because
//! reading them costs more than a wrong state would. It dropped what 6.1 does for tasks that wait for I/O:
//! factors of their own, and a latency limit of forecast / (1 + 10 · tasks). When 7.2 looks for a typical
//! interval, it also drops short stays as exceptions. With the tick stopped, it distrusts a short forecast
//! only if the timer is more than two ticks away. Each difference is a field of `Rules`. All are in
//! `menu_select` and what it calls, in `drivers/cpuidle/governors/menu.c` of 6.1.192, 6.12.117 and 7.2.13.
//!
//! Variants
//! --------
//! Point 3 hurts if interrupts come every 500 µs and are handled without a task (so the tick stays stopped)
//! while the next timer is 10 ms away: each pays the deep state's exit latency. `+min` (Ionut Nechita,
//! "cpuidle: menu: Use min() to prevent deep C-states when tick is stopped", January 2026, not merged)
//! takes the shorter of forecast and timer, at the full risk described in point 3. Two days before, its author's
//! first version took the shorter of the timer and 1¼ forecasts (`+margin`). `+safe-range` uses the
//! forecast only if the timer is at most two ticks away, which bounds that risk. It came out of that
//! discussion, and 7.2 has it.
//!
//! Known limitations
//! -----------------
//! Microseconds are cut to 32 bits: an interval of 71 minutes and 35 seconds counts as almost none, and a
//! corrected sleep length wraps twice, once in 64 and once in 32 bits. This is kept, bit for bit.

use core::hint::select_unpredictable;
use core::marker::PhantomData;

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
/// What one stay that reached its timer adds to a factor.
const FULL_SHARE: u64 = 1_024;
/// A new stay has a weight of one eighth in a factor.
const FACTOR_WEIGHT: u32 = 8;
/// The factor that leaves the time to the timer unchanged: the sum of eight full shares.
const UNITY_FACTOR: u32 = FULL_SHARE as u32 * FACTOR_WEIGHT;
/// From this length on, a stay counts as having reached its timer.
const LONG_STAY_NS: u64 = 50_000_000;
/// The length counted for a stay that only the tick ended: long, but below [`LONG_STAY_NS`].
const TICK_ENDED_STAY_NS: u64 = LONG_STAY_NS * 9 / 10;
const NS_PER_US: u64 = 1_000;
/// The interval that stands for a stay that never happened (`UINT_MAX`). It is longer than any other, so it
/// never becomes a typical length.
const NO_INTERVAL_US: u32 = u32::MAX;
/// Up to this length, a forecast is short enough to use without reading the timers, and a state is cheap
/// enough to replace polling (`RESIDENCY_THRESHOLD_NS` in 6.12's `drivers/cpuidle/governors/gov.h`).
pub(crate) const SHORT_STAY_NS: i64 = 15_000;

/// What to do with a forecast below one tick while the tick is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoppedTickRule {
    /// Use the time to the next timer instead, as 6.1 and 6.12 do.
    NextTimer,
    /// Use the shorter of the two.
    Shorter,
    /// Use the shorter of the timer and the forecast and a quarter of it.
    ShorterWithMargin,
    /// Use the time to the next timer if it is more than two ticks away, or else the forecast: 7.2.
    NextTimerBeyondTwoTicks,
}

/// A release of menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MenuRelease {
    /// Debian's 6.1.192-2.
    V6_1,
    /// Debian's 6.12.117-1.
    V6_12,
    /// 6.12.117-1 with the proposed `min()`.
    V6_12Min,
    /// 6.12.117-1 with what was proposed before `min()`: the same of a forecast that is a quarter longer.
    V6_12Margin,
    /// 6.12.117-1 with a bound on how long a wrong forecast can last.
    V6_12SafeRange,
    /// Debian's 7.2.13-1.
    V7_2,
    /// 7.2.13-1 with the proposed `min()`.
    V7_2Min,
}

/// A release, described by its differences.
struct Rules {
    /// 6.12: uses a short typical interval without reading the timers.
    skips_timers: bool,
    /// 6.12: replaces polling only by a state that is about as cheap.
    replaces_polling_rarely: bool,
    /// 6.12: a state above the latency limit ends the search even if it doesn't fit the forecast.
    checks_latency_first: bool,
    typical_rule: TypicalRule,
    /// 6.1: tasks that wait for I/O have their own factors and tighten the latency limit.
    weighs_iowait: bool,
    /// 6.1, 6.12: a table with a single state needs no forecast.
    knows_only_state: bool,
    stopped_tick_rule: StoppedTickRule,
}

/// A release whose rules are known when the program is compiled: a decision contains only its own code.
trait Release {
    const RULES: Rules;
}

struct V6_1;
struct V6_12;
struct V6_12Margin;
struct V6_12SafeRange;
struct V7_2;

impl Release for V6_1 {
    const RULES: Rules = Rules {
        skips_timers: false,
        replaces_polling_rarely: false,
        checks_latency_first: false,
        typical_rule: TypicalRule::LongestDropped { zero_counts: true },
        weighs_iowait: true,
        knows_only_state: true,
        stopped_tick_rule: StoppedTickRule::NextTimer,
    };
}

impl Release for V6_12 {
    const RULES: Rules = Rules {
        skips_timers: true,
        replaces_polling_rarely: true,
        checks_latency_first: true,
        typical_rule: TypicalRule::LongestDropped { zero_counts: false },
        weighs_iowait: false,
        knows_only_state: true,
        stopped_tick_rule: StoppedTickRule::NextTimer,
    };
}

impl Release for V6_12Margin {
    const RULES: Rules =
        Rules { stopped_tick_rule: StoppedTickRule::ShorterWithMargin, ..V6_12::RULES };
}

impl Release for V6_12SafeRange {
    const RULES: Rules =
        Rules { stopped_tick_rule: StoppedTickRule::NextTimerBeyondTwoTicks, ..V6_12::RULES };
}

impl Release for V7_2 {
    const RULES: Rules = Rules {
        typical_rule: TypicalRule::FarthestDropped,
        knows_only_state: false,
        ..V6_12SafeRange::RULES
    };
}

/// A release with the proposed `min()`, whatever else it has.
struct WithMin<R>(PhantomData<R>);

impl<R: Release> Release for WithMin<R> {
    const RULES: Rules = Rules { stopped_tick_rule: StoppedTickRule::Shorter, ..R::RULES };
}

/// Evaluates an expression in which a type stands for the release's rules.
macro_rules! for_release {
    ($release:expr, $Rules:ident => $value:expr) => {
        match $release {
            MenuRelease::V6_1 => {
                type $Rules = V6_1;
                $value
            }
            MenuRelease::V6_12 => {
                type $Rules = V6_12;
                $value
            }
            MenuRelease::V6_12Min => {
                type $Rules = WithMin<V6_12>;
                $value
            }
            MenuRelease::V6_12Margin => {
                type $Rules = V6_12Margin;
                $value
            }
            MenuRelease::V6_12SafeRange => {
                type $Rules = V6_12SafeRange;
                $value
            }
            MenuRelease::V7_2 => {
                type $Rules = V7_2;
                $value
            }
            MenuRelease::V7_2Min => {
                type $Rules = WithMin<V7_2>;
                $value
            }
        }
    };
}

/// How the last stay ended, if menu has not learnt from it yet.
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
    /// The stay since the last select, or `None` if there was none or menu has learnt from it.
    stay_end: Option<StayEnd>,
    next_timer_ns: u64,
    /// Which factor the last forecast used.
    factor_index: usize,
    /// Without tasks that wait for I/O, then with such tasks.
    factors: [u32; 2 * DECADE_COUNT],
    intervals: RecentIntervals,
    /// The last forecast, for [`Governor::forecast_ns`] only; `None` where menu made none.
    shown_forecast_ns: Option<u64>,
}

/// What the timers say.
#[derive(Clone, Copy)]
struct Timers {
    were_read: bool,
    /// Time to the timer or the tick, whichever is first.
    next_event_ns: i64,
    /// Already looked for if that decided whether to read the timers.
    habit: Habit,
}

/// The typical length of recent stays. Looking for it takes half the time of a decision, so it is only done
/// when the result matters.
#[derive(Clone, Copy)]
enum Habit {
    Unsought,
    Sought { typical_ns: Option<u64> },
}

/// What the choice of a state is based on.
#[derive(Clone, Copy)]
struct Forecast {
    predicted_ns: u64,
    /// Time to the timer or the tick, whichever is first.
    next_event_ns: i64,
    latency_limit_ns: i64,
}

impl Menu {
    /// Creates a governor without history. See [`idlewise_core::tick_period_ns`] for `tick_period_ns`.
    pub const fn new(release: MenuRelease, tick_period_ns: u32) -> Self {
        Menu {
            release,
            tick_period_ns: tick_period_ns as u64,
            stay_end: None,
            next_timer_ns: 0,
            factor_index: 0,
            factors: [UNITY_FACTOR; 2 * DECADE_COUNT],
            intervals: RecentIntervals::new(),
            shown_forecast_ns: None,
        }
    }

    #[inline]
    fn decide<R: Release>(&mut self, context: &Context<'_>, device: &Device) -> Decision {
        let states = States::of(context);
        self.learn(states, device);
        let timers = self.watch_timers::<R>(context);
        if self.is_shallowest_forced::<R>(states, context) {
            self.shown_forecast_ns = None;
            Decision { state: 0, stop_tick: !states.is_polling(0) }
        } else {
            let forecast = self.forecast::<R>(context, timers);
            self.shown_forecast_ns = Some(forecast.predicted_ns);
            let choice = self.choose::<R>(states, context, forecast);
            self.settle_tick(choice, states, context, timers.next_event_ns)
        }
    }

    /// Learns from the last stay, or notes that there was none.
    #[inline]
    fn learn(&mut self, states: States<'_>, device: &Device) {
        if let Some(end) = self.stay_end.take() {
            let stay_ns = self.stay_ns(end, states, device).min(self.next_timer_ns);
            self.adjust_factor(stay_ns);
            // Cut to 32 bits, like the kernel's intervals.
            self.intervals.push((stay_ns / NS_PER_US) as u32);
        } else if device.last_residency_ns == 0 {
            // The driver refused the state. Without this interval, a typical length that led to a refused
            // state would be found again and again. The very first select looks the same.
            self.intervals.push(NO_INTERVAL_US);
        }
    }

    /// How long the CPU would have stayed, as far as is known.
    #[inline]
    fn stay_ns(&self, end: StayEnd, states: States<'_>, device: &Device) -> u64 {
        let entered = device.last_state.unwrap_or(0);
        if end == StayEnd::Tick && self.next_timer_ns > self.tick_period_ns {
            return TICK_ENDED_STAY_NS;
        }
        if device.poll_time_limit && states.is_polling(entered) {
            return self.next_timer_ns;
        }
        // The wake-up came before the first instruction. A stay shorter than two exit latencies may never
        // have reached the state. Its latency is a guess then: half of the stay.
        let exit_latency_ns = states.exit_latency_ns(entered) as u64;
        let measured_ns = device.last_residency_ns;
        let is_long = measured_ns > 2 * exit_latency_ns;
        let asleep_ns = measured_ns.wrapping_sub(exit_latency_ns);
        // The condition is as random as the stays: a mispredicted branch costs more than the sum.
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
    fn typical_ns<R: Release>(&self) -> Option<u64> {
        let typical_us = self.intervals.typical_us(R::RULES.typical_rule);
        typical_us.map(|us| u64::from(us) * NS_PER_US)
    }

    /// Reads the timers, unless a short typical interval makes that unnecessary. Then it assumes no timer,
    /// and a tick half a period away.
    #[inline]
    fn watch_timers<R: Release>(&mut self, context: &Context<'_>) -> Timers {
        let (were_read, habit) = if R::RULES.skips_timers && !context.tick_stopped {
            let typical_ns = self.typical_ns::<R>();
            let is_short = typical_ns.is_some_and(|ns| ns <= SHORT_STAY_NS as u64);
            (!is_short, Habit::Sought { typical_ns })
        } else {
            (true, Habit::Unsought)
        };
        let timers = if were_read { context.sleep_length() } else { self.no_timer() };
        // An overdue timer fires as soon as interrupts are enabled.
        let is_overdue = timers.sleep_length_ns < 0;
        self.next_timer_ns = if is_overdue { 0 } else { timers.sleep_length_ns as u64 };
        let decade = DECADE_START_NS.iter().filter(|&&ns| self.next_timer_ns >= ns).count();
        let has_iowait = R::RULES.weighs_iowait && context.iowait_count > 0;
        self.factor_index = decade + if has_iowait { DECADE_COUNT } else { 0 };
        let next_event_ns = if is_overdue { 0 } else { timers.next_event_ns };
        Timers { were_read, next_event_ns, habit }
    }

    fn no_timer(&self) -> SleepLength {
        let next_event_ns = (self.tick_period_ns / 2) as i64;
        SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns }
    }

    /// Whether state 0 must be selected without a forecast: if no latency is allowed, or there is no other
    /// state. This holds even if state 0 is disabled.
    #[inline]
    fn is_shallowest_forced<R: Release>(&self, states: States<'_>, context: &Context<'_>) -> bool {
        let limit_ns = context.latency_limit_ns;
        let next_is_excluded = self.next_timer_ns < states.target_residency_ns(1) as u64
            || limit_ns < states.exit_latency_ns(1);
        let is_only = R::RULES.knows_only_state && states.len() <= 1;
        is_only || limit_ns == 0 || next_is_excluded && !states.is_disabled(0)
    }

    #[inline]
    fn forecast<R: Release>(&self, context: &Context<'_>, timers: Timers) -> Forecast {
        let timer_ns = if timers.were_read { self.corrected_timer_ns() } else { u64::MAX };
        // The released rule replaces any short forecast by the timer.
        let is_habit_moot = context.tick_stopped
            && timer_ns < self.tick_period_ns
            && R::RULES.stopped_tick_rule == StoppedTickRule::NextTimer;
        let typical_ns = match timers.habit {
            Habit::Sought { typical_ns } => typical_ns,
            Habit::Unsought if is_habit_moot => None,
            Habit::Unsought => self.typical_ns::<R>(),
        };
        let mut predicted_ns = timer_ns.min(typical_ns.unwrap_or(u64::MAX));
        if context.tick_stopped && predicted_ns < self.tick_period_ns {
            predicted_ns = self.instead_of_short::<R>(predicted_ns);
        }
        let mut latency_limit_ns = context.latency_limit_ns;
        if R::RULES.weighs_iowait && !context.tick_stopped {
            latency_limit_ns = tightened_limit_ns(context, predicted_ns);
        }
        let next_event_ns = timers.next_event_ns;
        Forecast { predicted_ns, next_event_ns, latency_limit_ns }
    }

    /// What menu would predict now, before a stopped tick makes it doubt a short prediction. `None` where it
    /// selects state 0 without predicting.
    pub fn prediction_ns(&self, context: &Context<'_>, device: &Device) -> Option<u64> {
        for_release!(self.release, R => self.clone().predict::<R>(context, device))
    }

    fn predict<R: Release>(mut self, context: &Context<'_>, device: &Device) -> Option<u64> {
        let states = States::of(context);
        self.learn(states, device);
        let timers = self.watch_timers::<R>(context);
        if self.is_shallowest_forced::<R>(states, context) {
            return None;
        }
        let timer_ns = if timers.were_read { self.corrected_timer_ns() } else { u64::MAX };
        let typical_ns = match timers.habit {
            Habit::Sought { typical_ns } => typical_ns,
            Habit::Unsought => self.typical_ns::<R>(),
        };
        Some(timer_ns.min(typical_ns.unwrap_or(u64::MAX)))
    }

    /// The decision that this release would take now if it had the proposed `min()`.
    pub fn decision_with_min(&self, context: &Context<'_>, device: &Device) -> Decision {
        let device = &mut device.clone();
        for_release!(self.release, R => self.clone().decide::<WithMin<R>>(context, device))
    }

    /// The time to the timer times its factor, in whole microseconds, rounded half up.
    #[inline]
    fn corrected_timer_ns(&self) -> u64 {
        const NS_FACTORS_PER_US: u64 = UNITY_FACTOR as u64 * NS_PER_US;
        let factor = self.factors.get(self.factor_index).copied().unwrap_or(UNITY_FACTOR);
        // A timer days away wraps here, and its microseconds are cut to 32 bits.
        let scaled = self.next_timer_ns.wrapping_mul(u64::from(factor));
        let corrected_us = (scaled.wrapping_add(NS_FACTORS_PER_US / 2) / NS_FACTORS_PER_US) as u32;
        u64::from(corrected_us) * NS_PER_US
    }

    /// The replacement for a forecast below one tick while the tick is stopped.
    #[inline]
    fn instead_of_short<R: Release>(&self, predicted_ns: u64) -> u64 {
        match R::RULES.stopped_tick_rule {
            StoppedTickRule::NextTimer => self.next_timer_ns,
            StoppedTickRule::Shorter => predicted_ns.min(self.next_timer_ns),
            StoppedTickRule::ShorterWithMargin => {
                (predicted_ns + predicted_ns / 4).min(self.next_timer_ns)
            }
            StoppedTickRule::NextTimerBeyondTwoTicks => {
                let is_beyond = self.next_timer_ns > 2 * self.tick_period_ns;
                if is_beyond { self.next_timer_ns } else { predicted_ns }
            }
        }
    }

    /// The deepest state that fits the forecast, and the forecast after that choice.
    #[inline]
    fn choose<R: Release>(
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
            // The shallowest enabled state is always a candidate.
            let current = *chosen.get_or_insert(index);
            let is_too_slow = state.exit_latency_ns as i64 > forecast.latency_limit_ns;
            let pays = state.target_residency_ns <= predicted_ns;
            if is_too_slow && (pays || R::RULES.checks_latency_first) {
                break;
            }
            if !pays {
                return self.stop_before::<R>(index, current, states, context, forecast);
            }
            chosen = Some(index);
        }
        // If no state is enabled, only state 0 is left.
        (chosen.unwrap_or(0), predicted_ns)
    }

    /// Ends the search at `next`, the first state that doesn't fit the forecast.
    #[inline]
    fn stop_before<R: Release>(
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
        if states.is_polling(current) && self.replaces_polling::<R>(next, states, forecast) {
            (next, next_residency_ns as u64)
        } else if predicted_ns < self.tick_period_ns {
            (current, predicted_ns)
        } else if !context.tick_stopped {
            // A shallow choice despite a long forecast: pretend that the stay is just what the state needs,
            // so that the tick continues and the choice is made again.
            (current, current_residency_ns as u64)
        } else {
            let is_shallow = current_residency_ns < self.tick_period_ns as i64;
            let reaches_timer = next_residency_ns <= forecast.next_event_ns;
            (if is_shallow && reaches_timer { next } else { current }, predicted_ns)
        }
    }

    /// Whether `next` should be used just to avoid polling.
    #[inline]
    fn replaces_polling<R: Release>(
        &self,
        next: StateIndex,
        states: States<'_>,
        forecast: Forecast,
    ) -> bool {
        let residency_ns = states.target_residency_ns(next);
        let latency_ns = states.exit_latency_ns(next);
        let is_cheap = !R::RULES.replaces_polling_rarely
            || residency_ns < SHORT_STAY_NS && latency_ns as u64 <= forecast.predicted_ns;
        is_cheap
            && latency_ns <= forecast.latency_limit_ns
            && residency_ns as u64 <= self.next_timer_ns
    }

    /// Decides whether to stop the tick. Chooses a shallower state if the tick would cut this one short.
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

/// 6.1's latency limit: the more tasks wait for I/O, the less of the forecast may be exit latency.
#[inline]
fn tightened_limit_ns(context: &Context<'_>, predicted_ns: u64) -> i64 {
    // The kernel's sum is an int. The divisor can't be 0, because the sum is odd.
    let divisor = 1_u32.wrapping_add(context.iowait_count.wrapping_mul(10)) as i32 as u64;
    let interactive_ns = if divisor == 1 { predicted_ns } else { predicted_ns / divisor };
    // Compared as unsigned, so a negative limit means none.
    (context.latency_limit_ns as u64).min(interactive_ns) as i64
}

impl Governor for Menu {
    #[inline]
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        for_release!(self.release, R => self.decide::<R>(context, device))
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

    #[inline]
    fn forecast_ns(&self) -> Option<u64> {
        self.shown_forecast_ns
    }
}
