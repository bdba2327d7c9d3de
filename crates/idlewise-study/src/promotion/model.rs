//! `promotion`. Nothing is calibrated but the state table: how long a CPU stays in a lite state follows
//! from menu's history logic and from when it is asked again.

use std::ops::RangeInclusive;

use idlewise_core::{DisabledMask, auto_promotion_delay_ns};

use crate::error::{Result, StudyError};
use crate::inputs::Origin::{Assumed, Calibrated, Documented};
use crate::inputs::{Changes, inputs, ms_ns, us_ns};
use crate::trial::{Shelf, Sweep, Trial, sweep};
use idlewise_machine::{Flag, Machine, MachineState};
use idlewise_sim::replay::Delays;
use idlewise_sim::simulate::Hardware;
use idlewise_sim::workload::BurstThenIdle;

/// Bursts of a run: as many as were published.
pub const BURST_COUNT: u64 = 20;
const GOVERNOR: &str = "menu-6.1";
const GOVERNORS: [&str; 5] = [GOVERNOR, "menu-6.12", "teo-6.1", "teo-6.12", "ladder-6.12"];

inputs! {
    /// Inputs of `promotion`.
    pub struct Inputs {
        stop0_latency_us: 2.0, 2.0..=2.0, "us", Calibrated(&[]), "exit latency of stop0", "the claim's example";
        stop0_residency_us: 20.0, 20.0..=20.0, "us", Calibrated(&[]),
            "target residency of stop0", "the claim's example";
        stop2_latency_us: 10.0, 10.0..=10.0, "us", Calibrated(&[]), "exit latency of stop2", "the claim's example";
        stop2_residency_us: 100.0, 100.0..=100.0, "us", Calibrated(&[]),
            "target residency of stop2", "the claim's example";
        hz: 250.0, 250.0..=250.0, "Hz", Calibrated(&[]), "the kernel's CONFIG_HZ", "the claim's 4 ms";
        burst_count: 16.0, 8.0..=64.0, "", Assumed,
            "interrupts of a burst", "the claim does not describe its load; menu remembers eight";
        burst_gap_us: 16.0, 10.0..=20.0, "us", Assumed,
            "time between a burst's interrupts", "between the residencies of stop0_lite and stop0; otherwise lite is not chosen";
        burst_jitter_us: 0.0, 0.0..=20.0, "us", Assumed,
            "random delay of each interrupt, up to", "the claim does not describe its load";
        quiet_ms: 1_500.0, 300.0..=3_000.0, "ms", Assumed,
            "time between two bursts", "\"more than even a second\"";
        stop1_latency_us: 5.0, 5.0..=5.0, "us", Documented, "exit latency of stop1", "skiboot's hw/slw.c";
        stop1_residency_us: 50.0, 50.0..=50.0, "us", Documented, "target residency of stop1", "skiboot's hw/slw.c";
        watchdog_ms: 4_000.0, 4_000.0..=4_000.0, "ms", Documented,
            "how often the soft lockup watchdog's timer expires", "kernel/watchdog.c";
        smt2_speed: 0.7, 0.6..=0.8, "", Assumed,
            "speed of each of two threads of a core, of one alone", "POWER9's usual SMT yield";
        smt4_speed: 0.45, 0.3..=0.5, "", Assumed,
            "speed of each of three or four threads", "POWER9's usual SMT yield";
        sibling_quiet_ms: 20.0, 5.0..=1_500.0, "ms", Assumed,
            "time between bursts while siblings compute", "long enough to be stuck";
        irq_us: 0.4, 0.2..=1.0, "us", Assumed,
            "interrupt entry and exit of the promotion timer", "on top of the state's exit";
    }
}

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

/// The study's figures. *Stopped* is without tick and without promotion, *kept* with the tick, *timer* with
/// promotion, *to stop1* and *to stop2* with promotion and without the states before.
#[derive(Clone, Debug)]
pub struct Headline {
    pub stopped: Escape,
    pub kept: Escape,
    pub timer: Escape,
    pub to_stop1: Escape,
    pub to_stop2: Escape,
    pub stopped_siblings: Siblings,
    pub kept_siblings: Siblings,
    pub timer_siblings: Siblings,
    /// The promotion timer's length, if stop0, stop1 or stop2 is the next state.
    pub timer_ns: u64,
    pub timer_to_stop1_ns: u64,
    pub timer_to_stop2_ns: u64,
    /// What one promotion costs: an exit and an interrupt.
    pub promotion_cost_ns: u64,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub inputs: Inputs,
    pub headline: Headline,
    pub machine: Machine,
    /// With promotion, by the time between a burst's interrupts.
    pub by_governor_and_gap_ns: Sweep<&'static str, Sweep<u64, Escape>>,
    /// Each of a burst's gaps is longer by up to so much.
    pub by_jitter_ns: Sweep<u64, KeptOrTimer>,
}

fn without_promotion(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    for state in &mut machine.states {
        state.flags.retain(|flag| *flag != Flag::AutoPromote);
    }
    machine
}

/// The claim's machine. Its patch names stop1 but gives no figures.
fn machine(shelf: &Shelf<'_>, inputs: &Inputs) -> Result<Machine> {
    let mut machine = shelf.machine("power9-stop0lite")?;
    let (stop0, stop2) = (machine.state_index("stop0")?, machine.state_index("stop2")?);
    for (index, latency_us, residency_us) in [
        (stop0, inputs.stop0_latency_us, inputs.stop0_residency_us),
        (stop2, inputs.stop2_latency_us, inputs.stop2_residency_us),
    ] {
        machine.states[index].exit_latency_ns = us_ns(latency_us);
        machine.states[index].target_residency_ns = us_ns(residency_us);
    }
    let (latency_ns, residency_ns) =
        (us_ns(inputs.stop1_latency_us), us_ns(inputs.stop1_residency_us));
    let mut stop1 = MachineState::new("stop1", latency_ns, residency_ns);
    stop1.flags.clone_from(&machine.states[stop2].flags);
    machine.states.insert(stop2, stop1);
    Ok(machine)
}

/// The study's runs.
struct Model<'a> {
    shelf: &'a Shelf<'a>,
    inputs: Inputs,
    machine: Machine,
    /// Without promotion.
    plain: Machine,
}

impl<'a> Model<'a> {
    fn new(shelf: &'a Shelf<'a>, inputs: Inputs) -> Result<Self> {
        let machine = machine(shelf, &inputs)?;
        let plain = without_promotion(&machine);
        Ok(Model { shelf, inputs, machine, plain })
    }

    fn bursts(&self) -> BurstThenIdle {
        BurstThenIdle {
            burst_count: self.inputs.burst_count as u64,
            burst_gap_ns: us_ns(self.inputs.burst_gap_us),
            burst_jitter_ns: us_ns(self.inputs.burst_jitter_us),
            quiet_ns: ms_ns(self.inputs.quiet_ms),
            ..BurstThenIdle::default()
        }
    }

    fn trial<'b>(&'b self, machine: &'b Machine, governor: &'b str) -> Trial<'b> {
        let mut trial = Trial::new(self.shelf, machine, governor, self.bursts());
        trial.hardware = Hardware {
            core_count: 1,
            thread_count: 4,
            hz: self.inputs.hz as u64,
            housekeeping_ns: Some(ms_ns(self.inputs.watchdog_ms)),
            smt2_speed: self.inputs.smt2_speed,
            smt4_speed: self.inputs.smt4_speed,
            irq_entry_ns: us_ns(self.inputs.irq_us),
            ..trial.hardware
        };
        // Pauses are an eighth longer at most.
        trial.duration_ns = self.bursts().quiet_ns * 17 / 16 * BURST_COUNT;
        trial
    }

    fn kept(&self) -> Trial<'_> {
        self.trial(&self.plain, GOVERNOR)
    }

    fn stopped(&self) -> Trial<'_> {
        Trial { stops_tick: true, ..self.kept() }
    }

    fn timer(&self) -> Trial<'_> {
        self.trial(&self.machine, GOVERNOR)
    }

    /// The states that are disabled, so that the next one after stop0_lite is this one.
    fn disabled_before(&self, next: &str) -> Result<DisabledMask> {
        let (lite, next) =
            (self.machine.state_index("stop0_lite")?, self.machine.state_index(next)?);
        Ok((lite + 1..next).fold(self.machine.disabled_by_default(), DisabledMask::with))
    }

    fn to(&self, next: &str) -> Result<Escape> {
        let trial = Trial { disabled: self.disabled_before(next)?, ..self.timer() };
        escape(&trial, self.bursts())
    }

    fn timer_ns(&self, next: &str) -> Result<u64> {
        let lite = self.machine.state_index("stop0_lite")?;
        let disabled = self.disabled_before(next)?;
        let delay_ns = auto_promotion_delay_ns(&self.machine.table()?, disabled, lite);
        delay_ns.ok_or(StudyError::Nothing("promotion timers"))
    }

    fn siblings(&self, trial: &Trial<'_>) -> Result<Siblings> {
        let computed = |sibling_count| -> Result<f64> {
            let quiet_ns = ms_ns(self.inputs.sibling_quiet_ms);
            let load = BurstThenIdle { sibling_count, quiet_ns, ..self.bursts() };
            let duration_ns = quiet_ns * BURST_COUNT;
            let trial = Trial { workload: load.into(), duration_ns, ..trial.clone() };
            Ok(trial.run()?.metrics.spans("computed_ns").map_or(0, Delays::count) as f64)
        };
        Ok(Siblings { one: computed(1)?, two: computed(2)?, three: computed(3)? })
    }
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

/// The study's figures for these inputs.
pub fn headline(shelf: &Shelf<'_>, changes: &Changes) -> Result<Headline> {
    let model = Model::new(shelf, Inputs::with(changes))?;
    let (stopped, kept, timer) = (model.stopped(), model.kept(), model.timer());
    let lite = model.machine.state_index("stop0_lite")?;
    Ok(Headline {
        stopped: escape(&stopped, model.bursts())?,
        kept: escape(&kept, model.bursts())?,
        timer: escape(&timer, model.bursts())?,
        to_stop1: model.to("stop1")?,
        to_stop2: model.to("stop2")?,
        stopped_siblings: model.siblings(&stopped)?,
        kept_siblings: model.siblings(&kept)?,
        timer_siblings: model.siblings(&timer)?,
        timer_ns: model.timer_ns("stop0")?,
        timer_to_stop1_ns: model.timer_ns("stop1")?,
        timer_to_stop2_ns: model.timer_ns("stop2")?,
        promotion_cost_ns: model.machine.states[lite].exit_latency_ns + us_ns(model.inputs.irq_us),
    })
}

/// Everything that the page shows.
pub fn run(shelf: &Shelf<'_>, changes: &Changes) -> Result<Findings> {
    let inputs = Inputs::with(changes);
    let model = Model::new(shelf, inputs)?;
    let with = |trial: &Trial<'_>, bursts: &BurstThenIdle| escape(trial, bursts.clone());
    Ok(Findings {
        headline: headline(shelf, changes)?,
        by_governor_and_gap_ns: sweep(GOVERNORS, |governor| {
            let trial = model.trial(&model.machine, governor);
            sweep([8.0, 10.0, 13.0, 16.0, 20.0, 22.0, 24.0].map(us_ns), |burst_gap_ns| {
                with(&trial, &BurstThenIdle { burst_gap_ns, ..model.bursts() })
            })
        })?,
        by_jitter_ns: sweep([0.0, 5.0, 20.0, 50.0, 100.0, 200.0].map(us_ns), |burst_jitter_ns| {
            let bursts = BurstThenIdle { burst_jitter_ns, ..model.bursts() };
            Ok(KeptOrTimer {
                kept: with(&model.kept(), &bursts)?,
                timer: with(&model.timer(), &bursts)?,
            })
        })?,
        inputs,
        machine: model.machine.clone(),
    })
}
