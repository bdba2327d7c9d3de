//! A study's page: a published claim beside what the simulated machine says.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`STUDIES`], what a page consists of, and how its numbers are written |
//! | `text.rs` | a page as text, as Markdown and as JSON |
//! | `plot.rs` | its plot, as SVG |
//! | `<name>.rs` | each study's claim, source, figures, inputs, tables and sentences |
//!
//! What a page prints is computed by the file of the same name in [`idlewise_sim::study`]. Pages are Rust and
//! not a data format, because nearly every line contains a computed number or depends on one: the compiler
//! then checks their names, where templates would need a language, keys on both sides, and tests of them.
//!
//! What became of a published figure is said by its role; where an input is from, by its origin. An
//! input that was fitted names the figures that it was fitted to, and only those are *calibrated*: every run
//! compares the two lists, so that no fitted figure passes for a prediction.

mod amd_mwait;
mod c02;
mod ipi_less;
mod menu_min;
mod plot;
mod promotion;
mod text;

use idlewise_sim::study::{At, Shelf, StudyError, Sweep};
use idlewise_sim::{Machine, MachineState};

pub use plot::to_svg;
pub(crate) use text::columns;
pub use text::{to_json, to_markdown, to_text};

/// Every study.
pub const STUDIES: &[&Study] =
    &[&amd_mwait::STUDY, &menu_min::STUDY, &ipi_less::STUDY, &c02::STUDY, &promotion::STUDY];

/// A published claim.
pub struct Study {
    /// The name that users type.
    pub name: &'static str,
    /// What is claimed.
    pub claim: &'static str,
    /// Where.
    pub source: &'static str,
    page: fn(&Shelf<'_>) -> Result<Page, StudyError>,
}

impl Study {
    /// Runs it.
    ///
    /// # Errors
    /// If a machine or governor that it needs is missing, or a figure that was fitted is not shown as
    /// such.
    pub fn run(&self, shelf: &Shelf<'_>) -> Result<Page, StudyError> {
        let page = (self.page)(shelf)?;
        match page.fault() {
            Some(fault) => Err(StudyError::Page(format!("{}: {fault}", self.name))),
            None => Ok(page),
        }
    }
}

/// What became of a claim.
pub struct Page {
    figures: Vec<Figure>,
    inputs: Vec<Input>,
    /// The last show the sensitivity to assumptions.
    grids: Vec<Grid>,
    judgement: Vec<String>,
    plot: Plot,
}

/// A published figure beside ours.
#[derive(Clone)]
pub(crate) struct Figure {
    /// No other figure of the page has that name.
    what: String,
    unit: &'static str,
    published: Published,
    /// None if what was measured never happened.
    ours: Option<f64>,
    role: Role,
}

#[derive(Clone, Copy)]
enum Published {
    Exactly(f64),
    /// "Less than", "about" and the like: no difference can be computed.
    Below(f64),
    Above(f64),
    Between(f64, f64),
    /// Ours stands alone.
    Nothing,
}

/// How a figure of ours came to be.
#[derive(Clone, Copy, PartialEq)]
enum Role {
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

/// Something that the model was given.
struct Input {
    what: &'static str,
    value: String,
    origin: Origin,
    /// The origin in words, or why it was assumed.
    source: String,
}

#[derive(Clone, Copy)]
enum Origin {
    /// From the claim. The names of the figures that it was fitted to begin so.
    Calibrated(&'static [&'static str]),
    /// Hardware or kernel, as documented elsewhere.
    Documented,
    /// Nobody published it.
    Assumed,
}

/// A further table.
struct Grid {
    title: String,
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

struct Plot {
    title: &'static str,
    x_label: &'static str,
    y_label: &'static str,
    lines: Vec<Line>,
}

#[derive(Clone)]
struct Line {
    name: String,
    /// x and y.
    points: Vec<(f64, f64)>,
}

impl Page {
    /// A figure that was fitted and not called calibrated, or the other way round; two figures of one name.
    fn fault(&self) -> Option<String> {
        let fits = || self.inputs.iter().flat_map(|input| input.origin.fitted_to());
        for (index, figure) in self.figures.iter().enumerate() {
            let is_fitted = fits().any(|name| figure.what.starts_with(name));
            let is_calibrated = figure.role == Role::Calibrated;
            if is_fitted != is_calibrated {
                let role = figure.role.as_str();
                let found = if is_fitted { "an input" } else { "no input" };
                return Some(format!("'{}' is {role}, but {found} was fitted to it", figure.what));
            }
            if self.figures[..index].iter().any(|other| other.what == figure.what) {
                return Some(format!("two figures are called '{}'", figure.what));
            }
        }
        let has = |name: &str| self.figures.iter().any(|figure| figure.what.starts_with(name));
        let unknown = fits().find(|name| !has(name));
        unknown.map(|name| format!("an input was fitted to '{name}', which is no figure"))
    }
}

impl Figure {
    /// Ours above the published one, as a ratio of it.
    fn difference_ratio(&self) -> Option<f64> {
        match self.published {
            Published::Exactly(published) if published != 0.0 => Some(self.ours? / published - 1.0),
            _ => None,
        }
    }
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Role::Calibrated => "calibrated",
            Role::Predicted => "predicted",
            Role::Simulated => "simulated",
            Role::Arithmetic => "arithmetic",
        }
    }
}

impl Origin {
    fn as_str(self) -> &'static str {
        match self {
            Origin::Calibrated(_) => "calibrated",
            Origin::Documented => "documented",
            Origin::Assumed => "assumed",
        }
    }

    fn fitted_to(self) -> &'static [&'static str] {
        match self {
            Origin::Calibrated(names) => names,
            Origin::Documented | Origin::Assumed => &[],
        }
    }
}

/// Figures, a row each: `what, unit, published, role, ours;`.
macro_rules! figures {
    ($($what:expr, $unit:literal, $published:expr, $role:ident, $ours:expr;)+) => {
        vec![$($crate::study::Figure {
            what: $what.to_owned(),
            unit: $unit,
            published: $published,
            role: $crate::study::Role::$role,
            ours: $ours.into(),
        },)+]
    };
}
use figures;

/// Inputs, a row each: `what, value, origin, source;`.
macro_rules! inputs {
    ($($what:literal, $value:expr, $origin:expr, $source:expr;)+) => {
        vec![$($crate::study::Input {
            what: $what,
            value: $value.to_string(),
            origin: $origin,
            source: $source.to_string(),
        },)+]
    };
}
use inputs;

/// A table: its title, its rows, and a line for each column: `heading => cell;`.
macro_rules! table {
    ($title:literal; $rows:expr, |$row:pat_param| $($heading:literal => $cell:expr;)+) => {
        $crate::study::Grid {
            title: format!($title),
            headings: vec![$($heading.to_owned()),+],
            rows: $rows.into_iter().map(|$row| vec![$($cell.to_string()),+]).collect(),
        }
    };
}
use table;

/// Sentences of judgement: `text, what is put into it;`.
macro_rules! sentences {
    ($($text:literal $(, $value:expr)*;)+) => { vec![$(format!($text $(, $value)*)),+] };
}
use sentences;

/// A table of two things that were varied.
fn matrix<X, Y, R>(
    title: impl Into<String>,
    corner: &str,
    rows: &Sweep<X, Sweep<Y, R>>,
    row: impl Fn(&X) -> String,
    column: impl Fn(&Y) -> String,
    cell: impl Fn(&R) -> String,
) -> Grid {
    let first = rows.iter().take(1).flat_map(|row| &row.found);
    let line = |start: String, cells: &mut dyn Iterator<Item = String>| {
        std::iter::once(start).chain(cells).collect()
    };
    Grid {
        title: title.into(),
        headings: line(corner.to_owned(), &mut first.map(|at| column(&at.at))),
        rows: rows
            .iter()
            .map(|at| line(row(&at.at), &mut at.found.iter().map(|at| cell(&at.found))))
            .collect(),
    }
}

/// At least three digits, and all of a whole number.
fn number_text(number: f64) -> String {
    match number.abs() {
        1_000.0.. => format!("{number:.0}"),
        100.0.. if number.fract() == 0.0 => format!("{number:.0}"),
        100.0.. => format!("{number:.1}"),
        0.0 => "0".to_owned(),
        _ if number.fract() == 0.0 => format!("{number:.0}"),
        1.0.. => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
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

/// A change.
fn percent(ratio: f64) -> String {
    format!("{:+.1} %", ratio * 100.0)
}

/// A share.
fn share(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// What there may be none of.
fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// A round span with its unit.
fn span(ns: u64) -> String {
    match ns {
        1_000_000_000.. => format!("{} s", ns as f64 / 1e9),
        1_000_000.. => format!("{} ms", ns as f64 / 1e6),
        1_000.. => format!("{} us", ns as f64 / 1e3),
        _ => format!("{ns} ns"),
    }
}

/// A state that the study needed.
fn state<'a>(machine: &'a Machine, name: &str) -> &'a MachineState {
    machine.states.iter().find(|state| state.name == name).expect("the study ran with that state")
}

/// Nanoseconds as microseconds, for spans that are whole or nearly so.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(role: Role, fitted_to: &'static [&'static str]) -> Page {
        Page {
            figures: vec![Figure {
                what: "speed, fast".to_owned(),
                unit: "m/s",
                published: Published::Exactly(2.0),
                ours: Some(3.0),
                role,
            }],
            inputs: inputs! { "mass", "1 kg", Origin::Calibrated(fitted_to), "the claim"; },
            grids: Vec::new(),
            judgement: Vec::new(),
            plot: Plot { title: "", x_label: "", y_label: "", lines: Vec::new() },
        }
    }

    #[test]
    fn a_fitted_figure_never_passes_for_a_prediction() {
        for role in [Role::Predicted, Role::Simulated, Role::Arithmetic] {
            assert_eq!(page(role, &[]).fault(), None);
            let message = page(role, &["speed"]).fault().unwrap();
            assert!(message.contains("'speed, fast' is") && message.contains("an input was"));
        }
        assert_eq!(page(Role::Calibrated, &["speed"]).fault(), None);
        assert!(page(Role::Calibrated, &[]).fault().unwrap().contains("no input was fitted"));
        assert!(page(Role::Calibrated, &["speed", "time"]).fault().unwrap().contains("'time'"));
    }

    #[test]
    fn a_figure_has_a_name_of_its_own() {
        let mut page = page(Role::Predicted, &[]);
        page.figures.push(page.figures[0].clone());
        assert!(page.fault().unwrap().contains("two figures are called 'speed, fast'"));
    }

    #[test]
    fn a_study_whose_page_has_a_fault_does_not_run() {
        let study = Study {
            name: "invented",
            claim: "",
            source: "",
            page: |_| Ok(page(Role::Predicted, &["speed"])),
        };
        let message = study.run(&Shelf { governor: &|_, _| None }).err().unwrap().to_string();
        assert!(message.contains("invented: 'speed, fast' is predicted"), "{message}");
    }

    #[test]
    fn differences_are_of_the_published_figure() {
        let difference = |published, ours: Option<f64>| {
            let figures = figures! { "speed", "m/s", published, Predicted, ours; };
            figures[0].difference_ratio()
        };
        assert_eq!(difference(Published::Exactly(2.0), Some(3.0)), Some(0.5));
        assert_eq!(difference(Published::Exactly(2.0), None), None);
        assert_eq!(difference(Published::Exactly(0.0), Some(3.0)), None);
        assert_eq!(difference(Published::Below(2.0), Some(3.0)), None);
    }
}
