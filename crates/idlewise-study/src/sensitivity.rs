//! Which inputs decide a figure. A study runs again with each input that nobody documented at both ends of
//! what is plausible, with pairs of the strongest four and these four at once, and with all inputs at their ends. A figure's label
//! follows from what came of it.
//!
//! Inputs alone do not find what three of them do together: in `promotion`, bursts that are long, wide and
//! irregular turn a gain of 42 % into a loss, which none of the three does alone. All corners of twenty inputs are
//! a million runs. The rows of a Hadamard matrix and their opposites are a few dozen in which any three inputs meet
//! in all eight ways, equally often, with the others at either end. What no run contains may still be beyond what
//! was explored, so the page says *explored* and not *range*.

use std::fmt;

use rayon::prelude::*;

use crate::error::StudyError;
use crate::figure::{Basis, Fact, Figure, Given, Published, Study, short};
use crate::inputs::{Input, Origin, Together};
use crate::trial::Shelf;

/// A figure whose size changes by more than this factor is decided by what changed it. A figure agrees
/// with the published one within the same factor.
pub(crate) const STEADY_FACTOR: f64 = 1.25;
/// The strongest inputs: all pairs of them are changed together, and all of them at once.
const STRONGEST_COUNT: usize = 4;

/// How a figure of ours came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// It was put in, or an input was fitted to it: its agreement proves nothing.
    Calibrated,
    /// It follows from the model, whatever the plausible values of the inputs that nobody documented.
    Predicted,
    /// It follows from the model, but an input that nobody documented decides it.
    Simulated,
    /// It follows from published numbers, without a model.
    Arithmetic,
}

/// What became of a figure when inputs were changed.
#[derive(Clone, Debug)]
pub(crate) struct Examined {
    pub(crate) label: Label,
    /// The least and the greatest of all runs; none if there was none in some run.
    pub(crate) range: Option<(f64, f64)>,
    /// By both ends of each varied input, in the order of the inputs.
    pub(crate) effects: Vec<Effect>,
    /// What decides it, the strongest first.
    pub(crate) deciders: Vec<Decider>,
}

/// What one input alone, or a documented pair, does to a figure.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) input: String,
    pub(crate) ends: [f64; 2],
    pub(crate) gives: [Option<f64>; 2],
}

/// One input, or several together, that decide a figure.
#[derive(Clone, Debug)]
pub(crate) struct Decider {
    pub(crate) inputs: Vec<Changed>,
    pub(crate) gives: Option<f64>,
    pub(crate) why: Why,
}

/// An input at one of its ends.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub(crate) input: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

/// What is different about a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Why {
    /// There is none any more, or only now.
    Existence,
    Sign,
    /// Its size, by this factor.
    Size(f64),
    /// Whether it agrees with the published figure.
    Judgement,
}

impl Why {
    /// For ranking.
    fn strength(self) -> f64 {
        match self {
            Why::Existence | Why::Sign => f64::INFINITY,
            Why::Size(factor) => factor,
            Why::Judgement => 0.0,
        }
    }
}

impl Label {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Label::Calibrated => "calibrated",
            Label::Predicted => "predicted",
            Label::Simulated => "simulated",
            Label::Arithmetic => "arithmetic",
        }
    }
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Changed { input, value, unit } = self;
        write!(f, "{input} = {}{}{unit}", short(*value), if unit.is_empty() { "" } else { " " })
    }
}

impl Examined {
    /// The same after a look at what came of the listed values: who guesses another value gets no better label.
    pub(crate) fn no_better_than(self, listed: Examined) -> Examined {
        let ranges = self.range.zip(listed.range);
        let is_decided = listed.label == Label::Simulated;
        Examined {
            label: if is_decided { Label::Simulated } else { self.label },
            range: ranges.map(|(ours, its)| (ours.0.min(its.0), ours.1.max(its.1))),
            effects: self.effects,
            deciders: if self.deciders.is_empty() { listed.deciders } else { self.deciders },
        }
    }
}

/// What is varied as one: an input, or inputs that are documented together. An end is values of inputs, which
/// are indexes into the study's list.
struct Factor {
    name: String,
    ends: [Vec<(usize, f64)>; 2],
}

/// The ends of an input: those of what is plausible, and what the reader guessed. None if the reader has a source.
fn ends(input: &Input, given: &Given) -> Option<[f64; 2]> {
    match (given.value(input.key), given.source(input.key)) {
        (Some(_), Some(_)) => None,
        (None, _) => input.ends(),
        (Some(guess), None) => {
            let [low, high] = [*input.plausible.start(), *input.plausible.end()];
            let (low, high) = (low.min(guess), high.max(guess));
            (low < high).then_some([low, high])
        }
    }
}

fn factors(study: &Study, given: &Given) -> Vec<Factor> {
    let inputs = study.inputs;
    let alone = inputs.iter().enumerate().filter_map(|(index, input)| {
        let ends = ends(input, given)?.map(|end| vec![(index, end)]);
        Some(Factor { name: input.meaning.to_owned(), ends })
    });
    let together = study.alternatives.iter().filter_map(|[low, high]| {
        let end = |side: &Together| {
            let values = side.values.iter().map(|(key, value)| {
                let index = inputs.iter().position(|input| input.key == *key)?;
                given.source(key).is_none().then_some((index, *value))
            });
            values.collect::<Option<Vec<_>>>()
        };
        let ends = [end(low)?, end(high)?];
        let first = inputs[ends[0].first()?.0].meaning;
        Some(Factor { name: format!("{first}, as {} or {}", low.source, high.source), ends })
    });
    alone.chain(together).collect()
}

/// A run with changed inputs.
struct Run {
    /// Indexes into the list of factors, and the ends.
    changed: Vec<(usize, usize)>,
    /// What that changes. An end may be the value itself.
    values: Vec<(usize, f64)>,
    ours: Vec<Option<f64>>,
}

/// Runs a study with factors at their ends.
struct Runner<'a> {
    study: &'a Study,
    figures: &'a [Figure],
    shelf: &'a Shelf<'a>,
    given: &'a Given,
    factors: Vec<Factor>,
}

impl Runner<'_> {
    fn values(&self, changed: &[(usize, usize)]) -> Vec<(usize, f64)> {
        let values = changed.iter().flat_map(|&(factor, end)| &self.factors[factor].ends[end]);
        let is_other = |&&(index, value): &&(usize, f64)| {
            let input = &self.study.inputs[index];
            self.given.value(input.key).unwrap_or(input.value) != value
        };
        values.filter(is_other).copied().collect()
    }

    fn ours(&self, values: &[(usize, f64)]) -> Result<Vec<Option<f64>>, StudyError> {
        if values.is_empty() {
            return Ok(self.figures.iter().map(|figure| figure.ours).collect());
        }
        let mut changes = self.given.changes.clone();
        changes.extend(values.iter().map(|&(index, value)| (self.study.inputs[index].key, value)));
        let found = (self.study.figures)(self.shelf, &changes)?;
        if !found.iter().map(|figure| &figure.what).eq(self.figures.iter().map(|f| &f.what)) {
            let name = self.study.name;
            return Err(StudyError::Page(format!("{name}: its figures' names change")));
        }
        Ok(found.iter().map(|figure| figure.ours).collect())
    }

    /// Adds runs to those that were made; none is made twice.
    fn run(&self, all: Vec<Vec<(usize, usize)>>, runs: &mut Vec<Run>) -> Result<(), StudyError> {
        let mut wanted: Vec<Vec<(usize, f64)>> = Vec::new();
        for changed in &all {
            let values = self.values(changed);
            let is_known = runs.iter().any(|run| run.values == values) || wanted.contains(&values);
            if !is_known {
                wanted.push(values);
            }
        }
        let ours = wanted.par_iter().map(|values| self.ours(values));
        let ours: Vec<_> = ours.collect::<Result<_, _>>()?;
        for changed in all {
            let values = self.values(&changed);
            let made = wanted.iter().zip(&ours).find(|(wanted, _)| **wanted == values);
            let known = || runs.iter().find(|run| run.values == values).map(|run| &run.ours);
            let ours = made.map(|(_, ours)| ours).or_else(known).expect("it was made").clone();
            runs.push(Run { changed, values, ours });
        }
        Ok(())
    }

    /// What is left of a run that decides a figure, if everything is taken back that does not matter.
    fn smallest(&self, index: usize, run: &Run) -> Result<Decider, StudyError> {
        let figure = &self.figures[index];
        let mut changed = run.changed.clone();
        let mut gives = run.ours[index];
        let mut position = 0;
        while position < changed.len() {
            let mut fewer = changed.clone();
            fewer.remove(position);
            let ours = self.ours(&self.values(&fewer))?[index];
            if difference(figure, ours).is_some() {
                (changed, gives) = (fewer, ours);
            } else {
                position += 1;
            }
        }
        let why = difference(figure, gives).expect("what does not matter was taken back");
        Ok(self.decider(&changed, gives, why))
    }

    fn decider(&self, changed: &[(usize, usize)], gives: Option<f64>, why: Why) -> Decider {
        let values = changed.iter().flat_map(|&(factor, end)| &self.factors[factor].ends[end]);
        let describe = |&(index, value): &(usize, f64)| {
            let Input { meaning, unit, .. } = self.study.inputs[index];
            Changed { input: meaning, value, unit }
        };
        Decider { inputs: values.map(describe).collect(), gives, why }
    }

    /// What decides a figure, the strongest first. The first so many runs changed one factor or two.
    fn deciders(&self, index: usize, runs: &[Run], few: usize) -> Result<Vec<Decider>, StudyError> {
        let figure = &self.figures[index];
        let why = |run: &Run| difference(figure, run.ours[index]);
        let mut alone: Vec<usize> = Vec::new();
        let mut deciders: Vec<Decider> = Vec::new();
        for run in &runs[..few] {
            let Some(why) = why(run) else { continue };
            // A pair is worth a line only if neither of the two decides alone.
            if run.changed.len() == 1 {
                alone.push(run.changed[0].0);
            } else if run.changed.iter().any(|(factor, _)| alone.contains(factor)) {
                continue;
            }
            deciders.push(self.decider(&run.changed, run.ours[index], why));
        }
        if deciders.is_empty() {
            let strength = |run: &&Run| why(run).map(Why::strength);
            let deciding = runs.iter().filter(|run| strength(run).is_some());
            let strongest = deciding.max_by(|a, b| {
                let (a, b) = (strength(a).unwrap_or(0.0), strength(b).unwrap_or(0.0));
                a.total_cmp(&b)
            });
            deciders.extend(strongest.map(|run| self.smallest(index, run)).transpose()?);
        }
        deciders.sort_by(|a, b| b.why.strength().total_cmp(&a.why.strength()));
        Ok(deciders)
    }
}

/// Runs the study again and again. What the reader gives a source for is not varied.
pub(crate) fn examine(
    study: &Study,
    figures: &[Figure],
    facts: &[Fact],
    shelf: &Shelf<'_>,
    given: &Given,
) -> Result<Vec<Examined>, StudyError> {
    let runner = Runner { study, figures, shelf, given, factors: factors(study, given) };
    let factors = &runner.factors;
    let mut runs = Vec::new();
    let alone = (0..factors.len()).flat_map(|index| [vec![(index, 0)], vec![(index, 1)]]);
    runner.run(alone.collect(), &mut runs)?;
    let single_count = runs.len();
    let strongest = strongest(figures, &runs);
    runner.run(pairs(&strongest), &mut runs)?;
    let few = runs.len();
    runner.run(all_ways(&strongest), &mut runs)?;
    runner.run(corners(factors), &mut runs)?;
    // What is assumed and cannot be varied may decide everything.
    let is_all_varied = facts.iter().all(|fact| fact.origin != Origin::Assumed);
    let examined = figures.par_iter().enumerate().map(|(index, figure)| {
        let deciders = runner.deciders(index, &runs, few)?;
        let singles = runs[..single_count].chunks_exact(2);
        let effects = singles.zip(factors).map(|(ends, factor)| Effect {
            input: factor.name.clone(),
            ends: [0, 1].map(|end: usize| factor.ends[end][0].1),
            gives: [0, 1].map(|end: usize| ends[end].ours[index]),
        });
        let fitted =
            |origin: Origin| origin.fitted_to().iter().any(|name| figure.what.starts_with(name));
        let is_fitted = study.inputs.iter().any(|input| fitted(input.origin))
            || facts.iter().any(|fact| fitted(fact.origin));
        let label = match figure.basis {
            _ if is_fitted => Label::Calibrated,
            Basis::Arithmetic => Label::Arithmetic,
            Basis::Model if is_all_varied && deciders.is_empty() => Label::Predicted,
            Basis::Model => Label::Simulated,
        };
        let found = deciders.iter().map(|decider| decider.gives);
        let all = runs.iter().map(|run| run.ours[index]).chain([figure.ours]).chain(found);
        let range = all.collect::<Option<Vec<f64>>>().map(|all| {
            let low = all.iter().copied().fold(f64::INFINITY, f64::min);
            (low, all.iter().copied().fold(f64::NEG_INFINITY, f64::max))
        });
        Ok(Examined { label, range, effects: effects.collect(), deciders })
    });
    let examined: Vec<Examined> = examined.collect::<Result<_, StudyError>>()?;
    // Published numbers do not depend on a model's inputs.
    let moved = figures.iter().enumerate().find(|(index, figure)| {
        let is_other = |run: &Run| run.ours[*index] != figure.ours;
        figure.basis == Basis::Arithmetic && runs.iter().any(is_other)
    });
    match moved {
        Some((_, figure)) if given.changes.is_empty() => Err(StudyError::Page(format!(
            "{}: '{}' is called arithmetic, but depends on an input",
            study.name, figure.what
        ))),
        _ => Ok(examined),
    }
}

/// The factors that change the figures most, of runs that change one each.
fn strongest(figures: &[Figure], runs: &[Run]) -> Vec<usize> {
    let mut strengths: Vec<(usize, f64)> = Vec::new();
    for run in runs {
        let changes =
            figures.iter().zip(&run.ours).map(|(figure, ours)| change(figure.ours, *ours));
        let sum: f64 = changes.sum();
        let factor = run.changed[0].0;
        match strengths.iter_mut().find(|(of, _)| *of == factor) {
            Some((_, strength)) => *strength = strength.max(sum),
            None => strengths.push((factor, sum)),
        }
    }
    strengths.retain(|(_, strength)| *strength > 0.0);
    strengths.sort_by(|a, b| b.1.total_cmp(&a.1));
    strengths.iter().take(STRONGEST_COUNT).map(|(factor, _)| *factor).collect()
}

/// All pairs of ends of some factors.
fn pairs(factors: &[usize]) -> Vec<Vec<(usize, usize)>> {
    let mut pairs = Vec::new();
    for (i, &a) in factors.iter().enumerate() {
        for &b in &factors[i + 1..] {
            pairs.extend([(0, 0), (0, 1), (1, 0), (1, 1)].map(|(x, y)| vec![(a, x), (b, y)]));
        }
    }
    pairs
}

/// These factors at once, in all ways.
fn all_ways(factors: &[usize]) -> Vec<Vec<(usize, usize)>> {
    let way = |way: usize| {
        factors.iter().enumerate().map(|(i, &factor)| (factor, way >> i & 1)).collect()
    };
    (0..1 << factors.len()).map(way).collect()
}

/// Runs with all factors at their ends: any three meet in all eight ways. Where inputs are documented together, an
/// input of them is not varied by itself.
fn corners(factors: &[Factor]) -> Vec<Vec<(usize, usize)>> {
    let is_part = |factor: &Factor| {
        let index = factor.ends[0][0].0;
        let others = factors.iter().filter(|other| !std::ptr::eq(*other, factor));
        let mut together = others.filter(|other| other.ends[0].len() > 1);
        together.any(|other| other.ends[0].iter().any(|(part, _)| *part == index))
    };
    let varied: Vec<usize> =
        (0..factors.len()).filter(|&index| !is_part(&factors[index])).collect();
    if varied.len() < 2 {
        return Vec::new();
    }
    let rows = hadamard(varied.len());
    let opposite = |row: &Vec<bool>| row.iter().map(|is_high| !is_high).collect();
    let opposites: Vec<Vec<bool>> = rows.iter().map(opposite).collect();
    let corner = |row: &Vec<bool>| {
        varied.iter().zip(row).map(|(&factor, &is_high)| (factor, usize::from(is_high))).collect()
    };
    rows.iter().chain(&opposites).map(corner).collect()
}

/// The rows of a Hadamard matrix of at least that order, which is at least 2: any two columns agree in half of the
/// rows. Paley's construction where the order is one more than one of these primes, else the one of half the size
/// four times.
fn hadamard(least: usize) -> Vec<Vec<bool>> {
    const PRIMES: [usize; 5] = [3, 7, 11, 19, 23];
    let order = least.next_multiple_of(4);
    let Some(prime) = PRIMES.into_iter().find(|prime| prime + 1 == order) else {
        let half = hadamard(order / 2);
        let twice = |row: &Vec<bool>, is_same: bool| {
            row.iter().copied().chain(row.iter().map(|&is_high| is_high == is_same)).collect()
        };
        let [same, opposite] =
            [true, false].map(|is_same| half.iter().map(move |row| twice(row, is_same)));
        return same.chain(opposite).collect();
    };
    let is_square = |of: usize| (1..prime).any(|root| root * root % prime == of);
    let row = |i: usize| {
        let cell = move |j: usize| i == j || is_square((prime + j - i) % prime);
        std::iter::once(false).chain((0..prime).map(cell)).collect()
    };
    std::iter::once(vec![true; order]).chain((0..prime).map(row)).collect()
}

/// How much a number changed, from 0 to 1.
fn change(old: Option<f64>, new: Option<f64>) -> f64 {
    match (old, new) {
        (None, None) => 0.0,
        (Some(old), Some(new)) if old == new => 0.0,
        (Some(old), Some(new)) => (old - new).abs() / (old.abs() + new.abs()),
        _ => 1.0,
    }
}

/// What is different about a figure, if it is another one.
fn difference(figure: &Figure, new: Option<f64>) -> Option<Why> {
    let (old, new) = match (figure.ours, new) {
        (None, None) => return None,
        (Some(old), Some(new)) => (old, new),
        _ => return Some(Why::Existence),
    };
    if old == new {
        return None;
    }
    if old * new <= 0.0 {
        return Some(Why::Sign);
    }
    let factor = (new / old).max(old / new);
    if factor > STEADY_FACTOR {
        return Some(Why::Size(factor));
    }
    (figure.published.agrees(old) != figure.published.agrees(new)).then_some(Why::Judgement)
}

impl Published {
    /// Whether a figure of ours agrees with the published one; none if nothing was published.
    pub(crate) fn agrees(self, ours: f64) -> Option<bool> {
        match self {
            Published::Exactly(0.0) => Some(ours == 0.0),
            Published::Exactly(published) => {
                let ratio = ours / published;
                Some((1.0 / STEADY_FACTOR..=STEADY_FACTOR).contains(&ratio))
            }
            Published::Below(limit) => Some(ours < limit),
            Published::Above(limit) => Some(ours > limit),
            Published::Between(low, high) => Some((low..=high).contains(&ours)),
            Published::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::figure::{Body, Plot};
    use crate::inputs::Changes;

    fn input(key: &'static str, value: f64, ends: [f64; 2], origin: Origin) -> Input {
        Input {
            key,
            value,
            plausible: ends[0]..=ends[1],
            unit: "",
            origin,
            meaning: key,
            source: "",
        }
    }

    fn figure(what: &str, published: Published, ours: f64) -> Figure {
        Figure { what: what.to_owned(), unit: "", published, basis: Basis::Model, ours: Some(ours) }
    }

    /// Three figures: steady is m + 100, decided is m · c, agreeing is 10 + m against a published 12.
    fn model(_: &Shelf<'_>, changes: &Changes) -> Result<Vec<Figure>, StudyError> {
        let of = |key, value| changes.iter().rev().find(|c| c.0 == key).map_or(value, |c| c.1);
        let (m, c) = (of("m", 2.0), of("c", 3.0));
        Ok(vec![
            figure("steady", Published::Nothing, m + 100.0),
            figure("decided", Published::Nothing, m * c),
            figure("agreeing", Published::Exactly(10.0), 10.0 + m),
        ])
    }

    fn body(facts: Vec<Fact>, set: &Changes) -> Body {
        let figures = model(&SHELF, set).unwrap();
        let plot = Plot { title: "", x_label: "", y_label: "", lines: Vec::new() };
        Body { figures, facts, grids: Vec::new(), judgement: Vec::new(), plot }
    }

    static SHELF: Shelf<'_> = Shelf::new(&|_, _| None);
    const STUDY: Study = Study {
        name: "invented",
        claim: "",
        source: "",
        inputs: &[],
        alternatives: &[],
        figures: model,
        body: |_, set| Ok(body(Vec::new(), set)),
    };

    fn of(inputs: &[Input]) -> Study {
        Study { inputs: inputs.to_vec().leak(), ..STUDY }
    }

    fn examined(inputs: &[Input], facts: Vec<Fact>) -> Vec<Examined> {
        let Body { figures, facts, .. } = body(facts, &[]);
        examine(&of(inputs), &figures, &facts, &SHELF, &Given::default()).unwrap()
    }

    fn labels(inputs: &[Input], set: &Changes, source: Option<&str>) -> Vec<Label> {
        let sources = set.iter().filter_map(|(key, _)| Some((*key, source?.to_owned())));
        let given = Given { changes: set.to_vec(), sources: sources.collect() };
        let page = of(inputs).run(&SHELF, &given).unwrap();
        page.figures.iter().map(|row| row.examined.label).collect()
    }

    const ASSUMED: Origin = Origin::Assumed;

    #[test]
    fn a_label_follows_from_what_inputs_do() {
        use Label::{Calibrated, Predicted, Simulated};
        let c = || input("c", 3.0, [2.9, 3.1], ASSUMED);
        let wide = input("m", 2.0, [1.0, 4.0], ASSUMED);
        assert_eq!(labels(&[wide.clone(), c()], &[], None), [Predicted, Simulated, Simulated]);
        // Planting a fitted input as documented flips labels.
        let documented = Input { origin: Origin::Documented, ..wide.clone() };
        assert_eq!(labels(&[documented.clone(), c()], &[], None), [Predicted; 3]);
        // So does knowing it, which takes a source.
        let set = [("m", 2.0)];
        assert_eq!(labels(&[wide.clone(), c()], &set, Some("a scale")), [Predicted; 3]);
        assert_eq!(labels(&[wide.clone(), c()], &set, None), [Predicted, Simulated, Simulated]);
        // A guess in place of a documented value is none.
        let guess = [("m", 4.0)];
        assert_eq!(labels(&[documented, c()], &guess, None), [Predicted, Simulated, Simulated]);
        let fitted = Input { origin: Origin::Calibrated(&["decided"]), ..wide };
        let met = [("c", 1.0)];
        assert_eq!(
            labels(&[fitted.clone(), c()], &met, Some("a scale")),
            [Predicted, Calibrated, Simulated]
        );
        // It is 6 in place of the 2 that it was fitted to.
        assert_eq!(labels(&[fitted, c()], &[], None), [Simulated; 3]);
    }

    #[test]
    fn inputs_that_decide_only_together_are_found() {
        let inputs = [input("m", 2.0, [2.0, 2.4], ASSUMED), input("c", 3.0, [3.0, 3.6], ASSUMED)];
        let examined = examined(&inputs, Vec::new());
        assert_eq!(examined[1].label, Label::Simulated);
        assert_eq!(examined[1].deciders.len(), 1);
        assert_eq!(examined[1].deciders[0].inputs.len(), 2);
        let (low, high) = examined[1].range.unwrap();
        assert!(low == 6.0 && (high - 2.4 * 3.6).abs() < 1e-9);
    }

    /// Each input has an end that is its value: one run of each is left, and one of both.
    #[test]
    fn no_run_is_made_twice() {
        static RUN_COUNT: AtomicUsize = AtomicUsize::new(0);
        let counted = Study {
            figures: |shelf, changes| {
                RUN_COUNT.fetch_add(1, Ordering::Relaxed);
                model(shelf, changes)
            },
            ..STUDY
        };
        let inputs = [input("m", 2.0, [2.0, 2.4], ASSUMED), input("c", 3.0, [3.0, 3.6], ASSUMED)];
        let counted = Study { inputs: inputs.to_vec().leak(), ..counted };
        let figures = model(&SHELF, &[]).unwrap();
        let examined = examine(&counted, &figures, &[], &SHELF, &Given::default()).unwrap();
        assert_eq!(RUN_COUNT.load(Ordering::Relaxed), 3);
        assert_eq!(examined[1].effects[0].gives, [Some(6.0), Some(2.4 * 3.0)]);
    }

    #[test]
    fn the_strongest_comes_first_and_a_sign_beats_all() {
        let figure = figure("x", Published::Exactly(2.0), 2.0);
        assert_eq!(difference(&figure, Some(2.2)), None);
        assert_eq!(difference(&figure, Some(3.0)), Some(Why::Size(1.5)));
        assert_eq!(difference(&figure, Some(-2.0)), Some(Why::Sign));
        assert_eq!(difference(&figure, None), Some(Why::Existence));
        let near = Figure { ours: Some(2.4), ..figure };
        assert_eq!(difference(&near, Some(2.6)), Some(Why::Judgement));
        assert!(Why::Sign.strength() > Why::Size(9.0).strength());
    }

    #[test]
    fn what_cannot_be_varied_is_never_predicted() {
        let fact = Fact { what: "c", value: String::new(), origin: ASSUMED, source: String::new() };
        let examined = examined(&[], vec![fact]);
        assert!(examined.iter().all(|examined| examined.label == Label::Simulated));
    }

    /// Between the ends of what is plausible there may be values with which nothing seems to decide a figure.
    #[test]
    fn a_guess_never_gets_a_better_label() {
        let m = || input("m", 1.0, [1.0, 1.5], ASSUMED);
        for guess in [1.0, 1.2, 1.25, 1.5, 0.1, 30.0] {
            let labels = labels(&[m()], &[("m", guess)], None);
            assert_eq!(labels[1], Label::Simulated, "{guess}");
        }
    }

    /// Neither one nor two of the four do what three do.
    #[test]
    fn what_three_inputs_do_together_is_explored() {
        let study = Study {
            figures: |_, changes| {
                let is_high = |key| changes.contains(&(key, 2.0));
                let is_moved = is_high("a") && is_high("b") && is_high("c") && !is_high("d");
                Ok(vec![figure("moved", Published::Nothing, if is_moved { -1.0 } else { 1.0 })])
            },
            inputs: ["d", "c", "b", "a", "e", "f", "g"]
                .map(|key| input(key, 1.0, [1.0, 2.0], ASSUMED))
                .to_vec()
                .leak(),
            ..STUDY
        };
        let figures = (study.figures)(&SHELF, &[]).unwrap();
        let examined = examine(&study, &figures, &[], &SHELF, &Given::default()).unwrap();
        assert_eq!(examined[0].range, Some((-1.0, 1.0)));
        assert_eq!(examined[0].label, Label::Simulated);
        // Only what matters is listed.
        let inputs: Vec<&str> =
            examined[0].deciders[0].inputs.iter().map(|changed| changed.input).collect();
        assert!(["a", "b", "c"].iter().all(|key| inputs.contains(key)), "{inputs:?}");
        assert!(inputs.len() <= 4, "{inputs:?}");
    }

    #[test]
    fn any_three_factors_meet_in_all_eight_ways() {
        for count in [2, 3, 5, 8, 12, 14, 20, 22, 25] {
            let factor = |index| Factor {
                name: String::new(),
                ends: [vec![(index, 0.0)], vec![(index, 1.0)]],
            };
            let corners = corners(&(0..count).map(factor).collect::<Vec<_>>());
            let way = |corner: &[(usize, usize)], of: &[usize]| -> Vec<usize> {
                of.iter().map(|&factor| corner[factor].1).collect()
            };
            for a in 0..count {
                for b in 0..a {
                    for c in 0..b.max(1) {
                        let of = if b == 0 { vec![a, b] } else { vec![a, b, c] };
                        let ways = corners.iter().map(|corner| way(corner, &of));
                        let ways: std::collections::BTreeSet<_> = ways.collect();
                        assert_eq!(ways.len(), 1 << of.len(), "{count} factors: {of:?}");
                    }
                }
            }
        }
    }

    /// Two documented pairs are two machines; a third that has a value of each does not exist.
    #[test]
    fn values_that_are_documented_together_are_varied_together() {
        const PAIRS: &[crate::inputs::Alternative] = &[[
            Together { values: &[("m", 2.0), ("c", 6.0)], source: "one" },
            Together { values: &[("m", 4.0), ("c", 3.0)], source: "the other" },
        ]];
        let documented = Origin::Documented;
        let inputs =
            [input("m", 2.0, [2.0, 4.0], documented), input("c", 6.0, [3.0, 6.0], documented)];
        let study = Study { alternatives: PAIRS, ..of(&inputs) };
        let figures = (study.figures)(&SHELF, &[("m", 2.0), ("c", 6.0)]).unwrap();
        let given = Given::default();
        let examined = examine(&study, &figures, &[], &SHELF, &given);
        let examined = examined.unwrap();
        assert_eq!(examined[1].range, Some((12.0, 12.0)), "m · c");
        assert_eq!(examined[0].range, Some((102.0, 104.0)));
        // A source for one of the two values also decides the other.
        let known = Given { changes: vec![("m", 2.0)], sources: vec![("m", "a scale".to_owned())] };
        assert!(factors(&study, &known).is_empty());
    }
}
