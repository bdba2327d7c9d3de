//! What a replay shows about states that CPUs share.

use idlewise_report::replay::Outcome;
use idlewise_report::shared_states::shared_table;
use idlewise_report::{Notes, Table};
use idlewise_sim::contest::Price;
use idlewise_sim::{Basis, SharedStates};
use serde_json::json;

use crate::replay_arguments::ReplayTarget;

/// One row for each outcome and shared state.
pub fn table<'a>(
    title: &str,
    outcomes: &'a [Outcome<'a>],
    targets: &'a [ReplayTarget],
    leave_out: &[&str],
) -> Table {
    const NONE: &SharedStates = &SharedStates::NONE;
    let shared_of = |outcome: &Outcome<'_>| {
        let target = targets.iter().find(|target| target.machine.id == outcome.machine);
        target.map_or(NONE, |target| &target.shared)
    };
    shared_table(title, outcomes, shared_of, leave_out)
}

/// For JSON, what no governor undercuts where CPUs share states, for each log, machine and price: each CPU's least cost, and
/// the least of what they share.
pub fn bounds(outcomes: &[Outcome<'_>], prices: &[Price]) -> Vec<serde_json::Value> {
    let by_machine = outcomes.chunk_by(|a, b| a.log == b.log && a.machine == b.machine);
    let firsts = by_machine.map(|outcomes| &outcomes[0]).filter(|outcome| is_joined(outcome));
    let rows = firsts.flat_map(|outcome| {
        prices.iter().zip(&outcome.oracle_costs_uj).map(|(price, bound_uj)| {
            json!({
                "log": outcome.log,
                "machine": outcome.machine,
                "lambda_mw": price.lambda_mw(outcome.costs),
                "bound_uj": bound_uj,
            })
        })
    });
    rows.collect()
}

/// Whether CPUs were replayed together.
fn is_joined(outcome: &Outcome<'_>) -> bool {
    outcome.tally.group_ns.iter().any(|group_ns| *group_ns > 0)
}

/// Says by which rule shared states were replayed, on which machines, and why not on others.
pub fn add_notes(
    notes: &mut Notes,
    targets: &[ReplayTarget],
    outcomes: &[Outcome<'_>],
    left_out: &[String],
) {
    for reason in left_out {
        notes.doubt(reason);
    }
    for target in targets.iter().filter(|target| !target.shared.is_empty()) {
        let id = &target.machine.id;
        if !outcomes.iter().any(|outcome| outcome.machine == *id && is_joined(outcome)) {
            continue;
        }
        notes.basis(
            Basis::Simulated,
            format!(
                "{} of {id}: entered with the last CPU of a group, left with the first, whose wake-up waits for it",
                target.shared.names().join(", ")
            ),
        );
        notes.basis(
            Basis::Simulated,
            format!(
                "the oracle on {id} knows each CPU's gaps, and nothing of other CPUs; regret is against a bound that \
                 no governor can reach: each CPU's least cost, and the least of what they share"
            ),
        );
        notes.machine_doubts(id, &target.machine.shared_doubts());
    }
}
