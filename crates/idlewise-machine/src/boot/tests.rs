use super::cpuid::Cpuid;
use super::*;

const AMD: [u32; 3] = [0x6874_7541, 0x444d_4163, 0x6974_6e65];
const INTEL: [u32; 3] = [0x756e_6547, 0x6c65_746e, 0x4965_6e69];
const MONITOR: u32 = 1 << 3;
/// Kernels that ask CPUID and not the vendor.
const BY_CPUID: [Kernel; 3] = [Kernel::V6_1, Kernel::V6_12, Kernel::V7_2];

/// Facts from leaves 0, 1 and 5.
fn facts(
    [ebx, ecx, edx]: [u32; 3],
    max_leaf: u32,
    signature: u32,
    leaf1_ecx: u32,
    leaf5: Option<[u32; 2]>,
) -> BootFacts {
    let mut cpuid = Cpuid::default();
    cpuid.set(0, 0, [max_leaf, ebx, ecx, edx]);
    cpuid.set(1, 0, [signature, 0, leaf1_ecx, 0]);
    if let Some([ecx, edx]) = leaf5 {
        cpuid.set(5, 0, [0x40, 0x40, ecx, edx]);
    }
    cpuid.set(0x8000_0001, 0, [0; 4]);
    cpuid.facts(BootFacts::without_cmdline())
}

fn zen3() -> BootFacts {
    facts(AMD, 0x10, 0x00a2_0f10, MONITOR, Some([3, 0x11]))
}

fn with(facts: BootFacts, kernel: Kernel, cmdline: &str) -> BootFacts {
    let cmdline = Some(Fact::new(Cmdline::parse(cmdline), Source::Option("--cmdline")));
    BootFacts { kernel, cmdline, ..facts }
}

fn answer(facts: BootFacts) -> (Option<IdleRoutine>, Option<Branch>) {
    let selection = select(&facts);
    let reason = selection.possible().next().and_then(|(_, branch)| branch);
    (selection.routine(), reason)
}

#[test]
fn rows_are_in_the_order_of_their_branches() {
    for (index, row) in BRANCHES.iter().enumerate() {
        assert_eq!(row.branch as usize, index);
        assert!(row.kernels.0 <= row.kernels.1);
    }
    for (index, routine) in IdleRoutine::ALL.into_iter().enumerate() {
        assert_eq!(routine as usize, index);
    }
}

#[test]
fn follows_cpuid_and_not_the_vendor() {
    use IdleRoutine::{Halt, Mwait};
    let k8 = facts(AMD, 1, 0x0002_0ff0, 1, None);
    let phenom = facts(AMD, 5, 0x0010_0f21, MONITOR, Some([3, 0]));
    let pentium4 = facts(INTEL, 5, 0x0f43, MONITOR, Some([0, 0]));
    let sapphire_rapids = facts(INTEL, 0x20, 0x0008_06f8, MONITOR, Some([3, 0x2020]));
    for kernel in [Kernel::V6_12, Kernel::V7_2] {
        let ask = |facts| answer(with(facts, kernel, ""));
        assert_eq!(ask(k8), (Some(Halt), Some(Branch::NoMwait)));
        assert_eq!(ask(phenom), (Some(Halt), Some(Branch::NoC1)));
        assert_eq!(ask(zen3()), (Some(Mwait), Some(Branch::HasC1)));
        assert_eq!(ask(pentium4), (Some(Mwait), Some(Branch::NoExtensions)));
        assert_eq!(ask(sapphire_rapids), (Some(Mwait), Some(Branch::HasC1)));
    }
}

#[test]
fn before_6_0_the_vendor_decided_and_leaf_5_did_not() {
    use IdleRoutine::{Halt, Mwait};
    let ask = |facts, cmdline| answer(with(facts, Kernel::V5_18, cmdline));
    assert_eq!(ask(zen3(), ""), (Some(Halt), Some(Branch::NotIntel)));
    let hygon =
        facts([0x6f67_7948, 0x656e_6975, 0x6e65_476e], 0x10, 0x0090_0f01, MONITOR, Some([3, 0x11]));
    assert_eq!(ask(hygon, ""), (Some(Halt), Some(Branch::NotIntel)));
    // An Intel CPU whose leaf 5 lists extensions but no C1 gets HLT from 6.0 on.
    let without_c1 = facts(INTEL, 0x20, 0x0008_06f8, MONITOR, Some([3, 0x2000]));
    assert_eq!(ask(without_c1, ""), (Some(Mwait), Some(Branch::IsIntel)));
    assert_eq!(answer(with(without_c1, Kernel::V6_1, "")), (Some(Halt), Some(Branch::NoC1)));
    let without_mwait = facts(INTEL, 0x20, 0x0008_06f8, 0, Some([3, 0x20]));
    assert_eq!(ask(without_mwait, ""), (Some(Halt), Some(Branch::NoMwait)));
    let limited = facts(INTEL, 4, 0x0008_06f8, MONITOR | 1 << 31, None);
    assert_eq!(ask(limited, ""), (Some(Halt), Some(Branch::LeafMissing)));
}

#[test]
fn whether_5_18_obeys_nomwait_depends_on_its_stable_release() {
    use IdleRoutine::{Halt, Mwait};
    let intel = facts(INTEL, 0x20, 0x0008_06f8, MONITOR, Some([3, 0x2020]));
    let selection = select(&with(intel, Kernel::V5_18, "idle=nomwait"));
    assert!(selection.possible().map(|(routine, _)| routine).eq([Mwait, Halt]));
    assert!(selection.unknown().eq([Branch::MwaitForbidden]));
    let amd = answer(with(zen3(), Kernel::V5_18, "idle=nomwait"));
    assert_eq!(amd.0, Some(Halt), "either way");
}

#[test]
fn ignores_what_leaf_5_counts_where_it_enumerates_nothing() {
    let plain = facts(INTEL, 5, 0x0f43, MONITOR, Some([0, 0x20]));
    assert_eq!(answer(plain).1, Some(Branch::NoExtensions));
}

#[test]
fn a_cpu_without_leaf_5_gets_hlt_although_it_claims_mwait() {
    let amd = facts(AMD, 4, 0x0060_0f12, MONITOR, None);
    for kernel in BY_CPUID {
        let selected = answer(with(amd, kernel, ""));
        assert_eq!(selected, (Some(IdleRoutine::Halt), Some(Branch::LeafMissing)), "{kernel}");
    }
    let line = "CPU: CPU feature monitor disabled, no CPUID level 0x5";
    assert!(log_lines(&amd, IdleRoutine::Halt).eq([line]));
}

#[test]
fn a_limit_that_the_kernel_lifts_leaves_the_answer_open() {
    // Nehalem, as dumped where the firmware limits CPUID to leaf 2.
    let limited = facts(INTEL, 2, 0x0001_06a5, MONITOR, None);
    let selected = select(&limited);
    assert_eq!(selected.routine(), None);
    assert!(selected.possible().any(|(routine, _)| routine == IdleRoutine::Mwait));
    assert!(selected.unknown().any(|branch| branch == Branch::LeafMissing));
    // A hypervisor's limit is not lifted, and Linux's own answer is final.
    let guest = facts(INTEL, 2, 0x0001_06a5, MONITOR | 1 << 31, None);
    assert_eq!(answer(guest), (Some(IdleRoutine::Halt), Some(Branch::LeafMissing)));
    let max_leaf = Some(Fact::new(2, Source::CpuInfo("cpuid level")));
    let seen = BootFacts { max_leaf, ..limited };
    assert_eq!(answer(seen).1, Some(Branch::LeafMissing));
}

#[test]
fn monitor_errata_depend_on_the_kernel() {
    let goldmont = facts(INTEL, 0x15, 0x0005_06c9, MONITOR, Some([3, 0x1124_2020]));
    let lunar_lake = facts(INTEL, 0x23, 0x000b_06d1, MONITOR, Some([3, 0x1000_2020]));
    let ask = |facts, kernel| answer(with(facts, kernel, ""));
    for kernel in Kernel::ALL {
        let broken = (Some(IdleRoutine::Halt), Some(Branch::MonitorBug));
        let mwait_by = |branch| (Some(IdleRoutine::Mwait), Some(branch));
        let sound = |kernel| {
            mwait_by(if kernel == Kernel::V5_18 { Branch::IsIntel } else { Branch::HasC1 })
        };
        assert_eq!(ask(goldmont, kernel), broken);
        let expected = if kernel <= Kernel::V6_1 { sound(kernel) } else { broken };
        assert_eq!(ask(lunar_lake, kernel), expected);
    }
}

#[test]
fn erratum_400_decides_in_6_1_only() {
    let phenom = facts(AMD, 5, 0x0010_0f42, MONITOR, Some([3, 0]));
    let expected = (Some(IdleRoutine::E400Halt), Some(Branch::HasE400));
    assert_eq!(answer(with(phenom, Kernel::V6_1, "")), expected);
    // idle=nomwait is asked later, idle=halt earlier.
    assert_eq!(answer(with(phenom, Kernel::V6_1, "idle=nomwait")), expected);
    let halt = answer(with(phenom, Kernel::V6_1, "idle=halt"));
    assert_eq!(halt, (Some(IdleRoutine::Halt), Some(Branch::HaltDecided)));
    for kernel in [Kernel::V6_12, Kernel::V7_2] {
        let selected = answer(with(phenom, kernel, ""));
        assert_eq!(selected, (Some(IdleRoutine::Halt), Some(Branch::NoC1)));
    }
    // The first affected steppings, and the last that are not.
    let listed = |signature| facts(AMD, 1, signature, 0, None).has_e400().map(|is| is.value);
    assert_eq!(listed(0x0010_0f20), Some(false));
    assert_eq!(listed(0x0010_0f21), Some(true));
    assert_eq!(listed(0x0004_0f11), Some(false));
    assert_eq!(listed(0x0004_0f12), Some(true));
    assert_eq!(listed(0x0060_0f12), Some(false));
}

#[test]
fn firmware_can_overrule_the_list_of_erratum_400_in_6_1() {
    let osvw = Some(Fact::new(true, Source::Leaf(0x8000_0001)));
    let phenom = facts(AMD, 5, 0x0010_0f42, MONITOR, Some([3, 0]));
    let phenom = with(BootFacts { has_osvw: osvw, ..phenom }, Kernel::V6_1, "");
    let selected = select(&phenom);
    assert_eq!(selected.routine(), None);
    let possible: [_; 2] = {
        let mut possible = selected.possible();
        [possible.next().unwrap().0, possible.next().unwrap().0]
    };
    assert_eq!(possible, [IdleRoutine::Halt, IdleRoutine::E400Halt]);
    // Later families were never affected.
    let bulldozer = facts(AMD, 0xd, 0x0060_0f12, MONITOR, Some([3, 0]));
    let bulldozer = with(BootFacts { has_osvw: osvw, ..bulldozer }, Kernel::V6_1, "");
    assert_eq!(answer(bulldozer).1, Some(Branch::NoC1));
}

#[test]
fn honours_the_command_line() {
    use IdleRoutine::{Halt, Mwait, Poll};
    for kernel in BY_CPUID {
        let ask = |cmdline| answer(with(zen3(), kernel, cmdline));
        assert_eq!(ask("quiet idle=nomwait").0, Some(Halt));
        assert_eq!(ask("idle=halt").0, Some(Halt));
        assert_eq!(ask("idle=poll"), (Some(Poll), Some(Branch::PollRequested)));
        assert_eq!(ask("idle=halt idle=poll").0, Some(Poll));
        // Polling is not undone by a later value.
        assert_eq!(ask("idle=poll idle=halt").0, Some(Poll));
        assert_eq!(ask("idle=mwait").0, Some(Mwait));
        assert_eq!(ask("cpuidle=poll").0, Some(Mwait));
        assert_eq!(ask("quiet -- idle=halt").0, Some(Mwait));
    }
    // 6.1 sets HLT while it reads the parameter.
    let ask = |kernel| answer(with(zen3(), kernel, "idle=halt")).1;
    assert_eq!(ask(Kernel::V6_1), Some(Branch::HaltDecided));
    assert_eq!(ask(Kernel::V6_12), Some(Branch::HaltRequested));
}

#[test]
fn a_tdx_guest_asks_tdx_unless_mwait_is_offered() {
    let is_tdx_guest = Some(Fact::new(true, Source::Leaf(0x21)));
    let hidden = facts(INTEL, 0x21, 0x0008_06f8, 1 << 31, Some([0, 0]));
    let hidden = BootFacts { is_tdx_guest, ..hidden };
    let offered = BootFacts { is_tdx_guest, ..zen3() };
    for kernel in BY_CPUID {
        let ask = |facts, cmdline| answer(with(facts, kernel, cmdline)).0;
        assert_eq!(ask(hidden, ""), Some(IdleRoutine::TdxHalt));
        assert_eq!(ask(hidden, "idle=nomwait"), Some(IdleRoutine::TdxHalt));
        assert_eq!(ask(offered, ""), Some(IdleRoutine::Mwait));
    }
    // 6.1 obeys idle=halt although HLT is emulated there.
    let ask = |kernel| answer(with(hidden, kernel, "idle=halt")).0;
    assert_eq!(ask(Kernel::V6_1), Some(IdleRoutine::Halt));
    assert_eq!(ask(Kernel::V6_12), Some(IdleRoutine::TdxHalt));
}

#[test]
fn xen_chooses_before_the_kernel() {
    let of = |xen, kernel| {
        let xen = Some(Fact::new(xen, Source::File("/sys/hypervisor/guest_type")));
        answer(with(BootFacts { xen, ..zen3() }, kernel, ""))
    };
    let decided = (Some(IdleRoutine::Halt), Some(Branch::XenDecided));
    for kernel in Kernel::ALL {
        assert_eq!(of(Xen::Pv, kernel), decided);
        let by_cpuid = if kernel == Kernel::V5_18 { IdleRoutine::Halt } else { IdleRoutine::Mwait };
        assert_eq!(of(Xen::Other, kernel).0, Some(by_cpuid));
    }
    assert_eq!(of(Xen::PvhDom0, Kernel::V6_1).0, Some(IdleRoutine::Mwait));
    assert_eq!(of(Xen::PvhDom0, Kernel::V6_12), decided);
}

#[test]
fn an_unknown_leaf_5_leaves_both_routines_possible() {
    // What /proc/cpuinfo shows: the flag, but not the leaf.
    let shown = BootFacts { leaf5: None, ..zen3() };
    let selected = select(&shown);
    assert_eq!(selected.routine(), None);
    let routine_is = |wanted| selected.possible().any(|(routine, _)| routine == wanted);
    assert!(routine_is(IdleRoutine::Mwait) && routine_is(IdleRoutine::Halt));
    let halt = selected.possible().find(|(routine, _)| *routine == IdleRoutine::Halt);
    assert_eq!(halt, Some((IdleRoutine::Halt, Some(Branch::NoC1))));
    // It does not matter where the command line decides.
    let nomwait = select(&with(shown, Kernel::V6_12, "idle=nomwait"));
    assert_eq!(nomwait.routine(), Some(IdleRoutine::Halt));
    assert_eq!(nomwait.unknown().count(), 0);
}

#[test]
fn the_log_warns_of_polling_beside_a_sibling() {
    let warning = "process: WARNING: polling idle and HT enabled, performance may degrade";
    let with_smt = |has_smt| {
        let has_smt = Some(Fact::new(has_smt, Source::CpuInfo("siblings")));
        with(BootFacts { has_smt, ..zen3() }, Kernel::V6_12, "idle=poll")
    };
    let lines = |facts| log_lines(&facts, IdleRoutine::Poll);
    assert!(lines(with_smt(true)).eq(["process: using polling idle threads", warning]));
    assert!(lines(with_smt(false)).eq(["process: using polling idle threads"]));
    // As seen in a virtual machine with two threads a core and without TOPOEXT.
    let without_topoext = Some(Fact::new(false, Source::Leaf(0x8000_0001)));
    let amd = BootFacts { has_topoext: without_topoext, ..with_smt(true) };
    let old = BootFacts { kernel: Kernel::V6_1, ..amd };
    assert!(lines(old).eq(["process: using polling idle threads"]));
    assert_eq!(lines(amd).count(), 2);
    let has_topoext = without_topoext.map(|fact| Fact { value: true, ..fact });
    assert_eq!(lines(BootFacts { has_topoext, ..old }).count(), 2);
    let mwait = log_lines(&zen3(), IdleRoutine::Mwait);
    assert!(mwait.eq(["process: using mwait in idle threads"]));
    assert_eq!(log_lines(&zen3(), IdleRoutine::Halt).count(), 0);
}

#[test]
fn finds_the_kernel_with_the_nearest_rules() {
    let nearest = |release| Kernel::nearest(release);
    assert_eq!(nearest("6.1.0-18-amd64"), Some((Kernel::V6_1, true)));
    assert_eq!(nearest("6.12.117+deb12-amd64"), Some((Kernel::V6_12, true)));
    assert_eq!(nearest("6.8.0-31-generic"), Some((Kernel::V6_1, false)));
    assert_eq!(nearest("6.18.5"), Some((Kernel::V6_12, false)));
    assert_eq!(nearest("7.2.11"), Some((Kernel::V7_2, true)));
    assert_eq!(nearest("7.3.4-arch1"), Some((Kernel::V7_2, false)));
    assert_eq!(nearest("6.0.19"), Some((Kernel::V6_1, false)));
    assert_eq!(nearest("5.18.0-4-amd64"), Some((Kernel::V5_18, true)));
    assert_eq!(nearest("5.10.0"), Some((Kernel::V5_18, false)));
    assert_eq!(nearest("custom"), None);
}

#[test]
fn reads_module_parameters_as_the_kernel_does() {
    let parse = Cmdline::parse;
    assert!(parse("cpuidle-haltpoll.force=Y").haltpoll_forced);
    assert!(parse("cpuidle_haltpoll.force").haltpoll_forced);
    assert!(!parse("cpuidle_haltpoll.force=0").haltpoll_forced);
    assert!(parse("intel_idle.max_cstate=0 cpuidle.off=1").intel_idle_off);
    assert!(!parse("intel_idle.max_cstate=1").intel_idle_off);
    assert!(parse("cpuidle.off=1").cpuidle_off && !parse("cpuidle.off=0").cpuidle_off);
}
