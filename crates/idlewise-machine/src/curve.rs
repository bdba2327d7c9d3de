//! All powers that a machine may have, where nobody published them.
//!
//! # What is known
//!
//! A state's target residency is published, and from that length of stay on the state pays. So with powers `p`,
//! the energy of a transition follows, and a stay costs a linear function of `p`. Of the powers themselves only this is
//! taken for granted:
//!
//! - none is negative, and no state draws more than a shallower one;
//! - power is a convex function of target residency, from running power at 0: each further microsecond of residency
//!   buys less than the one before;
//! - running power is between half and twice the assumed one;
//! - published powers are as published.
//!
//! # Corners
//!
//! Every falling convex function with corners at the residencies `T[1] < T[2] < …` is a sum, with weights that
//! are not negative, of a constant and of hinges `max(0, 1 - T / T[k])`: the weight of hinge k is `T[k]` times the change of
//! slope there. The weights add up to running power. So the powers are a bounded polytope in the space of weights, and
//! its corners are the basic solutions of the rules above. Nothing else is needed: an energy is linear in the
//! powers, so its least and largest value are at corners. The same holds for the ratio of two energies, which
//! rises or falls monotonically along any line on which the lower one stays positive.
//!
//! Without published powers, a corner is a single hinge: as if one state saved everything. Then two governors are compared for
//! each state as if it were the only one that pays.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::state::MachineState;

/// The power of a running core, and of one in each state, in milliwatts.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerCurve {
    /// The power of a running core.
    pub running_mw: f64,
    /// The power in each state, shallowest first.
    pub states_mw: Vec<f64>,
}

/// Running power lies between these multiples of the assumed one.
const RUNNING_RANGE: [f64; 2] = [0.5, 2.0];

/// What rounding may make of a weight that is 0, as a share of running power.
const ROUNDING: f64 = 1e-9;

impl Machine {
    /// Returns the corners of all powers that the machine may have: each quantity that is linear in them, and
    /// each ratio of two such, has its least and its largest value at one of these. The machine's own powers are among
    /// them, even if they break a rule. They are the only ones if all are published.
    pub fn power_corners(&self) -> Vec<PowerCurve> {
        let running = self.running_power_figure();
        let powers = self.powers();
        let own = PowerCurve {
            running_mw: self.running_power().mw,
            states_mw: powers.iter().map(|power| power.mw).collect(),
        };
        let is_fixed: Vec<bool> =
            self.states.iter().map(|state| state.power_figure().is_some()).collect();
        let follows = |index: usize| is_fixed[index] || self.states[index].idle().is_polling;
        if (0..self.states.len()).all(follows) && running.is_some() {
            return vec![own];
        }
        let places_ns = self.places_ns();
        let basis = hinges(&places_ns);
        let height = |hinge: usize, index: usize| basis[hinge][index];
        // A row is a rule: coefficients of the weights and of its slack, and what they come to.
        let (weight_count, slack_count) = (basis.len(), if running.is_some() { 0 } else { 2 });
        let mut rows: Vec<Vec<f64>> = Vec::new();
        let mut rule = |weights: &dyn Fn(usize) -> f64, slack: Option<(usize, f64)>, sum: f64| {
            let mut row: Vec<f64> = (0..weight_count).map(weights).collect();
            row.resize(weight_count + slack_count, 0.0);
            if let Some((index, sign)) = slack {
                row[weight_count + index] = sign;
            }
            // In shares of running power, so that rounding is small in each row.
            row.push(sum / own.running_mw);
            rows.push(row);
        };
        match running {
            Some(figure) => rule(&|_| 1.0, None, figure.mw),
            None => {
                rule(&|_| 1.0, Some((0, -1.0)), RUNNING_RANGE[0] * own.running_mw);
                rule(&|_| 1.0, Some((1, 1.0)), RUNNING_RANGE[1] * own.running_mw);
            }
        }
        // Of several states at one place, the curve goes through the deepest that is published.
        let mut through = BTreeMap::new();
        for index in (0..self.states.len()).filter(|&index| is_fixed[index]) {
            if !self.states[index].idle().is_polling {
                through.insert(places_ns[index], index);
            }
        }
        for index in through.into_values() {
            rule(&|hinge| height(hinge, index), None, own.states_mw[index]);
        }
        let mut corners = vec![own.clone()];
        for_each_choice(weight_count + slack_count, rows.len(), &mut |columns| {
            let Some(solution) = solution(&rows, columns) else { return };
            if solution.iter().any(|weight| *weight < -ROUNDING) {
                return;
            }
            let weights =
                columns.iter().zip(&solution).filter(|(column, _)| **column < weight_count);
            let weights: Vec<(usize, f64)> = weights
                .map(|(&column, weight)| (column, weight.max(0.0) * own.running_mw))
                .collect();
            let running_mw = weights.iter().map(|(_, weight)| weight).sum();
            let state_mw = |index: usize| match is_fixed[index] {
                true => own.states_mw[index],
                false => weights.iter().map(|&(hinge, weight)| weight * height(hinge, index)).sum(),
            };
            let states_mw = (0..self.states.len()).map(state_mw).collect();
            let corner = PowerCurve { running_mw, states_mw };
            if !corners.contains(&corner) {
                corners.push(corner);
            }
        });
        corners
    }

    /// Where each state lies on the curve: at its target residency. Polling is running.
    fn places_ns(&self) -> Vec<u64> {
        let place_ns = |state: &MachineState| match state.idle().is_polling {
            true => 0,
            // One that pays at once may still draw less than running.
            false => state.target_residency_ns.max(1),
        };
        self.states.iter().map(place_ns).collect()
    }
}

/// The constant and the hinges, each as its height at every state.
fn hinges(places_ns: &[u64]) -> Vec<Vec<f64>> {
    let mut ends_ns: Vec<u64> = places_ns.iter().copied().filter(|ns| *ns > 0).collect();
    ends_ns.sort_unstable();
    ends_ns.dedup();
    let mut hinges = vec![vec![1.0; places_ns.len()]];
    hinges.extend(ends_ns.into_iter().map(|end_ns| {
        let height = |&at_ns: &u64| (1.0 - at_ns as f64 / end_ns as f64).max(0.0);
        places_ns.iter().map(height).collect::<Vec<f64>>()
    }));
    hinges
}

/// Calls `each` with every choice of `count` out of `all`, in ascending order.
fn for_each_choice(all: usize, count: usize, each: &mut dyn FnMut(&[usize])) {
    let mut chosen: Vec<usize> = (0..count).collect();
    if count > all {
        return;
    }
    loop {
        each(&chosen);
        // The last one that can move up does, and those behind it follow closely.
        let Some(place) = (0..count).rev().find(|&place| chosen[place] < all - count + place)
        else {
            return;
        };
        chosen[place] += 1;
        for later in place + 1..count {
            chosen[later] = chosen[later - 1] + 1;
        }
    }
}

/// Solves the rows for these columns, all others being 0. `None` if that has not exactly one solution.
fn solution(rows: &[Vec<f64>], columns: &[usize]) -> Option<Vec<f64>> {
    let size = rows.len();
    let mut matrix: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| columns.iter().map(|&column| row[column]).chain(row.last().copied()).collect())
        .collect();
    for pivot in 0..size {
        let largest = |one: &usize, other: &usize| {
            matrix[*one][pivot].abs().total_cmp(&matrix[*other][pivot].abs())
        };
        let best = (pivot..size).max_by(largest)?;
        matrix.swap(pivot, best);
        if matrix[pivot][pivot].abs() < ROUNDING {
            return None;
        }
        let divisor = matrix[pivot][pivot];
        matrix[pivot].iter_mut().for_each(|value| *value /= divisor);
        let used = matrix[pivot].clone();
        for (index, row) in matrix.iter_mut().enumerate() {
            let factor = row[pivot];
            if index != pivot && factor != 0.0 {
                row.iter_mut().zip(&used).for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }
    Some(matrix.iter().map(|row| row[size]).collect())
}
