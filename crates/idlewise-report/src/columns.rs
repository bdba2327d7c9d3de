//! What a column is. Every number that we print is defined once: its name in CSV and JSON, its heading, unit and
//! meaning. `catalogue.rs` lists all tables.

use crate::value::Value;
use idlewise_core::words;

words! {
    /// The base unit of a column, in which CSV and JSON print it. Text scales it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Unit {
        /// No unit: text.
        Text = "text",
        /// A count.
        Count = "count",
        /// A share from 0 to 1. Text prints it in percent.
        Ratio = "ratio",
        /// Time.
        Nanoseconds = "ns",
        /// Time in cycles of the processor's TSC.
        Cycles = "cycles",
        /// Energy.
        Microjoules = "uJ",
        /// Power.
        Milliwatts = "mW",
        /// A rate per second.
        PerSecond = "1/s",
        /// A number without a unit, or in one that somebody else knows. It need not be whole.
        Number = "number",
    }
}

/// Whether lower or higher values of a column are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Better {
    /// The lowest value is the best.
    Lower,
    /// The highest value is the best.
    Higher,
}

/// Which columns a narrow text table drops first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Identifies the row. Never dropped.
    Key,
    /// Part of the answer. Dropped only after all details.
    Main,
    /// Additional information. Dropped first.
    Detail,
}

/// A column's name and meaning: everything in a [`Column`] except the source of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The name in CSV and JSON. Like our identifiers, it ends in the unit.
    pub id: &'static str,
    /// The heading in text, which is wrapped at spaces.
    pub heading: &'static str,
    /// The base unit.
    pub unit: Unit,
    /// A full sentence for docs/columns.md.
    pub meaning: &'static str,
    /// Which values are better, if any.
    pub better: Option<Better>,
    /// Whether a narrow text table may drop it.
    pub priority: Priority,
    /// Whether each of its values is shown within half a percent, however far apart they are.
    pub is_precise: bool,
}

/// A column of a table of `Row`s: its heading, and how to get its value from a row.
///
/// ```
/// use idlewise_report::{Column, Table};
///
/// struct State {
///     name: &'static str,
///     exit_latency_ns: u64,
/// }
/// let columns = [
///     Column::text("state", "state", |state: &State| state.name.into())
///         .means("The state's name.")
///         .key(),
///     Column::ns("exit_latency_ns", "exit latency", |state: &State| state.exit_latency_ns.into())
///         .means("Its exit latency.")
///         .lower_is_better(),
/// ];
/// let c6 = State { name: "C6", exit_latency_ns: 290_000 };
/// assert_eq!(Table::new("", &columns, [c6]).to_csv(), "state,exit_latency_ns\nC6,290000\n");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Column<Row> {
    /// Its name and meaning.
    pub heading: Heading,
    /// Gets its value from a row.
    pub value: fn(&Row) -> Value,
}

/// A column that lacks its meaning.
#[must_use]
pub struct Unexplained<Row>(Column<Row>);

impl<Row> Unexplained<Row> {
    /// Adds the meaning, a full sentence.
    pub const fn means(self, meaning: &'static str) -> Column<Row> {
        let Column { heading, value } = self.0;
        Column { heading: Heading { meaning, ..heading }, value }
    }
}

/// Defines constructors such as `count` and `ns`, for columns with a given unit that are part of
/// the answer and have no best value.
macro_rules! columns_in {
    ($($name:ident: $unit:ident, $what:literal;)*) => {
        impl<Row> Column<Row> {$(
            #[doc = $what]
            pub const fn $name(
                id: &'static str,
                words: &'static str,
                value: fn(&Row) -> Value,
            ) -> Unexplained<Row> {
                Unexplained(Column { heading: Heading::number(id, words, Unit::$unit, ""), value })
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
    number: Number, "A column of numbers without a unit, or in one that somebody else knows.";
}

impl<Row> Column<Row> {
    /// Makes a column with a heading that other tables also use.
    pub const fn new(heading: Heading, value: fn(&Row) -> Value) -> Self {
        Column { heading, value }
    }

    /// Makes a column that a narrow text table never drops.
    #[must_use]
    pub const fn key(mut self) -> Self {
        self.heading.priority = Priority::Key;
        self
    }

    /// Makes a column that a narrow text table drops first.
    #[must_use]
    pub const fn detail(mut self) -> Self {
        self.heading.priority = Priority::Detail;
        self
    }

    /// Makes a column that shows even its least value within half a percent.
    #[must_use]
    pub const fn precise(mut self) -> Self {
        self.heading.is_precise = true;
        self
    }

    /// Makes a column whose lowest value is the best.
    #[must_use]
    pub const fn lower_is_better(mut self) -> Self {
        self.heading.better = Some(Better::Lower);
        self
    }

    /// Makes a column whose highest value is the best.
    #[must_use]
    pub const fn higher_is_better(mut self) -> Self {
        self.heading.better = Some(Better::Higher);
        self
    }
}

/// The headings of a table's columns.
pub fn headings<Row>(columns: &[Column<Row>]) -> Vec<Heading> {
    columns.iter().map(|column| column.heading).collect()
}

impl Heading {
    /// Makes a text column that is part of the answer.
    pub const fn text(id: &'static str, heading: &'static str, meaning: &'static str) -> Self {
        Heading::number(id, heading, Unit::Text, meaning)
    }

    /// Makes a column of numbers that is part of the answer and has no best value.
    pub const fn number(
        id: &'static str,
        heading: &'static str,
        unit: Unit,
        meaning: &'static str,
    ) -> Self {
        Heading {
            id,
            heading,
            unit,
            meaning,
            better: None,
            priority: Priority::Main,
            is_precise: false,
        }
    }

    /// Sets whether lower or higher values are better.
    #[must_use]
    pub const fn better(mut self, better: Better) -> Self {
        self.better = Some(better);
        self
    }

    /// Sets the priority.
    #[must_use]
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }
}

/// The name of a log.
pub const LOG: Heading =
    Heading::text("log", "log", "The log; `all` for all of them together.").priority(Priority::Key);

/// The name of a governor.
pub const GOVERNOR: Heading =
    Heading::text("governor", "governor", "The governor, bound or oracle (docs/replay.md).")
        .priority(Priority::Key);

/// The id of a machine.
pub const MACHINE: Heading =
    Heading::text("machine", "machine", "The machine's id.").priority(Priority::Key);

/// The name of a state.
pub const STATE: Heading =
    Heading::text("state", "state", "The idle state's name.").priority(Priority::Key);
