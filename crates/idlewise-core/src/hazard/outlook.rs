//! What follows from a belief: the probability of lasting so long, and the mean time until then.

use super::belief::{ALL, PRIOR, SHARE_SHIFT, share};
use super::bins::{
    BIN_COUNT, FIRST_BIN_SHIFT, LANE_COUNT, TAIL_NS, WORD_COUNT, bin_of, bin_start_ns,
    bin_width_shift,
};

/// The mass at the beginning of a gap.
pub(super) const MASS_SHIFT: u32 = 31;

/// What follows from a belief: the probability of lasting until the end of each word ("mass"), and the mean time
/// until then. Both carry the factor 2^[`MASS_SHIFT`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    pub(super) masses: [u32; WORD_COUNT],
    pub(super) times: [u64; WORD_COUNT],
}

/// The mean time that a gap which reaches this word spends in it, with [`SHARE_SHIFT`] fractional bits, in half
/// widths of the second bin. The widths are 1, 2, 2, 4 (4, 2, 2, 4 in the first word), and gaps end evenly
/// within a bin.
#[inline(always)]
pub(super) const fn time_in_word(word: u64, index: usize) -> u64 {
    let (first, second) = (share(word, 0), share(word, 1));
    let (third, last) = (share(word, 2), share(word, 3));
    let time = ALL + 3 * first + 4 * second + 6 * third + 4 * last;
    if index == 0 { time + 3 * (ALL + first) } else { time }
}

impl Outlook {
    pub(super) const PRIOR: Outlook = Outlook::of(&[PRIOR; WORD_COUNT]);

    /// Walks over the words.
    #[inline(always)]
    pub(super) const fn of(words: &[u64; WORD_COUNT]) -> Self {
        let mut outlook = Outlook { masses: [0; WORD_COUNT], times: [0; WORD_COUNT] };
        let (mut mass, mut time) = (1 << MASS_SHIFT, 0);
        let mut index = 0;
        while index < WORD_COUNT {
            let word = words[index];
            let half_width_shift = FIRST_BIN_SHIFT - 3 + 2 * index as u32;
            time += ((mass * time_in_word(word, index)) >> SHARE_SHIFT) << half_width_shift;
            mass = (mass * share(word, LANE_COUNT - 1)) >> SHARE_SHIFT;
            outlook.masses[index] = mass as u32;
            outlook.times[index] = time;
            index += 1;
        }
        outlook
    }

    /// Mass and time after some words.
    #[inline(always)]
    pub(super) fn after(&self, words: usize) -> (u64, u64) {
        match words {
            0 => (1 << MASS_SHIFT, 0),
            _ => (u64::from(self.masses[words - 1]), self.times[words - 1]),
        }
    }

    /// Mass and time at a time after the beginning of the gap.
    #[inline(always)]
    pub(super) fn at(&self, words: &[u64; WORD_COUNT], ns: u64) -> (u64, u64) {
        let bin = bin_of(ns);
        let (index, lane) = (bin / LANE_COUNT, bin % LANE_COUNT);
        let (start_mass, start_time) = self.after(index);
        if bin >= BIN_COUNT {
            let beyond_ns = (ns - bin_start_ns(BIN_COUNT)).min(TAIL_NS);
            return (start_mass, start_time + start_mass * beyond_ns);
        }
        let word = words[index];
        let after = [0, 1, 2, 3].map(|lane| (start_mass * share(word, lane)) >> SHARE_SHIFT);
        // All lanes, because a loop up to the right one would be mispredicted more often than not.
        let width_shift = bin_width_shift(bin - lane);
        let first = ((start_mass + after[0]) / 2) << width_shift;
        let later_shift = FIRST_BIN_SHIFT - 1 + 2 * index as u32;
        let second = first + (((after[0] + after[1]) / 2) << later_shift);
        let third = second + (((after[1] + after[2]) / 2) << later_shift);
        let mass = [start_mass, after[0], after[1], after[2]][lane];
        let time = start_time + [0, first, second, third][lane];
        let into_ns = ns - bin_start_ns(bin);
        let part = (into_ns << 10) >> bin_width_shift(bin);
        let mass_then = mass - ((mass - after[lane]) >> 10) * part;
        (mass_then, time + (mass + mass_then) / 2 * into_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::belief::Belief;
    use super::*;

    /// The sums over whole words are those of the bins, one by one.
    #[test]
    fn an_outlook_adds_up_its_bins() {
        let mut belief = Belief::NEW;
        for turn in 0..500_u64 {
            belief.learn(turn * turn * 91, true);
        }
        let words = &belief.words;
        let outlook = Outlook::of(words);
        let (mut before, mut time) = (1_u64 << MASS_SHIFT, 0);
        for bin in 0..BIN_COUNT {
            let (index, lane) = (bin / LANE_COUNT, bin % LANE_COUNT);
            let after = (outlook.after(index).0 * share(words[index], lane)) >> SHARE_SHIFT;
            time += (before + after) / 2 * (bin_start_ns(bin + 1) - bin_start_ns(bin));
            before = after;
            let (mass, at) = outlook.at(words, bin_start_ns(bin + 1));
            assert_eq!(mass, after);
            assert!(at.abs_diff(time) <= time >> 14, "{bin}: {at} {time}");
        }
    }
}
