//! The clock that waits are measured with: the CPU's counter where it is steady, else the OS's.
//!
//! On x86 that is the time stamp counter if CPUID calls it invariant, its rate measured once against
//! `Instant`; on Arm the virtual counter, whose rate the CPU tells. Reading them takes a few
//! nanoseconds and no system call anywhere. All times are nanoseconds since the process's first
//! look at the clock.
//!
//! A counter may jump, ahead or back, when a machine was suspended or a virtual one moved, and its rate
//! is known to 30 ppm. So a [`Deadline`] is the OS's clock's, and the counter only says when to look there.

use std::sync::OnceLock;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
        // A counter that starts again below its origin goes on from somewhere: a jump like others.
        let since = ticks.wrapping_sub(self.origin_ticks);
        ((u128::from(since) * u128::from(self.ns_per_tick)) >> 32) as u64
    }

    fn ticks_at(self, at_ns: u64) -> u64 {
        let since = (u128::from(at_ns) << 32) / u128::from(self.ns_per_tick);
        u64::try_from(since).map_or(u64::MAX, |since| self.origin_ticks.wrapping_add(since))
    }
}

/// How long the counter's rate is measured: two readings of 30 ns make an error of 30 ppm.
#[cfg(target_arch = "x86_64")]
const RATE_MEASUREMENT: Duration = Duration::from_millis(2);

/// Both clocks at one moment, as far as can be: of a few readings the one that took least, because a
/// thread that loses its CPU between the two would have a wrong rate for good.
#[cfg(target_arch = "x86_64")]
fn both_clocks() -> (Instant, u64) {
    let reading = |_| {
        let (before, ticks) = (Instant::now(), ticks());
        (before.elapsed(), before, ticks)
    };
    let (_, instant, ticks) = (0..8).map(reading).min().expect("there are eight");
    (instant, ticks)
}

fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(|| Clock { origin: Instant::now(), counter: counter() })
}

/// Whether the time stamp counter is used even if CPUID does not call it invariant.
#[cfg(target_arch = "x86_64")]
static IS_COUNTER_TRUSTED: AtomicBool = AtomicBool::new(false);

/// Makes the time stamp counter the clock, whatever CPUID says of it, if nothing has looked at the clock
/// yet: for tests of instructions whose deadlines are its readings.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub fn trust_counter() {
    IS_COUNTER_TRUSTED.store(true, Ordering::Relaxed);
}

#[cfg(target_arch = "x86_64")]
fn counter() -> Option<Counter> {
    if cfg!(miri) {
        return None;
    }
    let power = raw_cpuid::CpuId::new().get_advanced_power_mgmt_info();
    let is_invariant = power.is_some_and(|power| power.has_invariant_tsc());
    if !is_invariant && !IS_COUNTER_TRUSTED.load(Ordering::Relaxed) {
        return None;
    }
    let (start, origin_ticks) = both_clocks();
    while start.elapsed() < RATE_MEASUREMENT {
        std::hint::spin_loop();
    }
    let (end, end_ticks) = both_clocks();
    let elapsed = end.duration_since(start);
    let tick_count = u128::from(end_ticks.checked_sub(origin_ticks)?);
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

/// When a wait is to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    instant: Instant,
    /// The same by our clock, as far as that can be trusted.
    pub(crate) at_ns: u64,
}

impl Deadline {
    pub(crate) fn at(instant: Instant) -> Self {
        let mut deadline = Deadline { instant, at_ns: 0 };
        deadline.is_reached();
        deadline
    }

    /// `None` if no clock ever gets there.
    pub(crate) fn after(timeout: Duration) -> Option<Self> {
        let now = Instant::now();
        let instant = now.checked_add(timeout)?;
        let at_ns = now_ns().checked_add(u64::try_from(timeout.as_nanos()).ok()?)?;
        Some(Deadline { instant, at_ns })
    }

    /// Whether it is reached by the OS's clock. If not, our clock jumped, or is a little fast, and
    /// `at_ns` is set right.
    pub(crate) fn is_reached(&mut self) -> bool {
        // In this order a pause between the two makes a wait longer, not shorter.
        let left = self.instant.saturating_duration_since(Instant::now());
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        self.at_ns = now_ns().saturating_add(left_ns);
        left.is_zero()
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
        let below_origin_ns = counter.at_ns(0);
        assert!(counter.at_ns(500_000) > below_origin_ns, "it goes on");
        assert_eq!(counter.ticks_at(counter.at_ns(500_000)), 500_000, "there and back");
        assert!(counter.at_ns(u64::MAX) > 1 << 62, "ahead");
        assert_eq!(counter.ticks_at(u64::MAX), u64::MAX, "never");
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
    }

    #[test]
    fn deadlines_are_the_os_clocks() {
        let now_ns = now_ns();
        assert!(Deadline::at(Instant::now()).is_reached());
        assert!(Deadline::after(Duration::MAX).is_none(), "beyond all clocks");
        let mut far = Deadline::after(Duration::from_secs(3600)).unwrap();
        assert!(far.at_ns >= now_ns + 3_600_000_000_000);
        // Our clock jumped there.
        far.at_ns = 0;
        assert!(!far.is_reached());
        assert!(far.at_ns >= now_ns + 3_500_000_000_000, "set right");
    }
}
