//! `idlewise measure ipi`: the cost of waking an idle CPU from each idle state.

use std::io::{self, Write};
use std::process::ExitCode;

use idlewise_host::ipi::{Case, MeasurementPlan, Sample, Waker, measure};
use idlewise_host::{Relation, Root, is_virtual_machine};
use idlewise_report::forced::SortedSpans;
use idlewise_report::ipi::{
    IpiCycles, IpiFigures, measure_ipi_all_table, measure_ipi_histogram, measure_ipi_table,
};
use idlewise_report::saved::{Block, SavedSeries};
use idlewise_report::{Notes, TextStyle, counted};
use serde_json::{Value, json};

use super::forced::{
    End, Measured, ModuleArguments, entry_counts, forced_state, measured, notes, owner,
    write_samples,
};
use super::proxy::{Output, facts, places, plan_without_module, run_ipi};
use super::saving::saved;
use crate::error::{Failure, Result};

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
  idlewise lab compare before.json after.json

  # Without the module: proxies, which include system calls and the scheduler
  idlewise measure ipi --by user-space

A state is forced by disabling the others of the CPU in sysfs. They are put back at the end, \
whatever ends it, SIGKILL included; `idlewise set status` shows them meanwhile. The kernel may \
refuse a state all the same, so `in state` says how often it was really entered.

The kernel module idlewise_bench (kernel/README.md) and root are needed, except for the proxies, \
whose tables and JSON have names of their own. Measure on an idle machine.

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

    /// Show the wake latencies as bars too; the module's only
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    histogram: bool,

    #[command(flatten)]
    common: ModuleArguments,
}

impl Ipi {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        let (root, form) = (self.common.forced.root()?, self.common.forced.form());
        let output = self.common.samples()?;
        let wishes = self.common.wishes(Waker::Cpu(self.source), &self.target)?;
        let plan = MeasurementPlan::new(&root, &wishes).map_err(Failure::new)?;
        let time_limit = self.common.time_limit;
        if let Some(why) = self.common.by.user_space(&root)? {
            if self.histogram {
                return Err(Failure::new(format_args!(
                    "--histogram shows what the kernel module measures, and {why}; leave it out"
                )));
            }
            let plan = plan_without_module(&root, &wishes)?;
            return run_ipi(&root, &plan, &why, Output { form, samples: output, time_limit });
        }
        let measured = measured(&root, &plan, &owner("ipi"), time_limit, measure)?;
        let Some(Measured { cases, end }) = measured else { return Ok(End::Signal.status()) };
        let is_guest = is_virtual_machine(&root);
        let measured = "wake latencies, what sending cost, idle entries";
        let notes = notes(measured, &plan, &cases, end, is_guest);
        let figures: Vec<IpiFigures> = cases.iter().map(figures).collect();
        // If the disk is full only the file is lost. The results are still printed.
        let written = write_samples(output, |file| write_lines(file, &plan, &cases));
        form.print(
            &notes,
            &|title| measure_ipi_all_table(title, &figures),
            || document(&root, &plan, &cases, &figures, &notes),
            |out, style| self.write_text(out, style, &plan, &figures),
        )?;
        written.map(|()| end.status())
    }

    fn write_text(
        &self,
        out: &mut dyn Write,
        style: &TextStyle,
        plan: &MeasurementPlan,
        figures: &[IpiFigures],
    ) -> io::Result<()> {
        let MeasurementPlan { wake_count, gap_us, .. } = plan;
        let source = source(plan);
        let how =
            format!("{} by CPU {source}, {gap_us} us apart, measured", counted(wake_count, "wake"));
        for one in figures {
            let title = format!("{}: {how}", one.title());
            writeln!(out, "{}", measure_ipi_table(&title, one).to_text(style))?;
            if self.histogram {
                writeln!(out, "{}", measure_ipi_histogram(one))?;
            }
        }
        let title = format!("All of them: {how}; table's exit: declared by the driver");
        write!(out, "{}", measure_ipi_all_table(&title, figures).to_text(style))
    }
}

/// The CPU that wakes.
fn source(plan: &MeasurementPlan) -> String {
    plan.source.map_or_else(String::new, |cpu| cpu.to_string())
}

fn document(
    root: &Root,
    plan: &MeasurementPlan,
    cases: &[Case],
    figures: &[IpiFigures],
    notes: &Notes,
) -> Value {
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
    saved("ipi", &facts(root, plan), series, notes, document)
}

/// The figures of each wake, in the form in which measurements are saved.
fn series(case: &Case, place: &str) -> [SavedSeries; 5] {
    // The module's frequency is not 0.
    let ns =
        |cycles: u64| (u128::from(cycles) * 1_000_000 / u128::from(case.samples.tsc_khz)) as u64;
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
        forced: forced_state(case),
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
