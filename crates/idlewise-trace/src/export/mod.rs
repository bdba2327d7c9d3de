//! Logs in other programs' formats. Memory does not grow with the log.
//!
//! | file | holds |
//! | --- | --- |
//! | `csv.rs` | [`CsvWriter`]: rows as text |
//! | `arrow.rs` | [`ArrowWriter`]: rows as an Arrow IPC file |
//! | `perfetto.rs` | [`perfetto::TraceWriter`]: tracks of slices for the Perfetto UI |
//!
//! Rows have the log's columns, and for each governor that was replayed the state that it selected
//! first in the gap, `GOVERNOR_state`, and what became of it, `GOVERNOR_verdict`. What replays is
//! the caller.

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
    /// Whether it fitted.
    pub verdict: Verdict,
}

/// Takes the rows of a log.
pub trait RowWriter {
    /// Takes gaps, and for each governor as many first stays.
    ///
    /// # Errors
    /// Whatever stops the writing.
    ///
    /// # Panics
    /// If a governor has another number of stays.
    fn write(&mut self, gaps: &[IdleGap], first_stays: &[&[FirstStay]]) -> io::Result<()>;

    /// Ends the file.
    ///
    /// # Errors
    /// Whatever stops the writing.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// The names of the columns, governors' last.
fn column_names(governors: &[String]) -> Vec<String> {
    let of_log = crate::log::column_names().map(str::to_owned);
    let of_governor =
        |governor: &String| [format!("{governor}_state"), format!("{governor}_verdict")];
    of_log.into_iter().chain(governors.iter().flat_map(of_governor)).collect()
}
