//! A study's page: a published claim beside what the simulated machine says.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`STUDIES`], what a page consists of, and how its numbers are written |
//! | `sensitivity.rs` | which inputs decide a figure, and its label |
//! | `text.rs` | a page as text, as Markdown and as JSON |
//! | `plot.rs` | its plots, as SVG |
//! | `charts.rs` | its charts, on a page in HTML |
//! | `<name>.rs` | each study's claim, source, figures, inputs, tables and sentences |
//!
//! What a page prints is computed by the file of the same name in [`idlewise_sim::study`]. Pages are Rust and
//! not a data format, because nearly every line contains a computed number or depends on one: the compiler
//! then checks their names, where templates would need a language, keys on both sides, and tests of them.
//!
//! No author says what became of a figure: `sensitivity.rs` runs the study with other inputs and computes its
//! label. A figure is *calibrated* if an input names it as what it was fitted to, and *predicted* only if no
//! input that nobody documented decides it.

mod amd_mwait;
mod c02;
mod charts;
mod ipi_less;
mod menu_min;
mod plot;
mod promotion;
mod sensitivity;
mod text;

use idlewise_sim::study::{Alternative, At, Changes, Input, Origin, Shelf, StudyError, Sweep};
use idlewise_sim::{Machine, MachineState};

pub use charts::to_html_page;
pub use plot::{to_svg, to_tornado};
pub(crate) use text::columns;
pub use text::{inputs_to_json, inputs_to_text, to_json, to_markdown, to_text};

use sensitivity::{Examined, examine};

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
    /// What its model is given, and what [`Study::run`] may be asked to change.
    pub inputs: &'static [Input],
    /// Inputs of which two documented values, or pairs of values, may be true.
    alternatives: &'static [Alternative],
    /// Its figures alone, for changed inputs.
    figures: fn(&Shelf<'_>, &Changes) -> Result<Vec<Figure>, StudyError>,
    body: fn(&Shelf<'_>, &Changes) -> Result<Body, StudyError>,
}

impl Study {
    /// Runs it with some inputs changed, and again with others to find out which decide its figures.
    ///
    /// # Errors
    /// If a machine or governor that it needs is missing, or the page contradicts itself.
    pub fn run(&self, shelf: &Shelf<'_>, given: &Given) -> Result<Page, StudyError> {
        let body = (self.body)(shelf, &given.changes)?;
        if let Some(fault) = body.fault(self.inputs) {
            return Err(StudyError::Page(format!("{}: {fault}", self.name)));
        }
        let mut examined = examine(self, &body.figures, &body.facts, shelf, given)?;
        let known = given.without_guesses();
        if known.changes.len() < given.changes.len() {
            let figures = (self.figures)(shelf, &known.changes)?;
            let listed = examine(self, &figures, &body.facts, shelf, &known)?;
            let both = examined.into_iter().zip(listed);
            examined = both.map(|(guessed, listed)| guessed.no_better_than(listed)).collect();
        }
        let figures = body.figures.iter().cloned().zip(examined);
        let figures = figures.map(|(figure, examined)| Row { figure, examined }).collect();
        Ok(Page { given: given.clone(), figures, body })
    }
}

/// What the reader gives a study in place of the listed values.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// By key.
    pub changes: Vec<(&'static str, f64)>,
    /// By key, where a changed value is documented. A change without a source is a guess.
    pub sources: Vec<(&'static str, String)>,
}

impl Given {
    /// The value that an input was set to.
    fn value(&self, key: &str) -> Option<f64> {
        self.changes.iter().rev().find(|(set, _)| *set == key).map(|(_, value)| *value)
    }

    /// Where that value is documented.
    fn source(&self, key: &str) -> Option<&str> {
        self.sources.iter().rev().find(|(set, _)| *set == key).map(|(_, source)| &**source)
    }

    fn without_guesses(&self) -> Given {
        let known = self.changes.iter().filter(|(key, _)| self.source(key).is_some());
        Given { changes: known.copied().collect(), sources: self.sources.clone() }
    }
}

/// What became of a claim.
pub struct Page {
    given: Given,
    figures: Vec<Row>,
    body: Body,
}

/// A figure, and what became of it when inputs were changed.
pub(crate) struct Row {
    figure: Figure,
    examined: Examined,
}

/// What a study has to say.
struct Body {
    figures: Vec<Figure>,
    facts: Vec<Fact>,
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
    basis: Basis,
}

/// What a figure follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// The model.
    Model,
    /// Published numbers alone.
    Arithmetic,
}

#[derive(Clone, Copy)]
pub(crate) enum Published {
    Exactly(f64),
    /// "Less than", "about" and the like: no difference can be computed.
    Below(f64),
    Above(f64),
    Between(f64, f64),
    /// Ours stands alone.
    Nothing,
}

/// Something that the model was given and that is not a number to change.
struct Fact {
    what: &'static str,
    value: String,
    origin: Origin,
    /// The origin in words.
    source: String,
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

impl Body {
    /// Two figures of one name, or an input that was fitted to none of them.
    fn fault(&self, inputs: &[Input]) -> Option<String> {
        for (index, figure) in self.figures.iter().enumerate() {
            if self.figures[..index].iter().any(|other| other.what == figure.what) {
                return Some(format!("two figures are called '{}'", figure.what));
            }
        }
        let origins = inputs.iter().map(|input| input.origin);
        let origins = origins.chain(self.facts.iter().map(|fact| fact.origin));
        let has = |name: &str| self.figures.iter().any(|figure| figure.what.starts_with(name));
        let unknown = origins.flat_map(Origin::fitted_to).find(|name| !has(name));
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

/// Figures, a row each: `what, unit, published, basis, ours;`.
macro_rules! figures {
    ($($what:expr, $unit:literal, $published:expr, $basis:ident, $ours:expr;)+) => {
        vec![$($crate::study::Figure {
            what: $what.to_owned(),
            unit: $unit,
            published: $published,
            basis: $crate::study::Basis::$basis,
            ours: $ours.into(),
        },)+]
    };
}
use figures;

/// Facts, a row each: `what, value, origin, source;`.
macro_rules! facts {
    ($($what:literal, $value:expr, $origin:expr, $source:expr;)+) => {
        vec![$($crate::study::Fact {
            what: $what,
            value: $value.to_string(),
            origin: $origin,
            source: $source.to_string(),
        },)+]
    };
}
use facts;

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
    use super::sensitivity::Label;
    use super::*;

    fn body(origin: Origin) -> Body {
        Body {
            figures: vec![Figure {
                what: "speed, fast".to_owned(),
                unit: "m/s",
                published: Published::Exactly(2.0),
                ours: Some(3.0),
                basis: Basis::Model,
            }],
            facts: facts! { "mass", "1 kg", origin, "the claim"; },
            grids: Vec::new(),
            judgement: Vec::new(),
            plot: Plot { title: "", x_label: "", y_label: "", lines: Vec::new() },
        }
    }

    const STUDY: Study = Study {
        name: "invented",
        claim: "",
        source: "",
        inputs: &[],
        alternatives: &[],
        figures: |_, _| Ok(body(Origin::Assumed).figures),
        body: |_, _| Ok(body(Origin::Calibrated(&["speed"]))),
    };

    fn run(study: &Study) -> Result<Page, String> {
        let shelf = Shelf::new(&|_, _| None);
        study.run(&shelf, &Given::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_fitted_figure_never_passes_for_a_prediction() {
        let label = |study: &Study| run(study).unwrap().figures[0].examined.label;
        assert_eq!(label(&STUDY), Label::Calibrated);
        let plain = Study { body: |_, _| Ok(body(Origin::Assumed)), ..STUDY };
        // Nobody can change the mass, so it may decide everything.
        assert_eq!(label(&plain), Label::Simulated);
    }

    #[test]
    fn a_page_that_contradicts_itself_is_refused() {
        let fitted_to_nothing =
            Study { body: |_, _| Ok(body(Origin::Calibrated(&["speed", "time"]))), ..STUDY };
        assert!(
            run(&fitted_to_nothing)
                .err()
                .unwrap()
                .contains("invented: an input was fitted to 'time'")
        );
        let twice = |_: &Shelf<'_>, _: &Changes| {
            let mut body = body(Origin::Assumed);
            body.figures.push(body.figures[0].clone());
            Ok(body)
        };
        let twice = Study { body: twice, ..STUDY };
        assert!(run(&twice).err().unwrap().contains("two figures are called 'speed, fast'"));
    }

    #[test]
    fn differences_are_of_the_published_figure() {
        let difference = |published, ours: Option<f64>| {
            let figures = figures! { "speed", "m/s", published, Model, ours; };
            figures[0].difference_ratio()
        };
        assert_eq!(difference(Published::Exactly(2.0), Some(3.0)), Some(0.5));
        assert_eq!(difference(Published::Exactly(2.0), None), None);
        assert_eq!(difference(Published::Exactly(0.0), Some(3.0)), None);
        assert_eq!(difference(Published::Below(2.0), Some(3.0)), None);
    }
}
