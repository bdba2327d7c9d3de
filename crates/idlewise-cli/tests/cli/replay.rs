//! `idlewise replay`.

use serde_json::Value;

use crate::{OwnFile, WIDTH, assert_refused, folder, idlewise, json, stdout};

/// One row's number.
fn number(document: &Value, log: &str, machine: &str, governor: &str, column: &str) -> f64 {
    let rows = document["rows"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["log"] == log && row["machine"] == machine && row["governor"] == governor)
        .unwrap_or_else(|| panic!("no row for {governor} on {log}, {machine}"));
    row[column].as_f64().unwrap_or_else(|| panic!("{governor} has no {column}"))
}

#[test]
fn without_arguments_it_replays_the_bundled_logs_and_fits_the_screen() {
    let text = stdout(&["replay"]);
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    for part in ["spr (", "milan (", "menu+min", "oracle", "nearest to the oracle", "Assumed:"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

/// The first experiment with these rules, on the same recording and table, found these delays in
/// milliseconds and shares of decisions that were too deep. It took deferrable timers for wake
/// events and knew no timers from before the recording, so it differs by some per cent; menu's
/// figures most, for whether it keeps the tick hangs on single short intervals (3 µs of tick work
/// or none moves menu+min by 3 %).
#[test]
fn agrees_with_the_first_experiment_on_the_case_of_menu_min() {
    let governors = ["menu", "menu+min", "menu+safe-range", "teo", "ladder"];
    let mut arguments = vec!["replay", "traces/s-softirq500.parquet", "--machine", "spr", "--json"];
    for governor in governors {
        arguments.extend(["--governor", governor]);
    }
    let document = json(&arguments);
    let of = |governor, column| number(&document, "s-softirq500", "spr", governor, column);
    let expected_ms = [2_432.0, 648.0, 2_090.0, 21.0, 2_731.0];
    let expected_too_deep = [0.448, 0.122, 0.385, 0.001, 0.522];
    for (governor, (ms, too_deep)) in
        governors.into_iter().zip(expected_ms.into_iter().zip(expected_too_deep))
    {
        let delay_ms = of(governor, "delay_sum_ns") / 1e6;
        assert!((delay_ms / ms - 1.0).abs() < 0.12, "{governor}: {delay_ms} ms");
        let ours = of(governor, "too_deep_ratio");
        assert!((ours - too_deep).abs() < 0.02, "{governor}: {ours} too deep");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let runs: Vec<String> = (0..3).map(|_| stdout(&["replay", "--json"])).collect();
    assert!(runs.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_recording_and_its_log_give_the_same_rows() {
    let from = |path: &str| json(&["replay", path, "--governor", "teo", "--json"])["rows"].clone();
    assert_eq!(from("traces/h-pingpong.perf.data.xz"), from("traces/h-pingpong.parquet"));
}

#[test]
fn disabled_states_and_latency_limits_are_kept() {
    let log = "traces/h-pingpong.parquet";
    let base = ["replay", log, "--machine", "spr", "--governor", "menu", "--json"];
    let usage = |extra: &[&str]| {
        let document = json(&[&base[..], extra].concat());
        document["rows"][0]["usage"].as_str().unwrap().to_owned()
    };
    assert!(!usage(&[]).ends_with("C6=0"));
    assert!(usage(&["--disable", "c6"]).ends_with("C6=0"));
    assert!(usage(&["--latency-limit-us", "100"]).ends_with("C6=0"));
    assert!(usage(&["--latency-limit-us", "1"]).ends_with("C1E=0 C6=0"));
}

#[test]
fn bounds_and_kernel_versions_have_names() {
    let mut arguments = vec!["replay", "traces/a-idle.parquet", "--machine", "spr", "--csv"];
    let names =
        ["fixed=C1E", "fixed=0", "deepest", "timer-only", "menu-6.1", "haltpoll", "teo-6.1"];
    for name in names {
        arguments.extend(["--governor", name]);
    }
    let csv = stdout(&arguments);
    for name in names {
        assert!(csv.contains(&format!("a-idle,spr,{name},")), "{csv}");
    }
}

#[test]
fn one_price_of_latency_replaces_the_three() {
    let arguments = ["replay", "traces/a-idle.parquet", "--machine", "spr", "--lambda-mw", "500"];
    let text = stdout(&arguments);
    assert!(text.contains("oracle λ=500 mW"), "{text}");
    let document = json(&[&arguments[..], &["--json"]].concat());
    let row = &document["rows"][0];
    assert!(row["regret_given_ratio"].is_number() && row.get("regret_full_ratio").is_none());
}

#[test]
fn says_that_the_bundled_recordings_kernel_asked_no_governor() {
    let text = stdout(&["replay", "--check-recorded"]);
    assert_eq!(text.matches("asked no governor").count(), 5, "{text}");
}

/// Recordings of Debian's kernels in QEMU (docs/agreement.md). The floor is what docs promise of any
/// recording; what these have is in the table there.
#[test]
fn decides_as_real_kernels_did_from_their_recordings_alone() {
    for (name, at_least) in [
        ("q-menu-7.2", 98.0),
        ("q-ladder-7.2", 99.0),
        ("q-menu-6.12", 98.0),
        ("q-ladder-6.12", 99.0),
        ("q-menu-6.1", 95.0),
        ("q-ladder-6.1", 99.0),
    ] {
        let recording = format!("traces/{name}.trace.dat.xz");
        let output = idlewise(&["replay", &recording, "--check-recorded"]);
        let text = String::from_utf8(output.stdout).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // By the port of the kernel that was recorded.
        let port = name.strip_prefix("q-").unwrap();
        assert!(text.starts_with(&format!("{name}: {port} on recorded: ")), "{text}");
        let percent =
            text.split_once("decisions agree (").and_then(|(_, rest)| rest.split_once(" %"));
        let percent: f64 = percent.unwrap_or_else(|| panic!("{text}")).0.parse().unwrap();
        assert!((at_least..100.0).contains(&percent), "{text}");
        assert!(text.contains("goes its own way") && text.contains("most often it"), "{text}");
        // Not all agree, and the exit status says so.
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_log_made_by_a_replay_agrees_with_it_in_every_decision() {
    let folder = folder();
    for (governor, log) in
        [("menu", "s-softirq500"), ("teo-6.1", "h-pingpong"), ("ladder", "e-hackbench")]
    {
        let made = folder.path().join(format!("{governor}.parquet"));
        let made = made.to_str().unwrap();
        let source = format!("traces/{log}.parquet");
        let machine = ["--machine", "skx", "--governor", governor];
        stdout(&[&["replay", &source, "--write-log", made], &machine[..]].concat());
        let text = stdout(&["replay", made, "--check-recorded"]);
        assert!(text.contains("(100.00 %)"), "{text}");
        // Another governor does not agree, and the exit status says so.
        let other = if governor == "ladder" { "menu" } else { "ladder" };
        let output = idlewise(&["replay", made, "--check-recorded", "--governor", other]);
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn refuses_bad_names_with_the_nearest() {
    assert_refused(&["replay", "--governor", "meun"], &["meun", "did you mean 'menu'"]);
    assert_refused(&["replay", "--machine", "sprr"], &["sprr", "spr"]);
    assert_refused(&["replay", "--disable", "C9", "--machine", "spr"], &["C9", "C6"]);
    assert_refused(&["replay", "--governor", "fixed=C9", "--machine", "spr"], &["C9"]);
    assert_refused(&["replay", "--machine", "cwf"], &["cwf", "no idle states"]);
    assert_refused(
        &["replay", "--machine", "milan", "--disable", "0", "--disable", "1", "--disable", "2"],
        &["every state is disabled"],
    );
    assert_refused(&["replay", "no-such.parquet"], &["no-such.parquet"]);
}

#[test]
fn refuses_a_table_that_makes_no_sense() {
    let state = |name: &str, residency_us: u32| {
        format!(
            "[[states]]\nname = \"{name}\"\nexit_latency_us = 1\n\
             target_residency_us = {residency_us}\n"
        )
    };
    let head = "id = \"odd\"\ntitle = \"Odd\"\narch = \"x86\"\nsource = \"invented\"\n";
    let unordered = format!("{head}{}{}", state("C1", 20), state("C6", 10));
    let file = OwnFile::new("odd.toml", unordered);
    assert_refused(&["replay", "--machine", file.path()], &["odd.toml", "C6"]);
}
