//! How long leaving each state of a machine takes.

use std::sync::Arc;

use idlewise_core::{STATE_COUNT_MAX, StateIndex, StateTable};
use idlewise_machine::{ExitTimes, Machine};

/// The times of each state. A clone is cheap.
#[derive(Clone, Debug, PartialEq)]
pub struct Exits(Arc<[ExitTimes]>);

impl FromIterator<ExitTimes> for Exits {
    /// Takes those of each state, shallowest first.
    fn from_iter<I: IntoIterator<Item = ExitTimes>>(times: I) -> Self {
        Exits(times.into_iter().collect())
    }
}

impl Exits {
    /// Always what the table declares, which is the worst case.
    pub fn declared(states: &StateTable) -> Self {
        states.as_slice().iter().map(|state| ExitTimes::constant(state.exit_latency_ns)).collect()
    }

    /// What the machine's file says: measured or published times where it has them.
    pub fn of(machine: &Machine) -> Self {
        machine.states.iter().map(|state| state.exit_times()).collect()
    }

    /// The times of a state; of one that the table lacks, none.
    pub fn get(&self, state: StateIndex) -> Option<&ExitTimes> {
        self.0.get(state)
    }

    /// The mean of a state.
    pub fn mean_ns(&self, state: StateIndex) -> u64 {
        self.get(state).map_or(0, ExitTimes::mean_ns)
    }

    /// The mean of each state, for a replay's [`Setting`](crate::replay::Setting).
    pub fn means_ns(&self) -> [u64; STATE_COUNT_MAX] {
        std::array::from_fn(|state| self.mean_ns(state))
    }
}
