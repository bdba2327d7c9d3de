//! The idle log: gaps as a Parquet file.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | the schema and the metadata |
//! | `write.rs` | [`LogWriter`]: gaps in, sorted file out |
//! | `read.rs` | [`IdleLog`]: metadata, and gaps by CPU |
//! | `footer.rs` | where in the file which column of which row group is |
//! | `form.rs` | what columns look like in the file: their schema and encodings; workload logs have the same |
//! | `columns.rs` | how columns are written and read, of workload logs too |
//! | `pages.rs` | a column's pages, unpacked and checked |
//! | `validate.rs` | [`validate::validate`]: what a log must satisfy before its numbers are trusted |
//! | `thrift.rs` | the encoding of the footer and of the pages' headers |
//!
//! Rows are sorted by CPU, then by time. A row group holds gaps of one CPU, so that CPUs can be
//! read in parallel and memory stays bounded. The columns have the names of the fields of
//! [`crate::IdleGap`]. Everything else is JSON in the file's key-value metadata, under `idlewise`.

pub(crate) mod columns;
pub(crate) mod footer;
pub(crate) mod form;
mod pages;
mod read;
mod thrift;
pub mod validate;
pub(crate) mod write;

use idlewise_machine::Machine;
use parquet::basic::Type as PhysicalType;
use serde::{Deserialize, Serialize};

use crate::CpuGroups;
use crate::{CpuSummary, Doubt, Driver, WakeReason};

use form::Form;

pub(crate) use crate::log_error::Refused;
pub use crate::log_error::{FORMAT_VERSION, LogError};
pub use read::{ColumnSet, GapGroup, GroupRows, IdleLog};
pub use write::LogWriter;

/// The key of the JSON in the file's key-value metadata.
pub(crate) const METADATA_KEY: &str = "idlewise";

/// The index of each of [`FORMS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Cpu,
    Start,
    Gap,
    SleepLength,
    NextTick,
    TickStopped,
    RanTask,
    WakeReason,
    LatencyLimit,
    RecordedState,
    RecordedIdle,
}

/// The columns, in the order of the file.
const FORMS: [Form; 11] = [
    Form::required("cpu", PhysicalType::INT32).unsigned(16).repetitive(),
    Form::required("start_ns", PhysicalType::INT64),
    Form::required("gap_ns", PhysicalType::INT64).unsigned(64),
    Form::nullable("sleep_length_ns", PhysicalType::INT64).unsigned(64),
    Form::nullable("next_tick_ns", PhysicalType::INT32).unsigned(32),
    Form::required("tick_stopped", PhysicalType::BOOLEAN),
    Form::required("ran_task", PhysicalType::BOOLEAN),
    Form::names("wake_reason", WakeReason::number_of),
    Form::nullable("latency_limit_ns", PhysicalType::INT64).unsigned(64).repetitive(),
    Form::nullable("recorded_state", PhysicalType::INT32).unsigned(8).repetitive(),
    Form::nullable("recorded_idle_ns", PhysicalType::INT64).unsigned(64),
];

/// The names of the columns, in the order of the file.
pub fn column_names() -> [&'static str; 11] {
    FORMS.map(|form| form.name)
}

/// What a log says about itself in addition to its rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogMetadata {
    /// See [`FORMAT_VERSION`].
    pub format_version: u32,
    /// The program that wrote the log.
    pub created_by: String,
    /// Where the gaps come from.
    pub source: LogSource,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// CONFIG_HZ.
    #[serde(default, deserialize_with = "crate::machine_note::hz")]
    pub hz: Option<u32>,
    /// The CPU's model name.
    pub cpu_model: Option<String>,
    /// The machine's architecture, as `uname -m` prints it.
    pub arch: Option<String>,
    /// The cpuidle governor in use.
    pub governor: Option<String>,
    /// The cpuidle driver that was in use.
    pub driver: Option<Driver>,
    /// The machine, with the recorded idle states.
    #[serde(default, deserialize_with = "crate::machine_note::machine")]
    pub machine: Option<Machine>,
    /// Which CPUs form a core, a cluster or a package. Omitted if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<CpuGroups>,
    /// The clock of `start_ns`.
    pub clock: Option<String>,
    /// The CPUs, in order.
    pub cpus: Vec<CpuSummary>,
    /// Columns that are empty because the trace lacked the events they need.
    pub unknown_columns: Vec<String>,
    /// Reasons to distrust the log. In the file they are texts.
    pub doubts: Vec<Doubt>,
}

/// Where a log's gaps come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSource {
    /// `perf.data`, `trace.dat`, or `replay`.
    pub format: String,
    /// The source file's length.
    pub byte_count: u64,
    /// BLAKE3 of the source file, in hex.
    pub blake3: Option<String>,
    /// Events decoded.
    pub event_count: u64,
    /// The recorder's command line, if the trace has it.
    pub command: Option<String>,
}

impl LogMetadata {
    /// Returns whether the column is empty because the trace lacked the events it needs. Columns
    /// that cannot be null then hold what a replay assumes: `ran_task` true, `tick_stopped` false.
    pub fn is_unknown(&self, column: &str) -> bool {
        self.unknown_columns.iter().any(|unknown| unknown == column)
    }

    /// The time from a CPU's first to its last event.
    pub fn span_ns(&self, cpu: u16) -> Option<u64> {
        let cpu = self.cpus.iter().find(|c| c.cpu == cpu)?;
        u64::try_from(cpu.last_at_ns.checked_sub(cpu.first_at_ns)?).ok()
    }
}
