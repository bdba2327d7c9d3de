//! Converts a trace to a log: passes an importer's events through the gap builder, and collects
//! what both learned as the log's metadata.

use idlewise_machine::{Arch, Machine};

use crate::cpu_facts::kernel_version;
use crate::doubt::List;
use crate::import::{ImportError, ReadSummary, Recording, TraceInfo, Truncation};
use crate::log::{FORMAT_VERSION, LogMetadata, LogSource};
use crate::{CpuFacts, Doubt, GapBuilder, GapSink, GapSummary, MachineNote, UnknownState};

/// What the caller knows about the recorded machine. It overrides what the trace says.
#[derive(Clone, Debug, Default)]
pub struct RecordedMachine {
    /// The idle states. Their exit latencies are subtracted from the times of recorded exits.
    pub machine: Option<Machine>,
    /// The governor that was in use.
    pub governor: Option<String>,
}

/// At most one in this many events may be out of order. A clock that is corrected once, or a late
/// record, spoils a gap or two, and is reported as a doubt. With more than that the order itself is
/// unknown, and every gap may be wrong.
const EVENTS_PER_LATE_ONE_MIN: u64 = 1_000;

/// Why a trace could not be converted to a log.
#[derive(Debug)]
pub enum ConvertError<E> {
    /// The trace cannot be read.
    Import(ImportError),
    /// The gaps cannot be written.
    Sink(E),
    /// The trace enters a state that the machine given by the caller does not have.
    UnknownState(UnknownState),
}

/// Reads a whole trace into `sink`, and returns the sink with the log's metadata. `progress` is
/// called with the number of bytes read so far.
///
/// # Errors
/// Returns an error of the importer or the sink, or if more than one event in a thousand is out of
/// order. A damaged trace is not an error: the metadata says what is missing.
pub fn convert<S: GapSink>(
    recording: Box<dyn Recording>,
    sink: S,
    recorded: &RecordedMachine,
    progress: &dyn Fn(u64),
) -> Result<(S, LogMetadata), ConvertError<S::Error>> {
    let format_name = recording.format_name();
    let info = recording.info().clone();
    let facts = CpuFacts::of_recording(&info, recorded.machine.as_ref());
    let mut builder = GapBuilder::new(sink, info.tracepoints, facts);
    let mut failure = None;
    let summary = recording.read(progress, &mut |events| {
        // The reader cannot be stopped. After a failure the remaining events are ignored.
        if failure.is_none() {
            failure = builder.push(events).err();
        }
    });
    if let Some(error) = failure {
        return Err(ConvertError::Sink(error));
    }
    let summary = summary.map_err(ConvertError::Import)?;
    check_order(&summary).map_err(ConvertError::Import)?;
    let (sink, gaps) = builder.finish().map_err(ConvertError::Sink)?;
    // If the states come from a note, or the event is damaged, it is not the caller's mistake.
    if let Some(unknown) = gaps.unknown_state
        && recorded.machine.is_some()
    {
        return Err(ConvertError::UnknownState(unknown));
    }
    Ok((sink, metadata(format_name, info, &summary, &gaps, recorded)))
}

/// Rejects a trace with too many events out of order.
pub(crate) fn check_order(summary: &ReadSummary) -> Result<(), ImportError> {
    let ReadSummary { event_count, out_of_order_count: late_count, first_late, .. } = *summary;
    match first_late {
        Some(first) if late_count.saturating_mul(EVENTS_PER_LATE_ONE_MIN) > event_count => {
            let share_percent = 100.0 * late_count as f64 / event_count as f64;
            Err(ImportError::OutOfOrder { late_count, event_count, share_percent, first })
        }
        _ => Ok(()),
    }
}

fn metadata(
    format_name: &str,
    info: TraceInfo,
    summary: &ReadSummary,
    gaps: &GapSummary,
    recorded: &RecordedMachine,
) -> LogMetadata {
    let doubts = doubts(&info, summary, gaps);
    let note = info.machine_note.unwrap_or_default();
    let noted = || note.tables.first().map(|table| table.machine.clone());
    let machine = recorded.machine.clone().or_else(noted);
    LogMetadata {
        format_version: FORMAT_VERSION,
        created_by: concat!("idlewise ", env!("CARGO_PKG_VERSION")).to_owned(),
        source: LogSource {
            format: format_name.to_owned(),
            byte_count: info.file_byte_count,
            blake3: Some(summary.source_blake3.clone()),
            event_count: summary.event_count,
            command: info.cmdline.or_else(|| (!note.command.is_empty()).then_some(note.command)),
        },
        kernel: info.kernel.or(note.kernel),
        hz: gaps.tick.hz.or(note.hz),
        cpu_model: info.cpu_model.or(note.cpu_model),
        arch: info.arch.or(note.arch),
        governor: recorded.governor.clone().or(note.governor),
        driver: note.driver,
        machine,
        topology: note.topology.filter(|groups| groups.check().is_ok()),
        clock: info.clock,
        cpus: gaps.cpus.clone(),
        unknown_columns: gaps.unknown_columns.iter().map(|&name| name.to_owned()).collect(),
        doubts,
    }
}

/// Lists the reasons to doubt a note.
fn note_doubts(note: &MachineNote, gaps: &GapSummary) -> Vec<Doubt> {
    let mut doubts = note.doubts.clone();
    if note.limits_changed {
        doubts.push(Doubt::LatencyLimitChanged);
    }
    if let [first, _, ..] = note.tables.as_slice() {
        doubts.push(Doubt::SeveralTables {
            count: note.tables.len(),
            cpu_count: first.cpus.len(),
            cpu: first.cpus.first().copied().unwrap_or_default(),
        });
    }
    if let Some(UnknownState { state, cpu, .. }) = gaps.unknown_state {
        doubts.push(Doubt::LateState { cpu, state });
    }
    if let (Some(found), Some(noted)) = (gaps.tick.hz, note.hz)
        && found != noted
    {
        doubts.push(Doubt::OtherHz { found, noted });
    }
    doubts
}

fn doubts(info: &TraceInfo, summary: &ReadSummary, gaps: &GapSummary) -> Vec<Doubt> {
    let note = info.machine_note.as_ref();
    let mut doubts = note.map_or_else(Vec::new, |note| note_doubts(note, gaps));
    doubts.extend(info.doubts.iter().chain(&summary.doubts).cloned());
    let mut say = |condition: bool, doubt: Doubt| {
        if condition {
            doubts.push(doubt);
        }
    };
    if let (None, Some(UnknownState { state, cpu, at_ns })) = (note, gaps.unknown_state) {
        say(true, Doubt::ImpossibleState { cpu, state, at_ns });
    }
    let unobserved = gaps.cpus.iter().filter(|cpu| !cpu.observed);
    let unobserved: Vec<u16> = unobserved.map(|cpu| cpu.cpu).collect();
    say(!unobserved.is_empty(), Doubt::UnobservedCpus { cpus: List(unobserved) });
    let of_cpus = summary.lost_event_counts.values();
    let lost = of_cpus.fold(summary.lost_event_count_without_cpu, |sum, &n| sum.saturating_add(n));
    say(lost > 0, Doubt::LostEvents { count: lost });
    if let Some(Truncation { at_byte, lost_byte_count, reason }) = summary.truncated {
        say(true, Doubt::Truncated { reason, at_byte, lost_byte_count });
    }
    let undecodable = summary.undecodable_count;
    say(undecodable > 0, Doubt::Undecodable { count: undecodable });
    let out_of_order = summary.out_of_order_count + gaps.out_of_order_count;
    say(out_of_order > 0, Doubt::OutOfOrder { count: out_of_order });
    say(info.has_foreign_formats, Doubt::ForeignFormats);
    for unreadable in &info.unreadable_tracepoints {
        say(true, Doubt::UnreadableTracepoint { reason: unreadable.to_string() });
    }
    for tracepoint in &info.sampled_tracepoints {
        say(true, Doubt::SampledTracepoint { tracepoint: tracepoint.clone() });
    }
    let has_noted_hz = note.is_some_and(|note| note.hz.is_some());
    let tick_doubt = if has_noted_hz { Doubt::TickGridUnknown } else { Doubt::TickUnknown };
    say(gaps.tick.hz.is_none(), tick_doubt);
    for doubt in &gaps.evidence_doubts {
        say(true, doubt.clone());
    }
    let impossible = gaps.impossible_gap_count;
    say(impossible > 0, Doubt::ImpossibleGaps { count: impossible });
    // Every trace has a few of these. They matter only if there are more.
    let is_many = |count: u64| count * 100 > gaps.timer_expiry_count;
    let percent = |count: u64| {
        let expiry_count = gaps.timer_expiry_count.max(1) as f64;
        (100.0 * count as f64 / expiry_count).round_ties_even() as u64
    };
    let (unknown, migrated) = (gaps.unknown_timer_count, gaps.migrated_timer_count);
    let vanished = gaps.vanished_timer_count;
    say(is_many(unknown), Doubt::TimersWithoutStart { percent: percent(unknown) });
    say(is_many(migrated), Doubt::TimersMigrated { percent: percent(migrated) });
    say(is_many(vanished), Doubt::TimersVanished { percent: percent(vanished) });
    let strays: u64 = gaps.cpus.iter().map(|cpu| cpu.stray_exit_count).sum();
    say(strays > 0, Doubt::StrayExits { count: strays });
    doubts
}

/// The Linux release since which timers migrate ([`crate::timers`]).
const TIMERS_MIGRATE_SINCE: (u32, u32) = (6, 9);

impl CpuFacts {
    /// What a recording says of itself, and `machine`, which takes the place of the recorder's tables.
    pub(crate) fn of_recording(info: &TraceInfo, machine: Option<&Machine>) -> Self {
        let note = info.machine_note.as_ref();
        let mut facts = note.map_or_else(CpuFacts::default, CpuFacts::of_note);
        if let Some(machine) = machine {
            facts.exit_latencies_ns = machine.exit_latencies_ns();
            facts.exit_latencies_by_cpu_ns.clear();
        }
        let release = info.kernel.as_deref().and_then(kernel_version);
        facts.keeps_timers = release.is_some_and(|release| release < TIMERS_MIGRATE_SINCE);
        let noted = note.and_then(|note| note.arch.as_deref());
        let told = info.arch.as_deref().or(noted).map(Arch::of_uname);
        facts.arch = told.or(machine.map(|machine| machine.arch));
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_keeps_its_timers() {
        let keeps = |kernel: &str| {
            let info = TraceInfo { kernel: Some(kernel.to_owned()), ..TraceInfo::default() };
            CpuFacts::of_recording(&info, None).keeps_timers
        };
        assert!(keeps("6.8.0-31-generic") && keeps("5.15.0"));
        assert!(!keeps("6.9.0") && !keeps("6.18.44") && !keeps("7.2.11") && !keeps("acme"));
    }

    /// The recording's own word counts, then the recorder's note, then the machine that the caller names.
    #[test]
    fn the_architecture_is_the_recordings() {
        let arch = |told: Option<&str>, noted: Option<&str>, machine: Option<Arch>| {
            let note = MachineNote { arch: noted.map(str::to_owned), ..MachineNote::default() };
            let machine_note = noted.map(|_| note);
            let info =
                TraceInfo { arch: told.map(str::to_owned), machine_note, ..TraceInfo::default() };
            let machine = machine.map(|arch| Machine::new("m", "A machine", arch, "captured"));
            CpuFacts::of_recording(&info, machine.as_ref()).arch
        };
        assert_eq!(arch(None, None, None), None);
        assert_eq!(arch(Some("aarch64"), Some("x86_64"), Some(Arch::X86)), Some(Arch::Arm));
        assert_eq!(arch(None, Some("ppc64le"), Some(Arch::X86)), Some(Arch::Power));
        assert_eq!(arch(None, None, Some(Arch::X86)), Some(Arch::X86));
        assert_eq!(arch(Some("riscv64"), None, None), Some(Arch::Other));
    }
}
