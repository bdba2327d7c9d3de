//! `third-cpu`: a third CPU interrupts another while that wakes up.

use super::wakes::Sleeper;
use crate::simulate::parameter::{INTERVAL_NS, SPAN_NS, parameters};
use crate::simulate::{Hardware, Load, Op, Program, Shape, Spawn, TaskId, View};

parameters! {
    /// CPU 0 wakes CPU 1's task. CPU 2 calls a function on CPU 1 a little later, usually while it
    /// is still waking up.
    pub struct ThirdCpu {
        interval_ns: u64 = 2_000_000, INTERVAL_NS, "time between two wake-ups: long enough for deep idle";
        window_ns: u64 = 100_000, SPAN_NS, "the third CPU comes at a random time within this after the wake-up";
        call_work_ns: u64 = 500, SPAN_NS, "what its function takes";
    }
}

struct ThirdCaller {
    interval_ns: u64,
    window_ns: u64,
    work_ns: u64,
    round: u64,
    is_due: bool,
}

impl Program for ThirdCaller {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        self.is_due = !self.is_due;
        if self.is_due {
            if self.round > 0 {
                view.metrics.record("sender_ns", view.sender_cost_ns);
            }
            self.round += 1;
            let at_ns = self.round * self.interval_ns + view.rng.u64(0..=self.window_ns);
            return Op::RunUntil { at_ns };
        }
        Op::Call { cpu: 1, work_ns: self.work_ns }
    }
}

/// Wakes the task at whole multiples of the interval.
struct MetronomeWaker {
    to: TaskId,
    interval_ns: u64,
    round: u64,
    is_due: bool,
}

impl Program for MetronomeWaker {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        self.is_due = !self.is_due;
        if self.is_due {
            self.round += 1;
            return Op::RunUntil { at_ns: self.round * self.interval_ns };
        }
        view.metrics.begin(view.now_ns);
        Op::Send { to: self.to, stamp_ns: view.now_ns, capacity: None }
    }
}

impl ThirdCpu {
    pub(super) fn load(&self, _shape: &Shape, _hardware: &Hardware) -> Load {
        let interval_ns = self.interval_ns.max(1);
        let waker = MetronomeWaker { to: 1, interval_ns, round: 0, is_due: false };
        let caller = ThirdCaller {
            interval_ns,
            window_ns: self.window_ns.min(interval_ns / 2),
            work_ns: self.call_work_ns,
            round: 0,
            is_due: false,
        };
        Load {
            tasks: vec![
                Spawn::pinned(0, waker),
                Spawn::pinned(1, Sleeper { work_ns: 500 }),
                Spawn::pinned(2, caller),
            ],
            sources: Vec::new(),
        }
    }
}
