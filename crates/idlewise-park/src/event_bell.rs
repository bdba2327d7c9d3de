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

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use idlewise_core::{Doorbell, DoorbellState, Ring};

#[repr(align(128))]
struct Shared {
    bell: Doorbell,
    eventfd: OwnedFd,
}

/// The waiting side, for the thread that polls the file descriptor.
pub struct EventBell {
    shared: Arc<Shared>,
    /// A waker's write was owed when this thread woke up by itself, and has not been read yet.
    has_late_write: std::cell::Cell<bool>,
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
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it, for us alone.
        let eventfd = unsafe { OwnedFd::from_raw_fd(fd) };
        let shared = Arc::new(Shared { bell: Doorbell::new(), eventfd });
        Ok(EventBell { shared, has_late_write: false.into() })
    }

    /// What wakes the thread.
    pub fn unparker(&self) -> EventUnparker {
        EventUnparker { shared: self.shared.clone() }
    }

    /// Call it right before waiting for file descriptors. `false`: somebody rang; don't wait, but
    /// call [`EventBell::wake_up`].
    pub fn fall_asleep(&self) -> bool {
        self.shared.bell.start_polling() && self.shared.bell.fall_asleep()
    }

    /// Call it right after, whatever ended the wait. `true`: somebody rang, and what they wrote
    /// before is seen.
    pub fn wake_up(&self) -> bool {
        let had_call = self.shared.bell.state() == DoorbellState::Waking;
        let is_rung = self.shared.bell.take();
        if had_call || self.has_late_write.get() {
            // The write may not have come yet: it will end a later wait once, and be read then.
            self.has_late_write.set(!self.drain());
        }
        is_rung
    }

    fn drain(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: reads eight bytes into a u64.
        let size = unsafe {
            libc::read(self.as_raw_fd(), std::ptr::from_mut(&mut count).cast(), size_of::<u64>())
        };
        size > 0
    }
}

impl EventUnparker {
    /// Wakes the thread, with a system call only if it sleeps and nobody else is waking it.
    ///
    /// # Errors
    /// If the kernel refuses the write, which it does not do to an eventfd that is read.
    pub fn unpark(&self) -> io::Result<()> {
        if self.shared.bell.ring() != Ring::MustWake {
            return Ok(());
        }
        let one = 1u64;
        loop {
            // SAFETY: writes eight bytes from a u64.
            let size = unsafe {
                let fd = self.shared.eventfd.as_raw_fd();
                libc::write(fd, std::ptr::from_ref(&one).cast(), size_of::<u64>())
            };
            if size > 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                // Full of wake-ups that nobody read: it is readable, which is all we want.
                io::ErrorKind::WouldBlock => return Ok(()),
                _ => return Err(error),
            }
        }
    }
}

impl AsFd for EventBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.eventfd.as_fd()
    }
}

impl AsRawFd for EventBell {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.eventfd.as_raw_fd()
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

#[cfg(test)]
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
