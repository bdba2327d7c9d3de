//! A governor's C file, and the reading of what a user names.

use std::io;
use std::path::{Path, PathBuf};

use idlewise_trace::{TEXT_BYTE_COUNT_MAX, read_small_file};

use crate::error::PluginError;

/// One C file of a governor.
pub(crate) struct SourceFile {
    pub path: PathBuf,
    /// Its text, after the patch.
    pub text: String,
    /// Instruction sets that it needs, like `-mavx2`.
    pub flags: Vec<String>,
}

pub(crate) fn read(path: &Path) -> Result<String, PluginError> {
    Ok(String::from_utf8_lossy(&read_bytes(path, TEXT_BYTE_COUNT_MAX)?).into_owned())
}

/// Reads a file, unless it is larger than that or endless.
pub(crate) fn read_bytes(path: &Path, byte_count_max: u64) -> Result<Vec<u8>, PluginError> {
    read_small_file(path, byte_count_max).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => PluginError::TooLarge { path: path.into(), byte_count_max },
        _ => PluginError::Io { path: path.into(), doing: "cannot read", error },
    })
}
