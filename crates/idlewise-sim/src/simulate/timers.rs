//! A CPU's tick, and the timers of its tasks.

use std::mem;

use idlewise_trace::WakeReason;

use super::cpu::{Effect, InterruptCause, Mode, Pending, Timer, TimerUse};
use super::{Event, NextTimer, Simulation};
use crate::idle_loop::StayEnd;

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

    /// Starts the tick again if it was stopped.
    pub(super) fn restart_tick(&mut self, cpu: usize) {
        if mem::take(&mut self.cpus[cpu].idle.tick_stopped) {
            self.arm_tick(cpu);
        }
    }

    pub(super) fn tick(&mut self, cpu: usize) {
        let this = &self.cpus[cpu];
        let is_recorded = this.current.is_some_and(|task| self.tasks[task].is_recorded);
        match this.mode {
            // The next tick is scheduled when this one's work is done.
            Mode::Idle(_) => self.leave_idle(cpu, StayEnd::Tick, WakeReason::Unknown),
            Mode::Running if this.gap.is_none() && !is_recorded => {
                let is_alone = this.current.is_some() && this.run_queue.is_empty();
                self.cpus[cpu].idle.tick_stopped = self.hardware.nohz_full && is_alone;
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
            let delay_ns = timer.hard_at_ns - timer.armed_at_ns;
            self.cause = Some((timer.hard_at_ns.min(now_ns), InterruptCause::Timer { delay_ns }));
            match timer.use_ {
                TimerUse::Wake(task) => {
                    self.report.metrics.record("timer_delay_ns", now_ns - timer.soft_at_ns);
                    self.make_runnable(cpu, task);
                }
                TimerUse::Message { to, stamp_ns } => {
                    self.report.metrics.record("timer_delay_ns", now_ns - timer.soft_at_ns);
                    self.send(cpu, to, stamp_ns);
                }
                TimerUse::Kernel(number) => self.arm_kernel_timer(cpu, number + 1),
                TimerUse::Housekeeping => {
                    if let Some(period_ns) = self.hardware.housekeeping_ns {
                        let next_at_ns = timer.soft_at_ns + period_ns;
                        self.arm_housekeeping(cpu, next_at_ns.max(now_ns + 1));
                    }
                }
            }
        }
        self.cause = None;
    }

    /// Arms the next one of the kernel's own timers that the setup lists.
    pub(super) fn arm_kernel_timer(&mut self, cpu: usize, number: u64) {
        let span_ns = self.setup.kernel_timers_span_ns;
        let Some(list) = self.setup.kernel_timers_ns.get(cpu) else { return };
        let count = list.len() as u64;
        if count == 0 || number >= count && span_ns == 0 {
            return;
        }
        let at_ns = list[(number % count) as usize];
        let at_ns = at_ns.saturating_add((number / count).saturating_mul(span_ns));
        let at_ns = at_ns.max(self.now_ns);
        let use_ = TimerUse::Kernel(number);
        let armed_at_ns = self.now_ns;
        let timer = Timer { soft_at_ns: at_ns, hard_at_ns: at_ns, armed_at_ns, use_ };
        self.cpus[cpu].timers.push(timer);
        self.queue.push(at_ns, Event::Timer { cpu: cpu as u32 });
    }

    /// When the next timer of a CPU is due, as far as the CPU knows.
    pub(super) fn next_timer_ns(&self, cpu: usize) -> Option<u64> {
        let setup = self.setup;
        let known = setup.next_timers.get(cpu).filter(|known| !known.is_empty());
        let is_seen =
            |timer: &&Timer| known.is_none() || !matches!(timer.use_, TimerUse::Kernel(_));
        let armed = self.cpus[cpu].timers.iter().filter(is_seen).map(|timer| timer.hard_at_ns);
        let of_kernel =
            known.map(|known| known_at(known, self.now_ns, setup.kernel_timers_span_ns));
        armed.chain(of_kernel).min()
    }

    pub(super) fn arm_housekeeping(&mut self, cpu: usize, at_ns: u64) {
        self.cpus[cpu].timers.push(Timer {
            soft_at_ns: at_ns,
            hard_at_ns: at_ns,
            armed_at_ns: at_ns,
            use_: TimerUse::Housekeeping,
        });
        self.queue.push(at_ns, Event::Timer { cpu: cpu as u32 });
    }
}

/// When the timer is due that is next at a time. Within the list's span, it is the one that came before that time, unless
/// that is over; then the one after it. The list comes again after its span.
fn known_at(known: &[NextTimer], now_ns: u64, span_ns: u64) -> u64 {
    let round = now_ns.checked_div(span_ns).unwrap_or(0);
    let begun_ns = round.saturating_mul(span_ns);
    let within_ns = now_ns - begun_ns;
    let place = known.partition_point(|timer| timer.from_ns <= within_ns);
    let before = place.checked_sub(1).map(|before| known[before].due_ns);
    let due_ns = before.filter(|&due_ns| due_ns > within_ns);
    let due_ns = due_ns.or_else(|| known.get(place).map(|timer| timer.due_ns));
    // After the last one comes the first one of the next round.
    let due_ns = due_ns.unwrap_or_else(|| known[0].due_ns.saturating_add(span_ns));
    due_ns.saturating_add(begun_ns)
}
