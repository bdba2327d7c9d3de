//! `idlewise info`.

use crate::{OwnFile, WIDTH, assert_refused, json, stdout};

#[test]
fn tells_an_unobserved_cpu_from_an_idle_one() {
    let text = stdout(&["info", "traces/s-softirq500.parquet"]);
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    let cpu1 = text.lines().find(|line| line.trim_start().starts_with("1 ")).unwrap();
    assert!(cpu1.contains("unobserved"), "{text}");
    let document = json(&["info", "traces/s-softirq500.parquet", "--json"]);
    let cpus = document["cpus"].as_array().unwrap();
    assert_eq!(cpus[0]["gap_count"], 10144);
    assert!(cpus[1]["gap_count"].is_null() && cpus[1]["idle_ratio"].is_null());
    assert_eq!(document["metadata"]["hz"], 250);
    // The percentiles that traces/ documents for this recording, within rounding.
    let p50_ns = cpus[0]["gap_p50_ns"].as_u64().unwrap();
    assert!((490_000..505_000).contains(&p50_ns), "{p50_ns}");
}

#[test]
fn reads_a_recording_directly() {
    let log = json(&["info", "traces/a-idle.parquet", "--json"]);
    let recording = json(&["info", "traces/a-idle.perf.data.xz", "--json"]);
    assert_eq!(log["cpus"], recording["cpus"]);
}

#[test]
fn refuses_other_files() {
    let parquet = OwnFile::new("x.parquet", b"PAR1 and nothing more PAR1");
    assert_refused(&["info", parquet.path()], &["x.parquet", "not an idle log"]);
    assert_refused(&["info", "README.md"], &["README.md", "perf.data"]);
}
