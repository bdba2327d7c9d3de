//! Why a measurement is impossible, in one line that says what to do.

use std::io;
use std::path::PathBuf;

use idlewise_machine::state_hint;

use super::SamplesError;
use crate::settings::SettingsError;

/// Why a measurement is impossible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IpiError {
    /// The module is there, and its files are not: debugfs is not mounted where they are looked for.
    #[error(
        "the kernel module idlewise_bench is loaded, and its files are not in /sys/kernel/debug; as root: \
         mount -t debugfs none /sys/kernel/debug"
    )]
    NoDebugfs,
    /// The module is installed but not loaded.
    #[error("the kernel module idlewise_bench is not loaded; as root: modprobe idlewise_bench")]
    NotLoaded,
    /// The running kernel has no such module.
    #[error(
        "the kernel module idlewise_bench is not installed for kernel {kernel}; install the \
         package idlewise-dkms (kernel/README.md), then as root: modprobe idlewise_bench"
    )]
    NotInstalled {
        /// The running kernel.
        kernel: String,
    },
    /// We have no permission to use debugfs.
    #[error("{}: {source}; run it as root", path.display())]
    NotPermitted {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel denies even root access to debugfs.
    #[error(
        "{}: {source}; the kernel is locked down (Secure Boot; /sys/kernel/security/lockdown says how \
         far), which closes debugfs: measure with Secure Boot off", path.display()
    )]
    LockedDown {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another measurement is running. It would mistake our forced states for the machine's.
    #[error("another `idlewise measure` is running; wait until it ends")]
    Busy,
    /// The kernel does not trust the TSC.
    #[error(
        "the kernel has given up the TSC ({}: {found}), so no span between two CPUs can be measured; \
         `dmesg | grep -i tsc` says why", file.display()
    )]
    UnstableTsc {
        /// The list of clocks.
        file: PathBuf,
        /// Its content.
        found: String,
    },
    /// A CPU is offline.
    #[error(
        "CPU {cpu} is not online ({online} are); name another, or as root: \
         echo 1 > /sys/devices/system/cpu/cpu{cpu}/online"
    )]
    Offline {
        /// The CPU.
        cpu: u16,
        /// The CPUs that are online.
        online: String,
    },
    /// A CPU cannot wake itself.
    #[error("source and target are both CPU {cpu}; name two by --source and --target")]
    SameCpu {
        /// The CPU.
        cpu: u16,
    },
    /// There is no other CPU to wake.
    #[error("CPU {cpu} is the only one online; waking one from another needs two")]
    OneCpu {
        /// The CPU.
        cpu: u16,
    },
    /// sysfs names no CPU.
    #[error("/sys/devices/system/cpu/online names no CPU; mount sysfs on /sys")]
    NoCpus,
    /// The target does not have the state.
    #[error("CPU {cpu} has no idle state {name}; {}it has {states}", state_hint(name, states.split(", ")))]
    NoSuchState {
        /// The CPU.
        cpu: u16,
        /// The name.
        name: String,
        /// The states that it has.
        states: String,
    },
    /// There are no states to force.
    #[error(
        "CPU {cpu} has no idle states to force, for no cpuidle driver is in place; measure what the \
         kernel does without one: --state configured"
    )]
    NoStates {
        /// The CPU.
        cpu: u16,
    },
    /// A state cannot be forced.
    #[error("{}: {source}; the idle state can't be forced{}", path.display(), who_may_force(source))]
    Force {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The settings that force a state cannot be changed.
    #[error("{0}")]
    Settings(SettingsError),
    /// The module rejected the request.
    #[error("{}: {source}; {}", path.display(), kernel_words(kernel_line.as_deref()))]
    Refused {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// The module's message.
        kernel_line: Option<String>,
    },
    /// The module's output is not as expected.
    #[error("{}: {source}", path.display())]
    Samples {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SamplesError,
    },
    /// Another program used the module at the same time.
    #[error(
        "{}: {found_count} wakes, measured or given up, where {expected_count} were asked for; somebody \
         else used idlewise_bench at the same time: run it again", path.display()
    )]
    WrongCount {
        /// The file.
        path: PathBuf,
        /// The number of wakes found.
        found_count: u64,
        /// The number of wakes requested.
        expected_count: u64,
    },
    /// The target is busy with other work.
    #[error(
        "CPU {cpu} did not go idle in {given_up_count} of {tried_count} tries; free it of other work \
         (taskset, isolcpus), or choose another by --target"
    )]
    NeverIdle {
        /// The CPU.
        cpu: u16,
        /// Tries without success.
        given_up_count: u64,
        /// All tries.
        tried_count: u64,
    },
    /// The kernel's counts of idle states cannot be read any more.
    #[error("{source}; its CPU went offline or the driver changed meanwhile; run it again")]
    Counts {
        /// What the system said, with the file.
        source: io::Error,
    },
    /// A signal or the caller stopped it.
    #[error("stopped before the end; the idle states are enabled and disabled as they were")]
    Stopped,
    /// The machine's settings could not be restored.
    #[error("{}{}", before(cause.as_deref()), not_restored(files))]
    NotRestored {
        /// What to write to which file.
        files: Vec<(PathBuf, String)>,
        /// The error that came before.
        cause: Option<Box<IpiError>>,
    },
}

impl From<SettingsError> for IpiError {
    fn from(error: SettingsError) -> Self {
        match error {
            SettingsError::File { path, source } => IpiError::Force { path, source },
            error => IpiError::Settings(error),
        }
    }
}

fn who_may_force(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => ": run it as root, or force none: --state configured",
        _ => "",
    }
}

fn kernel_words(line: Option<&str>) -> String {
    line.map_or_else(|| "`dmesg` may say why".to_owned(), |line| format!("the kernel says: {line}"))
}

fn before(cause: Option<&IpiError>) -> String {
    cause.map_or_else(String::new, |cause| format!("{cause}; and "))
}

/// Describes what was not restored, with the commands that restore it.
pub(super) fn not_restored(files: &[(PathBuf, String)]) -> String {
    let echo = |(path, value): &(PathBuf, String)| format!("echo {value} > {}", path.display());
    let echoes: Vec<String> = files.iter().map(echo).collect();
    format!(
        "the idle states are not as they were; as root: idlewise set revert, or {}",
        echoes.join("; ")
    )
}
