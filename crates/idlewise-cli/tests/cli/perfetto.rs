//! A bundled recording, written again as a Perfetto trace, gives the same gaps.

use idlewise_trace::import;
use idlewise_trace::log::IdleLog;
use idlewise_trace::{Event, IdleGap};

use crate::import::gaps;
use crate::perfetto_writer::{compact, compressed, file, trace};
use crate::{OwnFile, recording, root, stdout};

/// The clock of these traces runs in suspend, the recordings' does not.
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
    stdout(&["import", file.path(), "-o", output.to_str().unwrap()]);
    let log = IdleLog::open(&output).unwrap();
    let gaps = gaps(&log);
    (log, gaps)
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
        let metadata = log.metadata;
        assert_eq!(metadata.source.format, "perfetto");
        assert_eq!(metadata.hz, bundled.metadata.hz, "{shape}");
        assert_eq!(metadata.doubts, bundled.metadata.doubts, "{shape}");
        assert_eq!(metadata.unknown_columns, bundled.metadata.unknown_columns, "{shape}");
        assert_eq!(metadata.kernel.as_deref(), Some("6.18.44"));
    }
}

/// Rounds of a Perfetto trace are shorter than those of the perf.data that it was made of, so the
/// importers give their events in other pieces. Here as a packed file.
#[test]
fn a_busy_recording_gives_the_same_gaps_too() {
    let bundled = IdleLog::open(&root().join("traces/h-pingpong.parquet")).unwrap();
    let packed = zstd::encode_all(&*file(&trace(&events("h-pingpong"), 0)), 1).unwrap();
    let (log, gaps) = imported(packed);
    assert!(gaps == *crate::import::gaps(&bundled), "not the bundled log's");
    assert_eq!(log.metadata.doubts, bundled.metadata.doubts);
}
