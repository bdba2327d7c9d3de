//! MONITORX and MWAITX (AMD since Excavator): a CPU monitors a cache line from user space, in C1. The
//! deadline is a 32-bit count of ticks from the start of the wait.

use core::arch::asm;
use std::sync::OnceLock;

use idlewise_core::Doorbell;

use super::monitor::{self, Monitor};
use super::{Method, WaitMethod};
use crate::clock;

/// The instructions, whose registers are fixed. A test compares them with an assembler's output.
#[doc(hidden)]
pub const ENCODINGS: [(&str, &[u8]); 2] =
    [("monitorx", &[0x0f, 0x01, 0xfa]), ("mwaitx", &[0x0f, 0x01, 0xfb])];

/// EAX of MWAITX: bits 7 to 4 are the C-state minus one, so all ones means C0 and 0 means C1.
const HINT_C1: u32 = 0;
/// ECX of MWAITX: enables the timer in EBX.
const WITH_TIMER: u32 = 1 << 1;

pub(super) fn missing() -> Option<&'static str> {
    let leaf = raw_cpuid::CpuId::new().get_extended_processor_and_feature_identifiers();
    if !leaf.is_some_and(|leaf| leaf.has_monitorx_mwaitx()) {
        return Some("the CPU has no MONITORX");
    }
    if !clock::is_tsc() {
        return Some("the time stamp counter is not the clock");
    }
    static WORKS: OnceLock<bool> = OnceLock::new();
    // SAFETY: the CPU has the instructions.
    let does_work = *WORKS.get_or_init(|| unsafe { monitor::lasts(&MWAITX) });
    (!does_work).then_some("MWAITX returns at once: the CPU does not monitor")
}

/// Waits on the line. A value exists only where the CPU has the instructions.
///
/// In a guest whose time stamp counter the hypervisor scales, the timer counts the host's ticks (on AMD
/// EPYC under KVM, waits took 0.7 of the time asked for). A wait that ends early is restarted.
#[derive(Debug)]
pub struct Mwaitx(());

pub(super) static MWAITX: Mwaitx = Mwaitx(());

impl Mwaitx {
    /// Returns `None` if the CPU does not have the instructions.
    pub fn new() -> Option<Self> {
        Method::Mwaitx.is_available().then_some(Mwaitx(()))
    }

    /// Like [`Mwaitx::new`], without checking.
    ///
    /// # Safety
    /// The CPU must execute MONITORX and MWAITX, or trap so that something emulates them.
    pub unsafe fn assume_available() -> Self {
        Mwaitx(())
    }
}

impl Monitor for Mwaitx {
    #[inline(always)]
    unsafe fn arm(&self, word: *const u32) {
        // SAFETY: it only reads the line; the caller guarantees that the instruction exists.
        unsafe {
            asm!(
                "monitorx",
                in("rax") word,
                in("ecx") 0,
                in("edx") 0,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn wait_armed(&self, until_ticks: Option<u64>) {
        let (extensions, tick_count) = match until_ticks {
            Some(until_ticks) => {
                let left = until_ticks.saturating_sub(clock::ticks());
                if left == 0 {
                    return;
                }
                (WITH_TIMER, u32::try_from(left).unwrap_or(u32::MAX))
            }
            None => (0, 0),
        };
        // SAFETY: the caller guarantees that the instruction exists. RBX, which the compiler reserves, is
        // restored.
        unsafe {
            asm!(
                "xchg {ticks:r}, rbx",
                "mwaitx",
                "xchg {ticks:r}, rbx",
                ticks = inout(reg) u64::from(tick_count) => _,
                in("eax") HINT_C1,
                in("ecx") extensions,
                options(nostack, preserves_flags),
            );
        }
    }
}

impl WaitMethod for Mwaitx {
    #[inline]
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        // SAFETY: an `Mwaitx` exists only where the instructions do.
        unsafe { monitor::wait(self, bell, until_ns) }
    }
}
