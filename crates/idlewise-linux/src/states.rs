//! The state table in the kernel's types: times are signed, and there are always ten slots.
//!
//! A driver's array is larger than its number of states, and the rest of it is zero. Governors may read
//! that rest: `ladder` with a single polling state starts at state 1. So reading past the table returns a
//! state of zeros instead of panicking.

use idlewise_core::{Context, DisabledMask, IdleState, STATE_COUNT_MAX, StateIndex};

const EMPTY_SLOT: IdleState = IdleState::new(0, 0);

/// The states of one CPU, and which of them are disabled.
#[derive(Clone, Copy)]
pub(crate) struct States<'a> {
    slots: &'a [IdleState],
    disabled: DisabledMask,
}

impl<'a> States<'a> {
    #[inline]
    pub(crate) fn of(context: &Context<'a>) -> Self {
        States { slots: context.states.as_slice(), disabled: context.disabled }
    }

    #[inline]
    pub(crate) fn len(self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn deepest(self) -> StateIndex {
        // A table is never empty.
        self.slots.len() - 1
    }

    /// The state at `index`, or a state of zeros.
    #[inline]
    pub(crate) fn get(self, index: StateIndex) -> &'a IdleState {
        self.slots.get(index).unwrap_or(&EMPTY_SLOT)
    }

    /// The states of the table, shallowest first.
    #[inline]
    pub(crate) fn slots(self) -> &'a [IdleState] {
        self.slots
    }

    #[inline]
    pub(crate) fn exit_latency_ns(self, index: StateIndex) -> i64 {
        // A table holds no time above a day, so the sign bit is free.
        self.get(index).exit_latency_ns as i64
    }

    #[inline]
    pub(crate) fn target_residency_ns(self, index: StateIndex) -> i64 {
        self.get(index).target_residency_ns as i64
    }

    #[inline]
    pub(crate) fn is_polling(self, index: StateIndex) -> bool {
        self.get(index).is_polling
    }

    #[inline]
    pub(crate) fn is_disabled(self, index: StateIndex) -> bool {
        self.disabled.contains(index)
    }

    /// The deepest enabled state above `limit` whose target residency fits into `span_ns`, or the
    /// shallowest enabled one if none fits, or `limit` itself if nothing above it is enabled.
    #[inline]
    pub(crate) fn shallower_within(self, limit: StateIndex, span_ns: i64) -> StateIndex {
        let mut found = limit;
        for index in (0..limit.min(STATE_COUNT_MAX)).rev() {
            if self.is_disabled(index) {
                continue;
            }
            found = index;
            if self.target_residency_ns(index) <= span_ns {
                break;
            }
        }
        found
    }
}
