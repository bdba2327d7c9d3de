//! Writes rows as CSV: names in the first line, times in ns, `true` and `false`, null as nothing.

use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use csv::ByteRecord;

use super::{FirstStay, RowWriter, column_names};
use crate::IdleGap;
use crate::log::LogMetadata;

/// Writes rows as CSV.
pub struct CsvWriter<W: Write> {
    writer: csv::Writer<W>,
    record: ByteRecord,
    field: String,
    knows_tick_stops: bool,
    knows_tasks: bool,
}

impl<W: Write> CsvWriter<W> {
    /// Creates a writer and writes the line of names.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn new(output: W, metadata: &LogMetadata, governors: &[String]) -> io::Result<Self> {
        let mut writer = csv::Writer::from_writer(output);
        writer.write_record(column_names(governors)).map_err(io_error)?;
        Ok(CsvWriter {
            writer,
            record: ByteRecord::new(),
            field: String::new(),
            knows_tick_stops: !metadata.is_unknown("tick_stopped"),
            knows_tasks: !metadata.is_unknown("ran_task"),
        })
    }

    fn push(&mut self, value: impl Display) {
        self.field.clear();
        // Writing to a string cannot fail.
        let _ = write!(self.field, "{value}");
        self.record.push_field(self.field.as_bytes());
    }

    fn push_optional(&mut self, value: Option<impl Display>) {
        match value {
            Some(value) => self.push(value),
            None => self.record.push_field(b""),
        }
    }
}

impl<W: Write> RowWriter for CsvWriter<W> {
    fn write(&mut self, gaps: &[IdleGap], first_stays: &[&[FirstStay]]) -> io::Result<()> {
        for (index, gap) in gaps.iter().enumerate() {
            self.record.clear();
            self.push(gap.cpu);
            self.push(gap.start_ns);
            self.push(gap.gap_ns);
            self.push_optional(gap.sleep_length_ns);
            self.push_optional(gap.next_tick_ns);
            self.push_optional(self.knows_tick_stops.then_some(gap.tick_stopped));
            self.push_optional(self.knows_tasks.then_some(gap.ran_task));
            self.push(gap.wake_reason);
            self.push_optional(gap.latency_limit_ns);
            self.push_optional(gap.recorded_state);
            self.push_optional(gap.recorded_idle_ns);
            for stays in first_stays {
                let FirstStay { state, verdict } = stays[index];
                self.push(state);
                self.push(verdict.name());
            }
            self.writer.write_byte_record(&self.record).map_err(io_error)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.writer.flush()
    }
}

/// The I/O error, whose kind tells if the reader has gone. `csv::Error`'s conversion hides it.
fn io_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => io::Error::other(format!("{other:?}")),
    }
}
