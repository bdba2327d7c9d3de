//! What a waiter's waits were like.

use idlewise_core::STATE_COUNT_MAX;

/// Counts since the waiter was made. A wait is one that did not find its token there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitStats {
    /// Waits, woken or not.
    pub waits: u64,
    /// Those that the deadline ended.
    pub timeouts: u64,
    /// How often each state of the table was entered, shallowest first.
    pub entered: [u64; STATE_COUNT_MAX],
    /// Time in each state, in nanoseconds.
    pub residency_ns: [u64; STATE_COUNT_MAX],
    /// Waits whose last state was too deep: shorter than its target residency.
    pub too_deep: u64,
    /// Waits whose last state was too shallow: long enough for the next deeper one.
    pub too_shallow: u64,
    /// Moves to a deeper state because a wait went on.
    pub promotions: u64,
    /// Waits that ended by the waker's store, without a system call on either side.
    pub store_wakes: u64,
    /// System calls made by wakers.
    pub wake_calls: u64,
    /// Wake-ups that cost nothing because one was in flight or a token was there. `None`: not counted,
    /// because counting them doubles what they cost; for a parker the feature `free-rides` does.
    pub free_rides: Option<u64>,
    /// Waits that did not poll because there were more runnable threads that wait like this than CPUs.
    pub oversubscribed: u64,
    /// Waits that did not poll because polls had been preempted, or the CPU budget was spent.
    pub not_polled: u64,
    /// Polls during which somebody else got the CPU.
    pub preempted: u64,
}

impl WaitStats {
    /// System calls that a futex would have made and this waiter and its wakers did not: two for
    /// each wait that a store ended.
    pub fn saved_calls(&self) -> u64 {
        2 * self.store_wakes
    }
}
