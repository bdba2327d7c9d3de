//! Two governors in one replay. Ours decides; the other gets the same inputs.

use idlewise_core::{Context, Decision, Device, Governor, Outcome};
use idlewise_sim::decision_log::DecisionAnswer;

use super::{DrivenGovernor, Row};

/// Asks both, and keeps the rows up to the first in which they differ.
pub struct Pair<'a> {
    ours: &'a mut dyn Governor,
    theirs: DrivenGovernor<'a>,
    pending: Option<(Row, bool)>,
    /// Inputs and feedback so far.
    pub rows: Vec<Row>,
    /// Whether the answers in the last of `rows` differ.
    pub differs: bool,
    /// The number of decisions compared.
    pub decision_count: u64,
}

impl<'a> Pair<'a> {
    /// Pairs two governors that have no history yet.
    pub fn new(ours: &'a mut dyn Governor, theirs: &'a mut dyn Governor) -> Self {
        let theirs = DrivenGovernor::new(theirs);
        Pair { ours, theirs, pending: None, rows: Vec::new(), differs: false, decision_count: 0 }
    }
}

impl Governor for Pair<'_> {
    fn forecast_ns(&self) -> Option<u64> {
        self.ours.forecast_ns()
    }

    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        let row = Row {
            timers: context.timers(),
            disabled: context.disabled,
            latency_limit_ns: context.latency_limit_ns,
            tick_stopped: context.tick_stopped,
            iowait_count: context.iowait_count,
            select_at_ns: context.now_ns,
            entered: None,
            residency_ns: 0,
            poll_time_limit: None,
            poll_limit_ns: 0,
            got_tick: false,
            reflect_at_ns: 0,
        };
        let before = context.sleep_length_calls();
        let decision = self.ours.select(context, device);
        let ours = DecisionAnswer {
            state: decision.state,
            stop_tick: decision.stop_tick,
            sleep_length_calls: context.sleep_length_calls() - before,
            last_state: device.last_state,
            poll_time_limit: device.poll_time_limit,
            poll_limit_ns: device.poll_limit_ns,
        };
        let theirs = self.theirs.select(context.states, &row);
        self.decision_count += 1;
        self.pending = Some((row, ours != theirs));
        decision
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        let Some((row, select_differs)) = self.pending.take() else { return };
        let row = Row {
            entered: Some(outcome.entered),
            residency_ns: device.last_residency_ns,
            poll_time_limit: Some(device.poll_time_limit),
            poll_limit_ns: device.poll_limit_ns,
            got_tick: outcome.got_tick,
            reflect_at_ns: outcome.now_ns,
            ..row
        };
        self.ours.reflect(outcome, device);
        let theirs = self.theirs.reflect(&row);
        if !self.differs {
            self.rows.push(row);
            self.differs = select_differs || *device != theirs;
        }
    }
}
