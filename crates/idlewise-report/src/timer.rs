//! What `idlewise measure timer` says: for each CPU and idle state the interrupt latency, from when a
//! timer of the CPU's own was due to its handler, on a line (the figure of Bityutskiy's patch of 2023:
//! median and 99th percentile).

use crate::columns::{Better, Column, Priority, Unit};
use crate::ipi::{FORCED_RATIO_MIN, SortedSpans};
use crate::{Row, Table};

static TARGET: Column =
    Column::text("target", "target", "The CPU whose timers they were.").priority(Priority::Key);
static STATE: Column = Column::text(
    "state",
    "state",
    "The idle state that was forced: all others of the CPU were disabled.",
)
.priority(Priority::Key);
static TIMERS: Column = Column::number(
    "timer_count",
    "timers",
    Unit::Count,
    "Timers measured: those that found the CPU idle.",
);
static FORCED: Column = Column::number(
    "forced_entry_ratio",
    "in state",
    Unit::Ratio,
    "Share of the CPU's idle entries meanwhile that were into the forced state, as the kernel \
     counted; measured.",
)
.better(Better::Higher);
static P50: Column = span(
    "interrupt_latency_p50_ns",
    "interrupt p50",
    "Median of the interrupt latency: from when a timer was due to the first instruction of its \
     handler, on a CPU that was idle; measured.",
);
static P99: Column = span(
    "interrupt_latency_p99_ns",
    "interrupt p99",
    "99th percentile of the interrupt latency; measured.",
);
static P999: Column = span(
    "interrupt_latency_p999_ns",
    "interrupt p99.9",
    "99.9th percentile of the interrupt latency; measured.",
);
static GREATEST: Column =
    span("interrupt_latency_greatest_ns", "greatest", "The greatest interrupt latency; measured.");
static TABLE_EXIT: Column = span(
    "exit_latency_ns",
    "table's exit",
    "The state's exit latency in the driver's table: declared, not measured. Absent where sysfs, \
     which has whole microseconds, says 0.",
);
static OF_TABLE: Column = Column::number(
    "interrupt_latency_p99_to_exit_latency_ratio",
    "p99 of table's",
    Unit::Ratio,
    "The measured 99th percentile of the interrupt latency as a share of the table's exit latency; the \
     measured one has the interrupt's delivery in it. Absent unless the CPU was in the forced state.",
);

const fn span(id: &'static str, heading: &'static str, meaning: &'static str) -> Column {
    Column::number(id, heading, Unit::Nanoseconds, meaning)
}

/// The columns of `idlewise measure timer`.
pub static MEASURE_TIMER: [&Column; 10] =
    [&TARGET, &STATE, &TIMERS, &FORCED, &P50, &P99, &P999, &GREATEST, &TABLE_EXIT, &OF_TABLE];

/// What was measured of one CPU's timers out of one state.
#[derive(Clone, Debug)]
pub struct TimerFigures {
    /// The CPU.
    pub target: u16,
    /// The state.
    pub state: String,
    /// Its exit latency in the driver's table.
    pub exit_latency_ns: Option<u64>,
    /// The share of idle entries that were into the state.
    pub forced_entry_ratio: Option<f64>,
    /// Interrupt latencies in nanoseconds.
    pub interrupts_ns: SortedSpans,
}

/// A line for each CPU and state.
pub fn measure_timer_table(title: &str, all: &[TimerFigures]) -> Table {
    let mut table = Table::new(title, &MEASURE_TIMER);
    for figures in all {
        let spans = &figures.interrupts_ns;
        let p99_ns = spans.percentile(9900);
        let was_forced = figures.forced_entry_ratio.is_some_and(|ratio| ratio >= FORCED_RATIO_MIN);
        let exit_latency_ns = figures.exit_latency_ns.filter(|_| was_forced);
        let ratio = p99_ns.zip(exit_latency_ns).map(|(p99, exit)| p99 as f64 / exit as f64);
        table.push(Row::new([
            format!("CPU {}", figures.target).into(),
            figures.state.as_str().into(),
            spans.count().into(),
            figures.forced_entry_ratio.into(),
            spans.percentile(5000).into(),
            p99_ns.into(),
            spans.percentile(9990).into(),
            spans.greatest().into(),
            figures.exit_latency_ns.into(),
            ratio.into(),
        ]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextStyle;
    use crate::columns::tests::assert_id_ends_in_unit;

    fn figures(forced_entry_ratio: Option<f64>) -> TimerFigures {
        TimerFigures {
            target: 3,
            state: "C6".to_owned(),
            exit_latency_ns: Some(5_000),
            forced_entry_ratio,
            interrupts_ns: SortedSpans::new((1..=10_000).rev()),
        }
    }

    #[test]
    fn a_line_has_the_percentiles_beside_the_tables_latency() {
        let table = measure_timer_table("", &[figures(Some(1.0))]);
        let expected = "CPU 3,C6,10000,1,5000,9900,9990,10000,5000,1.98";
        assert_eq!(table.to_csv().lines().nth(1), Some(expected));
        assert!(table.to_text(&TextStyle::default()).lines().all(|line| line.len() <= 100));
    }

    #[test]
    fn what_was_not_the_state_is_not_compared_with_its_exit_latency() {
        for ratio in [Some(0.5), None] {
            let csv = measure_timer_table("", &[figures(ratio)]).to_csv();
            assert!(csv.lines().nth(1).unwrap().ends_with(",5000,"), "{csv}");
        }
    }

    #[test]
    fn ids_end_in_their_unit() {
        for column in MEASURE_TIMER {
            assert_id_ends_in_unit(column);
        }
    }
}
