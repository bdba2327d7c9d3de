//! The oracle as a lane.

use idlewise_core::{FAR_AWAY_NS, STATE_COUNT_MAX, StateIndex};
use idlewise_trace::IdleGap;

use super::{
    FirstDecision, GapCourse, Lane, ObservedLane, Observer, ReplayedStay, Setting, StayEnd, Tally,
};
use crate::cost::CostModel;
use crate::idle_loop::StateRule;
use crate::oracle::Oracle;
use crate::shared::Ask;

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
