//! What the page's script reads. `page/src/format.ts` has the same types: a change is made on both
//! sides at once.

#![expect(
    missing_docs,
    reason = "as in the module's table, a log's metadata, a machine's file and docs/columns.md"
)]

use idlewise_core::words;
use idlewise_sim::Basis;
use serde::Serialize;

use super::packed::ColumnRef;
use crate::columns::{Better, Unit};
use crate::text::{ShownColumn, shown_columns};
use crate::{Table, Value};

/// The version of these types.
pub const SCHEMA: u32 = 1;

/// What a page is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PageKind {
    /// Logs under governors on machines.
    #[default]
    Replay,
    /// Charts of a study or of saved measurements: everything about replays is empty.
    Figures,
}

/// Everything in the page except its columns.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    pub schema: u32,
    pub kind: PageKind,
    pub title: String,
    /// The program with its version.
    pub program: String,
    /// What makes this page again, quoted for a shell.
    pub command: String,
    pub logs: Vec<LogFacts>,
    pub machines: Vec<MachineFacts>,
    pub governors: Vec<GovernorFacts>,
    pub prices: Vec<PriceFacts>,
    pub verdicts: Vec<Verdict>,
    /// Log × machine × governor, and the sums over all logs, whose `log` is null.
    pub results: Vec<ResultFacts>,
    pub fronts: Vec<FrontFacts>,
    pub regret: Vec<RegretFacts>,
    /// The lower bounds of the bins of gap lengths, and the end of the last one.
    pub edges_ns: Vec<u64>,
    /// A document: an array of [`CpuFacts`].
    pub cpus: Option<ColumnRef>,
    pub wakes: Vec<WakeFacts>,
    /// The names of `reason` in the columns of gaps.
    pub reasons: Vec<String>,
    pub details: Vec<DetailFacts>,
    pub courses: Vec<CourseFacts>,
    pub tables: Vec<TableFacts>,
    pub charts: Vec<Chart>,
    pub notes: NoteFacts,
    pub provenance: Vec<Provenance>,
}

words! {
    word;
    /// What a figure rests on, strongest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum BasisKind {
        Recorded = "recorded",
        Measured = "measured",
        Simulated = "simulated",
        /// In a driver's or a vendor's table.
        Documented = "documented",
        Calibrated = "calibrated",
        Assumed = "assumed",
    }
}

impl From<Basis> for BasisKind {
    fn from(basis: Basis) -> Self {
        match basis {
            Basis::Measured => BasisKind::Measured,
            Basis::Simulated => BasisKind::Simulated,
            Basis::Calibrated => BasisKind::Calibrated,
            // A basis that this page does not know is no reason to trust a figure.
            _ => BasisKind::Assumed,
        }
    }
}

/// A log.
#[derive(Clone, Debug, Serialize)]
pub struct LogFacts {
    pub name: String,
    pub gap_count: u64,
    pub cpu_count: u64,
    /// The start of the first gap.
    pub first_ns: i64,
    /// From there to the end of the last gap.
    pub span_ns: u64,
    pub idle_ns: u64,
    pub kernel: Option<String>,
    /// The HZ that was replayed.
    pub hz: u32,
    /// The recorded machine.
    pub machine: Option<String>,
    /// The names of the recorded machine's states.
    pub state_names: Vec<String>,
    /// The governor of the recorded kernel.
    pub governor: Option<String>,
    /// Of the file that was read; null if it was a pipe.
    pub sha256: Option<String>,
    pub doubts: Vec<DoubtFacts>,
    pub knows: Knows,
}

/// What a recording contains. What it lacks is unknown, not zero.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Knows {
    /// The next timers.
    pub timers: bool,
    /// What ended each gap.
    pub wakes: bool,
    /// The states that the recorded kernel entered.
    pub states: bool,
    /// Whether the tick was stopped, and whether a task ran.
    pub ticks: bool,
}

/// A reason to distrust the figures.
#[derive(Clone, Debug, Serialize)]
pub struct DoubtFacts {
    /// The sentence.
    pub text: String,
    /// It moves no governor's cost by more than about 1 %.
    pub is_minor: bool,
    /// The log or machine that it is about, or nothing.
    pub about: String,
}

/// A machine.
#[derive(Clone, Debug, Serialize)]
pub struct MachineFacts {
    pub id: String,
    pub title: String,
    pub source: String,
    /// The price of delay that counts as λ = 1.
    pub full_price_mw: f64,
    pub running_mw: f64,
    pub tick_work_ns: u64,
    /// The latency limit of `--latency-limit-us`.
    pub latency_limit_ns: Option<u64>,
    pub states: Vec<StateFacts>,
    pub doubts: Vec<DoubtFacts>,
}

/// An idle state of a machine.
#[derive(Clone, Debug, Serialize)]
pub struct StateFacts {
    pub name: String,
    pub exit_latency_ns: u64,
    pub target_residency_ns: u64,
    pub power_mw: f64,
    /// The energy of entering and leaving it.
    pub transition_uj: f64,
    pub is_polling: bool,
    /// No governor may use it.
    pub is_disabled: bool,
    pub power_basis: BasisKind,
    pub latency_basis: BasisKind,
}

/// A governor.
#[derive(Clone, Debug, Serialize)]
pub struct GovernorFacts {
    /// Its name in results.
    pub name: String,
    /// What it does.
    pub about: String,
    /// Its part in the ranking.
    pub role: GovernorRole,
}

/// The part of a governor in the ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GovernorRole {
    Governor,
    Bound,
    Oracle,
    File,
}

/// A price of delay.
#[derive(Clone, Debug, Serialize)]
pub struct PriceFacts {
    /// Its name.
    pub name: String,
    /// The share of the machine's full price; null if milliwatts were given.
    pub share: Option<f64>,
    /// The milliwatts that were given.
    pub price_mw: Option<f64>,
}

/// What to say about a machine in fifteen seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Its index.
    pub machine: usize,
    /// The governor that others are compared with, and the one that the sentence compares with it: indices.
    pub base: Option<usize>,
    pub other: Option<usize>,
    /// Whether the first was in use while the logs were recorded.
    pub is_in_use: bool,
    /// One sentence.
    pub sentence: String,
    /// The largest facts behind it, at most three.
    pub facts: Vec<VerdictFact>,
    /// The doubts that limit it.
    pub limits: Vec<String>,
}

/// A fact with its basis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerdictFact {
    pub text: String,
    pub basis: BasisKind,
}

/// What a governor did. Indices are those of the lists in [`Facts`].
#[derive(Clone, Debug, Serialize)]
pub struct ResultFacts {
    pub log: Option<usize>,
    pub machine: usize,
    pub governor: usize,
    pub energy_uj: f64,
    pub delay_ns: u64,
    pub idle_ns: u64,
    pub gap_count: u64,
    pub too_deep_count: u64,
    pub too_shallow_count: u64,
    pub forbidden_count: u64,
    pub tick_wake_count: u64,
    pub delays: Vec<QuantileFacts>,
    pub states: Vec<StateCounts>,
    pub promotion_count: Option<u64>,
    pub free_ipi_count: Option<u64>,
}

/// A quantile of the delays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QuantileFacts {
    pub quantile: f64,
    pub ns: u64,
}

/// The counts of a state.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StateCounts {
    pub entry_count: u64,
    pub stay_ns: u64,
    pub too_deep_count: u64,
    pub too_shallow_count: u64,
}

/// The least energy for a delay: what the oracle reaches at these prices.
#[derive(Clone, Debug, Serialize)]
pub struct FrontFacts {
    pub log: Option<usize>,
    pub machine: usize,
    pub points: Vec<FrontPoint>,
}

/// A vertex of the front.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FrontPoint {
    pub lambda_mw: f64,
    pub energy_uj: f64,
    pub delay_ns: u64,
}

/// Where a governor's regret is, at a price.
#[derive(Clone, Debug, Serialize)]
pub struct RegretFacts {
    /// Null for all logs together.
    pub log: Option<usize>,
    /// The machine.
    pub machine: usize,
    /// The governor.
    pub governor: usize,
    /// The index of the price.
    pub price: usize,
    /// A document: an array of `[bin, chosen, right, count, regret_uj]`.
    pub cells: ColumnRef,
}

/// A governor on a CPU.
#[derive(Clone, Debug, Serialize)]
pub struct CpuFacts {
    pub log: usize,
    pub cpu: u16,
    pub machine: usize,
    pub governor: usize,
    pub gap_count: u64,
    pub idle_ns: u64,
    /// At each price: the cost above the oracle's, as a share of it; null if that is 0.
    pub regret_share: Vec<Option<f64>>,
}

/// What ended gaps.
#[derive(Clone, Debug, Serialize)]
pub struct WakeFacts {
    pub log: usize,
    pub reason: String,
    pub count: u64,
    pub idle_ns: u64,
}

/// The gaps of a log, one row each.
#[derive(Clone, Debug, Serialize)]
pub struct DetailFacts {
    /// The log.
    pub log: usize,
    /// Gaps with a row.
    pub kept_count: u64,
    /// Gaps of the log.
    pub gap_count: u64,
    /// Whether some are left out.
    pub is_sampled: bool,
    /// Which, in a sentence.
    pub how: String,
    /// The unit of times.
    pub quantum_ns: u64,
    /// The tick's period in the replay.
    pub tick_period_ns: u64,
    /// From the log's first gap to the first row's.
    pub offset_ns: u64,
    /// The columns.
    pub columns: DetailColumns,
}

/// The columns of gaps. A column that is missing is unknown.
#[derive(Clone, Debug, Serialize)]
pub struct DetailColumns {
    pub cpu: ColumnRef,
    pub busy: ColumnRef,
    pub gap: ColumnRef,
    pub grid: ColumnRef,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<ColumnRef>,
    pub flags: ColumnRef,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ColumnRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_state: Option<ColumnRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_idle: Option<ColumnRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<ColumnRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<ColumnRef>,
}

/// What a governor did in each gap that has a row.
#[derive(Clone, Debug, Serialize)]
pub struct CourseFacts {
    pub log: usize,
    pub machine: usize,
    pub governor: usize,
    pub columns: CourseColumns,
}

/// The columns of a course.
#[derive(Clone, Debug, Serialize)]
pub struct CourseColumns {
    pub state: ColumnRef,
    pub verdict: ColumnRef,
    pub stays: ColumnRef,
    pub more: ColumnRef,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ColumnRef>,
}

/// A table as the command prints it.
#[derive(Clone, Debug, Serialize)]
pub struct TableFacts {
    /// A name without spaces, for links.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Its columns.
    pub columns: Vec<TableColumn>,
    /// Its rows, one cell for each column.
    pub rows: Vec<Vec<TableCell>>,
    /// Lines under it.
    pub notes: Vec<String>,
}

impl TableFacts {
    /// Takes a table under a name: every column, with texts in one unit each and values in base units.
    pub fn of(id: &str, table: &Table) -> Self {
        let columns = shown_columns(table);
        let about = |column: &ShownColumn| TableColumn {
            name: column.heading.heading.to_owned(),
            unit: column.unit.to_owned(),
            about: column.heading.meaning.to_owned(),
            better: column.heading.better.map(|better| match better {
                Better::Lower => "less",
                Better::Higher => "more",
            }),
            is_text: column.heading.unit == Unit::Text,
        };
        let cell = |row: usize, column: &ShownColumn| TableCell {
            text: column.cells[row].clone(),
            value: column.values[row].clone(),
        };
        let cells = |row: usize| columns.iter().map(|column| cell(row, column)).collect();
        TableFacts {
            id: id.to_owned(),
            title: table.title.clone(),
            columns: columns.iter().map(about).collect(),
            rows: (0..table.rows.len()).map(cells).collect(),
            notes: Vec::new(),
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug, Serialize)]
pub struct TableColumn {
    pub name: String,
    /// The unit of the cells' texts.
    pub unit: String,
    pub about: String,
    /// `less` or `more`; null if no value is better than another.
    pub better: Option<&'static str>,
    pub is_text: bool,
}

/// A cell: as it is shown, and as it is sorted and copied, in the column's base unit.
#[derive(Clone, Debug, Serialize)]
pub struct TableCell {
    pub text: String,
    pub value: Value,
}

/// A chart of a study or of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// A name without spaces, for links.
    pub id: String,
    /// The heading.
    pub title: String,
    /// What it shows, in a sentence or two.
    pub about: String,
    /// The basis of its figures, if they have the same.
    pub basis: Option<BasisKind>,
    /// The command that makes its figures.
    pub command: Option<String>,
    /// What is drawn.
    #[serde(flatten)]
    pub drawing: Drawing,
}

/// What a chart draws.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Drawing {
    /// How far each input moves a figure.
    Tornado { unit: String, base: f64, base_name: String, rows: Vec<TornadoRow> },
    /// Distributions.
    Quantiles { unit: String, is_log: bool, series: Vec<QuantileSeries> },
    /// One figure over another.
    Lines { x: Axis, y: Axis, series: Vec<LineSeries> },
    /// Estimates.
    Intervals { unit: String, is_log: bool, about_interval: String, rows: Vec<IntervalRow> },
}

/// An input of a tornado: the figure at both ends of its range, and what the ends are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TornadoRow {
    pub name: String,
    pub low: f64,
    pub high: f64,
    pub low_name: String,
    pub high_name: String,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    pub name: String,
    pub unit: String,
    pub is_log: bool,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineSeries {
    pub name: String,
    pub points: Vec<LinePoint>,
}

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinePoint {
    pub x: f64,
    pub y: f64,
}

/// A distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuantileSeries {
    pub name: String,
    pub points: Vec<QuantilePoint>,
}

/// A point of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QuantilePoint {
    pub quantile: f64,
    pub value: f64,
}

/// An estimate with its interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IntervalRow {
    pub name: String,
    /// Rows of a group are drawn together.
    pub group: String,
    pub middle: f64,
    pub low: f64,
    pub high: f64,
}

/// The lines under the tables.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NoteFacts {
    pub basis: Vec<BasisNote>,
    pub doubts: Vec<DoubtFacts>,
}

/// What has a basis.
#[derive(Clone, Debug, Serialize)]
pub struct BasisNote {
    pub basis: BasisKind,
    pub text: String,
}

/// Where something comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Provenance {
    pub name: String,
    pub value: String,
}
