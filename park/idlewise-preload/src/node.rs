//! A waiter's place in a condition variable's queue. `condvar.rs` draws its states and numbers their edges.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use idlewise_park::RawParker;

/// A waiter's place in the queue, on its stack.
pub(crate) struct Node {
    pub(crate) state: AtomicU32,
    pub(crate) parker: RawParker,
    // Both are protected by the lock.
    pub(crate) before: AtomicPtr<Node>,
    pub(crate) after: AtomicPtr<Node>,
}

pub(crate) const QUEUED: u32 = 0;
pub(crate) const SIGNALLED: u32 = 1;
pub(crate) const LEAVING: u32 = 2;
pub(crate) const CANCELLED: u32 = 3;

impl Node {
    /// Takes an edge. Returns `false` if another was taken before.
    pub(crate) fn take_edge(&self, to: u32) -> bool {
        self.state.compare_exchange(QUEUED, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Edge 4: wakes the waiter although nobody signalled.
    pub(crate) fn cancel(&self) {
        if self.take_edge(CANCELLED) {
            self.parker.unpark();
        }
    }
}
