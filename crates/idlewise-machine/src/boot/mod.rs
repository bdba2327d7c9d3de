//! Which idle routine an x86 CPU uses after boot, and why.
//!
//! If a cpuidle driver registers its CPUs, the driver decides. Without one (C-states disabled in the
//! firmware, or no driver built in) the kernel chooses once, for all CPUs. Wyes Karny's "Prefer MWAIT over
//! HALT on AMD processors" (2022, in 6.0) restored the rule that the choice depends on what CPUID leaf 5
//! enumerates and not on the vendor: wherever MWAIT C1 exists, it wakes faster than HLT.
//!
//! [`select`] follows `select_idle_routine` and `prefer_mwait_c1_over_halt` in `arch/x86/kernel/process.c`
//! of Linux 6.1.192, 6.12.117 and 7.2.12, as Debian has them, and of 5.18. [`BRANCHES`] is the rule as a table;
//! the kernel module has the rows of 6.1 and later, and a test compares the two.
//!
//! ```text
//! idle=poll ──────────────────────────────► poll, driver or not
//! Xen chose before; idle=halt (6.1) ──────► HLT
//! AMD erratum 400 (6.1) ──────────────────► HLT that keeps the timer running
//! idle=halt, idle=nomwait ────────┐
//! no MWAIT, or no CPUID leaf 5 ───┤
//! MONITOR misses stores ──────────┼─ no MWAIT ──► a TDX guest: HLT by TDX
//! extensions, but no C1 substate ─┘               otherwise: HLT
//! no extensions listed ───────────────────► MWAIT (EAX = ECX = 0 is safe)
//! C1 substates listed ────────────────────► MWAIT
//! ```
//!
//! 5.18 stands for the kernels from 4.1 to 5.19. They asked for Intel as the vendor and not for leaf 5, so AMD's CPUs
//! got HLT. The commits, by their order in time:
//!
//! | commit | kernel | what it did |
//! | --- | --- | --- |
//! | 09fd4b4ef5bc | 2.6.27 | asks leaf 5 whether MWAIT has C1, as 6.0 does again |
//! | 69fb3676df33 | 3.9 | removes the default MWAIT: HLT, and MWAIT in drivers only |
//! | b253149b843f | 4.1 | brings it back, for Intel only |
//! | 8bcedb4ce047 | 6.0 | obeys `idle=nomwait` here too; stable releases of August 2022 have it as well (5.18.18) |
//! | aebef63cf7ff | 6.0 | asks leaf 5 and not the vendor |
//!
//! A fact that nobody knows is `None`. The rule then follows both ways, and the result lists each routine
//! that is possible. [`cpuid`] reads facts from a dump, [`driver`] says what cpuidle drivers will do.
//!
//! Limits: the kernel asks the boot CPU, so a machine whose CPUs differ is judged by its first one. Kernels
//! before 4.1 are not modelled.

pub mod cpuid;
pub mod driver;
mod facts;

use idlewise_core::words;
use std::fmt;

use cpuid::{CpuModel, Kvm, MwaitLeaf, Vendor};
pub use facts::{Bugs, Cmdline, Fact, IdleParameter, Known, Source, Xen};

words! {
    /// The kernel whose rules apply.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Kernel {
        /// Linux 5.18: the rule from 4.1 to 5.19, by vendor.
        V5_18 = "5.18",
        /// Linux 6.1.
        V6_1 = "6.1",
        /// Linux 6.12.
        #[default]
        V6_12 = "6.12",
        /// Linux 7.2.
        V7_2 = "7.2",
    }
}

impl Kernel {
    /// The kernel of [`Self::ALL`] whose rules are nearest to those of a release such as
    /// `6.1.0-18-amd64`, and whether it is the same version. `None` if there is no version in it.
    pub fn nearest(release: &str) -> Option<(Self, bool)> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse::<u32>().ok();
        let version = (number()?, number()?);
        Some(match version {
            (5, 18) => (Self::V5_18, true),
            (6, 1) => (Self::V6_1, true),
            (6, 12) => (Self::V6_12, true),
            (7, 2) => (Self::V7_2, true),
            (..6, _) => (Self::V5_18, false),
            // The rule was rewritten in February 2024, before 6.9's merge window.
            (6, ..9) => (Self::V6_1, false),
            (6, _) | (7, ..2) => (Self::V6_12, false),
            _ => (Self::V7_2, false),
        })
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Everything that the choice depends on, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootFacts {
    /// The kernel whose rules apply.
    pub kernel: Kernel,
    /// The kernel's command line.
    pub cmdline: Known<Cmdline>,
    /// Vendor, family, model and stepping.
    pub cpu: Known<CpuModel>,
    /// Whether a hypervisor shows itself.
    pub is_guest: Known<bool>,
    /// The highest basic leaf of CPUID.
    pub max_leaf: Known<u32>,
    /// Whether the CPU claims to have MONITOR and MWAIT.
    pub has_mwait: Known<bool>,
    /// Leaf 5.
    pub leaf5: Known<MwaitLeaf>,
    /// Whether the firmware can tell the kernel which errata need a workaround (AMD's OSVW).
    pub has_osvw: Known<bool>,
    /// What a running kernel shows.
    pub bugs: Known<Bugs>,
    /// What Linux is to Xen.
    pub xen: Known<Xen>,
    /// Whether it runs in a TDX guest.
    pub is_tdx_guest: Known<bool>,
    /// Whether a core has several threads.
    pub has_smt: Known<bool>,
    /// Whether AMD's leaf 0x8000001e describes the topology (TOPOEXT).
    pub has_topoext: Known<bool>,
    /// What KVM offers.
    pub kvm: Known<Kvm>,
}

impl BootFacts {
    fn is_intel_model(&self, family: u32, models: &[u32]) -> Known<bool> {
        let is = |cpu: CpuModel| {
            cpu.vendor == Vendor::Intel && cpu.family == family && models.contains(&cpu.model)
        };
        Some(Fact::new(is(self.cpu?.value), Source::Model))
    }

    /// Whether CPUID ends before leaf 5, so that the kernel clears the MWAIT feature. Unknown where the
    /// kernel will lift a limit that the firmware set: a dump taken under Linux shows leaf 5, but one
    /// taken under another system does not.
    fn is_leaf_missing(&self) -> Known<bool> {
        let missing = self.max_leaf?.map(|leaf| leaf < 5);
        let is_bare = self.is_guest.is_some_and(|is_guest| !is_guest.value);
        let is_lifted = self.cpu.is_some_and(|cpu| cpu.value.has_cpuid_limit()) && is_bare;
        let is_seen_by_linux = matches!(missing.source, Source::CpuInfo(_));
        (!missing.value || !is_lifted || is_seen_by_linux).then_some(missing)
    }

    /// Whether MONITOR can miss a store (`X86_BUG_MONITOR`): Goldmont (erratum APL30), and Lunar Lake
    /// (LNL030) since 6.12. A patch of April 2025 would add Ice Lake servers (ICX143); 7.2.12 lacks it.
    fn has_monitor_bug(&self) -> Known<bool> {
        let models: &[u32] = if self.kernel <= Kernel::V6_1 { &[0x5c] } else { &[0x5c, 0xbd] };
        self.is_intel_model(6, models)
    }

    /// Whether the kernel sees that a core has several threads. On AMD, 6.1 and older see it by TOPOEXT
    /// only, which virtual machines often lack.
    pub fn sees_smt(&self) -> Known<bool> {
        let is_amd = [Vendor::Amd, Vendor::Hygon].contains(&self.cpu?.value.vendor);
        match self.has_topoext {
            _ if !is_amd || self.kernel > Kernel::V6_1 => self.has_smt,
            Some(Fact { value: true, .. }) => self.has_smt,
            has_topoext => has_topoext,
        }
    }

    /// Whether the line must be flushed before MONITOR (`X86_BUG_CLFLUSH_MONITOR`, erratum AAI65):
    /// Dunnington, Nehalem-EX and Westmere-EX. This does not change the choice.
    pub fn needs_clflush(&self) -> Known<bool> {
        self.is_intel_model(6, &[0x1d, 0x2e, 0x2f])
    }

    /// Whether the CPU is one of those with AMD's erratum 400 (`X86_BUG_AMD_E400`): in C1E the APIC's
    /// timer stops. 6.1 and older ask the firmware first, where it can answer (OSVW).
    pub fn has_e400(&self) -> Known<bool> {
        let cpu = self.cpu?.value;
        let place = (cpu.model, cpu.stepping);
        let is_listed = cpu.vendor == Vendor::Amd
            && match cpu.family {
                0x0f => place >= (0x41, 2),
                0x10 => place >= (0x02, 1),
                _ => false,
            };
        let is_concerned = cpu.vendor == Vendor::Amd && [0x0f, 0x10].contains(&cpu.family);
        if is_concerned && self.kernel <= Kernel::V6_1 {
            if let Some(bugs) = self.bugs {
                return Some(bugs.map(|bugs| bugs.e400));
            }
            if self.has_osvw.is_none_or(|has| has.value) {
                return None;
            }
        }
        Some(Fact::new(is_listed, Source::Model))
    }
}

words! {
    /// How an idle CPU waits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum IdleRoutine {
        /// It spins until there is work.
        Poll = "poll",
        /// It uses MWAIT without hints: C1.
        Mwait = "MWAIT C1",
        /// It uses HLT.
        Halt = "HLT",
        /// It uses HLT, and lets another CPU keep its timer if the firmware uses C1E.
        E400Halt = "E400-aware HLT",
        /// It asks the TDX module to wait.
        TdxHalt = "HLT by TDX",
    }
}

impl fmt::Display for IdleRoutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What follows if the answer to a branch is yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This routine.
    Routine(IdleRoutine),
    /// No MWAIT: HLT, or TDX's in a TDX guest.
    NoMwait,
}

/// A question that the kernel asks, in its order. The variants' names are those of [`Row::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their rows in BRANCHES say what they ask")]
pub enum Branch {
    PollRequested,
    XenDecided,
    HaltDecided,
    HasE400,
    HaltRequested,
    MwaitForbidden,
    NotIntel,
    NoMwait,
    LeafMissing,
    MonitorBug,
    IsIntel,
    C1eFound,
    NoExtensions,
    HasC1,
    NoC1,
    TdxGuest,
}

/// A branch of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The question.
    pub branch: Branch,
    /// Its name, also in the kernel module.
    pub name: &'static str,
    /// What the kernel asks.
    pub question: &'static str,
    /// What follows from a yes.
    pub answer: Answer,
    /// Why, in a sentence with "because".
    pub reason: &'static str,
    /// The first and the last kernel that ask it.
    pub kernels: (Kernel, Kernel),
}

const ANY: (Kernel, Kernel) = (Kernel::V5_18, Kernel::V7_2);
const BY_VENDOR: (Kernel, Kernel) = (Kernel::V5_18, Kernel::V5_18);
const OLD: (Kernel, Kernel) = (Kernel::V5_18, Kernel::V6_1);
const BY_LEAF: (Kernel, Kernel) = (Kernel::V6_1, Kernel::V7_2);
const NEW: (Kernel, Kernel) = (Kernel::V6_12, Kernel::V7_2);

const fn row(
    (branch, name): (Branch, &'static str),
    question: &'static str,
    answer: Answer,
    reason: &'static str,
    kernels: (Kernel, Kernel),
) -> Row {
    Row { branch, name, question, answer, reason, kernels }
}

/// The number of branches.
pub const BRANCH_COUNT: usize = 16;

/// The rule: the first branch with a yes decides. After a "no MWAIT" only the last branch is asked.
pub static BRANCHES: [Row; BRANCH_COUNT] = {
    use Answer::{NoMwait, Routine};
    use IdleRoutine::*;
    [
        row(
            (Branch::PollRequested, "poll_requested"),
            "idle=poll?",
            Routine(Poll),
            "idle=poll is on the command line",
            ANY,
        ),
        row(
            (Branch::XenDecided, "xen_decided"),
            "Has Xen chosen before?",
            Routine(Halt),
            "Xen disables cpuidle and chooses HLT before the kernel can",
            ANY,
        ),
        row(
            (Branch::HaltDecided, "halt_decided"),
            "idle=halt?",
            Routine(Halt),
            "idle=halt is on the command line",
            OLD,
        ),
        row(
            (Branch::HasE400, "has_e400"),
            "AMD erratum 400?",
            Routine(E400Halt),
            "the CPU has AMD erratum 400: in C1E its APIC timer stops",
            OLD,
        ),
        row(
            (Branch::HaltRequested, "halt_requested"),
            "idle=halt?",
            NoMwait,
            "idle=halt is on the command line",
            NEW,
        ),
        row(
            (Branch::MwaitForbidden, "mwait_forbidden"),
            "idle=nomwait?",
            NoMwait,
            "idle=nomwait is on the command line",
            ANY,
        ),
        row(
            (Branch::NotIntel, "not_intel"),
            "Another vendor than Intel?",
            NoMwait,
            "before 6.0 only Intel's CPUs got MWAIT",
            BY_VENDOR,
        ),
        row(
            (Branch::NoMwait, "no_mwait"),
            "No MWAIT?",
            NoMwait,
            "the CPU has no MWAIT, or the firmware or hypervisor hides it",
            ANY,
        ),
        row(
            (Branch::LeafMissing, "leaf_missing"),
            "Does CPUID end before leaf 5?",
            NoMwait,
            "CPUID ends before leaf 5, so the kernel disables MWAIT",
            ANY,
        ),
        row(
            (Branch::MonitorBug, "monitor_bug"),
            "Can MONITOR miss a store?",
            NoMwait,
            "an erratum of this CPU lets MONITOR miss stores",
            ANY,
        ),
        row(
            (Branch::IsIntel, "is_intel"),
            "Intel?",
            Routine(Mwait),
            "before 6.0 Intel's CPUs got MWAIT, whatever leaf 5 lists",
            BY_VENDOR,
        ),
        row(
            (Branch::C1eFound, "c1e_found"),
            "Does C1E stop the APIC timer?",
            NoMwait,
            "the APIC timer stops in C1E (AMD erratum 400)",
            NEW,
        ),
        row(
            (Branch::NoExtensions, "no_extensions"),
            "Does leaf 5 list no extensions?",
            Routine(Mwait),
            "CPUID leaf 5 lists no extensions, so MWAIT without hints is safe",
            BY_LEAF,
        ),
        row(
            (Branch::HasC1, "has_c1"),
            "Does leaf 5 list C1 substates?",
            Routine(Mwait),
            "CPUID leaf 5 lists C1 substates",
            BY_LEAF,
        ),
        row(
            (Branch::NoC1, "no_c1"),
            "Does leaf 5 list no C1?",
            NoMwait,
            "CPUID leaf 5 lists extensions but no C1 substate",
            BY_LEAF,
        ),
        row(
            (Branch::TdxGuest, "tdx_guest"),
            "A TDX guest?",
            Routine(TdxHalt),
            "a TDX guest must not execute HLT itself",
            BY_LEAF,
        ),
    ]
};

impl Branch {
    /// Its row.
    pub fn row(self) -> &'static Row {
        &BRANCHES[self as usize]
    }

    /// The answer. `None` if nobody knows.
    fn ask(self, facts: &BootFacts) -> Known<bool> {
        let idle_is = |wanted| Some(facts.cmdline?.map(|cmdline: Cmdline| cmdline.idle == wanted));
        let is_intel = || Some(facts.cpu?.map(|cpu| cpu.vendor == Vendor::Intel));
        match self {
            Self::PollRequested => Some(facts.cmdline?.map(|cmdline| cmdline.polls)),
            Self::XenDecided => Some(facts.xen?.map(|xen| xen.decides(facts.kernel))),
            Self::HaltDecided => Some(facts.cmdline?.map(|cmdline| cmdline.halts)),
            Self::HasE400 => facts.has_e400(),
            Self::HaltRequested => idle_is(IdleParameter::Halt),
            // 5.18 obeys from its eighteenth stable release on.
            Self::MwaitForbidden => idle_is(IdleParameter::NoMwait)
                .filter(|forbidden| !forbidden.value || facts.kernel > Kernel::V5_18),
            Self::NotIntel => is_intel().map(|is| is.map(|is| !is)),
            Self::IsIntel => is_intel(),
            Self::NoMwait => Some(facts.has_mwait?.map(|has| !has)),
            Self::LeafMissing => facts.is_leaf_missing(),
            Self::MonitorBug => facts.has_monitor_bug(),
            // The kernel looks for C1E only after ACPI is up, long after it has chosen.
            Self::C1eFound => Some(Fact::new(false, Source::Kernel)),
            Self::NoExtensions => Some(facts.leaf5?.map(|leaf| !leaf.enumerates_extensions)),
            Self::HasC1 => Some(facts.leaf5?.map(|leaf| leaf.c1_substate_count() > 0)),
            Self::NoC1 => Some(facts.leaf5?.map(|leaf| leaf.c1_substate_count() == 0)),
            Self::TdxGuest => facts.is_tdx_guest,
        }
    }
}

/// What became of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes: it decides, or ends the questions about MWAIT.
    Taken(Source),
    /// No.
    NotTaken(Source),
    /// Nobody knows.
    Unknown,
    /// An earlier branch decided.
    NotReached,
    /// This kernel does not ask.
    Absent,
}

/// The choice, branch by branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// What became of each of [`BRANCHES`].
    pub verdicts: [Verdict; BRANCH_COUNT],
    /// For each routine the branch that leads to it, and whether several do.
    outcomes: [Option<(Branch, bool)>; IdleRoutine::ALL.len()],
}

impl Selection {
    /// The routine, if what is known decides it.
    pub fn routine(&self) -> Option<IdleRoutine> {
        let mut possible = self.possible();
        let first = possible.next().map(|(routine, _)| routine);
        first.filter(|_| possible.next().is_none())
    }

    /// Each possible routine, and the branch that leads to it if it is only one.
    pub fn possible(&self) -> impl Iterator<Item = (IdleRoutine, Option<Branch>)> {
        let outcomes = IdleRoutine::ALL.into_iter().zip(self.outcomes);
        outcomes.filter_map(|(routine, outcome)| {
            let (branch, is_one_of_several) = outcome?;
            Some((routine, (!is_one_of_several).then_some(branch)))
        })
    }

    /// The branches whose answer is unknown and matters.
    pub fn unknown(&self) -> impl Iterator<Item = Branch> {
        let rows = BRANCHES.iter().zip(self.verdicts);
        rows.filter(|(_, verdict)| *verdict == Verdict::Unknown).map(|(row, _)| row.branch)
    }

    fn add(&mut self, routine: IdleRoutine, branch: Branch) {
        let outcome = &mut self.outcomes[routine as usize];
        *outcome = Some(match outcome {
            None => (branch, false),
            Some((first, is_several)) => (*first, *is_several || *first != branch),
        });
    }
}

/// Chooses the idle routine as the kernel does.
///
/// ```
/// # use idlewise_machine::boot::{BootFacts, Fact, IdleRoutine, Source, cpuid::Cpuid, select};
/// // CPUID of an EPYC: MONITOR, and a leaf 5 that lists one C1 substate.
/// let dump = "\
/// 0x00000000 0x00: eax=0x00000010 ebx=0x68747541 ecx=0x444d4163 edx=0x69746e65
/// 0x00000001 0x00: eax=0x00a00f11 ebx=0x00000800 ecx=0x7ed8320b edx=0x178bfbff
/// 0x00000005 0x00: eax=0x00000040 ebx=0x00000040 ecx=0x00000003 edx=0x00000011";
/// let facts = Cpuid::parse(dump).unwrap().facts(BootFacts::without_cmdline());
/// assert_eq!(select(&facts).routine(), Some(IdleRoutine::Mwait));
/// ```
pub fn select(facts: &BootFacts) -> Selection {
    let mut found = Selection {
        verdicts: [Verdict::NotReached; BRANCH_COUNT],
        outcomes: [None; IdleRoutine::ALL.len()],
    };
    let mut is_open = true;
    // The branches that led to "no MWAIT".
    let mut without_mwait: [Option<Branch>; BRANCH_COUNT] = [None; BRANCH_COUNT];
    for row in &BRANCHES[..Branch::TdxGuest as usize] {
        let index = row.branch as usize;
        if !(row.kernels.0..=row.kernels.1).contains(&facts.kernel) {
            found.verdicts[index] = Verdict::Absent;
            continue;
        }
        if !is_open {
            continue;
        }
        let answer = row.branch.ask(facts);
        found.verdicts[index] = verdict(answer);
        if answer.is_some_and(|is| !is.value) {
            continue;
        }
        match row.answer {
            Answer::Routine(routine) => found.add(routine, row.branch),
            Answer::NoMwait => without_mwait[index] = Some(row.branch),
        }
        is_open = answer.is_none();
    }
    let without_mwait = without_mwait.into_iter().flatten();
    if without_mwait.clone().next().is_some() {
        let is_asked = Branch::TdxGuest.row().kernels.0 <= facts.kernel;
        let is_tdx = if is_asked {
            Branch::TdxGuest.ask(facts)
        } else {
            Some(Fact::new(false, Source::Kernel))
        };
        let verdict = if is_asked { verdict(is_tdx) } else { Verdict::Absent };
        found.verdicts[Branch::TdxGuest as usize] = verdict;
        if is_tdx.is_none_or(|is| is.value) {
            found.add(IdleRoutine::TdxHalt, Branch::TdxGuest);
        }
        if is_tdx.is_none_or(|is| !is.value) {
            without_mwait.for_each(|branch| found.add(IdleRoutine::Halt, branch));
        }
    }
    found
}

fn verdict(answer: Known<bool>) -> Verdict {
    match answer {
        None => Verdict::Unknown,
        Some(Fact { value: true, source }) => Verdict::Taken(source),
        Some(Fact { value: false, source }) => Verdict::NotTaken(source),
    }
}

/// The lines that the kernel's log will have about its choice, in order, if `routine` is chosen. HLT is
/// chosen without a line.
pub fn log_lines(
    facts: &BootFacts,
    routine: IdleRoutine,
) -> impl Iterator<Item = &'static str> + use<> {
    let is = |fact: Known<bool>| fact.is_some_and(|is| is.value);
    let cmdline = facts.cmdline.map(|cmdline| cmdline.value).unwrap_or_default();
    let has_warning = cmdline.idle == IdleParameter::Poll && is(facts.sees_smt());
    let line = |is_there: bool, line: &'static str| is_there.then_some(line);
    let lines = [
        line(
            is(facts.has_mwait) && is(facts.is_leaf_missing()),
            "CPU: CPU feature monitor disabled, no CPUID level 0x5",
        ),
        line(cmdline.polls, "process: using polling idle threads"),
        line(has_warning, "process: WARNING: polling idle and HT enabled, performance may degrade"),
        match routine {
            IdleRoutine::E400Halt => Some("process: using AMD E400 aware idle routine"),
            IdleRoutine::Mwait => Some("process: using mwait in idle threads"),
            IdleRoutine::TdxHalt => Some("process: using TDX aware idle routine"),
            IdleRoutine::Poll | IdleRoutine::Halt => None,
        },
    ];
    lines.into_iter().flatten()
}

impl BootFacts {
    /// A machine with an empty command line, outside of Xen, of which nothing else is known.
    pub fn without_cmdline() -> Self {
        BootFacts {
            cmdline: Some(Fact::new(Cmdline::default(), Source::Assumed)),
            xen: Some(Fact::new(Xen::Other, Source::Assumed)),
            ..BootFacts::default()
        }
    }
}

#[cfg(test)]
mod tests;
