//! The TOML form of a machine. `machines/README.md` explains every field; unknown ones are errors,
//! so that a typing mistake in a file is found.

use std::fmt;

use idlewise_core::{IdleState, StateTable, StateTableError};
use serde::de::{Deserializer, Error as _, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::simulate::nearest_key;

use super::power::{PowerFigure, PowerInput, running_power, state_powers};
use super::{DomainState, Machine, MachineError, MachineState};

/// Instruction set family of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arch {
    /// Intel and AMD.
    X86,
    /// Arm, 32 and 64 bit.
    Arm,
    /// IBM POWER.
    Power,
}

/// What a driver says that a state needs or does, mostly `CPUIDLE_FLAG_*` in
/// `include/linux/cpuidle.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Flag {
    /// Busy wait.
    Polling,
    /// A promotion timer is armed on entry.
    AutoPromote,
    /// The local timer stops; a wake-up source elsewhere is needed.
    TimerStop,
    /// The TLB is flushed.
    TlbFlushed,
    /// Offered even if the firmware does not list it.
    AlwaysEnable,
    /// Entered with interrupts enabled.
    IrqEnable,
    /// Indirect-branch restriction is lifted while idle.
    Ibrs,
    /// The extended register state is reset first.
    InitXstate,
    /// The firmware's list is compared by a part of the hint.
    PartialHintMatch,
    /// Never used unless somebody asks for it.
    Unusable,
    /// POWER: a stop state that keeps its context.
    StopFast,
    /// POWER: a stop state that loses its context.
    StopDeep,
}

impl Arch {
    /// The spelling in machine files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Arch::X86 => "x86",
            Arch::Arm => "arm",
            Arch::Power => "power",
        }
    }
}

impl Flag {
    /// The spelling in machine files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Flag::Polling => "polling",
            Flag::AutoPromote => "auto-promote",
            Flag::TimerStop => "timer-stop",
            Flag::TlbFlushed => "tlb-flushed",
            Flag::AlwaysEnable => "always-enable",
            Flag::IrqEnable => "irq-enable",
            Flag::Ibrs => "ibrs",
            Flag::InitXstate => "init-xstate",
            Flag::PartialHintMatch => "partial-hint-match",
            Flag::Unusable => "unusable",
            Flag::StopFast => "stop-fast",
            Flag::StopDeep => "stop-deep",
        }
    }
}

/// A state that UMWAIT and TPAUSE may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum UmwaitState {
    /// Shorter exit, saves less.
    #[serde(rename = "C0.1")]
    C01,
    /// Longer exit, saves more.
    #[serde(rename = "C0.2")]
    C02,
}

impl UmwaitState {
    /// The spelling in machine files.
    pub const fn as_str(self) -> &'static str {
        match self {
            UmwaitState::C01 => "C0.1",
            UmwaitState::C02 => "C0.2",
        }
    }
}

/// How many of what a machine has; none where unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Topology {
    /// Sockets.
    pub package_count: Option<u32>,
    /// Dies in all packages.
    pub die_count: Option<u32>,
    /// NUMA nodes.
    pub numa_node_count: Option<u32>,
    /// Cores in all packages.
    pub core_count: Option<u32>,
    /// Logical CPUs in all packages.
    pub thread_count: Option<u32>,
    /// Of these, on performance cores.
    pub p_thread_count: Option<u32>,
    /// Of these, on efficiency cores.
    pub e_thread_count: Option<u32>,
    /// Threads of one core, where it can't be had by division.
    pub threads_per_core: Option<u32>,
    /// Groups of CPUs that share a second-level cache.
    pub l2_domain_count: Option<u32>,
    /// CPUs in such a group, where all are of one size.
    pub threads_per_l2: Option<u32>,
    /// Groups of CPUs that share a third-level cache.
    pub l3_domain_count: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    id: Spanned<String>,
    title: String,
    arch: Arch,
    vendor: Option<String>,
    model_name: Option<String>,
    family: Option<u32>,
    model: Option<u32>,
    stepping: Option<u32>,
    #[serde(default)]
    cpu_models: Vec<String>,
    part_of: Option<String>,
    driver: Option<String>,
    kernel: Option<String>,
    kernel_table: Option<String>,
    source: String,
    source_ref: Option<String>,
    #[serde(default)]
    quirks: Vec<String>,
    running_power_mw: Option<Milliwatts>,
    running_power_range_mw: Option<[Milliwatts; 2]>,
    running_power_at_khz: Option<u64>,
    running_power_kind: Option<String>,
    running_power_source: Option<String>,
    running_power_checked: Option<bool>,
    #[serde(default)]
    topology: Topology,
    #[serde(default)]
    states: Vec<StateFile>,
    #[serde(default)]
    domain_states: Vec<DomainStateFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFile {
    name: Spanned<String>,
    desc: Option<String>,
    exit_latency_us: Microseconds,
    target_residency_us: Microseconds,
    #[serde(default)]
    inferred: Vec<String>,
    #[serde(default)]
    flags: Vec<Flag>,
    mwait_hint: Option<String>,
    umwait_state: Option<UmwaitState>,
    io_port: Option<String>,
    #[serde(default)]
    default_disabled: bool,
    power_mw: Option<Milliwatts>,
    power_range_mw: Option<[Milliwatts; 2]>,
    power_at_khz: Option<u64>,
    power_kind: Option<String>,
    power_source: Option<String>,
    power_checked: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DomainStateFile {
    name: String,
    desc: Option<String>,
    exit_latency_us: Microseconds,
    target_residency_us: Microseconds,
    #[serde(default)]
    flags: Vec<Flag>,
}

/// A time in the file's microseconds, held in nanoseconds.
struct Microseconds(u64);

/// A power, not negative.
struct Milliwatts(f64);

/// Far beyond the day that a state table allows, and small enough to be exact in nanoseconds.
const MICROSECONDS_MAX: f64 = 1e12;
/// A core of a megawatt. The mean of two powers of 1e200 would be infinite.
const MILLIWATTS_MAX: f64 = 1e9;

impl<'de> Deserialize<'de> for Microseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "microseconds as a number, at least 0, such as 290 or 0.5";
        let us = deserializer.deserialize_any(NumberVisitor(expected))?;
        if us > MICROSECONDS_MAX {
            return Err(D::Error::custom(format_args!("{us} us is too long: check the unit")));
        }
        // Exact: at most 1e15, and a fraction is rounded to the nearest nanosecond.
        Ok(Microseconds((us * 1000.0).round() as u64))
    }
}

impl<'de> Deserialize<'de> for Milliwatts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "milliwatts as a number, at least 0, such as 1440 or 1.92";
        let mw = deserializer.deserialize_any(NumberVisitor(expected))?;
        if mw > MILLIWATTS_MAX {
            return Err(D::Error::custom(format_args!("{mw} mW is too much: check the unit")));
        }
        Ok(Milliwatts(mw))
    }
}

/// Takes whole numbers and fractions alike; its message says what was expected.
struct NumberVisitor(&'static str);

impl Visitor<'_> for NumberVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<f64, E> {
        if value < 0 {
            return Err(E::invalid_value(Unexpected::Signed(value), &self));
        }
        Ok(value as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<f64, E> {
        Ok(value as f64)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<f64, E> {
        // False for NaN too.
        if value >= 0.0 && value.is_finite() {
            return Ok(value);
        }
        Err(E::invalid_value(Unexpected::Float(value), &self))
    }
}

/// Says what an unknown key or word was probably meant to be, instead of all that are known.
fn with_nearest(message: &str) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    let (Some((found, _)), Some(unknown)) = (message.split_once(", expected"), words.next()) else {
        return message.to_owned();
    };
    match nearest_key(unknown, words) {
        Some(nearest) if message.starts_with("unknown ") => {
            format!("{found}; did you mean `{nearest}`?")
        }
        _ => message.to_owned(),
    }
}

/// Reads and checks a whole machine.
pub(super) fn parse(text: &str) -> Result<Machine, MachineError> {
    let mut file: MachineFile = toml::from_str(text).map_err(|error| MachineError::Syntax {
        line: error.span().map(|span| line_of(text, span.start)),
        message: with_nearest(error.message()).replace('\n', ", "),
    })?;
    check_word(text, "id", &file.id)?;
    for state in &file.states {
        check_word(text, "state name", &state.name)?;
    }
    check_table(text, &file.states)?;

    let running_power_figure = figure(
        file.running_power_mw,
        file.running_power_range_mw,
        file.running_power_at_khz,
        file.running_power_kind,
        file.running_power_source,
        file.running_power_checked,
    )
    .map_err(|field| orphan(None, "running_power", field))?;
    let running_power = running_power(file.arch, running_power_figure.as_ref());

    let figures = file.states.iter_mut().map(|state| state.take_figure(text));
    let figures = figures.collect::<Result<Vec<_>, _>>()?;
    let inputs = file.states.iter().zip(&figures).map(|(state, figure)| PowerInput {
        idle: state.idle(),
        umwait_state: state.umwait_state,
        figure: figure.as_ref(),
    });
    let powers = state_powers(running_power, &inputs.collect::<Vec<_>>());
    let states =
        file.states.into_iter().zip(figures).zip(powers).map(|((state, power_figure), power)| {
            MachineState {
                idle: state.idle(),
                name: state.name.into_inner(),
                desc: state.desc,
                is_disabled_by_default: state.default_disabled,
                power,
                power_figure,
                flags: state.flags,
                mwait_hint: state.mwait_hint,
                umwait_state: state.umwait_state,
                io_port: state.io_port,
                inferred: state.inferred,
            }
        });

    let domain_states = file.domain_states.into_iter().map(|state| DomainState {
        name: state.name,
        desc: state.desc,
        exit_latency_ns: state.exit_latency_us.0,
        target_residency_ns: state.target_residency_us.0,
        flags: state.flags,
    });
    Ok(Machine {
        id: file.id.into_inner(),
        title: file.title,
        arch: file.arch,
        vendor: file.vendor,
        model_name: file.model_name,
        family: file.family,
        model: file.model,
        stepping: file.stepping,
        cpu_models: file.cpu_models,
        part_of: file.part_of,
        driver: file.driver,
        kernel: file.kernel,
        kernel_table: file.kernel_table,
        source: file.source,
        source_ref: file.source_ref,
        quirks: file.quirks,
        topology: file.topology,
        running_power,
        running_power_figure,
        states: states.collect(),
        domain_states: domain_states.collect(),
    })
}

impl StateFile {
    /// What a governor sees.
    fn idle(&self) -> IdleState {
        let is_polling = self.flags.contains(&Flag::Polling);
        IdleState {
            exit_latency_ns: self.exit_latency_us.0,
            target_residency_ns: self.target_residency_us.0,
            is_polling,
            wakes_on_store: is_polling || self.mwait_hint.is_some() || self.umwait_state.is_some(),
            is_auto_promoted: self.flags.contains(&Flag::AutoPromote),
        }
    }

    /// Moves the power and its source out.
    fn take_figure(&mut self, text: &str) -> Result<Option<PowerFigure>, MachineError> {
        figure(
            self.power_mw.take(),
            self.power_range_mw.take(),
            self.power_at_khz.take(),
            self.power_kind.take(),
            self.power_source.take(),
            self.power_checked.take(),
        )
        .map_err(|field| orphan(Some(line_of(text, self.name.span().start)), "power", field))
    }
}

/// A power figure, none if the file gives no power; the error is a field that then has no meaning.
fn figure(
    mw: Option<Milliwatts>,
    range_mw: Option<[Milliwatts; 2]>,
    at_khz: Option<u64>,
    kind: Option<String>,
    source: Option<String>,
    checked: Option<bool>,
) -> Result<Option<PowerFigure>, &'static str> {
    let Some(Milliwatts(mw)) = mw else {
        let fields = [
            (range_mw.is_some(), "range_mw"),
            (at_khz.is_some(), "at_khz"),
            (kind.is_some(), "kind"),
            (source.is_some(), "source"),
            (checked.is_some(), "checked"),
        ];
        return match fields.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, field)) => Err(field),
            None => Ok(None),
        };
    };
    let range_mw = range_mw.map(|range| range.map(|end| end.0));
    let is_checked = checked.unwrap_or(true);
    Ok(Some(PowerFigure { mw, kind, source, at_khz, range_mw, is_checked }))
}

fn orphan(line: Option<usize>, prefix: &str, field: &str) -> MachineError {
    MachineError::Syntax {
        line,
        message: format!("`{prefix}_{field}` without `{prefix}_mw`: give both or neither"),
    }
}

/// The longest id or state name; the kernel's have 16 characters at most (`CPUIDLE_NAME_LEN`).
const WORD_CHAR_COUNT_MAX: usize = 64;

/// Ids and state names are typed on command lines and printed in columns.
fn check_word(text: &str, what: &str, word: &Spanned<String>) -> Result<(), MachineError> {
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ',';
    let char_count = word.get_ref().chars().count();
    if char_count > WORD_CHAR_COUNT_MAX {
        return Err(MachineError::Syntax {
            line: Some(line_of(text, word.span().start)),
            message: format!(
                "{what} has {char_count} characters: shorten it to {WORD_CHAR_COUNT_MAX} at most"
            ),
        });
    }
    if char_count > 0 && !word.get_ref().contains(is_odd) {
        return Ok(());
    }
    Err(MachineError::Syntax {
        line: Some(line_of(text, word.span().start)),
        message: format!(
            "{what} {:?} is empty or has a space, a comma or a slash: use a word",
            word.get_ref()
        ),
    })
}

/// Checks the rules of [`StateTable`], so that the error can name a line.
fn check_table(text: &str, states: &[StateFile]) -> Result<(), MachineError> {
    if states.is_empty() {
        return Ok(());
    }
    let idle_states: Vec<IdleState> = states.iter().map(StateFile::idle).collect();
    let Err(error) = StateTable::new(&idle_states) else {
        return Ok(());
    };
    let index = match error {
        StateTableError::Unordered { index, .. }
        | StateTableError::LatePolling { index }
        | StateTableError::TooLong { index, .. } => Some(index),
        StateTableError::TooMany { .. } => Some(idlewise_core::STATE_COUNT_MAX),
        _ => None,
    };
    let name = index.and_then(|index| states.get(index)).map(|state| &state.name);
    Err(MachineError::InvalidTable {
        line: name.map(|name| line_of(text, name.span().start)),
        names: states.iter().map(|state| state.name.get_ref().clone()).collect(),
        error,
    })
}

/// The line that holds byte `offset`, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    let before = &text.as_bytes()[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
