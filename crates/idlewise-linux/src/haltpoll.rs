//! The haltpoll governor, after Linux's haltpoll.c: Copyright 2019 Red Hat, Inc. and its affiliates (Marcelo Tosatti).
//!
//! The idea
//! --------
//! When a guest halts, it exits to its hypervisor, and coming back is slow. If the next event is near,
//! spinning until it comes is faster, and may save the host a switch. So a guest with two states, polling
//! (0) and halting (1), polls first, and halts if nothing came in time. It uses neither timers nor the tick
//! period.
//!
//! Steps
//! -----
//! 1. If the latency limit is zero: poll, and keep the tick.
//! 2. If the polling time is zero, as it is at first: halt.
//! 3. If the last poll reached its time limit: halt. Otherwise poll, and keep the tick.
//!
//! The polling time follows the halts. A halt longer than the polling time but at most 200 µs could have
//! been polled instead, so the time doubles, beginning at 50 µs and up to 200 µs. After a longer halt,
//! polling would have been a waste, so the time halves.
//!
//! Releases
//! --------
//! 6.1 always halves. In 6.12 a polling time below 50 µs becomes zero, and polling stops until a short halt
//! restarts it (see `adjust_poll_limit` in 6.12.117's haltpoll.c).
//!
//! Known limitations
//! -----------------
//! A polling time of zero only grows after a halt of at most 200 µs, or if the polling state itself sets
//! one. Disabled states are ignored. The arithmetic is 32 bits wide although the polling time has 64: a
//! time of 4.3 s or more is cut, bit for bit as in the kernel.

use idlewise_core::{Context, Decision, Device, Governor, Outcome, StateIndex};

use crate::states::States;

/// `guest_halt_poll_ns`: the longest polling time, and the longest halt worth polling instead.
const POLL_LIMIT_MAX_NS: u32 = 200_000;
/// `guest_halt_poll_grow_start`: the shortest useful polling time.
const POLL_LIMIT_START_NS: u32 = 50_000;
/// `guest_halt_poll_grow`.
const GROWTH: u32 = 2;
/// `guest_halt_poll_shrink`.
const SHRINKAGE: u32 = 2;

const POLL: StateIndex = 0;
const HALT: StateIndex = 1;

/// A release of haltpoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltpollRelease {
    /// Debian's 6.1.192-2.
    V6_1,
    /// Debian's 6.12.117-1: a polling time too short to be useful becomes zero.
    V6_12,
}

/// The haltpoll governor of one CPU, with the default module parameters.
#[derive(Clone, Debug)]
pub struct Haltpoll {
    release: HaltpollRelease,
    is_enabled: bool,
}

impl Haltpoll {
    /// Creates a governor without history. What it learns is in [`Device::poll_limit_ns`].
    pub const fn new(release: HaltpollRelease) -> Self {
        Haltpoll { release, is_enabled: false }
    }

    /// The polling time after a halt of `halted_ns`.
    #[inline]
    fn adjusted_limit_ns(&self, poll_limit_ns: u64, halted_ns: u64) -> u64 {
        // Truncates like the kernel, whose parameters and intermediate value are `unsigned int`.
        if halted_ns > u64::from(POLL_LIMIT_MAX_NS) {
            let shrunk_ns = poll_limit_ns as u32 / SHRINKAGE;
            let is_pointless =
                self.release == HaltpollRelease::V6_12 && shrunk_ns < POLL_LIMIT_START_NS;
            if is_pointless { 0 } else { u64::from(shrunk_ns) }
        } else if halted_ns > poll_limit_ns {
            let grown_ns = (poll_limit_ns as u32).wrapping_mul(GROWTH);
            u64::from(grown_ns.clamp(POLL_LIMIT_START_NS, POLL_LIMIT_MAX_NS))
        } else {
            poll_limit_ns
        }
    }
}

impl Governor for Haltpoll {
    #[inline]
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        if !self.is_enabled {
            self.is_enabled = true;
            device.poll_limit_ns = 0;
        }
        let poll_failed = device.last_state == Some(POLL) && device.poll_time_limit;
        let halts = context.latency_limit_ns != 0 && (device.poll_limit_ns == 0 || poll_failed);
        let state = if halts { HALT.min(States::of(context).deepest()) } else { POLL };
        Decision { state, stop_tick: halts }
    }

    #[inline]
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        device.last_state = Some(outcome.entered);
        if outcome.entered != POLL {
            let halted_ns = device.last_residency_ns;
            device.poll_limit_ns = self.adjusted_limit_ns(device.poll_limit_ns, halted_ns);
        }
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        note(u64::from(self.is_enabled));
        true
    }
}
