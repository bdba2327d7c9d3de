//! Replay runs the idle loop in virtual time over recorded gaps.
//!
//! A [`Lane`] is one governor on one machine's states. It is fed the gaps of one CPU in order.
//! Lanes share nothing, so CPUs and governors can be replayed in parallel, and the same gaps and
//! settings give the same tally.
//!
//! # One gap
//!
//! ```text
//! start                    tick                              wake event    start + gap
//!   ├─ select ── stay ──────┤ exit latency, tick's work │ select ── stay ──┤
//!                           └──── at running power ────►│                  └► delayed by the
//!                                                                            state's exit latency
//! ```
//!
//! 1. If a task ran before the gap, the tick runs. Otherwise it stays as the last gap left it.
//!    Ticks are on the CPU's recorded grid.
//! 2. The governor is asked. "Stop the tick" is obeyed unless the next timer is due at the very
//!    next boundary of the grid. Timer-wheel timers expire there, and the tick serves them. An
//!    hrtimer has its own interrupt and does not keep the tick (`tick_nohz_next_event` in
//!    `kernel/time/tick-sched.c`; confirmed on real kernels, `docs/agreement.md`).
//! 3. The stay ends with whichever comes first: the wake event, the tick, the polling limit or the
//!    promotion timer. Its length plus the state's exit latency is the residency that the governor
//!    reflects on and that the verdict uses.
//! 4. After a tick, the exit latency and the tick's work pass at running power, and the governor is
//!    asked again for the rest of the gap. If nothing is left, the overrun delayed the event.
//! 5. The event is delayed by the exit latency of the state in which it finds the CPU.
//!
//! The timeline is the trace's: a late wake-up does not shift what follows. The exit latency is
//! always the table's worst case.
//!
//! Stays that repeat within a gap are counted without replaying each of them (`repeat.rs`). The
//! tally is the same.
//!
//! # What the log does not contain
//!
//! * Whether the tick's handler ran for a timer. We assume that it did if a timer ended the gap
//!   exactly on the tick grid, because timer-wheel timers expire there and hardly any others do.
//! * Tasks waiting for I/O (which menu 6.1 uses): assumed to be none.
//! * Cancellations. A timer that was due within the gap but did not fire was cancelled by something
//!   else. From then on the next timer is assumed to be far away.

mod repeat;
mod run;
mod stuck;
mod tally;

use idlewise_core::{FAR_AWAY_NS, Governor, STATE_COUNT_MAX, StateIndex, Verdict};
use idlewise_trace::{IdleGap, WakeReason};

use self::repeat::{Bounds, FIRST_STAY_COUNT, Place, Watch};
use crate::idle_loop::{IdleLoop, Outlook, Stayed};

pub use crate::idle_loop::{DEFAULT_TICK_WORK_NS, Setting, StayEnd, TICK_WORK_MAX_NS};
pub use repeat::Repetition;
pub use run::{GroupReader, MakeLane, PerCpu, replay_cpus, replay_log};
pub use stuck::Stuck;
pub use tally::{Delays, StateTally, Tally};

/// Something that is fed the gaps of one CPU, in order of time.
pub trait Lane: Send {
    /// Replays the next gaps.
    fn replay(&mut self, gaps: &[IdleGap]);

    /// Returns the counts so far.
    fn tally(&self) -> &Tally;
}

/// A lane that reports each gap to an observer.
pub trait ObservedLane<O>: Lane {
    /// Returns the observer.
    fn observer_mut(&mut self) -> &mut O;
}

/// Observes the replay of each gap, to compare it with another course, or to write a new log.
pub trait Observer: Send {
    /// Called for each stay of a gap, before [`Observer::gap`].
    #[inline]
    fn stay(&mut self, _gap: &IdleGap, _stay: ReplayedStay) {}

    /// Called instead of [`Observer::stay`] if the last stays repeat.
    fn repeat(&mut self, gap: &IdleGap, repetition: &Repetition);

    /// Called at the end of a gap.
    fn gap(&mut self, gap: &IdleGap, course: GapCourse);

    /// Returns what really happened in the gap, if the governor is to learn from that instead of
    /// from its own decision.
    #[inline]
    fn feedback(&mut self, _gap: &IdleGap) -> Option<Feedback> {
        None
    }

    /// Called after the first decision of a gap, with what the governor expected, if it says so.
    #[inline]
    fn forecast(&mut self, _forecast_ns: impl FnOnce() -> Option<u64>)
    where
        Self: Sized,
    {
    }
}

/// What the recording says about a gap, for a replay that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Whether the tick was stopped before the first decision.
    pub tick_stopped: bool,
    /// The state that was entered first, whatever the governor would have chosen.
    pub state: StateIndex,
    /// The sum of all stays, including their exits.
    pub idle_ns: u64,
    /// The exit time of each state, for stays that the tick or the CPU's own limits end, because
    /// the recording has only the sum of all stays. The last stay's exit time follows from it.
    pub exits_ns: [u64; STATE_COUNT_MAX],
}

/// How a gap went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapCourse {
    /// The governor's first decision in it.
    pub first: FirstDecision,
    /// The sum of all stays with their exit latencies.
    pub idle_ns: u64,
    /// The delay of the wake event: an exit latency, or an overrun of the tick's work.
    pub delay_ns: u64,
}

/// A stay in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedStay {
    /// The state.
    pub state: StateIndex,
    /// The time from the gap's start to the entry.
    pub at_ns: u64,
    /// The time from the entry to the end of the stay, without the exit latency.
    pub stay_ns: u64,
    /// The state's exit latency.
    pub exit_latency_ns: u64,
    /// The verdict that the kernel would count.
    pub verdict: Verdict,
    /// What ended it.
    pub end: StayEnd,
}

impl ReplayedStay {
    /// How long the exit latency delayed the gap's wake event; `None` if the stay ended before it.
    pub fn delay_ns(&self) -> Option<u64> {
        (self.end == StayEnd::Event).then_some(self.exit_latency_ns)
    }
}

/// The governor's first decision in a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstDecision {
    /// The state.
    pub state: StateIndex,
    /// Whether the tick was stopped before it.
    pub tick_stopped: bool,
}

impl Observer for () {
    fn repeat(&mut self, _gap: &IdleGap, _repetition: &Repetition) {}

    #[inline]
    fn gap(&mut self, _gap: &IdleGap, _course: GapCourse) {}
}

/// A governor under a [`Setting`].
pub struct GovernorLane<G, O = ()> {
    idle: IdleLoop<G>,
    observer: O,
    tally: Tally,
    watch: Watch,
}

impl<G: Governor> GovernorLane<G> {
    /// Makes a lane that only counts.
    pub fn new(governor: G, setting: Setting) -> Self {
        GovernorLane::with_observer(governor, setting, ())
    }
}

impl<G: Governor, O: Observer> GovernorLane<G, O> {
    /// Makes a lane that reports each gap to `observer`.
    pub fn with_observer(governor: G, setting: Setting, observer: O) -> Self {
        GovernorLane {
            idle: IdleLoop::new(governor, setting),
            observer,
            tally: Tally::default(),
            watch: Watch::default(),
        }
    }

    #[inline]
    fn gap(&mut self, gap: &IdleGap) {
        let period_ns = u64::from(self.idle.setting.tick_period_ns);
        if gap.ran_task {
            self.idle.tick_stopped = false;
        }
        let first_tick_ns = match gap.next_tick_ns {
            // A division takes as long as a simple governor's decision, and is rarely needed.
            Some(next_tick_ns) => match u64::from(next_tick_ns).max(1) {
                next_ns if next_ns <= period_ns => next_ns,
                next_ns => (next_ns - 1) % period_ns + 1,
            },
            None => period_ns - gap.start_ns.rem_euclid(period_ns as i64) as u64,
        };
        let log_limit_ns = gap.latency_limit_ns.and_then(|ns| i64::try_from(ns).ok());
        let latency_limit_ns = log_limit_ns.map_or(self.idle.setting.latency_limit_ns, |ns| {
            ns.min(self.idle.setting.latency_limit_ns)
        });
        let feedback = self.observer.feedback(gap);
        if let Some(feedback) = feedback {
            self.idle.tick_stopped = feedback.tick_stopped;
        }
        let start_ns = gap.start_ns as u64;
        let mut first = None;
        let mut idle_ns = 0;
        let mut stay_count = 0;
        // The position in the gap, and the next boundary of the tick grid after it.
        let mut at_ns = 0_u64;
        let mut next_tick_at_ns = first_tick_ns;
        loop {
            let timer_left_ns = match gap.sleep_length_ns {
                Some(length_ns) if length_ns >= at_ns => {
                    i64::try_from(length_ns - at_ns).unwrap_or(FAR_AWAY_NS)
                }
                _ => FAR_AWAY_NS,
            };
            let tick_stopped = self.idle.tick_stopped;
            let now_ns = start_ns.wrapping_add(at_ns);
            let tick_left_ns = next_tick_at_ns - at_ns;
            let outlook = Outlook { now_ns, timer_left_ns, tick_left_ns, latency_limit_ns };
            let mut entry = self.idle.select(outlook, &mut self.tally);
            if first.is_none() {
                first = Some(FirstDecision { state: entry.state, tick_stopped });
                self.observer.forecast(|| self.idle.forecast_ns());
                if let Some(feedback) = feedback {
                    entry = self.idle.enter_instead(entry, feedback.state, latency_limit_ns);
                }
            }

            let rule = entry.rule;
            let event_left_ns = gap.gap_ns - at_ns;
            let stay_ns = event_left_ns.min(entry.tick_left_ns).min(entry.own_limit_ns);
            // At the same time, the event comes before the tick, and the tick before our timers.
            let end = match stay_ns {
                _ if stay_ns == event_left_ns => StayEnd::Event,
                _ if stay_ns == entry.tick_left_ns => StayEnd::Tick,
                _ if rule.is_polling => StayEnd::PollLimit,
                _ => StayEnd::Promotion,
            };
            let tick_ran = match end {
                StayEnd::Tick => true,
                StayEnd::Event => {
                    entry.tick_left_ns == stay_ns || self.is_on_grid(gap, first_tick_ns)
                }
                StayEnd::PollLimit | StayEnd::Promotion | StayEnd::Deadline => false,
            };
            let (stay_ns, exit_ns) = match &feedback {
                None => (stay_ns, rule.exit_latency_ns),
                Some(feedback) if end == StayEnd::Event => {
                    // The rest of the recorded idle time, whenever the replay's tick ended.
                    let residency_ns = feedback.idle_ns.saturating_sub(idle_ns);
                    (stay_ns.min(residency_ns), residency_ns.saturating_sub(stay_ns))
                }
                Some(feedback) => (stay_ns, feedback.exits_ns[entry.state]),
            };
            let now_ns = now_ns.wrapping_add(stay_ns + exit_ns);
            let stayed = Stayed { stay_ns, exit_ns, end, tick_ran, now_ns };
            let residency_ns = self.idle.reflect(&entry, stayed, &mut self.tally);
            idle_ns += residency_ns;
            let stay = ReplayedStay {
                state: entry.state,
                at_ns,
                stay_ns,
                exit_latency_ns: exit_ns,
                verdict: rule.verdict(stay_ns, residency_ns),
                end,
            };
            self.observer.stay(gap, stay);
            match end {
                StayEnd::Event => {
                    let state = &mut self.tally.states[entry.state];
                    state.add_wake(gap.wake_reason, rule.wakes_on_store);
                    let first = first.expect("set above");
                    let delay_ns = rule.exit_latency_ns;
                    self.observer.gap(gap, GapCourse { first, idle_ns, delay_ns });
                    return;
                }
                StayEnd::Tick => {
                    let tick_work_ns = self.idle.setting.tick_work_ns;
                    self.tally.add_tick(exit_ns, tick_work_ns);
                    at_ns += stay_ns + exit_ns + tick_work_ns;
                }
                // A limit of 0 must not stop the clock.
                StayEnd::PollLimit => at_ns += stay_ns.max(1),
                StayEnd::Promotion => {
                    self.tally.add_promotion(exit_ns);
                    at_ns += residency_ns.max(1);
                }
                StayEnd::Deadline => unreachable!("replay has no such deadline"),
            }
            // The recorded idle time is used up, so the event came during the tick's work.
            if feedback.as_ref().is_some_and(|feedback| idle_ns >= feedback.idle_ns) {
                at_ns = at_ns.max(gap.gap_ns);
            }
            if at_ns >= gap.gap_ns {
                break;
            }
            next_tick_at_ns = line_after(at_ns, next_tick_at_ns, period_ns);
            stay_count += 1;
            if stay_count >= FIRST_STAY_COUNT {
                let place = Place { at_ns, next_tick_at_ns, idle_ns };
                if let Some(repetition) = self.repetition(gap, place, stay_count) {
                    at_ns += repetition.count * repetition.span_ns;
                    idle_ns += repetition.count * repetition.idle_ns;
                    next_tick_at_ns = line_after(at_ns, next_tick_at_ns, period_ns);
                }
            }
        }
        let overrun_ns = at_ns - gap.gap_ns;
        self.tally.overruns.record(overrun_ns);
        let first = first.expect("the loop runs at least once");
        self.observer.gap(gap, GapCourse { first, idle_ns, delay_ns: overrun_ns });
    }

    /// Counts the stays that repeat from here on, if any.
    #[cold]
    fn repetition(&mut self, gap: &IdleGap, place: Place, stay_count: u64) -> Option<Repetition> {
        if stay_count == FIRST_STAY_COUNT {
            self.watch.start();
        }
        let bounds = Bounds {
            gap_ns: gap.gap_ns,
            timer_at_ns: gap.sleep_length_ns,
            tick_period_ns: u64::from(self.idle.setting.tick_period_ns),
        };
        let repetition = self.watch.look(&self.idle, &self.tally, place, bounds)?;
        self.tally.add_repeatedly(&repetition.once, repetition.count);
        self.observer.repeat(gap, &repetition);
        Some(repetition)
    }

    /// Whether a timer ended the gap exactly on a boundary of the tick grid.
    #[inline]
    fn is_on_grid(&self, gap: &IdleGap, first_tick_ns: u64) -> bool {
        let period_ns = u64::from(self.idle.setting.tick_period_ns);
        gap.wake_reason == WakeReason::Timer
            && match gap.gap_ns.checked_sub(first_tick_ns) {
                None => false,
                Some(rest_ns) if rest_ns < period_ns => rest_ns == 0,
                Some(rest_ns) => rest_ns.is_multiple_of(period_ns),
            }
    }
}

/// The first boundary of the tick grid after `at_ns`. `line_ns` is a boundary that may have passed.
#[inline]
fn line_after(at_ns: u64, line_ns: u64, period_ns: u64) -> u64 {
    match at_ns.checked_sub(line_ns) {
        None => line_ns,
        // A division is slow and is rarely needed.
        Some(passed_ns) if passed_ns < period_ns => line_ns + period_ns,
        Some(passed_ns) => line_ns + (passed_ns / period_ns + 1) * period_ns,
    }
}

impl<G: Governor, O: Observer> ObservedLane<O> for GovernorLane<G, O> {
    fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }
}

impl<G: Governor, O: Observer> Lane for GovernorLane<G, O> {
    fn replay(&mut self, gaps: &[IdleGap]) {
        for gap in gaps {
            self.tally.add_gap(gap.gap_ns, gap.sleep_length_ns.is_some());
            self.gap(gap);
        }
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
