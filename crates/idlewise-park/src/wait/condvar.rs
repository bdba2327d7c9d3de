//! A sleep with std's mutex and condition variable, for systems whose futex we don't call.
//!
//! As the kernel's futexes do it: sleepers hash to a few buckets; comparing the word and sleeping
//! happen under the bucket's lock, which a waker takes after it changed the word.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use idlewise_core::{Doorbell, DoorbellState};

use super::WaitMethod;
use crate::clock;

struct Bucket {
    lock: Mutex<()>,
    woken: Condvar,
}

static BUCKETS: [Bucket; 64] =
    [const { Bucket { lock: Mutex::new(()), woken: Condvar::new() } }; 64];

fn bucket(bell: &Doorbell) -> &'static Bucket {
    // Doorbells have a cache line each, so the bits below say nothing.
    &BUCKETS[(std::ptr::from_ref(bell).addr() >> 7) % BUCKETS.len()]
}

/// Sleeps on a bucket's condition variable.
pub struct Buckets;

impl WaitMethod for Buckets {
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        let Bucket { lock, woken } = bucket(bell);
        // The lock protects no data, so a poisoned one is as good.
        let guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        if bell.state() != DoorbellState::Sleeping {
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

    fn wake(&self, bell: &Doorbell) {
        let Bucket { lock, woken } = bucket(bell);
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        // Others may share the bucket; they look and sleep again.
        woken.notify_all();
    }
}
