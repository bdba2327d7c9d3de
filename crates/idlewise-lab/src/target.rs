//! A machine prepared for replay, and the defaults of machines and HZ.

use crate::bundle::Sums;
use idlewise_core::{DisabledMask, NO_LATENCY_LIMIT_NS, StateTable, tick_period_ns};
use idlewise_sim::replay::{DEFAULT_TICK_WORK_NS, Setting};
use idlewise_sim::{CostModel, Machine, SharedStates};
use idlewise_trace::log::LogMetadata;

use crate::bundled;
use crate::error::{Failure, Result};
use crate::roster::Choice;

/// The default machines: a server from each x86 vendor.
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
    /// The states that its CPUs share. Only `replay` and `export` replay them.
    pub shared: SharedStates,
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
        Ok(ReplayTarget { machine, states, state_names, disabled, costs, sha256, shared })
    }

    /// What a replay on it depends on, for a log.
    pub fn setting(&self, conditions: Conditions, log: &LogMetadata) -> Setting {
        Setting {
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

/// Prepares the machines with these names, and checks that all governors can run on them.
///
/// # Errors
/// Fails if a name is unknown, or if a governor needs a state that a machine lacks.
pub fn targets(
    names: &[impl AsRef<str>],
    choices: &[Choice],
    disable: &[String],
    promote: &[String],
) -> Result<Vec<ReplayTarget>> {
    let target =
        |name: &_| ReplayTarget::new(bundled::machine(AsRef::as_ref(name))?, disable, promote);
    let targets: Vec<ReplayTarget> = names.iter().map(target).collect::<Result<_>>()?;
    for target in &targets {
        for choice in choices {
            choice.on(&target.machine)?;
        }
    }
    Ok(targets)
}
