//! Compares two governors over the same gaps: where they differ, and what that costs.
//!
//! Each governor has its own lane, with its own history and tick. Both replay a gap before either
//! sees the next ([`Pair`]). What each spends in a gap is charged to that gap, so the differences
//! of all gaps add up to the difference of the two replays.
//!
//! A gap **differs** if any of these differ: the first state, the number of stays, the delay, the
//! energy. Gaps are counted in groups ([`Dimension`]), and the most expensive ones are kept with
//! their context. Memory does not grow with the log.
//!
//! | file | holds |
//! | --- | --- |
//! | `compared.rs` | [`ComparedGovernor`]: one of the two, and what it spends in each gap |
//! | `dimension.rs` | [`Dimension`]: how gaps are grouped |
//! | `mod.rs` | [`Pair`] and its result, [`Diff`] |

mod compared;
mod dimension;

use idlewise_core::StateTable;
use idlewise_trace::IdleGap;

pub use compared::{ComparedGovernor, GapExpense, governor_side, oracle_side};
pub use dimension::{Dimension, GAP_BOUNDS_NS, SleepClass, TickPair};

use crate::replay::{Setting, Tally};

/// How many gaps are kept for each direction.
pub const COSTLY_COUNT: usize = 10;
/// How many preceding gaps are kept with each: as many as menu looks back.
pub const BEFORE_COUNT: usize = 8;

/// Delay and energy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expense {
    /// The sum of all delays.
    pub delay_ns: u64,
    /// The sum of all energy.
    pub energy_uj: f64,
}

impl Expense {
    fn add(&mut self, other: Expense) {
        self.delay_ns += other.delay_ns;
        self.energy_uj += other.energy_uj;
    }
}

/// A group of gaps. Expenses are sums over the gaps that differ; in the others they are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupTally {
    /// The number of gaps.
    pub gap_count: u64,
    /// Gaps that differ.
    pub differing_count: u64,
    /// Gaps whose first state differs.
    pub first_state_count: u64,
    /// What A spent in the gaps that differ.
    pub a: Expense,
    /// What B spent in the gaps that differ.
    pub b: Expense,
    /// Gaps that cost less with B.
    pub saved_count: u64,
    /// How much less they cost in total, with delay at its price.
    pub saved_uj: f64,
    /// Gaps that cost more with B.
    pub lost_count: u64,
    /// How much more they cost in total.
    pub lost_uj: f64,
}

impl GroupTally {
    /// Returns the delay with B minus the delay with A.
    pub fn delay_change_ns(&self) -> i64 {
        self.b.delay_ns as i64 - self.a.delay_ns as i64
    }

    /// Returns the energy with B minus the energy with A.
    pub fn energy_change_uj(&self) -> f64 {
        self.b.energy_uj - self.a.energy_uj
    }

    fn merge(&mut self, other: &GroupTally) {
        self.gap_count += other.gap_count;
        self.differing_count += other.differing_count;
        self.first_state_count += other.first_state_count;
        self.a.add(other.a);
        self.b.add(other.b);
        self.saved_count += other.saved_count;
        self.saved_uj += other.saved_uj;
        self.lost_count += other.lost_count;
        self.lost_uj += other.lost_uj;
    }
}

/// A gap with the gaps before it and its cost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CostlyGap {
    /// The log that it comes from: the number that [`Pair::new`] was given.
    pub log_index: usize,
    /// The gap.
    pub gap: IdleGap,
    /// The lengths of the preceding gaps on this CPU, oldest first; at most [`BEFORE_COUNT`].
    pub before_ns: Vec<u64>,
    /// What A did.
    pub a: GapExpense,
    /// What B did.
    pub b: GapExpense,
    /// The cost with B minus the cost with A.
    pub change_uj: f64,
}

/// The result of comparing two governors.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// All gaps.
    pub all: GroupTally,
    /// Groups of gaps by [`Dimension`], in its order and by its index.
    pub groups: [Vec<GroupTally>; Dimension::ALL.len()],
    /// The gaps that cost the most more with B, the largest difference first.
    pub losses: Vec<CostlyGap>,
    /// The gaps that cost the most less with B, the largest difference first.
    pub gains: Vec<CostlyGap>,
    /// The replay of A.
    pub a: Tally,
    /// The replay of B.
    pub b: Tally,
}

impl Diff {
    fn new(states: &StateTable) -> Self {
        Diff {
            all: GroupTally::default(),
            groups: Dimension::ALL
                .map(|dimension| vec![GroupTally::default(); dimension.group_count(states)]),
            losses: Vec::new(),
            gains: Vec::new(),
            a: Tally::default(),
            b: Tally::default(),
        }
    }

    /// Returns the groups of a dimension.
    pub fn groups(&self, dimension: Dimension) -> &[GroupTally] {
        &self.groups[dimension as usize]
    }

    /// Adds another result for the same states.
    pub fn merge(&mut self, other: &Diff) {
        self.all.merge(&other.all);
        for (mine, theirs) in self.groups.iter_mut().zip(&other.groups) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                mine.merge(theirs);
            }
        }
        for gap in &other.losses {
            keep(&mut self.losses, gap.change_uj, || gap.clone());
        }
        for gap in &other.gains {
            keep(&mut self.gains, gap.change_uj, || gap.clone());
        }
        self.a.merge(&other.a);
        self.b.merge(&other.b);
    }
}

/// Keeps a gap if its difference is among the largest. Of equal gaps, the first is kept.
fn keep(kept: &mut Vec<CostlyGap>, change_uj: f64, make: impl FnOnce() -> CostlyGap) {
    let place = kept.partition_point(|known| known.change_uj.abs() >= change_uj.abs());
    if place < COSTLY_COUNT {
        kept.truncate(COSTLY_COUNT - 1);
        kept.insert(place, make());
    }
}

/// Two governors replayed in step over the gaps of one CPU.
pub struct Pair {
    a: Box<dyn ComparedGovernor>,
    b: Box<dyn ComparedGovernor>,
    states: StateTable,
    tick_period_ns: u32,
    lambda_mw: f64,
    log_index: usize,
    /// The lengths of the last gaps, each at its number modulo the array's length.
    before_ns: [u64; BEFORE_COUNT],
    gap_count: usize,
    diff: Diff,
}

impl Pair {
    /// Compares two governors under `setting`; delay costs `lambda_mw`. `log_index` is stored with
    /// the gaps that are kept.
    pub fn new(
        a: Box<dyn ComparedGovernor>,
        b: Box<dyn ComparedGovernor>,
        setting: &Setting,
        lambda_mw: f64,
        log_index: usize,
    ) -> Self {
        Pair {
            a,
            b,
            states: setting.states,
            tick_period_ns: setting.tick_period_ns,
            lambda_mw,
            log_index,
            before_ns: [0; BEFORE_COUNT],
            gap_count: 0,
            diff: Diff::new(&setting.states),
        }
    }

    /// Replays the next gaps.
    pub fn replay(&mut self, gaps: &[IdleGap]) {
        for gap in gaps {
            let (a, b) = (self.a.gap(gap), self.b.gap(gap));
            self.compare(gap, a, b);
            self.before_ns[self.gap_count % BEFORE_COUNT] = gap.gap_ns;
            self.gap_count += 1;
        }
    }

    /// Returns the result.
    pub fn into_diff(self) -> Diff {
        Diff { a: self.a.tally().clone(), b: self.b.tally().clone(), ..self.diff }
    }

    fn compare(&mut self, gap: &IdleGap, a: GapExpense, b: GapExpense) {
        let change_uj = b.cost_uj(self.lambda_mw) - a.cost_uj(self.lambda_mw);
        let mut one = GroupTally { gap_count: 1, ..GroupTally::default() };
        if a.differs(&b) {
            one.differing_count = 1;
            one.first_state_count = u64::from(a.first.state != b.first.state);
            (one.a, one.b) = (a.expense, b.expense);
            if change_uj < 0.0 {
                (one.saved_count, one.saved_uj) = (1, -change_uj);
            } else if change_uj > 0.0 {
                (one.lost_count, one.lost_uj) = (1, change_uj);
            }
        }
        self.diff.all.merge(&one);
        for (dimension, groups) in Dimension::ALL.into_iter().zip(&mut self.diff.groups) {
            let index = dimension.group(gap, &a, &b, &self.states, self.tick_period_ns);
            groups[index].merge(&one);
        }
        let kept = match one {
            GroupTally { lost_count: 1, .. } => &mut self.diff.losses,
            GroupTally { saved_count: 1, .. } => &mut self.diff.gains,
            _ => return,
        };
        let (log_index, before_ns, gap_count) = (self.log_index, &self.before_ns, self.gap_count);
        keep(kept, change_uj, || CostlyGap {
            log_index,
            gap: *gap,
            before_ns: (gap_count.saturating_sub(BEFORE_COUNT)..gap_count)
                .map(|i| before_ns[i % BEFORE_COUNT])
                .collect(),
            a,
            b,
            change_uj,
        });
    }
}
