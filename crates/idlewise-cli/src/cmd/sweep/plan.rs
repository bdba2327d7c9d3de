//! A manifest with everything found and compiled, and the cells that follow from it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Seek;
use std::path::{Path, PathBuf};

use idlewise_lab::bundle::{Sums, sum_of};
use idlewise_lab::target::targets;
use idlewise_trace::log::{IdleLog, LogError};
use idlewise_trace::{FileIdentity, open_regular};

use super::manifest::{FoundLog, Manifest};
use crate::bundled;
use crate::cells::{Cell, CellStore, Cells, Contest, GOVERNORS_DEFAULT, MACHINES_DEFAULT};
use crate::error::{Failure, Result};
use crate::governors::Choice;
use crate::input::{NamedLog, changed, distinct_names, must_be_unchanged};
use crate::replay_arguments::{ALL_LOGS, ReplayTarget};
use crate::screen::{self, say};
use crate::storage::{self, Remote, url_of};
use crate::twins::without_twins;
use crate::unpack::Unpacking;

/// The most lanes that are replayed in one pass, the cells of a unit. Each may keep a million distinct delays, though
/// hardly any does.
pub const LANE_COUNT_MAX: usize = 256;

/// What to sweep.
pub struct Plan {
    pub manifest: Manifest,
    pub store: CellStore,
    pub logs: Vec<PlannedLog>,
    pub targets: Vec<ReplayTarget>,
    pub choices: Vec<Choice>,
}

/// A log that has not been opened.
pub struct PlannedLog {
    /// Its name in results.
    pub name: String,
    /// A file or a URL; `None`: it is bundled.
    path: Option<PathBuf>,
}

/// The content of a log's file, as it was found.
#[derive(Clone)]
pub struct Content {
    pub sha256: String,
    /// The file with that content; `None` if it is bundled or behind a URL.
    identity: Option<FileIdentity>,
}

/// The content of a log's file, and the file itself if it was read to know the hash.
pub struct Fetched {
    pub content: Content,
    pub file: Option<File>,
}

impl PlannedLog {
    /// Opens it, or converts a recording. If `file` is not given, it is opened or fetched again.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if it no longer has this content.
    pub fn open(&self, file: Option<File>, content: &Content) -> Result<NamedLog> {
        let Some(path) = &self.path else { return self.bundled() };
        let file = match (file, content.identity) {
            (Some(file), _) => file,
            (None, Some(_)) => open_regular(path).map_err(cannot_read(path))?,
            (None, None) => {
                let fetched = download(&Remote::open(&path.to_string_lossy())?)?;
                if fetched.sha256 != content.sha256 {
                    return Err(changed(path));
                }
                fetched.file
            }
        };
        if let Some(identity) = content.identity
            && FileIdentity::of(&file).map_err(cannot_read(path))? != identity
        {
            return Err(changed(path));
        }
        NamedLog::of_file(path, file, self.name.clone(), Unpacking::default())
    }

    /// Checks that what was replayed had this content until now. What is behind a URL was replayed from a copy.
    ///
    /// # Errors
    /// Fails if the file was replaced or written to.
    pub fn must_have(&self, content: &Content) -> Result<()> {
        match (&self.path, content.identity) {
            (Some(path), Some(identity)) => must_be_unchanged(path, identity),
            _ => Ok(()),
        }
    }

    /// Returns the hash of its file. What is behind a URL is read unless the store knows it.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn fetch(&self, store: &CellStore) -> Result<Fetched> {
        let without_file =
            |sha256: String| Fetched { content: Content { sha256, identity: None }, file: None };
        let Some(path) = &self.path else {
            return Ok(without_file(Sums::of(self.bundled_bytes())));
        };
        let Some(url) = url_of(path) else {
            let fail = cannot_read(path);
            let mut file = open_regular(path).map_err(&fail)?;
            let identity = Some(FileIdentity::of(&file).map_err(&fail)?);
            let sha256 = sum_of(&file).map_err(&fail)?;
            file.rewind().map_err(&fail)?;
            return Ok(Fetched { content: Content { sha256, identity }, file: Some(file) });
        };
        let remote = Remote::open(url)?;
        if let Some(version) = remote.version()?
            && let Some(sha256) = store.log_sum(&version)?
        {
            return Ok(without_file(sha256));
        }
        let Downloaded { sha256, version, file } = download(&remote)?;
        if let Some(version) = version {
            store.put_log_sum(&version, &sha256);
        }
        Ok(Fetched { file: Some(file), ..without_file(sha256) })
    }

    /// Returns the hash of its file; `None` if it would have to be fetched to know it.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn known_sha256(&self, store: &CellStore) -> Result<Option<String>> {
        match self.path.as_deref().and_then(url_of) {
            None => self.fetch(store).map(|fetched| Some(fetched.content.sha256)),
            Some(url) => match Remote::open(url)?.version()? {
                Some(version) => store.log_sum(&version),
                None => Ok(None),
            },
        }
    }

    fn bundled(&self) -> Result<NamedLog> {
        NamedLog::bundled(&self.name, self.bundled_bytes())
    }

    fn bundled_bytes(&self) -> &'static [u8] {
        bundled::log_bytes(&self.name).expect("it was listed")
    }
}

fn cannot_read(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(format_args!("cannot read {}: {error}", path.display()))
}

/// What is behind a URL, in a file without a name.
struct Downloaded {
    sha256: String,
    /// The version that was read, if the server says it.
    version: Option<String>,
    file: File,
}

fn download(remote: &Remote) -> Result<Downloaded> {
    let fail = |error| Failure::new(format_args!("cannot read {}: {error}", remote.url()));
    let (mut file, version) = storage::fetch(remote)?;
    let sha256 = sum_of(&file).map_err(fail)?;
    file.rewind().map_err(fail)?;
    Ok(Downloaded { sha256, version, file })
}

/// The paths without those whose file has the content of an earlier one, which would count twice. Says which are left out.
/// Only files of the same length are read. What is behind URLs is not compared.
fn without_copies(paths: &[PathBuf]) -> Vec<PathBuf> {
    let length = |path: &PathBuf| {
        let found = url_of(path).is_none().then(|| fs::metadata(path).ok()).flatten()?;
        found.is_file().then_some(found.len())
    };
    let lengths: Vec<Option<u64>> = paths.iter().map(length).collect();
    let mut counts: HashMap<u64, usize> = HashMap::new();
    lengths.iter().flatten().for_each(|length| *counts.entry(*length).or_default() += 1);
    let mut known: HashMap<String, &Path> = HashMap::new();
    let mut kept = Vec::new();
    for (path, length) in paths.iter().zip(&lengths) {
        let may_be_copy = length.is_some_and(|length| counts[&length] > 1);
        // What cannot be read fails later, with its reason.
        let sum = may_be_copy.then(|| sum_of(&open_regular(path).ok()?).ok()).flatten();
        match sum.map(|sum| *known.entry(sum).or_insert(path)) {
            Some(first) if first != path => say(format_args!(
                "idlewise: {} is left out, because {} has the same content",
                screen::name(path),
                screen::name(first)
            )),
            _ => kept.push(path.clone()),
        }
    }
    kept
}

/// The paths without those that a search found although they are no logs: the store's cells, and other Parquet files,
/// such as a table of cells. Says which are left out.
fn without_results(found: &[FoundLog], store: &Path) -> Vec<PathBuf> {
    let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let store = place(store);
    let is_log = |log: &&FoundLog| {
        if !log.is_searched {
            return true;
        }
        if place(&log.path).starts_with(&store) {
            return false;
        }
        let is_parquet = log.path.extension().is_some_and(|ending| ending == "parquet");
        let is_other = is_parquet
            && url_of(&log.path).is_none()
            && matches!(
                IdleLog::open(&log.path),
                Err(LogError::NotIdleLog { .. } | LogError::Workload { .. })
            );
        if is_other {
            let name = screen::name(&log.path);
            say(format_args!("idlewise: {name} is left out, because it is no idle log"));
        }
        !is_other
    };
    found.iter().filter(is_log).map(|log| log.path.clone()).collect()
}

/// The governors without those that are an earlier one by another name. Says which are left out.
fn without_aliases(choices: Vec<Choice>) -> Vec<Choice> {
    let mut kept: Vec<Choice> = Vec::new();
    for choice in choices {
        let is_same =
            |other: &&Choice| (other.key(), other.file_key()) == (choice.key(), choice.file_key());
        match kept.iter().find(is_same) {
            Some(first) => say(format_args!(
                "idlewise: {} is left out, because {} is the same governor",
                choice.name(),
                first.name()
            )),
            None => kept.push(choice),
        }
    }
    kept
}

impl Plan {
    /// Finds and compiles everything that the manifest names. Logs are not opened.
    ///
    /// # Errors
    /// Fails if a machine or a governor cannot be had.
    pub fn new(manifest: Manifest, store: Option<&Path>) -> Result<Self> {
        let choices = without_aliases(manifest.governors.choices_or(&GOVERNORS_DEFAULT)?);
        if choices.iter().any(Choice::is_oracle) {
            return Err(Failure::new(
                "every regret of a sweep is already against the oracle; leave the governor 'oracle' out",
            ));
        }
        let targets = match manifest.machines.as_slice() {
            [] => targets(&MACHINES_DEFAULT, &choices)?,
            names => targets(names, &choices)?,
        };
        let logs = match manifest.logs.as_slice() {
            [] => bundled::log_names()
                .map(|it| PlannedLog { name: it.to_owned(), path: None })
                .collect(),
            found => {
                let store = store.unwrap_or(&manifest.store);
                let paths = without_results(found, store);
                if paths.is_empty() {
                    return Err(Failure::new(format_args!(
                        "logs: only cells and other tables were found; what is below the store, {}, counts as cells",
                        store.display()
                    )));
                }
                let paths = without_twins(&without_copies(&paths), Unpacking::default());
                let names = distinct_names(&paths, &[ALL_LOGS]);
                let named = paths.iter().zip(names);
                named.map(|(path, name)| PlannedLog { name, path: Some(path.clone()) }).collect()
            }
        };
        let store = CellStore::new(storage::at(store.unwrap_or(&manifest.store))?);
        Ok(Plan { manifest, store, logs, targets, choices })
    }

    /// The files that the manifest names.
    pub fn inputs(&self) -> Vec<PathBuf> {
        let logs = self.logs.iter().filter_map(|log| log.path.clone());
        let machines = self.manifest.machines.iter().map(PathBuf::from);
        logs.chain(machines).chain(self.manifest.governors.files()).collect()
    }

    /// The cells of each log, always in the same order.
    pub fn cells(&self) -> Cells<'_> {
        let Manifest { settings, lambdas, shapes, .. } = &self.manifest;
        let Plan { targets, choices, .. } = self;
        Contest { targets, choices, settings, shapes, prices: lambdas }.cells()
    }

    /// How many units all logs have, with so many cells each.
    pub fn unit_count(&self, cell_count: usize) -> usize {
        self.logs.len() * cell_count.div_ceil(LANE_COUNT_MAX)
    }
}

/// The words for a cell in a message.
pub fn described(log: &str, cell: &Cell<'_>) -> String {
    let Cell { choice, setting, target, .. } = cell;
    let governor = if choice.is_oracle() { "the oracle".to_owned() } else { choice.name() };
    let mut words = format!("{governor} on {log}, {}", target.machine.id);
    if let Some(hz) = setting.hz {
        words += &format!(", {hz} Hz");
    }
    if let Some(us) = setting.latency_limit_us {
        words += &format!(", limit {us} us");
    }
    words
}
