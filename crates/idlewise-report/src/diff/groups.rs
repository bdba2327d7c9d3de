//! Groups of gaps: by length, by what was known and what happened, and by log.

use idlewise_core::StateTable;
use idlewise_sim::diff::{Dimension, GAP_BOUNDS_NS, GroupTally, SleepClass, TickPair};
use idlewise_trace::WakeReason;

use super::{A, B, COST_CHANGE, DELAY_B, Difference, ENERGY_B, LAMBDA};
use crate::columns::{LOG, MACHINE};
use crate::{Column, Table, Value};

/// A group of gaps.
pub struct DiffGroup<'a> {
    difference: &'a Difference<'a>,
    by: &'static str,
    group: String,
    tally: &'a GroupTally,
}

fn share(part: u64, whole: u64) -> Value {
    (whole > 0).then(|| part as f64 / whole as f64).into()
}

/// Returns the columns of groups of gaps.
pub fn group_columns<'a>() -> Vec<Column<DiffGroup<'a>>> {
    type C<'a> = Column<DiffGroup<'a>>;
    vec![
        C::new(LOG, |row| row.difference.log.as_str().into()),
        C::new(MACHINE, |row| row.difference.machine.as_str().into()),
        C::new(A, |row| row.difference.governors[0].as_str().into()),
        C::new(B, |row| row.difference.governors[1].as_str().into()),
        C::new(LAMBDA, |row| row.difference.lambda_mw().into()),
        C::text("by", "by", |row| row.by.into())
            .means(
                "The grouping: `all`, `gap length`, `first states` (A's → B's), `next timer`, \
                 `wake reason`, `tick` (stopped for whom before the first decision) or `ran task`.",
            )
            .key(),
        C::text("group", "group", |row| row.group.as_str().into())
            .means("The group; a range includes its first value.")
            .key(),
        C::count("gap_count", "gaps", |row| row.tally.gap_count.into()).means("Idle gaps."),
        C::count("differing_count", "differ", |row| row.tally.differing_count.into())
            .means("Gaps in which first state, number of stays, delay or energy differ."),
        C::ratio("differing_ratio", "share", |row| {
            share(row.tally.differing_count, row.tally.gap_count)
        })
        .means("The same as a share of these gaps."),
        C::ratio("differing_share_ratio", "of all that differ", |row| {
            share(row.tally.differing_count, row.difference.diff.all.differing_count)
        })
        .means("The same as a share of all gaps that differ."),
        C::count("first_state_count", "other first state", |row| {
            row.tally.first_state_count.into()
        })
        .means("Gaps whose first state differs."),
        C::ns("delay_a_ns", "delay A", |row| row.tally.a.delay_ns.into())
            .means("Delay of wake events with A, in the gaps that differ."),
        C::new(DELAY_B, |row| row.tally.b.delay_ns.into()),
        C::ns("delay_change_ns", "delay B−A", |row| (row.tally.delay_change_ns() as f64).into())
            .means("B less A."),
        C::uj("energy_a_uj", "energy A", |row| row.tally.a.energy_uj.into())
            .means("Energy with A, in the gaps that differ."),
        C::new(ENERGY_B, |row| row.tally.b.energy_uj.into()),
        C::uj("energy_change_uj", "energy B−A", |row| row.tally.energy_change_uj().into())
            .means("B less A."),
        C::new(COST_CHANGE, |row| row.difference.cost_change_uj(row.tally).into()),
        C::count("saved_count", "gaps saved in", |row| row.tally.saved_count.into())
            .means("Gaps that cost less with B."),
        C::uj("saved_uj", "B saves", |row| row.tally.saved_uj.into())
            .means("How much less they cost, in all."),
        C::count("lost_count", "gaps lost in", |row| row.tally.lost_count.into())
            .means("Gaps that cost more with B."),
        C::uj("lost_uj", "B loses", |row| row.tally.lost_uj.into())
            .means("How much more they cost, in all."),
    ]
}

/// The columns in text. The title says the rest.
const SHOWN: [&str; 9] = [
    "group",
    "gap_count",
    "differing_count",
    "differing_ratio",
    "delay_change_ns",
    "energy_change_uj",
    "cost_change_uj",
    "saved_uj",
    "lost_uj",
];

/// Those of them that a reader adds up.
const ENERGIES: [&str; 4] = ["energy_change_uj", "cost_change_uj", "saved_uj", "lost_uj"];

/// Returns every group of every difference, for CSV and JSON.
pub fn group_rows(differences: &[Difference<'_>]) -> Table {
    let groups = differences.iter().flat_map(|difference| {
        let parts = Dimension::ALL.into_iter().flat_map(|one| found(difference, one));
        std::iter::once(all(difference, "all")).chain(parts)
    });
    Table::new("", &group_columns(), groups)
}

/// Returns the groups by gap length that have gaps.
pub fn by_length_table(difference: &Difference<'_>) -> Table {
    shown("By gap length:", found(difference, Dimension::GapLength))
}

/// Returns gaps by decision, by what was known and by what happened; only groups with a difference.
pub fn by_reason_table(difference: &Difference<'_>) -> Table {
    let title = "By first states, next timer, wake reason, tick and task (each gap counts once under each):";
    let dimensions = Dimension::ALL.into_iter().filter(|one| *one != Dimension::GapLength);
    let groups = dimensions.flat_map(|dimension| {
        let mut groups: Vec<_> = found(difference, dimension).collect();
        groups.retain(|group| group.tally.differing_count > 0);
        if dimension != Dimension::States {
            groups.iter_mut().for_each(|one| one.group = format!("{}: {}", one.by, one.group));
        }
        groups
    });
    shown(title, groups)
}

/// Returns a line for each log.
pub fn by_log_table(differences: &[&Difference<'_>]) -> Table {
    shown("By log:", differences.iter().map(|difference| all(difference, &difference.log)))
}

fn shown<'a>(title: &str, groups: impl Iterator<Item = DiffGroup<'a>>) -> Table {
    Table::new(title, &group_columns(), groups).select(&SHOWN).one_unit(&ENERGIES)
}

fn all<'a>(difference: &'a Difference<'_>, group: &str) -> DiffGroup<'a> {
    DiffGroup { difference, by: "all", group: group.to_owned(), tally: &difference.diff.all }
}

/// Groups that have gaps.
fn found<'a>(
    difference: &'a Difference<'_>,
    dimension: Dimension,
) -> impl Iterator<Item = DiffGroup<'a>> {
    let groups = difference.diff.groups(dimension).iter().enumerate();
    groups.filter(|(_, tally)| tally.gap_count > 0).map(move |(index, tally)| DiffGroup {
        difference,
        by: by(dimension),
        group: label(difference, dimension, index),
        tally,
    })
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
            SleepClass::OneTick => "≤ 1 tick, not due",
            SleepClass::TwoTicks => "1 to 2 ticks, not due",
            SleepClass::Farther => "> 2 ticks, not due",
        }
        .to_owned(),
        Dimension::WakeReason => WakeReason::ALL[index].name().to_owned(),
        Dimension::Tick => tick_label(TickPair::ALL[index]).to_owned(),
        Dimension::RanTask => difference.ran_task_word(index == 1).to_owned(),
    }
}

/// Describes the tick before the first decisions.
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
