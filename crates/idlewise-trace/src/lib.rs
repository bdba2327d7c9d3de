//! Traces in, idle logs out.
//!
//! | file | holds |
//! | --- | --- |
//! | `tracepoint.rs` | [`tracepoint::Decoder`]: the kernel's event formats, compiled |
//! | `import/` | the importers: [`import::perf`] |
//! | `event.rs` | [`Event`]: what every importer hands to the gap builder |
#![forbid(unsafe_code)]

mod builder;
mod byte_order;
mod event;
mod gap;
pub mod import;
pub mod log;
mod tick;
mod timers;
pub mod tracepoint;

pub use byte_order::ByteOrder;
pub use builder::{CpuSummary, GapBuilder, GapSink, GapSummary, HELD_GAP_COUNT};
pub use event::{Event, EventKind, Tracepoints};
pub use gap::{IdleGap, WakeReason};
pub use tick::{Tick, tick_period_ns};
