//! A condition variable for one waiter at a time, built on a `RawParker`, and its mutex. It has the part of
//! std's interface that tokio and rayon use where their threads wait.
//!
//! The parker keeps a token for a waiter that is about to wait, so a notification between unlocking and
//! waiting is not lost. A wait may return because of a notification for an earlier one. Since std allows
//! spurious wake-ups too, both callers check again.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard as StdGuard, PoisonError};
use std::time::Duration;

use idlewise_park::RawParker;

/// Like std's mutex, but a guard knows its mutex.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// Unlocks the mutex when dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    guard: StdGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// Creates a mutex around a value.
    pub const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, guard: self.0.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Never fails. It returns a `Result` because std's method does.
    pub fn lock(&self) -> Result<MutexGuard<'_, T>, Infallible> {
        Ok(self.guard())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A condition variable for one waiter at a time.
#[derive(Debug, Default)]
pub struct Condvar(RawParker);

/// Whether a wait ended by its timeout.
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the wait timed out.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Creates a condition variable.
    pub const fn new() -> Self {
        Condvar(RawParker::new())
    }

    /// Unlocks the mutex, waits, and locks it again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> Result<MutexGuard<'a, T>, Infallible> {
        let mutex = guard.mutex;
        drop(guard);
        self.0.park();
        Ok(mutex.guard())
    }

    /// Like [`Condvar::wait`], with a timeout.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> Result<(MutexGuard<'a, T>, WaitTimeoutResult), Infallible> {
        let mutex = guard.mutex;
        drop(guard);
        let outcome = self.0.park_timeout(timeout);
        Ok((mutex.guard(), WaitTimeoutResult(!outcome.is_woken())))
    }

    /// Wakes the waiter.
    pub fn notify_one(&self) {
        self.0.unpark();
    }

    /// Wakes the only waiter.
    pub fn notify_all(&self) {
        self.0.unpark();
    }
}

/// For tokio, whose own mutex returns the guard without a `Result`.
pub mod plain {
    /// Like [`crate::Mutex`].
    #[derive(Debug, Default)]
    pub struct Mutex<T>(crate::Mutex<T>);

    impl<T> Mutex<T> {
        /// Creates a mutex around a value.
        pub const fn new(value: T) -> Self {
            Mutex(crate::Mutex::new(value))
        }

        /// Locks the mutex.
        pub fn lock(&self) -> crate::MutexGuard<'_, T> {
            self.0.guard()
        }
    }
}
