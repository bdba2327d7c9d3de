//! What each gap costs a governor, and its stays if somebody wants to see them.

use idlewise_core::{STATE_COUNT_MAX, StateIndex, Verdict};
use idlewise_trace::IdleGap;

use crate::cost::CostModel;
use crate::replay::{GapCourse, Observer, Repetition, ReplayedStay, StayEnd};

/// So many stays of a gap are listed; the others are summed up.
pub const STAY_COUNT_MAX: usize = 8;

/// Whether any stay of a gap was too deep or too shallow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdicts {
    /// Some stay was too deep.
    pub is_too_deep: bool,
    /// Some stay was too shallow.
    pub is_too_shallow: bool,
}

/// A gap under a governor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CourseGap {
    /// The state that it chose first.
    pub state: StateIndex,
    /// How long it expected the gap to be, if it says so.
    pub forecast_ns: Option<u64>,
    /// The verdicts of all stays.
    pub verdicts: Verdicts,
    /// The energy of stays, transitions, exits and ticks.
    pub energy_uj: f64,
    /// The delay of the gap's event.
    pub delay_ns: u64,
    /// How many stays are listed: 0 if a single stay lasted until the event.
    pub listed_count: usize,
    /// Whether the stays after those are summed up in a [`Rest`].
    pub has_rest: bool,
}

/// A stay of a gap that has several, or whose only one ended before the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CourseStay {
    /// The state.
    pub state: StateIndex,
    /// The kernel's verdict.
    pub verdict: Verdict,
    /// What ended it.
    pub end: StayEnd,
    /// From the end of the stay before, or from the gap's start.
    pub wait_ns: u64,
    /// Its length, without the exit.
    pub stay_ns: u64,
}

/// The stays of a gap after the listed ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rest {
    /// Stays, and their sum without exits, by state.
    pub states: [(u64, u64); STATE_COUNT_MAX],
    /// How many of them the tick ended.
    pub tick_count: u64,
    /// Time at running power: exits and the ticks' work.
    pub work_ns: u64,
}

impl Rest {
    /// Returns each state that occurs, with its number of stays and their sum.
    pub fn states(&self) -> impl Iterator<Item = (StateIndex, u64, u64)> {
        let states = self.states.iter().enumerate();
        states.filter(|(_, (count, _))| *count > 0).map(|(i, &(count, sum_ns))| (i, count, sum_ns))
    }
}

/// Adds up what each gap costs.
#[derive(Clone, Debug)]
pub struct Account {
    costs: CostModel,
    tick_work_ns: u64,
    lists_stays: bool,
    forecast_ns: Option<u64>,
    energy_uj: f64,
    verdicts: Verdicts,
    listed: Vec<CourseStay>,
    last_end_ns: u64,
    rest: Option<Box<Rest>>,
    /// The gaps since [`Account::clear`].
    pub(super) gaps: Vec<CourseGap>,
    pub(super) stays: Vec<CourseStay>,
    pub(super) rests: Vec<Rest>,
}

impl Account {
    pub(super) fn new(costs: &CostModel, tick_work_ns: u64, lists_stays: bool) -> Self {
        Account {
            costs: costs.clone(),
            tick_work_ns,
            lists_stays,
            forecast_ns: None,
            energy_uj: 0.0,
            verdicts: Verdicts::default(),
            listed: Vec::new(),
            last_end_ns: 0,
            rest: None,
            gaps: Vec::new(),
            stays: Vec::new(),
            rests: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.gaps.clear();
        self.stays.clear();
        self.rests.clear();
    }

    fn list(&mut self, stay: &ReplayedStay, work_ns: u64) {
        if self.rest.is_none() && self.listed.len() < STAY_COUNT_MAX {
            let ReplayedStay { state, verdict, end, at_ns, stay_ns, .. } = *stay;
            let wait_ns = at_ns.saturating_sub(self.last_end_ns);
            self.last_end_ns = at_ns + stay_ns;
            self.listed.push(CourseStay { state, verdict, end, wait_ns, stay_ns });
            return;
        }
        let rest = self.rest.get_or_insert_default();
        rest.states[stay.state].0 += 1;
        rest.states[stay.state].1 += stay.stay_ns;
        rest.tick_count += u64::from(stay.end == StayEnd::Tick);
        rest.work_ns += work_ns;
    }
}

impl Observer for Account {
    #[inline]
    fn stay(&mut self, _gap: &IdleGap, stay: ReplayedStay) {
        let work_ns = match stay.end {
            StayEnd::Tick => stay.exit_latency_ns + self.tick_work_ns,
            StayEnd::Promotion => stay.exit_latency_ns,
            StayEnd::Event | StayEnd::PollLimit | StayEnd::Deadline => 0,
        };
        self.energy_uj += self.costs.stay_uj(stay.state, stay.stay_ns);
        if work_ns > 0 {
            self.energy_uj += self.costs.running_uj(work_ns);
        }
        self.verdicts.is_too_deep |= stay.verdict == Verdict::TooDeep;
        self.verdicts.is_too_shallow |= stay.verdict == Verdict::TooShallow;
        if self.lists_stays {
            self.list(&stay, work_ns);
        }
    }

    fn repeat(&mut self, _gap: &IdleGap, repetition: &Repetition) {
        let Repetition { count, once, .. } = repetition;
        let rest = self.rest.get_or_insert_default();
        for (state, tally) in once.states.iter().enumerate() {
            let (entry_count, stay_ns) = (count * tally.entry_count, count * tally.stay_ns);
            if entry_count > 0 {
                rest.states[state].0 += entry_count;
                rest.states[state].1 += stay_ns;
                self.energy_uj += self.costs.stays_uj(state, entry_count, stay_ns);
            }
        }
        rest.tick_count += count * once.tick_wake_count;
        rest.work_ns += count * once.work_ns;
        self.energy_uj += self.costs.running_uj(count * once.work_ns);
        self.verdicts.is_too_deep |= once.too_deep_count() > 0;
        self.verdicts.is_too_shallow |= once.too_shallow_count() > 0;
    }

    #[inline]
    fn gap(&mut self, _gap: &IdleGap, course: GapCourse) {
        let is_plain = matches!(self.listed[..], [CourseStay { end: StayEnd::Event, .. }]);
        if !is_plain {
            self.stays.extend_from_slice(&self.listed);
        }
        let rest = self.rest.take();
        let has_rest = self.lists_stays && rest.is_some();
        if let Some(rest) = rest.filter(|_| self.lists_stays) {
            self.rests.push(*rest);
        }
        self.gaps.push(CourseGap {
            state: course.first.state,
            forecast_ns: self.forecast_ns.take(),
            verdicts: std::mem::take(&mut self.verdicts),
            energy_uj: std::mem::take(&mut self.energy_uj),
            delay_ns: course.delay_ns,
            listed_count: if is_plain { 0 } else { self.listed.len() },
            has_rest,
        });
        self.listed.clear();
        self.last_end_ns = 0;
    }

    #[inline]
    fn forecast(&mut self, forecast_ns: impl FnOnce() -> Option<u64>) {
        if self.lists_stays {
            self.forecast_ns = forecast_ns();
        }
    }
}
