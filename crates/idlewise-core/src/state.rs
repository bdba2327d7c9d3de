//! Idle states and the table of them, as far as a governor may see them. Names, powers and sources belong
//! to a machine (`idlewise-machine`).

use core::fmt;

/// The maximum number of states in a table, like `CPUIDLE_STATE_MAX` in `include/linux/cpuidle.h`.
pub const STATE_COUNT_MAX: usize = 10;

/// A state's index in its table; 0 is the shallowest.
pub type StateIndex = usize;

/// The longest time that a table may declare: a day. The kernel keeps these times in signed 64-bit
/// nanoseconds, which any real figure fits. A longer time is most likely in the wrong unit.
const TIME_LIMIT_NS: u64 = 86_400 * 1_000_000_000;

/// One row of a machine's table: an idle state that software may request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleState {
    /// The declared worst-case time from the wake-up to the first instruction.
    pub exit_latency_ns: u64,
    /// The declared shortest stay that saves energy, including the time to enter.
    pub target_residency_ns: u64,
    /// The CPU runs a loop and checks whether it is needed.
    pub is_polling: bool,
    /// A write to a monitored word ends it without an interrupt (MWAIT, UMWAIT, polling).
    pub wakes_on_store: bool,
    /// A promotion timer is armed on entry (see [`crate::auto_promotion_delay_ns`]).
    pub is_auto_promoted: bool,
}

impl IdleState {
    /// Creates a state that is neither polled nor promoted, from its two times.
    ///
    /// ```
    /// # use idlewise_core::{DisabledMask, IdleState, StateTable};
    /// let c6 = IdleState::new(290_000, 800_000);
    /// assert_eq!((c6.exit_latency_ns, c6.target_residency_ns, c6.is_polling), (290_000, 800_000, false));
    /// ```
    pub const fn new(exit_latency_ns: u64, target_residency_ns: u64) -> Self {
        IdleState {
            exit_latency_ns,
            target_residency_ns,
            is_polling: false,
            wakes_on_store: false,
            is_auto_promoted: false,
        }
    }

    /// A busy-wait state: no exit latency, and any stay is long enough.
    pub const POLL: IdleState = IdleState {
        exit_latency_ns: 0,
        target_residency_ns: 0,
        is_polling: true,
        wakes_on_store: true,
        is_auto_promoted: false,
    };
}

/// The idle states of one CPU, shallowest first.
///
/// In a valid table, target residencies do not decrease (equal ones exist: see `skl_cstates` in
/// `drivers/idle/intel_idle.c`), only state 0 polls, and there are 1 to [`STATE_COUNT_MAX`] states. A table
/// that is merely odd has a [`TableDoubt`], not an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StateTable {
    states: [IdleState; STATE_COUNT_MAX],
    count: u8,
}

/// Why a list of states does not make a valid table. Indices begin at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateTableError {
    /// There is no state.
    Empty,
    /// There are more states than the kernel supports.
    TooMany {
        /// The number of states.
        count: usize,
    },
    /// A state's target residency is below that of the state before it.
    Unordered {
        /// The state with the lower target residency.
        index: StateIndex,
        /// Its target residency.
        target_residency_ns: u64,
        /// The target residency of the state before it.
        previous_ns: u64,
    },
    /// A state other than state 0 polls.
    LatePolling {
        /// The polling state.
        index: StateIndex,
    },
    /// A time is longer than a day.
    TooLong {
        /// The state that declares it.
        index: StateIndex,
        /// The time, in nanoseconds.
        time_ns: u64,
    },
}

impl fmt::Display for StateTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => write!(f, "no idle states: a table needs at least one"),
            Self::TooMany { count } => {
                write!(f, "{count} idle states: the kernel takes at most {STATE_COUNT_MAX}")
            }
            Self::Unordered { index, target_residency_ns, previous_ns } => write!(
                f,
                "state {index} has target residency {target_residency_ns} ns, below the {previous_ns} ns \
                 of state {}: order states by target residency",
                index - 1
            ),
            Self::LatePolling { index } => {
                write!(f, "state {index} polls: only state 0 may be a polling state")
            }
            Self::TooLong { index, time_ns } => {
                write!(f, "state {index} declares {time_ns} ns, more than a day: check the unit")
            }
        }
    }
}

impl core::error::Error for StateTableError {}

/// Something odd in a valid table. It should be shown with every result that depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableDoubt {
    /// Leaving the state takes longer than its target residency.
    LatencyAboveResidency {
        /// The state.
        index: StateIndex,
    },
    /// A deeper state declares a shorter exit latency than the one before it.
    LatencyDecreases {
        /// The deeper state.
        index: StateIndex,
    },
    /// Two neighbouring states have the same target residency, so the shallower one is never better.
    EqualResidency {
        /// The deeper state.
        index: StateIndex,
    },
}

impl TableDoubt {
    /// Returns the state that the doubt is about.
    pub fn index(self) -> StateIndex {
        match self {
            Self::LatencyAboveResidency { index }
            | Self::LatencyDecreases { index }
            | Self::EqualResidency { index } => index,
        }
    }
}

impl fmt::Display for TableDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LatencyAboveResidency { .. } => "exit latency above target residency",
            Self::LatencyDecreases { .. } => "exit latency below the shallower state's",
            Self::EqualResidency { .. } => "same target residency as the shallower state",
        })
    }
}

impl StateTable {
    /// Checks `states` and copies them.
    ///
    /// # Errors
    /// The first rule of [`StateTable`] that the list breaks.
    ///
    /// ```
    /// # use idlewise_core::{DisabledMask, IdleState, StateTable};
    /// let states = StateTable::new(&[IdleState::POLL, IdleState::new(1_000, 1_000)])?;
    /// assert_eq!((states.len(), states.deepest()), (2, 1));
    /// assert!(StateTable::new(&[]).is_err());
    /// # Ok::<(), idlewise_core::StateTableError>(())
    /// ```
    pub fn new(states: &[IdleState]) -> Result<Self, StateTableError> {
        if states.is_empty() {
            return Err(StateTableError::Empty);
        }
        if states.len() > STATE_COUNT_MAX {
            return Err(StateTableError::TooMany { count: states.len() });
        }
        for (index, state) in states.iter().enumerate() {
            let time_ns = state.exit_latency_ns.max(state.target_residency_ns);
            if time_ns > TIME_LIMIT_NS {
                return Err(StateTableError::TooLong { index, time_ns });
            }
            if index == 0 {
                continue;
            }
            if state.is_polling {
                return Err(StateTableError::LatePolling { index });
            }
            let previous_ns = states[index - 1].target_residency_ns;
            if state.target_residency_ns < previous_ns {
                let target_residency_ns = state.target_residency_ns;
                return Err(StateTableError::Unordered { index, target_residency_ns, previous_ns });
            }
        }
        let mut table = StateTable {
            states: [IdleState::default(); STATE_COUNT_MAX],
            count: states.len() as u8,
        };
        table.states[..states.len()].copy_from_slice(states);
        Ok(table)
    }

    /// Replaces the deepest state, for tables that change while in use.
    ///
    /// # Errors
    /// As for [`StateTable::new`]. The table is then unchanged.
    pub fn replace_deepest(&mut self, state: IdleState) -> Result<(), StateTableError> {
        let mut states = self.states;
        states[self.deepest()] = state;
        *self = Self::new(&states[..self.len()])?;
        Ok(())
    }

    /// Returns the number of states, which is at least 1.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a table is never empty")]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Returns the index of the deepest state.
    #[inline]
    pub fn deepest(&self) -> StateIndex {
        self.len() - 1
    }

    /// Returns the state at `index`.
    ///
    /// # Panics
    /// If there is no such state.
    #[inline]
    pub fn get(&self, index: StateIndex) -> &IdleState {
        &self.as_slice()[index]
    }

    /// Returns all states, shallowest first.
    #[inline]
    pub fn as_slice(&self) -> &[IdleState] {
        // `count` never exceeds the array: `new` is the only constructor.
        &self.states[..self.len().min(STATE_COUNT_MAX)]
    }

    /// Returns what is odd in the table, shallowest state first.
    pub fn doubts(&self) -> impl Iterator<Item = TableDoubt> + '_ {
        self.as_slice().iter().enumerate().flat_map(move |(index, state)| {
            let shallower = index.checked_sub(1).map(|i| self.states[i]);
            let latency = (state.exit_latency_ns > state.target_residency_ns)
                .then_some(TableDoubt::LatencyAboveResidency { index });
            let order = shallower
                .filter(|s| state.exit_latency_ns < s.exit_latency_ns)
                .map(|_| TableDoubt::LatencyDecreases { index });
            let tie = shallower
                .filter(|s| state.target_residency_ns == s.target_residency_ns)
                .map(|_| TableDoubt::EqualResidency { index });
            [latency, order, tie].into_iter().flatten()
        })
    }
}

impl fmt::Debug for StateTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Which states of a CPU are switched off (`state*/disable` in sysfs): bit i stands for state i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisabledMask(u16);

impl DisabledMask {
    /// All states are enabled.
    pub const NONE: DisabledMask = DisabledMask(0);

    /// Creates a mask from bits: bit i disables state i. Bits beyond the table are ignored.
    ///
    /// ```
    /// # use idlewise_core::{DisabledMask, IdleState, StateTable};
    /// let c6_off = DisabledMask::from_bits(0b100);
    /// assert!(c6_off.contains(2) && !c6_off.contains(1));
    /// ```
    pub const fn from_bits(bits: u16) -> Self {
        DisabledMask(bits)
    }

    /// Returns the mask as bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Returns this mask with state `index` disabled too.
    ///
    /// ```
    /// # use idlewise_core::{DisabledMask, IdleState, StateTable};
    /// assert_eq!(DisabledMask::NONE.with(0).with(2).bits(), 0b101);
    /// ```
    #[must_use]
    pub const fn with(self, index: StateIndex) -> Self {
        DisabledMask(self.0 | 1 << index)
    }

    /// Returns whether state `index` is disabled.
    #[inline]
    pub const fn contains(self, index: StateIndex) -> bool {
        self.0 >> index & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_an_empty_and_an_overfull_table() {
        assert_eq!(StateTable::new(&[]), Err(StateTableError::Empty));
        assert_eq!(
            StateTable::new(&[IdleState::POLL; 11]).map(|_| ()),
            Err(StateTableError::TooMany { count: 11 })
        );
    }

    #[test]
    fn rejects_residencies_that_decrease_and_accepts_ties() {
        let unordered = [IdleState::new(1, 10), IdleState::new(2, 9)];
        assert_eq!(
            StateTable::new(&unordered),
            Err(StateTableError::Unordered { index: 1, target_residency_ns: 9, previous_ns: 10 })
        );
        let tied = StateTable::new(&[IdleState::new(1, 10), IdleState::new(2, 10)]).unwrap();
        assert!(tied.doubts().eq([TableDoubt::EqualResidency { index: 1 }]));
    }

    #[test]
    fn replaces_the_deepest_state_by_one_that_fits() {
        let mut table = StateTable::new(&[IdleState::POLL, IdleState::new(5, 10)]).unwrap();
        assert_eq!(table.replace_deepest(IdleState::new(7, 20)), Ok(()));
        assert_eq!(table.as_slice(), [IdleState::POLL, IdleState::new(7, 20)]);
        assert!(table.replace_deepest(IdleState::POLL).is_err());
        assert_eq!(table.get(1).exit_latency_ns, 7);
    }

    #[test]
    fn rejects_a_polling_state_after_the_first() {
        assert_eq!(
            StateTable::new(&[IdleState::POLL, IdleState::POLL]),
            Err(StateTableError::LatePolling { index: 1 })
        );
    }

    #[test]
    fn rejects_times_beyond_a_day() {
        let state = IdleState::new(u64::MAX, 0);
        let error = StateTableError::TooLong { index: 0, time_ns: u64::MAX };
        assert_eq!(StateTable::new(&[state]), Err(error));
    }

    #[test]
    fn keeps_odd_figures_as_doubts() {
        // Bay Trail's C6N has an exit latency above its target residency (`byt_cstates`).
        let table = StateTable::new(&[IdleState::new(300, 275), IdleState::new(200, 560)]).unwrap();
        assert!(table.doubts().eq([
            TableDoubt::LatencyAboveResidency { index: 0 },
            TableDoubt::LatencyDecreases { index: 1 },
        ]));
    }
}
