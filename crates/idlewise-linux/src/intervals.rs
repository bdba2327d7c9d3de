//! The last eight stays in microseconds, and whether they have a typical length.
//!
//! Interrupts that a device spaces evenly, or batches, appear as stays of nearly the same length, without a
//! timer that announces them. So menu takes the mean of the last eight stays, and checks whether they are
//! close to it: their standard deviation must be at most 20 µs, or less than a sixth of the mean. If not,
//! it drops some as exceptions, as long as six remain: the longest in 6.1 and 6.12, the longest or the
//! shortest in 7.2, whichever are farther from the mean.
//!
//! For each try, the older kernels walk the eight stays once for the mean and again for the variance. Here
//! the sum and the sum of squares are updated as each stay enters and leaves. The identity
//!
//! ```text
//! Σ(v - m)² = Σv² - 2·m·Σv + n·m²        with m = ⌊Σv / n⌋, as the kernel has it
//! ```
//!
//! holds for the rounded mean too. Σv² may exceed 64 bits, but the left side never does (at most 2^63 for
//! eight values below 2^31), so wrapping arithmetic is exact. Neither comparison needs the variance ⌊V/n⌋
//! itself: ⌊V/n⌋ < c means V < n·c. Only dropping the longest reads the values. They are kept as signed
//! numbers. A value with bit 31 set is longer than any stay that counts (the kernel's first limit is
//! `INT_MAX`). As a negative number it is never the maximum, and needs no check. `tests` has a naive twin.
//!
//! Usually there is no typical length, and each try would show that. So if the first try fails, the two
//! possible next ones are checked together: without the longest stay, and also without the second longest.
//! They are tried one by one only if one might succeed, or if several equal stays would be dropped.
//!
//! 7.2 uses ⌊Σv² / n⌋ - m², with squares that wrap, and counts all lengths except `UINT_MAX`. It walks the
//! eight stays once per try, and so does the port.

/// The number of stays that are remembered.
pub(crate) const INTERVAL_COUNT: usize = 8;
/// At least this many must remain when the longest are dropped: three quarters of all.
const KEPT_COUNT_MIN: u64 = 6;
/// A deviation of 20 µs is steady whatever the mean. Squared, plus one for a strict comparison.
const STEADY_VARIANCE_END_US2: u64 = 20 * 20 + 1;
/// The mean must exceed six standard deviations. Squared.
const MEAN_TO_DEVIATION_SQUARED: u64 = 6 * 6;

/// Eight squares of shorter stays, times eight, fit in 64 bits.
const EXACT_END_US: u64 = 1 << 29;

/// A release's rule for finding a typical length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypicalRule {
    /// 6.1 and 6.12: drop the longest. Stays of 0 µs make a length only if `zero_counts`.
    LongestDropped { zero_counts: bool },
    /// 7.2: drop those farthest from the mean, and the longest in a draw.
    FarthestDropped,
}

/// The stays that still count: their number, sum, and sum of squares (modulo 2^64).
#[derive(Clone, Copy, Debug)]
struct Sample {
    count: u64,
    sum_us: u64,
    square_sum_us2: u64,
}

impl Sample {
    #[inline]
    fn add(&mut self, interval_us: i32) {
        // 1 if it counts. If it is negative, this and the value are 0.
        let copies = u64::from(interval_us >= 0);
        let value_us = interval_us.max(0) as u64;
        self.count += copies;
        self.sum_us += value_us;
        self.square_sum_us2 = self.square_sum_us2.wrapping_add(value_us * value_us);
    }

    #[inline]
    fn remove(&mut self, interval_us: i32) {
        let value_us = interval_us.max(0) as u64;
        self.count -= u64::from(interval_us >= 0);
        self.sum_us -= value_us;
        self.square_sum_us2 = self.square_sum_us2.wrapping_sub(value_us * value_us);
    }

    /// The sample without the longest stays.
    #[inline]
    fn without(self, Longest { interval_us, copies }: Longest) -> Self {
        let (value_us, copies) = (interval_us as u64, copies as u64);
        let square_us2 = value_us * value_us;
        Sample {
            count: self.count - copies,
            sum_us: self.sum_us - value_us * copies,
            square_sum_us2: self.square_sum_us2.wrapping_sub(square_us2.wrapping_mul(copies)),
        }
    }

    /// ⌊sum / count⌋ by a reciprocal. It is exact because the sum is below 2^35 and a reciprocal exceeds
    /// 2^63 / count by less than 1.
    #[inline]
    fn mean_us(&self) -> u64 {
        const fn reciprocals() -> [u64; INTERVAL_COUNT + 1] {
            let mut table = [0; INTERVAL_COUNT + 1];
            let mut count = 1;
            while count <= INTERVAL_COUNT {
                table[count] = (1_u64 << 63).div_ceil(count as u64);
                count += 1;
            }
            table
        }
        const RECIPROCALS: [u64; INTERVAL_COUNT + 1] = reciprocals();
        let reciprocal = RECIPROCALS.get(self.count as usize).copied().unwrap_or(0);
        ((u128::from(self.sum_us) * u128::from(reciprocal)) >> 63) as u64
    }

    /// Whether it is certain that neither the sample without `longest_us` nor that without `second_us` too
    /// is steady. Returns `false` if 64 bits are not enough to tell. Only for a sample of all eight.
    #[inline]
    fn is_hopeless_without(&self, longest_us: i32, second_us: i32) -> bool {
        let (longest_us, second_us) = (longest_us as u64, second_us as u64);
        let (sum_us, square_sum_us2) = (
            self.sum_us - longest_us,
            self.square_sum_us2.wrapping_sub(longest_us.wrapping_mul(longest_us)),
        );
        let seven = is_unsteady::<7>(sum_us, square_sum_us2);
        let six = is_unsteady::<6>(
            sum_us - second_us,
            square_sum_us2.wrapping_sub(second_us.wrapping_mul(second_us)),
        );
        (longest_us < EXACT_END_US) & seven & six
    }

    /// The mean, if the sample is steady.
    #[inline]
    fn steady_mean_us(&self) -> Option<u32> {
        let mean_us = self.mean_us();
        let deviation_us2 = self
            .square_sum_us2
            .wrapping_sub((2 * mean_us).wrapping_mul(self.sum_us))
            .wrapping_add((self.count * mean_us).wrapping_mul(mean_us));
        // A few stays out of eight prove nothing about proportions. `⌊V/n⌋ < m²/36` in integers; for a mean
        // of 0 the result is below the other limit.
        let relative_end_us2 = if self.count >= KEPT_COUNT_MIN {
            (mean_us * mean_us).saturating_sub(1) / MEAN_TO_DEVIATION_SQUARED + 1
        } else {
            0
        };
        let variance_end_us2 = relative_end_us2.max(STEADY_VARIANCE_END_US2);
        (deviation_us2 < self.count * variance_end_us2).then_some(mean_us as u32)
    }
}

/// Whether `COUNT` stays with this sum and sum of squares are certainly not steady. n·Σv² - (Σv)² is n²
/// times the variance about the true mean; the variance about the rounded mean is not smaller. A 32nd of
/// the squared mean instead of a 36th allows for the rounding. So there is no division, and `true` is
/// always right. The arithmetic is exact if each stay is below 2^29 µs.
#[inline]
fn is_unsteady<const COUNT: u64>(sum_us: u64, square_sum_us2: u64) -> bool {
    let sum_squared_us2 = sum_us.wrapping_mul(sum_us);
    let deviation_us2 = COUNT.wrapping_mul(square_sum_us2).wrapping_sub(sum_squared_us2);
    let steady_end_us2 = COUNT * COUNT * (STEADY_VARIANCE_END_US2 + 1);
    (deviation_us2 >= steady_end_us2) & (deviation_us2 >= sum_squared_us2 / 32)
}

/// The longest stay of a sample, and how often it occurs.
#[derive(Clone, Copy)]
struct Longest {
    interval_us: i32,
    copies: i32,
}

/// A ring of the last eight stays. All are 0 at first, as in zeroed kernel memory.
#[derive(Clone, Debug)]
pub(crate) struct RecentIntervals {
    /// Negative values are too long to count.
    intervals_us: [i32; INTERVAL_COUNT],
    next: u8,
    sample: Sample,
}

impl RecentIntervals {
    pub(crate) const fn new() -> Self {
        let sample = Sample { count: INTERVAL_COUNT as u64, sum_us: 0, square_sum_us2: 0 };
        RecentIntervals { intervals_us: [0; INTERVAL_COUNT], next: 0, sample }
    }

    /// Adds a stay and drops the oldest.
    #[inline]
    pub(crate) fn push(&mut self, interval_us: u32) {
        let slot = &mut self.intervals_us[usize::from(self.next) % INTERVAL_COUNT];
        self.sample.remove(*slot);
        *slot = interval_us as i32;
        self.sample.add(*slot);
        self.next = (self.next + 1) % INTERVAL_COUNT as u8;
    }

    /// All stays. The other fields follow from their order.
    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = u32> {
        let (newer, older) = self.intervals_us.split_at(usize::from(self.next) % INTERVAL_COUNT);
        older.iter().chain(newer).map(|us| *us as u32)
    }

    /// The typical length of the stays, if there is one.
    #[inline]
    pub(crate) fn typical_us(&self, rule: TypicalRule) -> Option<u32> {
        match rule {
            TypicalRule::LongestDropped { zero_counts } => self.without_longest_us(zero_counts),
            TypicalRule::FarthestDropped => self.without_farthest_us(),
        }
    }

    #[inline]
    fn without_longest_us(&self, zero_counts: bool) -> Option<u32> {
        let all = &self.sample;
        if all.count == INTERVAL_COUNT as u64 {
            if let Some(mean_us) = all.steady_mean_us() {
                return (zero_counts || all.sum_us > 0).then_some(mean_us);
            }
            let [longest_us, second_us] = two_longest(&self.intervals_us);
            let copies: i32 = self.intervals_us.iter().map(|&us| i32::from(us == second_us)).sum();
            let two_are_dropped = copies == 1 + i32::from(longest_us == second_us);
            if two_are_dropped && all.is_hopeless_without(longest_us, second_us) {
                return None;
            }
        }
        self.without_longest_step_by_step_us(zero_counts)
    }

    #[inline(never)]
    fn without_longest_step_by_step_us(&self, zero_counts: bool) -> Option<u32> {
        let mut sample = self.sample;
        let mut intervals_us = self.intervals_us;
        loop {
            let is_empty = if zero_counts { sample.count == 0 } else { sample.sum_us == 0 };
            if is_empty {
                return None;
            }
            if let Some(mean_us) = sample.steady_mean_us() {
                return Some(mean_us);
            }
            if sample.count <= KEPT_COUNT_MIN {
                return None;
            }
            let longest = Longest::of(&intervals_us);
            sample = sample.without(longest);
            // Dropped stays become negative, so they are never the maximum again.
            intervals_us = intervals_us.map(|us| us | -i32::from(us == longest.interval_us));
        }
    }

    #[inline(never)]
    fn without_farthest_us(&self) -> Option<u32> {
        // Values between these count.
        let (mut low_us, mut high_us) = (-1_i64, i64::from(u32::MAX));
        loop {
            let (mut count, mut sum_us, mut square_sum_us2) = (0, 0, 0_u64);
            let (mut shortest_us, mut longest_us) = (high_us, 0);
            for interval_us in self.intervals_us.map(|us| i64::from(us as u32)) {
                if interval_us <= low_us || interval_us >= high_us {
                    continue;
                }
                let value_us = interval_us as u64;
                count += 1;
                sum_us += value_us;
                square_sum_us2 = square_sum_us2.wrapping_add(value_us.wrapping_mul(value_us));
                shortest_us = shortest_us.min(interval_us);
                longest_us = longest_us.max(interval_us);
            }
            if longest_us == 0 {
                return None;
            }
            let mean_us = sum_us / count;
            let mean_square_us2 = mean_us * mean_us;
            let variance_us2 = (square_sum_us2 / count).wrapping_sub(mean_square_us2);
            // Squares that wrapped give an absurd variance, and so no length.
            let end_us2 = u64::MAX / MEAN_TO_DEVIATION_SQUARED;
            let is_proportionate = count >= KEPT_COUNT_MIN
                && variance_us2 <= end_us2
                && mean_square_us2 > variance_us2 * MEAN_TO_DEVIATION_SQUARED;
            if is_proportionate || variance_us2 < STEADY_VARIANCE_END_US2 {
                return Some(mean_us as u32);
            }
            if count <= KEPT_COUNT_MIN {
                return None;
            }
            let mean_us = mean_us as i64;
            if mean_us - shortest_us > longest_us - mean_us {
                low_us = shortest_us;
            } else {
                high_us = longest_us;
            }
        }
    }
}

impl Longest {
    #[inline]
    fn of(intervals_us: &[i32; INTERVAL_COUNT]) -> Self {
        // In a tournament a comparison waits for two others; in a chain it waits for six.
        let [a, b, c, d, e, f, g, h] = *intervals_us;
        let interval_us = a.max(b).max(c.max(d)).max(e.max(f).max(g.max(h)));
        let copies = intervals_us.iter().map(|&us| i32::from(us == interval_us)).sum();
        Longest { interval_us, copies }
    }
}

/// The two longest stays, the longer one first.
#[inline]
fn two_longest(intervals_us: &[i32; INTERVAL_COUNT]) -> [i32; 2] {
    let ordered = |a: i32, b: i32| [a.max(b), a.min(b)];
    let merged = |[a, b]: [i32; 2], [c, d]: [i32; 2]| [a.max(c), a.min(c).max(b.max(d))];
    let [a, b, c, d, e, f, g, h] = *intervals_us;
    let left = merged(ordered(a, b), ordered(c, d));
    merged(left, merged(ordered(e, f), ordered(g, h)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL_LIMIT_US: u32 = i32::MAX as u32;

    /// The naive twin, with two walks and two divisions per try.
    fn naive_typical_us(intervals_us: [u32; INTERVAL_COUNT], zero_counts: bool) -> Option<u32> {
        let mut limit_us = INTERVAL_LIMIT_US;
        loop {
            let kept = || intervals_us.into_iter().filter(|&us| us <= limit_us).map(u64::from);
            let count = kept().count() as u64;
            let longest_us = kept().max()?;
            if longest_us == 0 && !zero_counts {
                return None;
            }
            let mean_us = kept().sum::<u64>() / count;
            let variance_us2 = kept().map(|us| us.abs_diff(mean_us).pow(2)).sum::<u64>() / count;
            let is_proportionate = u128::from(mean_us * mean_us) > 36 * u128::from(variance_us2);
            if variance_us2 <= 400 || count >= 6 && is_proportionate {
                return Some(mean_us as u32);
            }
            if count <= 6 {
                return None;
            }
            limit_us = longest_us as u32 - 1;
        }
    }

    /// Lengths near the limits: small ones, neighbours of a few means, and the largest.
    fn interval_us(random: u64) -> u32 {
        let low = (random >> 32) as u32;
        match random % 16 {
            0 => 0,
            1 => low % 64,
            2 => 500 + low % 8,
            3 => 1_000 + low % 400,
            4 => i32::MAX as u32 - low % 3,
            5 => i32::MAX as u32 + low % 3,
            6 => u32::MAX - low % 2,
            // Six standard deviations are about one mean.
            8 => 1_000 + low % 800,
            9 => 1_000_000 + low % 800_000,
            10 => EXACT_END_US as u32 - 2 + low % 4,
            11 => EXACT_END_US as u32 / 2 + low % (EXACT_END_US as u32 / 2),
            _ => low,
        }
    }

    #[test]
    fn agrees_with_its_naive_twin() {
        let mut seed = 1_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed ^ seed >> 29
        };
        let mut recent = RecentIntervals::new();
        let mut kind = 0;
        for row in 0..200_000 {
            // A few rows of one kind in sequence, so that steady samples occur.
            kind = if row % 11 == 0 { random() } else { kind };
            let draw = random();
            let draw = if draw % 4 == 0 { draw >> 3 } else { (draw & !15) | (kind % 16) };
            recent.push(interval_us(draw));
            let intervals_us = recent.intervals_us.map(|us| us as u32);
            for zero_counts in [false, true] {
                let naive_us = naive_typical_us(intervals_us, zero_counts);
                let rule = TypicalRule::LongestDropped { zero_counts };
                assert_eq!(recent.typical_us(rule), naive_us, "{intervals_us:?}");
            }
        }
    }

    #[test]
    fn drops_two_odd_stays_but_not_three() {
        let typical_us = |odd_us, odd_count, rule| {
            let mut recent = RecentIntervals::new();
            for index in 0..INTERVAL_COUNT {
                recent.push(if index < odd_count { odd_us + index as u32 } else { 500 });
            }
            recent.typical_us(rule)
        };
        let of = |odd_us, rule| (typical_us(odd_us, 2, rule), typical_us(odd_us, 3, rule));
        let longest = TypicalRule::LongestDropped { zero_counts: false };
        assert_eq!(of(9_000, longest), (Some(500), None));
        assert_eq!(of(9_000, TypicalRule::FarthestDropped), (Some(500), None));
        // In 7.2 short stays may be exceptions. Before, all of the longest were dropped, and the few
        // remained.
        assert_eq!(of(100, longest), (Some(100), Some(101)));
        assert_eq!(of(100, TypicalRule::FarthestDropped), (Some(500), None));
    }

    #[test]
    fn squares_that_wrap_make_no_length_and_no_panic() {
        let mut recent = RecentIntervals::new();
        for _ in 0..INTERVAL_COUNT {
            recent.push(u32::MAX - 1);
        }
        assert_eq!(recent.typical_us(TypicalRule::FarthestDropped), None);
    }
}
