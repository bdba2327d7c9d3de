//! Which gaps are kept if a log has too many.
//!
//! Each CPU gets a share of the number by its gaps, and never less than a few. An eighth of the share are
//! its longest gaps and a quarter its worst misses, those that cost most above the oracle's cost with all
//! shown governors together. The rest are evenly spaced by their number, so that overviews stay true.
//! In addition the worst misses of each governor in the whole log are kept, wherever they are.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use idlewise_trace::log::{IdleLog, LogError};

use crate::replay::GroupReader;

/// So many of the worst misses of each governor on each machine are always kept.
pub const WORST_COUNT: usize = 64;

/// A CPU keeps at least so many gaps, unless the log has too many CPUs for that.
const CPU_COUNT_MIN: u64 = 16;

/// A CPU's gaps, and how many to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    pub gap_count: u64,
    pub kept_count: u64,
}

impl Budget {
    fn longest_count(self) -> usize {
        (self.kept_count / 8).max(1) as usize
    }

    fn worst_count(self) -> usize {
        (self.kept_count / 4).max(1) as usize
    }

    /// The numbers of the evenly spaced gaps, the first and the last among them.
    fn evenly(self) -> impl Iterator<Item = u64> {
        let taken = (self.longest_count() + self.worst_count()) as u64;
        let count = self.kept_count.saturating_sub(taken).max(2).min(self.gap_count);
        let last = u128::from(self.gap_count.saturating_sub(1));
        let steps = u128::from(count.saturating_sub(1).max(1));
        (0..count).map(move |i| (u128::from(i) * last / steps) as u64)
    }
}

/// Returns for each CPU how many gaps it has and how many to keep.
pub(super) fn kept_counts(
    log: &IdleLog,
    keep_count: u64,
) -> Result<BTreeMap<u16, Budget>, LogError> {
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    match log.groups_by_cpu() {
        Some(cpus) => {
            for (cpu, groups) in cpus {
                *counts.entry(cpu).or_default() +=
                    groups.iter().map(|group| group.gap_count).sum::<u64>();
            }
        }
        None => {
            let mut reader = GroupReader::new(log);
            for group in log.groups() {
                for gap in reader.read(group)? {
                    *counts.entry(gap.cpu).or_default() += 1;
                }
            }
        }
    }
    Ok(budgets(&counts, keep_count))
}

fn budgets(counts: &BTreeMap<u16, u64>, keep_count: u64) -> BTreeMap<u16, Budget> {
    let gap_sum: u128 = counts.values().map(|&count| u128::from(count)).sum();
    let least = (keep_count / counts.len().max(1) as u64).clamp(1, CPU_COUNT_MIN);
    let budget = |gap_count: u64| {
        let share = u128::from(keep_count) * u128::from(gap_count) / gap_sum.max(1);
        Budget { gap_count, kept_count: (share as u64).max(least).min(gap_count) }
    };
    counts.iter().map(|(&cpu, &gap_count)| (cpu, budget(gap_count))).collect()
}

/// Keeps the greatest of many values, each with the number of its gap. Of equal ones the first.
#[derive(Debug, Default)]
pub(super) struct Top {
    capacity: usize,
    /// The least is on top.
    heap: BinaryHeap<Reverse<(u64, Reverse<u64>)>>,
}

impl Top {
    pub fn new(capacity: usize) -> Self {
        Top { capacity, heap: BinaryHeap::new() }
    }

    #[inline]
    pub fn offer(&mut self, key: u64, index: u64) {
        let entry = Reverse((key, Reverse(index)));
        if self.heap.len() < self.capacity {
            self.heap.push(entry);
        } else if let Some(mut least) = self.heap.peek_mut()
            && entry < *least
        {
            *least = entry;
        }
    }

    /// Like [`Top::offer`], for a number that is not negative.
    #[inline]
    pub fn offer_real(&mut self, value: f64, index: u64) {
        // Such numbers are in the order of their bits.
        self.offer(value.max(0.0).to_bits(), index);
    }

    fn entries(self) -> impl Iterator<Item = (u64, u64)> {
        self.heap.into_iter().map(|Reverse((key, Reverse(index)))| (key, index))
    }
}

/// Looks for the gaps of a CPU that are to be kept.
#[derive(Debug)]
pub(super) struct Finder {
    cpu: u16,
    budget: Budget,
    pub longest: Top,
    pub worst: Top,
    /// For each course.
    pub courses: Vec<Top>,
}

impl Finder {
    pub fn new(cpu: u16, budget: Budget, course_count: usize) -> Self {
        Finder {
            cpu,
            budget,
            longest: Top::new(budget.longest_count()),
            worst: Top::new(budget.worst_count()),
            courses: (0..course_count).map(|_| Top::new(WORST_COUNT)).collect(),
        }
    }
}

/// What was found on all CPUs.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    chosen: BTreeMap<u16, Choice>,
    /// For each course the worst misses so far: how bad, on which CPU, which gap.
    courses: Vec<Vec<(u64, u16, u64)>>,
}

/// The numbers of the gaps of a CPU to keep, in order.
pub(super) type Choice = Vec<u64>;

impl Candidates {
    pub fn add(&mut self, found: Finder) {
        let Finder { cpu, budget, longest, worst, courses } = found;
        let mut chosen: Choice = budget.evenly().collect();
        chosen.extend(longest.entries().chain(worst.entries()).map(|(_, index)| index));
        self.chosen.entry(cpu).or_default().extend(chosen);
        self.courses.resize_with(courses.len().max(self.courses.len()), Vec::new);
        for (known, course) in self.courses.iter_mut().zip(courses) {
            known.extend(course.entries().map(|(key, index)| (key, cpu, index)));
            known.sort_unstable_by_key(|&(key, cpu, index)| (Reverse(key), cpu, index));
            known.truncate(WORST_COUNT);
        }
    }

    pub fn choose(mut self) -> BTreeMap<u16, Choice> {
        for (key, cpu, index) in self.courses.into_iter().flatten() {
            // What costs nothing above the best is no miss.
            if key > 0 {
                self.chosen.entry(cpu).or_default().push(index);
            }
        }
        for choice in self.chosen.values_mut() {
            choice.sort_unstable();
            choice.dedup();
        }
        self.chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_keeps_the_greatest_and_of_equal_ones_the_first() {
        let mut top = Top::new(3);
        for (index, key) in [5, 9, 5, 1, 9, 5, 7].into_iter().enumerate() {
            top.offer(key, index as u64);
        }
        let mut kept: Vec<_> = top.entries().collect();
        kept.sort_unstable();
        assert_eq!(kept, [(7, 6), (9, 1), (9, 4)]);
        let mut top = Top::new(2);
        (0..9).for_each(|index| top.offer(4, index));
        let mut kept: Vec<_> = top.entries().collect();
        kept.sort_unstable();
        assert_eq!(kept, [(4, 0), (4, 1)]);
    }

    #[test]
    fn every_cpu_keeps_some_gaps_and_all_together_about_as_many_as_allowed() {
        for (cpu_count, keep_count) in [(1_u16, 1_000), (512, 100_000), (512, 100), (3, 7)] {
            let gaps = |cpu: u16| if cpu == 0 { 1_000_000 } else { u64::from(cpu) * 10 };
            let counts = (0..cpu_count).map(|cpu| (cpu, gaps(cpu))).collect();
            let budgets = budgets(&counts, keep_count);
            assert!(budgets.values().all(|budget| budget.kept_count > 0));
            let sum: u64 = budgets.values().map(|budget| budget.kept_count).sum();
            let most = keep_count + 16 * u64::from(cpu_count);
            assert!(sum <= most, "{cpu_count} CPUs: {sum} > {most}");
        }
    }

    #[test]
    fn evenly_spaced_gaps_reach_from_the_first_to_the_last() {
        for (gap_count, kept_count) in [(1, 1), (2, 1), (10, 5), (1_000, 100), (7, 7)] {
            let even: Vec<u64> = Budget { gap_count, kept_count }.evenly().collect();
            assert_eq!(even.first(), Some(&0));
            assert!(even.is_sorted() && even.iter().all(|&index| index < gap_count), "{even:?}");
            assert_eq!(even.last(), Some(&(gap_count - 1)), "{even:?}");
        }
    }
}
