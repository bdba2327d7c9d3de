//! What the states that CPUs share can save at most.

use std::sync::Arc;

use idlewise_trace::IdleGap;

use super::lanes::{Lanes, Periods};
use super::step::Gaps;
use super::{Joint, ReplayedGroups, Unit};
use crate::CostModel;
use crate::cost::SharedCosts;
use crate::replay::Tally;
use crate::shared::SharedStates;

/// Asks for the least that what the CPUs share can cost at each price, less what it costs awake: for each stretch in
/// which all CPUs of a group are in a gap, the cheapest of its shared states, or none of them. One event of the
/// stretch waits for the exit. No governor can do better, since a CPU is in no state outside of its gaps.
#[derive(Clone, Copy)]
pub struct JointBound<'a> {
    /// The CPUs.
    pub groups: &'a ReplayedGroups,
    /// The machine's costs.
    pub costs: &'a CostModel,
    /// The prices of delay.
    pub lambdas_mw: &'a [f64],
}

/// A unit's part in a bound.
pub(super) struct BoundPart {
    lanes: Lanes<Gaps>,
    shared: Arc<SharedStates>,
    costs: SharedCosts,
    lambdas_mw: Vec<f64>,
    pub(super) sums_uj: Vec<f64>,
}

impl BoundPart {
    pub(super) fn new(bound: &JointBound<'_>, unit: &Unit) -> Self {
        let shared = Arc::new(bound.groups.shared.relaxed());
        let lanes = unit.cpus.iter().map(|_| Gaps(Tally::default())).collect();
        BoundPart {
            lanes: Lanes::new(&shared, unit, lanes, Periods::Kept(Vec::new())),
            shared,
            costs: bound.costs.shared.clone(),
            lambdas_mw: bound.lambdas_mw.to_vec(),
            sums_uj: vec![0.0; bound.lambdas_mw.len()],
        }
    }

    pub(super) fn replay(&mut self, gaps: &[&[IdleGap]], until_ns: i64) {
        self.lanes.replay(gaps, until_ns);
        let Periods::Kept(periods) = &mut self.lanes.periods else { return };
        for period in periods.drain(..) {
            let stay_ns = period.end_ns.abs_diff(period.begin_ns);
            for (sum_uj, lambda_mw) in self.sums_uj.iter_mut().zip(&self.lambdas_mw) {
                let costs = self.shared.of_scope(period.scope).map(|state| {
                    let exit_ns = self.shared.rules[state].exit_latency_ns;
                    self.costs.stay_uj(state, stay_ns) + CostModel::delay_uj(exit_ns, *lambda_mw)
                });
                *sum_uj += costs.fold(0.0, f64::min);
            }
        }
    }
}
