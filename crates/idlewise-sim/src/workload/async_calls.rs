//! `async-calls`: one CPU calls all others.

use fastrand::Rng;

use crate::simulate::parameter::{INTERVAL_NS, SPAN_NS, parameters};
use crate::simulate::{Hardware, Load, Op, Program, Shape, Spawn, View, exponential_ns};

parameters! {
    /// One CPU calls a function on each other CPU in turn, without waiting. The others are idle or,
    /// for a share of the time, busy. `sender_ns` is the caller's cost of a call.
    pub struct AsyncCalls {
        interval_ns: u64 = 200_000, INTERVAL_NS, "time between two rounds";
        call_work_ns: u64 = 500, SPAN_NS, "what the function takes";
        busy_ratio: f64 = 0.0, 0.0..=1.0, "share of the time that the other CPUs are busy with something else";
    }
}

struct Caller {
    cpu_count: usize,
    next: usize,
    interval_ns: u64,
    work_ns: u64,
    next_at_ns: u64,
}

impl Program for Caller {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        if self.next > 1 {
            view.metrics.record("sender_ns", view.sender_cost_ns);
            view.metrics.operation_count += 1;
        }
        if self.next >= self.cpu_count {
            self.next = 0;
        }
        self.next += 1;
        if self.next == 1 {
            self.next_at_ns = self.next_at_ns.max(view.now_ns) + self.interval_ns;
            return Op::SleepUntil { at_ns: self.next_at_ns, slack_ns: 0 };
        }
        Op::Call { cpu: self.next - 1, work_ns: self.work_ns }
    }
}

/// Alternates between busy and idle periods.
struct Alternating {
    busy_ns: f64,
    idle_ns: f64,
    is_busy: bool,
    /// Its own generator, so that its times do not depend on the cost of calls.
    rng: Option<Rng>,
}

impl Program for Alternating {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        let rng = self.rng.get_or_insert_with(|| view.rng.fork());
        self.is_busy = !self.is_busy;
        if self.is_busy {
            return Op::Run { ns: exponential_ns(self.busy_ns, rng).max(1) };
        }
        let idle_ns = exponential_ns(self.idle_ns, rng).max(1);
        Op::SleepUntil { at_ns: view.now_ns + idle_ns, slack_ns: 0 }
    }
}

/// The mean time between two changes of a partly busy CPU.
const ALTERNATION_NS: f64 = 1_000_000.0;

impl AsyncCalls {
    pub(super) fn load(&self, shape: &Shape, _hardware: &Hardware) -> Load {
        let cpu_count = shape.cpu_count();
        let caller = Caller {
            cpu_count,
            next: 0,
            interval_ns: self.interval_ns.max(1),
            work_ns: self.call_work_ns,
            next_at_ns: 0,
        };
        let mut tasks = vec![Spawn::pinned(0, caller)];
        if self.busy_ratio > 0.0 {
            let busy_ratio = self.busy_ratio.min(0.99);
            tasks.extend((1..cpu_count).map(|cpu| {
                let program = Alternating {
                    busy_ns: ALTERNATION_NS * busy_ratio,
                    idle_ns: ALTERNATION_NS * (1.0 - busy_ratio),
                    is_busy: false,
                    rng: None,
                };
                Spawn::pinned(cpu, program)
            }));
        }
        Load { tasks, sources: Vec::new() }
    }
}
