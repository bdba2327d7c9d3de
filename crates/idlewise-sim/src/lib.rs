//! Replays idle logs in virtual time: costs, the oracle, the simulated machine.
//!
//! | file | holds |
//! | --- | --- |
//! | `contest/` | [`contest`]: the experiment: players, prices, costs and regret |
//! | `replay/` | [`replay::Lane`]: runs a governor over the gaps of a CPU and counts the results |
//! | `tally.rs` | `Tally`: what a lane counts, and its times and entries by state |
//! | `shared.rs` | [`SharedStates`]: states that CPUs enter together, for replay and simulation |
//! | `idle_loop.rs` | the loop around a governor, shared by replay and simulation |
//! | `simulate/` | [`simulate::simulate`]: a whole machine as a discrete-event simulation |
//! | `predict/` | [`predict::play`]: a workload log on the simulated machine, causes kept and times not |
//! | `workload/` | [`workload::Workload`]: what runs on it |
//! | `ledger/` | `ledger::read`: what each gap costs, and where regret is |
//! | `diff/` | [`diff::Pair`]: two governors over the same gaps, and where they differ |
//! | `oracle.rs` | [`Oracle`]: the cheapest state for a gap of known length |
//! | `rival/` | [`Rival`]: rules from theory that move down while the CPU is idle |
//! | `cost.rs` | [`CostModel`]: energy, and priced delay |
//! | `exits.rs` | [`Exits`]: how long leaving each state takes |
//! | `decision_log/` | [`decision_log`]: compares a governor with the decisions of a real kernel's |
//!
//! This crate does not open files, read a clock, or use unseeded random numbers.
//!
//! The feature `log`, on by default, replays whole idle logs (`replay::replay_log`, `ledger/`), and brings Parquet. Without
//! it, gaps are replayed that a program has in memory.
//!
//! Two milliseconds of idle time that end with a timer, under a governor that trusts timers:
//!
//! ```
//! use idlewise_core::{IdleState, StateTable, TimerOnly, tick_period_ns};
//! use idlewise_sim::replay::{GovernorLane, Lane, Setting};
//! use idlewise_trace::{IdleGap, WakeReason};
//!
//! let states = StateTable::new(&[IdleState::POLL, IdleState::new(2_000, 2_000)])?;
//! let period_ns = tick_period_ns(250);
//! let governor = TimerOnly::new(period_ns.into());
//! let mut lane = GovernorLane::new(governor, Setting::new(states, period_ns));
//! lane.replay(&[IdleGap {
//!     cpu: 0,
//!     start_ns: 0,
//!     gap_ns: 2_000_000,
//!     sleep_length_ns: Some(2_000_000),
//!     next_tick_ns: Some(3_000_000),
//!     tick_stopped: false,
//!     ran_task: true,
//!     wake_reason: WakeReason::Timer,
//!     latency_limit_ns: None,
//!     recorded_state: None,
//!     recorded_idle_ns: None,
//! }]);
//! assert_eq!(lane.tally().states[1].wake_count, 1);
//! # Ok::<(), idlewise_core::StateTableError>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "log"),
    allow(dead_code, reason = "parts of states that CPUs share, which only logs have")
)]

#[cfg(feature = "log")]
pub mod contest;
mod cost;
pub mod decision_log;
pub mod diff;
mod exits;
mod idle_loop;
#[cfg(feature = "log")]
pub mod ledger;
mod oracle;
pub mod predict;
pub mod replay;
mod rival;
mod shared;
pub mod simulate;
mod tally;
pub mod workload;

pub use cost::{CostModel, UJ_PER_MW_NS};
pub use exits::Exits;
pub use idle_loop::Boxed;
pub use idlewise_machine::{
    Arch, Basis, Coordination, DomainState, ExitTimes, Flag, Machine, MachineError, MachineState,
    Power, PowerFigure, RUNNING_POWER_ARM_MW, RUNNING_POWER_MW, SHARED_STATE_COUNT_MAX, Scope,
    Topology, UmwaitState,
};
pub use oracle::Oracle;
pub use replay::OracleLane;
pub use rival::{RIVALS, Rival, RivalLane};
pub use shared::SharedStates;
