//! A manifest with everything found and compiled, and the cells that follow from it.

use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};

use idlewise_trace::bundle::sum_of;

use super::manifest::Manifest;
use crate::bundled;
use idlewise_lab::target::targets;

use crate::cells::priced::{Place, places};
use crate::cells::{CellStore, GOVERNORS_DEFAULT, machine_sha256, machines_or_usual};
use crate::error::Failure;
use crate::governors::Choice;
use crate::input::{NamedLog, distinct_names};
use crate::replay_arguments::{ALL_LOGS, ReplayTarget};
use crate::storage::{self, Remote, url_of};
use crate::twins::without_twins;
use crate::unpack::{Unpacking, unnamed_file};

/// The most lanes that are replayed in one pass, the cells of a unit. Each may keep a million distinct delays, though
/// hardly any does.
pub const LANE_COUNT_MAX: usize = 256;

/// What to sweep.
pub struct Plan {
    pub manifest: Manifest,
    pub store: CellStore,
    pub logs: Vec<PlannedLog>,
    pub targets: Vec<ReplayTarget>,
    machine_hashes: Vec<String>,
    pub choices: Vec<Choice>,
}

/// A log that has not been opened.
pub struct PlannedLog {
    /// Its name in results.
    pub name: String,
    /// A file or a URL; `None`: it is bundled.
    path: Option<PathBuf>,
}

/// A log's file, with its hash.
pub struct Fetched {
    pub sha256: String,
    /// What was read to know the hash, if it is not a file of this machine.
    pub file: Option<File>,
}

impl PlannedLog {
    /// Opens it, or converts a recording. If `file` is not given, what is behind a URL is read again.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if its content is no longer that with this hash.
    pub fn open(&self, file: Option<File>, sha256: &str) -> Result<NamedLog, Failure> {
        let Some(path) = &self.path else { return self.bundled() };
        let Some(url) = url_of(path) else {
            return NamedLog::open_as(path, self.name.clone(), Unpacking::default());
        };
        let file = match file {
            Some(file) => file,
            None => {
                let (found, file) = download(url)?;
                if found != sha256 {
                    let fault = "it changed while it was in use; run the sweep again";
                    return Err(Failure::new(format_args!("{url}: {fault}")));
                }
                file
            }
        };
        NamedLog::of_file(path, file, self.name.clone(), Unpacking::default())
    }

    /// Returns the hash of its file. What is behind a URL is read unless the store knows it.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn fetch(&self, store: &CellStore) -> Result<Fetched, Failure> {
        let path = self.path.as_deref().unwrap_or(Path::new(&self.name));
        let Some(url) = url_of(path) else {
            let sha256 = bundled::sha256_of(path)?.ok_or_else(|| {
                Failure::new(format_args!("{}: not a file, so it cannot be swept", path.display()))
            })?;
            return Ok(Fetched { sha256, file: None });
        };
        let version = Remote::open(url)?.version()?;
        if let Some(version) = &version
            && let Some(sha256) = store.log_sum(version)?
        {
            return Ok(Fetched { sha256, file: None });
        }
        let (sha256, file) = download(url)?;
        // Only if it was this version that was read.
        if let Some(version) = &version
            && Remote::open(url)?.version()?.as_ref() == Some(version)
        {
            store.put_log_sum(version, &sha256);
        }
        Ok(Fetched { sha256, file: Some(file) })
    }

    /// Returns the hash of its file; `None` if it would have to be fetched to know it.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn known_sha256(&self, store: &CellStore) -> Result<Option<String>, Failure> {
        match self.path.as_deref().and_then(url_of) {
            None => self.fetch(store).map(|fetched| Some(fetched.sha256)),
            Some(url) => match Remote::open(url)?.version()? {
                Some(version) => store.log_sum(&version),
                None => Ok(None),
            },
        }
    }

    fn bundled(&self) -> Result<NamedLog, Failure> {
        let bytes = bundled::log_bytes(Path::new(&self.name)).expect("it was listed");
        NamedLog::bundled(&self.name, bytes)
    }
}

/// What is behind a URL, in a file without a name, with its hash.
fn download(url: &str) -> Result<(String, File), Failure> {
    let fail = |error| Failure::new(format_args!("cannot read {url}: {error}"));
    let mut file = unnamed_file()?;
    Remote::open(url)?.download(&mut file)?;
    file.rewind().map_err(fail)?;
    let sha256 = sum_of(&file).map_err(fail)?;
    file.rewind().map_err(fail)?;
    Ok((sha256, file))
}

impl Plan {
    /// Finds and compiles everything that the manifest names. Logs are not opened.
    ///
    /// # Errors
    /// Fails if a machine or a governor cannot be had.
    pub fn new(manifest: Manifest, store: Option<&Path>) -> Result<Self, Failure> {
        let choices = manifest.governors.choices_or(&GOVERNORS_DEFAULT)?;
        if choices.iter().any(|choice| matches!(choice, Choice::Oracle)) {
            return Err(Failure::new(
                "every regret of a sweep is already against the oracle; leave the governor 'oracle' out",
            ));
        }
        let targets = targets(&machines_or_usual(&manifest.machines), &choices, &[], &[])?;
        let machine_hashes = targets.iter().map(|it| machine_sha256(&it.machine)).collect();
        let logs = match manifest.logs.as_slice() {
            [] => bundled::log_names().map(|it| PlannedLog { name: it.to_owned(), path: None }).collect(),
            paths => {
                let paths = without_twins(paths, Unpacking::default());
                let names = distinct_names(&paths, &[ALL_LOGS]);
                let named = paths.iter().zip(names);
                named.map(|(path, name)| PlannedLog { name, path: Some(path.clone()) }).collect()
            }
        };
        let store = CellStore::new(storage::at(store.unwrap_or(&manifest.store))?);
        Ok(Plan { manifest, store, logs, targets, machine_hashes, choices })
    }

    /// The cells of each log, always in the same order: for each setting and machine those of the governors and
    /// those of the oracle.
    pub fn places(&self) -> Vec<Place<'_>> {
        let Manifest { settings, lambdas, shapes, .. } = &self.manifest;
        places(&self.targets, &self.machine_hashes, &self.choices, settings, shapes, lambdas)
    }

    /// How many units all logs have.
    pub fn unit_count(&self) -> usize {
        self.logs.len() * self.cell_count().div_ceil(LANE_COUNT_MAX)
    }

    /// How many cells each log has.
    pub fn cell_count(&self) -> usize {
        self.places().len()
    }
}

/// The words for a cell in a message.
pub fn described(log: &str, place: &Place<'_>) -> String {
    let governor = place.choice.map_or_else(|| "the oracle".to_owned(), Choice::name);
    let setting = place.cell.setting;
    let mut words = format!("{governor} on {log}, {}", place.cell.target.machine.id);
    if let Some(hz) = setting.hz {
        words += &format!(", {hz} Hz");
    }
    if let Some(us) = setting.latency_limit_us {
        words += &format!(", limit {us} us");
    }
    words
}
