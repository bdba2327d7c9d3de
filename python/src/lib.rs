//! The compiled part of the Python package: types and functions of idlewise's engine, behind Python's.
//!
//! Long work runs on another thread without the interpreter's lock, while Python's main thread waits and looks for
//! signals, so that ctrl-c works. A governor in Python takes the lock for each call (`ending.rs` says until when).

mod ending;
mod governor;
mod lanes;
mod table;

#[cfg(feature = "command")]
use std::ffi::OsString;
use std::path::PathBuf;
#[cfg(feature = "command")]
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;
use idlewise_lab::engine;
#[cfg(feature = "command")]
use idlewise_lab::program;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::ending::Ticket;
use crate::governor::{Fault, Patience, State};
use crate::lanes::Lanes;
use crate::table::Batches;

pyo3::create_exception!(
    idlewise,
    IdlewiseError,
    PyException,
    "Something that idlewise cannot do. The message says where, what was found, and what to do."
);

/// How often to look for signals.
const LOOKS: Duration = Duration::from_millis(50);

fn failed(message: String) -> PyErr {
    IdlewiseError::new_err(message)
}

/// Runs long work on another thread. It has ended when this returns, except after a signal or if a governor takes longer
/// than its time limit: then the work is left to end by itself. `time_limit` is that of governors in Python; `None` if
/// there are none, so that the thread has nothing to do with the interpreter.
fn away<T: Send + 'static>(
    py: Python<'_>,
    fault: &Fault,
    time_limit: Option<Duration>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    // An exit handler calls, and nothing ends before it returns.
    let is_last = ending::has_begun();
    if is_last && time_limit.is_some() {
        return Err(failed("Python is ending, and calls no governors any more".to_owned()));
    }
    let (send, receive) = channel();
    let receive = Mutex::new(receive);
    let worker = thread::Builder::new().spawn(move || {
        let result = match time_limit {
            Some(_) => ending::attached(work),
            None => Some(work()),
        };
        // Whoever gets it may end the interpreter.
        drop(result.map(|result| send.send(result)));
    });
    let worker = worker.map_err(|error| {
        failed(format!(
            "cannot start a thread: {error}; allow more (`ulimit -u`, or a container's limit on processes)"
        ))
    })?;
    let mut patience = Patience::new(time_limit.unwrap_or(Duration::MAX));
    loop {
        let (waited, ticket) = py.detach(|| {
            let receive = receive.lock().unwrap_or_else(PoisonError::into_inner);
            (receive.recv_timeout(LOOKS), (!is_last).then(Ticket::get_or_park))
        });
        drop(ticket);
        match waited {
            Ok(result) => {
                // It has nothing left to do.
                let _ = worker.join();
                return Ok(result);
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(signal) = py.check_signals() {
                    fault.interrupt(py);
                    return Err(signal);
                }
                fault.check(py, &mut patience)?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failed("idlewise failed; please report it".to_owned()));
            }
        }
    }
}

/// Reads a table from a log.
fn read(
    py: Python<'_>,
    log: &Log,
    read: fn(&engine::Log) -> Result<Vec<RecordBatch>, String>,
) -> PyResult<Batches> {
    let log = log.0.clone();
    let batches = away(py, &Fault::default(), None, move || read(&log))?;
    Ok(Batches::new(batches.map_err(failed)?))
}

#[pyclass(frozen)]
struct Log(Arc<engine::Log>);

#[pymethods]
impl Log {
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn gap_count(&self) -> u64 {
        self.0.gap_count()
    }

    fn sha256(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let log = self.0.clone();
        away(py, &Fault::default(), None, move || log.sha256())?.map_err(failed)
    }

    fn metadata(&self) -> String {
        self.0.metadata_json()
    }

    fn must_be_unchanged(&self) -> PyResult<()> {
        self.0.must_be_unchanged().map_err(failed)
    }

    fn gaps(&self, py: Python<'_>) -> PyResult<Batches> {
        read(py, self, engine::gaps)
    }

    fn cpus_idle(&self, py: Python<'_>) -> PyResult<Batches> {
        read(py, self, engine::columns_of_lisa)
    }

    fn tasks(&self, py: Python<'_>) -> PyResult<Batches> {
        read(py, self, engine::tasks)
    }

    fn frequencies(&self, py: Python<'_>) -> PyResult<Batches> {
        read(py, self, engine::frequencies)
    }

    fn gap_counts(&self, py: Python<'_>) -> PyResult<Batches> {
        read(py, self, engine::gap_counts)
    }

    fn window(
        &self,
        py: Python<'_>,
        name: String,
        from_ns: Option<i64>,
        to_ns: Option<i64>,
        cpus: Option<Vec<u16>>,
    ) -> PyResult<Log> {
        let log = self.0.clone();
        let (from_ns, to_ns) = (from_ns.unwrap_or(i64::MIN), to_ns.unwrap_or(i64::MAX));
        let window = engine::Window { from_ns, to_ns, cpus };
        let made = away(py, &Fault::default(), None, move || engine::window(&log, &name, &window))?;
        Ok(Log(Arc::new(made.map_err(failed)?)))
    }
}

#[pyfunction]
fn open(py: Python<'_>, path: PathBuf) -> PyResult<Log> {
    let log = away(py, &Fault::default(), None, move || {
        #[cfg(feature = "command")]
        if let Some(url) = path.to_str().filter(|text| text.contains("://")) {
            return idlewise_cli::open_url(url);
        }
        engine::open(&path)
    })?;
    Ok(Log(Arc::new(log.map_err(failed)?)))
}

#[pyfunction]
fn bundled() -> PyResult<Vec<Log>> {
    let logs = engine::bundled_logs().map_err(failed)?;
    Ok(logs.into_iter().map(|log| Log(Arc::new(log))).collect())
}

#[pyfunction]
fn machines() -> Vec<&'static str> {
    engine::machine_ids()
}

/// What is replayed, as the package's Python passes it on.
#[derive(FromPyObject)]
struct Request {
    machines: Vec<String>,
    /// Each a name, and what makes a governor in Python.
    governors: Vec<(String, Option<Py<PyAny>>)>,
    lambdas: Vec<f64>,
    hz: Option<u32>,
    latency_limit_us: Option<u32>,
    time_limit_s: f64,
}

/// A request for the engine, and what goes wrong in its governors.
struct Asked {
    request: engine::Request,
    fault: Fault,
    /// Of governors in Python, if there are any.
    time_limit: Option<Duration>,
}

impl Request {
    fn asked(self) -> PyResult<Asked> {
        let Request { machines, lambdas, hz, latency_limit_us, time_limit_s, .. } = self;
        // Too long for a duration: it is not negative.
        let time_limit = Duration::try_from_secs_f64(time_limit_s).unwrap_or(Duration::MAX);
        let fault = Fault::default();
        let choice = |(name, class): (String, Option<Py<PyAny>>)| match class {
            Some(class) => Ok(governor::made(name, class, fault.clone())),
            None => engine::governor(&name).map_err(failed),
        };
        let governors: Vec<_> = self.governors.into_iter().map(choice).collect::<PyResult<_>>()?;
        let is_made = governors.iter().any(engine::Choice::is_made);
        let request = engine::Request { machines, governors, lambdas, hz, latency_limit_us };
        Ok(Asked { request, fault, time_limit: is_made.then_some(time_limit) })
    }
}

impl Asked {
    /// Does something with the request, on another thread. `Err` also if a governor in Python went wrong.
    fn away<T: Send + 'static>(
        self,
        py: Python<'_>,
        work: impl FnOnce(&engine::Request, &AtomicBool) -> Result<T, String> + Send + 'static,
    ) -> PyResult<T> {
        let Asked { request, fault, time_limit } = self;
        let is_stopped = fault.is_stopped();
        let result = away(py, &fault, time_limit, move || work(&request, &is_stopped))?;
        match fault.take() {
            Some(error) => Err(error),
            None => result.map_err(failed),
        }
    }
}

/// The rows of a replay, the logs' and the machines' names in them, and what to warn of.
#[pyfunction]
fn replay(
    py: Python<'_>,
    logs: Vec<PyRef<'_, Log>>,
    request: Request,
) -> PyResult<(Batches, [Vec<String>; 2], Option<String>)> {
    let logs = engine_logs(&logs);
    let engine::Replayed { rows, logs, machines, assumed } = request
        .asked()?
        .away(py, move |request, is_stopped| engine::replay(&logs, request, is_stopped))?;
    Ok((Batches::new(vec![rows]), [logs, machines], assumed))
}

fn engine_logs(logs: &[PyRef<'_, Log>]) -> Vec<Arc<engine::Log>> {
    logs.iter().map(|log| log.0.clone()).collect()
}

type OfOne = fn(&engine::Log, &engine::Request, &AtomicBool) -> Result<Vec<RecordBatch>, String>;

/// Rows of one governor on one log and machine at one price.
fn of_one(py: Python<'_>, log: &Log, request: Request, rows: OfOne) -> PyResult<Batches> {
    let log = log.0.clone();
    let asked = request.asked()?;
    let batches = asked.away(py, move |request, is_stopped| rows(&log, request, is_stopped))?;
    Ok(Batches::new(batches))
}

#[pyfunction]
fn replayed_gaps(py: Python<'_>, log: PyRef<'_, Log>, request: Request) -> PyResult<Batches> {
    of_one(py, &log, request, engine::replayed_gaps)
}

#[pyfunction]
fn decisions(py: Python<'_>, log: PyRef<'_, Log>, request: Request) -> PyResult<Batches> {
    of_one(py, &log, request, engine::decisions)
}

/// Runs the command with these arguments, the program's name first, and returns its exit status. `before` is how to
/// start it once more: a program and its arguments.
#[cfg(feature = "command")]
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>, before: Vec<OsString>) -> u8 {
    let mut before = before.into_iter();
    let path = before.next().map_or_else(PathBuf::new, PathBuf::from);
    program::set_started(program::Started { path, before: before.collect(), arguments });
    let status = py.detach(idlewise_cli::main);
    // A status tells its number only by comparison.
    (0..u8::MAX).find(|&number| ExitCode::from(number) == status).unwrap_or(u8::MAX)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("GOVERNORS_DEFAULT", engine::GOVERNORS_DEFAULT)?;
    module.add("IdlewiseError", module.py().get_type::<IdlewiseError>())?;
    module.add_class::<Lanes>()?;
    module.add_class::<Log>()?;
    module.add_class::<State>()?;
    module.add_class::<Batches>()?;
    module.add_function(wrap_pyfunction!(open, module)?)?;
    module.add_function(wrap_pyfunction!(bundled, module)?)?;
    module.add_function(wrap_pyfunction!(machines, module)?)?;
    #[cfg(feature = "command")]
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(replay, module)?)?;
    module.add_function(wrap_pyfunction!(replayed_gaps, module)?)?;
    module.add_function(wrap_pyfunction!(decisions, module)?)?;
    let settle = wrap_pyfunction!(ending::settle, module)?;
    module.py().import("atexit")?.call_method1("register", (settle,))?;
    Ok(())
}
