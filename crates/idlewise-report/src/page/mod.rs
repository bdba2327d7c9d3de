//! The page of `idlewise report`: one HTML file to look at.
//!
//! | file | holds |
//! | --- | --- |
//! | `facts.rs` | [`Facts`]: everything except per-gap columns, as the script reads it |
//! | `described.rs` | what it says of machines, logs and notes |
//! | `gaps.rs` | gaps and courses as columns: what each column means |
//! | `given.rs` | [`Replayed`]: what a page of replays is made from |
//! | `replayed.rs` | totals, the front, regret, CPUs |
//! | `verdict.rs` | what to say in fifteen seconds |
//! | `measured.rs` | saved measurements as charts |
//! | `packed.rs` | [`Encoder`]: per-gap columns as compressed text |
//! | `html.rs` | the file around them, and its Content-Security-Policy |
//!
//! `page/` beside `src/` is the script in TypeScript; `page/dist` is what was built from it, and what
//! this crate includes.

mod described;
mod facts;
mod gaps;
mod given;
mod html;
mod measured;
mod packed;
mod replayed;
mod verdict;

use rayon::prelude::*;
use serde::Serialize;

pub use described::log_doubts;
pub use facts::*;
pub use gaps::{GapColumns, GapLog};
pub use given::{Replayed, ReplayedLog, ReplayedMachine};
pub use measured::measured_page;
pub use packed::{ColumnRef, Encoder, Encoding};
pub use replayed::front_prices_mw;

use html::Plain;

/// A page being made: facts, and columns that they refer to.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The facts.
    pub facts: Facts,
    columns: Vec<Encoder>,
}

impl Page {
    /// Starts a page.
    pub fn new(kind: PageKind) -> Self {
        Page { facts: Facts { schema: SCHEMA, kind, ..Facts::default() }, columns: Vec::new() }
    }

    /// Adds a column, and returns how the facts refer to it.
    pub fn add(&mut self, column: Encoder) -> ColumnRef {
        let reference = column.reference(self.columns.len());
        self.columns.push(column);
        reference
    }

    /// Adds a long list, and returns how the facts refer to it.
    pub fn add_json(&mut self, document: &impl Serialize) -> ColumnRef {
        self.add(Encoder::json(document))
    }

    /// Returns the HTML file. The same page is always the same bytes.
    pub fn to_html(&self) -> String {
        let columns: Vec<_> = self.columns.par_iter().map(Encoder::pack).collect();
        let facts = serde_json::to_string(&self.facts).expect("keys are strings");
        html::html(&self.facts.title, &self.plain(), &facts, &columns)
    }

    /// What is read without the script: the verdicts, their limits, and where it all comes from.
    fn plain(&self) -> Vec<Plain> {
        let facts = &self.facts;
        let mut plain = vec![Plain::Heading(facts.title.clone())];
        for verdict in &facts.verdicts {
            plain.push(Plain::Paragraph(verdict.sentence.clone()));
            let of_basis = |fact: &VerdictFact| format!("{} ({})", fact.text, fact.basis.word());
            plain.push(Plain::Items(verdict.facts.iter().map(of_basis).collect()));
            if !verdict.limits.is_empty() {
                plain.push(Plain::Paragraph("What limits this:".to_owned()));
                plain.push(Plain::Items(verdict.limits.clone()));
            }
        }
        for chart in &facts.charts {
            plain.push(Plain::Paragraph(format!("{}: {}", chart.title, chart.about)));
        }
        let of_basis = |note: &BasisNote| format!("{}: {}", note.basis.word(), note.text);
        plain.push(Plain::Items(facts.notes.basis.iter().map(of_basis).collect()));
        plain
            .push(Plain::Paragraph(format!("{} made this page: {}", facts.program, facts.command)));
        plain.retain(|part| !matches!(part, Plain::Items(items) if items.is_empty()));
        plain
    }
}
