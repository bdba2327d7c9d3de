//! A result as text for a mailing list, in the form that merged commits of cpuidle governors have: what was
//! compared on what, a table with a column for each governor, what the figures rest on, and the commands.
//!
//! The text is ASCII and at most [`WIDTH`] columns wide, except for a link that is longer. It says "correlates"
//! where a commit that was measured could say "improves": a replay shows what governors would have decided.

use std::fmt::Write as _;

use idlewise_sim::Basis;

use crate::replay::{Outcome, Role};
use crate::shell::shell_word_in_ascii;
use crate::without_secrets;
use crate::{Notes, NotesForm, counted};

/// The width of the text. Quoted a few times it still fits a terminal.
pub const WIDTH: usize = 72;

/// The lines around the text under a commit, by which it is found again.
const BEGIN: &str = "[idlewise report; --commit replaces everything up to the end mark]";
const END: &str = "[end of idlewise report]";

/// A log that was replayed.
#[derive(Clone, Debug)]
pub struct MailLog {
    /// Its name.
    pub name: String,
    /// Gaps in it.
    pub gap_count: u64,
    /// CPUs with gaps.
    pub cpu_count: usize,
    /// The recorded kernel, if known.
    pub kernel: Option<String>,
    /// CONFIG_HZ.
    pub hz: u32,
}

/// A machine whose states the governors chose from.
#[derive(Clone, Debug)]
pub struct MailMachine {
    /// Its id, as in the outcomes.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What its powers rest on.
    pub power_basis: Basis,
}

/// Everything that is in a mail.
#[derive(Clone, Debug)]
pub struct Mail<'a> {
    /// The program, with its version and commit.
    pub program: String,
    /// The logs.
    pub logs: Vec<MailLog>,
    /// The machines, in order.
    pub machines: Vec<MailMachine>,
    /// One outcome for each machine and governor; sums over all logs, if there are several.
    pub outcomes: &'a [Outcome<'a>],
    /// Bases and doubts.
    pub notes: &'a Notes,
    /// The words of the command that prints the same figures, with the program's name.
    pub command: Vec<String>,
    /// Where others find the bundle.
    pub bundle: Option<String>,
}

impl Mail<'_> {
    /// Returns the text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        paragraph(&mut text, &self.subject());
        for (index, log) in self.logs.iter().enumerate() {
            paragraph(&mut text, &self.log(log, index));
        }
        for machine in &self.machines {
            let outcomes: Vec<&Outcome<'_>> =
                self.outcomes.iter().filter(|outcome| outcome.machine == machine.id).collect();
            if outcomes.is_empty() {
                continue;
            }
            paragraph(
                &mut text,
                &format!(
                    "On the idle states of {} ({}), with exit latency and target residency in us: {}.",
                    machine.title,
                    machine.id,
                    states(outcomes[0])
                ),
            );
            text.pop();
            text.push_str(&summary(&outcomes));
            text.push('\n');
            let governors: Vec<&Outcome<'_>> =
                outcomes.iter().copied().filter(|o| o.role == Role::Governor).collect();
            if !governors.is_empty() {
                text.push_str("Idle state usage (Share: of the time in idle states):\n");
                text.push_str(&usage(&governors));
                text.push('\n');
            }
            if let Some(words) = correlation(&outcomes) {
                paragraph(&mut text, &words);
            }
            paragraph(
                &mut text,
                &format!(
                    "Energy is simulated, from powers of {} that are {}.",
                    machine.id,
                    machine.power_basis.as_str()
                ),
            );
        }
        paragraph(
            &mut text,
            "Total: idle states entered. Above: stays shorter than the state's target residency while \
             a shallower state was enabled. Below: stays that were long enough for a deeper enabled \
             state. Delay: what wake events waited for the exit from the state that they found.",
        );
        paragraph(
            &mut text,
            "A replay keeps the recording's timeline. So the figures show what each governor would \
             have decided, and a difference correlates with the choice of governor; what it causes, \
             only a run on a kernel can show.",
        );
        text.push_str("What the figures rest on:\n");
        for line in ascii(&self.notes.clone().in_form(NotesForm::Full).to_text(1_000)).lines() {
            let indent = if line.starts_with("- ") { 2 } else { 0 };
            let _ = writeln!(text, "{}", wrapped(line, indent));
        }
        let _ = write!(text, "\nThe same figures come from:\n\n{}\n", shell_lines(&self.command));
        if let Some(bundle) = &self.bundle {
            let _ = write!(
                text,
                "\nLogs, governors and outputs are in\n\n  {}\n\nand `idlewise log bundle verify FILE` \
                 repeats them, byte for byte.\n",
                ascii(bundle)
            );
        }
        // It goes to a public list.
        without_secrets(&text).into_owned()
    }

    /// What was compared.
    fn subject(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.role == Role::Governor) {
            if !names.contains(&outcome.governor.as_str()) {
                names.push(&outcome.governor);
            }
        }
        let on = match self.logs.len() {
            1 => "a recording".to_owned(),
            count => format!("{count} recordings"),
        };
        let what = match names[..] {
            [] => "Idle gaps of".to_owned(),
            _ => format!("The decisions of {} in the idle gaps of", listed(&names)),
        };
        format!("{what} {on}, replayed with {}.", self.program)
    }

    fn log(&self, log: &MailLog, index: usize) -> String {
        let kernel = match &log.kernel {
            Some(kernel) => format!("Linux {kernel}"),
            None => "an unknown kernel".to_owned(),
        };
        let number = if self.logs.len() > 1 { format!("[{}] ", index + 1) } else { String::new() };
        format!(
            "{number}{}: {} of {}, recorded on {kernel} with HZ={}.",
            log.name,
            counted(grouped(log.gap_count), "idle gap"),
            counted(log.cpu_count, "CPU"),
            log.hz
        )
    }
}

fn paragraph(text: &mut String, words: &str) {
    text.push_str(&wrapped(words, 0));
    text.push_str("\n\n");
}

/// The states with their two times, as in `C1E 2/4`.
fn states(outcome: &Outcome<'_>) -> String {
    let us = |ns: u64| format!("{}", ns as f64 / 1e3);
    let state = |(index, name): (usize, &String)| {
        let state = outcome.states.get(index);
        format!("{name} {}/{}", us(state.exit_latency_ns), us(state.target_residency_ns))
    };
    let states: Vec<String> = outcome.state_names.iter().enumerate().map(state).collect();
    states.join(", ")
}

/// Joins names as in `a, b and c`.
pub fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    }
}

/// What distinguishes two governors. With more of them, the table has to do.
fn correlation(outcomes: &[&Outcome<'_>]) -> Option<String> {
    let mut governors = outcomes.iter().filter(|outcome| outcome.role == Role::Governor);
    let (a, b) = (governors.next()?, governors.next()?);
    if governors.next().is_some() {
        return None;
    }
    let miss = |o: &Outcome<'_>| percent(o.tally.too_deep_count() + o.tally.too_shallow_count(), o);
    let less = |a: f64, b: f64| {
        let change = 100.0 * (b - a) / a;
        match change.is_finite() {
            _ if a == b => "the same".to_owned(),
            true if change < 0.0 => format!("{:.2}% less", -change),
            true => format!("{change:.2}% more"),
            // There was none.
            false => "more".to_owned(),
        }
    };
    let delay = |o: &Outcome<'_>| o.delays().sum_ns() as f64;
    let energy = |o: &Outcome<'_>| o.costs.energy_uj(&o.tally);
    Some(format!(
        "On these gaps {} instead of {} correlates with {} delay in all and {} energy; cpuidle misses \
         go from {:.2}% to {:.2}%.",
        b.governor,
        a.governor,
        less(delay(a), delay(b)),
        less(energy(a), energy(b)),
        miss(a)?,
        miss(b)?,
    ))
}

/// A count as a percentage of the decisions.
fn percent(count: u64, outcome: &Outcome<'_>) -> Option<f64> {
    let all = outcome.tally.decision_count();
    (all > 0).then(|| 100.0 * count as f64 / all as f64)
}

/// A row of a table: a heading, and a number for each governor.
struct Metric {
    heading: String,
    cells: Vec<Option<f64>>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Count,
    /// Its change is a difference.
    Percent,
    /// With this many digits behind the point.
    Number(usize),
}

impl Metric {
    fn cell(&self, index: usize) -> String {
        let Some(value) = self.cells[index] else { return "-".to_owned() };
        match self.kind {
            Kind::Count => grouped(value as u64),
            Kind::Percent => format!("{value:.2}%"),
            Kind::Number(digits) => {
                let text = format!("{value:.digits$}");
                match text.split_once('.') {
                    Some((whole, part)) => {
                        format!("{}.{part}", grouped(whole.parse().unwrap_or(0)))
                    }
                    None => grouped(text.parse().unwrap_or(0)),
                }
            }
        }
    }

    /// The change from the first governor to the second.
    fn change(&self) -> String {
        let [Some(a), Some(b)] = self.cells[..] else { return "-".to_owned() };
        match self.kind {
            Kind::Percent => format!("{:+.2} pp", b - a),
            _ if a == b => "0".to_owned(),
            _ if a == 0.0 => "-".to_owned(),
            _ => format!("{:+.2}%", 100.0 * (b - a) / a),
        }
    }
}

/// The figures of each governor over all states.
fn summary(outcomes: &[&Outcome<'_>]) -> String {
    let judged =
        |outcome: &Outcome<'_>, value: f64| (outcome.role != Role::Oracle).then_some(value);
    let row = |heading: &str, kind, cell: &dyn Fn(&Outcome<'_>) -> Option<f64>| Metric {
        heading: heading.to_owned(),
        cells: outcomes.iter().map(|outcome| cell(outcome)).collect(),
        kind,
    };
    let most_uj = outcomes.iter().map(|o| o.costs.energy_uj(&o.tally)).fold(0.0, f64::max);
    let (unit, factor) = if most_uj >= 1e7 { ("J", 1e-6) } else { ("mJ", 1e-3) };
    let ns = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    let rows = [
        row("Total", Kind::Count, &|o| Some(o.tally.decision_count() as f64)),
        row("Above", Kind::Count, &|o| judged(o, o.tally.too_deep_count() as f64)),
        row("Below", Kind::Count, &|o| judged(o, o.tally.too_shallow_count() as f64)),
        row("Above/Total", Kind::Percent, &|o| judged(o, percent(o.tally.too_deep_count(), o)?)),
        row("Below/Total", Kind::Percent, &|o| judged(o, percent(o.tally.too_shallow_count(), o)?)),
        row("Total cpuidle miss", Kind::Percent, &|o| {
            judged(o, percent(o.tally.too_deep_count() + o.tally.too_shallow_count(), o)?)
        }),
        row("Delay p50 (us)", Kind::Number(1), &|o| ns(o.delays().quantile_ns(0.5))),
        row("Delay p99 (us)", Kind::Number(1), &|o| ns(o.delays().quantile_ns(0.99))),
        row("Delay sum (ms)", Kind::Number(3), &|o| Some(o.delays().sum_ns() as f64 / 1e6)),
        row(&format!("Energy ({unit})"), Kind::Number(3), &|o| {
            Some(o.costs.energy_uj(&o.tally) * factor)
        }),
    ];
    table(outcomes, &rows)
}

/// The figures of each state.
fn usage(outcomes: &[&Outcome<'_>]) -> String {
    let mut rows = Vec::new();
    let names = outcomes.first().map_or(&[][..], |outcome| outcome.state_names);
    for (index, name) in names.iter().enumerate() {
        let stay_ns = |outcome: &Outcome<'_>| -> u64 {
            outcome.tally.states.iter().map(|state| state.stay_ns).sum()
        };
        let mut row = |what: &str, kind, cell: &dyn Fn(&Outcome<'_>) -> Option<f64>| {
            rows.push(Metric {
                heading: format!("{name} {what}"),
                cells: outcomes.iter().map(|outcome| cell(outcome)).collect(),
                kind,
            });
        };
        row("Total", Kind::Count, &|o| Some(o.tally.states[index].entry_count as f64));
        row("Above", Kind::Count, &|o| Some(o.tally.states[index].too_deep_count as f64));
        row("Below", Kind::Count, &|o| Some(o.tally.states[index].too_shallow_count as f64));
        row("Share", Kind::Percent, &|o| {
            let all_ns = stay_ns(o);
            (all_ns > 0).then(|| 100.0 * o.tally.states[index].stay_ns as f64 / all_ns as f64)
        });
    }
    table(outcomes, &rows)
}

/// Draws a table, or several if the governors do not fit into one.
fn table(outcomes: &[&Outcome<'_>], rows: &[Metric]) -> String {
    const NAME_WIDTH_MAX: usize = 24;
    let headings = rows.iter().map(|row| ascii(&row.heading));
    let headings: Vec<String> =
        headings.map(|heading| shortened(&heading, NAME_WIDTH_MAX)).collect();
    let first_width = headings.iter().map(String::len).max().unwrap_or(0).max("Metric".len());
    let mut columns: Vec<Vec<String>> = Vec::new();
    for (index, outcome) in outcomes.iter().enumerate() {
        let mut column = vec![shortened(&ascii(&outcome.governor), NAME_WIDTH_MAX)];
        column.extend(rows.iter().map(|row| row.cell(index)));
        columns.push(column);
    }
    if outcomes.len() == 2 {
        let mut column = vec!["Change".to_owned()];
        column.extend(rows.iter().map(Metric::change));
        columns.push(column);
    }
    let width_of = |column: &Vec<String>| column.iter().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    let mut rest = &columns[..];
    while !rest.is_empty() {
        // A bar and two spaces for each column, and the last bar.
        let mut used = first_width + 4;
        let fitting = rest.iter().take_while(|column| {
            used += width_of(column) + 3;
            used <= WIDTH
        });
        let count = fitting.count().max(1);
        let (shown, later) = rest.split_at(count);
        rest = later;
        let widths: Vec<usize> = shown.iter().map(width_of).collect();
        let mut line = format!("+{}+", "-".repeat(first_width + 2));
        widths.iter().for_each(|width| line += &format!("{}+", "-".repeat(width + 2)));
        line.push('\n');
        text.push_str(&line);
        for row in 0..=rows.len() {
            let heading = if row == 0 { "Metric" } else { &headings[row - 1] };
            let _ = write!(text, "| {heading:first_width$} |");
            for (column, width) in shown.iter().zip(&widths) {
                let _ = write!(text, " {:>width$} |", column[row]);
            }
            text.push('\n');
            if row == 0 {
                text.push_str(&line);
            }
        }
        text.push_str(&line);
    }
    text
}

/// Cuts a name in the middle; both ends tell names apart.
fn shortened(name: &str, width: usize) -> String {
    if name.len() <= width {
        return name.to_owned();
    }
    let (head, tail) = (width / 2 - 1, width - width / 2 - 1);
    format!("{}..{}", &name[..head], &name[name.len() - tail..])
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes a text in ASCII. What idlewise itself writes has its usual ASCII form; foreign characters become `?`.
fn ascii(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => written.push('\n'),
            ' '..='~' => written.push(c),
            'λ' => written.push_str("lambda"),
            '¼' => written.push_str("1/4"),
            'µ' | 'μ' => written.push('u'),
            '×' => written.push('x'),
            '…' => written.push_str("..."),
            '–' | '—' | '−' => written.push('-'),
            '’' | '‘' => written.push('\''),
            '“' | '”' => written.push('"'),
            '\u{a0}' | '\u{202f}' | '\t' => written.push(' '),
            _ => written.push('?'),
        }
    }
    written
}

/// Wraps a paragraph in ASCII. A word that is longer than a line is cut.
fn wrapped(text: &str, indent: usize) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in ascii(text).split_whitespace() {
        let mut rest = word;
        while rest.len() > WIDTH - indent {
            let (part, left) = rest.split_at(WIDTH - indent);
            words.push(part.to_owned());
            rest = left;
        }
        words.push(rest.to_owned());
    }
    crate::wrap(&words.join(" "), WIDTH, indent)
}

/// A command as one can paste it into a shell, indented, with a backslash at the end of each line but the last.
fn shell_lines(words: &[String]) -> String {
    const INDENT: &str = "  ";
    let mut text = String::from(INDENT);
    let mut used = INDENT.len();
    let words: Vec<String> = words.iter().map(|word| shell_word_in_ascii(word)).collect();
    for (index, word) in words.iter().enumerate() {
        let mut word = word.as_str();
        if index > 0 {
            // An option and its value stand together, if they can.
            let value =
                words.get(index + 1).filter(|next| word.starts_with('-') && !next.starts_with('-'));
            let together = word.len() + value.map_or(0, |value| 1 + value.len());
            let needed = if together + 6 <= WIDTH { together } else { word.len() };
            // Room for the backslash.
            if used + 1 + needed + 2 > WIDTH {
                text.push_str(" \\\n    ");
                used = 4;
            } else {
                text.push(' ');
                used += 1;
            }
        }
        // A line can end within a word, if the next begins at its very beginning.
        while used + word.len() + 2 > WIDTH {
            let (part, rest) = word.split_at(WIDTH - used - 1);
            text.push_str(part);
            text.push_str("\\\n");
            (word, used) = (rest, 0);
        }
        text.push_str(word);
        used += word.len();
    }
    text
}

/// Why a text cannot be put under a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitFault {
    /// No line `---` ends the message.
    NoEnd,
    /// The file has several commits.
    Several,
    /// An earlier text has no end mark.
    NoEndMark,
}

impl std::fmt::Display for CommitFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CommitFault::NoEnd => {
                "no line `---` ends the message of a commit; make the file with `git format-patch`"
            }
            CommitFault::Several => {
                "it has several commits; name the file of one, as `git format-patch` writes them"
            }
            CommitFault::NoEndMark => {
                "an earlier text of idlewise has no end mark; take that text away by hand"
            }
        })
    }
}

/// Puts a text under the line `---` that ends the message in a file of `git format-patch`. An earlier one is
/// replaced. All other bytes stay what they are.
///
/// # Errors
/// If there is no such line, or an earlier text has no end.
pub fn under_commit(patch: &[u8], text: &str) -> Result<Vec<u8>, CommitFault> {
    let lines: Vec<&[u8]> = patch.split_inclusive(|&byte| byte == b'\n').collect();
    let bare = |line: &[u8]| line.trim_ascii_end().to_vec();
    let is_diff = |line: &&[u8]| line.starts_with(b"diff --git ") || line.starts_with(b"--- a/");
    // Each begins with a date that git invented for that.
    let is_begin = |line: &&[u8]| line.starts_with(b"From ") && bare(line).ends_with(b" 2001");
    if lines.iter().filter(|line| is_begin(line)).count() > 1 {
        return Err(CommitFault::Several);
    }
    let diff = lines.iter().position(is_diff).unwrap_or(lines.len());
    let end = lines[..diff].iter().position(|line| bare(line) == b"---");
    let end = end.ok_or(CommitFault::NoEnd)?;
    let newline = if lines[end].ends_with(b"\r\n") { "\r\n" } else { "\n" };
    let find = |mark: &str| lines[end..diff].iter().position(|line| bare(line) == mark.as_bytes());
    let rest = match (find(BEGIN), find(END)) {
        (None, _) => end + 1,
        // Only where we put it.
        (Some(1), Some(last)) => {
            let after = end + last + 1;
            let is_empty = lines.get(after).is_some_and(|line| bare(line).is_empty());
            after + usize::from(is_empty)
        }
        (Some(_), _) => return Err(CommitFault::NoEndMark),
    };
    let mut made = lines[..=end].concat();
    for line in [BEGIN, ""].into_iter().chain(text.trim_end().lines()).chain(["", END, ""]) {
        made.extend(line.as_bytes());
        made.extend(newline.as_bytes());
    }
    made.extend(lines[rest..].concat());
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "From 1234567890123456789012345678901234567890 Mon Sep 17 00:00:00 2001\n\
                         From: A <a@example.org>\nSubject: [PATCH] cpuidle: menu: x\n\n\
                         A list of\n--- dashes\nis no end.\n\nSigned-off-by: A <a@example.org>\n---\n \
                         drivers/cpuidle/governors/menu.c | 2 +-\n 1 file changed\n\n\
                         diff --git a/menu.c b/menu.c\n--- a/menu.c\n+++ b/menu.c\n@@ -1 +1 @@\n-a\n+b\n-- \n2.39\n";

    #[test]
    fn goes_under_the_line_that_ends_the_message() {
        let made = String::from_utf8(under_commit(PATCH.as_bytes(), "one\n").unwrap()).unwrap();
        let expected =
            PATCH.replace("---\n drivers", &format!("---\n{BEGIN}\n\none\n\n{END}\n\n drivers"));
        assert_eq!(made, expected);
        // A second time it takes the place of the first.
        let again = under_commit(made.as_bytes(), "two\nlines\n").unwrap();
        let again = String::from_utf8(again).unwrap();
        assert_eq!(again, expected.replace("\none\n", "\ntwo\nlines\n"));
        assert_eq!(under_commit(again.as_bytes(), "one\n").unwrap(), made.as_bytes());
    }

    #[test]
    fn other_bytes_stay() {
        let patch = PATCH.replace('\n', "\r\n").into_bytes();
        let mut patch: Vec<u8> = patch;
        patch.extend(b"\xff\xfe no newline");
        let made = under_commit(&patch, "one\n").unwrap();
        let mark = format!("{BEGIN}\r\n\r\none\r\n\r\n{END}\r\n\r\n");
        let at = made.windows(mark.len()).position(|window| window == mark.as_bytes()).unwrap();
        assert_eq!([&made[..at], &made[at + mark.len()..]].concat(), patch);
    }

    #[test]
    fn what_is_no_commit_is_refused() {
        let diff = &PATCH[PATCH.find("diff --git").unwrap()..];
        assert_eq!(under_commit(diff.as_bytes(), ""), Err(CommitFault::NoEnd));
        assert_eq!(under_commit(b"", ""), Err(CommitFault::NoEnd));
        let two = [PATCH, PATCH].concat();
        assert_eq!(under_commit(two.as_bytes(), ""), Err(CommitFault::Several));
        let half = PATCH.replace("---\n drivers", &format!("---\n{BEGIN}\n drivers"));
        assert_eq!(under_commit(half.as_bytes(), ""), Err(CommitFault::NoEndMark));
        // A line of three dashes in the diff is none of the message.
        let hidden = PATCH.replace("---\n drivers", " drivers").replace("@@\n", "@@\n---\n");
        assert_eq!(under_commit(hidden.as_bytes(), ""), Err(CommitFault::NoEnd));
    }

    #[test]
    fn commands_can_be_pasted() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(shell_lines(&words(&["idlewise", "replay", "a b"])), "  idlewise replay 'a b'");
        let long = format!("/x/{}", "y".repeat(150));
        let text = shell_lines(&words(&["idlewise", "replay", &long, "it's"]));
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        let joined = text.replace("\\\n", "");
        assert_eq!(
            joined.split_whitespace().collect::<Vec<_>>(),
            ["idlewise", "replay", &long, "'it'\\''s'"]
        );
    }

    #[test]
    fn numbers_and_names_are_plain() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(ascii("λ=¼ × 3 µs … é\u{1b}"), "lambda=1/4 x 3 us ... ??");
        assert_eq!(shortened("kernel/menu.c+a-long-patch-name", 24), "kernel/menu..-patch-name");
        assert_eq!(shortened("menu", 24), "menu");
        let text = wrapped(&"x".repeat(100), 2);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }
}
