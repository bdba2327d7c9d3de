//! A study's page: its figures, and what became of them when inputs were changed.

use crate::error::StudyError;
use crate::figure::{Body, Figure, Given, Study};
use crate::sensitivity::{Examined, Label, examine};
use crate::trial::Shelf;

/// What became of a claim.
pub struct Page {
    pub(crate) given: Given,
    pub(crate) figures: Vec<Row>,
    pub(crate) body: Body,
}

/// A figure, and what became of it when inputs were changed.
pub(crate) struct Row {
    pub(crate) figure: Figure,
    pub(crate) examined: Examined,
}

impl Study {
    /// Runs it with some inputs changed, and again with others to find out which decide its figures.
    ///
    /// # Errors
    /// If a machine or governor that it needs is missing, or the page contradicts itself.
    pub fn run(&self, shelf: &Shelf<'_>, given: &Given) -> Result<Page, StudyError> {
        let mut body = (self.body)(shelf, &given.changes)?;
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
        let missed = body.missed_fits(self.inputs, given);
        if !missed.is_empty() {
            // Neither what was fitted nor what follows from it.
            for examined in examined.iter_mut().filter(|it| it.label != Label::Arithmetic) {
                examined.label = Label::Simulated;
            }
        }
        body.judgement.splice(0..0, missed);
        let figures = body.figures.iter().cloned().zip(examined);
        let figures = figures.map(|(figure, examined)| Row { figure, examined }).collect();
        Ok(Page { given: given.clone(), figures, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Basis, Body, Figure, Plot, Published, facts};
    use crate::inputs::{Changes, Origin};

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
}
