//! How long gaps leave a CPU in a state that is auto-promoted: with the timer, and without it.
//!
//! Only those gaps count in which the timer has time to fire: when the CPU enters the first such state, the
//! gap goes on for longer than the timer takes. From that entry the CPU is *stuck* until it enters a deeper
//! state that is not promoted itself, or until the gap ends. Where the latency limit forbids the next state, no
//! timer starts, and the CPU is not stuck. So a gap counts alike with and without the
//! timer, although the governor may choose otherwise in later ones, because it learns from shorter stays.

use idlewise_core::{STATE_COUNT_MAX, StateIndex, auto_promotion_delay_ns, auto_promotion_target};
use idlewise_trace::IdleGap;

use super::{Delays, GapCourse, Observer, Repetition, ReplayedStay, Setting};

/// Observes how long each gap leaves the CPU in a promoted state.
#[derive(Clone, Debug, Default)]
pub struct Stuck {
    /// `None` for a state without a timer.
    timers: [Option<Timer>; STATE_COUNT_MAX],
    latency_limit_ns: i64,
    current: Option<Stay>,
    times: Delays,
    armed_count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    /// When it fires, counted from the entry.
    delay_ns: u64,
    /// That of the next state.
    exit_latency_ns: u64,
}

/// From the first entry into a promoted state in the current gap.
#[derive(Clone, Copy, Debug)]
struct Stay {
    state: StateIndex,
    at_ns: u64,
    left_at_ns: Option<u64>,
}

impl Stuck {
    /// Observes the states that are promoted in the table of `promoted`. The replay itself may use the same
    /// setting without promotion.
    pub fn new(promoted: &Setting) -> Self {
        let Setting { states, disabled, latency_limit_ns, .. } = promoted;
        let mut stuck = Stuck { latency_limit_ns: *latency_limit_ns, ..Stuck::default() };
        for (index, timer) in stuck.timers.iter_mut().enumerate().take(states.len()) {
            let next = auto_promotion_target(states, *disabled, index);
            let delay_ns = auto_promotion_delay_ns(states, *disabled, index);
            *timer = delay_ns.zip(next).map(|(delay_ns, next)| Timer {
                delay_ns,
                exit_latency_ns: states.get(next).exit_latency_ns,
            });
        }
        stuck
    }

    /// When the timer fires that is started on entry to a state in this gap, if one is.
    fn timer_ns(&self, gap: &IdleGap, state: StateIndex) -> Option<u64> {
        let timer = self.timers[state]?;
        let in_log = gap.latency_limit_ns.is_none_or(|limit_ns| timer.exit_latency_ns <= limit_ns);
        let is_allowed = i64::try_from(timer.exit_latency_ns)
            .is_ok_and(|latency_ns| latency_ns <= self.latency_limit_ns);
        (in_log && is_allowed).then_some(timer.delay_ns)
    }

    /// Returns how many timers were started, if the replay had any.
    pub fn armed_count(&self) -> u64 {
        self.armed_count
    }

    /// Returns how long each gap left the CPU stuck.
    pub fn times(&self) -> &Delays {
        &self.times
    }

    /// Adds the gaps of another CPU or log.
    pub fn merge(&mut self, other: &Stuck) {
        self.times.merge(&other.times);
        self.armed_count += other.armed_count;
    }
}

impl Observer for Stuck {
    fn stay(&mut self, gap: &IdleGap, stay: ReplayedStay) {
        let timer_ns = self.timer_ns(gap, stay.state);
        self.armed_count += u64::from(timer_ns.is_some());
        match (&mut self.current, timer_ns) {
            (None, Some(timer_ns)) if gap.gap_ns.saturating_sub(stay.at_ns) > timer_ns => {
                self.current =
                    Some(Stay { state: stay.state, at_ns: stay.at_ns, left_at_ns: None });
            }
            (Some(current), None) if stay.state > current.state => {
                current.left_at_ns.get_or_insert(stay.at_ns);
            }
            _ => {}
        }
    }

    /// Stays that repeat enter no state that the gap has not entered before.
    fn repeat(&mut self, gap: &IdleGap, repetition: &Repetition) {
        for (index, state) in repetition.once.states.iter().enumerate() {
            if self.timer_ns(gap, index).is_some() {
                self.armed_count += state.entry_count * repetition.count;
            }
        }
    }

    fn gap(&mut self, gap: &IdleGap, _course: GapCourse) {
        if let Some(Stay { at_ns, left_at_ns, .. }) = self.current.take() {
            self.times.record(left_at_ns.unwrap_or(gap.gap_ns) - at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use idlewise_core::{Fixed, IdleState, StateTable, Verdict};
    use idlewise_trace::WakeReason;

    use super::*;
    use crate::replay::{FirstDecision, GovernorLane, Lane, ObservedLane, Setting, StayEnd};

    fn gap(gap_ns: u64) -> IdleGap {
        IdleGap {
            cpu: 0,
            start_ns: 0,
            gap_ns,
            sleep_length_ns: None,
            next_tick_ns: Some(1_000_000),
            tick_stopped: true,
            ran_task: false,
            wake_reason: WakeReason::Irq,
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        }
    }

    fn stay(state: StateIndex, at_ns: u64) -> ReplayedStay {
        let (verdict, end) = (Verdict::Fit, StayEnd::Event);
        ReplayedStay { state, at_ns, stay_ns: 0, exit_latency_ns: 0, verdict, end }
    }

    const COURSE: GapCourse = GapCourse {
        first: FirstDecision { state: 1, tick_stopped: true },
        idle_ns: 0,
        delay_ns: 0,
    };

    /// C1 and C1E are promoted, with timers of 60 and 1,000 us.
    fn promoted() -> StateTable {
        let promoted = |latency_ns, residency_ns| IdleState {
            is_auto_promoted: true,
            ..IdleState::new(latency_ns, residency_ns)
        };
        let deep = IdleState::new(200_000, 600_000);
        let states = [IdleState::POLL, promoted(1_000, 1_000), promoted(20_000, 20_000), deep];
        StateTable::new(&states).unwrap()
    }

    fn setting() -> Setting {
        Setting::new(promoted(), 4_000_000)
    }

    /// The latency limit of 100 us allows C1E, and not the deep state.
    #[test]
    fn starts_no_timer_where_the_limit_forbids_the_next_state() {
        let limited = Setting { latency_limit_ns: 100_000, ..setting() };
        let in_log = IdleGap { latency_limit_ns: Some(100_000), ..gap(9_000_000) };
        for (setting, gap) in [(limited, gap(9_000_000)), (setting(), in_log)] {
            let run = |state| {
                let stuck = Stuck::new(&setting);
                let mut lane = GovernorLane::with_observer(Fixed::State(state), setting, stuck);
                lane.replay(&[gap]);
                let fired_count = lane.tally().auto_promotion_count;
                let stuck = lane.observer_mut();
                (fired_count, stuck.armed_count(), stuck.times().count())
            };
            assert_eq!(run(2), (0, 0, 0));
            let (fired_count, armed_count, stuck_count) = run(1);
            assert!(fired_count > 10 && stuck_count == 1);
            assert_eq!(armed_count, fired_count + 1, "the last one is cancelled");
        }
    }

    #[test]
    fn is_stuck_until_a_deeper_state_that_is_not_promoted() {
        let mut stuck = Stuck::new(&setting());
        // POLL first; then C1, C1E, C1 and only then the deep state, twice.
        let long = gap(9_000_000);
        for (state, at_ns) in
            [(0, 0), (1, 10), (2, 60_000), (1, 70_000), (3, 500_010), (3, 600_000)]
        {
            stuck.stay(&long, stay(state, at_ns));
        }
        stuck.gap(&long, COURSE);
        assert_eq!(stuck.times().iter().collect::<Vec<_>>(), [(500_000, 1)]);
        // Never out; the deep state at once; and too short for the timer, which takes 60 us.
        for (states, gap_ns) in [(&[1, 1][..], 80_000), (&[3], 9_000_000), (&[1], 60_000)] {
            let gap = gap(gap_ns);
            states.iter().for_each(|state| stuck.stay(&gap, stay(*state, 0)));
            stuck.gap(&gap, COURSE);
        }
        assert_eq!(stuck.times().iter().collect::<Vec<_>>(), [(80_000, 1), (500_000, 1)]);
    }

    #[test]
    fn a_gap_that_repeats_is_stuck_to_its_end() {
        let setting = setting();
        let observer = Stuck::new(&setting);
        let mut lane = GovernorLane::with_observer(Fixed::State(1), setting, observer);
        lane.replay(&[gap(86_400_000_000_000)]);
        assert!(lane.tally().auto_promotion_count > 1_000_000_000);
        let fired_count = lane.tally().auto_promotion_count;
        let stuck = lane.observer_mut();
        assert_eq!(stuck.times().iter().collect::<Vec<_>>(), [(86_400_000_000_000, 1)]);
        assert!(stuck.armed_count() - fired_count <= 1, "all but the last fire");
    }
}
