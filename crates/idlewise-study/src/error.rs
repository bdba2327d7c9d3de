//! Why a study has no result.
#![expect(missing_docs, reason = "each variant's message says what it is")]

use idlewise_machine::MachineError;
use idlewise_sim::simulate::{ShapeError, SimulationError};

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

pub(crate) type Result<T> = std::result::Result<T, StudyError>;
