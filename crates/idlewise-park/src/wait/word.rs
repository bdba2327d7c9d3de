//! Sleeping on a word of 32 bits: the best that the platform has, else a condition variable.
//!
//! | platform | how | file |
//! | --- | --- | --- |
//! | Linux | futex | `futex.rs` |
//! | Windows | `WaitOnAddress` | `windows.rs` |
//! | macOS 14.4, iOS 17.4 | `os_sync_wait_on_address` | `apple.rs` |
//! | others | a few condition variables of std's | `condvar.rs` |

use std::sync::atomic::AtomicU32;
use std::time::Instant;

use idlewise_core::Doorbell;

use super::{WaitMethod, condvar};
use crate::clock;

#[cfg(target_vendor = "apple")]
use super::apple as system;
#[cfg(target_os = "linux")]
use super::futex as system;
#[cfg(windows)]
use super::windows as system;

/// Where no kernel call is used.
#[cfg(not(any(target_os = "linux", windows, target_vendor = "apple")))]
mod system {
    use super::*;

    pub(super) fn missing() -> Option<&'static str> {
        Some("not of this platform")
    }

    pub(super) fn sleep(_: &AtomicU32, _: u32, _: Option<Instant>, _: Reach) {}

    pub(super) fn wake(_: *const AtomicU32, _: Who, _: Reach) {}
}

/// Where sleepers and wakers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In one process.
    Process,
    /// In any that have mapped the word's memory. Only Linux's futex does that here.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "elsewhere nobody asks"))]
    Processes,
}

impl Reach {
    /// The kernel's sleep for it.
    pub(crate) fn sleep(self) -> &'static dyn WaitMethod {
        match self {
            Reach::Process => &Futex { reach: Reach::Process },
            Reach::Processes => &Futex { reach: Reach::Processes },
        }
    }
}

/// Who is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    One,
    All,
}

/// What the kernel call needs that is missing here.
pub(super) fn missing() -> Option<&'static str> {
    system::missing()
}

/// Sleeps while the word is `expected`, until it is woken or that moment has come; returns early
/// for no reason now and then.
pub(crate) fn sleep(word: &AtomicU32, expected: u32, until: Option<Instant>, reach: Reach) {
    if missing().is_some() {
        condvar::sleep(word, expected, until);
    } else {
        system::sleep(word, expected, until, reach);
    }
}

/// Wakes those who sleep on the word at this address. It may be nobody's any more: it is not read.
pub(crate) fn wake(word: *const AtomicU32, who: Who, reach: Reach) {
    if missing().is_some() {
        condvar::wake(word);
    } else {
        system::wake(word, who, reach);
    }
}

/// Sleeps in the kernel.
pub struct Futex {
    pub(crate) reach: Reach,
}

impl WaitMethod for Futex {
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        let until = until_ns.and_then(clock::instant_at);
        sleep(bell.word(), Doorbell::SLEEPING_WORD, until, self.reach);
    }

    fn wake(&self, bell: *const Doorbell) {
        wake(bell.cast(), Who::One, self.reach);
    }
}
