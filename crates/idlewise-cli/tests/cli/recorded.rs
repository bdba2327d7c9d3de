//! `idlewise replay --check-recorded` with logs from a simulated machine. Their governors decided
//! by what is in the log, so the check must find no difference.

use std::fs;

use idlewise_sim::workload::WORKLOADS;
use idlewise_trace::GapSink;
use idlewise_trace::log::{IdleLog, LogWriter};

use crate::import::gaps;
use crate::{folder, idlewise, json, root, stdout};

const GOVERNORS: [&str; 5] = ["menu", "teo", "ladder", "menu-6.1", "teo-6.1"];

/// Simulates and checks. Returns the check's output and exit status.
fn checked(machine: &str, workload: &str, governor: &str, more: &[&str]) -> (String, Option<i32>) {
    let folder = folder();
    let log = folder.path().join("run.parquet");
    let log = log.to_str().unwrap();
    let run = [
        "lab",
        "simulate",
        machine,
        workload,
        "--governor",
        governor,
        "--trace",
        log,
        "--duration-ms",
        "150",
    ];
    // With its defaults, it leaves no CPU idle.
    let is_busy = workload == "hackbench";
    let lighter = ["--set", "group_count=1", "--set", "fd_count=1", "--set", "capacity=1"];
    stdout(&[&run[..], more, if is_busy { &lighter } else { &[] }].concat());
    let output = idlewise(&["replay", log, "--check-recorded"]);
    let text = String::from_utf8(output.stdout).unwrap();
    (text.split_whitespace().collect::<Vec<_>>().join(" "), output.status.code())
}

/// One thread per core, with exit latencies from the table.
const BY_THE_TABLE: [&str; 6] =
    ["--set", "core_count=4", "--set", "thread_count=1", "--set", "package_exit_ns=0"];

#[track_caller]
fn assert_agrees(machine: &str, workload: &str, governor: &str, more: &[&str]) {
    let (text, status) = checked(machine, workload, governor, more);
    assert_eq!(text.matches("100.00 %").count(), 2, "{machine} {workload} {governor}: {text}");
    assert_eq!(status, Some(0), "{machine} {workload} {governor}: {text}");
}

/// In gaps with a tick, `recorded_idle_ns - gap_ns` is not an exit latency.
#[test]
fn agrees_with_every_governor_under_every_workload() {
    for workload in WORKLOADS.iter().map(|spec| spec.name) {
        for governor in GOVERNORS {
            assert_agrees("skl-client", workload, governor, &BY_THE_TABLE);
        }
    }
}

#[test]
fn agrees_on_every_machine() {
    let document = json(&["machines", "--json"]);
    let machines = document["machines"].as_array().unwrap();
    let mut count = 0;
    for (index, machine) in machines.iter().enumerate() {
        if machine["states"].as_str().is_none_or(str::is_empty) {
            continue;
        }
        let id = machine["machine"].as_str().unwrap();
        let workload = WORKLOADS[index % WORKLOADS.len()].name;
        let governor = GOVERNORS[index % 3];
        assert_agrees(id, workload, governor, &BY_THE_TABLE);
        count += 1;
    }
    assert!(count > 50, "{count}");
}

#[test]
fn agrees_under_a_latency_limit() {
    let limited = [&BY_THE_TABLE[..], &["--latency-limit-us", "100"]].concat();
    assert_agrees("spr", "poisson", "menu", &limited);
    assert_agrees("spr", "nearly-idle", "teo", &limited);
}

/// A log lists what it cannot contain, and the check repeats that.
#[test]
fn a_log_says_why_its_replay_may_decide_otherwise() {
    let (text, _) = checked("milan", "third-cpu", "teo", &[]);
    assert!(text.contains("simulated with 2 threads a core"), "{text}");
    let with = |more: &[&str]| checked("spr", "poisson", "menu", &[&BY_THE_TABLE, more].concat()).0;
    assert!(!with(&[]).contains("simulated with"));
    let text = with(&["--set", "tick_work_ns=9000"]);
    assert!(text.contains("replay it with --tick-work-ns 9000"), "{text}");
    let text = with(&["--disable", "C6"]);
    assert!(text.contains("replay it with --disable C6"), "{text}");
    let text = with(&["--set", "exit_ratio=0.5", "--set", "package_idle_mw=5"]);
    assert!(text.contains("simulated with exit_ratio, a package state"), "{text}");
}

#[test]
fn nothing_to_compare_is_no_agreement() {
    let folder = folder();
    let source = IdleLog::open(&root().join("traces/a-idle.parquet")).unwrap();
    let mut silent = gaps(&source);
    silent.iter_mut().for_each(|gap| gap.recorded_state = None);
    let path = folder.path().join("silent.parquet");
    let mut writer = LogWriter::create(&path, false).unwrap();
    writer.take(0, &silent).unwrap();
    writer.finish_unchecked(&source.metadata).unwrap();
    let arguments = ["replay", path.to_str().unwrap(), "--check-recorded"];
    let named = ["--governor", "menu", "--machine", "spr"];
    let output = idlewise(&[&arguments[..], &named].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("no gap in it has a recorded decision; nothing to compare"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    // A log that does not name a governor is not checked either.
    let output = idlewise(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::exists(&path).unwrap());
}
