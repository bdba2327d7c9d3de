//! The best times to move down if the lengths of gaps are known, but not which gap has which.
//!
//! A plan's cost is a sum over neighbouring states: for the next deeper state with break-even T, entered at x, a gap
//! of length g pays `min(g, x)` at the difference of powers, and T more if it gets there. So each x can be found by
//! itself, and because T rises from state to state, the best x does too. Nothing random is better when the
//! lengths are known.
//!
//! Lengths are kept in 64 classes to the octave, with their exact sums, and a plan moves only where a class ends.
//! So memory is bounded, the tally is exact, and a plan moves at most 1.6 % later than the best.

use std::collections::BTreeMap;

use idlewise_trace::IdleGap;

use super::{Descent, Stays};
use crate::replay::{Setting, Tally};

const CLASS_BITS: u32 = 6;

/// The lengths of gaps, by the shortest length of their class.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    classes: BTreeMap<u64, Stays>,
}

impl Lengths {
    pub(super) fn add(&mut self, gap: &IdleGap) {
        self.classes.entry(class_ns(gap.gap_ns)).or_default().add(Stays::of(gap));
    }

    /// Counts all gaps under the best plan.
    pub(super) fn count(&self, descent: &Descent, setting: &Setting, tally: &mut Tally) {
        let moves = descent.moves(|rung| self.best_ns(rung.from_ns));
        for &stays in self.classes.values() {
            descent.count(&moves, stays, setting, tally);
        }
    }

    /// When to enter a state that pays off after `break_even_ns`; the latest of equally good times.
    fn best_ns(&self, break_even_ns: u64) -> u64 {
        let break_even_ns = break_even_ns as f64;
        // From "never" towards the beginning: the sum of what shorter gaps take, and how many are longer. The best
        // time is just after a class of gaps is over, or at once.
        let mut shorter_ns: f64 = self.classes.values().map(|it| it.sum_ns as f64).sum();
        let mut longer_count = 0.0;
        let (mut best_ns, mut least) = (u64::MAX, shorter_ns);
        for (&class_ns, stays) in self.classes.iter().rev() {
            let over_ns = class_ns.saturating_add(width_ns(class_ns));
            let cost = shorter_ns + longer_count * (over_ns as f64 + break_even_ns);
            if longer_count > 0.0 && cost < least {
                (best_ns, least) = (over_ns, cost);
            }
            shorter_ns -= stays.sum_ns as f64;
            longer_count += stays.count as f64;
        }
        if longer_count * break_even_ns < least { 0 } else { best_ns }
    }
}

/// How much the lengths of a class differ.
fn width_ns(gap_ns: u64) -> u64 {
    1 << (u64::BITS - gap_ns.leading_zeros()).saturating_sub(CLASS_BITS + 1)
}

/// The shortest length of a length's class.
fn class_ns(gap_ns: u64) -> u64 {
    gap_ns - gap_ns % width_ns(gap_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(of: &[(u64, u64)]) -> Lengths {
        let mut lengths = Lengths::default();
        for &(gap_ns, count) in of {
            let stays =
                Stays { count, least_ns: gap_ns, sum_ns: gap_ns * count, ..Stays::default() };
            lengths.classes.entry(class_ns(gap_ns)).or_default().add(stays);
        }
        lengths
    }

    #[test]
    fn finds_the_time_by_which_short_gaps_are_over() {
        // Break-even 50. After those of 10: 90 + 11 + 50. Never: 1090. At once: 10 times 50.
        assert_eq!(lengths(&[(10, 9), (1_000, 1)]).best_ns(50), 11);
        assert_eq!(lengths(&[(10, 9)]).best_ns(50), u64::MAX, "never, if all are short");
        assert_eq!(lengths(&[(1_000, 9)]).best_ns(50), 0, "at once, if all are long");
    }

    #[test]
    fn classes_are_exact_below_64_and_within_a_64th_above() {
        for gap_ns in [0, 1, 63, 64, 127, 128, 1_000, 123_456_789, u64::MAX] {
            let class = class_ns(gap_ns);
            assert!(class <= gap_ns && gap_ns - class <= gap_ns / 64, "{gap_ns} {class}");
            assert_eq!(class_ns(class), class);
        }
        assert_eq!(class_ns(127), 127);
    }
}
