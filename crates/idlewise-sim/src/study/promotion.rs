//! `promotion`. Nothing is calibrated but the state table: how long a CPU stays in a lite state follows
//! from menu's history logic and from when it is asked again.

use std::ops::RangeInclusive;

use idlewise_core::{DisabledMask, auto_promotion_delay_ns};

use super::{Shelf, StudyError, Trial};
use crate::replay::Delays;
use crate::simulate::{Hardware, Report};
use crate::workload::BurstThenIdle;
use crate::{Flag, Machine};

/// Bursts of a run: as many as were published.
pub const BURST_COUNT: u64 = 20;
/// Time between two bursts if siblings compute.
pub const SIBLING_QUIET_NS: u64 = 20_000_000;
const GOVERNOR: &str = "menu-6.1";
/// The soft lockup watchdog's timer, on each CPU.
const WATCHDOG_NS: u64 = 4_000_000_000;

/// How CPU 0 left stop0_lite after the bursts of a run.
#[derive(Clone, Debug)]
pub struct Escape {
    /// How long it had been there when it got out.
    pub out: Delays,
    /// In how many rounds it got out; none if it never did.
    pub rounds: Option<RangeInclusive<u64>>,
    /// The longest stay that something else ended.
    pub stuck_ns: Option<u64>,
    /// Stays that the promotion timer ended, a burst.
    pub promotions_a_burst: f64,
    /// Mean power of the machine.
    pub power_mw: f64,
}

/// How many pieces of work SMT siblings computed while CPU 0 idled, mostly.
#[derive(Clone, Debug)]
pub struct Siblings {
    /// How many siblings.
    pub sibling_count: u64,
    /// With the tick stopped and no promotion.
    pub stopped: f64,
    /// With the tick kept.
    pub kept: f64,
    /// With the promotion timer.
    pub timer: f64,
}

/// The promotion timer under a governor.
#[derive(Clone, Debug)]
pub struct ByGovernor {
    /// The governor's id.
    pub governor: &'static str,
    /// Time between a burst's interrupts.
    pub burst_gap_ns: u64,
    /// How the CPU got out.
    pub timer: Escape,
}

/// Bursts that are less regular.
#[derive(Clone, Debug)]
pub struct ByJitter {
    /// Each of a burst's gaps is longer by up to this.
    pub jitter_ns: u64,
    /// With the tick kept.
    pub kept: Escape,
    /// With the promotion timer.
    pub timer: Escape,
}

/// What came out, and what went in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    /// The machine, with promotion.
    pub machine: Machine,
    /// Its hardware.
    pub hardware: Hardware,
    /// The bursts.
    pub bursts: BurstThenIdle,
    /// The tick is stopped and nothing promotes.
    pub stopped: Escape,
    /// The tick is kept.
    pub kept: Escape,
    /// The promotion timer.
    pub timer: Escape,
    /// The promotion timer, with stop0 disabled.
    pub to_stop2: Escape,
    /// By how many siblings compute.
    pub siblings: [Siblings; 3],
    /// Rows of a governor follow each other.
    pub by_governor: Vec<ByGovernor>,
    /// From regular to irregular.
    pub by_jitter: Vec<ByJitter>,
    /// The promotion timer's length.
    pub timer_ns: u64,
    /// The same with stop0 disabled.
    pub timer_to_stop2_ns: u64,
    /// What one promotion costs: an exit and an interrupt.
    pub promotion_cost_ns: u64,
}

fn without_promotion(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    for state in &mut machine.states {
        state.flags.retain(|flag| *flag != Flag::AutoPromote);
    }
    machine
}

fn bursts() -> BurstThenIdle {
    BurstThenIdle {
        burst_count: 16,
        burst_gap_ns: 16_000,
        quiet_ns: 1_500_000_000,
        ..BurstThenIdle::default()
    }
}

fn trial<'a>(shelf: &'a Shelf<'a>, machine: &'a Machine, governor: &'a str) -> Trial<'a> {
    let mut trial = Trial::new(shelf, machine, governor, bursts());
    trial.hardware = Hardware {
        core_count: 1,
        thread_count: 4,
        housekeeping_ns: Some(WATCHDOG_NS),
        ..trial.hardware
    };
    trial.duration_ns = bursts().quiet_ns * 17 / 16 * BURST_COUNT;
    trial
}

fn escape(trial: &Trial<'_>) -> Result<Escape, StudyError> {
    let report = trial.run()?;
    let spans = |name| report.metrics.spans(name);
    let burst_count = (report.duration_ns / bursts().quiet_ns).max(1) as f64;
    let rounds = spans("deeper_after_rounds");
    Ok(Escape {
        out: spans("deeper_after_ns").cloned().unwrap_or_default(),
        rounds: rounds.and_then(|rounds| Some(rounds.min_ns()?..=rounds.max_ns()?)),
        stuck_ns: spans("not_deeper_ns").and_then(Delays::max_ns),
        promotions_a_burst: report.idle.auto_promotion_count as f64 / burst_count,
        power_mw: report.power_mw(),
    })
}

/// Runs it.
///
/// # Errors
/// If a machine or governor that it needs is missing.
pub fn run(shelf: &Shelf<'_>) -> Result<Findings, StudyError> {
    let machine = shelf.machine("power9-stop0lite")?;
    let (lite, stop0) = (machine.state_index("stop0_lite")?, machine.state_index("stop0")?);
    let plain = without_promotion(&machine);
    let kept = trial(shelf, &plain, GOVERNOR);
    let stopped = Trial { stops_tick: true, ..kept.clone() };
    let timer = trial(shelf, &machine, GOVERNOR);
    let to_stop2 = Trial { disabled: timer.disabled.with(stop0), ..timer.clone() };

    let computed = |trial: &Trial<'_>, sibling_count| -> Result<f64, StudyError> {
        let load = BurstThenIdle { sibling_count, quiet_ns: SIBLING_QUIET_NS, ..bursts() };
        let trial = Trial { workload: load.into(), duration_ns: 400_000_000, ..trial.clone() };
        let report: Report = trial.run()?;
        Ok(report.metrics.spans("computed_ns").map_or(0, Delays::count) as f64)
    };
    let siblings = |sibling_count| -> Result<Siblings, StudyError> {
        Ok(Siblings {
            sibling_count,
            stopped: computed(&stopped, sibling_count)?,
            kept: computed(&kept, sibling_count)?,
            timer: computed(&timer, sibling_count)?,
        })
    };
    let mut by_governor = Vec::new();
    for governor in ["menu-6.1", "menu-6.12", "teo-6.1", "teo-6.12", "ladder-6.12"] {
        for burst_gap_ns in [16_000, 13_000, 20_000] {
            let mut trial = trial(shelf, &machine, governor);
            trial.workload = BurstThenIdle { burst_gap_ns, ..bursts() }.into();
            by_governor.push(ByGovernor { governor, burst_gap_ns, timer: escape(&trial)? });
        }
    }
    let mut by_jitter = Vec::new();
    for jitter_us in [0, 5, 20, 50, 100, 200] {
        let jitter_ns = jitter_us * 1_000;
        let with = |trial: &Trial<'_>| {
            let load = BurstThenIdle { burst_jitter_ns: jitter_ns, ..bursts() };
            escape(&Trial { workload: load.into(), ..trial.clone() })
        };
        by_jitter.push(ByJitter { jitter_ns, kept: with(&kept)?, timer: with(&timer)? });
    }
    let table = machine.table()?;
    let timer_ns = |disabled| {
        let delay_ns = auto_promotion_delay_ns(&table, disabled, lite);
        delay_ns.ok_or(StudyError::Nothing("promotion timers"))
    };
    Ok(Findings {
        hardware: timer.hardware.clone(),
        bursts: bursts(),
        stopped: escape(&stopped)?,
        kept: escape(&kept)?,
        timer: escape(&timer)?,
        to_stop2: escape(&to_stop2)?,
        siblings: [siblings(1)?, siblings(2)?, siblings(3)?],
        by_governor,
        by_jitter,
        timer_ns: timer_ns(DisabledMask::NONE)?,
        timer_to_stop2_ns: timer_ns(to_stop2.disabled)?,
        promotion_cost_ns: table.get(lite).exit_latency_ns + timer.hardware.irq_entry_ns,
        machine: machine.clone(),
    })
}
