//! Every governor that a user can name, and the lanes that replay it.

use std::env;

use idlewise_core::{Fixed, Governor, TimerOnly};
use idlewise_linux::{GOVERNORS, GovernorSpec, LinuxGovernor, resolve, resolve_for};
use idlewise_plugin::{Compiler, Plugin, PluginError, Source, WorkerCommand};
use idlewise_report::replay::Role;
use idlewise_report::wrap;
use idlewise_sim::diff::{Side, governor_side, oracle_side};
use idlewise_sim::replay::{GovernorLane, Lane, Setting};
use idlewise_sim::{CostModel, Machine, OracleLane, Price};

use crate::error::{Failure, did_you_mean};

/// Names of the governors that are no port.
const BOUNDS: [&str; 4] = ["deepest", "shallowest", "timer-only", "oracle"];

/// What `--governor` names.
#[derive(Clone, Debug)]
pub enum Choice {
    /// A port of a kernel governor, under the name that the user gave it.
    Linux(&'static GovernorSpec, String),
    /// `deepest`.
    Deepest,
    /// `shallowest`.
    Shallowest,
    /// `fixed=STATE`, a name or an index on each machine.
    Fixed(String),
    /// `timer-only`.
    TimerOnly,
    /// `oracle`, at each price of latency.
    Oracle,
    /// A file of the user's.
    File(FileChoice),
}

/// A governor from a C file or a shared object.
#[derive(Clone, Debug)]
pub struct FileChoice {
    plugin: Plugin,
    name: String,
    /// What was compiled, for the notes.
    origin: String,
}

impl Choice {
    /// Compiles and loads a governor's file under a name.
    pub fn load(
        source: &Source,
        name: String,
        mut origin: String,
        is_confined: bool,
    ) -> Result<Self, Failure> {
        let program = env::current_exe()
            .map_err(|error| Failure::new(format_args!("cannot find idlewise itself: {error}")))?;
        let command = WorkerCommand {
            program,
            arguments: vec!["plugin-worker".into()],
            unconfined_argument: "--unconfined".into(),
        };
        let compiler = Compiler::system();
        let compiler = if is_confined { compiler } else { compiler.unconfined() };
        let plugin = Plugin::new(source, &compiler, command)?;
        if let Some(doubt) = plugin.doubt() {
            origin += &format!("; {doubt}");
        }
        Ok(Choice::File(FileChoice { plugin, name, origin }))
    }

    /// What a governor of the user's did wrong, if it did: its tallies are empty then.
    pub fn failure(&self) -> Option<String> {
        match self {
            Choice::File(file) => Some(format!("{} {}", file.name, file.plugin.failure()?)),
            _ => None,
        }
    }

    /// What a governor of the user's printed, if it did.
    pub fn printed(&self) -> Option<String> {
        match self {
            Choice::File(file) => Some(file.plugin.printed()).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    /// Reads a governor's name.
    pub fn parse(name: &str) -> Result<Self, Failure> {
        if let Some(spec) = resolve(name) {
            return Ok(Choice::Linux(spec, name.to_owned()));
        }
        match name {
            "deepest" => Ok(Choice::Deepest),
            "shallowest" => Ok(Choice::Shallowest),
            "timer-only" => Ok(Choice::TimerOnly),
            "oracle" => Ok(Choice::Oracle),
            _ => match name.strip_prefix("fixed=") {
                Some(state) if !state.is_empty() => Ok(Choice::Fixed(state.to_owned())),
                _ => Err(unknown(name)),
            },
        }
    }

    /// The governor that a recording's kernel called by this name.
    pub fn of_kernel(name: &str, kernel: Option<&str>) -> Result<Self, Failure> {
        match kernel.and_then(|kernel| resolve_for(name, kernel)) {
            Some(spec) => Ok(Choice::Linux(spec, spec.id.to_owned())),
            None => Self::parse(name),
        }
    }

    /// What is replayed if the user names nothing.
    pub fn standard() -> Vec<Self> {
        let names =
            ["menu", "menu+min", "teo", "ladder", "deepest", "shallowest", "timer-only", "oracle"];
        names.iter().map(|name| Choice::parse(name).expect("these are known")).collect()
    }

    /// The name in results.
    pub fn name(&self) -> String {
        match self {
            Choice::Linux(_, name) => name.clone(),
            Choice::Deepest => "deepest".to_owned(),
            Choice::Shallowest => "shallowest".to_owned(),
            Choice::Fixed(state) => format!("fixed={state}"),
            Choice::TimerOnly => "timer-only".to_owned(),
            Choice::Oracle => "oracle".to_owned(),
            Choice::File(file) => file.name.clone(),
        }
    }

    /// The name that no other governor has, of another kernel either.
    pub fn id(&self) -> String {
        match self {
            Choice::Linux(spec, _) => spec.id.to_owned(),
            _ => self.name(),
        }
    }

    /// Whether it takes part in the ranking.
    pub fn role(&self) -> Role {
        match self {
            Choice::Linux(..) | Choice::File(_) => Role::Governor,
            Choice::Oracle => Role::Oracle,
            _ => Role::Bound,
        }
    }

    /// Checks that the choice makes sense on a machine.
    pub fn check(&self, machine: &Machine) -> Result<(), Failure> {
        match self {
            Choice::Fixed(state) => machine.state_index(state).map(|_| ()).map_err(Failure::new),
            _ => Ok(()),
        }
    }

    /// A governor for one CPU. [`Choice::check`] came first.
    pub fn governor(&self, machine: &Machine, tick_period_ns: u32) -> Box<dyn Governor> {
        match self {
            Choice::Linux(spec, _) => Box::new(spec.build(tick_period_ns)),
            Choice::File(file) => {
                let states = machine.table().expect("the machine was made ready for replay");
                Box::new(file.plugin.governor(&states, tick_period_ns))
            }
            Choice::TimerOnly => Box::new(TimerOnly::new(u64::from(tick_period_ns))),
            Choice::Deepest | Choice::Oracle => Box::new(Fixed::Deepest),
            Choice::Shallowest => Box::new(Fixed::Shallowest),
            Choice::Fixed(state) => {
                Box::new(Fixed::State(machine.state_index(state).unwrap_or_default()))
            }
        }
    }

    /// A side of a comparison, for one CPU; the oracle's is at that price of latency.
    /// [`Choice::check`] came first.
    pub fn side(
        &self,
        machine: &Machine,
        costs: &CostModel,
        setting: Setting,
        price: Price,
    ) -> Box<dyn Side> {
        match self {
            Choice::Oracle => oracle_side(costs, setting, price.lambda_mw(costs)),
            _ => governor_side(self.governor(machine, setting.tick_period_ns), setting, costs),
        }
    }

    /// A lane for one CPU; the oracle's is at that price of latency. Each kernel governor has a
    /// lane of its own type, so that its decisions are inlined into the replay; a file's lane runs
    /// in a process of its own, and names `log` if it fails.
    pub fn lane(
        &self,
        log: &str,
        machine: &Machine,
        costs: &CostModel,
        setting: Setting,
        price: Price,
    ) -> Box<dyn Lane> {
        let tick_period_ns = setting.tick_period_ns;
        match self {
            Choice::Oracle => {
                let lambda_mw = price.lambda_mw(costs);
                Box::new(OracleLane::new(costs.clone(), setting, lambda_mw))
            }
            Choice::Linux(spec, _) => match spec.build(tick_period_ns) {
                LinuxGovernor::Menu(governor) => Box::new(GovernorLane::new(governor, setting)),
                LinuxGovernor::Teo(governor) => Box::new(GovernorLane::new(governor, setting)),
                LinuxGovernor::Ladder(governor) => Box::new(GovernorLane::new(governor, setting)),
                LinuxGovernor::Haltpoll(governor) => Box::new(GovernorLane::new(governor, setting)),
            },
            Choice::File(file) => {
                Box::new(file.plugin.lane(setting, format!("{log} on {}", machine.id)))
            }
            Choice::TimerOnly => {
                let governor = TimerOnly::new(u64::from(tick_period_ns));
                Box::new(GovernorLane::new(governor, setting))
            }
            Choice::Deepest => Box::new(GovernorLane::new(Fixed::Deepest, setting)),
            Choice::Shallowest => Box::new(GovernorLane::new(Fixed::Shallowest, setting)),
            Choice::Fixed(state) => {
                let index = machine.state_index(state).unwrap_or_default();
                Box::new(GovernorLane::new(Fixed::State(index), setting))
            }
        }
    }
}

/// Which kernels' governors were replayed, a phrase for each release.
pub fn provenance(choices: &[Choice]) -> Vec<String> {
    let mut releases: Vec<(&GovernorSpec, Vec<&str>)> = Vec::new();
    for choice in choices {
        let Choice::Linux(spec, name) = choice else { continue };
        match releases.iter_mut().find(|(known, _)| known.release == spec.release) {
            Some((_, names)) => names.push(name),
            None => releases.push((spec, vec![name])),
        }
    }
    let phrase = |(spec, names): (&GovernorSpec, Vec<&str>)| {
        format!(
            "decisions of {} as in Linux {} (Debian {}; +RULE marks a variant)",
            names.join(", "),
            spec.series,
            spec.release
        )
    };
    let files = choices.iter().filter_map(|choice| match choice {
        Choice::File(file) => Some(format!("decisions of {}: {}", file.name, file.origin)),
        _ => None,
    });
    releases.into_iter().map(phrase).chain(files).collect()
}

impl From<PluginError> for Failure {
    fn from(error: PluginError) -> Self {
        match error {
            PluginError::DoesNotCompile { .. } => Failure::Lines(error.to_string()),
            _ => Failure::new(error),
        }
    }
}

fn unknown(name: &str) -> Failure {
    let ids = GOVERNORS.iter().flat_map(|spec| [spec.name, spec.id]);
    let known = ids.chain(BOUNDS);
    let hint = did_you_mean(name, known, "`idlewise replay --help` lists them");
    Failure::new(format_args!("no governor '{name}'; {hint}"))
}

/// What every command takes beside the ports.
const SIMPLE_RULES: [(&str, &str); 3] = [
    ("deepest, shallowest", "the deepest or shallowest state that is enabled and allowed"),
    ("fixed=STATE", "one state, by name or index; if it is not allowed, the next shallower one"),
    ("timer-only", "the deepest state that the next timer leaves room for"),
];
/// What only a replay takes: a simulated machine has no future to know, and an export needs each stay.
const REPLAYED: [(&str, &str); 3] = [
    ("oracle", "the cheapest state for each gap, known in advance"),
    (
        "FILE.c",
        "a kernel governor's C file, unmodified or with --patch, or one that includes \
         <idlewise_governor.h> (docs/plugins.md)",
    ),
    ("FILE.so", "the same, compiled by you"),
];
/// Where the descriptions begin, and where help texts end.
const LIST_INDENT: usize = 24;
const LIST_WIDTH: usize = 100;

/// The governors that replays take, for `--help`.
pub fn list() -> String {
    rows(&REPLAYED)
}

/// Those that decide on their own.
pub fn list_of_deciding() -> String {
    rows(&[])
}

fn rows(more: &[(&str, &str)]) -> String {
    let mut text = String::from("Governors (a name without a version means the newest):\n");
    let ports = GOVERNORS.iter().map(|spec| (spec.id, spec.meaning));
    for (name, meaning) in ports.chain(SIMPLE_RULES).chain(more.iter().copied()) {
        // `wrap` knows no first line that begins elsewhere, so it wraps without the name.
        let meaning = wrap(meaning, LIST_WIDTH - LIST_INDENT, 0);
        let meaning = meaning.replace('\n', &format!("\n{:LIST_INDENT$}", ""));
        text += &format!("  {name:21} {meaning}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_nearest_name() {
        let Err(Failure::Message(message)) = Choice::parse("meun") else { panic!() };
        assert_eq!(message, "no governor 'meun'; did you mean 'menu'?");
        assert!(Choice::parse("fixed=").is_err());
    }

    #[test]
    fn knows_every_name_in_the_list() {
        let list = list_of_deciding();
        // Further lines of a description are indented more.
        let names = list.lines().skip(1).filter(|line| !line.starts_with("   "));
        for line in names {
            for name in line.trim().split("  ").next().unwrap().split(", ") {
                Choice::parse(name).unwrap();
            }
        }
    }
}
