//! The compiled part of the Python package: types and functions of idlewise's engine, behind Python's.
//!
//! Long work runs on another thread without the interpreter's lock, while Python's main thread waits and looks for
//! signals, so that ctrl-c works. A governor in Python takes the lock for each call (`ending.rs` says until when).

mod ending;
mod governor;
mod lanes;
mod table;

use std::ffi::CString;
#[cfg(feature = "command")]
use std::ffi::OsString;
use std::path::PathBuf;
#[cfg(feature = "command")]
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use idlewise_lab::engine;
#[cfg(feature = "command")]
use idlewise_lab::program;
use pyo3::exceptions::{PyException, PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::ending::Ticket;
use crate::governor::{Fault, Patience, State};
use crate::lanes::Lanes;
use crate::table::Table;

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
    let worker = thread::spawn(move || {
        let result = match time_limit {
            Some(_) => ending::attached(work),
            None => Some(work()),
        };
        // Whoever gets it may end the interpreter.
        drop(result.map(|result| send.send(result)));
    });
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
    read: fn(&engine::Log) -> Result<Vec<arrow_array::RecordBatch>, String>,
) -> PyResult<Table> {
    let log = log.0.clone();
    let batches = away(py, &Fault::default(), None, move || read(&log))?;
    Ok(Table::new(batches.map_err(failed)?))
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

    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn metadata(&self) -> String {
        self.0.metadata_json()
    }

    fn gaps(&self, py: Python<'_>) -> PyResult<Table> {
        read(py, self, engine::gaps)
    }

    fn cpus_idle(&self, py: Python<'_>) -> PyResult<Table> {
        read(py, self, engine::columns_of_lisa)
    }

    fn __repr__(&self) -> String {
        format!("<idlewise.Log {}: {} gaps>", self.0.name(), self.0.gap_count())
    }
}

/// The time limit of governors in Python, if there are any.
fn request_limit(request: &engine::Request, time_limit: Duration) -> Option<Duration> {
    request.governors.iter().any(engine::Choice::is_made).then_some(time_limit)
}

#[pyclass(frozen)]
struct Runs {
    table: Table,
    logs: Vec<Arc<engine::Log>>,
    /// As they were given, or else as the rows have them.
    machines: Vec<String>,
    request: engine::Request,
    /// Of the governors in Python.
    fault: Fault,
    time_limit: Duration,
}

/// The index of the one that is named, or of the only one.
fn one<T>(
    what: &str,
    all: &[T],
    name: impl Fn(&T) -> String,
    wish: Option<&str>,
) -> PyResult<usize> {
    let names = || all.iter().map(&name).collect::<Vec<_>>().join(", ");
    match wish {
        None if all.len() == 1 => Ok(0),
        None => Err(PyValueError::new_err(format!("name the {what}: {}", names()))),
        Some(wish) => all.iter().position(|it| name(it) == wish).ok_or_else(|| {
            PyValueError::new_err(format!("the runs have no {what} '{wish}', but {}", names()))
        }),
    }
}

#[pymethods]
impl Runs {
    fn table(&self) -> Table {
        self.table.clone()
    }

    #[pyo3(signature = (governor, *, log = None, machine = None, lambda_ = 0.25))]
    fn gaps(
        &self,
        py: Python<'_>,
        governor: &str,
        log: Option<&str>,
        machine: Option<&str>,
        lambda_: f64,
    ) -> PyResult<Table> {
        let Runs { logs, machines, request, fault, time_limit, .. } = self;
        let governor = one("governor", &request.governors, engine::Choice::name, Some(governor))?;
        let log = one("log", logs, |it| it.name().to_owned(), log)?;
        let machine = &machines[one("machine", machines, String::clone, machine)?];
        // The log says which machine it was recorded on.
        let is_recorded =
            machine.strip_prefix(engine::RECORDED).is_some_and(|it| it.starts_with(':'));
        let machine = if is_recorded { engine::RECORDED } else { machine };
        let request = engine::Request {
            governors: vec![request.governors[governor].clone()],
            machines: vec![machine.to_owned()],
            lambdas: vec![lambda_],
            ..request.clone()
        };
        let log = logs[log].clone();
        fault.reset();
        let is_stopped = fault.is_stopped();
        let limit = request_limit(&request, *time_limit);
        let work = move || engine::replayed_gaps(&log, &request, &is_stopped);
        let replayed = away(py, fault, limit, work)?;
        if let Some(error) = fault.take() {
            return Err(error);
        }
        Ok(Table::new(replayed.map_err(failed)?))
    }
}

#[pyfunction]
fn open(py: Python<'_>, path: PathBuf) -> PyResult<Log> {
    let log = away(py, &Fault::default(), None, move || engine::open(&path))?;
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

/// One log, or several.
#[derive(FromPyObject)]
enum Logs<'py> {
    One(PyRef<'py, Log>),
    Many(Vec<PyRef<'py, Log>>),
}

impl Logs<'_> {
    fn list(&self) -> Vec<Arc<engine::Log>> {
        match self {
            Logs::One(log) => vec![log.0.clone()],
            Logs::Many(logs) => logs.iter().map(|log| log.0.clone()).collect(),
        }
    }
}

/// A name, or something to call.
#[derive(FromPyObject)]
enum GovernorArgument<'py> {
    Name(String),
    Class(Bound<'py, PyAny>),
}

#[pyfunction]
#[pyo3(signature = (
    logs, *, machines = Vec::new(), governors = None, lambdas = vec![0.0, 0.25, 1.0],
    hz = None, latency_limit_us = None, time_limit_s = 10.0
))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
fn replay(
    py: Python<'_>,
    logs: Logs<'_>,
    machines: Vec<String>,
    governors: Option<Vec<GovernorArgument<'_>>>,
    lambdas: Vec<f64>,
    hz: Option<u32>,
    latency_limit_us: Option<u32>,
    time_limit_s: f64,
) -> PyResult<Runs> {
    let logs = logs.list();
    let time_limit = Duration::try_from_secs_f64(time_limit_s)
        .map_err(|_| PyValueError::new_err("time_limit_s: a number of seconds, 0 or more"))?;
    let fault = Fault::default();
    let mut asked = Vec::new();
    match governors {
        None => {
            for name in engine::GOVERNORS_DEFAULT {
                asked.push(engine::governor(name).map_err(failed)?);
            }
        }
        Some(arguments) => {
            for argument in arguments {
                asked.push(match argument {
                    GovernorArgument::Name(name) => engine::governor(&name).map_err(failed)?,
                    GovernorArgument::Class(class) => {
                        if !class.is_callable() {
                            let message = "a governor is a name or a class";
                            return Err(PyTypeError::new_err(message));
                        }
                        let name = match class.cast::<PyType>() {
                            Ok(class) => class.name()?.to_string(),
                            Err(_) => class.repr()?.to_string(),
                        };
                        governor::made(name, class.unbind(), fault.clone())
                    }
                });
            }
        }
    }
    let request = engine::Request { machines, governors: asked, lambdas, hz, latency_limit_us };
    let is_stopped = fault.is_stopped();
    let work = {
        let (logs, request) = (logs.clone(), request.clone());
        move || engine::replay(&logs, &request, &is_stopped)
    };
    let replayed = away(py, &fault, request_limit(&request, time_limit), work)?;
    if let Some(error) = fault.take() {
        return Err(error);
    }
    let engine::Replayed { rows, mut machines, assumed } = replayed.map_err(failed)?;
    if let Some(assumed) = assumed {
        let category = py.get_type::<PyUserWarning>();
        PyErr::warn(py, &category, &CString::new(assumed.replace("--machine", "machines="))?, 1)?;
    }
    if !request.machines.is_empty() {
        machines.clone_from(&request.machines);
    }
    let table = Table::new(vec![rows]);
    Ok(Runs { table, logs, machines, request, fault, time_limit })
}

/// Runs the command with these arguments, the program's name first, and returns its exit status. `before` is how to
/// start it once more: a program and its arguments.
#[cfg(feature = "command")]
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>, before: Vec<OsString>, code: PathBuf) -> u8 {
    let mut before = before.into_iter();
    let path = before.next().map_or_else(PathBuf::new, PathBuf::from);
    program::set_started(program::Started { path, before: before.collect(), code, arguments });
    let status = py.detach(idlewise_cli::main);
    // A status tells its number only by comparison.
    (0..u8::MAX).find(|&number| ExitCode::from(number) == status).unwrap_or(u8::MAX)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("IdlewiseError", module.py().get_type::<IdlewiseError>())?;
    module.add_class::<Lanes>()?;
    module.add_class::<Log>()?;
    module.add_class::<Runs>()?;
    module.add_class::<State>()?;
    module.add_class::<Table>()?;
    module.add_function(wrap_pyfunction!(open, module)?)?;
    module.add_function(wrap_pyfunction!(bundled, module)?)?;
    module.add_function(wrap_pyfunction!(machines, module)?)?;
    #[cfg(feature = "command")]
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(replay, module)?)?;
    let settle = wrap_pyfunction!(ending::settle, module)?;
    module.py().import("atexit")?.call_method1("register", (settle,))?;
    Ok(())
}
