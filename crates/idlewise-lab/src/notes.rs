//! What every result says of itself: where decisions, powers and ticks come from, and what is doubtful about them.

use idlewise_report::replay::machine_words;
use idlewise_report::verdict::FEW_GAP_COUNT;
use idlewise_report::{Notes, counted};
use idlewise_sim::{Basis, Machine};
use idlewise_trace::log::LogMetadata;

use crate::roster::{Choice, provenance};
use crate::target::{Conditions, HZ_DEFAULT};

/// Says which kernels' governors were replayed, and which files.
pub fn add_governors(notes: &mut Notes, basis: Basis, choices: &[Choice]) {
    for phrase in provenance(choices) {
        notes.basis(basis, phrase);
    }
}

/// Says on what a machine's powers rest, what depends on them, and what is doubtful about the machine.
pub fn add_machine(notes: &mut Notes, machine: &Machine, so: &'static str) {
    let id = &machine.id;
    notes.powers(machine.power_basis(), &machine_words(id), so);
    notes.machine_doubts(id, &machine.doubts());
}

/// Says what is doubtful about a log, and whether its HZ was assumed.
pub fn add_log(notes: &mut Notes, name: &str, log: &LogMetadata, conditions: Conditions) {
    if conditions.hz.is_none() && log.hz.is_none() {
        notes.doubt(format!("HZ of {name} is unknown, {HZ_DEFAULT} was assumed; pass --hz"));
    }
    add_gap_count(notes, name, log);
    notes.doubts_of(&log.doubts);
}

/// Says that a log has few gaps.
pub fn add_gap_count(notes: &mut Notes, name: &str, log: &LogMetadata) {
    match log.cpus.iter().map(|cpu| cpu.gap_count).sum() {
        0 => notes.doubt(format!("no gaps in {name}; it says nothing about governors")),
        count @ ..FEW_GAP_COUNT => notes.doubt(format!(
            "only {} in {name}; that is too few to judge governors by, so record for longer",
            counted(count, "gap")
        )),
        FEW_GAP_COUNT.. => {}
    }
}
