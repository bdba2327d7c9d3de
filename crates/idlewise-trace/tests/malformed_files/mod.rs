//! The files of `tests/malformed/`, generated from cases and kept for use by other programs.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of one format.
pub struct MalformedFiles {
    /// The name of its folder.
    pub format: &'static str,
    /// The ending of the files' names.
    pub extension: &'static str,
}

impl MalformedFiles {
    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed").join(self.format)
    }

    /// The file of the case with this name.
    pub fn path(&self, reason: &str) -> PathBuf {
        self.folder().join(format!("{reason}.{}", self.extension))
    }

    /// Asserts that the files are exactly those of the cases.
    pub fn assert_are<'c>(&self, cases: impl Iterator<Item = (&'c str, &'c [u8])>) {
        let on_disk = fs::read_dir(self.folder()).unwrap();
        let mut on_disk: Vec<PathBuf> = on_disk.map(|entry| entry.unwrap().path()).collect();
        let mut listed = Vec::new();
        for (reason, bytes) in cases {
            let path = self.path(reason);
            assert_eq!(fs::read(&path).unwrap(), bytes, "{reason}");
            listed.push(path);
        }
        on_disk.sort();
        listed.sort();
        assert_eq!(on_disk, listed);
    }

    /// Writes the cases' files.
    pub fn write<'c>(&self, cases: impl Iterator<Item = (&'c str, &'c [u8])>) {
        fs::create_dir_all(self.folder()).unwrap();
        for (reason, bytes) in cases {
            fs::write(self.path(reason), bytes).unwrap();
        }
    }
}
