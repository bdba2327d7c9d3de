//! The tables at the head of our modules, which say what each file holds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// All Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The source folders of all crates.
fn source_folders() -> Vec<PathBuf> {
    let within = |folder: &str| fs::read_dir(root().join(folder)).unwrap();
    let crates = within("crates").chain(within("park")).map(|entry| entry.unwrap().path());
    let folders = crates.chain([root().join("python")]).map(|folder| folder.join("src"));
    folders.filter(|folder| folder.is_dir()).collect()
}

/// The files and folders that the first column of a module's table names; `None` without a table.
fn named(text: &str) -> Option<BTreeSet<String>> {
    let lines = || text.lines().filter_map(|line| line.strip_prefix("//! | "));
    lines().find(|line| line.starts_with("file |"))?;
    let cells = lines().filter_map(|line| line.split('|').next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let files = names.filter(|name| name.ends_with(".rs") || name.ends_with('/'));
    Some(files.map(str::to_owned).collect())
}

/// The folder of a module's children.
fn children(module: &Path) -> PathBuf {
    match module.file_name().unwrap().to_str().unwrap() {
        "lib.rs" | "main.rs" | "mod.rs" => module.parent().unwrap().to_owned(),
        _ => module.with_extension(""),
    }
}

/// The children that a table has to name: no tests, and a folder's file is enough.
fn present(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        let is_test = name.starts_with("test") || name.ends_with("tests.rs");
        let is_itself = ["lib.rs", "main.rs", "mod.rs", "bin"].contains(&name.as_str());
        let has_file = path.is_dir() && path.with_extension("rs").exists();
        let is_child = path.is_dir() || name.ends_with(".rs");
        (is_child && !is_test && !is_itself && !has_file)
            .then(|| if path.is_dir() { name + "/" } else { name })
    };
    entries.filter_map(name).collect()
}

#[test]
fn a_modules_table_names_its_files() {
    let (mut wrong, mut table_count) = (Vec::new(), 0);
    for source in source_folders() {
        let mut modules = Vec::new();
        sources(&source, &mut modules);
        for module in modules {
            let Some(named) = named(&fs::read_to_string(&module).unwrap()) else { continue };
            let folder = children(&module);
            let place = module.strip_prefix(root()).unwrap().display();
            table_count += 1;
            for name in &named {
                // Something beside `src` may belong to the crate too, such as headers.
                let is_there = folder.join(name).exists() || source.join("..").join(name).exists();
                if !is_there && name != "<name>.rs" {
                    wrong.push(format!("{place}: there is no {name}"));
                }
            }
            for name in present(&folder).difference(&named) {
                let is_named = named.contains(&(name.trim_end_matches(".rs").to_owned() + "/"));
                if !is_named && !named.contains("<name>.rs") {
                    wrong.push(format!("{place}: the table lacks {name}"));
                }
            }
        }
    }
    assert!(table_count > 40, "only {table_count} tables");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
