//! The program. Figures depend on the machine; statements about them are tested.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

use idlewise_park_bench::report::{ParkResult, to_markdown};
use idlewise_report::saved::{Block, Saved, SavedSeries};
use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise-park-bench"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    command.current_dir(root).args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = bench(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).unwrap()
}

/// The message of a command that fails.
fn failure(arguments: &[&str]) -> String {
    let output = bench(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
    message
}

#[test]
fn measures_all_ways_in_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("plot.svg");
    let plot = plot.to_str().unwrap();
    let arguments = "--workload poisson:20 --wakes 100 --runs 2 --seed 5 --plot";
    let arguments: Vec<&str> = arguments.split(' ').chain([plot]).collect();
    let document = json(&[&arguments[..], &["--json"]].concat());
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [5, 6]);
    for run in runs {
        let workload = &run["workloads"][0];
        assert_eq!(workload["workload"], "poisson:20");
        let ways = workload["ways"].as_array().unwrap();
        assert_eq!(ways.len(), 15);
        assert!(ways.iter().all(|way| way["wake_latency_p99_ns"].as_f64().is_some()));
        assert_eq!(run["round_trips"].as_array().unwrap().len(), 15);
    }
    // Five goals of the workload, and those without one: round trips, four calls, four timeouts.
    let goals = document["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 14);
    assert!(goals.iter().all(|goal| goal["verdict"] == "undecided"), "two runs decide nothing");
    assert!(document["machine"].as_array().unwrap().iter().any(|fact| fact["fact"] == "kernel"));
    assert!(std::fs::read_to_string(plot).unwrap().contains("idlewise"));
    let message = failure(&arguments);
    assert!(
        ["plot.svg", "exists", "--force"].iter().all(|part| message.contains(part)),
        "{message}"
    );
}

#[test]
fn replays_the_gaps_of_a_log() {
    let log = "traces/s-softirq500.parquet";
    let arguments = ["--log", log, "--wakes", "100", "--runs", "1"];
    let text = stdout(&[&arguments[..], &["--oversubscribed"]].concat());
    assert!(text.contains("s-softirq500: 1 times 100 wakes of each, measured"), "{text}");
    assert!(text.contains("behind the front of fixed spins"), "{text}");
    // With more threads than CPUs every way makes progress. A futex against itself is 100 %.
    let trips = text.split("Round trips").nth(1).unwrap();
    let futex = trips.lines().find(|line| line.starts_with("futex ")).unwrap();
    let percent = futex.split_whitespace().last().unwrap().trim_end_matches('*');
    assert_eq!(percent.parse(), Ok(100.0), "{futex}");
}

/// What MWAITX does depends on the CPU. We must survive it and report it.
#[test]
fn tries_mwaitx_in_a_process_of_its_own() {
    let arguments = "--workload poisson:20 --wakes 100 --runs 1 --try-mwaitx --json";
    let document = json(&arguments.split(' ').collect::<Vec<_>>());
    let finding = &document["mwaitx"];
    let ways = document["runs"][0]["workloads"][0]["ways"].as_array().unwrap();
    let is_lane = ways.iter().any(|way| way["way"] == "mwaitx");
    match finding["refused"].as_str() {
        Some(reason) => assert!(!is_lane && !reason.is_empty()),
        None => {
            assert!(is_lane && finding["cpuid_ns"].as_f64().unwrap() > 0.0, "{finding}");
            let waits = finding["timer_ratio"].as_f64().unwrap() >= 0.5;
            assert_eq!(finding["waits"].as_bool(), Some(waits));
        }
    }
}

#[test]
fn says_where_there_is_no_sibling_to_be_busy() {
    let output = bench(&["--busy-sibling", "--wakes", "100", "--runs", "1"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || message.contains("has no SMT sibling"), "{message}");
}

#[test]
fn refuses_what_is_no_workload() {
    let message = failure(&["--workload", "storm:5"]);
    assert!(message.contains("'storm:5' is no workload"), "{message}");
}

/// A saved measurement becomes a page with figures and plots. Repeating that changes nothing.
#[test]
fn makes_a_page_of_what_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    let page = page.to_str().unwrap();
    let saved = "park/idlewise-park-bench/tests/golden/park-result.json";
    stdout(&["--from", saved, "--page", page]);
    let files = || {
        ["page.md", "page.json", "page-poisson-20.svg"]
            .map(|name| std::fs::read_to_string(folder.path().join(name)).expect(name))
    };
    let first = files();
    assert!(first[0].contains("](page-poisson-20.svg)"), "{}", first[0]);
    let figures = folder.path().join("page.json");
    let figures = figures.to_str().unwrap();
    let message = failure(&["--from", figures, "--page", page]);
    assert!(message.contains("exists") && message.contains("--force"), "{message}");
    stdout(&["--from", figures, "--page", page, "--force"]);
    assert!(files() == first, "a page of the same figures differs");
    let message = failure(&["--from", page]);
    assert!(message.contains("page.md: no JSON: "), "{message}");
    let message = failure(&["--from", saved, "--page", "page.html"]);
    assert!(message.contains("page.html: name a file that ends in .md"), "{message}");
    let both = ["--from", saved, "--wakes", "100"];
    assert_eq!(bench(&both).status.code(), Some(2));
}

/// The page of the documentation follows from its figures, and so does that of a fixed measurement. `make golden`
/// rewrites both.
#[test]
fn pages_follow_from_their_figures() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for page in [root.join("tests/golden/park-page.md"), root.join("../../docs/park/measured.md")] {
        let stem = page.file_stem().unwrap().to_str().unwrap();
        let figures = page.with_file_name(stem.replace("-page", "-result") + ".json");
        let result = ParkResult::from_json(&std::fs::read_to_string(figures).unwrap()).unwrap();
        let made = to_markdown(&result, stem);
        if std::env::var("IDLEWISE_GOLDEN").is_ok_and(|value| value == "rewrite") {
            std::fs::write(&page, &made).unwrap();
        }
        assert!(std::fs::read_to_string(&page).unwrap() == made, "{} is stale", page.display());
    }
}

/// `idlewise lab compare` reads what is saved: a block for each run.
#[test]
fn what_is_saved_can_be_compared() {
    let saved = "park/idlewise-park-bench/tests/golden/park-result.json";
    let document = json(&["--from", saved, "--json"]);
    let schema = include_str!("../result-schema.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let errors: Vec<_> = validator.iter_errors(&document).map(|one| one.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    let read = Saved::from_json(&document.to_string()).unwrap();
    let result = ParkResult::from_json(&document.to_string()).unwrap();
    let way = &result.runs[1].workloads[0].ways[2];
    let is_it = |one: &&SavedSeries| one.figure == "wake latency p99" && one.setting == way.way;
    let series = read.series.iter().find(is_it).unwrap();
    assert_eq!(series.blocks.len(), result.runs.len());
    assert_eq!(series.blocks[1], Block::of(way.wake_latency_p99_ns));
    assert_eq!((read.run_count, read.measurement.as_str()), (result.runs.len(), "park"));
}
