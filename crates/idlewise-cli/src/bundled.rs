//! What the binary carries: every file of machines/. A machine is parsed when it is asked for.

use std::path::Path;

use idlewise_sim::Machine;
use include_dir::{Dir, include_dir};

use crate::error::Failure;
use crate::input::{NamedLog, read_text};

static MACHINES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../machines");

/// The machine of that id, in any case, or that of a user's own file.
///
/// # Errors
/// A file that can't be read or is no machine; an id that is not there, with the nearest one.
pub fn machine(name_or_path: &str) -> Result<Machine, Failure> {
    let text = machine_text(name_or_path)?;
    Machine::from_toml(&text).map_err(|error| Failure::new(format_args!("{name_or_path}: {error}")))
}

/// The text of that machine's file.
///
/// # Errors
/// A file that can't be read; an id that is not there, with the nearest one.
pub fn machine_text(name_or_path: &str) -> Result<String, Failure> {
    if is_path(name_or_path) {
        return read_text(Path::new(name_or_path));
    }
    let file = MACHINES.get_file(format!("{}.toml", name_or_path.to_ascii_lowercase()));
    let file = file.ok_or_else(|| unknown_machine(name_or_path))?;
    Ok(String::from_utf8_lossy(file.contents()).into_owned())
}

/// The bundled machine of that id, in any case; none if there is none.
pub fn bundled_machine(id: &str) -> Option<Result<Machine, Failure>> {
    let file_name = format!("{}.toml", id.to_ascii_lowercase());
    let file = MACHINES.get_file(&file_name)?;
    Some(parse(&file_name, file.contents()))
}

/// All bundled machines, sorted by id.
pub fn machines() -> Result<Vec<Machine>, Failure> {
    let files = MACHINES.files().filter(|file| is_machine_file(file.path()));
    let parsed = files.map(|file| parse(&file.path().to_string_lossy(), file.contents()));
    let mut machines = parsed.collect::<Result<Vec<_>, _>>()?;
    machines.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(machines)
}

/// The bundled logs: `traces/MANIFEST.toml` says where they come from.
const LOGS: [(&str, &[u8]); 5] = [
    ("a-idle", include_bytes!("../../../traces/a-idle.parquet")),
    ("b-redis", include_bytes!("../../../traces/b-redis.parquet")),
    ("e-hackbench", include_bytes!("../../../traces/e-hackbench.parquet")),
    ("h-pingpong", include_bytes!("../../../traces/h-pingpong.parquet")),
    ("s-softirq500", include_bytes!("../../../traces/s-softirq500.parquet")),
];

/// The logs that come with idlewise.
pub fn logs() -> Result<Vec<NamedLog>, Failure> {
    LOGS.iter().map(|(name, bytes)| NamedLog::bundled(name, bytes)).collect()
}

/// Whether what the user typed is a path: it has a slash or ends in `.toml`.
pub fn is_path(name_or_path: &str) -> bool {
    name_or_path.contains('/') || is_machine_file(Path::new(name_or_path))
}

/// The failure for a name that no machine has; it suggests the id that is spelt most like it.
pub fn unknown_machine(name: &str) -> Failure {
    let ids = MACHINES.files().filter(|file| is_machine_file(file.path()));
    let ids = ids.filter_map(|file| file.path().file_stem()?.to_str());
    let asked = name.to_ascii_lowercase();
    let likeness = |id: &str| strsim::jaro_winkler(&asked, id);
    let nearest = ids.max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or("none");
    Failure::new(format_args!(
        "no machine {name}: the nearest name is {nearest}; `idlewise machines` lists all, and a \
         file of your own needs a / or .toml in its name"
    ))
}

fn is_machine_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

fn parse(file_name: &str, contents: &[u8]) -> Result<Machine, Failure> {
    let text = String::from_utf8_lossy(contents);
    Machine::from_toml(&text)
        .map_err(|error| Failure::new(format_args!("bundled machines/{file_name}: {error}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    #[test]
    fn carries_every_file_of_the_folder() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
        let on_disk: BTreeSet<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let carried: BTreeSet<_> =
            MACHINES.files().map(|file| file.path().as_os_str().to_owned()).collect();
        assert_eq!(carried, on_disk);
    }

    #[test]
    fn finds_a_machine_in_any_case() {
        assert_eq!(machine("SPR").unwrap().id, "spr");
    }

    #[test]
    fn tells_paths_from_names() {
        assert!(is_path("./spr") && is_path("mine.toml") && is_path("/etc/machine"));
        assert!(!is_path("spr") && !is_path("toml"));
    }
}
