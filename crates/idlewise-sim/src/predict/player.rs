//! The tasks of a workload log, and what comes from outside, as programs of the simulated machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fastrand::Rng;
use idlewise_trace::causes::StepEnd;

use super::{Arrival, CausedWorkload};
use crate::simulate::{EventSource, Fired, Found, Irq, Metrics, Op, Program, View};

/// A step that has not come so far.
const NOT_YET: u64 = u64::MAX;

/// When each step was due, got a CPU and ended, in the run. The run is on one thread. The numbers are
/// atomic only so that programs can share them.
pub(super) struct Ledger {
    due_ns: Vec<AtomicU64>,
    run_at_ns: Vec<AtomicU64>,
    end_ns: Vec<AtomicU64>,
    /// Whether it was woken. Otherwise what it waits for was there before the task waited.
    is_woken: Vec<AtomicBool>,
}

impl Ledger {
    pub(super) fn new(step_count: usize) -> Self {
        let times = || (0..step_count).map(|_| AtomicU64::new(NOT_YET)).collect();
        let is_woken = (0..step_count).map(|_| AtomicBool::new(true)).collect();
        Ledger { due_ns: times(), run_at_ns: times(), end_ns: times(), is_woken }
    }

    /// Whether a step's task waited for what makes it run.
    pub(super) fn is_woken(&self, step: usize) -> bool {
        self.is_woken[step].load(Ordering::Relaxed)
    }

    /// When a step was due, ran and ended; `None` if it did not end.
    pub(super) fn times(&self, step: usize) -> Option<[u64; 3]> {
        let times = [&self.due_ns, &self.run_at_ns, &self.end_ns];
        let times = times.map(|of| of[step].load(Ordering::Relaxed));
        (!times.contains(&NOT_YET)).then_some(times)
    }
}

fn set(times: &[AtomicU64], step: u32, at_ns: u64) {
    times[step as usize].store(at_ns, Ordering::Relaxed);
}

/// A task.
pub(super) struct Player {
    workload: Arc<CausedWorkload>,
    ledger: Arc<Ledger>,
    task: u32,
    /// The step, the one after the last, and the next thing to do in it.
    step: u32,
    end: u32,
    next: Next,
    /// The next act, and how much of the step has been run.
    act: u32,
    ran_ns: u64,
    /// It has just woken a task that takes the CPU from it, so much later.
    yields_after_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The step begins.
    Begin,
    /// The wake-up's costs have been paid.
    Work,
    /// The step is over, and the next one's arrival is to be arranged.
    Arrange,
    Wait,
}

impl Player {
    pub(super) fn new(workload: Arc<CausedWorkload>, ledger: Arc<Ledger>, task: usize) -> Self {
        let (step, end) = workload.tasks[task];
        let act = workload.first_acts[step as usize];
        let task = task as u32;
        Player {
            workload,
            ledger,
            task,
            step,
            end,
            next: Next::Begin,
            act,
            ran_ns: 0,
            yields_after_ns: None,
        }
    }

    pub(super) fn first_cpu(&self) -> usize {
        self.workload.steps.get(self.step as usize).map_or(0, |step| usize::from(step.cpu))
    }

    fn awaited(&self, step: u32) -> (u64, usize) {
        (u64::from(step), usize::from(self.workload.steps[step as usize].cpu))
    }

    /// What the step does next; `None` if it is over.
    fn work(&mut self, now_ns: u64) -> Option<Op> {
        let step = self.workload.steps[self.step as usize];
        let last_act = self.workload.first_acts[self.step as usize + 1];
        let act = (self.act < last_act).then(|| self.workload.acts[self.act as usize]);
        let offset_ns = act.map_or(step.run_ns, |act| act.offset_ns.min(step.run_ns));
        if let Some(after_ns) = self.yields_after_ns.take() {
            let ns = after_ns.min(offset_ns.saturating_sub(self.ran_ns));
            if ns > 0 {
                self.ran_ns += ns;
                self.yields_after_ns = Some(0);
                return Some(Op::Run { ns });
            }
            return Some(Op::Yield);
        }
        if offset_ns > self.ran_ns {
            let ns = offset_ns - self.ran_ns;
            self.ran_ns = offset_ns;
            return Some(Op::Run { ns });
        }
        let act = act?;
        self.act += 1;
        let to = self.workload.steps[act.target as usize].task as usize;
        let stamp_ns = u64::from(act.target);
        Some(match act.delay_ns {
            None => {
                set(&self.ledger.due_ns, act.target, now_ns);
                self.yields_after_ns = act.preempts_after_ns;
                Op::Send { to, stamp_ns, capacity: None }
            }
            Some(delay_ns) => {
                let at_ns = now_ns.saturating_add(delay_ns);
                set(&self.ledger.due_ns, act.target, at_ns);
                Op::Arm { at_ns, to, stamp_ns }
            }
        })
    }

    /// Arranges that the next step becomes due, if that is this task's to do.
    fn arrange(&self, now_ns: u64) -> Option<Op> {
        let next = &self.workload.steps[self.step as usize];
        let stamp_ns = u64::from(self.step);
        let to = self.task as usize;
        match next.arrival {
            Arrival::Answer { delay_ns } => {
                set(&self.ledger.due_ns, self.step, now_ns + delay_ns);
                let irq = Irq { work_ns: 0, to: Some(to), stamp_ns };
                Some(Op::Device { delay_ns, cpu: usize::from(next.cpu), irq })
            }
            Arrival::Absolute => {
                let at_ns = next.due_ns.max(now_ns);
                set(&self.ledger.due_ns, self.step, at_ns);
                Some(Op::Arm { at_ns, to, stamp_ns })
            }
            Arrival::AtOnce | Arrival::FromStep | Arrival::Outside => None,
        }
    }
}

impl Program for Player {
    fn awaits(&self) -> Option<(u64, usize)> {
        let step = self.workload.steps.get(self.step as usize).filter(|_| self.step < self.end);
        match step?.arrival {
            Arrival::AtOnce => None,
            _ => Some(self.awaited(self.step)),
        }
    }

    fn preempts(&self) -> bool {
        self.workload.steps.get(self.step as usize).is_none_or(|step| step.preempts)
    }

    fn next(&mut self, view: &mut View<'_>) -> Op {
        let now_ns = view.now_ns;
        loop {
            if self.step == self.end {
                return Op::Exit;
            }
            match self.next {
                Next::Begin => {
                    self.next = Next::Work;
                    if self.workload.steps[self.step as usize].arrival == Arrival::AtOnce {
                        set(&self.ledger.due_ns, self.step, 0);
                    }
                    let step = self.step as usize;
                    let waits = self.workload.steps[step].arrival != Arrival::AtOnce;
                    if waits && view.found == Found::Ready {
                        self.ledger.is_woken[step].store(false, Ordering::Relaxed);
                    }
                    let rest_ns = self.workload.rest_ns(step, view.found);
                    if rest_ns > 0 {
                        return Op::Run { ns: rest_ns };
                    }
                }
                Next::Work => {
                    if self.ledger.run_at_ns[self.step as usize].load(Ordering::Relaxed) == NOT_YET
                    {
                        set(&self.ledger.run_at_ns, self.step, now_ns);
                        self.ran_ns = 0;
                        self.act = self.workload.first_acts[self.step as usize];
                    }
                    if let Some(op) = self.work(now_ns) {
                        return op;
                    }
                    set(&self.ledger.end_ns, self.step, now_ns);
                    view.metrics.operation_count += 1;
                    let is_last = self.workload.steps[self.step as usize].end != StepEnd::Waits;
                    self.step = if is_last { self.end } else { self.step + 1 };
                    self.next = Next::Arrange;
                }
                Next::Arrange => {
                    self.next = Next::Wait;
                    if let Some(op) = self.arrange(now_ns) {
                        return op;
                    }
                }
                Next::Wait => {
                    self.next = Next::Begin;
                    let (stamp_ns, cpu) = self.awaited(self.step);
                    return Op::Await { stamp_ns, cpu };
                }
            }
        }
    }
}

/// Everything that comes from outside at its own time.
pub(super) struct ArrivalSource {
    workload: Arc<CausedWorkload>,
    ledger: Arc<Ledger>,
    /// The steps, the next one last.
    left: Vec<u32>,
}

impl ArrivalSource {
    pub(super) fn new(workload: Arc<CausedWorkload>, ledger: Arc<Ledger>) -> Self {
        let ids = 0..workload.steps.len() as u32;
        let of = |id: u32| &workload.steps[id as usize];
        let mut left: Vec<u32> = ids.filter(|&id| of(id).arrival == Arrival::Outside).collect();
        left.sort_by_key(|&id| std::cmp::Reverse((of(id).due_ns, id)));
        ArrivalSource { workload, ledger, left }
    }

    pub(super) fn first_at_ns(&self) -> Option<u64> {
        self.left.last().map(|&id| self.workload.steps[id as usize].due_ns)
    }
}

impl EventSource for ArrivalSource {
    fn fire(&mut self, now_ns: u64, _rng: &mut Rng, _metrics: &mut Metrics) -> Fired {
        let Some(id) = self.left.pop() else { return Fired::default() };
        let step = &self.workload.steps[id as usize];
        set(&self.ledger.due_ns, id, now_ns);
        let irq = Irq { work_ns: 0, to: Some(step.task as usize), stamp_ns: u64::from(id) };
        Fired { irq: Some((usize::from(step.cpu), irq)), next_at_ns: self.first_at_ns() }
    }
}
