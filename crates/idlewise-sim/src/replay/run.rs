//! Replaying a whole log: CPUs side by side, each with lanes of its own, results added up in the
//! order of the CPUs so that they don't depend on which thread was faster.

use std::collections::BTreeMap;

use idlewise_trace::IdleGap;
use idlewise_trace::log::{ColumnSet, GapGroup, IdleLog, LogError};
use rayon::prelude::*;

use super::{Lane, Tally};

/// Makes a lane for one CPU.
pub type MakeLane<'a> = dyn Fn() -> Box<dyn Lane> + Sync + 'a;

/// How many gaps all lanes see before the next ones are touched: they stay in the L1 cache.
const GAPS_AT_ONCE: usize = 256;

/// Replays every CPU of a log through one lane of each kind; `progress` is told how many gaps were
/// done since it was last called. The answer has a tally for each kind of lane. Lanes see no
/// columns of what the recording kernel did ([`ColumnSet::WithoutRecorded`]).
///
/// # Errors
/// If the log is damaged.
pub fn replay_log(
    log: &IdleLog,
    lanes: &[&MakeLane<'_>],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Tally>, LogError> {
    let make = || lanes.iter().map(|make| make()).collect::<Vec<_>>();
    let done = replay_cpus(log, &make, &|lanes, gaps| feed(lanes, gaps), progress)?;
    let mut tallies = vec![Tally::default(); lanes.len()];
    for lanes in &done {
        for (sum, lane) in tallies.iter_mut().zip(lanes) {
            sum.merge(lane.tally());
        }
    }
    Ok(tallies)
}

/// Makes a worker for each CPU of a log and gives it that CPU's gaps, in order; CPUs run side by
/// side. The answer is the workers, in the order of the CPUs. `progress` and columns as for
/// [`replay_log`].
///
/// # Errors
/// If the log is damaged.
pub fn replay_cpus<W: Send>(
    log: &IdleLog,
    make: &(dyn Fn() -> W + Sync),
    take: &(dyn Fn(&mut W, &[IdleGap]) + Sync),
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<W>, LogError> {
    let Some(cpus) = log.groups_by_cpu() else {
        return replay_in_order(log, make, take, progress);
    };
    cpus.into_par_iter()
        .map(|(_, groups)| {
            let mut worker = make();
            let mut reader = GroupReader::with_columns(log, ColumnSet::WithoutRecorded);
            for group in groups {
                take(&mut worker, reader.read(group)?);
                progress(group.gap_count);
            }
            Ok(worker)
        })
        .collect()
}

/// For logs of other writers, whose row groups may mix CPUs.
fn replay_in_order<W>(
    log: &IdleLog,
    make: &dyn Fn() -> W,
    take: &dyn Fn(&mut W, &[IdleGap]),
    progress: &dyn Fn(u64),
) -> Result<Vec<W>, LogError> {
    let mut cpus: BTreeMap<u16, W> = BTreeMap::new();
    let mut reader = GroupReader::with_columns(log, ColumnSet::WithoutRecorded);
    for group in log.groups() {
        let gaps = reader.read(group)?;
        for run in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
            take(cpus.entry(run[0].cpu).or_insert_with(make), run);
        }
        progress(group.gap_count);
    }
    Ok(cpus.into_values().collect())
}

fn feed(lanes: &mut [Box<dyn Lane>], gaps: &[IdleGap]) {
    for gaps in gaps.chunks(GAPS_AT_ONCE) {
        for lane in lanes.iter_mut() {
            lane.replay(gaps);
        }
    }
}

/// Reads groups in order, with one buffer, and remembers the last gap for the check of order.
pub struct GroupReader<'a> {
    log: &'a IdleLog,
    columns: ColumnSet,
    gaps: Vec<IdleGap>,
    last: Option<IdleGap>,
}

impl<'a> GroupReader<'a> {
    /// A reader at the beginning of a log or of one of its CPUs.
    pub fn new(log: &'a IdleLog) -> Self {
        GroupReader::with_columns(log, ColumnSet::All)
    }

    /// A reader of some columns.
    pub fn with_columns(log: &'a IdleLog, columns: ColumnSet) -> Self {
        GroupReader { log, columns, gaps: Vec::new(), last: None }
    }

    /// The gaps of the next group.
    ///
    /// # Errors
    /// If the log is damaged.
    pub fn read(&mut self, group: GapGroup) -> Result<&[IdleGap], LogError> {
        let Self { log, columns, gaps, last } = self;
        log.read_group_columns(group, *columns, last.as_ref(), gaps)?;
        self.last = self.gaps.last().copied();
        Ok(&self.gaps)
    }
}
