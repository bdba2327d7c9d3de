//! Replays the CPUs of a machine together, because they share states ([`crate::shared`]).
//!
//! # What must be in the order of time
//!
//! The timeline is the recording's, so a lane knows the end of each stay when it begins it. Other CPUs change only
//! how long leaving the state takes. That is part of the residency on which the governor reflects, so the lane
//! cannot go on before it is known. Only stays in a state that a shared one requires are concerned. Therefore:
//!
//! * A lane runs ahead, as in a plain replay, up to the end of the next such stay. By then it has asked the
//!   governor for that stay, and told its groups when it goes idle and for what it asks ([`Group::plan`]).
//! * Only the ends of such stays are taken in the order of time, over the CPUs of a *unit*, which is the widest
//!   group that shares a state (`turns.rs`). There the groups say how long the CPU waits for them.
//!
//! Units share nothing.
//!
//! # Memory
//!
//! A log has one CPU after the other. Some gaps of each are held at a time ([`HELD_GAP_COUNT`]), and the compressed
//! bytes of a row group. A round goes up to the last gap of the CPU whose gaps in memory end first. Then those CPUs
//! are read on of which few gaps are left. So memory depends on the number of CPUs, and not on the length of the
//! log.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | what is replayed together, and [`replay_joined`] |
//! | `lanes.rs` | the CPUs of a unit and their groups |
//! | `step.rs` | a CPU's lane, which stops at the end of a stay |
//! | `turns.rs` | which CPU is next |
//! | `source.rs` | the gaps of a CPU, read in parts |
//! | `bound.rs` | [`JointBound`] |

mod bound;
mod lanes;
mod source;
mod step;
mod turns;

use std::sync::Arc;

use idlewise_machine::Scope;
use idlewise_trace::log::{ColumnSet, IdleLog, LogError};
use idlewise_trace::{CpuGroups, IdleGap};
use rayon::prelude::*;

use super::Tally;
use crate::shared::SharedStates;
use bound::BoundPart;
use source::Source;

pub use bound::JointBound;
pub use lanes::{GovernorJoint, OracleJoint};

/// A CPU of which fewer gaps are in memory is read on, about a thousand at a time. The gaps of a small machine's CPUs
/// fit into an L2 cache.
const HELD_GAP_COUNT: usize = 1 << 9;
/// A stay of a group of CPUs in a state that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JointPeriod {
    /// The scope of the group.
    pub scope: Scope,
    /// The group's first CPU.
    pub first_cpu: u16,
    /// The index of the state among the machine's shared ones.
    pub state: usize,
    /// From when.
    pub begin_ns: i64,
    /// Until when.
    pub end_ns: i64,
}

/// What to do with each stay of a group.
pub type TakePeriod = Box<dyn FnMut(JointPeriod) + Send>;

/// The CPUs of a unit, and the groups that they form.
#[derive(Clone, Debug)]
struct Unit {
    cpus: Vec<u16>,
    /// The scope and the members of each group, the narrowest scope first, as indices of `cpus`.
    groups: Vec<(Scope, Vec<usize>)>,
}

/// The CPUs of a log in the groups that matter for a machine's shared states.
#[derive(Clone, Debug)]
pub struct ReplayedGroups {
    shared: Arc<SharedStates>,
    units: Vec<Unit>,
}

impl ReplayedGroups {
    /// Divides the CPUs.
    pub fn new(shared: &SharedStates, groups: &CpuGroups) -> Self {
        let scopes = shared.scopes();
        let widest = scopes.last().copied().unwrap_or(Scope::Package);
        let unit = |cpus: &Vec<u16>| {
            let groups = scopes.iter().flat_map(|&scope| {
                let inside = groups.of(scope).iter().filter(|group| cpus.contains(&group[0]));
                inside.map(move |group| {
                    let member = |cpu: &u16| cpus.iter().position(|of_unit| of_unit == cpu);
                    (scope, group.iter().filter_map(member).collect())
                })
            });
            Unit { groups: groups.collect(), cpus: cpus.clone() }
        };
        let units = groups.of(widest).iter().map(unit).collect();
        ReplayedGroups { shared: Arc::new(shared.clone()), units }
    }

    /// How many groups each scope has.
    fn group_counts(&self) -> [u64; Scope::ALL.len()] {
        let groups = || self.units.iter().flat_map(|unit| &unit.groups);
        Scope::ALL.map(|scope| groups().filter(|(of, _)| *of == scope).count() as u64)
    }
}

/// The CPUs of a unit under one governor.
pub trait Joint: Send {
    /// Takes the next gaps of each CPU and replays everything before `until_ns`. Later calls bring no gap that
    /// begins before that.
    fn replay(&mut self, gaps: &[&[IdleGap]], until_ns: i64);

    /// Returns the counts of all CPUs and groups together. The time of the groups is missing.
    fn tally(&mut self) -> Tally;
}

/// Makes the lanes of a unit with so many CPUs.
pub type MakeJoint<'a> = dyn Fn(&UnitOf<'_>) -> Box<dyn Joint> + Sync + 'a;

/// A unit for which lanes are made.
pub struct UnitOf<'a> {
    shared: &'a Arc<SharedStates>,
    unit: &'a Unit,
}

impl UnitOf<'_> {
    /// The CPUs.
    pub fn cpus(&self) -> &[u16] {
        &self.unit.cpus
    }
}

/// Why CPUs cannot be replayed together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The log is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The log's rows are not sorted by CPU.
    #[error(
        "{}: its row groups mix CPUs, so CPUs cannot be replayed together: sort the rows by cpu and start_ns, \
         one CPU in a row group",
        path.display()
    )]
    Mixed {
        /// The log.
        path: std::path::PathBuf,
    },
}

/// What of a log is replayed together.
#[derive(Clone, Copy, Default)]
pub struct JointReplays<'a> {
    /// Lanes, each with the groups of its machine.
    pub makes: &'a [(&'a ReplayedGroups, &'a MakeJoint<'a>)],
    /// Bounds to compute on the way.
    pub bounds: &'a [JointBound<'a>],
}

/// What came of [`JointReplays`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct JointResults {
    /// A tally for each of the lanes.
    pub tallies: Vec<Tally>,
    /// For each bound, the cost in microjoules at each price.
    pub bounds_uj: Vec<Vec<f64>>,
}

/// What a unit's gaps are for.
enum Use {
    Lanes(Box<dyn Joint>),
    Bound(Box<BoundPart>),
}

/// Replays a log's CPUs together. CPUs that no group names are left out; those without gaps never sleep. `progress` is
/// called with the number of gaps read since its last call.
///
/// # Errors
/// Fails if the log is damaged, or not sorted by CPU.
pub fn replay_joined(
    log: &IdleLog,
    columns: ColumnSet,
    replays: JointReplays<'_>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<JointResults, JoinError> {
    let JointReplays { makes, bounds } = replays;
    let by_cpu = log.groups_by_cpu();
    let by_cpu = by_cpu.ok_or_else(|| JoinError::Mixed { path: log.path().to_owned() })?;
    let new = |(cpu, groups)| Source::new(log, columns, cpu, groups);
    let mut sources: Vec<Source<'_>> = by_cpu.into_iter().map(new).collect();
    sources.sort_by_key(|source| source.cpu);
    let places = |unit: &Unit| {
        let place = |cpu: &u16| sources.binary_search_by_key(cpu, |source| source.cpu).ok();
        unit.cpus.iter().map(place).collect::<Vec<_>>()
    };
    // Each with its number, and where its CPUs are.
    let mut uses: Vec<(usize, Vec<Option<usize>>, Use)> = Vec::new();
    for (index, (groups, make)) in makes.iter().enumerate() {
        for unit in &groups.units {
            let joint = make(&UnitOf { shared: &groups.shared, unit });
            uses.push((index, places(unit), Use::Lanes(joint)));
        }
    }
    for (index, bound) in bounds.iter().enumerate() {
        for unit in &bound.groups.units {
            let part = BoundPart::new(bound, unit);
            uses.push((index, places(unit), Use::Bound(Box::new(part))));
        }
    }
    let (mut first_ns, mut last_ns) = (i64::MAX, i64::MIN);
    loop {
        // Read on where gaps in memory end first, and where they soon will.
        let known_ns = sources.iter().map(Source::known_until_ns).min().unwrap_or(i64::MAX);
        if known_ns < i64::MAX {
            let has_few = |source: &&mut Source<'_>| {
                let left_count = source.gaps.len() - source.used;
                let is_wanted = left_count < HELD_GAP_COUNT || source.known_until_ns() == known_ns;
                is_wanted && !source.is_read()
            };
            let few: Vec<&mut Source<'_>> = sources.iter_mut().filter(has_few).collect();
            let counts: Result<Vec<u64>, LogError> =
                few.into_par_iter().map(Source::read).collect();
            progress(counts?.iter().sum());
        }
        let known_ns = sources.iter().map(Source::known_until_ns).min().unwrap_or(i64::MAX);
        let parts: Vec<&[IdleGap]> = sources.iter().map(|source| source.part(known_ns)).collect();
        for gap in parts.iter().copied().flatten() {
            first_ns = first_ns.min(gap.start_ns);
            last_ns = last_ns.max(gap.start_ns.saturating_add_unsigned(gap.gap_ns));
        }
        uses.par_iter_mut().for_each(|(_, places, part)| {
            let of = |place: &Option<usize>| place.map_or(&[][..], |place| parts[place]);
            let gaps: Vec<&[IdleGap]> = places.iter().map(of).collect();
            match part {
                Use::Lanes(joint) => joint.replay(&gaps, known_ns),
                Use::Bound(bound) => bound.replay(&gaps, known_ns),
            }
        });
        let counts: Vec<usize> = parts.iter().map(|gaps| gaps.len()).collect();
        for (source, count) in sources.iter_mut().zip(counts) {
            source.used += count;
        }
        if known_ns == i64::MAX {
            break;
        }
    }
    let span_ns = u64::try_from(last_ns.saturating_sub(first_ns)).unwrap_or(0);
    let mut tallies = vec![Tally::default(); makes.len()];
    let mut bounds_uj: Vec<Vec<f64>> =
        bounds.iter().map(|bound| vec![0.0; bound.lambdas_mw.len()]).collect();
    // In the order of units, so that sums do not depend on threads.
    for (index, _, part) in &mut uses {
        match part {
            Use::Lanes(joint) => tallies[*index].merge(&joint.tally()),
            Use::Bound(part) => {
                bounds_uj[*index]
                    .iter_mut()
                    .zip(&part.sums_uj)
                    .for_each(|(sum, part)| *sum += part);
            }
        }
    }
    for (tally, (groups, _)) in tallies.iter_mut().zip(makes) {
        tally.group_ns = groups.group_counts().map(|count| count.saturating_mul(span_ns));
    }
    Ok(JointResults { tallies, bounds_uj })
}

/// Replays gaps in memory, sorted by CPU and then by time, as [`replay_joined`] does a log. `parts_ns` are times at
/// which the replay pauses, in order; they change nothing.
pub fn replay_gaps_joined(
    gaps: &[IdleGap],
    groups: &ReplayedGroups,
    make: &MakeJoint<'_>,
    parts_ns: &[i64],
) -> Tally {
    let mut sum = Tally::default();
    for unit in &groups.units {
        let mut joint = make(&UnitOf { shared: &groups.shared, unit });
        let mut from_ns = i64::MIN;
        for until_ns in parts_ns.iter().copied().chain([i64::MAX]) {
            let of = |cpu: &u16| {
                let of_cpu = |gap: &&IdleGap| gap.cpu == *cpu && gap.start_ns >= from_ns;
                let is_in = |gap: &&IdleGap| gap.start_ns < until_ns || until_ns == i64::MAX;
                gaps.iter().filter(of_cpu).filter(is_in).copied().collect::<Vec<_>>()
            };
            let parts: Vec<Vec<IdleGap>> = unit.cpus.iter().map(of).collect();
            joint.replay(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>(), until_ns);
            from_ns = until_ns;
        }
        sum.merge(&joint.tally());
    }
    let first_ns = gaps.iter().map(|gap| gap.start_ns).min().unwrap_or(0);
    let ends = gaps.iter().map(|gap| gap.start_ns.saturating_add_unsigned(gap.gap_ns));
    let span_ns = ends.max().map_or(0, |last_ns| last_ns.abs_diff(first_ns));
    sum.group_ns = groups.group_counts().map(|count| count.saturating_mul(span_ns));
    sum
}
