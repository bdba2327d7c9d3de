//! Importers: one file or folder per trace format. Each turns its format into [`Event`]s in the
//! order of time, and says what was lost or could not be read.
//!
//! A recording that is damaged is still imported as far as it is whole; an [`ImportError`] means
//! that there is nothing to import at all.
//!
//! [`Event`]: crate::Event

pub mod perf;
mod tracing_data;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use crate::event::Tracepoints;
use crate::tracepoint::UnreadableTracepoint;

pub use tracing_data::TracingData;

/// What a trace says about itself and the machine that it was recorded on. What a recorder did not
/// write is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The clock of the timestamps: the name of a POSIX clock, or `perf` for perf's own (the
    /// scheduler's clock, which does not run at the rate of the timers' clock).
    pub clock: Option<String>,
    /// The recorder's command line, words joined by spaces.
    pub cmdline: Option<String>,
    /// The tracepoints that were recorded and can be read.
    pub tracepoints: Tracepoints,
    /// The tracepoints that were recorded, are known, and can't be read.
    pub unreadable_tracepoints: Vec<UnreadableTracepoint>,
    /// The tracepoints of which only every n-th event was recorded, so that states and timers
    /// rebuilt from them are wrong.
    pub sampled_tracepoints: Vec<String>,
    /// The size of the file.
    pub file_byte_count: u64,
}

/// What reading a trace came to, with every reason to doubt it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSummary {
    /// How many events the sink was given.
    pub event_count: u64,
    /// How many records of any kind the trace has.
    pub record_count: u64,
    /// How many events the kernel dropped, per CPU; a CPU without losses has no entry.
    pub lost_event_counts: BTreeMap<u16, u64>,
    /// How many events the kernel dropped on a CPU that the trace does not name.
    pub lost_event_count_without_cpu: u64,
    /// How many events came too late to be put in order: each was given to the sink with the time
    /// of the event before it, so that no CPU's story loses a step. Above zero, the trace's clock
    /// steps back, or its writer gave no bound within which records are out of order.
    pub out_of_order_count: u64,
    /// How many records of known tracepoints could not be read and were left out.
    pub undecodable_count: u64,
    /// Where the trace ends before its time.
    pub truncated: Option<Truncation>,
    /// The BLAKE3 hash of the whole file, in hexadecimal.
    pub source_blake3: String,
    /// The time of the first event.
    pub first_at_ns: Option<i64>,
    /// The time of the last event.
    pub last_at_ns: Option<i64>,
}

/// The place from which a trace could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The place in the file of the first record that is not whole.
    pub at_byte: u64,
    /// How many bytes from there were not read, as far as the file says how many there should be.
    pub lost_byte_count: u64,
    /// Whether the file ends there, or goes on with something that is no record.
    pub reason: TruncationReason,
}

/// Why a trace could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationReason {
    /// The file ends in the middle of a record, or before its records' stated end.
    CutShort,
    /// A record's length is impossible, so that the next one can't be found.
    BrokenRecord,
    /// A compressed block can't be unpacked.
    BrokenCompression,
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
    /// The file has no bytes.
    #[error("byte 0: the file is empty, expected perf.data; record again")]
    Empty,
    /// The file is something else.
    #[error("byte 0: found {found}, expected perf.data (`PERFILE2`); {todo}")]
    NotPerfData {
        /// What the first bytes look like.
        found: String,
        /// What to do about it.
        todo: &'static str,
    },
    /// The head of the file contradicts itself, or is cut.
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
    /// The file is whole, but was recorded in a way that we cannot read.
    #[error("byte {at_byte}: {found}; {todo}")]
    Unsupported {
        /// Where in the file.
        at_byte: u64,
        /// What is there.
        found: String,
        /// What to do about it.
        todo: &'static str,
    },
    /// The descriptions of the events are missing, so that no event can be read.
    #[error(
        "byte {at_byte}: the file ends without event formats, as when perf was killed or the file \
         was cut; record again and stop perf with ctrl-c"
    )]
    NoTracingData {
        /// Where they should be.
        at_byte: u64,
    },
    /// The trace has no idle events.
    #[error(
        "byte {at_byte}: power:cpu_idle is not among the {recorded_count} recorded events; record \
         with `perf record -a -k CLOCK_MONOTONIC -e power:cpu_idle,'timer:*',sched:sched_switch`"
    )]
    NoCpuIdle {
        /// Where the list of recorded events is.
        at_byte: u64,
        /// How many events were recorded.
        recorded_count: usize,
    },
    /// Idle events were recorded, but their description lacks a field.
    #[error("byte {at_byte}: {unreadable}; report this kernel to us, with the file")]
    UnreadableCpuIdle {
        /// Where the descriptions are.
        at_byte: u64,
        /// What the description lacks.
        unreadable: UnreadableTracepoint,
    },
}
