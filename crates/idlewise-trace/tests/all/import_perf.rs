//! perf.data files of every form that perf writes, small enough to check by hand.

use crate::perf_writer;

use std::collections::BTreeMap;

use idlewise_trace::import::perf::PerfData;
use idlewise_trace::import::{ReadSummary, Recording, TruncationReason};
use idlewise_trace::{ByteOrder, Event, EventKind, Tracepoints};
use perf_writer::{
    AUXTRACE, CALLCHAIN, COMPRESSED, COMPRESSED2, CPU, FINISHED_ROUND, ID, IDENTIFIER, PerfWriter,
    RAW, READ, SAMPLE_TYPE, TIME,
};
use proptest::prelude::*;

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

fn import(bytes: Vec<u8>) -> (Vec<Event>, ReadSummary) {
    let mut events = Vec::new();
    let data = PerfData::from_bytes(bytes).unwrap();
    let summary = data.read(&|_| {}, &mut |slice| events.extend_from_slice(slice)).unwrap();
    (events, summary)
}

fn entry(at_ns: i64, cpu: u16) -> Event {
    Event { at_ns, cpu, kind: EventKind::IdleEntry { state: 1 } }
}

fn exit(at_ns: i64, cpu: u16) -> Event {
    Event { at_ns, cpu, kind: EventKind::IdleExit }
}

/// Two CPUs, two rounds: CPU 1's buffer is written after CPU 0's, with older events.
fn two_rounds(order: ByteOrder) -> PerfWriter {
    let mut writer = PerfWriter::new(order);
    write_two_rounds(&mut writer);
    writer
}

fn write_two_rounds(writer: &mut PerfWriter) {
    writer.idle_entry(100, 0, 1);
    writer.irq_handler(150, 0, "virtio0-input.0");
    writer.idle_exit(160, 0);
    writer.idle_entry(110, 1, 1);
    writer.other(120, 1);
    writer.round();
    writer.hrtimer_start(200, 0, 9_000, 8_000);
    writer.irq_handler(155, 1, "arch_timer");
    writer.idle_exit(156, 1);
    writer.round();
    writer.hrtimer_start(300, 1, 9_500, 9_500);
}

fn two_rounds_events() -> Vec<Event> {
    let (timer, function) = (0xffff_8880_0000_1000, 0xffff_ffff_8142_01c0);
    let start = |expires_at_ns, has_slack| EventKind::HrtimerStart {
        timer,
        function,
        expires_at_ns,
        has_slack,
    };
    vec![
        entry(100, 0),
        entry(110, 1),
        Event { at_ns: 150, cpu: 0, kind: EventKind::DeviceInterrupt },
        Event { at_ns: 155, cpu: 1, kind: EventKind::TimerInterrupt },
        exit(156, 1),
        exit(160, 0),
        Event { at_ns: 200, cpu: 0, kind: start(9_000, true) },
        Event { at_ns: 300, cpu: 1, kind: start(9_500, false) },
    ]
}

#[test]
fn files_and_pipes_of_both_byte_orders_give_the_same_events() {
    for order in ORDERS {
        let writer = two_rounds(order);
        for bytes in [writer.file().0, writer.pipe().0] {
            let hash = blake3::hash(&bytes).to_hex().to_string();
            let (events, summary) = import(bytes);
            assert_eq!(events, two_rounds_events(), "{order:?}");
            assert_eq!(summary.event_count, 8);
            assert_eq!(summary.out_of_order_count, 0);
            assert_eq!(summary.undecodable_count, 0);
            assert_eq!(summary.truncated, None);
            assert_eq!(summary.source_blake3, hash);
            assert_eq!((summary.first_at_ns, summary.last_at_ns), (Some(100), Some(300)));
        }
        assert_eq!(import(writer.file().0).1.record_count, 11);
    }
}

#[test]
fn info_tells_machine_and_clock() {
    for order in ORDERS {
        let mut writer = two_rounds(order);
        for (clock_id, clock) in
            [(Some(1), "CLOCK_MONOTONIC"), (None, "perf"), (Some(9), "clock 9")]
        {
            writer.clock_id = clock_id;
            for bytes in [writer.file().0, writer.pipe().0] {
                let file_byte_count = bytes.len() as u64;
                let data = PerfData::from_bytes(bytes).unwrap();
                let info = data.info();
                assert_eq!(info.kernel.as_deref(), Some("6.18.44"));
                assert_eq!(info.arch.as_deref(), Some("x86_64"));
                assert_eq!(info.cpu_model.as_deref(), Some("Intel(R) Xeon(R) Processor"));
                assert_eq!(info.cpuid.as_deref(), Some("GenuineIntel,6,167,1"));
                assert_eq!(info.cpu_count, Some(2));
                assert_eq!(info.cmdline.as_deref(), Some("perf record"));
                assert_eq!(info.clock.as_deref(), Some(clock));
                assert_eq!(info.file_byte_count, file_byte_count);
                let recorded = Tracepoints::CPU_IDLE
                    .union(Tracepoints::HRTIMER_START)
                    .union(Tracepoints::IRQ_HANDLER);
                assert_eq!(info.tracepoints, recorded);
            }
        }
    }
}

#[test]
fn tracepoints_that_were_only_sampled_are_named() {
    let mut writer = two_rounds(ByteOrder::Little);
    let sampled = |writer: &PerfWriter| {
        PerfData::from_bytes(writer.file().0).unwrap().info().sampled_tracepoints.clone()
    };
    assert!(sampled(&writer).is_empty());
    writer.sample_period = 100;
    let names = ["power:cpu_idle", "timer:hrtimer_start", "irq:irq_handler_entry"];
    assert_eq!(sampled(&writer), names);
}

#[test]
fn compressed_records_may_straddle_frames() {
    for order in ORDERS {
        for kind in [COMPRESSED, COMPRESSED2] {
            for packed_byte_count in [3, 17, 4096] {
                let mut writer = two_rounds(order);
                writer.compress(kind, packed_byte_count);
                let (events, summary) = import(writer.file().0);
                assert_eq!(events, two_rounds_events(), "{order:?} {kind} {packed_byte_count}");
                assert_eq!(summary.truncated, None);
            }
        }
    }
}

#[test]
fn samples_with_counter_values_and_call_chains_are_read() {
    for sample_type in [SAMPLE_TYPE | READ, SAMPLE_TYPE | CALLCHAIN, SAMPLE_TYPE | READ | CALLCHAIN]
    {
        let mut writer = PerfWriter::new(ByteOrder::Little);
        writer.sample_type = sample_type;
        write_two_rounds(&mut writer);
        assert_eq!(import(writer.file().0).0, two_rounds_events());
    }
}

#[test]
fn events_are_told_apart_by_id_where_there_is_no_identifier() {
    let mut writer = PerfWriter::new(ByteOrder::Little);
    writer.sample_type = SAMPLE_TYPE & !IDENTIFIER | ID;
    write_two_rounds(&mut writer);
    assert_eq!(import(writer.file().0).0, two_rounds_events());
}

#[test]
fn a_single_event_needs_no_id() {
    let mut writer = PerfWriter::new(ByteOrder::Little);
    writer.recorded = 0..1;
    writer.sample_type = TIME | CPU | RAW;
    writer.idle_entry(100, 0, 1);
    writer.idle_exit(200, 0);
    assert_eq!(import(writer.file().0).0, [entry(100, 0), exit(200, 0)]);
}

#[test]
fn lost_events_are_counted_and_have_their_place() {
    for order in ORDERS {
        let mut writer = PerfWriter::new(order);
        writer.idle_entry(100, 0, 1);
        writer.lost(150, 0, 7);
        writer.lost(170, 1, 5);
        writer.idle_exit(200, 0);
        // Samples that a filter removed are not lost.
        writer.lost_samples(1 << 15, 180, 1, 99);
        let lost =
            |at_ns, cpu, event_count| Event { at_ns, cpu, kind: EventKind::Lost { event_count } };
        let (events, summary) = import(writer.file().0);
        assert_eq!(events, [entry(100, 0), lost(150, 0, 7), lost(170, 1, 5), exit(200, 0)]);
        assert_eq!(summary.lost_event_counts, BTreeMap::from([(0, 7), (1, 5)]));

        // perf's sum over the whole recording, without a time: two more than the kernel reported.
        writer.lost_samples(0, 0, 0, 4);
        writer.lost_samples(0, 0, 0, 5);
        writer.lost_samples(0, 0, 1, 5);
        let (events, summary) = import(writer.file().0);
        assert_eq!(events.last(), Some(&lost(200, 0, 2)));
        assert_eq!(events.len(), 5);
        assert_eq!(summary.lost_event_counts, BTreeMap::from([(0, 9), (1, 5)]));
        assert_eq!(summary.lost_event_count_without_cpu, 0);
    }
}

#[test]
fn losses_of_unknown_cpus_are_counted_apart() {
    let mut writer = PerfWriter::new(ByteOrder::Little);
    writer.has_sample_id_all = false;
    writer.idle_entry(100, 0, 1);
    writer.lost(150, 0, 7);
    let (events, summary) = import(writer.file().0);
    assert_eq!(events, [entry(100, 0)]);
    assert_eq!(summary.lost_event_counts, BTreeMap::new());
    assert_eq!(summary.lost_event_count_without_cpu, 7);
}

#[test]
fn a_clock_that_steps_back_is_counted_and_held() {
    let mut writer = PerfWriter::new(ByteOrder::Little);
    writer.idle_entry(1_000, 0, 1);
    writer.round();
    writer.round();
    writer.idle_exit(400, 0);
    writer.idle_entry(500, 0, 1);
    writer.round();
    writer.idle_exit(1_200, 0);
    let (events, summary) = import(writer.file().0);
    assert_eq!(events, [entry(1_000, 0), exit(1_000, 0), entry(1_000, 0), exit(1_200, 0)]);
    assert_eq!(summary.out_of_order_count, 2);
}

#[test]
fn hardware_trace_payloads_are_jumped_over() {
    let mut writer = PerfWriter::new(ByteOrder::Little);
    writer.idle_entry(100, 0, 1);
    let payload: Vec<u8> = (0..700_000).map(|index| (index % 251) as u8).collect();
    writer.auxtrace(&payload);
    writer.idle_exit(200, 0);
    let (events, summary) = import(writer.file().0);
    assert_eq!(events, [entry(100, 0), exit(200, 0)]);
    assert_eq!((summary.record_count, summary.truncated), (3, None));

    // If the payload is longer than the file, only the rest of the file is skipped.
    let at = writer.records.len() as u64;
    writer.record(AUXTRACE, 0, &u64::MAX.to_le_bytes());
    let (bytes, data_at) = writer.pipe();
    let file_byte_count = bytes.len() as u64;
    let (events, summary) = import(bytes);
    assert_eq!(events.len(), 2);
    let truncated = summary.truncated.unwrap();
    assert_eq!(truncated.at_byte, file_byte_count);
    assert_eq!(truncated.at_byte, data_at as u64 + at + 16);
    assert_eq!(truncated.lost_byte_count, u64::MAX);
}

#[test]
fn a_broken_record_ends_the_import_and_is_told() {
    let mut writer = two_rounds(ByteOrder::Little);
    let broken_at = writer.records.len();
    writer.records.extend([0; 16]);
    writer.idle_entry(400, 0, 1);
    let lost_byte_count = (writer.records.len() - broken_at) as u64;
    let (bytes, layout) = writer.file();
    let (events, summary) = import(bytes);
    assert_eq!(events, two_rounds_events());
    let truncated = summary.truncated.unwrap();
    assert_eq!(truncated.at_byte, (layout.data + broken_at) as u64);
    assert_eq!(truncated.lost_byte_count, lost_byte_count);
    assert_eq!(truncated.reason, TruncationReason::BrokenRecord);
}

#[test]
fn broken_compression_keeps_what_came_before() {
    let mut writer = two_rounds(ByteOrder::Little);
    let broken_at = writer.records.len();
    writer.record(COMPRESSED, 0, b"this is no zstd stream..");
    let (bytes, layout) = writer.file();
    let (events, summary) = import(bytes);
    assert_eq!(events, two_rounds_events());
    let truncated = summary.truncated.unwrap();
    assert_eq!(truncated.at_byte, (layout.data + broken_at) as u64);
    assert_eq!(truncated.reason, TruncationReason::BrokenCompression);
}

#[test]
fn samples_that_do_not_fit_are_counted() {
    let mut writer = PerfWriter::new(ByteOrder::Little);
    writer.idle_entry(100, 0, 1);
    // Raw data without the CPU, a CPU that no machine has, and a time out of range.
    writer.sample(0, 150, 0, &[0; 12]);
    writer.idle_entry(150, 1 << 16, 1);
    writer.idle_entry(u64::MAX, 0, 1);
    writer.idle_exit(200, 0);
    let (events, summary) = import(writer.file().0);
    assert_eq!(events, [entry(100, 0), exit(200, 0)]);
    assert_eq!(summary.undecodable_count, 3);
}

/// The file cut at every possible length.
#[test]
fn a_recording_cut_anywhere_is_imported_as_far_as_it_is_whole() {
    let mut events_before = 0;
    for order in ORDERS {
        let writer = two_rounds(order);
        let (bytes, data_at) = writer.pipe();
        for byte_count in 0..bytes.len() {
            let cut = bytes[..byte_count].to_vec();
            let Ok(data) = PerfData::from_bytes(cut) else {
                assert!(byte_count < data_at);
                continue;
            };
            let mut events = Vec::new();
            let summary = data.read(&|_| {}, &mut |slice| events.extend_from_slice(slice)).unwrap();
            assert!(events.iter().all(|event| two_rounds_events().contains(event)));
            assert_eq!(summary.undecodable_count, 0);
            if byte_count > data_at {
                let walked = whole_record_byte_count(&writer, byte_count - data_at);
                let expected = (byte_count > data_at + walked).then_some((data_at + walked) as u64);
                assert_eq!(summary.truncated.map(|cut| cut.at_byte), expected, "{byte_count}");
                events_before = events_before.max(events.len());
            }
        }
        let (bytes, layout) = writer.file();
        for byte_count in 0..bytes.len() {
            match PerfData::from_bytes(bytes[..byte_count].to_vec()) {
                // A file without all the formats that it needs is useless.
                Err(_) => assert!(byte_count < layout.tracing_data + 1_200),
                Ok(data) => {
                    let mut events = Vec::new();
                    let sink = &mut |slice: &[Event]| events.extend_from_slice(slice);
                    let summary = data.read(&|_| {}, sink).unwrap();
                    let truncated = summary.truncated.unwrap();
                    assert_eq!(truncated.at_byte, byte_count as u64);
                    assert_eq!(truncated.lost_byte_count, (bytes.len() - byte_count) as u64);
                }
            }
        }
    }
    assert_eq!(events_before, 7, "the last record is cut in every one");
}

fn whole_record_byte_count(writer: &PerfWriter, byte_count: usize) -> usize {
    let mut at = 0;
    while let Some(size) = writer.records.get(at + 6..at + 8) {
        let size = match writer.order {
            ByteOrder::Little => u16::from_le_bytes([size[0], size[1]]),
            ByteOrder::Big => u16::from_be_bytes([size[0], size[1]]),
        };
        if at + usize::from(size) > byte_count {
            break;
        }
        at += usize::from(size);
    }
    at
}

#[test]
fn progress_rises_to_the_end_of_the_records() {
    let mut writer = PerfWriter::new(ByteOrder::Little);
    for at_ns in 0..20_000 {
        writer.idle_entry(at_ns, 0, 1);
    }
    let (bytes, _) = writer.file();
    let file_byte_count = bytes.len() as u64;
    let seen = std::cell::RefCell::new(Vec::new());
    let data = PerfData::from_bytes(bytes).unwrap();
    data.read(&|byte_count| seen.borrow_mut().push(byte_count), &mut |_| {}).unwrap();
    let seen = seen.into_inner();
    assert!(seen.is_sorted());
    assert!(seen.len() > 2);
    assert_eq!(seen.last(), Some(&file_byte_count));
}

/// Compares with linux-perf-data, which can read any complete file.
#[test]
fn linux_perf_data_sees_the_same_samples() {
    use linux_perf_data::linux_perf_event_reader::EventRecord;
    use linux_perf_data::{PerfFileReader, PerfFileRecord};

    for order in ORDERS {
        // It needs the names of the events, which we do not write, to tell them apart.
        let mut writer = PerfWriter::new(order);
        writer.idle_entry(100, 0, 1);
        writer.irq_handler(150, 0, "virtio0-input.0");
        writer.idle_entry(110, 1, 1);
        writer.round();
        writer.hrtimer_start(155, 1, 9_000, 8_000);
        let (bytes, _) = writer.file();
        let reader = PerfFileReader::parse_file(std::io::Cursor::new(bytes.clone())).unwrap();
        let PerfFileReader { mut perf_file, mut record_iter } = reader;
        let mut theirs = Vec::new();
        while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
            let PerfFileRecord::EventRecord { record, .. } = record else { continue };
            if let EventRecord::Sample(sample) = record.parse().unwrap() {
                theirs.push((sample.timestamp.unwrap() as i64, sample.cpu.unwrap() as u16));
            }
        }
        let (events, _) = import(bytes);
        let ours: Vec<_> = events.iter().map(|event| (event.at_ns, event.cpu)).collect();
        assert_eq!(ours, theirs);
    }
}

proptest! {
    /// Compares with a sort of everything that was written, for a recorder that drains one buffer
    /// after the other while events continue.
    #[test]
    fn rounds_are_sorted_as_one(
        steps in prop::collection::vec((0u64..4, 0u32..3), 1..300),
        drains in prop::collection::vec(1usize..40, 1..60),
    ) {
        let mut writer = PerfWriter::new(ByteOrder::Little);
        let mut expected = Vec::new();
        let mut buffers: [Vec<u64>; 3] = Default::default();
        let mut now_ns = 1;
        let mut steps = steps.into_iter();
        let mut drains = drains.into_iter().cycle();
        let mut is_recording = true;
        while is_recording {
            for cpu in 0..3u32 {
                for (pause_ns, event_cpu) in steps.by_ref().take(drains.next().unwrap()) {
                    now_ns += pause_ns;
                    buffers[event_cpu as usize].push(now_ns);
                    expected.push(now_ns as i64);
                }
                for at_ns in buffers[cpu as usize].drain(..) {
                    writer.idle_entry(at_ns, cpu, 1);
                }
            }
            is_recording = steps.len() > 0 || buffers.iter().any(|buffer| !buffer.is_empty());
            writer.record(FINISHED_ROUND, 0, &[]);
        }
        let (events, summary) = import(writer.file().0);
        let times: Vec<i64> = events.iter().map(|event| event.at_ns).collect();
        prop_assert_eq!(times, expected);
        prop_assert_eq!(summary.out_of_order_count, 0);
    }
}

#[test]
#[ignore = "writes the fuzzer's seeds: run it after a change of the writer"]
fn write_fuzz_seeds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/perf_data");
    let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.join(name), bytes).unwrap();
    for (order, name) in [(ByteOrder::Little, "little"), (ByteOrder::Big, "big")] {
        let mut writer = two_rounds(order);
        writer.lost(310, 0, 7);
        writer.lost_samples(0, 0, 1, 9);
        writer.auxtrace(b"payload.");
        write(&format!("{name}_file"), writer.file().0);
        write(&format!("{name}_pipe"), writer.pipe().0);
        for (kind, kind_name) in [(COMPRESSED, "compressed"), (COMPRESSED2, "compressed2")] {
            let mut writer = two_rounds(order);
            writer.compress(kind, 100);
            write(&format!("{name}_{kind_name}"), writer.pipe().0);
        }
        let mut writer = PerfWriter::new(order);
        writer.sample_type = SAMPLE_TYPE | READ | CALLCHAIN;
        write_two_rounds(&mut writer);
        write(&format!("{name}_chains"), writer.file().0);
    }
}
