//! Measures ways to park a thread side by side, and what else a program can measure by system calls.
//!
//! | file | holds |
//! | --- | --- |
//! | `contenders.rs` | [`contenders()`]: ours and everything it is compared with, behind two traits |
//! | `workload.rs` | [`Workload`]: when wakes are due |
//! | `run.rs` | [`run()`]: contenders on one workload, interleaved in changing order |
//! | `throughput.rs` | [`throughput()`]: round trips with more threads than CPUs |
//! | `calls.rs` | [`call_costs`]: calls that do not wait |
//! | `timeouts.rs` | [`timeout_costs`]: waits that time out |
//! | `mwaitx.rs` | [`probe_mwaitx`]: MWAITX where CPUID hides it |
//! | `switch.rs` | [`switch_slice`]: two threads that pass a token |
//! | `wake.rs` | [`futex_wakes`], [`membarriers`], [`timer_wakes`]: wakes as user space sees them |
//! | `launch.rs` | [`launches`]: the same at chosen distances, each wake looked at |
//! | `perf.rs` | [`PerfCounter`]: a counter of perf |
//! | `bpf.rs` | [`BpfMap`], [`BpfProbe`]: a BPF program at a tracepoint |
//! | `random.rs` | orders and gaps that a seed determines |
//!
//! This crate does not print, judge, or look at the machine. It is a crate of its own so that
//! nothing else of ours depends on the libraries that it measures.
#![cfg(target_os = "linux")]

mod bpf;
mod calls;
mod contenders;
mod launch;
mod mwaitx;
mod perf;
mod random;
mod run;
mod switch;
mod throughput;
mod timeouts;
mod wake;
mod workload;

pub use bpf::{BpfMap, BpfProbe};
pub use calls::{
    CALLS, CHANNEL_ITEM, CallCost, READY_TOKEN, SET_TOKEN, SET_TOKEN_BY_TWO, call_costs,
};
pub use contenders::{Contender, FUTEX, MWAITX, OURS, contenders};
pub use launch::{Between, Launch, launches};
pub use mwaitx::{MwaitxProbe, PROBE_TIMER_TICKS, REFUSED_STATUS, mwaitx_missing, probe_mwaitx};
pub use perf::{PerfCounter, PerfEvent};
pub use run::{Figures, Load, Settings, allowed_cpus, pin_to, run, waiter_cpu, waker_cpu};
pub use switch::{SwitchSlice, SwitchWay, switch_slice};
pub use throughput::{Throughput, throughput};
pub use timeouts::{TIMEOUTS, TimeoutCost, timeout_costs};
pub use wake::{
    FutexWakes, Membarriers, TimerWakes, futex_calls, futex_wakes, membarriers, sleep_periodically,
    timer_wakes,
};
pub use workload::{Workload, WorkloadError};
