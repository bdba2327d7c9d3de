//! What decides a machine's idle routine at boot, read from its files or from a CPUID dump.

use idlewise_machine::boot::cpuid::{CpuModel, Cpuid, Kvm, Vendor};
use idlewise_machine::boot::{BootFacts, Bugs, Cmdline, Fact, Kernel, Known, Source, Xen};

use crate::Root;
use crate::note::CpuInfo;

/// A machine as its files describe it.
#[derive(Clone, Debug, Default)]
pub struct BootMachine {
    /// What decides, as far as the files show it.
    pub facts: BootFacts,
    /// The CPU's name.
    pub name: Option<String>,
    /// The kernel that runs, as `uname -r` prints it.
    pub release: Option<String>,
    /// The cpuidle driver that is registered. `none` if there is none.
    pub driver: Option<String>,
    /// Reasons to distrust the facts.
    pub doubts: Vec<String>,
}

/// Reads the machine under `root`. On the running machine this executes CPUID; a captured one has a
/// dump, or only `/proc/cpuinfo`.
pub fn boot_machine(root: &Root, dump: Option<Cpuid>) -> BootMachine {
    let cpuinfo = CpuInfo::read(root);
    let release = root.text("proc/sys/kernel/osrelease");
    let mut found = BootMachine {
        facts: facts(root, &cpuinfo),
        name: cpuinfo.field("model name"),
        driver: root.text("sys/devices/system/cpu/cpuidle/current_driver"),
        doubts: Vec::new(),
        release,
    };
    let shown = found.facts;
    if let Some(cpuid) = dump.or_else(|| root.is_live().then(executed).flatten()) {
        found.facts = cpuid.facts(shown);
        let (dumped, shown) = (found.facts.cpu, shown.cpu);
        if let (Some(dumped), Some(shown)) = (dumped, shown)
            && dumped.value != shown.value
        {
            found.doubts.push(format!(
                "the CPUID dump is of another CPU than /proc/cpuinfo: {}, not {}",
                dumped.value, shown.value
            ));
        }
    }
    let has_mwait = cpuinfo.flags().map(|flags| has(flags, "monitor"));
    let first = has_mwait.clone().next();
    if has_mwait.map(Some).any(|has| has != first) {
        let doubt = "only some CPUs show the flag monitor; the kernel asks the first";
        found.doubts.push(doubt.to_owned());
    }
    found
}

/// A machine of which nothing but a CPUID dump is known.
pub fn dumped_machine(cpuid: Cpuid) -> BootMachine {
    BootMachine { facts: cpuid.facts(BootFacts::without_cmdline()), ..BootMachine::default() }
}

impl BootMachine {
    /// Sets the command line, as an option of the command gives it.
    pub fn set_cmdline(&mut self, cmdline: &str) {
        let cmdline = Cmdline::parse(cmdline);
        self.facts.cmdline = Some(Fact::new(cmdline, Source::Option("--cmdline")));
    }

    /// Sets the kernel whose rules apply: the wanted one, else the nearest to the one that runs.
    pub fn set_kernel(&mut self, wanted: Option<Kernel>) {
        let nearest = self.release.as_deref().and_then(Kernel::nearest);
        self.facts.kernel = wanted.or(nearest.map(|(kernel, _)| kernel)).unwrap_or_default();
        if wanted.is_none()
            && let (Some((kernel, false)), Some(release)) = (nearest, &self.release)
        {
            self.doubts.push(format!(
                "it runs {release}, which was not compared; the rules are those of {kernel}"
            ));
        }
    }
}

fn has(words: &str, wanted: &str) -> bool {
    words.split_ascii_whitespace().any(|word| word == wanted)
}

/// What the machine's files show.
fn facts(root: &Root, cpuinfo: &CpuInfo) -> BootFacts {
    let number = |name| cpuinfo.number(name);
    let vendor = cpuinfo.field("vendor_id").map(|name| Vendor::from_name(name.as_bytes()));
    let cpu = || {
        let (family, model) = (number("cpu family")?, number("model")?);
        let stepping = number("stepping").unwrap_or_default();
        let cpu = CpuModel { vendor: vendor?, family, model, stepping };
        Some(Fact::new(cpu, Source::CpuInfo("vendor_id, cpu family, model")))
    };
    let flags = cpuinfo.field("flags");
    let flag = |name: &'static str| {
        Some(Fact::new(has(flags.as_deref()?, name), Source::CpuInfo("flags")))
    };
    let smt = || {
        let is = number("siblings")? > number("cpu cores")?;
        Some(Fact::new(is, Source::CpuInfo("siblings, cpu cores")))
    };
    let bugs = cpuinfo.line("bugs").map(|bugs| Bugs {
        e400: has(bugs, "amd_e400"),
        c1e: has(bugs, "apic_c1e"),
        monitor: has(bugs, "monitor"),
        clflush_monitor: has(bugs, "clflush_monitor"),
    });
    let cmdline = match root.text("proc/cmdline") {
        Some(cmdline) => Fact::new(Cmdline::parse(&cmdline), Source::File("/proc/cmdline")),
        None => Fact::new(Cmdline::default(), Source::Assumed),
    };
    let is_guest = flag("hypervisor");
    BootFacts {
        cmdline: Some(cmdline),
        cpu: cpu(),
        is_guest,
        max_leaf: number("cpuid level").map(|leaf| Fact::new(leaf, Source::CpuInfo("cpuid level"))),
        has_mwait: flag("monitor"),
        has_osvw: flag("osvw"),
        has_topoext: flag("topoext"),
        bugs: bugs.map(|bugs| Fact::new(bugs, Source::CpuInfo("bugs"))),
        xen: xen(root),
        is_tdx_guest: flag("tdx_guest"),
        has_smt: smt(),
        // CPUID leaf 0x40000001 would tell what KVM offers.
        kvm: is_guest
            .filter(|is| !is.value)
            .map(|is| Fact { value: Kvm::default(), source: is.source }),
        ..BootFacts::default()
    }
}

fn xen(root: &Root) -> Known<Xen> {
    let is_xen = root.text("sys/hypervisor/type").is_some_and(|name| name == "xen");
    if !is_xen {
        let has_sysfs = root.has("sys/devices/system/cpu");
        let source = if has_sysfs { Source::File("/sys/hypervisor") } else { Source::Assumed };
        return Some(Fact::new(Xen::Other, source));
    }
    let is_dom0 = root.text("proc/xen/capabilities").is_some_and(|list| list.contains("control_d"));
    let kind = match root.text("sys/hypervisor/guest_type")?.as_str() {
        "PV" => Xen::Pv,
        "PVH" if is_dom0 => Xen::PvhDom0,
        _ => Xen::Other,
    };
    Some(Fact::new(kind, Source::File("/sys/hypervisor/guest_type")))
}

/// Executes CPUID.
#[cfg(target_arch = "x86_64")]
fn executed() -> Option<Cpuid> {
    let mut found = Cpuid::default();
    let highest = |base: u32| raw_cpuid::cpuid!(base).eax;
    let (basic, extended) = (highest(0), highest(0x8000_0000));
    let is_guest = raw_cpuid::cpuid!(1).ecx & 1 << 31 != 0;
    let hypervisor = if is_guest { highest(0x4000_0000) } else { 0 };
    for (leaf, subleaf) in idlewise_machine::boot::cpuid::LEAVES {
        let last = match leaf {
            ..0x4000_0000 => basic,
            0x4000_0000..0x8000_0000 => hypervisor,
            _ => extended,
        };
        if leaf <= last {
            let raw = raw_cpuid::cpuid!(leaf, subleaf);
            found.set(leaf, subleaf, [raw.eax, raw.ebx, raw.ecx, raw.edx]);
        }
    }
    Some(found)
}

#[cfg(not(target_arch = "x86_64"))]
fn executed() -> Option<Cpuid> {
    None
}

#[cfg(test)]
mod tests {
    use idlewise_machine::boot::{IdleParameter, IdleRoutine, select};

    use super::*;
    use crate::root::tests::machine;

    const CPUINFO: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 16\nmodel\t\t: 4\n\
        model name\t: AMD Phenom(tm) II X4 940 Processor\nstepping\t: 2\nsiblings\t: 4\ncpu cores\t: 4\n\
        cpuid level\t: 5\nflags\t\t: fpu monitor osvw\nbugs\t\t: tlb_mmatch apic_c1e amd_e400\n";

    #[test]
    fn reads_what_a_kernel_shows() {
        let (_folder, root) = machine(&[
            ("proc/cpuinfo", CPUINFO),
            ("proc/cmdline", "quiet idle=nomwait\n"),
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "acpi_idle\n"),
        ]);
        let mut found = boot_machine(&root, None);
        found.set_kernel(None);
        let facts = found.facts;
        assert_eq!(facts.kernel, Kernel::V6_1);
        assert_eq!(facts.cmdline.map(|c| c.value.idle), Some(IdleParameter::NoMwait));
        let family = facts.cpu.map(|cpu| (cpu.value.vendor, cpu.value.family, cpu.value.model));
        assert_eq!(family, Some((Vendor::Amd, 0x10, 4)));
        assert_eq!(facts.has_mwait.map(|has| has.value), Some(true));
        assert_eq!(facts.has_smt.map(|has| has.value), Some(false));
        assert_eq!(facts.leaf5, None, "no file shows it");
        assert_eq!(found.driver.as_deref(), Some("acpi_idle"));
        assert!(found.doubts.is_empty());
        // The running kernel knows what the firmware says of erratum 400.
        assert_eq!(select(&facts).routine(), Some(IdleRoutine::E400Halt));
    }

    #[test]
    fn tells_xens_guests_apart() {
        let kind = |files: &[(&str, &str)]| {
            let (_folder, root) = machine(files);
            xen(&root).map(|xen| xen.value)
        };
        let (name, guest) = ("sys/hypervisor/type", "sys/hypervisor/guest_type");
        let dom0 = ("proc/xen/capabilities", "control_d\n");
        assert_eq!(kind(&[("sys/devices/system/cpu/online", "0")]), Some(Xen::Other));
        assert_eq!(kind(&[(name, "xen\n"), (guest, "PV\n")]), Some(Xen::Pv));
        assert_eq!(kind(&[(name, "xen\n"), (guest, "HVM\n")]), Some(Xen::Other));
        assert_eq!(kind(&[(name, "xen\n"), (guest, "PVH\n")]), Some(Xen::Other));
        assert_eq!(kind(&[(name, "xen\n"), (guest, "PVH\n"), dom0]), Some(Xen::PvhDom0));
        // Before 4.13 there was no such file.
        assert_eq!(kind(&[(name, "xen\n")]), None);
    }

    #[test]
    fn doubts_what_does_not_fit() {
        let second = CPUINFO.replace("processor\t: 0", "processor\t: 1").replace(" monitor", "");
        let (_folder, root) = machine(&[
            ("proc/cpuinfo", &format!("{CPUINFO}\n{second}")),
            ("proc/sys/kernel/osrelease", "5.10.0-28-amd64\n"),
        ]);
        let mut dump = Cpuid::default();
        dump.set(0, 0, [0x10, 0x6874_7541, 0x444d_4163, 0x6974_6e65]);
        dump.set(1, 0, [0x00a2_0f10, 0, 1 << 3, 0]);
        let mut found = boot_machine(&root, Some(dump));
        found.set_kernel(None);
        assert_eq!(
            found.doubts,
            [
                "the CPUID dump is of another CPU than /proc/cpuinfo: AMD family 0x19, model 0x21, \
                 stepping 0, not AMD family 0x10, model 0x4, stepping 2",
                "only some CPUs show the flag monitor; the kernel asks the first",
                "it runs 5.10.0-28-amd64, which was not compared; the rules are those of 5.18",
            ]
        );
    }
}
