//! One of two compared governors: a lane that reports what each gap cost.

use std::{mem, slice};

use idlewise_core::{Governor, Verdict};
use idlewise_trace::IdleGap;

use super::Expense;
use crate::cost::{CostModel, UJ_PER_MW_NS};
use crate::idle_loop::Boxed;
use crate::replay::{
    FirstDecision, GapCourse, GovernorLane, Lane, ObservedLane, Observer, OracleLane, ReplayedStay,
    Setting, Tally,
};

/// What one governor did in a gap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapExpense {
    /// Its first decision.
    pub first: FirstDecision,
    /// What the kernel would count for its first stay.
    pub first_verdict: Verdict,
    /// The number of its stays.
    pub stay_count: u64,
    /// The delay and energy of the gap.
    pub expense: Expense,
}

impl GapExpense {
    /// Returns the energy plus the priced delay.
    pub fn cost_uj(&self, lambda_mw: f64) -> f64 {
        self.expense.energy_uj + lambda_mw * self.expense.delay_ns as f64 * UJ_PER_MW_NS
    }

    /// Returns whether the gap went differently. The tick's effect shows in the stays.
    pub fn differs(&self, other: &GapExpense) -> bool {
        self.first.state != other.first.state
            || self.stay_count != other.stay_count
            || self.expense != other.expense
    }
}

/// One of two compared governors, fed one gap at a time.
pub trait ComparedGovernor: Send {
    /// Replays the next gap.
    fn gap(&mut self, gap: &IdleGap) -> GapExpense;

    /// Returns the total so far, like [`Lane::tally`].
    fn tally(&self) -> &Tally;
}

/// Wraps a governor.
pub fn governor_side(
    governor: Box<dyn Governor>,
    setting: Setting,
    costs: &CostModel,
) -> Box<dyn ComparedGovernor> {
    let lane = GovernorLane::with_observer(Boxed(governor), setting, LastCourse::default());
    Box::new(GovernorSide { lane, costs: costs.clone() })
}

/// Wraps the oracle at a price of latency. It spends each gap in one stay, its tick stopped.
pub fn oracle_side(
    costs: &CostModel,
    setting: Setting,
    lambda_mw: f64,
) -> Box<dyn ComparedGovernor> {
    let observer = LastCourse::default();
    let lane = OracleLane::with_observer(costs.clone(), setting, lambda_mw, observer);
    Box::new(OracleSide { costs: costs.clone(), setting, lane })
}

/// Keeps the course of the last gap, and the verdict on its first stay.
#[derive(Default)]
struct LastCourse {
    first: Option<Verdict>,
    course: Option<GapCourse>,
}

impl Observer for LastCourse {
    #[inline]
    fn stay(&mut self, _gap: &IdleGap, stay: ReplayedStay) {
        self.first.get_or_insert(stay.verdict);
    }

    #[inline]
    fn gap(&mut self, _gap: &IdleGap, course: GapCourse) {
        self.course = Some(course);
    }
}

struct GovernorSide {
    lane: GovernorLane<Boxed, LastCourse>,
    costs: CostModel,
}

impl ComparedGovernor for GovernorSide {
    fn gap(&mut self, gap: &IdleGap) -> GapExpense {
        let (states, work_ns) = (self.lane.tally().states, self.lane.tally().work_ns);
        self.lane.replay(slice::from_ref(gap));
        let LastCourse { first, course } = mem::take(self.lane.observer_mut());
        let course = course.expect("a lane shows each gap to its observer");
        let first_verdict = first.expect("a gap has a stay");
        let tally = self.lane.tally();
        // Only integers have been summed so far, so the order does not affect the result.
        let mut energy_uj = self.costs.running_uj(tally.work_ns - work_ns);
        let mut stay_count = 0;
        for (index, (after, before)) in tally.states.iter().zip(&states).enumerate() {
            let entry_count = after.entry_count - before.entry_count;
            if entry_count > 0 {
                let stay_ns = after.stay_ns - before.stay_ns;
                energy_uj += self.costs.stays_uj(index, entry_count, stay_ns);
                stay_count += entry_count;
            }
        }
        GapExpense {
            first: course.first,
            first_verdict,
            stay_count,
            expense: Expense { delay_ns: course.delay_ns, energy_uj },
        }
    }

    fn tally(&self) -> &Tally {
        self.lane.tally()
    }
}

struct OracleSide {
    costs: CostModel,
    setting: Setting,
    lane: OracleLane<LastCourse>,
}

impl ComparedGovernor for OracleSide {
    fn gap(&mut self, gap: &IdleGap) -> GapExpense {
        self.lane.replay(slice::from_ref(gap));
        let LastCourse { first, .. } = mem::take(self.lane.observer_mut());
        let state = self.lane.state(gap);
        GapExpense {
            first: FirstDecision { state, tick_stopped: true },
            first_verdict: first.expect("a gap has a stay"),
            stay_count: 1,
            expense: Expense {
                delay_ns: self.setting.exits_ns[state],
                energy_uj: self.costs.stay_uj(state, gap.gap_ns),
            },
        }
    }

    fn tally(&self) -> &Tally {
        self.lane.tally()
    }
}
