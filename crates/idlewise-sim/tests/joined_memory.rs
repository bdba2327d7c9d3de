//! A joint replay holds a bounded part of the log, however long it is and however differently its CPUs sleep.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use idlewise_core::{Context, Decision, Device, Governor, Outcome};
use idlewise_machine::Machine;
use idlewise_sim::SharedStates;
use idlewise_sim::replay::{
    GovernorJoint, JointReplays, ReplayedGroups, Setting, Tally, UnitOf, replay_joined,
};
use idlewise_trace::log::{ColumnSet, FORMAT_VERSION, IdleLog, LogMetadata, LogWriter};
use idlewise_trace::{GapSink, IdleGap, OutputFile, WakeReason};

/// Bytes in use, and the most since the last reset.
static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(used, Relaxed);
        // SAFETY: as promised to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as promised to us.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Always the deepest state.
#[derive(Clone)]
struct Deepest;

impl Governor for Deepest {
    fn select(&mut self, context: &Context<'_>, _device: &mut Device) -> Decision {
        Decision { state: context.states.deepest(), stop_tick: true }
    }

    fn reflect(&mut self, _outcome: &Outcome, _device: &mut Device) {}
}

/// The importer's are 16 times as long.
const GROUP_GAP_COUNT: usize = 4_096;
const PERIOD_NS: i64 = 100_000;

/// Gaps of different lengths, one in each period from the first on.
fn gaps(cpu: u16, first: i64, count: usize) -> impl Iterator<Item = IdleGap> {
    (0..count as i64).map(move |index| IdleGap {
        cpu,
        start_ns: (first + index) * PERIOD_NS + i64::from(cpu) * 7,
        gap_ns: 20_000 + index.unsigned_abs() * 7_919 % 60_000,
        next_tick_ns: Some(1_000_000),
        ran_task: true,
        wake_reason: WakeReason::Irq,
        ..IdleGap::default()
    })
}

fn write_group(writer: &mut LogWriter, group: &mut Vec<IdleGap>) {
    if let Some(first) = group.first() {
        writer.take(first.cpu, group).unwrap();
        group.clear();
    }
}

fn log(gaps: impl Iterator<Item = IdleGap>) -> IdleLog {
    let output = OutputFile::unnamed(Path::new("long.parquet")).unwrap();
    let mut writer = LogWriter::new(output).unwrap();
    let mut group: Vec<IdleGap> = Vec::new();
    for gap in gaps {
        if group.len() == GROUP_GAP_COUNT || group.last().is_some_and(|last| last.cpu != gap.cpu) {
            write_group(&mut writer, &mut group);
        }
        group.push(gap);
    }
    write_group(&mut writer, &mut group);
    let metadata = LogMetadata { format_version: FORMAT_VERSION, ..LogMetadata::default() };
    let file = writer.finish_unnamed(&metadata).unwrap();
    IdleLog::from_file(Path::new("long.parquet"), file).unwrap()
}

/// Returns the counts, and the most bytes in use beyond what was used before.
fn replay(log: &IdleLog) -> (Tally, usize) {
    let machine = Machine::from_toml(
        "id = \"toy\"\ntitle = \"Toy\"\narch = \"arm\"\nsource = \"invented\"\nstates = [\n\
         { name = \"WFI\", exit_latency_us = 0.01, target_residency_us = 0.01 },\n\
         { name = \"off\", exit_latency_us = 0.02, target_residency_us = 0.05 } ]\n\
         domain_states = [ { name = \"ret\", exit_latency_us = 0.05, target_residency_us = 1, \
         scope = \"package\", coordination = \"platform\", requires = \"off\" } ]",
    );
    let machine = machine.unwrap();
    let shared = SharedStates::of(&machine).unwrap();
    let setting = Setting::new(machine.table().unwrap(), 1_000_000);
    let groups = ReplayedGroups::new(&shared, &"package=0-2".parse().unwrap());
    let make = |unit: &UnitOf<'_>| GovernorJoint::make(unit, setting, || Deepest);
    let before = USED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let replays = JointReplays { makes: &[(&groups, &make)], bounds: &[] };
    let results = replay_joined(log, ColumnSet::WithoutRecorded, replays, &|_| {}).unwrap();
    (results.tallies.into_iter().next().unwrap(), PEAK.load(Relaxed) - before)
}

/// Replays logs of three lengths.
fn check(name: &str, of_length: impl Fn(usize) -> IdleLog) {
    let measured = [1, 4, 16].map(|times| {
        let log = of_length(times);
        let (tally, peak) = replay(&log);
        assert_eq!(tally.gap_count, log.gap_count(), "{name}, {times} times as long");
        assert!(tally.shared[0].entry_count > 0, "{name}, {times} times as long");
        peak
    });
    let [once, .., most] = measured;
    assert!(most < once + once / 4, "{name}: {measured:?}");
}

/// All in one test, because the bytes are those of all threads.
#[test]
fn memory_does_not_grow_with_the_log() {
    const COUNT: usize = 2 * GROUP_GAP_COUNT;
    // Starts the threads.
    replay(&log((0..3).flat_map(|cpu| gaps(cpu, 0, 100))));
    check("three alike", |times| log((0..3).flat_map(move |cpu| gaps(cpu, 0, times * COUNT))));
    check("one that ends early, one that begins late", |times| {
        let late = (times * COUNT) as i64 - 100;
        log(gaps(0, 0, 100).chain(gaps(1, 0, times * COUNT)).chain(gaps(2, late, 4 * COUNT)).map(
            // The package is asleep at the end, when nothing is left of the first.
            |gap| match (gap.cpu, gap.start_ns) {
                (0, 9_900_000..) => IdleGap { gap_ns: 1 << 50, ..gap },
                _ => gap,
            },
        ))
    });
    // It is idle from the first second on, for as long as the others have gaps.
    check("one silent for hours", |times| {
        let last = (times * COUNT) as i64;
        let silent = gaps(0, 0, 1)
            .map(move |gap| IdleGap { gap_ns: (last * PERIOD_NS) as u64, ..gap })
            .chain(gaps(0, last + 1, 1));
        log(silent.chain((1..3).flat_map(move |cpu| gaps(cpu, 0, times * COUNT))))
    });
}
