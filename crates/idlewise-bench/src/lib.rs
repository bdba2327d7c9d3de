//! Ways to park a thread, measured side by side.
//!
//! | file | holds |
//! | --- | --- |
//! | `contenders.rs` | [`contenders()`]: ours and all that it is compared with, behind one pair of traits |
//! | `workload.rs` | [`Workload`]: when wakes are due |
//! | `run.rs` | [`run()`]: contenders on one workload, interleaved in changing order |
//! | `throughput.rs` | [`throughput()`]: round trips with more threads than CPUs |
//! | `calls.rs` | [`call_costs`]: calls that wait for nobody |
//! | `timeouts.rs` | [`timeout_costs`]: waits that nobody ends |
//! | `mwaitx.rs` | [`probe_mwaitx`]: MWAITX where CPUID hides it |
//! | `random.rs` | orders and gaps that a seed determines |
//!
//! What this crate does not do: print, judge, or look at the machine. Its dependencies are why it is a
//! crate: nothing else of ours may depend on the libraries that it measures.
#![cfg(target_os = "linux")]

mod calls;
mod contenders;
mod mwaitx;
mod random;
mod run;
mod throughput;
mod timeouts;
mod workload;

pub use calls::{
    CALLS, CHANNEL_ITEM, CallCost, READY_TOKEN, SET_TOKEN, SET_TOKEN_BY_TWO, call_costs,
};
pub use contenders::{Contender, FUTEX, MWAITX, OURS, contenders};
pub use mwaitx::{MwaitxProbe, PROBE_TIMER_TICKS, REFUSED_STATUS, mwaitx_missing, probe_mwaitx};
pub use run::{Figures, Load, Settings, run, waiter_cpu, waker_cpu};
pub use throughput::{Throughput, throughput};
pub use timeouts::{TIMEOUTS, TimeoutCost, timeout_costs};
pub use workload::{Workload, WorkloadError};
