//! Perfetto traces of every form, whole and damaged, as events. The command's own tests show that a
//! whole recording gives the same gaps in this format.

use crate::perfetto_writer;

use idlewise_trace::import::perfetto::PerfettoTrace;
use idlewise_trace::import::{ReadSummary, Recording, TraceInfo, TruncationReason};
use idlewise_trace::{Doubt, Event, EventKind, Tracepoints};
use perfetto_writer::{
    CpuStats, FtraceStats, Packet, bundle, compact, compressed, event, file, snapshot, trace,
    trace_of_sources,
};

const IDLE: EventKind = EventKind::IdleEntry { state: 2 };

const TIMER: u64 = 0xffff_8881_0000_0040;
const WHEEL_TIMER: u64 = 0xffff_8881_0000_0080;
const FUNCTION: u64 = 0xffff_ffff_8112_0000;

fn at(at_ns: i64, cpu: u16, kind: EventKind) -> Event {
    Event { at_ns, cpu, kind }
}

fn packet(cpu: u16, events: &[(i64, EventKind)]) -> Packet {
    let events = events.iter().map(|&(at_ns, kind)| event(&at(at_ns, cpu, kind), at_ns as u64));
    bundle(cpu, events.flatten().collect())
}

fn import(packets: &[Packet]) -> (Vec<Event>, TraceInfo, ReadSummary) {
    import_bytes(file(packets))
}

fn import_bytes(bytes: Vec<u8>) -> (Vec<Event>, TraceInfo, ReadSummary) {
    let trace = PerfettoTrace::from_bytes(bytes).unwrap();
    let info = trace.info().clone();
    let mut events = Vec::new();
    let summary = trace.read(&|_| {}, &mut |some| events.extend_from_slice(some)).unwrap();
    assert_eq!(summary.event_count, events.len() as u64);
    assert!(events.is_sorted_by_key(|event| event.at_ns));
    (events, info, summary)
}

fn has_doubt(doubts: &[Doubt], words: &str) -> bool {
    doubts.iter().any(|doubt| doubt.to_string().contains(words))
}

/// One event of each kind in the schema.
fn all_kinds() -> Vec<Event> {
    let kinds = [
        IDLE,
        EventKind::TimerInterrupt,
        EventKind::HrtimerExpire { timer: TIMER, function: FUNCTION, now_ns: 1_004_900 },
        EventKind::IdleExit,
        EventKind::HrtimerStart {
            timer: TIMER,
            function: FUNCTION,
            expires_at_ns: 9_000_000,
            has_slack: true,
        },
        EventKind::HrtimerCancel { timer: TIMER },
        EventKind::WheelStart {
            timer: WHEEL_TIMER,
            bucket_jiffies: 1_000,
            ahead_jiffies: 10,
            flags: 3,
        },
        EventKind::WheelCancel { timer: WHEEL_TIMER },
        EventKind::WheelExpire { timer: WHEEL_TIMER, now_jiffies: 1_000 },
        EventKind::TickStop,
        EventKind::RescheduleInterrupt,
        EventKind::IpiInterrupt,
        EventKind::DeviceInterrupt,
        EventKind::Softirq { vector: 1 },
        EventKind::SwitchToTask,
        EventKind::Wakeup { target_cpu: 1 },
        EventKind::SwitchToIdle,
    ];
    let times = (0..).map(|i| 1_000_000 + 1_000 * i);
    kinds.into_iter().zip(times).map(|(kind, at_ns)| at(at_ns, 0, kind)).collect()
}

#[test]
fn every_kind_of_event_comes_back() {
    let events = all_kinds();
    let (read, info, summary) = import(&trace(&events, 0));
    assert_eq!(read, events);
    assert_eq!((summary.undecodable_count, summary.truncated), (0, None));
    assert_eq!(info.kernel.as_deref(), Some("6.18.44"));
    assert_eq!(info.arch.as_deref(), Some("x86_64"));
    assert_eq!((info.cpu_count, info.clock.as_deref()), (Some(1), Some("CLOCK_BOOTTIME")));
    assert_eq!(info.doubts, []);

    let mut packets = trace(&events, 0);
    for bundle in packets.iter_mut().filter_map(|packet| packet.ftrace_events.as_mut()) {
        compact(bundle);
    }
    assert_eq!(import(&packets).0, events, "with compact scheduling events");
    for with_zstd in [false, true] {
        assert_eq!(import(&compressed(&packets, with_zstd)).0, events, "compressed");
    }
}

#[test]
fn timers_are_moved_to_the_traces_clock() {
    const SUSPENDED_NS: i64 = 7_200_000_000_123;
    let (read, _, summary) = import(&trace(&all_kinds(), SUSPENDED_NS as u64));
    for (read, mut expected) in read.into_iter().zip(all_kinds()) {
        expected.at_ns += SUSPENDED_NS;
        match &mut expected.kind {
            EventKind::HrtimerStart { expires_at_ns, .. } => *expires_at_ns += SUSPENDED_NS,
            EventKind::HrtimerExpire { now_ns, .. } => *now_ns += SUSPENDED_NS,
            _ => {}
        }
        assert_eq!(read, expected);
    }
    assert_eq!(summary.doubts, []);

    // A timer on the realtime clock keeps its time.
    let wall_ns = 1_790_000_000_000_000_000;
    let kind = EventKind::HrtimerExpire { timer: TIMER, function: FUNCTION, now_ns: wall_ns };
    let packets = [snapshot(20_000, 5_000), packet(0, &[(30_000, IDLE), (30_001, kind)])];
    assert_eq!(import(&packets).0[1].kind, kind);
}

#[test]
fn a_suspend_and_a_missing_snapshot_are_doubts() {
    let expire = EventKind::HrtimerExpire { timer: TIMER, function: FUNCTION, now_ns: 2_000 };
    let events = packet(0, &[(10_000, IDLE), (10_001, expire)]);
    let (_, info, _) = import(std::slice::from_ref(&events));
    assert!(has_doubt(&info.doubts, "no snapshot of its clocks"), "{:?}", info.doubts);
    let packets =
        [snapshot(20_000, 5_000), events, snapshot(9_000_000_000, 8_000_000_000), packet(0, &[])];
    let (_, _, summary) = import(&packets);
    assert!(has_doubt(&summary.doubts, "was suspended 1 times"), "{:?}", summary.doubts);
}

/// The typical recording of a phone: eight CPUs, idle states and switches, no timers or interrupts.
#[test]
fn a_phone_with_few_events_says_what_it_cannot_know() {
    let packets: Vec<Packet> = (0..40)
        .map(|i| {
            // A CPU that is off for a while has no bundles in that time.
            let cpu = (i % 8) as u16;
            let start = 1_000_000 * (i / 8) + 1_000 * i64::from(cpu);
            let mut packet = packet(
                cpu,
                &[
                    (start, IDLE),
                    (start + 500, EventKind::IdleExit),
                    (start + 600, EventKind::SwitchToTask),
                ],
            );
            packet.ftrace_events.as_mut().map(compact);
            packet
        })
        .filter(|packet| {
            let bundle = packet.ftrace_events.as_ref().unwrap();
            bundle.cpu != Some(5) || bundle.event[0].timestamp > Some(2_000_000)
        })
        .collect();
    let (events, info, summary) = import(&packets);
    assert_eq!(events.len(), 3 * packets.len());
    assert_eq!(summary.out_of_order_count, 0);
    let known = Tracepoints::CPU_IDLE.union(Tracepoints::SCHED_SWITCH);
    assert_eq!(info.tracepoints, known.union(Tracepoints::ONLY_SEEN));
}

#[test]
fn losses_come_before_the_events_of_their_bundle() {
    let mut lossy = packet(1, &[(5_000, EventKind::IdleExit)]);
    lossy.ftrace_events.as_mut().unwrap().lost_events = Some(true);
    let mut first = packet(1, &[(1_000, IDLE)]);
    first.ftrace_events.as_mut().unwrap().lost_events = Some(true);
    let stats = |phase, overrun| {
        let cpu_stats = vec![CpuStats { cpu: Some(1), overrun: Some(overrun) }];
        let stats = FtraceStats { phase: Some(phase), cpu_stats };
        Packet { ftrace_stats: Some(stats), ..Packet::default() }
    };
    let (events, _, summary) = import(&[stats(1, 100), first, lossy, stats(2, 177)]);
    let lost = EventKind::Lost { event_count: 1 };
    assert_eq!(
        events,
        [at(1_000, 1, IDLE), at(5_000, 1, lost), at(5_000, 1, EventKind::IdleExit)],
        "nothing can be missed before the first"
    );
    assert_eq!(summary.lost_event_counts.into_iter().collect::<Vec<_>>(), [(1, 77)]);

    let mut dropped = packet(0, &[(9_000, IDLE)]);
    dropped.previous_packet_dropped = Some(true);
    let before = [packet(0, &[(1_000, IDLE)]), packet(1, &[(1_500, IDLE)])];
    let after = [packet(0, &[(9_100, IDLE)]), packet(1, &[(9_200, IDLE)])];
    let packets = [&before[..], &[dropped], &after].concat();
    for packets in [packets.clone(), compressed(&packets, false)] {
        let (events, _, summary) = import(&packets);
        let losses = events.iter().filter(|event| event.kind == lost);
        let losses: Vec<(i64, u16)> = losses.map(|event| (event.at_ns, event.cpu)).collect();
        let expected = vec![(9_000, 0), (9_200, 1)];
        assert_eq!((losses, summary.lost_event_count_without_cpu), (expected, 1));
    }
}

/// A bundle may contain only events that we do not need.
#[test]
fn a_loss_waits_for_the_next_event() {
    let mut lossy = packet(1, &[]);
    lossy.ftrace_events.as_mut().unwrap().lost_events = Some(true);
    let (events, _, _) = import(&[packet(1, &[(1_000, IDLE)]), lossy, packet(1, &[(2_000, IDLE)])]);
    let lost = at(2_000, 1, EventKind::Lost { event_count: 1 });
    assert_eq!(events, [at(1_000, 1, IDLE), lost, at(2_000, 1, IDLE)]);
}

#[test]
fn a_clock_that_steps_back_is_counted_and_several_clocks_are_doubted() {
    let round = |start_ns: i64| [0, 1].map(|cpu| packet(cpu, &[(start_ns + i64::from(cpu), IDLE)]));
    let rounds = (1..10).map(|i| 1_000_000 * i).chain([500]).flat_map(round);
    let (events, _, summary) = import(&rounds.collect::<Vec<_>>());
    assert_eq!((events.len(), summary.out_of_order_count), (20, 2));
    assert_eq!(events[19].at_ns, 9_000_001, "late ones are held where the clock was");

    // The scheduler's clock, 700 ns behind CLOCK_BOOTTIME.
    let mut other = packet(1, &[(2_000, IDLE)]);
    let own = other.ftrace_events.as_mut().unwrap();
    (own.ftrace_clock, own.ftrace_timestamp) = (Some(2), Some(5_000));
    let packets = [packet(0, &[(1_000, IDLE)]), other.clone()];
    let (_, _, summary) = import(&packets);
    assert!(has_doubt(&summary.doubts, "events of several clocks"), "{:?}", summary.doubts);
    other.ftrace_events.as_mut().unwrap().boot_timestamp = Some(5_700);
    let (events, info, summary) = import(&[packet(0, &[(1_000, IDLE)]), other.clone()]);
    assert_eq!(events, [at(1_000, 0, IDLE), at(2_700, 1, IDLE)]);
    assert_eq!((info.clock.as_deref(), summary.doubts.len()), (Some("CLOCK_BOOTTIME"), 0));
    // Alone it is not changed, because the distance is measured for each bundle, and less exactly.
    assert_eq!(import(&[other]).0, [at(2_000, 1, IDLE)]);
}

/// Twelve seconds of two CPUs with events in every millisecond, each with a unique time.
fn twelve_seconds() -> Vec<Event> {
    let kinds = [IDLE, EventKind::TimerInterrupt, EventKind::IdleExit, EventKind::SwitchToTask];
    let kinds = kinds.into_iter().chain([EventKind::TickStop, EventKind::SwitchToIdle]);
    let events = kinds.cycle().zip(0..24_000_i64).map(|(kind, i)| {
        // Each CPU has a complete sequence of the kinds at a time.
        at(1_000_000 + 500_000 * i, (i / 6 % 2) as u16, kind)
    });
    events.collect()
}

const BLOCK_NS: i64 = 2_500_000_000;

#[test]
fn sequences_that_are_written_in_turns_are_put_in_order() {
    let all = twelve_seconds();
    let is_of_power = |event: &Event| matches!(event.kind, IDLE | EventKind::IdleExit);
    let (power, others): (Vec<Event>, Vec<Event>) =
        all.iter().partition(|event| is_of_power(event));
    for block_ns in [BLOCK_NS, 100_000_000, i64::MAX] {
        let packets = trace_of_sources(&[others.clone(), power.clone()], block_ns);
        for packets in [packets.clone(), compressed(&packets, false)] {
            let (events, info, summary) = import(&packets);
            assert!(events == all, "in blocks of {block_ns} ns");
            assert_eq!((summary.out_of_order_count, summary.doubts.len()), (0, 0));
            assert!(info.tracepoints.contains(Tracepoints::CPU_IDLE));
        }
    }
}

#[test]
fn what_two_sequences_recorded_counts_once() {
    let all = twelve_seconds();
    let half: Vec<Event> =
        all.iter().filter(|event| event.at_ns < 6_000_000_000).copied().collect();
    let late: Vec<Event> =
        all.iter().filter(|event| event.at_ns > 6_000_000_000).copied().collect();
    // The last source was stopped early; the second has only the end, like a ring buffer.
    for sources in [[all.clone(), all.clone()], [all.clone(), late], [half, all.clone()]] {
        let (events, _, summary) = import(&trace_of_sources(&sources, BLOCK_NS));
        assert_eq!(summary.event_count, all.len() as u64);
        assert!(events == all);
    }

    // Two kernel buffers, so that no two events have exactly the same time.
    let later = all.iter().map(|event| Event { at_ns: event.at_ns + 90, ..*event });
    let (events, ..) = import(&trace_of_sources(&[all.clone(), later.collect()], BLOCK_NS));
    let changes = |events: &[Event]| -> Vec<Event> {
        let is_change =
            |event: &&Event| !matches!(event.kind, EventKind::TimerInterrupt | EventKind::TickStop);
        events.iter().filter(is_change).copied().collect()
    };
    assert!(changes(&events) == changes(&all));
}

/// A long kernel buffer that is read only at the end is written CPU by CPU.
#[test]
fn cpus_that_are_written_one_after_the_other_are_put_in_order() {
    let all = twelve_seconds();
    let packets = [1, 0].into_iter().flat_map(|cpu| {
        let own: Vec<Event> = all.iter().filter(|event| event.cpu == cpu).copied().collect();
        let bundles = own.chunks(100).map(move |some| {
            let events = some.iter().filter_map(|own| event(own, own.at_ns as u64));
            bundle(cpu, events.collect())
        });
        bundles.collect::<Vec<Packet>>()
    });
    let (events, _, summary) = import(&packets.collect::<Vec<_>>());
    assert!(events == all);
    assert_eq!(summary.out_of_order_count, 0);
}

/// Perfetto does not store addresses. It numbers them anew each time it reads the kernel's buffers,
/// so the same number soon means another timer.
#[test]
fn timers_without_addresses_are_no_timers() {
    let start = |timer| EventKind::HrtimerStart {
        timer,
        function: 2,
        expires_at_ns: 4_000_000,
        has_slack: false,
    };
    let expire = EventKind::HrtimerExpire { timer: 1, function: 2, now_ns: 4_000_000 };
    let packets = [
        snapshot(20_000, 5_000),
        packet(0, &[(1_000, start(1)), (2_000, IDLE)]),
        packet(0, &[(4_006_000, expire), (4_007_000, start(3)), (4_008_000, IDLE)]),
    ];
    let (events, info, _) = import(&packets);
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    let now_ns = 4_005_000;
    assert_eq!(kinds, [IDLE, EventKind::HrtimerExpire { timer: 1, function: 2, now_ns }, IDLE]);
    let known = Tracepoints::CPU_IDLE.union(Tracepoints::HRTIMER_EXPIRE);
    assert_eq!(info.tracepoints, known.union(Tracepoints::ONLY_SEEN));
    assert!(has_doubt(&info.doubts, "in place of the timers' addresses"), "{:?}", info.doubts);
}

#[test]
fn what_is_of_another_machine_is_left_out() {
    let mut foreign = packet(0, &[(2_000, IDLE)]);
    foreign.machine_id = Some(3);
    let (events, _, summary) = import(&[packet(0, &[(1_000, IDLE)]), foreign]);
    assert_eq!(events, [at(1_000, 0, IDLE)]);
    assert!(has_doubt(&summary.doubts, "1 packets of other machines"), "{:?}", summary.doubts);
}

#[test]
fn a_trace_that_is_cut_or_broken_is_read_up_to_there() {
    let packets = [packet(0, &[(1_000, IDLE)]), packet(0, &[(2_000, IDLE)])];
    let first_byte_count = file(&packets[..1]).len();
    let whole = file(&packets);
    for (bytes, reason) in [
        (whole[..whole.len() - 3].to_vec(), TruncationReason::CutShort),
        ([&whole[..first_byte_count], &[0xff; 40]].concat(), TruncationReason::BrokenRecord),
        // A packet that claims to be longer than any real one.
        (
            [&whole[..first_byte_count], b"\x0a\xff\xff\xff\xff\x7f"].concat(),
            TruncationReason::BrokenRecord,
        ),
    ] {
        let lost_byte_count = (bytes.len() - first_byte_count) as u64;
        let (events, _, summary) = import_bytes(bytes);
        assert_eq!(events, [at(1_000, 0, IDLE)]);
        let truncated = summary.truncated.unwrap();
        assert_eq!(truncated.reason, reason);
        assert_eq!(
            (truncated.at_byte, truncated.lost_byte_count),
            (first_byte_count as u64, lost_byte_count)
        );
    }
}

#[test]
fn packets_that_cannot_be_unpacked_are_counted() {
    let whole = packet(0, &[(1_000, IDLE)]);
    let broken = Packet { compressed_packets: Some(vec![0x78; 50]), ..Packet::default() };
    // A little more than 64 MiB of zeros, which compress to a few kilobytes.
    let bomb = zstd::encode_all(&*vec![0; (1 << 26) + 1], 1).unwrap();
    let bomb = Packet { zstd_compressed_packets: Some(bomb), ..Packet::default() };
    let (events, _, summary) = import(&[whole, broken, bomb]);
    assert_eq!((events.len(), summary.undecodable_count), (1, 2));
}
