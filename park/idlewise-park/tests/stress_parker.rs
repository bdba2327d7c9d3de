//! Millions of wake-ups with random timeouts and cancellations: none is lost.
//!
//! Two waiters have two wakers each. `make stress` runs 10⁹ wake-ups (`IDLEWISE_STRESS_COUNT`) and prints
//! statistics.
#![allow(clippy::print_stdout, reason = "says how far it is")]

mod random;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use idlewise_park::{Parker, WaitStats, WaitTable};

use random::Random;

/// Two waits this long in a row mean a lost wake-up; one may be a process that was stopped.
const LOST: Duration = Duration::from_secs(60);

/// Wakes one waiter `2 × ring_count` times, and returns statistics of its waits.
fn stress(list: &str, ring_count: u64, seed: u64) -> WaitStats {
    let published = [const { AtomicU64::new(0) }; 2];
    let seen = [const { AtomicU64::new(0) }; 2];
    let is_over = AtomicBool::new(false);
    let parker = Parker::builder().table(WaitTable::assumed(list).unwrap()).build();
    thread::scope(|scope| {
        for (waker, (published, seen)) in published.iter().zip(&seen).enumerate() {
            let unparker = parker.unparker().clone();
            let is_over = &is_over;
            scope.spawn(move || {
                let mut random = Random(seed + 1 + waker as u64);
                for n in 1..=ring_count {
                    published.store(n, Ordering::Relaxed);
                    unparker.unpark();
                    // Often wait for the answer, so that the waiter really waits. If it gave up (a
                    // cancelled wait), the other waker's ring may have brought the answer.
                    let is_patient = random.below(4) != 0;
                    while is_patient
                        && seen.load(Ordering::Acquire) < n
                        && !is_over.load(Ordering::Relaxed)
                    {
                        thread::yield_now();
                    }
                }
            });
        }
        let mut random = Random(seed);
        loop {
            let before: Vec<_> = seen.iter().map(|seen| seen.load(Ordering::Relaxed)).collect();
            for (published, seen) in published.iter().zip(&seen) {
                seen.store(published.load(Ordering::Relaxed), Ordering::Release);
            }
            if seen.iter().all(|seen| seen.load(Ordering::Relaxed) == ring_count) {
                break;
            }
            let is_woken = match random.below(4) {
                0 => parker.park_timeout(Duration::ZERO).is_woken(),
                1 => parker.park_timeout(Duration::from_nanos(random.below(60_000))).is_woken(),
                _ => {
                    let is_woken = (0..2).any(|_attempt| parker.park_timeout(LOST).is_woken());
                    is_over.store(!is_woken, Ordering::Relaxed);
                    assert!(is_woken, "{list}, seed {seed}: lost a wake-up after {before:?}");
                    true
                }
            };
            std::hint::black_box(is_woken);
        }
    });
    parker.stats()
}

#[test]
fn no_wake_up_is_lost() {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let count = number("IDLEWISE_STRESS_COUNT").unwrap_or(if cfg!(miri) { 400 } else { 80_000 });
    // As many rounds as fit into this time, but at least one.
    let least = Duration::from_secs(number("IDLEWISE_STRESS_SECONDS").unwrap_or(0));
    let lists: &[&str] = if cfg!(target_os = "linux") && !cfg!(miri) {
        &["spin,futex", "futex", "spin,condvar", "condvar"]
    } else {
        &["spin,condvar", "condvar"]
    };
    // Two waiters at a time with two wakers each: six threads. A long run is split into rounds, so that it
    // can report progress.
    let ring_count = count / (2 * lists.len() as u64);
    let round_count = ring_count.div_ceil(10_000_000);
    let ring_count_of_round = ring_count.div_ceil(round_count);
    let start = Instant::now();
    for round in 0.. {
        if round >= round_count && start.elapsed() >= least {
            break;
        }
        for pair in lists.chunks(2) {
            thread::scope(|scope| {
                for (index, list) in pair.iter().enumerate() {
                    scope.spawn(move || {
                        let stats = stress(list, ring_count_of_round, 7 + 2 * round + index as u64);
                        println!("{}", summary(list, 2 * ring_count_of_round, &stats));
                    });
                }
            });
        }
        println!("round {} of at least {round_count}: {:.0?}", round + 1, start.elapsed());
    }
}

fn summary(list: &str, ring_count: u64, stats: &WaitStats) -> String {
    let free_rides = stats.free_rides.map_or("uncounted".to_owned(), |count| count.to_string());
    format!(
        "{list}: {ring_count} wake-ups, none lost; {} waits, {} of them timed out, {} ended by a \
         store; {} wake calls, {free_rides} free rides",
        stats.waits, stats.timeouts, stats.store_wakes, stats.wake_calls,
    )
}
