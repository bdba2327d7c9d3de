//! perf.data files that cannot be imported. Each is `tests/malformed/perf/<reason>.perf.data` and
//! must fail with its variant at its offset. Fuzz finds that were errors are among them.
//!
//! `cargo test -p idlewise-trace --test all malformed_perf:: -- --ignored` rewrites the files.

use crate::malformed_files;
use crate::perf_writer;

use std::path::Path;

use idlewise_trace::import::perf::PerfData;
use idlewise_trace::import::{ImportError, Recording, TruncationReason};
use idlewise_trace::{ByteOrder, Event};
use malformed_files::MalformedFiles;
use perf_writer::{CPU, IDENTIFIER, PerfWriter, RAW, SAMPLE, SAMPLE_TYPE, TIME, TRACEPOINTS};

/// An error's variant without its fields.
#[derive(Debug, PartialEq)]
enum Variant {
    Empty,
    NotARecording,
    BrokenHeader,
    Unsupported,
    NoTracingData,
    NoCpuIdle,
    UnreadableCpuIdle,
}

const FILES: MalformedFiles = MalformedFiles { format: "perf", extension: "perf.data" };

struct Case {
    /// The file's name.
    reason: &'static str,
    bytes: Vec<u8>,
    variant: Variant,
    at_byte: u64,
}

/// Offsets in the header.
const HEADER_SIZE_AT: usize = 8;
const ATTR_SIZE_AT: usize = 16;
const ATTRS_START_AT: usize = 24;
const ATTRS_SIZE_AT: usize = 32;
const DATA_START_AT: usize = 40;
const DATA_SIZE_AT: usize = 48;
/// The attributes follow the header and the ids of four events.
const ATTRS_AT: u64 = 168;

fn recording() -> PerfWriter {
    let mut writer = PerfWriter::new(ByteOrder::Little);
    writer.idle_entry(100, 0, 1);
    writer.idle_exit(200, 0);
    writer.round();
    writer
}

fn with(edit: impl FnOnce(&mut PerfWriter)) -> Vec<u8> {
    let mut writer = recording();
    edit(&mut writer);
    writer.file().0
}

fn patched(at: usize, word: u64) -> Vec<u8> {
    let mut bytes = recording().file().0;
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    bytes
}

fn cases() -> Vec<Case> {
    use Variant::{
        BrokenHeader, Empty, NoCpuIdle, NoTracingData, NotARecording, UnreadableCpuIdle,
        Unsupported,
    };
    let (whole, layout) = recording().file();
    let case = |reason, variant, at_byte, bytes| Case { reason, bytes, variant, at_byte };
    let tracing_data = layout.tracing_data as u64;
    let records_end = layout.data + recording().records.len();
    let past_end = whole.len() as u64 + 1;
    let mut garbled = whole.clone();
    garbled[layout.tracing_data] = 0;
    let (pipe, pipe_data_at) = recording().pipe();
    vec![
        case("empty", Empty, 0, Vec::new()),
        case("text", NotARecording, 0, b"# perf script output\n".to_vec()),
        case("random_bytes", NotARecording, 0, vec![0xff; 200]),
        case("magic_cut", NotARecording, 0, b"PERFILE".to_vec()),
        case("first_version", NotARecording, 0, [b"PERFFILE", &whole[8..]].concat()),
        case("is_elf", NotARecording, 0, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec()),
        case("is_xz", NotARecording, 0, b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46".to_vec()),
        case("ends_after_magic", BrokenHeader, 8, whole[..8].to_vec()),
        case("header_of_odd_size", BrokenHeader, 8, patched(HEADER_SIZE_AT, 96)),
        case("header_cut", BrokenHeader, 60, whole[..60].to_vec()),
        case("attribute_too_small", BrokenHeader, 16, patched(ATTR_SIZE_AT, 79)),
        case("attribute_of_size_zero", BrokenHeader, 16, patched(ATTR_SIZE_AT, 0)),
        case("attribute_huge", BrokenHeader, 16, patched(ATTR_SIZE_AT, u64::MAX)),
        case("no_attribute", BrokenHeader, ATTRS_AT, patched(ATTRS_SIZE_AT, 0)),
        case("records_past_all_places", BrokenHeader, 48, patched(DATA_SIZE_AT, u64::MAX)),
        case("attributes_past_end", BrokenHeader, 24, patched(ATTRS_START_AT, past_end)),
        case("attributes_past_all_places", BrokenHeader, 24, patched(ATTRS_START_AT, u64::MAX)),
        case("records_past_end", BrokenHeader, 40, patched(DATA_START_AT, past_end)),
        case("killed_before_end", NoTracingData, records_end as u64, {
            let mut bytes = patched(DATA_SIZE_AT, 0);
            bytes.truncate(records_end);
            bytes
        }),
        case("cut_in_records", NoTracingData, layout.data as u64 + 60, {
            whole[..layout.data + 60].to_vec()
        }),
        case("formats_cut_in_head", NoTracingData, tracing_data, {
            whole[..layout.tracing_data + 12].to_vec()
        }),
        case("formats_garbled", NoTracingData, tracing_data, garbled),
        case("no_formats", NoTracingData, tracing_data, with(|writer| writer.formats.clear())),
        case("pipe_cut_before_formats", NoTracingData, 200, pipe[..200].to_vec()),
        case("pipe_without_attribute", BrokenHeader, 16, {
            [&pipe[..16], &pipe[pipe_data_at..]].concat()
        }),
        case("idle_not_recorded", NoCpuIdle, ATTRS_AT - 16, with(|writer| writer.recorded = 1..4)),
        case("idle_format_without_state", UnreadableCpuIdle, tracing_data, {
            with(|writer| writer.formats[0].1 = TRACEPOINTS[0].format.replace("state", "other"))
        }),
        case("idle_format_without_id", NoCpuIdle, ATTRS_AT, {
            with(|writer| writer.formats[0].1 = TRACEPOINTS[0].format.replace("ID:", "IX:"))
        }),
        case("samples_without_time", Unsupported, ATTRS_AT, {
            with(|writer| writer.sample_type = SAMPLE_TYPE & !TIME)
        }),
        case("samples_without_cpu", Unsupported, ATTRS_AT, {
            with(|writer| writer.sample_type = SAMPLE_TYPE & !CPU)
        }),
        case("samples_without_raw_data", Unsupported, ATTRS_AT, {
            with(|writer| writer.sample_type = SAMPLE_TYPE & !RAW)
        }),
        case("events_without_ids", Unsupported, ATTRS_AT, {
            with(|writer| writer.sample_type = SAMPLE_TYPE & !IDENTIFIER)
        }),
    ]
}

fn variant_and_place(error: &ImportError) -> Option<(Variant, u64)> {
    Some(match *error {
        ImportError::Empty => (Variant::Empty, 0),
        ImportError::NotARecording { .. } => (Variant::NotARecording, 0),
        ImportError::BrokenHeader { at_byte, .. } => (Variant::BrokenHeader, at_byte),
        ImportError::Unsupported { at_byte, .. } => (Variant::Unsupported, at_byte),
        ImportError::NoTracingData { at_byte } => (Variant::NoTracingData, at_byte),
        ImportError::NoCpuIdle { at_byte, .. } => (Variant::NoCpuIdle, at_byte),
        ImportError::UnreadableCpuIdle { at_byte, .. } => (Variant::UnreadableCpuIdle, at_byte),
        _ => return None,
    })
}

#[test]
fn each_fails_with_its_variant_at_its_place() {
    for Case { reason, variant, at_byte, .. } in cases() {
        let error = match PerfData::open(&FILES.path(reason)) {
            Ok(_) => panic!("{reason}: imported"),
            Err(error) => error,
        };
        assert_eq!(variant_and_place(&error), Some((variant, at_byte)), "{reason}: {error}");
        let message = error.to_string();
        assert!(message.starts_with(&format!("byte {at_byte}: ")), "{reason}: {message}");
        assert!(!message.ends_with('.') && message.contains(';'), "{reason}: {message}");
    }
}

#[test]
fn every_file_has_its_case() {
    FILES.assert_are(cases().iter().map(|case| (case.reason, &case.bytes[..])));
}

#[test]
#[ignore = "writes the files that the others read: run it after a change of the cases"]
fn write_files() {
    FILES.write(cases().iter().map(|case| (case.reason, &case.bytes[..])));
}

#[test]
fn a_directory_is_refused_with_a_hint() {
    match PerfData::open(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        Err(ImportError::Unsupported { at_byte: 0, todo, .. }) => {
            assert!(todo.contains("--threads"))
        }
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_missing_file_is_named() {
    match PerfData::open(&FILES.path("no_such_file")) {
        Err(ImportError::Open { path: named, .. }) => assert_eq!(named, FILES.path("no_such_file")),
        other => panic!("{:?}", other.err()),
    }
}

/// Damage that leaves something to import is reported as a doubt, not as an error.
#[test]
fn damaged_samples_are_doubts() {
    let mut writer = recording();
    // Raw data that claims to be longer than the sample, and a sample whose parts are cut.
    let (sample, rest) = writer.records.split_at(72);
    let (mut long, rest) = (sample.to_vec(), rest.to_vec());
    long[56..60].copy_from_slice(&u32::MAX.to_le_bytes());
    writer.records = [long, rest].concat();
    writer.record(SAMPLE, 0, &20u64.to_le_bytes());
    let mut event_count = 0;
    let data = PerfData::from_bytes(writer.file().0).unwrap();
    let summary = data.read(&|_| {}, &mut |events: &[Event]| event_count += events.len()).unwrap();
    assert_eq!((event_count, summary.undecodable_count, summary.truncated), (1, 2, None));

    // A compressed stream with a window that no recorder uses.
    let mut writer = recording();
    let at = writer.records.len();
    writer.record(perf_writer::COMPRESSED, 0, b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00\x00\x00\x00");
    let (bytes, layout) = writer.file();
    let summary = PerfData::from_bytes(bytes).unwrap().read(&|_| {}, &mut |_| {}).unwrap();
    let truncated = summary.truncated.unwrap();
    assert_eq!(truncated.reason, TruncationReason::BrokenCompression);
    assert_eq!(truncated.at_byte, (layout.data + at) as u64);
}
