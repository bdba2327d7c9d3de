//! A bundled recording, converted to a Perfetto trace, gives the same gaps.

use idlewise_trace::import;
use idlewise_trace::log::IdleLog;
use idlewise_trace::{Doubt, Event, IdleGap};

use crate::import::gaps;
use crate::perfetto_writer::{compact, compressed, file, snapshot, trace, trace_of_sources};
use crate::{OwnFile, assert_refused, recording, root, stdout};

/// The clock of these traces counts time in suspend; that of the recordings does not.
const SUSPENDED_NS: u64 = 86_400_123_456_789;

fn events(name: &str) -> Vec<Event> {
    let data = OwnFile::new("perf.data", recording(name));
    let mut events = Vec::new();
    let opened = import::open(&data.0).unwrap();
    opened.read(&|_| {}, &mut |some| events.extend_from_slice(some)).unwrap();
    events
}

fn imported(content: Vec<u8>) -> (IdleLog, Vec<IdleGap>) {
    let file = OwnFile::new("trace.pftrace", content);
    let output = file.0.with_extension("parquet");
    stdout(&["log", "import", file.path(), "-o", output.to_str().unwrap()]);
    let log = IdleLog::open(&output).unwrap();
    let gaps = gaps(&log);
    (log, gaps)
}

/// The doubts without those about vectors that did not occur. perf lists all that it recorded.
fn doubts(log: &IdleLog) -> Vec<Doubt> {
    let doubts = log.metadata.doubts.iter();
    doubts.filter(|doubt| !matches!(doubt, Doubt::UnseenInterrupts { .. })).cloned().collect()
}

#[test]
fn a_recording_gives_the_same_gaps_as_a_perfetto_trace() {
    let bundled = IdleLog::open(&root().join("traces/a-idle.parquet")).unwrap();
    let expected: Vec<IdleGap> = gaps(&bundled)
        .into_iter()
        .map(|gap| IdleGap { start_ns: gap.start_ns + SUSPENDED_NS as i64, ..gap })
        .collect();
    let plain = trace(&events("a-idle"), SUSPENDED_NS);
    let mut compacted = plain.clone();
    for bundle in compacted.iter_mut().filter_map(|packet| packet.ftrace_events.as_mut()) {
        compact(bundle);
    }
    let zlib = compressed(&compacted, false);
    let zstd = compressed(&plain, true);
    for (shape, packets) in
        [("plain", plain), ("compact", compacted), ("zlib", zlib), ("zstd", zstd)]
    {
        let (log, gaps) = imported(file(&packets));
        assert_eq!(gaps, expected, "{shape}");
        assert_eq!(log.metadata.source.format, "perfetto");
        assert_eq!(log.metadata.hz, bundled.metadata.hz, "{shape}");
        assert_eq!(doubts(&log), bundled.metadata.doubts, "{shape}");
        let metadata = log.metadata;
        assert_eq!(metadata.unknown_columns, bundled.metadata.unknown_columns, "{shape}");
        assert_eq!(metadata.kernel.as_deref(), Some("6.18.44"));
    }
}

/// Rounds of a Perfetto trace are shorter than those of the perf.data, so the importers deliver
/// events in different batches. This trace is compressed.
#[test]
fn a_busy_recording_gives_the_same_gaps_too() {
    let bundled = IdleLog::open(&root().join("traces/h-pingpong.parquet")).unwrap();
    let packed = zstd::encode_all(&*file(&trace(&events("h-pingpong"), 0)), 1).unwrap();
    let (log, gaps) = imported(packed);
    assert!(gaps == *crate::import::gaps(&bundled), "not the bundled log's");
    assert_eq!(doubts(&log), bundled.metadata.doubts);
}

/// Two sources of events, whose packets the service writes in turns. Each is in order by itself.
#[test]
fn two_sources_give_the_gaps_of_one() {
    let bundled = IdleLog::open(&root().join("traces/a-idle.parquet")).unwrap();
    let is_of_timers = |event: &Event| {
        use idlewise_trace::EventKind::{HrtimerCancel, HrtimerExpire, HrtimerStart};
        matches!(event.kind, HrtimerStart { .. } | HrtimerCancel { .. } | HrtimerExpire { .. })
    };
    let all = events("a-idle");
    let (timers, others): (Vec<Event>, Vec<Event>) = all.iter().partition(|e| is_of_timers(e));
    for (what, sources) in [("split", [timers, others]), ("twice", [all.clone(), all])] {
        let mut packets = trace_of_sources(&sources, 2_500_000_000);
        packets.insert(0, snapshot(1_000_000_000, 0));
        let (log, gaps) = imported(file(&packets));
        let expected = crate::import::gaps(&bundled);
        assert!(gaps == expected, "{what}: {} gaps of {}", gaps.len(), expected.len());
        assert_eq!(doubts(&log), bundled.metadata.doubts, "{what}");
    }
}

#[test]
fn a_trace_out_of_order_is_refused() {
    let mut packets = trace(&events("a-idle"), 0);
    let half = packets.len() / 2;
    packets.rotate_left(half);
    let file = OwnFile::new("mixed.pftrace", file(&packets));
    let output = file.0.with_extension("parquet");
    assert_refused(
        &["log", "import", file.path(), "-o", output.to_str().unwrap()],
        &["mixed.pftrace: ", " % of the events (", ") are out of order, the first at "],
    );
    assert!(!output.exists());
}
