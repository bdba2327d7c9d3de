//! `ipi-less`. What a function call costs its sender is calibrated, with an IPI and without; what that
//! does to a system is predicted.

use super::{At, Result, Shelf, Sweep, Trial, mean_ns, sweep};
use crate::Machine;
use crate::simulate::{Hardware, Report};
use crate::workload::{AsyncCalls, NearlyIdle, ThirdCpu};

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

/// Published: to a CPU of the same package.
pub const LOCAL: SenderCost = SenderCost { ipi_cycles: 1_600.0, store_cycles: 1_200.0 };
/// Published: to another package.
pub const REMOTE: SenderCost = SenderCost { ipi_cycles: 2_000.0, store_cycles: 1_800.0 };

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
/// Assumed: the receiver's interrupt.
pub const RECEIVE_CYCLES: f64 = 1_200.0;
/// Assumed: the idle loop around a stay.
pub const LOOP_CYCLES: f64 = 4_000.0;
/// Assumed: looking whether the target monitors.
pub const CHECK_CYCLES: f64 = 100.0;
/// Assumed: time between two rounds of one CPU calling all others.
pub const INTERVAL_NS: u64 = 200_000;
/// How often a busy CPU kicks an idle one.
pub const KICKS_PER_S: u64 = 1_000;
/// 5 % two-sided, for the 2.7 degrees of freedom of Welch's approximation to the published runs.
const T_CRITICAL: f64 = 3.4;
const FIT_ROUND_COUNT: usize = 6;
const GOVERNOR: &str = "menu-6.1";

/// What a CPU of the nearly idle system does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub interval_ns: f64,
    pub work_ns: f64,
}

/// A third CPU that wants one that is being woken.
#[derive(Clone, Debug)]
pub struct Ride {
    /// What waking takes.
    pub exit_ns: u64,
    /// The third CPU comes within this.
    pub window_ns: u64,
    /// Share of its calls that cost nothing.
    pub free_ratio: f64,
    pub ipis_a_round: f64,
    /// The same where every wake-up takes an IPI.
    pub ipis_a_round_before: f64,
}

/// What [`KICKS_PER_S`] kicks of one CPU by another take.
#[derive(Clone, Copy, Debug)]
pub struct Kicks {
    pub sender_us_per_s: f64,
    pub non_idle_us_per_s: f64,
}

/// *Before* is with IPIs, *after* with stores.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub local: SenderCost,
    pub remote: SenderCost,
    /// Non-idle cycles of one CPU calling all others, after above before.
    pub change_ratio: f64,
    /// The nearly idle system that was fitted.
    pub load: Load,
    pub before: CStates,
    pub after: CStates,
    pub rides: Vec<Ride>,
    /// By how busy the targets are.
    pub by_busy_ratio: Sweep<f64, SenderCost>,
    /// The nohz kick.
    pub kicks_by_ipi: Kicks,
    pub kicks_by_store: Kicks,
    /// The change by the time between two rounds of calls, and by what the idle loop takes.
    pub by_interval_ns_and_cycles: Sweep<u64, Sweep<f64, f64>>,
    /// The busy share from which a store doesn't pay, by the cycles that looking first costs, and by those
    /// that a store saves: lost while targets are busy, saved while they idle.
    pub by_check_and_saved_cycles: Sweep<f64, Sweep<f64, f64>>,
}

impl Findings {
    /// The row of free rides with that exit and that window; none if it was not run.
    pub fn ride(&self, exit_ns: u64, window_ns: u64) -> Option<&Ride> {
        self.rides.iter().find(|row| row.exit_ns == exit_ns && row.window_ns == window_ns)
    }

    /// How busy targets are when a store saves nothing; none if it always does.
    pub fn crossing_busy_ratio(&self) -> Option<f64> {
        let mut pairs = self.by_busy_ratio.windows(2).map(|pair| (&pair[0], &pair[1]));
        let saved = |row: &At<f64, SenderCost>| row.found.saved_cycles();
        let (a, b) = pairs.find(|(a, b)| saved(a) > 0.0 && saved(b) <= 0.0)?;
        Some(a.at + (b.at - a.at) * saved(a) / (saved(a) - saved(b)))
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

/// A Westmere server of two packages: the published sender's costs, the rest assumed.
fn westmere(hardware: Hardware, ipi_less: bool) -> Hardware {
    Hardware {
        package_count: 2,
        core_count: 6,
        thread_count: 2,
        ipi_send_ns: ns(LOCAL.ipi_cycles),
        ipi_send_remote_ns: ns(REMOTE.ipi_cycles),
        store_ns: ns(LOCAL.store_cycles),
        store_remote_ns: ns(REMOTE.store_cycles),
        ring_check_ns: ns(CHECK_CYCLES),
        ipi_receive_ns: ns(RECEIVE_CYCLES),
        ipi_delivery_ns: 300,
        store_delivery_ns: 100,
        idle_loop_ns: ns(LOOP_CYCLES),
        hz: 1_000,
        ipi_less,
        ..hardware
    }
}

/// Time that cores' clocks run: what `turbostat` and cycle counters call C0. Leaving a state is not
/// part of it: clocks start at its end.
fn non_idle_ns(report: &Report) -> f64 {
    (report.busy_ns - report.exit_ns) as f64
}

#[derive(Clone, Copy)]
struct Model<'a> {
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
}

impl<'a> Model<'a> {
    fn calls(self, ipi_less: bool, interval_ns: u64, busy_ratio: f64) -> Trial<'a> {
        let load = AsyncCalls { interval_ns, busy_ratio, call_work_ns: ns(800.0) };
        let mut trial = Trial::new(self.shelf, self.machine, GOVERNOR, load);
        trial.hardware = westmere(trial.hardware, ipi_less);
        trial.duration_ns = 200_000_000;
        trial
    }

    fn sender_cost(self, trial: impl Fn(Self, bool) -> Trial<'a>) -> Result<SenderCost> {
        let cycles = |ipi_less| -> Result<f64> {
            Ok(mean_ns(&trial(self, ipi_less).run()?, "sender_ns")? * GHZ)
        };
        Ok(SenderCost { ipi_cycles: cycles(false)?, store_cycles: cycles(true)? })
    }

    /// One CPU that calls another of its package, or of another one.
    fn two_cpus(self, ipi_less: bool, is_remote: bool) -> Trial<'a> {
        let mut trial = self.calls(ipi_less, 1_000_000_000 / KICKS_PER_S, 0.0);
        trial.hardware = Hardware {
            package_count: if is_remote { 2 } else { 1 },
            core_count: if is_remote { 1 } else { 2 },
            thread_count: 1,
            ..trial.hardware
        };
        trial
    }

    /// Non-idle cycles with stores above those with IPIs.
    fn change_ratio(self, interval_ns: u64, loop_cycles: f64) -> Result<f64> {
        let with = |ipi_less| -> Result<f64> {
            let mut trial = self.calls(ipi_less, interval_ns, 0.0);
            trial.hardware.idle_loop_ns = ns(loop_cycles);
            Ok(non_idle_ns(&trial.run()?))
        };
        Ok(with(true)? / with(false)? - 1.0)
    }

    fn mostly_idle(self, ipi_less: bool, load: Load) -> Result<CStates> {
        let load = NearlyIdle {
            interval_ns: load.interval_ns as u64,
            work_ns: load.work_ns as u64,
            wake_ratio: 1.0,
            ..NearlyIdle::default()
        };
        let mut trial = Trial::new(self.shelf, self.machine, GOVERNOR, load);
        trial.hardware = westmere(trial.hardware, ipi_less);
        trial.duration_ns = 10_000_000_000;
        let report = trial.run()?;
        let all_ns = (report.cpu_count * report.duration_ns) as f64;
        let deepest = self.machine.table()?.deepest();
        let c0 = non_idle_ns(&report) / all_ns * 100.0;
        let c6 = report.idle.states[deepest].stay_ns as f64 / all_ns * 100.0;
        Ok(CStates { c0, c1: 100.0 - c0 - c6, c6 })
    }

    /// The load under which C0 and C1 are the published ones as long as IPIs are sent.
    fn fit_load(self) -> Result<Load> {
        let wanted = mean(&BEFORE);
        let mut load = Load { interval_ns: 40_000_000.0, work_ns: 500_000.0 };
        for _ in 0..FIT_ROUND_COUNT {
            let found = self.mostly_idle(false, load)?;
            let active_ns = found.c0 / 100.0 * load.interval_ns;
            // Both are nearly inverse to the interval; what is active besides the work stays.
            load.interval_ns = (load.interval_ns * found.c1 / wanted.c1).clamp(1e6, 1e9);
            let active_wanted_ns = wanted.c0 / 100.0 * load.interval_ns;
            load.work_ns = (load.work_ns + active_wanted_ns - active_ns).max(1.0);
        }
        Ok(load)
    }

    fn ride(self, exit_ns: u64, window_ns: u64) -> Result<Ride> {
        let states = self.machine.table()?;
        let table_exit_ns = states.get(states.deepest()).exit_latency_ns;
        let with = |ipi_less| {
            let load = ThirdCpu { window_ns, ..ThirdCpu::default() };
            let mut trial = Trial::new(self.shelf, self.machine, GOVERNOR, load);
            trial.hardware = westmere(trial.hardware, ipi_less);
            trial.hardware.thread_count = 1;
            trial.hardware.exit_ratio = exit_ns as f64 / table_exit_ns as f64;
            trial.run()
        };
        let (after, before) = (with(true)?, with(false)?);
        let a_round = |report: &Report, count: u64| {
            count as f64 / report.metrics.operation_count.max(1) as f64
        };
        Ok(Ride {
            exit_ns,
            window_ns,
            free_ratio: a_round(&after, after.ipis.free_ride_count),
            ipis_a_round: a_round(&after, after.ipis.sent_count),
            ipis_a_round_before: a_round(&before, before.ipis.sent_count),
        })
    }

    fn kicks(self, ipi_less: bool) -> Result<Kicks> {
        let report = self.two_cpus(ipi_less, false).run()?;
        let per_s = 1e9 / report.duration_ns as f64 / 1e3;
        Ok(Kicks {
            sender_us_per_s: report.ipis.sender_ns as f64 * per_s,
            non_idle_us_per_s: non_idle_ns(&report) * per_s,
        })
    }
}

pub fn run(shelf: &Shelf<'_>) -> Result<Findings> {
    let model = Model { shelf, machine: &shelf.machine("nhm-table")? };
    let load = model.fit_load()?;
    let mut rides = Vec::new();
    for exit_us in [50, 100, 200] {
        for window_us in [50, 100] {
            rides.push(model.ride(exit_us * 1_000, window_us * 1_000)?);
        }
    }
    Ok(Findings {
        local: model.sender_cost(|model, ipi_less| model.two_cpus(ipi_less, false))?,
        remote: model.sender_cost(|model, ipi_less| model.two_cpus(ipi_less, true))?,
        change_ratio: model.change_ratio(INTERVAL_NS, LOOP_CYCLES)?,
        load,
        before: model.mostly_idle(false, load)?,
        after: model.mostly_idle(true, load)?,
        rides,
        by_busy_ratio: sweep([0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97], |busy_ratio| {
            model.sender_cost(|model, ipi_less| model.calls(ipi_less, INTERVAL_NS, busy_ratio))
        })?,
        kicks_by_ipi: model.kicks(false)?,
        kicks_by_store: model.kicks(true)?,
        by_interval_ns_and_cycles: sweep([100_000, 200_000, 1_000_000], |interval_ns| {
            sweep([1_000.0, 4_000.0, 16_000.0], |cycles| model.change_ratio(interval_ns, cycles))
        })?,
        by_check_and_saved_cycles: sweep([25.0, 50.0, 100.0, 200.0], |check| {
            sweep([150.0, 300.0, 600.0], |saved| Ok(saved / (saved + check)))
        })?,
    })
}
