//! The output of a replay: its columns, its tables, and the sentences under them.

use std::borrow::Cow;
use std::cmp::Reverse;

use idlewise_core::{STATE_COUNT_MAX, StateTable};
use idlewise_sim::contest::Price;
pub use idlewise_sim::contest::Role;
use idlewise_sim::replay::{Delays, Tally};
use idlewise_sim::{Basis, CostModel, ExitTimes};

use crate::columns::{GOVERNOR, LOG, MACHINE};
use crate::{Column, Statement, Table, Value, counted, time_words};

/// The machine that a recording itself has, as users and results name it; `recorded:LOG` if there are several.
pub const RECORDED: &str = "recorded";

/// Whether it is the id of a machine that a recording itself has.
pub fn is_recorded(id: &str) -> bool {
    id.strip_prefix(RECORDED).is_some_and(|log| log.is_empty() || log.starts_with(':'))
}

/// Returns what a sentence calls a machine.
pub fn machine_words(id: &str) -> Cow<'_, str> {
    match id.strip_prefix(RECORDED).filter(|_| is_recorded(id)) {
        Some("") => "the recorded machine".into(),
        Some(log) => format!("the machine of {}", &log[1..]).into(),
        None => id.into(),
    }
}

/// The price λ in few characters.
pub(crate) fn short(price: Price) -> String {
    match price {
        Price::QUARTER => "λ=¼".to_owned(),
        Price::Times(times) => format!("λ={times}"),
        Price::Milliwatts(lambda_mw) => format!("λ={lambda_mw} mW"),
    }
}

/// Returns the name of the oracle at this price.
pub fn oracle_name(price: Price) -> String {
    priced_name("oracle", price)
}

/// Returns the name of something that is replayed at each price.
pub fn priced_name(name: &str, price: Price) -> String {
    format!("{name} {}", short(price))
}

pub(crate) fn words(price: Price) -> String {
    match price {
        Price::FREE => "if delay is free (λ=0)".to_owned(),
        Price::Times(_) => format!("at {} × polling power", short(price)),
        Price::Milliwatts(_) => format!("at {}", short(price)),
    }
}

/// The result of a governor on one machine, over one log or the sum of several.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// The log's name.
    pub log: String,
    /// The machine's id.
    pub machine: String,
    /// The names of the machine's states.
    pub state_names: &'a [String],
    /// The machine's states.
    pub states: StateTable,
    /// The costs of the states.
    pub costs: &'a CostModel,
    /// What the powers rest on.
    pub power_basis: Basis,
    /// The governor's name.
    pub governor: String,
    /// Its role in the ranking.
    pub role: Role,
    /// What it did.
    pub tally: Tally,
    /// The oracle's cost at each reported price.
    pub oracle_costs_uj: Vec<f64>,
}

impl Outcome<'_> {
    /// Returns the cost above the oracle's, divided by the oracle's, at the price with that index.
    pub fn regret(&self, price_index: usize, prices: &[Price]) -> Option<f64> {
        let price = prices.get(price_index)?;
        let least_uj = *self.oracle_costs_uj.get(price_index)?;
        let cost_uj = self.costs.cost_uj(&self.tally, price.lambda_mw(self.costs));
        // The oracle's own regret would be rounding noise.
        let regret = (cost_uj - least_uj) / least_uj;
        (least_uj > 0.0).then(|| if regret.abs() < 1e-9 { 0.0 } else { regret })
    }

    pub(crate) fn delays(&self) -> Delays {
        self.tally.delays(self.costs.exits())
    }

    /// Says that it is a governor that entered what it must not ([`broken_rules`]).
    pub fn broken_rules(&self) -> Option<String> {
        let is_governor = self.role == Role::Governor;
        broken_rules(&self.governor, &self.machine, &self.tally).filter(|_| is_governor)
    }

    /// Whether it is a governor that kept to the latency limits and the disabled states. One that did not is no
    /// alternative to one that did.
    pub(crate) fn is_eligible(&self) -> bool {
        self.role == Role::Governor && self.tally.forbidden_count == 0
    }

    fn usage(&self) -> String {
        let names = self.state_names.iter().zip(&self.tally.states);
        let usage = names.map(|(name, state)| format!("{name}={}", state.entry_count));
        usage.collect::<Vec<_>>().join(" ")
    }
}

/// An outcome, with intermediate results that several columns use.
pub struct Judged<'a> {
    outcome: &'a Outcome<'a>,
    tally: &'a Tally,
    delays: Delays,
    prices: &'a [Price],
}

impl Judged<'_> {
    /// A count as a share of the decisions. Absent for the oracle, whose stays are whole gaps, and for rivals,
    /// whose stays are parts of descents. The kernel's rule does not apply to them.
    fn judged(&self, count: fn(&Tally) -> u64) -> Value {
        let decisions = Some(self.tally.decision_count()).filter(|&count| count > 0);
        let is_judged = !matches!(self.outcome.role, Role::Oracle | Role::Rival);
        decisions.filter(|_| is_judged).map(|all| count(self.tally) as f64 / all as f64).into()
    }

    fn regret(&self, is_it: fn(&Price) -> bool) -> Value {
        let index = self.prices.iter().position(is_it);
        index.and_then(|index| self.outcome.regret(index, self.prices)).into()
    }
}

fn fit_count(tally: &Tally) -> u64 {
    tally.decision_count() - tally.too_deep_count() - tally.too_shallow_count()
}

type C<'a> = Column<Judged<'a>>;

/// Returns the columns of a replay with some prices of latency.
pub fn columns<'a>(prices: &[Price]) -> Vec<C<'a>> {
    let mut columns = vec![
        C::new(LOG, |row| row.outcome.log.as_str().into()),
        C::new(MACHINE, |row| row.outcome.machine.as_str().into()),
        C::new(GOVERNOR, |row| row.outcome.governor.as_str().into()),
        C::count("gap_count", "gaps", |row| row.tally.gap_count.into())
            .means("Idle gaps replayed.")
            .detail(),
        C::count("decision_count", "decisions", |row| row.tally.decision_count().into())
            .means("Decisions: one for each stay.")
            .detail(),
        C::ratio("too_deep_ratio", "too deep", |row| row.judged(Tally::too_deep_count))
            .means(
                "Share of stays shorter than the state's target residency while a shallower state \
                 was enabled (the kernel's `above`).",
            )
            .lower_is_better(),
        C::ratio("too_shallow_ratio", "too shallow", |row| row.judged(Tally::too_shallow_count))
            .means(
                "Share of stays that, less the exit latency, were long enough for the next deeper \
                 enabled state (the kernel's `below`).",
            )
            .lower_is_better(),
        C::ratio("fit_ratio", "fit", |row| row.judged(fit_count))
            .means("Share of stays neither too deep nor too shallow.")
            .higher_is_better()
            .detail(),
        C::count("forbidden_count", "forbidden", |row| row.tally.forbidden_count.into())
            .means(
                "Decisions for a state that is disabled, or too slow for the latency limit where a \
                 shallower one is enabled.",
            )
            .lower_is_better()
            .detail(),
        C::ns("delay_p50_ns", "delay p50", |row| row.delays.quantile_ns(0.5).into())
            .means(
                "Median delay of the wake events: the exit latency of the state they found, or the \
                 wait for the tick.",
            )
            .lower_is_better()
            .detail(),
        C::ns("delay_p90_ns", "delay p90", |row| row.delays.quantile_ns(0.9).into())
            .means("90th percentile of the delay.")
            .lower_is_better()
            .detail(),
        C::ns("delay_p99_ns", "delay p99", |row| row.delays.quantile_ns(0.99).into())
            .means("99th percentile of the delay.")
            .lower_is_better(),
        C::ns("delay_p999_ns", "delay p99.9", |row| row.delays.quantile_ns(0.999).into())
            .means("99.9th percentile of the delay.")
            .lower_is_better()
            .detail(),
        C::ns("delay_max_ns", "delay max", |row| row.delays.max_ns().into())
            .means("The longest delay.")
            .lower_is_better()
            .detail(),
        C::ns("delay_sum_ns", "delay sum", |row| row.delays.sum_ns().into())
            .means("All delays together.")
            .lower_is_better(),
        C::uj("energy_uj", "energy", |row| row.outcome.costs.energy_uj(row.tally).into())
            .means(
                "Energy of the cores in their gaps: stays, transitions and ticks. If CPUs are \
                 replayed together, what they share counts too, over the whole log.",
            )
            .lower_is_better(),
    ];
    columns.extend(prices.iter().map(|price| regret_column(*price)));
    columns.extend([
        C::count("tick_wake_count", "ticks", |row| row.tally.tick_wake_count.into())
            .means("Stays that the scheduler tick ended.")
            .detail(),
        C::count("auto_promotion_count", "promotions", |row| row.tally.auto_promotion_count.into())
            .means("Stays that a promotion timer ended.")
            .detail(),
        C::count("free_ipi_count", "free IPIs", |row| row.tally.free_ipi_count().into())
            .means(
                "Wake-up IPIs that found a polling or MWAIT state, where a write to memory would \
                 have been enough.",
            )
            .detail(),
        C::count("timer_read_count", "timer reads", |row| row.tally.timer_read_count.into())
            .means(
                "How often the governor asked for the sleep length; each time costs a walk of the \
                 timer wheel.",
            )
            .detail(),
        C::text("usage", "usage", |row| row.outcome.usage().into())
            .means("Entries of each state, shallowest first, as NAME=COUNT.")
            .detail(),
    ]);
    columns
}

fn regret_column<'a>(price: Price) -> C<'a> {
    match price {
        Price::FREE => C::ratio("regret_free_ratio", "regret λ=0", |row| {
            row.regret(|price| *price == Price::FREE)
        })
        .means("Cost above the oracle's, as a share of it, if delay costs nothing.")
        .lower_is_better(),
        Price::QUARTER => C::ratio("regret_quarter_ratio", "regret λ=¼", |row| {
            row.regret(|price| *price == Price::QUARTER)
        })
        .means("The same if a second of delay costs a quarter as much as a second of polling.")
        .lower_is_better(),
        Price::FULL => C::ratio("regret_full_ratio", "regret λ=1", |row| {
            row.regret(|price| *price == Price::FULL)
        })
        .means("The same if a second of delay costs as much as a second of polling.")
        .lower_is_better(),
        Price::Times(_) | Price::Milliwatts(_) => {
            C::ratio("regret_given_ratio", "regret λ given", |row| {
                row.regret(|price| !Price::STANDARD.contains(price))
            })
            .means("The same at the λ of --lambda-mw.")
            .lower_is_better()
        }
    }
}

/// The governors nearest to and furthest from the oracle, on one log and machine.
pub struct Extremes<'a> {
    nearest: &'a Outcome<'a>,
    furthest: &'a Outcome<'a>,
    price_index: usize,
    prices: &'a [Price],
}

impl Extremes<'_> {
    fn regret(&self, outcome: &Outcome<'_>) -> Option<f64> {
        outcome.regret(self.price_index, self.prices)
    }
}

/// Returns the columns of the summary by log.
pub fn by_log_columns<'a>() -> Vec<Column<Extremes<'a>>> {
    type C<'a> = Column<Extremes<'a>>;
    vec![
        C::new(LOG, |row| row.nearest.log.as_str().into()),
        C::new(MACHINE, |row| row.nearest.machine.as_str().into()),
        C::count("gap_count", "gaps", |row| row.nearest.tally.gap_count.into())
            .means("Idle gaps replayed."),
        C::text("nearest", "nearest to the oracle", |row| row.nearest.governor.as_str().into())
            .means("The governor with the least regret; bounds don't count."),
        C::ratio("nearest_regret_ratio", "its regret", |row| row.regret(row.nearest).into())
            .means("Its regret."),
        C::text("furthest", "furthest", |row| row.furthest.governor.as_str().into())
            .means("The governor with the most regret; bounds don't count."),
        C::ratio("furthest_regret_ratio", "its regret", |row| row.regret(row.furthest).into())
            .means("Its regret."),
    ]
}

/// Returns one row for each outcome. In text, columns that would be equal in all rows of a single
/// log and machine are left out; the title has them. CSV and JSON keep them.
pub fn replay_table(
    title: &str,
    outcomes: &[Outcome<'_>],
    prices: &[Price],
    leave_out: &[&str],
) -> Table {
    let mut columns = columns(prices);
    columns.retain(|column| !leave_out.contains(&column.heading.id));
    let row = |outcome| Judged { outcome, tally: &outcome.tally, delays: outcome.delays(), prices };
    Table::new(title, &columns, outcomes.iter().map(row))
        .ranked_if(|index| outcomes[index].is_eligible())
}

/// Returns the governors nearest to and furthest from the oracle for each log and machine.
pub fn by_log_table(title: &str, outcomes: &[Outcome<'_>], prices: &[Price]) -> Table {
    let price_index = reference_price(prices);
    let rows = groups(outcomes).filter_map(|group| {
        let (nearest, furthest) = extremes(group, price_index, prices)?;
        Some(Extremes { nearest, furthest, price_index, prices })
    });
    let at =
        prices.get(price_index).map_or_else(String::new, |price| format!(", at {}", short(*price)));
    Table::new(format!("{title}{at}"), &by_log_columns(), rows)
}

/// The price that the sentences use: the middle one.
pub(crate) fn reference_price(prices: &[Price]) -> usize {
    prices.len() / 2
}

/// Groups outcomes by log and machine.
pub(crate) fn groups<'o, 'a>(
    outcomes: &'o [Outcome<'a>],
) -> impl Iterator<Item = &'o [Outcome<'a>]> {
    outcomes.chunk_by(|a, b| a.log == b.log && a.machine == b.machine)
}

/// The governors with the lowest and highest regret; `None` if there are fewer than two.
pub(crate) fn extremes<'o, 'a>(
    group: &'o [Outcome<'a>],
    price_index: usize,
    prices: &[Price],
) -> Option<(&'o Outcome<'a>, &'o Outcome<'a>)> {
    let mut ranked: Vec<(f64, &Outcome<'_>)> = group
        .iter()
        .filter(|outcome| outcome.is_eligible())
        .filter_map(|outcome| Some((outcome.regret(price_index, prices)?, outcome)))
        .collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    match ranked[..] {
        [(_, first), .., (_, last)] => Some((first, last)),
        _ => None,
    }
}

/// Returns what the tables show beside the verdict, in a few sentences. `outcomes` has one group for each log and
/// machine.
pub fn findings(outcomes: &[Outcome<'_>]) -> Vec<Statement> {
    let mut sentences = Vec::new();
    sentences.extend(outcomes.iter().filter_map(forbidden));
    sentences.extend(costliest_exits(outcomes));
    sentences.extend(known_exits(outcomes));
    sentences.extend(variant_effects(outcomes));
    sentences
}

/// Says that a governor entered what it must not, as haltpoll and some people's own governors do.
pub fn broken_rules(governor: &str, machine: &str, tally: &Tally) -> Option<String> {
    (tally.forbidden_count > 0).then(|| {
        format!(
            "{governor} breaks the rules on {}: {} of its {} decisions are for a state that is disabled or \
             beyond the latency limit",
            machine_words(machine),
            tally.forbidden_count,
            tally.decision_count(),
        )
    })
}

fn forbidden(outcome: &Outcome<'_>) -> Option<Statement> {
    let text = format!("{}, so it is no alternative.", outcome.broken_rules()?);
    Some(Statement::about(&outcome.log, &outcome.machine, text))
}

/// For each machine whose exits are not taken from its table: what they are, and what the table declares.
fn known_exits(outcomes: &[Outcome<'_>]) -> Vec<Statement> {
    let mut machines: Vec<&Outcome<'_>> = Vec::new();
    for outcome in outcomes {
        if !machines.iter().any(|known| known.machine == outcome.machine) {
            machines.push(outcome);
        }
    }
    let said = machines.into_iter().filter_map(|outcome| {
        let states = outcome.states.as_slice().iter().zip(outcome.state_names).enumerate();
        let states = states.filter_map(|(index, (state, name))| {
            let times = outcome.costs.exits().get(index)?;
            (*times != ExitTimes::constant(state.exit_latency_ns)).then(|| {
                format!(
                    "{name} takes {} in the mean and {} at the 99th percentile (declared: {})",
                    time_words(times.mean_ns() as f64),
                    time_words(times.quantile_ns(0.99) as f64),
                    time_words(state.exit_latency_ns as f64)
                )
            })
        });
        let states: Vec<String> = states.collect();
        let machine = machine_words(&outcome.machine);
        (!states.is_empty()).then(|| Statement {
            log: None,
            machine: Some(outcome.machine.clone()),
            text: format!("Exit latencies from {machine}'s file: {}.", states.join("; ")),
        })
    });
    said.collect()
}

/// The largest share of time that a governor lost to the exits of a state, and where.
fn costliest_exits(outcomes: &[Outcome<'_>]) -> Option<Statement> {
    let losses = outcomes.iter().filter(|outcome| outcome.role == Role::Governor).flat_map(|o| {
        let states = (0..o.states.len().min(STATE_COUNT_MAX)).map(move |i| (o, i));
        states.map(|(o, i)| (o, i, o.tally.states[i].wake_count * o.costs.exits().mean_ns(i)))
    });
    // Of equal ones the first, which is the governor and not its variant.
    let (outcome, state, loss_ns) = losses.min_by_key(|&(_, _, loss_ns)| Reverse(loss_ns))?;
    let tally = &outcome.tally.states[state];
    if loss_ns == 0 || tally.entry_count == 0 {
        return None;
    }
    let text = format!(
        "Of the kernel's governors, {} waits longest for one state: on {} ({}), {} of {} wake-ups found the CPU in {} \
         and waited {}, {} in all; {:.0} % of those stays were too deep.",
        outcome.governor,
        outcome.log,
        outcome.machine,
        tally.wake_count,
        outcome.tally.gap_count,
        outcome.state_names.get(state).map_or("?", String::as_str),
        span_words(outcome.costs.exits().mean_ns(state)),
        time_words(loss_ns as f64),
        100.0 * tally.too_deep_count as f64 / tally.entry_count as f64,
    );
    Some(Statement::about(&outcome.log, &outcome.machine, text))
}

/// What a variant (`menu+min`) changes compared with its base (`menu`), where most, and where not.
fn variant_effects(outcomes: &[Outcome<'_>]) -> Vec<Statement> {
    let mut variants: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if outcome.governor.contains('+') && !variants.contains(&outcome.governor.as_str()) {
            variants.push(&outcome.governor);
        }
    }
    variants.into_iter().filter_map(|variant| variant_effect(outcomes, variant)).collect()
}

fn variant_effect(outcomes: &[Outcome<'_>], variant: &str) -> Option<Statement> {
    let (base, _) = variant.split_once('+')?;
    struct Change<'o, 'a> {
        base: &'o Outcome<'a>,
        variant: &'o Outcome<'a>,
        ratio: f64,
    }
    let mut changes: Vec<Change<'_, '_>> = groups(outcomes)
        .filter_map(|group| {
            let named = |name: &str| group.iter().find(|outcome| outcome.governor == name);
            let (base, variant) = (named(base)?, named(variant)?);
            // Without gaps nothing can change.
            if base.tally.gap_count == 0 {
                return None;
            }
            let (base_ns, variant_ns) = (base.delays().sum_ns(), variant.delays().sum_ns());
            let ratio = match (base_ns, variant_ns) {
                (0, 0) => 0.0,
                _ => variant_ns as f64 / (base_ns as f64).max(1.0) - 1.0,
            };
            Some(Change { base, variant, ratio })
        })
        .collect();
    changes.sort_by(|a, b| b.ratio.abs().total_cmp(&a.ratio.abs()));
    let largest = changes.first()?;
    const SAME: f64 = 0.01;
    if largest.ratio.abs() < SAME {
        return Some(Statement::general(format!(
            "{variant} delays as much as {base} on every log, to within 1 %: the rule that it \
             changes did not matter here."
        )));
    }
    let energy_uj = |outcome: &Outcome<'_>| outcome.costs.energy_uj(&outcome.tally);
    let (base_uj, variant_uj) = (energy_uj(largest.base), energy_uj(largest.variant));
    let energy = match base_uj > 0.0 {
        true => format!(", energy {:+.1} %", (variant_uj / base_uj - 1.0) * 100.0),
        // All gaps have length 0.
        false => String::new(),
    };
    let mut sentence = format!(
        "{variant} changes {base} most on {} ({}): delay {:.0} ms instead of {:.0} ({:+.0} %){}",
        largest.base.log,
        largest.base.machine,
        largest.variant.delays().sum_ns() as f64 / 1e6,
        largest.base.delays().sum_ns() as f64 / 1e6,
        largest.ratio * 100.0,
        energy,
    );
    let same_count = changes.iter().filter(|change| change.ratio.abs() < SAME).count();
    if same_count > 0 {
        let pairs = counted(changes.len(), "log-machine pair");
        sentence += &format!("; in {same_count} of {pairs} by less than 1 %");
    }
    let Outcome { log, machine, .. } = largest.base;
    Some(Statement::about(log, machine, sentence + "."))
}

pub(crate) fn span_words(span_ns: u64) -> String {
    time_words(span_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use idlewise_core::IdleState;

    fn states() -> StateTable {
        StateTable::new(&[IdleState::POLL, IdleState::new(290_000, 800_000)]).unwrap()
    }

    /// `c6_wakes` of ten wake events found the CPU in C6, the others found it polling.
    fn outcome<'a>(
        costs: &'a CostModel,
        names: &'a [String],
        log: &str,
        governor: &str,
        c6_wakes: u64,
    ) -> Outcome<'a> {
        let mut tally = Tally { gap_count: 10, gap_ns: 5_000_000, ..Tally::default() };
        for (i, count) in [(0, 10 - c6_wakes), (1, c6_wakes)] {
            tally.states[i].entry_count = count;
            tally.states[i].wake_count = count;
            tally.states[i].stay_ns = count * 500_000;
            tally.states[i].too_deep_count = count * i as u64;
        }
        Outcome {
            log: log.to_owned(),
            machine: "toy".to_owned(),
            state_names: names,
            states: states(),
            costs,
            power_basis: Basis::Assumed,
            governor: governor.to_owned(),
            role: Role::Governor,
            tally,
            oracle_costs_uj: vec![1_000.0; 3],
        }
    }

    #[test]
    fn says_where_a_variant_matters_and_where_it_does_not() {
        let costs = CostModel::new(states(), &[4_000.0, 100.0], 4_000.0);
        let names = ["POLL".to_owned(), "C6".to_owned()];
        let make = |log, governor, wakes| outcome(&costs, &names, log, governor, wakes);
        let outcomes = [
            make("a", "menu", 8),
            make("a", "menu+min", 2),
            make("b", "menu", 5),
            make("b", "menu+min", 5),
        ];
        let findings = findings(&outcomes);
        assert!(findings.iter().all(|one| one.log.as_deref() == Some("a")), "{findings:?}");
        let sentences: Vec<String> = findings.into_iter().map(|one| one.text).collect();
        assert_eq!(
            sentences,
            [
                "Of the kernel's governors, menu waits longest for one state: on a (toy), 8 of 10 wake-ups found the \
                 CPU in C6 and waited 290 µs, 2.32 ms in all; 100 % of those stays were too deep.",
                "menu+min changes menu most on a (toy): delay 1 ms instead of 2 (-75 %), energy \
                 -23.9 %; in 1 of 2 log-machine pairs by less than 1 %.",
            ]
        );
    }

    #[test]
    fn ranks_governors_only() {
        let costs = CostModel::new(states(), &[4_000.0, 100.0], 4_000.0);
        let names = ["POLL".to_owned(), "C6".to_owned()];
        let bound = Outcome { role: Role::Bound, ..outcome(&costs, &names, "a", "deepest", 0) };
        let outcomes = [
            outcome(&costs, &names, "a", "menu", 8),
            outcome(&costs, &names, "a", "teo", 1),
            bound,
        ];
        let table = by_log_table("", &outcomes, &Price::STANDARD);
        let csv = table.to_csv();
        assert!(csv.contains("a,toy,10,teo,"), "{csv}");
        assert!(csv.contains(",menu,"), "{csv}");
    }
}
