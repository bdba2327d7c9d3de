//! The cost of a tally: energy, plus delay at a price.
//!
//! State i has exit latency L, target residency T and power p. The energy of a transition is not
//! published, but it follows from the target residency: a stay of length T breaks even with the
//! next shallower state. So `e[i] = e[i-1] + (p[i-1] − p[i])·T[i]` with `e[0] = 0`. A stay of
//! length d costs `p[i]·d + e[i]`, and an event's delay costs `λ·delay`. λ, which is a power, is
//! the price of latency.
//!
//! L is what leaving takes in the mean: the declared worst case, unless the machine's file has measured
//! or published times.
//!
//! With one state and one alternative, no online policy can guarantee a cost below twice the
//! oracle's, or e/(e−1) ≈ 1.58 times if it is randomised (Karlin et al., 1994).

use std::sync::Arc;

use idlewise_core::{STATE_COUNT_MAX, StateIndex, StateTable};
use idlewise_machine::{PowerCurve, SHARED_STATE_COUNT_MAX, Scope};

use crate::exits::Exits;
use crate::tally::{SCOPE_COUNT, SharedStateTally, Tally};
use crate::{Machine, MachineError};

/// Converts mW·ns to µJ: a milliwatt for a nanosecond is a picojoule.
pub const UJ_PER_MW_NS: f64 = 1e-6;

/// Powers and transition energies of a machine's states.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    powers_mw: [f64; STATE_COUNT_MAX],
    transitions_uj: [f64; STATE_COUNT_MAX],
    states: StateTable,
    exits: Exits,
    /// The power of a running CPU.
    pub running_mw: f64,
    /// The energy of what CPUs share.
    pub(crate) shared: SharedCosts,
    /// Those with the other powers that the machine may have; see [`CostModel::corners`].
    corners: Arc<[CostModel]>,
}

/// Powers of what CPUs share, by scope, and what their shared states save. A stay in a shared state of the
/// length of its target residency breaks even with the next shallower one, and the shallowest with being awake.
/// Unknown powers are 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SharedCosts {
    awake_mw: [f64; SCOPE_COUNT],
    /// The power in each state less the power awake.
    saved_mw: [f64; SHARED_STATE_COUNT_MAX],
    transitions_uj: [f64; SHARED_STATE_COUNT_MAX],
}

impl SharedCosts {
    fn of(machine: &Machine) -> Self {
        let mut costs = SharedCosts::default();
        let mut before: Option<(Scope, f64, f64)> = None;
        for (index, state) in machine.shared_states().take(SHARED_STATE_COUNT_MAX).enumerate() {
            let (Some(scope), Some(awake_mw), Some(power_mw)) =
                (state.scope, state.awake_power_mw, state.power_mw)
            else {
                continue;
            };
            costs.awake_mw[scope as usize] = awake_mw;
            let (shallower_mw, shallower_uj) = match before {
                Some((same, mw, uj)) if same == scope => (mw, uj),
                _ => (awake_mw, 0.0),
            };
            let break_even_ns = state.target_residency_ns as f64;
            let transition_uj =
                shallower_uj + (shallower_mw - power_mw) * break_even_ns * UJ_PER_MW_NS;
            costs.saved_mw[index] = awake_mw - power_mw;
            costs.transitions_uj[index] = transition_uj;
            before = Some((scope, power_mw, transition_uj));
        }
        costs
    }

    /// The energy of a stay in a state, less that of being awake.
    pub(crate) fn stay_uj(&self, state: usize, stay_ns: u64) -> f64 {
        self.transitions_uj[state] - self.saved_mw[state] * stay_ns as f64 * UJ_PER_MW_NS
    }

    /// The energy of what CPUs share, if it is awake all the time.
    fn awake_uj(&self, tally: &Tally) -> f64 {
        let scopes = self.awake_mw.iter().zip(tally.group_ns);
        scopes.map(|(mw, group_ns)| mw * group_ns as f64 * UJ_PER_MW_NS).sum()
    }

    fn energy_uj(&self, tally: &Tally) -> f64 {
        let states = tally.shared.iter().enumerate().map(|(index, state)| {
            self.transitions_uj[index] * state.entry_count as f64
                - self.saved_mw[index] * state.stay_ns as f64 * UJ_PER_MW_NS
        });
        self.awake_uj(tally) + states.sum::<f64>()
    }
}

impl CostModel {
    /// Makes the model for `states` with these powers, shallowest first. The last one is repeated. Leaving a state
    /// takes what it declares.
    pub fn new(states: StateTable, powers_mw: &[f64], running_mw: f64) -> Self {
        let power_mw = |i: usize| powers_mw.get(i).or(powers_mw.last()).copied().unwrap_or(0.0);
        let mut transitions_uj = [0.0; STATE_COUNT_MAX];
        for i in 1..states.len() {
            let saved_mw = power_mw(i - 1) - power_mw(i);
            let break_even_ns = states.get(i).target_residency_ns as f64;
            transitions_uj[i] = transitions_uj[i - 1] + saved_mw * break_even_ns * UJ_PER_MW_NS;
        }
        CostModel {
            powers_mw: std::array::from_fn(power_mw),
            transitions_uj,
            exits: Exits::declared(&states),
            states,
            running_mw,
            shared: SharedCosts::default(),
            corners: Arc::new([]),
        }
    }

    /// Makes the model of a machine.
    ///
    /// # Errors
    /// Fails if the machine has no states; see [`Machine::table`].
    pub fn of(machine: &Machine) -> Result<Self, MachineError> {
        let (table, shared) = (machine.table()?, SharedCosts::of(machine));
        let exits = Exits::of(machine);
        let with = |curve: &PowerCurve| CostModel {
            shared: shared.clone(),
            exits: exits.clone(),
            ..CostModel::new(table, &curve.states_mw, curve.running_mw)
        };
        // The first is the machine's own.
        let corners = machine.power_corners();
        let others = corners[1..].iter().map(with).collect();
        Ok(CostModel { corners: others, ..with(&corners[0]) })
    }

    /// The models with other powers that the machine may have, as
    /// `idlewise_machine::PowerCurve` says: a figure that is linear in the powers, or the ratio of two such,
    /// has its extremes under these and this model. Empty if all powers are published.
    pub fn corners(&self) -> &[CostModel] {
        &self.corners
    }

    /// This model, and then the others.
    pub fn with_corners(&self) -> impl Iterator<Item = &CostModel> + Clone {
        std::iter::once(self).chain(self.corners())
    }

    /// The states.
    pub fn states(&self) -> &StateTable {
        &self.states
    }

    /// How long leaving each state takes.
    pub fn exits(&self) -> &Exits {
        &self.exits
    }

    /// The same costs, if leaving states took these times.
    #[must_use]
    pub fn with_exits(mut self, exits: &Exits) -> Self {
        self.corners = self.corners.iter().map(|it| it.clone().with_exits(exits)).collect();
        self.exits = exits.clone();
        self
    }

    /// The power of state `index`.
    pub fn power_mw(&self, index: StateIndex) -> f64 {
        self.powers_mw[index]
    }

    /// The energy of entering and leaving state `index`.
    pub fn transition_uj(&self, index: StateIndex) -> f64 {
        self.transitions_uj[index]
    }

    /// The price of latency that counts as 1: the power of polling, or of running if no state
    /// polls.
    pub fn full_price_mw(&self) -> f64 {
        if self.states.get(0).is_polling { self.powers_mw[0] } else { self.running_mw }
    }

    /// The energy of a stay of `stay_ns`, including entry and exit.
    #[inline]
    pub fn stay_uj(&self, index: StateIndex, stay_ns: u64) -> f64 {
        self.stays_uj(index, 1, stay_ns)
    }

    /// The energy of `entry_count` stays that take `stay_ns` in total.
    #[inline]
    pub fn stays_uj(&self, index: StateIndex, entry_count: u64, stay_ns: u64) -> f64 {
        self.powers_mw[index] * stay_ns as f64 * UJ_PER_MW_NS
            + self.transitions_uj[index] * entry_count as f64
    }

    /// The energy of running for `work_ns`.
    #[inline]
    pub fn running_uj(&self, work_ns: u64) -> f64 {
        self.running_mw * work_ns as f64 * UJ_PER_MW_NS
    }

    /// The cost of spending a whole gap in one state, including the delay at its end.
    pub fn gap_uj(&self, index: StateIndex, gap_ns: u64, lambda_mw: f64) -> f64 {
        let delay_ns = self.exits.mean_ns(index) as f64;
        self.stay_uj(index, gap_ns) + lambda_mw * delay_ns * UJ_PER_MW_NS
    }

    /// The energy of everything in a tally.
    pub fn energy_uj(&self, tally: &Tally) -> f64 {
        let states: f64 = (0..self.states.len())
            .map(|i| {
                let state = &tally.states[i];
                self.stays_uj(i, state.entry_count, state.stay_ns)
            })
            .sum();
        states + self.running_uj(tally.work_ns) + self.shared_uj(tally)
    }

    /// The state whose power decides most about which of two tallies has more energy, among those whose power is not
    /// published: each one may draw as little as the next deeper state, and as much as the next shallower one. `None`: it
    /// is the power of a running core, within the corners'.
    pub fn decisive_state(&self, one: &Tally, other: &Tally) -> Option<StateIndex> {
        let work_ns = one.work_ns as f64 - other.work_ns as f64;
        let [one, other] = [one, other].map(|tally| self.energy_slopes(tally));
        let mut running_slope = work_ns * UJ_PER_MW_NS;
        let mut largest = (0.0, None);
        for state in 0..self.states.len() {
            let slope = one[state] - other[state];
            if self.states.get(state).is_polling {
                running_slope += slope;
                continue;
            }
            let above_mw = if state == 0 { self.running_mw } else { self.powers_mw[state - 1] };
            let below_mw =
                if state + 1 < self.states.len() { self.powers_mw[state + 1] } else { 0.0 };
            let effect = slope.abs() * (above_mw - below_mw).max(0.0);
            let is_known = |it: &CostModel| it.powers_mw[state] == self.powers_mw[state];
            if effect > largest.0 && !self.corners.iter().all(is_known) {
                largest = (effect, Some(state));
            }
        }
        let [least_mw, most_mw] =
            self.corners.iter().fold([self.running_mw; 2], |[low, high], it| {
                [low.min(it.running_mw), high.max(it.running_mw)]
            });
        if running_slope.abs() * (most_mw - least_mw) > largest.0 { None } else { largest.1 }
    }

    /// By how much the energy grows with the power of each state, in uJ per mW: the time in it, and what its power
    /// changes in the energy of transitions.
    fn energy_slopes(&self, tally: &Tally) -> [f64; STATE_COUNT_MAX] {
        let mut slopes = [0.0; STATE_COUNT_MAX];
        let (mut deeper_ns, mut entry_count) = (0.0, 0);
        for i in (0..self.states.len()).rev() {
            entry_count += tally.states[i].entry_count;
            // The shallowest state's transition is free.
            let break_even_ns = if i == 0 { 0 } else { self.states.get(i).target_residency_ns };
            let own_ns = break_even_ns as f64 * entry_count as f64;
            slopes[i] = (tally.states[i].stay_ns as f64 + deeper_ns - own_ns) * UJ_PER_MW_NS;
            deeper_ns = own_ns;
        }
        slopes
    }

    /// The energy of being in idle states, without entering and leaving them.
    pub fn idle_uj(&self, tally: &Tally) -> f64 {
        (0..self.states.len()).map(|i| self.stays_uj(i, 0, tally.states[i].stay_ns)).sum()
    }

    /// The part of it that what CPUs share consumes. It is 0 if they were replayed alone, or if the machine's file
    /// does not say the powers.
    pub fn shared_uj(&self, tally: &Tally) -> f64 {
        self.shared.energy_uj(tally)
    }

    /// The same without any shared state.
    pub fn shared_awake_uj(&self, tally: &Tally) -> f64 {
        self.shared.awake_uj(tally)
    }

    /// What a shared state saved, with its transitions. `None` if its power is unknown.
    pub fn shared_saving_uj(&self, tally: &Tally, state: usize) -> Option<f64> {
        let SharedCosts { saved_mw, transitions_uj, .. } = &self.shared;
        let SharedStateTally { entry_count, stay_ns, .. } = tally.shared[state];
        (saved_mw[state] > 0.0).then(|| {
            saved_mw[state] * stay_ns as f64 * UJ_PER_MW_NS
                - transitions_uj[state] * entry_count as f64
        })
    }

    /// The energy and priced delay of everything in a tally.
    pub fn cost_uj(&self, tally: &Tally, lambda_mw: f64) -> f64 {
        self.energy_uj(tally) + Self::delay_uj(tally.delay_sum_ns(&self.exits), lambda_mw)
    }

    /// The price of delays that add up to this.
    pub fn delay_uj(delay_sum_ns: u64, lambda_mw: f64) -> f64 {
        lambda_mw * delay_sum_ns as f64 * UJ_PER_MW_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idlewise_core::IdleState;

    fn model() -> CostModel {
        let c1 = IdleState::new(1_000, 1_000);
        let c6 = IdleState::new(290_000, 800_000);
        let states = StateTable::new(&[IdleState::POLL, c1, c6]).unwrap();
        CostModel::new(states, &[4_000.0, 1_000.0, 100.0], 4_000.0)
    }

    #[test]
    fn neighbours_break_even_at_the_deeper_ones_target_residency() {
        let model = model();
        for (i, gap_ns) in [(1, 1_000), (2, 800_000)] {
            let (shallow, deep) = (model.gap_uj(i - 1, gap_ns, 0.0), model.gap_uj(i, gap_ns, 0.0));
            assert!((shallow - deep).abs() < 1e-9, "{shallow} {deep}");
        }
        // By hand: (4000 − 1000) mW · 1 µs = 3 µJ, and (1000 − 100) mW · 800 µs = 720 µJ more.
        assert!((model.transition_uj(2) - 723.0).abs() < 1e-9);
    }

    /// Three quarters of the exits take 100 us, the others up to the declared 290.
    #[test]
    fn delays_follow_the_machines_percentiles_and_cost_their_mean() {
        let mut machine = Machine::new("m", "m", Default::default(), "invented");
        let mut c6 = crate::MachineState::new("C6", 290_000, 800_000);
        c6.exit_percentiles_us = vec![[75.0, 100.0], [100.0, 290.0]];
        machine.states = vec![crate::MachineState::new("C1", 1_000, 1_000), c6];
        let costs = CostModel::of(&machine).unwrap();
        let mut tally = Tally::default();
        (tally.states[0].wake_count, tally.states[1].wake_count) = (500, 1_000);
        let delays = tally.delays(costs.exits());
        assert_eq!(delays.count(), 1_500);
        let quantiles = [0.3, 0.5, 0.99].map(|ratio| delays.quantile_ns(ratio).unwrap());
        // 1,485 of 1,500 are 985 of C6's 1,000: 100 + 190 · 235 / 250.
        assert_eq!(quantiles[..2], [1_000, 100_000]);
        assert!(quantiles[2].abs_diff(278_600) < 1_000, "{quantiles:?}");
        assert_eq!(tally.delay_sum_ns(costs.exits()), delays.sum_ns());
        // 0.75 · 100 + 0.25 · 195 us
        assert_eq!(costs.exits().means_ns()[..2], [1_000, 123_750]);
        let mean_uj = costs.gap_uj(1, 0, 1_000.0) - costs.gap_uj(1, 0, 0.0);
        assert!((mean_uj - 123.75).abs() < 1e-6, "{mean_uj}");
        // Other powers have the same exits.
        assert!(costs.corners().iter().all(|it| it.exits() == costs.exits()));
        assert!(!costs.corners().is_empty());
    }

    #[test]
    fn the_slope_of_energy_is_what_a_milliwatt_changes() {
        let mut tally = Tally::default();
        for (i, (count, stay_ns)) in
            [(3, 70_000), (20, 900_000), (5, 9_000_000)].into_iter().enumerate()
        {
            (tally.states[i].entry_count, tally.states[i].stay_ns) = (count, stay_ns);
        }
        let model = model();
        let slopes = model.energy_slopes(&tally);
        for state in 0..3 {
            let mut powers_mw = [4_000.0, 1_000.0, 100.0];
            powers_mw[state] += 1.0;
            let more = CostModel::new(model.states, &powers_mw, 4_000.0);
            let change_uj = more.energy_uj(&tally) - model.energy_uj(&tally);
            assert!((change_uj - slopes[state]).abs() < 1e-6, "{state}: {change_uj} {slopes:?}");
        }
    }

    #[test]
    fn adds_up_stays_transitions_work_and_delay() {
        let mut tally = Tally { work_ns: 10_000, ..Tally::default() };
        tally.states[2].entry_count = 2;
        tally.states[2].stay_ns = 5_000_000;
        tally.states[2].wake_count = 1;
        tally.overruns.record(20_000);
        // 100 mW · 5 ms + 2 · 723 µJ + 4 W · 10 µs
        assert!((model().energy_uj(&tally) - (500.0 + 1_446.0 + 40.0)).abs() < 1e-9);
        // and 1 W · (290 + 20) µs
        assert!((model().cost_uj(&tally, 1_000.0) - (1_986.0 + 310.0)).abs() < 1e-9);
    }
}
