//! What states cost: assumed powers, the energy of transitions, and the price of delay.

use crate::{STATE_COUNT_MAX, StateTable};

/// Longer latencies and residencies of states are cut off, so that products fit.
pub(super) const TIME_MAX_NS: u64 = 1 << 30;
/// Longer gaps and distances of timers are cut off, so that products fit.
pub(super) const LENGTH_MAX_NS: u64 = 1 << 33;
/// The largest price of delay, in [`Lambda::ONE`].
pub(super) const LAMBDA_MAX: u32 = 16;
/// The power of polling, and a λ of 1: 10 fractional bits.
pub(super) const ONE: u64 = 1 << 10;
/// What a tick costs at running power besides the exit latency, at least. Assumed, as in the replay.
pub(super) const TICK_WORK_NS: u64 = 3_000;

/// The assumed power of a state by its target residency in nanoseconds, in shares of [`ONE`]. In between, the
/// relation is linear in the logarithms. The values are AgileWatts' for a Skylake server core (Yahya et al.,
/// 2022). Published target residencies of C1E are 4 to 20 us; the middle one costs least where the guess is
/// wrong (`docs/hazard.md`).
pub(super) const SHAPE: [(u64, u64); 3] = [(1_000, 369), (10_000, 225), (600_000, 26)];

/// The price of delay: what a second of it costs, in seconds of polling. At most 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lambda(u32);

impl Lambda {
    /// A quarter of the power of polling.
    pub const QUARTER: Lambda = Lambda(ONE as u32 / 4);

    /// From 1024ths of the power of polling. More than 16 times that counts as 16 times.
    pub const fn from_1024ths(parts: u32) -> Self {
        let max = LAMBDA_MAX * ONE as u32;
        Lambda(if parts < max { parts } else { max })
    }

    /// In 1024ths of the power of polling.
    pub const fn as_1024ths(self) -> u32 {
        self.0
    }
}

/// What a state costs. A cost is a power in shares of [`ONE`] times nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateCost {
    pub(super) power: u32,
    pub(super) exit_latency_ns: u32,
    /// Entering and leaving, and the delay at the end.
    pub(super) once: u64,
    /// What it costs more if the tick is the end, besides the handler: the exit is awake, and delays nobody.
    pub(super) tick: i64,
}

impl StateCost {
    /// Of nothing.
    pub(super) const NONE: StateCost = StateCost { power: 0, exit_latency_ns: 0, once: 0, tick: 0 };

    /// Prices the states. Once in a governor's life, so it may divide.
    #[cold]
    pub(super) fn of_states(states: &StateTable, lambda: Lambda) -> [Self; STATE_COUNT_MAX] {
        let mut costs = [StateCost::NONE; STATE_COUNT_MAX];
        let mut shallower = StateCost { power: ONE as u32, ..StateCost::NONE };
        let mut transition = 0;
        for (index, (cost, state)) in costs.iter_mut().zip(states.as_slice()).enumerate() {
            let target_ns = state.target_residency_ns.min(TIME_MAX_NS);
            let exit_latency_ns = state.exit_latency_ns.min(TIME_MAX_NS);
            let power = match (state.is_polling, index) {
                (true, _) => ONE as u32,
                (false, 0) => assumed_power(target_ns) as u32,
                // A deeper state draws less, or it would not be there.
                (false, _) => (assumed_power(target_ns) as u32).min(shallower.power * 15 / 16),
            };
            let saved = if index == 0 { 0 } else { u64::from(shallower.power - power) };
            transition += saved * target_ns;
            let delay = u64::from(lambda.0) * exit_latency_ns;
            *cost = StateCost {
                power,
                exit_latency_ns: exit_latency_ns as u32,
                once: transition + delay,
                tick: (ONE * exit_latency_ns) as i64 - delay as i64,
            };
            shallower = *cost;
        }
        costs
    }
}

/// The logarithm to base 2, with 8 fractional bits; linear between powers of two. `x` must not be 0.
pub(super) const fn log2(x: u64) -> i32 {
    let whole = x.ilog2();
    let fraction = if whole >= 8 { x >> (whole - 8) } else { x << (8 - whole) };
    ((whole as i32) << 8) | (fraction as i32 & 0xff)
}

/// The inverse of [`log2`], for results from 1 to 2^32.
pub(super) const fn exp2(log: i32) -> u64 {
    let mantissa = 256 + (log as u64 & 0xff);
    (mantissa << (log >> 8)) >> 8
}

/// The assumed power of a state with this target residency.
pub(super) fn assumed_power(target_residency_ns: u64) -> u64 {
    if target_residency_ns <= SHAPE[0].0 {
        return SHAPE[0].1;
    }
    for pair in SHAPE.windows(2) {
        let ((short_ns, high), (long_ns, low)) = (pair[0], pair[1]);
        if target_residency_ns < long_ns {
            let part = log2(target_residency_ns) - log2(short_ns);
            let whole = log2(long_ns) - log2(short_ns);
            return exp2(log2(high) - (log2(high) - log2(low)) * part / whole);
        }
    }
    SHAPE[SHAPE.len() - 1].1
}
