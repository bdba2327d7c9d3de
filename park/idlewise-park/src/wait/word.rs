//! Sleeping on a 32-bit word: the best call that the platform has, or else a condition variable.
//!
//! | platform | how | file |
//! | --- | --- | --- |
//! | Linux | futex | `futex.rs` |
//! | Windows | `WaitOnAddress` | `windows.rs` |
//! | macOS 14.4, iOS 17.4 | `os_sync_wait_on_address` | `apple.rs` |
//! | others | a few of std's condition variables | `condvar.rs` |

use std::sync::atomic::AtomicU32;
use std::time::Instant;

use idlewise_core::Doorbell;

pub(crate) use super::reach::{Reach, Who};
use super::{WaitMethod, condvar};
use crate::clock;

#[cfg(target_vendor = "apple")]
use super::apple as system;
#[cfg(target_os = "linux")]
use super::futex as system;
#[cfg(windows)]
use super::windows as system;

/// For platforms on which no kernel call is used.
#[cfg(not(any(target_os = "linux", windows, target_vendor = "apple")))]
mod system {
    use super::*;

    pub(super) fn missing() -> Option<&'static str> {
        Some("not of this platform")
    }

    pub(super) fn sleep(_: &AtomicU32, _: u32, _: Option<Instant>, _: Reach) {}

    pub(super) fn wake(_: *const AtomicU32, _: Who, _: Reach) {}
}

impl Reach {
    /// The kernel's sleep for this reach.
    pub(crate) fn sleep(self) -> &'static dyn WaitMethod {
        match self {
            Reach::Process => &Futex { reach: Reach::Process },
            Reach::Processes => &Futex { reach: Reach::Processes },
        }
    }
}

/// What the kernel call requires and this system lacks.
pub(super) fn missing() -> Option<&'static str> {
    system::missing()
}

/// Sleeps while the word is `expected`, until woken or until the deadline. May return spuriously.
pub(crate) fn sleep(word: &AtomicU32, expected: u32, until: Option<Instant>, reach: Reach) {
    if missing().is_some() {
        condvar::sleep(word, expected, until);
    } else {
        system::sleep(word, expected, until, reach);
    }
}

/// Wakes the threads that sleep on the word at this address. The address is not read, so the word may be
/// gone.
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
