//! `idlewise lab compare`, on saved measurements of which the result is known.

use crate::{OwnFile, assert_refused, json, root, stdout};

const HALT: &str = "crates/idlewise-cli/tests/saved/halt.json";
const MWAIT: &str = "crates/idlewise-cli/tests/saved/mwait.json";

/// The table that was mailed with the patch which prefers MWAIT to HALT.
#[test]
fn prints_the_published_table() {
    let text = stdout(&["lab", "compare", HALT, MWAIT]);
    assert!(text.starts_with("wake latency, same package, no driver: A 9999 values in 50 blocks"));
    let published = [
        ("least", 1.7, 1.2),
        ("25", 1.9, 1.4),
        ("50", 2.0, 1.5),
        ("75", 2.3, 1.7),
        ("90", 2.5, 1.8),
        ("95", 2.6, 1.9),
        ("99", 2.8, 2.3),
        ("99.5", 3.0, 2.5),
        ("99.9", 3.4, 3.2),
        ("99.95", 3.6, 3.5),
        ("99.99", 5.9, 4.6),
        ("greatest", 5.9, 4.6),
    ];
    for (percentile, halt_us, mwait_us) in published {
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(percentile));
        let words: Vec<&str> = row.unwrap_or_else(|| panic!("{text}")).split_whitespace().collect();
        assert_eq!(words[1..3], [format!("{halt_us:.2}"), format!("{mwait_us:.2}")], "{text}");
    }
    assert!(text.contains("Improvement (99th percentile): 21.74 % (no interval)"), "{text}");
    let doubt = "A and B differ in idle options of the kernel's command line: idle=nomwait; none";
    assert!(text.replace("\n  ", " ").contains(doubt), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= crate::WIDTH), "{text}");
}

/// So many runs, whose values all differ by a nanosecond.
fn runs(of: &str, count: usize) -> Vec<OwnFile> {
    let text = std::fs::read_to_string(root().join(of)).unwrap();
    let moved = |nth: usize| {
        let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
        for block in document["series"][0]["blocks"].as_array_mut().unwrap() {
            let values = block.as_str().unwrap().split(' ').map(|value| {
                let (value, times) = value.split_once('x').unwrap_or((value, "1"));
                format!("{}x{times}", value.parse::<usize>().unwrap() + nth)
            });
            *block = values.collect::<Vec<_>>().join(" ").into();
        }
        document.to_string()
    };
    (1..=count).map(|nth| OwnFile::new(&format!("run{nth}.json"), moved(nth))).collect()
}

#[test]
fn copies_of_a_file_are_one_run() {
    let six = [HALT; 6];
    let more =
        [&["lab", "compare", HALT, HALT, "--json", "--more-a"], &six[..], &["--more-b"], &six[..]]
            .concat();
    let document = json(&more);
    assert_eq!((&document["a"]["run_count"], &document["b"]["run_count"]), (&1.into(), &1.into()));
    let lines = document["lines"].as_array().unwrap();
    assert!(lines.iter().all(|line| line["interval_low_ratio"].is_null()));
    let doubts = document["doubts"].to_string();
    for doubt in ["A: 6 of its 7 files have the same values", "compares a measurement with itself"]
    {
        assert!(doubts.contains(doubt), "{doubts}");
    }
}

#[test]
fn runs_compared_with_themselves_show_no_difference() {
    let files = runs(HALT, 6);
    let six: Vec<&str> = files.iter().map(OwnFile::path).collect();
    let more =
        [&["lab", "compare", HALT, HALT, "--json", "--more-a"], &six[..], &["--more-b"], &six[..]]
            .concat();
    let document = json(&more);
    let lines = document["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 12);
    for line in lines {
        assert_eq!((&line["improvement_ratio"], &line["change_ratio"]), (&0.0.into(), &0.0.into()));
        if let Some(low) = line["interval_low_ratio"].as_f64() {
            assert!(low <= 0.0 && line["interval_high_ratio"].as_f64() >= Some(0.0), "{line}");
        }
    }
    let has_interval = |line: &&serde_json::Value| line["interval_low_ratio"].is_f64();
    // Less than five values are beyond 99.95.
    // Seven runs have five values beyond 99.99.
    assert_eq!(lines.iter().filter(has_interval).count(), 10, "not the ends");
}

#[test]
fn several_runs_are_joined() {
    let (a, b) = (runs(HALT, 6), runs(MWAIT, 1));
    let paths = a.iter().map(OwnFile::path);
    let more = ["lab", "compare", HALT, MWAIT, "--json", "--more-b", b[0].path(), "--more-a"];
    let document = json(&more.into_iter().chain(paths).collect::<Vec<_>>());
    assert_eq!((&document["a"]["run_count"], &document["b"]["run_count"]), (&7.into(), &2.into()));
    let doubts = document["doubts"].to_string();
    assert!(
        doubts.contains("7 runs of A and 2 runs of B do not show how much runs differ"),
        "{doubts}"
    );
    let wrong = ["lab", "compare", HALT, MWAIT, "--more-b", "docs/park/measured.json"];
    assert_refused(
        &wrong,
        &["mwait.json and more: run 1 is a measurement of ipi, run 2 one of park"],
    );
}

#[test]
fn two_settings_of_one_file_can_be_compared() {
    let text = std::fs::read_to_string(root().join(HALT)).unwrap();
    let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let other = std::fs::read_to_string(root().join(MWAIT)).unwrap();
    let mut other: serde_json::Value = serde_json::from_str(&other).unwrap();
    document["series"][0]["setting"] = "POLL".into();
    other["series"][0]["setting"] = "C0.2".into();
    let more = other["series"][0].clone();
    document["series"].as_array_mut().unwrap().push(more);
    let file = OwnFile::new("both.json", document.to_string());
    let shown = stdout(&["lab", "compare", file.path(), file.path(), "--a", "poll", "--b", "C0.2"]);
    assert!(shown.starts_with("wake latency, same package, POLL → C0.2: A 9999"), "{shown}");
    assert!(shown.contains("Improvement (99th percentile): 21.74 %"), "{shown}");
    let wrong = ["lab", "compare", file.path(), file.path(), "--a", "C6"];
    assert_refused(&wrong, &["both.json", "nothing was measured of 'C6'", "it has C0.2, POLL"]);
}

/// What `idlewise-park-bench` saves has a figure for each run.
#[test]
fn runs_of_park_are_compared_by_their_medians() {
    let saved = "docs/park/measured.json";
    let csv = stdout(&["lab", "compare", saved, saved, "--csv"]);
    let row =
        csv.lines().find(|line| line.starts_with("wake latency p99,poisson:20,futex,median,"));
    let fields: Vec<&str> = row.unwrap_or_else(|| panic!("{csv}")).split(',').collect();
    assert_eq!((fields[4], fields[12]), (fields[5], "0"), "{fields:?}");
    assert!(fields[14].parse::<f64>().unwrap() <= 0.0, "seven runs have an interval: {fields:?}");
    assert!(csv.lines().skip(1).all(|line| line.contains(",median,")), "{csv}");
}

#[test]
fn too_little_for_an_interval_is_said() {
    let text = std::fs::read_to_string(root().join(MWAIT)).unwrap();
    let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
    document["series"][0]["blocks"].as_array_mut().unwrap().truncate(6);
    let file = OwnFile::new("short.json", document.to_string());
    let text = stdout(&["lab", "compare", HALT, file.path()]);
    assert!(text.contains("(no interval)"), "{text}");
    let doubt = "one run of A and one run of B do not show how much runs differ";
    assert!(text.replace("\n  ", " ").contains(doubt), "{text}");
}

#[test]
fn refuses_what_can_not_be_compared_with_one_line() {
    let saved = "docs/park/measured.json";
    let kinds = ["(A)", "(B)", "A is a measurement of ipi, B one of park", "two of the same kind"];
    assert_refused(&["lab", "compare", HALT, saved], &kinds);
    assert_refused(&["lab", "compare", HALT, "no-such.json"], &["no-such.json", "No such file"]);
    assert_refused(&["lab", "compare", HALT, "README.md"], &["README.md: no JSON"]);
    let machines = OwnFile::new("machines.json", stdout(&["machines", "--json"]));
    assert_refused(
        &["lab", "compare", HALT, machines.path()],
        &["not a saved measurement; save one"],
    );
    let text = std::fs::read_to_string(root().join(HALT)).unwrap();
    let other = OwnFile::new("other.json", text.replace("wake latency", "another"));
    assert_refused(&["lab", "compare", HALT, other.path()], &["no case in common"]);
    let hostile = OwnFile::new("hostile.json", text.replacen("1900x", "1900x99999999999", 1));
    assert_refused(
        &["lab", "compare", HALT, hostile.path()],
        &["hostile.json", "series 1: no block"],
    );
}
