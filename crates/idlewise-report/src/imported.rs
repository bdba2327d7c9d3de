//! The table of `idlewise machines import`: exit latencies that another tool measured, a row for each state.

use idlewise_machine::WultState;

use crate::columns::STATE;
use crate::{Column, Table};

/// A state's measured exits.
pub struct ImportedState<'a> {
    /// What was measured.
    pub state: &'a WultState,
    /// What the machine's table declares.
    pub declared_ns: u64,
}

type C<'a> = Column<ImportedState<'a>>;

fn quantile_ns(row: &ImportedState<'_>, ratio: f64) -> Option<u64> {
    row.state.quantile_us(ratio).map(|us| (us * 1e3).round() as u64)
}

fn by_silence_ns(row: &ImportedState<'_>, end: usize) -> Option<u64> {
    row.state.by_silence_us().map(|medians| (medians[end] * 1e3).round() as u64)
}

/// Returns the columns.
pub fn columns<'a>() -> Vec<C<'a>> {
    vec![
        C::new(STATE, |row| row.state.name.as_str().into()),
        C::count("sample_count", "samples", |row| (row.state.samples_us.len() as u64).into())
            .means("Samples that count."),
        C::count("unreached_count", "not in state", |row| row.state.unreached_count.into())
            .means("Samples left out because the residency columns say that the CPU was never in the state."),
        C::count("disturbed_count", "disturbed", |row| row.state.disturbed_count.into())
            .means("Samples left out because of an SMI, an NMI or a time below 0."),
        C::ns("exit_p50_ns", "exit p50", |row| quantile_ns(row, 0.5).into())
            .means("Median of the time to leave the state; measured."),
        C::ns("exit_p99_ns", "exit p99", |row| quantile_ns(row, 0.99).into())
            .means("99th percentile of the same; measured."),
        C::ns("exit_max_ns", "exit max", |row| quantile_ns(row, 1.0).into())
            .means("Greatest of the same; measured."),
        C::ns("declared_exit_latency_ns", "table's exit", |row| row.declared_ns.into())
            .means("The exit latency that the machine's table declares."),
        C::ns("exit_p50_short_ns", "p50 if short", |row| by_silence_ns(row, 0).into())
            .means("Median in the quarter of samples with the shortest stays; measured."),
        C::ns("exit_p50_long_ns", "p50 if long", |row| by_silence_ns(row, 1).into())
            .means("Median in the quarter of samples with the longest stays; measured."),
    ]
}

/// Returns a row for each state.
pub fn table(title: &str, rows: &[ImportedState<'_>]) -> Table {
    Table::new(title, &columns(), rows).unranked()
}
