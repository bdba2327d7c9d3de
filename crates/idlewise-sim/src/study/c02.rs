//! `c02`. The power of C0.2 is calibrated (it is the claim's own figure). Whether hackbench gains is
//! predicted twice: with the governors as they are, and with what POLL and C0.2 alone would give, so that
//! the mechanism (power budget, SMT sibling) can be told from what a governor makes of it.

use super::{Shelf, StudyError, Trial, mean_ns};
use crate::Machine;
use crate::simulate::{Hardware, Report};
use crate::workload::{BurstThenIdle, Hackbench, Periodic};

/// Assumed: power of C0.1, of POLL.
pub const C01_POWER_RATIO: f64 = 0.9;
/// The claim is of 6.5, whose menu is nearer to 6.1's than to 6.12's.
const MENU: &str = "menu-6.1";
const TEO: &str = "teo-6.1";
/// Never in POLL for long where C0.2 is enabled.
const DEADLINE_GOVERNOR: &str = "menu-6.12";
const POLL: &str = "fixed=POLL";
const C02: &str = "fixed=C0.2";

/// Messages a second of each replicate, and their mean frequency over the nominal one.
#[derive(Clone, Debug)]
pub struct Score {
    rates: Vec<f64>,
    /// The frequency.
    pub frequency: f64,
}

/// A gain and its standard error, as ratios.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    /// The gain.
    pub ratio: f64,
    /// Its standard error.
    pub error: f64,
}

impl Gain {
    /// Less than two standard errors.
    pub fn is_noise(self) -> bool {
        self.ratio.abs() <= 2.0 * self.error
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
        Gain { ratio, error: (squares / (count - 1.0).max(1.0) / count).sqrt() }
    }
}

/// Something of hackbench with 4 groups and with 8.
#[derive(Clone, Copy, Debug)]
pub struct Groups<T> {
    /// With 4.
    pub four: T,
    /// With 8.
    pub eight: T,
}

impl<T> Groups<T> {
    fn run(with: impl Fn(u64) -> Result<T, StudyError>) -> Result<Self, StudyError> {
        Ok(Groups { four: with(4)?, eight: with(8)? })
    }

    /// What `change` makes of each.
    pub fn map<U>(&self, change: impl Fn(&T) -> U) -> Groups<U> {
        Groups { four: change(&self.four), eight: change(&self.eight) }
    }
}

impl Groups<Score> {
    /// The gains over another variant.
    pub fn gain_over(&self, base: &Self) -> Groups<Gain> {
        Groups { four: self.four.gain_over(&base.four), eight: self.eight.gain_over(&base.eight) }
    }
}

/// hackbench on 224 CPUs at the power limit.
#[derive(Clone, Debug)]
pub struct Variants {
    /// menu without C0.2.
    pub menu_without: Groups<Score>,
    /// menu.
    pub menu: Groups<Score>,
    /// teo without C0.2.
    pub teo_without: Groups<Score>,
    /// teo.
    pub teo: Groups<Score>,
    /// Nothing but POLL.
    pub poll: Groups<Score>,
    /// Nothing but C0.2.
    pub c02: Groups<Score>,
    /// The same where the platform turns it into C0.1.
    pub c01: Groups<Score>,
    /// The same with the deadline [`Findings::short_deadline_ns`].
    pub short_deadline: Groups<Score>,
    /// Nothing but POLL, no power limit.
    pub poll_unlimited: Groups<Score>,
    /// Nothing but C0.2, no power limit.
    pub c02_unlimited: Groups<Score>,
    /// Nothing but C1.
    pub c1: Groups<Score>,
}

/// Bursts, then idling, with POLL and C0.2 only.
#[derive(Clone, Debug)]
pub struct ByDeadline {
    /// UMWAIT's deadline; none if there is none.
    pub max_ns: Option<u64>,
    /// Power, of that with POLL alone.
    pub power_ratio: f64,
    /// Deadlines a second.
    pub deadlines_per_s: f64,
}

/// Something that is assumed, changed.
#[derive(Clone, Copy, Debug)]
pub enum Assumption {
    /// Nothing is changed.
    AsAbove,
    /// Power of a package besides its cores.
    UncoreMw(f64),
    /// Running power grows with frequency to this power.
    Exponent(f64),
    /// Speed of each of two threads of a core.
    SecondThread(f64),
    /// Messages take half of the work.
    HalfWork,
}

/// C0.2 alone against POLL alone, if another thing is assumed.
#[derive(Clone, Debug)]
pub struct ByAssumption {
    /// What is assumed.
    pub assumption: Assumption,
    /// The gain.
    pub gain: Groups<Gain>,
}

/// A timer interrupt's mean latency.
#[derive(Clone, Debug)]
pub struct Latency {
    /// What interrupt entry takes.
    pub entry_ns: u64,
    /// With POLL alone.
    pub poll_ns: f64,
    /// With C0.2 alone.
    pub c02_ns: f64,
}

/// What came out, and what went in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    /// The machine.
    pub machine: Machine,
    /// Two Xeons.
    pub hardware: Hardware,
    /// hackbench.
    pub hackbench: Hackbench,
    /// How many replicates of hackbench.
    pub run_count: u64,
    /// Power of C0.2, of POLL.
    pub c02_power_ratio: f64,
    /// Power of the cores of an idle system with C0.2 alone, above POLL alone.
    pub core_power_ratio: f64,
    /// Interrupt latency.
    pub latency: Latency,
    /// By what interrupt entry takes.
    pub by_entry: Vec<Latency>,
    /// hackbench.
    pub variants: Variants,
    /// A shorter deadline for one of them.
    pub short_deadline_ns: u64,
    /// By UMWAIT's deadline.
    pub by_deadline: Vec<ByDeadline>,
    /// The bursts of those.
    pub deadline_load: BurstThenIdle,
    /// By what is assumed.
    pub by_assumption: Vec<ByAssumption>,
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

fn hackbench<'a>(
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
    governor: &'a str,
    group_count: u64,
) -> Trial<'a> {
    let load = Hackbench { group_count, ..Hackbench::default() };
    let mut trial = Trial::new(shelf, machine, governor, load);
    trial.hardware = xeon(trial.hardware);
    trial.duration_ns = 3_000_000;
    trial.run_count = 4;
    trial
}

fn score(trial: &Trial<'_>) -> Result<Score, StudyError> {
    let reports = trial.runs()?;
    let frequencies = reports.iter().map(|report| report.cores.mean_frequency_ratio());
    let frequency = frequencies.sum::<f64>() / reports.len() as f64;
    Ok(Score { rates: reports.iter().map(Report::operations_per_s).collect(), frequency })
}

/// C0.2 requests that the platform turns into C0.1: less saved, no clearly shorter exit.
fn with_c01(machine: &Machine) -> Result<Machine, StudyError> {
    let mut machine = machine.clone();
    let c02 = machine.state_index("C0.2")?;
    machine.states[c02].power_mw = Some(machine.running_power().mw * C01_POWER_RATIO);
    Ok(machine)
}

const SHORT_DEADLINE_NS: u64 = 5_000;

fn variants(shelf: &Shelf<'_>, machine: &Machine) -> Result<Variants, StudyError> {
    let c02 = machine.state_index("C0.2")?;
    let c01_machine = with_c01(machine)?;
    let run = |machine: &Machine, governor: &str, change: &dyn Fn(&mut Trial<'_>)| {
        Groups::run(|group_count| {
            let mut trial = hackbench(shelf, machine, governor, group_count);
            change(&mut trial);
            score(&trial)
        })
    };
    let nothing = |_: &mut Trial<'_>| {};
    let without = |trial: &mut Trial<'_>| trial.disabled = trial.disabled.with(c02);
    let unlimited = |trial: &mut Trial<'_>| trial.hardware.tdp_mw = None;
    let short = |trial: &mut Trial<'_>| trial.hardware.umwait_max_ns = Some(SHORT_DEADLINE_NS);
    Ok(Variants {
        menu_without: run(machine, MENU, &without)?,
        menu: run(machine, MENU, &nothing)?,
        teo_without: run(machine, TEO, &without)?,
        teo: run(machine, TEO, &nothing)?,
        poll: run(machine, POLL, &nothing)?,
        c02: run(machine, C02, &nothing)?,
        c01: run(&c01_machine, C02, &nothing)?,
        short_deadline: run(machine, C02, &short)?,
        poll_unlimited: run(machine, POLL, &unlimited)?,
        c02_unlimited: run(machine, C02, &unlimited)?,
        c1: run(machine, "fixed=C1", &nothing)?,
    })
}

fn deadline_load() -> BurstThenIdle {
    BurstThenIdle { quiet_ns: 3_000_000, ..BurstThenIdle::default() }
}

fn by_deadline(
    shelf: &Shelf<'_>,
    machine: &Machine,
    max_ns: Option<u64>,
) -> Result<ByDeadline, StudyError> {
    let c02 = machine.state_index("C0.2")?;
    let mut trial = Trial::new(shelf, machine, DEADLINE_GOVERNOR, deadline_load());
    trial.hardware.umwait_max_ns = max_ns;
    trial.hardware.core_count = 1;
    for state in c02 + 1..machine.states.len() {
        trial.disabled = trial.disabled.with(state);
    }
    let both = trial.run()?;
    let poll = Trial { disabled: trial.disabled.with(c02), ..trial }.run()?;
    let others = both.idle.gap_count + both.idle.tick_wake_count;
    let deadline_count = both.idle.states[c02].entry_count.saturating_sub(others);
    Ok(ByDeadline {
        max_ns,
        power_ratio: both.power_mw() / poll.power_mw(),
        deadlines_per_s: deadline_count as f64 * 1e9 / both.duration_ns as f64,
    })
}

fn by_assumption(
    shelf: &Shelf<'_>,
    machine: &Machine,
    assumption: Assumption,
) -> Result<ByAssumption, StudyError> {
    let run = |governor: &str, group_count| {
        let mut trial = hackbench(shelf, machine, governor, group_count);
        trial.run_count = 3;
        trial.duration_ns = 2_000_000;
        match assumption {
            Assumption::AsAbove => {}
            Assumption::UncoreMw(mw) => trial.hardware.package_mw = mw,
            Assumption::Exponent(exponent) => trial.hardware.power_exponent = exponent,
            Assumption::SecondThread(speed) => trial.hardware.smt2_speed = speed,
            Assumption::HalfWork => {
                let load = Hackbench { group_count, ..Hackbench::default() };
                let (send_work_ns, receive_work_ns) =
                    (load.send_work_ns / 2, load.receive_work_ns / 2);
                trial.workload = Hackbench { send_work_ns, receive_work_ns, ..load }.into();
            }
        }
        score(&trial)
    };
    let gain =
        Groups::run(|group_count| Ok(run(C02, group_count)?.gain_over(&run(POLL, group_count)?)))?;
    Ok(ByAssumption { assumption, gain })
}

/// One CPU's timer interrupts with only POLL, and with only C0.2.
fn latency(shelf: &Shelf<'_>, machine: &Machine, entry_ns: u64) -> Result<Latency, StudyError> {
    let with = |governor| {
        let load = Periodic { work_ns: 1_000, jitter_ns: 100_000, ..Periodic::default() };
        let mut trial = Trial::new(shelf, machine, governor, load);
        trial.hardware = Hardware {
            core_count: 1,
            timer_slack_ns: 0,
            switch_ns: 0,
            irq_entry_ns: entry_ns,
            ..trial.hardware
        };
        mean_ns(&trial.run()?, "late_ns")
    };
    Ok(Latency { entry_ns, poll_ns: with(POLL)?, c02_ns: with(C02)? })
}

fn idle_mw(shelf: &Shelf<'_>, machine: &Machine, governor: &str) -> Result<f64, StudyError> {
    let load = Periodic { work_ns: 1_000, ..Periodic::default() };
    let mut trial = Trial::new(shelf, machine, governor, load);
    trial.duration_ns = 100_000_000;
    Ok(trial.run()?.power_mw())
}

/// Runs it.
///
/// # Errors
/// If a machine or governor that it needs is missing.
pub fn run(shelf: &Shelf<'_>) -> Result<Findings, StudyError> {
    use Assumption::{AsAbove, Exponent, HalfWork, SecondThread, UncoreMw};
    let machine = &shelf.machine("spr-c02")?;
    let base = hackbench(shelf, machine, MENU, Hackbench::default().group_count);
    let entry_ns = base.hardware.irq_entry_ns;
    let deadlines_us = [1, 2, 5, 10, 50, 500].map(Some).into_iter().chain([None]);
    let assumptions = [
        AsAbove,
        UncoreMw(50_000.0),
        UncoreMw(150_000.0),
        Exponent(3.0),
        SecondThread(0.5),
        HalfWork,
    ];
    let powers = machine.powers();
    let power_mw = |state| Ok::<f64, StudyError>(powers[machine.state_index(state)?].mw);
    Ok(Findings {
        hardware: base.hardware.clone(),
        hackbench: Hackbench::default(),
        run_count: base.run_count,
        c02_power_ratio: power_mw("C0.2")? / power_mw("POLL")?,
        core_power_ratio: idle_mw(shelf, machine, C02)? / idle_mw(shelf, machine, POLL)? - 1.0,
        latency: latency(shelf, machine, entry_ns)?,
        by_entry: [250, entry_ns, 600, 1_000]
            .into_iter()
            .map(|entry_ns| latency(shelf, machine, entry_ns))
            .collect::<Result<_, _>>()?,
        variants: variants(shelf, machine)?,
        short_deadline_ns: SHORT_DEADLINE_NS,
        by_deadline: deadlines_us
            .map(|us: Option<u64>| by_deadline(shelf, machine, us.map(|us| us * 1_000)))
            .collect::<Result<_, _>>()?,
        deadline_load: deadline_load(),
        by_assumption: assumptions
            .into_iter()
            .map(|assumption| by_assumption(shelf, machine, assumption))
            .collect::<Result<_, _>>()?,
        machine: machine.clone(),
    })
}
