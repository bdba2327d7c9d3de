//! Reads a CSV file with a header line by line.

use std::io::{self, Read};

use csv::ByteRecord;
use idlewise_core::{StateIndex, StateTable};

use super::DecisionLogError;

/// The longest line. A decision has some twenty numbers; in a device a line might never end.
const LINE_BYTE_COUNT_MAX: usize = 1 << 16;

/// A file whose lines are short enough to hold. A line break within quotes does not end a line.
struct ShortLines<R> {
    file: R,
    /// Bytes since the last line break.
    byte_count: usize,
    is_quoted: bool,
}

impl<R: Read> Read for ShortLines<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read_count = self.file.read(into)?;
        for byte in &into[..read_count] {
            self.byte_count += 1;
            match byte {
                b'"' => self.is_quoted = !self.is_quoted,
                b'\n' if !self.is_quoted => self.byte_count = 0,
                _ => {}
            }
            if self.byte_count > LINE_BYTE_COUNT_MAX {
                let what = format!("it has more than {LINE_BYTE_COUNT_MAX} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(read_count)
    }
}

/// A column of the header: its name and index.
#[derive(Clone, Copy)]
pub(super) struct Column {
    name: &'static str,
    place: usize,
}

/// A CSV file with a header, read line by line. Its errors contain their location.
pub(super) struct Lines<R> {
    reader: csv::Reader<ShortLines<R>>,
    header: ByteRecord,
    record: ByteRecord,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(file: R) -> Result<Self, DecisionLogError> {
        let file = ShortLines { file, byte_count: 0, is_quoted: false };
        let mut reader = csv::ReaderBuilder::new().from_reader(file);
        let header = reader.byte_headers().map_err(|error| located(error, 1))?.clone();
        Ok(Lines { reader, header, record: ByteRecord::new() })
    }

    pub(super) fn column(&self, name: &'static str) -> Result<Column, DecisionLogError> {
        let place = self.header.iter().position(|field| field.trim_ascii() == name.as_bytes());
        let missing = DecisionLogError::MissingColumn { column: name };
        place.map(|place| Column { name, place }).ok_or(missing)
    }

    /// Reads the next line. Returns false at the end of the file.
    pub(super) fn advance(&mut self) -> Result<bool, DecisionLogError> {
        let line = self.reader.position().line();
        self.reader.read_byte_record(&mut self.record).map_err(|error| located(error, line))
    }

    pub(super) fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }

    pub(super) fn text(&self, column: Column) -> String {
        String::from_utf8_lossy(self.record.get(column.place).unwrap_or_default()).into_owned()
    }

    /// A number without further limits.
    pub(super) fn number<T: Whole>(&self, column: Column) -> Result<T, DecisionLogError> {
        self.number_in(column, T::MIN, T::MAX)
    }

    pub(super) fn number_in<T: Whole>(
        &self,
        column: Column,
        min: i128,
        max: i128,
    ) -> Result<T, DecisionLogError> {
        let field = self.record.get(column.place).unwrap_or_default().trim_ascii();
        let number = std::str::from_utf8(field).ok().and_then(|text| text.parse::<i128>().ok());
        let (line, name) = (self.line(), column.name);
        let found = number.ok_or_else(|| DecisionLogError::NotANumber {
            line,
            column: name,
            found: self.text(column),
        })?;
        let in_range = (min..=max).contains(&found).then(|| T::try_from(found).ok()).flatten();
        in_range.ok_or(DecisionLogError::OutOfRange { line, column: name, found, min, max })
    }

    pub(super) fn flag(&self, column: Column) -> Result<bool, DecisionLogError> {
        Ok(self.number_in::<u8>(column, 0, 1)? == 1)
    }

    /// A state of the table. State 1 is accepted even if there is only one state, because `ladder`
    /// and `haltpoll` really return it.
    pub(super) fn state(
        &self,
        column: Column,
        states: &StateTable,
    ) -> Result<StateIndex, DecisionLogError> {
        let found: i64 = self.number(column)?;
        let state_count = states.len();
        let (line, column) = (self.line(), column.name);
        let no_such_state =
            DecisionLogError::NoSuchState { line, column, found: found.into(), state_count };
        let state = usize::try_from(found).ok().filter(|&state| state < state_count.max(2));
        state.ok_or(no_such_state)
    }

    /// A state of the table, or `None` for any negative number.
    pub(super) fn state_or_negative(
        &self,
        column: Column,
        states: &StateTable,
    ) -> Result<Option<StateIndex>, DecisionLogError> {
        let number: i64 = self.number(column)?;
        if number < 0 { Ok(None) } else { self.state(column, states).map(Some) }
    }
}

/// The integer types that columns have.
pub(super) trait Whole: TryFrom<i128> {
    const MIN: i128;
    const MAX: i128;
}

macro_rules! whole {
    ($($integer:ty),*) => {$(
        impl Whole for $integer {
            const MIN: i128 = <$integer>::MIN as i128;
            const MAX: i128 = <$integer>::MAX as i128;
        }
    )*};
}

whole!(u8, i8, u32, u64, i64);

/// Converts the CSV reader's errors to ours. `line` is the line being read.
fn located(error: csv::Error, line: u64) -> DecisionLogError {
    let place = error.position().map_or(line, csv::Position::line);
    match error.into_kind() {
        csv::ErrorKind::Io(error) => DecisionLogError::Unreadable { line, error },
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            DecisionLogError::FieldCount { line: place, found: len, expected: expected_len }
        }
        kind => DecisionLogError::Unreadable {
            line: place,
            error: io::Error::other(format!("{kind:?}")),
        },
    }
}
