//! Replay of idle logs in virtual time: costs, the oracle, the simulated machine, studies.
//!
//! | file | holds |
//! | --- | --- |
//! | `replay/` | [`replay::Lane`]: a governor over the gaps of a CPU, and what it tallies |
//! | `idle_loop.rs` | the loop around a governor, as replay and simulation share it |
//! | `simulate/` | [`simulate::simulate`]: a whole machine in discrete events |
//! | `study/` | [`study::STUDIES`]: published claims confronted with the simulated machine |
//! | `workload/` | [`workload::Workload`]: what runs on it |
//! | `diff/` | [`diff::Pair`]: two governors over the same gaps, and where they differ |
//! | `oracle.rs` | [`Oracle`]: the cheapest state for a gap that is known |
//! | `cost.rs` | [`CostModel`]: energy, and delay at a [`Price`] |
//! | `decision_log.rs` | [`decision_log`]: a governor against what a real kernel's answered |
//!
//! What this crate does not do: open files, read a clock, or draw unseeded random numbers.
#![forbid(unsafe_code)]

mod cost;
pub mod decision_log;
pub mod diff;
mod idle_loop;
mod oracle;
pub mod replay;
pub mod simulate;
pub mod study;
pub mod workload;

pub use cost::{CostModel, Price};
pub use idlewise_machine::{
    Arch, Basis, DomainState, Flag, Machine, MachineError, MachineState, Power, PowerFigure,
    RUNNING_POWER_ARM_MW, RUNNING_POWER_MW, Topology, UmwaitState,
};
pub use oracle::{Oracle, OracleLane};
