//! The states worth entering, from the shallowest to the deepest, and how a gap is counted that moves down
//! through them.

use idlewise_core::{STATE_COUNT_MAX, StateIndex};

use super::Stays;
use crate::cost::CostModel;
use crate::oracle::Oracle;
use crate::replay::{Setting, Tally};

/// A state that the oracle uses for some gap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rung {
    pub state: StateIndex,
    /// The shortest gap for which it is the cheapest.
    pub from_ns: u64,
    pub power_mw: f64,
    /// What a gap that ends in it pays once: its transition and its priced exit latency.
    pub fixed_uj: f64,
}

/// When each rung is entered; the first one's is 0. Ascending, `u64::MAX`: never.
pub(super) type Moves = [u64; STATE_COUNT_MAX];

/// The states on the lower envelope of costs, for one price of latency. Powers fall and fixed costs rise from one
/// to the next.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Descent {
    rungs: Vec<Rung>,
}

impl Descent {
    /// Finds them among the states that `setting` and the latency limit allow.
    pub(super) fn new(
        costs: &CostModel,
        setting: &Setting,
        latency_limit_ns: i64,
        lambda_mw: f64,
    ) -> Self {
        let oracle = Oracle::new(costs, setting, latency_limit_ns, lambda_mw);
        let rung = |&(from_ns, state): &(u64, StateIndex)| Rung {
            state,
            from_ns,
            power_mw: costs.power_mw(state),
            fixed_uj: costs.gap_uj(state, 0, lambda_mw),
        };
        Descent { rungs: oracle.segments().iter().map(rung).collect() }
    }

    #[cfg(test)]
    pub(super) fn for_tests(rungs: &[(u64, f64, f64)]) -> Self {
        let rung =
            |(state, &(from_ns, power_mw, fixed_uj))| Rung { state, from_ns, power_mw, fixed_uj };
        Descent { rungs: rungs.iter().enumerate().map(rung).collect() }
    }

    pub(super) fn rungs(&self) -> &[Rung] {
        &self.rungs
    }

    /// Enters each state when the oracle would have chosen it.
    pub(super) fn break_evens(&self) -> Moves {
        self.moves(|rung| rung.from_ns)
    }

    /// The same, all times shortened by a factor.
    pub(super) fn shortened(&self, factor: f64) -> Moves {
        self.moves(|rung| (rung.from_ns as f64 * factor) as u64)
    }

    /// Calls `at_ns` for each rung but the first.
    pub(super) fn moves(&self, mut at_ns: impl FnMut(&Rung) -> u64) -> Moves {
        let mut moves = [u64::MAX; STATE_COUNT_MAX];
        let mut earliest_ns = 0;
        for (index, rung) in self.rungs.iter().enumerate() {
            // Rounding must not let a deeper state come first.
            earliest_ns = if index == 0 { 0 } else { at_ns(rung).max(earliest_ns) };
            moves[index] = earliest_ns;
        }
        moves
    }

    /// The rung in which a gap of this length ends.
    pub(super) fn last(&self, moves: &Moves, gap_ns: u64) -> usize {
        (1..self.rungs.len()).rev().find(|&index| moves[index] <= gap_ns).unwrap_or(0)
    }

    /// Counts gaps that all end in the same rung.
    pub(super) fn count(&self, moves: &Moves, gaps: Stays, setting: &Setting, tally: &mut Tally) {
        let last = self.last(moves, gaps.least_ns);
        for index in 0..last {
            let stay_ns = moves[index + 1] - moves[index];
            tally.states[self.rungs[index].state].stay_ns += gaps.count * stay_ns;
        }
        let index = self.rungs[last].state;
        let state = &mut tally.states[index];
        state.stay_ns += gaps.sum_ns - gaps.count * moves[last];
        state.entry_count += gaps.count;
        state.wake_count += gaps.count;
        if setting.states.get(index).wakes_on_store {
            state.free_ipi_count += gaps.ipi_count;
        }
        tally.gap_count += gaps.count;
        tally.gap_ns += gaps.sum_ns;
        tally.timerless_gap_count += gaps.timerless_count;
    }
}
