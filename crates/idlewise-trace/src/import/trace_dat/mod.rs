//! trace.dat, as `trace-cmd record` and its kin write it: versions 6 and 7, of either byte order,
//! packed or not, of one buffer or several.
//!
//! | file | holds |
//! | --- | --- |
//! | `head.rs` | event formats, options and the places of the pages, in either version |
//! | `options.rs` | the options: what they say of machine, clock and buffers |
//! | `choose.rs` | whether there is something to import, and from which buffers |
//! | `clock.rs` | what each of the tracer's clocks is worth |
//! | `ids.rs` | which event a record is |
//! | `stream.rs` | one CPU's pages, one after the other |
//! | `pack.rs` | the compression of version 7 |
//! | `page.rs` | a page of the kernel's ring buffer: its records and their times |
//! | `merge.rs` | from all CPUs' pages to events in the order of time |
//!
//! One thread reads the pages and merges them, one hashes the file, the caller's own gives the
//! events to the sink. Each CPU holds one block or chunk of its pages, so memory does not grow with
//! the file.
//!
//! Not in here: symbols, tasks, text of latency tracers, times of day, guests' and hosts' files
//! side by side, and every event that an idle log does not need.

mod choose;
mod clock;
mod head;
mod ids;
mod merge;
mod options;
mod pack;
mod page;
mod stream;

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use super::source::{self, ReadAt, fill_at};
use super::{ImportError, ReadSummary, Recording, TraceInfo, tracing_data};
use crate::event::Event;
use head::Head;
use merge::{PageReader, merge};
use pack::Unpacker;
use stream::Stream;

pub(super) const FORMAT_NAME: &str = "trace.dat";

/// What a file begins with.
pub(super) const MAGIC: &[u8] = tracing_data::MAGIC;

/// How much is hashed at a time.
const HASH_BLOCK_BYTE_COUNT: usize = 1 << 18;

/// How many batches may wait for the sink.
const WAITING_BATCH_COUNT: usize = 16;

/// A trace.dat file whose head has been read.
///
/// ```no_run
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

/// Events in order.
#[derive(Default)]
struct Batch {
    events: Vec<Event>,
    /// How many bytes of pages were read for it and all before it.
    byte_count: u64,
}

impl TraceDat {
    /// Opens a file and reads its head.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is no trace.dat, or has no idle events that we can read.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        Self::from_file(source::open(path)?)
    }

    pub(super) fn from_file(file: File) -> Result<Self, ImportError> {
        let metadata = file.metadata().map_err(|source| ImportError::Io { at_byte: 0, source })?;
        Self::from_source(Box::new(file), metadata.len())
    }

    /// Reads the head of a file that is in memory.
    ///
    /// # Errors
    /// As [`TraceDat::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, ImportError> {
        let byte_count = bytes.len() as u64;
        Self::from_source(Box::new(bytes), byte_count)
    }

    fn from_source(source: Box<dyn ReadAt>, byte_count: u64) -> Result<Self, ImportError> {
        let head = Head::read(&*source, byte_count)?;
        Ok(Self { source, head })
    }

    /// What the trace says about itself.
    pub fn info(&self) -> &TraceInfo {
        &self.head.info
    }

    /// Reads all events. `sink` gets them in slices, in the order of time over all CPUs. `progress`
    /// is told how many bytes of the file have been read. Both are called on this thread.
    ///
    /// # Errors
    /// Fails only if the file cannot be read; what is damaged is told in the summary.
    pub fn read(
        self,
        progress: &dyn Fn(u64),
        sink: &mut dyn FnMut(&[Event]),
    ) -> Result<ReadSummary, ImportError> {
        let Self { source, head } = self;
        let source = &*source;
        let no_thread = |source| ImportError::Io { at_byte: 0, source };
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let (full_sender, full) = sync_channel::<Batch>(WAITING_BATCH_COUNT);
        let (empty_sender, empty) = channel::<Batch>();
        let (counts, source_blake3) = thread::scope(|scope| {
            let hasher =
                named("trace-dat-hash").spawn_scoped(scope, || hash(source)).map_err(no_thread)?;
            let head = &head;
            let reader = named("trace-dat")
                .spawn_scoped(scope, move || {
                    read_pages(source, head, |batch| {
                        let mut next = empty.try_recv().unwrap_or_default();
                        next.events.clear();
                        full_sender.send(std::mem::replace(batch, next)).is_ok()
                    })
                })
                .map_err(no_thread)?;
            for batch in full {
                if !batch.events.is_empty() {
                    sink(&batch.events);
                }
                progress(batch.byte_count);
                // The reading thread may have ended, and needs no more buffers then.
                let _ = empty_sender.send(batch);
            }
            let counts = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            let hash = hasher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok((counts, hash))
        })?;
        let mut damage = head.damage;
        damage.merge(counts.damage);
        Ok(ReadSummary {
            event_count: counts.event_count,
            record_count: counts.record_count,
            lost_event_counts: counts.lost_event_counts,
            lost_event_count_without_cpu: 0,
            out_of_order_count: counts.out_of_order_count,
            undecodable_count: counts.undecodable_count,
            truncated: damage.0,
            doubts: Vec::new(),
            source_blake3,
            first_at_ns: counts.first_at_ns,
            last_at_ns: counts.last_at_ns,
        })
    }
}

/// Reads and merges all pages.
fn read_pages(
    source: &dyn ReadAt,
    head: &Head,
    hand_over: impl FnMut(&mut Batch) -> bool,
) -> Result<merge::Counts, ImportError> {
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
    let reader =
        PageReader::new(&head.layout, &head.ids, head.cycle_scale, unpacker, has_several_buffers);
    merge(streams, reader, hand_over)
}

/// The BLAKE3 hash of the whole file, in hexadecimal.
fn hash(source: &dyn ReadAt) -> Result<String, ImportError> {
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; HASH_BLOCK_BYTE_COUNT];
    let mut at_byte = 0;
    loop {
        let byte_count = fill_at(source, &mut block, at_byte)?;
        hasher.update(block.get(..byte_count).unwrap_or_default());
        at_byte += byte_count as u64;
        if byte_count < block.len() {
            return Ok(hasher.finalize().to_hex().to_string());
        }
    }
}

impl Recording for TraceDat {
    fn format_name(&self) -> &'static str {
        FORMAT_NAME
    }

    fn info(&self) -> &TraceInfo {
        &self.head.info
    }

    fn read(
        self: Box<Self>,
        progress: &dyn Fn(u64),
        sink: &mut dyn FnMut(&[Event]),
    ) -> Result<ReadSummary, ImportError> {
        TraceDat::read(*self, progress, sink)
    }
}
