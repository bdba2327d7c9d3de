//! Replaying a whole log: CPUs side by side, each with lanes of its own, tallies added up in the
//! order of the CPUs so that the result doesn't depend on which thread was faster.

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
    let Some(cpus) = log.groups_by_cpu() else {
        return replay_in_order(log, &make, progress);
    };
    let done: Vec<Vec<Box<dyn Lane>>> = cpus
        .into_par_iter()
        .map(|(_, groups)| {
            let mut lanes = make();
            let mut reader = GroupReader::with_columns(log, ColumnSet::WithoutRecorded);
            for group in groups {
                feed(&mut lanes, reader.read(group)?);
                progress(group.gap_count);
            }
            Ok(lanes)
        })
        .collect::<Result<_, LogError>>()?;
    Ok(add_up(lanes.len(), done.iter()))
}

/// For logs of other writers, whose row groups may mix CPUs.
fn replay_in_order(
    log: &IdleLog,
    make: &dyn Fn() -> Vec<Box<dyn Lane>>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Tally>, LogError> {
    let mut cpus: BTreeMap<u16, Vec<Box<dyn Lane>>> = BTreeMap::new();
    let mut reader = GroupReader::with_columns(log, ColumnSet::WithoutRecorded);
    for group in log.groups() {
        let gaps = reader.read(group)?;
        for run in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
            feed(cpus.entry(run[0].cpu).or_insert_with(make), run);
        }
        progress(group.gap_count);
    }
    Ok(add_up(make().len(), cpus.values()))
}

fn feed(lanes: &mut [Box<dyn Lane>], gaps: &[IdleGap]) {
    for gaps in gaps.chunks(GAPS_AT_ONCE) {
        for lane in lanes.iter_mut() {
            lane.replay(gaps);
        }
    }
}

fn add_up<'a>(lane_count: usize, cpus: impl Iterator<Item = &'a Vec<Box<dyn Lane>>>) -> Vec<Tally> {
    let mut tallies = vec![Tally::default(); lane_count];
    for lanes in cpus {
        for (sum, lane) in tallies.iter_mut().zip(lanes) {
            sum.merge(lane.tally());
        }
    }
    tallies
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
