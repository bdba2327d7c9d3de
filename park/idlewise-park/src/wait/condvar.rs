//! Sleeping with std's mutex and condition variable, for systems whose futex this crate doesn't call.
//!
//! It works like the kernel's futexes: sleepers hash to a few buckets. Comparing the word and falling
//! asleep happen under the bucket's lock, which a waker takes after it changed the word.

use std::sync::PoisonError;
use std::time::Instant;

#[cfg(not(loom))]
use idlewise_core::Doorbell;

#[cfg(not(loom))]
use super::WaitMethod;
use crate::clock;
use crate::sync::{AtomicU32, Condvar, Mutex, Ordering, breaks};

struct Bucket {
    lock: Mutex<()>,
    woken: Condvar,
}

#[cfg(not(loom))]
static BUCKETS: [Bucket; 64] =
    [const { Bucket { lock: Mutex::new(()), woken: Condvar::new() } }; 64];

// In a model all words share one bucket.
#[cfg(loom)]
loom::lazy_static! {
    static ref BUCKETS: [Bucket; 1] = [Bucket { lock: Mutex::new(()), woken: Condvar::new() }];
}

fn bucket(word: *const AtomicU32) -> &'static Bucket {
    // Parkers' doorbells have two cache lines each; other words may be neighbours. This spreads both.
    let address = word.addr();
    &BUCKETS[((address >> 7) ^ (address >> 2)) % BUCKETS.len()]
}

/// Sleeps while the word is `expected`. May return spuriously.
pub fn sleep(word: &AtomicU32, expected: u32, until: Option<Instant>) {
    let Bucket { lock, woken } = bucket(word);
    // The lock protects no data, so a poisoned one does no harm.
    let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    if !breaks!(SleepWithoutLook) && word.load(Ordering::Relaxed) != expected {
        return;
    }
    match until {
        None => drop(woken.wait(guard)),
        Some(until) => {
            let left = until.saturating_duration_since(Instant::now());
            drop(woken.wait_timeout(guard, left));
        }
    }
}

/// Wakes all threads in the bucket of the word at this address; those of other words sleep again.
pub fn wake(word: *const AtomicU32) {
    let Bucket { lock, woken } = bucket(word);
    drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
    woken.notify_all();
}

/// Sleeps on a bucket's condition variable.
#[cfg(not(loom))]
pub struct Buckets;

#[cfg(not(loom))]
impl WaitMethod for Buckets {
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        sleep(bell.word(), Doorbell::SLEEPING_WORD, until_ns.and_then(clock::instant_at));
    }

    fn wake(&self, bell: *const Doorbell) {
        wake(bell.cast());
    }
}
