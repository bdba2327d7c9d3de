//! What a run did to the workload, and how near it is to the recording.

use std::collections::BTreeMap;

use super::player::{Ledger, Split};
use super::{Arrival, CausedWorkload, PredictError};
use crate::simulate::Report;

/// The largest errors with which a recording is played (docs/prediction.md says what they were chosen by).
pub const THROUGHPUT_ERROR_MAX: f64 = 0.05;
/// Of the 99th percentile of latencies, which tells more than others whether tasks wait for the right ones.
pub const TAIL_ERROR_MAX: f64 = 0.13;
/// Of the number of wake-ups, for the high percentiles of their latencies. A task that serves two requests in one go in the run
/// and not in the recording changes little else, until it happens so often.
const MISSING_WAKES_MAX: f64 = 0.15;
/// See [`MISSING_WAKES_MAX`].
pub const WAKE_COUNT_ERROR_MAX: f64 = 0.05;
/// Of the percentiles of latencies and gaps.
pub const PERCENTILE_ERROR_MAX: f64 = 0.25;
/// A percentile is compared with recorded ones so far around it, as a share of what is above it.
const SHARE_RATIO: f64 = 0.1;
/// Durations that differ by no more than this count as equal in [`Durations::distance`].
pub const SAME_RATIO: f64 = 0.05;
/// The largest difference between two distributions.
pub const DISTANCE_MAX: f64 = 0.2;

/// When a step was due, got a CPU and ended, from the beginning of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The task.
    pub task: u32,
    /// The CPU where it first ran.
    pub cpu: u16,
    /// When what it waits for came.
    pub due_ns: u64,
    /// When it got a CPU, after the costs of the wake-up.
    pub run_at_ns: u64,
    /// When it waited again.
    pub end_ns: u64,
    /// Whether the task waited for it, so that this was a wake-up.
    pub is_woken: bool,
}

/// Durations of one kind, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    sorted_ns: Vec<u64>,
}

impl FromIterator<u64> for Durations {
    fn from_iter<I: IntoIterator<Item = u64>>(durations_ns: I) -> Self {
        Durations::new(durations_ns.into_iter().collect())
    }
}

impl Durations {
    fn new(mut durations_ns: Vec<u64>) -> Self {
        durations_ns.sort_unstable();
        Durations { sorted_ns: durations_ns }
    }

    /// All of several sets.
    pub fn together<'a>(sets: impl IntoIterator<Item = &'a Durations>) -> Self {
        Durations::new(sets.into_iter().flat_map(|set| set.sorted_ns.iter().copied()).collect())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sorted_ns.len()
    }

    /// The mean; `None` without any.
    pub fn mean_ns(&self) -> Option<f64> {
        let sum: u128 = self.sorted_ns.iter().map(|&ns| u128::from(ns)).sum();
        (!self.sorted_ns.is_empty()).then(|| sum as f64 / self.sorted_ns.len() as f64)
    }

    /// The smallest duration that at least this share does not exceed; `None` without any.
    pub fn at(&self, share: f64) -> Option<u64> {
        let rank = (share * self.sorted_ns.len() as f64).ceil() as usize;
        self.sorted_ns.get(rank.saturating_sub(1)).copied()
    }

    /// The largest difference between the shares of two sets that are at most some duration (the Kolmogorov-Smirnov
    /// statistic), 0 to 1. Durations within [`SAME_RATIO`] of each other count as equal: where most wake-ups take the
    /// same time, one nanosecond would otherwise make two distributions as different as can be.
    pub fn distance(&self, other: &Durations) -> f64 {
        self.excess(other).max(other.excess(self))
    }

    /// The largest share by which more durations of this set than of the other are at most some duration.
    fn excess(&self, other: &Durations) -> f64 {
        let counts = [self, other].map(|of| of.sorted_ns.len().max(1) as f64);
        let mut distance: f64 = 0.0;
        let mut theirs = 0;
        let last_of_each = self.sorted_ns.chunk_by(|a, b| a == b).scan(0, |mine, same| {
            *mine += same.len();
            Some((*mine, same[0]))
        });
        for (mine, ns) in last_of_each {
            let as_much_ns = ns.saturating_add((ns as f64 * SAME_RATIO) as u64);
            theirs += other.sorted_ns[theirs..].partition_point(|&other| other <= as_much_ns);
            distance = distance.max(mine as f64 / counts[0] - theirs as f64 / counts[1]);
        }
        distance
    }
}

/// What a run, or the recording, did to the workload.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each step; by task, then by time.
    pub windows: Vec<Window>,
    /// From the beginning to the end of the last step.
    pub makespan_ns: u64,
    /// The wake-to-run latencies of all steps that were woken.
    pub latencies: Durations,
    /// The same by task.
    pub by_task: BTreeMap<u32, Durations>,
    /// From what makes a task's first step run to the end of its last step.
    spans_ns: BTreeMap<u32, u64>,
    /// What the machine counted; `None` for the recording.
    pub report: Option<Report>,
}

impl Outcome {
    pub(super) fn new(
        workload: &CausedWorkload,
        ledger: &Ledger,
        report: Report,
    ) -> Result<Self, PredictError> {
        let windows: Vec<Window> = workload
            .steps
            .iter()
            .enumerate()
            .filter_map(|(id, step)| {
                let [due_ns, run_at_ns, end_ns] = ledger.times(id)?;
                let is_woken = step.arrival != Arrival::AtOnce && ledger.is_woken(id);
                let cpu = ledger.cpu(id);
                Some(Window { task: step.task, cpu, due_ns, run_at_ns, end_ns, is_woken })
            })
            .collect();
        let missing_count = workload.steps.len() - windows.len();
        if missing_count > 0 {
            return Err(PredictError::Circular { count: missing_count });
        }
        Ok(Self::with(windows, &ledger.take_splits(), Some(report)))
    }

    /// What the recording itself shows.
    pub fn recorded(workload: &CausedWorkload) -> Self {
        let windows = workload.steps.iter().map(|step| Window {
            task: step.task,
            cpu: step.cpu,
            due_ns: step.due_ns,
            run_at_ns: step.recorded_run_at_ns,
            end_ns: step.recorded_end_ns,
            is_woken: step.arrival != Arrival::AtOnce,
        });
        Self::of(windows.collect(), None)
    }

    fn of(windows: Vec<Window>, report: Option<Report>) -> Self {
        Self::with(windows, &[], report)
    }

    /// Steps, and wake-ups in the middle of steps.
    fn with(windows: Vec<Window>, splits: &[Split], report: Option<Report>) -> Self {
        let mut by_task: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for split in splits {
            by_task.entry(split.task).or_default().push(split.latency_ns);
        }
        for window in windows.iter().filter(|window| window.is_woken) {
            let latency_ns = window.run_at_ns.saturating_sub(window.due_ns);
            by_task.entry(window.task).or_default().push(latency_ns);
        }
        let all = by_task.values().flatten().copied().collect();
        let mut spans_ns: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for window in &windows {
            let (begin_ns, end_ns) = spans_ns.entry(window.task).or_insert((u64::MAX, 0));
            *begin_ns = window.due_ns.min(*begin_ns);
            *end_ns = window.end_ns.max(*end_ns);
        }
        let spans_ns =
            spans_ns.into_iter().map(|(task, (begin, end))| (task, end - begin)).collect();
        Outcome {
            spans_ns,
            makespan_ns: windows.iter().map(|window| window.end_ns).max().unwrap_or(0),
            latencies: Durations::new(all),
            by_task: by_task.into_iter().map(|(task, ns)| (task, Durations::new(ns))).collect(),
            windows,
            report,
        }
    }

    /// How long CPUs had nothing to do: from the end of the last step on a CPU until what makes the next one run.
    /// Interrupts that wake nobody do not count, in the recording as in a run.
    pub fn gaps(&self) -> Durations {
        let mut windows: Vec<&Window> = self.windows.iter().collect();
        windows.sort_unstable_by_key(|window| (window.cpu, window.run_at_ns));
        let mut gaps_ns = Vec::new();
        for of_cpu in windows.chunk_by(|a, b| a.cpu == b.cpu) {
            let mut busy_until_ns = of_cpu[0].end_ns;
            for window in &of_cpu[1..] {
                gaps_ns.extend(window.due_ns.checked_sub(busy_until_ns).filter(|&ns| ns > 0));
                busy_until_ns = busy_until_ns.max(window.end_ns);
            }
        }
        Durations::new(gaps_ns)
    }

    /// How long requests took ([`CausedWorkload::requests`]).
    pub fn request_latencies(&self, requests: &[(usize, usize)]) -> Durations {
        let latency_ns = |&(asks, answers): &(usize, usize)| {
            self.windows[answers].end_ns.saturating_sub(self.windows[asks].due_ns)
        };
        Durations::new(requests.iter().map(latency_ns).collect())
    }

    /// How fast the tasks got through their steps, over how fast they did in `base`: 1.1 if 10 % faster. It is a mean of
    /// tasks, each of which counts by how often it was woken. The makespan does not tell: some timer of the kernel always fires at
    /// the end of a recording.
    pub fn throughput_ratio(&self, base: &Self) -> f64 {
        let mut sum = 0.0;
        let mut wake_count = 0.0;
        for (task, latencies) in &base.by_task {
            let span_ns = |of: &Self| of.spans_ns.get(task).copied().filter(|&ns| ns > 0);
            if let (Some(base_ns), Some(ns)) = (span_ns(base), span_ns(self)) {
                sum += latencies.count() as f64 * (base_ns as f64 / ns as f64).ln();
                wake_count += latencies.count() as f64;
            }
        }
        if wake_count > 0.0 { (sum / wake_count).exp() } else { 1.0 }
    }

    /// The energy of the run; `None` for the recording.
    pub fn energy_uj(&self) -> Option<f64> {
        self.report.as_ref().map(|report| report.cores.energy_uj())
    }
}

/// How near the durations of a run are to the recorded ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likeness {
    /// The run's median over the recorded one, or over the nearest recorded duration between the 45th and the 55th
    /// percentile: if half of the wake-ups take 20 µs and half 35 µs, the median is either by chance.
    pub p50_ratio: f64,
    /// The same of the 99th percentile, and of what is between 98.9 and 99.1.
    pub p99_ratio: f64,
    /// The largest difference between the two distributions (Kolmogorov-Smirnov), 0 to 1.
    pub distance: f64,
}

impl Likeness {
    fn new(recorded: &Durations, run: &Durations) -> Self {
        let ratio = |share: f64| {
            let around = (1.0 - share) * SHARE_RATIO;
            let near = [share - around, share + around].map(|share| recorded.at(share));
            match (run.at(share), near) {
                (Some(run_ns), [Some(low_ns), Some(high_ns)]) => {
                    let recorded_ns = run_ns.clamp(low_ns, high_ns);
                    if run_ns == recorded_ns { 1.0 } else { run_ns as f64 / recorded_ns as f64 }
                }
                (None, [None, None]) => 1.0,
                _ => f64::INFINITY,
            }
        };
        Likeness { p50_ratio: ratio(0.5), p99_ratio: ratio(0.99), distance: recorded.distance(run) }
    }
}

/// How near runs with the recorded governor and states are to the recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reproduction {
    /// How fast the runs' tasks got through their steps ([`Outcome::throughput_ratio`]).
    pub throughput_ratio: f64,
    /// The number of wake-ups. A step that finds what it waits for is none.
    pub wake_count_ratio: f64,
    /// The wake-to-run latencies.
    pub latency: Likeness,
    /// How long CPUs had nothing to do ([`Outcome::gaps`]).
    pub gap: Likeness,
}

/// Which predicted figures a [`Reproduction`] vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The throughput and median latencies. Without these it vouches for nothing.
    pub middle: bool,
    /// The mean and the high percentiles of latencies.
    pub tail: bool,
    /// What CPUs did while they had nothing to do, and the energy that it took.
    pub idle: bool,
}

/// A figure of a [`Reproduction`] that is too far from the recorded one.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Miss {
    /// Its name.
    pub name: &'static str,
    rests: Rests,
    /// How far it is: the ratio less 1, or the distance.
    pub error: f64,
    /// How far it may be.
    pub error_max: f64,
}

/// What rests on a figure of a reproduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rests {
    Everything,
    Tail,
    TailAndIdle,
}

impl Reproduction {
    /// Compares runs with the recording. Each figure is the median of the runs', since a single one may be near the
    /// recording, or far from it, by chance.
    pub fn new(recorded: &Outcome, runs: &[Outcome]) -> Self {
        let gaps = recorded.gaps();
        let all: Vec<Self> = runs.iter().map(|run| Self::of_run(recorded, &gaps, run)).collect();
        let median = |figure: &dyn Fn(&Self) -> f64| {
            let mut figures: Vec<f64> = all.iter().map(figure).collect();
            figures.sort_unstable_by(f64::total_cmp);
            if figures.is_empty() {
                return 1.0;
            }
            f64::midpoint(figures[(figures.len() - 1) / 2], figures[figures.len() / 2])
        };
        let likeness = |of: &dyn Fn(&Self) -> Likeness| Likeness {
            p50_ratio: median(&|run| of(run).p50_ratio),
            p99_ratio: median(&|run| of(run).p99_ratio),
            distance: median(&|run| of(run).distance),
        };
        Reproduction {
            throughput_ratio: median(&|run| run.throughput_ratio),
            wake_count_ratio: median(&|run| run.wake_count_ratio),
            latency: likeness(&|run| run.latency),
            gap: likeness(&|run| run.gap),
        }
    }

    fn of_run(recorded: &Outcome, recorded_gaps: &Durations, run: &Outcome) -> Self {
        Reproduction {
            throughput_ratio: run.throughput_ratio(recorded),
            wake_count_ratio: match [run, recorded].map(|of| of.latencies.count()) {
                [ran, recorded] if ran == recorded => 1.0,
                [ran, recorded] => ran as f64 / recorded as f64,
            },
            latency: Likeness::new(&recorded.latencies, &run.latencies),
            gap: Likeness::new(recorded_gaps, &run.gaps()),
        }
    }

    /// Each figure with what rests on it, its error and the largest error that it may have. Where played gaps are others
    /// than the recorded ones because tasks wait for each other, throughput and medians were right, and high percentiles
    /// were not.
    fn errors(&self) -> [(&'static str, Rests, f64, f64); 8] {
        use Rests::{Everything, Tail, TailAndIdle};
        let Reproduction { throughput_ratio, wake_count_ratio, latency, gap } = self;
        let (rests_on_wakes, wakes_max) = match (wake_count_ratio - 1.0).abs() > MISSING_WAKES_MAX {
            true => (Everything, MISSING_WAKES_MAX),
            false => (Tail, WAKE_COUNT_ERROR_MAX),
        };
        [
            ("throughput", Everything, throughput_ratio - 1.0, THROUGHPUT_ERROR_MAX),
            ("wake-ups", rests_on_wakes, wake_count_ratio - 1.0, wakes_max),
            ("wake-to-run latency p50", Everything, latency.p50_ratio - 1.0, PERCENTILE_ERROR_MAX),
            ("wake-to-run latency p99", Tail, latency.p99_ratio - 1.0, TAIL_ERROR_MAX),
            ("wake-to-run latency KS", Everything, latency.distance, DISTANCE_MAX),
            ("gap p50", TailAndIdle, gap.p50_ratio - 1.0, PERCENTILE_ERROR_MAX),
            ("gap p99", TailAndIdle, gap.p99_ratio - 1.0, PERCENTILE_ERROR_MAX),
            ("gap KS", TailAndIdle, gap.distance, DISTANCE_MAX),
        ]
    }

    /// The largest error of throughput, the number of wake-ups and percentiles.
    pub fn error_max(&self) -> f64 {
        let Reproduction { throughput_ratio, wake_count_ratio, latency, gap } = self;
        let ratios =
            [*wake_count_ratio, latency.p50_ratio, latency.p99_ratio, gap.p50_ratio, gap.p99_ratio];
        ratios.iter().chain([throughput_ratio]).map(|r| (r - 1.0).abs()).fold(0.0, f64::max)
    }

    /// The figures that are too far from the recorded ones for a prediction to mean something.
    pub fn misses(&self) -> Vec<Miss> {
        let errors = self.errors().into_iter();
        let misses = errors.filter(|(.., error, error_max)| error.abs() > *error_max);
        let miss = |(name, rests, error, error_max)| Miss { name, rests, error, error_max };
        misses.map(miss).collect()
    }

    /// Why figures can't be predicted: all [misses](Self::misses), but where nothing can be predicted only those that say so.
    pub fn reasons(&self) -> Vec<Miss> {
        let mut reasons = self.misses();
        let is_decisive = |miss: &Miss| miss.rests == Rests::Everything;
        if reasons.iter().any(is_decisive) {
            reasons.retain(is_decisive);
        }
        reasons
    }

    /// The predicted figures that rest on none of the [misses](Self::misses).
    pub fn vouches(&self) -> Vouched {
        let misses = self.misses();
        let holds = |rests| misses.iter().all(|miss| miss.rests != rests);
        let middle = holds(Rests::Everything);
        let idle = middle && holds(Rests::TailAndIdle);
        Vouched { middle, tail: idle && holds(Rests::Tail), idle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(of: impl IntoIterator<Item = u64>) -> Durations {
        Durations::new(of.into_iter().collect())
    }

    /// A task that is woken `count` times, every `interval_ns`, and another that fires once, at the end.
    fn outcome(count: u64, interval_ns: u64) -> Outcome {
        let step = |task, due_ns| Window {
            task,
            cpu: 0,
            due_ns,
            run_at_ns: due_ns,
            end_ns: due_ns + 1,
            is_woken: true,
        };
        let busy = (0..count).map(|k| step(1, k * interval_ns));
        Outcome::of(busy.chain([step(2, 5), step(2, 1_000_000)]).collect(), None)
    }

    /// A server that finds its work ready too often reproduces all else.
    #[test]
    fn wake_ups_that_are_missing_are_a_miss() {
        let recorded = outcome(100, 500);
        let missed = |ready_count: usize| {
            let mut windows = recorded.windows.clone();
            windows.iter_mut().take(ready_count).for_each(|window| window.is_woken = false);
            let reproduction = Reproduction::new(&recorded, &[Outcome::of(windows, None)]);
            let Vouched { middle, tail, idle: _ } = reproduction.vouches();
            let misses = reproduction.reasons();
            (misses.iter().map(|miss| miss.name).collect::<Vec<_>>(), middle, tail)
        };
        assert_eq!(missed(4), (vec![], true, true));
        assert_eq!(missed(8), (vec!["wake-ups"], true, false));
        assert_eq!(missed(20), (vec!["wake-ups"], false, false));
    }

    #[test]
    fn a_miss_takes_only_what_rests_on_it() {
        let near = Likeness { p50_ratio: 1.0, p99_ratio: 1.0, distance: 0.0 };
        let all =
            Reproduction { throughput_ratio: 1.0, wake_count_ratio: 1.0, latency: near, gap: near };
        let [far_p50, far_p99] =
            [Likeness { p50_ratio: 1.5, ..near }, Likeness { p99_ratio: 1.5, ..near }];
        let far_tail = Likeness { p99_ratio: 1.2, ..near };
        for (reproduction, middle, tail, idle) in [
            (all, true, true, true),
            (Reproduction { latency: far_p99, ..all }, true, false, true),
            (Reproduction { gap: far_p50, ..all }, true, false, false),
            (Reproduction { latency: far_p50, ..all }, false, false, false),
            (Reproduction { wake_count_ratio: 0.9, ..all }, true, false, true),
            (Reproduction { wake_count_ratio: 0.8, ..all }, false, false, false),
            (Reproduction { latency: far_tail, ..all }, true, false, true),
            (Reproduction { throughput_ratio: 1.1, ..all }, false, false, false),
        ] {
            assert_eq!(reproduction.vouches(), Vouched { middle, tail, idle }, "{reproduction:?}");
        }
    }

    #[test]
    fn a_timer_at_the_end_hides_no_change_of_throughput() {
        let (base, faster, slower) = (outcome(998, 500), outcome(998, 400), outcome(998, 800));
        assert_eq!([base.makespan_ns, faster.makespan_ns], [1_000_001; 2]);
        assert_eq!(base.throughput_ratio(&base), 1.0);
        assert!((faster.throughput_ratio(&base) - 1.25).abs() < 0.01);
        assert!((slower.throughput_ratio(&base) - 0.625).abs() < 0.01);
        let reproduction = Reproduction::new(&base, &[slower]);
        assert_eq!(reproduction.misses()[0].name, "throughput");
        let [miss] = reproduction.reasons()[..] else { panic!("{reproduction:?}") };
        assert_eq!(miss.name, "throughput", "that the tail is off too does not matter");
        assert_eq!(outcome(0, 0).throughput_ratio(&base), 1.0);
    }

    #[test]
    fn the_distance_is_the_largest_difference_of_shares() {
        let (some, none) = (durations([100, 200, 300, 400]), Durations::default());
        assert_eq!(some.distance(&some), 0.0);
        assert_eq!(some.distance(&none), 1.0);
        // Half of them take twice as long.
        assert_eq!(some.distance(&durations([100, 200, 600, 800])), 0.5);
        assert_eq!(durations([100, 200, 600, 800]).distance(&some), 0.5);
        // Within 5 %, they are equal.
        assert_eq!(some.distance(&durations([103, 196, 310, 389])), 0.0);
        assert_eq!(some.distance(&durations([106, 196, 310, 389])), 0.25);
    }

    #[test]
    fn a_median_between_two_modes_may_be_either() {
        let modes = |low| (0..1_000).map(move |n| if n < low { 20 } else { 35 });
        let recorded = durations(modes(501));
        let like = |run| Likeness::new(&recorded, &durations(run));
        assert_eq!(like(modes(499)).p50_ratio, 1.0);
        assert_eq!(like(modes(400)).p50_ratio, 1.0);
        assert!(like(modes(400)).distance > 0.1);
        let higher = Likeness::new(&recorded, &durations(modes(501).map(|ns| 2 * ns)));
        assert_eq!((higher.p50_ratio, higher.p99_ratio), (40.0 / 35.0, 2.0));
    }
}
