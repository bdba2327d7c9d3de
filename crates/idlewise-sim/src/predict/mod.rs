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
//! | which wake-up a step waits for | the same one, whatever else comes first |
//! | the CPU of each step | the same |
//! | whether a woken task takes the CPU from the task that runs there | the same; what most did, where none ran |
//! | a timer | as long after it was armed; a point in time at that point |
//! | the kernel's own timers, which wake no task | at their times: governors look at when the next one is due |
//! | an arrival from outside | [`Arrivals`]: at its time, or as long after the task began to wait |
//! | how long a woken task waits for a CPU | follows from the idle state that the CPU is in, and from what runs there |
//!
//! # The costs of a wake-up
//!
//! A recorded wake-up took some time until the task ran. Part of it is the idle state's exit latency, which another
//! state changes. The rest (delivery, the kernel's work, the switch) is its **rest**, which stays as it was. The
//! exit latency of a state is what the recording shows of it: the tenth percentile of the wake-ups that found
//! their CPU in it, less that of wake-ups that found a CPU running and did not wait behind its task; but no more than the table says, and
//! the table's where there are fewer than [`SHOWN_COUNT_MIN`]. So with the recorded states each wake-up takes as long as
//! recorded, except where it took less than the state's exit latency.
//! A wake-up that finds its CPU in another state than in the recording has the rest of usual ones that find it so.
//! A task that waits behind another one has no rest: the wait follows from the run, and the switch is in the other
//! one's time. A task whose data is there before it waits is not woken at all.
//! Until an idle CPU learns of another one's wake-up, it stays idle. That is part of the stay from which its governor
//! learns. The time that a CPU takes to go idle is not.
//! A task that is woken on the CPU that it then runs on has no rest: until the switch the other one runs, and what
//! the wake-up costs is in that one's time.
//!
//! A log that a simulated machine wrote has no rests: the same machine adds the same costs again
//! ([`Costs::Machine`]), and the run is the recorded one to the nanosecond.
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
//! data was there in time, timeouts that did not expire, interrupts that woke nobody. Run queues are
//! simpler than Linux's: a woken task runs before those whose turn is over, takes the CPU from a task if an interrupt wakes it, and
//! ticks make tasks take turns. Priorities and shares of CPU time are not known. No task runs faster or slower than recorded: caches, SMT and
//! frequency are those of the recording.
//!
//! | file | holds |
//! | --- | --- |
//! | `calibrate.rs` | [`calibrate`]: what the recording does not show |
//! | `mod.rs` | [`CausedWorkload`]: a log, ready to be played; [`play`] |
//! | `player.rs` | the tasks and arrivals as programs of the simulated machine |
//! | `outcome.rs` | [`Outcome`]: what a run did to the workload; [`Reproduction`] |

mod calibrate;
mod outcome;
mod player;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use idlewise_core::tick_period_ns;
use idlewise_trace::causes::{Cause, Step, StepEnd, WorkloadMetadata};

use crate::simulate::{
    Found, Hardware, Load, NextTimer, Quantiles, Setup, SimulationError, Spawn, simulate,
    simulate_after,
};
use crate::{Machine, MachineError};
use player::{ArrivalSource, Ledger, Player};

pub use calibrate::calibrate;
pub use outcome::{
    DISTANCE_MAX, Durations, Likeness, Miss, Outcome, PERCENTILE_ERROR_MAX, Reproduction,
    SAME_RATIO, THROUGHPUT_ERROR_MAX, Vouched, Window,
};

/// With fewer wake-ups than this from a state, the recording does not show its exit latency.
pub const SHOWN_COUNT_MIN: usize = 20;
/// Shorter exits are lost among what else a wake-up takes.
const DOUBTFUL_EXIT_MIN_NS: u64 = 10_000;
/// So many steps for each CPU are played before a run, so that governors have a history.
pub const HISTORY_STEP_COUNT: usize = 250;
/// A CPU without a timer of the kernel's own in the recording has one so long after its end: some come every second.
const UNSEEN_TIMER_NS: u64 = 1_000_000_000;
/// A run may take this many times as long as the recording, and a second, before it is given up.
const LONGER_MAX: u64 = 10;
const LONGER_BY_NS: u64 = 1_000_000_000;
/// A request passes at most this many steps on its way. What follows from one by more was hardly meant by it.
const HOP_COUNT_MAX: usize = 64;
/// More steps than this are not held: they would take 6 GB.
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
    /// It takes the CPU from a task that runs there when an interrupt wakes it.
    preempts: bool,
    /// A task on another CPU wakes it.
    is_remote: bool,
    /// What the wake-up costs besides the exit latency, if it finds the CPU as it did in the recording.
    rest_ns: u64,
    end: StepEnd,
}

/// The tasks that a step met on its CPU in the recording.
#[derive(Clone, Copy, Debug, Default)]
struct Others {
    /// One stopped between the wake-up and the step, so the step waited for it.
    were_ahead: bool,
    /// Whether one that ran at the wake-up went on after the step; `None` if none ran.
    ran_on: Option<bool>,
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
}

/// A workload log, ready to be played.
pub struct CausedWorkload {
    steps: Vec<Played>,
    /// The steps of each task: the first, and the one after the last.
    tasks: Vec<(u32, u32)>,
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
    /// What the recording shows of the exit latency of each state.
    shown_exits_ns: BTreeMap<u8, u64>,
    /// How long an idle CPU takes to learn of a wake-up by another one.
    delivery_ns: u64,
    /// From when a CPU has nothing to run until it enters an idle state.
    idle_entry_ns: u64,
    /// What is left of usual wake-ups after the exit latency, by whether another CPU wakes and by what they find.
    usual_rests_ns: BTreeMap<(bool, Option<u8>), u64>,
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

/// By CPU: when the kernel's own timers are due, and which timer is next from when on, those of played tasks aside.
fn timers(metadata: &WorkloadMetadata, steps: &[Step]) -> (Vec<Vec<u64>>, Vec<Vec<NextTimer>>) {
    let cpu_count = metadata.cpu_count as usize;
    let mut kernel_timers_ns = vec![Vec::new(); cpu_count];
    let mut known_timers = vec![Vec::new(); cpu_count];
    // Timers of played tasks are armed in the run.
    let by_timer = of_tasks(metadata, steps)
        .filter(|step| matches!(step.cause, Cause::Timer { .. } | Cause::Absolute));
    let due_for_tasks: BTreeSet<u64> =
        by_timer.map(|step| since(metadata, step.due_at_ns)).collect();
    for step in steps.iter().filter(|step| metadata.tasks[step.task as usize].is_idle) {
        let (cpu, at_ns) = (usize::from(step.cpu), since(metadata, step.due_at_ns));
        match step.cause {
            Cause::NextTimer { delay_ns } => {
                let due_ns = at_ns.saturating_add(delay_ns);
                let is_of_task = due_for_tasks.contains(&due_ns);
                known_timers[cpu].push((NextTimer { from_ns: at_ns, due_ns }, is_of_task));
            }
            _ => kernel_timers_ns[cpu].push(at_ns),
        }
    }
    (kernel_timers_ns, known_timers.into_iter().map(without_tasks).collect())
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
            preempts: true,
            is_remote: false,
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
        let (mut kernel_timers_ns, next_timers) = timers(metadata, steps);
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
        let first_acts = first_acts(&acts, steps.len());
        let mut workload = CausedWorkload {
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

    /// How many steps it has.
    pub fn step_count(&self) -> usize {
        self.steps.len()
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

    /// States that the recording shows to be left in less than a tenth of what its machine's table says, with both: index,
    /// shown, table. Something else that delays wake-ups of running CPUs may hide the exit. A run of the recorded states
    /// does not tell, since exit and rest add up to what was recorded; on other states it would be wrong.
    pub fn doubtful_exits_ns(&self, recorded: &Machine) -> Vec<(usize, u64, u64)> {
        let table_ns = recorded.exit_latencies_ns();
        let doubtful = self.shown_exits_ns.iter().filter_map(|(&state, &shown_ns)| {
            let state = usize::from(state);
            let table_ns = *table_ns.get(state)?;
            let is_doubtful = table_ns >= DOUBTFUL_EXIT_MIN_NS && shown_ns * 10 < table_ns;
            is_doubtful.then_some((state, shown_ns, table_ns))
        });
        doubtful.collect()
    }

    /// Splits each recorded wake-up into how long the CPU takes to learn of it, the idle state's exit latency, and the
    /// rest.
    fn find_rests(&mut self, metadata: &WorkloadMetadata) {
        let machine = metadata.machine.as_ref();
        let table_ns = machine.map_or_else(Vec::new, Machine::exit_latencies_ns);
        let mut all: BTreeMap<Option<u8>, Vec<u64>> = BTreeMap::new();
        let mut by_kind: BTreeMap<(bool, Option<u8>), Vec<u64>> = BTreeMap::new();
        let others = self.others();
        // What waits behind a task shows how long that ran.
        let is_shown = |(step, others): &(&Played, &Others)| {
            step.is_woken() && !(step.idle_state.is_none() && others.were_ahead)
        };
        for (step, _) in self.steps.iter().zip(&others).filter(is_shown) {
            all.entry(step.idle_state).or_default().push(step.latency_ns());
            by_kind.entry((step.is_remote, step.idle_state)).or_default().push(step.latency_ns());
        }
        let low_ns = |latencies_ns: &mut Vec<u64>| {
            let place = latencies_ns.len() / 10;
            let is_shown = latencies_ns.len() >= SHOWN_COUNT_MIN;
            is_shown.then(|| *latencies_ns.select_nth_unstable(place).1)
        };
        let lows = all.iter_mut().filter_map(|(state, all_ns)| Some((*state, low_ns(all_ns)?)));
        let mut lows_ns: BTreeMap<Option<u8>, u64> = lows.collect();
        let busy_ns = lows_ns.remove(&None);
        // Without wake-ups of running CPUs, those from the shallowest state show it, less what the table says.
        let shallow_ns = || {
            let (state, low_ns) = lows_ns.first_key_value()?;
            let table_ns = table_ns.get(usize::from((*state)?)).copied().unwrap_or(0);
            Some(low_ns.saturating_sub(table_ns))
        };
        let usual_ns = busy_ns.or_else(shallow_ns).unwrap_or(0);
        let mut deepest_ns = 0;
        for (state, low_ns) in lows_ns {
            let Some(state) = state else { continue };
            // A deeper state takes no less than a shallower one, and none takes more than the table says: what is
            // above that stays in the wake-ups' rests.
            deepest_ns = low_ns.saturating_sub(usual_ns).max(deepest_ns);
            let table_ns = table_ns.get(usize::from(state)).copied().unwrap_or(u64::MAX);
            self.shown_exits_ns.insert(state, deepest_ns.min(table_ns));
        }
        self.idle_entry_ns = metadata.idle_entry_ns.unwrap_or(0);
        let is_polling = |state: u8| {
            let state = machine.and_then(|machine| machine.states.get(usize::from(state)));
            state.is_some_and(|state| state.idle().is_polling)
        };
        // A polling CPU sees the wake-up itself.
        let told = metadata.left_after_ns.iter().filter(|(state, _)| !is_polling(**state));
        let deliveries_ns = told.filter_map(|(state, left_ns)| {
            Some(left_ns.saturating_sub(*self.shown_exits_ns.get(state)?))
        });
        let told_ns = deliveries_ns.min().unwrap_or(0);
        // What the log tells is the median, which contains what else delays interrupts. The fastest wake-ups bound it.
        let lows = by_kind.iter_mut().filter(|((is_remote, _), _)| *is_remote);
        let bounds_ns = lows.filter_map(|((_, state), latencies_ns)| {
            let state = state.filter(|state| !is_polling(*state))?;
            let exit_ns = self.shown_exits_ns.get(&state)?;
            Some(low_ns(latencies_ns)?.saturating_sub(*exit_ns))
        });
        self.delivery_ns = bounds_ns.min().unwrap_or(0).min(told_ns);
        let delivery_ns = |is_remote: bool, state: u8| {
            if is_remote && !is_polling(state) { self.delivery_ns } else { 0 }
        };
        for ((is_remote, state), latencies_ns) in &mut by_kind {
            let Some(low_ns) = low_ns(latencies_ns) else { continue };
            let known_ns = state.map_or(0, |state| {
                let exit_ns = self.shown_exits_ns.get(&state).copied().unwrap_or(0);
                exit_ns + delivery_ns(*is_remote, state)
            });
            self.usual_rests_ns.insert((*is_remote, *state), low_ns.saturating_sub(known_ns));
        }
        let mut rests_ns = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let latency_ns = step.latency_ns();
            let rest_ns = match step.idle_state {
                Some(state) => {
                    let shown_ns = self.shown_exits_ns.get(&state).copied();
                    let exit_ns = shown_ns.unwrap_or(latency_ns.saturating_sub(usual_ns));
                    latency_ns.saturating_sub(exit_ns + delivery_ns(step.is_remote, state))
                }
                None => {
                    let of_kind_ns = self.usual_rests_ns.get(&(step.is_remote, None)).copied();
                    latency_ns.min(of_kind_ns.unwrap_or(usual_ns))
                }
            };
            rests_ns.push(if step.is_woken() { rest_ns } else { 0 });
        }
        for (step, rest_ns) in self.steps.iter_mut().zip(rests_ns) {
            step.rest_ns = rest_ns;
        }
        self.find_preemptions(&others, 2 * usual_ns);
    }

    /// What a wake-up costs in the run besides the exit latency. A wake-up that finds its CPU otherwise than it did in
    /// the recording costs as much more or less as usual ones do.
    fn rest_ns(&self, step: usize, found: Found) -> u64 {
        let step = &self.steps[step];
        let state = match found {
            Found::Ready if step.arrival == Arrival::AtOnce => return step.rest_ns,
            // The switch is in the time of the task that it waits for.
            Found::Ready | Found::Behind => return 0,
            Found::Running => None,
            Found::Idle(state) => u8::try_from(state).ok(),
        };
        if state == step.idle_state || step.takes_over {
            return step.rest_ns;
        }
        let usual_ns = |state| self.usual_rests_ns.get(&(step.is_remote, state));
        match (usual_ns(state), usual_ns(step.idle_state)) {
            (Some(usual_ns), Some(recorded_ns)) => {
                (step.rest_ns + usual_ns).saturating_sub(*recorded_ns)
            }
            _ => step.rest_ns,
        }
    }

    /// The tasks that each step met on its CPU.
    fn others(&self) -> Vec<Others> {
        let steps = &self.steps;
        let of = |id: u32| &steps[id as usize];
        let mut order: Vec<u32> = (0..steps.len() as u32).collect();
        order.sort_unstable_by_key(|&id| (of(id).cpu, of(id).recorded_run_at_ns, id));
        let mut met = vec![Others::default(); steps.len()];
        let mut before: Vec<u32> = Vec::new();
        for (place, &id) in order.iter().enumerate() {
            let step = of(id);
            if place > 0 && of(order[place - 1]).cpu != step.cpu {
                before.clear();
            }
            before.retain(|&other| of(other).recorded_end_ns > step.due_ns);
            let has_ended = |other: u32| of(other).recorded_end_ns <= step.recorded_run_at_ns;
            let ran = before.iter().filter(|&&other| of(other).recorded_run_at_ns <= step.due_ns);
            met[id as usize] = Others {
                were_ahead: before.iter().any(|&other| has_ended(other)),
                ran_on: ran.map(|&other| !has_ended(other)).reduce(|one, other| one || other),
            };
            before.push(id);
        }
        met
    }

    /// Finds which wake-ups took the CPU from a task that ran there. One that does, does it within `soon_ns`.
    fn find_preemptions(&mut self, others: &[Others], soon_ns: u64) {
        let preempts = |(step, others): (&Played, &Others)| {
            let ran_on = others.ran_on.filter(|_| step.is_woken())?;
            Some(ran_on && step.latency_ns() <= soon_ns)
        };
        let known: Vec<Option<bool>> = self.steps.iter().zip(others).map(preempts).collect();
        let is_known = known.iter().flatten().count();
        let preempting = known.iter().flatten().filter(|&&preempts| preempts).count();
        let most_do = 2 * preempting >= is_known;
        for (step, known) in self.steps.iter_mut().zip(known) {
            step.preempts = known.unwrap_or(most_do);
        }
    }

    /// The exit latencies to simulate: what the recording shows. States that it does not show have the table's.
    pub fn exit_quantiles(&self, machine: &Machine) -> BTreeMap<usize, Quantiles> {
        let shown = self.shown_exits_ns.iter().filter_map(|(&state, &exit_ns)| {
            let quantiles = Quantiles::new(&[(0.0, exit_ns), (1.0, exit_ns)])?;
            Some((usize::from(state), quantiles))
        });
        shown.filter(|(state, _)| *state < machine.states.len()).collect()
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

/// The next timers of a CPU but for those of played tasks, which are armed in the run. Where a task's was next, the one
/// behind it is that known before, if it is due later; otherwise it was cancelled, and it is the one known after.
fn without_tasks(known: Vec<(NextTimer, bool)>) -> Vec<NextTimer> {
    let mut kept: Vec<NextTimer> = Vec::with_capacity(known.len());
    let mut after = None;
    // Backwards: what is known after each one of a task.
    let mut behind = vec![None; known.len()];
    for (place, &(timer, is_of_task)) in known.iter().enumerate().rev() {
        match is_of_task {
            true => behind[place] = after.filter(|&due_ns| due_ns >= timer.due_ns),
            false => after = Some(timer.due_ns),
        }
    }
    let mut before = None;
    for ((timer, is_of_task), behind) in known.into_iter().zip(behind) {
        if !is_of_task {
            before = Some(timer.due_ns);
            kept.push(timer);
            continue;
        }
        let Some(due_ns) = before.filter(|&due_ns| due_ns >= timer.due_ns).or(behind) else {
            continue;
        };
        before = Some(due_ns);
        if kept.last().is_none_or(|last| last.due_ns != due_ns) {
            kept.push(NextTimer { due_ns, ..timer });
        }
    }
    kept
}

/// When each CPU ticks first, after the beginning.
fn tick_phases_ns(metadata: &WorkloadMetadata) -> Vec<u64> {
    let Some(period_ns) = metadata.hz.map(|hz| i64::from(tick_period_ns(hz))) else {
        return Vec::new();
    };
    let since_ns =
        |phase_ns: &i64| (phase_ns - metadata.first_at_ns % period_ns).rem_euclid(period_ns);
    metadata.tick_phases_ns.iter().map(|phase_ns| since_ns(phase_ns) as u64).collect()
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
    setup.wakes_preempt = workload.costs == Costs::Recorded;
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
        Spawn::pinned(program.first_cpu(), program)
    });
    let tasks: Vec<Spawn> = tasks.collect();
    let source = ArrivalSource::new(workload.clone(), ledger.clone());
    let sources = match source.first_at_ns() {
        Some(at_ns) => vec![(at_ns, Box::new(source) as Box<_>)],
        None => Vec::new(),
    };
    (ledger, Load { tasks, sources })
}
