//! `amd-mwait`. The wake-up latencies are calibrated: their whole distribution goes in. What
//! context_switch2 gains from them is predicted: its time for one way under HALT, less HALT's wake-up, is
//! what MWAIT can't change.

use idlewise_core::boot::{
    BootFacts, IdleParameter, IdleRoutine, IdleRoutineReason, MwaitFeatures, default_idle,
};

use super::{Result, Shelf, StudyError, Sweep, Trial, spans, sweep};
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

/// What an IPI costs.
#[derive(Clone, Copy, Debug)]
pub struct IpiCosts {
    pub send_ns: u64,
    pub delivery_ns: u64,
    pub receive_ns: u64,
}

/// Assumed.
pub const IPI: IpiCosts = IpiCosts { send_ns: 300, delivery_ns: 200, receive_ns: 400 };

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

/// `*_per_s` are switches of context_switch2.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub hardware: Hardware,
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
    /// MWAIT's switches above HALT's, by what an IPI costs its sender and its receiver.
    pub by_send_and_receive_ns: Sweep<u64, Sweep<u64, f64>>,
    pub decisions: Vec<Decision>,
}

fn hardware(hardware: Hardware, ipi: IpiCosts, ipi_less: bool) -> Hardware {
    Hardware {
        ipi_send_ns: ipi.send_ns,
        ipi_delivery_ns: ipi.delivery_ns,
        ipi_receive_ns: ipi.receive_ns,
        ipi_less,
        switch_ns: 0,
        tick_work_ns: 0,
        core_count: 2,
        ..hardware
    }
}

/// A machine whose only idle state is HALT, or MWAIT C1, and how long it takes to leave it.
struct Model<'a> {
    shelf: &'a Shelf<'a>,
    machine: Machine,
    exits: Quantiles,
}

impl<'a> Model<'a> {
    fn new(
        shelf: &'a Shelf<'a>,
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
        let exits = wakes.shifted(-((IPI.send_ns + IPI.delivery_ns) as i64));
        Model { shelf, machine, exits }
    }

    fn trial(&self, load: impl Into<Workload>) -> Trial<'_> {
        let mut trial = Trial::new(self.shelf, &self.machine, "menu-6.12", load);
        trial.quantiles.insert(0, self.exits.clone());
        trial
    }

    fn wakes(&self) -> Trial<'_> {
        let load = Wakes { interval_ns: 20_000, wake_count: 10_000, ..Wakes::default() };
        let mut trial = self.trial(load);
        trial.hardware = hardware(trial.hardware, IpiCosts { receive_ns: 0, ..IPI }, false);
        trial.duration_ns = 210_000_000;
        trial.run_count = 10;
        trial
    }

    /// What one way of context_switch2 takes besides waking up; this is HALT's model.
    fn work_ns(&self, ipi: IpiCosts) -> u64 {
        let ipi_ns = ipi.send_ns + ipi.delivery_ns + ipi.receive_ns;
        (1e9 / SWITCHES_MEDIAN.halt - self.exits.mean_ns() - ipi_ns as f64).max(0.0) as u64
    }

    fn switches(&self, work_ns: u64, ipi: IpiCosts, ipi_less: bool) -> Trial<'_> {
        let load = ContextSwitch2 { before_wake_ns: work_ns, ..ContextSwitch2::default() };
        let mut trial = self.trial(load);
        trial.hardware = hardware(trial.hardware, ipi, ipi_less);
        trial.duration_ns = 200_000_000;
        trial
    }
}

pub fn run(shelf: &Shelf<'_>) -> Result<Findings> {
    let halt = Model::new(shelf, "HALT", None, |row| row.halt);
    let mwait = Model::new(shelf, "MWAIT", Some("0x00"), |row| row.mwait);
    let per_s = |trial: Trial<'_>| Ok::<f64, StudyError>(trial.run()?.operations_per_s());
    let gain_ratio = |costs| -> Result<f64> {
        let work_ns = halt.work_ns(costs);
        let halt_per_s = per_s(halt.switches(work_ns, costs, false))?;
        Ok(per_s(mwait.switches(work_ns, costs, true))? / halt_per_s - 1.0)
    };
    let work_ns = halt.work_ns(IPI);
    let halt_switches = halt.switches(work_ns, IPI, false);
    Ok(Findings {
        hardware: halt_switches.hardware.clone(),
        run_count: halt.wakes().run_count,
        halt_wakes: spans(&halt.wakes().run()?, "wake_ns")?.clone(),
        mwait_wakes: spans(&mwait.wakes().run()?, "wake_ns")?.clone(),
        work_ns,
        halt_per_s: per_s(halt_switches)?,
        exit_only_per_s: per_s(mwait.switches(work_ns, IPI, false))?,
        mwait_per_s: per_s(mwait.switches(work_ns, IPI, true))?,
        by_send_and_receive_ns: sweep([300, 500, 800], |send_ns| {
            sweep([200, 400, 800], |receive_ns| gain_ratio(IpiCosts { send_ns, receive_ns, ..IPI }))
        })?,
        decisions: decisions(),
    })
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
