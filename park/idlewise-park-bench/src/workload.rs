//! When wakes are due: an open-loop schedule, made before the run, that never waits.

use std::fmt;
use std::str::FromStr;

use crate::random::Random;

/// A pattern of gaps between wakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Exponentially distributed gaps.
    Poisson {
        /// The mean gap.
        mean_ns: u64,
    },
    /// Equal gaps.
    Periodic {
        /// The gap.
        gap_ns: u64,
    },
    /// Eight wakes 5 µs apart, then this pause.
    Bursty {
        /// The pause.
        pause_ns: u64,
    },
    /// The gaps of an idle log in order, repeated when they are used up.
    Recorded {
        /// The log's name.
        name: String,
        /// Its gaps.
        gaps_ns: Vec<u64>,
    },
}

/// A text that does not name a workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{name}' is no workload: name one as poisson:US, periodic:US or bursty:US, with the mean gap, the \
     gap or the pause in microseconds (1 to 1000000)"
)]
pub struct WorkloadError {
    name: String,
}

const BURST_COUNT: usize = 8;
const BURST_GAP_NS: u64 = 5_000;

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(name: &str) -> Result<Self, WorkloadError> {
        let error = || WorkloadError { name: name.to_owned() };
        let (kind, span) = name.split_once(':').ok_or_else(error)?;
        let span_us: u64 = span.parse().map_err(|_| error())?;
        if !(1..=1_000_000).contains(&span_us) {
            return Err(error());
        }
        let span_ns = span_us * 1000;
        match kind {
            "poisson" => Ok(Workload::Poisson { mean_ns: span_ns }),
            "periodic" => Ok(Workload::Periodic { gap_ns: span_ns }),
            "bursty" => Ok(Workload::Bursty { pause_ns: span_ns }),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Poisson { mean_ns } => write!(f, "poisson:{}", mean_ns / 1000),
            Workload::Periodic { gap_ns } => write!(f, "periodic:{}", gap_ns / 1000),
            Workload::Bursty { pause_ns } => write!(f, "bursty:{}", pause_ns / 1000),
            Workload::Recorded { name, .. } => write!(f, "{name}"),
        }
    }
}

impl Workload {
    /// Returns when each of `count` wakes is due, from the start. Determined by the seed.
    pub fn due_ns(&self, count: usize, seed: u64) -> Vec<u64> {
        let mut random = Random::new(seed);
        let mut due_ns = 0;
        let gap_ns = |index: usize, random: &mut Random| match self {
            Workload::Poisson { mean_ns } => (-random.uniform().ln() * *mean_ns as f64) as u64,
            Workload::Periodic { gap_ns } => *gap_ns,
            Workload::Bursty { pause_ns } if index.is_multiple_of(BURST_COUNT) => *pause_ns,
            Workload::Bursty { .. } => BURST_GAP_NS,
            Workload::Recorded { gaps_ns, .. } => gaps_ns[index % gaps_ns.len()],
        };
        (0..count)
            .map(|index| {
                due_ns += gap_ns(index, &mut random);
                due_ns
            })
            .collect()
    }

    /// Returns the mean time between wakes.
    pub fn mean_gap_ns(&self) -> u64 {
        const COUNT: usize = 1000;
        self.due_ns(COUNT, 1).last().copied().unwrap_or(0) / COUNT as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for name in ["poisson:50", "periodic:1000", "bursty:2000"] {
            assert_eq!(name.parse::<Workload>().unwrap().to_string(), name);
        }
        for name in ["poisson", "poisson:0", "poisson:x", "storm:5", "periodic:1000001"] {
            let error = name.parse::<Workload>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{name}' is no workload")), "{error}");
        }
    }

    #[test]
    fn schedules_have_the_gaps_they_are_named_for() {
        let due = |name: &str| name.parse::<Workload>().unwrap().due_ns(10_000, 3);
        assert_eq!(due("periodic:7")[..3], [7_000, 14_000, 21_000]);
        let bursty = due("bursty:100");
        assert_eq!(
            (bursty[0], bursty[7] - bursty[6], bursty[8] - bursty[7]),
            (100_000, 5_000, 100_000)
        );
        let mean_ns = due("poisson:50").last().unwrap() / 10_000;
        assert!((45_000..55_000).contains(&mean_ns), "{mean_ns}");
        let log = Workload::Recorded { name: "log".to_owned(), gaps_ns: vec![3, 4] };
        assert_eq!(log.due_ns(3, 1), [3, 7, 10]);
    }
}
