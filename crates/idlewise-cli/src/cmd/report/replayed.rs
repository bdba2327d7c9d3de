//! The replay behind a page: each log once through every governor on every machine.

use idlewise_lab::target::in_use;
use idlewise_report::page::{
    GapColumns, GapLog, GovernorFacts, GovernorRole, Knows, Page, Replayed, ReplayedLog,
    ReplayedMachine, front_prices_mw,
};
use idlewise_report::replay::Role;
use idlewise_report::verdict::InUse;
use idlewise_sim::contest::Price;
use idlewise_sim::ledger::{self, Account, Ledger, LedgerGovernor, LedgerMachine, WORST_COUNT};
use idlewise_sim::replay::ObservedLane;
use rayon::prelude::*;

use super::Report;
use crate::error::Result;
use crate::governors::Choice;
use crate::input::NamedLog;
use crate::progress::Progress;
use crate::replay_arguments::{ALL_LOGS, ReplayTarget};

/// The gaps of a log as columns, and its totals.
type OfLog = (Ledger, GapColumns);

impl Report {
    /// Replays the logs and adds the results to a page.
    pub(super) fn replay_into(
        &self,
        page: &mut Page,
        logs: &[NamedLog],
        targets: &[ReplayTarget],
        choices: &[Choice],
    ) -> Result<()> {
        let played: Vec<&Choice> = choices.iter().filter(|choice| !choice.is_oracle()).collect();
        let shown = shown(&played);
        let pass_sum =
            |named: &NamedLog| named.log.gap_count() * ledger::pass_count(&named.log, self.gaps);
        let bar = Progress::gaps("replaying", logs.iter().map(pass_sum).sum());
        let of_logs: Vec<OfLog> = logs
            .par_iter()
            .enumerate()
            .map(|named| self.log_ledger(named, targets, &played, &shown, &bar))
            .collect::<Result<_>>()?;
        bar.finish();
        let in_use: Vec<InUse> = targets.iter().map(|it| in_use(logs, Some(it))).collect();
        let (ledgers, columns): (Vec<Ledger>, Vec<GapColumns>) = of_logs.into_iter().unzip();
        let replayed = Replayed {
            machines: targets.iter().zip(&in_use).map(machine).collect(),
            governors: played.iter().map(|choice| governor(choice)).collect(),
            failed: (0..played.len()).filter(|&i| played[i].failure().is_some()).collect(),
            shows_oracle: played.len() < choices.len(),
            prices: self.shared.prices(),
            logs: logs
                .iter()
                .zip(ledgers)
                .map(|(named, ledger)| ReplayedLog { name: named.name.clone(), ledger })
                .collect(),
            all_name: ALL_LOGS,
        };
        for (facts, log) in page.facts.logs.iter_mut().zip(&replayed.logs) {
            facts.cpu_count = log.ledger.cpus.len() as u64;
            facts.first_ns = log.ledger.first_ns.unwrap_or(0);
            facts.span_ns = log.ledger.end_ns.abs_diff(facts.first_ns);
            facts.idle_ns = log.ledger.idle_ns;
        }
        replayed.fill(page);
        for (index, (log, columns)) in replayed.logs.iter().zip(columns).enumerate() {
            let names: Vec<(usize, Option<usize>)> = (0..targets.len())
                .filter(|&machine| targets[machine].is_for(index))
                .flat_map(|machine| shown.iter().map(move |&governor| (machine, governor)))
                .map(|(machine, governor)| (machine, replayed.listed_index(governor)))
                .collect();
            let gap_count = page.facts.logs[index].gap_count;
            let first_ns = page.facts.logs[index].first_ns;
            let how = how(&log.ledger, gap_count);
            columns.finish(page, GapLog { log: index, gap_count, first_ns, how }, &names);
        }
        Ok(())
    }

    fn log_ledger(
        &self,
        (index, named): (usize, &NamedLog),
        targets: &[ReplayTarget],
        played: &[&Choice],
        shown: &[usize],
        bar: &Progress,
    ) -> Result<OfLog> {
        type Make<'m> = Box<dyn Fn(Account) -> Box<dyn ObservedLane<Account>> + Sync + 'm>;
        let prices = self.shared.prices();
        let mut makers: Vec<Vec<Make<'_>>> = Vec::new();
        for target in targets {
            let setting = self.shared.setting(target, named);
            let of_target: Result<Vec<Make<'_>>> = played
                .iter()
                .map(|choice| {
                    let player = choice.on(&target.machine)?;
                    let make: Make<'_> = Box::new(move |account| {
                        player.observed(&target.costs, setting, Price::QUARTER, account)
                    });
                    Ok(make)
                })
                .collect();
            makers.push(of_target?);
        }
        let machines: Vec<LedgerMachine<'_>> = targets
            .iter()
            .zip(&makers)
            .map(|(target, makers)| LedgerMachine {
                costs: &target.costs,
                setting: self.shared.setting(target, named),
                prices_mw: prices.iter().map(|price| price.lambda_mw(&target.costs)).collect(),
                front_mw: front_prices_mw(&target.costs, &prices),
                governors: makers
                    .iter()
                    .enumerate()
                    .map(|(index, make)| LedgerGovernor { make, is_shown: shown.contains(&index) })
                    .collect(),
            })
            .collect();
        let (machines, others): (Vec<_>, Vec<_>) =
            machines.into_iter().enumerate().partition(|(at, _)| targets[*at].is_for(index));
        let machines: Vec<_> = machines.into_iter().map(|(_, machine)| machine).collect();
        let knows = Knows::of(&named.log.metadata);
        let period_ns = idlewise_core::tick_period_ns(self.shared.hz(named));
        let kept_count = named.log.gap_count().min(self.gaps);
        let quantum_ns = if kept_count > EXACT_COUNT_MAX { QUANTUM_NS } else { 1 };
        let courses = machines.iter().flat_map(|machine| shown.iter().map(|_| machine.setting));
        let courses: Vec<_> = courses.collect();
        let mut columns = GapColumns::new(knows, quantum_ns, period_ns, &courses);
        let mut ledger = ledger::read(
            &named.log,
            &machines,
            self.gaps,
            &mut |kept| columns.add(&kept),
            &|done| bar.add(done),
        )?;
        others.iter().for_each(|(at, machine)| ledger.leave_out(*at, machine));
        Ok((ledger, columns))
    }
}

/// Up to this many gaps of a log are shown to the nanosecond.
const EXACT_COUNT_MAX: u64 = 100_000;
/// The unit of time if there are more.
const QUANTUM_NS: u64 = 64;

/// The governors whose stays are shown: those that are ranked, or all if none is.
fn shown(played: &[&Choice]) -> Vec<usize> {
    let is_ranked = |index: &usize| played[*index].role() == Role::Governor;
    let ranked: Vec<usize> = (0..played.len()).filter(is_ranked).collect();
    if ranked.is_empty() { (0..played.len()).collect() } else { ranked }
}

fn machine<'a>((target, in_use): (&'a ReplayTarget, &'a InUse)) -> ReplayedMachine<'a> {
    ReplayedMachine {
        id: &target.machine.id,
        logs: target.logs.as_deref(),
        in_use,
        state_names: &target.state_names,
        states: target.states,
        costs: &target.costs,
        power_basis: target.machine.power_basis(),
    }
}

fn governor(choice: &Choice) -> GovernorFacts {
    let role = match choice.role() {
        _ if choice.is_foreign() => GovernorRole::File,
        Role::Governor => GovernorRole::Governor,
        Role::Bound | Role::Rival => GovernorRole::Bound,
        Role::Oracle => GovernorRole::Oracle,
    };
    GovernorFacts { name: choice.name(), about: choice.meaning(), role }
}

/// Says which gaps have a row.
fn how(ledger: &Ledger, gap_count: u64) -> String {
    if !ledger.is_sampled {
        return "Every gap is shown.".to_owned();
    }
    format!(
        "{} of {gap_count} gaps are shown one by one: the {WORST_COUNT} worst misses of each governor \
         on each machine; on every CPU its longest gaps and worst misses; the others evenly spaced. \
         Every figure outside the timeline is of all gaps.",
        ledger.kept_count
    )
}
