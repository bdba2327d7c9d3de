//! The output of `idlewise measure timer`: for each CPU and idle state a line with the interrupt
//! latency, from a timer's expiry to its handler on the same CPU (as in Bityutskiy's patch of 2023:
//! median and 99th percentile).

use crate::Table;
use crate::columns::Column;
use crate::forced::{ForcedState, InForcedState, SortedSpans};

/// The measurements of one CPU's timers in one state.
#[derive(Clone, Debug)]
pub struct TimerFigures {
    /// The CPU and the state.
    pub forced: ForcedState,
    /// Interrupt latencies in nanoseconds.
    pub interrupts_ns: SortedSpans,
}

impl InForcedState for TimerFigures {
    fn forced(&self) -> &ForcedState {
        &self.forced
    }
}

impl TimerFigures {
    /// The 99th percentile divided by the table's exit latency, if the CPU was in the forced state.
    fn of_table_ratio(&self) -> Option<f64> {
        self.forced.of_table_ratio(self.interrupts_ns.percentile(9900))
    }
}

type C = Column<TimerFigures>;

/// Returns the columns of `idlewise measure timer`.
pub fn columns() -> Vec<C> {
    vec![
        TimerFigures::target_column("The CPU whose timers they were."),
        TimerFigures::state_column(),
        C::count("timer_count", "timers", |row| row.interrupts_ns.count().into())
            .means("Timers measured: those that found the CPU idle."),
        TimerFigures::forced_entry_ratio_column(),
        C::ns("interrupt_latency_p50_ns", "interrupt p50", |row| {
            row.interrupts_ns.percentile(5000).into()
        })
        .means(
            "Median interrupt latency: from when a timer was due to the first instruction of its \
             handler, on an idle CPU; measured.",
        ),
        C::ns("interrupt_latency_p99_ns", "interrupt p99", |row| {
            row.interrupts_ns.percentile(9900).into()
        })
        .means("99th percentile of the interrupt latency; measured."),
        C::ns("interrupt_latency_p999_ns", "interrupt p99.9", |row| {
            row.interrupts_ns.percentile(9990).into()
        })
        .means("99.9th percentile of the interrupt latency; measured."),
        C::ns("interrupt_latency_greatest_ns", "greatest", |row| {
            row.interrupts_ns.greatest().into()
        })
        .means("The greatest interrupt latency; measured."),
        TimerFigures::exit_latency_column(),
        C::ratio("interrupt_latency_p99_to_exit_latency_ratio", "p99 of table's", |row| {
            row.of_table_ratio().into()
        })
        .means(
            "The 99th percentile, which includes the interrupt's delivery, as a share of the \
             table's exit latency. Absent unless the CPU was in the forced state.",
        ),
    ]
}

/// Returns a line for each CPU and state.
pub fn measure_timer_table(title: &str, all: &[TimerFigures]) -> Table {
    Table::new(title, &columns(), all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextStyle;

    fn figures(forced_entry_ratio: Option<f64>) -> TimerFigures {
        TimerFigures {
            forced: ForcedState {
                target: 3,
                state: "C6".to_owned(),
                exit_latency_ns: Some(5_000),
                forced_entry_ratio,
            },
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
}
