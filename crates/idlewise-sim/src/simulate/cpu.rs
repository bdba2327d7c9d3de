//! One CPU: what it runs, how it goes idle, how it leaves.

use std::collections::VecDeque;

use idlewise_core::{Doorbell, FAR_AWAY_NS, NO_LATENCY_LIMIT_NS};
use idlewise_trace::{IdleGap, WakeReason};

use super::task::{Irq, Op, TaskId, View};
use super::{Event, SimulationError, TaskState, World};
use crate::idle_loop::{Boxed, Entry, IdleLoop, Outlook, StayEnd, Stayed};

/// An interrupt, or something done like one, that waits for its turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub work_ns: u64,
    pub effect: Effect,
}

/// What an interrupt does at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    Message {
        to: TaskId,
        stamp_ns: u64,
    },
    Timers,
    Ipi,
    Tick,
    /// The tick's work within a gap: nothing else runs.
    TickInGap,
    /// A moment that must pass within a gap.
    Pause,
    /// A recorded wake event.
    Recorded,
}

/// A piece of work under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// What is left at nominal speed, as of `started_ns`.
    left_ns: u64,
    /// Be busy until then instead.
    until_ns: Option<u64>,
    started_ns: u64,
    rate: f64,
    /// An interrupt's effect; none for a task's own work.
    effect: Option<Effect>,
}

/// An idle stay under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleStay {
    pub entry: Entry,
    since_ns: u64,
    /// When the entry is over; it can't be aborted.
    entered_at_ns: u64,
}

/// A state being left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    pub entry: Entry,
    stay_ns: u64,
    exit_ns: u64,
    end: StayEnd,
    tick_ran: bool,
    reason: WakeReason,
    left_at_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    Running,
    Idle(IdleStay),
    Exiting(Exit),
}

/// A timer of a task.
#[derive(Clone, Copy, Debug)]
struct Timer {
    soft_at_ns: u64,
    hard_at_ns: u64,
    /// The kernel's own timer has none, and comes again.
    task: Option<TaskId>,
}

/// A gap that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenGap {
    start_ns: u64,
    sleep_length_ns: Option<u64>,
    next_tick_ns: u64,
    latency_limit_ns: i64,
    tick_stopped: bool,
    ran_task: bool,
    first_state: usize,
    idle_ns: u64,
    /// Since when the CPU has been in the shallowest state that doesn't poll, and how many stays.
    shallow_since_ns: u64,
    shallow_count: u64,
    /// An event came while the CPU was not asleep, and why.
    event: Option<(u64, WakeReason)>,
}

pub(super) struct Cpu {
    pub idle: IdleLoop<Boxed>,
    pub mode: Mode,
    /// Of the latest Awake, Done or IdleLimit; older ones are void.
    pub generation: u32,
    pub tick_generation: u32,
    /// The next line of the tick grid, if the tick runs.
    pub tick_at_ns: u64,
    tick_phase_ns: u64,
    current: Option<TaskId>,
    pub run_queue: VecDeque<TaskId>,
    irqs: VecDeque<Pending>,
    pub segment: Option<Segment>,
    suspended: Option<Segment>,
    timers: Vec<Timer>,
    timer_irq_pending: bool,
    /// Functions that other CPUs want run here: work and when it was asked for.
    pub calls: Vec<(u64, u64)>,
    pub call_ipi_pending: bool,
    pub wake_ipi_pending: bool,
    /// What wakers look at: it polls while the CPU is in a state that monitors memory.
    pub doorbell: Doorbell,
    ran_task: bool,
    /// The idle loop's own work before the stay is done.
    is_prepared: bool,
    gap: Option<OpenGap>,
    recorded: Option<Box<IdleGap>>,
    recorded_task: Option<TaskId>,
    since_ns: u64,
}

impl Cpu {
    pub(super) fn new(idle: IdleLoop<Boxed>) -> Self {
        Cpu {
            idle,
            mode: Mode::Running,
            generation: 0,
            tick_generation: 0,
            tick_at_ns: 0,
            tick_phase_ns: 0,
            current: None,
            run_queue: VecDeque::new(),
            irqs: VecDeque::new(),
            segment: None,
            suspended: None,
            timers: Vec::new(),
            timer_irq_pending: false,
            calls: Vec::new(),
            call_ipi_pending: false,
            wake_ipi_pending: false,
            doorbell: Doorbell::new(),
            ran_task: true,
            is_prepared: false,
            gap: None,
            recorded: None,
            recorded_task: None,
            since_ns: 0,
        }
    }

    /// The state of an idle CPU.
    pub(super) fn idle_state(&self) -> Option<usize> {
        match &self.mode {
            Mode::Idle(stay) => Some(stay.entry.state),
            _ => None,
        }
    }

    /// The next line of the grid after `now_ns`.
    fn next_tick_at_ns(&self, now_ns: u64, period_ns: u64) -> u64 {
        let phase_ns = self.tick_phase_ns % period_ns;
        now_ns + period_ns - (now_ns % period_ns + period_ns - phase_ns) % period_ns
    }
}

impl World<'_> {
    /// Adds the time since the last call to what the CPU was doing.
    pub(super) fn account_cpu(&mut self, cpu: usize) {
        let now_ns = self.now_ns;
        let this = &mut self.cpus[cpu];
        let span_ns = now_ns - this.since_ns;
        this.since_ns = now_ns;
        match this.mode {
            Mode::Idle(_) => self.report.idle_ns += span_ns,
            Mode::Exiting(_) => {
                self.report.busy_ns += span_ns;
                self.report.exit_ns += span_ns;
            }
            Mode::Running => self.report.busy_ns += span_ns,
        }
    }

    #[inline]
    fn set_mode(&mut self, cpu: usize, mode: Mode) {
        self.account_cpu(cpu);
        let bit = 1 << (cpu % 64);
        match mode {
            Mode::Idle(_) => self.idle_cpus[cpu / 64] |= bit,
            _ => self.idle_cpus[cpu / 64] &= !bit,
        }
        self.cpus[cpu].mode = mode;
        self.cpus[cpu].generation = self.cpus[cpu].generation.wrapping_add(1);
        self.update_core(cpu);
    }

    /// Does what is next on a running CPU, until something takes time or it goes idle.
    pub(super) fn proceed(&mut self, cpu: usize) {
        loop {
            if !self.step_once() || self.cpus[cpu].segment.is_some() {
                return;
            }
            let this = &mut self.cpus[cpu];
            if let Some(pending) = this.irqs.pop_front() {
                self.begin_irq(cpu, pending);
            } else if !this.calls.is_empty() && !this.call_ipi_pending {
                // Woken by a store: the idle loop looks at the queue itself.
                self.end_gap_if_open(cpu);
                let work_ns = self.drain_calls(cpu);
                self.begin(cpu, work_ns, None, Some(Effect::Nothing));
            } else if let Some(suspended) = this.suspended.take() {
                self.begin(cpu, suspended.left_ns, suspended.until_ns, None);
            } else if let Some(task) = this.current {
                self.step(cpu, task);
            } else if let Some(task) = this.run_queue.pop_front() {
                self.end_gap_if_open(cpu);
                self.switch_to(cpu, task);
            } else if self.hardware.idle_loop_ns > 0 && !this.is_prepared {
                this.is_prepared = true;
                self.begin(cpu, self.hardware.idle_loop_ns, None, Some(Effect::Pause));
            } else {
                self.cpus[cpu].is_prepared = false;
                self.enter_idle(cpu);
                return;
            }
        }
    }

    fn switch_to(&mut self, cpu: usize, task: TaskId) {
        let is_recorded = self.tasks[task].is_recorded;
        let this = &mut self.cpus[cpu];
        this.current = Some(task);
        if is_recorded {
            return;
        }
        this.ran_task = true;
        if this.idle.tick_stopped {
            this.idle.tick_stopped = false;
            self.arm_tick(cpu);
        }
        self.cpus[cpu].suspended = self.tasks[task].suspended.take();
        self.begin(cpu, self.hardware.switch_ns, None, None);
    }

    fn begin_irq(&mut self, cpu: usize, pending: Pending) {
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

    fn drain_calls(&mut self, cpu: usize) -> u64 {
        let mut work_ns = 0;
        for (call_ns, asked_at_ns) in self.cpus[cpu].calls.drain(..) {
            work_ns += call_ns;
            self.report.metrics.record("call_ns", self.now_ns - asked_at_ns + work_ns);
        }
        work_ns
    }

    /// Starts a piece of work; one that takes no time is done at once.
    #[inline]
    fn begin(&mut self, cpu: usize, left_ns: u64, until_ns: Option<u64>, effect: Option<Effect>) {
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

    fn span_ns(&self, segment: &Segment) -> u64 {
        match segment.until_ns {
            Some(until_ns) => until_ns.saturating_sub(self.now_ns),
            None if segment.rate == 1.0 => segment.left_ns,
            None => (segment.left_ns as f64 / segment.rate).ceil() as u64,
        }
    }

    fn schedule_done(&mut self, cpu: usize, span_ns: u64) {
        let this = &mut self.cpus[cpu];
        this.generation = this.generation.wrapping_add(1);
        let event = Event::Done { cpu: cpu as u32, generation: this.generation };
        self.queue.push(self.now_ns + span_ns, event);
    }

    pub(super) fn finish_work(&mut self, cpu: usize) {
        self.complete_segment(cpu);
        self.proceed(cpu);
    }

    fn complete_segment(&mut self, cpu: usize) {
        let Some(segment) = self.cpus[cpu].segment.take() else { return };
        let Some(effect) = segment.effect else { return };
        if effect != Effect::Pause {
            self.report.irq_ns += self.now_ns - segment.started_ns;
        }
        match effect {
            Effect::Nothing | Effect::Ipi | Effect::Pause => {}
            Effect::Message { to, stamp_ns } => {
                let cost_ns = self.send(cpu, to, stamp_ns);
                self.add_overhead(cpu, cost_ns);
            }
            Effect::Timers => self.expire_timers(cpu),
            Effect::Tick => self.take_turns(cpu),
            Effect::TickInGap => self.arm_tick(cpu),
            Effect::Recorded => {
                if let Some(task) = self.cpus[cpu].recorded_task.take() {
                    self.make_runnable(cpu, task);
                }
            }
        }
    }

    /// More interrupt work, before anything else.
    fn add_overhead(&mut self, cpu: usize, work_ns: u64) {
        if work_ns > 0 {
            let pending = Pending { work_ns, effect: Effect::Nothing };
            self.cpus[cpu].irqs.push_front(pending);
        }
    }

    fn take_turns(&mut self, cpu: usize) {
        let this = &mut self.cpus[cpu];
        // A task between two pieces of work can't be told from one that is about to block.
        if this.suspended.is_none() || this.run_queue.is_empty() {
            return;
        }
        let Some(task) = this.current.take() else { return };
        this.run_queue.push_back(task);
        self.tasks[task].suspended = this.suspended.take();
    }

    /// One step of the running task.
    fn step(&mut self, cpu: usize, id: TaskId) {
        let task = &mut self.tasks[id];
        let op = match task.retried.take() {
            Some(op) => op,
            None => {
                let mut program = task.program.take().expect("a running task has a program");
                let mut view = View {
                    now_ns: self.now_ns,
                    message: task.message.take(),
                    sender_cost_ns: task.sender_cost_ns,
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
            Op::Run { ns } => self.begin(cpu, ns, None, None),
            Op::RunUntil { at_ns } => self.begin(cpu, 0, Some(at_ns), None),
            Op::Send { to, stamp_ns, capacity } => self.step_send(cpu, id, to, stamp_ns, capacity),
            Op::Wait => self.step_wait(cpu, id),
            Op::SleepUntil { at_ns, slack_ns } => {
                self.block(cpu, id, TaskState::Sleeping);
                let hard_at_ns = at_ns.max(self.now_ns).saturating_add(slack_ns);
                self.cpus[cpu].timers.push(Timer { soft_at_ns: at_ns, hard_at_ns, task: Some(id) });
                self.queue.push(hard_at_ns, Event::Timer { cpu: cpu as u32 });
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

    fn store_irq(&mut self, irq: Irq) -> u32 {
        if let Some(slot) = self.free_slots.pop() {
            self.irqs[slot as usize] = irq;
            return slot;
        }
        self.irqs.push(irq);
        (self.irqs.len() - 1) as u32
    }

    fn step_send(
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

    fn step_wait(&mut self, cpu: usize, id: TaskId) {
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

    fn block(&mut self, cpu: usize, id: TaskId, state: TaskState) {
        self.tasks[id].state = state;
        self.cpus[cpu].current = None;
    }

    /// Asks the governor and goes to sleep.
    fn enter_idle(&mut self, cpu: usize) {
        let (now_ns, period_ns) = (self.now_ns, self.period_ns);
        let this = &mut self.cpus[cpu];
        let next_tick_at_ns = if this.idle.tick_stopped {
            this.next_tick_at_ns(now_ns, period_ns)
        } else {
            this.tick_at_ns
        };
        let start_ns = this.gap.map_or(now_ns, |gap| gap.start_ns);
        let timer_left_ns = match &this.recorded {
            Some(gap) => match gap.sleep_length_ns {
                Some(length_ns) if length_ns >= now_ns - start_ns => {
                    i64::try_from(length_ns - (now_ns - start_ns)).unwrap_or(FAR_AWAY_NS)
                }
                _ => FAR_AWAY_NS,
            },
            None => {
                let next = this.timers.iter().map(|timer| timer.hard_at_ns).min();
                next.map_or(FAR_AWAY_NS, |at_ns| at_ns as i64 - now_ns as i64)
            }
        };
        let recorded_limit_ns = this.recorded.as_ref().and_then(|gap| gap.latency_limit_ns);
        let recorded_limit_ns = recorded_limit_ns.and_then(|ns| i64::try_from(ns).ok());
        let outlook = Outlook {
            now_ns,
            timer_left_ns,
            tick_left_ns: next_tick_at_ns.saturating_sub(now_ns),
            latency_limit_ns: recorded_limit_ns
                .map_or(self.setup.latency_limit_ns, |ns| ns.min(self.setup.latency_limit_ns)),
        };
        let tick_stopped = this.idle.tick_stopped;
        let entry = this.idle.select(outlook, &mut self.report.idle);
        if this.idle.tick_stopped && !tick_stopped {
            this.tick_generation = this.tick_generation.wrapping_add(1);
        }
        let ran_task = std::mem::replace(&mut this.ran_task, false);
        this.gap.get_or_insert(OpenGap {
            start_ns,
            sleep_length_ns: u64::try_from(timer_left_ns)
                .ok()
                .filter(|_| timer_left_ns != FAR_AWAY_NS),
            next_tick_ns: outlook.tick_left_ns,
            latency_limit_ns: outlook.latency_limit_ns,
            tick_stopped,
            ran_task,
            first_state: entry.state,
            idle_ns: 0,
            shallow_since_ns: 0,
            shallow_count: 0,
            event: None,
        });
        self.note_round(cpu, entry.state);
        let this = &mut self.cpus[cpu];
        if self.hardware.ipi_less && entry.rule.wakes_on_store {
            this.doorbell.start_polling();
        }
        let entry_ns = match self.hardware.entry_ratio {
            0.0 => 0,
            ratio => (entry.rule.exit_latency_ns as f64 * ratio) as u64,
        };
        let stay = IdleStay { entry, since_ns: now_ns, entered_at_ns: now_ns + entry_ns };
        self.set_mode(cpu, Mode::Idle(stay));
        let limit_ns = match self.hardware.umwait_max_ns {
            Some(max_ns) if self.is_umwait[entry.state] => entry.own_limit_ns.min(max_ns),
            _ => entry.own_limit_ns,
        };
        if limit_ns != u64::MAX {
            let generation = self.cpus[cpu].generation;
            let event = Event::IdleLimit { cpu: cpu as u32, generation };
            self.queue.push(now_ns.saturating_add(limit_ns), event);
        }
    }

    /// Notes how long a CPU takes to get deeper than the shallowest state that doesn't poll.
    fn note_round(&mut self, cpu: usize, state: usize) {
        let now_ns = self.now_ns;
        let Some(gap) = &mut self.cpus[cpu].gap else { return };
        if state == self.shallow_state {
            if gap.shallow_count == 0 {
                gap.shallow_since_ns = now_ns;
            }
            gap.shallow_count += 1;
        } else if state > self.shallow_state && gap.shallow_count > 0 {
            let rounds = std::mem::take(&mut gap.shallow_count);
            let metrics = &mut self.report.metrics;
            metrics.record("deeper_after_ns", now_ns - gap.shallow_since_ns);
            metrics.record("deeper_after_rounds", rounds);
        }
    }

    pub(super) fn idle_limit(&mut self, cpu: usize) {
        let Mode::Idle(stay) = self.cpus[cpu].mode else { return };
        let end = match stay.entry.rule.is_polling {
            true => StayEnd::PollLimit,
            false if self.now_ns - stay.since_ns < stay.entry.own_limit_ns => StayEnd::Deadline,
            false => StayEnd::Promotion,
        };
        self.leave_idle(cpu, end, WakeReason::Unknown);
    }

    /// An event reaches a CPU. If it sleeps it begins to wake up; if it is busy within a gap, the
    /// event is late.
    pub(super) fn notice(&mut self, cpu: usize, reason: WakeReason) {
        match self.cpus[cpu].mode {
            Mode::Idle(_) => self.leave_idle(cpu, StayEnd::Event, reason),
            Mode::Exiting(exit) if exit.end == StayEnd::Event => {}
            Mode::Exiting(_) | Mode::Running => {
                let now_ns = self.now_ns;
                if let Some(gap) = &mut self.cpus[cpu].gap {
                    gap.event.get_or_insert((now_ns, reason));
                }
            }
        }
    }

    fn leave_idle(&mut self, cpu: usize, end: StayEnd, reason: WakeReason) {
        let now_ns = self.now_ns;
        let Mode::Idle(stay) = self.cpus[cpu].mode else { return };
        let this = &self.cpus[cpu];
        let tick_is_now = !this.idle.tick_stopped && this.tick_at_ns == now_ns;
        let is_on_grid = || now_ns % self.period_ns == this.tick_phase_ns % self.period_ns;
        let tick_ran = match end {
            StayEnd::Tick => true,
            StayEnd::Event => tick_is_now || reason == WakeReason::Timer && is_on_grid(),
            StayEnd::PollLimit | StayEnd::Promotion | StayEnd::Deadline => false,
        };
        // A poll that only reached its limit has nothing to leave.
        let exit_ns = match end {
            StayEnd::PollLimit => stay.entry.rule.exit_latency_ns,
            _ => self.exit_ns(cpu, &stay.entry, stay.entered_at_ns),
        };
        let stay_ns = now_ns - stay.since_ns;
        let entry = stay.entry;
        let exit = Exit { entry, stay_ns, exit_ns, end, tick_ran, reason, left_at_ns: now_ns };
        self.set_mode(cpu, Mode::Exiting(exit));
        if exit_ns == 0 || end == StayEnd::PollLimit {
            self.awake(cpu);
        } else {
            let generation = self.cpus[cpu].generation;
            self.queue.push(now_ns + exit_ns, Event::Awake { cpu: cpu as u32, generation });
        }
    }

    /// The CPU runs again.
    pub(super) fn awake(&mut self, cpu: usize) {
        let Mode::Exiting(exit) = self.cpus[cpu].mode else { return };
        self.set_mode(cpu, Mode::Running);
        let Exit { entry, stay_ns, exit_ns, end, tick_ran, reason, left_at_ns } = exit;
        let this = &mut self.cpus[cpu];
        this.doorbell.take();
        let tally = &mut self.report.idle;
        let stayed = Stayed { stay_ns, exit_ns, end, tick_ran, now_ns: left_at_ns + exit_ns };
        let residency_ns = this.idle.reflect(&entry, stayed, tally);
        if let Some(gap) = &mut this.gap {
            gap.idle_ns += residency_ns;
        }
        match end {
            StayEnd::Event => {
                let state = &mut tally.states[entry.state];
                state.wake_count += 1;
                let is_ipi = matches!(reason, WakeReason::Ipi | WakeReason::Resched);
                state.free_ipi_count += u64::from(is_ipi && entry.rule.wakes_on_store);
                self.end_gap(cpu, left_at_ns, reason);
            }
            StayEnd::Tick => {
                tally.tick_wake_count += 1;
                tally.work_ns += exit_ns + self.hardware.tick_work_ns;
                let pending =
                    Pending { work_ns: self.hardware.tick_work_ns, effect: Effect::TickInGap };
                this.irqs.push_front(pending);
            }
            // A limit of 0 must not stop the clock.
            StayEnd::PollLimit if stay_ns == 0 => {
                let pending = Pending { work_ns: 1, effect: Effect::Pause };
                this.irqs.push_front(pending);
            }
            StayEnd::PollLimit => {}
            StayEnd::Promotion => {
                tally.auto_promotion_count += 1;
                tally.work_ns += exit_ns;
            }
            StayEnd::Deadline => tally.work_ns += exit_ns,
        }
        self.proceed(cpu);
    }

    /// Ends a gap whose event came while the CPU was busy with the tick or a promotion.
    fn end_gap_if_open(&mut self, cpu: usize) {
        let Some(gap) = self.cpus[cpu].gap else { return };
        let (at_ns, reason) = gap.event.unwrap_or((self.now_ns, WakeReason::Unknown));
        self.report.idle.overruns.record(self.now_ns - at_ns);
        self.end_gap(cpu, at_ns, reason);
    }

    fn end_gap(&mut self, cpu: usize, at_ns: u64, reason: WakeReason) {
        let Some(gap) = self.cpus[cpu].gap.take() else { return };
        self.cpus[cpu].recorded = None;
        let gap_ns = at_ns - gap.start_ns;
        if gap.shallow_count > 0 {
            let shallow_ns = at_ns.saturating_sub(gap.shallow_since_ns);
            self.report.metrics.record("not_deeper_ns", shallow_ns);
        }
        let tally = &mut self.report.idle;
        tally.gap_count += 1;
        tally.gap_ns += gap_ns;
        tally.timerless_gap_count += u64::from(gap.sleep_length_ns.is_none());
        if self.setup.keeps_gaps {
            self.report.gaps.push(IdleGap {
                cpu: cpu as u16,
                start_ns: gap.start_ns as i64,
                gap_ns,
                sleep_length_ns: gap.sleep_length_ns,
                next_tick_ns: u32::try_from(gap.next_tick_ns).ok(),
                tick_stopped: gap.tick_stopped,
                ran_task: gap.ran_task,
                wake_reason: reason,
                latency_limit_ns: u64::try_from(gap.latency_limit_ns)
                    .ok()
                    .filter(|_| gap.latency_limit_ns < NO_LATENCY_LIMIT_NS),
                recorded_state: u8::try_from(gap.first_state).ok(),
                recorded_idle_ns: Some(gap.idle_ns),
            });
        }
    }

    /// Has the tick come at the next line of the grid.
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
            // The next one is armed when this one's work is done.
            Mode::Idle(_) => self.leave_idle(cpu, StayEnd::Tick, WakeReason::Unknown),
            Mode::Running if this.gap.is_none() && !is_recorded => {
                let work_ns = self.hardware.tick_work_ns;
                self.interrupt(cpu, Pending { work_ns, effect: Effect::Tick }, WakeReason::Timer);
                self.arm_tick(cpu);
            }
            Mode::Running | Mode::Exiting(_) => self.arm_tick(cpu),
        }
    }

    /// Queues an interrupt and has the CPU turn to it.
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

    /// Takes a task's work off the CPU; an interrupt's goes on.
    fn suspend_task(&mut self, cpu: usize) {
        let now_ns = self.now_ns;
        let this = &mut self.cpus[cpu];
        let Some(segment) = this.segment.filter(|segment| segment.effect.is_none()) else { return };
        this.segment = None;
        this.generation = this.generation.wrapping_add(1);
        this.suspended = Some(Segment { left_ns: left_ns(&segment, now_ns), ..segment });
    }

    /// The speed of a CPU changed: what is under way takes its remainder at the new one.
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

    pub(super) fn device_interrupt(&mut self, cpu: usize, irq: Irq) {
        let effect = match irq.to {
            Some(to) => Effect::Message { to, stamp_ns: irq.stamp_ns },
            None => Effect::Nothing,
        };
        let work_ns = self.hardware.irq_entry_ns + irq.work_ns;
        self.interrupt(cpu, Pending { work_ns, effect }, WakeReason::Irq);
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

    fn expire_timers(&mut self, cpu: usize) {
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

    /// Idles exactly as recorded.
    fn play_gap(&mut self, cpu: usize, id: TaskId, gap: Box<IdleGap>) {
        if u64::from(gap.cpu) as usize != cpu {
            self.error =
                Some(SimulationError::NoCpu { cpu: gap.cpu.into(), cpu_count: self.cpus.len() });
            return;
        }
        let (now_ns, period_ns) = (self.now_ns, self.period_ns);
        self.block(cpu, id, TaskState::Waiting);
        let this = &mut self.cpus[cpu];
        this.recorded_task = Some(id);
        this.ran_task = gap.ran_task;
        if gap.ran_task {
            this.idle.tick_stopped = false;
        }
        this.tick_phase_ns = match gap.next_tick_ns {
            Some(next_ns) => (now_ns + u64::from(next_ns).max(1)) % period_ns,
            None => 0,
        };
        self.queue.push(now_ns + gap.gap_ns, Event::Recorded { cpu: cpu as u32 });
        self.cpus[cpu].recorded = Some(gap);
        self.arm_tick(cpu);
    }

    pub(super) fn recorded_event(&mut self, cpu: usize) {
        let reason =
            self.cpus[cpu].recorded.as_ref().map_or(WakeReason::Unknown, |g| g.wake_reason);
        self.interrupt(cpu, Pending { work_ns: 0, effect: Effect::Recorded }, reason);
    }
}

/// What is left of a piece of work.
fn left_ns(segment: &Segment, now_ns: u64) -> u64 {
    let elapsed_ns = now_ns - segment.started_ns;
    let done_ns = match segment.rate {
        1.0 => elapsed_ns,
        rate => (elapsed_ns as f64 * rate) as u64,
    };
    segment.left_ns.saturating_sub(done_ns)
}
