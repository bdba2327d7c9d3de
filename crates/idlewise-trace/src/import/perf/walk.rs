//! Walks the records: turns the file's bytes into events, in the file's order.
//!
//! Records of known tracepoints become events, and so does a lost-events record. Of other records
//! only the length is read. Some are followed by more bytes than their header says: trace data of
//! other hardware (AUX) and event formats, which are skipped. Compressed records contain a stream
//! of records, and a record of that stream may begin in one and end in the next.

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

/// Set in `misc` of a LOST_SAMPLES record if a user's filter removed the samples.
const MISC_LOST_TO_FILTER: u16 = 1 << 15;

pub(super) const RECORD_HEADER_BYTE_COUNT: usize = 8;
/// A record's length has 16 bits.
pub(super) const MAX_RECORD_BYTE_COUNT: usize = u16::MAX as usize;

/// How much of a compressed stream is decompressed at a time. It is more than a record, so that at
/// least one record is completed each time.
const UNPACKED_BYTE_COUNT: usize = 1 << 18;

/// The binary logarithm of the largest window that perf's compression levels use.
const MAX_WINDOW_LOG: u32 = 27;

/// How many events are passed to the next thread at once.
pub(super) const BATCH_EVENT_COUNT: usize = 1 << 14;

/// Events in the file's order, and the ends of rounds among them.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    /// For each end of a round, how many of `events` come before it, in ascending order.
    pub(super) round_ends: Vec<usize>,
    /// How far into the file the walk has come.
    pub(super) byte_offset: u64,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.round_ends.clear();
    }

    /// Whether the batch is full. Rounds count too, since a file may contain nothing else.
    fn is_full(&self) -> bool {
        self.events.len() + self.round_ends.len() >= BATCH_EVENT_COUNT
    }
}

/// What the walk counted.
#[derive(Default)]
pub(super) struct WalkCounts {
    pub(super) record_count: u64,
    pub(super) undecodable_count: u64,
    /// Lost events that the kernel reported at the place of the loss.
    pub(super) lost_event_counts: BTreeMap<u16, u64>,
    pub(super) lost_event_count_without_cpu: u64,
    /// perf's own sums, written at the end of the recording. They include the losses in the
    /// kernel's records, and those that no later event of their CPU reported.
    pub(super) lost_event_sums: BTreeMap<u16, u64>,
}

/// Why the walk stopped, other than at the end of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The bytes cannot be read from this offset on.
    Broken { at: usize, reason: TruncationReason },
    /// The receiver of the batches has gone.
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
    /// How many bytes are still to be skipped.
    skip_byte_count: u64,
    pub(super) counts: WalkCounts,
    pub(super) batch: Batch,
    /// Takes a full batch and leaves an empty one. Returns false if the walk should stop.
    hand_over: F,
}

struct Unpacker {
    context: DCtx<'static>,
    /// Decompressed bytes not walked yet: the beginning of a record.
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

    /// Walks the complete records in `bytes`, which begin at offset `at_byte`, and returns their
    /// size. The caller passes the rest again, with the bytes that follow it.
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

    /// Hands over the current batch.
    pub(super) fn flush(&mut self) -> Result<(), Stop> {
        if (self.hand_over)(&mut self.batch) { Ok(()) } else { Err(Stop::NobodyListens) }
    }

    /// How many bytes are missing from the file after the walked ones: those still to be skipped.
    pub(super) fn missing_byte_count(&self) -> u64 {
        self.skip_byte_count
    }

    /// Whether a compressed stream ended in the middle of a record.
    pub(super) fn has_packed_rest(&self) -> bool {
        self.unpacker.as_ref().is_some_and(|unpacker| !unpacker.plain.is_empty())
    }

    /// Skips at most `byte_count` bytes, and returns how many it skipped.
    fn skip(&mut self, byte_count: usize) -> usize {
        let skipped = self.skip_byte_count.min(byte_count as u64);
        self.skip_byte_count -= skipped;
        skipped as usize
    }

    /// The record that begins at `at`, if it is complete.
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

    /// Decompresses the content of a compressed record, and walks its complete records.
    fn unpack(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        const BROKEN: Stop = Stop::Broken { at: 0, reason: TruncationReason::BrokenCompression };
        let body = record.body;
        let packed = match record.kind {
            COMPRESSED => body,
            // The length in front does not include the padding at the end.
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

    /// Returns `None` if the stream or a record in it is broken.
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
                // No room would mean a record that is never complete, but no record is that long.
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

    /// Like `walk`, for decompressed bytes; `None` if they are broken.
    fn walk_plain(&mut self, plain: &[u8]) -> Option<Result<usize, Stop>> {
        let mut at = 0;
        while let Some(record) = self.record_at(plain, at).ok()? {
            self.counts.record_count += 1;
            // Such records are never compressed, and we could not find their ends.
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
    /// Returns `None` if the library cannot create a context.
    fn new() -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).ok()?;
        let plain = Vec::with_capacity(UNPACKED_BYTE_COUNT + MAX_RECORD_BYTE_COUNT);
        Some(Self { context, plain })
    }
}
