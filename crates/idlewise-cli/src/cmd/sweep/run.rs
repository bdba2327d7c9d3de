//! Computes the cells that are missing.
//!
//! A unit is a part of a log's cells, small enough that its lanes take little memory. It is replayed in one pass, on the
//! worker's own thread. Workers take blocks of units, logs that follow each other, and keep what comes out in one file, so
//! few files have to be read for a log. Those that work on one log share it, and each keeps its log for its next
//! unit.
//!
//! Each process takes the blocks in an order of its own. So of two that work on the same, each finds what the other has done.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use idlewise_report::cell::{KeptCell, Outcome};
use idlewise_report::counted;
use idlewise_sim::contest::CellInputs;
use rayon::ThreadPoolBuilder;
use serde_json::json;

use super::logs::{OpenedLog, PlannedLog, Unreadable};
use super::plan::{LANE_COUNT_MAX, Plan, described};
use super::status::{FailedCell, Summary, failure_lines};
use super::{Common, SCHEMA};
use crate::cells::{self, Cell, ENGINE, SHARD_CELL_COUNT, Sink, cell_key, kept, kept_log_failure};
use crate::error::{Failure, Result};
use crate::progress::Progress;
use crate::screen;

#[derive(clap::Args)]
pub struct Run {
    #[command(flatten)]
    common: Common,

    /// Compute part I of N only, such as 1/16; together the parts are the whole
    #[arg(long, value_name = "I/N", default_value = "1/1")]
    shard: String,

    /// How many units are computed at once [default: one for each CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// A part of all units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    /// From 0.
    index: usize,
    count: usize,
}

fn parse_shard(text: &str) -> Result<Shard> {
    let numbers = text.split_once('/').and_then(|(index, count)| {
        Some((index.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
    });
    match numbers {
        Some((index @ 1.., count)) if index <= count => Ok(Shard { index: index - 1, count }),
        _ => Err(Failure::new(format_args!(
            "--shard: '{text}' is not I/N with I from 1 to N, such as 1/16"
        ))),
    }
}

/// Blocks that each worker has to take, if there is enough to do.
const BLOCKS_PER_JOB: usize = 4;

/// Some cells of a log.
struct Unit {
    log: usize,
    cells: Range<usize>,
}

/// Divides units into blocks, each of as many cells as a file has, but so many that all workers are busy to the end.
fn blocks(units: &[Unit], cell_count: usize, job_count: usize) -> Vec<Range<usize>> {
    let of_block = (cell_count / (BLOCKS_PER_JOB * job_count)).min(SHARD_CELL_COUNT);
    let mut blocks = Vec::new();
    let (mut from, mut count) = (0, 0);
    for (index, unit) in units.iter().enumerate() {
        count += unit.cells.len();
        if count >= of_block || index + 1 == units.len() {
            blocks.push(from..index + 1);
            (from, count) = (index + 1, 0);
        }
    }
    // Whatever the order, as long as it is another one in each process.
    let order = RandomState::new();
    blocks.sort_by_cached_key(|block| order.hash_one(block.start));
    blocks
}

/// A log that workers share while one of them has it.
#[derive(Default)]
struct SharedLog {
    opened: Weak<OpenedLog>,
    /// What went wrong once will go wrong again.
    unreadable: Option<Unreadable>,
}

/// What has been done.
#[derive(Default)]
struct Done {
    present_count: usize,
    computed_count: usize,
    failed: Vec<FailedCell>,
    /// Why the sweep cannot go on, such as a full disk.
    fatal: Option<Failure>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    /// Computes what is missing, and says what was done.
    pub fn run(self) -> Result<ExitCode> {
        let shard = parse_shard(&self.shard)?;
        let plan = self.common.plan()?;
        plan.store.create()?;
        let of_log = plan.cells();
        let units = Self::units(&plan, shard, of_log.cells.len());
        let cell_count: usize = units.iter().map(|unit| unit.cells.len()).sum();
        let wish = self.jobs.or_else(|| thread::available_parallelism().ok());
        let job_count = wish.map_or(1, NonZeroUsize::get).min(units.len()).max(1);
        let bar = Progress::cells("sweeping", cell_count as u64);
        let sweep = Sweeping {
            plan: &plan,
            cells: &of_log.cells,
            units: &units,
            logs: plan.logs.iter().map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            blocks: blocks(&units, cell_count, job_count),
            done: Mutex::default(),
            bar: &bar,
        };
        thread::scope(|scope| {
            // This thread is a worker too, so a limit on threads costs speed only.
            for _ in 1..job_count {
                let body = || sweep.work();
                if thread::Builder::new().spawn_scoped(scope, body).is_err() {
                    break;
                }
            }
            sweep.work();
        });
        bar.finish();
        let flushed = plan.store.flush();
        let mut done = sweep.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.fatal = done.fatal.or(flushed.err());
        if let Some(fatal) = done.fatal {
            return Err(fatal.with("what was computed until then is kept; run the sweep again"));
        }
        self.print(&plan, cell_count, done)
    }

    /// This part's units. Which cells are there does not matter, so parts never overlap.
    fn units(plan: &Plan, shard: Shard, cell_count: usize) -> Vec<Unit> {
        let of_log = |log| {
            let starts = (0..cell_count).step_by(LANE_COUNT_MAX);
            starts
                .map(move |from| Unit { log, cells: from..(from + LANE_COUNT_MAX).min(cell_count) })
        };
        let count = plan.unit_count(cell_count);
        let from = |index: usize| (count as u128 * index as u128 / shard.count as u128) as usize;
        let part = from(shard.index)..from(shard.index + 1);
        let all = (0..plan.logs.len()).flat_map(of_log);
        all.skip(part.start).take(part.len()).collect()
    }

    fn print(&self, plan: &Plan, cell_count: usize, mut done: Done) -> Result<ExitCode> {
        done.failed.sort();
        let mut out = screen::stdout();
        if self.json {
            let document = Summary {
                engine: ENGINE,
                cell_count,
                unit_count: plan.unit_count(plan.cells().cells.len()),
                present_count: done.present_count,
                computed_count: done.computed_count,
                failed_count: done.failed.len(),
                missing_count: 0,
                other_engine_file_count: None,
                failures: &done.failed,
            };
            out.json(SCHEMA, &json!(document))?;
        } else {
            writeln!(
                out,
                "{}: {} were there, {} computed, {} failed",
                counted(cell_count, "cell"),
                done.present_count,
                done.computed_count,
                done.failed.len()
            )?;
            for line in failure_lines(&done.failed) {
                writeln!(out, "{line}")?;
            }
        }
        Ok(if done.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// A sweep in progress.
struct Sweeping<'a> {
    plan: &'a Plan,
    cells: &'a [Cell<'a>],
    units: &'a [Unit],
    logs: Vec<Mutex<SharedLog>>,
    next: AtomicUsize,
    /// Ranges of units, in this process's order.
    blocks: Vec<Range<usize>>,
    done: Mutex<Done>,
    bar: &'a Progress,
}

impl Sweeping<'_> {
    /// Takes blocks until none is left.
    fn work(&self) {
        // So that a replay stays on this thread, and a worker's memory is that of one unit.
        let Ok(pool) = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build() else {
            return;
        };
        let mut sink = self.plan.store.sink();
        let mut held = None;
        let fail = |outcome: Result<()>| {
            if let Err(failure) = outcome {
                lock(&self.done).fatal.get_or_insert(failure);
            }
        };
        // Relaxed is enough: a block is nothing but its number.
        'blocks: while let Some(block) = self.blocks.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            for unit in &self.units[block.clone()] {
                if lock(&self.done).fatal.is_some() {
                    break 'blocks;
                }
                fail(pool.install(|| self.unit(unit, &mut held, &mut sink)));
                self.bar.add(unit.cells.len() as u64);
            }
            fail(sink.end_of_block());
        }
        fail(sink.finish());
    }

    /// Computes what is missing of a unit. `held` is the worker's log.
    fn unit(
        &self,
        unit: &Unit,
        held: &mut Option<Arc<OpenedLog>>,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let planned = &self.plan.logs[unit.log];
        let store = &self.plan.store;
        let of_unit = &self.cells[unit.cells.clone()];
        let sha256 = match &planned.sha256 {
            Ok(sha256) => sha256,
            Err(reason) => {
                self.fail_all(planned, of_unit, reason);
                return Ok(());
            }
        };
        let known = store.of_log(sha256)?;
        let present = known.keys();
        // Two governors of the manifest may be the same, by two names: their cells are computed once.
        let mut places: HashMap<String, usize> = HashMap::new();
        let (mut missing, mut inputs): (Vec<Vec<&Cell<'_>>>, Vec<CellInputs>) = Default::default();
        for cell in of_unit {
            let own = cell.inputs(sha256);
            let key = cell_key(&own);
            if present.contains(key.as_str()) {
                lock(&self.done).present_count += 1;
                continue;
            }
            let place = *places.entry(key).or_insert_with(|| {
                missing.push(Vec::new());
                inputs.push(own);
                missing.len() - 1
            });
            missing[place].push(cell);
        }
        if missing.is_empty() {
            return Ok(());
        }
        let all = || missing.iter().flatten().copied();
        // Of the log as a whole.
        let mut fail = |reason: String| {
            let is_new = !known.has_failure(None, &reason);
            self.fail_all(planned, all(), &reason);
            sink.add(is_new.then(|| kept_log_failure(sha256, &reason)))
        };
        let log = match opened(planned, &self.logs[unit.log]) {
            Ok(log) => held.insert(log),
            Err(Unreadable { reason, is_of_content: true }) => return fail(reason),
            Err(Unreadable { reason, .. }) => {
                self.fail_all(planned, all(), &reason);
                return Ok(());
            }
        };
        // Each cell has its own failure, whatever happens in others, so that it does not depend on their order.
        let cells: Vec<Cell<'_>> = missing.iter().map(|same| same[0].anew()).collect();
        let cells: Vec<&Cell<'_>> = cells.iter().collect();
        let replayed = cells::replay(&log.log, sha256, &cells, &|_| {});
        // If its file has changed, that is the reason, and nothing is kept under the hash that it had.
        if let Err(changed) = log.must_be_unchanged() {
            self.fail_all(planned, all(), &changed.text());
            return Ok(());
        }
        let results = match replayed {
            Ok(results) => results,
            Err(failure) => return fail(failure.text()),
        };
        for (same, result) in missing.iter().zip(&results) {
            match result {
                Ok(_) => lock(&self.done).computed_count += same.len(),
                Err(reason) => self.fail_all(planned, same.iter().copied(), reason),
            }
        }
        let outcomes = inputs.into_iter().zip(results).map(|(inputs, result)| kept(inputs, result));
        let is_news = |cell: &KeptCell| match &cell.outcome {
            Outcome::Result(_) => true,
            Outcome::Failure(_, reason) => !known.has_failure(cell.key.as_deref(), reason),
        };
        sink.add(outcomes.filter(is_news))
    }

    fn fail_all<'p>(
        &self,
        planned: &PlannedLog,
        cells: impl IntoIterator<Item = impl std::borrow::Borrow<Cell<'p>>>,
        reason: &str,
    ) {
        let failed = cells.into_iter().map(|cell| FailedCell {
            cell: described(&planned.name, cell.borrow()),
            log: planned.name.clone(),
            reason: reason.to_owned(),
        });
        lock(&self.done).failed.extend(failed);
    }
}

/// The log, opened unless another worker has it.
fn opened(planned: &PlannedLog, shared: &Mutex<SharedLog>) -> Result<Arc<OpenedLog>, Unreadable> {
    let mut shared = lock(shared);
    if let Some(unreadable) = &shared.unreadable {
        return Err(unreadable.clone());
    }
    if let Some(log) = shared.opened.upgrade() {
        return Ok(log);
    }
    match planned.open() {
        Ok(log) => {
            let log = Arc::new(log);
            shared.opened = Arc::downgrade(&log);
            Ok(log)
        }
        Err(unreadable) => Err(shared.unreadable.insert(unreadable).clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    use super::super::manifest::Manifest;
    use super::*;

    const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces");

    /// Sweeps one log, whose file `change` changes when its hash is known. Returns what was done, and how many cells are
    /// kept under that hash.
    fn swept_while(log: &str, change: impl FnOnce(&Path)) -> (Done, usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::copy(Path::new(TRACES).join(log), &path).unwrap();
        let text = "logs = [\"log\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\nlambda = [1]\n";
        fs::write(folder.path().join("sweep.toml"), text).unwrap();
        let manifest = Manifest::read(&folder.path().join("sweep.toml")).unwrap();
        let plan = Plan::new(manifest, None, None).unwrap();
        let of_log = plan.cells();
        let bar = Progress::cells("sweeping", 2);
        let sweep = Sweeping {
            plan: &plan,
            cells: &of_log.cells,
            units: &[],
            logs: vec![Mutex::default()],
            next: AtomicUsize::new(0),
            blocks: Vec::new(),
            done: Mutex::default(),
            bar: &bar,
        };
        change(&path);
        let mut sink = plan.store.sink();
        sweep.unit(&Unit { log: 0, cells: 0..2 }, &mut None, &mut sink).unwrap();
        sink.finish().and_then(|()| plan.store.flush()).unwrap();
        let sha256 = plan.logs[0].sha256.as_ref().unwrap();
        let known = plan.store.of_log(sha256).unwrap();
        let inputs: Vec<CellInputs> = of_log.inputs(sha256);
        // A reason for this hash would be wrong too.
        assert!(inputs.iter().all(|inputs| known.failure(&cell_key(inputs)).is_none()));
        (sweep.done.into_inner().unwrap(), known.keys().len())
    }

    #[test]
    fn a_log_that_changes_has_no_cells_under_its_old_hash() {
        let (done, kept) = swept_while("b-redis.parquet", |_| {});
        assert_eq!((done.computed_count, kept), (2, 2));
        let replace = |path: &Path| {
            let new = path.with_extension("new");
            fs::copy(Path::new(TRACES).join("a-idle.parquet"), &new).unwrap();
            fs::rename(new, path).unwrap();
        };
        let write_over = |path: &Path| {
            fs::copy(Path::new(TRACES).join("a-idle.parquet"), path).unwrap();
        };
        let write_into = |path: &Path| {
            // The same length, and the same time as before.
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let before = file.metadata().unwrap();
            let is_same = |now: &fs::Metadata| {
                use std::os::unix::fs::MetadataExt;
                (now.ctime(), now.ctime_nsec()) == (before.ctime(), before.ctime_nsec())
            };
            while is_same(&file.metadata().unwrap()) {
                file.write_all_at(b"x", before.len() / 2).unwrap();
                file.set_modified(before.modified().unwrap()).unwrap();
            }
        };
        let remove = |path: &Path| fs::remove_file(path).unwrap();
        let changes: [&dyn Fn(&Path); 4] = [&replace, &write_over, &write_into, &remove];
        for (number, change) in changes.into_iter().enumerate() {
            for log in ["b-redis.parquet", "b-redis.perf.data.xz"] {
                let (done, kept) = swept_while(log, change);
                assert_eq!((done.computed_count, kept), (0, 0), "{log}, change {number}");
                let reasons: Vec<&str> = done.failed.iter().map(|it| it.reason.as_str()).collect();
                // As long as its hash is not taken again, nobody knows that it is another one.
                let is_it = |it: &&str| {
                    it.contains("it has changed since it was hashed; run this again")
                        || it.ends_with("No such file or directory (os error 2)")
                };
                assert!(reasons.len() == 2 && reasons.iter().all(is_it), "{log}: {reasons:?}");
            }
        }
    }

    #[test]
    fn blocks_have_all_units_once_and_are_no_larger_than_a_file() {
        for (log_count, of_log, jobs) in
            [(1, 10, 8), (1000, 8, 2), (7, 2000, 4), (3, 256, 1), (0, 0, 1)]
        {
            let unit = |log| Unit { log, cells: 0..of_log };
            let units: Vec<Unit> = (0..log_count).map(unit).collect();
            let mut found = blocks(&units, log_count * of_log, jobs);
            assert!(found.len() >= units.len().min(BLOCKS_PER_JOB * jobs), "{found:?}");
            assert!(found.iter().all(|block| (block.len() - 1) * of_log < SHARD_CELL_COUNT));
            found.sort_by_key(|block| block.start);
            let all: Vec<usize> = found.into_iter().flatten().collect();
            assert_eq!(all, (0..log_count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_shard_is_one_of_several() {
        assert_eq!(parse_shard("3/16").unwrap(), Shard { index: 2, count: 16 });
        for wrong in ["0/4", "5/4", "1", "a/b", "-1/4", ""] {
            assert!(parse_shard(wrong).is_err(), "{wrong}");
        }
    }
}
