//! Ways to park a thread, measured side by side.
//!
//! | file | holds |
//! | --- | --- |
//! | `contenders.rs` | [`contenders()`]: ours and all that it is compared with, behind one pair of traits |
//! | `workload.rs` | [`Workload`]: when wakes are due |
//! | `run.rs` | [`run()`]: all contenders on one workload, interleaved |
//! | `throughput.rs` | [`throughput()`]: round trips with more threads than CPUs |
//!
//! What this crate does not do: print. Its dependencies are why it is a crate: nothing else
//! of ours may depend on the libraries that it measures.
#![cfg(target_os = "linux")]

mod contenders;
mod run;
mod throughput;
mod workload;

pub use contenders::{Contender, FUTEX, OURS, contenders};
pub use run::{Figures, Load, Settings, ready_token_ns, run, waiter_cpu};
pub use throughput::{Throughput, throughput};
pub use workload::{Workload, WorkloadError};
