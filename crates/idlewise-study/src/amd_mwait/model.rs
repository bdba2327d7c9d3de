//! `amd-mwait`. The wake-up latencies are calibrated: their whole distribution goes in. What
//! context_switch2 gains from them is predicted: its time for one way under HALT, less HALT's wake-up, is
//! what MWAIT can't change.

use idlewise_machine::boot::cpuid::Cpuid;
use idlewise_machine::boot::{
    BootFacts, Cmdline, Fact, IdleParameter, IdleRoutine, Kernel, Selection, Source, select,
};

use crate::error::Result;
use crate::inputs::Origin::{Assumed, Calibrated};
use crate::inputs::{Changes, inputs};
use crate::trial::{Shelf, Trial, spans};
use idlewise_machine::{Arch, Machine, MachineState};
use idlewise_sim::replay::Delays;
use idlewise_sim::simulate::{Hardware, Quantiles};
use idlewise_sim::workload::{ContextSwitch2, Wakes, Workload};

/// A published percentile, under HALT and under MWAIT.
#[derive(Clone, Copy, Debug)]
pub struct Percentile<T> {
    /// As published.
    pub name: &'static str,
    /// Share of samples not above.
    pub ratio: f64,
    pub halt: T,
    pub mwait: T,
}

const fn row<T: Copy>(name: &'static str, ratio: f64, halt: T, mwait: T) -> Percentile<T> {
    Percentile { name, ratio, halt, mwait }
}

/// Published: the median of wake-ups, in nanoseconds.
pub const WAKES_MEDIAN: Percentile<u64> = row("50 %", 0.5, 2_000, 1_500);
/// Their 99th percentile.
pub const WAKES_P99: Percentile<u64> = row("99 %", 0.99, 2_800, 2_300);
/// All that was published of wake-ups; the ends are the minimum and the maximum.
pub const WAKES: [Percentile<u64>; 12] = [
    row("min", 0.0, 1_700, 1_200),
    row("25 %", 0.25, 1_900, 1_400),
    WAKES_MEDIAN,
    row("75 %", 0.75, 2_300, 1_700),
    row("90 %", 0.9, 2_500, 1_800),
    row("95 %", 0.95, 2_600, 1_900),
    WAKES_P99,
    row("99.5 %", 0.995, 3_000, 2_500),
    row("99.9 %", 0.999, 3_400, 3_200),
    row("99.95 %", 0.9995, 3_600, 3_500),
    row("99.99 %", 0.9999, 5_900, 4_600),
    row("max", 1.0, 5_900, 4_600),
];

/// Published: the median of context_switch2's switches a second.
pub const SWITCHES_MEDIAN: Percentile<f64> = row("50 %", 0.5, 190_184.0, 277_444.0);
/// All that was published of them.
pub const SWITCHES: [Percentile<f64>; 7] = [
    row("min", 0.0, 190_148.0, 273_278.0),
    SWITCHES_MEDIAN,
    row("75 %", 0.75, 191_032.0, 278_268.0),
    row("90 %", 0.9, 192_314.0, 278_888.0),
    row("95 %", 0.95, 192_520.0, 279_164.0),
    row("99 %", 0.99, 192_844.0, 280_504.0),
    row("max", 1.0, 192_852.0, 281_410.0),
];

inputs! {
    /// Inputs of `amd-mwait`.
    pub struct Inputs {
        halt_per_s: 190_184.0, 190_148.0..=192_852.0, "1/s", Calibrated(&["context_switch2, HALT, median"]),
            "context_switch2's switches a second under HALT",
            "the published median, minimum and maximum; the benchmark's work is fitted to it";
        ipi_send_ns: 300.0, 150.0..=800.0, "ns", Assumed,
            "what an IPI costs its sender", "about what x2APIC measurements show";
        ipi_delivery_ns: 200.0, 100.0..=500.0, "ns", Assumed,
            "from the register write to the receiver's pin", "about what x2APIC measurements show";
        ipi_receive_ns: 400.0, 200.0..=1_000.0, "ns", Assumed,
            "interrupt entry and exit at the receiver", "about what x2APIC measurements show";
        store_ns: 50.0, 20.0..=150.0, "ns", Assumed,
            "what a store to the monitored line costs its sender", "transfer of a cache line";
        store_delivery_ns: 60.0, 30.0..=200.0, "ns", Assumed,
            "from the store to the wake-up", "transfer of a cache line";
        mwait_by_store: 0.0, 0.0..=1.0, "", Assumed,
            "what ended MWAIT in the published 10K wakes: 0 an IPI, 1 a store",
            "the claim says IPI, but since Linux 5.8 (b2a02fc43a1f) a function call to a CPU that polls its flags is a store";
    }
}

impl Inputs {
    fn is_by_store(&self) -> bool {
        self.mwait_by_store > 0.0
    }
}

/// The default idle routine of a machine.
#[derive(Clone, Debug)]
pub struct Decision {
    pub processor: &'static str,
    /// Somebody dumped its CPUID; the others are constructed.
    pub is_captured: bool,
    /// None if the claim does not name its family.
    pub claimed: Option<IdleRoutine>,
    /// Several, joined by "or", if it depends on what the dump lacks.
    pub in_5_18: String,
    /// The same under Linux 6.1.
    pub in_6_1: String,
    pub in_6_12: String,
    /// None if it depends.
    pub routine: Option<IdleRoutine>,
    /// With `idle=nomwait`, in 6.12.
    pub without_mwait: Option<IdleRoutine>,
    /// Why, in 6.12.
    pub reason: &'static str,
}

/// The study's figures. `*_per_s` are switches of context_switch2.
#[derive(Clone, Debug)]
pub struct Headline {
    /// Runs of 10,000 wake-ups.
    pub run_count: u64,
    pub halt_wakes: Delays,
    pub mwait_wakes: Delays,
    /// What one way of context_switch2 takes besides waking up.
    pub work_ns: u64,
    pub halt_per_s: f64,
    /// With MWAIT, where it still takes an IPI to wake.
    pub exit_only_per_s: f64,
    /// With MWAIT, woken by a store.
    pub mwait_per_s: f64,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub headline: Headline,
    /// If the published wakes out of MWAIT were stores.
    pub by_store: Headline,
    /// Whether [`Findings::headline`] takes them for stores.
    pub is_by_store: bool,
    pub decisions: Vec<Decision>,
}

/// What of an IPI is on the way of a wake-up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ipi {
    /// All, or a store for who needs none.
    IfNeeded,
    Always,
    /// Without the receiver's interrupt: 10K wakes measure until the CPU is awake.
    UntilAwake,
}

fn hardware(hardware: Hardware, inputs: &Inputs, ipi: Ipi) -> Hardware {
    Hardware {
        ipi_send_ns: inputs.ipi_send_ns as u64,
        ipi_delivery_ns: inputs.ipi_delivery_ns as u64,
        ipi_receive_ns: if ipi == Ipi::UntilAwake { 0 } else { inputs.ipi_receive_ns as u64 },
        store_ns: inputs.store_ns as u64,
        store_delivery_ns: inputs.store_delivery_ns as u64,
        ipi_less: ipi == Ipi::IfNeeded,
        switch_ns: 0,
        tick_work_ns: 0,
        core_count: 2,
        ..hardware
    }
}

/// A machine whose only idle state is HALT, or MWAIT C1, and how long it takes to leave it.
struct Model<'a> {
    shelf: &'a Shelf<'a>,
    inputs: Inputs,
    machine: Machine,
    exits: Quantiles,
    /// Whether a store woke it when its exits were measured.
    is_by_store: bool,
}

impl<'a> Model<'a> {
    fn new(
        shelf: &'a Shelf<'a>,
        inputs: Inputs,
        name: &str,
        mwait_hint: Option<&str>,
        wake_ns: fn(&Percentile<u64>) -> u64,
    ) -> Self {
        let mut state = MachineState::new(name, 1_000, 1_000);
        state.mwait_hint = mwait_hint.map(str::to_owned);
        let mut machine = Machine::new("zen3", "Zen 3 without a driver", Arch::X86, "study");
        machine.states.push(state);
        let points: Vec<(f64, u64)> = WAKES.iter().map(|row| (row.ratio, wake_ns(row))).collect();
        let wakes = Quantiles::new(&points).expect("the published table ascends");
        // What is left when the way to the CPU is taken off is the exit.
        let is_by_store = mwait_hint.is_some() && inputs.is_by_store();
        let way_ns = match is_by_store {
            true => inputs.store_ns + inputs.store_delivery_ns,
            false => inputs.ipi_send_ns + inputs.ipi_delivery_ns,
        };
        let exits = wakes.shifted(-(way_ns as i64));
        Model { shelf, inputs, machine, exits, is_by_store }
    }

    fn trial(&self, load: impl Into<Workload>) -> Trial<'_> {
        let mut trial = Trial::new(self.shelf, &self.machine, "menu-6.12", load);
        trial.quantiles.insert(0, self.exits.clone());
        trial
    }

    fn wakes(&self) -> Trial<'_> {
        let load = Wakes { interval_ns: 20_000, wake_count: 10_000, ..Wakes::default() };
        let mut trial = self.trial(load);
        let ipi = if self.is_by_store { Ipi::IfNeeded } else { Ipi::UntilAwake };
        trial.hardware = hardware(trial.hardware, &self.inputs, ipi);
        trial.duration_ns = 210_000_000;
        trial.run_count = 10;
        trial
    }

    /// What one way of context_switch2 takes besides waking up; this is HALT's model.
    fn work_ns(&self) -> u64 {
        let Inputs { halt_per_s, ipi_send_ns, ipi_delivery_ns, ipi_receive_ns, .. } = self.inputs;
        let ipi_ns = ipi_send_ns + ipi_delivery_ns + ipi_receive_ns;
        (1e9 / halt_per_s - self.exits.mean_ns() - ipi_ns).max(0.0) as u64
    }

    fn per_s(&self, work_ns: u64, ipi: Ipi) -> Result<f64> {
        let load = ContextSwitch2 { before_wake_ns: work_ns, ..ContextSwitch2::default() };
        let mut trial = self.trial(load);
        trial.hardware = hardware(trial.hardware, &self.inputs, ipi);
        trial.duration_ns = 200_000_000;
        Ok(trial.run()?.operations_per_s())
    }
}

/// The study's figures for these inputs.
pub fn headline(shelf: &Shelf<'_>, changes: &Changes) -> Result<Headline> {
    let inputs = Inputs::with(changes);
    let halt = Model::new(shelf, inputs, "HALT", None, |row| row.halt);
    let mwait = Model::new(shelf, inputs, "MWAIT", Some("0x00"), |row| row.mwait);
    let work_ns = halt.work_ns();
    Ok(Headline {
        run_count: halt.wakes().run_count,
        halt_wakes: spans(&halt.wakes().run()?, "wake_ns")?.clone(),
        mwait_wakes: spans(&mwait.wakes().run()?, "wake_ns")?.clone(),
        work_ns,
        halt_per_s: halt.per_s(work_ns, Ipi::Always)?,
        exit_only_per_s: mwait.per_s(work_ns, Ipi::Always)?,
        mwait_per_s: mwait.per_s(work_ns, Ipi::IfNeeded)?,
    })
}

/// Everything that the page shows.
pub fn run(shelf: &Shelf<'_>, changes: &Changes) -> Result<Findings> {
    let by_store = [changes, &[("mwait_by_store", 1.0)]].concat();
    Ok(Findings {
        headline: headline(shelf, changes)?,
        by_store: headline(shelf, &by_store)?,
        is_by_store: Inputs::with(changes).is_by_store(),
        decisions: decisions(),
    })
}

/// Dumps of machines, `boot-machines/README.md` says of which.
const MACHINES: &str = include_str!("../../boot-machines/machines.txt");

/// The default idle routine of every machine with a dump, as the claim has it and as the kernel decides.
fn decisions() -> Vec<Decision> {
    let machines = MACHINES.split("\n== ").skip(1);
    machines.filter_map(decision).collect()
}

/// The possible routines.
fn names(selection: &Selection) -> String {
    let names: Vec<&str> = selection.possible().map(|(routine, _)| routine.as_str()).collect();
    names.join(" or ")
}

/// `None` for a machine that takes more than its CPUID to describe.
fn decision(machine: &'static str) -> Option<Decision> {
    let (fields, dump) = machine.split_once("\n-- cpuid\n")?;
    if dump.contains("\n-- ") {
        return None;
    }
    let field = |name: &str| fields.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    let facts = Cpuid::parse(dump).expect("a dump").facts(BootFacts::without_cmdline());
    let choose = |kernel, idle| {
        let cmdline = Some(Fact::new(Cmdline::default().with(idle), Source::Assumed));
        select(&BootFacts { kernel, cmdline, ..facts })
    };
    let chosen = choose(Kernel::V6_12, IdleParameter::None);
    let branch = chosen.possible().next().and_then(|(_, branch)| branch);
    let claimed = field("claimed: ");
    Some(Decision {
        processor: field("title: "),
        is_captured: field("origin: ").starts_with("captured"),
        claimed: IdleRoutine::ALL.into_iter().find(|routine| routine.as_str() == claimed),
        in_5_18: names(&choose(Kernel::V5_18, IdleParameter::None)),
        in_6_1: names(&choose(Kernel::V6_1, IdleParameter::None)),
        in_6_12: names(&chosen),
        routine: chosen.routine(),
        without_mwait: choose(Kernel::V6_12, IdleParameter::NoMwait).routine(),
        reason: match (chosen.routine(), branch) {
            (None, _) => "the dump was not made under Linux, which lifts the firmware's limit",
            (Some(_), None) => "the CPU has no MWAIT, whether Xen has chosen before or not",
            (Some(_), Some(branch)) => branch.row().reason,
        },
    })
}
