//! When not to poll, whatever a waiter's own history says: the machine is needed by others.
//!
//! Three signs, all without a system call on the way of a short wait:
//!
//! - **More runnable waiters than CPUs.** Every waiter that ever waited counts as runnable while it
//!   does not sleep in the kernel. If there are more than CPUs, one that polls keeps from running
//!   the one it waits for.
//! - **Preempted while polling.** The clock jumped between two looks: somebody else was given the
//!   CPU. The waiter does not poll for its next 8 waits, then 16, up to 1024, and half as many after
//!   each poll that went well.
//! - **The CPU budget is spent**: polling may use up to a share of the time that passes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// CPUs that this process may use; looked up once.
pub(crate) fn cpu_count() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT
        .get_or_init(|| std::thread::available_parallelism().map_or(1, |count| count.get() as u32))
}

/// Waiters that waited before and do not sleep now. A hint: nothing depends on its exactness.
static RUNNABLE: AtomicU32 = AtomicU32::new(0);

/// One waiter's part of the count of runnable ones.
#[derive(Debug, Default)]
pub(crate) struct Runnable {
    is_counted: bool,
}

impl Runnable {
    /// The waiter runs or polls. Whether there is a CPU for each such waiter.
    pub(crate) fn runs(&mut self) -> bool {
        if !std::mem::replace(&mut self.is_counted, true) {
            RUNNABLE.fetch_add(1, Ordering::Relaxed);
        }
        RUNNABLE.load(Ordering::Relaxed) <= cpu_count()
    }

    /// The waiter goes to sleep, or is gone.
    pub(crate) fn sleeps(&mut self) {
        if std::mem::replace(&mut self.is_counted, false) {
            // A forked child forgets its parent's waiters and may meet zero: stay there.
            let less = |count: u32| Some(count.saturating_sub(1));
            let _ = RUNNABLE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

impl Drop for Runnable {
    fn drop(&mut self) {
        self.sleeps();
    }
}

/// After a fork the child has none of its parent's threads.
#[cfg(unix)]
pub(crate) fn forget_after_fork() {
    extern "C" fn in_child() {
        RUNNABLE.store(0, Ordering::Relaxed);
    }
    static REGISTERED: OnceLock<()> = OnceLock::new();
    REGISTERED.get_or_init(|| {
        // SAFETY: the handler only stores to an atomic. If it cannot be registered, children
        // count too many waiters and poll less.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// After a fork the child has none of its parent's threads.
#[cfg(not(unix))]
pub(crate) fn forget_after_fork() {}

/// A look this late means that somebody else had the CPU: a long interrupt takes less.
const PREEMPTED_NS: u64 = 30_000;
const PENALTY_MAX: u32 = 1024;

/// How a waiter's polls went, and whether it should try again.
#[derive(Debug, Default)]
pub(crate) struct Preemptions {
    /// Waits to go without polling.
    left: u32,
    penalty: u32,
    pub(crate) count: u64,
}

impl Preemptions {
    /// Whether to poll in the wait that begins.
    pub(crate) fn may_poll(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Two looks were `elapsed_ns` apart that should have been at most `expected_ns`.
    #[inline]
    pub(crate) fn looked(&mut self, elapsed_ns: u64, expected_ns: u64) {
        if elapsed_ns > expected_ns.saturating_add(PREEMPTED_NS) {
            self.count += 1;
            self.penalty = (self.penalty * 2).clamp(8, PENALTY_MAX);
            self.left = self.penalty;
        }
    }

    /// A poll ended; it went well if nobody took the CPU.
    pub(crate) fn polled(&mut self) {
        if self.left == 0 {
            self.penalty /= 2;
        }
    }
}

/// How much polling may use of the time that passes.
#[derive(Debug)]
pub(crate) struct Budget {
    share_permille: u64,
    saved_ns: u64,
    at_ns: u64,
}

/// Time saved up counts up to this: a burst of polling, not a minute of it.
const SAVED_MAX_NS: u64 = 10_000_000;

impl Budget {
    pub(crate) fn new(share_permille: u32, now_ns: u64) -> Self {
        Budget { share_permille: share_permille.into(), saved_ns: SAVED_MAX_NS / 10, at_ns: now_ns }
    }

    /// Whether there is anything left to poll with.
    pub(crate) fn may_poll(&mut self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns).min(SAVED_MAX_NS * 1000);
        self.at_ns = now_ns;
        let earned_ns = elapsed_ns * self.share_permille / 1000;
        self.saved_ns = (self.saved_ns + earned_ns).min(SAVED_MAX_NS);
        self.saved_ns > 0
    }

    pub(crate) fn polled(&mut self, polled_ns: u64) {
        self.saved_ns = self.saved_ns.saturating_sub(polled_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preempted_poller_backs_off_and_comes_back() {
        let mut preemptions = Preemptions::default();
        assert!(preemptions.may_poll());
        preemptions.looked(PREEMPTED_NS, 1_000);
        assert!(preemptions.may_poll(), "an interrupt is no preemption");
        preemptions.looked(4_000_000, 1_000);
        let mut skipped = 0;
        while !preemptions.may_poll() {
            skipped += 1;
        }
        assert_eq!(skipped, 7);
        for _ in 0..20 {
            preemptions.looked(4_000_000, 1_000);
        }
        assert_eq!(preemptions.left, PENALTY_MAX);
        while !preemptions.may_poll() {}
        preemptions.polled();
        preemptions.looked(4_000_000, 1_000);
        assert_eq!(preemptions.left, PENALTY_MAX, "half of the longest, doubled");
    }

    #[test]
    fn a_budget_is_a_share_of_time() {
        let mut budget = Budget::new(100, 0);
        budget.polled(SAVED_MAX_NS);
        assert!(!budget.may_poll(0));
        assert!(budget.may_poll(1_000_000));
        assert_eq!(budget.saved_ns, 100_000);
        budget.polled(100_000);
        assert!(!budget.may_poll(1_000_000));
        assert!(!Budget { saved_ns: 0, ..Budget::new(0, 0) }.may_poll(u64::MAX), "none is none");
    }

    #[test]
    fn counts_runnable_waiters_once() {
        let mut waiter = Runnable::default();
        waiter.runs();
        waiter.runs();
        assert!(waiter.is_counted);
        waiter.sleeps();
        waiter.sleeps();
        assert!(!waiter.is_counted);
    }
}
