//! How long things took: [`Wait`], and many of them: [`Durations`].

/// Durations that differ by no more than this count as equal in [`Durations::distance`].
pub const SAME_RATIO: f64 = 0.05;

/// How long something took, and from when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    /// From the beginning of the recording.
    pub from_ns: u64,
    /// How long.
    pub took_ns: u64,
}

/// Durations of one kind, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    sorted_ns: Vec<u64>,
}

impl FromIterator<u64> for Durations {
    fn from_iter<I: IntoIterator<Item = u64>>(durations_ns: I) -> Self {
        Durations::new(durations_ns.into_iter().collect())
    }
}

impl Durations {
    pub(super) fn new(mut durations_ns: Vec<u64>) -> Self {
        durations_ns.sort_unstable();
        Durations { sorted_ns: durations_ns }
    }

    /// All of several sets.
    pub fn together<'a>(sets: impl IntoIterator<Item = &'a Durations>) -> Self {
        Durations::new(sets.into_iter().flat_map(|set| set.sorted_ns.iter().copied()).collect())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sorted_ns.len()
    }

    /// The mean; `None` without any.
    pub fn mean_ns(&self) -> Option<f64> {
        let sum: u128 = self.sorted_ns.iter().map(|&ns| u128::from(ns)).sum();
        (!self.sorted_ns.is_empty()).then(|| sum as f64 / self.sorted_ns.len() as f64)
    }

    /// The smallest duration that at least this share does not exceed; `None` without any.
    pub fn at(&self, share: f64) -> Option<u64> {
        let rank = (share * self.sorted_ns.len() as f64).ceil() as usize;
        self.sorted_ns.get(rank.saturating_sub(1)).copied()
    }

    /// The largest difference between the shares of two sets that are at most some duration (the Kolmogorov-Smirnov
    /// statistic), 0 to 1. Durations within [`SAME_RATIO`] of each other count as equal: where most wake-ups take the
    /// same time, one nanosecond would otherwise make two distributions as different as can be.
    pub fn distance(&self, other: &Durations) -> f64 {
        self.excess(other).max(other.excess(self))
    }

    /// The largest share by which more durations of this set than of the other are at most some duration.
    fn excess(&self, other: &Durations) -> f64 {
        let counts = [self, other].map(|of| of.sorted_ns.len().max(1) as f64);
        let mut distance: f64 = 0.0;
        let mut theirs = 0;
        let last_of_each = self.sorted_ns.chunk_by(|a, b| a == b).scan(0, |mine, same| {
            *mine += same.len();
            Some((*mine, same[0]))
        });
        for (mine, ns) in last_of_each {
            let as_much_ns = ns.saturating_add((ns as f64 * SAME_RATIO) as u64);
            theirs += other.sorted_ns[theirs..].partition_point(|&other| other <= as_much_ns);
            distance = distance.max(mine as f64 / counts[0] - theirs as f64 / counts[1]);
        }
        distance
    }
}
