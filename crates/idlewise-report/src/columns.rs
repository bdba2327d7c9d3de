//! The columns of our tables. A number we print is defined here and nowhere else: its name in CSV
//! and JSON, its heading, unit and meaning. docs/columns.md is generated from these definitions.

use std::fmt::Write as _;

use idlewise_sim::Price;

use crate::{
    Value, diff, export, info, ipi, machines, park, replay, simulate, study, timer, validate,
};

/// What a column counts in. CSV and JSON hold these base units; text scales them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Words.
    Text,
    /// How many.
    Count,
    /// A share, 0 to 1; text prints percent.
    Ratio,
    /// Time.
    Nanoseconds,
    /// Time, as the processor's TSC counts it.
    Cycles,
    /// Energy.
    Microjoules,
    /// Power.
    Milliwatts,
    /// How many in a second.
    PerSecond,
}

impl Unit {
    /// The base unit, as in CSV and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Unit::Text => "text",
            Unit::Count => "count",
            Unit::Ratio => "ratio",
            Unit::Nanoseconds => "ns",
            Unit::Cycles => "cycles",
            Unit::Microjoules => "uJ",
            Unit::Milliwatts => "mW",
            Unit::PerSecond => "1/s",
        }
    }
}

/// Which way a column is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Better {
    /// The least value is the best.
    Lower,
    /// The greatest value is the best.
    Higher,
}

/// Which columns a narrow text table gives up first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Says what the row is about; always there.
    Key,
    /// Part of the answer; goes only after all details.
    Main,
    /// For who wants to know more; goes first.
    Detail,
}

/// What a column is called and what it means: all of a [`Column`] but where its values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// Name in CSV and JSON; ends in the unit, as our identifiers do.
    pub id: &'static str,
    /// Words above the column in text; they are wrapped at spaces.
    pub heading: &'static str,
    /// What it counts in.
    pub unit: Unit,
    /// A full sentence, for docs/columns.md.
    pub meaning: &'static str,
    /// Which way it is better, if one can say so.
    pub better: Option<Better>,
    /// Whether it may be left out of a narrow text table.
    pub priority: Priority,
}

/// A column of a table about `Row`s, defined once: its heading, and where its values come from.
///
/// ```
/// use idlewise_report::{Column, Table};
///
/// struct State {
///     name: &'static str,
///     exit_latency_ns: u64,
/// }
/// let columns = [
///     Column::text("state", "state", "The state's name.", |state: &State| state.name.into()).key(),
///     Column::ns("exit_latency_ns", "exit latency", "Its exit latency.", |state: &State| {
///         state.exit_latency_ns.into()
///     })
///     .lower_is_better(),
/// ];
/// let c6 = State { name: "C6", exit_latency_ns: 290_000 };
/// assert_eq!(Table::new("", &columns, [c6]).to_csv(), "state,exit_latency_ns\nC6,290000\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Column<Row> {
    /// What it is called and what it means.
    pub heading: Heading,
    /// Takes its value from a row.
    pub value: fn(&Row) -> Value,
}

/// `count`, `ns` and so on: a column that counts in a unit, is part of the answer, and is better neither
/// way.
macro_rules! columns_in {
    ($($name:ident: $unit:ident, $what:literal;)*) => {
        impl<Row> Column<Row> {$(
            #[doc = $what]
            pub const fn $name(
                id: &'static str,
                words: &'static str,
                meaning: &'static str,
                value: fn(&Row) -> Value,
            ) -> Self {
                Column { heading: Heading::number(id, words, Unit::$unit, meaning), value }
            }
        )*}
    };
}

columns_in! {
    text: Text, "A column of words.";
    count: Count, "A column of whole numbers.";
    ratio: Ratio, "A column of shares, 0 to 1.";
    ns: Nanoseconds, "A column of times.";
    cycles: Cycles, "A column of times in cycles of the TSC.";
    uj: Microjoules, "A column of energies.";
    mw: Milliwatts, "A column of powers.";
    per_s: PerSecond, "A column of rates.";
}

impl<Row> Column<Row> {
    /// A column with a heading that other tables have too.
    pub const fn new(heading: Heading, value: fn(&Row) -> Value) -> Self {
        Column { heading, value }
    }

    /// The same column, never left out of a narrow text table.
    #[must_use]
    pub const fn key(mut self) -> Self {
        self.heading.priority = Priority::Key;
        self
    }

    /// The same column, the first to be left out of a narrow text table.
    #[must_use]
    pub const fn detail(mut self) -> Self {
        self.heading.priority = Priority::Detail;
        self
    }

    /// The same column, whose least value is the best.
    #[must_use]
    pub const fn lower_is_better(mut self) -> Self {
        self.heading.better = Some(Better::Lower);
        self
    }

    /// The same column, whose greatest value is the best.
    #[must_use]
    pub const fn higher_is_better(mut self) -> Self {
        self.heading.better = Some(Better::Higher);
        self
    }
}

/// The headings of a table's columns.
pub(crate) fn headings<Row>(columns: &[Column<Row>]) -> Vec<Heading> {
    columns.iter().map(|column| column.heading).collect()
}

impl Heading {
    /// A column of words that is part of the answer.
    pub const fn text(id: &'static str, heading: &'static str, meaning: &'static str) -> Self {
        let unit = Unit::Text;
        Heading { id, heading, unit, meaning, better: None, priority: Priority::Main }
    }

    /// A column of numbers that is part of the answer, neither way better.
    pub const fn number(
        id: &'static str,
        heading: &'static str,
        unit: Unit,
        meaning: &'static str,
    ) -> Self {
        Heading { id, heading, unit, meaning, better: None, priority: Priority::Main }
    }

    /// The same column, where less (or more) is better.
    #[must_use]
    pub const fn better(mut self, better: Better) -> Self {
        self.better = Some(better);
        self
    }

    /// The same column with another priority.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

/// Name of a log.
pub const LOG: Heading =
    Heading::text("log", "log", "The log that was replayed; `all` for all of them together.")
        .priority(Priority::Key);

/// Name of a governor.
pub const GOVERNOR: Heading = Heading::text(
    "governor",
    "governor",
    "The governor. `deepest`, `shallowest`, `timer-only` and `fixed=STATE` are bounds; an oracle \
     knows each gap in advance and picks the cheapest state at its λ.",
)
.priority(Priority::Key);

/// Id of a machine.
pub const MACHINE: Heading =
    Heading::text("machine", "machine", "The machine's id.").priority(Priority::Key);

/// Name of a state.
pub const STATE: Heading =
    Heading::text("state", "state", "The idle state's name.").priority(Priority::Key);

/// Every table that has columns, by its title in docs/columns.md.
fn tables() -> Vec<(&'static str, Vec<Heading>)> {
    vec![
        ("`idlewise replay`", headings(&replay::columns(&Price::STANDARD))),
        ("`idlewise replay` of several logs, log by log", headings(&replay::by_log_columns())),
        ("`idlewise simulate`, runs", headings(&simulate::run_columns())),
        ("`idlewise simulate`, spans", headings(&simulate::span_columns())),
        ("`idlewise simulate`, states", headings(&simulate::state_columns())),
        (
            "`idlewise study`, figures (`--json` has `published_min`, `published_max` and \
             `difference_ratio`)",
            headings(&study::columns()),
        ),
        (
            "`idlewise diff`, gaps in groups (`--csv`, and `groups` of `--json`)",
            headings(&diff::group_columns()),
        ),
        (
            "`idlewise diff`, the dearest gaps (`costly_gaps` of `--json`)",
            headings(&diff::costly_columns()),
        ),
        ("`idlewise info`", headings(&info::columns())),
        ("`idlewise export`", export::headings()),
        ("`idlewise validate`", headings(&validate::columns())),
        ("`idlewise measure park`", headings(&park::way_columns())),
        ("`idlewise measure park`, more threads than CPUs", headings(&park::round_trip_columns())),
        ("`idlewise measure park`, calls that wait for nobody", headings(&park::call_columns())),
        ("`idlewise measure park`, waits that time out", headings(&park::timeout_columns())),
        ("`idlewise measure ipi`, a CPU and a state", headings(&ipi::columns())),
        ("`idlewise measure ipi`, all of them", headings(&ipi::all_columns())),
        ("`idlewise measure timer`", headings(&timer::columns())),
        ("`idlewise machines`", headings(&machines::machine_columns())),
        ("`idlewise machines NAME`", headings(&machines::state_columns())),
    ]
}

/// Markdown that defines the columns of every table, one section each: docs/columns.md.
pub fn columns_markdown() -> String {
    let mut text = String::from(
        "# Columns\n\nGenerated from the columns in `crates/idlewise-report/src`. CSV and JSON hold \
         the units given here; text\nscales them. Absent is `-` in text, empty in CSV and `null` in \
         JSON; zero is `0`.\n",
    );
    for (title, columns) in tables() {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n## {title}\n\n| column | unit | better | meaning |\n| --- | --- | --- | --- |\n"
        );
        for Heading { id, unit, meaning, better, .. } in columns {
            let better = match better {
                Some(Better::Lower) => "lower",
                Some(Better::Higher) => "higher",
                None => "",
            };
            let _ = writeln!(text, "| `{id}` | {} | {better} | {meaning} |", unit.as_str());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_end_in_their_unit() {
        for (title, columns) in tables() {
            for column in columns {
                let suffix = match column.unit {
                    Unit::Nanoseconds => "_ns",
                    Unit::Cycles => "_cycles",
                    Unit::Microjoules => "_uj",
                    Unit::Milliwatts => "_mw",
                    Unit::Ratio => "_ratio",
                    _ => "",
                };
                assert!(column.id.ends_with(suffix), "{title}: {}", column.id);
            }
        }
    }

    #[test]
    fn no_table_has_two_columns_of_one_id() {
        for (title, columns) in tables() {
            let ids: std::collections::HashSet<_> = columns.iter().map(|one| one.id).collect();
            assert_eq!(ids.len(), columns.len(), "{title}");
        }
    }
}
