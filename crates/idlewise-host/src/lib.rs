//! This machine: what it is, and a recorder of what its CPUs do when they are idle. The only crate
//! that looks at the machine it runs on.
//!
//! | file | holds |
//! | --- | --- |
//! | `root.rs` | [`Root`]: the file system that everything is read under, the machine's or a captured one |
//! | `cpuidle.rs` | idle states as sysfs shows them, and as a machine file |
//! | `note.rs` | [`note()`]: all that a trace should say about the machine |
//! | `live.rs` | [`IdleCounters`]: idle entries so far, for a live summary |
//! | `tracefs.rs` | [`Tracefs`], and an instance of our own in it |
//! | `topology.rs` | [`Relation`]: how far apart two CPUs are |
//! | `waiting.rs` | [`waiting_facts`]: what can matter to a waiting thread |
//! | `ipi/` | what waking an idle CPU costs, by the kernel module idlewise_bench ([`ipi::measure`]) |
//! | `record/` | [`Recording`]: from start to trace.dat |
//!
//! What this crate does not do: decode events, statistics, or leave changed how the machine idles.
#![forbid(unsafe_code)]

mod cpuidle;
pub mod ipi;
mod live;
mod note;
mod record;
mod root;
mod topology;
mod tracefs;
mod waiting;

pub use live::IdleCounters;
pub use note::note;
pub use record::{Progress, RecordError, Recording, RecordingSummary};
pub use root::Root;
pub use topology::{Relation, is_virtual_machine};
pub use tracefs::Tracefs;
pub use waiting::{load_average, steal_ticks, waiting_facts};
