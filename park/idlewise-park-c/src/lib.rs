//! `idlewise-park` for C: the functions that `include/idlewise_park.h` declares, and nothing else.
//!
//! No panic crosses the boundary: after the panic's own message, a bug returns -ENOTRECOVERABLE. If two
//! threads wait on one parker, which Rust's types forbid, the second gets -EBUSY.
#![cfg(target_os = "linux")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the header says what callers promise: pointers are valid, or null"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use idlewise_park::{Parker, ProcessParker, RawParker, Unparker, word};
use libc::{EBUSY, EINVAL, ENOTRECOVERABLE, ETIMEDOUT, c_int};

/// The header's `IDLEWISE_PARK_ABI`.
const ABI: u32 = 1;
/// The header's `IDLEWISE_FOREVER`.
const FOREVER: u64 = u64::MAX;

/// A parker with a flag that says whether a thread uses it.
pub struct CParker {
    parker: Parker,
    unparker: Unparker,
    is_used: AtomicBool,
}

/// The header's struct.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CWaitStats {
    waits: u64,
    timeouts: u64,
    store_wakes: u64,
}

fn guarded(call: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(-ENOTRECOVERABLE)
}

/// Waits with or without a deadline. `wait_for` returns whether the wait was woken before its deadline.
fn waited(timeout_ns: u64, wait: impl FnOnce(), wait_for: impl FnOnce(Duration) -> bool) -> c_int {
    match timeout_ns {
        FOREVER => wait(),
        _ if !wait_for(Duration::from_nanos(timeout_ns)) => return -ETIMEDOUT,
        _ => {}
    }
    0
}

impl CParker {
    /// Returns `None` while another thread uses it, or this thread does outside a signal handler.
    fn using<R>(&self, call: impl FnOnce(&Parker) -> R) -> Option<R> {
        struct Used<'a>(&'a AtomicBool);
        impl Drop for Used<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        if self.is_used.swap(true, Ordering::Acquire) {
            return None;
        }
        let _used = Used(&self.is_used);
        Some(call(&self.parker))
    }
}

#[unsafe(no_mangle)]
extern "C" fn idlewise_park_abi() -> u32 {
    ABI
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_parker_create(parker: *mut *mut CParker) -> c_int {
    guarded(|| {
        if parker.is_null() {
            return -EINVAL;
        }
        let made = Parker::new();
        let unparker = made.unparker().clone();
        let made = CParker { parker: made, unparker, is_used: AtomicBool::new(false) };
        // SAFETY: not null, so the caller guarantees that it can be written.
        unsafe { parker.write(Box::into_raw(Box::new(made))) };
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_parker_destroy(parker: *mut CParker) {
    guarded(|| {
        if !parker.is_null() {
            // SAFETY: made by `idlewise_parker_create`, and the caller no longer uses it.
            drop(unsafe { Box::from_raw(parker) });
        }
        0
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_parker_park(parker: *mut CParker, timeout_ns: u64) -> c_int {
    guarded(|| {
        // SAFETY: null, or the caller's parker.
        let Some(parker) = (unsafe { parker.as_ref() }) else { return -EINVAL };
        let outcome = parker.using(|parker| {
            waited(timeout_ns, || parker.park(), |left| parker.park_timeout(left).is_woken())
        });
        outcome.unwrap_or(-EBUSY)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_parker_unparker(
    parker: *const CParker,
    unparker: *mut *mut Unparker,
) -> c_int {
    guarded(|| {
        // SAFETY: null, or the caller's parker.
        let Some(parker) = (unsafe { parker.as_ref() }) else { return -EINVAL };
        if unparker.is_null() {
            return -EINVAL;
        }
        let made = Box::into_raw(Box::new(parker.unparker.clone()));
        // SAFETY: not null, so the caller guarantees that it can be written.
        unsafe { unparker.write(made) };
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_unparker_unpark(unparker: *const Unparker) -> c_int {
    guarded(|| {
        // SAFETY: null, or the caller's unparker.
        let Some(unparker) = (unsafe { unparker.as_ref() }) else { return -EINVAL };
        unparker.unpark();
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_unparker_release(unparker: *mut Unparker) {
    guarded(|| {
        if !unparker.is_null() {
            // SAFETY: made by `idlewise_parker_unparker`, and the caller no longer uses it.
            drop(unsafe { Box::from_raw(unparker) });
        }
        0
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_parker_stats(
    parker: *const CParker,
    stats: *mut CWaitStats,
    size: u64,
) -> c_int {
    guarded(|| {
        // SAFETY: null, or the caller's parker.
        let Some(parker) = (unsafe { parker.as_ref() }) else { return -EINVAL };
        if stats.is_null() {
            return -EINVAL;
        }
        let Some(found) = parker.using(Parker::stats) else { return -EBUSY };
        let found = CWaitStats {
            waits: found.waits,
            timeouts: found.timeouts,
            store_wakes: found.store_wakes,
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(size_of::<CWaitStats>());
        // SAFETY: the caller has room for `size` bytes. A program may be older than the library.
        unsafe { std::ptr::from_ref(&found).cast::<u8>().copy_to(stats.cast(), size) };
        0
    })
}

/// Calls `call` with a word that is not null and is aligned.
fn with_word<T>(word: *mut T, call: impl FnOnce(*mut T) -> c_int) -> c_int {
    let is_word = !word.is_null() && word.cast::<AtomicU32>().is_aligned();
    if is_word { guarded(|| call(word)) } else { -EINVAL }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_raw_park(word: *mut AtomicU32, timeout_ns: u64) -> c_int {
    with_word(word, |word| {
        // SAFETY: a RawParker is one word, either zeroed or in use. It stays alive until this returns.
        let parker = unsafe { &*word.cast::<RawParker>() };
        waited(timeout_ns, || parker.park(), |left| parker.park_timeout(left).is_woken())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_raw_unpark(word: *mut AtomicU32) -> c_int {
    with_word(word, |word| {
        // SAFETY: it is alive until its waiter has a token, as the header requires.
        unsafe { RawParker::unpark_raw(word.cast::<RawParker>()) };
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_process_park(word: *mut u32, timeout_ns: u64) -> c_int {
    with_word(word, |word| {
        // SAFETY: a ProcessParker is one word, which stays mapped until this returns.
        let parker = unsafe { ProcessParker::from_ptr(word) };
        waited(timeout_ns, || parker.park(), |left| parker.park_timeout(left).is_woken())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_process_unpark(word: *mut u32) -> c_int {
    with_word(word, |word| {
        // SAFETY: as above.
        unsafe { ProcessParker::from_ptr(word) }.unpark();
        0
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn idlewise_word_wait(
    address: *const AtomicU32,
    expected: u32,
    timeout_ns: u64,
) -> c_int {
    with_word(address.cast_mut(), |address| {
        // SAFETY: the word stays alive until this returns, and others write it atomically.
        let found = unsafe { &*address };
        waited(
            timeout_ns,
            || word::wait(found, expected),
            |left| word::wait_timeout(found, expected, left),
        )
    })
}

#[unsafe(no_mangle)]
extern "C" fn idlewise_word_wake_one(address: *const AtomicU32) -> c_int {
    with_word(address.cast_mut(), |address| {
        word::wake_one(address);
        0
    })
}

#[unsafe(no_mangle)]
extern "C" fn idlewise_word_wake_all(address: *const AtomicU32) -> c_int {
    with_word(address.cast_mut(), |address| {
        word::wake_all(address);
        0
    })
}
