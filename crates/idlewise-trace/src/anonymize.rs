//! Removes from a log what it says about its machine, its user and its workload beyond what a
//! replay needs, so that the log can be shared.
//!
//! Absolute time goes too, because on the monotonic clock it is the machine's uptime. It is shifted
//! by whole ticks, so that every gap keeps its place on the tick grid and a replay gives the same
//! numbers. What remains is listed in [`REMAINS`]; a log is useless without it.

use idlewise_core::{tick_period_ns, words};
use idlewise_machine::Machine;

use crate::cpu_facts::kernel_version;
use crate::log::LogMetadata;
use crate::{Doubt, IdleGap};

words! {
    name;
    /// Identifying information. It is dropped unless the user asks to keep it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Field {
        /// The recorder's command line: programs, arguments, paths.
        Command = "command",
        /// The hash and size of the recording.
        Source = "source",
        /// The kernel's full release string. The version, such as 6.12, stays.
        Kernel = "kernel",
        /// The CPU's model name.
        CpuModel = "cpu-model",
        /// The machine description without its idle states: id, title, model, topology, sources.
        Machine = "machine",
        /// The time of the recording.
        Time = "time",
        /// Doubts whose text may name something. Doubts that contain only numbers stay.
        Doubts = "doubts",
        /// The tasks' names in a workload log. An idle log has none.
        Tasks = "tasks",
    }
}

impl Field {
    /// A description of what is dropped.
    pub const fn meaning(self) -> &'static str {
        match self {
            Field::Command => "the command that recorded",
            Field::Source => "hash and size of the recording",
            Field::Kernel => "the kernel's release beyond its version",
            Field::CpuModel => "the CPU's model name",
            Field::Machine => "names, topology and sources of the machine's file",
            Field::Time => "absolute time; the log begins in its first tick",
            Field::Doubts => "doubts whose words may name something",
            Field::Tasks => "the tasks' names, of a workload log",
        }
    }
}

/// What stays and could still identify a machine or a workload.
pub const REMAINS: &[&str] = &[
    "the gaps, to the nanosecond: their lengths, timers and wake reasons are the workload's rhythm, \
     and who has seen the same moment recorded elsewhere can recognise it",
    "how many CPUs there are, their numbers, how long they were recorded and how many events they had",
    "architecture, HZ, kernel version, governor and driver",
    "the idle states' names, latencies, hints and powers, which tell a CPU's family or its owner's \
     settings",
    "where the tick grid lies within a tick",
];

/// The anonymous form of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Anonymized {
    /// The anonymous metadata.
    pub metadata: LogMetadata,
    /// The fields that the log had and that were dropped.
    pub dropped: Vec<Field>,
    shift_ns: i64,
}

impl Anonymized {
    /// Drops all identifying fields except those in `keep`. `first_at_ns` is the earliest time of
    /// any gap.
    pub fn new(metadata: &LogMetadata, first_at_ns: i64, keep: &[Field]) -> Self {
        let mut anonymous = metadata.clone();
        let mut dropped = Vec::new();
        let mut shift_ns = 0;
        for field in Field::ALL.into_iter().filter(|field| !keep.contains(field)) {
            match field {
                Field::Command => anonymous.source.command = None,
                Field::Source => {
                    anonymous.source.blake3 = None;
                    anonymous.source.byte_count = 0;
                }
                Field::Kernel => {
                    anonymous.kernel = metadata.kernel.as_deref().and_then(short_release);
                }
                Field::CpuModel => anonymous.cpu_model = None,
                Field::Machine => {
                    anonymous.machine = metadata.machine.as_ref().map(Machine::anonymous);
                }
                Field::Time => {
                    let summaries = metadata.cpus.iter().map(|cpu| cpu.first_at_ns);
                    let first_at_ns = summaries.fold(first_at_ns, i64::min);
                    shift_ns = whole_ticks_ns(first_at_ns, metadata.hz);
                    for cpu in &mut anonymous.cpus {
                        cpu.first_at_ns = cpu.first_at_ns.saturating_sub(shift_ns);
                        cpu.last_at_ns = cpu.last_at_ns.saturating_sub(shift_ns);
                    }
                }
                Field::Doubts => {
                    anonymous.doubts.retain(Doubt::is_nameless);
                    let count = metadata.doubts.len() - anonymous.doubts.len();
                    if count > 0 {
                        anonymous.doubts.push(Doubt::Anonymized { count });
                    }
                }
                Field::Tasks => {}
            }
            let was_there = match field {
                Field::Time => shift_ns != 0,
                Field::Command => metadata.source.command.is_some(),
                Field::Source => metadata.source != anonymous.source,
                Field::Kernel => metadata.kernel != anonymous.kernel,
                Field::CpuModel => metadata.cpu_model.is_some(),
                Field::Machine => metadata.machine != anonymous.machine,
                Field::Doubts => metadata.doubts != anonymous.doubts,
                Field::Tasks => false,
            };
            if was_there {
                dropped.push(field);
            }
        }
        Anonymized { metadata: anonymous, dropped, shift_ns }
    }

    /// Returns the gap at its shifted time, or `None` if that is out of range.
    pub fn gap(&self, gap: &IdleGap) -> Option<IdleGap> {
        Some(IdleGap { start_ns: gap.start_ns.checked_sub(self.shift_ns)?, ..*gap })
    }
}

/// Rounds `at_ns` down to whole ticks. If HZ is unknown, a replay assumes one. Of the usual values
/// of HZ, 20 ms is a whole number of ticks for all whose tick is a whole number of milliseconds.
pub(crate) fn whole_ticks_ns(at_ns: i64, hz: Option<u32>) -> i64 {
    const ANY_PERIOD_NS: i64 = 20_000_000;
    let period_ns = hz.map_or(ANY_PERIOD_NS, |hz| i64::from(tick_period_ns(hz.max(1))));
    at_ns.div_euclid(period_ns).saturating_mul(period_ns)
}

/// Shortens a kernel's release to its version: `6.12.117-1-amd64` to `6.12`.
pub(crate) fn short_release(release: &str) -> Option<String> {
    kernel_version(release).map(|(major, minor)| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_by_whole_ticks() {
        assert_eq!(whole_ticks_ns(2_194_208_006_929, Some(250)), 2_194_208_000_000);
        assert_eq!(whole_ticks_ns(-1, Some(250)), -4_000_000);
        assert_eq!(whole_ticks_ns(39_999_999, None), 20_000_000);
        assert_eq!(whole_ticks_ns(i64::MIN, Some(100)), i64::MIN);
    }
}
