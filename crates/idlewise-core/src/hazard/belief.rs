//! What is believed: for each bin, the share of the gaps that lasts beyond it. Four bins are a word, whose lanes
//! learn together.

use super::bins::{LANE_COUNT, WORD_COUNT, bin_of};

/// A share of 1. The 16th bit of a lane stays free for sums.
pub(super) const ALL: u64 = 0x7fff;
pub(super) const SHARE_SHIFT: u32 = 15;
/// 1 in each lane.
pub(super) const LANES: u64 = 0x0001_0001_0001_0001;
/// A word without any observation: each bin loses 15 %.
pub(super) const PRIOR: u64 = 0x42d0_4e9b_5c7a_6ccb;
/// How far a word's nth observation moves it: a half, a quarter, an eighth and so on.
pub(super) const STEPS: [Step; STEADY_COUNT as usize + 1] = {
    let shifts = [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5];
    let mut steps = [Step::of(0); STEADY_COUNT as usize + 1];
    let mut count = 0;
    while count < steps.len() {
        steps[count] = Step::of(shifts[count]);
        count += 1;
    }
    steps
};
/// After so many observations the steps become no smaller.
pub(super) const STEADY_COUNT: u8 = 15;

/// Which share of the gaps lasts beyond each bin, and how often each word was reached, up to [`STEADY_COUNT`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    pub(super) words: [u64; WORD_COUNT],
    pub(super) counts: [u8; WORD_COUNT],
}

impl Belief {
    /// Without any observation.
    pub(super) const NEW: Belief = Belief { words: [PRIOR; WORD_COUNT], counts: [0; WORD_COUNT] };

    /// Whether it still takes large steps.
    #[inline(always)]
    pub(super) fn is_new(&self) -> bool {
        self.counts[0] < STEADY_COUNT
    }

    /// Learns from a gap that survived so long, and then was ended by an event or by its timer.
    #[inline(always)]
    pub(super) fn learn(&mut self, survived_ns: u64, is_event: bool) {
        let bin = bin_of(survived_ns);
        let (last_word, last_lane) = (bin / LANE_COUNT, bin % LANE_COUNT);
        let step = |count: u8| &STEPS[usize::from(count % (STEADY_COUNT + 1))];
        let next = |count: u8| count + u8::from(count < STEADY_COUNT);
        let words = self.words.iter_mut().zip(&mut self.counts);
        for (word, count) in words.take(last_word) {
            *word = step(*count).survived(*word);
            *count = next(*count);
        }
        if let (Some(word), Some(count)) =
            (self.words.get_mut(last_word), self.counts.get_mut(last_word))
        {
            let survived = lanes_below(last_lane);
            let ended = if is_event { !survived } else { 0 };
            *word = step(*count).ended(*word, survived, ended);
            *count = next(*count);
        }
    }
}

/// A lane's share.
#[inline(always)]
pub(super) const fn share(word: u64, lane: usize) -> u64 {
    (word >> (16 * (lane % LANE_COUNT))) & 0xffff
}

/// A step of 2^-`shift` in each lane. Rounded away from where a lane is, so that it arrives.
#[derive(Clone, Copy)]
pub(super) struct Step {
    shift: u32,
    round: u64,
    /// What is left of a lane after the shift.
    kept: u64,
}

impl Step {
    pub(super) const fn of(shift: u32) -> Self {
        Step { shift, round: LANES * ((1 << shift) - 1), kept: LANES * (0xffff >> shift) }
    }

    /// How far each lane moves if it is so far away.
    #[inline(always)]
    pub(super) fn part(self, far: u64) -> u64 {
        ((far + self.round) >> self.shift) & self.kept
    }

    /// Moves all lanes towards 1.
    #[inline(always)]
    pub(super) fn survived(self, word: u64) -> u64 {
        word + self.part(LANES * ALL - word)
    }

    /// Moves the lanes in `survived` towards 1 and those in `ended` towards the least share, 1 of [`ALL`]. A share of 0
    /// would hide from a gap that lasts beyond it what is known of such gaps.
    #[inline(always)]
    pub(super) fn ended(self, word: u64, survived: u64, ended: u64) -> u64 {
        word + (self.part(LANES * ALL - word) & survived) - (self.part(word - LANES) & ended)
    }
}

/// The first lanes of a word.
#[inline(always)]
pub(super) fn lanes_below(lane: usize) -> u64 {
    (1 << (16 * (lane % LANE_COUNT))) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four lanes at once do what one lane after the other would.
    #[test]
    fn a_word_learns_lane_by_lane() {
        let mut word = PRIOR;
        let mut lanes: [u64; LANE_COUNT] = [0, 1, 2, 3].map(|lane| share(PRIOR, lane));
        for turn in 0..2_000_usize {
            let (survived, shift) = (turn * 7 % 5 % LANE_COUNT, 1 + turn as u32 % 5);
            let up = lanes_below(survived);
            word = Step::of(shift).ended(word, up, !up);
            for (lane, expected) in lanes.iter_mut().enumerate() {
                let step = |far: u64| far.div_ceil(1 << shift);
                *expected = if lane < survived {
                    *expected + step(ALL - *expected)
                } else {
                    *expected - step(*expected - 1)
                };
                assert_eq!(share(word, lane), *expected);
            }
            assert!(lanes.is_sorted_by(|a, b| a >= b));
        }
    }
}
