//! The words that machine files choose from.

/// Declares an enum of words: each variant with its spelling in files, columns and footers.
macro_rules! words {
    ($(#[$outer:meta])* pub enum $name:ident {
        $($(#[$inner:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[non_exhaustive]
        pub enum $name { $($(#[$inner])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// The spelling in files, columns and footers.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
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
    /// Instruction set family of a machine.
    pub enum Arch {
        /// Intel and AMD.
        X86 = "x86",
        /// Arm, 32 and 64 bit.
        Arm = "arm",
        /// IBM POWER.
        Power = "power",
        /// Any other.
        Other = "other",
    }
}

words! {
    /// What a driver says that a state needs or does, mostly `CPUIDLE_FLAG_*` in
    /// `include/linux/cpuidle.h`.
    pub enum Flag {
        /// Busy wait.
        Polling = "polling",
        /// A promotion timer is armed on entry.
        AutoPromote = "auto-promote",
        /// The local timer stops; a wake-up source elsewhere is needed.
        TimerStop = "timer-stop",
        /// The TLB is flushed.
        TlbFlushed = "tlb-flushed",
        /// Offered even if the firmware does not list it.
        AlwaysEnable = "always-enable",
        /// Entered with interrupts enabled.
        IrqEnable = "irq-enable",
        /// Indirect-branch restriction is lifted while idle.
        Ibrs = "ibrs",
        /// The extended register state is reset first.
        InitXstate = "init-xstate",
        /// The firmware's list is compared by a part of the hint.
        PartialHintMatch = "partial-hint-match",
        /// Never used unless somebody asks for it.
        Unusable = "unusable",
        /// POWER: a stop state that keeps its context.
        StopFast = "stop-fast",
        /// POWER: a stop state that loses its context.
        StopDeep = "stop-deep",
    }
}

words! {
    /// A state that UMWAIT and TPAUSE may be asked for.
    pub enum UmwaitState {
        /// Shorter exit, saves less.
        C01 = "C0.1",
        /// Longer exit, saves more.
        C02 = "C0.2",
    }
}
