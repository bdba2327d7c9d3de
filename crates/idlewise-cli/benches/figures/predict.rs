//! Playing a workload log: events per second on one core, and what reading the steps adds.

use std::error::Error;
use std::sync::Arc;

use idlewise_core::{Governor, tick_period_ns};
use idlewise_linux::resolve;
use idlewise_machine::bundled;
use idlewise_sim::predict::{Arrivals, CausedWorkload as Recorded, Costs, play};
use idlewise_sim::simulate::{Hardware, Setup, simulate};
use idlewise_sim::workload::Workload;
use idlewise_trace::causes::{TaskInfo, WorkloadMetadata};

use crate::figure::{Figure, Goal, median, print, time};

const ROUND_COUNT: usize = 3;
const DURATION_NS: u64 = 1_000_000_000;

fn menu() -> Box<dyn Governor> {
    Box::new(resolve("menu-6.12").expect("menu-6.12 is a port").build(tick_period_ns(250)))
}

/// Simulates a workload, and plays its log on the same machine.
pub fn run_all() -> Result<(), Box<dyn Error>> {
    let machine = bundled("spr").ok_or("no machine spr")?;
    let mut figures = Vec::new();
    for name in ["context-switch2", "hackbench", "tcp-lat"] {
        let mut setup = Setup::new(&machine, &menu);
        let (package_count, core_count, thread_count) = (1, 16, 1);
        setup.hardware = Hardware { package_count, core_count, thread_count, ..setup.hardware };
        setup.keeps_steps = true;
        let workload = Workload::named(name)?;
        let load = workload.load(&setup.hardware.shape()?, &setup.hardware);
        let report = simulate(&setup, load, DURATION_NS, 1)?;
        let metadata = WorkloadMetadata {
            tasks: vec![TaskInfo::default(); report.tasks.spawned_count as usize],
            cpu_count: 16,
            last_at_ns: DURATION_NS as i64,
            hz: Some(250),
            ..WorkloadMetadata::default()
        };
        setup.keeps_steps = false;
        let (mut speeds, mut shares, mut event_count) = (Vec::new(), Vec::new(), 0);
        for _ in 0..ROUND_COUNT {
            let (prepared_in, recorded) =
                time(|| Recorded::new(&metadata, &report.steps, Arrivals::Open, Costs::Machine));
            let recorded = Arc::new(recorded?);
            let (played_in, run) = time(|| play(&recorded, &mut setup, 1));
            event_count = run?.report.map_or(0, |report| report.event_count);
            speeds.push(event_count as f64 / played_in.as_secs_f64() / 1e6);
            shares.push(prepared_in.as_secs_f64() / played_in.as_secs_f64());
        }
        let mut figure = |what: String, unit, measured, goal| {
            figures.push(Figure { what, unit, measured, goal });
        };
        figure(format!("{name}, 16 CPUs"), "M events/s", median(speeds), Goal::AtLeast(3.0));
        figure("  events".to_owned(), "M", event_count as f64 / 1e6, Goal::None);
        figure("  steps".to_owned(), "M", report.steps.len() as f64 / 1e6, Goal::None);
        figure("  preparing the steps".to_owned(), "× playing", median(shares), Goal::None);
    }
    print(
        "predict: one thread; a simulated second of a Xeon under menu 6.12, played again",
        &figures,
    );
    Ok(())
}
