//! A recording with causes, ready to be played under any setting.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use idlewise_core::{DisabledMask, NO_LATENCY_LIMIT_NS, tick_period_ns};
use idlewise_report::predict::{misses_text, reproduction_text};
use idlewise_sim::Machine;
use idlewise_sim::predict::{
    Arrivals, CausedWorkload, Costs, Outcome, PredictError, Reproduction, Standard, calibrate, play,
};
use idlewise_sim::simulate::Setup;
use idlewise_trace::RecordedMachine;
use idlewise_trace::causes::{Step, WorkloadLog, WorkloadMetadata};
use rayon::prelude::*;

use crate::error::{Failure, Result};
use crate::governors::Choice;

/// The speed under a power limit is looked for so often, until it changes by no more than this.
const SPEED_COUNT_MAX: usize = 8;
const SPEED_ERROR_MAX: f64 = 0.002;

/// What is played, and where.
pub(in crate::cmd) struct Setting<'a> {
    pub machine: &'a Machine,
    pub disabled: DisabledMask,
    pub latency_limit_ns: i64,
    /// Whether the recording shows the states' exit latencies.
    pub is_recorded_machine: bool,
    /// Whether to keep each gap, and how often the energy.
    pub keeps_gaps: bool,
    pub energy_every_ns: Option<u64>,
}

impl<'a> Setting<'a> {
    /// All states that are enabled by default, on the recorded machine.
    pub fn new(machine: &'a Machine) -> Self {
        Setting {
            machine,
            disabled: machine.disabled_by_default(),
            latency_limit_ns: NO_LATENCY_LIMIT_NS,
            is_recorded_machine: true,
            keeps_gaps: false,
            energy_every_ns: None,
        }
    }
}

/// Runs that differ in when ticks come.
#[derive(Clone, Copy)]
pub(in crate::cmd) struct Replicates {
    pub count: u64,
    pub seed: u64,
}

impl Replicates {
    const CALIBRATING_SEED: u64 = 1;
    /// On what it is decided whether a recording reproduces itself, unless the user asks for others.
    pub const DEFAULT: Replicates = Replicates { count: 5, seed: 1 };
}

/// A recording whose tasks can be played.
pub(in crate::cmd) struct Played {
    pub path: PathBuf,
    pub metadata: WorkloadMetadata,
    pub workload: Arc<CausedWorkload>,
    /// The machine that was recorded.
    pub machine: Machine,
    /// The governor that was in use, as the recording names it, and its port.
    pub governor: String,
    pub choice: Choice,
    /// How often CPUs need their next tick, which no event tells.
    tick_need: f64,
    /// The power that all CPUs share, if it is limited.
    budget: Option<Budget>,
}

/// A power limit, and how fast CPUs get that do not need theirs.
#[derive(Clone, Copy)]
pub(in crate::cmd) struct Budget {
    pub power_w: f64,
    pub turbo_ratio: f64,
}

/// All steps of a log.
pub(in crate::cmd) fn steps(log: &WorkloadLog) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    log.each_group(&mut |group| steps.extend_from_slice(group))?;
    Ok(steps)
}

impl Played {
    /// Takes a log's steps. What `recorded` says counts before what the log says.
    pub fn new(
        path: &Path,
        log: WorkloadLog,
        recorded: RecordedMachine,
        arrivals: Arrivals,
    ) -> Result<Self> {
        let steps = steps(&log)?;
        let mut metadata = log.metadata;
        metadata.machine = recorded.machine.or(metadata.machine);
        metadata.governor = recorded.governor.or(metadata.governor);
        let Some(machine) = metadata.machine.clone() else {
            return Err(Failure::new(format_args!(
                "{}: it does not say which idle states the machine has; name it with \
                 --recorded-machine",
                path.display()
            )));
        };
        let Some(governor) = metadata.governor.clone() else {
            return Err(Failure::new(format_args!(
                "{}: it does not say which governor was in use; name it with --recorded-governor",
                path.display()
            )));
        };
        let choice = Choice::of_kernel(&governor, metadata.kernel.as_deref())?;
        let workload = CausedWorkload::new(&metadata, &steps, arrivals, Costs::Recorded)
            .map_err(|error| failure(path, &error))?;
        let (path, workload) = (path.to_owned(), Arc::new(workload));
        let mut played = Played {
            path,
            metadata,
            workload,
            machine,
            governor,
            choice,
            tick_need: 0.0,
            budget: None,
        };
        played.tick_need =
            played.with_setup(&Setting::new(&played.machine), &played.choice, |setup| {
                let mut setup = setup();
                calibrate(&played.workload, &mut setup, Replicates::CALIBRATING_SEED)
            })?;
        Ok(played)
    }

    /// Lets CPUs share a power limit. Under the recorded setting they are then as fast as recorded, on average.
    pub fn share(&mut self, budget: Budget) -> Result<()> {
        self.budget = Some(budget);
        for _ in 0..SPEED_COUNT_MAX {
            let one = Replicates { count: 1, ..Replicates::DEFAULT };
            let runs = self.play(&Setting::new(&self.machine), &self.choice, one)?;
            let found = runs.first().and_then(Outcome::mean_speed).unwrap_or(1.0);
            if (found / self.workload.speed() - 1.0).abs() <= SPEED_ERROR_MAX {
                break;
            }
            Arc::get_mut(&mut self.workload).expect("no run has it now").set_speed(found);
        }
        Ok(())
    }

    /// Plays a setting; the runs are in the order of their seeds.
    pub fn play(
        &self,
        setting: &Setting<'_>,
        choice: &Choice,
        replicates: Replicates,
    ) -> Result<Vec<Outcome>> {
        self.play_each(setting, choice, replicates, &|outcome| outcome)
    }

    /// The same, and keeps of each run what `take` returns.
    pub fn play_each<T: Send>(
        &self,
        setting: &Setting<'_>,
        choice: &Choice,
        replicates: Replicates,
        take: &(dyn Fn(Outcome) -> T + Sync),
    ) -> Result<Vec<T>> {
        let Replicates { count, seed } = replicates;
        let seeds: Vec<u64> = (0..count).map(|n| seed.wrapping_add(n)).collect();
        self.with_setup(setting, choice, |setup| {
            let run = |seed| play(&self.workload, &mut setup(), seed).map(take);
            seeds.into_par_iter().map(run).collect()
        })
    }

    /// Calls `run` with what makes the machine of a setting.
    fn with_setup<T>(
        &self,
        setting: &Setting<'_>,
        choice: &Choice,
        run: impl for<'s> FnOnce(&'s (dyn Fn() -> Setup<'s> + Sync + 's)) -> Result<T, PredictError>,
    ) -> Result<T> {
        let machine = setting.machine;
        let (player, states) = (choice.on(machine)?, machine.table().map_err(Failure::new)?);
        let mut hardware = self.workload.hardware(machine);
        if let Some(Budget { power_w, turbo_ratio }) = self.budget {
            (hardware.tdp_mw, hardware.turbo_ratio) = (Some(1e3 * power_w), turbo_ratio);
        }
        let period_ns = tick_period_ns(hardware.hz as u32);
        let make = || player.governor(&states, period_ns).expect("the oracle was refused");
        let setup = || {
            let mut setup = Setup::new(machine, &make);
            setup.hardware = hardware.clone();
            setup.disabled = setting.disabled;
            setup.latency_limit_ns = setting.latency_limit_ns;
            setup.keeps_gaps = setting.keeps_gaps;
            setup.energy_every_ns = setting.energy_every_ns;
            setup.has_random_ticks = true;
            setup.tick_need = self.tick_need;
            if setting.is_recorded_machine {
                setup.exit_quantiles = self.workload.exit_quantiles(machine);
            }
            setup
        };
        run(&setup).map_err(|error| failure(&self.path, &error))
    }

    /// The recording, to compare runs with. Fails if there is nothing to compare.
    pub fn standard(&self) -> Result<Standard> {
        let standard = Standard::new(Outcome::recorded(&self.workload));
        let missing = match (standard.gap_count(), standard.wake_count()) {
            (0, _) => "its CPUs were never idle between two steps, so no idle state matters",
            (_, 0) => "it shows no wake-up of a task, so nothing waits for idle states",
            _ => return Ok(standard),
        };
        Err(Failure::new(format_args!(
            "{}: {missing}; there is nothing to predict",
            self.path.display()
        )))
    }

    /// Plays the recorded setting, and compares the runs with the recording.
    pub fn compared(&self, replicates: Replicates) -> Result<Reproduction> {
        let standard = self.standard()?;
        let setting = Setting::new(&self.machine);
        let compare = |run| standard.compare(&run);
        let runs = self.play_each(&setting, &self.choice, replicates, &compare)?;
        Ok(Reproduction::median(&runs))
    }

    /// The same, but fails if a figure is not near enough.
    pub fn reproduction(&self, replicates: Replicates) -> Result<Reproduction> {
        let reproduction = self.compared(replicates)?;
        match reproduction.misses().is_empty() {
            true => Ok(reproduction),
            false => Err(self.refusal(&reproduction)),
        }
    }

    /// Fails if nothing can be predicted: see [`Reproduction::vouches`].
    pub fn must_vouch(&self, reproduction: &Reproduction) -> Result<()> {
        match reproduction.vouches().middle {
            true => Ok(()),
            false => Err(self.refusal(reproduction)),
        }
    }

    fn refusal(&self, reproduction: &Reproduction) -> Failure {
        let consequence = match reproduction.vouches().middle {
            true => "not all figures can be predicted",
            false => "a prediction would mean nothing",
        };
        Failure::new(format_args!(
            "{}: it does not reproduce itself under {}, so {consequence}: {} (all: {}); record for longer or on a \
             quieter machine",
            self.path.display(),
            self.governor,
            misses_text(&reproduction.reasons()),
            reproduction_text(reproduction),
        ))
    }
}

fn failure(path: &Path, error: &PredictError) -> Failure {
    Failure::new(format_args!("{}: {error}", path.display()))
}
