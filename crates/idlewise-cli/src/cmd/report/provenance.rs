//! What a page says about where it comes from: the program, the command, the inputs.

use idlewise_report::page::{Facts, Provenance};
use idlewise_report::{shell_word, without_secrets};

use crate::input::NamedLog;
use crate::program;

/// This program, with its version.
pub const PROGRAM: &str = concat!("idlewise ", env!("CARGO_PKG_VERSION"));

/// The command line of this process, quoted for a shell.
pub fn command_line() -> String {
    let words =
        program::arguments().into_iter().skip(1).map(|word| shell_word(&word.to_string_lossy()));
    let line = std::iter::once("idlewise".to_owned()).chain(words).collect::<Vec<_>>().join(" ");
    without_secrets(&line).into_owned()
}

/// Where the logs and machines of a page come from.
pub fn of(facts: &Facts, logs: &[NamedLog]) -> Vec<Provenance> {
    let mut all = vec![row("program", PROGRAM.to_owned())];
    for (log, named) in facts.logs.iter().zip(logs) {
        let metadata = &named.log.metadata;
        let source = &metadata.source;
        let name = |what: &str| format!("{}: {what}", log.name);
        let mut add = |what: &str, value: Option<String>| {
            all.extend(
                value.filter(|value| !value.is_empty()).map(|value| row(&name(what), value)),
            );
        };
        add("SHA-256 of the file", log.sha256.clone());
        add("made from", Some(source.format.clone()));
        add("BLAKE3 of the recording", source.blake3.clone());
        add("recorded by", source.command.clone());
        add("imported by", Some(metadata.created_by.clone()));
        add("kernel", metadata.kernel.clone());
        add("CPU", metadata.cpu_model.clone());
        add("clock", metadata.clock.clone());
        add("HZ", Some(log.hz.to_string()));
    }
    for machine in &facts.machines {
        all.push(row(&format!("{}: states from", machine.id), machine.source.clone()));
    }
    all
}

fn row(name: &str, value: String) -> Provenance {
    Provenance { name: name.to_owned(), value }
}
