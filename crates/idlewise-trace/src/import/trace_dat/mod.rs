//! Imports trace.dat as `trace-cmd record` and similar programs write it: versions 6 and 7, in
//! either byte order, compressed or not, with one buffer or several.
//!
//! | file | holds |
//! | --- | --- |
//! | `head.rs` | event formats, options and the places of the pages, in either version |
//! | `options.rs` | the options: machine, clock and buffers |
//! | `choose.rs` | checks that there is something to import, and from which buffers |
//! | `clock.rs` | how usable each of the tracer's clocks is |
//! | `ids.rs` | the event of a record |
//! | `live.rs` | [`RingDecoder`]: pages that come from a running kernel |
//! | `stream.rs` | one CPU's pages in order |
//! | `pack.rs` | the compression of version 7 |
//! | `page.rs` | a page of the kernel's ring buffer: its records and their times |
//! | `pages.rs` | decodes a CPU's pages into events, which `../merge.rs` merges |
//!
//! Memory holds one block or chunk of pages for each CPU, so it does not grow with the file
//! (`../threads.rs`).
//!
//! Not supported: symbols, tasks, text of latency tracers, the time of day, guest and host files
//! together, and every event that an idle log does not need.

mod choose;
mod clock;
mod head;
mod ids;
mod live;
mod options;
mod pack;
mod page;
mod pages;
mod stream;

use std::path::Path;

use super::order::InOrder;
use super::source::{self, ReadAt, Source};
use super::threads::{self, Batch};
use super::{Format, ImportError, ReadSummary, Recording, TraceInfo, merge, tracing_data};
use crate::event::Event;
use crate::tracepoint::Purpose;
use head::Head;
use pack::Unpacker;
use pages::{Counts, PageReader};
use stream::Stream;

pub use live::{PageLosses, RingDecoder};

pub(super) const FORMAT: Format = Format {
    name: "trace.dat",
    meaning: "what `trace-cmd record` writes",
    recognizes: |first| first.starts_with(MAGIC),
    open: |file, options| Ok(TraceDat::from_source(source::of_file(file)?, options.purpose)?),
};

/// The magic number at the beginning of a file.
const MAGIC: &[u8] = tracing_data::MAGIC;

/// A trace.dat file whose head has been read.
///
/// ```no_run
/// use idlewise_trace::import::Recording;
/// use idlewise_trace::import::trace_dat::TraceDat;
///
/// let data = TraceDat::open("trace.dat".as_ref())?;
/// println!("kernel {:?}, clock {:?}", data.info().kernel, data.info().clock);
/// let mut event_count = 0;
/// let summary = data.read(&|_byte_count| {}, &mut |events| event_count += events.len())?;
/// println!("{event_count} events, {:?} lost", summary.lost_event_counts);
/// # Ok::<(), idlewise_trace::import::ImportError>(())
/// ```
pub struct TraceDat {
    source: Box<dyn ReadAt>,
    head: Head,
}

impl TraceDat {
    /// Opens a file and reads its head.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a trace.dat, or has no readable idle events.
    pub fn open(path: &Path) -> Result<Box<Self>, ImportError> {
        Self::from_source(source::of_file(source::open(path)?)?, Purpose::Gaps)
    }

    /// Reads the head of a file in memory.
    ///
    /// # Errors
    /// Fails like [`TraceDat::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Box<Self>, ImportError> {
        Self::from_source(source::of_bytes(bytes), Purpose::Gaps)
    }

    fn from_source(
        (source, byte_count): Source,
        purpose: Purpose,
    ) -> Result<Box<Self>, ImportError> {
        let head = Head::read(&*source, byte_count, purpose)?;
        Ok(Box::new(Self { source, head }))
    }
}

impl Recording for TraceDat {
    fn format_name(&self) -> &'static str {
        FORMAT.name
    }

    fn info(&self) -> &TraceInfo {
        &self.head.info
    }

    fn read(
        self: Box<Self>,
        progress: &dyn Fn(u64),
        sink: &mut dyn FnMut(&[Event]),
    ) -> Result<ReadSummary, ImportError> {
        let Self { source, head } = *self;
        let source = &*source;
        let read =
            |hand_over: &mut dyn FnMut(&mut Batch) -> bool| read_pages(source, &head, hand_over);
        let ((counts, order), source_blake3) =
            threads::run("trace-dat", source, read, progress, sink)?;
        let mut damage = head.damage;
        damage.merge(counts.damage);
        Ok(ReadSummary {
            record_count: counts.record_count,
            lost_event_counts: counts.lost_event_counts,
            undecodable_count: counts.undecodable_count,
            truncated: damage.0,
            source_blake3,
            ..order.summary()
        })
    }
}

/// Reads and merges all pages.
fn read_pages(
    source: &dyn ReadAt,
    head: &Head,
    hand_over: &mut dyn FnMut(&mut Batch) -> bool,
) -> Result<(Counts, InOrder), ImportError> {
    let streams = head
        .regions
        .iter()
        .map(|&region| Stream::new(source, head.order, region, head.info.file_byte_count))
        .collect();
    let has_several_buffers = head.regions.windows(2).any(|pair| match pair {
        [a, b] => a.buffer != b.buffer,
        _ => false,
    });
    let unpacker = head.algorithm.map(Unpacker::new);
    let mut reader =
        PageReader::new(&head.layout, &head.ids, head.cycle_scale, unpacker, has_several_buffers);
    let (streams, order) = merge::merge(streams, &mut reader, hand_over)?;
    Ok((reader.into_counts(&streams), order))
}
