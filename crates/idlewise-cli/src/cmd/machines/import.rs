//! `idlewise machines import`: a machine file with exit latencies that another tool measured.

use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_machine::{Machine, WultResult, WultState};
use idlewise_report::imported::{self, ImportedState};
use idlewise_report::{TextStyle, counted, shown_in_line, wrap};
use idlewise_trace::OutputFile;
use serde_json::json;

use crate::bundled;
use crate::error::{Failure, Result};
use crate::input::read_text;
use crate::{output, screen};

/// The schema version of `--json`.
const SCHEMA: u32 = 1;
/// What a result consists of.
const FILES: [&str; 2] = ["info.yml", "datapoints.csv"];
/// Fewer samples say nothing of a tail.
const SAMPLE_COUNT_MIN: usize = 100;

const EXAMPLES: &str = "\
Examples:
  # What a wult result says of Ice Lake's states
  idlewise machines import ~/icx-c6-tdt --machine icx

  # A machine file with the measured latencies, and a replay on it
  idlewise machines import ~/icx-c6-tdt --machine icx -o icx-measured.toml
  idlewise replay server.parquet --machine ./icx-measured.toml

Exit status: 0, or 2 if the result can't be read, or the file can't be written.";

/// Put measured exit latencies into a machine file
///
/// Reads a result folder of wult (`info.yml`, `datapoints.csv`). Samples that did not reach the state, or in which firmware
/// interrupted, are left out. The file keeps the machine's states and what they declare, and replays on it take the measured
/// exits.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Import {
    /// The folder of the result
    folder: PathBuf,

    /// The machine that was measured: an id listed by `idlewise machines`, or a machine file
    #[arg(long, value_name = "NAME|FILE")]
    machine: String,

    /// The machine file to write; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long, requires = "output")]
    force: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Import {
    /// Reads the result, and prints and writes what it says.
    pub fn run(self) -> Result<ExitCode> {
        let machine = bundled::machine(&self.machine)?;
        let result = read(&self.folder)?;
        let measured = with_exits(machine.clone(), &result, &self.folder)?;
        let [info, points] = FILES.map(|name| self.folder.join(name));
        let inputs = [Path::new(&self.machine), &info, &points];
        let output = self.output.as_deref();
        let output = output.map(|path| output::create(path, self.force, &inputs)).transpose()?;
        let is_stdout = output.as_ref().is_some_and(OutputFile::is_stdout);
        if let Some(output) = output {
            let text = measured.to_toml().map_err(Failure::new)?;
            output::write(
                output,
                format_args!(
                    "# Written by `idlewise machines import`. machines/README.md of idlewise explains every field.\n\n{text}"
                ),
            )?;
        }
        let mut out = if is_stdout { screen::stderr() } else { screen::stdout() };
        let declared = |state: &WultState| {
            let index = machine.state_index(&state.name).ok();
            index.map_or(0, |index| machine.states[index].exit_latency_ns)
        };
        let rows =
            result.states.iter().map(|state| ImportedState { state, declared_ns: declared(state) });
        let rows: Vec<_> = rows.collect();
        let doubts = doubts(&result, &machine);
        if self.json {
            let document = json!({
                "report": result.report,
                "version": result.version,
                "device": result.device,
                "machine": machine.id,
                "rows": imported::table("", &rows),
                "doubts": doubts,
                "output": self.output,
            });
            out.json(SCHEMA, &document)?;
        } else {
            let style = TextStyle::for_stdout();
            let title = format!(
                "{}, measured by wult {} with {}",
                shown_in_line(&result.report),
                shown_in_line(&result.version),
                shown_in_line(&result.device)
            );
            writeln!(out, "{}\n", wrap(&title, style.width, 2))?;
            writeln!(out, "{}", imported::table("", &rows).to_text(&style))?;
            for doubt in &doubts {
                writeln!(out, "{}", wrap(&format!("- {doubt}"), style.width, 2))?;
            }
            if let Some(path) = self.output.filter(|_| !is_stdout) {
                let file = screen::operand(&at(&path));
                writeln!(out, "Next: idlewise replay LOG --machine {file}")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A path that `--machine` takes for a file.
fn at(path: &Path) -> PathBuf {
    let is_plain = path.is_relative() && !path.to_string_lossy().contains('/');
    if is_plain { Path::new(".").join(path) } else { path.to_owned() }
}

fn read(folder: &Path) -> Result<WultResult> {
    let name = screen::name(folder);
    if !folder.is_dir() {
        return Err(Failure::new(format_args!(
            "{name}: no folder; give the folder of a wult result, which has info.yml and datapoints.csv"
        )));
    }
    let [info, path] = FILES.map(|name| folder.join(name));
    let info = read_text(&info)?;
    // A device has no end.
    let fail = |why: &dyn std::fmt::Display| {
        Failure::new(format_args!("cannot read {}: {why}", screen::name(&path)))
    };
    match fs::metadata(&path) {
        Err(error) => return Err(fail(&error)),
        Ok(found) if !found.is_file() => return Err(fail(&"it is no regular file")),
        Ok(_) => {}
    }
    let file = File::open(&path).map_err(|error| fail(&error))?;
    WultResult::read(&info, BufReader::with_capacity(1 << 16, file))
        .map_err(|error| Failure::new(format_args!("{name}/{error}")))
}

/// The machine with the exits of a result.
fn with_exits(mut machine: Machine, result: &WultResult, folder: &Path) -> Result<Machine> {
    let source = format!("wult {}, {}, {}", result.version, result.device, result.report);
    for state in &result.states {
        let index = machine.state_index(&state.name).map_err(|error| {
            Failure::new(format_args!(
                "{}: {error}; name the machine that was measured",
                screen::name(folder)
            ))
        })?;
        let percentiles_us = state.percentiles_us();
        if percentiles_us.is_empty() {
            continue;
        }
        let known = &mut machine.states[index];
        known.exit_percentiles_us = percentiles_us;
        known.exit_kind = Some("measured".to_owned());
        known.exit_source = Some(source.clone());
        known.exit_checked = None;
    }
    if result.states.iter().all(|state| state.samples_us.is_empty()) {
        return Err(Failure::new(format_args!(
            "{}: no sample may be used: the CPU never reached the states, firmware interrupted, or times are impossible",
            screen::name(folder)
        )));
    }
    // A file may be measured again.
    for (text, end) in
        [(&mut machine.id, "-measured"), (&mut machine.title, ", with measured exit latencies")]
    {
        if !text.ends_with(end) {
            text.push_str(end);
        }
    }
    machine.check().map_err(Failure::new)?;
    Ok(machine)
}

/// What makes the figures doubtful.
fn doubts(result: &WultResult, machine: &Machine) -> Vec<String> {
    let mut doubts = Vec::new();
    for state in &result.states {
        let (name, count) = (&state.name, state.samples_us.len());
        if count < SAMPLE_COUNT_MIN {
            doubts.push(format!(
                "{name}: {} that may be used, too few for the slowest exits",
                counted(count as u64, "sample")
            ));
        }
        let known = machine.state_index(name).ok().map(|index| &machine.states[index]);
        let is_polling = known.is_some_and(|state| state.idle().is_polling);
        if !state.has_residency && !is_polling {
            doubts.push(format!(
                "{name}: no column says whether the CPU reached it, so samples of shallower states may count"
            ));
        }
        if state.unreached_count > count as u64 {
            doubts.push(format!("{name}: in most samples the CPU never reached it"));
        }
    }
    if result.states.iter().any(|state| !state.has_interruptions) {
        doubts.push(
            "SMIs and NMIs were not counted, so samples with one are among the slowest".to_owned(),
        );
    }
    doubts
}
