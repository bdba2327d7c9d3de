//! States in which the CPU monitors the doorbell's cache line, and checks that they work.
//!
//! The OS, the hypervisor or a microcode update may switch the monitor off. Each wait then ends at once, so
//! the state polls, at a higher price than polling. A monitor that misses stores makes wake-ups late. The
//! first fault is tested for before such a state is used ([`lasts`]). Both are noticed during use
//! ([`Trust`]), and the process then stops using the state.
//!
//! A single thread cannot test that a store ends a wait: AMD CPUs ignore a store that the waiting thread
//! itself makes between arming and waiting (seen on EPYC).

use std::sync::atomic::{AtomicU32, Ordering};

use super::{METHODS, Method};
#[cfg(target_arch = "x86_64")]
use crate::clock;

/// Two steps: arm the monitor, then wait for a store since then.
#[cfg(target_arch = "x86_64")]
pub(super) trait Monitor {
    /// Arms the monitor on the line of `word`, which need not be a valid address.
    ///
    /// # Safety
    /// The CPU must execute the instruction, or trap so that something emulates it.
    unsafe fn arm(&self, word: *const u32);

    /// Waits for a store to the line, or until the counter reaches `until_ticks`. May return spuriously.
    ///
    /// # Safety
    /// As for [`Monitor::arm`].
    unsafe fn wait_armed(&self, until_ticks: Option<u64>);
}

/// Waits for a store to a doorbell's line.
///
/// # Safety
/// As for [`Monitor::arm`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn wait(
    monitor: &impl Monitor,
    bell: &idlewise_core::Doorbell,
    until_ns: Option<u64>,
) {
    // SAFETY: the caller guarantees that the instructions exist.
    unsafe {
        monitor.arm(std::ptr::from_ref(bell.word()).cast());
        // A ring before the monitor was armed does not trigger it, so look once more.
        if !bell.is_rung() {
            monitor.wait_armed(until_ns.map(clock::ticks_at));
        }
    }
}

/// Whether a wait lasts if nobody stores. The check takes 30 µs where it does not, and 10 where it does.
///
/// # Safety
/// As for [`Monitor::arm`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn lasts(monitor: &impl Monitor) -> bool {
    const PROBE_NS: u64 = 5_000;
    const TRY_COUNT: usize = 8;
    #[repr(align(128))]
    struct Line(AtomicU32);
    let line = Line(AtomicU32::new(0));
    let probe = |_| {
        let start_ticks = clock::ticks();
        // In ticks of any rate, so that the counter's rate need not be known.
        let until_ticks = start_ticks + PROBE_NS;
        // SAFETY: the caller guarantees that the instructions exist.
        unsafe {
            monitor.arm(line.0.as_ptr());
            monitor.wait_armed(Some(until_ticks));
        }
        // A quarter is enough: timers differ, and an interrupt may end a wait.
        clock::ticks().wrapping_sub(start_ticks) >= PROBE_NS / 4
    };
    // It must fail twice, because once could be a preemption.
    (0..TRY_COUNT).filter(|&number| probe(number)).nth(1).is_some()
}

/// The methods that this process no longer uses: one bit each, in the order of [`METHODS`].
#[cfg(not(test))]
fn broken<R>(action: impl FnOnce(&AtomicU32) -> R) -> R {
    static BROKEN: AtomicU32 = AtomicU32::new(0);
    action(&BROKEN)
}

/// The same of a test's thread, because one test may find that a method does not work on this CPU while another
/// plays a machine on which it does.
#[cfg(test)]
fn broken<R>(action: impl FnOnce(&AtomicU32) -> R) -> R {
    thread_local! {
        static BROKEN: AtomicU32 = const { AtomicU32::new(0) };
    }
    BROKEN.with(action)
}

fn bit(method: Method) -> u32 {
    METHODS.iter().position(|(listed, _)| *listed == method).map_or(0, |rank| 1 << rank)
}

/// Whether this process found that the method does not work.
#[inline]
pub(crate) fn is_broken(method: Method) -> bool {
    let broken = broken(|broken| broken.load(Ordering::Relaxed));
    broken != 0 && broken & bit(method) != 0
}

/// What went wrong while a monitored state was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trust {
    at_once: u32,
    missed: u32,
}

/// How a monitored wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Monitored {
    /// A store ended it, or it lasted as long as asked.
    Well,
    /// It ended within [`AT_ONCE_NS`] although nobody rang.
    AtOnce,
    /// It lasted to its end although somebody had rung.
    Missed,
}

/// An interrupt ends a wait too, but not many in a row within a microsecond.
pub(crate) const AT_ONCE_NS: u64 = 1_000;
/// Limit of waits that ended at once, where each wait that did not takes four off the count.
const AT_ONCE_MAX: u32 = 64;
/// Limit of late wake-ups, where each timely one takes one off. A preempted waiter's look like that too.
const MISSED_MAX: u32 = 32;

impl Trust {
    /// Notes how a wait ended. Returns `false` if no waiter of this process should use the method any more.
    #[inline]
    pub(crate) fn note(&mut self, method: Method, ended: Monitored) -> bool {
        match ended {
            Monitored::Well => {
                self.at_once = self.at_once.saturating_sub(4);
                self.missed = self.missed.saturating_sub(1);
            }
            Monitored::AtOnce => self.at_once += 1,
            Monitored::Missed => self.missed += 1,
        }
        let is_trusted = self.at_once < AT_ONCE_MAX && self.missed < MISSED_MAX;
        if !is_trusted {
            broken(|broken| broken.fetch_or(bit(method), Ordering::Relaxed));
            *self = Trust::default();
        }
        is_trusted
    }
}

/// Forgets what went wrong, for tests that break methods on purpose.
#[doc(hidden)]
pub fn trust_again() {
    broken(|broken| broken.store(0, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A method that no other test waits with.
    const METHOD: Method = Method::Wfet;

    fn count_until_distrust(pattern: &[Monitored]) -> Option<usize> {
        let mut trust = Trust::default();
        (0..10_000).find(|&turn| !trust.note(METHOD, pattern[turn % pattern.len()]))
    }

    #[test]
    fn distrusts_a_monitor_that_ends_waits_again_and_again() {
        use Monitored::{AtOnce, Missed, Well};
        assert_eq!(count_until_distrust(&[Well]), None);
        assert_eq!(
            count_until_distrust(&[AtOnce, AtOnce, AtOnce, AtOnce, Well]),
            None,
            "interrupts"
        );
        assert_eq!(count_until_distrust(&[Missed, Well]), None, "preempted");
        assert!(!is_broken(METHOD));
        assert_eq!(count_until_distrust(&[AtOnce]), Some(63));
        assert!(is_broken(METHOD));
        assert_eq!(count_until_distrust(&[Missed]), Some(31));
        assert!(!is_broken(Method::Spin));
    }
}
