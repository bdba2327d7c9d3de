//! The tasks of a workload log, and what comes from outside, as programs of the simulated machine.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use idlewise_trace::causes::StepEnd;

use super::durations::Wait;
use super::{Arrival, CausedWorkload, Played};
use crate::simulate::{EventSource, Fired, Found, Irq, Metrics, Op, Program, Urgency, View};

/// A task that serves whoever comes looks so far ahead.
const AHEAD_MAX: usize = 64;
/// The message that a step has ended, for a task that waits for it in the middle of a step of its own.
const SPLIT_STAMP: u64 = 1 << 40;
const NOBODY: u32 = u32::MAX;
/// A step that has not come so far.
const NOT_YET: u64 = u64::MAX;

/// A wake-up in the middle of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub(super) task: u32,
    pub(super) wait: Wait,
}

/// When each step was due, got a CPU and ended, in the run. The run is on one thread. The numbers are
/// atomic only so that programs can share them.
pub(super) struct Ledger {
    due_ns: Vec<AtomicU64>,
    run_at_ns: Vec<AtomicU64>,
    end_ns: Vec<AtomicU64>,
    cpu: Vec<AtomicU16>,
    /// The task that waits for a step's end in the middle of a step of its own.
    waiters: Vec<AtomicU32>,
    /// The waits of this kind.
    splits: Mutex<Vec<Split>>,
    /// Whether it was woken. Otherwise what it waits for was there before the task waited.
    is_woken: Vec<AtomicBool>,
}

impl Ledger {
    pub(super) fn new(step_count: usize) -> Self {
        let times = || (0..step_count).map(|_| AtomicU64::new(NOT_YET)).collect();
        let is_woken = (0..step_count).map(|_| AtomicBool::new(true)).collect();
        let cpu = (0..step_count).map(|_| AtomicU16::new(0)).collect();
        let waiters = (0..step_count).map(|_| AtomicU32::new(NOBODY)).collect();
        Ledger {
            due_ns: times(),
            run_at_ns: times(),
            end_ns: times(),
            cpu,
            waiters,
            splits: Mutex::default(),
            is_woken,
        }
    }

    /// Whether a step's task waited for what makes it run.
    pub(super) fn is_woken(&self, step: usize) -> bool {
        self.is_woken[step].load(Ordering::Relaxed)
    }

    /// The CPU on which a step began to run.
    pub(super) fn cpu(&self, step: usize) -> u16 {
        self.cpu[step].load(Ordering::Relaxed)
    }

    /// The waits in the middle of steps.
    pub(super) fn take_splits(&self) -> Vec<Split> {
        self.splits.lock().map(|mut splits| std::mem::take(&mut *splits)).unwrap_or_default()
    }

    fn has_ended(&self, step: u32) -> bool {
        self.end_ns[step as usize].load(Ordering::Relaxed) != NOT_YET
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
    /// The step, and the next thing to do in it.
    step: u32,
    next: Next,
    /// The first step that has not been played, and those after it that have; the one after the last.
    first: u32,
    ahead: BTreeSet<u32>,
    end: u32,
    /// The next act, and how much of the step has been run.
    act: u32,
    ran_ns: u64,
    /// The step whose end it waits for, in the middle of its own.
    asks: Option<u32>,
    /// It has woken a task that takes the CPU from it, so much later.
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
            next: Next::Begin,
            first: step,
            ahead: BTreeSet::new(),
            end,
            act,
            ran_ns: 0,
            asks: None,
            yields_after_ns: None,
        }
    }

    pub(super) fn first_cpu(&self) -> usize {
        self.workload.steps.get(self.step as usize).map_or(0, |step| usize::from(step.cpu))
    }

    /// The steps that may come next, and the CPU: the first that has not been played, and, of a task that serves whoever
    /// comes, those that wake-ups make due before it waits for something else.
    fn awaited(&self) -> ((u64, u64), usize) {
        let steps = &self.workload.steps[self.first as usize..self.end as usize];
        let is_served = |step: &&Played| {
            step.end == StepEnd::Waits
                && matches!(step.arrival, Arrival::FromStep)
                && !step.is_by_timer
        };
        let count = match self.workload.serves[self.task as usize] {
            true => steps.iter().take(AHEAD_MAX).take_while(is_served).count().max(1),
            false => 1,
        };
        let first = u64::from(self.first);
        ((first, first + count as u64), usize::from(steps[0].cpu))
    }

    /// The step that must end before this one goes on, if it has not. Steps that were left out for later might be in its
    /// way.
    fn is_to_ask(&self) -> Option<u32> {
        let is_in_order = self.step == self.first && self.ahead.is_empty();
        let last_act = self.workload.first_acts[self.step as usize + 1];
        if !is_in_order || self.act >= last_act {
            return None;
        }
        let asked = self.workload.acts[self.act as usize].answers?;
        (!self.ledger.has_ended(asked)).then_some(asked)
    }

    /// What it asked for has come. Returns what that wake-up costs.
    fn resume(&self, asked: u32, view: &View<'_>) -> u64 {
        let rest_ns = match view.found {
            Found::Ready => return 0,
            found => self.workload.rest_ns(self.step as usize, found, view.is_remote),
        };
        let from_ns = self.ledger.end_ns[asked as usize].load(Ordering::Relaxed);
        let took_ns = (view.now_ns + rest_ns).saturating_sub(from_ns);
        if let Ok(mut splits) = self.ledger.splits.lock() {
            splits.push(Split { task: self.task, wait: Wait { from_ns, took_ns } });
        }
        rest_ns
    }

    /// A step is over.
    fn advance(&mut self) {
        self.ahead.insert(self.step);
        while self.ahead.remove(&self.first) {
            self.first += 1;
        }
        self.step = self.first;
    }

    pub(super) fn is_pinned(&self) -> bool {
        !self.workload.is_free[self.task as usize]
    }

    /// What the step does next; `None` if it is over.
    fn work(&mut self, now_ns: u64, must_yield: bool) -> Option<Op> {
        let step = self.workload.steps[self.step as usize];
        let last_act = self.workload.first_acts[self.step as usize + 1];
        let act = (self.act < last_act).then(|| self.workload.acts[self.act as usize]);
        if must_yield && self.yields_after_ns.is_none() {
            let first_act = self.workload.first_acts[self.step as usize];
            let last = self.act.checked_sub(1).filter(|&last| last >= first_act);
            let after_ns =
                last.and_then(|last| self.workload.acts[last as usize].preempts_after_ns);
            self.yields_after_ns = Some(after_ns.unwrap_or(self.workload.usual_preemption_ns));
        }
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
            _ => {
                let ((first, _), cpu) = self.awaited();
                Some((first, cpu))
            }
        }
    }

    fn urgency(&self) -> Urgency {
        self.workload.urgencies[self.task as usize]
    }

    fn next(&mut self, view: &mut View<'_>) -> Op {
        match self.next_op(view) {
            Op::Run { ns } if self.workload.speed != 1.0 => {
                Op::Run { ns: (ns as f64 * self.workload.speed).round() as u64 }
            }
            op => op,
        }
    }
}

impl Player {
    fn next_op(&mut self, view: &mut View<'_>) -> Op {
        let now_ns = view.now_ns;
        loop {
            if self.step == self.end {
                return Op::Exit;
            }
            match self.next {
                Next::Begin => {
                    self.next = Next::Work;
                    if let Some(stamp_ns) = view.message {
                        self.step = stamp_ns as u32;
                    }
                    if self.workload.steps[self.step as usize].arrival == Arrival::AtOnce {
                        set(&self.ledger.due_ns, self.step, 0);
                    }
                    let step = self.step as usize;
                    let waits = self.workload.steps[step].arrival != Arrival::AtOnce;
                    if waits && view.found == Found::Ready {
                        self.ledger.is_woken[step].store(false, Ordering::Relaxed);
                    }
                    let rest_ns = self.workload.rest_ns(step, view.found, view.is_remote);
                    if rest_ns > 0 {
                        return Op::Run { ns: rest_ns };
                    }
                }
                Next::Work => {
                    if self.ledger.run_at_ns[self.step as usize].load(Ordering::Relaxed) == NOT_YET
                    {
                        set(&self.ledger.run_at_ns, self.step, now_ns);
                        self.ledger.cpu[self.step as usize]
                            .store(view.cpu as u16, Ordering::Relaxed);
                        self.ran_ns = 0;
                        self.act = self.workload.first_acts[self.step as usize];
                    }
                    if let Some(asked) = self.asks.take() {
                        let rest_ns = self.resume(asked, view);
                        if rest_ns > 0 {
                            return Op::Run { ns: rest_ns };
                        }
                    }
                    if let Some(asked) = self.is_to_ask() {
                        self.asks = Some(asked);
                        self.ledger.waiters[asked as usize].store(self.task, Ordering::Relaxed);
                        let stamp_ns = SPLIT_STAMP + u64::from(asked);
                        let (_, cpu) = self.awaited();
                        let cpu = self.is_pinned().then_some(cpu);
                        return Op::Await { stamps: (stamp_ns, stamp_ns + 1), cpu };
                    }
                    if let Some(op) = self.work(now_ns, view.must_yield) {
                        return op;
                    }
                    let ended = self.step;
                    set(&self.ledger.end_ns, ended, now_ns);
                    view.metrics.operation_count += 1;
                    let is_last = self.workload.steps[self.step as usize].end != StepEnd::Waits;
                    if is_last {
                        (self.first, self.step) = (self.end, self.end);
                    } else {
                        self.advance();
                    }
                    self.next = Next::Arrange;
                    let waiter = self.ledger.waiters[ended as usize].load(Ordering::Relaxed);
                    if waiter != NOBODY {
                        let stamp_ns = SPLIT_STAMP + u64::from(ended);
                        return Op::Send { to: waiter as usize, stamp_ns, capacity: None };
                    }
                }
                Next::Arrange => {
                    self.next = Next::Wait;
                    if let Some(op) = self.arrange(now_ns) {
                        return op;
                    }
                }
                Next::Wait => {
                    self.next = Next::Begin;
                    let (stamps, cpu) = self.awaited();
                    return Op::Await { stamps, cpu: self.is_pinned().then_some(cpu) };
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
