//! The simulated machine: discrete events in virtual time.
//!
//! In a replay the recorded events are fixed. Here the machine reacts: a faster exit speeds up a
//! closed loop, an IPI that is not sent saves its sender's time, and a state that keeps SMT
//! resources slows the siblings. Each CPU's idle loop is the replay's own ([`crate::replay`]), with
//! the same governors, promotion, polling limit, latency limit and tick.
//!
//! # A CPU
//!
//! ```text
//!             nothing to do                event, tick or own limit
//!  running ──────────────────► idle ──────────────────────────► exiting ──► running
//!     ▲  select, stop tick?     core and package states follow    │ exit latency
//!     └───────────────────────────── reflect ◄────────────────────┘
//! ```
//!
//! * **Running** is a sequence of pieces of work: interrupts first, then functions that other CPUs
//!   called, then tasks in turn. An interrupt suspends a task. Work takes its nominal time divided
//!   by the current speed: the package's frequency times what SMT leaves of a core.
//! * **The tick** runs while a task does, and its handler makes tasks take turns. On idle entry the
//!   governor may stop it. It is restarted only when a task runs.
//! * **Exiting** takes the table's exit latency (or a sample from given quantiles), at most that of
//!   the core's state, because a core is only as deep as its shallowest thread. An entry in
//!   progress is completed first. States that CPUs share are entered and left as in a replay
//!   (`shared.rs`): their exit is added, once for all that wait for it.
//! * **Timers** fire at their hard expiry, or with an earlier timer's interrupt within their slack.
//!
//! # Waking another CPU
//!
//! A request to interrupt a CPU becomes an IPI (send cost, delivery, receive cost), or one of
//! these: a store, if the CPU idles in a state that monitors memory and `ipi_less` is on (it rings
//! the same [`idlewise_core::Doorbell`] as threads use); a free ride, if somebody already rang;
//! nothing, if the queue for the same purpose (tasks, calls) held an entry, whose IPI is under way.
//!
//! # Energy
//!
//! An idle core consumes the power of its state; a running one, its running power times a power of
//! the frequency. Entering a state costs the energy that makes it break even at its target
//! residency ([`crate::CostModel`]). With a power limit, the frequency of running cores is set once
//! per period so that the last period's mix of states would have met the limit. It is nominal in the first
//! period. What a package spends beyond its limit it saves later.
//!
//! # Files
//!
//! | file | holds |
//! | --- | --- |
//! | `causes.rs` | the steps of tasks and what causes them, as a recording would show them |
//! | `cpu.rs` | the state of a CPU: what it does, runs and waits for |
//! | `work.rs` | what it runs: interrupts, calls, tasks in turn |
//! | `idle.rs` | how it goes idle and leaves; the gap between |
//! | `timers.rs` | its tick and the timers of its tasks |
//! | `wake.rs` | messages, wake-ups, IPIs and stores |
//! | `place.rs` | which CPU a woken task gets |
//! | `run_queue.rs` | which task a CPU runs next |
//! | `power.rs` | cores and packages: speed, power, energy |
//! | `groups.rs` | the CPUs that share states |
//! | `task.rs` | what workloads are made of |
//! | `hardware.rs`, `parameter.rs`, `quantiles.rs` | what can be configured |
//! | `event.rs`, `report.rs` | the event queue; the results |
//!
//! # Known limitations
//!
//! Caches, memory and migration cost nothing. All tasks have the same weight. A polling CPU notices a store as fast as a
//! monitoring one.

mod causes;
mod cpu;
mod event;
mod groups;
mod hardware;
mod idle;
pub(crate) mod parameter;
mod place;
mod power;
mod quantiles;
mod report;
mod run_queue;
mod task;
mod timers;
mod wake;
mod work;

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use idlewise_core::{DisabledMask, Governor, NO_LATENCY_LIMIT_NS, StateIndex, tick_period_ns};
use rayon::prelude::*;

use crate::idle_loop::{Boxed, IdleLoop, Setting};
use crate::shared::Group;
use crate::{CostModel, Exits, Machine, MachineError, Scope, SharedStates};
use causes::Told;
use cpu::{Cpu, InterruptCause, Mode, Segment};
use event::{Event, Queue};
use groups::Groups;
pub(crate) use place::HOT_NS;
use place::RecentLoad;
use power::{Core, Package};

pub use hardware::{Hardware, Shape, ShapeError};
pub use parameter::{ParameterError, ParameterInfo};
pub use quantiles::Quantiles;
pub use report::{CoreTally, IpiCounts, Metrics, Report, TaskCounts};
pub use run_queue::Scheduler;
pub use task::{
    EventSource, Fired, Found, Irq, Op, Program, Spawn, TaskId, Urgency, View, exponential_ns,
};

/// With more steps than this without time passing, the workload is in an endless loop.
const INSTANT_STEP_MAX: u64 = 1_000_000;

/// If more interrupts than this wait for a CPU, or messages for a task, they will not be served
/// within any realistic simulated time, and memory would keep growing.
const PENDING_IRQ_MAX: usize = 1_000_000;
const MAILBOX_MAX: usize = 4_000_000;

/// Makes a governor for a CPU.
pub type MakeGovernor<'a> = dyn Fn() -> Box<dyn Governor> + Sync + 'a;

/// The machine that a workload runs on.
pub struct Setup<'a> {
    /// States, powers and architecture.
    pub machine: &'a Machine,
    /// Everything else that time and energy depend on.
    pub hardware: Hardware,
    /// The disabled states.
    pub disabled: DisabledMask,
    /// The states that only these packages have disabled: `(package, states)`. Packages whose tasks are
    /// pinned and whose costs are their own are like machines of their own, and may differ in this.
    pub disabled_by_package: Vec<(usize, DisabledMask)>,
    /// The longest allowed exit latency.
    pub latency_limit_ns: i64,
    /// Makes the governor of each CPU.
    pub make_governor: &'a MakeGovernor<'a>,
    /// Wake-up latencies by state, instead of the table's worst case.
    pub exit_quantiles: BTreeMap<StateIndex, Quantiles>,
    /// Whether to fill in [`Report::gaps`].
    pub keeps_gaps: bool,
    /// Whether to fill in [`Report::steps`].
    pub keeps_steps: bool,
    /// How often to note the energy in [`Report::energy_curve`].
    pub energy_every_ns: Option<u64>,
    /// Whether the run ends when every task has exited.
    pub ends_with_tasks: bool,
    /// How CPUs choose among their tasks, and whether tasks that are not pinned are placed as Linux places them.
    pub scheduler: Scheduler,
    /// The kernel's own timers on each CPU, which wake no task: when each is due, in order. After the last one they come
    /// again, as long after the first round as `kernel_timers_span_ns`.
    pub kernel_timers_ns: Vec<Vec<u64>>,
    /// See `kernel_timers_ns`. [`Setup::next_timers`] come again after the same time.
    pub kernel_timers_span_ns: u64,
    /// Which timer is next on each CPU, those of tasks aside: what is known beforehand. Without any, `kernel_timers_ns` are
    /// known.
    pub next_timers: Vec<Vec<NextTimer>>,
    /// How often a CPU whose tick runs has something to do at the next one, which it then cannot stop: 0 to 1. Linux says
    /// so of a CPU that has RCU callbacks.
    pub tick_need: f64,
    /// When the first tick of each CPU comes.
    pub tick_phases_ns: Vec<u64>,
    /// Whether ticks begin at random times. Those in `tick_phases_ns` begin later by one random time, so that CPUs that tick
    /// together still do; the others each at their own. Otherwise all others begin at 0.
    pub has_random_ticks: bool,
    /// Whether to leave out the time spans that workloads record, which take up to a fifth of a run.
    pub ignores_spans: bool,
    /// How long the machine runs before the report's time begins.
    pub warm_up_ns: u64,
}

impl<'a> Setup<'a> {
    /// Makes a setup with default hardware and all states that are enabled by default.
    pub fn new(machine: &'a Machine, make_governor: &'a MakeGovernor<'a>) -> Self {
        Setup {
            machine,
            hardware: Hardware::of(machine),
            disabled: machine.disabled_by_default(),
            disabled_by_package: Vec::new(),
            latency_limit_ns: NO_LATENCY_LIMIT_NS,
            make_governor,
            exit_quantiles: BTreeMap::new(),
            keeps_gaps: false,
            keeps_steps: false,
            energy_every_ns: None,
            ends_with_tasks: false,
            scheduler: Scheduler::Turns,
            kernel_timers_ns: Vec::new(),
            kernel_timers_span_ns: 0,
            next_timers: Vec::new(),
            tick_need: 0.0,
            tick_phases_ns: Vec::new(),
            has_random_ticks: false,
            ignores_spans: false,
            warm_up_ns: 0,
        }
    }
}

/// From a point in time on, a CPU's next timer is due then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextTimer {
    /// From when.
    pub from_ns: u64,
    /// When it is due.
    pub due_ns: u64,
}

/// The load of a machine.
#[derive(Default)]
pub struct Load {
    /// The tasks. A task's number is its index here.
    pub tasks: Vec<Spawn>,
    /// The sources, each with the time at which it first fires.
    pub sources: Vec<(u64, Box<dyn EventSource>)>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The machine has no states.
    #[error("{0}")]
    Machine(MachineError),
    /// The machine's shape is impossible.
    #[error("{0}")]
    Shape(ShapeError),
    /// A task or interrupt is on a CPU that does not exist.
    #[error(
        "the workload names CPU {cpu}, but the machine has CPUs 0 to {}: set core_count or \
         package_count",
        cpu_count - 1
    )]
    NoCpu {
        /// The CPU.
        cpu: usize,
        /// How many there are.
        cpu_count: usize,
    },
    /// There are more CPUs than a log's 16-bit CPU numbers allow.
    #[error("an idle log numbers at most 65536 CPUs")]
    TooManyCpusForLog,
    /// A task runs forever without time passing.
    #[error(
        "the workload goes on without time passing at {at_ns} ns and would never end: give its \
         steps a duration"
    )]
    Stuck {
        /// When.
        at_ns: u64,
    },
    /// The workload sends more than the machine can serve.
    #[error(
        "{count} {what} wait at {at_ns} ns: the workload sends more than the machine can serve; \
         make its intervals longer"
    )]
    Overloaded {
        /// What waits: interrupts or messages.
        what: &'static str,
        /// How many of them.
        count: usize,
        /// When.
        at_ns: u64,
    },
    /// The run reached the limit of events.
    #[error(
        "ended after {event_limit} events at {at_ns} of {duration_ns} ns: shorten --duration or \
         raise event_limit"
    )]
    TooLong {
        /// The limit.
        event_limit: u64,
        /// The time that the run reached.
        at_ns: u64,
        /// The time that it should have reached.
        duration_ns: u64,
    },
}

/// Runs a workload for `duration_ns` after the setup's warm-up, with random numbers from the seed.
///
/// # Errors
/// Fails if the machine or workload is impossible, or if the run would never end.
pub fn simulate(
    setup: &Setup<'_>,
    load: Load,
    duration_ns: u64,
    seed: u64,
) -> Result<Report, SimulationError> {
    run_from(setup, load, duration_ns, seed, Vec::new())
}

/// Like [`simulate`], with governors that know what they learnt from another load on the same machine, until that had
/// completed so many operations. Everything else begins anew.
///
/// # Errors
/// Fails like [`simulate`].
pub fn simulate_after(
    setup: &Setup<'_>,
    (before, operation_count): (Load, u64),
    load: Load,
    duration_ns: u64,
    seed: u64,
) -> Result<Report, SimulationError> {
    let mut past = Simulation::new(setup, before, duration_ns, seed, Vec::new())?;
    past.operation_count_max = operation_count;
    past.run(duration_ns)?;
    let past_ns = past.now_ns;
    let past_loops = past.cpus.into_iter().map(|cpu| cpu.idle.restarted(past_ns)).collect();
    run_from(setup, load, duration_ns, seed, past_loops)
}

fn run_from(
    setup: &Setup<'_>,
    load: Load,
    duration_ns: u64,
    seed: u64,
    past_loops: Vec<IdleLoop<Boxed>>,
) -> Result<Report, SimulationError> {
    let mut simulation = Simulation::new(setup, load, duration_ns, seed, past_loops)?;
    if setup.warm_up_ns > 0 {
        simulation.run(setup.warm_up_ns)?;
        simulation.end_warm_up();
    }
    let end_ns = setup.warm_up_ns.saturating_add(duration_ns);
    simulation.run(end_ns)?;
    let end_ns = if simulation.is_over() { simulation.now_ns } else { end_ns };
    simulation.report.duration_ns = end_ns - setup.warm_up_ns;
    Ok(simulation.finish(end_ns))
}

/// Runs replicates in parallel, with seeds derived from `seed`, and adds them up in a fixed order.
///
/// # Errors
/// Fails like [`simulate`].
pub fn simulate_replicates(
    setup: &Setup<'_>,
    make_load: &(dyn Fn(u64) -> Load + Sync),
    duration_ns: u64,
    seed: u64,
    run_count: u64,
) -> Result<Vec<Report>, SimulationError> {
    let seeds = seed..seed.saturating_add(run_count.max(1));
    let runs: Vec<u64> = seeds.collect();
    runs.into_par_iter().map(|seed| simulate(setup, make_load(seed), duration_ns, seed)).collect()
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskState {
    Runnable,
    Waiting,
    Sleeping,
    Exited,
}

struct Task {
    program: Option<Box<dyn Program>>,
    cpu: usize,
    is_pinned: bool,
    state: TaskState,
    mailbox: VecDeque<u64>,
    /// Tasks waiting for room in the mailbox.
    senders: Vec<TaskId>,
    /// Work that was in progress when another task got its turn.
    suspended: Option<Segment>,
    /// The operation to retry when the task runs again.
    retried: Option<Op>,
    message: Option<u64>,
    /// It waits, or has waited, for a message of [`Op::Await`].
    has_waited: bool,
    /// How the last message found it.
    found: Found,
    /// Whether a task on another CPU has woken it.
    is_woken_remotely: bool,
    sender_cost_ns: u64,
    urgency: Urgency,
    /// Where it ran before it came to its CPU, when it ran last, and how much it has wanted to run lately.
    recent_cpu: usize,
    ran_at_ns: u64,
    load: RecentLoad,
    /// Whether it plays recorded gaps, and so is not a task in the kernel's sense.
    is_recorded: bool,
    /// What its step is, if steps are kept.
    told: Told,
}

/// A run in progress.
struct Simulation<'a> {
    setup: &'a Setup<'a>,
    hardware: &'a Hardware,
    shape: Shape,
    now_ns: u64,
    period_ns: u64,
    queue: Queue,
    rng: Rng,
    cpus: Vec<Cpu>,
    cores: Vec<Core>,
    packages: Vec<Package>,
    /// Groups of CPUs that share states, and each CPU's groups with its number there, the widest scope first.
    groups: Vec<Group>,
    group_slots: Vec<Vec<(usize, usize)>>,
    /// The scope of each group.
    group_scopes: Vec<Scope>,
    /// The group of each package whose state is the hardware's, not the machine file's.
    package_groups: Vec<usize>,
    /// Whether the machine's file has shared states.
    has_shared_states: bool,
    tasks: Vec<Task>,
    /// How far each task was behind the others of its CPU when it blocked.
    lags_ns: Vec<i64>,
    sources: Vec<Box<dyn EventSource>>,
    /// Interrupts that have not arrived yet, by slot.
    irqs: Vec<Irq>,
    free_slots: Vec<u32>,
    /// One bit for each idle CPU.
    idle_cpus: Vec<u64>,
    costs: CostModel,
    /// The shallowest enabled state that does not poll.
    shallow_state: StateIndex,
    /// Idle states whose power increases with frequency.
    scales: [bool; idlewise_core::STATE_COUNT_MAX],
    /// States requested by UMWAIT.
    is_umwait: [bool; idlewise_core::STATE_COUNT_MAX],
    /// POWER: idle states that keep a thread's share of the core.
    is_lite: [bool; idlewise_core::STATE_COUNT_MAX],
    report: Report,
    instant_step_count: u64,
    exited_count: usize,
    /// The run ends when so many operations are completed.
    operation_count_max: u64,
    /// When the energy is to be noted next.
    energy_due_ns: u64,
    /// The interrupt whose effects are carried out: when it came, and what it was.
    cause: Option<(u64, InterruptCause)>,
    error: Option<SimulationError>,
}

impl<'a> Simulation<'a> {
    fn new(
        setup: &'a Setup<'a>,
        load: Load,
        duration_ns: u64,
        seed: u64,
        past_loops: Vec<IdleLoop<Boxed>>,
    ) -> Result<Self, SimulationError> {
        let hardware = &setup.hardware;
        let shape = hardware.shape().map_err(SimulationError::Shape)?;
        let states = setup.machine.table().map_err(SimulationError::Machine)?;
        let cpu_count = shape.cpu_count();
        if setup.keeps_gaps && cpu_count > usize::from(u16::MAX) + 1 {
            return Err(SimulationError::TooManyCpusForLog);
        }
        let setting = Setting {
            exits_ns: Exits::of(setup.machine).means_ns(),
            disabled: setup.disabled,
            latency_limit_ns: setup.latency_limit_ns,
            tick_work_ns: hardware.tick_work_ns,
            ..Setting::new(states, tick_period_ns(hardware.hz as u32))
        };
        let setting_of = |cpu| {
            let package = shape.package_of(cpu);
            let own = setup.disabled_by_package.iter().filter(|(of, _)| *of == package);
            let bits = own.fold(setup.disabled.bits(), |bits, (_, states)| bits | states.bits());
            setting.with_disabled(DisabledMask::from_bits(bits))
        };
        let mut past_loops = past_loops.into_iter();
        let cpus: Vec<_> = (0..cpu_count)
            .map(|cpu| {
                let new = || IdleLoop::new(Boxed((setup.make_governor)()), setting_of(cpu));
                Cpu::new(past_loops.next().unwrap_or_else(new), setup.scheduler)
            })
            .collect();
        let machine_shared = SharedStates::of(setup.machine).map_err(SimulationError::Machine)?;
        let has_shared_states = !machine_shared.is_empty();
        let shared = match has_shared_states {
            true => machine_shared,
            false => hardware.package_state(states.deepest()),
        };
        let Groups { groups, slots, scopes } = Groups::of(shared, shape, hardware);
        let machine_states = &setup.machine.states;
        let of_states = |rule: &dyn Fn(&crate::MachineState) -> bool| {
            std::array::from_fn(|i| machine_states.get(i).is_some_and(rule))
        };
        let mut simulation = Simulation {
            setup,
            hardware,
            shape,
            now_ns: 0,
            period_ns: u64::from(setting.tick_period_ns),
            queue: Queue::new(cpus.len()),
            rng: Rng::with_seed(seed),
            cpus,
            cores: vec![Core::default(); shape.package_count * shape.core_count],
            packages: vec![Package::new(); shape.package_count],
            package_groups: if has_shared_states {
                Vec::new()
            } else {
                (0..groups.len()).collect()
            },
            groups,
            group_slots: slots,
            group_scopes: scopes,
            has_shared_states,
            tasks: Vec::with_capacity(load.tasks.len()),
            lags_ns: vec![0; load.tasks.len()],
            sources: Vec::new(),
            irqs: Vec::new(),
            free_slots: Vec::new(),
            idle_cpus: vec![0; cpu_count.div_ceil(64)],
            costs: CostModel::of(setup.machine).map_err(SimulationError::Machine)?,
            shallow_state: (0..states.len())
                .find(|i| !states.get(*i).is_polling && !setup.disabled.contains(*i))
                .unwrap_or(usize::MAX),
            scales: of_states(&|state| state.idle().is_polling || state.umwait_state.is_some()),
            is_umwait: of_states(&|state| state.umwait_state.is_some()),
            is_lite: of_states(&|state| {
                setup.machine.arch == crate::Arch::Power && state.name.ends_with("_lite")
            }),
            report: Report {
                duration_ns,
                run_count: 1,
                cpu_count: cpu_count as u64,
                core_count: (shape.package_count * shape.core_count) as u64,
                metrics: Metrics::new(setup.ignores_spans),
                ..Report::default()
            },
            instant_step_count: 0,
            exited_count: 0,
            operation_count_max: u64::MAX,
            energy_due_ns: setup.energy_every_ns.unwrap_or(u64::MAX),
            cause: None,
            error: None,
        };
        simulation.start(load)?;
        Ok(simulation)
    }

    fn start(&mut self, load: Load) -> Result<(), SimulationError> {
        self.report.tasks.spawned_count = load.tasks.len() as u64;
        // Recorded gaps contain the timers of their own machine.
        let is_recorded = load.tasks.iter().any(|spawn| spawn.is_recorded);
        for (id, spawn) in load.tasks.into_iter().enumerate() {
            self.check_cpu(spawn.cpu)?;
            let awaited = spawn.program.awaits();
            let urgency = spawn.program.urgency();
            let cpu = awaited.map_or(spawn.cpu, |(_, cpu)| cpu);
            self.check_cpu(cpu)?;
            if awaited.is_none() {
                self.cpus[cpu].run_queue.add(id, urgency, 0);
            }
            self.tasks.push(Task {
                program: Some(spawn.program),
                cpu,
                is_pinned: spawn.is_pinned,
                state: if awaited.is_some() { TaskState::Waiting } else { TaskState::Runnable },
                mailbox: VecDeque::new(),
                senders: Vec::new(),
                suspended: None,
                retried: awaited.map(|(stamp_ns, cpu)| Op::Await {
                    stamps: (stamp_ns, stamp_ns + 1),
                    cpu: spawn.is_pinned.then_some(cpu),
                }),
                message: None,
                has_waited: awaited.is_some(),
                found: Found::Ready,
                is_woken_remotely: false,
                sender_cost_ns: 0,
                urgency,
                recent_cpu: cpu,
                ran_at_ns: 0,
                load: RecentLoad::default(),
                is_recorded: spawn.is_recorded,
                told: Told::default(),
            });
        }
        for (at_ns, source) in load.sources {
            self.queue.push(at_ns, Event::Source { source: self.sources.len() as u32 });
            self.sources.push(source);
        }
        if self.hardware.tdp_mw.is_some() {
            self.queue.push(self.hardware.budget_period_ns.max(1), Event::Budget);
        }
        let cpu_count = self.cpus.len() as u64;
        let phases_ns = &self.setup.tick_phases_ns;
        let shift_ns = match self.setup.has_random_ticks && !phases_ns.is_empty() {
            true => self.rng.u64(0..self.period_ns),
            false => 0,
        };
        for cpu in 0..self.cpus.len() {
            if let Some(&phase_ns) = phases_ns.get(cpu) {
                self.cpus[cpu].tick_phase_ns = (phase_ns + shift_ns) % self.period_ns;
            } else if self.setup.has_random_ticks {
                self.cpus[cpu].tick_phase_ns = self.rng.u64(0..self.period_ns);
            }
            self.arm_tick(cpu);
            self.arm_kernel_timer(cpu, 0);
            if let Some(period_ns) = self.hardware.housekeeping_ns
                && !is_recorded
            {
                // The CPUs' timers are staggered.
                let share_ns = u128::from(period_ns) * (cpu as u128 + 1) / u128::from(cpu_count);
                self.arm_housekeeping(cpu, (share_ns as u64).max(1));
            }
            self.proceed(cpu);
        }
        Ok(())
    }

    fn check_cpu(&self, cpu: usize) -> Result<(), SimulationError> {
        let cpu_count = self.cpus.len();
        if cpu < cpu_count { Ok(()) } else { Err(SimulationError::NoCpu { cpu, cpu_count }) }
    }

    fn run(&mut self, end_ns: u64) -> Result<(), SimulationError> {
        while let Some((at_ns, event)) = self.queue.pop_before(end_ns) {
            if at_ns > self.now_ns {
                self.now_ns = at_ns;
                self.instant_step_count = 0;
                if at_ns >= self.energy_due_ns {
                    self.note_energy();
                }
            }
            self.report.event_count += 1;
            self.handle(event);
            self.step_once();
            if self.report.event_count >= self.hardware.event_limit {
                let event_limit = self.hardware.event_limit;
                return Err(SimulationError::TooLong { event_limit, at_ns, duration_ns: end_ns });
            }
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            if self.is_over() {
                break;
            }
        }
        self.error.take().map_or(Ok(()), Err)
    }

    /// Whether the run ends before its time, because every task has exited or has done enough.
    fn is_over(&self) -> bool {
        self.setup.ends_with_tasks && self.exited_count == self.tasks.len()
            || self.report.metrics.operation_count >= self.operation_count_max
    }

    /// Counts a step. Too many without time passing are an error.
    #[inline]
    fn step_once(&mut self) -> bool {
        self.instant_step_count += 1;
        if self.instant_step_count > INSTANT_STEP_MAX {
            self.error = Some(SimulationError::Stuck { at_ns: self.now_ns });
        }
        self.error.is_none()
    }

    /// Fails if too many `what` wait for a CPU or task.
    #[inline]
    fn bound_queue(&mut self, what: &'static str, count: usize, count_max: usize) {
        if count > count_max {
            self.error = Some(SimulationError::Overloaded { what, count, at_ns: self.now_ns });
        }
    }

    #[inline]
    fn handle(&mut self, event: Event) {
        match event {
            Event::Source { source } => self.fire(source),
            Event::Interrupt { cpu, slot } => {
                let irq = self.irqs[slot as usize];
                self.free_slots.push(slot);
                self.device_interrupt(cpu as usize, irq);
            }
            Event::Ipi { cpu } => self.receive_ipi(cpu as usize),
            Event::Store { cpu } => self.see_store(cpu as usize),
            Event::Timer { cpu } => self.timer_interrupt(cpu as usize),
            Event::Recorded { cpu } => self.recorded_event(cpu as usize),
            Event::Tick { cpu, generation } => {
                if self.cpus[cpu as usize].tick_generation == generation {
                    self.tick(cpu as usize);
                }
            }
            Event::IdleLimit { cpu, generation } => {
                if self.cpus[cpu as usize].generation == generation {
                    self.idle_limit(cpu as usize);
                }
            }
            Event::Awake { cpu, generation } => {
                if self.cpus[cpu as usize].generation == generation {
                    self.awake(cpu as usize);
                }
            }
            Event::Done { cpu, generation } => {
                if self.cpus[cpu as usize].generation == generation {
                    self.finish_work(cpu as usize);
                }
            }
            Event::Budget => self.spend_budget(),
        }
    }

    fn fire(&mut self, index: u32) {
        let source = &mut self.sources[index as usize];
        let fired = source.fire(self.now_ns, &mut self.rng, &mut self.report.metrics);
        if let Some(at_ns) = fired.next_at_ns {
            self.queue.push(at_ns.max(self.now_ns), Event::Source { source: index });
        }
        if let Some((cpu, irq)) = fired.irq {
            match self.check_cpu(cpu) {
                Ok(()) => self.device_interrupt(cpu, irq),
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Completes all sums up to now.
    fn account(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.account_cpu(cpu);
        }
        for core in 0..self.cores.len() {
            self.account_core(core);
        }
        for package in 0..self.packages.len() {
            self.account_package(package);
        }
        self.report.metrics.account(self.now_ns);
    }

    /// The warm-up ends here: its sums are dropped. Counts of tasks and events are of the whole run.
    fn end_warm_up(&mut self) {
        self.now_ns = self.setup.warm_up_ns;
        self.account();
        let Report { duration_ns, run_count, cpu_count, core_count, event_count, .. } = self.report;
        self.report = Report {
            duration_ns,
            run_count,
            cpu_count,
            core_count,
            event_count,
            tasks: self.report.tasks,
            metrics: self.report.metrics.restarted(),
            ..Report::default()
        };
        self.groups.iter_mut().for_each(|group| group.restart(self.now_ns));
    }

    /// Adds up what became of the machine's shared states. A stay in progress counts up to now.
    fn count_groups(&mut self) {
        if !self.has_shared_states {
            return;
        }
        let now_ns = self.now_ns;
        let tally = &mut self.report.idle;
        let cores = &mut self.report.cores;
        for (group, scope) in self.groups.iter_mut().zip(&self.group_scopes) {
            tally.group_ns[*scope as usize] += self.report.duration_ns;
            for (sum, state) in tally.shared.iter_mut().zip(group.tallies_until(now_ns)) {
                sum.add(&state);
                if *scope == Scope::Package {
                    cores.package_entry_count += state.entry_count;
                    cores.package_idle_ns += state.stay_ns;
                }
            }
        }
        cores.package_uj += self.costs.shared_uj(tally);
    }

    fn finish(mut self, end_ns: u64) -> Report {
        self.now_ns = end_ns;
        self.account();
        self.count_groups();
        let counts = &mut self.report.tasks;
        for task in &self.tasks {
            match task.state {
                TaskState::Runnable => counts.runnable_count += 1,
                TaskState::Waiting | TaskState::Sleeping => counts.blocked_count += 1,
                TaskState::Exited => counts.exited_count += 1,
            }
            counts.left_count += task.mailbox.len() as u64;
        }
        self.end_steps();
        // Gaps were recorded as they ended, with CPUs mixed.
        self.report.gaps.sort_by_key(|gap| (gap.cpu, gap.start_ns));
        assert!(
            self.cpus.iter().all(|cpu| !matches!(cpu.mode, Mode::Idle(_)) || cpu.segment.is_none())
        );
        self.report
    }
}
