//! Why something does not work, from the error of the command that does it.

use std::fmt::Display;
use std::io::{self, ErrorKind};

use idlewise_host::energy::EnergyError;
use idlewise_host::ipi::IpiError;
use idlewise_host::settings::SettingsError;
use idlewise_host::states::StatesError;
use idlewise_host::surroundings::{Capability, Rights, lockdown};
use idlewise_host::{CountsError, RecordError, Root, is_virtual_machine};
use rustix::io::Errno;

/// How the kernel modules get onto a machine that has its kernel's headers.
pub const BUILD_MODULES: &str = "make -C kernel deb, then install that package (kernel/README.md)";

/// Who asks: what mends a refusal depends on it.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub root: &'a Root,
    pub is_root: bool,
    pub rights: Rights,
}

/// Why something does not work.
#[derive(Clone, Debug)]
pub struct Cause {
    /// In a few words.
    pub why: String,
    /// A command or an action.
    pub mend: String,
    /// Whether the system refused for lack of rights.
    pub is_denied: bool,
    /// The command's own message.
    pub message: Option<String>,
}

impl Cause {
    pub fn new(why: impl Into<String>, mend: impl Into<String>) -> Self {
        Cause { why: why.into(), mend: mend.into(), is_denied: false, message: None }
    }

    fn denied() -> Self {
        Cause { is_denied: true, ..Cause::new("", "") }
    }

    /// Takes a message apart: messages say what is wrong, and after a semicolon what to do.
    fn of_message(message: &impl Display) -> Self {
        let message = message.to_string();
        let (why, mend) = message.split_once("; ").unwrap_or((&message, "see docs/doctor.md"));
        Cause::new(why, mend)
    }
}

/// An error of a command.
pub trait Explained: Display {
    /// Why, and what mends it.
    fn explained(&self, asker: &Asker<'_>) -> Cause;

    /// The same, with the command's message.
    fn cause(&self, asker: &Asker<'_>) -> Cause {
        Cause { message: Some(self.to_string()), ..self.explained(asker) }
    }
}

impl Asker<'_> {
    fn no_driver(&self) -> Cause {
        Cause::new(
            "no cpuidle driver is active",
            match is_virtual_machine(self.root) {
                true => "run idlewise on the host, or study recordings here: idlewise replay",
                false => {
                    "boot without cpuidle.off=1 and idle=, or load idlewise_idle (kernel/README.md)"
                }
            },
        )
    }

    fn no_sysfs() -> Cause {
        Cause::new("/sys lists no CPUs", "sudo mount -t sysfs sysfs /sys")
    }

    /// A command that needs the right to mount.
    fn mount(&self, command: &str) -> String {
        match self.is_root && !self.rights.has(Capability::SysAdmin) {
            true => format!("on the host: sudo {command}"),
            false => format!("sudo {command}"),
        }
    }

    fn io(&self, source: &io::Error, message: &impl Display) -> Cause {
        let is_read_only = source.raw_os_error() == Some(Errno::ROFS.raw_os_error());
        match source.kind() {
            _ if is_read_only => Cause::new(
                "it is mounted read-only, as in containers",
                "run it on the host, or in a privileged container",
            ),
            ErrorKind::PermissionDenied if self.is_root && lockdown(self.root).is_some() => {
                Cause::new("the kernel is locked down", "boot without Secure Boot and lockdown=")
            }
            ErrorKind::PermissionDenied => Cause::denied(),
            _ => Cause::of_message(message),
        }
    }
}

impl Explained for CountsError {
    fn explained(&self, asker: &Asker<'_>) -> Cause {
        match self {
            CountsError::NoDriver { .. } => asker.no_driver(),
            CountsError::NoStates { driver, .. } => Cause::new(
                format!("{driver} offers no idle states"),
                "boot without idle= and with a larger max_cstate= (/proc/cmdline has them)",
            ),
            CountsError::NoCpus { .. } | CountsError::NoSysfs { .. } => Asker::no_sysfs(),
            CountsError::Unreadable { path, source } => Cause::new(
                format!("{} cannot be read", path.display()),
                match source.kind() {
                    ErrorKind::NotFound => {
                        "use a kernel that has it; to a copy of a machine, add it"
                    }
                    _ => "see who hides it: a container or a security policy",
                },
            ),
            _ => Cause::of_message(self),
        }
    }
}

impl Explained for RecordError {
    fn explained(&self, asker: &Asker<'_>) -> Cause {
        match self {
            RecordError::NotMounted => Cause::new(
                "tracefs is not mounted",
                asker.mount("mount -t tracefs nodev /sys/kernel/tracing"),
            ),
            RecordError::NoTracefs => Cause::new(
                "there is no tracefs",
                "use a kernel with CONFIG_FTRACE; if this is a container, record on the host",
            ),
            RecordError::NoCpuIdle => Cause::new(
                "the kernel has no power:cpu_idle event",
                "use a kernel with CONFIG_CPU_IDLE or CONFIG_CPU_FREQ",
            ),
            RecordError::NoCpus => Asker::no_sysfs(),
            RecordError::NotPermitted { source, .. } | RecordError::Tracefs { source, .. } => {
                asker.io(source, self)
            }
            _ => Cause::of_message(self),
        }
    }
}

impl Explained for SettingsError {
    fn explained(&self, asker: &Asker<'_>) -> Cause {
        match self {
            SettingsError::NotRoot => Cause::denied(),
            SettingsError::NoDriver => asker.no_driver(),
            SettingsError::OneState { state } => Cause::new(
                format!("{state} is the only idle state, so there is no choice"),
                "load a driver with more states (kernel/README.md)",
            ),
            SettingsError::NoCpus { .. } => Asker::no_sysfs(),
            SettingsError::NoFile { path, why } => {
                let mend = match path.ends_with("current_governor") {
                    true => "use Linux 5.9 or later, or boot with cpuidle_sysfs_switch",
                    false => {
                        "use a kernel with CONFIG_PM; if this is a container, set it on the host"
                    }
                };
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let why = why.split([',', ';', ':']).next().unwrap_or(why);
                Cause::new(format!("no {file}: {why}"), mend)
            }
            SettingsError::File { source, .. } => asker.io(source, self),
            _ => Cause::of_message(self),
        }
    }
}

impl Explained for EnergyError {
    fn explained(&self, asker: &Asker<'_>) -> Cause {
        match self {
            EnergyError::Absent => Cause::new(
                "there is neither RAPL nor a battery",
                match is_virtual_machine(asker.root) {
                    true => "measure on the host: hypervisors hide RAPL",
                    false => "sudo modprobe intel_rapl_msr (x86 only; else use a power meter)",
                },
            ),
            EnergyError::NotPermitted { source, .. } | EnergyError::Read { source, .. } => {
                asker.io(source, self)
            }
            EnergyError::NotDischarging { battery, status } => {
                Cause::new(format!("the battery {battery} is {status}"), "unplug the machine")
            }
            _ => Cause::of_message(self),
        }
    }
}

impl Explained for IpiError {
    fn explained(&self, asker: &Asker<'_>) -> Cause {
        match self {
            IpiError::NoDebugfs => Cause::new(
                "debugfs is not mounted",
                asker.mount("mount -t debugfs none /sys/kernel/debug"),
            ),
            IpiError::NotLoaded => {
                Cause::new("idlewise_bench is not loaded", "sudo modprobe idlewise_bench")
            }
            IpiError::NotInstalled { .. } => {
                Cause::new("idlewise_bench is not installed", BUILD_MODULES)
            }
            IpiError::NotPermitted { source, .. }
            | IpiError::LockedDown { source, .. }
            | IpiError::Force { source, .. } => asker.io(source, self),
            IpiError::UnstableTsc { .. } => Cause::new(
                "the kernel has given up the TSC",
                "see `dmesg | grep -i tsc`; or measure from user space: --by user-space",
            ),
            IpiError::OneCpu { cpu } => {
                Cause::new(format!("CPU {cpu} is the only one online"), "put another CPU online")
            }
            IpiError::NoCpus => Asker::no_sysfs(),
            IpiError::Settings(error) => error.explained(asker),
            _ => Cause::of_message(self),
        }
    }
}

impl Explained for StatesError {
    fn explained(&self, asker: &Asker<'_>) -> Cause {
        match self {
            StatesError::Ipi(error) => error.explained(asker),
            StatesError::Energy(error) => error.explained(asker),
            StatesError::NoDriver | StatesError::NoDriverInGuest => asker.no_driver(),
            StatesError::NotWritable { source, .. } => asker.io(source, self),
            _ => Cause::of_message(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(root: &Root, is_root: bool) -> Asker<'_> {
        Asker { root, is_root, rights: Rights::read(root) }
    }

    /// Tests of the command cannot mount anything, so what the kernel answers is made here.
    #[test]
    fn a_read_only_file_system_is_no_lack_of_rights() {
        let root = Root::at(std::path::Path::new("/nowhere"));
        let failed = |errno: Errno| SettingsError::File {
            path: "/sys/devices/system/cpu/cpu0/cpuidle/state0/disable".into(),
            source: errno.into(),
        };
        for is_root in [false, true] {
            let cause = failed(Errno::ROFS).cause(&asker(&root, is_root));
            assert!(!cause.is_denied && cause.why.contains("read-only"), "{cause:?}");
            assert!(failed(Errno::ACCESS).cause(&asker(&root, is_root)).is_denied);
        }
        let locked = StatesError::NotWritable {
            path: "/sys".into(),
            source: Errno::ROFS.into(),
            advice: "",
        };
        assert!(locked.cause(&asker(&root, true)).why.contains("read-only"));
    }

    #[test]
    fn lockdown_explains_what_even_root_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sys/kernel/security/lockdown");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let root = Root::at(folder.path());
        let error = IpiError::LockedDown { path: "/sys".into(), source: Errno::PERM.into() };
        for (levels, is_locked) in
            [("[none] integrity", false), ("none [integrity] confidentiality", true)]
        {
            std::fs::write(&file, levels).unwrap();
            let cause = error.cause(&asker(&root, true));
            assert_eq!(cause.why.contains("locked down"), is_locked, "{cause:?}");
            assert_eq!(cause.is_denied, !is_locked);
        }
        assert!(error.cause(&asker(&root, false)).is_denied, "root may know more");
    }
}
