//! `idlewise measure`: the cost of waking a CPU or a thread on this machine.
//!
//! | file | holds |
//! | --- | --- |
//! | `ipi.rs` | `measure ipi`: wake latency and the sender's cost, one CPU waking another |
//! | `timer.rs` | `measure timer`: interrupt latency of a CPU's own timers |
//! | `states.rs` | `measure states`: how long leaving each idle state takes |
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
mod park;
mod proxy;
pub(super) mod saving;
#[cfg(target_os = "linux")]
mod states;
mod switch;
mod timer;
mod wakes;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use idlewise_host::Root;
use idlewise_host::ipi::{Case, IpiError, MeasurementPlan, StateWish, Watch};
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
    /// Try MWAITX, and die of it where it does not exist
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    ProbeMwaitx,
}

impl Measure {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode, Failure> {
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
            #[cfg(target_os = "linux")]
            What::ProbeMwaitx => park::try_instructions(),
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

/// Measures with a progress bar; `None` if ctrl-c stopped it, which has been reported.
fn measured<S>(
    root: &Root,
    plan: &MeasurementPlan,
    owner: &Owner,
    measure: impl FnOnce(&Root, &MeasurementPlan, &Owner, &dyn Watch) -> Result<Vec<Case<S>>, IpiError>,
) -> Result<Option<Vec<Case<S>>>, Failure> {
    let bar = Progress::wakes("measuring", plan.total_wake_count());
    // Catch signals before a state is forced, so that none can leave it forced.
    let watch = Follow { bar, signals: Signals::catch()? };
    let outcome = measure(root, plan, owner, &watch);
    watch.bar.finish();
    match outcome {
        Err(error @ IpiError::Stopped) => {
            say(format_args!("idlewise: {error}"));
            Ok(None)
        }
        outcome => Ok(Some(outcome?)),
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
}

impl Watch for Follow {
    fn wakes(&self, count: u64) {
        self.bar.add(count);
    }

    fn is_stopped(&self) -> bool {
        self.signals.has_ended()
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
fn notes<S>(
    measured: &str,
    plan: &MeasurementPlan,
    cases: &[Case<S>],
    given_up_count: fn(&S) -> u64,
    is_guest: bool,
) -> Notes {
    let mut notes = Notes::default();
    notes.basis(Basis::Measured, measured);
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
        match given_up_count(&case.samples) {
            0 => {}
            count => notes.doubt(format!(
                "CPU {cpu}: {count} more wakes out of {state} were given up, for it did not go idle; \
                 free it of other work"
            )),
        }
    }
    notes
}

impl From<IpiError> for Failure {
    fn from(error: IpiError) -> Self {
        Failure::new(error)
    }
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
