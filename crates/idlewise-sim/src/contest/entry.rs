//! What a player's replay came to, and what that costs. A replay does not depend on powers and prices, so they can be
//! applied later. Only the oracle does, and who is told the price; these have a result for each.

use idlewise_core::STATE_COUNT_MAX;
use serde::Serialize;

use super::{Price, Shape};
use crate::replay::{StateTally, Tally};
use crate::{CostModel, Machine, RIVALS};

/// Everything that a cell depends on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellInputs {
    /// The version of what computes results.
    pub engine: u32,
    /// The SHA-256 of the log's file.
    pub log_sha256: String,
    /// The machine's id.
    pub machine: String,
    /// The SHA-256 of the machine's fields.
    pub machine_sha256: String,
    /// The governor's id.
    pub governor: String,
    /// The hash of a governor's file, of what it includes and of its compiler.
    pub governor_key: Option<String>,
    /// The tick's frequency; absent: the recording's.
    pub hz: Option<u32>,
    /// The longest exit latency that is allowed, in addition to the log's limits.
    pub latency_limit_us: Option<u32>,
    /// How long the CPU runs for a tick.
    pub tick_work_ns: u64,
    /// The oracle's power shape and price of delay, in times the power of polling.
    pub priced: Option<(String, f64)>,
}

/// What came out of a replay.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the columns of the report say what each is")]
pub struct CellResult {
    pub inputs: CellInputs,
    /// The tick's frequency that was used.
    pub hz: u32,
    pub gap_count: u64,
    pub gap_ns: u64,
    pub decision_count: u64,
    pub too_deep_count: u64,
    pub too_shallow_count: u64,
    pub forbidden_count: u64,
    pub delay_p50_ns: Option<u64>,
    pub delay_p90_ns: Option<u64>,
    pub delay_p99_ns: Option<u64>,
    pub delay_p999_ns: Option<u64>,
    pub delay_max_ns: Option<u64>,
    pub delay_sum_ns: u64,
    pub energy_uj: f64,
    pub polling_mw: f64,
    pub tick_wake_count: u64,
    pub free_ipi_count: u64,
    pub timer_read_count: u64,
    pub work_ns: u64,
    /// The names of the machine's states, shallowest first, with their entries and the time in them.
    pub states: Vec<(String, u64, u64)>,
}

impl CellResult {
    /// Makes the result of a tally on a machine with these costs.
    pub fn new(
        inputs: CellInputs,
        hz: u32,
        tally: &Tally,
        machine: &Machine,
        costs: &CostModel,
    ) -> Self {
        let delays = tally.delays(costs.exits());
        let names = machine.states.iter().map(|state| state.name.clone());
        let states = names.zip(&tally.states);
        CellResult {
            inputs,
            hz,
            gap_count: tally.gap_count,
            gap_ns: tally.gap_ns,
            decision_count: tally.decision_count(),
            too_deep_count: tally.too_deep_count(),
            too_shallow_count: tally.too_shallow_count(),
            forbidden_count: tally.forbidden_count,
            delay_p50_ns: delays.quantile_ns(0.5),
            delay_p90_ns: delays.quantile_ns(0.9),
            delay_p99_ns: delays.quantile_ns(0.99),
            delay_p999_ns: delays.quantile_ns(0.999),
            delay_max_ns: delays.max_ns(),
            delay_sum_ns: delays.sum_ns(),
            energy_uj: costs.energy_uj(tally),
            polling_mw: Price::FULL.lambda_mw(costs),
            tick_wake_count: tally.tick_wake_count,
            free_ipi_count: tally.free_ipi_count(),
            timer_read_count: tally.timer_read_count,
            work_ns: tally.work_ns,
            states: states.map(|(name, it)| (name, it.entry_count, it.stay_ns)).collect(),
        }
    }

    /// Returns energy, with powers that may differ from the machine's, and the mean delay.
    pub fn spent(&self, costs: &CostModel) -> Spent {
        Spent {
            energy_uj: self.cost_uj(costs, 0.0),
            delay_mean_ns: self.delay_sum_ns as f64 / self.gap_count.max(1) as f64,
        }
    }

    /// Returns energy and priced delay, with powers that may differ from the machine's. It is, to the last bit,
    /// what the model says of the tally.
    pub fn cost_uj(&self, costs: &CostModel, lambda_mw: f64) -> f64 {
        let mut tally = Tally { work_ns: self.work_ns, ..Tally::default() };
        for (index, (_, entry_count, stay_ns)) in
            self.states.iter().enumerate().take(STATE_COUNT_MAX)
        {
            tally.states[index] = StateTally {
                entry_count: *entry_count,
                stay_ns: *stay_ns,
                ..StateTally::default()
            };
        }
        costs.energy_uj(&tally) + CostModel::delay_uj(self.delay_sum_ns, lambda_mw)
    }

    /// How often per decision; `None` of rivals, whose stays are parts of descents: the kernel's rule does not apply to them.
    pub fn share(&self, count: u64) -> Option<f64> {
        let is_judged = !RIVALS.iter().any(|rival| rival.name == self.inputs.governor);
        (is_judged && self.decision_count > 0).then(|| count as f64 / self.decision_count as f64)
    }
}

/// Energy, and delay before it is priced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// The energy of all gaps.
    pub energy_uj: f64,
    /// The mean delay of a wake event.
    pub delay_mean_ns: f64,
}

/// A governor on a log, a machine and a setting, at one price and shape of powers, beside the oracle.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The log's name.
    pub log: String,
    /// The governor's name.
    pub governor: String,
    /// The shape of the powers.
    pub shape: Shape,
    /// The price of delay.
    pub price: Price,
    /// What came out of the replay.
    pub result: CellResult,
    /// Energy and priced delay.
    pub cost_uj: f64,
    /// The oracle's at the same price.
    pub oracle_cost_uj: f64,
    /// What the cost is made of.
    pub spent: Spent,
    /// The oracle's.
    pub oracle_spent: Spent,
}

impl Entry {
    /// Prices a result and the oracle's.
    pub fn new(
        (log, governor): (&str, String),
        (shape, price): (Shape, Price),
        costs: &CostModel,
        result: &CellResult,
        oracle: &CellResult,
    ) -> Self {
        let lambda_mw = price.lambda_mw(costs);
        Entry {
            log: log.to_owned(),
            governor,
            shape,
            price,
            cost_uj: result.cost_uj(costs, lambda_mw),
            oracle_cost_uj: oracle.cost_uj(costs, lambda_mw),
            spent: result.spent(costs),
            oracle_spent: oracle.spent(costs),
            result: result.clone(),
        }
    }

    /// The machine's id.
    pub fn machine(&self) -> &str {
        &self.result.inputs.machine
    }

    /// The cost above the oracle's, as a share of the latter; `None` if the oracle's is 0.
    pub fn regret(&self) -> Option<f64> {
        (self.oracle_cost_uj > 0.0).then(|| self.cost_uj / self.oracle_cost_uj - 1.0)
    }
}
