//! The list of formats.

use std::fs;
use std::path::{Path, PathBuf};

use idlewise_trace::import;

/// The names of all formats, as a message lists them.
pub fn listed() -> String {
    let names: Vec<&str> = import::formats().map(|(name, _)| name).collect();
    let (last, others) = names.split_last().unwrap();
    format!("{} or {last}", others.join(", "))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Without its row an importer is never used, and the compiler does not warn.
#[test]
fn every_importer_has_a_row() {
    let imports = |module: &PathBuf| {
        let files = if module.is_dir() { entries(module) } else { vec![module.clone()] };
        files.iter().any(|file| fs::read_to_string(file).unwrap().contains("impl Recording for "))
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/import");
    let importers: Vec<PathBuf> = entries(&folder).into_iter().filter(imports).collect();
    let rows: Vec<&str> = import::formats().map(|(name, _)| name).collect();
    assert_eq!(importers.len(), rows.len(), "FORMATS has {rows:?}, src/import {importers:#?}");
}
