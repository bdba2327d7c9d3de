//! What a CPU runs: interrupts first, then functions that other CPUs called, then tasks in turn.

use idlewise_trace::WakeReason;

use super::cpu::{Effect, InterruptCause, Pending, Segment, Timer, TimerUse};
use super::task::{Found, Irq, Op, TaskId, View};
use super::wake::is_among;
use super::{Event, Mode, Simulation, TaskState};

impl Simulation<'_> {
    /// Runs what is next on a CPU, until something takes time or the CPU goes idle.
    pub(super) fn proceed(&mut self, cpu: usize) {
        loop {
            if !self.step_once() || self.cpus[cpu].segment.is_some() {
                return;
            }
            let this = &mut self.cpus[cpu];
            if let Some(pending) = this.irqs.pop_front() {
                self.begin_irq(cpu, pending);
            } else if !this.calls.is_empty() && !this.call_ipi_pending {
                // It was woken by a store, so the idle loop checks the queue itself.
                self.end_gap_if_open(cpu);
                let work_ns = self.drain_calls(cpu);
                self.begin(cpu, work_ns, None, Some(Effect::Nothing));
            } else if let Some(suspended) = this.suspended.take() {
                self.begin(cpu, suspended.left_ns, suspended.until_ns, None);
            } else if let Some(task) = this.current {
                self.step(cpu, task);
            } else if let Some(task) = self.take_task(cpu) {
                self.end_gap_if_open(cpu);
                self.switch_to(cpu, task);
            } else if self.hardware.idle_loop_ns > 0 && !self.cpus[cpu].is_prepared {
                self.cpus[cpu].is_prepared = true;
                self.begin(cpu, self.hardware.idle_loop_ns, None, Some(Effect::Pause));
            } else {
                self.cpus[cpu].is_prepared = false;
                self.enter_idle(cpu);
                return;
            }
        }
    }

    pub(super) fn switch_to(&mut self, cpu: usize, task: TaskId) {
        let is_recorded = self.tasks[task].is_recorded;
        let this = &mut self.cpus[cpu];
        this.current = Some(task);
        this.left_state = None;
        this.is_wanted = false;
        if is_recorded {
            return;
        }
        this.ran_task = true;
        if !self.hardware.nohz_full || !this.run_queue.is_empty() {
            self.restart_tick(cpu);
        }
        self.cpus[cpu].suspended = self.tasks[task].suspended.take();
        self.begin(cpu, self.hardware.switch_ns, None, None);
    }

    pub(super) fn begin_irq(&mut self, cpu: usize, pending: Pending) {
        let mut work_ns = pending.work_ns;
        if !matches!(pending.effect, Effect::TickInGap | Effect::Pause) {
            self.end_gap_if_open(cpu);
        }
        match pending.effect {
            Effect::Ipi => {
                self.cpus[cpu].call_ipi_pending = false;
                self.cpus[cpu].wake_ipi_pending = false;
                work_ns += self.drain_calls(cpu);
            }
            Effect::Timers => self.cpus[cpu].timer_irq_pending = false,
            _ => {}
        }
        self.begin(cpu, work_ns, None, Some(pending.effect));
    }

    pub(super) fn drain_calls(&mut self, cpu: usize) -> u64 {
        let mut work_ns = 0;
        for (call_ns, asked_at_ns) in self.cpus[cpu].calls.drain(..) {
            work_ns += call_ns;
            self.report.metrics.record("call_ns", self.now_ns - asked_at_ns + work_ns);
        }
        work_ns
    }

    /// Starts a piece of work. Work that takes no time is completed at once.
    #[inline]
    pub(super) fn begin(
        &mut self,
        cpu: usize,
        left_ns: u64,
        until_ns: Option<u64>,
        effect: Option<Effect>,
    ) {
        let rate = self.rate(cpu);
        let segment = Segment { left_ns, until_ns, started_ns: self.now_ns, rate, effect };
        self.cpus[cpu].segment = Some(segment);
        let span_ns = self.span_ns(&segment);
        if span_ns == 0 {
            self.complete_segment(cpu);
        } else {
            self.schedule_done(cpu, span_ns);
        }
    }

    pub(super) fn span_ns(&self, segment: &Segment) -> u64 {
        match segment.until_ns {
            Some(until_ns) => until_ns.saturating_sub(self.now_ns),
            None if segment.rate == 1.0 => segment.left_ns,
            None => (segment.left_ns as f64 / segment.rate).ceil() as u64,
        }
    }

    pub(super) fn schedule_done(&mut self, cpu: usize, span_ns: u64) {
        let this = &mut self.cpus[cpu];
        this.generation = this.generation.wrapping_add(1);
        let event = Event::Done { cpu: cpu as u32, generation: this.generation };
        self.queue.push(self.now_ns + span_ns, event);
    }

    pub(super) fn finish_work(&mut self, cpu: usize) {
        self.complete_segment(cpu);
        self.proceed(cpu);
    }

    pub(super) fn complete_segment(&mut self, cpu: usize) {
        let Some(segment) = self.cpus[cpu].segment.take() else { return };
        let Some(effect) = segment.effect else { return };
        if effect != Effect::Pause {
            self.report.irq_ns += self.now_ns - segment.started_ns;
        }
        self.carry_out(cpu, effect);
        if self.cpus[cpu].is_wanted {
            self.take_turns(cpu);
        }
    }

    /// Does what an interrupt is for.
    fn carry_out(&mut self, cpu: usize, effect: Effect) {
        match effect {
            Effect::Nothing | Effect::Ipi | Effect::Pause => {}
            Effect::Message { to, stamp_ns, at_ns } => {
                self.cause = Some((at_ns, InterruptCause::Device));
                let cost_ns = self.send(cpu, to, stamp_ns);
                self.cause = None;
                self.add_overhead(cpu, cost_ns);
            }
            Effect::Timers => self.expire_timers(cpu),
            Effect::Tick => self.end_slice(cpu),
            Effect::TickInGap => self.arm_tick(cpu),
            Effect::Recorded => {
                if let Some(task) = self.cpus[cpu].recorded_task.take() {
                    self.make_runnable(cpu, task);
                }
            }
        }
    }

    /// Adds interrupt work, to be done before anything else.
    pub(super) fn add_overhead(&mut self, cpu: usize, work_ns: u64) {
        if work_ns > 0 {
            let pending = Pending { work_ns, effect: Effect::Nothing };
            self.cpus[cpu].irqs.push_front(pending);
        }
    }

    /// Queues an interrupt and makes the CPU handle it.
    pub(super) fn interrupt(&mut self, cpu: usize, pending: Pending, reason: WakeReason) {
        self.cpus[cpu].irqs.push_back(pending);
        self.bound_queue("interrupts", self.cpus[cpu].irqs.len(), super::PENDING_IRQ_MAX);
        self.suspend_task(cpu);
        let was_running = matches!(self.cpus[cpu].mode, Mode::Running);
        self.notice(cpu, reason);
        if was_running {
            self.proceed(cpu);
        }
    }

    pub(super) fn device_interrupt(&mut self, cpu: usize, irq: Irq) {
        let effect = match irq.to {
            Some(to) => Effect::Message { to, stamp_ns: irq.stamp_ns, at_ns: self.now_ns },
            None => Effect::Nothing,
        };
        let work_ns = self.hardware.irq_entry_ns + irq.work_ns;
        self.interrupt(cpu, Pending { work_ns, effect }, WakeReason::Irq);
    }

    pub(super) fn store_irq(&mut self, irq: Irq) -> u32 {
        if let Some(slot) = self.free_slots.pop() {
            self.irqs[slot as usize] = irq;
            return slot;
        }
        self.irqs.push(irq);
        (self.irqs.len() - 1) as u32
    }

    /// Takes a task's work off the CPU. An interrupt's work continues.
    pub(super) fn suspend_task(&mut self, cpu: usize) {
        let now_ns = self.now_ns;
        let this = &mut self.cpus[cpu];
        let Some(segment) = this.segment.filter(|segment| segment.effect.is_none()) else { return };
        this.segment = None;
        this.generation = this.generation.wrapping_add(1);
        this.suspended = Some(Segment { left_ns: left_ns(&segment, now_ns), ..segment });
    }

    /// The CPU's speed changed. The remaining work continues at the new speed.
    pub(super) fn change_rate(&mut self, cpu: usize) {
        let rate = self.rate(cpu);
        let now_ns = self.now_ns;
        let Some(segment) = self.cpus[cpu].segment else { return };
        if segment.rate == rate {
            return;
        }
        if segment.effect.is_some() {
            self.report.irq_ns += now_ns - segment.started_ns;
        }
        let left_ns = left_ns(&segment, now_ns);
        let segment = Segment { left_ns, started_ns: now_ns, rate, ..segment };
        self.cpus[cpu].segment = Some(segment);
        let span_ns = self.span_ns(&segment);
        self.schedule_done(cpu, span_ns);
    }

    pub(super) fn take_turns(&mut self, cpu: usize) {
        let this = &mut self.cpus[cpu];
        // A task between two pieces of work looks the same as one that is about to block.
        if this.suspended.is_none() || this.run_queue.is_empty() {
            return;
        }
        let Some(task) = this.current.take() else { return };
        this.run_queue.put_back(self.now_ns);
        self.tasks[task].suspended = this.suspended.take();
        self.tasks[task].ran_at_ns = self.now_ns;
    }

    /// A tick: the task that runs makes room if its slice is over.
    fn end_slice(&mut self, cpu: usize) {
        let this = &mut self.cpus[cpu];
        this.run_queue.count(self.now_ns);
        if this.run_queue.is_over() {
            self.take_turns(cpu);
        }
    }

    /// Executes one operation of the running task.
    pub(super) fn step(&mut self, cpu: usize, id: TaskId) {
        self.note_running(cpu, id);
        let task = &mut self.tasks[id];
        let op = match task.retried.take() {
            Some(op) => op,
            None => {
                let mut program = task.program.take().expect("a running task has a program");
                let mut view = View {
                    now_ns: self.now_ns,
                    cpu,
                    message: task.message.take(),
                    sender_cost_ns: task.sender_cost_ns,
                    found: task.found,
                    is_remote: task.is_woken_remotely,
                    must_yield: self.cpus[cpu].is_wanted,
                    waiting_count: task.mailbox.len(),
                    rng: &mut self.rng,
                    metrics: &mut self.report.metrics,
                };
                let op = program.next(&mut view);
                self.tasks[id].program = Some(program);
                op
            }
        };
        match op {
            Op::Run { ns } => {
                self.note_run(id, ns);
                self.begin(cpu, ns, None, None);
            }
            Op::RunUntil { at_ns } => self.begin(cpu, 0, Some(at_ns), None),
            Op::Send { to, stamp_ns, capacity } => self.step_send(cpu, id, to, stamp_ns, capacity),
            Op::Wait => self.step_wait(cpu, id),
            Op::SleepUntil { at_ns, slack_ns } => {
                self.block(cpu, id, TaskState::Sleeping);
                let hard_at_ns = at_ns.max(self.now_ns).saturating_add(slack_ns);
                let use_ = TimerUse::Wake(id);
                let armed_at_ns = self.now_ns;
                let timer = Timer { soft_at_ns: at_ns, hard_at_ns, armed_at_ns, use_ };
                self.cpus[cpu].timers.push(timer);
                self.queue.push(hard_at_ns, Event::Timer { cpu: cpu as u32 });
            }
            Op::Await { stamps, cpu: target } => self.step_await(cpu, id, stamps, target),
            Op::Yield => {
                let this = &mut self.cpus[cpu];
                this.current = None;
                this.run_queue.put_back(self.now_ns);
                self.tasks[id].ran_at_ns = self.now_ns;
            }
            Op::Arm { at_ns, to, stamp_ns } => {
                let at_ns = at_ns.max(self.now_ns);
                let use_ = TimerUse::Message { to, stamp_ns };
                let armed_at_ns = self.now_ns;
                let timer = Timer { soft_at_ns: at_ns, hard_at_ns: at_ns, armed_at_ns, use_ };
                self.cpus[cpu].timers.push(timer);
                self.queue.push(at_ns, Event::Timer { cpu: cpu as u32 });
            }
            Op::Call { cpu: target, work_ns } => {
                if let Err(error) = self.check_cpu(target) {
                    self.error = Some(error);
                    return;
                }
                let cost_ns = self.call(cpu, target, work_ns);
                self.tasks[id].sender_cost_ns = cost_ns;
                self.begin(cpu, cost_ns, None, None);
            }
            Op::Device { delay_ns, cpu: target, irq } => {
                if let Err(error) = self.check_cpu(target) {
                    self.error = Some(error);
                    return;
                }
                let slot = self.store_irq(irq);
                let event = Event::Interrupt { cpu: target as u32, slot };
                self.queue.push(self.now_ns + delay_ns, event);
            }
            Op::Gap(gap) => self.play_gap(cpu, id, gap),
            Op::Exit => self.block(cpu, id, TaskState::Exited),
        }
    }

    pub(super) fn step_send(
        &mut self,
        cpu: usize,
        id: TaskId,
        to: TaskId,
        stamp_ns: u64,
        capacity: Option<u32>,
    ) {
        let full = capacity.is_some_and(|room| self.tasks[to].mailbox.len() >= room as usize);
        if full {
            self.tasks[to].senders.push(id);
            self.tasks[id].retried = Some(Op::Send { to, stamp_ns, capacity });
            self.block(cpu, id, TaskState::Waiting);
            return;
        }
        let cost_ns = self.send(cpu, to, stamp_ns);
        self.tasks[id].sender_cost_ns = cost_ns;
        self.begin(cpu, cost_ns, None, None);
    }

    pub(super) fn step_wait(&mut self, cpu: usize, id: TaskId) {
        match self.tasks[id].mailbox.pop_front() {
            Some(stamp_ns) => {
                self.report.tasks.taken_count += 1;
                self.tasks[id].message = Some(stamp_ns);
                if self.tasks[id].mailbox.is_empty() {
                    for sender in std::mem::take(&mut self.tasks[id].senders) {
                        let cost_ns = self.make_runnable(cpu, sender);
                        self.add_overhead(cpu, cost_ns);
                    }
                }
            }
            None => {
                self.tasks[id].retried = Some(Op::Wait);
                self.block(cpu, id, TaskState::Waiting);
            }
        }
    }

    /// Waits for one of these messages, and goes on on CPU `target`, if there is one.
    fn step_await(&mut self, cpu: usize, id: TaskId, stamps: (u64, u64), target: Option<usize>) {
        if let Err(error) = self.check_cpu(target.unwrap_or(cpu)) {
            self.error = Some(error);
            return;
        }
        let mailbox = &mut self.tasks[id].mailbox;
        let place = mailbox.iter().position(|&stamp| is_among(stamp, stamps));
        if let (Some(place), true) = (place, target.is_none_or(|target| target == cpu)) {
            let stamp_ns = mailbox.remove(place);
            self.report.tasks.taken_count += 1;
            let task = &mut self.tasks[id];
            task.message = stamp_ns;
            // It has just been woken for this message if it waited for it.
            if !std::mem::take(&mut task.has_waited) {
                task.found = Found::Ready;
            }
            return;
        }
        self.tasks[id].has_waited = true;
        self.tasks[id].retried = Some(Op::Await { stamps, cpu: target });
        self.block(cpu, id, TaskState::Waiting);
        self.tasks[id].cpu = target.unwrap_or(cpu);
        if place.is_some() {
            let cost_ns = self.make_runnable(cpu, id);
            self.add_overhead(cpu, cost_ns);
        }
    }

    pub(super) fn block(&mut self, cpu: usize, id: TaskId, state: TaskState) {
        self.tasks[id].state = state;
        self.note_end(id, state);
        let this = &mut self.cpus[cpu];
        this.current = None;
        this.run_queue.block(self.now_ns, &mut self.lags_ns);
        self.note_runnable(cpu, id, false);
    }
}

/// The remaining work of a segment.
fn left_ns(segment: &Segment, now_ns: u64) -> u64 {
    let elapsed_ns = now_ns - segment.started_ns;
    let done_ns = match segment.rate {
        1.0 => elapsed_ns,
        rate => (elapsed_ns as f64 * rate) as u64,
    };
    segment.left_ns.saturating_sub(done_ns)
}
