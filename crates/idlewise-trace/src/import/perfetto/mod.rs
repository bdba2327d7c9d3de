//! Imports the ftrace events of Perfetto traces.
//!
//! | file | holds |
//! | --- | --- |
//! | `wire.rs` | the fields of a message |
//! | `packets.rs` | the packets of a file, including compressed ones |
//! | `survey.rs` | the first pass: locates each CPU's events, and reads other packets |
//! | `streams.rs` | one CPU's events in one sequence of packets, part by part |
//! | `bundle.rs` | converts the events of one CPU to ours |
//! | `schema.rs` | the fields of the messages that we read |
//!
//! `../named.rs` says what the fields mean, and `../merge.rs` puts the streams in order.
//!
//! The trace's clock counts time in suspend, the timers' clock does not. The trace contains
//! snapshots of both. Timers are moved to the trace's clock using the latest snapshot before them.
//!
//! Not supported: processes, symbols, counters, and events of other sources.

mod bundle;
mod packets;
mod schema;
mod streams;
mod survey;
mod wire;

use std::collections::BTreeMap;
use std::path::Path;

use super::source::{self, ReadAt, Source};
use super::threads::{self, Batch};
use super::{Format, ImportError, ReadSummary, Recording, TraceInfo, merge, named};
use crate::Doubt;
use crate::event::{Event, Tracepoints};
use crate::tracepoint::Purpose;
use bundle::{BundleReader, TraceClock};
use streams::{StreamPlace, Streams};
use survey::Survey;

pub(super) const FORMAT: Format = Format {
    name: "perfetto",
    meaning: "Perfetto's protobuf, with events of ftrace",
    recognizes,
    open: |file, options| Ok(PerfettoTrace::from_source(source::of_file(file)?, options.purpose)?),
};

/// Whether a file that begins with these bytes is a Perfetto trace.
fn recognizes(first: &[u8]) -> bool {
    packets::are_packets(first)
}

/// A Perfetto trace whose events have been located.
///
/// ```no_run
/// use idlewise_trace::import::Recording;
/// use idlewise_trace::import::perfetto::PerfettoTrace;
///
/// let trace = PerfettoTrace::open("trace.pftrace".as_ref())?;
/// println!("of Linux {:?}", trace.info().kernel);
/// let summary = trace.read(&|_byte_count| {}, &mut |events| println!("{events:?}"))?;
/// println!("{} events", summary.event_count);
/// # Ok::<(), idlewise_trace::import::ImportError>(())
/// ```
pub struct PerfettoTrace {
    source: Box<dyn ReadAt>,
    survey: Survey,
    info: TraceInfo,
}

impl PerfettoTrace {
    /// Opens a file and locates its events.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has no idle events.
    pub fn open(path: &Path) -> Result<Box<Self>, ImportError> {
        Self::from_source(source::of_file(source::open(path)?)?, Purpose::Gaps)
    }

    /// Like [`PerfettoTrace::open`], for a file in memory.
    ///
    /// # Errors
    /// Fails like [`PerfettoTrace::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Box<Self>, ImportError> {
        Self::from_source(source::of_bytes(bytes), Purpose::Gaps)
    }

    fn from_source(
        (source, byte_count): Source,
        purpose: Purpose,
    ) -> Result<Box<Self>, ImportError> {
        let survey = Survey::read(&*source, purpose)?;
        let tracepoints = survey.tracepoints();
        if survey.bundle_count == 0 {
            return Err(ImportError::Unsupported {
                at_byte: 0,
                found: "a Perfetto trace without events of ftrace".to_owned(),
                todo: "record with the data source linux.ftrace and its event power/cpu_idle",
            });
        }
        if !tracepoints.contains(Tracepoints::CPU_IDLE) {
            return Err(ImportError::NoCpuIdle {
                at_byte: 0,
                recorded_count: survey.kind_count(),
                todo: "perfetto power/cpu_idle sched/sched_switch -o trace.pftrace",
            });
        }
        let clock = match survey.clocks.as_slice() {
            &[clock] => clock,
            _ => TraceClock::Boottime,
        };
        let mut doubts = Vec::new();
        let has_timers = tracepoints.contains(Tracepoints::HRTIMER_START)
            || tracepoints.contains(Tracepoints::HRTIMER_EXPIRE);
        if has_timers
            && clock == TraceClock::Boottime
            && !survey.bundles.monotonic_offsets.is_known()
        {
            doubts.push(Doubt::NoClockSnapshot);
        }
        if survey.bundles.has_numbered_addresses {
            doubts.push(Doubt::NumberedTimers);
        }
        let info = TraceInfo {
            clock: Some(clock.name().to_owned()),
            tracepoints,
            doubts,
            file_byte_count: byte_count,
            ..survey.info.clone()
        };
        Ok(Box::new(Self { source, survey, info }))
    }
}

impl Recording for PerfettoTrace {
    fn format_name(&self) -> &'static str {
        FORMAT.name
    }

    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn read(
        self: Box<Self>,
        progress: &dyn Fn(u64),
        sink: &mut dyn FnMut(&[Event]),
    ) -> Result<ReadSummary, ImportError> {
        let Self { source, survey, info } = *self;
        let source = &*source;
        let read = |hand_over: &mut dyn FnMut(&mut Batch) -> bool| {
            let mut streams = Streams::new(source, &survey);
            let places = StreamPlace::of_all(&survey.streams);
            let (_, order) = merge::merge(places, &mut streams, hand_over)?;
            Ok((streams.bundles, streams.lost_counts, order))
        };
        let ((bundles, lost_counts, order), source_blake3) =
            threads::run("perfetto", source, read, progress, sink)?;
        Ok(ReadSummary {
            record_count: bundles.event_count,
            lost_event_counts: lost_event_counts(lost_counts, &survey),
            lost_event_count_without_cpu: survey.lost_packet_count,
            undecodable_count: survey.undecodable_count + bundles.undecodable_count,
            truncated: survey.truncated,
            doubts: doubts(&info, &survey, &bundles),
            source_blake3,
            ..order.summary()
        })
    }
}

fn doubts(info: &TraceInfo, survey: &Survey, bundles: &BundleReader) -> Vec<Doubt> {
    let (lost, foreign) = (survey.lost_packet_count, survey.foreign_packet_count);
    let doubts = [
        (bundles.unplaced_bundle_count > 0, Doubt::SeveralClocks),
        (survey.suspend_count > 0, Doubt::Suspended { count: survey.suspend_count }),
        (lost > 0, Doubt::LostPackets { count: lost }),
        (foreign > 0, Doubt::ForeignPackets { count: foreign }),
    ];
    let late = named::late_doubts(bundles.seen(), info.tracepoints);
    let doubts = doubts.into_iter().filter_map(|(is_so, doubt)| is_so.then_some(doubt));
    late.into_iter().chain(doubts).collect()
}

/// Lost events by CPU: the kernel's own count if there is one.
fn lost_event_counts(mut counts: BTreeMap<u16, u64>, survey: &Survey) -> BTreeMap<u16, u64> {
    for (&cpu, &(start, end)) in &survey.kernel_lost_counts {
        let count = counts.entry(cpu).or_default();
        *count = end.saturating_sub(start).max(*count);
    }
    counts.retain(|_, count| *count > 0);
    counts
}
