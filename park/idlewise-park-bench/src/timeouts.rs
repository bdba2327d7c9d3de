//! Measures the CPU time of waits that end with a timeout, for our parker and crossbeam's. Polling
//! for a wake-up that never comes is wasted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use idlewise_probe::{allowed_cpus, pin};

use crate::random::Random;
use crate::run::thread_cpu_ns;

/// The cost of a pattern of timeouts with one library.
#[derive(Clone, Copy, Debug)]
pub struct TimeoutCost {
    /// The pattern: one of [`TIMEOUTS`].
    pub pattern: &'static str,
    /// The library whose parker is measured.
    pub way: &'static str,
    /// The waiter's CPU time as a share of elapsed time.
    pub cpu_ratio: f64,
}

struct Pattern {
    name: &'static str,
    timeout: Duration,
    /// How often the waiter is woken.
    wake_every: Option<Duration>,
}

const fn pattern(name: &'static str, timeout_us: u64, wake_every_ms: Option<u64>) -> Pattern {
    Pattern {
        name,
        timeout: Duration::from_micros(timeout_us),
        wake_every: match wake_every_ms {
            Some(ms) => Some(Duration::from_millis(ms)),
            None => None,
        },
    }
}

const PATTERNS: [Pattern; 4] = [
    pattern("timeouts of 100 us, never woken", 100, None),
    pattern("timeouts of 300 us, never woken", 300, None),
    pattern("timeouts of 1 ms, never woken", 1000, None),
    pattern("timeouts of 150 us, woken every 20 ms", 150, Some(20)),
];

/// Names of the patterns, in the order of the results.
pub const TIMEOUTS: [&str; 4] =
    [PATTERNS[0].name, PATTERNS[1].name, PATTERNS[2].name, PATTERNS[3].name];

/// The number of turns of each library on each pattern.
const TURN_COUNT: usize = 2;

/// Measures all patterns. `turn` is the length of each turn.
pub fn timeout_costs(seed: u64, turn: Duration) -> Vec<TimeoutCost> {
    let mut random = Random::new(seed);
    let mut costs = Vec::new();
    for pattern in &PATTERNS {
        // One parker for all of its turns, as in a program: it keeps what it has learned.
        let (ours, theirs) = (idlewise_park::Parker::new(), crossbeam_utils::sync::Parker::new());
        let (wake_ours, wake_theirs) = (ours.unparker().clone(), theirs.unparker().clone());
        let mut cpu_ratios = [0.0; 2];
        for _ in 0..TURN_COUNT {
            let mut order = [0, 1];
            random.shuffle(&mut order);
            for way in order {
                let cpu_ratio = match way {
                    0 => time_out(pattern, turn, &|| wake_ours.unpark(), &|timeout| {
                        ours.park_timeout(timeout);
                    }),
                    _ => time_out(pattern, turn, &|| wake_theirs.unpark(), &|timeout| {
                        theirs.park_timeout(timeout);
                    }),
                };
                cpu_ratios[way] += cpu_ratio / TURN_COUNT as f64;
            }
        }
        for (way, cpu_ratio) in ["idlewise", "crossbeam"].into_iter().zip(cpu_ratios) {
            costs.push(TimeoutCost { pattern: pattern.name, way, cpu_ratio });
        }
    }
    costs
}

/// The calling thread waits repeatedly. Returns its CPU time per nanosecond.
fn time_out(
    pattern: &Pattern,
    turn: Duration,
    wake: &(dyn Fn() + Sync),
    wait: &dyn Fn(Duration),
) -> f64 {
    let cpus = allowed_cpus();
    let is_over = AtomicBool::new(false);
    let cpu_ratio = thread::scope(|scope| {
        if let Some(wake_every) = pattern.wake_every {
            let (is_over, waker_cpu) = (&is_over, cpus[0]);
            scope.spawn(move || {
                pin(&[waker_cpu]);
                while !is_over.load(Ordering::Relaxed) {
                    #[expect(clippy::disallowed_methods, reason = "wakes come at this rate")]
                    thread::sleep(wake_every);
                    wake();
                }
            });
        }
        pin(&[cpus[cpus.len() - 1]]);
        let (start, cpu_ns) = (Instant::now(), thread_cpu_ns());
        while start.elapsed() < turn {
            wait(pattern.timeout);
        }
        let cpu_ns = thread_cpu_ns() - cpu_ns;
        is_over.store(true, Ordering::Relaxed);
        cpu_ns as f64 / start.elapsed().as_nanos() as f64
    });
    pin(&cpus);
    cpu_ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_measured_for_both() {
        let costs = timeout_costs(1, Duration::from_millis(5));
        let measured: Vec<_> = costs.iter().map(|cost| (cost.pattern, cost.way)).collect();
        let expected: Vec<_> =
            TIMEOUTS.iter().flat_map(|name| [(*name, "idlewise"), (*name, "crossbeam")]).collect();
        assert_eq!(measured, expected);
        assert!(costs.iter().all(|cost| cost.cpu_ratio > 0.0));
    }
}
