//! What `idlewise bench park` says: a line for each way to park, the goals judged, and the plot of
//! latency against CPU time.

use std::fmt::Write as _;

use crate::columns::{Better, Column, Priority, Unit};
use crate::shown::shown_in_line;
use crate::{Row, Table, Value};

static WAY: Column =
    Column::text("way", "way", "How the waiter waits and is woken.").priority(Priority::Key);
static LATENCY_P50: Column = latency(
    "wake_latency_p50_ns",
    "wake p50",
    "Median time from when a wake was due to the waiter's next instruction; measured.",
);
static LATENCY_P99: Column =
    latency("wake_latency_p99_ns", "wake p99", "99th percentile of the same.");
static LATENCY_P999: Column =
    latency("wake_latency_p999_ns", "wake p99.9", "99.9th percentile of the same.");
static LATENCY_MEAN: Column = latency(
    "wake_latency_mean_ns",
    "wake mean",
    "Mean of the 99 % shortest: what is traded for CPU time, without the machine's other users.",
);
static SEND_COST: Column = latency(
    "send_cost_p50_ns",
    "send p50",
    "Median time that waking took the waker; measured, reading the clock included.",
);
static CPU: Column = Column::number(
    "cpu_ratio",
    "CPU",
    Unit::Ratio,
    "CPU time of the waiter as a share of the time that passed; measured.",
)
.better(Better::Lower);
static SWITCHES: Column = Column::number(
    "switches_per_wake",
    "switches per wake",
    Unit::Count,
    "Context switches of the waiter for each wake; measured.",
)
.priority(Priority::Detail);

const fn latency(id: &'static str, heading: &'static str, meaning: &'static str) -> Column {
    Column::number(id, heading, Unit::Nanoseconds, meaning).better(Better::Lower)
}

/// The columns of `idlewise bench park`.
pub static BENCH_PARK: [&Column; 8] =
    [&WAY, &LATENCY_P50, &LATENCY_MEAN, &LATENCY_P99, &LATENCY_P999, &SEND_COST, &CPU, &SWITCHES];

static ROUND_TRIPS: Column = Column::number(
    "round_trips_per_s",
    "round trips",
    Unit::PerSecond,
    "Round trips of all pairs of threads in a second, two pairs for each CPU; measured.",
)
.better(Better::Higher);
static AGAINST_FUTEX: Column = Column::number(
    "against_futex_ratio",
    "of futex's",
    Unit::Ratio,
    "The same as a share of a futex's in the same run.",
)
.better(Better::Higher);

/// The columns of `idlewise bench park --oversubscribed`'s second table.
pub static BENCH_PARK_THROUGHPUT: [&Column; 3] = [&WAY, &ROUND_TRIPS, &AGAINST_FUTEX];

/// A line for each way to park and its round trips a second; `futex_per_s` are a futex's.
pub fn bench_park_throughput_table<'a>(
    title: &str,
    rates: impl IntoIterator<Item = (&'a str, f64)>,
    futex_per_s: f64,
) -> Table {
    let mut table = Table::new(title, &BENCH_PARK_THROUGHPUT);
    for (way, per_s) in rates {
        table.push(Row::new([way.into(), per_s.into(), (per_s / futex_per_s).into()]));
    }
    table
}

/// What one way to park did on one workload.
#[derive(Clone, Debug)]
pub struct ParkFigures {
    /// Its name.
    pub way: String,
    /// Which part it has in the goals.
    pub role: ParkRole,
    /// Median, 99th and 99.9th percentile of the wake latency.
    pub wake_latency_ns: [u64; 3],
    /// Mean of the 99 % shortest wake latencies.
    pub mean_latency_ns: f64,
    /// Median of the waker's cost.
    pub send_cost_p50_ns: u64,
    /// Median of the waker's cost where the waiter slept.
    pub sleeper_send_cost_ns: u64,
    /// The waiter's CPU time as a share of time.
    pub cpu_ratio: f64,
    /// The waiter's context switches for each wake.
    pub switches_per_wake: f64,
}

/// Which part a way to park has in the goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkRole {
    /// The one that is judged.
    Ours,
    /// The one whose sleep is the measure.
    Futex,
    /// One of those whose front it must not be behind.
    FixedSpin,
    /// Another library's.
    Other,
}

/// A line for each way to park.
pub fn bench_park_table(title: &str, figures: &[ParkFigures]) -> Table {
    let mut table = Table::new(title, &BENCH_PARK);
    for one in figures {
        let [p50, p99, p999] = one.wake_latency_ns.map(Value::Count);
        table.push(Row::new([
            one.way.as_str().into(),
            p50,
            one.mean_latency_ns.into(),
            p99,
            p999,
            one.send_cost_p50_ns.into(),
            one.cpu_ratio.into(),
            one.switches_per_wake.into(),
        ]));
    }
    table
}

/// A goal, judged on one workload of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// What is to be reached.
    pub goal: &'static str,
    /// What was measured; a ratio, or nanoseconds.
    pub measured: f64,
    /// The most that it may be.
    pub at_most: f64,
}

impl Goal {
    /// Whether it is met.
    pub fn is_met(&self) -> bool {
        self.measured <= self.at_most
    }
}

/// Gaps up to which polling should win, and from which on it should not be tried.
const SHORT_GAP_NS: u64 = 50_000;
const LONG_GAP_NS: u64 = 1_000_000;

/// The goals that a workload with this mean gap is about: in a burst most gaps are short, but what is
/// waited for is its first wake.
pub fn judge(figures: &[ParkFigures], mean_gap_ns: u64) -> Vec<Goal> {
    let find = |role| figures.iter().find(|one| one.role == role);
    let (Some(ours), Some(futex)) = (find(ParkRole::Ours), find(ParkRole::Futex)) else {
        return Vec::new();
    };
    let mut goals = Vec::new();
    if mean_gap_ns <= SHORT_GAP_NS {
        goals.push(Goal {
            goal: "the waker's cost, against a futex's wake of a sleeper",
            measured: ours.send_cost_p50_ns as f64 / futex.sleeper_send_cost_ns.max(1) as f64,
            at_most: 0.1,
        });
        goals.push(Goal {
            goal: "median wake latency, against a futex's",
            measured: ours.wake_latency_ns[0] as f64 / futex.wake_latency_ns[0].max(1) as f64,
            at_most: 1.0 / 3.0,
        });
    }
    if mean_gap_ns >= LONG_GAP_NS {
        goals.push(Goal {
            goal: "CPU time, against a futex's",
            measured: ours.cpu_ratio / futex.cpu_ratio.max(f64::MIN_POSITIVE),
            at_most: 1.1,
        });
    }
    goals.push(Goal {
        goal: "behind the front of fixed spins (mean latency, CPU time) by a factor of",
        measured: behind(ours, figures, |one| one.mean_latency_ns),
        at_most: 1.0,
    });
    goals.push(Goal {
        goal: "behind the front of fixed spins (median latency, CPU time) by a factor of",
        measured: behind(ours, figures, |one| one.wake_latency_ns[0] as f64),
        at_most: 1.0,
    });
    goals
}

/// How far the nearest fixed spin that is better in both is ahead in the closer of the two.
fn behind(ours: &ParkFigures, all: &[ParkFigures], latency: fn(&ParkFigures) -> f64) -> f64 {
    let spins = all.iter().filter(|one| one.role == ParkRole::FixedSpin);
    let ratios = spins.map(|spin| {
        let latency_ratio = latency(ours) / latency(spin).max(1.0);
        latency_ratio.min(ours.cpu_ratio / spin.cpu_ratio.max(f64::MIN_POSITIVE))
    });
    ratios.fold(0.0, f64::max)
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 420.0;
const MARGIN: f64 = 60.0;

/// Latency against CPU time, a dot for each way to park: left and low is good. SVG.
pub fn bench_park_plot(title: &str, figures: &[ParkFigures]) -> String {
    let latency = |one: &ParkFigures| one.mean_latency_ns.max(1.0).log10();
    let low = figures.iter().map(latency).fold(f64::INFINITY, f64::min).floor();
    let high = figures.iter().map(latency).fold(f64::NEG_INFINITY, f64::max).ceil().max(low + 1.0);
    let x = |ratio: f64| MARGIN + ratio.clamp(0.0, 1.0) * (WIDTH - 2.0 * MARGIN);
    let y = |log: f64| HEIGHT - MARGIN - (log - low) / (high - low) * (HEIGHT - 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n<text x=\"{MARGIN}\" y=\"24\" font-size=\"14\">{}: mean wake latency \
         against CPU time (measured)</text>\n",
        escape(title)
    );
    // Writing to a string cannot fail.
    for percent in (0..=100).step_by(20) {
        let at = x(f64::from(percent) / 100.0);
        let (top, bottom) = (MARGIN, HEIGHT - MARGIN);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{percent} %</text>",
            bottom + 16.0
        );
    }
    for decade in low as i32..=high as i32 {
        let at = y(f64::from(decade));
        let _ = writeln!(
            svg,
            "<line x1=\"{MARGIN}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{} us</text>",
            WIDTH - MARGIN,
            MARGIN - 4.0,
            at + 4.0,
            10f64.powi(decade - 3)
        );
    }
    for one in figures {
        let colour = match one.role {
            ParkRole::Ours => "#c00",
            ParkRole::FixedSpin => "#888",
            ParkRole::Futex | ParkRole::Other => "#06c",
        };
        let (at_x, at_y) = (x(one.cpu_ratio), y(latency(one)));
        let _ =
            writeln!(svg, "<circle cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"4\" fill=\"{colour}\"/>");
        // Other libraries lie on top of each other.
        if one.role != ParkRole::Other {
            let (text_x, text_y) = (at_x + 6.0, at_y - 4.0);
            let _ = writeln!(
                svg,
                "<text x=\"{text_x:.1}\" y=\"{text_y:.1}\" fill=\"{colour}\">{}</text>",
                escape(&one.way)
            );
        }
    }
    let _ = writeln!(
        svg,
        "<text x=\"{MARGIN}\" y=\"{}\">CPU time of the waiter; blue: a futex and other libraries</text>",
        HEIGHT - 16.0
    );
    svg.push_str("</svg>\n");
    svg
}

fn escape(text: &str) -> String {
    shown_in_line(text).replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Vec<ParkFigures> {
        let one = |way: &str, role, latency_ns, send_cost_p50_ns, cpu_ratio| ParkFigures {
            way: way.to_owned(),
            role,
            wake_latency_ns: [latency_ns; 3],
            mean_latency_ns: latency_ns as f64,
            send_cost_p50_ns,
            sleeper_send_cost_ns: send_cost_p50_ns,
            cpu_ratio,
            switches_per_wake: 0.0,
        };
        vec![
            one("ours", ParkRole::Ours, 200, 50, 0.6),
            one("futex", ParkRole::Futex, 4_000, 1_000, 0.1),
            one("spin <1", ParkRole::FixedSpin, 400, 50, 0.9),
            one("spin 2", ParkRole::FixedSpin, 2_000, 50, 0.3),
        ]
    }

    #[test]
    fn judges_what_a_workload_is_about() {
        let met = |goals: Vec<Goal>| goals.iter().map(Goal::is_met).collect::<Vec<_>>();
        assert_eq!(met(judge(&figures(), 20_000)), [true; 4]);
        let long = judge(&figures(), 1_000_000);
        assert_eq!((long[0].goal, long[0].is_met()), ("CPU time, against a futex's", false));
        let mut dominated = figures();
        dominated[3].wake_latency_ns[0] = 150;
        let front = judge(&dominated, 100_000).pop().unwrap();
        assert!(!front.is_met() && (front.measured - 200.0 / 150.0).abs() < 1e-9);
    }

    #[test]
    fn plots_every_way() {
        let plot = bench_park_plot("poisson:20", &figures());
        assert_eq!(plot.matches("<circle").count(), 4);
        assert!(plot.contains("spin &lt;1") && plot.ends_with("</svg>\n"));
    }
}
