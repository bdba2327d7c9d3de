//! A governor from a file, as replay uses it: compiled here, and run by workers.

use std::cell::{OnceCell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idlewise_core::{Context, Decision, Device, Governor, Outcome, StateTable};
use idlewise_sim::replay::{Lane, Setting, Tally};
use idlewise_trace::IdleGap;

use crate::compile::Compiler;
use crate::error::PluginError;
use crate::failure::{Failure, FailureCause, Place};
use crate::instance::Library;
use crate::page::SLOT_BYTE_COUNT;
use crate::source::GovernorSource;
use crate::worker::{self, Kind, Sent, Worker, WorkerCommand};

/// A governor from a file. Clones share the library, its workers and its failure.
#[derive(Clone)]
pub struct Plugin {
    shared: Arc<Shared>,
}

struct Shared {
    library: Library,
    command: WorkerCommand,
    is_confined: bool,
    doubt: Option<String>,
    /// Workers without a lane.
    idle: Arc<Mutex<Vec<Worker>>>,
    failure: Mutex<Option<Failure>>,
    /// What it printed in one of its lanes.
    printed: Mutex<String>,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin").field("library", &self.shared.library).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this program can load governors at all: a static one has no dynamic loader.
pub const CAN_LOAD: bool = !cfg!(target_feature = "crt-static");

impl Plugin {
    /// Compiles a source, unless it is in the cache, and checks that it can be loaded. Its code is confined
    /// if the compiler is.
    ///
    /// # Errors
    /// If it can't be compiled, loaded or confined, or if this program is linked statically.
    pub fn new(
        source: &GovernorSource,
        compiler: &Compiler,
        command: WorkerCommand,
    ) -> Result<Self, PluginError> {
        if !CAN_LOAD {
            return Err(PluginError::Static);
        }
        let is_confined = compiler.confines_code();
        let library = compiler.library(source, None)?;
        let plugin = Plugin {
            shared: Arc::new(Shared {
                library,
                command,
                is_confined,
                doubt: compiler.doubt(source),
                idle: Arc::default(),
                failure: Mutex::default(),
                printed: Mutex::default(),
            }),
        };
        let path = source.file();
        let worker = plugin.shared.worker().map_err(|error| match error {
            NoWorker::Io(error) => PluginError::NoWorker { error },
            NoWorker::NotLoadable(reason) => PluginError::NotLoadable { path, reason },
            NoWorker::NotConfined(reason) => PluginError::NotConfined { path, reason },
            NoWorker::Failed(cause) => {
                PluginError::NotLoadable { path, reason: format!("it {cause} when it was loaded") }
            }
        })?;
        lock(&plugin.shared.idle).push(worker);
        Ok(plugin)
    }

    /// Returns the same governor without its failure and its output, for another run. They share workers.
    #[must_use]
    pub fn anew(&self) -> Self {
        let Shared { library, command, is_confined, doubt, idle, .. } = &*self.shared;
        Plugin {
            shared: Arc::new(Shared {
                library: library.clone(),
                command: command.clone(),
                is_confined: *is_confined,
                doubt: doubt.clone(),
                idle: idle.clone(),
                failure: Mutex::default(),
                printed: Mutex::default(),
            }),
        }
    }

    /// Returns a hash of all that decides what the governor does: its text with what it includes, the compiler
    /// and its options; or the shared object.
    pub fn key(&self) -> &str {
        self.shared.library.key()
    }

    /// Returns what is less safe than it could be, as a phrase.
    pub fn doubt(&self) -> Option<&str> {
        self.shared.doubt.as_deref()
    }

    /// Returns what it did wrong, if anything. Its tallies are then empty.
    pub fn failure(&self) -> Option<Failure> {
        lock(&self.shared.failure).clone()
    }

    /// Returns what it printed in one of its lanes, or while it was loaded.
    pub fn printed(&self) -> String {
        lock(&self.shared.printed).clone()
    }

    /// Creates a lane for one CPU, run by a worker. `name` identifies it in a failure.
    pub fn lane(&self, setting: Setting, name: String) -> PluginLane {
        let mut bytes = Vec::new();
        worker::put_setting(&mut bytes, &setting);
        let remote = Remote::new(self.shared.clone(), name, Kind::Lane, &bytes);
        PluginLane {
            remote: RefCell::new(remote),
            setting,
            sent: Sent::default(),
            batch: RefCell::new(Vec::with_capacity(SLOT_BYTE_COUNT)),
            tally: OnceCell::new(),
        }
    }

    /// Creates a governor for one CPU, run by a worker. Every decision is a message to another process, so
    /// this is some hundred times slower than a lane.
    pub fn governor(&self, states: &StateTable, tick_period_ns: u32) -> RemoteGovernor {
        let mut bytes = Vec::new();
        worker::put_governor(&mut bytes, states, tick_period_ns);
        let name = "the run".to_owned();
        let remote = Remote::new(self.shared.clone(), name, Kind::Governor, &bytes);
        RemoteGovernor { remote, outcome: None }
    }
}

/// Why no worker could be started.
enum NoWorker {
    Io(std::io::Error),
    NotLoadable(String),
    NotConfined(String),
    Failed(FailureCause),
}

impl Shared {
    /// Starts a worker that has loaded the library.
    fn worker(&self) -> Result<Worker, NoWorker> {
        let mut worker = Worker::start(&self.command, self.is_confined).map_err(NoWorker::Io)?;
        let kinds = [Kind::Ready, Kind::NotLoadable, Kind::NotConfined];
        let answer = worker
            .send(Kind::Library, self.library.bytes())
            .and_then(|()| worker.receive(&kinds))
            .map_err(NoWorker::Failed)?;
        let words = |payload: Vec<u8>| String::from_utf8_lossy(&payload).into_owned();
        match answer {
            (Kind::Ready, _) => Ok(worker),
            (Kind::NotConfined, payload) => Err(NoWorker::NotConfined(words(payload))),
            (_, payload) => Err(NoWorker::NotLoadable(words(payload))),
        }
    }

    fn note_printed(&self, worker: &Worker) {
        let mut printed = lock(&self.printed);
        if printed.is_empty() {
            *printed = worker.printed();
        }
    }
}

/// A worker for one lane; `None` after an error.
struct Remote {
    shared: Arc<Shared>,
    name: String,
    worker: Option<Worker>,
}

impl Remote {
    fn new(shared: Arc<Shared>, name: String, kind: Kind, payload: &[u8]) -> Self {
        // One failure is enough; nobody waits for more.
        let has_failed = lock(&shared.failure).is_some();
        let waiting = if has_failed { None } else { lock(&shared.idle).pop() };
        let worker = waiting.map_or_else(
            || if has_failed { Err(FailureCause::Gone) } else { shared.next_worker() },
            Ok,
        );
        let mut remote = Remote { shared, name, worker: None };
        match worker {
            Ok(worker) => remote.worker = Some(worker),
            Err(cause) => remote.note_failure(cause),
        }
        remote.send(kind, payload);
        remote
    }

    /// Ends the worker. The first failure is kept.
    fn note_failure(&mut self, cause: FailureCause) {
        let place = self.worker.as_ref().map_or(Place::Loading, Worker::place);
        if let Some(worker) = self.worker.take() {
            self.shared.note_printed(&worker);
        }
        let failure = Failure { cause, lane: self.name.clone(), place };
        lock(&self.shared.failure).get_or_insert(failure);
    }

    fn send(&mut self, kind: Kind, payload: &[u8]) {
        let Some(worker) = &mut self.worker else { return };
        if let Err(cause) = worker.send(kind, payload) {
            self.note_failure(cause);
        }
    }

    fn send_gaps(&mut self, gaps: &[u8]) {
        let Some(worker) = &mut self.worker else { return };
        if let Err(cause) = worker.send_gaps(gaps) {
            self.note_failure(cause);
        }
    }

    /// Receives a message of the expected kind, and reads it with `get`.
    fn receive<T>(&mut self, expected: Kind, get: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let received = self.worker.as_mut()?.receive(&[expected]);
        let answer = received.and_then(|(_, payload)| get(&payload).ok_or(FailureCause::Forged));
        answer.map_err(|cause| self.note_failure(cause)).ok()
    }

    /// Returns the worker, if it can serve another lane.
    fn finish(&mut self, is_reusable: bool) {
        if let Some(worker) = self.worker.take() {
            self.shared.note_printed(&worker);
            if is_reusable {
                lock(&self.shared.idle).push(worker);
            }
        }
    }
}

impl Shared {
    /// Starts another worker, after one that ended normally.
    fn next_worker(&self) -> Result<Worker, FailureCause> {
        self.worker().map_err(|error| match error {
            NoWorker::Failed(cause) => cause,
            _ => FailureCause::Gone,
        })
    }
}

/// One CPU's lane in a worker. After a failure ([`Plugin::failure`]) its tally is empty.
pub struct PluginLane {
    remote: RefCell<Remote>,
    setting: Setting,
    sent: Sent,
    batch: RefCell<Vec<u8>>,
    tally: OnceCell<Tally>,
}

impl PluginLane {
    fn flush(&self) {
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            self.remote.borrow_mut().send_gaps(&batch);
            batch.clear();
        }
    }
}

impl Lane for PluginLane {
    fn replay(&mut self, gaps: &[IdleGap]) {
        let batch = self.batch.get_mut();
        for gap in gaps {
            self.sent.add(gap);
            worker::put_gap(batch, gap);
        }
        if batch.len() >= SLOT_BYTE_COUNT {
            self.flush();
        }
    }

    fn tally(&self) -> &Tally {
        self.tally.get_or_init(|| {
            self.flush();
            let mut remote = self.remote.borrow_mut();
            remote.send(Kind::End, &[]);
            let received = remote.receive(Kind::Tally, |payload| {
                let (is_reusable, tally) = worker::get_tally(payload)?;
                let is_possible = self.sent.allows(&tally, &self.setting);
                is_possible.then_some((is_reusable, tally))
            });
            let (is_reusable, tally) = received.unwrap_or_default();
            remote.finish(is_reusable);
            tally
        })
    }
}

/// A governor in a worker, asked for one decision at a time. After a failure ([`Plugin::failure`]) it
/// selects state 0.
///
/// It learns an outcome together with the next question, which halves the messages: a message takes longer than
/// a decision. What it changes in the device then is there after the next decision, so it never sees the last outcome.
pub struct RemoteGovernor {
    remote: Remote,
    /// What it does not know yet.
    outcome: Option<Outcome>,
}

impl RemoteGovernor {
    /// Ends with the first failure of any CPU: otherwise each would use up its time.
    fn stop_after_failure(&mut self) {
        if lock(&self.remote.shared.failure).is_some() {
            self.remote.worker = None;
        }
    }
}

impl Governor for RemoteGovernor {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        self.stop_after_failure();
        let mut bytes = Vec::new();
        worker::put_question(&mut bytes, self.outcome.take().as_ref(), context, device);
        self.remote.send(Kind::Select, &bytes);
        let state_count = context.states.len();
        let get = |payload: &[u8]| worker::get_answer(payload, state_count);
        match self.remote.receive(Kind::Answer, get) {
            Some((decision, timer_read_count, after)) => {
                context.count_sleep_length_calls(timer_read_count);
                *device = after;
                decision
            }
            None => Decision { state: 0, stop_tick: true },
        }
    }

    fn reflect(&mut self, outcome: &Outcome, _device: &mut Device) {
        self.outcome = Some(*outcome);
    }
}
