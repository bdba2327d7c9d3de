//! `sem_wait` and its variants: a polling phase before glibc's own wait.
//!
//! The semaphore stays glibc's. So semaphores between processes, those of `sem_open`, and `sem_post` in a
//! signal handler work as before. A polling thread is not a waiter for glibc, so a post is then a store
//! without a system call.
//!
//! How long to poll is learnt as in the kernel's haltpoll governor
//! (`drivers/cpuidle/governors/haltpoll.c`). A post soon after the thread stopped polling doubles the
//! limit; a late one halves it. The parkers' governor is not used, because it learns from a doorbell.

use std::cell::Cell;
use std::ffi::c_int;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{clockid_t, sem_t, timespec};

use crate::cancel;
use crate::next::{self, next};

/// The longest poll. A sleep costs a few microseconds on each side, and tens in a virtual machine.
const LIMIT_MAX_NS: u64 = 50_000;
const LIMIT_START_NS: u64 = 4_000;
/// The number of looks between two readings of the clock.
const LOOK_COUNT: u32 = 32;
/// If two readings of the clock are further apart than this, another thread had the CPU.
const PREEMPTED_NS: u64 = 100_000;

thread_local! {
    static LIMIT_NS: Cell<u64> = const { Cell::new(LIMIT_START_NS) };
}

fn now_ns() -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// If nobody else can run, nobody can post during a poll.
fn has_other_cpus() -> bool {
    static CPU_COUNT: AtomicUsize = AtomicUsize::new(0);
    if CPU_COUNT.load(Ordering::Relaxed) == 0 {
        let count = std::thread::available_parallelism().map_or(1, |count| count.get());
        CPU_COUNT.store(count, Ordering::Relaxed);
    }
    CPU_COUNT.load(Ordering::Relaxed) > 1
}

unsafe fn try_wait(sem: *mut sem_t) -> bool {
    let mut value = 0;
    // SAFETY: the program's semaphore. Reading it first keeps its cache line shared.
    unsafe { libc::sem_getvalue(sem, &mut value) == 0 && value > 0 && libc::sem_trywait(sem) == 0 }
}

/// Polls, and calls `sleep` if nobody posts meanwhile.
unsafe fn wait(sem: *mut sem_t, deadline: Option<(clockid_t, *const timespec)>) -> c_int {
    // SAFETY: a cancellation point, as POSIX specifies.
    unsafe { cancel::test() };
    let limit_ns = LIMIT_NS.get();
    let start_ns = now_ns();
    // SAFETY: the program's semaphore.
    unsafe {
        if try_wait(sem) {
            return 0;
        }
        if limit_ns > 0 && has_other_cpus() {
            let mut before_ns = start_ns;
            'polling: while before_ns - start_ns < limit_ns {
                for _ in 0..LOOK_COUNT {
                    if try_wait(sem) {
                        return 0;
                    }
                    spin_loop();
                }
                let now_ns = now_ns();
                if now_ns - before_ns > PREEMPTED_NS {
                    LIMIT_NS.set(limit_ns / 2);
                    break 'polling;
                }
                before_ns = now_ns;
            }
        }
        let libc_own = next();
        let result = match deadline {
            None => (libc_own.sem_wait)(sem),
            Some((libc::CLOCK_REALTIME, at)) => (libc_own.sem_timedwait)(sem, at),
            Some((clock, at)) => match next::sem_clockwait() {
                Some(clockwait) => clockwait(sem, clock, at),
                None => {
                    *libc::__errno_location() = libc::EINVAL;
                    return -1;
                }
            },
        };
        let gap_ns = now_ns() - start_ns;
        let is_soon = result == 0 && gap_ns <= LIMIT_MAX_NS;
        LIMIT_NS.set(match is_soon {
            true => (limit_ns * 2).clamp(LIMIT_START_NS, LIMIT_MAX_NS),
            // Below the start value, even reading the clock is not worth it.
            false if limit_ns < LIMIT_START_NS => 0,
            false => limit_ns / 2,
        });
        result
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_wait(sem: *mut sem_t) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { wait(sem, None) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_timedwait(sem: *mut sem_t, deadline: *const timespec) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { wait(sem, Some((libc::CLOCK_REALTIME, deadline))) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sem_clockwait(
    sem: *mut sem_t,
    clock: clockid_t,
    deadline: *const timespec,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { wait(sem, Some((clock, deadline))) }
}
