//! What to say about a machine in fifteen seconds: one sentence, the three largest facts behind it, and
//! what limits them. A replay keeps the recording's timeline, so it says what goes together, not what
//! causes what.

use idlewise_sim::Basis;
use idlewise_sim::contest::Price;
use idlewise_sim::ledger::MachineLedger;
use idlewise_trace::WakeReason;

use super::{BasisKind, NoteFacts, Replayed, ReplayedMachine, Verdict, VerdictFact};
use crate::counted;
use crate::replay::{Outcome, extremes, machine_words, reference_price, span_words, words};
use crate::verdict::{Judged, energy_words};

/// A verdict has at most so many facts.
const FACT_COUNT_MAX: usize = 3;
/// And so many doubts; the page lists the others elsewhere.
const LIMIT_COUNT_MAX: usize = 4;
/// What explains less than this share is not worth a sentence.
const SHARE_MIN: f64 = 0.15;

/// A fact with its weight: the share of the difference that it is about.
struct Weighed {
    weight: f64,
    fact: VerdictFact,
}

/// Returns a verdict for each machine. `pooled` are the sums over all logs.
pub(super) fn verdicts(
    replayed: &Replayed<'_>,
    pooled: &[MachineLedger],
    notes: &NoteFacts,
) -> Vec<Verdict> {
    let outcomes = replayed.outcomes(replayed.all_name, pooled);
    let machines = replayed.machines.iter().enumerate();
    machines
        .map(|(index, machine)| {
            let of_machine: Vec<&Outcome<'_>> =
                outcomes.iter().filter(|outcome| outcome.machine == machine.id).collect();
            let group: Vec<Outcome<'_>> = of_machine.into_iter().cloned().collect();
            let about =
                About { replayed, machine, index, group: &group, ledger: pooled.get(index) };
            about.verdict(notes)
        })
        .collect()
}

struct About<'v, 'a> {
    replayed: &'v Replayed<'a>,
    machine: &'v ReplayedMachine<'a>,
    index: usize,
    group: &'v [Outcome<'a>],
    ledger: Option<&'v MachineLedger>,
}

impl About<'_, '_> {
    fn prices(&self) -> &[Price] {
        &self.replayed.prices
    }

    /// The basis of what depends on powers.
    fn energy_basis(&self) -> BasisKind {
        [Basis::Simulated, self.machine.power_basis]
            .into_iter()
            .max()
            .unwrap_or(Basis::Assumed)
            .into()
    }

    fn verdict(&self, notes: &NoteFacts) -> Verdict {
        let mut verdict = Verdict { machine: self.index, ..Verdict::default() };
        let id = machine_words(self.machine.id);
        let gap_count = self.group.first().map_or(0, |outcome| outcome.tally.gap_count);
        if gap_count == 0 {
            verdict.sentence =
                format!("On {id}: the logs have no gaps, so there is nothing to compare.");
            return verdict;
        }
        let in_use = self.machine.in_use;
        let Some(judged) = Judged::of(self.group, in_use, self.prices()) else {
            verdict.sentence = format!("On {id}: no governor to judge, only bounds.");
            verdict.limits = self.limits(notes, None, None);
            return verdict;
        };
        let listed = self.replayed.listed();
        [verdict.base, verdict.other] = [Some(judged.base), judged.other]
            .map(|it| listed.iter().position(|row| it.is_some_and(|it| row.name == it.governor)));
        verdict.is_in_use = judged.is_in_use && in_use.is_recorded;
        verdict.sentence = judged.sentence(in_use);
        verdict.facts = self.facts(judged.base, judged.other);
        let regret = judged.regret(self.prices());
        let basis = self.energy_basis();
        verdict.facts.extend(regret.map(|text| VerdictFact { text, basis }));
        let cheapest = extremes(self.group, reference_price(self.prices()), self.prices());
        let powers = judged.under_all_powers();
        verdict.limits = self.limits(notes, cheapest.map(|(nearest, _)| nearest), powers);
        verdict
    }

    /// The largest facts about the governor in use beside another. The regret of both follows.
    fn facts(&self, base: &Outcome<'_>, other: Option<&Outcome<'_>>) -> Vec<VerdictFact> {
        let mut facts: Vec<Weighed> = Vec::new();
        if let Some(other) = other {
            facts.extend(self.difference(base, other));
        }
        facts.extend(self.wrong_choice(base));
        facts.extend(self.where_it_is(base));
        facts.extend(self.wake_reason());
        // The order of equal facts is that of asking.
        facts.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        facts.truncate(FACT_COUNT_MAX - 1);
        facts.into_iter().map(|weighed| weighed.fact).collect()
    }

    /// How long wake-ups wait under both, and what the gaps take. Delays rest on less than energies, so
    /// each is a fact of its own.
    fn difference(&self, base: &Outcome<'_>, other: &Outcome<'_>) -> [Weighed; 2] {
        let sums = |outcome: &Outcome<'_>| {
            (outcome.delays().sum_ns(), outcome.costs.energy_uj(&outcome.tally))
        };
        let ((base_ns, base_uj), (other_ns, other_uj)) = (sums(base), sums(other));
        let delay = format!(
            "Wake-ups wait {} in all under {}, {} under {}.",
            sum_words(base_ns),
            base.governor,
            sum_words(other_ns),
            other.governor,
        );
        let energy = format!(
            "The gaps take {} under {}, {} under {}.",
            energy_words(base_uj),
            base.governor,
            energy_words(other_uj),
            other.governor,
        );
        let weight = |a: f64, b: f64| (a - b).abs() / a.max(b).max(f64::MIN_POSITIVE);
        [
            Weighed {
                weight: weight(base_ns as f64, other_ns as f64),
                fact: VerdictFact { text: delay, basis: BasisKind::Simulated },
            },
            Weighed {
                weight: weight(base_uj, other_uj),
                fact: VerdictFact { text: energy, basis: self.energy_basis() },
            },
        ]
    }

    /// The choice that goes with most of the governor's regret, and the gaps in which it was made.
    fn wrong_choice(&self, outcome: &Outcome<'_>) -> Option<Weighed> {
        let reference = reference_price(self.prices());
        let governor =
            self.replayed.governors.iter().position(|one| one.name == outcome.governor)?;
        let tally = self.ledger?.regret.get(governor)?.get(reference)?;
        let all_uj: f64 = tally.cells().map(|cell| cell.regret_uj.max(0.0)).sum();
        let mut pairs: Vec<(usize, usize, f64, u64)> = Vec::new();
        for cell in tally.cells() {
            let regret_uj = cell.regret_uj.max(0.0);
            let same = pairs.iter_mut().find(|pair| (pair.0, pair.1) == (cell.chosen, cell.right));
            match same {
                Some(pair) => (pair.2, pair.3) = (pair.2 + regret_uj, pair.3 + cell.count),
                None => pairs.push((cell.chosen, cell.right, regret_uj, cell.count)),
            }
        }
        let &(chosen, right, regret_uj, count) =
            pairs.iter().max_by(|a, b| a.2.total_cmp(&b.2)).filter(|_| all_uj > 0.0)?;
        let cells = || tally.cells().filter(|cell| (cell.chosen, cell.right) == (chosen, right));
        // The shortest range of lengths from its middle outwards would be hard to say; the middle 80 %.
        let edge = |share: f64| {
            let mut seen_uj = 0.0;
            cells().find_map(|cell| {
                seen_uj += cell.regret_uj.max(0.0);
                (seen_uj >= share * regret_uj).then_some(cell.bin)
            })
        };
        let (from, to) = (edge(0.1)?, edge(0.9)?);
        let name = |state: usize| self.machine.state_names.get(state).map_or("?", String::as_str);
        let what = match chosen == right {
            true => format!(
                "it chose {}, which was right, and ticks or the exit cost more",
                name(chosen)
            ),
            false => format!("it chose {} and {} would have been right", name(chosen), name(right)),
        };
        let text = format!(
            "{} of {}'s regret is in {} in which {what}, most of them {} to {} long.",
            percent(regret_uj / all_uj),
            outcome.governor,
            counted(count, "gap"),
            rounded_span(idlewise_sim::ledger::bin_edge_ns(from)),
            rounded_span(idlewise_sim::ledger::bin_edge_ns(to + 1)),
        );
        let weight = regret_uj / all_uj;
        Some(Weighed { weight, fact: VerdictFact { text, basis: self.energy_basis() } })
    }

    /// The log, or the CPU of a single log, with most of the governor's regret.
    fn where_it_is(&self, outcome: &Outcome<'_>) -> Option<Weighed> {
        let reference = reference_price(self.prices());
        let governor =
            self.replayed.governors.iter().position(|one| one.name == outcome.governor)?;
        let sum = |ledger: &MachineLedger| -> f64 {
            let tally = ledger.regret.get(governor).and_then(|prices| prices.get(reference));
            tally.map_or(0.0, |tally| tally.cells().map(|cell| cell.regret_uj.max(0.0)).sum())
        };
        let logs = self.replayed.logs.iter().enumerate();
        let logs: Vec<_> = logs.filter(|(log, _)| self.machine.is_for(Some(*log))).collect();
        let logs: Vec<_> = logs.into_iter().map(|(_, log)| log).collect();
        if logs.len() < 2 {
            return None;
        }
        let sums: Vec<f64> =
            logs.iter().map(|log| log.ledger.machines.get(self.index).map_or(0.0, sum)).collect();
        let all_uj: f64 = sums.iter().sum();
        let (log, &most_uj) = sums.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        let share = Some(most_uj / all_uj).filter(|share| *share >= SHARE_MIN)?;
        let idle_ns: u64 = logs.iter().map(|log| log.ledger.idle_ns).sum();
        let idle_share = logs[log].ledger.idle_ns as f64 / idle_ns.max(1) as f64;
        let text = format!(
            "{} of {}'s regret is in {}, which has {} of the idle time.",
            percent(share),
            outcome.governor,
            logs[log].name,
            percent(idle_share),
        );
        Some(Weighed { weight: share, fact: VerdictFact { text, basis: self.energy_basis() } })
    }

    /// What ends most gaps, if the recordings say it.
    fn wake_reason(&self) -> Option<Weighed> {
        let mut counts = [0; WakeReason::ALL.len()];
        let logs = self.replayed.logs.iter().enumerate();
        for (_, log) in logs.filter(|(log, _)| self.machine.is_for(Some(*log))) {
            counts.iter_mut().zip(log.ledger.wakes).for_each(|(sum, (count, _))| *sum += count);
        }
        let all: u64 = counts.iter().sum();
        let (reason, &most) =
            WakeReason::ALL.iter().zip(&counts).max_by_key(|(_, count)| **count)?;
        if *reason == WakeReason::Unknown || all == 0 {
            return None;
        }
        let share = most as f64 / all as f64;
        let what = match reason {
            WakeReason::Timer => "a timer",
            WakeReason::Ipi => "an interrupt from another CPU",
            WakeReason::Resched => "a request to reschedule",
            WakeReason::Irq => "a device",
            WakeReason::Softirq | WakeReason::Unknown => "deferred work",
        };
        let text = format!("{} of the {all} gaps are ended by {what}.", percent(share));
        // It says less than where the regret is.
        Some(Weighed {
            weight: share / 4.0,
            fact: VerdictFact { text, basis: BasisKind::Recorded },
        })
    }

    /// What to remember before one acts on the sentence.
    fn limits(
        &self,
        notes: &NoteFacts,
        nearest: Option<&Outcome<'_>>,
        under_all_powers: Option<String>,
    ) -> Vec<String> {
        let broken = self.group.iter().filter_map(Outcome::broken_rules);
        let mut limits: Vec<String> = broken.map(|text| format!("{text}.")).collect();
        let prices = self.prices();
        let others: Vec<String> = (0..prices.len())
            .filter_map(|price| {
                let (best, _) = extremes(self.group, price, prices)?;
                let is_other = nearest.is_some_and(|nearest| nearest.governor != best.governor);
                is_other
                    .then(|| format!("{} is the cheapest {}", best.governor, words(prices[price])))
            })
            .collect();
        if !others.is_empty() {
            limits.push(format!("The order depends on the price of delay: {}.", others.join(", ")));
        }
        if self.machine.power_basis == Basis::Assumed {
            let also = under_all_powers.map_or_else(String::new, |text| format!(" {text}"));
            limits.push(format!(
                "The powers of {} are assumed, and with them every energy and cost.{also}",
                machine_words(self.machine.id)
            ));
        }
        let id = format!("{}: ", self.machine.id);
        let others = self.replayed.machines.iter().filter(|other| other.id != self.machine.id);
        let others: Vec<String> = others.map(|other| format!("{}: ", other.id)).collect();
        // That powers are assumed was said.
        let is_mine = |text: &str| {
            !others.iter().any(|other| text.starts_with(other.as_str()))
                && !text.starts_with(&format!("{id}power of "))
        };
        let major: Vec<&str> = notes
            .doubts
            .iter()
            .filter(|doubt| !doubt.is_minor && is_mine(&doubt.text))
            .map(|doubt| doubt.text.strip_prefix(&id).unwrap_or(&doubt.text))
            .collect();
        let room = LIMIT_COUNT_MAX.saturating_sub(limits.len() + 1);
        let shown = if major.len() > room { room.saturating_sub(1) } else { major.len() };
        limits.extend(major[..shown].iter().map(|doubt| (*doubt).to_owned()));
        if major.len() > shown {
            let count = major.len() - shown;
            limits.push(format!("{count} other doubts; the notes list them."));
        }
        limits.push(
            "A replay keeps the recording's timeline: it says what correlates with a governor's \
             choices, not what the workload would have done."
                .to_owned(),
        );
        limits
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 1.0 => "less than 1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

/// A sum of delays in two or three digits.
fn sum_words(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        s if s >= 9.95 => format!("{s:.0} s"),
        s if s >= 0.995 => format!("{s:.1} s"),
        s if s >= 0.000_995 => format!("{:.0} ms", s * 1e3),
        _ => span_words(ns),
    }
}

/// A length in two digits.
fn rounded_span(ns: u64) -> String {
    let digits = ns.checked_ilog10().unwrap_or(0);
    let step = 10_u64.pow(digits.saturating_sub(1));
    span_words(ns.div_ceil(step.max(1)).saturating_mul(step.max(1)))
}
