//! `idlewise replay`: recorded gaps under any governor, on any machine's idle states.

mod recorded;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_core::{DisabledMask, NO_LATENCY_LIMIT_NS, StateTable, tick_period_ns};
use idlewise_report::replay::{Outcome, Price, Role, by_log_table, findings, replay_table};
use idlewise_report::{Notes, TextStyle, wrap};
use idlewise_sim::replay::{DEFAULT_TICK_WORK_NS, Lane, MakeLane, Setting, Tally, replay_log};
use idlewise_sim::{Basis, CostModel, Machine};
use rayon::prelude::*;
use serde_json::json;

use crate::bundled;
use crate::error::Failure;
use crate::governor_arguments::GovernorArguments;
use crate::governors::{self, Choice};
use crate::input::NamedLog;
use crate::progress::Progress;

pub(super) use recorded::each_cpu;

/// What is replayed on if the user names no machine: a server of each x86 maker.
pub(super) const MACHINES_DEFAULT: [&str; 2] = ["spr", "milan"];
/// HZ if neither the user nor the log says it: Debian's.
pub(super) const HZ_DEFAULT: u32 = 250;

const EXAMPLES: &str = "\
Examples:
  # The bundled recordings, two server machines, the usual governors
  idlewise replay

  # A recording of your own on one machine
  idlewise replay perf.data --machine spr

  # Two governors, one machine file of yours, C6 switched off, at most 50 us of exit latency
  idlewise replay server.parquet --machine ./mine.toml --governor menu --governor teo \\
      --disable C6 --latency-limit-us 50

  # What a patch for menu would do, beside the kernel's menu.c as it is
  idlewise replay server.parquet --kernel-source ~/linux --governor menu.c \\
      --governor menu.c --patch my.patch

  # Every figure, for a program
  idlewise replay server.parquet --json

  # Did the recording kernel's governor decide as ours does?
  idlewise replay server.parquet --check-recorded

Exit status: 0; 1 if --check-recorded found decisions that differ, or a governor's file crashed,
looped or answered what is no state; 2 on bad input.";

/// Replay recorded idle gaps under any governor, on any machine's idle states
///
/// Times are simulated: gaps are the recording's, exit latencies the machine table's worst case.
/// λ is the price of delay: at λ=1 a second of delay costs what a second of polling does.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{}\n{EXAMPLES}", governors::list()))]
pub struct Replay {
    /// Idle logs or recordings (perf.data, trace.dat) [default: the bundled logs]
    logs: Vec<PathBuf>,

    /// A machine's id or file; may be repeated [default: spr, milan]
    #[arg(long = "machine", value_name = "NAME|FILE")]
    machines: Vec<String>,

    #[command(flatten)]
    governors: GovernorArguments,

    /// The kernel's CONFIG_HZ [default: the recording's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000))]
    hz: Option<u32>,

    /// The price of latency instead of 0, ¼ and 1 × polling power, in mW
    #[arg(long, value_name = "P", value_parser = parse_power)]
    lambda_mw: Option<f64>,

    /// Longest exit latency allowed, in us; a tighter limit in the log counts too
    #[arg(long, value_name = "T")]
    latency_limit_us: Option<u32>,

    /// Switch a state off, by name or index; may be repeated
    #[arg(long = "disable", value_name = "STATE")]
    disabled: Vec<String>,

    /// How long the tick's handler keeps a CPU running, in ns (assumed)
    #[arg(long, value_name = "NS", default_value_t = DEFAULT_TICK_WORK_NS)]
    tick_work_ns: u64,

    /// Compare the recorded decisions with those of the recording's own governor on its own table
    #[arg(long, conflicts_with_all = ["json", "csv", "write_log"])]
    check_recorded: bool,

    /// Write what the one governor named did on the one machine named as a new log
    #[arg(long, value_name = "LOG", conflicts_with_all = ["json", "csv", "disabled"])]
    write_log: Option<PathBuf>,

    /// Replace the log of --write-log if it exists
    #[arg(long, requires = "write_log")]
    force: bool,

    /// One table for each log instead of all logs together
    #[arg(long)]
    by_log: bool,

    /// Print JSON instead of text
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print the table as CSV instead of text
    #[arg(long)]
    csv: bool,
}

fn parse_power(text: &str) -> Result<f64, String> {
    let power: f64 = text.parse().map_err(|_| "not a number of milliwatts".to_owned())?;
    if power.is_finite() && power >= 0.0 { Ok(power) } else { Err("must be 0 or more".to_owned()) }
}

/// A machine made ready for replay.
pub(super) struct Bench {
    pub(super) machine: Machine,
    pub(super) states: StateTable,
    pub(super) state_names: Vec<String>,
    pub(super) disabled: DisabledMask,
    costs: CostModel,
}

impl Bench {
    pub(super) fn new(machine: Machine, disable: &[String]) -> Result<Self, Failure> {
        let states = machine.table().map_err(Failure::new)?;
        let mut disabled = machine.disabled_by_default();
        for state in disable {
            disabled = disabled.with(machine.state_index(state).map_err(Failure::new)?);
        }
        if (0..states.len()).all(|i| disabled.contains(i)) {
            return Err(Failure::new(format_args!(
                "{}: every state is disabled; leave at least one on",
                machine.id
            )));
        }
        let powers_mw: Vec<f64> = machine.states.iter().map(|state| state.power.mw).collect();
        let costs = CostModel::new(states, &powers_mw, machine.running_power.mw);
        let state_names = machine.states.iter().map(|state| state.name.clone()).collect();
        Ok(Bench { machine, states, state_names, disabled, costs })
    }
}

impl Replay {
    /// Replays everything that was asked for and prints it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        // Names are checked before anything is read.
        let choices = match self.governors.is_empty() {
            true => Choice::standard(),
            false => self.governors.choices()?,
        };
        let benches = self.benches(&choices)?;
        if self.check_recorded {
            return recorded::check(&self.open_logs()?, &self, &choices);
        }
        if let Some(path) = &self.write_log {
            return recorded::write(&self.open_logs()?, &self, &benches, &choices, path);
        }
        let logs = self.open_logs()?;
        let prices = match self.lambda_mw {
            Some(lambda_mw) => vec![Price::Given(lambda_mw)],
            None => Price::STANDARD.to_vec(),
        };
        let mut outcomes = self.outcomes(&logs, &benches, &choices, &prices)?;
        // A file that failed takes nothing down but its own rows.
        let failed = |choice: &Choice| choice.failure().is_some();
        outcomes.retain(|outcome| {
            !choices.iter().any(|choice| failed(choice) && choice.name() == outcome.governor)
        });
        self.print(&logs, &benches, &choices, &prices, &outcomes)?;
        for failure in choices.iter().filter_map(Choice::failure) {
            eprintln!("idlewise: {failure}; its rows are left out");
        }
        Ok(if choices.iter().any(failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn benches(&self, choices: &[Choice]) -> Result<Vec<Bench>, Failure> {
        let names: Vec<&str> = match self.machines.as_slice() {
            [] => MACHINES_DEFAULT.to_vec(),
            names => names.iter().map(String::as_str).collect(),
        };
        let benches: Vec<Bench> = names
            .into_iter()
            .map(|name| Bench::new(bundled::machine(name)?, &self.disabled))
            .collect::<Result<_, Failure>>()?;
        for bench in &benches {
            for choice in choices {
                choice.check(&bench.machine)?;
            }
        }
        Ok(benches)
    }

    fn open_logs(&self) -> Result<Vec<NamedLog>, Failure> {
        if self.logs.is_empty() {
            return bundled::logs();
        }
        self.logs.iter().map(|path| NamedLog::open(path)).collect()
    }

    fn setting(&self, bench: &Bench, log: &NamedLog) -> Setting {
        let hz = self.hz.or(log.log.metadata.hz).unwrap_or(HZ_DEFAULT);
        let limit_ns = self.latency_limit_us.map(|us| i64::from(us) * 1_000);
        Setting {
            disabled: bench.disabled,
            latency_limit_ns: limit_ns.unwrap_or(NO_LATENCY_LIMIT_NS),
            tick_work_ns: self.tick_work_ns,
            ..Setting::new(bench.states, tick_period_ns(hz))
        }
    }

    /// One outcome for each log, machine and governor, in that order; the oracle has one for each
    /// price.
    fn outcomes<'a>(
        &self,
        logs: &[NamedLog],
        benches: &'a [Bench],
        choices: &[Choice],
        prices: &[Price],
    ) -> Result<Vec<Outcome<'a>>, Failure> {
        let gap_count: u64 = logs.iter().map(|named| named.log.gap_count()).sum();
        let bar = Progress::gaps("replaying", gap_count);
        let by_log: Vec<Vec<Outcome<'a>>> = logs
            .par_iter()
            .map(|named| self.log_outcomes(named, benches, choices, prices, &bar))
            .collect::<Result<_, Failure>>()?;
        Ok(by_log.into_iter().flatten().collect())
    }

    fn log_outcomes<'a>(
        &self,
        named: &NamedLog,
        benches: &'a [Bench],
        choices: &[Choice],
        prices: &[Price],
        bar: &Progress,
    ) -> Result<Vec<Outcome<'a>>, Failure> {
        // The oracle is replayed even if nobody asked to see it: regret is measured from it.
        let unseen = Choice::Oracle;
        let is_seen = choices.iter().any(|choice| matches!(choice, Choice::Oracle));
        let all: Vec<&Choice> = choices.iter().chain((!is_seen).then_some(&unseen)).collect();
        type Make<'m> = Box<dyn Fn() -> Box<dyn Lane> + Sync + 'm>;
        let mut makers: Vec<Make<'_>> = Vec::new();
        for bench in benches {
            let setting = self.setting(bench, named);
            for &choice in &all {
                let lane_count = if matches!(choice, Choice::Oracle) { prices.len() } else { 1 };
                for index in 0..lane_count {
                    makers.push(Box::new(move || {
                        choice.lane(
                            &named.name,
                            &bench.machine,
                            &bench.costs,
                            setting,
                            prices[index.min(prices.len() - 1)],
                        )
                    }));
                }
            }
        }
        let makers: Vec<&MakeLane<'_>> = makers.iter().map(|make| &**make).collect();
        let tallies = replay_log(&named.log, &makers, &|done| bar.add(done))?;
        let mut tallies = tallies.into_iter();
        let mut outcomes = Vec::new();
        for bench in benches {
            let mut of_bench: Vec<(String, Role, Tally)> = Vec::new();
            let mut oracle_costs_uj = Vec::new();
            for &choice in &all {
                if matches!(choice, Choice::Oracle) {
                    for (price, tally) in prices.iter().zip(&mut tallies) {
                        let lambda_mw = price.lambda_mw(&bench.costs);
                        oracle_costs_uj.push(bench.costs.cost_uj(&tally, lambda_mw));
                        of_bench.push((price.oracle_name(), Role::Oracle, tally));
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
                    machine: bench.machine.id.clone(),
                    state_names: &bench.state_names,
                    states: bench.states,
                    costs: &bench.costs,
                    governor,
                    role,
                    tally,
                    oracle_costs_uj: oracle_costs_uj.clone(),
                });
            }
        }
        Ok(outcomes)
    }

    fn print(
        &self,
        logs: &[NamedLog],
        benches: &[Bench],
        choices: &[Choice],
        prices: &[Price],
        outcomes: &[Outcome<'_>],
    ) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let pooled = pool(outcomes, benches);
        let sentences = findings(outcomes, &pooled, prices);
        let notes = self.notes(logs, benches, choices);
        if self.csv {
            out.write_all(replay_table("", outcomes, prices, &[]).to_csv().as_bytes())?;
            return Ok(());
        }
        if self.json {
            let document = json!({
                "rows": replay_table("", outcomes, prices, &[]),
                "failures": choices.iter().filter_map(|choice| {
                    Some(json!({"governor": choice.name(), "message": choice.failure()?}))
                }).collect::<Vec<_>>(),
                "states": state_rows(outcomes),
                "findings": sentences,
                "bases": notes.bases().map(|(basis, what)| json!({
                    "basis": basis.as_str(), "what": what,
                })).collect::<Vec<_>>(),
                "doubts": notes.doubts().map(|(doubt, count)| json!({
                    "doubt": doubt, "count": count,
                })).collect::<Vec<_>>(),
                "logs": logs.iter().map(|named| json!({
                    "log": named.name, "metadata": named.log.metadata,
                })).collect::<Vec<_>>(),
            });
            writeln!(out, "{document:#}")?;
            return Ok(());
        }
        let style = TextStyle::for_stdout();
        let shown = if self.by_log || logs.len() == 1 { outcomes } else { &pooled };
        for group in shown.chunk_by(|a, b| a.log == b.log && a.machine == b.machine) {
            let title = title(&group[0], benches, logs.len());
            let table = replay_table(&title, group, prices, &SAID_IN_TITLE);
            writeln!(out, "{}", table.to_text(&style))?;
        }
        if logs.len() > 1 && !self.by_log {
            let table = by_log_table("Log by log, at the middle λ:", outcomes, prices);
            if table.row_count() > 0 {
                writeln!(out, "{}", table.to_text(&style))?;
            }
        }
        for sentence in sentences {
            writeln!(out, "{}", wrap(&sentence, style.width, 0))?;
        }
        writeln!(out)?;
        out.write_all(notes.to_text(style.width).as_bytes())?;
        Ok(())
    }

    fn notes(&self, logs: &[NamedLog], benches: &[Bench], choices: &[Choice]) -> Notes {
        let mut notes = Notes::default();
        notes.basis(Basis::Simulated, "misses, delays and ticks, with worst-case exit latencies");
        for provenance in governors::provenance(choices) {
            notes.basis(Basis::Simulated, provenance);
        }
        notes.basis(Basis::Assumed, format!("{} ns of work for each tick", self.tick_work_ns));
        for bench in benches {
            let basis = bench.machine.power_basis();
            let id = &bench.machine.id;
            notes.basis(basis, format!("powers of {id}, so its energy and regret"));
            for doubt in bench.machine.doubts() {
                notes.doubt(format!("{id}: {doubt}"));
            }
        }
        for named in logs {
            let metadata = &named.log.metadata;
            if self.hz.is_none() && metadata.hz.is_none() {
                let name = &named.name;
                notes.doubt(format!("{name}: HZ is unknown, {HZ_DEFAULT} was assumed; pass --hz"));
            }
            for doubt in &metadata.doubts {
                notes.doubt(doubt.as_str());
            }
        }
        notes
    }
}

fn title(outcome: &Outcome<'_>, benches: &[Bench], log_count: usize) -> String {
    let machine = benches.iter().find(|bench| bench.machine.id == outcome.machine);
    let machine_title = machine.map_or("", |bench| bench.machine.title.as_str());
    let log = match outcome.log.as_str() {
        ALL_LOGS => format!("all {log_count} logs together"),
        log => log.to_owned(),
    };
    format!(
        "{} ({machine_title}): {log}, {} gaps, {:.1} s idle",
        outcome.machine,
        outcome.tally.gap_count,
        outcome.tally.gap_ns as f64 / 1e9,
    )
}

/// Columns that a table of one log and machine doesn't need.
const SAID_IN_TITLE: [&str; 4] = ["log", "machine", "gap_count", "decision_count"];

/// The name of all logs added up.
const ALL_LOGS: &str = "all";

/// The outcomes of all logs added up, for each machine and governor.
fn pool<'a>(outcomes: &[Outcome<'a>], benches: &[Bench]) -> Vec<Outcome<'a>> {
    let mut pooled: Vec<Outcome<'a>> = Vec::new();
    for bench in benches {
        for outcome in outcomes.iter().filter(|outcome| outcome.machine == bench.machine.id) {
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
