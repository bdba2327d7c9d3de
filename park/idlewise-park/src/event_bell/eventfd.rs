//! The eventfd: the kernel's counter that a poll waits for.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(super) struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// Creates a non-blocking eventfd that is closed on exec.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created it for this caller alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(EventFd { fd })
    }

    /// Resets the counter, and returns how many writes there were.
    pub(super) fn read(&self) -> u64 {
        let mut count = 0u64;
        // SAFETY: reads eight bytes into a u64.
        let size = unsafe {
            let place = std::ptr::from_mut(&mut count).cast();
            libc::read(self.fd.as_raw_fd(), place, size_of::<u64>())
        };
        if size > 0 { count } else { 0 }
    }

    /// Makes the eventfd readable.
    pub(super) fn write(&self) -> io::Result<()> {
        let one = 1u64;
        loop {
            // SAFETY: writes eight bytes from a u64.
            let size = unsafe {
                let place = std::ptr::from_ref(&one).cast();
                libc::write(self.fd.as_raw_fd(), place, size_of::<u64>())
            };
            if size > 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                // The counter is full of wake-ups that nobody read. It is readable, which is enough.
                io::ErrorKind::WouldBlock => return Ok(()),
                _ => return Err(error),
            }
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
