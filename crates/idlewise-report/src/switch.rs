//! The output of `idlewise measure switch`: how fast two threads that pass a token switch, for each
//! way to pass it and each distance of their CPUs.

use serde::Serialize;

use crate::saved::{BetterValue, Block, SavedSeries, SeriesUnit};
use crate::statistics::median;
use crate::{Column, Table};

/// The measurements of a way to pass the token on two CPUs.
#[derive(Clone, Debug)]
pub struct SwitchFigures {
    /// How the token was passed.
    pub way: &'static str,
    /// How far the CPUs are from each other.
    pub place: &'static str,
    /// The CPUs of the two threads.
    pub cpus: [u16; 2],
    /// The times of the round trips of each slice.
    pub round_trips: Vec<Block>,
    /// Switches per second in each slice.
    pub switches_per_s: Vec<f64>,
}

/// Something that was not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// What it is.
    pub what: String,
    /// Why it was not measured.
    pub reason: String,
}

impl Absent {
    /// Returns it as a line of text.
    pub fn to_line(&self) -> String {
        format!("{}: not measured: {}", self.what, self.reason)
    }
}

impl SwitchFigures {
    fn place(&self) -> String {
        match self.cpus {
            [one, other] if one == other => format!("{} (CPU {one})", self.place),
            [one, other] => format!("{} (CPU {one} and {other})", self.place),
        }
    }

    fn round_trip_count(&self) -> u64 {
        self.round_trips.iter().flat_map(|block| &block.0).map(|(_, count)| count).sum()
    }

    /// A percentile of all round trips by nearest rank, in hundredths of a percent; `None` if less
    /// than half a round trip is expected beyond it.
    fn percentile_ns(&self, hundredths: u64) -> Option<u64> {
        let count = self.round_trip_count();
        if count * (10_000 - hundredths) < 5_000 {
            return None;
        }
        let mut values: Vec<(f64, u64)> =
            self.round_trips.iter().flat_map(|block| block.0.iter().copied()).collect();
        values.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let nth = (count * hundredths).div_ceil(10_000).max(1);
        let mut passed = 0;
        let found = values.into_iter().find(|(_, count)| {
            passed += count;
            passed >= nth
        });
        found.map(|(ns, _)| ns as u64)
    }

    /// Returns the figures in the form in which measurements are saved.
    pub fn series(&self) -> [SavedSeries; 2] {
        let trips =
            SavedSeries::times("round trip", self.place, self.way, self.round_trips.clone());
        let rates = SavedSeries {
            figure: "context switches".to_owned(),
            unit: SeriesUnit::PerSecond,
            better: Some(BetterValue::Higher),
            blocks: self.switches_per_s.iter().copied().map(Block::of).collect(),
            ..trips.clone()
        };
        [rates, trips]
    }
}

type C = Column<SwitchFigures>;

/// Returns the columns of `idlewise measure switch`.
pub fn columns() -> Vec<C> {
    vec![
        C::text("way", "way", |row| row.way.into())
            .means(
                "How two threads pass a token: `yield` (sched_yield, on one CPU), `futex` (wake \
                 and wait) or `pipe` (a byte).",
            )
            .key(),
        C::text("place", "place", |row| row.place().into())
            .means(
                "The two threads' CPUs: the same one, an SMT sibling, or another core and its \
                 distance.",
            )
            .key(),
        C::count("slice_count", "slices", |row| (row.switches_per_s.len() as u64).into())
            .means("Slices of time measured, interleaved with all others."),
        C::count("round_trip_count", "round trips", |row| row.round_trip_count().into())
            .means("Round trips measured."),
        C::per_s("switches_per_s", "switches", |row| {
            median(row.switches_per_s.iter().copied()).into()
        })
        .means(
            "Context switches a second, two for each round trip, median over the slices; measured.",
        ),
        C::ns("round_trip_p50_ns", "round trip p50", |row| row.percentile_ns(5000).into()).means(
            "Median time of a round trip, which is two switches, reading the clock included; \
             measured.",
        ),
        C::ns("round_trip_p99_ns", "round trip p99", |row| row.percentile_ns(9900).into())
            .means("99th percentile of the time of a round trip; measured."),
        C::ns("round_trip_p999_ns", "round trip p99.9", |row| row.percentile_ns(9990).into())
            .means("99.9th percentile of the time of a round trip; measured."),
    ]
}

/// Returns a line for each way and place.
pub fn measure_switch_table(title: &str, all: &[SwitchFigures]) -> Table {
    Table::new(title, &columns(), all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextStyle;

    #[test]
    fn a_line_has_percentiles_of_all_slices() {
        let slice = |first: u64| Block::of_times(&mut (first..first + 1_000).collect::<Vec<_>>());
        let figures = SwitchFigures {
            way: "futex",
            place: "SMT sibling",
            cpus: [0, 4],
            round_trips: vec![slice(1_001), slice(1), slice(2_001)],
            switches_per_s: vec![500_000.0, 100_000.0, 900_000.0],
        };
        let table = measure_switch_table("", std::slice::from_ref(&figures));
        assert_eq!(
            table.to_csv().lines().nth(1),
            Some("futex,SMT sibling (CPU 0 and 4),3,3000,500000,1500,2970,2997")
        );
        assert!(table.to_text(&TextStyle::default()).lines().all(|line| line.len() <= 100));
        let [rates, trips] = figures.series();
        assert_eq!((rates.blocks.len(), trips.blocks.len()), (3, 3));
        assert_eq!(trips.place, "SMT sibling", "other machines have other CPUs");
    }
}
