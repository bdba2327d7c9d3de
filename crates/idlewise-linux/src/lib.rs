//! The Linux governors `menu`, `teo`, `ladder` and `haltpoll`, decision for decision.
//!
//! Written from the behaviour of three kernels, Debian's 6.1.192-2, 6.12.117-1 and 7.2.13-1 (of that one
//! `menu` and `ladder`), and compared with their C row by row (`conformance/decisions/`). A kernel
//! release is a value that a governor is built with, so what changed between releases stands in one
//! place with its reason.
//!
//! | file | holds |
//! | --- | --- |
//! | `lib.rs` | [`GOVERNORS`], the list; [`resolve`], [`resolve_for`]; [`LinuxGovernor`], any of them in one type |
//! | `menu.rs` | [`Menu`]: the nearest timer, corrected by habit, and two proposed variants |
//! | `intervals.rs` | menu's last eight stays, and whether they have a typical length |
//! | `teo.rs` | [`Teo`]: trusts the timer as far as early wake-ups allow |
//! | `ladder.rs` | [`Ladder`]: a step at a time |
//! | `haltpoll.rs` | [`Haltpoll`]: polls in a guest before it halts |
//! | `states.rs` | the state table in the kernel's types |
//!
//! Bit-exact includes what nobody meant: sums that wrap, microseconds cut to 32 bits, signed times
//! compared as unsigned ones. Each such place says so. Where the kernel would run off its table (one
//! state, and a governor that answers "state 1") a port answers the deepest state there is.
//!
//! What this crate does not do: keep time, enter states, or hold governors of our own. It is a crate
//! because its licence is GPL-2.0-only.
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

mod haltpoll;
mod intervals;
mod ladder;
mod menu;
mod states;
mod teo;

use idlewise_core::{Context, Decision, Device, Governor, Outcome};

pub use haltpoll::{Haltpoll, HaltpollRelease};
pub use ladder::Ladder;
pub use menu::{Menu, MenuRelease, StoppedTickRule};
pub use teo::{Teo, TeoRelease};

/// One entry of [`GOVERNORS`].
#[derive(Clone, Copy, Debug)]
pub struct GovernorSpec {
    /// The name that asks for exactly this one, such as `menu-6.12+min`.
    pub id: &'static str,
    /// The governor without its kernel, such as `menu+min`; as a request it means 6.12's.
    pub name: &'static str,
    /// The kernel's stable series, such as `6.12`.
    pub series: &'static str,
    /// The point release whose decisions it repeats; a stable series changes its governors too.
    pub release: &'static str,
    /// What it does, in one sentence.
    pub meaning: &'static str,
    build: fn(u32) -> LinuxGovernor,
}

impl GovernorSpec {
    /// Builds a governor for one CPU, without any history.
    pub fn build(&self, tick_period_ns: u32) -> LinuxGovernor {
        (self.build)(tick_period_ns)
    }
}

const RELEASE_6_1: &str = "6.1.192-2";
const RELEASE_6_12: &str = "6.12.117-1";
const RELEASE_7_2: &str = "7.2.13-1";

/// Every governor of this crate. Of those with the same name 6.12's comes first: that kernel is the
/// newest of which all governors are here, so bare names compare governors of one kernel.
pub const GOVERNORS: &[GovernorSpec] = &[
    GovernorSpec {
        id: "menu-6.12",
        name: "menu",
        series: "6.12",
        release: RELEASE_6_12,
        meaning: "the time to the next timer, corrected by past errors, or the typical length of recent \
                  stays; if that is short, timers are not read",
        build: |tick| LinuxGovernor::Menu(Menu::new(MenuRelease::V6_12, tick)),
    },
    GovernorSpec {
        id: "menu-6.1",
        name: "menu",
        series: "6.1",
        release: RELEASE_6_1,
        meaning: "as 6.12, but always reads the timers, and prefers low latency while tasks wait for \
                  I/O",
        build: |tick| LinuxGovernor::Menu(Menu::new(MenuRelease::V6_1, tick)),
    },
    GovernorSpec {
        id: "menu-7.2",
        name: "menu",
        series: "7.2",
        release: RELEASE_7_2,
        meaning: "as 6.12 with +safe-range; also ignores unusually short stays when it looks for the \
                  typical length",
        build: |tick| LinuxGovernor::Menu(Menu::new(MenuRelease::V7_2, tick)),
    },
    GovernorSpec {
        id: "menu-6.12+min",
        name: "menu+min",
        series: "6.12",
        release: RELEASE_6_12,
        meaning: "menu, but believes a short prediction even while the tick is stopped",
        build: |tick| LinuxGovernor::Menu(Menu::new(MenuRelease::V6_12_MIN, tick)),
    },
    GovernorSpec {
        id: "menu-6.12+safe-range",
        name: "menu+safe-range",
        series: "6.12",
        release: RELEASE_6_12,
        meaning: "menu, but while the tick is stopped believes a short prediction unless the next timer \
                  is more than two ticks away",
        build: |tick| LinuxGovernor::Menu(Menu::new(MenuRelease::V6_12_SAFE_RANGE, tick)),
    },
    GovernorSpec {
        id: "teo-6.12",
        name: "teo",
        series: "6.12",
        release: RELEASE_6_12,
        meaning: "the deepest state, unless most recent stays ended early; reads the timers last",
        build: |tick| LinuxGovernor::Teo(Teo::new(TeoRelease::V6_12, tick)),
    },
    GovernorSpec {
        id: "teo-6.1",
        name: "teo",
        series: "6.1",
        release: RELEASE_6_1,
        meaning: "the deepest state that the next timer allows, unless most stays, or most of the last \
                  nine, ended early",
        build: |tick| LinuxGovernor::Teo(Teo::new(TeoRelease::V6_1, tick)),
    },
    GovernorSpec {
        id: "ladder-6.12",
        name: "ladder",
        series: "6.12",
        release: RELEASE_6_12,
        meaning: "one state deeper after four long stays, one shallower after a short one",
        build: |_| LinuxGovernor::Ladder(Ladder::new()),
    },
    GovernorSpec {
        id: "ladder-6.1",
        name: "ladder",
        series: "6.1",
        release: RELEASE_6_1,
        meaning: "as 6.12",
        build: |_| LinuxGovernor::Ladder(Ladder::new()),
    },
    GovernorSpec {
        id: "ladder-7.2",
        name: "ladder",
        series: "7.2",
        release: RELEASE_7_2,
        meaning: "as 6.12",
        build: |_| LinuxGovernor::Ladder(Ladder::new()),
    },
    GovernorSpec {
        id: "haltpoll-6.12",
        name: "haltpoll",
        series: "6.12",
        release: RELEASE_6_12,
        meaning: "polls for a time that adapts, then halts; for guests",
        build: |_| LinuxGovernor::Haltpoll(Haltpoll::new(HaltpollRelease::V6_12)),
    },
    GovernorSpec {
        id: "haltpoll-6.1",
        name: "haltpoll",
        series: "6.1",
        release: RELEASE_6_1,
        meaning: "as 6.12, but the polling time is halved forever and never becomes 0",
        build: |_| LinuxGovernor::Haltpoll(Haltpoll::new(HaltpollRelease::V6_1)),
    },
];

/// The governor with this id, or 6.12's with this bare name (`menu` is `menu-6.12`).
pub fn resolve(name: &str) -> Option<&'static GovernorSpec> {
    let by_id = GOVERNORS.iter().find(|spec| spec.id == name);
    by_id.or_else(|| GOVERNORS.iter().find(|spec| spec.name == name))
}

/// The port of the governor `name` for a kernel that calls itself `kernel`, such as `6.1.0-56-amd64`: that
/// of its series, else of the newest one before it, else of the oldest.
pub fn resolve_for(name: &str, kernel: &str) -> Option<&'static GovernorSpec> {
    let wanted = series_number(kernel)?;
    let specs = || GOVERNORS.iter().filter(|spec| spec.name == name);
    let number = |spec: &&GovernorSpec| series_number(spec.series);
    let reached = specs().filter(|spec| number(spec) <= Some(wanted)).max_by_key(number);
    reached.or_else(|| specs().min_by_key(number))
}

/// Major and minor version.
fn series_number(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Any governor of this crate, without a box and without dynamic dispatch.
#[derive(Clone, Debug)]
pub enum LinuxGovernor {
    /// `menu`.
    Menu(Menu),
    /// `teo`.
    Teo(Teo),
    /// `ladder`.
    Ladder(Ladder),
    /// `haltpoll`.
    Haltpoll(Haltpoll),
}

impl Governor for LinuxGovernor {
    #[inline]
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        match self {
            Self::Menu(governor) => governor.select(context, device),
            Self::Teo(governor) => governor.select(context, device),
            Self::Ladder(governor) => governor.select(context, device),
            Self::Haltpoll(governor) => governor.select(context, device),
        }
    }

    #[inline]
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        match self {
            Self::Menu(governor) => governor.reflect(outcome, device),
            Self::Teo(governor) => governor.reflect(outcome, device),
            Self::Ladder(governor) => governor.reflect(outcome, device),
            Self::Haltpoll(governor) => governor.reflect(outcome, device),
        }
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        match self {
            Self::Menu(governor) => governor.memory(note),
            Self::Teo(governor) => governor.memory(note),
            Self::Ladder(governor) => governor.memory(note),
            Self::Haltpoll(governor) => governor.memory(note),
        }
    }
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
    fn spells_every_id_as_name_series_and_variant() {
        for spec in GOVERNORS {
            let (governor, variant) = spec.name.split_once('+').unwrap_or((spec.name, ""));
            let rest = spec.id.strip_prefix(governor).and_then(|rest| rest.strip_prefix('-'));
            let rest = rest.and_then(|rest| rest.strip_prefix(spec.series)).expect(spec.id);
            assert_eq!(rest.strip_prefix('+').unwrap_or(rest), variant, "{}", spec.id);
            assert!(spec.release.starts_with(spec.series), "{}", spec.id);
        }
    }
}
