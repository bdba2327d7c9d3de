//! Events out of order, in each format. A few are a doubt; more than one in a thousand is an error.

use crate::perf_writer;
use crate::perfetto_writer;
use crate::trace_dat_writer;

use std::fmt::Write;

use idlewise_trace::import::perf::PerfData;
use idlewise_trace::import::perfetto::PerfettoTrace;
use idlewise_trace::import::text::FtraceText;
use idlewise_trace::import::trace_dat::TraceDat;
use idlewise_trace::import::{ImportError, LateEvent, Recording};
use idlewise_trace::{
    ByteOrder, ConvertError, Doubt, Event, EventKind, IdleGap, RecordedMachine, convert,
};
use perf_writer::PerfWriter;
use trace_dat_writer::{LITTLE, Page, TraceDatWriter};

const EVENT_COUNT: usize = 4_000;
const BLOCK_EVENT_COUNT: usize = 20;
/// The time between two events.
const STEP_NS: u64 = 10_000;
/// How much earlier a late event is: more than any importer holds events back here.
const LATE_BY_NS: u64 = 8_000_000;

/// Times in the file's order, in blocks. Some blocks are a single late event.
fn blocks(late_count: usize) -> Vec<Vec<u64>> {
    let times: Vec<u64> =
        (0..EVENT_COUNT - late_count).map(|i| 100_000_000 + STEP_NS * i as u64).collect();
    let mut blocks: Vec<Vec<u64>> = times.chunks(BLOCK_EVENT_COUNT).map(<[u64]>::to_vec).collect();
    for i in 0..late_count {
        let place = 100 + 3 * i;
        let late = blocks[place - 1][BLOCK_EVENT_COUNT - 1] - LATE_BY_NS;
        blocks.insert(place, vec![late]);
    }
    blocks
}

/// Alternating entries and exits.
fn kinds() -> impl Iterator<Item = EventKind> {
    [EventKind::IdleEntry { state: 1 }, EventKind::IdleExit].into_iter().cycle()
}

fn perf(late_count: usize) -> Box<dyn Recording> {
    let mut writer = PerfWriter::new(ByteOrder::Little);
    let mut kinds = kinds();
    for block in blocks(late_count) {
        for at in block {
            match kinds.next() {
                Some(EventKind::IdleExit) => writer.idle_exit(at, 0),
                _ => writer.idle_entry(at, 0, 1),
            }
        }
        writer.round();
    }
    PerfData::from_bytes(writer.file().0).unwrap()
}

fn trace_dat(late_count: usize) -> Box<dyn Recording> {
    let mut writer = TraceDatWriter::new(LITTLE, "6");
    let mut kinds = kinds();
    let page = |block: Vec<u64>| {
        let page = Page::new(LITTLE, block[0]);
        block.into_iter().zip(&mut kinds).fold(page, |page, (at, kind)| match kind {
            EventKind::IdleExit => page.idle_exit(at, 0),
            _ => page.idle_entry(at, 0, 1),
        })
    };
    let pages: Vec<Page> = blocks(late_count).into_iter().map(page).collect();
    writer.buffer("", &[&pages]);
    TraceDat::from_bytes(writer.file().bytes).unwrap()
}

fn text(late_count: usize) -> Box<dyn Recording> {
    let mut text = String::from("# tracer: nop\n");
    for (at, kind) in blocks(late_count).into_iter().flatten().zip(kinds()) {
        let state = if kind == EventKind::IdleExit { u32::MAX } else { 1 };
        let (s, ns) = (at / 1_000_000_000, at % 1_000_000_000);
        let line = format!("<idle>-0 [000] d... {s}.{ns:09}: cpu_idle: state={state} cpu_id=0");
        writeln!(text, "{line}").unwrap();
    }
    FtraceText::from_bytes(text.into_bytes()).unwrap()
}

fn perfetto(late_count: usize) -> Box<dyn Recording> {
    let mut kinds = kinds();
    let bundle = |block: Vec<u64>| {
        let events = block.into_iter().zip(&mut kinds).filter_map(|(at, kind)| {
            let event = Event { at_ns: at as i64, cpu: 0, kind };
            perfetto_writer::event(&event, at)
        });
        perfetto_writer::bundle(0, events.collect())
    };
    let packets: Vec<_> = blocks(late_count).into_iter().map(bundle).collect();
    PerfettoTrace::from_bytes(perfetto_writer::file(&packets)).unwrap()
}

/// Makes a recording with this many late events.
type Writer = fn(usize) -> Box<dyn Recording>;

/// Each format, with the event before the first late one. perf's rounds hold the last block back,
/// so the late event can still be sorted before it.
const FORMATS: [(&str, Writer, u64); 4] = [
    ("perf.data", perf, 1_979),
    ("trace.dat", trace_dat, 1_999),
    ("text", text, 1_999),
    ("perfetto", perfetto, 1_999),
];

fn converted(
    recording: Box<dyn Recording>,
) -> Result<Vec<Doubt>, ConvertError<std::convert::Infallible>> {
    let sink = Vec::<IdleGap>::new();
    let (_, metadata) = convert(recording, sink, &RecordedMachine::default(), &|_| {})?;
    Ok(metadata.doubts)
}

#[test]
fn one_in_a_thousand_is_a_doubt_and_more_an_error() {
    for (name, recording, before) in FORMATS {
        let is_moved = |doubt: &Doubt| matches!(doubt, Doubt::OutOfOrder { .. });
        let doubts = converted(recording(0)).unwrap();
        assert!(!doubts.iter().any(is_moved), "{name}: {doubts:?}");
        let doubts = converted(recording(4)).unwrap();
        assert!(doubts.contains(&Doubt::OutOfOrder { count: 4 }), "{name}: {doubts:?}");
        let error = match converted(recording(5)) {
            Err(ConvertError::Import(error)) => error,
            other => panic!("{name}: {other:?}"),
        };
        let message = error.to_string();
        let ImportError::OutOfOrder { late_count, event_count, first, .. } = error else {
            panic!("{name}: {message}")
        };
        assert_eq!((late_count, event_count), (5, EVENT_COUNT as u64), "{name}");
        let after_ns = 100_000_000 + (STEP_NS * before) as i64;
        let at_ns = 100_000_000 + (STEP_NS * 1_999 - LATE_BY_NS) as i64;
        assert_eq!(first, LateEvent { cpu: 0, at_ns, after_ns }, "{name}");
        assert!(!message.contains('\n'), "{name}: {message}");
        assert!(
            message.starts_with("0.1 % of the events (5 of 4000) are out of order"),
            "{message}"
        );
    }
}
