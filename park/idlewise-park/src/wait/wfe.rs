//! WFE and WFET (Arm): the core waits for an event. A store to a line that it has reserved with a
//! load-exclusive is an event.
//!
//! A WFE without a deadline relies on the kernel's event stream, a timer that sends an event about every
//! 100 µs. Without that stream (and without WFET, from Arm v8.7) a deadline could pass unnoticed.

use core::arch::asm;

use idlewise_core::Doorbell;

use super::{WFET_X0, WaitMethod};
use crate::clock;

/// `HWCAP_EVTSTRM` and `HWCAP2_WFXT` of the kernel's `asm/hwcap.h`.
#[cfg(target_os = "linux")]
const EVENT_STREAM: u64 = 1 << 2;
#[cfg(target_os = "linux")]
const WFXT: u64 = 1 << 31;

#[cfg(target_os = "linux")]
fn hwcap(which: libc::c_ulong, bit: u64) -> bool {
    // SAFETY: reads the process's auxiliary vector.
    unsafe { libc::getauxval(which) & bit != 0 }
}

pub(super) fn missing() -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    if hwcap(libc::AT_HWCAP, EVENT_STREAM) {
        return None;
    }
    Some("the kernel sends no event stream")
}

pub(super) fn wfet_missing() -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    if hwcap(libc::AT_HWCAP2, WFXT) {
        return None;
    }
    Some("the CPU has no WFET")
}

/// Reserves the line and returns the word. From now on any store to the line is an event.
///
/// # Safety
/// `word` must be readable.
#[inline(always)]
unsafe fn load_exclusive(word: *const u32) -> u32 {
    let value: u32;
    // SAFETY: the caller guarantees that it is readable.
    unsafe {
        asm!("ldxr {value:w}, [{word}]", value = out(reg) value, word = in(reg) word,
            options(nostack, preserves_flags));
    }
    value
}

/// Waits on the line. The only deadline is the kernel's event stream.
pub struct Wfe;

impl WaitMethod for Wfe {
    #[inline]
    fn wait(&self, bell: &Doorbell, _until_ns: Option<u64>) {
        // SAFETY: the word is readable; WFE touches nothing.
        unsafe {
            if load_exclusive(std::ptr::from_ref(bell.word()).cast()) == Doorbell::POLLING_WORD {
                asm!("wfe", options(nostack, preserves_flags));
            }
        }
    }
}

/// Waits on the line until a given time.
pub struct Wfet;

impl WaitMethod for Wfet {
    #[inline]
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>) {
        let until_ticks = until_ns.map_or(u64::MAX, clock::ticks_at);
        // SAFETY: the word is readable; WFET touches nothing.
        unsafe {
            if load_exclusive(std::ptr::from_ref(bell.word()).cast()) == Doorbell::POLLING_WORD {
                asm!(".inst {wfet}", wfet = const WFET_X0, in("x0") until_ticks,
                    options(nostack, preserves_flags));
            }
        }
    }
}
