//! The lines under a table: the bases of its numbers, and reasons to doubt them.

use std::fmt::Write as _;

use idlewise_machine::MachineDoubt;
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

/// How much of its notes a result prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotesForm {
    /// Bases and doubts in full.
    #[default]
    Full,
    /// A line of a few words for each major cause. `--doubts` prints the rest.
    Line,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Doubted {
    text: String,
    /// In a few words.
    brief: String,
    /// What it is about, and what is said of that; for doubts that have the same cause on many machines.
    about: Option<(String, String)>,
    rank: Rank,
    count: u64,
}

/// What some numbers rest on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Based {
    basis: Basis,
    what: String,
    /// If these are a machine's powers, the machine, and what depends on them.
    powers_of: Option<(String, &'static str)>,
}

/// Bases and doubts of a result. Duplicates are merged, so all parts of a computation may add some.
///
/// ```
/// use idlewise_report::{Notes, NotesForm};
/// use idlewise_sim::Basis;
///
/// let mut notes = Notes::default();
/// notes.basis(Basis::Simulated, "delays");
/// notes.powers(Basis::Assumed, "spr", "regret");
/// notes.basis(Basis::Simulated, "energy");
/// notes.doubt("the trace has no timer events; record timer:*");
/// notes.doubt("the trace has no timer events; record timer:*");
/// assert_eq!(
///     notes.to_text(80),
///     "Simulated: delays, energy. Assumed: powers of spr, so its regret.\n\
///      Doubts:\n- the trace has no timer events; record timer:* (2 times)\n"
/// );
/// let notes = notes.in_form(NotesForm::Line);
/// let line = "Energy: assumed power · the trace has no timer events · details: --doubts\n";
/// assert_eq!(notes.to_text(80), line);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    bases: Vec<Based>,
    doubts: Vec<Doubted>,
    form: NotesForm,
}

/// What the line says of assumed power, whoever says it.
const ASSUMED_POWERS: &str = "Energy: assumed power";
/// A doubt without a name of its own is cut here in the line.
const BRIEF_CHARS_MAX: usize = 48;

impl Notes {
    /// Adds the basis of some numbers, which `what` names.
    pub fn basis(&mut self, basis: Basis, what: impl Into<String>) {
        self.add_basis(Based { basis, what: what.into(), powers_of: None });
    }

    /// Adds the basis of a machine's powers, and what depends on them; empty if that is everything.
    pub fn powers(&mut self, basis: Basis, machine: &str, so: &'static str) {
        let what = powers_words(&[machine], so);
        self.add_basis(Based { basis, what, powers_of: Some((machine.to_owned(), so)) });
    }

    fn add_basis(&mut self, based: Based) {
        if !self.bases.contains(&based) {
            self.bases.push(based);
        }
    }

    /// Adds a major reason to distrust the result, ideally with a next step.
    pub fn doubt(&mut self, doubt: impl ToString) {
        self.ranked_doubt(Rank::Major, doubt);
    }

    /// Adds a reason to distrust the result.
    pub fn ranked_doubt(&mut self, rank: Rank, doubt: impl ToString) {
        let text = doubt.to_string();
        let brief = brief(&text);
        self.add(Doubted { text, brief, about: None, rank, count: 1 });
    }

    /// Adds the doubts of a log's metadata or of a recording.
    pub fn doubts_of<'a>(&mut self, doubts: impl IntoIterator<Item = &'a Doubt>) {
        for doubt in doubts {
            let (text, rank) = (doubt.to_string(), doubt.rank());
            let brief = match doubt {
                Doubt::Other(text) => brief(text),
                doubt => doubt.brief(),
            };
            self.add(Doubted { text, brief, about: None, rank, count: 1 });
        }
    }

    /// Adds what is doubtful about a machine.
    pub fn machine_doubts<'a>(
        &mut self,
        id: &str,
        doubts: impl IntoIterator<Item = &'a MachineDoubt>,
    ) {
        for doubt in doubts {
            let about = doubt.powers().map(|(states, said)| {
                (format!("{id} ({})", states.join(", ")), format!("power {said}"))
            });
            self.add(Doubted {
                text: format!("{id}: {doubt}"),
                brief: doubt.brief().to_owned(),
                about,
                rank: doubt.rank(),
                count: 1,
            });
        }
    }

    fn add(&mut self, doubt: Doubted) {
        match self.doubts.iter_mut().find(|known| known.text == doubt.text) {
            Some(known) => known.count += 1,
            None => self.doubts.push(doubt),
        }
    }

    /// Sets how much the text has. JSON always has all.
    #[must_use]
    pub fn in_form(self, form: NotesForm) -> Self {
        Self { form, ..self }
    }

    /// Returns the doubts in the order in which they were first added, each with its count.
    pub fn doubts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.doubts.iter().map(|doubt| (doubt.text.as_str(), doubt.count))
    }

    /// Like [`Notes::doubts`], with the rank of each.
    pub(crate) fn ranked_doubts(&self) -> impl Iterator<Item = (&str, Rank, u64)> {
        self.doubts.iter().map(|doubt| (doubt.text.as_str(), doubt.rank, doubt.count))
    }

    /// Returns the bases, in order.
    pub fn bases(&self) -> impl Iterator<Item = (Basis, &str)> {
        self.bases.iter().map(|based| (based.basis, based.what.as_str()))
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
        match self.form {
            NotesForm::Full => self.full_text(width),
            NotesForm::Line => self.line(width),
        }
    }

    /// Every major cause once, in a few words.
    fn line(&self, width: usize) -> String {
        if self.bases.is_empty() && self.doubts.is_empty() {
            return String::new();
        }
        let are_assumed =
            |based: &Based| based.basis == Basis::Assumed && based.powers_of.is_some();
        let assumed = self.bases.iter().any(are_assumed).then(|| ASSUMED_POWERS.to_owned());
        let major = self.doubts.iter().filter(|doubt| doubt.rank == Rank::Major);
        let mut parts: Vec<String> = Vec::new();
        for part in assumed.into_iter().chain(major.map(|doubt| doubt.brief.clone())) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        if parts.is_empty() {
            parts.push("No major doubts".to_owned());
        }
        parts.push("details: --doubts".to_owned());
        // A line breaks between two parts.
        let mut text = String::new();
        let mut line_width = 0;
        for part in parts {
            let part_width = part.chars().count();
            let (between, indent) = match line_width {
                0 => ("", 0),
                taken if taken + 5 + part_width <= width => (" · ", taken + 3),
                _ => (" ·\n  ", 2),
            };
            text += between;
            // Only a terminal narrower than a part breaks it.
            text += &wrap(&part, part_width.min(width.saturating_sub(2)), 2);
            line_width = indent + part_width;
        }
        text + "\n"
    }

    fn full_text(&self, width: usize) -> String {
        let mut text = String::new();
        let sentences: Vec<String> = Basis::ALL
            .into_iter()
            .filter_map(|basis| {
                let whats = machines_together(self.bases.iter().filter(|it| it.basis == basis));
                (!whats.is_empty())
                    .then(|| format!("{}: {}.", capitalized(basis.as_str()), whats.join(", ")))
            })
            .collect();
        if !sentences.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", wrap(&sentences.join(" "), width, 0));
        }
        let mut lines: Vec<String> = Vec::new();
        let mut causes: Vec<(&str, usize)> = Vec::new();
        for doubt in &self.doubts {
            let times =
                if doubt.count > 1 { format!(" ({} times)", doubt.count) } else { String::new() };
            let Some((about, cause)) = &doubt.about else {
                lines.push(format!("- {}{times}", doubt.text));
                continue;
            };
            match causes.iter().find(|(known, _)| known == cause) {
                Some(&(_, line)) => lines[line] += &format!("; {about}{times}"),
                None => {
                    causes.push((cause, lines.len()));
                    lines.push(format!("- {cause}: {about}{times}"));
                }
            }
        }
        if !lines.is_empty() {
            text.push_str("Doubts:\n");
        }
        for line in lines {
            let _ = writeln!(text, "{}", wrap(&line, width, 2));
        }
        text
    }
}

/// Lists the powers of several machines as one basis, where the same depends on them.
fn machines_together<'a>(bases: impl Iterator<Item = &'a Based>) -> Vec<String> {
    let mut whats: Vec<String> = Vec::new();
    // What depends on powers, of which machines, and where that is in the list.
    let mut powers: Vec<(&str, Vec<&str>, usize)> = Vec::new();
    for Based { what, powers_of, .. } in bases {
        let Some((machine, so)) = powers_of else {
            whats.push(what.clone());
            continue;
        };
        match powers.iter_mut().find(|(known, ..)| known == so) {
            Some((_, machines, index)) => {
                machines.push(machine);
                whats[*index] = powers_words(machines, so);
            }
            None => {
                powers.push((so, vec![machine], whats.len()));
                whats.push(what.clone());
            }
        }
    }
    whats
}

fn powers_words(machines: &[&str], so: &str) -> String {
    let their = if machines.len() == 1 { "its" } else { "their" };
    let so = if so.is_empty() { String::new() } else { format!(", so {their} {so}") };
    format!("powers of {}{so}", machines.join(", "))
}

/// The first clause of a text, or its beginning.
fn brief(text: &str) -> String {
    let end = ["; ", ": ", " ("].iter().filter_map(|end| text.find(end)).min();
    let clause = &text[..end.unwrap_or(text.len())];
    match clause.char_indices().nth(BRIEF_CHARS_MAX) {
        None => clause.to_owned(),
        Some((at, _)) => {
            let at = clause[..at].rfind(' ').unwrap_or(at);
            format!("{}…", &clause[..at])
        }
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
    fn a_line_has_each_major_cause_once() {
        let line = |notes: &Notes| notes.clone().in_form(NotesForm::Line).to_text(100);
        let mut notes = Notes::default();
        assert_eq!(line(&notes), "");
        notes.ranked_doubt(Rank::Minor, "odd");
        assert_eq!(line(&notes), "No major doubts · details: --doubts\n");
        notes.powers(Basis::Assumed, "spr", "regret");
        notes.powers(Basis::Assumed, "milan", "regret");
        for id in ["spr", "milan"] {
            let machine = idlewise_machine::bundled(id).unwrap();
            notes.machine_doubts(id, &machine.doubts());
        }
        notes.doubts_of(&[Doubt::LostEvents { count: 3 }, Doubt::LostEvents { count: 3 }]);
        notes.doubt(format!("odd {}", "and odder ".repeat(20)));
        assert_eq!(
            line(&notes),
            "Energy: assumed power · lost events: 3 · odd and odder and odder and odder and odder and… ·\n  \
             details: --doubts\n"
        );
        let narrow = notes.clone().in_form(NotesForm::Line).to_text(24);
        assert!(narrow.lines().all(|line| line.chars().count() <= 24), "{narrow}");
        // In full, too, a cause is said once, with all that it is true of.
        let full = notes.to_text(400);
        assert!(full.starts_with("Assumed: powers of spr, milan, so their regret.\n"), "{full}");
        assert!(full.contains("- power assumed: default shape"), "{full}");
        assert!(full.contains(": spr (C1, C1E, C6); milan (C1, C2)\n"), "{full}");
        assert!(full.contains("(2 times)\n") && full.contains("- odd\n"), "{full}");
        assert_eq!(notes.counted_doubts().len(), 5);
    }
}
