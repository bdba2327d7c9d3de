//! One governor on one log and machine, as `idlewise lab sweep` and `idlewise replay --rank` keep it: what it depends on, and
//! what came out. Powers and prices can be applied later, because a replay does not depend on them; only the
//! oracle does, and governors that are told the price, which therefore have cells for each.

use idlewise_sim::contest::{CellResult, Entry};

use crate::arena::priced_columns;
use crate::columns::{GOVERNOR, LOG, MACHINE};
use crate::parquet::note_of;
use crate::{Column, Table, Value};

/// The key of the JSON in a cell's file.
const NOTE_KEY: &str = "idlewise_cell";

/// Returns a cell's file: a Parquet table of one row, with everything in its metadata.
pub fn to_file(cell: &CellResult) -> Vec<u8> {
    let note = serde_json::to_string(cell).expect("there are no maps in it");
    Table::new("", &file_columns(), [cell]).to_parquet(Some((NOTE_KEY, &note)))
}

/// Reads a cell's file, which must be intact.
pub fn of_file(file: Vec<u8>) -> Option<CellResult> {
    serde_json::from_str(&note_of(file, NOTE_KEY)?).ok()
}

fn usage(cell: &CellResult, number: fn(&(String, u64, u64)) -> u64) -> Value {
    let states = cell.states.iter().map(|state| format!("{}={}", state.0, number(state)));
    states.collect::<Vec<_>>().join(" ").into()
}

/// Something that has the results of a cell.
trait OfCell {
    fn cell(&self) -> &CellResult;
}

impl OfCell for CellResult {
    fn cell(&self) -> &CellResult {
        self
    }
}

impl OfCell for Entry {
    fn cell(&self) -> &CellResult {
        &self.result
    }
}

/// The columns of a setting, after those that name the cell.
fn setting_columns<Row: OfCell>() -> Vec<Column<Row>> {
    type C<Row> = Column<Row>;
    vec![
        C::count("hz", "HZ", |row: &Row| row.cell().hz.into_value())
            .means("The tick's frequency.")
            .key(),
        C::count("latency_limit_us", "limit", |row: &Row| {
            row.cell().inputs.latency_limit_us.map(u64::from).into()
        })
        .means("The longest exit latency allowed, in us, besides the log's limits; absent: any."),
        C::ns("tick_work_ns", "tick work", |row: &Row| row.cell().inputs.tick_work_ns.into())
            .means("How long the CPU runs for a tick, assumed."),
    ]
}

trait IntoValue {
    fn into_value(self) -> Value;
}

impl IntoValue for u32 {
    fn into_value(self) -> Value {
        u64::from(self).into()
    }
}

/// The columns of a replay's results.
fn result_columns<Row: OfCell>() -> Vec<Column<Row>> {
    type C<Row> = Column<Row>;
    vec![
        C::count("gap_count", "gaps", |row: &Row| row.cell().gap_count.into())
            .means("Idle gaps replayed."),
        C::ns("gap_sum_ns", "idle", |row: &Row| row.cell().gap_ns.into())
            .means("All gaps together."),
        C::count("decision_count", "decisions", |row: &Row| row.cell().decision_count.into())
            .means("Decisions: one for each stay."),
        C::ratio("too_deep_ratio", "too deep", |row: &Row| {
            row.cell().share(row.cell().too_deep_count).into()
        })
        .means(
            "Share of stays shorter than the state's target residency while a shallower state was \
             enabled (the kernel's `above`).",
        )
        .lower_is_better(),
        C::ratio("too_shallow_ratio", "too shallow", |row: &Row| {
            row.cell().share(row.cell().too_shallow_count).into()
        })
        .means(
            "Share of stays that, less the exit latency, were long enough for the next deeper \
             enabled state (the kernel's `below`).",
        )
        .lower_is_better(),
        C::count("forbidden_count", "forbidden", |row: &Row| row.cell().forbidden_count.into())
            .means(
                "Decisions for a state that is disabled, or too slow for the latency limit where a \
                 shallower one is enabled.",
            )
            .lower_is_better(),
        C::ns("delay_p50_ns", "delay p50", |row: &Row| row.cell().delay_p50_ns.into())
            .means(
                "Median delay of the wake events: the exit latency of the state they found, or the \
                 wait for the tick.",
            )
            .lower_is_better(),
        C::ns("delay_p90_ns", "delay p90", |row: &Row| row.cell().delay_p90_ns.into())
            .means("90th percentile of the delay.")
            .lower_is_better(),
        C::ns("delay_p99_ns", "delay p99", |row: &Row| row.cell().delay_p99_ns.into())
            .means("99th percentile of the delay.")
            .lower_is_better(),
        C::ns("delay_p999_ns", "delay p99.9", |row: &Row| row.cell().delay_p999_ns.into())
            .means("99.9th percentile of the delay.")
            .lower_is_better(),
        C::ns("delay_max_ns", "delay max", |row: &Row| row.cell().delay_max_ns.into())
            .means("The longest delay.")
            .lower_is_better(),
        C::ns("delay_sum_ns", "delay sum", |row: &Row| row.cell().delay_sum_ns.into())
            .means("All delays together.")
            .lower_is_better(),
        C::uj("energy_uj", "energy", |row: &Row| row.cell().energy_uj.into())
            .means("Energy of the cores in their gaps, with the powers of the machine's file.")
            .lower_is_better(),
        C::count("tick_wake_count", "ticks", |row: &Row| row.cell().tick_wake_count.into())
            .means("Stays that the scheduler tick ended."),
        C::count("free_ipi_count", "free IPIs", |row: &Row| row.cell().free_ipi_count.into())
            .means(
                "Wake-up IPIs that found a polling or MWAIT state, where a write to memory would \
                 have been enough.",
            ),
        C::count("timer_read_count", "timer reads", |row: &Row| row.cell().timer_read_count.into())
            .means(
                "How often the governor asked for the sleep length; each time costs a walk of the \
                 timer wheel.",
            ),
        C::text("usage", "usage", |row: &Row| usage(row.cell(), |state| state.1))
            .means("Entries of each state, shallowest first, as NAME=COUNT."),
        C::text("residency", "residency", |row: &Row| usage(row.cell(), |state| state.2))
            .means("Time in each state, shallowest first, as NAME=NANOSECONDS."),
    ]
}

/// Returns the columns of a cell's file.
pub fn file_columns() -> Vec<Column<CellResult>> {
    type C = Column<CellResult>;
    let mut columns = vec![
        C::text("log_sha256", "log", |cell| cell.inputs.log_sha256.as_str().into())
            .means("The SHA-256 of the log's file.")
            .key(),
        C::new(MACHINE, |cell| cell.inputs.machine.as_str().into()),
    ];
    columns.extend(setting_columns());
    columns.extend([
        C::new(GOVERNOR, |cell| cell.inputs.governor.as_str().into()),
        C::text("governor_key", "file", |cell| cell.inputs.governor_key.clone().into()).means(
            "The hash of a governor's file, its includes and its compiler; absent for others.",
        ),
        C::text("shape", "shape", |cell| {
            cell.inputs.priced.as_ref().map(|(shape, _)| shape.clone()).into()
        })
        .means("The oracle's power shape; absent for governors."),
        C::number("lambda", "λ", |cell| {
            cell.inputs.priced.as_ref().map(|&(_, lambda)| lambda).into()
        })
        .means("The oracle's price of delay; absent for governors."),
        C::text("code", "code", |cell| cell.inputs.code.as_str().into())
            .means("The commit of idlewise."),
    ]);
    columns.extend(result_columns());
    columns
}

/// Returns the columns of the collected table.
pub fn collected_columns() -> Vec<Column<Entry>> {
    type C = Column<Entry>;
    let mut columns = vec![
        C::new(LOG, |row| row.log.as_str().into()),
        C::new(MACHINE, |row| row.machine().into()),
    ];
    columns.extend(setting_columns());
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
            code: "0".to_owned(),
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
    fn a_file_holds_all_and_is_the_same_each_time() {
        let (cell, _) = cell();
        assert_eq!(to_file(&cell), to_file(&cell));
        assert_eq!(of_file(to_file(&cell)), Some(cell));
        assert_eq!(of_file(b"PAR1".to_vec()), None);
    }
}
