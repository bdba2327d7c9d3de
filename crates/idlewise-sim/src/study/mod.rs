//! Five published claims, run on the simulated machine. A study computes; its claim, the published figures
//! and the sentences are on its page, in `idlewise-report`.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | what a study needs, and why it may fail |
//! | `inputs.rs` | an input: its value, its origin, and what is plausible |
//! | `trial.rs` | one simulated run of a study |
//! | `amd_mwait.rs` | MWAIT instead of HALT where no driver is loaded |
//! | `menu_min.rs` | menu believes its short forecast though the tick is stopped |
//! | `ipi_less.rs` | a store instead of an IPI |
//! | `c02.rs` | C0.2 between POLL and C1 |
//! | `promotion.rs` | a timer that gets a CPU out of a shallow state |
//!
//! Each study has a list `INPUTS`, a function `headline`, which computes its figures for given inputs and runs
//! many times to find out which inputs decide them, and a function `run`, which returns its `Findings`. Both
//! fail if a machine or governor that the study needs is missing. Findings include the machine, the hardware
//! and the workload that the runs used, so that a page prints those values and no copies of them. `None` is
//! what never happened.
#![expect(
    missing_docs,
    reason = "a finding's name says what it is and its unit; comments say the rest"
)]

pub mod amd_mwait;
pub mod c02;
mod inputs;
pub mod ipi_less;
pub mod menu_min;
pub mod promotion;
mod trial;

use crate::MachineError;
use crate::replay::Delays;
use crate::simulate::{Report, ShapeError, SimulationError};

pub use inputs::{Alternative, Changes, Input, Origin, Together};
use inputs::{inputs, ms_ns, us_ns};
use trial::Trial;
pub use trial::{GovernorById, Shelf};

/// Why there is no result of a study.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    #[error("the study needs machine {0}, which is missing")]
    NoMachine(String),
    #[error("the study needs governor {0}, which is missing")]
    NoGovernor(String),
    #[error("the study needs {0}, of which a run had none")]
    Nothing(&'static str),
    #[error("the study's page contradicts itself: {0}")]
    Page(String),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error(transparent)]
    Simulation(#[from] SimulationError),
}

type Result<T> = std::result::Result<T, StudyError>;

/// A result for one value of what was varied.
#[derive(Clone, Debug)]
pub struct At<X, Y> {
    pub at: X,
    pub found: Y,
}

/// Results for all values of what was varied, in order.
pub type Sweep<X, Y> = Vec<At<X, Y>>;

fn sweep<X: Clone, Y>(
    values: impl IntoIterator<Item = X>,
    run: impl Fn(X) -> Result<Y>,
) -> Result<Sweep<X, Y>> {
    values.into_iter().map(|at| Ok(At { at: at.clone(), found: run(at)? })).collect()
}

/// The spans of that name, of which there must be some.
fn spans<'a>(report: &'a Report, name: &'static str) -> Result<&'a Delays> {
    report.metrics.spans(name).ok_or(StudyError::Nothing(name))
}

/// Their mean.
fn mean_ns(report: &Report, name: &'static str) -> Result<f64> {
    spans(report, name)?.mean_ns().ok_or(StudyError::Nothing(name))
}
