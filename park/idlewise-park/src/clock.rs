//! The clock that measures waits: the CPU's counter if the kernel keeps time by it, else the OS's clock.
//!
//! On x86 the time stamp counter is used if CPUID calls it invariant *and* the kernel trusts it. The kernel
//! trusts it if it is the clock source, or if the host tells a KVM guest that the guest's clock is stable,
//! which rests on the counter. A kernel that has seen the counter drift or jump uses another source, and so
//! does this module. Nothing waits for the counter's rate: for the first few milliseconds the OS's clock
//! serves, and both are read now and then. When two spans in a row agree on a rate, the counter takes over.
//! On Arm it is the virtual counter, whose rate the CPU reports. A reading takes a few nanoseconds and
//! never a system call. All times are in nanoseconds; the process's first reading is [`START_NS`].
//!
//! A counter may jump ahead or back when a machine was suspended or a virtual one was moved, and its rate
//! is known to 30 ppm only. So a [`Deadline`] is kept by the OS's clock; the counter only says when to look
//! at it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The clock's value at the process's first reading. It is as far from 0 as from `i64::MAX`, so that no
/// counter that restarts or jumps reaches either.
const START_NS: u64 = 1 << 62;

/// A CPU's counter. At `origin_ticks` our time is `origin_ns`; `ns_per_tick` has 32 fractional bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    origin_ticks: u64,
    origin_ns: u64,
    ns_per_tick: u64,
}

impl Counter {
    fn at_ns(self, ticks: u64) -> u64 {
        // Signed, because a counter that restarted, or another CPU's, may be below the origin.
        let since = ticks.wrapping_sub(self.origin_ticks) as i64;
        let since_ns = (i128::from(since) * i128::from(self.ns_per_tick)) >> 32;
        self.origin_ns.wrapping_add(since_ns as u64)
    }

    fn ticks_at(self, at_ns: u64) -> u64 {
        if at_ns == u64::MAX {
            return u64::MAX;
        }
        let since_ns = i128::from(at_ns) - i128::from(self.origin_ns);
        let ticks = i128::from(self.origin_ticks) + (since_ns << 32) / i128::from(self.ns_per_tick);
        u64::try_from(ticks.max(0)).unwrap_or(u64::MAX)
    }
}

/// Both clocks at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reading {
    at_ns: u64,
    ticks: u64,
}

/// The minimum length of a span that the rate is taken from. Two readings of 30 ns each give an error of 30
/// ppm.
#[cfg(any(test, target_arch = "x86_64"))]
const SPAN_NS: u64 = 2_000_000;

/// Finds the counter's rate from occasional readings.
#[cfg(any(test, target_arch = "x86_64"))]
#[derive(Debug, Default)]
struct Calibration {
    last: Option<Reading>,
    ns_per_tick: Option<u64>,
}

#[cfg(any(test, target_arch = "x86_64"))]
impl Calibration {
    /// Returns the counter if this reading ends the second of two spans that agree. If a clock was stopped
    /// or set during a span, or its readings were interrupted, the span agrees with no other.
    fn read(&mut self, now: Reading) -> Option<Counter> {
        let Some(last) = self.last else {
            self.last = Some(now);
            return None;
        };
        let elapsed_ns = now.at_ns.saturating_sub(last.at_ns);
        if elapsed_ns < SPAN_NS {
            return None;
        }
        let ticks = u128::from(now.ticks.wrapping_sub(last.ticks));
        let rate = (u128::from(elapsed_ns) << 32).checked_div(ticks);
        let rate = rate.and_then(|rate| u64::try_from(rate).ok()).filter(|&rate| rate > 0);
        let before = std::mem::replace(&mut self.ns_per_tick, rate);
        self.last = Some(now);
        let (before, rate) = (before?, rate?);
        // Agreement to a thousandth is enough: each span is accurate to 30 ppm.
        let does_agree = before.abs_diff(rate) <= rate / 1_000;
        does_agree.then_some(Counter {
            origin_ticks: now.ticks,
            origin_ns: now.at_ns,
            ns_per_tick: rate,
        })
    }
}

/// The counter in use. `ns_per_tick` is written last and read first; 0 means none yet.
struct InUse {
    origin_ticks: AtomicU64,
    origin_ns: AtomicU64,
    ns_per_tick: AtomicU64,
}

static COUNTER: InUse = InUse {
    origin_ticks: AtomicU64::new(0),
    origin_ns: AtomicU64::new(0),
    ns_per_tick: AtomicU64::new(0),
};

impl InUse {
    #[inline]
    fn get(&self) -> Option<Counter> {
        // Acquire: pairs with the Release of `set`.
        let ns_per_tick = self.ns_per_tick.load(Ordering::Acquire);
        (ns_per_tick != 0).then(|| Counter {
            origin_ticks: self.origin_ticks.load(Ordering::Relaxed),
            origin_ns: self.origin_ns.load(Ordering::Relaxed),
            ns_per_tick,
        })
    }

    /// Called once per process, so readers can treat the three words as one.
    fn set(&self, counter: Counter) {
        self.origin_ticks.store(counter.origin_ticks, Ordering::Relaxed);
        self.origin_ns.store(counter.origin_ns, Ordering::Relaxed);
        self.ns_per_tick.store(counter.ns_per_tick, Ordering::Release);
    }
}

/// The OS's clock.
fn os_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    START_NS + ORIGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Both clocks, as close together as possible: the quickest of a few readings. A thread that lost its CPU
/// between the two would get a wrong rate.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn both_clocks() -> Reading {
    let reading = |_| {
        let (at_ns, ticks) = (os_ns(), ticks());
        (os_ns() - at_ns, Reading { at_ns, ticks })
    };
    (0..4).map(reading).min().expect("there are four").1
}

/// Before the counter is in use: reads the OS's clock, and now and then both for the counter's rate.
#[cold]
fn now_without_counter_ns() -> u64 {
    let now_ns = os_ns();
    #[cfg(target_arch = "x86_64")]
    calibrate(now_ns);
    #[cfg(target_arch = "aarch64")]
    if let Some(counter) = arm_counter() {
        COUNTER.set(counter);
    }
    now_ns
}

#[cfg(target_arch = "x86_64")]
use tsc::{calibrate, is_trusted};

#[cfg(target_arch = "x86_64")]
mod tsc {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Mutex, OnceLock};

    use super::*;

    /// Whether the time stamp counter is used whatever CPUID and the kernel say about it.
    static IS_TRUSTED_ANYWAY: AtomicBool = AtomicBool::new(false);
    /// No reading is due before this time.
    static NEXT_READING_NS: AtomicU64 = AtomicU64::new(0);
    static CALIBRATION: Mutex<Calibration> =
        Mutex::new(Calibration { last: None, ns_per_tick: None });

    /// Makes the time stamp counter the clock at once, whatever CPUID and the kernel say about it. For
    /// tests of instructions whose deadlines are counter readings. Takes a few milliseconds.
    #[doc(hidden)]
    pub fn trust_counter() {
        IS_TRUSTED_ANYWAY.store(true, Ordering::Relaxed);
        NEXT_READING_NS.store(0, Ordering::Relaxed);
        while COUNTER.get().is_none() {
            now_ns();
        }
    }

    /// Whether the counter is the clock, or soon will be.
    pub(crate) fn is_trusted() -> bool {
        static IS_TRUSTED: OnceLock<bool> = OnceLock::new();
        IS_TRUSTED_ANYWAY.load(Ordering::Relaxed)
            || *IS_TRUSTED.get_or_init(|| !cfg!(miri) && is_invariant() && does_kernel_trust_it())
    }

    fn is_invariant() -> bool {
        let power = raw_cpuid::CpuId::new().get_advanced_power_mgmt_info();
        power.is_some_and(|power| power.has_invariant_tsc())
    }

    #[cfg(target_os = "linux")]
    fn does_kernel_trust_it() -> bool {
        let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let source = std::fs::read_to_string(path).unwrap_or_default();
        is_source_trusted(source.trim(), kvm_features())
    }

    /// Other systems do not say.
    #[cfg(not(target_os = "linux"))]
    fn does_kernel_trust_it() -> bool {
        false
    }

    /// KVM's clock is based on the counter too, unless the host says that it may drift between CPUs.
    #[cfg(target_os = "linux")]
    pub(super) fn is_source_trusted(source: &str, kvm_features: Option<u32>) -> bool {
        const CLOCK_IS_STABLE: u32 = 1 << 24;
        match source {
            "tsc" => true,
            "kvm-clock" => kvm_features.is_some_and(|bits| bits & CLOCK_IS_STABLE != 0),
            _ => false,
        }
    }

    /// EAX of the KVM features leaf, in a KVM guest.
    #[cfg(target_os = "linux")]
    fn kvm_features() -> Option<u32> {
        let leaf = raw_cpuid::cpuid!(0x4000_0000);
        let is_kvm = [leaf.ebx, leaf.ecx, leaf.edx]
            == [*b"KVMK", *b"VMKV", *b"M\0\0\0"].map(u32::from_le_bytes);
        is_kvm.then(|| raw_cpuid::cpuid!(0x4000_0001).eax)
    }

    /// Takes a reading if one is due. Never blocks.
    pub(super) fn calibrate(now_ns: u64) {
        if now_ns < NEXT_READING_NS.load(Ordering::Relaxed) {
            return;
        }
        if !is_trusted() {
            NEXT_READING_NS.store(u64::MAX, Ordering::Relaxed);
            return;
        }
        let Ok(mut calibration) = CALIBRATION.try_lock() else { return };
        if COUNTER.get().is_none() {
            if let Some(counter) = calibration.read(both_clocks()) {
                COUNTER.set(counter);
            }
        }
        NEXT_READING_NS.store(now_ns + SPAN_NS, Ordering::Relaxed);
    }
}

#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub use tsc::trust_counter;

#[cfg(target_arch = "aarch64")]
fn arm_counter() -> Option<Counter> {
    if cfg!(miri) {
        return None;
    }
    static ARM: OnceLock<Option<Counter>> = OnceLock::new();
    *ARM.get_or_init(|| {
        let hz: u64;
        // SAFETY: user space may read the counter's frequency.
        unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack)) };
        let ns_per_tick = (1_000_000_000u64 << 32 >> 2).checked_div(hz)? << 2;
        let Reading { at_ns, ticks } = both_clocks();
        Some(Counter { origin_ticks: ticks, origin_ns: at_ns, ns_per_tick })
            .filter(|counter| counter.ns_per_tick > 0)
    })
}

/// The CPU's counter, in ticks of its own.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: user space may read it unless the OS forbids that, in which case the process dies. No OS
    // forbids it by default.
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
}

/// Returns the current time.
#[inline]
pub fn now_ns() -> u64 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if let Some(counter) = COUNTER.get() {
        return counter.at_ns(ticks());
    }
    now_without_counter_ns()
}

/// The OS's time when our clock will read `at_ns`; `None` if it never will. Only right as long as our clock
/// does not jump.
pub(crate) fn instant_at(at_ns: u64) -> Option<Instant> {
    let left = Duration::from_nanos(at_ns.saturating_sub(now_ns()));
    Instant::now().checked_add(left)
}

/// When a wait should end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    instant: Instant,
    /// The same by our clock, as far as our clock can be trusted.
    pub(crate) at_ns: u64,
}

impl Deadline {
    pub(crate) fn at(instant: Instant) -> Self {
        let mut deadline = Deadline { instant, at_ns: 0 };
        deadline.is_reached();
        deadline
    }

    /// For test worlds without the OS's clock.
    #[cfg(all(test, not(miri)))]
    pub(crate) fn by_our_clock(at_ns: u64) -> Self {
        Deadline { instant: Instant::now(), at_ns }
    }

    /// `None` if no clock ever gets that far.
    pub(crate) fn after(timeout: Duration) -> Option<Self> {
        let now = Instant::now();
        let instant = now.checked_add(timeout)?;
        let at_ns = now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        Some(Deadline { instant, at_ns })
    }

    /// The deadline by the OS's clock.
    pub(crate) fn instant(&self) -> Instant {
        self.instant
    }

    /// Whether the OS's clock has reached the deadline. If not, our clock jumped or is a little fast, and
    /// `at_ns` is corrected.
    pub(crate) fn is_reached(&mut self) -> bool {
        // In this order a pause between the two readings makes a wait longer, not shorter.
        let left = self.instant.saturating_duration_since(Instant::now());
        let left_ns = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        self.at_ns = now_ns().saturating_add(left_ns);
        left.is_zero()
    }
}

/// The counter's reading at a given time. Until its rate is known, one tick per nanosecond is assumed,
/// which is slower than any. The wait then ends early, and its caller looks and waits again.
#[cfg(target_arch = "x86_64")]
pub(crate) fn ticks_at(at_ns: u64) -> u64 {
    match COUNTER.get() {
        Some(counter) => counter.ticks_at(at_ns),
        None => ticks().saturating_add(at_ns.saturating_sub(now_ns())),
    }
}

/// The counter's reading at a given time.
#[cfg(target_arch = "aarch64")]
pub(crate) fn ticks_at(at_ns: u64) -> u64 {
    COUNTER.get().or_else(arm_counter).map_or(u64::MAX, |counter| counter.ticks_at(at_ns))
}

/// Whether the clock is the CPU's counter, now or as soon as its rate is known.
#[cfg(target_arch = "x86_64")]
pub(crate) fn is_tsc() -> bool {
    is_trusted()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_there_and_back() {
        let counter =
            Counter { origin_ticks: 1_000_000, origin_ns: 5_000, ns_per_tick: (1 << 32) / 3 };
        for at_ns in [5_000, 5_001, 5_999, 1_000_000_007, 86_400_000_000_000] {
            let back_ns = counter.at_ns(counter.ticks_at(at_ns));
            assert!(at_ns.abs_diff(back_ns) <= 1, "{at_ns} {back_ns}");
        }
    }

    #[test]
    fn survives_counters_that_jump() {
        // Two ticks per nanosecond, for years.
        let origin_ticks = 1 << 57;
        let counter = Counter { origin_ticks, origin_ns: START_NS, ns_per_tick: 1 << 31 };
        for ticks in [0, 500_000, origin_ticks - 1_000, origin_ticks + 1_000, 1 << 60] {
            let at_ns = counter.at_ns(ticks);
            assert_eq!(counter.at_ns(ticks + 20_000), at_ns + 10_000, "{ticks}: it goes on");
            assert_eq!(counter.ticks_at(at_ns), ticks, "there and back");
            assert_eq!(at_ns > START_NS, ticks > origin_ticks, "{ticks}: in order");
        }
        assert_eq!(counter.ticks_at(0), 0, "long ago");
        assert_eq!(counter.ticks_at(u64::MAX), u64::MAX, "never");
    }

    #[test]
    fn a_rate_is_believed_when_it_is_found_twice() {
        let span =
            |at_ns: u64, ticks: u64| Reading { at_ns: at_ns * SPAN_NS, ticks: ticks * SPAN_NS };
        let mut calibration = Calibration::default();
        // Three ticks per nanosecond; one span is preempted and in one the counter stops.
        for reading in [span(1, 3), span(2, 6), span(3, 10), span(4, 13), span(9, 16)] {
            assert_eq!(calibration.read(reading), None, "{reading:?}");
        }
        assert_eq!(
            calibration.read(Reading { at_ns: 9 * SPAN_NS + 1, ticks: 0 }),
            None,
            "too soon"
        );
        assert_eq!(calibration.read(span(10, 19)), None);
        let counter = calibration.read(span(12, 25)).expect("twice the same");
        assert_eq!(counter.at_ns(26 * SPAN_NS) / 1_000, (12 * SPAN_NS + SPAN_NS / 3) / 1_000);
        assert_eq!(calibration.read(span(13, 25)), None, "a counter that stands still");
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    fn trusts_the_counter_where_the_kernel_does() {
        use tsc::is_source_trusted;
        assert!(is_source_trusted("tsc", None));
        assert!(is_source_trusted("kvm-clock", Some(1 << 24)));
        assert!(!is_source_trusted("kvm-clock", Some(0)));
        for source in ["kvm-clock", "hpet", "acpi_pm", "hyperv_clocksource_tsc_page", "xen", ""] {
            assert!(!is_source_trusted(source, None), "{source}");
        }
    }

    /// Reads the OS's clock before and after ours, so that pauses between the readings do not matter.
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
        // Our clock jumped past it.
        far.at_ns = 0;
        assert!(!far.is_reached());
        assert!(far.at_ns >= now_ns + 3_500_000_000_000, "set right");
    }
}
