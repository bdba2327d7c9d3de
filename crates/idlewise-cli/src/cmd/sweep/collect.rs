//! One table of all cells of a sweep.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_report::arena::{standing_table, standings};
use idlewise_report::cell::collected_table;
use idlewise_report::{TextStyle, counted};
use idlewise_sim::contest::Entry;
use serde_json::json;

use super::Common;
use crate::error::{Failure, Result};
use crate::output;
use crate::screen::{self, say};

/// The schema version of `--format json`.
const SCHEMA: u32 = 1;

#[derive(clap::Args)]
pub struct Collect {
    #[command(flatten)]
    common: Common,

    /// The file to write [default: standard output]
    #[arg(short, long, value_name = "FILE", default_value = output::STDOUT, hide_default_value = true)]
    output: PathBuf,

    /// Its form [default: by the file's ending; csv on standard output]
    #[arg(long, value_name = "FORM")]
    format: Option<Format>,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    /// Print who wins, as `idlewise replay --rank` does, instead of the cells
    #[arg(long, conflicts_with_all = ["output", "format", "force"])]
    standings: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line for each cell and price
    Csv,
    /// The same with types, for polars, pandas and DuckDB
    Parquet,
    /// The same for programs (docs/schemas/sweep-collect.json)
    Json,
}

impl Collect {
    /// Reads all cells and writes the table. Cells that are missing are left out and counted.
    pub fn run(self) -> Result<ExitCode> {
        let plan = self.common.plan()?;
        let mut rows = Vec::new();
        let mut missing_count = 0;
        let cells = plan.cells();
        for log in &plan.logs {
            let sha256 = match log.known_sha256(&plan.store) {
                Ok(Some(sha256)) => sha256,
                Ok(None) => {
                    missing_count += cells.cells.len();
                    continue;
                }
                Err(failure) => {
                    say(format_args!("idlewise: {}; its cells are left out", failure.text()));
                    missing_count += cells.cells.len();
                    continue;
                }
            };
            let results = plan.store.get(&cells.inputs(&sha256))?;
            missing_count += results.iter().filter(|result| result.is_none()).count();
            rows.extend(cells.entries(&log.name, &results));
        }
        let mut inputs = plan.inputs();
        inputs.extend(self.common.manifest.clone());
        self.print(&rows, &inputs)?;
        if missing_count > 0 {
            say(format_args!(
                "idlewise: {} missing and left out; `idlewise lab sweep` computes what is missing, unless something \
                 else has its name",
                counted(missing_count, "cell")
            ));
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, rows: &[Entry], inputs: &[PathBuf]) -> Result<()> {
        if self.standings {
            let table = standing_table("Regret against the oracle (simulated)", &standings(rows));
            write!(screen::stdout(), "{}", table.to_text(&TextStyle::for_stdout()))?;
            return Ok(());
        }
        let table = collected_table(rows);
        let format = self.format.unwrap_or_else(|| by_ending(&self.output));
        if format == Format::Parquet && self.output == Path::new(output::STDOUT) {
            return Err(Failure::new("Parquet is not text; name a file with -o"));
        }
        let bytes = match format {
            Format::Csv => table.to_csv().into_bytes(),
            Format::Parquet => table.to_parquet(None),
            Format::Json => {
                let document = json!({ "schema": SCHEMA, "cells": table });
                format!("{document:#}\n").into_bytes()
            }
        };
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        output::write_bytes(output::create(&self.output, self.force, &inputs)?, &bytes)
    }
}

fn by_ending(path: &Path) -> Format {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("parquet") => Format::Parquet,
        Some("json") => Format::Json,
        _ => Format::Csv,
    }
}
