//! Imports traces and turns them into idle logs.
//!
//! | file | holds |
//! | --- | --- |
//! | `import/` | the importers, a file or folder for each format |
//! | `tracepoint/` | every tracepoint, once: what we read of it and who records it; [`tracepoint::Decoder`] |
//! | `byte_order.rs` | [`ByteOrder`] |
//! | `event.rs` | [`Event`]: what every importer passes to the gap builder |
//! | `builder.rs` | [`GapBuilder`]: turns events into gaps; explains what a gap is |
//! | `evidence.rs` | which claims a trace supports, given what was recorded |
//! | `doubt.rs` | [`Doubt`]: reasons to distrust a log, and how serious they are |
//! | `driver.rs` | [`Driver`]: a kernel's cpuidle driver, or none |
//! | `cpu_facts.rs` | [`CpuFacts`]: what is known about CPUs before the first event |
//! | `cpu_groups.rs` | [`CpuGroups`]: which CPUs form a core, a cluster or a package |
//! | `tick.rs`, `timers.rs` | finds the tick in a trace; tracks which timers are armed where |
//! | `file_identity.rs` | [`FileIdentity`]: whether a file is still the one that was opened |
//! | `gap.rs` | [`IdleGap`]: a row of the idle log |
//! | `log/` | [`log::IdleLog`], [`log::LogWriter`]: the idle log as a Parquet file; [`validate`]: what it must satisfy |
//! | `log_error.rs` | [`log::LogError`]: why a log cannot be read or written |
//! | `export/` | [`export`]: logs in other programs' formats |
//! | `output.rs` | [`OutputFile`]: what may be written where; no file appears until it is complete |
//! | `small_file.rs` | [`read_small_text`]: files that are read at once |
//! | `machine_note.rs` | [`MachineNote`]: what our recorder writes about the machine |
//! | `convert.rs` | [`convert()`]: converts a trace to a log with its metadata |
//! | `anonymize.rs` | [`anonymize::Anonymized`]: a log without identifying information |
//! | `causes/` | [`causes::StepBuilder`]: what makes tasks run; [`causes::WorkloadLog`]: the workload log as a Parquet file |
//! | `running.rs` | [`running::RunningBuilder`]: which task ran when, and how fast its CPU was |
//! | `histogram.rs` | [`histogram::IdleHistogram`]: idle stays that were counted, without their order |
//! | `wakes.rs` | [`wakes::WakeCounter`]: who woke idle CPUs, and how |
//!
//! This crate does not look at the machine it runs on, and does not panic on any input.
//!
//! # Features
//!
//! All are on by default. Without any, there are gaps, what they are built from, and what makes tasks run.
//!
//! * `log`: the idle log and the workload log as files (Parquet), and what works on them.
//! * `import`: the importers; needs `log`.
//! * `export`: other programs' formats (Arrow, CSV, Perfetto); needs `log`.
//!
#![cfg_attr(feature = "log", doc = "```no_run")]
#![cfg_attr(not(feature = "log"), doc = "```ignore")]
//! use std::path::Path;
//!
//! use idlewise_trace::log::IdleLog;
//!
//! let log = IdleLog::open(Path::new("server.parquet"))?;
//! let mut gaps = Vec::new();
//! for group in log.groups() {
//!     log.read_group(group, None, &mut gaps)?;
//!     for gap in &gaps {
//!         println!("CPU {} was idle for {} ns, woken by {}", gap.cpu, gap.gap_ns, gap.wake_reason);
//!     }
//! }
//! # Ok::<(), idlewise_trace::log::LogError>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "import"),
    allow(dead_code, unused_imports, reason = "what only importers and recordings use")
)]

#[cfg(feature = "log")]
pub mod anonymize;
mod builder;
mod byte_order;
pub mod causes;
#[cfg(feature = "import")]
mod convert;
mod cpu_facts;
mod cpu_groups;
mod doubt;
mod driver;
mod event;
mod evidence;
#[cfg(feature = "export")]
pub mod export;
mod file_identity;
mod gap;
pub mod histogram;
#[cfg(feature = "import")]
pub mod import;
#[cfg(feature = "log")]
pub mod log;
mod log_error;
mod machine_note;
#[cfg(feature = "log")]
mod output;
pub mod running;
mod small_file;
mod tick;
mod timers;
pub mod tracepoint;
pub mod wakes;

pub use builder::{CpuSummary, GapBuilder, GapSink, GapSummary, HELD_GAP_COUNT, UnknownState};
pub use byte_order::ByteOrder;
#[cfg(feature = "import")]
pub use convert::{ConvertError, RecordedMachine, convert};
pub use cpu_facts::CpuFacts;
pub use cpu_groups::{
    CpuGroups, CpuGroupsError, cpu_list_in_words, cpus_in_words, short_cpu_list, show_cpu_list,
};
pub use doubt::{Doubt, List, Rank};
pub use driver::Driver;
pub use event::{Event, EventKind, Leaving, NonZeroTask, TaskName, Tracepoints, WakeContext};
pub use file_identity::FileIdentity;
pub use gap::{IdleGap, WakeReason};
#[cfg(feature = "log")]
pub use log::validate;
pub use machine_note::{MachineNote, NOTE_VERSION, NotedTable};
#[cfg(feature = "log")]
pub use output::{OutputFile, OutputOptions, end_without_partial_files, unnamed_file};
pub use small_file::{
    TEXT_BYTE_COUNT_MAX, open_regular, read_small_file, read_small_file_of, read_small_text,
    read_small_text_of,
};
pub use tick::Tick;
pub use tracepoint::{TracepointName, WantedEvent, cause_events, wake_events, wanted_events};
