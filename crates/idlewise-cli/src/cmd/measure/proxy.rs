//! `measure ipi` and `measure timer` from user space, where the kernel module is not loaded. What they
//! print are proxies, and says so.

use std::collections::HashMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use idlewise_host::ipi::{
    Case, MeasurementPlan, ProxySamples, Request, StateWish, Wishes, can_force, measure_by,
};
use idlewise_host::{Relation, Root, is_virtual_machine};
use idlewise_probe::{
    FutexWakes, allowed_cpus, futex_calls, futex_wakes, membarriers, timer_wakes,
};
use idlewise_report::Notes;
use idlewise_report::forced::{ForcedState, SortedSpans};
use idlewise_report::proxy::{
    IpiProxyFigures, TimerProxyFigures, ipi_proxy_table, timer_proxy_table,
};
use idlewise_trace::OutputFile;
use serde_json::json;

use super::forced::{End, Form, Measured, forced_state, measured, notes, owner, write_samples};
use super::saving::{Pair, machine_facts, saved};
use crate::error::{Failure, Result};

/// A plan for user space: without the right to force states nothing is forced, unless a state was
/// named.
pub fn plan_without_module(root: &Root, wishes: &Wishes) -> Result<MeasurementPlan> {
    let plan = MeasurementPlan::new(root, wishes).map_err(Failure::new)?;
    let is_forced = |plan: &MeasurementPlan| {
        plan.targets.iter().any(|target| {
            target.states.iter().any(|state| state.index.is_some()) && !can_force(root, target.cpu)
        })
    };
    let plan = match wishes.states == StateWish::All && is_forced(&plan) {
        false => plan,
        true => {
            let wishes = Wishes { states: StateWish::Configured, ..wishes.clone() };
            let mut plan = MeasurementPlan::new(root, &wishes).map_err(Failure::new)?;
            plan.doubts.push(
                "no idle state was forced, which only root may do: the figures are of whatever states \
                 the governor selected"
                    .to_owned(),
            );
            plan
        }
    };
    let allowed = allowed_cpus();
    let cpus = plan.targets.iter().map(|target| target.cpu).chain(plan.source);
    match cpus.into_iter().find(|cpu| !allowed.contains(&usize::from(*cpu))) {
        None => Ok(plan),
        Some(cpu) => Err(Failure::new(format_args!(
            "this process may not run on CPU {cpu}; name another, or change its affinity (taskset)"
        ))),
    }
}

/// How the results are printed.
pub struct Output {
    pub form: Form,
    pub samples: Option<OutputFile>,
    pub time_limit: Option<Duration>,
}

/// Measures proxies for wake-ups by another CPU.
pub fn run_ipi(root: &Root, plan: &MeasurementPlan, why: &str, output: Output) -> Result<ExitCode> {
    let source = usize::from(plan.source.unwrap_or_default());
    let gap = Duration::from_micros(plan.gap_us.into());
    let mut wake = |request: Request| {
        let target = usize::from(request.target);
        let FutexWakes { given_up_count, latencies_ns, sends_ns } =
            futex_wakes(source, target, request.wake_count, gap);
        Ok(ProxySamples { given_up_count, latencies_ns, sends_ns })
    };
    let measured =
        measured(root, plan, &owner("ipi"), output.time_limit, |root, plan, owner, watch| {
            measure_by(root, plan, owner, watch, &mut wake)
        })?;
    let Some(Measured { cases, end }) = measured else { return Ok(End::Signal.status()) };
    let mut notes = proxy_notes(root, plan, &cases, end, why);
    notes.doubt(
        "the futex wake includes the system calls' ends and the scheduler, and the membarrier an \
         acknowledgement; neither may be compared with what the module measures",
    );
    let calls_ns = SortedSpans::new(futex_calls(source, plan.wake_count).into_iter());
    let mut figures: Vec<IpiProxyFigures> = cases
        .iter()
        .map(|case| IpiProxyFigures {
            proxy: "futex wake",
            forced: forced_state(case),
            relation: case.relation.map(Relation::as_str),
            latencies_ns: case.samples.latencies_ns.clone(),
            sends_ns: SortedSpans::new(case.samples.sends_ns.iter().copied()),
            baseline_ns: calls_ns.clone(),
        })
        .collect();
    // Nobody goes idle in between, so the pause may be short. Signals are not handled meanwhile.
    let (count, pause) = (plan.wake_count.min(1_000), Duration::from_micros(20));
    for target in plan.targets.iter().filter(|_| end == End::Whole) {
        match membarriers(source, usize::from(target.cpu), count, pause) {
            Ok(found) => figures.push(IpiProxyFigures {
                proxy: "membarrier",
                forced: ForcedState {
                    target: target.cpu,
                    state: "running".to_owned(),
                    exit_latency_ns: None,
                    forced_entry_ratio: None,
                },
                relation: target.relation.map(Relation::as_str),
                latencies_ns: found.running_ns,
                sends_ns: SortedSpans::new(std::iter::empty()),
                baseline_ns: SortedSpans::new(found.alone_ns.into_iter()),
            }),
            Err(error) => notes.doubt(format!("no membarrier was measured: {error}")),
        }
    }
    let written = write_samples(output.samples, |file| write_ipi_lines(file, plan, &figures));
    let title = format!(
        "Proxies for IPIs, from user space: {} calls by CPU {source}, {} us apart, measured",
        plan.wake_count, plan.gap_us
    );
    let document = || {
        let places = places(plan);
        let series = figures.iter().map(|one| one.series(&places[&one.forced.target]));
        let document = json!({
            "is_proxy": true,
            "source": plan.source,
            "gap_us": plan.gap_us,
            "is_virtual_machine": is_virtual_machine(root),
            "all": ipi_proxy_table("", &figures),
        });
        saved("ipi proxy", &facts(root, plan), series, &notes, document)
    };
    let table = |title: &str| ipi_proxy_table(title, &figures);
    output.form.print(&notes, &table, document, |out, style| {
        write!(out, "{}", table(&title).to_text(style))
    })?;
    written.map(|()| end.status())
}

/// Measures a proxy for the interrupt latency of timers.
pub fn run_timer(
    root: &Root,
    plan: &MeasurementPlan,
    why: &str,
    output: Output,
) -> Result<ExitCode> {
    let gap = Duration::from_micros(plan.gap_us.into());
    let mut is_realtime = true;
    let mut wake = |request: Request| {
        let wakes = timer_wakes(usize::from(request.target), request.wake_count, gap);
        is_realtime &= wakes.is_realtime;
        Ok(ProxySamples { latencies_ns: wakes.late_ns, ..ProxySamples::default() })
    };
    let measured =
        measured(root, plan, &owner("timer"), output.time_limit, |root, plan, owner, watch| {
            measure_by(root, plan, owner, watch, &mut wake)
        })?;
    let Some(Measured { cases, end }) = measured else { return Ok(End::Signal.status()) };
    let mut notes = proxy_notes(root, plan, &cases, end, why);
    notes.doubt(
        "the time to a thread includes the handler and the scheduler, so it may not be compared with \
         the interrupt latency that the module measures",
    );
    if !is_realtime {
        notes.doubt(
            "the thread has no real-time priority, which only root may give: others delay it",
        );
    }
    let figures: Vec<TimerProxyFigures> = cases
        .iter()
        .map(|case| TimerProxyFigures {
            forced: forced_state(case),
            latencies_ns: case.samples.latencies_ns.clone(),
        })
        .collect();
    let written = write_samples(output.samples, |file| write_timer_lines(file, &figures));
    let title = format!(
        "A proxy for the interrupt latency, from user space: {} timers of {} us, to the thread that \
         slept, measured",
        plan.wake_count, plan.gap_us
    );
    let document = || {
        let document = json!({
            "is_proxy": true,
            "gap_us": plan.gap_us,
            "is_virtual_machine": is_virtual_machine(root),
            "all": timer_proxy_table("", &figures),
        });
        let series = figures.iter().map(TimerProxyFigures::series);
        saved("timer proxy", &facts(root, plan), series, &notes, document)
    };
    let table = |title: &str| timer_proxy_table(title, &figures);
    output.form.print(&notes, &table, document, |out, style| {
        write!(out, "{}", table(&title).to_text(style))
    })?;
    written.map(|()| end.status())
}

fn proxy_notes(
    root: &Root,
    plan: &MeasurementPlan,
    cases: &[Case<ProxySamples>],
    end: End,
    why: &str,
) -> Notes {
    let measured = "proxies for wake latencies, idle entries";
    let mut notes = notes(measured, plan, cases, end, is_virtual_machine(root));
    notes.doubt(format!("measured from user space, because: {why}"));
    notes
}

/// Facts about the machine of a plan.
pub fn facts(root: &Root, plan: &MeasurementPlan) -> Vec<idlewise_report::saved::MachineFact> {
    let waiter_cpu = plan.targets.first().map_or(0, |target| target.cpu);
    machine_facts(root, Pair { waker_cpu: plan.source.unwrap_or(waiter_cpu), waiter_cpu })
}

/// The name of each target's place in saved series: its relation, which other machines have too, if
/// no other target has the same.
pub fn places(plan: &MeasurementPlan) -> HashMap<u16, String> {
    let name = |target: &idlewise_host::ipi::Target| {
        let is_alone =
            plan.targets.iter().filter(|one| one.relation == target.relation).count() == 1;
        match target.relation.filter(|_| is_alone) {
            Some(relation) => relation.as_str().to_owned(),
            None => format!("CPU {}", target.cpu),
        }
    };
    plan.targets.iter().map(|target| (target.cpu, name(target))).collect()
}

fn write_ipi_lines(
    file: &mut dyn Write,
    plan: &MeasurementPlan,
    figures: &[IpiProxyFigures],
) -> io::Result<()> {
    let source = plan.source.unwrap_or_default();
    writeln!(file, "proxy,source,target,state,proxy_latency_ns")?;
    for one in figures {
        for latency_ns in &one.latencies_ns {
            let (target, state) = (one.forced.target, &one.forced.state);
            writeln!(file, "{},{source},{target},{state},{latency_ns}", one.proxy)?;
        }
    }
    Ok(())
}

fn write_timer_lines(file: &mut dyn Write, figures: &[TimerProxyFigures]) -> io::Result<()> {
    writeln!(file, "target,state,timer_to_thread_ns")?;
    for one in figures {
        for latency_ns in &one.latencies_ns {
            writeln!(file, "{},{},{latency_ns}", one.forced.target, one.forced.state)?;
        }
    }
    Ok(())
}
