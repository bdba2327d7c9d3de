//! What is made of a measurement: a line for each way to park, the goals, a page and plots.
//!
//! | file | holds |
//! | --- | --- |
//! | `result.rs` | [`ParkResult`]: everything that was measured, in the form that is saved |
//! | `goals.rs` | [`judge`]: the verdict on every goal |
//! | `page.rs` | [`to_markdown`]: docs/park/measured.md |
//! | `plot.rs` | [`to_svg`]: latency against CPU time |

mod goals;
mod page;
mod plot;
mod result;

use goals::{Figure, of_way};
pub use goals::{Goal, Verdict, judge};
pub use page::{plot_name, to_markdown};
pub use plot::to_svg;
pub use result::{
    CallFigures, MwaitxFinding, ParkFigures, ParkResult, ParkRole, ParkRun, ParkSettings,
    ParkWorkload, RESULT_SCHEMA, RoundTrips, TimeoutFigures,
};

use idlewise_report::columns::{Better, Heading, Priority, Unit};
use idlewise_report::saved::{BetterValue, Block, MachineFact, SavedSeries, SeriesUnit, Statistic};
pub use idlewise_report::statistics::RUN_COUNT_MIN;
use idlewise_report::statistics::median;
use idlewise_report::{Column, Notes, Table, TextStyle, Value, wrap};
use idlewise_sim::Basis;

const WAY: Heading =
    Heading::text("way", "way", "How the waiter waits and is woken.").priority(Priority::Key);
const CPU: Heading = Heading::number(
    "cpu_ratio",
    "CPU",
    Unit::Ratio,
    "CPU time of the waiter as a share of elapsed time; measured.",
)
.better(Better::Lower);

const CALL: Heading = Heading::text("call", "call", "What is called, or how often waits end.")
    .priority(Priority::Key);

/// A way to park on a workload, over all runs.
pub struct Way<'a> {
    result: &'a ParkResult,
    workload: &'a str,
    way: &'a str,
}

impl Way<'_> {
    fn median(&self, figure: Figure) -> Value {
        let runs = self.result.runs.as_slice();
        let all: Vec<usize> = (0..runs.len()).collect();
        of_way(runs, self.workload, self.way, figure).map(|series| series.median(&all)).into()
    }
}

/// The round trips of a way to park, and those of a futex.
pub struct RoundTripRate<'a> {
    way: &'a str,
    per_s: f64,
    futex_per_s: f64,
}

/// The call, the way to park, and the median of its figure.
pub type Median<'a> = ([&'a str; 2], f64);

/// Returns the columns of ways to wait.
pub fn way_columns<'a>() -> Vec<Column<Way<'a>>> {
    type C<'a> = Column<Way<'a>>;
    vec![
        C::new(WAY, |row| row.way.into()),
        C::ns("wake_latency_p50_ns", "wake p50", |row| row.median(|one| one.wake_latency_p50_ns))
            .means(
                "Median time from when a wake was due to the waiter's next instruction; measured. \
                 All figures here are medians over the runs.",
            )
            .lower_is_better(),
        C::ns("wake_latency_mean_ns", "wake mean", |row| {
            row.median(|one| one.wake_latency_mean_ns)
        })
        .means(
            "Mean of the 99 % shortest wake latencies, so that the machine's other users do not \
             count.",
        )
        .lower_is_better(),
        C::ns("wake_latency_p99_ns", "wake p99", |row| row.median(|one| one.wake_latency_p99_ns))
            .means("99th percentile of the same.")
            .lower_is_better(),
        C::ns("wake_latency_p999_ns", "wake p99.9", |row| {
            row.median(|one| one.wake_latency_p999_ns)
        })
        .means("99.9th percentile of the same.")
        .lower_is_better(),
        C::ns("send_cost_p50_ns", "send p50", |row| row.median(|one| one.send_cost_p50_ns))
            .means("Median time that waking took the waker, reading the clock included; measured.")
            .lower_is_better(),
        C::new(CPU, |row| row.median(|one| one.cpu_ratio)),
        C::count("switches_per_wake", "switches per wake", |row| {
            row.median(|one| one.switches_per_wake)
        })
        .means("Context switches of the waiter for each wake; measured.")
        .detail(),
    ]
}

/// Returns the columns of round trips.
pub fn round_trip_columns<'a>() -> Vec<Column<RoundTripRate<'a>>> {
    type C<'a> = Column<RoundTripRate<'a>>;
    vec![
        C::new(WAY, |row| row.way.into()),
        C::per_s("round_trips_per_s", "round trips", |row| row.per_s.into())
            .means(
                "Round trips a second of all pairs of threads, two pairs for each CPU; measured.",
            )
            .higher_is_better(),
        C::ratio("against_futex_ratio", "of futex's", |row| (row.per_s / row.futex_per_s).into())
            .means("The same as a share of a futex's in the same run.")
            .higher_is_better(),
    ]
}

/// Returns the columns of calls that do not wait.
pub fn call_columns<'a>() -> Vec<Column<Median<'a>>> {
    type C<'a> = Column<Median<'a>>;
    vec![
        C::new(CALL, |row| row.0[0].into()),
        C::new(WAY, |row| row.0[1].into()),
        C::ns("cost_ns", "cost", |row| row.1.into())
            .means("Time of a call where nobody waits; measured.")
            .lower_is_better(),
    ]
}

/// Returns the columns of waits that time out.
pub fn timeout_columns<'a>() -> Vec<Column<Median<'a>>> {
    type C<'a> = Column<Median<'a>>;
    vec![
        C::new(CALL, |row| row.0[0].into()),
        C::new(WAY, |row| row.0[1].into()),
        C::new(CPU, |row| row.1.into()),
    ]
}

/// A line for each way to park on a workload.
fn workload_table(result: &ParkResult, workload: &ParkWorkload) -> Table {
    let ParkWorkload { workload, ways, .. } = workload;
    let (run_count, wake_count) = (result.runs.len(), result.settings.wake_count);
    let title = format!("{workload}: {run_count} times {wake_count} wakes of each, measured");
    let ways = ways.iter().map(|one| Way { result, workload, way: &one.way });
    Table::new(title, &way_columns(), ways)
}

/// The median over the runs for each name, in the first run's order.
fn medians<'a, Item: 'a>(
    result: &'a ParkResult,
    items: fn(&ParkRun) -> &[Item],
    name: fn(&Item) -> [&str; 2],
    figure: fn(&Item) -> f64,
) -> Vec<Median<'a>> {
    let first = result.runs.first().into_iter().flat_map(items);
    first
        .filter_map(|one| {
            let key = name(one);
            let of_run = |run| items(run).iter().find(|one| name(one) == key).map(figure);
            Some((key, median(result.runs.iter().filter_map(of_run))?))
        })
        .collect()
}

fn round_trips(result: &ParkResult) -> Vec<Median<'_>> {
    medians(
        result,
        |run| &run.round_trips,
        |one| [one.way.as_str(), ""],
        |one| one.round_trips_per_s,
    )
}

fn calls(result: &ParkResult) -> Vec<Median<'_>> {
    medians(result, |run| &run.calls, |one| [&one.call, &one.way], |one| one.cost_ns)
}

fn timeouts(result: &ParkResult) -> Vec<Median<'_>> {
    medians(result, |run| &run.timeouts, |one| [&one.pattern, &one.way], |one| one.cpu_ratio)
}

/// Returns everything as text: tables, goals, machine, doubts.
pub fn to_text(result: &ParkResult, style: &TextStyle) -> String {
    let goals = judge(result);
    let mut text = String::new();
    let mut table = |table: Table, of: Option<&str>| {
        text.push_str(&table.to_text(style));
        for goal in goals.iter().filter(|goal| of.is_some() && goal.workload.as_deref() == of) {
            text.push_str(&wrap(&goal.to_line(), style.width, 2));
            text.push('\n');
        }
        text.push('\n');
    };
    for workload in result.workloads() {
        table(workload_table(result, workload), Some(&workload.workload));
    }
    let rates = round_trips(result);
    if let Some((_, futex_per_s)) = rates.iter().find(|(name, _)| name[0] == "futex") {
        let title = "Round trips, two pairs of threads for each CPU, measured";
        let rates = rates.iter().map(|&([way, _], per_s)| RoundTripRate {
            way,
            per_s,
            futex_per_s: *futex_per_s,
        });
        table(Table::new(title, &round_trip_columns(), rates), None);
    }
    for (title, columns, figures) in [
        ("Calls that wait for nobody, measured", call_columns(), calls(result)),
        ("Waits that end by their timeout, measured", timeout_columns(), timeouts(result)),
    ] {
        table(Table::new(title, &columns, figures).unranked(), None);
    }
    let is_workload = |name: &str| result.workloads().any(|one| one.workload == name);
    let of_no_workload =
        goals.iter().filter(|goal| !goal.workload.as_deref().is_some_and(is_workload));
    let mut lines: Vec<String> = of_no_workload.map(Goal::to_line).collect();
    if let Some(finding) = &result.mwaitx {
        lines.push(format!("MWAITX: {}", finding.to_sentence()));
    }
    let ParkSettings { seed, .. } = result.settings;
    lines.push(format!("seed {seed}; the next run has the next number"));
    for MachineFact { fact, value } in &result.machine {
        lines.push(format!("{fact}: {}", value.as_deref().unwrap_or("not shown")));
    }
    lines.extend(result.doubts.iter().map(|doubt| format!("doubt: {}", doubt.doubt)));
    lines.push(summary(&goals));
    for line in lines {
        text.push_str(&wrap(&line, style.width, 2));
        text.push('\n');
    }
    text
}

/// How many goals have each verdict, the worst first.
fn summary(goals: &[Goal]) -> String {
    let count = |verdict| goals.iter().filter(|goal| goal.verdict == verdict).count();
    let verdicts = [Verdict::NotMet, Verdict::NotMeasured, Verdict::Undecided, Verdict::Met];
    let parts = verdicts.into_iter().filter_map(|verdict| match count(verdict) {
        0 => None,
        count => Some(format!("{count} {}", verdict.as_str())),
    });
    format!("Of {} goals: {}", goals.len(), parts.collect::<Vec<_>>().join(", "))
}

impl ParkResult {
    /// Returns a JSON document with the goals, the bases, and what `idlewise lab compare` reads.
    pub fn to_json(&self) -> serde_json::Value {
        let mut document = serde_json::to_value(self).expect("numbers and text");
        document["schema"] = RESULT_SCHEMA.into();
        document["measurement"] = "park".into();
        document["run_count"] = self.runs.len().into();
        document["series"] = serde_json::json!(self.series());
        let goals = judge(self).iter().map(Goal::to_json).collect();
        document["goals"] = serde_json::Value::Array(goals);
        let mut notes = Notes::default();
        notes.basis(Basis::Measured, "all figures");
        document["bases"] = notes.bases_json();
        document
    }

    /// The figures of each way with a block for each run.
    fn series(&self) -> Vec<SavedSeries> {
        let ns = SeriesUnit::Nanoseconds;
        let figures: [(&str, SeriesUnit, Figure); 4] = [
            ("wake latency p50", ns, |way| way.wake_latency_p50_ns),
            ("wake latency p99", ns, |way| way.wake_latency_p99_ns),
            ("send cost p50", ns, |way| way.send_cost_p50_ns),
            ("CPU", SeriesUnit::Ratio, |way| way.cpu_ratio),
        ];
        let mut all = Vec::new();
        for workload in self.workloads() {
            for way in &workload.ways {
                for (figure, unit, value) in figures {
                    let of_run = |run: &ParkRun| {
                        let workload =
                            run.workloads.iter().find(|one| one.workload == workload.workload)?;
                        workload.ways.iter().find(|one| one.way == way.way).map(value)
                    };
                    all.push(SavedSeries {
                        figure: figure.to_owned(),
                        place: workload.workload.clone(),
                        setting: way.way.clone(),
                        unit,
                        statistic: Statistic::Median,
                        better: Some(BetterValue::Lower),
                        blocks: self.runs.iter().filter_map(of_run).map(Block::of).collect(),
                    });
                }
            }
        }
        all
    }
}

impl MwaitxFinding {
    /// Returns the finding as a sentence.
    pub fn to_sentence(&self) -> String {
        if let Some(refused) = &self.refused {
            return refused.clone();
        }
        let ns = |ns: Option<f64>| ns.map_or("?".to_owned(), |ns| format!("{ns:.0} ns"));
        let percent = self.timer_ratio.unwrap_or(0.0) * 100.0;
        let times = format!(
            "a wait that nobody ends takes {} ({percent:.0} % of its timer), MONITORX alone {}, CPUID {}",
            ns(self.wait_ns),
            ns(self.monitor_ns),
            ns(self.cpuid_ns)
        );
        match self.waits {
            true => format!("the CPU executes it: {times}"),
            false => format!(
                "it ends at once, whatever its timer, so nothing waits here: {times}. Where each \
                 instruction costs what CPUID costs, the hypervisor takes an exit for it and skips it"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn result() -> ParkResult {
        let one = |way: &str, role, latency_ns, send_cost_p50_ns, cpu_ratio| ParkFigures {
            way: way.to_owned(),
            role,
            wake_latency_p50_ns: latency_ns,
            wake_latency_mean_ns: latency_ns,
            wake_latency_p99_ns: latency_ns,
            wake_latency_p999_ns: latency_ns,
            send_cost_p50_ns,
            sleeper_send_cost_ns: send_cost_p50_ns,
            cpu_ratio,
            switches_per_wake: 0.0,
            late_ratio: 0.0,
        };
        let ways = vec![
            one("idlewise", ParkRole::Ours, 200.0, 50.0, 0.6),
            one("futex", ParkRole::Futex, 4_000.0, 1_000.0, 0.1),
            one("spin <1", ParkRole::FixedSpin, 400.0, 50.0, 0.9),
            one("spin 2", ParkRole::FixedSpin, 2_000.0, 50.0, 0.3),
        ];
        let workload = |name: &str, mean_gap_ns| ParkWorkload {
            workload: name.to_owned(),
            mean_gap_ns,
            ways: ways.clone(),
        };
        let trips = |way: &str, per_s| RoundTrips { way: way.to_owned(), round_trips_per_s: per_s };
        let call = |call: &str, way: &str, cost_ns| CallFigures {
            call: call.to_owned(),
            way: way.to_owned(),
            cost_ns,
        };
        let timeout = |way: &str, cpu_ratio| TimeoutFigures {
            pattern: "timeouts of 1 ms".to_owned(),
            way: way.to_owned(),
            cpu_ratio,
        };
        let run = |seed| ParkRun {
            seed,
            load_average: Some(0.5),
            steal_ratio: Some(0.0),
            workloads: vec![workload("poisson:20", 20_000), workload("periodic:1000", 1_000_000)],
            round_trips: vec![trips("idlewise", 120.0), trips("futex", 100.0)],
            calls: vec![
                call("unpark and park of a ready token", "idlewise", 9.0),
                call("unpark and park of a ready token", "crossbeam", 9.5),
                call("unpark of a set token", "idlewise", 6.0),
                call("unpark of a set token", "crossbeam", 6.0),
                call("an item through a channel of 1024", "idlewise", 15.0),
                call("an item through a channel of 1024", "std sync_channel", 13.0),
            ],
            timeouts: vec![timeout("idlewise", 0.16), timeout("crossbeam", 0.15)],
        };
        ParkResult {
            program: "idlewise 0.1.0".to_owned(),
            date: "2026-01-01".to_owned(),
            machine: vec![MachineFact { fact: "kernel".to_owned(), value: None }],
            settings: ParkSettings {
                wake_count: 100,
                seed: 1,
                oversubscribed: false,
                busy_sibling: false,
            },
            mwaitx: None,
            runs: (1..=7).map(run).collect(),
            doubts: Vec::new(),
        }
    }

    #[test]
    fn judges_what_a_workload_is_about() {
        let goals = judge(&result());
        let of = |name: &str| {
            let goals = goals.iter().filter(|goal| goal.workload.as_deref() == Some(name));
            goals.map(|goal| goal.verdict).collect::<Vec<_>>()
        };
        assert_eq!(of("poisson:20"), [Verdict::Met; 5]);
        let mut long = [Verdict::Met; 4];
        long[0] = Verdict::NotMet;
        assert_eq!(of("periodic:1000"), long, "six times a futex's CPU time");
        assert_eq!(summary(&goals), "Of 15 goals: 1 not met, 14 met");
    }

    #[test]
    fn a_spin_that_is_better_in_both_is_ahead_by_the_lesser_ratio() {
        let mut result = result();
        for run in &mut result.runs {
            run.workloads[0].ways[3].wake_latency_p99_ns = 150.0;
        }
        let goals = judge(&result);
        let front = goals.iter().filter(|goal| goal.verdict == Verdict::NotMet);
        let front: Vec<_> = front.filter(|goal| goal.goal.contains("99th percentile")).collect();
        assert_eq!(front.len(), 1, "{goals:?}");
        assert!((front[0].measured.unwrap() - 200.0 / 150.0).abs() < 1e-9);
    }

    #[test]
    fn a_goal_whose_interval_holds_the_limit_is_undecided_and_without_figures_not_measured() {
        let mut mixed = result();
        for (index, run) in mixed.runs.iter_mut().enumerate() {
            run.round_trips[0].round_trips_per_s = 60.0 + 12.0 * index as f64;
            run.calls.retain(|one| one.call != "unpark of a set token");
        }
        let verdict = |result: &ParkResult, start: &str| {
            let goals = judge(result);
            goals.iter().find(|goal| goal.goal.starts_with(start)).map(|goal| goal.verdict)
        };
        assert_eq!(verdict(&mixed, "a futex's round trips"), Some(Verdict::Undecided));
        assert_eq!(verdict(&mixed, "unpark of a set token"), Some(Verdict::NotMeasured));
        let mut few = result();
        few.runs.truncate(RUN_COUNT_MIN - 1);
        assert_eq!(verdict(&few, "a futex's round trips"), Some(Verdict::Undecided));
    }

    #[test]
    fn a_saved_measurement_is_read_again() {
        let result = result();
        let text = result.to_json().to_string();
        assert!(ParkResult::from_json(&text).as_ref() == Ok(&result), "it reads something else");
        let refused = |text: &str| ParkResult::from_json(text).unwrap_err();
        assert!(refused("{").starts_with("no JSON: "));
        assert!(refused("{}").starts_with("not a measurement of"));
        assert_eq!(
            refused(&text.replace("\"schema\":1", "\"schema\":9")),
            "its schema is 9; this idlewise reads 1"
        );
        assert!(refused(&text.replace("seed", "seeed")).starts_with("not a whole measurement: "));
    }

    #[test]
    fn mwaitx_that_ends_at_once_is_said_not_to_wait() {
        let mut finding = MwaitxFinding {
            refused: None,
            monitor_ns: Some(3_480.0),
            wait_ns: Some(6_940.0),
            timer_ratio: Some(0.06),
            cpuid_ns: Some(3_480.0),
            waits: false,
        };
        assert!(finding.to_sentence().starts_with("it ends at once, whatever its timer"));
        finding.waits = true;
        assert!(finding.to_sentence().starts_with("the CPU executes it: a wait that nobody ends"));
    }
}
