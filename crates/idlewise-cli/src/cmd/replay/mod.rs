//! `idlewise replay`: replays recorded gaps under any governor, on any machine's idle states.

mod promotion;
mod recorded;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_report::promotion::{PromotionEffect, promotion_table};
use idlewise_report::replay::{
    Outcome, Role, by_log_table, findings, oracle_name, replay_table,
};
use idlewise_report::{TextStyle, wrap};
use idlewise_sim::Price;
use idlewise_sim::replay::{Lane, MakeLane, Tally, replay_log};
use rayon::prelude::*;
use serde_json::json;

use crate::error::Failure;
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors::{self, Choice};
use crate::input::NamedLog;
use crate::progress::Progress;
use crate::screen::{self, Screen};
use crate::threads;
use crate::replay_arguments::{ALL_LOGS, ReplayTarget, ReplayArguments, title};

pub(super) use recorded::each_cpu;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # The bundled recordings, two server machines, the usual governors
  idlewise replay

  # A recording of your own on one machine
  idlewise replay perf.data --machine spr

  # Two governors, one machine file of yours, C6 switched off, at most 50 us of exit latency
  idlewise replay server.parquet --machine ./mine.toml --governor menu --governor teo \\
      --disable C6 --latency-limit-us 50

  # What a timer would do that gets CPUs out of C1 and C1E, and how long they are stuck there without
  idlewise replay server.parquet --machine spr --promote C1,C1E

  # What a patch for menu would do, beside the kernel's menu.c as it is
  idlewise replay server.parquet --kernel-source ~/linux --governor menu.c \\
      --governor menu.c --patch my.patch

  # Every figure, for a program
  idlewise replay server.parquet --json

  # Did the recording kernel's governor decide as ours does?
  idlewise replay server.parquet --check-recorded

Exit status: 0; 1 if --check-recorded found decisions that differ or nothing to compare, or a
governor's file crashed, looped or answered what is no state; 2 on bad input.";

/// Replay recorded idle gaps under any governor, on any machine's idle states
///
/// Gaps come from the recording; delays are simulated, with the machine's exit latencies, which are
/// worst cases. λ is the price of delay: at λ=1 a second of delay costs as much as a second of polling.
#[derive(clap::Args)]
#[command(mut_arg("governor", with_default("menu, menu+min, teo, ladder and bounds")))]
#[command(after_help = EXAMPLES, after_long_help = format!("{}\n{EXAMPLES}", governors::list()))]
pub struct Replay {
    #[command(flatten)]
    governors: GovernorArguments,

    #[command(flatten)]
    shared: ReplayArguments,

    /// Compare the recorded decisions with our port of the recorded governor
    ///
    /// Compares one decision for each gap. Before each, our port is told what the recorded governor
    /// had really done until then. The output also says how often a replay that follows its own
    /// decisions agrees. docs/agreement.md has the figures to expect.
    #[arg(long, conflicts_with_all = ["json", "csv", "write_log"])]
    check_recorded: bool,

    /// Write the decisions as a new log; needs exactly one --governor and one --machine
    #[arg(long, value_name = "LOG", conflicts_with_all = ["json", "csv", "disabled"])]
    write_log: Option<PathBuf>,

    /// Replace the log of --write-log if it exists
    #[arg(long, requires = "write_log")]
    force: bool,
}

impl Replay {
    /// Replays everything that was requested, and prints it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        threads::start();
        // Check names before reading anything.
        let choices = self.governors.choices_or(&governors::standard())?;
        let targets = self.shared.targets(&choices)?;
        if self.check_recorded {
            return recorded::check(&self.shared.open_logs()?, &self, &choices);
        }
        if let Some(path) = &self.write_log {
            return recorded::write(&self.shared.open_logs()?, &self, &targets, &choices, path);
        }
        let logs = self.shared.open_logs()?;
        let prices = self.shared.prices();
        let mut outcomes = outcomes(&self.shared, &logs, &targets, &choices, &prices)?;
        let mut effects = match self.shared.promoting.is_asked() {
            true => promotion::effects(&self.shared, &logs, &targets, &choices)?,
            false => Vec::new(),
        };
        // If a governor from a file fails, only its own rows are lost.
        let failed: Vec<String> = choices
            .iter()
            .filter(|choice| choice.failure().is_some())
            .map(Choice::name)
            .collect();
        outcomes.retain(|outcome| !failed.contains(&outcome.governor));
        effects.retain(|effect| !failed.contains(&effect.governor));
        self.print(&logs, &targets, &choices, &prices, &outcomes, &effects)?;
        let failed = governors::say_failures(&choices, "its rows are left out");
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The input files.
    fn inputs(&self) -> Vec<PathBuf> {
        let machines = self.shared.machines.iter().map(PathBuf::from);
        machines.chain(self.shared.logs.iter().cloned()).chain(self.governors.files()).collect()
    }

    fn print(
        &self,
        logs: &[NamedLog],
        targets: &[ReplayTarget],
        choices: &[Choice],
        prices: &[Price],
        outcomes: &[Outcome<'_>],
        effects: &[PromotionEffect<'_>],
    ) -> Result<(), Failure> {
        let mut out = screen::stdout();
        let pooled = pool(outcomes, targets);
        let findings = findings(outcomes, &pooled, prices);
        let notes = self.shared.notes(logs, targets, choices);
        if self.shared.csv {
            out.write_all(replay_table("", outcomes, prices, &[]).to_csv().as_bytes())?;
            return Ok(());
        }
        if self.shared.json {
            let mut document = json!({
                "rows": replay_table("", outcomes, prices, &[]),
                "failures": choices.iter().filter_map(|choice| {
                    Some(json!({"governor": choice.name(), "message": choice.failure()?}))
                }).collect::<Vec<_>>(),
                "states": state_rows(outcomes),
                "findings": findings,
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
                "logs": logs.iter().map(|named| json!({
                    "log": named.name, "metadata": named.log.metadata,
                })).collect::<Vec<_>>(),
            });
            if self.shared.promoting.is_asked() {
                document["promotion"] = json!(promotion_table("", effects, &[]));
            }
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let style = TextStyle::for_stdout();
        let is_by_log = self.shared.by_log || logs.len() == 1;
        let shown = if is_by_log { outcomes } else { &pooled };
        for group in shown.chunk_by(|a, b| a.log == b.log && a.machine == b.machine) {
            let Outcome { log, machine, tally, .. } = &group[0];
            let title = title(log, machine, targets, logs.len(), tally);
            let table = replay_table(&title, group, prices, &SAID_IN_TITLE);
            writeln!(out, "{}", table.to_text(&style))?;
        }
        self.print_promotion(&mut out, &style, targets, is_by_log, effects)?;
        if logs.len() > 1 && !self.shared.by_log {
            let table = by_log_table("Log by log, at the middle λ:", outcomes, prices);
            if table.row_count() > 0 {
                writeln!(out, "{}", table.to_text(&style))?;
            }
        }
        for finding in findings {
            writeln!(out, "{}", wrap(&finding.text, style.width, 0))?;
        }
        writeln!(out)?;
        out.write_all(notes.to_text(style.width).as_bytes())?;
        Ok(())
    }

    /// Prints a table for each machine: what the timers change.
    fn print_promotion(
        &self,
        out: &mut Screen,
        style: &TextStyle,
        targets: &[ReplayTarget],
        is_by_log: bool,
        effects: &[PromotionEffect<'_>],
    ) -> Result<(), Failure> {
        let pooled = promotion::pool(effects);
        let shown = if is_by_log { effects } else { &pooled };
        for group in shown.chunk_by(|a, b| a.log == b.log && a.machine == b.machine) {
            let PromotionEffect { log, machine, .. } = &group[0];
            let Some(target) = targets.iter().find(|target| target.machine.id == *machine) else {
                continue;
            };
            let log = if log == ALL_LOGS { "all logs" } else { log };
            let promoted = target.machine.states.iter().filter(|state| state.idle().is_auto_promoted);
            let promoted: Vec<&str> = promoted.map(|state| state.name.as_str()).collect();
            let promoted = promoted.join(", ");
            let group: Vec<_> =
                group.iter().filter(|effect| effect.armed_count() > 0).cloned().collect();
            if group.is_empty() {
                let line = format!("{machine}: no governor enters {promoted} in {log}.");
                writeln!(out, "{}\n", wrap(&line, style.width, 0))?;
                continue;
            }
            let title =
                format!("{machine}: {log}, time stuck in {promoted}, promoted and not (simulated)");
            let table = promotion_table(&title, &group, &["log", "machine"]);
            writeln!(out, "{}", table.to_text(style))?;
        }
        Ok(())
    }
}

/// One outcome for each log, machine and governor, in that order; the oracle's, for each price.
pub(super) fn outcomes<'a>(
    shared: &ReplayArguments,
    logs: &[NamedLog],
    targets: &'a [ReplayTarget],
    choices: &[Choice],
    prices: &[Price],
) -> Result<Vec<Outcome<'a>>, Failure> {
    let gap_count: u64 = logs.iter().map(|named| named.log.gap_count()).sum();
    let bar = Progress::gaps("replaying", gap_count);
    let by_log: Vec<Vec<Outcome<'a>>> = logs
        .par_iter()
        .map(|named| log_outcomes(shared, named, targets, choices, prices, &bar))
        .collect::<Result<_, Failure>>()?;
    Ok(by_log.into_iter().flatten().collect())
}

fn log_outcomes<'a>(
    shared: &ReplayArguments,
    named: &NamedLog,
    targets: &'a [ReplayTarget],
    choices: &[Choice],
    prices: &[Price],
    bar: &Progress,
) -> Result<Vec<Outcome<'a>>, Failure> {
    // The oracle is always replayed, because regret needs it, but shown only if requested.
    let unseen = Choice::Oracle;
    let is_seen = choices.iter().any(|choice| matches!(choice, Choice::Oracle));
    let all: Vec<&Choice> = choices.iter().chain((!is_seen).then_some(&unseen)).collect();
    type Make<'m> = Box<dyn Fn() -> Box<dyn Lane> + Sync + 'm>;
    let mut makers: Vec<Make<'_>> = Vec::new();
    for target in targets {
        let setting = shared.setting(target, named);
        for &choice in &all {
            let player = choice.on(&target.machine)?;
            let lane_count = if matches!(choice, Choice::Oracle) { prices.len() } else { 1 };
            for index in 0..lane_count {
                let price = prices[index.min(prices.len() - 1)];
                makers.push(Box::new(move || {
                    player.lane(&named.name, &target.costs, setting, price)
                }));
            }
        }
    }
    let makers: Vec<&MakeLane<'_>> = makers.iter().map(|make| &**make).collect();
    let tallies = replay_log(&named.log, &makers, &|done| bar.add(done))?;
    let mut tallies = tallies.into_iter();
    let mut outcomes = Vec::new();
    for target in targets {
        let mut of_bench: Vec<(String, Role, Tally)> = Vec::new();
        let mut oracle_costs_uj = Vec::new();
        for &choice in &all {
            if matches!(choice, Choice::Oracle) {
                for (price, tally) in prices.iter().zip(&mut tallies) {
                    let lambda_mw = price.lambda_mw(&target.costs);
                    oracle_costs_uj.push(target.costs.cost_uj(&tally, lambda_mw));
                    of_bench.push((oracle_name(*price), Role::Oracle, tally));
                }
            } else if let Some(tally) = tallies.next() {
                of_bench.push((choice.name(), choice.role(), tally));
            }
        }
        for (governor, role, tally) in of_bench {
            if role == Role::Oracle && !is_seen {
                continue;
            }
            outcomes.push(Outcome {
                log: named.name.clone(),
                machine: target.machine.id.clone(),
                state_names: &target.state_names,
                states: target.states,
                costs: &target.costs,
                governor,
                role,
                tally,
                oracle_costs_uj: oracle_costs_uj.clone(),
            });
        }
    }
    Ok(outcomes)
}

/// Columns that a table of one log and machine does not need.
const SAID_IN_TITLE: [&str; 4] = ["log", "machine", "gap_count", "decision_count"];

/// The sums over all logs, for each machine and governor.
pub(super) fn pool<'a>(outcomes: &[Outcome<'a>], targets: &[ReplayTarget]) -> Vec<Outcome<'a>> {
    let mut pooled: Vec<Outcome<'a>> = Vec::new();
    for target in targets {
        for outcome in outcomes.iter().filter(|outcome| outcome.machine == target.machine.id) {
            let same = pooled
                .iter_mut()
                .find(|p| p.machine == outcome.machine && p.governor == outcome.governor);
            match same {
                Some(sum) => {
                    sum.tally.merge(&outcome.tally);
                    for (sum, cost) in sum.oracle_costs_uj.iter_mut().zip(&outcome.oracle_costs_uj)
                    {
                        *sum += cost;
                    }
                }
                None => pooled.push(Outcome { log: ALL_LOGS.to_owned(), ..outcome.clone() }),
            }
        }
    }
    pooled
}

/// Usage and residency of each state, for JSON.
fn state_rows(outcomes: &[Outcome<'_>]) -> Vec<serde_json::Value> {
    let mut rows = Vec::new();
    for outcome in outcomes {
        for (name, state) in outcome.state_names.iter().zip(&outcome.tally.states) {
            rows.push(json!({
                "log": outcome.log,
                "machine": outcome.machine,
                "governor": outcome.governor,
                "state": name,
                "entry_count": state.entry_count,
                "residency_ns": state.stay_ns,
                "too_deep_count": state.too_deep_count,
                "too_shallow_count": state.too_shallow_count,
                "wake_count": state.wake_count,
                "free_ipi_count": state.free_ipi_count,
            }));
        }
    }
    rows
}
