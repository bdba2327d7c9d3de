//! Tells whether a file is still the one that was opened, with the content that it had then.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file, and when it was last changed. Another file at the same path has another identity, and so has the same file
/// after it was written to.
///
/// Times advance with the kernel's clock tick, of 1 to 10 ms. Two writes between the same two ticks look like one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    byte_count: u64,
    modified_at: (i64, i64),
    /// Programs that copy into a file may set the other time back, but not this one.
    changed_at: (i64, i64),
}

impl FileIdentity {
    /// The identity of an open file.
    ///
    /// # Errors
    /// Fails if the system does not say it.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| Self::from(&metadata))
    }

    /// The identity of the file that is at a path.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::from(&metadata))
    }

    /// The file's length.
    pub fn byte_count(&self) -> u64 {
        self.byte_count
    }
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> Self {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            byte_count: metadata.len(),
            modified_at: (metadata.mtime(), metadata.mtime_nsec()),
            changed_at: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
