//! `idlewise lab simulate`.

use idlewise_sim::simulate::Hardware;
use idlewise_sim::workload::{WORKLOADS, Workload};
use serde_json::Value;

use crate::{OwnFile, WIDTH, assert_refused, folder, json, stdout};

const SHORT: [&str; 2] = ["--duration-ms", "20"];

/// A row with the wanted values.
fn row<'a>(document: &'a Value, table: &str, wanted: &[(&str, &str)]) -> &'a Value {
    let rows = document[table].as_array().unwrap();
    rows.iter()
        .find(|row| wanted.iter().all(|(key, value)| row[*key] == *value))
        .unwrap_or_else(|| panic!("no {wanted:?} in {rows:?}"))
}

/// Events that take no time must not follow each other for ever. 5 ms once took 6 s.
#[test]
fn no_workload_runs_away_where_something_takes_no_time() {
    for workload in WORKLOADS {
        for zeros in
            [&["irq_entry_ns=0"][..], &["irq_entry_ns=0", "switch_ns=0", "ipi_receive_ns=0"]]
        {
            let line = [
                "lab",
                "simulate",
                "spr",
                workload.name,
                "--duration-ms",
                "5",
                "--governor",
                "menu",
            ];
            let set = [&["event_limit=1000000"], zeros].concat();
            let set = set.into_iter().flat_map(|set| ["--set", set]);
            stdout(&line.into_iter().chain(set).collect::<Vec<_>>());
        }
    }
}

#[test]
fn prints_governors_side_by_side_and_fits_the_screen() {
    let text = stdout(&[&["lab", "simulate", "spr", "tcp-lat"][..], &SHORT].concat());
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    for part in
        ["tcp-lat on spr (4 × 40 × 2 CPUs)", "menu", "teo", "latency", "C6", "assumed power"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let base = [&["lab", "simulate", "milan", "nearly-idle", "--json"][..], &SHORT].concat();
    let run = |seed| stdout(&[&base[..], &["--seed", seed, "--replicates", "3"]].concat());
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn a_store_is_cheaper_than_an_ipi() {
    let base =
        [&["lab", "simulate", "spr", "wakes", "--governor", "deepest", "--json"][..], &SHORT]
            .concat();
    let ipi = json(&[&base[..], &["--set", "ipi_less=false"]].concat());
    let store = json(&base);
    let wake_ns =
        |document: &Value| row(document, "spans", &[("span", "wake")])["p50_ns"].as_u64().unwrap();
    assert!(wake_ns(&store) < wake_ns(&ipi));
    let count = |document: &Value, key: &str| document["runs"][0][key].as_u64().unwrap();
    assert_eq!(count(&store, "ipi_sent_count"), 0);
    assert_eq!(count(&ipi, "ipi_elided_count"), 0);
    assert!(count(&ipi, "ipi_sent_count") > 100);
    assert_eq!(store["hardware"]["ipi_less"], true);
}

#[test]
fn a_trace_is_an_idle_log_that_replays_like_a_real_one() {
    let folder = folder();
    let log = folder.path().join("run.parquet");
    let log = log.to_str().unwrap();
    let run = ["lab", "simulate", "spr", "periodic", "--governor", "teo", "--trace", log];
    let text = stdout(&[&run[..], &SHORT].concat());
    assert!(text.contains(" gaps"), "{text}");
    assert!(folder.path().join("run.pftrace").metadata().unwrap().len() > 1_000);
    // The command exits with 1 if anything is wrong.
    stdout(&["log", "validate", log]);
    let replayed = json(&["replay", log, "--machine", "spr", "--governor", "teo", "--json"]);
    assert!(replayed["rows"][0]["gap_count"].as_u64().unwrap() > 100);
    assert_refused(&[&run[..], &SHORT].concat(), &["exists", "--force"]);
}

/// The gaps of a recording whose CPU had enough time between them.
#[test]
fn plays_the_gaps_of_a_recording() {
    let log = "traces/a-idle.parquet";
    let base = ["--governor", "shallowest", "--json"];
    let played = json(&[&["lab", "simulate", "spr", log][..], &base].concat());
    let replayed = json(&[&["replay", log, "--machine", "spr"][..], &base].concat());
    let late = row(&played, "spans", &[("span", "late_start")]);
    assert!(late["p99_ns"].as_u64().unwrap() < 10_000, "{late}");
    let entries = row(&played, "states", &[("state", "POLL")])["entry_count"].as_u64().unwrap();
    let decisions = replayed["rows"][0]["decision_count"].as_u64().unwrap();
    assert!(entries.abs_diff(decisions) * 100 < decisions, "{entries} {decisions}");
}

#[test]
fn a_workload_file_sets_workload_and_hardware() {
    let file = OwnFile::new("mine.toml", "workload = \"poisson\"\nservice_ns = 7000\nhz = 1000\n");
    let document = json(&[&["lab", "simulate", "spr", file.path(), "--json"][..], &SHORT].concat());
    assert_eq!(document["parameters"]["service_ns"], 7000);
    assert_eq!(document["hardware"]["hz"], 1000);
}

#[test]
fn lists_every_parameter() {
    let text = stdout(&["lab", "simulate", "--list"]);
    for part in ["tcp-lat:", "hackbench:", "irq_offset", "ipi_send_ns", "tdp_mw"] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn refuses_what_cannot_be_with_one_line() {
    let refused = |extra: &[&str], parts: &[&str]| {
        assert_refused(&[&["lab", "simulate", "spr"][..], extra].concat(), parts);
    };
    refused(&["tcp-lta"], &["no workload 'tcp-lta'", "did you mean 'tcp-lat'?"]);
    refused(&["poisson", "--set", "servce_ns=1"], &["did you mean 'service_ns'?"]);
    refused(&["poisson", "--set", "service_ns"], &["expected KEY=VALUE"]);
    let twice = ["poisson", "--set", "service_ns=1", "--set", "service_ns=2"];
    refused(&twice, &["service_ns was already set to 1; give each key once"]);
    refused(&["poisson", "--set", "service_ns=x"], &["service_ns = x", "whole number"]);
    refused(&["tcp-lat", "--set", "server_cpu=9999"], &["server_cpu = 9999", "0 to 8191"]);
    refused(&["tcp-lat", "--set", "server_cpu=8000"], &["CPU 8000", "core_count"]);
    refused(&["tcp-lat", "--set", "core_count=0"], &["core_count = 0", "1 to 8192"]);
    refused(&["tcp-lat", "--set", "core_count=99999"], &["core_count = 99999", "1 to 8192"]);
    refused(&["tcp-lat", "--set", "core_count=8192"], &["more than 8192"]);
    refused(&["tcp-lat", "--governor", "oracle"], &["knows each gap in advance"]);
    refused(
        &["hackbench", "--set", "event_limit=1000"],
        &["ended after 1000 events", "--duration"],
    );
    refused(
        &[
            "poisson",
            "--set",
            "interval_ns=100",
            "--set",
            "service_ns=0",
            "--set",
            "event_limit=5000",
        ],
        &["ended after 5000 events"],
    );
    // Millions of events without end, and none of them does anything.
    refused(&["poisson", "--set", "interval_ns=0"], &["interval_ns = 0", "100 to", "(a year)"]);
    refused(&["third-cpu", "--set", "interval_ns=99"], &["interval_ns = 99", "100 to"]);
    refused(&["periodic", "--set", "period_ns=0"], &["period_ns = 0", "100 to"]);
    refused(&["nearly-idle", "--set", "interval_ns=0"], &["interval_ns = 0", "100 to"]);
    refused(&["async-calls", "--set", "interval_ns=0"], &["interval_ns = 0", "100 to"]);
    refused(&["burst-then-idle", "--set", "quiet_ns=0"], &["quiet_ns = 0", "100 to"]);
    refused(&["wakes", "--set", "housekeeping_ns=1"], &["housekeeping_ns = 1", "100000 to"]);
    let file = OwnFile::new("mine.toml", "workload = \"poisson\"\nservise_ns = 1\n");
    refused(&[file.path()], &["line 2", "did you mean 'service_ns'?"]);
    let file = OwnFile::new("mine.toml", "workload = \n");
    refused(&[file.path()], &["line 1"]);
    // Eight million bytes of it took 400 MB.
    let file = OwnFile::new("mine.toml", "#\n".repeat(1 << 20));
    refused(&[file.path()], &["cannot read", "mine.toml", "more than 1 MiB"]);
    refused(&["no-such.toml"], &["cannot read no-such.toml"]);
}

/// All parameters are bounded, so that no value makes an allocation fail.
#[test]
fn every_parameter_has_a_range() {
    for spec in WORKLOADS {
        let infos = (spec.parameters)().into_iter().chain(Hardware::parameters());
        for info in infos {
            let set = |value: &str| {
                let mut hardware = Hardware::default();
                Workload::named(spec.name).unwrap().set(&mut hardware, info.key, value)
            };
            for value in ["18446744073709551615", "-1", "1e308", "NaN", "inf", ""] {
                let message = set(value).expect_err(info.key).to_string();
                assert!(message.contains(&info.range.to_string()), "{message}");
            }
        }
    }
    let refused = |workload: &str, set: &str, range: &str| {
        assert_refused(&["lab", "simulate", "spr", workload, "--set", set], &[range]);
    };
    refused(
        "burst-then-idle",
        "sibling_count=4294967295",
        "sibling_count = 4294967295: expected a whole number, 0 to 8191",
    );
    refused("hackbench", "fd_count=1000000", "1 to 100");
    refused("tcp-lat", "smt2_speed=2", "smt2_speed = 2: expected a number, 0 to 1");
    // The largest allowed number of tasks fits in memory.
    stdout(&[
        "lab",
        "simulate",
        "spr",
        "hackbench",
        "--set",
        "group_count=1000",
        "--set",
        "fd_count=100",
        "--duration-ms",
        "1",
        "--governor",
        "menu",
    ]);
}

/// With more than a few thousand different values, spans were once rounded to three digits.
#[test]
fn percentiles_are_what_was_measured() {
    let document = json(&[
        "lab",
        "simulate",
        "spr",
        "poisson",
        "--governor",
        "menu",
        "--duration-ms",
        "4000",
        "--json",
    ]);
    let span = row(&document, "spans", &[("span", "latency")]);
    assert!(span["count"].as_u64().unwrap() > 15_000, "{span}");
    let is_round = |key: &str| span[key].as_u64().unwrap().is_multiple_of(1_000);
    let round_count = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"].iter();
    assert!(round_count.filter(|key| is_round(key)).count() <= 1, "{span}");
}
