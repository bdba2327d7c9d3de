//! What a sweep has, and what it lacks.

use std::io::Write;
use std::process::ExitCode;

use idlewise_report::{counted, shown_in_line};
use serde::Serialize;
use serde_json::json;

use super::plan::described;
use super::{Common, SCHEMA};
use crate::cells::{ENGINE, cell_key};
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
    /// The log's name.
    pub log: String,
    pub reason: String,
}

/// What `--json` prints of a sweep, when it has run and later.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    /// The version of what computes cells.
    pub engine: u32,
    pub cell_count: usize,
    pub unit_count: usize,
    pub present_count: usize,
    pub computed_count: usize,
    pub failed_count: usize,
    pub missing_count: usize,
    /// Files with cells of other versions, if somebody has looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_engine_file_count: Option<u64>,
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
        .map(|line| shown_in_line(&line).into_owned())
        .collect();
    if reasons.len() > REASON_COUNT_MAX {
        let more = reasons.len() - REASON_COUNT_MAX;
        lines.push(format!("failed: {more} more reasons; --json prints all"));
    }
    lines
}

impl Status {
    /// Looks at the store, without opening logs: only their hashes are needed.
    pub fn run(self) -> Result<ExitCode> {
        let plan = self.common.plan()?;
        let cells = plan.cells();
        let of_log = &cells.cells;
        let cell_count = of_log.len() * plan.logs.len();
        let (mut present_count, mut missing_count) = (0, 0);
        let mut failed = Vec::new();
        for log in &plan.logs {
            let mut fail = |cell, reason: &str| {
                let cell = described(&log.name, cell);
                failed.push(FailedCell { cell, log: log.name.clone(), reason: reason.to_owned() });
            };
            let sha256 = match &log.sha256 {
                Ok(sha256) => sha256,
                Err(reason) => {
                    of_log.iter().for_each(|cell| fail(cell, reason));
                    continue;
                }
            };
            let known = plan.store.of_log(sha256)?;
            let present = known.keys();
            for cell in of_log {
                let key = cell_key(&cell.inputs(sha256));
                match known.failure(&key) {
                    _ if present.contains(key.as_str()) => present_count += 1,
                    Some(reason) => fail(cell, reason),
                    None => missing_count += 1,
                }
            }
        }
        failed.sort();
        let other_count = plan.store.other_engine_file_count();
        let mut out = screen::stdout();
        if self.json {
            let document = Summary {
                engine: ENGINE,
                cell_count,
                unit_count: plan.unit_count(of_log.len()),
                present_count,
                computed_count: 0,
                failed_count: failed.len(),
                missing_count,
                other_engine_file_count: Some(other_count),
                failures: &failed,
            };
            out.json(SCHEMA, &json!(document))?;
        } else {
            writeln!(
                out,
                "{}: {present_count} are there, {missing_count} missing, {} failed",
                counted(cell_count, "cell"),
                failed.len()
            )?;
            if other_count > 0 {
                let files = counted(usize::try_from(other_count).unwrap_or(usize::MAX), "file");
                writeln!(
                    out,
                    "{files} of other engines than {ENGINE} not used; remove their folders, engine=..., if nobody needs them"
                )?;
            }
            for line in failure_lines(&failed) {
                writeln!(out, "{line}")?;
            }
        }
        let is_whole = present_count == cell_count;
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
