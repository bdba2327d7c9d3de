//! Converts a recording to steps with their metadata.

use super::WorkloadMetadata;
use super::builder::{CauseError, StepBuilder, StepSink};
use crate::import::{ImportError, Recording};
use crate::{CpuFacts, RecordedMachine};

/// Why a recording could not be converted to a workload log.
#[derive(Debug)]
pub enum CausesError<E> {
    /// The recording cannot be read.
    Import(ImportError),
    /// It does not say what makes tasks run.
    Causes(CauseError),
    /// The steps cannot be written.
    Sink(E),
}

/// Reads a whole recording, which was opened for [`crate::tracepoint::Purpose::Causes`], into `sink`. Returns
/// the sink with the log's metadata. `progress` is called with the number of bytes read so far.
///
/// # Errors
/// Returns an error of the importer or the sink, and fails if the recording lacks causes.
pub fn convert_causes<S: StepSink>(
    recording: Box<dyn Recording>,
    sink: S,
    recorded: &RecordedMachine,
    progress: &dyn Fn(u64),
) -> Result<(S, WorkloadMetadata), CausesError<S::Error>> {
    let info = recording.info().clone();
    let facts = CpuFacts::of_recording(&info, recorded.machine.as_ref());
    let builder = StepBuilder::new(sink, info.tracepoints, facts).map_err(CausesError::Causes)?;
    let mut builder = builder;
    let mut failure = None;
    let summary = recording.read(progress, &mut |events| {
        // The reader cannot be stopped. After a failure the remaining events are ignored.
        if failure.is_none() {
            failure = builder.push(events).err();
        }
    });
    if let Some(error) = failure {
        return Err(CausesError::Sink(error));
    }
    let summary = summary.map_err(CausesError::Import)?;
    crate::convert::check_order(&summary).map_err(CausesError::Import)?;
    let (sink, metadata) = builder.finish().map_err(CausesError::Sink)?;
    let note = info.machine_note.unwrap_or_default();
    let of_cpus = summary.lost_event_counts.values();
    let lost = of_cpus.fold(summary.lost_event_count_without_cpu, |sum, &n| sum.saturating_add(n));
    let noted = note.tables.first().map(|table| table.machine.clone());
    let metadata = WorkloadMetadata {
        hz: note.hz,
        kernel: info.kernel.or(note.kernel),
        governor: recorded.governor.clone().or(note.governor),
        machine: recorded.machine.clone().or(noted),
        blake3: Some(summary.source_blake3),
        command: info.cmdline.or_else(|| (!note.command.is_empty()).then_some(note.command)),
        lost_event_count: lost.max(metadata.lost_event_count),
        ..metadata
    };
    Ok((sink, metadata))
}
