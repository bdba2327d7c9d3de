//! The lines under a table: the bases of its numbers, and reasons to doubt them.

use std::fmt::Write as _;

use idlewise_sim::Basis;
use idlewise_trace::{Doubt, Rank};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::shown::shown_in_line;

/// A finding, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Statement {
    /// The log it concerns; `None` if it is about none or several.
    pub log: Option<String>,
    /// The machine it concerns; `None` if it is about none or several.
    pub machine: Option<String>,
    /// The sentence.
    pub text: String,
}

impl Statement {
    /// Makes a statement about a log on a machine.
    pub fn about(log: &str, machine: &str, text: String) -> Self {
        Statement { log: Some(log.to_owned()), machine: Some(machine.to_owned()), text }
    }

    /// Makes a statement about no particular log or machine.
    pub fn general(text: impl Into<String>) -> Self {
        Statement { log: None, machine: None, text: text.into() }
    }
}

/// A reason to distrust a result, as in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountedDoubt {
    /// The sentence.
    pub doubt: String,
    /// How often it applies.
    pub count: u64,
}

/// Bases and doubts of a result. Duplicates are merged, so all parts of a computation may add some.
///
/// ```
/// use idlewise_report::Notes;
/// use idlewise_sim::Basis;
///
/// let mut notes = Notes::default();
/// notes.basis(Basis::Simulated, "delays");
/// notes.basis(Basis::Assumed, "powers of C1");
/// notes.basis(Basis::Simulated, "energy");
/// notes.doubt("the trace has no timer events");
/// notes.doubt("the trace has no timer events");
/// assert_eq!(
///     notes.to_text(80),
///     "Simulated: delays, energy. Assumed: powers of C1.\n\
///      Doubts:\n- the trace has no timer events (2 times)\n"
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    bases: Vec<(Basis, String)>,
    doubts: Vec<(String, Rank, u64)>,
    shows_minor: bool,
}

impl Notes {
    /// Adds the basis of some numbers, which `what` names.
    pub fn basis(&mut self, basis: Basis, what: impl Into<String>) {
        let entry = (basis, what.into());
        if !self.bases.contains(&entry) {
            self.bases.push(entry);
        }
    }

    /// Adds a major reason to distrust the result, ideally with a next step.
    pub fn doubt(&mut self, doubt: impl ToString) {
        self.ranked_doubt(Rank::Major, doubt);
    }

    /// Adds a reason to distrust the result.
    pub fn ranked_doubt(&mut self, rank: Rank, doubt: impl ToString) {
        let doubt = doubt.to_string();
        match self.doubts.iter_mut().find(|(known, ..)| *known == doubt) {
            Some((_, _, count)) => *count += 1,
            None => self.doubts.push((doubt, rank, 1)),
        }
    }

    /// Adds the doubts of a log's metadata or of a recording.
    pub fn doubts_of<'a>(&mut self, doubts: impl IntoIterator<Item = &'a Doubt>) {
        for doubt in doubts {
            self.ranked_doubt(doubt.rank(), doubt);
        }
    }

    /// Sets whether the text lists minor doubts instead of counting them.
    #[must_use]
    pub fn showing_minor(self, shows_minor: bool) -> Self {
        Self { shows_minor, ..self }
    }

    /// Returns the doubts in the order in which they were first added, each with its count.
    pub fn doubts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.doubts.iter().map(|(doubt, _, count)| (doubt.as_str(), *count))
    }

    /// Like [`Notes::doubts`], with the rank of each.
    pub(crate) fn ranked_doubts(&self) -> impl Iterator<Item = (&str, Rank, u64)> {
        self.doubts.iter().map(|(doubt, rank, count)| (doubt.as_str(), *rank, *count))
    }

    /// Returns the bases, in order.
    pub fn bases(&self) -> impl Iterator<Item = (Basis, &str)> {
        self.bases.iter().map(|(basis, what)| (*basis, what.as_str()))
    }

    /// Returns the bases for a JSON document.
    pub fn bases_json(&self) -> serde_json::Value {
        self.bases().map(|(basis, what)| json!({ "basis": basis.as_str(), "what": what })).collect()
    }

    /// Returns the doubts for a JSON document.
    pub fn counted_doubts(&self) -> Vec<CountedDoubt> {
        self.doubts()
            .map(|(doubt, count)| CountedDoubt { doubt: doubt.to_owned(), count })
            .collect()
    }

    /// Returns the lines, wrapped at `width`; empty if there are none.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = String::new();
        let sentences: Vec<String> = Basis::ALL
            .into_iter()
            .filter_map(|basis| {
                let of_basis = self.bases.iter().filter(|(b, _)| *b == basis);
                let whats: Vec<&str> = of_basis.map(|(_, what)| what.as_str()).collect();
                (!whats.is_empty())
                    .then(|| format!("{}: {}.", capitalized(basis.as_str()), whats.join(", ")))
            })
            .collect();
        if !sentences.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", wrap(&sentences.join(" "), width, 0));
        }
        let is_shown = |rank: Rank| self.shows_minor || rank == Rank::Major;
        let shown = || self.doubts.iter().filter(|(_, rank, _)| is_shown(*rank));
        let minor_count = self.doubts.len() - shown().count();
        let and = if shown().next().is_some() {
            text.push_str("Doubts:\n");
            "- and "
        } else {
            ""
        };
        for (doubt, _, count) in shown() {
            let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
            let _ = writeln!(text, "{}", wrap(&format!("- {doubt}{times}"), width, 2));
        }
        let _ = match minor_count {
            0 => Ok(()),
            1 => writeln!(text, "{and}1 minor doubt: --doubts shows it"),
            count => writeln!(text, "{and}{count} minor doubts: --doubts shows them"),
        };
        text
    }
}

fn capitalized(word: &str) -> String {
    let (head, tail) = word.split_at(word.len().min(1));
    head.to_ascii_uppercase() + tail
}

/// Wraps `text` at spaces into lines of at most `width` characters, indenting all but the first by
/// `indent` spaces. A word that is too long gets its own line. The result does not end with a
/// newline and contains nothing that controls a terminal.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut wrapped = String::new();
    let mut line_width = 0;
    for word in text.split_whitespace() {
        let word_width = word.chars().count();
        if wrapped.is_empty() {
            line_width = word_width;
        } else if line_width + 1 + word_width <= width {
            wrapped.push(' ');
            line_width += 1 + word_width;
        } else {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            line_width = indent + word_width;
        }
        wrapped.push_str(&shown_in_line(word));
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_with_a_hanging_indent() {
        assert_eq!(wrap("- one two three", 9, 2), "- one two\n  three");
        assert_eq!(wrap("an unbreakable word", 4, 0), "an\nunbreakable\nword");
        assert_eq!(wrap("", 4, 0), "");
    }

    #[test]
    fn bases_are_in_order_of_strength_and_doubts_in_order_of_arrival() {
        let mut notes = Notes::default();
        assert_eq!(notes.to_text(40), "");
        notes.basis(Basis::Assumed, "powers");
        notes.basis(Basis::Measured, "gaps");
        notes.basis(Basis::Assumed, "powers");
        notes.doubt("events were lost: record with a larger buffer");
        notes.doubt("short");
        notes.doubt("short");
        assert_eq!(
            notes.to_text(40),
            "Measured: gaps. Assumed: powers.\n\
             Doubts:\n\
             - events were lost: record with a larger\n\
             \u{20} buffer\n\
             - short (2 times)\n"
        );
        assert_eq!(notes.doubts().collect::<Vec<_>>()[1], ("short", 2));
    }

    #[test]
    fn minor_doubts_are_counted_or_shown() {
        let mut notes = Notes::default();
        notes.ranked_doubt(Rank::Minor, "odd");
        assert_eq!(notes.to_text(40), "1 minor doubt: --doubts shows it\n");
        notes.doubt("lost");
        notes.ranked_doubt(Rank::Minor, "odder");
        notes.ranked_doubt(Rank::Minor, "odder");
        let text = "Doubts:\n- lost\n- and 2 minor doubts: --doubts shows them\n";
        assert_eq!(notes.to_text(40), text);
        assert_eq!(notes.counted_doubts().len(), 3);
        let all = notes.showing_minor(true).to_text(40);
        assert_eq!(all, "Doubts:\n- odd\n- lost\n- odder (2 times)\n");
    }
}
