//! `idlewise log export`: converts a log and replays of it for other programs.

mod perfetto;
mod rows;
pub(super) mod simulated;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_lab::target::{Conditions, named_machine, own_machine};
use idlewise_report::counted;
use idlewise_sim::contest::Price;
use idlewise_sim::replay::{ObservedLane, Observer, ReplayedGroups, Setting};
use idlewise_trace::OutputFile;
use serde_json::json;

use crate::bundled;
use crate::error::{Failure, Result};
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors::{self, Choice};
use crate::input::{NamedLog, short_name};
use crate::joining::Joining;
use crate::output::{self, STDOUT};
use crate::promoting::Promoting;
use crate::replay_arguments::{MACHINES_DEFAULT, ReplayTarget};
use crate::screen::{self, Screen};
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # For https://ui.perfetto.dev: the recorded idle states, and what menu and teo would have done
  idlewise log export server.parquet --format perfetto --governor menu --governor teo --machine spr

  # For a spreadsheet; docs/columns.md explains the columns
  idlewise log export server.parquet --format csv -o server.csv

  # menu's stays with a timer that gets CPUs out of C1
  idlewise log export server.parquet --format perfetto --governor menu --machine spr \\
      --promote C1 -o promoted.pftrace

  # For pandas, Polars or DuckDB, with menu's first choice in each gap and whether it fitted
  idlewise log export server.parquet --format arrow --governor menu

  # Through a pipe
  idlewise log export perf.data --format csv -o - | head

Exit status: 0; 1 if a governor's file crashed, looped or returned an invalid state; 2 if the log \
can't be read or the file can't be written.";

/// Convert a log to a Perfetto trace, CSV or Arrow
///
/// CSV and Arrow have one row for each gap with the log's columns (docs/columns.md). Each --governor
/// adds the first state it selects and whether that was right. A Perfetto trace has a group of tracks
/// for each CPU: the recorded idle states and, for each --governor, its stays with ticks and misses.
/// Stays that were too deep or too shallow have their own names and therefore colours. The oracle's
/// price of delay is ¼ of the polling power.
#[derive(clap::Args)]
#[command(mut_arg("governor", with_default("none")))]
#[command(after_help = EXAMPLES)]
pub struct Export {
    /// An idle log, or a recording
    log: PathBuf,

    /// What to write
    #[arg(long, value_enum)]
    format: Format,

    /// The file to write, or - for standard output [default: the log's name with the format's
    /// extension, in the current folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    governors: GovernorArguments,

    /// The machine to replay on, a name or a file [default: recorded; if unknown, spr]
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,

    #[command(flatten)]
    promoting: Promoting,

    #[command(flatten)]
    joining: Joining,

    #[command(flatten)]
    unpacking: Unpacking,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A trace for ui.perfetto.dev and trace_processor
    Perfetto,
    /// Rows as text
    Csv,
    /// Rows as an Arrow IPC file
    Arrow,
}

impl Format {
    const fn ending(self) -> &'static str {
        match self {
            Format::Perfetto => "pftrace",
            Format::Csv => "csv",
            Format::Arrow => "arrow",
        }
    }
}

/// The governors to replay, and the machine.
struct Replays {
    target: ReplayTarget,
    setting: Setting,
    choices: Vec<Choice>,
    /// The CPUs in groups, if they share states. Rows have no column for that.
    groups: Option<ReplayedGroups>,
}

impl Replays {
    /// Makes a governor's lane for a CPU.
    fn lane<O: Observer + 'static>(
        &self,
        choice: &Choice,
        observer: O,
    ) -> Result<Box<dyn ObservedLane<O>>> {
        let Replays { target, setting, .. } = self;
        let player = choice.on(&target.machine)?;
        Ok(player.observed(&target.costs, *setting, Price::QUARTER, observer))
    }
}

impl Export {
    /// Writes the file and prints what it contains.
    pub fn run(self) -> Result<ExitCode> {
        let path = self.output.clone().unwrap_or_else(|| {
            PathBuf::from(format!("{}.{}", short_name(&self.log), self.format.ending()))
        });
        // Fail before hours of reading, not after.
        let machine = self.machine.as_deref().unwrap_or_default();
        let output = match path == Path::new(STDOUT) {
            true => Output::Stdout,
            false => {
                let inputs = [self.log.as_path(), Path::new(machine)];
                Output::File(output::create(&path, self.force, &inputs)?)
            }
        };
        let report = output.report();
        let Some((named, replays, byte_count)) = self.write(output)? else {
            return Ok(ExitCode::FAILURE);
        };
        if path != Path::new(STDOUT) {
            self.report(&mut report(), &path, byte_count, &named, &replays)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Writes everything. Returns the log, the replays and the number of bytes; `None` if a
    /// governor from a file failed.
    fn write(&self, output: Output) -> Result<Option<(NamedLog, Replays, u64)>> {
        // Check names before reading anything.
        let choices = self.governors.choices()?;
        let asked = self.machine.as_deref();
        let machine = named_machine(asked)?;
        let named = NamedLog::open(&self.log, self.unpacking)?;
        let own = own_machine(asked, &named.name, &named.log.metadata)?;
        let machine = match machine.or(own) {
            Some(machine) => machine,
            None => bundled::machine(MACHINES_DEFAULT[0])?,
        };
        let target = ReplayTarget::new(machine, &[], self.promoting.states())?;
        governors::must_decide(&choices)?;
        for choice in &choices {
            choice.on(&target.machine)?;
        }
        let setting = target.setting(Conditions::default(), &named.log.metadata);
        let topology = self.joining.topology()?;
        if self.joining.is_given() && (self.format != Format::Perfetto || choices.is_empty()) {
            return Err(Failure::new(
                "--topology: only --format perfetto with a --governor shows states that CPUs share",
            ));
        }
        let groups = match self.format {
            Format::Perfetto => topology.join(&named, &target.machine.id, &target.shared)?.groups(),
            Format::Csv | Format::Arrow => None,
        };
        let replays = Replays { target, setting, choices, groups };
        match self.format {
            Format::Perfetto => perfetto::write(&named, &replays, &output)?,
            Format::Csv | Format::Arrow => {
                rows::write(&named, &replays, self.format == Format::Arrow, &output)?;
            }
        }
        if governors::say_failures(&replays.choices, "so nothing was exported") {
            return Ok(None);
        }
        let byte_count = output.finish()?;
        Ok(Some((named, replays, byte_count)))
    }

    fn report(
        &self,
        out: &mut Screen,
        path: &Path,
        byte_count: u64,
        named: &NamedLog,
        replays: &Replays,
    ) -> Result<()> {
        let gap_count = named.log.gap_count();
        let machine = &replays.target.machine.id;
        let governors: Vec<String> = replays.choices.iter().map(Choice::name).collect();
        if self.json {
            let document = json!({
                "file": path.to_string_lossy(),
                "byte_count": byte_count,
                "gap_count": gap_count,
                "governors": governors,
                "machine": (!governors.is_empty()).then_some(machine),
            });
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let replayed = match governors.as_slice() {
            [] => String::new(),
            names => format!(", with {} on {machine} (simulated)", names.join(", ")),
        };
        let gaps = counted(gap_count, "gap");
        writeln!(out, "{}: {gaps}, {byte_count} bytes{replayed}", screen::name(path))?;
        if self.format == Format::Perfetto {
            writeln!(out, "Next: open it at https://ui.perfetto.dev")?;
        }
        Ok(())
    }
}

/// Writes a log as a trace for the Perfetto UI.
pub fn write_perfetto(log: &Path, output: OutputFile) -> Result<()> {
    let export = Export {
        log: log.to_owned(),
        format: Format::Perfetto,
        output: None,
        force: false,
        governors: GovernorArguments::default(),
        machine: None,
        promoting: Promoting::default(),
        joining: Joining::default(),
        unpacking: Unpacking::default(),
        json: false,
    };
    export.write(Output::File(output)).map(|_| ())
}

/// The destination of the export.
enum Output {
    File(OutputFile),
    Stdout,
}

impl Output {
    /// Where to print the summary.
    fn report(&self) -> fn() -> Screen {
        match self {
            Output::File(output) => output::report_of(output),
            Output::Stdout => screen::stderr,
        }
    }

    fn writer(&self) -> Result<Box<dyn Write + Send>> {
        Ok(match self {
            Output::File(output) => {
                let file: File = output.file().try_clone().map_err(|error| self.failure(error))?;
                Box::new(BufWriter::with_capacity(1 << 16, file))
            }
            Output::Stdout => Box::new(BufWriter::with_capacity(1 << 16, screen::raw_stdout())),
        })
    }

    /// The failure for an error of the writer.
    fn failure(&self, error: io::Error) -> Failure {
        match self {
            Output::File(output) => {
                Failure::new(format_args!("{}: {error}", output.path().display()))
            }
            Output::Stdout => error.into(),
        }
    }

    fn finish(self) -> Result<u64> {
        match self {
            Output::File(output) => Ok(output.finish()?),
            Output::Stdout => Ok(0),
        }
    }
}
