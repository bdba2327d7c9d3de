//! Sleeping on a word in the kernel (Linux), which compares the word and sleeps in one step.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use super::reach::{Reach, Who};

/// What this system lacks.
pub(super) fn missing() -> Option<&'static str> {
    None
}

fn flag_of(reach: Reach) -> libc::c_int {
    match reach {
        Reach::Process => libc::FUTEX_PRIVATE_FLAG,
        Reach::Processes => 0,
    }
}

/// Sleeps while the word is `expected`. May return spuriously.
pub(super) fn sleep(word: &AtomicU32, expected: u32, until: Option<Instant>, reach: Reach) {
    // The deadline is an absolute CLOCK_MONOTONIC time: returning early for a signal adds no drift, and
    // setting the wall clock has no effect.
    let timeout = until.map(|until| {
        let left_ns = until.saturating_duration_since(Instant::now()).as_nanos();
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes `now`.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        // The kernel takes at most a time_t. A longer wait wakes up early and continues.
        let left_ns = left_ns.min(1 << 60) as u64;
        let nsec = now.tv_nsec as u64 + left_ns;
        libc::timespec {
            tv_sec: now.tv_sec + (nsec / 1_000_000_000) as libc::time_t,
            tv_nsec: (nsec % 1_000_000_000) as _,
        }
    });
    // SAFETY: the word lives as long as the reference; a null timeout means none. EINTR, EAGAIN and
    // ETIMEDOUT all mean to look again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::from_ref(word).cast::<u32>(),
            libc::FUTEX_WAIT_BITSET | flag_of(reach),
            expected,
            timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
            ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        );
    }
}

/// Wakes the threads that sleep on the word at this address.
pub(super) fn wake(word: *const AtomicU32, who: Who, reach: Reach) {
    let count = match who {
        Who::One => 1,
        Who::All => libc::c_int::MAX,
    };
    // SAFETY: the kernel does not read the word. If the address is no longer in use, nobody is woken.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.cast::<u32>(),
            libc::FUTEX_WAKE | flag_of(reach),
            count,
        );
    }
}
