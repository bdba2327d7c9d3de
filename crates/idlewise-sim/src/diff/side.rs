//! One of two governors that are compared: a lane that says what it spent in each gap.

use std::slice;

use idlewise_core::{Context, Decision, Device, Governor, Outcome};
use idlewise_trace::IdleGap;

use super::Expense;
use crate::cost::{CostModel, UJ_PER_MW_NS};
use crate::oracle::OracleLane;
use crate::replay::{
    FirstDecision, GapCourse, GovernorLane, Lane, Observer, ReplayedStay, Setting, Tally,
};

/// What one side did in a gap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GapExpense {
    /// Its first decision.
    pub first: FirstDecision,
    /// Its stays.
    pub stay_count: u64,
    /// What it spent.
    pub expense: Expense,
}

impl GapExpense {
    /// Energy and priced delay.
    pub fn cost_uj(&self, lambda_mw: f64) -> f64 {
        self.expense.energy_uj + lambda_mw * self.expense.delay_ns as f64 * UJ_PER_MW_NS
    }

    /// Whether the gap took another course. The tick alone makes none: what it did is in the stays.
    pub fn differs(&self, other: &GapExpense) -> bool {
        self.first.state != other.first.state
            || self.stay_count != other.stay_count
            || self.expense != other.expense
    }
}

/// One of the two, shown one gap at a time.
pub trait Side: Send {
    /// Takes the next gap.
    fn gap(&mut self, gap: &IdleGap) -> GapExpense;

    /// All of it, as [`Lane::tally`].
    fn tally(&self) -> &Tally;
}

/// A governor as a side.
pub fn governor_side(
    governor: Box<dyn Governor>,
    setting: Setting,
    costs: &CostModel,
) -> Box<dyn Side> {
    let meter = Meter { costs: costs.clone(), energy_uj: 0.0, stay_count: 0, course: None };
    Box::new(GovernorLane::with_observer(Boxed(governor), setting, meter))
}

/// The oracle at a price of latency as a side. It spends each gap in one stay, its tick stopped.
pub fn oracle_side(costs: &CostModel, setting: Setting, lambda_mw: f64) -> Box<dyn Side> {
    let lane = OracleLane::new(costs.clone(), setting, lambda_mw);
    Box::new(OracleSide { costs: costs.clone(), setting, lane })
}

/// `idlewise-core` allocates nothing, so it has no governors in boxes.
struct Boxed(Box<dyn Governor>);

impl Governor for Boxed {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        self.0.select(context, device)
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        self.0.reflect(outcome, device);
    }
}

/// Adds up what a gap costs while it is replayed.
struct Meter {
    costs: CostModel,
    energy_uj: f64,
    stay_count: u64,
    course: Option<GapCourse>,
}

impl Observer for Meter {
    #[inline]
    fn stay(&mut self, _gap: &IdleGap, stay: ReplayedStay) {
        self.energy_uj += self.costs.stay_uj(stay.state, stay.stay_ns);
        self.stay_count += 1;
    }

    #[inline]
    fn work(&mut self, work_ns: u64) {
        self.energy_uj += self.costs.running_uj(work_ns);
    }

    #[inline]
    fn gap(&mut self, _gap: &IdleGap, course: GapCourse) {
        self.course = Some(course);
    }
}

impl Side for GovernorLane<Boxed, Meter> {
    fn gap(&mut self, gap: &IdleGap) -> GapExpense {
        let meter = self.observer_mut();
        (meter.energy_uj, meter.stay_count) = (0.0, 0);
        self.replay(slice::from_ref(gap));
        let meter = self.observer_mut();
        let course = meter.course.expect("a lane shows each gap to its observer");
        GapExpense {
            first: course.first,
            stay_count: meter.stay_count,
            expense: Expense { delay_ns: course.delay_ns, energy_uj: meter.energy_uj },
        }
    }

    fn tally(&self) -> &Tally {
        Lane::tally(self)
    }
}

struct OracleSide {
    costs: CostModel,
    setting: Setting,
    lane: OracleLane,
}

impl Side for OracleSide {
    fn gap(&mut self, gap: &IdleGap) -> GapExpense {
        self.lane.replay(slice::from_ref(gap));
        let state = self.lane.state(gap);
        GapExpense {
            first: FirstDecision { state, tick_stopped: true },
            stay_count: 1,
            expense: Expense {
                delay_ns: self.setting.states.get(state).exit_latency_ns,
                energy_uj: self.costs.stay_uj(state, gap.gap_ns),
            },
        }
    }

    fn tally(&self) -> &Tally {
        self.lane.tally()
    }
}
