//! `ipi-less`. What a function call costs its sender is calibrated, with an IPI and without, and so is the
//! nearly idle system before the change. What the change does to a system is simulated.

use crate::error::Result;
use crate::inputs::Origin::{Assumed, Calibrated};
use crate::inputs::{Changes, inputs, ms_ns, us_ns};
use crate::trial::{Shelf, Sweep, Trial, mean_ns, sweep};
use idlewise_machine::{Machine, MachineState};
use idlewise_sim::simulate::{Hardware, IpiCounts, Report};
use idlewise_sim::workload::{AsyncCalls, NearlyIdle, ThirdCpu, Workload};

/// What a call costs its sender.
#[derive(Clone, Copy, Debug)]
pub struct SenderCost {
    pub ipi_cycles: f64,
    pub store_cycles: f64,
}

impl SenderCost {
    /// What a store saves.
    pub fn saved_cycles(&self) -> f64 {
        self.ipi_cycles - self.store_cycles
    }
}

/// Shares of the time, in per cent.
#[derive(Clone, Copy, Debug)]
pub struct CStates {
    pub c0: f64,
    /// Neither C0 nor C6.
    pub c1: f64,
    pub c6: f64,
}

const fn c_states(c0: f64, c1: f64, c6: f64) -> CStates {
    CStates { c0, c1, c6 }
}

/// Published: the nearly idle system with IPIs, three runs.
pub const BEFORE: [CStates; 3] =
    [c_states(1.51, 2.93, 95.55), c_states(1.48, 2.86, 95.65), c_states(1.46, 2.78, 95.74)];
/// Published: with stores.
pub const AFTER: [CStates; 3] =
    [c_states(1.35, 2.63, 96.00), c_states(1.46, 2.78, 95.74), c_states(1.37, 2.63, 95.98)];

/// The processor's frequency.
pub const GHZ: f64 = 2.93;
/// 5 % two-sided, for the 2.7 degrees of freedom of Welch's approximation to the published runs.
const T_CRITICAL: f64 = 3.4;
const FIT_ROUND_COUNT: usize = 5;
const GOVERNOR: &str = "menu-6.1";
/// Published C0, C1 and C6 leave no time for it.
pub const UNUSED_STATE: &str = "C3";
/// Shares of the time that the targets are busy, for the crossover.
const BUSY_RATIOS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 0.97];
/// C1 of the nearly idle system is about the interval to minus this power; for the fit's speed only.
const C1_EXPONENT: f64 = 1.6;
/// How long the nearly idle system is simulated for the fit, and for the figures.
const FIT_NS: u64 = 4_000_000_000;
pub const NEARLY_IDLE_NS: u64 = 10_000_000_000;
/// Runs with other random numbers, for what a change scatters by.
const RUN_COUNT: u64 = 8;

inputs! {
    /// Inputs of `ipi-less`.
    pub struct Inputs {
        local_ipi: 1_600.0, 1_550.0..=1_650.0, "cycles", Calibrated(&["sender's cost, local socket, IPI"]),
            "a call's cost to its sender: local, IPI", "the claim's \"~1600\"";
        local_store: 1_200.0, 1_150.0..=1_250.0, "cycles", Calibrated(&["sender's cost, local socket, store"]),
            "a call's cost to its sender: local, store", "the claim's \"~1200\"";
        remote_ipi: 2_000.0, 1_950.0..=2_050.0, "cycles", Calibrated(&["sender's cost, remote socket, IPI"]),
            "a call's cost to its sender: remote, IPI", "the claim's \"~2000\"";
        remote_store: 1_800.0, 1_750.0..=1_850.0, "cycles", Calibrated(&["sender's cost, remote socket, store"]),
            "a call's cost to its sender: remote, store", "the claim's \"~1800\"";
        c0: 1.48, 1.46..=1.51, "%", Calibrated(&["C0"]),
            "C0 of the nearly idle system before", "the claim's three runs; what a CPU does is fitted to it";
        c1: 2.86, 2.78..=2.93, "%", Calibrated(&["C1", "C6"]),
            "C1 of the nearly idle system before", "the claim's three runs; how often it wakes is fitted to it";
        exit_us: 75.0, 50.0..=100.0, "us", Calibrated(&[]),
            "waking from C6", "the claim's \"50-100us\"; other states scaled alike";
        exit_counted: 0.0, 0.0..=0.2, "", Assumed,
            "share of an exit in which cycles are counted", "clocks start at its end; firmware may run before";
        receive_cycles: 1_200.0, 600.0..=2_400.0, "cycles", Assumed,
            "receiver's interrupt", "entry, EOI and exit; not published for Westmere";
        loop_cycles: 4_000.0, 1_000.0..=16_000.0, "cycles", Assumed,
            "idle loop around a stay", "governor, timers, bookkeeping: about a microsecond";
        switch_ns: 600.0, 300.0..=1_500.0, "ns", Assumed,
            "from the end of idling to a task's first instruction", "the simulated machine's default";
        call_cycles: 800.0, 200.0..=6_000.0, "cycles", Assumed,
            "work of a called function", "up to 2 us, as of a wake-up or of networking";
        check_cycles: 100.0, 25.0..=200.0, "cycles", Assumed,
            "check whether the target monitors", "a cache line, shared to remote";
        ipi_delivery_ns: 300.0, 100.0..=1_000.0, "ns", Assumed,
            "from the ICR write to the receiver", "the claim does not say";
        store_delivery_ns: 100.0, 50.0..=300.0, "ns", Assumed,
            "from the store to the wake-up", "transfer of a cache line";
        hz: 1_000.0, 100.0..=1_000.0, "Hz", Assumed,
            "the kernel's CONFIG_HZ", "the claim does not say";
        tick_us: 3.0, 1.0..=6.0, "us", Assumed,
            "work of the tick's handler", "the simulated machine's default";
        round_us: 200.0, 50.0..=2_000.0, "us", Assumed,
            "time between two calls to all others", "the claim does not say";
        other_work: 0.0, 0.0..=0.015, "", Assumed,
            "share of time that the other CPUs do other work", "the claim's nearly idle system is in C0 for 1.5 %";
        calls_per_wake: 2.0, 0.5..=8.0, "", Assumed,
            "nearly idle system: calls to other CPUs per wake-up of a task", "the claim does not say";
        window_us: 100.0, 20.0..=1_000.0, "us", Assumed,
            "window after a wake-up in which a third CPU calls", "chosen; uniform within it";
        partly_busy: 0.5, 0.2..=0.8, "", Assumed,
            "partly busy system: share of the time that targets are busy", "the claim's \"partially busy\"";
        kick_ms: 4.0, 1.0..=60.0, "ms", Assumed,
            "time between two kicks of a busy CPU", "at most every tick, by the domains' intervals";
        balance_us: 30.0, 5.0..=200.0, "us", Assumed,
            "balancing for all idle CPUs, which a kick triggers", "some microseconds for each idle CPU";
    }
}

/// What a CPU of the nearly idle system does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub interval_ns: f64,
    pub work_ns: f64,
}

/// A third CPU that wants one that is being woken.
#[derive(Clone, Debug)]
pub struct Ride {
    /// Share of its calls that cost no IPI.
    pub free_ratio: f64,
    pub ipis_a_round: f64,
    /// The same where every wake-up takes an IPI.
    pub ipis_a_round_before: f64,
}

/// One CPU calling all others. *Before* is with IPIs, *after* with stores.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub cost: SenderCost,
    pub ipis_a_call_before: f64,
    pub ipis_a_call: f64,
    /// Non-idle cycles, after above before.
    pub change_ratio: f64,
}

/// The study's figures. *Before* is with IPIs, *after* with stores.
#[derive(Clone, Debug)]
pub struct Headline {
    pub local: SenderCost,
    pub remote: SenderCost,
    /// One CPU calling all others, mostly idle.
    pub rounds: Rounds,
    /// The nearly idle system that was fitted.
    pub load: Load,
    pub before: CStates,
    pub after: CStates,
    /// Share of its calls that met a CPU which was already being woken.
    pub nearly_idle_free_ratio: f64,
    pub ride: Ride,
    /// One CPU calling all others, which are partly busy.
    pub partly_busy: Rounds,
    /// By the share of the time that targets are busy.
    pub by_busy_ratio: Sweep<f64, Rounds>,
    /// Cycles of a nohz kick, its sender's and its receiver's with the balancing, after above before.
    pub kick_change_ratio: f64,
}

impl Headline {
    /// The share of the time that targets are busy from which a store saves its sender nothing; none if it
    /// always does.
    pub fn crossing_busy_ratio(&self) -> Option<f64> {
        let mut pairs = self.by_busy_ratio.windows(2).map(|pair| (&pair[0], &pair[1]));
        let saved = |row: &crate::trial::At<f64, Rounds>| row.found.cost.saved_cycles();
        let (a, b) = pairs.find(|(a, b)| saved(a) > 0.0 && saved(b) <= 0.0)?;
        Some(a.at + (b.at - a.at) * saved(a) / (saved(a) - saved(b)))
    }

    /// The share of the ICR writes that stores make unnecessary in the partly busy system.
    pub fn elided_ratio(&self) -> f64 {
        1.0 - self.partly_busy.ipis_a_call / self.partly_busy.ipis_a_call_before
    }
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub inputs: Inputs,
    pub headline: Headline,
    /// Runs of the nearly idle system, in pairs with the same random numbers.
    pub before_runs: Vec<CStates>,
    pub after_runs: Vec<CStates>,
}

impl Findings {
    /// The mean change of a part from a run before to that after, and its standard error.
    pub fn change(&self, part: fn(&CStates) -> f64) -> (f64, f64) {
        let pairs = self.before_runs.iter().zip(&self.after_runs);
        let changes: Vec<f64> = pairs.map(|(before, after)| part(after) - part(before)).collect();
        let count = changes.len() as f64;
        let mean = changes.iter().sum::<f64>() / count;
        let squares: f64 = changes.iter().map(|change| (change - mean).powi(2)).sum();
        (mean, (squares / (count - 1.0) / count).sqrt())
    }
}

/// The mean of published runs.
pub fn mean(runs: &[CStates; 3]) -> CStates {
    let of = |part: fn(&CStates) -> f64| runs.iter().map(part).sum::<f64>() / 3.0;
    CStates { c0: of(|run| run.c0), c1: of(|run| run.c1), c6: of(|run| run.c6) }
}

/// Welch's t of the published difference of C0.
pub fn welch_t() -> f64 {
    let variance = |runs: &[CStates; 3]| {
        let mean = mean(runs).c0;
        runs.iter().map(|run| (run.c0 - mean).powi(2)).sum::<f64>() / 2.0
    };
    (mean(&BEFORE).c0 - mean(&AFTER).c0) / ((variance(&BEFORE) + variance(&AFTER)) / 3.0).sqrt()
}

/// Whether the published difference of C0 is significant at 5 %.
pub fn is_significant() -> bool {
    welch_t() >= T_CRITICAL
}

fn ns(cycles: f64) -> u64 {
    (cycles / GHZ).round() as u64
}

#[derive(Clone, Copy)]
struct Model<'a> {
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
    inputs: Inputs,
}

impl<'a> Model<'a> {
    /// A Westmere server of two packages.
    fn westmere(self, hardware: Hardware, ipi_less: bool) -> Result<Hardware> {
        let inputs = &self.inputs;
        let states = self.machine.table()?;
        let table_exit_ns = states.get(states.deepest()).exit_latency_ns;
        Ok(Hardware {
            package_count: 2,
            core_count: 6,
            thread_count: 2,
            ipi_send_ns: ns(inputs.local_ipi),
            ipi_send_remote_ns: ns(inputs.remote_ipi),
            store_ns: ns(inputs.local_store),
            store_remote_ns: ns(inputs.remote_store),
            ring_check_ns: ns(inputs.check_cycles),
            ipi_receive_ns: ns(inputs.receive_cycles),
            irq_entry_ns: ns(inputs.receive_cycles),
            ipi_delivery_ns: inputs.ipi_delivery_ns as u64,
            store_delivery_ns: inputs.store_delivery_ns as u64,
            idle_loop_ns: ns(inputs.loop_cycles),
            switch_ns: inputs.switch_ns as u64,
            exit_ratio: us_ns(inputs.exit_us) as f64 / table_exit_ns as f64,
            hz: inputs.hz as u64,
            tick_work_ns: us_ns(inputs.tick_us),
            ipi_less,
            ..hardware
        })
    }

    fn trial(self, ipi_less: bool, load: impl Into<Workload>) -> Result<Trial<'a>> {
        let mut trial = Trial::new(self.shelf, self.machine, GOVERNOR, load);
        let is_unused = |state: &MachineState| state.name == UNUSED_STATE;
        if let Some(unused) = self.machine.states.iter().position(is_unused) {
            trial.disabled = trial.disabled.with(unused);
        }
        trial.hardware = self.westmere(trial.hardware, ipi_less)?;
        Ok(trial)
    }

    /// Time that cores' clocks run: what `turbostat` and cycle counters call C0.
    fn non_idle_ns(self, report: &Report) -> f64 {
        report.busy_ns as f64 - report.exit_ns as f64 * (1.0 - self.inputs.exit_counted)
    }

    fn calls(self, ipi_less: bool, interval_ns: u64, busy_ratio: f64) -> Result<Trial<'a>> {
        let call_work_ns = ns(self.inputs.call_cycles);
        let load = AsyncCalls { interval_ns, busy_ratio, call_work_ns };
        let mut trial = self.trial(ipi_less, load)?;
        trial.duration_ns = 100_000_000;
        Ok(trial)
    }

    /// One CPU that calls another of its package, or of another one, or none.
    fn pair(self, ipi_less: bool, packages: u64, cores: u64) -> Result<Trial<'a>> {
        let mut trial = self.calls(ipi_less, 1_000_000, 0.0)?;
        let hardware = trial.hardware;
        trial.hardware =
            Hardware { package_count: packages, core_count: cores, thread_count: 1, ..hardware };
        Ok(trial)
    }

    fn pair_cost(self, packages: u64, cores: u64) -> Result<SenderCost> {
        let cost = |ipi_less| sender_cycles(&self.pair(ipi_less, packages, cores)?.run()?);
        Ok(SenderCost { ipi_cycles: cost(false)?, store_cycles: cost(true)? })
    }

    /// One CPU calling all others.
    fn rounds(self, busy_ratio: f64) -> Result<Rounds> {
        let with = |ipi_less| self.calls(ipi_less, us_ns(self.inputs.round_us), busy_ratio)?.run();
        let (before, after) = (with(false)?, with(true)?);
        let ipis_a_call = |report: &Report| {
            let IpiCounts { sent_count, requested_count, .. } = report.ipis;
            sent_count as f64 / requested_count.max(1) as f64
        };
        Ok(Rounds {
            cost: SenderCost {
                ipi_cycles: sender_cycles(&before)?,
                store_cycles: sender_cycles(&after)?,
            },
            ipis_a_call_before: ipis_a_call(&before),
            ipis_a_call: ipis_a_call(&after),
            change_ratio: self.non_idle_ns(&after) / self.non_idle_ns(&before) - 1.0,
        })
    }

    fn nearly_idle(self, ipi_less: bool, load: Load) -> Result<Trial<'a>> {
        let load = NearlyIdle {
            interval_ns: load.interval_ns as u64,
            work_ns: load.work_ns as u64,
            wake_ratio: self.inputs.calls_per_wake.min(1.0),
            call_count: self.inputs.calls_per_wake.max(1.0) as u64,
            call_work_ns: ns(self.inputs.call_cycles),
        };
        Ok(Trial { duration_ns: NEARLY_IDLE_NS, ..self.trial(ipi_less, load)? })
    }

    fn c_states(self, report: &Report) -> Result<CStates> {
        let all_ns = (report.cpu_count * report.duration_ns) as f64;
        let deepest = self.machine.table()?.deepest();
        let c0 = self.non_idle_ns(report) / all_ns * 100.0;
        let c6 = report.idle.states[deepest].stay_ns as f64 / all_ns * 100.0;
        Ok(CStates { c0, c1: 100.0 - c0 - c6, c6 })
    }

    /// Some runs of the nearly idle system.
    fn nearly_idle_runs(self, ipi_less: bool, load: Load) -> Result<Vec<CStates>> {
        let trial = Trial { run_count: RUN_COUNT, ..self.nearly_idle(ipi_less, load)? };
        trial.runs()?.iter().map(|report| self.c_states(report)).collect()
    }

    /// The load under which C0 and C1 are the published ones as long as IPIs are sent.
    fn fit_load(self) -> Result<Load> {
        let Inputs { c0, c1, .. } = self.inputs;
        let mut load = Load { interval_ns: 10_000_000.0, work_ns: 140_000.0 };
        for _ in 0..FIT_ROUND_COUNT {
            let trial = Trial { duration_ns: FIT_NS, ..self.nearly_idle(false, load)? };
            let found = self.c_states(&trial.run()?)?;
            let active_ns = found.c0 / 100.0 * load.interval_ns;
            // C1 falls faster than wake-ups, because short stays get rarer too. What is active besides the
            // work stays.
            let too_often_ratio = (found.c1 / c1).powf(1.0 / C1_EXPONENT);
            load.interval_ns = (load.interval_ns * too_often_ratio).clamp(1e5, 1e9);
            let active_wanted_ns = c0 / 100.0 * load.interval_ns;
            load.work_ns = (load.work_ns + active_wanted_ns - active_ns).max(1.0);
        }
        Ok(load)
    }

    fn ride(self) -> Result<Ride> {
        let with = |ipi_less| -> Result<Report> {
            let window_ns = us_ns(self.inputs.window_us);
            let call_work_ns = ns(self.inputs.call_cycles);
            let load = ThirdCpu { window_ns, call_work_ns, ..ThirdCpu::default() };
            let mut trial = self.trial(ipi_less, load)?;
            trial.hardware.thread_count = 1;
            trial.run()
        };
        let (after, before) = (with(true)?, with(false)?);
        let a_round = |report: &Report, count: u64| {
            count as f64 / report.metrics.operation_count.max(1) as f64
        };
        Ok(Ride {
            free_ratio: a_round(&after, after.ipis.free_ride_count),
            ipis_a_round: a_round(&after, after.ipis.sent_count),
            ipis_a_round_before: a_round(&before, before.ipis.sent_count),
        })
    }

    /// What kicks take: two CPUs less one that calls nobody.
    fn kick_change_ratio(self) -> Result<f64> {
        let interval_ns = ms_ns(self.inputs.kick_ms);
        let non_idle_ns = |ipi_less, cpu_count| -> Result<f64> {
            let call_work_ns = us_ns(self.inputs.balance_us);
            let load = AsyncCalls { interval_ns, call_work_ns, busy_ratio: 0.0 };
            let trial = self.pair(ipi_less, 1, cpu_count)?;
            let duration_ns = 200 * interval_ns;
            let trial = Trial { workload: load.into(), duration_ns, ..trial };
            Ok(self.non_idle_ns(&trial.run()?))
        };
        let kicks_ns = |ipi_less| {
            Ok::<_, crate::error::StudyError>(non_idle_ns(ipi_less, 2)? - non_idle_ns(ipi_less, 1)?)
        };
        Ok(kicks_ns(true)? / kicks_ns(false)? - 1.0)
    }
}

fn sender_cycles(report: &Report) -> Result<f64> {
    Ok(mean_ns(report, "sender_ns")? * GHZ)
}

/// The study's figures for these inputs.
pub fn headline(shelf: &Shelf<'_>, changes: &Changes) -> Result<Headline> {
    let inputs = Inputs::with(changes);
    let machine = shelf.machine("nhm-table")?;
    let model = Model { shelf, machine: &machine, inputs };
    let load = model.fit_load()?;
    let after = model.nearly_idle(true, load)?.run()?;
    let by_busy_ratio = sweep(BUSY_RATIOS, |busy_ratio| model.rounds(busy_ratio))?;
    let rounds = |busy_ratio| match by_busy_ratio.iter().find(|row| row.at == busy_ratio) {
        Some(row) => Ok(row.found),
        None => model.rounds(busy_ratio),
    };
    let IpiCounts { free_ride_count, requested_count, .. } = after.ipis;
    Ok(Headline {
        local: model.pair_cost(1, 2)?,
        remote: model.pair_cost(2, 1)?,
        rounds: rounds(inputs.other_work)?,
        load,
        before: model.c_states(&model.nearly_idle(false, load)?.run()?)?,
        after: model.c_states(&after)?,
        nearly_idle_free_ratio: free_ride_count as f64 / requested_count.max(1) as f64,
        ride: model.ride()?,
        partly_busy: rounds(inputs.partly_busy)?,
        kick_change_ratio: model.kick_change_ratio()?,
        by_busy_ratio,
    })
}

/// Everything that the page shows.
pub fn run(shelf: &Shelf<'_>, changes: &Changes) -> Result<Findings> {
    let headline = headline(shelf, changes)?;
    let machine = shelf.machine("nhm-table")?;
    let model = Model { shelf, machine: &machine, inputs: Inputs::with(changes) };
    Ok(Findings {
        inputs: model.inputs,
        before_runs: model.nearly_idle_runs(false, headline.load)?,
        after_runs: model.nearly_idle_runs(true, headline.load)?,
        headline,
    })
}
