//! What candidates are judged on: the recorded idle periods, or the recorded tasks.

use std::path::Path;

use idlewise_trace::CpuSummary;
use idlewise_trace::causes::WorkloadMetadata;
use idlewise_trace::log::LogMetadata;

use super::predicted::{self, Predicted};
use crate::error::{Failure, Result};
use crate::input::{self, NamedLog};
use crate::screen;
use crate::unpack::Unpacking;

/// `--judge`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum AskedJudge {
    /// Replay the recorded idle periods
    Replay,
    /// Simulate the recorded tasks
    Predict,
}

/// Why a workload is not played, and what would let it.
pub(super) struct Unplayable {
    pub why: &'static str,
    pub remedy: &'static str,
}

/// What candidates are judged on.
pub(super) struct Judged {
    pub name: String,
    pub metadata: LogMetadata,
    /// The recording's idle periods; `None` for a workload log, which has none.
    pub log: Option<NamedLog>,
    pub predicted: Option<Predicted>,
    /// Why a recording with causes is not played.
    pub doubt: Option<String>,
}

impl Judged {
    /// An idle log or a recording without causes.
    pub fn replayed(named: NamedLog) -> Self {
        let metadata = named.log.metadata.clone();
        let name = named.name.clone();
        Judged { name, metadata, log: Some(named), predicted: None, doubt: None }
    }

    /// Opens a recording for the judge that was asked for, or that suits it.
    pub fn open(
        path: &Path,
        unpacking: Unpacking,
        judge: Option<AskedJudge>,
        unplayable: Option<Unplayable>,
    ) -> Result<Self> {
        if judge == Some(AskedJudge::Replay) {
            return Ok(Judged::replayed(NamedLog::open(path, unpacking)?));
        }
        let is_asked = judge == Some(AskedJudge::Predict);
        let pipe = Unplayable {
            why: "a pipe can be read only once, so its tasks cannot be played",
            remedy: "save it to a file first",
        };
        if let Some(Unplayable { why, remedy }) =
            unplayable.or_else(|| input::is_pipe(path).then_some(pipe))
        {
            if is_asked {
                return Err(Failure::new(format_args!("--judge predict: {why}; {remedy}")));
            }
            if input::workload_log(path)?.is_some() {
                return Err(Failure::new(format_args!(
                    "{}: a workload log has no idle periods to replay, and {why}; {remedy}",
                    screen::name(path)
                )));
            }
            let doubt = Some(format!("judged by replay: {why}; {remedy}"));
            return Ok(Judged { doubt, ..Judged::replayed(NamedLog::open(path, unpacking)?) });
        }
        let played = predicted::open(path, unpacking).transpose();
        let Some(played) = played else {
            if is_asked {
                return Err(Failure::new(format_args!(
                    "{}: it does not say what makes tasks run, so it cannot be played; record with \
                     `idlewise record --causes`, or leave out --judge predict",
                    screen::name(path)
                )));
            }
            return Ok(Judged::replayed(NamedLog::open(path, unpacking)?));
        };
        let is_workload_log = input::workload_log(path)?.is_some();
        match played.and_then(Predicted::new) {
            Ok(predicted) => {
                let metadata = match is_workload_log {
                    true => None,
                    false => Some(NamedLog::open(path, unpacking)?.log.metadata),
                };
                Ok(Judged {
                    name: input::short_name(path),
                    metadata: metadata.unwrap_or_else(|| metadata_of(&predicted.played.metadata)),
                    log: None,
                    predicted: Some(predicted),
                    doubt: None,
                })
            }
            Err(error) if is_workload_log => Err(Failure::new(format_args!(
                "{}; a workload log has no idle periods to replay instead: name the recording that it was \
                 imported from",
                error.text()
            ))),
            Err(error) if is_asked => Err(error),
            Err(error) => {
                let doubt = Some(format!(
                    "judged by replay, as the workload cannot be played: {}",
                    error.text()
                ));
                Ok(Judged { doubt, ..Judged::replayed(NamedLog::open(path, unpacking)?) })
            }
        }
    }
}

/// What a workload log says of itself, as an idle log would.
fn metadata_of(workload: &WorkloadMetadata) -> LogMetadata {
    let cpu = |cpu: u32| CpuSummary {
        cpu: cpu as u16,
        observed: true,
        gap_count: 1,
        first_at_ns: workload.first_at_ns,
        last_at_ns: workload.last_at_ns,
        ..CpuSummary::default()
    };
    LogMetadata {
        kernel: workload.kernel.clone(),
        governor: workload.governor.clone(),
        machine: workload.machine.clone(),
        hz: workload.hz,
        cpus: (0..workload.cpu_count).map(cpu).collect(),
        ..LogMetadata::default()
    }
}
