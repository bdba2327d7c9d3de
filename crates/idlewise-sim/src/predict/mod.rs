//! Plays a workload log on a simulated machine: causes are kept, times are not.
//!
//! A replay asks a governor what it would have done in each recorded gap. Here the gaps are not given. Each task
//! runs for as long as it ran, wakes whom it woke after as much of its own work as it did, and waits for what woke
//! it. When that comes, follows from the machine: its idle states, its governor, its run queues. A wake-up
//! that comes later delays what depends on it, and nothing else.
//!
//! # What is kept and what is not
//!
//! | of the recording | in the run |
//! | --- | --- |
//! | what a step runs, and where in it others are woken or timers are armed | the same |
//! | which wake-up a step waits for | the same one, whatever else comes first; of a task that serves whoever comes, the first |
//! | the CPU of each step | the same for a task that seems to be bound to it; otherwise as Linux chooses (`simulate/place.rs`) |
//! | which task of a CPU runs next | as Linux chooses (`simulate/run_queue.rs`); a task that always took the CPU from others, or never, does so again |
//! | a timer | as long after it was armed; a point in time at that point |
//! | the kernel's own timers, which wake no task | at their times: governors look at when the next one is due |
//! | an arrival from outside | [`Arrivals`]: at its time, or as long after the task began to wait |
//! | how long a woken task waits for a CPU | follows from the idle state that the CPU is in, and from what runs there |
//!
//! # What governors know when a run begins
//!
//! The recorded kernel's governor had a history when the recording began, which the recording does not show. One that
//! knows nothing expects the next timer and sleeps deeply, until it has seen some stays. So each run begins with
//! governors that have played the beginning of the same workload, the first [`HISTORY_STEP_COUNT`] steps for each CPU.
//!
//! # Self-reproduction
//!
//! A prediction is worth as much as the model that makes it. So the recorded governor and states are played first, and
//! compared with the recording ([`Reproduction`]).
//!
//! # Known limitations
//!
//! What the log cannot know is missing here too (see [`idlewise_trace::causes`]): waits that did not happen because the
//! data was there in time, timeouts that did not expire, interrupts that woke nobody. So a step that served several items
//! at once always does. Which tasks are bound to CPUs is guessed, and all have one weight. Kernels before 6.6 are played
//! with the rules of 6.12. No task runs faster or slower than recorded, except with a power limit
//! ([`CausedWorkload::set_speed`]): caches, SMT and frequency are those of the recording.
//!
//! | file | holds |
//! | --- | --- |
//! | `calibrate.rs` | [`calibrate`]: what the recording does not show |
//! | `costs.rs` | what a wake-up costs, besides and with the exit latency |
//! | `tasks.rs` | what the recording shows of its tasks: which are bound, which serve several others, which take CPUs |
//! | `timers.rs` | the kernel's timers and ticks |
//! | `mod.rs` | [`CausedWorkload`]: a log, ready to be played; [`play`] |
//! | `player.rs` | the tasks and arrivals as programs of the simulated machine |
//! | `outcome.rs` | [`Outcome`]: what a run did to the workload; [`Reproduction`] |
//! | `durations.rs` | [`Durations`]: how long things took |
//! | `interval.rs` | [`Interval`]: within what a measured figure is to be expected |

mod calibrate;
mod costs;
mod durations;
mod interval;
mod outcome;
mod player;
mod tasks;
mod timers;

use std::collections::BTreeMap;
use std::sync::Arc;

use idlewise_trace::causes::{Cause, Step, StepEnd, WorkloadMetadata};

use crate::simulate::{
    Hardware, Load, NextTimer, Scheduler, Setup, SimulationError, Spawn, Urgency, simulate,
    simulate_after,
};
use crate::{Machine, MachineError};
use player::{ArrivalSource, Ledger, Player};
use tasks::{find_answers, free_tasks, serving_tasks, usual_preemption_ns};
use timers::tick_phases_ns;

pub use calibrate::calibrate;
pub use durations::{Durations, SAME_RATIO, Wait};
pub use interval::{COVERED, Interval, MARGINS, Margin, Margins, Waited, around};
pub use outcome::{
    DISTANCE_MAX, Likeness, MeasuredThroughput, Miss, Outcome, PERCENTILE_ERROR_MAX, Reproduction,
    Standard, THROUGHPUT_ERROR_MAX, Vouched, Window,
};

/// With fewer wake-ups than this from a state, the recording does not show its exit latency.
pub const SHOWN_COUNT_MIN: usize = 20;
/// So many steps for each CPU are played before a run, so that governors have a history.
pub const HISTORY_STEP_COUNT: usize = 250;
/// A CPU without a timer of the kernel's own in the recording has one so long after its end: some come every second.
const UNSEEN_TIMER_NS: u64 = 1_000_000_000;
/// A run may take this many times as long as the recording, and a second, before it is given up.
const LONGER_MAX: u64 = 10;
const LONGER_BY_NS: u64 = 1_000_000_000;
/// A request passes at most this many steps on its way. What follows from one by more was hardly meant by it.
const HOP_COUNT_MAX: usize = 64;
const NS_PER_HOUR: u64 = 3_600_000_000_000;
/// Longer recordings are not played: a machine that is busy for a year ticks that long.
const SPAN_MAX_NS: u64 = 12 * NS_PER_HOUR;
/// More steps than this are not held: at 380 bytes each, with one replicate, they take 19 GB.
pub const STEP_COUNT_MAX: usize = 50_000_000;

/// When interrupts from outside come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// At their recorded times, however far the tasks are: clients that send on their own.
    #[default]
    Open,
    /// As long after the woken task began to wait as recorded: answers to what the task asked.
    Closed,
}

/// Where the costs of a wake-up come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Costs {
    /// From the log, less the idle state's exit latency.
    Recorded,
    /// From the simulated machine that wrote the log.
    Machine,
}

/// Why a workload cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictError {
    /// The recording lost events.
    #[error(
        "{count} events were lost, so causes are missing; record again with larger buffers: `idlewise \
         record --causes -b`"
    )]
    LostEvents {
        /// How many.
        count: u64,
    },
    /// Tasks ran without a recorded reason.
    #[error(
        "of {step_count} steps {causeless_count} run without a recorded reason, more than 1 %; record all CPUs \
         (idlewise record --causes; perf record -a)"
    )]
    CausesMissing {
        /// How many have none.
        causeless_count: u64,
        /// How many steps there are.
        step_count: u64,
    },
    /// Idle states of CPUs were not recorded.
    #[error(
        "{percent:.0} % of the steps ran on CPUs whose idle states were not recorded ({}); record all \
         CPUs, on a kernel that has cpu_idle events of each",
        list(cpus)
    )]
    UnseenCpus {
        /// The CPUs.
        cpus: Vec<u16>,
        /// The share of the steps that ran on them.
        percent: f64,
    },
    /// There is nothing to play.
    #[error("there is no step in it; record for longer")]
    Empty,
    /// The log is too long.
    #[error("{count} steps, more than {STEP_COUNT_MAX}: record a shorter time")]
    TooLong {
        /// How many steps.
        count: usize,
    },
    /// It lasts too long, or a step does.
    #[error("it lasts {hours} h, more than {}; record a shorter time", SPAN_MAX_NS / NS_PER_HOUR)]
    TooLate {
        /// How long, in hours.
        hours: u64,
    },
    /// Steps wait for steps that wait for them.
    #[error("{count} steps wait for each other or for what never comes, so the run does not end")]
    Circular {
        /// How many steps did not run.
        count: usize,
    },
    /// The run failed.
    #[error("{0}")]
    Simulation(SimulationError),
    /// The machine has no states.
    #[error("{0}")]
    Machine(MachineError),
}

fn list(cpus: &[u16]) -> String {
    let cpus: Vec<String> = cpus.iter().map(|cpu| format!("CPU {cpu}")).collect();
    cpus.join(", ")
}

/// A kind of wake-ups: whether another CPU wakes, and the idle state that they find.
type Kind = (bool, Option<u8>);

/// A step, ready to be played. Times are from the beginning of the recording.
#[derive(Clone, Copy, Debug)]
struct Played {
    task: u32,
    cpu: u16,
    arrival: Arrival,
    due_ns: u64,
    recorded_run_at_ns: u64,
    recorded_end_ns: u64,
    run_ns: u64,
    idle_state: Option<u8>,
    /// A task on the same CPU wakes it, so the CPU goes from a task to this one.
    takes_over: bool,
    /// A task on another CPU wakes it.
    is_remote: bool,
    /// A timer makes it due, which a step armed.
    is_by_timer: bool,
    /// What the wake-up costs besides the exit latency, if it finds the CPU as it did in the recording.
    rest_ns: u64,
    end: StepEnd,
}

/// How what a step waits for comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// The task runs from the start.
    AtOnce,
    /// Another step wakes it or arms its timer.
    FromStep,
    /// At its time.
    Outside,
    /// As long after the wait began as recorded.
    Answer { delay_ns: u64 },
    /// A timer that the task arms for a point in time as it begins to wait.
    Absolute,
}

/// Something that a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Act {
    /// The step that does it.
    step: u32,
    offset_ns: u64,
    /// When it was done, and when what it made due ran, so that acts of one offset keep their order.
    recorded_ns: (u64, u64),
    /// The step that it makes due.
    target: u32,
    /// `None` for a wake-up.
    delay_ns: Option<u64>,
    /// The woken task took the CPU from the one that woke it, so much later.
    preempts_after_ns: Option<u64>,
    /// The step that this answers, which woke nobody because the task was at work. It must end before the task goes on from
    /// what it did before this.
    answers: Option<u32>,
}

/// A workload log, ready to be played.
pub struct CausedWorkload {
    steps: Vec<Played>,
    /// The steps of each task: the first, and the one after the last.
    tasks: Vec<(u32, u32)>,
    /// Whether a woken task takes the CPU from another.
    urgencies: Vec<Urgency>,
    /// Whether a task may run on any CPU.
    is_free: Vec<bool>,
    /// Whether a task serves whoever comes first, as a server with several clients does.
    serves: Vec<bool>,
    acts: Vec<Act>,
    /// The first act of each step.
    first_acts: Vec<u32>,
    cpu_count: usize,
    /// When the kernel's own timers are due, by CPU.
    kernel_timers_ns: Vec<Vec<u64>>,
    /// From when on which timer is next on each CPU, those of played tasks aside.
    next_timers: Vec<Vec<NextTimer>>,
    /// The first tick of each CPU.
    tick_phases_ns: Vec<u64>,
    span_ns: u64,
    hz: u32,
    costs: Costs,
    /// How fast the recorded CPUs were, of their nominal speed.
    speed: f64,
    /// What the recording shows of the exit latency of each state.
    shown_exits_ns: BTreeMap<u8, u64>,
    /// How long an idle CPU takes to learn of a wake-up by another one.
    delivery_ns: u64,
    /// From when a CPU has nothing to run until it enters an idle state.
    idle_entry_ns: u64,
    /// Whether CPUs that had nothing to do took tasks that waited for another.
    takes_waiting: bool,
    /// How long after a wake-up the woken task takes the waker's CPU, if it does.
    usual_preemption_ns: u64,
    /// What is left of usual wake-ups after the exit latency, by whether another CPU wakes and by what they find.
    usual_rests_ns: BTreeMap<Kind, u64>,
}

/// The time since the recording began.
fn since(metadata: &WorkloadMetadata, at_ns: i64) -> u64 {
    at_ns.abs_diff(metadata.first_at_ns)
}

/// The steps that are played: those of all tasks but the idle ones.
fn of_tasks<'a>(
    metadata: &'a WorkloadMetadata,
    steps: &'a [Step],
) -> impl Iterator<Item = &'a Step> {
    steps.iter().filter(|step| !metadata.tasks[step.task as usize].is_idle)
}

/// The played steps of each task: the first, and the one after the last.
fn task_ranges(metadata: &WorkloadMetadata, steps: &[Step]) -> Vec<(u32, u32)> {
    let mut counts = vec![0_u32; metadata.tasks.len()];
    for step in of_tasks(metadata, steps) {
        counts[step.task as usize] += 1;
    }
    let range = |next: &mut u32, count: u32| {
        let first = *next;
        *next += count;
        Some((first, *next))
    };
    counts.into_iter().scan(0, range).collect()
}

/// The steps in the order of their tasks, and what they do.
fn played(
    metadata: &WorkloadMetadata,
    steps: &[Step],
    tasks: &[(u32, u32)],
    arrivals: Arrivals,
) -> (Vec<Played>, Vec<Act>) {
    let mut places: Vec<u32> = tasks.iter().map(|&(first, _)| first).collect();
    let mut played: Vec<Option<Played>> = vec![None; steps.len()];
    let mut acts = Vec::new();
    for step in of_tasks(metadata, steps) {
        let place = &mut places[step.task as usize];
        let (id, first) = (*place, tasks[step.task as usize].0);
        *place += 1;
        let before = (id > first).then(|| played[id as usize - 1]).flatten();
        let before_ns = before.map(|before| before.recorded_end_ns);
        let due_ns = since(metadata, step.due_at_ns);
        let recorded_run_at_ns = since(metadata, step.run_at_ns);
        acts.extend(act(step, id, tasks, (due_ns, recorded_run_at_ns)));
        played[id as usize] = Some(Played {
            task: step.task,
            cpu: step.cpu,
            arrival: arrival(step.cause, due_ns, before_ns, arrivals),
            due_ns,
            recorded_run_at_ns,
            recorded_end_ns: since(metadata, step.end_at_ns),
            run_ns: step.run_ns,
            idle_state: step.idle_state,
            takes_over: false,
            is_remote: false,
            is_by_timer: matches!(step.cause, Cause::Timer { .. }),
            rest_ns: 0,
            end: step.end,
        });
    }
    (played.into_iter().flatten().collect(), acts)
}

/// How a step becomes due, after one that ended at `before_ns`.
fn arrival(cause: Cause, due_ns: u64, before_ns: Option<u64>, arrivals: Arrivals) -> Arrival {
    match (cause, before_ns) {
        (Cause::Start, None) if due_ns == 0 => Arrival::AtOnce,
        (Cause::Task(_) | Cause::Timer { .. }, _) => Arrival::FromStep,
        (Cause::Absolute, Some(_)) => Arrival::Absolute,
        (Cause::Interrupt, Some(before_ns)) if arrivals == Arrivals::Closed => {
            Arrival::Answer { delay_ns: due_ns.saturating_sub(before_ns) }
        }
        (Cause::Start | Cause::Absolute | Cause::Interrupt | Cause::NextTimer { .. }, _) => {
            Arrival::Outside
        }
    }
}

/// What makes the step with this id due, if it is a step of the log. `recorded_ns` is when it was due, and when it ran.
fn act(step: &Step, id: u32, tasks: &[(u32, u32)], recorded_ns: (u64, u64)) -> Option<Act> {
    let from = step.cause.place()?;
    let (first, end) = tasks.get(from.task as usize).copied().unwrap_or((0, 0));
    let from_step = u64::from(first).saturating_add(from.step);
    let delay_ns = match step.cause {
        Cause::Timer { delay_ns, .. } => Some(delay_ns),
        _ => None,
    };
    let (due_ns, run_at_ns) = recorded_ns;
    (from_step < u64::from(end)).then(|| Act {
        step: from_step as u32,
        offset_ns: from.offset_ns,
        recorded_ns: (due_ns - delay_ns.unwrap_or(0).min(due_ns), run_at_ns),
        target: id,
        delay_ns,
        preempts_after_ns: None,
        answers: None,
    })
}

/// Finds out which steps are woken from another CPU, and which take their CPU from the step that wakes them.
fn find_handovers(steps: &mut [Played], acts: &mut [Act], costs: Costs) {
    for act in acts.iter().filter(|act| act.delay_ns.is_none()) {
        let is_remote = steps[act.step as usize].cpu != steps[act.target as usize].cpu;
        steps[act.target as usize].is_remote = is_remote;
    }
    // A simulated machine takes turns by its tick alone, and does so again.
    for act in acts.iter_mut().filter(|act| costs == Costs::Recorded && act.delay_ns.is_none()) {
        let (waker, woken) = (steps[act.step as usize], steps[act.target as usize]);
        if woken.cpu == waker.cpu {
            let is_before = woken.recorded_run_at_ns < waker.recorded_end_ns;
            act.preempts_after_ns = is_before.then(|| woken.latency_ns());
            steps[act.target as usize].takes_over = true;
        }
    }
}

/// The first act of each step, and the end of the last step's.
fn first_acts(acts: &[Act], step_count: usize) -> Vec<u32> {
    let first = |id: u32| acts.partition_point(|act| act.step < id) as u32;
    (0..=step_count as u32).map(first).collect()
}

impl CausedWorkload {
    /// Takes the steps of a log, in the log's order.
    ///
    /// # Errors
    /// Fails if the recording cannot be played: events were lost, causes are missing.
    pub fn new(
        metadata: &WorkloadMetadata,
        steps: &[Step],
        arrivals: Arrivals,
        costs: Costs,
    ) -> Result<Self, PredictError> {
        refuse(metadata, steps)?;
        let span_ns = metadata.last_at_ns.abs_diff(metadata.first_at_ns);
        let (mut kernel_timers_ns, next_timers) = timers::timers(metadata, steps);
        let lacks_timer =
            |timers_ns: &&mut Vec<u64>| timers_ns.is_empty() && costs == Costs::Recorded;
        for timers_ns in kernel_timers_ns.iter_mut().filter(lacks_timer) {
            timers_ns.push(span_ns.saturating_add(UNSEEN_TIMER_NS));
        }
        let tasks = task_ranges(metadata, steps);
        let (mut steps, mut acts) = played(metadata, steps, &tasks, arrivals);
        find_handovers(&mut steps, &mut acts, costs);
        // Of two at one time, the one that took none was first: waking a task on the same CPU sends nothing.
        acts.sort_unstable_by_key(|act| {
            let is_remote = steps[act.target as usize].is_remote;
            (act.step, act.offset_ns, act.recorded_ns.0, is_remote, *act)
        });
        if costs == Costs::Recorded {
            find_answers(&steps, &tasks, &mut acts);
        }
        let first_acts = first_acts(&acts, steps.len());
        let is_free = match costs {
            Costs::Recorded => free_tasks(metadata, &steps, &tasks),
            Costs::Machine => vec![false; tasks.len()],
        };
        let mut workload = CausedWorkload {
            takes_waiting: true,
            usual_preemption_ns: usual_preemption_ns(&acts),
            urgencies: vec![Urgency::Usual; tasks.len()],
            is_free,
            serves: serving_tasks(&steps, &tasks, &acts, costs),
            steps,
            tasks,
            acts,
            first_acts,
            cpu_count: metadata.cpu_count as usize,
            kernel_timers_ns,
            next_timers,
            tick_phases_ns: tick_phases_ns(metadata),
            span_ns,
            hz: metadata.hz.unwrap_or(250).clamp(10, 10_000),
            costs,
            speed: 1.0,
            shown_exits_ns: BTreeMap::new(),
            delivery_ns: 0,
            idle_entry_ns: 0,
            usual_rests_ns: BTreeMap::new(),
        };
        if costs == Costs::Recorded {
            workload.find_rests(metadata);
        }
        Ok(workload)
    }

    /// The requests from tasks of one kind to tasks of another: pairs of steps, as indices of [`Outcome::windows`].
    ///
    /// A request begins when a step of the first kind is due. It is answered when the first step of the second kind
    /// that follows from it ends. A step follows from those that woke its task or armed its timer, from
    /// what made those run, and so on up to the nearest step of either kind.
    pub fn requests(
        &self,
        asks: &dyn Fn(u32) -> bool,
        answers: &dyn Fn(u32) -> bool,
    ) -> Vec<(usize, usize)> {
        let mut parents = vec![None; self.steps.len()];
        for act in &self.acts {
            parents[act.target as usize] = Some(act.step);
        }
        // Of each asking step, the answer that ended first.
        let mut answered: BTreeMap<usize, usize> = BTreeMap::new();
        for (id, step) in self.steps.iter().enumerate().filter(|(_, step)| answers(step.task)) {
            let mut at = parents[id];
            for _ in 0..HOP_COUNT_MAX {
                let Some(from) = at else { break };
                let task = self.steps[from as usize].task;
                if asks(task) {
                    let first = answered.entry(from as usize).or_insert(id);
                    if step.recorded_end_ns < self.steps[*first].recorded_end_ns {
                        *first = id;
                    }
                    break;
                }
                if answers(task) {
                    break;
                }
                at = parents[from as usize];
            }
        }
        answered.into_iter().collect()
    }

    /// The steps that something woke, as indices of [`Outcome::windows`], with when that was in the recording, from its
    /// beginning.
    pub fn woken_steps(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let steps = self.steps.iter().enumerate();
        steps
            .filter(|(_, step)| step.arrival != Arrival::AtOnce)
            .map(|(id, step)| (id, step.due_ns))
    }

    /// How many steps governors have seen before a run; 0 for those of a simulated machine.
    fn history_step_count(&self) -> u64 {
        let count = HISTORY_STEP_COUNT.saturating_mul(self.cpu_count).min(self.steps.len());
        if self.costs == Costs::Machine { 0 } else { count as u64 }
    }

    /// Says how fast the recorded CPUs were, of their nominal speed. A run under a power limit
    /// ([`Hardware::tdp_mw`]) then takes as long as recorded where it is as fast, and longer or shorter otherwise.
    pub fn set_speed(&mut self, speed: f64) {
        self.speed = speed;
    }

    /// See [`Self::set_speed`]; 1 if nothing was said.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// How many steps it has.
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// How many tasks it has; they are numbered from 0.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// How many CPUs it needs.
    pub fn cpu_count(&self) -> usize {
        self.cpu_count
    }

    /// What the recording shows of the exit latencies of states, by index. A state of which it shows too little is
    /// missing.
    pub fn shown_exits_ns(&self) -> &BTreeMap<u8, u64> {
        &self.shown_exits_ns
    }

    /// The hardware for recorded costs: nothing costs anything but what the log has.
    pub fn hardware(&self, machine: &Machine) -> Hardware {
        Hardware {
            package_count: 1,
            core_count: self.cpu_count.max(1) as u64,
            thread_count: 1,
            hz: u64::from(self.hz),
            ipi_send_ns: 0,
            ipi_send_remote_ns: 0,
            ipi_delivery_ns: self.delivery_ns,
            ipi_receive_ns: 0,
            store_ns: 0,
            store_remote_ns: 0,
            store_delivery_ns: 0,
            ring_check_ns: 0,
            irq_entry_ns: 0,
            switch_ns: 0,
            idle_loop_ns: self.idle_entry_ns,
            housekeeping_ns: None,
            ..Hardware::of(machine)
        }
    }
}

impl Played {
    /// Whether something other than its own CPU's task wakes it.
    fn is_woken(&self) -> bool {
        self.arrival != Arrival::AtOnce && !self.takes_over
    }

    fn latency_ns(&self) -> u64 {
        self.recorded_run_at_ns.saturating_sub(self.due_ns)
    }

    /// The kind of its wake-up in the recording.
    fn kind(&self) -> Kind {
        (self.is_remote, self.idle_state)
    }
}

/// Fails if a recording does not say enough to be played.
fn refuse(metadata: &WorkloadMetadata, steps: &[Step]) -> Result<(), PredictError> {
    let step_count = steps.len() as u64;
    if steps.is_empty() {
        return Err(PredictError::Empty);
    }
    if steps.len() > STEP_COUNT_MAX {
        return Err(PredictError::TooLong { count: steps.len() });
    }
    let at_ns = |at_ns: i64| since(metadata, at_ns);
    let of_step = |step: &Step| {
        let times = [step.due_at_ns, step.run_at_ns, step.end_at_ns].map(at_ns);
        times.into_iter().fold(step.run_ns, u64::max)
    };
    let last_ns = steps.iter().map(of_step).fold(at_ns(metadata.last_at_ns), u64::max);
    if last_ns > SPAN_MAX_NS {
        return Err(PredictError::TooLate { hours: last_ns / NS_PER_HOUR });
    }
    if metadata.lost_event_count > 0 {
        return Err(PredictError::LostEvents { count: metadata.lost_event_count });
    }
    let causeless_count = metadata.causeless_count;
    if causeless_count.saturating_mul(100) > step_count {
        return Err(PredictError::CausesMissing { causeless_count, step_count });
    }
    let unseen = &metadata.unseen_cpus;
    let on_unseen = steps.iter().filter(|step| unseen.contains(&step.cpu)).count() as u64;
    if on_unseen.saturating_mul(20) > step_count {
        let percent = 100.0 * on_unseen as f64 / step_count as f64;
        return Err(PredictError::UnseenCpus { cpus: unseen.clone(), percent });
    }
    Ok(())
}

/// Plays a workload. The setup's hardware must have as many CPUs as the workload needs.
///
/// # Errors
/// Fails if the run fails, or if steps never become due.
pub fn play(
    workload: &Arc<CausedWorkload>,
    setup: &mut Setup<'_>,
    seed: u64,
) -> Result<Outcome, PredictError> {
    setup.ends_with_tasks = true;
    setup.ignores_spans = true;
    setup.kernel_timers_ns = workload.kernel_timers_ns.clone();
    setup.next_timers = workload.next_timers.clone();
    setup.kernel_timers_span_ns = workload.span_ns.saturating_add(UNSEEN_TIMER_NS);
    setup.tick_phases_ns = workload.tick_phases_ns.clone();
    if workload.costs == Costs::Recorded {
        setup.scheduler = Scheduler::linux(workload.cpu_count, workload.takes_waiting);
    }
    let limit_ns = workload.span_ns.saturating_mul(LONGER_MAX).saturating_add(LONGER_BY_NS);
    let (ledger, load) = load(workload);
    let report = match workload.history_step_count() {
        0 => simulate(setup, load, limit_ns, seed),
        step_count => {
            let (_, before) = self::load(workload);
            simulate_after(setup, (before, step_count), load, limit_ns, seed)
        }
    };
    Outcome::new(workload, &ledger, report.map_err(PredictError::Simulation)?)
}

/// The workload as a load of the simulated machine, and the ledger in which its tasks will write.
fn load(workload: &Arc<CausedWorkload>) -> (Arc<Ledger>, Load) {
    let ledger = Arc::new(Ledger::new(workload.steps.len()));
    let tasks = (0..workload.tasks.len()).map(|task| {
        let program = Player::new(workload.clone(), ledger.clone(), task);
        let is_pinned = program.is_pinned();
        Spawn { is_pinned, ..Spawn::pinned(program.first_cpu(), program) }
    });
    let tasks: Vec<Spawn> = tasks.collect();
    let source = ArrivalSource::new(workload.clone(), ledger.clone());
    let sources = match source.first_at_ns() {
        Some(at_ns) => vec![(at_ns, Box::new(source) as Box<_>)],
        None => Vec::new(),
    };
    (ledger, Load { tasks, sources })
}
