//! `idlewise log validate`: checks whether a log can be trusted.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_report::validate::validate_table;
use idlewise_report::{Notes, TextStyle, counted, wrap};
use idlewise_trace::causes::WorkloadLog;
use idlewise_trace::log::LogError;
use idlewise_trace::validate::{Check, CheckResult, Finding, validate};
use serde_json::json;

use crate::doubts::ShownDoubts;
use crate::error::Result;
use crate::input::{self, NamedLog};
use crate::progress::Progress;
use crate::screen;
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # May I trust the log that somebody sent me?
  idlewise log validate server.parquet

  # Would an import of this recording be a good log?
  idlewise log validate perf.data

  # For scripts: the exit status alone, or all findings
  idlewise log validate server.parquet >/dev/null && idlewise replay server.parquet
  idlewise log validate server.parquet --json

Exit status: 0 if nothing is wrong (doubts may be), 1 if something is, 2 if the file can't be \
read.";

/// Check whether an idle log can be trusted
///
/// Checks every row and the metadata. For each check it prints the result, the number of violations
/// and the first one. `wrong` means that the log contradicts itself: import the recording again, or
/// ask the sender. `doubt` means that the log is consistent but limited; the text says how.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Validate {
    /// An idle log, a workload log, or a recording
    log: PathBuf,

    #[command(flatten)]
    unpacking: Unpacking,

    #[command(flatten)]
    doubts: ShownDoubts,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Validate {
    /// Checks the log and prints a line for each check.
    pub fn run(self) -> Result<ExitCode> {
        if let Some(log) = input::workload_log(&self.log)? {
            return self.run_workload(&log);
        }
        let named = NamedLog::open(&self.log, self.unpacking)?;
        let metadata = &named.log.metadata;
        let bar = Progress::gaps("validating", named.log.gap_count());
        let findings = validate(&named.log, &|done| bar.set(done))?;
        bar.finish();
        let is_wrong = findings.iter().any(|finding| finding.result() == CheckResult::Wrong);
        let notes = notes(self.doubts, &named, &findings);
        let mut out = screen::stdout();
        if self.json {
            let document = json!({
                "log": named.name,
                "format_version": metadata.format_version,
                "gap_count": named.log.gap_count(),
                "is_wrong": is_wrong,
                "checks": validate_table(&findings),
                "missing_columns": named.log.missing_columns(),
                "doubts": notes.counted_doubts(),
            });
            out.json(SCHEMA, &document)?;
        } else {
            let style = TextStyle::for_stdout();
            let verdict = verdict(&named, &findings);
            writeln!(out, "{}\n", wrap(&verdict, style.width, 2))?;
            out.write_all(validate_table(&findings).to_text(&style).as_bytes())?;
            let notes = notes.to_text(style.width);
            if !notes.is_empty() {
                writeln!(out, "\n{}", notes.trim_end())?;
            }
        }
        Ok(if is_wrong { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }
}

impl Validate {
    /// Checks a workload log.
    fn run_workload(&self, log: &WorkloadLog) -> Result<ExitCode> {
        let bar = Progress::gaps("validating", log.step_count());
        let checked = log.each_group(&mut |steps| bar.add(steps.len() as u64));
        bar.finish();
        let wrong = match checked {
            Ok(()) => None,
            Err(LogError::DamagedWorkload { what, .. }) => Some(what),
            Err(error) => return Err(error.into()),
        };
        let metadata = &log.metadata;
        let name = input::short_name(&self.log);
        let status = if wrong.is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) };
        let mut out = screen::stdout();
        if self.json {
            let document = json!({
                "log": name,
                "workload_version": metadata.workload_version,
                "step_count": log.step_count(),
                "task_count": metadata.tasks.len(),
                "cpu_count": metadata.cpu_count,
                "is_wrong": wrong.is_some(),
                "contradiction": wrong,
                "lost_event_count": metadata.lost_event_count,
                "causeless_count": metadata.causeless_count,
                "never_ran_count": metadata.never_ran_count,
                "unseen_cpus": metadata.unseen_cpus,
            });
            out.json(SCHEMA, &document)?;
            return Ok(status);
        }
        let verdict = format!(
            "{name}: workload log version {}, {} of {}: {}",
            metadata.workload_version,
            counted(log.step_count(), "step"),
            counted(metadata.tasks.len(), "task"),
            if wrong.is_none() { "nothing is wrong" } else { "don't trust it" },
        );
        let width = TextStyle::for_stdout().width;
        writeln!(out, "{}", wrap(&verdict, width, 2))?;
        if let Some(what) = wrong {
            writeln!(out, "{}", wrap(&what, width, 2))?;
        }
        Ok(status)
    }
}

/// What `info` says: a verdict in a line, and where to look if it is not clean.
///
/// `named` was read from `file`.
pub fn verdict_of(named: &NamedLog, file: &Path) -> Result<String> {
    let bar = Progress::gaps("validating", named.log.gap_count());
    let findings = validate(&named.log, &|done| bar.set(done))?;
    bar.finish();
    let is_clean = findings
        .iter()
        .all(|finding| !matches!(finding.result(), CheckResult::Wrong | CheckResult::Doubt));
    let details = match is_clean {
        true => String::new(),
        false => format!("; details: idlewise log validate {}", screen::operand(file)),
    };
    Ok(verdict(named, &findings) + &details)
}

fn verdict(named: &NamedLog, findings: &[Finding]) -> String {
    let count = |result| findings.iter().filter(|finding| finding.result() == result).count();
    let wrong = match count(CheckResult::Wrong) {
        0 if named.log.gap_count() == 0 => "there is nothing to judge".to_owned(),
        0 => "nothing is wrong".to_owned(),
        count => format!("{count} of {} checks found it wrong; don't trust it", findings.len()),
    };
    let doubt = match count(CheckResult::Doubt) {
        0 => "no check in doubt".to_owned(),
        1 => "1 check in doubt".to_owned(),
        count => format!("{count} checks in doubt"),
    };
    let cpu_count = named.log.metadata.cpus.iter().filter(|cpu| cpu.observed).count();
    format!(
        "{}: idle log version {}, {} of {}: {wrong}, {doubt}",
        named.name,
        named.log.metadata.format_version,
        counted(named.log.gap_count(), "gap"),
        counted(cpu_count, "CPU"),
    )
}

/// The importer's doubts, and the share of timers that were rebuilt correctly.
fn notes(shown: ShownDoubts, named: &NamedLog, findings: &[Finding]) -> Notes {
    let mut notes = shown.notes();
    let missing = named.log.missing_columns();
    if !missing.is_empty() {
        notes.doubt(format!("columns that the file lacks: {}", missing.join(", ")));
    }
    let timer = findings.iter().find(|finding| finding.check == Check::TimerKnown);
    if let Some(Finding { checked_count, found_count, .. }) = timer
        && *checked_count > 0
        && *found_count > 0
    {
        let percent = 100.0 * *found_count as f64 / *checked_count as f64;
        notes.doubt(format!(
            "{percent:.1} % of the gaps that a timer ended show another sleep length: their timer \
             was armed within the gap, by an interrupt or by another CPU, or its start is missing"
        ));
    }
    notes.doubts_of(&named.log.metadata.doubts);
    notes
}
