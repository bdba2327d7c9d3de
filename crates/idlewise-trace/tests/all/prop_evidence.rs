//! A recording without some kinds of events must claim less than the whole one, and nothing else:
//! it loses no idle entry, makes no claim that the whole one does not make, and lists what it
//! lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use idlewise_machine::Arch;
use idlewise_trace::import;
use idlewise_trace::import::Recording as _;
use idlewise_trace::import::text::FtraceText;
use idlewise_trace::{
    CpuFacts, Event, EventKind, GapBuilder, GapSummary, IdleGap, Tracepoints, WakeReason,
};

/// How much of each recording is used. The builder examines 2^18 events before the first gap. With
/// fewer events than that, it examines as much of the whole recording as of a reduced one.
const EVENT_COUNT_MAX: usize = 60_000;

/// A kind of event that can be removed: its name in doubts, and its events.
struct Kind {
    name: &'static str,
    tracepoint: Tracepoints,
    has: fn(&Event) -> bool,
}

/// The importers make one kind of event from three vectors. Each gets a third of them.
fn is_third(event: &Event, third: i64) -> bool {
    event.kind == EventKind::IpiInterrupt && event.at_ns.rem_euclid(3) == third
}

/// How many sets of kinds are removed from each recording.
const SET_COUNT: usize = 20;

const KINDS: [Kind; 14] = [
    Kind {
        name: "sched:sched_switch",
        tracepoint: Tracepoints::SCHED_SWITCH,
        has: |event| matches!(event.kind, EventKind::SwitchToTask | EventKind::SwitchToIdle),
    },
    Kind {
        name: "timer:hrtimer_start",
        tracepoint: Tracepoints::HRTIMER_START,
        has: |event| matches!(event.kind, EventKind::HrtimerStart { .. }),
    },
    Kind {
        name: "timer:hrtimer_cancel",
        tracepoint: Tracepoints::HRTIMER_CANCEL,
        has: |event| matches!(event.kind, EventKind::HrtimerCancel { .. }),
    },
    Kind {
        name: "timer:hrtimer_expire_entry",
        tracepoint: Tracepoints::HRTIMER_EXPIRE,
        has: |event| matches!(event.kind, EventKind::HrtimerExpire { .. }),
    },
    Kind {
        name: "timer:timer_start",
        tracepoint: Tracepoints::WHEEL_START,
        has: |event| matches!(event.kind, EventKind::WheelStart { .. }),
    },
    Kind {
        name: "timer:timer_cancel",
        tracepoint: Tracepoints::WHEEL_CANCEL,
        has: |event| matches!(event.kind, EventKind::WheelCancel { .. }),
    },
    Kind {
        name: "timer:timer_expire_entry",
        tracepoint: Tracepoints::WHEEL_EXPIRE,
        has: |event| matches!(event.kind, EventKind::WheelExpire { .. }),
    },
    Kind {
        name: "timer:tick_stop",
        tracepoint: Tracepoints::TICK_STOP,
        has: |event| event.kind == EventKind::TickStop,
    },
    Kind {
        name: "irq_vectors:local_timer_entry",
        tracepoint: Tracepoints::LOCAL_TIMER,
        has: |event| event.kind == EventKind::TimerInterrupt,
    },
    Kind {
        name: "irq_vectors:reschedule_entry",
        tracepoint: Tracepoints::RESCHEDULE,
        has: |event| event.kind == EventKind::RescheduleInterrupt,
    },
    Kind {
        name: "irq_vectors:call_function_entry",
        tracepoint: Tracepoints::CALL_FUNCTION,
        has: |event| is_third(event, 0),
    },
    Kind {
        name: "irq_vectors:call_function_single_entry",
        tracepoint: Tracepoints::CALL_FUNCTION_SINGLE,
        has: |event| is_third(event, 1),
    },
    Kind {
        name: "irq_vectors:irq_work_entry",
        tracepoint: Tracepoints::IRQ_WORK,
        has: |event| is_third(event, 2),
    },
    Kind {
        name: "irq:irq_handler_entry",
        tracepoint: Tracepoints::IRQ_HANDLER,
        has: |event| event.kind == EventKind::DeviceInterrupt,
    },
];

struct Built {
    gaps: Vec<IdleGap>,
    summary: GapSummary,
}

impl Built {
    fn new(tracepoints: Tracepoints, events: &[Event]) -> Self {
        let facts = CpuFacts { arch: Some(Arch::X86), ..CpuFacts::default() };
        let mut builder = GapBuilder::new(Vec::new(), tracepoints, facts);
        builder.push(events).unwrap();
        let (gaps, summary) = builder.finish().unwrap();
        Built { gaps, summary }
    }

    fn says(&self, column: &str) -> bool {
        !self.summary.unknown_columns.contains(&column)
    }

    /// The gaps by CPU and start, each with the start of the next one.
    fn by_start(&self) -> BTreeMap<(u16, i64), (&IdleGap, Option<i64>)> {
        let later = self.gaps.iter().skip(1).map(Some).chain([None]);
        let next = |gap: &IdleGap, later: Option<&IdleGap>| {
            later.filter(|later| later.cpu == gap.cpu).map(|later| later.start_ns)
        };
        let rows = self.gaps.iter().zip(later);
        rows.map(|(gap, later)| ((gap.cpu, gap.start_ns), (gap, next(gap, later)))).collect()
    }
}

fn unpacked(name: &str) -> Vec<u8> {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(name);
    let file = std::fs::File::open(packed).unwrap();
    let mut bytes = Vec::new();
    liblzma::read::XzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    bytes
}

fn recording(name: &str) -> (Tracepoints, Vec<Event>) {
    let plain = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(plain.path(), unpacked(name)).unwrap();
    let recording = import::open(plain.path()).unwrap();
    let tracepoints = recording.info().tracepoints;
    let mut events = Vec::new();
    recording.read(&|_| {}, &mut |some| events.extend_from_slice(some)).unwrap();
    events.truncate(EVENT_COUNT_MAX);
    (tracepoints, events)
}

/// Compares a reduced recording with the whole one.
fn check(whole: &Built, part: &Built, lacking: &[&Kind], case: &str) {
    let case =
        format!("{case} without {:?}", lacking.iter().map(|kind| kind.name).collect::<Vec<_>>());
    // The expiry of a timer armed before the trace is taken from the interrupt that served it.
    // Without interrupts it is taken from its handler, which runs up to this much later.
    let has_interrupts = lacking.iter().all(|kind| kind.tracepoint != Tracepoints::LOCAL_TIMER);
    let guess_ns = if has_interrupts { 0 } else { 100_000 };
    let wholes = whole.by_start();
    let parts = part.by_start();

    for (of_whole, of_part) in whole.summary.cpus.iter().zip(&part.summary.cpus) {
        if !of_whole.observed {
            continue;
        }
        let entries = |cpu: &idlewise_trace::CpuSummary| cpu.idle_entry_count;
        assert_eq!(entries(of_whole), entries(of_part), "{case}: CPU {}", of_whole.cpu);
        let accounted = of_part.gap_count + of_part.joined_wake_count + of_part.broken_gap_count;
        let is_all = [0, 1].map(|open| accounted + open).contains(&of_part.idle_entry_count);
        assert!(is_all, "{case}: {of_part:?}");
    }
    // The reduced recording may not contain the end of the last gap.
    for (key, (gap, next)) in &wholes {
        assert!(next.is_none() || parts.contains_key(key), "{case}: joins what is apart: {gap:?}");
    }

    for (&(cpu, start_ns), &(gap, next)) in &parts {
        let same = wholes.get(&(cpu, start_ns)).copied();
        // The gap in the whole recording that contains this stay.
        let (around, around_next) = match wholes.range(..=(cpu, start_ns)).next_back() {
            Some((&(other, _), &(around, next))) if other == cpu => (Some(around), next),
            _ => (None, None),
        };
        if gap.wake_reason != WakeReason::Unknown {
            assert!(part.says("wake_reason"), "{case}: {gap:?}");
            // It ends with a whole gap, and with the same reason.
            let Some(around) = around else { panic!("{case}: {gap:?}") };
            assert_eq!(gap.wake_reason, around.wake_reason, "{case}: {gap:?}");
            let end_ns = |gap: &IdleGap| gap.start_ns + gap.gap_ns as i64;
            assert_eq!(end_ns(gap), end_ns(around), "{case}: {gap:?}, {around:?}");
            // After its last gap, the whole recording may have another one without an end.
            assert!(around_next.is_none() || next == around_next, "{case}: {gap:?}");
        }
        if let Some(next_tick_ns) = gap.next_tick_ns {
            let period_ns = i64::from(whole.summary.tick.period_ns().unwrap());
            let phase_ns = (start_ns + i64::from(next_tick_ns)).rem_euclid(period_ns);
            assert_eq!(phase_ns, whole.summary.tick.phase_ns(cpu), "{case}: {gap:?}");
        }
        match same {
            Some((same, _)) => {
                if let Some(length_ns) = gap.sleep_length_ns {
                    let apart_ns = same.sleep_length_ns.map(|ns| ns.abs_diff(length_ns));
                    let is_same = apart_ns.is_some_and(|ns| ns <= guess_ns);
                    assert!(is_same, "{case}: {gap:?}, {same:?}");
                }
                if part.says("tick_stopped") {
                    assert_eq!(gap.tick_stopped, same.tick_stopped, "{case}: {gap:?}");
                }
                if part.says("ran_task") {
                    assert_eq!(gap.ran_task, same.ran_task, "{case}: {gap:?}");
                }
            }
            // The whole recording joined it to the previous gap, which is allowed only if no task
            // ran. Its last gap has no end and proves nothing.
            None if around_next.is_some() => {
                assert!(!part.says("ran_task") || !gap.ran_task, "{case}: {gap:?}");
            }
            None => {}
        }
        assert!(part.says("tick_stopped") || !gap.tick_stopped, "{case}: {gap:?}");
        assert!(part.says("sleep_length_ns") || gap.sleep_length_ns.is_none(), "{case}: {gap:?}");
    }

    for kind in lacking {
        let is_named =
            part.summary.evidence_doubts.iter().any(|doubt| doubt.to_string().contains(kind.name));
        assert!(
            is_named,
            "{case}: no doubt names {}: {:?}",
            kind.name, part.summary.evidence_doubts
        );
    }
}

/// Each kind alone, all together, and random sets.
fn sets(seed: u32) -> BTreeSet<u32> {
    let mut sets: BTreeSet<u32> = (0..KINDS.len()).map(|index| 1 << index).collect();
    let mut state = seed;
    while sets.len() < SET_COUNT {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        sets.insert(state & ((1 << KINDS.len()) - 1));
    }
    sets.insert((1 << KINDS.len()) - 1);
    sets
}

fn recordings_of_all_kinds() -> Vec<&'static str> {
    vec![
        "a-idle.perf.data.xz",
        "b-redis.perf.data.xz",
        "e-hackbench.perf.data.xz",
        "h-pingpong.perf.data.xz",
        "s-softirq500.perf.data.xz",
        "k-pingpong-v6.trace.dat.xz",
        "q-menu-6.12.trace.dat.xz",
        "q-ladder-7.2.trace.dat.xz",
    ]
}

#[test]
fn a_recording_without_some_kinds_claims_less_and_loses_nothing() {
    for (seed, name) in (0x9e37_79b9..).zip(recordings_of_all_kinds()) {
        let (tracepoints, events) = recording(name);
        assert!(tracepoints.contains(Tracepoints::COMPLETE), "{name}");
        let whole = Built::new(tracepoints, &events);
        assert_eq!(whole.summary.evidence_doubts, [], "{name}");
        for set in sets(seed) {
            let lacking: Vec<&Kind> = KINDS
                .iter()
                .enumerate()
                .filter(|(index, _)| set >> index & 1 == 1)
                .map(|(_, kind)| kind)
                .collect();
            let left = lacking.iter().fold(tracepoints, |left, kind| left.without(kind.tracepoint));
            let some: Vec<Event> = events
                .iter()
                .filter(|event| !lacking.iter().any(|kind| (kind.has)(event)))
                .copied()
                .collect();
            check(&whole, &Built::new(left, &some), &lacking, name);
        }
    }
}

/// A text does not list what was recorded, so removed events are simply missing.
#[test]
fn a_text_without_some_kinds_claims_less_and_loses_nothing() {
    for (seed, name) in
        (0x7f4a_7c15..).zip(["l-pingpong.tracefs.txt.xz", "k-pingpong-v7.trace-cmd-report.txt.xz"])
    {
        let text = unpacked(name);
        let build = |text: Vec<u8>| {
            let text = FtraceText::from_bytes(text).unwrap();
            let tracepoints = text.info().tracepoints;
            let mut events = Vec::new();
            text.read(&|_| {}, &mut |some| events.extend_from_slice(some)).unwrap();
            Built::new(tracepoints, &events)
        };
        let event = |kind: &Kind| format!(" {}: ", kind.name.split_once(':').unwrap().1);
        let lines: Vec<&str> = std::str::from_utf8(&text).unwrap().split_inclusive('\n').collect();
        let kinds: Vec<&Kind> = KINDS
            .iter()
            .filter(|kind| lines.iter().any(|line| line.contains(&event(kind))))
            .collect();
        // Neither has call_function, and one has no irq_work.
        assert!(kinds.len() >= 12, "{name}: {}", kinds.len());
        let whole = build(text.clone());
        let only_irqs = kinds.iter().filter(|kind| kind.name != "irq:irq_handler_entry");
        let without_ipis =
            ["irq_vectors:reschedule_entry", "irq_vectors:call_function_single_entry"];
        let without_ipis = kinds.iter().filter(|kind| without_ipis.contains(&kind.name));
        let stated = [only_irqs.copied().collect(), without_ipis.copied().collect()];
        let random = sets(seed).into_iter().map(|set| {
            let of_set = kinds.iter().enumerate().filter(|(index, _)| set >> index & 1 == 1);
            of_set.map(|(_, &kind)| kind).collect::<Vec<_>>()
        });
        for lacking in stated.into_iter().chain(random) {
            let gone: Vec<String> = lacking.iter().map(|kind| event(kind)).collect();
            let left = lines.iter().filter(|line| !gone.iter().any(|event| line.contains(event)));
            let part = build(left.flat_map(|line| line.bytes()).collect());
            check(&whole, &part, &lacking, name);
        }
    }
}
