//! `idlewise replay --rank --played`: loads are played under each governor, so that the timeline follows from what it
//! decides. Recordings with causes are played as `predict` does, and the workloads of `lab simulate` as that does, but
//! on one package of four cores without SMT, because a replay knows no siblings. Ticks begin at other times for each seed.
//!
//! The replay beside it is of the gaps that the first governor leaves when it plays: what a recording of this load on
//! this machine would hold.

use std::io::Write;
use std::path::{Path, PathBuf};

use idlewise_core::tick_period_ns;
use idlewise_lab::notes::{add_governors, add_machine};
use idlewise_lab::target::RECORDED;
use idlewise_report::arena_played::{
    Play, PlayedCell, agreement, judged, played_standing_table, played_standings, played_table,
};
use idlewise_report::{TextStyle, counted, wrap};
use idlewise_sim::contest::{Price, Seat, run_gaps};
use idlewise_sim::predict::{Arrivals, Outcome};
use idlewise_sim::replay::{Delays, Setting as ReplaySetting, Tally};
use idlewise_sim::simulate::{Hardware, Report, Setup, simulate_replicates};
use idlewise_sim::workload::WORKLOADS;
use idlewise_sim::{Basis, CostModel, Machine};
use idlewise_trace::tracepoint::Purpose;
use idlewise_trace::{IdleGap, RecordedMachine};
use serde_json::json;

use super::Arena;
use crate::bundled;
use crate::cmd::predict::played::{Played, Replicates, Setting};
use crate::cmd::simulate::generated;
use crate::error::{Failure, Result};
use crate::governors::{self, Choice};
use crate::input::{self, Reading};
use crate::progress::Progress;
use crate::replay_arguments::{MACHINES_DEFAULT, ReplayTarget};
use crate::screen::{self, Screen, say};

/// Without `haltpoll`, which is for guests.
pub(super) const GOVERNORS_DEFAULT: [&str; 4] = ["menu", "teo", "ladder", "hazard"];
/// The schema version of `--json`.
const SCHEMA: u32 = 1;
const SEED: u64 = 1;

/// What is played.
struct Load {
    name: String,
    kind: Kind,
}

enum Kind {
    /// A workload of `lab simulate`, by its name or file.
    Generated(String),
    /// A recording with causes, and what it shows.
    Recorded(Box<(Played, Outcome)>),
}

/// A replicate of a governor, before it is priced.
struct Run {
    throughput_per_s: Option<f64>,
    /// Operations, or wake events if the load counts none.
    unit_count: f64,
    delays: Delays,
    power_mw: f64,
    energy_uj: f64,
    gaps: Vec<IdleGap>,
}

impl Run {
    fn new(report: Report, throughput_per_s: Option<f64>, exits_ns: &[u64]) -> Self {
        let mut delays = report.idle.overruns.clone();
        delays.merge(&report.idle.shared_delays);
        for (state, &exit_ns) in report.idle.states.iter().zip(exits_ns) {
            delays.add(exit_ns, state.wake_count - state.shared_wake_count);
        }
        let unit_count = match report.metrics.operation_count {
            0 => delays.count(),
            count => count,
        };
        Run {
            throughput_per_s,
            unit_count: unit_count as f64,
            delays,
            power_mw: report.power_mw(),
            energy_uj: report.cores.energy_uj(),
            gaps: report.gaps,
        }
    }

    fn priced(&self, lambda_mw: f64) -> Play {
        let quantile = |ratio| self.delays.quantile_ns(ratio).map(|ns| ns as f64);
        let delay_uj = CostModel::delay_uj(self.delays.sum_ns(), lambda_mw);
        Play {
            throughput_per_s: self.throughput_per_s,
            delay_p50_ns: quantile(0.5),
            delay_p99_ns: quantile(0.99),
            power_mw: self.power_mw,
            cost_uj: (self.energy_uj + delay_uj) / self.unit_count,
        }
    }
}

/// A load on a machine.
struct Place<'a> {
    load: &'a Load,
    target: &'a ReplayTarget,
    is_own_machine: bool,
    duration_ns: u64,
}

impl Place<'_> {
    fn machine(&self) -> &Machine {
        &self.target.machine
    }

    fn hardware(&self) -> Result<Hardware> {
        Ok(match &self.load.kind {
            Kind::Generated(name) => self.generated(name)?.1,
            Kind::Recorded(recorded) => recorded.0.workload.hardware(self.machine()),
        })
    }

    fn generated(&self, name: &str) -> Result<(idlewise_sim::workload::Workload, Hardware)> {
        let (package_count, core_count, thread_count) = (1, 4, 1);
        let mut hardware =
            Hardware { package_count, core_count, thread_count, ..Hardware::of(self.machine()) };
        let workload = generated(name, &mut hardware)?;
        Ok((
            workload.ok_or_else(|| Failure::new(format_args!("{name}: not a workload")))?,
            hardware,
        ))
    }

    fn runs(&self, choice: &Choice, count: u64, keeps_gaps: bool) -> Result<Vec<Run>> {
        let mut exits_ns = self.target.costs.exits().means_ns().to_vec();
        match &self.load.kind {
            Kind::Generated(name) => {
                let (workload, hardware) = self.generated(name)?;
                let shape = hardware.shape().map_err(Failure::new)?;
                let period_ns = tick_period_ns(hardware.hz as u32);
                let player = choice.on(self.machine())?;
                let make =
                    || player.governor(&self.target.states, period_ns).expect("it was checked");
                let mut setup = Setup::new(self.machine(), &make);
                setup.hardware = hardware.clone();
                setup.has_random_ticks = true;
                setup.keeps_gaps = keeps_gaps;
                let load = |_| workload.load(&shape, &hardware);
                let reports = simulate_replicates(&setup, &load, self.duration_ns, SEED, count);
                let run = |report: Report| {
                    let counts = report.metrics.operation_count > 0;
                    let throughput_per_s = counts.then(|| report.operations_per_s());
                    Run::new(report, throughput_per_s, &exits_ns)
                };
                Ok(reports.map_err(Failure::new)?.into_iter().map(run).collect())
            }
            Kind::Recorded(recorded) => {
                let (played, outcome) = &**recorded;
                if self.is_own_machine {
                    let shown = played.workload.shown_exits_ns();
                    let places = shown.iter().map(|(&state, &ns)| (usize::from(state), ns));
                    places.for_each(|(state, ns)| exits_ns[state] = ns);
                }
                let setting = Setting {
                    is_recorded_machine: self.is_own_machine,
                    keeps_gaps,
                    ..Setting::new(self.machine())
                };
                let per_s = outcome.step_count as f64 * 1e9 / outcome.makespan_ns.max(1) as f64;
                let run = |run: Outcome| {
                    let throughput_per_s = per_s * run.throughput_ratio(outcome);
                    Some(Run::new(run.report?, Some(throughput_per_s), &exits_ns))
                };
                let runs = played.play(&setting, choice, Replicates { count, seed: SEED })?;
                Ok(runs.into_iter().filter_map(run).collect())
            }
        }
    }

    /// The regret of a replay for each governor.
    fn regrets(
        &self,
        gaps: &[IdleGap],
        choices: &[Choice],
        price: Price,
    ) -> Result<Vec<Option<f64>>> {
        let ReplayTarget { machine, states, disabled, costs, .. } = self.target;
        let period_ns = tick_period_ns(self.hardware()?.hz as u32);
        let setting = ReplaySetting {
            exits_ns: costs.exits().means_ns(),
            disabled: *disabled,
            ..ReplaySetting::new(*states, period_ns)
        };
        let lambda_mw = price.lambda_mw(costs);
        let cost_uj = |choice: &Choice| -> Result<f64> {
            let player = choice.on(machine)?;
            let tally: Tally =
                run_gaps(gaps, &Seat { player, costs, setting, price, groups: None });
            Ok(costs.cost_uj(&tally, lambda_mw))
        };
        let oracle_uj = cost_uj(&Choice::ORACLE)?;
        let regret = |choice: &Choice| {
            let told = choice.told(price).unwrap_or_else(|| choice.clone());
            Ok((oracle_uj > 0.0).then_some(cost_uj(&told)? / oracle_uj - 1.0))
        };
        choices.iter().map(regret).collect()
    }

    /// The cells of all governors, price by price.
    fn cells(&self, choices: &[Choice], prices: &[Price], count: u64) -> Result<Vec<PlayedCell>> {
        // Without a price of its own, a governor plays the same at all of them.
        let mut runs: Vec<Vec<Vec<Run>>> = Vec::new();
        for choice in choices {
            let told: Option<Vec<Choice>> =
                prices.iter().map(|&price| choice.told(price)).collect();
            let told = told.unwrap_or_else(|| vec![choice.clone()]);
            runs.push(told.iter().map(|it| self.runs(it, count, false)).collect::<Result<_>>()?);
        }
        let first = choices[0].told(prices[0]).unwrap_or_else(|| choices[0].clone());
        let first = self.runs(&first, 1, true)?.pop();
        let gaps = first.map(|run| run.gaps).unwrap_or_default();
        let mut cells = Vec::new();
        for (index, &price) in prices.iter().enumerate() {
            let lambda_mw = price.lambda_mw(&self.target.costs);
            let regrets = self.regrets(&gaps, choices, price)?;
            for ((choice, runs), regret) in choices.iter().zip(&runs).zip(regrets) {
                let runs = runs.get(index).unwrap_or(&runs[0]);
                cells.push(PlayedCell {
                    load: self.load.name.clone(),
                    machine: self.machine().id.clone(),
                    price,
                    governor: choice.name(),
                    plays: runs.iter().map(|run| run.priced(lambda_mw)).collect(),
                    regret,
                });
            }
        }
        Ok(cells)
    }
}

/// The loads, and why others are left out.
fn open(asked: &Arena) -> Result<(Vec<Load>, Vec<String>)> {
    let usual = || WORKLOADS.iter().map(|spec| PathBuf::from(spec.name)).collect();
    let paths: Vec<PathBuf> = if asked.logs.is_empty() { usual() } else { asked.logs.clone() };
    let (mut loads, mut left_out): (Vec<Load>, _) = (Vec::new(), Vec::new());
    for path in &paths {
        let text = path.to_string_lossy().into_owned();
        let kind = match generated(&text, &mut Hardware::default())? {
            Some(_) => Kind::Generated(text.clone()),
            None => {
                let played = recorded(path, asked)?;
                let count = asked.replicates;
                if let Err(failure) = played.reproduction(Replicates { count, seed: SEED }) {
                    left_out.push(failure.text());
                    continue;
                }
                let outcome = Outcome::recorded(&played.workload);
                Kind::Recorded(Box::new((played, outcome)))
            }
        };
        let name = input::short_name(path);
        let is_taken = loads.iter().any(|load| load.name == name);
        loads.push(Load { name: if is_taken { text } else { name }, kind });
    }
    for text in &left_out {
        say(format_args!("idlewise: left out: {text}"));
    }
    match loads.is_empty() {
        true => Err(Failure::new("no load is left to play")),
        false => Ok((loads, left_out)),
    }
}

fn recorded(path: &Path, asked: &Arena) -> Result<Played> {
    let (purpose, unpacking) = (Purpose::Causes, asked.unpacking.into());
    let reading = Reading { purpose, unpacking, ..Reading::default() };
    let log = input::workload(path, &reading, &RecordedMachine::default())?;
    Played::new(path, log, RecordedMachine::default(), Arrivals::Open)
}

/// The machines that a load is played on, and whether each is its own.
fn targets(load: &Load, names: &[String]) -> Result<Vec<(ReplayTarget, bool)>> {
    let usual = MACHINES_DEFAULT.map(str::to_owned);
    let own = [RECORDED.to_owned()];
    let names = match &load.kind {
        _ if !names.is_empty() => names,
        Kind::Generated(_) => &usual,
        Kind::Recorded(_) => &own,
    };
    let target = |name: &String| match &load.kind {
        Kind::Recorded(recorded) if name == RECORDED => {
            let mut machine = recorded.0.machine.clone();
            machine.id.clone_from(name);
            Ok((ReplayTarget::new(machine, &[], &[])?, true))
        }
        _ => Ok((ReplayTarget::new(bundled::machine(name)?, &[], &[])?, false)),
    };
    names.iter().map(target).collect()
}

/// Plays everything that was asked for, and prints it.
pub(super) fn run(asked: &Arena, choices: &[Choice]) -> Result<bool> {
    governors::must_decide(choices)?;
    let prices = asked.prices();
    let (loads, left_out) = open(asked)?;
    let of_loads: Vec<_> =
        loads.iter().map(|load| targets(load, &asked.machines)).collect::<Result<_>>()?;
    let machines: Vec<&Machine> = of_loads.iter().flatten().map(|(it, _)| &it.machine).collect();
    for (machine, choice) in machines.iter().flat_map(|it| choices.iter().map(move |c| (it, c))) {
        choice.on(machine)?;
    }
    let bar = Progress::cells("playing", (machines.len() * choices.len() * prices.len()) as u64);
    let duration_ns = asked.duration_ms * 1_000_000;
    let mut cells = Vec::new();
    for (load, targets) in loads.iter().zip(&of_loads) {
        for &(ref target, is_own_machine) in targets {
            let place = Place { load, target, is_own_machine, duration_ns };
            cells.extend(place.cells(choices, prices, asked.replicates)?);
            bar.add((choices.len() * prices.len()) as u64);
        }
    }
    drop(bar);
    let failed: Vec<String> =
        choices.iter().filter(|choice| choice.failure().is_some()).map(Choice::name).collect();
    cells.retain(|cell| !failed.contains(&cell.governor));
    print(asked, &mut screen::stdout(), (&cells, &left_out), &machines, choices)?;
    Ok(governors::say_failures(choices, "its cells are left out"))
}

fn print(
    asked: &Arena,
    out: &mut Screen,
    (cells, left_out): (&[PlayedCell], &[String]),
    machines: &[&Machine],
    choices: &[Choice],
) -> Result<()> {
    let judged = judged(cells);
    if asked.csv {
        out.write_all(played_table("", &judged).to_csv().as_bytes())?;
        return Ok(());
    }
    let (standings, agreement) = (played_standings(&judged), agreement(cells));
    let mut notes = asked.doubts.notes();
    notes.basis(Basis::Simulated, "all figures above");
    notes.basis(Basis::Assumed, "costs of interrupts, IPIs, stores and switches");
    add_governors(&mut notes, Basis::Calibrated, choices);
    machines.iter().for_each(|machine| add_machine(&mut notes, machine, ""));
    if asked.json {
        let document = json!({
            "replicate_count": asked.replicates,
            "standings": played_standing_table("", &standings),
            "cells": played_table("", &judged),
            "agreement": agreement.to_json(),
            "left_out": left_out,
            "bases": notes.bases_json(),
            "doubts": notes.counted_doubts(),
        });
        out.json(SCHEMA, &document)?;
        return Ok(());
    }
    let style = TextStyle::for_stdout();
    let replicates = counted(asked.replicates, "replicate");
    let mut title = format!("Played loads, {replicates} of each (simulated)");
    let mut same = Vec::new();
    if let &[price] = asked.prices() {
        title += &format!(", λ = {}", price.as_times().unwrap_or(f64::NAN));
        same.push("lambda");
    }
    writeln!(out, "{}", played_table(title, &judged).without(&same).to_text(&style))?;
    let table = played_standing_table("Against the better of menu and teo", &standings);
    writeln!(out, "{}", table.to_text(&style))?;
    writeln!(out, "{}\n", wrap(&agreement.to_text(), style.width, 2))?;
    out.write_all(notes.to_text(style.width).as_bytes())?;
    Ok(())
}
