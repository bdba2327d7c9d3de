//! Tracks: for each CPU a group with its recorded idle states and the stays of each governor.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idlewise_core::Verdict;
use idlewise_sim::replay::{
    GapCourse, Observer, Repetition, ReplayedStay, StayEnd,
};
use idlewise_trace::IdleGap;
use idlewise_trace::export::perfetto::{Annotation, EventName, Names, Slice, TraceWriter, Track};

use super::{Output, Replays};
use crate::cmd::replay::each_cpu;
use crate::error::Failure;
use crate::input::NamedLog;

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
    Names {
        events,
        categories: CATEGORIES.map(str::to_owned).to_vec(),
        annotations: ANNOTATIONS.map(str::to_owned).to_vec(),
    }
}

/// The trace, to which all lanes write in turn, and a lane's first error, which it cannot return.
struct Shared {
    writer: TraceWriter<Box<dyn Write + Send>>,
    error: Option<io::Error>,
}

/// Lanes run on one thread and never lock it at the same time. None panics while holding the lock.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tracks of a governor on one CPU.
struct Stays {
    shared: Arc<Mutex<Shared>>,
    track: Track,
    too_deep: Track,
    too_shallow: Track,
    too_deep_count: u64,
    too_shallow_count: u64,
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
    too_deep_count: u64,
    too_shallow_count: u64,
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
        more.too_deep_count += u64::from(stay.verdict == Verdict::TooDeep);
        more.too_shallow_count += u64::from(stay.verdict == Verdict::TooShallow);
    }

    fn repeat(&mut self, gap: &IdleGap, repetition: &Repetition) {
        let Repetition { at_ns, span_ns, count, once, .. } = repetition;
        let more = self.more(gap, *at_ns, at_ns + count * span_ns);
        more.stay_count += count * once.decision_count();
        more.too_deep_count += count * once.too_deep_count();
        more.too_shallow_count += count * once.too_shallow_count();
    }
}

impl Stays {
    fn new(shared: &Arc<Mutex<Shared>>, group: Track, name: &str) -> io::Result<Self> {
        let writer = &mut lock(shared).writer;
        Ok(Stays {
            shared: Arc::clone(shared),
            track: writer.slices(group, name)?,
            too_deep: writer.counter(group, &format!("{name}: too deep"))?,
            too_shallow: writer.counter(group, &format!("{name}: too shallow"))?,
            too_deep_count: 0,
            too_shallow_count: 0,
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
            too_deep_count: 0,
            too_shallow_count: 0,
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
        let MoreStays { begin_ns, end_ns, stay_count, too_deep_count, too_shallow_count } = more;
        self.last_end_ns = end_ns;
        let mut values = [None; ANNOTATIONS.len()];
        (values[0], values[1]) = (Some(gap.gap_ns), gap.sleep_length_ns);
        values[ANNOTATIONS.len() - 1] = Some(stay_count);
        let fit = verdict_index(Verdict::Fit);
        write_slice(writer, self.track, begin_ns..end_ns, MORE_STAYS_NAME, fit, &values)?;
        if too_deep_count > 0 {
            self.too_deep_count += too_deep_count;
            writer.count(self.too_deep, end_ns, self.too_deep_count)?;
        }
        if too_shallow_count > 0 {
            self.too_shallow_count += too_shallow_count;
            writer.count(self.too_shallow, end_ns, self.too_shallow_count)?;
        }
        Ok(())
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
        match stay.verdict {
            Verdict::Fit => Ok(()),
            Verdict::TooDeep => {
                self.too_deep_count += 1;
                writer.count(self.too_deep, end_ns, self.too_deep_count)
            }
            Verdict::TooShallow => {
                self.too_shallow_count += 1;
                writer.count(self.too_shallow, end_ns, self.too_shallow_count)
            }
        }
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
pub fn write(named: &NamedLog, replays: &Replays, output: &Output) -> Result<(), Failure> {
    let fail = |error| output.failure(error);
    let writer = TraceWriter::new(output.writer()?, &names(named, replays)).map_err(fail)?;
    let shared = Arc::new(Mutex::new(Shared { writer, error: None }));
    let machine = &replays.target.machine;
    each_cpu(named, |cpu_gaps| {
        // Tracks are created at the first gap, which gives the CPU.
        let mut recorded = None;
        let mut lanes = Vec::new();
        cpu_gaps(&mut |gaps| {
            let Some(first) = gaps.first() else { return Ok(()) };
            if gaps.iter().any(|gap| gap.start_ns < 0) {
                return Err(Failure::new(format_args!(
                    "{}: times before 0, which Perfetto has not; shift them with `idlewise \
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
                for choice in &replays.choices {
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
    let shared = Arc::into_inner(shared).expect("all lanes are gone");
    let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    shared.writer.finish().map_err(fail)
}
