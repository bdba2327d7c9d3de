//! How long gaps leave a CPU in a state that is auto-promoted: with the timer, and without it.
//!
//! Only those gaps count in which the timer has time to fire: when the CPU enters the first such state, the
//! gap goes on for longer than the timer takes. From that entry the CPU is *stuck* until it enters a deeper
//! state that is not promoted itself, or until the gap ends. So a gap counts alike with and without the
//! timer, although the governor may choose otherwise in later ones, because it learns from shorter stays.

use idlewise_core::{
    DisabledMask, STATE_COUNT_MAX, StateIndex, StateTable, auto_promotion_delay_ns,
};
use idlewise_trace::IdleGap;

use super::{Delays, GapCourse, Observer, Repetition, ReplayedStay};

/// Observes how long each gap leaves the CPU in a promoted state.
#[derive(Clone, Debug, Default)]
pub struct Stuck {
    /// When the timer of each state fires, counted from the entry; `None` for a state without a timer.
    timers_ns: [Option<u64>; STATE_COUNT_MAX],
    current: Option<Stay>,
    times: Delays,
}

/// From the first entry into a promoted state in the current gap.
#[derive(Clone, Copy, Debug)]
struct Stay {
    state: StateIndex,
    at_ns: u64,
    left_at_ns: Option<u64>,
}

impl Stuck {
    /// Observes the states of a table that are promoted there. The replay itself may use the same table
    /// without promotion.
    pub fn new(promoted: &StateTable, disabled: DisabledMask) -> Self {
        let mut timers_ns = [None; STATE_COUNT_MAX];
        for (index, timer_ns) in timers_ns.iter_mut().enumerate().take(promoted.len()) {
            *timer_ns = auto_promotion_delay_ns(promoted, disabled, index);
        }
        Stuck { timers_ns, ..Stuck::default() }
    }

    /// Returns whether the state has a timer.
    pub fn is_promoted(&self, state: StateIndex) -> bool {
        self.timers_ns[state].is_some()
    }

    /// Returns how long each gap left the CPU stuck.
    pub fn times(&self) -> &Delays {
        &self.times
    }

    /// Adds the gaps of another CPU or log.
    pub fn merge(&mut self, other: &Stuck) {
        self.times.merge(&other.times);
    }
}

impl Observer for Stuck {
    fn stay(&mut self, gap: &IdleGap, stay: ReplayedStay) {
        match (&mut self.current, self.timers_ns[stay.state]) {
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
    fn repeat(&mut self, _gap: &IdleGap, _repetition: &Repetition) {}

    fn gap(&mut self, gap: &IdleGap, _course: GapCourse) {
        if let Some(Stay { at_ns, left_at_ns, .. }) = self.current.take() {
            self.times.record(left_at_ns.unwrap_or(gap.gap_ns) - at_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use idlewise_core::{Fixed, IdleState, Verdict};
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

    #[test]
    fn is_stuck_until_a_deeper_state_that_is_not_promoted() {
        let mut stuck = Stuck::new(&promoted(), DisabledMask::NONE);
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
        let states = promoted();
        let setting = Setting::new(states, 4_000_000);
        let observer = Stuck::new(&states, DisabledMask::NONE);
        let mut lane = GovernorLane::with_observer(Fixed::State(1), setting, observer);
        lane.replay(&[gap(86_400_000_000_000)]);
        assert!(lane.tally().auto_promotion_count > 1_000_000_000);
        let times: Vec<_> = lane.observer_mut().times().iter().collect();
        assert_eq!(times, [(86_400_000_000_000, 1)]);
    }
}
