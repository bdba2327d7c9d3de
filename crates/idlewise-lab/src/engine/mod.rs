//! What the Python package uses: logs, machines, and replays under governors, also under the caller's own. Errors are
//! the command's messages.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Log`], and [`replay`] with a row for each log, machine, governor and price |
//! | `gaps.rs` | a row for each gap |
//! | `lanes.rs` | [`Lanes`]: many CPUs at once, whose decisions the caller makes |

mod gaps;
mod lanes;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use idlewise_core::{NO_LATENCY_LIMIT_NS, tick_period_ns};
use idlewise_report::cell::{CollectedCell, collected_table};
use idlewise_sim::replay::{DEFAULT_TICK_WORK_NS, Setting};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::bundled;
use crate::cells::priced::{Place, Priced, groups, places};
use crate::cells::{self, Cell, CellSetting, Shape, machine_sha256};
use crate::cells::{GOVERNORS_DEFAULT, LAMBDAS, MACHINES_DEFAULT, machines_or_usual};
use crate::error::Failure;
use crate::input::NamedLog;
pub use crate::roster::Make;
use crate::roster::{Choice, MakeGovernor};
use crate::target::{HZ_DEFAULT, ReplayTarget, targets};
use crate::unpack::Unpacking;

pub use gaps::{columns_of_lisa, gaps, replayed_gaps};
pub use lanes::{Asked, Lanes, LanesRequest};

/// How many lanes are replayed before the engine looks whether it is to stop.
const LANE_COUNT_MAX: usize = 64;

/// An idle log.
pub struct Log(NamedLog);

impl Log {
    /// The file's name without folder and extensions.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number of gaps.
    pub fn gap_count(&self) -> u64 {
        self.0.log.gap_count()
    }

    /// The file that it was read from; of a bundled log, its name.
    pub fn path(&self) -> &Path {
        self.0.log.path()
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

/// Returns the machines that are replayed by default.
pub fn machines_default() -> Vec<String> {
    MACHINES_DEFAULT.map(str::to_owned).into()
}

/// Returns the governors that are replayed by default.
pub fn governors_default() -> Vec<String> {
    GOVERNORS_DEFAULT.map(str::to_owned).into()
}

/// A governor, by name or the caller's own.
#[derive(Clone)]
pub enum Governor {
    /// As in `idlewise replay --help`.
    Name(String),
    /// The caller's own, with its name.
    Made(String, Make),
}

impl Governor {
    /// Its name in results.
    pub fn name(&self) -> &str {
        match self {
            Governor::Name(name) | Governor::Made(name, _) => name,
        }
    }
}

/// What to replay.
#[derive(Clone)]
pub struct Request {
    /// Ids or files.
    pub machines: Vec<String>,
    /// The governors.
    pub governors: Vec<Governor>,
    /// Prices of delay, in times the power of polling.
    pub lambdas: Vec<f64>,
    /// The tick's frequency; `None`: the recording's.
    pub hz: Option<u32>,
    /// The longest exit latency that is allowed.
    pub latency_limit_us: Option<u32>,
}

impl Request {
    /// The setting on a log and a machine.
    fn setting(&self, log: &Log, target: &ReplayTarget) -> Setting {
        let hz = self.hz.or(log.0.log.metadata.hz).unwrap_or(HZ_DEFAULT);
        let limit_ns = self.latency_limit_us.map(|us| i64::from(us) * 1_000);
        Setting {
            disabled: target.disabled,
            latency_limit_ns: limit_ns.unwrap_or(NO_LATENCY_LIMIT_NS),
            ..Setting::new(target.states, tick_period_ns(hz))
        }
    }

    fn check(&self) -> Result<(), Failure> {
        let lambdas = &self.lambdas;
        if lambdas.is_empty() || !lambdas.iter().all(|lambda| LAMBDAS.contains(lambda)) {
            return Err(Failure::new("lambdas: one or more numbers from 0 to 16"));
        }
        if self.hz.is_some_and(|hz| !(10..=10_000).contains(&hz)) {
            return Err(Failure::new("hz: a number from 10 to 10000"));
        }
        Ok(())
    }
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
) -> Result<RecordBatch, String> {
    rows(logs, request, is_stopped).map_err(|failure| failure.text())
}

fn rows(
    logs: &[Arc<Log>],
    request: &Request,
    is_stopped: &AtomicBool,
) -> Result<RecordBatch, Failure> {
    request.check()?;
    let lambdas = &request.lambdas;
    let choices: Vec<Choice> =
        request.governors.iter().map(choice).collect::<Result<_, Failure>>()?;
    let targets = targets(&machines_or_usual(&request.machines), &choices, &[], &[])?;
    let hashes: Vec<String> = targets.iter().map(|it| machine_sha256(&it.machine)).collect();
    let setting = CellSetting {
        hz: request.hz,
        latency_limit_us: request.latency_limit_us,
        tick_work_ns: DEFAULT_TICK_WORK_NS,
    };
    let shapes = [Shape::Default];
    let places = places(&targets, &hashes, &choices, &[setting], &shapes, lambdas);
    // Threads would only wait for the interpreter's lock.
    let is_alone = choices.iter().any(|choice| matches!(choice, Choice::Made(..)));
    let pool = pool(is_alone)?;
    let mut rows: Vec<Priced> = Vec::new();
    for log in logs {
        let mut results = Vec::with_capacity(places.len());
        for places in places.chunks(LANE_COUNT_MAX) {
            // Relaxed is enough: it only has to be seen some time.
            if is_stopped.load(Ordering::Relaxed) {
                results.extend(places.iter().map(|_| None));
                continue;
            }
            let cells: Vec<&Cell<'_>> = places.iter().map(|place| &place.cell).collect();
            let done = pool.install(|| cells::replay(&log.0, "", &cells, &|_| {}))?;
            results.extend(done.into_iter().map(Result::ok));
        }
        let cells: Vec<(&Place<'_>, _)> = places.iter().zip(results).collect();
        for group in groups(cells) {
            group.price(&shapes, lambdas, log.name(), &mut rows);
        }
    }
    let rows: Vec<CollectedCell<'_>> = rows.iter().map(Priced::collected).collect();
    Ok(collected_table(&rows).to_arrow())
}

/// Threads for a replay, or this thread alone.
fn pool(is_alone: bool) -> Result<ThreadPool, Failure> {
    let pool = match is_alone {
        true => ThreadPoolBuilder::new().num_threads(1).use_current_thread(),
        false => ThreadPoolBuilder::new(),
    };
    pool.build().map_err(|error| Failure::new(format_args!("cannot start threads: {error}")))
}

fn choice(governor: &Governor) -> Result<Choice, Failure> {
    match governor {
        Governor::Made(name, make) => Ok(Choice::Made(name.clone(), MakeGovernor(make.clone()))),
        Governor::Name(name) if idlewise_plugin::GovernorSource::is_path(name) => {
            Err(Failure::new(format_args!(
                "{name}: governors from C files run in the command only: `idlewise replay --governor {name}`"
            )))
        }
        Governor::Name(name) if name == "oracle" => Err(Failure::new(
            "every regret is already against the oracle; leave the governor 'oracle' out",
        )),
        Governor::Name(name) => Choice::parse(name),
    }
}
