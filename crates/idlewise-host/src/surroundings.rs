//! What runs around this process: the hypervisor, the container, the capabilities that it has, and what kernel modules
//! and services need. Everything is read, nothing is tried.

use crate::settings::enabled_units;
use crate::{Root, is_virtual_machine};

/// Whether a capability is among those in force. The numbers are those of `linux/capability.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// To load kernel modules.
    SysModule = 16,
    /// To do what the next two allow, on older kernels.
    SysAdmin = 21,
    /// To see what the whole machine does.
    Perfmon = 38,
    /// To load BPF programs.
    Bpf = 39,
}

/// What a process may do.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    /// `None` if the machine does not show them.
    capabilities: Option<u64>,
    is_in_user_namespace: bool,
}

impl Rights {
    /// Reads them.
    pub fn read(root: &Root) -> Self {
        // The first namespace maps every user to itself.
        const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];
        let status = root.text("proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let map = root.text("proc/self/uid_map");
        Rights {
            capabilities: mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()),
            is_in_user_namespace: map.is_some_and(|map| !map.split_whitespace().eq(ALL_USERS)),
        }
    }

    /// Whether the machine shows them.
    pub fn are_known(self) -> bool {
        self.capabilities.is_some()
    }

    /// Whether root is root only of a user namespace. Its capabilities do not count for what concerns the whole machine.
    pub fn are_of_user_namespace(self) -> bool {
        self.is_in_user_namespace
    }

    /// Whether it has the capability for the whole machine, or the one that includes it.
    pub fn has(self, capability: Capability) -> bool {
        let mask = self.capabilities.filter(|_| !self.is_in_user_namespace).unwrap_or(0);
        let is_in = |capability: Capability| mask & 1 << capability as u32 != 0;
        let is_included = matches!(capability, Capability::Perfmon | Capability::Bpf);
        is_in(capability) || is_included && is_in(Capability::SysAdmin)
    }
}

/// Returns what the machine runs on, if it is a virtual machine: the vendor and the product that the hypervisor shows, its
/// type, or a phrase if it shows neither.
pub fn hypervisor(root: &Root) -> Option<String> {
    let shown = || {
        let part = |file: &str| root.text(&format!("sys/class/dmi/id/{file}"));
        Some([part("sys_vendor")?, part("product_name").unwrap_or_default()].join(" "))
    };
    is_virtual_machine(root).then(|| {
        let found = root.text("sys/hypervisor/type").or_else(shown);
        found.unwrap_or_else(|| "unnamed hypervisor".to_owned()).trim().to_owned()
    })
}

/// Returns the kind of container that this is, if its runtime says so.
pub fn container(root: &Root) -> Option<String> {
    let told = ["run/systemd/container", "run/host/container-manager"];
    let kind = told.into_iter().find_map(|file| root.text(file));
    let marks = [(".dockerenv", "docker"), ("run/.containerenv", "podman")];
    let mark = || marks.into_iter().find(|(file, _)| root.has(file));
    kind.or_else(|| mark().map(|(_, kind)| kind.to_owned()))
}

/// What stands between a kernel module and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleState {
    /// It is loaded.
    Loaded,
    /// It is installed for this kernel.
    Installed,
    /// It is not, but the headers to build it are.
    Buildable,
    /// There are no headers for this kernel.
    NoHeaders,
    /// The kernel loads no modules.
    NoModules,
    /// Somebody has closed module loading until the next boot.
    Disabled,
}

/// Finds out how far a module is.
pub fn module_state(root: &Root, module: &str) -> ModuleState {
    let kernel = root.text("proc/sys/kernel/osrelease").unwrap_or_default();
    if root.has(&format!("sys/module/{module}")) {
        return ModuleState::Loaded;
    }
    if !root.has("proc/modules") {
        return ModuleState::NoModules;
    }
    if root.number("proc/sys/kernel/modules_disabled") == Some(1) {
        return ModuleState::Disabled;
    }
    if module_is_installed(root, &kernel, module) {
        return ModuleState::Installed;
    }
    match root.has(&format!("lib/modules/{kernel}/build/Makefile")) {
        true => ModuleState::Buildable,
        false => ModuleState::NoHeaders,
    }
}

/// Whether a module is installed for a kernel, according to `depmod`'s list.
pub(crate) fn module_is_installed(root: &Root, kernel: &str, module: &str) -> bool {
    let list = root.bytes(&format!("lib/modules/{kernel}/modules.dep"));
    list.is_ok_and(|list| String::from_utf8_lossy(&list).contains(&format!("/{module}.ko")))
}

/// Returns how far the kernel is locked down (`integrity`, `confidentiality`); `None` if it is not.
pub fn lockdown(root: &Root) -> Option<String> {
    let levels = root.text("sys/kernel/security/lockdown")?;
    let level = levels.split_once('[')?.1.split_once(']')?.0;
    (level != "none").then(|| level.to_owned())
}

/// Whether the kernel takes only signed modules.
pub fn wants_signed_modules(root: &Root) -> bool {
    lockdown(root).is_some()
        || root.text("sys/module/module/parameters/sig_enforce").as_deref() == Some("Y")
}

/// Whether systemd starts a unit at boot.
pub fn unit_is_enabled(root: &Root, unit: &str) -> bool {
    enabled_units(root).iter().any(|name| name == unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn an_old_capability_includes_newer_ones() {
        let rights = |text: &str| {
            let (_folder, root) = machine(&[("proc/self/status", text)]);
            Rights::read(&root)
        };
        let root = rights("Name:\tidlewise\nCapEff:\t000001ffffffffff\n");
        assert!(root.has(Capability::SysModule) && root.has(Capability::Bpf));
        let docker = rights("CapEff:\t00000000a80425fb\n");
        assert!(!docker.has(Capability::SysModule) && !docker.has(Capability::Perfmon));
        let admin = rights("CapEff:\t0000000000200000\n");
        assert!(admin.has(Capability::Perfmon) && !admin.has(Capability::SysModule));
        assert!(!rights("CapEff:\tzz\n").has(Capability::SysAdmin));
        assert!(!rights("").has(Capability::SysAdmin) && !rights("").are_known());
    }

    #[test]
    fn capabilities_of_a_user_namespace_do_not_count() {
        let status = ("proc/self/status", "CapEff:\t000001ffffffffff\n");
        for (map, is_first) in [
            ("         0          0 4294967295\n", true),
            ("0 1000 1\n", false),
            ("0 0 1\n1 100000 65535\n", false),
            ("rubbish\n", false),
        ] {
            let rights = Rights::read(&machine(&[status, ("proc/self/uid_map", map)]).1);
            assert_eq!(rights.has(Capability::SysAdmin), is_first, "{map}");
            assert_eq!(rights.are_of_user_namespace(), !is_first, "{map}");
        }
    }

    #[test]
    fn a_container_and_a_hypervisor_are_named_if_they_say_so() {
        let (_folder, bare) = machine(&[("proc/cpuinfo", "flags : fpu\n")]);
        assert_eq!((hypervisor(&bare), container(&bare)), (None, None));
        let (_folder, guest) = machine(&[
            ("proc/cpuinfo", "flags : fpu hypervisor\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
            (".dockerenv", ""),
        ]);
        assert_eq!(hypervisor(&guest).as_deref(), Some("QEMU"));
        assert_eq!(container(&guest).as_deref(), Some("docker"));
        let (_folder, guest) = machine(&[
            ("proc/cpuinfo", "flags : fpu hypervisor\n"),
            ("run/systemd/container", "lxc\n"),
        ]);
        assert_eq!(hypervisor(&guest).as_deref(), Some("unnamed hypervisor"));
        assert_eq!(container(&guest).as_deref(), Some("lxc"));
    }

    #[test]
    fn a_module_is_as_far_as_its_files_say() {
        let kernel = ("proc/sys/kernel/osrelease", "6.12.1\n");
        let headers = ("lib/modules/6.12.1/build/Makefile", "");
        let dep = ("lib/modules/6.12.1/modules.dep", "updates/dkms/idlewise_idle.ko.xz:\n");
        let modules = ("proc/modules", "");
        let state = |files: &[(&str, &str)]| module_state(&machine(files).1, "idlewise_idle");
        assert_eq!(state(&[kernel, headers, dep]), ModuleState::NoModules);
        assert_eq!(state(&[kernel, modules]), ModuleState::NoHeaders);
        assert_eq!(state(&[kernel, modules, headers]), ModuleState::Buildable);
        assert_eq!(state(&[kernel, modules, dep]), ModuleState::Installed);
        let disabled = ("proc/sys/kernel/modules_disabled", "1\n");
        assert_eq!(state(&[kernel, modules, dep, disabled]), ModuleState::Disabled);
        let loaded = ("sys/module/idlewise_idle/refcnt", "0\n");
        assert_eq!(state(&[kernel, disabled, loaded]), ModuleState::Loaded);
    }

    #[test]
    fn lockdown_is_the_level_in_brackets() {
        let level = |text: &str| lockdown(&machine(&[("sys/kernel/security/lockdown", text)]).1);
        assert_eq!(level("[none] integrity confidentiality\n"), None);
        assert_eq!(level("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(level("\u{0}\u{1}["), None);
        assert!(!wants_signed_modules(&machine(&[]).1));
        let enforced = ("sys/module/module/parameters/sig_enforce", "Y\n");
        assert!(wants_signed_modules(&machine(&[enforced]).1));
    }
}
