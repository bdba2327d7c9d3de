//! Thread parking that chooses how to wait, the way a kernel chooses an idle state.
//!
//! A waiting thread faces the same choice as an idle CPU. A wait that is too shallow burns power and
//! takes cycles from the sibling thread. One that is too deep costs a system call and a late wake-up.
//! This crate knows what each way to wait costs on this machine. It learns how long each waiter's gaps
//! are, picks a state, and moves to a deeper one if the wait lasts longer than expected.
//!
//! | file | holds |
//! | --- | --- |
//! | `parker.rs` | [`Parker`], [`Unparker`]: one thread waits, any number wake it |
//! | `raw.rs` | [`RawParker`], `ProcessParker`: parkers of one word, to embed |
//! | `word.rs` | [`word`]: sleeping while a word has a given value, with the platform's own call |
//! | `waker.rs` | unparkers as wakers of tasks, [`block_on`] |
//! | `wait_set.rs` | [`WaitSet`]: one thread waits for any of several bells |
//! | `channel/` | [`channel`]: bounded, unbounded or for one item; for threads and tasks |
//! | `idle.rs` | [`Idle`]: a scheduler's idle workers: park one, wake one, wake many |
//! | `event_bell/` | `EventBell`: a doorbell for threads that sleep in epoll or io_uring (Linux) |
//! | `waiter/` | the idle loop: select, enter, be woken, reflect; and the interface to clock and OS |
//! | `outcome.rs` | [`ParkOutcome`]: how a wait ended |
//! | `poll_limit.rs` | the governor: how long a waiter that pays for it polls before it sleeps |
//! | `table.rs` | [`WaitTable`]: the states of this machine, [`ASSUMED`] costs, the environment |
//! | `learn.rs` | what sleeping costs here, learnt from real wake-ups |
//! | `load.rs` | when not to poll: oversubscription, preemption |
//! | `budget.rs` | how much CPU time polling may burn ([`CPU_BUDGET_DEFAULT_PERMILLE`]) |
//! | `stats.rs` | [`WaitStats`] |
//! | `event_count.rs` | [`EventCount`]: many threads and tasks wait for a condition |
//! | `semaphore.rs` | [`Semaphore`]: many threads and tasks wait for permits |
//! | `lock.rs` | `RawMutex`, `Mutex`, `Condvar` (feature `lock_api`) |
//! | `line.rs` | the queue of threads and tasks that wait for a condition, called one at a time |
//! | `sync.rs` | `std`'s locks and atomics, or loom's |
//! | `model.rs` | the parker used in loom's models |
//! | `clock.rs` | the clock: the CPU's counter where it is steady |
//! | `wait/` | [`wait::WaitMethod`]s, one file per platform |
//!
//! The protocol between a waiter and its wakers is `idlewise_core::Doorbell`; loom checks it there.
//!
//! This crate does not pin or start threads. The only things it reads from sysfs are the OS's clock
//! source, its limits on UMWAIT and the process's CPU quota.

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

// Loom's models leave out the machine and the choice of a state.
#[cfg(not(loom))]
mod budget;
#[cfg(not(loom))]
mod learn;
#[cfg(not(loom))]
mod load;
#[cfg(not(loom))]
mod parker;
#[cfg(not(loom))]
mod poll_limit;
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
