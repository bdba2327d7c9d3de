//! The facts that the choice depends on: where they are from, and what a command line says.

use idlewise_core::words;
use std::fmt;

use super::Kernel;

/// Where a fact is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A leaf of CPUID.
    Leaf(u32),
    /// A field of `/proc/cpuinfo`.
    CpuInfo(&'static str),
    /// A file of the machine.
    File(&'static str),
    /// An option of the command.
    Option(&'static str),
    /// The CPU's family and model, and the kernel's list of them.
    Model,
    /// The kernel asks, but the answer is always the same.
    Kernel,
    /// Nobody says so; it is the usual case.
    Assumed,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaf(leaf) => write!(f, "CPUID leaf {leaf:#x}"),
            Self::CpuInfo(field) => write!(f, "/proc/cpuinfo: {field}"),
            Self::File(name) | Self::Option(name) => f.write_str(name),
            Self::Model => f.write_str("family and model"),
            Self::Kernel => f.write_str("the kernel's order"),
            Self::Assumed => f.write_str("assumed"),
        }
    }
}

/// A fact and where it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact<T> {
    /// The fact.
    pub value: T,
    /// Where it is from.
    pub source: Source,
}

/// A fact, or `None` if it is unknown.
pub type Known<T> = Option<Fact<T>>;

impl<T> Fact<T> {
    /// Makes a fact.
    pub const fn new(value: T, source: Source) -> Self {
        Fact { value, source }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        Fact { value: change(self.value), source: self.source }
    }
}

words! {
    /// The `idle=` parameter on the kernel's command line.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum IdleParameter {
        /// Not given.
        #[default]
        None = "no idle=",
        /// `idle=halt`.
        Halt = "idle=halt",
        /// `idle=nomwait`.
        NoMwait = "idle=nomwait",
        /// `idle=poll`.
        Poll = "idle=poll",
    }
}

/// What the kernel's command line says about idling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cmdline {
    /// The last valid `idle=`.
    pub idle: IdleParameter,
    /// Whether any `idle=` is `poll`. A later value does not undo it.
    pub polls: bool,
    /// Whether any `idle=` is `halt`. In 6.1 a later value does not undo it.
    pub halts: bool,
    /// `cpuidle.off=1`.
    pub cpuidle_off: bool,
    /// `intel_idle.max_cstate=0`.
    pub intel_idle_off: bool,
    /// `cpuidle_haltpoll.force=1`.
    pub haltpoll_forced: bool,
}

impl Cmdline {
    /// Reads a kernel command line. Unknown values are ignored, as in the kernel, and so is what follows
    /// a `--`, which is for the first process.
    ///
    /// ```
    /// # use idlewise_machine::boot::{Cmdline, IdleParameter};
    /// assert_eq!(Cmdline::parse("quiet idle=nomwait").idle, IdleParameter::NoMwait);
    /// assert!(!Cmdline::parse("rdinit=/init -- idle=poll").polls);
    /// ```
    pub fn parse(cmdline: &str) -> Self {
        let mut found = Cmdline::default();
        for word in cmdline.split_ascii_whitespace().take_while(|word| *word != "--") {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let is_on = matches!(value.as_bytes().first(), None | Some(b'1' | b'y' | b'Y'));
            // The kernel reads a dash in a name as an underscore.
            let is = |known: &str| {
                name.len() == known.len()
                    && name
                        .bytes()
                        .zip(known.bytes())
                        .all(|(is, wanted)| is == wanted || (is == b'-' && wanted == b'_'))
            };
            if is("idle") {
                match value {
                    "poll" => (found.idle, found.polls) = (IdleParameter::Poll, true),
                    "halt" => (found.idle, found.halts) = (IdleParameter::Halt, true),
                    "nomwait" => found.idle = IdleParameter::NoMwait,
                    _ => {}
                }
            } else if is("cpuidle.off") {
                found.cpuidle_off = value.parse() == Ok(1);
            } else if is("intel_idle.max_cstate") {
                found.intel_idle_off = value.parse() == Ok(0);
            } else if is("cpuidle_haltpoll.force") {
                found.haltpoll_forced = is_on;
            }
        }
        found
    }

    /// The same with another `idle=`.
    pub fn with(self, idle: IdleParameter) -> Self {
        let (polls, halts) = (idle == IdleParameter::Poll, idle == IdleParameter::Halt);
        Cmdline { idle, polls, halts, ..self }
    }
}

/// What Linux is to Xen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xen {
    /// Nothing, or a guest that Xen leaves to itself (HVM, or PVH that is not dom0).
    Other,
    /// A paravirtual guest or a paravirtual dom0.
    Pv,
    /// A PVH dom0.
    PvhDom0,
}

impl Xen {
    /// Whether Xen's set-up code disables cpuidle and sets HLT before the kernel chooses. In a PVH dom0
    /// 6.12.117 does so, and 6.1.192 does not.
    pub fn decides(self, kernel: Kernel) -> bool {
        match self {
            Self::Other => false,
            Self::Pv => true,
            Self::PvhDom0 => kernel >= Kernel::V6_12,
        }
    }
}

/// CPU bugs that a running kernel shows in `/proc/cpuinfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bugs {
    /// `amd_e400`: the CPU is one of those with erratum 400.
    pub e400: bool,
    /// `apic_c1e`: and the firmware uses C1E, in which the APIC's timer stops.
    pub c1e: bool,
    /// `monitor`: MONITOR can miss a store.
    pub monitor: bool,
    /// `clflush_monitor`: the line must be flushed before MONITOR.
    pub clflush_monitor: bool,
}
