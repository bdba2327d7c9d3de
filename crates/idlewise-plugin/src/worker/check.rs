//! Checks whether a tally is possible for the gaps that were sent.
//!
//! A governor shares its process with the code that counts, so it could forge a tally. A forged tally only
//! affects the governor's own row, but its numbers must be fit to be added up and shown. So a tally must
//! satisfy the sums that hold for any replay of these gaps, whatever the governor decided.

use idlewise_sim::replay::{Setting, Tally};
use idlewise_trace::IdleGap;

/// What was sent to a lane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    gap_count: u64,
    gap_ns: u64,
    timerless_gap_count: u64,
}

impl Sent {
    #[inline]
    pub(crate) fn add(&mut self, gap: &IdleGap) {
        self.gap_count += 1;
        self.gap_ns = self.gap_ns.wrapping_add(gap.gap_ns);
        self.timerless_gap_count += u64::from(gap.sleep_length_ns.is_none());
    }

    /// Returns whether a replay of what was sent can have this tally.
    pub(crate) fn allows(&self, tally: &Tally, setting: &Setting) -> bool {
        let sum = |numbers: &mut dyn Iterator<Item = u64>| numbers.map(u128::from).sum::<u128>();
        let states = &tally.states;
        let state_count = setting.states.len();
        let entry_count = sum(&mut states.iter().map(|state| state.entry_count));
        let wake_count = sum(&mut states.iter().map(|state| state.wake_count));
        let stay_ns = sum(&mut states.iter().map(|state| state.stay_ns));
        let overrun_count = sum(&mut tally.overruns.iter().map(|(_, count)| count));
        let overrun_ns_max =
            setting.exits_ns.into_iter().max().unwrap_or(0).saturating_add(setting.tick_work_ns);
        let (gap_count, gap_ns) = (u128::from(self.gap_count), u128::from(self.gap_ns));

        tally.gap_count == self.gap_count
            && tally.gap_ns == self.gap_ns
            && tally.timerless_gap_count == self.timerless_gap_count
            && tally.invalid_count == 0
            && states.iter().skip(state_count).all(|state| *state == Default::default())
            && states.iter().all(|state| {
                u128::from(state.too_deep_count) + u128::from(state.too_shallow_count)
                    <= u128::from(state.entry_count)
                    && state.wake_count <= state.entry_count
                    && state.free_ipi_count <= state.wake_count
            })
            // Each gap ends in a stay or in the work of a tick.
            && wake_count + overrun_count == gap_count
            && tally.overruns.max_ns().is_none_or(|delay_ns| delay_ns <= overrun_ns_max)
            // Time only passes in stays and in work. A stay of zero length is followed by one that takes
            // time, or by the gap's end.
            && stay_ns + u128::from(tally.work_ns)
                <= gap_ns + overrun_count * u128::from(overrun_ns_max)
            && entry_count <= 2 * (gap_ns + gap_count)
            && u128::from(tally.tick_wake_count) + u128::from(tally.auto_promotion_count)
                <= entry_count
            && u128::from(tally.forbidden_count) <= entry_count
            && u128::from(tally.timer_read_count) <= entry_count * u128::from(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use idlewise_core::{Context, Decision, Device, Governor, IdleState, Outcome, StateTable};
    use idlewise_sim::replay::{GovernorLane, Lane};
    use idlewise_trace::WakeReason;

    use super::*;

    /// Decisions and polling limits from a seed.
    struct Any(u64);

    impl Any {
        fn next(&mut self) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.0 >> 33
        }
    }

    impl Governor for Any {
        fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
            device.poll_limit_ns = [0, 1, 1_000, u64::MAX][self.next() as usize % 4];
            let state = self.next() as usize % context.states.len();
            Decision { state, stop_tick: self.next().is_multiple_of(2) }
        }

        fn reflect(&mut self, _outcome: &Outcome, _device: &mut Device) {}
    }

    fn gap(random: &mut Any, start_ns: i64) -> IdleGap {
        let sleep_length_ns = random.next().is_multiple_of(2).then(|| random.next() % 9_000_000);
        IdleGap {
            cpu: 0,
            start_ns,
            gap_ns: random.next() % [10, 1_000, 100_000, 50_000_000][random.next() as usize % 4]
                + 1,
            sleep_length_ns,
            next_tick_ns: random.next().is_multiple_of(2).then_some(1_000),
            tick_stopped: false,
            ran_task: random.next().is_multiple_of(2),
            wake_reason: WakeReason::ALL[random.next() as usize % WakeReason::ALL.len()],
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        }
    }

    /// A lane of 300 gaps with arbitrary decisions.
    fn replayed(seed: u64) -> (Sent, Tally, Setting) {
        let mut random = Any(seed);
        let mut promoted = IdleState::new(2_000, 4_000);
        promoted.is_auto_promoted = seed.is_multiple_of(3);
        let table = [IdleState::POLL, promoted, IdleState::new(100_000, 300_000)];
        let states = StateTable::new(&table[usize::from(seed.is_multiple_of(5))..]).unwrap();
        let tick_work_ns = [0, 5_000][seed as usize % 2];
        let setting = Setting { tick_work_ns, ..Setting::new(states, 1_000_000) };
        let mut lane = GovernorLane::new(Any(seed ^ 77), setting);
        let (mut sent, mut start_ns) = (Sent::default(), 0);
        for _ in 0..300 {
            let gap = gap(&mut random, start_ns);
            start_ns += gap.gap_ns as i64 + 1_000;
            sent.add(&gap);
            lane.replay(&[gap]);
        }
        (sent, lane.tally().clone(), setting)
    }

    #[test]
    fn allows_the_tally_of_any_answers() {
        for seed in 0..400 {
            let (sent, tally, setting) = replayed(seed);
            assert!(sent.allows(&tally, &setting), "seed {seed}: {tally:?}");
        }
    }

    #[test]
    fn refuses_a_tally_that_breaks_a_sum() {
        let (sent, tally, setting) = replayed(1);
        let mutations: [fn(&mut Tally); 11] = [
            |tally| tally.gap_count += 1,
            |tally| tally.gap_ns -= 1,
            |tally| tally.timerless_gap_count += 1,
            |tally| tally.work_ns = u64::MAX,
            |tally| tally.invalid_count = 1,
            |tally| tally.states[9].entry_count = 1,
            |tally| tally.states[0].entry_count = u64::MAX,
            |tally| tally.states[1].wake_count += 1,
            |tally| tally.overruns.add(1, 1),
            |tally| tally.tick_wake_count = u64::MAX,
            |tally| tally.forbidden_count = u64::MAX,
        ];
        for (index, mutate) in mutations.into_iter().enumerate() {
            let mut forged = tally.clone();
            mutate(&mut forged);
            assert!(!sent.allows(&forged, &setting), "mutation {index}");
        }
    }
}
