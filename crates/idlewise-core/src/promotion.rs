//! Auto-promotion: a timer that takes a CPU out of a state that turned out too shallow.
//!
//! Published by Abhishek Goel as "Auto-promotion logic for cpuidle states" (linuxppc-dev, 2019). On entry
//! to a shallow state, a timer is set to the next state's target residency plus twice its exit latency.
//! When it fires, the governor is asked again, and sees that the CPU stayed idle.

use crate::{DisabledMask, StateIndex, StateTable};

/// The target of a promotion out of `state`: the next deeper enabled state.
#[inline]
pub fn auto_promotion_target(
    states: &StateTable,
    disabled: DisabledMask,
    state: StateIndex,
) -> Option<StateIndex> {
    (state + 1..states.len()).find(|&i| !disabled.contains(i))
}

/// When the promotion timer fires, counted from entry to `state`. `None` if the state is not auto-promoted,
/// or no deeper state is enabled.
#[inline]
pub fn auto_promotion_delay_ns(
    states: &StateTable,
    disabled: DisabledMask,
    state: StateIndex,
) -> Option<u64> {
    if !states.get(state).is_auto_promoted {
        return None;
    }
    let target = states.get(auto_promotion_target(states, disabled, state)?);
    Some(target.target_residency_ns + 2 * target.exit_latency_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IdleState;

    /// POWER9 as in the published patch: stop0_lite, stop0 with 20/2 µs, stop2 with 100/10 µs.
    fn power9() -> StateTable {
        let lite = IdleState { is_auto_promoted: true, ..IdleState::new(1_000, 1_000) };
        let (stop0, stop2) = (IdleState::new(2_000, 20_000), IdleState::new(10_000, 100_000));
        StateTable::new(&[IdleState::POLL, lite, stop0, stop2]).unwrap()
    }

    #[test]
    fn fires_at_residency_plus_twice_the_latency_of_the_next_state() {
        assert_eq!(auto_promotion_delay_ns(&power9(), DisabledMask::NONE, 1), Some(24_000));
    }

    #[test]
    fn skips_disabled_states() {
        let disabled = DisabledMask::NONE.with(2);
        assert_eq!(auto_promotion_delay_ns(&power9(), disabled, 1), Some(120_000));
        assert_eq!(auto_promotion_delay_ns(&power9(), disabled.with(3), 1), None);
    }

    #[test]
    fn arms_nothing_for_other_states() {
        assert_eq!(auto_promotion_delay_ns(&power9(), DisabledMask::NONE, 2), None);
    }
}
