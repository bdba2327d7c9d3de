//! A machine as the text of its file.

use std::fmt::Write as _;

use toml::{Table, Value};

use crate::{Machine, MachineError};

impl Machine {
    /// Writes the machine's file: fields first, then its topology and its states.
    ///
    /// ```
    /// use idlewise_machine::{Arch, Machine, MachineState};
    ///
    /// let mut machine = Machine::new("mine", "My machine", Arch::X86, "measured");
    /// machine.states.push(MachineState::new("C6", 151_200, 800_000));
    /// let text = machine.to_toml()?;
    /// assert!(text.contains("[[states]]\nname = \"C6\"\nexit_latency_us = 151.2\n"));
    /// assert_eq!(Machine::from_toml(&text)?, machine);
    /// # Ok::<(), idlewise_machine::MachineError>(())
    /// ```
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if a figure is too large for the format.
    pub fn to_toml(&self) -> Result<String, MachineError> {
        let table = Table::try_from(self)
            .map_err(|error| MachineError::Invalid { line: None, message: error.to_string() })?;
        let mut text = String::new();
        // Fields of the file itself come before the first table.
        write_fields(&mut text, &table, &FIRST);
        for (name, value) in &table {
            match value {
                Value::Table(inner) => {
                    let _ = write!(text, "\n[{name}]\n");
                    write_fields(&mut text, inner, &[]);
                }
                Value::Array(tables) if tables.iter().any(Value::is_table) => {
                    for inner in tables.iter().filter_map(Value::as_table) {
                        let _ = write!(text, "\n[[{name}]]\n");
                        write_fields(&mut text, inner, &FIRST);
                    }
                }
                _ => {}
            }
        }
        Ok(text)
    }
}

/// Fields that a reader wants first.
const FIRST: [&str; 7] =
    ["id", "title", "name", "desc", "arch", "exit_latency_us", "target_residency_us"];

fn write_fields(text: &mut String, table: &Table, first: &[&str]) {
    let is_first = |name: &String| first.contains(&name.as_str());
    let head = first.iter().filter_map(|name| table.get_key_value(*name));
    let rest = table.iter().filter(|(name, _)| !is_first(name));
    for (name, value) in head.chain(rest) {
        if let Some(value) = inline(value) {
            let _ = writeln!(text, "{name} = {value}");
        }
    }
}

/// A value that fits a line; `None` for tables.
fn inline(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(word) => quoted(word),
        Value::Integer(number) => number.to_string(),
        // A whole number of microseconds needs no point.
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            format!("{number:.0}")
        }
        Value::Float(number) => number.to_string(),
        Value::Boolean(is_so) => is_so.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(values) if values.iter().all(|value| !value.is_table()) => {
            let values: Vec<String> = values.iter().filter_map(inline).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Array(_) | Value::Table(_) => return None,
    })
}

fn quoted(word: &str) -> String {
    let mut text = String::from("\"");
    for character in word.chars() {
        let _ = match character {
            '"' => write!(text, "\\\""),
            '\\' => write!(text, "\\\\"),
            '\n' => write!(text, "\\n"),
            '\t' => write!(text, "\\t"),
            character if character.is_control() => write!(text, "\\u{:04X}", u32::from(character)),
            character => write!(text, "{character}"),
        };
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arch, bundled_machines};

    #[test]
    fn every_bundled_machine_is_read_back_as_it_was_written() {
        for machine in bundled_machines() {
            let text = machine.to_toml().unwrap();
            assert_eq!(Machine::from_toml(&text).unwrap(), machine, "{text}");
        }
    }

    #[test]
    fn foreign_words_stay_inside_their_quotes() {
        let title = "a \"quoted\" \\ title\nid = \"other\"\u{1}";
        let machine = Machine::new("mine", title, Arch::Other, "measured");
        let text = machine.to_toml().unwrap();
        assert_eq!(Machine::from_toml(&text).unwrap(), machine, "{text}");
    }
}
