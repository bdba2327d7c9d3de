//! Threads: where they run, and the futex.

use std::sync::atomic::AtomicU32;
use std::time::Instant;

use libc::c_int;

/// Sleeps while the word has this value. It may also return early.
pub fn futex_wait(word: &AtomicU32, expected: u32) {
    // SAFETY: the word outlives the call; no timeout.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            std::ptr::null::<libc::timespec>(),
        );
    }
}

/// Wakes one thread that sleeps on this word. Returns how many were woken: 0 or 1.
pub fn futex_wake(word: &AtomicU32) -> libc::c_long {
    // SAFETY: as above.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    }
}

/// Returns the time since then.
pub fn elapsed_ns(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// Returns the CPU that waiters are pinned to.
pub fn waiter_cpu() -> usize {
    *allowed_cpus().last().expect("a process may use a CPU")
}

/// Returns the CPU that the waker is pinned to.
pub fn waker_cpu() -> usize {
    allowed_cpus()[0]
}

/// Returns the CPUs that this process may use.
pub fn allowed_cpus() -> Vec<usize> {
    let mut set: CpuMask = [0; MASK_WORDS];
    // SAFETY: writes a set of the size given, at most.
    unsafe { libc::sched_getaffinity(0, size_of::<CpuMask>(), set.as_mut_ptr().cast()) };
    let has = |cpu: &usize| set[cpu / MASK_BITS] >> (cpu % MASK_BITS) & 1 == 1;
    let cpus: Vec<usize> = (0..MASK_WORDS * MASK_BITS).filter(has).collect();
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// A set of CPUs as the kernel has it. libc's has 1,024 CPUs, and the kernel can be built for 8,192; it refuses to say
/// something in less than it has.
type CpuMask = [libc::c_ulong; MASK_WORDS];
const MASK_BITS: usize = libc::c_ulong::BITS as usize;
const MASK_WORDS: usize = 8_192 / MASK_BITS;

/// Pins the calling thread to a CPU. If the kernel refuses, it stays as it is.
pub fn pin_to(cpu: usize) {
    pin(&[cpu]);
}

/// Pins the calling thread to these CPUs. If the kernel refuses, it stays as it is.
pub fn pin(cpus: &[usize]) {
    let mut set: CpuMask = [0; MASK_WORDS];
    for &cpu in cpus.iter().filter(|&&cpu| cpu < MASK_WORDS * MASK_BITS) {
        set[cpu / MASK_BITS] |= 1 << (cpu % MASK_BITS);
    }
    // SAFETY: reads a set of the size given. If the kernel refuses, the thread stays unpinned.
    unsafe { libc::sched_setaffinity(0, size_of::<CpuMask>(), set.as_ptr().cast()) };
}

/// Gives the calling thread a scheduling policy. Returns whether it may have it. By the system call, because musl's function
/// always fails.
pub(crate) fn set_policy(policy: c_int, priority: c_int) -> bool {
    // SAFETY: the kernel reads one number, all that its `struct sched_param` has.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &priority) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_policy_that_it_was_given() {
        std::thread::spawn(|| {
            assert!(set_policy(libc::SCHED_IDLE, 0));
            // SAFETY: numbers only.
            let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
            assert_eq!(policy, libc::SCHED_IDLE.into());
            assert!(!set_policy(libc::SCHED_IDLE, 1), "it has one priority, 0");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_is_where_it_was_pinned() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let range = |part: &str| {
            let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            first.parse::<usize>().unwrap()..=last.parse().unwrap()
        };
        let allowed: Vec<usize> = list.split(',').flat_map(range).collect();
        assert_eq!(allowed_cpus(), allowed);
        let last = *allowed.last().unwrap();
        std::thread::spawn(move || {
            pin_to(last);
            assert_eq!(allowed_cpus(), [last]);
            // No machine has it. The thread stays where it is.
            pin_to(1_000_000);
            assert_eq!(allowed_cpus(), [last]);
        })
        .join()
        .unwrap();
    }
}
