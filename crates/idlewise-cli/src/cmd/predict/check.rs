//! `--check`: what a measured run of the predicted setting says of the prediction.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use idlewise_host::Root;
use idlewise_host::settings::{Owner, Setting, apply};
use idlewise_report::predict::Measured;
use idlewise_sim::Machine;
use idlewise_sim::predict::{Arrivals, CausedWorkload, Costs, Outcome};
use idlewise_trace::RecordedMachine;
use idlewise_trace::causes::{Step, WorkloadMetadata};

use super::AskedRequest;
use super::played::{Played, steps};
use super::rows::Of;
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
    setting: &Changed<'_>,
    shown: &Asked<'_>,
) -> Result<Measured> {
    let log = input::workload(file, reading, &RecordedMachine::default())?;
    let failure =
        |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", file.display()));
    // The kernel has no options of a governor.
    let governor = setting.governor.split(':').next().unwrap_or_default();
    let other_setting = |is: &str| {
        failure(&format_args!("{is}; --check takes a recording of the predicted setting"))
    };
    match log.metadata.governor.as_deref() {
        Some(said) if said == governor => {}
        Some(said) => {
            let predicted = setting.governor;
            return Err(other_setting(&format!(
                "it was recorded under {said}, and {predicted} is predicted"
            )));
        }
        None => return Err(other_setting("it does not say its governor")),
    }
    let steps = steps(&log)?;
    let metadata = &log.metadata;
    let (cpu_count, measured_count) = (played.metadata.cpu_count, metadata.cpu_count);
    // One that was idle all the time is not seen.
    if cpu_count.min(measured_count) * 4 < cpu_count.max(measured_count) * 3 {
        return Err(other_setting(&format!("it has {measured_count} CPUs instead of {cpu_count}")));
    }
    let states = metadata.machine.as_ref().map_or(&[][..], |machine| &machine.states);
    let is_forbidden = |step: &&Step| {
        let state = step.idle_state.and_then(|state| states.get(usize::from(state)));
        state.is_some_and(|state| {
            let latency_us = state.idle().exit_latency_ns.div_ceil(1_000);
            setting.disabled.contains(&state.name)
                || setting.latency_limit_us.is_some_and(|limit_us| latency_us > u64::from(limit_us))
        })
    };
    let forbidden_count = steps.iter().filter(is_forbidden).count();
    if forbidden_count * 100 > steps.len() {
        return Err(other_setting(&format!(
            "{forbidden_count} of its {} steps found a CPU in a state that is predicted as off",
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
    let throughput = outcome.measured_throughput(&base, names);
    if !throughput.missing.is_empty() {
        return Err(failure(&format_args!(
            "{} did not run in it; --check takes a recording of the same workload",
            throughput.missing.join(", ")
        )));
    }
    let waited = |of: Of| (of.name().to_owned(), of.waited(&outcome));
    Ok(Measured {
        throughput,
        waited: shown.of(&workload, &|task| name(metadata, task)).into_iter().map(waited).collect(),
    })
}

/// The predicted setting.
pub(super) struct Changed<'a> {
    pub governor: &'a str,
    pub disabled: &'a [String],
    pub latency_limit_us: Option<u32>,
}

/// The tasks and requests that were asked for by name.
pub(super) struct Asked<'a> {
    pub tasks: &'a [String],
    pub requests: &'a [AskedRequest],
}

impl Asked<'_> {
    /// All tasks, and those of a recording that were asked for.
    fn of(&self, workload: &CausedWorkload, name: &dyn Fn(u32) -> String) -> Vec<Of> {
        let requests = self.requests.iter().map(|asked| {
            let (asks, answers) = asked.as_pair();
            let pairs =
                workload.requests(&|task| name(task) == asks, &|task| name(task) == answers);
            Of::Requests(asked.to_string(), pairs)
        });
        let names: BTreeSet<&String> = self.tasks.iter().collect();
        let tasks = names.into_iter().map(|asked| {
            let ids = (0..workload.task_count() as u32).filter(|&task| name(task) == *asked);
            Of::Tasks(asked.clone(), ids.collect())
        });
        std::iter::once(Of::All).chain(requests).chain(tasks).collect()
    }
}
