//! `amd-mwait`. The wake-up latencies are calibrated: their whole distribution goes in. What
//! context_switch2 gains from them is predicted: its time for one way under HALT, less HALT's wake-up, is
//! what MWAIT can't change.

use idlewise_core::boot::{
    BootFacts, IdleParameter, IdleRoutine, IdleRoutineReason, MwaitFeatures, default_idle,
};

use super::Origin::{Assumed, Calibrated};
use super::{Changes, Result, Shelf, Trial, inputs, spans};
use crate::replay::Delays;
use crate::simulate::{Hardware, Quantiles};
use crate::workload::{ContextSwitch2, Wakes, Workload};
use crate::{Arch, Machine, MachineState};

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
            "the published median, minimum and maximum; its work beside the wake-up is fitted to it";
        ipi_send_ns: 300.0, 150.0..=800.0, "ns", Assumed,
            "what an IPI costs its sender", "order of published x2APIC measurements";
        ipi_delivery_ns: 200.0, 100.0..=500.0, "ns", Assumed,
            "from the register write to the receiver's pin", "order of published x2APIC measurements";
        ipi_receive_ns: 400.0, 200.0..=1_000.0, "ns", Assumed,
            "interrupt entry and exit at the receiver", "order of published x2APIC measurements";
        store_ns: 50.0, 20.0..=150.0, "ns", Assumed,
            "what a store to the monitored line costs its sender", "a cache line's way";
        store_delivery_ns: 60.0, 30.0..=200.0, "ns", Assumed,
            "from the store to the wake-up", "a cache line's way";
    }
}

/// The default idle routine of a processor.
#[derive(Clone, Debug)]
pub struct Decision {
    pub processor: &'static str,
    pub parameter: IdleParameter,
    /// None if the claim names no such case.
    pub claimed: Option<IdleRoutine>,
    pub routine: IdleRoutine,
    pub reason: IdleRoutineReason,
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
        // What is left when the IPI's way is taken off is the exit.
        let exits = wakes.shifted(-((inputs.ipi_send_ns + inputs.ipi_delivery_ns) as i64));
        Model { shelf, inputs, machine, exits }
    }

    fn trial(&self, load: impl Into<Workload>) -> Trial<'_> {
        let mut trial = Trial::new(self.shelf, &self.machine, "menu-6.12", load);
        trial.quantiles.insert(0, self.exits.clone());
        trial
    }

    fn wakes(&self) -> Trial<'_> {
        let load = Wakes { interval_ns: 20_000, wake_count: 10_000, ..Wakes::default() };
        let mut trial = self.trial(load);
        trial.hardware = hardware(trial.hardware, &self.inputs, Ipi::UntilAwake);
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
    Ok(Findings { headline: headline(shelf, changes)?, decisions: decisions() })
}

/// The default idle routine of every family, as the claim has it and as our port decides.
fn decisions() -> Vec<Decision> {
    use IdleRoutine::{Driver, Halt, Mwait};
    const MONITOR: u32 = 1 << 3;
    const NO_MWAIT: MwaitFeatures = MwaitFeatures::from_cpuid(0, 0, 0);
    const NO_C1: MwaitFeatures = MwaitFeatures::from_cpuid(MONITOR, 0b11, 0);
    const C1: MwaitFeatures = MwaitFeatures::from_cpuid(MONITOR, 0b11, 0x11);
    const INTEL: MwaitFeatures = MwaitFeatures::from_cpuid(MONITOR, 0b11, 0x10_2020);
    const NO_EXTENSIONS: MwaitFeatures = MwaitFeatures::from_cpuid(MONITOR, 0, 0);
    let families = [
        ("AMD 0Fh", NO_MWAIT, Some(Halt)),
        ("AMD 10h", NO_C1, Some(Halt)),
        ("AMD 11h", NO_C1, Some(Halt)),
        ("AMD 12h", NO_C1, Some(Halt)),
        ("AMD 14h", NO_C1, Some(Halt)),
        ("AMD 15h", NO_C1, Some(Halt)),
        ("AMD 16h", NO_C1, None),
        ("AMD 17h (Zen, Zen 2)", C1, Some(Mwait)),
        ("Hygon 18h", C1, None),
        ("AMD 19h (Zen 3, Zen 4)", C1, Some(Mwait)),
        ("AMD 1Ah (Zen 5)", C1, Some(Mwait)),
        ("Intel, no extensions", NO_EXTENSIONS, None),
        ("Intel, C1 substates", INTEL, None),
    ];
    let decide = |processor, claimed, facts: BootFacts| {
        let (routine, reason) = default_idle(facts);
        Decision { processor, parameter: facts.parameter, claimed, routine, reason }
    };
    let mut decisions = Vec::new();
    for (processor, mwait, claimed) in families {
        for (parameter, claimed) in
            [(IdleParameter::None, claimed), (IdleParameter::NoMwait, Some(Halt))]
        {
            let facts = BootFacts { parameter, has_driver: false, mwait };
            decisions.push(decide(processor, claimed, facts));
        }
    }
    let driven = BootFacts { parameter: IdleParameter::None, has_driver: true, mwait: C1 };
    decisions.push(decide("any, with a cpuidle driver", Some(Driver), driven));
    decisions
}
