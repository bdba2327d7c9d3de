//! Readable logs that are wrong. Each violates one rule, and only the check of that rule finds the
//! violation, at its place.

use idlewise_machine::{Arch, Machine, MachineState};
use idlewise_trace::log::{IdleLog, LogMetadata, LogWriter};
use idlewise_trace::validate::{Check, CheckResult, Finding, GapPlace, validate};
use idlewise_trace::{CpuSummary, Doubt, GapSink, IdleGap, WakeReason};

/// Ten gaps per CPU, one in each 4 ms tick, ended by known timers.
fn gaps(cpu: u16) -> Vec<IdleGap> {
    let gap = |i: i64| IdleGap {
        cpu,
        start_ns: 10_000_000 + i * 4_000_000,
        gap_ns: 1_500_000,
        sleep_length_ns: Some(1_500_000),
        next_tick_ns: Some(2_700_000),
        tick_stopped: i % 2 == 0,
        ran_task: true,
        wake_reason: WakeReason::Timer,
        latency_limit_ns: None,
        recorded_state: Some(1),
        recorded_idle_ns: Some(1_600_000),
    };
    (0..10).map(gap).collect()
}

fn metadata() -> LogMetadata {
    let cpu = |cpu| CpuSummary {
        cpu,
        observed: true,
        first_at_ns: 9_000_000,
        last_at_ns: 90_000_000,
        gap_count: 10,
        tick_phase_ns: Some(700_000),
        ..CpuSummary::default()
    };
    let mut machine = Machine::new("toy", "Toy", Arch::X86, "invented");
    machine.states =
        vec![MachineState::new("C1", 1_000, 1_000), MachineState::new("C6", 9_000, 9_000)];
    LogMetadata {
        format_version: 1,
        hz: Some(250),
        machine: Some(machine),
        cpus: vec![cpu(0), cpu(2)],
        unknown_columns: vec!["latency_limit_ns".to_owned()],
        ..LogMetadata::default()
    }
}

fn check(gaps: &[Vec<IdleGap>; 2], metadata: &LogMetadata) -> Vec<Finding> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.parquet");
    let mut writer = LogWriter::create(&path, false).unwrap();
    for gaps in gaps {
        writer.take(gaps[0].cpu, gaps).unwrap();
    }
    writer.finish_unchecked(metadata).unwrap();
    validate(&IdleLog::open(&path).unwrap(), &|_| {}).unwrap()
}

/// The checks that found something, with the places.
fn found(findings: &[Finding]) -> Vec<(Check, CheckResult, Option<GapPlace>)> {
    let found = findings.iter().filter(|f| f.result() > CheckResult::Ok);
    found.map(|finding| (finding.check, finding.result(), finding.first)).collect()
}

fn sound() -> ([Vec<IdleGap>; 2], LogMetadata) {
    ([gaps(0), gaps(2)], metadata())
}

const AT_ROW_13: Option<GapPlace> = Some(GapPlace { cpu: Some(2), row: Some(13) });

#[test]
fn finds_nothing_in_a_sound_log() {
    let (gaps, metadata) = sound();
    let findings = check(&gaps, &metadata);
    assert_eq!(found(&findings), []);
    let rows = findings.iter().find(|finding| finding.check == Check::TickGrid).unwrap();
    assert_eq!(rows.checked_count, 20);
}

#[test]
fn finds_each_broken_rule_where_it_is_broken() {
    type Spoil = fn(&mut IdleGap);
    let cases: [(Check, Spoil); 8] = [
        (Check::Span, |gap| gap.gap_ns = 80_000_000),
        (Check::Range, |gap| gap.recorded_idle_ns = Some(-1_i64 as u64)),
        (Check::Range, |gap| gap.next_tick_ns = Some(2_700_000 + 4_000_000)),
        (Check::States, |gap| gap.recorded_state = Some(2)),
        (Check::TickGrid, |gap| gap.next_tick_ns = Some(2_700_001)),
        (Check::UnknownColumns, |gap| gap.latency_limit_ns = Some(1)),
        (Check::Overlap, |gap| gap.gap_ns = 4_000_001),
        (Check::Order, |gap| gap.start_ns -= 8_000_000),
    ];
    for (rule, spoil) in cases {
        let (mut gaps, metadata) = sound();
        spoil(&mut gaps[1][3]);
        let findings = check(&gaps, &metadata);
        let finding = findings.iter().find(|finding| finding.check == rule).unwrap();
        assert_eq!(finding.result(), CheckResult::Wrong, "{rule:?}");
        // An overlap is reported at the later of the two gaps.
        let place = match rule {
            Check::Overlap => Some(GapPlace { cpu: Some(2), row: Some(14) }),
            _ => AT_ROW_13,
        };
        assert_eq!(finding.first, place, "{rule:?}");
        let others = found(&findings);
        let may_follow = |check| match rule {
            Check::Span | Check::Order => check == Check::Overlap,
            _ => false,
        };
        for (check, ..) in others {
            let is_timer = matches!(check, Check::TimerKnown | Check::TimerOutlasted);
            assert!(check == rule || is_timer || may_follow(check), "{rule:?} shows as {check:?}");
        }
    }
}

#[test]
fn doubts_timers_that_are_seldom_right() {
    let (mut gaps, metadata) = sound();
    // One in five timers may have been armed within the gap.
    for gap in &mut gaps[1][3..7] {
        gap.sleep_length_ns = Some(1_500_001);
    }
    assert_eq!(found(&check(&gaps, &metadata)), []);
    gaps[1][7].sleep_length_ns = None;
    let findings = check(&gaps, &metadata);
    assert_eq!(found(&findings), [(Check::TimerKnown, CheckResult::Doubt, AT_ROW_13)]);
}

#[test]
fn doubts_gaps_that_outlast_their_timers() {
    let (mut gaps, metadata) = sound();
    gaps[1][3] =
        IdleGap { wake_reason: WakeReason::Irq, sleep_length_ns: Some(1_400_000), ..gaps[1][3] };
    let findings = check(&gaps, &metadata);
    assert_eq!(found(&findings), [(Check::TimerOutlasted, CheckResult::Doubt, AT_ROW_13)]);
}

#[test]
fn finds_metadata_that_counts_other_rows() {
    type Spoil = fn(&mut LogMetadata);
    let spoils: [Spoil; 4] = [
        |metadata| metadata.cpus[1].gap_count = 11,
        |metadata| metadata.cpus[1].observed = false,
        |metadata| metadata.cpus.truncate(1),
        |metadata| metadata.cpus.push(metadata.cpus[1].clone()),
    ];
    for spoil in spoils {
        let (gaps, mut metadata) = sound();
        spoil(&mut metadata);
        let findings = check(&gaps, &metadata);
        let place = Some(GapPlace { cpu: Some(2), row: Some(10) });
        assert_eq!(found(&findings), [(Check::Counts, CheckResult::Wrong, place)]);
    }
}

#[test]
fn repeats_what_the_importer_said() {
    let (gaps, mut metadata) = sound();
    metadata.cpus[0].lost_event_count = 7;
    metadata.doubts = vec![Doubt::NoSwitches, Doubt::NoTickStops];
    let findings = check(&gaps, &metadata);
    let lost_at = Some(GapPlace { cpu: Some(0), row: None });
    assert_eq!(
        found(&findings),
        [(Check::Lost, CheckResult::Doubt, lost_at), (Check::Doubts, CheckResult::Doubt, None)]
    );
    assert_eq!(findings.iter().map(|f| f.found_count).sum::<u64>(), 9);
}
