//! Runs all contenders on one workload, interleaved: a short segment of each, then again, so that
//! changes of the machine affect all of them. Each round of segments has a new order, because what
//! a contender leaves behind (a governor's history, a host that still polls) is where the next one
//! starts.
//!
//! Each contender has one waiting thread, pinned to one CPU. The caller wakes them, pinned to
//! another CPU, and spins until each wake is due. The schedule is open-loop: it does not wait for
//! the waiter, and latency is counted from when a wake was due, not from when it was sent. A stall
//! therefore counts for every wake that it delayed (no coordinated omission).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use idlewise_probe::{allowed_cpus, elapsed_ns, pin, waiter_cpu, waker_cpu};

use crate::contenders::{Contender, Wait, Wake};
use crate::random::Random;
use crate::workload::Workload;

/// The load on the machine during the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// No load from us.
    Idle,
    /// One busy thread for each CPU: more runnable threads than CPUs.
    Oversubscribed,
    /// A busy thread on this CPU, the SMT sibling of the waiter's. Polling slows it down, and it
    /// slows polling down.
    BusySibling(usize),
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Wakes of each contender, summed over all segments.
    pub wake_count: usize,
    /// The seed of the schedule and of the orders.
    pub seed: u64,
    /// The load.
    pub load: Load,
}

/// The results of a contender on a workload.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The contender.
    pub name: &'static str,
    /// How long it spins, if that is fixed.
    pub fixed_spin_ns: Option<u64>,
    /// Times from when a wake was due to the waiter's next instruction, sorted.
    pub latencies_ns: Vec<u64>,
    /// The waker's cost of each wake, sorted.
    pub send_costs_ns: Vec<u64>,
    /// The waiter's CPU time as a share of elapsed time.
    pub cpu_ratio: f64,
    /// The waiter's context switches per wake.
    pub switches_per_wake: f64,
    /// Median cost of the wakes that found the waiter asleep: of the most expensive ones, as many
    /// as the waiter slept.
    pub sleeper_send_cost_ns: u64,
    /// The share of wakes that the waker sent more than `LATE_NS` late, because something else
    /// was using its CPU.
    pub late_ratio: f64,
}

/// A waker that is later than this was not running when the wake was due.
pub const LATE_NS: u64 = 10_000;

impl Figures {
    /// Returns the mean of the 99 % shortest latencies. A way to wait trades the sum of latencies
    /// for CPU time, but the longest ones are caused by other users of the machine.
    pub fn mean_latency_ns(&self) -> f64 {
        let count = (self.latencies_ns.len() * 99).div_ceil(100);
        let sum: u64 = self.latencies_ns.iter().take(count).sum();
        sum as f64 / count.max(1) as f64
    }

    /// Returns the value below which this share of `sorted` lies; 0 if it is empty.
    pub fn quantile(sorted: &[u64], share: f64) -> u64 {
        let rank = (sorted.len() as f64 * share) as usize;
        sorted.get(rank.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
    }
}

/// Wakes in a segment.
const SEGMENT_COUNT: usize = 100;
/// The time from a segment's beginning to its first gap, in which the waiter begins to wait.
const SETTLE_NS: u64 = 200_000;

/// An arbitrary constant with many bits set.
const ORDER_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

struct Shared {
    start: Instant,
    /// When the segment's schedule begins, relative to `start`.
    segment_at_ns: AtomicU64,
    /// The number of wakes sent, in all segments.
    sent: AtomicUsize,
    /// The number of wakes answered, and the waiter's counters when all were.
    answered: AtomicUsize,
    cpu_ns: AtomicU64,
    switches: AtomicU64,
    is_over: AtomicBool,
}

struct Lane {
    shared: Arc<Shared>,
    waker: Box<dyn Wake>,
    waiter: thread::JoinHandle<Vec<u64>>,
    send_costs_ns: Vec<u64>,
    wall_ns: u64,
    late_count: u64,
    /// The waiter's counters before its first segment.
    before: Option<(u64, u64)>,
    figures: Figures,
}

/// Measures contenders on one workload. `progress` receives the completed share.
///
/// The calling thread is pinned during the measurement. It needs at least two CPUs.
pub fn run(
    contenders: &[Contender],
    workload: &Workload,
    settings: Settings,
    progress: &dyn Fn(f64),
) -> Vec<Figures> {
    let segments = settings.wake_count.div_ceil(SEGMENT_COUNT).max(1);
    let schedule: Arc<Vec<u64>> =
        Arc::new(workload.due_ns(segments * SEGMENT_COUNT, settings.seed));
    let cpus = allowed_cpus();
    let (waker_cpu, waiter_cpu) = (waker_cpu(), waiter_cpu());
    let is_over = Arc::new(AtomicBool::new(false));
    let busy_cpus = match settings.load {
        Load::Idle => Vec::new(),
        Load::Oversubscribed => cpus.clone(),
        Load::BusySibling(cpu) => vec![cpu],
    };
    let hogs: Vec<_> = busy_cpus
        .into_iter()
        .map(|cpu| {
            let is_over = is_over.clone();
            thread::spawn(move || {
                pin(&[cpu]);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let mut lanes: Vec<_> = contenders
        .iter()
        .map(|contender| {
            let (waiter, waker) = (contender.pair)(contender.fixed_spin_ns);
            let shared = Arc::new(Shared {
                start: Instant::now(),
                segment_at_ns: AtomicU64::new(0),
                sent: AtomicUsize::new(0),
                answered: AtomicUsize::new(0),
                cpu_ns: AtomicU64::new(0),
                switches: AtomicU64::new(0),
                is_over: AtomicBool::new(false),
            });
            let figures = Figures {
                name: contender.name,
                fixed_spin_ns: contender.fixed_spin_ns,
                latencies_ns: Vec::new(),
                send_costs_ns: Vec::new(),
                cpu_ratio: 0.0,
                switches_per_wake: 0.0,
                sleeper_send_cost_ns: 0,
                late_ratio: 0.0,
            };
            let (theirs, times) = (shared.clone(), schedule.clone());
            let waiter = thread::spawn(move || {
                pin(&[waiter_cpu]);
                answer(waiter, &theirs, &times)
            });
            let send_costs_ns = Vec::with_capacity(schedule.len());
            Lane {
                shared,
                waker,
                waiter,
                send_costs_ns,
                wall_ns: 0,
                late_count: 0,
                before: None,
                figures,
            }
        })
        .collect();
    // The waiters are ready when each has answered a first wake, which is not measured.
    pin(&[waker_cpu]);
    for lane in &mut lanes {
        while lane.shared.answered.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
    }
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    // Different from the schedule's own numbers.
    let mut random = Random::new(settings.seed ^ ORDER_SEED);
    for segment in 0..segments {
        random.shuffle(&mut order);
        for &lane in &order {
            lanes[lane].send(segment, &schedule);
        }
        progress((segment + 1) as f64 / segments as f64);
    }
    is_over.store(true, Ordering::Relaxed);
    for hog in hogs {
        hog.join().expect("it only spins");
    }
    let figures = lanes.into_iter().map(Lane::finish).collect();
    pin(&cpus);
    figures
}

impl Lane {
    /// Sends a segment's wakes when they are due, then waits until all are answered.
    fn send(&mut self, segment: usize, schedule: &[u64]) {
        let shared = &self.shared;
        let counters =
            || (shared.cpu_ns.load(Ordering::Acquire), shared.switches.load(Ordering::Relaxed));
        self.before.get_or_insert_with(counters);
        let first = segment * SEGMENT_COUNT;
        let times = &schedule[first..first + SEGMENT_COUNT];
        let base_ns = if first == 0 { 0 } else { schedule[first - 1] };
        let begin_ns = elapsed_ns(shared.start);
        let at_ns = begin_ns + SETTLE_NS;
        // Modulo 2^64. The waiter adds the due time of a wake in the whole schedule.
        shared.segment_at_ns.store(at_ns.wrapping_sub(base_ns), Ordering::Relaxed);
        for (index, due_ns) in times.iter().enumerate() {
            let due_at_ns = at_ns + due_ns - base_ns;
            while elapsed_ns(shared.start) < due_at_ns {
                std::hint::spin_loop();
            }
            shared.sent.store(first + index + 1, Ordering::Release);
            let before_ns = elapsed_ns(shared.start);
            self.late_count += u64::from(before_ns > due_at_ns + LATE_NS);
            self.waker.wake();
            self.send_costs_ns.push(elapsed_ns(shared.start) - before_ns);
        }
        while shared.answered.load(Ordering::Acquire) < first + SEGMENT_COUNT + 1 {
            thread::yield_now();
        }
        self.wall_ns += elapsed_ns(shared.start) - begin_ns;
    }

    fn finish(self) -> Figures {
        let shared = &self.shared;
        let (cpu_ns, switches) =
            (shared.cpu_ns.load(Ordering::Acquire), shared.switches.load(Ordering::Relaxed));
        let (cpu_before_ns, switches_before) = self.before.unwrap_or_default();
        shared.is_over.store(true, Ordering::Release);
        self.waker.wake();
        let mut latencies_ns = self.waiter.join().expect("the waiter only waits");
        latencies_ns.sort_unstable();
        let mut send_costs_ns = self.send_costs_ns;
        send_costs_ns.sort_unstable();
        let wakes = send_costs_ns.len().max(1) as f64;
        let switches_per_wake = (switches - switches_before) as f64 / wakes;
        let sleeper_share = switches_per_wake.min(1.0);
        Figures {
            sleeper_send_cost_ns: Figures::quantile(&send_costs_ns, 1.0 - sleeper_share / 2.0),
            cpu_ratio: (cpu_ns - cpu_before_ns) as f64 / self.wall_ns.max(1) as f64,
            switches_per_wake,
            late_ratio: self.late_count as f64 / wakes,
            latencies_ns,
            send_costs_ns,
            ..self.figures
        }
    }
}

/// The waiter's thread. Records the latency of each wake since the last time.
fn answer(mut waiter: Box<dyn Wait>, shared: &Shared, schedule: &[u64]) -> Vec<u64> {
    waiter.begin();
    publish_counters(shared);
    shared.answered.store(1, Ordering::Release);
    let mut latencies_ns = Vec::with_capacity(schedule.len());
    loop {
        waiter.wait();
        let now_ns = elapsed_ns(shared.start);
        let sent = shared.sent.load(Ordering::Acquire);
        let at_ns = shared.segment_at_ns.load(Ordering::Relaxed);
        while latencies_ns.len() < sent {
            let due_at_ns = at_ns.wrapping_add(schedule[latencies_ns.len()]);
            latencies_ns.push(now_ns.saturating_sub(due_at_ns));
        }
        if sent.is_multiple_of(SEGMENT_COUNT) {
            publish_counters(shared);
        }
        shared.answered.store(sent + 1, Ordering::Release);
        if shared.is_over.load(Ordering::Acquire) {
            return latencies_ns;
        }
    }
}

/// The CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn publish_counters(shared: &Shared) {
    // SAFETY: writes to the given struct; an all-zero rusage is valid.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    shared.switches.store((usage.ru_nvcsw + usage.ru_nivcsw) as u64, Ordering::Relaxed);
    shared.cpu_ns.store(thread_cpu_ns(), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::contenders;

    #[test]
    fn measures_every_wake_of_every_contender() {
        let workload: Workload = "poisson:20".parse().unwrap();
        let settings = Settings { wake_count: 200, seed: 1, load: Load::Idle };
        let figures = run(&contenders(), &workload, settings, &|_| ());
        assert_eq!(figures.len(), contenders().len());
        for one in figures {
            assert_eq!(one.latencies_ns.len(), 200, "{}", one.name);
            assert_eq!(one.send_costs_ns.len(), 200, "{}", one.name);
            assert!(one.cpu_ratio > 0.0, "{}", one.name);
        }
    }

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let sorted = [1, 2, 3, 4];
        let quantiles = [0.0, 0.5, 0.99, 1.0].map(|share| Figures::quantile(&sorted, share));
        assert_eq!(quantiles, [1, 3, 4, 4]);
        assert_eq!(Figures::quantile(&[], 0.5), 0);
    }
}
