//! Five published claims, confronted with the simulated machine.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Study`]: figures with their roles, inputs with their origin, a judgement |
//! | `trial.rs` | one simulated run of a study, and what it needs from outside |
//! | `amd_mwait.rs` | MWAIT instead of HALT where no driver is loaded |
//! | `menu_min.rs` | menu believes its short forecast though the tick is stopped |
//! | `ipi_less.rs` | a store instead of an IPI |
//! | `c02.rs` | C0.2 between POLL and C1 |
//! | `promotion.rs` | a timer that gets a CPU out of a shallow state |
//!
//! What became of a published figure is said by its [`Role`]; where an input is from by its
//! [`Origin`]. An input that was fitted names the figures that it was fitted to, and only those are
//! *calibrated*: every run holds the two lists against each other, so that no fitted figure passes
//! for a prediction. Sentences of judgement are made from the figures.

mod amd_mwait;
mod c02;
mod ipi_less;
mod menu_min;
mod promotion;
mod trial;

use crate::MachineError;
use crate::simulate::{Report, SimulationError};

use trial::Trial;
pub use trial::{GovernorById, Shelf};

/// How a figure of ours came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It was put in, or an input was fitted to it: its agreement proves nothing.
    Calibrated,
    /// It follows from the model; nothing was fitted to it, and no assumption decides it.
    Predicted,
    /// It follows from the model and nothing was fitted to it, but an assumed input decides its
    /// size: a table shows how.
    Simulated,
    /// It follows from published numbers, without a model.
    Arithmetic,
}

impl Role {
    /// The word for it in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Calibrated => "calibrated",
            Role::Predicted => "predicted",
            Role::Simulated => "simulated",
            Role::Arithmetic => "arithmetic",
        }
    }
}

/// What was published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Published {
    /// A number.
    Exactly(f64),
    /// "Less than", "about" and the like: no difference can be computed.
    Below(f64),
    /// More than.
    Above(f64),
    /// Between two numbers.
    Between(f64, f64),
    /// Nothing; ours stands alone.
    Nothing,
}

/// A published figure beside ours.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is.
    pub what: String,
    /// Its unit, in words.
    pub unit: &'static str,
    /// What was published.
    pub published: Published,
    /// What we have.
    pub ours: f64,
    /// How ours came to be.
    pub role: Role,
}

impl Figure {
    /// Ours above the published one, as a ratio of it.
    pub fn difference_ratio(&self) -> Option<f64> {
        match self.published {
            Published::Exactly(published) if published != 0.0 => Some(self.ours / published - 1.0),
            _ => None,
        }
    }
}

/// Where an input is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From the claim, or fitted to one of its figures.
    Calibrated,
    /// Hardware or kernel, as documented elsewhere.
    Documented,
    /// Nobody published it.
    Assumed,
}

impl Origin {
    /// The word for it in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Origin::Calibrated => "calibrated",
            Origin::Documented => "documented",
            Origin::Assumed => "assumed",
        }
    }
}

/// Something that the model was given.
#[derive(Clone, Debug)]
pub struct Input {
    /// What it is.
    pub what: String,
    /// Its value with unit.
    pub value: String,
    /// Where it is from.
    pub origin: Origin,
    /// The same in words, or why it was assumed.
    pub source: String,
    /// How the names of the figures begin that it was fitted to.
    pub fitted_to: &'static [&'static str],
}

/// A further table, as text.
#[derive(Clone, Debug)]
pub struct Grid {
    /// A line above it.
    pub title: String,
    /// Above its columns.
    pub headings: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    fn new(title: &str, headings: &[&str]) -> Self {
        let headings = headings.iter().map(|heading| (*heading).to_owned()).collect();
        Grid { title: title.to_owned(), headings, rows: Vec::new() }
    }
}

/// Lines over a common axis.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// Under it.
    pub x_label: String,
    /// Beside it.
    pub y_label: String,
    /// Lines with their names.
    pub series: Vec<(String, Vec<(f64, f64)>)>,
}

/// A claim and what became of it.
#[derive(Clone, Debug)]
pub struct Study {
    /// Its name.
    pub name: &'static str,
    /// What is claimed.
    pub claim: &'static str,
    /// Where.
    pub source: &'static str,
    /// Published figures beside ours.
    pub figures: Vec<Figure>,
    /// What went in.
    pub inputs: Vec<Input>,
    /// Further tables; the last show the sensitivity to assumptions.
    pub grids: Vec<Grid>,
    /// What to think of it.
    pub judgement: Vec<String>,
    /// A picture.
    pub plot: Plot,
}

impl Study {
    /// A figure that was fitted and not called calibrated, or the other way round.
    fn misfit(&self) -> Option<String> {
        let fits = || self.inputs.iter().flat_map(|input| input.fitted_to);
        for figure in &self.figures {
            let is_fitted = fits().any(|name| figure.what.starts_with(name));
            let is_calibrated = figure.role == Role::Calibrated;
            if is_fitted != is_calibrated {
                let role = figure.role.as_str();
                let found = if is_fitted { "an input" } else { "no input" };
                return Some(format!("'{}' is {role}, but {found} was fitted to it", figure.what));
            }
        }
        let has = |name: &str| self.figures.iter().any(|figure| figure.what.starts_with(name));
        let unknown = fits().find(|name| !has(name));
        unknown.map(|name| format!("an input was fitted to '{name}', which is no figure"))
    }
}

/// A row of the list of studies.
pub struct StudySpec {
    /// The name that users type.
    pub name: &'static str,
    /// What is claimed, in a few words.
    pub meaning: &'static str,
    run: fn(&Shelf<'_>) -> Result<Study, StudyError>,
}

impl StudySpec {
    /// Runs it.
    ///
    /// # Errors
    /// If a machine or governor that it needs is missing, or a figure that was fitted is not shown as
    /// such.
    pub fn run(&self, shelf: &Shelf<'_>) -> Result<Study, StudyError> {
        let study = (self.run)(shelf)?;
        match study.misfit() {
            Some(message) => Err(StudyError::Other(format!("{}: {message}", self.name))),
            None => Ok(study),
        }
    }
}

/// Every study.
pub const STUDIES: &[StudySpec] = &[
    StudySpec {
        name: "amd-mwait",
        meaning: "MWAIT wakes faster than HALT where no idle driver is loaded",
        run: amd_mwait::run,
    },
    StudySpec {
        name: "menu-min",
        meaning: "menu should believe a short forecast though the tick is stopped",
        run: menu_min::run,
    },
    StudySpec {
        name: "ipi-less",
        meaning: "a CPU in MWAIT can be woken by a store instead of an IPI",
        run: ipi_less::run,
    },
    StudySpec { name: "c02", meaning: "C0.2 is a good state between POLL and C1", run: c02::run },
    StudySpec {
        name: "promotion",
        meaning: "a timer gets a CPU out of a lite state in microseconds",
        run: promotion::run,
    },
];

/// Why a study could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant holds what its message names")]
pub enum StudyError {
    #[error("the study needs machine {0}, which is missing")]
    NoMachine(String),
    #[error("the study needs governor {0}, which is missing")]
    NoGovernor(String),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    #[error("{0}")]
    Other(String),
}

fn other(error: &dyn std::error::Error) -> StudyError {
    StudyError::Other(error.to_string())
}

/// The mean of the spans of that name; 0 if there are none.
fn mean_ns(report: &Report, name: &str) -> f64 {
    let spans = report.metrics.spans(name);
    spans.map_or(0.0, |spans| spans.sum_ns() as f64 / spans.count().max(1) as f64)
}

/// A number with three digits or so.
fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        0.1.. => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", ratio * 100.0)
}

fn figure(
    what: impl Into<String>,
    unit: &'static str,
    published: Published,
    ours: f64,
    role: Role,
) -> Figure {
    Figure { what: what.into(), unit, published, ours, role }
}

fn input(what: &str, value: impl Into<String>, origin: Origin, source: &str) -> Input {
    let (what, source) = (what.to_owned(), source.to_owned());
    Input { what, value: value.into(), origin, source, fitted_to: &[] }
}

/// From the claim itself, and so what these of its figures come out as.
fn fitted(
    what: &str,
    value: impl Into<String>,
    source: &str,
    fitted_to: &'static [&'static str],
) -> Input {
    Input { fitted_to, ..input(what, value, Origin::Calibrated, source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(role: Role, fitted_to: &'static [&'static str]) -> Study {
        Study {
            name: "invented",
            claim: "",
            source: "",
            figures: vec![figure("speed, fast", "m/s", Published::Exactly(2.0), 3.0, role)],
            inputs: vec![fitted("mass", "1 kg", "the claim", fitted_to)],
            grids: Vec::new(),
            judgement: Vec::new(),
            plot: Plot {
                title: String::new(),
                x_label: String::new(),
                y_label: String::new(),
                series: Vec::new(),
            },
        }
    }

    #[test]
    fn a_fitted_figure_never_passes_for_a_prediction() {
        for role in [Role::Predicted, Role::Simulated, Role::Arithmetic] {
            assert_eq!(study(role, &[]).misfit(), None);
            let message = study(role, &["speed"]).misfit().unwrap();
            assert!(message.contains("'speed, fast' is") && message.contains("an input was"));
        }
        assert_eq!(study(Role::Calibrated, &["speed"]).misfit(), None);
        assert!(study(Role::Calibrated, &[]).misfit().unwrap().contains("no input was fitted"));
        assert!(study(Role::Calibrated, &["speed", "time"]).misfit().unwrap().contains("'time'"));
    }

    #[test]
    fn differences_are_of_the_published_figure() {
        let difference =
            |published| figure("", "", published, 3.0, Role::Predicted).difference_ratio();
        assert_eq!(difference(Published::Exactly(2.0)), Some(0.5));
        assert_eq!(difference(Published::Exactly(0.0)), None);
        assert_eq!(difference(Published::Below(2.0)), None);
    }
}
