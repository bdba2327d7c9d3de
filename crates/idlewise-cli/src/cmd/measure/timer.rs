//! `idlewise measure timer`: how late an idle CPU's timers are in each idle state.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use idlewise_host::ipi::{Case, MeasurementPlan, TimerSamples, Waker, Wishes, measure_timers};
use idlewise_host::{Root, is_virtual_machine};
use idlewise_report::forced::SortedSpans;
use idlewise_report::timer::{TimerFigures, measure_timer_table};
use idlewise_report::saved::{Block, SavedSeries};
use idlewise_report::{Notes, TextStyle};
use serde_json::json;

use super::proxy::{By, Output, facts, plan_without_module, run_timer};
use super::saving::saved;
use super::{
    End, Measured, entry_counts, measured, notes, owner, print_csv, time_limit, wished_states,
    write_samples,
};
use crate::error::Failure;
use crate::output;
use crate::screen;
use crate::sysroot::root;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # The interrupt latency of the first CPU, out of each idle state
  sudo modprobe idlewise_bench
  sudo idlewise measure timer

  # Two states side by side, as C0.2 was published (median and 99th percentile)
  sudo idlewise measure timer --state POLL,C0.2

  # Deep states want longer gaps; every timer for tools of yours
  sudo idlewise measure timer --state C6 --gap-us 5000 --samples c6.csv

  # What C0.2 costs beside POLL, with an interval
  sudo idlewise measure timer --state POLL,C0.2 --json > timer.json
  idlewise compare timer.json timer.json --a POLL --b C0.2

  # Without the module: from the timer to a thread, as cyclictest measures it
  sudo idlewise measure timer --by user-space

A state is forced by disabling the others of the CPU in sysfs. They are put back at the end, whatever ends
it, SIGKILL included; `idlewise settings status` shows them meanwhile.
The kernel may refuse a state all the same, so `in state` says how often it was really entered.

The kernel module idlewise_bench (kernel/README.md) and root are needed, except for the proxy, whose
tables and JSON have names of their own. Measure on an idle machine.

Exit status: 0; 130 if a signal ended it; 2 if nothing could be measured.";

/// Let an idle CPU's own timers wake it, out of each idle state
///
/// Prints percentiles of the interrupt latency: from the moment for which a timer of the CPU was set to
/// the first instruction of its handler there. Timers that do not find the CPU idle are not counted.
/// Measured by the kernel module idlewise_bench. Where it is not loaded, the time to a thread that sleeps
/// for the timer stands in for it, and is labelled as a proxy. For wakes by another CPU: `idlewise measure ipi`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Timer {
    /// The CPUs whose timers to measure [default: the first that this process may run on]
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    target: Vec<u16>,

    /// The idle states to force, one after the other; `all` means each enabled one, `configured` means to
    /// force none
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all")]
    state: Vec<String>,

    /// Timers of each CPU out of each state
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,

    /// Microseconds for which each timer is set, in which the CPU goes idle
    #[arg(long, value_name = "US", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    gap_us: u32,

    /// Stop after so many seconds, and print what there is
    #[arg(long, value_name = "SECONDS", value_parser = time_limit)]
    time_limit: Option<Duration>,

    /// What measures
    #[arg(long, value_enum, default_value_t = By::Auto)]
    by: By,

    /// Write every interrupt latency to this CSV file
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,

    /// Replace the file of --samples if it exists
    #[arg(long)]
    force: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// Print the line of each CPU and state as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

impl Timer {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let root = root(self.sysroot.as_deref())?;
        let output = match &self.samples {
            Some(path) => Some(output::create(path, self.force, &[])?),
            None => None,
        };
        let wishes = Wishes {
            waker: Waker::Timer,
            targets: self.target.clone(),
            states: wished_states(&self.state)?,
            wake_count: self.count,
            gap_us: self.gap_us,
        };
        let plan = MeasurementPlan::new(&root, &wishes).map_err(Failure::new)?;
        if let Some(why) = self.by.user_space(&root)? {
            let plan = plan_without_module(&root, &wishes)?;
            let Self { json, csv, time_limit, .. } = self;
            let output = Output { json, csv, samples: output, time_limit };
            return run_timer(&root, &plan, &why, output);
        }
        let measured = measured(&root, &plan, &owner("timer"), self.time_limit, measure_timers)?;
        let Some(Measured { cases, end }) = measured else { return Ok(End::Signal.status()) };
        let is_guest = is_virtual_machine(&root);
        let measured = "interrupt latencies, idle entries";
        let notes = notes(measured, &plan, &cases, end, is_guest);
        let figures: Vec<TimerFigures> = cases.iter().map(figures).collect();
        // If the disk is full only the file is lost. The results are still printed.
        let written = write_samples(output, |file| write_lines(file, &cases));
        match (self.json, self.csv) {
            (true, _) => print_json(&root, &plan, &cases, &figures, &notes)?,
            (_, true) => print_csv(&measure_timer_table("", &figures), &notes)?,
            _ => print_text(&plan, &figures, &notes)?,
        }
        written.map(|()| end.status())
    }
}

fn print_text(plan: &MeasurementPlan, figures: &[TimerFigures], notes: &Notes) -> io::Result<()> {
    let mut out = screen::stdout();
    let style = TextStyle::for_stdout();
    let title = format!(
        "{} timers of the CPU's own, set for {} us, measured; table's exit: declared by the driver",
        plan.wake_count, plan.gap_us
    );
    write!(out, "{}", measure_timer_table(&title, figures).to_text(&style))?;
    write!(out, "{}", notes.to_text(style.width))
}

fn print_json(
    root: &Root,
    plan: &MeasurementPlan,
    cases: &[Case<TimerSamples>],
    figures: &[TimerFigures],
    notes: &Notes,
) -> io::Result<()> {
    let case = |case: &Case<TimerSamples>| {
        json!({
            "target": case.target,
            "state": case.state.name,
            "is_forced": case.state.index.is_some(),
            "given_up_count": case.samples.given_up_count,
            "idle_entry_counts": entry_counts(case),
        })
    };
    let document = json!({
        "gap_us": plan.gap_us,
        "is_virtual_machine": is_virtual_machine(root),
        "cases": cases.iter().map(case).collect::<Vec<_>>(),
        "all": measure_timer_table("", figures),
    });
    let series = |case: &Case<TimerSamples>| {
        let blocks = Block::divided(&case.samples.interrupts_ns);
        let place = format!("CPU {}", case.target);
        SavedSeries::times("interrupt latency", place, case.state.name.as_str(), blocks)
    };
    let facts = facts(root, plan);
    let document = saved("timer", &facts, cases.iter().map(series), notes, document);
    screen::stdout().json(SCHEMA, &document)
}

fn figures(case: &Case<TimerSamples>) -> TimerFigures {
    TimerFigures {
        forced: super::forced_state(case),
        interrupts_ns: SortedSpans::new(case.samples.interrupts_ns.iter().copied()),
    }
}

/// Writes a line for each timer.
fn write_lines(file: &mut dyn Write, cases: &[Case<TimerSamples>]) -> io::Result<()> {
    writeln!(file, "target,state,interrupt_latency_ns")?;
    for case in cases {
        for interrupt_ns in &case.samples.interrupts_ns {
            writeln!(file, "{},{},{interrupt_ns}", case.target, case.state.name)?;
        }
    }
    Ok(())
}
