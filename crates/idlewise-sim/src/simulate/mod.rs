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
//!   progress is completed first. If the package was asleep, its exit is added, once for all that
//!   wait for it.
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
//! | `cpu.rs` | the state of a CPU |
//! | `work.rs` | what it runs: interrupts, calls, tasks in turn |
//! | `idle.rs` | how it goes idle and leaves; the gap between |
//! | `timers.rs` | its tick and the timers of its tasks |
//! | `wake.rs` | messages, wake-ups, IPIs and stores |
//! | `power.rs` | cores and packages: speed, power, energy |
//! | `task.rs` | what workloads are made of |
//! | `hardware.rs`, `parameter.rs`, `quantiles.rs` | what can be configured |
//! | `event.rs`, `report.rs` | the event queue; the results |
//!
//! # Known limitations
//!
//! Caches, memory and migration cost nothing. Run queues are round robin, without preemption on
//! wake-up. A polling CPU notices a store as fast as a monitoring one.

mod cpu;
mod event;
mod hardware;
mod idle;
pub(crate) mod parameter;
mod power;
mod quantiles;
mod report;
mod task;
mod timers;
mod wake;
mod work;

use std::collections::{BTreeMap, VecDeque};

use fastrand::Rng;
use idlewise_core::{DisabledMask, Governor, NO_LATENCY_LIMIT_NS, StateIndex, tick_period_ns};
use rayon::prelude::*;

use crate::idle_loop::{Boxed, IdleLoop, Setting};
use crate::{CostModel, Machine, MachineError};
use cpu::Cpu;
use event::{Event, Queue};
use idle::Mode;
use power::{Core, Package};
use work::Segment;

pub use hardware::{Hardware, Shape, ShapeError};
pub use parameter::{ParameterError, ParameterInfo};
pub use quantiles::Quantiles;
pub use report::{CoreTally, IpiCounts, Metrics, Report, TaskCounts};
pub use task::{EventSource, Fired, Irq, Op, Program, Spawn, TaskId, View, exponential_ns};

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
            ignores_spans: false,
            warm_up_ns: 0,
        }
    }
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
    let mut simulation = Simulation::new(setup, load, duration_ns, seed)?;
    if setup.warm_up_ns > 0 {
        simulation.run(setup.warm_up_ns)?;
        simulation.end_warm_up();
    }
    let end_ns = setup.warm_up_ns.saturating_add(duration_ns);
    simulation.run(end_ns)?;
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
    sender_cost_ns: u64,
    /// Whether it plays recorded gaps, and so is not a task in the kernel's sense.
    is_recorded: bool,
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
    tasks: Vec<Task>,
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
    error: Option<SimulationError>,
}

impl<'a> Simulation<'a> {
    fn new(
        setup: &'a Setup<'a>,
        load: Load,
        duration_ns: u64,
        seed: u64,
    ) -> Result<Self, SimulationError> {
        let hardware = &setup.hardware;
        let shape = hardware.shape().map_err(SimulationError::Shape)?;
        let states = setup.machine.table().map_err(SimulationError::Machine)?;
        let cpu_count = shape.cpu_count();
        if setup.keeps_gaps && cpu_count > usize::from(u16::MAX) + 1 {
            return Err(SimulationError::TooManyCpusForLog);
        }
        let setting = Setting {
            disabled: setup.disabled,
            latency_limit_ns: setup.latency_limit_ns,
            tick_work_ns: hardware.tick_work_ns,
            ..Setting::new(states, tick_period_ns(hardware.hz as u32))
        };
        let setting_of = |cpu| {
            let package = shape.package_of(cpu);
            let own = setup.disabled_by_package.iter().filter(|(of, _)| *of == package);
            let bits = own.fold(setup.disabled.bits(), |bits, (_, states)| bits | states.bits());
            Setting { disabled: DisabledMask::from_bits(bits), ..setting }
        };
        let cpus = (0..cpu_count)
            .map(|cpu| Cpu::new(IdleLoop::new(Boxed((setup.make_governor)()), setting_of(cpu))))
            .collect();
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
            queue: Queue::default(),
            rng: Rng::with_seed(seed),
            cpus,
            cores: vec![Core::default(); shape.package_count * shape.core_count],
            packages: vec![Package::new(); shape.package_count],
            tasks: Vec::with_capacity(load.tasks.len()),
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
            self.cpus[spawn.cpu].run_queue.push_back(id);
            self.tasks.push(Task {
                program: Some(spawn.program),
                cpu: spawn.cpu,
                is_pinned: spawn.is_pinned,
                state: TaskState::Runnable,
                mailbox: VecDeque::new(),
                senders: Vec::new(),
                suspended: None,
                retried: None,
                message: None,
                sender_cost_ns: 0,
                is_recorded: spawn.is_recorded,
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
        for cpu in 0..self.cpus.len() {
            self.arm_tick(cpu);
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
        }
        self.error.take().map_or(Ok(()), Err)
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
    }

    fn finish(mut self, end_ns: u64) -> Report {
        self.now_ns = end_ns;
        self.account();
        let counts = &mut self.report.tasks;
        for task in &self.tasks {
            match task.state {
                TaskState::Runnable => counts.runnable_count += 1,
                TaskState::Waiting | TaskState::Sleeping => counts.blocked_count += 1,
                TaskState::Exited => counts.exited_count += 1,
            }
            counts.left_count += task.mailbox.len() as u64;
        }
        // Gaps were recorded as they ended, with CPUs mixed.
        self.report.gaps.sort_by_key(|gap| (gap.cpu, gap.start_ns));
        debug_assert!(
            self.cpus.iter().all(|cpu| !matches!(cpu.mode, Mode::Idle(_)) || cpu.segment.is_none())
        );
        self.report
    }
}
