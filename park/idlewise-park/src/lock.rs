//! [`RawMutex`] and [`Condvar`], for `lock_api` (feature `lock_api`).

use std::time::{Duration, Instant};

use lock_api::MutexGuard;

use crate::clock::Deadline;
use crate::event_count::EventCount;
use crate::line::{Line, with_waiting};
use crate::sync::{AtomicU32, Ordering, fence, seen_soon};

/// A mutex that waits the way a [`Parker`](crate::Parker) does. It is not fair: a thread that comes along
/// may be faster than one that is being woken.
///
/// ```
/// use idlewise_park::Mutex;
///
/// let sum = Mutex::new(0);
/// std::thread::scope(|scope| {
///     (1..=3).for_each(|n| _ = scope.spawn(|| *sum.lock() += 1));
/// });
/// assert_eq!(sum.into_inner(), 3);
/// ```
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The lock of a [`Mutex`].
///
/// ```
/// use lock_api::RawMutex as _;
///
/// let lock = idlewise_park::RawMutex::INIT;
/// assert!(lock.try_lock() && !lock.try_lock());
/// // SAFETY: it is held here.
/// unsafe { lock.unlock() };
/// ```
#[derive(Debug)]
pub struct RawMutex {
    state: AtomicU32,
    unlocked: EventCount,
}

impl RawMutex {
    fn take(&self) -> Option<()> {
        // Acquire: pairs with the Release of `unlock`.
        self.state
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then_some(())
    }

    /// If the holder is running, it is done in less time than waiting takes.
    fn take_soon(&self) -> Option<()> {
        let is_free = || self.state.load(Ordering::Relaxed) == FREE;
        self.take().or_else(|| seen_soon(is_free).then(|| self.take()).flatten())
    }
}

// SAFETY: between two `unlock`s, the one compare-exchange of `take` succeeds for one thread only.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api asks for it")]
    const INIT: Self = RawMutex { state: AtomicU32::new(FREE), unlocked: EventCount::new() };

    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        self.take_soon().unwrap_or_else(|| self.unlocked.wait(|| self.take()));
    }

    fn try_lock(&self) -> bool {
        self.take().is_some()
    }

    unsafe fn unlock(&self) {
        self.state.store(FREE, Ordering::Release);
        self.unlocked.notify_one();
    }

    fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) == HELD
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.take().or_else(|| self.unlocked.wait_timeout(|| self.take(), timeout)).is_some()
    }

    fn try_lock_until(&self, deadline: Instant) -> bool {
        self.take().or_else(|| self.unlocked.wait_deadline(|| self.take(), deadline)).is_some()
    }
}

/// A condition variable for [`Mutex`] and every other mutex of `lock_api`.
///
/// ```
/// use idlewise_park::{Condvar, Mutex};
///
/// let (is_ready, changed) = (Mutex::new(false), Condvar::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         *is_ready.lock() = true;
///         changed.notify_one();
///     });
///     let mut guard = is_ready.lock();
///     while !*guard {
///         changed.wait(&mut guard);
///     }
/// });
/// ```
#[derive(Debug)]
pub struct Condvar {
    line: Line,
}

impl Condvar {
    /// Creates a condition variable that nobody waits on.
    ///
    /// ```
    /// static CHANGED: idlewise_park::Condvar = idlewise_park::Condvar::new();
    /// CHANGED.notify_all();
    /// ```
    pub const fn new() -> Self {
        Condvar { line: Line::new() }
    }

    /// Unlocks the mutex, waits for a notification, and locks it again. There are no spurious wake-ups, but
    /// the condition may be false again by then: check it in a loop.
    ///
    /// ```
    /// # use idlewise_park::{Condvar, Mutex};
    /// let (mutex, changed) = (Mutex::new(0), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     let mut guard = mutex.lock();
    ///     scope.spawn(|| {
    ///         *mutex.lock() = 1;
    ///         changed.notify_all();
    ///     });
    ///     while *guard == 0 {
    ///         changed.wait(&mut guard);
    ///     }
    /// });
    /// ```
    pub fn wait<R: lock_api::RawMutex, T: ?Sized>(&self, guard: &mut MutexGuard<'_, R, T>) {
        self.wait_until(guard, None);
    }

    /// Like [`Condvar::wait`], but waits no longer than `timeout`. Returns whether it was notified.
    ///
    /// ```
    /// # use idlewise_park::{Condvar, Mutex};
    /// let (mutex, changed) = (Mutex::new(()), Condvar::new());
    /// let timeout = std::time::Duration::from_micros(10);
    /// assert!(!changed.wait_timeout(&mut mutex.lock(), timeout));
    /// ```
    pub fn wait_timeout<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        timeout: Duration,
    ) -> bool {
        self.wait_until(guard, Deadline::after(timeout))
    }

    fn wait_until<R: lock_api::RawMutex, T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, R, T>,
        deadline: Option<Deadline>,
    ) -> bool {
        with_waiting(|waiting| {
            waiting.begin();
            // Get in line before unlocking: whoever changes the state after that sees this thread in line.
            let ticket = self.line.enter_thread(waiting, 0);
            let was_called = MutexGuard::unlocked(guard, || waiting.wait(deadline)).is_some();
            if !was_called {
                self.line.leave(ticket);
            }
            was_called
        })
    }

    /// Wakes one waiter, if there is one.
    ///
    /// ```
    /// idlewise_park::Condvar::new().notify_one();
    /// ```
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiters.
    ///
    /// ```
    /// idlewise_park::Condvar::new().notify_all();
    /// ```
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    fn notify(&self, count: usize) {
        fence(Ordering::SeqCst); // with those of `Line`, for state that is changed without the mutex
        self.line.call(count);
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}
