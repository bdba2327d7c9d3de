//! The output of a prediction: what another setting would do to a workload.

use idlewise_sim::Basis;
use idlewise_sim::predict::{Durations, Likeness, Miss, Outcome, Reproduction, Vouched};

use crate::columns::GOVERNOR;
use crate::verdict::percent_change;
use crate::{Column, Heading, Priority, Table};

/// A change against the recorded setting: the mean over replicates, the lowest and the highest, as ratios (0.1 is
/// 10 % more).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    mean: f64,
    low: f64,
    high: f64,
}

impl Change {
    /// Compares replicates with those of the recorded setting that have the same seeds; `None` without any, or if a
    /// base is 0.
    pub fn of(values: &[f64], bases: &[f64]) -> Option<Self> {
        let changes: Vec<f64> =
            values.iter().zip(bases).map(|(value, base)| value / base - 1.0).collect();
        if changes.is_empty() || changes.iter().any(|change| !change.is_finite()) {
            return None;
        }
        Some(Change {
            mean: changes.iter().sum::<f64>() / changes.len() as f64,
            low: changes.iter().copied().fold(f64::INFINITY, f64::min),
            high: changes.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// `+1.3 % (+0.9 to +1.6)`, without the range where replicates agree, and with what else is in the parentheses.
    fn words(self, more: Option<&str>) -> String {
        let [mean, low, high] =
            [self.mean, self.low, self.high].map(|ratio| format!("{:+.1}", ratio * 100.0));
        let range = (low != high).then(|| format!("{low} to {high}"));
        let aside: Vec<&str> = range.as_deref().into_iter().chain(more).collect();
        match aside.is_empty() {
            true => format!("{mean} %"),
            false => format!("{mean} % ({})", aside.join(", ")),
        }
    }
}

/// What a setting does to the whole workload.
#[derive(Clone, Debug)]
pub struct PredictedRun {
    governor: String,
    step_count: usize,
    makespan_ns: f64,
    throughput: Option<Change>,
    latency_ns: Option<f64>,
    latency: Option<Change>,
    energy_uj: Option<f64>,
    energy: Option<Change>,
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl PredictedRun {
    /// Sums replicates up. `bases` are the replicates of the recorded setting; empty for that itself.
    pub fn new(governor: &str, outcomes: &[Outcome], bases: &[Outcome]) -> Self {
        let all = |of: &[Outcome], get: fn(&Outcome) -> Option<f64>| -> Vec<f64> {
            of.iter().filter_map(get).collect()
        };
        let both = |get| (all(outcomes, get), all(bases, get));
        let makespans = all(outcomes, |outcome| Some(outcome.makespan_ns as f64));
        let throughput_ratios: Vec<f64> =
            outcomes.iter().zip(bases).map(|(run, base)| run.throughput_ratio(base)).collect();
        let (latencies, base_latencies) = both(|outcome| outcome.latencies.mean_ns());
        let (energies, base_energies) = both(Outcome::energy_uj);
        PredictedRun {
            governor: governor.to_owned(),
            step_count: outcomes.first().map_or(0, |outcome| outcome.windows.len()),
            makespan_ns: mean(&makespans).unwrap_or(0.0),
            throughput: Change::of(&throughput_ratios, &vec![1.0; throughput_ratios.len()]),
            latency_ns: mean(&latencies),
            latency: Change::of(&latencies, &base_latencies),
            energy_uj: mean(&energies),
            energy: Change::of(&energies, &base_energies),
        }
    }

    /// Leaves out what a reproduction does not vouch for.
    pub fn only(self, vouched: Vouched) -> Self {
        let Vouched { tail, idle, .. } = vouched;
        PredictedRun {
            latency_ns: self.latency_ns.filter(|_| tail),
            latency: self.latency.filter(|_| tail),
            energy_uj: self.energy_uj.filter(|_| idle),
            energy: self.energy.filter(|_| idle),
            ..self
        }
    }

    /// Whether it does exactly what the recorded setting does.
    fn is_unchanged(&self) -> bool {
        let changes = [self.throughput, self.latency, self.energy];
        changes
            .into_iter()
            .all(|change| change.is_none_or(|Change { low, high, .. }| low == 0.0 && high == 0.0))
    }
}

/// What each setting changes, a sentence each; the first run is the recorded one, and settings that change nothing come
/// last. `elsewhere` is the machine of the others, if it is not the recorded one.
pub fn verdicts(runs: &[PredictedRun], powers: Basis, elsewhere: Option<&str>) -> Vec<String> {
    let on = elsewhere.map_or_else(String::new, |machine| format!(" on {machine}"));
    let sentence = |run: &PredictedRun| {
        if run.is_unchanged() {
            return format!("With {}{on}: no change.", run.governor);
        }
        let powers = format!("{} power", powers.as_str());
        let parts = [
            ("throughput", run.throughput.map(|change| change.words(None))),
            ("mean latency", run.latency.map(|change| change.words(None))),
            ("energy", run.energy.map(|change| change.words(Some(&powers)))),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter_map(|(of, change)| Some(format!("{of} {}", change?)))
            .collect();
        format!("With {}{on}: {}.", run.governor, parts.join(", "))
    };
    let mut runs: Vec<&PredictedRun> = runs.iter().skip(1).collect();
    runs.sort_by_key(|run| run.is_unchanged());
    runs.into_iter().map(sentence).collect()
}

/// What a setting does to the wake-ups of the tasks with one name.
#[derive(Clone, Debug)]
pub struct PredictedTask {
    governor: String,
    task: String,
    latencies: Durations,
    change: Option<Change>,
    has_tail: bool,
}

impl PredictedTask {
    /// Takes a task's latencies of all replicates together, and those of the recorded setting.
    pub fn new(governor: &str, task: &str, replicates: &[Durations], bases: &[Durations]) -> Self {
        let means =
            |of: &[Durations]| -> Vec<f64> { of.iter().filter_map(Durations::mean_ns).collect() };
        PredictedTask {
            governor: governor.to_owned(),
            task: task.to_owned(),
            latencies: Durations::together(replicates),
            change: Change::of(&means(replicates), &means(bases)),
            has_tail: true,
        }
    }

    /// Leaves out what a reproduction does not vouch for.
    pub fn only(self, vouched: Vouched) -> Self {
        let has_tail = vouched.tail;
        PredictedTask { change: self.change.filter(|_| has_tail), has_tail, ..self }
    }

    fn mean_ns(&self) -> Option<f64> {
        self.latencies.mean_ns().filter(|_| self.has_tail)
    }

    fn at(&self, share: f64) -> Option<f64> {
        let is_given = self.has_tail || share <= 0.5;
        self.latencies.at(share).filter(|_| is_given).map(|ns| ns as f64)
    }
}

const TASK: Heading = Heading::text(
    "task",
    "task",
    "The tasks' name; `all` for all of them; `A→B` for requests, which last from the event \
         that wakes A until B has answered.",
)
.priority(Priority::Key);

/// Returns the columns of the table of settings.
pub fn run_columns() -> Vec<Column<PredictedRun>> {
    type C = Column<PredictedRun>;
    vec![
        C::new(GOVERNOR, |row| row.governor.as_str().into()),
        C::ratio("throughput_change_ratio", "throughput change", |row| {
            row.throughput.map(|change| change.mean).into()
        })
        .means(
            "How much faster tasks got through their steps than under the recorded setting, \
             weighted by wake-ups: 0.1 is 10 % faster. Low and high are the extremes of the \
             replicates.",
        ),
        C::ratio("throughput_change_low_ratio", "lowest", |row| {
            row.throughput.map(|change| change.low).into()
        })
        .means("Lowest of a replicate.")
        .detail(),
        C::ratio("throughput_change_high_ratio", "highest", |row| {
            row.throughput.map(|change| change.high).into()
        })
        .means("Highest of a replicate.")
        .detail(),
        C::ns("latency_mean_ns", "latency mean", |row| row.latency_ns.into())
            .means("Mean time from the event that wakes a task until the task runs.")
            .lower_is_better(),
        C::ratio("latency_change_ratio", "latency change", |row| {
            row.latency.map(|change| change.mean).into()
        })
        .means(
            "Its change from the recorded setting. Low and high are the extremes of the \
             replicates.",
        ),
        C::ratio("latency_change_low_ratio", "lowest", |row| {
            row.latency.map(|change| change.low).into()
        })
        .means("Lowest of a replicate.")
        .detail(),
        C::ratio("latency_change_high_ratio", "highest", |row| {
            row.latency.map(|change| change.high).into()
        })
        .means("Highest of a replicate.")
        .detail(),
        C::uj("energy_uj", "energy", |row| row.energy_uj.into())
            .means("Energy of all cores and packages.")
            .lower_is_better(),
        C::ratio("energy_change_ratio", "energy change", |row| {
            row.energy.map(|change| change.mean).into()
        })
        .means(
            "Its change from the recorded setting. Low and high are the extremes of the \
             replicates.",
        ),
        C::ratio("energy_change_low_ratio", "lowest", |row| {
            row.energy.map(|change| change.low).into()
        })
        .means("Lowest of a replicate.")
        .detail(),
        C::ratio("energy_change_high_ratio", "highest", |row| {
            row.energy.map(|change| change.high).into()
        })
        .means("Highest of a replicate.")
        .detail(),
        C::ns("makespan_ns", "makespan", |row| row.makespan_ns.into())
            .means(
                "From the beginning to the end of the last step, mean over replicates. Some timer of the kernel \
                 always fires at the end, so it says little; see the throughput.",
            )
            .detail(),
        C::count("step_count", "steps", |row| (row.step_count as u64).into())
            .means("Steps of all tasks in a replicate.")
            .detail(),
    ]
}

/// Returns the columns of the table of tasks.
pub fn task_columns() -> Vec<Column<PredictedTask>> {
    type C = Column<PredictedTask>;
    vec![
        C::new(GOVERNOR, |row| row.governor.as_str().into()),
        C::new(TASK, |row| row.task.as_str().into()),
        C::count("wake_count", "wakes", |row| (row.latencies.count() as u64).into())
            .means("Wake-ups of all replicates together."),
        C::ns("latency_mean_ns", "latency mean", |row| row.mean_ns().into())
            .means("Mean time from the event that wakes a task until the task runs.")
            .lower_is_better(),
        C::ns("latency_p50_ns", "p50", |row| row.at(0.5).into())
            .means("The median of these times.")
            .lower_is_better(),
        C::ns("latency_p99_ns", "p99", |row| row.at(0.99).into())
            .means("Their 99th percentile.")
            .lower_is_better(),
        C::ns("latency_p999_ns", "p99.9", |row| row.at(0.999).into())
            .means("Their 99.9th percentile.")
            .lower_is_better(),
        C::ratio("latency_change_ratio", "mean change", |row| {
            row.change.map(|change| change.mean).into()
        })
        .means(
            "The mean's change from the recorded setting: 0.1 is 10 % longer. Low and high are the \
             extremes of the replicates.",
        ),
        C::ratio("latency_change_low_ratio", "lowest", |row| {
            row.change.map(|change| change.low).into()
        })
        .means("Lowest of a replicate.")
        .detail(),
        C::ratio("latency_change_high_ratio", "highest", |row| {
            row.change.map(|change| change.high).into()
        })
        .means("Highest of a replicate.")
        .detail(),
    ]
}

/// Returns a row for each setting.
pub fn run_table(title: &str, runs: &[PredictedRun]) -> Table {
    Table::new(title, &run_columns(), runs)
}

/// Returns a row for each setting and task.
pub fn task_table(tasks: &[PredictedTask]) -> Table {
    Table::new("", &task_columns(), tasks).unranked()
}

/// Says how near a run with the recorded setting is to the recording.
pub fn reproduction_text(reproduction: &Reproduction) -> String {
    let percent = |ratio: f64| match percent_change(1.0, ratio) {
        0.0 => "0.0 %".to_owned(),
        percent if percent.is_finite() => format!("{percent:+.1} %"),
        _ => "unknown".to_owned(),
    };
    let like = |likeness: &Likeness| {
        let Likeness { p50_ratio, p99_ratio, distance } = *likeness;
        format!("p50 {}, p99 {}, KS {distance:.2}", percent(p50_ratio), percent(p99_ratio))
    };
    let Reproduction { throughput_ratio, wake_count_ratio, latency, gap } = reproduction;
    format!(
        "throughput {}; wake-ups {}; wake-to-run latency {}; idle gaps {}",
        percent(*throughput_ratio),
        percent(*wake_count_ratio),
        like(latency),
        like(gap),
    )
}

/// Says which figures are not predicted, and why; `None` if all are.
pub fn withheld_text(reproduction: &Reproduction) -> Option<String> {
    let Vouched { tail, idle, .. } = reproduction.vouches();
    let withheld = match (tail, idle) {
        (true, true) => return None,
        (_, true) => "mean, p99 and p99.9 of latencies",
        (_, false) => "energy, and mean, p99 and p99.9 of latencies",
    };
    let misses = misses_text(&reproduction.misses());
    Some(format!(
        "Not predicted, as the recording does not reproduce itself there: {withheld} ({misses})."
    ))
}

/// Says in which figures it is not near enough.
pub fn misses_text(misses: &[Miss]) -> String {
    let one = |miss: &Miss| match miss.name.ends_with("KS") {
        true => format!("{} {:.2}, more than {}", miss.name, miss.error, miss.error_max),
        false if miss.error.is_infinite() => format!("{}: 0 or absent in the recording", miss.name),
        false => {
            let (error, error_max) = (100.0 * miss.error, 100.0 * miss.error_max);
            format!("{} {error:+.1} %, more than {error_max:.0} %", miss.name)
        }
    };
    misses.iter().map(one).collect::<Vec<_>>().join("; ")
}
