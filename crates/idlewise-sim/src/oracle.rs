//! The oracle selects the cheapest state for each gap, whose length it knows in advance.
//!
//! In state i a gap of length g costs `p[i]·g + e[i] + λ·L[i]`, which is a line in g. Slopes
//! decrease from state to state, so the cheapest state as a function of g is the lower envelope of
//! the lines, with at most one breakpoint per state. The envelope is computed once; after that,
//! selecting a state takes a few comparisons.
//!
//! The oracle is not an [`idlewise_core::Governor`], because it sees the future, and the type
//! system should show that. It never needs the tick.

use idlewise_core::{FAR_AWAY_NS, STATE_COUNT_MAX, StateIndex};
use idlewise_trace::IdleGap;

use crate::cost::CostModel;
use crate::idle_loop::StateRule;
use crate::replay::{
    FirstDecision, GapCourse, Lane, ObservedLane, Observer, ReplayedStay, Setting, StayEnd, Tally,
};
use crate::shared::Ask;

/// The cheapest state by gap length, for one price of latency.
#[derive(Clone, Debug, PartialEq)]
pub struct Oracle {
    /// The shortest gap of each segment, ascending, and the segment's state.
    segments: Vec<(u64, StateIndex)>,
}

impl Oracle {
    /// Makes the oracle for the states that `setting` allows. If the latency limit forbids all of
    /// them, it uses the shallowest enabled state, as the governors do.
    pub fn new(
        costs: &CostModel,
        setting: &Setting,
        latency_limit_ns: i64,
        lambda_mw: f64,
    ) -> Self {
        let states = &setting.states;
        let enabled = |i: &StateIndex| !setting.disabled.contains(*i);
        let within = |i: &StateIndex| {
            states.get(*i).exit_latency_ns as i64 <= latency_limit_ns && enabled(i)
        };
        let mut allowed: Vec<StateIndex> = (0..states.len()).filter(within).collect();
        if allowed.is_empty() {
            allowed.push((0..states.len()).find(enabled).unwrap_or(0));
        }
        let mut segments: Vec<(u64, StateIndex)> = Vec::new();
        let mut from_ns = 0;
        // Walk along the envelope: the next state is the one whose line is crossed first.
        let mut current = cheapest_at(costs, lambda_mw, &allowed, 0);
        loop {
            segments.push((from_ns, current));
            let next = allowed
                .iter()
                .filter(|&&i| costs.power_mw(i) < costs.power_mw(current))
                .map(|&i| (crossing_ns(costs, lambda_mw, current, i), i))
                .min_by(|a, b| {
                    // If two lines cross at the same point, the flatter one is lower from there on.
                    a.0.cmp(&b.0).then(costs.power_mw(a.1).total_cmp(&costs.power_mw(b.1)))
                });
            let Some((crossing_ns, state)) = next.filter(|&(ns, _)| ns < u64::MAX) else { break };
            from_ns = crossing_ns.max(from_ns);
            current = state;
        }
        Oracle { segments }
    }

    /// The shortest gap of each segment, ascending, and the segment's state.
    pub(crate) fn segments(&self) -> &[(u64, StateIndex)] {
        &self.segments
    }

    /// Returns the cheapest state for a gap.
    #[inline]
    pub fn state(&self, gap_ns: u64) -> StateIndex {
        let segment = self.segments.iter().rev().find(|&&(from_ns, _)| from_ns <= gap_ns);
        segment.map_or(self.segments[0].1, |&(_, state)| state)
    }
}

fn cheapest_at(
    costs: &CostModel,
    lambda_mw: f64,
    allowed: &[StateIndex],
    gap_ns: u64,
) -> StateIndex {
    let cost = |i: StateIndex| costs.gap_uj(i, gap_ns, lambda_mw);
    let cheaper = |&a: &StateIndex, &b: &StateIndex| {
        cost(a).total_cmp(&cost(b)).then(costs.power_mw(a).total_cmp(&costs.power_mw(b)))
    };
    allowed.iter().copied().min_by(cheaper).unwrap_or(0)
}

/// The shortest gap for which `deeper` costs no more than `shallower`.
fn crossing_ns(
    costs: &CostModel,
    lambda_mw: f64,
    shallower: StateIndex,
    deeper: StateIndex,
) -> u64 {
    let fixed_uj = costs.gap_uj(deeper, 0, lambda_mw) - costs.gap_uj(shallower, 0, lambda_mw);
    let saving_mw = costs.power_mw(shallower) - costs.power_mw(deeper);
    let crossing_ns = (fixed_uj / saving_mw / crate::cost::UJ_PER_MW_NS).ceil();
    if crossing_ns.is_finite() { crossing_ns.max(0.0) as u64 } else { u64::MAX }
}

/// The oracle as a lane, counted in the same way as the governors.
pub struct OracleLane<O = ()> {
    costs: CostModel,
    setting: Setting,
    lambda_mw: f64,
    unlimited: Oracle,
    /// The oracle for the most recent latency limit of a gap.
    limited: Option<(u64, Oracle)>,
    tally: Tally,
    rules: [StateRule; STATE_COUNT_MAX],
    observer: O,
}

impl OracleLane {
    /// Makes a lane for price `lambda_mw` of latency.
    pub fn new(costs: CostModel, setting: Setting, lambda_mw: f64) -> Self {
        OracleLane::with_observer(costs, setting, lambda_mw, ())
    }
}

impl<O: Observer> OracleLane<O> {
    /// Like [`OracleLane::new`], and reports each gap to `observer` as one stay.
    pub fn with_observer(costs: CostModel, setting: Setting, lambda_mw: f64, observer: O) -> Self {
        let unlimited = Oracle::new(&costs, &setting, setting.latency_limit_ns, lambda_mw);
        OracleLane {
            unlimited,
            limited: None,
            tally: Tally::default(),
            rules: StateRule::all(&setting),
            costs,
            setting,
            lambda_mw,
            observer,
        }
    }

    /// Returns the state for a gap.
    pub fn state(&mut self, gap: &IdleGap) -> StateIndex {
        self.oracle_for(gap).state(gap.gap_ns)
    }

    fn oracle_for(&mut self, gap: &IdleGap) -> &Oracle {
        let Some(limit_ns) = gap.latency_limit_ns else { return &self.unlimited };
        if self.limited.as_ref().is_none_or(|(known_ns, _)| *known_ns != limit_ns) {
            let effective_ns = i64::try_from(limit_ns)
                .map_or(self.setting.latency_limit_ns, |ns| ns.min(self.setting.latency_limit_ns));
            let oracle = Oracle::new(&self.costs, &self.setting, effective_ns, self.lambda_mw);
            self.limited = Some((limit_ns, oracle));
        }
        self.limited.as_ref().map_or(&self.unlimited, |(_, oracle)| oracle)
    }
}

impl<O: Observer> ObservedLane<O> for OracleLane<O> {
    fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }
}

/// A stay that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OracleStay {
    pub(crate) ask: Ask,
}

impl<O: Observer> OracleLane<O> {
    /// Begins a gap.
    #[inline]
    pub(crate) fn enter(&mut self, gap: &IdleGap) -> OracleStay {
        let next_event_ns = gap.sleep_length_ns.and_then(|ns| i64::try_from(ns).ok());
        let limit_ns = gap.latency_limit_ns.and_then(|ns| i64::try_from(ns).ok());
        let own_limit_ns = self.setting.latency_limit_ns;
        let ask = Ask {
            state: self.state(gap),
            next_event_ns: next_event_ns.unwrap_or(FAR_AWAY_NS),
            latency_limit_ns: limit_ns.map_or(own_limit_ns, |ns| ns.min(own_limit_ns)),
        };
        OracleStay { ask }
    }

    /// The exit latency of its state.
    #[inline]
    pub(crate) fn exit_latency_ns(&self, stay: OracleStay) -> u64 {
        self.rules[stay.ask.state].exit_latency_ns
    }

    pub(crate) fn tally_mut(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// Ends a gap. Leaving the state takes `wait_ns` longer than the CPU's own exit.
    #[inline]
    pub(crate) fn leave(&mut self, gap: &IdleGap, stay: OracleStay, wait_ns: u64) {
        let index = stay.ask.state;
        let rule = &self.rules[index];
        let exit_latency_ns = rule.exit_latency_ns + wait_ns;
        let state = &mut self.tally.states[index];
        state.entry_count += 1;
        state.stay_ns += gap.gap_ns;
        state.add_wake(gap.wake_reason, self.setting.states.get(index).wakes_on_store);
        // The delay itself is counted for all CPUs together (replay/joined/lanes.rs).
        state.shared_wake_count += u64::from(wait_ns > 0);
        self.tally.add_gap(gap.gap_ns, gap.sleep_length_ns.is_some());
        let idle_ns = gap.gap_ns.saturating_add(exit_latency_ns);
        self.observer.stay(
            gap,
            ReplayedStay {
                state: index,
                at_ns: 0,
                stay_ns: gap.gap_ns,
                exit_latency_ns,
                verdict: rule.verdict(gap.gap_ns, idle_ns),
                end: StayEnd::Event,
            },
        );
        let first = FirstDecision { state: index, tick_stopped: true };
        self.observer.gap(gap, GapCourse { first, idle_ns, delay_ns: exit_latency_ns });
    }
}

impl<O: Observer> Lane for OracleLane<O> {
    fn replay(&mut self, gaps: &[IdleGap]) {
        for gap in gaps {
            let stay = self.enter(gap);
            self.leave(gap, stay, 0);
        }
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
