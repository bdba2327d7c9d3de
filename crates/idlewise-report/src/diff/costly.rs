//! The most expensive gaps: what each cost with A and with B, and what came before it.

use idlewise_sim::diff::{CostlyGap, TickPair};

use super::groups::tick_label;
use super::{A, B, COST_CHANGE, DELAY_B, Difference, ENERGY_B, LAMBDA};
use crate::columns::{LOG, MACHINE};
use crate::{Column, Table, Value};

/// Which of the most expensive gaps a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Those that cost more with B.
    Losses,
    /// Those that cost less with B.
    Gains,
}

impl Direction {
    /// Losses come first, because reviewers ask for them.
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

/// One of the most expensive gaps.
pub struct Costly<'a> {
    difference: &'a Difference<'a>,
    direction: Direction,
    index: usize,
    costly: &'a CostlyGap,
    log: &'a str,
}

impl Costly<'_> {
    fn states_words(&self) -> String {
        self.difference.states_words(self.costly.a.first.state, self.costly.b.first.state)
    }
}

fn start_ns(start_ns: i64) -> Value {
    match u64::try_from(start_ns) {
        Ok(start_ns) => start_ns.into(),
        Err(_) => (start_ns as f64).into(),
    }
}

/// Returns the columns of the most expensive gaps.
pub fn costly_columns<'a>() -> Vec<Column<Costly<'a>>> {
    type C<'a> = Column<Costly<'a>>;
    vec![
        C::new(LOG, |row| row.log.into()),
        C::new(MACHINE, |row| row.difference.machine.as_str().into()),
        C::new(A, |row| row.difference.governors[0].as_str().into()),
        C::new(B, |row| row.difference.governors[1].as_str().into()),
        C::new(LAMBDA, |row| row.difference.lambda_mw().into()),
        C::text("direction", "direction", |row| row.direction.word().into())
            .means("`loses` if the gap cost more with B, `saves` if it cost less.")
            .key(),
        C::count("rank", "#", |row| (row.index as u64 + 1).into())
            .means("The rank among the gaps of its direction, from 1.")
            .key(),
        C::count("cpu", "CPU", |row| u64::from(row.costly.gap.cpu).into()).means("The CPU."),
        C::ns("start_ns", "start", |row| start_ns(row.costly.gap.start_ns))
            .means("When the gap began, on the trace's clock."),
        C::ns("gap_ns", "gap", |row| row.costly.gap.gap_ns.into()).means("The gap's length."),
        C::ns("sleep_length_ns", "sleep length", |row| row.costly.gap.sleep_length_ns.into())
            .means("From its start to the next timer known at that moment."),
        C::ns("next_tick_ns", "next tick", |row| row.costly.gap.next_tick_ns.map(u64::from).into())
            .means("From its start to the next boundary of the tick grid."),
        C::text("tick", "tick", |row| {
            tick_label(TickPair::of(&row.costly.a, &row.costly.b)).into()
        })
        .means(
            "The tick before the first decisions: `runs`, `stopped`, `A stopped` (A's alone) or `B \
             stopped`.",
        ),
        C::text("ran_task", "ran task", |row| {
            row.difference.ran_task_word(row.costly.gap.ran_task).into()
        })
        .means(
            "Whether a task ran since the previous gap: `yes`, `no`, or `yes or unknown` if the \
             log does not say.",
        ),
        C::text("wake_reason", "wake reason", |row| row.costly.gap.wake_reason.name().into())
            .means("What ended the gap."),
        C::ns("latency_limit_ns", "latency limit", |row| row.costly.gap.latency_limit_ns.into())
            .means("The log's latency limit.")
            .detail(),
        C::text("state_a", "state A", |row| {
            row.difference.state_name(row.costly.a.first.state).into()
        })
        .means("A's first state."),
        C::text("state_b", "state B", |row| {
            row.difference.state_name(row.costly.b.first.state).into()
        })
        .means("B's first state."),
        C::count("stays_a_count", "stays A", |row| row.costly.a.stay_count.into())
            .means("A's stays in the gap."),
        C::count("stays_b_count", "stays B", |row| row.costly.b.stay_count.into())
            .means("B's stays in the gap."),
        C::ns("delay_a_ns", "delay A", |row| row.costly.a.expense.delay_ns.into())
            .means("The wake event's delay with A."),
        C::new(DELAY_B, |row| row.costly.b.expense.delay_ns.into()),
        C::uj("energy_a_uj", "energy A", |row| row.costly.a.expense.energy_uj.into())
            .means("Energy of the gap with A."),
        C::new(ENERGY_B, |row| row.costly.b.expense.energy_uj.into()),
        C::new(COST_CHANGE, |row| row.costly.change_uj.into()),
    ]
}

/// Additional columns of the text tables.
fn text_columns<'a>() -> Vec<Column<Costly<'a>>> {
    type C<'a> = Column<Costly<'a>>;
    vec![
        C::text("start", "start s", |row| seconds(row.costly.gap.start_ns).into())
            .means("The same in seconds, as `perf script` prints it."),
        C::text("states", "A → B", |row| row.states_words().into()).means("First states.").key(),
        C::text("before", "gaps before it, newest first, us", |row| {
            before_words(&row.costly.before_ns).into()
        })
        .means("Lengths of the up to eight gaps before it on this CPU."),
    ]
}

/// The columns of the first text table: the costs of the gaps.
const COSTS_SHOWN: [&str; 11] = [
    "rank",
    "log",
    "cpu",
    "start",
    "gap_ns",
    "states",
    "delay_a_ns",
    "delay_b_ns",
    "energy_a_uj",
    "energy_b_uj",
    "cost_change_uj",
];

/// The columns of the second text table: what led to them.
const CAUSES_SHOWN: [&str; 10] = [
    "rank",
    "sleep_length_ns",
    "next_tick_ns",
    "tick",
    "ran_task",
    "wake_reason",
    "latency_limit_ns",
    "stays_a_count",
    "stays_b_count",
    "before",
];

/// Returns every kept gap for JSON, and for each the lengths of the preceding gaps, oldest first.
pub fn costly_rows(differences: &[Difference<'_>]) -> (Table, Vec<Vec<u64>>) {
    let gaps = || {
        differences.iter().flat_map(|difference| {
            let gaps = |direction| gaps(difference, direction, |_| &difference.log);
            Direction::ALL.into_iter().flat_map(gaps)
        })
    };
    let before = gaps().map(|row| row.costly.before_ns.clone()).collect();
    (Table::new("", &costly_columns(), gaps()), before)
}

/// Returns the costs of the most expensive gaps. `log_names` are the names of the logs by index.
pub fn costly_table(
    difference: &Difference<'_>,
    direction: Direction,
    log_names: &[&str],
) -> Table {
    let title = format!("The gaps in which {} {} most:", difference.governors[1], direction.word());
    // If there is only one log, its name is in the title.
    let mut shown = COSTS_SHOWN.to_vec();
    shown.retain(|id| *id != LOG.id || log_names.len() > 1);
    let log = |index| log_names.get(index).copied().unwrap_or_default();
    table(title, gaps(difference, direction, log), &shown)
}

/// Returns what led to the most expensive gaps.
pub fn before_table(difference: &Difference<'_>, direction: Direction) -> Table {
    table("What led to them:".to_owned(), gaps(difference, direction, |_| ""), &CAUSES_SHOWN)
}

fn table<'a>(title: String, gaps: impl Iterator<Item = Costly<'a>>, shown: &[&str]) -> Table {
    let columns: Vec<_> = costly_columns().into_iter().chain(text_columns()).collect();
    // A is read beside B.
    let pairs = ["delay_a_ns", "delay_b_ns", "energy_a_uj", "energy_b_uj"];
    Table::new(title, &columns, gaps).select(shown).one_unit(&pairs)
}

fn gaps<'a>(
    difference: &'a Difference<'_>,
    direction: Direction,
    log: impl Fn(usize) -> &'a str,
) -> impl Iterator<Item = Costly<'a>> {
    direction.gaps(difference).iter().enumerate().map(move |(index, costly)| Costly {
        difference,
        direction,
        index,
        costly,
        log: log(costly.log_index),
    })
}

/// Seconds with microseconds after the point, as `perf script` prints times.
fn seconds(start_ns: i64) -> String {
    let sign = if start_ns < 0 { "-" } else { "" };
    let us = start_ns.unsigned_abs() / 1_000;
    format!("{sign}{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// In microseconds, the newest first, so that a narrow table cuts off the oldest.
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
