//! A machine prepared for replay, and the defaults of machines and HZ.

use crate::bundle::Sums;
use idlewise_core::{DisabledMask, NO_LATENCY_LIMIT_NS, StateTable, tick_period_ns};
use idlewise_linux::{resolve, resolve_for};
use idlewise_report::mail::listed;
pub use idlewise_report::replay::RECORDED;
use idlewise_report::shown_in_line;
use idlewise_report::verdict::InUse;
use idlewise_sim::replay::{DEFAULT_TICK_WORK_NS, Setting};
use idlewise_sim::{CostModel, Machine, SharedStates};
use idlewise_trace::Driver;
use idlewise_trace::log::LogMetadata;

use crate::bundled;
use crate::error::{Failure, Result};
use crate::input::NamedLog;
use crate::roster::Choice;

/// The machines of recordings that do not say their own: a server from each x86 vendor.
pub const MACHINES_DEFAULT: [&str; 2] = ["spr", "milan"];
/// The default HZ if the log has none: Debian's.
pub const HZ_DEFAULT: u32 = 250;

/// What a replay depends on besides log, machine and governor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// The tick's frequency; `None`: the recording's.
    pub hz: Option<u32>,
    /// The longest exit latency that is allowed.
    pub latency_limit_us: Option<u32>,
    /// How long a CPU runs for a tick.
    pub tick_work_ns: u64,
}

impl Default for Conditions {
    fn default() -> Self {
        Conditions { hz: None, latency_limit_us: None, tick_work_ns: DEFAULT_TICK_WORK_NS }
    }
}

impl Conditions {
    /// The tick's frequency on a log.
    pub fn hz_of(&self, log: &LogMetadata) -> u32 {
        self.hz.or(log.hz).unwrap_or(HZ_DEFAULT)
    }

    /// The limit as governors see it.
    pub fn latency_limit_ns(&self) -> i64 {
        self.latency_limit_us.map_or(NO_LATENCY_LIMIT_NS, |us| i64::from(us) * 1_000)
    }
}

/// The name of the sum of all logs. No log can have it.
pub const ALL_LOGS: &str = "all";

/// A machine prepared for replay.
#[derive(Clone)]
pub struct ReplayTarget {
    /// The machine.
    pub machine: Machine,
    /// Its states.
    pub states: StateTable,
    /// Their names.
    pub state_names: Vec<String>,
    /// Those that are disabled.
    pub disabled: DisabledMask,
    /// What they cost.
    pub costs: CostModel,
    /// The hash of all fields of the machine.
    pub sha256: String,
    /// The states that its CPUs share. Only `replay` and `log export` replay them.
    pub shared: SharedStates,
    /// The indices of the logs that are replayed on it; `None`: all.
    pub logs: Option<Vec<usize>>,
}

impl ReplayTarget {
    /// Prepares a machine: disables states, and promotes states with a timer, by name or index.
    ///
    /// # Errors
    /// Fails if the machine cannot be replayed, lacks a state, or has none left.
    pub fn new(machine: Machine, disable: &[String], promote: &[String]) -> Result<Self> {
        let mut shared = SharedStates::of(&machine).map_err(Failure::new)?;
        let own = disable.iter().filter(|state| !shared.disable(state));
        let disabled = disabled(&machine, own)?;
        let machine = promoted(machine, promote, disabled)?;
        let states = machine.table().map_err(Failure::new)?;
        let costs = CostModel::of(&machine).map_err(Failure::new)?;
        let state_names = machine.states.iter().map(|state| state.name.clone()).collect();
        let fields = serde_json::to_string(&machine).expect("keys are strings");
        let sha256 = Sums::of(fields.as_bytes());
        Ok(ReplayTarget {
            machine,
            states,
            state_names,
            disabled,
            costs,
            sha256,
            shared,
            logs: None,
        })
    }

    /// Whether the log with this index is replayed on it.
    pub fn is_for(&self, log: usize) -> bool {
        self.logs.as_ref().is_none_or(|logs| logs.contains(&log))
    }

    /// What a replay on it depends on, for a log.
    pub fn setting(&self, conditions: Conditions, log: &LogMetadata) -> Setting {
        Setting {
            exits_ns: self.costs.exits().means_ns(),
            disabled: self.disabled,
            latency_limit_ns: conditions.latency_limit_ns(),
            tick_work_ns: conditions.tick_work_ns,
            ..Setting::new(self.states, tick_period_ns(conditions.hz_of(log)))
        }
    }
}

/// Returns a machine's states that are disabled by default, and these, by name or index.
///
/// # Errors
/// Fails if the machine has no states, lacks one of them, or has none left.
pub fn disabled<'s>(
    machine: &Machine,
    states: impl IntoIterator<Item = &'s String>,
) -> Result<DisabledMask> {
    machine.table().map_err(Failure::new)?;
    let mut disabled = machine.disabled_by_default();
    for state in states {
        disabled = disabled.with(machine.state_index(state).map_err(Failure::new)?);
    }
    match (0..machine.states.len()).all(|index| disabled.contains(index)) {
        true => Err(Failure::new(format_args!(
            "{}: every state is disabled; leave at least one on",
            machine.id
        ))),
        false => Ok(disabled),
    }
}

/// Returns a machine on which these states, by name or index, are promoted by a timer.
///
/// # Errors
/// Fails if the machine lacks one of them, or has no deeper state for it.
pub fn promoted(
    mut machine: Machine,
    states: &[String],
    disabled: DisabledMask,
) -> Result<Machine> {
    for state in states {
        machine.auto_promote(state, disabled).map_err(|error| {
            Failure::new(format_args!("--promote {}: {error}", state.escape_debug()))
        })?;
    }
    Ok(machine)
}

/// Prepares the machines with these names, where no log is open that could have one.
///
/// # Errors
/// Fails if a name is unknown, or if a governor needs a state that a machine lacks.
pub fn targets(names: &[impl AsRef<str>], choices: &[Choice]) -> Result<Vec<ReplayTarget>> {
    let mut targets = Vec::new();
    for name in names {
        let machine = bundled::machine(name.as_ref())?;
        add(&mut targets, checked(ReplayTarget::new(machine, &[], &[])?, choices)?)?;
    }
    Ok(targets)
}

/// Adds a machine, unless it is there already: a file may have several paths.
fn add(targets: &mut Vec<ReplayTarget>, target: ReplayTarget) -> Result<()> {
    match targets.iter().find(|known| known.machine.id == target.machine.id) {
        None => targets.push(target),
        Some(known) if known.sha256 == target.sha256 => {}
        Some(_) => {
            return Err(Failure::new(format_args!(
                "two different machines are called {}; give one file another `id`",
                target.machine.id
            )));
        }
    }
    Ok(())
}

/// Checks that all governors can run on it.
fn checked(target: ReplayTarget, choices: &[Choice]) -> Result<ReplayTarget> {
    for choice in choices {
        choice.on(&target.machine)?;
    }
    Ok(target)
}

/// Returns the machine that a log itself has.
///
/// # Errors
/// Says what to do if the log has none, or none with idle states.
pub fn recorded_machine(name: &str, log: &LogMetadata) -> Result<Machine> {
    let machine = log.machine.clone().filter(|machine| !machine.states.is_empty());
    machine.ok_or_else(|| {
        let why = match log.driver {
            Some(Driver::Absent) => "comes from a kernel without an idle driver",
            _ => "does not say which idle states its machine has",
        };
        Failure::new(format_args!(
            "{name} {why}; instead of --machine recorded choose a machine (`idlewise machines` lists \
             them), or record again with `idlewise record`, which notes the states"
        ))
    })
}

/// Returns the machine that an option names, before a log is read; `None` for [`RECORDED`], too.
///
/// # Errors
/// Fails if there is no such machine.
pub fn named_machine(name: Option<&str>) -> Result<Option<Machine>> {
    name.filter(|_| !is_own_machine(name)).map(bundled::machine).transpose()
}

/// Whether an option leaves it at the recorded machine.
pub fn is_own_machine(name: Option<&str>) -> bool {
    name.is_none_or(|name| name == RECORDED)
}

/// Returns a log's own machine, if it has one.
///
/// # Errors
/// Says what to do if the option asks for it, and the log has none.
pub fn own_machine(asked: Option<&str>, name: &str, log: &LogMetadata) -> Result<Option<Machine>> {
    match asked {
        Some(RECORDED) => recorded_machine(name, log).map(Some),
        _ => Ok(log.machine.clone()),
    }
}

/// Returns the governor in use on the logs that are replayed on a machine: the recorded one where all of them say
/// the same, or else the kernel's default.
pub fn in_use(logs: &[NamedLog], target: Option<&ReplayTarget>) -> InUse {
    let is_on = |index| target.is_none_or(|target| target.is_for(index));
    let logs = logs.iter().enumerate().filter(|(index, _)| is_on(*index));
    let governor = |(_, named): (usize, &NamedLog)| {
        let metadata = &named.log.metadata;
        let name = metadata.governor.clone().filter(|_| metadata.driver != Some(Driver::Absent))?;
        let spec = metadata.kernel.as_deref().and_then(|kernel| resolve_for(&name, kernel));
        let spec = spec.or_else(|| resolve(&name));
        // A log that a replay wrote names the port.
        let (name, exact) = match spec {
            Some(spec) => (spec.name.to_owned(), spec.id.to_owned()),
            None => (name.clone(), name),
        };
        let is_named_port = resolve(&name).is_none_or(|spec| spec.id == exact);
        Some(InUse { name, exact, is_named_port, is_recorded: true })
    };
    let mut governors = logs.map(governor);
    let first = governors.next().flatten();
    first.filter(|first| governors.all(|it| it.as_ref() == Some(first))).unwrap_or_default()
}

/// The machines that a user asked for, before the logs are read.
pub struct AskedMachines<'a> {
    /// Those that have a name, and `None` for that of each recording.
    asked: Vec<Option<ReplayTarget>>,
    choices: &'a [Choice],
    disable: &'a [String],
    promote: &'a [String],
}

/// The machines of a replay.
pub struct Targets {
    /// Each with the logs that are replayed on it.
    pub targets: Vec<ReplayTarget>,
    /// Where nobody named a machine and recordings have none, what was taken instead.
    pub assumed: Option<String>,
}

impl<'a> AskedMachines<'a> {
    /// Prepares those that have names. Without any, it is the recorded machine.
    ///
    /// # Errors
    /// Fails if a name is unknown, or if a governor needs a state that a machine lacks.
    pub fn new(
        names: &[impl AsRef<str>],
        choices: &'a [Choice],
        disable: &'a [String],
        promote: &'a [String],
    ) -> Result<Self> {
        let mut asked = Self { asked: Vec::new(), choices, disable, promote };
        for name in names {
            let machine = match name.as_ref() {
                RECORDED => None,
                name => Some(asked.target(bundled::machine(name)?)?),
            };
            asked.asked.push(machine);
        }
        Ok(asked)
    }

    fn target(&self, machine: Machine) -> Result<ReplayTarget> {
        checked(ReplayTarget::new(machine, self.disable, self.promote)?, self.choices)
    }

    /// Returns what open logs are replayed on; see [`AskedMachines::on`].
    ///
    /// # Errors
    /// As there.
    pub fn on_logs(self, logs: &[NamedLog], usual: &[&str]) -> Result<Targets> {
        self.on(logs.iter().map(|named| (named.name.as_str(), &named.log.metadata)), usual)
    }

    /// Returns what logs are replayed on. Where nobody named a machine, those without one are replayed on the
    /// `usual` ones. Recordings of equal machines share one; if there are several, each bears the name of its
    /// first log.
    ///
    /// # Errors
    /// Fails if a log has no machine that was asked for, or if two machines have one name.
    pub fn on<'l>(
        self,
        logs: impl Iterator<Item = (&'l str, &'l LogMetadata)>,
        usual: &[&str],
    ) -> Result<Targets> {
        let is_asked = !self.asked.is_empty();
        let needs_logs = !is_asked || self.asked.iter().any(Option::is_none);
        let named: Vec<_> = if needs_logs { logs.collect() } else { Vec::new() };
        let mut without = Vec::new();
        let mut recorded = self.recorded(&named, &mut without)?;
        let mut targets: Vec<ReplayTarget> = Vec::new();
        let mut assumed = None;
        if !is_asked {
            targets.append(&mut recorded);
            if !without.is_empty() {
                assumed = Some(assumed_words(&without, named.len(), usual));
            }
            let logs: Vec<usize> = without.iter().map(|(index, _)| *index).collect();
            for id in usual.iter().filter(|_| !logs.is_empty()) {
                let target = self.target(bundled::machine(id)?)?;
                targets.push(ReplayTarget { logs: Some(logs.clone()), ..target });
            }
        }
        for target in self.asked {
            let more = target.map_or_else(|| std::mem::take(&mut recorded), |target| vec![target]);
            more.into_iter().try_for_each(|target| add(&mut targets, target))?;
        }
        Ok(Targets { targets, assumed })
    }

    /// Returns the machines that logs were recorded on. Logs that don't say theirs go to `without`.
    fn recorded<'l>(
        &self,
        logs: &[(&'l str, &LogMetadata)],
        without: &mut Vec<(usize, &'l str)>,
    ) -> Result<Vec<ReplayTarget>> {
        let mut recorded = Vec::<ReplayTarget>::new();
        for (index, &(name, log)) in logs.iter().enumerate() {
            let machine = match recorded_machine(name, log) {
                Ok(machine) => machine,
                Err(failure) if !self.asked.is_empty() => return Err(failure),
                Err(_) => {
                    without.push((index, name));
                    continue;
                }
            };
            let is_same = |known: &&mut ReplayTarget| {
                known.machine.title == machine.title
                    && known.machine.anonymous() == machine.anonymous()
            };
            match recorded.iter_mut().find(is_same).and_then(|known| known.logs.as_mut()) {
                Some(of_known) => of_known.push(index),
                None => {
                    let mut machine = machine;
                    machine.id = RECORDED.to_owned();
                    let target = self.target(machine)?;
                    recorded.push(ReplayTarget { logs: Some(vec![index]), ..target });
                }
            }
        }
        if recorded.len() > 1 {
            for target in &mut recorded {
                let first = target.logs.as_ref().map_or(0, |logs| logs[0]);
                target.machine.id = format!("{RECORDED}:{}", logs[first].0);
            }
        }
        Ok(recorded)
    }
}

/// Says which recordings have no idle states, and what was taken instead.
fn assumed_words(without: &[(usize, &str)], log_count: usize, usual: &[&str]) -> String {
    const NAME_COUNT_MAX: usize = 3;
    // A file may be called anything, and this is one line.
    let shown: Vec<_> = without.iter().map(|(_, name)| shown_in_line(name)).collect();
    let names: Vec<&str> = shown.iter().map(|name| &**name).collect();
    let (whose, are) = match names.len() {
        1 => (format!("{} has", names[0]), "its own, so it is"),
        2..=NAME_COUNT_MAX => (format!("{} have", listed(&names)), "their own, so they are"),
        all if all == log_count => (format!("The {all} recordings have"), "their own, so they are"),
        some => (format!("{some} of {log_count} recordings have"), "their own, so they are"),
    };
    format!(
        "{whose} no idle states of {are} replayed on {}; choose others with --machine (`idlewise \
         machines` lists them).",
        listed(usual)
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_has_several_paths_is_one_machine() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let text = include_str!("../../../machines/spr.toml");
        let [here, also, other] = ["a.toml", "./a.toml", "b.toml"].map(path);
        fs::write(&here, text).unwrap();
        fs::write(&other, text.replace("exit_latency_us = 290", "exit_latency_us = 291")).unwrap();
        let found = targets(&["spr", &here, &also, "milan"], &[]).unwrap();
        assert_eq!(found.iter().map(|it| &*it.machine.id).collect::<Vec<_>>(), ["spr", "milan"]);
        let failure =
            targets(&[here, other], &[]).err().map(|failure| format!("{failure:?}")).unwrap();
        assert!(failure.contains("two different machines are called spr"), "{failure}");
    }
    #[test]
    fn a_recordings_name_stays_in_its_line() {
        let said = assumed_words(&[(0, "x\ny")], 1, &["spr"]);
        assert!(said.starts_with("x\u{240a}y has no idle states of its own"), "{said}");
    }
}
