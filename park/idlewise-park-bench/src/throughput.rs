//! Measures round trips per second with more threads than CPUs. This closed loop complements the
//! open loop of [`crate::run()`].
//!
//! Pairs of threads pass a token back and forth, two pairs for each CPU, so that there are always
//! twice as many runnable threads as CPUs. A thread that spins keeps its partner from running.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use idlewise_probe::allowed_cpus;

use crate::contenders::Contender;
use crate::random::Random;

/// The round trips of a contender.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    /// The contender.
    pub name: &'static str,
    /// Round trips per second of all pairs together.
    pub round_trips_per_s: f64,
}

/// Pairs for each CPU. One thread of each pair is always runnable.
const PAIRS_PER_CPU: usize = 2;
/// How long each turn of a contender is.
const TURN: Duration = Duration::from_millis(50);

/// Measures contenders in `turn_count` turns each, in a new order each time. `progress` receives
/// the completed share.
pub fn throughput(
    contenders: &[Contender],
    turn_count: u32,
    seed: u64,
    progress: &dyn Fn(f64),
) -> Vec<Throughput> {
    let pair_count = PAIRS_PER_CPU * allowed_cpus().len();
    let mut sums = vec![(0_u64, Duration::ZERO); contenders.len()];
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    let mut random = Random::new(seed);
    for turn in 0..turn_count {
        random.shuffle(&mut order);
        for &lane in &order {
            let (more, took) = take_turn(&contenders[lane], pair_count);
            sums[lane].0 += more;
            sums[lane].1 += took;
        }
        progress(f64::from(turn + 1) / f64::from(turn_count));
    }
    let rate = |(contender, (round_trips, time)): (&Contender, (u64, Duration))| Throughput {
        name: contender.name,
        round_trips_per_s: round_trips as f64 / time.as_secs_f64(),
    };
    contenders.iter().zip(sums).map(rate).collect()
}

fn take_turn(contender: &Contender, pair_count: usize) -> (u64, Duration) {
    let (round_trips, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Barrier::new(2 * pair_count + 1);
    let took = thread::scope(|scope| {
        for _ in 0..pair_count {
            let (mut ball, hit) = (contender.pair)(contender.fixed_spin_ns);
            let (mut answer, hit_back) = (contender.pair)(contender.fixed_spin_ns);
            let is_last = Arc::new(AtomicBool::new(false));
            let sees_last = is_last.clone();
            let (round_trips, is_over, begun) = (&round_trips, &is_over, &begun);
            scope.spawn(move || {
                answer.begin();
                begun.wait();
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    hit.wake();
                    answer.wait();
                    count += 1;
                }
                // The other side waits once more. Only this side knows when that is the last time.
                is_last.store(true, Ordering::Relaxed);
                hit.wake();
                round_trips.fetch_add(count, Ordering::Relaxed);
            });
            scope.spawn(move || {
                ball.begin();
                begun.wait();
                loop {
                    ball.wait();
                    if sees_last.load(Ordering::Relaxed) {
                        return;
                    }
                    hit_back.wake();
                }
            });
        }
        begun.wait();
        let start = Instant::now();
        #[expect(clippy::disallowed_methods, reason = "a turn is a span of time")]
        thread::sleep(TURN);
        is_over.store(true, Ordering::Relaxed);
        start.elapsed()
    });
    (round_trips.into_inner(), took)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::contenders;

    #[test]
    fn every_contender_passes_the_token() {
        for one in throughput(&contenders(), 1, 1, &|_| ()) {
            assert!(one.round_trips_per_s > 0.0, "{}", one.name);
        }
    }
}
