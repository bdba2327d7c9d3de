//! CPUs that wake or call other CPUs.

use fastrand::Rng;

use crate::simulate::parameter::{CPUS, SPAN_NS, parameters};
use crate::simulate::{Load, Op, Program, Shape, Spawn, TaskId, View, exponential_ns};

parameters! {
    /// A busy CPU wakes a task on another one, again and again. `wake_ns` is from the wish to the
    /// task's first instruction; the sender's part is in the IPI counts.
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

/// Notes how long each message took, and works for a while.
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
    pub(super) fn load(&self) -> Load {
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

parameters! {
    /// One CPU has every other CPU run a function, in turn, without waiting; the others idle or,
    /// for a share of the time, are busy. `sender_ns` is what a call costs the caller.
    pub struct AsyncCalls {
        interval_ns: u64 = 200_000, SPAN_NS, "time between two rounds";
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

/// Busy for a while, idle for a while.
struct Alternating {
    busy_ns: f64,
    idle_ns: f64,
    is_busy: bool,
    /// Its own, so that its times don't depend on what calls cost.
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

/// Mean time between two changes of a partly busy CPU.
const ALTERNATION_NS: f64 = 1_000_000.0;

impl AsyncCalls {
    pub(super) fn load(&self, shape: &Shape) -> Load {
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

parameters! {
    /// CPU 0 wakes CPU 1's task; CPU 2 has CPU 1 run a function a little later, mostly while it
    /// is still waking up.
    pub struct ThirdCpu {
        interval_ns: u64 = 2_000_000, SPAN_NS, "time between two wake-ups: long enough for deep idle";
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

/// Wakes at whole multiples of the interval.
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
    pub(super) fn load(&self) -> Load {
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
