//! Every governor that a user can name, and the lanes that replay it.

use std::env;
use std::marker::PhantomData;
use std::sync::Arc;

use idlewise_core::{Governor, GovernorVisitor, HAZARD, Hazard, Lambda, StateTable};
use idlewise_linux::{GOVERNORS, GovernorSpec, USUAL, resolve, resolve_for};
use idlewise_plugin::{Compiler, Confinement, GovernorSource, Plugin, WorkerCommand};
use idlewise_report::replay::Role;
use idlewise_report::wrap;
use idlewise_sim::diff::{ComparedGovernor, governor_side, oracle_side};
use idlewise_sim::replay::{
    GovernorJoint, GovernorLane, Joint, Lane, ObservedLane, Observer, OracleJoint, Setting,
    TakePeriod, UnitOf,
};
use idlewise_sim::{
    BOUNDS, Bound, Boxed, CostModel, IntoBox, Machine, OracleLane, Price, RIVALS, Rival, RivalLane,
    Rule,
};

use crate::error::{Failure, did_you_mean};
use crate::program;

/// Set for the command of a bundle, to the process id of `bundle`. Its output must not depend on this machine.
pub const IN_BUNDLE: &str = "IDLEWISE_IN_BUNDLE";

/// A governor named by `--governor`.
#[derive(Clone, Debug)]
pub enum Choice {
    /// A port of a kernel governor, with the name that the user gave.
    Linux(&'static GovernorSpec, String),
    /// Our own, at a price of delay, with the name that the user gave.
    Hazard(Lambda, String),
    /// A simple reference rule.
    Bound(Bound),
    /// `oracle`, at each price of latency.
    Oracle,
    /// A rule that moves down during the idle time, at each price of latency.
    Rival(Rival),
    /// The user's own file.
    File(FileChoice),
    /// Made by a program that uses this library, with its name.
    Made(String, MakeGovernor),
}

/// Makes a governor for a CPU with these states and this tick period in ns.
pub type Make = Arc<dyn Fn(&StateTable, u32) -> Box<dyn Governor> + Send + Sync>;

/// What makes the governors of a program.
#[derive(Clone)]
pub struct MakeGovernor(pub Make);

impl std::fmt::Debug for MakeGovernor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MakeGovernor")
    }
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
        source: &GovernorSource,
        name: String,
        mut origin: String,
        confinement: Confinement,
    ) -> Result<Self, Failure> {
        let (program, mut arguments) = program::itself()
            .map_err(|error| Failure::new(format_args!("cannot find idlewise itself: {error}")))?;
        arguments.push("plugin-worker".into());
        let command =
            WorkerCommand { program, arguments, unconfined_argument: "--unconfined".into() };
        let compiler = Compiler::system().confined(confinement);
        let plugin = Plugin::new(source, &compiler, command)?;
        if let Some(doubt) = plugin.doubt()
            && env::var_os(IN_BUNDLE).is_none()
        {
            origin += &format!("; {doubt}");
        }
        Ok(Choice::File(FileChoice { plugin, name, origin }))
    }

    /// Returns what the user's governor did wrong, if anything. Its tallies are empty then.
    pub fn failure(&self) -> Option<String> {
        match self {
            Choice::File(file) => Some(format!("{} {}", file.name, file.plugin.failure()?)),
            _ => None,
        }
    }

    /// Returns what the user's governor printed, if anything.
    pub fn printed(&self) -> Option<String> {
        match self {
            Choice::File(file) => Some(file.plugin.printed()).filter(|text| !text.is_empty()),
            _ => None,
        }
    }

    /// Returns the same governor without what it did wrong so far, for another run.
    #[must_use]
    pub fn anew(&self) -> Self {
        match self {
            Choice::File(file) => {
                Choice::File(FileChoice { plugin: file.plugin.anew(), ..file.clone() })
            }
            other => other.clone(),
        }
    }

    /// Returns a hash of all that decides what the user's file does.
    pub fn file_key(&self) -> Option<String> {
        match self {
            Choice::File(file) => Some(file.plugin.key().to_owned()),
            _ => None,
        }
    }

    /// Parses a governor's name.
    pub fn parse(name: &str) -> Result<Self, Failure> {
        if let Some(spec) = resolve(name) {
            return Ok(Choice::Linux(spec, name.to_owned()));
        }
        if let Some(argument) = name.strip_prefix(HAZARD.0)
            && (argument.is_empty() || argument.starts_with(':'))
        {
            return Ok(Choice::Hazard(parse_lambda(argument)?, name.to_owned()));
        }
        let bound = || Bound::parse(name).map(Choice::Bound);
        let oracle = || (name == ORACLE.0).then_some(Choice::Oracle);
        let rival = || Rival::parse(name).map(Choice::Rival);
        bound().or_else(oracle).or_else(rival).ok_or_else(|| {
            let ids = GOVERNORS.iter().flat_map(|spec| [spec.name, spec.id]);
            let known = ids.chain([HAZARD.0]).chain(BOUNDS.map(|(name, _)| name)).chain([ORACLE.0]);
            let known = known.chain(RIVALS.map(|(name, _)| name));
            let hint = did_you_mean(name, known, "`idlewise replay --help` lists them");
            Failure::new(format_args!("no governor '{name}'; {hint}"))
        })
    }

    /// Returns the governor that a recording's kernel calls by this name.
    pub fn of_kernel(name: &str, kernel: Option<&str>) -> Result<Self, Failure> {
        match kernel.and_then(|kernel| resolve_for(name, kernel)) {
            Some(spec) => Ok(Choice::Linux(spec, spec.id.to_owned())),
            None => Self::parse(name),
        }
    }

    /// Returns the name in results.
    pub fn name(&self) -> String {
        match self {
            Choice::Linux(_, name) | Choice::Hazard(_, name) | Choice::Made(name, _) => {
                name.clone()
            }
            Choice::Bound(bound) => bound.name(),
            Choice::Oracle => ORACLE.0.to_owned(),
            Choice::Rival(rival) => rival.name().to_owned(),
            Choice::File(file) => file.name.clone(),
        }
    }

    /// Returns a name that is unique even among kernels.
    pub fn id(&self) -> String {
        match self {
            Choice::Linux(spec, _) => spec.id.to_owned(),
            _ => self.name(),
        }
    }

    /// Returns what it does, in a line.
    pub fn meaning(&self) -> String {
        match self {
            Choice::Linux(spec, _) => spec.meaning.to_owned(),
            Choice::Hazard(..) => HAZARD.1.to_owned(),
            Choice::Bound(bound) => bound.meaning().to_owned(),
            Choice::Oracle => ORACLE.1.to_owned(),
            Choice::Rival(rival) => rival.meaning().to_owned(),
            Choice::File(file) => file.origin.clone(),
            Choice::Made(..) => "a governor of the calling program".to_owned(),
        }
    }

    /// Returns its role in the ranking.
    pub fn role(&self) -> Role {
        match self {
            Choice::Linux(..) | Choice::Hazard(..) | Choice::File(_) | Choice::Made(..) => {
                Role::Governor
            }
            Choice::Oracle => Role::Oracle,
            Choice::Rival(_) => Role::Rival,
            Choice::Bound(_) => Role::Bound,
        }
    }

    /// Returns whether what it does depends on powers and the price of delay, so that it needs a lane for each.
    pub fn is_priced(&self) -> bool {
        matches!(self, Choice::Oracle | Choice::Rival(_))
    }

    /// Resolves the choice for a machine. Fails if the machine lacks a named state.
    pub fn on<'a>(&'a self, machine: &'a Machine) -> Result<Player<'a>, Failure> {
        let kind = match self {
            Choice::Linux(spec, _) => Kind::Linux(spec),
            Choice::Hazard(lambda, _) => Kind::Hazard(*lambda),
            Choice::Bound(bound) => Kind::Rule(bound.on(machine).map_err(Failure::new)?),
            Choice::Oracle => Kind::Oracle,
            Choice::Rival(rival) => Kind::Rival(*rival),
            Choice::File(file) => Kind::File(&file.plugin),
            Choice::Made(_, make) => Kind::Made(make),
        };
        Ok(Player { kind, machine })
    }
}

/// Checks that all of them take single decisions, for commands that show these.
pub fn must_decide(choices: &[Choice]) -> Result<(), Failure> {
    match choices.iter().find(|choice| matches!(choice, Choice::Rival(_))) {
        None => Ok(()),
        Some(rival) => Err(Failure::new(format_args!(
            "{} moves down while a CPU is idle instead of deciding; replay, arena and sweep can show it",
            rival.name()
        ))),
    }
}

/// Parses what follows `hazard`: nothing, or `:lambda=X` with X in times the power of polling.
fn parse_lambda(argument: &str) -> Result<Lambda, Failure> {
    if argument.is_empty() {
        return Ok(Lambda::QUARTER);
    }
    let number = argument.strip_prefix(":lambda=").and_then(|text| text.parse::<f64>().ok());
    match number.filter(|lambda| (0.0..=16.0).contains(lambda)) {
        Some(lambda) => Ok(Lambda::from_1024ths((lambda * 1024.0).round() as u32)),
        None => Err(Failure::new(format_args!(
            "{name}{argument}: the price of delay is :lambda=X with X from 0 to 16 times the power of \
             polling, such as {name}:lambda=0.25",
            name = HAZARD.0
        ))),
    }
}

/// A choice on a machine.
#[derive(Clone, Copy)]
pub struct Player<'a> {
    kind: Kind<'a>,
    machine: &'a Machine,
}

#[derive(Clone, Copy)]
enum Kind<'a> {
    Linux(&'static GovernorSpec),
    Hazard(Lambda),
    Rule(Rule),
    Oracle,
    Rival(Rival),
    File(&'a Plugin),
    Made(&'a MakeGovernor),
}

impl Player<'_> {
    /// Returns a governor for one CPU; `None` for what doesn't decide.
    pub fn governor(&self, states: &StateTable, tick_period_ns: u32) -> Option<Box<dyn Governor>> {
        match self.kind {
            Kind::Linux(spec) => Some(Box::new(spec.build(tick_period_ns))),
            Kind::Hazard(lambda) => Some(Box::new(Hazard::new(lambda))),
            Kind::Rule(rule) => Some(rule.visit(tick_period_ns, IntoBox)),
            Kind::File(plugin) => Some(Box::new(plugin.governor(states, tick_period_ns))),
            Kind::Made(make) => Some((make.0)(states, tick_period_ns)),
            Kind::Oracle | Kind::Rival(_) => None,
        }
    }

    /// Returns one side of a comparison for a CPU. The oracle uses that price of latency.
    pub fn side(
        &self,
        costs: &CostModel,
        setting: Setting,
        price: Price,
    ) -> Box<dyn ComparedGovernor> {
        match self.governor(&setting.states, setting.tick_period_ns) {
            Some(governor) => governor_side(governor, setting, costs),
            None => oracle_side(costs, setting, price.lambda_mw(costs)),
        }
    }

    /// Returns a lane for a CPU that reports each gap to `observer`. The oracle uses that price of
    /// latency, and takes the place of a rival: [`must_decide`]. Each port has a lane of its own type, so its decisions are inlined into the replay.
    /// For a file, each decision crosses to another process.
    pub fn observed<'o, O: Observer + 'o>(
        &self,
        costs: &CostModel,
        setting: Setting,
        price: Price,
        observer: O,
    ) -> Box<dyn ObservedLane<O> + 'o> {
        let tick_period_ns = setting.tick_period_ns;
        let into_lane = IntoLane { setting, observer, life: PhantomData };
        match self.kind {
            Kind::Linux(spec) => spec.build(tick_period_ns).visit(into_lane),
            Kind::Hazard(lambda) => into_lane.visit(Hazard::new(lambda)),
            Kind::Rule(rule) => rule.visit(tick_period_ns, into_lane),
            Kind::File(plugin) => {
                let governor = plugin.governor(&setting.states, tick_period_ns);
                Box::new(GovernorLane::with_observer(governor, setting, into_lane.observer))
            }
            Kind::Made(make) => {
                let governor = Boxed((make.0)(&setting.states, tick_period_ns));
                Box::new(GovernorLane::with_observer(governor, setting, into_lane.observer))
            }
            Kind::Oracle | Kind::Rival(_) => {
                let (costs, lambda_mw) = (costs.clone(), price.lambda_mw(costs));
                let observer = into_lane.observer;
                Box::new(OracleLane::with_observer(costs, setting, lambda_mw, observer))
            }
        }
    }

    /// Returns lanes for CPUs that share states, each with an observer. Stays of groups go to `periods`. The oracle
    /// takes the place of a rival: [`must_decide`].
    pub fn joint<O: Observer + 'static>(
        &self,
        unit: &UnitOf<'_>,
        costs: &CostModel,
        setting: Setting,
        price: Price,
        observers: Vec<O>,
        periods: Option<TakePeriod>,
    ) -> Box<dyn Joint> {
        let tick_period_ns = setting.tick_period_ns;
        let into_joint = IntoJoint { unit, setting, observers, periods };
        match self.kind {
            Kind::Linux(spec) => spec.build(tick_period_ns).visit(into_joint),
            Kind::Hazard(lambda) => into_joint.visit(Hazard::new(lambda)),
            Kind::Rule(rule) => rule.visit(tick_period_ns, into_joint),
            Kind::File(plugin) => {
                into_joint.of(|| plugin.governor(&setting.states, tick_period_ns))
            }
            Kind::Made(make) => into_joint.of(|| Boxed((make.0)(&setting.states, tick_period_ns))),
            Kind::Oracle | Kind::Rival(_) => {
                let IntoJoint { observers, periods, .. } = into_joint;
                let oracle = (costs, setting, price.lambda_mw(costs));
                OracleJoint::observed(unit, oracle, observers, periods)
            }
        }
    }

    /// Returns a lane for a CPU that only counts. A file's lane runs in another process, and its
    /// failures mention `log`.
    pub fn lane(
        &self,
        log: &str,
        costs: &CostModel,
        setting: Setting,
        price: Price,
    ) -> Box<dyn Lane> {
        match self.kind {
            Kind::File(plugin) => {
                Box::new(plugin.lane(setting, format!("{log} on {}", self.machine.id)))
            }
            Kind::Rival(rival) => {
                let lambda_mw = price.lambda_mw(costs);
                Box::new(RivalLane::new(rival, costs.clone(), setting, lambda_mw))
            }
            _ => self.observed(costs, setting, price, ()),
        }
    }
}

/// Makes a lane from a governor.
struct IntoLane<'o, O> {
    setting: Setting,
    observer: O,
    /// The observer's lifetime.
    life: PhantomData<&'o ()>,
}

impl<'o, O: Observer + 'o> GovernorVisitor for IntoLane<'o, O> {
    type Output = Box<dyn ObservedLane<O> + 'o>;

    fn visit<G: Governor + 'static>(self, governor: G) -> Self::Output {
        Box::new(GovernorLane::with_observer(governor, self.setting, self.observer))
    }
}

/// Makes the lanes of CPUs that share states from a governor.
struct IntoJoint<'a, O> {
    unit: &'a UnitOf<'a>,
    setting: Setting,
    observers: Vec<O>,
    periods: Option<TakePeriod>,
}

impl<O: Observer + 'static> IntoJoint<'_, O> {
    fn of<G: Governor + 'static>(self, make: impl FnMut() -> G) -> Box<dyn Joint> {
        GovernorJoint::observed(self.unit, self.setting, make, self.observers, self.periods)
    }
}

impl<O: Observer + 'static> GovernorVisitor for IntoJoint<'_, O> {
    type Output = Box<dyn Joint>;

    fn visit<G: Governor + Clone + 'static>(self, governor: G) -> Self::Output {
        self.of(|| governor.clone())
    }
}

/// Returns the default governors of a replay.
pub fn standard() -> Vec<&'static str> {
    USUAL.into_iter().chain(["deepest", "shallowest", "timer-only", ORACLE.0]).collect()
}

/// Returns the default governors of a mail: those that a kernel has.
pub fn usual() -> Vec<&'static str> {
    USUAL.into()
}

/// Returns which kernels' governors were replayed, one phrase for each release.
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

/// Returns the port with that name.
pub fn port(name: &str) -> Result<&'static GovernorSpec, Failure> {
    resolve(name).ok_or_else(|| {
        let names = GOVERNORS.iter().flat_map(|spec| [spec.id, spec.name]);
        let hint = did_you_mean(name, names, &format!("there are {}", port_ids()));
        Failure::new(format_args!("no governor '{name}'; {hint}"))
    })
}

/// Returns the ids of all ports.
pub fn port_ids() -> String {
    GOVERNORS.iter().map(|spec| spec.id).collect::<Vec<_>>().join(", ")
}

const ORACLE: (&str, &str) = ("oracle", "the cheapest state for each gap, known in advance");
const FILES: [(&str, &str); 3] = [
    (
        "FILE.c",
        "a kernel governor's C file, unmodified or with --patch, or one that includes \
         <idlewise_governor.h> (docs/plugins.md)",
    ),
    ("FILE.so", "the same, compiled by you"),
    ("FOLDER/", "a governor of several C files"),
];
/// The column where descriptions begin, and the width of help texts.
const LIST_INDENT: usize = 24;
const LIST_WIDTH: usize = 100;

/// Returns the list for the `--help` of commands that know each gap's length in advance.
pub fn list() -> String {
    rows(&[ORACLE])
}

/// Returns the list for commands that also take rules that move down during the idle time.
pub fn list_with_rivals(with_oracle: bool) -> String {
    let oracle = with_oracle.then_some(ORACLE);
    rows(&oracle.into_iter().chain(RIVALS).collect::<Vec<_>>())
}

/// Returns the list without governors that need to know the gap.
pub fn list_of_deciding() -> String {
    rows(&[])
}

fn rows(others: &[(&str, &str)]) -> String {
    let mut text = String::from("Governors (a name without a version means that of Linux 6.12):\n");
    let ports = GOVERNORS.iter().map(|spec| (spec.id, spec.meaning));
    for (name, meaning) in
        ports.chain([HAZARD]).chain(BOUNDS).chain(others.iter().copied()).chain(FILES)
    {
        // `wrap` cannot start the first line at another column, so it wraps without the name.
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
    }

    #[test]
    fn reads_the_price_of_delay() {
        let lambda = |name| match Choice::parse(name) {
            Ok(Choice::Hazard(lambda, _)) => Some(lambda.as_1024ths()),
            _ => None,
        };
        assert_eq!([lambda("hazard"), lambda("hazard:lambda=1")], [Some(256), Some(1_024)]);
        for name in
            ["hazard:lambda=17", "hazard:lambda=-1", "hazard:x", "hazard:lambda=NaN", "hazardx"]
        {
            assert!(Choice::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_state_that_a_machine_lacks_is_an_error() {
        let machine = idlewise_machine::bundled("spr").unwrap();
        let on = |name| Choice::parse(name).unwrap().on(&machine).map(|_| ());
        assert!(on("fixed=C6").is_ok() && on("fixed=C9").is_err());
    }
}
