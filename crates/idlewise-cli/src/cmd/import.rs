//! `idlewise log import`: turns a recording into an idle log.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser};
use idlewise_report::{counted, wrap};
use idlewise_trace::RecordedMachine;
use idlewise_trace::causes::WorkloadMetadata;
use idlewise_trace::import;
use idlewise_trace::tracepoint::Purpose;

use crate::bundled;
use crate::doubts::ShownDoubts;
use crate::error::{Failure, Result};
use crate::governors::Choice;
use crate::input::{self, Reading};
use crate::output;
use crate::screen;
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # Record with perf everything that the import uses, then make a log
  perf record -a -k CLOCK_MONOTONIC -e power:cpu_idle,sched:sched_switch,irq_vectors:*_entry,\\
irq:irq_handler_entry,timer:hrtimer_*,timer:timer_*,timer:tick_stop -- sleep 10
  idlewise log import perf.data -o server.parquet

  # The same with trace-cmd
  trace-cmd record -C mono -e power:cpu_idle -e sched:sched_switch -e irq_vectors \\
      -e irq:irq_handler_entry -e timer sleep 10
  idlewise log import trace.dat

  # Name the recorded machine, so that its exit latencies can be subtracted from wake-up times
  idlewise log import perf.data --recorded-machine spr --recorded-governor menu -o spr.parquet

  # A truncated recording, with the event formats of another one of the same kernel
  perf record -a -e power:cpu_idle,sched:sched_switch,irq_vectors:*_entry,irq:irq_handler_entry,\\
timer:hrtimer_*,timer:timer_*,timer:tick_stop -o short.perf.data -- sleep 1
  idlewise log import cut.perf.data --formats-from short.perf.data

  # A packed recording; replace an older log
  idlewise log import server.perf.data.xz --force

  # The text of a running trace, or of a trace.dat
  cat /sys/kernel/tracing/trace > live.txt; idlewise log import live.txt
  trace-cmd report -t > report.txt; idlewise log import report.txt

  # What makes tasks run, from a recording with causes
  sudo idlewise record --causes -o run.dat -- ./workload
  idlewise log import --causes run.dat -o run.workload.parquet

Exit status: 0, or 2 if the recording can't be used or the log can't be written.";

/// Turn a recording into an idle log
///
/// The format is recognised from the first bytes. Whatever the recording lacks is reported and left
/// empty in the log. If only power:cpu_idle was recorded, the log has gaps, but neither timers nor
/// wake reasons.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Import {
    /// The recording; it may be packed as .xz, .gz or .zst
    file: PathBuf,

    /// The recording's format, if it cannot be recognised
    #[arg(long, value_name = "NAME", value_parser = format_parser(), conflicts_with = "formats_from")]
    format: Option<String>,

    /// The log to write [default: the recording's name with .parquet, in the current folder]
    #[arg(short, long, value_name = "LOG")]
    output: Option<PathBuf>,

    /// Make a workload log instead: what makes each task run, and how long it runs; the recording needs the
    /// events of `idlewise record --causes`
    #[arg(long, conflicts_with = "json")]
    causes: bool,

    /// Replace the log if it exists
    #[arg(long)]
    force: bool,

    /// Take missing event formats from this perf recording of the same kernel; perf writes them last,
    /// so a truncated recording has none
    #[arg(long, value_name = "FILE")]
    formats_from: Option<PathBuf>,

    /// The machine that was recorded: an id listed by `idlewise machines`, or a machine file
    #[arg(long, value_name = "NAME|FILE")]
    recorded_machine: Option<String>,

    /// The cpuidle governor that was in use
    #[arg(long, value_name = "NAME")]
    recorded_governor: Option<String>,

    #[command(flatten)]
    unpacking: Unpacking,

    #[command(flatten)]
    doubts: ShownDoubts,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// The formats' names, each with its description for the long help.
fn format_parser() -> PossibleValuesParser {
    let formats = import::formats();
    PossibleValuesParser::new(formats.map(|(name, what)| PossibleValue::new(name).help(what)))
}

impl Import {
    /// Converts the recording and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        let recorded = self.recorded()?;
        let output = match self.output {
            Some(output) => output,
            None => {
                let kind = if self.causes { ".workload" } else { "" };
                PathBuf::from(format!("{}{kind}.parquet", input::short_name(&self.file)))
            }
        };
        let reading = Reading {
            purpose: if self.causes { Purpose::Causes } else { Purpose::Gaps },
            format: self.format.as_deref(),
            formats_from: self.formats_from.as_deref(),
            unpacking: self.unpacking.into(),
        };
        let machine = self.recorded_machine.as_deref().unwrap_or_default();
        let others = [self.formats_from.as_deref(), Some(Path::new(machine))];
        let inputs: Vec<&Path> =
            [&*self.file].into_iter().chain(others.into_iter().flatten()).collect();
        // Fail before hours of reading, not after.
        let file = output::create(&output, self.force, &inputs)?;
        let report = output::report_of(&file);
        if self.causes {
            let (metadata, byte_count) =
                input::import_causes(&self.file, file, &reading, &recorded)?;
            let WorkloadMetadata { tasks, lost_event_count, causeless_count, .. } = &metadata;
            let line = format!(
                "{}: a workload log of {}, {byte_count} bytes",
                output.display(),
                counted(tasks.len(), "task")
            );
            let mut out = report();
            writeln!(out, "{}", wrap(&line, 100, 2))?;
            let mut notes = self.doubts.notes();
            if *lost_event_count > 0 {
                notes.doubt(format!(
                    "{} lost, so causes are missing; record with larger buffers: -b",
                    counted(lost_event_count, "event")
                ));
            }
            if *causeless_count > 0 {
                notes.doubt(format!(
                    "{} without a recorded reason; record all CPUs",
                    counted(causeless_count, "step")
                ));
            }
            out.write_all(notes.to_text(100).as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        let (metadata, byte_count) = input::import(&self.file, file, &reading, &recorded)?;
        let mut out = report();
        if self.json {
            let document = serde_json::json!({
                "log": output.to_string_lossy(),
                "byte_count": byte_count,
                "metadata": metadata,
            });
            out.json(SCHEMA, &document)?;
            return Ok(ExitCode::SUCCESS);
        }
        let gap_count: u64 = metadata.cpus.iter().map(|cpu| cpu.gap_count).sum();
        let observed_count = metadata.cpus.iter().filter(|cpu| cpu.observed).count();
        let source = &metadata.source;
        let line = format!(
            "{}: {} of {}, {byte_count} bytes, 1/{:.0} of the \
             recording",
            output.display(),
            counted(gap_count, "gap"),
            counted(observed_count, "CPU"),
            source.byte_count as f64 / byte_count as f64,
        );
        writeln!(out, "{}", wrap(&line, 100, 2))?;
        let mut notes = self.doubts.notes();
        notes.doubts_of(&metadata.doubts);
        out.write_all(notes.to_text(100).as_bytes())?;
        if output.is_file() {
            writeln!(
                out,
                "Next: idlewise info {0}; idlewise replay {0}",
                screen::operand(&output)
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn recorded(&self) -> Result<RecordedMachine> {
        let mut recorded = RecordedMachine::default();
        if let Some(name) = &self.recorded_machine {
            let machine = bundled::machine(name)?;
            machine.table().map_err(Failure::new)?;
            recorded.machine = Some(machine);
        }
        if let Some(name) = &self.recorded_governor {
            Choice::parse(name)?;
            recorded.governor = Some(name.clone());
        }
        Ok(recorded)
    }
}
