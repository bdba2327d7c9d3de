//! The results of a replay as facts: totals, the front, regret, CPUs, wake reasons.

use idlewise_sim::CostModel;
use idlewise_sim::contest::Price;
use idlewise_sim::ledger::{MachineLedger, RegretTally, bin_edge_ns};
use idlewise_sim::replay::{Delays, Tally};
use idlewise_trace::WakeReason;

use super::verdict::verdicts;
use super::{
    ColumnRef, CpuFacts, FrontFacts, FrontPoint, GovernorFacts, GovernorRole, Page, QuantileFacts,
    RegretFacts, Replayed, ReplayedLog, ReplayedMachine, ResultFacts, StateCounts, TableFacts,
    WakeFacts,
};
use crate::replay::{Outcome, Role, by_log_table, oracle_name, replay_table};

/// The place of a governor in a ledger.
#[derive(Clone, Copy, Debug)]
enum LedgerPlace {
    /// Its index.
    Governor(usize),
    /// The index of the oracle's price.
    Oracle(usize),
}

impl<'a> Replayed<'a> {
    /// Returns the governors as the page lists them: the oracle once for each price.
    pub fn listed(&self) -> Vec<GovernorFacts> {
        let oracles = self.prices.iter().map(|&price| GovernorFacts {
            name: oracle_name(price),
            about: "the cheapest state for each gap, known in advance".to_owned(),
            role: GovernorRole::Oracle,
        });
        let places = self.places();
        let governor = |place: &LedgerPlace| match *place {
            LedgerPlace::Governor(index) => self.governors[index].clone(),
            LedgerPlace::Oracle(index) => oracles.clone().nth(index).expect("one for each price"),
        };
        places.iter().map(governor).collect()
    }

    /// The place of each listed governor.
    fn places(&self) -> Vec<LedgerPlace> {
        let governors = (0..self.governors.len()).filter(|index| !self.failed.contains(index));
        let oracles = 0..if self.shows_oracle { self.prices.len() } else { 0 };
        governors.map(LedgerPlace::Governor).chain(oracles.map(LedgerPlace::Oracle)).collect()
    }

    /// Returns the index among the listed governors of one of the ledger's; `None` if it failed.
    pub fn listed_index(&self, governor: usize) -> Option<usize> {
        let is_it = |place: &LedgerPlace| matches!(*place, LedgerPlace::Governor(index) if index == governor);
        self.places().iter().position(is_it)
    }

    /// Returns the sums over all logs, for each machine.
    pub fn pooled(&self) -> Vec<MachineLedger> {
        let mut pooled = Vec::new();
        for log in &self.logs {
            match pooled.is_empty() {
                true => pooled.clone_from(&log.ledger.machines),
                false => {
                    let sums: &mut Vec<MachineLedger> = &mut pooled;
                    sums.iter_mut().zip(&log.ledger.machines).for_each(|(sum, one)| sum.merge(one));
                }
            }
        }
        pooled
    }

    /// Returns the results as the sentences and tables take them: of each log, or of the sums.
    pub fn outcomes(&self, log: &str, ledgers: &[MachineLedger]) -> Vec<Outcome<'a>> {
        let mut outcomes = Vec::new();
        let of_log = self.logs.iter().position(|one| one.name == log);
        for (machine, ledger) in self.machines.iter().zip(ledgers) {
            if !machine.is_for(of_log) {
                continue;
            }
            let price = |(price, oracle): (&Price, &Tally)| {
                machine.costs.cost_uj(oracle, price.lambda_mw(machine.costs))
            };
            let oracle_costs_uj: Vec<f64> =
                self.prices.iter().zip(&ledger.oracles).map(price).collect();
            for (place, governor) in self.places().into_iter().zip(self.listed()) {
                outcomes.push(Outcome {
                    log: log.to_owned(),
                    machine: machine.id.to_owned(),
                    state_names: machine.state_names,
                    states: machine.states,
                    costs: machine.costs,
                    power_basis: machine.power_basis,
                    governor: governor.name,
                    role: match governor.role {
                        GovernorRole::Governor | GovernorRole::File => Role::Governor,
                        GovernorRole::Bound => Role::Bound,
                        GovernorRole::Oracle => Role::Oracle,
                    },
                    tally: tally_of(ledger, place).clone(),
                    oracle_costs_uj: oracle_costs_uj.clone(),
                });
            }
        }
        outcomes
    }

    /// Adds everything to a page.
    pub fn fill(&self, page: &mut Page) {
        page.facts.governors = self.listed();
        page.facts.reasons = WakeReason::ALL.map(|reason| reason.name().to_owned()).to_vec();
        let pooled = self.pooled();
        let mut bin_count = 0;
        let mut known = Vec::new();
        for (index, log) in self.logs.iter().enumerate() {
            self.totals(page, Some(index), &log.ledger.machines);
            let cells = self.regret(page, Some(index), &log.ledger.machines, &mut bin_count);
            known.push(cells);
        }
        self.totals(page, None, &pooled);
        match &known[..] {
            // The sum of one log is that log.
            [_] => {
                let of_log = page.facts.regret.clone();
                page.facts
                    .regret
                    .extend(of_log.into_iter().map(|one| RegretFacts { log: None, ..one }));
            }
            _ => {
                self.regret(page, None, &pooled, &mut bin_count);
            }
        }
        page.facts.edges_ns = (0..=bin_count).map(bin_edge_ns).collect();
        let cpus = self.cpus();
        page.facts.cpus = Some(page.add_json(&cpus));
        self.wakes(page);
        page.facts.verdicts = verdicts(self, &pooled, &page.facts.notes);
        self.tables(page, &pooled);
    }

    /// The tables that `idlewise replay` prints.
    fn tables(&self, page: &mut Page, pooled: &[MachineLedger]) {
        let outcomes = self.outcomes(self.all_name, pooled);
        for group in outcomes.chunk_by(|a, b| a.machine == b.machine) {
            let machine = &group[0].machine;
            let title = format!("Governors on {machine}, all logs together");
            let table = replay_table(&title, group, &self.prices, &["log", "machine"]);
            page.facts.tables.push(TableFacts::of(&format!("governors-{machine}"), &table));
        }
        if self.logs.len() > 1 {
            let by_log = |log: &ReplayedLog| self.outcomes(&log.name, &log.ledger.machines);
            let outcomes: Vec<Outcome<'_>> = self.logs.iter().flat_map(by_log).collect();
            let table = by_log_table("Log by log", &outcomes, &self.prices);
            if table.row_count() > 0 {
                page.facts.tables.push(TableFacts::of("logs", &table));
            }
        }
    }

    fn totals(&self, page: &mut Page, log: Option<usize>, ledgers: &[MachineLedger]) {
        let machines = self.machines.iter().zip(ledgers).enumerate();
        for (machine, (known, ledger)) in machines.filter(|(_, (known, _))| known.is_for(log)) {
            for (governor, place) in self.places().into_iter().enumerate() {
                let tally = tally_of(ledger, place);
                page.facts.results.push(result(log, machine, governor, known, tally, place));
            }
            let mut points: Vec<FrontPoint> = Vec::new();
            for (&lambda_mw, tally) in
                front_prices_mw(known.costs, &self.prices).iter().zip(&ledger.front)
            {
                let point = FrontPoint {
                    lambda_mw,
                    energy_uj: known.costs.energy_uj(tally),
                    delay_ns: tally.delay_sum_ns(known.costs.exits()),
                };
                let is_same = |last: &FrontPoint| {
                    (last.energy_uj, last.delay_ns) == (point.energy_uj, point.delay_ns)
                };
                if !points.last().is_some_and(is_same) {
                    points.push(point);
                }
            }
            page.facts.fronts.push(FrontFacts { log, machine, points });
        }
    }

    fn regret(
        &self,
        page: &mut Page,
        log: Option<usize>,
        ledgers: &[MachineLedger],
        bin_count: &mut usize,
    ) -> Vec<ColumnRef> {
        let mut added = Vec::new();
        let is_for = |machine: &usize| self.machines[*machine].is_for(log);
        for machine in (0..ledgers.len()).filter(is_for) {
            for (index, prices) in ledgers[machine].regret.iter().enumerate() {
                let Some(governor) = self.listed_index(index) else { continue };
                for (price, tally) in prices.iter().enumerate() {
                    *bin_count =
                        tally.cells().map(|cell| cell.bin + 1).fold(*bin_count, usize::max);
                    let cells = page.add_json(&cells(tally));
                    added.push(cells);
                    page.facts.regret.push(RegretFacts { log, machine, governor, price, cells });
                }
            }
        }
        added
    }

    fn cpus(&self) -> Vec<CpuFacts> {
        let mut rows = Vec::new();
        for (log, replayed) in self.logs.iter().enumerate() {
            for cpu in &replayed.ledger.cpus {
                for (machine, governors) in cpu.regret_ratios.iter().enumerate() {
                    if !self.machines[machine].is_for(Some(log)) {
                        continue;
                    }
                    for (index, ratios) in governors.iter().enumerate() {
                        let Some(governor) = self.listed_index(index) else { continue };
                        rows.push(CpuFacts {
                            log,
                            cpu: cpu.cpu,
                            machine,
                            governor,
                            gap_count: cpu.gap_count,
                            idle_ns: cpu.idle_ns,
                            regret_share: ratios.iter().map(|ratio| ratio.map(short)).collect(),
                        });
                    }
                }
            }
        }
        rows
    }

    fn wakes(&self, page: &mut Page) {
        for (log, replayed) in self.logs.iter().enumerate() {
            for (reason, &(count, idle_ns)) in WakeReason::ALL.iter().zip(&replayed.ledger.wakes) {
                if count > 0 {
                    let reason = reason.name().to_owned();
                    page.facts.wakes.push(WakeFacts { log, reason, count, idle_ns });
                }
            }
        }
    }
}

/// Prices of the oracle's front, as shares of the full price, beside those that are reported: every
/// half octave from 1/256 to 22, beyond which hardly any choice changes.
///
/// A choice changes with the price at a length of its own for each gap, so the exact front has as many
/// vertices as there are different gaps. Each point at one of these prices is exact. Between two of them
/// a line is an upper bound, because the front is convex.
pub fn front_prices_mw(costs: &CostModel, prices: &[Price]) -> Vec<f64> {
    let full_mw = costs.full_price_mw();
    // Exact on every platform, unlike a power with a fraction.
    let octaves = (-8..=4).map(|octave| full_mw * 2_f64.powi(octave));
    let mut all: Vec<f64> = octaves.flat_map(|mw| [mw, mw * std::f64::consts::SQRT_2]).collect();
    all.push(0.0);
    all.extend(prices.iter().map(|price| price.lambda_mw(costs)));
    all.sort_by(f64::total_cmp);
    all.dedup_by(|a, b| (*a - *b).abs() <= 1e-9 * full_mw);
    all
}

fn tally_of(ledger: &MachineLedger, place: LedgerPlace) -> &Tally {
    match place {
        LedgerPlace::Governor(index) => &ledger.tallies[index],
        LedgerPlace::Oracle(index) => &ledger.oracles[index],
    }
}

fn result(
    log: Option<usize>,
    machine: usize,
    governor: usize,
    known: &ReplayedMachine<'_>,
    tally: &Tally,
    place: LedgerPlace,
) -> ResultFacts {
    let delays = tally.delays(known.costs.exits());
    // The kernel's rule does not apply to the oracle, whose stays are whole gaps.
    let is_oracle = matches!(place, LedgerPlace::Oracle(_));
    let state = |state: &idlewise_sim::replay::StateTally| StateCounts {
        entry_count: state.entry_count,
        stay_ns: state.stay_ns,
        too_deep_count: state.too_deep_count,
        too_shallow_count: state.too_shallow_count,
    };
    let is_promoted = known.states.as_slice().iter().any(|state| state.is_auto_promoted);
    let has_free_rides = known.states.as_slice().iter().any(|state| state.wakes_on_store);
    ResultFacts {
        log,
        machine,
        governor,
        energy_uj: known.costs.energy_uj(tally),
        delay_ns: delays.sum_ns(),
        idle_ns: tally.gap_ns,
        gap_count: tally.gap_count,
        too_deep_count: tally.too_deep_count(),
        too_shallow_count: tally.too_shallow_count(),
        forbidden_count: tally.forbidden_count,
        tick_wake_count: tally.tick_wake_count,
        delays: quantiles(&delays),
        states: tally.states[..known.states.len()].iter().map(state).collect(),
        promotion_count: (is_promoted && !is_oracle).then_some(tally.auto_promotion_count),
        free_ipi_count: has_free_rides.then_some(tally.free_ipi_count()),
    }
}

/// The quantiles of the page, in thousandths of a percent.
const QUANTILES: [u64; 36] = [
    0, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000, 50_000, 55_000,
    60_000, 65_000, 70_000, 75_000, 80_000, 85_000, 90_000, 92_000, 94_000, 95_000, 96_000, 97_000,
    98_000, 99_000, 99_200, 99_500, 99_700, 99_800, 99_900, 99_950, 99_980, 99_990, 99_999,
    100_000,
];

fn quantiles(delays: &Delays) -> Vec<QuantileFacts> {
    let count = u128::from(delays.count());
    let mut points = Vec::with_capacity(QUANTILES.len());
    let mut seen = 0;
    let mut values = delays.iter();
    let mut value_ns = 0;
    for thousandths in QUANTILES {
        if count == 0 {
            break;
        }
        let rank = (count * u128::from(thousandths)).div_ceil(100_000).max(1);
        while seen < rank {
            let Some((ns, times)) = values.next() else { break };
            (value_ns, seen) = (ns, seen + u128::from(times));
        }
        points.push(QuantileFacts { quantile: thousandths as f64 / 1e5, ns: value_ns });
    }
    points
}

fn cells(tally: &RegretTally) -> Vec<(usize, usize, usize, u64, f64)> {
    let row = |cell: idlewise_sim::ledger::RegretCell| {
        (cell.bin, cell.chosen, cell.right, cell.count, short(cell.regret_uj))
    };
    tally.cells().map(row).collect()
}

/// Rounds to six digits: the page is shorter, and no chart shows more.
fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powi(5 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_delays() {
        let mut delays = Delays::default();
        (1..=1_000).for_each(|ns| delays.record(ns));
        let points = quantiles(&delays);
        assert!(points.len() >= 30);
        for point in &points[1..] {
            assert_eq!(Some(point.ns), delays.quantile_ns(point.quantile), "{}", point.quantile);
        }
        assert_eq!((points[0].ns, points[35].ns), (1, 1_000));
        assert!(quantiles(&Delays::default()).is_empty());
    }

    #[test]
    fn rounds_to_six_digits() {
        assert_eq!(
            [0.0, 1.0, 123_456_789.0, -0.001_234_567_8].map(short),
            [0.0, 1.0, 123_457_000.0, -0.001_234_57]
        );
        assert_eq!(short(f64::NAN), 0.0);
        assert_eq!(short(f64::MIN_POSITIVE), f64::MIN_POSITIVE);
    }

    #[test]
    fn the_front_has_the_reported_prices_and_its_prices_rise() {
        use idlewise_core::{IdleState, StateTable};
        let states = StateTable::new(&[IdleState::POLL, IdleState::new(290_000, 800_000)]).unwrap();
        let costs = CostModel::new(states, &[4_000.0, 100.0], 4_000.0);
        let prices = [Price::FREE, Price::Milliwatts(123.0), Price::FULL];
        let all = front_prices_mw(&costs, &prices);
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        for price in prices {
            assert!(all.iter().any(|&mw| (mw - price.lambda_mw(&costs)).abs() < 1e-6), "{price:?}");
        }
    }
}
