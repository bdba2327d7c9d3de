//! The deciding parts of an idle loop, with no world around them.
//!
//! An idle loop is always: predict, select a state, enter it, be woken, reflect. This crate holds
//! what decides; replay (virtual time), parked threads and the kernel driver drive it.
//!
//! | file | holds |
//! | --- | --- |
//! | `state.rs` | [`IdleState`], [`StateTable`], [`DisabledMask`]: what software may request |
//! | `governor.rs` | [`Governor`], its [`Context`], [`Decision`] and [`Outcome`] |
//! | `verdict.rs` | too deep, too shallow or fit: the kernel's own rule on one stay |
//! | `latency.rs` | latency limits as PM QoS combines them |
//! | `promotion.rs` | when a timer gets a CPU out of a shallow state |
//! | `bounds.rs` | [`Fixed`], [`TimerOnly`]: governors that bound the others |
//! | `boot.rs` | which idle routine an x86 CPU gets when no cpuidle driver is loaded |
//!
//! What this crate does not do: allocate, read a clock, use floating point, or know where its
//! inputs came from. Ports of kernel governors are in `idlewise-linux`, for their licence.
#![no_std]
#![forbid(unsafe_code)]

pub mod boot;
mod bounds;
mod governor;
mod latency;
mod promotion;
mod state;
mod verdict;

pub use bounds::{Fixed, TimerOnly};
pub use governor::{
    Context, Decision, Device, FAR_AWAY_NS, Governor, Outcome, SleepLength, tick_period_ns,
};
pub use latency::{CpuLatencyLimit, LatencyLimit, NO_LATENCY_LIMIT_NS};
pub use promotion::{auto_promotion_delay_ns, auto_promotion_target};
pub use state::{
    DisabledMask, IdleState, STATE_COUNT_MAX, StateIndex, StateTable, StateTableError, TableDoubt,
};
pub use verdict::{Stay, Verdict};
