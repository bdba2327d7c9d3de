//! `idlewise replay`: replays recorded gaps under any governor, on any machine's idle states.

mod joined;
mod promotion;
mod recorded;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_lab::target::in_use;
use idlewise_lab::topology::{Joined, Topology};
use idlewise_report::promotion::{PromotionEffect, promotion_table};
use idlewise_report::replay::{Outcome, by_log_table, findings, priced_name, replay_table};
use idlewise_report::verdict::{energy_ranges, verdicts};
use idlewise_report::{Notes, TextStyle, wrap};
use idlewise_sim::contest::{Price, Seat, run};
use idlewise_sim::replay::{JointBound, ReplayedGroups, Tally};
use rayon::prelude::*;
use serde_json::json;

use crate::cmd::arena::Arena;
use crate::cmd::diff::Diff;
use crate::error::{Failure, Result};
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors::{self, Choice};
use crate::input::{NamedLog, must_have_gaps};
use crate::joining::Joining;
use crate::progress::Progress;
use crate::replay_arguments::{
    ALL_LOGS, MACHINES_DEFAULT, ReplayArguments, ReplayTarget, Targets, say_assumed, title,
};
use crate::role::{BundleRole, OUTPUT, Roles};
use crate::screen::{self, Screen};
use crate::threads;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # The bundled recordings, two server machines, the usual governors
  idlewise replay

  # Your own recording on its machine's idle states, then also on another machine's
  idlewise replay trace.dat
  idlewise replay trace.dat --machine recorded,spr

  # Two governors, your own machine file, C6 switched off, at most 50 us of exit latency
  idlewise replay server.parquet --machine ./mine.toml --governor menu --governor teo \\
      --disable C6 --latency-limit-us 50

  # What a timer that moves CPUs out of C1 and C1E would do, and how long they stay stuck without it
  idlewise replay server.parquet --machine spr --promote C1,C1E

  # Four CPUs in one package, which share package C6
  idlewise replay server.parquet --machine spr-pc6 --topology package=0-3

  # What a patch for menu would do, compared with the unpatched menu.c
  idlewise replay server.parquet --kernel-source ~/linux --governor menu.c \\
      --governor menu.c --patch my.patch

  # Every figure, for a program
  idlewise replay server.parquet --json

  # Did the recorded governor decide as our port of it does?
  idlewise replay server.parquet --check-recorded

Exit status: 0; 1 if --check-recorded found differing decisions (there usually are some) or nothing to compare, \
or a governor's file crashed, looped or returned an invalid state; 2 on bad input.";

/// Replay recorded idle gaps under any governor, on any machine's idle states
///
/// Gaps come from the recording; delays are simulated, with the machine's exit latencies, which are
/// worst cases. λ is the price of delay: at λ=1 a second of delay costs as much as a second of busy-waiting.
#[derive(clap::Args)]
#[command(mut_arg(
    "governor",
    with_default(
        "menu, menu+min, teo, ladder, deepest, shallowest, timer-only, oracle and the recorded one"
    )
))]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_help_heading = "Other forms (default: a table for each machine)",
    override_usage = "idlewise replay [OPTIONS] [LOGS]...\n       \
                      idlewise replay --compare|--rank [OPTIONS] [LOGS]..."
)]
#[command(after_long_help = EXAMPLES)]
pub struct Replay {
    #[command(subcommand)]
    form: Option<Form>,

    #[command(flatten)]
    governors: GovernorArguments,

    #[command(flatten)]
    shared: ReplayArguments,

    #[command(flatten)]
    joining: Joining,

    /// Compare the recorded decisions with those of our port of the recorded governor.
    ///
    /// For each gap our port makes one decision, having been given all earlier decisions of the recorded governor on
    /// that CPU.
    /// docs/agreement.md has the figures to expect.
    #[arg(long, hide_short_help = true, conflicts_with_all = ["json", "csv", "write_log"])]
    check_recorded: bool,

    /// Write the decisions as a new log; needs exactly one --governor and one --machine
    #[arg(long, hide_short_help = true, value_name = "LOG", conflicts_with_all = ["json", "csv", "disabled"])]
    write_log: Option<PathBuf>,

    /// Replace the log of --write-log if it exists
    #[arg(long, hide_short_help = true, requires = "write_log")]
    force: bool,
}

/// `crate::names` puts the word first.
#[derive(clap::Subcommand)]
enum Form {
    #[command(name = "--compare", display_name = "idlewise-replay-compare")]
    Compare(Box<Diff>),
    #[command(name = "--rank", display_name = "idlewise-replay-rank")]
    Rank(Box<Arena>),
}

/// Its own options in a bundle.
pub const ROLES: Roles =
    &[(BundleRole::OnlyText, &["check_recorded"]), (OUTPUT, &["write_log", "force"])];

impl Replay {
    /// Replays everything that was requested, and prints it.
    pub fn run(self) -> Result<ExitCode> {
        match self.form {
            Some(Form::Compare(diff)) => return diff.run(),
            Some(Form::Rank(arena)) => return arena.run(),
            None => threads::start(),
        }
        // Check names before reading anything.
        let choices = governors::distinct(self.governors.choices_or(&governors::standard())?);
        let machines = self.shared.machines(&choices)?;
        if self.joining.is_given() && (self.check_recorded || self.write_log.is_some()) {
            return Err(Failure::new(
                "--topology: --check-recorded and --write-log replay CPUs one by one; leave it out",
            ));
        }
        if self.check_recorded {
            return recorded::check(&self.shared.open_logs()?, &self, &choices);
        }
        if let Some(path) = &self.write_log {
            let logs = self.shared.open_logs()?;
            let on = machines.on_logs(&logs, &MACHINES_DEFAULT)?;
            return recorded::write(&logs, &self, &on, &choices, path);
        }
        let logs = self.shared.open_logs()?;
        must_have_gaps(&logs)?;
        let choices = self.governors.with_in_use(choices, &logs);
        let machines = self.shared.machines(&choices)?;
        let Targets { targets, assumed } = machines.on_logs(&logs, &MACHINES_DEFAULT)?;
        let prices = self.shared.prices();
        let topology = self.joining.topology()?;
        if self.joining.is_given() && targets.iter().all(|target| target.shared.is_empty()) {
            let ids: Vec<&str> = targets.iter().map(|target| target.machine.id.as_str()).collect();
            return Err(Failure::new(format_args!(
                "--topology: the CPUs of {} share no idle states; choose a machine whose CPUs do, such as \
                 --machine spr-pc6",
                ids.join(", ")
            )));
        }
        let (mut outcomes, left_out) =
            outcomes(&self.shared, &logs, &targets, &choices, &prices, &topology)?;
        let mut effects = match self.shared.promoting.is_asked() {
            true => promotion::effects(&self.shared, &logs, &targets, &choices)?,
            false => Vec::new(),
        };
        // If a governor from a file fails, only its own rows are lost.
        let failed: Vec<String> =
            choices.iter().filter(|choice| choice.failure().is_some()).map(Choice::name).collect();
        outcomes.retain(|outcome| !failed.contains(&outcome.governor));
        effects.retain(|effect| !failed.contains(&effect.governor));
        let mut notes = self.shared.notes(&logs, &targets, &choices);
        joined::add_notes(&mut notes, &targets, &outcomes, &left_out);
        let form = (self.shared.json, self.shared.csv);
        say_assumed(assumed.as_deref(), &mut notes, &mut screen::stdout(), form)?;
        let results = Results { outcomes: &outcomes, effects: &effects };
        self.print(&logs, &targets, &choices, &prices, &results, &notes)?;
        let failed = governors::say_failures(&choices, "its rows are left out");
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn print(
        &self,
        logs: &[NamedLog],
        targets: &[ReplayTarget],
        choices: &[Choice],
        prices: &[Price],
        results: &Results<'_>,
        notes: &Notes,
    ) -> Result<()> {
        let Results { outcomes, effects } = *results;
        let mut out = screen::stdout();
        let pooled = pool(outcomes, targets);
        let in_use = |machine: &str| {
            in_use(logs, targets.iter().find(|target| target.machine.id == machine))
        };
        let (verdicts, regrets) = verdicts(&pooled, prices, &in_use);
        let findings = [regrets, findings(outcomes)].concat();
        let all_findings = [&verdicts[..], &findings].concat();
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
                "findings": all_findings,
                "energy_ranges": energy_ranges(&pooled, prices, &in_use),
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
                "logs": logs.iter().map(|named| json!({
                    "log": named.name, "metadata": named.log.metadata,
                })).collect::<Vec<_>>(),
            });
            if self.shared.promoting.is_asked() {
                document["promotion"] = json!(promotion_table("", effects, &[]));
            }
            let shared = joined::table("", outcomes, targets, &[]);
            if shared.row_count() > 0 {
                document["shared"] = json!(shared);
                document["bounds"] = json!(joined::bounds(outcomes, prices));
            }
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let style = TextStyle::for_stdout();
        for verdict in &verdicts {
            writeln!(out, "{}", wrap(&verdict.text, style.width, 2))?;
        }
        if !verdicts.is_empty() {
            writeln!(out)?;
        }
        let is_by_log = self.shared.by_log || logs.len() == 1;
        let shown = if is_by_log { outcomes } else { &pooled };
        for group in shown.chunk_by(|a, b| a.log == b.log && a.machine == b.machine) {
            let Outcome { log, machine, tally, .. } = &group[0];
            let title = title(log, machine, targets, logs, tally);
            let table = replay_table(&title, group, prices, &SAID_IN_TITLE);
            writeln!(out, "{}", table.to_text(&style))?;
            let title = format!("{machine}: {}, states that CPUs share (simulated)", words(log));
            let table = joined::table(&title, group, targets, &["log", "machine"]);
            if table.row_count() > 0 {
                writeln!(out, "{}", table.to_text(&style))?;
            }
        }
        self.print_promotion(&mut out, &style, targets, is_by_log, effects)?;
        if logs.len() > 1 && !self.shared.by_log {
            let table = by_log_table("Log by log", outcomes, prices);
            if table.row_count() > 0 {
                writeln!(out, "{}", table.to_text(&style))?;
            }
        }
        for finding in findings {
            writeln!(out, "{}", wrap(&finding.text, style.width, 2))?;
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
    ) -> Result<()> {
        let pooled = promotion::pool(effects);
        let shown = if is_by_log { effects } else { &pooled };
        for group in shown.chunk_by(|a, b| a.log == b.log && a.machine == b.machine) {
            let PromotionEffect { log, machine, .. } = &group[0];
            let Some(target) = targets.iter().find(|target| target.machine.id == *machine) else {
                continue;
            };
            let log = words(log);
            let promoted =
                target.machine.states.iter().filter(|state| state.idle().is_auto_promoted);
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

/// What was replayed.
#[derive(Clone, Copy)]
struct Results<'a> {
    outcomes: &'a [Outcome<'a>],
    effects: &'a [PromotionEffect<'a>],
}

/// The log's name in a title.
fn words(log: &str) -> &str {
    if log == ALL_LOGS { "all logs" } else { log }
}

/// One outcome for each log, machine and governor, in that order; the oracle's, for each price. And why shared
/// states were left out, if they were.
pub(super) fn outcomes<'a>(
    shared: &ReplayArguments,
    logs: &[NamedLog],
    targets: &'a [ReplayTarget],
    choices: &[Choice],
    prices: &[Price],
    topology: &Topology,
) -> Result<(Vec<Outcome<'a>>, Vec<String>)> {
    let mut left_out = Vec::new();
    let mut plans: Vec<Vec<Option<ReplayedGroups>>> = Vec::new();
    for (index, named) in logs.iter().enumerate() {
        let mut plan = Vec::new();
        for target in targets {
            if !target.is_for(index) {
                plan.push(None);
                continue;
            }
            plan.push(match topology.join(named, &target.machine.id, &target.shared)? {
                Joined::Never => None,
                Joined::LeftOut(reason) => {
                    left_out.push(reason);
                    None
                }
                Joined::Yes(groups, unseen) => {
                    if !unseen.is_empty() {
                        let cpus: Vec<String> = unseen.iter().map(u16::to_string).collect();
                        left_out.push(format!(
                            "{} on {}: not observed, so they count as awake, and keep others out of shared states: \
                             CPU {}",
                            named.name,
                            target.machine.id,
                            cpus.join(", ")
                        ));
                    }
                    Some(groups)
                }
            });
        }
        plans.push(plan);
    }
    if plans.iter().flatten().any(Option::is_some) {
        governors::must_decide(choices)?;
    }
    let gap_count: u64 = logs.iter().map(|named| named.log.gap_count()).sum();
    let bar = Progress::gaps("replaying", gap_count);
    let by_log: Vec<Vec<Outcome<'a>>> = logs
        .par_iter()
        .enumerate()
        .zip(&plans)
        .map(|(named, plan)| log_outcomes(shared, named, (targets, plan), choices, prices, &bar))
        .collect::<Result<_>>()?;
    Ok((by_log.into_iter().flatten().collect(), left_out))
}

fn log_outcomes<'a>(
    shared: &ReplayArguments,
    (index, named): (usize, &NamedLog),
    (targets, plan): (&'a [ReplayTarget], &[Option<ReplayedGroups>]),
    choices: &[Choice],
    prices: &[Price],
    bar: &Progress,
) -> Result<Vec<Outcome<'a>>> {
    // The oracle is always replayed, because regret needs it, but shown only if requested.
    let unseen = Choice::ORACLE;
    let is_seen = choices.iter().any(Choice::is_oracle);
    let all: Vec<&Choice> = choices.iter().chain((!is_seen).then_some(&unseen)).collect();
    let lambdas_mw = |target: &ReplayTarget| -> Vec<f64> {
        prices.iter().map(|price| price.lambda_mw(&target.costs)).collect()
    };
    let lambdas_mw: Vec<Vec<f64>> = targets.iter().map(lambdas_mw).collect();
    let (mut played, mut seats, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
    let of_log = targets.iter().zip(plan).zip(&lambdas_mw);
    for ((target, joined), lambdas_mw) in of_log.filter(|((it, _), _)| it.is_for(index)) {
        let setting = shared.setting(target, named);
        let (costs, groups) = (&target.costs, joined.as_ref());
        bounds.extend(groups.map(|groups| JointBound { groups, costs, lambdas_mw }));
        for &choice in &all {
            let player = choice.on(&target.machine)?;
            let of_choice = if choice.is_priced() { prices } else { &prices[..1] };
            for &price in of_choice {
                seats.push(Seat { player, costs, setting, price, groups });
                played.push(Played { target, choice, price, is_joined: groups.is_some() });
            }
        }
    }
    let (tallies, bounds_uj) =
        run(&named.log, &named.name, &seats, &bounds, &|done| bar.add(done))?;
    let mut bounds_uj = bounds_uj.into_iter();
    let results: Vec<(Played<'_, '_>, Tally)> = played.into_iter().zip(tallies).collect();
    let mut outcomes = Vec::new();
    for results in results.chunk_by(|(a, _), (b, _)| std::ptr::eq(a.target, b.target)) {
        let Played { target, is_joined, .. } = results[0].0;
        let bounds_uj = if is_joined { bounds_uj.next() } else { None };
        let bounds_uj = bounds_uj.unwrap_or_else(|| vec![0.0; prices.len()]);
        let oracles = results.iter().filter(|(played, _)| played.choice.is_oracle());
        let least_uj = |((played, tally), bound_uj): (&(Played<'_, '_>, Tally), &f64)| {
            // Each CPU's least, and the least of what they share: no governor costs less than both.
            let lambda_mw = played.price.lambda_mw(&target.costs);
            let own_uj = target.costs.cost_uj(&tally.alone(), lambda_mw);
            own_uj + target.costs.shared_awake_uj(tally) + bound_uj
        };
        let oracle_costs_uj: Vec<f64> = oracles.zip(&bounds_uj).map(least_uj).collect();
        for (Played { choice, price, .. }, tally) in results {
            if choice.is_oracle() && !is_seen {
                continue;
            }
            let name = choice.name();
            outcomes.push(Outcome {
                log: named.name.clone(),
                machine: target.machine.id.clone(),
                state_names: &target.state_names,
                states: target.states,
                costs: &target.costs,
                power_basis: target.machine.power_basis(),
                governor: if choice.is_priced() { priced_name(&name, *price) } else { name },
                role: choice.role(),
                tally: tally.clone(),
                oracle_costs_uj: oracle_costs_uj.clone(),
            });
        }
    }
    Ok(outcomes)
}

/// Who played where.
struct Played<'a, 'c> {
    target: &'a ReplayTarget,
    choice: &'c Choice,
    price: Price,
    is_joined: bool,
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
