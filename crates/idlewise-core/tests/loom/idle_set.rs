use std::sync::Arc;

use idlewise_core::sync::broken::Break;
use idlewise_core::{Doorbell, IdleSet, Ring};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::{Kernel, explore, must_fail};

struct Worker {
    bell: Doorbell,
    kernel: Kernel,
}

struct Scheduler {
    idle: IdleSet<1>,
    workers: [Worker; 2],
    /// Tasks pushed by each submitter and not yet taken. Relaxed, as a scheduler's own queue may be.
    queue: AtomicU32,
}

impl Scheduler {
    fn new() -> Self {
        let worker = || Worker { bell: Doorbell::new(), kernel: Kernel::new() };
        Scheduler { idle: IdleSet::new(), workers: [worker(), worker()], queue: AtomicU32::new(0) }
    }
}

fn submit(scheduler: &Scheduler) -> usize {
    scheduler.queue.fetch_add(1, Ordering::Relaxed);
    scheduler.idle.claim(1, |worker| {
        let worker = &scheduler.workers[worker];
        if worker.bell.ring() == Ring::MustWake {
            worker.kernel.wake();
        }
    })
}

/// Takes a task if a relaxed load finds one, as in a queue whose emptiness is read with a load.
fn take_task(scheduler: &Scheduler) -> bool {
    scheduler.queue.load(Ordering::Relaxed) > 0 && {
        scheduler.queue.fetch_sub(1, Ordering::Relaxed);
        true
    }
}

/// A worker that goes idle when it finds nothing, until it has done `tasks` tasks.
fn work(scheduler: &Scheduler, number: usize, tasks: usize) {
    let Worker { bell, kernel } = &scheduler.workers[number];
    let mut done = 0;
    while done < tasks {
        if take_task(scheduler) {
            done += 1;
            continue;
        }
        scheduler.idle.enlist(number);
        if take_task(scheduler) {
            scheduler.idle.withdraw(number);
            done += 1;
            continue;
        }
        if bell.start_polling() && bell.fall_asleep() {
            kernel.wait();
        }
        bell.take();
        scheduler.idle.withdraw(number);
    }
}

/// Work is pushed while the worker goes idle. Work that nobody looks for is a deadlock.
fn work_pushed_while_going_idle() {
    let scheduler = Arc::new(Scheduler::new());
    let submitter = {
        let scheduler = scheduler.clone();
        thread::spawn(move || submit(&scheduler))
    };
    work(&scheduler, 0, 1);
    submitter.join().unwrap();
}

#[test]
fn push_races_with_going_idle() {
    explore("idle set, one submitter", work_pushed_while_going_idle);
}

/// Two submitters and two idle workers: nobody is claimed twice, and nobody is forgotten.
fn two_claims() {
    let scheduler = Arc::new(Scheduler::new());
    scheduler.idle.enlist(0);
    scheduler.idle.enlist(1);
    let other = {
        let scheduler = scheduler.clone();
        thread::spawn(move || submit(&scheduler))
    };
    let claimed = submit(&scheduler) + other.join().unwrap();
    assert_eq!(claimed, 2, "two submitters found {claimed} idle workers of two");
    assert!(scheduler.workers.iter().all(|worker| worker.bell.is_rung()), "one was rung twice");
    assert!(scheduler.idle.is_empty());
}

#[test]
fn two_claims_race() {
    explore("idle set, two submitters", two_claims);
}

#[test]
fn broken_enlisting_without_a_fence() {
    must_fail(Break::EnlistWithoutFence, work_pushed_while_going_idle);
}

#[test]
fn broken_claiming_without_a_fence() {
    must_fail(Break::ClaimWithoutFence, work_pushed_while_going_idle);
}

#[test]
fn broken_claiming_in_two_steps() {
    must_fail(Break::ClaimInTwoSteps, two_claims);
}
