//! `promotion`. Nothing is calibrated but the state table: how long a CPU stays in a lite state follows
//! from menu's history logic and from when it is asked again.

use std::ops::RangeInclusive;

use idlewise_core::{DisabledMask, auto_promotion_delay_ns};

use super::{Result, Shelf, StudyError, Sweep, Trial, sweep};
use crate::replay::Delays;
use crate::simulate::Hardware;
use crate::workload::BurstThenIdle;
use crate::{Flag, Machine};

/// Bursts of a run: as many as were published.
pub const BURST_COUNT: u64 = 20;
/// Time between two bursts if siblings compute.
pub const SIBLING_QUIET_NS: u64 = 20_000_000;
const GOVERNOR: &str = "menu-6.1";
const GOVERNORS: [&str; 5] = [GOVERNOR, "menu-6.12", "teo-6.1", "teo-6.12", "ladder-6.12"];
/// The soft lockup watchdog's timer, on each CPU.
const WATCHDOG_NS: u64 = 4_000_000_000;

/// How CPU 0 left stop0_lite after the bursts of a run.
#[derive(Clone, Debug)]
pub struct Escape {
    /// How long it had been there when it got out.
    pub out: Delays,
    /// In how many rounds it got out.
    pub rounds: Option<RangeInclusive<u64>>,
    /// The longest stay that something else ended.
    pub stuck_ns: Option<u64>,
    pub promotions_a_burst: f64,
    pub power_mw: f64,
}

/// How many pieces of work one, two and three SMT siblings computed while CPU 0 idled, mostly.
#[derive(Clone, Debug)]
pub struct Siblings {
    pub one: f64,
    pub two: f64,
    pub three: f64,
}

#[derive(Clone, Debug)]
pub struct KeptOrTimer {
    pub kept: Escape,
    pub timer: Escape,
}

/// *Stopped* is without tick and without promotion, *kept* with the tick, *timer* with promotion, *to stop2*
/// with promotion and without stop0.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub machine: Machine,
    pub hardware: Hardware,
    pub bursts: BurstThenIdle,
    pub stopped: Escape,
    pub kept: Escape,
    pub timer: Escape,
    pub to_stop2: Escape,
    pub stopped_siblings: Siblings,
    pub kept_siblings: Siblings,
    pub timer_siblings: Siblings,
    /// With promotion, by the time between a burst's interrupts.
    pub by_governor_and_gap_ns: Sweep<&'static str, Sweep<u64, Escape>>,
    /// Each of a burst's gaps is longer by up to so much.
    pub by_jitter_ns: Sweep<u64, KeptOrTimer>,
    /// The promotion timer's length, and with stop0 disabled.
    pub timer_ns: u64,
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
    let quiet_ns = 1_500_000_000;
    BurstThenIdle { burst_count: 16, burst_gap_ns: 16_000, quiet_ns, ..BurstThenIdle::default() }
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

fn escape(trial: &Trial<'_>, bursts: BurstThenIdle) -> Result<Escape> {
    let burst_count = (trial.duration_ns / bursts.quiet_ns).max(1) as f64;
    let report = Trial { workload: bursts.into(), ..trial.clone() }.run()?;
    let spans = |name| report.metrics.spans(name);
    let rounds = spans("deeper_after_rounds");
    Ok(Escape {
        out: spans("deeper_after_ns").cloned().unwrap_or_default(),
        rounds: rounds.and_then(|rounds| Some(rounds.min_ns()?..=rounds.max_ns()?)),
        stuck_ns: spans("not_deeper_ns").and_then(Delays::max_ns),
        promotions_a_burst: report.idle.auto_promotion_count as f64 / burst_count,
        power_mw: report.power_mw(),
    })
}

fn siblings(trial: &Trial<'_>) -> Result<Siblings> {
    let computed = |sibling_count| -> Result<f64> {
        let load = BurstThenIdle { sibling_count, quiet_ns: SIBLING_QUIET_NS, ..bursts() };
        let trial = Trial { workload: load.into(), duration_ns: 400_000_000, ..trial.clone() };
        Ok(trial.run()?.metrics.spans("computed_ns").map_or(0, Delays::count) as f64)
    };
    Ok(Siblings { one: computed(1)?, two: computed(2)?, three: computed(3)? })
}

pub fn run(shelf: &Shelf<'_>) -> Result<Findings> {
    let machine = shelf.machine("power9-stop0lite")?;
    let (lite, stop0) = (machine.state_index("stop0_lite")?, machine.state_index("stop0")?);
    let plain = without_promotion(&machine);
    let kept = trial(shelf, &plain, GOVERNOR);
    let stopped = Trial { stops_tick: true, ..kept.clone() };
    let timer = trial(shelf, &machine, GOVERNOR);
    let to_stop2 = Trial { disabled: timer.disabled.with(stop0), ..timer.clone() };
    let table = machine.table()?;
    let timer_ns = |disabled| {
        let delay_ns = auto_promotion_delay_ns(&table, disabled, lite);
        delay_ns.ok_or(StudyError::Nothing("promotion timers"))
    };
    Ok(Findings {
        hardware: timer.hardware.clone(),
        bursts: bursts(),
        stopped: escape(&stopped, bursts())?,
        kept: escape(&kept, bursts())?,
        timer: escape(&timer, bursts())?,
        to_stop2: escape(&to_stop2, bursts())?,
        stopped_siblings: siblings(&stopped)?,
        kept_siblings: siblings(&kept)?,
        timer_siblings: siblings(&timer)?,
        by_governor_and_gap_ns: sweep(GOVERNORS, |governor| {
            let trial = trial(shelf, &machine, governor);
            sweep([16_000, 13_000, 20_000], |burst_gap_ns| {
                escape(&trial, BurstThenIdle { burst_gap_ns, ..bursts() })
            })
        })?,
        by_jitter_ns: sweep([0, 5_000, 20_000, 50_000, 100_000, 200_000], |burst_jitter_ns| {
            let bursts = BurstThenIdle { burst_jitter_ns, ..bursts() };
            Ok(KeptOrTimer { kept: escape(&kept, bursts.clone())?, timer: escape(&timer, bursts)? })
        })?,
        timer_ns: timer_ns(DisabledMask::NONE)?,
        timer_to_stop2_ns: timer_ns(to_stop2.disabled)?,
        promotion_cost_ns: table.get(lite).exit_latency_ns + timer.hardware.irq_entry_ns,
        machine: machine.clone(),
    })
}
