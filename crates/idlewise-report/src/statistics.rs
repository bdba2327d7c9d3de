//! Medians over runs, and confidence intervals by resampling.

/// The median; `None` if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    if values.is_empty() {
        return None;
    }
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    Some(match values.len().is_multiple_of(2) {
        true => values[middle - 1].midpoint(values[middle]),
        false => values[middle],
    })
}

/// With fewer runs no interval is given, because resampling them says little.
pub const RUN_COUNT_MIN: usize = 7;
pub(crate) const RESAMPLE_COUNT: usize = 2_000;
const CONFIDENCE: f64 = 0.95;

/// A figure, with one value for each run.
#[derive(Clone, Debug)]
pub struct Series(Vec<f64>);

impl Series {
    /// Returns `None` if a run has no value.
    pub fn new(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let values = values.into_iter().collect::<Option<Vec<f64>>>()?;
        (!values.is_empty()).then_some(Series(values))
    }

    /// The median over the drawn runs.
    pub fn median(&self, drawn: &[usize]) -> f64 {
        median(drawn.iter().map(|&run| self.0[run])).unwrap_or(f64::NAN)
    }
}

/// Computes a statistic of the runs and its 95 % confidence interval.
///
/// This is the percentile bootstrap (Efron, 1979): runs are drawn with replacement, and the
/// interval is the middle 95 % of the resulting statistics. Whole runs are drawn, because values to
/// be compared were measured in the same run. The draws are always the same, so a result has one
/// verdict. With fewer than [`RUN_COUNT_MIN`] runs there is no interval.
pub fn estimate(run_count: usize, statistic: impl Fn(&[usize]) -> f64) -> (f64, Option<[f64; 2]>) {
    let (measured, resampled) = resampled(run_count, statistic);
    (measured, resampled.map(middle))
}

/// Like [`estimate`], for the few runs of which [`middle_of_few`] has to widen the interval. Where every resample is
/// the same, there is nothing to be known from resampling, and no interval.
pub(crate) fn estimate_of_few(
    run_count: usize,
    statistic: impl Fn(&[usize]) -> f64,
) -> (f64, Option<[f64; 2]>) {
    let (measured, resampled) = resampled(run_count, statistic);
    let varies = |it: &Vec<f64>| it.iter().any(|other| *other != measured);
    (measured, resampled.filter(varies).map(|it| middle_of_few(it, run_count)))
}

/// Values in groups that are drawn whole, because the values of a group resemble each other.
#[derive(Default)]
pub(crate) struct Groups<'a>(Vec<(&'a str, Vec<f64>)>);

impl<'a> FromIterator<(&'a str, f64)> for Groups<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, f64)>>(values: I) -> Self {
        let mut groups = Groups::default();
        for (name, value) in values {
            match groups.0.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => groups.0.push((name, vec![value])),
            }
        }
        groups
    }
}

impl Groups<'_> {
    /// How many groups there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The mean of all values of the drawn groups.
    pub(crate) fn mean(&self, drawn: &[usize]) -> f64 {
        let sums = drawn.iter().map(|&at| (self.0[at].1.iter().sum::<f64>(), self.0[at].1.len()));
        let (sum, count) = sums.fold((0.0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        sum / count as f64
    }
}

/// A statistic of the runs and of resamples; none of fewer than [`RUN_COUNT_MIN`] runs.
fn resampled(run_count: usize, statistic: impl Fn(&[usize]) -> f64) -> (f64, Option<Vec<f64>>) {
    let mut drawn: Vec<usize> = (0..run_count).collect();
    let measured = statistic(&drawn);
    if run_count < RUN_COUNT_MIN {
        return (measured, None);
    }
    let mut draw = Draw::new(SEED);
    let mut statistics = Vec::with_capacity(RESAMPLE_COUNT);
    for _ in 0..RESAMPLE_COUNT {
        drawn.fill_with(|| draw.index(run_count));
        statistics.push(statistic(&drawn));
    }
    (measured, Some(statistics))
}

/// The middle 95 % of the statistics of resamples.
pub(crate) fn middle(mut statistics: Vec<f64>) -> [f64; 2] {
    statistics.sort_unstable_by(f64::total_cmp);
    let rank = |share: f64| {
        let rank = (share * statistics.len() as f64) as usize;
        statistics[rank.min(statistics.len() - 1)]
    };
    [rank((1.0 - CONFIDENCE) / 2.0), rank((1.0 + CONFIDENCE) / 2.0)]
}

/// The middle of the statistics of resamples of so few items that the middle 95 % would be too narrow.
///
/// Resamples of n items vary less than the items' mean does, by √((n − 1)/n), and their middle has normal tails where
/// Student's have to be. So the percentiles are those of a normal distribution at
/// √(n/(n − 1)) · t (Hesterberg 2015, "What teachers should know about the bootstrap", 5.3).
pub(crate) fn middle_of_few(mut statistics: Vec<f64>, item_count: usize) -> [f64; 2] {
    let freedom = item_count.saturating_sub(1).max(1) as f64;
    let share = normal_below(-(item_count as f64 / freedom).sqrt() * student(freedom));
    statistics.sort_unstable_by(f64::total_cmp);
    let last = statistics.len() - 1;
    let cut = ((share * statistics.len() as f64) as usize).min(last / 2);
    [statistics[cut], statistics[last - cut]]
}

/// Beyond which ± Student's distribution has 5 %: the expansion of Cornish and Fisher around the normal one. It is
/// right to 0.1 % from five degrees of freedom on.
fn student(freedom: f64) -> f64 {
    let z = 1.959_964_f64;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom) + z
}

/// The share of a normal distribution below a negative number (Abramowitz and Stegun 26.2.17, right to 1e-7).
fn normal_below(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let polynomial = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = polynomial.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum
}

/// An arbitrary constant with many bits set.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Draws items with replacement, always the same ones (xorshift64*).
pub(crate) struct Draw(u64);

impl Draw {
    fn new(seed: u64) -> Self {
        Draw(seed)
    }

    /// A sequence for the other of two independent samples.
    pub(crate) fn pair() -> [Self; 2] {
        [Draw::new(SEED), Draw::new(SEED.rotate_left(31) ^ SEED)]
    }

    fn index(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(number) * count as u128) >> 64) as usize
    }

    /// Draws as many items as there are. Sets how often each was drawn.
    pub(crate) fn weights(&mut self, weights: &mut [u64]) {
        let count = weights.len();
        weights.fill(0);
        for _ in 0..count {
            weights[self.index(count)] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn middle(runs: &[f64]) -> (f64, Option<[f64; 2]>) {
        let series = Series::new(runs.iter().copied().map(Some)).unwrap();
        estimate(runs.len(), |drawn| series.median(drawn))
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([]), None);
        assert!(Series::new([Some(1.0), None]).is_none() && Series::new([]).is_none());
    }

    /// With seven values, a drawn median is the lowest in 1 % of the draws (at least four of seven
    /// must be that value), and one of the two lowest in 10 %: the interval begins at the second.
    #[test]
    fn an_interval_holds_the_median_and_leaves_out_the_extremes() {
        let runs = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0];
        assert_eq!(middle(&runs), (4.0, Some([2.0, 6.0])));
    }

    /// Tables of Student's distribution and of the normal one.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [(6.0, 2.447), (9.0, 2.262), (49.0, 2.010), (1e6, 1.960)] {
            assert!((student(freedom) - expected).abs() < 2e-3, "{freedom}: {}", student(freedom));
        }
        for (z, expected) in [(-1.96, 0.024_998), (-2.643, 0.004_108), (-1.0, 0.158_655)] {
            assert!((normal_below(z) - expected).abs() < 2e-6, "{z}: {}", normal_below(z));
        }
        let thousand = || (0..1_000).map(f64::from).collect();
        assert_eq!(middle_of_few(thousand(), 7), [4.0, 995.0]);
        assert_eq!(middle_of_few(thousand(), 1_000_000), [24.0, 975.0]);
    }

    /// Of intervals of ten runs, about 95 % hold what many runs would show; somewhat fewer if runs are skewed.
    #[test]
    fn intervals_of_few_runs_hold_the_mean_as_often_as_they_say() {
        let mut draw = Draw::new(SEED);
        let mut uniform = || (draw.index(1_000_000) as f64 + 0.5) / 1e6;
        let mut covered = |one: fn([f64; 3]) -> f64, mean: f64| {
            let holds = |_: &i32| {
                let runs: [f64; 10] =
                    std::array::from_fn(|_| one(std::array::from_fn(|_| uniform())));
                let sum = |drawn: &[usize]| drawn.iter().map(|&run| runs[run]).sum::<f64>() / 10.0;
                let (_, interval) = estimate_of_few(runs.len(), sum);
                interval.is_some_and(|[low, high]| low <= mean && mean <= high)
            };
            (0..300).filter(holds).count()
        };
        let symmetric = covered(|of| of.iter().sum(), 1.5);
        let skewed = covered(|of| -of[0].ln(), 1.0);
        assert!((279..=297).contains(&symmetric), "{symmetric} of 300");
        assert!((255..=297).contains(&skewed), "{skewed} of 300");
        assert_eq!(estimate_of_few(10, |_| 1.0), (1.0, None), "nothing varies");
    }

    #[test]
    fn few_runs_have_no_interval() {
        assert_eq!(middle(&[1.0; RUN_COUNT_MIN - 1]), (1.0, None));
        assert_eq!(middle(&[1.0; RUN_COUNT_MIN]), (1.0, Some([1.0, 1.0])));
    }
}
