//! Reads the streams of a trace, part by part.
//!
//! A chunk of the file has packets of many CPUs. It is held until every stream with a part in it
//! has read that part. That usually happens soon, because streams are read in order of time.
//! Otherwise the chunk that has been unused longest is dropped, and read again later.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::bundle::{BundleReader, cpu_of};
use super::packets::{Compressed, PacketHead, packets};
use super::survey::{Chunk, Part, Stream, Survey};
use crate::event::{Event, EventKind};
use crate::import::ImportError;
use crate::import::merge::StreamReader;
use crate::import::source::{ReadAt, bytes_at};

/// How many bytes of chunks are held for streams that have not read them. In addition, at least one
/// chunk is always held.
const MAX_HELD_BYTE_COUNT: usize = 1 << 25;

/// The most events with equal times that are compared to find events that two sequences share.
const MAX_SAME_TIME_COUNT: usize = 64;

/// How far the times of one moment may differ between two kernel buffers.
const TWIN_NS: i64 = 1_000;

/// A stream, and how far it has been read.
pub(super) struct StreamPlace<'a> {
    number: u32,
    stream: &'a Stream,
    next_part: usize,
    /// Whether any of its events was read. Before that, nothing can be missing.
    has_events: bool,
    /// Events were lost, and none has come since.
    is_after_loss: bool,
}

impl<'a> StreamPlace<'a> {
    pub(super) fn of_all(streams: &'a [Stream]) -> Vec<Self> {
        let place = |(number, stream)| Self {
            number,
            stream,
            next_part: 0,
            has_events: false,
            is_after_loss: false,
        };
        (0..).zip(streams).map(place).collect()
    }
}

/// Reads the streams that a survey found.
pub(super) struct Streams<'a> {
    source: &'a dyn ReadAt,
    chunks: &'a [Chunk],
    index: &'a FxHashMap<(u64, u16), u32>,
    pub(super) bundles: BundleReader,
    /// How often events were lost, by CPU.
    pub(super) lost_counts: BTreeMap<u16, u64>,
    held: FxHashMap<u32, Held>,
    held_byte_count: usize,
    use_count: u64,
    /// Used only for a trace with several sequences.
    twins: Option<Twins>,
}

/// A chunk in memory.
struct Held {
    bytes: Vec<u8>,
    /// The bundles, by stream and then in the chunk's order.
    bundles: Vec<Place>,
    /// How many streams still have to read it.
    reader_count: usize,
    used_at: u64,
}

/// Where a bundle is in a chunk.
struct Place {
    stream: u32,
    start: usize,
    end: usize,
    /// How many losses of packets its sequence had between the chunk's beginning and this bundle.
    loss_count: u32,
}

impl<'a> Streams<'a> {
    pub(super) fn new(source: &'a dyn ReadAt, survey: &'a Survey) -> Self {
        let mut bundles = survey.bundles.clone();
        bundles.start();
        let mut sequence_ids: Vec<u64> =
            survey.streams.iter().map(|stream| stream.sequence_id).collect();
        sequence_ids.sort_unstable();
        sequence_ids.dedup();
        Self {
            source,
            chunks: &survey.chunks,
            index: &survey.index,
            bundles,
            lost_counts: BTreeMap::new(),
            held: FxHashMap::default(),
            held_byte_count: 0,
            use_count: 0,
            twins: (sequence_ids.len() > 1).then(Twins::default),
        }
    }

    /// Takes a chunk out of those that are held, or reads it. Also returns how many bytes were
    /// read.
    fn take(&mut self, number: u32) -> Result<(Held, u64), ImportError> {
        self.use_count += 1;
        if let Some(mut held) = self.held.remove(&number) {
            self.held_byte_count -= held.bytes.len();
            held.used_at = self.use_count;
            return Ok((held, 0));
        }
        let Some(&Chunk { at_byte, byte_count, is_packed }) = self.chunks.get(number as usize)
        else {
            let (bytes, bundles) = Default::default();
            return Ok((Held { bytes, bundles, reader_count: 0, used_at: 0 }, 0));
        };
        let mut bytes = bytes_at(self.source, at_byte, byte_count)?;
        if is_packed {
            let mut unpacked = Vec::new();
            if let Some(compressed) = Compressed::of(&bytes) {
                compressed.unpack(&mut unpacked);
            }
            bytes = unpacked;
        }
        let bundles = self.find_bundles(&bytes);
        let reader_count = bundles.chunk_by(|a, b| a.stream == b.stream).count();
        Ok((Held { bytes, bundles, reader_count, used_at: self.use_count }, byte_count))
    }

    fn find_bundles(&self, bytes: &[u8]) -> Vec<Place> {
        let mut places = Vec::new();
        let mut loss_counts: FxHashMap<u64, u32> = FxHashMap::default();
        for body in packets(bytes) {
            let head = PacketHead::of(body);
            if head.is_foreign {
                continue;
            }
            if head.is_after_loss {
                *loss_counts.entry(head.sequence_id).or_default() += 1;
            }
            let Some(bundle) = head.ftrace else { continue };
            let Some(cpu) = cpu_of(bundle) else { continue };
            let Some(&stream) = self.index.get(&(head.sequence_id, cpu)) else { continue };
            let start = bundle.as_ptr().addr() - bytes.as_ptr().addr();
            let loss_count = loss_counts.get(&head.sequence_id).copied().unwrap_or(0);
            places.push(Place { stream, start, end: start + bundle.len(), loss_count });
        }
        places.sort_by_key(|place| place.stream);
        places
    }

    /// Puts a chunk back for the streams that still have to read it.
    fn put_back(&mut self, number: u32, mut chunk: Held) {
        chunk.reader_count = chunk.reader_count.saturating_sub(1);
        if chunk.reader_count == 0 {
            return;
        }
        self.held_byte_count += chunk.bytes.len();
        self.held.insert(number, chunk);
        while self.held_byte_count > MAX_HELD_BYTE_COUNT && self.held.len() > 1 {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.used_at);
            let Some(oldest) = oldest.map(|(&number, _)| number) else { return };
            if let Some(held) = self.held.remove(&oldest) {
                self.held_byte_count -= held.bytes.len();
            }
        }
    }

    /// Reads a stream's events in a chunk.
    fn read_part(&mut self, chunk: &Held, place: &mut StreamPlace<'a>, events: &mut Vec<Event>) {
        let cpu = place.stream.cpu;
        let start = chunk.bundles.partition_point(|bundle| bundle.stream < place.number);
        let own = chunk.bundles.get(start..).unwrap_or_default();
        let mut loss_count = 0;
        for bundle in own.iter().take_while(|bundle| bundle.stream == place.number) {
            let bytes = chunk.bytes.get(bundle.start..bundle.end).unwrap_or_default();
            let start = events.len();
            let has_lost_events = self.bundles.read(bytes, cpu, events);
            place.is_after_loss |= has_lost_events || bundle.loss_count != loss_count;
            loss_count = bundle.loss_count;
            if has_lost_events && place.has_events {
                *self.lost_counts.entry(cpu).or_default() += 1;
            }
            // A loss is reported before the next event, so it waits until there is one.
            let Some(&first) = events.get(start) else { continue };
            let is_after_loss = std::mem::take(&mut place.is_after_loss);
            if is_after_loss && place.has_events {
                let kind = EventKind::Lost { event_count: 1 };
                events.insert(start, Event { at_ns: first.at_ns, cpu, kind });
            }
            place.has_events = true;
        }
    }
}

impl<'a> StreamReader for Streams<'a> {
    type Stream = StreamPlace<'a>;

    fn refill(
        &mut self,
        place: &mut StreamPlace<'a>,
        events: &mut Vec<Event>,
    ) -> Result<u64, ImportError> {
        let mut read_byte_count = 0;
        while events.is_empty() {
            let Some(&Part { chunk, is_after_loss }) = place.stream.parts.get(place.next_part)
            else {
                break;
            };
            place.next_part += 1;
            place.is_after_loss |= is_after_loss;
            let (held, byte_count) = self.take(chunk)?;
            read_byte_count += byte_count;
            self.read_part(&held, place, events);
            self.put_back(chunk, held);
        }
        Ok(read_byte_count)
    }

    fn is_choosy(&self) -> bool {
        self.twins.is_some()
    }

    #[inline]
    fn wants(&mut self, place: &StreamPlace<'a>, event: &Event) -> bool {
        match &mut self.twins {
            None => true,
            Some(twins) => twins.is_first(place.stream, event),
        }
    }

    fn end(&mut self, place: &StreamPlace<'a>) {
        if let Some(twins) = &mut self.twins {
            let now_ns = twins.now_ns;
            twins.ended_at_ns.insert((place.stream.sequence_id, place.stream.cpu), now_ns);
        }
    }
}

/// Finds events that two sequences recorded at the same moment.
///
/// Two sources may read the same kernel buffer, and then have events with exactly equal times. Or
/// each has its own buffer, and the times of one moment differ slightly. Therefore events that
/// change the state of a CPU or a timer are taken from the sequence that first had one, until it
/// ends. Other events do no harm if they come twice, so only exact duplicates are dropped.
#[derive(Default)]
struct Twins {
    /// The sequence from which a CPU's events of a kind are taken.
    owners: FxHashMap<(u8, u16), u64>,
    /// The time of the last event of each sequence and CPU that has ended.
    ended_at_ns: FxHashMap<(u64, u16), i64>,
    now_ns: i64,
    /// The other events with the current time.
    same_time: Vec<(u64, Event)>,
}

impl Twins {
    fn is_first(&mut self, stream: &Stream, event: &Event) -> bool {
        let &Stream { sequence_id, cpu, .. } = stream;
        self.now_ns = event.at_ns;
        let Some(kind) = kind_with_owner(event.kind) else {
            if self.same_time.last().is_some_and(|(_, last)| last.at_ns != event.at_ns) {
                self.same_time.clear();
            }
            let is_twin =
                |(other_id, other): &(u64, Event)| *other_id != sequence_id && other == event;
            if self.same_time.iter().any(is_twin) {
                return false;
            }
            if self.same_time.len() < MAX_SAME_TIME_COUNT {
                self.same_time.push((sequence_id, *event));
            }
            return true;
        };
        let owner = self.owners.entry((kind, cpu)).or_insert(sequence_id);
        if *owner != sequence_id
            && let Some(&ended_at_ns) = self.ended_at_ns.get(&(*owner, cpu))
            && event.at_ns.saturating_sub(ended_at_ns) > TWIN_NS
        {
            *owner = sequence_id;
        }
        *owner == sequence_id
    }
}

/// A number for each kind of event that comes from a single tracepoint and changes state.
fn kind_with_owner(kind: EventKind) -> Option<u8> {
    Some(match kind {
        EventKind::IdleEntry { .. } | EventKind::IdleExit => 0,
        EventKind::SwitchToTask | EventKind::SwitchToIdle | EventKind::Switch { .. } => 1,
        EventKind::HrtimerStart { .. } => 2,
        EventKind::HrtimerCancel { .. } => 3,
        EventKind::HrtimerExpire { .. } => 4,
        EventKind::WheelStart { .. } => 5,
        EventKind::WheelCancel { .. } => 6,
        EventKind::WheelExpire { .. } => 7,
        EventKind::Waking { .. } => 8,
        EventKind::Fork { .. } => 9,
        _ => return None,
    })
}
