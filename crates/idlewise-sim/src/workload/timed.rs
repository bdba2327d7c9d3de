//! Work that comes by the clock or by chance, whatever became of the work before it.

use fastrand::Rng;

use super::waking::Sleeper;
use crate::simulate::parameter::{CPUS, FLAG, SPAN_NS, parameters};
use crate::simulate::{
    Fired, Hardware, Irq, Load, Metrics, Op, Program, Shape, Source, Spawn, TaskId, View,
    exponential_ns,
};

parameters! {
    /// Jobs arrive at random as interrupts of CPU 0; its task serves them in order. `wait_ns` is
    /// from arrival to the beginning of service, `latency_ns` to its end.
    pub struct Poisson {
        interval_ns: u64 = 200_000, SPAN_NS, "mean time between arrivals";
        service_ns: u64 = 100_000, SPAN_NS, "mean service time";
        exponential_service: bool = true, FLAG, "service times are exponential; else all the same";
    }
}

struct Arrivals {
    cpu: usize,
    to: TaskId,
    interval_ns: f64,
}

impl Source for Arrivals {
    fn fire(&mut self, now_ns: u64, rng: &mut Rng, metrics: &mut Metrics) -> Fired {
        metrics.begin(now_ns);
        let irq = Irq { work_ns: 0, to: Some(self.to), stamp_ns: now_ns };
        let next_at_ns = now_ns + exponential_ns(self.interval_ns, rng).max(1);
        Fired { irq: Some((self.cpu, irq)), next_at_ns: Some(next_at_ns) }
    }
}

struct Service {
    service_ns: f64,
    is_exponential: bool,
    arrived_at_ns: Option<u64>,
}

impl Program for Service {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        if let Some(arrived_at_ns) = self.arrived_at_ns.take() {
            view.metrics.record("latency_ns", view.now_ns - arrived_at_ns);
            view.metrics.complete(view.now_ns);
        }
        let Some(arrived_at_ns) = view.message else { return Op::Wait };
        view.metrics.record("wait_ns", view.now_ns - arrived_at_ns);
        self.arrived_at_ns = Some(arrived_at_ns);
        let ns = match self.is_exponential {
            true => exponential_ns(self.service_ns, view.rng),
            false => self.service_ns as u64,
        };
        Op::Run { ns }
    }
}

impl Poisson {
    pub(super) fn load(&self) -> Load {
        let service = Service {
            service_ns: self.service_ns as f64,
            is_exponential: self.exponential_service,
            arrived_at_ns: None,
        };
        let arrivals = Arrivals { cpu: 0, to: 0, interval_ns: self.interval_ns.max(1) as f64 };
        Load {
            tasks: vec![Spawn::pinned(0, service)],
            sources: vec![(self.interval_ns, Box::new(arrivals))],
        }
    }
}

parameters! {
    /// A task on each CPU wakes by its own timer, works, and sleeps until the next line of its
    /// grid. `late_ns` is from the timer to the first instruction.
    pub struct Periodic {
        period_ns: u64 = 1_000_000, SPAN_NS, "time between two wake-ups of a task";
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

parameters! {
    /// Many interrupts in a row, each waking the task for a moment; then nothing for long. What the
    /// governor learnt from the burst is wrong for what follows. `deeper_after_ns` is how long a CPU
    /// takes to get out of the shallowest state that doesn't poll, `not_deeper_ns` how long it was
    /// there if it never got out.
    pub struct BurstThenIdle {
        burst_count: u64 = 16, 1..=1_000_000_000, "interrupts of a burst";
        burst_gap_ns: u64 = 10_000, SPAN_NS, "time between them";
        burst_jitter_ns: u64 = 0, SPAN_NS, "each is later by a random time up to this";
        work_ns: u64 = 1_000, SPAN_NS, "what the task does for each";
        quiet_ns: u64 = 1_500_000_000, SPAN_NS, "how long nothing comes after a burst";
        wakes_task: bool = true, FLAG, "each interrupt wakes the task; else it is served without one, and the tick stays stopped";
        sibling_count: u64 = 0, CPUS, "CPUs above CPU 0 that compute all the time: SMT siblings if the core has so many threads";
    }
}

struct Bursts {
    burst_count: u64,
    burst_gap_ns: u64,
    burst_jitter_ns: u64,
    quiet_ns: u64,
    done_count: u64,
    to: Option<TaskId>,
    work_ns: u64,
}

impl Source for Bursts {
    fn fire(&mut self, now_ns: u64, rng: &mut Rng, metrics: &mut Metrics) -> Fired {
        if self.to.is_some() {
            metrics.begin(now_ns);
        }
        self.done_count += 1;
        let is_last = self.done_count >= self.burst_count;
        if is_last {
            self.done_count = 0;
        }
        // Bursts begin anywhere on the tick grid.
        let quiet_ns = self.quiet_ns + rng.u64(0..=self.quiet_ns / 8);
        let gap_ns = match (is_last, self.burst_jitter_ns) {
            (true, _) => quiet_ns,
            (false, 0) => self.burst_gap_ns,
            (false, jitter_ns) => self.burst_gap_ns + rng.u64(0..=jitter_ns),
        };
        let irq = Irq { work_ns: self.work_ns, to: self.to, stamp_ns: now_ns };
        Fired { irq: Some((0, irq)), next_at_ns: Some(now_ns + gap_ns.max(1)) }
    }
}

/// Computes without end; each piece is noted as `computed_ns`.
struct Computing;

const COMPUTING_NS: u64 = 100_000;

impl Program for Computing {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        view.metrics.record("computed_ns", COMPUTING_NS);
        Op::Run { ns: COMPUTING_NS }
    }
}

impl BurstThenIdle {
    pub(super) fn load(&self) -> Load {
        let mut tasks = vec![Spawn::pinned(0, Sleeper { work_ns: self.work_ns })];
        tasks.extend((1..=self.sibling_count as usize).map(|cpu| Spawn::pinned(cpu, Computing)));
        let bursts = Bursts {
            burst_count: self.burst_count.max(1),
            burst_gap_ns: self.burst_gap_ns,
            burst_jitter_ns: self.burst_jitter_ns,
            quiet_ns: self.quiet_ns,
            done_count: 0,
            to: self.wakes_task.then_some(0),
            work_ns: if self.wakes_task { 0 } else { self.work_ns },
        };
        Load { tasks, sources: vec![(1_000_000, Box::new(bursts))] }
    }
}

parameters! {
    /// A system with next to nothing to do: on each CPU a task that wakes rarely, and sometimes
    /// wakes the next CPU's.
    pub struct NearlyIdle {
        interval_ns: u64 = 4_000_000, SPAN_NS, "mean time between two wake-ups of a CPU's own task";
        work_ns: u64 = 20_000, SPAN_NS, "mean of what it then does";
        wake_ratio: f64 = 0.5, 0.0..=1.0, "share of them that have the next CPU run a function";
        call_work_ns: u64 = 2_000, SPAN_NS, "what that function takes";
    }
}

struct Rarely {
    next_cpu: usize,
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
        // Numbers of its own: two machines that differ in nothing but a cost see the same load.
        let rng = self.rng.get_or_insert_with(|| view.rng.fork());
        self.stage = (self.stage + 1) % 3;
        match self.stage {
            1 => {
                let at_ns = view.now_ns + exponential_ns(self.interval_ns, rng).max(1);
                Op::SleepUntil { at_ns, slack_ns: self.slack_ns }
            }
            2 => Op::Run { ns: exponential_ns(self.work_ns, rng) },
            _ if rng.f64() < self.wake_ratio => {
                view.metrics.operation_count += 1;
                Op::Call { cpu: self.next_cpu, work_ns: self.call_work_ns }
            }
            _ => Op::Run { ns: 0 },
        }
    }
}

impl NearlyIdle {
    pub(super) fn load(&self, shape: &Shape, hardware: &Hardware) -> Load {
        let cpu_count = shape.cpu_count();
        let tasks = (0..cpu_count).map(|cpu| {
            let program = Rarely {
                next_cpu: (cpu + 1) % cpu_count,
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
