//! The files of `machines/`. A machine is parsed when it is asked for.

use include_dir::{Dir, include_dir};

use crate::Machine;

static FOLDER: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/machines");

/// Returns the ids of all bundled machines, sorted.
pub fn bundled_ids() -> impl Iterator<Item = &'static str> {
    let paths = FOLDER.files().map(|file| file.path());
    let paths = paths.filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    let mut ids: Vec<&str> = paths.filter_map(|path| path.file_stem()?.to_str()).collect();
    ids.sort_unstable();
    ids.into_iter()
}

/// Returns the bundled machine with this id, ignoring case, or `None` if there is none.
///
/// ```
/// assert_eq!(idlewise_machine::bundled("SPR").unwrap().id, "spr");
/// assert!(idlewise_machine::bundled("z80").is_none());
/// ```
pub fn bundled(id: &str) -> Option<Machine> {
    Some(Machine::from_toml(bundled_text(id)?).expect("a test reads every file"))
}

/// Returns the file of the bundled machine with this id, ignoring case, or `None` if there is none.
pub fn bundled_text(id: &str) -> Option<&'static str> {
    FOLDER.get_file(format!("{}.toml", id.to_ascii_lowercase()))?.contents_utf8()
}

/// Returns all bundled machines, sorted by id.
pub fn bundled_machines() -> impl Iterator<Item = Machine> {
    bundled_ids().filter_map(bundled)
}
