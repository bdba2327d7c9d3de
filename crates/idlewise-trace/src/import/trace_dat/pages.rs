//! Turns the pages of all CPUs into events.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::clock::CycleScale;
use super::ids::{Ids, Known};
use super::pack::Unpacker;
use super::page::PageLayout;
use super::stream::{Damage, Stream};
use crate::event::{Event, EventKind};
use crate::import::merge::StreamReader;
use crate::import::{ImportError, TruncationReason};
use crate::tracepoint::Decoded;

/// What was counted while reading the pages.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) record_count: u64,
    pub(super) undecodable_count: u64,
    pub(super) lost_event_counts: BTreeMap<u16, u64>,
    pub(super) damage: Damage,
}

/// Turns pages into events.
pub(super) struct PageReader<'a> {
    layout: &'a PageLayout,
    ids: &'a Ids,
    cycle_scale: Option<CycleScale>,
    unpacker: Option<Unpacker>,
    /// If a file has several buffers: the buffer from which each CPU's events of a kind are taken.
    /// Otherwise, events that two instances recorded would count twice.
    owners: Option<FxHashMap<(u16, u16), u16>>,
    counts: Counts,
}

impl<'a> PageReader<'a> {
    /// With `has_several_buffers`, events that two buffers recorded count once.
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

    /// Returns the counts, including the damage of the streams that were read.
    pub(super) fn into_counts(mut self, streams: &[Stream<'_>]) -> Counts {
        for stream in streams {
            self.counts.damage.merge(stream.damage);
        }
        self.counts
    }

    /// Reads a page's events, and reports what is broken in it.
    pub(super) fn read_page(
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

    /// Converts a time of the ring buffer to nanoseconds.
    #[inline]
    fn at_ns(&self, at: u64) -> Option<i64> {
        let at_ns = match self.cycle_scale {
            None => Some(at),
            Some(scale) => scale.to_ns(at),
        };
        i64::try_from(at_ns?).ok()
    }
}

impl<'a> StreamReader for PageReader<'a> {
    type Stream = Stream<'a>;

    fn refill(
        &mut self,
        stream: &mut Stream<'a>,
        events: &mut Vec<Event>,
    ) -> Result<u64, ImportError> {
        let before = stream.read_byte_count();
        while events.is_empty() {
            let region = stream.region;
            let Some((page, at_byte)) = stream.next_page(self.unpacker.as_mut())? else { break };
            let hole = self.read_page(page, region.buffer, region.cpu, events);
            let byte_count = page.len() as u64;
            let had_hole = std::mem::take(&mut stream.has_hole);
            if had_hole && let Some(first) = events.first() {
                let kind = EventKind::Lost { event_count: 1 };
                events.insert(0, Event { kind, ..*first });
            }
            // A hole is reported before the next event, so it waits until there is one.
            stream.has_hole = hole.is_some() || had_hole && events.is_empty();
            if let Some(Hole { at, byte_count: lost }) = hole {
                let at_byte = match region.is_packed {
                    false => at_byte + at as u64,
                    true => at_byte,
                };
                let lost = lost.map_or(byte_count, |lost| lost as u64);
                stream.damage.add(at_byte, lost, TruncationReason::BrokenRecord);
            }
        }
        Ok(stream.read_byte_count() - before)
    }
}

/// Whether events with that number on that CPU are taken from this buffer. It must be the first
/// that has any.
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

/// A part of a page that is not a record.
pub(super) struct Hole {
    /// Its offset in the page.
    at: usize,
    /// Its length; `None` if the whole page is broken.
    byte_count: Option<usize>,
}
