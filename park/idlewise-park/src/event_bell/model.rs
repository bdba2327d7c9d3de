//! A model's eventfd, made of a count and a poll that waits for it, and a bell without a governor.

use std::io;

use idlewise_core::Doorbell;
use loom::sync::{Condvar, Mutex};

use super::Polled;
use crate::clock::Deadline;
use crate::parker::ParkerBuilder;
use crate::stats::WaitStats;

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

/// One look. How long a wait polls must not matter to the protocol.
pub(super) struct Polling;

impl Polling {
    pub(super) fn new(_settings: ParkerBuilder) -> Self {
        Polling
    }

    pub(super) fn poll(
        &mut self,
        _bell: &Doorbell,
        _deadline: Option<Deadline>,
        mut has_events: impl FnMut() -> bool,
    ) -> Option<Polled> {
        has_events().then_some(Polled::Events)
    }

    pub(super) fn falls_asleep(&mut self, _bell: &Doorbell, _is_asleep: bool) {}

    pub(super) fn wakes_up(&mut self, _bell: &Doorbell) -> bool {
        false
    }

    pub(super) fn stats(&self) -> WaitStats {
        WaitStats::default()
    }
}
