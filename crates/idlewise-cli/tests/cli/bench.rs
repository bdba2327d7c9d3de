//! `idlewise bench park`: what it measures is the machine's; what it says of it is tested.

use crate::{assert_refused, json, stdout};

#[test]
fn measures_all_ways_in_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let plot = plot.to_str().unwrap();
    let arguments = ["bench", "park", "--workload", "poisson:20", "--wakes", "100", "--plot", plot];
    let document = json(&[&arguments[..], &["--json"]].concat());
    let workload = &document["workloads"][0];
    assert_eq!(workload["workload"], "poisson:20");
    let ways = workload["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 15);
    assert!(ways.iter().all(|way| way["wake_latency_p50_ns"].as_u64().is_some()));
    assert_eq!(workload["goals"].as_array().unwrap().len(), 4);
    assert!(std::fs::read_to_string(plot).unwrap().contains("idlewise</text>"));
    assert_refused(&arguments, &["plot.svg", "exists", "--force"]);
}

#[test]
fn replays_the_gaps_of_a_log() {
    let log = "traces/s-softirq500.parquet";
    let text = stdout(&["bench", "park", "--log", log, "--wakes", "100", "--oversubscribed"]);
    assert!(text.contains("s-softirq500: 100 wakes of each, measured"), "{text}");
    assert!(text.contains("behind the front of fixed spins"), "{text}");
    // More threads than CPUs: every way gets round, and a futex against itself is 100 %.
    assert!(text.contains("a futex's round trips with more threads than CPUs, against ours"));
    let futex = text.rsplit('\n').find(|line| line.starts_with("futex ")).unwrap();
    let percent = futex.split_whitespace().last().unwrap().trim_end_matches('*');
    assert_eq!(percent.parse(), Ok(100.0), "{futex}");
}

#[test]
fn says_where_there_is_no_sibling_to_be_busy() {
    let output = crate::idlewise(&["bench", "park", "--busy-sibling", "--wakes", "100"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || message.contains("has no SMT sibling"), "{message}");
}

#[test]
fn refuses_what_is_no_workload() {
    let (status, message) = crate::failure(&["bench", "park", "--workload", "storm:5"]);
    assert_eq!(status, Some(2));
    assert!(message.contains("'storm:5' is no workload"), "{message}");
}
