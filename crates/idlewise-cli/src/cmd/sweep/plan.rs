//! What a manifest names, found, hashed and compiled, and the cells that follow from it.

use std::path::{Path, PathBuf};

use idlewise_lab::target::targets;
use idlewise_sim::contest::Price;

use super::logs::{self, PlannedLog};
use super::manifest::Manifest;
use crate::cells::{Cell, CellStore, Cells, Contest, GOVERNORS_DEFAULT, MACHINES_DEFAULT};
use crate::error::{Failure, Result};
use crate::governors::Choice;
use crate::replay_arguments::ReplayTarget;
use crate::screen::say;
use crate::storage;

/// The most lanes that are replayed in one pass, the cells of a unit. Each may keep a million distinct delays, though
/// hardly any does.
pub const LANE_COUNT_MAX: usize = 256;

/// What to sweep.
pub struct Plan {
    pub manifest: Manifest,
    pub store: CellStore,
    /// By hash, so that logs which are replayed one after the other are kept in one file. Those without come last.
    pub logs: Vec<PlannedLog>,
    pub targets: Vec<ReplayTarget>,
    pub choices: Vec<Choice>,
}

/// The governors without those that are an earlier one by another name. Says which are left out.
fn without_aliases(choices: Vec<Choice>) -> Vec<Choice> {
    let mut kept: Vec<Choice> = Vec::new();
    for choice in choices {
        // One that is told each price is another than one with a price, even if that is its default.
        let is_told = |it: &Choice| it.told(Price::FREE).is_some();
        let is_same = |other: &&Choice| {
            (other.key(), other.file_key(), is_told(other))
                == (choice.key(), choice.file_key(), is_told(&choice))
        };
        match kept.iter().find(is_same) {
            Some(first) => say(format_args!(
                "idlewise: {} is left out, because {} is the same governor",
                choice.name(),
                first.name()
            )),
            None => kept.push(choice),
        }
    }
    kept
}

impl Plan {
    /// Finds and compiles everything that the manifest names, and hashes its logs, unless `table` has them.
    ///
    /// # Errors
    /// Fails if a machine or a governor cannot be had.
    pub fn new(manifest: Manifest, table: Option<&Path>, store: Option<&Path>) -> Result<Self> {
        let choices = without_aliases(manifest.governors.choices_or(&GOVERNORS_DEFAULT)?);
        if choices.iter().any(Choice::is_oracle) {
            return Err(Failure::new(
                "every regret of a sweep is already against the oracle; leave the governor 'oracle' out",
            ));
        }
        let targets = match manifest.machines.as_slice() {
            [] => targets(&MACHINES_DEFAULT, &choices)?,
            names => targets(names, &choices)?,
        };
        let store = store.unwrap_or(&manifest.store);
        let cells = CellStore::new(storage::at(store)?);
        let mut logs = match table {
            Some(table) => logs::of_table(table)?,
            None => logs::planned(&manifest.logs()?, store, &[])?,
        };
        logs.sort_by(|a, b| {
            (a.sha256.is_err(), &a.sha256, &a.name).cmp(&(b.sha256.is_err(), &b.sha256, &b.name))
        });
        Ok(Plan { manifest, store: cells, logs, targets, choices })
    }

    /// The files that the manifest names.
    pub fn inputs(&self) -> Vec<PathBuf> {
        let logs = self.logs.iter().filter_map(|log| log.path.clone());
        let machines = self.manifest.machines.iter().map(PathBuf::from);
        logs.chain(machines).chain(self.manifest.governors.files()).collect()
    }

    /// The cells of each log, always in the same order.
    pub fn cells(&self) -> Cells<'_> {
        let Manifest { settings, lambdas, shapes, .. } = &self.manifest;
        let Plan { targets, choices, .. } = self;
        Contest { targets, choices, settings, shapes, prices: lambdas }.cells()
    }

    /// How many units all logs have, with so many cells each.
    pub fn unit_count(&self, cell_count: usize) -> usize {
        self.logs.len() * cell_count.div_ceil(LANE_COUNT_MAX)
    }
}

/// The words for a cell in a message.
pub fn described(log: &str, cell: &Cell<'_>) -> String {
    let Cell { choice, setting, target, .. } = cell;
    let governor = if choice.is_oracle() { "the oracle".to_owned() } else { choice.name() };
    let mut words = format!("{governor} on {log}, {}", target.machine.id);
    if let Some(hz) = setting.hz {
        words += &format!(", {hz} Hz");
    }
    if let Some(us) = setting.latency_limit_us {
        words += &format!(", limit {us} us");
    }
    words
}
