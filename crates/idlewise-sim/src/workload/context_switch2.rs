//! `context-switch2`: two tasks that wait for each other.

use crate::simulate::parameter::{CPUS, SPAN_NS, parameters};
use crate::simulate::{Hardware, Load, Op, Program, Shape, Spawn, TaskId, View};

parameters! {
    /// Two pinned tasks pass a byte back and forth. An operation is one way: the benchmark counts
    /// two per round trip. `one_way_ns` is from the wake-up request to the other's first
    /// instruction.
    pub struct ContextSwitch2 {
        first_cpu: u64 = 0, CPUS, "CPU of one task";
        second_cpu: u64 = 1, CPUS, "CPU of the other";
        before_wake_ns: u64 = 1_500, SPAN_NS, "from a task's first instruction to the wake-up of the other: read call's end, write call";
        after_wake_ns: u64 = 800, SPAN_NS, "from there to going idle: write call's end, read call";
    }
}

struct Passer {
    to: TaskId,
    before_wake_ns: u64,
    after_wake_ns: u64,
    stage: u8,
}

impl Program for Passer {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        if let Some(sent_at_ns) = view.message {
            self.stage = 0;
            view.metrics.complete(view.now_ns);
            view.metrics.record("one_way_ns", view.now_ns - sent_at_ns);
        }
        self.stage += 1;
        match self.stage {
            1 => Op::Run { ns: self.before_wake_ns },
            2 => {
                view.metrics.begin(view.now_ns);
                Op::Send { to: self.to, stamp_ns: view.now_ns, capacity: None }
            }
            3 => Op::Run { ns: self.after_wake_ns },
            _ => Op::Wait,
        }
    }
}

impl ContextSwitch2 {
    pub(super) fn load(&self, _shape: &Shape, _hardware: &Hardware) -> Load {
        let passer = |to, stage| Passer {
            to,
            before_wake_ns: self.before_wake_ns,
            after_wake_ns: self.after_wake_ns,
            stage,
        };
        Load {
            tasks: vec![
                Spawn::pinned(self.first_cpu as usize, passer(1, 0)),
                Spawn::pinned(self.second_cpu as usize, passer(0, 3)),
            ],
            sources: Vec::new(),
        }
    }
}
