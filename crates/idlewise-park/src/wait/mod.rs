//! Ways to wait: one trait, one file per platform, one list.
//!
//! A method knows the CPU or the kernel and nothing else: not why it waits, nor for how long it
//! should. Each file says on which machines it works and asks CPUID, the auxiliary vector or the OS.

#[cfg(target_vendor = "apple")]
mod apple;
pub(crate) mod condvar;
#[cfg(target_os = "linux")]
mod futex;
pub(crate) mod monitor;
#[cfg(target_arch = "x86_64")]
pub mod mwaitx;
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
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
pub use monitor::monitor_lasts;
#[doc(hidden)]
pub use monitor::trust_again;

/// The number of `wfet x0`: written as such, because assemblers want the extension switched on for
/// a whole function. For tests, which disassemble it.
#[doc(hidden)]
pub const WFET_X0: u32 = 0xd503_1000;

/// Waits on a doorbell in one way.
pub trait WaitMethod: Sync {
    /// Waits until the doorbell is rung or the clock says `until_ns`, but may
    /// return earlier for no reason: the caller looks and calls again.
    ///
    /// Called by the doorbell's waiter only, with the word POLLING, or SLEEPING if
    /// [`Method::is_sleep`]. It writes neither.
    fn wait(&self, bell: &Doorbell, until_ns: Option<u64>);

    /// Ends the `wait` of a doorbell whose word is not SLEEPING any more. Does nothing where the
    /// store did it. The doorbell's memory may be another's by then, so this is an address and no
    /// more: it is never read.
    fn wake(&self, _bell: *const Doorbell) {}
}

/// Every way to wait that exists, shallowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// Looks again and again: PAUSE, YIELD or ISB between looks. Works everywhere.
    Spin,
    /// Looks every few hundred nanoseconds and rests with TPAUSE, in C0.1 (x86, WAITPKG).
    Tpause,
    /// UMWAIT in C0.1: the CPU watches the cache line (x86, WAITPKG).
    UmwaitC01,
    /// UMWAIT in C0.2: deeper, slower to leave (x86, WAITPKG, if the OS allows it).
    UmwaitC02,
    /// MWAITX in C1 (x86, AMD).
    Mwaitx,
    /// WFE: the core watches the cache line; the kernel's event stream ends it now and then (Arm).
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
    /// Its name in messages, statistics and `IDLEWISE_PARK_STATES`.
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|(method, _)| *method == self).map_or("?", |(_, name)| *name)
    }

    /// The method of this name.
    pub fn from_name(name: &str) -> Option<Method> {
        METHODS.iter().find(|(_, known)| *known == name).map(|(method, _)| *method)
    }

    /// Whether the thread gives up its CPU: such a state costs wakers a call, and only such a
    /// state can be the last one of a table.
    pub fn is_sleep(self) -> bool {
        matches!(self, Method::Futex | Method::Condvar)
    }

    /// Whether this machine and its OS have it.
    pub fn is_available(self) -> bool {
        self.unavailable_because().is_none()
    }

    /// What is missing, if this machine or its OS does not have it.
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

    /// Whether the CPU watches the doorbell's line, so that a wait ends by a store or its deadline.
    pub(crate) fn is_monitored(self) -> bool {
        matches!(
            self,
            Method::UmwaitC01 | Method::UmwaitC02 | Method::Mwaitx | Method::Wfe | Method::Wfet
        )
    }

    /// How it is done. One of another platform is done by the nearest portable one. Whoever waits by it
    /// has it from a table, which has it only where it is available, or by `unsafe`.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A waker's call may come when the waiter took the ring, ran and freed the doorbell. Miri objects
    /// to a reference that nobody may read.
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
