//! Walking the records: from the bytes of the file to events, in the file's order.
//!
//! Records of known tracepoints become events; a lost-events record becomes one; of the others only
//! the length is looked at. Some stand for more bytes than their header says: trace data of other
//! hardware (AUX) and event formats follow their record, and are jumped over; compressed records
//! hold a stream of records, which may begin in one and end in the next.

use std::collections::BTreeMap;

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use super::sample::{SampleReader, Trailer};
use crate::byte_order::ByteOrder;
use crate::event::{Event, EventKind};
use crate::import::TruncationReason;
use crate::tracepoint::Decoded;

// Record types: those below 64 are the kernel's (include/uapi/linux/perf_event.h), the others
// perf's own (tools/lib/perf/include/perf/event.h).
const LOST: u32 = 2;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
pub(super) const FIRST_USER_RECORD: u32 = 64;
pub(super) const HEADER_ATTR: u32 = 64;
pub(super) const HEADER_TRACING_DATA: u32 = 66;
pub(super) const FINISHED_ROUND: u32 = 68;
pub(super) const AUXTRACE: u32 = 71;
pub(super) const HEADER_FEATURE: u32 = 80;
pub(super) const COMPRESSED: u32 = 81;
pub(super) const COMPRESSED2: u32 = 83;

/// Set in `misc` of a LOST_SAMPLES record whose samples a filter of the user's left out.
const MISC_LOST_TO_FILTER: u16 = 1 << 15;

pub(super) const RECORD_HEADER_BYTE_COUNT: usize = 8;
/// A record's length has sixteen bits.
pub(super) const MAX_RECORD_BYTE_COUNT: usize = u16::MAX as usize;

/// How much of a compressed stream is unpacked at a time; more than a record, so that each time at
/// least one becomes whole.
const UNPACKED_BYTE_COUNT: usize = 1 << 18;

/// The largest window that perf's compression levels ask for is two to the power of this.
const MAX_WINDOW_LOG: u32 = 27;

/// How many events go to the next thread at once.
pub(super) const BATCH_EVENT_COUNT: usize = 1 << 14;

/// Events in the file's order, with the rounds that ended among them.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    /// After how many of `events` a round ended, in rising order.
    pub(super) round_ends: Vec<usize>,
    /// How far into the file the walk has come.
    pub(super) byte_offset: u64,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.round_ends.clear();
    }

    /// Whether there is room for more; rounds count too, since a file may have nothing else.
    fn is_full(&self) -> bool {
        self.events.len() + self.round_ends.len() >= BATCH_EVENT_COUNT
    }
}

/// What the walk has met.
#[derive(Default)]
pub(super) struct WalkCounts {
    pub(super) record_count: u64,
    pub(super) undecodable_count: u64,
    /// Lost events that the kernel told of where it lost them.
    pub(super) lost_event_counts: BTreeMap<u16, u64>,
    pub(super) lost_event_count_without_cpu: u64,
    /// perf's own sums, written at the recording's end. They count the same losses as the kernel's
    /// records do, and those that no later event of their CPU told of.
    pub(super) lost_event_sums: BTreeMap<u16, u64>,
}

/// Why the walk stopped, other than at the end of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// From this place of the given bytes on there is nothing that can be read.
    Broken { at: usize, reason: TruncationReason },
    /// Nobody takes the batches any more.
    NobodyListens,
}

/// One record, with its header taken apart.
struct Record<'a> {
    kind: u32,
    misc: u16,
    body: &'a [u8],
}

impl Record<'_> {
    fn byte_count(&self) -> usize {
        RECORD_HEADER_BYTE_COUNT + self.body.len()
    }
}

/// Walks the records of one file.
pub(super) struct Walk<'a, F> {
    order: ByteOrder,
    samples: &'a SampleReader,
    unpacker: Option<Unpacker>,
    /// How many bytes are still to jump over.
    skip_byte_count: u64,
    pub(super) counts: WalkCounts,
    pub(super) batch: Batch,
    /// Takes a full batch and leaves an empty one; false if there is no point in going on.
    hand_over: F,
}

struct Unpacker {
    context: DCtx<'static>,
    /// Unpacked bytes that are not walked yet: the beginning of a record.
    plain: Vec<u8>,
}

impl<'a, F: FnMut(&mut Batch) -> bool> Walk<'a, F> {
    pub(super) fn new(order: ByteOrder, samples: &'a SampleReader, hand_over: F) -> Self {
        Self {
            order,
            samples,
            unpacker: None,
            skip_byte_count: 0,
            counts: WalkCounts::default(),
            batch: Batch::default(),
            hand_over,
        }
    }

    /// Walks the whole records of `bytes`, which lie at `at_byte` of the file, and returns how
    /// many bytes they have. Call again with the rest and what follows it.
    pub(super) fn walk(&mut self, bytes: &[u8], at_byte: u64) -> Result<usize, Stop> {
        let mut at = self.skip(bytes.len());
        while self.skip_byte_count == 0 {
            let Some(record) = self.record_at(bytes, at)? else { break };
            self.counts.record_count += 1;
            if matches!(record.kind, COMPRESSED | COMPRESSED2) {
                self.batch.byte_offset = at_byte + at as u64;
                self.unpack(&record).map_err(|stop| match stop {
                    Stop::Broken { reason, .. } => Stop::Broken { at, reason },
                    Stop::NobodyListens => stop,
                })?;
            } else {
                self.read_record(&record);
            }
            if self.batch.is_full() {
                self.batch.byte_offset = at_byte + at as u64;
                self.flush()?;
            }
            at += record.byte_count();
            at += self.skip(bytes.len() - at);
        }
        Ok(at)
    }

    /// Hands over what is in the batch.
    pub(super) fn flush(&mut self) -> Result<(), Stop> {
        if (self.hand_over)(&mut self.batch) { Ok(()) } else { Err(Stop::NobodyListens) }
    }

    /// How many bytes are missing behind the walked ones: those to jump over, in the file.
    pub(super) fn missing_byte_count(&self) -> u64 {
        self.skip_byte_count
    }

    /// Whether a compressed stream ended in the middle of a record.
    pub(super) fn has_packed_rest(&self) -> bool {
        self.unpacker.as_ref().is_some_and(|unpacker| !unpacker.plain.is_empty())
    }

    /// Jumps over at most `byte_count` bytes, and returns over how many.
    fn skip(&mut self, byte_count: usize) -> usize {
        let skipped = self.skip_byte_count.min(byte_count as u64);
        self.skip_byte_count -= skipped;
        skipped as usize
    }

    /// The record that begins at `at`, if it is whole.
    #[inline]
    fn record_at<'b>(&self, bytes: &'b [u8], at: usize) -> Result<Option<Record<'b>>, Stop> {
        let Some(rest) = bytes.get(at..) else { return Ok(None) };
        let (Some(kind), Some(misc), Some(byte_count)) =
            (self.order.u32_at(rest, 0), self.order.u16_at(rest, 4), self.order.u16_at(rest, 6))
        else {
            return Ok(None);
        };
        if usize::from(byte_count) < RECORD_HEADER_BYTE_COUNT {
            return Err(Stop::Broken { at, reason: TruncationReason::BrokenRecord });
        }
        let body = rest.get(RECORD_HEADER_BYTE_COUNT..byte_count.into());
        Ok(body.map(|body| Record { kind, misc, body }))
    }

    #[inline]
    fn read_record(&mut self, record: &Record<'_>) {
        let &Record { kind, misc, body } = record;
        match kind {
            SAMPLE => self.read_sample(body),
            FINISHED_ROUND => self.batch.round_ends.push(self.batch.events.len()),
            LOST => self.read_lost(self.order.u64_at(body, 8), body),
            LOST_SAMPLES if misc & MISC_LOST_TO_FILTER == 0 => {
                self.read_lost(self.order.u64_at(body, 0), body);
            }
            AUXTRACE => self.skip_byte_count = self.order.u64_at(body, 0).unwrap_or(0),
            HEADER_TRACING_DATA => {
                self.skip_byte_count = self.order.u32_at(body, 0).unwrap_or(0).into();
            }
            _ => {}
        }
    }

    #[inline]
    fn read_sample(&mut self, body: &[u8]) {
        let Some(sample) = self.samples.sample(body) else { return };
        let decoded = sample.ok().and_then(|sample| {
            let cpu = u16::try_from(sample.cpu).ok()?;
            let at_ns = i64::try_from(sample.at_ns).ok()?;
            match sample.decoder.decode(sample.raw, cpu) {
                Decoded::Event { cpu, kind } => Some(Some(Event { at_ns, cpu, kind })),
                Decoded::Nothing => Some(None),
                Decoded::Malformed => None,
            }
        });
        match decoded {
            Some(event) => self.batch.events.extend(event),
            None => self.counts.undecodable_count += 1,
        }
    }

    fn read_lost(&mut self, event_count: Option<u64>, body: &[u8]) {
        let Some(event_count) = event_count else {
            self.counts.undecodable_count += 1;
            return;
        };
        let Trailer { at_ns, cpu } = self.samples.trailer(body);
        let Some(cpu) = cpu.and_then(|cpu| u16::try_from(cpu).ok()) else {
            let count = &mut self.counts.lost_event_count_without_cpu;
            *count = count.saturating_add(event_count);
            return;
        };
        let at_ns = at_ns.and_then(|at_ns| i64::try_from(at_ns).ok()).filter(|&at_ns| at_ns > 0);
        let counts = match at_ns {
            Some(_) => &mut self.counts.lost_event_counts,
            None => &mut self.counts.lost_event_sums,
        };
        let count = counts.entry(cpu).or_default();
        *count = count.saturating_add(event_count);
        let kind = EventKind::Lost { event_count };
        self.batch.events.extend(at_ns.map(|at_ns| Event { at_ns, cpu, kind }));
    }

    /// Unpacks what a compressed record holds and walks it as far as it is whole.
    fn unpack(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        const BROKEN: Stop = Stop::Broken { at: 0, reason: TruncationReason::BrokenCompression };
        let body = record.body;
        let packed = match record.kind {
            COMPRESSED => body,
            // The length in front leaves out the padding behind.
            _ => {
                let byte_count = self.order.u64_at(body, 0).ok_or(BROKEN)?;
                let byte_count = usize::try_from(byte_count).map_err(|_| BROKEN)?;
                body.get(8..).and_then(|rest| rest.get(..byte_count)).ok_or(BROKEN)?
            }
        };
        let mut unpacker = match self.unpacker.take() {
            Some(unpacker) => unpacker,
            None => Unpacker::new().ok_or(BROKEN)?,
        };
        let result = self.unpack_with(&mut unpacker, packed);
        self.unpacker = Some(unpacker);
        result.ok_or(BROKEN)?
    }

    /// `None` if the stream or a record in it is broken.
    fn unpack_with(&mut self, unpacker: &mut Unpacker, packed: &[u8]) -> Option<Result<(), Stop>> {
        let mut input = InBuffer::around(packed);
        loop {
            let Unpacker { context, plain } = unpacker;
            let kept = plain.len();
            let unread = input.pos();
            let mut output = OutBuffer::around_pos(plain, kept);
            context.decompress_stream(&mut output, &mut input).ok()?;
            let has_room = plain.len() < plain.capacity();
            if plain.len() == kept && input.pos() == unread {
                // No room would mean a record that never becomes whole; there is none so long.
                return (input.pos() == packed.len()).then_some(Ok(()));
            }
            match self.walk_plain(plain)? {
                Ok(walked) => drop(plain.drain(..walked)),
                Err(stop) => return Some(Err(stop)),
            }
            if input.pos() == packed.len() && has_room {
                return Some(Ok(()));
            }
        }
    }

    /// As `walk`, for unpacked bytes; `None` if they are broken.
    fn walk_plain(&mut self, plain: &[u8]) -> Option<Result<usize, Stop>> {
        let mut at = 0;
        while let Some(record) = self.record_at(plain, at).ok()? {
            self.counts.record_count += 1;
            // Such records never go through the compressor, and we could not find their ends.
            if matches!(record.kind, COMPRESSED | COMPRESSED2 | AUXTRACE | HEADER_TRACING_DATA) {
                return None;
            }
            self.read_record(&record);
            if self.batch.is_full()
                && let Err(stop) = self.flush()
            {
                return Some(Err(stop));
            }
            at += record.byte_count();
        }
        Some(Ok(at))
    }
}

impl Unpacker {
    /// `None` if the library gives no context.
    fn new() -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).ok()?;
        let plain = Vec::with_capacity(UNPACKED_BYTE_COUNT + MAX_RECORD_BYTE_COUNT);
        Some(Self { context, plain })
    }
}
