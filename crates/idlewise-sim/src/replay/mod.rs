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
//! The timeline is the trace's: a late wake-up does not shift what follows. Each exit takes the mean of
//! the measured or published times in the machine's file, or else the declared worst case. Governors
//! and latency limits see only the latter. Delays are spread over those times afterwards
//! ([`Tally::delays`]).
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

#[cfg(feature = "log")]
mod joined;
mod oracle;
mod repeat;
#[cfg(feature = "log")]
mod run;
mod steps;
mod stuck;

use idlewise_core::{FAR_AWAY_NS, Governor, STATE_COUNT_MAX, StateIndex, Verdict};
use idlewise_trace::{IdleGap, WakeReason};

use self::repeat::{Bounds, FIRST_STAY_COUNT, Place, Watch};
use crate::idle_loop::{Entry, IdleLoop, Outlook, Stayed};

pub use crate::idle_loop::{DEFAULT_TICK_WORK_NS, Setting, StayEnd, TICK_WORK_MAX_NS};
pub use crate::tally::{Delays, SharedStateTally, StateTally, Tally};
#[cfg(feature = "log")]
pub use joined::{
    GovernorJoint, JoinError, Joint, JointBound, JointPeriod, JointReplays, JointResults,
    MakeJoint, OracleJoint, ReplayedGroups, TakePeriod, UnitOf, replay_gaps_joined, replay_joined,
};
pub use oracle::OracleLane;
pub use repeat::Repetition;
#[cfg(feature = "log")]
pub use run::{GroupReader, MakeLane, PerCpu, replay_cpus, replay_log};
pub use steps::{Question, Stay, Steps};
pub use stuck::Stuck;

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
    /// Whether it sees each stay, however many there are. Otherwise those that repeat come together
    /// ([`Observer::repeat`]).
    const SEES_EACH_STAY: bool = false;

    /// Called for each stay of a gap, before [`Observer::gap`].
    #[inline]
    fn stay(&mut self, _gap: &IdleGap, _stay: ReplayedStay) {}

    /// Called instead of [`Observer::stay`] if the last stays repeat.
    fn repeat(&mut self, _gap: &IdleGap, _repetition: &Repetition) {}

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
    #[inline]
    fn gap(&mut self, _gap: &IdleGap, _course: GapCourse) {}
}

/// A governor under a [`Setting`].
pub struct GovernorLane<G, O = ()> {
    idle: IdleLoop<G>,
    observer: O,
    tally: Tally,
    watch: Watch,
    /// The shallowest state that a state shared with other CPUs requires.
    joined_from: StateIndex,
}

/// Where a lane is in a gap.
#[derive(Clone, Copy, Debug)]
struct Course {
    first_tick_ns: u64,
    latency_limit_ns: i64,
    feedback: Option<Feedback>,
    first: Option<FirstDecision>,
    idle_ns: u64,
    stay_count: u64,
    /// The position in the gap, and the next boundary of the tick grid after it.
    at_ns: u64,
    next_tick_at_ns: u64,
}

impl Course {
    fn grid(&self, period_ns: u64) -> GridPlace {
        GridPlace { first_tick_ns: self.first_tick_ns, period_ns }
    }
}

/// A stay that has begun.
#[derive(Clone, Copy, Debug)]
struct PlannedStay {
    entry: Entry,
    timer_left_ns: i64,
    stay_ns: u64,
    end: StayEnd,
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
            joined_from: STATE_COUNT_MAX,
        }
    }

    #[inline]
    fn gap(&mut self, gap: &IdleGap) {
        let feedback = self.observer.feedback(gap);
        let mut course = self.begin(gap, feedback);
        loop {
            let stay = self.enter(gap, &mut course);
            if self.leave(gap, &mut course, &stay, 0) {
                return;
            }
        }
    }

    /// Begins a gap.
    #[inline(always)]
    fn begin(&mut self, gap: &IdleGap, feedback: Option<Feedback>) -> Course {
        let period_ns = u64::from(self.idle.setting.tick_period_ns);
        if gap.ran_task {
            self.idle.tick_stopped = false;
        }
        let first_tick_ns = first_tick_ns(gap, period_ns);
        let log_limit_ns = gap.latency_limit_ns.and_then(|ns| i64::try_from(ns).ok());
        let latency_limit_ns = log_limit_ns.map_or(self.idle.setting.latency_limit_ns, |ns| {
            ns.min(self.idle.setting.latency_limit_ns)
        });
        if let Some(feedback) = feedback {
            self.idle.tick_stopped = feedback.tick_stopped;
        }
        Course {
            first_tick_ns,
            latency_limit_ns,
            feedback,
            first: None,
            idle_ns: 0,
            stay_count: 0,
            at_ns: 0,
            next_tick_at_ns: first_tick_ns,
        }
    }

    /// Asks the governor, and plans the stay. Nothing but the exit is unknown then.
    #[inline(always)]
    fn enter(&mut self, gap: &IdleGap, course: &mut Course) -> PlannedStay {
        let at_ns = course.at_ns;
        let timer_left_ns = timer_left_ns(gap, at_ns);
        let tick_stopped = self.idle.tick_stopped;
        let outlook = Outlook {
            now_ns: (gap.start_ns as u64).wrapping_add(at_ns),
            timer_left_ns,
            tick_left_ns: course.next_tick_at_ns - at_ns,
            latency_limit_ns: course.latency_limit_ns,
        };
        let mut entry = self.idle.select(outlook, &mut self.tally);
        if course.first.is_none() {
            course.first = Some(FirstDecision { state: entry.state, tick_stopped });
            self.observer.forecast(|| self.idle.forecast_ns());
            if let Some(feedback) = course.feedback {
                let state = feedback.state;
                entry = self.idle.enter_instead(entry, state, course.latency_limit_ns);
            }
        }
        let event_left_ns = gap.gap_ns - at_ns;
        let stay_ns = event_left_ns.min(entry.tick_left_ns).min(entry.own_limit_ns);
        // At the same time, the event comes before the tick, and the tick before our timers.
        let end = match stay_ns {
            _ if stay_ns == event_left_ns => StayEnd::Event,
            _ if stay_ns == entry.tick_left_ns => StayEnd::Tick,
            _ if self.idle.rule(entry.state).is_polling => StayEnd::PollLimit,
            _ => StayEnd::Promotion,
        };
        PlannedStay { entry, timer_left_ns, stay_ns, end }
    }

    /// Ends the stay. Leaving takes `wait_ns` longer than the CPU's own exit. Returns whether the gap is over.
    #[inline(always)]
    fn leave(
        &mut self,
        gap: &IdleGap,
        course: &mut Course,
        stay: &PlannedStay,
        wait_ns: u64,
    ) -> bool {
        let period_ns = u64::from(self.idle.setting.tick_period_ns);
        let PlannedStay { entry, stay_ns, end, .. } = stay;
        let (rule, end) = (*self.idle.rule(entry.state), *end);
        let tick_ran = match end {
            StayEnd::Tick => true,
            StayEnd::Event => entry.tick_left_ns == *stay_ns || course.grid(period_ns).ends(gap),
            StayEnd::PollLimit | StayEnd::Promotion | StayEnd::Deadline => false,
        };
        let (stay_ns, exit_ns) = match &course.feedback {
            None => (*stay_ns, rule.exit_latency_ns + wait_ns),
            Some(feedback) if end == StayEnd::Event => {
                // The rest of the recorded idle time, whenever the replay's tick ended.
                let residency_ns = feedback.idle_ns.saturating_sub(course.idle_ns);
                (*stay_ns.min(&residency_ns), residency_ns.saturating_sub(*stay_ns))
            }
            Some(feedback) => (*stay_ns, feedback.exits_ns[entry.state]),
        };
        let at_ns = course.at_ns;
        let now_ns = (gap.start_ns as u64).wrapping_add(at_ns).wrapping_add(stay_ns + exit_ns);
        let stayed = Stayed { stay_ns, exit_ns, end, tick_ran, now_ns };
        let residency_ns = self.idle.reflect(entry, stayed, &mut self.tally);
        course.idle_ns += residency_ns;
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
                let delay_ns = rule.exit_latency_ns + wait_ns;
                self.tally.states[entry.state].add_wake(gap.wake_reason, rule.wakes_on_store);
                // The delay itself is counted for all CPUs together (joined/lanes.rs).
                self.tally.states[entry.state].shared_wake_count += u64::from(wait_ns > 0);
                let first = course.first.expect("set on entry");
                self.observer.gap(gap, GapCourse { first, idle_ns: course.idle_ns, delay_ns });
                return true;
            }
            StayEnd::Tick => {
                let tick_work_ns = self.idle.setting.tick_work_ns;
                self.tally.add_tick(exit_ns, tick_work_ns);
                course.at_ns += stay_ns + exit_ns + tick_work_ns;
            }
            // A limit of 0 must not stop the clock.
            StayEnd::PollLimit => course.at_ns += stay_ns.max(1),
            StayEnd::Promotion => {
                self.tally.add_promotion(exit_ns);
                course.at_ns += residency_ns.max(1);
            }
            StayEnd::Deadline => unreachable!("replay has no such deadline"),
        }
        // The recorded idle time is used up, so the event came during the tick's work.
        if course.feedback.as_ref().is_some_and(|feedback| course.idle_ns >= feedback.idle_ns) {
            course.at_ns = course.at_ns.max(gap.gap_ns);
        }
        if course.at_ns >= gap.gap_ns {
            let overrun_ns = course.at_ns - gap.gap_ns;
            self.tally.overruns.record(overrun_ns);
            let first = course.first.expect("set on entry");
            let idle_ns = course.idle_ns;
            self.observer.gap(gap, GapCourse { first, idle_ns, delay_ns: overrun_ns });
            return true;
        }
        course.next_tick_at_ns = line_after(course.at_ns, course.next_tick_at_ns, period_ns);
        course.stay_count += 1;
        if !O::SEES_EACH_STAY && course.stay_count >= FIRST_STAY_COUNT {
            let Course { at_ns, next_tick_at_ns, idle_ns, .. } = *course;
            let place = Place { at_ns, next_tick_at_ns, idle_ns };
            if let Some(repetition) = self.repetition(gap, place, course.stay_count) {
                course.at_ns += repetition.count * repetition.span_ns;
                course.idle_ns += repetition.count * repetition.idle_ns;
                course.next_tick_at_ns =
                    line_after(course.at_ns, course.next_tick_at_ns, period_ns);
            }
        }
        false
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
        // How long leaving a shared state takes also depends on other CPUs.
        if repetition.once.states[self.joined_from..].iter().any(|state| state.entry_count > 0) {
            return None;
        }
        self.tally.add_repeatedly(&repetition.once, repetition.count);
        self.observer.repeat(gap, &repetition);
        Some(repetition)
    }
}

/// The tick grid of a gap.
struct GridPlace {
    first_tick_ns: u64,
    period_ns: u64,
}

impl GridPlace {
    /// Whether a timer ended the gap exactly on a boundary of the grid.
    #[inline]
    fn ends(&self, gap: &IdleGap) -> bool {
        gap.wake_reason == WakeReason::Timer
            && match gap.gap_ns.checked_sub(self.first_tick_ns) {
                None => false,
                Some(rest_ns) if rest_ns < self.period_ns => rest_ns == 0,
                Some(rest_ns) => rest_ns.is_multiple_of(self.period_ns),
            }
    }
}

/// The time from a gap's start to the first boundary of its tick grid.
#[inline]
fn first_tick_ns(gap: &IdleGap, period_ns: u64) -> u64 {
    match gap.next_tick_ns {
        // A division takes as long as a simple governor's decision, and is rarely needed.
        Some(next_tick_ns) => match u64::from(next_tick_ns).max(1) {
            next_ns if next_ns <= period_ns => next_ns,
            next_ns => (next_ns - 1) % period_ns + 1,
        },
        None => period_ns - gap.start_ns.rem_euclid(period_ns as i64) as u64,
    }
}

/// The time from a place in a gap to the next timer.
#[inline]
fn timer_left_ns(gap: &IdleGap, at_ns: u64) -> i64 {
    match gap.sleep_length_ns {
        Some(length_ns) if length_ns >= at_ns => {
            i64::try_from(length_ns - at_ns).unwrap_or(FAR_AWAY_NS)
        }
        _ => FAR_AWAY_NS,
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
