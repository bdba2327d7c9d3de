//! Why predictions miss the goal: what the figures themselves tell, and for the rest what `misses.toml` says.

use std::collections::BTreeSet;
use std::fs;

use super::{Case, Set, root};

/// A 99th percentile of fewer wake-ups than this has ten of them or so above it.
const FEW_WAKES: usize = 1_500;

/// A cause, and what it explains.
pub(super) struct Cause {
    pub why: String,
    explains: Explains,
}

/// Whether a case's figures tell that it is this one.
type Tells = fn(&Case) -> bool;

enum Explains {
    Figures(Tells),
    /// The names of cases.
    Cases(BTreeSet<String>),
}

impl Cause {
    fn explains(&self, set: &Set, case: &Case) -> bool {
        match &self.explains {
            Explains::Figures(tell) => tell(case),
            Explains::Cases(names) => names.contains(&set.name_of(case)),
        }
    }
}

/// All causes. Of a case, the first counts that explains it.
pub(super) struct Causes(pub Vec<Cause>);

impl Causes {
    pub fn new() -> Self {
        let of_figures: [(&str, Tells); 3] = [
            (
                "The run of the recorded setting misses the recording by as much. `predict` leaves such figures out, or refuses.",
                |case| {
                    let base = super::errors(&case.played_base, &case.base, [&case.base; 2]);
                    overlaps(case, &base)
                },
            ),
            (
                "A percentile lies between two kinds of wake-ups, so a few more of one kind change it as much as they can; near it, \
                 the prediction is right.",
                |case| case.is_between_modes(),
            ),
            ("A tail of 15 wake-ups or fewer, of which one or two came otherwise.", |case| {
                let [throughput, p50, _] = Case::meets(&case.errors_of(false));
                throughput && p50 && case.measured.wake_count < FEW_WAKES
            }),
        ];
        let of_figures = of_figures
            .map(|(why, tell)| Cause { why: why.to_owned(), explains: Explains::Figures(tell) });
        Causes(of_figures.into_iter().chain(of_file()).collect())
    }

    /// The place of what explains a case; `None` if nothing does.
    pub fn of(&self, set: &Set, case: &Case) -> Option<usize> {
        self.0.iter().position(|cause| cause.explains(set, case))
    }

    /// The names that `misses.toml` has.
    pub fn named(&self) -> Vec<&String> {
        let names = self.0.iter().filter_map(|cause| match &cause.explains {
            Explains::Figures(_) => None,
            Explains::Cases(names) => Some(names),
        });
        names.flatten().collect()
    }
}

/// Whether each figure that a case misses is missed by these errors too.
fn overlaps(case: &Case, errors: &super::Errors) -> bool {
    let met = Case::meets(&case.errors_of(false));
    let met_too = Case::meets(errors);
    met.iter().zip(met_too).all(|(&met, met_too)| met || !met_too)
}

fn of_file() -> Vec<Cause> {
    let text = fs::read_to_string(root().join("conformance/prediction/misses.toml"))
        .expect("there is misses.toml");
    let table: toml::Table = text.parse().expect("misses.toml is TOML");
    let causes = table.get("cause").and_then(toml::Value::as_array).expect("it has causes");
    let cause = |cause: &toml::Value| {
        let cases = cause["cases"].as_array().expect("a cause has cases").iter();
        let text = |value: &toml::Value| value.as_str().expect("it is a text").trim().to_owned();
        Cause { why: text(&cause["why"]), explains: Explains::Cases(cases.map(text).collect()) }
    };
    causes.iter().map(cause).collect()
}
