//! `nearly-idle`: hardly anything to do.

use fastrand::Rng;

use crate::simulate::parameter::{CPU_COUNT_MAX, INTERVAL_NS, SPAN_NS, parameters};
use crate::simulate::{Hardware, Load, Op, Program, Shape, Spawn, View, exponential_ns};

parameters! {
    /// A system with hardly anything to do: on each CPU a task wakes rarely, and sometimes has the
    /// CPUs that follow run a function.
    pub struct NearlyIdle {
        interval_ns: u64 = 4_000_000, INTERVAL_NS, "mean time between two wake-ups of a CPU's own task";
        work_ns: u64 = 20_000, SPAN_NS, "mean of what it then does";
        wake_ratio: f64 = 0.5, 0.0..=1.0, "share of them that have other CPUs run a function";
        call_count: u64 = 1, 1..=CPU_COUNT_MAX, "how many of the following CPUs those have run it";
        call_work_ns: u64 = 2_000, SPAN_NS, "what that function takes";
    }
}

struct Rarely {
    cpu: usize,
    cpu_count: usize,
    /// How many CPUs a round calls, and how many calls are left of this one.
    call_count: usize,
    left_count: usize,
    interval_ns: f64,
    work_ns: f64,
    wake_ratio: f64,
    call_work_ns: u64,
    slack_ns: u64,
    stage: u8,
    rng: Option<Rng>,
}

impl Program for Rarely {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        // Its own random numbers, so that machines that differ only in a cost get the same load.
        let rng = self.rng.get_or_insert_with(|| view.rng.fork());
        if self.left_count > 0 {
            return self.call(view);
        }
        self.stage = (self.stage + 1) % 3;
        match self.stage {
            1 => {
                let at_ns = view.now_ns + exponential_ns(self.interval_ns, rng).max(1);
                Op::SleepUntil { at_ns, slack_ns: self.slack_ns }
            }
            2 => Op::Run { ns: exponential_ns(self.work_ns, rng) },
            _ if rng.f64() < self.wake_ratio => {
                self.left_count = self.call_count;
                self.call(view)
            }
            _ => Op::Run { ns: 0 },
        }
    }
}

impl Rarely {
    /// Calls the next CPU of this round.
    fn call(&mut self, view: &mut View<'_>) -> Op {
        let offset = 1 + self.call_count - self.left_count;
        self.left_count -= 1;
        view.metrics.operation_count += 1;
        Op::Call { cpu: (self.cpu + offset) % self.cpu_count, work_ns: self.call_work_ns }
    }
}

impl NearlyIdle {
    pub(super) fn load(&self, shape: &Shape, hardware: &Hardware) -> Load {
        let cpu_count = shape.cpu_count();
        let tasks = (0..cpu_count).map(|cpu| {
            let program = Rarely {
                cpu,
                cpu_count,
                // No CPU twice, and not itself unless it is alone.
                call_count: (self.call_count as usize).clamp(1, (cpu_count - 1).max(1)),
                left_count: 0,
                interval_ns: self.interval_ns as f64,
                work_ns: self.work_ns as f64,
                wake_ratio: self.wake_ratio,
                call_work_ns: self.call_work_ns,
                slack_ns: hardware.timer_slack_ns,
                stage: 0,
                rng: None,
            };
            Spawn::pinned(cpu, program)
        });
        Load { tasks: tasks.collect(), sources: Vec::new() }
    }
}
