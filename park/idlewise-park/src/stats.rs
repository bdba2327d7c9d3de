//! [`WaitStats`]: statistics of a waiter's waits.

use idlewise_core::STATE_COUNT_MAX;

/// Counts since the waiter was made. A call that finds its token already there, or its deadline passed, is not a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitStats {
    /// Waits, woken or not.
    pub waits: u64,
    /// Waits that ended at their deadline.
    pub timeouts: u64,
    /// How often each state of the table was entered, shallowest first.
    pub entered: [u64; STATE_COUNT_MAX],
    /// Time in each state, in nanoseconds.
    pub residency_ns: [u64; STATE_COUNT_MAX],
    /// Waits whose last state was too deep: shorter than its target residency.
    pub too_deep: u64,
    /// Waits whose last state was too shallow: long enough for the next deeper one.
    pub too_shallow: u64,
    /// Moves to a deeper state because the wait lasted.
    pub promotions: u64,
    /// Waits that the waker's store ended, without a system call on either side.
    pub store_wakes: u64,
    /// System calls made by wakers.
    pub wake_calls: u64,
    /// Wake-ups that cost nothing because one was in flight or a token was there. `None` means not counted:
    /// counting doubles the cost of a wake-up. For a parker, the feature `free-rides` counts them.
    pub free_rides: Option<u64>,
    /// Waits that did not poll because more threads of this kind were runnable than there are CPUs.
    pub oversubscribed: u64,
    /// Waits that did not poll because earlier polls were preempted, or because the CPU budget was spent.
    pub not_polled: u64,
    /// Polls during which another thread got the CPU.
    pub preempted: u64,
}

impl WaitStats {
    /// Returns the system calls that a futex would have made and that this waiter and its wakers avoided:
    /// two for each wait that a store ended.
    pub fn saved_calls(&self) -> u64 {
        2 * self.store_wakes
    }
}
