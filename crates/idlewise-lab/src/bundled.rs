//! The machines and logs that are built into the binary.

use std::path::Path;

use idlewise_machine::{Machine, bundled, bundled_ids};

use crate::error::{Failure, Result, did_you_mean};
use crate::input::{NamedLog, read_text_at_most};
use idlewise_report::replay::RECORDED;

/// A machine file of 448 CPUs has 10 kB. One of many MB takes sixty times as much memory to parse.
const MACHINE_BYTE_COUNT_MAX: u64 = 1 << 20;

/// Returns the machine with that id (ignoring case), or reads the user's file.
///
/// # Errors
/// Fails if the file is not a readable machine, or if there is no such id; suggests the nearest.
pub fn machine(name_or_path: &str) -> Result<Machine> {
    if name_or_path == RECORDED {
        return Err(Failure::new(
            "recorded: here no recording says which machine that is; name a machine, or the file of one",
        ));
    }
    if !is_path(name_or_path) {
        return bundled(name_or_path).ok_or_else(|| unknown_machine(name_or_path));
    }
    let text = read_text_at_most(Path::new(name_or_path), MACHINE_BYTE_COUNT_MAX)?;
    Machine::from_toml(&text).map_err(|error| Failure::new(format_args!("{name_or_path}: {error}")))
}

/// Returns the ids of the machines that can be replayed. One that ran without an idle driver has no states.
pub fn replayable_ids() -> impl Iterator<Item = &'static str> {
    bundled_ids().filter(|id| bundled(id).is_some_and(|machine| machine.table().is_ok()))
}

/// The bundled logs: links, so that a source package holds them. `traces/MANIFEST.toml` says where they come from.
const LOGS: [(&str, &[u8]); 5] = [
    ("a-idle", include_bytes!("../bundled/a-idle.parquet")),
    ("b-redis", include_bytes!("../bundled/b-redis.parquet")),
    ("e-hackbench", include_bytes!("../bundled/e-hackbench.parquet")),
    ("h-pingpong", include_bytes!("../bundled/h-pingpong.parquet")),
    ("s-softirq500", include_bytes!("../bundled/s-softirq500.parquet")),
];

/// Returns the bundled logs.
pub fn logs() -> Result<Vec<NamedLog>> {
    LOGS.iter().map(|(name, bytes)| NamedLog::bundled(name, bytes)).collect()
}

/// Returns the names of the bundled logs.
pub fn log_names() -> impl Iterator<Item = &'static str> {
    LOGS.iter().map(|&(name, _)| name)
}

/// Returns the bytes of the bundled log with that name.
pub fn log_bytes(name: &str) -> Option<&'static [u8]> {
    LOGS.iter().find(|(it, _)| name == *it).map(|&(_, bytes)| bytes)
}

/// Returns whether the user gave a path: it contains a slash or ends in `.toml`.
pub fn is_path(name_or_path: &str) -> bool {
    name_or_path.contains('/')
        || Path::new(name_or_path).extension().is_some_and(|ending| ending == "toml")
}

/// Returns the failure for an unknown machine, suggesting the most similar id.
pub fn unknown_machine(name: &str) -> Failure {
    let list =
        "`idlewise machines` lists all, and a file of your own needs a / or .toml in its name";
    let hint = match did_you_mean(name, bundled_ids().chain([RECORDED]), "") {
        hint if hint.is_empty() => list.to_owned(),
        hint => format!("{hint} {list}"),
    };
    Failure::new(format_args!("no machine '{name}'; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_paths_from_names() {
        assert!(is_path("./spr") && is_path("mine.toml") && is_path("/etc/machine"));
        assert!(!is_path("spr") && !is_path("toml"));
    }
}
