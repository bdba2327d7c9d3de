//! The idle loop for threads: park without paying.
//!
//! A waiting thread is an idle CPU in small. Too shallow a wait burns power and the sibling's
//! cycles, too deep a one pays a system call and a late wake-up on each side. This crate waits the
//! way a kernel idles: it knows what each state costs here, learns each waiter's gaps, picks a
//! state, and moves on to a deeper one when a wait lasts longer than expected.
//!
//! | file | holds |
//! | --- | --- |
//! | `parker.rs` | [`Parker`], [`Unparker`]: one thread waits, any number wake it |
//! | `raw.rs` | [`RawParker`], `ProcessParker`: parkers of one word, to embed |
//! | `word.rs` | [`word`]: sleeping while a word has a value, the platform's own way |
//! | `waker.rs` | unparkers as wakers of tasks, [`block_on`] |
//! | `wait_set.rs` | [`WaitSet`]: one thread waits for any of several bells |
//! | `channel/` | [`channel`]: bounded, unbounded or for one item; for threads and tasks |
//! | `idle.rs` | [`Idle`]: a scheduler's idle workers: park one, wake one, wake many |
//! | `event_bell/` | `EventBell`: a doorbell for threads that sleep in epoll or io_uring (Linux) |
//! | `waiter/` | the idle loop: select, enter, be woken, reflect; and the world that it sees |
//! | `outcome.rs` | [`ParkOutcome`]: how a wait ended |
//! | `table.rs` | [`WaitTable`]: the states of this machine, [`ASSUMED`] costs, the environment |
//! | `learn.rs` | what sleeping costs here, learnt from real wake-ups |
//! | `load.rs` | when not to poll: oversubscription, preemption |
//! | `budget.rs` | how much CPU time polling may burn ([`CPU_BUDGET_DEFAULT_PERMILLE`]) |
//! | `stats.rs` | [`WaitStats`] |
//! | `event_count.rs` | [`EventCount`]: many threads and tasks wait for a condition |
//! | `semaphore.rs` | [`Semaphore`]: for permits |
//! | `lock.rs` | `RawMutex`, `Mutex`, `Condvar` (feature `lock_api`) |
//! | `line.rs` | threads and tasks that wait for a condition, called one by one |
//! | `sync.rs` | `std`'s locks and atomics, or loom's |
//! | `model.rs` | the parker that loom's models wait with |
//! | `clock.rs` | the clock: the CPU's counter where it is steady |
//! | `wait/` | [`wait::WaitMethod`]s, one file per platform |
//!
//! The protocol between waiter and wakers is `idlewise_core::Doorbell`, explored by loom there.
//!
//! What this crate does not do: read more of sysfs than the OS's clock source, its limits on UMWAIT and
//! the process's CPU quota, pin threads, or start any.

#![cfg_attr(loom, allow(dead_code, unused_imports, reason = "a model has no clock"))]

pub mod channel;
mod clock;
#[cfg(target_os = "linux")]
mod event_bell;
mod event_count;
mod idle;
mod line;
#[cfg(all(feature = "lock_api", not(loom)))]
mod lock;
mod outcome;
mod semaphore;
mod stats;
mod sync;
mod wait_set;

// What a model leaves out: the machine, and the choice of a state.
#[cfg(not(loom))]
mod budget;
#[cfg(not(loom))]
mod learn;
#[cfg(not(loom))]
mod load;
#[cfg(not(loom))]
mod parker;
#[cfg(not(loom))]
mod raw;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
pub mod wait;
#[cfg(not(loom))]
mod waiter;
#[cfg(not(loom))]
mod waker;
#[cfg(not(loom))]
pub mod word;

#[cfg(loom)]
#[path = "wait/condvar.rs"]
pub mod condvar;
#[cfg(loom)]
#[path = "model.rs"]
mod parker;

#[cfg(not(loom))]
pub use budget::{
    CPU_BUDGET_DEFAULT_PERMILLE, CPU_BUDGET_QUOTA_PERMILLE, CPU_BUDGET_VARIABLE,
    cpu_budget_permille, set_cpu_budget_permille,
};
#[cfg(target_os = "linux")]
pub use event_bell::{EventBell, EventUnparker, Polled};
pub use event_count::EventCount;
pub use idle::{Idle, IdleWorker};
#[cfg(all(feature = "lock_api", not(loom)))]
pub use lock::{Condvar, Mutex, RawMutex};
pub use outcome::ParkOutcome;
pub use parker::{Parker, ParkerBuilder, Unparker};
#[cfg(all(target_os = "linux", not(loom)))]
pub use raw::ProcessParker;
#[cfg(not(loom))]
pub use raw::RawParker;
pub use semaphore::{Permit, Semaphore};
pub use stats::WaitStats;
#[cfg(not(loom))]
pub use table::{
    ASSUMED, Basis, CALIBRATE_VARIABLE, LATENCY_PRICE_DEFAULT, STATES_VARIABLE, WaitState,
    WaitTable, WaitTableError,
};
pub use wait_set::{Bell, Rung, WaitSet};
#[cfg(not(loom))]
pub use waker::block_on;
