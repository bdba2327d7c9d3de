//! The oracle selects the cheapest state for each gap, whose length it knows in advance.
//!
//! In state i a gap of length g costs `p[i]·g + e[i] + λ·L[i]`, which is a line in g. Slopes
//! decrease from state to state, so the cheapest state as a function of g is the lower envelope of
//! the lines, with at most one breakpoint per state. The envelope is computed once; after that,
//! selecting a state takes a few comparisons.
//!
//! The oracle is not an [`idlewise_core::Governor`], because it sees the future, and the type
//! system should show that. It never needs the tick.

use idlewise_core::StateIndex;

use crate::cost::CostModel;
use crate::idle_loop::Setting;

/// The cheapest state by gap length, for one price of latency.
#[derive(Clone, Debug, PartialEq)]
pub struct Oracle {
    /// The shortest gap of each segment, ascending, and the segment's state.
    segments: Vec<(u64, StateIndex)>,
}

impl Oracle {
    /// Makes the oracle for the states that `setting` allows. If the latency limit forbids all of
    /// them, it uses the shallowest enabled state, as the governors do.
    pub fn new(
        costs: &CostModel,
        setting: &Setting,
        latency_limit_ns: i64,
        lambda_mw: f64,
    ) -> Self {
        let states = &setting.states;
        let enabled = |i: &StateIndex| !setting.disabled.contains(*i);
        let within = |i: &StateIndex| {
            states.get(*i).exit_latency_ns as i64 <= latency_limit_ns && enabled(i)
        };
        let mut allowed: Vec<StateIndex> = (0..states.len()).filter(within).collect();
        if allowed.is_empty() {
            allowed.push((0..states.len()).find(enabled).unwrap_or(0));
        }
        let mut segments: Vec<(u64, StateIndex)> = Vec::new();
        let mut from_ns = 0;
        // Walk along the envelope: the next state is the one whose line is crossed first.
        let mut current = cheapest_at(costs, lambda_mw, &allowed, 0);
        loop {
            segments.push((from_ns, current));
            let next = allowed
                .iter()
                .filter(|&&i| costs.power_mw(i) < costs.power_mw(current))
                .map(|&i| (crossing_ns(costs, lambda_mw, current, i), i))
                .min_by(|a, b| {
                    // If two lines cross at the same point, the flatter one is lower from there on.
                    a.0.cmp(&b.0).then(costs.power_mw(a.1).total_cmp(&costs.power_mw(b.1)))
                });
            let Some((crossing_ns, state)) = next.filter(|&(ns, _)| ns < u64::MAX) else { break };
            from_ns = crossing_ns.max(from_ns);
            current = state;
        }
        Oracle { segments }
    }

    /// The shortest gap of each segment, ascending, and the segment's state.
    pub(crate) fn segments(&self) -> &[(u64, StateIndex)] {
        &self.segments
    }

    /// Returns the cheapest state for a gap.
    #[inline]
    pub fn state(&self, gap_ns: u64) -> StateIndex {
        let segment = self.segments.iter().rev().find(|&&(from_ns, _)| from_ns <= gap_ns);
        segment.map_or(self.segments[0].1, |&(_, state)| state)
    }
}

fn cheapest_at(
    costs: &CostModel,
    lambda_mw: f64,
    allowed: &[StateIndex],
    gap_ns: u64,
) -> StateIndex {
    let cost = |i: StateIndex| costs.gap_uj(i, gap_ns, lambda_mw);
    let cheaper = |&a: &StateIndex, &b: &StateIndex| {
        cost(a).total_cmp(&cost(b)).then(costs.power_mw(a).total_cmp(&costs.power_mw(b)))
    };
    allowed.iter().copied().min_by(cheaper).unwrap_or(0)
}

/// The shortest gap for which `deeper` costs no more than `shallower`.
fn crossing_ns(
    costs: &CostModel,
    lambda_mw: f64,
    shallower: StateIndex,
    deeper: StateIndex,
) -> u64 {
    let fixed_uj = costs.gap_uj(deeper, 0, lambda_mw) - costs.gap_uj(shallower, 0, lambda_mw);
    let saving_mw = costs.power_mw(shallower) - costs.power_mw(deeper);
    let crossing_ns = (fixed_uj / saving_mw / crate::cost::UJ_PER_MW_NS).ceil();
    if crossing_ns.is_finite() { crossing_ns.max(0.0) as u64 } else { u64::MAX }
}
