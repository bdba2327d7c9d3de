//! What makes tasks run, as the steps of a workload log ([`idlewise_trace::causes`]).
//!
//! The simulated machine knows what a recording has to find out: who wakes, after how much of its own work. Only
//! [`Op::Run`](super::Op::Run) counts as a task's own; sends, calls and switches are costs of the machine, which a
//! machine that plays the log adds itself.

use idlewise_trace::causes::{Cause, Step, StepEnd, StepPlace};

use super::cpu::{InterruptCause, Mode, Segment};
use super::task::TaskId;
use super::{Simulation, TaskState};

/// What is told of a task's step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    step_count: u64,
    /// What made it run, when, and the idle state of its CPU then.
    wake: Option<(Cause, u64, Option<u8>)>,
    /// When it got a CPU, if it has.
    run_at_ns: Option<u64>,
    cpu: u16,
    /// What it has run.
    run_ns: u64,
}

impl Simulation<'_> {
    /// A task is made runnable, by CPU `from`.
    pub(super) fn note_waking(&mut self, from: usize, id: TaskId) {
        if !self.setup.keeps_steps {
            return;
        }
        let waker = self.cpus[from].current.filter(|_| self.cause.is_none());
        let (cause, due_at_ns) = match (self.cause, waker) {
            (Some((at_ns, InterruptCause::Device)), _) => (Cause::Interrupt, at_ns),
            (Some((at_ns, InterruptCause::Timer { delay_ns })), _) => {
                let told = &self.tasks[id].told;
                let step = told.step_count.saturating_sub(1);
                let armed = StepPlace { task: id as u32, step, offset_ns: told.run_ns };
                (Cause::Timer { armed, delay_ns }, at_ns)
            }
            (None, Some(waker)) => {
                let told = &self.tasks[waker].told;
                let (step, offset_ns) = (told.step_count, told.run_ns);
                (Cause::Task(StepPlace { task: waker as u32, step, offset_ns }), self.now_ns)
            }
            (None, None) => (Cause::Interrupt, self.now_ns),
        };
        let idle_state = match &self.cpus[self.tasks[id].cpu].mode {
            Mode::Idle(stay) => u8::try_from(stay.entry.state).ok(),
            _ => None,
        };
        self.tasks[id].told.wake = Some((cause, due_at_ns, idle_state));
    }

    /// A task is asked for its next operation: if it was woken, its step begins.
    pub(super) fn note_running(&mut self, cpu: usize, id: TaskId) {
        if !self.setup.keeps_steps {
            return;
        }
        let now_ns = self.now_ns;
        let told = &mut self.tasks[id].told;
        if told.run_at_ns.is_none() {
            told.run_at_ns = Some(now_ns);
            told.cpu = cpu as u16;
            told.run_ns = 0;
        }
    }

    /// A task does work of its own.
    pub(super) fn note_run(&mut self, id: TaskId, ns: u64) {
        self.tasks[id].told.run_ns += ns;
    }

    /// A task waits or has ended.
    pub(super) fn note_end(&mut self, id: TaskId, state: TaskState) {
        self.exited_count += usize::from(state == TaskState::Exited);
        if self.setup.keeps_steps {
            let end = if state == TaskState::Exited { StepEnd::Ends } else { StepEnd::Waits };
            self.end_step(id, end);
        }
    }

    fn end_step(&mut self, id: TaskId, end: StepEnd) {
        let now_ns = self.now_ns as i64;
        let told = &mut self.tasks[id].told;
        let Some(run_at_ns) = told.run_at_ns.take() else { return };
        told.step_count += 1;
        let (cause, due_at_ns, idle_state) = told.wake.take().unwrap_or((Cause::Start, 0, None));
        self.report.steps.push(Step {
            task: id as u32,
            cpu: told.cpu,
            cause,
            due_at_ns: due_at_ns as i64,
            run_at_ns: run_at_ns as i64,
            run_ns: told.run_ns,
            end_at_ns: now_ns,
            end,
            idle_state,
        });
    }

    /// The run is over.
    pub(super) fn end_steps(&mut self) {
        if self.setup.keeps_steps {
            for id in 0..self.tasks.len() {
                // What it had still to do of its current work, it has not run.
                let segments = [self.tasks[id].suspended, self.work_of(id)];
                let left_ns: u64 = segments.iter().flatten().map(|work| work.left_ns).sum();
                let told = &mut self.tasks[id].told;
                told.run_ns = told.run_ns.saturating_sub(left_ns);
                self.end_step(id, StepEnd::Cut);
            }
        }
    }

    /// The work in progress of the task that a CPU runs.
    fn work_of(&self, id: TaskId) -> Option<Segment> {
        let cpu = self.cpus.iter().find(|cpu| cpu.current == Some(id))?;
        let own = cpu.segment.filter(|segment| segment.effect.is_none()).or(cpu.suspended)?;
        let elapsed_ns = self.now_ns - own.started_ns;
        let done_ns = if cpu.segment.is_some() { elapsed_ns } else { 0 };
        Some(Segment { left_ns: own.left_ns.saturating_sub(done_ns), ..own })
    }
}
