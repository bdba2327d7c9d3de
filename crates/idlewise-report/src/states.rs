//! The output of `idlewise measure states`: for each CPU and idle state a line with percentiles of what
//! leaving the state takes, beside the exit latency that the driver declares.
//!
//! What is measured is a wake of a CPU by an IPI, or of a thread, with system calls and the scheduler in it. The
//! same wake while the CPU does not idle is the baseline, and its median is subtracted from each wake out of the
//! state. So the
//! noise of the path counts for the state: a high percentile is rather too high than too low. Where the state
//! is woken by an interrupt and the baseline by a store, the interrupt's delivery is part of the figure.
//!
//! Intervals (95 %) come from drawing blocks of the state's wakes and of the baseline's, independently.

use idlewise_sim::MachineState;

use crate::columns::Column;
use crate::compare::sample::{Rank, Sample};
use crate::saved::{Block, SavedSeries};
use crate::statistics::{Draw, RESAMPLE_COUNT, middle};
use crate::{Table, Value};

/// The percentiles of the table, in hundredths of a percent. Drivers declare worst cases: intel_idle's
/// tables are said to be 99.99th percentiles.
pub const PERCENTILES: [u64; 4] = [5_000, 9_000, 9_900, 9_999];
/// If fewer wakes than this were measured, there is no 99.99th percentile.
pub const WAKE_COUNT_P9999_MIN: u64 = 5_000;

/// A statistic and its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Nanoseconds; `None` if there are too few values.
    pub ns: Option<f64>,
    /// The 95 % interval; `None` if there are too few values for one.
    pub interval_ns: Option<[f64; 2]>,
}

/// What was measured of one state of one CPU.
#[derive(Clone, Debug)]
pub struct StateFigures {
    /// The CPU.
    pub target: u16,
    /// The state.
    pub state: String,
    /// What the driver declares.
    pub declared_exit_latency_ns: u64,
    /// Wakes that count.
    pub wake_count: u64,
    /// Wakes that do not.
    pub dropped_count: u64,
    /// What leaving the state takes: one estimate for each of [`PERCENTILES`].
    pub exits: [Estimate; 4],
    /// The baseline's median: the wake of a CPU that does not idle.
    pub baseline_ns: Option<f64>,
    /// How much later a thread is woken by a timer than from the baseline, in the median: a second opinion.
    pub timer_ns: Option<f64>,
}

/// Computes what leaving a state takes from wakes out of it and from the baseline's, each in order of time.
pub fn exit_estimates(wakes_ns: &[u64], baseline_ns: &[u64]) -> [Estimate; 4] {
    let sample = |times_ns: &[u64]| {
        let series = SavedSeries::times("wake", "", "", Block::divided(times_ns));
        Sample::new(&series).ok()
    };
    let (Some(wakes), Some(baseline)) = (sample(wakes_ns), sample(baseline_ns)) else {
        return [Estimate::default(); 4];
    };
    let median = Rank::Hundredths(5_000);
    let ones = |sample: &Sample| vec![1; sample.block_count];
    let difference = |rank, of: &[u64], against: &[u64]| {
        let ns = wakes.statistic(rank, of)? - baseline.statistic(median, against)?;
        Some(ns.max(0.0))
    };
    PERCENTILES.map(|hundredths| {
        let rank = Rank::Hundredths(hundredths);
        let ns = difference(rank, &ones(&wakes), &ones(&baseline));
        let has_interval = wakes.has_interval(rank) && baseline.has_interval(median);
        let interval_ns = (ns.is_some() && has_interval).then(|| {
            let [mut of, mut against] = Draw::pair();
            let (mut of_weights, mut against_weights) = (ones(&wakes), ones(&baseline));
            let mut draw = || {
                of.weights(&mut of_weights);
                against.weights(&mut against_weights);
                difference(rank, &of_weights, &against_weights)
            };
            middle((0..RESAMPLE_COUNT).filter_map(|_| draw()).collect())
        });
        Estimate { ns, interval_ns }
    })
}

/// The median of some times.
pub fn median_ns(times_ns: &[u64]) -> Option<f64> {
    crate::statistics::median(times_ns.iter().map(|&ns| ns as f64))
}

impl StateFigures {
    /// Returns what a machine file should declare, in nanoseconds: the highest percentile that there is.
    pub fn declarable_ns(&self) -> Option<u64> {
        let ns = self.exits.iter().rev().find_map(|estimate| estimate.ns)?;
        Some(ns.round() as u64)
    }

    /// Returns the name of the percentile that [`StateFigures::declarable_ns`] is.
    pub fn declarable_percentile(&self) -> &'static str {
        const NAMES: [&str; 4] = ["p50", "p90", "p99", "p99.99"];
        let place = self.exits.iter().rposition(|estimate| estimate.ns.is_some());
        place.map_or("nothing", |place| NAMES[place])
    }
}

type C = Column<StateFigures>;

fn value(row: &StateFigures, place: usize) -> Value {
    row.exits[place].ns.into()
}

fn end(row: &StateFigures, place: usize, end: usize) -> Value {
    row.exits[place].interval_ns.map(|interval| interval[end]).into()
}

/// Returns the columns of `idlewise measure states`.
pub fn columns() -> Vec<C> {
    vec![
        C::text("target", "CPU", |row| format!("CPU {}", row.target).into())
            .means("The CPU that was held in the state.")
            .key(),
        C::text("state", "state", |row| row.state.as_str().into()).means("The idle state.").key(),
        C::count("wake_count", "wakes", |row| row.wake_count.into()).means("Wakes that count."),
        C::count("dropped_count", "dropped", |row| row.dropped_count.into()).means(
            "Wakes that do not count: the CPU was not idle or was in another state, firmware \
             interrupted, or the waker was late.",
        ),
        C::ns("exit_p50_ns", "exit p50", |row| value(row, 0)).means(
            "Median time to leave the state: a wake out of it, less the median wake of a CPU that \
             does not idle; measured.",
        ),
        C::ns("exit_p50_low_ns", "p50 from", |row| end(row, 0, 0))
            .means("Lower end of the median's 95 % interval.")
            .detail(),
        C::ns("exit_p50_high_ns", "p50 to", |row| end(row, 0, 1))
            .means("Upper end of the median's 95 % interval.")
            .detail(),
        C::ns("exit_p90_ns", "exit p90", |row| value(row, 1))
            .means("90th percentile of the same; measured."),
        C::ns("exit_p90_low_ns", "p90 from", |row| end(row, 1, 0))
            .means("Lower end of the 90th percentile's 95 % interval.")
            .detail(),
        C::ns("exit_p90_high_ns", "p90 to", |row| end(row, 1, 1))
            .means("Upper end of the 90th percentile's 95 % interval.")
            .detail(),
        C::ns("exit_p99_ns", "exit p99", |row| value(row, 2))
            .means("99th percentile of the same; measured."),
        C::ns("exit_p99_low_ns", "p99 from", |row| end(row, 2, 0))
            .means("Lower end of the 99th percentile's 95 % interval.")
            .detail(),
        C::ns("exit_p99_high_ns", "p99 to", |row| end(row, 2, 1))
            .means("Upper end of the 99th percentile's 95 % interval.")
            .detail(),
        C::ns("exit_p9999_ns", "exit p99.99", |row| value(row, 3)).means(
            "99.99th percentile, which drivers' tables are said to declare; measured. Absent with \
             fewer than 5,000 wakes.",
        ),
        C::ns("exit_p9999_low_ns", "p99.99 from", |row| end(row, 3, 0))
            .means("Ends of its 95 % interval, absent with fewer than 50,000 wakes.")
            .detail(),
        C::ns("exit_p9999_high_ns", "p99.99 to", |row| end(row, 3, 1))
            .means("Upper end of the 99.99th percentile's 95 % interval.")
            .detail(),
        C::ns("declared_exit_latency_ns", "table's exit", |row| {
            row.declared_exit_latency_ns.into()
        })
        .means("The exit latency in the driver's table: declared, not measured."),
        C::ns("baseline_p50_ns", "not idle", |row| row.baseline_ns.into())
            .means(
                "The median wake of the same CPU while it does not idle, which was subtracted; \
                 measured.",
            )
            .detail(),
        C::ns("timer_p50_ns", "by timer", |row| row.timer_ns.into())
            .means(
                "Another estimate: the median extra delay of a thread that slept for a timer; \
                 measured. Shorter on processors that wake before a timer is due.",
            )
            .detail(),
    ]
}

/// Returns a line for each CPU and state.
pub fn measure_states_table(title: &str, all: &[StateFigures]) -> Table {
    Table::new(title, &columns(), all)
}

/// Returns the saved form: the wakes out of each state, and of the baseline. `figure` says what was woken.
pub fn wake_series(figure: &str, place: &str, state: &str, wakes_ns: &[u64]) -> SavedSeries {
    SavedSeries::times(figure, place, state, Block::divided(wakes_ns))
}

/// The boot parameter that gives intel_idle another table (`intel_idle.table=`, since Linux 7.0), for states
/// that differ from it in exit latency or target residency.
///
/// The driver ignores the whole parameter unless deeper states have higher latencies and target residencies,
/// and no target residency is below its latency. Target residencies are raised to the latency where needed.
///
/// # Errors
/// Returns a sentence that says why there is no such line.
pub fn intel_idle_table(
    declared: &[MachineState],
    measured: &[MachineState],
) -> Result<String, String> {
    const LENGTH_MAX: usize = 255;
    let us = |ns: u64| ns.div_ceil(1_000).max(1);
    let mut parts = Vec::new();
    let mut last: Option<(&str, u64, u64)> = None;
    for (was, is) in declared.iter().zip(measured) {
        if was.idle().is_polling {
            continue;
        }
        let (latency_us, wished_us) = (us(is.exit_latency_ns), us(is.target_residency_ns));
        let residency_us = wished_us.max(latency_us);
        if let Some((name, last_latency_us, last_residency_us)) = last
            && (latency_us <= last_latency_us || residency_us <= last_residency_us)
        {
            return Err(format!(
                "no intel_idle.table= line: the driver takes only tables in which deeper states take longer, and \
                 {} ({latency_us}/{residency_us} us) is not above {name} ({last_latency_us}/{last_residency_us} us)",
                is.name
            ));
        }
        last = Some((&is.name, latency_us, residency_us));
        if (latency_us, residency_us) != (us(was.exit_latency_ns), us(was.target_residency_ns)) {
            parts.push(format!("{}:{latency_us}:{residency_us}", is.name));
        }
    }
    let line = format!("intel_idle.table={}", parts.join(","));
    match (parts.is_empty(), line.len() > LENGTH_MAX) {
        (true, _) => Err("no intel_idle.table= line: the table would stay as it is".to_owned()),
        (_, true) => {
            Err("no intel_idle.table= line: it would be longer than the driver takes".to_owned())
        }
        _ => Ok(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextStyle;

    /// A path of 8 µs, a state of 100 µs more, in a fixed disorder.
    fn wakes(count: u64, more_ns: u64) -> Vec<u64> {
        (0..count).map(|i| 8_000 + more_ns + (i * 7_919) % 1_000).collect()
    }

    #[test]
    fn a_state_costs_what_it_adds_to_the_baseline() {
        let exits = exit_estimates(&wakes(10_000, 100_000), &wakes(10_000, 0));
        let ns = exits.map(|exit| exit.ns.unwrap());
        assert!((ns[0] - 100_000.0).abs() <= 100.0, "{ns:?}");
        // The path's own noise counts for the state.
        assert!((ns[2] - 100_490.0).abs() <= 100.0 && ns[3] >= ns[2], "{ns:?}");
        let [low, high] = exits[0].interval_ns.unwrap();
        assert!(low <= ns[0] && ns[0] <= high && high - low < 100.0, "{low} {high}");
        assert_eq!(exits[3].interval_ns, None, "ten thousand wakes have one beyond p99.99");
    }

    #[test]
    fn few_wakes_have_no_high_percentile_and_none_have_nothing() {
        let exits = exit_estimates(&wakes(1_000, 5_000), &wakes(1_000, 0));
        assert!(exits[2].ns.is_some() && exits[3].ns.is_none());
        assert_eq!(exit_estimates(&[], &wakes(10, 0)), [Estimate::default(); 4]);
    }

    #[test]
    fn a_state_that_costs_nothing_is_not_negative() {
        let exits = exit_estimates(&wakes(1_000, 0), &wakes(1_000, 500));
        assert_eq!(exits[0].ns, Some(0.0));
    }

    fn figures(count: u64) -> StateFigures {
        StateFigures {
            target: 5,
            state: "C6".to_owned(),
            declared_exit_latency_ns: 290_000,
            wake_count: count,
            dropped_count: 3,
            exits: exit_estimates(&wakes(count, 100_000), &wakes(count, 0)),
            baseline_ns: Some(8_500.0),
            timer_ns: None,
        }
    }

    #[test]
    fn the_highest_percentile_is_what_a_table_declares() {
        assert_eq!(figures(10_000).declarable_percentile(), "p99.99");
        assert_eq!(figures(1_000).declarable_percentile(), "p99");
        let ns = figures(10_000).declarable_ns().unwrap();
        assert!((100_490..100_600).contains(&ns), "{ns}");
    }

    #[test]
    fn a_table_fits_a_terminal() {
        let table = measure_states_table("", &[figures(10_000)]);
        assert!(
            table.to_text(&TextStyle::default()).lines().all(|line| line.chars().count() <= 100)
        );
    }

    fn states(times_us: &[(&str, u64, u64)]) -> Vec<MachineState> {
        let state = |&(name, latency_us, residency_us): &(&str, u64, u64)| {
            let mut state = MachineState::new(name, latency_us * 1_000, residency_us * 1_000);
            if name == "POLL" {
                state.flags.push(idlewise_sim::Flag::Polling);
            }
            state
        };
        times_us.iter().map(state).collect()
    }

    #[test]
    fn the_boot_parameter_has_what_differs() {
        let declared = states(&[("POLL", 0, 0), ("C1", 1, 1), ("C1E", 2, 4), ("C6", 290, 800)]);
        let measured = states(&[("POLL", 0, 0), ("C1", 1, 1), ("C1E", 5, 4), ("C6", 151, 800)]);
        let line = intel_idle_table(&declared, &measured);
        assert_eq!(line.as_deref(), Ok("intel_idle.table=C1E:5:5,C6:151:800"));
        assert!(intel_idle_table(&declared, &declared).unwrap_err().contains("stay as it is"));
    }

    #[test]
    fn a_table_that_the_driver_would_ignore_is_no_line() {
        let declared = states(&[("POLL", 0, 0), ("C1", 1, 1), ("C1E", 2, 4)]);
        let measured = states(&[("POLL", 0, 0), ("C1", 3, 3), ("C1E", 2, 4)]);
        let error = intel_idle_table(&declared, &measured).unwrap_err();
        assert!(error.contains("C1E (2/4 us) is not above C1 (3/3 us)"), "{error}");
    }
}
