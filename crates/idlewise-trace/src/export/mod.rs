//! Writes logs in other programs' formats. Memory does not grow with the log.
//!
//! | file | holds |
//! | --- | --- |
//! | `csv.rs` | [`CsvWriter`]: rows as text |
//! | `arrow.rs` | [`ArrowWriter`]: rows as an Arrow IPC file |
//! | `perfetto.rs` | [`perfetto::TraceWriter`]: tracks of slices for the Perfetto UI |
//!
//! Rows have the log's columns and, for each replayed governor, the state that it selected first in
//! the gap (`GOVERNOR_state`) and the verdict on it (`GOVERNOR_verdict`). The caller does the
//! replay.

mod arrow;
mod csv;
pub mod perfetto;

use std::io;

use idlewise_core::Verdict;

use crate::IdleGap;

pub use arrow::ArrowWriter;
pub use csv::CsvWriter;

/// A governor's first stay in a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstStay {
    /// The state's index.
    pub state: u8,
    /// Whether the state fitted the gap.
    pub verdict: Verdict,
}

/// Writes the rows of a log.
pub trait RowWriter {
    /// Writes gaps, with one first stay per gap for each governor.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    ///
    /// # Panics
    /// Panics if a governor's number of stays differs from the number of gaps.
    fn write(&mut self, gaps: &[IdleGap], first_stays: &[&[FirstStay]]) -> io::Result<()>;

    /// Finishes the file.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// The names of the columns, those of the governors last.
fn column_names(governors: &[String]) -> Vec<String> {
    let of_log = crate::log::column_names().map(str::to_owned);
    let of_governor =
        |governor: &String| [format!("{governor}_state"), format!("{governor}_verdict")];
    of_log.into_iter().chain(governors.iter().flat_map(of_governor)).collect()
}
