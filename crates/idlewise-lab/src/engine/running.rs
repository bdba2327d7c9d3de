//! What a recording says besides its gaps: which task ran when, and the CPUs' frequencies.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, UInt16Array, UInt32Array, UInt64Array,
};
use idlewise_trace::Leaving;
use idlewise_trace::running::{FrequencyChange, Run, RunningBuilder};
use idlewise_trace::tracepoint::Purpose;

use super::Log;
use super::decisions::ROW_COUNT_MAX;
use super::gaps::{Columns, ROW_COUNT, batch, of_names, texts};
use crate::error::{Failure, Result};
use crate::input::{Reading, import_failure, open_recording};

/// In the order of [`leaving_index`].
const LEAVINGS: [&str; 3] = ["runnable", "waits", "ends"];

fn leaving_index(leaving: Leaving) -> u32 {
    match leaving {
        Leaving::Runnable => 0,
        Leaving::Waits => 1,
        Leaving::Ends => 2,
    }
}

/// Returns a row for each time that a task ran.
///
/// # Errors
/// If the log was not made of a recording, or that cannot be read again.
pub fn tasks(log: &Log) -> Result<Vec<RecordBatch>, String> {
    let (runs, _) = running(log).map_err(|failure| failure.text())?;
    let leavings = of_names(LEAVINGS);
    Ok(chunks(&runs, &|runs: &[Run]| {
        let runs = || runs.iter();
        let columns: Columns = vec![
            ("cpu", Arc::new(runs().map(|it| it.cpu).collect::<UInt16Array>()) as ArrayRef),
            ("start_ns", Arc::new(runs().map(|it| it.start_ns).collect::<Int64Array>())),
            ("run_ns", Arc::new(runs().map(|it| it.run_ns).collect::<UInt64Array>())),
            ("task", Arc::new(runs().map(|it| it.task).collect::<UInt32Array>())),
            ("name", Arc::new(runs().map(|it| Some(it.name.text())).collect::<StringArray>())),
            ("ended_by", texts(runs().map(|it| it.leaves.map(leaving_index)), &leavings)),
        ];
        batch(columns, &["run_ns", "ended_by"])
    }))
}

/// Returns a row for each time that a CPU's frequency was set.
///
/// # Errors
/// Like [`tasks`].
pub fn frequencies(log: &Log) -> Result<Vec<RecordBatch>, String> {
    let (_, changes) = running(log).map_err(|failure| failure.text())?;
    Ok(chunks(&changes, &|changes: &[FrequencyChange]| {
        let changes = || changes.iter();
        let columns: Columns = vec![
            ("cpu", Arc::new(changes().map(|it| it.cpu).collect::<UInt16Array>()) as ArrayRef),
            ("at_ns", Arc::new(changes().map(|it| it.at_ns).collect::<Int64Array>())),
            ("frequency_khz", Arc::new(changes().map(|it| it.khz).collect::<UInt32Array>())),
        ];
        batch(columns, &[])
    }))
}

fn chunks<R>(rows: &[R], made: &dyn Fn(&[R]) -> RecordBatch) -> Vec<RecordBatch> {
    let batches: Vec<_> = rows.chunks(ROW_COUNT).map(made).collect();
    if batches.is_empty() { vec![made(&[])] } else { batches }
}

fn running(log: &Log) -> Result<(Vec<Run>, Vec<FrequencyChange>)> {
    let path = log.0.recording()?;
    let reading = Reading { purpose: Purpose::Running, ..Reading::default() };
    let mut builder = RunningBuilder::default();
    let recording = open_recording(path, &reading)?;
    // The reader cannot be stopped. What is too much is dropped.
    recording
        .read(&|_| {}, &mut |events| {
            if builder.row_count() <= ROW_COUNT_MAX {
                builder.push(events);
            }
        })
        .map_err(|error| import_failure(path, &error))?;
    log.0.must_be_unchanged()?;
    if builder.row_count() > ROW_COUNT_MAX {
        return Err(Failure::new(format_args!(
            "{}: more than {ROW_COUNT_MAX} times a task ran or a frequency was set",
            path.display()
        )));
    }
    Ok(builder.finish())
}
