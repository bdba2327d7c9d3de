//! The lanes that can be replayed together, in steps: a governor's, the oracle's, and plain gaps.

use idlewise_core::{FAR_AWAY_NS, Governor, STATE_COUNT_MAX, StateIndex};
use idlewise_trace::IdleGap;

use crate::idle_loop::Entry;
use crate::replay::oracle::{OracleLane, OracleStay};
use crate::replay::{
    Course, FirstDecision, GovernorLane, Lane, Observer, PlannedStay, StayEnd, Tally,
};
use crate::shared::Ask;

/// The lane of one CPU, in steps.
pub(super) trait Step: Send {
    /// Where it is in a gap.
    type Course;
    /// A stay that has begun.
    type Stay;
    /// Both, while other CPUs have their turns. It is stored and loaded for each such stay, so it is small.
    type Paused: Copy + Send;

    fn begin(&mut self, gap: &IdleGap) -> Self::Course;

    /// Returns the stay, its length, and what the CPU asks its groups for.
    fn enter(&mut self, gap: &IdleGap, course: &mut Self::Course) -> (Self::Stay, u64, Ask);

    /// Returns the time in the gap of the next entry; `None` if the gap is over.
    fn leave(
        &mut self,
        gap: &IdleGap,
        course: &mut Self::Course,
        stay: &Self::Stay,
        wait_ns: u64,
    ) -> Option<u64>;

    fn pause(course: &Self::Course, stay: &Self::Stay) -> Self::Paused;

    fn resume(&self, paused: Self::Paused) -> (Self::Course, Self::Stay);

    /// The CPU's own exit latency, if the wake event ends the stay.
    fn event_exit_ns(&self, paused: &Self::Paused) -> Option<u64>;

    fn tally(&self) -> &Tally;

    fn tally_mut(&mut self) -> &mut Tally;
}

/// What a governor's lane needs to go on.
#[derive(Clone, Copy)]
pub(super) struct PausedGovernor {
    first_tick_ns: u64,
    latency_limit_ns: i64,
    first: FirstDecision,
    idle_ns: u64,
    stay_count: u64,
    at_ns: u64,
    next_tick_at_ns: u64,
    state: StateIndex,
    tick_left_ns: u64,
    stay_ns: u64,
    end: StayEnd,
}

impl<G: Governor, O: Observer> Step for GovernorLane<G, O> {
    type Course = Course;
    type Stay = PlannedStay;
    type Paused = PausedGovernor;

    #[inline(always)]
    fn begin(&mut self, gap: &IdleGap) -> Course {
        self.tally.add_gap(gap.gap_ns, gap.sleep_length_ns.is_some());
        GovernorLane::begin(self, gap, None)
    }

    #[inline(always)]
    fn enter(&mut self, gap: &IdleGap, course: &mut Course) -> (PlannedStay, u64, Ask) {
        let stay = GovernorLane::enter(self, gap, course);
        let ask = Ask::of(&stay.entry, stay.timer_left_ns, course.latency_limit_ns);
        (stay, stay.stay_ns, ask)
    }

    #[inline(always)]
    fn leave(
        &mut self,
        gap: &IdleGap,
        course: &mut Course,
        stay: &PlannedStay,
        wait_ns: u64,
    ) -> Option<u64> {
        let is_over = GovernorLane::leave(self, gap, course, stay, wait_ns);
        (!is_over).then_some(course.at_ns)
    }

    #[inline(always)]
    fn pause(course: &Course, stay: &PlannedStay) -> PausedGovernor {
        PausedGovernor {
            first_tick_ns: course.first_tick_ns,
            latency_limit_ns: course.latency_limit_ns,
            first: course.first.expect("set on entry"),
            idle_ns: course.idle_ns,
            stay_count: course.stay_count,
            at_ns: course.at_ns,
            next_tick_at_ns: course.next_tick_at_ns,
            state: stay.entry.state,
            tick_left_ns: stay.entry.tick_left_ns,
            stay_ns: stay.stay_ns,
            end: stay.end,
        }
    }

    #[inline(always)]
    fn resume(&self, paused: PausedGovernor) -> (Course, PlannedStay) {
        let course = Course {
            first_tick_ns: paused.first_tick_ns,
            latency_limit_ns: paused.latency_limit_ns,
            feedback: None,
            first: Some(paused.first),
            idle_ns: paused.idle_ns,
            stay_count: paused.stay_count,
            at_ns: paused.at_ns,
            next_tick_at_ns: paused.next_tick_at_ns,
        };
        let entry = Entry {
            state: paused.state,
            is_overruled: false,
            tick_left_ns: paused.tick_left_ns,
            own_limit_ns: u64::MAX,
        };
        let PausedGovernor { stay_ns, end, .. } = paused;
        // Only the entry needs the timer and the CPU's own limit.
        (course, PlannedStay { entry, timer_left_ns: FAR_AWAY_NS, stay_ns, end })
    }

    #[inline(always)]
    fn event_exit_ns(&self, paused: &PausedGovernor) -> Option<u64> {
        let is_event = paused.end == StayEnd::Event;
        is_event.then(|| self.idle.rule(paused.state).exit_latency_ns)
    }

    fn tally(&self) -> &Tally {
        Lane::tally(self)
    }

    fn tally_mut(&mut self) -> &mut Tally {
        &mut self.tally
    }
}

impl<O: Observer> Step for OracleLane<O> {
    type Course = ();
    type Stay = OracleStay;
    type Paused = OracleStay;

    #[inline(always)]
    fn begin(&mut self, _gap: &IdleGap) {}

    #[inline(always)]
    fn enter(&mut self, gap: &IdleGap, _course: &mut ()) -> (OracleStay, u64, Ask) {
        let stay = OracleLane::enter(self, gap);
        (stay, gap.gap_ns, stay.ask)
    }

    #[inline(always)]
    fn leave(
        &mut self,
        gap: &IdleGap,
        _course: &mut (),
        stay: &OracleStay,
        wait_ns: u64,
    ) -> Option<u64> {
        OracleLane::leave(self, gap, *stay, wait_ns);
        None
    }

    #[inline(always)]
    fn pause(_course: &(), stay: &OracleStay) -> OracleStay {
        *stay
    }

    #[inline(always)]
    fn resume(&self, paused: OracleStay) -> ((), OracleStay) {
        ((), paused)
    }

    #[inline(always)]
    fn event_exit_ns(&self, paused: &OracleStay) -> Option<u64> {
        Some(self.exit_latency_ns(*paused))
    }

    fn tally(&self) -> &Tally {
        Lane::tally(self)
    }

    fn tally_mut(&mut self) -> &mut Tally {
        OracleLane::tally_mut(self)
    }
}

/// Idle for the whole gap, in any state.
pub(super) struct Gaps(pub(super) Tally);

impl Step for Gaps {
    type Course = ();
    type Stay = ();
    type Paused = ();

    #[inline(always)]
    fn begin(&mut self, _gap: &IdleGap) {}

    #[inline(always)]
    fn enter(&mut self, gap: &IdleGap, _course: &mut ()) -> ((), u64, Ask) {
        let state = STATE_COUNT_MAX;
        ((), gap.gap_ns, Ask { state, next_event_ns: 0, latency_limit_ns: i64::MAX })
    }

    #[inline(always)]
    fn leave(
        &mut self,
        _gap: &IdleGap,
        _course: &mut (),
        _stay: &(),
        _wait_ns: u64,
    ) -> Option<u64> {
        None
    }

    fn pause(_course: &(), _stay: &()) {}

    fn resume(&self, _paused: ()) -> ((), ()) {
        ((), ())
    }

    fn event_exit_ns(&self, _paused: &()) -> Option<u64> {
        None
    }

    fn tally(&self) -> &Tally {
        &self.0
    }

    fn tally_mut(&mut self) -> &mut Tally {
        &mut self.0
    }
}
