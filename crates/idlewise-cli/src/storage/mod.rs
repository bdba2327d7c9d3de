//! Small files that are written once and read again, such as the cells of a sweep: in a folder, or in a bucket.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Storage`]: a folder or a bucket |
//! | `remote.rs` | [`Remote`]: what is behind a URL |
//!
//! Names are relative to the storage and have slashes.

mod remote;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use idlewise_trace::{OutputFile, OutputOptions};

pub use remote::{Remote, url_of};

use crate::error::Failure;
use crate::screen;

/// Where files are kept.
pub enum Storage {
    Folder(PathBuf),
    Bucket(Remote),
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Relative to the folder that was listed.
    pub name: String,
    pub byte_count: u64,
}

fn fail(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(format_args!("{}: {error}", screen::name(path)))
}

impl Storage {
    /// Names a folder, or what is behind a URL.
    ///
    /// # Errors
    /// Fails if the URL is wrong or the environment has no credentials for it. Nobody is asked yet.
    pub fn at(place: &Path) -> Result<Self, Failure> {
        match url_of(place) {
            None => Ok(Storage::Folder(place.to_owned())),
            Some(url) if url.starts_with("http") => Err(Failure::new(format_args!(
                "{url}: cells cannot be kept on a web server; name a bucket (s3://, gs://, az://) or a folder"
            ))),
            Some(url) => Remote::open(url).map(Storage::Bucket),
        }
    }

    /// Makes a folder. In a bucket there is nothing to make, but it has to answer.
    ///
    /// # Errors
    /// Fails if the folder cannot be made, or if the bucket cannot be read.
    pub fn create(&self, folder: &str) -> Result<(), Failure> {
        match self {
            Storage::Folder(root) => {
                let folder = root.join(folder);
                fs::create_dir_all(&folder).map_err(fail(&folder))
            }
            Storage::Bucket(bucket) => bucket.folders(folder).map(drop),
        }
    }

    /// Returns the files of a folder, not those of folders in it. A folder that does not exist has none.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn list(&self, folder: &str) -> Result<Vec<Listed>, Failure> {
        match self {
            Storage::Bucket(bucket) => bucket.list(folder),
            Storage::Folder(root) => {
                let mut found = Vec::new();
                for (name, entry) in entries(&root.join(folder))? {
                    // What has just been removed has no size.
                    let about = entry.metadata().ok().filter(fs::Metadata::is_file);
                    found.extend(about.map(|about| Listed { name, byte_count: about.len() }));
                }
                Ok(found)
            }
        }
    }

    /// Returns the files of a folder and of all folders in it.
    ///
    /// # Errors
    /// Fails if one of them cannot be read.
    pub fn walk(&self, folder: &str) -> Result<Vec<Listed>, Failure> {
        if let Storage::Bucket(bucket) = self {
            return bucket.walk(folder);
        }
        let mut found = self.list(folder)?;
        for inner in self.folders(folder)? {
            let files = self.walk(&format!("{folder}/{inner}"))?;
            let below = |file: Listed| Listed { name: format!("{inner}/{}", file.name), ..file };
            found.extend(files.into_iter().map(below));
        }
        Ok(found)
    }

    /// Returns the names of the folders in a folder, or in the storage itself, which is "".
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn folders(&self, folder: &str) -> Result<Vec<String>, Failure> {
        match self {
            Storage::Bucket(bucket) => bucket.folders(folder),
            Storage::Folder(root) => {
                let entries = entries(&root.join(folder))?;
                let is_folder =
                    |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
                let folders = entries.into_iter().filter(|(_, entry)| is_folder(entry));
                Ok(folders.map(|(name, _)| name).collect())
            }
        }
    }

    /// Reads files, at most so many bytes of each; `None` for those that are not there.
    ///
    /// # Errors
    /// Fails if one of them is there and cannot be read.
    pub fn read(
        &self,
        names: &[String],
        byte_count_max: u64,
    ) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let root = match self {
            Storage::Bucket(bucket) => return bucket.read(names, byte_count_max),
            Storage::Folder(root) => root,
        };
        let read = |name: &String| {
            let path = root.join(name);
            let file = match fs::File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(fail(&path)(error)),
            };
            let mut bytes = Vec::new();
            file.take(byte_count_max).read_to_end(&mut bytes).map_err(fail(&path))?;
            Ok(Some(bytes))
        };
        names.iter().map(read).collect()
    }

    /// Writes files. Each gets its name when it is complete, and replaces one that has it.
    ///
    /// # Errors
    /// Fails if the disk is full, or if the bucket does not take them. Some of them may be there then.
    pub fn write(&self, files: Vec<(String, Vec<u8>)>) -> Result<(), Failure> {
        let root = match self {
            Storage::Bucket(bucket) => return bucket.write(files),
            Storage::Folder(root) => root,
        };
        for (name, bytes) in files {
            let path = root.join(name);
            let folder = path.parent().unwrap_or(root);
            fs::create_dir_all(folder).map_err(fail(folder))?;
            let options =
                OutputOptions { replace: true, is_unflushed: true, ..OutputOptions::default() };
            let output = OutputFile::create(&path, &options)?;
            output.file().write_all(&bytes).map_err(fail(&path))?;
            output.finish()?;
        }
        Ok(())
    }

    /// Removes files. Those that are not there are fine.
    ///
    /// # Errors
    /// Fails if one of them cannot be removed.
    pub fn remove(&self, names: &[String]) -> Result<(), Failure> {
        let root = match self {
            Storage::Bucket(bucket) => return bucket.remove(names),
            Storage::Folder(root) => root,
        };
        for name in names {
            let path = root.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(fail(&path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes a folder if it is empty. A bucket's folders are nothing but the names of their files.
    pub fn remove_empty_folder(&self, folder: &str) {
        if let Storage::Folder(root) = self {
            let _ = fs::remove_dir(root.join(folder));
        }
    }
}

/// What is in a folder; nothing if it does not exist.
fn entries(folder: &Path) -> Result<Vec<(String, fs::DirEntry)>, Failure> {
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
