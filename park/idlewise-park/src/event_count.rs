//! [`EventCount`]: any number of threads and tasks wait until another thread makes a condition true.

use std::fmt;
use std::future::Future;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::channel::PlaceOfTask;
use crate::clock::Deadline;
use crate::line::{Line, with_waiting};
use crate::sync::{Ordering, fence};

/// Lets threads and tasks wait until the caller's condition holds. This is what a lock-free structure
/// lacks. If nobody waits, notifying costs a fence and a load.
///
/// The condition is a closure that returns `None` as long as the caller must wait. It is called again after
/// each notification, and once more than necessary. No wake-up is lost, whatever the condition depends on,
/// provided that whoever makes it true calls [`EventCount::notify_one`] or [`EventCount::notify_all`]
/// *afterwards*.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use idlewise_park::EventCount;
///
/// let (value, set) = (AtomicU32::new(0), EventCount::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         value.store(42, Ordering::Release);
///         set.notify_all();
///     });
///     let seen = set.wait(|| match value.load(Ordering::Acquire) {
///         0 => None,
///         value => Some(value),
///     });
///     assert_eq!(seen, 42);
/// });
/// ```
pub struct EventCount {
    line: Line,
}

impl EventCount {
    /// Creates an event count without waiters.
    ///
    /// ```
    /// static EVENTS: idlewise_park::EventCount = idlewise_park::EventCount::new();
    /// assert_eq!(EVENTS.waiting_count(), 0);
    /// ```
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        EventCount { line: Line::new() }
    }

    /// Creates an event count without waiters.
    #[cfg(loom)]
    pub fn new() -> Self {
        EventCount { line: Line::new() }
    }

    /// Waits until `condition` returns a value, and returns that.
    ///
    /// ```
    /// assert_eq!(idlewise_park::EventCount::new().wait(|| Some(1)), 1);
    /// ```
    pub fn wait<R>(&self, condition: impl FnMut() -> Option<R>) -> R {
        self.wait_until(condition, || None).expect("without a deadline it waits")
    }

    /// Like [`EventCount::wait`], but returns `None` after `timeout`.
    ///
    /// ```
    /// let events = idlewise_park::EventCount::new();
    /// let late = events.wait_timeout(|| None::<()>, std::time::Duration::from_micros(10));
    /// assert_eq!(late, None);
    /// ```
    pub fn wait_timeout<R>(
        &self,
        condition: impl FnMut() -> Option<R>,
        timeout: Duration,
    ) -> Option<R> {
        self.wait_until(condition, || Deadline::after(timeout))
    }

    /// Like [`EventCount::wait`], but returns `None` at `deadline`.
    ///
    /// ```
    /// let events = idlewise_park::EventCount::new();
    /// assert_eq!(events.wait_deadline(|| None::<()>, std::time::Instant::now()), None);
    /// ```
    pub fn wait_deadline<R>(
        &self,
        condition: impl FnMut() -> Option<R>,
        deadline: Instant,
    ) -> Option<R> {
        self.wait_until(condition, || Some(Deadline::at(deadline)))
    }

    fn wait_until<R>(
        &self,
        mut condition: impl FnMut() -> Option<R>,
        deadline: impl FnOnce() -> Option<Deadline>,
    ) -> Option<R> {
        condition().or_else(|| {
            with_waiting(|waiting| self.line.wait_until(waiting, deadline(), &mut condition))
        })
    }

    /// Like [`EventCount::wait`], for a task.
    ///
    /// ```
    /// # use std::{future::Future, pin::pin, task::{Context, Waker}};
    /// let events = idlewise_park::EventCount::new();
    /// let mut waiting = pin!(events.wait_async(|| Some(1)));
    /// let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    /// assert!(polled.is_ready());
    /// ```
    pub fn wait_async<R>(
        &self,
        mut condition: impl FnMut() -> Option<R>,
    ) -> impl Future<Output = R> {
        let mut place = PlaceOfTask::new(&self.line);
        std::future::poll_fn(move |context| -> Poll<R> {
            place.poll(context.waker(), &mut condition)
        })
    }

    /// Lets one waiter, if there is one, check its condition. Call it after making the condition true.
    ///
    /// ```
    /// idlewise_park::EventCount::new().notify_one();
    /// ```
    #[inline]
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Lets all waiters check their conditions. Call it after making the condition true.
    ///
    /// ```
    /// idlewise_park::EventCount::new().notify_all();
    /// ```
    #[inline]
    pub fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    /// Lets up to `count` waiters check their conditions, and returns how many there were. Call it after
    /// making the condition true.
    ///
    /// ```
    /// assert_eq!(idlewise_park::EventCount::new().notify(3), 0);
    /// ```
    #[inline]
    pub fn notify(&self, count: usize) -> usize {
        fence(Ordering::SeqCst); // with those of `Line`
        self.line.call(count)
    }

    /// Returns the number of waiters, as a hint.
    ///
    /// ```
    /// assert_eq!(idlewise_park::EventCount::new().waiting_count(), 0);
    /// ```
    pub fn waiting_count(&self) -> usize {
        self.line.len()
    }
}

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for EventCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventCount").field("waiting_count", &self.waiting_count()).finish()
    }
}
