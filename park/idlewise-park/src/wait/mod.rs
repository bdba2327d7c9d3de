//! Ways to wait: one trait, one file per platform, one list.
//!
//! A method knows only the CPU or the kernel, not why or for how long it waits. Each file says on which
//! machines it works, and asks CPUID, the auxiliary vector or the OS.

#[cfg(target_vendor = "apple")]
mod apple;
pub(crate) mod condvar;
#[cfg(target_os = "linux")]
mod futex;
pub(crate) mod monitor;
#[cfg(target_arch = "x86_64")]
pub mod mwaitx;
mod reach;
mod spin;
#[cfg(target_arch = "x86_64")]
pub mod waitpkg;
#[cfg(target_arch = "aarch64")]
mod wfe;
#[cfg(windows)]
mod windows;
pub(crate) mod word;

use idlewise_core::Doorbell;

#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub use crate::clock::trust_counter;
#[doc(hidden)]
pub use monitor::trust_again;

/// The encoding of `wfet x0`, given as a number because assemblers want the extension enabled for a whole
/// function. Public for tests, which disassemble it.
#[doc(hidden)]
pub const WFET_X0: u32 = 0xd503_1000;

/// One way to wait on a doorbell.
pub trait WaitMethod: Sync {
    /// Waits until the doorbell is rung or the clock reaches `until_ns`. May return spuriously; the caller
    /// looks and calls again.
    ///
    /// Only the doorbell's waiter calls it, while the word is POLLING, or SLEEPING if [`Method::is_sleep`].
    /// It writes neither.
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>);

    /// Ends the `wait` on a doorbell whose word is no longer SLEEPING. Does nothing if the store has ended
    /// it. The doorbell's memory may belong to somebody else by then, so this takes an address, and never
    /// reads it.
    fn wake(&self, _bell: *const Doorbell) {}
}

/// Every way to wait, shallowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// Looks again and again, with PAUSE, YIELD or ISB between looks. Works everywhere.
    Spin,
    /// Looks every few hundred nanoseconds, and rests with TPAUSE in C0.1 (x86, WAITPKG).
    Tpause,
    /// UMWAIT in C0.1: the CPU monitors the cache line (x86, WAITPKG).
    UmwaitC01,
    /// UMWAIT in C0.2: deeper, slower to leave (x86, WAITPKG, if the OS allows it).
    UmwaitC02,
    /// MWAITX in C1 (x86, AMD).
    Mwaitx,
    /// WFE: the core monitors the cache line; the kernel's event stream ends it now and then (Arm).
    Wfe,
    /// WFET: WFE with a deadline (Arm v8.7).
    Wfet,
    /// A sleep on the word in the kernel: futex (Linux), WaitOnAddress (Windows),
    /// os_sync_wait_on_address (macOS 14.4).
    Futex,
    /// A condition variable. Works everywhere.
    Condvar,
}

/// All methods with their names, shallowest first.
pub const METHODS: &[(Method, &str)] = &[
    (Method::Spin, "spin"),
    (Method::Tpause, "tpause"),
    (Method::UmwaitC01, "umwait-c01"),
    (Method::UmwaitC02, "umwait-c02"),
    (Method::Mwaitx, "mwaitx"),
    (Method::Wfe, "wfe"),
    (Method::Wfet, "wfet"),
    (Method::Futex, "futex"),
    (Method::Condvar, "condvar"),
];

impl Method {
    /// Returns its name in messages, statistics and `IDLEWISE_PARK_STATES`.
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|(method, _)| *method == self).map_or("?", |(_, name)| *name)
    }

    /// Returns the method with this name.
    pub fn from_name(name: &str) -> Option<Method> {
        METHODS.iter().find(|(_, known)| *known == name).map(|(method, _)| *method)
    }

    /// Returns whether the thread gives up its CPU. Such a state costs wakers a system call, and only such
    /// a state can be the last of a table.
    pub fn is_sleep(self) -> bool {
        matches!(self, Method::Futex | Method::Condvar)
    }

    /// Returns whether this machine and its OS support it.
    pub fn is_available(self) -> bool {
        self.unavailable_because().is_none()
    }

    /// Returns what is missing, if this machine or its OS does not support it.
    pub fn unavailable_because(self) -> Option<&'static str> {
        match self {
            Method::Spin | Method::Condvar => None,
            Method::Futex => word::missing(),
            _ if cfg!(miri) => Some("miri runs no CPU's own instructions"),
            #[cfg(target_arch = "x86_64")]
            Method::Tpause => waitpkg::missing(),
            #[cfg(target_arch = "x86_64")]
            Method::UmwaitC01 => waitpkg::missing().or_else(|| waitpkg::monitor_missing(true)),
            #[cfg(target_arch = "x86_64")]
            Method::UmwaitC02 => waitpkg::missing()
                .or_else(waitpkg::c02_missing)
                .or_else(|| waitpkg::monitor_missing(false)),
            #[cfg(target_arch = "x86_64")]
            Method::Mwaitx => mwaitx::missing(),
            #[cfg(target_arch = "aarch64")]
            Method::Wfe => wfe::missing(),
            #[cfg(target_arch = "aarch64")]
            Method::Wfet => wfe::wfet_missing(),
            #[allow(
                unreachable_patterns,
                reason = "which methods are left depends on the platform"
            )]
            _ => Some("not of this platform"),
        }
    }

    /// Whether the CPU monitors the doorbell's line, so that only a store or the deadline ends a wait.
    pub(crate) fn is_monitored(self) -> bool {
        matches!(
            self,
            Method::UmwaitC01 | Method::UmwaitC02 | Method::Mwaitx | Method::Wfe | Method::Wfet
        )
    }

    /// The implementation. On another platform it is that of the nearest portable method. A waiter gets a
    /// method from a table, which contains only available ones, or through `unsafe`.
    pub(crate) fn imp(self) -> &'static dyn WaitMethod {
        match self {
            #[cfg(target_arch = "x86_64")]
            Method::Tpause => &waitpkg::TPAUSE,
            #[cfg(target_arch = "x86_64")]
            Method::UmwaitC01 => &waitpkg::UMWAIT_C01,
            #[cfg(target_arch = "x86_64")]
            Method::UmwaitC02 => &waitpkg::UMWAIT_C02,
            #[cfg(target_arch = "x86_64")]
            Method::Mwaitx => &mwaitx::MWAITX,
            #[cfg(target_arch = "aarch64")]
            Method::Wfe => &wfe::Wfe,
            #[cfg(target_arch = "aarch64")]
            Method::Wfet => &wfe::Wfet,
            Method::Futex => word::Reach::Process.sleep(),
            method if method.is_sleep() => &condvar::Buckets,
            _ => &spin::Spin,
        }
    }
}

/// Calls [`monitor::lasts`] for a method, for tests that emulate it. `false` for one that monitors nothing.
///
/// # Safety
/// As for [`Method`]: the CPU must execute its instructions, or trap so that something emulates them.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub unsafe fn monitor_lasts(method: Method) -> bool {
    // SAFETY: the caller guarantees that the instructions exist.
    unsafe {
        match method {
            Method::UmwaitC01 => monitor::lasts(&waitpkg::UMWAIT_C01),
            Method::UmwaitC02 => monitor::lasts(&waitpkg::UMWAIT_C02),
            Method::Mwaitx => monitor::lasts(&mwaitx::MWAITX),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waker's call may come after the waiter took the ring, ran and freed the doorbell. Miri would
    /// object to a reference there.
    #[test]
    fn a_call_that_comes_late_reads_nothing() {
        let bell = Box::new(Doorbell::new());
        let address = std::ptr::from_ref(&*bell);
        drop(bell);
        for (method, _) in METHODS.iter().filter(|(method, _)| method.is_sleep()) {
            method.imp().wake(address);
        }
    }
}
