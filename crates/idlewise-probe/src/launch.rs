//! Wakes of a thread at chosen distances, one at a time. The caller looks at the machine after each of them,
//! so that it can tell which wakes found the CPU as it should be.
//!
//! What is timed is the same as in [`futex_wakes`](crate::futex_wakes): from before the call that wakes to
//! the sleeper's next instruction. The same wake of a CPU that does not idle takes the system call, the
//! scheduler and the way back to user space too, so the difference of the two is what the idle state adds.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use crate::thread::{elapsed_ns, futex_wait, futex_wake, pin, set_policy};
use crate::wake::become_realtime;

/// A wake of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// From before the call to the sleeper's next instruction.
    pub latency_ns: u64,
    /// How long the call took.
    pub send_ns: u64,
    /// How late the call began: more than a few hundred nanoseconds if something else ran on the source.
    pub late_ns: u64,
    /// Whether the thread slept.
    pub is_woken: bool,
}

/// What the target does between wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// It idles.
    Idles,
    /// It runs a thread of the lowest priority, which the sleeper displaces at once.
    Runs,
}

/// The distance of the first wake, which only shows that both threads are in place.
const FIRST_GAP_NS: u64 = 100_000;

/// Wakes a thread on `target` from `source`, once for each gap, which is the time since the last wake's
/// answer. `each` is called on the source, once at the beginning and after each answer.
///
/// Returns whether the sleeper had a real-time priority, so that nothing else on its CPU delayed it.
pub fn launches(
    source: usize,
    target: usize,
    between: Between,
    gaps_ns: &[u64],
    each: &mut (dyn FnMut(Option<Launch>) + Send),
) -> bool {
    let start = Instant::now();
    // The number of wakes sent. The sleeper waits for the next one.
    let (sent, begun, is_over) = (AtomicU32::new(0), Barrier::new(2), AtomicBool::new(false));
    let (woken_at_ns, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            pin(&[target]);
            let is_realtime = become_realtime();
            begun.wait();
            for nth in 0..=gaps_ns.len() as u64 {
                while u64::from(sent.load(Ordering::Acquire)) == nth {
                    futex_wait(&sent, nth as u32);
                }
                woken_at_ns.store(elapsed_ns(start), Ordering::Relaxed);
                answered.store(nth + 1, Ordering::Release);
            }
            is_realtime
        });
        if between == Between::Runs {
            scope.spawn(|| {
                pin(&[target]);
                become_least();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let (is_over, sent, begun) = (&is_over, &sent, &begun);
        let (woken_at_ns, answered) = (&woken_at_ns, &answered);
        let waker = scope.spawn(move || {
            pin(&[source]);
            begun.wait();
            for nth in 0..=gaps_ns.len() {
                let gap_ns = nth.checked_sub(1).map_or(FIRST_GAP_NS, |place| gaps_ns[place]);
                let due_ns = elapsed_ns(start) + gap_ns;
                while elapsed_ns(start) < due_ns {
                    std::hint::spin_loop();
                }
                let before_ns = elapsed_ns(start);
                sent.store(nth as u32 + 1, Ordering::Release);
                let woken_count = futex_wake(sent);
                let send_ns = elapsed_ns(start) - before_ns;
                while answered.load(Ordering::Acquire) <= nth as u64 {
                    std::hint::spin_loop();
                }
                let latency_ns = woken_at_ns.load(Ordering::Relaxed).saturating_sub(before_ns);
                let late_ns = before_ns - due_ns;
                let launch = Launch { latency_ns, send_ns, late_ns, is_woken: woken_count == 1 };
                each((nth > 0).then_some(launch));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        waker.join().expect("it only wakes");
        sleeper.join().expect("it only sleeps")
    })
}

/// Gives the calling thread the policy that anything else displaces. Nobody is refused that.
fn become_least() {
    set_policy(libc::SCHED_IDLE, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{allowed_cpus, waiter_cpu, waker_cpu};

    #[test]
    fn each_wake_is_reported_after_a_first_look() {
        if allowed_cpus().len() < 2 {
            eprintln!("SKIPPED: each_wake_is_reported_after_a_first_look: it needs two CPUs");
            return;
        }
        for between in [Between::Idles, Between::Runs] {
            let mut seen = Vec::new();
            let mut each = |launch: Option<Launch>| seen.push(launch);
            launches(waker_cpu(), waiter_cpu(), between, &[20_000; 30], &mut each);
            assert!(seen[0].is_none() && seen[1..].iter().all(Option::is_some));
            assert_eq!(seen.len(), 31);
        }
    }
}
