//! A distribution given by its quantiles, as benchmarks publish it.

use fastrand::Rng;

/// Quantiles of a time span. Between two quantiles the distribution is uniform.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles {
    /// Shares with the span that they do not exceed. Both ascend; shares go from 0 to 1.
    points: Vec<(f64, u64)>,
}

impl Quantiles {
    /// Makes a distribution from points (ratio, span) in ascending order, the first at 0 and the
    /// last at 1; `None` if they are not.
    pub fn new(points: &[(f64, u64)]) -> Option<Self> {
        let ends = points.first()?.0 == 0.0 && points.last()?.0 == 1.0;
        let ascends = points.windows(2).all(|p| p[0].0 < p[1].0 && p[0].1 <= p[1].1);
        (points.len() > 1 && ends && ascends).then(|| Quantiles { points: points.to_vec() })
    }

    /// Returns the span at `ratio`.
    pub fn at(&self, ratio: f64) -> u64 {
        let next = self.points.partition_point(|(point, _)| *point <= ratio);
        let next = next.clamp(1, self.points.len() - 1);
        let ((low, low_ns), (high, high_ns)) = (self.points[next - 1], self.points[next]);
        let share = ((ratio - low) / (high - low)).clamp(0.0, 1.0);
        low_ns + ((high_ns - low_ns) as f64 * share).round() as u64
    }

    /// Draws a random span.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        self.at(rng.f64())
    }

    /// Returns the mean.
    pub fn mean_ns(&self) -> f64 {
        let of_pair = |p: &[(f64, u64)]| (p[1].0 - p[0].0) * (p[0].1 + p[1].1) as f64 / 2.0;
        self.points.windows(2).map(of_pair).sum()
    }

    /// Shifts all spans by the same amount, but not below 0.
    #[must_use]
    pub fn shifted(&self, by_ns: i64) -> Self {
        let points = self.points.iter();
        Quantiles { points: points.map(|(r, ns)| (*r, ns.saturating_add_signed(by_ns))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_uniform_between_points() {
        let quantiles = Quantiles::new(&[(0.0, 100), (0.5, 200), (1.0, 1_000)]).unwrap();
        assert_eq!(
            [0.0, 0.25, 0.5, 0.75, 1.0].map(|r| quantiles.at(r)),
            [100, 150, 200, 600, 1_000]
        );
        assert_eq!(quantiles.mean_ns(), 75.0 + 300.0);
        assert!(Quantiles::new(&[(0.0, 5), (1.0, 4)]).is_none());
    }
}
