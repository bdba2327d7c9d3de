//! What a run did to the workload, and how near it is to the recording.

use std::collections::BTreeMap;

use super::durations::{Durations, Wait};
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
/// How far a task's steps and its running time may be apart before they tell different things, as a natural logarithm.
const SAME_WORK_MAX: f64 = 0.1;
/// Recordings that are so much alike in length were stopped after a time, as a natural logarithm.
const SAME_SPAN_MAX: f64 = 0.01;
/// Tasks with a smaller part of all wake-ups do not count.
const MAIN_PART_MIN: usize = 20;
/// See [`MISSING_WAKES_MAX`].
pub const WAKE_COUNT_ERROR_MAX: f64 = 0.05;
/// Of the percentiles of latencies and gaps.
pub const PERCENTILE_ERROR_MAX: f64 = 0.25;
/// A percentile is compared with recorded ones so far around it, as a share of what is above it.
const SHARE_RATIO: f64 = 0.1;
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

/// The wake-ups of each task.
fn waits<'a>(windows: &'a [Window], splits: &'a [Split]) -> impl Iterator<Item = (u32, Wait)> + 'a {
    let of_window = |window: &Window| {
        let took_ns = window.run_at_ns.saturating_sub(window.due_ns);
        (window.task, Wait { from_ns: window.due_ns, took_ns })
    };
    let woken = windows.iter().filter(|window| window.is_woken).map(of_window);
    splits.iter().map(|split| (split.task, split.wait)).chain(woken)
}

/// The geometric mean of ratios that count so often; 1 without any.
fn weighted_mean(ratios: impl Iterator<Item = (usize, f64)>) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for (times, ratio) in ratios.filter(|&(times, ratio)| times > 0 && ratio > 0.0) {
        sum += times as f64 * ratio.ln();
        count += times;
    }
    if count > 0 { (sum / count as f64).exp() } else { 1.0 }
}

fn in_order(mut waits: Vec<Wait>) -> Vec<Wait> {
    waits.sort_unstable();
    waits
}

/// How fast a task is, or several.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// When what makes its first step run came, and the end of its last step.
    begin_ns: u64,
    end_ns: u64,
    step_count: usize,
    wake_count: usize,
    /// How long its steps ran in the recording.
    run_ns: u64,
}

impl Pace {
    const NONE: Pace =
        Pace { begin_ns: u64::MAX, end_ns: 0, step_count: 0, wake_count: 0, run_ns: 0 };

    fn span_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Its steps and how long they ran, over those of another.
    fn work_over(&self, base: &Pace) -> [f64; 2] {
        let ratio = |of: u64, base: u64| of.max(1) as f64 / base.max(1) as f64;
        [ratio(self.step_count as u64, base.step_count as u64), ratio(self.run_ns, base.run_ns)]
    }

    fn and(self, other: &Pace) -> Self {
        Pace {
            begin_ns: self.begin_ns.min(other.begin_ns),
            end_ns: self.end_ns.max(other.end_ns),
            step_count: self.step_count + other.step_count,
            wake_count: self.wake_count + other.wake_count,
            run_ns: self.run_ns.saturating_add(other.run_ns),
        }
    }
}

/// How fast the tasks of one recording are beside those of another ([`Outcome::measured_throughput`]).
#[derive(Clone, Debug)]
pub struct MeasuredThroughput {
    /// 1.1 if 10 % faster; `None` if no task tells.
    pub ratio: Option<f64>,
    /// The names of tasks that do not tell, if they have a twentieth of the wake-ups at least; those with most come first.
    pub unclear: Vec<String>,
    /// Names of the base's tasks, with as many wake-ups, that did not run in the other recording.
    pub missing: Vec<String>,
}

/// What a run, or the recording, did to the workload.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each step; by task, then by time. Empty, as what follows by task, after [`Outcome::forget_steps`].
    pub windows: Vec<Window>,
    /// How many steps there are.
    pub step_count: usize,
    /// From the beginning to the end of the last step.
    pub makespan_ns: u64,
    /// The wake-to-run latencies of the steps that were woken, by task.
    pub by_task: BTreeMap<u32, Durations>,
    /// Wake-ups in the middle of steps.
    splits: Vec<Split>,
    /// The mean of all wake-to-run latencies; `None` without any.
    pub latency_mean_ns: Option<f64>,
    paces: BTreeMap<u32, Pace>,
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
        Ok(Self::with(windows, ledger.take_splits(), Some(report)).with_run_times(workload))
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
        Self::of(windows.collect(), None).with_run_times(workload)
    }

    fn with_run_times(mut self, workload: &CausedWorkload) -> Self {
        for step in &workload.steps {
            if let Some(pace) = self.paces.get_mut(&step.task) {
                pace.run_ns = pace.run_ns.saturating_add(step.run_ns);
            }
        }
        self
    }

    fn of(windows: Vec<Window>, report: Option<Report>) -> Self {
        Self::with(windows, Vec::new(), report)
    }

    /// Steps, and wake-ups in the middle of steps.
    fn with(windows: Vec<Window>, splits: Vec<Split>, report: Option<Report>) -> Self {
        let mut by_task: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (task, wait) in waits(&windows, &splits) {
            by_task.entry(task).or_default().push(wait.took_ns);
        }
        let mut paces: BTreeMap<u32, Pace> = BTreeMap::new();
        for window in &windows {
            let (begin_ns, end_ns) = (window.due_ns, window.end_ns);
            let of_step = Pace { begin_ns, end_ns, step_count: 1, ..Pace::NONE };
            let pace = paces.entry(window.task).or_insert(Pace::NONE);
            *pace = pace.and(&of_step);
        }
        for (task, pace) in &mut paces {
            pace.wake_count = by_task.get(task).map_or(0, Vec::len);
        }
        let of_tasks = || by_task.values().flatten();
        let (sum_ns, count) =
            (of_tasks().map(|&ns| u128::from(ns)).sum::<u128>(), of_tasks().count());
        Outcome {
            paces,
            latency_mean_ns: (count > 0).then(|| sum_ns as f64 / count as f64),
            step_count: windows.len(),
            makespan_ns: windows.iter().map(|window| window.end_ns).max().unwrap_or(0),
            by_task: by_task.into_iter().map(|(task, ns)| (task, Durations::new(ns))).collect(),
            windows,
            splits,
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

    /// The wake-to-run latencies of all steps that were woken.
    pub fn latencies(&self) -> Durations {
        Durations::together(self.by_task.values())
    }

    /// Gives up the single steps and wake-ups, which take more room than all else. What is summed up stays.
    pub fn forget_steps(&mut self) {
        self.windows = Vec::new();
        self.splits = Vec::new();
        self.by_task = BTreeMap::new();
    }

    /// How long the tasks that `is_meant` waited from each wake-up until they ran, in the order of the wake-ups.
    pub fn waits(&self, is_meant: &dyn Fn(u32) -> bool) -> Vec<Wait> {
        let all = waits(&self.windows, &self.splits);
        in_order(all.filter(|&(task, _)| is_meant(task)).map(|(_, wait)| wait).collect())
    }

    /// How long requests took ([`CausedWorkload::requests`]), in the order in which they were made.
    pub fn request_waits(&self, requests: &[(usize, usize)]) -> Vec<Wait> {
        let wait = |&(asks, answers): &(usize, usize)| {
            let from_ns = self.windows[asks].due_ns;
            Wait { from_ns, took_ns: self.windows[answers].end_ns.saturating_sub(from_ns) }
        };
        in_order(requests.iter().map(wait).collect())
    }

    /// How fast the tasks got through their steps, over how fast they did in `base`: 1.1 if 10 % faster. It is a mean of
    /// tasks, each of which counts by how often it was woken. The makespan does not tell: some timer of the kernel always fires at
    /// the end of a recording.
    pub fn throughput_ratio(&self, base: &Self) -> f64 {
        let ratio = |(task, of_base): (&u32, &Pace)| {
            let pace = self.paces.get(task).filter(|pace| pace.span_ns() > 0)?;
            let ratio = of_base.span_ns() as f64 / pace.span_ns() as f64;
            Some((of_base.wake_count, ratio))
        };
        weighted_mean(base.paces.iter().filter_map(ratio))
    }

    /// The same of two recordings, in which tasks have other numbers. If they are stopped after a time, they get more or less done in
    /// it; if they end when their work is done, they end earlier or later. Tasks of one name count as one, and tell how
    /// much they did by their steps and by how long they ran. Where these tell different things, steps serve more or fewer requests
    /// than before, or tasks wait by polling, and the name is left out. `names` has the names of this one's and the base's
    /// tasks.
    pub fn measured_throughput(
        &self,
        base: &Self,
        names: [&dyn Fn(u32) -> String; 2],
    ) -> MeasuredThroughput {
        let [paces, of_base] = [(self, names[0]), (base, names[1])].map(|(of, name)| {
            let mut paces: BTreeMap<String, Pace> = BTreeMap::new();
            for (&task, pace) in &of.paces {
                let of_name = paces.entry(name(task)).or_insert(Pace::NONE);
                *of_name = of_name.and(pace);
            }
            paces
        });
        let wake_count: usize = of_base.values().map(|pace| pace.wake_count).sum();
        let is_main =
            |pace: &Pace| pace.wake_count > 0 && pace.wake_count * MAIN_PART_MIN >= wake_count;
        let (mut clear, mut unclear, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        let (mut all, mut all_of_base) = (Pace::NONE, Pace::NONE);
        for (name, of_base) in of_base.iter().filter(|(_, pace)| is_main(pace)) {
            let Some(pace) = paces.get(name) else {
                missing.push(name.clone());
                continue;
            };
            (all, all_of_base) = (all.and(pace), all_of_base.and(of_base));
            let [steps, run] = pace.work_over(of_base);
            match (steps / run).ln().abs() <= SAME_WORK_MAX {
                true => clear.push((of_base.wake_count, (steps * run).sqrt())),
                false => unclear.push((of_base.wake_count, name.clone())),
            }
        }
        let faster = all_of_base.span_ns() as f64 / all.span_ns() as f64;
        let work = (!clear.is_empty()).then(|| weighted_mean(clear.into_iter()));
        let is_stopped = faster.ln().abs() < SAME_SPAN_MAX;
        let ratio = work.filter(|_| faster.is_finite()).map(|work| match work.ln().abs() {
            off if !is_stopped && off <= SAME_WORK_MAX => faster,
            _ => work * faster,
        });
        unclear.sort_unstable_by_key(|&(count, _)| std::cmp::Reverse(count));
        let unclear = unclear.into_iter().map(|(_, name)| name).collect();
        MeasuredThroughput { ratio, unclear, missing }
    }

    /// The share of their time in which tasks ran, weighted as in [`Outcome::throughput_ratio`].
    pub fn run_share(&self) -> f64 {
        let (mut sum, mut count) = (0.0, 0);
        for pace in self.paces.values().filter(|pace| pace.span_ns() > 0) {
            sum += pace.wake_count as f64 * pace.run_ns as f64 / pace.span_ns() as f64;
            count += pace.wake_count;
        }
        sum / count.max(1) as f64
    }

    /// How fast CPUs were while they ran, of their nominal speed: 1 without a power limit. `None` for the recording.
    pub fn mean_speed(&self) -> Option<f64> {
        self.report.as_ref().map(|report| report.cores.mean_frequency_ratio())
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
    /// No difference.
    const SAME: Likeness = Likeness { p50_ratio: 1.0, p99_ratio: 1.0, distance: 0.0 };

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

/// The recording, with which runs are compared.
pub struct Standard {
    recorded: Outcome,
    latencies: Durations,
    gaps: Durations,
}

impl Standard {
    /// Takes what the recording shows ([`Outcome::recorded`]).
    pub fn new(mut recorded: Outcome) -> Self {
        let (latencies, gaps) = (recorded.latencies(), recorded.gaps());
        recorded.forget_steps();
        Standard { recorded, latencies, gaps }
    }

    /// How many wake-ups it has.
    pub fn wake_count(&self) -> usize {
        self.latencies.count()
    }

    /// How many gaps it has ([`Outcome::gaps`]).
    pub fn gap_count(&self) -> usize {
        self.gaps.count()
    }

    /// Compares a run with the recording. The run must still have its steps.
    pub fn compare(&self, run: &Outcome) -> Reproduction {
        Reproduction {
            throughput_ratio: run.throughput_ratio(&self.recorded),
            gap: Likeness::new(&self.gaps, &run.gaps()),
            ..Reproduction::of_waits(&self.latencies, &run.latencies())
        }
    }
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
    /// Compares only wake-ups, such as those of one task: how many there are, and how long they took.
    pub fn of_waits(recorded: &Durations, run: &Durations) -> Self {
        Reproduction {
            throughput_ratio: 1.0,
            wake_count_ratio: match (run.count(), recorded.count()) {
                (ran, recorded) if ran == recorded => 1.0,
                (ran, recorded) => ran as f64 / recorded as f64,
            },
            latency: Likeness::new(recorded, run),
            gap: Likeness::SAME,
        }
    }

    /// Compares runs with the recording; see [`Reproduction::median`].
    pub fn new(recorded: &Outcome, runs: &[Outcome]) -> Self {
        let standard = Standard::new(recorded.clone());
        let all: Vec<Self> = runs.iter().map(|run| standard.compare(run)).collect();
        Self::median(&all)
    }

    /// The median of each figure, since that of a single run may be near the recording, or far from it, by chance.
    pub fn median(all: &[Self]) -> Self {
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
        let mut outcome = Outcome::of(busy.chain([step(2, 5), step(2, 1_000_000)]).collect(), None);
        for pace in outcome.paces.values_mut() {
            pace.run_ns = 100 * pace.step_count as u64;
        }
        outcome
    }

    /// Recordings end when the work is done, or after a time. Either way a task that takes half as long for a step is twice as
    /// fast, whatever its number.
    #[test]
    fn measured_throughput_is_that_of_the_same_work_or_of_the_same_time() {
        let base = outcome(100, 500);
        let name = |task: u32| if task == 1 { "busy" } else { "late" }.to_owned();
        let told = |of: &Outcome| of.measured_throughput(&base, [&name, &name]);
        let ratio = |of: &Outcome| told(of).ratio.unwrap();
        assert!((ratio(&base) - 1.0).abs() < 1e-12);
        for faster in [outcome(100, 250), outcome(200, 250)] {
            assert!((ratio(&faster) / 2.0 - 1.0).abs() < 0.01, "{}", ratio(&faster));
        }
        // Some steps merged, but the work took half as long.
        let merged = outcome(95, 263);
        assert!((ratio(&merged) / 2.0 - 1.0).abs() < 0.01, "{}", ratio(&merged));
        let renumbered = |task: u32| name(3 - task);
        let mut windows = outcome(200, 250).windows;
        windows.iter_mut().for_each(|window| window.task = 3 - window.task);
        let mut other = Outcome::of(windows, None);
        for (task, run_ns) in [(2, 20_000), (1, 200)] {
            other.paces.get_mut(&task).unwrap().run_ns = run_ns;
        }
        let ratio = other.measured_throughput(&base, [&renumbered, &name]).ratio.unwrap();
        assert!((ratio / 2.0 - 1.0).abs() < 0.01, "{ratio}");
        // Half as many steps, each of which serves two requests.
        let mut merged = outcome(50, 1_000);
        merged.paces.get_mut(&1).unwrap().run_ns *= 2;
        let MeasuredThroughput { ratio, unclear, missing } = told(&merged);
        assert_eq!((ratio, unclear, missing), (None, vec!["busy".to_owned()], vec![]));
        // Another workload.
        let stranger = |_: u32| "stranger".to_owned();
        let told = base.measured_throughput(&base, [&stranger, &name]);
        assert_eq!((told.ratio, told.missing), (None, vec!["busy".to_owned()]));
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
        let near = Likeness::SAME;
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
