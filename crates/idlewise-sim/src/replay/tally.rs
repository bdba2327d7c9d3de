//! What a lane counts. Everything that can be worked out afterwards is: energy follows from the
//! time and the entries of each state, and the delays of most events from which state they found.

use std::collections::BTreeMap;

use idlewise_core::{STATE_COUNT_MAX, StateTable};

/// Counts of one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTally {
    /// Stays.
    pub entry_count: u64,
    /// All stays together, exit latencies not included.
    pub stay_ns: u64,
    /// Stays that were too deep.
    pub too_deep_count: u64,
    /// Stays that were too shallow.
    pub too_shallow_count: u64,
    /// Wake events that found the CPU in this state.
    pub wake_count: u64,
    /// Those among them that were IPIs, and that a write to the monitored word could have replaced.
    pub free_ipi_count: u64,
}

/// What one lane did, or several lanes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By state.
    pub states: [StateTally; STATE_COUNT_MAX],
    /// Gaps replayed.
    pub gap_count: u64,
    /// All gaps together.
    pub gap_ns: u64,
    /// Gaps whose next timer was not known.
    pub timerless_gap_count: u64,
    /// Time at running power within gaps: exits and work of ticks, exits of promotions.
    pub work_ns: u64,
    /// Stays that the tick ended.
    pub tick_wake_count: u64,
    /// Stays that the promotion timer ended.
    pub auto_promotion_count: u64,
    /// How often the governor read the timers.
    pub timer_read_count: u64,
    /// Answers outside the table.
    pub invalid_count: u64,
    /// Delays of events that came while the CPU was running in a gap, after a tick.
    pub overruns: Delays,
}

/// A multiset of delays, exact: overruns take few distinct values, bounded by the deepest exit
/// latency and the tick's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    counts: BTreeMap<u64, u64>,
}

impl Delays {
    /// Distinct values kept exactly; beyond, values are rounded down to three digits.
    const EXACT_MAX: usize = 4_096;

    /// Adds one delay.
    pub fn record(&mut self, delay_ns: u64) {
        self.add(delay_ns, 1);
    }

    /// Adds `count` delays of the same length.
    pub fn add(&mut self, delay_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        let key = if self.counts.len() < Self::EXACT_MAX || self.counts.contains_key(&delay_ns) {
            delay_ns
        } else {
            let scale = 10_u64.pow(delay_ns.max(1).ilog10().saturating_sub(2));
            delay_ns / scale * scale
        };
        *self.counts.entry(key).or_default() += count;
    }

    /// Each distinct delay with how often it occurred, shortest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts.iter().map(|(&delay_ns, &count)| (delay_ns, count))
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// All of them together.
    pub fn sum_ns(&self) -> u64 {
        self.counts.iter().map(|(delay_ns, count)| delay_ns * count).sum()
    }

    /// The longest.
    pub fn max_ns(&self) -> Option<u64> {
        self.counts.last_key_value().map(|(&delay_ns, _)| delay_ns)
    }

    /// The smallest delay that at least `ratio` of all do not exceed.
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
        for (&delay_ns, &count) in &other.counts {
            self.add(delay_ns, count);
        }
    }
}

impl Tally {
    /// Decisions: one a stay.
    pub fn decision_count(&self) -> u64 {
        self.states.iter().map(|state| state.entry_count).sum()
    }

    /// Stays that were too deep.
    pub fn too_deep_count(&self) -> u64 {
        self.states.iter().map(|state| state.too_deep_count).sum()
    }

    /// Stays that were too shallow.
    pub fn too_shallow_count(&self) -> u64 {
        self.states.iter().map(|state| state.too_shallow_count).sum()
    }

    /// Wake-up IPIs that a polling or MWAIT state would have made free.
    pub fn free_ipi_count(&self) -> u64 {
        self.states.iter().map(|state| state.free_ipi_count).sum()
    }

    /// All stays together.
    pub fn stay_ns(&self) -> u64 {
        self.states.iter().map(|state| state.stay_ns).sum()
    }

    /// The delays of all events: the exit latency of the state that each found, or the overrun of
    /// the tick before it.
    pub fn delays(&self, states: &StateTable) -> Delays {
        let mut delays = self.overruns.clone();
        for (state, tally) in states.as_slice().iter().zip(&self.states) {
            delays.add(state.exit_latency_ns, tally.wake_count);
        }
        delays
    }

    /// Adds another tally of the same states.
    pub fn merge(&mut self, other: &Tally) {
        for (mine, theirs) in self.states.iter_mut().zip(&other.states) {
            mine.entry_count += theirs.entry_count;
            mine.stay_ns += theirs.stay_ns;
            mine.too_deep_count += theirs.too_deep_count;
            mine.too_shallow_count += theirs.too_shallow_count;
            mine.wake_count += theirs.wake_count;
            mine.free_ipi_count += theirs.free_ipi_count;
        }
        self.gap_count += other.gap_count;
        self.gap_ns += other.gap_ns;
        self.timerless_gap_count += other.timerless_gap_count;
        self.work_ns += other.work_ns;
        self.tick_wake_count += other.tick_wake_count;
        self.auto_promotion_count += other.auto_promotion_count;
        self.timer_read_count += other.timer_read_count;
        self.invalid_count += other.invalid_count;
        self.overruns.merge(&other.overruns);
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
    fn keeps_many_distinct_delays_to_three_digits() {
        let mut delays = Delays::default();
        for i in 0..100_000_u64 {
            delays.record(1_000_000 + i);
        }
        assert_eq!(delays.count(), 100_000);
        let median_ns = delays.quantile_ns(0.5).unwrap();
        assert!((1_040_000..=1_050_000).contains(&median_ns), "{median_ns}");
    }
}
