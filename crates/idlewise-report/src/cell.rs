//! One governor on one log and machine, as `idlewise lab sweep` and `idlewise replay --rank` keep it: what it depends on, and
//! what came out. Powers and prices can be applied later, because a replay does not depend on them; only the
//! oracle does, and governors that are told the price, which therefore have cells for each.
//!
//! Many cells are kept in one Parquet file, a shard, with a row for each. A cell that could not be computed has a row with
//! the reason.

use idlewise_sim::contest::{CellInputs, CellResult, Entry};
use parquet::errors::ParquetError;

use crate::arena::priced_columns;
use crate::columns::{GOVERNOR, LOG, MACHINE};
use crate::parquet::ParquetColumns;
use crate::{Column, Table, Value};

/// A row of a shard.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptCell {
    /// The hash of everything that the cell depends on; `None`: all cells of the log failed.
    pub key: Option<String>,
    /// The SHA-256 of the log's file.
    pub log_sha256: String,
    /// What came out, or why nothing did.
    pub outcome: Outcome,
}

/// What came of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was computed.
    Result(CellResult),
    /// It could not be computed, for this reason. What it depends on is `None` if that is the log's fault.
    Failure(Option<CellInputs>, String),
}

impl KeptCell {
    fn inputs(&self) -> Option<&CellInputs> {
        match &self.outcome {
            Outcome::Result(result) => Some(&result.inputs),
            Outcome::Failure(inputs, _) => inputs.as_ref(),
        }
    }

    fn result(&self) -> Option<&CellResult> {
        match &self.outcome {
            Outcome::Result(result) => Some(result),
            Outcome::Failure(..) => None,
        }
    }
}

/// Returns a shard: a Parquet table with a row for each cell, in their order. The same cells always give the same bytes.
pub fn to_shard(cells: &[KeptCell]) -> Vec<u8> {
    Table::new("", &shard_columns(), cells).to_parquet(None)
}

/// A shard that was read.
pub struct Shard {
    columns: ParquetColumns,
}

impl Shard {
    /// Reads a shard.
    ///
    /// # Errors
    /// Fails if it is not one.
    pub fn of(file: Vec<u8>) -> Result<Self, ParquetError> {
        ParquetColumns::of(file).map(|columns| Shard { columns })
    }

    /// The number of its rows.
    pub fn row_count(&self) -> usize {
        self.columns.row_count()
    }

    /// The hash of a row's log.
    pub fn log_sha256(&self, row: usize) -> Option<&str> {
        self.columns.text(LOG_SHA256, row)
    }

    /// The key of a row's cell; `None` if the row is about all cells of its log.
    pub fn key(&self, row: usize) -> Option<&str> {
        self.columns.text(KEY, row)
    }

    /// Why a row's cell could not be computed; `None` if it was.
    pub fn failure(&self, row: usize) -> Option<&str> {
        self.columns.text(FAILURE, row)
    }

    /// The result in a row, of a cell that depends on these inputs, which have its key. `None` if there is none.
    pub fn result(&self, row: usize, inputs: &CellInputs) -> Option<CellResult> {
        let count = |id| self.columns.count(id, row);
        Some(CellResult {
            inputs: inputs.clone(),
            hz: u32::try_from(count("hz")?).ok()?,
            gap_count: count("gap_count")?,
            gap_ns: count("gap_sum_ns")?,
            decision_count: count("decision_count")?,
            too_deep_count: count("too_deep_count")?,
            too_shallow_count: count("too_shallow_count")?,
            forbidden_count: count("forbidden_count")?,
            delay_p50_ns: count("delay_p50_ns"),
            delay_p90_ns: count("delay_p90_ns"),
            delay_p99_ns: count("delay_p99_ns"),
            delay_p999_ns: count("delay_p999_ns"),
            delay_max_ns: count("delay_max_ns"),
            delay_sum_ns: count("delay_sum_ns")?,
            energy_uj: self.columns.real("energy_uj", row)?,
            polling_mw: self.columns.real("polling_mw", row)?,
            tick_wake_count: count("tick_wake_count")?,
            free_ipi_count: count("free_ipi_count")?,
            timer_read_count: count("timer_read_count")?,
            work_ns: count("work_ns")?,
            states: states(self.columns.text("usage", row)?, self.columns.text("residency", row)?)?,
        })
    }
}

/// Names of states, which are single words, with both of their numbers.
fn states(usage: &str, residency: &str) -> Option<Vec<(String, u64, u64)>> {
    let number = |text: &str| text.rsplit_once('=')?.1.parse::<u64>().ok();
    let state = |(usage, residency): (&str, &str)| {
        let name = usage.rsplit_once('=')?.0.to_owned();
        Some((name, number(usage)?, number(residency)?))
    };
    usage.split_whitespace().zip(residency.split_whitespace()).map(state).collect()
}

const KEY: &str = "cell";
const LOG_SHA256: &str = "log_sha256";
const FAILURE: &str = "failure";

fn usage(cell: &CellResult, number: fn(&(String, u64, u64)) -> u64) -> String {
    let states = cell.states.iter().map(|state| format!("{}={}", state.0, number(state)));
    states.collect::<Vec<_>>().join(" ")
}

/// Something that has the results of a cell, unless it failed.
trait OfCell {
    fn cell(&self) -> Option<&CellResult>;

    fn value<V: Into<Value>>(&self, of: impl Fn(&CellResult) -> V) -> Value {
        self.cell().map_or(Value::Absent, |cell| of(cell).into())
    }
}

impl OfCell for KeptCell {
    fn cell(&self) -> Option<&CellResult> {
        self.result()
    }
}

impl OfCell for Entry {
    fn cell(&self) -> Option<&CellResult> {
        Some(&self.result)
    }
}

/// The columns of a replay's results.
fn result_columns<Row: OfCell>() -> Vec<Column<Row>> {
    type C<Row> = Column<Row>;
    vec![
        C::count("gap_count", "gaps", |row: &Row| row.value(|cell| cell.gap_count))
            .means("Idle gaps replayed."),
        C::ns("gap_sum_ns", "idle", |row: &Row| row.value(|cell| cell.gap_ns))
            .means("All gaps together."),
        C::count("decision_count", "decisions", |row: &Row| row.value(|cell| cell.decision_count))
            .means("Decisions: one for each stay."),
        C::ratio("too_deep_ratio", "too deep", |row: &Row| {
            row.value(|cell| cell.share(cell.too_deep_count))
        })
        .means(
            "Share of stays shorter than the state's target residency while a shallower state was \
             enabled (the kernel's `above`).",
        )
        .lower_is_better(),
        C::ratio("too_shallow_ratio", "too shallow", |row: &Row| {
            row.value(|cell| cell.share(cell.too_shallow_count))
        })
        .means(
            "Share of stays that, less the exit latency, were long enough for the next deeper \
             enabled state (the kernel's `below`).",
        )
        .lower_is_better(),
        C::count("forbidden_count", "forbidden", |row: &Row| {
            row.value(|cell| cell.forbidden_count)
        })
        .means(
            "Decisions for a state that is disabled, or too slow for the latency limit where a \
                 shallower one is enabled.",
        )
        .lower_is_better(),
        C::ns("delay_p50_ns", "delay p50", |row: &Row| row.value(|cell| cell.delay_p50_ns))
            .means(
                "Median delay of the wake events: the exit latency of the state they found, or the \
                 wait for the tick.",
            )
            .lower_is_better(),
        C::ns("delay_p90_ns", "delay p90", |row: &Row| row.value(|cell| cell.delay_p90_ns))
            .means("90th percentile of the delay.")
            .lower_is_better(),
        C::ns("delay_p99_ns", "delay p99", |row: &Row| row.value(|cell| cell.delay_p99_ns))
            .means("99th percentile of the delay.")
            .lower_is_better(),
        C::ns("delay_p999_ns", "delay p99.9", |row: &Row| row.value(|cell| cell.delay_p999_ns))
            .means("99.9th percentile of the delay.")
            .lower_is_better(),
        C::ns("delay_max_ns", "delay max", |row: &Row| row.value(|cell| cell.delay_max_ns))
            .means("The longest delay.")
            .lower_is_better(),
        C::ns("delay_sum_ns", "delay sum", |row: &Row| row.value(|cell| cell.delay_sum_ns))
            .means("All delays together.")
            .lower_is_better(),
        C::uj("energy_uj", "energy", |row: &Row| row.value(|cell| cell.energy_uj))
            .means("Energy of the cores in their gaps, with the powers of the machine's file.")
            .lower_is_better(),
        C::count("tick_wake_count", "ticks", |row: &Row| row.value(|cell| cell.tick_wake_count))
            .means("Stays that the scheduler tick ended."),
        C::count("free_ipi_count", "free IPIs", |row: &Row| row.value(|cell| cell.free_ipi_count))
            .means(
                "Wake-up IPIs that found a polling or MWAIT state, where a write to memory would \
                 have been enough.",
            ),
        C::count("timer_read_count", "timer reads", |row: &Row| {
            row.value(|cell| cell.timer_read_count)
        })
        .means(
            "How often the governor asked for the sleep length; each time costs a walk of the \
                 timer wheel.",
        ),
        C::text("usage", "usage", |row: &Row| row.value(|cell| usage(cell, |state| state.1)))
            .means("Entries of each state, shallowest first, as NAME=COUNT."),
        C::text("residency", "residency", |row: &Row| {
            row.value(|cell| usage(cell, |state| state.2))
        })
        .means("Time in each state, shallowest first, as NAME=NANOSECONDS."),
    ]
}

/// Returns the columns of a shard.
pub fn shard_columns() -> Vec<Column<KeptCell>> {
    type C = Column<KeptCell>;
    macro_rules! input {
        (|$inputs:ident| $value:expr) => {
            |row: &KeptCell| row.inputs().map_or(Value::Absent, |$inputs| $value.into())
        };
    }
    macro_rules! result {
        (|$result:ident| $value:expr) => {
            |row: &KeptCell| row.result().map_or(Value::Absent, |$result| $value.into())
        };
    }
    let mut columns = vec![
        C::text(KEY, "cell", |row| row.key.clone().into())
            .means(
                "The hash of everything that the result depends on; absent in a row that says why no cell of the log \
                 could be computed.",
            )
            .key(),
        C::text(LOG_SHA256, "log", |row| row.log_sha256.as_str().into())
            .means("The SHA-256 of the log's file.")
            .key(),
        C::new(MACHINE, input!(|inputs| inputs.machine.as_str())),
        C::text("machine_sha256", "machine file", input!(|inputs| inputs.machine_sha256.as_str()))
            .means("The SHA-256 of the machine's fields."),
        C::count("hz", "HZ", result!(|result| u64::from(result.hz)))
            .means("The tick's frequency.")
            .key(),
        C::count("latency_limit_us", "limit", input!(|inputs| inputs.latency_limit_us.map(u64::from)))
            .means("The longest exit latency allowed, in us, besides the log's limits; absent: any."),
        C::ns("tick_work_ns", "tick work", input!(|inputs| inputs.tick_work_ns))
            .means("How long the CPU runs for a tick, assumed."),
        C::new(GOVERNOR, input!(|inputs| inputs.governor.as_str())),
        C::text("governor_key", "file", input!(|inputs| inputs.governor_key.clone())).means(
            "The hash of a governor's file, its includes and its compiler; absent for others.",
        ),
        C::text("shape", "shape", input!(|inputs| inputs.priced.as_ref().map(|(shape, _)| shape.clone())))
            .means("The shape of the powers that the oracle or a rival knows; absent for governors."),
        C::number("lambda", "λ", input!(|inputs| inputs.priced.as_ref().map(|&(_, lambda)| lambda)))
            .means("The price of delay that the oracle or a rival knows, in times the power of polling; absent for governors."),
        C::text(FAILURE, "failure", |row| match &row.outcome {
            Outcome::Result(_) => Value::Absent,
            Outcome::Failure(_, reason) => reason.as_str().into(),
        })
        .means("Why there is no result; absent if there is one."),
        C::mw("polling_mw", "polling", result!(|result| result.polling_mw)).means(
            "The power of polling. Delay costs this power times λ: the cost in uJ is energy_uj + lambda × polling_mw × \
             delay_sum_ns / 1e6.",
        ),
        C::ns("work_ns", "work", result!(|result| result.work_ns))
            .means("How long the CPU ran for ticks, which costs energy too."),
    ];
    columns.extend([
        C::count("too_deep_count", "too deep", result!(|result| result.too_deep_count)).means(
            "Stays shorter than the state's target residency while a shallower state was enabled (the kernel's `above`).",
        ),
        C::count("too_shallow_count", "too shallow", result!(|result| result.too_shallow_count)).means(
            "Stays that, less the exit latency, were long enough for the next deeper enabled state (the kernel's \
             `below`).",
        ),
    ]);
    let is_share = |id: &str| matches!(id, "too_deep_ratio" | "too_shallow_ratio");
    columns.extend(result_columns::<KeptCell>().into_iter().filter(|it| !is_share(it.heading.id)));
    columns
}

/// Returns the columns of the collected table.
pub fn collected_columns() -> Vec<Column<Entry>> {
    type C = Column<Entry>;
    let mut columns = vec![
        C::new(LOG, |row| row.log.as_str().into()),
        C::new(MACHINE, |row| row.machine().into()),
    ];
    columns.extend([
        C::count("hz", "HZ", |row| u64::from(row.result.hz).into())
            .means("The tick's frequency.")
            .key(),
        C::count("latency_limit_us", "limit", |row| {
            row.result.inputs.latency_limit_us.map(u64::from).into()
        })
        .means("The longest exit latency allowed, in us, besides the log's limits; absent: any."),
        C::ns("tick_work_ns", "tick work", |row| row.result.inputs.tick_work_ns.into())
            .means("How long the CPU runs for a tick, assumed."),
    ]);
    columns.extend(priced_columns());
    columns.extend(result_columns());
    columns
}

/// Returns the collected table.
pub fn collected_table(rows: &[Entry]) -> Table {
    Table::new("", &collected_columns(), rows)
}

#[cfg(test)]
mod tests {
    use idlewise_sim::CostModel;
    use idlewise_sim::contest::CellInputs;
    use idlewise_sim::replay::{StateTally, Tally};

    use super::*;

    fn tally() -> Tally {
        let mut tally = Tally { gap_count: 3, gap_ns: 77, work_ns: 10_000, ..Tally::default() };
        tally.states[0].entry_count = 1;
        tally.states[1] = StateTally {
            entry_count: 2,
            stay_ns: 5_000_123,
            wake_count: 2,
            ..StateTally::default()
        };
        tally.overruns.record(1_234);
        tally
    }

    fn cell() -> (CellResult, CostModel) {
        let machine = idlewise_machine::bundled("spr").unwrap();
        let costs = CostModel::of(&machine).unwrap();
        let inputs = CellInputs {
            engine: 1,
            log_sha256: "1".to_owned(),
            machine: "spr".to_owned(),
            machine_sha256: "2".to_owned(),
            governor: "menu-6.12".to_owned(),
            governor_key: None,
            hz: None,
            latency_limit_us: Some(50),
            tick_work_ns: 2_000,
            priced: Some(("flat".to_owned(), 0.1)),
        };
        (CellResult::new(inputs, 250, &tally(), &machine, &costs), costs)
    }

    /// So a table from cells has the bytes of one without.
    #[test]
    fn a_cell_costs_to_the_last_bit_what_its_tally_does() {
        let (cell, costs) = cell();
        for lambda_mw in [0.0, 0.1, 1_000.0 / 3.0] {
            let exact = costs.cost_uj(&tally(), lambda_mw);
            assert_eq!(cell.cost_uj(&costs, lambda_mw).to_bits(), exact.to_bits());
        }
    }

    #[test]
    fn a_shard_holds_all_and_is_the_same_each_time() {
        let (cell, _) = cell();
        let inputs = cell.inputs.clone();
        let kept = |key: Option<&str>, outcome| KeptCell {
            key: key.map(str::to_owned),
            log_sha256: "1".to_owned(),
            outcome,
        };
        let cells = [
            kept(Some("k"), Outcome::Result(cell.clone())),
            kept(Some("l"), Outcome::Failure(Some(inputs.clone()), "it loops".to_owned())),
            kept(None, Outcome::Failure(None, "no log".to_owned())),
        ];
        assert_eq!(to_shard(&cells), to_shard(&cells));
        let shard = Shard::of(to_shard(&cells)).unwrap();
        assert_eq!(shard.row_count(), 3);
        assert_eq!(shard.result(0, &inputs), Some(cell));
        assert!((0..3).all(|row| shard.log_sha256(row) == Some("1")));
        assert_eq!([0, 1, 2].map(|row| shard.key(row)), [Some("k"), Some("l"), None]);
        assert_eq!(
            [0, 1, 2].map(|row| shard.failure(row)),
            [None, Some("it loops"), Some("no log")]
        );
        assert_eq!([1, 2].map(|row| shard.result(row, &inputs)), [None, None]);
        assert!(Shard::of(b"PAR1".to_vec()).is_err());
    }
}
