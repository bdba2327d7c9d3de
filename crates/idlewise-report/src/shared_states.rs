//! What became of the states that CPUs share, in a replay.

use idlewise_sim::SharedStates;
use idlewise_sim::replay::SharedStateTally;

use crate::columns::{GOVERNOR, LOG, MACHINE, STATE};
use crate::replay::Outcome;
use crate::{Column, Table, Value};

/// A shared state under a governor.
pub struct SharedState<'a> {
    outcome: &'a Outcome<'a>,
    shared: &'a SharedStates,
    index: usize,
}

impl SharedState<'_> {
    fn tally(&self) -> &SharedStateTally {
        &self.outcome.tally.shared[self.index]
    }

    fn group_ns(&self) -> u64 {
        self.outcome.tally.group_ns[self.shared.scope(self.index) as usize]
    }
}

/// Returns the columns.
pub fn columns<'a>() -> Vec<Column<SharedState<'a>>> {
    type C<'a> = Column<SharedState<'a>>;
    vec![
        C::new(LOG, |row| row.outcome.log.as_str().into()),
        C::new(MACHINE, |row| row.outcome.machine.as_str().into()),
        C::new(GOVERNOR, |row| row.outcome.governor.as_str().into()),
        C::new(STATE, |row| row.shared.names()[row.index].as_str().into()),
        C::text("scope", "shared by a", |row| row.shared.scope(row.index).as_str().into())
            .means("Which CPUs share it: those of a core, module, cluster or package."),
        C::count("entry_count", "entries", |row| row.tally().entry_count.into())
            .means("How often a group of CPUs entered it."),
        C::ratio("residency_ratio", "time in it", |row| ratio(row.tally().stay_ns, row.group_ns()))
            .means("Share of the log's time in the state, mean over the groups."),
        C::ratio("too_deep_ratio", "too deep", |row| {
            ratio(row.tally().too_deep_count, row.tally().entry_count)
        })
        .means("Share of its stays that were shorter than its target residency.")
        .lower_is_better(),
        C::count("wake_count", "wakes delayed", |row| row.tally().wake_count.into())
            .means(
                "Wake events that waited for the state to be left: the first, and any that came \
                 meanwhile.",
            )
            .lower_is_better(),
        C::ns("shared_delay_sum_ns", "delay added", |row| row.tally().delay_ns.into())
            .means("How long they waited beyond their CPUs' own exit latencies.")
            .lower_is_better(),
        C::uj("saved_uj", "saved", |row| {
            row.outcome.costs.shared_saving_uj(&row.outcome.tally, row.index).into()
        })
        .means(
            "Energy that the shared hardware saved, less that of its transitions; absent if its \
             power is unknown.",
        )
        .higher_is_better(),
    ]
}

fn ratio(part: u64, whole: u64) -> Value {
    (whole > 0).then(|| part as f64 / whole as f64).into()
}

/// Returns one row for each outcome and shared state. `shared_of` returns the shared states of a machine, empty if
/// its CPUs were replayed alone.
pub fn shared_table<'a>(
    title: &str,
    outcomes: &'a [Outcome<'a>],
    shared_of: impl Fn(&Outcome<'_>) -> &'a SharedStates,
    leave_out: &[&str],
) -> Table {
    let mut columns = columns();
    columns.retain(|column| !leave_out.contains(&column.heading.id));
    let rows = outcomes.iter().flat_map(|outcome| {
        let shared = shared_of(outcome);
        let is_joined = outcome.tally.group_ns.iter().any(|group_ns| *group_ns > 0);
        let count = if is_joined { shared.names().len() } else { 0 };
        (0..count).map(move |index| SharedState { outcome, shared, index })
    });
    Table::new(title, &columns, rows)
}
