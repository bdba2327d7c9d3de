//! How long leaving a state takes: measured or published percentiles, or else what the driver declares.

use serde::Serialize;

use crate::figure::Basis;
use crate::state::MachineState;

/// How finely a distribution is divided at most: into parts of equal probability.
const PART_COUNT: u64 = 2000;

/// How long leaving a state takes. A replay charges the mean, and draws delays from the distribution, as many as there are
/// wake-ups.
///
/// ```
/// use idlewise_machine::MachineState;
///
/// let mut c6 = MachineState::new("C6", 290_000, 800_000);
/// assert_eq!(c6.exit_times().mean_ns(), 290_000);
/// c6.exit_percentiles_us = vec![[50.0, 100.0], [100.0, 200.0]];
/// let times = c6.exit_times();
/// assert_eq!(times.quantile_ns(0.5), 100_000);
/// // Half of all exits take 100 us, the others 100 to 200.
/// assert_eq!(times.mean_ns(), 125_000);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ExitTimes {
    /// Ratios and nanoseconds, both ascending. Between them it is linear, outside constant. Never empty.
    points: Vec<(f64, f64)>,
    mean_ns: u64,
}

impl ExitTimes {
    /// Always the same time.
    pub fn constant(ns: u64) -> Self {
        ExitTimes { points: vec![(0.0, ns as f64)], mean_ns: ns }
    }

    /// From percentiles in microseconds, as a machine's file has them.
    fn of_percentiles(percentiles_us: &[[f64; 2]]) -> Self {
        let points = percentiles_us.iter().map(|[percent, us]| (percent / 100.0, us * 1e3));
        let points: Vec<(f64, f64)> = points.collect();
        let [first, last] = [points.first(), points.last()].map(|point| point.copied());
        let ends_ns = first.map_or(0.0, |(ratio, ns)| ratio * ns)
            + last.map_or(0.0, |(ratio, ns)| (1.0 - ratio) * ns);
        let between = points.windows(2).map(|pair| {
            let [(low, low_ns), (high, high_ns)] = [pair[0], pair[1]];
            (high - low) * (low_ns + high_ns) / 2.0
        });
        let mean_ns = (ends_ns + between.sum::<f64>()).round() as u64;
        ExitTimes { points, mean_ns }
    }

    /// Returns the time that this share of all exits does not exceed.
    pub fn quantile_ns(&self, ratio: f64) -> u64 {
        let after = self.points.partition_point(|(at, _)| *at < ratio);
        let ns = match (after.checked_sub(1).map(|i| self.points[i]), self.points.get(after)) {
            (Some((low, low_ns)), Some(&(high, high_ns))) => {
                low_ns + (high_ns - low_ns) * (ratio - low) / (high - low)
            }
            (Some((_, ns)), None) | (None, Some(&(_, ns))) => ns,
            (None, None) => 0.0,
        };
        ns.round() as u64
    }

    /// Returns the mean.
    pub fn mean_ns(&self) -> u64 {
        self.mean_ns
    }

    /// Whether leaving always takes the same time.
    pub fn is_constant(&self) -> bool {
        self.points.windows(2).all(|pair| pair[0].1 == pair[1].1)
    }

    /// Draws so many exits from the distribution, evenly. Returns times and how many exits take them. Their mean is near to
    /// [`ExitTimes::mean_ns`], but not equal.
    pub fn spread(&self, count: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let part_count = count.min(if self.is_constant() { 1 } else { PART_COUNT });
        let until =
            move |part: u64| (u128::from(count) * u128::from(part) / u128::from(part_count)) as u64;
        (0..part_count).map(move |part| {
            let middle = (part as f64 + 0.5) / part_count as f64;
            (self.quantile_ns(middle), until(part + 1) - until(part))
        })
    }
}

/// A state's measured or published exit latency, with its source.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExitFigure<'a> {
    /// Pairs of percent and microseconds, both ascending.
    pub percentiles_us: &'a [[f64; 2]],
    /// How the source obtained it: measured, published, paper.
    pub kind: Option<&'a str>,
    /// Where to look it up.
    pub source: Option<&'a str>,
    /// Whether somebody has checked it in its source; `false` if it is quoted second-hand.
    pub is_checked: bool,
}

impl ExitFigure<'_> {
    /// Returns the basis, by the same rule as a power's.
    pub fn basis(&self) -> Basis {
        Basis::of_figure(self.kind, self.source)
    }
}

impl MachineState {
    /// Returns the measured or published exit latency.
    pub fn exit_figure(&self) -> Option<ExitFigure<'_>> {
        (!self.exit_percentiles_us.is_empty()).then(|| ExitFigure {
            percentiles_us: &self.exit_percentiles_us,
            kind: self.exit_kind.as_deref(),
            source: self.exit_source.as_deref(),
            is_checked: self.exit_checked.unwrap_or(true),
        })
    }

    /// Returns how long leaving the state takes: the measured or published distribution, or else always the declared
    /// worst case.
    pub fn exit_times(&self) -> ExitTimes {
        match self.exit_percentiles_us.is_empty() {
            true => ExitTimes::constant(self.exit_latency_ns),
            false => ExitTimes::of_percentiles(&self.exit_percentiles_us),
        }
    }
}

/// Checks the percentiles of a file.
pub(crate) fn percentiles_fault(percentiles_us: &[[f64; 2]]) -> Option<String> {
    /// A day, as for a declared exit latency.
    const US_MAX: f64 = 86_400e6;
    let field = "`exit_percentiles_us`";
    for [percent, us] in percentiles_us {
        // False for NaN, too.
        if !(0.0..=100.0).contains(percent) {
            return Some(format!(
                "{field} has percentile {percent}: use pairs of percent (0 to 100) and microseconds"
            ));
        }
        if !(0.0..=US_MAX).contains(us) {
            return Some(format!("{field} has {us} us at {percent} %: check the unit"));
        }
    }
    percentiles_us.windows(2).find_map(|pair| {
        let [[percent, us], [next_percent, next_us]] = [pair[0], pair[1]];
        if next_percent <= percent {
            return Some(format!("{field} has {next_percent} % behind {percent} %: sort them"));
        }
        (next_us < us).then(|| {
            format!("{field} has {next_us} us at {next_percent} %, below {us} us at {percent} %")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(percentiles_us: &[[f64; 2]]) -> ExitTimes {
        ExitTimes::of_percentiles(percentiles_us)
    }

    #[test]
    fn it_is_linear_between_percentiles_and_constant_outside() {
        let times = times(&[[10.0, 20.0], [50.0, 60.0], [99.0, 109.0]]);
        for (ratio, ns) in
            [(0.0, 20_000), (0.1, 20_000), (0.3, 40_000), (0.5, 60_000), (0.99, 109_000)]
        {
            assert_eq!(times.quantile_ns(ratio), ns, "{ratio}");
        }
        assert_eq!(times.quantile_ns(1.0), 109_000);
        // By hand: 0.1 · 20 + 0.4 · 40 + 0.49 · 84.5 + 0.01 · 109.
        assert_eq!(times.mean_ns(), 60_495);
    }

    #[test]
    fn a_spread_has_all_exits_and_the_same_mean() {
        let times = times(&[[0.0, 10.0], [50.0, 20.0], [90.0, 80.0], [100.0, 400.0]]);
        for count in [0, 1, 2, 3, 999, 1000, 1001, 123_456_789] {
            let spread: Vec<_> = times.spread(count).collect();
            assert_eq!(spread.iter().map(|(_, count)| count).sum::<u64>(), count);
            assert!(spread.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{count}");
            if count >= 1000 {
                let sum: f64 = spread.iter().map(|&(ns, count)| ns as f64 * count as f64).sum();
                let mean_ns = sum / count as f64;
                assert!(
                    (mean_ns / times.mean_ns() as f64 - 1.0).abs() < 1e-3,
                    "{count}: {mean_ns}"
                );
            }
        }
        // One exit is in the middle, and of two each has a half.
        assert_eq!(times.spread(1).collect::<Vec<_>>(), [(20_000, 1)]);
        assert_eq!(times.spread(2).collect::<Vec<_>>(), [(15_000, 1), (57_500, 1)]);
    }

    #[test]
    fn the_mean_has_all_of_a_steep_tail() {
        let times = times(&[[99.95, 1.0], [100.0, 1_000_000.0]]);
        // 0.9995 · 1 + 0.0005 · 500,000.5
        assert_eq!(times.mean_ns(), 251_000);
    }

    #[test]
    fn without_percentiles_it_is_the_declared_worst_case() {
        let times = MachineState::new("C6", 290_000, 800_000).exit_times();
        assert_eq!((times.mean_ns(), times.quantile_ns(0.01)), (290_000, 290_000));
        assert_eq!(times.spread(7).collect::<Vec<_>>(), [(290_000, 7)]);
        assert_eq!(times.spread(0).count(), 0);
    }

    #[test]
    fn impossible_percentiles_are_named() {
        for (percentiles, said) in [
            (vec![[50.0, 1.0], [50.0, 2.0]], "has 50 % behind 50 %: sort them"),
            (vec![[90.0, 1.0], [50.0, 2.0]], "has 50 % behind 90 %: sort them"),
            (vec![[50.0, 3.0], [90.0, 2.0]], "has 2 us at 90 %, below 3 us at 50 %"),
            (vec![[101.0, 3.0]], "percentile 101"),
            (vec![[f64::NAN, 3.0]], "percentile NaN"),
            (vec![[-1.0, 3.0]], "percentile -1"),
            (vec![[50.0, -3.0]], "has -3 us at 50 %: check the unit"),
            (vec![[50.0, f64::INFINITY]], "has inf us"),
            (vec![[50.0, 1e12]], "check the unit"),
        ] {
            let fault = percentiles_fault(&percentiles).unwrap();
            assert!(fault.contains(said), "{fault}");
        }
        assert_eq!(percentiles_fault(&[[0.0, 0.0], [50.0, 0.0], [100.0, 3.5]]), None);
    }
}
