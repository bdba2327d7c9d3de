//! A machine. `machines/README.md` explains every field of the files. Unknown fields are
//! errors, so that typing mistakes are found.

use idlewise_core::{DisabledMask, IdleState, StateIndex, StateTable};
use serde::{Deserialize, Serialize};

use crate::MachineError;
use crate::figure::{Basis, Power, PowerFigure};
use crate::number::{is_absent, milliwatts, milliwatts_range};
use crate::power::{running_power, state_powers};
use crate::state::{DomainState, MachineState, table_fault};
use crate::words::{Arch, Flag};

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

impl Machine {
    /// Creates a machine of which nothing else is known yet.
    pub fn new(id: &str, title: &str, arch: Arch, source: &str) -> Self {
        Machine {
            id: id.to_owned(),
            title: title.to_owned(),
            arch,
            source: source.to_owned(),
            ..Machine::default()
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
            let exits = state.exit_figure().map(|figure| figure.basis().as_str().to_owned());
            MachineState {
                exit_percentiles_us: state.exit_percentiles_us.clone(),
                exit_source: exits.as_ref().map(|_| SOURCE.to_owned()),
                exit_kind: exits,
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
