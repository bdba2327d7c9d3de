//! The part of an idle loop that decides, independent of its surroundings.
//!
//! Every idle loop does five things: predict, select a state, enter it, be woken, and reflect. This crate
//! contains what decides. Replay (in virtual time), parked threads and the kernel driver call it.
//!
//! ```
//! use idlewise_core::{
//!     Context, Device, Governor, IdleState, Outcome, SleepLength, StateTable, TimerOnly, tick_period_ns,
//! };
//!
//! let c1 = IdleState::new(1_000, 1_000);
//! let c6 = IdleState::new(290_000, 800_000);
//! let states = StateTable::new(&[IdleState::POLL, c1, c6])?;
//! let (mut governor, mut device) = (TimerOnly::new(tick_period_ns(250).into()), Device::default());
//!
//! // The next timer comes in 5 ms: C6 pays, and the tick can stop.
//! let timers = SleepLength { sleep_length_ns: 5_000_000, next_event_ns: 5_000_000 };
//! let decision = governor.select(&Context::new(&states, timers), &mut device);
//! assert_eq!((decision.state, decision.stop_tick), (2, true));
//!
//! // The CPU enters C6 and is woken after 20 us.
//! device.last_residency_ns = 20_000;
//! let outcome = Outcome { entered: 2, is_overruled: false, got_tick: false, now_ns: 20_000 };
//! governor.reflect(&outcome, &mut device);
//! # Ok::<(), idlewise_core::StateTableError>(())
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | `state.rs` | [`IdleState`], [`StateTable`], [`DisabledMask`]: what software may request |
//! | `governor.rs` | [`Governor`], its [`Context`], [`Decision`] and [`Outcome`] |
//! | `verdict.rs` | the kernel's rule for whether one stay was too deep, too shallow or fit |
//! | `promotion.rs` | when a timer gets a CPU out of a shallow state |
//! | `bounds.rs` | [`Fixed`], [`TimerOnly`]: governors that bound the others |
//! | `hazard/` | [`Hazard`]: a governor that learns when gaps end, and takes the cheapest plan |
//! | `doorbell.rs` | [`Doorbell`]: the word between a waiter and its wakers, and why no wake-up is lost |
//! | `bells.rs` | [`Marks`]: several bells for one waiter |
//! | `idle_set.rs` | [`IdleSet`]: a scheduler's idle workers, each woken by at most one waker |
//! | `model.rs` | how loom's tests explore models |
//! | `sync.rs` | atomics, or loom's in a model; protocols broken on purpose |
//! | `keywords.rs` | [`words!`]: enums of keywords |
//!
//! [`Marks`] and [`IdleSet`] need 64-bit atomics, which a few bare-metal targets lack.
//!
//! This crate does not allocate, read a clock or use floating point, and does not know where its inputs
//! come from. Ports of kernel governors are in `idlewise-linux`, because of their licence.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(target_has_atomic = "64")]
mod bells;
mod bounds;
mod doorbell;
mod governor;
mod hazard;
#[cfg(target_has_atomic = "64")]
mod idle_set;
mod keywords;
#[cfg(loom)]
pub mod model;
mod promotion;
mod state;
#[cfg(not(loom))]
mod sync;
#[cfg(loom)]
pub mod sync;
mod verdict;

#[cfg(target_has_atomic = "64")]
pub use bells::Marks;
pub use bounds::{Fixed, TimerOnly};
pub use doorbell::{Doorbell, DoorbellState, Ring};
pub use governor::{
    Context, Decision, Device, FAR_AWAY_NS, Governor, GovernorVisitor, NO_LATENCY_LIMIT_NS,
    Outcome, SleepLength, tick_period_ns,
};
pub use hazard::{Hazard, Lambda};
#[cfg(target_has_atomic = "64")]
pub use idle_set::IdleSet;
pub use promotion::{auto_promotion_delay_ns, auto_promotion_target};
pub use state::{
    DisabledMask, IdleState, STATE_COUNT_MAX, StateIndex, StateTable, StateTableError, TableDoubt,
};
pub use verdict::{Stay, Verdict};
