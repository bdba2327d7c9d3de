//! `c02`. The power of C0.2 is calibrated (it is the claim's own figure). Whether hackbench gains is
//! predicted twice: with the governors as they are, and with what POLL and C0.2 alone would give, so that
//! the mechanism (power budget, SMT sibling) can be told from what a governor makes of it.

use super::{Result, Shelf, StudyError, Sweep, Trial, mean_ns, sweep};
use crate::Machine;
use crate::simulate::{Hardware, Report};
use crate::workload::{BurstThenIdle, Hackbench, Periodic};

/// Assumed: power of C0.1, of POLL.
pub const C01_POWER_RATIO: f64 = 0.9;
/// A deadline of UMWAIT that one variant has.
pub const SHORT_DEADLINE_NS: u64 = 5_000;
/// The claim is of 6.5, whose menu is nearer to 6.1's than to 6.12's.
const MENU: &str = "menu-6.1";
const TEO: &str = "teo-6.1";
/// Never in POLL for long where C0.2 is enabled.
const DEADLINE_GOVERNOR: &str = "menu-6.12";
const POLL: &str = "fixed=POLL";
const C02: &str = "fixed=C0.2";

/// hackbench: messages a second of each replicate, and their mean frequency over the nominal one.
#[derive(Clone, Debug)]
pub struct Score {
    rates: Vec<f64>,
    pub frequency: f64,
}

/// A gain and its standard error.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    pub ratio: f64,
    pub error_ratio: f64,
}

impl Gain {
    /// Less than two standard errors.
    pub fn is_noise(self) -> bool {
        self.ratio.abs() <= 2.0 * self.error_ratio
    }
}

impl Score {
    /// Replicates of the same seed are compared with each other.
    pub fn gain_over(&self, base: &Score) -> Gain {
        let pairs = self.rates.iter().zip(&base.rates);
        let gains: Vec<f64> = pairs.map(|(rate, base)| rate / base - 1.0).collect();
        let count = gains.len() as f64;
        let ratio = gains.iter().sum::<f64>() / count;
        let squares = gains.iter().map(|gain| (gain - ratio).powi(2)).sum::<f64>();
        Gain { ratio, error_ratio: (squares / (count - 1.0).max(1.0) / count).sqrt() }
    }
}

/// Something of hackbench with 4 groups and with 8.
#[derive(Clone, Copy, Debug)]
pub struct Groups<T> {
    pub four: T,
    pub eight: T,
}

impl<T> Groups<T> {
    fn run(with: impl Fn(u64) -> Result<T>) -> Result<Self> {
        Ok(Groups { four: with(4)?, eight: with(8)? })
    }
}

impl Groups<Score> {
    /// The gains over another variant.
    pub fn gain_over(&self, base: &Self) -> Groups<Gain> {
        let (four, eight) = (self.four.gain_over(&base.four), self.eight.gain_over(&base.eight));
        Groups { four, eight }
    }
}

/// hackbench on 224 CPUs at the power limit, or *unlimited*; `poll`, `c02`, `c01` and `c1` are the only state.
#[derive(Clone, Debug)]
pub struct Variants {
    pub menu_without: Groups<Score>,
    pub menu: Groups<Score>,
    pub teo_without: Groups<Score>,
    pub teo: Groups<Score>,
    pub poll: Groups<Score>,
    pub c02: Groups<Score>,
    pub c01: Groups<Score>,
    /// C0.2 with [`SHORT_DEADLINE_NS`].
    pub short_deadline: Groups<Score>,
    pub poll_unlimited: Groups<Score>,
    pub c02_unlimited: Groups<Score>,
    pub c1: Groups<Score>,
}

/// Bursts, then idling, with POLL and C0.2 only.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// Of the power with POLL alone.
    pub power_ratio: f64,
    pub deadlines_per_s: f64,
}

/// Something that is assumed, changed.
#[derive(Clone, Copy, Debug)]
pub enum Assumption {
    AsAbove,
    /// Power of a package besides its cores.
    UncoreMw(f64),
    /// Running power grows with frequency to this power.
    Exponent(f64),
    /// Speed of each of two threads of a core.
    SecondThread(f64),
    /// Of each message.
    HalfWork,
}

/// A timer interrupt's mean latency with POLL alone and with C0.2 alone.
#[derive(Clone, Debug)]
pub struct Latency {
    pub poll_ns: f64,
    pub c02_ns: f64,
}

impl Latency {
    pub fn added_ratio(&self) -> f64 {
        self.c02_ns / self.poll_ns - 1.0
    }
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub machine: Machine,
    pub hardware: Hardware,
    pub hackbench: Hackbench,
    /// Replicates of hackbench.
    pub run_count: u64,
    /// Power of C0.2, of POLL.
    pub c02_power_ratio: f64,
    /// Power of the cores of an idle system with C0.2 alone, above POLL alone.
    pub core_power_ratio: f64,
    pub latency: Latency,
    /// By what interrupt entry takes.
    pub by_entry_ns: Sweep<u64, Latency>,
    pub variants: Variants,
    /// By UMWAIT's deadline; the last has none.
    pub by_deadline_ns: Sweep<Option<u64>, Deadlines>,
    pub deadline_load: BurstThenIdle,
    /// The gain of C0.2 alone over POLL alone.
    pub by_assumption: Sweep<Assumption, Groups<Gain>>,
}

/// Two Xeons of 56 cores with two threads each, limited to 350 W a package, 100 W of it uncore.
fn xeon(hardware: Hardware) -> Hardware {
    Hardware {
        package_count: 2,
        core_count: 56,
        thread_count: 2,
        tdp_mw: Some(350_000.0),
        package_mw: 100_000.0,
        turbo_ratio: 1.9,
        budget_period_ns: 100_000,
        // The kernel's 100,000 TSC cycles at 2 GHz.
        umwait_max_ns: Some(50_000),
        ..hardware
    }
}

#[derive(Clone, Copy)]
struct Model<'a> {
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
}

fn hackbench<'a>(model: Model<'a>, governor: &'a str, group_count: u64) -> Trial<'a> {
    let load = Hackbench { group_count, ..Hackbench::default() };
    let mut trial = Trial::new(model.shelf, model.machine, governor, load);
    trial.hardware = xeon(trial.hardware);
    trial.duration_ns = 3_000_000;
    trial.run_count = 4;
    trial
}

fn score(trial: &Trial<'_>) -> Result<Score> {
    let reports = trial.runs()?;
    let frequencies = reports.iter().map(|report| report.cores.mean_frequency_ratio());
    let frequency = frequencies.sum::<f64>() / reports.len() as f64;
    Ok(Score { rates: reports.iter().map(Report::operations_per_s).collect(), frequency })
}

/// C0.2 requests that the platform turns into C0.1: less saved, no clearly shorter exit.
fn with_c01(machine: &Machine) -> Result<Machine> {
    let mut machine = machine.clone();
    let c02 = machine.state_index("C0.2")?;
    machine.states[c02].power_mw = Some(machine.running_power().mw * C01_POWER_RATIO);
    Ok(machine)
}

fn variants(model: Model<'_>) -> Result<Variants> {
    let c02 = model.machine.state_index("C0.2")?;
    let c01 = &with_c01(model.machine)?;
    let run = |model: Model<'_>, governor: &str, change: &dyn Fn(&mut Trial<'_>)| {
        Groups::run(|group_count| {
            let mut trial = hackbench(model, governor, group_count);
            change(&mut trial);
            score(&trial)
        })
    };
    let nothing = |_: &mut Trial<'_>| {};
    let without = |trial: &mut Trial<'_>| trial.disabled = trial.disabled.with(c02);
    let unlimited = |trial: &mut Trial<'_>| trial.hardware.tdp_mw = None;
    let short = |trial: &mut Trial<'_>| trial.hardware.umwait_max_ns = Some(SHORT_DEADLINE_NS);
    Ok(Variants {
        menu_without: run(model, MENU, &without)?,
        menu: run(model, MENU, &nothing)?,
        teo_without: run(model, TEO, &without)?,
        teo: run(model, TEO, &nothing)?,
        poll: run(model, POLL, &nothing)?,
        c02: run(model, C02, &nothing)?,
        c01: run(Model { machine: c01, ..model }, C02, &nothing)?,
        short_deadline: run(model, C02, &short)?,
        poll_unlimited: run(model, POLL, &unlimited)?,
        c02_unlimited: run(model, C02, &unlimited)?,
        c1: run(model, "fixed=C1", &nothing)?,
    })
}

fn deadline_load() -> BurstThenIdle {
    BurstThenIdle { quiet_ns: 3_000_000, ..BurstThenIdle::default() }
}

fn deadlines(model: Model<'_>, max_ns: Option<u64>) -> Result<Deadlines> {
    let c02 = model.machine.state_index("C0.2")?;
    let mut trial = Trial::new(model.shelf, model.machine, DEADLINE_GOVERNOR, deadline_load());
    trial.hardware.umwait_max_ns = max_ns;
    trial.hardware.core_count = 1;
    for state in c02 + 1..model.machine.states.len() {
        trial.disabled = trial.disabled.with(state);
    }
    let both = trial.run()?;
    let poll = Trial { disabled: trial.disabled.with(c02), ..trial }.run()?;
    let others = both.idle.gap_count + both.idle.tick_wake_count;
    let deadline_count = both.idle.states[c02].entry_count.saturating_sub(others);
    Ok(Deadlines {
        power_ratio: both.power_mw() / poll.power_mw(),
        deadlines_per_s: deadline_count as f64 * 1e9 / both.duration_ns as f64,
    })
}

/// The gain of C0.2 alone over POLL alone.
fn gain(model: Model<'_>, assumption: Assumption) -> Result<Groups<Gain>> {
    let run = |governor: &str, group_count| {
        let mut trial = hackbench(model, governor, group_count);
        trial.run_count = 3;
        trial.duration_ns = 2_000_000;
        match assumption {
            Assumption::AsAbove => {}
            Assumption::UncoreMw(mw) => trial.hardware.package_mw = mw,
            Assumption::Exponent(exponent) => trial.hardware.power_exponent = exponent,
            Assumption::SecondThread(speed) => trial.hardware.smt2_speed = speed,
            Assumption::HalfWork => {
                let mut load = Hackbench { group_count, ..Hackbench::default() };
                load.send_work_ns /= 2;
                load.receive_work_ns /= 2;
                trial.workload = load.into();
            }
        }
        score(&trial)
    };
    Groups::run(|group_count| Ok(run(C02, group_count)?.gain_over(&run(POLL, group_count)?)))
}

/// One CPU's timer interrupts with only POLL, and with only C0.2.
fn latency(model: Model<'_>, entry_ns: u64) -> Result<Latency> {
    let with = |governor| {
        let load = Periodic { work_ns: 1_000, jitter_ns: 100_000, ..Periodic::default() };
        let mut trial = Trial::new(model.shelf, model.machine, governor, load);
        trial.hardware = Hardware {
            core_count: 1,
            timer_slack_ns: 0,
            switch_ns: 0,
            irq_entry_ns: entry_ns,
            ..trial.hardware
        };
        mean_ns(&trial.run()?, "late_ns")
    };
    Ok(Latency { poll_ns: with(POLL)?, c02_ns: with(C02)? })
}

fn idle_mw(model: Model<'_>, governor: &str) -> Result<f64> {
    let load = Periodic { work_ns: 1_000, ..Periodic::default() };
    let mut trial = Trial::new(model.shelf, model.machine, governor, load);
    trial.duration_ns = 100_000_000;
    Ok(trial.run()?.power_mw())
}

pub fn run(shelf: &Shelf<'_>) -> Result<Findings> {
    use Assumption::{AsAbove, Exponent, HalfWork, SecondThread, UncoreMw};
    let machine = &shelf.machine("spr-c02")?;
    let model = Model { shelf, machine };
    let base = hackbench(model, MENU, Hackbench::default().group_count);
    let entry_ns = base.hardware.irq_entry_ns;
    let deadlines_ns = [1, 2, 5, 10, 50, 500].map(|us| Some(us * 1_000)).into_iter().chain([None]);
    let uncores = [50_000.0, 150_000.0].map(UncoreMw);
    let others = [Exponent(3.0), SecondThread(0.5), HalfWork];
    let assumptions = [AsAbove].into_iter().chain(uncores).chain(others);
    let powers = machine.powers();
    let power_mw = |state| Ok::<f64, StudyError>(powers[machine.state_index(state)?].mw);
    Ok(Findings {
        c02_power_ratio: power_mw("C0.2")? / power_mw("POLL")?,
        core_power_ratio: idle_mw(model, C02)? / idle_mw(model, POLL)? - 1.0,
        latency: latency(model, entry_ns)?,
        by_entry_ns: sweep([250, entry_ns, 600, 1_000], |ns| latency(model, ns))?,
        variants: variants(model)?,
        by_deadline_ns: sweep(deadlines_ns, |max_ns| deadlines(model, max_ns))?,
        deadline_load: deadline_load(),
        by_assumption: sweep(assumptions, |assumption| gain(model, assumption))?,
        hardware: base.hardware.clone(),
        hackbench: Hackbench::default(),
        run_count: base.run_count,
        machine: machine.clone(),
    })
}
