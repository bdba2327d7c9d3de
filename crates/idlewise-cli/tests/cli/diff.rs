//! `idlewise replay --compare`.

use serde_json::Value;

use crate::{WIDTH, assert_refused, json, stdout};

const SOFTIRQ: &str = "traces/s-softirq500.parquet";

/// The row of a group in the document's `groups`.
fn group<'d>(document: &'d Value, by: &str, group: &str) -> &'d Value {
    let rows = document["groups"].as_array().unwrap();
    let row = rows.iter().find(|row| row["by"] == by && row["group"] == group);
    row.unwrap_or_else(|| panic!("no {by} {group}"))
}

#[test]
fn without_arguments_it_compares_menu_with_min_on_the_bundled_logs_and_fits_the_screen() {
    let text = stdout(&["replay", "--compare"]);
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    for part in [
        "A is menu (the kernel's default), B is menu+min.",
        "spr (",
        "milan (",
        "C6 → C1E",
        "By log:",
        "assumed power",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

/// On each log and machine, the differences of the gaps add up to those of the totals of `replay`.
#[test]
fn changes_are_those_of_replay() {
    let pairs = [("menu", "menu+min"), ("teo", "ladder"), ("menu-6.1", "timer-only")];
    for (a, b) in pairs {
        let governors = ["--governor", a, "--governor", b, "--json"];
        let replayed = json(&[&["replay"], &governors[..]].concat());
        let compared = json(&[&["replay", "--compare"], &governors[..]].concat());
        let rows = compared["groups"].as_array().unwrap();
        let alls: Vec<&Value> = rows.iter().filter(|row| row["by"] == "all").collect();
        assert_eq!(alls.len(), 10);
        for all in alls {
            let of = |governor: &str, column: &str| {
                let rows = replayed["rows"].as_array().unwrap();
                let is_it = |row: &&Value| {
                    row["governor"] == governor
                        && row["log"] == all["log"]
                        && row["machine"] == all["machine"]
                };
                rows.iter().find(is_it).unwrap()[column].as_f64().unwrap()
            };
            for (column, change) in
                [("delay_sum_ns", "delay_change_ns"), ("energy_uj", "energy_change_uj")]
            {
                let expected = of(b, column) - of(a, column);
                let found = all[change].as_f64().unwrap();
                let size = of(a, column) + of(b, column);
                assert!((found - expected).abs() <= 1e-9 * size, "{all}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn says_what_min_saves_and_in_which_gaps() {
    let document = json(&["replay", "--compare", SOFTIRQ, "--machine", "spr", "--json"]);
    let all = group(&document, "all", "all");
    let number = |row: &Value, column: &str| row[column].as_f64().unwrap();
    // With the tick stopped, interrupts every 500 µs (seed s1) no longer pay for C6.
    let short = group(&document, "gap length", "300 us to 1 ms");
    let deep = group(&document, "first states", "C6 → C1E");
    let stopped = group(&document, "tick", "stopped");
    for part in [short, deep, stopped] {
        assert!(number(part, "differing_share_ratio") > 0.99, "{part}");
    }
    assert!(number(all, "saved_uj") > 100.0 * number(all, "lost_uj"));
    // It loses in gaps that do outlast C6's target residency.
    let gaps = document["costly_gaps"].as_array().unwrap();
    let is_lost = |gap: &&Value| gap["direction"] == "loses" && gap["state_a"] == "C6";
    let losses: Vec<&Value> = gaps.iter().filter(is_lost).collect();
    assert!(!losses.is_empty() && losses.iter().all(|gap| number(gap, "gap_ns") > 800_000.0));
    for direction in ["loses", "saves"] {
        let changes: Vec<f64> = gaps
            .iter()
            .filter(|gap| gap["direction"] == direction)
            .map(|gap| number(gap, "cost_change_uj").abs())
            .collect();
        assert!(!changes.is_empty() && changes.len() <= 10);
        assert!(changes.windows(2).all(|pair| pair[0] >= pair[1]), "{changes:?}");
    }
    assert!(gaps.iter().all(|gap| gap["before_ns"].as_array().unwrap().len() <= 8));
}

/// Exchanging A and B only changes signs.
#[test]
fn gains_seen_from_the_other_side_are_losses() {
    let all = |a: &str, b: &str| {
        let arguments = [
            "replay",
            "--compare",
            SOFTIRQ,
            "--machine",
            "skx",
            "--governor",
            a,
            "--governor",
            b,
            "--json",
        ];
        group(&json(&arguments), "all", "all").clone()
    };
    let (ahead, back) = (all("menu", "teo"), all("teo", "menu"));
    for (column, opposite) in
        [("saved_uj", "lost_uj"), ("saved_count", "lost_count"), ("delay_a_ns", "delay_b_ns")]
    {
        assert_eq!(ahead[column], back[opposite]);
    }
}

#[test]
fn nothing_is_saved_against_the_oracle() {
    let arguments = [
        "replay",
        "--compare",
        "--governor",
        "oracle",
        "--governor",
        "teo",
        "--lambda-mw",
        "500",
        "--json",
    ];
    let document = json(&arguments);
    for row in document["groups"].as_array().unwrap() {
        let (saved, lost) = (row["saved_uj"].as_f64().unwrap(), row["lost_uj"].as_f64().unwrap());
        assert!(saved <= 1e-9 * lost, "{row}");
        assert_eq!(row["lambda_mw"], 500.0);
    }
}

#[test]
fn says_so_if_they_decide_alike() {
    let arguments =
        ["replay", "--compare", SOFTIRQ, "--governor", "menu", "--governor", "menu-6.12"];
    let text = stdout(&arguments);
    let said = "menu and menu-6.12 take the same course in all 10144 gaps.";
    assert_eq!(text.matches(said).count(), 2, "{text}");
    assert!(!text.contains("By gap length"));
}

#[test]
fn the_same_input_gives_the_same_bytes_on_any_number_of_threads() {
    let runs = ["1", "2", "5"].map(|count| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.args(["replay", "--compare", "--json"]).env("RAYON_NUM_THREADS", count);
        command.output().unwrap().stdout
    });
    assert!(!runs[0].is_empty() && runs.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn disabled_states_and_latency_limits_are_kept() {
    let base = ["replay", "--compare", SOFTIRQ, "--machine", "spr", "--csv"];
    let csv = |extra: &[&str]| stdout(&[&base[..], extra].concat());
    assert!(csv(&[]).contains("C6"));
    assert!(!csv(&["--disable", "c6"]).contains("C6"));
    assert!(!csv(&["--latency-limit-us", "100"]).contains("C6"));
}

#[test]
fn by_log_shows_each_log_alone() {
    let arguments =
        ["replay", "--compare", "--machine", "spr", "--governor", "menu", "--governor", "teo"];
    let text = stdout(&[&arguments[..], &["--by-log"]].concat());
    assert_eq!(text.matches("By gap length:").count(), 5, "{text}");
    assert!(!text.contains("By log:"));
}

/// It compared menu with menu+min, whichever governor was in use, and refused a single one.
#[test]
fn one_governor_is_compared_with_the_one_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("teo.parquet");
    let log = log.to_str().unwrap();
    let line = format!(
        "lab simulate spr periodic --set package_count=1 --set core_count=2 --set thread_count=1 --duration-ms 100 \
         --governor teo --trace {log}"
    );
    stdout(&line.split_whitespace().collect::<Vec<_>>());
    let compare = |more: &[&str]| stdout(&[&["replay", "--compare", log], more].concat());
    assert!(compare(&[]).contains("A is teo-6.12 (in use), B is menu."), "{}", compare(&[]));
    let text = compare(&["--governor", "ladder"]);
    assert!(text.contains("A is teo-6.12 (in use), B is ladder."), "{text}");
    let text = compare(&["--governor", "ladder", "--governor", "menu"]);
    assert!(
        text.contains("A is ladder, B is menu. teo was in use, but was not replayed"),
        "{text}"
    );
    let text = compare(&["--governor", "ladder", "--governor", "teo"]);
    assert!(text.contains("A is ladder, B is teo (in use)."), "{text}");
}

#[test]
fn refuses_other_than_two_governors() {
    let two = ["two governors", "'menu' is the kernel's default already", "second --governor"];
    assert_refused(&["replay", "--compare", "--governor", "menu"], &two);
    let three =
        ["replay", "--compare", "--governor", "menu", "--governor", "teo", "--governor", "ladder"];
    assert_refused(&three, &["two governors", "'ladder'", "idlewise replay"]);
    let unknown = ["replay", "--compare", "--governor", "menu", "--governor", "tea"];
    assert_refused(&unknown, &["no governor 'tea'", "did you mean 'teo'"]);
    let fixed =
        ["replay", "--compare", "--machine", "spr", "--governor", "menu", "--governor", "fixed=C9"];
    assert_refused(&fixed, &["C9"]);
    assert_refused(&["replay", "--compare", "no-such.parquet"], &["no-such.parquet"]);
}
