//! [`Idle`]: where a scheduler's workers wait when they find no work, and how they are woken.
//!
//! It is made for work-stealing schedulers and does not know their queues. A worker that found nothing
//! calls [`IdleWorker::wait`] with a function that looks for work once more. A thread that submitted work
//! calls [`Idle::wake_one`] or [`Idle::wake_many`]. Each wake-up goes to a different worker, to a polling
//! one if the first few include one, and never to more workers than there is work. If all workers run, a
//! call costs only a fence and eight loads. `idlewise_core::IdleSet` explains why no work is left behind.
//!
//! # Searching workers
//!
//! A woken worker searches: it looks into the queues of others and takes their cache lines. For little
//! work, many searchers cost more than they gain, so a scheduler may limit them, as tokio does.
//! [`Idle::wake_searcher`] wakes nobody while a worker searches. In return, the last searcher that finds
//! work wakes another worker ([`IdleWorker::found_work`]), because there may be more.
//!
//! ```text
//!   searching worker                           submitter
//!   1. searching - 1                           a. push work
//!   2. enlist;  fence(SeqCst)       ◄─────►    b. fence(SeqCst)
//!   3. look for work once more                 c. searching > 0: done; else claim a worker
//! ```
//!
//! At least one of the two sees the other: if the submitter still counted the searcher, then the searcher's
//! last look sees the work.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use idlewise_core::IdleSet;

use crate::clock::Deadline;
use crate::outcome::ParkOutcome;
use crate::parker::{Parker, ParkerBuilder, Unparker};
use crate::stats::WaitStats;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, Padded, breaks, fence, is_model_over};

/// Each word holds 64 workers.
const WORDS: usize = 8;
/// How many idle workers a waker examines to find one that polls. Each may be in another CPU's cache line,
/// and waking a worker that sleeps costs as much as examining about a hundred.
const LOOK_COUNT: usize = 4;

/// Wakes idle workers. Clones share the same workers.
///
/// ```
/// let idle = idlewise_park::Idle::new(2);
/// let worker = idle.worker(0);
/// assert!(!idle.wake_one(), "nobody is idle");
/// worker.wait(|| true); // finds work at once
/// ```
#[derive(Clone, Debug)]
pub struct Idle {
    shared: Arc<Shared>,
}

/// Each field has cache lines of its own, so that counting `Arc` references and joining workers do not
/// disturb the words that every submitter reads.
#[derive(Debug)]
struct Shared {
    idle: Padded<IdleSet<WORDS>>,
    /// The number of workers that search. The waker counts in the worker it wakes, possibly after that
    /// worker has counted itself out; the count is then below zero for a moment.
    searching: Padded<AtomicUsize>,
    worker_count: AtomicUsize,
    places: Box<[Place]>,
}

/// What wakes the worker in this place, if there is one.
#[derive(Debug, Default)]
struct Place {
    unparker: Mutex<Option<Unparker>>,
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Option<Unparker>> {
        self.unparker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a store alone would wake it, as a hint.
    fn is_polling(&self) -> bool {
        // Whoever holds the lock is waking it.
        self.unparker
            .try_lock()
            .is_ok_and(|unparker| unparker.as_ref().is_some_and(Unparker::is_polling))
    }
}

impl Shared {
    /// Wakes a worker that was claimed. From here on it counts as searching.
    fn wake(&self, number: usize) {
        self.searching.fetch_add(1, Ordering::Relaxed);
        if let Some(unparker) = &*self.places[number].lock() {
            unparker.unpark();
        }
    }

    #[inline]
    fn wake_one(&self) -> bool {
        let is_polling = |number: usize| self.places[number].is_polling();
        self.idle.claim_one(LOOK_COUNT, is_polling, |number| self.wake(number))
    }

    #[inline]
    fn wake_many(&self, count: usize) -> usize {
        self.idle.claim(count, |number| self.wake(number))
    }

    fn searching_count(&self) -> usize {
        let count = self.searching.load(Ordering::Relaxed);
        if count > isize::MAX as usize { 0 } else { count }
    }

    fn enter(self: &Arc<Self>, number: usize, parker: Parker) -> Option<IdleWorker> {
        let mut place = self.places[number].lock();
        if place.is_some() {
            return None;
        }
        *place = Some(parker.unparker().clone());
        self.worker_count.fetch_add(1, Ordering::Relaxed);
        let (is_waiting, is_searching) = Default::default();
        Some(IdleWorker { shared: self.clone(), parker, number, is_waiting, is_searching })
    }
}

/// One worker's place to wait. It belongs to the worker's thread, and dropping it frees the place.
#[derive(Debug)]
pub struct IdleWorker {
    shared: Arc<Shared>,
    parker: Parker,
    number: usize,
    is_waiting: Cell<bool>,
    is_searching: Cell<bool>,
}

impl Idle {
    /// The largest possible number of workers.
    pub const WORKER_COUNT_MAX: usize = IdleSet::<WORDS>::WORKER_COUNT_MAX;

    /// Creates places for up to `worker_count` workers at a time.
    ///
    /// ```
    /// let idle = idlewise_park::Idle::new(4);
    /// assert_eq!(idle.idle_count(), 0);
    /// ```
    ///
    /// # Panics
    /// If `worker_count` exceeds [`Idle::WORKER_COUNT_MAX`].
    pub fn new(worker_count: usize) -> Self {
        assert!(worker_count <= Self::WORKER_COUNT_MAX, "at most {}", Self::WORKER_COUNT_MAX);
        let places = (0..worker_count).map(|_| Place::default()).collect();
        let idle = Padded(IdleSet::new());
        let (searching, worker_count) = (Padded(AtomicUsize::new(0)), AtomicUsize::new(0));
        Idle { shared: Arc::new(Shared { idle, searching, worker_count, places }) }
    }

    /// Returns the place of one worker; `number` must be below `worker_count`.
    ///
    /// ```
    /// let idle = idlewise_park::Idle::new(1);
    /// drop(idle.worker(0));
    /// let again = idle.worker(0); // free again
    /// ```
    ///
    /// # Panics
    /// If there is no such worker, or its place is taken.
    pub fn worker(&self, number: usize) -> IdleWorker {
        self.worker_with(number, Parker::builder())
    }

    /// Like [`Idle::worker`], but the worker waits with these settings.
    ///
    /// ```
    /// use idlewise_park::{Idle, Parker};
    ///
    /// let worker = Idle::new(1).worker_with(0, Parker::builder().latency_limit_ns(50_000));
    /// assert_eq!(worker.stats().waits, 0);
    /// ```
    ///
    /// # Panics
    /// As for [`Idle::worker`].
    pub fn worker_with(&self, number: usize, builder: ParkerBuilder) -> IdleWorker {
        let worker = self.shared.enter(number, builder.build());
        worker.unwrap_or_else(|| panic!("worker {number} has its place already"))
    }

    /// Returns any free place, for workers that come and go, or `None` if there is none.
    ///
    /// ```
    /// let idle = idlewise_park::Idle::new(1);
    /// let worker = idle.join().expect("one is free");
    /// assert!(idle.join().is_none());
    /// drop(worker);
    /// assert!(idle.join().is_some());
    /// ```
    pub fn join(&self) -> Option<IdleWorker> {
        let is_free = |number: &usize| self.shared.places[*number].lock().is_none();
        let free = (0..self.shared.places.len()).filter(is_free);
        // Another thread may take the place first; then try the next one.
        free.into_iter().find_map(|number| self.shared.enter(number, Parker::new()))
    }

    /// Wakes an idle worker and returns whether there was one. Call it after the work can be found.
    ///
    /// ```
    /// let idle = idlewise_park::Idle::new(4);
    /// assert!(!idle.wake_one(), "all run: they will find the work");
    /// ```
    #[inline]
    pub fn wake_one(&self) -> bool {
        self.shared.wake_one()
    }

    /// Wakes up to `count` idle workers and returns how many it woke. Call it once for `count` pieces of
    /// work, after they can be found.
    ///
    /// ```
    /// let idle = idlewise_park::Idle::new(4);
    /// assert_eq!(idle.wake_many(3), 0);
    /// ```
    #[inline]
    pub fn wake_many(&self, count: usize) -> usize {
        self.shared.wake_many(count)
    }

    /// Like [`Idle::wake_one`], but wakes nobody while a worker searches: that worker will find the work,
    /// or see it in its last look. All workers must then call [`IdleWorker::found_work`].
    ///
    /// ```
    /// let idle = idlewise_park::Idle::new(4);
    /// let worker = idle.worker(0);
    /// assert!(worker.start_search());
    /// assert!(!idle.wake_searcher(), "worker 0 searches");
    /// worker.found_work();
    /// ```
    #[inline]
    pub fn wake_searcher(&self) -> bool {
        fence(Ordering::SeqCst); // with the one in `IdleSet::enlist`
        self.shared.searching_count() == 0 && self.shared.wake_one()
    }

    /// Returns the number of idle workers, as a hint.
    ///
    /// ```
    /// assert_eq!(idlewise_park::Idle::new(4).idle_count(), 0);
    /// ```
    pub fn idle_count(&self) -> usize {
        self.shared.idle.len()
    }

    /// Returns the number of workers that search, as a hint.
    ///
    /// ```
    /// assert_eq!(idlewise_park::Idle::new(4).searching_count(), 0);
    /// ```
    pub fn searching_count(&self) -> usize {
        self.shared.searching_count()
    }
}

impl IdleWorker {
    /// Waits until this worker is woken, unless `has_work` finds something. It may also return for a
    /// wake-up that came late, so look for work and call it again.
    ///
    /// ```
    /// let worker = idlewise_park::Idle::new(1).worker(0);
    /// worker.wait(|| true); // there is work: it doesn't wait
    /// ```
    ///
    /// # Panics
    /// If it is called within `has_work`: the inner call would take the worker off the idle ones.
    pub fn wait(&self, has_work: impl FnOnce() -> bool) {
        self.wait_until(has_work, None);
    }

    /// Like [`IdleWorker::wait`], but waits no longer than `timeout`. After [`ParkOutcome::TimedOut`]
    /// nobody relies on this worker: no [`Idle::wake_one`] chose it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let worker = idlewise_park::Idle::new(1).worker(0);
    /// assert!(!worker.wait_timeout(|| false, Duration::from_micros(10)).is_woken());
    /// ```
    ///
    /// # Panics
    /// As for [`IdleWorker::wait`].
    pub fn wait_timeout(&self, has_work: impl FnOnce() -> bool, timeout: Duration) -> ParkOutcome {
        self.wait_until(has_work, Deadline::after(timeout))
    }

    /// Like [`IdleWorker::wait_timeout`], but gives up at `deadline`.
    ///
    /// ```
    /// let worker = idlewise_park::Idle::new(1).worker(0);
    /// assert!(!worker.wait_deadline(|| false, std::time::Instant::now()).is_woken());
    /// ```
    ///
    /// # Panics
    /// As for [`IdleWorker::wait`].
    pub fn wait_deadline(&self, has_work: impl FnOnce() -> bool, deadline: Instant) -> ParkOutcome {
        self.wait_until(has_work, Some(Deadline::at(deadline)))
    }

    fn wait_until(
        &self,
        has_work: impl FnOnce() -> bool,
        deadline: Option<Deadline>,
    ) -> ParkOutcome {
        assert!(!self.is_waiting.replace(true), "a worker that looks for work can't wait for it");
        if !breaks!(SearchEndsAfterLook) {
            self.end_search();
        }
        let mut place = Enlisted::new(self);
        if has_work() {
            // A waker that chose this worker meanwhile had other work; `place` passes that wake-up on.
            return ParkOutcome::Woken;
        }
        if breaks!(SearchEndsAfterLook) {
            self.end_search();
        }
        let outcome = self.parker.park_until(deadline);
        let was_chosen = !place.withdraw();
        self.is_searching.set(was_chosen);
        if was_chosen { ParkOutcome::Woken } else { outcome }
    }

    /// Begins to search for work, for instance in the queues of others. Returns `false` if half of the
    /// workers search already: more would only get in each other's way, so this one should wait.
    ///
    /// ```
    /// let idle = idlewise_park::Idle::new(2);
    /// let workers = [idle.worker(0), idle.worker(1)];
    /// assert!(workers[0].start_search() && !workers[1].start_search());
    /// ```
    pub fn start_search(&self) -> bool {
        if !self.is_searching.get() {
            let worker_count = self.shared.worker_count.load(Ordering::Relaxed);
            if 2 * self.shared.searching_count() >= worker_count {
                return false;
            }
            self.shared.searching.fetch_add(1, Ordering::Relaxed);
            self.is_searching.set(true);
        }
        true
    }

    /// Ends a search that found work, including one that a wake-up began. The last searcher wakes another
    /// worker, because submitters that saw it search woke nobody.
    ///
    /// ```
    /// let idle = idlewise_park::Idle::new(1);
    /// let worker = idle.worker(0);
    /// worker.start_search();
    /// worker.found_work();
    /// assert_eq!(idle.searching_count(), 0);
    /// ```
    pub fn found_work(&self) {
        if self.end_search() == 1 {
            self.shared.wake_one();
        }
    }

    /// Returns how many workers searched, including this one, or 0 if this one did not.
    fn end_search(&self) -> usize {
        if self.is_searching.replace(false) {
            // Relaxed: the fence of `IdleSet` comes next.
            self.shared.searching.fetch_sub(1, Ordering::Relaxed)
        } else {
            0
        }
    }

    /// Returns statistics of this worker's waits.
    ///
    /// ```
    /// assert_eq!(idlewise_park::Idle::new(1).worker(0).stats().waits, 0);
    /// ```
    pub fn stats(&self) -> WaitStats {
        self.parker.stats()
    }
}

impl Drop for IdleWorker {
    fn drop(&mut self) {
        if is_model_over() {
            return;
        }
        self.found_work();
        *self.shared.places[self.number].lock() = None;
        self.shared.worker_count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A worker's entry among the idle ones, until it is withdrawn or `has_work` returns or panics.
struct Enlisted<'a> {
    worker: &'a IdleWorker,
    is_enlisted: bool,
}

impl<'a> Enlisted<'a> {
    fn new(worker: &'a IdleWorker) -> Self {
        worker.shared.idle.enlist(worker.number);
        Enlisted { worker, is_enlisted: true }
    }

    /// Returns `false` if a waker has chosen this worker.
    fn withdraw(&mut self) -> bool {
        self.is_enlisted = false;
        self.worker.shared.idle.withdraw(self.worker.number)
    }
}

impl Drop for Enlisted<'_> {
    fn drop(&mut self) {
        if is_model_over() {
            return;
        }
        self.worker.is_waiting.set(false);
        if self.is_enlisted && !self.withdraw() {
            // A wake-up for a worker that did not wait goes to another worker, and so does the search.
            self.worker.is_searching.set(true);
            self.worker.end_search();
            if !breaks!(HandOnKept) {
                self.worker.shared.wake_one();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crossbeam_queue::SegQueue;

    use super::*;

    #[test]
    fn wakes_as_many_as_there_is_work_for() {
        let idle = Idle::new(4);
        let workers: Vec<_> = (0..4).map(|number| idle.worker(number)).collect();
        assert_eq!(idle.wake_many(3), 0, "all run");
        idle.shared.idle.enlist(2);
        idle.shared.idle.enlist(1);
        assert_eq!(idle.idle_count(), 2);
        assert!(idle.wake_one());
        assert_eq!(idle.wake_many(3), 1);
        workers[1].parker.park();
        workers[2].parker.park();
        workers[3].wait(|| true);
        assert_eq!(workers[3].wait_timeout(|| false, Duration::ZERO), ParkOutcome::TimedOut);
        assert_eq!(idle.idle_count(), 0);
    }

    /// A waker chose it while it looked for work. That wake-up belongs to a worker that waits.
    #[test]
    fn passes_on_a_wake_up_that_it_did_not_wait_for() {
        let idle = Idle::new(2);
        let workers: Vec<_> = (0..2).map(|number| idle.worker(number)).collect();
        let finds_work = || {
            // The idle worker with the lowest number is chosen, which is this one.
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

    /// (The inner wait withdrew the worker on return, so nobody could choose it for the outer wait.)
    #[test]
    fn a_wait_within_a_look_is_refused() {
        let idle = Idle::new(1);
        let worker = idle.worker(0);
        let look = std::panic::AssertUnwindSafe(|| {
            worker.wait(|| worker.wait_timeout(|| false, Duration::ZERO).is_woken());
        });
        std::panic::catch_unwind(look).unwrap_err();
        let is_chosen = || !idle.wake_one();
        assert_eq!(worker.wait_timeout(is_chosen, Duration::ZERO), ParkOutcome::Woken);
    }

    #[test]
    fn places_are_free_when_their_workers_are_gone() {
        let idle = Idle::new(2);
        for _ in 0..100 {
            let workers = [idle.join().unwrap(), idle.join().unwrap()];
            assert!(idle.join().is_none());
            workers.iter().for_each(|worker| worker.wait(|| true));
        }
        let other = idle.worker(1);
        let again = std::panic::AssertUnwindSafe(|| idle.worker(1));
        std::panic::catch_unwind(again).unwrap_err();
        drop(other);
        assert!(!idle.wake_one(), "nobody is left to wake");
    }

    #[test]
    fn wakes_nobody_while_somebody_searches() {
        let idle = Idle::new(3);
        let workers: Vec<_> = (0..3).map(|number| idle.worker(number)).collect();
        let wakes_one_searcher = || {
            assert!(idle.wake_searcher(), "this one");
            idle.shared.idle.enlist(1);
            assert!(!idle.wake_searcher(), "one searches");
            false
        };
        assert_eq!(workers[0].wait_timeout(wakes_one_searcher, Duration::ZERO), ParkOutcome::Woken);
        assert_eq!(idle.searching_count(), 1);
        workers[0].found_work();
        assert_eq!(
            (idle.searching_count(), idle.idle_count()),
            (1, 0),
            "the last one woke another"
        );
    }

    #[test]
    fn half_of_the_workers_search() {
        let idle = Idle::new(4);
        let workers: Vec<_> = (0..4).map(|number| idle.worker(number)).collect();
        let searching = workers.iter().filter(|worker| worker.start_search()).count();
        assert_eq!((searching, idle.searching_count()), (2, 2));
        drop(workers);
        assert_eq!(idle.searching_count(), 0);
    }

    #[test]
    fn who_was_chosen_did_not_time_out() {
        let idle = Idle::new(1);
        let worker = idle.worker(0);
        // The waker is about to ring when the deadline passes.
        let is_chosen = || worker.shared.idle.claim(1, |_| {}) != 1;
        assert_eq!(worker.wait_timeout(is_chosen, Duration::from_micros(1)), ParkOutcome::Woken);
        assert_eq!(worker.wait_timeout(|| false, Duration::from_micros(1)), ParkOutcome::TimedOut);
    }

    /// Three workers, two submitters and a queue that is often empty: every task gets done.
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
