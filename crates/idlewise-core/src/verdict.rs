//! How the kernel judges a stay: `above` and `below` in `cpuidle_enter_state`
//! (`drivers/cpuidle/cpuidle.c`).

use crate::words;
use crate::{DisabledMask, StateIndex, StateTable};

/// One stay in one state. Its duration is measured as in the kernel: from entry to the first instruction
/// afterwards, including the exit latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stay {
    /// The state that was entered.
    pub state: StateIndex,
    /// How long it lasted, including the exit latency.
    pub idle_duration_ns: u64,
}

words! {
    name;
    /// Whether a state fitted its stay.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Verdict {
        /// Neither too deep nor too shallow.
        Fit = "fit",
        /// Shorter than the state's target residency, although a shallower state was enabled (`above`).
        TooDeep = "too_deep",
        /// Long enough for the next deeper enabled state, after subtracting the exit latency (`below`).
        TooShallow = "too_shallow",
    }
}

impl Stay {
    /// Judges the stay.
    ///
    /// # Panics
    /// If the table does not have the state.
    ///
    /// ```
    /// # use idlewise_core::{DisabledMask, IdleState, StateTable, Stay, Verdict};
    /// let states = StateTable::new(&[IdleState::new(1_000, 1_000), IdleState::new(290_000, 800_000)])?;
    /// let stay = Stay { state: 1, idle_duration_ns: 20_000 };
    /// assert_eq!(stay.verdict(&states, DisabledMask::NONE), Verdict::TooDeep);
    /// # Ok::<(), idlewise_core::StateTableError>(())
    /// ```
    #[inline]
    pub fn verdict(self, states: &StateTable, disabled: DisabledMask) -> Verdict {
        let entered = states.get(self.state);
        if self.idle_duration_ns < entered.target_residency_ns {
            let shallower_is_enabled = (0..self.state).any(|i| !disabled.contains(i));
            return if shallower_is_enabled { Verdict::TooDeep } else { Verdict::Fit };
        }
        if self.idle_duration_ns <= entered.exit_latency_ns {
            return Verdict::Fit;
        }
        let asleep_ns = self.idle_duration_ns - entered.exit_latency_ns;
        let deeper = (self.state + 1..states.len()).find(|&i| !disabled.contains(i));
        match deeper {
            Some(i) if asleep_ns >= states.get(i).target_residency_ns => Verdict::TooShallow,
            _ => Verdict::Fit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IdleState;

    fn verdict(state: StateIndex, idle_duration_ns: u64, disabled_bits: u16) -> Verdict {
        let c1 = IdleState::new(1_000, 2_000);
        let c6 = IdleState::new(290_000, 800_000);
        let table = StateTable::new(&[IdleState::POLL, c1, c6]).unwrap();
        Stay { state, idle_duration_ns }.verdict(&table, DisabledMask::from_bits(disabled_bits))
    }

    #[test]
    fn is_too_deep_only_if_a_shallower_state_is_enabled() {
        assert_eq!(verdict(2, 799_999, 0), Verdict::TooDeep);
        assert_eq!(verdict(2, 799_999, 0b011), Verdict::Fit);
        assert_eq!(verdict(2, 800_000, 0), Verdict::Fit);
    }

    #[test]
    fn is_too_shallow_only_for_the_next_enabled_state_and_without_the_exit() {
        assert_eq!(verdict(0, 2_000, 0), Verdict::TooShallow);
        assert_eq!(verdict(1, 800_999, 0), Verdict::Fit);
        assert_eq!(verdict(1, 801_000, 0), Verdict::TooShallow);
        assert_eq!(verdict(0, 2_000, 0b010), Verdict::Fit);
        assert_eq!(verdict(0, 800_000, 0b010), Verdict::TooShallow);
    }
}
