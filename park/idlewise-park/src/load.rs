//! When not to poll, whatever a waiter's own history says: when others need the CPU.
//!
//! There are two signs. Checking them costs a short wait no system call. A third limit is the budget
//! (`budget.rs`).
//!
//! - **More runnable threads than CPUs.** A thread that waited recently counts as runnable while it does
//!   not sleep in the kernel, and again as soon as somebody wakes it. If there are more such threads than
//!   CPUs, one that polls keeps the CPU from the thread it waits for. The CPUs are those that the process's
//!   threads were seen to be allowed, and at most as many as a cgroup's quota pays for. The same must hold
//!   among the threads that are allowed the same CPUs as this one. So two threads pinned to one CPU are a
//!   crowd, and a thousand threads pinned to a CPU each are not.
//! - **Preempted while polling.** The clock jumped between two looks, so somebody else had the CPU. The
//!   waiter does not poll in its next 8 waits, then 16, up to 1024. Each poll that goes well halves that
//!   number.
//!
//! Each thread has a place of its own: a cache line that only the thread and its wakers write. So sleeping
//! and waking share nothing with other threads. Counting is the expensive part: a thread that is about to
//! poll reads all places, but only every half millisecond, and a few at a time ([`CROWD_STEP`]), looking at
//! its doorbell in between.

use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::budget::{self, Budget};

/// CPUs that this process may use, from the OS's first answer, for where threads can't be asked one by one.
pub(crate) fn cpu_count() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT
        .get_or_init(|| std::thread::available_parallelism().map_or(1, |count| count.get() as u32))
}

/// The CPUs that a thread may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cpus {
    /// Equal for threads that may use the same CPUs.
    fingerprint: u64,
    count: u32,
}

/// The number of threads with a place. Further threads are not counted.
const PLACE_COUNT: usize = 1024;
/// The number of a thread without a place.
pub(crate) const NO_PLACE: u32 = u32::MAX;
/// How many places are read between two looks at a doorbell.
pub(crate) const CROWD_STEP: u32 = 8;
/// How long a count remains valid.
const COUNT_HOLDS_NS: u64 = 500_000;
/// 2^24 ns: threads that work together wait for each other more often than every 17 ms.
const EPOCH_SHIFT: u32 = 24;

/// One thread's place, on a cache line of its own.
#[repr(align(128))]
struct Place {
    is_taken: AtomicBool,
    /// One more than the epoch in which the thread was last seen running, polling or woken; 0 if it sleeps.
    /// A thread that blocks elsewhere, or computes and never waits, is forgotten after two epochs.
    seen: AtomicU64,
    /// [`Cpus::fingerprint`].
    fingerprint: AtomicU64,
}

/// The threads that run or poll. A thread counts once, however many parkers it has. Nothing depends on the
/// count being exact.
struct Crowd {
    places: [Place; PLACE_COUNT],
    /// Places from here on were never taken.
    used_count: AtomicU32,
    /// CPUs that some thread was seen to be allowed.
    cpus: [AtomicU64; CPU_WORDS],
}

/// The CPU mask has this many 64-bit words, as a `cpu_set_t` has.
const CPU_WORDS: usize = 16;

static CROWD: Crowd = Crowd::new();

impl Crowd {
    const fn new() -> Self {
        Crowd {
            places: [const {
                Place {
                    is_taken: AtomicBool::new(false),
                    seen: AtomicU64::new(0),
                    fingerprint: AtomicU64::new(0),
                }
            }; PLACE_COUNT],
            used_count: AtomicU32::new(0),
            cpus: [const { AtomicU64::new(0) }; CPU_WORDS],
        }
    }

    fn take_place(&self) -> u32 {
        let is_free = |place: &Place| {
            !place.is_taken.load(Ordering::Relaxed) && !place.is_taken.swap(true, Ordering::Relaxed)
        };
        let Some(number) = self.places.iter().position(is_free) else { return NO_PLACE };
        self.used_count.fetch_max(number as u32 + 1, Ordering::Relaxed);
        number as u32
    }

    fn place(&self, number: u32) -> Option<&Place> {
        self.places.get(number as usize)
    }

    fn note_cpus(&self, mask: &[u64; CPU_WORDS]) {
        for (word, bits) in self.cpus.iter().zip(mask) {
            if word.load(Ordering::Relaxed) & bits != *bits {
                word.fetch_or(*bits, Ordering::Relaxed);
            }
        }
    }

    /// The number of CPUs that threads were seen to be allowed, or else the OS's first answer.
    fn cpu_count(&self) -> u32 {
        let count = self.cpus.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
        if count == 0 { cpu_count() } else { count }
    }
}

/// A count in progress.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    next: u32,
    all: u32,
    alike: u32,
}

/// One thread's membership of the crowd.
struct Member {
    crowd: &'static Crowd,
    number: Cell<u32>,
    cpus: Cell<Cpus>,
    /// The epoch in which the thread last asked for its CPUs.
    asked_in: Cell<Option<u64>>,
    count: Cell<Count>,
    is_crowded: Cell<bool>,
    holds_until_ns: Cell<u64>,
    /// The budget of parkers that have none of their own.
    budget: RefCell<Option<Budget>>,
}

impl Member {
    const fn of(crowd: &'static Crowd) -> Self {
        Member {
            crowd,
            number: Cell::new(NO_PLACE),
            cpus: Cell::new(Cpus { fingerprint: 0, count: 1 }),
            asked_in: Cell::new(None),
            count: Cell::new(Count { next: 0, all: 0, alike: 0 }),
            is_crowded: Cell::new(false),
            holds_until_ns: Cell::new(0),
            budget: RefCell::new(None),
        }
    }

    fn place(&self) -> Option<&'static Place> {
        self.crowd.place(self.number.get())
    }

    /// Takes a place. Asks which CPUs the thread may use, unless it did so recently.
    fn ask(&self, epoch: u64, allowed: impl FnOnce() -> Option<[u64; CPU_WORDS]>) {
        if self.asked_in.get() == Some(epoch) {
            return;
        }
        self.asked_in.set(Some(epoch));
        if self.number.get() == NO_PLACE {
            self.number.set(self.crowd.take_place());
        }
        let cpus = match allowed() {
            Some(mask) => {
                self.crowd.note_cpus(&mask);
                Cpus {
                    fingerprint: fingerprint(&mask),
                    count: mask.iter().map(|word| word.count_ones()).sum(),
                }
            }
            None => Cpus { fingerprint: 0, count: cpu_count() },
        };
        self.cpus.set(cpus);
        if let Some(place) = self.place() {
            place.fingerprint.store(cpus.fingerprint, Ordering::Relaxed);
        }
    }

    /// The thread runs or polls.
    fn runs(&self, now_ns: u64) {
        if let Some(place) = self.place() {
            let seen = (now_ns >> EPOCH_SHIFT) + 1;
            if place.seen.load(Ordering::Relaxed) != seen {
                place.seen.store(seen, Ordering::Relaxed);
            }
        }
    }

    /// The thread goes to sleep, or ends.
    fn sleeps(&self) {
        if let Some(place) = self.place() {
            place.seen.store(0, Ordering::Relaxed);
        }
    }

    /// Whether more threads run than there are CPUs. `None`: the count is not finished, ask again.
    fn is_crowded(&self, now_ns: u64, quota_permille: Option<u64>) -> Option<bool> {
        let holds_for_ns = self.holds_until_ns.get().wrapping_sub(now_ns);
        // If the clock went back, the difference is too large.
        if (1..=COUNT_HOLDS_NS).contains(&holds_for_ns) {
            return Some(self.is_crowded.get());
        }
        let seen = (now_ns >> EPOCH_SHIFT) + 1;
        let Cpus { fingerprint, count: own_cpu_count } = self.cpus.get();
        let mut count = self.count.get();
        let end = self.crowd.used_count.load(Ordering::Relaxed);
        let last = (count.next + CROWD_STEP).min(end);
        for number in count.next..last {
            let Some(place) = self.crowd.place(number) else { continue };
            let was_seen = place.seen.load(Ordering::Relaxed);
            if number == self.number.get()
                || was_seen == seen
                || was_seen + 1 == seen && was_seen > 0
            {
                count.all += 1;
                let is_alike = place.fingerprint.load(Ordering::Relaxed) == fingerprint;
                count.alike += u32::from(is_alike);
            }
        }
        count.next = last;
        if last < end {
            self.count.set(count);
            return None;
        }
        self.count.set(Count::default());
        // A quota of half a CPU means one CPU for half of the time.
        let paid_count =
            quota_permille.map_or(u32::MAX, |permille| permille.div_ceil(1000).max(1) as u32);
        let cpu_count = self.crowd.cpu_count().min(paid_count);
        let is_crowded = count.all > cpu_count || count.alike > own_cpu_count;
        self.is_crowded.set(is_crowded);
        self.holds_until_ns.set(now_ns.wrapping_add(COUNT_HOLDS_NS));
        Some(is_crowded)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.sleeps();
        if let Some(place) = self.place() {
            place.is_taken.store(false, Ordering::Relaxed);
        }
    }
}

thread_local! {
    // Not `const`: before Rust 1.87 a constant cannot refer to a mutable static.
    #[allow(clippy::missing_const_for_thread_local, reason = "says the line above")]
    static MEMBER: Member = Member::of(&CROWD);
}

/// Equal for the same CPUs, and almost never for others (FNV-1a). Never 0.
fn fingerprint(mask: &[u64; CPU_WORDS]) -> u64 {
    let mix = |hash: u64, word: &u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    mask.iter().fold(0xcbf2_9ce4_8422_2325, mix) | 1
}

/// The CPUs that the calling thread may use, where the OS reports them.
fn allowed_cpus() -> Option<[u64; CPU_WORDS]> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if !cfg!(miri) {
        let mut mask = [0; CPU_WORDS];
        // SAFETY: an all-zero set is an empty one; the kernel writes no more than its size.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
            return None;
        }
        for cpu in 0..(64 * CPU_WORDS).min(8 * size_of_val(&set)) {
            // SAFETY: `cpu` is within the set.
            if unsafe { libc::CPU_ISSET(cpu, &set) } {
                mask[cpu / 64] |= 1 << (cpu % 64);
            }
        }
        return Some(mask);
    }
    None
}

/// Notes that this thread is about to wait. The first call takes a place.
#[inline]
pub(crate) fn thread_runs(now_ns: u64) {
    let _ = MEMBER.try_with(|member| {
        if member.asked_in.get().is_none() {
            member.ask(now_ns >> EPOCH_SHIFT, allowed_cpus);
        }
        member.runs(now_ns);
    });
}

/// Notes that this thread goes to sleep.
#[inline]
pub(crate) fn thread_sleeps() {
    let _ = MEMBER.try_with(Member::sleeps);
}

/// Asks which CPUs this thread may use, unless it did so recently. Called when there is time for it.
pub(crate) fn ask_for_cpus(now_ns: u64) {
    let _ = MEMBER.try_with(|member| member.ask(now_ns >> EPOCH_SHIFT, allowed_cpus));
}

/// Whether there are more threads than CPUs. `None`: look at the doorbell and ask again.
#[inline]
pub(crate) fn is_crowded(now_ns: u64) -> Option<bool> {
    let quota_permille = budget::quota_permille();
    MEMBER.try_with(|member| member.is_crowded(now_ns, quota_permille)).unwrap_or(Some(false))
}

/// The calling thread's place, for the thread that will wake it.
pub(crate) fn place() -> u32 {
    MEMBER.try_with(|member| member.number.get()).unwrap_or(NO_PLACE)
}

/// Notes that somebody wakes the thread of that place.
pub(crate) fn place_runs(number: u32, now_ns: u64) {
    if let Some(place) = CROWD.place(number) {
        place.seen.store((now_ns >> EPOCH_SHIFT) + 1, Ordering::Relaxed);
    }
}

/// Calls `action` with the budget shared by those of this thread's parkers that have none of their own.
pub(crate) fn with_thread_budget<R>(
    now_ns: u64,
    action: impl FnOnce(&mut Budget) -> R,
) -> Option<R> {
    MEMBER
        .try_with(|member| {
            let mut budget = member.budget.borrow_mut();
            action(budget.get_or_insert_with(|| Budget::new(budget::cpu_budget_permille(), now_ns)))
        })
        .ok()
}

/// Asks once per process what no wait should ask for: the quota, and whether the counter is the clock.
pub(crate) fn prepare() {
    static IS_DONE: OnceLock<()> = OnceLock::new();
    IS_DONE.get_or_init(|| {
        forget_after_fork();
        crate::clock::now_ns();
        budget::cpu_budget_permille();
        budget::quota_permille();
    });
}

/// After a fork the child has only the thread that forked.
#[cfg(unix)]
fn forget_after_fork() {
    extern "C" fn in_child() {
        let own = place();
        let used_count = CROWD.used_count.load(Ordering::Relaxed);
        for number in (0..used_count).filter(|&number| number != own) {
            if let Some(place) = CROWD.place(number) {
                place.seen.store(0, Ordering::Relaxed);
                place.is_taken.store(false, Ordering::Relaxed);
            }
        }
    }
    // SAFETY: the handler only reads and stores atomics and reads a thread-local of its own thread.
    // If it cannot be registered, children count too many threads for a while.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Without fork there is nothing to forget.
#[cfg(not(unix))]
fn forget_after_fork() {}

/// A look this late means that another thread had the CPU. Even a long interrupt takes less.
const PREEMPTED_NS: u64 = 30_000;
const PENALTY_MAX: u32 = 1024;

/// How a waiter's polls went, and whether it should poll again.
#[derive(Debug, Default)]
pub(crate) struct Preemptions {
    /// How many more waits must not poll.
    left: u32,
    penalty: u32,
    pub(crate) count: u64,
}

impl Preemptions {
    /// Whether the wait that begins may poll.
    pub(crate) fn may_poll(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Two looks were `elapsed_ns` apart, where at most `expected_ns` were expected.
    #[inline]
    pub(crate) fn looked(&mut self, elapsed_ns: u64, expected_ns: u64) {
        if elapsed_ns > expected_ns.saturating_add(PREEMPTED_NS) {
            self.count += 1;
            self.penalty = (self.penalty * 2).clamp(8, PENALTY_MAX);
            self.left = self.penalty;
        }
    }

    /// A poll ended. It went well if nobody took the CPU.
    pub(crate) fn polled(&mut self) {
        if self.left == 0 {
            self.penalty /= 2;
        }
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

    const fn cpus(words: u64) -> Option<[u64; CPU_WORDS]> {
        let mut mask = [0; CPU_WORDS];
        mask[0] = words;
        Some(mask)
    }

    /// A thread that may use these CPUs and runs in that epoch.
    fn member(crowd: &'static Crowd, mask: u64, epoch: u64) -> Member {
        let member = Member::of(crowd);
        member.ask(epoch, || cpus(mask));
        member.runs(epoch << EPOCH_SHIFT);
        member
    }

    /// Counts to the end, ignoring earlier counts.
    fn is_crowded(member: &Member, epoch: u64) -> bool {
        member.holds_until_ns.set(0);
        let now_ns = epoch << EPOCH_SHIFT;
        (0..=PLACE_COUNT).find_map(|_| member.is_crowded(now_ns, None)).expect("it ends")
    }

    #[test]
    fn one_more_than_cpus_is_a_crowd() {
        static CROWD: Crowd = Crowd::new();
        let mut members: Vec<_> = (0..20).map(|_| member(&CROWD, 0xfffff, 7)).collect();
        assert!(!is_crowded(&members[0], 7));
        members.push(member(&CROWD, 0xfffff, 7));
        assert!(members.iter().all(|member| is_crowded(member, 7)));
        members[3].sleeps();
        assert!(!is_crowded(&members[0], 7));
        place_of(&members[3]).seen.store(8, Ordering::Relaxed);
        assert!(is_crowded(&members[0], 7), "one that is being woken");
        members.truncate(5);
        assert!(!is_crowded(&members[0], 7), "they ended");
        assert_eq!(member(&CROWD, 1, 7).number.get(), 5, "and left their places");
    }

    fn place_of(member: &Member) -> &'static Place {
        member.place().unwrap()
    }

    /// Each would be oversubscribed if the first thread's CPUs were taken for the process's.
    #[test]
    fn threads_pinned_to_cpus_of_their_own_are_no_crowd() {
        static CROWD: Crowd = Crowd::new();
        let mut members: Vec<_> = (0..16).map(|cpu| member(&CROWD, 1 << cpu, 1)).collect();
        assert!(members.iter().all(|member| !is_crowded(member, 1)));
        // A second thread on CPU 3, although 16 CPUs would be enough for 16 threads.
        members[15].sleeps();
        members.push(member(&CROWD, 1 << 3, 1));
        let crowded: Vec<_> = (0..15).filter(|&cpu| is_crowded(&members[cpu], 1)).collect();
        assert_eq!(crowded, [3]);
    }

    #[test]
    fn follows_a_thread_that_is_pinned_later() {
        static CROWD: Crowd = Crowd::new();
        let members = [member(&CROWD, 0b11, 1), member(&CROWD, 0b11, 1)];
        assert!(!is_crowded(&members[0], 1));
        members.iter().for_each(|member| member.ask(1, || cpus(0b10)));
        assert!(!is_crowded(&members[0], 1), "asked in this epoch already");
        members.iter().for_each(|member| member.ask(2, || cpus(0b10)));
        assert!(is_crowded(&members[0], 1), "both on one");
    }

    #[test]
    fn a_quota_counts_as_cpus() {
        static CROWD: Crowd = Crowd::new();
        let members = [member(&CROWD, 0b1111, 1), member(&CROWD, 0b1111, 1)];
        let with_quota = |permille| {
            members[0].holds_until_ns.set(0);
            members[0].is_crowded(1 << EPOCH_SHIFT, Some(permille)).unwrap()
        };
        assert!(with_quota(500) && with_quota(1_000));
        assert!(!with_quota(1_500) && !with_quota(4_000));
    }

    #[test]
    fn counts_threads_that_waited_lately() {
        static CROWD: Crowd = Crowd::new();
        let members = [member(&CROWD, 0b11, 1_000), member(&CROWD, 0b11, 1_000)];
        let last = member(&CROWD, 0b11, 1_001);
        assert!(is_crowded(&last, 1_001), "the others may run still");
        last.runs(1_002 << EPOCH_SHIFT);
        assert!(!is_crowded(&last, 1_002), "they block elsewhere: forgotten");
        members[0].runs(1_002 << EPOCH_SHIFT);
        members[1].runs(1_002 << EPOCH_SHIFT);
        assert!(is_crowded(&last, 1_002), "and come back");
    }

    #[test]
    fn counts_on_after_a_jump_of_the_clock() {
        static CROWD: Crowd = Crowd::new();
        let members = [member(&CROWD, 0b1, 1), member(&CROWD, 0b1, 1)];
        for now_ns in [1 << 60, 1 << 30, 1 << 61, 0] {
            members.iter().for_each(|member| member.runs(now_ns));
            assert!(members.iter().all(|member| {
                (0..9).find_map(|_| member.is_crowded(now_ns, None)) == Some(true)
            }));
        }
    }

    /// A thread ignores its doorbell for at most one step.
    #[test]
    fn counts_a_few_at_a_time() {
        static CROWD: Crowd = Crowd::new();
        let members: Vec<_> = (0..100).map(|_| member(&CROWD, u64::MAX, 1)).collect();
        let counts = |_| members[0].is_crowded(1 << EPOCH_SHIFT, None);
        let step_count = (1..).find(|&step| counts(step).is_some());
        assert_eq!(step_count, Some(100u32.div_ceil(CROWD_STEP)));
        assert_eq!(counts(0), Some(true), "64 CPUs, and it holds for a while");
    }

    #[test]
    #[cfg_attr(miri, ignore = "a million steps for nothing that miri could find")]
    fn more_threads_than_places_are_not_counted() {
        static CROWD: Crowd = Crowd::new();
        let members: Vec<_> = (0..=PLACE_COUNT).map(|_| member(&CROWD, 1, 1)).collect();
        assert_eq!(members[PLACE_COUNT].number.get(), NO_PLACE);
        assert!(is_crowded(&members[PLACE_COUNT], 1));
        drop(members);
        assert_eq!(member(&CROWD, 1, 1).number.get(), 0);
    }
}
