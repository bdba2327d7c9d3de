//! When not to poll, whatever a waiter's own history says: the machine is needed by others.
//!
//! Three signs, all without a system call on the way of a short wait:
//!
//! - **More runnable threads than CPUs.** A thread that waited lately counts as runnable while it does
//!   not sleep in the kernel. If there are more than CPUs, one that polls keeps from running the one
//!   it waits for.
//! - **Preempted while polling.** The clock jumped between two looks: somebody else was given the
//!   CPU. The waiter does not poll for its next 8 waits, then 16, up to 1024, and half as many after
//!   each poll that went well.
//! - **The CPU budget is spent**: polling may use up to a share of the time that passes.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// CPUs that this process may use; looked up once.
pub(crate) fn cpu_count() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT
        .get_or_init(|| std::thread::available_parallelism().map_or(1, |count| count.get() as u32))
}

/// Threads that run or poll: those that waited lately and do not sleep now, in the present epoch and
/// in the last one. A thread counts once however many parkers it has; one that blocks elsewhere, or
/// computes without ever waiting, is forgotten after two epochs. A hint: nothing depends on its
/// exactness.
struct Crowd {
    /// For even and odd epochs: the epoch's number in the upper half, its threads in the lower.
    epochs: [AtomicU64; 2],
}

static CROWD: Crowd = Crowd::new();

/// 2^24 ns: threads that work together wait for each other more often than every 17 ms.
const EPOCH_SHIFT: u32 = 24;

impl Crowd {
    const fn new() -> Self {
        Crowd { epochs: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    fn slot(&self, epoch: u32) -> &AtomicU64 {
        &self.epochs[(epoch & 1) as usize]
    }

    fn enter(&self, epoch: u32) {
        let next = |word: u64| {
            let of = (word >> 32) as u32;
            // What is left of an older epoch, or of a clock that jumped, is over.
            match of.wrapping_sub(epoch) {
                0 => Some(word + 1),
                2 => None,
                _ => Some(u64::from(epoch) << 32 | 1),
            }
        };
        let _ = self.slot(epoch).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn leave(&self, epoch: u32) {
        // A forked child forgets its parent's threads and may meet zero: stay there.
        let next = |word: u64| ((word >> 32) as u32 == epoch && word as u32 > 0).then(|| word - 1);
        let _ = self.slot(epoch).fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn len(&self, epoch: u32) -> u32 {
        let of = |epoch: u32| {
            let word = self.slot(epoch).load(Ordering::Relaxed);
            if (word >> 32) as u32 == epoch { word as u32 } else { 0 }
        };
        of(epoch) + of(epoch.wrapping_sub(1))
    }
}

/// One thread's part of the crowd.
struct Member {
    crowd: &'static Crowd,
    counted_in: Cell<Option<u32>>,
}

impl Member {
    const fn of(crowd: &'static Crowd) -> Self {
        Member { crowd, counted_in: Cell::new(None) }
    }

    /// The thread runs or polls. Whether there is a CPU for each that does.
    fn runs(&self, now_ns: u64) -> bool {
        let epoch = (now_ns >> EPOCH_SHIFT) as u32;
        if self.counted_in.get() != Some(epoch) {
            self.leaves();
            self.crowd.enter(epoch);
            self.counted_in.set(Some(epoch));
        }
        self.crowd.len(epoch) <= cpu_count()
    }

    /// The thread goes to sleep, or ends.
    fn leaves(&self) {
        if let Some(epoch) = self.counted_in.take() {
            self.crowd.leave(epoch);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leaves();
    }
}

thread_local! {
    static MEMBER: Member = const { Member::of(&CROWD) };
}

/// This thread runs or polls. Whether there is a CPU for each thread that waits like this and does.
pub(crate) fn thread_runs(now_ns: u64) -> bool {
    MEMBER.try_with(|member| member.runs(now_ns)).unwrap_or(true)
}

/// This thread goes to sleep.
pub(crate) fn thread_sleeps() {
    let _ = MEMBER.try_with(Member::leaves);
}

/// After a fork the child has none of its parent's threads.
#[cfg(unix)]
pub(crate) fn forget_after_fork() {
    extern "C" fn in_child() {
        CROWD.epochs.iter().for_each(|epoch| epoch.store(0, Ordering::Relaxed));
    }
    static REGISTERED: OnceLock<()> = OnceLock::new();
    REGISTERED.get_or_init(|| {
        // SAFETY: the handler only stores to atomics. If it cannot be registered, children count
        // too many threads and poll less.
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
    /// Below zero: polled more than was earned, as a poll does that ends later than the balance.
    saved_ns: i64,
    at_ns: u64,
}

/// Time saved up counts up to this: a burst of polling, not a minute of it.
const SAVED_MAX_NS: i64 = 10_000_000;

impl Budget {
    pub(crate) fn new(share_permille: u32, now_ns: u64) -> Self {
        Budget { share_permille: share_permille.into(), saved_ns: SAVED_MAX_NS / 10, at_ns: now_ns }
    }

    /// Whether there is anything left to poll with.
    pub(crate) fn may_poll(&mut self, now_ns: u64) -> bool {
        // What is less than a nanosecond waits for the next time.
        let earned_ns =
            now_ns.saturating_sub(self.at_ns).saturating_mul(self.share_permille) / 1000;
        if earned_ns > 0 || now_ns < self.at_ns {
            self.at_ns = now_ns;
        }
        let earned_ns = i64::try_from(earned_ns).unwrap_or(i64::MAX);
        self.saved_ns = self.saved_ns.saturating_add(earned_ns).min(SAVED_MAX_NS);
        self.saved_ns > 0
    }

    pub(crate) fn polled(&mut self, polled_ns: u64) {
        let polled_ns = i64::try_from(polled_ns).unwrap_or(i64::MAX);
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
        // Waits of 100 µs, each polled to its end if it is polled at all.
        for share_permille in [0, 1, 10, 100, 500] {
            let mut budget = Budget::new(share_permille, 0);
            let (mut now_ns, mut polled_ns) = (0, 0);
            for _ in 0..100_000 {
                let does_poll = budget.may_poll(now_ns);
                now_ns += 100_000;
                if does_poll {
                    polled_ns += 100_000;
                    budget.polled(100_000);
                }
            }
            let share_ns = now_ns / 1000 * u64::from(share_permille);
            let most_ns = share_ns + SAVED_MAX_NS as u64 / 10 + 100_000;
            assert!((share_ns..=most_ns).contains(&polled_ns), "{share_permille}: {polled_ns}");
        }
        // An hour asleep saves up one burst.
        let mut budget = Budget::new(1000, 0);
        assert!(budget.may_poll(3_600_000_000_000));
        assert_eq!(budget.saved_ns, SAVED_MAX_NS);
        assert!(!Budget { saved_ns: 0, ..Budget::new(0, 0) }.may_poll(u64::MAX), "none is none");
    }

    #[test]
    fn counts_threads_that_waited_lately_once() {
        static CROWD: Crowd = Crowd::new();
        let members = [const { Member::of(&CROWD) }; 3];
        let in_epoch = |epoch: u64| epoch << EPOCH_SHIFT;
        for _ in 0..3 {
            members.iter().for_each(|member| _ = member.runs(in_epoch(1_000)));
        }
        assert_eq!(CROWD.len(1_000), 3);
        members[0].runs(in_epoch(1_001));
        assert_eq!(CROWD.len(1_001), 3, "the others may run still");
        members[1].leaves();
        assert_eq!(CROWD.len(1_001), 2, "one sleeps");
        members[1].runs(in_epoch(1_002));
        assert_eq!(CROWD.len(1_002), 2, "one blocks elsewhere: forgotten");
        members[2].runs(in_epoch(1_002));
        assert_eq!(CROWD.len(1_002), 3, "and comes back");
        drop(members);
        assert_eq!(CROWD.len(1_002), 0);
    }

    #[test]
    fn one_more_than_cpus_is_a_crowd() {
        static CROWD: Crowd = Crowd::new();
        let members: Vec<_> = (0..=cpu_count()).map(|_| Member::of(&CROWD)).collect();
        let (last, others) = members.split_last().unwrap();
        assert!(others.iter().all(|member| member.runs(0)));
        assert!(!last.runs(0));
    }

    #[test]
    fn counts_on_after_a_jump_of_the_clock() {
        static CROWD: Crowd = Crowd::new();
        let members = [const { Member::of(&CROWD) }; 2];
        for now_ns in [1 << 60, 1 << 30, 1 << 61] {
            assert!(members.iter().all(|member| member.runs(now_ns) || cpu_count() < 2));
            assert_eq!(CROWD.len((now_ns >> EPOCH_SHIFT) as u32), 2, "{now_ns}");
        }
    }
}
