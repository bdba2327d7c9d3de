//! The plan of `idlewise measure states`, in words and as JSON.

use std::io::Write;
use std::process::ExitCode;

use idlewise_host::states::{Baseline, HeldCpu, HeldState, StatesPlan, WakeBy};
use idlewise_report::{TextStyle, counted, wrap};
use serde_json::{Value, json};

use super::super::forced::{SCHEMA, files_words};
use crate::error::Result;
use crate::screen;

/// Prints what would be done.
pub fn print_plan(plan: &StatesPlan, is_json: bool) -> Result<ExitCode> {
    let document = plan_json(plan);
    if is_json {
        screen::stdout().json(SCHEMA, &json!({ "plan": document }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = screen::stdout();
    let style = TextStyle::for_stdout();
    let about_s = plan.about_ns().div_ceil(1_000_000_000);
    writeln!(
        out,
        "{}",
        wrap(
            &format!(
                "Would wake CPUs from CPU {} by {}, {} out of each state, in about {about_s} s; nothing \
                 was changed.",
                plan.source,
                way(plan.by),
                counted(plan.wake_count, "time")
            ),
            style.width,
            0
        )
    )?;
    for target in &plan.targets {
        writeln!(out, "{}", wrap(&target_words(target), style.width, 2))?;
        for case in &target.cases {
            let state = &target.table[case.index];
            let words = match &case.refusal {
                Some(why) => format!("  {}: left out, {why}", state.name),
                None => format!(
                    "  {}: woken {} to {} us after the last wake; table: {} us exit, {} us target residency",
                    state.name,
                    case.gap_ns[0] / 1_000,
                    case.gap_ns[1] / 1_000,
                    state.exit_latency_ns as f64 / 1e3,
                    state.target_residency_ns as f64 / 1e3,
                ),
            };
            writeln!(out, "{}", wrap(&words, style.width, 4))?;
        }
    }
    let files = plan.files();
    if !files.is_empty() {
        writeln!(out, "{}", wrap(&files_words(&files), style.width, 2))?;
    }
    for doubt in &plan.doubts {
        writeln!(out, "{}", wrap(&format!("- {doubt}"), style.width, 2))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn plan_json(plan: &StatesPlan) -> Value {
    let state = |target: &HeldCpu, case: &HeldState| {
        json!({
            "state": target.table[case.index].name,
            "gap_least_ns": case.gap_ns[0],
            "gap_greatest_ns": case.gap_ns[1],
            "left_out": case.refusal,
        })
    };
    let target = |target: &HeldCpu| {
        json!({
            "target": target.cpu,
            "siblings": target.siblings,
            "core": target.core,
            "alike": target.alike,
            "baseline": baseline_word(target),
            "states": target.cases.iter().map(|case| state(target, case)).collect::<Vec<_>>(),
        })
    };
    json!({
        "source": plan.source,
        "by": plan.by.as_str(),
        "wake_count": plan.wake_count,
        "about_ns": plan.about_ns(),
        "targets": plan.targets.iter().map(target).collect::<Vec<_>>(),
        "files": plan.files(),
        "doubts": plan.doubts,
    })
}

fn baseline_word(target: &HeldCpu) -> &'static str {
    match target.baseline {
        Baseline::Polls(_) => "polls",
        Baseline::Runs => "runs",
    }
}

fn target_words(target: &HeldCpu) -> String {
    let relation =
        target.relation.map_or(String::new(), |relation| format!(" ({})", relation.as_str()));
    let siblings: Vec<String> = target.siblings.iter().map(u16::to_string).collect();
    let with = match siblings.is_empty() {
        true => String::new(),
        false => format!(", with its SMT sibling {}", siblings.join(", ")),
    };
    let baseline = match target.baseline {
        Baseline::Polls(index) => format!("while it polls ({})", target.table[index].name),
        Baseline::Runs => "while it runs something of low priority".to_owned(),
    };
    let alike = match target.alike.len() {
        0 | 1 => String::new(),
        count if target.core.is_some() => format!("; {count} CPUs have its table and kind of core"),
        count => format!("; {count} CPUs have its table"),
    };
    let core = target.core.as_ref().map_or(String::new(), |core| format!(", {core}"));
    format!("CPU {}{core}{relation}{with}, compared with wakes {baseline}{alike}", target.cpu)
}

/// The targets of each kind of CPU, by their place in the plan.
pub fn kinds(plan: &StatesPlan) -> Vec<Vec<usize>> {
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for (place, target) in plan.targets.iter().enumerate() {
        match kinds.iter_mut().find(|kind| plan.targets[kind[0]].alike.contains(&target.cpu)) {
            Some(kind) => kind.push(place),
            None => kinds.push(vec![place]),
        }
    }
    kinds
}

/// What wakes, in words.
pub fn way(by: WakeBy) -> &'static str {
    match by {
        WakeBy::Futex => "futex",
        WakeBy::Ipi => "IPI",
    }
}
