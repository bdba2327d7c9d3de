//! Describes this machine, and records what its CPUs do when they are idle. This is the only crate
//! that looks at the machine it runs on.
//!
//! | file | holds |
//! | --- | --- |
//! | `root.rs` | [`Root`]: the file system to read, the machine's own or a captured one |
//! | `beneath.rs` | opens files below a root without following links, for writing as root |
//! | `cpuidle.rs` | idle states as sysfs shows them, and as a machine file |
//! | `core_kinds.rs` | [`CoreKinds`]: the kinds of cores of a hybrid machine |
//! | `counts.rs` | [`CountsReader`]: what the kernel counts about each CPU's states, and differences |
//! | `groups.rs` | [`groups()`]: CPUs that behaved alike between two readings |
//! | `clock.rs` | [`MachineClock`]: the time on a machine, captured or not |
//! | `noise.rs` | [`noise::Noise`]: wake-ups and load of some CPUs |
//! | `note.rs` | [`note()`]: everything that a trace should say about the machine |
//! | `profile/` | [`profile::check_profile`]: whether a profile does what it intends here |
//! | `boot.rs` | [`boot_machine`]: what decides the idle routine at boot |
//! | `live.rs` | [`IdleCounters`]: counts of idle entries, for a live summary |
//! | `tracefs.rs` | [`Tracefs`], and an instance of our own in it |
//! | `topology.rs` | [`Relation`]: how far apart two CPUs are |
//! | `waiting.rs` | [`waiting_facts`]: what can affect a waiting thread |
//! | `energy.rs` | [`energy::EnergyMeter`]: energy that RAPL or a battery counts |
//! | `watch/` | what is watched besides counts: idle times, latency limits, where CPUs are |
//! | `counters/` | [`counters::CounterPlan`]: the counters that say what idle CPUs do |
//! | `histogram/` | [`histogram::Layout`]: BPF programs that count idle stays inside the kernel |
//! | `ipi/` | measures the cost of waking an idle CPU, with the kernel module idlewise_bench ([`ipi::measure`]) |
//! | `state_lock.rs` | the lock on idle states, for what forces them |
//! | `settings/` | changes settings of idle states so that they are always given back ([`settings::apply()`]) |
//! | `states/` | how long CPUs take to leave their idle states, and what these draw ([`states::measure_states`]) |
//! | `surroundings.rs` | what runs around this process: hypervisor, container, capabilities, what modules need |
//! | `record/`, `record_error.rs` | [`Recording`]: from start to trace.dat |
//!
//! This crate does not decode events or compute statistics, and restores settings it changes.
#![forbid(unsafe_code)]

mod beneath;
mod boot;
mod clock;
mod core_kinds;
pub mod counters;
mod counts;
mod cpuidle;
pub mod energy;
mod groups;
pub mod histogram;
pub mod ipi;
mod live;
pub mod noise;
mod note;
pub mod profile;
mod record;
mod record_error;
mod root;
pub mod settings;
mod state_lock;
pub mod states;
pub mod surroundings;
mod topology;
mod tracefs;
mod waiting;
pub mod watch;

pub use boot::{BootMachine, boot_machine, dumped_machine};
pub use clock::MachineClock;
pub use core_kinds::CoreKinds;
pub use counts::{
    Counts, CountsError, CountsReader, CpuCounts, CpuDifference, Difference, StateCounts,
    StateDifference, Unusable,
};
pub use groups::{AlikeCpus, Grouping, groups};
pub use idlewise_trace::show_cpu_list;
pub use live::IdleCounters;
pub use note::{compare as note_changes, latency_limits_ns, note};
pub use record::{
    Progress, RecordError, Recording, RecordingSummary, WakeWatch, check_event_descriptions,
    check_recording,
};
pub(crate) use root::cpu_is_in;
pub use root::{CpuListError, Root, parse_cpu_list};
pub use topology::{Relation, is_virtual_machine, one_of_each_relation};
pub use tracefs::Tracefs;
pub use waiting::{CpuTicks, cpu_ticks, load_average, steal_ticks, waiting_facts};
