//! Many lanes for a learning agent. Arrays cross as bytes, which numpy reads without a copy; the package's `gym` module
//! turns them into observations.

use std::sync::{Mutex, MutexGuard, PoisonError};

use idlewise_core::{Decision, FAR_AWAY_NS};
use idlewise_lab::engine;
use idlewise_sim::replay::Question;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::{Log, engine_logs, failed};

/// What a question has, as 64-bit integers.
const FIELD_COUNT: usize = 5;

/// Lanes whose decisions Python makes.
#[pyclass(frozen)]
pub struct Lanes(Mutex<engine::Lanes>);

impl Lanes {
    fn lanes(&self) -> MutexGuard<'_, engine::Lanes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fields of a question: a time that is far away is -1.
fn fields(question: &Question) -> [i64; FIELD_COUNT] {
    let known = |ns| if ns == FAR_AWAY_NS { -1 } else { ns };
    [
        known(question.sleep_length_ns),
        known(question.next_event_ns),
        known(question.latency_limit_ns),
        i64::from(question.tick_stopped),
        question.last_residency_ns as i64,
    ]
}

/// What a step returns: questions, costs in microjoules, the oracle's in gaps that are over (otherwise not a number),
/// and whether episodes are over, as bytes.
type Stepped<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

#[pymethods]
impl Lanes {
    #[new]
    #[pyo3(signature = (logs, *, machine, lambda_, lane_count, hz = None, latency_limit_us = None))]
    fn new(
        py: Python<'_>,
        logs: Vec<PyRef<'_, Log>>,
        machine: String,
        lambda_: f64,
        lane_count: usize,
        hz: Option<u32>,
        latency_limit_us: Option<u32>,
    ) -> PyResult<Self> {
        let logs = engine_logs(&logs);
        let request =
            engine::LanesRequest { machine, lambda: lambda_, hz, latency_limit_us, lane_count };
        let lanes = py.detach(|| engine::Lanes::new(&logs, &request)).map_err(failed)?;
        Ok(Lanes(Mutex::new(lanes)))
    }

    #[getter]
    fn gap_counts(&self) -> Vec<usize> {
        self.lanes().gap_counts()
    }

    #[getter]
    fn states(&self) -> Vec<(String, u64, u64)> {
        self.lanes().states()
    }

    fn reset(
        &self,
        lane: usize,
        source: usize,
        start: usize,
        gap_count: usize,
    ) -> PyResult<Vec<i64>> {
        let question = self.lanes().reset(lane, source, start, gap_count);
        Ok(fields(&question.map_err(PyIndexError::new_err)?).to_vec())
    }

    /// `states` and `ticks` have a byte for each lane: the state, and 1 to stop the tick.
    fn step<'py>(&self, py: Python<'py>, states: &[u8], ticks: &[u8]) -> PyResult<Stepped<'py>> {
        // Locked and unlocked without the interpreter's lock, so that neither waits for the other.
        let stepped = py.detach(|| {
            let mut lanes = self.lanes();
            let count = lanes.lane_count();
            if states.len() != count || ticks.len() != count {
                return Err(format!("expected {count} states and ticks"));
            }
            let mut questions = vec![0_i64; count * FIELD_COUNT];
            let mut costs_uj = vec![0.0_f64; count];
            let (mut oracles_uj, mut episodes_over) = (vec![f64::NAN; count], vec![1_u8; count]);
            for (lane, (&state, &tick)) in states.iter().zip(ticks).enumerate() {
                let decision = Decision { state: usize::from(state), stop_tick: tick != 0 };
                let Some(asked) = lanes.step(lane, decision)? else { continue };
                costs_uj[lane] = asked.cost_uj;
                oracles_uj[lane] = asked.oracle_cost_uj.unwrap_or(f64::NAN);
                if let Some(question) = asked.question {
                    episodes_over[lane] = 0;
                    let at = lane * FIELD_COUNT;
                    questions[at..at + FIELD_COUNT].copy_from_slice(&fields(&question));
                }
            }
            Ok::<_, String>((questions, costs_uj, oracles_uj, episodes_over))
        });
        let (questions, costs_uj, oracles_uj, episodes_over) =
            stepped.map_err(PyIndexError::new_err)?;
        let questions: Vec<u8> = questions.iter().flat_map(|it| it.to_ne_bytes()).collect();
        let costs_uj: Vec<u8> = costs_uj.iter().flat_map(|it| it.to_ne_bytes()).collect();
        let oracles_uj: Vec<u8> = oracles_uj.iter().flat_map(|it| it.to_ne_bytes()).collect();
        Ok((
            PyBytes::new(py, &questions),
            PyBytes::new(py, &costs_uj),
            PyBytes::new(py, &oracles_uj),
            PyBytes::new(py, &episodes_over),
        ))
    }

    fn costs_uj(&self, lane: usize) -> PyResult<(f64, f64)> {
        let none = || PyIndexError::new_err(format!("lane {lane} has no episode"));
        self.lanes().costs_uj(lane).ok_or_else(none)
    }
}
