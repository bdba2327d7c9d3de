//! The rules for a machine file, and the line that breaks one.

use idlewise_core::{STATE_COUNT_MAX, StateIndex, StateTable, StateTableError};
use serde::Deserialize;
use toml::Spanned;

use crate::exits::percentiles_fault;
use crate::machine::Machine;
use crate::state::{MachineState, table_fault};
use crate::{MachineError, nearest_name};

/// The longest id or state name; the kernel's have 16 characters at most (`CPUIDLE_NAME_LEN`).
const WORD_CHAR_COUNT_MAX: usize = 64;

/// Where a fault is.
enum FaultPlace {
    Machine,
    Id,
    State(StateIndex),
    Domain(usize),
}

impl Machine {
    /// Reads a machine from the text of its file.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] for a line that is not TOML, a field that is missing, unknown or of the
    /// wrong type, or states that do not make a valid table. A machine without states is not an error here;
    /// see [`Machine::table`].
    pub fn from_toml(text: &str) -> Result<Self, MachineError> {
        let machine: Machine = toml::from_str(text).map_err(|error| MachineError::Invalid {
            line: error.span().map(|span| line_of(text, span.start)),
            message: with_nearest(error.message()).replace('\n', ", "),
        })?;
        let faulty = |(place, message)| MachineError::Invalid { line: find(text, place), message };
        machine.look().map_err(faulty)?;
        Ok(machine)
    }

    /// Checks what serde does not: names are single words, the states make a valid table (or there are
    /// none), no source is given without its power, and shared states are complete and in order.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] without a line.
    pub fn check(&self) -> Result<(), MachineError> {
        self.look().map_err(|(_, message)| MachineError::Invalid { line: None, message })
    }

    /// Returns the first fault.
    fn look(&self) -> Result<(), (FaultPlace, String)> {
        let words = self.states.iter().enumerate();
        let words =
            words.map(|(index, state)| (FaultPlace::State(index), "state name", &state.name));
        let domains = self.domain_states.iter().enumerate();
        let domains = domains.map(|(i, state)| (FaultPlace::Domain(i), "state name", &state.name));
        let id = (FaultPlace::Id, "id", &self.id);
        for (place, what, word) in [id].into_iter().chain(words).chain(domains) {
            if let Some(message) = word_fault(what, word) {
                return Err((place, message));
            }
        }
        let idle_states: Vec<_> = self.states.iter().map(MachineState::idle).collect();
        if !idle_states.is_empty()
            && let Err(error) = StateTable::new(&idle_states)
        {
            let place = match error {
                StateTableError::Unordered { index, .. }
                | StateTableError::LatePolling { index }
                | StateTableError::TooLong { index, .. } => FaultPlace::State(index),
                StateTableError::TooMany { .. } => FaultPlace::State(STATE_COUNT_MAX),
                _ => FaultPlace::Machine,
            };
            return Err((place, table_fault(&self.states, error)));
        }
        let fields = [
            (self.running_power_range_mw.is_some(), "running_power_range_mw"),
            (self.running_power_at_khz.is_some(), "running_power_at_khz"),
            (self.running_power_kind.is_some(), "running_power_kind"),
            (self.running_power_source.is_some(), "running_power_source"),
            (self.running_power_checked.is_some(), "running_power_checked"),
        ];
        orphan(self.running_power_mw.is_some(), "running_power_mw", fields)
            .map_err(|message| (FaultPlace::Machine, message))?;
        for (index, state) in self.states.iter().enumerate() {
            let fields = [
                (state.power_range_mw.is_some(), "power_range_mw"),
                (state.power_at_khz.is_some(), "power_at_khz"),
                (state.power_kind.is_some(), "power_kind"),
                (state.power_source.is_some(), "power_source"),
                (state.power_checked.is_some(), "power_checked"),
            ];
            orphan(state.power_mw.is_some(), "power_mw", fields)
                .map_err(|message| (FaultPlace::State(index), message))?;
            let fields = [
                (state.exit_kind.is_some(), "exit_kind"),
                (state.exit_source.is_some(), "exit_source"),
                (state.exit_checked.is_some(), "exit_checked"),
            ];
            orphan(!state.exit_percentiles_us.is_empty(), "exit_percentiles_us", fields)
                .and_then(|()| percentiles_fault(&state.exit_percentiles_us).map_or(Ok(()), Err))
                .map_err(|message| (FaultPlace::State(index), message))?;
        }
        if let Some((index, message)) = self.shared_fault() {
            return Err((FaultPlace::Domain(index), message));
        }
        Ok(())
    }
}

/// Checks a word: ids and state names are typed on command lines and printed in columns.
fn word_fault(what: &str, word: &str) -> Option<String> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ',';
    let char_count = word.chars().count();
    if char_count > WORD_CHAR_COUNT_MAX {
        return Some(format!(
            "{what} has {char_count} characters: shorten it to {WORD_CHAR_COUNT_MAX} at most"
        ));
    }
    (char_count == 0 || word.contains(is_odd))
        .then(|| format!("{what} {word:?} is empty or has a space, a comma or a slash: use a word"))
}

/// Checks for a field that has no meaning because the figure that it explains is not given.
fn orphan<const N: usize>(
    has_figure: bool,
    figure: &str,
    fields: [(bool, &str); N],
) -> Result<(), String> {
    match fields.into_iter().find(|(is_given, _)| *is_given && !has_figure) {
        Some((_, field)) => Err(format!("`{field}` without `{figure}`: give both or neither")),
        None => Ok(()),
    }
}

/// The line of a fault, beginning at 1.
fn find(text: &str, place: FaultPlace) -> Option<usize> {
    #[derive(Deserialize)]
    struct Spans {
        id: Spanned<String>,
        #[serde(default)]
        states: Vec<StateSpan>,
        #[serde(default)]
        domain_states: Vec<StateSpan>,
    }
    #[derive(Deserialize)]
    struct StateSpan {
        name: Spanned<String>,
    }
    let spans: Spans = toml::from_str(text).ok()?;
    let span = match place {
        FaultPlace::Machine => return None,
        FaultPlace::Id => spans.id.span(),
        FaultPlace::State(index) => spans.states.get(index)?.name.span(),
        FaultPlace::Domain(index) => spans.domain_states.get(index)?.name.span(),
    };
    Some(line_of(text, span.start))
}

/// The line that contains byte `offset`, beginning at 1.
fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Suggests what an unknown key or word was probably meant to be, instead of listing all known ones.
fn with_nearest(message: &str) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    let (Some((found, _)), Some(unknown)) = (message.split_once(", expected"), words.next()) else {
        return message.to_owned();
    };
    match nearest_name(unknown, words) {
        Some(nearest) if message.starts_with("unknown ") => {
            format!("{found}; did you mean `{nearest}`?")
        }
        _ => message.to_owned(),
    }
}
