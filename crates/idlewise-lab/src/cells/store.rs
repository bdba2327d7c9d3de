//! Results in a folder or in a bucket, as Parquet files of some thousand cells, which data platforms read as they are:
//!
//! ```text
//! STORE/engine=3/LOW-HIGH-SUM.parquet
//! ```
//!
//! `engine` is the version of what computes results. LOW and HIGH are the first eight digits of the lowest and the highest
//! hash of a log in the file, so few files have to be read for some logs, and SUM is the beginning of the file's own hash.
//! So a name says whether its content is whole, two writers never disagree about a file, and nothing is ever changed: files
//! are only added. If two sweeps compute a cell at once, it may be in two files, with equal rows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idlewise_report::cell::{KeptCell, Outcome, Shard, to_shard};
use idlewise_sim::contest::{CellInputs, CellResult};

use super::ENGINE;
use crate::bundle::Sums;
use crate::error::{Failure, Result};
use crate::progress::say;
use crate::storage::{Listed, Storage};

/// The beginning of a folder's name, before the version.
const FOLDER: &str = "engine=";
const ENDING: &str = ".parquet";
/// Digits of hashes in names.
const LOG_DIGITS: usize = 8;
const SUM_DIGITS: usize = 24;
const KEY_DIGITS: usize = 32;

/// So many cells are written together.
pub const SHARD_CELL_COUNT: usize = 2048;
/// Fewer wait for others.
const SHARD_CELL_COUNT_MIN: usize = 256;
/// Nor are results kept in memory for longer than this.
const SHARD_AGE: Duration = Duration::from_secs(20);
/// Far more than any shard has.
const SHARD_BYTE_COUNT_MAX: u64 = 1 << 28;
/// How many shards are kept in memory once they are read.
const READ_SHARD_COUNT: usize = 16;
/// When to look again what others have added: after a hundred times as long as looking took, but not sooner than this.
const LOOK_AGE: Duration = Duration::from_millis(300);

/// Where cells are kept.
pub struct CellStore {
    storage: Box<dyn Storage>,
    found: Mutex<Found>,
    /// What nobody has written yet.
    added: Mutex<Vec<KeptCell>>,
}

/// What a worker adds: logs that follow each other, so that its files have few.
pub struct Sink<'a> {
    store: &'a CellStore,
    cells: Vec<KeptCell>,
    since: Instant,
}

/// What the storage is known to have.
#[derive(Default)]
struct Found {
    shards: ShardNames,
    looked: Option<(Instant, Duration)>,
    /// The last that were needed, latest first.
    read: VecDeque<(String, Arc<IndexedShard>)>,
    /// Names of shards that others' files have, which could not be moved.
    in_the_way: Vec<String>,
}

/// A shard, as its name describes it.
#[derive(Clone)]
struct ShardName {
    name: String,
    low: u32,
    high: u32,
}

/// Many shards, by their lowest logs.
#[derive(Default)]
struct ShardNames {
    shards: Vec<ShardName>,
    /// The highest log of each shard and all before it.
    highest: Vec<u32>,
}

/// A shard with its rows by log.
struct IndexedShard {
    shard: Shard,
    rows: HashMap<String, Vec<usize>>,
}

/// What is known of a log's cells.
#[derive(Default)]
pub struct Known {
    shards: Vec<(Arc<IndexedShard>, HashMap<String, usize>)>,
    failures: HashMap<Option<String>, String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder of this version's shards.
fn folder() -> String {
    format!("{FOLDER}{ENGINE}")
}

/// The hash of everything that a cell depends on. Half of a hash still has no twin.
pub fn cell_key(inputs: &CellInputs) -> String {
    let text = serde_json::to_string(inputs).expect("there are no maps in it");
    Sums::of(text.as_bytes())[..KEY_DIGITS].to_owned()
}

/// The first digits of a log's hash.
fn log_number(log_sha256: &str) -> u32 {
    let digits = log_sha256.get(..LOG_DIGITS).unwrap_or_default();
    u32::from_str_radix(digits, 16).unwrap_or_default()
}

impl ShardName {
    /// Of what is not called like a shard, `None`.
    fn parse(name: String) -> Option<Self> {
        let mut parts = name.strip_suffix(ENDING)?.split('-');
        let (low, high, sum) = (parts.next()?, parts.next()?, parts.next()?);
        let lengths = [low.len(), high.len(), sum.len()];
        let is_ours = parts.next().is_none() && lengths == [LOG_DIGITS, LOG_DIGITS, SUM_DIGITS];
        let number = |digits| u32::from_str_radix(digits, 16).ok();
        let (low, high) = (number(low)?, number(high)?);
        is_ours.then_some(ShardName { name, low, high })
    }

    /// The name of a shard with these cells, sorted by log, and this content.
    fn of(cells: &[KeptCell], content: &[u8]) -> Option<Self> {
        let (first, last) = (cells.first()?, cells.last()?);
        let (low, high) = (log_number(&first.log_sha256), log_number(&last.log_sha256));
        let sum = &Sums::of(content)[..SUM_DIGITS];
        let name = format!("{low:0LOG_DIGITS$x}-{high:0LOG_DIGITS$x}-{sum}{ENDING}");
        Some(ShardName { name, low, high })
    }

    fn is_intact(&self, content: &[u8]) -> bool {
        self.name.ends_with(&format!("-{}{ENDING}", &Sums::of(content)[..SUM_DIGITS]))
    }
}

impl ShardNames {
    fn of(mut shards: Vec<ShardName>) -> Self {
        shards.sort_by(|a, b| a.name.cmp(&b.name));
        let highest = shards.iter().scan(0, |highest, shard| {
            *highest = shard.high.max(*highest);
            Some(*highest)
        });
        ShardNames { highest: highest.collect(), shards }
    }

    /// Those that may have a log.
    fn with(&self, log: u32) -> impl Iterator<Item = &ShardName> {
        let before = self.shards.partition_point(|shard| shard.low <= log);
        let all = (0..before).rev().take_while(move |&index| self.highest[index] >= log);
        all.map(|index| &self.shards[index]).filter(move |shard| shard.high >= log)
    }

    fn add(&mut self, shard: ShardName) {
        self.remove(&shard.name);
        self.shards.push(shard);
        *self = Self::of(std::mem::take(&mut self.shards));
    }

    fn remove(&mut self, name: &str) {
        self.shards.retain(|other| other.name != name);
        *self = Self::of(std::mem::take(&mut self.shards));
    }
}

impl IndexedShard {
    fn of(content: Vec<u8>) -> Option<Self> {
        let shard = Shard::of(content).ok()?;
        let mut rows: HashMap<String, Vec<usize>> = HashMap::new();
        for row in 0..shard.row_count() {
            rows.entry(shard.log_sha256(row)?.to_owned()).or_default().push(row);
        }
        Some(IndexedShard { shard, rows })
    }
}

impl CellStore {
    /// Makes the store of some storage. A folder is made when a cell is put there.
    pub fn new(storage: Box<dyn Storage>) -> Self {
        CellStore { storage, found: Mutex::default(), added: Mutex::default() }
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// Fails if it cannot be made, or if the bucket cannot be read.
    pub fn create(&self) -> Result<()> {
        self.storage.create(&folder())
    }

    /// Returns what is known of a log's cells. What others have added in the last seconds may be missing.
    ///
    /// # Errors
    /// Fails if the storage cannot be read.
    pub fn of_log(&self, log_sha256: &str) -> Result<Known> {
        self.look()?;
        let names: Vec<ShardName> =
            lock(&self.found).shards.with(log_number(log_sha256)).cloned().collect();
        let mut known = Known::default();
        for name in &names {
            let Some(shard) = self.read(name)? else { continue };
            let Some(rows) = shard.rows.get(log_sha256) else { continue };
            let mut results = HashMap::new();
            for &row in rows {
                let key = shard.shard.key(row).map(str::to_owned);
                match (shard.shard.failure(row), key) {
                    (Some(reason), key) => {
                        known.failures.insert(key, reason.to_owned());
                    }
                    (None, Some(key)) => {
                        results.insert(key, row);
                    }
                    (None, None) => {}
                }
            }
            known.shards.push((shard, results));
        }
        Ok(known)
    }

    /// Whether all of it can be kept in memory, so that logs can be asked for in any order.
    ///
    /// # Errors
    /// Fails if the storage cannot be read.
    pub fn fits_memory(&self) -> Result<bool> {
        self.look()?;
        Ok(lock(&self.found).shards.shards.len() <= READ_SHARD_COUNT)
    }

    /// Lists shards, unless that was done a moment ago.
    fn look(&self) -> Result<()> {
        let mut found = lock(&self.found);
        if found.looked.is_some_and(|(at, took)| at.elapsed() < LOOK_AGE.max(100 * took)) {
            return Ok(());
        }
        let begun = Instant::now();
        let listed = self.storage.list(&folder())?;
        let shards = listed.into_iter().filter_map(|file| ShardName::parse(file.name));
        found.shards = ShardNames::of(shards.collect());
        found.looked = Some((Instant::now(), begun.elapsed()));
        Ok(())
    }

    /// Reads a shard; `None` if it is damaged or gone. What has the name of one and is none gets another name: it may be
    /// somebody else's.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    fn read(&self, shard: &ShardName) -> Result<Option<Arc<IndexedShard>>> {
        let is_it = |(name, _): &(String, _)| *name == shard.name;
        {
            let read = &mut lock(&self.found).read;
            if let Some(at) = read.iter().position(is_it) {
                let hit = read.remove(at);
                let content = hit.as_ref().map(|(_, content)| Arc::clone(content));
                read.extend(hit);
                read.rotate_right(1);
                return Ok(content);
            }
        }
        let path = format!("{}/{}", folder(), shard.name);
        let content =
            self.storage.read(std::slice::from_ref(&path), SHARD_BYTE_COUNT_MAX)?.pop().flatten();
        let Some(content) = content else {
            lock(&self.found).shards.remove(&shard.name);
            return Ok(None);
        };
        let intact = shard.is_intact(&content).then(|| content.clone());
        let indexed = intact.and_then(IndexedShard::of).map(Arc::new);
        let mut found = lock(&self.found);
        match &indexed {
            Some(indexed) => {
                found.read.push_front((shard.name.clone(), Arc::clone(indexed)));
                found.read.truncate(READ_SHARD_COUNT);
            }
            None => {
                found.shards.remove(&shard.name);
                drop(found);
                self.put_aside(shard, path, content);
            }
        }
        Ok(indexed)
    }

    /// Gives another name to what has the name of a shard and is none.
    fn put_aside(&self, shard: &ShardName, path: String, content: Vec<u8>) {
        // Engines skip names that begin with an underscore, and others look for the ending. The hash keeps apart what had
        // the same name.
        let aside = format!("_{}.{}.damaged", shard.name, &Sums::of(&content)[..LOG_DIGITS]);
        let moved = self.storage.write(vec![(format!("{}/{aside}", folder()), content)]);
        let moved = match moved.and_then(|()| self.storage.remove(&[path])) {
            Ok(()) => format!("and is now {aside}"),
            Err(_) => {
                lock(&self.found).in_the_way.push(shard.name.clone());
                "and cannot be moved; its cells count as missing".to_owned()
            }
        };
        say(&format!("idlewise: {} is damaged or no file of cells, {moved}", shard.name));
    }

    /// Begins to add cells.
    pub fn sink(&self) -> Sink<'_> {
        Sink { store: self, cells: Vec::new(), since: Instant::now() }
    }

    /// Keeps what came of cells, when there is enough of it.
    ///
    /// # Errors
    /// Fails if the disk is full, or if the bucket does not take them. They are lost then.
    pub fn add(&self, cells: impl IntoIterator<Item = KeptCell>) -> Result<()> {
        let mut added = lock(&self.added);
        added.extend(cells);
        if added.len() < SHARD_CELL_COUNT {
            return Ok(());
        }
        let cells = std::mem::take(&mut *added);
        drop(added);
        self.write(cells)
    }

    /// Writes what was added. It has to be called at the end.
    ///
    /// # Errors
    /// Fails as [`CellStore::add`] does.
    pub fn flush(&self) -> Result<()> {
        let cells = std::mem::take(&mut *lock(&self.added));
        self.write(cells)
    }

    fn write(&self, mut cells: Vec<KeptCell>) -> Result<()> {
        cells.sort_by(|a, b| (&a.log_sha256, &a.key).cmp(&(&b.log_sha256, &b.key)));
        let content = to_shard(&cells);
        let Some(shard) = ShardName::of(&cells, &content) else { return Ok(()) };
        let path = format!("{}/{}", folder(), shard.name);
        if lock(&self.found).in_the_way.contains(&shard.name) {
            return Err(Failure::new(format_args!(
                "{path}: something else is there; move it away"
            )));
        }
        self.storage.write(vec![(path, content)])?;
        lock(&self.found).shards.add(shard);
        Ok(())
    }

    /// Returns how many files other versions have here.
    pub fn other_engine_file_count(&self) -> u64 {
        let folders = self.storage.folders("").unwrap_or_default();
        let others = folders.iter().filter(|name| name.starts_with(FOLDER) && **name != folder());
        let is_shard = |file: &Listed| file.name.ends_with(ENDING);
        let count = |name: &String| {
            self.storage.list(name).unwrap_or_default().iter().filter(|it| is_shard(it)).count()
        };
        others.map(count).sum::<usize>() as u64
    }
}

impl Sink<'_> {
    /// Keeps what came of cells. Nothing stays in memory for long.
    ///
    /// # Errors
    /// Fails as [`CellStore::add`] does.
    pub fn add(&mut self, cells: impl IntoIterator<Item = KeptCell>) -> Result<()> {
        self.cells.extend(cells);
        let is_due = self.since.elapsed() >= SHARD_AGE || self.cells.len() >= 2 * SHARD_CELL_COUNT;
        if is_due { self.write() } else { Ok(()) }
    }

    /// Writes what there is, unless it is little: what comes next are other logs.
    ///
    /// # Errors
    /// Fails as [`CellStore::add`] does.
    pub fn end_of_block(&mut self) -> Result<()> {
        if self.cells.len() >= SHARD_CELL_COUNT_MIN { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.since = Instant::now();
        self.store.write(std::mem::take(&mut self.cells))
    }

    /// Leaves what is left to the store, which writes it with that of others.
    ///
    /// # Errors
    /// Fails as [`CellStore::add`] does.
    pub fn finish(self) -> Result<()> {
        self.store.add(self.cells)
    }
}

impl Known {
    /// The result of a cell; `None` if it is not there.
    pub fn result(&self, inputs: &CellInputs) -> Option<CellResult> {
        let key = cell_key(inputs);
        let row = |(shard, results): &(Arc<IndexedShard>, HashMap<String, usize>)| {
            shard.shard.result(*results.get(&key)?, inputs)
        };
        self.shards.iter().find_map(row)
    }

    /// The keys of all cells that are there.
    pub fn keys(&self) -> HashSet<&str> {
        self.shards.iter().flat_map(|(_, results)| results.keys().map(String::as_str)).collect()
    }

    /// Why a cell, if it is not there, could not be computed. `None` if nobody tried.
    pub fn failure(&self, key: &str) -> Option<&str> {
        let own = self.failures.get(&Some(key.to_owned()));
        own.or_else(|| self.failures.get(&None)).map(String::as_str)
    }

    /// Whether it is known why this cell, or with `None` all cells of the log, could not be computed.
    pub fn has_failure(&self, key: Option<&str>, reason: &str) -> bool {
        self.failures.get(&key.map(str::to_owned)).is_some_and(|known| known == reason)
    }
}

/// What came of a cell, to be kept.
pub fn kept(inputs: CellInputs, outcome: std::result::Result<CellResult, String>) -> KeptCell {
    KeptCell {
        key: Some(cell_key(&inputs)),
        log_sha256: inputs.log_sha256.clone(),
        outcome: match outcome {
            Ok(result) => Outcome::Result(result),
            Err(reason) => Outcome::Failure(Some(inputs), reason),
        },
    }
}

/// Why no cell of a log could be computed, to be kept.
pub fn kept_log_failure(log_sha256: &str, reason: &str) -> KeptCell {
    let outcome = Outcome::Failure(None, reason.to_owned());
    KeptCell { key: None, log_sha256: log_sha256.to_owned(), outcome }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::storage::Folder;

    fn store(folder: &Path) -> CellStore {
        CellStore::new(Box::new(Folder(folder.to_owned())))
    }

    fn failed(log: &str, reason: &str) -> KeptCell {
        kept_log_failure(log, reason)
    }

    #[test]
    fn a_name_says_what_is_in_a_file() {
        let cells = [failed("0123456789", "x"), failed("fedcba9876", "y")];
        let name = ShardName::of(&cells, b"content").unwrap();
        let again = ShardName::parse(name.name.clone()).unwrap();
        assert_eq!((again.low, again.high), (0x0123_4567, 0xfedc_ba98));
        assert!(again.is_intact(b"content") && !again.is_intact(b"contenT"));
        assert!(ShardName::of(&[], b"").is_none());
        for other in ["a.parquet", "01234567-89abcdef.parquet", "cells.csv", ".parquet"] {
            assert!(ShardName::parse(other.to_owned()).is_none(), "{other}");
        }
    }

    /// As many ranges as there are, whatever they are: those that are found are those that have the log.
    #[test]
    fn shards_are_found_by_log() {
        let shard = |(low, high)| ShardName { name: format!("{low:08x}-{high:08x}"), low, high };
        let ranges = [(0, 9), (0, 2), (3, 4), (5, 5), (5, 8), (7, 9), (8, 8), (9, u32::MAX)];
        let mut names = ShardNames::default();
        ranges.map(shard).into_iter().for_each(|shard| names.add(shard));
        for log in (0..12).chain([u32::MAX]) {
            let mut found: Vec<_> = names.with(log).map(|shard| (shard.low, shard.high)).collect();
            let mut expected = ranges.to_vec();
            expected.retain(|(low, high)| (low..=high).contains(&&log));
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "{log}");
        }
    }

    #[test]
    fn what_is_damaged_is_as_if_it_was_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let own = store(folder.path());
        own.add([failed("aaaaaaaaaa", "no such log")]).unwrap();
        own.flush().unwrap();
        // Nothing to write.
        own.flush().unwrap();
        let known = |log: &str| store(folder.path()).of_log(log).unwrap();
        assert!(known("aaaaaaaaaa").has_failure(None, "no such log"));
        assert_eq!(known("aaaaaaaaaa").failure("any"), Some("no such log"));
        assert_eq!(known("aaaaaaaabb").failure("any"), None, "the same digits");
        let shards: Vec<_> =
            fs::read_dir(folder.path().join(format!("engine={ENGINE}"))).unwrap().collect();
        let [Ok(shard)] = shards.as_slice() else { panic!("{shards:?}") };
        let whole = fs::read(shard.path()).unwrap();
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            fs::write(shard.path(), &whole[..length]).unwrap();
            assert_eq!(known("aaaaaaaaaa").failure("any"), None);
            assert!(!shard.path().exists(), "{length}");
        }
    }
}
