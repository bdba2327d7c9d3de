//! Describes this machine, and records what its CPUs do when they are idle. This is the only crate
//! that looks at the machine it runs on.
//!
//! | file | holds |
//! | --- | --- |
//! | `root.rs` | [`Root`]: the file system to read, the machine's own or a captured one |
//! | `cpuidle.rs` | idle states as sysfs shows them, and as a machine file |
//! | `note.rs` | [`note()`]: everything that a trace should say about the machine |
//! | `boot.rs` | [`boot_machine`]: what decides the idle routine at boot |
//! | `live.rs` | [`IdleCounters`]: counts of idle entries, for a live summary |
//! | `tracefs.rs` | [`Tracefs`], and an instance of our own in it |
//! | `topology.rs` | [`Relation`]: how far apart two CPUs are |
//! | `waiting.rs` | [`waiting_facts`]: what can affect a waiting thread |
//! | `counters/` | [`counters::CounterPlan`]: the counters that say what idle CPUs do |
//! | `ipi/` | measures the cost of waking an idle CPU, with the kernel module idlewise_bench ([`ipi::measure`]) |
//! | `record/` | [`Recording`]: from start to trace.dat |
//!
//! This crate does not decode events or compute statistics, and restores settings it changes.
#![forbid(unsafe_code)]

mod boot;
pub mod counters;
mod cpuidle;
pub mod ipi;
mod live;
mod note;
mod record;
mod root;
mod topology;
mod tracefs;
mod waiting;

pub use boot::{BootMachine, boot_machine, dumped_machine};
pub use live::IdleCounters;
pub use note::note;
pub use record::{Progress, RecordError, Recording, RecordingSummary, WakeWatch};
pub use root::Root;
pub use topology::{Relation, is_virtual_machine, one_of_each_relation};
pub use tracefs::Tracefs;
pub use waiting::{load_average, steal_ticks, waiting_facts};
