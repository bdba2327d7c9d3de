//! Tracks: for each CPU a group with its recorded idle states and the stays of each governor, and for states that
//! CPUs share a track for each group of CPUs and governor.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idlewise_core::Verdict;
use idlewise_sim::Scope;
use idlewise_sim::contest::Price;
use idlewise_sim::replay::{
    GapCourse, JointPeriod, JointReplays, Observer, Repetition, ReplayedGroups, ReplayedStay,
    StayEnd, TakePeriod, UnitOf, replay_joined,
};
use idlewise_trace::IdleGap;
use idlewise_trace::export::perfetto::{Annotation, EventName, Names, Slice, TraceWriter, Track};
use idlewise_trace::log::ColumnSet;

use super::{Output, Replays};
use crate::error::{Failure, Result};
use crate::input::{NamedLog, each_cpu};

/// How many gaps one governor replays before the next one does.
const GAPS_AT_ONCE: usize = 1 << 12;
/// The number of states that a log can name.
const RECORDED_STATE_COUNT: usize = 1 << 8;

const CATEGORIES: [&str; 5] = ["fit", "too_deep", "too_shallow", "recorded", "tick"];
const RECORDED: usize = 3;
const TICK: usize = 4;
const ANNOTATIONS: [&str; 6] =
    ["gap_ns", "sleep_length_ns", "residency_ns", "delay_ns", "recorded_idle_ns", "stay_count"];

/// If a gap has more stays than this, the rest share a slice. A CPU that polls for a day has a
/// hundred million stays.
const STAY_COUNT_MAX: u64 = 4_096;

/// The index of each name: the recorded states, the tick, stays that share a slice, then for each
/// state of the machine one name per verdict.
const TICK_NAME: EventName = EventName(RECORDED_STATE_COUNT);
const MORE_STAYS_NAME: EventName = EventName(TICK_NAME.0 + 1);
const VERDICT_NAMES: [&str; 3] = ["", " too deep", " too shallow"];

fn verdict_index(verdict: Verdict) -> usize {
    match verdict {
        Verdict::Fit => 0,
        Verdict::TooDeep => 1,
        Verdict::TooShallow => 2,
    }
}

fn stay_name(stay: &ReplayedStay) -> EventName {
    EventName(
        MORE_STAYS_NAME.0 + 1 + VERDICT_NAMES.len() * stay.state + verdict_index(stay.verdict),
    )
}

fn names(named: &NamedLog, replays: &Replays) -> Names {
    let recorded = &named.log.metadata.machine;
    let recorded_name = |index: usize| {
        let state = recorded.as_ref().and_then(|machine| machine.states.get(index));
        state.map_or_else(|| format!("state {index}"), |state| state.name.clone())
    };
    let mut events: Vec<String> = (0..RECORDED_STATE_COUNT).map(recorded_name).collect();
    events.push("tick".to_owned());
    events.push("more stays".to_owned());
    for state in &replays.target.state_names {
        events.extend(VERDICT_NAMES.map(|verdict| format!("{state}{verdict}")));
    }
    events.extend(replays.target.shared.names().iter().cloned());
    Names {
        events,
        categories: CATEGORIES.map(str::to_owned).to_vec(),
        annotations: ANNOTATIONS.map(str::to_owned).to_vec(),
    }
}

fn shared_name(replays: &Replays, state: usize) -> EventName {
    let cpu_names = VERDICT_NAMES.len() * replays.target.state_names.len();
    EventName(MORE_STAYS_NAME.0 + 1 + cpu_names + state)
}

/// The trace, to which all lanes write in turn, and a lane's first error, which it cannot return.
struct Shared {
    writer: TraceWriter<Box<dyn Write + Send>>,
    error: Option<io::Error>,
    /// The group of tracks of each group of CPUs, by scope and first CPU.
    group_tracks: BTreeMap<(Scope, u16), Track>,
}

/// None panics while holding the lock. Only CPUs that share states run on several threads.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a stay was too deep, and too shallow, as counts.
fn misses(verdict: Verdict) -> [u64; 2] {
    [Verdict::TooDeep, Verdict::TooShallow].map(|miss| u64::from(verdict == miss))
}

/// The tracks of a governor on one CPU.
struct Stays {
    shared: Arc<Mutex<Shared>>,
    track: Track,
    /// Counters of the stays that were too deep, and of those too shallow, and how far they are.
    misses: [(Track, u64); 2],
    last_end_ns: u64,
    /// How many of this gap's stays have their own slice.
    written_count: u64,
    more: Option<MoreStays>,
}

/// Stays of a gap that share a slice.
#[derive(Clone, Copy)]
struct MoreStays {
    begin_ns: u64,
    end_ns: u64,
    stay_count: u64,
    miss_counts: [u64; 2],
}

impl Observer for Stays {
    fn gap(&mut self, gap: &IdleGap, _course: GapCourse) {
        self.written_count = 0;
        if let Some(more) = self.more.take() {
            self.write_shared(|stays, writer| stays.write_more(writer, gap, more));
        }
    }

    fn stay(&mut self, gap: &IdleGap, stay: ReplayedStay) {
        if self.more.is_none() && self.written_count < STAY_COUNT_MAX {
            self.written_count += 1;
            self.write_shared(|stays, writer| stays.write(writer, gap, stay));
            return;
        }
        let more = self.more(gap, stay.at_ns, stay.at_ns + stay.stay_ns);
        more.stay_count += 1;
        let misses = misses(stay.verdict);
        more.miss_counts.iter_mut().zip(misses).for_each(|(sum, count)| *sum += count);
    }

    fn repeat(&mut self, gap: &IdleGap, repetition: &Repetition) {
        let Repetition { at_ns, span_ns, count, once, .. } = repetition;
        let more = self.more(gap, *at_ns, at_ns + count * span_ns);
        more.stay_count += count * once.decision_count();
        more.miss_counts[0] += count * once.too_deep_count();
        more.miss_counts[1] += count * once.too_shallow_count();
    }
}

impl Stays {
    fn new(shared: &Arc<Mutex<Shared>>, group: Track, name: &str) -> io::Result<Self> {
        let writer = &mut lock(shared).writer;
        Ok(Stays {
            shared: Arc::clone(shared),
            track: writer.slices(group, name)?,
            misses: [
                (writer.counter(group, &format!("{name}: too deep"))?, 0),
                (writer.counter(group, &format!("{name}: too shallow"))?, 0),
            ],
            last_end_ns: 0,
            written_count: 0,
            more: None,
        })
    }

    /// Calls `write` with the trace, unless an earlier write failed.
    fn write_shared(
        &mut self,
        write: impl FnOnce(&mut Self, &mut TraceWriter<Box<dyn Write + Send>>) -> io::Result<()>,
    ) {
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        if shared.error.is_none() {
            shared.error = write(self, &mut shared.writer).err();
        }
    }

    /// The slice for stays from `from_ns` to `to_ns` within the gap.
    fn more(&mut self, gap: &IdleGap, from_ns: u64, to_ns: u64) -> &mut MoreStays {
        let start_ns = gap.start_ns.max(0) as u64;
        let begin_ns = start_ns.saturating_add(from_ns).max(self.last_end_ns);
        let more = self.more.get_or_insert(MoreStays {
            begin_ns,
            end_ns: begin_ns,
            stay_count: 0,
            miss_counts: [0; 2],
        });
        more.end_ns = more.end_ns.max(start_ns.saturating_add(to_ns));
        more
    }

    fn write_more<W: Write>(
        &mut self,
        writer: &mut TraceWriter<W>,
        gap: &IdleGap,
        more: MoreStays,
    ) -> io::Result<()> {
        let MoreStays { begin_ns, end_ns, stay_count, miss_counts } = more;
        self.last_end_ns = end_ns;
        let mut values = [None; ANNOTATIONS.len()];
        (values[0], values[1]) = (Some(gap.gap_ns), gap.sleep_length_ns);
        values[ANNOTATIONS.len() - 1] = Some(stay_count);
        let fit = verdict_index(Verdict::Fit);
        write_slice(writer, self.track, begin_ns..end_ns, MORE_STAYS_NAME, fit, &values)?;
        self.count(writer, end_ns, miss_counts)
    }

    fn write<W: Write>(
        &mut self,
        writer: &mut TraceWriter<W>,
        gap: &IdleGap,
        stay: ReplayedStay,
    ) -> io::Result<()> {
        let begin_ns = (gap.start_ns.max(0) as u64).saturating_add(stay.at_ns);
        // In a damaged log gaps can overlap. Overlapping slices would be nested.
        let begin_ns = begin_ns.max(self.last_end_ns);
        let end_ns = begin_ns.saturating_add(stay.stay_ns);
        self.last_end_ns = end_ns;
        let residency_ns = stay.stay_ns.saturating_add(stay.exit_latency_ns);
        let values = [Some(gap.gap_ns), gap.sleep_length_ns, Some(residency_ns), stay.delay_ns()];
        let category = verdict_index(stay.verdict);
        write_slice(writer, self.track, begin_ns..end_ns, stay_name(&stay), category, &values)?;
        if stay.end == StayEnd::Tick {
            writer.instant(self.track, end_ns, TICK_NAME, TICK)?;
        }
        self.count(writer, end_ns, misses(stay.verdict))
    }

    /// Adds to the counters of misses.
    fn count<W: Write>(
        &mut self,
        writer: &mut TraceWriter<W>,
        at_ns: u64,
        counts: [u64; 2],
    ) -> io::Result<()> {
        for ((track, sum), count) in self.misses.iter_mut().zip(counts) {
            if count > 0 {
                *sum += count;
                writer.count(*track, at_ns, *sum)?;
            }
        }
        Ok(())
    }
}

/// `values` are those of [`ANNOTATIONS`]; the last ones may be missing.
fn write_slice<W: Write>(
    writer: &mut TraceWriter<W>,
    track: Track,
    span_ns: std::ops::Range<u64>,
    name: EventName,
    category: usize,
    values: &[Option<u64>],
) -> io::Result<()> {
    let mut annotations = [Annotation { name: 0, value: 0 }; ANNOTATIONS.len()];
    let mut count = 0;
    for (name, value) in values.iter().enumerate() {
        if let Some(value) = *value {
            annotations[count] = Annotation { name, value };
            count += 1;
        }
    }
    let (begin_ns, end_ns) = (span_ns.start, span_ns.end);
    let annotations = &annotations[..count];
    writer.slice(track, Slice { begin_ns, end_ns, name, category, annotations })
}

/// The recorded tracks of one CPU.
struct Recorded {
    track: Track,
    depth: Track,
    last_end_ns: u64,
}

impl Recorded {
    fn write<W: Write>(&mut self, writer: &mut TraceWriter<W>, gap: &IdleGap) -> io::Result<()> {
        let begin_ns = (gap.start_ns.max(0) as u64).max(self.last_end_ns);
        let end_ns = begin_ns.saturating_add(gap.gap_ns);
        self.last_end_ns = end_ns;
        let Some(state) = gap.recorded_state else { return Ok(()) };
        let values = [Some(gap.gap_ns), gap.sleep_length_ns, None, None, gap.recorded_idle_ns];
        let name = EventName(usize::from(state));
        write_slice(writer, self.track, begin_ns..end_ns, name, RECORDED, &values)?;
        writer.count(self.depth, begin_ns, 1 + u64::from(state))?;
        writer.count(self.depth, end_ns, 0)
    }
}

/// Writes the whole trace.
pub fn write(named: &NamedLog, replays: &Replays, output: &Output) -> Result<()> {
    let fail = |error| output.failure(error);
    let writer = TraceWriter::new(output.writer()?, &names(named, replays)).map_err(fail)?;
    let shared =
        Arc::new(Mutex::new(Shared { writer, error: None, group_tracks: BTreeMap::new() }));
    let machine = &replays.target.machine;
    let mut cpu_tracks = BTreeMap::new();
    each_cpu(named, |cpu_gaps| {
        // Tracks are created at the first gap, which gives the CPU.
        let mut recorded = None;
        let mut lanes = Vec::new();
        cpu_gaps(&mut |gaps| {
            let Some(first) = gaps.first() else { return Ok(()) };
            if gaps.iter().any(|gap| gap.start_ns < 0) {
                return Err(Failure::new(format_args!(
                    "{}: times before 0, which Perfetto has not; shift them with `idlewise log \
                     anonymize`",
                    named.log.path().display()
                )));
            }
            if recorded.is_none() {
                let group = lock(&shared).writer.group(&format!("CPU {}", first.cpu));
                let group = group.map_err(fail)?;
                let mut guard = lock(&shared);
                let track = guard.writer.slices(group, "recorded").map_err(fail)?;
                let depth = guard.writer.counter(group, "recorded: state + 1, 0 if running");
                let depth = depth.map_err(fail)?;
                drop(guard);
                recorded = Some(Recorded { track, depth, last_end_ns: 0 });
                cpu_tracks.insert(first.cpu, group);
                let alone = if replays.groups.is_some() { &[] } else { replays.choices.as_slice() };
                for choice in alone {
                    let name = format!("{} on {}", choice.name(), machine.id);
                    let stays = Stays::new(&shared, group, &name).map_err(fail)?;
                    lanes.push(replays.lane(choice, stays)?);
                }
            }
            for gaps in gaps.chunks(GAPS_AT_ONCE) {
                if let Some(recorded) = &mut recorded {
                    let writer = &mut lock(&shared).writer;
                    gaps.iter().try_for_each(|gap| recorded.write(writer, gap)).map_err(fail)?;
                }
                lanes.iter_mut().for_each(|lane| lane.replay(gaps));
                if let Some(error) = lock(&shared).error.take() {
                    return Err(fail(error));
                }
            }
            Ok(())
        })
    })?;
    if let Some(groups) = &replays.groups {
        write_joined(named, replays, groups, &shared, &cpu_tracks).map_err(
            |error| match error {
                Unwritten::Replay(failure) => failure,
                Unwritten::Trace(error) => fail(error),
            },
        )?;
    }
    let shared = Arc::into_inner(shared).expect("all lanes are gone");
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    shared.writer.finish().map_err(fail)
}

/// A CPU without gaps has no tracks, and gets no stays.
struct StaysIfAny(Option<Stays>);

impl Observer for StaysIfAny {
    fn stay(&mut self, gap: &IdleGap, stay: ReplayedStay) {
        self.0.iter_mut().for_each(|stays| stays.stay(gap, stay));
    }

    fn repeat(&mut self, gap: &IdleGap, repetition: &Repetition) {
        self.0.iter_mut().for_each(|stays| stays.repeat(gap, repetition));
    }

    fn gap(&mut self, gap: &IdleGap, course: GapCourse) {
        self.0.iter_mut().for_each(|stays| stays.gap(gap, course));
    }
}

/// Why CPUs that share states were not written.
enum Unwritten {
    Replay(Failure),
    Trace(io::Error),
}

/// Writes the stays of CPUs that share states, and those of their groups, under each governor.
fn write_joined(
    named: &NamedLog,
    replays: &Replays,
    groups: &ReplayedGroups,
    shared: &Arc<Mutex<Shared>>,
    cpu_tracks: &BTreeMap<u16, Track>,
) -> Result<(), Unwritten> {
    let Replays { target, setting, choices, .. } = replays;
    let machine = &target.machine;
    let first_name = shared_name(replays, 0).0;
    for choice in choices {
        let player = choice.on(machine).map_err(Unwritten::Replay)?;
        let name = format!("{} on {}", choice.name(), machine.id);
        let make = |unit: &UnitOf<'_>| {
            let stays = unit.cpus().iter().map(|cpu| {
                let group = cpu_tracks.get(cpu).copied();
                let stays = group.map(|group| Stays::new(shared, group, &name)).transpose();
                StaysIfAny(stays.unwrap_or_else(|error| {
                    lock(shared).error.get_or_insert(error);
                    None
                }))
            });
            let observers: Vec<StaysIfAny> = stays.collect();
            let take = group_stays(shared, &name, first_name);
            player.joint(unit, &target.costs, *setting, Price::QUARTER, observers, Some(take))
        };
        let replays = JointReplays { makes: &[(groups, &make)], bounds: &[] };
        replay_joined(&named.log, ColumnSet::WithoutRecorded, replays, &|_| {})
            .map_err(|error| Unwritten::Replay(error.into()))?;
        if let Some(error) = lock(shared).error.take() {
            return Err(Unwritten::Trace(error));
        }
    }
    Ok(())
}

/// Writes each stay of a group on the group's track.
fn group_stays(shared: &Arc<Mutex<Shared>>, name: &str, first_name: usize) -> TakePeriod {
    let (shared, name) = (Arc::clone(shared), name.to_owned());
    let mut tracks: BTreeMap<(Scope, u16), Track> = BTreeMap::new();
    Box::new(move |period: JointPeriod| {
        let JointPeriod { scope, first_cpu, state, begin_ns, end_ns } = period;
        let mut guard = lock(&shared);
        let Shared { writer, error, group_tracks } = &mut *guard;
        if error.is_some() {
            return;
        }
        let place = (scope, first_cpu);
        let track = tracks.get(&place).copied().map_or_else(
            || {
                let group = match group_tracks.get(&place) {
                    Some(group) => *group,
                    None => writer.group(&format!("{scope} of CPU {first_cpu}"))?,
                };
                group_tracks.insert(place, group);
                writer.slices(group, &name)
            },
            Ok,
        );
        let span_ns = begin_ns.max(0) as u64..end_ns.max(0) as u64;
        let fit = verdict_index(Verdict::Fit);
        let written = track.and_then(|track| {
            tracks.insert(place, track);
            write_slice(writer, track, span_ns, EventName(first_name + state), fit, &[])
        });
        *error = written.err();
    })
}
