//! Counters of what idle CPUs do: which of them a machine has, how to open those of perf, and how to
//! read the others.
//!
//! | file | holds |
//! | --- | --- |
//! | `pmu.rs` | [`Pmu`]: a counting unit of perf in sysfs, and its events as numbers |
//! | `catalog.rs` | [`CounterPlan`]: the counters to open, and those that the machine lacks |
//! | `files.rs` | [`FileCounters`]: interrupts and requested idle states, which the kernel counts in files |
//!
//! What was requested (cpuidle), what a core did, what a module or a package did are different
//! counters with different names: a request for C6 may end as C1.
//!
//! This crate does not call perf_event_open.

mod catalog;
mod files;
mod pmu;

pub use catalog::{Base, CounterPlan, CounterSpec, Lack, Meaning, Scope};
pub use files::{FileCounters, FileMeaning, FileMeter};
pub use pmu::{Event, Pmu};
