//! What a page of replays is made from.

use idlewise_core::StateTable;
use idlewise_sim::contest::Price;
use idlewise_sim::ledger::Ledger;
use idlewise_sim::{Basis, CostModel};

use super::GovernorFacts;
use crate::verdict::InUse;

/// A machine on which logs were replayed.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "as in `Outcome`")]
pub struct ReplayedMachine<'a> {
    pub id: &'a str,
    pub state_names: &'a [String],
    pub states: StateTable,
    pub costs: &'a CostModel,
    pub power_basis: Basis,
    /// The governor in use on its logs.
    pub in_use: &'a InUse,
    /// The indices of the logs that were replayed on it; `None`: all.
    pub logs: Option<&'a [usize]>,
}

impl ReplayedMachine<'_> {
    /// Whether a log was replayed on it, or, with `None`, any.
    pub(super) fn is_for(&self, log: Option<usize>) -> bool {
        log.is_none_or(|log| self.logs.is_none_or(|logs| logs.contains(&log)))
    }
}

/// A log that was replayed.
#[derive(Clone, Debug)]
pub struct ReplayedLog {
    /// Its name.
    pub name: String,
    /// What it costs on each machine.
    pub ledger: Ledger,
}

/// Logs under governors on machines.
#[derive(Clone, Debug)]
pub struct Replayed<'a> {
    /// The machines: those of the ledgers.
    pub machines: Vec<ReplayedMachine<'a>>,
    /// The governors of the ledgers, without the oracle.
    pub governors: Vec<GovernorFacts>,
    /// Those whose file failed: they have no results.
    pub failed: Vec<usize>,
    /// Whether the oracle is listed among the governors.
    pub shows_oracle: bool,
    /// The prices of delay.
    pub prices: Vec<Price>,
    /// The logs.
    pub logs: Vec<ReplayedLog>,
    /// The name of the sum of all logs.
    pub all_name: &'a str,
}
