//! Finds glibc's own functions, and checks that its structures have the expected layout.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use libc::{
    clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t, pthread_t, sem_t, timespec,
};

/// glibc's functions, which the replacements pass calls on to.
pub(crate) struct Next {
    pub(crate) cond_init:
        unsafe extern "C" fn(*mut pthread_cond_t, *const pthread_condattr_t) -> c_int,
    pub(crate) cond_destroy: unsafe extern "C" fn(*mut pthread_cond_t) -> c_int,
    pub(crate) cond_wait:
        unsafe extern "C-unwind" fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int,
    pub(crate) cond_timedwait: unsafe extern "C-unwind" fn(
        *mut pthread_cond_t,
        *mut pthread_mutex_t,
        *const timespec,
    ) -> c_int,
    pub(crate) cond_signal: unsafe extern "C" fn(*mut pthread_cond_t) -> c_int,
    pub(crate) cond_broadcast: unsafe extern "C" fn(*mut pthread_cond_t) -> c_int,
    pub(crate) cancel: unsafe extern "C" fn(pthread_t) -> c_int,
    pub(crate) sem_wait: unsafe extern "C-unwind" fn(*mut sem_t) -> c_int,
    pub(crate) sem_timedwait: unsafe extern "C-unwind" fn(*mut sem_t, *const timespec) -> c_int,
    /// Whether condition variables are replaced, which requires that glibc keeps both flags where expected.
    pub(crate) takes_over: bool,
}

/// The index of glibc's word of flags and references in a pthread_cond_t: `__wrefs`, since 2.25.
const FLAGS_WORD: usize = 9;
/// Its bits: shared between processes, and deadlines on CLOCK_MONOTONIC.
pub(crate) const IS_SHARED: u32 = 1;
pub(crate) const IS_MONOTONIC: u32 = 2;

/// The flags given to `pthread_cond_init`. Only glibc writes them.
pub(crate) unsafe fn flags(cond: *mut pthread_cond_t) -> u32 {
    // SAFETY: the caller's condition variable has 48 bytes, aligned to 8, and nobody changes the flags
    // while it is in use.
    unsafe { cond.cast::<u32>().add(FLAGS_WORD).read_volatile() }
}

pub(crate) fn next() -> &'static Next {
    static NEXT: OnceLock<Next> = OnceLock::new();
    NEXT.get_or_init(find)
}

/// In glibc 2.30 and later.
pub(crate) type CondClockwait = unsafe extern "C-unwind" fn(
    *mut pthread_cond_t,
    *mut pthread_mutex_t,
    clockid_t,
    *const timespec,
) -> c_int;

/// In glibc 2.30 and later.
pub(crate) type SemClockwait =
    unsafe extern "C-unwind" fn(*mut sem_t, clockid_t, *const timespec) -> c_int;

pub(crate) fn cond_clockwait() -> Option<CondClockwait> {
    static FOUND: OnceLock<Option<CondClockwait>> = OnceLock::new();
    // SAFETY: a null pointer is `None`, and glibc's function has this type.
    *FOUND.get_or_init(|| unsafe { std::mem::transmute(symbol(c"pthread_cond_clockwait")) })
}

pub(crate) fn sem_clockwait() -> Option<SemClockwait> {
    static FOUND: OnceLock<Option<SemClockwait>> = OnceLock::new();
    // SAFETY: as above.
    *FOUND.get_or_init(|| unsafe { std::mem::transmute(symbol(c"sem_clockwait")) })
}

/// The next library's function of this name. A failed search allocates, and the caller may be an allocator
/// (jemalloc creates its condition variables under a lock). So it never searches for names that may not
/// exist.
fn symbol(name: &CStr) -> *mut c_void {
    // On x86 the oldest condition variables, from glibc 2.2.5, have another layout, so name the version.
    #[cfg(target_arch = "x86_64")]
    if name.to_bytes().starts_with(b"pthread_cond_") && name != c"pthread_cond_clockwait" {
        // SAFETY: both are strings.
        return unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.3.2".as_ptr()) };
    }
    // SAFETY: a string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

fn find() -> Next {
    /// glibc's function with this name and type.
    macro_rules! function {
        ($name:literal) => {{
            let found = symbol($name);
            // SAFETY: a null pointer is `None`, and glibc's function has the type that POSIX gives it.
            unsafe { std::mem::transmute::<*mut c_void, Option<_>>(found) }
        }};
    }
    macro_rules! required {
        ($name:literal) => {
            // Without it no program could wait, and a panic must not unwind through C.
            match function!($name) {
                Some(found) => found,
                None => std::process::abort(),
            }
        };
    }
    let mut next = Next {
        cond_init: required!(c"pthread_cond_init"),
        cond_destroy: required!(c"pthread_cond_destroy"),
        cond_wait: required!(c"pthread_cond_wait"),
        cond_timedwait: required!(c"pthread_cond_timedwait"),
        cond_signal: required!(c"pthread_cond_signal"),
        cond_broadcast: required!(c"pthread_cond_broadcast"),
        cancel: required!(c"pthread_cancel"),
        sem_wait: required!(c"sem_wait"),
        sem_timedwait: required!(c"sem_timedwait"),
        takes_over: false,
    };
    next.takes_over = has_known_layout(next.cond_init);
    next
}

/// Lets glibc create one condition variable of each kind, and checks the flags.
fn has_known_layout(
    init: unsafe extern "C" fn(*mut pthread_cond_t, *const pthread_condattr_t) -> c_int,
) -> bool {
    if size_of::<pthread_cond_t>() != 48 {
        return false;
    }
    [(false, false), (true, false), (false, true), (true, true)].into_iter().all(
        |(is_shared, is_monotonic)| {
            // SAFETY: both are ours; the calls write them, and the condition variable is never used.
            unsafe {
                let mut attributes: pthread_condattr_t = std::mem::zeroed();
                let mut cond: pthread_cond_t = std::mem::zeroed();
                libc::pthread_condattr_init(&mut attributes);
                if is_shared {
                    libc::pthread_condattr_setpshared(
                        &mut attributes,
                        libc::PTHREAD_PROCESS_SHARED,
                    );
                }
                if is_monotonic {
                    libc::pthread_condattr_setclock(&mut attributes, libc::CLOCK_MONOTONIC);
                }
                let is_made = init(&mut cond, &attributes) == 0;
                libc::pthread_condattr_destroy(&mut attributes);
                let expected =
                    u32::from(is_shared) * IS_SHARED + u32::from(is_monotonic) * IS_MONOTONIC;
                let words = std::ptr::from_ref(&cond).cast::<u32>();
                let others_are_zero =
                    (0..12).all(|word| word == FLAGS_WORD || words.add(word).read() == 0);
                is_made && flags(&mut cond) == expected && others_are_zero
            }
        },
    )
}
