//! Errors in a decision log or a file of tables.

use std::fmt;
use std::io;

use idlewise_core::StateTableError;

/// Why a decision log or a table file cannot be used. Lines count from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionLogError {
    /// The file cannot be read or decompressed beyond this point.
    #[error("line {line}: cannot read on: {error}; is the file complete?")]
    Unreadable {
        /// The line that was being read.
        line: u64,
        /// What the reader said.
        #[source]
        error: io::Error,
    },
    /// A line has more or fewer fields than the header.
    #[error("line {line}: {found} fields where the header has {expected}; is the line cut off?")]
    FieldCount {
        /// The line.
        line: u64,
        /// How many fields it has.
        found: u64,
        /// How many fields the header has.
        expected: u64,
    },
    /// The header lacks a column.
    #[error(
        "line 1: no column '{column}' in the header; conformance/decisions/README.md lists \
         the columns"
    )]
    MissingColumn {
        /// The column.
        column: &'static str,
    },
    /// A field is not a whole number.
    #[error("line {line}, column '{column}': '{}' is not a whole number", Shown(found))]
    NotANumber {
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
        /// The text of the field.
        found: String,
    },
    /// A number is outside its column's range.
    #[error("line {line}, column '{column}': {found} is not in {min} to {max}")]
    OutOfRange {
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
        /// The number.
        found: i128,
        /// The smallest allowed number.
        min: i128,
        /// The largest allowed number.
        max: i128,
    },
    /// A state does not exist in the table.
    #[error(
        "line {line}, column '{column}': no state {found} in a table of {state_count} \
         states; is this the log's table?"
    )]
    NoSuchState {
        /// The line.
        line: u64,
        /// The column.
        column: &'static str,
        /// The state's index.
        found: i128,
        /// How many states the table has.
        state_count: usize,
    },
    /// Row 0 must enable the governor, and no other row may.
    #[error(
        "line {line}, column 'enable': row 0 must have 1 and all others 0; split the log \
         where the governor starts anew"
    )]
    Enable {
        /// The line.
        line: u64,
    },
    /// The file has no rows.
    #[error("line 1: no rows; is the file complete?")]
    Empty,
    /// In a table file, a table's states are not numbered 0, 1, 2, …
    #[error(
        "line {line}, column 'index': state {expected} of table '{}' should be here; number \
         a table's states from 0",
        Shown(table)
    )]
    StateOrder {
        /// The line.
        line: u64,
        /// The table.
        table: String,
        /// The expected index.
        expected: usize,
    },
    /// A table in a table file is not valid.
    #[error("table '{}': {error}", Shown(table))]
    InvalidTable {
        /// The table.
        table: String,
        /// The rule that it violates.
        #[source]
        error: StateTableError,
    },
}

/// Formats a field for a message: on one line and short, even if a missing quotation mark turned
/// the rest of the file into one field.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHAR_COUNT_MAX: usize = 40;
        let mut rest = self.0.chars();
        for char in rest.by_ref().take(CHAR_COUNT_MAX) {
            // Line and paragraph separators too, which are not control characters.
            let is_plain = !char.is_control() && !('\u{2028}'..='\u{202e}').contains(&char);
            if is_plain { write!(f, "{char}")? } else { write!(f, "{}", char.escape_unicode())? }
        }
        if rest.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}
