//! Why something does not work, from the error of the command that does it.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

use idlewise_host::energy::EnergyError;
use idlewise_host::ipi::IpiError;
use idlewise_host::settings::{SettingsError, machine_limit_minor};
use idlewise_host::states::StatesError;
use idlewise_host::surroundings::{Capability, Rights, container, lockdown};
use idlewise_host::{CountsError, CountsReader, RecordError, Root, is_virtual_machine};
use idlewise_plugin::PluginError;
use rustix::io::Errno;

/// How to get the kernel modules.
pub const GET_MODULES: &str = "install the package idlewise-dkms";
/// What to do about a process that may not run on all CPUs.
pub const MORE_CPUS: &str = "allow it more CPUs (taskset, cpuset.cpus)";
/// How to get rid of a lockdown.
pub const UNLOCK: &str = "boot without Secure Boot and lockdown=";

/// Who asks: how to fix a refusal depends on it.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub root: &'a Root,
    pub is_root: bool,
    pub rights: Rights,
}

/// What kind of obstacle it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The machine lacks something.
    Lack,
    /// The system refused for lack of rights.
    Denied,
    /// It cannot be found out.
    Unknown,
}

/// Why something does not work.
#[derive(Clone, Debug)]
pub struct Cause {
    /// In a few words.
    pub why: String,
    /// A command or an action.
    pub mend: String,
    pub kind: Kind,
    /// The command's own message.
    pub message: Option<String>,
}

impl Cause {
    pub fn new(why: impl Into<String>, mend: impl Into<String>) -> Self {
        Cause { why: why.into(), mend: mend.into(), kind: Kind::Lack, message: None }
    }

    pub fn unknown(why: impl Into<String>, mend: impl Into<String>) -> Self {
        Cause { kind: Kind::Unknown, ..Cause::new(why, mend) }
    }

    pub fn denied() -> Self {
        Cause { kind: Kind::Denied, ..Cause::new("", "") }
    }

    pub fn is_denied(&self) -> bool {
        self.kind == Kind::Denied
    }

    /// Takes a message apart: messages say what is wrong, and after a semicolon what to do.
    fn of_message(message: &impl Display) -> Self {
        let message = message.to_string();
        let (why, mend) =
            message.split_once("; ").unwrap_or((&message, "run it: its message may say more"));
        let unchanged = ["nothing is changed: ", "nothing was changed: "];
        let mend = unchanged.iter().find_map(|words| mend.strip_prefix(words)).unwrap_or(mend);
        Cause::new(why, mend)
    }
}

/// An error of a command.
pub trait Explained: Display {
    /// Why, and how to fix it.
    fn explained(&self, asker: &Asker<'_>) -> Cause;

    /// The same, with the command's message.
    fn cause(&self, asker: &Asker<'_>) -> Cause {
        Cause { message: Some(self.to_string()), ..self.explained(asker) }
    }
}

impl Asker<'_> {
    /// A command line that only root of the whole machine may run.
    pub fn as_root(&self, command: &str) -> String {
        let Asker { is_root, rights, .. } = self;
        let lacks_rights = *is_root && rights.are_known() && !rights.has(Capability::SysAdmin);
        match lacks_rights || rights.are_of_user_namespace() {
            true => format!("on the host: sudo {command}"),
            false => sudo(self.is_root, command),
        }
    }

    /// Whether the machine may have x86 CPUs.
    pub fn may_be_x86(&self) -> bool {
        let arch = self.root.text("proc/sys/kernel/arch");
        arch.is_none_or(|arch| arch == "x86_64" || arch == "i686")
    }

    fn no_driver(&self) -> Cause {
        let driver = self.root.text("sys/devices/system/cpu/cpuidle/current_driver");
        let why = match driver.filter(|driver| driver != "none") {
            Some(driver) => format!("the driver {driver} offers no idle states"),
            None => "no cpuidle driver is active".to_owned(),
        };
        let line = self.root.text("proc/cmdline").unwrap_or_default();
        let is_in_the_way = |word: &&str| {
            let name = word.split_once('=').map_or(*word, |(name, _)| name);
            ["cpuidle.off", "idle"].contains(&name) || name.ends_with(".max_cstate")
        };
        let parameters: Vec<&str> = line.split_whitespace().filter(is_in_the_way).collect();
        let mend = if is_virtual_machine(self.root) {
            "run idlewise on the host; replay works here too".to_owned()
        } else if !parameters.is_empty() {
            format!("boot without {}", parameters.join(" "))
        } else if self.may_be_x86() {
            format!("load the driver idlewise_idle: {GET_MODULES}")
        } else {
            "use a kernel with an idle driver for this machine".to_owned()
        };
        Cause::new(why, mend)
    }

    fn no_sysfs(&self) -> Cause {
        Cause::new("/sys lists no CPUs", self.as_root("mount -t sysfs sysfs /sys"))
    }

    fn too_many_files(&self) -> Cause {
        let count = CountsReader::file_count(self.root, &self.root.present_cpus());
        Cause::new("too many open files", format!("ulimit -n {count}"))
    }

    /// Where the file system of a file is mounted, unless that is `/` or unknown.
    fn mount_of(&self, path: &Path) -> Option<String> {
        let path = Path::new("/").join(path);
        let mounts = self.root.text("proc/mounts")?;
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let above = points.filter(|point| *point != "/" && path.starts_with(point));
        above.max_by_key(|point| point.len()).map(str::to_owned)
    }

    fn io(&self, path: &Path, source: &io::Error, message: &impl Display) -> Cause {
        if source.raw_os_error() == Some(Errno::MFILE.raw_os_error()) {
            return self.too_many_files();
        }
        if source.raw_os_error() == Some(Errno::ROFS.raw_os_error()) {
            let path = path.strip_prefix(self.root.path("")).unwrap_or(path);
            let top = path.components().find_map(|part| match part {
                Component::Normal(name) => name.to_str(),
                _ => None,
            });
            let top = top.unwrap_or_default();
            let mount = self.mount_of(path).unwrap_or_else(|| format!("/{top}"));
            return Cause::new(
                format!("{mount} is mounted read-only"),
                match top {
                    "sys" if container(self.root).is_none() => {
                        self.as_root(&format!("mount -o remount,rw {mount}"))
                    }
                    "sys" => "run it on the host, or in a privileged container".to_owned(),
                    _ => format!("make /{top} writable; for a container: --tmpfs /{top}"),
                },
            );
        }
        match source.kind() {
            ErrorKind::PermissionDenied if self.is_root && lockdown(self.root).is_some() => {
                Cause::new("the kernel is locked down", UNLOCK)
            }
            ErrorKind::PermissionDenied => Cause::denied(),
            _ => Cause::of_message(message),
        }
    }
}

/// A command line for root, who may be the one who asks.
fn sudo(is_root: bool, command: &str) -> String {
    match is_root {
        true => command.to_owned(),
        false => format!("sudo {command}"),
    }
}

/// What can be installed.
#[derive(Clone, Copy)]
pub enum Package<'a> {
    /// A C compiler.
    Compiler,
    /// The headers of a kernel.
    Headers(&'a str),
}

/// A command that installs it, if the distribution is known.
pub fn install(root: &Root, is_root: bool, package: Package<'_>) -> String {
    let release = ["etc/os-release", "usr/lib/os-release"].into_iter().find_map(|it| root.text(it));
    let release = release.unwrap_or_default();
    let values = release.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        ["ID", "ID_LIKE"].contains(&key).then(|| value.trim_matches(['"', '\'']))
    });
    let words = values.flat_map(str::split_whitespace);
    let known = words.into_iter().find_map(|word| {
        Some(match word {
            "debian" | "ubuntu" => ("apt install", "gcc libc6-dev", "linux-headers-"),
            "fedora" | "rhel" => ("dnf install", "gcc glibc-devel", "kernel-devel-"),
            "suse" | "opensuse" => ("zypper install", "gcc glibc-devel", "kernel-default-devel"),
            "arch" => ("pacman -S", "gcc", "linux-headers"),
            "alpine" => ("apk add", "gcc musl-dev", "linux-lts-dev"),
            _ => return None,
        })
    });
    match (known, package) {
        (Some((command, compiler, _)), Package::Compiler) => {
            sudo(is_root, &format!("{command} {compiler}"))
        }
        (Some((command, _, headers)), Package::Headers(kernel)) => {
            let kernel = if headers.ends_with('-') { kernel } else { "" };
            sudo(is_root, &format!("{command} {headers}{kernel}"))
        }
        (None, Package::Compiler) => "install a C compiler and the C library's headers".to_owned(),
        (None, Package::Headers(kernel)) => format!("install the headers of Linux {kernel}"),
    }
}

impl Explained for CountsError {
    fn explained(&self, asker: &Asker<'_>) -> Cause {
        match self {
            CountsError::NoDriver { .. } | CountsError::NoStates { .. } => asker.no_driver(),
            CountsError::NoCpus { .. } | CountsError::NoSysfs { .. } => asker.no_sysfs(),
            CountsError::Unreadable { source, .. }
                if source.raw_os_error() == Some(Errno::MFILE.raw_os_error()) =>
            {
                asker.too_many_files()
            }
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
                asker.as_root("mount -t tracefs nodev /sys/kernel/tracing"),
            ),
            RecordError::NoTracefs => Cause::new(
                "there is no tracefs",
                "use a kernel with CONFIG_FTRACE; if this is a container, record on the host",
            ),
            RecordError::NoCpuIdle => Cause::new(
                "the kernel has no power:cpu_idle event",
                "use a kernel with CONFIG_CPU_IDLE or CONFIG_CPU_FREQ",
            ),
            RecordError::NoCpus => asker.no_sysfs(),
            RecordError::NotPermitted { path, source } | RecordError::Tracefs { path, source } => {
                asker.io(path, source, self)
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
                "load a driver with more states: idlewise-dkms has one for x86",
            ),
            SettingsError::NoCpus { .. } => asker.no_sysfs(),
            SettingsError::NoFile { path, why } => {
                let minor =
                    path.ends_with("cpu_dma_latency").then(|| machine_limit_minor(asker.root));
                let mend = if let Some(minor) = minor.flatten() {
                    asker.as_root(&format!(
                        "mknod -m 600 /dev/cpu_dma_latency c 10 {minor}; for a container: --device \
                         /dev/cpu_dma_latency"
                    ))
                } else if path.ends_with("current_governor") {
                    "use Linux 5.9 or later, or boot with cpuidle_sysfs_switch".to_owned()
                } else {
                    "use a kernel with CONFIG_PM; if this is a container, set it on the host"
                        .to_owned()
                };
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let why = why.split([',', ';', ':']).next().unwrap_or(why);
                Cause::new(format!("no {file}: {why}"), mend)
            }
            SettingsError::File { path, source } => asker.io(path, source, self),
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
                    true => "measure on the host: hypervisors hide RAPL".to_owned(),
                    false if asker.may_be_x86() => asker.as_root("modprobe intel_rapl_msr"),
                    false => "use a power meter".to_owned(),
                },
            ),
            EnergyError::NotPermitted { path, source } | EnergyError::Read { path, source } => {
                asker.io(path, source, self)
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
                asker.as_root("mount -t debugfs none /sys/kernel/debug"),
            ),
            IpiError::NotLoaded => {
                Cause::new("idlewise_bench is not loaded", asker.as_root("modprobe idlewise_bench"))
            }
            IpiError::NotInstalled { .. } => {
                Cause::new("idlewise_bench is not installed", GET_MODULES)
            }
            IpiError::NotPermitted { path, source }
            | IpiError::LockedDown { path, source }
            | IpiError::Force { path, source } => asker.io(path, source, self),
            IpiError::UnstableTsc { .. } => Cause::new(
                "the kernel has given up the TSC",
                "see `dmesg | grep -i tsc`; or measure from user space: --by user-space",
            ),
            IpiError::OneCpu { cpu } => {
                Cause::new(format!("CPU {cpu} is the only one online"), "put another CPU online")
            }
            IpiError::NoCpus => asker.no_sysfs(),
            IpiError::Settings(error) => error.explained(asker),
            _ => Cause::of_message(self),
        }
    }
}

impl Explained for PluginError {
    fn explained(&self, _: &Asker<'_>) -> Cause {
        Cause::of_message(self)
    }
}

impl Explained for StatesError {
    fn explained(&self, asker: &Asker<'_>) -> Cause {
        match self {
            StatesError::Ipi(error) => error.explained(asker),
            StatesError::Energy(error) => error.explained(asker),
            StatesError::NoDriver | StatesError::NoDriverInGuest => asker.no_driver(),
            StatesError::OnlyPolls { name, .. } => {
                SettingsError::OneState { state: name.clone() }.explained(asker)
            }
            StatesError::NotAllowed { cpu } => {
                Cause::new(format!("this process may not run on CPU {cpu}"), MORE_CPUS)
            }
            StatesError::NotWritable { path, source, .. } => asker.io(path, source, self),
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
            assert!(!cause.is_denied() && cause.why.contains("read-only"), "{cause:?}");
            assert!(failed(Errno::ACCESS).cause(&asker(&root, is_root)).is_denied());
        }
        let locked = StatesError::NotWritable {
            path: "/sys".into(),
            source: Errno::ROFS.into(),
            advice: "",
        };
        let cause = locked.cause(&asker(&root, true));
        assert_eq!(cause.why, "/sys is mounted read-only");
        assert_eq!(cause.mend, "mount -o remount,rw /sys");
        let run = SettingsError::File { path: "/nowhere/run".into(), source: Errno::ROFS.into() };
        assert!(run.cause(&asker(&root, true)).why.starts_with("/run is mounted read-only"));
    }

    #[test]
    fn what_is_mounted_read_only_below_sys_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let mounts = "sysfs /sys sysfs rw 0 0\ntracefs /sys/kernel/tracing tracefs ro 0 0\n";
        std::fs::write(folder.path().join("proc/mounts"), mounts).unwrap();
        let root = Root::at(folder.path());
        let path = root.path("sys/kernel/tracing/instances");
        let locked = RecordError::Tracefs { path, source: Errno::ROFS.into() };
        assert!(locked.to_string().contains("`idlewise doctor` says"), "{locked}");
        let cause = locked.cause(&asker(&root, true));
        assert_eq!(cause.why, "/sys/kernel/tracing is mounted read-only");
        assert_eq!(cause.mend, "mount -o remount,rw /sys/kernel/tracing");
    }

    #[test]
    fn what_a_message_proposes_reads_well_without_its_beginning() {
        let root = Root::at(Path::new("/nowhere"));
        let planted = SettingsError::Planted { path: "/run/idlewise".into() };
        let cause = planted.cause(&asker(&root, true));
        assert_eq!(cause.why, "/run/idlewise: others than root can write to it");
        assert_eq!(cause.mend, "look who made it, then remove it");
        let cause = PluginError::Static.cause(&asker(&root, true));
        assert!(cause.why.ends_with("governors from C files"), "{cause:?}");
        assert!(cause.mend.starts_with("the one for glibc can"), "{cause:?}");
        let gone = StatesError::NotWritable {
            path: "/sys".into(),
            source: Errno::NOENT.into(),
            advice: "run it again",
        };
        assert_eq!(gone.cause(&asker(&root, true)).mend, "run it again");
    }

    #[test]
    fn packages_are_installed_as_the_distribution_does() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        let root = Root::at(folder.path());
        let command = |release: &str, is_root, package| {
            std::fs::write(folder.path().join("etc/os-release"), release).unwrap();
            install(&root, is_root, package)
        };
        let headers = Package::Headers("6.12.1");
        for (release, compiler, kernel) in [
            ("ID=debian\n", "apt install gcc libc6-dev", "apt install linux-headers-6.12.1"),
            ("ID=mint\nID_LIKE=\"ubuntu debian\"\n", "apt install gcc", "linux-headers-6.12.1"),
            ("ID=\"rocky\"\nID_LIKE=\"rhel fedora\"\n", "dnf install", "kernel-devel-6.12.1"),
            ("ID=opensuse-leap\nID_LIKE='suse opensuse'\n", "zypper install", "kernel-default"),
            ("ID=arch\n", "pacman -S gcc", "pacman -S linux-headers"),
            ("ID=alpine\n", "apk add gcc musl-dev", "apk add linux-lts-dev"),
        ] {
            let [compiler, kernel] = [compiler, kernel].map(str::to_owned);
            let found = command(release, false, Package::Compiler);
            assert!(found.contains(&compiler) && found.starts_with("sudo "), "{found}");
            assert!(!command(release, true, Package::Compiler).contains("sudo"));
            assert!(command(release, true, headers).contains(&kernel), "{release}");
        }
        for unknown in ["", "ID=plan9\n", "NAME=debian\n"] {
            assert!(command(unknown, false, Package::Compiler).starts_with("install a C compiler"));
            assert_eq!(command(unknown, false, headers), "install the headers of Linux 6.12.1");
        }
    }

    #[test]
    fn a_parameter_is_named_only_if_the_kernel_was_booted_with_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let root = Root::at(folder.path());
        let mend = |line: &str| {
            std::fs::write(folder.path().join("proc/cmdline"), line).unwrap();
            SettingsError::NoDriver.cause(&asker(&root, true)).mend
        };
        assert_eq!(mend("quiet cpuidle.off=1 idle=poll\n"), "boot without cpuidle.off=1 idle=poll");
        assert_eq!(mend("intel_idle.max_cstate=0"), "boot without intel_idle.max_cstate=0");
        assert!(!mend("quiet").contains("boot"));
    }

    #[test]
    fn root_of_a_user_namespace_is_sent_to_the_host() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        let root = Root::at(folder.path());
        std::fs::write(root.path("proc/self/status"), "CapEff:\t000001ffffffffff\n").unwrap();
        assert_eq!(asker(&root, true).as_root("mount"), "mount");
        assert_eq!(asker(&root, false).as_root("mount"), "sudo mount");
        std::fs::write(root.path("proc/self/uid_map"), "0 1000 1\n").unwrap();
        assert_eq!(asker(&root, true).as_root("mount"), "on the host: sudo mount");
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
            assert_eq!(cause.is_denied(), !is_locked);
        }
        assert!(error.cause(&asker(&root, false)).is_denied(), "root may know more");
    }
}
