//! When a trial is decided: a sequential test that holds whatever the noise looks like.
//!
//! **Design.** Rounds come in blocks of four, A B B A or B A A B, and a coin decides which. A block's
//! value is the mean logarithm of its B rounds less that of its A rounds. A drift that is linear in
//! time cancels within the block. What does not cancel (warming up, neighbours, periodic work,
//! noise that remembers) would have had the same size in the other order, with the other sign. So
//! if the setting makes no difference, each block's value is as likely to be +x as −x,
//! independently of all others: the coin was ours. No assumption about the noise is needed.
//!
//! **Test.** The statistic is Wilcoxon's signed rank sum (1945) of the block values; one bad round
//! moves it by no more than its rank. It is compared with the sums under every other outcome of the
//! coins: all 2ⁿ of them up to [`EXACT_BLOCK_COUNT`] blocks, and beyond that a sample, of which the real
//! outcome is a member (Fisher 1935; Dwass 1957). The sample is drawn by the trial's seed, as the coins are, so no
//! fixed sample favours some outcome in every trial.
//!
//! **Looking again and again.** A test at 5 % that is repeated after each block errs in more than
//! 5 % of the trials. Here each look may spend only a part of the error (Lan and DeMets 1983, with
//! the spending function that is close to Pocock's boundaries): after block n, the coin outcomes that
//! have been rejected at this look or an earlier one are at most α·ln(1 + (e − 1)·n/N) of all, N
//! being the greatest number of blocks. An outcome that was rejected stays so, and its share is
//! never spent again. All outcomes are treated alike, so the real one is rejected at some look in
//! at most α of the trials. Stopping early for any other reason (no time, ctrl-c) rejects nothing and is harmless.
//!
//! **Difference and equivalence.** To ask whether B is x times A, ln x is subtracted from all block values
//! first. B differs if the ratio 1 is rejected. It differs by X or more if 1 + X is rejected from above, or
//! 1 / (1 + X) from below. It differs by less than X if both are
//! rejected, each from the other side (two one-sided tests; Schuirmann 1987). The
//! ratios that are not rejected from either side, at any look, are an interval that stays valid although the trial stopped
//! when it was decided (repeated confidence interval; Jennison and Turnbull 1989).

use crate::statistics::{RUN_COUNT_MIN, median};
use idlewise_core::words;

/// Rounds in a block.
pub const BLOCK_ROUND_COUNT: usize = 4;

/// Up to here all outcomes of the coins are compared.
const EXACT_BLOCK_COUNT: usize = 12;

/// From this number of blocks on the trial may be decided. Then there are also enough for a bootstrap interval.
const LOOK_BLOCK_MIN: usize = RUN_COUNT_MIN;

/// How much error a test may make, and how many blocks there are at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The chance that a trial finds a difference where there is none. Also the chance that its interval misses
    /// the ratio.
    pub error_ratio: f64,
    /// The greatest number of blocks.
    pub block_count_max: usize,
}

impl Budget {
    /// Whether any result could decide the trial.
    pub fn can_decide(self) -> bool {
        (LOOK_BLOCK_MIN..=self.block_count_max)
            .any(|count| self.spent(count) * 2_f64.powi(count as i32) >= 1.0)
    }

    /// The fewest blocks with which a trial could be decided at this error.
    pub fn block_count_needed(error_ratio: f64) -> usize {
        let is_enough =
            |count: &usize| Budget { error_ratio, block_count_max: *count }.can_decide();
        (LOOK_BLOCK_MIN..64).find(is_enough).unwrap_or(64)
    }

    /// The error on one side that may have been spent after this many blocks.
    fn spent(self, block_count: usize) -> f64 {
        let share = block_count as f64 / self.block_count_max.max(1) as f64;
        let share = (1.0 + (std::f64::consts::E - 1.0) * share.min(1.0)).ln();
        self.error_ratio / 2.0 * share
    }
}

/// On which side of a ratio B is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

/// A test whether the logarithm of the ratio lies on one side of a bound. It is asked after each block.
#[derive(Clone, Debug)]
struct SidedTest {
    budget: Budget,
    side: Side,
    bound: f64,
    /// Draws the outcomes beyond the exact ones.
    seed: u64,
    /// For each outcome of the coins, whether it was rejected at a look. Bit k of the place says
    /// that block k's coin fell the other way; place 0 is the real outcome.
    rejected: Vec<bool>,
}

impl SidedTest {
    fn new(budget: Budget, side: Side, bound: f64, seed: u64) -> Self {
        SidedTest { budget, side, bound, seed, rejected: vec![false] }
    }

    fn has_rejected(&self) -> bool {
        self.rejected[0]
    }

    /// Looks at the blocks so far. The test must have seen all but the last of them.
    fn look(&mut self, blocks: &[f64]) {
        if blocks.len() <= EXACT_BLOCK_COUNT {
            // An outcome's two continuations inherit what happened to it.
            self.rejected.extend_from_within(..);
        }
        if blocks.len() < LOOK_BLOCK_MIN {
            return;
        }
        let sign = if self.side == Side::Above { 1.0 } else { -1.0 };
        let values: Vec<f64> = blocks.iter().map(|block| sign * (block - self.bound)).collect();
        let sums = sums(&signed_ranks(&values), self.rejected.len(), self.seed);
        let rejected_count = self.rejected.iter().filter(|rejected| **rejected).count();
        let allowed = self.budget.spent(blocks.len()) * self.rejected.len() as f64;
        let left = (allowed as usize).saturating_sub(rejected_count);
        let Some(least) = least_of_greatest(&sums, &self.rejected, left) else { return };
        for (rejected, sum) in self.rejected.iter_mut().zip(&sums) {
            *rejected |= *sum >= least;
        }
    }

    /// Whether the test rejects the bound at one of the looks.
    fn rejects(mut self, blocks: &[f64]) -> bool {
        (1..=blocks.len()).any(|count| {
            self.look(&blocks[..count]);
            self.has_rejected()
        })
    }
}

/// The ranks of the values' sizes, doubled so that tied ones are whole numbers, each with its value's sign.
fn signed_ranks(values: &[f64]) -> Vec<i32> {
    let rank = |value: &f64| {
        let size = value.abs();
        let smaller = values.iter().filter(|other| other.abs() < size).count();
        let alike = values.iter().filter(|other| other.abs() == size).count();
        // The mean of the ranks smaller + 1 to smaller + alike.
        let doubled = (2 * smaller + alike + 1) as i32;
        if *value == 0.0 { 0 } else { doubled * value.signum() as i32 }
    };
    values.iter().map(rank).collect()
}

/// The sum under each outcome of the coins.
fn sums(ranks: &[i32], outcome_count: usize, seed: u64) -> Vec<i32> {
    let mut sums = vec![0];
    let (exact, drawn) = ranks.split_at(ranks.len().min(EXACT_BLOCK_COUNT));
    for rank in exact {
        let flipped: Vec<i32> = sums.iter().map(|sum| sum - rank).collect();
        sums.iter_mut().for_each(|sum| *sum += rank);
        sums.extend(flipped);
    }
    debug_assert_eq!(sums.len(), outcome_count);
    for (outcome, sum) in sums.iter_mut().enumerate() {
        for (place, rank) in drawn.iter().enumerate() {
            let is_flipped = outcome != 0 && drawn_bit(seed, outcome as u64, place as u64);
            *sum += if is_flipped { -rank } else { *rank };
        }
    }
    sums
}

/// The coin of a block beyond the exact ones in an outcome: a bit that is as good as random. It has nothing to do
/// with the coins that the same seed tosses for the rounds.
fn drawn_bit(seed: u64, outcome: u64, place: u64) -> bool {
    splitmix(splitmix(!seed) ^ (outcome << 32 | place)) & 1 != 0
}

/// The finalizer of splitmix64 (Steele, Lea and Flood 2014).
pub(super) fn splitmix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The least sum such that at most `count` outcomes which are not yet rejected reach it.
fn least_of_greatest(sums: &[i32], rejected: &[bool], count: usize) -> Option<i32> {
    let greatest = sums.iter().copied().max()?;
    let place = |sum: i32| (greatest - sum) as usize;
    let mut outcome_counts = vec![0_usize; place(sums.iter().copied().min()?) + 1];
    for (sum, _) in sums.iter().zip(rejected).filter(|(_, rejected)| !**rejected) {
        outcome_counts[place(*sum)] += 1;
    }
    // Equal sums are rejected together or not at all.
    let (mut reached, mut least) = (0, None);
    for (place, outcome_count) in outcome_counts.into_iter().enumerate() {
        reached += outcome_count;
        if reached > count {
            break;
        }
        if outcome_count > 0 {
            least = Some(greatest - place as i32);
        }
    }
    least
}

words! {
    name;
    /// What a trial has shown.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Verdict {
        /// B differs from A, and the estimate is what the user asked for or more. [`Sequential::is_least_shown`]
        /// tells whether the difference itself is.
        Different = "different",
        /// B differs from A by less than that.
        NoDifference = "no_difference",
        /// Neither has been shown.
        Undecided = "undecided",
    }
}

/// The tests of a trial, which are asked after each block.
#[derive(Clone, Debug)]
pub struct Sequential {
    budget: Budget,
    least: f64,
    seed: u64,
    blocks: Vec<f64>,
    above_one: SidedTest,
    below_one: SidedTest,
    above_least: SidedTest,
    below_least: SidedTest,
    beyond_above: SidedTest,
    beyond_below: SidedTest,
}

impl Sequential {
    /// Begins a trial. `least_ratio` is the smallest difference that matters, such as 0.01. `seed` draws the
    /// outcomes that the real one is compared with beyond the exact blocks.
    pub fn new(budget: Budget, least_ratio: f64, seed: u64) -> Self {
        let least = least_ratio.ln_1p();
        let test = |side, bound| SidedTest::new(budget, side, bound, seed);
        Sequential {
            budget,
            least,
            seed,
            blocks: Vec::new(),
            above_one: test(Side::Above, 0.0),
            below_one: test(Side::Below, 0.0),
            above_least: test(Side::Above, -least),
            below_least: test(Side::Below, least),
            beyond_above: test(Side::Above, least),
            beyond_below: test(Side::Below, -least),
        }
    }

    /// Adds a block's value: the mean logarithm of its B rounds less that of its A rounds.
    pub fn add(&mut self, value: f64) {
        self.blocks.push(value);
        let tests = [
            &mut self.above_one,
            &mut self.below_one,
            &mut self.above_least,
            &mut self.below_least,
            &mut self.beyond_above,
            &mut self.beyond_below,
        ];
        for test in tests {
            test.look(&self.blocks);
        }
    }

    /// Returns how many blocks were added.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The blocks' values.
    pub(super) fn blocks(&self) -> &[f64] {
        &self.blocks
    }

    /// Returns what has been shown so far.
    pub fn verdict(&self) -> Verdict {
        if self.above_least.has_rejected() && self.below_least.has_rejected() {
            return Verdict::NoDifference;
        }
        let is_different = |estimate: f64| {
            self.above_one.has_rejected() && estimate >= self.least
                || self.below_one.has_rejected() && estimate <= -self.least
        };
        match self.estimate().is_some_and(is_different) {
            true => Verdict::Different,
            false => Verdict::Undecided,
        }
    }

    /// Returns whether every difference below the least that matters has been rejected.
    pub fn is_least_shown(&self) -> bool {
        self.beyond_above.has_rejected() || self.beyond_below.has_rejected()
    }

    /// Returns whether a ratio of 1 has been rejected, however small the difference is.
    pub fn is_one_rejected(&self) -> bool {
        self.above_one.has_rejected() || self.below_one.has_rejected()
    }

    /// The median of the means of all pairs of block values, each also with itself: what Wilcoxon's
    /// test considers the most plausible shift (Hodges and Lehmann 1963).
    fn estimate(&self) -> Option<f64> {
        let blocks = &self.blocks;
        let pairs = blocks.iter().enumerate();
        let means =
            pairs.flat_map(|(place, one)| blocks[place..].iter().map(|other| one.midpoint(*other)));
        median(means)
    }

    /// Returns the ratio B / A that fits the blocks best; `None` without blocks.
    pub fn ratio(&self) -> Option<f64> {
        self.estimate().map(f64::exp)
    }

    /// Returns the ratios that no look has rejected; `None` with too few blocks for an interval.
    pub fn interval(&self) -> Option<[f64; 2]> {
        let estimate = self.estimate()?;
        let spread = self.blocks.iter().map(|block| (block - estimate).abs()).fold(0.0, f64::max);
        // Beyond the outermost block value every sign is the same, and nothing changes any more.
        let reach = 2.0 * spread + 1e-12;
        let end = |side: Side| {
            let direction = if side == Side::Above { -1.0 } else { 1.0 };
            let is_rejected = |distance: f64| {
                let bound = estimate + direction * distance;
                SidedTest::new(self.budget, side, bound, self.seed).rejects(&self.blocks)
            };
            if !is_rejected(reach) {
                return None;
            }
            let (mut kept, mut gone) = (0.0, reach);
            for _ in 0..30 {
                let middle = f64::midpoint(kept, gone);
                if is_rejected(middle) { gone = middle } else { kept = middle }
            }
            Some((estimate + direction * gone).exp())
        };
        Some([end(Side::Above)?, end(Side::Below)?])
    }
}
