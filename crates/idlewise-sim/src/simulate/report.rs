//! The results of a run.

use crate::cost::CostModel;
use std::collections::BTreeMap;

use idlewise_core::STATE_COUNT_MAX;
use idlewise_trace::IdleGap;
use idlewise_trace::causes::Step;

use crate::replay::{Delays, Tally};

/// Adds these fields of one sum to another's.
macro_rules! add {
    ($sum:expr, $more:expr, $($field:ident),+) => { $($sum.$field += $more.$field;)+ };
}

/// What workloads record: time spans by name, and counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    spans: BTreeMap<&'static str, Delays>,
    ignores_spans: bool,
    /// Completed operations.
    pub operation_count: u64,
    /// Requests in flight now.
    in_flight: u64,
    /// The number of requests in flight, integrated over time.
    in_flight_ns: u128,
    changed_at_ns: u64,
}

impl Metrics {
    pub(super) fn new(ignores_spans: bool) -> Self {
        Metrics { ignores_spans, ..Metrics::default() }
    }

    /// Records a time span.
    #[inline]
    pub fn record(&mut self, name: &'static str, span_ns: u64) {
        if self.ignores_spans {
            return;
        }
        self.spans.entry(name).or_default().record(span_ns);
    }

    /// A request enters the system.
    pub fn begin(&mut self, now_ns: u64) {
        self.account(now_ns);
        self.in_flight += 1;
    }

    /// A request is completed.
    pub fn complete(&mut self, now_ns: u64) {
        self.account(now_ns);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.operation_count += 1;
    }

    pub(super) fn account(&mut self, now_ns: u64) {
        let span_ns = now_ns.saturating_sub(self.changed_at_ns);
        self.in_flight_ns += u128::from(self.in_flight) * u128::from(span_ns);
        self.changed_at_ns = now_ns;
    }

    /// The same with nothing recorded; requests in flight stay so.
    pub(super) fn restarted(&self) -> Self {
        Metrics {
            in_flight: self.in_flight,
            changed_at_ns: self.changed_at_ns,
            ..Metrics::new(self.ignores_spans)
        }
    }

    /// Returns the mean number of requests in flight over `duration_ns`.
    pub fn mean_in_flight(&self, duration_ns: u64) -> f64 {
        self.in_flight_ns as f64 / duration_ns as f64
    }

    /// Returns the spans with that name.
    pub fn spans(&self, name: &str) -> Option<&Delays> {
        self.spans.get(name)
    }

    /// Returns all names with their spans.
    pub fn all_spans(&self) -> impl Iterator<Item = (&'static str, &Delays)> {
        self.spans.iter().map(|(name, spans)| (*name, spans))
    }

    fn merge(&mut self, other: &Metrics) {
        for (name, spans) in &other.spans {
            self.spans.entry(name).or_default().merge(spans);
        }
        self.operation_count += other.operation_count;
        self.in_flight_ns += other.in_flight_ns;
    }
}

/// What became of requests to interrupt another CPU. Each is either sent, stored, a free ride or
/// batched: `requested = sent + stored + free_ride + batched`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IpiCounts {
    /// Requests.
    pub requested_count: u64,
    /// IPIs sent.
    pub sent_count: u64,
    /// IPIs that arrived within the run.
    pub received_count: u64,
    /// Replaced by a store to a monitored line.
    pub stored_count: u64,
    /// Not needed, because the CPU was already being woken.
    pub free_ride_count: u64,
    /// Not needed, because the same queue held an entry whose IPI was under way.
    pub batched_count: u64,
    /// The total cost to the senders.
    pub sender_ns: u64,
}

impl IpiCounts {
    /// Returns the number of requests that were satisfied without an interrupt.
    pub fn elided_count(&self) -> u64 {
        self.stored_count + self.free_ride_count
    }

    fn merge(&mut self, other: &IpiCounts) {
        add!(self, other, requested_count, sent_count, received_count, stored_count);
        add!(self, other, free_ride_count, batched_count, sender_ns);
    }
}

/// Time and energy of all cores, by core state.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CoreTally {
    /// Time in which at least one thread ran.
    pub running_ns: u64,
    /// Time in which none ran and at least one woke up. Its energy is part of the transitions'.
    pub waking_ns: u64,
    /// Time by core state, which is the shallowest of the threads' states.
    pub residency_ns: [u64; STATE_COUNT_MAX],
    /// Entries of each state from a shallower one.
    pub entry_count: [u64; STATE_COUNT_MAX],
    /// Time that packages spent in their package state.
    pub package_idle_ns: u64,
    /// Entries of package states.
    pub package_entry_count: u64,
    /// Energy of running, at the frequencies at that time.
    pub running_uj: f64,
    /// Energy of idle states, of entering and of leaving them.
    pub idle_uj: f64,
    /// Energy of packages without their cores.
    pub package_uj: f64,
    /// The ratio of frequency to nominal, integrated over the running time.
    pub frequency_ns: f64,
}

impl CoreTally {
    /// Returns the total energy.
    pub fn energy_uj(&self) -> f64 {
        self.running_uj + self.idle_uj + self.package_uj
    }

    /// Returns the same at nominal frequency and with other powers of the states and of running, as `costs` has them.
    pub fn energy_with_uj(&self, costs: &CostModel) -> f64 {
        let states = 0..costs.states().len();
        let of_state = |at: usize| costs.stays_uj(at, self.entry_count[at], self.residency_ns[at]);
        costs.running_uj(self.running_ns) + states.map(of_state).sum::<f64>() + self.package_uj
    }

    /// Returns the mean ratio of frequency to nominal while running.
    pub fn mean_frequency_ratio(&self) -> f64 {
        if self.running_ns == 0 { 1.0 } else { self.frequency_ns / self.running_ns as f64 }
    }

    fn merge(&mut self, other: &CoreTally) {
        add!(self, other, running_ns, waking_ns, package_idle_ns, package_entry_count);
        add!(self, other, running_uj, idle_uj, package_uj, frequency_ns);
        for i in 0..STATE_COUNT_MAX {
            self.residency_ns[i] += other.residency_ns[i];
            self.entry_count[i] += other.entry_count[i];
        }
    }
}

/// The number of tasks by state: `spawned = exited + blocked + runnable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskCounts {
    /// Tasks created.
    pub spawned_count: u64,
    /// Tasks that exited.
    pub exited_count: u64,
    /// Tasks waiting or sleeping at the end.
    pub blocked_count: u64,
    /// Tasks running or in a run queue at the end.
    pub runnable_count: u64,
    /// Messages put into mailboxes.
    pub sent_count: u64,
    /// Messages taken out.
    pub taken_count: u64,
    /// Messages left at the end.
    pub left_count: u64,
}

/// The results of a run, or the sum of several replicates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Simulated time, the sum of all replicates.
    pub duration_ns: u64,
    /// The number of runs.
    pub run_count: u64,
    /// Logical CPUs.
    pub cpu_count: u64,
    /// Physical cores.
    pub core_count: u64,
    /// Events handled.
    pub event_count: u64,
    /// What the idle loops counted, all CPUs together.
    pub idle: Tally,
    /// Time in which CPUs ran something, including exits from idle states.
    pub busy_ns: u64,
    /// The part of it spent leaving idle states.
    pub exit_ns: u64,
    /// The part of it spent in interrupts: handlers and what they caused.
    pub irq_ns: u64,
    /// Time that CPUs were in each state.
    pub idle_ns: u64,
    /// Cores and packages.
    pub cores: CoreTally,
    /// Requests to interrupt another CPU.
    pub ipis: IpiCounts,
    /// Tasks and messages.
    pub tasks: TaskCounts,
    /// What the workload recorded.
    pub metrics: Metrics,
    /// The energy of idle cores and of packages from the beginning to some times, if requested; by time.
    pub energy_curve: Vec<(u64, f64)>,
    /// Each gap, if requested; by CPU, then by time.
    pub gaps: Vec<IdleGap>,
    /// Each step of the tasks, if requested; in the order in which they ended.
    pub steps: Vec<Step>,
}

impl Report {
    /// Returns the machine's mean power.
    pub fn power_mw(&self) -> f64 {
        self.cores.energy_uj() / self.duration_ns as f64 * 1e6
    }

    /// Returns the number of completed operations per second.
    pub fn operations_per_s(&self) -> f64 {
        self.metrics.operation_count as f64 * 1e9 / self.duration_ns as f64
    }

    /// Adds another run of the same machine and workload.
    pub fn merge(&mut self, other: &Report) {
        add!(self, other, duration_ns, run_count, event_count, busy_ns, exit_ns, irq_ns, idle_ns);
        self.cpu_count = other.cpu_count;
        self.core_count = other.core_count;
        self.idle.merge(&other.idle);
        self.cores.merge(&other.cores);
        self.ipis.merge(&other.ipis);
        let (mine, theirs) = (&mut self.tasks, &other.tasks);
        add!(mine, theirs, spawned_count, exited_count, blocked_count, runnable_count);
        add!(mine, theirs, sent_count, taken_count, left_count);
        self.metrics.merge(&other.metrics);
        self.gaps.extend_from_slice(&other.gaps);
        self.steps.extend_from_slice(&other.steps);
    }
}
