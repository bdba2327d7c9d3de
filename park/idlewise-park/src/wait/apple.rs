//! Sleeping on a word in the kernel (macOS 14.4, iOS 17.4): `os_sync_wait_on_address`.
//!
//! The functions are looked up at run time; older systems use a condition variable instead. This was
//! checked by the compiler, but never run.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

use super::reach::{Reach, Who};

type Wait = unsafe extern "C" fn(*mut c_void, u64, usize, u32) -> c_int;
type WaitTimeout = unsafe extern "C" fn(*mut c_void, u64, usize, u32, u32, u64) -> c_int;
type Wake = unsafe extern "C" fn(*mut c_void, usize, u32) -> c_int;

/// `OS_CLOCK_MACH_ABSOLUTE_TIME` of `os/clock.h`.
const MACH_ABSOLUTE_TIME: u32 = 32;
/// `OS_SYNC_WAIT_ON_ADDRESS_NONE` and `OS_SYNC_WAKE_BY_ADDRESS_NONE` of `os/os_sync_wait_on_address.h`.
const WITHIN_PROCESS: u32 = 0;

struct Calls {
    wait: Wait,
    wait_timeout: WaitTimeout,
    wake_any: Wake,
    wake_all: Wake,
}

fn calls() -> Option<&'static Calls> {
    static CALLS: OnceLock<Option<Calls>> = OnceLock::new();
    fn address(name: &CStr) -> Option<*mut c_void> {
        // SAFETY: looks a name up in what the process has loaded.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }
    CALLS
        .get_or_init(|| {
            let wait = address(c"os_sync_wait_on_address")?;
            let wait_timeout = address(c"os_sync_wait_on_address_with_timeout")?;
            let wake_any = address(c"os_sync_wake_by_address_any")?;
            let wake_all = address(c"os_sync_wake_by_address_all")?;
            // SAFETY: these are the functions' types in `os/os_sync_wait_on_address.h`.
            unsafe {
                Some(Calls {
                    wait: std::mem::transmute::<*mut c_void, Wait>(wait),
                    wait_timeout: std::mem::transmute::<*mut c_void, WaitTimeout>(wait_timeout),
                    wake_any: std::mem::transmute::<*mut c_void, Wake>(wake_any),
                    wake_all: std::mem::transmute::<*mut c_void, Wake>(wake_all),
                })
            }
        })
        .as_ref()
}

/// What this system lacks.
pub(super) fn missing() -> Option<&'static str> {
    calls().is_none().then_some("the system has no os_sync_wait_on_address")
}

/// Sleeps while the word is `expected`. May return spuriously. Does nothing if the functions are
/// [`missing`].
pub(super) fn sleep(word: &AtomicU32, expected: u32, until: Option<Instant>, _: Reach) {
    let Some(calls) = calls() else { return };
    let (address, size) = (word.as_ptr().cast(), size_of::<u32>());
    let left_ns = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)
    });
    // SAFETY: the word lives as long as the call. Any error means to look again.
    unsafe {
        match left_ns {
            None => _ = (calls.wait)(address, expected.into(), size, WITHIN_PROCESS),
            // A timeout of 0 is an error.
            Some(0) => {}
            Some(left_ns) => {
                _ = (calls.wait_timeout)(
                    address,
                    expected.into(),
                    size,
                    WITHIN_PROCESS,
                    MACH_ABSOLUTE_TIME,
                    left_ns,
                );
            }
        }
    }
}

/// Wakes the threads that sleep on the word at this address.
pub(super) fn wake(word: *const AtomicU32, who: Who, _: Reach) {
    let Some(calls) = calls() else { return };
    let call = match who {
        Who::One => calls.wake_any,
        Who::All => calls.wake_all,
    };
    // SAFETY: the address is a key and not read.
    unsafe { call(word.cast_mut().cast(), size_of::<u32>(), WITHIN_PROCESS) };
}
