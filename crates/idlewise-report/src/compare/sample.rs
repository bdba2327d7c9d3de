//! A series in a form of which statistics of drawn blocks are quickly computed.

use crate::saved::SavedSeries;
use crate::statistics::{RUN_COUNT_MIN, median};

/// A percentile has an interval only if so many values are beyond it. Resampling fewer gives the
/// same few values again and again.
const BEYOND_COUNT_MIN: u64 = 5;
/// Far more than a measurement has: values of a series times its blocks, and blocks.
const CELL_COUNT_MAX: usize = 1 << 25;
const BLOCK_COUNT_MAX: usize = 1 << 16;

pub(super) const MEDIAN: u64 = 5_000;
pub(super) const P99: u64 = 9_900;

/// What is compared: a percentile, or another statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Least,
    Hundredths(u64),
    Greatest,
    Mean,
    Median,
}

impl Rank {
    pub(super) fn name(self) -> String {
        match self {
            Rank::Least => "least".to_owned(),
            Rank::Hundredths(hundredths) => format!("{}", hundredths as f64 / 100.0),
            Rank::Greatest => "greatest".to_owned(),
            Rank::Mean => "mean".to_owned(),
            Rank::Median => "median".to_owned(),
        }
    }

    pub(super) fn is_main(self) -> bool {
        matches!(self, Rank::Hundredths(MEDIAN | P99))
    }
}

/// A series in a form of which statistics of drawn blocks are quickly computed.
pub(crate) struct Sample {
    /// All values, ascending.
    values: Vec<f64>,
    pub(crate) block_count: usize,
    /// For each value a row: how many values of each block are not greater.
    cumulated: Vec<u64>,
    /// The sum and the number of the values of each block.
    sums: Vec<(f64, u64)>,
}

impl Sample {
    pub(crate) fn new(series: &SavedSeries) -> Result<Self, String> {
        let block_count = series.blocks.len();
        let mut values: Vec<f64> =
            series.blocks.iter().flat_map(|block| &block.0).map(|(value, _)| *value).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        if values.len().saturating_mul(block_count) > CELL_COUNT_MAX
            || block_count > BLOCK_COUNT_MAX
        {
            return Err(format!(
                "{} of {} has {} values in {block_count} blocks, more than a measurement saves",
                series.figure,
                series.place,
                values.len()
            ));
        }
        let mut cumulated = vec![0; values.len() * block_count];
        for (place, block) in series.blocks.iter().enumerate() {
            let (mut next, mut count) = (0, 0);
            for (row, value) in values.iter().enumerate() {
                while let Some(&(_, more)) = block.0.get(next).filter(|(v, _)| v <= value) {
                    count += more;
                    next += 1;
                }
                cumulated[row * block_count + place] = count;
            }
        }
        let sum = |block: &crate::saved::Block| {
            let weighted = block.0.iter().map(|&(value, count)| value * count as f64);
            (weighted.sum(), block.0.iter().map(|(_, count)| count).sum())
        };
        let sums = series.blocks.iter().map(sum).collect();
        Ok(Sample { values, block_count, cumulated, sums })
    }

    /// How many values of the drawn blocks are not greater than the one of a row.
    pub(super) fn up_to(&self, row: usize, weights: &[u64]) -> u64 {
        let row = &self.cumulated[row * self.block_count..][..self.block_count];
        row.iter().zip(weights).map(|(count, weight)| count * weight).sum()
    }

    pub(super) fn count(&self, weights: &[u64]) -> u64 {
        self.sums.iter().zip(weights).map(|((_, count), weight)| count * weight).sum()
    }

    /// The value of a rank among the values of the drawn blocks; `None` if there is none, or if less
    /// than half a value is expected beyond a percentile.
    pub(crate) fn statistic(&self, rank: Rank, weights: &[u64]) -> Option<f64> {
        let count = self.count(weights);
        if count == 0 {
            return None;
        }
        let nth = match rank {
            Rank::Mean => {
                let sum = self.sums.iter().zip(weights).map(|((sum, _), w)| sum * *w as f64);
                return Some(sum.sum::<f64>() / count as f64);
            }
            Rank::Median => {
                let of_block = |((sum, count), weight): (&(f64, u64), &u64)| {
                    std::iter::repeat_n(sum / *count as f64, *weight as usize)
                };
                return median(self.sums.iter().zip(weights).flat_map(of_block));
            }
            Rank::Least => 1,
            Rank::Greatest => count,
            Rank::Hundredths(hundredths) => {
                if beyond(count, hundredths) < 5_000 {
                    return None;
                }
                let nth = (u128::from(count) * u128::from(hundredths)).div_ceil(10_000);
                (nth as u64).max(1)
            }
        };
        let (mut low, mut high) = (0, self.values.len() - 1);
        while low < high {
            let row = usize::midpoint(low, high);
            match self.up_to(row, weights) >= nth {
                true => high = row,
                false => low = row + 1,
            }
        }
        Some(self.values[low])
    }

    /// Whether this statistic is exactly the same in all blocks.
    pub(super) fn is_same_in_all(&self, rank: Rank) -> bool {
        let of_block = |block: usize| {
            let mut weights = vec![0; self.block_count];
            weights[block] = 1;
            self.statistic(rank, &weights)
        };
        let first = (self.block_count > 0).then(|| of_block(0)).flatten();
        first.is_some() && (1..self.block_count).all(|block| of_block(block) == first)
    }

    /// Whether an interval of this statistic says anything.
    pub(crate) fn has_interval(&self, rank: Rank) -> bool {
        let count = self.count(&vec![1; self.block_count]);
        self.block_count >= RUN_COUNT_MIN
            && match rank {
                Rank::Least | Rank::Greatest => false,
                Rank::Mean | Rank::Median => true,
                Rank::Hundredths(hundredths) => {
                    let before = beyond(count, 10_000 - hundredths);
                    beyond(count, hundredths).min(before) >= u128::from(BEYOND_COUNT_MIN) * 10_000
                }
            }
    }
}

/// How many values are expected beyond a percentile, times 10,000.
pub(super) fn beyond(count: u64, hundredths: u64) -> u128 {
    u128::from(count) * u128::from(10_000 - hundredths)
}
