//! The columns of our tables. Every number that we print is defined here once: its name in CSV and
//! JSON, its heading, unit and meaning. docs/columns.md is generated from these definitions.

use std::fmt::Write as _;

use idlewise_sim::contest::Price;
use serde_json::json;

use crate::{
    Value, advise, arena, cell, compare, counters, diff, export, histogram, info, ipi, machines,
    park, predict, promotion, proxy, replay, residency, shared_states, simulate, states, study,
    switch, timer, trial, validate, wakes, watch, why, why_menu,
};

/// The base unit of a column, in which CSV and JSON print it. Text scales it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// No unit: text.
    Text,
    /// A count.
    Count,
    /// A share from 0 to 1. Text prints it in percent.
    Ratio,
    /// Time.
    Nanoseconds,
    /// Time in cycles of the processor's TSC.
    Cycles,
    /// Energy.
    Microjoules,
    /// Power.
    Milliwatts,
    /// A rate per second.
    PerSecond,
    /// A number without a unit, or in one that somebody else knows. It need not be whole.
    Number,
}

impl Unit {
    /// Returns the name of the base unit in CSV and JSON.
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
            Unit::Number => "number",
        }
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
    /// Its name and meaning.
    pub heading: Heading,
    /// Gets its value from a row.
    pub value: fn(&Row) -> Value,
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
pub(crate) fn headings<Row>(columns: &[Column<Row>]) -> Vec<Heading> {
    columns.iter().map(|column| column.heading).collect()
}

impl Heading {
    /// Makes a text column that is part of the answer.
    pub const fn text(id: &'static str, heading: &'static str, meaning: &'static str) -> Self {
        let unit = Unit::Text;
        Heading { id, heading, unit, meaning, better: None, priority: Priority::Main }
    }

    /// Makes a column of numbers that is part of the answer and has no best value.
    pub const fn number(
        id: &'static str,
        heading: &'static str,
        unit: Unit,
        meaning: &'static str,
    ) -> Self {
        Heading { id, heading, unit, meaning, better: None, priority: Priority::Main }
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
    Heading::text("log", "log", "The log that was replayed; `all` for all of them together.")
        .priority(Priority::Key);

/// The name of a governor.
pub const GOVERNOR: Heading = Heading::text(
    "governor",
    "governor",
    "The governor. `deepest`, `shallowest`, `timer-only` and `fixed=STATE` are bounds; an oracle \
     knows each gap in advance and picks the cheapest state at its λ.",
)
.priority(Priority::Key);

/// The id of a machine.
pub const MACHINE: Heading =
    Heading::text("machine", "machine", "The machine's id.").priority(Priority::Key);

/// The name of a state.
pub const STATE: Heading =
    Heading::text("state", "state", "The idle state's name.").priority(Priority::Key);

/// A documented table.
struct Listed {
    /// Its heading in docs/columns.md; empty if it is not there.
    title: &'static str,
    /// Its key in docs/schemas/columns.json; empty if `--json` does not print it.
    key: &'static str,
    columns: Vec<Heading>,
}

/// Every table that has columns.
fn tables() -> Vec<Listed> {
    fn listed<Row>(key: &'static str, title: &'static str, columns: &[Column<Row>]) -> Listed {
        Listed { title, key, columns: headings(columns) }
    }
    let given = [Price::Milliwatts(0.0)];
    let prices: Vec<Price> = Price::STANDARD.into_iter().chain(given).collect();
    vec![
        listed("", "`idlewise replay`", &replay::columns(&prices)),
        listed("replay", "", &replay::columns(&Price::STANDARD)),
        listed("replay_at_lambda", "", &replay::columns(&given)),
        listed("", "`idlewise replay` of several logs, log by log", &replay::by_log_columns()),
        listed(
            "replay_promotion",
            "`idlewise replay --promote`, with the timers and without (`promotion` of `--json`)",
            &promotion::columns(),
        ),
        listed(
            "replay_shared",
            "`idlewise replay`, states that CPUs share (`shared` of `--json`)",
            &shared_states::columns(),
        ),
        listed("arena", "`idlewise arena`", &arena::columns()),
        listed(
            "arena_cells",
            "`idlewise arena`, cells (`--csv`, and `cells` of `--json`)",
            &arena::cell_columns(),
        ),
        listed("", "`idlewise sweep`, a cell's file", &cell::file_columns()),
        listed(
            "sweep_cells",
            "`idlewise sweep collect` (`cells` of `--format json`)",
            &cell::collected_columns(),
        ),
        listed("predict_runs", "`idlewise predict`, settings", &predict::run_columns()),
        listed(
            "predict_tasks",
            "`idlewise predict`, tasks (`--csv`, and `tasks` of `--json`)",
            &predict::task_columns(),
        ),
        listed("simulate_runs", "`idlewise simulate`, runs", &simulate::run_columns()),
        listed("simulate_spans", "`idlewise simulate`, spans", &simulate::span_columns()),
        listed("simulate_states", "`idlewise simulate`, states", &simulate::state_columns()),
        listed(
            "",
            "`idlewise study`, figures (`--json` has `published_min`, `published_max` and \
             `difference_ratio`)",
            &study::columns(),
        ),
        listed(
            "diff_groups",
            "`idlewise diff`, gaps in groups (`--csv`, and `groups` of `--json`)",
            &diff::group_columns(),
        ),
        listed(
            "diff_costly_gaps",
            "`idlewise diff`, the dearest gaps (`costly_gaps` of `--json`)",
            &diff::costly_columns(),
        ),
        listed("info", "`idlewise info`", &info::columns()),
        listed("histogram", "`idlewise info` of a histogram", &histogram::state_columns()),
        listed(
            "histogram_limits",
            "`idlewise advise` for a histogram",
            &histogram::limit_columns(),
        ),
        listed(
            "info_why_menu",
            "`idlewise info --why-menu` (`why_menu.cpus` of `--json`)",
            &why_menu::columns(),
        ),
        Listed { key: "", title: "`idlewise export`", columns: export::headings() },
        listed("validate", "`idlewise validate`", &validate::columns()),
        listed("", "`idlewise measure park`", &park::way_columns()),
        listed("", "`idlewise measure park`, more threads than CPUs", &park::round_trip_columns()),
        listed("", "`idlewise measure park`, calls that wait for nobody", &park::call_columns()),
        listed("", "`idlewise measure park`, waits that time out", &park::timeout_columns()),
        listed("measure_ipi", "`idlewise measure ipi`, a CPU and a state", &ipi::columns()),
        listed("measure_ipi_all", "`idlewise measure ipi`, all of them", &ipi::all_columns()),
        listed("measure_timer", "`idlewise measure timer`", &timer::columns()),
        listed(
            "measure_ipi_proxy",
            "`idlewise measure ipi`, from user space (proxies)",
            &proxy::ipi_columns(),
        ),
        listed(
            "measure_timer_proxy",
            "`idlewise measure timer`, from user space (a proxy)",
            &proxy::timer_columns(),
        ),
        listed("measure_states", "`idlewise measure states`", &states::columns()),
        listed(
            "measure_residency",
            "`idlewise measure residency`",
            &residency::residency_columns(),
        ),
        listed("measure_power", "`idlewise measure power`", &residency::power_columns()),
        listed("measure_switch", "`idlewise measure switch`", &switch::columns()),
        listed("measure_counters", "`idlewise measure counters`", &counters::columns()),
        listed("compare", "`idlewise compare`", &compare::columns()),
        listed("try", "`idlewise try`", &trial::side_columns()),
        listed(
            "try_rounds",
            "`idlewise try`, rounds (`--csv`, and `rounds` of `--json`)",
            &trial::round_columns(),
        ),
        listed(
            "measure_wakes_woken",
            "`idlewise measure wakes`, by woken CPU",
            &wakes::woken_columns(),
        ),
        listed("measure_wakes_pairs", "`idlewise measure wakes`, by pair", &wakes::pair_columns()),
        listed("why", "`idlewise why`", &why::columns()),
        listed("watch_cpus", "`idlewise watch`, CPUs or groups of them", &watch::line_columns()),
        listed("watch_states", "`idlewise watch`, states", &watch::state_columns()),
        listed("watch_packages", "`idlewise watch`, packages", &watch::package_columns()),
        listed("advise", "`idlewise advise`", &advise::columns()),
        listed("machines", "`idlewise machines`", &machines::machine_columns()),
        listed("machine_states", "`idlewise machines NAME`", &machines::state_columns()),
    ]
}

/// Returns the JSON Schema of the rows of all tables in `--json`: docs/schemas/columns.json.
pub fn columns_schema() -> String {
    let row = |table: &Listed| {
        let property = |column: &Heading| {
            let (kind, unit) = match column.unit {
                Unit::Text => ("string", String::new()),
                Unit::Count | Unit::Number => ("number", String::new()),
                unit => ("number", format!(" In {}.", unit.as_str())),
            };
            let description = format!("{}{unit}", column.meaning);
            (column.id.to_owned(), json!({ "type": [kind, "null"], "description": description }))
        };
        let ids: Vec<&str> = table.columns.iter().map(|column| column.id).collect();
        let properties: serde_json::Map<_, _> = table.columns.iter().map(property).collect();
        json!({ "type": "object", "properties": properties, "required": ids })
    };
    let tables = tables().into_iter().filter(|table| !table.key.is_empty());
    let rows: serde_json::Map<_, _> =
        tables.map(|table| (table.key.to_owned(), row(&table))).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rows of the tables that --json prints. Made by `make golden`; do not edit.",
        "$defs": rows,
    });
    format!("{schema:#}\n")
}

/// Returns Markdown that defines the columns of every table, one section each: docs/columns.md.
pub fn columns_markdown() -> String {
    let mut text = String::from(
        "# Columns\n\nGenerated from the columns in `crates/idlewise-report/src`. CSV and JSON hold \
         the units given here; text\nscales them. Absent is `-` in text, empty in CSV and `null` in \
         JSON; zero is `0`.\n",
    );
    for Listed { title, columns, .. } in tables() {
        if title.is_empty() {
            continue;
        }
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
        for Listed { title, columns, .. } in tables() {
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
        for Listed { title, columns, .. } in tables() {
            let ids: std::collections::HashSet<_> = columns.iter().map(|one| one.id).collect();
            assert_eq!(ids.len(), columns.len(), "{title}");
        }
    }
}
