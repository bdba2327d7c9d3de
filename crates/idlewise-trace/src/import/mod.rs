//! Importers: one file or folder per trace format. Each turns its format into [`Event`]s in order
//! of time, and reports what was lost or could not be read.
//!
//! A damaged recording is imported as far as possible. An [`ImportError`] means that it was not.
//!
//! Each format is a folder and a row of `FORMATS`. [`open`] recognises it by the first bytes.
//!
//! | file | holds |
//! | --- | --- |
//! | `perf/` | [`perf`]: perf.data |
//! | `trace_dat/` | [`trace_dat`]: trace.dat of versions 6 and 7 |
//! | `text/` | [`text`]: the text of tracefs and trace-cmd, and systrace |
//! | `perfetto/` | [`perfetto`]: Perfetto's protobuf |
//! | `source.rs` | the file, and which files are none |
//! | `tracing_data.rs` | [`TracingData`]: event formats and what else perf and trace-cmd write alike |
//! | `order.rs` | sorts rounds over the CPUs' buffers by time; counts events out of order |
//! | `merge.rs` | merges streams that are each in order of time |
//! | `threads.rs` | reads, hashes and builds gaps in parallel |
//! | `named.rs` | events whose fields have names instead of offsets |
//!
//! [`Event`]: crate::Event

mod merge;
mod named;
mod order;
pub mod perf;
pub mod perfetto;
mod source;
pub mod text;
mod threads;
pub mod trace_dat;
mod tracing_data;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::event::{Event, Tracepoints};
use crate::tracepoint::{Purpose, UnreadableTracepoint};
use crate::{Doubt, MachineNote};

pub use crate::doubt::TruncationReason;
pub use threads::source_blake3;
pub use tracing_data::TracingData;

/// A recording of any format whose head has been read.
pub trait Recording {
    /// The name of its format, as in the log's metadata.
    fn format_name(&self) -> &'static str;

    /// What the trace says about itself.
    fn info(&self) -> &TraceInfo;

    /// Reads all events. `sink` receives them in slices, in order of time over all CPUs. `progress`
    /// is called with the number of bytes read so far. Both are called on this thread.
    ///
    /// # Errors
    /// Fails only if the file cannot be read. Damage is reported in the summary.
    fn read(
        self: Box<Self>,
        progress: &dyn Fn(u64),
        sink: &mut dyn FnMut(&[Event]),
    ) -> Result<ReadSummary, ImportError>;
}

/// A format that we import.
struct Format {
    /// Its name, as in the log's metadata.
    name: &'static str,
    /// A description of the file, for messages.
    meaning: &'static str,
    /// Whether a file that begins with these bytes has this format.
    recognizes: fn(&[u8]) -> bool,
    open: fn(File, Options<'_>) -> Result<Box<dyn Recording>, ImportError>,
}

/// Every format that we import. The first that recognises a file is used.
const FORMATS: &[Format] = &[perf::FORMAT, trace_dat::FORMAT, text::FORMAT, perfetto::FORMAT];

/// Options for opening a recording that does not contain everything that is needed.
#[derive(Debug, Default)]
pub struct Options<'a> {
    /// The format, one of [`formats`], if the first bytes do not show it.
    pub format: Option<&'a str>,
    /// Event formats for a perf.data that has none because it was cut or perf was killed: those of
    /// another recording of the same kernel ([`perf::formats_of_file`]).
    pub event_formats: Option<TracingData>,
    /// What the events are for. Texts and Perfetto's traces are never read for wakes.
    pub purpose: Purpose,
}

/// Returns the name and description of each format.
pub fn formats() -> impl Iterator<Item = (&'static str, &'static str)> {
    FORMATS.iter().map(|format| (format.name, format.meaning))
}

/// How many bytes are examined to recognise a format. In a text these are several lines.
const FIRST_BYTE_COUNT: u64 = 1 << 12;

/// Opens a recording of any format, recognised by its first bytes, and reads its head.
///
/// ```no_run
/// let recording = idlewise_trace::import::open("recording".as_ref())?;
/// println!("{} of kernel {:?}", recording.format_name(), recording.info().kernel);
/// let mut event_count = 0;
/// let summary = recording.read(&|_byte_count| {}, &mut |events| event_count += events.len())?;
/// println!("{event_count} events, the last at {:?} ns", summary.last_at_ns);
/// # Ok::<(), idlewise_trace::import::ImportError>(())
/// ```
///
/// # Errors
/// Fails if the file cannot be read, has a format that we do not import, or has no idle events that
/// we can read.
pub fn open(path: &Path) -> Result<Box<dyn Recording>, ImportError> {
    open_with(source::open(path)?, Options::default())
}

/// Like [`open`], for a file that is already open, with options.
///
/// # Errors
/// Fails like [`open`], and if there is no format with the given name.
pub fn open_with(file: File, options: Options<'_>) -> Result<Box<dyn Recording>, ImportError> {
    let file = source::checked(file)?;
    let named = options.format.or(options.event_formats.is_some().then_some(perf::FORMAT.name));
    let format = if let Some(name) = named {
        let format = FORMATS.iter().find(|format| format.name == name);
        format.ok_or_else(|| ImportError::NoSuchFormat { name: name.to_owned() })?
    } else {
        let first = source::bytes_at(&file, 0, FIRST_BYTE_COUNT)?;
        let format = FORMATS.iter().find(|format| (format.recognizes)(&first));
        format.ok_or_else(|| unknown_format(&first))?
    };
    (format.open)(file, options)
}

/// The names of all formats as text: `a, b or c`.
fn format_list() -> String {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Describes a file whose first bytes match no format that we import.
fn unknown_format(first: &[u8]) -> ImportError {
    const RECORD_AGAIN: &str = "give a file that `perf record` or `trace-cmd record` wrote";
    let known: &[(&[u8], &str, &'static str)] = &[
        (b"PERFFILE", "perf.data of the first version", "record with a perf from 2010 or later"),
        (tracing_data::MAGIC, "trace.dat", "leave out --formats-from: it has its own formats"),
        (b"\x7fELF", "an ELF program", RECORD_AGAIN),
        (b"\x1f\x8b", "gzip data", "unpack it with gunzip"),
        (b"\xfd7zXZ", "xz data", "unpack it with `xz -dk`"),
        (b"\x28\xb5\x2f\xfd", "zstd data", "unpack it with `zstd -d`"),
        (b"TRACE:\n", "a compressed atrace", "trace with atrace's option -z left out"),
        (b"PAR1", "a Parquet file", "an idle log needs no import"),
        (b"BZh", "bzip2 data", "unpack it with bunzip2"),
    ];
    if first.is_empty() {
        return ImportError::Empty;
    }
    for &(magic, found, todo) in known {
        if first.starts_with(magic) {
            return ImportError::NotARecording { found: found.to_owned(), todo };
        }
    }
    let start = first.get(..64).unwrap_or(first);
    let is_text = start.iter().all(|&byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~'));
    let found = match start {
        text if is_text => {
            let start: String = text.iter().take(16).map(|&byte| char::from(byte)).collect();
            format!("text that begins with {start:?}")
        }
        bytes => format!("the bytes {:02x?}", bytes.get(..8).unwrap_or(bytes)),
    };
    ImportError::NotARecording { found, todo: RECORD_AGAIN }
}

/// What a trace says about itself and the recorded machine. `None` where the recorder wrote
/// nothing.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TraceInfo {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// The CPU's name.
    pub cpu_model: Option<String>,
    /// The CPU's vendor, family, model and stepping as the recorder writes them.
    pub cpuid: Option<String>,
    /// The architecture, as `uname -m` prints it.
    pub arch: Option<String>,
    /// How many CPUs were online when the recording ended.
    pub cpu_count: Option<u32>,
    /// The clock of the timestamps: the name of a POSIX clock; `perf` for perf's own (the
    /// scheduler's clock, which does not run at the rate of the timers' clock); or another name
    /// that the tracer has for its clocks.
    pub clock: Option<String>,
    /// The recorder's command line, words joined by spaces.
    pub cmdline: Option<String>,
    /// What `idlewise record` noted about the machine. `None` for other recorders.
    pub machine_note: Option<MachineNote>,
    /// The tracepoints that were recorded and can be read.
    pub tracepoints: Tracepoints,
    /// The tracepoints that we know and that were recorded, but whose records we cannot read.
    pub unreadable_tracepoints: Vec<UnreadableTracepoint>,
    /// The tracepoints of which only every n-th event was recorded, so that states and timers
    /// rebuilt from them are wrong.
    pub sampled_tracepoints: Vec<String>,
    /// Whether the event formats are those of another recording.
    pub has_foreign_formats: bool,
    /// Format-specific reasons to doubt the result.
    pub doubts: Vec<Doubt>,
    /// The size of the file.
    pub file_byte_count: u64,
}

/// The result of reading a trace, with every reason to doubt it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadSummary {
    /// How many events were passed to the sink.
    pub event_count: u64,
    /// How many records of any kind the trace has.
    pub record_count: u64,
    /// How many events the kernel dropped, per CPU; a CPU without losses has no entry.
    pub lost_event_counts: BTreeMap<u16, u64>,
    /// How many events the kernel dropped on a CPU that the trace does not name.
    pub lost_event_count_without_cpu: u64,
    /// How many events came too late to be sorted. Each was passed to the sink with the time of the
    /// event before it, so that no CPU's history loses a step. If there are any, the trace's clock
    /// steps back, or its writer gave no bound on how far records can be out of order.
    pub out_of_order_count: u64,
    /// The first of those.
    pub first_late: Option<LateEvent>,
    /// How many records of known tracepoints could not be read and were left out.
    pub undecodable_count: u64,
    /// Where the trace ends too early.
    pub truncated: Option<Truncation>,
    /// More reasons to doubt the result, like those of [`TraceInfo`].
    pub doubts: Vec<Doubt>,
    /// The BLAKE3 hash of the whole file, in hexadecimal.
    pub source_blake3: String,
    /// The time of the first event.
    pub first_at_ns: Option<i64>,
    /// The time of the last event.
    pub last_at_ns: Option<i64>,
}

/// An event that came after events with a later time, too late to be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateEvent {
    /// Its CPU.
    pub cpu: u16,
    /// When it happened, on the trace's clock.
    pub at_ns: i64,
    /// The time of the event before it, which it was given instead.
    pub after_ns: i64,
}

/// The place from which on a trace could not be read. If a file's parts can be read independently,
/// as in trace.dat, it is the first such place, and all lost bytes are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Truncation {
    /// The offset of the first incomplete record.
    pub at_byte: u64,
    /// How many bytes from there were not read, as far as the file says how many there should be.
    pub lost_byte_count: u64,
    /// Whether the file ends there or continues with something that is not a record.
    pub reason: TruncationReason,
}

/// Why a file could not be imported at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file could not be opened.
    #[error("cannot open {}: {source}; check the path and its permissions", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read at byte {at_byte}: {source}; check the disk and import again")]
    Io {
        /// Where in the file.
        at_byte: u64,
        /// What the system said.
        source: io::Error,
    },
    /// There is no thread to read with.
    #[error(
        "cannot start a thread: {0}; allow more processes (ulimit -u) or more memory (ulimit -v)"
    )]
    NoThread(io::Error),
    /// The file has no bytes.
    #[error("byte 0: the file is empty, expected {}; record again", format_list())]
    Empty,
    /// The file is not a recording that we know.
    #[error("byte 0: found {found}, expected {}; {todo}", format_list())]
    NotARecording {
        /// What the first bytes look like.
        found: String,
        /// What to do about it.
        todo: &'static str,
    },
    /// There is no format with that name.
    #[error("there is no format `{name}`; name {}", format_list())]
    NoSuchFormat {
        /// The name.
        name: String,
    },
    /// The head of the file contradicts itself or is cut.
    #[error(
        "byte {at_byte}: found {found}, expected {expected}; copy the file again or record again"
    )]
    BrokenHeader {
        /// Where in the file.
        at_byte: u64,
        /// What is there.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// The file is complete, but was recorded in a way that we cannot read.
    #[error("byte {at_byte}: {found}; {todo}")]
    Unsupported {
        /// Where in the file.
        at_byte: u64,
        /// What is there.
        found: String,
        /// What to do about it.
        todo: &'static str,
    },
    /// The descriptions of the events are missing, so no event can be read.
    #[error(
        "byte {at_byte}: the file ends without event formats, as when the recorder was killed or \
         the file was cut; record a second more on the same kernel, and import with --formats-from \
         that recording"
    )]
    NoTracingData {
        /// Where they should be.
        at_byte: u64,
    },
    /// The trace has no idle events.
    #[error(
        "byte {at_byte}: power:cpu_idle is not among the {recorded_count} recorded events; record \
         with `{todo}`"
    )]
    NoCpuIdle {
        /// Where the list of recorded events is.
        at_byte: u64,
        /// How many events were recorded.
        recorded_count: usize,
        /// The recorder's command that records them.
        todo: &'static str,
    },
    /// Too many events are out of order for their times to be right.
    #[error(
        "{share_percent:.1} % of the events ({late_count} of {event_count}) are out of order, the \
         first at {} ns on CPU {} behind one at {} ns: the recording's clock steps back or differs \
         between CPUs, or its parts are mixed up; record again with one clock for all CPUs (perf \
         record -k CLOCK_MONOTONIC, trace-cmd record -C mono, cat trace in place of trace_pipe)",
        first.at_ns, first.cpu, first.after_ns
    )]
    OutOfOrder {
        /// How many of them.
        late_count: u64,
        /// How many events there are.
        event_count: u64,
        /// Their share.
        share_percent: f64,
        /// The first of them.
        first: LateEvent,
    },
    /// Idle events were recorded, but their description lacks a field that we need.
    #[error("byte {at_byte}: {unreadable}; report this kernel to us, with the file")]
    UnreadableCpuIdle {
        /// Where the descriptions are.
        at_byte: u64,
        /// What the description lacks.
        unreadable: UnreadableTracepoint,
    },
}
