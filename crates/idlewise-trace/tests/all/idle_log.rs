//! The idle log as a file: what was written can be read, sorted, and invalid files are refused.

use std::fs;

use idlewise_trace::log::{IdleLog, LogError, LogMetadata, LogWriter};
use idlewise_trace::{GapSink, IdleGap, WakeReason};
use proptest::prelude::*;

fn gap(cpu: u16, start_ns: i64) -> IdleGap {
    IdleGap {
        cpu,
        start_ns,
        gap_ns: 1,
        sleep_length_ns: None,
        next_tick_ns: Some(77),
        tick_stopped: false,
        ran_task: true,
        wake_reason: WakeReason::Timer,
        latency_limit_ns: None,
        recorded_state: Some(1),
        recorded_idle_ns: Some(1_200),
    }
}

fn read_all(log: &IdleLog) -> Result<Vec<IdleGap>, LogError> {
    let (mut all, mut gaps) = (Vec::new(), Vec::new());
    for group in log.groups() {
        log.read_group(group, all.last(), &mut gaps)?;
        all.extend_from_slice(&gaps);
    }
    Ok(all)
}

fn write(path: &std::path::Path, runs: &[(u16, Vec<IdleGap>)]) -> Result<(), LogError> {
    let mut writer = LogWriter::create(path, true)?;
    for (cpu, gaps) in runs {
        writer.take(*cpu, gaps)?;
    }
    writer
        .finish_unchecked(&LogMetadata { format_version: 1, ..LogMetadata::default() })
        .map(|_| ())
}

#[test]
fn sorts_the_runs_of_cpus_that_took_turns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let runs = [(1, vec![gap(1, 10)]), (0, vec![gap(0, 20), gap(0, 30)]), (1, vec![gap(1, 40)])];
    write(&path, &runs).unwrap();
    let log = IdleLog::open(&path).unwrap();
    assert_eq!(log.gap_count(), 4);
    assert_eq!(read_all(&log).unwrap(), [gap(0, 20), gap(0, 30), gap(1, 10), gap(1, 40)]);
    let by_cpu = log.groups_by_cpu().unwrap();
    let shape: Vec<_> = by_cpu.iter().map(|(cpu, groups)| (*cpu, groups.len())).collect();
    assert_eq!(shape, [(0, 1), (1, 2)]);
    // Nothing else is in the folder.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Several threads read the same gaps in the same order as one thread, and the same first damage.
#[test]
fn what_is_decoded_ahead_is_what_stands_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    // Their lengths do not compress away.
    let varied = |cpu, at: i64| {
        let gap_ns = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        IdleGap { gap_ns, ..gap(cpu, 2_000_000 * at) }
    };
    let run = |cpu: u16, first: i64| -> (u16, Vec<IdleGap>) {
        (cpu, (first..first + 9_000).map(|at| varied(cpu, at)).collect())
    };
    write(&path, &[run(1, 0), run(0, 0), run(1, 9_000), run(2, 0), run(0, 9_000)]).unwrap();
    let ahead = |log: &IdleLog| {
        let mut all = Vec::new();
        let outcome = log.each_group_unordered(&mut |group, gaps| {
            assert_eq!(group.first_row, all.len() as u64);
            all.extend_from_slice(gaps);
        });
        outcome.map(|()| all)
    };
    let log = IdleLog::open(&path).unwrap();
    assert_eq!(log.groups().len(), 5);
    assert!(ahead(&log).unwrap() == read_all(&log).unwrap());

    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 2_000].fill(0xff);
    let damaged = IdleLog::from_bytes("damaged", bytes).unwrap();
    let message = read_all(&damaged).unwrap_err().to_string();
    assert_eq!(ahead(&damaged).unwrap_err().to_string(), message);
}

#[test]
fn refuses_rows_out_of_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    write(&path, &[(0, vec![gap(0, 30), gap(0, 20)])]).unwrap();
    let error = read_all(&IdleLog::open(&path).unwrap()).unwrap_err();
    assert!(matches!(error, LogError::Unsorted { row: 1, .. }), "{error}");
}

/// A CPU is idle once at a time.
#[test]
fn refuses_gaps_that_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let long = |cpu| IdleGap { gap_ns: 20, ..gap(cpu, 10) };
    write(&path, &[(0, vec![long(0), gap(0, 30)]), (1, vec![long(1), gap(1, 29)])]).unwrap();
    let error = read_all(&IdleLog::open(&path).unwrap()).unwrap_err();
    assert!(error.to_string().contains("row 3: the gap begins before"), "{error}");
}

#[test]
fn keeps_an_existing_file_unless_told_to_replace_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(LogWriter::create(&path, false).err(), Some(LogError::Exists { .. })));
    // A writer that is dropped unfinished leaves the old file and nothing else.
    let mut writer = LogWriter::create(&path, true).unwrap();
    writer.take(0, &[gap(0, 1)]).unwrap();
    drop(writer);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn refuses_what_is_no_idle_log() {
    let open = |bytes: &[u8]| IdleLog::from_bytes("x", bytes.to_vec()).map(|_| ()).unwrap_err();
    assert!(matches!(open(b""), LogError::Empty { .. }));
    assert!(matches!(open(b"PERFILE2 and then some"), LogError::NotParquet { .. }));
}

#[test]
fn refuses_a_log_that_is_cut_or_changed_without_panicking() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    write(&path, &[(0, (0..50).map(|i| gap(0, i * 10)).collect())]).unwrap();
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        assert!(IdleLog::from_bytes("x", whole[..cut].to_vec()).is_err());
    }
    for i in 0..whole.len() {
        let mut changed = whole.clone();
        changed[i] ^= 0x55;
        // Some bytes are not covered by any check. Reading must still end.
        if let Ok(log) = IdleLog::from_bytes("x", changed) {
            let _ = read_all(&log);
        }
    }
}

prop_compose! {
    fn any_gap()(
        cpu in 0..3_u16, start_ns in any::<i64>(), gap_ns in 0..=1_u64 << 53,
        sleep_length_ns in any::<Option<u64>>(), next_tick_ns in any::<Option<u32>>(),
        tick_stopped in any::<bool>(), ran_task in any::<bool>(), reason in 0..6_usize,
        latency_limit_ns in any::<Option<u64>>(), recorded_state in any::<Option<u8>>(),
        recorded_idle_ns in any::<Option<u64>>(),
    ) -> IdleGap {
        IdleGap {
            cpu, start_ns, gap_ns, sleep_length_ns, next_tick_ns, tick_stopped, ran_task,
            wake_reason: WakeReason::ALL[reason], latency_limit_ns, recorded_state, recorded_idle_ns,
        }
    }
}

proptest! {
    #[test]
    fn reads_back_what_was_written(mut gaps in prop::collection::vec(any_gap(), 0..200)) {
        gaps.sort_by_key(|gap| (gap.cpu, gap.start_ns));
        // They must not overlap.
        for at in 1..gaps.len() {
            let (before, after) = (gaps[at - 1].start_ns, gaps[at].start_ns);
            if gaps[at - 1].cpu == gaps[at].cpu {
                gaps[at - 1].gap_ns = gaps[at - 1].gap_ns.min(after.abs_diff(before));
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let runs: Vec<_> =
            gaps.chunk_by(|a, b| a.cpu == b.cpu).map(|run| (run[0].cpu, run.to_vec())).collect();
        write(&path, &runs).unwrap();
        prop_assert_eq!(read_all(&IdleLog::open(&path).unwrap()).unwrap(), gaps);
    }
}
