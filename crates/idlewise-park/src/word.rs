//! Sleeping while a word has a value, for protocols of others: [`wait`], [`wake_one`], [`wake_all`].
//!
//! These are the platform's own (futex, `WaitOnAddress`, `os_sync_wait_on_address`; elsewhere condition
//! variables). They do not poll: what a waker must do depends on whether somebody polls, and only
//! whoever owns the protocol can say so in the word. [`RawParker`](crate::RawParker) is such a protocol.
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use idlewise_park::word;
//!
//! static GATE: AtomicU32 = AtomicU32::new(0);
//! let opener = std::thread::spawn(|| {
//!     GATE.store(1, Ordering::Release);
//!     word::wake_all(&GATE);
//! });
//! while GATE.load(Ordering::Acquire) == 0 {
//!     word::wait(&GATE, 0);
//! }
//! opener.join().unwrap();
//! ```

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock::Deadline;
use crate::wait::word::{Reach, Who, sleep, wake};

/// Sleeps while the word is `expected` and nobody wakes. It may return for no reason: look at the
/// word again. A [`wake_one`] after a change of the word is not missed.
pub fn wait(word: &AtomicU32, expected: u32) {
    if word.load(Ordering::Relaxed) == expected {
        sleep(word, expected, None, Reach::Process);
    }
}

/// As [`wait`], but not longer than this. `false`: time is up, and the word was `expected` all along, as
/// far as was seen.
pub fn wait_timeout(word: &AtomicU32, expected: u32, timeout: Duration) -> bool {
    let Some(mut deadline) = Deadline::after(timeout) else {
        wait(word, expected);
        return true;
    };
    if word.load(Ordering::Relaxed) == expected {
        sleep(word, expected, Some(deadline.instant()), Reach::Process);
    }
    word.load(Ordering::Relaxed) != expected || !deadline.is_reached()
}

/// Wakes one thread that waits on the word at this address, or more where the platform cannot tell them
/// apart. Change the word first. The address is not read, so the word may be gone by then; a thread
/// that waits on what lies there now wakes up for no reason.
pub fn wake_one(word: *const AtomicU32) {
    wake(word, Who::One, Reach::Process);
}

/// Wakes all threads that wait on the word at this address, as [`wake_one`] does one.
pub fn wake_all(word: *const AtomicU32) {
    wake(word, Who::All, Reach::Process);
}
