//! The Linux governors `menu`, `teo`, `ladder` and `haltpoll`, decision for decision.
//!
//! They follow the behaviour of three kernels, Debian's 6.1.192-2, 6.12.117-1 and 7.2.13-1 (of that one
//! only `menu` and `ladder`), and are compared with their C row by row (`conformance/decisions/`). A
//! governor is built with a kernel release as a value, so what changed between releases is in one place,
//! with its reason.
//!
//! | file | holds |
//! | --- | --- |
//! | `lib.rs` | [`GOVERNORS`], the one list; [`resolve`], [`resolve_for`]; [`LinuxGovernor`], one type for all of them |
//! | `menu.rs` | [`Menu`]: the nearest timer, corrected by habit, and two proposed variants |
//! | `intervals.rs` | menu's last eight stays, and whether they have a typical length |
//! | `teo.rs` | [`Teo`]: trusts the timer as far as early wake-ups allow |
//! | `ladder.rs` | [`Ladder`]: moves one state at a time |
//! | `haltpoll.rs` | [`Haltpoll`]: polls in a guest before it halts |
//! | `states.rs` | the state table in the kernel's types |
//! | `patches/` | patches that make a kernel's C file decide like one of our variants |
//!
//! Bit-exact includes what the kernel's authors did not intend: sums that wrap, microseconds cut to 32
//! bits, and signed times compared as unsigned ones. Each such place says so. Where the kernel would leave
//! its table (there is one state, and a governor selects state 1), a port selects the deepest state.
//!
//! This crate does not keep time or enter states, and contains no governors of our own. It is a separate
//! crate because its licence is GPL-2.0-only.
//!
//! ```
//! use idlewise_core::{Context, Device, FAR_AWAY_NS, Governor, IdleState, SleepLength, StateTable};
//!
//! let states = StateTable::new(&[IdleState::POLL, IdleState::new(1_000, 2_000)])?;
//! let timer = SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: 3_000_000 };
//! let spec = idlewise_linux::resolve("teo").expect("teo is in the list");
//! let mut governor = spec.build(idlewise_core::tick_period_ns(250));
//! let decision = governor.select(&Context::new(&states, timer), &mut Device::default());
//! assert_eq!(decision.state, 1);
//! # Ok::<(), idlewise_core::StateTableError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod haltpoll;
mod intervals;
mod ladder;
mod menu;
mod states;
mod teo;

use idlewise_core::{Context, Decision, Device, Governor, GovernorVisitor, Outcome};

pub use haltpoll::{Haltpoll, HaltpollRelease};
pub use ladder::Ladder;
pub use menu::{Menu, MenuRelease};
pub use teo::{Teo, TeoRelease};

/// One entry of [`GOVERNORS`].
#[derive(Clone, Copy, Debug)]
pub struct GovernorSpec {
    /// The name that selects exactly this one, such as `menu-6.12+min`.
    pub id: &'static str,
    /// The governor without its kernel, such as `menu+min`. As a request it means 6.12's.
    pub name: &'static str,
    /// The kernel's governor and the name of its C file, such as `menu`.
    pub port: &'static str,
    /// The kernel's stable series, such as `6.12`.
    pub series: &'static str,
    /// The point release whose decisions it reproduces. A stable series changes its governors too.
    pub release: &'static str,
    /// The patch that makes that release's C file decide this way, or `None` if it does without one.
    pub patch: Option<&'static str>,
    /// A one-sentence description.
    pub meaning: &'static str,
    build: fn(u32) -> LinuxGovernor,
}

impl GovernorSpec {
    /// Builds a governor for one CPU, without any history.
    pub fn build(&self, tick_period_ns: u32) -> LinuxGovernor {
        (self.build)(tick_period_ns)
    }

    /// Builds one that the caller does not compile again, and that is fast in a build without optimisations.
    pub fn boxed(&self, tick_period_ns: u32) -> alloc::boxed::Box<dyn Governor> {
        alloc::boxed::Box::new(self.build(tick_period_ns))
    }
}

/// Debian's release of each stable series.
macro_rules! release {
    ("6.1") => {
        "6.1.192-2"
    };
    ("6.12") => {
        "6.12.117-1"
    };
    ("7.2") => {
        "7.2.13-1"
    };
}

/// Declares the list of governors. Each port has its type and its rows. A row has the series, the rule if
/// no kernel has it and its file in `patches`, how to build it for a tick period, and its
/// description.
macro_rules! governors {
    ($($port:ident $Port:ident {
        $($series:tt $(+ $rule:literal in $patch:literal)?, $build:expr, $meaning:literal;)+
    })+) => {
        /// All governors of this crate. Of those with the same name, 6.12's comes first: it is the newest
        /// kernel of which all governors are here, so bare names compare governors of the same kernel.
        pub const GOVERNORS: &[GovernorSpec] = &[$($(GovernorSpec {
            id: concat!(stringify!($port), "-", $series $(, "+", $rule)?),
            name: concat!(stringify!($port) $(, "+", $rule)?),
            port: stringify!($port),
            series: $series,
            release: release!($series),
            patch: {
                let patch: &[&str] = &[$(include_str!(concat!("../patches/", $patch)))?];
                if let [patch] = patch { Some(*patch) } else { None }
            },
            meaning: $meaning,
            build: |tick_period_ns| LinuxGovernor::$Port(($build)(tick_period_ns)),
        },)+)+];

        /// The names of the kernel's governors that are ported, each once.
        pub const PORTS: &[&str] = &[$(stringify!($port)),+];

        /// Any governor of this crate, without boxing or dynamic dispatch.
        #[derive(Clone, Debug)]
        pub enum LinuxGovernor {
            $(
                #[doc = concat!("`", stringify!($port), "`.")]
                $Port($Port),
            )+
        }

        impl LinuxGovernor {
            /// Passes the governor itself to the visitor, whose code is then compiled for its type.
            pub fn visit<V: GovernorVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$Port(governor) => visitor.visit(governor),)+
                }
            }
        }

        impl Governor for LinuxGovernor {
            #[inline]
            fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
                match self {
                    $(Self::$Port(governor) => governor.select(context, device),)+
                }
            }

            #[inline]
            fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
                match self {
                    $(Self::$Port(governor) => governor.reflect(outcome, device),)+
                }
            }

            fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
                match self {
                    $(Self::$Port(governor) => governor.memory(note),)+
                }
            }

            #[inline]
            fn forecast_ns(&self) -> Option<u64> {
                match self {
                    $(Self::$Port(governor) => governor.forecast_ns(),)+
                }
            }
        }
    };
}

governors! {
    menu Menu {
        "6.12", |tick| Menu::new(MenuRelease::V6_12, tick),
            "the time to the next timer, corrected by past errors, or the typical length of recent \
             stays; if that is short, timers are not read";
        "6.1", |tick| Menu::new(MenuRelease::V6_1, tick),
            "as 6.12, but always reads the timers, and prefers low latency while tasks wait for I/O";
        "7.2", |tick| Menu::new(MenuRelease::V7_2, tick),
            "as 6.12 with +safe-range; also ignores unusually short stays when it looks for the \
             typical length";
        "6.12" + "min" in "min.patch", |tick| Menu::new(MenuRelease::V6_12Min, tick),
            "menu, but believes a short prediction even while the tick is stopped";
        "6.12" + "safe-range" in "safe-range.patch", |tick| Menu::new(MenuRelease::V6_12SafeRange, tick),
            "menu, but while the tick is stopped believes a short prediction unless the next timer is \
             more than two ticks away";
        "6.12" + "margin" in "margin.patch", |tick| Menu::new(MenuRelease::V6_12Margin, tick),
            "menu+min, but while the tick is stopped assumes a prediction 25 % longer";
        "7.2" + "min" in "min-7.2.patch", |tick| Menu::new(MenuRelease::V7_2Min, tick),
            "7.2's menu, but believes a short prediction however far the next timer is";
    }
    teo Teo {
        "6.12", |tick| Teo::new(TeoRelease::V6_12, tick),
            "the deepest state, unless most recent stays ended early; reads the timers last";
        "6.1", |tick| Teo::new(TeoRelease::V6_1, tick),
            "the deepest state that the next timer allows, unless most stays, or most of the last \
             nine, ended early";
    }
    ladder Ladder {
        "6.12", |_| Ladder::new(),
            "one state deeper after four long stays, one shallower after a short one";
        "6.1", |_| Ladder::new(), "as 6.12";
        "7.2", |_| Ladder::new(), "as 6.12";
    }
    haltpoll Haltpoll {
        "6.12", |_| Haltpoll::new(HaltpollRelease::V6_12),
            "polls for a time that adapts, then halts; for guests";
        "6.1", |_| Haltpoll::new(HaltpollRelease::V6_1),
            "as 6.12, but the polling time keeps being halved and never reaches 0";
    }
}

/// The governors that are compared by default.
pub const USUAL: [&str; 4] = ["menu", "menu+min", "teo", "ladder"];

/// Returns the governor with this id, or 6.12's with this bare name (`menu` is `menu-6.12`).
pub fn resolve(name: &str) -> Option<&'static GovernorSpec> {
    let by_id = GOVERNORS.iter().find(|spec| spec.id == name);
    by_id.or_else(|| GOVERNORS.iter().find(|spec| spec.name == name))
}

/// Returns the port of governor `name` for a kernel release such as `6.1.0-56-amd64`: the one for its
/// series, or else for the newest series before it, or else for the oldest.
pub fn resolve_for(name: &str, kernel: &str) -> Option<&'static GovernorSpec> {
    let wanted = series_number(kernel)?;
    let specs = || GOVERNORS.iter().filter(|spec| spec.name == name);
    let number = |spec: &&GovernorSpec| series_number(spec.series);
    let reached = specs().filter(|spec| number(spec) <= Some(wanted)).max_by_key(number);
    reached.or_else(|| specs().min_by_key(number))
}

/// Parses the major and minor version.
fn series_number(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_6_12s_for_a_bare_name() {
        assert_eq!(resolve("menu").map(|spec| spec.id), Some("menu-6.12"));
        assert_eq!(resolve("menu+min").map(|spec| spec.id), Some("menu-6.12+min"));
        assert_eq!(resolve("haltpoll-6.1").map(|spec| spec.id), Some("haltpoll-6.1"));
        assert!(resolve("menu-6.13").is_none());
    }

    #[test]
    fn gives_the_port_of_a_kernel_or_of_the_one_before() {
        let id = |name, kernel| resolve_for(name, kernel).map(|spec| spec.id);
        assert_eq!(id("menu", "6.1.0-56-amd64"), Some("menu-6.1"));
        assert_eq!(id("menu", "6.8.0-45-generic"), Some("menu-6.1"));
        assert_eq!(id("menu", "6.18.44-fc-v595"), Some("menu-6.12"));
        assert_eq!(id("menu", "10.0"), Some("menu-7.2"));
        assert_eq!(id("teo", "7.3.4+deb13-amd64"), Some("teo-6.12"));
        assert_eq!(id("menu", "5.10.0-28-amd64"), Some("menu-6.1"));
        assert_eq!((id("menu", "mainline"), id("coin", "6.1.0")), (None, None));
    }

    #[test]
    fn names_are_different_and_releases_of_their_series() {
        for (index, spec) in GOVERNORS.iter().enumerate() {
            assert!(GOVERNORS[..index].iter().all(|other| other.id != spec.id), "{}", spec.id);
            assert!(spec.release.starts_with(spec.series), "{}", spec.id);
            assert_eq!(spec.patch.is_some(), spec.name != spec.port, "{}", spec.id);
        }
        assert!(USUAL.iter().all(|name| resolve(name).is_some()));
    }
}
