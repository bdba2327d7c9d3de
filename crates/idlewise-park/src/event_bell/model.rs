//! The eventfd of a model: a count, and a poll that waits for it.

use std::io;

use loom::sync::{Condvar, Mutex};

pub(super) struct EventFd {
    count: Mutex<u64>,
    written: Condvar,
}

impl EventFd {
    pub(super) fn new() -> io::Result<Self> {
        Ok(EventFd { count: Mutex::new(0), written: Condvar::new() })
    }

    pub(super) fn read(&self) -> u64 {
        std::mem::take(&mut *self.count.lock().unwrap())
    }

    pub(super) fn write(&self) -> io::Result<()> {
        *self.count.lock().unwrap() += 1;
        self.written.notify_all();
        Ok(())
    }

    pub(super) fn wait_readable(&self) {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            count = self.written.wait(count).unwrap();
        }
    }

    pub(super) fn is_readable(&self) -> bool {
        *self.count.lock().unwrap() > 0
    }
}
