//! Cells: one player on one log, machine and setting. Whoever holds a contest asks for its cells; those that a store has
//! are read, and the others replayed, all of a log in one pass.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Contest`]: who plays where; its [`Cell`]s, how they are replayed, and the entries that they make |
//! | `store.rs` | [`CellStore`]: results in a folder or a bucket |
//! | `engine.txt` | what the governors' results are, so that nobody forgets to raise [`ENGINE`] |
//!
//! A tally does not depend on powers or prices, so a governor has one cell for all of them. One that is told the price
//! has one for each price. The oracle, and rivals that move down during the idle time, have one for each price and
//! shape.

mod store;

use std::slice::from_ref;

use idlewise_sim::CostModel;
use idlewise_sim::contest::{CellInputs, CellResult, Entry, Price, Seat, Shape, run};

pub use store::{CellStore, Known, SHARD_CELL_COUNT, Sink, cell_key, kept, kept_log_failure};

use crate::error::Result;
use crate::input::NamedLog;
use crate::roster::Choice;
use crate::target::{Conditions, ReplayTarget};

/// The version of what computes results: the replay, the governors and what reads recordings. Raise it with each change
/// after which results differ, so that sweeps compute them again; `engine.txt` has what they are.
pub const ENGINE: u32 = 3;

/// The governors of a contest, unless others are named.
pub const GOVERNORS_DEFAULT: [&str; 5] = ["menu", "menu-7.2", "teo", "ladder", "hazard"];
/// The machines, for recordings that do not say their own.
pub const MACHINES_DEFAULT: [&str; 6] = ["spr", "icx", "milan", "genoa", "skx", "skl-client"];

/// One player on one machine in one setting.
#[derive(Clone)]
pub struct Cell<'a> {
    /// The machine.
    pub target: &'a ReplayTarget,
    /// Who plays.
    pub choice: Choice,
    /// In which setting.
    pub setting: Conditions,
    /// Set only for the oracle and the rivals: the powers and the price that they know.
    priced: Option<(Shape, Price)>,
}

/// Who plays where.
#[derive(Clone, Copy)]
pub struct Contest<'a> {
    /// The machines.
    pub targets: &'a [ReplayTarget],
    /// The players, without the oracle.
    pub choices: &'a [Choice],
    /// The settings.
    pub settings: &'a [Conditions],
    /// The shapes of powers.
    pub shapes: &'a [Shape],
    /// The prices of delay.
    pub prices: &'a [Price],
}

/// The cells of a contest on any log, and which of them make an entry.
pub struct Cells<'a> {
    contest: Contest<'a>,
    /// For each setting and machine those of the players, and then those of the oracle.
    pub cells: Vec<Cell<'a>>,
    places: Vec<Place>,
}

/// An entry to be made: the indices of its player, its cell and the oracle's.
struct Place {
    choice: usize,
    shape: Shape,
    price: Price,
    own: usize,
    oracle: usize,
}

impl<'a> Contest<'a> {
    /// Every shape with every price.
    fn priced(&self) -> impl Iterator<Item = (Shape, Price)> {
        let Contest { shapes, prices, .. } = *self;
        shapes.iter().flat_map(|&shape| prices.iter().map(move |&price| (shape, price)))
    }

    /// The same for each setting and machine alone, in that order.
    pub fn parts(self) -> impl Iterator<Item = Contest<'a>> {
        let Contest { settings, targets, .. } = self;
        let pairs = settings.iter().flat_map(|it| targets.iter().map(move |target| (it, target)));
        pairs.map(move |(setting, target)| Contest {
            targets: from_ref(target),
            settings: from_ref(setting),
            ..self
        })
    }

    /// Makes the cells of all machines.
    pub fn cells(self) -> Cells<'a> {
        self.cells_on(&|_| true)
    }

    /// Makes the cells of the machines that the log with this index is replayed on.
    pub fn cells_of(self, log: usize) -> Cells<'a> {
        self.cells_on(&|target| target.is_for(log))
    }

    fn cells_on(self, is_on: &dyn Fn(&ReplayTarget) -> bool) -> Cells<'a> {
        let oracle = Choice::ORACLE;
        let mut made = Cells { contest: self, cells: Vec::new(), places: Vec::new() };
        for &setting in self.settings {
            for target in self.targets.iter().filter(|target| is_on(target)) {
                let cell = |choice, priced| Cell { target, choice, setting, priced };
                // For each player, the cells of every shape and price.
                let mut own: Vec<Vec<usize>> = Vec::new();
                for choice in self.choices.iter().chain([&oracle]) {
                    let from = made.cells.len();
                    let of_choice = self.priced().enumerate().map(|(index, (shape, price))| {
                        let at_price = from + index % self.prices.len();
                        if choice.is_priced() {
                            (from + index, choice.clone(), Some((shape, price)))
                        } else if let Some(told) = choice.told(price) {
                            (at_price, told, None)
                        } else {
                            (from, choice.clone(), None)
                        }
                    });
                    let of_choice = of_choice.map(|(at, choice, priced)| {
                        if at == made.cells.len() {
                            made.cells.push(cell(choice, priced));
                        }
                        at
                    });
                    own.push(of_choice.collect());
                }
                let Some(oracle) = own.pop() else { continue };
                for (choice, own) in own.iter().enumerate() {
                    let at = self.priced().zip(own.iter().zip(&oracle));
                    made.places.extend(at.map(|((shape, price), (&own, &oracle))| Place {
                        choice,
                        shape,
                        price,
                        own,
                        oracle,
                    }));
                }
            }
        }
        made
    }
}

impl Cells<'_> {
    /// Everything that the results of a log depend on.
    pub fn inputs(&self, log_sha256: &str) -> Vec<CellInputs> {
        self.cells.iter().map(|cell| cell.inputs(log_sha256)).collect()
    }

    /// Makes a log's entries of the results of all cells. Where one is missing, its entries are.
    pub fn entries(&self, log: &str, results: &[Option<CellResult>]) -> Vec<Entry> {
        let Contest { targets, choices, shapes, .. } = self.contest;
        let of_target = |target: &ReplayTarget| -> Vec<CostModel> {
            shapes.iter().map(|shape| shape.costs(&target.machine, &target.costs)).collect()
        };
        let models: Vec<Vec<CostModel>> = targets.iter().map(of_target).collect();
        let entry = |place: &Place| {
            let Place { choice, shape, price, own, oracle } = *place;
            let is_own = |target: &ReplayTarget| std::ptr::eq(target, self.cells[own].target);
            let models = &models[targets.iter().position(is_own)?];
            let costs = &models[shapes.iter().position(|other| *other == shape)?];
            let (own, oracle) = (results[own].as_ref()?, results[oracle].as_ref()?);
            Some(Entry::new((log, choices[choice].name()), (shape, price), costs, own, oracle))
        };
        self.places.iter().filter_map(entry).collect()
    }
}

impl Cell<'_> {
    /// Returns the same cell without what its governor did wrong in others.
    pub fn anew(&self) -> Self {
        Cell { choice: self.choice.anew(), ..self.clone() }
    }

    /// Everything that the result depends on.
    pub fn inputs(&self, log_sha256: &str) -> CellInputs {
        let Conditions { hz, latency_limit_us, tick_work_ns } = self.setting;
        CellInputs {
            engine: ENGINE,
            log_sha256: log_sha256.to_owned(),
            machine: self.target.machine.id.clone(),
            machine_sha256: self.target.sha256.clone(),
            governor: self.choice.key(),
            governor_key: self.choice.file_key(),
            hz,
            latency_limit_us,
            tick_work_ns,
            priced: self
                .priced
                .and_then(|(shape, price)| Some((shape.name().to_owned(), price.as_times()?))),
        }
    }
}

/// Replays a log through all these cells in one pass. A governor's file that fails costs only its own cells; the
/// others' results are there. `progress` is as for [`run`].
///
/// # Errors
/// Fails if the log is damaged.
pub fn replay(
    log: &NamedLog,
    log_sha256: &str,
    cells: &[&Cell<'_>],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Result<CellResult, String>>> {
    let priced = |cell: &Cell<'_>| cell.priced.unwrap_or((Shape::Default, Price::FREE));
    let model = |cell: &&Cell<'_>| priced(cell).0.costs(&cell.target.machine, &cell.target.costs);
    let models: Vec<CostModel> = cells.iter().map(model).collect();
    let mut seats = Vec::with_capacity(cells.len());
    for (cell, costs) in cells.iter().zip(&models) {
        let Cell { target, choice, setting, .. } = cell;
        seats.push(Seat {
            player: choice.on(&target.machine)?,
            costs,
            setting: target.setting(*setting, &log.log.metadata),
            price: priced(cell).1,
            groups: None,
        });
    }
    let (tallies, _) = run(&log.log, &log.name, &seats, &[], progress)?;
    let result = |(cell, tally): (&&Cell<'_>, _)| match cell.choice.failure() {
        Some(failure) => Err(failure),
        None => {
            let Cell { target, setting, .. } = cell;
            let hz = setting.hz_of(&log.log.metadata);
            let inputs = cell.inputs(log_sha256);
            Ok(CellResult::new(inputs, hz, &tally, &target.machine, &target.costs))
        }
    };
    Ok(cells.iter().zip(tallies).map(result).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Write;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::bundle::Sums;
    use crate::roster::groups;
    use crate::target::targets;
    use crate::unpack::Unpacking;

    /// What each governor does to some logs and recordings on some machines, as one hash.
    fn results() -> BTreeMap<String, String> {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
        let logs = [
            "a-idle.perf.data.xz",
            "b-redis.parquet",
            "k-pingpong-v7.trace.dat.xz",
            "l-pingpong.tracefs.txt.xz",
            "s-softirq500.parquet",
        ];
        let names = groups().into_iter().flat_map(|(_, names)| names);
        // Forms of files are no governors.
        let choices: Vec<Choice> = names
            .filter(|(name, _)| !name.contains(char::is_uppercase))
            .filter_map(|(name, _)| Choice::parse(name).ok())
            .collect();
        let choices: Vec<Choice> = choices.into_iter().filter(|it| !it.is_oracle()).collect();
        let targets = targets(&["spr", "milan", "skl-client"], &choices).unwrap();
        let settings = [
            Conditions::default(),
            Conditions { hz: Some(1000), latency_limit_us: Some(50), ..Conditions::default() },
        ];
        let shapes = [Shape::Default];
        let prices = Price::STANDARD;
        let contest = Contest {
            targets: &targets,
            choices: &choices,
            settings: &settings,
            shapes: &shapes,
            prices: &prices,
        };
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        for log in logs {
            let named = NamedLog::open(&traces.join(log), Unpacking::default()).unwrap();
            let cells = contest.cells();
            let all: Vec<&Cell<'_>> = cells.cells.iter().collect();
            for result in replay(&named, "", &all, &|_| {}).unwrap() {
                let result = result.unwrap();
                let text = texts.entry(result.inputs.governor.clone()).or_default();
                // Machines' files and engines are inputs of their own.
                let inputs =
                    CellInputs { engine: 0, machine_sha256: String::new(), ..result.inputs };
                let result = CellResult { inputs, ..result };
                writeln!(text, "{result:?}").unwrap();
            }
        }
        let hash = |text: String| Sums::of(text.as_bytes())[..16].to_owned();
        texts.into_iter().map(|(name, text)| (name, hash(text))).collect()
    }

    /// Cells of an engine are never computed again, so another engine has to have another number.
    /// IDLEWISE_GOLDEN=rewrite writes what results are now, if that is allowed.
    #[test]
    fn results_differ_only_with_the_engine() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cells/engine.txt");
        let saved = fs::read_to_string(&path).unwrap_or_default();
        let now = results();
        let mut text = format!("engine {ENGINE}\n");
        now.iter().for_each(|(name, hash)| writeln!(text, "{hash} {name}").unwrap());
        if saved == text {
            return;
        }
        let saved_engine = saved.lines().next().and_then(|line| line.strip_prefix("engine "));
        let saved_engine: u32 = saved_engine.map_or(0, |number| number.parse().unwrap());
        let is_changed = |line: &&str| match line.split_once(' ') {
            Some((hash, name)) => now.get(name).is_some_and(|now| now != hash),
            None => false,
        };
        let changed: Vec<&str> = saved.lines().skip(1).filter(is_changed).collect();
        assert!(
            changed.is_empty() || ENGINE > saved_engine,
            "other results than engine {saved_engine} had: raise ENGINE. {changed:?}"
        );
        assert!(ENGINE >= saved_engine, "ENGINE only ever rises");
        assert_eq!(
            std::env::var("IDLEWISE_GOLDEN").as_deref(),
            Ok("rewrite"),
            "{}: not up to date",
            path.display()
        );
        fs::write(&path, text).unwrap();
    }

    /// Each entry has the cell of its own player, machine, setting, shape and price, and the oracle's.
    #[test]
    fn an_entry_is_made_of_its_own_cells() {
        let names = ["menu", "hazard", "dpm", "hazard:lambda=1", "deepest"];
        let choices = names.map(|name| Choice::parse(name).unwrap());
        let targets = targets(&["spr", "milan"], &choices).unwrap();
        let settings = [None, Some(100)].map(|hz| Conditions { hz, ..Conditions::default() });
        let contest = Contest {
            targets: &targets,
            choices: &choices,
            settings: &settings,
            shapes: &[Shape::Flat, Shape::Steep],
            prices: &Price::STANDARD,
        };
        let cells = contest.cells();
        // menu, hazard at three prices, dpm and the oracle at two shapes and three prices, and two more.
        assert_eq!(cells.cells.len(), 2 * 2 * (1 + 3 + 6 + 1 + 1 + 6));
        assert_eq!(cells.places.len(), 2 * 2 * 5 * 6);
        for (index, place) in cells.places.iter().enumerate() {
            let (own, oracle) = (&cells.cells[place.own], &cells.cells[place.oracle]);
            let at = Some((place.shape, place.price));
            assert!(oracle.choice.is_oracle() && oracle.priced == at, "{index}");
            let choice = &choices[place.choice];
            assert_eq!(own.choice.name(), choice.name());
            assert_eq!(own.priced, choice.is_priced().then_some(at).flatten());
            let key = choice.told(place.price).map_or_else(|| choice.key(), |told| told.key());
            assert_eq!(own.choice.key(), key);
            assert_eq!(
                (own.setting, &own.target.machine.id),
                (oracle.setting, &oracle.target.machine.id)
            );
            let of_target = cells.places.len() / 4;
            assert_eq!(own.setting, settings[index / of_target / 2]);
            assert_eq!(own.target.machine.id, targets[index / of_target % 2].machine.id);
        }
    }
}
