//! [`Idle`]: where the workers of a scheduler go when they find no work, and how they are got back.
//!
//! Made for work-stealing schedulers: it knows nothing of queues. A worker that found nothing calls
//! [`IdleWorker::wait`] with a last look for work; whoever made work calls [`Idle::wake_one`] or
//! [`Idle::wake_many`]. Each wake-up gets another worker, never more workers than there is work, and
//! none if all run: then a fence and eight loads are all it costs. `idlewise_core::IdleSet` argues why
//! no work is left lying.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use idlewise_core::IdleSet;

use crate::clock::Deadline;
use crate::parker::{ParkOutcome, Parker, ParkerBuilder, Unparker};
use crate::stats::WaitStats;

/// 64 workers a word.
const WORDS: usize = 8;

/// Wakes idle workers. Clones share the same ones.
#[derive(Clone, Debug)]
pub struct Idle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    idle: IdleSet<WORDS>,
    workers: Box<[OnceLock<Unparker>]>,
}

impl Shared {
    #[inline]
    fn wake_many(&self, count: usize) -> usize {
        self.idle.claim(count, |number| {
            if let Some(unparker) = self.workers[number].get() {
                unparker.unpark();
            }
        })
    }
}

/// One worker's place to wait. It belongs to the worker's thread.
#[derive(Debug)]
pub struct IdleWorker {
    shared: Arc<Shared>,
    parker: Parker,
    number: usize,
}

impl Idle {
    /// The most workers that there can be.
    pub const WORKER_COUNT_MAX: usize = IdleSet::<WORDS>::WORKER_COUNT_MAX;

    /// For `worker_count` workers.
    ///
    /// # Panics
    /// If that is more than [`Idle::WORKER_COUNT_MAX`].
    pub fn new(worker_count: usize) -> Self {
        assert!(worker_count <= Self::WORKER_COUNT_MAX, "at most {}", Self::WORKER_COUNT_MAX);
        let workers = (0..worker_count).map(|_| OnceLock::new()).collect();
        Idle { shared: Arc::new(Shared { idle: IdleSet::new(), workers }) }
    }

    /// The place of one worker; its number is below `worker_count`.
    ///
    /// # Panics
    /// If there is no such worker, or it has its place already.
    pub fn worker(&self, number: usize) -> IdleWorker {
        self.worker_with(number, Parker::builder())
    }

    /// As [`Idle::worker`], waiting with these settings.
    ///
    /// # Panics
    /// As [`Idle::worker`].
    pub fn worker_with(&self, number: usize, builder: ParkerBuilder) -> IdleWorker {
        let parker = builder.build();
        let is_first = self.shared.workers[number].set(parker.unparker().clone()).is_ok();
        assert!(is_first, "worker {number} has its place already");
        IdleWorker { shared: self.shared.clone(), parker, number }
    }

    /// Wakes an idle worker, if there is one. Call it after the work can be found.
    #[inline]
    pub fn wake_one(&self) -> bool {
        self.wake_many(1) == 1
    }

    /// Wakes up to `count` idle workers and returns how many there were. Call it once for `count`
    /// pieces of work, after they can be found.
    #[inline]
    pub fn wake_many(&self, count: usize) -> usize {
        self.shared.wake_many(count)
    }

    /// How many workers are idle, as a hint.
    pub fn idle_count(&self) -> usize {
        self.shared.idle.len()
    }
}

impl IdleWorker {
    /// Waits until somebody wakes this worker, unless `has_work` finds something. It may also
    /// return for a wake-up that came late: look for work, then call again.
    pub fn wait(&self, has_work: impl FnOnce() -> bool) {
        self.wait_until(has_work, None);
    }

    /// As [`IdleWorker::wait`], but no longer than this. After [`ParkOutcome::TimedOut`] nobody
    /// counts on this worker: no [`Idle::wake_one`] chose it.
    pub fn wait_timeout(&self, has_work: impl FnOnce() -> bool, timeout: Duration) -> ParkOutcome {
        self.wait_until(has_work, Deadline::after(timeout))
    }

    /// As [`IdleWorker::wait_timeout`], but not beyond this moment.
    pub fn wait_deadline(&self, has_work: impl FnOnce() -> bool, deadline: Instant) -> ParkOutcome {
        self.wait_until(has_work, Some(Deadline::at(deadline)))
    }

    fn wait_until(
        &self,
        has_work: impl FnOnce() -> bool,
        deadline: Option<Deadline>,
    ) -> ParkOutcome {
        let mut place = Enlisted::new(&self.shared, self.number);
        if has_work() {
            // Whoever chose this worker meanwhile did so for other work: `place` passes it on.
            return ParkOutcome::Woken;
        }
        let outcome = self.parker.park_until(deadline);
        let was_chosen = !place.withdraw();
        if was_chosen { ParkOutcome::Woken } else { outcome }
    }

    /// What this worker's waits were like.
    pub fn stats(&self) -> WaitStats {
        self.parker.stats()
    }
}

/// A worker among the idle ones, until it is withdrawn or its `has_work` returned or panicked.
struct Enlisted<'a> {
    shared: &'a Shared,
    number: usize,
    is_enlisted: bool,
}

impl<'a> Enlisted<'a> {
    fn new(shared: &'a Shared, number: usize) -> Self {
        shared.idle.enlist(number);
        Enlisted { shared, number, is_enlisted: true }
    }

    /// `false`: somebody chose it.
    fn withdraw(&mut self) -> bool {
        self.is_enlisted = false;
        self.shared.idle.withdraw(self.number)
    }
}

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        // A wake-up for a worker that did not wait is another's.
        if self.is_enlisted && !self.withdraw() {
            self.shared.wake_many(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crossbeam_queue::SegQueue;

    use super::*;

    #[test]
    fn wakes_as_many_as_there_is_work_for() {
        let idle = Idle::new(4);
        let workers: Vec<_> = (0..4).map(|number| idle.worker(number)).collect();
        assert_eq!(idle.wake_many(3), 0, "all run");
        workers[2].shared.idle.enlist(2);
        workers[1].shared.idle.enlist(1);
        assert_eq!(idle.idle_count(), 2);
        assert!(idle.wake_one());
        assert_eq!(idle.wake_many(3), 1);
        workers[1].parker.park();
        workers[2].parker.park();
        workers[3].wait(|| true);
        assert_eq!(workers[3].wait_timeout(|| false, Duration::ZERO), ParkOutcome::TimedOut);
        assert_eq!(idle.idle_count(), 0);
    }

    /// Chosen by a waker while it looked: that wake-up is for somebody who waits.
    #[test]
    fn passes_on_a_wake_up_that_it_did_not_wait_for() {
        let idle = Idle::new(2);
        let workers: Vec<_> = (0..2).map(|number| idle.worker(number)).collect();
        let finds_work = || {
            // The lowest idle worker is chosen: this one.
            assert!(idle.wake_one());
            workers[1].shared.idle.enlist(1);
            true
        };
        workers[0].wait(finds_work);
        assert_eq!(idle.idle_count(), 0);
        assert_eq!(workers[1].parker.park_timeout(Duration::ZERO), ParkOutcome::Woken);
    }

    #[test]
    fn a_look_that_panics_leaves_no_worker_behind() {
        let idle = Idle::new(1);
        let worker = idle.worker(0);
        let look = std::panic::AssertUnwindSafe(|| worker.wait(|| panic!("on purpose")));
        std::panic::catch_unwind(look).unwrap_err();
        assert!(!idle.wake_one());
    }

    #[test]
    fn who_was_chosen_did_not_time_out() {
        let idle = Idle::new(1);
        let worker = idle.worker(0);
        // The waker is about to ring when the deadline comes.
        let is_chosen = || worker.shared.idle.claim(1, |_| {}) != 1;
        assert_eq!(worker.wait_timeout(is_chosen, Duration::from_micros(1)), ParkOutcome::Woken);
        assert_eq!(worker.wait_timeout(|| false, Duration::from_micros(1)), ParkOutcome::TimedOut);
    }

    /// Three workers, two submitters, a queue that is often empty: every task is done.
    #[test]
    fn leaves_no_work_lying() {
        const TASK_COUNT: usize = if cfg!(miri) { 200 } else { 20_000 };
        let idle = Idle::new(3);
        let queue = SegQueue::new();
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..3 {
                let worker = idle.worker(number);
                let (queue, done, idle) = (&queue, &done, &idle);
                scope.spawn(move || {
                    while done.load(Ordering::Relaxed) < 2 * TASK_COUNT {
                        if queue.pop().is_none() {
                            let is_over = || done.load(Ordering::Relaxed) == 2 * TASK_COUNT;
                            worker.wait(|| !queue.is_empty() || is_over());
                        } else if done.fetch_add(1, Ordering::Relaxed) + 1 == 2 * TASK_COUNT {
                            idle.wake_many(3);
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for task in 0..TASK_COUNT {
                        queue.push(task);
                        idle.wake_one();
                        if task % 16 == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        assert!(queue.is_empty());
    }
}
