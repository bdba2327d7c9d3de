//! The idle log: gaps as a Parquet file.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | the schema and the metadata |
//! | `write.rs` | [`LogWriter`]: gaps in, sorted file out |
//! | `read.rs` | [`IdleLog`]: metadata, and gaps by CPU |
//! | `footer.rs` | where in the file which column of which row group is |
//! | `pages.rs` | a column's pages, unpacked and checked |
//! | `validate.rs` | [`validate::validate`]: what a log must satisfy before its numbers are trusted |
//! | `thrift.rs` | the encoding of the footer and of the pages' headers |
//!
//! Rows are sorted by CPU, then by time. A row group holds gaps of one CPU, so that CPUs can be
//! read in parallel and memory stays bounded. The columns have the names of the fields of
//! [`crate::IdleGap`]. Everything else is JSON in the file's key-value metadata, under `idlewise`.

pub(crate) mod footer;
pub(crate) mod pages;
mod read;
mod thrift;
pub mod validate;
pub(crate) mod write;

use std::sync::Arc;

use idlewise_machine::Machine;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as PhysicalType};
use parquet::schema::types::{Type, TypePtr};
use serde::{Deserialize, Serialize};

use crate::CpuGroups;
use crate::{CpuSummary, Doubt, Driver, WakeReason};

pub(crate) use crate::log_error::Refused;
pub use crate::log_error::{FORMAT_VERSION, LogError};
pub use read::{ColumnSet, GapGroup, GroupRows, IdleLog};
pub use write::LogWriter;

/// The key of the JSON in the file's key-value metadata.
pub(crate) const METADATA_KEY: &str = "idlewise";

/// The columns, in the order of the file.
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

impl Column {
    const ALL: [Column; 11] = [
        Column::Cpu,
        Column::Start,
        Column::Gap,
        Column::SleepLength,
        Column::NextTick,
        Column::TickStopped,
        Column::RanTask,
        Column::WakeReason,
        Column::LatencyLimit,
        Column::RecordedState,
        Column::RecordedIdle,
    ];

    const fn name(self) -> &'static str {
        match self {
            Column::Cpu => "cpu",
            Column::Start => "start_ns",
            Column::Gap => "gap_ns",
            Column::SleepLength => "sleep_length_ns",
            Column::NextTick => "next_tick_ns",
            Column::TickStopped => "tick_stopped",
            Column::RanTask => "ran_task",
            Column::WakeReason => "wake_reason",
            Column::LatencyLimit => "latency_limit_ns",
            Column::RecordedState => "recorded_state",
            Column::RecordedIdle => "recorded_idle_ns",
        }
    }

    const fn is_nullable(self) -> bool {
        matches!(
            self,
            Column::SleepLength
                | Column::NextTick
                | Column::LatencyLimit
                | Column::RecordedState
                | Column::RecordedIdle
        )
    }

    /// Its form in the file.
    fn form(self) -> Form {
        Form {
            name: self.name(),
            physical: self.schema().get_physical_type(),
            is_nullable: self.is_nullable(),
            number_of: match self {
                Column::WakeReason => Some(WakeReason::number_of),
                _ => None,
            },
        }
    }

    fn schema(self) -> TypePtr {
        let integer = |bits, signed| LogicalType::integer(bits, signed);
        let (physical, logical) = match self {
            Column::Cpu => (PhysicalType::INT32, Some(integer(16, false))),
            Column::Start => (PhysicalType::INT64, None),
            Column::Gap | Column::SleepLength | Column::LatencyLimit | Column::RecordedIdle => {
                (PhysicalType::INT64, Some(integer(64, false)))
            }
            Column::NextTick => (PhysicalType::INT32, Some(integer(32, false))),
            Column::TickStopped | Column::RanTask => (PhysicalType::BOOLEAN, None),
            Column::WakeReason => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            Column::RecordedState => (PhysicalType::INT32, Some(integer(8, false))),
        };
        let repetition =
            if self.is_nullable() { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        Arc::new(
            Type::primitive_type_builder(self.name(), physical)
                .with_repetition(repetition)
                .with_converted_type(ConvertedType::NONE)
                .with_logical_type(logical)
                .build()
                .expect("the schema is a constant"),
        )
    }
}

/// What a column looks like in a file, of an idle log or another one.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    pub(crate) physical: PhysicalType,
    pub(crate) is_nullable: bool,
    /// For a column of names: a name's number, as which it is decoded.
    pub(crate) number_of: Option<fn(&[u8]) -> i32>,
}

impl Form {
    pub(crate) const fn required(name: &'static str, physical: PhysicalType) -> Self {
        Form { name, physical, is_nullable: false, number_of: None }
    }

    pub(crate) const fn nullable(name: &'static str, physical: PhysicalType) -> Self {
        Form { is_nullable: true, ..Form::required(name, physical) }
    }
}

/// The names of the columns, in the order of the file.
pub fn column_names() -> [&'static str; 11] {
    Column::ALL.map(Column::name)
}

fn schema() -> TypePtr {
    let fields = Column::ALL.into_iter().map(Column::schema).collect();
    Arc::new(
        Type::group_type_builder("idle_gap")
            .with_fields(fields)
            .build()
            .expect("the schema is a constant"),
    )
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
