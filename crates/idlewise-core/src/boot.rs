//! Which idle routine an x86 CPU uses after boot, and why.
//!
//! If a cpuidle driver is registered, the driver decides. Without one (C-states disabled in the firmware,
//! or no driver built in) the kernel chooses once, for all CPUs. Wyes Karny's "Prefer MWAIT over HALT on
//! AMD processors" (2022, in 6.0) restored the rule that the choice depends on what CPUID leaf 5 enumerates
//! and not on the vendor: wherever MWAIT C1 exists, it wakes faster than HLT. This follows
//! `select_idle_routine` of 6.12, `arch/x86/kernel/process.c`.
//!
//! ```text
//! idle=poll ───────────────► poll, driver or not
//! a driver is registered ──► the driver decides
//! idle=halt, idle=nomwait ─► HLT
//! no MWAIT, or broken ─────► HLT
//! no extensions listed ────► MWAIT (EAX = ECX = 0 is safe)
//! C1 substates listed ─────► MWAIT, else HLT
//! ```

use core::fmt;

/// The `idle=` parameter on the kernel's command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdleParameter {
    /// Not given.
    #[default]
    None,
    /// `idle=poll`.
    Poll,
    /// `idle=halt`.
    Halt,
    /// `idle=nomwait`.
    NoMwait,
}

impl IdleParameter {
    /// Reads the parameter from a kernel command line. The last valid value wins. Unknown values are
    /// ignored, as in the kernel.
    ///
    /// ```
    /// # use idlewise_core::boot::{BootFacts, IdleParameter, IdleRoutine, MwaitFeatures, default_idle};
    /// assert_eq!(IdleParameter::from_cmdline("quiet idle=nomwait"), IdleParameter::NoMwait);
    /// ```
    pub fn from_cmdline(cmdline: &str) -> Self {
        let values = cmdline.split_ascii_whitespace().filter_map(|word| word.strip_prefix("idle="));
        values.fold(Self::None, |previous, value| match value {
            "poll" => Self::Poll,
            "halt" => Self::Halt,
            "nomwait" => Self::NoMwait,
            _ => previous,
        })
    }
}

/// What CPUID says about MONITOR/MWAIT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MwaitFeatures {
    /// Leaf 1, ECX bit 3: the instructions exist.
    pub is_supported: bool,
    /// Leaf 5, ECX bit 0: the leaf enumerates extensions, so its EDX means something.
    pub enumerates_extensions: bool,
    /// Leaf 5, EDX bits 4 to 7: the number of C1 substates.
    pub c1_substate_count: u8,
    /// An erratum forbids its use: MONITOR misses writes, or the APIC timer stops in C1E (AMD E400).
    pub is_broken: bool,
}

impl MwaitFeatures {
    /// Decodes the registers of CPUID leaf 1 (`leaf1_ecx`) and leaf 5.
    pub const fn from_cpuid(leaf1_ecx: u32, leaf5_ecx: u32, leaf5_edx: u32) -> Self {
        MwaitFeatures {
            is_supported: leaf1_ecx & 1 << 3 != 0,
            enumerates_extensions: leaf5_ecx & 1 != 0,
            c1_substate_count: (leaf5_edx >> 4 & 0xf) as u8,
            is_broken: false,
        }
    }
}

/// Everything that the choice depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootFacts {
    /// The command line's `idle=` parameter.
    pub parameter: IdleParameter,
    /// Whether a cpuidle driver is registered.
    pub has_driver: bool,
    /// The features that CPUID reports.
    pub mwait: MwaitFeatures,
}

/// How an idle CPU waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleRoutine {
    /// It spins until there is work.
    Poll,
    /// It uses the cpuidle driver's states, as the governor selects them.
    Driver,
    /// It uses MWAIT without hints: C1.
    Mwait,
    /// It uses HLT.
    Halt,
}

/// Why this routine was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleRoutineReason {
    /// `idle=poll` overrides even a driver.
    PollRequested,
    /// A driver is registered.
    DriverPresent,
    /// `idle=halt`.
    HaltRequested,
    /// `idle=nomwait`.
    MwaitForbidden,
    /// The CPU has no MWAIT (AMD before family 10h).
    MwaitUnsupported,
    /// The CPU's MWAIT has an erratum.
    MwaitBroken,
    /// Leaf 5 enumerates nothing, so plain MWAIT is safe.
    NoExtensions,
    /// C1 has at least one substate (Intel, AMD from family 17h on).
    HasC1Substates,
    /// Extensions, but no C1 substate (AMD families 10h to 15h).
    NoC1Substates,
}

impl fmt::Display for IdleRoutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poll => "poll",
            Self::Driver => "cpuidle driver",
            Self::Mwait => "MWAIT C1",
            Self::Halt => "HLT",
        })
    }
}

impl fmt::Display for IdleRoutineReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PollRequested => "idle=poll is on the command line",
            Self::DriverPresent => "a cpuidle driver is registered",
            Self::HaltRequested => "idle=halt is on the command line",
            Self::MwaitForbidden => "idle=nomwait is on the command line",
            Self::MwaitUnsupported => "the CPU has no MWAIT",
            Self::MwaitBroken => "an erratum forbids MWAIT on this CPU",
            Self::NoExtensions => {
                "CPUID leaf 5 lists no extensions, so MWAIT without hints is safe"
            }
            Self::HasC1Substates => "CPUID leaf 5 lists C1 substates",
            Self::NoC1Substates => "CPUID leaf 5 lists extensions but no C1 substate",
        })
    }
}

/// Returns the routine and the rule that chose it.
///
/// ```
/// # use idlewise_core::boot::{BootFacts, IdleParameter, IdleRoutine, MwaitFeatures, default_idle};
/// // CPUID of an EPYC: MONITOR, and a leaf 5 that lists one C1 sub-state.
/// let mwait = MwaitFeatures::from_cpuid(1 << 3, 1, 1 << 4);
/// let facts = BootFacts { mwait, ..BootFacts::default() };
/// assert_eq!(default_idle(facts).0, IdleRoutine::Mwait);
/// ```
pub fn default_idle(facts: BootFacts) -> (IdleRoutine, IdleRoutineReason) {
    use IdleRoutineReason::*;
    let reason = match (facts.parameter, facts.mwait) {
        (IdleParameter::Poll, _) => PollRequested,
        _ if facts.has_driver => DriverPresent,
        (IdleParameter::Halt, _) => HaltRequested,
        (IdleParameter::NoMwait, _) => MwaitForbidden,
        (_, mwait) if !mwait.is_supported => MwaitUnsupported,
        (_, mwait) if mwait.is_broken => MwaitBroken,
        (_, mwait) if !mwait.enumerates_extensions => NoExtensions,
        (_, mwait) if mwait.c1_substate_count > 0 => HasC1Substates,
        _ => NoC1Substates,
    };
    let routine = match reason {
        PollRequested => IdleRoutine::Poll,
        DriverPresent => IdleRoutine::Driver,
        NoExtensions | HasC1Substates => IdleRoutine::Mwait,
        HaltRequested | MwaitForbidden | MwaitUnsupported | MwaitBroken | NoC1Substates => {
            IdleRoutine::Halt
        }
    };
    (routine, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MONITOR: u32 = 1 << 3;
    /// AMD family 0Fh: no MONITOR.
    const FAMILY_0FH: MwaitFeatures = MwaitFeatures::from_cpuid(0, 0, 0);
    /// AMD families 10h to 15h: MWAIT and the extensions bit, EDX zero.
    const FAMILY_10H: MwaitFeatures = MwaitFeatures::from_cpuid(MONITOR, 0b11, 0);
    /// AMD family 17h and 19h: one C1 substate.
    const FAMILY_17H: MwaitFeatures = MwaitFeatures::from_cpuid(MONITOR, 0b11, 0x11);
    /// Intel Sapphire Rapids: C0 to C6 substates.
    const SAPPHIRE_RAPIDS: MwaitFeatures = MwaitFeatures::from_cpuid(MONITOR, 0b11, 0x10_2020);

    fn without_driver(mwait: MwaitFeatures, cmdline: &str) -> (IdleRoutine, IdleRoutineReason) {
        let parameter = IdleParameter::from_cmdline(cmdline);
        default_idle(BootFacts { parameter, has_driver: false, mwait })
    }

    #[test]
    fn follows_cpuid_on_each_amd_family_and_on_intel() {
        use IdleRoutine::{Halt, Mwait};
        use IdleRoutineReason::*;
        assert_eq!(without_driver(FAMILY_0FH, ""), (Halt, MwaitUnsupported));
        assert_eq!(without_driver(FAMILY_10H, ""), (Halt, NoC1Substates));
        assert_eq!(without_driver(FAMILY_17H, ""), (Mwait, HasC1Substates));
        assert_eq!(without_driver(SAPPHIRE_RAPIDS, ""), (Mwait, HasC1Substates));
    }

    #[test]
    fn uses_plain_mwait_where_no_extensions_are_listed() {
        // Without the extensions bit, EDX is undefined and must be ignored.
        let plain = MwaitFeatures::from_cpuid(MONITOR, 0, 0);
        let expected = (IdleRoutine::Mwait, IdleRoutineReason::NoExtensions);
        assert_eq!(without_driver(plain, ""), expected);
    }

    #[test]
    fn honours_the_command_line() {
        use IdleRoutineReason::*;
        let answer = |cmdline| without_driver(FAMILY_17H, cmdline);
        assert_eq!(answer("quiet idle=nomwait"), (IdleRoutine::Halt, MwaitForbidden));
        assert_eq!(answer("idle=halt"), (IdleRoutine::Halt, HaltRequested));
        assert_eq!(answer("idle=poll"), (IdleRoutine::Poll, PollRequested));
        assert_eq!(answer("idle=halt idle=poll"), (IdleRoutine::Poll, PollRequested));
        assert_eq!(answer("idle=mwait"), (IdleRoutine::Mwait, HasC1Substates));
        assert_eq!(answer("cpuidle=poll"), (IdleRoutine::Mwait, HasC1Substates));
    }

    #[test]
    fn leaves_the_choice_to_a_driver_but_not_over_idle_poll() {
        let facts = BootFacts { has_driver: true, mwait: FAMILY_17H, ..BootFacts::default() };
        assert_eq!(default_idle(facts), (IdleRoutine::Driver, IdleRoutineReason::DriverPresent));
        let polling = BootFacts { parameter: IdleParameter::Poll, ..facts };
        assert_eq!(default_idle(polling).0, IdleRoutine::Poll);
    }

    #[test]
    fn avoids_mwait_with_an_erratum() {
        let broken = MwaitFeatures { is_broken: true, ..FAMILY_17H };
        assert_eq!(without_driver(broken, "").1, IdleRoutineReason::MwaitBroken);
    }
}
