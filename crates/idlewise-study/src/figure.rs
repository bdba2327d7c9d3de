//! What a study's page is made of: its claim, its figures beside the published ones, facts, tables, sentences and a plot;
//! and how numbers are written.

use idlewise_machine::{Machine, MachineState};

use crate::error::StudyError;
use crate::inputs::{Alternative, Changes, Input, Origin};
use crate::trial::{Shelf, Sweep};

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
    pub(crate) alternatives: &'static [Alternative],
    /// Its figures alone, for changed inputs.
    pub(crate) figures: fn(&Shelf<'_>, &Changes) -> Result<Vec<Figure>, StudyError>,
    pub(crate) body: fn(&Shelf<'_>, &Changes) -> Result<Body, StudyError>,
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
    pub(crate) fn value(&self, key: &str) -> Option<f64> {
        self.changes.iter().rev().find(|(set, _)| *set == key).map(|(_, value)| *value)
    }

    /// Where that value is documented.
    pub(crate) fn source(&self, key: &str) -> Option<&str> {
        self.sources.iter().rev().find(|(set, _)| *set == key).map(|(_, source)| &**source)
    }

    pub(crate) fn without_guesses(&self) -> Given {
        let known = self.changes.iter().filter(|(key, _)| self.source(key).is_some());
        Given { changes: known.copied().collect(), sources: self.sources.clone() }
    }
}

/// What a study has to say.
pub(crate) struct Body {
    pub(crate) figures: Vec<Figure>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) grids: Vec<Grid>,
    pub(crate) judgement: Vec<String>,
    pub(crate) plot: Plot,
}

/// A published figure beside ours.
#[derive(Clone)]
pub(crate) struct Figure {
    /// No other figure of the page has that name.
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) published: Published,
    /// None if what was measured never happened.
    pub(crate) ours: Option<f64>,
    pub(crate) basis: Basis,
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
pub(crate) struct Fact {
    pub(crate) what: &'static str,
    pub(crate) value: String,
    pub(crate) origin: Origin,
    /// The origin in words.
    pub(crate) source: String,
}

/// A further table.
pub(crate) struct Grid {
    pub(crate) title: String,
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// The command prints it; the page only names it.
    pub(crate) is_detail: bool,
}

impl Grid {
    pub(crate) fn detail(mut self) -> Self {
        self.is_detail = true;
        self
    }
}

pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    pub(crate) lines: Vec<Line>,
}

#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// x and y.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Body {
    /// Two figures of one name, or an input that was fitted to none of them.
    pub(crate) fn fault(&self, inputs: &[Input]) -> Option<String> {
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

/// How far a fitted figure may be from what it was fitted to.
const FIT_ERROR_RATIO_MAX: f64 = 0.05;

impl Body {
    /// A sentence for each input that the model was fitted to in vain: the first of its figures has another value.
    pub(crate) fn missed_fits(&self, inputs: &[Input], given: &Given) -> Vec<String> {
        let missed = inputs.iter().filter_map(|input| {
            let name = input.origin.fitted_to().first()?;
            let figure = self.figures.iter().find(|figure| figure.what.starts_with(name))?;
            let Input { key, unit, .. } = input;
            let Figure { what, ours, .. } = figure;
            let wanted = given.value(key).unwrap_or(input.value);
            let is_met = |ours: f64| (ours - wanted).abs() <= FIT_ERROR_RATIO_MAX * wanted.abs();
            if ours.is_some_and(is_met) {
                return None;
            }
            let (wanted, ours) = (number_text(wanted), or_dash(*ours, number_text));
            Some(format!(
                "The model cannot be fitted to {key} = {wanted} {unit}: with these inputs, '{what}' is {ours} {unit}. \
                 So this is not the claim's system, and no figure is about the claim."
            ))
        });
        missed.collect()
    }
}

impl Figure {
    /// Ours above the published one, as a ratio of it.
    pub(crate) fn difference_ratio(&self) -> Option<f64> {
        match self.published {
            Published::Exactly(published) if published != 0.0 => Some(self.ours? / published - 1.0),
            _ => None,
        }
    }
}

/// Figures, a row each: `what, unit, published, basis, ours;`.
macro_rules! figures {
    ($($what:expr, $unit:literal, $published:expr, $basis:ident, $ours:expr;)+) => {
        vec![$($crate::figure::Figure {
            what: $what.to_owned(),
            unit: $unit,
            published: $published,
            basis: $crate::figure::Basis::$basis,
            ours: $ours.into(),
        },)+]
    };
}
pub(crate) use figures;

/// Facts, a row each: `what, value, origin, source;`.
macro_rules! facts {
    ($($what:literal, $value:expr, $origin:expr, $source:expr;)+) => {
        vec![$($crate::figure::Fact {
            what: $what,
            value: $value.to_string(),
            origin: $origin,
            source: $source.to_string(),
        },)+]
    };
}
pub(crate) use facts;

/// A table: its title, its rows, and a line for each column: `heading => cell;`.
macro_rules! table {
    ($title:literal; $rows:expr, |$row:pat_param| $($heading:literal => $cell:expr;)+) => {
        $crate::figure::Grid {
            title: format!($title),
            headings: vec![$($heading.to_owned()),+],
            rows: $rows.into_iter().map(|$row| vec![$($cell.to_string()),+]).collect(),
            is_detail: false,
        }
    };
}
pub(crate) use table;

/// Sentences of judgement: `text, what is put into it;`.
macro_rules! sentences {
    ($($text:literal $(, $value:expr)*;)+) => { vec![$(format!($text $(, $value)*)),+] };
}
pub(crate) use sentences;

/// A table of two things that were varied.
pub(crate) fn matrix<X, Y, R>(
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
        is_detail: false,
    }
}

/// At least three digits, and all of a whole number.
pub(crate) fn number_text(number: f64) -> String {
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
pub(crate) fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        0.1.. => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

/// A change.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{:+.1} %", ratio * 100.0)
}

/// A share.
pub(crate) fn share(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// What there may be none of.
pub(crate) fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// A round span with its unit.
pub(crate) fn span(ns: u64) -> String {
    match ns {
        1_000_000_000.. => format!("{} s", ns as f64 / 1e9),
        1_000_000.. => format!("{} ms", ns as f64 / 1e6),
        1_000.. => format!("{} us", ns as f64 / 1e3),
        _ => format!("{ns} ns"),
    }
}

/// A state that the study needed.
pub(crate) fn state<'a>(machine: &'a Machine, name: &str) -> &'a MachineState {
    machine.states.iter().find(|state| state.name == name).expect("the study ran with that state")
}

/// Nanoseconds as microseconds, for spans that are whole or nearly so.
pub(crate) fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

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
