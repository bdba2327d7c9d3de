//! Imports ftrace's text: tracefs's `trace` and `trace_pipe`, the output of `trace-cmd report`, and
//! Android's systrace, an HTML page that contains such a text.
//!
//! | file | holds |
//! | --- | --- |
//! | `blocks.rs` | splits bytes into lines |
//! | `line.rs` | the task, CPU, time and event of a line |
//! | `body.rs` | parses an event's fields |
//! | `survey.rs` | what the text's first part shows about the whole |
//!
//! `../named.rs` says what the fields mean. A text is already in order of time. An event that is
//! not gets the time of the one before it, and is counted. Only one block is held, so memory does
//! not grow with the file.
//!
//! Not supported: function and graph tracers, and what no idle log needs.

mod blocks;
mod body;
mod line;
mod survey;

use std::ops::ControlFlow;
use std::path::Path;

use memchr::memmem;

use super::named::{self, EVENT_COUNT};
use super::order::InOrder;
use super::source::{self, ReadAt, Source};
use super::{Format, ImportError, ReadSummary, Recording, TraceInfo, Truncation, TruncationReason};
use crate::event::{Event, EventKind, Tracepoints};
use crate::tracepoint::{Decoded, Purpose};
use blocks::{End, each_line};
use body::Dialect;
use line::Line;
use survey::Survey;

pub(super) const FORMAT: Format = Format {
    name: "ftrace-text",
    meaning: "the text of tracefs's trace or of `trace-cmd report`; Android's systrace page",
    recognizes,
    open: |file, options| Ok(FtraceText::from_source(source::of_file(file)?, options.purpose)?),
};

/// How much of the file is surveyed to find out what it contains.
const SURVEY_BYTE_COUNT: u64 = 1 << 24;

/// How many events the sink gets at once.
const BATCH_EVENT_COUNT: usize = 1 << 12;

/// How systrace pages begin, in either case.
const HTML_MAGICS: &[&[u8]] = &[b"<!doctype html", b"<html"];

/// A text of ftrace whose first part has been read.
///
/// ```no_run
/// use idlewise_trace::import::Recording;
/// use idlewise_trace::import::text::FtraceText;
///
/// let text = FtraceText::open("trace.txt".as_ref())?;
/// for doubt in &text.info().doubts {
///     println!("{doubt}");
/// }
/// let summary = text.read(&|_byte_count| {}, &mut |events| println!("{events:?}"))?;
/// println!("{} events", summary.event_count);
/// # Ok::<(), idlewise_trace::import::ImportError>(())
/// ```
pub struct FtraceText {
    source: Box<dyn ReadAt>,
    page: Page,
    purpose: Purpose,
    dialect: Dialect,
    info: TraceInfo,
}

/// Where the events' lines are embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Text,
    Html { is_in_data: bool },
}

impl Page {
    fn of(first: &[u8]) -> Self {
        let start = first.trim_ascii_start();
        let begins = |magic: &&[u8]| {
            start.get(..magic.len()).is_some_and(|start| start.eq_ignore_ascii_case(magic))
        };
        match HTML_MAGICS.iter().any(begins) {
            true => Self::Html { is_in_data: false },
            false => Self::Text,
        }
    }

    /// The part of a line that may belong to the trace.
    #[inline]
    fn trace_line<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let Self::Html { is_in_data } = self else { return Some(line) };
        if *is_in_data {
            *is_in_data = memmem::find(line, b"</script>").is_none();
            // The oldest pages contain the trace as a JavaScript string, line by line.
            let line = line.strip_suffix(b"\\").unwrap_or(line);
            return Some(line.strip_suffix(b"\\n").unwrap_or(line));
        }
        *is_in_data = [b"class=\"trace-data\"".as_slice(), b"linuxPerfData ="]
            .iter()
            .any(|mark| memmem::find(line, mark).is_some())
            && memmem::find(line, b"</script>").is_none();
        None
    }
}

/// Whether a file that begins with these bytes is a text of ftrace.
fn recognizes(first: &[u8]) -> bool {
    const MAGICS: &[&[u8]] = &[b"# tracer:", b"cpus=", b"version = ", b"TRACE:\n# tracer:"];
    if MAGICS.iter().any(|magic| first.starts_with(magic)) || Page::of(first) != Page::Text {
        return true;
    }
    // The pipe's text has no header, and trace-cmd may print messages first.
    let lines = first.split_inclusive(|&byte| byte == b'\n');
    let mut whole = lines.filter_map(|line| line.strip_suffix(b"\n"));
    whole.any(|line| matches!(Line::parse(line.trim_ascii_end()), Line::Event(_)))
}

impl FtraceText {
    /// Opens a file and reads its first part.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or has no idle events that we can read.
    pub fn open(path: &Path) -> Result<Box<Self>, ImportError> {
        Self::from_source(source::of_file(source::open(path)?)?, Purpose::Gaps)
    }

    /// Like [`FtraceText::open`], for a file in memory.
    ///
    /// # Errors
    /// Fails like [`FtraceText::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Box<Self>, ImportError> {
        Self::from_source(source::of_bytes(bytes), Purpose::Gaps)
    }

    fn from_source(
        (source, byte_count): Source,
        purpose: Purpose,
    ) -> Result<Box<Self>, ImportError> {
        let page = Page::of(&source::bytes_at(&*source, 0, 64)?);
        let mut survey = Survey::new(purpose);
        let mut place = page;
        let mut is_first_idle = true;
        each_line(&*source, &mut |_| {}, &mut |line, at_byte| {
            if let Some(line) = place.trace_line(line) {
                survey.push(line);
            }
            if at_byte < SURVEY_BYTE_COUNT {
                return ControlFlow::Continue(());
            }
            is_first_idle = !survey.tracepoints().contains(Tracepoints::CPU_IDLE);
            if is_first_idle { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if survey.is_timeless() {
            return Err(ImportError::Unsupported {
                at_byte: 0,
                found: "times without a point, of a clock that counts something else".to_owned(),
                todo: "record with the clock `mono` (trace-cmd's -C, tracefs's trace_clock)",
            });
        }
        if survey.name_count() == 0 {
            return Err(ImportError::Unsupported {
                at_byte: 0,
                found: match page {
                    Page::Text => "a text without any line of an event".to_owned(),
                    Page::Html { .. } => "a page without a trace in ftrace's text".to_owned(),
                },
                todo: "give the text of tracefs's trace or of `trace-cmd report`, or systrace's \
                       page",
            });
        }
        if !survey.tracepoints().contains(Tracepoints::CPU_IDLE) {
            return Err(ImportError::NoCpuIdle {
                at_byte: 0,
                recorded_count: survey.name_count(),
                todo: "trace-cmd record -C mono -e power:cpu_idle -e timer -e sched:sched_switch",
            });
        }
        Ok(Box::new(Self {
            page,
            purpose,
            dialect: survey.dialect(),
            info: survey.info(byte_count),
            source,
        }))
    }
}

impl Recording for FtraceText {
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
        let mut hasher = blake3::Hasher::new();
        let mut page = self.page;
        let mut reader = LineReader {
            purpose: self.purpose,
            dialect: self.dialect,
            batch: Vec::with_capacity(BATCH_EVENT_COUNT),
            is_seen: [false; EVENT_COUNT],
            lost: Vec::new(),
            order: InOrder::default(),
            summary: ReadSummary::default(),
        };
        let mut read_byte_count = 0;
        let mut hash = |block: &[u8]| {
            hasher.update(block);
            read_byte_count += block.len() as u64;
            progress(read_byte_count);
        };
        let End { byte_count, cut_byte_count } =
            each_line(&*self.source, &mut hash, &mut |line, _| {
                if let Some(line) = page.trace_line(line) {
                    reader.read(line, sink);
                }
                ControlFlow::Continue(())
            })?;
        let end_ns = reader.order.summary().last_at_ns.unwrap_or(0);
        reader.push_lost(end_ns, sink);
        reader.flush(sink);
        let LineReader { is_seen, order, summary, .. } = reader;
        let ReadSummary { record_count, lost_event_counts, undecodable_count, .. } = summary;
        let mut summary =
            ReadSummary { record_count, lost_event_counts, undecodable_count, ..order.summary() };
        if cut_byte_count > 0 && page != (Page::Html { is_in_data: false }) {
            summary.truncated = Some(Truncation {
                at_byte: byte_count - cut_byte_count,
                lost_byte_count: cut_byte_count,
                reason: TruncationReason::CutShort,
            });
        }
        let seen = is_seen.iter().enumerate().filter(|(_, is_seen)| **is_seen);
        let seen = seen.map(|(number, _)| named::event(number));
        summary.doubts = named::late_doubts(seen, self.info.tracepoints);
        summary.source_blake3 = hasher.finalize().to_hex().to_string();
        Ok(summary)
    }
}

/// Turns lines into events.
struct LineReader {
    purpose: Purpose,
    dialect: Dialect,
    batch: Vec<Event>,
    is_seen: [bool; EVENT_COUNT],
    /// CPUs that lost events since the last event, and how many. Lines of losses have no time, but
    /// the next event follows immediately.
    lost: Vec<(u16, u64)>,
    order: InOrder,
    summary: ReadSummary,
}

/// No recorder writes more lines of losses than this without an event between them.
const MAX_LOST_COUNT: usize = 1 << 16;

impl LineReader {
    #[inline]
    fn read(&mut self, line: &[u8], sink: &mut dyn FnMut(&[Event])) {
        match Line::parse(line) {
            Line::Event(event) => {
                self.summary.record_count += 1;
                self.push_lost(event.time.at_ns, sink);
                let Some(number) = survey::find(event.name, event.body, self.purpose) else {
                    return;
                };
                self.is_seen[number] = true;
                let fields = body::fields(&event, self.dialect, self.purpose);
                match named::event(number).decode(&fields, event.cpu, self.purpose) {
                    Decoded::Event { cpu, kind } => {
                        self.push(Event { at_ns: event.time.at_ns, cpu, kind }, sink);
                    }
                    Decoded::Nothing => {}
                    Decoded::Malformed => self.summary.undecodable_count += 1,
                }
            }
            Line::Lost { cpu, event_count } => {
                // At least one, if the text has no count.
                let event_count = event_count.unwrap_or(1).max(1);
                let lost = self.summary.lost_event_counts.entry(cpu).or_default();
                *lost = lost.saturating_add(event_count);
                if self.lost.len() < MAX_LOST_COUNT {
                    self.lost.push((cpu, event_count));
                }
            }
            Line::Other => {}
        }
    }

    fn push_lost(&mut self, at_ns: i64, sink: &mut dyn FnMut(&[Event])) {
        if self.lost.is_empty() {
            return;
        }
        for (cpu, event_count) in std::mem::take(&mut self.lost) {
            self.push(Event { at_ns, cpu, kind: EventKind::Lost { event_count } }, sink);
        }
    }

    fn push(&mut self, mut event: Event, sink: &mut dyn FnMut(&[Event])) {
        self.order.admit(std::slice::from_mut(&mut event));
        self.batch.push(event);
        if self.batch.len() == BATCH_EVENT_COUNT {
            self.flush(sink);
        }
    }

    fn flush(&mut self, sink: &mut dyn FnMut(&[Event])) {
        if !self.batch.is_empty() {
            sink(&self.batch);
            self.batch.clear();
        }
    }
}
