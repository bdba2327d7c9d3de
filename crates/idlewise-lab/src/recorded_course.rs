//! Following what the recorded kernel really did, in a replay that asks another governor.

use idlewise_core::{STATE_COUNT_MAX, StateTable};
use idlewise_sim::replay::{Feedback, ReplayedStay, StayEnd};
use idlewise_trace::IdleGap;

/// The most recent exit time of each state; at first the machine's table. A log has the sum of a gap's
/// stays. If there is a single stay, the sum shows the exit time. With the tick's work in between it
/// does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordedCourse {
    exits_ns: [u64; STATE_COUNT_MAX],
}

impl RecordedCourse {
    /// Begins with the exit latencies of the table.
    pub fn new(states: &StateTable) -> Self {
        let exits_ns = std::array::from_fn(|index| {
            states.as_slice().get(index).map_or(0, |state| state.exit_latency_ns)
        });
        RecordedCourse { exits_ns }
    }

    /// Learns from a stay that was replayed with this course's feedback.
    pub fn stay(&mut self, gap: &IdleGap, stay: ReplayedStay) {
        let is_single = stay.at_ns == 0 && stay.end == StayEnd::Event;
        // If it is less than the gap, the recorded CPU was woken within the gap.
        let is_whole = gap.recorded_idle_ns.is_some_and(|idle_ns| idle_ns >= gap.gap_ns);
        if is_single && is_whole {
            self.exits_ns[stay.state] = stay.exit_latency_ns;
        }
    }

    /// Returns what really happened in the gap, if the log has it.
    pub fn feedback(&self, gap: &IdleGap) -> Option<Feedback> {
        Some(Feedback {
            tick_stopped: gap.tick_stopped,
            state: usize::from(gap.recorded_state?),
            idle_ns: gap.recorded_idle_ns.unwrap_or(gap.gap_ns),
            exits_ns: self.exits_ns,
        })
    }
}
