//! Wakes of a thread on an idle CPU, measured from user space. They stand in for what only the kernel
//! can measure, and include more than it:
//!
//! - [`futex_wakes`]: from before the call that wakes to the sleeper's next instruction. In this are
//!   the system call, the interrupt or store that wakes the CPU, the exit of its idle state, the
//!   scheduler, and the way back to user space.
//! - [`membarriers`]: a call that interrupts another running thread and waits until that has happened:
//!   an IPI there and the acknowledgement back. An idle CPU is not interrupted by it.
//! - [`timer_wakes`]: from a timer's expiry to the sleeper's next instruction, as cyclictest has it.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::thread::{elapsed_ns, futex_wait, futex_wake, pin, set_policy};

/// The wakes of one request.
#[derive(Clone, Debug, Default)]
pub struct FutexWakes {
    /// Wakes that found the thread awake.
    pub given_up_count: u64,
    /// From before each call to the sleeper's next instruction.
    pub latencies_ns: Vec<u64>,
    /// How long each call took.
    pub sends_ns: Vec<u64>,
}

/// Wakes a thread that is pinned to `target`, `count` times, from a thread that is pinned to `source`.
/// The source spins for `gap` before each wake, and the target sleeps.
pub fn futex_wakes(source: usize, target: usize, count: u64, gap: Duration) -> FutexWakes {
    let start = Instant::now();
    // The number of wakes sent. The sleeper waits for the next one.
    let (sent, begun) = (AtomicU32::new(0), Barrier::new(2));
    let (sent_at_ns, woken_at_ns, answered) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    // The first wake is not counted: both threads have to arrive on their CPUs.
    let all = count + 1;
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(&[target]);
            begun.wait();
            for nth in 0..all {
                while u64::from(sent.load(Ordering::Acquire)) == nth {
                    futex_wait(&sent, nth as u32);
                }
                woken_at_ns.store(elapsed_ns(start), Ordering::Relaxed);
                answered.store(nth + 1, Ordering::Release);
            }
        });
        let waker = scope.spawn(|| {
            pin(&[source]);
            begun.wait();
            let mut wakes = FutexWakes::default();
            for nth in 0..all {
                spin(gap);
                let before_ns = elapsed_ns(start);
                sent_at_ns.store(before_ns, Ordering::Relaxed);
                sent.store(nth as u32 + 1, Ordering::Release);
                let woken_count = futex_wake(&sent);
                let after_ns = elapsed_ns(start);
                while answered.load(Ordering::Acquire) <= nth {
                    std::hint::spin_loop();
                }
                let woken_ns = woken_at_ns.load(Ordering::Relaxed);
                match (nth, woken_count) {
                    (0, _) => {}
                    (_, 1) => {
                        wakes.latencies_ns.push(woken_ns.saturating_sub(before_ns));
                        wakes.sends_ns.push(after_ns - before_ns);
                    }
                    _ => wakes.given_up_count += 1,
                }
            }
            wakes
        });
        waker.join().expect("it only wakes")
    })
}

/// Returns how long futex calls take that wake nobody, made on `source`.
pub fn futex_calls(source: usize, count: u64) -> Vec<u64> {
    let word = AtomicU32::new(0);
    let wake = || {
        futex_wake(&word);
    };
    on_cpu(source, || timed(count, Duration::ZERO, wake))
}

/// What interrupting a running thread takes.
#[derive(Clone, Debug, Default)]
pub struct Membarriers {
    /// The time of each call while a thread runs on the target.
    pub running_ns: Vec<u64>,
    /// The time of each call while no other thread of this process runs: nobody is interrupted.
    pub alone_ns: Vec<u64>,
}

/// Lets `source` interrupt a thread that runs on `target`, `count` times, and as often nobody.
///
/// # Errors
/// Fails if the kernel has no expedited private membarrier, or refuses it.
pub fn membarriers(
    source: usize,
    target: usize,
    count: u64,
    gap: Duration,
) -> io::Result<Membarriers> {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)?;
    let expedited = || {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED).expect("the process is registered");
    };
    let (begun, is_over) = (Barrier::new(2), AtomicBool::new(false));
    let running_ns = thread::scope(|scope| {
        scope.spawn(|| {
            pin(&[target]);
            begun.wait();
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let waker = scope.spawn(|| {
            pin(&[source]);
            begun.wait();
            let times_ns = timed(count, gap, expedited);
            is_over.store(true, Ordering::Relaxed);
            times_ns
        });
        waker.join().expect("it only calls")
    });
    let alone_ns = on_cpu(source, || timed(count, gap, expedited));
    Ok(Membarriers { running_ns, alone_ns })
}

fn membarrier(command: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Timers of a thread.
#[derive(Clone, Debug, Default)]
pub struct TimerWakes {
    /// From each timer's expiry to the thread's next instruction.
    pub late_ns: Vec<u64>,
    /// Whether the thread had a real-time priority, so that other threads did not delay it.
    pub is_realtime: bool,
}

/// Lets a thread that is pinned to `target` sleep until timers expire, `gap` apart, `count` times.
pub fn timer_wakes(target: usize, count: u64, gap: Duration) -> TimerWakes {
    on_cpu(target, || {
        let is_realtime = become_realtime();
        // SAFETY: no pointers. Otherwise the kernel would let this thread's timers be 50 us late.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0) };
        let sleep = || {
            let due_ns = now_ns() + gap.as_nanos() as u64;
            sleep_until(due_ns);
            now_ns().saturating_sub(due_ns)
        };
        sleep();
        TimerWakes { late_ns: (0..count).map(|_| sleep()).collect(), is_realtime }
    })
}

/// Gives the calling thread the lowest real-time priority, if it may have one.
pub(crate) fn become_realtime() -> bool {
    set_policy(libc::SCHED_FIFO, 1)
}

/// Lets the calling thread sleep until `end`, and wake up at each interval. Returns how often it woke up.
pub fn sleep_periodically(interval: Duration, end: Instant) -> u64 {
    // SAFETY: no pointers. Otherwise the kernel would let this thread's timers be 50 us late.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0) };
    let left_ns = end.saturating_duration_since(Instant::now()).as_nanos() as u64;
    let (start_ns, interval_ns) = (now_ns(), (interval.as_nanos() as u64).max(1));
    let end_ns = start_ns + left_ns;
    let (mut due_ns, mut count) = (start_ns, 0);
    while due_ns < end_ns {
        // A thread that is late does not catch up: it would not sleep at all then.
        due_ns = (due_ns + interval_ns).max(now_ns()).min(end_ns);
        sleep_until(due_ns);
        count += 1;
    }
    count
}

fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn sleep_until(due_ns: u64) {
    let due = libc::timespec {
        tv_sec: (due_ns / 1_000_000_000) as _,
        tv_nsec: (due_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: reads `due`; writes nothing, since the time is absolute.
    let sleep = || unsafe {
        let flags = libc::TIMER_ABSTIME;
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, flags, &due, std::ptr::null_mut())
    };
    while sleep() == libc::EINTR {}
}

/// The times of `count` calls, with a pause before each.
fn timed(count: u64, gap: Duration, call: impl Fn()) -> Vec<u64> {
    call();
    let start = Instant::now();
    let one = |_| {
        spin(gap);
        let before_ns = elapsed_ns(start);
        call();
        elapsed_ns(start) - before_ns
    };
    (0..count).map(one).collect()
}

fn spin(gap: Duration) {
    let start = Instant::now();
    while start.elapsed() < gap {
        std::hint::spin_loop();
    }
}

/// Runs it in a thread of its own that is pinned to a CPU.
fn on_cpu<T: Send>(cpu: usize, run: impl FnOnce() -> T + Send) -> T {
    let run = || {
        pin(&[cpu]);
        run()
    };
    thread::scope(|scope| scope.spawn(run).join().expect("it only measures"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{allowed_cpus, waiter_cpu, waker_cpu};

    const GAP: Duration = Duration::from_micros(20);

    #[test]
    fn every_wake_is_measured_or_given_up() {
        if allowed_cpus().len() < 2 {
            eprintln!("SKIPPED: every_wake_is_measured_or_given_up: it needs two CPUs");
            return;
        }
        let wakes = futex_wakes(waker_cpu(), waiter_cpu(), 100, GAP);
        assert_eq!(wakes.latencies_ns.len() as u64 + wakes.given_up_count, 100);
        assert_eq!(wakes.latencies_ns.len(), wakes.sends_ns.len());
        assert_eq!(futex_calls(waker_cpu(), 50).len(), 50);
    }

    #[test]
    fn as_many_calls_interrupt_a_thread_as_interrupt_nobody() {
        match membarriers(waker_cpu(), waiter_cpu(), 50, GAP) {
            Ok(found) => assert_eq!((found.running_ns.len(), found.alone_ns.len()), (50, 50)),
            Err(error) => eprintln!("SKIPPED: as_many_calls_interrupt: membarrier: {error}"),
        }
    }

    #[test]
    fn a_thread_wakes_up_at_most_once_an_interval_and_not_before_the_end() {
        let start = Instant::now();
        let end = start + 20 * GAP;
        let count = sleep_periodically(GAP, end);
        assert!((1..=21).contains(&count) && Instant::now() >= end, "{count}");
    }

    #[test]
    fn timers_are_not_early() {
        let start_ns = now_ns();
        let wakes = timer_wakes(waiter_cpu(), 20, GAP);
        assert_eq!(wakes.late_ns.len(), 20);
        assert!(now_ns() - start_ns >= 21 * GAP.as_nanos() as u64);
    }
}
