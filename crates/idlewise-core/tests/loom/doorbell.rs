use std::sync::Arc;

use idlewise_core::sync::broken::Break;
use idlewise_core::{Doorbell, Ring};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::{Kernel, explore, must_fail};

/// How the waiter waits.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    /// Looks once, then sleeps.
    Sleep,
    /// Falls asleep at once, without looking.
    SleepAtOnce,
    /// Gives up in a polling state. A deadline may pass at any moment, as any step of a thread may come at
    /// any moment. So giving up at once, explored in every order, covers every deadline.
    PollTimesOut,
    /// Gives up asleep. The waker's call may come late and end a later sleep.
    SleepTimesOut,
}

struct Shared {
    bell: Doorbell,
    kernel: Kernel,
    /// What each waker publishes. Relaxed, so that only the doorbell orders it.
    work: [AtomicU32; 2],
}

fn wake(shared: &Shared, waker: usize) {
    shared.work[waker].store(1, Ordering::Relaxed);
    if shared.bell.ring() == Ring::MustWake {
        shared.kernel.wake();
    }
}

/// Waits once, and returns whether it was rung.
fn wait(shared: &Shared, how: Wait, sleeps: &mut u32) -> bool {
    let bell = &shared.bell;
    if bell.start_polling() {
        let rung = how == Wait::Sleep && bell.is_rung();
        if !rung && how != Wait::PollTimesOut && bell.fall_asleep() {
            *sleeps += 1;
            if how != Wait::SleepTimesOut {
                shared.kernel.wait();
            }
        }
    }
    bell.take()
}

/// A waiter whose first wait is `first`, and whose others sleep, until it has seen the work of `wakers`
/// wakers. A lost wake-up, or work that stays invisible, is a deadlock.
fn waiter_sees_all_work(first: Wait, wakers: usize) {
    let shared =
        Arc::new(Shared { bell: Doorbell::new(), kernel: Kernel::new(), work: Default::default() });
    let threads: Vec<_> = (0..wakers)
        .map(|waker| {
            let shared = shared.clone();
            thread::spawn(move || wake(&shared, waker))
        })
        .collect();
    let mut how = first;
    let mut sleeps = 0;
    let mut unseen: Vec<_> = (0..wakers).collect();
    while !unseen.is_empty() {
        // The waiter relies on guarantee 1: it looks only after a wake-up.
        if wait(&shared, how, &mut sleeps) {
            let is_first = unseen.len() == wakers;
            unseen.retain(|&waker| shared.work[waker].load(Ordering::Relaxed) == 0);
            assert!(!is_first || unseen.len() < wakers, "woken, but no work is there");
        }
        how = if first == Wait::Sleep { first } else { Wait::SleepAtOnce };
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let calls = shared.kernel.wake_count.load(std::sync::atomic::Ordering::Relaxed);
    assert!(calls <= sleeps, "a system call that no sleep needed");
}

#[test]
fn two_rings_race_with_a_poll_and_a_sleep() {
    explore("two wakers, poll then sleep", || waiter_sees_all_work(Wait::Sleep, 2));
}

#[test]
fn two_rings_race_with_falling_asleep() {
    explore("two wakers, sleep at once", || waiter_sees_all_work(Wait::SleepAtOnce, 2));
}

#[test]
fn two_rings_race_with_a_deadline_while_polling() {
    explore("two wakers, deadline while polling", || waiter_sees_all_work(Wait::PollTimesOut, 2));
}

#[test]
fn two_rings_race_with_a_deadline_while_asleep() {
    explore("two wakers, deadline while asleep", || waiter_sees_all_work(Wait::SleepTimesOut, 2));
}

#[test]
fn broken_a_ring_that_publishes_nothing() {
    must_fail(Break::RingRelaxed, || waiter_sees_all_work(Wait::Sleep, 1));
}

#[test]
fn broken_a_free_ride_that_only_looks() {
    must_fail(Break::FreeRideOnlyLooks, || waiter_sees_all_work(Wait::Sleep, 2));
}

#[test]
fn broken_a_sleeper_that_gets_no_system_call() {
    must_fail(Break::SleeperGetsNoCall, || waiter_sees_all_work(Wait::SleepAtOnce, 1));
}

#[test]
fn broken_a_take_that_acquires_nothing() {
    must_fail(Break::TakeRelaxed, || waiter_sees_all_work(Wait::Sleep, 1));
}

#[test]
fn broken_a_take_in_two_steps() {
    must_fail(Break::TakeInTwoSteps, || waiter_sees_all_work(Wait::SleepTimesOut, 2));
}

#[test]
fn broken_falling_asleep_over_a_ring() {
    must_fail(Break::FallAsleepBlindly, || waiter_sees_all_work(Wait::Sleep, 1));
}
