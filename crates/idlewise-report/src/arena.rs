//! Who wins in the arena: the regret of every governor in every cell, and what it comes to.

use std::collections::HashMap;

use idlewise_sim::CostModel;
use idlewise_sim::contest::{Entry, Price, Shape};

use crate::columns::{GOVERNOR, LOG, MACHINE};
use crate::statistics::{Groups, estimate, median};
use crate::verdict::{InUse, few_gaps};
use crate::{Column, Table, Value, counted};

/// A cell counts as lost if its regret is this much above the better of the references.
pub(crate) const LOSS_RATIO: f64 = 0.02;
/// The governors that the others are compared with, by both of their names.
pub(crate) const REFERENCES: [[&str; 2]; 2] = [["menu", "menu-6.12"], ["teo", "teo-6.12"]];

/// Everything but the governor.
fn place(entry: &Entry) -> ComparedPlace<'_> {
    let Entry { log, result, shape, price, .. } = entry;
    (log, entry.machine(), result.hz, *shape, times(*price).to_bits())
}

/// A price in times the power of polling, as all of the arena's are.
pub(crate) fn times(price: Price) -> f64 {
    price.as_times().unwrap_or(f64::NAN)
}

type ComparedPlace<'a> = (&'a str, &'a str, u32, Shape, u64);

/// The regrets of the references.
type References<'a> = HashMap<ComparedPlace<'a>, [Option<f64>; 2]>;

/// What a governor's cells come to, at one price of delay or at all.
#[derive(Clone, Debug)]
pub struct Standing {
    governor: String,
    /// `None`: all.
    lambda: Option<f64>,
    cell_count: usize,
    mean: f64,
    interval: Option<[f64; 2]>,
    median: Option<f64>,
    /// Against the references; `None` if the governor is one of them or they are not there.
    duel: Option<Duel>,
}

#[derive(Clone, Debug)]
struct Duel {
    won_count: u64,
    lost_count: u64,
    worst_ratio: f64,
    worst_place: String,
}

type C<Row> = Column<Row>;

/// Returns the columns of the cells.
pub fn cell_columns() -> Vec<C<Entry>> {
    let mut columns = vec![
        C::new(LOG, |cell: &Entry| cell.log.as_str().into()),
        C::new(MACHINE, |cell: &Entry| cell.machine().into()),
        C::count("hz", "HZ", |cell: &Entry| u64::from(cell.result.hz).into())
            .means("The tick's frequency.")
            .key(),
    ];
    columns.extend(priced_columns());
    columns
}

/// The columns of what is priced.
pub(crate) fn priced_columns() -> Vec<C<Entry>> {
    vec![
        C::text("shape", "shape", |cell: &Entry| cell.shape.name().into())
            .means("The shape of the powers: `default`, `flat` or `steep`.")
            .key(),
        C::number("lambda", "λ", |cell: &Entry| times(cell.price).into())
            .means("The price of delay, as a multiple of polling's power.")
            .key(),
        C::new(GOVERNOR, |cell: &Entry| cell.governor.as_str().into()),
        C::uj("cost_uj", "cost", |cell: &Entry| cell.cost_uj.into())
            .means("Energy and priced delay, simulated.")
            .lower_is_better(),
        C::uj("oracle_cost_uj", "oracle", |cell: &Entry| cell.oracle_cost_uj.into())
            .means("What the oracle for that λ pays."),
        C::ratio("regret_ratio", "regret", |cell: &Entry| cell.regret().into())
            .means("Cost above the oracle's, as a share of the oracle's.")
            .lower_is_better(),
    ]
}

/// Returns the columns of the standings.
pub fn columns() -> Vec<C<Standing>> {
    vec![
        C::new(GOVERNOR, |row: &Standing| row.governor.as_str().into()),
        C::text("lambda", "λ", |row: &Standing| {
            row.lambda.map_or_else(|| "all".to_owned(), |lambda| lambda.to_string()).into()
        })
        .means("The price of delay, as a multiple of polling's power; `all` for all.")
        .key(),
        C::count("cell_count", "cells", |row: &Standing| (row.cell_count as u64).into())
            .means("Logs × machines × HZ × shapes × λ.")
            .detail(),
        C::ratio("regret_mean_ratio", "regret mean", |row: &Standing| row.mean.into())
            .means(
                "Mean regret of the cells, simulated. Its interval is a bootstrap over logs, of \
                 seven or more.",
            )
            .lower_is_better(),
        C::ratio("regret_low_ratio", "from", |row: &Standing| {
            row.interval.map(|[low, _]| low).into()
        })
        .means("Lower end of the mean's 95 % interval."),
        C::ratio("regret_high_ratio", "to", |row: &Standing| {
            row.interval.map(|[_, high]| high).into()
        })
        .means("Its upper end."),
        C::ratio("regret_median_ratio", "median", |row: &Standing| row.median.into())
            .means("Median regret of the cells.")
            .lower_is_better(),
        C::count("won_count", "won", |row: &Standing| {
            row.duel.as_ref().map(|duel| duel.won_count).into()
        })
        .means(
            "Cells with less regret than both menu and teo; absent for these two and without them.",
        )
        .higher_is_better(),
        C::count("lost_count", "lost by 2", |row: &Standing| {
            row.duel.as_ref().map(|duel| duel.lost_count).into()
        })
        .means("Cells with more than two points of regret above the better of menu and teo.")
        .lower_is_better(),
        C::ratio("worst_loss_ratio", "worst loss", |row: &Standing| {
            row.duel.as_ref().map(|duel| duel.worst_ratio).into()
        })
        .means("The largest regret above that of the better of menu and teo.")
        .lower_is_better(),
        C::text("worst_cell", "where", |row: &Standing| {
            row.duel.as_ref().map_or(Value::Absent, |duel| duel.worst_place.as_str().into())
        })
        .means("The cell of the worst loss.")
        .detail(),
    ]
}

/// Returns a table of all cells.
pub fn cell_table(cells: &[Entry]) -> Table {
    Table::new("", &cell_columns(), cells)
}

/// Returns the standings, the lowest mean first, and for each governor all λ before each.
pub fn standings(cells: &[Entry]) -> Vec<Standing> {
    let mut governors: Vec<&str> = Vec::new();
    let mut lambdas: Vec<f64> = Vec::new();
    let mut references = References::new();
    for cell in cells {
        if let Some(index) = REFERENCES.iter().position(|names| names.contains(&&*cell.governor)) {
            references.entry(place(cell)).or_default()[index] = cell.regret();
        }
        if !governors.contains(&cell.governor.as_str()) {
            governors.push(&cell.governor);
        }
        let lambda = times(cell.price);
        if !lambdas.contains(&lambda) {
            lambdas.push(lambda);
        }
    }
    let mut groups: Vec<Vec<Standing>> = Vec::new();
    for governor in governors {
        let own: Vec<&Entry> = cells.iter().filter(|cell| cell.governor == governor).collect();
        let each =
            (lambdas.len() > 1).then(|| lambdas.iter().copied().map(Some)).into_iter().flatten();
        let group: Vec<Standing> = std::iter::once(None)
            .chain(each)
            .filter_map(|at| standing(governor, at, &own, &references))
            .collect();
        groups.extend((!group.is_empty()).then_some(group));
    }
    groups.sort_by(|a, b| a[0].mean.total_cmp(&b[0].mean));
    groups.into_iter().flatten().collect()
}

/// Returns the table of the standings.
pub fn standing_table(title: &str, standings: &[Standing]) -> Table {
    // Each price is another contest.
    Table::new(title, &columns(), standings).ranked_if(|index| standings[index].lambda.is_none())
}

/// Who wins, in a sentence, with `gap_count` gaps in all logs. `None` if nobody has a regret.
pub fn verdict(standings: &[Standing], in_use: &InUse, gap_count: u64) -> Option<String> {
    let mut alls = standings.iter().filter(|it| it.lambda.is_none());
    let first = alls.next()?;
    let others: Vec<&Standing> = alls.collect();
    let names = std::iter::once(&*first.governor).chain(others.iter().map(|it| &*it.governor));
    let used = in_use.nearest(names.clone());
    let is_used = |it: &Standing| used == Some(&*it.governor);
    let is_reference =
        |it: &&&Standing| REFERENCES.as_flattened().contains(&&*it.governor) || is_used(it);
    // Beside the winner: menu, teo and the one in use, or whatever comes next.
    let mut beside: Vec<&Standing> = others.iter().filter(is_reference).copied().collect();
    if beside.is_empty() {
        beside.extend(others.first());
    }
    let shown = |it: &Standing| {
        let role = if is_used(it) {
            format!(" ({})", in_use.role_of(&it.governor))
        } else {
            String::new()
        };
        format!("{}{role} {:.1} %", it.governor, it.mean * 100.0)
    };
    let mut text = format!("Least mean regret: {}", shown(first));
    if !beside.is_empty() {
        let beside: Vec<String> = beside.into_iter().map(shown).collect();
        text += &format!("; {}", beside.join(", "));
    }
    if let Some(duel) = &first.duel {
        text += &format!(
            ". It beats both menu and teo in {} of {}, and {}",
            duel.won_count,
            counted(first.cell_count, "cell"),
            match duel.lost_count {
                0 => "never loses by more than 2 points".to_owned(),
                lost_count => format!("loses by more than 2 points in {lost_count}"),
            }
        );
    }
    Some(text + "." + &in_use.absent(names.clone()) + &few_gaps(gap_count))
}

/// In how many cells the first governor costs less than each reference under all powers that the machines may have, in a
/// sentence; `None` if all powers are published or there is nothing to compare. `costs` has the machines' own powers.
pub fn under_all_powers<'c>(
    cells: &[Entry],
    standings: &[Standing],
    costs: &dyn Fn(&str) -> Option<&'c CostModel>,
) -> Option<String> {
    let first = &standings.first()?.governor;
    let own: HashMap<ComparedPlace<'_>, &Entry> = cells
        .iter()
        .filter(|cell| cell.governor == *first)
        .map(|cell| (place(cell), cell))
        .collect();
    let mut parts = Vec::new();
    for names in REFERENCES.iter().filter(|names| !names.contains(&&**first)) {
        let (mut less, mut more, mut all) = (0, 0, 0);
        for theirs in cells.iter().filter(|cell| names.contains(&&*cell.governor)) {
            let costs = costs(theirs.machine()).filter(|costs| !costs.corners().is_empty());
            let (Some(mine), Some(costs)) = (own.get(&place(theirs)), costs) else { continue };
            let cost_uj = |cell: &Entry, costs: &CostModel| {
                cell.result.cost_uj(costs, cell.price.lambda_mw(costs))
            };
            // Rounding makes no difference of what is the same.
            const ROUNDING: f64 = 1e-9;
            let (mut is_less, mut is_more) = (true, true);
            for costs in costs.with_corners() {
                let [mine, theirs] = [mine, theirs].map(|cell| cost_uj(cell, costs));
                is_less &= mine <= theirs * (1.0 + ROUNDING);
                is_more &= mine * (1.0 + ROUNDING) >= theirs;
            }
            all += 1;
            less += u64::from(is_less && !is_more);
            more += u64::from(is_more && !is_less);
        }
        let name = names.iter().find(|name| cells.iter().any(|cell| cell.governor == **name));
        if let Some(name) = name.filter(|_| all > 0) {
            let cells = counted(all, "cell");
            parts.push(match parts.is_empty() {
                true => format!("less than {name} in {less} of {cells} and more in {more}"),
                false => format!("less than {name} in {less} and more in {more}"),
            });
        }
    }
    (!parts.is_empty()).then(|| {
        format!(
            "Under all plausible powers, {first} costs {}; the other cells are equal, or depend on powers that are assumed.",
            parts.join(", ")
        )
    })
}

/// `None` if no cell has a regret.
fn standing(
    governor: &str,
    lambda: Option<f64>,
    own: &[&Entry],
    references: &References<'_>,
) -> Option<Standing> {
    let is_asked =
        |cell: &&&Entry| lambda.is_none_or(|lambda| times(cell.price).total_cmp(&lambda).is_eq());
    let own: Vec<(&Entry, f64)> =
        own.iter().filter(is_asked).filter_map(|cell| Some((*cell, cell.regret()?))).collect();
    if own.is_empty() {
        return None;
    }
    let by_log: Groups<'_> =
        own.iter().map(|&(cell, regret)| (cell.log.as_str(), regret)).collect();
    let (mean, interval) = estimate(by_log.len(), |drawn| by_log.mean(drawn));
    Some(Standing {
        governor: governor.to_owned(),
        lambda,
        cell_count: own.len(),
        mean,
        interval,
        median: median(own.iter().map(|&(_, regret)| regret)),
        duel: duel(governor, &own, references),
    })
}

fn duel(governor: &str, own: &[(&Entry, f64)], references: &References<'_>) -> Option<Duel> {
    if REFERENCES.as_flattened().contains(&governor) {
        return None;
    }
    let mut duel = Duel {
        won_count: 0,
        lost_count: 0,
        worst_ratio: f64::NEG_INFINITY,
        worst_place: String::new(),
    };
    for &(cell, regret) in own {
        let &[Some(menu), Some(teo)] = references.get(&place(cell))? else { return None };
        let loss = regret - menu.min(teo);
        duel.won_count += u64::from(loss < 0.0);
        duel.lost_count += u64::from(loss > LOSS_RATIO);
        if loss > duel.worst_ratio {
            duel.worst_ratio = loss;
            let (log, machine, hz) = (&cell.log, cell.machine(), cell.result.hz);
            let (shape, lambda) = (cell.shape.name(), times(cell.price));
            duel.worst_place = format!("{log}, {machine}, {hz} Hz, {shape}, λ={lambda}");
        }
    }
    Some(duel)
}

#[cfg(test)]
pub(crate) mod tests {
    use idlewise_sim::contest::{CellInputs, CellResult, Spent};
    use idlewise_sim::replay::Tally;

    use super::*;

    pub(crate) fn cell(log: &str, governor: &str, lambda: f64, regret: f64) -> Entry {
        let inputs = CellInputs {
            engine: 0,
            log_sha256: String::new(),
            machine: "spr".to_owned(),
            machine_sha256: String::new(),
            governor: governor.to_owned(),
            governor_key: None,
            hz: None,
            latency_limit_us: None,
            tick_work_ns: 0,
            priced: None,
        };
        let machine = idlewise_machine::bundled("spr").unwrap();
        let costs = CostModel::of(&machine).unwrap();
        Entry {
            log: log.to_owned(),
            governor: governor.to_owned(),
            shape: Shape::Default,
            price: Price::Times(lambda),
            result: CellResult::new(inputs, 250, &Tally::default(), &machine, &costs),
            cost_uj: 100.0 * (1.0 + regret),
            oracle_cost_uj: 100.0,
            spent: Spent { energy_uj: 100.0 * (1.0 + regret), delay_mean_ns: 2_000.0 },
            oracle_spent: Spent { energy_uj: 100.0, delay_mean_ns: 1_000.0 },
        }
    }

    #[test]
    fn wins_are_against_both_and_losses_against_the_better() {
        let cells = [
            cell("a", "menu", 0.0, 0.5),
            cell("a", "teo", 0.0, 0.2),
            cell("a", "mine", 0.0, 0.1),
            cell("b", "menu", 0.0, 0.1),
            cell("b", "teo", 0.0, 0.5),
            cell("b", "mine", 0.0, 0.2),
        ];
        let csv = standing_table("", &standings(&cells)).to_csv();
        let mine: Vec<&str> = csv.lines().nth(1).unwrap().split(',').collect();
        let number = |index: usize| mine[index].parse::<f64>().unwrap();
        assert_eq!((mine[0], mine[1], mine[2], mine[7], mine[8]), ("mine", "all", "2", "1", "1"));
        let said = verdict(&standings(&cells), &InUse::default(), 100).unwrap();
        assert_eq!(
            said,
            "Least mean regret: mine 15.0 %; menu (the kernel's default) 30.0 %, teo 35.0 %. It beats both menu and teo in 1 of 2 cells, and \
             loses by more than 2 points in 1."
        );
        let in_use = InUse {
            name: "mine".into(),
            exact: "mine".into(),
            is_recorded: true,
            ..InUse::default()
        };
        let said = verdict(&standings(&cells), &in_use, 100).unwrap();
        assert!(
            said.starts_with("Least mean regret: mine (in use) 15.0 %; menu 30.0 %, teo"),
            "{said}"
        );
        let in_use = InUse {
            name: "ladder".into(),
            exact: "ladder-6.12".into(),
            is_recorded: true,
            ..InUse::default()
        };
        let said = verdict(&standings(&cells), &in_use, 3).unwrap();
        let end = ". ladder was in use, but was not replayed: add --governor ladder. But 3 gaps: too few to judge by.";
        assert!(said.ends_with(end), "{said}");
        // The mean, and the worst loss.
        assert!((number(3) - 0.15).abs() < 1e-9 && (number(9) - 0.1).abs() < 1e-9, "{csv}");
        assert!(csv.lines().nth(1).unwrap().contains("b, spr, 250 Hz, default, λ=0"), "{csv}");
        assert!(csv.lines().skip(2).all(|line| line.ends_with(",,,,")), "{csv}");
    }

    #[test]
    fn a_cell_that_costs_the_oracle_nothing_has_no_regret() {
        let free = Entry { oracle_cost_uj: 0.0, ..cell("a", "mine", 0.0, 0.0) };
        assert!(standings(&[free]).is_empty());
    }
}
