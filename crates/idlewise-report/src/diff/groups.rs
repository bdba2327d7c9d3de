//! Gaps in groups: by length, by what was known and what came, by log.

use idlewise_core::StateTable;
use idlewise_sim::diff::{Dimension, GAP_BOUNDS_NS, GroupTally, SleepClass, TickPair};
use idlewise_trace::WakeReason;

use super::Difference;
use super::columns::{GROUPS, GROUPS_SHOWN};
use crate::columns::Column;
use crate::{Row, Table, Value};

/// Every group of every difference, for CSV and JSON.
pub fn group_rows(differences: &[Difference<'_>]) -> Table {
    let mut table = Table::new("", &GROUPS);
    for difference in differences {
        let mut push = |by, group: String, tally: &GroupTally| {
            table.push(row(difference, &GROUPS, by, &group, tally));
        };
        push("all", "all".to_owned(), &difference.diff.all);
        for dimension in Dimension::ALL {
            for (index, tally) in found(difference, dimension) {
                push(by(dimension), label(difference, dimension, index), tally);
            }
        }
    }
    table
}

/// Gaps by their length, all lengths that there are.
pub fn by_length_table(difference: &Difference<'_>) -> Table {
    let mut table = Table::new("By gap length:", &GROUPS_SHOWN);
    for (index, tally) in found(difference, Dimension::GapLength) {
        let group = label(difference, Dimension::GapLength, index);
        table.push(row(difference, &GROUPS_SHOWN, "", &group, tally));
    }
    table
}

/// Gaps by what was decided, what was known and what came; only groups in which some differ.
pub fn by_reason_table(difference: &Difference<'_>) -> Table {
    let title = "By the first states, and by what was known and what came (a gap is in one row of \
                 each kind):";
    let mut table = Table::new(title, &GROUPS_SHOWN);
    for dimension in Dimension::ALL.into_iter().filter(|d| *d != Dimension::GapLength) {
        for (index, tally) in found(difference, dimension) {
            if tally.differing_count > 0 {
                let label = label(difference, dimension, index);
                let group = match dimension {
                    Dimension::States => label,
                    _ => format!("{}: {label}", by(dimension)),
                };
                table.push(row(difference, &GROUPS_SHOWN, "", &group, tally));
            }
        }
    }
    table
}

/// A line for each log.
pub fn by_log_table(differences: &[&Difference<'_>]) -> Table {
    let mut table = Table::new("By log:", &GROUPS_SHOWN);
    for difference in differences {
        let all = &difference.diff.all;
        table.push(row(difference, &GROUPS_SHOWN, "", &difference.log, all));
    }
    table
}

/// Groups that have gaps.
fn found<'d>(
    difference: &'d Difference<'_>,
    dimension: Dimension,
) -> impl Iterator<Item = (usize, &'d GroupTally)> {
    let groups = difference.diff.groups(dimension).iter().enumerate();
    groups.filter(|(_, tally)| tally.gap_count > 0)
}

fn by(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::GapLength => "gap length",
        Dimension::States => "first states",
        Dimension::SleepLength => "next timer",
        Dimension::WakeReason => "wake reason",
        Dimension::Tick => "tick",
        Dimension::RanTask => "ran task",
    }
}

pub(super) fn label(difference: &Difference<'_>, dimension: Dimension, index: usize) -> String {
    let states: &StateTable = &difference.states;
    match dimension {
        Dimension::GapLength => length_label(index),
        Dimension::States => {
            let (a, b) = Dimension::states_of(index, states);
            difference.states_words(a, b)
        }
        Dimension::SleepLength => match SleepClass::ALL[index] {
            SleepClass::Unknown => "unknown",
            SleepClass::EndedGap => "ended the gap",
            SleepClass::Cancelled => "cancelled",
            SleepClass::OneTick => "≤ 1 tick, not met",
            SleepClass::TwoTicks => "1 to 2 ticks, not met",
            SleepClass::Farther => "> 2 ticks, not met",
        }
        .to_owned(),
        Dimension::WakeReason => WakeReason::ALL[index].name().to_owned(),
        Dimension::Tick => tick_label(TickPair::ALL[index]).to_owned(),
        Dimension::RanTask => difference.ran_task_word(index == 1).to_owned(),
    }
}

/// The tick before the first decisions.
pub(super) fn tick_label(pair: TickPair) -> &'static str {
    match pair {
        TickPair::BothRun => "runs",
        TickPair::OnlyAStopped => "A stopped",
        TickPair::OnlyBStopped => "B stopped",
        TickPair::BothStopped => "stopped",
    }
}

fn length_label(index: usize) -> String {
    let bound = |i: usize| {
        let bound_ns = GAP_BOUNDS_NS[i];
        match bound_ns {
            0..1_000_000 => format!("{} us", bound_ns / 1_000),
            1_000_000..1_000_000_000 => format!("{} ms", bound_ns / 1_000_000),
            _ => format!("{} s", bound_ns / 1_000_000_000),
        }
    };
    match index {
        0 => format!("below {}", bound(0)),
        _ if index == GAP_BOUNDS_NS.len() => format!("from {}", bound(index - 1)),
        _ => format!("{} to {}", bound(index - 1), bound(index)),
    }
}

fn row(
    difference: &Difference<'_>,
    columns: &[&Column],
    by: &str,
    group: &str,
    tally: &GroupTally,
) -> Row {
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let lambda_mw = difference.lambda_mw();
    let value = |column: &&Column| -> Value {
        match column.id {
            "log" => difference.log.as_str().into(),
            "machine" => difference.machine.as_str().into(),
            "a" => difference.governors[0].as_str().into(),
            "b" => difference.governors[1].as_str().into(),
            "lambda_mw" => lambda_mw.into(),
            "by" => by.into(),
            "group" => group.into(),
            "gap_count" => tally.gap_count.into(),
            "differing_count" => tally.differing_count.into(),
            "differing_ratio" => share(tally.differing_count, tally.gap_count).into(),
            "differing_share_ratio" => {
                share(tally.differing_count, difference.diff.all.differing_count).into()
            }
            "first_state_count" => tally.first_state_count.into(),
            "delay_a_ns" => tally.a.delay_ns.into(),
            "delay_b_ns" => tally.b.delay_ns.into(),
            "delay_change_ns" => (tally.delay_change_ns() as f64).into(),
            "energy_a_uj" => tally.a.energy_uj.into(),
            "energy_b_uj" => tally.b.energy_uj.into(),
            "energy_change_uj" => tally.energy_change_uj().into(),
            "cost_change_uj" => difference.cost_change_uj(tally, lambda_mw).into(),
            "saved_count" => tally.saved_count.into(),
            "saved_uj" => tally.saved_uj.into(),
            "lost_count" => tally.lost_count.into(),
            "lost_uj" => tally.lost_uj.into(),
            _ => Value::Absent,
        }
    };
    Row::unranked(columns.iter().map(value).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_in_words() {
        let labels: Vec<String> = (0..=GAP_BOUNDS_NS.len()).map(length_label).collect();
        assert_eq!(labels[0], "below 1 us");
        assert_eq!(labels[5], "100 us to 300 us");
        assert_eq!(labels[6], "300 us to 1 ms");
        assert_eq!(labels[13], "1 s to 3 s");
        assert_eq!(labels[15], "from 10 s");
    }
}
