//! [`MachineError`]: what can be wrong with a machine, each in one line.

use idlewise_core::StateIndex;

use crate::state_hint;

/// Why a text is not a valid machine, or a machine cannot do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// A field is missing, unknown or of the wrong type, or the states do not make a valid table.
    #[error("{}{message}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Invalid {
        /// The line, beginning at 1; `None` if the machine does not come from a text, or the line is not
        /// known.
        line: Option<usize>,
        /// What was found, and what was expected.
        message: String,
    },
    /// The machine has no idle states, so there is nothing to select from.
    #[error("machine {id} has no idle states (it ran without an idle driver): choose another")]
    NoStates {
        /// The machine.
        id: String,
    },
    /// No state has the requested name or index.
    #[error(
        "machine {machine} has no state {asked}: {}it has {}",
        state_hint(asked, names.iter().map(String::as_str)),
        names.join(", ")
    )]
    UnknownState {
        /// The machine.
        machine: String,
        /// The request.
        asked: String,
        /// The names of all states.
        names: Vec<String>,
    },
    /// Several states have the requested name.
    #[error(
        "machine {machine} has several states {asked}: give an index, one of {}",
        list(indices)
    )]
    AmbiguousState {
        /// The machine.
        machine: String,
        /// The request.
        asked: String,
        /// The states with that name.
        indices: Vec<StateIndex>,
    },
    /// A promotion timer cannot take a CPU out of the requested state.
    #[error("machine {machine} cannot promote {state}: {reason}; {}", promotable(names))]
    CannotPromote {
        /// The machine.
        machine: String,
        /// The state.
        state: String,
        /// Why not.
        reason: &'static str,
        /// The states that can be promoted.
        names: Vec<String>,
    },
}

fn promotable(names: &[String]) -> String {
    match names {
        [] => "none of its states can be".to_owned(),
        [name] => format!("only {name} can be"),
        names => format!("these can be: {}", names.join(", ")),
    }
}

fn list(indices: &[StateIndex]) -> String {
    indices.iter().map(StateIndex::to_string).collect::<Vec<_>>().join(", ")
}
