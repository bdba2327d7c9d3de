//! The simulated machine: events per second on one core, a second of a large machine, the studies.

use std::error::Error;

use idlewise_core::{Governor, tick_period_ns};
use idlewise_linux::resolve;
use idlewise_machine::bundled;
use idlewise_sim::simulate::{Hardware, Report, Setup, simulate};
use idlewise_sim::workload::Workload;
use idlewise_study::{Given, STUDIES, Shelf};

use crate::figure::{Figure, Goal, median, print, time};

const ROUND_COUNT: usize = 3;

fn governor(id: &str, tick_period_ns: u32) -> Option<Box<dyn Governor>> {
    Some(Box::new(resolve(id)?.build(tick_period_ns)))
}

fn run(
    workload: &str,
    sets: &[(&str, &str)],
    shape: [u64; 3],
    duration_ns: u64,
) -> Result<Report, Box<dyn Error>> {
    let machine = bundled("spr").ok_or("no machine spr")?;
    let make = || governor("menu-6.12", tick_period_ns(250)).expect("menu-6.12 is a port");
    let mut setup = Setup::new(&machine, &make);
    let [package_count, core_count, thread_count] = shape;
    setup.hardware = Hardware { package_count, core_count, thread_count, ..setup.hardware };
    let mut workload = Workload::named(workload)?;
    for (key, value) in sets {
        workload.set(&mut setup.hardware, key, value)?;
    }
    let load = workload.load(&setup.hardware.shape()?, &setup.hardware);
    Ok(simulate(&setup, load, duration_ns, 1)?)
}

/// Times runs and studies.
pub fn run_all() -> Result<(), Box<dyn Error>> {
    let mut figures = Vec::new();
    let mut figure = |what: String, unit, measured, goal| {
        figures.push(Figure { what, unit, measured, goal });
    };
    for workload in ["context-switch2", "nearly-idle", "hackbench"] {
        let mut speeds = Vec::new();
        for _ in 0..ROUND_COUNT {
            let (taken, report) = time(|| run(workload, &[], [1, 8, 2], 200_000_000));
            speeds.push(report?.event_count as f64 / taken.as_secs_f64() / 1e6);
        }
        let speed = median(speeds);
        figure(format!("{workload}, 16 CPUs"), "M events/s", speed, Goal::AtLeast(5.0));
    }
    let groups = [("group_count", "8")];
    let (taken, report) = time(|| run("hackbench", &groups, [2, 56, 2], 1_000_000_000));
    let event_count = report?.event_count as f64;
    let seconds = taken.as_secs_f64();
    let what = "hackbench, 8 groups, 224 CPUs, 1 simulated second".to_owned();
    figure(what, "s", seconds, Goal::AtMost(60.0));
    figure("  of it".to_owned(), "M events", event_count / 1e6, Goal::None);
    figure("  which is".to_owned(), "M events/s", event_count / seconds / 1e6, Goal::None);
    let shelf = Shelf::new(&governor);
    for study in STUDIES {
        let (taken, page) = time(|| study.run(&shelf, &Given::default()));
        page?;
        figure(format!("lab study {}", study.name), "s", taken.as_secs_f64(), Goal::AtMost(10.0));
    }
    print("simulate: one thread; a simulated Xeon under menu 6.12", &figures);
    Ok(())
}
