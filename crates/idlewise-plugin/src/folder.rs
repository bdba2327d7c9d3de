//! A governor of several files: a folder, as a kernel's tree has it, with C files, headers and perhaps a
//! `Makefile`.
//!
//! All C files of the folder are compiled as one governor; folders in it are left out. Of a `Makefile` or
//! `Kbuild` only the instruction set of a file is taken: words like `-mavx2` in `CFLAGS_name.o += …`, since
//! a file that uses such instructions doesn't compile without. Links are left out, so that a folder from
//! somebody else cannot name the user's files.

use std::fs;
use std::path::Path;

use crate::error::PluginError;
use crate::file::{SourceFile, read};

/// How many C files a governor may have.
const FILE_COUNT_MAX: usize = 64;

/// Reads a folder's C files, in the order of their names.
pub(crate) fn files(folder: &Path) -> Result<Vec<SourceFile>, PluginError> {
    let failed = |error| PluginError::Io { path: folder.into(), doing: "cannot read", error };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == "c") && is_plain(&path) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(PluginError::NoFile { path: folder.into() });
    }
    if paths.len() > FILE_COUNT_MAX {
        return Err(PluginError::TooManyFiles { path: folder.into(), count_max: FILE_COUNT_MAX });
    }
    paths.sort();
    let mut rules = String::new();
    for name in ["Makefile", "Kbuild"] {
        let path = folder.join(name);
        if is_plain(&path) {
            rules += &read(&path)?;
            rules.push('\n');
        }
    }
    paths
        .into_iter()
        .map(|path| {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let flags = flags(&rules, &stem);
            Ok(SourceFile { text: read(&path)?, flags, path })
        })
        .collect()
}

fn is_plain(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// The instruction sets in the rules for an object.
fn flags(rules: &str, stem: &str) -> Vec<String> {
    let rules = rules.replace("\\\n", " ");
    let of_file = rules.lines().filter_map(|line| {
        let (name, words) = line.split_once('=')?;
        let name = name.trim_end_matches(['+', ':', ' ', '\t']);
        (name.strip_prefix("CFLAGS_")?.strip_suffix(".o")? == stem).then_some(words)
    });
    let words = of_file.flat_map(str::split_whitespace);
    words.filter(|word| is_instruction_set(word)).map(str::to_owned).collect()
}

/// Whether a compiler's option only allows instructions: no path, and no value or next word of its own.
fn is_instruction_set(word: &str) -> bool {
    let Some(name) = word.strip_prefix("-m") else { return false };
    let name = name.strip_prefix("no-").unwrap_or(name);
    let families = ["sse", "ssse", "avx", "fma", "f16c", "bmi", "popcnt", "lzcnt", "movbe"];
    families.iter().any(|family| name.starts_with(family))
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_instruction_sets_from_a_makefile_and_nothing_else() {
        let rules = "obj-y := a.o b.o\nCFLAGS_REMOVE_b.o += -mno-sse\n# CFLAGS_b.o += -mavx\n\
                     CFLAGS_b.o += $(CC_FLAGS_FPU) -mavx2 \\\n\t-mfma -fplugin=/x.so\n\
                     CFLAGS_b.o := -mllvm -load=x -mno-avx512f -mcmodel=large -I/etc @file\n";
        assert_eq!(flags(rules, "b"), ["-mavx2", "-mfma", "-mno-avx512f"]);
        assert!(flags(rules, "a").is_empty());
    }

    #[test]
    fn a_folder_is_its_c_files_without_links_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let names = || -> Result<Vec<String>, PluginError> {
            let files = files(folder.path())?.into_iter();
            let name = |file: SourceFile| file.path.file_name().unwrap().display().to_string();
            Ok(files.map(name).collect())
        };
        fs::write(path("secret"), "mine").unwrap();
        std::os::unix::fs::symlink(path("secret"), path("link.c")).unwrap();
        fs::create_dir(path("folder.c")).unwrap();
        assert!(names().unwrap_err().to_string().contains("no C file"));
        for name in ["b.c", "a.c", "a.h", "c.so"] {
            fs::write(path(name), "").unwrap();
        }
        assert_eq!(names().unwrap(), ["a.c", "b.c"]);
        for number in 0..FILE_COUNT_MAX {
            fs::write(path(&format!("{number}.c")), "").unwrap();
        }
        assert!(names().unwrap_err().to_string().contains("more than 64"));
    }
}
