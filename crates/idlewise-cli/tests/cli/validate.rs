//! `idlewise log validate`. The checks themselves are tested in the library.

use idlewise_trace::log::{IdleLog, LogWriter};
use idlewise_trace::{GapSink, IdleGap};

use crate::import::gaps;
use crate::{OwnFile, WIDTH, assert_refused, folder, idlewise, json, root, stdout};

#[test]
fn bundled_logs_are_sound() {
    for name in ["a-idle", "b-redis", "e-hackbench", "h-pingpong", "s-softirq500"] {
        let log = format!("traces/{name}.parquet");
        let document = json(&["log", "validate", &log, "--json"]);
        assert_eq!(document["is_wrong"], false, "{document:#}");
        let checks = document["checks"].as_array().unwrap();
        let rows = document["gap_count"].as_u64().unwrap();
        let order = checks.iter().find(|check| check["check"] == "order").unwrap();
        assert_eq!(order["checked_count"], rows, "every row was looked at");
    }
    let text = stdout(&["log", "validate", "traces/a-idle.parquet"]);
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    assert!(text.contains("nothing is wrong") && text.contains("unobserved"), "{text}");
}

#[test]
fn a_recording_is_checked_as_the_log_that_it_makes() {
    let of_log = json(&["log", "validate", "traces/a-idle.parquet", "--json"]);
    let of_recording = json(&["log", "validate", "traces/a-idle.perf.data.xz", "--json"]);
    assert_eq!(of_log, of_recording);
}

#[test]
fn status_is_1_for_a_log_that_contradicts_itself() {
    let log = IdleLog::open(&root().join("traces/a-idle.parquet")).unwrap();
    let folder = folder();
    let path = folder.path().join("mailed.parquet");
    let write = |gaps: &[IdleGap]| {
        let mut writer = LogWriter::create(&path, true).unwrap();
        writer.take(0, gaps).unwrap();
        writer.finish_unchecked(&log.metadata).unwrap();
    };
    let mut gaps = gaps(&log);
    gaps[20].next_tick_ns = gaps[20].next_tick_ns.map(|ns| ns / 2);
    write(&gaps);
    // `info` says so, too, with a command to paste.
    let said = stdout(&["info", path.to_str().unwrap()]);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(&format!("details: idlewise log validate {}", path.display())), "{said}");

    gaps.swap(5, 6);
    write(&gaps);
    let output = idlewise(&["log", "validate", path.to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["is_wrong"], true);
    let checks = document["checks"].as_array().unwrap();
    let row = |name: &str| checks.iter().find(|check| check["check"] == name).unwrap();
    assert_eq!((&row("order")["result"], &row("order")["first_row"]), (&"wrong".into(), &6.into()));
    let grid = row("tick grid");
    assert_eq!((&grid["found_count"], &grid["first_row"]), (&1.into(), &20.into()));
}

#[test]
fn status_is_2_for_what_cannot_be_read() {
    let cut = OwnFile::new("cut.parquet", b"PAR1 and no footer");
    assert_refused(&["log", "validate", cut.path()], &["cut.parquet", "not an idle log"]);
    assert_refused(&["log", "validate", "no-such-file"], &["no-such-file"]);
}
