//! [`Semaphore`]: permits that threads and tasks acquire and give back.

use std::fmt;
use std::time::Duration;

use crate::event_count::EventCount;
use crate::sync::{AtomicUsize, Ordering};

/// A number of permits. A thread or task that finds none waits until one is given back. It is not strictly
/// fair: a thread that comes along may be faster than one that is being woken.
///
/// ```
/// use idlewise_park::Semaphore;
///
/// let semaphore = Semaphore::new(1);
/// let permit = semaphore.acquire();
/// assert!(semaphore.try_acquire().is_none());
/// drop(permit);
/// assert!(semaphore.try_acquire().is_some());
/// ```
pub struct Semaphore {
    permit_count: AtomicUsize,
    given_back: EventCount,
}

/// A permit, which is given back when dropped.
#[derive(Debug)]
#[must_use = "a permit that is dropped is given back at once"]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
}

impl Semaphore {
    /// Creates a semaphore with this many permits.
    ///
    /// ```
    /// static LIMIT: idlewise_park::Semaphore = idlewise_park::Semaphore::new(4);
    /// assert_eq!(LIMIT.available_count(), 4);
    /// ```
    #[cfg(not(loom))]
    pub const fn new(permit_count: usize) -> Self {
        Semaphore { permit_count: AtomicUsize::new(permit_count), given_back: EventCount::new() }
    }

    /// Creates a semaphore with this many permits.
    #[cfg(loom)]
    pub fn new(permit_count: usize) -> Self {
        Semaphore { permit_count: AtomicUsize::new(permit_count), given_back: EventCount::new() }
    }

    /// Acquires a permit if there is one.
    ///
    /// ```
    /// assert!(idlewise_park::Semaphore::new(0).try_acquire().is_none());
    /// ```
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        let mut count = self.permit_count.load(Ordering::Relaxed);
        while count > 0 {
            // Acquire: sees what threads did before they gave permits back.
            match self.permit_count.compare_exchange_weak(
                count,
                count - 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Permit { semaphore: self }),
                Err(found) => count = found,
            }
        }
        None
    }

    /// Acquires a permit, waiting for one if necessary.
    ///
    /// ```
    /// let semaphore = idlewise_park::Semaphore::new(0);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| semaphore.release(1));
    ///     semaphore.acquire();
    /// });
    /// ```
    pub fn acquire(&self) -> Permit<'_> {
        self.given_back.wait(|| self.try_acquire())
    }

    /// Like [`Semaphore::acquire`], but returns `None` after `timeout`.
    ///
    /// ```
    /// let semaphore = idlewise_park::Semaphore::new(0);
    /// assert!(semaphore.acquire_timeout(std::time::Duration::from_micros(10)).is_none());
    /// ```
    pub fn acquire_timeout(&self, timeout: Duration) -> Option<Permit<'_>> {
        self.given_back.wait_timeout(|| self.try_acquire(), timeout)
    }

    /// Like [`Semaphore::acquire`], for a task.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Waker}};
    /// let semaphore = idlewise_park::Semaphore::new(1);
    /// let mut acquiring = pin!(semaphore.acquire_async());
    /// let polled = acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    /// assert!(polled.is_ready());
    /// ```
    pub async fn acquire_async(&self) -> Permit<'_> {
        self.given_back.wait_async(|| self.try_acquire()).await
    }

    /// Adds permits.
    ///
    /// ```
    /// let semaphore = idlewise_park::Semaphore::new(0);
    /// semaphore.release(2);
    /// assert_eq!(semaphore.available_count(), 2);
    /// ```
    pub fn release(&self, permit_count: usize) {
        // Release: pairs with the Acquire in `try_acquire`.
        self.permit_count.fetch_add(permit_count, Ordering::Release);
        self.given_back.notify(permit_count);
    }

    /// Returns the number of available permits, as a hint.
    ///
    /// ```
    /// assert_eq!(idlewise_park::Semaphore::new(3).available_count(), 3);
    /// ```
    pub fn available_count(&self) -> usize {
        self.permit_count.load(Ordering::Relaxed)
    }
}

impl Permit<'_> {
    /// Drops the permit without giving it back. [`Semaphore::release`] can add it again.
    ///
    /// ```
    /// let semaphore = idlewise_park::Semaphore::new(1);
    /// semaphore.acquire().forget();
    /// assert_eq!(semaphore.available_count(), 0);
    /// ```
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !crate::sync::is_model_over() {
            self.semaphore.release(1);
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available_count", &self.available_count()).finish()
    }
}
