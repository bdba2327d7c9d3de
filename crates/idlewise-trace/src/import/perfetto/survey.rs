//! The first pass through a trace: locates each CPU's events, and reads all other packets.
//!
//! A recorder may have several sources of events, each writing its own sequence of packets. Its
//! service writes out one sequence after another, from time to time or at the end:
//!
//! ```text
//!   file    A: cpu 0, 1, 0, 1, ... | B: cpu 0, 1, 0, ... | A: ... | B: ...
//!   times   0 s         ...  2.5 s | 0 s    ...    2.5 s | ... 5 s | ... 5 s
//! ```
//!
//! The events of one CPU in one sequence are in order of time, as they were in the kernel's buffer.
//! Nothing else need be in order. They form a stream, which is read from the parts of the file that
//! this pass notes. No events are held and no temporary file is needed, however long a sequence's
//! block is.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::bundle::{BundleReader, MonotonicOffsets, TraceClock, cpu_of};
use super::packets::{Compressed, OuterPacket, PacketHead, each_packet, packets};
use super::schema::{clock, packet, stats, system};
use super::wire::{Fields, Value, field};
use crate::event::Tracepoints;
use crate::import::source::ReadAt;
use crate::import::{ImportError, TraceInfo, Truncation};
use crate::tracepoint::{Purpose, Tracepoint};

/// How many events of each sequence are examined to find out which kinds it has.
const SURVEY_EVENT_COUNT: u64 = 1 << 19;

/// Adjacent packets are read together up to this size.
const CHUNK_BYTE_COUNT: u64 = 1 << 16;

/// If the two clocks are this much further apart than at the last snapshot, the machine was
/// suspended. Nothing else moves them apart, but some time passes between their readings.
const SUSPEND_NS: i64 = 10_000_000;

/// No machine is suspended more often than this.
const MAX_OFFSET_COUNT: usize = 1 << 16;

/// A recorder knows some hundreds of kinds of events.
const MAX_KIND_COUNT: usize = 1 << 12;

/// Adjacent packets in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) at_byte: u64,
    pub(super) byte_count: u64,
    /// Whether it is a single packet, without its head, that contains compressed ones.
    pub(super) is_packed: bool,
}

/// A chunk that contains packets of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) chunk: u32,
    /// Whether packets were lost between the stream's previous packets and this chunk.
    pub(super) is_after_loss: bool,
}

/// The events of one CPU in one sequence.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) sequence_id: u64,
    pub(super) cpu: u16,
    pub(super) parts: Vec<Part>,
    seen_loss_count: u32,
}

/// A writer of packets.
#[derive(Default)]
struct Sequence {
    /// How many of its events were examined.
    event_count: u64,
    has_bundles: bool,
    loss_count: u32,
    /// The chunk that contains its last packet, and the number of losses before that chunk.
    chunk: Option<u32>,
    loss_count_before_chunk: u32,
}

/// What the first walk found.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) chunks: Vec<Chunk>,
    pub(super) streams: Vec<Stream>,
    /// The streams' numbers by sequence and CPU.
    pub(super) index: FxHashMap<(u64, u16), u32>,
    /// The reader, which holds the events seen, the descriptions and the clocks.
    pub(super) bundles: BundleReader,
    pub(super) info: TraceInfo,
    pub(super) bundle_count: u64,
    /// The clocks of the events that were examined.
    pub(super) clocks: Vec<TraceClock>,
    pub(super) suspend_count: u64,
    pub(super) foreign_packet_count: u64,
    pub(super) lost_packet_count: u64,
    /// The kernel's count of lost events for each CPU, at the trace's beginning and end.
    pub(super) kernel_lost_counts: BTreeMap<u16, (u64, u64)>,
    pub(super) undecodable_count: u64,
    pub(super) truncated: Option<Truncation>,
    kinds: FxHashSet<u32>,
    sequences: FxHashMap<u64, Sequence>,
    /// Times on CLOCK_BOOTTIME, each with the offset to CLOCK_MONOTONIC.
    offsets: Vec<(i64, i64)>,
}

impl Survey {
    pub(super) fn read(source: &dyn ReadAt, purpose: Purpose) -> Result<Self, ImportError> {
        let mut survey = Self { bundles: BundleReader::new(purpose), ..Self::default() };
        let mut unpacked = Vec::new();
        survey.truncated = each_packet(source, &mut |outer| {
            let Some(compressed) = Compressed::of(outer.body) else {
                survey.place(&outer, false);
                survey.see(outer.body);
                return;
            };
            survey.place(&outer, true);
            unpacked.clear();
            let is_whole = compressed.unpack(&mut unpacked);
            survey.undecodable_count += u64::from(!is_whole);
            for body in packets(&unpacked) {
                survey.see(body);
            }
        })?;
        survey.bundles.monotonic_offsets = MonotonicOffsets::new(survey.offsets.clone());
        survey.bundles.puts_on_boottime = survey.clocks.len() > 1;
        Ok(survey)
    }

    /// Adds a packet to the last chunk, or to a new one.
    fn place(&mut self, outer: &OuterPacket<'_>, is_packed: bool) {
        let body_byte_count = outer.body.len() as u64;
        let head_byte_count = outer.head_byte_count as u64;
        if is_packed {
            let at_byte = outer.at_byte + head_byte_count;
            self.chunks.push(Chunk { at_byte, byte_count: body_byte_count, is_packed });
            return;
        }
        let byte_count = head_byte_count + body_byte_count;
        match self.chunks.last_mut() {
            Some(last) if !last.is_packed && last.byte_count + byte_count <= CHUNK_BYTE_COUNT => {
                last.byte_count += byte_count;
            }
            _ => self.chunks.push(Chunk { at_byte: outer.at_byte, byte_count, is_packed }),
        }
    }

    /// Examines a packet of the last chunk.
    fn see(&mut self, body: &[u8]) {
        let head = PacketHead::of(body);
        self.undecodable_count += u64::from(!head.is_whole);
        if head.is_foreign {
            // It comes from a virtual machine, whose CPUs are not ours.
            self.foreign_packet_count += u64::from(head.ftrace.is_some());
            return;
        }
        let chunk = self.chunks.len().saturating_sub(1) as u32;
        let sequence = match head.ftrace {
            Some(_) => self.sequences.entry(head.sequence_id).or_default(),
            None => {
                self.see_other(body);
                // Nothing is known about a sequence without events.
                let Some(sequence) = self.sequences.get_mut(&head.sequence_id) else { return };
                sequence
            }
        };
        if sequence.chunk != Some(chunk) {
            sequence.chunk = Some(chunk);
            sequence.loss_count_before_chunk = sequence.loss_count;
        }
        if head.is_after_loss {
            sequence.loss_count = sequence.loss_count.wrapping_add(1);
            // Before anything was read, nothing can be missing.
            self.lost_packet_count += u64::from(sequence.has_bundles);
        }
        let Some(bundle) = head.ftrace else { return };
        sequence.has_bundles = true;
        self.bundle_count += 1;
        let Some(cpu) = cpu_of(bundle) else {
            self.undecodable_count += 1;
            return;
        };
        let sequence_id = head.sequence_id;
        let number = *self.index.entry((sequence_id, cpu)).or_insert_with(|| {
            let parts = Vec::new();
            self.streams.push(Stream { sequence_id, cpu, parts, seen_loss_count: 0 });
            self.streams.len() as u32 - 1
        });
        if let Some(stream) = self.streams.get_mut(number as usize) {
            if stream.parts.last().is_none_or(|last| last.chunk != chunk) {
                let is_after_loss = !stream.parts.is_empty()
                    && stream.seen_loss_count != sequence.loss_count_before_chunk;
                stream.parts.push(Part { chunk, is_after_loss });
            }
            stream.seen_loss_count = sequence.loss_count;
        }
        let has_idle =
            self.bundles.seen().any(|event| event.provides.contains(Tracepoints::CPU_IDLE));
        if sequence.event_count < SURVEY_EVENT_COUNT || !has_idle {
            let before = self.bundles.event_count;
            let kinds = &mut self.kinds;
            let clock = self.bundles.survey(bundle, |kind| {
                if kinds.len() < MAX_KIND_COUNT {
                    kinds.insert(kind);
                }
            });
            if !self.clocks.contains(&clock) {
                self.clocks.push(clock);
            }
            sequence.event_count += self.bundles.event_count - before;
        }
    }

    /// Reads a packet that is not a bundle.
    fn see_other(&mut self, body: &[u8]) {
        for (number, value) in Fields::of(body) {
            match (number, value) {
                (packet::CLOCK_SNAPSHOT, Value::Bytes(bytes)) => self.read_snapshot(bytes),
                (packet::FTRACE_STATS, Value::Bytes(bytes)) => self.read_stats(bytes),
                (packet::SYSTEM_INFO, Value::Bytes(bytes)) => self.read_system(bytes),
                _ => {}
            }
        }
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
        let step_ns = match self.offsets.last() {
            Some(&(_, before_ns)) => offset_ns.saturating_sub(before_ns),
            None => i64::MAX,
        };
        if step_ns.unsigned_abs() > SUSPEND_NS as u64 && self.offsets.len() < MAX_OFFSET_COUNT {
            self.suspend_count += u64::from(!self.offsets.is_empty() && step_ns > 0);
            self.offsets.push((boottime_ns, offset_ns));
        }
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

    /// How many kinds of events were seen, including those that we do not need.
    pub(super) fn kind_count(&self) -> usize {
        self.kinds.len().max(self.bundles.seen().count())
    }

    /// The tracepoints that were recorded, as far as the trace shows them.
    pub(super) fn tracepoints(&self) -> Tracepoints {
        let of = |event: &Tracepoint| {
            let needs_address = Tracepoints::HRTIMER_START
                .union(Tracepoints::HRTIMER_CANCEL)
                .union(Tracepoints::WHEEL_START)
                .union(Tracepoints::WHEEL_CANCEL);
            let is_lost =
                self.bundles.has_numbered_addresses && needs_address.contains(event.provides);
            if is_lost { Tracepoints::EMPTY } else { event.provides }
        };
        self.bundles.seen().fold(Tracepoints::ONLY_SEEN, |all, event| all.union(of(event)))
    }
}
