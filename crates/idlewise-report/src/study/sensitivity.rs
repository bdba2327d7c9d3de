//! Which inputs decide a figure. A study runs again with each input that nobody documented at both ends of
//! what is plausible, and with pairs of the strongest. A figure's label follows from what came of it.

use std::fmt;

use idlewise_sim::study::{Changes, Input, Origin, Shelf, StudyError};
use rayon::prelude::*;

use super::{Basis, Body, Figure, Published, Study};

/// A figure whose size changes by more than this factor is decided by what changed it. A figure agrees
/// with the published one within the same factor.
pub(super) const STEADY_FACTOR: f64 = 1.25;
/// The strongest inputs, all pairs of which are changed together.
const PAIRED_COUNT: usize = 4;

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
    pub(super) label: Label,
    /// The least and the greatest of all runs; none if there was none in some run.
    pub(super) range: Option<(f64, f64)>,
    /// By both ends of each varied input, in the order of the inputs.
    pub(super) effects: Vec<Effect>,
    /// What decides it, the strongest first.
    pub(super) deciders: Vec<Decider>,
}

/// What one input alone does to a figure.
#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) input: &'static str,
    pub(super) ends: [f64; 2],
    pub(super) gives: [Option<f64>; 2],
}

/// One input, or two together, that decide a figure.
#[derive(Clone, Debug)]
pub(super) struct Decider {
    pub(super) inputs: Vec<Changed>,
    pub(super) gives: Option<f64>,
    pub(super) why: Why,
}

/// An input at one of its ends.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) input: &'static str,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

/// What is different about a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Why {
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
    pub(super) fn as_str(self) -> &'static str {
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
        write!(
            f,
            "{input} = {}{}{unit}",
            super::short(*value),
            if unit.is_empty() { "" } else { " " }
        )
    }
}

/// A run with changed inputs.
struct Run {
    /// Indexes into the list of inputs, and the ends.
    changed: Vec<(usize, usize)>,
    ours: Vec<Option<f64>>,
}

/// Runs the study again and again. `set` are the reader's own changes, which are not varied.
pub(super) fn examine(
    study: &Study,
    inputs: &[Input],
    body: &Body,
    shelf: &Shelf<'_>,
    set: &Changes,
) -> Result<Vec<Examined>, StudyError> {
    let Body { figures, facts, .. } = body;
    let is_set = |input: &Input| set.iter().any(|(key, _)| *key == input.key);
    let varied = || inputs.iter().enumerate().filter(|(_, input)| !is_set(input));
    let ends = |index: usize| inputs[index].ends().unwrap_or([inputs[index].value; 2]);
    let run = |changed: Vec<(usize, usize)>, known: &[Run]| -> Result<Run, StudyError> {
        // An end may be the value itself. Without it, the run was made already.
        let is_other = |&(input, end): &(usize, usize)| ends(input)[end] != inputs[input].value;
        let effective: Vec<_> = changed.iter().copied().filter(is_other).collect();
        if effective.is_empty() {
            return Ok(Run { changed, ours: figures.iter().map(|figure| figure.ours).collect() });
        }
        if let Some(known) = known.iter().find(|run| run.changed == effective) {
            return Ok(Run { changed, ours: known.ours.clone() });
        }
        let mut changes = set.to_vec();
        changes.extend(effective.iter().map(|&(input, end)| (inputs[input].key, ends(input)[end])));
        let found = (study.figures)(shelf, &changes)?;
        let same = found.iter().map(|figure| &figure.what).eq(figures.iter().map(|f| &f.what));
        if !same {
            return Err(StudyError::Page(format!("{}: its figures' names change", study.name)));
        }
        Ok(Run { changed, ours: found.iter().map(|figure| figure.ours).collect() })
    };
    let alone: Vec<Vec<(usize, usize)>> = varied()
        .filter(|(_, input)| input.ends().is_some())
        .flat_map(|(index, _)| [vec![(index, 0)], vec![(index, 1)]])
        .collect();
    let run_all = |all: Vec<Vec<(usize, usize)>>, known: &[Run]| -> Result<Vec<Run>, StudyError> {
        all.into_par_iter().map(|changed| run(changed, known)).collect()
    };
    let mut runs = run_all(alone, &[])?;
    let pairs = run_all(strongest_pairs(figures, &runs), &runs)?;
    runs.extend(pairs);
    // What is assumed and cannot be varied may decide everything.
    let is_all_varied = facts.iter().all(|fact| fact.origin != Origin::Assumed);
    let describe = |&(input, end): &(usize, usize)| {
        let Input { meaning, unit, .. } = inputs[input];
        Changed { input: meaning, value: ends(input)[end], unit }
    };
    let examined = figures.iter().enumerate().map(|(index, figure)| {
        let runs = || runs.iter().map(|run| (run, run.ours[index]));
        let mut deciders: Vec<Decider> = Vec::new();
        for (run, gives) in runs() {
            let Some(why) = difference(figure, gives) else { continue };
            // A pair is worth a line only if neither of the two decides alone.
            let is_known = |input: &(usize, usize)| {
                let meaning = inputs[input.0].meaning;
                deciders
                    .iter()
                    .any(|known| known.inputs.len() == 1 && known.inputs[0].input == meaning)
            };
            if run.changed.len() == 1 || !run.changed.iter().any(is_known) {
                let inputs = run.changed.iter().map(describe).collect();
                deciders.push(Decider { inputs, gives, why });
            }
        }
        deciders.sort_by(|a, b| b.why.strength().total_cmp(&a.why.strength()));
        let single = || runs().filter(|(run, _)| run.changed.len() == 1);
        let effects = single().zip(single().skip(1)).step_by(2).map(|((run, low), (_, high))| {
            let input = run.changed[0].0;
            Effect { input: inputs[input].meaning, ends: ends(input), gives: [low, high] }
        });
        let fitted =
            |origin: Origin| origin.fitted_to().iter().any(|name| figure.what.starts_with(name));
        let is_fitted = inputs.iter().any(|input| fitted(input.origin))
            || facts.iter().any(|fact| fitted(fact.origin));
        let label = match figure.basis {
            _ if is_fitted => Label::Calibrated,
            Basis::Arithmetic => Label::Arithmetic,
            Basis::Model if is_all_varied && deciders.is_empty() => Label::Predicted,
            Basis::Model => Label::Simulated,
        };
        let all = || runs().map(|(_, ours)| ours).chain([figure.ours]);
        let range = all().collect::<Option<Vec<f64>>>().map(|all| {
            let low = all.iter().copied().fold(f64::INFINITY, f64::min);
            (low, all.iter().copied().fold(f64::NEG_INFINITY, f64::max))
        });
        Examined { label, range, effects: effects.collect(), deciders }
    });
    let examined: Vec<Examined> = examined.collect();
    // Published numbers do not depend on a model's inputs.
    let moved = figures.iter().zip(&examined).find(|(figure, examined)| {
        figure.basis == Basis::Arithmetic
            && examined
                .effects
                .iter()
                .any(|effect| effect.gives.iter().any(|ours| *ours != figure.ours))
    });
    match moved {
        Some((figure, _)) if set.is_empty() => Err(StudyError::Page(format!(
            "{}: '{}' is called arithmetic, but depends on an input",
            study.name, figure.what
        ))),
        _ => Ok(examined),
    }
}

/// All pairs of ends of the inputs that change the figures most.
fn strongest_pairs(figures: &[Figure], runs: &[Run]) -> Vec<Vec<(usize, usize)>> {
    let mut strengths: Vec<(usize, f64)> = Vec::new();
    for run in runs {
        let changes =
            figures.iter().zip(&run.ours).map(|(figure, ours)| change(figure.ours, *ours));
        let sum: f64 = changes.sum();
        let input = run.changed[0].0;
        match strengths.iter_mut().find(|(of, _)| *of == input) {
            Some((_, strength)) => *strength = strength.max(sum),
            None => strengths.push((input, sum)),
        }
    }
    strengths.retain(|(_, strength)| *strength > 0.0);
    strengths.sort_by(|a, b| b.1.total_cmp(&a.1));
    strengths.truncate(PAIRED_COUNT);
    let mut pairs = Vec::new();
    for (i, &(a, _)) in strengths.iter().enumerate() {
        for &(b, _) in &strengths[i + 1..] {
            pairs.extend([(0, 0), (0, 1), (1, 0), (1, 1)].map(|(x, y)| vec![(a, x), (b, y)]));
        }
    }
    pairs
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
    pub(super) fn agrees(self, ours: f64) -> Option<bool> {
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
    use crate::study::{Fact, Plot};

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
        let of = |key, value| changes.iter().find(|c| c.0 == key).map_or(value, |c| c.1);
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
        figures: model,
        body: |_, set| Ok(body(Vec::new(), set)),
    };

    fn examined(inputs: &[Input], facts: Vec<Fact>, set: &Changes) -> Vec<Examined> {
        examine(&STUDY, inputs, &body(facts, set), &SHELF, set).unwrap()
    }

    fn labels(inputs: &[Input], set: &Changes) -> Vec<Label> {
        examined(inputs, Vec::new(), set).iter().map(|examined| examined.label).collect()
    }

    const ASSUMED: Origin = Origin::Assumed;

    #[test]
    fn a_label_follows_from_what_inputs_do() {
        use Label::{Calibrated, Predicted, Simulated};
        let c = || input("c", 3.0, [2.9, 3.1], ASSUMED);
        let wide = input("m", 2.0, [1.0, 4.0], ASSUMED);
        assert_eq!(labels(&[wide.clone(), c()], &[]), [Predicted, Simulated, Simulated]);
        // Planting a fitted input as documented flips labels.
        let documented = Input { origin: Origin::Documented, ..wide.clone() };
        assert_eq!(labels(&[documented, c()], &[]), [Predicted; 3]);
        // So does knowing it.
        assert_eq!(labels(&[wide.clone(), c()], &[("m", 2.0)]), [Predicted; 3]);
        let fitted = Input { origin: Origin::Calibrated(&["decided"]), ..wide };
        assert_eq!(labels(&[fitted, c()], &[]), [Predicted, Calibrated, Simulated]);
    }

    #[test]
    fn inputs_that_decide_only_together_are_found() {
        let inputs = [input("m", 2.0, [2.0, 2.4], ASSUMED), input("c", 3.0, [3.0, 3.6], ASSUMED)];
        let examined = examined(&inputs, Vec::new(), &[]);
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
        let examined = examine(&counted, &inputs, &body(Vec::new(), &[]), &SHELF, &[]).unwrap();
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
        let examined = examined(&[], vec![fact], &[]);
        assert!(examined.iter().all(|examined| examined.label == Label::Simulated));
    }
}
