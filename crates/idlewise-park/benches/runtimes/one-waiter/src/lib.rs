//! A condition variable for one waiter at a time, made of a `RawParker`, and the mutex that goes with
//! it: the part of std's interface that tokio's and rayon's places to wait use.
//!
//! The parker keeps a token for a waiter that is about to wait, so a notification between unlocking
//! and waiting is not lost. A wait may return for a notification that was for an earlier one, as std's
//! may for no reason: both callers look again.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard as StdGuard, PoisonError};
use std::time::Duration;

use idlewise_park::RawParker;

/// As std's, but a guard knows its mutex.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// Unlocks when it goes.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    guard: StdGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// A mutex around a value.
    pub const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, guard: self.0.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Never fails: a `Result`, because std's is one.
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

/// For one waiter at a time.
#[derive(Debug, Default)]
pub struct Condvar(RawParker);

/// Whether a wait ended by its timeout.
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it did.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// One that nobody notified.
    pub const fn new() -> Self {
        Condvar(RawParker::new())
    }

    /// Unlocks, waits and locks again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> Result<MutexGuard<'a, T>, Infallible> {
        let mutex = guard.mutex;
        drop(guard);
        self.0.park();
        Ok(mutex.guard())
    }

    /// The same, but not longer than this.
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

    /// Ends the wait.
    pub fn notify_one(&self) {
        self.0.unpark();
    }

    /// Ends the wait: there is one.
    pub fn notify_all(&self) {
        self.0.unpark();
    }
}

/// For tokio, whose own mutex returns the guard itself.
pub mod plain {
    /// As [`crate::Mutex`].
    #[derive(Debug, Default)]
    pub struct Mutex<T>(crate::Mutex<T>);

    impl<T> Mutex<T> {
        /// A mutex around a value.
        pub const fn new(value: T) -> Self {
            Mutex(crate::Mutex::new(value))
        }

        /// Locks.
        pub fn lock(&self) -> crate::MutexGuard<'_, T> {
            self.0.guard()
        }
    }
}
