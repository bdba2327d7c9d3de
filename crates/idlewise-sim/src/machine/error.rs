//! What can be wrong with a machine, in one line each.

use std::fmt;

use idlewise_core::{StateIndex, StateTableError};

/// Why a text is no machine, or a machine cannot do what was asked. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MachineError {
    /// The text is not TOML, or a field is missing, unknown or of the wrong kind.
    Syntax {
        /// Where, as far as the reader could tell.
        line: Option<usize>,
        /// What was found and what was expected.
        message: String,
    },
    /// The states do not form a table.
    InvalidTable {
        /// Where the offending state is named; none if the states did not come from a text.
        line: Option<usize>,
        /// The names of all states.
        names: Vec<String>,
        /// The rule that is broken.
        error: StateTableError,
    },
    /// The machine has no idle states, so there is nothing to select from.
    NoStates {
        /// The machine.
        id: String,
    },
    /// No state has the name or index that was asked for.
    UnknownState {
        /// The machine.
        machine: String,
        /// What was asked for.
        asked: String,
        /// The names of all states.
        names: Vec<String>,
    },
    /// Several states have the name that was asked for.
    AmbiguousState {
        /// The machine.
        machine: String,
        /// What was asked for.
        asked: String,
        /// The states of that name.
        indices: Vec<StateIndex>,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { line, message } => {
                write_line(f, *line)?;
                f.write_str(message)
            }
            Self::InvalidTable { line, names, error } => {
                write_line(f, *line)?;
                write_table_error(f, names, *error)
            }
            Self::NoStates { id } => write!(
                f,
                "machine {id} has no idle states (it ran without an idle driver): choose another"
            ),
            Self::UnknownState { machine, asked, names } => {
                write!(f, "machine {machine} has no state {asked}: it has {}", names.join(", "))
            }
            Self::AmbiguousState { machine, asked, indices } => {
                let indices: Vec<String> = indices.iter().map(StateIndex::to_string).collect();
                write!(
                    f,
                    "machine {machine} has several states {asked}: give an index, one of {}",
                    indices.join(", ")
                )
            }
        }
    }
}

impl std::error::Error for MachineError {}

fn write_line(f: &mut fmt::Formatter<'_>, line: Option<usize>) -> fmt::Result {
    line.map_or(Ok(()), |line| write!(f, "line {line}: "))
}

/// The table's own message, with names and microseconds as the file has them.
fn write_table_error(
    f: &mut fmt::Formatter<'_>,
    names: &[String],
    error: StateTableError,
) -> fmt::Result {
    let name = |index: usize| names.get(index).map_or("?", String::as_str);
    match error {
        StateTableError::Unordered { index, target_residency_ns, previous_ns } => write!(
            f,
            "state {index} ({}) has target residency {} us, below the {} us of {}: order states by \
             target residency",
            name(index),
            Microseconds(target_residency_ns),
            Microseconds(previous_ns),
            name(index - 1)
        ),
        StateTableError::LatePolling { index } => write!(
            f,
            "state {index} ({}) polls: only the first state may be a polling state",
            name(index)
        ),
        StateTableError::TooLong { index, time_ns } => write!(
            f,
            "state {index} ({}) declares {} us, more than a day: check the unit",
            name(index),
            Microseconds(time_ns)
        ),
        other => write!(f, "{other}"),
    }
}

/// Nanoseconds, printed as microseconds without trailing zeros.
struct Microseconds(u64);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (us, ns) = (self.0 / 1000, self.0 % 1000);
        if ns == 0 {
            return write!(f, "{us}");
        }
        write!(f, "{us}.{}", format!("{ns:03}").trim_end_matches('0'))
    }
}
