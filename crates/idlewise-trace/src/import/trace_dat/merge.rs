//! The streams of all CPUs, put together in the order of time.
//!
//! Each CPU's records are in order already, so at any time only the next page of each is needed.
//! The stream with the earliest event gives all that it has up to the next stream's first:
//!
//! ```text
//!   cpu 0   10  20  30         90        the page after this one is read when 90 is given
//!   cpu 1                50  60
//!           └───────┘    └────┘ └─┘
//!            1st run      2nd    3rd
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;

use super::Batch;
use super::clock::CycleScale;
use super::ids::{Ids, Known};
use super::pack::Unpacker;
use super::page::PageLayout;
use super::stream::{Damage, Stream};
use crate::event::{Event, EventKind};
use crate::import::{ImportError, TruncationReason};
use crate::tracepoint::Decoded;

/// How many events are handed over at once.
const BATCH_EVENT_COUNT: usize = 1 << 12;

/// What reading the pages came to.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) event_count: u64,
    pub(super) record_count: u64,
    pub(super) undecodable_count: u64,
    pub(super) out_of_order_count: u64,
    pub(super) lost_event_counts: BTreeMap<u16, u64>,
    pub(super) first_at_ns: Option<i64>,
    pub(super) last_at_ns: Option<i64>,
    pub(super) damage: Damage,
}

/// Turns pages into events.
pub(super) struct PageReader<'a> {
    layout: &'a PageLayout,
    ids: &'a Ids,
    cycle_scale: Option<CycleScale>,
    unpacker: Option<Unpacker>,
    /// Where a file has several buffers, which of them a CPU's events of one kind are taken from:
    /// what two instances recorded would count twice.
    owners: Option<FxHashMap<(u16, u16), u16>>,
    counts: Counts,
}

/// A stream with the events of its page that were not given out yet.
struct Lane<'a> {
    stream: Stream<'a>,
    events: Vec<Event>,
    /// How many of `events` were given out.
    given: usize,
}

/// Gives the events of all streams, in order within the bounds of their clock, to `hand_over`,
/// which puts an empty batch in the place of a full one and says whether to go on.
pub(super) fn merge(
    streams: Vec<Stream<'_>>,
    mut reader: PageReader<'_>,
    hand_over: impl FnMut(&mut Batch) -> bool,
) -> Result<Counts, ImportError> {
    let mut output = Output { hand_over, batch: Batch::default() };
    let mut lanes: Vec<Lane<'_>> =
        streams.into_iter().map(|stream| Lane { stream, events: Vec::new(), given: 0 }).collect();
    let mut next = BinaryHeap::new();
    for (index, lane) in lanes.iter_mut().enumerate() {
        output.batch.byte_count += reader.refill(lane)?;
        next.extend(lane.events.first().map(|event| Reverse((event.at_ns, index))));
    }
    while let Some(Reverse((_, index))) = next.pop() {
        let bound = next.peek().map(|&Reverse(first)| first);
        let Some(lane) = lanes.get_mut(index) else { continue };
        loop {
            let rest = lane.events.get(lane.given..).unwrap_or_default();
            // A stream's own events go on in its own order, even if its clock steps back.
            let run = match bound {
                None => rest.len(),
                Some(bound) => {
                    rest.iter().position(|event| (event.at_ns, index) > bound).unwrap_or(rest.len())
                }
            };
            if !output.push(rest.get(..run).unwrap_or_default(), &mut reader.counts) {
                return Ok(reader.counts);
            }
            lane.given += run;
            if run < rest.len() {
                break;
            }
            output.batch.byte_count += reader.refill(lane)?;
            if lane.events.is_empty() {
                break;
            }
        }
        next.extend(lane.events.get(lane.given).map(|event| Reverse((event.at_ns, index))));
    }
    output.flush();
    for lane in &lanes {
        reader.counts.damage.merge(lane.stream.damage);
    }
    Ok(reader.counts)
}

impl<'a> PageReader<'a> {
    /// `has_several_buffers`: what two of them recorded counts once.
    pub(super) fn new(
        layout: &'a PageLayout,
        ids: &'a Ids,
        cycle_scale: Option<CycleScale>,
        unpacker: Option<Unpacker>,
        has_several_buffers: bool,
    ) -> Self {
        let owners = has_several_buffers.then(FxHashMap::default);
        Self { layout, ids, cycle_scale, unpacker, owners, counts: Counts::default() }
    }

    /// Reads pages up to one with events; none are left if there is no such page. Returns how many
    /// bytes it read.
    fn refill(&mut self, lane: &mut Lane<'_>) -> Result<u64, ImportError> {
        lane.events.clear();
        lane.given = 0;
        let before = lane.stream.read_byte_count();
        while lane.events.is_empty() {
            let region = lane.stream.region;
            let Some((page, at_byte)) = lane.stream.next_page(self.unpacker.as_mut())? else {
                break;
            };
            let hole = self.read_page(page, region.buffer, region.cpu, &mut lane.events);
            let byte_count = page.len() as u64;
            let had_hole = std::mem::take(&mut lane.stream.has_hole);
            if had_hole && let Some(first) = lane.events.first() {
                let kind = EventKind::Lost { event_count: 1 };
                lane.events.insert(0, Event { kind, ..*first });
            }
            // A hole waits for an event to come behind it.
            lane.stream.has_hole = hole.is_some() || had_hole && lane.events.is_empty();
            if let Some(Hole { at, byte_count: lost }) = hole {
                let at_byte = match region.is_packed {
                    false => at_byte + at as u64,
                    true => at_byte,
                };
                let lost = lost.map_or(byte_count, |lost| lost as u64);
                lane.stream.damage.add(at_byte, lost, TruncationReason::BrokenRecord);
            }
        }
        Ok(lane.stream.read_byte_count() - before)
    }

    /// Reads a page's events, and tells what of it is broken.
    fn read_page(
        &mut self,
        page: &[u8],
        buffer: u16,
        cpu: u16,
        events: &mut Vec<Event>,
    ) -> Option<Hole> {
        let Some(page) = self.layout.page(page) else {
            return Some(Hole { at: 0, byte_count: None });
        };
        let mut records = page.records;
        if let Some(event_count) = page.lost_event_count {
            let count = self.counts.lost_event_counts.entry(cpu).or_default();
            *count = count.saturating_add(event_count);
            let kind = EventKind::Lost { event_count };
            let at_ns = self.at_ns(records.at()).unwrap_or(i64::MAX);
            events.push(Event { at_ns, cpu, kind });
        }
        while let Some(record) = records.next_record() {
            let (at, content) = match record {
                Ok(record) => record,
                Err(broken) => {
                    let at = self.layout.data_at() + broken.at;
                    return Some(Hole { at, byte_count: Some(broken.byte_count) });
                }
            };
            self.counts.record_count += 1;
            match self.ids.event(content) {
                Known::Needed(number, decoder) => {
                    if !owns(&mut self.owners, buffer, number, cpu) {
                        continue;
                    }
                    match (decoder.decode(content, cpu), self.at_ns(at)) {
                        (Decoded::Event { cpu, kind }, Some(at_ns)) => {
                            events.push(Event { at_ns, cpu, kind });
                        }
                        (Decoded::Nothing, _) => {}
                        _ => self.counts.undecodable_count += 1,
                    }
                }
                Known::Unneeded => {}
                Known::Not => self.counts.undecodable_count += 1,
            }
        }
        None
    }

    /// A time of the ring buffer in nanoseconds.
    #[inline]
    fn at_ns(&self, at: u64) -> Option<i64> {
        let at_ns = match self.cycle_scale {
            None => Some(at),
            Some(scale) => scale.to_ns(at),
        };
        i64::try_from(at_ns?).ok()
    }
}

/// Whether events of that number on that CPU are taken from this buffer: from the first that has
/// any.
#[inline]
fn owns(
    owners: &mut Option<FxHashMap<(u16, u16), u16>>,
    buffer: u16,
    number: u16,
    cpu: u16,
) -> bool {
    match owners {
        None => true,
        Some(owners) => *owners.entry((number, cpu)).or_insert(buffer) == buffer,
    }
}

/// A part of a page that is no record.
struct Hole {
    /// Where it begins in the page.
    at: usize,
    /// How long it is; `None` if the whole page is broken.
    byte_count: Option<usize>,
}

/// Collects events in batches, and keeps them in order.
struct Output<F> {
    hand_over: F,
    batch: Batch,
}

impl<F: FnMut(&mut Batch) -> bool> Output<F> {
    /// Takes events; one that is older than the last gets its time. False if nobody listens.
    fn push(&mut self, events: &[Event], counts: &mut Counts) -> bool {
        for event in events {
            let at_ns = counts.last_at_ns.map_or(event.at_ns, |last| last.max(event.at_ns));
            counts.out_of_order_count += u64::from(at_ns != event.at_ns);
            counts.first_at_ns.get_or_insert(at_ns);
            counts.last_at_ns = Some(at_ns);
            counts.event_count += 1;
            self.batch.events.push(Event { at_ns, ..*event });
            if self.batch.events.len() >= BATCH_EVENT_COUNT && !self.flush() {
                return false;
            }
        }
        true
    }

    /// Hands over what there is; false if nobody listens.
    fn flush(&mut self) -> bool {
        let byte_count = self.batch.byte_count;
        let goes_on = (self.hand_over)(&mut self.batch);
        self.batch.byte_count = byte_count;
        goes_on
    }
}
