//! [`EventBell`]: a doorbell for a thread that sleeps in `epoll_wait`, `poll` or `io_uring` (Linux).
//!
//! Such a thread cannot sleep on a futex, because it waits for file descriptors too. It falls asleep on the
//! doorbell before it calls the kernel, and only then does a waker write to the eventfd. Before it falls
//! asleep it may poll, as a parker's idle loop does (`polling.rs`).
//!
//! # No wake-up is lost between the last look and the sleep
//!
//! A ring after the look finds one of two states. If the word is POLLING, [`Doorbell::fall_asleep`] fails.
//! If it is SLEEPING, the waker writes to the eventfd, which ends the kernel's wait or the next one. An
//! event after the look is still there when the kernel's wait begins, because that reports what is ready:
//! level-triggered epoll and poll report it, io_uring's completion ring holds it, and a futex compares the
//! word. If the kernel reports something only once (an epoll edge that `has_events` consumed), `has_events`
//! must remember it.

#[cfg(not(loom))]
mod eventfd;
#[cfg(loom)]
#[path = "model.rs"]
mod eventfd;
#[cfg(not(loom))]
mod polling;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
#[cfg(not(loom))]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eventfd::EventFd;
#[cfg(loom)]
use eventfd::Polling;
use idlewise_core::{Doorbell, Ring};
#[cfg(not(loom))]
use polling::Polling;

use crate::clock::Deadline;
#[cfg(not(loom))]
use crate::learn;
use crate::parker::ParkerBuilder;
use crate::stats::WaitStats;
use crate::sync::{Arc, breaks};

#[repr(align(128))]
struct Shared {
    bell: Doorbell,
    eventfd: EventFd,
    wake_calls: AtomicU64,
    free_rides: AtomicU64,
}

/// The waiting side, for the thread that waits for this file descriptor and for others.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::fd::AsRawFd;
/// use std::os::unix::net::UnixStream;
/// use idlewise_park::EventBell;
///
/// fn wait(fds: &mut [libc::pollfd], timeout_ms: i32) -> bool {
///     // SAFETY: as many entries as it is told of.
///     unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as _, timeout_ms) > 0 }
/// }
///
/// let (mut socket, mut peer) = UnixStream::pair()?;
/// let mut bell = EventBell::new()?;
/// let unparker = bell.unparker();
/// let other = std::thread::spawn(move || {
///     unparker.unpark()?;
///     peer.write_all(b"x")
/// });
///
/// let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
/// let mut fds = [entry(bell.as_raw_fd()), entry(socket.as_raw_fd())];
/// let (mut ring_count, mut byte_count) = (0, 0);
/// while ring_count == 0 || byte_count == 0 {
///     // Looks at the socket; the eventfd has nothing to say as long as the bell polls.
///     let is_asleep = bell.poll(|| wait(&mut fds[1..], 0)).is_asleep();
///     // Blocks, or takes what is there.
///     wait(&mut fds, if is_asleep { -1 } else { 0 });
///     if bell.wake_up() {
///         ring_count += 1;
///     }
///     if fds[1].revents & libc::POLLIN != 0 {
///         byte_count += socket.read(&mut [0; 16])?;
///     }
/// }
/// other.join().unwrap()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A loop that should not poll calls [`EventBell::fall_asleep`] instead of [`EventBell::poll`].
/// `examples/io_uring.rs` in the repository does the same with a completion ring.
pub struct EventBell {
    shared: Arc<Shared>,
    /// Writes that wakers owe or have made, and that have not been read yet: one for each ring that met the
    /// sleeping thread. A thread that woke up by itself may be ahead of several.
    owed_writes: Cell<u64>,
    /// The thread fell asleep and has not called `wake_up`. A ring since then owes a write.
    is_asleep: Cell<bool>,
    sleeps: Cell<u64>,
    timeouts: Cell<u64>,
    store_wakes: u64,
    polling: RefCell<Polling>,
}

/// How a poll ended. In any case, call [`EventBell::wake_up`] before the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "only a bell that is asleep may block"]
pub enum Polled {
    /// Somebody rang: don't block.
    Woken,
    /// The caller's `has_events` returned `true`: don't block.
    Events,
    /// The deadline passed: don't block.
    TimedOut,
    /// From now on wakers write to the eventfd. Block until it, or whatever else the loop waits for, is
    /// ready.
    Asleep,
}

impl Polled {
    /// Returns whether the caller should block.
    pub fn is_asleep(self) -> bool {
        self == Polled::Asleep
    }
}

/// The waking side. All clones wake the same thread.
#[derive(Clone)]
pub struct EventUnparker {
    shared: Arc<Shared>,
}

impl EventBell {
    /// Creates a bell with its own eventfd, non-blocking and closed on exec.
    ///
    /// # Errors
    /// If the kernel cannot provide a file descriptor.
    pub fn new() -> io::Result<Self> {
        Self::with_settings(ParkerBuilder::default())
    }

    /// Creates a bell that polls the way a parker with these settings does. It uses only the states that
    /// look, because one that monitors a cache line sees no events. The sleep's row stands for the caller's
    /// own system call. Its cost is learnt if the table learns.
    ///
    /// # Errors
    /// As for [`EventBell::new`].
    pub fn with_settings(settings: ParkerBuilder) -> io::Result<Self> {
        let eventfd = EventFd::new()?;
        let (wake_calls, free_rides) = Default::default();
        let shared = Arc::new(Shared { bell: Doorbell::new(), eventfd, wake_calls, free_rides });
        let (owed_writes, is_asleep, sleeps, timeouts, store_wakes) = Default::default();
        let polling = RefCell::new(Polling::new(settings));
        Ok(EventBell { shared, owed_writes, is_asleep, sleeps, timeouts, store_wakes, polling })
    }

    /// Returns the bell's waking side.
    pub fn unparker(&self) -> EventUnparker {
        EventUnparker { shared: self.shared.clone() }
    }

    /// Polls for a ring and for events as long as earlier waits make that worth its CPU time, perhaps not
    /// at all. Then it falls asleep, and the caller should block.
    ///
    /// `has_events` checks for events, for instance in the completion ring of an io_uring, or with an
    /// `epoll_wait` whose timeout is 0. It is called at least once, then about every half microsecond, so
    /// it should take less than that and must not block: a call of 30 µs counts as a preemption. After it
    /// has returned `true` it is not called again. A ring during the poll costs its waker no system call.
    ///
    /// [`EventBell::wake_up`] records how long the wait lasted, including the block.
    pub fn poll(&mut self, has_events: impl FnMut() -> bool) -> Polled {
        self.poll_until(None, has_events)
    }

    /// Like [`EventBell::poll`], before a block that has this timeout. The caller must subtract the time
    /// the poll took. If nothing happens before the timeout, the next wait with it does not poll.
    pub fn poll_timeout(&mut self, timeout: Duration, has_events: impl FnMut() -> bool) -> Polled {
        self.poll_until(Deadline::after(timeout), has_events)
    }

    /// Like [`EventBell::poll`], before a block that ends at this deadline.
    pub fn poll_deadline(&mut self, deadline: Instant, has_events: impl FnMut() -> bool) -> Polled {
        self.poll_until(Some(Deadline::at(deadline)), has_events)
    }

    fn poll_until(
        &mut self,
        deadline: Option<Deadline>,
        has_events: impl FnMut() -> bool,
    ) -> Polled {
        let (bell, polling) = (&self.shared.bell, self.polling.get_mut());
        // It also fails if `wake_up` was not called, because it was forgotten or `has_events` panicked. The
        // bell must then be woken up first.
        if !bell.start_polling() {
            return Polled::Woken;
        }
        let polled = polling.poll(bell, deadline, has_events).unwrap_or_else(|| {
            let is_asleep = !breaks!(PollWithoutSleep) && bell.fall_asleep();
            polling.falls_asleep(bell, is_asleep);
            self.is_asleep.set(is_asleep);
            let is_blocked = is_asleep || breaks!(PollWithoutSleep);
            if is_blocked { Polled::Asleep } else { Polled::Woken }
        });
        self.store_wakes += u64::from(polled == Polled::Woken);
        polled
    }

    /// Call it right before waiting for file descriptors. If it returns `false`, somebody rang: don't wait,
    /// but call [`EventBell::wake_up`].
    pub fn fall_asleep(&self) -> bool {
        let is_asleep = self.shared.bell.start_polling() && self.shared.bell.fall_asleep();
        // A bell that sleeps already still owes its `wake_up`.
        self.is_asleep.set(is_asleep || self.is_asleep.get());
        self.sleeps.set(self.sleeps.get() + u64::from(is_asleep));
        is_asleep
    }

    /// Call it right after the wait, however that ended. It returns `true` if somebody rang. What they
    /// wrote before is then visible.
    pub fn wake_up(&self) -> bool {
        let has_polled = self.polling.borrow_mut().wakes_up(&self.shared.bell);
        let is_woken = self.shared.bell.take();
        let was_asleep = self.is_asleep.replace(false);
        let is_timeout = was_asleep && !is_woken && !has_polled;
        self.timeouts.set(self.timeouts.get() + u64::from(is_timeout));
        let owed = self.owed_writes.get() + u64::from(was_asleep && is_woken);
        if owed > 0 {
            // A write that has not come yet will end a later wait once, and be read then.
            let read = self.shared.eventfd.read();
            let left = owed.saturating_sub(read);
            self.owed_writes.set(if breaks!(WriteForgotten) { 0 } else { left });
        }
        is_woken
    }

    /// Returns statistics of the waits. Waits that began with [`EventBell::poll`] are counted like a
    /// parker's. Of waits that slept at once, only `waits` is counted, and in `timeouts` those that other
    /// descriptors or the deadline ended. Wakers' calls and free rides are counted too.
    pub fn stats(&self) -> WaitStats {
        let polled = self.polling.borrow().stats();
        WaitStats {
            waits: polled.waits + self.sleeps.get(),
            timeouts: polled.timeouts + self.timeouts.get(),
            store_wakes: self.store_wakes,
            wake_calls: self.shared.wake_calls.load(Ordering::Relaxed),
            free_rides: Some(self.shared.free_rides.load(Ordering::Relaxed)),
            ..polled
        }
    }
}

impl EventUnparker {
    /// Wakes the thread, with a system call only if the thread sleeps and nobody else is waking it.
    ///
    /// # Errors
    /// If the kernel refuses the write, which does not happen as long as the eventfd is read.
    pub fn unpark(&self) -> io::Result<()> {
        match self.shared.bell.ring() {
            Ring::MustWake => {
                self.shared.wake_calls.fetch_add(1, Ordering::Relaxed);
                self.write()
            }
            Ring::FreeRide => {
                self.shared.free_rides.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ring::Deposited | Ring::StoreWakes => Ok(()),
        }
    }

    #[cfg(not(loom))]
    fn write(&self) -> io::Result<()> {
        learn::wake_by(&self.shared.bell, || self.shared.eventfd.write())
    }

    #[cfg(loom)]
    fn write(&self) -> io::Result<()> {
        self.shared.eventfd.write()
    }
}

#[cfg(not(loom))]
impl AsFd for EventBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.eventfd.as_fd()
    }
}

#[cfg(not(loom))]
impl AsRawFd for EventBell {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(loom)]
impl EventBell {
    /// Waits until the eventfd is readable, as epoll does.
    pub fn wait_readable(&self) {
        self.shared.eventfd.wait_readable();
    }

    /// Returns whether the eventfd is readable.
    pub fn is_readable(&self) -> bool {
        self.shared.eventfd.is_readable()
    }
}

impl fmt::Debug for EventBell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBell").field("state", &self.shared.bell.state()).finish()
    }
}

impl fmt::Debug for EventUnparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventUnparker").field("state", &self.shared.bell.state()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::table::WaitTable;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn poll(bell: &EventBell, timeout_ms: i32) -> bool {
        let mut poll = libc::pollfd { fd: bell.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives as long as the call.
        unsafe { libc::poll(&mut poll, 1, timeout_ms) == 1 }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no poll")]
    fn writes_for_a_sleeper_only_and_once() {
        let bell = EventBell::new().unwrap();
        let unparker = bell.unparker();
        unparker.unpark().unwrap();
        assert!(!bell.fall_asleep() && bell.wake_up());
        assert!(!poll(&bell, 0), "a running thread needs no event");

        assert!(bell.fall_asleep());
        unparker.unpark().unwrap();
        unparker.unpark().unwrap();
        assert!(poll(&bell, -1) && bell.wake_up());
        assert!(!poll(&bell, 0), "read");
        assert!(bell.fall_asleep() && !poll(&bell, 0) && !bell.wake_up(), "another event");
        let stats = bell.stats();
        assert_eq!((stats.waits, stats.timeouts), (2, 1));
        assert_eq!((stats.wake_calls, stats.free_rides), (1, Some(1)));
    }

    /// The thread wakes up by itself, twice, before the wakers write.
    #[test]
    #[cfg_attr(miri, ignore = "miri has no poll")]
    fn reads_each_late_write_once() {
        let bell = EventBell::new().unwrap();
        for _ in 0..2 {
            assert!(bell.fall_asleep());
            assert_eq!(bell.shared.bell.ring(), Ring::MustWake);
            assert!(bell.wake_up());
        }
        for _ in 0..2 {
            bell.shared.eventfd.write().unwrap();
            assert!(bell.fall_asleep() && poll(&bell, -1) && !bell.wake_up(), "late");
            assert!(!poll(&bell, 0), "read");
        }
        assert_eq!(bell.owed_writes.get(), 0);
    }

    /// A bell that sleeps after one look, or one that polls for ever unless there is a crowd.
    fn sleeper() -> EventBell {
        EventBell::with_settings(ParkerBuilder::default().cpu_budget_permille(0)).unwrap()
    }

    fn poller() -> EventBell {
        let table = WaitTable::assumed("spin,condvar").unwrap();
        EventBell::with_settings(ParkerBuilder::default().table(table).latency_limit_ns(1)).unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no poll")]
    fn a_ring_while_it_polls_costs_no_write() {
        for mut bell in [sleeper(), poller()] {
            let unparker = bell.unparker();
            let mut looks = 0;
            let polled = bell.poll(|| {
                looks += 1;
                unparker.unpark().unwrap();
                false
            });
            assert_eq!((polled, looks), (Polled::Woken, 1));
            assert!(!poll(&bell, 0), "nobody wrote");
            assert!(bell.wake_up());
            let stats = bell.stats();
            assert_eq!((stats.wake_calls, stats.store_wakes), (0, 1));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no poll")]
    fn a_ring_after_the_poll_ends_the_block() {
        let mut bell = sleeper();
        let unparker = bell.unparker();
        for _ in 0..100 {
            assert!(bell.poll(|| false).is_asleep());
            unparker.unpark().unwrap();
            unparker.unpark().unwrap();
            assert!(poll(&bell, -1) && bell.wake_up());
            assert!(!poll(&bell, 0), "read");
        }
        let stats = bell.stats();
        assert_eq!((stats.waits, stats.timeouts, stats.store_wakes), (100, 0, 0));
        assert_eq!((stats.wake_calls, stats.free_rides), (100, Some(100)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no poll")]
    fn tells_events_from_deadlines() {
        let mut bell = sleeper();
        assert_eq!(bell.poll(|| true), Polled::Events);
        assert!(!bell.wake_up());
        assert_eq!(bell.poll_timeout(Duration::ZERO, || false), Polled::TimedOut);
        assert!(!bell.wake_up());
        assert_eq!(bell.stats().waits, 0, "nobody waited");

        assert!(bell.poll(|| false).is_asleep());
        assert!(!bell.wake_up(), "an event ended it");
        assert_eq!((bell.stats().waits, bell.stats().timeouts), (1, 0));
        let soon = Instant::now() + Duration::from_millis(20);
        // A busy machine may get here too late.
        let polled = bell.poll_deadline(soon, || false);
        poll(&bell, if polled.is_asleep() { 30 } else { 0 });
        assert!(!bell.wake_up());
        let stats = bell.stats();
        assert_eq!(stats.timeouts, stats.waits - 1, "the deadline did");
    }

    /// After a look that panicked, or a forgotten `wake_up`, the bell still works.
    #[test]
    #[cfg_attr(miri, ignore = "miri has no poll")]
    fn can_be_left_half_way() {
        let mut bell = sleeper();
        let unparker = bell.unparker();
        let look = || -> bool { std::panic::resume_unwind(Box::new(())) };
        let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bell.poll(look)));
        assert!(left.is_err());
        assert_eq!(bell.poll(|| false), Polled::Woken);
        assert!(!bell.wake_up(), "for no reason");

        assert!(bell.poll(|| false).is_asleep());
        unparker.unpark().unwrap();
        assert_eq!(bell.poll(|| false), Polled::Woken);
        assert!(!bell.fall_asleep());
        assert!(bell.wake_up());
        assert!(!poll(&bell, 0), "what was written is read");
        assert!(bell.poll(|| false).is_asleep());
    }

    /// Rings, and bytes from a socket, come from two threads. The loop blocks without a deadline.
    #[test]
    #[cfg_attr(miri, ignore = "miri has no poll")]
    fn loses_neither_rings_nor_events_between_look_and_sleep() {
        use std::io::{Read, Write};
        use std::os::unix::net::UnixStream;
        const COUNT: u32 = 20_000;
        for mut bell in [EventBell::new().unwrap(), sleeper()] {
            let (mut socket, mut peer) = UnixStream::pair().unwrap();
            let fds = [bell.as_raw_fd(), socket.as_raw_fd()];
            let ready = |from: usize, timeout_ms: i32| {
                let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                let mut entries = fds.map(entry);
                let entries = &mut entries[from..];
                // SAFETY: as many entries as it is told of.
                unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as _, timeout_ms) };
                entries.last().unwrap().revents != 0
            };
            let work = AtomicU32::new(0);
            std::thread::scope(|scope| {
                let (unparker, work) = (bell.unparker(), &work);
                scope.spawn(move || {
                    for n in 1..=COUNT {
                        work.store(n, Ordering::Relaxed);
                        unparker.unpark().unwrap();
                        if n % 8 == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
                scope.spawn(move || {
                    for n in 0..COUNT {
                        peer.write_all(&[0]).unwrap();
                        if n % 8 == 0 {
                            std::thread::yield_now();
                        }
                    }
                });
                let mut byte_count = 0;
                while work.load(Ordering::Relaxed) < COUNT || byte_count < COUNT as usize {
                    let is_asleep = bell.poll(|| ready(1, 0)).is_asleep();
                    if ready(0, if is_asleep { -1 } else { 0 }) {
                        byte_count += socket.read(&mut [0; 64]).unwrap();
                    }
                    bell.wake_up();
                }
            });
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no poll")]
    fn loses_no_ring() {
        const COUNT: u32 = 20_000;
        let bell = EventBell::new().unwrap();
        let work = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let unparker = bell.unparker();
            let work = &work;
            scope.spawn(move || {
                for n in 1..=COUNT {
                    work.store(n, Ordering::Relaxed);
                    unparker.unpark().unwrap();
                    if n % 8 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            while work.load(Ordering::Relaxed) < COUNT {
                let is_asleep = bell.fall_asleep();
                poll(&bell, if is_asleep { -1 } else { 0 });
                bell.wake_up();
            }
        });
    }
}
