//! Sleeping on a word in the kernel (Windows 8): `WaitOnAddress` compares and sleeps in one step.
//!
//! Timeouts are in milliseconds, and it works within one process only. Checked by the compiler, never run.

use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use super::reach::{Reach, Who};

#[link(name = "api-ms-win-core-synch-l1-2-0", kind = "raw-dylib")]
unsafe extern "system" {
    fn WaitOnAddress(
        address: *const c_void,
        compare: *const c_void,
        size: usize,
        timeout_ms: u32,
    ) -> i32;
    fn WakeByAddressSingle(address: *const c_void);
    fn WakeByAddressAll(address: *const c_void);
}

const INFINITE: u32 = u32::MAX;

/// What this system lacks.
pub(super) fn missing() -> Option<&'static str> {
    None
}

/// Sleeps while the word is `expected`. May return spuriously.
pub(super) fn sleep(word: &AtomicU32, expected: u32, until: Option<Instant>, _: Reach) {
    let timeout_ms = until.map_or(INFINITE, |until| {
        // Rounded up: a sleep that ended before its deadline would be repeated again and again.
        let left = until.saturating_duration_since(Instant::now());
        let left_ms = left.as_nanos().div_ceil(1_000_000);
        u32::try_from(left_ms).map_or(INFINITE - 1, |left_ms| left_ms.min(INFINITE - 1))
    });
    // SAFETY: both words live as long as the call.
    unsafe {
        WaitOnAddress(
            word.as_ptr().cast_const().cast(),
            (&raw const expected).cast(),
            size_of::<u32>(),
            timeout_ms,
        );
    }
}

/// Wakes the threads that sleep on the word at this address.
pub(super) fn wake(word: *const AtomicU32, who: Who, _: Reach) {
    // SAFETY: the address is only a key and is not read.
    unsafe {
        match who {
            Who::One => WakeByAddressSingle(word.cast()),
            Who::All => WakeByAddressAll(word.cast()),
        }
    }
}
