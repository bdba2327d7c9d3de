//! The ladder governor, after Linux's ladder.c: Copyright (C) 2001, 2002 Andy Grover and Paul Diefenbaugh, 2004, 2005
//! Dominik Brodowski, 2006-2007 Venkatesh Pallipadi, Shaohua Li and Adam Belay.
//!
//! The idea
//! --------
//! There is no forecast. The CPU has a position in the table, and recent stays move it one state at a time.
//! After four stays longer than the state's exit latency it moves one state deeper; after a single short
//! one it moves one shallower. This suits machines whose tick never stops: all stays are short there, and
//! the question is only how short.
//!
//! Steps
//! -----
//! 1. If the latency limit is zero: state 0, at once.
//! 2. If the stay minus the exit latency exceeds the state's threshold, and the next deeper state is
//!    enabled and within the limit: count it. At the fourth, *ladder promotion*.
//! 3. If the state is disabled or above the limit: up to the first one within it (even if disabled).
//! 4. If the stay minus the exit latency is below the threshold: *ladder demotion*.
//! 5. Otherwise the position does not change.
//!
//! Both thresholds are the state's exit latency: a stay must last as long as leaving costs. Target
//! residencies are not used. The lowest rung is the first state that doesn't poll. The kernel puts the CPU
//! there when it enables the governor.
//!
//! Releases
//! --------
//! The code is the same in 6.1.192-2 and 6.12.117-1 (they differ in one comment).
//!
//! Known limitations
//! -----------------
//! - Stay minus exit latency is signed, but compared with the threshold as unsigned. So a stay shorter
//!   than the exit latency counts as a huge one: it is promoted, never demoted.
//! - After a latency limit of zero, the CPU may be on a polling state, which has no thresholds. The
//!   first stay above zero leads back.
//! - Entering state 0 does not move the position; the next select finds it unchanged.
//! - It never keeps the tick, and on the way to shallower states it ignores which are disabled.

use idlewise_core::{Context, Decision, Device, Governor, Outcome, STATE_COUNT_MAX, StateIndex};

use crate::states::States;

/// The number of long stays before a step deeper. (The kernel also counts short stays, up to one. The first
/// leads a step up and resets both counts, so there is nothing to count.)
const PROMOTION_STAY_COUNT: u32 = 4;

/// The ladder governor of one CPU.
#[derive(Clone, Debug, Default)]
pub struct Ladder {
    /// A count for each state. Leaving the state resets it.
    long_stay_counts: [u32; STATE_COUNT_MAX],
    is_enabled: bool,
    /// The position at the last select, and its count before a step.
    last_position: StateIndex,
    last_count: u32,
}

impl Ladder {
    /// Creates a governor without history.
    pub const fn new() -> Self {
        Ladder {
            long_stay_counts: [0; STATE_COUNT_MAX],
            is_enabled: false,
            last_position: 0,
            last_count: 0,
        }
    }

    /// The CPU's position. The first call puts it on the lowest rung.
    #[inline]
    fn position(&mut self, lowest: StateIndex, device: &mut Device) -> StateIndex {
        if !self.is_enabled {
            self.is_enabled = true;
            device.last_state = Some(lowest);
        }
        device.last_state.unwrap_or(lowest).min(STATE_COUNT_MAX - 1)
    }

    #[inline]
    fn next_position(
        &mut self,
        position: StateIndex,
        lowest: StateIndex,
        states: States<'_>,
        context: &Context<'_>,
        device: &Device,
    ) -> StateIndex {
        let limit_ns = context.latency_limit_ns;
        let latency_ns = states.exit_latency_ns(position);
        // A negative difference wraps and counts as huge.
        let asleep_ns = device.last_residency_ns.wrapping_sub(latency_ns as u64);
        let can_demote = position > lowest;

        if let Some(deeper) = states.slots().get(position + 1)
            && !states.is_disabled(position + 1)
            && deeper.exit_latency_ns as i64 <= limit_ns
        {
            // Below the lowest rung there are no thresholds: one stay above zero is enough.
            let is_rung = position >= lowest;
            let threshold_ns = if is_rung { latency_ns as u64 } else { 0 };
            if asleep_ns > threshold_ns {
                let long_stay_count = &mut self.long_stay_counts[position];
                *long_stay_count += 1;
                if !is_rung || *long_stay_count >= PROMOTION_STAY_COUNT {
                    return position + 1;
                }
            }
        }
        if can_demote && (states.is_disabled(position) || latency_ns > limit_ns) {
            return quick_position(position, lowest, states, limit_ns);
        }
        if can_demote && asleep_ns < latency_ns as u64 { position - 1 } else { position }
    }
}

/// The first state within the limit on the way to shallower ones, or the lowest rung. Out of line because
/// it is rare: a latency limit or a switch in sysfs has changed.
#[cold]
fn quick_position(
    position: StateIndex,
    lowest: StateIndex,
    states: States<'_>,
    limit_ns: i64,
) -> StateIndex {
    let is_quick = |&index: &StateIndex| states.exit_latency_ns(index) <= limit_ns;
    (lowest + 1..position).rev().find(is_quick).unwrap_or(lowest)
}

impl Governor for Ladder {
    #[inline]
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        let states = States::of(context);
        let lowest = usize::from(states.is_polling(0));
        let position = self.position(lowest, device);
        let next = if context.latency_limit_ns == 0 {
            0
        } else {
            self.next_position(position, lowest, states, context, device)
        };
        self.last_position = position;
        self.last_count = self.long_stay_counts[position];
        // A latency limit of zero resets the count even if the CPU is on state 0 already.
        if next != position || context.latency_limit_ns == 0 {
            self.long_stay_counts[position] = 0;
            device.last_state = Some(next);
        }
        Decision { state: next.min(states.deepest()), stop_tick: true }
    }

    #[inline]
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        if outcome.is_overruled {
            // A CPU that remained had counted fewer long stays than a step takes.
            let remained = outcome.entered == self.last_position;
            self.long_stay_counts[self.last_position] =
                if remained { self.last_count.min(PROMOTION_STAY_COUNT - 1) } else { 0 };
        }
        if outcome.entered > 0 || outcome.is_overruled {
            device.last_state = Some(outcome.entered);
        }
    }

    /// The last position is only for `reflect`, which follows a select that sets it again.
    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        note(u64::from(self.is_enabled));
        self.long_stay_counts.iter().for_each(|count| note(u64::from(*count)));
        true
    }
}

#[cfg(test)]
mod tests {
    use idlewise_core::{FAR_AWAY_NS, IdleState, SleepLength, StateTable};

    use super::*;

    /// A ladder and its device, on POLL, C1 and C6.
    struct Cpu(Ladder, Device, StateTable);

    impl Cpu {
        fn new() -> Self {
            let rungs =
                [IdleState::POLL, IdleState::new(2_000, 2_000), IdleState::new(9_000, 30_000)];
            Cpu(Ladder::new(), Device::default(), StateTable::new(&rungs).expect("three states"))
        }

        /// Selects, then stays in `entered`, or in the selected state.
        fn stay(&mut self, residency_ns: u64, entered: Option<StateIndex>) -> StateIndex {
            let Cpu(ladder, device, states) = self;
            let timer = SleepLength { sleep_length_ns: FAR_AWAY_NS, next_event_ns: FAR_AWAY_NS };
            let decided = ladder.select(&Context::new(states, timer), device).state;
            device.last_residency_ns = residency_ns;
            let entered = entered.unwrap_or(decided);
            let is_overruled = entered != decided;
            ladder.reflect(&Outcome { entered, is_overruled, got_tick: false, now_ns: 0 }, device);
            decided
        }
    }

    #[test]
    fn finds_its_count_again_when_it_is_overruled() {
        let (mut real, mut replay) = (Cpu::new(), Cpu::new());
        // A stay that no recording contains.
        real.stay(1_000_000, None);
        let mut differing_count = 0;
        for stay in 1..=40 {
            // Leaves C6 now and then, and goes back after four long stays.
            let residency_ns = if stay % 8 == 0 { 12_000 } else { 1_000_000 };
            let recorded = real.stay(residency_ns, None);
            differing_count += u32::from(replay.stay(residency_ns, Some(recorded)) != recorded);
        }
        assert_eq!(differing_count, 1, "the first step up, and no other");
    }
}
