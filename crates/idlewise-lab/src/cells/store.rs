//! Results in a folder or in a bucket. A cell's file is named by the hash of everything that it depends on, so a
//! file that is there is done, whoever computed it, and several processes can fill one store at once:
//!
//! ```text
//! STORE/CODE/LOG/CELL.parquet     a result; CODE is the program's commit, LOG and CELL are hashes
//! STORE/CODE/LOG/CELL.failed      why a cell could not be computed the last time
//! STORE/CODE/LOG/log.failed       why a log could not be replayed the last time
//! STORE/log-sums/OBJECT           the hash of a log in a bucket, so that it is not read again only for that;
//!                                 OBJECT is the hash of its URL, its size and its entity tag
//! ```
//!
//! A file gets its name when it is complete. It is not flushed to the disk first, which would take longer than
//! the replay. Instead it holds its own hash between its pages and its footer, where Parquet allows anything,
//! so what a power cut damaged is recognised.

use std::collections::HashSet;
use std::fs;
use std::sync::LazyLock;

use crate::bundle::Sums;
use idlewise_report::cell::{of_file, to_file};
use idlewise_report::counted;
use idlewise_sim::contest::{CellInputs, CellResult};

use crate::error::Result;
use crate::program::{COMMIT, VERSION, code_file};
use crate::progress::say;
use crate::storage::{Listed, Storage};

/// What a folder of any version's cells is called, at least.
const CODE: &str = "idlewise-";
/// The folder of what is known of objects without reading them.
const LOG_SUMS: &str = "log-sums";

/// A cell has a few kilobytes.
const FILE_BYTE_COUNT_MAX: u64 = 1 << 20;
/// The end of a Parquet file: the footer's length, and a magic number.
const END_BYTE_COUNT: usize = 8;
/// A hash as text.
const SUM_BYTE_COUNT: usize = 64;
const ENDING: &str = ".parquet";
const FAILED_ENDING: &str = ".failed";
const LOG_FAILED: &str = "log";

/// The version of the program, in the names of folders and in the hash of each cell. A build of changed sources, or
/// one outside a repository, is known by its file's size and time.
pub fn code_version() -> &'static str {
    static VERSION_OF_CODE: LazyLock<String> = LazyLock::new(|| match COMMIT {
        Some(commit) if !commit.ends_with("-dirty") => format!("{CODE}{VERSION}-{commit}"),
        commit => {
            let file = code_file().and_then(fs::metadata);
            let built = file.and_then(|file| Ok((file.len(), file.modified()?)));
            let build = Sums::of(format!("{built:?}").as_bytes());
            format!("{CODE}{VERSION}-{}-{}", commit.unwrap_or("unknown"), &build[..12])
        }
    });
    &VERSION_OF_CODE
}

/// Where cells are kept.
pub struct CellStore(Box<dyn Storage>);

/// The folder of a log's cells. Half of a hash still has no twin.
fn log_folder(log_sha256: &str) -> String {
    format!("{}/{}", code_version(), log_sha256.get(..32).unwrap_or(log_sha256))
}

fn hash(inputs: &CellInputs) -> String {
    let text = serde_json::to_string(inputs).expect("there are no maps in it");
    Sums::of(text.as_bytes())[..32].to_owned()
}

fn name(inputs: &CellInputs, ending: &str) -> String {
    format!("{}/{}{ending}", log_folder(&inputs.log_sha256), hash(inputs))
}

fn log_failure_name(log_sha256: &str) -> String {
    format!("{}/{LOG_FAILED}{FAILED_ENDING}", log_folder(log_sha256))
}

fn sum_name(version: &str) -> String {
    format!("{LOG_SUMS}/{}", &Sums::of(version.as_bytes())[..32])
}

impl CellStore {
    /// Makes the store of some storage. A folder is made when a cell is put there.
    pub fn new(storage: Box<dyn Storage>) -> Self {
        CellStore(storage)
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// Fails if it cannot be made, or if the bucket cannot be read.
    pub fn create(&self) -> Result<()> {
        self.0.create(code_version())
    }

    /// Returns what is there of a log.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn present(&self, log_sha256: &str) -> Result<Present> {
        let mut present = Present::default();
        for Listed { name, byte_count } in self.0.list(&log_folder(log_sha256))? {
            if let Some(hash) = name.strip_suffix(FAILED_ENDING) {
                present.failed.insert(hash.to_owned());
            }
            // A power cut may leave the name of an empty file.
            if let Some(hash) = name.strip_suffix(ENDING)
                && byte_count > (END_BYTE_COUNT + SUM_BYTE_COUNT) as u64
            {
                present.cells.insert(hash.to_owned());
            }
        }
        Ok(present)
    }

    /// Returns cells; `None` for each that is not there. One that is damaged is removed.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub fn get(&self, inputs: &[CellInputs]) -> Result<Vec<Option<CellResult>>> {
        let names: Vec<String> = inputs.iter().map(|inputs| name(inputs, ENDING)).collect();
        let files = self.0.read(&names, FILE_BYTE_COUNT_MAX)?;
        let mut damaged = Vec::new();
        let mut results = Vec::with_capacity(files.len());
        for ((inputs, name), file) in inputs.iter().zip(names).zip(files) {
            let was_there = file.is_some();
            let result = file.filter(|bytes| is_intact(bytes)).and_then(of_file);
            let result = result.filter(|result| result.inputs == *inputs);
            if was_there && result.is_none() {
                damaged.push(name);
            }
            results.push(result);
        }
        if !damaged.is_empty() {
            say(&format!("idlewise: {} damaged, and removed", counted(damaged.len(), "cell")));
        }
        // If that is not allowed, the cell is still missing.
        let _ = self.0.remove(&damaged);
        Ok(results)
    }

    /// Keeps cells. One that is there already has the same bytes.
    ///
    /// # Errors
    /// Fails if the disk is full, or if the bucket does not take them.
    pub fn put<'a>(&self, results: impl IntoIterator<Item = &'a CellResult>) -> Result<()> {
        let file = |result: &CellResult| (name(&result.inputs, ENDING), summed(to_file(result)));
        self.0.write(results.into_iter().map(file).collect())
    }

    /// Keeps the reasons why cells are missing, as well as possible.
    pub fn put_failures<'a>(&self, failures: impl IntoIterator<Item = (&'a CellInputs, &'a str)>) {
        let file =
            |(inputs, reason): (&CellInputs, &str)| (name(inputs, FAILED_ENDING), reason.into());
        let _ = self.0.write(failures.into_iter().map(file).collect());
    }

    /// Keeps the reason why all cells of a log are missing, as well as possible.
    pub fn put_log_failure(&self, log_sha256: &str, reason: &str) {
        let _ = self.0.write(vec![(log_failure_name(log_sha256), reason.into())]);
    }

    /// Forgets the reasons that were `present` why a log, or these cells of it, are missing.
    pub fn forget_failures<'a>(
        &self,
        log_sha256: &str,
        present: &Present,
        cells: impl IntoIterator<Item = &'a CellInputs>,
    ) {
        let of_cells = cells.into_iter().filter(|inputs| present.failed.contains(&hash(inputs)));
        let mut names: Vec<String> = of_cells.map(|inputs| name(inputs, FAILED_ENDING)).collect();
        if present.failed.contains(LOG_FAILED) {
            names.push(log_failure_name(log_sha256));
        }
        let _ = self.0.remove(&names);
    }

    /// Returns why cells of a log are missing, for each that somebody tried.
    pub fn failures(&self, present: &Present, inputs: &[CellInputs]) -> Vec<Option<String>> {
        let read = |names: &[String]| -> Vec<Option<String>> {
            let files = self.0.read(names, FILE_BYTE_COUNT_MAX).unwrap_or_default();
            let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes?).ok();
            files.into_iter().map(text).chain(std::iter::repeat(None)).take(names.len()).collect()
        };
        let has_own = |inputs: &CellInputs| present.failed.contains(&hash(inputs));
        let own: Vec<String> = inputs
            .iter()
            .filter(|inputs| has_own(inputs))
            .map(|inputs| name(inputs, FAILED_ENDING))
            .collect();
        let mut own = read(&own).into_iter();
        let of_log = match inputs.first() {
            Some(first) if present.failed.contains(LOG_FAILED) => {
                read(&[log_failure_name(&first.log_sha256)]).pop().flatten()
            }
            _ => None,
        };
        let reason = |inputs: &CellInputs| {
            let own = if has_own(inputs) { own.next().flatten() } else { None };
            own.or_else(|| of_log.clone())
        };
        inputs.iter().map(reason).collect()
    }

    /// Returns the hash of an object's content, if it has been read before in this version, by what its server says.
    ///
    /// # Errors
    /// Fails if the store cannot be read.
    pub fn log_sum(&self, version: &str) -> Result<Option<String>> {
        let sum = self.0.read(&[sum_name(version)], FILE_BYTE_COUNT_MAX)?.pop().flatten();
        let sum = sum.and_then(|bytes| String::from_utf8(bytes).ok());
        Ok(sum.filter(|sum| sum.len() == SUM_BYTE_COUNT))
    }

    /// Keeps the hash of an object's content, as well as possible.
    pub fn put_log_sum(&self, version: &str, log_sha256: &str) {
        let _ = self.0.write(vec![(sum_name(version), log_sha256.into())]);
    }

    /// The folders of versions of the code, with whether it is this one. Other folders are not ours.
    fn codes(&self) -> Result<Vec<(String, bool)>> {
        let ours = self.0.folders("")?.into_iter().filter(|name| name.starts_with(CODE));
        let with_own = |name: String| {
            let is_own = name == code_version();
            (name, is_own)
        };
        Ok(ours.map(with_own).collect())
    }

    /// Returns the files of other versions' cells, or with `listed` also those of this version that are not in it; and
    /// reasons of failures.
    ///
    /// # Errors
    /// Fails if the folder cannot be read.
    pub fn superfluous(&self, listed: Option<&HashSet<String>>) -> Result<Vec<Listed>> {
        let mut found = Vec::new();
        for (code, is_own) in self.codes()? {
            for file in self.0.walk(&code)? {
                let last = file.name.rsplit('/').next().unwrap_or_default();
                let is_cell = last.strip_suffix(ENDING);
                let is_failure = last.ends_with(FAILED_ENDING);
                let is_listed =
                    is_cell.is_some_and(|hash| listed.is_none_or(|it| it.contains(hash)));
                if is_failure || is_cell.is_some() && !(is_own && is_listed) {
                    found.push(Listed { name: format!("{code}/{}", file.name), ..file });
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Removes files of [`CellStore::superfluous`], and folders that have become empty.
    ///
    /// # Errors
    /// Fails if a file cannot be removed.
    pub fn remove(&self, files: &[Listed]) -> Result<()> {
        let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        self.0.remove(&names)?;
        for (code, _) in self.codes().unwrap_or_default() {
            for log in self.0.folders(&code).unwrap_or_default() {
                self.0.remove_empty_folder(&format!("{code}/{log}"));
            }
            self.0.remove_empty_folder(&code);
        }
        Ok(())
    }

    /// Returns how many cells other versions have here.
    pub fn other_version_cell_count(&self) -> u64 {
        let others = self.codes().unwrap_or_default().into_iter().filter(|(_, is_own)| !is_own);
        let count = |(code, _): (String, bool)| {
            let files = self.0.walk(&code).unwrap_or_default();
            files.iter().filter(|file| file.name.ends_with(ENDING)).count() as u64
        };
        others.map(count).sum()
    }
}

/// What is there of a log.
#[derive(Default)]
pub struct Present {
    cells: HashSet<String>,
    /// The cells, or the log, that failed the last time.
    failed: HashSet<String>,
}

impl Present {
    /// Returns whether a cell is there.
    pub fn has(&self, inputs: &CellInputs) -> bool {
        self.cells.contains(&hash(inputs))
    }
}

/// The name of a cell, for [`CellStore::superfluous`].
pub fn cell_name(inputs: &CellInputs) -> String {
    hash(inputs)
}

/// Where the footer of a Parquet file begins.
fn footer_at(bytes: &[u8]) -> Option<usize> {
    let end = bytes.len().checked_sub(END_BYTE_COUNT)?;
    let length = u32::from_le_bytes(bytes[end..end + 4].try_into().ok()?);
    end.checked_sub(usize::try_from(length).ok()?)
}

/// Puts the hash of everything between the pages and the footer.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = Sums::of(&bytes);
    let at = footer_at(&bytes).expect("it was written here");
    bytes.splice(at..at, sum.into_bytes());
    bytes
}

fn is_intact(bytes: &[u8]) -> bool {
    let Some(at) = footer_at(bytes) else { return false };
    let Some(sum_at) = at.checked_sub(SUM_BYTE_COUNT) else { return false };
    let content = [&bytes[..sum_at], &bytes[at..]].concat();
    Sums::of(&content).as_bytes() == &bytes[sum_at..at]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_is_found() {
        let bytes = summed(b"PAR1pages and a footer\x08\0\0\0PAR1".to_vec());
        assert!(is_intact(&bytes));
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert!(!is_intact(&changed), "{index}");
        }
        for length in 0..bytes.len() {
            assert!(!is_intact(&bytes[..length]), "{length}");
        }
    }
}
