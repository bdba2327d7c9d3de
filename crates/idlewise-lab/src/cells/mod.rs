//! Cells: one governor on one log, machine and setting. `idlewise arena` and `idlewise sweep` ask for cells; those that
//! the store has are read, and the others replayed, all of a log in one pass.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Cell`]: what is asked for, and how it is replayed |
//! | `priced.rs` | cells in the order of a table, and what they cost |
//! | `shape.rs` | [`Shape`]: other powers for a machine |
//! | `store.rs` | [`CellStore`]: results in a folder or a bucket |
//!
//! A tally does not depend on powers or prices, so a governor has one cell for all of them. `hazard`, if it is
//! named without a price, has one for each price that it is told. The oracle, and rivals that move down during the
//! idle time, have one for each price and shape.

pub mod priced;
mod shape;
mod store;

use idlewise_core::{HAZARD, Lambda, NO_LATENCY_LIMIT_NS, tick_period_ns};
use idlewise_report::cell::{CellInputs, CellResult};
use idlewise_sim::replay::{DEFAULT_TICK_WORK_NS, Lane, MakeLane, Setting, replay_log};
use idlewise_sim::{CostModel, Machine, Price};
use idlewise_trace::bundle::Sums;

pub use shape::Shape;
pub use store::{CellStore, cell_name, code_version};

use crate::error::Failure;
use crate::input::NamedLog;
use crate::roster::Choice;
use crate::target::{HZ_DEFAULT, ReplayTarget};

/// The governors of an arena or a sweep, unless others are named.
pub const GOVERNORS_DEFAULT: [&str; 5] = ["menu", "menu-7.2", "teo", "ladder", HAZARD.0];
/// The machines.
pub const MACHINES_DEFAULT: [&str; 6] = ["spr", "icx", "milan", "genoa", "skx", "skl-client"];
/// The prices of delay that make sense, in times the power of polling.
pub const LAMBDAS: std::ops::RangeInclusive<f64> = 0.0..=16.0;

/// The names, or the usual machines if there are none.
pub fn machines_or_usual(names: &[String]) -> Vec<&str> {
    match names {
        [] => MACHINES_DEFAULT.to_vec(),
        names => names.iter().map(String::as_str).collect(),
    }
}

/// What a replay depends on besides log, machine and governor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellSetting {
    /// The tick's frequency; `None`: the recording's.
    pub hz: Option<u32>,
    /// The longest exit latency that is allowed.
    pub latency_limit_us: Option<u32>,
    /// How long a CPU runs for a tick.
    pub tick_work_ns: u64,
}

impl Default for CellSetting {
    fn default() -> Self {
        CellSetting { hz: None, latency_limit_us: None, tick_work_ns: DEFAULT_TICK_WORK_NS }
    }
}

/// One governor, or the oracle, on one machine in one setting.
#[derive(Clone)]
pub struct Cell<'a> {
    /// The machine.
    pub target: &'a ReplayTarget,
    /// The hash of the target's machine.
    pub machine_sha256: &'a str,
    /// Who plays.
    pub choice: Choice,
    /// In which setting.
    pub setting: CellSetting,
    /// Of those that know powers and price.
    priced: Option<(Shape, f64)>,
}

/// The hash of all fields of a machine.
pub fn machine_sha256(machine: &Machine) -> String {
    let fields = serde_json::to_string(machine).expect("keys are strings");
    Sums::of(fields.as_bytes())
}

/// The governor, or if it is to be told the price, one for each price.
pub fn told(choice: &Choice, lambdas: &[f64]) -> Vec<Choice> {
    match choice {
        Choice::Hazard(_, name) if name == HAZARD.0 => {
            let parts = |lambda: &f64| Lambda::from_1024ths((lambda * 1024.0).round() as u32);
            let told = |lambda| Choice::Hazard(parts(lambda), name.clone());
            lambdas.iter().map(told).collect()
        }
        _ => vec![choice.clone()],
    }
}

/// Returns which of `count` cells of [`Cell::of_governor`] is that of a shape and a price, by their indices.
pub fn own_index(count: usize, shape: usize, lambda: usize, lambda_count: usize) -> usize {
    if count > lambda_count { shape * lambda_count + lambda } else { lambda.min(count - 1) }
}

impl<'a> Cell<'a> {
    /// The cells of a governor on a machine: one; if it is told the price, one for each; if it knows powers too, for
    /// each shape one for each price. [`own_index`] finds them.
    pub fn of_governor(
        target: &'a ReplayTarget,
        machine_sha256: &'a str,
        choice: &Choice,
        shapes: &[Shape],
        lambdas: &[f64],
        setting: CellSetting,
    ) -> Vec<Self> {
        if choice.is_priced() {
            let cells = Cell::of_oracle(target, machine_sha256, shapes, lambdas, setting);
            let own = |cell| Cell { choice: choice.clone(), ..cell };
            return cells.into_iter().map(own).collect();
        }
        let cell = |choice| Cell { target, machine_sha256, choice, setting, priced: None };
        told(choice, lambdas).into_iter().map(cell).collect()
    }

    /// The oracle's cells on a machine: for each shape, one for each price.
    pub fn of_oracle(
        target: &'a ReplayTarget,
        machine_sha256: &'a str,
        shapes: &[Shape],
        lambdas: &[f64],
        setting: CellSetting,
    ) -> Vec<Self> {
        let priced = shapes.iter().flat_map(|&shape| lambdas.iter().map(move |&it| (shape, it)));
        let cell = |priced| {
            let choice = Choice::Oracle;
            Cell { target, machine_sha256, choice, setting, priced: Some(priced) }
        };
        priced.map(cell).collect()
    }

    /// Returns the same cell without what its governor did wrong in others.
    pub fn anew(&self) -> Self {
        Cell { choice: self.choice.anew(), ..self.clone() }
    }

    /// Everything that the result depends on.
    pub fn inputs(&self, log_sha256: &str) -> CellInputs {
        let CellSetting { hz, latency_limit_us, tick_work_ns } = self.setting;
        CellInputs {
            code: code_version().to_owned(),
            log_sha256: log_sha256.to_owned(),
            machine: self.target.machine.id.clone(),
            machine_sha256: self.machine_sha256.to_owned(),
            governor: match &self.choice {
                // The name does not say the price that it is told.
                Choice::Hazard(lambda, _) => {
                    format!("{}:lambda={}", HAZARD.0, f64::from(lambda.as_1024ths()) / 1024.0)
                }
                // A file is known by what is in it, wherever it lies.
                Choice::File(_) => "file".to_owned(),
                choice => choice.id(),
            },
            governor_key: self.choice.file_key(),
            hz,
            latency_limit_us,
            tick_work_ns,
            priced: self.priced.map(|(shape, lambda)| (shape.name().to_owned(), lambda)),
        }
    }

    /// The tick's frequency on a log.
    fn hz(&self, log: &NamedLog) -> u32 {
        self.setting.hz.or(log.log.metadata.hz).unwrap_or(HZ_DEFAULT)
    }
}

/// Replays a log through all these cells in one pass. A governor's file that fails costs only its own cells; the
/// others' results are there. `progress` is as for [`replay_log`].
///
/// # Errors
/// Fails if the log is damaged.
pub fn replay(
    log: &NamedLog,
    log_sha256: &str,
    cells: &[&Cell<'_>],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Result<CellResult, String>>, Failure> {
    type Make<'m> = Box<dyn Fn() -> Box<dyn Lane> + Sync + 'm>;
    let models: Vec<CostModel> = cells
        .iter()
        .map(|cell| cell.priced.unwrap_or((Shape::Default, 0.0)).0.costs(cell.target))
        .collect();
    let mut makers: Vec<Make<'_>> = Vec::with_capacity(cells.len());
    for (cell, model) in cells.iter().zip(&models) {
        let player = cell.choice.on(&cell.target.machine)?;
        let limit_ns = cell.setting.latency_limit_us.map(|us| i64::from(us) * 1_000);
        let setting = Setting {
            disabled: cell.target.disabled,
            latency_limit_ns: limit_ns.unwrap_or(NO_LATENCY_LIMIT_NS),
            tick_work_ns: cell.setting.tick_work_ns,
            ..Setting::new(cell.target.states, tick_period_ns(cell.hz(log)))
        };
        let lambda = cell.priced.map_or(0.0, |(_, lambda)| lambda);
        let price = Price::Given(lambda * model.full_price_mw());
        makers.push(Box::new(move || player.lane(&log.name, model, setting, price)));
    }
    let makers: Vec<&MakeLane<'_>> = makers.iter().map(|make| &**make).collect();
    let tallies = replay_log(&log.log, &makers, progress)?;
    let result = |(cell, tally): (&&Cell<'_>, _)| match cell.choice.failure() {
        Some(failure) => Err(failure),
        None => {
            let Cell { target, .. } = cell;
            let inputs = cell.inputs(log_sha256);
            Ok(CellResult::new(inputs, cell.hz(log), &tally, &target.machine, &target.costs))
        }
    };
    Ok(cells.iter().zip(tallies).map(result).collect())
}
