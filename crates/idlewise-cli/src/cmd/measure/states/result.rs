//! The result of `idlewise measure states`: figures, machine files, and how these differ from the kernel's tables.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use idlewise_host::states::{HeldCpu, MeasuredCpu, StateWakes, StatesPlan, WakeBy};
use idlewise_host::{Root, is_virtual_machine, note};
use idlewise_machine::Machine;
use idlewise_report::saved::SavedSeries;
use idlewise_report::states::{
    PERCENTILES, StateFigures, exit_estimates, intel_idle_table, measure_states_table, median_ns,
    wake_series,
};
use idlewise_report::{Notes, TextStyle, counted, wrap};
use serde_json::{Value, json};

use super::super::forced::{machine_text, measured_machine};
use super::super::saving::{Pair, machine_facts, saved};
use super::plan::{kinds, plan_json, way};
use crate::error::Result;
use crate::program::today;
use crate::screen;

/// A measured machine, and how it differs from the kernel's table.
pub struct MeasuredMachine {
    machine: Machine,
    differences: Vec<String>,
    /// The boot parameter, or why there is none; `None` for other drivers.
    boot_parameter: Option<Result<String, String>>,
}

impl MeasuredMachine {
    /// The text of its file.
    pub fn file_text(&self) -> Result<String> {
        machine_text(&self.machine, "states")
    }
}

/// The result.
pub struct Measured {
    pub figures: Vec<StateFigures>,
    series: Vec<SavedSeries>,
    drops: Vec<Value>,
    /// One for each kind of CPU.
    pub machines: Vec<MeasuredMachine>,
}

impl Measured {
    /// Computes the figures.
    pub fn new(
        root: &Root,
        plan: &StatesPlan,
        measured: Vec<MeasuredCpu>,
        notes: &mut Notes,
    ) -> Self {
        if is_virtual_machine(root) {
            notes.doubt(
                "this is a virtual machine: the figures are a guest's, with its hypervisor in them, and say \
                 nothing of the processor's idle states",
            );
        }
        let mut result = Measured {
            figures: Vec::new(),
            series: Vec::new(),
            drops: Vec::new(),
            machines: Vec::new(),
        };
        // Different figures, which `compare` must not mix.
        let woken = match plan.by {
            WakeBy::Futex => "wake of a thread",
            WakeBy::Ipi => "wake of a CPU",
        };
        // Of each target, the figures of its states by index.
        let mut by_target: Vec<BTreeMap<usize, StateFigures>> = Vec::new();
        for (target, cpu) in plan.targets.iter().zip(&measured) {
            let mut by_state = BTreeMap::new();
            let place = format!("CPU {}", target.cpu);
            let baseline = &cpu.baseline;
            result.series.push(wake_series(woken, &place, "not idle", &baseline.latencies_ns));
            for (&index, wakes) in &cpu.states {
                let state = &target.table[index];
                let figures = figures(target, index, wakes, baseline);
                doubt_drops(target.cpu, &state.name, wakes, notes);
                result.series.push(wake_series(woken, &place, &state.name, &wakes.latencies_ns));
                result.drops.push(drops_json(target.cpu, &state.name, wakes));
                result.figures.push(figures.clone());
                by_state.insert(index, figures);
            }
            doubt_drops(target.cpu, "the baseline", baseline, notes);
            result.drops.push(drops_json(target.cpu, "not idle", baseline));
            for case in target.cases.iter() {
                if let Some(why) = &case.refusal {
                    let name = &target.table[case.index].name;
                    notes.doubt(format!("CPU {}: {name} was not measured: {why}", target.cpu));
                }
            }
            if !cpu.counts_smis && !is_virtual_machine(root) {
                notes.doubt(
                    "system management interrupts were not counted (they are on Intel, as root, with the module \
                     msr): a high percentile may be theirs",
                );
            }
            by_target.push(by_state);
        }
        for kind in kinds(plan) {
            let states = kind.iter().map(|&place| &by_target[place]).collect::<Vec<_>>();
            result.machines.push(machine(root, &plan.targets[kind[0]], plan, &states));
        }
        result
    }

    /// Writes them as text.
    pub fn write_text(
        &self,
        out: &mut dyn Write,
        style: &TextStyle,
        plan: &StatesPlan,
        paths: &[PathBuf],
    ) -> io::Result<()> {
        let title = format!(
            "What leaving an idle state takes: wakes by CPU {}, by {}, less those of a CPU that does not idle, measured",
            plan.source,
            way(plan.by)
        );
        writeln!(out, "{}", measure_states_table(&title, &self.figures).to_text(style))?;
        for machine in &self.machines {
            writeln!(out, "Against the kernel's table:")?;
            for difference in &machine.differences {
                writeln!(out, "{}", wrap(&format!("- {difference}"), style.width, 2))?;
            }
            match &machine.boot_parameter {
                // Not wrapped: it is to be copied.
                Some(Ok(line)) => writeln!(
                    out,
                    "{}\n  {line}",
                    wrap(
                        "As a boot parameter (intel_idle of Linux 7.0 or later; others ignore it):",
                        style.width,
                        0
                    )
                )?,
                Some(Err(why)) => writeln!(out, "{}", wrap(&format!("- {why}"), style.width, 2))?,
                None => {}
            }
        }
        for path in paths {
            let name = screen::name(path);
            writeln!(
                out,
                "Written: {name}; for example: idlewise replay LOG --machine {}",
                option(path)
            )?;
        }
        writeln!(out)
    }

    /// Returns them as JSON.
    pub fn document(&self, root: &Root, plan: &StatesPlan, notes: &Notes) -> Value {
        let machine = |one: &MeasuredMachine| {
            json!({
                "machine": one.machine,
                "differences": one.differences,
                "intel_idle_table": one.boot_parameter.as_ref().and_then(|line| line.as_ref().ok()),
            })
        };
        let waiter_cpu = plan.targets.first().map_or(0, |target| target.cpu);
        let facts = machine_facts(root, Pair { waker_cpu: plan.source, waiter_cpu });
        let document = json!({
            "plan": plan_json(plan),
            "is_virtual_machine": is_virtual_machine(root),
            "all": measure_states_table("", &self.figures),
            "drops": self.drops,
            "machines": self.machines.iter().map(machine).collect::<Vec<_>>(),
        });
        saved("states", &facts, self.series.iter().cloned(), notes, document)
    }
}

/// A path as `--machine` takes it: with a slash or ending in .toml.
fn option(path: &Path) -> String {
    let name = screen::name(path);
    match name.contains('/') {
        true => name,
        false => format!("./{name}"),
    }
}

fn figures(
    target: &HeldCpu,
    index: usize,
    wakes: &StateWakes,
    baseline: &StateWakes,
) -> StateFigures {
    let state = &target.table[index];
    let timer_ns = median_ns(&wakes.timers_ns)
        .zip(median_ns(&baseline.timers_ns))
        .map(|(late_ns, base_ns)| (late_ns - base_ns).max(0.0));
    StateFigures {
        target: target.cpu,
        state: state.name.clone(),
        declared_exit_latency_ns: state.exit_latency_ns,
        wake_count: wakes.latencies_ns.len() as u64,
        dropped_count: wakes.drops.count(),
        exits: exit_estimates(&wakes.latencies_ns, &baseline.latencies_ns),
        baseline_ns: median_ns(&baseline.latencies_ns),
        timer_ns,
    }
}

fn doubt_drops(cpu: u16, name: &str, wakes: &StateWakes, notes: &mut Notes) {
    let (drops, counted_count) = (wakes.drops, wakes.latencies_ns.len() as u64);
    let reasons = [
        (drops.not_idle_count, "the CPU was not idle"),
        (drops.other_state_count, "it entered another state"),
        (drops.smi_count, "firmware interrupted"),
        (drops.outside_count, "the waker was late"),
    ];
    let reasons: Vec<String> = reasons
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| format!("{why} ({})", counted(count, "time")))
        .collect();
    if wakes.is_given_up {
        notes.doubt(format!(
            "CPU {cpu}: {name} was given up after {} and {} that were left out: {}; the driver, the \
             governor or other work keeps the CPU out of it",
            counted(counted_count, "wake"),
            drops.count(),
            reasons.join(", ")
        ));
    } else if drops.count() * 10 > counted_count {
        notes.doubt(format!(
            "CPU {cpu}: {} of {name} left out: {}",
            counted(drops.count(), "wake"),
            reasons.join(", ")
        ));
    }
}

fn drops_json(cpu: u16, name: &str, wakes: &StateWakes) -> Value {
    let drops = wakes.drops;
    json!({
        "target": cpu,
        "state": name,
        "not_idle_count": drops.not_idle_count,
        "other_state_count": drops.other_state_count,
        "smi_count": drops.smi_count,
        "outside_count": drops.outside_count,
        "is_given_up": wakes.is_given_up,
    })
}

/// The machine of a kind of CPU: what the kernel says of it, with measured exit latencies.
fn machine(
    root: &Root,
    target: &HeldCpu,
    plan: &StatesPlan,
    measured: &[&BTreeMap<usize, StateFigures>],
) -> MeasuredMachine {
    let mut machine = measured_machine(root, target.cpu, &target.table);
    let kernel = note(root, String::new()).kernel;
    let kernel = kernel.as_deref().unwrap_or("an unknown kernel");
    machine.source_ref = Some(format!(
        "idlewise measure states, {}, {kernel}, {} of CPU {} by CPU {}, by {}; target residencies are \
         the kernel's",
        today(),
        counted(plan.wake_count, "wake"),
        target.cpu,
        plan.source,
        way(plan.by)
    ));
    let mut differences = Vec::new();
    for (index, state) in machine.states.iter_mut().enumerate() {
        let found = measured.iter().filter_map(|by_state| by_state.get(&index));
        let Some((figures, ns)) = found
            .filter_map(|figures| Some((figures, figures.declarable_ns()?)))
            .max_by_key(|(_, ns)| *ns)
        else {
            if !(state.idle().is_polling) {
                machine
                    .quirks
                    .push(format!("{}: not measured, the kernel's exit latency", state.name));
            }
            continue;
        };
        let us = |ns: f64| format!("{:.1}", ns / 1e3);
        let percentile = figures.declarable_percentile();
        let median = figures.exits[0];
        let interval = median
            .interval_ns
            .map(|[low, high]| format!(", 95 %: {} to {}", us(low), us(high)))
            .unwrap_or_default();
        let text = format!(
            "{}: {percentile} {} us (p50 {} us{interval}), the table declares {} us",
            state.name,
            us(ns as f64),
            us(median.ns.unwrap_or(0.0)),
            us(state.exit_latency_ns as f64)
        );
        machine.quirks.push(text.clone());
        let change = match state.exit_latency_ns {
            0 => String::new(),
            declared_ns => {
                let ratio = ns as f64 / declared_ns as f64 - 1.0;
                let word = if ratio < 0.0 { "less" } else { "more" };
                format!(": {:.0} % {word}", 100.0 * ratio.abs())
            }
        };
        differences.push(text + &change);
        state.exit_latency_ns = ns;
        let exits = PERCENTILES.iter().zip(&figures.exits);
        let exits = exits.filter_map(|(hundredths, estimate)| {
            Some([*hundredths as f64 / 100.0, (estimate.ns? / 100.0).round() / 10.0])
        });
        state.exit_percentiles_us = exits.collect();
        state.exit_kind = Some("measured".to_owned());
        state.exit_source = Some("idlewise measure states".to_owned());
    }
    let boot_parameter = (machine.driver.as_deref() == Some("intel_idle"))
        .then(|| intel_idle_table(&target.table, &machine.states));
    MeasuredMachine { machine, differences, boot_parameter }
}
