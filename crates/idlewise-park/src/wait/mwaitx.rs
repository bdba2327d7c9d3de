//! MONITORX and MWAITX (AMD since Excavator): a CPU watches a cache line from user space, in C1,
//! with a deadline as a 32-bit count of ticks from the start of the wait.

use core::arch::asm;

use idlewise_core::Doorbell;

use super::WaitMethod;
use crate::clock;

/// The instructions, whose registers are fixed: what an assembler is asked about.
pub const ENCODINGS: [(&str, &[u8]); 2] =
    [("monitorx", &[0x0f, 0x01, 0xfa]), ("mwaitx", &[0x0f, 0x01, 0xfb])];

/// EAX of MWAITX: bits 7 to 4 are the C-state less one, so all ones means C0 and 0 means C1.
const HINT_C1: u32 = 0;
/// ECX of MWAITX: the timer of EBX is on.
const WITH_TIMER: u32 = 1 << 1;

pub(super) fn missing() -> Option<&'static str> {
    let leaf = raw_cpuid::CpuId::new().get_extended_processor_and_feature_identifiers();
    if !leaf.is_some_and(|leaf| leaf.has_monitorx_mwaitx()) {
        return Some("the CPU has no MONITORX");
    }
    if !clock::is_tsc() {
        return Some("the time stamp counter is not the clock");
    }
    None
}

/// Waits on the line.
pub struct Mwaitx;

impl WaitMethod for Mwaitx {
    #[inline]
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        let (extensions, tick_count) = match until_ns {
            Some(until_ns) => {
                let left = clock::ticks_at(until_ns).saturating_sub(clock::ticks());
                if left == 0 {
                    return;
                }
                (WITH_TIMER, u32::try_from(left).unwrap_or(u32::MAX))
            }
            None => (0, 0),
        };
        // SAFETY: a table has this method only where `missing` found nothing missing, or where a
        // test emulates it. It reads the line, and restores RBX, which the compiler keeps for
        // itself.
        unsafe {
            asm!(
                "monitorx",
                in("rax") std::ptr::from_ref(bell.word()),
                in("ecx") 0,
                in("edx") 0,
                options(nostack, preserves_flags),
            );
            // A ring before the monitor was armed does not trigger it: look once more.
            if bell.is_rung() {
                return;
            }
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
