//! Governors that bound the others. They predict nothing, or trust the timers blindly.

use crate::{
    Context, Decision, Device, DisabledMask, FAR_AWAY_NS, Governor, Outcome, StateIndex, StateTable,
};

/// Always makes the same choice, as far as disabled states and the latency limit allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixed {
    /// The deepest state.
    Deepest,
    /// The shallowest state.
    Shallowest,
    /// A given state, or the next shallower one that is allowed.
    State(StateIndex),
}

/// Selects the deepest state whose target residency fits before the next timer, as if only timers ever woke
/// a CPU. It reads the timers each time and keeps no history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerOnly {
    tick_period_ns: u64,
}

impl TimerOnly {
    /// Creates a governor for a kernel with this tick period.
    pub const fn new(tick_period_ns: u64) -> Self {
        TimerOnly { tick_period_ns }
    }
}

/// The deepest allowed state that is not deeper than `ceiling`. If the limit forbids all states it is the
/// shallowest enabled one, because the CPU has to idle in some state.
fn deepest_allowed(
    states: &StateTable,
    disabled: DisabledMask,
    latency_limit_ns: i64,
    ceiling: StateIndex,
) -> StateIndex {
    let enabled = |i: &StateIndex| !disabled.contains(*i);
    let limit_ns = u64::try_from(latency_limit_ns).unwrap_or(0);
    (0..=ceiling.min(states.deepest()))
        .rev()
        .filter(enabled)
        .find(|&i| states.get(i).exit_latency_ns <= limit_ns)
        .or_else(|| (0..states.len()).find(enabled))
        .unwrap_or(0)
}

impl Governor for Fixed {
    fn select(&mut self, context: &Context<'_>, _device: &mut Device) -> Decision {
        let ceiling = match *self {
            Fixed::Deepest => context.states.deepest(),
            Fixed::Shallowest => 0,
            Fixed::State(index) => index,
        };
        let state =
            deepest_allowed(context.states, context.disabled, context.latency_limit_ns, ceiling);
        // A tick would only shorten the stays. A polling CPU needs it, to make the next decision.
        Decision { state, stop_tick: !context.states.get(state).is_polling }
    }

    fn reflect(&mut self, _outcome: &Outcome, _device: &mut Device) {}

    /// It keeps no history.
    fn memory(&self, _note: &mut dyn FnMut(u64)) -> bool {
        true
    }
}

impl Governor for TimerOnly {
    fn select(&mut self, context: &Context<'_>, _device: &mut Device) -> Decision {
        let sleep_length_ns = context.sleep_length().sleep_length_ns;
        let fits = |i: &StateIndex| {
            let target_ns = context.states.get(*i).target_residency_ns;
            sleep_length_ns == FAR_AWAY_NS
                || u64::try_from(sleep_length_ns).is_ok_and(|length_ns| target_ns <= length_ns)
        };
        let ceiling = (0..context.states.len()).rev().find(fits).unwrap_or(0);
        let state =
            deepest_allowed(context.states, context.disabled, context.latency_limit_ns, ceiling);
        let is_long =
            u64::try_from(sleep_length_ns).is_ok_and(|length_ns| length_ns > self.tick_period_ns);
        Decision { state, stop_tick: is_long && !context.states.get(state).is_polling }
    }

    fn reflect(&mut self, _outcome: &Outcome, _device: &mut Device) {}

    /// It keeps no history.
    fn memory(&self, _note: &mut dyn FnMut(u64)) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IdleState, SleepLength};

    fn choose(governor: &mut dyn Governor, sleep_length_ns: i64, disabled: u16) -> StateIndex {
        let c1 = IdleState::new(1_000, 1_000);
        let c6 = IdleState::new(290_000, 800_000);
        let states = StateTable::new(&[IdleState::POLL, c1, c6]).unwrap();
        let timers = SleepLength { sleep_length_ns, next_event_ns: sleep_length_ns };
        let mut context = Context::new(&states, timers);
        context.disabled = DisabledMask::from_bits(disabled);
        governor.select(&context, &mut Device::default()).state
    }

    #[test]
    fn stays_within_what_is_enabled() {
        assert_eq!(choose(&mut Fixed::Deepest, 0, 0b100), 1);
        assert_eq!(choose(&mut Fixed::Shallowest, 0, 0b001), 1);
        assert_eq!(choose(&mut Fixed::State(2), 0, 0b110), 0);
        assert_eq!(choose(&mut Fixed::State(7), 0, 0), 2);
    }

    #[test]
    fn trusts_the_timer_to_the_nanosecond() {
        let mut governor = TimerOnly::new(4_000_000);
        assert_eq!(choose(&mut governor, 799_999, 0), 1);
        assert_eq!(choose(&mut governor, 800_000, 0), 2);
        assert_eq!(choose(&mut governor, FAR_AWAY_NS, 0), 2);
        assert_eq!(choose(&mut governor, -5, 0), 0);
    }
}
