//! `idlewise replay --compare`: where two governors differ, gap by gap, and what that costs.

use std::io::Write;
use std::process::ExitCode;

use idlewise_lab::target::in_use;
use idlewise_report::diff::{
    Difference, Direction, before_table, by_length_table, by_log_table, by_reason_table,
    costly_rows, costly_table, group_rows,
};
use idlewise_report::replay::broken_rules;
use idlewise_report::verdict::InUse;
use idlewise_report::{Table, TextStyle, wrap};
use idlewise_sim::contest::Player;
use idlewise_sim::diff::Pair;
use idlewise_sim::replay::{PerCpu, replay_cpus};
use idlewise_trace::log::ColumnSet;
use rayon::prelude::*;
use serde_json::json;

use crate::error::{Failure, Result};
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors::{self, Choice, OnMachine};
use crate::input::{NamedLog, must_have_gaps};
use crate::progress::Progress;
use crate::replay_arguments::{
    ALL_LOGS, MACHINES_DEFAULT, ReplayArguments, ReplayTarget, Targets, say_assumed, title,
};
use crate::screen;
use crate::threads;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # menu and menu+min (a proposed patch), on the bundled recordings
  idlewise replay --compare

  # What teo does better on a recording of yours, and what it does worse
  idlewise replay --compare perf.data --machine spr --governor menu --governor teo

  # Where menu loses most against the best there is, if delay is free
  idlewise replay --compare server.parquet --governor menu --governor oracle --lambda-mw 0

  # Every figure, and the costliest gaps of each log, for a program
  idlewise replay --compare server.parquet --governor menu-6.1 --governor menu-6.12 --json

  # What a patch for menu changes, and in which gaps
  idlewise replay --compare perf.data --kernel-source ~/linux --governor menu.c \\
      --governor menu.c --patch my.patch

Exit status: 0, even if they differ; 1 if a governor's file crashed, looped or returned an invalid \
state; 2 on bad input.";

/// Show where two governors differ, gap by gap, and what that costs
///
/// A is the first governor, B the second; if one is named, A is the governor in use. Changes are B minus A: a negative number means that B has
/// less. Both are replayed over the same gaps, each with its own history and tick, and each gap is
/// charged with what the governor spends in it. Cost is energy + λ × delay. Governors can differ in a gap because of an earlier one:
/// only one of them stopped the tick, or only one of them learned from a stay. --csv prints the gaps in
/// groups, --json also the most expensive single gaps.
#[derive(clap::Args)]
#[command(mut_arg(
    "governor",
    with_default("the governor in use and menu+min, or menu if another was in use")
))]
#[command(mut_arg("lambda_mw", |arg| arg.help(
    "The price of delay in mW: a second of delay costs this many mJ [default: ¼ × polling power; the \
     summary also shows 0 and 1 ×]"
)))]
#[command(mut_arg("by_log", |arg| arg.help("Print one table for each log instead")))]
#[command(after_long_help = EXAMPLES)]
pub struct Diff {
    #[command(flatten)]
    governors: GovernorArguments,

    #[command(flatten)]
    shared: ReplayArguments,
}

impl Diff {
    /// Compares the governors and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        threads::start();
        // A wrong name is said before the logs are read.
        let named = self.governors.choices()?;
        if let Some(third) = named.get(2) {
            return Err(Failure::new(format_args!(
                "a comparison has two governors, and '{}' is one too many; `idlewise replay` \
                 takes any number",
                third.name()
            )));
        }
        self.shared.machines(&named)?;
        let is_asked = named.len() > 1;
        let logs = self.shared.open_logs()?;
        // One that has no port here cannot be replayed.
        let in_use = Some(in_use(&logs, None)).filter(|it| Choice::parse(&it.exact).is_ok());
        let in_use = in_use.unwrap_or_default();
        let choices = self.choices(named, &in_use)?;
        governors::must_decide(&choices)?;
        let machines = self.shared.machines(&choices)?;
        must_have_gaps(&logs)?;
        let on = machines.on_logs(&logs, &MACHINES_DEFAULT)?;
        let targets = &on.targets;
        let differences = self.differences(&logs, targets, &choices)?;
        if governors::say_failures(&choices, "so there is nothing to compare") {
            return Ok(ExitCode::FAILURE);
        }
        self.print(&logs, &on, &choices, (&in_use, is_asked), &differences)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The two that the user named. Of one, A is the governor in use. Without any, B is the proposed rule if A is menu,
    /// and otherwise menu.
    fn choices(&self, mut named: Vec<Choice>, in_use: &InUse) -> Result<[Choice; 2]> {
        let is_menu = in_use.name == "menu";
        if named.is_empty() {
            named.push(Choice::parse(if is_menu { "menu+min" } else { "menu" })?);
        }
        if let [one] = &named[..] {
            // Any menu stands for the one that the patch changes.
            let a = if is_menu { "menu" } else { &in_use.exact };
            let (a, b) = (Choice::parse(a)?, one.name());
            if a.name() == b {
                return Err(Failure::new(format_args!(
                    "a comparison needs two governors, and '{b}' is {} already; name the other with a second \
                     --governor",
                    in_use.role()
                )));
            }
            named.insert(0, a);
        }
        Ok(named.try_into().expect("a third was refused"))
    }

    /// The differences for each log and machine, in that order.
    fn differences<'a>(
        &self,
        logs: &[NamedLog],
        targets: &'a [ReplayTarget],
        choices: &[Choice; 2],
    ) -> Result<Vec<Difference<'a>>> {
        let gap_count: u64 = logs.iter().map(|named| named.log.gap_count()).sum();
        let bar = Progress::gaps("comparing", gap_count);
        let by_log: Vec<Vec<Difference<'a>>> = logs
            .par_iter()
            .enumerate()
            .map(|(index, named)| self.log_differences(named, index, targets, choices, &bar))
            .collect::<Result<_>>()?;
        Ok(by_log.into_iter().flatten().collect())
    }

    fn log_differences<'a>(
        &self,
        named: &NamedLog,
        log_index: usize,
        targets: &'a [ReplayTarget],
        choices: &[Choice; 2],
        bar: &Progress,
    ) -> Result<Vec<Difference<'a>>> {
        let prices = self.shared.prices();
        let price = prices[prices.len() / 2];
        let [a, b] = choices.each_ref();
        let players =
            |target: &'a ReplayTarget| Ok((target, a.on(&target.machine)?, b.on(&target.machine)?));
        let targets: Vec<_> = targets.iter().filter(|target| target.is_for(log_index)).collect();
        let players: Vec<_> = targets.iter().copied().map(players).collect::<Result<_>>()?;
        let make = || -> Vec<Pair> {
            let pair = |&(target, a, b): &(
                &ReplayTarget,
                Player<OnMachine<'_>>,
                Player<OnMachine<'_>>,
            )| {
                let setting = self.shared.setting(target, named);
                let [a, b] = [a, b].map(|player| player.side(&target.costs, setting, price));
                Pair::new(a, b, &setting, price.lambda_mw(&target.costs), log_index)
            };
            players.iter().map(pair).collect()
        };
        let take = |pairs: &mut Vec<Pair>, gaps: &[_]| {
            pairs.iter_mut().for_each(|pair| pair.replay(gaps));
        };
        let finish = |pairs: Vec<Pair>| pairs.into_iter().map(Pair::into_diff).collect::<Vec<_>>();
        // A log without gaps has no CPUs, and therefore no differences.
        let mut diffs = finish(make());
        let cpu = PerCpu {
            columns: ColumnSet::WithoutRecorded,
            make: &make,
            take: &take,
            finish: &finish,
        };
        let mut merge = |of_cpu: Vec<_>| {
            diffs.iter_mut().zip(&of_cpu).for_each(|(sum, diff)| sum.merge(diff));
        };
        replay_cpus(&named.log, &cpu, &mut merge, &|done| bar.add(done))?;
        let difference = |(target, diff): (&'a ReplayTarget, _)| Difference {
            log: named.name.clone(),
            machine: target.machine.id.clone(),
            state_names: &target.state_names,
            states: target.states,
            costs: &target.costs,
            power_basis: target.machine.power_basis(),
            governors: [choices[0].name(), choices[1].name()],
            price,
            knows_tasks: !named.log.metadata.is_unknown("ran_task"),
            diff,
        };
        Ok(targets.into_iter().zip(diffs).map(difference).collect())
    }

    fn print(
        &self,
        logs: &[NamedLog],
        on: &Targets,
        choices: &[Choice],
        (in_use, is_asked): (&InUse, bool),
        differences: &[Difference<'_>],
    ) -> Result<()> {
        let mut out = screen::stdout();
        let targets = on.targets.as_slice();
        let mut notes = self.shared.notes(logs, targets, choices);
        for Difference { machine, governors: [a, b], diff, .. } in differences {
            let broken = [broken_rules(a, machine, &diff.a), broken_rules(b, machine, &diff.b)];
            broken.iter().flatten().for_each(|text| notes.doubt(text));
        }
        let form = (self.shared.json, self.shared.csv);
        say_assumed(on.assumed.as_deref(), &mut notes, &mut out, form)?;
        if self.shared.csv {
            out.write_all(group_rows(differences).to_csv().as_bytes())?;
            return Ok(());
        }
        let shown = match logs.len() {
            1 => differences.to_vec(),
            _ if self.shared.by_log => differences.to_vec(),
            _ => pool(differences, targets),
        };
        if self.shared.json {
            let (costly, before_ns) = costly_rows(differences);
            let mut costly = json!(costly);
            let rows = costly.as_array_mut().into_iter().flatten();
            for (row, before_ns) in rows.zip(before_ns) {
                row["before_ns"] = json!(before_ns);
            }
            let document = json!({
                "groups": group_rows(differences),
                "costly_gaps": costly,
                "findings": shown.iter().flat_map(Difference::findings).collect::<Vec<_>>(),
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
                "logs": logs.iter().map(|named| json!({
                    "log": named.name, "metadata": named.log.metadata,
                })).collect::<Vec<_>>(),
            });
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let style = TextStyle::for_stdout();
        let log_names: Vec<&str> = logs.iter().map(|named| named.name.as_str()).collect();
        let (a, b) = (choices[0].name(), choices[1].name());
        let names = [&*a, &*b].into_iter();
        // What the kernel's default is matters only where A was taken for it.
        let used = in_use.nearest(names.clone()).filter(|_| in_use.is_recorded || !is_asked);
        let role = |name: &str| match used == Some(name) {
            true => format!(" ({})", in_use.role_of(name)),
            false => String::new(),
        };
        let absent = in_use.absent(names.clone());
        let who = format!("A is {a}{}, B is {b}{}.{absent}", role(&a), role(&b));
        writeln!(out, "{}\n", wrap(&who, style.width, 0))?;
        for difference in &shown {
            let Difference { log, machine, diff, .. } = difference;
            let title = title(log, machine, targets, logs, &diff.a);
            writeln!(out, "{}\n", wrap(&title, style.width, 0))?;
            for sentence in difference.sentences() {
                writeln!(out, "{}", wrap(&sentence, style.width, 2))?;
            }
            writeln!(out)?;
            if diff.all.differing_count == 0 {
                continue;
            }
            let mut print = |table: Table| match table.row_count() {
                0 => Ok(()),
                _ => writeln!(out, "{}", table.to_text(&style)),
            };
            print(by_length_table(difference))?;
            print(by_reason_table(difference))?;
            if log == ALL_LOGS {
                let parts: Vec<_> = differences.iter().filter(|d| d.machine == *machine).collect();
                print(by_log_table(&parts))?;
            }
            let log_names = if log == ALL_LOGS { &log_names[..] } else { &[] };
            for direction in Direction::ALL {
                print(costly_table(difference, direction, log_names))?;
                print(before_table(difference, direction))?;
            }
        }
        out.write_all(notes.to_text(style.width).as_bytes())?;
        Ok(())
    }
}

/// The sum over all logs, for each machine.
fn pool<'a>(differences: &[Difference<'a>], targets: &[ReplayTarget]) -> Vec<Difference<'a>> {
    let of = |target: &ReplayTarget| {
        let mut parts = differences.iter().filter(|d| d.machine == target.machine.id);
        let mut sum = Difference { log: ALL_LOGS.to_owned(), ..parts.next()?.clone() };
        parts.for_each(|part| {
            sum.knows_tasks &= part.knows_tasks;
            sum.diff.merge(&part.diff);
        });
        Some(sum)
    };
    targets.iter().filter_map(of).collect()
}
