//! A machine's idle states, and those of the domains above its cores.

use idlewise_core::{IdleState, StateIndex, StateTableError};
use serde::{Deserialize, Serialize};

use crate::figure::PowerFigure;
use crate::number::{is_absent, microseconds, milliwatts, milliwatts_range, percentiles};
use crate::words::{Coordination, Flag, Scope, UmwaitState};

/// One idle state of a machine. Times are in microseconds in files and in nanoseconds here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MachineState {
    /// Its name. A few machines have two states with the same name.
    pub name: String,
    /// The driver's description.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub desc: Option<String>,
    /// The declared worst-case time from the wake-up to the first instruction.
    #[serde(rename = "exit_latency_us", with = "microseconds")]
    pub exit_latency_ns: u64,
    /// The declared shortest stay that saves energy, including the time to enter.
    #[serde(rename = "target_residency_us", with = "microseconds")]
    pub target_residency_ns: u64,
    /// The names of fields whose figures the source does not state.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub inferred: Vec<String>,
    /// What the driver says the state needs or does.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub flags: Vec<Flag>,
    /// The MWAIT hint that requests it.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub mwait_hint: Option<String>,
    /// The UMWAIT state that requests it.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub umwait_state: Option<UmwaitState>,
    /// The I/O port whose reading requests it.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub io_port: Option<String>,
    /// Whether it is disabled unless somebody enables it.
    #[serde(default, skip_serializing_if = "is_absent", rename = "default_disabled")]
    pub is_disabled_by_default: bool,
    /// What leaving the state takes, if somebody measured it: pairs of percent and microseconds, both ascending. See
    /// [`MachineState::exit_times`].
    #[serde(default, skip_serializing_if = "is_absent", deserialize_with = "percentiles")]
    pub exit_percentiles_us: Vec<[f64; 2]>,
    /// How the source obtained these times: measured, published or paper.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub exit_kind: Option<String>,
    /// Where to look them up.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub exit_source: Option<String>,
    /// `false` if they are quoted second-hand, without anybody having checked the source.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub exit_checked: Option<bool>,
    /// The power of one core in this state, if published; see [`Machine::powers`](crate::Machine::powers).
    #[serde(default, skip_serializing_if = "is_absent", deserialize_with = "milliwatts")]
    pub power_mw: Option<f64>,
    /// The lowest and highest power over all frequencies.
    #[serde(default, skip_serializing_if = "is_absent", deserialize_with = "milliwatts_range")]
    pub power_range_mw: Option<[f64; 2]>,
    /// The frequency at which the power applies, if it depends on that.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub power_at_khz: Option<u64>,
    /// How the source obtained the power: measured, published fit, declared, paper or assumed.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub power_kind: Option<String>,
    /// Where to look it up.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub power_source: Option<String>,
    /// `false` if the power is quoted second-hand, without anybody having checked the source.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub power_checked: Option<bool>,
}

/// A state of a power domain above the core. With a [`DomainState::scope`] it is replayed: CPUs enter it
/// together, and the first to wake up leaves it for all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DomainState {
    /// Its name.
    pub name: String,
    /// The driver's description.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub desc: Option<String>,
    /// The declared worst-case time that leaving it adds to leaving the CPU's own state.
    #[serde(rename = "exit_latency_us", with = "microseconds")]
    pub exit_latency_ns: u64,
    /// The declared shortest stay that saves energy.
    #[serde(rename = "target_residency_us", with = "microseconds")]
    pub target_residency_ns: u64,
    /// The names of fields whose figures the source does not state.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub inferred: Vec<String>,
    /// What the driver says the state needs or does.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub flags: Vec<Flag>,
    /// The CPUs that share it; `None` if nobody entered that yet, so that it is not replayed.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub scope: Option<Scope>,
    /// Who decides that it is entered.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub coordination: Option<Coordination>,
    /// The name of the shallowest state that each of the CPUs must be in.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub requires: Option<String>,
    /// The power of what the CPUs share while it is in this state, if published.
    #[serde(default, skip_serializing_if = "is_absent", deserialize_with = "milliwatts")]
    pub power_mw: Option<f64>,
    /// The power of what the CPUs share while it is in no such state.
    #[serde(default, skip_serializing_if = "is_absent", deserialize_with = "milliwatts")]
    pub awake_power_mw: Option<f64>,
    /// Like [`MachineState::power_kind`], for both powers.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub power_kind: Option<String>,
    /// Where to look both up.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub power_source: Option<String>,
    /// Like [`MachineState::power_checked`], for both powers.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub power_checked: Option<bool>,
}

impl DomainState {
    /// Returns the power of what the CPUs share in this state, if published.
    pub fn power_figure(&self) -> Option<PowerFigure<'_>> {
        Some(PowerFigure {
            mw: self.power_mw?,
            kind: self.power_kind.as_deref(),
            source: self.power_source.as_deref(),
            at_khz: None,
            range_mw: None,
            is_checked: self.power_checked.unwrap_or(true),
        })
    }
}

impl MachineState {
    /// Creates a state of which nothing else is known yet.
    pub fn new(name: &str, exit_latency_ns: u64, target_residency_ns: u64) -> Self {
        MachineState {
            name: name.to_owned(),
            exit_latency_ns,
            target_residency_ns,
            ..MachineState::default()
        }
    }

    /// Returns the state as a governor sees it. A store ends a state that polls or monitors memory.
    pub fn idle(&self) -> IdleState {
        let is_polling = self.flags.contains(&Flag::Polling);
        IdleState {
            exit_latency_ns: self.exit_latency_ns,
            target_residency_ns: self.target_residency_ns,
            is_polling,
            wakes_on_store: is_polling || self.mwait_hint.is_some() || self.umwait_state.is_some(),
            is_auto_promoted: self.flags.contains(&Flag::AutoPromote),
        }
    }

    /// Returns the published power.
    pub fn power_figure(&self) -> Option<PowerFigure<'_>> {
        Some(PowerFigure {
            mw: self.power_mw?,
            kind: self.power_kind.as_deref(),
            source: self.power_source.as_deref(),
            at_khz: self.power_at_khz,
            range_mw: self.power_range_mw,
            is_checked: self.power_checked.unwrap_or(true),
        })
    }
}

/// The table's own message, but with names and microseconds as in the file.
pub(crate) fn table_fault(states: &[MachineState], error: StateTableError) -> String {
    let name = |index: StateIndex| states.get(index).map_or("?", |state| state.name.as_str());
    let us = |ns: u64| ns as f64 / 1e3;
    match error {
        StateTableError::Unordered { index, target_residency_ns, previous_ns } => format!(
            "state {index} ({}) has target residency {} us, below the {} us of {}: order states by \
             target residency",
            name(index),
            us(target_residency_ns),
            us(previous_ns),
            name(index - 1)
        ),
        StateTableError::LatePolling { index } => format!(
            "state {index} ({}) polls: only the first state may be a polling state",
            name(index)
        ),
        StateTableError::TooLong { index, time_ns } => format!(
            "state {index} ({}) declares {} us, more than a day: check the unit",
            name(index),
            us(time_ns)
        ),
        other => other.to_string(),
    }
}
