//! One decision: the inputs, the feedback, and a governor's answer.

use idlewise_core::{
    Context, Device, DisabledMask, Governor, Outcome, SleepLength, StateIndex, StateTable,
};
use idlewise_sim::decision_log::DecisionAnswer;

/// The inputs of a decision and its outcome. The feedback is part of the row, so a governor that
/// decides differently in one row still gets the same next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub timers: SleepLength,
    pub disabled: DisabledMask,
    pub latency_limit_ns: i64,
    pub tick_stopped: bool,
    pub iowait_count: u32,
    pub select_at_ns: u64,
    /// `None` if the entry was refused. The governor is not told then.
    pub entered: Option<StateIndex>,
    pub residency_ns: u64,
    /// `None` if it is left unchanged.
    pub poll_time_limit: Option<bool>,
    /// The loop's limit, used if the governor has not set one.
    pub poll_limit_ns: u64,
    pub got_tick: bool,
    pub reflect_at_ns: u64,
}

/// A governor with its device.
pub struct DrivenGovernor<'a> {
    pub governor: &'a mut dyn Governor,
    pub device: Device,
}

impl<'a> DrivenGovernor<'a> {
    pub fn new(governor: &'a mut dyn Governor) -> Self {
        DrivenGovernor { governor, device: Device::default() }
    }

    /// Asks the governor. The answer includes the device's fields at this moment. A state beyond
    /// the table counts as the deepest, because we do not follow a kernel beyond its table.
    pub fn select(&mut self, states: &StateTable, row: &Row) -> DecisionAnswer {
        let mut context = Context::new(states, row.timers);
        context.disabled = row.disabled;
        context.latency_limit_ns = row.latency_limit_ns;
        context.tick_stopped = row.tick_stopped;
        context.now_ns = row.select_at_ns;
        context.iowait_count = row.iowait_count;
        let decision = self.governor.select(&context, &mut self.device);
        DecisionAnswer {
            state: decision.state.min(states.deepest()),
            stop_tick: decision.stop_tick,
            sleep_length_calls: context.sleep_length_calls(),
            last_state: self.device.last_state,
            poll_time_limit: self.device.poll_time_limit,
            poll_limit_ns: self.device.poll_limit_ns,
        }
    }

    /// Reports the outcome to the governor, and returns the device after that.
    pub fn reflect(&mut self, row: &Row) -> Device {
        if let Some(poll_time_limit) = row.poll_time_limit {
            self.device.poll_time_limit = poll_time_limit;
        }
        if self.device.poll_limit_ns == 0 {
            self.device.poll_limit_ns = row.poll_limit_ns;
        }
        match row.entered {
            Some(entered) => {
                self.device.last_residency_ns = row.residency_ns;
                let outcome = Outcome {
                    entered,
                    is_overruled: false,
                    got_tick: row.got_tick,
                    now_ns: row.reflect_at_ns,
                };
                self.governor.reflect(&outcome, &mut self.device);
            }
            None => self.device.last_residency_ns = 0,
        }
        self.device
    }
}

/// Returns the first row in which two new governors differ, with both answers.
pub fn first_difference(
    states: &StateTable,
    rows: &[Row],
    ours: &mut dyn Governor,
    theirs: &mut dyn Governor,
) -> Option<(usize, [DecisionAnswer; 2])> {
    let (mut ours, mut theirs) = (DrivenGovernor::new(ours), DrivenGovernor::new(theirs));
    for (index, row) in rows.iter().enumerate() {
        let mut answers = [ours.select(states, row), theirs.select(states, row)];
        let devices = [ours.reflect(row), theirs.reflect(row)];
        let differs = answers[0] != answers[1] || devices[0] != devices[1];
        if differs {
            for (answer, device) in answers.iter_mut().zip(devices) {
                answer.last_state = device.last_state;
                answer.poll_time_limit = device.poll_time_limit;
                answer.poll_limit_ns = device.poll_limit_ns;
            }
            return Some((index, answers));
        }
    }
    None
}
