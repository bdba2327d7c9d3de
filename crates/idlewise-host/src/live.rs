//! Counts of idle entries from sysfs, for a live summary. It costs a few small reads a second.

use std::fs::File;

use crate::Root;
use crate::cpuidle::state_folder;
use crate::root::small_number;

/// The counters of all CPUs, by state.
pub struct IdleCounters {
    states: Vec<StateCounters>,
}

struct StateCounters {
    name: String,
    usages: Vec<File>,
}

impl IdleCounters {
    /// Opens the counters of these CPUs. There are none without an idle driver.
    pub fn open(root: &Root, cpus: &[u16]) -> Self {
        let mut states: Vec<StateCounters> = Vec::new();
        for &cpu in cpus {
            for index in 0.. {
                let folder = state_folder(cpu, index);
                let Some(name) = root.text(&format!("{folder}/name")) else { break };
                let Ok(usage) = root.open(&format!("{folder}/usage")) else { break };
                match states.iter_mut().find(|state| state.name == name) {
                    Some(state) => state.usages.push(usage),
                    None => states.push(StateCounters { name, usages: vec![usage] }),
                }
            }
        }
        IdleCounters { states }
    }

    /// Returns the states' names, shallowest first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.states.iter().map(|state| state.name.as_str())
    }

    /// Returns the entries of each state since boot, summed over all CPUs. An offline CPU counts 0.
    pub fn entry_counts(&self) -> Vec<u64> {
        let count = |state: &StateCounters| state.usages.iter().map(read_number).sum();
        self.states.iter().map(count).collect()
    }
}

fn read_number(file: &File) -> u64 {
    small_number(file).unwrap_or(0)
}
