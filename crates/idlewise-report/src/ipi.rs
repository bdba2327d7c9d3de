//! The output of `idlewise measure ipi`: for each CPU and idle state, percentiles of the wake
//! latency in cycles and nanoseconds (in the form of Karny's table of 2022) and of the cost of
//! sending the wake (Pallipadi's figures of 2012), a summary line for each, and a histogram.

use std::fmt::Write as _;

use crate::forced::{ForcedState, InForcedState, SortedSpans};
use crate::{Column, Table};

/// The percentiles of Karny's table, in hundredths of a percent.
const PERCENTILES: [u64; 10] = [2500, 5000, 7500, 9000, 9500, 9900, 9950, 9990, 9995, 9999];

/// The measurements of one CPU woken from one state.
#[derive(Clone, Debug)]
pub struct IpiFigures {
    /// The CPU and the state.
    pub forced: ForcedState,
    /// How far it is from the CPU that woke it.
    pub relation: Option<&'static str>,
    /// Wakes that could not be measured.
    pub given_up_count: u64,
    /// TSC cycles per millisecond.
    pub tsc_khz: u32,
    /// The measured times, in TSC cycles.
    pub cycles: IpiCycles,
}

/// The times measured for each wake, in TSC cycles.
#[derive(Clone, Debug)]
pub struct IpiCycles {
    /// Wake latency.
    pub wake: SortedSpans,
    /// The latency up to the called function.
    pub call: SortedSpans,
    /// The cost of sending while the CPU is idle.
    pub idle: SortedSpans,
    /// The cost of sending while the CPU is waking up.
    pub waking: SortedSpans,
    /// The cost of sending while the CPU is running.
    pub busy: SortedSpans,
}

impl InForcedState for IpiFigures {
    fn forced(&self) -> &ForcedState {
        &self.forced
    }
}

impl IpiFigures {
    fn ns(&self, cycles: u64) -> u64 {
        // At most 2^64 × 10^6.
        (u128::from(cycles) * 1_000_000 / u128::from(self.tsc_khz.max(1))) as u64
    }

    fn percentile_ns(&self, cycles: &SortedSpans, hundredths: u64) -> Option<u64> {
        cycles.percentile(hundredths).map(|cycles| self.ns(cycles))
    }

    /// The 99th percentile divided by the table's exit latency, if the CPU was in the forced state.
    fn of_table_ratio(&self) -> Option<f64> {
        self.forced.of_table_ratio(self.percentile_ns(&self.cycles.wake, 9900))
    }

    /// Returns a title such as `CPU 1 (shared cache), C6`.
    pub fn title(&self) -> String {
        let relation = self.relation.map_or_else(String::new, |relation| format!(" ({relation})"));
        format!("CPU {}{relation}, {}", self.forced.target, self.forced.state)
    }
}

/// A percentile of the measurements of one CPU and state.
pub struct Line<'a> {
    figures: &'a IpiFigures,
    rank: Rank,
}

enum Rank {
    Least,
    Hundredths(u64),
    Greatest,
}

impl Line<'_> {
    fn name(&self) -> String {
        match self.rank {
            Rank::Least => "least".to_owned(),
            Rank::Hundredths(hundredths) => format!("{}", hundredths as f64 / 100.0),
            Rank::Greatest => "greatest".to_owned(),
        }
    }

    fn cycles(&self, cycles: &SortedSpans) -> Option<u64> {
        match self.rank {
            Rank::Least => cycles.0.first().copied(),
            Rank::Hundredths(hundredths) => cycles.percentile(hundredths),
            Rank::Greatest => cycles.greatest(),
        }
    }

    fn ns(&self, cycles: &SortedSpans) -> Option<u64> {
        self.cycles(cycles).map(|cycles| self.figures.ns(cycles))
    }
}

/// Returns the columns for one CPU and state.
pub fn columns<'a>() -> Vec<Column<Line<'a>>> {
    type C<'a> = Column<Line<'a>>;
    vec![
        C::text("percentile", "percentile", |row| row.name().into())
            .means(
                "The percentile, by nearest rank; absent if less than half a wake is expected \
                 beyond it.",
            )
            .key(),
        C::cycles("wake_cycles", "wake", |row| row.cycles(&row.figures.cycles.wake).into())
            .means("Wake latency in cycles of the TSC; measured."),
        C::ns("wake_latency_ns", "wake", |row| row.ns(&row.figures.cycles.wake).into()).means(
            "Wake latency: from before the call is sent to the idle CPU's first instruction after \
             its state; measured.",
        ),
        C::cycles("call_cycles", "call", |row| row.cycles(&row.figures.cycles.call).into())
            .means("The same to the call's first instruction; measured."),
        C::ns("call_latency_ns", "call", |row| row.ns(&row.figures.cycles.call).into()).means(
            "From before the call is sent to its first instruction on the CPU; measured. Longer \
             than the wake latency if a store ends the state, because the idle loop ends first.",
        ),
        C::cycles("send_idle_cycles", "send: idle", |row| {
            row.cycles(&row.figures.cycles.idle).into()
        })
        .means(
            "What sending a call to the idle CPU cost the sender, in cycles of the TSC; measured.",
        ),
        C::ns("send_idle_ns", "send: idle", |row| row.ns(&row.figures.cycles.idle).into())
            .means("What sending a call to the idle CPU cost; measured."),
        C::cycles("send_waking_cycles", "send: waking", |row| {
            row.cycles(&row.figures.cycles.waking).into()
        })
        .means(
            "The same in cycles of the TSC, for a second call right behind the first, while the \
             CPU is waking; measured.",
        ),
        C::ns("send_waking_ns", "send: waking", |row| row.ns(&row.figures.cycles.waking).into())
            .means("What sending a second call cost, right behind the first; measured."),
        C::cycles("send_busy_cycles", "send: busy", |row| {
            row.cycles(&row.figures.cycles.busy).into()
        })
        .means("The same in cycles of the TSC, for a call to a CPU that runs a loop; measured."),
        C::ns("send_busy_ns", "send: busy", |row| row.ns(&row.figures.cycles.busy).into())
            .means("What sending a call cost while the CPU ran a loop; measured."),
    ]
}

/// Returns the columns of the summary.
pub fn all_columns() -> Vec<Column<IpiFigures>> {
    type C = Column<IpiFigures>;
    vec![
        IpiFigures::target_column("The CPU that was woken."),
        C::text("relation", "relation", |row| row.relation.into()).means(
            "How far it is from the CPU that woke it: SMT sibling, shared cache, same package or \
             another.",
        ),
        IpiFigures::state_column(),
        C::count("wake_count", "wakes", |row| row.cycles.wake.count().into())
            .means("Wakes measured."),
        IpiFigures::forced_entry_ratio_column(),
        C::ns("wake_latency_p50_ns", "wake p50", |row| {
            row.percentile_ns(&row.cycles.wake, 5000).into()
        })
        .means("Median of the wake latency; measured."),
        C::ns("wake_latency_p99_ns", "wake p99", |row| {
            row.percentile_ns(&row.cycles.wake, 9900).into()
        })
        .means("99th percentile of the wake latency; measured."),
        IpiFigures::exit_latency_column(),
        C::ratio("wake_latency_p99_to_exit_latency_ratio", "p99 of table's", |row| {
            row.of_table_ratio().into()
        })
        .means(
            "The 99th percentile, which includes sending and the interrupt, as a share of the \
             table's exit latency. Absent unless the CPU was in the forced state.",
        ),
        C::ns("send_idle_p50_ns", "send: idle p50", |row| {
            row.percentile_ns(&row.cycles.idle, 5000).into()
        })
        .means("Median cost of sending to it; measured."),
        C::ns("send_waking_p50_ns", "send: waking p50", |row| {
            row.percentile_ns(&row.cycles.waking, 5000).into()
        })
        .means("Median cost of sending a second call, while it was waking; measured."),
        C::ns("send_busy_p50_ns", "send: busy p50", |row| {
            row.percentile_ns(&row.cycles.busy, 5000).into()
        })
        .means("Median cost of sending while it ran a loop; measured."),
    ]
}

/// Returns the percentiles of one CPU and state.
pub fn measure_ipi_table(title: &str, figures: &IpiFigures) -> Table {
    let ranks = PERCENTILES.map(Rank::Hundredths);
    let ranks = std::iter::once(Rank::Least).chain(ranks).chain([Rank::Greatest]);
    Table::new(title, &columns(), ranks.map(|rank| Line { figures, rank }))
}

/// Returns a summary line for each CPU and state.
pub fn measure_ipi_all_table(title: &str, all: &[IpiFigures]) -> Table {
    Table::new(title, &all_columns(), all)
}

const BAR_COUNT_MAX: u64 = 24;
const BAR_WIDTH: u64 = 60;

/// Returns wake latencies as bars: one line for each interval of equal length up to the 99.5th
/// percentile, and one for everything above.
pub fn measure_ipi_histogram(figures: &IpiFigures) -> String {
    let cycles = &figures.cycles.wake;
    let (Some(&least), Some(&greatest)) = (cycles.0.first(), cycles.0.last()) else {
        return String::new();
    };
    let (least, greatest) = (figures.ns(least), figures.ns(greatest));
    let top = figures.percentile_ns(cycles, 9950).unwrap_or(greatest);
    let step = round_up((top - least) / BAR_COUNT_MAX + 1);
    let first = least / step;
    let bar_count = (top / step - first + 1) as usize;
    let mut counts = vec![0_u64; bar_count + 1];
    for &cycles in &cycles.0 {
        let place = figures.ns(cycles) / step - first;
        counts[(place as usize).min(bar_count)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let mut text = String::from("   wake ns from   wakes\n");
    for (place, &count) in counts.iter().enumerate() {
        let from = (first + place as u64) * step;
        if place == bar_count && count == 0 {
            break;
        }
        let sign = if place == bar_count { "≥" } else { " " };
        let bar = "#".repeat((count * BAR_WIDTH).div_ceil(most) as usize);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", format!("{sign} {from:13} {count:7}  {bar}").trim_end());
    }
    text
}

/// The next of 1, 2, 5, 10, 20, 50, …
fn round_up(number: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        for step in [1, 2, 5].map(|step| power.saturating_mul(step)) {
            if step >= number {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextStyle;

    /// 1 to `count` cycles at 2 GHz.
    fn figures(count: u64) -> IpiFigures {
        let cycles = |factor: u64| SortedSpans::new((1..=count).rev().map(move |i| i * factor));
        IpiFigures {
            forced: ForcedState {
                target: 3,
                state: "C6".to_owned(),
                exit_latency_ns: Some(50_000),
                forced_entry_ratio: Some(1.0),
            },
            relation: Some("another package"),
            given_up_count: 0,
            tsc_khz: 2_000_000,
            cycles: IpiCycles {
                wake: cycles(20),
                call: cycles(30),
                idle: cycles(4),
                waking: cycles(1),
                busy: cycles(2),
            },
        }
    }

    #[test]
    fn percentiles_are_values_of_the_sample_in_cycles_and_nanoseconds() {
        let csv = measure_ipi_table("", &figures(10_000)).to_csv();
        let line = |name: &str| csv.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert_eq!(line("least,"), "least,20,10,30,15,4,2,1,0,2,1");
        assert_eq!(line("25,"), "25,50000,25000,75000,37500,10000,5000,2500,1250,5000,2500");
        let last = "199980,99990,299970,149985,39996,19998,9999,4999,19998,9999";
        assert_eq!(line("99.99,"), format!("99.99,{last}"));
        let greatest = "200000,100000,300000,150000,40000,20000,10000,5000,20000,10000";
        assert_eq!(line("greatest,"), format!("greatest,{greatest}"));
        assert_eq!(csv.lines().count(), 13);
    }

    #[test]
    fn a_percentile_that_the_wakes_are_too_few_for_is_absent() {
        let csv = measure_ipi_table("", &figures(500)).to_csv();
        assert!(csv.contains("\n99.9,10000,5000,"), "{csv}");
        assert!(csv.contains("\n99.95,,,,,,,,,,\n99.99,,,,,,,,,,\n"), "{csv}");
    }

    #[test]
    fn the_measured_latency_stands_beside_the_tables() {
        let table = measure_ipi_all_table("", &[figures(10_000)]);
        let csv = table.to_csv();
        let expected = "CPU 3,another package,C6,10000,1,50000,99000,50000,1.98,10000,2500,5000";
        assert_eq!(csv.lines().nth(1), Some(expected));
        assert!(table.to_text(&TextStyle::default()).lines().all(|line| line.len() <= 100));
    }

    #[test]
    fn what_was_not_the_state_is_not_compared_with_its_exit_latency() {
        for forced_entry_ratio in [Some(0.5), None] {
            let mut not_forced = figures(100);
            not_forced.forced.forced_entry_ratio = forced_entry_ratio;
            let csv = measure_ipi_all_table("", &[not_forced]).to_csv();
            assert!(csv.contains(",990,50000,,"), "{csv}");
        }
    }

    #[test]
    fn every_wake_is_in_the_histogram_once() {
        for count in [1, 2, 100, 10_000] {
            let text = measure_ipi_histogram(&figures(count));
            let counts = text.lines().skip(1).map(|line| {
                let words: Vec<&str> = line.trim_start_matches('≥').split_whitespace().collect();
                words[1].parse::<u64>().unwrap()
            });
            assert_eq!(counts.sum::<u64>(), count, "{text}");
            assert!(text.lines().count() <= 28, "{text}");
        }
    }
}
