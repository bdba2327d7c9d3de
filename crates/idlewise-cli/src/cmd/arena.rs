//! `idlewise arena`: every governor on every log, machine, tick, power shape and price of delay, and who wins.
//!
//! A unit is a log at one HZ on one machine. Its governors are replayed in one pass (`cells/`), and with `--store`
//! only those that the store lacks. `idlewise sweep` fills the same stores.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use idlewise_lab::target::targets;
use idlewise_report::arena::{ArenaCell, cell_table, standing_table, standings};
use idlewise_report::cell::CellResult;
use idlewise_report::{Notes, TextStyle, arena_plot};
use idlewise_sim::replay::DEFAULT_TICK_WORK_NS;
use idlewise_sim::{Basis, CostModel};
use rayon::prelude::*;
use serde_json::json;

use crate::cells::{
    self, Cell, CellSetting, CellStore, GOVERNORS_DEFAULT, LAMBDAS, Shape, machine_sha256, machines_or_usual,
};
use crate::doubts::ShownDoubts;
use crate::error::Failure;
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors::{self, Choice};
use crate::input::NamedLog;
use crate::progress::Progress;
use crate::replay_arguments::{HZ_DEFAULT, ReplayTarget, open_logs};
use crate::output;
use crate::screen::{self, Screen};
use crate::storage;
use crate::threads;
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # The bundled recordings, six machines, the usual governors
  idlewise arena

  # Recordings of your own, and a C file beside menu and teo
  idlewise arena *.parquet --governor menu --governor teo --governor ./mine.c

  # Does it hold whatever the powers are, and at another tick? Continue where it was interrupted
  idlewise arena *.parquet --shape flat,default,steep --hz 100,250,1000 --store cells

  # Energy against delay, with more of the oracle's front
  idlewise arena --lambda 0,0.1,0.25,0.5,1,2 --plot arena.svg

  # Every cell, for a program
  idlewise arena --csv > cells.csv

Exit status: 0, whoever wins; 1 if a governor's file crashed, looped or answered what is no state; 2 on bad
input.";

/// Let governors compete on every log, machine, tick, power shape and price of delay
///
/// Prints the regret of each governor: what it costs above an oracle that knows each gap, as a share of the
/// oracle's cost. Won are the cells in which it has less regret than both menu and teo. `hazard` without a price
/// is told that of each cell.
#[derive(clap::Args)]
#[command(mut_arg("governor", with_default("menu, menu-7.2, teo, ladder and hazard")))]
#[command(after_help = EXAMPLES, after_long_help = format!("{}\n{EXAMPLES}", governors::list_with_rivals(false)))]
pub struct Arena {
    /// Idle logs or recordings [default: the bundled logs]
    logs: Vec<PathBuf>,

    #[command(flatten)]
    governors: GovernorArguments,

    /// A machine's id or file; may be repeated [default: spr, icx, milan, genoa, skx, skl-client]
    #[arg(long = "machine", value_name = "NAME|FILE")]
    machines: Vec<String>,

    /// Prices of delay, in times the power of polling
    #[arg(long = "lambda", value_name = "X[,X]", value_delimiter = ',', default_value = "0,0.25,1", value_parser = parse_lambda)]
    lambdas: Vec<f64>,

    /// Shapes of the powers
    #[arg(long = "shape", value_name = "SHAPE[,SHAPE]", value_delimiter = ',', default_value = "default", value_parser = shapes())]
    shapes: Vec<Shape>,

    /// Values of CONFIG_HZ [default: each recording's]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(10..=10_000))]
    hz: Vec<u32>,

    /// Keep results in this folder, and compute only what it lacks; `idlewise sweep` fills the same folders
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,

    #[command(flatten)]
    unpacking: Unpacking,

    #[command(flatten)]
    doubts: ShownDoubts,

    /// Draw energy against delay into this file: every governor, and the oracle's front over the prices of --lambda
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// Replace the plot's file if it exists
    #[arg(long, requires = "plot")]
    force: bool,

    /// Print JSON instead of text: the standings and every cell
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print every cell as CSV instead of text
    #[arg(long)]
    csv: bool,
}

fn parse_lambda(text: &str) -> Result<f64, String> {
    let lambda: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if LAMBDAS.contains(&lambda) { Ok(lambda) } else { Err("must be from 0 to 16".to_owned()) }
}

fn shapes() -> impl TypedValueParser<Value = Shape> {
    let known = Shape::ALL.map(|shape| PossibleValue::new(shape.name()).help(shape.meaning()));
    PossibleValuesParser::new(known).map(|name| Shape::parse(&name).expect("it is one of them"))
}

/// A log at one HZ on one machine.
struct Unit<'a> {
    named: &'a NamedLog,
    log_hash: Option<&'a str>,
    target: &'a ReplayTarget,
    machine_sha256: &'a str,
    /// `None`: the recording's.
    hz: Option<u32>,
}

impl Arena {
    /// Replays everything that was requested, and prints it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        threads::start();
        let choices = self.governors.choices_or(&GOVERNORS_DEFAULT)?;
        if choices.iter().any(|choice| matches!(choice, Choice::Oracle)) {
            return Err(Failure::new(
                "every regret here is already against the oracle; leave out --governor oracle",
            ));
        }
        let inputs: Vec<&Path> = self.logs.iter().map(PathBuf::as_path).collect();
        let plot = self.plot.as_deref().map(|path| output::create(path, self.force, &inputs));
        let plot = plot.transpose()?;
        let targets = targets(&machines_or_usual(&self.machines), &choices, &[], &[])?;
        let logs = open_logs(&self.logs, self.unpacking)?;
        let store = self.store.as_deref().map(storage::at).transpose()?.map(CellStore::new);
        if let Some(store) = &store {
            store.create()?;
        }
        let hashes: Vec<Option<String>> = match store {
            Some(_) => logs.iter().map(NamedLog::sha256).collect::<Result<_, Failure>>()?,
            None => vec![None; logs.len()],
        };
        let machine_hashes: Vec<String> =
            targets.iter().map(|target| machine_sha256(&target.machine)).collect();
        let asked_hz: Vec<Option<u32>> = self.hz.iter().copied().map(Some).collect();
        let mut units = Vec::new();
        for (named, hash) in logs.iter().zip(&hashes) {
            let log_hash = hash.as_deref();
            for &hz in if asked_hz.is_empty() { &[None][..] } else { &asked_hz } {
                units.extend(targets.iter().zip(&machine_hashes).map(|(target, machine_sha256)| {
                    Unit { named, log_hash, target, machine_sha256, hz }
                }));
            }
        }
        let gap_count = units.iter().map(|unit| unit.named.log.gap_count()).sum();
        let bar = Progress::gaps("replaying", gap_count);
        let cells: Vec<Vec<ArenaCell>> = units
            .par_iter()
            .map(|unit| self.cells(unit, &choices, store.as_ref(), &bar))
            .collect::<Result<_, Failure>>()?;
        let failed: Vec<String> =
            choices.iter().filter(|choice| choice.failure().is_some()).map(Choice::name).collect();
        let mut cells: Vec<ArenaCell> = cells.into_iter().flatten().collect();
        cells.retain(|cell| !failed.contains(&cell.governor));
        let to = plot.as_ref().map_or(screen::stdout as fn() -> Screen, output::report_of);
        if let Some(plot) = plot {
            output::write(plot, arena_plot::to_svg(&cells))?;
        }
        self.print(&mut to(), &cells, &logs, &targets, &choices)?;
        let failed = governors::say_failures(&choices, "its cells are left out");
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The cells of a unit, from the store or computed.
    fn cells(
        &self,
        unit: &Unit<'_>,
        choices: &[Choice],
        store: Option<&CellStore>,
        bar: &Progress,
    ) -> Result<Vec<ArenaCell>, Failure> {
        let Unit { named, target, machine_sha256, hz, .. } = *unit;
        let setting = CellSetting { hz, ..CellSetting::default() };
        let (shapes, lambdas) = (&self.shapes, &self.lambdas);
        let of_choice = |choice| {
            Cell::of_governor(target, machine_sha256, choice, shapes, lambdas, setting)
        };
        let told: Vec<Vec<Cell<'_>>> = choices.iter().map(of_choice).collect();
        let oracle =
            Cell::of_oracle(target, machine_sha256, &self.shapes, &self.lambdas, setting);
        let asked: Vec<&Cell<'_>> = told.iter().flatten().chain(&oracle).collect();
        let results = results(unit, &asked, store, bar)?;
        let (mut rest, oracles) = results.split_at(asked.len() - oracle.len());
        let models: Vec<CostModel> = self.shapes.iter().map(|shape| shape.costs(target)).collect();
        let mut cells = Vec::new();
        for (choice, told) in choices.iter().zip(&told) {
            let (own, others) = rest.split_at(told.len());
            rest = others;
            let mut oracles = oracles.iter();
            for (shape_index, (shape, model)) in shapes.iter().zip(&models).enumerate() {
                for (index, (&lambda, oracle)) in lambdas.iter().zip(&mut oracles).enumerate() {
                    let lambda_mw = lambda * model.full_price_mw();
                    // A governor's file that failed is left out as a whole.
                    let own =
                        &own[cells::own_index(own.len(), shape_index, index, lambdas.len())];
                    let (Some(own), Some(oracle)) = (own, oracle) else { continue };
                    cells.push(ArenaCell {
                        log: named.name.clone(),
                        machine: target.machine.id.clone(),
                        hz: own.hz,
                        shape: shape.name(),
                        lambda,
                        governor: choice.name(),
                        cost_uj: own.cost_uj(model, lambda_mw),
                        oracle_cost_uj: oracle.cost_uj(model, lambda_mw),
                        spent: own.spent(model),
                        oracle_spent: oracle.spent(model),
                    });
                }
            }
        }
        Ok(cells)
    }

    fn print(
        &self,
        out: &mut Screen,
        cells: &[ArenaCell],
        logs: &[NamedLog],
        targets: &[ReplayTarget],
        choices: &[Choice],
    ) -> Result<(), Failure> {
        if self.csv {
            out.write_all(cell_table(cells).to_csv().as_bytes())?;
            return Ok(());
        }
        let notes = self.notes(logs, targets, choices);
        let standings = standings(cells);
        if self.json {
            let document = json!({
                "standings": standing_table("", &standings),
                "cells": cell_table(cells),
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
            });
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let style = TextStyle::for_stdout();
        let title = format!(
            "Regret against the oracle: {} logs, {} machines, shapes: {} (simulated)",
            logs.len(),
            targets.len(),
            self.shapes.iter().map(|shape| shape.name()).collect::<Vec<_>>().join(", "),
        );
        let table = standing_table(&title, &standings);
        writeln!(out, "{}", table.to_text(&style))?;
        out.write_all(notes.to_text(style.width).as_bytes())?;
        Ok(())
    }

    fn notes(&self, logs: &[NamedLog], targets: &[ReplayTarget], choices: &[Choice]) -> Notes {
        let mut notes = self.doubts.notes();
        notes.basis(Basis::Simulated, "costs, with worst-case exit latencies");
        for provenance in governors::provenance(choices) {
            notes.basis(Basis::Simulated, provenance);
        }
        notes.basis(Basis::Assumed, format!("{DEFAULT_TICK_WORK_NS} ns of work for each tick"));
        for target in targets {
            let id = &target.machine.id;
            notes.basis(target.machine.power_basis(), format!("powers of {id}, so its regret"));
            for doubt in target.machine.doubts() {
                notes.ranked_doubt(doubt.rank(), format!("{id}: {doubt}"));
            }
        }
        for named in logs {
            let metadata = &named.log.metadata;
            if self.hz.is_empty() && metadata.hz.is_none() {
                let name = &named.name;
                notes.doubt(format!("{name}: HZ is unknown, {HZ_DEFAULT} was assumed; pass --hz"));
            }
            notes.doubts_of(&metadata.doubts);
        }
        notes
    }
}

/// The results of a unit's cells, from the store or computed; `None` for those of a file that failed.
fn results(
    unit: &Unit<'_>,
    asked: &[&Cell<'_>],
    store: Option<&CellStore>,
    bar: &Progress,
) -> Result<Vec<Option<CellResult>>, Failure> {
    // A pipe has no hash, and nothing of it is stored.
    let store = store.filter(|_| unit.log_hash.is_some());
    let hash = unit.log_hash.unwrap_or_default();
    let mut results: Vec<Option<CellResult>> = match store {
        Some(store) => {
            let inputs: Vec<_> = asked.iter().map(|cell| cell.inputs(hash)).collect();
            store.get(&inputs)?
        }
        None => vec![None; asked.len()],
    };
    let missing: Vec<usize> =
        (0..asked.len()).filter(|&index| results[index].is_none()).collect();
    if missing.is_empty() {
        bar.add(unit.named.log.gap_count());
        return Ok(results);
    }
    let cells: Vec<&Cell<'_>> = missing.iter().map(|&index| asked[index]).collect();
    let computed = cells::replay(unit.named, hash, &cells, &|done| bar.add(done))?;
    if let Some(store) = store {
        unit.named.must_be_unchanged()?;
        store.put(computed.iter().flatten())?;
    }
    for (index, result) in missing.into_iter().zip(computed) {
        results[index] = result.ok();
    }
    Ok(results)
}
