//! Two threads that pass a token: each pass is a context switch where both share a CPU, and a
//! wake-up of the other CPU where they do not. This is what the benchmark context_switch2 counts;
//! here each round trip is timed too.
//!
//! The threads belong to one process, so a switch does not change the address space.

use std::io::{self, Read, Write};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::thread::{elapsed_ns, futex_wait, futex_wake, pin};

/// A way to pass the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchWay {
    /// A word, and sched_yield while it is the other's turn. Only on one CPU does that switch.
    Yield,
    /// A word, and a futex to wait on while it is the other's turn.
    Futex,
    /// A byte through a pipe each way.
    Pipe,
}

impl SwitchWay {
    /// All of them.
    pub const ALL: [SwitchWay; 3] = [SwitchWay::Yield, SwitchWay::Futex, SwitchWay::Pipe];

    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            SwitchWay::Yield => "yield",
            SwitchWay::Futex => "futex",
            SwitchWay::Pipe => "pipe",
        }
    }
}

/// What was measured in a slice of time.
#[derive(Clone, Debug)]
pub struct SwitchSlice {
    /// The time of each round trip.
    pub round_trips_ns: Vec<u64>,
    /// The time of all of them.
    pub elapsed_ns: u64,
}

impl SwitchSlice {
    /// Returns the number of switches in a second: two for each round trip.
    pub fn switches_per_s(&self) -> f64 {
        2.0 * self.round_trips_ns.len() as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Round trips that are not counted: both threads have to arrive on their CPUs.
const WARM_UP_COUNT: u64 = 20;

/// Passes a token between two CPUs for this long, at least once.
///
/// # Errors
/// Fails if a pipe cannot be created.
pub fn switch_slice(
    way: SwitchWay,
    cpus: [usize; 2],
    duration: Duration,
) -> io::Result<SwitchSlice> {
    match way {
        SwitchWay::Yield => Ok(by_word(cpus, duration, false)),
        SwitchWay::Futex => Ok(by_word(cpus, duration, true)),
        SwitchWay::Pipe => by_pipe(cpus, duration),
    }
}

/// Whose turn it is: the first thread's, the second's, or nobody's any more.
const FIRST: u32 = 0;
const SECOND: u32 = 1;
const OVER: u32 = 2;

/// Waits while the word has this value: asleep, or by letting others run.
fn wait_while(word: &AtomicU32, value: u32, sleeps: bool) {
    while word.load(Ordering::Acquire) == value {
        match sleeps {
            true => futex_wait(word, value),
            false => thread::yield_now(),
        }
    }
}

fn by_word(cpus: [usize; 2], duration: Duration, sleeps: bool) -> SwitchSlice {
    // On a cache line of its own: nothing else is to be shared by the CPUs.
    #[repr(align(128))]
    struct Line(AtomicU32);
    let (turn, begun) = (Line(AtomicU32::new(FIRST)), Barrier::new(2));
    let (turn, begun) = (&turn.0, &begun);
    let pass = move |to: u32| {
        turn.store(to, Ordering::Release);
        if sleeps {
            futex_wake(turn);
        }
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(&[cpus[1]]);
            begun.wait();
            loop {
                wait_while(turn, FIRST, sleeps);
                if turn.load(Ordering::Acquire) == OVER {
                    return;
                }
                pass(FIRST);
            }
        });
        let first = scope.spawn(move || {
            pin(&[cpus[0]]);
            begun.wait();
            let slice = timed(duration, || {
                pass(SECOND);
                wait_while(turn, SECOND, sleeps);
            });
            pass(OVER);
            slice
        });
        first.join().expect("it only passes a token")
    })
}

fn by_pipe(cpus: [usize; 2], duration: Duration) -> io::Result<SwitchSlice> {
    let (mut ball, mut hit) = io::pipe()?;
    let (mut answer, mut hit_back) = io::pipe()?;
    let begun = &Barrier::new(2);
    Ok(thread::scope(|scope| {
        scope.spawn(move || {
            pin(&[cpus[1]]);
            begun.wait();
            // The other end is closed when the time is over.
            while ball.read_exact(&mut [0]).is_ok() {
                if hit_back.write_all(&[0]).is_err() {
                    return;
                }
            }
        });
        let first = scope.spawn(move || {
            pin(&[cpus[0]]);
            begun.wait();
            timed(duration, || {
                hit.write_all(&[0]).expect("the other thread reads until this end is closed");
                answer.read_exact(&mut [0]).expect("the other thread answers");
            })
        });
        first.join().expect("it only passes a token")
    }))
}

/// Repeats a round trip for this long.
fn timed(duration: Duration, mut round_trip: impl FnMut()) -> SwitchSlice {
    for _ in 0..WARM_UP_COUNT {
        round_trip();
    }
    let all_ns = duration.as_nanos() as u64;
    let start = Instant::now();
    let (mut round_trips_ns, mut before_ns) = (Vec::new(), 0);
    loop {
        round_trip();
        let now_ns = elapsed_ns(start);
        round_trips_ns.push(now_ns - before_ns);
        before_ns = now_ns;
        if now_ns >= all_ns {
            return SwitchSlice { round_trips_ns, elapsed_ns: now_ns };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::allowed_cpus;

    #[test]
    fn every_way_passes_the_token_and_ends() {
        let cpus = allowed_cpus();
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        for way in SwitchWay::ALL {
            for pair in [[first, first], [first, last]] {
                let slice = switch_slice(way, pair, Duration::from_millis(2)).unwrap();
                assert!(!slice.round_trips_ns.is_empty(), "{way:?}");
                assert_eq!(slice.round_trips_ns.iter().sum::<u64>(), slice.elapsed_ns, "{way:?}");
                assert!(slice.switches_per_s() > 0.0);
            }
        }
    }
}
