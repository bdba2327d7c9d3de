//! Replays a whole log. CPUs run in parallel, each with its own lanes, and results are added up in
//! the order of the CPUs so that they do not depend on thread timing. A CPU's lanes end with its
//! last gap, so a log of ten thousand CPUs takes little more memory than one of ten.

use std::collections::BTreeMap;

use idlewise_trace::IdleGap;
use idlewise_trace::log::{ColumnSet, GapGroup, IdleLog, LogError};
use rayon::prelude::*;

use super::{Lane, Tally};

/// Makes a lane for a CPU.
pub type MakeLane<'a> = dyn Fn() -> Box<dyn Lane> + Sync + 'a;

/// How many gaps each lane replays before the next ones, so that they stay in the L1 cache.
const GAPS_AT_ONCE: usize = 256;
/// How many CPUs are replayed before their results are added up. A result is kept until those of
/// all previous CPUs are ready. Threads wait here, so this is above most core counts.
const CPUS_AT_ONCE: usize = 256;

/// Replays every CPU of a log through one lane of each kind, and returns a tally for each kind.
/// `progress` is called with the number of gaps replayed since its last call. Lanes do not see what
/// the recording kernel did ([`ColumnSet::WithoutRecorded`]).
///
/// # Errors
/// Fails if the log is damaged.
pub fn replay_log(
    log: &IdleLog,
    lanes: &[&MakeLane<'_>],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Tally>, LogError> {
    let make = || lanes.iter().map(|make| make()).collect::<Vec<_>>();
    let mut tallies = vec![Tally::default(); lanes.len()];
    let cpu = PerCpu {
        columns: ColumnSet::WithoutRecorded,
        make: &make,
        take: &|lanes: &mut Vec<Box<dyn Lane>>, gaps| feed(lanes, gaps),
        finish: &|lanes| lanes.iter().map(|lane| lane.tally().clone()).collect::<Vec<_>>(),
    };
    let mut merge = |of_cpu: Vec<Tally>| {
        tallies.iter_mut().zip(&of_cpu).for_each(|(sum, tally)| sum.merge(tally));
    };
    replay_cpus(log, &cpu, &mut merge, progress)?;
    Ok(tallies)
}

/// What to do with each CPU of a log.
pub struct PerCpu<'a, W, T> {
    /// Which columns the worker sees. Lanes must not see what the recording kernel did, unless they are
    /// to follow it.
    pub columns: ColumnSet,
    /// Makes a worker.
    pub make: &'a (dyn Fn() -> W + Sync),
    /// Passes the next gaps of its CPU to the worker.
    pub take: &'a (dyn Fn(&mut W, &[IdleGap]) + Sync),
    /// Turns the worker into a result after its CPU's last gap.
    pub finish: &'a (dyn Fn(W) -> T + Sync),
}

/// Makes a worker for each CPU of a log and passes it that CPU's gaps in order. CPUs run in
/// parallel. `merge` receives the results in the order of the CPUs, while others still run.
/// `progress` is as for [`replay_log`].
///
/// # Errors
/// Fails if the log is damaged.
pub fn replay_cpus<W: Send, T: Send>(
    log: &IdleLog,
    cpu: &PerCpu<'_, W, T>,
    merge: &mut dyn FnMut(T),
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), LogError> {
    let Some(cpus) = log.groups_by_cpu() else {
        return replay_in_order(log, cpu, merge, progress);
    };
    let cpus: Vec<_> = cpus.into_iter().collect();
    for cpus in cpus.chunks(CPUS_AT_ONCE) {
        let results: Vec<T> = cpus
            .par_iter()
            .map(|(_, groups)| {
                let mut worker = (cpu.make)();
                let mut reader = GroupReader::with_columns(log, cpu.columns);
                for &group in groups {
                    (cpu.take)(&mut worker, reader.read(group)?);
                    progress(group.gap_count);
                }
                Ok((cpu.finish)(worker))
            })
            .collect::<Result<_, LogError>>()?;
        results.into_iter().for_each(&mut *merge);
    }
    Ok(())
}

/// For logs of other writers, whose row groups may mix CPUs, so that a CPU may occur again later.
fn replay_in_order<W, T>(
    log: &IdleLog,
    cpu: &PerCpu<'_, W, T>,
    merge: &mut dyn FnMut(T),
    progress: &dyn Fn(u64),
) -> Result<(), LogError> {
    let mut cpus: BTreeMap<u16, W> = BTreeMap::new();
    let mut reader = GroupReader::with_columns(log, cpu.columns);
    for group in log.groups() {
        let gaps = reader.read(group)?;
        for run in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
            (cpu.take)(cpus.entry(run[0].cpu).or_insert_with(cpu.make), run);
        }
        progress(group.gap_count);
    }
    cpus.into_values().map(cpu.finish).for_each(merge);
    Ok(())
}

fn feed(lanes: &mut [Box<dyn Lane>], gaps: &[IdleGap]) {
    for gaps in gaps.chunks(GAPS_AT_ONCE) {
        for lane in lanes.iter_mut() {
            lane.replay(gaps);
        }
    }
}

/// Reads groups in order with one buffer, and remembers the last gap to check the order.
pub struct GroupReader<'a> {
    log: &'a IdleLog,
    columns: ColumnSet,
    gaps: Vec<IdleGap>,
    last: Option<IdleGap>,
}

impl<'a> GroupReader<'a> {
    /// Makes a reader at the beginning of a log or of one of its CPUs.
    pub fn new(log: &'a IdleLog) -> Self {
        GroupReader::with_columns(log, ColumnSet::All)
    }

    /// Makes a reader of some columns.
    pub fn with_columns(log: &'a IdleLog, columns: ColumnSet) -> Self {
        GroupReader { log, columns, gaps: Vec::new(), last: None }
    }

    /// Reads the gaps of the next group.
    ///
    /// # Errors
    /// Fails if the log is damaged.
    pub fn read(&mut self, group: GapGroup) -> Result<&[IdleGap], LogError> {
        let Self { log, columns, gaps, last } = self;
        log.read_group_columns(group, *columns, last.as_ref(), gaps)?;
        self.last = self.gaps.last().copied();
        Ok(&self.gaps)
    }
}
