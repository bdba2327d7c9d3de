//! `idlewise measure`: the cost of waking a CPU or a thread on this machine.
//!
//! | file | holds |
//! | --- | --- |
//! | `ipi.rs` | `measure ipi`: wake latency and the sender's cost, one CPU waking another |
//! | `timer.rs` | `measure timer`: interrupt latency of a CPU's own timers |
//! | `states/` | `measure states`: how long leaving each idle state takes |
//! | `energy.rs` | `measure residency` and `measure power`: what idle states draw, and when they pay |
//! | `wakes.rs` | `measure wakes`: who wakes idle CPUs, and how |
//! | `park.rs` | `measure park`: ways to wait for another thread, side by side |
//! | `proxy.rs` | the first two from user space, where there is no module |
//! | `switch.rs` | `measure switch`: two threads that pass a token |
//! | `counters.rs` | `measure counters`: counters of the processor and of the kernel |
//! | `saving.rs` | what all saved measurements have in common |
//!
//! The first two force one idle state after another. Their common parts are in this file.

mod counters;
#[cfg(target_os = "linux")]
mod energy;
mod ipi;
#[cfg(target_os = "linux")]
pub mod park;
mod proxy;
pub(super) mod saving;
#[cfg(target_os = "linux")]
mod states;
mod switch;
mod timer;
mod wakes;

use std::cell::Cell;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use idlewise_host::Root;
use idlewise_host::ipi::{Case, IpiError, MeasurementPlan, StateWish, Wakes, Watch};
use idlewise_host::settings::Owner;
use idlewise_report::forced::{FORCED_RATIO_MIN, ForcedState};
use idlewise_report::{Notes, Table, TextStyle};
use idlewise_sim::Basis;
use idlewise_trace::OutputFile;
use serde_json::json;

use crate::error::Failure;
use crate::progress::Progress;
use crate::screen::{self, say};
use crate::signals::Signals;

/// The exit status that a shell reports for a command ended by ctrl-c.
const STATUS_STOPPED: u8 = 130;

/// Who measures for longer is told how long.
const LONG: Duration = Duration::from_secs(5);

/// Measure what wake-ups and switches cost on this machine, and count what its CPUs do
#[derive(clap::Args)]
pub struct Measure {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    #[cfg(target_os = "linux")]
    States(states::States),
    #[cfg(target_os = "linux")]
    Residency(energy::Residency),
    #[cfg(target_os = "linux")]
    Power(energy::Power),
    Ipi(ipi::Ipi),
    Timer(timer::Timer),
    Switch(switch::Switch),
    Counters(counters::Counters),
    Wakes(wakes::Wakes),
    #[cfg(target_os = "linux")]
    Park(park::Park),
}

impl Measure {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode, Failure> {
        saving::begin();
        match self.what {
            #[cfg(target_os = "linux")]
            What::States(states) => states.run(),
            #[cfg(target_os = "linux")]
            What::Residency(residency) => residency.run(),
            #[cfg(target_os = "linux")]
            What::Power(power) => power.run(),
            What::Ipi(ipi) => ipi.run(),
            What::Timer(timer) => timer.run(),
            What::Switch(switch) => switch.run(),
            What::Counters(counters) => counters.run(),
            What::Wakes(wakes) => wakes.run(),
            #[cfg(target_os = "linux")]
            What::Park(park) => park.run(),
        }
    }
}

/// The states named by `--state`.
fn wished_states(names: &[String]) -> Result<StateWish, Failure> {
    match &names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["all"] => Ok(StateWish::All),
        ["configured"] => Ok(StateWish::Configured),
        names if names.contains(&"all") || names.contains(&"configured") => {
            Err(Failure::new("--state: `all` and `configured` stand alone"))
        }
        names => Ok(StateWish::Named(names.iter().map(|&name| name.to_owned()).collect())),
    }
}

/// What was measured, and why it is not all that was planned.
struct Measured<S> {
    cases: Vec<Case<S>>,
    end: End,
}

/// How a measurement ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// As planned.
    Whole,
    /// At the time limit.
    Late,
    /// By a signal.
    Signal,
}

impl End {
    /// The exit status if the results could be printed.
    fn status(self) -> ExitCode {
        match self {
            End::Whole | End::Late => ExitCode::SUCCESS,
            End::Signal => ExitCode::from(STATUS_STOPPED),
        }
    }
}

/// Measures with a progress bar. Ctrl-c or the time limit ends it with what there is; `None` if that is nothing, which has
/// been reported.
fn measured<S: Wakes>(
    root: &Root,
    plan: &MeasurementPlan,
    owner: &Owner,
    time_limit: Option<Duration>,
    measure: impl FnOnce(&Root, &MeasurementPlan, &Owner, &dyn Watch) -> Result<Vec<Case<S>>, IpiError>,
) -> Result<Option<Measured<S>>, Failure> {
    let wake_count = plan.total_wake_count();
    let gaps = Duration::from_micros(wake_count.saturating_mul(plan.gap_us.into()));
    let announcement = (gaps >= LONG).then(|| {
        format!(
            "idlewise: measuring {wake_count} wakes takes {} s at least; ctrl-c ends it early and prints what there is",
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
fn time_limit(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds from 0.1 to 1000000, such as 60".to_owned()),
    }
}

/// Who forces idle states. If this process is killed, its holder gives them back.
fn owner(what: &str) -> Owner {
    Owner { holder: crate::cmd::settings::holder(), ..Owner::running(&format!("idlewise measure {what}")) }
}

/// The progress bar and ctrl-c.
struct Follow {
    bar: Progress,
    signals: Signals,
    /// When to stop.
    ends_at: Option<Instant>,
    /// Said once something was measured, and so can be.
    announcement: Cell<Option<String>>,
}

impl Follow {
    fn new(bar: Progress, signals: Signals) -> Self {
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

fn forced_state<S>(case: &Case<S>) -> ForcedState {
    ForcedState {
        target: case.target,
        state: case.state.name.clone(),
        exit_latency_ns: case.state.exit_latency_ns,
        forced_entry_ratio: case.forced_entry_ratio(),
    }
}

/// The basis of the measurement and its doubts.
fn notes<S: Wakes>(
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
fn write_samples(
    output: Option<OutputFile>,
    write_lines: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
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
fn print_csv(table: &Table, notes: &Notes) -> io::Result<()> {
    write!(screen::stdout(), "{}", table.to_csv())?;
    write!(screen::stderr(), "{}", notes.to_text(TextStyle::for_stdout().width))
}

/// The entries of each state, as JSON.
fn entry_counts<S>(case: &Case<S>) -> serde_json::Map<String, serde_json::Value> {
    case.entry_counts.iter().map(|(name, count)| (name.clone(), json!(count))).collect()
}
