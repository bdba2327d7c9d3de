//! Who wins when loads are played rather than replayed, and whether a replay would have said the same.
//!
//! A replay holds the timeline still, so a governor's regret can be compared with the oracle's cost. In a play the
//! timeline follows from what the governor decides: there is no oracle, the work done in a second differs, and so does
//! the cost. So costs are for each operation, and governors are compared with the better of menu and teo.
//!
//! A play is repeated with other seeds. Intervals are bootstraps over these replicates: they cover what the seed
//! changes, which in a recording is only when ticks come. Means over cells have intervals over loads.

use idlewise_sim::contest::Price;

use crate::arena::{LOSS_RATIO, REFERENCES, times};
use crate::columns::{GOVERNOR, MACHINE};
use crate::statistics::{Groups, RUN_COUNT_MIN, estimate_of_few};
use crate::{Column, Table};

/// What a replicate came to.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the columns say what each is")]
pub struct Play {
    /// `None` if the load counts no operations.
    pub throughput_per_s: Option<f64>,
    pub delay_p50_ns: Option<f64>,
    pub delay_p99_ns: Option<f64>,
    pub power_mw: f64,
    pub cost_uj: f64,
}

/// A governor on a load and a machine at a price.
#[derive(Clone, Debug)]
pub struct PlayedCell {
    /// The load's name.
    pub load: String,
    /// The machine's id.
    pub machine: String,
    /// The price of delay.
    pub price: Price,
    /// The governor's name.
    pub governor: String,
    /// A play for each seed; the seeds are those of all governors.
    pub plays: Vec<Play>,
    /// The regret of a replay.
    pub regret: Option<f64>,
}

/// A figure, and its 95 % interval.
type Figure = Option<(f64, Option<[f64; 2]>)>;

/// A cell beside the others of its load, machine and price.
#[derive(Clone, Debug)]
pub struct JudgedCell<'a> {
    cell: &'a PlayedCell,
    throughput_ratio: Figure,
    cost_ratio: Figure,
}

/// What a governor's cells come to.
#[derive(Clone, Debug)]
pub struct PlayedStanding {
    governor: String,
    cell_count: usize,
    throughput: Figure,
    slowest: Option<(f64, String)>,
    cost: Figure,
    won_count: u64,
    lost_count: u64,
    costliest: Option<(f64, String)>,
    regret: Option<f64>,
}

/// Whether replays put governors in the order of their played costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// Kendall's τ_b, the mean over cells, and its interval over loads; `None` if no cell tells governors apart.
    pub tau: Option<(f64, Option<[f64; 2]>)>,
    /// The cells that do.
    pub cell_count: usize,
    /// Their pairs of governors with different played costs and different regrets.
    pub pair_count: usize,
    /// Those that the replay has in the other order.
    pub reversed_count: usize,
    /// Those of them whose played costs differ by more than two percent, and whose interval excludes that they are equal.
    pub certain_count: usize,
    /// The one whose played costs differ most.
    pub worst_pair: Option<String>,
}

fn mean_of(cell: &PlayedCell, drawn: &[usize], get: fn(&Play) -> Option<f64>) -> f64 {
    let values = drawn.iter().map(|&run| cell.plays.get(run).and_then(get).unwrap_or(f64::NAN));
    values.sum::<f64>() / drawn.len() as f64
}

fn cost(play: &Play) -> Option<f64> {
    Some(play.cost_uj)
}

/// The mean of a figure over replicates; `None` if one has no value.
fn figure(cell: &PlayedCell, get: fn(&Play) -> Option<f64>) -> Figure {
    let found = estimate_of_few(cell.plays.len(), |drawn| mean_of(cell, drawn, get));
    Some(found).filter(|(value, _)| value.is_finite())
}

/// Cells of one load, machine and price, one after the other.
fn contests(cells: &[PlayedCell]) -> impl Iterator<Item = &[PlayedCell]> {
    cells.chunk_by(|a, b| (&a.load, &a.machine, a.price) == (&b.load, &b.machine, b.price))
}

/// Compares each cell with the better of menu and teo. Cells of a load, machine and price must follow each other.
pub fn judged(cells: &[PlayedCell]) -> Vec<JudgedCell<'_>> {
    let of_contest = |contest| {
        let named = |names: [&str; 2]| {
            let is_it = |cell: &&PlayedCell| names.contains(&cell.governor.as_str());
            <[PlayedCell]>::iter(contest).find(is_it)
        };
        let [menu, teo] = REFERENCES.map(named);
        let ratio = move |cell: &PlayedCell, get: fn(&Play) -> Option<f64>, is_less: bool| {
            let (menu, teo) = (menu?, teo?);
            let found = estimate_of_few(cell.plays.len(), |drawn| {
                let [own, menu, teo] = [cell, menu, teo].map(|it| mean_of(it, drawn, get));
                own / if is_less { menu.min(teo) } else { menu.max(teo) }
            });
            Some(found).filter(|(ratio, _)| ratio.is_finite())
        };
        contest.iter().map(move |cell| JudgedCell {
            cell,
            throughput_ratio: ratio(cell, |play| play.throughput_per_s, false),
            cost_ratio: ratio(cell, cost, true),
        })
    };
    contests(cells).flat_map(of_contest).collect()
}

/// The mean of a value of each cell, and its interval over loads.
fn over_loads(values: &[(&str, f64)]) -> Figure {
    let by_load: Groups<'_> = values.iter().copied().collect();
    (!values.is_empty()).then(|| estimate_of_few(by_load.len(), |drawn| by_load.mean(drawn)))
}

/// The geometric mean of ratios.
fn mean_ratio(ratios: &[(&str, f64)]) -> Figure {
    let logarithms: Vec<(&str, f64)> = ratios.iter().map(|&(load, it)| (load, it.ln())).collect();
    let (mean, interval) = over_loads(&logarithms)?;
    Some((mean.exp(), interval.map(|ends| ends.map(f64::exp))))
}

/// Returns the standings, the lowest cost first.
pub fn played_standings(cells: &[JudgedCell<'_>]) -> Vec<PlayedStanding> {
    let mut governors: Vec<&str> = Vec::new();
    for JudgedCell { cell, .. } in cells {
        if !governors.contains(&cell.governor.as_str()) {
            governors.push(&cell.governor);
        }
    }
    let mut standings: Vec<PlayedStanding> = governors
        .into_iter()
        .map(|governor| {
            let own: Vec<&JudgedCell<'_>> =
                cells.iter().filter(|it| it.cell.governor == governor).collect();
            let ratios = |get: fn(&JudgedCell<'_>) -> Figure| -> Vec<(&JudgedCell<'_>, f64)> {
                own.iter().filter_map(|it| Some((*it, get(it)?.0))).collect()
            };
            let by_load = |ratios: &[(&JudgedCell<'_>, f64)]| {
                let of: Vec<(&str, f64)> =
                    ratios.iter().map(|(it, ratio)| (it.cell.load.as_str(), *ratio)).collect();
                mean_ratio(&of)
            };
            let (speeds, costs) = (ratios(|it| it.throughput_ratio), ratios(|it| it.cost_ratio));
            let at = |&(it, ratio): &(&JudgedCell<'_>, f64)| (ratio, place(it.cell));
            let regrets: Vec<f64> = own.iter().filter_map(|it| it.cell.regret).collect();
            let count =
                |is: &dyn Fn(f64) -> bool| costs.iter().filter(|it| is(it.1)).count() as u64;
            PlayedStanding {
                governor: governor.to_owned(),
                cell_count: own.len(),
                throughput: by_load(&speeds),
                slowest: speeds.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(at),
                cost: by_load(&costs),
                won_count: count(&|ratio| ratio < 1.0),
                lost_count: count(&|ratio| ratio > 1.0 + LOSS_RATIO),
                costliest: costs.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(at),
                regret: (!regrets.is_empty())
                    .then(|| regrets.iter().sum::<f64>() / regrets.len() as f64),
            }
        })
        .collect();
    let cost = |row: &PlayedStanding| row.cost.map_or(f64::INFINITY, |(cost, _)| cost);
    standings.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    standings
}

fn place(cell: &PlayedCell) -> String {
    format!("{}, {}, λ={}", cell.load, cell.machine, times(cell.price))
}

/// Compares the order of governors by played cost with that by regret, cell by cell.
pub fn agreement(cells: &[PlayedCell]) -> Agreement {
    let mut found = Agreement {
        tau: None,
        cell_count: 0,
        pair_count: 0,
        reversed_count: 0,
        certain_count: 0,
        worst_pair: None,
    };
    let mut taus = Vec::new();
    let mut worst_ratio = 1.0;
    for contest in contests(cells) {
        let runs: Vec<usize> = (0..contest[0].plays.len()).collect();
        // Of pairs: those in the same order less those in the other, and those that each side tells apart.
        let (mut sum, mut by_cost, mut by_regret) = (0.0, 0.0, 0.0);
        for (index, a) in contest.iter().enumerate() {
            for b in &contest[index + 1..] {
                let (Some(a_regret), Some(b_regret)) = (a.regret, b.regret) else { continue };
                let costs = [a, b].map(|it| mean_of(it, &runs, cost));
                let orders = [costs[0].total_cmp(&costs[1]), a_regret.total_cmp(&b_regret)];
                let [played, replayed] = orders.map(|order| f64::from(order as i8));
                sum += played * replayed;
                by_cost += played.abs();
                by_regret += replayed.abs();
                found.pair_count += usize::from(played * replayed != 0.0);
                if played * replayed >= 0.0 {
                    continue;
                }
                found.reversed_count += 1;
                let (dear, cheap) = if played > 0.0 { (a, b) } else { (b, a) };
                let (ratio, interval) = estimate_of_few(runs.len(), |drawn| {
                    mean_of(dear, drawn, cost) / mean_of(cheap, drawn, cost)
                });
                let is_sure = runs.len() >= RUN_COUNT_MIN
                    && interval.is_none_or(|[low, _]| low > 1.0)
                    && ratio > 1.0 + LOSS_RATIO;
                found.certain_count += usize::from(is_sure);
                if is_sure && ratio > worst_ratio {
                    worst_ratio = ratio;
                    let [dear, cheap] = [dear, cheap].map(|it| it.governor.as_str());
                    let place = place(a);
                    found.worst_pair = Some(format!(
                        "{place}: {dear} costs {:.0} % more than {cheap}",
                        100.0 * (ratio - 1.0)
                    ));
                }
            }
        }
        if by_cost > 0.0 && by_regret > 0.0 {
            taus.push((contest[0].load.as_str(), sum / f64::sqrt(by_cost * by_regret)));
        }
    }
    found.cell_count = taus.len();
    found.tau = over_loads(&taus);
    found
}

impl Agreement {
    /// Returns it for `--json`.
    pub fn to_json(&self) -> serde_json::Value {
        let ends = self.tau.and_then(|(_, interval)| interval);
        serde_json::json!({
            "kendall_tau": self.tau.map(|(tau, _)| tau),
            "kendall_tau_low": ends.map(|[low, _]| low),
            "kendall_tau_high": ends.map(|[_, high]| high),
            "cell_count": self.cell_count,
            "pair_count": self.pair_count,
            "reversed_count": self.reversed_count,
            "certain_count": self.certain_count,
            "worst_pair": self.worst_pair,
        })
    }

    /// Says it in a sentence or two.
    pub fn to_text(&self) -> String {
        let Some((tau, interval)) = self.tau else {
            return "No cell tells governors apart, so there is no rank correlation.".to_owned();
        };
        let interval = interval
            .map(|[low, high]| format!(" (95 % interval over loads {low:.2} to {high:.2})"))
            .unwrap_or_default();
        let worst =
            self.worst_pair.as_ref().map(|it| format!("; most on {it}")).unwrap_or_default();
        format!(
            "Rank correlation of played cost and replayed regret, Kendall's τ_b, mean of {} cells: \
             {tau:.2}{interval}. Of {} pairs of governors, replays have {} in the other order, and {} of \
             these differ by more than {:.0} % when played, beyond the replicates' doubt{worst}.",
            self.cell_count,
            self.pair_count,
            self.reversed_count,
            self.certain_count,
            100.0 * LOSS_RATIO,
        )
    }
}

/// Columns of a figure and of the ends of its interval.
macro_rules! figure {
    ($unit:ident $better:ident, $get:expr, $heading:literal: $id:literal, $means:literal; $low:literal, $high:literal$(, $detail:ident)?) => {
        [
            Column::$unit($id, $heading, |row| $get(row).map(|it| it.0).into()).means($means).$better(),
            Column::$unit($low, "from", |row| $get(row).and_then(|it| it.1).map(|it| it[0]).into())
                .means("Lower end of its 95 % interval.")
                $(.$detail())?,
            Column::$unit($high, "to", |row| $get(row).and_then(|it| it.1).map(|it| it[1]).into())
                .means("Its upper end.")
                $(.$detail())?,
        ]
    };
}

/// Returns the columns of the cells.
pub fn played_columns<'a>() -> Vec<Column<JudgedCell<'a>>> {
    type C<'a> = Column<JudgedCell<'a>>;
    let mut columns: Vec<C<'a>> = vec![
        C::text("load", "load", |row| row.cell.load.as_str().into())
            .means("What was played.")
            .key(),
        C::new(MACHINE, |row| row.cell.machine.as_str().into()),
        C::number("lambda", "λ", |row| times(row.cell.price).into())
            .means("The price of delay, as a multiple of polling's power.")
            .key(),
        C::new(GOVERNOR, |row| row.cell.governor.as_str().into()),
        C::per_s("throughput_per_s", "operations", |row| {
            figure(row.cell, |play| play.throughput_per_s).map(|it| it.0).into()
        })
        .means("Completed operations a second; of a recording, steps.")
        .detail(),
    ];
    columns.extend(figure!(ratio higher_is_better, (|row: &JudgedCell<'_>| row.throughput_ratio), "throughput":
        "throughput_ratio", "Throughput over that of the better of menu and teo. Intervals need seven replicates that differ."; "throughput_low_ratio", "throughput_high_ratio", detail));
    columns.extend(figure!(ns lower_is_better, (|row: &JudgedCell<'_>| figure(row.cell, |play| play.delay_p50_ns)), "wake p50":
        "delay_p50_ns", "Median time from the event that wakes a CPU until it runs, mean over replicates."; "delay_p50_low_ns", "delay_p50_high_ns", detail));
    columns.extend(figure!(ns lower_is_better, (|row: &JudgedCell<'_>| figure(row.cell, |play| play.delay_p99_ns)), "wake p99":
        "delay_p99_ns", "Its 99th percentile."; "delay_p99_low_ns", "delay_p99_high_ns", detail));
    columns.extend(figure!(mw lower_is_better, (|row: &JudgedCell<'_>| figure(row.cell, |play| Some(play.power_mw))), "power":
        "power_mw", "Mean power of all cores and packages of the simulated machine."; "power_low_mw", "power_high_mw", detail));
    columns.extend(figure!(uj lower_is_better, (|row: &JudgedCell<'_>| figure(row.cell, cost)), "cost":
        "cost_uj", "Energy of the machine and priced delay, for each operation; for each wake event if the load counts none."; "cost_low_uj", "cost_high_uj", detail));
    columns.extend(figure!(ratio lower_is_better, (|row: &JudgedCell<'_>| row.cost_ratio), "of better":
        "cost_ratio", "The cost over that of the better of menu and teo."; "cost_low_ratio", "cost_high_ratio"));
    columns.push(
        C::ratio("replayed_regret_ratio", "replay regret", |row| row.cell.regret.into())
            .means("Regret of a replay of the gaps that the first governor leaves in the first replicate.")
            .lower_is_better(),
    );
    columns
}

/// Returns the columns of the standings.
pub fn played_standing_columns() -> Vec<Column<PlayedStanding>> {
    type C = Column<PlayedStanding>;
    let mut columns = vec![
        C::new(GOVERNOR, |row| row.governor.as_str().into()),
        C::count("cell_count", "cells", |row| (row.cell_count as u64).into())
            .means("Loads × machines × λ.")
            .detail(),
    ];
    columns.extend(figure!(ratio higher_is_better, (|row: &PlayedStanding| row.throughput), "throughput":
        "throughput_ratio", "Throughput over that of the better of menu and teo, geometric mean of the cells; intervals are over loads."; "throughput_low_ratio", "throughput_high_ratio", detail));
    columns.extend([
        C::ratio("throughput_worst_ratio", "lowest", |row| {
            row.slowest.as_ref().map(|it| it.0).into()
        })
        .means("The lowest of a cell.")
        .higher_is_better(),
        C::text("throughput_worst_cell", "where", |row| {
            row.slowest.as_ref().map(|it| it.1.as_str()).into()
        })
        .means("That cell.")
        .detail(),
    ]);
    columns.extend(figure!(ratio lower_is_better, (|row: &PlayedStanding| row.cost), "cost":
        "cost_ratio", "The cost over that of the better of menu and teo, likewise."; "cost_low_ratio", "cost_high_ratio"));
    columns.extend([
        C::count("won_count", "won", |row| row.won_count.into())
            .means("Cells that cost less than both menu and teo.")
            .higher_is_better(),
        C::count("lost_count", "lost by 2", |row| row.lost_count.into())
            .means("Cells that cost over two percent more than the better of them.")
            .lower_is_better(),
        C::ratio("cost_worst_ratio", "highest", |row| row.costliest.as_ref().map(|it| it.0).into())
            .means("The highest cost of a cell, over that of the better of them.")
            .lower_is_better(),
        C::text("cost_worst_cell", "where", |row| {
            row.costliest.as_ref().map(|it| it.1.as_str()).into()
        })
        .means("That cell.")
        .detail(),
        C::ratio("replayed_regret_ratio", "replay regret", |row| row.regret.into())
            .means("Mean regret of the replays.")
            .lower_is_better(),
    ]);
    columns
}

/// Returns a table of all cells.
pub fn played_table(title: impl Into<String>, cells: &[JudgedCell<'_>]) -> Table {
    Table::new(title, &played_columns(), cells).unranked()
}

/// Returns the table of the standings.
pub fn played_standing_table(title: &str, standings: &[PlayedStanding]) -> Table {
    Table::new(title, &played_standing_columns(), standings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A governor whose replicates cost this much, beside the regret of its replay.
    fn cell(load: &str, governor: &str, costs_uj: [f64; 7], regret: f64) -> PlayedCell {
        let play = |cost_uj| Play {
            throughput_per_s: Some(1e3 / cost_uj),
            delay_p50_ns: Some(2_000.0),
            delay_p99_ns: None,
            power_mw: 1.0,
            cost_uj,
        };
        PlayedCell {
            load: load.to_owned(),
            machine: "spr".to_owned(),
            price: Price::QUARTER,
            governor: governor.to_owned(),
            plays: costs_uj.map(play).to_vec(),
            regret: Some(regret),
        }
    }

    #[test]
    fn a_reversed_pair_is_certain_only_beyond_the_replicates_doubt() {
        let around = |cost: f64| [0.8, 0.9, 1.0, 1.0, 1.0, 1.1, 1.2].map(|it| it * cost);
        let contest = |mine: [f64; 7], regret| {
            [cell("a", "menu", [100.0; 7], 0.1), cell("a", "mine", mine, regret)]
        };
        let [agrees, reverses, may_be, is_close] =
            [(around(200.0), 0.2), (around(200.0), 0.0), (around(103.0), 0.0), ([101.0; 7], 0.0)]
                .map(|(mine, regret)| agreement(&contest(mine, regret)));
        let counts = |it: &Agreement| (it.pair_count, it.reversed_count, it.certain_count);
        assert_eq!((agrees.tau, counts(&agrees)), (Some((1.0, None)), (1, 0, 0)));
        assert_eq!((reverses.tau, counts(&reverses)), (Some((-1.0, None)), (1, 1, 1)));
        assert_eq!(counts(&may_be), (1, 1, 0), "its interval includes menu");
        assert_eq!(counts(&is_close), (1, 1, 0), "one percent is not much");
        let text = reverses.to_text();
        assert!(text.contains("a, spr, λ=0.25: mine costs 100 % more than menu"), "{text}");
    }

    /// Of three pairs one is tied in the replay: τ_b is (2 − 0) / √(3 · 2).
    #[test]
    fn ties_count_as_kendall_says() {
        let three = [("menu", 1.0, 0.1), ("teo", 2.0, 0.1), ("mine", 3.0, 0.3)];
        let cells = three.map(|(name, cost, regret)| cell("a", name, [cost; 7], regret));
        let (tau, _) = agreement(&cells).tau.unwrap();
        assert!((tau - 2.0 / f64::sqrt(6.0)).abs() < 1e-12, "{tau}");
        let tied = cells.map(|it| PlayedCell { regret: Some(0.0), ..it });
        assert_eq!(agreement(&tied).tau, None);
    }

    #[test]
    fn standings_are_against_the_better_and_over_loads() {
        let of_load = |load: &str, mine: f64| {
            [("menu", 100.0), ("teo", 50.0), ("mine", mine)]
                .map(|(name, cost)| cell(load, name, [cost; 7], 0.0))
        };
        let loads = ["a", "b", "c", "d", "e", "f", "g"];
        let each = loads.iter().zip([25.0, 50.0, 50.5, 100.0, 50.0, 50.0, 50.0]);
        let cells: Vec<PlayedCell> = each.flat_map(|(load, mine)| of_load(load, mine)).collect();
        let standings = played_standings(&judged(&cells));
        let row = |name: &str| standings.iter().find(|it| it.governor == name).unwrap();
        let mine = row("mine");
        assert_eq!((mine.won_count, mine.lost_count, mine.cell_count), (1, 1, 7));
        assert_eq!(mine.costliest, Some((2.0, "d, spr, λ=0.25".to_owned())));
        assert_eq!(mine.slowest.as_ref().map(|it| it.0), Some(0.5));
        let (cost, interval) = mine.cost.unwrap();
        let [low, high] = interval.unwrap();
        assert!(low < cost && cost < high && (cost - 1.01_f64.powf(1.0 / 7.0)).abs() < 1e-9);
        assert_eq!(row("teo").cost, Some((1.0, None)), "it is the better one everywhere");
        // Without menu there is nothing to compare with.
        let alone: Vec<PlayedCell> = cells.into_iter().filter(|it| it.governor != "menu").collect();
        assert!(judged(&alone).iter().all(|it| it.cost_ratio.is_none()));
    }
}
