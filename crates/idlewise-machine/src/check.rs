//! The rules for a machine file, and the line that breaks one.

use std::fmt;

use idlewise_core::{STATE_COUNT_MAX, StateIndex, StateTable, StateTableError};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Unexpected, Visitor};
use toml::Spanned;

use crate::{Machine, MachineError, MachineState, nearest_name};

/// Far beyond the day that a state table allows, and small enough to be exact in nanoseconds.
const MICROSECONDS_MAX: f64 = 1e12;
/// A megawatt per core. The mean of two powers of 1e200 would be infinite.
const MILLIWATTS_MAX: f64 = 1e9;
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
        orphan(self.running_power_mw, "running_power_mw", fields)
            .map_err(|message| (FaultPlace::Machine, message))?;
        for (index, state) in self.states.iter().enumerate() {
            let fields = [
                (state.power_range_mw.is_some(), "power_range_mw"),
                (state.power_at_khz.is_some(), "power_at_khz"),
                (state.power_kind.is_some(), "power_kind"),
                (state.power_source.is_some(), "power_source"),
                (state.power_checked.is_some(), "power_checked"),
            ];
            orphan(state.power_mw, "power_mw", fields)
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

/// Checks for a field that has no meaning because the power is not given.
fn orphan(mw: Option<f64>, mw_field: &str, fields: [(bool, &str); 5]) -> Result<(), String> {
    match fields.into_iter().find(|(is_given, _)| *is_given && mw.is_none()) {
        Some((_, field)) => Err(format!("`{field}` without `{mw_field}`: give both or neither")),
        None => Ok(()),
    }
}

/// The table's own message, but with names and microseconds as in the file.
pub(crate) fn table_fault(states: &[MachineState], error: StateTableError) -> String {
    let name = |index: StateIndex| states.get(index).map_or("?", |state| state.name.as_str());
    let us = |ns: u64| ns as f64 / 1e3;
    match error {
        StateTableError::Unordered { index, target_residency_ns, previous_ns } => format!(
            "state {index} ({}) has target residency {} us, below the {} us of {}: order states by \
             target residency",
            name(index),
            us(target_residency_ns),
            us(previous_ns),
            name(index - 1)
        ),
        StateTableError::LatePolling { index } => format!(
            "state {index} ({}) polls: only the first state may be a polling state",
            name(index)
        ),
        StateTableError::TooLong { index, time_ns } => format!(
            "state {index} ({}) declares {} us, more than a day: check the unit",
            name(index),
            us(time_ns)
        ),
        other => other.to_string(),
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

/// Times in microseconds in the file and nanoseconds in memory.
pub(crate) mod microseconds {
    use serde::Serializer;

    use super::*;

    pub(crate) fn serialize<S: Serializer>(ns: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        match ns % 1_000 {
            0 => serializer.serialize_u64(ns / 1_000),
            _ => serializer.serialize_f64(*ns as f64 / 1e3),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(de: D) -> Result<u64, D::Error> {
        let us =
            de.deserialize_any(Number("microseconds as a number, at least 0, such as 290 or 0.5"))?;
        if us > MICROSECONDS_MAX {
            return Err(D::Error::custom(format_args!("{us} us is too long: check the unit")));
        }
        // Exact, since it is at most 1e15; a fraction is rounded to the nearest nanosecond.
        Ok((us * 1000.0).round() as u64)
    }
}

/// A non-negative power.
struct Milliwatts(f64);

impl<'de> Deserialize<'de> for Milliwatts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "milliwatts as a number, at least 0, such as 1440 or 1.92";
        let mw = deserializer.deserialize_any(Number(expected))?;
        if mw > MILLIWATTS_MAX {
            return Err(D::Error::custom(format_args!("{mw} mW is too much: check the unit")));
        }
        Ok(Milliwatts(mw))
    }
}

pub(crate) fn milliwatts<'de, D: Deserializer<'de>>(de: D) -> Result<Option<f64>, D::Error> {
    Ok(Option::<Milliwatts>::deserialize(de)?.map(|mw| mw.0))
}

pub(crate) fn milliwatts_range<'de, D: Deserializer<'de>>(
    de: D,
) -> Result<Option<[f64; 2]>, D::Error> {
    Ok(Option::<[Milliwatts; 2]>::deserialize(de)?.map(|range| range.map(|mw| mw.0)))
}

/// Accepts integers and floats; the string says what was expected.
struct Number(&'static str);

impl Visitor<'_> for Number {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<f64, E> {
        if value < 0 {
            return Err(E::invalid_value(Unexpected::Signed(value), &self));
        }
        Ok(value as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<f64, E> {
        // Also false for NaN.
        if value >= 0.0 && value.is_finite() {
            return Ok(value);
        }
        Err(E::invalid_value(Unexpected::Float(value), &self))
    }
}
