//! Idle states and the table they stand in. Names, powers and sources belong to a machine
//! (`idlewise-machine`); what a governor may look at is here.

use core::fmt;

/// The most states a table may hold, as `CPUIDLE_STATE_MAX` in `include/linux/cpuidle.h`.
pub const STATE_COUNT_MAX: usize = 10;

/// A state's place in its table, 0 the shallowest.
pub type StateIndex = usize;

/// Longest time a table may declare: a day. The kernel holds these in signed 64-bit nanoseconds,
/// so any real figure fits; what doesn't is a mistake of unit.
const TIME_LIMIT_NS: u64 = 86_400 * 1_000_000_000;

/// One row of a machine's table: a state that software may request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleState {
    /// Worst case from the wake-up to the first instruction, as declared.
    pub exit_latency_ns: u64,
    /// Shortest stay that pays, entry included, as declared.
    pub target_residency_ns: u64,
    /// The CPU runs instructions in a loop and looks whether it is needed.
    pub is_polling: bool,
    /// A write to a monitored word ends it (MWAIT, UMWAIT, polling): no interrupt is needed.
    pub wakes_on_store: bool,
    /// A promotion timer is armed on entry (see [`crate::auto_promotion_delay_ns`]).
    pub is_auto_promoted: bool,
}

impl IdleState {
    /// A state that is neither polled nor promoted, from its two times.
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

    /// A busy-wait state: no exit latency, and any stay pays.
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
/// A table is valid when its target residencies do not decrease (ties are real: see
/// `skl_cstates` in `drivers/idle/intel_idle.c`), only state 0 polls, and it has 1 to
/// [`STATE_COUNT_MAX`] states. What is merely odd is a [`TableDoubt`], not an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StateTable {
    states: [IdleState; STATE_COUNT_MAX],
    count: u8,
}

/// Why a list of states is not a table. Indices count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateTableError {
    /// There is no state at all.
    Empty,
    /// There are more states than the kernel has room for.
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// A state's target residency is below that of the state before it.
    Unordered {
        /// The state that is out of order.
        index: StateIndex,
        /// Its target residency.
        target_residency_ns: u64,
        /// That of the state before it.
        previous_ns: u64,
    },
    /// A state other than the first one polls.
    LatePolling {
        /// The polling state.
        index: StateIndex,
    },
    /// A time is longer than a day.
    TooLong {
        /// The state that declares it.
        index: StateIndex,
        /// The time.
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

/// Something odd in a valid table, worth showing beside every result that rests on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableDoubt {
    /// Leaving the state takes longer than the shortest stay that is said to pay.
    LatencyAboveResidency {
        /// The state.
        index: StateIndex,
    },
    /// A deeper state declares a shorter exit latency than the one before it.
    LatencyDecreases {
        /// The deeper state.
        index: StateIndex,
    },
    /// Two neighbours have the same target residency, so the shallower is never the better one.
    EqualResidency {
        /// The deeper state.
        index: StateIndex,
    },
}

impl TableDoubt {
    /// The state that the doubt is about.
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
    /// The first rule that the list breaks; see [`StateTable`].
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

    /// Replaces the deepest state, for tables that are corrected while they are used.
    ///
    /// # Errors
    /// As [`StateTable::new`]; the table is then as before.
    pub fn replace_deepest(&mut self, state: IdleState) -> Result<(), StateTableError> {
        let mut states = self.states;
        states[self.deepest()] = state;
        *self = Self::new(&states[..self.len()])?;
        Ok(())
    }

    /// How many states there are, at least 1.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a table is never empty")]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// The index of the deepest state.
    #[inline]
    pub fn deepest(&self) -> StateIndex {
        self.len() - 1
    }

    /// The state at `index`.
    ///
    /// # Panics
    /// If there is no such state.
    #[inline]
    pub fn get(&self, index: StateIndex) -> &IdleState {
        &self.as_slice()[index]
    }

    /// All states, shallowest first.
    #[inline]
    pub fn as_slice(&self) -> &[IdleState] {
        // `count` never exceeds the array: `new` is the only constructor.
        &self.states[..self.len().min(STATE_COUNT_MAX)]
    }

    /// What is odd in the table, shallowest state first.
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

/// The states of one CPU that somebody switched off (`state*/disable` in sysfs): bit i for state i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisabledMask(u16);

impl DisabledMask {
    /// Every state is enabled.
    pub const NONE: DisabledMask = DisabledMask(0);

    /// Bit i of `bits` disables state i; bits beyond the table are ignored.
    ///
    /// ```
    /// # use idlewise_core::{DisabledMask, IdleState, StateTable};
    /// let c6_off = DisabledMask::from_bits(0b100);
    /// assert!(c6_off.contains(2) && !c6_off.contains(1));
    /// ```
    pub const fn from_bits(bits: u16) -> Self {
        DisabledMask(bits)
    }

    /// The mask as bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// This mask with state `index` disabled too.
    ///
    /// ```
    /// # use idlewise_core::{DisabledMask, IdleState, StateTable};
    /// assert_eq!(DisabledMask::NONE.with(0).with(2).bits(), 0b101);
    /// ```
    #[must_use]
    pub const fn with(self, index: StateIndex) -> Self {
        DisabledMask(self.0 | 1 << index)
    }

    /// Whether state `index` is switched off.
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
        // Bay Trail's C6N has an exit latency above its residency (`byt_cstates`).
        let table = StateTable::new(&[IdleState::new(300, 275), IdleState::new(200, 560)]).unwrap();
        assert!(table.doubts().eq([
            TableDoubt::LatencyAboveResidency { index: 0 },
            TableDoubt::LatencyDecreases { index: 1 },
        ]));
    }
}
