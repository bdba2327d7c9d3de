//! The output of `idlewise measure ipi` and `measure timer` from user space. These figures are proxies:
//! they include system calls and the scheduler. They have columns and names of their own, so that
//! they cannot be taken for what the kernel module measures.

use crate::forced::{ForcedState, InForcedState, SortedSpans};
use crate::saved::{Block, SavedSeries};
use crate::{Column, Table};

/// What a proxy for wake-ups by another CPU measured.
#[derive(Clone, Debug)]
pub struct IpiProxyFigures {
    /// The proxy.
    pub proxy: &'static str,
    /// The CPU and its state.
    pub forced: ForcedState,
    /// How far it is from the CPU that woke it.
    pub relation: Option<&'static str>,
    /// What was measured, in order of time.
    pub latencies_ns: Vec<u64>,
    /// The cost of the call that wakes, if it does not wait for the CPU.
    pub sends_ns: SortedSpans,
    /// The cost of the same call if nobody is woken.
    pub baseline_ns: SortedSpans,
}

impl InForcedState for IpiProxyFigures {
    fn forced(&self) -> &ForcedState {
        &self.forced
    }
}

impl IpiProxyFigures {
    fn sorted(&self) -> SortedSpans {
        SortedSpans::new(self.latencies_ns.iter().copied())
    }

    /// Returns the figures in the form in which measurements are saved.
    pub fn series(&self, place: &str) -> SavedSeries {
        let setting = format!("{}, {}", self.proxy, self.forced.state);
        SavedSeries::times("proxy latency", place, setting, Block::divided(&self.latencies_ns))
    }
}

/// Returns the columns of the proxies for wake-ups by another CPU.
pub fn ipi_columns() -> Vec<Column<IpiProxyFigures>> {
    type C = Column<IpiProxyFigures>;
    vec![
        C::text("proxy", "proxy", |row| row.proxy.into())
            .means(
                "What was measured instead of an IPI: `futex wake`, from before the call to the \
                 first instruction of the thread that slept there, system calls and scheduler \
                 included; or `membarrier`, a call that interrupts a running thread and waits for \
                 that.",
            )
            .key(),
        IpiProxyFigures::target_column("The CPU that was woken or interrupted."),
        C::text("relation", "relation", |row| row.relation.into())
            .means("How far it is from the CPU that woke it."),
        IpiProxyFigures::state_column(),
        C::count("wake_count", "calls", |row| (row.latencies_ns.len() as u64).into())
            .means("Calls measured."),
        IpiProxyFigures::forced_entry_ratio_column(),
        C::ns("proxy_latency_p50_ns", "proxy p50", |row| row.sorted().percentile(5000).into())
            .means("Median of the proxy; measured."),
        C::ns("proxy_latency_p99_ns", "proxy p99", |row| row.sorted().percentile(9900).into())
            .means("99th percentile of the proxy; measured."),
        C::ns("send_call_p50_ns", "call p50", |row| row.sends_ns.percentile(5000).into()).means(
            "Median time of the waking system call, if it does not wait for the other CPU; \
             measured.",
        ),
        C::ns("baseline_p50_ns", "nobody woken", |row| row.baseline_ns.percentile(5000).into())
            .means("Median time of the same call with nobody to wake or interrupt; measured."),
        IpiProxyFigures::exit_latency_column(),
    ]
}

/// Returns a line for each proxy, CPU and state.
pub fn ipi_proxy_table(title: &str, all: &[IpiProxyFigures]) -> Table {
    Table::new(title, &ipi_columns(), all)
}

/// What a proxy for the interrupt latency of timers measured.
#[derive(Clone, Debug)]
pub struct TimerProxyFigures {
    /// The CPU and its state.
    pub forced: ForcedState,
    /// From the expiry to the thread, in order of time.
    pub latencies_ns: Vec<u64>,
}

impl InForcedState for TimerProxyFigures {
    fn forced(&self) -> &ForcedState {
        &self.forced
    }
}

impl TimerProxyFigures {
    fn sorted(&self) -> SortedSpans {
        SortedSpans::new(self.latencies_ns.iter().copied())
    }

    /// Returns the figures in the form in which measurements are saved.
    pub fn series(&self) -> SavedSeries {
        let place = format!("CPU {}", self.forced.target);
        let blocks = Block::divided(&self.latencies_ns);
        SavedSeries::times("timer to thread", place, self.forced.state.as_str(), blocks)
    }
}

/// Returns the columns of the proxy for timers.
pub fn timer_columns() -> Vec<Column<TimerProxyFigures>> {
    type C = Column<TimerProxyFigures>;
    vec![
        TimerProxyFigures::target_column("The CPU whose timers they were."),
        TimerProxyFigures::state_column(),
        C::count("timer_count", "timers", |row| (row.latencies_ns.len() as u64).into())
            .means("Timers measured."),
        TimerProxyFigures::forced_entry_ratio_column(),
        C::ns("timer_to_thread_p50_ns", "to thread p50", |row| {
            row.sorted().percentile(5000).into()
        })
        .means(
            "Median time from when a timer was due to the next instruction of the thread that \
             slept for it, handler and scheduler included; measured.",
        ),
        C::ns("timer_to_thread_p99_ns", "to thread p99", |row| {
            row.sorted().percentile(9900).into()
        })
        .means("99th percentile of that time; measured."),
        C::ns("timer_to_thread_p999_ns", "to thread p99.9", |row| {
            row.sorted().percentile(9990).into()
        })
        .means("99.9th percentile of that time; measured."),
        C::ns("timer_to_thread_greatest_ns", "greatest", |row| row.sorted().greatest().into())
            .means("The greatest such time; measured."),
        TimerProxyFigures::exit_latency_column(),
    ]
}

/// Returns a line for each CPU and state.
pub fn timer_proxy_table(title: &str, all: &[TimerProxyFigures]) -> Table {
    Table::new(title, &timer_columns(), all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TextStyle, Unit};

    fn forced(state: &str) -> ForcedState {
        ForcedState {
            target: 3,
            state: state.to_owned(),
            exit_latency_ns: Some(5_000),
            forced_entry_ratio: Some(1.0),
        }
    }

    #[test]
    fn a_line_has_the_proxy_beside_what_the_call_costs_alone() {
        let figures = IpiProxyFigures {
            proxy: "futex wake",
            forced: forced("C6"),
            relation: Some("another package"),
            latencies_ns: (1..=10_000).rev().collect(),
            sends_ns: SortedSpans::new(1..=100),
            baseline_ns: SortedSpans::new([7].into_iter()),
        };
        let table = ipi_proxy_table("", &[figures]);
        let expected = "futex wake,CPU 3,another package,C6,10000,1,5000,9900,50,7,5000";
        assert_eq!(table.to_csv().lines().nth(1), Some(expected));
        assert!(table.to_text(&TextStyle::default()).lines().all(|line| line.len() <= 100));
    }

    #[test]
    fn no_column_of_a_proxy_has_the_name_of_the_modules() {
        fn ids<Row>(columns: &[Column<Row>]) -> Vec<&'static str> {
            let headings = crate::columns::headings(columns).into_iter();
            let times = headings.filter(|one| one.unit == Unit::Nanoseconds).map(|one| one.id);
            times.filter(|id| *id != "exit_latency_ns").collect()
        }
        let modules = [
            ids(&crate::ipi::all_columns()),
            ids(&crate::ipi::columns()),
            ids(&crate::timer::columns()),
        ]
        .concat();
        for id in [ids(&ipi_columns()), ids(&timer_columns())].concat() {
            assert!(!modules.contains(&id), "{id}");
        }
    }

    #[test]
    fn timers_have_no_ratio_to_the_tables_latency() {
        let figures =
            TimerProxyFigures { forced: forced("C1"), latencies_ns: (1..=10_000).collect() };
        let table = timer_proxy_table("", &[figures]);
        let expected = "CPU 3,C1,10000,1,5000,9900,9990,10000,5000";
        assert_eq!(table.to_csv().lines().nth(1), Some(expected));
    }
}
