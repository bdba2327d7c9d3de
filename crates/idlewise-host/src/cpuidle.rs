//! The idle states of a CPU as sysfs shows them (`/sys/devices/system/cpu/cpuN/cpuidle`).
//!
//! sysfs has times in whole microseconds and no flags. Whether a state polls, and what MWAIT is
//! called with, is in the driver's description of the state.

use std::path::PathBuf;

use idlewise_machine::{Flag, MachineState};

use crate::Root;

/// No driver has more states: `CPUIDLE_STATE_MAX` is 10.
const STATE_COUNT_MAX: usize = 10;

/// The states of a CPU in the driver's order, shallowest first. Empty without a driver.
pub(crate) fn states(root: &Root, cpu: u16) -> Vec<MachineState> {
    (0..STATE_COUNT_MAX).map_while(|index| state(root, cpu, index)).collect()
}

/// The file because of which a CPU's states end before the driver's do; `None` if they do not.
pub(crate) fn unreadable(root: &Root, cpu: u16, state_count: usize) -> Option<PathBuf> {
    let folder = state_folder(cpu, state_count);
    let is_there = state_count < STATE_COUNT_MAX && !root.names(&folder).is_empty();
    let file = if root.text(&format!("{folder}/name")).is_some() { "latency" } else { "name" };
    is_there.then(|| root.path(&format!("{folder}/{file}")))
}

/// The folder of a state in sysfs.
pub(crate) fn state_folder(cpu: u16, index: usize) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}")
}

/// A state's name as machine files and recordings have it: without spaces and punctuation like these.
pub(crate) fn in_one_word(name: &str) -> String {
    name.replace([' ', ',', '/'], "-")
}

fn state(root: &Root, cpu: u16, index: usize) -> Option<MachineState> {
    let folder = state_folder(cpu, index);
    let text = |name: &str| root.text(&format!("{folder}/{name}"));
    let number = |name: &str| root.number(&format!("{folder}/{name}"));
    let time_ns = |name: &str| Some(number(name)?.saturating_mul(1_000));
    let shown = text("name")?;
    let exit_latency_ns = time_ns("latency")?;
    let target_residency_ns = time_ns("residency");
    let name = in_one_word(&shown);
    let mut state =
        MachineState::new(&name, exit_latency_ns, target_residency_ns.unwrap_or(exit_latency_ns));
    if target_residency_ns.is_none() {
        // Old kernels do not show it.
        state.inferred.push("target_residency_us".to_owned());
    }
    // x86 and Arm call their polling state POLL, POWER calls it snooze.
    if index == 0 && ["POLL", "snooze"].contains(&shown.as_str()) {
        state.flags.push(Flag::Polling);
    }
    state.desc = text("desc").filter(|desc| *desc != shown);
    let word_after = |words: &str| {
        let rest = state.desc.as_deref()?.split_once(words)?.1;
        rest.split_whitespace().next().map(str::to_owned)
    };
    (state.mwait_hint, state.io_port) = (word_after("MWAIT "), word_after("IOPORT "));
    state.is_disabled_by_default = number("disable").is_some_and(|disabled| disabled != 0);
    Some(state)
}
