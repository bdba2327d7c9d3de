//! `idlewise log anonymize`: makes a log that can be shared.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_report::{counted, wrap};
use idlewise_sim::replay::GroupReader;
use idlewise_trace::GapSink;
use idlewise_trace::anonymize::{Anonymized, Field, REMAINS};
use idlewise_trace::causes::{AnonymousWorkload, Step, StepSink, WorkloadLog, WorkloadWriter};
use idlewise_trace::log::{IdleLog, LogWriter};
use serde_json::json;

use crate::error::{Failure, Result, did_you_mean};
use crate::input::{self, NamedLog};
use crate::output;
use crate::progress::Progress;
use crate::screen::{self, Screen};
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # Before mailing a log: what is dropped, and what remains that could still identify
  idlewise log anonymize server.parquet -o mail.parquet

  # The CPU's model matters to the reader, and is not a secret
  idlewise log anonymize server.parquet --keep cpu-model -o with-model.parquet

  # A recording at once; the log that it makes is anonymous
  idlewise log anonymize perf.data -o recording.parquet

Exit status: 0, or 2 if the log can't be read or written.";

/// Remove what identifies a log's machine or workload
///
/// A replay of the result gives the same numbers. These fields are removed: command (the recording
/// command), source (hash and size of the recording), kernel (the release after its version),
/// cpu-model, machine (everything but the idle states), time (the log starts in its first tick) and
/// doubts (those that may contain names). The command prints what remains and what that could reveal.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Anonymize {
    /// An idle log, a workload log, or a recording
    log: PathBuf,

    /// The log to write
    #[arg(short, long, value_name = "LOG")]
    output: PathBuf,

    /// Replace the log if it exists
    #[arg(long)]
    force: bool,

    /// Keep this field: command, source, kernel, cpu-model, machine, time, doubts or tasks (of a workload
    /// log); may be repeated
    #[arg(long, value_name = "FIELD")]
    keep: Vec<String>,

    #[command(flatten)]
    unpacking: Unpacking,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Anonymize {
    /// Writes the log, and prints what was dropped and what remains.
    pub fn run(self) -> Result<ExitCode> {
        let keep: Vec<Field> =
            self.keep.iter().map(|name| field(name)).collect::<Result<_, _>>()?;
        // Fail before hours of reading, not after.
        let output = output::create(&self.output, self.force, &[&self.log])?;
        let report = output::report_of(&output);
        if let Some(log) = input::workload_log(&self.log)? {
            if self.json {
                return Err(Failure::new("--json describes idle logs; leave it out"));
            }
            let anonymous = anonymize_workload(&log, WorkloadWriter::new(output)?, &keep)?;
            let mut out = report();
            writeln!(out, "{}: {}", screen::name(&self.output), counted(log.step_count(), "step"))?;
            let numbers = "the tasks' numbers".to_owned();
            let dropped: Vec<String> =
                [numbers].into_iter().chain(anonymous.dropped.iter().map(described)).collect();
            list(&mut out, "Dropped:", &dropped)?;
            let remains = AnonymousWorkload::REMAINS.map(str::to_owned);
            list(&mut out, "Remains, and could still identify:", &remains)?;
            return Ok(ExitCode::SUCCESS);
        }
        let named = NamedLog::open(&self.log, self.unpacking)?;
        let anonymized = anonymize(&named, LogWriter::new(output)?, &keep)?;
        self.report(&mut report(), &named.log, &anonymized)?;
        Ok(ExitCode::SUCCESS)
    }

    fn report(&self, out: &mut Screen, log: &IdleLog, anonymized: &Anonymized) -> Result<()> {
        if self.json {
            let document = json!({
                "log": self.output.to_string_lossy(),
                "gap_count": log.gap_count(),
                "dropped": anonymized.dropped.iter().map(|field| field.name()).collect::<Vec<_>>(),
                "remains": REMAINS,
            });
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        writeln!(out, "{}: {}", screen::name(&self.output), counted(log.gap_count(), "gap"))?;
        let dropped: Vec<String> = anonymized.dropped.iter().map(described).collect();
        match dropped.is_empty() {
            true => list(out, "Dropped: nothing, there was nothing to drop", &[])?,
            false => list(out, "Dropped:", &dropped)?,
        }
        let remains: Vec<String> = REMAINS.iter().map(|&remains| remains.to_owned()).collect();
        list(out, "Remains, and could still identify:", &remains)?;
        Ok(())
    }
}

/// A field's name and what it is.
fn described(field: &Field) -> String {
    format!("{}: {}", field.name(), field.meaning())
}

fn list(out: &mut Screen, title: &str, lines: &[String]) -> io::Result<()> {
    writeln!(out, "{title}")?;
    for line in lines {
        writeln!(out, "{}", wrap(&format!("- {line}"), 100, 2))?;
    }
    Ok(())
}

/// Writes a log without all identifying fields except those in `keep`.
///
/// # Errors
/// Fails if the log cannot be read or written.
pub fn anonymize(
    NamedLog { log, .. }: &NamedLog,
    mut writer: LogWriter,
    keep: &[Field],
) -> Result<Anonymized> {
    let bar = Progress::gaps("anonymizing", 2 * log.gap_count());
    let mut first_at_ns = i64::MAX;
    each_run(log, &bar, |gaps| {
        first_at_ns = gaps.iter().map(|gap| gap.start_ns).fold(first_at_ns, i64::min);
        Ok(())
    })?;
    let anonymized = Anonymized::new(&log.metadata, first_at_ns, keep);
    let mut shifted = Vec::new();
    each_run(log, &bar, |gaps| {
        shifted.clear();
        for gap in gaps {
            shifted.push(anonymized.gap(gap).ok_or_else(|| {
                Failure::new(format_args!(
                    "{}: times are too far apart to be shifted; check it with `idlewise log validate`",
                    log.path().display()
                ))
            })?);
        }
        Ok(writer.take(gaps[0].cpu, &shifted)?)
    })?;
    bar.finish();
    writer.finish(&anonymized.metadata)?;
    Ok(anonymized)
}

/// Writes a workload log without all identifying fields except those in `keep`.
///
/// # Errors
/// Fails if the log cannot be read or written.
pub fn anonymize_workload(
    log: &WorkloadLog,
    mut writer: WorkloadWriter,
    keep: &[Field],
) -> Result<AnonymousWorkload> {
    let anonymous = AnonymousWorkload::new(&log.metadata, keep);
    let mut taken = Ok(());
    log.each_group(&mut |steps| {
        let steps: Vec<Step> = steps.iter().map(|step| anonymous.step(step)).collect();
        if taken.is_ok() {
            taken = writer.take(&steps);
        }
    })?;
    taken?;
    writer.finish(&anonymous.metadata)?;
    Ok(anonymous)
}

/// Calls `take` with the gaps of a log in order, one CPU at a time.
fn each_run(
    log: &IdleLog,
    bar: &Progress,
    mut take: impl FnMut(&[idlewise_trace::IdleGap]) -> Result<()>,
) -> Result<()> {
    let mut reader = GroupReader::new(log);
    for group in log.groups() {
        for gaps in reader.read(group)?.chunk_by(|a, b| a.cpu == b.cpu) {
            take(gaps)?;
        }
        bar.add(group.gap_count);
    }
    Ok(())
}

/// Returns the field with that name.
pub fn field(name: &str) -> Result<Field> {
    let names = || Field::ALL.into_iter().map(Field::name);
    Field::ALL.into_iter().find(|field| field.name() == name).ok_or_else(|| {
        let otherwise = format!("it is one of {}", names().collect::<Vec<_>>().join(", "));
        let hint = did_you_mean(name, names(), &otherwise);
        Failure::new(format_args!("--keep: nothing is called '{name}'; {hint}"))
    })
}
