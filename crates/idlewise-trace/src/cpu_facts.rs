//! What is known about each CPU of a recorded machine before the first event.

use std::collections::BTreeMap;

use idlewise_core::STATE_COUNT_MAX;
use idlewise_machine::Arch;

use crate::{MachineNote, NotedTable};

/// What is known about the CPUs apart from their events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuFacts {
    /// Exit latencies by state index, for all CPUs that `exit_latencies_by_cpu_ns` does not name.
    /// Empty if unknown.
    pub exit_latencies_ns: Vec<u64>,
    /// The same for CPUs of a different kind, as on a machine with large and small cores.
    pub exit_latencies_by_cpu_ns: BTreeMap<u16, Vec<u64>>,
    /// The PM QoS limits of the CPUs that have one. `None` if it is unknown which CPUs have one.
    pub latency_limits_ns: Option<BTreeMap<u16, u64>>,
    /// An idle CPU runs its own timers of the wheel, as before Linux 6.9. Since then, another CPU that is
    /// awake does.
    pub keeps_timers: bool,
    /// The architecture, which decides by which events interrupts are seen. `None` if the recording does not tell.
    pub arch: Option<Arch>,
}

impl CpuFacts {
    /// The facts in a recorder's note. Its first table applies to CPUs that no table names.
    pub(crate) fn of_note(note: &MachineNote) -> Self {
        let knows_limits = note.note_version > 0 && !note.limits_changed;
        let latency_limits_ns = knows_limits.then(|| note.latency_limits_ns.clone());
        let mut facts = CpuFacts { latency_limits_ns, ..CpuFacts::default() };
        if let [first, others @ ..] = note.tables.as_slice() {
            facts.exit_latencies_ns = first.machine.exit_latencies_ns();
            for NotedTable { cpus, machine } in others {
                let rows = cpus.iter().map(|&cpu| (cpu, machine.exit_latencies_ns()));
                facts.exit_latencies_by_cpu_ns.extend(rows);
            }
        }
        facts
    }

    /// How many states a log can record for a CPU: those that it and the log's machine have.
    pub(crate) fn state_count(&self, cpu: u16) -> usize {
        match (self.exit_latencies_ns.len(), self.exit_latencies_ns(cpu).len()) {
            (0, _) | (_, 0) => STATE_COUNT_MAX,
            (machine, own) => machine.min(own).min(STATE_COUNT_MAX),
        }
    }

    /// The PM QoS limit of a CPU. A value that no log can hold counts as no limit.
    pub(crate) fn latency_limit_ns(&self, cpu: u16) -> Option<u64> {
        let limit_ns = self.latency_limits_ns.as_ref()?.get(&cpu).copied()?;
        i64::try_from(limit_ns).is_ok().then_some(limit_ns)
    }

    /// The exit latencies of a CPU's states.
    pub(crate) fn exit_latencies_ns(&self, cpu: u16) -> &[u64] {
        self.exit_latencies_by_cpu_ns.get(&cpu).unwrap_or(&self.exit_latencies_ns)
    }
}

impl From<Vec<u64>> for CpuFacts {
    /// All CPUs have states with these exit latencies.
    fn from(exit_latencies_ns: Vec<u64>) -> Self {
        CpuFacts { exit_latencies_ns, ..CpuFacts::default() }
    }
}

/// Extracts 6 and 12 from `6.12.117-1-amd64`; `None` if the release does not begin like that.
pub(crate) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    let number = |digits: &str| {
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    Some((number(major)?, number(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_version_of_a_kernel() {
        assert_eq!(kernel_version("6.12.117-1-acme"), Some((6, 12)));
        assert_eq!(kernel_version("5.4-custom"), Some((5, 4)));
        assert_eq!(kernel_version("6.18"), Some((6, 18)));
        for odd in ["", "acme", "6", "6-acme.12", ".6.1", "+6.1", "6.x", "99999999999.1"] {
            assert_eq!(kernel_version(odd), None, "{odd}");
        }
    }
}
