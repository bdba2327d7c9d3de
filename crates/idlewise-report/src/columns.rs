//! The columns of our tables. A number we print is defined here and nowhere else: its name in CSV
//! and JSON, its heading, unit and meaning. docs/columns.md is generated from these definitions.

use std::fmt::Write as _;

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

/// A column, defined once.
///
/// ```
/// use idlewise_report::{Better, Column, Priority, Unit};
///
/// static DELAY_P99: Column = Column {
///     id: "delay_p99_ns",
///     heading: "delay p99",
///     unit: Unit::Nanoseconds,
///     meaning: "99th percentile of the time by which events were delayed.",
///     better: Some(Better::Lower),
///     priority: Priority::Main,
/// };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
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

impl Column {
    /// A column of words that is part of the answer.
    pub const fn text(id: &'static str, heading: &'static str, meaning: &'static str) -> Self {
        let unit = Unit::Text;
        Column { id, heading, unit, meaning, better: None, priority: Priority::Main }
    }

    /// A column of numbers that is part of the answer, neither way better.
    pub const fn number(
        id: &'static str,
        heading: &'static str,
        unit: Unit,
        meaning: &'static str,
    ) -> Self {
        Column { id, heading, unit, meaning, better: None, priority: Priority::Main }
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

/// Id of a machine.
pub static MACHINE: Column =
    Column::text("machine", "machine", "The machine's id.").priority(Priority::Key);

/// Name of a machine for people.
pub static TITLE: Column =
    Column::text("title", "title", "The machine's name for people.").priority(Priority::Detail);

/// The idle states of a machine.
pub static STATES: Column =
    Column::text("states", "states", "Names of the idle states, shallowest first.");

/// Exit latency of the deepest state.
pub static DEEPEST_EXIT_LATENCY: Column = Column::number(
    "deepest_exit_latency_ns",
    "deepest exit",
    Unit::Nanoseconds,
    "Exit latency of the deepest state.",
);

/// Target residency of the deepest state.
pub static DEEPEST_TARGET_RESIDENCY: Column = Column::number(
    "deepest_target_residency_ns",
    "target residency",
    Unit::Nanoseconds,
    "Target residency of the deepest state.",
);

/// Basis of a machine's powers.
pub static POWER_BASIS: Column = Column::text(
    "power_basis",
    "power basis",
    "Where the powers of the states come from, the weakest of them: measured, simulated, \
     calibrated (published) or assumed.",
);

/// Kind of source of a machine.
pub static SOURCE: Column = Column::text(
    "source",
    "source",
    "What kind of source the states come from: captured, kernel table, device tree or paper.",
);

/// Index of a state.
pub static STATE_INDEX: Column =
    Column::number("state_index", "#", Unit::Count, "The state's place in its table, from 0.")
        .priority(Priority::Key);

/// Name of a state.
pub static STATE: Column =
    Column::text("state", "state", "The idle state's name.").priority(Priority::Key);

/// Exit latency of a state.
pub static EXIT_LATENCY: Column = Column::number(
    "exit_latency_ns",
    "exit latency",
    Unit::Nanoseconds,
    "Worst case from the wake-up to the first instruction, as declared.",
);

/// Target residency of a state.
pub static TARGET_RESIDENCY: Column = Column::number(
    "target_residency_ns",
    "target residency",
    Unit::Nanoseconds,
    "Shortest stay that pays, entry included, as declared.",
);

/// Power of a state.
pub static POWER: Column =
    Column::number("power_mw", "power", Unit::Milliwatts, "Power of one core in the state.");

/// Basis of a state's power.
pub static BASIS: Column = Column::text(
    "basis",
    "basis",
    "Where a figure comes from: measured, simulated, calibrated (published) or assumed.",
);

/// Whether a state is off by default.
pub static DEFAULT: Column = Column::text(
    "default",
    "default",
    "off if the state is disabled unless somebody turns it on, else on.",
);

/// How a state is asked for.
pub static ENTRY: Column = Column::text(
    "entry",
    "entered by",
    "How the state is asked for: an MWAIT hint, a UMWAIT state or an I/O port.",
)
.priority(Priority::Detail);

/// Flags of a state.
pub static FLAGS: Column = Column::text(
    "flags",
    "flags",
    "What the driver says that the state needs or does; machines/README.md lists them.",
)
.priority(Priority::Detail);

/// Description of a state.
pub static DESC: Column = Column::text("desc", "description", "What the driver says about it.")
    .priority(Priority::Detail);

/// The list of machines.
pub static MACHINE_LIST: [&Column; 7] = [
    &MACHINE,
    &TITLE,
    &STATES,
    &DEEPEST_EXIT_LATENCY,
    &DEEPEST_TARGET_RESIDENCY,
    &POWER_BASIS,
    &SOURCE,
];

/// The states of one machine.
pub static STATE_LIST: [&Column; 10] = [
    &STATE_INDEX,
    &STATE,
    &EXIT_LATENCY,
    &TARGET_RESIDENCY,
    &POWER,
    &BASIS,
    &DEFAULT,
    &ENTRY,
    &FLAGS,
    &DESC,
];

/// Markdown that defines the columns of several tables, one section each: docs/columns.md.
pub fn columns_markdown(tables: &[(&str, &[&Column])]) -> String {
    let mut text = String::from(
        "# Columns\n\nGenerated from `crates/idlewise-report/src/columns.rs`. CSV and JSON hold the \
         units given here; text scales them.\nAbsent is `-` in text, empty in CSV and `null` in \
         JSON; zero is `0`.\n",
    );
    for (title, columns) in tables {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n## {title}\n\n| column | unit | better | meaning |\n| --- | --- | --- | --- |\n"
        );
        for column in *columns {
            let better = match column.better {
                Some(Better::Lower) => "lower",
                Some(Better::Higher) => "higher",
                None => "",
            };
            let (id, unit, meaning) = (column.id, column.unit.as_str(), column.meaning);
            let _ = writeln!(text, "| `{id}` | {unit} | {better} | {meaning} |");
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What the name of a column must end in, for tests of every table's columns.
    pub(crate) fn assert_id_ends_in_unit(column: &Column) {
        let suffix = match column.unit {
            Unit::Nanoseconds => "_ns",
            Unit::Cycles => "_cycles",
            Unit::Microjoules => "_uj",
            Unit::Milliwatts => "_mw",
            Unit::Ratio => "_ratio",
            _ => "",
        };
        assert!(column.id.ends_with(suffix), "{}", column.id);
    }

    static SHARE: Column =
        Column::number("fit_ratio", "fit", Unit::Ratio, "Share of stays that fit.")
            .better(Better::Higher);

    #[test]
    fn markdown_has_a_section_for_each_table() {
        let text = columns_markdown(&[("One", &[&MACHINE, &SHARE]), ("Two", &[&POWER])]);
        let (_, sections) = text.split_once("\n## ").unwrap();
        assert_eq!(
            sections,
            "One\n\n\
             | column | unit | better | meaning |\n\
             | --- | --- | --- | --- |\n\
             | `machine` | text |  | The machine's id. |\n\
             | `fit_ratio` | ratio | higher | Share of stays that fit. |\n\
             \n## Two\n\n\
             | column | unit | better | meaning |\n\
             | --- | --- | --- | --- |\n\
             | `power_mw` | mW |  | Power of one core in the state. |\n"
        );
    }

    #[test]
    fn ids_end_in_their_unit() {
        for column in MACHINE_LIST.iter().chain(&STATE_LIST) {
            assert_id_ends_in_unit(column);
        }
    }
}
