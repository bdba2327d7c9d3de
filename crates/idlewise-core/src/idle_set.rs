//! The set of a scheduler's idle workers, from which a thread with work can wake exactly one.
//!
//! ```text
//!   worker i                                submitter
//!   1. enlist(i): set bit i                 a. push work
//!   2.   fence(SeqCst)              ◄─────► b. claim():   fence(SeqCst)
//!   3. look for work once more              c.   find a bit, clear it: that worker is mine
//!   4. wait on the own doorbell             d. ring that worker's doorbell
//!   5. withdraw(i), if nobody claimed
//! ```
//!
//! Each side writes one place and then reads the other's. At least one must see the other; otherwise work
//! is left in the queue while all workers sleep. Only a SeqCst fence between each write and read rules out
//! that both miss (acquire and release order nothing here). Whichever fence comes second in their common
//! order, the code behind it sees what came before the first.
//!
//! An atomic `fetch_and` clears the bit, so only one of several submitters gets the worker. Each wakes a
//! worker of its own or none, and there is no thundering herd. A worker that withdraws by itself and finds
//! its bit gone (step 5) will receive a ring that it does not need, which ends one later wait early.

use crate::sync::{AtomicU64, Ordering, breaks, fence};

/// The idle workers, numbered below `WORDS * 64`.
#[derive(Debug)]
pub struct IdleSet<const WORDS: usize> {
    idle: [AtomicU64; WORDS],
}

impl<const WORDS: usize> IdleSet<WORDS> {
    /// The number of workers that the set has room for.
    pub const WORKER_COUNT_MAX: usize = WORDS * 64;

    /// Creates a set without idle workers.
    ///
    /// ```
    /// # use idlewise_core::IdleSet;
    /// let set = IdleSet::<2>::new(); // room for 128 workers
    /// assert!(set.is_empty());
    /// ```
    pub fn new() -> Self {
        IdleSet { idle: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// Declares that a worker is about to wait. The worker must look for work once more afterwards.
    ///
    /// # Panics
    /// If there is no room for a worker with that number.
    ///
    /// ```
    /// # use idlewise_core::IdleSet;
    /// let set = IdleSet::<1>::new();
    /// set.enlist(5);
    /// assert_eq!(set.len(), 1);
    /// ```
    #[inline]
    pub fn enlist(&self, worker: usize) {
        // Relaxed: the fence orders it before the last look for work.
        self.idle[worker / 64].fetch_or(1 << (worker % 64), Ordering::Relaxed);
        if !breaks!(EnlistWithoutFence) {
            fence(Ordering::SeqCst); // with the one in `claim`
        }
    }

    /// Declares that a worker runs again. `false`: somebody claimed it, and has rung or will ring.
    ///
    /// ```
    /// # use idlewise_core::IdleSet;
    /// let set = IdleSet::<1>::new();
    /// set.enlist(5);
    /// assert!(set.withdraw(5), "nobody claimed it");
    /// assert!(!set.withdraw(5));
    /// ```
    #[inline]
    pub fn withdraw(&self, worker: usize) -> bool {
        let bit = 1 << (worker % 64);
        // Relaxed: the atomic decides who cleared the bit; the queue and the doorbell pass on the work.
        self.idle[worker / 64].fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Claims up to `count` idle workers, and calls `wake` with each. No other claim gets them. Returns how
    /// many there were. Call it after the work can be found.
    ///
    /// ```
    /// # use idlewise_core::IdleSet;
    /// let set = IdleSet::<1>::new();
    /// (0..3).for_each(|worker| set.enlist(worker));
    /// let mut woken = Vec::new();
    /// assert_eq!(set.claim(2, |worker| woken.push(worker)), 2);
    /// assert_eq!((woken.len(), set.len()), (2, 1));
    /// ```
    #[inline]
    pub fn claim(&self, count: usize, mut wake: impl FnMut(usize)) -> usize {
        if !breaks!(ClaimWithoutFence) {
            fence(Ordering::SeqCst); // with the one in `enlist`
        }
        let mut claimed = 0;
        for (index, word) in self.idle.iter().enumerate() {
            let mut idle = word.load(Ordering::Relaxed);
            while idle != 0 && claimed < count {
                let bit = idle & idle.wrapping_neg();
                idle &= !bit;
                let was_idle = if breaks!(ClaimInTwoSteps) {
                    let seen = word.load(Ordering::Relaxed);
                    word.store(seen & !bit, Ordering::Relaxed);
                    seen & bit != 0
                } else {
                    word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
                };
                if was_idle {
                    claimed += 1;
                    wake(index * 64 + bit.trailing_zeros() as usize);
                }
            }
        }
        claimed
    }

    /// Like [`IdleSet::claim`] for one worker, but prefers one for which `is_preferred` returns `true` if
    /// there is one among the first `look_count` idle workers. Each call may read that worker's cache line.
    /// Returns whether there was an idle worker.
    #[inline]
    pub fn claim_one(
        &self,
        look_count: usize,
        is_preferred: impl Fn(usize) -> bool,
        mut wake: impl FnMut(usize),
    ) -> bool {
        if !breaks!(ClaimWithoutFence) {
            fence(Ordering::SeqCst); // with the one in `enlist`
        }
        let mut looks = look_count;
        for (index, word) in self.idle.iter().enumerate() {
            let mut idle = word.load(Ordering::Relaxed);
            while idle != 0 && looks > 0 {
                let bit = idle & idle.wrapping_neg();
                idle &= !bit;
                looks -= 1;
                let worker = index * 64 + bit.trailing_zeros() as usize;
                if is_preferred(worker) && self.withdraw(worker) {
                    wake(worker);
                    return true;
                }
            }
        }
        self.claim(1, wake) == 1
    }

    /// Returns the number of idle workers, as a hint.
    pub fn len(&self) -> usize {
        self.idle.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }

    /// Returns whether no worker is idle, as a hint.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<const WORDS: usize> Default for IdleSet<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn prefers_who_is_preferred_among_the_first() {
        let set = IdleSet::<2>::new();
        (0..70).step_by(10).for_each(|worker| set.enlist(worker));
        let mut woken = Vec::new();
        let mut claim =
            |preferred| set.claim_one(4, |worker| worker == preferred, |worker| woken.push(worker));
        assert!(claim(30) && claim(30) && claim(60));
        assert_eq!(woken, [30, 0, 10], "the last one is too far");
        assert_eq!(set.len(), 4);
    }

    #[test]
    fn hands_out_each_idle_worker_once() {
        let set = IdleSet::<2>::new();
        for worker in [3, 64, 100] {
            set.enlist(worker);
        }
        assert_eq!(set.len(), 3);
        let mut woken = Vec::new();
        assert_eq!(set.claim(2, |worker| woken.push(worker)), 2);
        assert_eq!(woken, [3, 64]);
        assert!(!set.withdraw(64), "claimed");
        assert!(set.withdraw(100));
        assert_eq!(set.claim(9, |_| unreachable!("nobody is idle")), 0);
        assert!(set.is_empty());
    }
}
