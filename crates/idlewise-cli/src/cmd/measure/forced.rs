//! What measurements have in common that force one idle state after another.

use std::cell::Cell;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use idlewise_host::ipi::{
    Case, IpiError, MeasurementPlan, StateWish, Waker, Wakes, Watch, Wishes, module_absence,
};
use idlewise_host::settings::Owner;
use idlewise_host::{Root, note};
use idlewise_machine::{Arch, Machine, MachineState};
use idlewise_report::forced::{FORCED_RATIO_MIN, ForcedState};
use idlewise_report::{Notes, Table, TextStyle, counted};
use idlewise_sim::Basis;
use idlewise_trace::OutputFile;
use serde_json::{Value, json};

use crate::error::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::screen::{self, Screen, say};
use crate::signals::Signals;
use crate::sysroot;

/// The exit status that a shell reports for a command ended by ctrl-c.
pub const STATUS_STOPPED: u8 = 130;
/// The schema version of `--json`.
pub const SCHEMA: u32 = 1;
/// Who measures for longer is told how long.
const LONG: Duration = Duration::from_secs(5);

/// The options of all of them.
#[derive(clap::Args)]
pub struct ForcedArguments {
    /// The idle states to measure; `all` means each enabled one, and `configured`, of ipi and timer, to force none
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all")]
    state: Vec<String>,

    /// Replace a file that exists
    #[arg(long)]
    force: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// Print a line for each state, and each CPU, as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

/// What a plan would write, of at least one file.
pub fn files_words(files: &[String]) -> String {
    match files {
        [only] => format!("Would write and put back: /{only}"),
        files => format!(
            "Would write and put back: {} files, /{} to /{}",
            files.len(),
            files[0],
            files[files.len() - 1]
        ),
    }
}

impl ForcedArguments {
    /// The machine.
    pub fn root(&self) -> Result<Root> {
        sysroot::root(self.sysroot.as_deref())
    }

    /// The states named by `--state`.
    pub fn states(&self) -> Result<StateWish> {
        wished_states(&self.state)
    }

    /// The same for a measurement that has to force some.
    pub fn forced_states(&self) -> Result<StateWish> {
        match self.states()? {
            StateWish::Configured => Err(Failure::new(
                "--state: `configured` holds CPUs in no state, so there is nothing to measure; name states or all",
            )),
            states => Ok(states),
        }
    }

    /// Creates a file of the user's.
    pub fn create(&self, path: &Path) -> Result<OutputFile> {
        output::create(path, self.force, &[])
    }

    /// The form of output.
    pub fn form(&self) -> Form {
        Form { json: self.json, csv: self.csv }
    }
}

fn wished_states(names: &[String]) -> Result<StateWish> {
    match &names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["all"] => Ok(StateWish::All),
        ["configured"] => Ok(StateWish::Configured),
        names if names.contains(&"all") || names.contains(&"configured") => {
            Err(Failure::new("--state: `all` and `configured` stand alone"))
        }
        names => Ok(StateWish::Named(names.iter().map(|&name| name.to_owned()).collect())),
    }
}

/// What measures.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// The kernel module if it is loaded, otherwise user space
    Auto,
    /// The kernel module idlewise_bench
    Module,
    /// This process: proxies, which include system calls and the scheduler
    UserSpace,
}

impl By {
    /// Whether to measure from user space, and why.
    pub fn user_space(self, root: &Root) -> Result<Option<String>> {
        match self {
            By::Module => Ok(None),
            By::UserSpace => Ok(Some("user space was asked for".to_owned())),
            By::Auto => match module_absence(root) {
                None => Ok(None),
                Some(
                    error @ (IpiError::NoDebugfs
                    | IpiError::NotLoaded
                    | IpiError::NotInstalled { .. }
                    | IpiError::NotPermitted { .. }
                    | IpiError::LockedDown { .. }),
                ) => Ok(Some(error.to_string())),
                Some(error) => Err(Failure::new(error)),
            },
        }
    }
}

/// The options of measurements that the kernel module can make.
#[derive(clap::Args)]
pub struct ModuleArguments {
    /// Wakes of each CPU out of each state
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,

    /// Microseconds between wakes, in which the CPU goes idle
    #[arg(long, value_name = "US", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    gap_us: u32,

    /// Stop after so many seconds, and print what there is
    #[arg(long, value_name = "SECONDS", value_parser = time_limit)]
    pub time_limit: Option<Duration>,

    /// What measures
    #[arg(long, value_enum, default_value_t = By::Auto)]
    pub by: By,

    /// Write every wake to this CSV file
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,

    #[command(flatten)]
    pub forced: ForcedArguments,
}

impl ModuleArguments {
    /// The file of --samples.
    pub fn samples(&self) -> Result<Option<OutputFile>> {
        self.samples.as_deref().map(|path| self.forced.create(path)).transpose()
    }

    /// What is to be measured.
    pub fn wishes(&self, waker: Waker, targets: &[u16]) -> Result<Wishes> {
        Ok(Wishes {
            waker,
            targets: targets.to_vec(),
            states: self.forced.states()?,
            wake_count: self.count,
            gap_us: self.gap_us,
        })
    }
}

/// How results are printed.
#[derive(Clone, Copy)]
pub struct Form {
    pub json: bool,
    pub csv: bool,
}

impl Form {
    /// Prints a measurement: its document, the table without a title as CSV, or `text` and the notes.
    pub fn print(
        self,
        notes: &Notes,
        table: &dyn Fn(&str) -> Table,
        document: impl FnOnce() -> Value,
        text: impl FnOnce(&mut Screen, &TextStyle) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.json {
            return screen::stdout().json(SCHEMA, &document());
        }
        if self.csv {
            return print_csv(&table(""), notes);
        }
        let mut out = screen::stdout();
        let style = TextStyle::for_stdout();
        text(&mut out, &style)?;
        write!(out, "{}", notes.to_text(style.width))
    }
}

/// What was measured, and why it is not all that was planned.
pub struct Measured<S> {
    pub cases: Vec<Case<S>>,
    pub end: End,
}

/// How a measurement ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As planned.
    Whole,
    /// At the time limit.
    Late,
    /// By a signal.
    Signal,
}

impl End {
    /// The exit status if the results could be printed.
    pub fn status(self) -> ExitCode {
        match self {
            End::Whole | End::Late => ExitCode::SUCCESS,
            End::Signal => ExitCode::from(STATUS_STOPPED),
        }
    }
}

/// Measures with a progress bar. Ctrl-c or the time limit ends it with what there is; `None` if that is nothing, which has
/// been reported.
pub fn measured<S: Wakes>(
    root: &Root,
    plan: &MeasurementPlan,
    owner: &Owner,
    time_limit: Option<Duration>,
    measure: impl FnOnce(&Root, &MeasurementPlan, &Owner, &dyn Watch) -> Result<Vec<Case<S>>, IpiError>,
) -> Result<Option<Measured<S>>> {
    let wake_count = plan.total_wake_count();
    let gaps = Duration::from_micros(wake_count.saturating_mul(plan.gap_us.into()));
    let announcement = (gaps >= LONG).then(|| {
        format!(
            "idlewise: measuring {} takes {} s at least; ctrl-c ends it early and prints what there is",
            counted(wake_count, "wake"),
            gaps.as_secs()
        )
    });
    let bar = Progress::wakes("measuring", wake_count);
    // Catch signals before a state is forced, so that none can leave it forced.
    let signals = Signals::catch()?;
    let ends_at = time_limit.map(|limit| Instant::now() + limit);
    let watch = Follow { bar, signals, ends_at, announcement: Cell::new(announcement) };
    let outcome = measure(root, plan, owner, &watch);
    watch.bar.finish();
    match outcome {
        Err(error @ IpiError::Stopped) => {
            say(format_args!("idlewise: {error}"));
            Ok(None)
        }
        outcome => {
            let cases = outcome.map_err(Failure::new)?;
            let found_count: u64 = cases.iter().map(|case| case.samples.wake_count()).sum();
            let end = match (found_count >= wake_count, watch.signals.has_ended()) {
                (true, _) => End::Whole,
                (false, true) => End::Signal,
                (false, false) => End::Late,
            };
            Ok(Some(Measured { cases, end }))
        }
    }
}

/// Parses a time limit in seconds.
pub fn time_limit(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds from 0.1 to 1000000, such as 60".to_owned()),
    }
}

/// Who forces idle states. If this process is killed, its holder restores them.
pub fn owner(what: &str) -> Owner {
    Owner {
        holder: crate::cmd::set::holder(),
        ..Owner::running(&format!("idlewise measure {what}"))
    }
}

/// The progress bar and ctrl-c.
pub struct Follow {
    pub bar: Progress,
    pub signals: Signals,
    /// When to stop.
    ends_at: Option<Instant>,
    /// Said once something was measured, and so can be.
    announcement: Cell<Option<String>>,
}

impl Follow {
    pub fn new(bar: Progress, signals: Signals) -> Self {
        Follow { bar, signals, ends_at: None, announcement: Cell::default() }
    }
}

impl Watch for Follow {
    fn wakes(&self, count: u64) {
        if let Some(announcement) = self.announcement.take() {
            say(announcement);
        }
        self.bar.add(count);
    }

    fn is_stopped(&self) -> bool {
        self.signals.has_ended() || self.ends_at.is_some_and(|ends_at| Instant::now() >= ends_at)
    }

    fn warn(&self, message: &str) {
        say(format_args!("idlewise: {message}"));
    }
}

pub fn forced_state<S>(case: &Case<S>) -> ForcedState {
    ForcedState {
        target: case.target,
        state: case.state.name.clone(),
        exit_latency_ns: case.state.exit_latency_ns,
        forced_entry_ratio: case.forced_entry_ratio(),
    }
}

/// The basis of the measurement and its doubts.
pub fn notes<S: Wakes>(
    measured: &str,
    plan: &MeasurementPlan,
    cases: &[Case<S>],
    end: End,
    is_guest: bool,
) -> Notes {
    let mut notes = Notes::default();
    notes.basis(Basis::Measured, measured);
    if end != End::Whole {
        let planned_count: usize = plan.targets.iter().map(|target| target.states.len()).sum();
        let last_count = cases.last().map_or(0, |case| case.samples.wake_count());
        notes.doubt(format!(
            "{} ended it early: {} of {planned_count} states of CPUs were measured, the last one by {last_count} of {} \
             wakes",
            if end == End::Signal { "a signal" } else { "the time limit" },
            cases.len(),
            plan.wake_count
        ));
    }
    if is_guest {
        notes.doubt(
            "this is a virtual machine: the figures are a guest's, with its hypervisor in them, and \
             say nothing of the processor's idle states",
        );
    }
    for doubt in &plan.doubts {
        notes.doubt(doubt);
    }
    for case in cases {
        let (cpu, state) = (case.target, &case.state.name);
        match case.forced_entry_ratio() {
            Some(ratio) if ratio < FORCED_RATIO_MIN => {
                let entered = case.entry_counts.iter().filter(|(_, count)| *count > 0);
                let entered: Vec<String> =
                    entered.map(|(name, count)| format!("{name} {count}")).collect();
                notes.doubt(format!(
                    "CPU {cpu}: only {:.1} % of its idle entries were into {state} (entries: {}), so \
                     its figures are not that state's: the driver, the governor or a latency limit \
                     refused it",
                    100.0 * ratio,
                    entered.join(", ")
                ));
            }
            None if case.state.index.is_some() => notes.doubt(format!(
                "CPU {cpu}: the kernel counted no idle entry while {state} was forced, so nobody knows \
                 whether it was entered"
            )),
            _ => {}
        }
        match case.samples.given_up_count() {
            0 => {}
            count => notes.doubt(format!(
                "CPU {cpu}: {count} more wakes out of {state} were given up, for it did not go idle; \
                 free it of other work"
            )),
        }
    }
    notes
}

/// Writes the file of `--samples`, if there is one.
pub fn write_samples(
    output: Option<OutputFile>,
    write_lines: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let Some(output) = output else { return Ok(()) };
    let mut file = BufWriter::new(output.file());
    write_lines(&mut file)
        .and_then(|()| file.flush())
        .map_err(|error| Failure::new(format_args!("{}: {error}", output.path().display())))?;
    drop(file);
    output.finish()?;
    Ok(())
}

/// Doubts go to standard error, so that standard output is only CSV.
pub fn print_csv(table: &Table, notes: &Notes) -> io::Result<()> {
    write!(screen::stdout(), "{}", table.to_csv())?;
    write!(screen::stderr(), "{}", notes.to_text(TextStyle::for_stdout().width))
}

/// The entries of each state, as JSON.
pub fn entry_counts<S>(case: &Case<S>) -> serde_json::Map<String, serde_json::Value> {
    case.entry_counts.iter().map(|(name, count)| (name.clone(), json!(count))).collect()
}

/// A machine with these states, otherwise as the kernel describes the CPU.
pub fn measured_machine(root: &Root, cpu: u16, states: &[MachineState]) -> Machine {
    let noted = note(root, String::new());
    let known = noted.tables.iter().find(|table| table.cpus.contains(&cpu));
    let mut machine = match known {
        Some(table) => table.machine.clone(),
        None => Machine::new("recorded", "a machine without a name", Arch::Other, "measured"),
    };
    machine.states = states.to_vec();
    machine.id = "measured".to_owned();
    machine.source = "measured".to_owned();
    machine
}

/// The text of a measured machine's file.
pub fn machine_text(machine: &Machine, measurement: &str) -> Result<String> {
    machine.check().map_err(Failure::new)?;
    let text = machine.to_toml().map_err(Failure::new)?;
    Ok(format!(
        "# Measured by `idlewise measure {measurement}`. machines/README.md of idlewise explains every field.\n\n{text}"
    ))
}
