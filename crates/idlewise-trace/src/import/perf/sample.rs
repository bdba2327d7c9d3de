//! Samples: which event a sample belongs to, and where its parts are.
//!
//! The parts of a sample come in the order of include/uapi/linux/perf_event.h. Each is present only
//! if its bit is set in the event's `sample_type`. All parts before the raw data have fixed sizes,
//! except the counter's value and the call chain, so most layouts are known before the first
//! sample. Records that are not samples have some of the same parts at their end, in a different
//! order.

use crate::byte_order::ByteOrder;
use crate::import::ImportError;
use crate::tracepoint::Decoder;

pub(super) const SAMPLE_IP: u64 = 1;
pub(super) const SAMPLE_TID: u64 = 1 << 1;
pub(super) const SAMPLE_TIME: u64 = 1 << 2;
pub(super) const SAMPLE_ADDR: u64 = 1 << 3;
pub(super) const SAMPLE_READ: u64 = 1 << 4;
pub(super) const SAMPLE_CALLCHAIN: u64 = 1 << 5;
pub(super) const SAMPLE_ID: u64 = 1 << 6;
pub(super) const SAMPLE_CPU: u64 = 1 << 7;
pub(super) const SAMPLE_PERIOD: u64 = 1 << 8;
pub(super) const SAMPLE_STREAM_ID: u64 = 1 << 9;
pub(super) const SAMPLE_RAW: u64 = 1 << 10;
pub(super) const SAMPLE_IDENTIFIER: u64 = 1 << 16;

const READ_TOTAL_TIME_ENABLED: u64 = 1;
const READ_TOTAL_TIME_RUNNING: u64 = 1 << 1;
const READ_ID: u64 = 1 << 2;
const READ_GROUP: u64 = 1 << 3;
const READ_LOST: u64 = 1 << 4;

/// The size of every part of a sample that we skip or read is a multiple of this.
const WORD_BYTE_COUNT: usize = 8;

/// A recorded event, with the attributes that perf passed to the kernel.
#[derive(Clone, Debug)]
pub(super) struct Attr {
    /// Its offset in the file.
    pub(super) at_byte: u64,
    /// The tracepoint's id; `None` if it is another kind of event.
    pub(super) tracepoint_id: Option<u64>,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) has_sample_id_all: bool,
    /// Whether the kernel recorded only some of its occurrences.
    pub(super) is_sampled: bool,
    /// The ids in its records, one for each CPU.
    pub(super) ids: Vec<u64>,
    /// How to read it; `None` if no idle log needs it.
    pub(super) decoder: Option<Decoder>,
}

/// Where the parts of an event's samples are, counted from the end of the record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    time: usize,
    cpu: usize,
    /// The offset of the raw data's length, or of the first part whose length varies by sample.
    variable: usize,
    sample_type: u64,
    read_format: u64,
}

impl Layout {
    fn new(attr: &Attr) -> Self {
        let place = |part: u64, parts_before: &[u64]| {
            debug_assert!(!parts_before.contains(&part));
            let before = parts_before.iter().filter(|&&bit| attr.sample_type & bit != 0);
            before.count() * WORD_BYTE_COUNT
        };
        let order = [
            SAMPLE_IDENTIFIER,
            SAMPLE_IP,
            SAMPLE_TID,
            SAMPLE_TIME,
            SAMPLE_ADDR,
            SAMPLE_ID,
            SAMPLE_STREAM_ID,
            SAMPLE_CPU,
            SAMPLE_PERIOD,
        ];
        Self {
            time: place(SAMPLE_TIME, &order[..3]),
            cpu: place(SAMPLE_CPU, &order[..7]),
            variable: place(SAMPLE_RAW, &order),
            sample_type: attr.sample_type,
            read_format: attr.read_format,
        }
    }

    /// The raw data of a sample; `None` if it extends past the sample.
    #[inline]
    fn raw(self, body: &[u8], order: ByteOrder) -> Option<&[u8]> {
        let mut at = self.variable;
        if self.sample_type & (SAMPLE_READ | SAMPLE_CALLCHAIN) != 0 {
            at = self.raw_after_variable_parts(body, order)?;
        }
        let byte_count = order.u32_at(body, at)? as usize;
        body.get(at + 4..)?.get(..byte_count)
    }

    fn raw_after_variable_parts(self, body: &[u8], order: ByteOrder) -> Option<usize> {
        let mut at = self.variable;
        if self.sample_type & SAMPLE_READ != 0 {
            let words = |bits: u64| (self.read_format & bits).count_ones() as usize;
            let times = words(READ_TOTAL_TIME_ENABLED | READ_TOTAL_TIME_RUNNING);
            let per_value = 1 + words(READ_ID | READ_LOST);
            let word_count = if self.read_format & READ_GROUP == 0 {
                times + per_value
            } else {
                let value_count = usize::try_from(order.u64_at(body, at)?).ok()?;
                value_count.checked_mul(per_value)?.checked_add(1 + times)?
            };
            at = at.checked_add(word_count.checked_mul(WORD_BYTE_COUNT)?)?;
        }
        if self.sample_type & SAMPLE_CALLCHAIN != 0 {
            let address_count = usize::try_from(order.u64_at(body, at)?).ok()?;
            let byte_count = address_count.checked_mul(WORD_BYTE_COUNT)?;
            at = at.checked_add(WORD_BYTE_COUNT)?.checked_add(byte_count)?;
        }
        // An excessive length must not wrap around to the beginning of the sample.
        (at < body.len()).then_some(at)
    }
}

/// A sample of a tracepoint that we read.
pub(super) struct Sample<'a> {
    pub(super) at_ns: u64,
    pub(super) cpu: u32,
    pub(super) raw: &'a [u8],
    pub(super) decoder: &'a Decoder,
}

/// The time and CPU in a record that is not a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trailer {
    pub(super) at_ns: Option<u64>,
    pub(super) cpu: Option<u32>,
}

/// Finds each record's event and parts.
pub(super) struct SampleReader {
    order: ByteOrder,
    attrs: Vec<(Layout, Attr)>,
    identity: Identity,
    index: IdIndex,
}

/// How a record identifies its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// There is only one.
    Only,
    /// By an id at this offset of a sample (in other records, in a layout that all share).
    At(usize),
    /// By an id that comes first in samples and last in other records.
    Identifier,
}

impl SampleReader {
    pub(super) fn new(attrs: Vec<Attr>, order: ByteOrder) -> Result<Self, ImportError> {
        let index = IdIndex::new(&attrs);
        let attrs: Vec<_> = attrs.into_iter().map(|attr| (Layout::new(&attr), attr)).collect();
        let have_all = |bit| attrs.iter().all(|(layout, _)| layout.sample_type & bit != 0);
        let are_same = attrs.windows(2).all(|pair| match pair {
            [(left, _), (right, _)] => left.sample_type == right.sample_type,
            _ => true,
        });
        let identity = if attrs.len() == 1 {
            Identity::Only
        } else if have_all(SAMPLE_IDENTIFIER) {
            Identity::Identifier
        } else if have_all(SAMPLE_ID) && are_same {
            let parts_before = SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME | SAMPLE_ADDR;
            let sample_type = attrs.first().map_or(0, |(layout, _)| layout.sample_type);
            Identity::At((sample_type & parts_before).count_ones() as usize * WORD_BYTE_COUNT)
        } else {
            return Err(ImportError::Unsupported {
                at_byte: attrs.first().map_or(0, |(_, attr)| attr.at_byte),
                found: "several events whose samples do not tell them apart".to_owned(),
                todo: "record them with one `perf record`, or one event at a time",
            });
        };
        Ok(Self { order, attrs, identity, index })
    }

    /// Reads a sample's body. `None` if we do not read its event, an error if its parts exceed it.
    #[inline]
    pub(super) fn sample<'a>(&'a self, body: &'a [u8]) -> Option<Result<Sample<'a>, Malformed>> {
        let attr_index = match self.identity {
            Identity::Only => 0,
            Identity::Identifier => self.index.get(self.order.u64_at(body, 0)?)?,
            Identity::At(place) => self.index.get(self.order.u64_at(body, place)?)?,
        };
        let (layout, attr) = self.attrs.get(attr_index)?;
        let decoder = attr.decoder.as_ref()?;
        let read = || {
            Some(Sample {
                at_ns: self.order.u64_at(body, layout.time)?,
                cpu: self.order.u32_at(body, layout.cpu)?,
                raw: layout.raw(body, self.order)?,
                decoder,
            })
        };
        Some(read().ok_or(Malformed))
    }

    /// Reads the end of a record that is not a sample.
    pub(super) fn trailer(&self, body: &[u8]) -> Trailer {
        self.find_trailer(body).unwrap_or_default()
    }

    fn find_trailer(&self, body: &[u8]) -> Option<Trailer> {
        let attr_index = match self.identity {
            Identity::Only | Identity::At(_) => 0,
            Identity::Identifier => {
                let last = body.len().checked_sub(WORD_BYTE_COUNT)?;
                self.index.get(self.order.u64_at(body, last)?)?
            }
        };
        let (_, attr) = self.attrs.get(attr_index)?;
        if !attr.has_sample_id_all {
            return None;
        }
        let place = |part: u64, parts_behind: u64| {
            let word_count = (attr.sample_type & parts_behind).count_ones() as usize + 1;
            let is_there = attr.sample_type & part != 0;
            body.len().checked_sub(word_count * WORD_BYTE_COUNT).filter(|_| is_there)
        };
        let behind_cpu = SAMPLE_IDENTIFIER;
        let behind_time = behind_cpu | SAMPLE_CPU | SAMPLE_STREAM_ID | SAMPLE_ID;
        Some(Trailer {
            at_ns: place(SAMPLE_TIME, behind_time).and_then(|at| self.order.u64_at(body, at)),
            cpu: place(SAMPLE_CPU, behind_cpu).and_then(|at| self.order.u32_at(body, at)),
        })
    }
}

/// A record whose parts extend past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Maps the ids in records to the index of their event.
struct IdIndex {
    /// The kernel numbers events as they are opened, so a recording's ids are usually dense. Entry
    /// `id - first_id` is the event's index, or `NONE`.
    table: Vec<u16>,
    first_id: u64,
    /// The ids that are too far apart for the table, in order.
    scattered: Vec<(u64, u16)>,
}

impl IdIndex {
    const NONE: u16 = u16::MAX;

    /// The most table entries per id. If more would be needed, ids are sorted instead.
    const MAX_ENTRIES_PER_ID: u64 = 16;

    fn new(attrs: &[Attr]) -> Self {
        let mut pairs: Vec<(u64, u16)> = Vec::new();
        for (attr, index) in attrs.iter().zip(0..Self::NONE) {
            pairs.extend(attr.ids.iter().map(|&id| (id, index)));
        }
        pairs.sort_unstable();
        pairs.dedup_by_key(|pair| pair.0);
        let first_id = pairs.first().map_or(0, |pair| pair.0);
        let span = pairs.last().map_or(0, |pair| pair.0 - first_id);
        if span >= Self::MAX_ENTRIES_PER_ID * pairs.len() as u64 {
            return Self { table: Vec::new(), first_id, scattered: pairs };
        }
        let mut table = vec![Self::NONE; span as usize + 1];
        for (id, index) in pairs {
            if let Some(entry) = table.get_mut((id - first_id) as usize) {
                *entry = index;
            }
        }
        Self { table, first_id, scattered: Vec::new() }
    }

    #[inline]
    fn get(&self, id: u64) -> Option<usize> {
        let entry = usize::try_from(id.wrapping_sub(self.first_id)).ok();
        match entry.and_then(|entry| self.table.get(entry)) {
            Some(&Self::NONE) => None,
            Some(&index) => Some(index.into()),
            None => {
                let place = self.scattered.binary_search_by_key(&id, |pair| pair.0).ok()?;
                self.scattered.get(place).map(|pair| pair.1.into())
            }
        }
    }
}
