//! Within what a measured figure is to be expected.
//!
//! A prediction errs for two reasons. A recording and the run that a prediction is compared with are samples, and their
//! percentiles vary ([`repeated`]). And the model is wrong; by how much, runs of a real kernel have shown ([`MARGINS`]).
//! An interval is the first, widened by the second: split conformal prediction on quantile intervals (Romano, Patterson and
//! Candès, "Conformalized Quantile Regression", 2019).

use super::durations::{Durations, Wait};

/// The share of measured values that an interval should contain.
pub const COVERED: f64 = 0.9;
/// So many standard deviations around the mean contain [`COVERED`] of a normal distribution.
const Z: f64 = 1.645;
/// A run is cut into so many parts, each of which is one observation: wake-ups that follow each other are alike.
const BLOCK_COUNT: usize = 25;

/// By how much intervals are widened at both ends, as natural logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margins {
    /// Of throughput.
    pub throughput: f64,
    /// Of the energy over the recorded setting's.
    pub energy: f64,
    /// Of the wake-to-run latencies of all tasks.
    pub all: Margin,
    /// The same of tasks with one name.
    pub tasks: Margin,
    /// Of how long requests take.
    pub requests: Margin,
}

/// The same of a median and a 99th percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// Of the median.
    pub p50: f64,
    /// Of the 99th percentile.
    pub p99: f64,
}

/// Computed from the loads with which the model was made by `crates/idlewise-linux/tests/all/prediction.rs`, which fails
/// if they are others.
pub const MARGINS: Margins = Margins {
    throughput: 0.044,
    energy: 0.127,
    all: Margin { p50: 0.045, p99: 0.046 },
    tasks: Margin { p50: 0.087, p99: 0.035 },
    requests: Margin { p50: 0.091, p99: 0.175 },
};

/// Within what a figure is to be expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Widens it at both ends.
    #[must_use]
    pub fn widened(self, margin: f64) -> Self {
        Interval { low: self.low * (-margin).exp(), high: self.high * margin.exp() }
    }

    /// How far it must be widened to contain a value: less than nothing if it does.
    pub fn beyond(self, value: f64) -> f64 {
        (self.low / value).ln().max((value / self.high).ln())
    }
}

/// Within what a percentile is in [`COVERED`] of all pairs of runs as long as this one, as ratios to this one's. `waits` are
/// in the order of time, and `sorted` by length. `None` without any.
///
/// The share of durations that do not exceed the percentile varies from one part of the run to the next; so much the rank of
/// the percentile is unsure (Woodruff, "Confidence Intervals for Medians and Other Position Measures", 1952).
fn repeated(waits: &[Wait], sorted: &Durations, share: f64) -> Option<Interval> {
    let at_ns = sorted.at(share)?;
    let shares = waits.chunks(waits.len().div_ceil(BLOCK_COUNT)).map(|block| {
        let within = block.iter().filter(|wait| wait.took_ns <= at_ns).count();
        within as f64 / block.len() as f64
    });
    let shares: Vec<f64> = shares.collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let squares: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
    let between = squares / (shares.len().max(2) - 1) as f64 / shares.len() as f64;
    // If each part has as many, they are at least as unsure as independent ones.
    let variance = between.max(share * (1.0 - share) / waits.len() as f64);
    let off = Z * (2.0 * variance).sqrt();
    let ratio = |share: f64| {
        let ns = sorted.at(share.clamp(0.0, 1.0)).unwrap_or(at_ns);
        ns.max(1) as f64 / at_ns.max(1) as f64
    };
    Some(Interval { low: ratio(share - off), high: ratio(share + off) })
}

/// The waits of one kind in a run, and within what their percentiles are in others.
#[derive(Clone, Debug)]
pub struct Waited {
    /// How long they took.
    pub durations: Durations,
    /// Of the median, as ratios; `None` without any.
    pub p50: Option<Interval>,
    /// The same of the 99th percentile.
    pub p99: Option<Interval>,
}

impl Waited {
    /// Takes them in the order of time.
    pub fn new(waits: &[Wait]) -> Self {
        let durations: Durations = waits.iter().map(|wait| wait.took_ns).collect();
        let [p50, p99] = [0.5, 0.99].map(|share| repeated(waits, &durations, share));
        Waited { durations, p50, p99 }
    }
}

/// The same of several runs of one setting: the mean of what each of them shows, around a figure of all.
pub fn around(figure: f64, of_runs: impl IntoIterator<Item = Interval>) -> Interval {
    let (mut low, mut high, mut count) = (0.0, 0.0, 0);
    for interval in of_runs {
        low += interval.low.ln();
        high += interval.high.ln();
        count += 1;
    }
    let mean = |sum: f64| figure * (sum / f64::from(count.max(1))).exp();
    Interval { low: mean(low), high: mean(high) }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    fn waits(took_ns: impl IntoIterator<Item = u64>) -> Vec<Wait> {
        let wait = |(from_ns, took_ns)| Wait { from_ns, took_ns };
        (0..).zip(took_ns).map(wait).collect()
    }

    /// Of two runs one is the prediction and one is measured. `make` makes a run.
    fn covered(share: f64, make: impl Fn(&mut Rng) -> Vec<u64>) -> f64 {
        let mut rng = Rng::with_seed(7);
        let count = 2_000;
        let is_covered = |_: &u32| {
            let [one, other] = [make(&mut rng), make(&mut rng)];
            let one = waits(one);
            let sorted: Durations = one.iter().map(|wait| wait.took_ns).collect();
            let interval = repeated(&one, &sorted, share).unwrap();
            let other: Durations = other.into_iter().collect();
            let ratio = other.at(share).unwrap() as f64 / sorted.at(share).unwrap() as f64;
            interval.low <= ratio && ratio <= interval.high
        };
        f64::from((0..count).filter(is_covered).count() as u32) / f64::from(count)
    }

    #[test]
    fn nine_in_ten_repetitions_are_within_their_interval() {
        let independent = |rng: &mut Rng| (0..2_000).map(|_| 1_000 + rng.u64(..100_000)).collect();
        for share in [0.5, 0.99] {
            let covered = covered(share, independent);
            assert!((0.85..=0.95).contains(&covered), "{share}: {covered}");
        }
        // Each run of 80 is alike: as many observations as there are parts.
        let alike = |rng: &mut Rng| {
            let levels = (0..25).map(|_| 1_000 + rng.u64(..100_000));
            levels.flat_map(|level| [level; 80]).collect()
        };
        let covered = covered(0.5, alike);
        assert!((0.80..=0.97).contains(&covered), "{covered}");
    }

    #[test]
    fn a_figure_that_never_varies_has_no_interval_and_an_empty_run_none_at_all() {
        let none = Waited::new(&[]);
        assert_eq!((none.p50, none.p99), (None, None));
        let same = Waited::new(&waits([120_000; 500]));
        assert_eq!([same.p50, same.p99], [Some(Interval { low: 1.0, high: 1.0 }); 2]);
    }

    #[test]
    fn several_runs_are_averaged_and_widened_in_ratios() {
        let of_runs = [Interval { low: 0.5, high: 1.0 }, Interval { low: 0.5, high: 4.0 }];
        let interval = around(10.0, of_runs);
        assert!((interval.low - 5.0).abs() < 1e-9 && (interval.high - 20.0).abs() < 1e-9);
        let interval = Interval { low: 10.0, high: 10.0 }.widened(2.0_f64.ln());
        assert!((interval.low - 5.0).abs() < 1e-9 && (interval.high - 20.0).abs() < 1e-9);
    }
}
