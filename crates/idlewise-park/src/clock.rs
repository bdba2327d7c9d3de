//! The clock that waits are measured with: the CPU's counter where it is steady, else the OS's.
//!
//! On x86 that is the time stamp counter if CPUID calls it invariant, its rate measured once against
//! `Instant`; on Arm the virtual counter, whose rate the CPU tells. Reading them takes a few
//! nanoseconds and no system call anywhere. All times are nanoseconds since the process's first
//! look at the clock.

use std::sync::OnceLock;
#[cfg(target_arch = "x86_64")]
use std::time::Duration;
use std::time::Instant;

#[derive(Clone, Copy, Debug)]
struct Clock {
    origin: Instant,
    counter: Option<Counter>,
}

/// A CPU's counter: `origin` is where our time begins, `ns_per_tick` has 32 binary places.
#[derive(Clone, Copy, Debug)]
struct Counter {
    origin_ticks: u64,
    ns_per_tick: u64,
}

impl Counter {
    fn at_ns(self, ticks: u64) -> u64 {
        // A counter that went back (another CPU's, a suspended machine's) reads as no time at all.
        let since = ticks.saturating_sub(self.origin_ticks);
        ((u128::from(since) * u128::from(self.ns_per_tick)) >> 32) as u64
    }

    fn ticks_at(self, at_ns: u64) -> u64 {
        let since = (u128::from(at_ns) << 32) / u128::from(self.ns_per_tick);
        self.origin_ticks.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

/// How long the counter's rate is measured: two readings of 30 ns make an error of 30 ppm.
#[cfg(target_arch = "x86_64")]
const RATE_MEASUREMENT: Duration = Duration::from_millis(2);

fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(|| Clock { origin: Instant::now(), counter: counter() })
}

#[cfg(target_arch = "x86_64")]
fn counter() -> Option<Counter> {
    if cfg!(miri) {
        return None;
    }
    let power = raw_cpuid::CpuId::new().get_advanced_power_mgmt_info();
    if !power.is_some_and(|power| power.has_invariant_tsc()) {
        return None;
    }
    let (start, origin_ticks) = (Instant::now(), ticks());
    while start.elapsed() < RATE_MEASUREMENT {
        std::hint::spin_loop();
    }
    let (elapsed, now) = (start.elapsed(), ticks());
    let tick_count = u128::from(now.checked_sub(origin_ticks)?);
    let ns_per_tick = u64::try_from((elapsed.as_nanos() << 32).checked_div(tick_count)?).ok()?;
    Some(Counter { origin_ticks, ns_per_tick }).filter(|counter| counter.ns_per_tick > 0)
}

#[cfg(target_arch = "aarch64")]
fn counter() -> Option<Counter> {
    if cfg!(miri) {
        return None;
    }
    let hz: u64;
    // SAFETY: user space may read the counter's frequency.
    unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack)) };
    let ns_per_tick = (1_000_000_000u64 << 32 >> 2).checked_div(hz)? << 2;
    Some(Counter { origin_ticks: ticks(), ns_per_tick }).filter(|counter| counter.ns_per_tick > 0)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> Option<Counter> {
    None
}

/// The CPU's counter, in ticks of its own.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: user space may read it, but where the OS forbids that the process dies: none does by
    // default.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: user space may read the virtual counter.
        unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

/// Now.
#[inline]
pub fn now_ns() -> u64 {
    let clock = clock();
    match clock.counter {
        Some(counter) => counter.at_ns(ticks()),
        None => clock.origin.elapsed().as_nanos() as u64,
    }
}

/// The time of an `Instant`; 0 for one before our time.
pub(crate) fn at_ns(instant: Instant) -> u64 {
    let now_ns = now_ns();
    let now = Instant::now();
    match instant.checked_duration_since(now) {
        Some(left) => now_ns.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)),
        None => 0,
    }
}

/// The counter's reading at a time; only where [`is_tsc`] or on Arm.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn ticks_at(at_ns: u64) -> u64 {
    clock().counter.map_or(u64::MAX, |counter| counter.ticks_at(at_ns))
}

/// Whether time is the CPU's counter.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_tsc() -> bool {
    clock().counter.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_there_and_back() {
        let counter = Counter { origin_ticks: 1_000_000, ns_per_tick: (1 << 32) / 3 };
        for at_ns in [0, 1, 999, 1_000_000_007, 86_400_000_000_000] {
            let back_ns = counter.at_ns(counter.ticks_at(at_ns));
            assert!(at_ns.abs_diff(back_ns) <= 1, "{at_ns} {back_ns}");
        }
    }

    #[test]
    fn survives_counters_that_jump() {
        let counter = Counter { origin_ticks: 1_000_000, ns_per_tick: 1 << 31 };
        assert_eq!(counter.at_ns(999_999), 0, "back");
        assert!(counter.at_ns(u64::MAX) > 1 << 62, "ahead");
        assert_eq!(counter.ticks_at(u64::MAX), u64::MAX);
    }

    /// Readings of the OS's clock outside and inside ours, so that no pause between them matters.
    #[test]
    fn is_the_os_clock_in_other_units() {
        let before = Instant::now();
        let start_ns = now_ns();
        let after_start = Instant::now();
        while after_start.elapsed().as_micros() < 1000 {}
        let least_ns = after_start.elapsed().as_nanos() as u64 * 9 / 10;
        let elapsed_ns = now_ns() - start_ns;
        let most_ns = before.elapsed().as_nanos() as u64 * 11 / 10;
        assert!((least_ns..=most_ns).contains(&elapsed_ns), "{least_ns} {elapsed_ns} {most_ns}");
        assert_eq!(at_ns(before), 0, "a deadline in the past");
    }
}
