//! What is predicted of a load's single tasks and of requests between them, and what came of that.

use idlewise_sim::predict::{Durations, Interval, Outcome, Reproduction, Vouched, Waited, around};

use super::{Figures, LATENCY_ERROR_MAX, Recorded, Row, ratio};

/// The percentiles of fewer waits are by chance.
const WAIT_COUNT_MIN: usize = 50;
/// Of each load those requests are judged of which there are most.
const REQUEST_KIND_COUNT: usize = 4;
/// As in `--request`.
const ARROW: &str = "->";

/// Tasks with one name, or requests from one name to another, under one change.
pub(super) struct Single {
    pub is_request: bool,
    /// What the run of the recorded setting vouches for, of these alone.
    pub vouched: Vouched,
    /// Whether p50 and p99 are as near as they should be.
    pub meets: [bool; 2],
    /// See [`super::Case::beyond`]; of p50 and p99.
    pub beyond: [f64; 2],
}

impl Single {
    /// Whether `predict` gives p50 and p99, if the run of the recorded setting vouches for `whole` of all tasks.
    pub fn is_given(&self, whole: &Vouched) -> [bool; 2] {
        [whole.middle && self.vouched.middle, whole.tail && self.vouched.tail]
    }
}

/// The same of a recording.
enum Of {
    Tasks(Vec<u32>),
    Requests(Vec<(usize, usize)>),
}

impl Of {
    fn new(recorded: &Recorded, name: &str) -> Self {
        let tasks = |name: &str| recorded.by_name.get(name).cloned().unwrap_or_default();
        match name.split_once(ARROW) {
            Some((asks, answers)) => {
                let [asks, answers] = [tasks(asks), tasks(answers)];
                let pairs = recorded
                    .workload
                    .requests(&|task| asks.contains(&task), &|task| answers.contains(&task));
                Of::Requests(pairs)
            }
            None => Of::Tasks(tasks(name)),
        }
    }

    fn waited(&self, run: &Outcome) -> Waited {
        Waited::new(&match self {
            Of::Tasks(tasks) => run.waits(&|task| tasks.contains(&task)),
            Of::Requests(pairs) => run.request_waits(pairs),
        })
    }
}

/// What a recording shows of each kind of tasks and of requests, as rows of `measured.csv`.
pub(super) fn rows(recorded: &Recorded, load: &str, setting: &str) -> Vec<String> {
    let run = Outcome::recorded(&recorded.workload);
    let row = |name: String| {
        let durations = Of::new(recorded, &name).waited(&run).durations;
        let row = Figures::new(recorded.span_ns(&run), &durations).row(load, setting, &name);
        (durations.count() >= WAIT_COUNT_MIN).then_some((durations.count(), row))
    };
    let names = || recorded.by_name.keys();
    let pairs = names().flat_map(|asks| names().map(move |answers| (asks, answers)));
    let pairs = pairs.filter(|(asks, answers)| asks != answers);
    let mut requests: Vec<(usize, String)> =
        pairs.filter_map(|(asks, answers)| row(format!("{asks}{ARROW}{answers}"))).collect();
    requests.sort_by_key(|&(count, _)| std::cmp::Reverse(count));
    requests.truncate(REQUEST_KIND_COUNT);
    let tasks = names().cloned().filter_map(row);
    tasks.chain(requests).map(|(_, row)| row).collect()
}

/// Judges each that was measured. `runs` are those of the recorded setting and of the change.
pub(super) fn judge(
    recorded: &Recorded,
    measured: &[Row],
    (load, setting): (&str, &str),
    [base_runs, runs]: [&[Outcome]; 2],
) -> Vec<Single> {
    let recorded_run = Outcome::recorded(&recorded.workload);
    let one = |(_, _, name, figures): &Row| {
        let of = Of::new(recorded, name);
        let shown = of.waited(&recorded_run).durations;
        let like = |run| Reproduction::of_waits(&shown, &of.waited(run).durations);
        let reproduction = Reproduction::median(&base_runs.iter().map(like).collect::<Vec<_>>());
        let played: Vec<Waited> = runs.iter().map(|run| of.waited(run)).collect();
        let predicted = Durations::together(played.iter().map(|waited| &waited.durations));
        let percentile = |share, interval: fn(&Waited) -> Option<Interval>, measured_ns| {
            let predicted_ns = predicted.at(share).unwrap_or(0);
            let meets = (ratio(predicted_ns, measured_ns) - 1.0).abs() <= LATENCY_ERROR_MAX;
            let within = around(predicted_ns as f64, played.iter().filter_map(interval));
            (meets, within.beyond(measured_ns as f64))
        };
        let p50 = percentile(0.5, |waited| waited.p50, figures.p50_ns);
        let p99 = percentile(0.99, |waited| waited.p99, figures.p99_ns);
        (shown.count() >= WAIT_COUNT_MIN).then(|| Single {
            is_request: name.contains(ARROW),
            vouched: reproduction.vouches(),
            meets: [p50.0, p99.0],
            beyond: [p50.1, p99.1],
        })
    };
    let of_case = measured
        .iter()
        .filter(|(of, under, task, _)| of == load && under == setting && !task.is_empty());
    of_case.filter_map(one).collect()
}
