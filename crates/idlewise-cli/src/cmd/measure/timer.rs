//! `idlewise measure timer`: how late an idle CPU's timers are in each idle state.

use std::io::{self, Write};
use std::process::ExitCode;

use idlewise_host::ipi::{Case, MeasurementPlan, TimerSamples, Waker, measure_timers};
use idlewise_host::{Root, is_virtual_machine};
use idlewise_report::Notes;
use idlewise_report::forced::SortedSpans;
use idlewise_report::saved::{Block, SavedSeries};
use idlewise_report::timer::{TimerFigures, measure_timer_table};
use serde_json::{Value, json};

use super::forced::{
    End, Measured, ModuleArguments, entry_counts, forced_state, measured, notes, owner,
    write_samples,
};
use super::proxy::{Output, facts, plan_without_module, run_timer};
use super::saving::saved;
use crate::error::{Failure, Result};

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
  idlewise lab compare timer.json timer.json --a POLL --b C0.2

  # Without the module: from the timer to a thread, as cyclictest measures it
  sudo idlewise measure timer --by user-space

A state is forced by disabling the others of the CPU in sysfs. They are put back at the end, \
whatever ends it, SIGKILL included; `idlewise set status` shows them meanwhile. The kernel may \
refuse a state all the same, so `in state` says how often it was really entered.

The kernel module idlewise_bench (kernel/README.md) and root are needed, except for the proxy, \
whose tables and JSON have names of their own. Measure on an idle machine.

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

    #[command(flatten)]
    common: ModuleArguments,
}

impl Timer {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        let (root, form) = (self.common.forced.root()?, self.common.forced.form());
        let output = self.common.samples()?;
        let wishes = self.common.wishes(Waker::Timer, &self.target)?;
        let plan = MeasurementPlan::new(&root, &wishes).map_err(Failure::new)?;
        let time_limit = self.common.time_limit;
        if let Some(why) = self.common.by.user_space(&root)? {
            let plan = plan_without_module(&root, &wishes)?;
            return run_timer(&root, &plan, &why, Output { form, samples: output, time_limit });
        }
        let measured = measured(&root, &plan, &owner("timer"), time_limit, measure_timers)?;
        let Some(Measured { cases, end }) = measured else { return Ok(End::Signal.status()) };
        let is_guest = is_virtual_machine(&root);
        let measured = "interrupt latencies, idle entries";
        let notes = notes(measured, &plan, &cases, end, is_guest);
        let figures: Vec<TimerFigures> = cases.iter().map(figures).collect();
        // If the disk is full only the file is lost. The results are still printed.
        let written = write_samples(output, |file| write_lines(file, &cases));
        form.print(
            &notes,
            &|title| measure_timer_table(title, &figures),
            || document(&root, &plan, &cases, &figures, &notes),
            |out, style| {
                let title = format!(
                    "{} timers of the CPU's own, set for {} us, measured; table's exit: declared by the driver",
                    plan.wake_count, plan.gap_us
                );
                write!(out, "{}", measure_timer_table(&title, &figures).to_text(style))
            },
        )?;
        written.map(|()| end.status())
    }
}

fn document(
    root: &Root,
    plan: &MeasurementPlan,
    cases: &[Case<TimerSamples>],
    figures: &[TimerFigures],
    notes: &Notes,
) -> Value {
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
    saved("timer", &facts, cases.iter().map(series), notes, document)
}

fn figures(case: &Case<TimerSamples>) -> TimerFigures {
    TimerFigures {
        forced: forced_state(case),
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
