//! Traces in, idle logs out.
//!
//! | file | holds |
//! | --- | --- |
//! | `event.rs` | [`Event`]: what every importer hands to the gap builder |
#![forbid(unsafe_code)]

mod event;

pub use event::{Event, EventKind, Tracepoints};
