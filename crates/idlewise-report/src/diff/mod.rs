//! The results of comparing two governors. A is the first, B the second, and changes are B minus A.
//!
//! | file | holds |
//! | --- | --- |
//! | `groups.rs` | gaps by length, by reason, by log |
//! | `costly.rs` | the most expensive gaps, with their context |
//! | `mod.rs` | [`Difference`], and the sentences above the tables |

mod costly;
mod groups;

use idlewise_core::StateTable;
use idlewise_sim::diff::{Diff, Dimension, GroupTally};
use idlewise_sim::replay::Tally;
use idlewise_sim::{Basis, CostModel};

pub use costly::{Costly, Direction, before_table, costly_columns, costly_rows, costly_table};
pub use groups::{
    DiffGroup, by_length_table, by_log_table, by_reason_table, group_columns, group_rows,
};

use idlewise_sim::contest::Price;

use crate::columns::{Heading, Priority, Unit};

use crate::replay::short;
use crate::verdict::{Plain, few_gaps};
use crate::{Statement, counted};

const A: Heading = Heading::text("a", "A", "The governors, in the order in which they were named.")
    .priority(Priority::Key);
const B: Heading = Heading::text("b", "B", "Governor B, named second.").priority(Priority::Key);
const LAMBDA: Heading =
    Heading::number("lambda_mw", "λ", Unit::Milliwatts, "The price of delay, λ.");
const DELAY_B: Heading =
    Heading::number("delay_b_ns", "delay B", Unit::Nanoseconds, "The same with B.");
const ENERGY_B: Heading =
    Heading::number("energy_b_uj", "energy B", Unit::Microjoules, "The same with B.");
const COST_CHANGE: Heading = Heading::number(
    "cost_change_uj",
    "cost B−A",
    Unit::Microjoules,
    "Energy and λ × delay, B less A.",
);

/// The comparison of two governors on one machine, over one log or the sum of several.
#[derive(Clone, Debug)]
pub struct Difference<'a> {
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
    /// The names of A and B.
    pub governors: [String; 2],
    /// The price of delay in costs.
    pub price: Price,
    /// Whether every log knows before which gaps a task ran.
    pub knows_tasks: bool,
    /// The result.
    pub diff: Diff,
}

impl Difference<'_> {
    /// Whether a task ran before a gap, as a word.
    fn ran_task_word(&self, ran_task: bool) -> &'static str {
        match (ran_task, self.knows_tasks) {
            (false, _) => "no",
            (true, true) => "yes",
            (true, false) => "yes or unknown",
        }
    }

    fn lambda_mw(&self) -> f64 {
        self.price.lambda_mw(self.costs)
    }

    fn cost_change_uj(&self, group: &GroupTally) -> f64 {
        group.energy_change_uj() + self.lambda_mw() * group.delay_change_ns() as f64 * 1e-6
    }

    fn state_name(&self, index: usize) -> &str {
        self.state_names.get(index).map_or("?", String::as_str)
    }

    fn states_words(&self, a: usize, b: usize) -> String {
        format!("{} → {}", self.state_name(a), self.state_name(b))
    }

    /// Returns the sentences as findings.
    pub fn findings(&self) -> impl Iterator<Item = Statement> {
        let sentences = self.sentences().into_iter();
        sentences.map(|text| Statement::about(&self.log, &self.machine, text))
    }

    /// Returns how many gaps differ, and how that affects delay, energy and cost, as sentences.
    pub fn sentences(&self) -> Vec<String> {
        let [a, b] = &self.governors;
        let all = &self.diff.all;
        if all.differing_count == 0 {
            return vec![format!(
                "{a} and {b} take the same course in {}.{}",
                match all.gap_count {
                    1 => "the only gap".to_owned(),
                    count => format!("all {count} gaps"),
                },
                few_gaps(all.gap_count)
            )];
        }
        let later_count = all.differing_count - all.first_state_count;
        let later = match later_count {
            0 => String::new(),
            1 => ", and 1 more differs later".to_owned(),
            _ => format!(", and {later_count} more differ later"),
        };
        let plain = |tally: &Tally| Plain::new(tally.delays(self.costs.exits()), self.costs, tally);
        let (before, after) = (plain(&self.diff.a), plain(&self.diff.b));
        let changes = after.instead_of(&before, self.power_basis);
        let decisive = self.costs.decisive_state(&self.diff.a, &self.diff.b);
        let powers =
            after.under_all_powers(&before, [b, a], decisive.map(|state| self.state_name(state)));
        let powers = powers.map_or_else(String::new, |text| format!(" {text}"));
        let mut sentences =
            vec![format!("{b} instead of {a}: {changes}.{powers}{}", few_gaps(all.gap_count))];
        sentences.push(format!(
            "With {b} instead of {a}, {} of {} ({}) start in another state{later}.",
            all.first_state_count,
            counted(all.gap_count, "gap"),
            percent(all.first_state_count as f64 / all.gap_count as f64),
        ));
        let delay_ms = |tally| delay_ns(self, tally) / 1e6;
        let (delay_a, delay_b) = (delay_ms(&self.diff.a), delay_ms(&self.diff.b));
        let energy_mj = |tally| self.costs.energy_uj(tally) / 1e3;
        let (energy_a, energy_b) = (energy_mj(&self.diff.a), energy_mj(&self.diff.b));
        sentences.push(format!(
            "Delay: {} ms instead of {} ({}); energy: {} mJ instead of {} ({}).",
            number(delay_b),
            number(delay_a),
            change(delay_a, delay_b),
            number(energy_b),
            number(energy_a),
            change(energy_a, energy_b),
        ));
        let prices: &[Price] = match &self.price {
            Price::Milliwatts(_) => std::slice::from_ref(&self.price),
            _ => &Price::STANDARD,
        };
        let costs: Vec<String> = prices
            .iter()
            .map(|price| {
                let lambda_mw = price.lambda_mw(self.costs);
                let before_uj = self.costs.cost_uj(&self.diff.a, lambda_mw);
                let after_uj = self.costs.cost_uj(&self.diff.b, lambda_mw);
                format!("{} {}", short(*price), change(before_uj, after_uj))
            })
            .collect();
        sentences.push(format!(
            "Cost, which is energy + λ × delay: {}. At {}, {b} saves {} mJ in {} {} and loses \
             {} mJ in {}.",
            costs.join(", "),
            short(self.price),
            number(all.saved_uj / 1e3),
            all.saved_count,
            if all.saved_count == 1 { "gap" } else { "gaps" },
            number(all.lost_uj / 1e3),
            all.lost_count,
        ));
        sentences.extend(self.where_most());
        sentences
    }

    /// Which gaps contribute most to the difference.
    fn where_most(&self) -> Option<String> {
        let size_uj = |group: &GroupTally| group.saved_uj + group.lost_uj;
        let whole_uj = size_uj(&self.diff.all);
        let most = |dimension| {
            let groups = self.diff.groups(dimension).iter().enumerate();
            // If several are equal, the first is used, as in the table.
            let most = groups.rev().max_by(|(_, a), (_, b)| size_uj(a).total_cmp(&size_uj(b)));
            most.map(|(index, group)| (groups::label(self, dimension, index), size_uj(group)))
        };
        let (length, of_length_uj) = most(Dimension::GapLength)?;
        let (states, of_states_uj) = most(Dimension::States)?;
        (whole_uj > 0.0).then(|| {
            format!(
                "Of all that is saved or lost, {} is in gaps of {length}, and {} where the first \
                 states are {states}.",
                percent(of_length_uj / whole_uj),
                percent(of_states_uj / whole_uj),
            )
        })
    }
}

fn delay_ns(difference: &Difference<'_>, tally: &idlewise_sim::replay::Tally) -> f64 {
    tally.delay_sum_ns(difference.costs.exits()) as f64
}

/// A number with three digits, or with all digits before the point.
fn number(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 0.01 => format!("{number:.2}"),
        _ => "less than 0.01".to_owned(),
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

fn change(before: f64, after: f64) -> String {
    match before {
        0.0 if after == 0.0 => "no change".to_owned(),
        0.0 => "from none".to_owned(),
        _ => format!("{:+.1} %", (after / before - 1.0) * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TextStyle, WIDTH_DEFAULT};
    use idlewise_core::{Fixed, IdleState};
    use idlewise_sim::diff::{Pair, governor_side};
    use idlewise_sim::replay::Setting;
    use idlewise_trace::{IdleGap, WakeReason};

    fn states() -> StateTable {
        StateTable::new(&[IdleState::POLL, IdleState::new(290_000, 800_000)]).unwrap()
    }

    /// Three gaps, polled by A and slept through in C6 by B. A may do the same as B.
    fn difference<'a>(costs: &'a CostModel, names: &'a [String], a: Fixed) -> Difference<'a> {
        let setting = Setting::new(states(), 4_000_000);
        let gap = |start_ns: i64, gap_ns| IdleGap {
            cpu: 7,
            start_ns,
            gap_ns,
            sleep_length_ns: None,
            next_tick_ns: Some(4_000_000),
            tick_stopped: false,
            ran_task: true,
            wake_reason: WakeReason::Irq,
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        };
        let side = |fixed| governor_side(Box::new(fixed), setting, costs);
        let price = Price::Milliwatts(1_000.0);
        let mut pair = Pair::new(side(a), side(Fixed::Deepest), &setting, 1_000.0, 0);
        pair.replay(&[
            gap(1_000_000_000, 200_000),
            gap(2_000_000_000, 200_000),
            gap(3_000_000_000, 2_000_000),
        ]);
        Difference {
            log: "a".to_owned(),
            machine: "toy".to_owned(),
            state_names: names,
            states: states(),
            costs,
            power_basis: Basis::Assumed,
            governors: ["shallowest".to_owned(), "deepest".to_owned()],
            price,
            knows_tasks: true,
            diff: pair.into_diff(),
        }
    }

    #[test]
    fn says_what_is_saved_and_lost_and_where() {
        let costs = CostModel::new(states(), &[1_000.0, 100.0], 1_000.0);
        let names = ["POLL".to_owned(), "C6".to_owned()];
        let difference = difference(&costs, &names, Fixed::State(0));
        // By hand: C6 costs 720 µJ to enter and 290 µJ of delay; 870 µs less in it save 87 µJ. A polls for 1 W.
        assert_eq!(
            difference.sentences(),
            [
                "deepest instead of shallowest: p99 290 µs instead of none, mean delay 290 µs instead of none, same \
                 energy, or -3.6 % if longer exits leave less time idle (assumed power). But 3 gaps: too few to judge by.",
                "With deepest instead of shallowest, 3 of 3 gaps (100.0 %) start in another state.",
                "Delay: 0.87 ms instead of 0 (from none); energy: 2.40 mJ instead of 2.40 (+0.0 %).",
                "Cost, which is energy + λ × delay: λ=1000 mW +36.3 %. At λ=1000 mW, deepest saves \
                 0.79 mJ in 1 gap and loses 1.66 mJ in 2.",
                "Of all that is saved or lost, 67.8 % is in gaps of 100 us to 300 us, and 100.0 % \
                 where the first states are POLL → C6.",
            ]
        );
        let text = costly_table(&difference, Direction::Losses, &[])
            .to_text(&TextStyle::of_width(WIDTH_DEFAULT));
        assert!(text.contains("1.000000") && text.contains("POLL → C6"), "{text}");
        let (rows, before_ns) = costly_rows(&[difference]);
        assert_eq!(rows.row_count(), 3);
        assert_eq!(before_ns, [vec![], vec![200_000], vec![200_000, 200_000]]);
    }

    #[test]
    fn says_if_nothing_differs() {
        let costs = CostModel::new(states(), &[1_000.0, 100.0], 1_000.0);
        let names = ["POLL".to_owned(), "C6".to_owned()];
        let difference = difference(&costs, &names, Fixed::Deepest);
        assert_eq!(
            difference.sentences(),
            [
                "shallowest and deepest take the same course in all 3 gaps. But 3 gaps: too few to judge by."
            ]
        );
        assert_eq!(by_reason_table(&difference).row_count(), 0);
    }
}
