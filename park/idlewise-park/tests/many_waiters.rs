//! Many waiters on an event count, a semaphore, a mutex and a condition variable.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use idlewise_park::{EventCount, Semaphore};

/// Three threads each wait for their turn, many times, and nobody misses one.
#[test]
fn waiters_of_an_event_count_take_turns() {
    const TURNS: u64 = if cfg!(miri) { 60 } else { 15_000 };
    let (turn, changed) = (AtomicU64::new(0), EventCount::new());
    thread::scope(|scope| {
        for number in 0..3 {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                for own in (number..TURNS).step_by(3) {
                    changed.wait(|| (turn.load(Ordering::Acquire) == own).then_some(()));
                    turn.store(own + 1, Ordering::Release);
                    changed.notify_all();
                }
            });
        }
    });
    assert_eq!(turn.into_inner(), TURNS);
}

#[test]
fn a_condition_that_panics_leaves_no_waiter_behind() {
    let events = EventCount::new();
    let mut looks = 0;
    let wait = std::panic::AssertUnwindSafe(|| {
        events.wait(|| {
            looks += 1;
            assert!(looks < 2, "on purpose");
            None::<()>
        });
    });
    std::panic::catch_unwind(wait).unwrap_err();
    assert_eq!((events.waiting_count(), events.notify(1)), (0, 0));
}

/// A condition that itself waits, with the same thread's parker.
#[test]
fn a_condition_may_wait() {
    let (outer, inner) = (EventCount::new(), Semaphore::new(1));
    let mut looks = 0;
    let seen = outer.wait_timeout(
        || {
            looks += 1;
            if let Some(permit) = inner.acquire_timeout(Duration::from_micros(1)) {
                permit.forget();
            }
            (looks == 3).then_some(looks)
        },
        Duration::from_micros(50),
    );
    assert_eq!((seen, looks), (Some(3), 3));
}

/// There are never more threads inside than permits, and everybody gets in.
#[test]
fn a_semaphore_admits_as_many_as_it_has_permits() {
    const TIMES: usize = if cfg!(miri) { 20 } else { 3_000 };
    let semaphore = Semaphore::new(2);
    let (inside, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..4 {
            let (semaphore, inside, entered) = (&semaphore, &inside, &entered);
            scope.spawn(move || {
                for time in 0..TIMES {
                    let permit = if (time + number) % 3 == 0 {
                        let timeout = Duration::from_micros(time as u64 % 40);
                        let Some(permit) = semaphore.acquire_timeout(timeout) else { continue };
                        permit
                    } else {
                        semaphore.acquire()
                    };
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 2);
                    entered.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!(semaphore.available_count(), 2);
    assert!(entered.into_inner() >= 4 * TIMES / 3 * 2, "those without a timeout");
}

#[cfg(feature = "lock_api")]
mod locks {
    use idlewise_park::{Condvar, Mutex};

    use super::*;

    #[test]
    fn a_mutex_lets_one_in() {
        const TIMES: u64 = if cfg!(miri) { 50 } else { 20_000 };
        let count = Mutex::new(0u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..TIMES).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(count.into_inner(), 4 * TIMES);
    }

    #[test]
    fn a_mutex_is_given_up_on() {
        let mutex = Mutex::new(0);
        let held = mutex.lock();
        assert!(mutex.try_lock().is_none());
        assert!(mutex.try_lock_for(Duration::from_micros(10)).is_none());
        drop(held);
        assert!(mutex.try_lock_for(Duration::ZERO).is_some());
    }

    /// Two threads pass a value back and forth.
    #[test]
    fn a_condition_variable_loses_no_notification() {
        const TURNS: u32 = if cfg!(miri) { 40 } else { 10_000 };
        let (turn, changed) = (Mutex::new(0), Condvar::new());
        thread::scope(|scope| {
            for number in 0..2 {
                let (turn, changed) = (&turn, &changed);
                scope.spawn(move || {
                    for own in (number..TURNS).step_by(2) {
                        let mut turn = turn.lock();
                        while *turn != own {
                            changed.wait(&mut turn);
                        }
                        *turn += 1;
                        drop(turn);
                        changed.notify_one();
                    }
                });
            }
        });
        assert_eq!(turn.into_inner(), TURNS);
        let alone = Mutex::new(());
        assert!(!changed.wait_timeout(&mut alone.lock(), Duration::ZERO));
    }
}
