//! The dimensions by which gaps are grouped: length, the decisions of both governors, and what a
//! governor could or could not know. Each dimension has a fixed number of groups.

use idlewise_core::{StateIndex, StateTable};
use idlewise_trace::{IdleGap, WakeReason};

use super::GapExpense;

/// The lower bounds of the groups by gap length, two for each power of ten. The first group begins
/// at 0 and is not listed.
pub const GAP_BOUNDS_NS: [u64; 15] = [
    1_000,
    3_000,
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
];

/// A dimension by which gaps are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// The gap's length; a group starts at each of [`GAP_BOUNDS_NS`].
    GapLength,
    /// The first states: A's index times the number of states, plus B's.
    States,
    /// The next timer, by [`SleepClass`].
    SleepLength,
    /// What ended the gap, in the order of [`WakeReason::ALL`].
    WakeReason,
    /// Whose tick was stopped at the beginning of the gap, by [`TickPair`].
    Tick,
    /// Whether a task ran since the previous gap: no, yes.
    RanTask,
}

/// What became of the next timer that was known at the beginning of the gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepClass {
    /// No timer was known.
    Unknown,
    /// It ended the gap.
    EndedGap,
    /// It was due within the gap but did not fire: something else cancelled it.
    Cancelled,
    /// Something else ended the gap before it. It was at most one tick away.
    OneTick,
    /// The same, more than one tick but at most two away.
    TwoTicks,
    /// The same, more than two ticks away.
    Farther,
}

impl SleepClass {
    /// All classes, in the order of their index.
    pub const ALL: [SleepClass; 6] = [
        Self::Unknown,
        Self::EndedGap,
        Self::Cancelled,
        Self::OneTick,
        Self::TwoTicks,
        Self::Farther,
    ];

    fn of(gap: &IdleGap, tick_period_ns: u32) -> Self {
        let tick_ns = u64::from(tick_period_ns);
        match gap.sleep_length_ns {
            None => Self::Unknown,
            Some(_) if gap.ended_by_known_timer() => Self::EndedGap,
            Some(length_ns) if length_ns < gap.gap_ns => Self::Cancelled,
            Some(length_ns) if length_ns <= tick_ns => Self::OneTick,
            Some(length_ns) if length_ns <= 2 * tick_ns => Self::TwoTicks,
            Some(_) => Self::Farther,
        }
    }
}

/// Whose tick was stopped before the first decision. Each governor has its own tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickPair {
    /// Neither A's nor B's.
    BothRun,
    /// Only A's.
    OnlyAStopped,
    /// Only B's.
    OnlyBStopped,
    /// Both.
    BothStopped,
}

impl TickPair {
    /// All pairs, in the order of their index.
    pub const ALL: [TickPair; 4] =
        [Self::BothRun, Self::OnlyAStopped, Self::OnlyBStopped, Self::BothStopped];

    /// Returns the pair of a gap.
    pub fn of(a: &GapExpense, b: &GapExpense) -> Self {
        match (a.first.tick_stopped, b.first.tick_stopped) {
            (false, false) => Self::BothRun,
            (true, false) => Self::OnlyAStopped,
            (false, true) => Self::OnlyBStopped,
            (true, true) => Self::BothStopped,
        }
    }
}

impl Dimension {
    /// All dimensions, in the order of their index.
    pub const ALL: [Dimension; 6] = [
        Self::GapLength,
        Self::States,
        Self::SleepLength,
        Self::WakeReason,
        Self::Tick,
        Self::RanTask,
    ];

    /// Returns the number of groups for these states.
    pub fn group_count(self, states: &StateTable) -> usize {
        match self {
            Self::GapLength => GAP_BOUNDS_NS.len() + 1,
            Self::States => states.len() * states.len(),
            Self::SleepLength => SleepClass::ALL.len(),
            Self::WakeReason => WakeReason::ALL.len(),
            Self::Tick => TickPair::ALL.len(),
            Self::RanTask => 2,
        }
    }

    /// The index of a gap's group.
    pub(super) fn group(
        self,
        gap: &IdleGap,
        a: &GapExpense,
        b: &GapExpense,
        states: &StateTable,
        tick_period_ns: u32,
    ) -> usize {
        match self {
            Self::GapLength => GAP_BOUNDS_NS.partition_point(|&bound_ns| bound_ns <= gap.gap_ns),
            Self::States => a.first.state * states.len() + b.first.state,
            Self::SleepLength => SleepClass::of(gap, tick_period_ns) as usize,
            Self::WakeReason => gap.wake_reason as usize,
            Self::Tick => TickPair::of(a, b) as usize,
            Self::RanTask => usize::from(gap.ran_task),
        }
    }

    /// Returns A's and B's first state for a group of [`Dimension::States`].
    pub fn states_of(index: usize, states: &StateTable) -> (StateIndex, StateIndex) {
        (index / states.len(), index % states.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_follow_the_lists() {
        assert!(Dimension::ALL.iter().enumerate().all(|(i, d)| *d as usize == i));
        assert!(SleepClass::ALL.iter().enumerate().all(|(i, c)| *c as usize == i));
        assert!(TickPair::ALL.iter().enumerate().all(|(i, t)| *t as usize == i));
        assert!(WakeReason::ALL.iter().enumerate().all(|(i, r)| *r as usize == i));
    }

    #[test]
    fn tells_timers_by_what_came_of_them() {
        let gap = |gap_ns, sleep_length_ns, wake_reason| IdleGap {
            cpu: 0,
            start_ns: 0,
            gap_ns,
            sleep_length_ns,
            next_tick_ns: None,
            tick_stopped: false,
            ran_task: true,
            wake_reason,
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        };
        let class = |gap_ns, length_ns, reason| SleepClass::of(&gap(gap_ns, length_ns, reason), 4);
        assert_eq!(class(3, None, WakeReason::Timer), SleepClass::Unknown);
        assert_eq!(class(3, Some(3), WakeReason::Timer), SleepClass::EndedGap);
        assert_eq!(class(3, Some(3), WakeReason::Irq), SleepClass::OneTick);
        assert_eq!(class(3, Some(2), WakeReason::Timer), SleepClass::Cancelled);
        assert_eq!(class(3, Some(4), WakeReason::Irq), SleepClass::OneTick);
        assert_eq!(class(3, Some(8), WakeReason::Irq), SleepClass::TwoTicks);
        assert_eq!(class(3, Some(9), WakeReason::Irq), SleepClass::Farther);
    }
}
