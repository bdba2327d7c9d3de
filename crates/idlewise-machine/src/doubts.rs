//! What is odd, assumed or unchecked about a machine, and how serious doubts of any kind are.

use std::borrow::Cow;
use std::fmt;

use idlewise_core::TableDoubt;
use serde::{Serialize, Serializer};

use crate::{Basis, DomainState, ExitFigure, Machine, MachineState, Power, PowerFigure};

/// How serious a doubt is. It is major unless the documentation of its kind says why it is minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// It can change which governor comes out best, or it says that events are missing.
    Major,
    /// It cannot change that.
    Minor,
}

/// Something odd, assumed or unchecked about a machine, in one sentence. `states` are names.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are what the text names")]
pub enum MachineDoubt {
    /// The machine has no states to replay on.
    NoStates,
    /// The table of states is unusual. Minor: drivers have such tables, the kernel's governors accept them,
    /// and a verdict is about the table as it is.
    Table { state: String, doubt: TableDoubt },
    /// The source does not state these figures.
    Inferred { state: String, fields: Vec<String> },
    /// Nobody published these states' powers, and energy depends on them.
    PowerAssumed { states: Vec<String>, running: Power },
    /// Nobody published what a running core draws, and energy depends on it.
    RunningPowerAssumed { running_mw: f64 },
    /// These figures have no source.
    PowerUnsourced(Vec<String>),
    /// Nobody has compared these figures with their source.
    PowerUnchecked(Vec<String>),
    /// These states' exit latencies are not the declared ones, and have no source.
    ExitUnsourced(Vec<String>),
    /// Nobody has compared these states' exit latencies with their source.
    ExitUnchecked(Vec<String>),
    /// The power model attributes the rest to something else. The price of delay depends on powers.
    PowerZero(Vec<String>),
    /// Nobody published what the CPUs share draws, so that no energy contains it.
    SharedPowerUnknown(Vec<String>),
    /// These powers of shared states have no source.
    SharedPowerUnsourced(Vec<String>),
    /// One of two powers must be wrong.
    PowerIncreases { state: String, shallower: String },
}

impl MachineDoubt {
    /// Returns whether it can change a verdict.
    pub fn rank(&self) -> Rank {
        match self {
            Self::Table { .. } => Rank::Minor,
            _ => Rank::Major,
        }
    }

    /// Returns the doubt in a few words, the same for each machine, for a line that lists all doubts of a result.
    pub fn brief(&self) -> &'static str {
        match self {
            Self::NoStates => "no idle states",
            Self::Table { .. } => "unusual tables of states",
            Self::Inferred { .. } => "inferred figures",
            Self::PowerAssumed { .. }
            | Self::RunningPowerAssumed { .. }
            | Self::PowerUnsourced(_)
            | Self::SharedPowerUnsourced(_) => "Energy: assumed power",
            Self::PowerUnchecked(_) => "Energy: powers quoted second-hand",
            Self::ExitUnsourced(_) => "Exit latencies assumed",
            Self::ExitUnchecked(_) => "Exit latencies quoted second-hand",
            Self::PowerZero(_) => "Energy: powers that are zero by construction",
            Self::SharedPowerUnknown(_) => "Energy: without what CPUs share",
            Self::PowerIncreases { .. } => "Energy: powers that contradict each other",
        }
    }

    /// If the doubt is about the power of some states, returns these, and what is said of it.
    pub fn powers(&self) -> Option<(&[String], Cow<'static, str>)> {
        let (states, said) = match self {
            Self::PowerAssumed { states, running: Power { mw, basis } } => {
                let is_assumed = *basis == Basis::Assumed;
                let running =
                    if is_assumed { "an assumed running power" } else { "the running power" };
                (states, format!("assumed: default shape, ratios of {running} of {mw} mW").into())
            }
            Self::PowerUnsourced(states) => {
                (states, "counts as assumed: its file names no source".into())
            }
            Self::PowerUnchecked(states) => {
                (states, "quoted second-hand: read its source before relying on it".into())
            }
            Self::PowerZero(states) => {
                (states, "is zero by construction, not by measurement".into())
            }
            Self::SharedPowerUnsourced(states) => {
                (states, "is assumed; CPUs share these states".into())
            }
            _ => return None,
        };
        Some((states, said))
    }
}

impl fmt::Display for MachineDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStates => f.write_str("no idle states: it cannot be replayed on"),
            Self::Table { state, doubt } => write!(f, "{state}: {doubt}"),
            Self::Inferred { state, fields } => {
                write!(f, "{state}: inferred, not stated by the source: {}", fields.join(", "))
            }
            Self::RunningPowerAssumed { running_mw } => {
                write!(f, "running power of {running_mw} mW assumed")
            }
            Self::SharedPowerUnknown(states) => write!(
                f,
                "what the CPUs share draws an unknown power in and out of {}: it is in no energy",
                states.join(", ")
            ),
            Self::ExitUnsourced(states) => write!(
                f,
                "exit latency of {} counts as assumed: its file names no source",
                states.join(", ")
            ),
            Self::ExitUnchecked(states) => write!(
                f,
                "exit latency of {} quoted second-hand: read its source before relying on it",
                states.join(", ")
            ),
            Self::PowerIncreases { state, shallower } => {
                write!(f, "{state}: more power than {shallower}")
            }
            Self::PowerAssumed { .. }
            | Self::PowerUnsourced(_)
            | Self::PowerUnchecked(_)
            | Self::PowerZero(_)
            | Self::SharedPowerUnsourced(_) => {
                let (states, said) = self.powers().unwrap_or_default();
                write!(f, "power of {} {said}", states.join(", "))
            }
        }
    }
}

impl Serialize for MachineDoubt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Machine {
    /// Returns what is odd, assumed or unchecked about this machine. It should be shown with every result
    /// that depends on the machine.
    pub fn doubts(&self) -> Vec<MachineDoubt> {
        let Ok(table) = self.table() else {
            return [vec![MachineDoubt::NoStates], self.source_doubts()].concat();
        };
        let odd = table.doubts().map(|doubt| {
            let state = self.state_label(doubt.index());
            MachineDoubt::Table { state, doubt }
        });
        odd.chain(self.source_doubts()).collect()
    }

    /// Returns what is assumed or unknown about the states that CPUs share. It should be shown with every
    /// result that depends on them.
    pub fn shared_doubts(&self) -> Vec<MachineDoubt> {
        let names = |wanted: &dyn Fn(&DomainState) -> bool| -> Vec<String> {
            let states = self.shared_states().filter(|state| wanted(state));
            states.map(|state| state.name.clone()).collect()
        };
        let inferred = self.shared_states().filter(|state| !state.inferred.is_empty());
        let mut doubts: Vec<MachineDoubt> = inferred
            .map(|state| MachineDoubt::Inferred {
                state: state.name.clone(),
                fields: state.inferred.clone(),
            })
            .collect();
        let unknown = names(&|state| state.power_mw.is_none());
        if !unknown.is_empty() {
            doubts.push(MachineDoubt::SharedPowerUnknown(unknown));
        }
        let is_assumed = |figure: PowerFigure<'_>| figure.basis() == Basis::Assumed;
        let assumed = names(&|state| state.power_figure().is_some_and(is_assumed));
        if !assumed.is_empty() {
            doubts.push(MachineDoubt::SharedPowerUnsourced(assumed));
        }
        doubts
    }

    fn source_doubts(&self) -> Vec<MachineDoubt> {
        let inferred = self.states.iter().filter(|state| !state.inferred.is_empty());
        let mut doubts: Vec<MachineDoubt> = inferred
            .map(|state| MachineDoubt::Inferred {
                state: state.name.clone(),
                fields: state.inferred.clone(),
            })
            .collect();
        let running = self.running_power();
        let names = |wanted: &dyn Fn(&MachineState) -> bool| -> Vec<String> {
            let states = self.states.iter().enumerate().filter(|(_, state)| wanted(state));
            states.map(|(index, _)| self.state_label(index)).collect()
        };
        let has_figure = |state: &MachineState, wanted: fn(&PowerFigure<'_>) -> bool| -> bool {
            state.power_figure().as_ref().is_some_and(wanted)
        };
        let assumed = names(&|state| state.power_mw.is_none() && !state.idle().is_polling);
        if !assumed.is_empty() {
            doubts.push(MachineDoubt::PowerAssumed { states: assumed, running });
        } else if running.basis == Basis::Assumed && !self.states.is_empty() {
            doubts.push(MachineDoubt::RunningPowerAssumed { running_mw: running.mw });
        }
        let unsourced = names(&|state| has_figure(state, |f| f.basis() == Basis::Assumed));
        let mut unchecked = names(&|state| has_figure(state, |f| !f.is_checked));
        if self.running_power_figure().is_some_and(|figure| !figure.is_checked) {
            unchecked.insert(0, "a running core".to_owned());
        }
        let zero = names(&|state| state.power_mw == Some(0.0));
        type OfStates = fn(Vec<String>) -> MachineDoubt;
        let has_exits = |state: &MachineState, wanted: fn(&ExitFigure<'_>) -> bool| -> bool {
            state.exit_figure().as_ref().is_some_and(wanted)
        };
        let assumed_exits = names(&|state| has_exits(state, |it| it.basis() == Basis::Assumed));
        let unchecked_exits = names(&|state| has_exits(state, |it| !it.is_checked));
        let of_states: [(Vec<String>, OfStates); 5] = [
            (assumed_exits, MachineDoubt::ExitUnsourced),
            (unchecked_exits, MachineDoubt::ExitUnchecked),
            (unsourced, MachineDoubt::PowerUnsourced),
            (unchecked, MachineDoubt::PowerUnchecked),
            (zero, MachineDoubt::PowerZero),
        ];
        let of_states = of_states.into_iter().filter(|(states, _)| !states.is_empty());
        doubts.extend(of_states.map(|(states, doubt)| doubt(states)));
        for (states, powers) in self.states.windows(2).zip(self.powers().windows(2)) {
            if powers[1].mw > powers[0].mw {
                let (state, shallower) = (states[1].name.clone(), states[0].name.clone());
                doubts.push(MachineDoubt::PowerIncreases { state, shallower });
            }
        }
        doubts
    }
}
