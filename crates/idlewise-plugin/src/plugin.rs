//! A governor from a file, as replay uses it: compiled here, run by workers.

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idlewise_core::{Context, Decision, Device, Governor, Outcome, StateTable};
use idlewise_sim::replay::{Lane, Setting, Tally};
use idlewise_trace::IdleGap;

use crate::compile::Compiler;
use crate::error::PluginError;
use crate::source::Source;
use crate::worker::{self, Failure, GAP_BYTE_COUNT, Kind, Message, Worker, WorkerCommand};

/// Gaps that are sent at once: enough that a message costs nothing, little enough for the caches.
const BATCH_BYTE_COUNT: usize = 1_024 * GAP_BYTE_COUNT;

/// A governor from a file. Clones share the library, its workers and its failure.
#[derive(Clone)]
pub struct Plugin {
    shared: Arc<Shared>,
}

struct Shared {
    library: PathBuf,
    command: WorkerCommand,
    /// Workers that wait for a lane.
    idle: Mutex<Vec<Worker>>,
    failure: Mutex<Option<Failure>>,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("library", &self.shared.library).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Plugin {
    /// Compiles a source, unless the cache has it, and sees whether it can be loaded.
    ///
    /// # Errors
    /// If it can't.
    pub fn new(
        source: &Source,
        compiler: &Compiler,
        command: WorkerCommand,
    ) -> Result<Self, PluginError> {
        let library = compiler.library(source, None)?;
        let plugin = Plugin {
            shared: Arc::new(Shared {
                library,
                command,
                idle: Mutex::default(),
                failure: Mutex::default(),
            }),
        };
        let mut worker = plugin.shared.worker().map_err(|error| PluginError::NoWorker { error })?;
        let not_loadable = |reason| Err(PluginError::NotLoadable { path: source.file(), reason });
        let Message { kind, payload } = worker.receive();
        match kind {
            Kind::Ready => {
                lock(&plugin.shared.idle).push(worker);
                Ok(plugin)
            }
            Kind::NotLoadable => {
                let words = String::from_utf8_lossy(&payload);
                // The library's own name is one of the cache's.
                let library = plugin.shared.library.display().to_string();
                not_loadable(words.trim_start_matches(&format!("{library}: ")).to_owned())
            }
            _ => not_loadable(format!(
                "it {} when it was loaded",
                worker::failure_of(&payload, "").cause
            )),
        }
    }

    /// The compiled library.
    pub fn library(&self) -> &std::path::Path {
        &self.shared.library
    }

    /// What it did wrong, if it did: its tallies are empty then.
    pub fn failure(&self) -> Option<Failure> {
        lock(&self.shared.failure).clone()
    }

    /// A lane for one CPU, run by a worker. `name` says which in a failure.
    pub fn lane(&self, setting: Setting, name: String) -> PluginLane {
        let mut bytes = Vec::new();
        worker::put_setting(&mut bytes, &setting);
        let remote = Remote::new(self.shared.clone(), name, Kind::Lane, &bytes);
        PluginLane {
            remote: RefCell::new(remote),
            batch: RefCell::new(Vec::with_capacity(BATCH_BYTE_COUNT)),
            tally: OnceCell::new(),
        }
    }

    /// A governor for one CPU, run by a worker: every question crosses to another process, so this
    /// is some hundred times slower than a lane.
    pub fn governor(&self, states: &StateTable, tick_period_ns: u32) -> RemoteGovernor {
        let mut bytes = Vec::new();
        worker::put_governor(&mut bytes, states, tick_period_ns);
        let name = "the replay".to_owned();
        RemoteGovernor { remote: Remote::new(self.shared.clone(), name, Kind::Governor, &bytes) }
    }
}

impl Shared {
    fn worker(&self) -> std::io::Result<Worker> {
        Worker::start(&self.command, &self.library)
    }

    /// A worker that has said that it is ready.
    fn ready_worker(&self) -> Option<Worker> {
        if let Some(worker) = lock(&self.idle).pop() {
            return Some(worker);
        }
        let mut worker = self.worker().ok()?;
        (worker.receive().kind == Kind::Ready).then_some(worker)
    }
}

/// A worker on one lane; none once something went wrong.
struct Remote {
    shared: Arc<Shared>,
    name: String,
    worker: Option<Worker>,
}

impl Remote {
    fn new(shared: Arc<Shared>, name: String, kind: Kind, payload: &[u8]) -> Self {
        // One failure is the result; nobody waits for more of them.
        let has_failed = lock(&shared.failure).is_some();
        let worker = if has_failed { None } else { shared.ready_worker() };
        let is_lost = !has_failed && worker.is_none();
        let mut remote = Remote { shared, name, worker };
        if is_lost {
            let bytes = [3_u64.to_le_bytes()].concat();
            remote.note_failure(&bytes);
        }
        remote.send(kind, payload);
        remote
    }

    fn note_failure(&mut self, payload: &[u8]) {
        self.worker = None;
        let failure = worker::failure_of(payload, &self.name);
        lock(&self.shared.failure).get_or_insert(failure);
    }

    fn send(&mut self, kind: Kind, payload: &[u8]) {
        let Some(worker) = &mut self.worker else { return };
        if worker.send(kind, payload).is_err() {
            // It said why before it closed its input.
            let message = worker.receive();
            self.note_failure(&message.payload);
        }
    }

    /// The answer of the kind expected.
    fn receive(&mut self, expected: Kind) -> Option<Vec<u8>> {
        let Message { kind, payload } = self.worker.as_mut()?.receive();
        if kind == expected {
            return Some(payload);
        }
        self.note_failure(&payload);
        None
    }

    /// Gives the worker back.
    fn finish(&mut self) {
        if let Some(worker) = self.worker.take() {
            lock(&self.shared.idle).push(worker);
        }
    }
}

/// One CPU's lane in a worker. After a failure ([`Plugin::failure`]) its tally is empty.
pub struct PluginLane {
    remote: RefCell<Remote>,
    batch: RefCell<Vec<u8>>,
    tally: OnceCell<Tally>,
}

impl PluginLane {
    fn flush(&self) {
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            self.remote.borrow_mut().send(Kind::Gaps, &batch);
            batch.clear();
        }
    }
}

impl Lane for PluginLane {
    fn replay(&mut self, gaps: &[IdleGap]) {
        let batch = self.batch.get_mut();
        for gap in gaps {
            worker::put_gap(batch, gap);
        }
        if batch.len() >= BATCH_BYTE_COUNT {
            self.flush();
        }
    }

    fn tally(&self) -> &Tally {
        self.tally.get_or_init(|| {
            self.flush();
            let mut remote = self.remote.borrow_mut();
            remote.send(Kind::End, &[]);
            let tally = remote.receive(Kind::Tally).map(|payload| worker::get_tally(&payload));
            remote.finish();
            tally.unwrap_or_default()
        })
    }
}

/// A governor in a worker, asked one decision at a time. After a failure ([`Plugin::failure`]) it
/// answers state 0.
pub struct RemoteGovernor {
    remote: Remote,
}

impl Governor for RemoteGovernor {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        let mut bytes = Vec::new();
        worker::put_question(&mut bytes, context, device);
        self.remote.send(Kind::Select, &bytes);
        match self.remote.receive(Kind::Answer) {
            Some(payload) => {
                let (decision, timer_read_count, after) = worker::get_answer(&payload);
                context.count_sleep_length_calls(timer_read_count);
                *device = after;
                decision
            }
            None => Decision { state: 0, stop_tick: true },
        }
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        let mut bytes = Vec::new();
        worker::put_outcome(&mut bytes, outcome, device);
        self.remote.send(Kind::Reflect, &bytes);
        if let Some(payload) = self.remote.receive(Kind::Device) {
            *device = worker::get_device(&payload);
        }
    }
}
