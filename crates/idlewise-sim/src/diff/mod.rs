//! Two governors over the same gaps: where they differ, and what that costs.
//!
//! Each governor has a lane of its own, with its own history and its own tick, and both are shown
//! the same gap before either sees the next ([`Pair`]). What each spends in a gap is charged to that
//! gap, so the differences of all gaps add up to the difference of two replays.
//!
//! A gap **differs** if anything of its course does: the first state, the number of stays, the
//! delay or the energy. Gaps are counted by what they were like ([`Dimension`]), and the dearest are
//! kept with their context. Memory does not grow with the log.
//!
//! | file | holds |
//! | --- | --- |
//! | `compared.rs` | [`ComparedGovernor`]: one of the two, and what it spends gap by gap |
//! | `dimension.rs` | [`Dimension`]: by what gaps are counted |
//! | `mod.rs` | [`Pair`] and what it finds, [`Diff`] |

mod compared;
mod dimension;

use idlewise_core::StateTable;
use idlewise_trace::IdleGap;

pub use compared::{ComparedGovernor, GapExpense, governor_side, oracle_side};
pub use dimension::{Dimension, GAP_BOUNDS_NS, SleepClass, TickPair};

use crate::replay::{Setting, Tally};

/// How many gaps are kept for each direction.
pub const COSTLY_COUNT: usize = 10;
/// How many gaps before are kept with each: as many as menu looks back.
pub const BEFORE_COUNT: usize = 8;

/// Delay and energy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expense {
    /// All delays together.
    pub delay_ns: u64,
    /// All energy together.
    pub energy_uj: f64,
}

impl Expense {
    fn add(&mut self, other: Expense) {
        self.delay_ns += other.delay_ns;
        self.energy_uj += other.energy_uj;
    }
}

/// A group of gaps. The expenses are those of the gaps that differ; the others have none that
/// differs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupTally {
    /// Gaps.
    pub gap_count: u64,
    /// Those that differ.
    pub differing_count: u64,
    /// Those that differ in the first state already.
    pub first_state_count: u64,
    /// What A spent where they differ.
    pub a: Expense,
    /// What B spent where they differ.
    pub b: Expense,
    /// Gaps that cost less with B.
    pub saved_count: u64,
    /// By how much, all together, delay at its price.
    pub saved_uj: f64,
    /// Gaps that cost more with B.
    pub lost_count: u64,
    /// By how much, all together.
    pub lost_uj: f64,
}

impl GroupTally {
    /// Delay with B less that with A.
    pub fn delay_change_ns(&self) -> i64 {
        self.b.delay_ns as i64 - self.a.delay_ns as i64
    }

    /// Energy with B less that with A.
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

/// One gap, with what led to it and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CostlyGap {
    /// The log that it is from, by the number that [`Pair::new`] was given.
    pub log_index: usize,
    /// The gap.
    pub gap: IdleGap,
    /// Lengths of the gaps before it on this CPU, oldest first; at most [`BEFORE_COUNT`].
    pub before_ns: Vec<u64>,
    /// What A did.
    pub a: GapExpense,
    /// What B did.
    pub b: GapExpense,
    /// Cost with B less that with A.
    pub change_uj: f64,
}

/// What the comparison of two governors found.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// All gaps.
    pub all: GroupTally,
    /// Gaps by [`Dimension`], in its order and by its index.
    pub groups: [Vec<GroupTally>; Dimension::ALL.len()],
    /// Gaps that cost most more with B, the dearest first.
    pub losses: Vec<CostlyGap>,
    /// Gaps that cost most less with B, the dearest first.
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

    /// The groups of one dimension.
    pub fn groups(&self, dimension: Dimension) -> &[GroupTally] {
        &self.groups[dimension as usize]
    }

    /// Adds what was found elsewhere with the same states.
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

/// Keeps a gap if it is among the dearest; of equals, the one that came first.
fn keep(kept: &mut Vec<CostlyGap>, change_uj: f64, make: impl FnOnce() -> CostlyGap) {
    let place = kept.partition_point(|known| known.change_uj.abs() >= change_uj.abs());
    if place < COSTLY_COUNT {
        kept.truncate(COSTLY_COUNT - 1);
        kept.insert(place, make());
    }
}

/// Two governors over the gaps of one CPU, in step.
pub struct Pair {
    a: Box<dyn ComparedGovernor>,
    b: Box<dyn ComparedGovernor>,
    states: StateTable,
    tick_period_ns: u32,
    lambda_mw: f64,
    log_index: usize,
    /// The last gaps, each at its number modulo the length.
    before_ns: [u64; BEFORE_COUNT],
    gap_count: usize,
    diff: Diff,
}

impl Pair {
    /// Both sides are in the world of `setting`; delay costs `lambda_mw`. `log_index` comes back
    /// with the gaps that are kept.
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

    /// Takes the next gaps.
    pub fn replay(&mut self, gaps: &[IdleGap]) {
        for gap in gaps {
            let (a, b) = (self.a.gap(gap), self.b.gap(gap));
            self.compare(gap, a, b);
            self.before_ns[self.gap_count % BEFORE_COUNT] = gap.gap_ns;
            self.gap_count += 1;
        }
    }

    /// What was found.
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
