//! `idlewise predict`: what another governor, setting or machine would do to a recorded workload.

mod check;
pub(super) mod played;
mod rows;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use idlewise_core::NO_LATENCY_LIMIT_NS;
use idlewise_host::{Root, settings};
use idlewise_lab::notes::add_machine;
use idlewise_lab::target::{disabled, is_own_machine, named_machine, promoted};
use idlewise_report::predict::{
    Checked, PredictedRun, PredictedTask, checked_table, misses_text, not_reproduced_text,
    reproduction_text, run_table, task_table, unclear_text, verdicts, withheld_text,
};
use idlewise_report::{Notes, TextStyle, counted, wrap};
use idlewise_sim::predict::{
    Arrivals, Likeness, MeasuredThroughput, Outcome, Reproduction, Vouched,
};
use idlewise_sim::simulate::Report;
use idlewise_sim::{Basis, CostModel, Machine, MachineState};
use idlewise_trace::tracepoint::Purpose;
use idlewise_trace::{Doubt, RecordedMachine};
use serde_json::json;

use self::played::{Budget, Played, Replicates, Setting};
use self::rows::{Kept, Of, Rows, Shown};
use super::export::simulated::{About, SimulatedLog, perfetto_path};
use crate::bundled;
use crate::doubts::ShownDoubts;
use crate::error::{Failure, Result};
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors;
use crate::input::{self, Reading};
use crate::promoting::Promoting;
use crate::role::{BundleRole, OUTPUT, Roles};
use crate::screen::{self, Screen, say};
use crate::threads;
use crate::unpack::Unpacking;

/// More settings are in the table only.
const VERDICT_COUNT_MAX: usize = 4;
/// The schema version of `--json`.
const SCHEMA: u32 = 1;
/// How many tasks are shown if none is named: those with the most wake-ups.
const SHOWN_TASK_COUNT: usize = 5;

const EXAMPLES: &str = "\
Examples:
  # What would menu and teo do to this workload?
  sudo idlewise record --causes -o run.dat -- ./workload
  idlewise predict run.dat --governor menu --governor teo

  # What if C6 were switched off, or wake-ups had to take at most 20 us?
  idlewise predict run.dat --governor menu --disable C6
  idlewise predict run.dat --governor menu --latency-limit-us 20

  # The same on another machine's idle states, and the latency of one program
  idlewise predict run.dat --machine spr --governor menu --task nginx

  # Time per request: from the event that wakes wrk until nginx has answered
  idlewise predict run.dat --governor menu --disable C6 --request 'wrk->nginx'

  # What would have happened, for replay and ui.perfetto.dev
  idlewise predict run.dat --governor teo --write-log teo.parquet

  # Was it right? Run the workload once without C6, and print measured beside predicted figures
  sudo idlewise predict run.dat --governor menu --disable C6 --check no-c6.dat -- ./workload

  # The same if all CPUs share 15 W: what shallower states draw is then missing elsewhere
  idlewise predict run.dat --governor menu --disable C6 --power-limit-w 15

  # Clients that send again only after an answer
  idlewise predict run.dat --governor teo --arrivals closed

Exit status: 0; 1 if a governor's file crashed, looped or returned an invalid state, if the \
workload cannot be played under a setting, or if --check finds a figure outside of its range; 2 on bad \
input, or if the recording does not reproduce its throughput, wake-ups and median latency.";

/// Predict what another governor or setting would do to a recorded workload
///
/// Plays the recording's tasks on a simulated machine: each runs for as long as it ran, wakes whom it woke, and
/// waits for what woke it. How late it then runs depends on the simulated idle states. The recorded governor is played
/// first; figures in which that run differs from the recording are not predicted. Changes are relative to that run. Each run is
/// repeated with ticks at other times (replicates); the lowest and highest change are shown.
#[derive(clap::Args)]
#[command(mut_arg("governor", with_default("menu and teo")))]
#[command(group(clap::ArgGroup::new("written").args(["write_log", "check"]).multiple(true)))]
#[command(after_help = EXAMPLES)]
pub struct Predict {
    /// A recording with causes (`idlewise record --causes`), or a workload log
    recording: PathBuf,

    /// The machine to predict for [default: recorded]
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,

    #[command(flatten)]
    governors: GovernorArguments,

    /// Disable a state, by name or index; may be repeated
    #[arg(long = "disable", value_name = "STATE")]
    disabled: Vec<String>,

    #[command(flatten)]
    promoting: Promoting,

    /// Forbid states with a longer exit latency, in us
    #[arg(long, value_name = "T")]
    latency_limit_us: Option<u32>,

    /// Let all CPUs share this much power, in W: they run faster than recorded where idle states leave more of it than in
    /// the recorded setting, and slower where less [default: tasks run as fast as recorded]
    #[arg(long, value_name = "W", value_parser = power_w, conflicts_with_all = ["machine", "write_log"])]
    power_limit_w: Option<f64>,

    /// The highest frequency with --power-limit-w, of the nominal one
    #[arg(long, value_name = "R", default_value_t = 1.4, value_parser = turbo_ratio, requires = "power_limit_w")]
    turbo_ratio: f64,

    /// When interrupts from outside come. Open: at their recorded times. Closed: the recorded time after the task that they
    /// wake began to wait, as from clients that send again only after an answer
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = AskedArrivals::Open)]
    arrivals: AskedArrivals,

    /// Show the tasks with this name; may be repeated [default: the five with the most wake-ups]
    #[arg(long = "task", value_name = "NAME")]
    tasks: Vec<String>,

    /// Show how long requests take, by the tasks' names: from the event that wakes A until B has ended the first run that
    /// follows from it; may be repeated
    #[arg(long = "request", value_name = "A->B")]
    requests: Vec<AskedRequest>,

    /// The machine that was recorded, if the recording does not say
    #[arg(long, value_name = "NAME|FILE")]
    recorded_machine: Option<String>,

    /// The governor that was in use, if the recording does not say
    #[arg(long, value_name = "NAME")]
    recorded_governor: Option<String>,

    /// How many replicates to play, each with ticks at other times
    #[arg(long, value_name = "N", default_value_t = Replicates::DEFAULT.count, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    replicates: u64,

    /// Seed of the first replicate
    #[arg(long, value_name = "N", default_value_t = Replicates::DEFAULT.seed)]
    seed: u64,

    /// Write the first replicate as an idle log, and beside it as a Perfetto trace (.pftrace); needs exactly one --governor
    #[arg(long, value_name = "FILE")]
    write_log: Option<PathBuf>,

    /// Print measured figures beside predicted ones. FILE is a recording with causes of the predicted setting. With a COMMAND it
    /// is made first: COMMAND runs once under that setting, and the settings found are restored
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "states", "csv"])]
    check: Option<PathBuf>,

    /// Replace the files of --write-log and --check if they exist
    #[arg(long, requires = "written")]
    force: bool,

    #[command(flatten)]
    unpacking: Unpacking,

    #[command(flatten)]
    doubts: ShownDoubts,

    /// Print JSON instead of text
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print the table of tasks as CSV
    #[arg(long)]
    csv: bool,

    /// What --check runs
    #[arg(last = true, requires = "check", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// `--arrivals`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum AskedArrivals {
    Open,
    Closed,
}

impl fmt::Display for AskedArrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == AskedArrivals::Open { "open" } else { "closed" })
    }
}

fn power_w(text: &str) -> Result<f64, String> {
    number(text, 0.001..=1e6).ok_or_else(|| "give a number of watts, 0.001 to 1000000".to_owned())
}

fn turbo_ratio(text: &str) -> Result<f64, String> {
    number(text, 1.0..=10.0).ok_or_else(|| "give a number from 1 to 10".to_owned())
}

fn number(text: &str, range: RangeInclusive<f64>) -> Option<f64> {
    text.parse().ok().filter(|number| range.contains(number))
}

/// `A->B`, or `A→B`.
#[derive(Clone, Debug)]
struct AskedRequest {
    asks: String,
    answers: String,
}

impl AskedRequest {
    fn as_pair(&self) -> (&str, &str) {
        (&self.asks, &self.answers)
    }
}

impl FromStr for AskedRequest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = text.split_once("->").or_else(|| text.split_once('→'));
        match pair.map(|(asks, answers)| (asks.trim(), answers.trim())) {
            Some((asks, answers)) if asks == answers => {
                Err("a request is from one task's name to another's".to_owned())
            }
            Some((asks, answers)) if !asks.is_empty() && !answers.is_empty() => {
                Ok(AskedRequest { asks: asks.to_owned(), answers: answers.to_owned() })
            }
            _ => Err("give the names of two tasks, such as 'wrk->nginx'".to_owned()),
        }
    }
}

impl fmt::Display for AskedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}→{}", self.asks, self.answers)
    }
}

/// Everything that is printed.
struct Answer<'a> {
    played: &'a Played,
    reproduction: Reproduction,
    /// The tasks and requests of which it does not reproduce all figures.
    not_reproduced: Vec<(&'a str, Reproduction)>,
    runs: Vec<PredictedRun>,
    tasks: Vec<PredictedTask>,
    checked: Vec<Checked>,
    /// The measured one, with --check.
    throughput: Option<MeasuredThroughput>,
    machine: &'a Machine,
    /// Where options override the recording, in words.
    overrides: Vec<String>,
}

/// Its own options in a bundle.
pub const ROLES: Roles = &[
    (BundleRole::Causes, &["recording"]),
    (BundleRole::Machine, &["machine", "recorded_machine"]),
    (
        BundleRole::Plain,
        &[
            "disabled",
            "latency_limit_us",
            "power_limit_w",
            "turbo_ratio",
            "arrivals",
            "tasks",
            "requests",
            "recorded_governor",
            "replicates",
            "seed",
        ],
    ),
    (OUTPUT, &["write_log", "check", "force", "command"]),
    (BundleRole::Form, &["csv"]),
];

impl Predict {
    /// Plays the recorded setting and all others, and prints what they do.
    pub fn run(self) -> Result<ExitCode> {
        threads::start();
        let choices = self.governors.choices_or(&["menu", "teo"])?;
        for (option, is_given) in
            [("--write-log", self.write_log.is_some()), ("--check", self.check.is_some())]
        {
            if is_given && choices.len() != 1 {
                return Err(Failure::new(format_args!("{option} takes exactly one --governor")));
            }
        }
        // Fail before minutes of playing, not after.
        let log = match &self.write_log {
            Some(path) => {
                let machine = Path::new(self.machine.as_deref().unwrap_or_default());
                let inputs = [self.recording.as_path(), machine];
                Some(SimulatedLog::create("--write-log", path, self.force, &inputs)?)
            }
            None => None,
        };
        let played = self.read(self.arrivals)?;
        let machine = match named_machine(self.machine.as_deref())? {
            Some(machine) => machine,
            None => played.machine.clone(),
        };
        let setting = self.setting(&machine)?;
        let machine = promoted(machine.clone(), self.promoting.states(), setting.disabled)?;
        let setting =
            Setting { machine: &machine, keeps_gaps: self.write_log.is_some(), ..setting };
        let changes = match (&self.check, self.command.is_empty()) {
            (Some(file), false) => self.changes(file, &choices[0].name(), &machine)?,
            _ => Vec::new(),
        };
        let replicates = Replicates { count: self.replicates, seed: self.seed };
        let standard = played.standard()?;
        let shown = self.shown(&played)?;
        let keep = |run: Outcome| (standard.compare(&run), Kept::new(run, &shown));
        let recorded = Setting::new(&played.machine);
        let base = played.play_each(&recorded, &played.choice, replicates, &keep)?;
        let (likenesses, base): (Vec<Reproduction>, Vec<Kept>) = base.into_iter().unzip();
        let reproduction = Reproduction::median(&likenesses);
        let overrides = self.overrides()?;
        played.must_vouch(&reproduction).map_err(|error| {
            let overrides: String = overrides.iter().map(|text| format!("{text}; ")).collect();
            Failure::new(format_args!(
                "{overrides}{}; {}",
                error.text(),
                self.other_arrivals(replicates)
            ))
        })?;
        if log.is_some() && !reproduction.vouches().idle {
            let misses = misses_text(&reproduction.misses());
            return Err(Failure::new(format_args!(
                "--write-log: the recording does not reproduce its idle gaps ({misses}), so what would have happened is \
                 not known; leave it out to see what can be predicted"
            )));
        }
        let base_name = format!("{}, as recorded", played.governor);
        let has_one_speed = is_own_machine(self.machine.as_deref()) && self.power_limit_w.is_none();
        let costs = has_one_speed.then(|| CostModel::of(&machine)).transpose();
        let costs = costs.map_err(Failure::new)?;
        let mut rows = Rows::new(&base_name, base, &shown, reproduction.vouches(), costs);
        let mut unplayed = Vec::new();
        let mut written = None;
        governors::must_decide(&choices)?;
        for choice in &choices {
            choice.on(&machine)?;
            if choice.is_oracle() {
                return Err(Failure::new(
                    "the oracle knows each gap in advance, and here gaps follow from what it decides",
                ));
            }
            let name = self.setting_name(&choice.name(), &machine);
            let keep = |run| Kept::new(run, &shown);
            match played.play_each(&setting, choice, replicates, &keep) {
                Ok(runs) if choice.failure().is_none() => {
                    let report =
                        rows.push(&name, runs).into_iter().next().and_then(|run| run.report);
                    written = written.or(Some((name, report)));
                }
                Ok(_) => {}
                // It could be played as recorded, so the others may be too.
                Err(error) => unplayed.push(Failure::new(format_args!(
                    "{}, with {name} on {}",
                    error.text(),
                    machine.id
                ))),
            }
        }
        if rows.runs.len() == 1
            && let Some(error) = unplayed.pop()
        {
            return Err(error);
        }
        for error in &unplayed {
            say(format_args!("idlewise: {}; it is left out", error.text()));
        }
        let failed =
            governors::say_failures(&choices, "its runs are left out") || !unplayed.is_empty();
        let mut out = screen::stdout();
        if let (Some(log), Some(path), Some((governor, Some(report)))) =
            (log, &self.write_log, written)
        {
            let gap_count = self.write(log, &played, &machine, &governor, &report)?;
            if !self.json && !self.csv {
                let (path, perfetto) = (screen::name(path), screen::name(&perfetto_path(path)));
                writeln!(out, "{path}: {}; {perfetto}", counted(gap_count, "gap"))?;
            }
        }
        let not_reproduced = rows.not_reproduced();
        let (runs, tasks) = rows.vouched();
        let (checked, throughput) = match (&self.check, runs.get(1)) {
            // The recorded setting's row is the first.
            (Some(file), Some(run)) => {
                if !self.command.is_empty() {
                    check::record(&changes, &self.command, file, self.force)?;
                }
                let name = choices[0].name();
                let disabled = check::state_names(&self.disabled, &machine)?;
                let asked = check::Asked { tasks: &self.tasks, requests: &self.requests };
                let reading = self.reading();
                let changed = check::Changed {
                    governor: &name,
                    disabled: &disabled,
                    latency_limit_us: self.latency_limit_us,
                };
                let measured = check::measured(&played, file, &reading, &changed, &asked)?;
                (Checked::figures(run, &tasks, &measured), Some(measured.throughput))
            }
            _ => (Vec::new(), None),
        };
        let answer = Answer {
            played: &played,
            reproduction,
            not_reproduced,
            runs,
            tasks,
            checked,
            throughput,
            machine: &machine,
            overrides,
        };
        self.print(&mut out, &answer)?;
        let is_outside = answer.checked.iter().any(|figure| figure.is_within() == Some(false));
        Ok(if failed || is_outside { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Writes what a run did. Returns how many gaps it has.
    fn write(
        &self,
        log: SimulatedLog,
        played: &Played,
        machine: &Machine,
        governor: &str,
        report: &Report,
    ) -> Result<usize> {
        let mut doubts = played.workload.hardware(machine).replay_doubts();
        if is_own_machine(self.machine.as_deref())
            && !played.workload.exit_quantiles(machine).is_empty()
        {
            let parameters = "the exit latencies that the recording shows".to_owned();
            doubts.push(Doubt::SimulatedCosts { parameters });
        }
        if !self.disabled.is_empty() {
            let flags = self.disabled.iter().map(|state| format!("--disable {state}"));
            doubts.push(Doubt::SimulatedDisabled { options: flags.collect::<Vec<_>>().join(" ") });
        }
        let about = About {
            command: format!("idlewise predict {}", input::short_name(&self.recording)),
            machine,
            hz: played.workload.hardware(machine).hz as u32,
            governor,
            cpu_count: played.workload.cpu_count(),
            duration_ns: report.duration_ns,
            topology: None,
            doubts,
        };
        log.write(report, about)?;
        Ok(report.gaps.len())
    }

    fn read(&self, arrivals: AskedArrivals) -> Result<Played> {
        let log = input::workload(&self.recording, &self.reading(), &self.recorded()?)?;
        let arrivals = match arrivals {
            AskedArrivals::Open => Arrivals::Open,
            AskedArrivals::Closed => Arrivals::Closed,
        };
        let mut played = Played::new(&self.recording, log, self.recorded()?, arrivals)?;
        if let Some(power_w) = self.power_limit_w {
            played.share(Budget { power_w, turbo_ratio: self.turbo_ratio })?;
        }
        Ok(played)
    }

    fn reading(&self) -> Reading<'_> {
        Reading { purpose: Purpose::Causes, unpacking: self.unpacking.into(), ..Reading::default() }
    }

    fn recorded(&self) -> Result<RecordedMachine> {
        let machine = self.recorded_machine.as_deref().map(bundled::machine).transpose()?;
        Ok(RecordedMachine { governor: self.recorded_governor.clone(), machine })
    }

    /// Where the options override what the recording says of itself.
    fn overrides(&self) -> Result<Vec<String>> {
        let mut overrides = Vec::new();
        if self.recorded_governor.is_none() && self.recorded_machine.is_none() {
            return Ok(overrides);
        }
        let (asked, said) =
            (self.recorded()?, input::said_machine(&self.recording, &self.reading())?);
        if let (Some(asked), Some(said)) = (asked.governor, said.governor)
            && asked != said
        {
            overrides.push(format!(
                "--recorded-governor {asked} overrides {said}, which the recording names"
            ));
        }
        let states = |machine: &Machine| {
            let state = |state: &MachineState| {
                format!(
                    "{} {}/{}",
                    state.name,
                    state.exit_latency_ns / 1_000,
                    state.target_residency_ns / 1_000
                )
            };
            machine.states.iter().map(state).collect::<Vec<_>>().join(", ")
        };
        if let (Some(asked), Some(said)) = (asked.machine, said.machine)
            && states(&asked) != states(&said)
        {
            overrides.push(format!(
                "--recorded-machine {} overrides the recording's idle states: {} (exit latency/target residency in us)",
                asked.id,
                states(&said),
            ));
        }
        Ok(overrides)
    }

    /// Whether a recording that does not reproduce itself does so with the other arrivals.
    fn other_arrivals(&self, replicates: Replicates) -> String {
        let other = match self.arrivals {
            AskedArrivals::Open => AskedArrivals::Closed,
            AskedArrivals::Closed => AskedArrivals::Open,
        };
        let reproduces = || -> Result<()> {
            let played = self.read(other)?;
            played.must_vouch(&played.compared(replicates)?)
        };
        match reproduces() {
            Ok(_) => format!("with --arrivals {other} it does"),
            Err(_) => format!("nor does it with --arrivals {other}"),
        }
    }

    /// What --check is to change here. Fails if it can't be changed, or if the recording can't be written.
    fn changes(
        &self,
        file: &Path,
        governor: &str,
        machine: &Machine,
    ) -> Result<Vec<settings::Setting>> {
        if file.exists() && !self.force {
            return Err(Failure::new(format_args!(
                "--check: {} exists; --force replaces it, and without a command it is what is compared",
                screen::name(file)
            )));
        }
        if file.canonicalize().is_ok_and(|file| Some(file) == self.recording.canonicalize().ok()) {
            return Err(Failure::new(format_args!(
                "--check: {} is the recording that is predicted from",
                screen::name(file)
            )));
        }
        if governor.contains(':') {
            return Err(Failure::new(format_args!(
                "--check: the kernel's governors have no options, so {governor} can't be run; give a recording of what is \
                 meant instead of a command"
            )));
        }
        let disabled = check::state_names(&self.disabled, machine)?;
        let changes = check::settings(governor, &disabled, self.latency_limit_us)?;
        settings::planned(&Root::live(), &changes).map_err(Failure::new)?;
        Ok(changes)
    }

    fn setting<'a>(&self, machine: &'a Machine) -> Result<Setting<'a>> {
        let disabled = disabled(machine, &self.disabled)?;
        let latency_limit_ns =
            self.latency_limit_us.map_or(NO_LATENCY_LIMIT_NS, |us| i64::from(us) * 1_000);
        let is_recorded_machine = is_own_machine(self.machine.as_deref());
        Ok(Setting { disabled, latency_limit_ns, is_recorded_machine, ..Setting::new(machine) })
    }

    /// A governor with what is changed beside it: `menu, C6 off`.
    fn setting_name(&self, governor: &str, machine: &Machine) -> String {
        let state_name = |state: &String| match machine.state_index(state) {
            Ok(index) => machine.states[index].name.clone(),
            Err(_) => state.clone(),
        };
        let off = self.disabled.iter().map(|state| format!("{} off", state_name(state)));
        let promoted = self.promoting.states().iter();
        let promoted = promoted.map(|state| format!("{} promoted", state_name(state)));
        let limit = self.latency_limit_us.map(|us| format!("at most {us} us"));
        let changes = off.chain(promoted).chain(limit);
        [governor.to_owned()].into_iter().chain(changes).collect::<Vec<_>>().join(", ")
    }

    /// The tasks to show by name, and the requests.
    fn shown(&self, played: &Played) -> Result<Vec<Shown>> {
        let recorded = Outcome::recorded(&played.workload);
        let name_of = |task: u32| {
            played.metadata.tasks.get(task as usize).map_or("", |task| task.name.as_str())
        };
        let mut by_name: BTreeMap<&str, (usize, Vec<u32>)> = BTreeMap::new();
        for (&task, latencies) in &recorded.by_task {
            let (count, tasks) = by_name.entry(name_of(task)).or_default();
            *count += latencies.count();
            tasks.push(task);
        }
        let known = || by_name.keys().copied().collect::<Vec<_>>().join(", ");
        for name in &self.tasks {
            if !by_name.contains_key(name.as_str()) {
                return Err(Failure::new(format_args!(
                    "--task {name}: no task of this name was woken; those that were: {}",
                    known()
                )));
            }
        }
        let mut shown = vec![Of::All];
        for asked in &self.requests {
            let (asks, answers) = asked.as_pair();
            let requests = played
                .workload
                .requests(&|task| name_of(task) == asks, &|task| name_of(task) == answers);
            if requests.is_empty() {
                return Err(Failure::new(format_args!(
                    "--request {asked}: nothing that {answers} does follows from {asks}; tasks that were \
                     woken: {}",
                    known()
                )));
            }
            shown.push(Of::Requests(asked.to_string(), requests));
        }
        let mut names: Vec<(&str, (usize, Vec<u32>))> = by_name.into_iter().collect();
        names.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
        match self.tasks.is_empty() {
            true if self.requests.is_empty() => names.truncate(SHOWN_TASK_COUNT),
            true => names.clear(),
            false => names.retain(|(name, _)| self.tasks.iter().any(|task| task == name)),
        }
        let tasks = names.into_iter();
        shown.extend(tasks.map(|(name, (_, tasks))| Of::Tasks(name.to_owned(), tasks)));
        Ok(shown.into_iter().map(|of| Shown::new(of, &recorded)).collect())
    }

    fn print(&self, out: &mut Screen, answer: &Answer<'_>) -> Result<()> {
        let Answer { played, reproduction, not_reproduced, runs, tasks, checked, machine, .. } =
            answer;
        let recorded_governor = &played.governor;
        let vouched = reproduction.vouches();
        if self.csv {
            out.write_all(task_table(tasks).to_csv().as_bytes())?;
            return Ok(());
        }
        let name = input::short_name(&self.recording);
        let title = format!(
            "{name} on {}: {} of {}, arrivals {}, {}",
            machine.id,
            counted(played.workload.step_count(), "step"),
            counted(played.metadata.tasks.iter().filter(|task| !task.is_idle).count(), "task"),
            self.arrivals,
            counted(self.replicates, "replicate")
        );
        let mut notes = self.notes(machine, played, vouched);
        if self.power_limit_w.is_some() {
            notes.basis(Basis::Assumed, "that power grows with frequency to the power of 2.5");
        } else {
            for (run, lost) in runs.iter().filter_map(PredictedRun::flips_at) {
                notes.doubt(format_args!(
                    "tasks run as fast as recorded: if CPUs that sleep less deeply leave {:.0} % less frequency to \
                     others, the gain of throughput with {run} is lost (--power-limit-w plays that)",
                    100.0 * lost
                ));
            }
        }
        for text in &answer.overrides {
            notes.doubt(text.clone());
        }
        if self.json {
            let like = |likeness: &Likeness| {
                json!({
                    "p50_ratio": likeness.p50_ratio,
                    "p99_ratio": likeness.p99_ratio,
                    "distance_ratio": likeness.distance,
                })
            };
            let of_task = |(task, off): &(&str, Reproduction)| json!({ "task": task, "misses": misses_text(&off.reasons()) });
            let document = json!({
                "log": name,
                "machine": machine.id,
                "arrivals": self.arrivals.to_string(),
                "replicate_count": self.replicates,
                "recorded_governor": recorded_governor,
                "reproduction": {
                    "throughput_ratio": reproduction.throughput_ratio,
                    "wake_count_ratio": reproduction.wake_count_ratio,
                    "latency": like(&reproduction.latency),
                    "gap": like(&reproduction.gap),
                },
                "not_predicted": withheld_text(reproduction),
                "tasks_not_reproduced": not_reproduced.iter().map(of_task).collect::<Vec<_>>(),
                "runs": run_table("", runs),
                "tasks": task_table(tasks),
                "checked": checked.iter().map(Checked::json).collect::<Vec<_>>(),
                "tasks_without_throughput": answer.throughput.as_ref().map(|of| &of.unclear),
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
            });
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let style = TextStyle::for_stdout();
        let error = (100.0 * reproduction.error_max()).ceil();
        let figures = reproduction_text(reproduction);
        let itself = match withheld_text(reproduction) {
            Some(withheld) => format!("{withheld} In all: {figures}"),
            None => format!(
                "The recording reproduces itself under {recorded_governor} to {error:.0} %: {figures}"
            ),
        };
        let elsewhere = (!is_own_machine(self.machine.as_deref())).then_some(machine.id.as_str());
        let verdicts = verdicts(runs, machine.power_basis(), elsewhere);
        for verdict in verdicts.iter().take(VERDICT_COUNT_MAX) {
            writeln!(out, "{}", wrap(verdict, style.width, 2))?;
        }
        writeln!(out, "{}", wrap(&itself, style.width, 2))?;
        if let Some(text) = not_reproduced_text(not_reproduced) {
            writeln!(out, "{}", wrap(&text, style.width, 2))?;
        }
        writeln!(out)?;
        if let (Some(file), false) = (&self.check, checked.is_empty()) {
            let title = format!("Measured once: {}", screen::name(file));
            writeln!(out, "{}", checked_table(&title, checked).to_text(&style))?;
            if let Some(text) = answer.throughput.as_ref().and_then(unclear_text) {
                writeln!(out, "{}\n", wrap(&text, style.width, 0))?;
            }
        }
        writeln!(out, "{}", run_table(&title, runs).to_text(&style))?;
        writeln!(out, "{}", task_table(tasks).to_text(&style))?;
        out.write_all(notes.to_text(style.width).as_bytes())?;
        Ok(())
    }

    fn notes(&self, machine: &Machine, played: &Played, vouched: Vouched) -> Notes {
        let mut notes = self.doubts.notes();
        if let Some(recorded) = &played.metadata.machine {
            for (state, shown_ns, table_ns) in played.workload.doubtful_exits_ns(recorded) {
                notes.doubt(format_args!(
                    "wake-ups from {} show an exit of {} us, and its table says {} us: something else may hide it, and \
                     figures for other states or another machine would then be wrong",
                    recorded.states[state].name,
                    shown_ns as f64 / 1e3,
                    table_ns as f64 / 1e3,
                ));
            }
        }
        notes.basis(Basis::Simulated, "all figures above");
        notes.basis(Basis::Measured, "what tasks run, and what wakes them");
        match vouched.idle {
            true => add_machine(&mut notes, machine, ""),
            // No figure rests on powers.
            false => {
                let doubts = machine.doubts();
                let others = doubts.iter().filter(|doubt| doubt.powers().is_none());
                notes.machine_doubts(&machine.id, others);
            }
        }
        notes
    }
}
