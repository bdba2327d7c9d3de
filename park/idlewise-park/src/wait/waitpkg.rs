//! UMONITOR, UMWAIT and TPAUSE (Intel since Tremont and Sapphire Rapids, AMD since Zen 6): a CPU monitors a
//! cache line from user space, in C0.1 or the deeper C0.2.
//!
//! The OS bounds each wait: `IA32_UMWAIT_CONTROL` holds the longest time (0 means none) and a bit that
//! turns C0.2 into C0.1. Linux shows both in `/sys/devices/system/cpu/umwait_control/`. A wait that reaches
//! the bound sets the carry flag and is counted ([`os_bound_count`]). The caller then looks and waits
//! again.

use core::arch::asm;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use idlewise_core::Doorbell;

use super::monitor::{self, Monitor};
use super::{Method, WaitMethod};
use crate::clock;

/// The instructions with the registers used here. A test compares them with an assembler's output.
#[doc(hidden)]
pub const ENCODINGS: [(&str, &[u8]); 3] = [
    ("umonitor %rdi", &[0xf3, 0x0f, 0xae, 0xf7]),
    ("umwait %ecx", &[0xf2, 0x0f, 0xae, 0xf1]),
    ("tpause %ecx", &[0x66, 0x0f, 0xae, 0xf1]),
];

/// What the OS allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmwaitControl {
    /// The longest wait, in ticks of the time stamp counter; `None` if unbounded.
    pub tick_count_max: Option<u64>,
    /// Whether C0.2 is allowed. If not, C0.1 is used instead.
    pub is_c02_enabled: bool,
}

/// The OS's settings, read once; `None` if it does not report them.
pub fn umwait_control() -> Option<UmwaitControl> {
    static CONTROL: OnceLock<Option<UmwaitControl>> = OnceLock::new();
    *CONTROL.get_or_init(|| read_umwait_control("/sys/devices/system/cpu/umwait_control"))
}

fn read_umwait_control(folder: &str) -> Option<UmwaitControl> {
    let read = |name: &str| {
        std::fs::read_to_string(format!("{folder}/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    let tick_count_max = read("max_time")?;
    Some(UmwaitControl {
        tick_count_max: Some(tick_count_max).filter(|&count| count != 0),
        is_c02_enabled: read("enable_c02")? != 0,
    })
}

static OS_BOUND_COUNT: AtomicU64 = AtomicU64::new(0);

/// Returns how many waits of this process the OS's bound has ended. A large number means that `max_time` is
/// shorter than the gaps.
pub fn os_bound_count() -> u64 {
    OS_BOUND_COUNT.load(Ordering::Relaxed)
}

fn count_os_bound(is_bound: bool) {
    if is_bound {
        OS_BOUND_COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

/// What TPAUSE requires and this machine lacks.
pub(super) fn missing() -> Option<&'static str> {
    let leaf = raw_cpuid::CpuId::new().get_extended_feature_info();
    if !leaf.is_some_and(|leaf| leaf.has_waitpkg()) {
        return Some("the CPU has no WAITPKG");
    }
    if !clock::is_tsc() {
        return Some("the time stamp counter is not the clock");
    }
    None
}

/// What UMWAIT requires besides, and this machine lacks: a working monitor. CPUID does not tell.
///
/// UMONITOR is switched off on some CPUs, at launch or by microcode, because many monitors slow the CPU
/// down ("MONITOR and UMONITOR Performance Guidance", Intel, 2024). UMWAIT then returns at once.
/// CPUID.7.2:EDX\[7\], MONITOR_MITG_NO, says that a CPU does not need that. But a CPU without the bit may
/// still have a working UMONITOR, so only a few trial waits decide.
pub(super) fn monitor_missing(is_c01: bool) -> Option<&'static str> {
    let info = raw_cpuid::CpuId::new().get_feature_info();
    let vendor = raw_cpuid::CpuId::new().get_vendor_info();
    let is_intel = vendor.is_some_and(|vendor| vendor.as_str() == "GenuineIntel");
    if info.is_some_and(|info| is_intel && is_denied(info.family_id(), info.model_id())) {
        return Some("the CPU's monitor misses stores (an erratum)");
    }
    static WORKS: [OnceLock<bool>; 2] = [const { OnceLock::new() }; 2];
    // SAFETY: `missing` has checked that the CPU has WAITPKG.
    let works = || unsafe { monitor::lasts(&Umwait { is_c01 }) };
    let does_work = *WORKS[usize::from(is_c01)].get_or_init(works);
    (!does_work).then_some("UMWAIT returns at once: the CPU does not monitor")
}

/// Intel CPUs whose monitor may miss a store: Lunar Lake. (Linux sends interrupts to idle CPUs of these
/// models instead of relying on MONITOR.)
fn is_denied(family: u8, model: u8) -> bool {
    (family, model) == (6, 0xbd)
}

pub(super) fn c02_missing() -> Option<&'static str> {
    match umwait_control() {
        Some(UmwaitControl { is_c02_enabled: false, .. }) => {
            Some("the OS has switched C0.2 off (umwait_control/enable_c02)")
        }
        _ => None,
    }
}

/// Arms the monitor on the line of `address`.
///
/// # Safety
/// The CPU must have WAITPKG, or trap so that something emulates it. The address need not be valid.
#[inline(always)]
unsafe fn umonitor(address: *const u32) {
    // SAFETY: it only reads the line; the caller guarantees that the instruction exists.
    unsafe { asm!("umonitor rdi", in("rdi") address, options(nostack, preserves_flags)) };
}

/// Waits for a store to the monitored line, or until the counter reaches `until_ticks`. Returns whether the
/// OS's bound ended the wait.
///
/// # Safety
/// As for [`umonitor`].
#[inline(always)]
unsafe fn umwait(is_c01: bool, until_ticks: u64) -> bool {
    let is_bound: u8;
    // SAFETY: touches only registers and flags; the caller guarantees that the instruction exists.
    unsafe {
        asm!(
            "umwait ecx",
            "setc {is_bound}",
            is_bound = out(reg_byte) is_bound,
            in("ecx") u32::from(is_c01),
            in("eax") until_ticks as u32,
            in("edx") (until_ticks >> 32) as u32,
            options(nostack),
        );
    }
    is_bound != 0
}

/// Rests until the counter reaches `until_ticks`. Returns whether the OS's bound ended the rest.
///
/// # Safety
/// As for [`umonitor`].
#[inline(always)]
unsafe fn tpause(is_c01: bool, until_ticks: u64) -> bool {
    let is_bound: u8;
    // SAFETY: touches only registers and flags; the caller guarantees that the instruction exists.
    unsafe {
        asm!(
            "tpause ecx",
            "setc {is_bound}",
            is_bound = out(reg_byte) is_bound,
            in("ecx") u32::from(is_c01),
            in("eax") until_ticks as u32,
            in("edx") (until_ticks >> 32) as u32,
            options(nostack),
        );
    }
    is_bound != 0
}

/// Waits on the line, in one of two depths. A value exists only where the CPU has the instructions.
///
/// ```compile_fail,E0451
/// let umwait = idlewise_park::wait::waitpkg::Umwait { is_c01: true };
/// ```
#[derive(Debug)]
pub struct Umwait {
    is_c01: bool,
}

pub(super) static UMWAIT_C01: Umwait = Umwait { is_c01: true };
pub(super) static UMWAIT_C02: Umwait = Umwait { is_c01: false };

impl Umwait {
    /// Uses C0.1 if `is_c01`, else C0.2. Returns `None` if the CPU or the OS does not support it.
    pub fn new(is_c01: bool) -> Option<Self> {
        let method = if is_c01 { Method::UmwaitC01 } else { Method::UmwaitC02 };
        method.is_available().then_some(Umwait { is_c01 })
    }

    /// Like [`Umwait::new`], without checking.
    ///
    /// # Safety
    /// The CPU must execute UMONITOR and UMWAIT, or trap so that something emulates them.
    pub unsafe fn assume_available(is_c01: bool) -> Self {
        Umwait { is_c01 }
    }
}

impl Monitor for Umwait {
    #[inline(always)]
    unsafe fn arm(&self, word: *const u32) {
        // SAFETY: the caller guarantees that the instruction exists.
        unsafe { umonitor(word) }
    }

    #[inline(always)]
    unsafe fn wait_armed(&self, until_ticks: Option<u64>) {
        // SAFETY: as above.
        count_os_bound(unsafe { umwait(self.is_c01, until_ticks.unwrap_or(u64::MAX)) });
    }
}

impl WaitMethod for Umwait {
    #[inline]
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        // SAFETY: an `Umwait` exists only where the instructions do.
        unsafe { monitor::wait(self, bell, until_ns) }
    }
}

/// Rests without monitoring the line. A value exists only where the CPU has the instruction.
#[derive(Debug)]
pub struct Tpause(());

pub(super) static TPAUSE: Tpause = Tpause(());

impl Tpause {
    /// Returns `None` if the CPU does not have the instruction.
    pub fn new() -> Option<Self> {
        Method::Tpause.is_available().then_some(Tpause(()))
    }

    /// Like [`Tpause::new`], without checking.
    ///
    /// # Safety
    /// The CPU must execute TPAUSE, or trap so that something emulates it.
    pub unsafe fn assume_available() -> Self {
        Tpause(())
    }
}

/// How late TPAUSE may notice a ring, which is the state's exit latency.
pub const TPAUSE_REST_NS: u64 = 300;

impl WaitMethod for Tpause {
    #[inline]
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        if bell.is_rung() {
            return;
        }
        let rest_ns = clock::now_ns() + TPAUSE_REST_NS;
        let until_ns = until_ns.map_or(rest_ns, |until_ns| until_ns.min(rest_ns));
        // SAFETY: a `Tpause` exists only where the instruction does.
        count_os_bound(unsafe { tpause(true, clock::ticks_at(until_ns)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denies_cpus_that_miss_stores() {
        assert!(is_denied(6, 0xbd), "Lunar Lake");
        assert!(!is_denied(6, 0x8f), "Sapphire Rapids");
        assert!(!is_denied(0x1a, 0xbd), "another family");
    }

    #[test]
    fn reads_the_settings_of_the_os() {
        let folder = std::env::temp_dir().join(format!("idlewise-umwait-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.to_str().unwrap();
        assert_eq!(read_umwait_control(path), None);
        std::fs::write(folder.join("max_time"), "100000\n").unwrap();
        std::fs::write(folder.join("enable_c02"), "0\n").unwrap();
        let control = UmwaitControl { tick_count_max: Some(100_000), is_c02_enabled: false };
        assert_eq!(read_umwait_control(path), Some(control));
        std::fs::write(folder.join("max_time"), "0\n").unwrap();
        assert_eq!(read_umwait_control(path).unwrap().tick_count_max, None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
