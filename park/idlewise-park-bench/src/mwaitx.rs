//! Tries MONITORX and MWAITX although CPUID hides them, in a process that may be killed by it.
//!
//! Many hypervisors clear the CPUID bit. Some pass the instructions through to the CPU, some inject
//! an undefined opcode, and some take an exit for each and do nothing. The last case looks like a
//! wait that works, because every wake-up is noticed within the time of an exit. [`probe_mwaitx`]
//! recognises it by the timer: a real wait lasts until its timer expires.

use std::sync::atomic::AtomicU32;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::Ordering;

/// The monitored word, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Line {
    pub(crate) word: AtomicU32,
}

/// What MWAITX does on this machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MwaitxProbe {
    /// Median time that MONITORX takes.
    pub monitor_ns: f64,
    /// Median time of a wait whose timer is [`PROBE_TIMER_TICKS`] and that is not woken.
    pub wait_ns: f64,
    /// The fraction of its timer that this wait lasted.
    pub timer_ratio: f64,
    /// Median time of CPUID, for which every hypervisor takes an exit.
    pub cpuid_ns: f64,
}

impl MwaitxProbe {
    /// Returns whether a wait really waits. If it always ends long before its timer, it does not.
    pub fn waits(&self) -> bool {
        self.timer_ratio >= 0.5
    }
}

/// The timer of the probe's waits, in ticks of the time stamp counter: about 0.1 ms, longer than an
/// exit and shorter than the time between two timer interrupts.
pub const PROBE_TIMER_TICKS: u32 = 300_000;

/// The exit status of a process that [`probe_mwaitx`] ended because an instruction was refused.
pub const REFUSED_STATUS: i32 = 3;

/// Returns what is missing for MWAITX to be tried.
pub fn mwaitx_missing() -> Option<&'static str> {
    match cfg!(target_arch = "x86_64") {
        true => None,
        false => Some("MWAITX is an instruction of x86"),
    }
}

#[cfg(target_arch = "x86_64")]
impl Line {
    /// Waits until the line is written, or wakes spuriously. The word is checked between the two
    /// instructions, so no store is missed.
    pub(crate) fn watch(&self) {
        monitor(&self.word);
        if self.word.load(Ordering::Relaxed) == 0 {
            mwait(None);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Line {
    /// There is no instruction to wait with.
    pub(crate) fn watch(&self) {
        std::hint::spin_loop();
    }
}

#[cfg(target_arch = "x86_64")]
fn monitor(word: &AtomicU32) {
    // SAFETY: reads the word's line. If the CPU refuses the instruction, the process dies of
    // SIGILL, as the callers document.
    unsafe {
        std::arch::asm!(
            "monitorx",
            in("rax") word.as_ptr(),
            in("ecx") 0,
            in("edx") 0,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(target_arch = "x86_64")]
fn mwait(timer_ticks: Option<u32>) {
    // ECX[1] enables the timer in EBX; EAX[7:4] = 0 is C1.
    let extensions = if timer_ticks.is_some() { 1 << 1 } else { 0 };
    // SAFETY: as for `monitor`. RBX, which the compiler reserves, is restored.
    unsafe {
        std::arch::asm!(
            "xchg {ticks:r}, rbx",
            "mwaitx",
            "xchg {ticks:r}, rbx",
            ticks = inout(reg) u64::from(timer_ticks.unwrap_or(0)) => _,
            in("eax") 0,
            in("ecx") extensions,
            options(nostack, preserves_flags),
        );
    }
}

/// Tries the instructions. If the CPU or the hypervisor refuses them, the process exits with
/// [`REFUSED_STATUS`], so run this in a separate process.
#[cfg(target_arch = "x86_64")]
pub fn probe_mwaitx() -> MwaitxProbe {
    const COUNT: usize = 101;
    extern "C" fn refused(_: libc::c_int) {
        // SAFETY: ends the process; allowed in a signal handler.
        unsafe { libc::_exit(REFUSED_STATUS) }
    }
    // SAFETY: the handler only ends the process; an all-zero sigaction is valid. The alarm ends a
    // wait that does not end by itself.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = refused as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut());
        libc::alarm(10);
    }
    let line = Line::default();
    let ticks = || {
        // SAFETY: reads a counter.
        unsafe { std::arch::x86_64::_rdtsc() }
    };
    let median = |timed: &dyn Fn()| {
        let mut samples: Vec<u64> = (0..COUNT)
            .map(|_| {
                let start = ticks();
                timed();
                ticks().saturating_sub(start)
            })
            .collect();
        samples.sort_unstable();
        samples[COUNT / 2] as f64
    };
    let (start, start_ticks) = (std::time::Instant::now(), ticks());
    let monitor_ticks = median(&|| monitor(&line.word));
    let wait_ticks = median(&|| {
        monitor(&line.word);
        mwait(Some(PROBE_TIMER_TICKS));
    });
    let cpuid_ticks = median(&|| {
        std::hint::black_box(std::arch::x86_64::__cpuid(0));
    });
    let ns_per_tick = start.elapsed().as_nanos() as f64 / (ticks() - start_ticks).max(1) as f64;
    MwaitxProbe {
        monitor_ns: monitor_ticks * ns_per_tick,
        wait_ns: wait_ticks * ns_per_tick,
        timer_ratio: wait_ticks / f64::from(PROBE_TIMER_TICKS),
        cpuid_ns: cpuid_ticks * ns_per_tick,
    }
}

/// There is no such instruction to try.
#[cfg(not(target_arch = "x86_64"))]
pub fn probe_mwaitx() -> MwaitxProbe {
    // SAFETY: ends the process.
    unsafe { libc::_exit(REFUSED_STATUS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_that_does_nothing_is_no_wait() {
        let trapped = MwaitxProbe {
            monitor_ns: 3480.0,
            wait_ns: 6940.0,
            timer_ratio: 0.06,
            cpuid_ns: 3480.0,
        };
        assert!(!trapped.waits());
        assert!(MwaitxProbe { timer_ratio: 1.01, ..trapped }.waits());
    }
}
