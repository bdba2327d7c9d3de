//! Files that are written once and read again, such as the results of a sweep. This is a folder's part; the command
//! also has buckets.
//!
//! Names are relative to the storage and have slashes.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use idlewise_report::shown_in_line;
use idlewise_trace::{OutputFile, OutputOptions, open_regular, read_small_file_of};

use crate::error::{Failure, Result};
use crate::progress::say;

/// Where files are kept.
pub trait Storage: Send + Sync {
    /// Makes a folder. Where there is nothing to make, it has to answer.
    ///
    /// # Errors
    /// Fails if the folder cannot be made, or if the storage cannot be read.
    fn create(&self, folder: &str) -> Result<()>;

    /// Returns the files of a folder, not those of folders in it. A folder that does not exist has none.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    fn list(&self, folder: &str) -> Result<Vec<Listed>>;

    /// Returns the names of the folders in a folder, or in the storage itself, which is "".
    ///
    /// # Errors
    /// Fails if it cannot be read.
    fn folders(&self, folder: &str) -> Result<Vec<String>>;

    /// Reads files; `None` for those that are not there. What is not a file is said, and `None` too.
    ///
    /// # Errors
    /// Fails if one of them is there and cannot be read, or has more bytes than allowed.
    fn read(&self, names: &[String], byte_count_max: u64) -> Result<Vec<Option<Vec<u8>>>>;

    /// Writes files. Each gets its name when it is complete, and replaces one that has it.
    ///
    /// # Errors
    /// Fails if the disk is full, or if the storage does not take them. Some of them may be there then.
    fn write(&self, files: Vec<(String, Vec<u8>)>) -> Result<()>;

    /// Removes files. Those that are not there are fine.
    ///
    /// # Errors
    /// Fails if one of them cannot be removed.
    fn remove(&self, names: &[String]) -> Result<()>;
}

/// A folder of this machine.
pub struct Folder(pub PathBuf);

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Relative to the folder that was listed.
    pub name: String,
    /// Its size.
    pub byte_count: u64,
}

fn fail(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| {
        let name = shown_in_line(&path.to_string_lossy()).into_owned();
        Failure::new(format_args!("{name}: {error}"))
    }
}

impl Storage for Folder {
    fn create(&self, folder: &str) -> Result<()> {
        let folder = self.0.join(folder);
        fs::create_dir_all(&folder).map_err(fail(&folder))
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let mut found = Vec::new();
        for (name, entry) in entries(&self.0.join(folder))? {
            // What has just been removed has no size.
            let about = entry.metadata().ok().filter(fs::Metadata::is_file);
            found.extend(about.map(|about| Listed { name, byte_count: about.len() }));
        }
        Ok(found)
    }

    fn folders(&self, folder: &str) -> Result<Vec<String>> {
        let entries = entries(&self.0.join(folder))?;
        let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let folders = entries.into_iter().filter(|(_, entry)| is_folder(entry));
        Ok(folders.map(|(name, _)| name).collect())
    }

    fn read(&self, names: &[String], byte_count_max: u64) -> Result<Vec<Option<Vec<u8>>>> {
        let read = |name: &String| {
            let path = self.0.join(name);
            let file = match open_regular(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                // A pipe or a folder, which somebody else has put there.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    let name = path.to_string_lossy();
                    let name = shown_in_line(&name);
                    say(&format!("idlewise: {name}: {error}, so it is left out; remove it"));
                    return Ok(None);
                }
                Err(error) => return Err(fail(&path)(error)),
            };
            match read_small_file_of(file, byte_count_max) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                    Err(fail(&path)(error).with("move it away"))
                }
                Err(error) => Err(fail(&path)(error)),
            }
        };
        names.iter().map(read).collect()
    }

    fn write(&self, files: Vec<(String, Vec<u8>)>) -> Result<()> {
        for (name, bytes) in files {
            let path = self.0.join(name);
            let folder = path.parent().unwrap_or(&self.0);
            fs::create_dir_all(folder).map_err(fail(folder))?;
            // A pipe would wait for somebody who reads.
            if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
                let what =
                    "something that is not a file has the name of a file of cells; remove it";
                return Err(fail(&path)(std::io::Error::other(what)));
            }
            let options =
                OutputOptions { replace: true, is_unflushed: true, ..OutputOptions::default() };
            let output = OutputFile::create(&path, &options)?;
            output.file().write_all(&bytes).map_err(fail(&path))?;
            output.finish()?;
        }
        Ok(())
    }

    fn remove(&self, names: &[String]) -> Result<()> {
        for name in names {
            let path = self.0.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(fail(&path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// What is in a folder; nothing if it does not exist.
fn entries(folder: &Path) -> Result<Vec<(String, fs::DirEntry)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(folder)(error)),
    };
    let named = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.map_err(fail(folder))?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry))
    };
    entries.map(named).collect()
}
