//! Turns events into steps.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::next_timer::{NextTimer, NextTimers};
use super::{
    AFTER_INTERRUPT_NS, Cause, Step, StepEnd, StepPlace, TASK_COUNT_MAX, TIMER_COUNT_MAX, TaskInfo,
    WORKLOAD_VERSION, WorkloadMetadata,
};
use crate::event::{Event, EventKind, Leaving, TaskName, Tracepoints, WakeContext};
use crate::tick::{Tick, TickFinder};
use crate::{CpuFacts, GapBuilder, TracepointName};

/// From so many events at the beginning, the tick is found.
const PRELUDE_EVENT_COUNT: usize = 1 << 16;
/// A median is that of so many durations at most.
const SAMPLE_COUNT_MAX: usize = 1 << 16;
/// Expiries that are a whole number of these apart were asked for as points in time.
const ABSOLUTE_GRID_NS: i64 = 1_000;
/// So many of them in a row. One of a thousand relative timers is on the grid by chance, and a timer that wrongly counts as a
/// point in time would hold a played workload back to the recording's times.
const ABSOLUTE_COUNT_MIN: u32 = 2;

/// A task that waits until a deadline or an event, and after the event until the same deadline, rounds what is left to milliseconds
/// if it calls `epoll_wait` or `poll`.
const DEADLINE_GRAIN_NS: i64 = 1_000_000;
/// So much time must have passed from one such call to the next, all in all, before it shows what a task does.
const DEADLINE_SHOWN_NS: i64 = 4 * DEADLINE_GRAIN_NS;
/// Such calls must be this part of its calls at least: relative timeouts of many lengths end at the same time now and then.
const DEADLINE_PART_MIN: u32 = 4;

/// Packets sent and received: `NET_TX_SOFTIRQ` and `NET_RX_SOFTIRQ` of `include/linux/interrupt.h`.
const NETWORK_SOFTIRQS: [u8; 2] = [2, 3];

/// Receives finished steps. Those of a task arrive in order.
pub trait StepSink {
    /// Why the sink failed.
    type Error;

    /// Takes the next steps.
    ///
    /// # Errors
    /// Returns the sink's own error.
    fn take(&mut self, steps: &[Step]) -> Result<(), Self::Error>;
}

impl StepSink for Vec<Step> {
    type Error = std::convert::Infallible;

    fn take(&mut self, steps: &[Step]) -> Result<(), Self::Error> {
        self.extend_from_slice(steps);
        Ok(())
    }
}

/// Why no workload log can be made of a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CauseError {
    /// Events are missing from which causes follow.
    #[error(
        "it does not say what makes tasks run: {} {} not recorded; record with `idlewise record \
         --causes`",
        missing.join(", "), if missing.len() == 1 { "was" } else { "were" }
    )]
    NoCauses {
        /// The missing tracepoints, as `system:name`.
        missing: Vec<String>,
    },
}

/// What a recording must have, so that steps have causes.
const NEEDED: Tracepoints = Tracepoints::SCHED_SWITCH
    .union(Tracepoints::WAKING)
    .union(Tracepoints::HRTIMER_START)
    .union(Tracepoints::HRTIMER_EXPIRE);

/// Turns a time-ordered stream of events, read for [`crate::tracepoint::Purpose::Causes`], into steps.
pub struct StepBuilder<S> {
    sink: S,
    facts: CpuFacts,
    /// The first events, until the tick is known.
    prelude: Option<Vec<Event>>,
    tick: Tick,
    /// The idle task of each CPU: its index, and the end of its last step.
    idle_tasks: BTreeMap<u16, (u32, i64)>,
    /// The gaps, of which only the timers are taken, until the recording ends.
    gaps: Option<GapBuilder<NextTimers>>,
    /// As `idle_tasks`, for steps that say when the next timer is due.
    next_timer_tasks: BTreeMap<u16, (u32, i64)>,
    /// Interrupts are recorded to their end, so that their time can be left out.
    has_exits: bool,
    cpus: BTreeMap<u16, Cpu>,
    tasks: FxHashMap<u32, Task>,
    timers: FxHashMap<u64, Armed>,
    infos: Vec<TaskInfo>,
    ready: Vec<Step>,
    first_at_ns: Option<i64>,
    last_at_ns: i64,
    lost_event_count: u64,
    causeless_count: u64,
    never_ran_count: u64,
    /// How long CPUs took to enter an idle state, and to leave one by state.
    entries: Sample,
    left_after: BTreeMap<u8, Sample>,
}

/// The first durations of a kind, of which the median is asked.
#[derive(Default)]
struct Sample(Vec<u64>);

impl Sample {
    fn push(&mut self, span_ns: i64) {
        if let (Ok(span_ns), true) = (u64::try_from(span_ns), self.0.len() < SAMPLE_COUNT_MAX) {
            self.0.push(span_ns);
        }
    }

    fn median_ns(mut self) -> Option<u64> {
        let middle = self.0.len() / 2;
        (!self.0.is_empty()).then(|| *self.0.select_nth_unstable(middle).1)
    }
}

/// What a CPU is doing.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    /// The task that runs; 0 is the idle task. `None` before the first switch.
    current: Option<u32>,
    /// Since when its time counts; `None` in an interrupt.
    counts_from_ns: Option<i64>,
    in_interrupt: bool,
    in_softirq: bool,
    /// The softirq was left behind by an interrupt.
    is_softirq_of_interrupt: bool,
    interrupt_ended_at_ns: Option<i64>,
    /// The last interrupt was that of the timer.
    is_interrupt_of_timer: bool,
    /// The timer whose handler runs.
    expiring: Option<Armed>,
    /// When the timer whose handler runs was due, if it is not the tick and has woken nobody.
    kernel_timer_at_ns: Option<i64>,
    /// The last stay in an idle state, if no task has run since.
    stay: Option<Stay>,
    /// When its last task left, if it has not entered an idle state since.
    emptied_at_ns: Option<i64>,
    /// Its idle task ran, and its idle states were recorded.
    has_idled: bool,
    has_states: bool,
}

#[derive(Clone, Copy, Debug)]
struct Stay {
    state: u32,
    entered_at_ns: i64,
    left_at_ns: Option<i64>,
}

/// A timer, and where it was armed if a task did that.
#[derive(Clone, Copy, Debug)]
struct Armed {
    by: Option<(StepPlace, i64)>,
    /// The pid of the task that armed it.
    pid: u32,
    /// On the monotonic clock; `None` for a timer of the timer wheel.
    expires_at_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Task {
    index: u32,
    step_count: u64,
    open: Option<Open>,
    ended_at_ns: Option<i64>,
    wake: Option<Wake>,
    last_expiry_ns: Option<i64>,
    /// How many of its last expiries were on the grid of the one before.
    on_grid_count: u32,
    deadline: Option<Deadline>,
    /// How many timers it armed after one that had not fired, and how many of them were due at nearly the same time.
    rearmed_count: u32,
    near_count: u32,
    /// From one timer that it armed and cancelled to the next that was due at nearly the same time: how much time passed, and how
    /// much shorter the second delay was. It is as much shorter if the task keeps a deadline, and no shorter if it waits as long
    /// again.
    passed_ns: i64,
    shorter_ns: i64,
}

/// Until when a task waits, unless something comes before.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    /// Where it was set, when, and when the timer was due that was armed there.
    set: (StepPlace, i64),
    first_expires_at_ns: i64,
    /// The last timer that was armed for it.
    function: u64,
    armed_at_ns: i64,
    expires_at_ns: i64,
}

impl Task {
    /// The task arms a timer. Returns where it set the deadline: here, or where it armed an earlier timer that was cancelled
    /// because something else came first.
    fn arm(
        &mut self,
        here: (StepPlace, i64),
        function: u64,
        expires_at_ns: i64,
    ) -> (StepPlace, i64) {
        let armed_at_ns = here.1;
        let near = |ns: i64| expires_at_ns.abs_diff(ns) < DEADLINE_GRAIN_NS.unsigned_abs();
        let before = self.deadline.filter(|of| of.function == function);
        self.rearmed_count += u32::from(before.is_some());
        let before = before.filter(|of| near(of.expires_at_ns));
        if let Some(before) = before {
            let passed_ns = armed_at_ns.saturating_sub(before.armed_at_ns);
            let later_ns = expires_at_ns - before.expires_at_ns;
            self.near_count += 1;
            self.passed_ns = self.passed_ns.saturating_add(passed_ns);
            self.shorter_ns = self.shorter_ns.saturating_add(passed_ns.saturating_sub(later_ns));
        }
        let keeps_deadlines = self.passed_ns >= DEADLINE_SHOWN_NS
            && self.shorter_ns >= self.passed_ns / 2
            && self.near_count >= self.rearmed_count / DEADLINE_PART_MIN;
        let kept = before.filter(|of| keeps_deadlines && near(of.first_expires_at_ns));
        let (set, first_expires_at_ns) =
            kept.map_or((here, expires_at_ns), |of| (of.set, of.first_expires_at_ns));
        self.deadline =
            Some(Deadline { set, first_expires_at_ns, function, armed_at_ns, expires_at_ns });
        set
    }
}

/// A step in progress.
#[derive(Clone, Copy, Debug)]
struct Open {
    cpu: u16,
    cause: Cause,
    due_at_ns: i64,
    run_at_ns: i64,
    run_ns: u64,
    idle_state: Option<u8>,
}

/// A wake-up of a task that has not run since.
#[derive(Clone, Copy, Debug)]
struct Wake {
    cause: Cause,
    due_at_ns: i64,
    /// The CPU of the task that wakes; `None` for an interrupt.
    from: Option<u16>,
}

impl<S: StepSink> StepBuilder<S> {
    /// Makes a builder for a recording with these tracepoints, of a machine with these facts.
    ///
    /// # Errors
    /// Fails if the recording lacks events without which there are no causes.
    pub fn new(
        sink: S,
        tracepoints: Tracepoints,
        facts: impl Into<CpuFacts>,
    ) -> Result<Self, CauseError> {
        let missing = TracepointName::all_of(NEEDED.without(tracepoints));
        if !missing.is_empty() {
            let missing = missing.iter().map(ToString::to_string).collect();
            return Err(CauseError::NoCauses { missing });
        }
        let has = |wanted| tracepoints.contains(wanted);
        let ends = |entry: Tracepoints, exit| !tracepoints.intersects(entry) || has(exit);
        let has_exits = ends(Tracepoints::X86_VECTORS, Tracepoints::VECTOR_EXIT)
            && ends(Tracepoints::IRQ_HANDLER, Tracepoints::IRQ_HANDLER_EXIT);
        let facts = facts.into();
        Ok(StepBuilder {
            sink,
            gaps: Some(GapBuilder::new(NextTimers::default(), tracepoints, facts.clone())),
            next_timer_tasks: BTreeMap::new(),
            facts,
            prelude: Some(Vec::new()),
            tick: Tick::default(),
            idle_tasks: BTreeMap::new(),
            has_exits,
            cpus: BTreeMap::new(),
            tasks: FxHashMap::default(),
            timers: FxHashMap::default(),
            infos: Vec::new(),
            ready: Vec::new(),
            first_at_ns: None,
            last_at_ns: i64::MIN,
            lost_event_count: 0,
            causeless_count: 0,
            never_ran_count: 0,
            entries: Sample::default(),
            left_after: BTreeMap::new(),
        })
    }

    /// Takes the next events, in batches of any size, in order of time. One that is not is treated as
    /// simultaneous with the one before it.
    ///
    /// # Errors
    /// Returns the sink's error.
    pub fn push(&mut self, events: &[Event]) -> Result<(), S::Error> {
        if let Some(gaps) = &mut self.gaps {
            let Ok(()) = gaps.push(events);
        }
        match &mut self.prelude {
            Some(prelude) if prelude.len() < PRELUDE_EVENT_COUNT => {
                prelude.extend_from_slice(events);
                return Ok(());
            }
            Some(_) => self.end_prelude()?,
            None => {}
        }
        self.build(events)
    }

    fn end_prelude(&mut self) -> Result<(), S::Error> {
        let prelude = self.prelude.take().unwrap_or_default();
        let mut finder = TickFinder::default();
        for event in &prelude {
            finder.push(event);
        }
        self.tick = finder.finish();
        self.build(&prelude)
    }

    fn build(&mut self, events: &[Event]) -> Result<(), S::Error> {
        for event in events {
            let at_ns = event.at_ns.max(self.last_at_ns);
            self.first_at_ns.get_or_insert(at_ns);
            self.last_at_ns = at_ns;
            self.event(at_ns, event.cpu, event.kind);
        }
        let found = self.gaps.as_mut().map(|gaps| gaps.sink_mut().take_found());
        self.note_next_timers(found.unwrap_or_default());
        if !self.ready.is_empty() {
            self.sink.take(&self.ready)?;
            self.ready.clear();
        }
        Ok(())
    }

    /// Ends the recording. Returns the sink, and what the builder knows of the log's metadata.
    ///
    /// # Errors
    /// Returns the sink's error.
    pub fn finish(mut self) -> Result<(S, WorkloadMetadata), S::Error> {
        self.end_prelude()?;
        if let Some(gaps) = self.gaps.take() {
            let Ok((mut next_timers, _)) = gaps.finish();
            self.note_next_timers(next_timers.take_found());
        }
        let at_ns = self.last_at_ns;
        let cpus: Vec<u16> = self.cpus.keys().copied().collect();
        for &cpu in &cpus {
            self.count(cpu, at_ns);
            self.end_kernel_timer(cpu, at_ns);
        }
        let mut left: Vec<(u32, Task)> = self.tasks.drain().collect();
        left.sort_unstable_by_key(|(_, task)| task.index);
        for (_, task) in left {
            match task.open {
                Some(open) => self.ready.push(open.step(task.index, at_ns, StepEnd::Cut)),
                None => self.never_ran_count += u64::from(task.wake.is_some()),
            }
        }
        self.sink.take(&self.ready)?;
        let unseen = self.cpus.iter().filter(|(_, cpu)| cpu.has_idled && !cpu.has_states);
        let cpu_count = cpus.last().map_or(0, |&cpu| usize::from(cpu) + 1);
        let tick_phases_ns = match self.tick.hz {
            Some(_) => (0..cpu_count).map(|cpu| self.tick.phase_ns(cpu as u16)).collect(),
            None => Vec::new(),
        };
        let unseen_cpus = unseen.map(|(&cpu, _)| cpu).collect();
        let left_after = self.left_after.into_iter();
        let left_after = left_after.filter_map(|(state, spans)| Some((state, spans.median_ns()?)));
        let metadata = WorkloadMetadata {
            unseen_cpus,
            tick_phases_ns,
            idle_entry_ns: self.entries.median_ns(),
            left_after_ns: left_after.collect(),
            workload_version: WORKLOAD_VERSION,
            created_by: concat!("idlewise ", env!("CARGO_PKG_VERSION")).to_owned(),
            tasks: self.infos,
            cpu_count: cpus.last().map_or(0, |&cpu| u32::from(cpu) + 1),
            first_at_ns: self.first_at_ns.unwrap_or(0),
            last_at_ns: if self.first_at_ns.is_some() { at_ns } else { 0 },
            lost_event_count: self.lost_event_count,
            causeless_count: self.causeless_count,
            never_ran_count: self.never_ran_count,
            ..WorkloadMetadata::default()
        };
        Ok((self.sink, metadata))
    }

    fn event(&mut self, at_ns: i64, cpu: u16, kind: EventKind) {
        match kind {
            EventKind::Switch { prev, next, leaves, next_name } => {
                let prev = prev.map(|task| task.number());
                self.switch(at_ns, cpu, prev, next, leaves, next_name);
            }
            EventKind::Waking { task, context } => self.wake(at_ns, cpu, task, context),
            EventKind::Fork { task } => self.wake(at_ns, cpu, task, WakeContext::Task),
            EventKind::IdleEntry { state } => {
                let stay = Stay { state, entered_at_ns: at_ns, left_at_ns: None };
                if let Some(emptied_at_ns) = self.cpu(cpu).emptied_at_ns.take() {
                    self.entries.push(at_ns - emptied_at_ns);
                }
                let cpu = self.cpu(cpu);
                cpu.stay = Some(stay);
                cpu.has_states = true;
            }
            EventKind::IdleExit => {
                if let Some(stay) = &mut self.cpu(cpu).stay {
                    stay.left_at_ns.get_or_insert(at_ns);
                }
            }
            EventKind::TimerInterrupt
            | EventKind::RescheduleInterrupt
            | EventKind::IpiInterrupt
            | EventKind::DeviceInterrupt => {
                self.cpu(cpu).is_interrupt_of_timer = kind == EventKind::TimerInterrupt;
                self.begin_interrupt(at_ns, cpu);
            }
            EventKind::InterruptExit => {
                self.end_kernel_timer(cpu, at_ns);
                let has_exits = self.has_exits;
                let cpu = self.cpu(cpu);
                cpu.in_interrupt = false;
                cpu.expiring = None;
                cpu.interrupt_ended_at_ns = Some(at_ns);
                cpu.count_on(at_ns, has_exits);
            }
            EventKind::Softirq { vector } => {
                let this = *self.cpu(cpu);
                let is_idle = this.current == Some(0);
                let is_soon = |last_ns: i64| at_ns - last_ns <= AFTER_INTERRUPT_NS;
                // No timer sends packets: the tick interrupted a task that does.
                let is_tasks = NETWORK_SOFTIRQS.contains(&vector) && this.is_interrupt_of_timer;
                let is_left_behind =
                    this.interrupt_ended_at_ns.is_some_and(is_soon) && (is_idle || !is_tasks);
                if is_left_behind {
                    self.count(cpu, at_ns);
                }
                let this = self.cpu(cpu);
                this.in_softirq = true;
                this.is_softirq_of_interrupt = is_left_behind || is_idle;
            }
            EventKind::SoftirqExit => {
                self.end_kernel_timer(cpu, at_ns);
                let has_exits = self.has_exits;
                let cpu = self.cpu(cpu);
                if cpu.is_softirq_of_interrupt {
                    // The next one of the same interrupt follows at once.
                    cpu.interrupt_ended_at_ns = Some(at_ns);
                }
                (cpu.in_softirq, cpu.is_softirq_of_interrupt) = (false, false);
                cpu.expiring = None;
                cpu.count_on(at_ns, has_exits);
            }
            EventKind::HrtimerStart { timer, function, expires_at_ns, .. } => {
                self.arm(at_ns, cpu, timer, Some((function, expires_at_ns)));
            }
            EventKind::WheelStart { timer, .. } => self.arm(at_ns, cpu, timer, None),
            EventKind::HrtimerCancel { timer } | EventKind::WheelCancel { timer } => {
                self.timers.remove(&timer);
            }
            EventKind::HrtimerExpire { timer, function, .. } => {
                let is_tick = self.tick.function == Some(function);
                self.expire(at_ns, cpu, timer, is_tick, None);
            }
            EventKind::WheelExpire { timer, .. } => {
                // The tick looks for these.
                let boundary_ns = self.tick.last_boundary_ns(cpu, at_ns);
                self.expire(at_ns, cpu, timer, false, boundary_ns);
            }
            EventKind::Lost { event_count } => {
                self.lost_event_count = self.lost_event_count.saturating_add(event_count);
            }
            _ => {}
        }
    }

    fn cpu(&mut self, cpu: u16) -> &mut Cpu {
        self.cpus.entry(cpu).or_default()
    }

    /// The state of a task, which is made if it is new; `None` if there are too many.
    fn task(&mut self, pid: u32) -> Option<&mut Task> {
        if self.tasks.len() >= TASK_COUNT_MAX && !self.tasks.contains_key(&pid) {
            return None;
        }
        let infos = &mut self.infos;
        Some(self.tasks.entry(pid).or_insert_with(|| {
            let index = u32::try_from(infos.len()).unwrap_or(u32::MAX);
            infos.push(TaskInfo { pid: Some(pid), ..TaskInfo::default() });
            Task { index, ..Task::default() }
        }))
    }

    /// Adds the time up to now to the step of the task that runs, and stops counting.
    fn count(&mut self, cpu: u16, at_ns: i64) {
        let this = self.cpu(cpu);
        let Some(from_ns) = this.counts_from_ns.take() else { return };
        let Some(pid) = this.current.filter(|&pid| pid != 0) else { return };
        if let Some(open) = self.tasks.get_mut(&pid).and_then(|task| task.open.as_mut()) {
            open.run_ns += u64::try_from(at_ns - from_ns).unwrap_or(0);
        }
    }

    fn begin_interrupt(&mut self, at_ns: i64, cpu: u16) {
        if !self.has_exits {
            return;
        }
        self.count(cpu, at_ns);
        self.cpu(cpu).in_interrupt = true;
    }

    fn switch(
        &mut self,
        at_ns: i64,
        cpu: u16,
        prev: Option<u32>,
        next: u32,
        leaves: Leaving,
        next_name: TaskName,
    ) {
        self.end_kernel_timer(cpu, at_ns);
        let this = self.cpu(cpu);
        let prev = prev.or(this.current);
        // Nothing switches within an interrupt. An end that was not recorded is made up for here.
        (this.in_interrupt, this.in_softirq, this.is_softirq_of_interrupt) = (false, false, false);
        this.expiring = None;
        if this.current.is_none() {
            this.current = prev;
            if let Some(pid) = prev.filter(|&pid| pid != 0) {
                let from_ns = self.unseen_since_ns(at_ns, pid);
                self.cpu(cpu).counts_from_ns = Some(from_ns);
                self.begin_step(from_ns, cpu, pid, None);
            }
        }
        self.count(cpu, at_ns);
        if let Some(pid) = prev.filter(|&pid| pid != 0) {
            self.leave(at_ns, pid, leaves);
        }
        let stay = self.cpu(cpu).stay;
        if next != 0 {
            self.begin_step(at_ns, cpu, next, stay);
            if !next_name.is_empty()
                && let Some(task) = self.tasks.get(&next)
                && let Some(info) = self.infos.get_mut(task.index as usize)
            {
                let name = next_name.text();
                if info.name != name {
                    info.name = name;
                }
            }
        }
        let this = self.cpu(cpu);
        this.current = Some(next);
        this.has_idled |= next == 0;
        this.emptied_at_ns = (next == 0).then_some(at_ns);
        this.counts_from_ns = (next != 0).then_some(at_ns);
        if next != 0 {
            this.stay = None;
        }
    }

    /// Since when a task may have run on a CPU whose first switch takes it away: since before the recording, unless it
    /// was seen on another CPU, which was recorded sooner.
    fn unseen_since_ns(&self, at_ns: i64, pid: u32) -> i64 {
        let first_at_ns = self.first_at_ns.unwrap_or(at_ns);
        match self.tasks.get(&pid) {
            None => first_at_ns,
            Some(task) if task.open.is_some() => at_ns,
            Some(Task { ended_at_ns, wake, .. }) => {
                let woken_at_ns = wake.map(|wake| wake.due_at_ns);
                let seen_at_ns = (*ended_at_ns).max(woken_at_ns);
                seen_at_ns.map_or(first_at_ns, |ns| ns.max(first_at_ns)).min(at_ns)
            }
        }
    }

    /// A task leaves its CPU.
    fn leave(&mut self, at_ns: i64, pid: u32, leaves: Leaving) {
        let end = match leaves {
            Leaving::Runnable => return,
            Leaving::Waits => StepEnd::Waits,
            Leaving::Ends => StepEnd::Ends,
        };
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        if let Some(open) = task.open.take() {
            task.step_count += 1;
            task.ended_at_ns = Some(at_ns);
            let step = open.step(task.index, at_ns, end);
            self.ready.push(step);
        }
        if end == StepEnd::Ends {
            self.tasks.remove(&pid);
        }
    }

    /// A task gets a CPU: it goes on, or begins a step.
    fn begin_step(&mut self, at_ns: i64, cpu: u16, pid: u32, stay: Option<Stay>) {
        let Some(task) = self.task(pid) else { return };
        if task.open.is_some() {
            return;
        }
        let wake = task.wake.take();
        let is_causeless = wake.is_none() && task.ended_at_ns.is_some();
        let Wake { cause, due_at_ns, from } =
            wake.unwrap_or(Wake { cause: Cause::Start, due_at_ns: at_ns, from: None });
        // A wake-up just before the switch cannot have come before the wait.
        let due_at_ns = due_at_ns.max(task.ended_at_ns.unwrap_or(i64::MIN)).min(at_ns);
        let is_in = |stay: &Stay| {
            stay.entered_at_ns <= due_at_ns && stay.left_at_ns.is_none_or(|left| due_at_ns <= left)
        };
        let found = stay.filter(is_in);
        let idle_state = found.and_then(|stay| u8::try_from(stay.state).ok());
        if let (Some(state), Some(from)) = (idle_state, from)
            && from != cpu
            && let Some(left_at_ns) = found.and_then(|stay| stay.left_at_ns)
        {
            self.left_after.entry(state).or_default().push(left_at_ns - due_at_ns);
        }
        let Some(task) = self.task(pid) else { return };
        task.open = Some(Open { cpu, cause, due_at_ns, run_at_ns: at_ns, run_ns: 0, idle_state });
        self.causeless_count += u64::from(is_causeless);
    }

    /// The place in the step of the task that runs on a CPU; `None` if none does.
    fn place(&mut self, at_ns: i64, cpu: u16) -> Option<(StepPlace, u32)> {
        let (current, counts_from_ns) = {
            let this = self.cpu(cpu);
            (this.current, this.counts_from_ns)
        };
        let pid = current.filter(|&pid| pid != 0)?;
        let task = self.tasks.get(&pid)?;
        let open = task.open.as_ref()?;
        let running_ns = counts_from_ns.map_or(0, |from_ns| at_ns - from_ns);
        let offset_ns = open.run_ns + u64::try_from(running_ns).unwrap_or(0);
        Some((StepPlace { task: task.index, step: task.step_count, offset_ns }, pid))
    }

    /// `hrtimer` is a timer's callback and when it is due; of the timer wheel neither is known.
    fn arm(&mut self, at_ns: i64, cpu: u16, timer: u64, hrtimer: Option<(u64, i64)>) {
        let this = self.cpu(cpu);
        let is_of_task = !this.in_interrupt && !this.is_softirq_of_interrupt;
        let place = if is_of_task { self.place(at_ns, cpu) } else { None };
        let (by, pid) = match place {
            Some((place, pid)) => {
                let here = (place, at_ns);
                let task = hrtimer.zip(self.tasks.get_mut(&pid));
                let set = task.map(|((function, due_ns), task)| task.arm(here, function, due_ns));
                (Some(set.unwrap_or(here)), pid)
            }
            None => (None, 0),
        };
        let expires_at_ns = hrtimer.map(|(_, expires_at_ns)| expires_at_ns);
        if self.timers.len() < TIMER_COUNT_MAX || self.timers.contains_key(&timer) {
            self.timers.insert(timer, Armed { by, pid, expires_at_ns });
        }
    }

    fn expire(&mut self, at_ns: i64, cpu: u16, timer: u64, is_tick: bool, due_at_ns: Option<i64>) {
        self.end_kernel_timer(cpu, at_ns);
        let armed = self.timers.remove(&timer);
        if let Some(task) = armed.and_then(|armed| self.tasks.get_mut(&armed.pid)) {
            task.deadline = None;
        }
        let first_sign_ns = self.first_sign_ns(at_ns, cpu);
        let due_at_ns = due_at_ns.or(armed.and_then(|armed| armed.expires_at_ns));
        let due_at_ns = due_at_ns.unwrap_or(first_sign_ns).min(at_ns);
        let this = self.cpu(cpu);
        this.expiring = armed;
        this.kernel_timer_at_ns = (!is_tick).then_some(due_at_ns);
    }

    /// The handler of a timer is done. If it woke nobody, that was the kernel's own affair. It matters all the same,
    /// because governors look at when the next timer is due.
    fn end_kernel_timer(&mut self, cpu: u16, at_ns: i64) {
        let Some(due_at_ns) = self.cpu(cpu).kernel_timer_at_ns.take() else { return };
        self.idle_step(cpu, Cause::Absolute, due_at_ns, at_ns);
    }

    /// CPUs went idle, and knew this of their next timers. That shows only after the steps of that time.
    fn note_next_timers(&mut self, found: Vec<NextTimer>) {
        for NextTimer { cpu, at_ns, delay_ns } in found {
            let at_ns = at_ns.min(self.last_at_ns);
            self.idle_step(cpu, Cause::NextTimer { delay_ns }, at_ns, at_ns);
        }
    }

    /// Adds a step of a CPU's idle task: one for timers that expired, another for timers that were next.
    fn idle_step(&mut self, cpu: u16, cause: Cause, due_at_ns: i64, at_ns: i64) {
        let infos = &mut self.infos;
        let tasks = match cause {
            Cause::NextTimer { .. } => &mut self.next_timer_tasks,
            _ => &mut self.idle_tasks,
        };
        let (task, ended_at_ns) = tasks.entry(cpu).or_insert_with(|| {
            let index = u32::try_from(infos.len()).unwrap_or(u32::MAX);
            infos.push(TaskInfo { name: format!("swapper/{cpu}"), pid: Some(0), is_idle: true });
            (index, i64::MIN)
        });
        let from_ns = self.first_at_ns.unwrap_or(at_ns).max(*ended_at_ns);
        let at_ns = at_ns.max(from_ns);
        let due_at_ns = due_at_ns.clamp(from_ns, at_ns);
        *ended_at_ns = at_ns;
        self.ready.push(Step {
            task: *task,
            cpu,
            cause,
            due_at_ns,
            run_at_ns: at_ns,
            run_ns: 0,
            end_at_ns: at_ns,
            end: StepEnd::Waits,
            idle_state: None,
        });
    }

    fn wake(&mut self, at_ns: i64, cpu: u16, pid: u32, context: WakeContext) {
        let this = *self.cpu(cpu);
        let is_of_task = match context {
            WakeContext::Task => true,
            WakeContext::Interrupt => false,
            WakeContext::Softirq => !this.is_softirq_of_interrupt && this.in_softirq,
            WakeContext::Unknown => !this.in_interrupt && !this.is_softirq_of_interrupt,
        };
        // A timer's handler can run in a softirq of its own, and in a thread that serves softirqs.
        let is_timer = this.expiring.is_some() && (!is_of_task || this.in_softirq);
        let by_task = if is_of_task && !is_timer { self.place(at_ns, cpu) } else { None };
        let wake = match by_task {
            Some((place, waker)) if waker != pid => {
                Wake { cause: Cause::Task(place), due_at_ns: at_ns, from: Some(cpu) }
            }
            _ => {
                let first_sign_ns = self.first_sign_ns(at_ns, cpu);
                self.cpu(cpu).kernel_timer_at_ns = None;
                self.wake_by_interrupt(at_ns, pid, this.expiring, first_sign_ns)
            }
        };
        if let Some(task) = self.task(pid) {
            task.wake = Some(wake);
        }
    }

    /// When an interrupt came that is handled now: if the CPU was idle, before it left its state.
    fn first_sign_ns(&mut self, at_ns: i64, cpu: u16) -> i64 {
        let Some(Stay { state, entered_at_ns, left_at_ns }) = self.cpu(cpu).stay else {
            return at_ns;
        };
        let latencies_ns = self.facts.exit_latencies_ns(cpu);
        let exit_ns = latencies_ns.get(state as usize).copied().unwrap_or(0);
        let exit_ns = i64::try_from(exit_ns).unwrap_or(i64::MAX);
        left_at_ns.unwrap_or(at_ns).saturating_sub(exit_ns).max(entered_at_ns)
    }

    fn wake_by_interrupt(
        &mut self,
        at_ns: i64,
        pid: u32,
        expiring: Option<Armed>,
        first_sign_ns: i64,
    ) -> Wake {
        let Some(Armed { by, pid: by_pid, expires_at_ns }) = expiring else {
            return Wake { cause: Cause::Interrupt, due_at_ns: first_sign_ns, from: None };
        };
        let due_at_ns = expires_at_ns.unwrap_or(first_sign_ns).min(at_ns);
        let Some((armed, armed_at_ns)) = by else {
            // The kernel's own, armed in an interrupt: its CPU knew when it would come.
            let cause = expires_at_ns.map_or(Cause::Interrupt, |_| Cause::Absolute);
            return Wake { cause, due_at_ns, from: None };
        };
        let mut is_absolute = false;
        if let (Some(expires_at_ns), true) = (expires_at_ns, by_pid == pid)
            && let Some(task) = self.task(pid)
        {
            let last_ns = task.last_expiry_ns.replace(expires_at_ns);
            let apart_ns = last_ns.map(|last_ns| expires_at_ns.saturating_sub(last_ns));
            let is_on_grid = apart_ns.is_some_and(|ns| ns > 0 && ns % ABSOLUTE_GRID_NS == 0);
            task.on_grid_count = if is_on_grid { task.on_grid_count.saturating_add(1) } else { 0 };
            is_absolute = task.on_grid_count >= ABSOLUTE_COUNT_MIN;
        }
        let cause = match u64::try_from(due_at_ns.saturating_sub(armed_at_ns)) {
            Ok(delay_ns) if !is_absolute => Cause::Timer { armed, delay_ns },
            _ => Cause::Absolute,
        };
        Wake { cause, due_at_ns: due_at_ns.max(armed_at_ns), from: None }
    }
}

impl Cpu {
    /// The task's time counts from here on, unless something interrupts it still.
    fn count_on(&mut self, at_ns: i64, has_exits: bool) {
        let is_held = self.in_interrupt || self.is_softirq_of_interrupt;
        let runs = self.current.is_some_and(|pid| pid != 0);
        if has_exits && runs && !is_held {
            self.counts_from_ns.get_or_insert(at_ns);
        }
    }
}

impl Open {
    fn step(self, task: u32, end_at_ns: i64, end: StepEnd) -> Step {
        let Open { cpu, cause, due_at_ns, run_at_ns, run_ns, idle_state } = self;
        Step { task, cpu, cause, due_at_ns, run_at_ns, run_ns, end_at_ns, end, idle_state }
    }
}
