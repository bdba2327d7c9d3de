//! Bins of lengths: two per doubling from 512 ns to 25 ms.

pub(super) const WORD_COUNT: usize = 8;
pub(super) const LANE_COUNT: usize = 4;
pub(super) const BIN_COUNT: usize = WORD_COUNT * LANE_COUNT;
/// The upper end of the first bin is 2 to this, in nanoseconds.
pub(super) const FIRST_BIN_SHIFT: u32 = 9;
/// The longest time beyond the last bin, in nanoseconds.
pub(super) const TAIL_NS: u64 = 1 << 26;

/// The bin of a length; [`BIN_COUNT`] is beyond the last.
#[inline(always)]
pub(super) fn bin_of(ns: u64) -> usize {
    let octave = (ns | (1 << (FIRST_BIN_SHIFT - 1))).ilog2();
    let half = (ns >> (octave - 1)) & 1;
    // Below the first bin's end the octave is 8, and the half does not count.
    let bin = (2 * octave + half as u32).saturating_sub(2 * FIRST_BIN_SHIFT - 1);
    (bin as usize).min(BIN_COUNT)
}

/// The logarithm to base 2 of a bin's width.
#[inline(always)]
pub(super) const fn bin_width_shift(bin: usize) -> u32 {
    match bin {
        0 => FIRST_BIN_SHIFT,
        _ => FIRST_BIN_SHIFT - 1 + (bin as u32 - 1) / 2,
    }
}

/// The shortest length in a bin.
#[inline(always)]
pub(super) const fn bin_start_ns(bin: usize) -> u64 {
    match bin {
        0 => 0,
        _ => (2 + ((bin as u64 - 1) & 1)) << (FIRST_BIN_SHIFT as usize - 1 + (bin - 1) / 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_two_per_doubling() {
        assert_eq!(bin_of(0), 0);
        for bin in 1..=BIN_COUNT {
            let start_ns = bin_start_ns(bin);
            assert_eq!((bin_of(start_ns - 1), bin_of(start_ns)), (bin - 1, bin));
            assert_eq!(bin_start_ns(bin) - bin_start_ns(bin - 1), 1 << bin_width_shift(bin - 1));
        }
        assert_eq!([bin_start_ns(1), bin_start_ns(2), bin_start_ns(3)], [512, 768, 1_024]);
        assert_eq!(bin_of(u64::MAX), BIN_COUNT);
    }
}
