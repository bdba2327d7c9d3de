//! A governor in Python. Each CPU of a lane has an object of its own, and one `State` that every call reuses.
//!
//! The first error of any governor ends its work: from then on it is not called again, and the replay, which cannot
//! be interrupted within a unit, goes on with state 0 until it is left. A call that takes too long is ended by an
//! exception that Python raises in its thread between two instructions; what hangs in C cannot be ended.

use std::ffi::c_long;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use idlewise_core::{Context, Decision, Device, FAR_AWAY_NS, Governor, Outcome, StateTable};
use idlewise_lab::engine;
use pyo3::exceptions::{
    PyAttributeError, PyIndexError, PyOverflowError, PyTimeoutError, PyTypeError,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::ending::Ticket;

/// What went wrong first, and what governors are doing.
#[derive(Clone, Default)]
pub struct Fault {
    error: Arc<Mutex<Option<PyErr>>>,
    is_stopped: Arc<AtomicBool>,
    calls: Arc<Calls>,
}

/// The calls of a replay, all in one thread.
#[derive(Default)]
struct Calls {
    /// Odd while a call runs.
    count: AtomicU64,
    /// Python's number of the thread.
    thread: AtomicU64,
}

/// Looks now and then whether a call takes too long.
pub struct Patience {
    limit: Duration,
    seen: u64,
    since: Instant,
}

impl Patience {
    pub fn new(limit: Duration) -> Self {
        Patience { limit, seen: 0, since: Instant::now() }
    }
}

impl Fault {
    /// Whether no more work is wanted.
    pub fn is_stopped(&self) -> Arc<AtomicBool> {
        self.is_stopped.clone()
    }

    pub fn take(&self) -> Option<PyErr> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends a call that takes too long.
    pub fn check(&self, py: Python<'_>, patience: &mut Patience) -> PyResult<()> {
        // Relaxed is enough: a stale count delays the limit by one look.
        let count = self.calls.count.load(Ordering::Relaxed);
        if count != patience.seen || count.is_multiple_of(2) {
            (patience.seen, patience.since) = (count, Instant::now());
            return Ok(());
        }
        if patience.since.elapsed() < patience.limit {
            return Ok(());
        }
        self.interrupt(py);
        Err(PyTimeoutError::new_err(format!(
            "the governor did not return within {} s; time_limit_s allows more",
            patience.limit.as_secs_f64()
        )))
    }

    /// Lets nobody be called again, and ends a call that runs.
    pub fn interrupt(&self, py: Python<'_>) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let thread = self.calls.thread.load(Ordering::Relaxed);
        if !self.calls.count.load(Ordering::Relaxed).is_multiple_of(2) {
            let error = py.get_type::<PyTimeoutError>();
            // SAFETY: the interpreter's lock is held, and the exception is a class. A thread that has ended is not
            // found, which is no error.
            unsafe { pyo3::ffi::PyThreadState_SetAsyncExc(thread as c_long, error.as_ptr()) };
        }
    }

    /// Marks a call of Python code.
    fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        // The thread is the only one that writes it.
        let count = self.calls.count.load(Ordering::Relaxed);
        self.calls.count.store(count + 1, Ordering::Relaxed);
        let result = call();
        self.calls.count.store(count + 2, Ordering::Relaxed);
        result
    }

    fn note(&self, error: PyErr) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        // Relaxed is enough: the work only has to see it some time.
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// What a governor may look at when it selects a state. It is only valid during the call.
#[pyclass(module = "idlewise")]
pub struct State {
    /// The states' exit latencies, shallowest first, in nanoseconds.
    #[pyo3(get)]
    exit_latencies_ns: Py<PyTuple>,
    /// The states' target residencies, shallowest first, in nanoseconds.
    #[pyo3(get)]
    target_residencies_ns: Py<PyTuple>,
    sleep_length_ns: i64,
    next_event_ns: i64,
    /// The longest exit latency allowed now, in nanoseconds.
    #[pyo3(get)]
    latency_limit_ns: i64,
    /// Whether the tick is already stopped.
    #[pyo3(get)]
    tick_stopped: bool,
    /// The CPU's clock, in nanoseconds.
    #[pyo3(get)]
    now_ns: u64,
    disabled: idlewise_core::DisabledMask,
    has_read_timers: bool,
}

fn known(time_ns: i64) -> Option<i64> {
    (time_ns != FAR_AWAY_NS).then_some(time_ns)
}

#[pymethods]
impl State {
    /// Time to the next timer, not counting the tick, in nanoseconds; None if there is none.
    #[getter]
    fn sleep_length_ns(&mut self) -> Option<i64> {
        self.has_read_timers = true;
        known(self.sleep_length_ns)
    }

    /// Time to the next timer or tick, in nanoseconds; None if there is none.
    #[getter]
    fn next_event_ns(&mut self) -> Option<i64> {
        self.has_read_timers = true;
        known(self.next_event_ns)
    }

    /// Whether a state is disabled.
    fn is_disabled(&self, py: Python<'_>, index: i64) -> PyResult<bool> {
        let count = self.exit_latencies_ns.bind(py).len();
        match usize::try_from(index) {
            Ok(index) if index < count => Ok(self.disabled.contains(index)),
            _ => {
                Err(PyIndexError::new_err(format!("no state {index}; they are 0 to {}", count - 1)))
            }
        }
    }
}

/// A governor's class, for the engine.
pub fn made(name: String, class: Py<PyAny>, fault: Fault) -> engine::Choice {
    let class = Arc::new(class);
    let make = move |states: &StateTable, _: u32| -> Box<dyn Governor> {
        let called = Ticket::get().and_then(|_ticket| {
            let made =
                Python::attach(|py| fault.during(|| Called::new(py, &class, states, &fault)));
            made.map_err(|error| fault.note(error)).ok()
        });
        Box::new(PythonGovernor { called, fault: fault.clone() })
    };
    engine::Choice::made(name, Arc::new(make))
}

struct PythonGovernor {
    /// `None` after an error, or if Python is ending.
    called: Option<Called>,
    fault: Fault,
}

struct Called {
    select: Py<PyAny>,
    reflect: Py<PyAny>,
    state: Py<State>,
    /// What `select` is called with: the state alone.
    arguments: Py<PyTuple>,
}

impl Called {
    fn new(
        py: Python<'_>,
        class: &Py<PyAny>,
        states: &StateTable,
        fault: &Fault,
    ) -> PyResult<Self> {
        let thread: u64 = py.import("threading")?.call_method0("get_ident")?.extract()?;
        fault.calls.thread.store(thread, Ordering::Relaxed);
        let object = class.call0(py)?;
        let method = |name: &str| {
            let missing = |error: PyErr| match error.is_instance_of::<PyAttributeError>(py) {
                true => PyTypeError::new_err(format!(
                    "a governor has no method {name}: {}",
                    error.value(py)
                )),
                false => error,
            };
            object.getattr(py, name).map_err(missing)
        };
        let (select, reflect) = (method("select")?, method("reflect")?);
        let states = states.as_slice().iter();
        let state = State {
            exit_latencies_ns: PyTuple::new(py, states.clone().map(|it| it.exit_latency_ns))?
                .unbind(),
            target_residencies_ns: PyTuple::new(py, states.map(|it| it.target_residency_ns))?
                .unbind(),
            sleep_length_ns: 0,
            next_event_ns: 0,
            latency_limit_ns: 0,
            tick_stopped: false,
            now_ns: 0,
            disabled: idlewise_core::DisabledMask::NONE,
            has_read_timers: false,
        };
        let state = Py::new(py, state)?;
        let arguments = PyTuple::new(py, [&state])?.unbind();
        Ok(Called { select, reflect, state, arguments })
    }

    fn select(&mut self, py: Python<'_>, context: &Context<'_>) -> PyResult<Decision> {
        let timers = context.timers();
        {
            let mut state = self.state.borrow_mut(py);
            state.sleep_length_ns = timers.sleep_length_ns;
            state.next_event_ns = timers.next_event_ns;
            state.latency_limit_ns = context.latency_limit_ns;
            state.tick_stopped = context.tick_stopped;
            state.now_ns = context.now_ns;
            state.disabled = context.disabled;
            state.has_read_timers = false;
        }
        let answer = self.select.bind(py).call1(self.arguments.bind(py))?;
        if self.state.borrow(py).has_read_timers {
            context.count_sleep_length_calls(1);
        }
        let count = context.states.len();
        let wrong = |error: PyErr| {
            let shown = || answer.repr().map(|it| it.to_string()).unwrap_or_default();
            if error.is_instance_of::<PyOverflowError>(py) {
                no_state(&shown(), count)
            } else if error.is_instance_of::<PyTypeError>(py) || answer.is_instance_of::<PyTuple>()
            {
                PyTypeError::new_err(format!(
                    "select returned {}; return a state's index, or an index and whether to stop the tick",
                    shown()
                ))
            } else {
                // What the answer's own code raises is the governor's.
                error
            }
        };
        let (index, stop_tick) = match answer.extract::<i64>() {
            Ok(index) => (index, true),
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                answer.extract::<(i64, bool)>().map_err(wrong)?
            }
            Err(error) => return Err(wrong(error)),
        };
        match usize::try_from(index) {
            Ok(state) if state < count => Ok(Decision { state, stop_tick }),
            _ => Err(no_state(&index.to_string(), count)),
        }
    }
}

fn no_state(shown: &str, count: usize) -> PyErr {
    let last = count - 1;
    PyIndexError::new_err(format!("select returned {shown}, and the states are 0 to {last}"))
}

impl PythonGovernor {
    fn call<T>(&mut self, call: impl FnOnce(Python<'_>, &mut Called) -> PyResult<T>) -> Option<T> {
        let called = self.called.as_mut()?;
        // Relaxed is enough: one call more does no harm.
        if self.fault.is_stopped.load(Ordering::Relaxed) {
            self.called = None;
            return None;
        }
        // Without one Python is ending, and nobody will see the result.
        let _ticket = Ticket::get()?;
        match Python::attach(|py| self.fault.during(|| call(py, called))) {
            Ok(result) => Some(result),
            Err(error) => {
                self.fault.note(error);
                self.called = None;
                None
            }
        }
    }
}

impl Governor for PythonGovernor {
    fn select(&mut self, context: &Context<'_>, _device: &mut Device) -> Decision {
        let decision = self.call(|py, called| called.select(py, context));
        decision.unwrap_or(Decision { state: 0, stop_tick: true })
    }

    fn reflect(&mut self, _outcome: &Outcome, device: &mut Device) {
        let residency_ns = device.last_residency_ns;
        self.call(|py, called| called.reflect.bind(py).call1((residency_ns,)).map(drop));
    }
}
