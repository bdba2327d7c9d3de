//! What the cpuidle drivers of x86 will do.
//!
//! The first driver that registers is the only one. The order is that of their initialisation:
//! `intel_idle`, `acpi_idle`, `haltpoll`. This follows `drivers/idle/intel_idle.c`,
//! `drivers/acpi/processor_idle.c` and `drivers/cpuidle/cpuidle-haltpoll.c` of 6.1.192, 6.12.117 and 7.2.12. For
//! 5.18 the answers are those of 6.1, except for models whose tables came later.
//!
//! CPUID does not show what the firmware offers (ACPI's `_CST`), nor which drivers a kernel has. Where a
//! driver depends on them, the answer says so.

use super::cpuid::Vendor;
use super::{BootFacts, Cmdline, IdleParameter, Kernel};
use idlewise_core::words;

words! {
    /// A cpuidle driver.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CpuidleDriver {
        /// `intel_idle`.
        IntelIdle = "intel_idle",
        /// `acpi_idle`.
        AcpiIdle = "acpi_idle",
        /// `haltpoll`.
        Haltpoll = "haltpoll",
    }
}

/// What a driver will do, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// It registers, if the kernel has it.
    Registers(&'static str),
    /// It stays away, or gets no CPU.
    Refuses(&'static str),
    /// It depends on this.
    Depends(&'static str),
}

impl Prospect {
    /// One word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registers(_) => "registers",
            Self::Refuses(_) => "refuses",
            Self::Depends(_) => "depends",
        }
    }

    /// Why.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Registers(reason) | Self::Refuses(reason) | Self::Depends(reason) => reason,
        }
    }
}

use Prospect::{Depends, Refuses, Registers};

/// Models of family 6 with a table in `intel_idle`, since 6.1 or before.
const MODELS_6_1: [u32; 44] = [
    0x1a, 0x1c, 0x1e, 0x1f, 0x25, 0x26, 0x2a, 0x2c, 0x2d, 0x2e, 0x2f, 0x36, 0x37, 0x3a, 0x3c, 0x3d,
    0x3e, 0x3f, 0x45, 0x46, 0x47, 0x4a, 0x4c, 0x4d, 0x4e, 0x4f, 0x55, 0x56, 0x57, 0x5c, 0x5e, 0x5f,
    0x6a, 0x6c, 0x7a, 0x85, 0x86, 0x8e, 0x8f, 0x97, 0x9a, 0x9e, 0xbe, 0xcf,
];
/// Those of them that 5.18 lacked at first: Alder Lake (in 5.18.18) and Emerald Rapids.
const MODELS_AFTER_5_18: [u32; 4] = [0x97, 0x9a, 0xbe, 0xcf];
/// Models added until 6.12.
const MODELS_6_12: [u32; 6] = [0x96, 0x9c, 0xaa, 0xad, 0xaf, 0xb6];
/// Models added until 7.2.
const MODELS_7_2: [u32; 3] = [0xae, 0xcc, 0xdd];

/// What each driver will do, in the order in which they ask to be registered.
pub fn prospects(facts: &BootFacts) -> [(CpuidleDriver, Prospect); 3] {
    let intel_idle = disabled(facts).unwrap_or_else(|| intel_idle(facts));
    let acpi_idle = disabled(facts).unwrap_or_else(|| acpi_idle(facts, intel_idle));
    let haltpoll = disabled(facts).unwrap_or_else(|| haltpoll(facts));
    [
        (CpuidleDriver::IntelIdle, intel_idle),
        (CpuidleDriver::AcpiIdle, acpi_idle),
        (CpuidleDriver::Haltpoll, haltpoll),
    ]
}

fn cmdline(facts: &BootFacts) -> Cmdline {
    facts.cmdline.map(|cmdline| cmdline.value).unwrap_or_default()
}

/// Where no driver can register.
fn disabled(facts: &BootFacts) -> Option<Prospect> {
    if cmdline(facts).cpuidle_off {
        return Some(Refuses("cpuidle.off=1 is on the command line"));
    }
    match facts.xen {
        None => Some(Depends("whether Xen runs this kernel as a PV guest, which disables cpuidle")),
        Some(xen) => xen.value.decides(facts.kernel).then_some(Refuses("Xen disables cpuidle")),
    }
}

fn is_idle_given(facts: &BootFacts) -> bool {
    let cmdline = cmdline(facts);
    cmdline.idle != IdleParameter::None || cmdline.polls
}

fn intel_idle(facts: &BootFacts) -> Prospect {
    if is_idle_given(facts) {
        return Refuses("idle= is on the command line");
    }
    if cmdline(facts).intel_idle_off {
        return Refuses("intel_idle.max_cstate=0 is on the command line");
    }
    let Some(cpu) = facts.cpu.map(|cpu| cpu.value) else { return Depends("the CPU's model") };
    if cpu.vendor != Vendor::Intel {
        return Refuses("the CPU is not Intel's");
    }
    match facts.has_mwait.map(|has| has.value) {
        None => return Depends("whether the CPU has MWAIT"),
        Some(false) => return Refuses("the CPU has no MWAIT"),
        Some(true) => {}
    }
    if facts.is_leaf_missing().is_some_and(|is| is.value) {
        return Refuses("CPUID ends before leaf 5");
    }
    let Some(leaf) = facts.leaf5.map(|leaf| leaf.value) else { return Depends("CPUID leaf 5") };
    if !leaf.enumerates_extensions || !leaf.breaks_on_interrupt || leaf.substate_counts == 0 {
        return Refuses("CPUID leaf 5 lacks extensions, breaks on masked interrupts, or states");
    }
    let is_late =
        cpu.family == 6 && facts.kernel < Kernel::V6_1 && MODELS_AFTER_5_18.contains(&cpu.model);
    let is_listed = MODELS_6_1.contains(&cpu.model)
        || facts.kernel >= Kernel::V6_12 && MODELS_6_12.contains(&cpu.model)
        || facts.kernel >= Kernel::V7_2 && MODELS_7_2.contains(&cpu.model);
    match (cpu.family, facts.kernel) {
        _ if is_late => Depends("the stable release: 5.18 had no table for this model at first"),
        (6, _) if is_listed => Registers("it has a table for this model"),
        (6, _) | (_, Kernel::V6_12 | Kernel::V7_2) => {
            Depends("the firmware's C-states (_CST): it has no table for this model")
        }
        (_, Kernel::V5_18 | Kernel::V6_1) => Refuses("it knows no CPU of this family"),
    }
}

fn acpi_idle(facts: &BootFacts, intel_idle: Prospect) -> Prospect {
    if matches!(intel_idle, Registers(_)) {
        return Refuses("intel_idle registers before it");
    }
    let cmdline = cmdline(facts);
    let is_off =
        cmdline.polls || [IdleParameter::Halt, IdleParameter::Poll].contains(&cmdline.idle);
    match (is_off, facts.kernel) {
        (true, Kernel::V5_18 | Kernel::V6_1) => Refuses("idle= is on the command line"),
        (true, _) => Refuses("idle= leaves it without CPUs, although it may be current_driver"),
        (false, _) if cmdline.idle == IdleParameter::NoMwait => {
            Depends("the firmware's C-states (_CST); entered by HLT or a port, not by MWAIT")
        }
        (false, _) => Depends("the firmware's C-states (_CST), which it can hide"),
    }
}

fn haltpoll(facts: &BootFacts) -> Prospect {
    if is_idle_given(facts) {
        return Refuses("idle= is on the command line");
    }
    match facts.kvm.map(|kvm| kvm.value) {
        None => Depends("whether the hypervisor is KVM"),
        Some(kvm) if !kvm.is_kvm => Refuses("this is no KVM guest"),
        Some(kvm) if kvm.is_realtime => Registers("KVM hints that CPUs are not preempted"),
        Some(_) if cmdline(facts).haltpoll_forced => {
            Registers("cpuidle_haltpoll.force=1 is on the command line")
        }
        Some(_) => Refuses("KVM does not hint that CPUs are not preempted"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpuid::{CpuModel, Kvm, MwaitLeaf};
    use super::super::{Fact, Source, Xen};
    use super::*;

    fn intel(model: u32) -> BootFacts {
        let cpu = CpuModel { vendor: Vendor::Intel, family: 6, model, stepping: 0 };
        let leaf = |value| Some(Fact::new(value, Source::Leaf(1)));
        BootFacts {
            cpu: Some(Fact::new(cpu, Source::Leaf(1))),
            max_leaf: Some(Fact::new(0x20, Source::Leaf(0))),
            has_mwait: leaf(true),
            is_guest: leaf(false),
            leaf5: Some(Fact::new(MwaitLeaf::new(3, 0x2020), Source::Leaf(5))),
            kvm: Some(Fact::new(Kvm::default(), Source::Leaf(1))),
            ..BootFacts::without_cmdline()
        }
    }

    fn with(facts: BootFacts, kernel: Kernel, cmdline: &str) -> [Prospect; 3] {
        let cmdline = Some(Fact::new(Cmdline::parse(cmdline), Source::Assumed));
        prospects(&BootFacts { kernel, cmdline, ..facts }).map(|(_, prospect)| prospect)
    }

    #[test]
    fn lists_of_models_are_sorted_and_disjoint() {
        assert!(MODELS_6_1.is_sorted() && MODELS_6_12.is_sorted() && MODELS_7_2.is_sorted());
        assert!(!MODELS_6_12.iter().any(|model| MODELS_6_1.contains(model)));
        let is_older = |model| MODELS_6_1.contains(model) || MODELS_6_12.contains(model);
        assert!(!MODELS_7_2.iter().any(is_older));
    }

    #[test]
    fn intel_idle_needs_a_table_or_the_firmware() {
        for kernel in Kernel::ALL {
            let [intel_idle, acpi_idle, haltpoll] = with(intel(0x8f), kernel, "");
            assert!(matches!(intel_idle, Registers(_)), "Sapphire Rapids");
            assert!(matches!((acpi_idle, haltpoll), (Refuses(_), Refuses(_))));
            // Meteor Lake got its table in between.
            let meteor_lake = with(intel(0xaa), kernel, "")[0];
            assert_eq!(matches!(meteor_lake, Depends(_)), kernel <= Kernel::V6_1);
            // Panther Lake later.
            let panther_lake = with(intel(0xcc), kernel, "")[0];
            assert_eq!(matches!(panther_lake, Registers(_)), kernel == Kernel::V7_2);
            // Lunar Lake has none.
            let [lunar_lake, acpi_idle, _] = with(intel(0xbd), kernel, "");
            assert!(matches!((lunar_lake, acpi_idle), (Depends(_), Depends(_))));
        }
    }

    #[test]
    fn idle_keeps_drivers_away() {
        for kernel in Kernel::ALL {
            for cmdline in ["idle=halt", "idle=poll", "cpuidle.off=1"] {
                let prospects = with(intel(0x8f), kernel, cmdline);
                assert!(prospects.iter().all(|p| matches!(p, Refuses(_))), "{cmdline}");
            }
            let [intel_idle, acpi_idle, _] = with(intel(0x8f), kernel, "idle=nomwait");
            assert!(matches!((intel_idle, acpi_idle), (Refuses(_), Depends(_))));
            let off = with(intel(0x8f), kernel, "intel_idle.max_cstate=0");
            assert!(matches!((off[0], off[1]), (Refuses(_), Depends(_))));
        }
    }

    #[test]
    fn haltpoll_needs_kvm_and_a_hint_or_force() {
        let kvm = |is_realtime| {
            let kvm = Kvm { is_kvm: true, is_realtime };
            BootFacts { kvm: Some(Fact::new(kvm, Source::Leaf(0x4000_0001))), ..intel(0x8f) }
        };
        let of = |facts, cmdline| with(facts, Kernel::V6_12, cmdline)[2];
        assert!(matches!(of(kvm(true), ""), Registers(_)));
        assert!(matches!(of(kvm(false), ""), Refuses(_)));
        assert!(matches!(of(kvm(false), "cpuidle_haltpoll.force=1"), Registers(_)));
        assert!(matches!(of(kvm(true), "idle=halt"), Refuses(_)));
        assert!(matches!(of(BootFacts { kvm: None, ..intel(0x8f) }, ""), Depends(_)));
    }

    #[test]
    fn xen_allows_no_driver() {
        let pv = Some(Fact::new(Xen::Pv, Source::File("/sys/hypervisor/guest_type")));
        let prospects = with(BootFacts { xen: pv, ..intel(0x8f) }, Kernel::V6_1, "");
        assert!(prospects.iter().all(|prospect| *prospect == Refuses("Xen disables cpuidle")));
    }

    #[test]
    fn a_hidden_leaf_5_is_not_guessed() {
        let shown = BootFacts { leaf5: None, ..intel(0x8f) };
        assert_eq!(with(shown, Kernel::V6_12, "")[0], Depends("CPUID leaf 5"));
    }
}
