//! Where regret is: sums by gap length, chosen state and right state.

use idlewise_core::StateIndex;

/// Bins of gap lengths in a factor of two.
const BINS_PER_OCTAVE: u32 = 4;

/// Returns the least gap length of a bin: 2^(bin/4), rounded up. Bin 0 also has gaps of length 0.
pub const fn bin_edge_ns(bin: usize) -> u64 {
    let octave = bin as u32 / BINS_PER_OCTAVE;
    let part = bin as u32 % BINS_PER_OCTAVE;
    // 2^(1/4), 2^(2/4), 2^(3/4) in units of 2^-62: no platform's `powf` decides.
    const PARTS: [u128; BINS_PER_OCTAVE as usize] =
        [1 << 62, 5_484_249_825_272_419_512, 6_521_908_912_666_391_107, 7_755_900_482_342_532_475];
    let scaled = PARTS[part as usize] << octave;
    scaled.div_ceil(1 << 62) as u64
}

/// Returns the bin of a gap: the last one whose edge it reaches.
#[inline]
pub fn bin_of(gap_ns: u64) -> usize {
    let gap_ns = gap_ns.max(1);
    let first = (gap_ns.ilog2() * BINS_PER_OCTAVE) as usize;
    let later = 1..BINS_PER_OCTAVE as usize;
    first + later.rev().find(|part| EDGES_NS[first + part] <= gap_ns).unwrap_or(0)
}

const BIN_COUNT: usize = 64 * BINS_PER_OCTAVE as usize;

static EDGES_NS: [u64; BIN_COUNT] = {
    let mut edges_ns = [0; BIN_COUNT];
    let mut bin = 0;
    while bin < BIN_COUNT {
        edges_ns[bin] = bin_edge_ns(bin);
        bin += 1;
    }
    edges_ns
};

/// The gaps of one length, choice and right choice.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RegretCell {
    /// The bin of the gaps' lengths.
    pub bin: usize,
    /// The governor's first choice.
    pub chosen: StateIndex,
    /// The oracle's.
    pub right: StateIndex,
    /// How many gaps.
    pub count: u64,
    /// What they cost above the oracle's cost. Where ticks woke a CPU just in time it can be negative.
    pub regret_uj: f64,
}

/// Sums of regret. Memory depends on the longest gap, not on how many there are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegretTally {
    state_count: usize,
    /// Count and regret by bin, then chosen, then right state.
    cells: Vec<(u64, f64)>,
}

impl RegretTally {
    /// Makes an empty tally for a table of so many states.
    pub fn new(state_count: usize) -> Self {
        RegretTally { state_count, cells: Vec::new() }
    }

    /// Adds a gap.
    #[inline]
    pub fn add(&mut self, bin: usize, chosen: StateIndex, right: StateIndex, regret_uj: f64) {
        let cell = self.cell(bin, chosen, right);
        cell.0 += 1;
        cell.1 += regret_uj;
    }

    #[inline]
    fn cell(&mut self, bin: usize, chosen: StateIndex, right: StateIndex) -> &mut (u64, f64) {
        let index = (bin * self.state_count + chosen) * self.state_count + right;
        if index >= self.cells.len() {
            self.cells.resize((bin + 1) * self.state_count * self.state_count, (0, 0.0));
        }
        &mut self.cells[index]
    }

    /// Adds the cells of another tally of the same states.
    pub fn merge(&mut self, cells: impl IntoIterator<Item = RegretCell>) {
        for RegretCell { bin, chosen, right, count, regret_uj } in cells {
            let mine = self.cell(bin, chosen, right);
            mine.0 += count;
            mine.1 += regret_uj;
        }
    }

    /// Returns the cells with gaps, shortest gaps first.
    pub fn cells(&self) -> impl Iterator<Item = RegretCell> {
        let count = self.state_count.max(1);
        let cells = self.cells.iter().enumerate().filter(|(_, cell)| cell.0 > 0);
        cells.map(move |(index, &(gap_count, regret_uj))| RegretCell {
            bin: index / count / count,
            chosen: index / count % count,
            right: index % count,
            count: gap_count,
            regret_uj,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_in_the_bin_between_two_edges() {
        for bin in 0..BIN_COUNT {
            let exact = 2_f64.powf(bin as f64 / 4.0);
            let edge_ns = bin_edge_ns(bin) as f64;
            assert!(edge_ns >= exact * (1.0 - 1e-12) && edge_ns < exact + 1.0 + exact * 1e-12);
        }
        let mut lengths: Vec<u64> = (0..300).collect();
        lengths.extend((0..BIN_COUNT).flat_map(|bin| [bin_edge_ns(bin) - 1, bin_edge_ns(bin)]));
        lengths.push(u64::MAX);
        for gap_ns in lengths {
            let naive = (0..BIN_COUNT).rev().find(|&bin| bin_edge_ns(bin) <= gap_ns).unwrap_or(0);
            // Short gaps have several bins with the same edge.
            assert_eq!(bin_edge_ns(bin_of(gap_ns)), bin_edge_ns(naive), "{gap_ns}");
        }
    }

    #[test]
    fn merged_tallies_are_the_tally_of_all() {
        let gaps = [(3, 0, 1, 2.0), (40, 1, 1, 0.0), (3, 0, 1, 0.5), (7, 1, 0, -0.25)];
        let mut all = RegretTally::new(2);
        let (mut one, mut other) = (all.clone(), all.clone());
        for (index, &(bin, chosen, right, regret_uj)) in gaps.iter().enumerate() {
            all.add(bin, chosen, right, regret_uj);
            let half = if index < 2 { &mut one } else { &mut other };
            half.add(bin, chosen, right, regret_uj);
        }
        one.merge(other.cells());
        assert!(one.cells().eq(all.cells()));
        let first = RegretCell { bin: 3, chosen: 0, right: 1, count: 2, regret_uj: 2.5 };
        assert_eq!(all.cells().next(), Some(first));
        assert_eq!(all.cells().count(), 3);
    }
}
