//! What all saved measurements have in common: who measured, when, on which machine, and the series
//! that `idlewise lab compare` reads.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use idlewise_host::{CpuTicks, Root, cpu_ticks, waiting_facts};
use idlewise_lab::program::today;
use idlewise_report::Notes;
use idlewise_report::saved::{Conditions, MachineFact, SavedSeries};
use serde_json::{Value, json};

/// This program, with its version.
pub const PROGRAM: &str = concat!("idlewise ", env!("CARGO_PKG_VERSION"));

/// The CPUs of a measurement.
#[derive(Clone, Copy)]
pub struct Pair {
    pub waker_cpu: u16,
    pub waiter_cpu: u16,
}

/// Facts about the machine that affect how long a wake-up takes.
pub fn machine_facts(root: &Root, pair: Pair) -> Vec<MachineFact> {
    let facts = waiting_facts(root, pair.waker_cpu, pair.waiter_cpu).into_iter();
    facts.map(|(fact, value)| MachineFact { fact: fact.to_owned(), value }).collect()
}

/// When this measurement began, and what the CPUs had done until then.
static BEGIN: OnceLock<(SystemTime, Option<CpuTicks>)> = OnceLock::new();

/// Begins a measurement that will be saved.
pub fn begin() {
    BEGIN.get_or_init(|| (SystemTime::now(), cpu_ticks(&Root::live())));
}

/// What else the machine has done since the measurement began.
pub fn conditions() -> Conditions {
    let Some((at, before)) = BEGIN.get() else { return Conditions::default() };
    let ticks = before.zip(cpu_ticks(&Root::live())).map(|(before, after)| {
        let [all, busy, stolen, own] = [
            after.all.saturating_sub(before.all).max(1),
            after.busy.saturating_sub(before.busy),
            after.stolen.saturating_sub(before.stolen),
            after.own.saturating_sub(before.own),
        ];
        // Four digits: a tick is 10 ms.
        let share = |ticks: u64| (ticks as f64 / all as f64 * 1e4).round() / 1e4;
        (share(busy.saturating_sub(own)), share(stolen))
    });
    Conditions {
        at_s: at.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()),
        others_ratio: ticks.map(|(others, _)| others),
        stolen_ratio: ticks.map(|(_, stolen)| stolen),
    }
}

/// Adds to a document what every saved measurement has.
pub fn saved(
    measurement: &str,
    machine: &[MachineFact],
    series: impl IntoIterator<Item = SavedSeries>,
    notes: &Notes,
    mut document: Value,
) -> Value {
    document["measurement"] = measurement.into();
    document["program"] = PROGRAM.into();
    document["date"] = today().into();
    document["conditions"] = json!(conditions());
    document["machine"] = json!(machine);
    document["series"] = json!(series.into_iter().collect::<Vec<_>>());
    document["bases"] = notes.bases_json();
    document["doubts"] = json!(notes.counted_doubts());
    document
}
