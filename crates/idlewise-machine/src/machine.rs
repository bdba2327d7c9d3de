//! A machine and its states. `machines/README.md` explains every field of the files. Unknown fields are
//! errors, so that typing mistakes are found.

use idlewise_core::{DisabledMask, IdleState, StateIndex, StateTable};
use serde::{Deserialize, Serialize};

use crate::check::{microseconds, milliwatts, milliwatts_range, table_fault};
use crate::power::{running_power, state_powers};
use crate::{
    Arch, Basis, Coordination, Flag, MachineError, Power, PowerFigure, Scope, UmwaitState,
};

/// A machine, or one kind of core of a machine that has several.
///
/// ```
/// use idlewise_machine::Machine;
///
/// let text = r#"
///     id = "toy"
///     title = "A machine with two states"
///     arch = "x86"
///     source = "invented"
///     [[states]]
///     name = "POLL"
///     exit_latency_us = 0
///     target_residency_us = 0
///     flags = ["polling"]
///     [[states]]
///     name = "C6"
///     exit_latency_us = 190
///     target_residency_us = 600
/// "#;
/// let machine = Machine::from_toml(text)?;
/// assert_eq!(machine.table()?.get(1).exit_latency_ns, 190_000);
/// assert_eq!(machine.powers()[1].mw, 100.0);
/// assert_eq!(machine.state_index("c6")?, 1);
/// # Ok::<(), idlewise_machine::MachineError>(())
/// ```
///
/// A machine that serde has read has the right fields, but is not checked yet: see [`Machine::check`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Machine {
    /// A short, unique name, as in `--machine NAME`. A bundled machine's file has the same name.
    pub id: String,
    /// A descriptive name.
    pub title: String,
    /// The instruction set family, which determines the default running power.
    pub arch: Arch,
    /// The maker.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub vendor: Option<String>,
    /// The model name that the CPU reports.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub model_name: Option<String>,
    /// CPU family number.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub family: Option<u32>,
    /// CPU model number.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub model: Option<u32>,
    /// CPU stepping number.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub stepping: Option<u32>,
    /// CPU models for which a kernel driver uses this table.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub cpu_models: Vec<String>,
    /// The machine that this kind of core belongs to.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub part_of: Option<String>,
    /// The kernel's idle driver.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub driver: Option<String>,
    /// The kernel that the states were read from.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub kernel: Option<String>,
    /// The id of the kernel's built-in table that this machine uses.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub kernel_table: Option<String>,
    /// The kind of source: captured, kernel table, device tree or paper.
    pub source: String,
    /// Where to look it up.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub source_ref: Option<String>,
    /// Facts about the table, in words.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub quirks: Vec<String>,
    /// The power of one core that runs instructions, if published; see [`Machine::running_power`].
    #[serde(default, skip_serializing_if = "is_absent", deserialize_with = "milliwatts")]
    pub running_power_mw: Option<f64>,
    /// Like [`MachineState::power_range_mw`], for a running core.
    #[serde(default, skip_serializing_if = "is_absent", deserialize_with = "milliwatts_range")]
    pub running_power_range_mw: Option<[f64; 2]>,
    /// Like [`MachineState::power_at_khz`], for a running core.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub running_power_at_khz: Option<u64>,
    /// Like [`MachineState::power_kind`], for a running core.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub running_power_kind: Option<String>,
    /// Like [`MachineState::power_source`], for a running core.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub running_power_source: Option<String>,
    /// Like [`MachineState::power_checked`], for a running core.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub running_power_checked: Option<bool>,
    /// Packages, cores and threads, as far as they are known.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub topology: Topology,
    /// The idle states, shallowest first. Empty for a machine that had no idle driver.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub states: Vec<MachineState>,
    /// States of the power domains above the core. The kernel does not offer them to a governor.
    #[serde(default, skip_serializing_if = "is_absent")]
    pub domain_states: Vec<DomainState>,
}

/// Whether a field is omitted when a machine is written.
fn is_absent<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Counts of a machine's parts; `None` means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// How many of them are on performance cores.
    pub p_thread_count: Option<u32>,
    /// How many of them are on efficiency cores.
    pub e_thread_count: Option<u32>,
    /// Threads per core, where division does not give it.
    pub threads_per_core: Option<u32>,
    /// Groups of CPUs that share a second-level cache.
    pub l2_domain_count: Option<u32>,
    /// CPUs in such a group, if all groups have the same size.
    pub threads_per_l2: Option<u32>,
    /// Groups of CPUs that share a third-level cache.
    pub l3_domain_count: Option<u32>,
}

/// One idle state of a machine. Times are in microseconds in files and in nanoseconds here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The power of one core in this state, if published; see [`Machine::powers`].
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

impl Machine {
    /// Creates a machine of which nothing else is known yet.
    pub fn new(id: &str, title: &str, arch: Arch, source: &str) -> Self {
        Machine {
            id: id.to_owned(),
            title: title.to_owned(),
            arch,
            vendor: None,
            model_name: None,
            family: None,
            model: None,
            stepping: None,
            cpu_models: Vec::new(),
            part_of: None,
            driver: None,
            kernel: None,
            kernel_table: None,
            source: source.to_owned(),
            source_ref: None,
            quirks: Vec::new(),
            running_power_mw: None,
            running_power_range_mw: None,
            running_power_at_khz: None,
            running_power_kind: None,
            running_power_source: None,
            running_power_checked: None,
            topology: Topology::default(),
            states: Vec::new(),
            domain_states: Vec::new(),
        }
    }

    /// Returns the states as a governor sees them.
    ///
    /// # Errors
    /// [`MachineError::NoStates`] if the machine has none; [`MachineError::Invalid`] if a caller changed
    /// `states` so that they do not make a valid table.
    pub fn table(&self) -> Result<StateTable, MachineError> {
        if self.states.is_empty() {
            return Err(MachineError::NoStates { id: self.id.clone() });
        }
        let states: Vec<IdleState> = self.states.iter().map(MachineState::idle).collect();
        StateTable::new(&states).map_err(|error| MachineError::Invalid {
            line: None,
            message: table_fault(&self.states, error),
        })
    }

    /// Returns the states that CPUs share, as far as they can be replayed: those with a scope.
    pub fn shared_states(&self) -> impl Iterator<Item = &DomainState> {
        self.domain_states.iter().filter(|state| state.scope.is_some())
    }

    /// Returns the exit latency of each state.
    pub fn exit_latencies_ns(&self) -> Vec<u64> {
        self.states.iter().map(|state| state.exit_latency_ns).collect()
    }

    /// Returns the states that are disabled unless somebody enables them.
    pub fn disabled_by_default(&self) -> DisabledMask {
        let disabled =
            self.states.iter().enumerate().filter(|(_, state)| state.is_disabled_by_default);
        disabled.fold(DisabledMask::NONE, |mask, (index, _)| mask.with(index))
    }

    /// Returns the published power of a running core.
    pub fn running_power_figure(&self) -> Option<PowerFigure<'_>> {
        Some(PowerFigure {
            mw: self.running_power_mw?,
            kind: self.running_power_kind.as_deref(),
            source: self.running_power_source.as_deref(),
            at_khz: self.running_power_at_khz,
            range_mw: self.running_power_range_mw,
            is_checked: self.running_power_checked.unwrap_or(true),
        })
    }

    /// Returns the power of one core that runs instructions: the published one, or else the default for its
    /// [`Arch`].
    pub fn running_power(&self) -> Power {
        running_power(self.arch, self.running_power_figure())
    }

    /// Returns the power of one core in each state: the published ones, or else the default shape's.
    pub fn powers(&self) -> Vec<Power> {
        state_powers(self.running_power(), &self.states)
    }

    /// Returns the basis of the machine's powers: the weakest among its states.
    pub fn power_basis(&self) -> Basis {
        Basis::weakest(self.powers().iter().map(|power| power.basis))
            .unwrap_or(self.running_power().basis)
    }

    /// Finds a state by name (exact case first, then ignoring case) or by index number.
    ///
    /// # Errors
    /// [`MachineError::UnknownState`] and [`MachineError::AmbiguousState`]. Both list the possibilities.
    pub fn state_index(&self, asked: &str) -> Result<StateIndex, MachineError> {
        let with_name = |same: &dyn Fn(&str) -> bool| -> Vec<StateIndex> {
            let states = self.states.iter().enumerate();
            states.filter(|(_, state)| same(&state.name)).map(|(index, _)| index).collect()
        };
        let mut indices = with_name(&|name| name == asked);
        if indices.is_empty() {
            indices = with_name(&|name| name.eq_ignore_ascii_case(asked));
        }
        if indices.is_empty()
            && let Ok(index) = asked.parse::<StateIndex>()
            && index < self.states.len()
        {
            indices.push(index);
        }
        let (machine, asked) = (self.id.clone(), asked.to_owned());
        match indices[..] {
            [index] => Ok(index),
            [] => {
                let names = self.states.iter().map(|state| state.name.clone()).collect();
                Err(MachineError::UnknownState { machine, asked, names })
            }
            _ => Err(MachineError::AmbiguousState { machine, asked, indices }),
        }
    }

    /// Makes a state auto-promoted, like the flag `auto-promote` of a machine file: on entry, a timer starts
    /// that ends the stay in favour of the next deeper state that is not `disabled`. Returns its index.
    ///
    /// # Errors
    /// As [`Machine::state_index`], and [`MachineError::CannotPromote`] if the timer would never start or
    /// could do nothing.
    pub fn auto_promote(
        &mut self,
        asked: &str,
        disabled: DisabledMask,
    ) -> Result<StateIndex, MachineError> {
        let index = self.state_index(asked)?;
        let obstacle = |index: StateIndex| self.promotion_obstacle(index, disabled);
        if let Some(reason) = obstacle(index) {
            let possible = (0..self.states.len()).filter(|&index| obstacle(index).is_none());
            return Err(MachineError::CannotPromote {
                machine: self.id.clone(),
                state: self.state_label(index),
                reason,
                names: possible.map(|index| self.state_label(index)).collect(),
            });
        }
        let flags = &mut self.states[index].flags;
        if !flags.contains(&Flag::AutoPromote) {
            flags.push(Flag::AutoPromote);
        }
        Ok(index)
    }

    /// Makes all states stay until something else ends them.
    pub fn without_auto_promotion(mut self) -> Self {
        for state in &mut self.states {
            state.flags.retain(|flag| *flag != Flag::AutoPromote);
        }
        self
    }

    /// Why a state cannot be promoted, if it cannot.
    fn promotion_obstacle(
        &self,
        index: StateIndex,
        disabled: DisabledMask,
    ) -> Option<&'static str> {
        if disabled.contains(index) {
            return Some("it is disabled, so no CPU enters it");
        }
        if self.states[index].idle().is_polling {
            return Some(match self.arch {
                Arch::Power => {
                    "its polling loop ends by itself (the kernel's snooze timeout), without a timer"
                }
                _ => "it polls, and polling has a limit of its own",
            });
        }
        let has_deeper = (index + 1..self.states.len()).any(|deeper| !disabled.contains(deeper));
        (!has_deeper).then_some("no deeper state is enabled")
    }

    /// Returns the state's name, with its index if another state has the same name.
    ///
    /// # Panics
    /// If there is no such state.
    pub fn state_label(&self, index: StateIndex) -> String {
        let name = &self.states[index].name;
        let is_unique = self.states.iter().filter(|state| state.name == *name).count() == 1;
        if is_unique { name.clone() } else { format!("{name} (state {index})") }
    }

    /// Returns a machine with the same idle states and powers, but nothing that identifies it: names, CPU
    /// model, topology, driver, sources and quirks are removed. Replays on it give the same numbers.
    pub fn anonymous(&self) -> Self {
        const SOURCE: &str = "anonymized";
        // A figure's source is removed. Its basis still shows that there was one.
        let known = |figure: Option<PowerFigure<'_>>| match figure {
            Some(figure) => {
                let kind = figure.basis().as_str().to_owned();
                (Some(figure.mw), Some(kind), Some(SOURCE.to_owned()))
            }
            None => (None, None, None),
        };
        let mut machine = Machine::new("anonymous", "Anonymous machine", self.arch, SOURCE);
        (machine.running_power_mw, machine.running_power_kind, machine.running_power_source) =
            known(self.running_power_figure());
        let states = self.states.iter().map(|state| {
            let (power_mw, power_kind, power_source) = known(state.power_figure());
            MachineState {
                flags: state.flags.clone(),
                mwait_hint: state.mwait_hint.clone(),
                umwait_state: state.umwait_state,
                is_disabled_by_default: state.is_disabled_by_default,
                power_mw,
                power_kind,
                power_source,
                ..MachineState::new(&state.name, state.exit_latency_ns, state.target_residency_ns)
            }
        });
        machine.states = states.collect();
        machine.domain_states = self
            .shared_states()
            .map(|state| {
                let (power_mw, power_kind, power_source) = known(state.power_figure());
                DomainState {
                    desc: None,
                    flags: Vec::new(),
                    inferred: Vec::new(),
                    power_mw,
                    power_kind,
                    power_source,
                    power_checked: None,
                    ..state.clone()
                }
            })
            .collect();
        machine
    }
}

impl MachineState {
    /// Creates a state of which nothing else is known yet.
    pub fn new(name: &str, exit_latency_ns: u64, target_residency_ns: u64) -> Self {
        MachineState {
            name: name.to_owned(),
            desc: None,
            exit_latency_ns,
            target_residency_ns,
            inferred: Vec::new(),
            flags: Vec::new(),
            mwait_hint: None,
            umwait_state: None,
            io_port: None,
            is_disabled_by_default: false,
            power_mw: None,
            power_range_mw: None,
            power_at_khz: None,
            power_kind: None,
            power_source: None,
            power_checked: None,
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
