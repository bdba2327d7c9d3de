//! `idlewise measure ipi`: the cost of waking an idle CPU from each idle state.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use idlewise_host::ipi::{Case, MeasurementPlan, Sample, Waker, Wishes, measure};
use idlewise_host::{Relation, Root, is_virtual_machine};
use idlewise_report::forced::SortedSpans;
use idlewise_report::ipi::{
    IpiCycles, IpiFigures, measure_ipi_all_table, measure_ipi_histogram, measure_ipi_table,
};
use idlewise_report::saved::{Block, SavedSeries};
use idlewise_report::{Notes, TextStyle};
use serde_json::json;

use super::proxy::{By, Output, facts, places, plan_without_module, run_ipi};
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
  # From the first CPU to one of each relation (SMT sibling, shared cache, package, another
  # package), out of each idle state
  sudo modprobe idlewise_bench
  sudo idlewise measure ipi

  # Two states of one CPU, with a histogram
  sudo idlewise measure ipi --source 0 --target 2 --state C1,C6 --histogram

  # Deep states want longer gaps; every wake for tools of yours
  sudo idlewise measure ipi --state C6 --gap-us 5000 --samples c6.csv

  # What the governor makes of it, nothing forced
  sudo idlewise measure ipi --state configured

  # Before and after a change; the table of published patches, with intervals
  sudo idlewise measure ipi --json > before.json
  idlewise compare before.json after.json

  # Without the module: proxies, which include system calls and the scheduler
  idlewise measure ipi --by user-space

A state is forced by disabling the others of the CPU in sysfs. They are put back at the end, whatever ends
it, SIGKILL included; `idlewise settings status` shows them meanwhile.
The kernel may refuse a state all the same, so `in state` says how often it was really entered.

The kernel module idlewise_bench (kernel/README.md) and root are needed, except for the proxies, whose
tables and JSON have names of their own. Measure on an idle machine.

Ctrl-c ends it early and prints what there is.

Exit status: 0; 130 if a signal ended it; 2 if nothing could be measured.";

/// Measure wake-ups of an idle CPU by function call IPIs, from each idle state
///
/// Prints percentiles of the wake latency (from before a call is sent to the CPU's first instruction
/// outside its idle state), of the time until the called function runs, and of the sender's cost while
/// the CPU is idle, waking up, or busy. The kernel module idlewise_bench measures them in TSC cycles.
/// Where it is not loaded, a futex wake and a membarrier stand in for the IPI, and are labelled as proxies.
/// `idlewise measure timer` measures interrupt latency.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Ipi {
    /// The CPU that sends [default: the first one that this process may run on]
    #[arg(long, value_name = "CPU")]
    source: Option<u16>,

    /// The CPUs to wake [default: the first one of each relation to the source]
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    target: Vec<u16>,

    /// The idle states to force, one after the other; `all` means each enabled one, `configured` means to
    /// force none
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all")]
    state: Vec<String>,

    /// Wakes of each CPU out of each state
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,

    /// Microseconds between wakes, in which the CPU goes idle
    #[arg(long, value_name = "US", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    gap_us: u32,

    /// Stop after so many seconds, and print what there is
    #[arg(long, value_name = "SECONDS", value_parser = time_limit)]
    time_limit: Option<Duration>,

    /// What measures
    #[arg(long, value_enum, default_value_t = By::Auto)]
    by: By,

    /// Show the wake latencies as bars too; the module's only
    #[arg(long)]
    histogram: bool,

    /// Write every wake to this CSV file
    #[arg(long, value_name = "FILE")]
    samples: Option<PathBuf>,

    /// Replace the file of --samples if it exists
    #[arg(long)]
    force: bool,

    /// Print JSON instead of text
    #[arg(long, conflicts_with = "histogram")]
    json: bool,

    /// Print the line of each CPU and state as CSV
    #[arg(long, conflicts_with_all = ["json", "histogram"])]
    csv: bool,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

impl Ipi {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let root = root(self.sysroot.as_deref())?;
        let output = match &self.samples {
            Some(path) => Some(output::create(path, self.force, &[])?),
            None => None,
        };
        let plan = MeasurementPlan::new(&root, &self.wishes()?).map_err(Failure::new)?;
        if let Some(why) = self.by.user_space(&root)? {
            if self.histogram {
                return Err(Failure::new(format_args!(
                    "--histogram shows what the kernel module measures, and {why}; leave it out"
                )));
            }
            let plan = plan_without_module(&root, &self.wishes()?)?;
            let Self { json, csv, time_limit, .. } = self;
            let output = Output { json, csv, samples: output, time_limit };
            return run_ipi(&root, &plan, &why, output);
        }
        let measured = measured(&root, &plan, &owner("ipi"), self.time_limit, measure)?;
        let Some(Measured { cases, end }) = measured else { return Ok(End::Signal.status()) };
        let is_guest = is_virtual_machine(&root);
        let measured = "wake latencies, what sending cost, idle entries";
        let notes = notes(measured, &plan, &cases, end, is_guest);
        let figures: Vec<IpiFigures> = cases.iter().map(figures).collect();
        // If the disk is full only the file is lost. The results are still printed.
        let written = write_samples(output, |file| write_lines(file, &plan, &cases));
        match (self.json, self.csv) {
            (true, _) => print_json(&root, &plan, &cases, &figures, &notes)?,
            (_, true) => print_csv(&measure_ipi_all_table("", &figures), &notes)?,
            _ => self.print_text(&plan, &figures, &notes)?,
        }
        written.map(|()| end.status())
    }

    fn wishes(&self) -> Result<Wishes, Failure> {
        Ok(Wishes {
            waker: Waker::Cpu(self.source),
            targets: self.target.clone(),
            states: wished_states(&self.state)?,
            wake_count: self.count,
            gap_us: self.gap_us,
        })
    }

    fn print_text(&self, plan: &MeasurementPlan, figures: &[IpiFigures], notes: &Notes) -> io::Result<()> {
        let mut out = screen::stdout();
        let style = TextStyle::for_stdout();
        let MeasurementPlan { wake_count, gap_us, .. } = plan;
        let source = source(plan);
        let how = format!("{wake_count} wakes by CPU {source}, {gap_us} us apart, measured");
        for one in figures {
            let title = format!("{}: {how}", one.title());
            writeln!(out, "{}", measure_ipi_table(&title, one).to_text(&style))?;
            if self.histogram {
                writeln!(out, "{}", measure_ipi_histogram(one))?;
            }
        }
        let title = format!("All of them: {how}; table's exit: declared by the driver");
        write!(out, "{}", measure_ipi_all_table(&title, figures).to_text(&style))?;
        write!(out, "{}", notes.to_text(style.width))
    }
}

/// The CPU that wakes.
fn source(plan: &MeasurementPlan) -> String {
    plan.source.map_or_else(String::new, |cpu| cpu.to_string())
}

fn print_json(
    root: &Root,
    plan: &MeasurementPlan,
    cases: &[Case],
    figures: &[IpiFigures],
    notes: &Notes,
) -> io::Result<()> {
    let case = |(case, figures): (&Case, &IpiFigures)| {
        json!({
            "target": case.target,
            "relation": figures.relation,
            "state": figures.forced.state,
            "is_forced": case.state.index.is_some(),
            "exit_latency_ns": figures.forced.exit_latency_ns,
            "tsc_khz": figures.tsc_khz,
            "wake_count": case.samples.samples.len(),
            "given_up_count": figures.given_up_count,
            "idle_entry_counts": entry_counts(case),
            "forced_entry_ratio": figures.forced.forced_entry_ratio,
            "percentiles": measure_ipi_table("", figures),
        })
    };
    let document = json!({
        "source": plan.source,
        "gap_us": plan.gap_us,
        "is_virtual_machine": is_virtual_machine(root),
        "cases": cases.iter().zip(figures).map(case).collect::<Vec<_>>(),
        "all": measure_ipi_all_table("", figures),
    });
    let places = places(plan);
    let series = cases.iter().flat_map(|case| series(case, &places[&case.target]));
    let document = saved("ipi", &facts(root, plan), series, notes, document);
    screen::stdout().json(SCHEMA, &document)
}

/// The figures of each wake, in the form in which measurements are saved.
fn series(case: &Case, place: &str) -> [SavedSeries; 5] {
    // The module's frequency is not 0.
    let ns = |cycles: u64| {
        (u128::from(cycles) * 1_000_000 / u128::from(case.samples.tsc_khz)) as u64
    };
    let of = |figure: &str, cycles: fn(&Sample) -> u64| {
        let times_ns: Vec<u64> =
            case.samples.samples.iter().map(|sample| ns(cycles(sample))).collect();
        SavedSeries::times(figure, place, case.state.name.as_str(), Block::divided(&times_ns))
    };
    [
        of("wake latency", |sample| sample.wake_cycles),
        of("call latency", |sample| sample.call_cycles),
        of("send cost, idle CPU", |sample| sample.idle_cycles.into()),
        of("send cost, waking CPU", |sample| sample.waking_cycles.into()),
        of("send cost, busy CPU", |sample| sample.busy_cycles.into()),
    ]
}

fn figures(case: &Case) -> IpiFigures {
    let sorted =
        |field: fn(&Sample) -> u64| SortedSpans::new(case.samples.samples.iter().map(field));
    IpiFigures {
        forced: super::forced_state(case),
        relation: case.relation.map(Relation::as_str),
        given_up_count: case.samples.given_up_count,
        tsc_khz: case.samples.tsc_khz,
        cycles: IpiCycles {
            wake: sorted(|sample| sample.wake_cycles),
            call: sorted(|sample| sample.call_cycles),
            idle: sorted(|sample| sample.idle_cycles.into()),
            waking: sorted(|sample| sample.waking_cycles.into()),
            busy: sorted(|sample| sample.busy_cycles.into()),
        },
    }
}

/// Writes a line for each wake in cycles, with the frequency for converting them to times.
fn write_lines(file: &mut dyn Write, plan: &MeasurementPlan, cases: &[Case]) -> io::Result<()> {
    let source = source(plan);
    writeln!(
        file,
        "source,target,state,tsc_khz,wake_cycles,call_cycles,send_idle_cycles,send_waking_cycles,\
         send_busy_cycles"
    )?;
    for case in cases {
        let (target, state, tsc_khz) = (case.target, &case.state.name, case.samples.tsc_khz);
        for sample in &case.samples.samples {
            let Sample { wake_cycles, call_cycles, idle_cycles, waking_cycles, busy_cycles } =
                sample;
            writeln!(
                file,
                "{source},{target},{state},{tsc_khz},{wake_cycles},{call_cycles},{idle_cycles},\
                 {waking_cycles},{busy_cycles}"
            )?;
        }
    }
    Ok(())
}
