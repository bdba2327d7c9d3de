//! The output of a prediction: what another setting would do to a workload.

use idlewise_sim::predict::{
    Durations, Interval, Likeness, MARGINS, Margin, MeasuredThroughput, Miss, Outcome,
    Reproduction, Vouched, Waited, around,
};
use idlewise_sim::{Basis, CostModel};

use crate::columns::GOVERNOR;
use crate::verdict::{PercentRange, percent_change};
use crate::{Column, Heading, Priority, Table};

/// A change against the recorded setting, as a ratio (0.1 is 10 % more), and within what it is. Of throughput and energy, that is
/// where nine in ten measured values are to be expected; of all else, the lowest and highest of the replicates, which
/// only differ in when ticks come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    mean: f64,
    low: f64,
    high: f64,
}

impl Change {
    /// Compares replicates with those of the recorded setting that have the same seeds: their means, and the lowest and
    /// highest of two with one seed. `None` without any, or if a base is 0.
    pub fn of(values: &[f64], bases: &[f64]) -> Option<Self> {
        let changes = values.iter().zip(bases).map(|(value, base)| value / base - 1.0);
        let changes: Vec<f64> = changes.collect();
        if changes.is_empty() || changes.iter().any(|change| !change.is_finite()) {
            return None;
        }
        Some(Change {
            mean: mean(values)? / mean(bases)? - 1.0,
            low: changes.iter().copied().fold(f64::INFINITY, f64::min),
            high: changes.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }

    fn is_none(self) -> bool {
        self.low == 0.0 && self.high == 0.0
    }

    fn widened(self, margin: f64) -> Self {
        let replicates = Interval { low: 1.0 + self.low, high: 1.0 + self.high };
        let Interval { low, high } = replicates.widened(margin);
        Change { low: low - 1.0, high: high - 1.0, ..self }
    }

    fn percent(ratio: f64) -> String {
        format!("{:+.1}", ratio * 100.0)
    }

    /// `+1.3 % (-2.0 to +4.6)`.
    fn with_range(self) -> String {
        let [mean, low, high] = [self.mean, self.low, self.high].map(Self::percent);
        format!("{mean} % ({low} to {high})")
    }
}

/// What a setting does to the whole workload.
#[derive(Clone, Debug)]
pub struct PredictedRun {
    governor: String,
    step_count: usize,
    makespan_ns: f64,
    /// The replicates do exactly what those of the recorded setting do.
    is_same: bool,
    throughput: Option<Change>,
    latency_ns: Option<f64>,
    latency: Option<Change>,
    energy_uj: Option<f64>,
    energy: Option<Change>,
    /// The change of energy under all powers that the machine may have; `None` if they are known.
    energy_under_all: Option<PercentRange>,
    /// With a power limit.
    speed: Option<Change>,
    /// The share of their time in which tasks run.
    run_share: f64,
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl PredictedRun {
    /// Sums replicates up. `bases` are the replicates of the recorded setting; empty for that itself. `costs` are those of the
    /// machine of both, if CPUs have one speed.
    pub fn new(
        governor: &str,
        outcomes: &[Outcome],
        bases: &[Outcome],
        costs: Option<&CostModel>,
    ) -> Self {
        let all = |of: &[Outcome], get: fn(&Outcome) -> Option<f64>| -> Vec<f64> {
            of.iter().filter_map(get).collect()
        };
        let both = |get| (all(outcomes, get), all(bases, get));
        let makespans = all(outcomes, |outcome| Some(outcome.makespan_ns as f64));
        let throughput_ratios: Vec<f64> =
            outcomes.iter().zip(bases).map(|(run, base)| run.throughput_ratio(base)).collect();
        let throughput = Change::of(&throughput_ratios, &vec![1.0; throughput_ratios.len()]);
        let (latencies, base_latencies) = both(|outcome| outcome.latency_mean_ns);
        let (energies, base_energies) = both(Outcome::energy_uj);
        let (speeds, base_speeds) = both(Outcome::mean_speed);
        let has_limit = speeds.iter().chain(&base_speeds).any(|&speed| speed != 1.0);
        let latency = Change::of(&latencies, &base_latencies);
        let energy = Change::of(&energies, &base_energies);
        PredictedRun {
            governor: governor.to_owned(),
            step_count: outcomes.first().map_or(0, |outcome| outcome.step_count),
            makespan_ns: mean(&makespans).unwrap_or(0.0),
            is_same: [throughput, latency, energy].into_iter().flatten().all(Change::is_none),
            throughput: throughput.map(|change| change.widened(MARGINS.throughput)),
            latency_ns: mean(&latencies),
            latency,
            energy_uj: mean(&energies),
            energy: energy.map(|change| change.widened(MARGINS.energy)),
            energy_under_all: costs.and_then(|costs| energy_under_all(costs, outcomes, bases)),
            speed: Change::of(&speeds, &base_speeds).filter(|_| has_limit),
            run_share: mean(&all(outcomes, |outcome| Some(outcome.run_share()))).unwrap_or(0.0),
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
            energy_under_all: self.energy_under_all.filter(|_| idle),
            ..self
        }
    }

    /// If tasks get more done at more energy, which other CPUs may then lack: at how much less frequency, as a share, the
    /// gain is lost. With its name.
    pub fn flips_at(&self) -> Option<(&str, f64)> {
        let gain = self.throughput?.mean;
        let costs_energy = self.energy.is_some_and(|energy| energy.mean > 0.0);
        let slower = 1.0 + gain / self.run_share;
        let counts = gain >= MARGINS.throughput && costs_energy && slower.is_finite();
        counts.then_some((&self.governor, 1.0 - 1.0 / slower))
    }
}

/// Within what the energy of runs is above that of others under all powers that the machine may have, widened as the change under
/// the assumed ones is. `None` if the powers are known, or if its promotion enters states in another way than `costs` count.
fn energy_under_all(
    costs: &CostModel,
    runs: &[Outcome],
    bases: &[Outcome],
) -> Option<PercentRange> {
    const SAME_RATIO: f64 = 1e-3;
    let with = |of: &[Outcome], costs: &CostModel| -> Vec<f64> {
        let cores = of.iter().filter_map(|run| Some(&run.report.as_ref()?.cores));
        cores.map(|cores| cores.energy_with_uj(costs)).collect()
    };
    let is_same = |of: &[Outcome]| {
        let energies = of.iter().filter_map(Outcome::energy_uj).zip(with(of, costs));
        energies.into_iter().all(|(uj, counted_uj)| (counted_uj / uj - 1.0).abs() < SAME_RATIO)
    };
    if costs.corners().is_empty() || !is_same(runs) || !is_same(bases) {
        return None;
    }
    let change = |costs: &CostModel| {
        let change = Change::of(&with(runs, costs), &with(bases, costs))?;
        let change = if change.is_none() { change } else { change.widened(MARGINS.energy) };
        Some([change.low, change.high].map(|ratio| 100.0 * ratio))
    };
    PercentRange::of(costs.with_corners().filter_map(change).flatten())
}

/// What each setting changes, a sentence each; the first run is the recorded one, and settings that change nothing come
/// last. `elsewhere` is the machine of the others, if it is not the recorded one.
pub fn verdicts(runs: &[PredictedRun], powers: Basis, elsewhere: Option<&str>) -> Vec<String> {
    let on = elsewhere.map_or_else(String::new, |machine| format!(" on {machine}"));
    let sentence = |run: &PredictedRun| {
        if run.is_same {
            return format!("With {}{on}: no change.", run.governor);
        }
        let mean = |change: Change| format!("{} %", Change::percent(change.mean));
        let powers = |change: Change| {
            let [low, high] = [change.low, change.high].map(Change::percent);
            format!("{} ({low} to {high}, {} power)", mean(change), powers.as_str())
        };
        let parts = [
            ("throughput", run.throughput.map(Change::with_range)),
            ("mean latency", run.latency.map(mean)),
            ("energy", run.energy.map(powers)),
            ("frequency", run.speed.map(mean)),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter_map(|(of, change)| Some(format!("{of} {}", change?)))
            .collect();
        let order = run.energy_under_all.and_then(PercentRange::change_in_words);
        let order = order.map_or_else(String::new, |words| format!(" {words}."));
        format!("With {}{on}: {}.{order}", run.governor, parts.join(", "))
    };
    let mut runs: Vec<&PredictedRun> = runs.iter().skip(1).collect();
    runs.sort_by_key(|run| run.is_same);
    runs.into_iter().map(sentence).collect()
}

/// The name of the row of all tasks.
pub const ALL_TASKS: &str = "all";

/// A percentile of wake-to-run latencies, and within what it is to be expected.
#[derive(Clone, Copy, Debug)]
struct Percentile {
    ns: f64,
    /// `None` where no kernel's runs have shown how far the model is off.
    interval: Option<Interval>,
}

impl Percentile {
    /// Within nothing.
    fn bare(ns: u64) -> Self {
        Percentile { ns: ns as f64, interval: None }
    }
}

/// What a setting does to the wake-ups of the tasks with one name.
#[derive(Clone, Debug)]
pub struct PredictedTask {
    governor: String,
    task: String,
    wake_count: usize,
    mean_ns: Option<f64>,
    p50: Option<Percentile>,
    p99: Option<Percentile>,
    p999: Option<Percentile>,
    /// Of the mean, as a ratio.
    change: Option<f64>,
}

impl PredictedTask {
    /// Takes a task's latencies of all replicates together. `base` is the recorded setting's row, but for that itself.
    /// `margin` is that of `MARGINS` for what it is.
    pub fn new(
        governor: &str,
        task: &str,
        replicates: &[Waited],
        base: Option<&Self>,
        margin: Margin,
    ) -> Self {
        let all = Durations::together(replicates.iter().map(|waited| &waited.durations));
        let percentile = |share: f64, of: fn(&Waited) -> Option<Interval>, margin: f64| {
            let ns = all.at(share)? as f64;
            let interval = around(ns, replicates.iter().filter_map(of)).widened(margin);
            Some(Percentile { ns, interval: Some(interval) })
        };
        let mean_ns = all.mean_ns();
        let change = base.and_then(|base| Some(mean_ns? / base.mean_ns? - 1.0));
        PredictedTask {
            governor: governor.to_owned(),
            task: task.to_owned(),
            wake_count: all.count(),
            mean_ns,
            p50: percentile(0.5, |waited| waited.p50, margin.p50),
            p99: percentile(0.99, |waited| waited.p99, margin.p99),
            p999: all.at(0.999).map(Percentile::bare),
            change: change.filter(|change| change.is_finite()),
        }
    }

    /// Leaves out what a reproduction does not vouch for.
    pub fn only(self, vouched: Vouched) -> Self {
        let Vouched { middle: has_middle, tail: has_tail, .. } = vouched;
        PredictedTask {
            p50: self.p50.filter(|_| has_middle),
            mean_ns: self.mean_ns.filter(|_| has_tail),
            p99: self.p99.filter(|_| has_tail),
            p999: self.p999.filter(|_| has_tail),
            change: self.change.filter(|_| has_tail),
            ..self
        }
    }
}

const BY_TICKS: &str =
    "The lowest and the highest change of a replicate. Replicates only differ in when ticks come.";

const ALL_POWERS: &str = "Within what nine in ten measured changes are to be expected under all powers that the machine may \
                          have: those with its break-even times, and a running core that draws half to twice what is assumed.";

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
             weighted by wake-ups: 0.1 is 10 % faster. Nine in ten measured values are to be \
             expected from low to high.",
        ),
        C::ratio("throughput_change_low_ratio", "from", |row| {
            row.throughput.map(|change| change.low).into()
        })
        .means("Nine in ten measured values are to be expected from here.")
        .detail(),
        C::ratio("throughput_change_high_ratio", "to", |row| {
            row.throughput.map(|change| change.high).into()
        })
        .means("Nine in ten measured values are to be expected up to here.")
        .detail(),
        C::ns("latency_mean_ns", "latency mean", |row| row.latency_ns.into())
            .means("Mean time from the event that wakes a task until the task runs.")
            .lower_is_better(),
        C::ratio("latency_change_ratio", "latency change", |row| {
            row.latency.map(|change| change.mean).into()
        })
        .means("Its change from the recorded setting."),
        C::uj("energy_uj", "energy", |row| row.energy_uj.into())
            .means("Energy of all cores and packages.")
            .lower_is_better(),
        C::ratio("energy_change_ratio", "energy change", |row| {
            row.energy.map(|change| change.mean).into()
        })
        .means(
            "Its change from the recorded setting. Nine in ten measured values are to be expected \
             from low to high, if the assumed powers are the machine's.",
        ),
        C::ratio("energy_change_low_ratio", "from", |row| row.energy.map(|of| of.low).into())
            .means("Nine in ten measured values are to be expected from here.")
            .detail(),
        C::ratio("energy_change_high_ratio", "to", |row| row.energy.map(|of| of.high).into())
            .means("Nine in ten measured values are to be expected up to here.")
            .detail(),
        C::ratio("frequency_change_ratio", "frequency change", |row| {
            row.speed.map(|change| change.mean).into()
        })
        .means(
            "With a power limit: the change of the mean frequency of running CPUs from the recorded \
             setting.",
        )
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
        C::ratio("latency_change_tick_low_ratio", "latency tick low", |row| {
            row.latency.map(|change| change.low).into()
        })
        .means(BY_TICKS)
        .detail(),
        C::ratio("latency_change_tick_high_ratio", "latency tick high", |row| {
            row.latency.map(|change| change.high).into()
        })
        .means(BY_TICKS)
        .detail(),
        C::ratio("energy_change_least_ratio", "energy least", |row| {
            row.energy_under_all.map(|range| range.low / 100.0).into()
        })
        .means(ALL_POWERS)
        .detail(),
        C::ratio("energy_change_most_ratio", "energy most", |row| {
            row.energy_under_all.map(|range| range.high / 100.0).into()
        })
        .means(ALL_POWERS)
        .detail(),
    ]
}

/// Returns the columns of the table of tasks.
pub fn task_columns() -> Vec<Column<PredictedTask>> {
    type C = Column<PredictedTask>;
    vec![
        C::new(GOVERNOR, |row| row.governor.as_str().into()),
        C::new(TASK, |row| row.task.as_str().into()),
        C::count("wake_count", "wakes", |row| (row.wake_count as u64).into())
            .means("Wake-ups of all replicates together."),
        C::ns("latency_mean_ns", "latency mean", |row| row.mean_ns.into())
            .means(
                "Mean time from the event that wakes a task until the task runs, and percentiles of these \
                 times. Nine in ten measured values are to be expected from low to high.",
            )
            .lower_is_better(),
        C::ns("latency_p50_ns", "p50", |row| row.p50.map(|of| of.ns).into())
            .means("The median of these times.")
            .lower_is_better(),
        C::ns("latency_p50_low_ns", "p50 from", |row| low(row.p50).into())
            .means("Nine in ten measured medians are to be expected from here.")
            .detail(),
        C::ns("latency_p50_high_ns", "p50 to", |row| high(row.p50).into())
            .means("Nine in ten measured medians are to be expected up to here.")
            .detail(),
        C::ns("latency_p99_ns", "p99", |row| row.p99.map(|of| of.ns).into())
            .means("Their 99th percentile.")
            .lower_is_better(),
        C::ns("latency_p99_low_ns", "p99 from", |row| low(row.p99).into())
            .means(
                "Nine in ten measured 99th percentiles are to be expected from here.",
            )
            .detail(),
        C::ns("latency_p99_high_ns", "p99 to", |row| high(row.p99).into())
            .means("Nine in ten measured 99th percentiles are to be expected up to here.")
            .detail(),
        C::ns("latency_p999_ns", "p99.9", |row| row.p999.map(|of| of.ns).into())
            .means("Their 99.9th percentile.")
            .lower_is_better(),
        C::ratio("latency_change_ratio", "mean change", |row| row.change.into())
        .means("The mean's change from the recorded setting: 0.1 is 10 % longer."),
    ]
}

fn low(of: Option<Percentile>) -> Option<f64> {
    of?.interval.map(|interval| interval.low)
}

fn high(of: Option<Percentile>) -> Option<f64> {
    of?.interval.map(|interval| interval.high)
}

/// What one measured run of a predicted setting shows.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Against the recording.
    pub throughput: MeasuredThroughput,
    /// How long what is shown waited, by the name of its row: all tasks, single ones, or requests.
    pub waited: Vec<(String, Waited)>,
}

/// A predicted figure beside the measured one.
#[derive(Clone, Debug)]
pub struct Checked {
    figure: String,
    unit: CheckedUnit,
    predicted: f64,
    /// `None` where `predict` gives no range.
    interval: Option<Interval>,
    /// `None` if the recordings do not tell.
    measured: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckedUnit {
    ChangeRatio,
    Ns,
}

impl CheckedUnit {
    fn text(self) -> &'static str {
        match self {
            CheckedUnit::ChangeRatio => "% change",
            CheckedUnit::Ns => "us",
        }
    }
}

impl Checked {
    /// The predicted figures of one setting of which there are measured ones: `run` is its row, and `tasks` are its rows
    /// of tasks and requests.
    pub fn figures(run: &PredictedRun, tasks: &[PredictedTask], measured: &Measured) -> Vec<Self> {
        let throughput = run.throughput.map(|change| Checked {
            figure: "throughput".to_owned(),
            unit: CheckedUnit::ChangeRatio,
            predicted: change.mean,
            interval: Some(Interval { low: change.low, high: change.high }),
            measured: measured.throughput.ratio.map(|ratio| ratio - 1.0),
        });
        let of_row = |(name, waited): &(String, Waited)| {
            let is_meant = |row: &&PredictedTask| row.governor == run.governor && row.task == *name;
            let row = tasks.iter().find(is_meant)?;
            let percentile = |figure: &str, of: Option<Percentile>, share| {
                let Percentile { ns: predicted, interval } = of?;
                let figure = match name.as_str() {
                    ALL_TASKS => figure.to_owned(),
                    _ => format!("{figure} of {name}"),
                };
                let measured = waited.durations.at(share).map(|ns| ns as f64);
                Some(Checked { figure, unit: CheckedUnit::Ns, predicted, interval, measured })
            };
            let p50 = percentile("median latency", row.p50, 0.5);
            Some([p50, percentile("p99 latency", row.p99, 0.99)])
        };
        let of_rows = measured.waited.iter().filter_map(of_row).flatten();
        std::iter::once(throughput).chain(of_rows).flatten().collect()
    }

    /// Whether the measured figure is where nine in ten are to be expected; `None` if one of the two is missing.
    pub fn is_within(&self) -> Option<bool> {
        let Interval { low, high } = self.interval?;
        self.measured.map(|measured| low <= measured && measured <= high)
    }

    fn text(&self, of: f64) -> String {
        match self.unit {
            CheckedUnit::ChangeRatio => Change::percent(of),
            CheckedUnit::Ns => format!("{:.1}", of / 1e3),
        }
    }

    /// For `--json`.
    pub fn json(&self) -> serde_json::Value {
        let unit = match self.unit {
            CheckedUnit::ChangeRatio => "ratio",
            CheckedUnit::Ns => "ns",
        };
        serde_json::json!({
            "figure": self.figure,
            "unit": unit,
            "predicted": self.predicted,
            "low": self.interval.map(|interval| interval.low),
            "high": self.interval.map(|interval| interval.high),
            "measured": self.measured,
            "is_within": self.is_within(),
        })
    }
}

/// Predicted beside measured figures, a row each. Each has its own unit, so they are texts.
pub fn checked_table(title: &str, figures: &[Checked]) -> Table {
    type C = Column<Checked>;
    const FIGURE: Heading = Heading::text("figure", "figure", "").priority(Priority::Key);
    let text = |heading| Heading::text("", heading, "");
    let key = |heading| text(heading).priority(Priority::Key);
    fn none() -> String {
        "-".to_owned()
    }
    let columns = [
        C::new(FIGURE, |row| row.figure.as_str().into()),
        C::new(text("unit"), |row| row.unit.text().into()),
        C::new(key("predicted"), |row| row.text(row.predicted).into()),
        C::new(text("nine in ten within"), |row| {
            let range = |of: Interval| format!("{} to {}", row.text(of.low), row.text(of.high));
            row.interval.map_or_else(none, range).into()
        }),
        C::new(key("measured"), |row| {
            row.measured.map_or_else(none, |measured| row.text(measured)).into()
        }),
        C::new(key("is"), |row| match row.is_within() {
            Some(true) => "within".into(),
            Some(false) => "outside".into(),
            None => none().into(),
        }),
    ];
    Table::new(title, &columns, figures)
}

/// Returns a row for each setting.
pub fn run_table(title: &str, runs: &[PredictedRun]) -> Table {
    Table::new(title, &run_columns(), runs)
}

/// Returns a row for each setting and task.
pub fn task_table(tasks: &[PredictedTask]) -> Table {
    Table::new("", &task_columns(), tasks).unranked()
}

/// Says which tasks do not tell how much they got done in a measured run; `None` if all do.
pub fn unclear_text(throughput: &MeasuredThroughput) -> Option<String> {
    let (tasks, left_out) = match (&*throughput.unclear.join(", "), throughput.ratio) {
        ("", Some(_)) => return None,
        ("", None) => {
            return Some(
                "Measured throughput: no task of this name ran in both recordings.".to_owned(),
            );
        }
        (names, Some(_)) => (names.to_owned(), "left out of the measured throughput"),
        (names, None) => (names.to_owned(), "so the throughput was not measured"),
    };
    Some(format!(
        "The steps of {tasks} run so much longer or shorter than before that they serve more or fewer requests: {left_out}. \
         What the command itself counts tells more."
    ))
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

/// Says of which tasks and requests figures are left out; `None` if of none.
pub fn not_reproduced_text(tasks: &[(&str, Reproduction)]) -> Option<String> {
    let names = |has_middle: bool| -> Option<String> {
        let those = tasks.iter().filter(|(_, off)| off.vouches().middle == has_middle);
        let names: Vec<&str> = those.map(|(task, _)| *task).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let tails = names(true).map(|names| format!("mean, p99 and p99.9 of {names}"));
    let parts: Vec<String> = names(false).into_iter().chain(tails).collect();
    let why = "Left out of single rows, as the recording does not reproduce them (--json says by how much)";
    (!parts.is_empty()).then(|| format!("{why}: {}.", parts.join("; ")))
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
