//! `wakes`: one CPU wakes another.

use crate::simulate::parameter::{CPUS, SPAN_NS, parameters};
use crate::simulate::{Hardware, Load, Op, Program, Shape, Spawn, TaskId, View};

parameters! {
    /// A busy CPU repeatedly wakes a task on another one. `wake_ns` is the time from the request to
    /// the task's first instruction. The sender's cost is in the IPI counts.
    pub struct Wakes {
        waker_cpu: u64 = 0, CPUS, "CPU that wakes";
        sleeper_cpu: u64 = 1, CPUS, "CPU that is woken";
        interval_ns: u64 = 100_000, SPAN_NS, "time between two wake-ups";
        wake_count: u64 = 10_000, 0..=1_000_000_000_000, "wake-ups";
    }
}

struct Waker {
    to: TaskId,
    interval_ns: u64,
    left_count: u64,
    next_at_ns: u64,
    is_due: bool,
}

impl Program for Waker {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        if self.left_count == 0 {
            return Op::Exit;
        }
        self.is_due = !self.is_due;
        if self.is_due {
            self.next_at_ns = view.now_ns + self.interval_ns;
            return Op::RunUntil { at_ns: self.next_at_ns };
        }
        self.left_count -= 1;
        view.metrics.begin(view.now_ns);
        Op::Send { to: self.to, stamp_ns: view.now_ns, capacity: None }
    }
}

/// Records how long each message took, and works for a while.
pub(super) struct Sleeper {
    pub work_ns: u64,
}

impl Program for Sleeper {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        match view.message {
            Some(asked_at_ns) => {
                view.metrics.complete(view.now_ns);
                view.metrics.record("wake_ns", view.now_ns - asked_at_ns);
                Op::Run { ns: self.work_ns }
            }
            None => Op::Wait,
        }
    }
}

impl Wakes {
    pub(super) fn load(&self, _shape: &Shape, _hardware: &Hardware) -> Load {
        let waker = Waker {
            to: 1,
            interval_ns: self.interval_ns.max(1),
            left_count: self.wake_count,
            next_at_ns: 0,
            is_due: false,
        };
        Load {
            tasks: vec![
                Spawn::pinned(self.waker_cpu as usize, waker),
                Spawn::pinned(self.sleeper_cpu as usize, Sleeper { work_ns: 500 }),
            ],
            sources: Vec::new(),
        }
    }
}
