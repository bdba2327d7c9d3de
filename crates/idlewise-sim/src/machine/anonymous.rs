//! A machine's file without what tells which machine it is: the idle states, and no more.

use std::fmt::Write as _;

use super::{Machine, MachineState, PowerFigure};

impl Machine {
    /// The text of a machine file with the same idle states and powers, from which everything else
    /// is gone: names, CPU model, topology, driver, sources, quirks. Replays on it give the same
    /// numbers.
    pub fn anonymous_toml(&self) -> String {
        let mut text = format!(
            "id = \"anonymous\"\ntitle = \"Anonymous machine\"\narch = \"{}\"\n\
             source = \"anonymized\"\n",
            self.arch.as_str()
        );
        if let Some(figure) = &self.running_power_figure {
            write_power(&mut text, "running_power", figure);
        }
        for state in &self.states {
            write_state(&mut text, state);
        }
        text
    }
}

// Writing to a string cannot fail.
fn write_state(text: &mut String, state: &MachineState) {
    let _ = write!(
        text,
        "\n[[states]]\nname = {}\nexit_latency_us = {}\ntarget_residency_us = {}\n",
        quoted(&state.name),
        microseconds(state.idle.exit_latency_ns),
        microseconds(state.idle.target_residency_ns),
    );
    if !state.flags.is_empty() {
        let flags: Vec<String> = state.flags.iter().map(|flag| quoted(flag.as_str())).collect();
        let _ = writeln!(text, "flags = [{}]", flags.join(", "));
    }
    if let Some(hint) = &state.mwait_hint {
        let _ = writeln!(text, "mwait_hint = {}", quoted(hint));
    }
    if let Some(umwait_state) = state.umwait_state {
        let _ = writeln!(text, "umwait_state = {}", quoted(umwait_state.as_str()));
    }
    if state.is_disabled_by_default {
        text.push_str("default_disabled = true\n");
    }
    if let Some(figure) = &state.power_figure {
        write_power(text, "power", figure);
    }
}

/// The figure and what kind it is. The source's name goes; that there was one shows in the basis.
fn write_power(text: &mut String, prefix: &str, figure: &PowerFigure) {
    let _ = writeln!(text, "{prefix}_mw = {}", figure.mw);
    let kind = figure.basis().as_str();
    let _ = writeln!(text, "{prefix}_kind = \"{kind}\"\n{prefix}_source = \"anonymized\"");
}

fn microseconds(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

/// A basic string as TOML writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_they_were() {
        let odd = "0x20 \"quoted\" \\ back\u{7}\n\u{9f} é";
        let read: std::collections::HashMap<String, String> =
            toml::from_str(&format!("a = {}", quoted(odd))).unwrap();
        assert_eq!(read["a"], odd);
    }
}
