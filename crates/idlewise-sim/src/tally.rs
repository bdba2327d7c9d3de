//! What a lane counts. Whatever can be computed later is not counted: energy follows from the time
//! and the entries of each state, and most delays from the state in which the event found the CPU.

use std::collections::BTreeMap;

use idlewise_core::{STATE_COUNT_MAX, StateIndex};
use idlewise_machine::{SHARED_STATE_COUNT_MAX, Scope};
use idlewise_trace::WakeReason;

use crate::exits::Exits;

/// The counts of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTally {
    /// The number of stays.
    pub entry_count: u64,
    /// The sum of all stays, without exit latencies.
    pub stay_ns: u64,
    /// Stays that were too deep.
    pub too_deep_count: u64,
    /// Stays that were too shallow.
    pub too_shallow_count: u64,
    /// Wake events that found the CPU in this state.
    pub wake_count: u64,
    /// Those of them that also waited for a state to be left that CPUs share.
    pub shared_wake_count: u64,
    /// Those wake events that were IPIs which a write to the monitored word could have replaced.
    pub free_ipi_count: u64,
}

impl StateTally {
    /// Counts a wake event that found the CPU in this state.
    #[inline]
    pub(crate) fn add_wake(&mut self, reason: WakeReason, wakes_on_store: bool) {
        self.wake_count += 1;
        let is_ipi = matches!(reason, WakeReason::Ipi | WakeReason::Resched);
        self.free_ipi_count += u64::from(is_ipi && wakes_on_store);
    }
}

/// The counts of a state that CPUs share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedStateTally {
    /// How often a group of CPUs entered it.
    pub entry_count: u64,
    /// How long groups were in it.
    pub stay_ns: u64,
    /// Stays shorter than its target residency.
    pub too_deep_count: u64,
    /// Wake events that waited for it to be left.
    pub wake_count: u64,
    /// How long they waited for that.
    pub delay_ns: u64,
}

impl SharedStateTally {
    /// Adds another group's counts.
    pub(crate) fn add(&mut self, other: &SharedStateTally) {
        self.entry_count += other.entry_count;
        self.stay_ns += other.stay_ns;
        self.too_deep_count += other.too_deep_count;
        self.wake_count += other.wake_count;
        self.delay_ns += other.delay_ns;
    }
}

/// The counts of a lane, or the sum of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Counts by state.
    pub states: [StateTally; STATE_COUNT_MAX],
    /// Gaps replayed.
    pub gap_count: u64,
    /// The sum of all gaps.
    pub gap_ns: u64,
    /// Gaps whose next timer was unknown.
    pub timerless_gap_count: u64,
    /// Time at running power within gaps: exits and work of ticks, and exits of promotions.
    pub work_ns: u64,
    /// Stays that the tick ended.
    pub tick_wake_count: u64,
    /// Stays that the promotion timer ended.
    pub auto_promotion_count: u64,
    /// How often the governor read the timers.
    pub timer_read_count: u64,
    /// Decisions outside the table.
    pub invalid_count: u64,
    /// Decisions for a state that is disabled, or that the latency limit forbids where a shallower one is enabled.
    pub forbidden_count: u64,
    /// Delays of events that came while the CPU was running within a gap, after a tick.
    pub overruns: Delays,
    /// Counts of the states that CPUs share, in the machine's order. All 0 if CPUs were replayed alone.
    pub shared: [SharedStateTally; SHARED_STATE_COUNT_MAX],
    /// Delays of events that waited for a shared state to be left: with the CPU's own exit latency.
    pub shared_delays: Delays,
    /// For each scope, the time from the log's beginning to its end, times the number of groups.
    pub group_ns: [u64; SCOPE_COUNT],
}

/// The number of scopes.
pub(crate) const SCOPE_COUNT: usize = Scope::ALL.len();

/// A multiset of delays. It is exact up to [`Delays::DISTINCT_MAX`] distinct values. Beyond that,
/// all values are rounded down to as many leading bits as fit, at least 15, which is four decimal
/// digits. Sum and maximum are always exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    counts: BTreeMap<u64, u64>,
    /// How many of a value's 64 bits are rounded away.
    dropped_bits: u32,
    sum_ns: u128,
    max_ns: Option<u64>,
}

impl Delays {
    /// How many distinct values are kept.
    pub const DISTINCT_MAX: usize = 1 << 20;

    /// Adds one delay.
    pub fn record(&mut self, delay_ns: u64) {
        self.add(delay_ns, 1);
    }

    /// Adds `count` equal delays.
    pub fn add(&mut self, delay_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.sum_ns += u128::from(delay_ns) * u128::from(count);
        self.max_ns = self.max_ns.max(Some(delay_ns));
        *self.counts.entry(rounded(delay_ns, self.dropped_bits)).or_default() += count;
        while self.counts.len() > Self::DISTINCT_MAX {
            self.drop_bits(self.dropped_bits + 1);
        }
    }

    /// Rounds all values, so that the result does not depend on the order in which they were added.
    fn drop_bits(&mut self, dropped_bits: u32) {
        self.dropped_bits = dropped_bits;
        for (delay_ns, count) in std::mem::take(&mut self.counts) {
            *self.counts.entry(rounded(delay_ns, dropped_bits)).or_default() += count;
        }
    }

    /// Returns each distinct delay with its count, shortest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().map(|(&delay_ns, &count)| (delay_ns, count))
    }

    /// Returns how many distinct values are kept.
    pub(crate) fn distinct_count(&self) -> usize {
        self.counts.len()
    }

    /// Returns the number of delays.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the sum, at most `u64::MAX`.
    pub fn sum_ns(&self) -> u64 {
        u64::try_from(self.sum_ns).unwrap_or(u64::MAX)
    }

    /// Returns the mean; `None` if there are no delays.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.counts.is_empty()).then(|| self.sum_ns as f64 / self.count() as f64)
    }

    /// Returns the shortest delay.
    pub fn min_ns(&self) -> Option<u64> {
        self.counts.keys().next().copied()
    }

    /// Returns the longest delay.
    pub fn max_ns(&self) -> Option<u64> {
        self.max_ns
    }

    /// Returns the smallest delay that at least `ratio` of all delays do not exceed.
    pub fn quantile_ns(&self, ratio: f64) -> Option<u64> {
        let rank = (ratio * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.counts.iter().find_map(|(&delay_ns, count)| {
            seen += count;
            (seen >= rank).then_some(delay_ns)
        })
    }

    /// Adds the delays of another multiset.
    pub fn merge(&mut self, other: &Delays) {
        if other.dropped_bits > self.dropped_bits {
            self.drop_bits(other.dropped_bits);
        }
        for (&delay_ns, &count) in &other.counts {
            *self.counts.entry(rounded(delay_ns, self.dropped_bits)).or_default() += count;
        }
        while self.counts.len() > Self::DISTINCT_MAX {
            self.drop_bits(self.dropped_bits + 1);
        }
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// Rounds the value down by clearing `dropped_bits` of its 64 bits.
fn rounded(value: u64, dropped_bits: u32) -> u64 {
    let zero_bits = dropped_bits.saturating_sub(value.leading_zeros()).min(u64::BITS - 1);
    value >> zero_bits << zero_bits
}

impl Tally {
    /// Counts a gap.
    #[inline]
    pub(crate) fn add_gap(&mut self, gap_ns: u64, is_timer_known: bool) {
        self.gap_count += 1;
        self.gap_ns += gap_ns;
        self.timerless_gap_count += u64::from(!is_timer_known);
    }

    /// Counts a stay that the tick ended, and the tick's handler.
    #[inline]
    pub(crate) fn add_tick(&mut self, exit_ns: u64, tick_work_ns: u64) {
        self.tick_wake_count += 1;
        self.work_ns += exit_ns + tick_work_ns;
    }

    /// Counts a stay that the promotion timer ended.
    #[inline]
    pub(crate) fn add_promotion(&mut self, exit_ns: u64) {
        self.auto_promotion_count += 1;
        self.work_ns += exit_ns;
    }

    /// The same as if no CPU had waited for another, and nothing were shared.
    pub fn alone(&self) -> Tally {
        let mut alone = Tally { overruns: self.overruns.clone(), ..self.counts() };
        alone.shared = Default::default();
        alone.group_ns = Default::default();
        alone.states.iter_mut().for_each(|state| state.shared_wake_count = 0);
        alone
    }

    /// Counts the delay of an event that waited for a shared state to be left.
    #[cold]
    pub(crate) fn add_shared_delay(&mut self, state: StateIndex, delay_ns: u64) {
        self.states[state].shared_wake_count += 1;
        self.shared_delays.record(delay_ns);
    }

    /// Returns the number of decisions: one for each stay.
    pub fn decision_count(&self) -> u64 {
        self.states.iter().map(|state| state.entry_count).sum()
    }

    /// Returns the number of stays that were too deep.
    pub fn too_deep_count(&self) -> u64 {
        self.states.iter().map(|state| state.too_deep_count).sum()
    }

    /// Returns the number of stays that were too shallow.
    pub fn too_shallow_count(&self) -> u64 {
        self.states.iter().map(|state| state.too_shallow_count).sum()
    }

    /// Returns the number of wake-up IPIs that a polling or MWAIT state would have avoided.
    pub fn free_ipi_count(&self) -> u64 {
        self.states.iter().map(|state| state.free_ipi_count).sum()
    }

    /// Returns the sum of all stays.
    pub fn stay_ns(&self) -> u64 {
        self.states.iter().map(|state| state.stay_ns).sum()
    }

    /// Returns the delays of all events: what leaving the state took that each found, or the overrun of
    /// the tick before it. The exits of a state are drawn from their distribution, but their sum is the mean's, which
    /// costs have.
    pub fn delays(&self, exits: &Exits) -> Delays {
        let mut delays = self.overruns.clone();
        delays.merge(&self.shared_delays);
        for (state, count) in self.exit_counts() {
            if let Some(times) = exits.get(state) {
                times.spread(count).for_each(|(delay_ns, count)| delays.add(delay_ns, count));
            }
        }
        delays.sum_ns = self.exact_delay_sum_ns(exits);
        delays
    }

    /// Returns the sum of [`Tally::delays`].
    pub fn delay_sum_ns(&self, exits: &Exits) -> u64 {
        u64::try_from(self.exact_delay_sum_ns(exits)).unwrap_or(u64::MAX)
    }

    fn exact_delay_sum_ns(&self, exits: &Exits) -> u128 {
        let means = self.exit_counts();
        let means =
            means.map(|(state, count)| u128::from(exits.mean_ns(state)) * u128::from(count));
        self.overruns.sum_ns + self.shared_delays.sum_ns + means.sum::<u128>()
    }

    /// How many exits of each state delayed an event, and waited for no other CPU.
    fn exit_counts(&self) -> impl Iterator<Item = (StateIndex, u64)> + '_ {
        let states = self.states.iter().enumerate();
        states.map(|(index, tally)| (index, tally.wake_count - tally.shared_wake_count))
    }

    /// Adds another tally of the same states.
    pub fn merge(&mut self, other: &Tally) {
        self.combine(other, |mine, theirs| *mine += theirs);
        self.overruns.merge(&other.overruns);
        self.shared_delays.merge(&other.shared_delays);
    }

    /// A copy without the overruns, of which there may be many.
    pub(super) fn counts(&self) -> Tally {
        let mut counts = Tally::default();
        counts.combine(self, |mine, theirs| *mine = theirs);
        counts
    }

    /// The counts since `earlier`, without overruns.
    pub(super) fn since(&self, earlier: &Tally) -> Tally {
        let mut counts = self.counts();
        counts.combine(earlier, |mine, theirs| *mine -= theirs);
        counts
    }

    /// Adds another tally `count` times, without overruns.
    pub(super) fn add_repeatedly(&mut self, other: &Tally, count: u64) {
        self.combine(other, |mine, theirs| *mine += theirs * count);
    }

    /// Calls `change` with each count and its counterpart. Multisets of delays are left out.
    fn combine(&mut self, other: &Tally, change: impl Fn(&mut u64, u64)) {
        for (mine, theirs) in self.states.iter_mut().zip(&other.states) {
            change(&mut mine.entry_count, theirs.entry_count);
            change(&mut mine.stay_ns, theirs.stay_ns);
            change(&mut mine.too_deep_count, theirs.too_deep_count);
            change(&mut mine.too_shallow_count, theirs.too_shallow_count);
            change(&mut mine.wake_count, theirs.wake_count);
            change(&mut mine.shared_wake_count, theirs.shared_wake_count);
            change(&mut mine.free_ipi_count, theirs.free_ipi_count);
        }
        for (mine, theirs) in self.shared.iter_mut().zip(&other.shared) {
            change(&mut mine.entry_count, theirs.entry_count);
            change(&mut mine.stay_ns, theirs.stay_ns);
            change(&mut mine.too_deep_count, theirs.too_deep_count);
            change(&mut mine.wake_count, theirs.wake_count);
            change(&mut mine.delay_ns, theirs.delay_ns);
        }
        for (mine, theirs) in self.group_ns.iter_mut().zip(other.group_ns) {
            change(mine, theirs);
        }
        change(&mut self.gap_count, other.gap_count);
        change(&mut self.gap_ns, other.gap_ns);
        change(&mut self.timerless_gap_count, other.timerless_gap_count);
        change(&mut self.work_ns, other.work_ns);
        change(&mut self.tick_wake_count, other.tick_wake_count);
        change(&mut self.auto_promotion_count, other.auto_promotion_count);
        change(&mut self.timer_read_count, other.timer_read_count);
        change(&mut self.invalid_count, other.invalid_count);
        change(&mut self.forbidden_count, other.forbidden_count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        let mut delays = Delays::default();
        delays.add(1, 98);
        delays.add(50, 1);
        delays.add(900, 1);
        assert_eq!(delays.quantile_ns(0.5), Some(1));
        assert_eq!(delays.quantile_ns(0.98), Some(1));
        assert_eq!(delays.quantile_ns(0.99), Some(50));
        assert_eq!(delays.quantile_ns(0.999), Some(900));
        assert_eq!((delays.count(), delays.sum_ns(), delays.max_ns()), (100, 1_048, Some(900)));
        assert_eq!(Delays::default().quantile_ns(0.5), None);
    }

    #[test]
    fn is_exact_up_to_a_million_distinct_values() {
        let mut delays = Delays::default();
        for i in 0..100_000_u64 {
            delays.record(1_000_000 + i);
        }
        assert_eq!(delays.quantile_ns(0.5), Some(1_049_999));
        assert_eq!(delays.quantile_ns(0.999), Some(1_099_899));
        assert_eq!(delays.quantile_ns(0.9999), Some(1_099_989));
    }

    #[test]
    fn rounds_all_alike_beyond_a_million_whatever_their_order() {
        let values = |i: u64| i * 1_001 + 3;
        let count = Delays::DISTINCT_MAX as u64 + 1_000;
        let (mut up, mut down) = (Delays::default(), Delays::default());
        (0..count).for_each(|i| up.record(values(i)));
        (0..count).rev().for_each(|i| down.record(values(i)));
        assert_eq!(up, down);
        let (mut low, mut high) = (Delays::default(), Delays::default());
        (0..700_000).for_each(|i| low.record(values(i)));
        (700_000..count).for_each(|i| high.record(values(i)));
        low.merge(&high);
        assert_eq!(low, up);
        assert!(up.iter().count() <= Delays::DISTINCT_MAX);
        assert_eq!((up.count(), up.max_ns()), (count, Some(values(count - 1))));
        assert_eq!(up.sum_ns(), (0..count).map(values).sum::<u64>());
        let (median_ns, exact_ns) = (up.quantile_ns(0.5).unwrap(), values((count - 1) / 2));
        assert!(median_ns <= exact_ns && exact_ns - median_ns < exact_ns / 16_384, "{median_ns}");
    }
}
