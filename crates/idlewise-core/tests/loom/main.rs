//! Models of the waiting protocols, explored by loom: every interleaving and every value that the
//! memory model lets a load return. `make loom` runs them without a bound on preemptions, `make test`
//! with at most three (`LOOM_MAX_PREEMPTIONS`); each prints how many executions there were. Each model has broken twins, which loom must fail.
#![cfg(loom)]
#![allow(clippy::print_stdout, reason = "says how many executions there were")]

mod bells;
mod doorbell;
mod idle_set;

use std::sync::atomic::Ordering;

use idlewise_core::model::{explore, must_fail};
use loom::thread::Thread;

/// The kernel's futex. A real one compares the word with SLEEPING and sleeps in one step. Loom's park
/// remembers a wake that comes before it, which is equivalent.
struct Kernel {
    sleeper: Thread,
    /// How often a waker made the system call. Used for checks; not part of the model.
    wake_count: std::sync::atomic::AtomicU32,
}

impl Kernel {
    /// Creates a kernel in which only the calling thread sleeps.
    fn new() -> Self {
        Kernel { sleeper: loom::thread::current(), wake_count: Default::default() }
    }

    /// Sleeps until woken. Loom reports a deadlock if that never happens.
    fn wait(&self) {
        loom::thread::park();
    }

    fn wake(&self) {
        self.wake_count.fetch_add(1, Ordering::Relaxed);
        self.sleeper.unpark();
    }
}
