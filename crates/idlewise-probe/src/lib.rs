//! What a program can measure of this machine by system calls.
//!
//! | file | holds |
//! | --- | --- |
//! | `thread.rs` | where threads run ([`pin`], [`allowed_cpus`]), and the futex |
//! | `switch.rs` | [`switch_slice`]: two threads that pass a token |
//! | `wake.rs` | [`futex_wakes`], [`membarriers`], [`timer_wakes`]: wakes as user space sees them |
//! | `launch.rs` | [`launches`]: the same at chosen distances, each wake looked at |
//! | `perf.rs` | [`PerfCounter`]: a counter of perf |
//! | `bpf.rs` | [`BpfMap`], [`BpfProbe`]: a BPF program at a tracepoint |
//!
//! This crate does not print, judge, or read the machine's files. It is a crate of its own because it has unsafe code,
//! which idlewise-host forbids.
#![cfg(target_os = "linux")]

mod bpf;
mod launch;
mod perf;
mod switch;
mod thread;
mod wake;

pub use bpf::{BpfMap, BpfProbe};
pub use launch::{Between, Launch, launches};
pub use perf::{PerfCounter, PerfEvent};
pub use switch::{SwitchSlice, SwitchWay, switch_slice};
pub use thread::{
    allowed_cpus, elapsed_ns, futex_wait, futex_wake, pin, pin_to, waiter_cpu, waker_cpu,
};
pub use wake::{
    FutexWakes, Membarriers, TimerWakes, futex_calls, futex_wakes, membarriers, sleep_periodically,
    timer_wakes,
};
