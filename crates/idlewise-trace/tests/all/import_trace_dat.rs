//! trace.dat files of every form that trace-cmd writes, small enough to check by hand.

use crate::trace_dat_writer;

use std::collections::BTreeMap;

use idlewise_machine::{Arch, MachineState};
use idlewise_trace::import::trace_dat::TraceDat;
use idlewise_trace::import::{ImportError, ReadSummary, Recording, TruncationReason};
use idlewise_trace::{
    Doubt, Driver, Event, EventKind, IdleGap, MachineNote, NOTE_VERSION, NotedTable,
    RecordedMachine, Tracepoints, convert,
};
use proptest::prelude::*;
use trace_dat_writer::{
    BIG, CYCLE_SCALE, LITTLE, Machine, OFFSET, Packing, Page, TRACE_CLOCK, TraceDatWriter,
};

const MACHINES: [Machine; 2] = [LITTLE, BIG];
const SHAPES: [(&str, Packing); 4] =
    [("6", Packing::None), ("7", Packing::None), ("7", Packing::Zstd), ("7", Packing::Zlib)];

fn import(bytes: Vec<u8>) -> (Vec<Event>, ReadSummary) {
    let mut events = Vec::new();
    let data = TraceDat::from_bytes(bytes).unwrap();
    let summary = data.read(&|_| {}, &mut |slice| events.extend_from_slice(slice)).unwrap();
    (events, summary)
}

fn event(at_ns: i64, cpu: u16, kind: EventKind) -> Event {
    Event { at_ns, cpu, kind }
}

fn entry(at_ns: i64, cpu: u16) -> Event {
    event(at_ns, cpu, EventKind::IdleEntry { state: 1 })
}

fn exit(at_ns: i64, cpu: u16) -> Event {
    event(at_ns, cpu, EventKind::IdleExit)
}

/// Two CPUs whose events interleave.
fn pages(machine: Machine) -> [Vec<Page>; 2] {
    let cpu_0 = vec![
        Page::new(machine, 90)
            .idle_entry(100, 0, 1)
            .irq_handler(150, "virtio0-input.0")
            .idle_exit(160, 0),
        Page::new(machine, 200).hrtimer_start(200, 9_000, 8_000).other(210),
        Page::new(machine, 1 << 40).idle_entry((1 << 40) + 7, 0, 1),
    ];
    let cpu_1 = vec![
        Page::new(machine, 110).idle_entry(110, 1, 1).other(120).irq_handler(155, "arch_timer"),
        Page::new(machine, 156).idle_exit(156, 1),
        Page::new(machine, 250).hrtimer_start(300, 9_500, 9_500),
    ];
    [cpu_0, cpu_1]
}

fn writer(machine: Machine, version: &'static str, packing: Packing) -> TraceDatWriter {
    let mut writer = TraceDatWriter::new(machine, version);
    writer.packing = packing;
    let [cpu_0, cpu_1] = pages(machine);
    writer.buffer("", &[&cpu_0, &cpu_1]);
    writer
}

fn events() -> Vec<Event> {
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
        event(150, 0, EventKind::DeviceInterrupt),
        event(155, 1, EventKind::TimerInterrupt),
        exit(156, 1),
        exit(160, 0),
        event(200, 0, start(9_000, true)),
        event(300, 1, start(9_500, false)),
        entry((1 << 40) + 7, 0),
    ]
}

#[test]
fn every_version_packing_byte_order_and_word_size_gives_the_same_events() {
    for machine in MACHINES {
        for (version, packing) in SHAPES {
            let bytes = writer(machine, version, packing).file().bytes;
            let hash = blake3::hash(&bytes).to_hex().to_string();
            let (found, summary) = import(bytes);
            assert_eq!(found, events(), "{machine:?} {version} {packing:?}");
            assert_eq!((summary.event_count, summary.record_count), (9, 11));
            assert_eq!(summary.undecodable_count, 0);
            assert_eq!(summary.truncated, None, "{machine:?} {version} {packing:?}");
            assert_eq!(summary.out_of_order_count, 0);
            assert_eq!(summary.lost_event_counts, BTreeMap::new());
            assert_eq!(summary.source_blake3, hash);
            assert_eq!((summary.first_at_ns, summary.last_at_ns), (Some(100), Some((1 << 40) + 7)));
        }
    }
}

#[test]
fn info_tells_machine_and_clock() {
    for (version, packing) in SHAPES {
        let bytes = writer(LITTLE, version, packing).file().bytes;
        let file_byte_count = bytes.len() as u64;
        let data = TraceDat::from_bytes(bytes).unwrap();
        let info = data.info();
        assert_eq!(info.kernel.as_deref(), Some("6.18.44"));
        assert_eq!(info.arch.as_deref(), Some("x86_64"));
        assert_eq!(info.cpu_count, Some(2));
        assert_eq!(info.clock.as_deref(), Some("CLOCK_MONOTONIC"));
        assert_eq!(info.file_byte_count, file_byte_count);
        let recorded =
            Tracepoints::CPU_IDLE.union(Tracepoints::HRTIMER_START).union(Tracepoints::IRQ_HANDLER);
        assert_eq!(info.tracepoints, recorded);
        assert!(info.doubts.is_empty(), "{:?}", info.doubts);
    }
}

/// All kinds of time words in a page, one after the other.
#[test]
fn times_are_extended_stamped_and_survive_what_was_taken_back() {
    for machine in MACHINES {
        let late = 5 << 59 | 3 << 40;
        let page = Page::new(machine, 5 << 59)
            .time_extend(1 << 35)
            .idle_entry((5 << 59) + (1 << 35) + 1, 0, 1)
            .discarded(12)
            .time_stamp(late)
            .idle_exit(late + 2, 0)
            .padding(24);
        let mut writer = TraceDatWriter::new(machine, "7");
        writer.buffer("", &[&[page]]);
        let (found, summary) = import(writer.file().bytes);
        let start = 5i64 << 59;
        assert_eq!(found, [entry(start + (1 << 35) + 1, 0), exit(start + (3 << 40) + 2, 0)]);
        assert_eq!((summary.record_count, summary.truncated), (2, None));
    }
}

#[test]
fn lost_events_are_counted_by_cpu_and_come_before_their_page() {
    for machine in MACHINES {
        for (version, packing) in SHAPES {
            let mut writer = TraceDatWriter::new(machine, version);
            writer.packing = packing;
            let cpu_0 = [
                Page::new(machine, 100).idle_entry(100, 0, 1),
                Page::new(machine, 200).idle_exit(210, 0).lost(41, true),
            ];
            let cpu_1 = [Page::new(machine, 50).idle_entry(300, 1, 1).lost(0, false)];
            writer.buffer("", &[&cpu_0, &cpu_1]);
            let (found, summary) = import(writer.file().bytes);
            let lost = |event_count| EventKind::Lost { event_count };
            let expected = [
                event(50, 1, lost(1)),
                entry(100, 0),
                event(200, 0, lost(41)),
                exit(210, 0),
                entry(300, 1),
            ];
            assert_eq!(found, expected);
            assert_eq!(summary.lost_event_counts, BTreeMap::from([(0, 41), (1, 1)]));
        }
    }
}

#[test]
fn pages_of_larger_sub_buffers_are_read_whole() {
    for (version, packing) in SHAPES {
        // The kernel describes larger pages than the recorder says the machine has.
        let large = Machine { page_byte_count: 4096, ..LITTLE };
        let mut page = Page::new(large, 0);
        for index in 0..100 {
            page = page.idle_entry(index * 10, 0, 1);
        }
        let mut writer = TraceDatWriter::new(large, version);
        writer.packing = packing;
        writer.buffer("", &[&[page]]);
        let mut bytes = writer.file().bytes;
        assert_eq!(bytes[14..18], 4096u32.to_le_bytes());
        bytes[14..18].copy_from_slice(&1024u32.to_le_bytes());
        assert_eq!(import(bytes).0.len(), 100, "version {version}");
    }
}

#[test]
fn instances_are_merged_and_what_two_recorded_counts_once() {
    for version in ["6", "7"] {
        let mut writer = TraceDatWriter::new(LITTLE, version);
        let [cpu_0, cpu_1] = pages(LITTLE);
        // The machine's own buffer has CPU 0, one instance CPU 1, another one the same again.
        writer.buffer("", &[&cpu_0, &[]]).buffer("one", &[&[], &cpu_1]);
        writer.buffer("two", &[&cpu_0, &cpu_1]);
        let (found, summary) = import(writer.file().bytes);
        assert_eq!(found, events());
        assert_eq!((summary.event_count, summary.record_count), (9, 22));
    }
}

#[test]
fn of_several_clocks_the_one_with_idle_events_is_imported() {
    let mut writer = TraceDatWriter::new(LITTLE, "7");
    let [cpu_0, _] = pages(LITTLE);
    writer.buffer("", &[&[Page::new(LITTLE, 5).other(7)]]).buffer("idle", &[&cpu_0]);
    writer.buffers[0].clock = "local";
    let bytes = writer.file().bytes;
    let data = TraceDat::from_bytes(bytes.clone()).unwrap();
    assert_eq!(data.info().clock.as_deref(), Some("CLOCK_MONOTONIC"));
    let [doubt] = &data.info().doubts[..] else { panic!("{:?}", data.info().doubts) };
    let Doubt::BuffersLeftOut { buffers, .. } = doubt else { panic!("{doubt}") };
    assert_eq!(buffers, "the main buffer");
    let (found, summary) = import(bytes);
    assert_eq!((found.len(), summary.record_count), (5, 6));
}

#[test]
fn cycles_become_nanoseconds_and_display_offsets_do_not_count() {
    for version in ["6", "7"] {
        let mut writer = TraceDatWriter::new(LITTLE, version);
        let cpu_0 = [Page::new(LITTLE, 1_000).idle_entry(3_000, 0, 1).idle_exit(5_000, 0)];
        writer.buffer("", &[&cpu_0]);
        writer.buffers[0].clock = "x86-tsc";
        writer.options.retain(|(number, _)| *number != TRACE_CLOCK);
        writer.options.push((TRACE_CLOCK, b"local [x86-tsc]\0".to_vec()));
        writer.options.push((OFFSET, b"12345\0".to_vec()));
        match TraceDat::from_bytes(writer.file().bytes) {
            Err(ImportError::Unsupported { found, .. }) => assert!(found.contains("x86-tsc")),
            other => panic!("{:?}", other.err()),
        }
        // Half a nanosecond per cycle.
        let scale = [1u32.to_le_bytes(), 1u32.to_le_bytes(), [0; 4], [0; 4]].concat();
        writer.options.push((CYCLE_SCALE, scale));
        let data = TraceDat::from_bytes(writer.file().bytes).unwrap();
        assert!(
            data.info().doubts[0].to_string().contains("`x86-tsc`"),
            "{:?}",
            data.info().doubts
        );
        assert_eq!(import(writer.file().bytes).0, [entry(1_500, 0), exit(2_500, 0)]);
    }
}

#[test]
fn clocks_that_are_not_the_timers_are_doubted_or_refused() {
    let with_clock = |clock| {
        let mut writer = writer(LITTLE, "7", Packing::None);
        writer.buffers[0].clock = clock;
        TraceDat::from_bytes(writer.file().bytes)
    };
    for clock in ["local", "global", "perf", "boot", "mono_raw", "tai", "newest"] {
        let doubts = with_clock(clock).unwrap().info().doubts.clone();
        assert!(
            doubts[0].to_string().starts_with(&format!("the clock `{clock}` is")),
            "{doubts:?}"
        );
    }
    for clock in ["counter", "uptime", "ppc-tb"] {
        match with_clock(clock) {
            Err(ImportError::Unsupported { found, todo, .. }) => {
                assert!(found.contains(clock) && todo.contains("-C mono"), "{found}; {todo}");
            }
            other => panic!("{clock}: {:?}", other.err()),
        }
    }
}

#[test]
fn a_clock_that_steps_back_is_counted() {
    let mut writer = TraceDatWriter::new(LITTLE, "6");
    let cpu_0 = [
        Page::new(LITTLE, 500).idle_entry(500, 0, 1),
        Page::new(LITTLE, 300).idle_exit(300, 0).idle_entry(600, 0, 1),
    ];
    writer.buffer("", &[&cpu_0]);
    let (found, summary) = import(writer.file().bytes);
    assert_eq!(found, [entry(500, 0), exit(500, 0), entry(600, 0)]);
    assert_eq!(summary.out_of_order_count, 1);
}

#[test]
fn broken_pages_and_records_cost_no_more_than_themselves() {
    for (version, packing) in SHAPES {
        let mut writer = TraceDatWriter::new(LITTLE, version);
        writer.packing = packing;
        let mut cut_record = Page::new(LITTLE, 200).idle_exit(200, 0);
        cut_record.word(20, 5);
        let cpu_0 = [
            Page::new(LITTLE, 100).idle_entry(100, 0, 1).without_format(110),
            cut_record,
            Page::new(LITTLE, 300).idle_entry(300, 0, 1),
            Page::new(LITTLE, 400).idle_exit(400, 0),
        ];
        writer.buffer("", &[&cpu_0]);
        // A commit value larger than the page.
        writer.buffers[0].cpus[0].1[2][8..10].copy_from_slice(&5000u16.to_le_bytes());
        let (found, summary) = import(writer.file().bytes);
        let lost = event(400, 0, EventKind::Lost { event_count: 1 });
        assert_eq!(found, [entry(100, 0), exit(200, 0), lost, exit(400, 0)], "{version}");
        assert_eq!(summary.undecodable_count, 1);
        let truncated = summary.truncated.unwrap();
        assert_eq!(truncated.reason, TruncationReason::BrokenRecord);
        assert_eq!(truncated.lost_byte_count, 4 + 512);
    }
}

#[test]
fn a_broken_chunk_costs_its_pages() {
    for packing in [Packing::Zstd, Packing::Zlib] {
        let mut writer = TraceDatWriter::new(LITTLE, "7");
        writer.packing = packing;
        let pages: Vec<Page> = (0..6)
            .map(|index| Page::new(LITTLE, index * 100).idle_entry(index * 100, 0, 1))
            .collect();
        writer.buffer("", &[&pages]);
        let whole = writer.file();
        // In the middle of the second of three chunks.
        let first = writer.pack(&[pages[0].bytes(), pages[1].bytes()].concat());
        let at = (whole.buffers_at[0] + 16).next_multiple_of(512) + 4 + first.len();
        let mut bytes = whole.bytes;
        bytes[at + 12..at + 20].fill(0xff);
        let (found, summary) = import(bytes);
        let times: Vec<i64> = found.iter().map(|event| event.at_ns).collect();
        assert_eq!(times, [0, 100, 400, 400, 500], "{packing:?}");
        assert!(matches!(found[2].kind, EventKind::Lost { .. }));
        let truncated = summary.truncated.unwrap();
        assert_eq!(
            (truncated.reason, truncated.at_byte),
            (TruncationReason::BrokenCompression, at as u64)
        );
    }
}

#[test]
fn impossible_cpus_and_shared_places_are_counted_as_lost() {
    let mut writer = writer(LITTLE, "7", Packing::None);
    writer.buffers[0].cpus[1].0 = 70_000;
    let (found, summary) = import(writer.file().bytes);
    assert_eq!(found.len(), 5);
    let truncated = summary.truncated.unwrap();
    assert_eq!(
        (truncated.reason, truncated.lost_byte_count),
        (TruncationReason::BrokenRecord, 1536)
    );
}

#[test]
fn what_would_not_fit_into_bounded_memory_is_refused() {
    for (packing, cpu_count, page_byte_count, hint) in [
        (Packing::None, 300, 1 << 20, "smaller sub-buffers"),
        (Packing::Zstd, 1_100, 1 << 16, "trace-cmd convert --compression none"),
    ] {
        let mut writer = TraceDatWriter::new(LITTLE, "7");
        writer.packing = packing;
        let page = [Page::new(LITTLE, 100).idle_entry(100, 0, 1)];
        writer.buffer("", &vec![&page[..]; cpu_count]);
        writer.buffers[0].page_byte_count = page_byte_count;
        match TraceDat::from_bytes(writer.file().bytes) {
            Err(ImportError::Unsupported { found, todo, .. }) => {
                assert!(found.starts_with(&format!("{cpu_count} CPUs")), "{found}");
                assert!(todo.contains(hint), "{todo}");
            }
            other => panic!("{packing:?}: {:?}", other.err()),
        }
    }
}

/// The result for a cut file: a clear error of one line, or what is missing and how much.
fn assert_cut_is_told(whole: &[u8], byte_count: usize) {
    match TraceDat::from_bytes(whole[..byte_count].to_vec()) {
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("byte "), "cut at {byte_count}: {message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
        Ok(data) => {
            let mut last_at_ns = i64::MIN;
            let sink = &mut |events: &[Event]| {
                for event in events {
                    assert!(event.at_ns >= last_at_ns);
                    last_at_ns = event.at_ns;
                }
            };
            let truncated = data.read(&|_| {}, sink).unwrap().truncated;
            let truncated =
                truncated.unwrap_or_else(|| panic!("cut at {byte_count}: no word of it"));
            assert!(truncated.at_byte <= byte_count as u64);
            assert!(truncated.lost_byte_count > 0, "cut at {byte_count}");
        }
    }
}

#[test]
fn a_file_that_is_cut_anywhere_says_so() {
    for machine in MACHINES {
        for (version, packing) in SHAPES {
            let whole = writer(machine, version, packing).file();
            // After the last pages nothing is needed, or only a section that we do not read.
            let needed = match version {
                "6" => whole.bytes.len(),
                _ => whole.boundaries[whole.boundaries.len() - 2],
            };
            for &boundary in &whole.boundaries {
                for byte_count in [boundary.saturating_sub(1), boundary, boundary + 1] {
                    if byte_count < needed {
                        assert_cut_is_told(&whole.bytes, byte_count);
                    }
                }
            }
            for byte_count in (0..needed).step_by(67) {
                assert_cut_is_told(&whole.bytes, byte_count);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Overwritten bytes anywhere: an error, or events in order, but never a panic.
    #[test]
    fn damaged_files_are_read_as_far_as_they_go(
        shape in 0..SHAPES.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let (version, packing) = SHAPES[shape];
        let mut bytes = writer(LITTLE, version, packing).file().bytes;
        for (index, byte) in damage {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(data) = TraceDat::from_bytes(bytes) {
            let mut last_at_ns = i64::MIN;
            let sink = &mut |events: &[Event]| {
                for event in events {
                    assert!(event.at_ns >= last_at_ns);
                    last_at_ns = event.at_ns;
                }
            };
            data.read(&|_| {}, sink).unwrap();
        }
    }

    /// However the events are spread over CPUs and pages, they are returned in order and complete.
    #[test]
    fn many_cpus_are_merged_in_order(
        times in prop::collection::vec((0u32..5, 0u64..1_000_000_000, any::<bool>()), 0..200),
        shape in 0..SHAPES.len(),
    ) {
        let (version, packing) = SHAPES[shape];
        let mut cpus: Vec<Vec<Page>> = vec![Vec::new(); 5];
        let mut sorted = times.clone();
        sorted.sort_by_key(|&(_, at, _)| at);
        for (cpu, at, new_page) in sorted {
            let pages = &mut cpus[cpu as usize];
            if new_page || pages.last().is_none_or(|page| page.data.len() > 400) {
                pages.push(Page::new(LITTLE, at));
            }
            let page = pages.pop().unwrap().idle_entry(at, cpu, 1);
            pages.push(page);
        }
        let mut writer = TraceDatWriter::new(LITTLE, version);
        writer.packing = packing;
        let slices: Vec<&[Page]> = cpus.iter().map(Vec::as_slice).collect();
        writer.buffer("", &slices);
        let (mut found, summary) = import(writer.file().bytes);
        prop_assert_eq!(summary.out_of_order_count, 0);
        prop_assert!(found.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
        let mut expected: Vec<Event> =
            times.iter().map(|&(cpu, at, _)| entry(at as i64, cpu as u16)).collect();
        let key = |event: &Event| (event.at_ns, event.cpu);
        found.sort_by_key(key);
        expected.sort_by_key(key);
        prop_assert_eq!(found, expected);
    }
}

/// The option with the name of the program that wrote the trace.dat.
const WRITER: u16 = 9;

fn noted(note: &MachineNote) -> TraceDatWriter {
    let mut writer = TraceDatWriter::new(LITTLE, "6");
    let pages = |cpu: u32| {
        let page = Page::new(LITTLE, 1_000_000);
        let page = page.idle_entry(1_000_000, cpu, 1).irq_handler(1_900_000, "virtio0-input.0");
        vec![page.idle_exit(1_900_010, cpu).idle_entry(2_000_000, cpu, 1)]
    };
    writer.buffer("", &[&pages(0), &pages(1)]);
    writer.options.push((WRITER, note.to_bytes()));
    writer
}

#[test]
fn fills_the_log_from_the_note_of_our_recorder() {
    let machine = |id: &str, exit_latency_ns| {
        let mut machine = idlewise_machine::Machine::new(id, "A machine", Arch::X86, "captured");
        let state =
            |name, exit_latency_ns| MachineState::new(name, exit_latency_ns, exit_latency_ns);
        machine.states = vec![state("C0", 0), state("C1", exit_latency_ns)];
        machine
    };
    let table = |cpu: u16, exit_latency_ns| NotedTable {
        cpus: vec![cpu],
        machine: machine(&format!("recorded-cpu{cpu}"), exit_latency_ns),
    };
    let note = MachineNote {
        note_version: NOTE_VERSION,
        command: "idlewise record -d 1".to_owned(),
        cpu_model: Some("A model".to_owned()),
        hz: Some(300),
        driver: Some(Driver::named("intel_idle")),
        governor: Some("teo".to_owned()),
        tables: vec![table(0, 100_000), table(1, 250_000)],
        latency_limits_ns: [(1, 20_000)].into(),
        ..MachineNote::default()
    };
    let convert_with = |note: &MachineNote, recorded: &RecordedMachine| {
        let data = TraceDat::from_bytes(noted(note).file().bytes).unwrap();
        let (mut gaps, metadata) = convert(data, Vec::<IdleGap>::new(), recorded, &|_| {}).unwrap();
        gaps.sort_by_key(|gap| (gap.cpu, gap.start_ns));
        (gaps, metadata)
    };
    let (gaps, metadata) = convert_with(&note, &RecordedMachine::default());
    // Each CPU's own exit latency is subtracted, and its own limit applies.
    let first: Vec<_> =
        gaps.iter().map(|gap| (gap.cpu, gap.gap_ns, gap.latency_limit_ns)).collect();
    assert_eq!(first, [(0, 800_000, None), (1, 650_000, Some(20_000))]);
    assert_eq!(metadata.hz, Some(300));
    assert_eq!(metadata.driver, Some(Driver::named("intel_idle")));
    assert_eq!(metadata.governor.as_deref(), Some("teo"));
    assert_eq!(metadata.cpu_model.as_deref(), Some("A model"));
    assert_eq!(metadata.machine.unwrap().id, "recorded-cpu0");
    assert_eq!(metadata.source.command.as_deref(), Some("idlewise record -d 1"));
    assert!(!metadata.unknown_columns.contains(&"latency_limit_ns".to_owned()));
    let has_doubt =
        |words: &str| metadata.doubts.iter().any(|doubt| doubt.to_string().contains(words));
    assert!(has_doubt("2 kinds of idle states"), "{:?}", metadata.doubts);

    // What the caller says overrides the note.
    let said = RecordedMachine {
        governor: Some("menu".to_owned()),
        machine: Some(machine("said", 1_000)),
    };
    let (gaps, metadata) = convert_with(&note, &said);
    assert_eq!(gaps.iter().map(|gap| gap.gap_ns).collect::<Vec<_>>(), [899_000; 2]);
    assert_eq!(metadata.governor.as_deref(), Some("menu"));
    assert_eq!(metadata.machine.unwrap().id, "said");

    // A limit that changed is unknown.
    let changed =
        MachineNote { limits_changed: true, latency_limits_ns: Default::default(), ..note };
    let (gaps, metadata) = convert_with(&changed, &RecordedMachine::default());
    assert!(gaps.iter().all(|gap| gap.latency_limit_ns.is_none()));
    assert!(metadata.unknown_columns.contains(&"latency_limit_ns".to_owned()));
}

#[test]
fn takes_no_note_from_another_writer() {
    let mut writer = noted(&MachineNote::default());
    writer.options.retain(|(number, _)| *number != WRITER);
    writer.options.push((WRITER, b"3.2.1 (a1b2c3)\0".to_vec()));
    assert_eq!(TraceDat::from_bytes(writer.file().bytes).unwrap().info().machine_note, None);
}
