//! Sleeping while a word has a given value, for other protocols: [`wait`], [`wake_one`], [`wake_all`].
//!
//! These are the platform's own calls (futex, `WaitOnAddress`, `os_sync_wait_on_address`; condition
//! variables elsewhere). They do not poll. What a waker must do depends on whether a waiter polls, and only
//! the owner of the protocol can record that in the word. [`RawParker`](crate::RawParker) is such a
//! protocol.
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

/// Sleeps while the word is `expected`, until woken. It may return spuriously, so look at the word again. A
/// [`wake_one`] after a change of the word is never missed.
pub fn wait(word: &AtomicU32, expected: u32) {
    if word.load(Ordering::Relaxed) == expected {
        sleep(word, expected, None, Reach::Process);
    }
}

/// Like [`wait`], but no longer than `timeout`. Returns `false` if the time is up and the word was
/// `expected` whenever it was read.
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
/// apart. Change the word first. The address is not read, so the word may be gone by then; a thread that
/// waits on whatever is there now wakes up spuriously.
pub fn wake_one(word: *const AtomicU32) {
    wake(word, Who::One, Reach::Process);
}

/// Wakes all threads that wait on the word at this address. See [`wake_one`].
pub fn wake_all(word: *const AtomicU32) {
    wake(word, Who::All, Reach::Process);
}
