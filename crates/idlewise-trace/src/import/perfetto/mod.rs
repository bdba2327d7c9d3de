//! Perfetto's traces, as far as they hold events of ftrace.
//!
//! | file | holds |
//! | --- | --- |
//! | `wire.rs` | the fields of a message |
//! | `packets.rs` | the packets of a file, compressed ones too |
//! | `bundle.rs` | from the events of one CPU to ours |
//! | `schema.rs` | which field of which message is what |
//!
//! What fields say is in `../named.rs`. The recorder empties the buffer of one CPU after the other,
//! again and again; a CPU's number below the one before it begins a new round, and rounds are put in
//! order as those of perf are (`../order.rs`).
//!
//! The trace's clock counts time in suspend, the clock of timers does not. Snapshots of both come
//! with the trace, and timers are moved to the trace's clock with the snapshot before them.
//!
//! Not in here: processes, symbols, counters, and events of other sources. Addresses in these traces
//! may be numbers that the recorder gave them; as identities they are as good.

mod bundle;
mod packets;
mod schema;
mod wire;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use super::named;
use super::order::Orderer;
use super::source::{self, ReadAt};
use super::{ImportError, ReadSummary, Recording, TraceInfo};
use crate::event::{Event, EventKind, Tracepoints};
use bundle::{BundleReader, TraceClock};
use packets::{Packet, each_packet};
use schema::{clock, packet, stats, system};
use wire::{Fields, Value, field};

/// The format's name.
pub(super) const FORMAT_NAME: &str = "perfetto";

/// How many events show what the rest of the trace has.
const SURVEY_EVENT_COUNT: u64 = 1 << 19;

/// Snapshots whose clocks lie this much further apart than before tell of a suspend.
const SUSPEND_NS: i64 = 10_000_000;

/// Whether a file that begins with these bytes is one of ours.
pub(super) fn recognizes(first: &[u8]) -> bool {
    packets::are_packets(first)
}

/// A Perfetto trace whose first part has been read.
///
/// ```no_run
/// use idlewise_trace::import::perfetto::PerfettoTrace;
///
/// let trace = PerfettoTrace::open("trace.pftrace".as_ref())?;
/// println!("of Linux {:?}", trace.info().kernel);
/// let summary = trace.read(&|_byte_count| {}, &mut |events| println!("{events:?}"))?;
/// println!("{} events", summary.event_count);
/// # Ok::<(), idlewise_trace::import::ImportError>(())
/// ```
pub struct PerfettoTrace {
    source: Box<dyn ReadAt>,
    info: TraceInfo,
    /// What the first snapshot of the clocks says, for events that come before it in the file.
    monotonic_offset_ns: Option<i64>,
}

impl PerfettoTrace {
    /// Opens a file and reads its first part.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has no idle events.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        Self::from_file(source::open(path)?)
    }

    pub(super) fn from_file(file: File) -> Result<Self, ImportError> {
        let byte_count = file.metadata().map_or(0, |metadata| metadata.len());
        Self::from_source(Box::new(file), byte_count)
    }

    /// As [`PerfettoTrace::open`], for a file that is in memory.
    ///
    /// # Errors
    /// As there.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, ImportError> {
        let byte_count = bytes.len() as u64;
        Self::from_source(Box::new(bytes), byte_count)
    }

    fn from_source(source: Box<dyn ReadAt>, byte_count: u64) -> Result<Self, ImportError> {
        let mut survey = Walk::default();
        each_packet(&*source, &mut |_| {}, &mut |packet, _| {
            survey.read(packet);
            survey.events.clear();
            let has_idle = survey.tracepoints().contains(Tracepoints::CPU_IDLE);
            !has_idle || survey.bundles.event_count < SURVEY_EVENT_COUNT
        })?;
        let tracepoints = survey.tracepoints();
        if survey.bundle_count == 0 {
            return Err(ImportError::Unsupported {
                at_byte: 0,
                found: "a Perfetto trace without events of ftrace".to_owned(),
                todo: "record with the data source linux.ftrace and its event power/cpu_idle",
            });
        }
        if !tracepoints.contains(Tracepoints::CPU_IDLE) {
            return Err(ImportError::NoCpuIdle {
                at_byte: 0,
                recorded_count: survey.seen_count(),
                todo: "perfetto power/cpu_idle sched/sched_switch -o trace.pftrace",
            });
        }
        let clock = survey.clock.unwrap_or(TraceClock::Boottime);
        let monotonic_offset_ns = survey.bundles.monotonic_offset_ns;
        let mut doubts = Vec::new();
        let has_timers = tracepoints.contains(Tracepoints::HRTIMER_START)
            || tracepoints.contains(Tracepoints::HRTIMER_EXPIRE);
        if has_timers && clock == TraceClock::Boottime && monotonic_offset_ns.is_none() {
            doubts.push(
                "the trace has no snapshot of its clocks: how far timers' clock is from it is taken \
                 from their expiries"
                    .to_owned(),
            );
        }
        let info = TraceInfo {
            clock: Some(clock.name().to_owned()),
            tracepoints,
            doubts,
            file_byte_count: byte_count,
            ..survey.info
        };
        Ok(Self { source, info, monotonic_offset_ns })
    }

    /// What the trace says about itself.
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// Reads all events. `sink` gets them in slices, in the order of time over all CPUs. `progress`
    /// is told how many bytes of the file have been read.
    ///
    /// # Errors
    /// Fails only if the file cannot be read; what is damaged is told in the summary.
    pub fn read(
        self,
        progress: &dyn Fn(u64),
        sink: &mut dyn FnMut(&[Event]),
    ) -> Result<ReadSummary, ImportError> {
        let mut hasher = blake3::Hasher::new();
        let mut byte_count = 0;
        let mut hash = |block: &[u8]| {
            hasher.update(block);
            byte_count += block.len() as u64;
            progress(byte_count);
        };
        let mut walk = Walk::default();
        walk.bundles.monotonic_offset_ns = self.monotonic_offset_ns;
        let mut orderer = Orderer::default();
        let mut round = Rounds::default();
        let truncated = each_packet(&*self.source, &mut hash, &mut |packet, _| {
            if let Some(cpu) = walk.read(packet)
                && round.ends_before(cpu)
            {
                orderer.end_round(sink);
            }
            orderer.push(&walk.events, sink);
            walk.events.clear();
            true
        })?;
        orderer.finish(sink);

        let doubts = walk.doubts(&self.info);
        let undecodable_count = walk.bundles.undecodable_count;
        let record_count = walk.bundles.event_count;
        let (lost_event_counts, lost_event_count_without_cpu) = walk.lost();
        Ok(ReadSummary {
            event_count: orderer.event_count,
            record_count,
            lost_event_counts,
            lost_event_count_without_cpu,
            out_of_order_count: orderer.out_of_order_count,
            undecodable_count,
            truncated,
            doubts,
            source_blake3: hasher.finalize().to_hex().to_string(),
            first_at_ns: orderer.first_at_ns,
            last_at_ns: orderer.last_at_ns,
        })
    }
}

impl Recording for PerfettoTrace {
    fn format_name(&self) -> &'static str {
        FORMAT_NAME
    }

    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn read(
        self: Box<Self>,
        progress: &dyn Fn(u64),
        sink: &mut dyn FnMut(&[Event]),
    ) -> Result<ReadSummary, ImportError> {
        PerfettoTrace::read(*self, progress, sink)
    }
}

/// Tells the recorder's rounds over the CPUs by the CPUs' numbers.
#[derive(Default)]
struct Rounds {
    last_cpu: u16,
    wrap_count: u32,
}

impl Rounds {
    /// Whether a round ends before this CPU's bundle. Two of the recorder's are one of ours: when it
    /// cannot keep up, it leaves a CPU's last events to the next.
    fn ends_before(&mut self, cpu: u16) -> bool {
        let is_wrap = cpu < self.last_cpu;
        self.last_cpu = cpu;
        self.wrap_count += u32::from(is_wrap);
        is_wrap && self.wrap_count.is_multiple_of(2)
    }
}

/// From packets to events, and what the packets say besides.
#[derive(Default)]
struct Walk {
    bundles: BundleReader,
    /// Of the packets since the last clearing.
    events: Vec<Event>,
    info: TraceInfo,
    bundle_count: u64,
    clock: Option<TraceClock>,
    has_mixed_clocks: bool,
    suspend_count: u64,
    foreign_packet_count: u64,
    /// CPUs whose bundles told of losses, and how often.
    lost_counts: BTreeMap<u16, u64>,
    /// What the kernel counted for each CPU, at the trace's beginning and at its end.
    kernel_lost_counts: BTreeMap<u16, (u64, u64)>,
    dropped_packet_count: u64,
}

impl Walk {
    /// Reads a packet, and gives the CPU of its bundle, if it has one.
    fn read(&mut self, packet: Packet<'_>) -> Option<u16> {
        let Packet::Whole(bytes) = packet else {
            self.bundles.undecodable_count += 1;
            return None;
        };
        let (mut ftrace, mut is_foreign, mut has_dropped) = (None, false, false);
        let mut fields = Fields::of(bytes);
        for (number, value) in fields.by_ref() {
            match (number, value) {
                (packet::FTRACE_EVENTS, Value::Bytes(bytes)) => ftrace = Some(bytes),
                (packet::CLOCK_SNAPSHOT, Value::Bytes(bytes)) => self.read_snapshot(bytes),
                (packet::FTRACE_STATS, Value::Bytes(bytes)) => self.read_stats(bytes),
                (packet::SYSTEM_INFO, Value::Bytes(bytes)) => self.read_system(bytes),
                (packet::MACHINE_ID, Value::Number(id)) => is_foreign = id != 0,
                (packet::PREVIOUS_PACKET_DROPPED, Value::Number(is)) => has_dropped = is != 0,
                _ => {}
            }
        }
        self.bundles.undecodable_count += u64::from(!fields.rest().is_empty());
        let ftrace = ftrace?;
        if is_foreign {
            // A virtual machine's, whose CPUs are none of ours.
            self.foreign_packet_count += 1;
            return None;
        }
        self.bundle_count += 1;
        let start = self.events.len();
        let Some(head) = self.bundles.read(ftrace, &mut self.events) else {
            self.bundles.undecodable_count += 1;
            return None;
        };
        self.has_mixed_clocks |= self.clock.is_some_and(|clock| clock != head.clock);
        self.clock.get_or_insert(head.clock);
        let first_at_ns = self.events.get(start..)?.iter().map(|event| event.at_ns).min();
        let Some(at_ns) = first_at_ns else { return Some(head.cpu) };
        let lost = |cpu| Event { at_ns, cpu, kind: EventKind::Lost { event_count: 1 } };
        // Before anything was read nothing can be missed.
        let is_later = self.lost_counts.contains_key(&head.cpu);
        if has_dropped && is_later {
            // Packets of any CPU are missing.
            self.dropped_packet_count += 1;
            self.events.splice(start..start, self.lost_counts.keys().map(|&cpu| lost(cpu)));
        } else if head.has_lost_events && is_later {
            self.events.insert(start, lost(head.cpu));
        }
        *self.lost_counts.entry(head.cpu).or_default() +=
            u64::from(head.has_lost_events && is_later);
        Some(head.cpu)
    }

    fn read_snapshot(&mut self, bytes: &[u8]) {
        let (mut monotonic_ns, mut boottime_ns) = (None, None);
        let clocks = Fields::of(bytes).filter(|&(number, _)| number == clock::CLOCKS);
        for message in clocks.filter_map(|(_, value)| value.bytes()) {
            let number = |wanted| field(message, wanted).and_then(Value::number);
            let at_ns = number(clock::TIMESTAMP).and_then(|at_ns| i64::try_from(at_ns).ok());
            match number(clock::CLOCK_ID) {
                Some(clock::MONOTONIC) => monotonic_ns = at_ns,
                Some(clock::BOOTTIME) => boottime_ns = at_ns,
                _ => {}
            }
        }
        let (Some(monotonic_ns), Some(boottime_ns)) = (monotonic_ns, boottime_ns) else { return };
        let offset_ns = boottime_ns - monotonic_ns;
        if let Some(before_ns) = self.bundles.monotonic_offset_ns {
            self.suspend_count += u64::from(offset_ns - before_ns > SUSPEND_NS);
        }
        self.bundles.monotonic_offset_ns = Some(offset_ns);
    }

    fn read_stats(&mut self, bytes: &[u8]) {
        let is_end =
            field(bytes, stats::PHASE).and_then(Value::number) == Some(stats::END_OF_TRACE);
        let cpus = Fields::of(bytes).filter(|&(number, _)| number == stats::CPU_STATS);
        for message in cpus.filter_map(|(_, value)| value.bytes()) {
            let number = |wanted| field(message, wanted).and_then(Value::number);
            let Some(Ok(cpu)) = number(stats::CPU).map(u16::try_from) else { continue };
            let overrun = number(stats::OVERRUN).unwrap_or(0);
            let count = overrun.saturating_add(number(stats::DROPPED_EVENTS).unwrap_or(0));
            let counts = self.kernel_lost_counts.entry(cpu).or_default();
            if is_end { counts.1 = count } else { counts.0 = count }
        }
    }

    fn read_system(&mut self, bytes: &[u8]) {
        if let Some(utsname) = field(bytes, system::UTSNAME).and_then(Value::bytes) {
            self.info.kernel = field(utsname, system::RELEASE).and_then(Value::text);
            self.info.arch = field(utsname, system::MACHINE).and_then(Value::text);
        }
        let cpu_count = field(bytes, system::CPU_COUNT).and_then(Value::number);
        self.info.cpu_count = cpu_count.and_then(|count| u32::try_from(count).ok());
    }

    fn seen(&self) -> impl Iterator<Item = &'static named::NamedEvent> {
        let seen = self.bundles.is_seen.iter().enumerate().filter(|(_, is_seen)| **is_seen);
        seen.map(|(number, _)| named::event(number))
    }

    fn seen_count(&self) -> usize {
        self.seen().count()
    }

    fn tracepoints(&self) -> Tracepoints {
        self.seen().fold(Tracepoints::EMPTY, |all, event| all.union(event.provides))
    }

    fn doubts(&self, info: &TraceInfo) -> Vec<String> {
        let mut doubts = named::late_doubts(self.seen(), info.tracepoints);
        let mut say = |condition: bool, text: String| {
            if condition {
                doubts.push(text);
            }
        };
        say(
            self.has_mixed_clocks,
            "the trace has events of several clocks, which are taken as one".to_owned(),
        );
        say(
            self.suspend_count > 0,
            format!(
                "the machine was suspended {} times: gaps over a suspend contain it",
                self.suspend_count
            ),
        );
        say(
            self.dropped_packet_count > 0,
            format!(
                "packets of events were lost {} times: the trace's buffer was too small",
                self.dropped_packet_count
            ),
        );
        say(
            self.foreign_packet_count > 0,
            format!("{} packets of other machines were left out", self.foreign_packet_count),
        );
        doubts
    }

    /// Lost events by CPU, as the kernel counted them where it did, and those of no CPU.
    fn lost(self) -> (BTreeMap<u16, u64>, u64) {
        let mut counts = self.lost_counts;
        for (cpu, (start, end)) in self.kernel_lost_counts {
            let count = counts.entry(cpu).or_default();
            *count = end.saturating_sub(start).max(*count);
        }
        counts.retain(|_, count| *count > 0);
        (counts, self.dropped_packet_count)
    }
}
