//! `idlewise arena`: every governor on every log, machine, tick, power shape and price of delay, and who wins.
//!
//! A unit is a log at one HZ on one machine. Its governors are replayed once: a tally does not depend on
//! powers or prices. Only `hazard`, if it is named without a price, is replayed once for each price, and the
//! oracle for each price and shape. With `--store` a unit that has been computed is a file, named by the hash
//! of everything that it depends on, including this program.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_core::{HAZARD, Lambda, tick_period_ns};
use idlewise_report::arena::{ArenaCell, cell_table, standing_table, standings};
use idlewise_report::page::Sha256Sum;
use idlewise_report::{Notes, TextStyle};
use idlewise_sim::replay::{DEFAULT_TICK_WORK_NS, Lane, MakeLane, Setting, replay_log};
use idlewise_sim::{Basis, CostModel, Machine, Price};
use idlewise_trace::{OutputFile, OutputOptions};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::report::provenance;
use crate::bundled;
use crate::doubts::ShownDoubts;
use crate::error::Failure;
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors::{self, Choice};
use crate::input::{self, NamedLog};
use crate::progress::Progress;
use crate::promoting::Promoting;
use crate::replay_arguments::{ALL_LOGS, HZ_DEFAULT, ReplayTarget};
use crate::screen;
use crate::threads;
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const GOVERNORS_DEFAULT: [&str; 5] = ["menu", "menu-7.2", "teo", "ladder", HAZARD.0];
pub const MACHINES_DEFAULT: [&str; 6] = ["spr", "icx", "milan", "genoa", "skx", "skl-client"];

/// The largest stored unit that is read.
const STORED_BYTE_COUNT_MAX: u64 = 16 << 20;

const EXAMPLES: &str = "\
Examples:
  # The bundled recordings, six machines, the usual governors
  idlewise arena

  # Recordings of your own, and a C file beside menu and teo
  idlewise arena *.parquet --governor menu --governor teo --governor ./mine.c

  # Does it hold whatever the powers are, and at another tick? Continue where it was interrupted
  idlewise arena *.parquet --shape flat,default,steep --hz 100,250,1000 --store cells

  # Every cell, for a program
  idlewise arena --csv > cells.csv

Exit status: 0, whoever wins; 1 if a governor's file crashed, looped or answered what is no state; 2 on bad
input.";

/// A power for the powers of all states, relative to a running CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shape {
    /// Powers nearer to each other: the square roots of their shares of running power
    Flat,
    /// As in the machine's file
    Default,
    /// Powers further from each other: their shares to the power of 1.5
    Steep,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::Flat => "flat",
            Shape::Default => "default",
            Shape::Steep => "steep",
        }
    }

    fn costs(self, target: &ReplayTarget) -> CostModel {
        let exponent = match self {
            Shape::Flat => 0.5,
            Shape::Default => return target.costs.clone(),
            Shape::Steep => 1.5,
        };
        let running_mw = target.machine.running_power().mw;
        let power_mw = |mw: f64| running_mw * (mw / running_mw).powf(exponent);
        let powers_mw: Vec<f64> =
            target.machine.powers().iter().map(|power| power_mw(power.mw)).collect();
        CostModel::new(target.states, &powers_mw, running_mw)
    }
}

/// Let governors compete on every log, machine, tick, power shape and price of delay
///
/// Prints the regret of each governor: what it costs above an oracle that knows each gap, as a share of the
/// oracle's cost. Won are the cells in which it has less regret than both menu and teo. `hazard` without a price
/// is told that of each cell.
#[derive(clap::Args)]
#[command(mut_arg("governor", with_default("menu, menu-7.2, teo, ladder and hazard")))]
#[command(after_help = EXAMPLES, after_long_help = format!("{}\n{EXAMPLES}", governors::list_of_deciding()))]
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
    #[arg(long = "shape", value_name = "SHAPE[,SHAPE]", value_delimiter = ',', default_value = "default")]
    shapes: Vec<Shape>,

    /// Values of CONFIG_HZ [default: each recording's]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(10..=10_000))]
    hz: Vec<u32>,

    /// Keep results in this folder, and compute only what it lacks
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,

    #[command(flatten)]
    unpacking: Unpacking,

    #[command(flatten)]
    doubts: ShownDoubts,

    /// Print JSON instead of text: the standings and every cell
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print every cell as CSV instead of text
    #[arg(long)]
    csv: bool,
}

fn parse_lambda(text: &str) -> Result<f64, String> {
    let lambda: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=16.0).contains(&lambda) { Ok(lambda) } else { Err("must be from 0 to 16".to_owned()) }
}

/// A log at one HZ on one machine.
struct Unit<'a> {
    named: &'a NamedLog,
    log_hash: Option<&'a str>,
    target: &'a ReplayTarget,
    hz: u32,
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
        let targets = self.targets(&choices)?;
        let logs = self.open_logs()?;
        let keeper = self.keeper(&choices)?;
        let hashes: Vec<Option<String>> = match keeper {
            Some(_) => logs.iter().map(provenance::sha256).collect::<Result<_, Failure>>()?,
            None => vec![None; logs.len()],
        };
        let mut units = Vec::new();
        for (named, hash) in logs.iter().zip(&hashes) {
            let own = [named.log.metadata.hz.unwrap_or(HZ_DEFAULT)];
            for &hz in if self.hz.is_empty() { &own[..] } else { &self.hz } {
                let log_hash = hash.as_deref();
                units.extend(targets.iter().map(|target| Unit { named, log_hash, target, hz }));
            }
        }
        let gap_count = units.iter().map(|unit| unit.named.log.gap_count()).sum();
        let bar = Progress::gaps("replaying", gap_count);
        let cells: Vec<Vec<ArenaCell>> = units
            .par_iter()
            .map(|unit| self.cells(unit, &choices, keeper.as_ref(), &bar))
            .collect::<Result<_, Failure>>()?;
        let failed: Vec<String> =
            choices.iter().filter(|choice| choice.failure().is_some()).map(Choice::name).collect();
        let mut cells: Vec<ArenaCell> = cells.into_iter().flatten().collect();
        cells.retain(|cell| !failed.contains(&cell.governor));
        self.print(&cells, &logs, &targets, &choices)?;
        let failed = governors::say_failures(&choices, "its cells are left out");
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn targets(&self, choices: &[Choice]) -> Result<Vec<ReplayTarget>, Failure> {
        let names: Vec<&str> = match self.machines.as_slice() {
            [] => MACHINES_DEFAULT.to_vec(),
            names => names.iter().map(String::as_str).collect(),
        };
        let targets: Vec<ReplayTarget> = names
            .into_iter()
            .map(|name| ReplayTarget::new(bundled::machine(name)?, &[], &Promoting::default()))
            .collect::<Result<_, Failure>>()?;
        for target in &targets {
            for choice in choices {
                choice.on(&target.machine)?;
            }
        }
        Ok(targets)
    }

    fn open_logs(&self) -> Result<Vec<NamedLog>, Failure> {
        if self.logs.is_empty() {
            return bundled::logs();
        }
        let names = input::distinct_names(&self.logs, &[ALL_LOGS]);
        let named = self.logs.iter().zip(names);
        named.map(|(path, name)| NamedLog::open_as(path, name, self.unpacking)).collect()
    }

    /// Everything but the unit itself that a stored unit depends on, if units are stored.
    fn keeper(&self, choices: &[Choice]) -> Result<Option<Keeper>, Failure> {
        let Some(folder) = &self.store else { return Ok(None) };
        if let Some(file) = choices.iter().find(|choice| matches!(choice, Choice::File(_))) {
            return Err(Failure::new(format_args!(
                "{}: cells of governors from files are not stored, because what they include is not known; \
                 leave out --store",
                file.name()
            )));
        }
        let fail = |error: std::io::Error| {
            Failure::new(format_args!("{}: {error}", screen::name(folder)))
        };
        fs::create_dir_all(folder).map_err(fail)?;
        // Another build of the program may decide otherwise.
        let program = env::current_exe().and_then(fs::metadata);
        let program = program.and_then(|file| Ok((file.len(), file.modified()?))).map_err(|error| {
            Failure::new(format_args!("cannot look at idlewise itself: {error}; leave out --store"))
        })?;
        let names: Vec<String> = choices.iter().map(Choice::name).collect();
        let shapes: Vec<&str> = self.shapes.iter().map(|shape| shape.name()).collect();
        let common = format!("{program:?} {names:?} {shapes:?} {:?}", self.lambdas);
        Ok(Some(Keeper { folder: folder.clone(), common }))
    }

    /// The cells of a unit, from the store or computed.
    fn cells(
        &self,
        unit: &Unit<'_>,
        choices: &[Choice],
        keeper: Option<&Keeper>,
        bar: &Progress,
    ) -> Result<Vec<ArenaCell>, Failure> {
        let path = keeper.and_then(|keeper| keeper.path(unit));
        if let Some(stored) = path.as_deref().and_then(|path| self.read(path, unit)) {
            bar.add(unit.named.log.gap_count());
            return Ok(stored);
        }
        let cells = self.compute(unit, choices, bar)?;
        if let Some(path) = path {
            write(&path, &cells)?;
        }
        Ok(cells)
    }

    fn compute(
        &self,
        unit: &Unit<'_>,
        choices: &[Choice],
        bar: &Progress,
    ) -> Result<Vec<ArenaCell>, Failure> {
        let Unit { named, target, hz, .. } = *unit;
        let setting = Setting {
            disabled: target.disabled,
            ..Setting::new(target.states, tick_period_ns(hz))
        };
        let models: Vec<CostModel> = self.shapes.iter().map(|shape| shape.costs(target)).collect();
        type Make<'m> = Box<dyn Fn() -> Box<dyn Lane> + Sync + 'm>;
        let told: Vec<Vec<Choice>> = choices.iter().map(|choice| self.told(choice)).collect();
        let mut makers: Vec<Make<'_>> = Vec::new();
        for choice in told.iter().flatten() {
            let player = choice.on(&target.machine)?;
            makers.push(Box::new(move || {
                player.lane(&named.name, &target.costs, setting, Price::Quarter)
            }));
        }
        let oracle = Choice::Oracle.on(&target.machine)?;
        for model in &models {
            for &lambda in &self.lambdas {
                let price = Price::Given(lambda * model.full_price_mw());
                makers.push(Box::new(move || oracle.lane(&named.name, model, setting, price)));
            }
        }
        let makers: Vec<&MakeLane<'_>> = makers.iter().map(|make| &**make).collect();
        let tallies = replay_log(&named.log, &makers, &|done| bar.add(done))?;
        let (mut rest, oracles) = tallies.split_at(told.iter().map(Vec::len).sum());
        let mut cells = Vec::new();
        for (choice, told) in choices.iter().zip(&told) {
            let (own, others) = rest.split_at(told.len());
            rest = others;
            let mut oracles = oracles.iter();
            for (shape, model) in self.shapes.iter().zip(&models) {
                for (index, (&lambda, oracle)) in self.lambdas.iter().zip(&mut oracles).enumerate() {
                    let lambda_mw = lambda * model.full_price_mw();
                    cells.push(ArenaCell {
                        log: named.name.clone(),
                        machine: target.machine.id.clone(),
                        hz,
                        shape: shape.name(),
                        lambda,
                        governor: choice.name(),
                        cost_uj: model.cost_uj(&own[index.min(own.len() - 1)], lambda_mw),
                        oracle_cost_uj: model.cost_uj(oracle, lambda_mw),
                    });
                }
            }
        }
        Ok(cells)
    }

    /// The governor, or if it is to be told the price, one for each price.
    fn told(&self, choice: &Choice) -> Vec<Choice> {
        match choice {
            Choice::Hazard(_, name) if name == HAZARD.0 => {
                let parts = |lambda: &f64| Lambda::from_1024ths((lambda * 1024.0).round() as u32);
                let told = |lambda| Choice::Hazard(parts(lambda), name.clone());
                self.lambdas.iter().map(told).collect()
            }
            _ => vec![choice.clone()],
        }
    }

    /// A stored unit; `None` if it is not there or not readable, so that it is computed.
    fn read(&self, path: &Path, unit: &Unit<'_>) -> Option<Vec<ArenaCell>> {
        let mut text = String::new();
        File::open(path).ok()?.take(STORED_BYTE_COUNT_MAX).read_to_string(&mut text).ok()?;
        let document: Value = serde_json::from_str(&text).ok()?;
        // They are texts, which Rust reads to the last bit. JSON's numbers need not be.
        let number = |row: &Value, name: &str| row[name].as_str()?.parse::<f64>().ok();
        let cell = |row: &Value| {
            let shape = row["shape"].as_str()?;
            Some(ArenaCell {
                log: unit.named.name.clone(),
                machine: unit.target.machine.id.clone(),
                hz: unit.hz,
                shape: self.shapes.iter().find(|one| one.name() == shape)?.name(),
                lambda: number(row, "lambda")?,
                governor: row["governor"].as_str()?.to_owned(),
                cost_uj: number(row, "cost_uj")?,
                oracle_cost_uj: number(row, "oracle_cost_uj")?,
            })
        };
        document.as_array()?.iter().map(cell).collect()
    }

    fn print(
        &self,
        cells: &[ArenaCell],
        logs: &[NamedLog],
        targets: &[ReplayTarget],
        choices: &[Choice],
    ) -> Result<(), Failure> {
        let mut out = screen::stdout();
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

/// Where units are stored.
struct Keeper {
    folder: PathBuf,
    common: String,
}

impl Keeper {
    /// The file of a unit; `None` if its log is a pipe, which has no hash.
    fn path(&self, unit: &Unit<'_>) -> Option<PathBuf> {
        let machine: &Machine = &unit.target.machine;
        let key = format!("{} {} {} {machine:?}", self.common, unit.log_hash?, unit.hz);
        Some(self.folder.join(format!("{}.json", hash(key.as_bytes()))))
    }
}

fn hash(bytes: &[u8]) -> String {
    let mut sum = Sha256Sum::default();
    sum.add(bytes);
    sum.hex()
}

/// Stores a unit. The file gets its name when it is complete, so an interrupted run leaves none.
fn write(path: &Path, cells: &[ArenaCell]) -> Result<(), Failure> {
    let rows: Vec<Value> = cells
        .iter()
        .map(|cell| {
            json!({
                "governor": cell.governor,
                "shape": cell.shape,
                "lambda": cell.lambda.to_string(),
                "cost_uj": cell.cost_uj.to_string(),
                "oracle_cost_uj": cell.oracle_cost_uj.to_string(),
            })
        })
        .collect();
    let options = OutputOptions { replace: true, ..OutputOptions::default() };
    let output = OutputFile::create(path, &options)?;
    let fail = |error: std::io::Error| {
        Failure::new(format_args!("{}: {error}", screen::name(path)))
    };
    output.file().write_all(json!(rows).to_string().as_bytes()).map_err(fail)?;
    output.finish()?;
    Ok(())
}
