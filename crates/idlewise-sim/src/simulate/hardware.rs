//! Costs of the simulated hardware and kernel that are not in the table of idle states, and the
//! shape of the machine.

use idlewise_trace::Doubt;

use super::parameter::{
    CPU_COUNT_MAX, FLAG, SPAN_NS, THREAD_COUNT_MAX, TIMER_NS, YEAR_NS, parameters,
};
use crate::replay::{DEFAULT_TICK_WORK_NS, TICK_WORK_MAX_NS};
use crate::{Arch, Machine};

parameters! {
    /// The figures of the simulated machine. No state table contains them. Each is assumed unless
    /// its line names a source, and each can be set.
    pub struct Hardware {
        package_count: u64 = 1, 1..=CPU_COUNT_MAX, "packages; from the machine file if it says";
        core_count: u64 = 4, 1..=CPU_COUNT_MAX, "cores of one package; from the machine file if it says";
        thread_count: u64 = 1, 1..=THREAD_COUNT_MAX, "SMT threads of one core; from the machine file if it says";
        hz: u64 = 250, 10..=10_000, "the kernel's CONFIG_HZ (Debian's)";
        nohz_full: bool = false, FLAG, "the tick also stops while a CPU has a single task (nohz_full= for all CPUs)";
        tick_work_ns: u64 = DEFAULT_TICK_WORK_NS, 0..=TICK_WORK_MAX_NS, "what the tick's handler takes";
        ipi_send_ns: u64 = 300, SPAN_NS, "what an IPI costs its sender within a package (x2APIC register write and what leads to it)";
        ipi_send_remote_ns: u64 = 400, SPAN_NS, "the same to another package";
        ipi_delivery_ns: u64 = 200, SPAN_NS, "from the sender's register write to the receiver's pin";
        ipi_receive_ns: u64 = 400, SPAN_NS, "interrupt entry, acknowledgement and exit at the receiver; 0 for posted interrupts that the hardware delivers without one";
        store_ns: u64 = 50, SPAN_NS, "what a store to a monitored line costs its sender";
        store_remote_ns: u64 = 120, SPAN_NS, "the same to another package";
        store_delivery_ns: u64 = 60, SPAN_NS, "from the store to the wake-up of the monitoring CPU";
        ipi_less: bool = true, FLAG, "a CPU idling in a state that monitors memory is woken by a store (Linux since 3.16)";
        ring_check_ns: u64 = 40, SPAN_NS, "what looking whether the other CPU monitors costs with ipi_less, when it does not: the IPI comes on top";
        irq_entry_ns: u64 = 400, SPAN_NS, "interrupt entry and exit of a device's or timer's interrupt";
        switch_ns: u64 = 600, SPAN_NS, "from the end of an interrupt or of idling to the task's first instruction";
        idle_loop_ns: u64 = 0, SPAN_NS, "what the idle loop itself takes before each stay: governor, timers, bookkeeping (0: part of the other costs)";
        timer_slack_ns: u64 = 50_000, SPAN_NS, "timer slack of tasks (Linux's default)";
        housekeeping_ns: Option<u64> = Some(1_000_000_000), TIMER_NS, "a timer of the kernel's own on each CPU, so often, handled without a task; 0: none";
        exit_ratio: f64 = 1.0, 0.0..=1_000.0, "wake-up latency as a share of the table's worst case";
        entry_ratio: f64 = 0.0, 0.0..=1_000.0, "time to enter a state, as a share of its exit latency; an entry can't be aborted";
        umwait_max_ns: Option<u64> = None, SPAN_NS, "deadline of UMWAIT states (umwait_control/max_time); 0: none";
        cluster_cpu_count: u64 = 0, 0..=CPU_COUNT_MAX, "CPUs of a cluster or module, for states that they share; 0: all of the package";
        package_exit_ns: u64 = 0, SPAN_NS, "exit latency that a package state adds, if the machine's file has no shared states; from its domain states if it has any";
        package_entry_ns: u64 = 0, SPAN_NS, "how long entering the package state takes; can't be aborted";
        package_after_ns: u64 = 0, SPAN_NS, "how long all cores must have been in their deepest state before the package follows";
        package_mw: f64 = 0.0, 0.0..=1e9, "power of a package besides its cores, awake";
        package_idle_mw: f64 = 0.0, 0.0..=1e9, "the same in the package state";
        smt2_speed: f64 = 0.62, 0.0..=1.0, "speed of each of 2 threads that share a core, of 1 alone";
        smt_poll_speed: Option<f64> = None, 0.0..=1.0, "speed of a thread whose sibling polls; 0: as if it ran";
        smt_umwait_speed: f64 = 1.0, 0.0..=1.0, "speed of a thread whose sibling is in an UMWAIT state";
        smt4_speed: f64 = 0.36, 0.0..=1.0, "speed of each of 3 or 4 threads that share a core";
        tdp_mw: Option<f64> = None, 0.0..=1e9, "power limit of one package; 0: no limit and a fixed frequency";
        turbo_ratio: f64 = 1.4, 0.0..=100.0, "highest frequency over the nominal one";
        power_exponent: f64 = 2.5, 0.0..=10.0, "running power grows with frequency to this power";
        budget_period_ns: u64 = 1_000_000, 1_000..=YEAR_NS, "how often the frequency follows the power";
        event_limit: u64 = 2_000_000_000, 1..=1_000_000_000_000, "a run with more events than this is ended with an error";
    }
}

/// Packages, cores and threads. CPUs are numbered thread by thread, core by core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of packages.
    pub package_count: usize,
    /// The number of cores in a package.
    pub core_count: usize,
    /// The number of threads in a core.
    pub thread_count: usize,
}

/// Why a shape is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// A count is 0.
    #[error(
        "a machine needs at least one package, core and thread: set package_count, core_count and \
         thread_count"
    )]
    Nothing,
    /// There are more CPUs than a simulated machine may have.
    #[error(
        "{cpu_count} CPUs, more than {CPU_COUNT_MAX}: set package_count, core_count and thread_count"
    )]
    TooMany {
        /// How many.
        cpu_count: u64,
    },
    /// There are more threads in a core than speeds are known for.
    #[error("{thread_count} threads in a core: at most 4; set thread_count")]
    TooManyThreads {
        /// How many.
        thread_count: u64,
    },
    /// Three or four threads of a core would be faster than two.
    #[error("smt4_speed must not be above smt2_speed")]
    Speeds,
    /// The tick's frequency is out of range.
    #[error("hz must be 10 to 10000")]
    Hz,
}

impl Hardware {
    /// Returns the defaults, changed by the machine file: its topology if it divides evenly, and
    /// its deepest domain state as the package state.
    pub fn of(machine: &Machine) -> Self {
        let mut hardware = Hardware::default();
        let topology = &machine.topology;
        let packages = topology.package_count.map_or(1, u64::from).max(1);
        hardware.package_count = packages;
        if let Some(cores) = topology.core_count.map(u64::from)
            && cores >= packages
        {
            hardware.core_count = cores / packages;
        }
        let threads = topology.threads_per_core.map(u64::from);
        let divided = topology.thread_count.zip(topology.core_count);
        let divided = divided.filter(|(_, cores)| *cores > 0);
        let divided = divided.map(|(threads, cores)| u64::from(threads / cores));
        hardware.thread_count = threads.or(divided).unwrap_or(1).clamp(1, 4);
        if machine.arch == Arch::Power {
            // On POWER9, SMT4 gives a thread less than x86's second thread leaves it.
            hardware.smt2_speed = 0.7;
            hardware.smt4_speed = 0.45;
        }
        if machine.shared_states().next().is_none()
            && let Some(deepest) = machine.domain_states.last()
        {
            hardware.package_exit_ns = deepest.exit_latency_ns;
            hardware.package_after_ns = deepest.target_residency_ns;
        }
        hardware
    }

    /// Why a replay of this machine's log may decide differently: the log does not contain
    /// everything. A replay uses the state table's exit latency and the default tick work.
    pub fn replay_doubts(&self) -> Vec<Doubt> {
        let default = Hardware::default();
        let mut doubts = Vec::new();
        if self.thread_count > 1 {
            doubts.push(Doubt::SimulatedThreads { count: self.thread_count });
        }
        let has_package_state = self.package_exit_ns > 0 || self.package_idle_mw > 0.0;
        let reasons = [
            ("exit_ratio", self.exit_ratio != default.exit_ratio),
            ("entry_ratio", self.entry_ratio != default.entry_ratio),
            ("umwait_max_ns", self.umwait_max_ns.is_some()),
            ("idle_loop_ns", self.idle_loop_ns > 0),
            ("a package state", has_package_state),
        ];
        let reasons: Vec<&str> =
            reasons.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
        if !reasons.is_empty() {
            doubts.push(Doubt::SimulatedCosts { parameters: reasons.join(", ") });
        }
        if self.tick_work_ns != default.tick_work_ns {
            doubts.push(Doubt::SimulatedTickWork { work_ns: self.tick_work_ns });
        }
        doubts
    }

    /// Returns the shape, if it is possible.
    ///
    /// # Errors
    /// Returns the first rule that is violated.
    pub fn shape(&self) -> Result<Shape, ShapeError> {
        let Hardware { package_count, core_count, thread_count, hz, .. } = *self;
        if package_count == 0 || core_count == 0 || thread_count == 0 {
            return Err(ShapeError::Nothing);
        }
        if thread_count > THREAD_COUNT_MAX {
            return Err(ShapeError::TooManyThreads { thread_count });
        }
        if thread_count > 2 && self.smt4_speed > self.smt2_speed {
            return Err(ShapeError::Speeds);
        }
        let cpu_count = package_count.saturating_mul(core_count).saturating_mul(thread_count);
        if cpu_count > CPU_COUNT_MAX {
            return Err(ShapeError::TooMany { cpu_count });
        }
        if !(10..=10_000).contains(&hz) {
            return Err(ShapeError::Hz);
        }
        Ok(Shape {
            package_count: package_count as usize,
            core_count: core_count as usize,
            thread_count: thread_count as usize,
        })
    }
}

impl Shape {
    /// Returns the number of logical CPUs.
    pub fn cpu_count(&self) -> usize {
        self.package_count * self.core_count * self.thread_count
    }

    /// Returns the core of a CPU.
    pub fn core_of(&self, cpu: usize) -> usize {
        cpu / self.thread_count
    }

    /// Returns the package of a CPU.
    pub fn package_of(&self, cpu: usize) -> usize {
        self.core_of(cpu) / self.core_count
    }
}
