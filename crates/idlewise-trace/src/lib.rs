//! Traces in, idle logs out.
//!
//! | file | holds |
//! | --- | --- |
//! | `event.rs` | [`Event`]: what every importer hands to the gap builder |
#![forbid(unsafe_code)]

mod builder;
mod event;
mod gap;
pub mod log;
mod tick;
mod timers;

pub use builder::{CpuSummary, GapBuilder, GapSink, GapSummary, HELD_GAP_COUNT};
pub use event::{Event, EventKind, Tracepoints};
pub use gap::{IdleGap, WakeReason};
pub use tick::{Tick, tick_period_ns};
