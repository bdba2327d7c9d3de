//! What the Python package uses: logs, machines, and replays under governors, also under the caller's own. Errors are
//! the command's messages.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Log`], and [`replay`] with a row for each log, machine, governor and price |
//! | `gaps.rs` | a row for each gap |
//! | `decisions.rs` | a row for each decision |
//! | `running.rs` | a row for each time that a task ran, and that a frequency was set |
//! | `window.rs` | [`window()`]: a part of a log, as a log |
//! | `lanes.rs` | [`Lanes`]: many CPUs at once, whose decisions the caller makes |

mod decisions;
mod gaps;
mod lanes;
mod running;
mod window;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use idlewise_plugin::GovernorSource;
use idlewise_report::cell::collected_table;
use idlewise_sim::contest::{Price, Shape};
use idlewise_sim::replay::Setting;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::bundled;
pub use crate::cells::GOVERNORS_DEFAULT;
use crate::cells::{self, Cell, Contest, MACHINES_DEFAULT};
use crate::error::{Failure, Result};
use crate::input::{NamedLog, path_end, short_name, told_apart};
pub use crate::roster::{Choice, Make};
pub use crate::target::RECORDED;
use crate::target::{AskedMachines, Conditions, ReplayTarget, Targets};
use crate::unpack::Unpacking;

pub use decisions::decisions;
pub use gaps::{columns_of_lisa, gap_counts, gaps, replayed_gaps};
pub use lanes::{Asked, Lanes, LanesRequest};
pub use running::{frequencies, tasks};
pub use window::{Window, window};

/// How many lanes are replayed before the engine looks whether it is to stop.
const LANE_COUNT_MAX: usize = 64;

/// An idle log.
pub struct Log(NamedLog);

impl Log {
    /// Opens what was fetched from a URL into an open file.
    ///
    /// # Errors
    /// Fails if it is no log and no recording.
    pub fn fetched(url: &str, file: File) -> Result<Self, String> {
        let path = Path::new(url);
        let log = NamedLog::of_file(path, file, short_name(path), Unpacking::default());
        log.map(Log).map_err(|failure| failure.text())
    }

    /// The file's name without folder and extensions.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number of gaps.
    pub fn gap_count(&self) -> u64 {
        self.0.log.gap_count()
    }

    /// The hash of the file that it was read from; `None` if that was a pipe or a URL.
    ///
    /// # Errors
    /// If the file cannot be read, or was replaced.
    pub fn sha256(&self) -> Result<Option<String>, String> {
        self.0.sha256().map_err(|failure| failure.text())
    }

    /// Checks that the file that it was read from is still there, unchanged.
    ///
    /// # Errors
    /// If it is not.
    pub fn must_be_unchanged(&self) -> Result<(), String> {
        self.0.must_be_unchanged().map_err(|failure| failure.text())
    }

    /// The metadata, as JSON.
    pub fn metadata_json(&self) -> String {
        serde_json::to_string(&self.0.log.metadata).expect("metadata has only string keys")
    }
}

/// Opens a log, or converts a recording.
///
/// # Errors
/// Says which file cannot be read, and why.
pub fn open(path: &Path) -> Result<Log, String> {
    NamedLog::open(path, Unpacking::default()).map(Log).map_err(|failure| failure.text())
}

/// Returns the bundled logs.
///
/// # Errors
/// If the program was built from damaged ones.
pub fn bundled_logs() -> Result<Vec<Log>, String> {
    let logs = bundled::logs().map_err(|failure| failure.text())?;
    Ok(logs.into_iter().map(Log).collect())
}

/// Returns the ids of the bundled machines that can be replayed.
pub fn machine_ids() -> Vec<&'static str> {
    bundled::replayable_ids().collect()
}

/// Finds a governor by name, as in `idlewise replay --help`.
///
/// # Errors
/// If there is none, or if only the command can run it.
pub fn governor(name: &str) -> Result<Choice, String> {
    if GovernorSource::is_path(name) {
        return Err(format!(
            "{name}: governors from C files run in the command only: `idlewise replay --governor {name}`"
        ));
    }
    let choice = Choice::parse(name).map_err(|failure| failure.text())?;
    match choice.is_oracle() {
        true => Err("every regret is already against the oracle; leave the governor 'oracle' out"
            .to_owned()),
        false => Ok(choice),
    }
}

/// What to replay.
#[derive(Clone)]
pub struct Request {
    /// Ids, files or `recorded`; without any, it is `recorded`, and [`MACHINES_DEFAULT`] for logs without states.
    pub machines: Vec<String>,
    /// The governors: [`governor`]s, or the caller's own ([`Choice::made`]).
    pub governors: Vec<Choice>,
    /// Prices of delay, in times the power of polling.
    pub lambdas: Vec<f64>,
    /// The tick's frequency; `None`: the recording's.
    pub hz: Option<u32>,
    /// The longest exit latency that is allowed.
    pub latency_limit_us: Option<u32>,
}

impl Request {
    /// What a replay depends on.
    fn conditions(&self) -> Result<Conditions> {
        if self.hz.is_some_and(|hz| !(10..=10_000).contains(&hz)) {
            return Err(Failure::new("hz: a number from 10 to 10000"));
        }
        let (hz, latency_limit_us) = (self.hz, self.latency_limit_us);
        Ok(Conditions { hz, latency_limit_us, ..Conditions::default() })
    }

    /// The only governor, told the price if it needs one, on the only machine.
    fn one_on(&self, log: &Log, what: &str) -> Result<One> {
        let several =
            || Failure::new(format_args!("{what}: one governor, one machine and one price"));
        let ([choice], [price]) = (&*self.governors, &*self.prices()?) else {
            return Err(several());
        };
        let metadata = &log.0.log.metadata;
        let asked = AskedMachines::new(&self.machines, &self.governors, &[], &[])?;
        let Targets { targets, .. } = asked.on([(log.name(), metadata)].into_iter(), &[])?;
        let [target] = <[ReplayTarget; 1]>::try_from(targets).map_err(|_| several())?;
        let setting = target.setting(self.conditions()?, metadata);
        let choice = choice.told(*price).unwrap_or_else(|| choice.clone());
        Ok(One { choice, target, setting, price: *price })
    }

    fn prices(&self) -> Result<Vec<Price>> {
        let prices: Option<Vec<Price>> = self.lambdas.iter().copied().map(Price::times).collect();
        prices
            .filter(|prices| !prices.is_empty())
            .ok_or_else(|| Failure::new("lambdas: one or more numbers from 0 to 16"))
    }
}

/// What is replayed alone, to look at it closely.
struct One {
    choice: Choice,
    target: ReplayTarget,
    setting: Setting,
    price: Price,
}

/// The rows of a replay, and what it was on.
pub struct Replayed {
    /// A row for each log, machine, governor and price.
    pub rows: RecordBatch,
    /// The logs' names in the rows.
    pub logs: Vec<String>,
    /// The machines' names in the rows.
    pub machines: Vec<String>,
    /// Which logs have no states of their own, and what they were replayed on instead.
    pub assumed: Option<String>,
}

/// Replays logs, and returns a row for each log, machine, governor and price. It looks now and then whether it is to
/// stop, and then returns what it has.
///
/// # Errors
/// If a name is unknown, or a log is damaged.
pub fn replay(
    logs: &[Arc<Log>],
    request: &Request,
    is_stopped: &AtomicBool,
) -> Result<Replayed, String> {
    rows(logs, request, is_stopped).map_err(|failure| failure.text())
}

fn rows(logs: &[Arc<Log>], request: &Request, is_stopped: &AtomicBool) -> Result<Replayed> {
    let prices = request.prices()?;
    let conditions = request.conditions()?;
    let choices = &request.governors;
    let names = distinct_names(logs);
    let named = names.iter().zip(logs).map(|(name, log)| (&**name, &log.0.log.metadata));
    let asked = AskedMachines::new(&request.machines, choices, &[], &[])?;
    let Targets { targets, assumed } = asked.on(named, &MACHINES_DEFAULT)?;
    let contest = Contest {
        targets: &targets,
        choices,
        settings: &[conditions],
        shapes: &[Shape::Default],
        prices: &prices,
    };
    // Threads would only wait for the interpreter's lock.
    let pool = pool(choices.iter().any(Choice::is_made))?;
    let mut entries = Vec::new();
    for (index, log) in logs.iter().enumerate() {
        let cells = contest.cells_of(index);
        let mut results = Vec::with_capacity(cells.cells.len());
        for part in cells.cells.chunks(LANE_COUNT_MAX) {
            // Relaxed is enough: it only has to be seen some time.
            if is_stopped.load(Ordering::Relaxed) {
                results.extend(part.iter().map(|_| None));
                continue;
            }
            let part: Vec<&Cell<'_>> = part.iter().collect();
            let done = pool.install(|| cells::replay(&log.0, "", &part, &|_| {}))?;
            results.extend(done.into_iter().map(Result::ok));
        }
        entries.extend(cells.entries(&names[index], &results));
    }
    let machines = targets.iter().map(|target| target.machine.id.clone()).collect();
    Ok(Replayed { rows: collected_table(&entries).to_arrow(), logs: names, machines, assumed })
}

/// The logs' names, with as many of their files' folders as it takes to tell them apart.
fn distinct_names(logs: &[Arc<Log>]) -> Vec<String> {
    let folder = |log: &Log| log.0.log.path().parent().map(Path::to_owned).unwrap_or_default();
    let depth_max = logs.iter().map(|log| folder(log).components().count()).max().unwrap_or(0);
    let names = logs.iter().map(|log| log.name().to_owned()).collect();
    told_apart(names, &[], depth_max, |index, depth| {
        let log = &logs[index];
        format!("{}/{}", path_end(&folder(log), depth), log.name())
    })
}

/// Threads for a replay, or this thread alone.
fn pool(is_alone: bool) -> Result<ThreadPool> {
    let pool = match is_alone {
        true => ThreadPoolBuilder::new().num_threads(1).use_current_thread(),
        false => ThreadPoolBuilder::new(),
    };
    pool.build().map_err(|error| Failure::new(format_args!("cannot start threads: {error}")))
}
