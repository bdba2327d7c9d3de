//! Replay: the idle loop in virtual time, over recorded gaps.
//!
//! A [`Lane`] is one governor on one machine's states, fed the gaps of one CPU in order. Lanes
//! share nothing, so CPUs and governors can be replayed in parallel, and the same gaps and
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
//! 1. If a task ran before the gap the tick runs; else it is as the last gap left it. Ticks lie on
//!    the recorded grid of the CPU.
//! 2. The governor is asked. "Stop the tick" counts unless the next timer is due at the very next
//!    line of the grid: the timer wheel's expire there, and the tick serves them. An hrtimer has an
//!    interrupt of its own and keeps no tick (`tick_nohz_next_event` in
//!    `kernel/time/tick-sched.c`; seen on real kernels, `docs/agreement.md`).
//! 3. The stay ends with the first of: the wake event, the tick, the polling limit, the promotion
//!    timer. Its length and the state's exit latency together are the residency that the governor
//!    reflects on and that the verdict is about.
//! 4. After a tick, the exit latency and the tick's work pass at running power, and the governor is
//!    asked again with what is left. If nothing is left, the event was delayed by the overrun.
//! 5. The event is delayed by the exit latency of the state that it finds.
//!
//! The timeline is the trace's: a late wake-up does not shift what follows. The exit latency is
//! always the table's worst case.
//!
//! Stays that repeat within a gap are counted without being replayed one by one (`repeat.rs`). The
//! tally is the same.
//!
//! # What the log doesn't hold
//!
//! * Whether the tick's handler ran for a timer. It did if a timer ended the gap exactly on the
//!   tick grid: that is where timer-wheel timers expire, and next to no others.
//! * Tasks waiting for I/O (menu 6.1 asks): taken as none.
//! * A timer that should have fired within the gap but didn't was cancelled by somebody else; from
//!   then on the next one is taken to be far away.

mod repeat;
mod run;
mod tally;

use idlewise_core::{FAR_AWAY_NS, Governor, STATE_COUNT_MAX, StateIndex, Verdict};
use idlewise_trace::{IdleGap, WakeReason};

use self::repeat::{Bounds, FIRST_STAY_COUNT, Place, Watch};
use crate::idle_loop::{IdleLoop, Outlook, Stayed};

pub use crate::idle_loop::{DEFAULT_TICK_WORK_NS, Setting, StayEnd, TICK_WORK_MAX_NS};
pub use repeat::Repetition;
pub use run::{GroupReader, MakeLane, PerCpu, replay_cpus, replay_log};
pub use tally::{Delays, StateTally, Tally};

/// Something that is fed the gaps of one CPU, in order of time.
pub trait Lane: Send {
    /// Takes the next gaps.
    fn replay(&mut self, gaps: &[IdleGap]);

    /// What happened.
    fn tally(&self) -> &Tally;
}

/// A lane that shows each gap to an observer.
pub trait ObservedLane<O>: Lane {
    /// The observer.
    fn observer_mut(&mut self) -> &mut O;
}

/// Sees each gap's replay as it happens; for comparing with the recording or with another governor,
/// or for writing a new log.
pub trait Observer: Send {
    /// Sees each stay of a gap before [`Observer::gap`] sees all of it.
    #[inline]
    fn stay(&mut self, _gap: &IdleGap, _stay: ReplayedStay) {}

    /// The last stays that it saw come again, and are not shown one by one.
    fn repeat(&mut self, gap: &IdleGap, repetition: &Repetition);

    /// The gap is over.
    fn gap(&mut self, gap: &IdleGap, course: GapCourse);

    /// What really happened in the gap, if the governor is to learn from that instead of from its
    /// own decision.
    #[inline]
    fn feedback(&mut self, _gap: &IdleGap) -> Option<Feedback> {
        None
    }
}

/// What the recording says of a gap, where a replay follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Whether the tick was stopped before the first decision.
    pub tick_stopped: bool,
    /// The state that was entered first, whatever the governor would have chosen.
    pub state: StateIndex,
    /// All stays together, with what leaving took.
    pub idle_ns: u64,
    /// What leaving each state takes, for the stays that the tick or a limit of the CPU's own ends: the
    /// recording has the sum of all stays alone. What leaving took after the last stay follows.
    pub exits_ns: [u64; STATE_COUNT_MAX],
}

/// How a gap went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapCourse {
    /// The governor's first decision in it.
    pub first: FirstDecision,
    /// All its stays together, with their exit latencies.
    pub idle_ns: u64,
    /// By how much its wake event was delayed: an exit latency, or an overrun of the tick's work.
    pub delay_ns: u64,
}

/// One stay of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedStay {
    /// The state.
    pub state: StateIndex,
    /// From the gap's start to the entry.
    pub at_ns: u64,
    /// From the entry to what ended the stay; the exit latency follows.
    pub stay_ns: u64,
    /// The state's.
    pub exit_latency_ns: u64,
    /// What the kernel would count it as.
    pub verdict: Verdict,
    /// What ended it.
    pub end: StayEnd,
}

impl ReplayedStay {
    /// How long the gap's wake event was delayed by the exit latency; `None` if the stay did not
    /// last until then.
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

/// A governor in a [`Setting`].
pub struct GovernorLane<G, O = ()> {
    idle: IdleLoop<G>,
    observer: O,
    tally: Tally,
    watch: Watch,
}

impl<G: Governor> GovernorLane<G> {
    /// A lane that only counts.
    pub fn new(governor: G, setting: Setting) -> Self {
        GovernorLane::with_observer(governor, setting, ())
    }
}

impl<G: Governor, O: Observer> GovernorLane<G, O> {
    /// A lane that shows each gap to `observer`.
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
            // A division takes as long as a simple governor's decision, and most need none.
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
        // How far into the gap we are, and the next line of the tick grid after that.
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
                if let Some(feedback) = feedback {
                    entry = self.idle.enter_instead(entry, feedback.state);
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
                    // What is left of the recorded idle time, whenever the replay's tick ended.
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
            // All idle time of the recording is used up: its event came during the tick's work.
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

    /// Counts the stays that repeat from here on, if they do.
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

    /// Whether a timer ended the gap just where the tick grid has a line.
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

/// The first line of the tick grid after `at_ns`; `line_ns` is one that may have passed.
#[inline]
fn line_after(at_ns: u64, line_ns: u64, period_ns: u64) -> u64 {
    match at_ns.checked_sub(line_ns) {
        None => line_ns,
        // A division takes long, and most need none.
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
