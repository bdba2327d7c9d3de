//! [`EventBell`]: a doorbell for a thread that sleeps in `epoll_wait`, `poll` or `io_uring` (Linux).
//!
//! Such a thread cannot sleep on a futex, because it waits for file descriptors too. It falls
//! asleep on the doorbell before it calls the kernel; a waker writes to the eventfd then, and only
//! then:
//!
//! ```no_run
//! # fn epoll_wait(timeout: i32) -> bool { true }
//! # let bell = idlewise_park::EventBell::new().unwrap();
//! # // register bell.as_raw_fd() for reading, level-triggered
//! loop {
//!     let timeout = if bell.fall_asleep() { -1 } else { 0 };
//!     let events = epoll_wait(timeout);
//!     if bell.wake_up() { /* somebody rang: look for what they left */ }
//! }
//! ```

#[cfg(not(loom))]
mod eventfd;
#[cfg(loom)]
#[path = "model.rs"]
mod eventfd;

use std::cell::Cell;
use std::fmt;
use std::io;
#[cfg(not(loom))]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use eventfd::EventFd;
use idlewise_core::{Doorbell, Ring};

use crate::stats::WaitStats;
use crate::sync::{Arc, breaks};

#[repr(align(128))]
struct Shared {
    bell: Doorbell,
    eventfd: EventFd,
    wake_calls: AtomicU64,
    free_rides: AtomicU64,
}

/// The waiting side, for the thread that polls the file descriptor.
pub struct EventBell {
    shared: Arc<Shared>,
    /// Writes that wakers owe or have made, and that have not been read yet: one for each time that a
    /// ring met the sleeping thread. One that woke up by itself may be ahead of several.
    owed_writes: Cell<u64>,
    /// It fell asleep and has not called `wake_up`: a ring since then owes a write.
    is_asleep: Cell<bool>,
    sleeps: Cell<u64>,
    timeouts: Cell<u64>,
}

/// The waking side. Clones wake the same thread.
#[derive(Clone)]
pub struct EventUnparker {
    shared: Arc<Shared>,
}

impl EventBell {
    /// A bell with an eventfd of its own, non-blocking and closed on exec.
    ///
    /// # Errors
    /// If the kernel gives no file descriptor.
    pub fn new() -> io::Result<Self> {
        let eventfd = EventFd::new()?;
        let (wake_calls, free_rides) = Default::default();
        let shared = Arc::new(Shared { bell: Doorbell::new(), eventfd, wake_calls, free_rides });
        let (owed_writes, is_asleep, sleeps, timeouts) = Default::default();
        Ok(EventBell { shared, owed_writes, is_asleep, sleeps, timeouts })
    }

    /// What wakes the thread.
    pub fn unparker(&self) -> EventUnparker {
        EventUnparker { shared: self.shared.clone() }
    }

    /// Call it right before waiting for file descriptors. `false`: somebody rang; don't wait, but
    /// call [`EventBell::wake_up`].
    pub fn fall_asleep(&self) -> bool {
        let is_asleep = self.shared.bell.start_polling() && self.shared.bell.fall_asleep();
        self.is_asleep.set(is_asleep);
        self.sleeps.set(self.sleeps.get() + u64::from(is_asleep));
        is_asleep
    }

    /// Call it right after, whatever ended the wait. `true`: somebody rang, and what they wrote
    /// before is seen.
    pub fn wake_up(&self) -> bool {
        let is_woken = self.shared.bell.take();
        let was_asleep = self.is_asleep.replace(false);
        self.timeouts.set(self.timeouts.get() + u64::from(was_asleep && !is_woken));
        let owed = self.owed_writes.get() + u64::from(was_asleep && is_woken);
        if owed > 0 {
            // A write that has not come yet will end a later wait once, and be read then.
            let read = self.shared.eventfd.read();
            let left = owed.saturating_sub(read);
            self.owed_writes.set(if breaks!(WriteForgotten) { 0 } else { left });
        }
        is_woken
    }

    /// What the waits were like: `waits` of those that slept, `timeouts` of these that other
    /// descriptors or the deadline ended, wakers' calls and free rides.
    pub fn stats(&self) -> WaitStats {
        WaitStats {
            waits: self.sleeps.get(),
            timeouts: self.timeouts.get(),
            wake_calls: self.shared.wake_calls.load(Ordering::Relaxed),
            free_rides: Some(self.shared.free_rides.load(Ordering::Relaxed)),
            ..WaitStats::default()
        }
    }
}

impl EventUnparker {
    /// Wakes the thread, with a system call only if it sleeps and nobody else is waking it.
    ///
    /// # Errors
    /// If the kernel refuses the write, which it does not do to an eventfd that is read.
    pub fn unpark(&self) -> io::Result<()> {
        match self.shared.bell.ring() {
            Ring::MustWake => {
                self.shared.wake_calls.fetch_add(1, Ordering::Relaxed);
                self.shared.eventfd.write()
            }
            Ring::FreeRide => {
                self.shared.free_rides.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ring::Deposited | Ring::StoreWakes => Ok(()),
        }
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
    /// What epoll does: waits until the eventfd is readable.
    pub fn wait_readable(&self) {
        self.shared.eventfd.wait_readable();
    }

    /// Whether it is.
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

    /// The thread wakes up by itself, twice, before the wakers get to write.
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
