//! A futex sleep (Linux): the kernel compares the word and sleeps in one step.

use std::ptr;

use idlewise_core::Doorbell;

use super::WaitMethod;
use crate::clock;

/// Sleeps in the kernel.
pub struct Futex;

impl WaitMethod for Futex {
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        // An absolute time of CLOCK_MONOTONIC, so that a signal's early return costs no drift, and
        // setting the wall clock does nothing.
        let timeout = until_ns.map(|until_ns| {
            let left_ns = until_ns.saturating_sub(clock::now_ns());
            let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: writes `now`.
            unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
            // The kernel takes no more than a time_t; who waits longer wakes up early and waits on.
            let left_ns = left_ns.min(1 << 60);
            let nsec = now.tv_nsec as u64 + left_ns;
            libc::timespec {
                tv_sec: now.tv_sec + (nsec / 1_000_000_000) as libc::time_t,
                tv_nsec: (nsec % 1_000_000_000) as _,
            }
        });
        // SAFETY: the word lives as long as `bell`; a null timeout means none. EINTR, EAGAIN and
        // ETIMEDOUT all mean the same: look again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                ptr::from_ref(bell.word()).cast::<u32>(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                Doorbell::SLEEPING_WORD,
                timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
                ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            );
        }
    }

    fn wake(&self, bell: &Doorbell) {
        // SAFETY: the kernel does not read the word; of an address that is nobody's any more it
        // wakes nobody.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                ptr::from_ref(bell.word()).cast::<u32>(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }
}
