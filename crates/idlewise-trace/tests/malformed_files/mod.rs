//! The files of `tests/malformed/`: made of cases, and kept so that other programs can be given them.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of one format.
pub struct MalformedFiles {
    /// Its folder's name.
    pub format: &'static str,
    /// What the files' names end with.
    pub extension: &'static str,
}

impl MalformedFiles {
    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed").join(self.format)
    }

    /// The file of the case called `reason`.
    pub fn path(&self, reason: &str) -> PathBuf {
        self.folder().join(format!("{reason}.{}", self.extension))
    }

    /// Each file is that of a case, and each case has its file.
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
