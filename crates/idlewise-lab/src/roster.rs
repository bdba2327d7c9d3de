//! Every governor that a user can name. A governor of our own is a row of [`OWN`]; a port of a kernel's is a row of
//! `idlewise_linux`, and a rival one of `idlewise_sim`.

use std::env;
use std::fmt;
use std::sync::Arc;

use idlewise_core::{Fixed, Governor, GovernorVisitor, Hazard, Lambda, StateTable, TimerOnly};
use idlewise_linux::{GOVERNORS, GovernorSpec, USUAL, resolve, resolve_for};
use idlewise_plugin::{Compiler, Confinement, GovernorSource, Plugin, WorkerCommand};
use idlewise_sim::contest::{Cloned, Decider, Player, Price, Role, Visitor};
use idlewise_sim::replay::{Lane, Setting};
use idlewise_sim::{Boxed, Machine, RIVALS, Rival};

use crate::error::{Failure, Result, did_you_mean};
use crate::program;

/// Set for the command of a bundle, to the process id of `bundle`. Its output must not depend on this machine.
pub const IN_BUNDLE: &str = "IDLEWISE_IN_BUNDLE";

const ORACLE: (&str, &str) = ("oracle", "the cheapest state for each gap, known in advance");

/// What may follow a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    /// `=STATE`, as the listed name has it.
    State,
    /// `:lambda=X`, or nothing. Without it, the governor is told the price where there is one.
    Price,
}

/// A governor of our own.
#[derive(Debug)]
pub struct OwnSpec {
    /// Its name, as it is listed.
    pub name: &'static str,
    /// What it does, in a line.
    pub meaning: &'static str,
    role: Role,
    takes: Takes,
    make: fn(&Given<'_>) -> Result<OwnGovernor>,
}

/// What one is made for.
struct Given<'a> {
    machine: &'a Machine,
    tick_period_ns: u32,
    /// What follows `=`.
    state: &'a str,
    price: Price,
}

/// Declares the list. A row has a name for the type, the type, the name that users type, its role, what may follow the
/// name, its description, and how it is made.
macro_rules! roster {
    ($($Row:ident($Governor:ty): $name:literal, $role:ident, $takes:ident, $meaning:expr, $make:expr;)+) => {
        /// The governors of our own, bounds among them.
        pub const OWN: &[OwnSpec] = &[$(OwnSpec {
            name: $name,
            meaning: $meaning,
            role: Role::$role,
            takes: Takes::$takes,
            make: |given| {
                let make: fn(&Given<'_>) -> Result<$Governor> = $make;
                make(given).map(OwnGovernor::$Row)
            },
        }),+];

        /// Any of them, without dynamic dispatch.
        #[expect(clippy::large_enum_variant, reason = "none is kept")]
        enum OwnGovernor {
            $($Row($Governor)),+
        }

        impl OwnGovernor {
            fn visit<V: GovernorVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Self::$Row(governor) => visitor.visit(governor),)+
                }
            }
        }
    };
}

roster! {
    Hazard(Hazard): "hazard", Governor, Price,
        "learns when gaps end before their timer, and chooses the sequence of states with the lowest expected cost; \
         delay costs ¼ of polling, or X times as much as polling with hazard:lambda=X",
        |given| Ok(Hazard::new(given.price.told().unwrap_or(Lambda::QUARTER)));
    Deepest(Fixed): "deepest", Bound, Nothing, "the deepest state that is enabled and allowed",
        |_| Ok(Fixed::Deepest);
    Shallowest(Fixed): "shallowest", Bound, Nothing, "the shallowest state that is enabled and allowed",
        |_| Ok(Fixed::Shallowest);
    State(Fixed): "fixed=STATE", Bound, State,
        "one state, by name or index; if it is not allowed, the next shallower one",
        |given| Ok(Fixed::State(given.machine.state_index(given.state).map_err(Failure::new)?));
    TimerOnly(TimerOnly): "timer-only", Bound, Nothing,
        "the deepest state that the next timer leaves room for",
        |given| Ok(TimerOnly::new(given.tick_period_ns.into()));
}

/// One of [`OWN`], as the user named it.
#[derive(Clone, Debug)]
pub struct Own {
    spec: &'static OwnSpec,
    name: String,
    price: Option<Price>,
}

impl Own {
    /// Parses a name; `None` if it is none of these.
    fn parse(name: &str) -> Option<Result<Self>> {
        OWN.iter().find_map(|spec| spec.parse(name))
    }

    fn price(&self) -> Price {
        self.price.unwrap_or(Price::QUARTER)
    }

    fn build(&self, machine: &Machine, tick_period_ns: u32) -> Result<OwnGovernor> {
        let state = self.name.split_once('=').map_or("", |(_, state)| state);
        (self.spec.make)(&Given { machine, tick_period_ns, state, price: self.price() })
    }
}

impl OwnSpec {
    fn parse(&'static self, name: &str) -> Option<Result<Own>> {
        let own = |price| Own { spec: self, name: name.to_owned(), price };
        match self.takes {
            Takes::Nothing => (name == self.name).then(|| Ok(own(None))),
            Takes::State => {
                let (word, _) = self.name.split_once('=')?;
                name.strip_prefix(word)?.starts_with('=').then(|| Ok(own(None)))
            }
            Takes::Price => match name.strip_prefix(self.name)? {
                "" => Some(Ok(own(None))),
                argument if argument.starts_with(':') => {
                    let number = argument.strip_prefix(":lambda=").map(Price::parse_times);
                    Some(number.and_then(Result::ok).map(|price| own(Some(price))).ok_or_else(|| {
                        Failure::new(format_args!(
                            "{name}: the price of delay is :lambda=X with X from 0 to 16 times the power of \
                             polling, such as {}:lambda=0.25",
                            self.name
                        ))
                    }))
                }
                _ => None,
            },
        }
    }
}

/// A governor that decides, as the user named it.
#[derive(Clone, Debug)]
pub enum Named {
    /// A port of a kernel governor, with the name that the user gave.
    Port(&'static GovernorSpec, String),
    /// One of our own.
    Own(Own),
    /// The user's own file.
    File(FileChoice),
    /// Made by a program that uses this library, with its name.
    Made(String, MakeGovernor),
}

/// Who is to play, as the user named them: with `--governor`.
#[derive(Clone, Debug)]
pub struct Choice(pub Player<Named>);

/// Makes a governor for a CPU with these states and this tick period in ns.
pub type Make = Arc<dyn Fn(&StateTable, u32) -> Box<dyn Governor> + Send + Sync>;

/// What makes the governors of a program.
#[derive(Clone)]
pub struct MakeGovernor(pub Make);

impl fmt::Debug for MakeGovernor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    /// The oracle.
    pub const ORACLE: Choice = Choice(Player::Oracle);

    /// Compiles and loads a governor's file under a name.
    ///
    /// # Errors
    /// Fails if it does not compile, or cannot be loaded.
    pub fn load(
        source: &GovernorSource,
        name: String,
        mut origin: String,
        confinement: Confinement,
    ) -> Result<Self> {
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
        Ok(Choice(Player::Decider(Named::File(FileChoice { plugin, name, origin }))))
    }

    /// A governor of the calling program.
    pub fn made(name: String, make: Make) -> Self {
        Choice(Player::Decider(Named::Made(name, MakeGovernor(make))))
    }

    fn port(spec: &'static GovernorSpec, name: &str) -> Self {
        Choice(Player::Decider(Named::Port(spec, name.to_owned())))
    }

    /// Parses a governor's name.
    ///
    /// # Errors
    /// Fails if there is none, with the nearest.
    pub fn parse(name: &str) -> Result<Self> {
        if let Some(spec) = resolve(name) {
            return Ok(Choice::port(spec, name));
        }
        if let Some(own) = Own::parse(name) {
            return Ok(Choice(Player::Decider(Named::Own(own?))));
        }
        if name == ORACLE.0 {
            return Ok(Choice::ORACLE);
        }
        Rival::parse(name).map(|rival| Choice(Player::Rival(rival))).ok_or_else(|| {
            let ids = GOVERNORS.iter().flat_map(|spec| [spec.name, spec.id]);
            let known = ids.chain(OWN.iter().map(|spec| spec.name)).chain([ORACLE.0]);
            let known = known.chain(RIVALS.iter().map(|rival| rival.name));
            let hint = did_you_mean(name, known, "`idlewise governors` lists them");
            Failure::new(format_args!("no governor '{name}'; {hint}"))
        })
    }

    /// Returns the governor that a recording's kernel calls by this name.
    ///
    /// # Errors
    /// Fails if there is no port of it.
    pub fn of_kernel(name: &str, kernel: Option<&str>) -> Result<Self> {
        match kernel.and_then(|kernel| resolve_for(name, kernel)) {
            Some(spec) => Ok(Choice::port(spec, spec.id)),
            None => Self::parse(name),
        }
    }

    /// The user's own file, if it is one.
    fn file(&self) -> Option<&FileChoice> {
        match &self.0 {
            Player::Decider(Named::File(file)) => Some(file),
            _ => None,
        }
    }

    fn own(&self) -> Option<&Own> {
        match &self.0 {
            Player::Decider(Named::Own(own)) => Some(own),
            _ => None,
        }
    }

    /// Returns what the user's governor did wrong, if anything. Its tallies are empty then.
    pub fn failure(&self) -> Option<String> {
        let file = self.file()?;
        Some(format!("{} {}", file.name, file.plugin.failure()?))
    }

    /// Returns what the user's governor printed, if anything.
    pub fn printed(&self) -> Option<String> {
        Some(self.file()?.plugin.printed()).filter(|text| !text.is_empty())
    }

    /// Returns the same governor without what it did wrong so far, for another run.
    #[must_use]
    pub fn anew(&self) -> Self {
        match self.file() {
            Some(file) => Choice(Player::Decider(Named::File(FileChoice {
                plugin: file.plugin.anew(),
                ..file.clone()
            }))),
            None => self.clone(),
        }
    }

    /// Returns a hash of all that decides what the user's file does.
    pub fn file_key(&self) -> Option<String> {
        self.file().map(|file| file.plugin.key().to_owned())
    }

    /// Returns the name in results.
    pub fn name(&self) -> String {
        match &self.0 {
            Player::Decider(named) => match named {
                Named::Port(_, name) | Named::Made(name, _) => name.clone(),
                Named::Own(own) => own.name.clone(),
                Named::File(file) => file.name.clone(),
            },
            Player::Oracle => ORACLE.0.to_owned(),
            Player::Rival(rival) => rival.name.to_owned(),
        }
    }

    /// Returns a name that is unique even among kernels.
    pub fn id(&self) -> String {
        match &self.0 {
            Player::Decider(Named::Port(spec, _)) => spec.id.to_owned(),
            _ => self.name(),
        }
    }

    /// Returns what says, with [`Choice::file_key`], which governor it is, whatever its name.
    pub fn key(&self) -> String {
        match (self.own(), self.file()) {
            // A file is known by what is in it, wherever it lies.
            (_, Some(_)) => "file".to_owned(),
            // The name does not say the price that it is told.
            (Some(own), _) if own.spec.takes == Takes::Price => {
                let lambda = own.price().told().unwrap_or(Lambda::QUARTER);
                format!("{}:lambda={}", own.spec.name, f64::from(lambda.as_1024ths()) / 1024.0)
            }
            _ => self.id(),
        }
    }

    /// Returns what it does, in a line.
    pub fn meaning(&self) -> String {
        match &self.0 {
            Player::Decider(named) => match named {
                Named::Port(spec, _) => spec.meaning.to_owned(),
                Named::Own(own) => own.spec.meaning.to_owned(),
                Named::File(file) => file.origin.clone(),
                Named::Made(..) => "a governor of the calling program".to_owned(),
            },
            Player::Oracle => ORACLE.1.to_owned(),
            Player::Rival(rival) => rival.meaning.to_owned(),
        }
    }

    /// Returns its role in the ranking.
    pub fn role(&self) -> Role {
        match &self.0 {
            Player::Decider(Named::Own(own)) => own.spec.role,
            Player::Decider(_) => Role::Governor,
            Player::Oracle => Role::Oracle,
            Player::Rival(_) => Role::Rival,
        }
    }

    /// Returns whether it is the oracle.
    pub fn is_oracle(&self) -> bool {
        matches!(self.0, Player::Oracle)
    }

    /// Returns whether what it does depends on powers and the price of delay, so that it needs a lane for each.
    pub fn is_priced(&self) -> bool {
        !matches!(self.0, Player::Decider(_))
    }

    /// Returns whether it is code of the user's, or of the calling program's.
    pub fn is_foreign(&self) -> bool {
        matches!(self.0, Player::Decider(Named::File(_) | Named::Made(..)))
    }

    /// Returns whether it is a governor of the calling program.
    pub fn is_made(&self) -> bool {
        matches!(self.0, Player::Decider(Named::Made(..)))
    }

    /// Returns the same governor, told a price of delay; `None` if it needs none or has one.
    pub fn told(&self, price: Price) -> Option<Self> {
        let own = self.own().filter(|own| own.spec.takes == Takes::Price && own.price.is_none())?;
        Some(Choice(Player::Decider(Named::Own(Own { price: Some(price), ..own.clone() }))))
    }

    /// Resolves the choice for a machine.
    ///
    /// # Errors
    /// Fails if the machine lacks a named state.
    pub fn on<'a>(&'a self, machine: &'a Machine) -> Result<Player<OnMachine<'a>>> {
        Ok(match &self.0 {
            Player::Decider(named) => {
                if let Named::Own(own) = named {
                    own.build(machine, TICK_PERIOD_ANY_NS)?;
                }
                Player::Decider(OnMachine { named, machine })
            }
            Player::Oracle => Player::Oracle,
            Player::Rival(rival) => Player::Rival(*rival),
        })
    }
}

/// To find out whether a governor can be made.
const TICK_PERIOD_ANY_NS: u32 = 4_000_000;

/// A governor on a machine that has the states it needs.
#[derive(Clone, Copy, Debug)]
pub struct OnMachine<'a> {
    named: &'a Named,
    machine: &'a Machine,
}

impl Decider for OnMachine<'_> {
    /// Each port has a lane of its own type, so its decisions are inlined into the replay. For a file, each decision
    /// crosses to another process.
    fn visit<V: Visitor>(&self, states: &StateTable, tick_period_ns: u32, visitor: V) -> V::Output {
        match self.named {
            Named::Port(spec, _) => spec.build(tick_period_ns).visit(Cloned(visitor)),
            Named::Own(own) => {
                let governor = own.build(self.machine, tick_period_ns);
                let Ok(governor) = governor else { unreachable!("`on` has made one") };
                governor.visit(Cloned(visitor))
            }
            Named::File(file) => visitor.visit(|| file.plugin.governor(states, tick_period_ns)),
            Named::Made(_, make) => visitor.visit(|| Boxed((make.0)(states, tick_period_ns))),
        }
    }

    /// A file's lane runs in another process.
    fn own_lane(&self, log: &str, setting: Setting) -> Option<Box<dyn Lane>> {
        let Named::File(file) = self.named else { return None };
        Some(Box::new(file.plugin.lane(setting, format!("{log} on {}", self.machine.id))))
    }
}

/// Checks that all of them take single decisions, for commands that show these.
///
/// # Errors
/// Fails if one does not.
pub fn must_decide(choices: &[Choice]) -> Result<()> {
    match choices.iter().find(|choice| matches!(choice.0, Player::Rival(_))) {
        None => Ok(()),
        Some(rival) => Err(Failure::new(format_args!(
            "{} moves down while a CPU is idle instead of deciding; only replay, replay --rank and lab sweep can show it",
            rival.name()
        ))),
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
        let Player::Decider(Named::Port(spec, name)) = &choice.0 else { continue };
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
    let files = choices.iter().filter_map(Choice::file);
    let files = files.map(|file| format!("decisions of {}: {}", file.name, file.origin));
    releases.into_iter().map(phrase).chain(files).collect()
}

/// Returns the port with that name.
pub fn port(name: &str) -> Result<&'static GovernorSpec> {
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

const FILES: [(&str, &str); 3] = [
    (
        "FILE.c",
        "a kernel governor's C file, unmodified or with --patch, or one that includes \
         <idlewise_governor.h> (docs/plugins.md)",
    ),
    ("FILE.so", "the same, compiled by you"),
    ("FOLDER/", "a governor of several C files"),
];

/// Who can be named: what they are, and each name with its meaning.
pub type Group = (&'static str, Vec<(&'static str, &'static str)>);

/// Returns everything that `--governor` takes.
pub fn groups() -> [Group; 5] {
    let own = |role: Role| OWN.iter().filter(move |spec| spec.role == role);
    let own = |role| own(role).map(|spec| (spec.name, spec.meaning));
    let ports = GOVERNORS.iter().map(|spec| (spec.id, spec.meaning));
    [
        ("governor", ports.chain(own(Role::Governor)).collect()),
        ("bound", own(Role::Bound).collect()),
        ("oracle", vec![ORACLE]),
        ("rival", RIVALS.iter().map(|rival| (rival.name, rival.meaning)).collect()),
        ("file", FILES.to_vec()),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The name of a governor's type, without its path and parameters.
    struct TypeName;

    impl GovernorVisitor for TypeName {
        type Output = &'static str;

        fn visit<G: Governor>(self, _governor: G) -> &'static str {
            let name = std::any::type_name::<G>().split('<').next().unwrap_or_default();
            name.rsplit("::").next().unwrap_or_default()
        }
    }

    /// Adds the types of a folder's files that are governors.
    fn governors_in(folder: &Path, found: &mut BTreeSet<String>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                governors_in(&path, found);
                continue;
            }
            // Those of tests are indented, and so is what a macro makes.
            for line in fs::read_to_string(path).unwrap().lines() {
                let Some((before, after)) = line.split_once(" Governor for ") else { continue };
                let name = after.split(|c: char| !c.is_alphanumeric()).next().unwrap();
                if before.starts_with("impl") && !name.is_empty() {
                    found.insert(name.to_owned());
                }
            }
        }
    }

    /// Without its row a governor cannot be named, and the compiler does not warn.
    #[test]
    fn every_governor_has_a_row() {
        let machine = idlewise_machine::bundled("spr").unwrap();
        let own = OWN.iter().map(|spec| {
            let choice = Choice::parse(&spec.name.replace("STATE", "C6")).unwrap();
            let own = choice.own().unwrap().build(&machine, TICK_PERIOD_ANY_NS).unwrap();
            own.visit(TypeName).to_owned()
        });
        let ports = GOVERNORS.iter().map(|spec| spec.build(TICK_PERIOD_ANY_NS).visit(TypeName));
        let listed: BTreeSet<String> = own.chain(ports.map(str::to_owned)).collect();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut found = BTreeSet::new();
        for name in ["idlewise-core", "idlewise-linux"] {
            governors_in(&crates.join(name).join("src"), &mut found);
        }
        assert_eq!(found, listed, "a row of `roster!` or of `GOVERNORS` for each");
    }

    #[test]
    fn suggests_the_nearest_name() {
        let Err(Failure::Message(message)) = Choice::parse("meun") else { panic!() };
        assert_eq!(message, "no governor 'meun'; did you mean 'menu'?");
    }

    #[test]
    fn reads_the_price_of_delay() {
        let key = |name: &str| Choice::parse(name).map(|choice| choice.key()).ok();
        assert_eq!(key("hazard").as_deref(), Some("hazard:lambda=0.25"));
        assert_eq!(key("hazard:lambda=1").as_deref(), Some("hazard:lambda=1"));
        for name in
            ["hazard:lambda=17", "hazard:lambda=-1", "hazard:x", "hazard:lambda=NaN", "hazardx"]
        {
            assert!(Choice::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn only_who_has_no_price_is_told_one() {
        let told = |name: &str| Choice::parse(name).unwrap().told(Price::FULL).map(|it| it.key());
        assert_eq!(told("hazard").as_deref(), Some("hazard:lambda=1"));
        for name in ["hazard:lambda=0.5", "menu", "deepest", "oracle", "dpm"] {
            assert_eq!(told(name), None, "{name}");
        }
    }

    #[test]
    fn every_row_has_a_name_that_can_be_typed() {
        let machine = idlewise_machine::bundled("spr").unwrap();
        for spec in OWN {
            let name = spec.name.replace("STATE", "C6");
            let choice = Choice::parse(&name).unwrap();
            assert_eq!((choice.name(), choice.meaning()), (name, spec.meaning.to_owned()));
            choice.on(&machine).unwrap();
        }
        assert!(Choice::parse("fixed").is_err() && Choice::parse("deepest:x").is_err());
    }

    #[test]
    fn a_state_that_a_machine_lacks_is_an_error() {
        let machine = idlewise_machine::bundled("spr").unwrap();
        let fault =
            |name| Choice::parse(name).unwrap().on(&machine).map(|_| ()).unwrap_err().text();
        let names = "it has POLL, C1, C1E, C6";
        assert_eq!(fault("fixed=C9"), format!("machine spr has no state C9: {names}"));
        assert_eq!(fault("fixed=4"), format!("machine spr has no state 4: {names}"));
    }
}
