//! The keywords of machine files.

/// Declares an enum of keywords: each variant with its spelling in files, columns and footers.
macro_rules! words {
    ($(#[$outer:meta])* pub enum $name:ident {
        $($(#[$inner:meta])* $variant:ident = $word:literal,)*
    }) => {
        idlewise_core::words! {
            $(#[$outer])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
            #[non_exhaustive]
            pub enum $name { $($(#[$inner])* #[serde(rename = $word)] $variant = $word,)* }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// The instruction set family of a machine.
    #[derive(Default)]
    pub enum Arch {
        /// Intel and AMD.
        X86 = "x86",
        /// Arm, 32 and 64 bit.
        Arm = "arm",
        /// IBM POWER.
        Power = "power",
        /// Any other.
        #[default]
        Other = "other",
    }
}

impl Arch {
    /// The architecture that `uname -m` names.
    pub fn of_uname(machine: &str) -> Self {
        match machine {
            "x86_64" | "i386" | "i486" | "i586" | "i686" => Arch::X86,
            machine if machine.starts_with("arm") || machine.starts_with("aarch64") => Arch::Arm,
            machine if machine.starts_with("ppc") || machine.starts_with("powerpc") => Arch::Power,
            _ => Arch::Other,
        }
    }
}

words! {
    /// What a driver says a state needs or does, mostly `CPUIDLE_FLAG_*` in `include/linux/cpuidle.h`.
    pub enum Flag {
        /// Busy wait.
        Polling = "polling",
        /// A promotion timer is started on entry.
        AutoPromote = "auto-promote",
        /// The local timer stops, so another wake-up source is needed.
        TimerStop = "timer-stop",
        /// The TLB is flushed.
        TlbFlushed = "tlb-flushed",
        /// Offered even if the firmware does not list it.
        AlwaysEnable = "always-enable",
        /// Entered with interrupts enabled.
        IrqEnable = "irq-enable",
        /// The restriction of indirect branches is lifted while idle.
        Ibrs = "ibrs",
        /// The extended register state is reset first.
        InitXstate = "init-xstate",
        /// The firmware's list is matched by part of the hint only.
        PartialHintMatch = "partial-hint-match",
        /// Never used unless somebody requests it.
        Unusable = "unusable",
        /// POWER: a stop state that keeps its context.
        StopFast = "stop-fast",
        /// POWER: a stop state that loses its context.
        StopDeep = "stop-deep",
    }
}

words! {
    /// A state that UMWAIT and TPAUSE can request.
    pub enum UmwaitState {
        /// Faster exit, lower savings.
        C01 = "C0.1",
        /// Slower exit, higher savings.
        C02 = "C0.2",
    }
}

words! {
    /// The CPUs that share a state, the narrowest group first.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Scope {
        /// The threads of a core.
        Core = "core",
        /// The cores of a module, as Intel's Atoms have them: they share a second-level cache.
        Module = "module",
        /// The cores of a cluster, as Arm's designs have them.
        Cluster = "cluster",
        /// All CPUs of a package.
        Package = "package",
    }
}

words! {
    /// Who decides that a shared state is entered, in PSCI's terms.
    pub enum Coordination {
        /// The hardware or its firmware, as soon as all CPUs have asked for enough.
        Platform = "platform",
        /// The kernel, when the last CPU goes idle, if no timer is due too soon.
        OsInitiated = "os-initiated",
    }
}
