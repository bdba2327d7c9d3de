//! What waiting costs here: measured once, with a helper thread, in at most 20 ms.
//!
//! For each state that is not polling, a helper waits in it and the caller wakes it, a few dozen
//! times: from the caller's store to the helper's next instruction is the exit latency (less that
//! of polling, which is the cache line's way); the sleeper's CPU time and the waker's time in the
//! call are the transition. Medians, so that a few preemptions don't matter. The helper stays off the
//! caller's CPU: woken there it would take that over at once, at a thirtieth of the cost. A process that
//! may run on one CPU only measures nothing: nobody could wake whom it waits with.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use idlewise_core::{Doorbell, Ring};

use crate::clock;
use crate::load::cpu_count;
use crate::table::{Basis, WaitState};
use crate::wait::Method;

/// All of it, thread included.
const TIME_LIMIT_NS: u64 = 20_000_000;
/// Below this, a median says nothing.
const SAMPLE_COUNT_MIN: usize = 9;
const SAMPLE_COUNT: usize = 40;
/// How long the helper gets to go to sleep before it is woken: longer than an entry takes.
const SETTLE_NS: u64 = 20_000;

struct Bench {
    bell: Doorbell,
    rung_at_ns: AtomicU64,
    /// How many wake-ups the helper has seen.
    seen: AtomicU32,
    stop: AtomicU32,
    /// Where the helper was woken from, when it began.
    ringer_cpu: Option<usize>,
}

#[derive(Clone, Copy)]
struct Sample {
    wake_latency_ns: u64,
    ring_ns: u64,
    sleeper_ns: u64,
    cpu: Option<usize>,
}

/// Replaces assumed times by measured ones, where that works; says where not.
pub(crate) fn calibrate(states: &mut [WaitState], doubts: &mut Vec<String>) {
    let start_ns = clock::now_ns();
    if cpu_count() < 2 {
        doubts.push("costs are assumed: one CPU cannot measure its own wake-ups".to_owned());
        return;
    }
    let share_ns = (TIME_LIMIT_NS - 2_000_000) / states.len() as u64;
    let mut polling_latency_ns = None;
    for (index, state) in states.iter_mut().enumerate() {
        let until_ns = start_ns + share_ns * (index as u64 + 1);
        let samples = measure(state.method, until_ns);
        if samples.len() < SAMPLE_COUNT_MIN {
            doubts.push(format!(
                "{}: costs are assumed: {} wake-ups in {} ms are too few to measure",
                state.method.name(),
                samples.len(),
                share_ns / 1_000_000
            ));
            continue;
        }
        let wake_latency_ns = median(&samples, |sample| sample.wake_latency_ns);
        state.basis = Basis::Calibrated;
        if state.method == Method::Spin {
            polling_latency_ns = Some(wake_latency_ns);
            continue;
        }
        // A neighbour's noise must not make a process poll for milliseconds.
        state.exit_latency_ns =
            wake_latency_ns.saturating_sub(polling_latency_ns.unwrap_or(0)).clamp(50, 100_000);
        if state.method.is_sleep() {
            let ring_ns = median(&samples, |sample| sample.ring_ns);
            let sleeper_ns = median(&samples, |sample| sample.sleeper_ns);
            state.transition_ns = (ring_ns + sleeper_ns).clamp(500, 100_000);
        }
    }
}

fn median(samples: &[Sample], figure: impl Fn(&Sample) -> u64) -> u64 {
    let mut figures: Vec<_> = samples.iter().map(figure).collect();
    figures.sort_unstable();
    figures[figures.len() / 2]
}

/// Wakes a helper that waits by `method`, until there are enough samples or time is up.
fn measure(method: Method, until_ns: u64) -> Vec<Sample> {
    let bench = Bench {
        bell: Doorbell::new(),
        rung_at_ns: AtomicU64::new(0),
        seen: AtomicU32::new(0),
        stop: AtomicU32::new(0),
        ringer_cpu: this_cpu(),
    };
    let mut rings = Vec::with_capacity(SAMPLE_COUNT);
    let mut samples = thread::scope(|scope| {
        let Ok(helper) = thread::Builder::new()
            .name("idlewise-park".to_owned())
            .spawn_scoped(scope, || help(&bench, method))
        else {
            return Vec::new();
        };
        while rings.len() < SAMPLE_COUNT && clock::now_ns() < until_ns {
            let settled_ns = clock::now_ns() + SETTLE_NS;
            while clock::now_ns() < settled_ns {
                std::hint::spin_loop();
            }
            let expected = bench.seen.load(Ordering::Acquire) + 1;
            let rung_at_ns = clock::now_ns();
            bench.rung_at_ns.store(rung_at_ns, Ordering::Relaxed);
            ring(&bench.bell, method);
            rings.push((clock::now_ns() - rung_at_ns, this_cpu()));
            while bench.seen.load(Ordering::Acquire) < expected {
                if clock::now_ns() > until_ns {
                    break;
                }
                std::hint::spin_loop();
            }
        }
        bench.stop.store(1, Ordering::Release);
        while !helper.is_finished() {
            ring(&bench.bell, method);
            thread::yield_now();
        }
        helper.join().unwrap_or_default()
    });
    samples.truncate(rings.len());
    let mut rings = rings.into_iter();
    // A sleeper that runs on its waker's CPU takes it from the waker, at once: no wake-up of a CPU.
    samples.retain_mut(|sample| {
        let (ring_ns, ringer_cpu) = rings.next().expect("a ring for each sample");
        sample.ring_ns = ring_ns;
        ringer_cpu.is_none() || sample.cpu != ringer_cpu
    });
    samples
}

/// The CPU that the calling thread runs on, where the OS tells.
fn this_cpu() -> Option<usize> {
    #[cfg(target_os = "linux")]
    if !cfg!(miri) {
        // SAFETY: no arguments.
        return usize::try_from(unsafe { libc::sched_getcpu() }).ok();
    }
    None
}

/// Keeps the calling thread off a CPU if it may use others.
fn keep_off(cpu: Option<usize>) {
    #[cfg(target_os = "linux")]
    if let Some(cpu) = cpu {
        // SAFETY: an all-zero set is an empty one; the kernel writes and reads no more than its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of_val(&set), &mut set) == 0
                && cpu < 8 * size_of_val(&set)
            {
                libc::CPU_CLR(cpu, &mut set);
                // Refused if none is left: the samples then tell.
                libc::sched_setaffinity(0, size_of_val(&set), &set);
            }
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = cpu;
}

fn ring(bell: &Doorbell, method: Method) {
    if bell.ring() == Ring::MustWake {
        method.imp().wake(bell);
    }
}

fn help(bench: &Bench, method: Method) -> Vec<Sample> {
    keep_off(bench.ringer_cpu);
    let bell = &bench.bell;
    let mut samples = Vec::with_capacity(SAMPLE_COUNT);
    let mut cpu_ns = thread_cpu_ns();
    while bench.stop.load(Ordering::Acquire) == 0 {
        if bell.start_polling() && (!method.is_sleep() || bell.fall_asleep()) {
            while !bell.is_rung() {
                let until_ns = clock::now_ns() + 1_000_000;
                method.imp().wait(bell, (!method.is_sleep()).then_some(until_ns));
            }
        }
        let now_ns = clock::now_ns();
        bell.take();
        let before_ns = std::mem::replace(&mut cpu_ns, thread_cpu_ns());
        if samples.len() < SAMPLE_COUNT {
            samples.push(Sample {
                wake_latency_ns: now_ns.saturating_sub(bench.rung_at_ns.load(Ordering::Relaxed)),
                ring_ns: 0,
                sleeper_ns: cpu_ns - before_ns,
                cpu: this_cpu(),
            });
        }
        bench.seen.fetch_add(1, Ordering::Release);
    }
    samples
}

/// CPU time of the calling thread; 0 where it cannot be asked.
fn thread_cpu_ns() -> u64 {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes `time`.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
    #[cfg(not(unix))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WaitTable;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_helper_stays_off_its_callers_cpu() {
        let moved = thread::spawn(|| {
            let Some(cpu) = this_cpu() else { return true };
            keep_off(Some(cpu));
            cpu_count() < 2 || this_cpu() != Some(cpu)
        });
        assert!(moved.join().unwrap());
        keep_off(Some(usize::MAX));
    }

    #[test]
    fn measures_or_says_why_not() {
        let mut states = WaitTable::assumed("spin,condvar").unwrap().states().to_vec();
        let mut doubts = Vec::new();
        calibrate(&mut states, &mut doubts);
        let calibrated = states.iter().filter(|state| state.basis == Basis::Calibrated).count();
        assert!(calibrated == states.len() || !doubts.is_empty(), "{states:?}");
        if states[1].basis == Basis::Calibrated {
            let (latency_ns, transition_ns) = (states[1].exit_latency_ns, states[1].transition_ns);
            assert!((50..=100_000).contains(&latency_ns), "{latency_ns}");
            assert!((500..=100_000).contains(&transition_ns), "{transition_ns}");
        }
    }
}
