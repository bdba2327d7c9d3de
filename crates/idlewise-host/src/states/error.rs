//! Why idle states cannot be measured, in one line that says what to do.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use rustix::io::Errno;

use crate::Root;
use crate::energy::EnergyError;
use crate::ipi::IpiError;
use crate::topology::is_virtual_machine;

/// Why idle states cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatesError {
    /// CPUs, states, or restoring them.
    #[error(transparent)]
    Ipi(#[from] IpiError),
    /// Energy cannot be read.
    #[error(transparent)]
    Energy(#[from] EnergyError),
    /// There is no cpuidle driver in a virtual machine.
    #[error(
        "no idle state can be measured: this virtual machine has no cpuidle driver, its CPUs halt and the host \
         decides the rest; measure on the host, or what a wake-up costs here: idlewise measure ipi --by user-space"
    )]
    NoDriverInGuest,
    /// There is no cpuidle driver.
    #[error(
        "no idle state can be measured: no cpuidle driver is in place; boot without cpuidle.off=1 and idle=, or load \
         one (kernel/README.md). What a wake-up costs without: idlewise measure ipi --by user-space"
    )]
    NoDriver,
    /// There is only the polling state.
    #[error(
        "CPU {cpu} has only {name}, which is what other states are compared with: there is nothing to measure"
    )]
    OnlyPolls {
        /// The CPU.
        cpu: u16,
        /// The state.
        name: String,
    },
    /// There is no polling state to compare IPIs with.
    #[error(
        "CPU {cpu} has no polling state, and what an IPI takes out of its other states can be compared with \
         nothing else; wake it by futex: --by futex"
    )]
    NoPolling {
        /// The CPU.
        cpu: u16,
    },
    /// Every state is disabled or forbidden.
    #[error(
        "CPU {cpu}: every idle state is disabled or forbidden by a latency limit; enable one (cpuidle/state*/disable) \
         or name one by --state"
    )]
    NothingToHold {
        /// The CPU.
        cpu: u16,
    },
    /// The process may not run on a CPU.
    #[error(
        "this process may not run on CPU {cpu} (affinity or cpuset); name another by --target, or change that \
         (taskset, cpuset.cpus)"
    )]
    NotAllowed {
        /// The CPU.
        cpu: u16,
    },
    /// A setting cannot be changed.
    #[error("{}: {source}; nothing was changed: {advice}", path.display())]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
}

impl StatesError {
    pub(super) fn no_driver(root: &Root) -> Self {
        match is_virtual_machine(root) {
            true => StatesError::NoDriverInGuest,
            false => StatesError::NoDriver,
        }
    }

    pub(super) fn not_writable(path: PathBuf, source: io::Error) -> Self {
        let advice = match source.kind() {
            ErrorKind::PermissionDenied => "run it as root, who alone can hold idle states",
            ErrorKind::NotFound => "run it again, a CPU went offline or the driver changed",
            _ if source.raw_os_error() == Some(Errno::ROFS.raw_os_error()) => {
                "run it on the host, because sysfs is read-only here, as in containers"
            }
            _ => "idle states cannot be held here",
        };
        StatesError::NotWritable { path, source, advice }
    }
}
