//! From a trace to a log: an importer's events through the gap builder, and what both learned as
//! the log's metadata.

use idlewise_machine::Machine;

use crate::import::{ImportError, ReadSummary, Recording, TraceInfo, TruncationReason};
use crate::log::{FORMAT_VERSION, LogMetadata, Source};
use crate::{CpuFacts, GapBuilder, GapSink, GapSummary, MachineNote, UnknownState};

/// What the caller knows of the recorded machine and the trace doesn't say. It counts more than what
/// the trace does say.
#[derive(Clone, Debug, Default)]
pub struct RecordedMachine {
    /// Its idle states; their exit latencies are taken off the recorded exits.
    pub machine: Option<Machine>,
    /// The governor that was in use.
    pub governor: Option<String>,
}

/// Of how many events one may be out of order. A clock that is corrected once, or a late record,
/// spoils a gap or two, and is a doubt; more than that says that the order itself is not known, and
/// every gap may be wrong.
const EVENTS_PER_LATE_ONE_MIN: u64 = 1_000;

/// Why a trace did not become a log.
#[derive(Debug)]
pub enum ConvertError<E> {
    /// The trace can't be read.
    Import(ImportError),
    /// The gaps can't be written.
    Sink(E),
    /// The trace enters a state that the recorded machine doesn't have.
    UnknownState(UnknownState),
}

/// Reads a whole trace into `sink`, and gives it back with the metadata of the log. `progress` is
/// told how many bytes have been read.
///
/// # Errors
/// The importer's, or the sink's; and more than one event of a thousand out of order. A damaged
/// trace is not an error: the metadata says what is missing.
pub fn convert<S: GapSink>(
    recording: Box<dyn Recording>,
    sink: S,
    recorded: &RecordedMachine,
    progress: &dyn Fn(u64),
) -> Result<(S, LogMetadata), ConvertError<S::Error>> {
    let format_name = recording.format_name();
    let info = recording.info().clone();
    let mut facts = info.machine_note.as_ref().map_or_else(CpuFacts::default, CpuFacts::of_note);
    if let Some(machine) = &recorded.machine {
        facts.exit_latencies_ns = machine.exit_latencies_ns();
        facts.exit_latencies_by_cpu_ns.clear();
    }
    let mut builder = GapBuilder::new(sink, info.tracepoints, facts);
    let mut failure = None;
    let summary = recording.read(progress, &mut |events| {
        // There is no way to stop the reader; after a failure the rest is read past.
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
    // What a note says of the states, or a damaged event, is not the caller's mistake.
    if let Some(unknown) = gaps.unknown_state
        && recorded.machine.is_some()
    {
        return Err(ConvertError::UnknownState(unknown));
    }
    Ok((sink, metadata(format_name, info, &summary, &gaps, recorded)))
}

/// Refuses a trace most of whose order is not known.
fn check_order(summary: &ReadSummary) -> Result<(), ImportError> {
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
        source: Source {
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
        clock: info.clock,
        cpus: gaps.cpus.clone(),
        unknown_columns: gaps.unknown_columns.iter().map(|&name| name.to_owned()).collect(),
        doubts,
    }
}

/// What speaks against a note.
fn note_doubts(note: &MachineNote, gaps: &GapSummary) -> Vec<String> {
    let mut doubts = note.doubts.clone();
    if note.limits_changed {
        doubts.push(
            "a PM QoS latency limit changed while recording, so no gap has one in this log"
                .to_owned(),
        );
    }
    if let [first, _, ..] = note.tables.as_slice() {
        doubts.push(format!(
            "the machine's CPUs have {} kinds of idle states; the log's machine is that of the {} \
             CPUs like CPU {}",
            note.tables.len(),
            first.cpus.len(),
            first.cpus.first().copied().unwrap_or_default(),
        ));
    }
    if let Some(UnknownState { state, cpu, .. }) = gaps.unknown_state {
        doubts.push(format!(
            "CPU {cpu} enters state {state}, which its idle driver didn't have when the recording \
             began; its exit latency is taken as 0"
        ));
    }
    if let (Some(found), Some(noted)) = (gaps.tick.hz, note.hz)
        && found != noted
    {
        doubts.push(format!(
            "the tick was found at {found} Hz, but the kernel was configured with HZ={noted}"
        ));
    }
    doubts
}

fn doubts(info: &TraceInfo, summary: &ReadSummary, gaps: &GapSummary) -> Vec<String> {
    let mut doubts = Vec::new();
    if let Some(note) = &info.machine_note {
        doubts.extend(note_doubts(note, gaps));
    }
    let mut say = |condition: bool, text: String| {
        if condition {
            doubts.push(text);
        }
    };
    for doubt in info.doubts.iter().chain(&summary.doubts) {
        say(true, doubt.clone());
    }
    if let (None, Some(UnknownState { state, cpu, at_ns })) =
        (&info.machine_note, gaps.unknown_state)
    {
        say(
            true,
            format!(
                "CPU {cpu} enters state {state} at {at_ns} ns, which no idle driver has: the \
                 recording is damaged there, and such states are unknown"
            ),
        );
    }
    let unobserved: Vec<String> =
        gaps.cpus.iter().filter(|cpu| !cpu.observed).map(|cpu| cpu.cpu.to_string()).collect();
    say(
        !unobserved.is_empty(),
        format!(
            "CPU {}: unobserved: the recording has events of it but none of its idle task, so \
             nothing is known of its idle time",
            unobserved.join(", ")
        ),
    );
    let of_cpus = summary.lost_event_counts.values();
    let lost = of_cpus.fold(summary.lost_event_count_without_cpu, |sum, &n| sum.saturating_add(n));
    say(
        lost > 0,
        format!(
            "{} events were lost while recording; gaps around them were given up; record with \
             larger buffers (perf record -m, trace-cmd record -b)",
            lost
        ),
    );
    if let Some(cut) = summary.truncated {
        let cause = match cut.reason {
            TruncationReason::CutShort => "the file is cut short",
            TruncationReason::BrokenRecord => "a record is broken",
            TruncationReason::BrokenCompression => "a compressed block is broken",
        };
        say(
            true,
            format!(
                "{cause} at byte {}; {} bytes from there on were not read",
                cut.at_byte, cut.lost_byte_count
            ),
        );
    }
    say(
        summary.undecodable_count > 0,
        format!("{} records could not be decoded and were left out", summary.undecodable_count),
    );
    let out_of_order = summary.out_of_order_count + gaps.out_of_order_count;
    say(
        out_of_order > 0,
        format!(
            "{out_of_order} events came out of order (the clock stepped back, or the CPUs' clocks \
             differ) and were moved to the time of the one before; record with perf's -k \
             CLOCK_MONOTONIC or trace-cmd's -C mono"
        ),
    );
    say(
        info.has_foreign_formats,
        "the event formats are those of another recording, for this one has none: events are right \
         only if both were recorded on the same kernel"
            .to_owned(),
    );
    for unreadable in &info.unreadable_tracepoints {
        say(true, format!("recorded but unreadable: {unreadable}"));
    }
    for sampled in &info.sampled_tracepoints {
        say(
            true,
            format!("{sampled} was recorded only now and then; record with a period of 1 (-c 1)"),
        );
    }
    say(
        gaps.tick.hz.is_none() && info.machine_note.as_ref().is_some_and(|note| note.hz.is_some()),
        "the tick was not found, so the tick grid is assumed in a replay".to_owned(),
    );
    say(
        gaps.tick.hz.is_none() && info.machine_note.as_ref().is_none_or(|note| note.hz.is_none()),
        "the tick was not found, so HZ and the tick grid are assumed in a replay; record \
         timer:hrtimer_start and timer:hrtimer_expire_entry too"
            .to_owned(),
    );
    for doubt in &gaps.evidence_doubts {
        say(true, doubt.clone());
    }
    say(
        gaps.impossible_gap_count > 0,
        format!(
            "{} gaps of more than 104 days were given up: the clock jumped, or the recording is \
             damaged there",
            gaps.impossible_gap_count
        ),
    );
    // A few are in every trace; they matter when they are more than that.
    let is_many = |count: u64| count * 100 > gaps.timer_expiry_count;
    let share = |count: u64| 100.0 * count as f64 / gaps.timer_expiry_count.max(1) as f64;
    say(
        is_many(gaps.unknown_timer_count),
        format!(
            "{:.0} % of the timers that expired have no start in the recording",
            share(gaps.unknown_timer_count)
        ),
    );
    say(
        is_many(gaps.migrated_timer_count),
        format!(
            "{:.0} % of the timers expired on another CPU than the one that armed them; until then \
             they counted for the CPU that did",
            share(gaps.migrated_timer_count)
        ),
    );
    say(
        is_many(gaps.vanished_timer_count),
        format!(
            "{:.0} % as many timers as expired were due but show neither expiry nor cancellation: \
             CPUs that were not recorded took care of them",
            share(gaps.vanished_timer_count)
        ),
    );
    let strays: u64 = gaps.cpus.iter().map(|cpu| cpu.stray_exit_count).sum();
    say(strays > 0, format!("{strays} idle exits had no entry before them and were left out"));
    doubts
}
