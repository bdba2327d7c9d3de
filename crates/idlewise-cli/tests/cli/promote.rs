//! `--promote` of `replay`, `simulate`, `diff` and `export`.

use serde_json::Value;

use crate::{OwnFile, WIDTH, assert_refused, folder, json, root, stdout};

const LOG: &str = "traces/s-softirq500.parquet";

/// The bundled machine with the flag in its file, as users had to do it before.
fn flagged() -> OwnFile {
    let text = std::fs::read_to_string(root().join("machines/spr.toml")).unwrap();
    let flags = "flags = [\"always-enable\"]";
    assert_eq!(text.matches(flags).count(), 1, "C1E's");
    OwnFile::new("flagged.toml", text.replace("enable\"]", "enable\", \"auto-promote\"]"))
}

#[test]
fn replays_as_if_the_machines_file_had_the_flag() {
    let flagged = flagged();
    let rows = |machine: &str, extra: &[&str]| -> Value {
        let base = ["replay", LOG, "--machine", machine, "--governor", "menu", "--json"];
        json(&[&base[..], extra].concat())["rows"].clone()
    };
    let promoted = rows("spr", &["--promote", "C1E"]);
    assert_eq!(promoted, rows(flagged.path(), &[]));
    assert_ne!(promoted, rows("spr", &[]));
    assert!(promoted[0]["auto_promotion_count"].as_u64().unwrap() > 0);
    // The same by index, in another case, and said twice.
    assert_eq!(promoted, rows("spr", &["--promote", "2"]));
    assert_eq!(promoted, rows("spr", &["--promote", "c1e,C1E", "--promote", "C1E"]));
}

#[test]
fn shows_the_time_stuck_with_and_without_and_what_the_timers_do() {
    let base = ["replay", LOG, "--machine", "spr", "--governor", "menu", "--governor", "ladder"];
    let extra = ["--governor", "fixed=C1", "--governor", "deepest", "--promote", "C1,C1E"];
    let arguments = [&base[..], &extra].concat();
    let document = json(&[&arguments[..], &["--json"]].concat());
    let of = |governor: &str| {
        let rows = document["promotion"].as_array().unwrap();
        rows.iter().find(|row| row["governor"] == governor).unwrap().clone()
    };
    let number =
        |row: &Value, column: &str| row[column].as_u64().unwrap_or_else(|| panic!("{row}"));
    // A governor that never goes deeper is stuck to the end of each gap, with the timer or without.
    let fixed = of("fixed=C1");
    assert!(number(&fixed, "stuck_gap_count") > 100, "{fixed}");
    assert!(number(&fixed, "timer_fired_count") > 100, "{fixed}");
    assert_eq!(fixed["stuck_sum_ns"], fixed["unpromoted_stuck_sum_ns"]);
    // A governor that is never in C1 starts no timer.
    let deepest = of("deepest");
    assert_eq!(number(&deepest, "timer_armed_count"), 0);
    assert!(deepest["stuck_p50_ns"].is_null(), "absent, not zero: {deepest}");
    for governor in ["menu", "ladder"] {
        let row = of(governor);
        assert!(number(&row, "timer_fired_count") <= number(&row, "timer_armed_count"), "{row}");
        assert!(number(&row, "stuck_sum_ns") <= number(&row, "unpromoted_stuck_sum_ns"), "{row}");
    }
    let text = stdout(&[&arguments[..], &["--doubts"]].concat());
    assert!(text.contains("time stuck in C1, C1E, promoted and not (simulated)"), "{text}");
    assert!(text.contains("handling its timers takes is unknown"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let plain = stdout(&base);
    assert!(!plain.contains("stuck"), "only when it is asked for: {plain}");
}

#[test]
fn simulates_with_the_timer_and_without() {
    let base = ["lab", "simulate", "power9-stop0lite", "burst-then-idle", "--duration-ms", "2000"];
    let base = [&base[..], &["--governor", "menu", "--json"]].concat();
    let document = json(&[&base[..], &["--promote", "stop0_lite"]].concat());
    let runs = document["runs"].as_array().unwrap();
    let names: Vec<_> = runs.iter().map(|run| run["governor"].as_str().unwrap()).collect();
    assert_eq!(names, ["menu", "menu without timers"]);
    let promotions = |index: usize| runs[index]["auto_promotion_count"].as_u64().unwrap();
    assert!(promotions(0) > 0 && promotions(1) == 0, "{runs:?}");
    // This machine's file has the flag, so the option changes nothing but the comparison.
    let plain = json(&base);
    assert_eq!(plain["runs"].as_array().unwrap(), &runs[..1]);
    let spans = document["spans"].as_array().unwrap();
    let deeper = |governor: &str| {
        let is_it = |row: &&Value| row["span"] == "deeper_after" && row["governor"] == governor;
        spans.iter().find(is_it).unwrap()["p50_ns"].as_u64().unwrap()
    };
    assert!(deeper("menu") * 10 < deeper("menu without timers"), "{spans:?}");
}

#[test]
fn compares_and_exports_with_the_timer() {
    let diff = |extra: &[&str]| {
        let base = [
            "replay",
            "--compare",
            LOG,
            "--machine",
            "spr",
            "--governor",
            "menu",
            "--governor",
            "teo",
        ];
        json(&[&base[..], &["--json"], extra].concat())["groups"].clone()
    };
    assert_ne!(diff(&[]), diff(&["--promote", "C1E"]));
    let folder = folder();
    let export = |name: &str, extra: &[&str]| {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let base = [
            "log",
            "export",
            LOG,
            "--format",
            "perfetto",
            "--governor",
            "menu",
            "--machine",
            "spr",
        ];
        stdout(&[&base[..], &["-o", path], extra].concat());
        std::fs::read(path).unwrap()
    };
    assert_ne!(export("plain", &[]), export("promoted", &["--promote", "C1E"]));
}

/// Every command gives the same answer, which names the states that can be promoted.
#[test]
fn a_state_that_cannot_be_promoted_is_an_error_that_names_those_that_can() {
    let commands: [&[&str]; 4] = [
        &["replay", LOG, "--machine", "spr"],
        &["replay", "--compare", LOG, "--machine", "spr"],
        &["log", "export", LOG, "--format", "csv", "-o", "-", "--machine", "spr"],
        &["lab", "simulate", "spr", "tcp-lat"],
    ];
    for command in commands {
        let refused = |extra: &[&str], parts: &[&str]| {
            assert_refused(&[command, extra].concat(), parts);
        };
        refused(&["--promote", "C9"], &["--promote C9", "it has POLL, C1, C1E, C6"]);
        refused(
            &["--promote", "C1,C6"],
            &["--promote C6", "no deeper state is enabled", "these can be: C1, C1E"],
        );
        refused(&["--promote", "POLL"], &["a limit of its own", "these can be: C1, C1E"]);
    }
    let disabled = ["replay", LOG, "--machine", "spr", "--disable", "C6", "--promote"];
    assert_refused(&[&disabled[..], &["C1E"]].concat(), &["no deeper state", "only C1 can be"]);
    assert_refused(&[&disabled[..], &["C6"]].concat(), &["it is disabled"]);
    // stop8 and stop11 are withheld, so stop5 is the deepest.
    let power = ["replay", LOG, "--machine", "power9", "--promote"];
    assert_refused(
        &[&power[..], &["stop5"]].concat(),
        &["no deeper state is enabled", "stop0_lite, stop0, stop1, stop2, stop4"],
    );
    assert_refused(&[&power[..], &["snooze"]].concat(), &["the kernel's snooze timeout"]);
}

#[test]
fn on_power_it_says_what_a_replay_leaves_out() {
    let text =
        stdout(&["replay", LOG, "--machine", "power9", "--promote", "stop0_lite", "--doubts"]);
    assert!(text.replace('\n', " ").contains("no SMT siblings"), "{text}");
}
