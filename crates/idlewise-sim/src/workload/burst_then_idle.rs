//! `burst-then-idle`: idle periods that no history predicts.

use fastrand::Rng;

use super::wakes::Sleeper;
use crate::simulate::parameter::{CPUS, FLAG, INTERVAL_NS, SPAN_NS, parameters};
use crate::simulate::{
    EventSource, Fired, Hardware, Irq, Load, Metrics, Op, Program, Shape, Spawn, TaskId, View,
};

parameters! {
    /// Many interrupts in a row, each waking the task briefly, then a long pause. What the governor
    /// learned from the burst is wrong for the pause. `deeper_after_ns` is how long a CPU takes to
    /// leave the shallowest non-polling state for a deeper one, `not_deeper_ns` how long it was
    /// there if it never went deeper.
    pub struct BurstThenIdle {
        burst_count: u64 = 16, 1..=1_000_000_000, "interrupts of a burst";
        burst_gap_ns: u64 = 10_000, SPAN_NS, "time between them";
        burst_jitter_ns: u64 = 0, SPAN_NS, "each is later by a random time up to this";
        work_ns: u64 = 1_000, SPAN_NS, "what the task does for each";
        quiet_ns: u64 = 1_500_000_000, INTERVAL_NS, "how long nothing comes after a burst";
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

impl EventSource for Bursts {
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

/// Computes forever. Each piece of work is recorded as `computed_ns`.
struct Computing;

const COMPUTING_NS: u64 = 100_000;

impl Program for Computing {
    fn next(&mut self, view: &mut View<'_>) -> Op {
        view.metrics.record("computed_ns", COMPUTING_NS);
        Op::Run { ns: COMPUTING_NS }
    }
}

impl BurstThenIdle {
    pub(super) fn load(&self, _shape: &Shape, _hardware: &Hardware) -> Load {
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
