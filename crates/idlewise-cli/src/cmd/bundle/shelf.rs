//! The files of a bundle while it is put together.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use idlewise_lab::bundle::BundlePath;

use crate::error::{Failure, Result};

/// Names are cut to this, so that folders and endings fit beside them.
const STEM_BYTE_COUNT_MAX: usize = 40;

/// A folder, and which files in it belong to the bundle.
pub struct Shelf {
    folder: PathBuf,
    paths: Vec<BundlePath>,
    /// In lower case, because not every file system tells cases apart.
    taken: BTreeSet<String>,
}

impl Shelf {
    pub fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        Ok(Shelf { folder: folder.to_owned(), paths: Vec::new(), taken: BTreeSet::new() })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn paths(&self) -> &[BundlePath] {
        &self.paths
    }

    /// A path for a file called `stem`, or nearly so, that no other file has. `ending` begins with a dot.
    pub fn new_path(&mut self, folder: &str, stem: &str, ending: &str) -> Result<BundlePath> {
        let stem = plain(stem);
        for number in 1_u32.. {
            let name = match number {
                1 => format!("{stem}{ending}"),
                number => format!("{stem}-{number}{ending}"),
            };
            let text = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if !self.taken.contains(&text.to_ascii_lowercase()) {
                return self.path(&text);
            }
        }
        unreachable!("numbers don't run out")
    }

    /// Takes a path, and makes its folders. A path that is taken already stays what it is.
    pub fn path(&mut self, text: &str) -> Result<BundlePath> {
        let path = BundlePath::new(text).map_err(|fault| {
            Failure::new(format_args!(
                "{text} cannot be the name of a file in a bundle: {fault}; give the file another name"
            ))
        })?;
        if self.taken.insert(text.to_ascii_lowercase()) {
            self.paths.push(path.clone());
        }
        let at = self.at(&path);
        if let Some(folder) = at.parent() {
            fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
        }
        Ok(path)
    }

    /// Where a path's file is.
    pub fn at(&self, path: &BundlePath) -> PathBuf {
        self.folder.join(path.as_str())
    }

    /// Writes a file.
    pub fn put(&self, path: &BundlePath, content: impl AsRef<[u8]>) -> Result<()> {
        let at = self.at(path);
        fs::write(&at, content).map_err(|error| cannot_write(&at, &error))
    }
}

pub fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format_args!(
        "cannot write {}: {error}; set TMPDIR to a place with more room",
        path.display()
    ))
}

/// A name with only such characters as a bundle's names may have, and without an ending, because a log's name
/// in results ends where its ending begins.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
    let mut plain: String = name.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    plain.truncate(STEM_BYTE_COUNT_MAX);
    let characters: Vec<char> = plain.chars().collect();
    let is_ending = |index: usize| {
        characters[index] == '.'
            && characters.get(index + 1).is_none_or(|next| !next.is_ascii_digit())
    };
    let shown =
        (0..characters.len()).map(|index| if is_ending(index) { '-' } else { characters[index] });
    let plain: String = shown.collect();
    let plain = plain.trim_matches(['-', '.']);
    if plain.is_empty() { "file".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_what_they_are_if_they_can() {
        for (name, expected) in [
            ("menu-6.12", "menu-6.12"),
            ("b-redis", "b-redis"),
            ("run.trace.dat", "run-trace-dat"),
            ("x/a/run", "x-a-run"),
            ("run (2)", "run--2"),
            ("../../etc/passwd", "etc-passwd"),
            ("-rf", "rf"),
            (".bashrc", "bashrc"),
            ("\u{1b}[2J</script>\u{202e}", "2J--script"),
            ("é", "file"),
            ("", "file"),
        ] {
            assert_eq!(plain(name), expected, "{name:?}");
        }
    }

    #[test]
    fn no_two_files_have_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut shelf = Shelf::new(folder.path()).unwrap();
        let mut take = |stem| shelf.new_path("logs", stem, ".parquet").unwrap().to_string();
        assert_eq!(take("a b"), "logs/a-b.parquet");
        assert_eq!(take("a/b"), "logs/a-b-2.parquet");
        assert_eq!(take("A-B"), "logs/A-B-3.parquet");
        assert_eq!(shelf.paths().len(), 3);
    }
}
