//! Machines: their idle states with names, latencies and powers, and the source of every figure.
//!
//! ```
//! let machine = idlewise_machine::bundled("spr").unwrap();
//! let deepest = machine.states.last().unwrap();
//! assert_eq!(deepest.name, "C6");
//! assert_eq!(deepest.exit_latency_ns, 290_000);
//! // Nobody published its power, so a documented default stands in.
//! assert_eq!(machine.powers().last().unwrap().basis, idlewise_machine::Basis::Assumed);
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `machine.rs` | [`Machine`] with its serde form, and lookup of states |
//! | `state.rs` | [`MachineState`], [`DomainState`] |
//! | `number.rs` | times and powers as a file has them |
//! | `check.rs` | the rules for a machine file, and the line that breaks one |
//! | `exits.rs` | [`ExitTimes`]: how long leaving a state takes, as percentiles or as declared |
//! | `figure.rs` | [`Power`], and its [`Basis`] |
//! | `power.rs` | the default power of a state without a published figure |
//! | `curve.rs` | [`PowerCurve`]: all powers that a machine may have, by their corners |
//! | `shared.rs` | the rules for states that CPUs share |
//! | `doubts.rs` | [`MachineDoubt`]: what is odd, assumed or unchecked about a machine; [`Rank`] |
//! | `boot/` | [`boot::select`]: which idle routine an x86 CPU gets at boot; CPUID, and what cpuidle drivers will do |
//! | `bundled.rs` | the files of `machines/`, which are part of this crate |
//! | `words.rs` | [`Arch`], [`Flag`], [`Scope`] and others: the keywords of a machine file |
//! | `nearest.rs` | [`nearest_name`], [`did_you_mean`]: what a mistyped name was probably meant to be |
//! | `write.rs` | [`Machine::to_toml`]: a machine as the text of its file |
//! | `wult.rs` | [`WultResult`]: measured exit latencies as wult writes them |
//! | `error.rs` | [`MachineError`] |
//!
//! `machines/README.md` explains the fields of the files. A machine has the same fields in TOML, JSON and
//! any other format that serde writes.
//!
//! This crate does not open files, read the machine it runs on (`idlewise-host` does that), or replay
//! anything (`idlewise-sim`).
#![forbid(unsafe_code)]

pub mod boot;
mod bundled;
mod check;
mod curve;
mod doubts;
mod error;
mod exits;
mod figure;
mod machine;
mod nearest;
mod number;
mod power;
mod shared;
mod state;
mod words;
mod write;
mod wult;

pub use bundled::{bundled, bundled_ids, bundled_machines, bundled_text};
pub use curve::PowerCurve;
pub use doubts::{MachineDoubt, Rank};
pub use error::MachineError;
pub use exits::{ExitFigure, ExitTimes};
pub use figure::{Basis, Power, PowerFigure};
pub use machine::{Machine, Topology};
pub use nearest::{did_you_mean, hint_before, nearest_name, state_hint};
pub use power::{RUNNING_POWER_ARM_MW, RUNNING_POWER_MW};
pub use shared::SHARED_STATE_COUNT_MAX;
pub use state::{DomainState, MachineState};
pub use words::{Arch, Coordination, Flag, Scope, UmwaitState};
pub use wult::{WultError, WultResult, WultState};

#[cfg(test)]
mod tests;
