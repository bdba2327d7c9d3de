//! `replay` on machines whose CPUs share idle states, and `--topology`.

use serde_json::Value;

use crate::{OwnFile, assert_refused, folder, json, stdout};

/// Two CPUs in a virtual machine.
const LOG: &str = "traces/q-menu-6.12.trace.dat.xz";
const PACKAGE: &str = "package=0-1";
/// CPU 0 only.
const HALF: &str = "traces/h-pingpong.parquet";

fn replay(extra: &[&str]) -> Value {
    let base = [
        "replay",
        LOG,
        "--machine",
        "spr-pc6",
        "--governor",
        "deepest",
        "--governor",
        "menu",
        "--json",
    ];
    json(&[&base[..], extra].concat())
}

#[test]
fn a_shared_state_is_entered_and_delays_its_first_wake_up() {
    let joined = replay(&["--topology", PACKAGE]);
    let alone = replay(&[]);
    assert!(alone.get("shared").is_none() && alone.get("bounds").is_none());
    let of = |document: &Value, governor: &str| {
        let rows = document["rows"].as_array().unwrap();
        rows.iter().find(|row| row["governor"] == governor).unwrap().clone()
    };
    let shared = joined["shared"].as_array().unwrap();
    assert_eq!(shared.len(), 2);
    for row in shared {
        let governor = row["governor"].as_str().unwrap();
        assert_eq!((&row["state"], &row["scope"]), (&"PC6".into(), &"package".into()));
        let waited_ns = row["shared_delay_sum_ns"].as_u64().unwrap();
        assert!(row["entry_count"].as_u64().unwrap() > 0 && waited_ns > 0, "{row}");
        assert!(waited_ns <= row["wake_count"].as_u64().unwrap() * 100_000, "{row}");
        let saved_uj = row["saved_uj"].as_f64().unwrap();
        assert!(row["residency_ratio"].as_f64().unwrap() < 1.0, "{row}");
        // Uncore included, the energy is more than that of cores alone.
        let energy_uj = |document| of(document, governor)["energy_uj"].as_f64().unwrap();
        assert!(energy_uj(&joined) > energy_uj(&alone) - saved_uj, "{row}");
    }
    // The oracle's bound is below every governor.
    for row in joined["rows"].as_array().unwrap() {
        for key in ["regret_free_ratio", "regret_quarter_ratio", "regret_full_ratio"] {
            assert!(row[key].as_f64().unwrap() >= 0.0, "{row}");
        }
    }
    // So is the bound itself, at each price.
    let bounds = joined["bounds"].as_array().unwrap();
    assert_eq!(bounds.len(), 3);
    for bound in bounds {
        let bound_uj = bound["bound_uj"].as_f64().unwrap();
        for row in joined["rows"].as_array().unwrap() {
            let delay_uj =
                bound["lambda_mw"].as_f64().unwrap() * row["delay_sum_ns"].as_f64().unwrap() * 1e-6;
            assert!(bound_uj <= row["energy_uj"].as_f64().unwrap() + delay_uj, "{bound} {row}");
        }
    }
    // "deepest" does not learn, so only the waits differ.
    let delay_ns = |document| of(document, "deepest")["delay_sum_ns"].as_u64().unwrap();
    let waited_ns = shared[0]["shared_delay_sum_ns"].as_u64().unwrap();
    assert_eq!(delay_ns(&joined), delay_ns(&alone) + waited_ns);
    assert_eq!(of(&joined, "deepest")["delay_max_ns"], 290_000);
}

#[test]
fn switched_off_it_costs_what_being_awake_costs() {
    let off = replay(&["--topology", PACKAGE, "--disable", "PC6"]);
    for row in off["shared"].as_array().unwrap() {
        assert_eq!((&row["entry_count"], &row["wake_count"]), (&0.into(), &0.into()), "{row}");
        assert_eq!(row["saved_uj"], 0.0);
    }
    let plain = replay(&[]);
    for (row, alone) in
        off["rows"].as_array().unwrap().iter().zip(plain["rows"].as_array().unwrap())
    {
        assert_eq!(row["delay_sum_ns"], alone["delay_sum_ns"]);
        assert_eq!(row["usage"], alone["usage"]);
        assert!(row["energy_uj"].as_f64().unwrap() > alone["energy_uj"].as_f64().unwrap());
    }
}

#[test]
fn text_shows_the_state_and_says_what_is_left_out_without_a_topology() {
    let base = ["replay", LOG, "--machine", "spr-pc6", "--governor", "menu", "--doubts"];
    let text = stdout(&[&base[..], &["--topology", PACKAGE]].concat());
    assert!(text.contains("states that CPUs share (simulated)"), "{text}");
    // Notes are wrapped.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("PC6 of spr-pc6: entered with the last CPU of a group"), "{text}");
    let text = stdout(&base);
    assert!(!text.contains("states that CPUs share (simulated)"), "{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("the log does not say which CPUs share them; pass --topology"), "{text}");
}

/// CPU 1 may be left out, or count as awake.
#[test]
fn a_cpu_that_was_not_observed_keeps_its_package_awake() {
    let entries = |topology: &str| {
        let base = ["replay", HALF, "--machine", "spr-pc6", "--governor", "menu", "--json"];
        let document = json(&[&base[..], &["--topology", topology]].concat());
        let doubts = document["doubts"].to_string();
        (document["shared"][0]["entry_count"].as_u64().unwrap(), doubts.contains("count as awake"))
    };
    assert_eq!(entries(PACKAGE), (0, true));
    let (alone, has_doubt) = entries("package=0");
    assert!(alone > 0 && !has_doubt);
}

#[test]
fn a_topology_from_a_file_is_the_same() {
    let file = OwnFile::new("topology.txt", format!("# one socket\n{PACKAGE}\n"));
    let line = replay(&["--topology", PACKAGE]);
    assert_eq!(replay(&["--topology", file.path()])["shared"], line["shared"]);
}

#[test]
fn a_topology_that_contradicts_the_log_is_one_line() {
    let refused = |machine: &str, topology: &str, parts: &[&str]| {
        let arguments = ["replay", LOG, "--machine", machine, "--topology", topology];
        assert_refused(&arguments, parts);
    };
    refused(
        "spr-pc6",
        "package=0",
        &["--topology and q-menu-6.12: CPU 1 of the log is in no package"],
    );
    refused("spr-pc6", "package=0-2", &["includes CPU 2, but the log has only CPUs 0-1"]);
    refused("spr-pc6", "core=0/1", &["share states of a package; add package= to core=0/1"]);
    refused("spr-pc6", "package=0-1/1", &["CPU 1 is named twice in level package"]);
    refused("spr-pc6", "package=x", &["\"x\": not a list of CPUs"]);
    refused("spr-pc6", "no-such-file", &["no-such-file"]);
    let checked =
        ["replay", LOG, "--machine", "spr-pc6", "--topology", PACKAGE, "--check-recorded"];
    assert_refused(&checked, &["--check-recorded and --write-log replay CPUs one by one"]);
    refused("spr", PACKAGE, &["the CPUs of spr share no idle states"]);
}

#[test]
fn an_export_has_a_track_for_the_package() {
    let folder = folder();
    let export = |name: &str, extra: &[&str]| {
        let path = folder.path().join(name);
        let base = [
            "log",
            "export",
            LOG,
            "--format",
            "perfetto",
            "--machine",
            "spr-pc6",
            "--governor",
            "deepest",
        ];
        stdout(&[&base[..], &["-o", path.to_str().unwrap()], extra].concat());
        std::fs::read(path).unwrap()
    };
    let has =
        |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    let joined = export("joined.pftrace", &["--topology", PACKAGE]);
    assert!(has(&joined, "package of CPU 0") && has(&joined, "PC6"));
    let alone = export("alone.pftrace", &[]);
    assert!(!has(&alone, "package of CPU 0"));
    let csv = ["log", "export", LOG, "--format", "csv", "--topology", PACKAGE, "-o", "-"];
    assert_refused(&csv, &["--topology: only --format perfetto with a --governor"]);
}

#[test]
fn a_simulated_package_sleeps_as_its_file_says() {
    let base = [
        "lab",
        "simulate",
        "spr-pc6",
        "nearly-idle",
        "--duration-ms",
        "50",
        "--governor",
        "menu",
        "--json",
    ];
    let small = ["--set", "package_count=1", "--set", "core_count=4", "--set", "thread_count=1"];
    let document = json(&[&base[..], &small].concat());
    let run = &document["runs"][0];
    assert!(run["package_idle_ratio"].as_f64().unwrap() > 0.0, "{run}");
    // Its log says which CPUs share the package, so a replay needs no --topology.
    let folder = folder();
    let log = folder.path().join("simulated.parquet");
    let log = log.to_str().unwrap();
    stdout(&[&base[..8], &small, &["--trace", log]].concat());
    let replayed = json(&["replay", log, "--machine", "spr-pc6", "--governor", "menu", "--json"]);
    assert!(replayed["shared"][0]["entry_count"].as_u64().unwrap() > 0);
    let tall = ["replay", log, "--machine", "spr-pc6", "--topology", "package=0-1/2-3"];
    assert_refused(&tall, &["it has package=0-1/2-3, and the log has package=0-3"]);
}
