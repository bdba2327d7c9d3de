//! The dearest gaps: what each cost with A and with B, and what led to it.

use idlewise_sim::diff::{CostlyGap, TickPair};

use super::Difference;
use super::columns::{BEFORE_SHOWN, COSTLY, COSTLY_SHOWN};
use super::groups::tick_label;
use crate::columns::Column;
use crate::{Row, Table, Value};

/// Which gaps a table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Those that cost more with B.
    Losses,
    /// Those that cost less with B.
    Gains,
}

impl Direction {
    /// Losses first: they are what a reviewer asks for.
    pub const ALL: [Direction; 2] = [Self::Losses, Self::Gains];

    fn word(self) -> &'static str {
        match self {
            Self::Losses => "loses",
            Self::Gains => "saves",
        }
    }

    fn gaps<'d>(self, difference: &'d Difference<'_>) -> &'d [CostlyGap] {
        match self {
            Self::Losses => &difference.diff.losses,
            Self::Gains => &difference.diff.gains,
        }
    }
}

/// Every gap that is kept, for JSON. With each goes the length of the gaps before it, oldest first.
pub fn costly_rows(differences: &[Difference<'_>]) -> (Table, Vec<Vec<u64>>) {
    let mut table = Table::new("", &COSTLY);
    let mut before = Vec::new();
    for difference in differences {
        for direction in Direction::ALL {
            for (index, gap) in direction.gaps(difference).iter().enumerate() {
                table.push(row(difference, &COSTLY, direction, index, gap, &difference.log));
                before.push(gap.before_ns.clone());
            }
        }
    }
    (table, before)
}

/// What the dearest gaps cost; `log_names` are those of the logs, by their index.
pub fn costly_table(
    difference: &Difference<'_>,
    direction: Direction,
    log_names: &[&str],
) -> Table {
    let title =
        format!("The gaps in which {} {} most:", difference.governors[1], direction.word(),);
    shown(difference, direction, log_names, title, &COSTLY_SHOWN)
}

/// What led to the dearest gaps.
pub fn before_table(difference: &Difference<'_>, direction: Direction) -> Table {
    shown(difference, direction, &[], "What led to them:".to_owned(), &BEFORE_SHOWN)
}

fn shown(
    difference: &Difference<'_>,
    direction: Direction,
    log_names: &[&str],
    title: String,
    columns: &[&'static Column],
) -> Table {
    // The title of a single log says its name.
    let is_shown = |column: &&&'static Column| column.id != "log" || log_names.len() > 1;
    let columns: Vec<&'static Column> = columns.iter().filter(is_shown).copied().collect();
    let mut table = Table::new(title, &columns);
    for (index, gap) in direction.gaps(difference).iter().enumerate() {
        let log = log_names.get(gap.log_index).copied().unwrap_or_default();
        table.push(row(difference, &columns, direction, index, gap, log));
    }
    table
}

fn row(
    difference: &Difference<'_>,
    columns: &[&Column],
    direction: Direction,
    index: usize,
    costly: &CostlyGap,
    log: &str,
) -> Row {
    let CostlyGap { gap, a, b, .. } = costly;
    let value = |column: &&Column| -> Value {
        match column.id {
            "log" => log.into(),
            "machine" => difference.machine.as_str().into(),
            "a" => difference.governors[0].as_str().into(),
            "b" => difference.governors[1].as_str().into(),
            "lambda_mw" => difference.lambda_mw().into(),
            "direction" => direction.word().into(),
            "rank" => (index as u64 + 1).into(),
            "cpu" => u64::from(gap.cpu).into(),
            "start_ns" => match u64::try_from(gap.start_ns) {
                Ok(start_ns) => start_ns.into(),
                Err(_) => (gap.start_ns as f64).into(),
            },
            "start" => seconds(gap.start_ns).into(),
            "gap_ns" => gap.gap_ns.into(),
            "sleep_length_ns" => gap.sleep_length_ns.into(),
            "next_tick_ns" => gap.next_tick_ns.map(u64::from).into(),
            "tick" => tick_label(TickPair::of(a, b)).into(),
            "ran_task" => difference.ran_task_word(gap.ran_task).into(),
            "wake_reason" => gap.wake_reason.name().into(),
            "latency_limit_ns" => gap.latency_limit_ns.into(),
            "states" => difference.states_words(a.first.state, b.first.state).into(),
            "state_a" => difference.state_name(a.first.state).into(),
            "state_b" => difference.state_name(b.first.state).into(),
            "stays_a_count" => a.stay_count.into(),
            "stays_b_count" => b.stay_count.into(),
            "delay_a_ns" => a.expense.delay_ns.into(),
            "delay_b_ns" => b.expense.delay_ns.into(),
            "energy_a_uj" => a.expense.energy_uj.into(),
            "energy_b_uj" => b.expense.energy_uj.into(),
            "cost_change_uj" => costly.change_uj.into(),
            "before" => before_words(&costly.before_ns).into(),
            _ => Value::Absent,
        }
    };
    Row::unranked(columns.iter().map(value).collect::<Vec<_>>())
}

/// Whole microseconds after the point, as `perf script` prints times.
fn seconds(start_ns: i64) -> String {
    let sign = if start_ns < 0 { "-" } else { "" };
    let us = start_ns.unsigned_abs() / 1_000;
    format!("{sign}{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// In microseconds, the newest first, so that it is the oldest that a narrow table cuts off.
fn before_words(before_ns: &[u64]) -> String {
    let words = before_ns.iter().rev().map(|&before_ns| {
        let us = before_ns as f64 / 1e3;
        let decimals = usize::from(us < 9.95);
        format!("{us:.decimals$}")
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_exact_enough() {
        assert_eq!(seconds(17_432_123_456_789), "17432.123456");
        assert_eq!(seconds(-1_500), "-0.000001");
        assert_eq!(
            before_words(&[70, 9_940, 9_960, 512_345, 3_000_000_000]),
            "3000000 512 10 9.9 0.1"
        );
        assert_eq!(before_words(&[]), "");
    }
}
