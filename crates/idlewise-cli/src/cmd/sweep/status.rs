//! What a sweep has, and what it lacks.

use std::io::Write;
use std::process::ExitCode;

use idlewise_report::counted;
use serde::Serialize;
use serde_json::json;

use super::plan::described;
use super::{Common, SCHEMA};
use crate::cells::code_version;
use crate::error::Result;
use crate::screen;

/// How many reasons are printed. JSON has all.
const REASON_COUNT_MAX: usize = 20;

#[derive(clap::Args)]
pub struct Status {
    #[command(flatten)]
    common: Common,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// A cell that could not be computed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FailedCell {
    /// Governor, log and machine.
    pub cell: String,
    pub reason: String,
}

/// What `--json` prints of a sweep, when it has run and later.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    /// The version of the code that computes cells.
    pub code: &'a str,
    pub cell_count: usize,
    pub unit_count: usize,
    pub present_count: usize,
    pub computed_count: usize,
    pub failed_count: usize,
    pub missing_count: usize,
    pub other_version_cell_count: u64,
    pub failures: &'a [FailedCell],
}

/// Lines about failed cells: for each reason one cell, and how many there are.
pub fn failure_lines(failed: &[FailedCell]) -> Vec<String> {
    let mut reasons: Vec<(&FailedCell, usize)> = Vec::new();
    for cell in failed {
        match reasons.iter_mut().find(|(first, _)| first.reason == cell.reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((cell, 1)),
        }
    }
    let mut lines: Vec<String> = reasons
        .iter()
        .take(REASON_COUNT_MAX)
        .map(|(first, count)| match count {
            1 => format!("failed: {}: {}", first.cell, first.reason),
            count => format!("failed: {} and {} more: {}", first.cell, count - 1, first.reason),
        })
        .collect();
    if reasons.len() > REASON_COUNT_MAX {
        let more = reasons.len() - REASON_COUNT_MAX;
        lines.push(format!("failed: {more} more reasons; --json prints all"));
    }
    lines
}

impl Status {
    /// Looks at the store, without opening logs: only their hashes are needed. Logs in buckets are not even read.
    pub fn run(self) -> Result<ExitCode> {
        let plan = self.common.plan()?;
        let cells = plan.cells();
        let of_log = &cells.cells;
        let cell_count = of_log.len() * plan.logs.len();
        let (mut present_count, mut missing_count) = (0, 0);
        let mut failed = Vec::new();
        for log in &plan.logs {
            let sha256 = match log.known_sha256(&plan.store) {
                Ok(Some(sha256)) => sha256,
                // Nobody has read it yet, as far as the store knows.
                Ok(None) => {
                    missing_count += of_log.len();
                    continue;
                }
                Err(failure) => {
                    let reason = failure.text();
                    failed.extend(of_log.iter().map(|cell| FailedCell {
                        cell: described(&log.name, cell),
                        reason: reason.clone(),
                    }));
                    continue;
                }
            };
            let present = plan.store.present(&sha256)?;
            let inputs = cells.inputs(&sha256);
            let reasons = plan.store.failures(&present, &inputs);
            for ((cell, inputs), reason) in of_log.iter().zip(&inputs).zip(reasons) {
                if present.has(inputs) {
                    present_count += 1;
                    continue;
                }
                match reason {
                    Some(reason) => {
                        failed.push(FailedCell { cell: described(&log.name, cell), reason });
                    }
                    None => missing_count += 1,
                }
            }
        }
        failed.sort();
        let other_count = plan.store.other_version_cell_count();
        let mut out = screen::stdout();
        if self.json {
            let document = Summary {
                code: code_version(),
                cell_count,
                unit_count: plan.unit_count(of_log.len()),
                present_count,
                computed_count: 0,
                failed_count: failed.len(),
                missing_count,
                other_version_cell_count: other_count,
                failures: &failed,
            };
            out.json(SCHEMA, &json!(document))?;
        } else {
            writeln!(
                out,
                "{}: {present_count} are there, {missing_count} missing, {} failed; {other_count} of other versions \
                 of idlewise",
                counted(cell_count, "cell"),
                failed.len()
            )?;
            for line in failure_lines(&failed) {
                writeln!(out, "{line}")?;
            }
        }
        let is_whole = present_count == cell_count;
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
