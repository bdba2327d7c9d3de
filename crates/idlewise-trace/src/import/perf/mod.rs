//! Imports perf.data: from a file or a pipe, in either byte order, compressed or not.
//!
//! | file | holds |
//! | --- | --- |
//! | `head.rs` | attributes, event formats and machine; checks that there is something to import |
//! | `sample.rs` | where the parts of a sample are, and which event it belongs to |
//! | `walk.rs` | decodes bytes into events, record by record |
//!
//! One thread reads, hashes and decodes. The caller's thread sorts the events and passes them to
//! the sink. A few batches circulate between the two and are reused, so memory does not grow with
//! the file, only with the largest of perf's rounds (`../order.rs`). The file is read in blocks and
//! never mapped, because mapped pages would count as our memory.
//!
//! Not supported: directories of files (`perf record --threads`), symbols, processes, and every
//! event that an idle log does not need.

mod head;
mod sample;
mod walk;

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::order::Orderer;
use super::{
    Format, ImportError, ReadSummary, Recording, TraceInfo, TracingData, Truncation,
    TruncationReason, source,
};
use crate::byte_order::ByteOrder;
use crate::event::{Event, EventKind};
use crate::tracepoint::Purpose;
use head::Head;
use sample::SampleReader;
use walk::{Batch, MAX_RECORD_BYTE_COUNT, Stop, Walk, WalkCounts};

pub(super) const FORMAT: Format = Format {
    name: "perf.data",
    meaning: "what `perf record` writes",
    recognizes: |first| MAGICS.iter().any(|magic| first.starts_with(magic)),
    open: |file, options| {
        Ok(PerfData::from_source(Box::new(file), options.event_formats, options.purpose)?)
    },
};

/// The magic numbers, for each byte order.
const MAGICS: &[&[u8]] = &[head::MAGIC_LITTLE, head::MAGIC_BIG];

/// How much is read at a time: small enough to stay in a core's private cache until it is decoded.
const BLOCK_BYTE_COUNT: usize = 1 << 18;

/// How many batches may wait for the sink.
const WAITING_BATCH_COUNT: usize = 4;

/// Where a trace is read from.
trait SeekRead: Read + Seek + Send {}

impl<T: Read + Seek + Send> SeekRead for T {}

/// A perf.data file whose head has been read.
///
/// ```no_run
/// use idlewise_trace::import::Recording;
/// use idlewise_trace::import::perf::PerfData;
///
/// let data = PerfData::open("perf.data".as_ref())?;
/// println!("recorded by {:?}", data.info().cmdline);
/// let mut event_count = 0;
/// let summary = data.read(&|_byte_count| {}, &mut |events| event_count += events.len())?;
/// println!("{event_count} events, {} too late to be put in order", summary.out_of_order_count);
/// # Ok::<(), idlewise_trace::import::ImportError>(())
/// ```
pub struct PerfData {
    source: Box<dyn SeekRead>,
    order: ByteOrder,
    info: TraceInfo,
    samples: SampleReader,
    data_start: u64,
    data_end: Option<u64>,
    stated_end: u64,
}

/// Reads the event formats of a file, for [`super::Options::event_formats`].
///
/// # Errors
/// Fails if the file cannot be read, is not a perf.data, or has no event formats.
pub fn formats_of_file(file: File) -> Result<TracingData, ImportError> {
    Head::read_formats(&mut source::checked(file)?)
}

impl PerfData {
    /// Opens a file and reads its head.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a perf.data, or has no readable idle events.
    pub fn open(path: &Path) -> Result<Box<Self>, ImportError> {
        Self::from_source(Box::new(source::open(path)?), None, Purpose::Gaps)
    }

    /// Reads the head of a file in memory.
    ///
    /// # Errors
    /// Fails like [`PerfData::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Box<Self>, ImportError> {
        Self::from_source(Box::new(Cursor::new(bytes)), None, Purpose::Gaps)
    }

    fn from_source(
        mut source: Box<dyn SeekRead>,
        formats: Option<TracingData>,
        purpose: Purpose,
    ) -> Result<Box<Self>, ImportError> {
        let head = Head::read(&mut *source, formats, purpose)?;
        let Head { order, info, attrs, data_start, data_end, stated_end } = head;
        let samples = SampleReader::new(attrs, order)?;
        Ok(Box::new(Self { source, order, info, samples, data_start, data_end, stated_end }))
    }
}

impl Recording for PerfData {
    fn format_name(&self) -> &'static str {
        FORMAT.name
    }

    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn read(
        self: Box<Self>,
        progress: &dyn Fn(u64),
        sink: &mut dyn FnMut(&[Event]),
    ) -> Result<ReadSummary, ImportError> {
        let (full_sender, full) = sync_channel::<Batch>(WAITING_BATCH_COUNT);
        let (empty_sender, empty) = channel::<Batch>();
        let mut orderer = Orderer::default();
        let outcome = thread::scope(|scope| {
            let reader = thread::Builder::new()
                .name("perf-data".to_owned())
                .spawn_scoped(scope, || self.read_blocks(full_sender, empty))
                .map_err(ImportError::NoThread)?;
            order_batches(full, &empty_sender, &mut orderer, progress, sink);
            match reader.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        let ReadOutcome { counts, truncated, source_blake3 } = outcome;

        // Losses that only perf's sums count happened after the kernel's last record of a loss.
        let mut lost_event_counts = counts.lost_event_counts;
        let mut lost_at_end = Vec::new();
        for (cpu, sum) in counts.lost_event_sums {
            let told = lost_event_counts.entry(cpu).or_default();
            if let Some(event_count) = sum.checked_sub(*told).filter(|&count| count > 0) {
                *told = sum;
                let at_ns = orderer.latest_ns().unwrap_or(0);
                lost_at_end.push(Event { at_ns, cpu, kind: EventKind::Lost { event_count } });
            }
        }
        orderer.push(&lost_at_end, sink);
        orderer.finish(sink);
        lost_event_counts.retain(|_, count| *count > 0);

        Ok(ReadSummary {
            record_count: counts.record_count,
            lost_event_counts,
            lost_event_count_without_cpu: counts.lost_event_count_without_cpu,
            undecodable_count: counts.undecodable_count,
            truncated,
            source_blake3,
            ..orderer.order.summary()
        })
    }
}

impl PerfData {
    /// Reads the file from beginning to end: everything for the hash, the records to decode them.
    fn read_blocks(
        mut self,
        full: SyncSender<Batch>,
        empty: Receiver<Batch>,
    ) -> Result<ReadOutcome, ImportError> {
        let mut walk = Walk::new(self.order, &self.samples, |batch: &mut Batch| {
            let mut next = empty.try_recv().unwrap_or_default();
            next.clear();
            full.send(std::mem::replace(batch, next)).is_ok()
        });
        let mut hasher = blake3::Hasher::new();
        let mut stopped = None;
        // First the incomplete record at the end of the last block, then the new block.
        let mut buffer = vec![0; MAX_RECORD_BYTE_COUNT + BLOCK_BYTE_COUNT];
        let mut rest_byte_count = 0;
        let mut block_at = 0;
        let data_end = self.data_end.unwrap_or(u64::MAX);
        seek_to_start(&mut *self.source)?;
        loop {
            let block = buffer.get_mut(rest_byte_count..).unwrap_or_default();
            let byte_count = read_some(&mut *self.source, block, block_at)?;
            let Some(block) = block.get(..byte_count).filter(|block| !block.is_empty()) else {
                break;
            };
            hasher.update(block);
            let filled = rest_byte_count + byte_count;
            let buffer_at = block_at - rest_byte_count as u64;
            block_at += byte_count as u64;
            // The records in the buffer. The file has other data before and after them.
            let start = index_in(buffer_at, self.data_start, filled);
            let end = index_in(buffer_at, data_end, filled);
            rest_byte_count = 0;
            if stopped.is_some() {
                continue;
            }
            let records = buffer.get(start..end).unwrap_or_default();
            let records_at = buffer_at + start as u64;
            let result = walk.walk(records, records_at).and_then(|walked| {
                walk.batch.byte_offset = records_at + walked as u64;
                walk.flush().map(|()| walked)
            });
            match result {
                Ok(walked) if end < filled || records_at + records.len() as u64 == data_end => {
                    if walked < records.len() {
                        let at_byte = records_at + walked as u64;
                        stopped = Some((at_byte, TruncationReason::CutShort));
                    }
                }
                Ok(walked) => {
                    rest_byte_count = records.len() - walked;
                    buffer.copy_within(start + walked..end, 0);
                }
                Err(Stop::Broken { at, reason }) => {
                    stopped = Some((records_at + at as u64, reason));
                }
                // The sink has panicked. The thread that called it will report that.
                Err(Stop::NobodyListens) => break,
            }
        }
        if rest_byte_count > 0 {
            stopped = Some((block_at - rest_byte_count as u64, TruncationReason::CutShort));
        }
        // A walk that was stopped has handed over only full batches.
        walk.batch.byte_offset = block_at;
        let _ = walk.flush();
        let missing_byte_count = walk.missing_byte_count();
        let truncated = if let Some((at_byte, reason)) = stopped {
            let end = self.data_end.unwrap_or(block_at);
            Some(Truncation { at_byte, lost_byte_count: end.saturating_sub(at_byte), reason })
        } else if missing_byte_count > 0 || walk.has_packed_rest() {
            let at_byte = data_end.min(block_at);
            let reason = TruncationReason::CutShort;
            Some(Truncation { at_byte, lost_byte_count: missing_byte_count, reason })
        } else if self.stated_end > block_at {
            let lost_byte_count = self.stated_end - block_at;
            let reason = TruncationReason::CutShort;
            Some(Truncation { at_byte: block_at, lost_byte_count, reason })
        } else {
            None
        };
        Ok(ReadOutcome {
            counts: walk.counts,
            truncated,
            source_blake3: hasher.finalize().to_hex().to_string(),
        })
    }
}

/// The reading thread's result.
struct ReadOutcome {
    counts: WalkCounts,
    truncated: Option<Truncation>,
    source_blake3: String,
}

/// Sorts batches until the reading thread has no more, and returns their buffers to it.
fn order_batches(
    full: Receiver<Batch>,
    empty: &Sender<Batch>,
    orderer: &mut Orderer,
    progress: &dyn Fn(u64),
    sink: &mut dyn FnMut(&[Event]),
) {
    for batch in full {
        let mut start = 0;
        for &end in &batch.round_ends {
            orderer.push(batch.events.get(start..end).unwrap_or_default(), sink);
            orderer.end_round(sink);
            start = end;
        }
        orderer.push(batch.events.get(start..).unwrap_or_default(), sink);
        progress(batch.byte_offset);
        // This fails if the reading thread has ended and needs no more buffers.
        let _ = empty.send(batch);
    }
}

/// Converts a file offset to an index into a buffer of `byte_count` bytes that starts at
/// `buffer_at`. Offsets outside the buffer become its beginning or end.
fn index_in(buffer_at: u64, place: u64, byte_count: usize) -> usize {
    let index = usize::try_from(place.saturating_sub(buffer_at)).unwrap_or(usize::MAX);
    index.min(byte_count)
}

fn seek_to_start(source: &mut dyn SeekRead) -> Result<(), ImportError> {
    let sought = source.seek(SeekFrom::Start(0));
    sought.map(drop).map_err(|source| ImportError::Io { at_byte: 0, source })
}

/// Reads once; no bytes means the end of the file.
fn read_some(
    source: &mut dyn SeekRead,
    into: &mut [u8],
    at_byte: u64,
) -> Result<usize, ImportError> {
    loop {
        match source.read(into) {
            Ok(byte_count) => return Ok(byte_count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(ImportError::Io { at_byte, source }),
        }
    }
}
