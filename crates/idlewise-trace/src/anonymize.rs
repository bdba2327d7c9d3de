//! What a log says about its machine, its user and its workload beyond what a replay needs: it is
//! dropped before a log is mailed around.
//!
//! Absolute time goes too: on the monotonic clock it is the machine's uptime. It is shifted by whole
//! ticks, so that every gap keeps its place on the tick grid and a replay gives the same numbers.
//! What remains, [`REMAINS`], is the log's substance and can't be dropped.

use idlewise_core::tick_period_ns;
use idlewise_machine::Machine;

use crate::IdleGap;
use crate::evidence::Evidence;
use crate::log::LogMetadata;

/// Something that identifies, and is dropped unless it is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The command that recorded: programs, arguments, paths.
    Command,
    /// Hash and size of the recording.
    Source,
    /// The kernel's release down to its build; the version, such as 6.12, stays.
    Kernel,
    /// The CPU's model name.
    CpuModel,
    /// All of the machine's file but its idle states: id, title, model, topology, sources.
    Machine,
    /// When it was recorded.
    Time,
    /// Doubts whose words may name something; those that hold only numbers stay.
    Doubts,
}

impl Field {
    /// Every field.
    pub const ALL: [Field; 7] = [
        Field::Command,
        Field::Source,
        Field::Kernel,
        Field::CpuModel,
        Field::Machine,
        Field::Time,
        Field::Doubts,
    ];

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Field::Command => "command",
            Field::Source => "source",
            Field::Kernel => "kernel",
            Field::CpuModel => "cpu-model",
            Field::Machine => "machine",
            Field::Time => "time",
            Field::Doubts => "doubts",
        }
    }

    /// What is dropped, in words.
    pub const fn meaning(self) -> &'static str {
        match self {
            Field::Command => "the command that recorded",
            Field::Source => "hash and size of the recording",
            Field::Kernel => "the kernel's release beyond its version",
            Field::CpuModel => "the CPU's model name",
            Field::Machine => "names, topology and sources of the machine's file",
            Field::Time => "absolute time; the log begins in its first tick",
            Field::Doubts => "doubts whose words may name something",
        }
    }
}

/// What stays and could still identify a machine or a workload.
pub const REMAINS: [&str; 5] = [
    "the gaps, to the nanosecond: their lengths, timers and wake reasons are the workload's rhythm, \
     and who has seen the same moment recorded elsewhere can recognise it",
    "how many CPUs there are, their numbers, how long they were recorded and how many events they had",
    "architecture, HZ, kernel version, governor and driver",
    "the idle states' names, latencies, hints and powers, which tell a CPU's family or its owner's \
     settings",
    "where the tick grid lies within a tick",
];

/// The doubts of our own importers that hold nothing but numbers, as `#`. Others may carry names
/// from the recording.
const NAMELESS_DOUBTS: [&str; 22] = [
    "CPU #: unobserved: the recording has events of it but none of its idle task, so nothing is \
     known of its idle time",
    "# events were lost while recording; gaps around them were given up; record with larger buffers \
     (perf record -m, trace-cmd record -b)",
    "# records could not be decoded and were left out",
    "# events came out of order (the clock stepped back, or the CPUs' clocks differ) and were moved \
     to the time of the one before; record with perf's -k CLOCK_MONOTONIC or trace-cmd's -C mono",
    "the tick was not found, so HZ and the tick grid are assumed in a replay; record \
     timer:hrtimer_start and timer:hrtimer_expire_entry too",
    "not recorded: sched:sched_switch; whether a task ran between two stays is unknown, and so are \
     wake reasons; a replay restarts the tick after each gap",
    "not recorded: TRACEPOINTS; such an interrupt may have ended any stay, so wake reasons are \
     unknown",
    "not seen: TRACEPOINTS; the trace does not list what was recorded, so stays without any \
     interrupt have an unknown wake reason",
    "not recorded: TRACEPOINTS; next timers are unknown, governors that read them see none, and \
     wake-ups by timers are not told from others",
    "not recorded: timer:tick_stop; whether the tick was stopped is unknown",
    "# stays may have been ended by the tick alone, but what was not recorded leaves that open: \
     each is a gap of its own, and the gaps are shorter than the workload's",
    "# gaps of more than # days were given up: the clock jumped, or the recording is damaged there",
    "the recorder's note about the machine's idle states can't be read and is left out",
    "# % of the timers that expired have no start in the recording",
    "# % of the timers expired on another CPU than the one that armed them; until then they counted \
     for the CPU that did",
    "# % as many timers as expired were due but show neither expiry nor cancellation: CPUs that \
     were not recorded took care of them",
    "# idle exits had no entry before them and were left out",
    "the text has times to the microsecond, so gaps are right to one at each end (the expiries of \
     timers are exact); trace.dat and `trace-cmd report -t` have nanoseconds",
    "the text says of each timer that it is deferrable, which trace-cmd's text does by mistake; all \
     are taken as not deferrable; import the trace.dat instead",
    "the machine was suspended # times: gaps over a suspend contain it",
    "packets of events were lost # times: the trace's buffer was too small",
    "anonymized: # doubts were dropped",
];

/// A log without what identifies.
#[derive(Clone, Debug, PartialEq)]
pub struct Anonymized {
    /// Its metadata.
    pub metadata: LogMetadata,
    /// What was there and is no more.
    pub dropped: Vec<Field>,
    shift_ns: i64,
}

impl Anonymized {
    /// Drops what identifies but for what is to be kept. `first_at_ns` is the earliest time of any
    /// gap.
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
                    anonymous.kernel = metadata.kernel.as_deref().and_then(kernel_version);
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
                    anonymous.doubts.retain(|doubt| is_nameless(doubt));
                    let dropped_count = metadata.doubts.len() - anonymous.doubts.len();
                    if dropped_count > 0 {
                        let note = format!("anonymized: {dropped_count} doubts were dropped");
                        anonymous.doubts.push(note);
                    }
                }
            }
            let was_there = match field {
                Field::Time => shift_ns != 0,
                Field::Command => metadata.source.command.is_some(),
                Field::Source => metadata.source != anonymous.source,
                Field::Kernel => metadata.kernel != anonymous.kernel,
                Field::CpuModel => metadata.cpu_model.is_some(),
                Field::Machine => metadata.machine != anonymous.machine,
                Field::Doubts => metadata.doubts != anonymous.doubts,
            };
            if was_there {
                dropped.push(field);
            }
        }
        Anonymized { metadata: anonymous, dropped, shift_ns }
    }

    /// The gap at its shifted time; `None` if that is out of range.
    pub fn gap(&self, gap: &IdleGap) -> Option<IdleGap> {
        Some(IdleGap { start_ns: gap.start_ns.checked_sub(self.shift_ns)?, ..*gap })
    }
}

/// The whole ticks up to `at_ns`. Where HZ is unknown a replay assumes one: of the usual ones, whole
/// periods of 20 ms are whole ticks of all whose tick is a whole number of milliseconds.
fn whole_ticks_ns(at_ns: i64, hz: Option<u32>) -> i64 {
    const ANY_PERIOD_NS: i64 = 20_000_000;
    let period_ns = hz.map_or(ANY_PERIOD_NS, |hz| i64::from(tick_period_ns(hz.max(1))));
    at_ns.div_euclid(period_ns).saturating_mul(period_ns)
}

/// `6.12` of `6.12.117-1-amd64`; none if it doesn't begin so.
fn kernel_version(release: &str) -> Option<String> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let (major, minor) = (parts.next()?, parts.next()?);
    let begins_so = release.as_bytes().get(major.len()) == Some(&b'.');
    (begins_so && !major.is_empty() && !minor.is_empty()).then(|| format!("{major}.{minor}"))
}

/// Whether a doubt holds only numbers besides the words of our importers.
fn is_nameless(doubt: &str) -> bool {
    let mut shape = String::new();
    let names = doubt.split_once(": ").and_then(|(_, rest)| Some(rest.split_once("; ")?.0));
    let doubt = match names.filter(|names| Evidence::lists_tracepoints(names)) {
        Some(names) => doubt.replacen(names, "TRACEPOINTS", 1),
        None => doubt.to_owned(),
    };
    for (index, part) in doubt.split(|c: char| c.is_ascii_digit()).enumerate() {
        let is_more_digits = part.is_empty() && index > 0 && shape.ends_with('#');
        if index > 0 && !is_more_digits && !shape.ends_with('#') {
            shape.push('#');
        }
        shape.push_str(part);
    }
    NAMELESS_DOUBTS.contains(&shape.replace("#, ", "").as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_version_of_a_kernel() {
        assert_eq!(kernel_version("6.12.117-1-acme").as_deref(), Some("6.12"));
        assert_eq!(kernel_version("5.4-custom").as_deref(), Some("5.4"));
        assert_eq!(kernel_version("6.18").as_deref(), Some("6.18"));
        for odd in ["", "acme", "6", "6-acme.12", ".6.1"] {
            assert_eq!(kernel_version(odd), None, "{odd}");
        }
    }

    #[test]
    fn shifts_by_whole_ticks() {
        assert_eq!(whole_ticks_ns(2_194_208_006_929, Some(250)), 2_194_208_000_000);
        assert_eq!(whole_ticks_ns(-1, Some(250)), -4_000_000);
        assert_eq!(whole_ticks_ns(39_999_999, None), 20_000_000);
        assert_eq!(whole_ticks_ns(i64::MIN, Some(100)), i64::MIN);
    }

    #[test]
    fn tells_doubts_with_names_from_doubts_with_numbers() {
        assert!(is_nameless("12 records could not be decoded and were left out"));
        assert!(is_nameless(
            "CPU 1, 12, 3: unobserved: the recording has events of it but none of its idle task, \
             so nothing is known of its idle time"
        ));
        assert!(!is_nameless("recorded but unreadable: kprobes:acme_secret has no field `state`"));
        assert!(!is_nameless("12 records could not be decoded and were left out by acme"));
        assert!(!is_nameless(
            "the file is cut short at byte 12; 3 bytes from there on were not read"
        ));
    }
}
