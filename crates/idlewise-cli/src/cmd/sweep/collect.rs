//! One table of all cells of a sweep.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_report::arena::{standing_table, standings};
use idlewise_report::cell::collected_table;
use idlewise_report::{ParquetError, ParquetWriter, Table, TextStyle, counted};
use idlewise_sim::contest::{CellInputs, Entry};
use idlewise_trace::OutputFile;
use serde_json::json;

use super::Common;
use super::logs::PlannedLog;
use super::plan::Plan;
use crate::error::{Failure, Result};
use crate::output;
use crate::progress::Progress;
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
    /// Reads all cells and writes the table, log by log. Cells that are missing are left out and counted.
    pub fn run(self) -> Result<ExitCode> {
        let plan = self.common.plan()?;
        let mut to = match self.standings {
            true => None,
            false => Some(self.open(&plan)?),
        };
        // Standings are of all cells together.
        let mut all = Vec::new();
        let mut missing_count = 0;
        let cells = plan.cells();
        let bar = Progress::logs("collecting", plan.logs.len() as u64);
        for log in self.in_order(&plan)? {
            bar.add(1);
            let sha256 = match &log.sha256 {
                Ok(sha256) => sha256,
                Err(reason) => {
                    say(format_args!("idlewise: {reason}; its cells are left out"));
                    missing_count += cells.cells.len();
                    continue;
                }
            };
            let known = plan.store.of_log(sha256)?;
            let result = |inputs: &CellInputs| known.result(inputs);
            let results: Vec<_> = cells.inputs(sha256).iter().map(result).collect();
            missing_count += results.iter().filter(|result| result.is_none()).count();
            let entries = cells.entries(&log.name, &results);
            match &mut to {
                Some(to) => to.add(entries)?,
                None => all.extend(entries),
            }
        }
        bar.finish();
        match to {
            Some(to) => to.finish()?,
            None => {
                let title = "Regret against the oracle (simulated)";
                let table = standing_table(title, &standings(&all));
                write!(screen::stdout(), "{}", table.to_text(&TextStyle::for_stdout()))?;
            }
        }
        if missing_count > 0 {
            say(format_args!(
                "idlewise: {} missing and left out; `idlewise lab sweep` computes what is missing, and `status` says what failed",
                counted(missing_count, "cell")
            ));
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The logs by name, or if they are many in the order in which they are kept, so that each file is read once.
    fn in_order<'a>(&self, plan: &'a Plan) -> Result<Vec<&'a PlannedLog>> {
        let mut logs: Vec<&PlannedLog> = plan.logs.iter().collect();
        if plan.store.fits_memory()? {
            logs.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.name.cmp(&b.name)));
        }
        Ok(logs)
    }

    fn open(&self, plan: &Plan) -> Result<Rows> {
        let format = match self.format {
            Some(format) => format,
            None => by_ending(&self.output)?,
        };
        let is_stdout = self.output == Path::new(output::STDOUT);
        if format == Format::Parquet && is_stdout {
            return Err(Failure::new("Parquet is not text; name a file with -o"));
        }
        let mut inputs = plan.inputs();
        inputs.extend(self.common.manifest.clone());
        inputs.extend(self.common.logs.clone());
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        Rows::new(output::create(&self.output, self.force, &inputs)?, format)
    }
}

/// So many rows are written together.
const ROW_COUNT: usize = 16_384;

/// A table that is written while it is made.
struct Rows {
    output: OutputFile,
    /// Not written yet.
    entries: Vec<Entry>,
    form: Form,
}

/// What has been written.
enum Form {
    /// The columns' names, if anything.
    Csv(BufWriter<File>, bool),
    /// The beginning, and whether there was a row.
    Json(BufWriter<File>, bool),
    /// The file, and what writes to it once the first rows say how columns are stored.
    Parquet(File, Option<Box<ParquetWriter<File>>>),
}

impl Rows {
    fn new(output: OutputFile, format: Format) -> Result<Self> {
        let fail = |error| cannot_write(&output, error);
        let file = output.file().try_clone().map_err(fail)?;
        let form = match format {
            Format::Csv => Form::Csv(BufWriter::new(file), false),
            Format::Json => {
                let mut file = BufWriter::new(file);
                write!(file, "{{\n  \"schema\": {SCHEMA},\n  \"cells\": [").map_err(fail)?;
                Form::Json(file, false)
            }
            Format::Parquet => Form::Parquet(file, None),
        };
        Ok(Rows { output, entries: Vec::new(), form })
    }

    fn add(&mut self, entries: Vec<Entry>) -> Result<()> {
        self.entries.extend(entries);
        match self.entries.len() >= ROW_COUNT {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<()> {
        let table = collected_table(&std::mem::take(&mut self.entries));
        let written = match &mut self.form {
            Form::Csv(file, has_heading) => {
                let text = table.to_csv();
                let heading = if *has_heading { text.find('\n').map_or(0, |at| at + 1) } else { 0 };
                *has_heading = true;
                file.write_all(&text.as_bytes()[heading..])
            }
            Form::Json(file, has_rows) => {
                let rows = json!(table);
                rows.as_array().into_iter().flatten().try_for_each(|row| {
                    let comma = if std::mem::replace(has_rows, true) { "," } else { "" };
                    write!(file, "{comma}\n    {row}")
                })
            }
            Form::Parquet(file, writer) => add_parquet(file, writer, &table),
        };
        written.map_err(|error| cannot_write(&self.output, error))
    }

    fn finish(mut self) -> Result<()> {
        self.write()?;
        let written = match self.form {
            Form::Csv(mut file, _) => file.flush(),
            Form::Json(mut file, has_rows) => {
                let end = if has_rows { "\n  ]" } else { "]" };
                write!(file, "{end}\n}}\n").and_then(|()| file.flush())
            }
            Form::Parquet(_, writer) => {
                writer.map_or(Ok(()), |writer| writer.finish().map(drop).map_err(of_parquet))
            }
        };
        written.map_err(|error| cannot_write(&self.output, error))?;
        self.output.finish()?;
        Ok(())
    }
}

fn add_parquet(
    file: &File,
    writer: &mut Option<Box<ParquetWriter<File>>>,
    table: &Table,
) -> io::Result<()> {
    let begun = match writer.take() {
        Some(begun) => begun,
        None => Box::new(ParquetWriter::new(file.try_clone()?, table, None).map_err(of_parquet)?),
    };
    writer.insert(begun).add(table).map_err(of_parquet)
}

/// Only the cause, such as a full disk.
fn of_parquet(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(cause) => *cause,
            Err(cause) => io::Error::other(cause.to_string()),
        },
        error => io::Error::other(error.to_string()),
    }
}

fn cannot_write(output: &OutputFile, error: io::Error) -> Failure {
    Failure::new(format_args!("{}: {error}", screen::name(output.path())))
}

fn by_ending(path: &Path) -> Result<Format> {
    let ending = path.extension().map(|it| it.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("parquet") => Ok(Format::Parquet),
        Some("json") => Ok(Format::Json),
        Some("csv") | None => Ok(Format::Csv),
        Some(_) => Err(Failure::new(format_args!(
            "{}: it ends in none of .csv, .json and .parquet; name the form with --format",
            screen::name(path)
        ))),
    }
}
