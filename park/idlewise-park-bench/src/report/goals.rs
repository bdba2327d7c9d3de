//! Judges a measurement by the goals.
//!
//! A goal is met if the whole interval of the measured value meets it, not met if no part of it
//! does, and undecided otherwise. Goals without a measurement are reported as not measured.

use idlewise_core::words;
use serde_json::json;

use super::result::{
    CallFigures, ParkFigures, ParkResult, ParkRole, ParkRun, RoundTrips, TimeoutFigures,
};
use idlewise_report::statistics::{Series, estimate};

use crate::{CHANNEL_ITEM, READY_TOKEN, SET_TOKEN};

words! {
    /// The verdict on a goal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Verdict {
        /// The whole interval meets it.
        Met = "met",
        /// No part of the interval meets it.
        NotMet = "not met",
        /// Only a part of the interval meets it, or there were too few runs for an interval.
        Undecided = "undecided",
        /// A run lacks the figure.
        NotMeasured = "not measured",
    }
}

/// A goal with its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// What should be achieved.
    pub goal: &'static str,
    /// The workload, if the goal concerns one.
    pub workload: Option<String>,
    /// The median over the runs: a ratio, or nanoseconds.
    pub measured: Option<f64>,
    /// Its 95 % confidence interval.
    pub interval: Option<[f64; 2]>,
    /// The largest value that meets the goal.
    pub at_most: f64,
    /// The verdict.
    pub verdict: Verdict,
}

/// Up to the first gap length polling should win; from the second on it should not be tried.
const SHORT_GAP_NS: u64 = 50_000;
const LONG_GAP_NS: u64 = 1_000_000;

/// Judges all goals. Which of them apply to a workload depends on its mean gap. In a burst most
/// gaps are short, but what counts is the wait for its first wake.
pub fn judge(result: &ParkResult) -> Vec<Goal> {
    let runs = result.runs.as_slice();
    let mut goals = Vec::new();
    for workload in result.workloads() {
        let name = workload.workload.as_str();
        let mut against_futex = |goal, at_most, ours: Figure, futex: Figure| {
            let ours = of_role(runs, name, ParkRole::Ours, ours);
            let futex = of_role(runs, name, ParkRole::Futex, futex);
            goals.push(judge_ratio(runs, goal, Some(name), ours, futex, at_most));
        };
        if workload.mean_gap_ns <= SHORT_GAP_NS {
            against_futex(
                "the waker's cost, against a futex's wake of a sleeper",
                0.1,
                |one| one.send_cost_p50_ns,
                |one| one.sleeper_send_cost_ns,
            );
            against_futex(
                "median wake latency, against a futex's",
                1.0 / 3.0,
                |one| one.wake_latency_p50_ns,
                |one| one.wake_latency_p50_ns,
            );
        }
        if workload.mean_gap_ns >= LONG_GAP_NS {
            let cpu: Figure = |one| one.cpu_ratio;
            against_futex("CPU time, against a futex's", 1.1, cpu, cpu);
        }
        for (goal, latency) in [
            (FRONT_MEAN, (|one| one.wake_latency_mean_ns) as Figure),
            (FRONT_P50, |one| one.wake_latency_p50_ns),
            (FRONT_P99, |one| one.wake_latency_p99_ns),
        ] {
            let measured = behind(runs, name, latency).map(|behind| estimate(runs.len(), behind));
            goals.push(judged(goal, Some(name), measured, 1.0));
        }
    }
    let rate = |way: &str| {
        let is_it = |one: &&RoundTrips| one.way == way;
        Series::new(
            runs.iter()
                .map(|run| run.round_trips.iter().find(is_it).map(|one| one.round_trips_per_s)),
        )
    };
    let trips = "a futex's round trips with more threads than CPUs, against ours";
    goals.push(judge_ratio(runs, trips, None, rate("futex"), rate("idlewise"), 1.0 / 0.95));
    let cost = |call: &str, way: &str| {
        let is_it = |one: &&CallFigures| one.call == call && one.way == way;
        Series::new(runs.iter().map(|run| run.calls.iter().find(is_it).map(|one| one.cost_ns)))
    };
    for (goal, call, other, at_most) in [
        ("unpark and park of a ready token, against crossbeam's", READY_TOKEN, "crossbeam", 1.0),
        ("unpark of a set token, against crossbeam's", SET_TOKEN, "crossbeam", 1.0),
        (
            "an item through a channel of 1024, against std's sync_channel",
            CHANNEL_ITEM,
            "std sync_channel",
            1.2,
        ),
    ] {
        let (ours, theirs) = (cost(call, "idlewise"), cost(call, other));
        goals.push(judge_ratio(runs, goal, None, ours, theirs, at_most));
    }
    let measured =
        cost(READY_TOKEN, "idlewise").map(|cost| estimate(runs.len(), |drawn| cost.median(drawn)));
    goals.push(judged("unpark and park of a ready token, in ns", None, measured, 10.0));
    let timeouts = runs.first().into_iter().flat_map(|run| &run.timeouts);
    for one in timeouts.filter(|one| one.way == "idlewise") {
        let pattern = one.pattern.as_str();
        let cpu = |way: &str| {
            let is_it = |one: &&TimeoutFigures| one.pattern == pattern && one.way == way;
            let of_run = |run: &ParkRun| run.timeouts.iter().find(is_it).map(|one| one.cpu_ratio);
            Series::new(runs.iter().map(of_run))
        };
        let goal = "CPU time of waits that time out, against crossbeam's";
        goals.push(judge_ratio(runs, goal, Some(pattern), cpu("idlewise"), cpu("crossbeam"), 1.1));
    }
    goals
}

const FRONT_MEAN: &str = "behind the front of fixed spins, mean latency";
const FRONT_P50: &str = "behind the front of fixed spins, median latency";
const FRONT_P99: &str = "behind the front of fixed spins, 99th percentile";

/// A figure of a way to park.
pub(super) type Figure = fn(&ParkFigures) -> f64;

fn judge_ratio(
    runs: &[ParkRun],
    goal: &'static str,
    workload: Option<&str>,
    ours: Option<Series>,
    theirs: Option<Series>,
    at_most: f64,
) -> Goal {
    let measured = ours.zip(theirs).map(|(ours, theirs)| {
        estimate(runs.len(), |drawn| ours.median(drawn) / theirs.median(drawn))
    });
    judged(goal, workload, measured, at_most)
}

fn judged(
    goal: &'static str,
    workload: Option<&str>,
    measured: Option<(f64, Option<[f64; 2]>)>,
    at_most: f64,
) -> Goal {
    // Nothing divided by nothing is not a figure.
    let measured = measured.filter(|(measured, _)| measured.is_finite());
    let verdict = match measured {
        None => Verdict::NotMeasured,
        Some((_, Some([_, high]))) if high <= at_most => Verdict::Met,
        Some((_, Some([low, _]))) if low > at_most => Verdict::NotMet,
        Some(_) => Verdict::Undecided,
    };
    let interval = measured.and_then(|(_, interval)| interval);
    let measured = measured.map(|(measured, _)| measured);
    Goal { goal, workload: workload.map(str::to_owned), measured, interval, at_most, verdict }
}

fn figures(
    runs: &[ParkRun],
    workload: &str,
    is_it: impl Fn(&ParkFigures) -> bool,
    figure: Figure,
) -> Option<Series> {
    Series::new(runs.iter().map(|run| {
        let found = run.workloads.iter().find(|one| one.workload == workload)?;
        found.ways.iter().find(|one| is_it(one)).map(figure)
    }))
}

/// A way's figure on a workload, for each run; `None` if a run lacks it.
pub(super) fn of_way(
    runs: &[ParkRun],
    workload: &str,
    way: &str,
    figure: Figure,
) -> Option<Series> {
    figures(runs, workload, |one| one.way == way, figure)
}

fn of_role(runs: &[ParkRun], workload: &str, role: ParkRole, figure: Figure) -> Option<Series> {
    figures(runs, workload, |one| one.role == role, figure)
}

/// Our latency and CPU time divided by a fixed spin's, the smaller of the two ratios; of these, the
/// largest over all spins. Below 1, no spin is better than ours in both.
fn behind(
    runs: &[ParkRun],
    workload: &str,
    latency: Figure,
) -> Option<impl Fn(&[usize]) -> f64 + use<>> {
    let cpu: Figure = |one| one.cpu_ratio;
    let ours = of_role(runs, workload, ParkRole::Ours, latency)?;
    let ours_cpu = of_role(runs, workload, ParkRole::Ours, cpu)?;
    let found = runs.first()?.workloads.iter().find(|one| one.workload == workload)?;
    let spins = found.ways.iter().filter(|one| one.role == ParkRole::FixedSpin);
    let spins = spins.map(|spin| {
        let way = spin.way.as_str();
        of_way(runs, workload, way, latency).zip(of_way(runs, workload, way, cpu))
    });
    let spins = spins.collect::<Option<Vec<_>>>().filter(|spins| !spins.is_empty())?;
    Some(move |drawn: &[usize]| {
        let (ours, ours_cpu_ratio) = (ours.median(drawn), ours_cpu.median(drawn));
        let ratios = spins.iter().map(|(latency, cpu)| {
            let latency_ratio = ours / latency.median(drawn).max(1.0);
            latency_ratio.min(ours_cpu_ratio / cpu.median(drawn).max(f64::MIN_POSITIVE))
        });
        ratios.fold(0.0, f64::max)
    })
}

impl Goal {
    /// Returns the goal as a line of text.
    pub fn to_line(&self) -> String {
        let of = self.workload.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
        let interval = self
            .interval
            .map(|[low, high]| format!(", 95 % interval {low:.3} to {high:.3}"))
            .unwrap_or_default();
        let measured =
            self.measured.map_or("nothing".to_owned(), |measured| format!("{measured:.3}"));
        let (verdict, goal, at_most) = (self.verdict.as_str(), self.goal, self.at_most);
        format!("goal {verdict}: {of}{goal}: {measured}{interval} (at most {at_most:.3})")
    }

    /// Returns the goal for a JSON document.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "goal": self.goal,
            "workload": self.workload,
            "measured": self.measured,
            "interval": self.interval,
            "at_most": self.at_most,
            "verdict": self.verdict.as_str(),
        })
    }
}
