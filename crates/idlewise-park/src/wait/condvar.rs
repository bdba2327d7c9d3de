//! A sleep with std's mutex and condition variable, for systems whose futex we don't call.
//!
//! As the kernel's futexes do it: sleepers hash to a few buckets; comparing the word and sleeping
//! happen under the bucket's lock, which a waker takes after it changed the word.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use idlewise_core::Doorbell;

use super::WaitMethod;
use crate::clock;

struct Bucket {
    lock: Mutex<()>,
    woken: Condvar,
}

static BUCKETS: [Bucket; 64] =
    [const { Bucket { lock: Mutex::new(()), woken: Condvar::new() } }; 64];

fn bucket(word: *const AtomicU32) -> &'static Bucket {
    // Parkers' doorbells have two cache lines each, words of others may be neighbours: both spread.
    let address = word.addr();
    &BUCKETS[((address >> 7) ^ (address >> 2)) % BUCKETS.len()]
}

/// Sleeps while the word is `expected`; returns early for no reason now and then.
pub(super) fn sleep(word: &AtomicU32, expected: u32, until_ns: Option<u64>) {
    let Bucket { lock, woken } = bucket(word);
    // The lock protects no data, so a poisoned one is as good.
    let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    if word.load(Ordering::Relaxed) != expected {
        return;
    }
    match until_ns {
        None => drop(woken.wait(guard)),
        Some(until_ns) => {
            let left = Duration::from_nanos(until_ns.saturating_sub(clock::now_ns()));
            drop(woken.wait_timeout(guard, left));
        }
    }
}

/// Wakes all who sleep in the bucket of the word at this address: they look and sleep again.
pub(super) fn wake(word: *const AtomicU32) {
    let Bucket { lock, woken } = bucket(word);
    drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
    woken.notify_all();
}

/// Sleeps on a bucket's condition variable.
pub struct Buckets;

impl WaitMethod for Buckets {
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        sleep(bell.word(), Doorbell::SLEEPING_WORD, until_ns);
    }

    fn wake(&self, bell: *const Doorbell) {
        wake(bell.cast());
    }
}
