//! Measures ways to park a thread side by side, and other costs of waiting.
//!
//! | file | holds |
//! | --- | --- |
//! | `bench.rs` | [`Bench`]: what `idlewise measure park` runs |
//! | `contenders.rs` | [`contenders()`]: ours and everything it is compared with, behind two traits |
//! | `workload.rs` | [`Workload`]: when wakes are due |
//! | `run.rs` | [`run()`]: contenders on one workload, interleaved in changing order |
//! | `throughput.rs` | [`throughput()`]: round trips with more threads than CPUs |
//! | `calls.rs` | [`call_costs`]: calls that do not wait |
//! | `timeouts.rs` | [`timeout_costs`]: waits that time out |
//! | `mwaitx.rs` | [`probe_mwaitx`]: MWAITX where CPUID hides it |
//! | `random.rs` | orders and gaps that a seed determines |
//!
//! Options, files and tables are the command's (`crates/idlewise-cli/src/cmd/measure/park.rs`). The program of this crate
//! is the command with [`Bench`] inside, so the command itself depends on none of the libraries that are measured here.
#![cfg(target_os = "linux")]

mod bench;
mod calls;
mod contenders;
mod mwaitx;
mod random;
mod run;
mod throughput;
mod timeouts;
mod workload;

pub use bench::{Bench, PROBE_MWAITX, try_instructions};
pub use calls::{
    CALLS, CHANNEL_ITEM, CallCost, READY_TOKEN, SET_TOKEN, SET_TOKEN_BY_TWO, call_costs,
};
pub use contenders::{Contender, FUTEX, MWAITX, OURS, contenders};
pub use mwaitx::{MwaitxProbe, PROBE_TIMER_TICKS, REFUSED_STATUS, mwaitx_missing, probe_mwaitx};
pub use run::{Figures, Load, Settings, run};
pub use throughput::{Throughput, throughput};
pub use timeouts::{TIMEOUTS, TimeoutCost, timeout_costs};
pub use workload::{Workload, WorkloadError};
