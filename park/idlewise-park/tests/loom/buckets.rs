//! The sleep used on systems without futexes.

use std::sync::Arc;

use idlewise_core::model::{explore, must_fail};
use idlewise_core::sync::broken::Break;
use idlewise_park::Parker;
use idlewise_park::condvar::{sleep, wake};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// Two sleepers with a waker each share the bucket. A wake-up that reaches the wrong one must not be lost.
fn two_sleepers() {
    let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
    let wait = |word: &AtomicU32| {
        while word.load(Ordering::Relaxed) == 0 {
            sleep(word, 0, None);
        }
    };
    let other = {
        let words = words.clone();
        thread::spawn(move || wait(&words[1]))
    };
    let waker = {
        let words = words.clone();
        thread::spawn(move || {
            for word in words.iter() {
                word.store(1, Ordering::Relaxed);
                wake(word);
            }
        })
    };
    wait(&words[0]);
    other.join().unwrap();
    waker.join().unwrap();
}

#[test]
fn two_sleepers_share_a_bucket() {
    explore("condition variables: two sleepers, one bucket", two_sleepers);
}

#[test]
fn broken_sleeping_without_a_look() {
    must_fail(Break::SleepWithoutLook, two_sleepers);
}

#[test]
fn two_unparks_race_with_a_park() {
    explore("parker on condition variables, two wakers", || {
        let parker = Parker::new();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let unparker = parker.unparker().clone();
                thread::spawn(move || unparker.unpark())
            })
            .collect();
        parker.park();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
