//! A CPU's tick, and the timers of its tasks.

use idlewise_trace::WakeReason;

use super::idle::Mode;
use super::task::TaskId;
use super::work::{Effect, Pending};
use super::{Event, Simulation};
use crate::idle_loop::StayEnd;

/// A timer of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    pub(super) soft_at_ns: u64,
    pub(super) hard_at_ns: u64,
    /// `None` for the kernel's own timer, which repeats.
    pub(super) task: Option<TaskId>,
}

impl Simulation<'_> {
    /// Schedules the tick for the next boundary of the grid.
    pub(super) fn arm_tick(&mut self, cpu: usize) {
        let (now_ns, period_ns) = (self.now_ns, self.period_ns);
        let this = &mut self.cpus[cpu];
        if this.idle.tick_stopped {
            return;
        }
        this.tick_at_ns = this.next_tick_at_ns(now_ns, period_ns);
        this.tick_generation = this.tick_generation.wrapping_add(1);
        let event = Event::Tick { cpu: cpu as u32, generation: this.tick_generation };
        self.queue.push(this.tick_at_ns, event);
    }

    pub(super) fn tick(&mut self, cpu: usize) {
        let this = &self.cpus[cpu];
        let is_recorded = this.current.is_some_and(|task| self.tasks[task].is_recorded);
        match this.mode {
            // The next tick is scheduled when this one's work is done.
            Mode::Idle(_) => self.leave_idle(cpu, StayEnd::Tick, WakeReason::Unknown),
            Mode::Running if this.gap.is_none() && !is_recorded => {
                let work_ns = self.hardware.tick_work_ns;
                self.interrupt(cpu, Pending { work_ns, effect: Effect::Tick }, WakeReason::Timer);
                self.arm_tick(cpu);
            }
            Mode::Running | Mode::Exiting(_) => self.arm_tick(cpu),
        }
    }

    pub(super) fn timer_interrupt(&mut self, cpu: usize) {
        let now_ns = self.now_ns;
        let this = &mut self.cpus[cpu];
        let is_due = this.timers.iter().any(|timer| timer.hard_at_ns <= now_ns);
        if !is_due || this.timer_irq_pending {
            return;
        }
        this.timer_irq_pending = true;
        let pending = Pending { work_ns: self.hardware.irq_entry_ns, effect: Effect::Timers };
        self.interrupt(cpu, pending, WakeReason::Timer);
    }

    pub(super) fn expire_timers(&mut self, cpu: usize) {
        let now_ns = self.now_ns;
        while let Some(index) =
            self.cpus[cpu].timers.iter().position(|timer| timer.soft_at_ns <= now_ns)
        {
            let timer = self.cpus[cpu].timers.remove(index);
            match timer.task {
                Some(task) => {
                    self.report.metrics.record("timer_delay_ns", now_ns - timer.soft_at_ns);
                    self.make_runnable(cpu, task);
                }
                None => {
                    if let Some(period_ns) = self.hardware.housekeeping_ns {
                        let next_at_ns = timer.soft_at_ns + period_ns;
                        self.arm_housekeeping(cpu, next_at_ns.max(now_ns + 1));
                    }
                }
            }
        }
    }

    pub(super) fn arm_housekeeping(&mut self, cpu: usize, at_ns: u64) {
        self.cpus[cpu].timers.push(Timer { soft_at_ns: at_ns, hard_at_ns: at_ns, task: None });
        self.queue.push(at_ns, Event::Timer { cpu: cpu as u32 });
    }
}
