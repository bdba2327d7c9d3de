//! Doubts: how they are shown, and that the faults that minor ones report change no verdict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use idlewise_trace::log::{IdleLog, LogWriter};
use idlewise_trace::{Doubt, GapSink, IdleGap};

use crate::import::gaps;
use crate::{folder, json, manifest_rows, root, stdout};

/// The bundled logs, after applying `change` to each gap with a pseudo-random number.
fn changed_logs(folder: &Path, change: impl Fn(&mut IdleGap, u64)) -> Vec<PathBuf> {
    let mut number = 1u64;
    let mut write = |name: &str| {
        let log = IdleLog::open(&root().join("traces").join(name)).unwrap();
        let mut gaps = gaps(&log);
        for gap in &mut gaps {
            // Knuth's MMIX generator. Its high bits are good.
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            change(gap, number >> 33);
        }
        let path = folder.join(name);
        let mut writer = LogWriter::create(&path, false).unwrap();
        for gaps in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
            writer.take(gaps[0].cpu, gaps).unwrap();
        }
        writer.finish_unchecked(&log.metadata).unwrap();
        path
    };
    manifest_rows().iter().map(|(_, log)| write(log)).collect()
}

/// The regret of each governor on each log and machine.
type Regrets = BTreeMap<(String, String), BTreeMap<String, f64>>;

fn regrets(logs: &[PathBuf]) -> Regrets {
    let governors = ["--governor", "menu", "--governor", "teo", "--governor", "ladder"];
    let logs = logs.iter().map(|log| log.to_str().unwrap());
    let arguments: Vec<&str> =
        ["replay", "--json"].into_iter().chain(governors).chain(logs).collect();
    let mut regrets = Regrets::new();
    for row in json(&arguments)["rows"].as_array().unwrap() {
        let word = |column: &str| row[column].as_str().unwrap().to_owned();
        let of_log = regrets.entry((word("log"), word("machine"))).or_default();
        of_log.insert(word("governor"), row["regret_quarter_ratio"].as_f64().unwrap());
    }
    regrets
}

/// The most that trusting the changed logs' verdict can cost, as a share of the oracle's cost.
fn verdicts_cost(change: impl Fn(&mut IdleGap, u64)) -> f64 {
    let (original, changed) = (folder(), folder());
    let before = regrets(&changed_logs(original.path(), |_, _| {}));
    let after = regrets(&changed_logs(changed.path(), change));
    let best = |regrets: &BTreeMap<String, f64>| {
        regrets.iter().min_by(|a, b| a.1.total_cmp(b.1)).map(|(name, _)| name.clone()).unwrap()
    };
    let cost = |(key, of_log): (&(String, String), &BTreeMap<String, f64>)| {
        of_log[&best(&after[key])] - of_log[&best(of_log)]
    };
    before.iter().map(cost).fold(0.0, f64::max)
}

#[test]
fn what_is_minor_changes_no_verdict() {
    let migrated = verdicts_cost(|gap, number| {
        if number % 100 < 5 {
            let part = |ns: u64| ns / 1_000 * (number / 100 % 1_000);
            gap.sleep_length_ns = gap.sleep_length_ns.map(part);
        }
    });
    assert!(migrated < 0.01, "next timers that were another CPU's: {migrated}");
    let microseconds = verdicts_cost(|gap, _| {
        let end_ns = gap.start_ns + gap.gap_ns as i64;
        gap.start_ns = gap.start_ns / 1_000 * 1_000;
        gap.gap_ns = (end_ns / 1_000 * 1_000 - gap.start_ns) as u64;
    });
    assert!(microseconds < 0.01, "times to the microsecond: {microseconds}");
    // A major doubt does change verdicts.
    let unknown = verdicts_cost(|gap, _| gap.sleep_length_ns = None);
    assert!(unknown > 0.01, "no next timers: {unknown}");
}

#[test]
fn doubts_are_one_line_unless_asked_for() {
    let folder = folder();
    let path = folder.path().join("log.parquet");
    let log = IdleLog::open(&root().join("traces/a-idle.parquet")).unwrap();
    let mut metadata = log.metadata.clone();
    let minor = [Doubt::Microseconds, Doubt::BucketComputed];
    metadata.doubts = [&minor[..], &[Doubt::LostEvents { count: 3 }]].concat();
    let mut writer = LogWriter::create(&path, false).unwrap();
    writer.take(0, &gaps(&log)).unwrap();
    writer.finish_unchecked(&metadata).unwrap();
    let path = path.to_str().unwrap();
    for command in [
        &["replay", path][..],
        &["replay", "--compare", path],
        &["info", path],
        &["log", "validate", path],
    ] {
        let text = stdout(command);
        let line = text.lines().next_back().unwrap();
        assert!(line.ends_with("lost events: 3 · details: --doubts"), "{text}");
        assert!(!text.contains("Doubts:") && !text.contains("microsecond"), "{text}");
        let all = stdout(&[command, &["--doubts"]].concat());
        assert!(all.contains("microsecond") && all.contains("3 events were lost"), "{all}");
        let document = stdout(&[command, &["--json"]].concat());
        assert!(document.contains("to the microsecond"), "{document}");
    }
}

/// Two machines whose powers are assumed, and five logs without CPU 1: each is one cause.
#[test]
fn a_cause_is_said_once_whatever_it_is_true_of() {
    let text = stdout(&["replay", "--machine", "spr", "--machine", "milan"]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(" Energy: assumed power · 1 CPU unobserved · "), "{text}");
    assert!(text.ends_with("details: --doubts"), "{text}");
    assert_eq!(text.matches("Energy: assumed").count(), 1, "{text}");
    let all = stdout(&["replay", "--machine", "spr", "--machine", "milan", "--doubts"]);
    let all = all.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(all.contains("powers of spr, milan, so their energy and regret."), "{all}");
    assert_eq!(all.matches("power assumed: default shape").count(), 1, "{all}");
    assert!(all.contains("4000 mW: spr (C1, C1E, C6); milan (C1, C2)"), "{all}");
    let document = json(&["replay", "--machine", "spr", "--machine", "milan", "--json"]);
    assert!(document["doubts"].to_string().contains("milan: power of C1, C2 assumed"));
}
