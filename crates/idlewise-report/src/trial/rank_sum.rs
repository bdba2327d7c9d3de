//! The Mann-Whitney U test (1947), exact also with ties.

/// More values than this, and the distribution is taken to be normal.
const EXACT_COUNT_MAX: usize = 80;

/// U of `b` against `a`, and how likely a U so far from the middle is if both are draws from the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSum {
    /// How many pairs have the greater value in B; ties count half.
    pub u: f64,
    /// Two-sided.
    pub p: f64,
}

/// Tests whether values of `b` tend to be greater or less than those of `a`. `None` if one is empty.
///
/// All ways to divide the values into two such groups are counted, so the result is exact, also with
/// ties: midranks are kept as they are. Beyond 80 values the normal approximation with correction
/// for ties is used.
pub fn rank_sum(a: &[f64], b: &[f64]) -> Option<RankSum> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_unstable_by(f64::total_cmp);
    // Doubled midranks are whole numbers: the sum of the first and the last rank of equal values.
    let doubled_rank = |value: f64| {
        let first = all.partition_point(|other| *other < value) + 1;
        let last = all.partition_point(|other| *other <= value);
        first + last
    };
    let doubled_sum: usize = b.iter().map(|&value| doubled_rank(value)).sum();
    let least = b.len() * (b.len() + 1);
    let u = (doubled_sum - least) as f64 / 2.0;
    let ranks: Vec<usize> = all.iter().map(|&value| doubled_rank(value)).collect();
    let p = if all.len() <= EXACT_COUNT_MAX {
        exact_p(&ranks, b.len(), doubled_sum)
    } else {
        normal_p(&all, a.len(), b.len(), u)
    };
    Some(RankSum { u, p })
}

/// The share of all choices of `count` ranks whose sum is at least as far from the mean.
fn exact_p(ranks: &[usize], count: usize, sum: usize) -> f64 {
    let all: usize = ranks.iter().sum();
    // ways[k][s]: in how many ways k ranks add up to s, as a share that never overflows.
    let mut ways = vec![vec![0.0_f64; all + 1]; count + 1];
    ways[0][0] = 1.0;
    for (seen, &rank) in ranks.iter().enumerate() {
        for chosen in (1..=count.min(seen + 1)).rev() {
            let (less, more) = ways.split_at_mut(chosen);
            let (from, to) = (&less[chosen - 1], &mut more[0]);
            for (to, from) in to[rank..].iter_mut().zip(from) {
                *to += from;
            }
        }
    }
    let ways = &ways[count];
    let total: f64 = ways.iter().sum();
    // Compared as whole numbers: the mean is all · count / ranks.
    let distance = |sum: usize| (sum * ranks.len()).abs_diff(all * count);
    let far = distance(sum);
    let extreme: f64 = ways
        .iter()
        .enumerate()
        .filter(|(sum, _)| distance(*sum) >= far)
        .map(|(_, ways)| ways)
        .sum();
    (extreme / total).min(1.0)
}

fn normal_p(sorted: &[f64], a_count: usize, b_count: usize, u: f64) -> f64 {
    let (a, b, all) = (a_count as f64, b_count as f64, sorted.len() as f64);
    let ties: f64 = sorted
        .chunk_by(|one, other| one == other)
        .map(|tied| (tied.len() as f64).powi(3) - tied.len() as f64)
        .sum();
    let variance = a * b / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u - a * b / 2.0).abs() - 0.5).max(0.0);
    2.0 * upper_tail(distance / variance.sqrt())
}

/// The share of a normal distribution above `z` >= 0 (Abramowitz and Stegun 7.1.26; error below
/// 1e-7).
fn upper_tail(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = series.iter().rev().fold(0.0, |sum, factor| t * (factor + sum));
    (0.5 * sum * (-x * x).exp()).clamp(0.0, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(a: &[f64], b: &[f64]) -> f64 {
        rank_sum(a, b).unwrap().p
    }

    /// The table of critical values (Mann and Whitney 1947; Siegel 1956, table K): the greatest U of the
    /// smaller side at which a two-sided test at 5 % rejects.
    #[test]
    fn rejects_where_the_published_table_does() {
        for (n, m, critical) in
            [(4, 4, 0), (5, 5, 2), (6, 6, 5), (8, 8, 13), (10, 10, 23), (5, 10, 8), (20, 20, 127)]
        {
            for (u, is_rejected) in [(critical, true), (critical + 1, false)] {
                // U pairs have the greater value in B: values of B below all of A, and one moved up.
                let a: Vec<f64> = (0..n).map(|i| 1_000.0 + f64::from(i)).collect();
                let mut b: Vec<f64> = (0..m).map(f64::from).collect();
                let mut left = u;
                for value in b.iter_mut().rev() {
                    let above = left.min(n);
                    if above > 0 {
                        *value = 1_000.0 + f64::from(above) - 0.5;
                    }
                    left -= above;
                }
                let found = rank_sum(&a, &b).unwrap();
                assert_eq!(found.u, f64::from(u), "{n} {m}");
                assert_eq!(found.p <= 0.05, is_rejected, "{n} {m} U = {u}: {}", found.p);
            }
        }
    }

    #[test]
    fn small_samples_have_the_p_that_counting_gives() {
        // 2 of the 70 ways to choose 4 of 8.
        let (low, high) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        assert!((p(&low, &high) - 2.0 / 70.0).abs() < 1e-12);
        assert_eq!(p(&low, &high), p(&high, &low));
        assert_eq!(rank_sum(&low, &high).unwrap().u, 16.0);
        assert_eq!(p(&[1.0, 1.0], &[1.0, 1.0]), 1.0);
        assert_eq!(rank_sum(&[], &low), None);
    }

    /// Every division of eight values with ties, counted one by one.
    #[test]
    fn ties_are_counted_exactly() {
        let all = [1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 5.0, 6.0];
        let split = |mask: u32| {
            let of = |bit: u32| {
                (0..8).filter(move |i| mask >> i & 1 == bit).map(|i| all[i as usize]).collect()
            };
            let (a, b): (Vec<f64>, Vec<f64>) = (of(0), of(1));
            (a, b)
        };
        let masks: Vec<u32> = (0_u32..256).filter(|mask| mask.count_ones() == 3).collect();
        let u = |mask: &u32| {
            let (a, b) = split(*mask);
            let pair = |x: f64, y: f64| {
                if y > x {
                    1.0
                } else if y == x {
                    0.5
                } else {
                    0.0
                }
            };
            a.iter().flat_map(|&x| b.iter().map(move |&y| pair(x, y))).sum::<f64>()
        };
        for mask in &masks {
            let far = (u(mask) - 7.5).abs();
            let extreme = masks.iter().filter(|other| (u(other) - 7.5).abs() >= far).count();
            let (a, b) = split(*mask);
            let expected = extreme as f64 / masks.len() as f64;
            assert!((p(&a, &b) - expected).abs() < 1e-12, "{mask:b}");
            assert_eq!(rank_sum(&a, &b).unwrap().u, u(mask));
        }
    }

    #[test]
    fn the_normal_tail_is_as_in_tables() {
        for (z, expected) in [(0.0, 0.5), (1.0, 0.158_655), (1.96, 0.024_998), (3.0, 0.001_350)] {
            assert!((upper_tail(z) - expected).abs() < 1e-6, "{z}");
        }
        // At the border both ways agree.
        let a: Vec<f64> = (0..40).map(f64::from).collect();
        let b: Vec<f64> = (0..40).map(|i| f64::from(i) + 5.3).collect();
        let mut sorted: Vec<f64> = a.iter().chain(&b).copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let exact = rank_sum(&a, &b).unwrap();
        assert!((exact.p - normal_p(&sorted, 40, 40, exact.u)).abs() < 0.002, "{exact:?}");
    }
}
