//! What sleeping costs on this machine, learnt from real wake-ups.
//!
//! A sleep's exit latency depends on its length (the CPU goes deeper), on the machine, its host and its
//! neighbours. So a hurried measurement at a process's start is not right for long. Waking a sleeper costs
//! microseconds on both sides, so two more readings of the clock do not matter there. Each waker records
//! when it rang and how long its call took ([`wake`]). The sleeper reads that when it runs, and so knows
//! its exit latency. For every 64th sleep it also asks how much CPU time the sleep took.
//!
//! For each depth of sleep, an estimate is kept near the median of the recent wake-ups. A sample above or
//! below moves it up or down by a sixteenth (by more at first). A single wake-up, however late, cannot move
//! it further. The process's next waiters begin with what a waiter has learnt ([`Prior`]). Until something
//! is learnt, the table's own figures hold.
//!
//! States that a store ends are not learnt. Their wakers do not record when they rang, because that would
//! cost more than the wake-up itself.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use idlewise_core::Doorbell;

use crate::clock;
use crate::load;
use crate::poll_limit::{SLEEP_DEPTH_COUNT, SleepCost, sleep_depth};
use crate::wait::Method;

/// What a sleeper and its wakers tell each other besides the doorbell's word. There are a few such places
/// in static memory, chosen by the word's address; the word's own memory may be gone when a waker's call
/// returns. A thread that finds its place taken by another does without.
#[repr(align(64))]
struct Wakes {
    /// The address of the word that the sleeper sleeps on.
    address: AtomicUsize,
    /// When the last ring that found the sleeper asleep was made.
    rung_at_ns: AtomicU64,
    /// How long the last system call took.
    call_ns: AtomicU32,
    /// The sleeper's place in the crowd ([`load::place`]).
    place: AtomicU32,
}

const WAKES_COUNT: usize = 256;
static WAKES: [Wakes; WAKES_COUNT] = [const {
    Wakes {
        address: AtomicUsize::new(0),
        rung_at_ns: AtomicU64::new(0),
        call_ns: AtomicU32::new(0),
        place: AtomicU32::new(load::NO_PLACE),
    }
}; WAKES_COUNT];

fn wakes_of(address: usize) -> &'static Wakes {
    // Parkers' words have two cache lines each; other words may be neighbours. This spreads both.
    &WAKES[((address >> 7) ^ (address >> 2)) % WAKES_COUNT]
}

/// Makes the system call that a ring owes. Records when it was made and how long it took.
pub(crate) fn wake(sleep: Method, bell: *const Doorbell) {
    wake_by(bell, || sleep.imp().wake(bell));
}

/// Like [`wake`], with another call.
pub(crate) fn wake_by<R>(bell: *const Doorbell, call: impl FnOnce() -> R) -> R {
    let wakes = wakes_of(bell.addr());
    let is_known = wakes.address.load(Ordering::Relaxed) == bell.addr();
    let rung_at_ns = clock::now_ns();
    if is_known {
        wakes.rung_at_ns.store(rung_at_ns, Ordering::Relaxed);
        // The thread is runnable now, whether or not it has a CPU yet.
        load::place_runs(wakes.place.load(Ordering::Relaxed), rung_at_ns);
    }
    let result = call();
    if is_known {
        let call_ns = clock::now_ns().saturating_sub(rung_at_ns);
        wakes.call_ns.store(u32::try_from(call_ns).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
    result
}

/// Records the sleeper's place before it falls asleep.
pub(crate) fn falls_asleep(bell: &Doorbell) {
    let address = std::ptr::from_ref(bell).addr();
    let (wakes, place) = (wakes_of(address), load::place());
    if wakes.address.load(Ordering::Relaxed) != address {
        wakes.address.store(address, Ordering::Relaxed);
    }
    if wakes.place.load(Ordering::Relaxed) != place {
        wakes.place.store(place, Ordering::Relaxed);
    }
}

/// When the ring that ended a sleep was made (if after `since_ns`, and if its waker recorded it), and how
/// long the waker's last call took (0 if none has returned yet). A waiter that woke up by itself may be
/// ahead of its waker.
pub(crate) fn rung(bell: &Doorbell, since_ns: u64) -> Option<(u64, u64)> {
    let address = std::ptr::from_ref(bell).addr();
    let wakes = wakes_of(address);
    let rung_at_ns = wakes.rung_at_ns.load(Ordering::Relaxed);
    let is_ours = wakes.address.load(Ordering::Relaxed) == address && rung_at_ns >= since_ns;
    is_ours.then(|| (rung_at_ns, wakes.call_ns.load(Ordering::Relaxed).into()))
}

/// An estimate near the median of recent samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Estimate {
    ns: u32,
    sample_count: u32,
}

/// Fewer samples are not used.
const SAMPLE_COUNT_MIN: u32 = 4;
/// The upper bound keeps a neighbour's noise from making a process poll for milliseconds.
const LATENCY_NS: std::ops::RangeInclusive<u64> = 50..=100_000;
const TIME_NS: std::ops::RangeInclusive<u64> = 250..=50_000;

impl Estimate {
    fn note(&mut self, sample_ns: u64, range: &std::ops::RangeInclusive<u64>) {
        let sample_ns = sample_ns.clamp(*range.start(), *range.end()) as u32;
        self.ns = match self.sample_count {
            0 => sample_ns,
            count => {
                let step_ns = self.ns >> (count / 4 + 1).min(4);
                let towards = sample_ns.clamp(self.ns - step_ns, self.ns.saturating_add(step_ns));
                towards.max(1)
            }
        };
        self.sample_count = self.sample_count.saturating_add(1);
    }

    fn known_ns(self) -> Option<u64> {
        (self.sample_count >= SAMPLE_COUNT_MIN).then_some(self.ns.into())
    }
}

const CALL: usize = SLEEP_DEPTH_COUNT;
const OWN: usize = SLEEP_DEPTH_COUNT + 1;
const FIGURE_COUNT: usize = SLEEP_DEPTH_COUNT + 2;

/// What the process's waiters have learnt, for new waiters; 0 means nothing yet. Written rarely, and read
/// once by each waiter.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Prior {
    ns: [AtomicU32; FIGURE_COUNT],
}

pub(crate) static PRIOR: Prior = Prior::new();

impl Prior {
    pub(crate) const fn new() -> Self {
        Prior { ns: [const { AtomicU32::new(0) }; FIGURE_COUNT] }
    }

    fn known_ns(&self, figure: usize) -> Option<u64> {
        Some(self.ns[figure].load(Ordering::Relaxed).into()).filter(|&ns| ns > 0)
    }
}

/// What one waiter has learnt: exit latencies by depth, the waker's call, the sleeper's own CPU time.
#[derive(Clone, Debug)]
pub(crate) struct Learned {
    figures: [Estimate; FIGURE_COUNT],
    sleep_count: u32,
    prior: &'static Prior,
    /// The costs of whatever nobody has measured.
    assumed: SleepCost,
}

/// How often the CPU time of a sleep is measured and the process's figures are updated.
const ASK_EVERY: u32 = 64;

impl Learned {
    pub(crate) fn new(assumed: SleepCost, prior: &'static Prior) -> Self {
        let (figures, sleep_count) = Default::default();
        Learned { figures, sleep_count, prior, assumed }
    }

    /// Whether to measure the CPU time of the sleep that begins: the first few, and every 64th.
    pub(crate) fn wants_own_time(&self) -> bool {
        self.sleep_count < SAMPLE_COUNT_MIN || self.sleep_count % ASK_EVERY == 0
    }

    /// Notes how much CPU time a sleep took.
    pub(crate) fn note_own_time(&mut self, own_ns: u64) {
        self.figures[OWN].note(own_ns, &TIME_NS);
    }

    /// Notes a wake-up from sleep: the length of the gap, the exit latency, and how long the waker's last
    /// call took (0 if none has returned yet).
    pub(crate) fn note_wake(&mut self, gap_ns: u64, latency_ns: u64, call_ns: u64) {
        self.figures[sleep_depth(gap_ns)].note(latency_ns, &LATENCY_NS);
        if call_ns > 0 {
            self.figures[CALL].note(call_ns, &TIME_NS);
        }
    }

    /// Notes that a sleep ended, for whatever reason. If it returns `true`, read [`Learned::cost`] again.
    pub(crate) fn note_sleep(&mut self) -> bool {
        self.sleep_count = self.sleep_count.wrapping_add(1);
        if self.sleep_count == 16 || self.sleep_count % ASK_EVERY == 0 {
            for (figure, estimate) in self.figures.iter().enumerate() {
                if let Some(ns) = estimate.known_ns() {
                    let before = self.prior.known_ns(figure).unwrap_or(ns);
                    self.prior.ns[figure].store(((before + ns) / 2) as u32, Ordering::Relaxed);
                }
            }
        }
        self.sleep_count < 64 || self.sleep_count % 8 == 0
    }

    fn known_ns(&self, figure: usize) -> Option<u64> {
        self.figures[figure].known_ns().or_else(|| self.prior.known_ns(figure))
    }

    /// The cost of sleeping, as far as it is known.
    pub(crate) fn cost(&self) -> SleepCost {
        // A depth without samples takes the figure of the nearest shallower depth that has some, or else of
        // the nearest deeper one.
        let known: [_; SLEEP_DEPTH_COUNT] = std::array::from_fn(|depth| self.known_ns(depth));
        let nearest = |depth: usize| {
            let shallower = (0..=depth).rev().find_map(|depth| known[depth]);
            shallower.or_else(|| (depth..SLEEP_DEPTH_COUNT).find_map(|depth| known[depth]))
        };
        let exit_latency_ns = std::array::from_fn(|depth| {
            nearest(depth).unwrap_or(self.assumed.exit_latency_ns[depth])
        });
        let own_ns = self.known_ns(OWN).unwrap_or(self.assumed.own_ns);
        let call_ns = self
            .known_ns(CALL)
            .unwrap_or(self.assumed.transition_ns.saturating_sub(self.assumed.own_ns));
        SleepCost { exit_latency_ns, transition_ns: own_ns + call_ns, own_ns }
    }

    /// Whether this waiter or another one has measured a latency.
    pub(crate) fn is_measured(&self) -> bool {
        (0..SLEEP_DEPTH_COUNT).any(|depth| self.known_ns(depth).is_some())
    }
}

/// The calling thread's CPU time, where the OS can tell.
pub(crate) fn thread_cpu_ns() -> Option<u64> {
    #[cfg(unix)]
    if !cfg!(miri) {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes `time`.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        return (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSUMED: SleepCost =
        SleepCost { exit_latency_ns: [5_000; 4], transition_ns: 5_000, own_ns: 2_500 };

    #[test]
    fn is_near_the_median_whatever_the_tail() {
        let mut estimate = Estimate::default();
        let mut random = 1u64;
        for turn in 0..400 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // 50 to 70 µs; every tenth is a preemption.
            let sample_ns =
                if turn % 10 == 9 { 4_000_000 } else { 50_000 + (random >> 40) % 20_000 };
            estimate.note(sample_ns, &LATENCY_NS);
        }
        let ns = estimate.known_ns().unwrap();
        assert!((54_000..70_000).contains(&ns), "{ns}");
    }

    #[test]
    fn comes_from_far_in_a_few_dozen_samples() {
        for (from_ns, to_ns) in [(1_000, 90_000), (90_000, 1_000)] {
            let mut estimate = Estimate::default();
            (0..100).for_each(|_| estimate.note(from_ns, &LATENCY_NS));
            (0..100).for_each(|_| estimate.note(to_ns, &LATENCY_NS));
            assert_eq!(estimate.known_ns(), Some(to_ns));
        }
    }

    #[test]
    fn knows_nothing_at_first_and_then_each_depth() {
        static PRIOR: Prior = Prior::new();
        let mut learned = Learned::new(ASSUMED, &PRIOR);
        assert_eq!(learned.cost(), ASSUMED);
        assert!(!learned.is_measured());
        for _ in 0..SAMPLE_COUNT_MIN {
            learned.note_wake(50_000, 24_000, 3_000);
            learned.note_wake(5_000_000, 92_000, 3_000);
            learned.note_own_time(4_000);
        }
        let cost = learned.cost();
        assert_eq!(cost.exit_latency_ns, [24_000, 24_000, 24_000, 92_000]);
        assert_eq!((cost.transition_ns, cost.own_ns), (7_000, 4_000));
        assert_eq!(Learned::new(ASSUMED, &PRIOR).cost(), ASSUMED, "not told yet");
        (0..ASK_EVERY).for_each(|_| _ = learned.note_sleep());
        assert_eq!(Learned::new(ASSUMED, &PRIOR).cost(), cost, "where the next one begins");
    }
}
