//! `--check`: what a measured run of the predicted setting says of the prediction.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use idlewise_host::Root;
use idlewise_host::settings::{Owner, Setting, apply};
use idlewise_report::predict::Measured;
use idlewise_sim::Machine;
use idlewise_sim::predict::{Arrivals, CausedWorkload, Costs, Outcome, Waited};
use idlewise_trace::RecordedMachine;
use idlewise_trace::causes::{Step, WorkloadMetadata};

use super::played::{Played, steps};
use crate::cmd::set::{holder, restore};
use crate::error::{Failure, Result};
use crate::input::{self, Reading};

/// The names of states that are given by names or numbers.
pub(super) fn state_names(of: &[String], machine: &Machine) -> Result<Vec<String>> {
    let name = |state: &String| {
        let index = machine.state_index(state).map_err(Failure::new)?;
        Ok(machine.states[index].name.clone())
    };
    of.iter().map(name).collect()
}

/// The settings as `idlewise set` has them, for a governor, states to disable and a limit.
pub(super) fn settings(
    governor: &str,
    disabled: &[String],
    limit_us: Option<u32>,
) -> Result<Vec<Setting>> {
    let mut texts = vec![format!("governor={governor}")];
    texts.extend(disabled.iter().map(|state| format!("{state}=off")));
    texts.extend(limit_us.map(|us| format!("latency={us}us")));
    texts.iter().map(|text| text.parse().map_err(Failure::new)).collect()
}

/// Records a command with causes under these settings, and restores those that were found.
pub(super) fn record(
    settings: &[Setting],
    command: &[OsString],
    file: &Path,
    force: bool,
) -> Result<()> {
    let root = Root::live();
    // If this process is killed, its holder restores the settings.
    let owner = Owner { holder: holder(), ..Owner::running("idlewise predict --check") };
    let applied = apply(&root, settings, &owner).map_err(Failure::new)?;
    let recorded = run_recorder(command, file, force);
    let restored = restore(applied, "--check");
    recorded.and(restored)
}

fn run_recorder(command: &[OsString], file: &Path, force: bool) -> Result<()> {
    let program = holder().ok_or_else(|| Failure::new("idlewise does not find its own program"))?;
    let mut recorder = Command::new(program);
    recorder.args(["record", "--causes", "-o"]).arg(file);
    if force {
        recorder.arg("--force");
    }
    // As in `idlewise try`, what the command prints is dropped: it would stand in the answer.
    recorder.arg("--").args(command).stdin(Stdio::null()).stdout(Stdio::null());
    let status = recorder.status()?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::new(format_args!(
            "--check: recording the command failed ({status}); the settings are as they were"
        ))),
    }
}

/// What a recording of the changed setting shows, beside the one that was predicted from.
pub(super) fn measured(
    played: &Played,
    file: &Path,
    reading: &Reading<'_>,
    governor: &str,
    disabled: &[String],
) -> Result<Measured> {
    let log = input::workload(file, reading, &RecordedMachine::default())?;
    let failure =
        |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", file.display()));
    if let Some(said) = log.metadata.governor.as_deref().filter(|said| *said != governor) {
        return Err(failure(&format_args!(
            "it was recorded under {said}, and {governor} is predicted; --check takes a recording of the predicted setting"
        )));
    }
    let steps = steps(&log)?;
    let metadata = &log.metadata;
    let states = metadata.machine.as_ref().map_or(&[][..], |machine| &machine.states);
    let is_disabled = |step: &&Step| {
        let state = step.idle_state.and_then(|state| states.get(usize::from(state)));
        state.is_some_and(|state| disabled.contains(&state.name))
    };
    let disabled_count = steps.iter().filter(is_disabled).count();
    if disabled_count * 100 > steps.len() {
        return Err(failure(&format_args!(
            "{disabled_count} of its {} steps found a CPU in a state that is predicted as off; --check takes a recording of \
             the predicted setting",
            steps.len()
        )));
    }
    let workload = CausedWorkload::new(metadata, &steps, Arrivals::Open, Costs::Recorded)
        .map_err(|error| failure(&error))?;
    let outcome = Outcome::recorded(&workload);
    let base = Outcome::recorded(&played.workload);
    let name = |of: &WorkloadMetadata, task: u32| {
        of.tasks.get(task as usize).map_or_else(String::new, |task| task.name.clone())
    };
    let names: [&dyn Fn(u32) -> String; 2] =
        [&|task| name(metadata, task), &|task| name(&played.metadata, task)];
    Ok(Measured {
        throughput_change: outcome.measured_throughput_ratio(&base, names) - 1.0,
        waited: Waited::new(&outcome.waits(&|_| true)),
    })
}
