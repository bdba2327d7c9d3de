//! `sem_wait` and its kind: a polling phase before glibc's own.
//!
//! The semaphore stays glibc's, so semaphores between processes, `sem_open`'s, and `sem_post` in a signal
//! handler are what they were. While a thread polls, it is no waiter, so that a post is a store without a
//! system call.
//!
//! How long to poll is learnt as the kernel's haltpoll governor does (`drivers/cpuidle/governors/haltpoll.c`
//! has the idea): a post that came soon after the thread had given up doubles the limit, one that came late
//! halves it. The parkers' governor is not used, because what it learns from is a doorbell.

use std::cell::Cell;
use std::ffi::c_int;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{clockid_t, sem_t, timespec};

use crate::cancel;
use crate::next::{self, next};

/// No wait polls longer: a sleep costs a few microseconds on each side, tens in a virtual machine.
const LIMIT_MAX_NS: u64 = 50_000;
const LIMIT_START_NS: u64 = 4_000;
/// Looks between two looks at the clock.
const LOOK_COUNT: u32 = 32;
/// The clock is looked at more often than this, unless somebody else has the CPU.
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

/// Where nobody else can run, nobody posts while we look.
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
    // SAFETY: the program's semaphore. Looking first keeps its line shared.
    unsafe { libc::sem_getvalue(sem, &mut value) == 0 && value > 0 && libc::sem_trywait(sem) == 0 }
}

/// Polls, and sleeps by `sleep` if nobody posts meanwhile.
unsafe fn wait(sem: *mut sem_t, deadline: Option<(clockid_t, *const timespec)>) -> c_int {
    // SAFETY: a cancellation point, as POSIX has it.
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
            // Below the start it is not worth looking at the clock.
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
