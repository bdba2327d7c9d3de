//! A file that appears under its name only when it is whole.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::log::LogError;

/// A file on its way; dropped before its end, it leaves nothing behind.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    replace: bool,
    file: NamedTempFile,
}

impl OutputFile {
    /// Starts a file that will appear at `path`.
    ///
    /// # Errors
    /// If `path` exists and `replace` is false, or its folder can't be written to.
    pub fn create(path: &Path, replace: bool) -> Result<Self, LogError> {
        if !replace && path.exists() {
            return Err(LogError::Exists { path: path.to_owned() });
        }
        let folder = folder(path);
        if !folder.is_dir() {
            return Err(LogError::NoFolder { path: path.to_owned() });
        }
        let file = tempfile::Builder::new()
            .prefix(".idlewise-")
            .suffix(".partial")
            // What a new file gets without a umask; temporary files are private unless told
            // otherwise.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(|error| LogError::io(path, error))?;
        Ok(OutputFile { path: path.to_owned(), replace, file })
    }

    /// Where it will appear.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, to write to.
    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// An unnamed file on the same disk, gone when it is closed.
    ///
    /// # Errors
    /// If the folder can't be written to.
    pub fn scratch(&self) -> Result<File, LogError> {
        tempfile::tempfile_in(folder(&self.path)).map_err(|error| LogError::io(&self.path, error))
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// If the disk is full, or `path` came into being meanwhile and may not be replaced.
    pub fn finish(self) -> Result<(), LogError> {
        let OutputFile { path, replace, file } = self;
        file.as_file().sync_all().map_err(|error| LogError::io(&path, error))?;
        let persisted = if replace {
            file.persist(&path).map_err(|error| error.error)
        } else {
            file.persist_noclobber(&path).map_err(|error| error.error)
        };
        match persisted {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(LogError::Exists { path })
            }
            Err(error) => Err(LogError::io(&path, error)),
        }
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
