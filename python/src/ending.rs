//! The end of the interpreter, after which no thread may take its lock: the thread's state is gone then, and reaching for
//! it is a segmentation fault. Threads of ours outlive a call only after ctrl-c or a timeout; a daemon thread of Python's
//! may wait in one of our calls.
//!
//! Whoever is about to take the lock holds a [`Ticket`] until it has it, or until it has given it back. When Python runs
//! its exit handlers, [`settle`] ends the sale and waits for those who have one. Who comes later goes without Python.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How many tickets there are, and [`OVER`].
static TICKETS: AtomicUsize = AtomicUsize::new(0);
/// The bit that says that there are no more.
const OVER: usize = 1 << (usize::BITS - 1);
/// How long to wait for tickets. Only a governor that hangs in C keeps one so long.
const PATIENCE: Duration = Duration::from_secs(2);
/// Who waits for the last ticket.
static SETTLER: OnceLock<Thread> = OnceLock::new();

/// The right to take the interpreter's lock.
pub struct Ticket(());

impl Ticket {
    /// `None` if the interpreter is ending.
    pub fn get() -> Option<Self> {
        // In one order with `settle`: it either sees this ticket, or has set the bit that is seen here.
        let is_over = TICKETS.fetch_add(1, Ordering::SeqCst) & OVER != 0;
        let ticket = Ticket(());
        (!is_over).then_some(ticket)
    }

    /// Waits until the process is gone if the interpreter is ending. Not for the thread that ends it.
    pub fn get_or_park() -> Self {
        loop {
            match Ticket::get() {
                Some(ticket) => return ticket,
                None => thread::park(),
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let was_last = TICKETS.fetch_sub(1, Ordering::SeqCst) == OVER | 1;
        if let Some(settler) = SETTLER.get().filter(|_| was_last) {
            settler.unpark();
        }
    }
}

/// Whether exit handlers have run.
pub fn has_begun() -> bool {
    TICKETS.load(Ordering::SeqCst) & OVER != 0
}

/// Runs work on this thread, which may call Python and keeps its place in the interpreter meanwhile: getting one for each
/// call would be slow. `None` if the interpreter is ending before it has begun.
pub fn attached<T>(work: impl FnOnce() -> T) -> Option<T> {
    let ticket = Ticket::get()?;
    // SAFETY: the interpreter is there, as long as there is a ticket. Its lock is given back at once.
    let (place, state) = unsafe {
        let place = pyo3::ffi::PyGILState_Ensure();
        (place, pyo3::ffi::PyEval_SaveThread())
    };
    drop(ticket);
    let result = work();
    // Otherwise the interpreter frees what it knows of this thread.
    if let Some(_ticket) = Ticket::get() {
        // SAFETY: on the same thread, in the opposite order, while there is a ticket.
        unsafe {
            pyo3::ffi::PyEval_RestoreThread(state);
            pyo3::ffi::PyGILState_Release(place);
        }
    }
    Some(result)
}

/// Lets nobody take the interpreter's lock any more, and waits for those who are about to.
#[pyfunction]
pub fn settle(py: Python<'_>) {
    let settler = SETTLER.get_or_init(thread::current);
    TICKETS.fetch_or(OVER, Ordering::SeqCst);
    // Exit handlers run on one thread, unless somebody calls them.
    if settler.id() != thread::current().id() {
        return;
    }
    py.detach(|| {
        let since = Instant::now();
        while TICKETS.load(Ordering::SeqCst) != OVER
            && let Some(left) = PATIENCE.checked_sub(since.elapsed())
        {
            thread::park_timeout(left);
        }
    });
}
