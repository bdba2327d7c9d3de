//! Measures ways to park a thread side by side, and other costs of waiting.
//!
//! | file | holds |
//! | --- | --- |
//! | `command.rs` | [`Command`]: options and files |
//! | `bench.rs` | [`Bench`]: all contenders on all workloads |
//! | `report/` | what is made of a measurement: tables, goals, page, plots |
//! | `contenders.rs` | [`contenders()`]: ours and everything it is compared with, behind two traits |
//! | `workload.rs` | [`Workload`]: when wakes are due |
//! | `run.rs` | [`run()`]: contenders on one workload, interleaved in changing order |
//! | `throughput.rs` | [`throughput()`]: round trips with more threads than CPUs |
//! | `calls.rs` | [`call_costs`]: calls that do not wait |
//! | `timeouts.rs` | [`timeout_costs`]: waits that time out |
//! | `mwaitx.rs` | [`probe_mwaitx`]: MWAITX where CPUID hides it |
//! | `random.rs` | orders and gaps that a seed determines |
#![cfg(target_os = "linux")]

mod bench;
mod calls;
mod command;
mod contenders;
mod mwaitx;
mod random;
pub mod report;
mod run;
mod throughput;
mod timeouts;
mod workload;

pub use bench::{Bench, PROBE_MWAITX, ParkRequest, try_instructions};
pub use calls::{
    CALLS, CHANNEL_ITEM, CallCost, READY_TOKEN, SET_TOKEN, SET_TOKEN_BY_TWO, call_costs,
};
pub use command::Command;
pub use contenders::{Contender, FUTEX, MWAITX, OURS, contenders};
pub use mwaitx::{MwaitxProbe, PROBE_TIMER_TICKS, REFUSED_STATUS, mwaitx_missing, probe_mwaitx};
pub use run::{Figures, Load, Settings, run};
pub use throughput::{Throughput, throughput};
pub use timeouts::{TIMEOUTS, TimeoutCost, timeout_costs};
pub use workload::{Workload, WorkloadError};
