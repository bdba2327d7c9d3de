//! `idlewise replay --rank`: every governor on every log, machine, tick, power shape and price of delay, and who wins.
//!
//! A unit is a log at one HZ on one machine. Its governors are replayed in one pass (`cells/`), and with `--store`
//! only those that the store lacks. `idlewise lab sweep` fills the same stores. With `--played`, loads are played instead
//! (`played.rs`).

mod played;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use idlewise_lab::notes::{add_governors, add_log, add_machine};
use idlewise_lab::target::{AskedMachines, Conditions, Targets, in_use};
use idlewise_report::arena::{cell_table, standing_table, standings, under_all_powers, verdict};
use idlewise_report::{Notes, TextStyle, arena_plot, counted, wrap};
use idlewise_sim::Basis;
use idlewise_sim::contest::{CellResult, Entry, Price, Shape};
use idlewise_sim::replay::DEFAULT_TICK_WORK_NS;
use rayon::prelude::*;
use serde_json::json;

use crate::cells::{self, Cell, CellStore, Cells, Contest, GOVERNORS_DEFAULT, MACHINES_DEFAULT};
use crate::doubts::ShownDoubts;
use crate::error::{Failure, Result};
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors::{self, Choice};
use crate::input::{NamedLog, must_have_gaps};
use crate::output;
use crate::progress::Progress;
use crate::replay_arguments::{ReplayTarget, open_logs, say_assumed};
use crate::role::{BundleRole, OUTPUT, Roles};
use crate::screen::{self, Screen};
use crate::storage;
use crate::threads;
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # The bundled recordings, six machines, the usual governors
  idlewise replay --rank

  # Recordings of your own, and a C file beside menu and teo
  idlewise replay --rank *.parquet --governor menu --governor teo --governor ./mine.c

  # Does it hold whatever the powers are, and at another tick? Continue where it was interrupted
  idlewise replay --rank *.parquet --shape flat,default,steep --hz 100,250,1000 --store cells

  # Energy against delay, with more of the oracle's front
  idlewise replay --rank --lambda 0,0.1,0.25,0.5,1,2 --plot arena.svg

  # Every cell, for a program
  idlewise replay --rank --csv > cells.csv

  # Close the loop: play loads, and ask whether a replay would rank governors alike
  idlewise replay --rank --played
  idlewise replay --rank --played tcp-lat run.dat --machine spr --lambda 0.25,1

Exit status: 0, whichever wins; 1 if a governor's file crashed, looped or returned an invalid \
state; 2 on bad input.";

/// Rank governors over every log, machine, tick rate, power model and price of delay
///
/// Prints the regret of each governor: what it costs above an oracle that knows each gap, as a share of the
/// oracle's cost. Won are the cells in which it has less regret than both menu and teo. `hazard` without a price
/// gets that of each cell.
#[derive(clap::Args)]
#[command(mut_arg(
    "governor",
    with_default("menu, menu-7.2, teo, ladder and hazard; menu-7.2 not with --played")
))]
#[command(after_long_help = EXAMPLES)]
pub struct Arena {
    /// Idle logs or recordings [default: the bundled logs]; with --played, recordings with causes, workload logs and
    /// workloads of `lab simulate` by name or file [default: all workloads]
    logs: Vec<PathBuf>,

    /// Play loads under each governor, so that a late wake-up delays what follows; beside it, the regret of a replay of
    /// the first governor's gaps
    #[arg(long, conflicts_with_all = ["shapes", "hz", "store", "plot"])]
    played: bool,

    /// How often to play each load, with other seeds; intervals need 7
    #[arg(long, value_name = "N", requires = "played", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    replicates: u64,

    /// How long to play a workload of `lab simulate`, in simulated ms
    #[arg(long, value_name = "MS", requires = "played", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    duration_ms: u64,

    #[command(flatten)]
    governors: GovernorArguments,

    /// Machines by name or file, or `recorded` [default: recorded; if unknown, spr, icx, milan, genoa, skx, skl-client; for workloads, spr and milan]
    #[arg(long = "machine", value_name = "NAME|FILE[,...]", value_delimiter = ',')]
    machines: Vec<String>,

    /// Prices of delay, in times the power of polling [default: 0,0.25,1; with --played 0.25]
    #[arg(long = "lambda", value_name = "X[,X]", value_delimiter = ',', value_parser = Price::parse_times)]
    lambdas: Option<Vec<Price>>,

    /// Shapes of the powers
    #[arg(long = "shape", value_name = "SHAPE[,SHAPE]", value_delimiter = ',', default_value = "default", value_parser = shapes())]
    shapes: Vec<Shape>,

    /// Values of CONFIG_HZ [default: each recording's]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(10..=10_000))]
    hz: Vec<u32>,

    /// Keep results in this folder, and compute only what it lacks; `idlewise lab sweep` fills the same folders
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
    #[arg(long, hide_short_help = true, requires = "plot")]
    force: bool,

    /// Print JSON instead of text: the standings and every cell
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print every cell as CSV instead of text
    #[arg(long)]
    csv: bool,
}

fn shapes() -> impl TypedValueParser<Value = Shape> {
    let known = Shape::ALL.map(|shape| PossibleValue::new(shape.name()).help(shape.meaning()));
    PossibleValuesParser::new(known).map(|name| Shape::parse(&name).expect("it is one of them"))
}

/// A log on one machine at one HZ.
struct Unit<'a> {
    named: &'a NamedLog,
    log_hash: Option<&'a str>,
    cells: Cells<'a>,
}

/// Its own options in a bundle.
pub const ROLES: Roles = &[
    (BundleRole::Log, &["logs"]),
    (BundleRole::Machine, &["machines"]),
    (BundleRole::Plain, &["lambdas", "shapes", "hz"]),
    (OUTPUT, &["store", "plot", "force"]),
    (
        BundleRole::Refused("bundle `predict` or `lab simulate` of its loads"),
        &["played", "replicates", "duration_ms"],
    ),
    (BundleRole::Form, &["csv"]),
];

impl Arena {
    /// Replays everything that was requested, and prints it.
    pub fn run(self) -> Result<ExitCode> {
        threads::start();
        let usual: &[&str] =
            if self.played { &played::GOVERNORS_DEFAULT } else { &GOVERNORS_DEFAULT };
        let choices = self.governors.choices_or(usual)?;
        if choices.iter().any(Choice::is_oracle) {
            return Err(Failure::new(
                "every regret here is already against the oracle; leave out --governor oracle",
            ));
        }
        if self.played {
            let failed = played::run(&self, &choices)?;
            return Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        let inputs: Vec<&Path> = self.logs.iter().map(PathBuf::as_path).collect();
        let plot = self.plot.as_deref().map(|path| output::create(path, self.force, &inputs));
        let plot = plot.transpose()?;
        let machines = AskedMachines::new(&self.machines, &choices, &[], &[])?;
        let logs = open_logs(&self.logs, self.unpacking)?;
        must_have_gaps(&logs)?;
        let on = machines.on_logs(&logs, &MACHINES_DEFAULT)?;
        let targets = &on.targets;
        let store = self.store.as_deref().map(storage::at).transpose()?.map(CellStore::new);
        if let Some(store) = &store {
            store.create()?;
        }
        let hashes: Vec<Option<String>> = match store {
            Some(_) => logs.iter().map(NamedLog::sha256).collect::<Result<_>>()?,
            None => vec![None; logs.len()],
        };
        let settings: Vec<Conditions> = match self.hz.as_slice() {
            [] => vec![Conditions::default()],
            asked => asked
                .iter()
                .map(|&hz| Conditions { hz: Some(hz), ..Conditions::default() })
                .collect(),
        };
        let contest = Contest {
            targets,
            choices: &choices,
            settings: &settings,
            shapes: &self.shapes,
            prices: self.prices(),
        };
        let mut units = Vec::new();
        for (index, (named, hash)) in logs.iter().zip(&hashes).enumerate() {
            let log_hash = hash.as_deref();
            let of_log = contest.parts().filter(|part| part.targets[0].is_for(index));
            units.extend(of_log.map(|part| Unit { named, log_hash, cells: part.cells() }));
        }
        let gap_count = units.iter().map(|unit| unit.named.log.gap_count()).sum();
        let bar = Progress::gaps("replaying", gap_count);
        let entries: Result<Vec<Vec<Entry>>> =
            units.par_iter().map(|unit| unit.entries(store.as_ref(), &bar)).collect();
        drop(bar);
        // Even if a unit failed.
        if let Some(store) = &store {
            store.flush()?;
        }
        let entries = entries?;
        let failed: Vec<String> =
            choices.iter().filter(|choice| choice.failure().is_some()).map(Choice::name).collect();
        let mut cells: Vec<Entry> = entries.into_iter().flatten().collect();
        cells.retain(|cell| !failed.contains(&cell.governor));
        let to = plot.as_ref().map_or(screen::stdout as fn() -> Screen, output::report_of);
        if let Some(plot) = plot {
            output::write(plot, arena_plot::to_svg(&cells))?;
        }
        self.print(&mut to(), &cells, &logs, &on, &choices)?;
        let failed = governors::say_failures(&choices, "its cells are left out");
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn prices(&self) -> &[Price] {
        let usual: &[Price] = if self.played { &[Price::QUARTER] } else { &Price::STANDARD };
        self.lambdas.as_deref().unwrap_or(usual)
    }

    fn print(
        &self,
        out: &mut Screen,
        cells: &[Entry],
        logs: &[NamedLog],
        on: &Targets,
        choices: &[Choice],
    ) -> Result<()> {
        let targets = on.targets.as_slice();
        let mut notes = self.notes(logs, targets, choices);
        say_assumed(on.assumed.as_deref(), &mut notes, out, (self.json, self.csv))?;
        if self.csv {
            out.write_all(cell_table(cells).to_csv().as_bytes())?;
            return Ok(());
        }
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
            "Regret against the oracle: {}, {}, shapes of the powers: {} (simulated). A cell is a log on a machine at one \
             HZ, shape and λ",
            counted(logs.len(), "log"),
            counted(targets.len(), "machine"),
            self.shapes.iter().map(|shape| shape.name()).collect::<Vec<_>>().join(", "),
        );
        let gap_count = logs.iter().map(|named| named.log.gap_count()).sum();
        if let Some(verdict) = verdict(&standings, &in_use(logs, None), gap_count) {
            writeln!(out, "{}", wrap(&verdict, style.width, 2))?;
            let costs = |machine: &str| {
                let target = targets.iter().find(|target| target.machine.id == machine);
                target.map(|target| &target.costs)
            };
            if let Some(text) = under_all_powers(cells, &standings, &costs) {
                writeln!(out, "{}", wrap(&text, style.width, 2))?;
            }
            writeln!(out)?;
        }
        let table = standing_table(&title, &standings);
        writeln!(out, "{}", table.to_text(&style))?;
        out.write_all(notes.to_text(style.width).as_bytes())?;
        Ok(())
    }

    fn notes(&self, logs: &[NamedLog], targets: &[ReplayTarget], choices: &[Choice]) -> Notes {
        let mut notes = self.doubts.notes();
        notes.basis(Basis::Simulated, "costs, with worst-case exit latencies");
        add_governors(&mut notes, Basis::Simulated, choices);
        notes.basis(Basis::Assumed, format!("{DEFAULT_TICK_WORK_NS} ns of work for each tick"));
        for target in targets {
            add_machine(&mut notes, &target.machine, "regret");
        }
        let conditions = Conditions { hz: self.hz.first().copied(), ..Conditions::default() };
        for named in logs {
            add_log(&mut notes, &named.name, &named.log.metadata, conditions);
        }
        notes
    }
}

impl Unit<'_> {
    /// The entries of the unit's cells, from the store or computed. Those of a file that failed are missing.
    fn entries(&self, store: Option<&CellStore>, bar: &Progress) -> Result<Vec<Entry>> {
        // A pipe has no hash, and nothing of it is stored.
        let store = store.filter(|_| self.log_hash.is_some());
        let hash = self.log_hash.unwrap_or_default();
        let asked = &self.cells.cells;
        let mut results: Vec<Option<CellResult>> = match store {
            Some(store) => {
                let known = store.of_log(hash)?;
                self.cells.inputs(hash).iter().map(|inputs| known.result(inputs)).collect()
            }
            None => vec![None; asked.len()],
        };
        let missing: Vec<usize> =
            (0..asked.len()).filter(|&index| results[index].is_none()).collect();
        if missing.is_empty() {
            bar.add(self.named.log.gap_count());
        } else {
            let cells: Vec<&Cell<'_>> = missing.iter().map(|&index| &asked[index]).collect();
            let computed = cells::replay(self.named, hash, &cells, &|done| bar.add(done))?;
            if let Some(store) = store {
                self.named.must_be_unchanged()?;
                let results = computed.iter().flatten();
                store.add(
                    results.map(|result| cells::kept(result.inputs.clone(), Ok(result.clone()))),
                )?;
            }
            for (index, result) in missing.into_iter().zip(computed) {
                results[index] = result.ok();
            }
        }
        Ok(self.cells.entries(&self.named.name, &results))
    }
}
