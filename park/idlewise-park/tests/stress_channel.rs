//! Millions of items and tasks with random timeouts: none is lost or comes twice.
//!
//! See also `stress_parker.rs`. `make stress` runs both (`IDLEWISE_STRESS_COUNT` items and as many tasks).
#![allow(clippy::print_stdout, reason = "says how far it is")]

mod random;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use idlewise_park::Idle;
use idlewise_park::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use random::Random;

/// Two waits this long in a row mean that an item or a wake-up was lost. After a single one, the process
/// may only have been stopped.
const LOST: Duration = Duration::from_secs(60);

/// Two senders and two receivers pass `2 × count` items. Returns how often one gave up.
fn pass_items((sender, receiver): (Sender<u64>, Receiver<u64>), count: u64, seed: u64) -> u64 {
    let totals = (AtomicU64::new(0), AtomicU64::new(0));
    let (sum, gave_up) = (&totals.0, &totals.1);
    thread::scope(|scope| {
        for number in 0..2 {
            let sender = sender.clone();
            scope.spawn(move || {
                let mut random = Random(seed + 1 + number);
                for n in 1..=count {
                    let mut item = n;
                    while random.below(4) == 0 {
                        let timeout = Duration::from_nanos(random.below(20_000));
                        let Err(error) = sender.send_timeout(item, timeout) else {
                            item = 0;
                            break;
                        };
                        item = error.into_inner();
                        gave_up.fetch_add(1, Ordering::Relaxed);
                    }
                    if item != 0 {
                        let sent = sender.send_timeout(item, LOST);
                        let sent =
                            sent.or_else(|error| sender.send_timeout(error.into_inner(), LOST));
                        assert!(sent.is_ok(), "seed {seed}: no room for item {n}");
                    }
                    // Let the receivers wait often.
                    if random.below(64) == 0 {
                        thread::yield_now();
                    }
                }
            });
            let receiver = receiver.clone();
            scope.spawn(move || {
                let mut random = Random(seed + 11 + number);
                let mut lost_in_a_row = 0;
                loop {
                    let is_patient = random.below(4) != 0;
                    let timeout = Duration::from_nanos(random.below(60_000));
                    match receiver.recv_timeout(if is_patient { LOST } else { timeout }) {
                        Ok(item) => {
                            lost_in_a_row = 0;
                            sum.fetch_add(item, Ordering::Relaxed);
                        }
                        Err(RecvTimeoutError::Disconnected) => break,
                        Err(RecvTimeoutError::Timeout) => {
                            gave_up.fetch_add(1, Ordering::Relaxed);
                            lost_in_a_row += u32::from(is_patient);
                            assert!(lost_in_a_row < 2, "seed {seed}: no item, nor the end");
                        }
                    }
                }
            });
        }
        drop((sender, receiver));
    });
    assert_eq!(totals.0.into_inner(), count * (count + 1), "seed {seed}");
    totals.1.into_inner()
}

/// Two submitters and three workers do `2 × count` tasks. Returns how often a worker waited.
fn do_tasks(count: u64, seed: u64) -> u64 {
    let (idle, queue) = (Idle::new(3), SegQueue::new());
    let (done, waits) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = || done.load(Ordering::Relaxed) == 2 * count;
    thread::scope(|scope| {
        for number in 0..3 {
            let (idle, queue, done, waits, is_over) = (&idle, &queue, &done, &waits, &is_over);
            scope.spawn(move || {
                let mut random = Random(seed + 1 + number);
                let worker = idle.worker(number as usize);
                let mut lost_in_a_row = 0;
                while !is_over() {
                    if queue.pop().is_some() {
                        worker.found_work();
                        lost_in_a_row = 0;
                        if done.fetch_add(1, Ordering::Relaxed) + 1 == 2 * count {
                            idle.wake_many(3);
                        }
                        continue;
                    }
                    let is_patient = random.below(4) != 0;
                    let timeout = Duration::from_nanos(random.below(60_000));
                    let before = done.load(Ordering::Relaxed);
                    let look = || !queue.is_empty() || is_over();
                    let outcome =
                        worker.wait_timeout(look, if is_patient { LOST } else { timeout });
                    // Others may have done all the tasks.
                    let is_stuck = is_patient && !outcome.is_woken();
                    let is_stuck = is_stuck && done.load(Ordering::Relaxed) == before;
                    lost_in_a_row += u32::from(is_stuck);
                    assert!(lost_in_a_row < 2, "seed {seed}: nobody works, {before} are done");
                }
                waits.fetch_add(worker.stats().waits, Ordering::Relaxed);
            });
        }
        for number in 0..2 {
            let (idle, queue) = (&idle, &queue);
            scope.spawn(move || {
                let mut random = Random(seed + 11 + number);
                for task in 0..count {
                    queue.push(task);
                    // Either call is enough to have it done.
                    if random.below(2) == 0 {
                        idle.wake_one()
                    } else {
                        idle.wake_searcher()
                    };
                    if random.below(16) == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    waits.into_inner()
}

/// Calls `round` until `IDLEWISE_STRESS_COUNT` are done and `IDLEWISE_STRESS_SECONDS` have passed.
fn in_rounds(what: &str, mut round: impl FnMut(u64, u64) -> u64) {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let count = number("IDLEWISE_STRESS_COUNT").unwrap_or(if cfg!(miri) { 200 } else { 40_000 });
    let least = Duration::from_secs(number("IDLEWISE_STRESS_SECONDS").unwrap_or(0) / 3);
    let of_round = (count / 2).clamp(1, 1_000_000);
    let (start, mut done, mut gave_up) = (Instant::now(), 0, 0);
    for seed in 7.. {
        if done >= count && start.elapsed() >= least {
            break;
        }
        gave_up += round(of_round, seed);
        done += 2 * of_round;
        println!(
            "{done} {what}, none lost, {gave_up} waits or waits given up: {:.0?}",
            start.elapsed()
        );
    }
}

#[test]
fn no_item_is_lost() {
    in_rounds("items", |count, seed| match seed % 3 {
        0 => pass_items(bounded(1), count, seed),
        1 => pass_items(bounded(64), count, seed),
        _ => pass_items(unbounded(), count, seed),
    });
}

#[test]
fn no_task_is_left_lying() {
    in_rounds("tasks", do_tasks);
}
