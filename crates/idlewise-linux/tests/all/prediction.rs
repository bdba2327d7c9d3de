//! Judges predictions by what a real kernel then did: `docs/prediction.md`'s tables, from `conformance/prediction/`.
//!
//! Each load was recorded under menu, and its workload log and idle log are here. The same load was then run under each
//! setting on the same kernel, and what came of it is in `measured.csv`. The test predicts each of these runs from
//! the one under menu, also by a replay that holds the timeline fixed, and writes the tables and `cases.csv`.
//!
//! * `IDLEWISE_GOLDEN=rewrite` writes both anew. Review the diff.
//! * `IDLEWISE_PREDICTION=FOLDER` first takes recordings from a folder for each set (`make test-prediction` makes them and does
//!   both).

#![allow(clippy::print_stdout, reason = "make reads what was skipped")]

mod cause;
mod page;
mod single;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use idlewise_core::{Governor, Hazard, Lambda, NO_LATENCY_LIMIT_NS, StateIndex, tick_period_ns};
use idlewise_linux::resolve;
use idlewise_sim::predict::{
    Arrivals, CausedWorkload, Costs, Durations, Interval, MARGINS, Outcome, Reproduction, Waited,
    Window, around, calibrate, play,
};
use idlewise_sim::replay::{GapCourse, GovernorLane, Lane, ObservedLane, Observer, Setting};
use idlewise_sim::simulate::Setup;
use idlewise_sim::{CostModel, Machine};
use idlewise_trace::causes::{Step, StepSink, WorkloadLog, WorkloadWriter, convert_causes};
use idlewise_trace::import::{Options, Recording, open_with};
use idlewise_trace::log::{IdleLog, LogWriter};
use idlewise_trace::tracepoint::Purpose;
use idlewise_trace::{
    Event, EventKind, IdleGap, OutputFile, OutputOptions, RecordedMachine, convert,
};

use cause::Causes;
use single::Single;

/// The setting under which the loads were recorded that are played.
const RECORDED: &str = "menu";
/// The same setting once more: what it differs by is by chance.
const AGAIN: &str = "again";
/// The sets of loads, in the page's order. Those of one source come with fewer CPUs first.
const SETS: [Set; 8] = [
    Set::unbound("unbound-fresh", "kept apart, 2 CPUs", true),
    Set::unbound("unbound-fresh-4", "kept apart, 4 CPUs", true),
    Set::unbound("unbound-apart", "kept apart before, 2 CPUs", false),
    Set::unbound("unbound-apart-4", "kept apart before, 4 CPUs", false),
    Set::unbound("unbound-apart-8", "kept apart before, 8 CPUs", false),
    Set::unbound("unbound-made", "made with, 2 CPUs", false),
    Set::unbound("unbound-made-4", "made with, 4 CPUs", false),
    Set {
        folder: "pinned",
        meaning: "made with, bound to CPUs, 2 CPUs",
        lambda: Lambda::QUARTER,
        is_apart: false,
    },
];
/// Tasks of the kernel and of the recorder, which have no part in a load: how their names begin.
const OTHERS: [&str; 12] = [
    "kworker",
    "rcu_",
    "ksoftirqd",
    "migration",
    "idlewise",
    "kthreadd",
    "kcompactd",
    "khugepaged",
    "jbd2",
    "kswapd",
    "kauditd",
    "oom_reaper",
];
/// As many replicates as `idlewise predict` plays, with its seeds.
const REPLICATE_COUNT: u64 = 5;
/// The goal: the errors of a prediction may be this large.
const THROUGHPUT_ERROR_MAX: f64 = 0.05;
const LATENCY_ERROR_MAX: f64 = 0.10;
/// The sign of a smaller change does not count.
const CHANGE_MIN: f64 = 0.03;
/// Between these marks, the page is written by this test.
const BEGIN: &str = "<!-- written by crates/idlewise-linux/tests/all/prediction.rs: begin -->\n";
const END: &str = "<!-- end -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Loads of one kind.
struct Set {
    /// Its name, and its folder in `conformance/prediction/`.
    folder: &'static str,
    meaning: &'static str,
    /// The price of delay of `hazard` when the kernel ran them, which is what its module had then by default.
    lambda: Lambda,
    /// The model was finished before anybody looked at what they measured.
    is_apart: bool,
}

impl Set {
    const fn unbound(folder: &'static str, meaning: &'static str, is_apart: bool) -> Self {
        Set { folder, meaning, lambda: Lambda::from_1024ths(2_048), is_apart }
    }

    /// What `misses.toml` calls a case.
    fn name_of(&self, case: &Case) -> String {
        format!("{}/{} {}", self.folder, case.load, case.change.name)
    }

    fn path(&self) -> PathBuf {
        root().join("conformance/prediction").join(self.folder)
    }
}

/// A change of the recorded setting.
struct Change {
    /// As `kernel/tests/prediction/run` names it.
    name: &'static str,
    meaning: &'static str,
    governor: &'static str,
}

const CHANGES: [Change; 8] = [
    Change { name: "ladder", meaning: "ladder instead of menu", governor: "ladder" },
    Change { name: "teo", meaning: "teo instead of menu", governor: "teo" },
    Change { name: "rule1", meaning: "our module's rule min", governor: "menu+min" },
    Change { name: "rule2", meaning: "our module's rule safe-range", governor: "menu+safe-range" },
    Change { name: "hazard", meaning: "hazard instead of menu", governor: "hazard" },
    Change { name: "no-C6", meaning: "menu without C6", governor: RECORDED },
    Change { name: "limit", meaning: "menu, wake-ups in 50 µs at most", governor: RECORDED },
    Change { name: "table", meaning: "menu, other latencies and residencies", governor: RECORDED },
];

/// The longest latency of the setting `limit`, and the states of the setting `table`: name, exit latency, target
/// residency, in µs. As in `kernel/tests/prediction/run`.
const LIMIT_US: i64 = 50;
const OTHER_TABLE: [(&str, u64, u64); 3] = [("C1", 2, 2), ("C1E", 10, 30), ("C6", 60, 180)];

/// What a run did to a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    /// From the load's beginning to its end.
    span_ns: f64,
    /// Wake-to-run latencies of the load's tasks.
    wake_count: usize,
    p50_ns: u64,
    p99_ns: u64,
    /// Latencies a little below and above the percentiles: 45 and 55 %, 98.9 and 99.1 %.
    around_ns: [u64; 4],
    /// Of all CPUs; `None` where it was not looked at.
    energy_uj: Option<f64>,
}

const MEASURED_HEADER: &str =
    "load,setting,task,span_ns,wake_count,p50_ns,p99_ns,p45_ns,p55_ns,p98_9_ns,p99_1_ns,energy_uj";

impl Figures {
    fn new(span_ns: f64, latencies: &Durations) -> Self {
        let at = |share| latencies.at(share).unwrap_or(0);
        Figures {
            span_ns,
            wake_count: latencies.count(),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            around_ns: [0.45, 0.55, 0.989, 0.991].map(at),
            energy_uj: None,
        }
    }

    /// `task` is the name of one kind of tasks, or empty for all of the load.
    fn row(&self, load: &str, setting: &str, task: &str) -> String {
        let [p45, p55, p98_9, p99_1] = self.around_ns;
        let Figures { span_ns, wake_count, p50_ns, p99_ns, .. } = self;
        let energy = self.energy_uj.map_or_else(String::new, |uj| format!("{uj:.0}"));
        format!(
            "{load},{setting},{task},{span_ns},{wake_count},{p50_ns},{p99_ns},{p45},{p55},{p98_9},{p99_1},{energy}"
        )
    }

    fn of_row(fields: &[&str]) -> Self {
        let number = |at: usize| fields[at].parse().expect("a whole number");
        Figures {
            span_ns: number(0) as f64,
            wake_count: number(1) as usize,
            p50_ns: number(2),
            p99_ns: number(3),
            around_ns: [4, 5, 6, 7].map(number),
            energy_uj: fields[8].parse().ok(),
        }
    }

    /// Operations in a second over those of another run.
    fn throughput_change(&self, base: &Figures) -> f64 {
        base.span_ns / self.span_ns - 1.0
    }
}

/// From the lowest to the highest.
fn spread(values: impl Iterator<Item = f64>) -> Interval {
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    let (low, high) = values.fold(none, |(low, high), value| (low.min(value), high.max(value)));
    Interval { low, high }
}

fn ratio(one: u64, other: u64) -> f64 {
    if one == other { 1.0 } else { one as f64 / other.max(1) as f64 }
}

/// A workload log and what it says of the load.
struct Recorded {
    workload: Arc<CausedWorkload>,
    machine: Machine,
    hz: u32,
    lambda: Lambda,
    first_at_ns: i64,
    /// How long the recording is.
    recorded_ns: u64,
    steps: Vec<Step>,
    load_tasks: BTreeSet<u32>,
    /// The same by name.
    by_name: BTreeMap<String, Vec<u32>>,
}

impl Recorded {
    fn open(path: &Path, lambda: Lambda) -> Self {
        let log = WorkloadLog::open(path).expect("the workload log can be opened");
        let mut steps = Vec::new();
        log.each_group(&mut |group| steps.extend_from_slice(group))
            .expect("its steps are readable");
        let metadata = log.metadata;
        let workload = CausedWorkload::new(&metadata, &steps, Arrivals::Open, Costs::Recorded);
        let workload = workload.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let names = metadata.tasks.iter().enumerate();
        let is_of_load = |name: &str| !OTHERS.iter().any(|other| name.starts_with(other));
        let load_tasks = names.filter(|(_, task)| !task.is_idle && is_of_load(&task.name));
        let mut by_name: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (id, task) in load_tasks {
            by_name.entry(task.name.clone()).or_default().push(id as u32);
        }
        Recorded {
            workload: Arc::new(workload),
            machine: metadata.machine.expect("the log has the states"),
            hz: metadata.hz.expect("the log has HZ"),
            lambda,
            first_at_ns: metadata.first_at_ns,
            recorded_ns: metadata.last_at_ns.abs_diff(metadata.first_at_ns),
            steps,
            load_tasks: by_name.values().flatten().copied().collect(),
            by_name,
        }
    }

    fn is_of_load(&self, task: u32) -> bool {
        self.load_tasks.contains(&task)
    }

    /// From the load's beginning to its end.
    fn span_ns(&self, outcome: &Outcome) -> f64 {
        let windows = || outcome.windows.iter().filter(|window| self.is_of_load(window.task));
        let begin_ns = windows().map(|window| window.due_ns).min().unwrap_or(0);
        (windows().map(|window| window.end_ns).max().unwrap_or(0) - begin_ns) as f64
    }

    fn figures(&self, outcomes: &[Outcome]) -> Figures {
        let span_ns = outcomes.iter().map(|outcome| self.span_ns(outcome)).sum::<f64>();
        let latencies: Vec<Durations> =
            outcomes.iter().map(|outcome| self.latencies(outcome)).collect();
        let span_ns = (span_ns / outcomes.len() as f64).round();
        Figures::new(span_ns, &Durations::together(&latencies))
    }

    /// Of all tasks that belong to the load.
    fn latencies(&self, outcome: &Outcome) -> Durations {
        let tasks = outcome.by_task.iter().filter(|(task, _)| self.is_of_load(**task));
        Durations::together(tasks.map(|(_, latencies)| latencies))
    }

    /// See [`Case::intervals`].
    fn intervals(&self, of: &Figures, runs: &[Outcome], bases: &[Outcome]) -> [Interval; 4] {
        let throughput = |(run, base): (&Outcome, &Outcome)| self.span_ns(base) / self.span_ns(run);
        let energy = |(run, base): (&Outcome, &Outcome)| {
            run.energy_uj().unwrap_or(0.0) / base.energy_uj().unwrap_or(0.0)
        };
        let pairs = || runs.iter().zip(bases);
        let waited = runs.iter().map(|run| Waited::new(&run.waits(&|task| self.is_of_load(task))));
        let waited: Vec<Waited> = waited.collect();
        let p50 = waited.iter().filter_map(|waited| waited.p50);
        let p99 = waited.iter().filter_map(|waited| waited.p99);
        [
            spread(pairs().map(throughput)),
            spread(pairs().map(energy)),
            around(of.p50_ns as f64, p50),
            around(of.p99_ns as f64, p99),
        ]
    }

    fn measured(&self) -> Figures {
        self.figures(&[Outcome::recorded(&self.workload)])
    }

    /// What the CPUs took in a recording, by the states that the kernel entered and the powers that `predict` assumes. A CPU that was
    /// never seen to leave a state is in the deepest.
    fn energy_uj(&self, path: &Path) -> f64 {
        let costs = CostModel::of(&self.machine).expect("the machine is valid");
        let mut cpus = vec![(self.first_at_ns, None); self.workload.cpu_count()];
        let mut stays = vec![(0, 0); costs.states().len()];
        let mut work_ns = 0;
        let mut note = |since_ns: i64, at_ns: i64, state: Option<usize>| {
            let ns = at_ns.saturating_sub(since_ns).max(0) as u64;
            match state {
                Some(state) => stays[state] = (stays[state].0 + 1, stays[state].1 + ns),
                None => work_ns += ns,
            }
        };
        let deepest = Some(costs.states().len() - 1);
        let read = recording(path, Purpose::default()).read(&|_| {}, &mut |events| {
            for &Event { at_ns, cpu, kind } in events {
                let (since_ns, is) = cpus[usize::from(cpu)];
                let (was, next) = match kind {
                    EventKind::IdleEntry { state } => (is.flatten(), Some(state as usize)),
                    EventKind::IdleExit => (is.unwrap_or(deepest), None),
                    _ => continue,
                };
                note(since_ns, at_ns, was);
                cpus[usize::from(cpu)] = (at_ns, Some(next));
            }
        });
        read.expect("the recording can be read");
        let end_ns = self.first_at_ns + self.recorded_ns as i64;
        for (since_ns, is) in cpus {
            note(since_ns, end_ns, is.unwrap_or(deepest));
        }
        let stays_uj =
            stays.iter().enumerate().map(|(state, &(count, ns))| costs.stays_uj(state, count, ns));
        costs.running_uj(work_ns) + stays_uj.sum::<f64>()
    }

    /// The machine of a change, its disabled states, and its latency limit.
    fn setting(&self, change: &str) -> (Machine, Option<StateIndex>, i64) {
        let mut machine = self.machine.clone();
        let mut disabled = None;
        let mut limit_ns = NO_LATENCY_LIMIT_NS;
        match change {
            "no-C6" => disabled = Some(machine.state_index("C6").expect("the machine has C6")),
            "limit" => limit_ns = LIMIT_US * 1_000,
            "table" => {
                for (name, exit_us, residency_us) in OTHER_TABLE {
                    let index = machine.state_index(name).expect("the machine has it");
                    machine.states[index].exit_latency_ns = 1_000 * exit_us;
                    machine.states[index].target_residency_ns = 1_000 * residency_us;
                }
            }
            _ => {}
        }
        (machine, disabled, limit_ns)
    }

    /// Plays the load under a change; the recorded setting if there is none.
    fn predict(&self, change: Option<&Change>, tick_need: f64) -> Vec<Outcome> {
        let name = change.map_or(RECORDED, |change| change.name);
        let governor = change.map_or(RECORDED, |change| change.governor);
        let (machine, ..) = self.setting(name);
        let make = || governor_named(governor, self);
        let run = |seed| {
            let mut setup = self.setup(&machine, name, &make);
            setup.tick_need = tick_need;
            play(&self.workload, &mut setup, seed).expect("it can be played")
        };
        (1..=REPLICATE_COUNT).map(run).collect()
    }

    fn setup<'a>(
        &self,
        machine: &'a Machine,
        change: &str,
        make: &'a (dyn Fn() -> Box<dyn Governor> + Sync),
    ) -> Setup<'a> {
        let (_, disabled, limit_ns) = self.setting(change);
        let mut setup = Setup::new(machine, make);
        setup.hardware = self.workload.hardware(machine);
        setup.disabled = disabled.map_or(setup.disabled, |state| setup.disabled.with(state));
        setup.latency_limit_ns = limit_ns;
        setup.has_random_ticks = true;
        if change != "table" {
            setup.exit_quantiles = self.workload.exit_quantiles(machine);
        }
        setup
    }

    fn tick_need(&self) -> f64 {
        let make = || governor_named(RECORDED, self);
        let mut setup = self.setup(&self.machine, RECORDED, &make);
        calibrate(&self.workload, &mut setup, 1).expect("it can be played")
    }

    /// What a replay of the same recording says: the timeline stays, and each wake-up of an idle CPU takes as much
    /// longer or shorter as the exit latency of the state that the governor would have chosen.
    fn replay(&self, gaps: &[IdleGap], change: &Change) -> Figures {
        let (machine, disabled, limit_ns) = self.setting(change.name);
        let period_ns = tick_period_ns(self.hz);
        let mut setting = Setting::new(machine.table().expect("the states are valid"), period_ns);
        setting.disabled = disabled.map_or(setting.disabled, |state| setting.disabled.with(state));
        setting.latency_limit_ns = limit_ns;
        let mut delays_ns: BTreeMap<(u16, i64), u64> = BTreeMap::new();
        for of_cpu in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
            let governor = governor_named(change.governor, self);
            let governor = idlewise_sim::Boxed(governor);
            let mut lane = GovernorLane::with_observer(governor, setting, Noted::default());
            lane.replay(of_cpu);
            let delays = std::mem::take(&mut lane.observer_mut().0);
            delays_ns.extend(delays.into_iter().map(|(at_ns, ns)| ((of_cpu[0].cpu, at_ns), ns)));
        }
        let exits_ns = self.machine.exit_latencies_ns();
        let woken = self.steps.iter().filter(|step| {
            let is_woken = step.due_at_ns > self.first_at_ns || step.cause.name() != "start";
            is_woken && self.load_tasks.contains(&step.task)
        });
        let latency_ns = |step: &Step| {
            let recorded_ns = step.wake_to_run_ns();
            let Some(state) = step.idle_state else { return recorded_ns };
            let begun = (step.cpu, i64::MIN)..=(step.cpu, step.due_at_ns);
            let Some((_, delay_ns)) = delays_ns.range(begun).next_back() else {
                return recorded_ns;
            };
            let exit_ns = exits_ns.get(usize::from(state)).copied().unwrap_or(0);
            recorded_ns.saturating_sub(exit_ns) + delay_ns
        };
        let latencies: Durations = woken.map(latency_ns).collect();
        Figures::new(self.measured().span_ns, &latencies)
    }
}

/// Each gap's beginning, and how much later its event was served.
#[derive(Default)]
struct Noted(Vec<(i64, u64)>);

impl Observer for Noted {
    fn gap(&mut self, gap: &IdleGap, course: GapCourse) {
        self.0.push((gap.start_ns, course.delay_ns));
    }
}

fn governor_named(name: &str, of: &Recorded) -> Box<dyn Governor> {
    match name {
        "hazard" => Box::new(Hazard::new(of.lambda)),
        name => Box::new(resolve(name).expect("the governor exists").build(tick_period_ns(of.hz))),
    }
}

/// A load under a change: what was predicted, what a replay says, and what then came of it.
struct Case {
    load: String,
    change: &'static Change,
    /// The recorded run, measured and played.
    base: Figures,
    played_base: Figures,
    measured: Figures,
    predicted: Figures,
    replayed: Figures,
    /// Within what throughput and energy over the recorded run's, p50 and p99 (ns) are, as far as runs vary.
    intervals: [Interval; 4],
    /// Its tasks by name.
    singles: Vec<Single>,
}

/// Throughput, p50 and p99: the relative errors of a prediction.
type Errors = [f64; 3];

/// How far figures are from what was measured; of throughput, its change from that of the two bases.
fn errors(of: &Figures, measured: &Figures, [base, measured_base]: [&Figures; 2]) -> Errors {
    let change = |of: &Figures, base: &Figures| 1.0 + of.throughput_change(base);
    [
        change(of, base) / change(measured, measured_base) - 1.0,
        ratio(of.p50_ns, measured.p50_ns) - 1.0,
        ratio(of.p99_ns, measured.p99_ns) - 1.0,
    ]
}

impl Case {
    fn errors_of(&self, is_replay: bool) -> Errors {
        let (of, base) = match is_replay {
            true => (&self.replayed, &self.base),
            false => (&self.predicted, &self.played_base),
        };
        errors(of, &self.measured, [base, &self.base])
    }

    /// By how much each interval must be widened to contain what was measured, as a natural logarithm: less than nothing if it
    /// contains it. `None` of what was not measured.
    fn beyond(&self) -> [Option<f64>; 4] {
        let Figures { p50_ns, p99_ns, energy_uj, .. } = self.measured;
        let throughput = 1.0 + self.measured.throughput_change(&self.base);
        let energy = energy_uj.zip(self.base.energy_uj).map(|(uj, base_uj)| uj / base_uj);
        let measured = [Some(throughput), energy, Some(p50_ns as f64), Some(p99_ns as f64)];
        std::array::from_fn(|at| Some(self.intervals[at].beyond(measured[at]?)))
    }

    fn meets(errors: &Errors) -> [bool; 3] {
        let limits = [THROUGHPUT_ERROR_MAX, LATENCY_ERROR_MAX, LATENCY_ERROR_MAX];
        std::array::from_fn(|at| errors[at].abs() <= limits[at])
    }

    fn meets_goal(&self) -> bool {
        Self::meets(&self.errors_of(false)) == [true; 3]
    }

    fn changes(of: &Figures, base: &Figures) -> [f64; 3] {
        [
            of.throughput_change(base),
            ratio(of.p50_ns, base.p50_ns) - 1.0,
            ratio(of.p99_ns, base.p99_ns) - 1.0,
        ]
    }

    /// Of each figure whose measured change is large enough: whether the predicted one has its sign.
    fn signs(&self, of: &Figures, base: &Figures) -> [Option<bool>; 3] {
        let measured = Self::changes(&self.measured, &self.base);
        let predicted = Self::changes(of, base);
        std::array::from_fn(|at| {
            (measured[at].abs() > CHANGE_MIN).then(|| measured[at] * predicted[at] > 0.0)
        })
    }

    /// Whether a percentile is right but for a measured one within a tenth of the share around it: it lies between two
    /// kinds of wake-ups, and a few more of one kind change it as much as they can.
    fn is_between_modes(&self) -> bool {
        let [p45, p55, p98_9, p99_1] = self.measured.around_ns;
        let near = |ns: u64, low: u64, high: u64| {
            (ratio(ns, ns.clamp(low, high)) - 1.0).abs() <= LATENCY_ERROR_MAX
        };
        let is_throughput_met = Self::meets(&self.errors_of(false))[0];
        let Figures { p50_ns, p99_ns, .. } = self.predicted;
        is_throughput_met && near(p50_ns, p45, p55) && near(p99_ns, p98_9, p99_1)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// A row of `measured.csv`: load, setting, task or nothing, and figures.
type Row = (String, String, String, Figures);

fn measured(folder: &Path) -> Vec<Row> {
    let text = fs::read_to_string(folder.join("measured.csv")).expect("there is measured.csv");
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(MEASURED_HEADER));
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [load, setting, task] = [0, 1, 2].map(|at| fields[at].to_owned());
        (load, setting, task, Figures::of_row(&fields[3..]))
    };
    lines.map(row).collect()
}

fn gaps_of(path: &Path) -> Vec<IdleGap> {
    let log = IdleLog::open(path).expect("the idle log can be opened");
    let mut gaps = Vec::new();
    for group in log.groups() {
        let mut some = Vec::new();
        log.read_group(group, None, &mut some).expect("its gaps are readable");
        gaps.extend(some);
    }
    gaps
}

/// A load: how well it reproduces itself, how far the kernel is from itself in another run, and its cases.
struct Judged {
    load: String,
    /// The recorded run and a played one.
    queues: [Durations; 2],
    /// The share of the steps that ran on the CPU that the kernel chose.
    same_cpu: f64,
    reproduction: Reproduction,
    again: Option<Errors>,
    cases: Vec<Case>,
}

/// Judges all cases of a load.
fn judge(set: &Set, load: &str, measured: &[Row]) -> Judged {
    let folder = set.path();
    let recorded = Recorded::open(&folder.join(format!("{load}.parquet")), set.lambda);
    let gaps = gaps_of(&folder.join(format!("{load}-gaps.parquet")));
    let tick_need = recorded.tick_need();
    let base_runs = recorded.predict(None, tick_need);
    let recorded_run = Outcome::recorded(&recorded.workload);
    let reproduction = Reproduction::new(&recorded_run, &base_runs);
    let base = recorded.figures(std::slice::from_ref(&recorded_run));
    let played_base = recorded.figures(&base_runs);
    let of_load = || measured.iter().filter(|(of, _, task, _)| of == load && task.is_empty());
    let again = of_load().find(|(_, setting, ..)| setting == AGAIN);
    let again = again.map(|(.., again)| errors(again, &base, [&base; 2]));
    let cases = of_load().filter(|(_, setting, ..)| ![RECORDED, AGAIN].contains(&setting.as_str()));
    let base_energy_uj = of_load().find(|(_, setting, ..)| setting == RECORDED);
    let base_energy_uj = base_energy_uj.and_then(|(.., recorded)| recorded.energy_uj);
    let base = Figures { energy_uj: base_energy_uj, ..base };
    let all_rows = measured;
    let case = |(_, setting, _, measured): &Row| {
        let change = CHANGES.iter().find(|change| change.name == setting);
        let change = change.expect("measured.csv has the settings of CHANGES");
        let runs = recorded.predict(Some(change), tick_need);
        let predicted = recorded.figures(&runs);
        Case {
            load: load.to_owned(),
            change,
            base,
            played_base,
            measured: *measured,
            intervals: recorded.intervals(&predicted, &runs, &base_runs),
            predicted,
            replayed: recorded.replay(&gaps, change),
            singles: single::judge(&recorded, all_rows, (load, setting), [&base_runs, &runs]),
        }
    };
    let queues = [&recorded_run, &base_runs[0]].map(|run| waits_behind(&run.windows));
    let same_cpu = same_cpu(&recorded_run.windows, &base_runs[0].windows);
    Judged {
        load: load.to_owned(),
        queues,
        same_cpu,
        reproduction,
        again,
        cases: cases.map(case).collect(),
    }
}

/// How long woken tasks waited for one that ran on their CPU and stopped.
fn waits_behind(windows: &[Window]) -> Durations {
    let mut order: Vec<&Window> = windows.iter().collect();
    order.sort_unstable_by_key(|window| (window.cpu, window.run_at_ns));
    let mut before: Vec<&Window> = Vec::new();
    let mut waits_ns = Vec::new();
    for window in order {
        before.retain(|other| other.cpu == window.cpu && other.end_ns > window.due_ns);
        let waited = before
            .iter()
            .any(|other| other.run_at_ns <= window.due_ns && other.end_ns <= window.run_at_ns);
        if window.is_woken && waited {
            waits_ns.push(window.run_at_ns - window.due_ns);
        }
        before.push(window);
    }
    waits_ns.into_iter().collect()
}

fn same_cpu(one: &[Window], other: &[Window]) -> f64 {
    let same = one.iter().zip(other).filter(|(one, other)| one.cpu == other.cpu).count();
    same as f64 / one.len().max(1) as f64
}

/// Judges all loads of a set.
fn judge_all(set: &Set) -> Vec<Judged> {
    let folder = set.path();
    let measured = measured(&folder);
    let mut loads: Vec<&String> = measured.iter().map(|(load, ..)| load).collect();
    loads.dedup();
    std::thread::scope(|scope| {
        let judges: Vec<_> =
            loads.iter().map(|load| scope.spawn(|| judge(set, load, &measured))).collect();
        judges.into_iter().map(|judge| judge.join().expect("the load can be judged")).collect()
    })
}

fn rewrites() -> bool {
    std::env::var("IDLEWISE_GOLDEN").is_ok_and(|value| value == "rewrite")
}

#[test]
fn predictions_are_as_near_to_what_a_kernel_did_as_the_page_says() {
    if let Some(recordings) = std::env::var_os("IDLEWISE_PREDICTION") {
        for set in &SETS {
            take_recordings(set, Path::new(&recordings));
        }
    }
    let sets: Vec<(&Set, Vec<Judged>)> = SETS.iter().map(|set| (set, judge_all(set))).collect();
    let all: Vec<(&Set, &Case)> = sets
        .iter()
        .flat_map(|(set, judged)| judged.iter().flat_map(|of| &of.cases).map(|case| (*set, case)))
        .collect();
    assert!(all.len() >= 120, "{}", all.len());
    let causes = Causes::new();
    let margins = page::margins(&sets);
    assert_eq!(
        MARGINS, margins,
        "MARGINS are not what the loads show with which the model was made"
    );
    let found = page::page(&sets, &causes);
    let path = root().join("docs/prediction.md");
    let text = fs::read_to_string(&path).expect("there is a page");
    let (before, rest) = text.split_once(BEGIN).expect("the page has the mark of a beginning");
    let (expected, after) = rest.split_once(END).expect("the page has the mark of an end");
    let cases_path = root().join("conformance/prediction/cases.csv");
    let cases = page::cases_csv(&sets, &causes);
    if rewrites() {
        fs::write(&path, format!("{before}{BEGIN}{found}{END}{after}")).expect("it can be written");
        fs::write(&cases_path, &cases).expect("it can be written");
    } else {
        assert!(
            expected == found,
            "docs/prediction.md is not what the test finds; IDLEWISE_GOLDEN=rewrite rewrites it\n{found}"
        );
        let expected = fs::read_to_string(&cases_path).expect("there is cases.csv");
        assert!(expected == cases, "cases.csv is not what the test finds\n{cases}");
    }
    // Each miss is explained, and misses.toml explains nothing else.
    let missed = || all.iter().filter(|(_, case)| !case.meets_goal());
    let unexplained: Vec<String> = missed()
        .filter(|(set, case)| causes.of(set, case).is_none())
        .map(|(set, case)| set.name_of(case))
        .collect();
    assert!(unexplained.is_empty(), "misses.toml has no cause of {unexplained:?}");
    let names: BTreeSet<String> = missed().map(|(set, case)| set.name_of(case)).collect();
    let superfluous: Vec<&String> =
        causes.named().into_iter().filter(|name| !names.contains(*name)).collect();
    assert!(superfluous.is_empty(), "misses.toml explains what is no miss: {superfluous:?}");
}

/// Makes a set's folder anew from its recordings, if there are any.
fn take_recordings(set: &Set, recordings: &Path) {
    let (folder, recordings) = (set.path(), recordings.join(set.folder));
    // loads/run makes the folders of all sets, and a plan where it recorded.
    if !recordings.join("plan").exists() {
        println!("SKIPPED: {}: there are no recordings", set.folder);
        return;
    }
    let plan = fs::read_to_string(recordings.join("plan")).expect("the recordings have their plan");
    let mut rows = vec![MEASURED_HEADER.to_owned()];
    fs::create_dir_all(&folder).expect("the folder can be made");
    for line in plan.lines().filter_map(|line| line.strip_prefix("load ")) {
        let mut words = line.split_whitespace();
        let load = words.next().expect("a load has a name");
        let settings = words.skip(1);
        for setting in settings {
            // loads/run's recordings under menu are also those of recordings/causes.
            let names = [format!("{load}-{setting}.dat"), format!("{load}.dat")];
            let mut paths = names.map(|name| recordings.join(name)).into_iter();
            let path = paths.find(|path| path.exists() || setting != RECORDED);
            let path = path.unwrap_or_default();
            if !path.exists() {
                println!("SKIPPED: {load} {setting}: the kernel does not have it");
                continue;
            }
            let kept = setting == RECORDED;
            let scratch = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("prediction.parquet");
            let log = if kept { folder.join(format!("{load}.parquet")) } else { scratch() };
            write_steps(&path, &log);
            if kept {
                write_gaps(&path, &folder.join(format!("{load}-gaps.parquet")));
            }
            let recorded = Recorded::open(&log, set.lambda);
            let energy_uj = Some(recorded.energy_uj(&path));
            rows.push(Figures { energy_uj, ..recorded.measured() }.row(load, setting, ""));
            rows.extend(single::rows(&recorded, load, setting));
        }
    }
    fs::write(folder.join("measured.csv"), rows.join("\n") + "\n").expect("it can be written");
}

fn recording(path: &Path, purpose: Purpose) -> Box<dyn Recording> {
    let file = fs::File::open(path).expect("the recording can be opened");
    open_with(file, Options { purpose, ..Options::default() }).expect("it is a recording")
}

fn new_file(path: &Path) -> OutputFile {
    let options = OutputOptions { replace: true, ..OutputOptions::default() };
    OutputFile::create(path, &options).expect("the file can be created")
}

fn write_steps(from: &Path, to: &Path) {
    let recorded = RecordedMachine::default();
    let converted =
        convert_causes(recording(from, Purpose::Causes), Vec::new(), &recorded, &|_| {});
    let (steps, mut metadata): (Vec<Step>, _) = converted.expect("the recording has causes");
    // What identifies a build or a run would make each new recording differ.
    metadata.command = None;
    let mut writer = WorkloadWriter::new(new_file(to)).expect("the log can be begun");
    writer.take(&steps).expect("it can be written");
    writer.finish(&metadata).expect("it is valid");
}

fn write_gaps(from: &Path, to: &Path) {
    let writer = LogWriter::new(new_file(to)).expect("the log can be begun");
    let recorded = RecordedMachine::default();
    let converted = convert(recording(from, Purpose::default()), writer, &recorded, &|_| {});
    let (writer, metadata) = converted.unwrap_or_else(|error| panic!("{error:?}"));
    writer.finish(&metadata).expect("it is valid");
}
