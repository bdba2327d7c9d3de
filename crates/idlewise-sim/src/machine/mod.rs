//! A machine: its idle states with names, powers and where every figure comes from.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Machine`], lookup of states, doubts |
//! | `file.rs` | the TOML form of a machine (`machines/README.md` is its manual) |
//! | `power.rs` | [`Basis`], [`Power`], and the default shape where nobody published a figure |
//! | `anonymous.rs` | a machine's file without what tells which machine it is |
//! | `error.rs` | [`MachineError`] |
//!
//! Opening files is the caller's: a machine is made from text.

mod anonymous;
mod error;
mod file;
mod power;

use std::fmt::Write as _;

use idlewise_core::{DisabledMask, IdleState, StateIndex, StateTable};

pub use error::MachineError;
pub use file::{Arch, Flag, Topology, UmwaitState};
pub use power::{Basis, Power, PowerFigure, RUNNING_POWER_ARM_MW, RUNNING_POWER_MW};

/// A machine, or one kind of core of a machine that mixes them.
///
/// ```
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
/// let machine = idlewise_sim::Machine::from_toml(text)?;
/// assert_eq!(machine.table()?.get(1).exit_latency_ns, 190_000);
/// assert_eq!(machine.states[1].power.mw, 100.0);
/// # Ok::<(), idlewise_sim::MachineError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Machine {
    /// Short unique name, as in `--machine NAME`; a bundled machine's file has the same name.
    pub id: String,
    /// Name for people.
    pub title: String,
    /// Instruction set family; it decides the default running power.
    pub arch: Arch,
    /// The maker.
    pub vendor: Option<String>,
    /// As the CPU reports itself.
    pub model_name: Option<String>,
    /// CPU family number.
    pub family: Option<u32>,
    /// CPU model number.
    pub model: Option<u32>,
    /// CPU stepping number.
    pub stepping: Option<u32>,
    /// CPU models that use this table of a kernel driver.
    pub cpu_models: Vec<String>,
    /// The whole that this kind of core belongs to.
    pub part_of: Option<String>,
    /// The kernel's idle driver.
    pub driver: Option<String>,
    /// The kernel that the states were read from.
    pub kernel: Option<String>,
    /// Id of the kernel's built-in table that this machine uses.
    pub kernel_table: Option<String>,
    /// What kind of source this is: captured, kernel table, device tree, paper.
    pub source: String,
    /// Where to look it up.
    pub source_ref: Option<String>,
    /// Facts about the table, in words.
    pub quirks: Vec<String>,
    /// Packages, cores and threads, as far as known.
    pub topology: Topology,
    /// Power of one core that runs instructions.
    pub running_power: Power,
    /// Where the running power comes from; none if it is the default of [`Arch`].
    pub running_power_figure: Option<PowerFigure>,
    /// The idle states, shallowest first. Empty for a machine that had no idle driver.
    pub states: Vec<MachineState>,
    /// States of the power domains above the core. The kernel does not offer them to a governor.
    pub domain_states: Vec<DomainState>,
}

/// One idle state of a machine.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MachineState {
    /// Its name; a few machines have two states of the same name.
    pub name: String,
    /// What the driver says about it.
    pub desc: Option<String>,
    /// What a governor sees.
    pub idle: IdleState,
    /// Off unless somebody turns it on.
    pub is_disabled_by_default: bool,
    /// Power of one core in this state.
    pub power: Power,
    /// Where the power comes from; none if it follows from the default shape.
    pub power_figure: Option<PowerFigure>,
    /// What the driver says it needs or does.
    pub flags: Vec<Flag>,
    /// The hint that MWAIT is given to ask for it.
    pub mwait_hint: Option<String>,
    /// The state that UMWAIT is asked for.
    pub umwait_state: Option<UmwaitState>,
    /// The I/O port that is read to ask for it.
    pub io_port: Option<String>,
    /// Figures that the source does not state, by field name.
    pub inferred: Vec<String>,
}

/// A state of a power domain above the core.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DomainState {
    /// Its name.
    pub name: String,
    /// What the driver says about it.
    pub desc: Option<String>,
    /// Worst case from the wake-up to the first instruction, as declared.
    pub exit_latency_ns: u64,
    /// Shortest stay that pays, as declared.
    pub target_residency_ns: u64,
    /// What the driver says it needs or does.
    pub flags: Vec<Flag>,
}

impl Machine {
    /// Reads a machine from the text of its file.
    ///
    /// # Errors
    /// A line that is not TOML, a field that is missing, unknown or of the wrong kind, or states
    /// that are not a table. A machine without states is no error here; see [`Machine::table`].
    pub fn from_toml(text: &str) -> Result<Self, MachineError> {
        file::parse(text)
    }

    /// The states as a governor sees them.
    ///
    /// # Errors
    /// [`MachineError::NoStates`] if the machine has none; [`MachineError::InvalidTable`] if a
    /// caller changed `states` into something that is no table.
    pub fn table(&self) -> Result<StateTable, MachineError> {
        if self.states.is_empty() {
            return Err(MachineError::NoStates { id: self.id.clone() });
        }
        let states: Vec<IdleState> = self.states.iter().map(|state| state.idle).collect();
        StateTable::new(&states).map_err(|error| MachineError::InvalidTable {
            line: None,
            names: self.states.iter().map(|state| state.name.clone()).collect(),
            error,
        })
    }

    /// The states that are off unless somebody turns them on.
    pub fn disabled_by_default(&self) -> DisabledMask {
        let disabled =
            self.states.iter().enumerate().filter(|(_, state)| state.is_disabled_by_default);
        disabled.fold(DisabledMask::NONE, |mask, (index, _)| mask.with(index))
    }

    /// The basis of the machine's powers: the weakest among its states.
    pub fn power_basis(&self) -> Basis {
        Basis::weakest(self.states.iter().map(|state| state.power.basis))
            .unwrap_or(self.running_power.basis)
    }

    /// Finds a state by name (as written, else ignoring case) or by index number.
    ///
    /// # Errors
    /// [`MachineError::UnknownState`] and [`MachineError::AmbiguousState`]; both list what there is.
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
        match indices[..] {
            [index] => Ok(index),
            [] => Err(MachineError::UnknownState {
                machine: self.id.clone(),
                asked: asked.to_owned(),
                names: self.states.iter().map(|state| state.name.clone()).collect(),
            }),
            _ => Err(MachineError::AmbiguousState {
                machine: self.id.clone(),
                asked: asked.to_owned(),
                indices,
            }),
        }
    }

    /// What is odd, assumed or unchecked about this machine, one sentence each. Every result that
    /// rests on the machine shows them.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = self.table_doubts();
        doubts.extend(self.inference_doubts());
        doubts.extend(self.power_doubts());
        doubts
    }

    /// The state's name, with its index where another state has the same.
    ///
    /// # Panics
    /// If there is no such state.
    pub fn state_label(&self, index: StateIndex) -> String {
        let name = &self.states[index].name;
        let is_unique = self.states.iter().filter(|state| state.name == *name).count() == 1;
        if is_unique { name.clone() } else { format!("{name} (state {index})") }
    }

    fn table_doubts(&self) -> Vec<String> {
        let Ok(table) = self.table() else {
            return vec!["no idle states: it cannot be replayed on".to_owned()];
        };
        table
            .doubts()
            .map(|doubt| format!("{}: {doubt}", self.state_label(doubt.index())))
            .collect()
    }

    fn inference_doubts(&self) -> impl Iterator<Item = String> + '_ {
        self.states.iter().filter(|state| !state.inferred.is_empty()).map(|state| {
            format!(
                "{}: inferred, not stated by the source: {}",
                state.name,
                state.inferred.join(", ")
            )
        })
    }

    fn power_doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let running_mw = self.running_power.mw;
        let names = |wanted: &dyn Fn(&MachineState) -> bool| -> String {
            let mut list = String::new();
            for (index, _) in self.states.iter().enumerate().filter(|(_, state)| wanted(state)) {
                let separator = if list.is_empty() { "" } else { ", " };
                // Writing to a string cannot fail.
                let _ = write!(list, "{separator}{}", self.state_label(index));
            }
            list
        };

        let assumed = names(&|state| state.power_figure.is_none() && !state.idle.is_polling);
        let running = match self.running_power.basis {
            Basis::Assumed => "an assumed running power",
            _ => "the running power",
        };
        if !assumed.is_empty() {
            doubts.push(format!(
                "power of {assumed} assumed: default shape, ratios of {running} of {running_mw} mW"
            ));
        } else if self.running_power.basis == Basis::Assumed && !self.states.is_empty() {
            doubts.push(format!("running power of {running_mw} mW assumed"));
        }

        let unsourced = names(&|state| has_figure(state, |f| f.basis() == Basis::Assumed));
        if !unsourced.is_empty() {
            doubts
                .push(format!("power of {unsourced} counts as assumed: its file names no source"));
        }
        let mut unchecked = names(&|state| has_figure(state, |f| !f.is_checked));
        if self.running_power_figure.as_ref().is_some_and(|figure| !figure.is_checked) {
            let separator = if unchecked.is_empty() { "" } else { ", " };
            unchecked = format!("a running core{separator}{unchecked}");
        }
        if !unchecked.is_empty() {
            doubts.push(format!(
                "power of {unchecked} quoted second-hand: read its source before relying on it"
            ));
        }
        let zero = names(&|state| has_figure(state, |f| f.mw == 0.0));
        if !zero.is_empty() {
            doubts.push(format!("power of {zero} is zero by construction, not by measurement"));
        }
        for pair in self.states.windows(2) {
            if pair[1].power.mw > pair[0].power.mw {
                doubts.push(format!("{}: more power than {}", pair[1].name, pair[0].name));
            }
        }
        doubts
    }
}

/// Whether the file gives the state's power and `wanted` holds for that figure.
fn has_figure(state: &MachineState, wanted: impl Fn(&PowerFigure) -> bool) -> bool {
    state.power_figure.as_ref().is_some_and(wanted)
}

#[cfg(test)]
mod tests;
