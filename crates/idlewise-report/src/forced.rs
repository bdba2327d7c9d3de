//! The common part of `measure ipi` and `measure timer`: a CPU whose idle state was forced, and how
//! the measured latency compares with the driver's table.

use crate::columns::Column;

/// If a smaller share of idle entries was into the forced state, the figures are not that state's.
pub const FORCED_RATIO_MIN: f64 = 0.95;

/// A CPU whose idle state was forced.
#[derive(Clone, Debug)]
pub struct ForcedState {
    /// The CPU.
    pub target: u16,
    /// The state.
    pub state: String,
    /// Its exit latency in the driver's table.
    pub exit_latency_ns: Option<u64>,
    /// The share of idle entries that were into the state.
    pub forced_entry_ratio: Option<f64>,
}

impl ForcedState {
    /// A latency divided by the table's exit latency, if the CPU was in the forced state.
    pub(crate) fn of_table_ratio(&self, latency_ns: Option<u64>) -> Option<f64> {
        self.forced_entry_ratio.filter(|&ratio| ratio >= FORCED_RATIO_MIN)?;
        Some(latency_ns? as f64 / self.exit_latency_ns? as f64)
    }
}

/// A row of a table about forced states. All such tables share these columns.
pub(crate) trait InForcedState: Sized {
    fn forced(&self) -> &ForcedState;

    fn target_column(meaning: &'static str) -> Column<Self> {
        Column::text("target", "target", |row: &Self| format!("CPU {}", row.forced().target).into())
            .means(meaning)
            .key()
    }

    fn state_column() -> Column<Self> {
        Column::text("state", "state", |row: &Self| row.forced().state.as_str().into())
            .means("The idle state that was forced by disabling all others of the CPU.")
            .key()
    }

    fn forced_entry_ratio_column() -> Column<Self> {
        Column::ratio("forced_entry_ratio", "in state", |row: &Self| {
            row.forced().forced_entry_ratio.into()
        })
        .means(
            "Share of the CPU's idle entries that were into the forced state, as the kernel \
             counted; measured.",
        )
        .higher_is_better()
    }

    fn exit_latency_column() -> Column<Self> {
        Column::ns("exit_latency_ns", "table's exit", |row: &Self| {
            row.forced().exit_latency_ns.into()
        })
        .means(
            "The exit latency in the driver's table: declared, not measured. Absent if sysfs, \
             which has whole microseconds, says 0.",
        )
    }
}

/// Measured time spans in one unit, sorted.
#[derive(Clone, Debug)]
pub struct SortedSpans(pub(crate) Vec<u64>);

impl SortedSpans {
    /// Sorts the spans.
    pub fn new(spans: impl Iterator<Item = u64>) -> Self {
        let mut spans: Vec<u64> = spans.collect();
        spans.sort_unstable();
        SortedSpans(spans)
    }

    /// The number of spans.
    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The longest span.
    pub(crate) fn greatest(&self) -> Option<u64> {
        self.0.last().copied()
    }

    /// A percentile by nearest rank, in hundredths of a percent; `None` if less than half a sample
    /// is expected beyond it.
    pub(crate) fn percentile(&self, hundredths: u64) -> Option<u64> {
        let count = self.0.len() as u64;
        if count * (10_000 - hundredths) < 5_000 {
            return None;
        }
        let rank = (count * hundredths).div_ceil(10_000).max(1);
        self.0.get(rank as usize - 1).copied()
    }
}
