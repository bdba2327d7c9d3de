//! Pages of the kernel's ring buffer as they come from a running kernel, without a file around them.

use super::ids::Ids;
use super::page::PageLayout;
use super::pages::PageReader;
use crate::byte_order::ByteOrder;
use crate::event::{Event, Tracepoints};
use crate::import::TracingData;
use crate::tracepoint::{EventFormat, Purpose, UnreadableTracepoint};

/// Decodes the pages of this machine's ring buffers: the events from which wake-ups follow.
pub struct RingDecoder {
    layout: PageLayout,
    ids: Ids,
    tracepoints: Tracepoints,
    unreadable: Vec<UnreadableTracepoint>,
}

/// What a page held besides its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageLosses {
    /// How many events the kernel dropped before it.
    pub lost_event_count: u64,
    /// How many records could not be decoded, or 1 for the rest of a broken page.
    pub undecodable_count: u64,
}

impl RingDecoder {
    /// Compiles tracefs's `events/header_page` and the `format` files of the events that are traced, each
    /// with its system; `None` if no format says where a record's number is.
    pub fn new<'a>(
        header_page: &[u8],
        formats: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Option<Self> {
        let order = match cfg!(target_endian = "little") {
            true => ByteOrder::Little,
            false => ByteOrder::Big,
        };
        let long_byte_count = size_of::<usize>() as u8;
        let mut data = TracingData::empty(order, long_byte_count);
        let parsed = formats
            .into_iter()
            .filter_map(|(system, format)| Some((system.to_owned(), EventFormat::parse(format)?)));
        data.events.extend(parsed);
        let compiled = Ids::compile(&data, Purpose::Wakes)?;
        Some(RingDecoder {
            layout: PageLayout::parse(header_page, order, long_byte_count),
            ids: compiled.ids,
            tracepoints: compiled.tracepoints,
            unreadable: compiled.unreadable_tracepoints,
        })
    }

    /// Returns the tracepoints that can be read.
    pub fn tracepoints(&self) -> Tracepoints {
        self.tracepoints
    }

    /// Returns those that are traced but cannot be read.
    pub fn unreadable_tracepoints(&self) -> &[UnreadableTracepoint] {
        &self.unreadable
    }

    /// Appends the events of a page of `cpu`, in order of time.
    pub fn page(&self, page: &[u8], cpu: u16, events: &mut Vec<Event>) -> PageLosses {
        let mut reader = PageReader::new(&self.layout, &self.ids, None, None, false);
        let hole = reader.read_page(page, 0, cpu, events);
        let counts = reader.into_counts(&[]);
        PageLosses {
            lost_event_count: counts.lost_event_counts.values().sum(),
            undecodable_count: counts.undecodable_count + u64::from(hole.is_some()),
        }
    }
}
