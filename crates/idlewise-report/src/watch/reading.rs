//! The kernel's counters of all CPUs at a moment.

/// An idle state of a CPU, as its driver declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateInfo {
    /// The name.
    pub name: String,
    /// The exit latency.
    pub exit_latency_ns: u64,
    /// The target residency.
    pub target_residency_ns: u64,
}

/// A CPU: where it is, and its states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuPlace {
    /// The CPU.
    pub cpu: u16,
    /// Its package, if the machine says.
    pub package: Option<u64>,
    /// Its core in that package, if the machine says.
    pub core: Option<u64>,
    /// The first of the CPUs that share its last-level cache, if the machine says.
    pub cache: Option<u16>,
    /// Its states, shallowest first. None without a cpuidle driver.
    pub states: Vec<StateInfo>,
}

/// The CPUs that are watched, and what does not change while they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The cpuidle driver, if there is one.
    pub driver: Option<String>,
    /// The governor.
    pub governor: Option<String>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The CPUs.
    pub cpus: Vec<CpuPlace>,
    /// The names of all states of all CPUs. CPUs of different kinds may have different states.
    slots: Vec<String>,
    /// For each state of each CPU, the place of its name.
    slot_of_state: Vec<usize>,
}

impl Layout {
    /// Makes a layout. States that have the same name on different CPUs are shown as one.
    pub fn new(cpus: Vec<CpuPlace>) -> Self {
        let mut slots: Vec<String> = Vec::new();
        let mut slot_of_state = Vec::new();
        for place in &cpus {
            for (index, state) in place.states.iter().enumerate() {
                let name = unique_name(place, index);
                let known = slots.iter().position(|slot| *slot == name);
                slot_of_state.push(known.unwrap_or(slots.len()));
                if known.is_none() {
                    slots.push(name);
                }
                debug_assert!(!state.name.is_empty());
            }
        }
        Layout { cpus, slots, slot_of_state, ..Layout::default() }
    }

    /// Returns the names of all states.
    pub fn slots(&self) -> &[String] {
        &self.slots
    }

    /// Returns the place of the name of each state of each CPU, one after another.
    pub(crate) fn slot_of_state(&self) -> &[usize] {
        &self.slot_of_state
    }

    /// Returns whether no CPU has an idle state that is counted.
    pub fn has_no_states(&self) -> bool {
        self.slots.is_empty()
    }
}

/// A state's name on its CPU; followed by its number if a shallower one has the same name.
pub(crate) fn unique_name(place: &CpuPlace, index: usize) -> String {
    let name = &place.states[index].name;
    let is_taken = place.states[..index].iter().any(|state| state.name == *name);
    if is_taken { format!("{name}#{index}") } else { name.clone() }
}

/// The counters of a state since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateReading {
    /// How often it was entered.
    pub entry_count: u64,
    /// The time in it.
    pub residency_ns: u64,
    /// Stays that were too short for it. `None` if the kernel does not count them.
    pub too_deep_count: Option<u64>,
    /// Stays that were long enough for a deeper one.
    pub too_shallow_count: Option<u64>,
    /// Requests that the processor or the firmware refused.
    pub rejected_count: Option<u64>,
    /// Whether somebody disabled it.
    pub is_disabled: bool,
}

/// What is known of a CPU at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuReading {
    /// Whether its counters could be read. They cannot while it is offline.
    pub is_readable: bool,
    /// Its idle time since boot by /proc/stat, which counts on during a stay.
    pub idle_ns: Option<u64>,
    /// Its own limit of the exit latency; `Some(0)` forbids all but polling.
    pub limit_ns: Option<u64>,
}

/// All counters at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// When it was, on a clock that never jumps.
    pub at_ns: u64,
    /// One for each CPU of the layout.
    pub cpus: Vec<CpuReading>,
    /// One for each state of each CPU, one after another.
    pub states: Vec<StateReading>,
    /// The limit that somebody holds for the whole machine.
    pub machine_limit_ns: Option<u64>,
    /// Energy since some moment, by domain. The names do not change.
    pub energy_uj: Vec<(String, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str) -> StateInfo {
        StateInfo { name: name.to_owned(), exit_latency_ns: 0, target_residency_ns: 0 }
    }

    #[test]
    fn states_of_one_name_share_a_place_except_on_one_cpu() {
        let place = |cpu, names: &[&str]| CpuPlace {
            cpu,
            states: names.iter().map(|name| state(name)).collect(),
            ..CpuPlace::default()
        };
        let layout = Layout::new(vec![place(0, &["POLL", "C1"]), place(1, &["C1", "C1", "C6"])]);
        assert_eq!(layout.slots(), ["POLL", "C1", "C1#1", "C6"]);
        assert_eq!(layout.slot_of_state(), [0, 1, 1, 2, 3]);
        assert!(!layout.has_no_states());
        assert!(Layout::new(vec![place(0, &[])]).has_no_states());
    }
}
