//! `periodic`: tasks with a fixed period.

use crate::simulate::parameter::{INTERVAL_NS, SPAN_NS, parameters};
use crate::simulate::{Hardware, Load, Op, Program, Shape, Spawn, View};

parameters! {
    /// A task on each CPU wakes by its own timer, works, and sleeps until the next multiple of its
    /// period. `late_ns` is the time from the timer to the first instruction.
    pub struct Periodic {
        period_ns: u64 = 1_000_000, INTERVAL_NS, "time between two wake-ups of a task";
        jitter_ns: u64 = 50_000, SPAN_NS, "each is later by a random time up to this";
        work_ns: u64 = 20_000, SPAN_NS, "what the task then does";
    }
}

struct Periodically {
    period_ns: u64,
    jitter_ns: u64,
    work_ns: u64,
    slack_ns: u64,
    grid_at_ns: u64,
    due_at_ns: Option<u64>,
}

impl Program for Periodically {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        if let Some(due_at_ns) = self.due_at_ns.take() {
            view.metrics.record("late_ns", view.now_ns.saturating_sub(due_at_ns));
            view.metrics.operation_count += 1;
            return Op::Run { ns: self.work_ns };
        }
        if let Some(late_ns) = view.now_ns.checked_sub(self.grid_at_ns) {
            self.grid_at_ns += (late_ns / self.period_ns + 1) * self.period_ns;
        }
        let at_ns = self.grid_at_ns + view.rng.u64(0..=self.jitter_ns);
        self.due_at_ns = Some(at_ns);
        Op::SleepUntil { at_ns, slack_ns: self.slack_ns }
    }
}

impl Periodic {
    pub(super) fn load(&self, shape: &Shape, hardware: &Hardware) -> Load {
        let period_ns = self.period_ns.max(1);
        let cpu_count = shape.cpu_count();
        let tasks = (0..cpu_count).map(|cpu| {
            let program = Periodically {
                period_ns,
                jitter_ns: self.jitter_ns,
                work_ns: self.work_ns,
                slack_ns: hardware.timer_slack_ns,
                grid_at_ns: period_ns * cpu as u64 / cpu_count as u64,
                due_at_ns: None,
            };
            Spawn::pinned(cpu, program)
        });
        Load { tasks: tasks.collect(), sources: Vec::new() }
    }
}
