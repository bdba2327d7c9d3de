//! `idlewise study`.

use std::path::Path;

use crate::{WIDTH, assert_refused, failure, folder, json, root, stdout};

/// The fastest study.
const QUICK: &str = "promotion";

#[test]
fn prints_published_beside_ours_with_role_origin_and_judgement() {
    let text = stdout(&["study", QUICK]);
    for part in [
        "published",
        "ours",
        "range",
        "simulated",
        "arithmetic",
        "What went in:",
        "Sensitivity:",
        "Judgement:",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    for line in text.lines().filter(|line| !line.contains("  ")) {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
}

/// A fitted figure is never shown as predicted. Its input is listed as calibrated.
#[test]
fn says_of_every_figure_how_it_came_to_be() {
    let document = json(&["study", "amd-mwait", "--json"]);
    let study = &document["studies"][0];
    let figures = study["figures"].as_array().unwrap();
    for figure in figures {
        let role = figure["role"].as_str().unwrap();
        assert!(["calibrated", "predicted", "simulated", "arithmetic"].contains(&role), "{figure}");
        let what = figure["figure"].as_str().unwrap();
        if what.starts_with("10K wakes") || what.contains("HALT, median") {
            assert_eq!(role, "calibrated", "{what}");
        }
    }
    let given = || ["inputs", "facts"].into_iter().flat_map(|key| study[key].as_array().unwrap());
    for origin in ["calibrated", "documented", "assumed"] {
        assert!(given().any(|input| input["origin"] == origin), "{origin}");
    }
    assert!(given().any(|input| input["fitted_to"][0] == "10K wakes"));
    let tree = study["tables"].as_array().unwrap().iter();
    let tree = tree.filter(|table| table["title"].as_str().unwrap().contains("decision tree"));
    let rows: Vec<_> = tree.flat_map(|table| table["rows"].as_array().unwrap()).collect();
    assert!(rows.iter().filter(|row| row[1] == "a dump").count() > 20);
    // Claimed, and chosen by 6.12. The dumps of the first Zen list no C1.
    let others = rows.into_iter().filter(|row| row[2] != "-" && row[2] != row[4]);
    let others: Vec<&str> = others.map(|row| row[0].as_str().unwrap()).collect();
    assert_eq!(others, ["AMD Ryzen 7 1800X (family 17h model 01h, Zen)"]);
}

/// A label is what other plausible inputs make of a figure: whoever sets them gets the figures that the page lists.
#[test]
fn a_label_follows_from_what_inputs_do() {
    let study = |arguments: &[&str]| {
        let document = json(&[&["study", "amd-mwait", "--json"], arguments].concat());
        document["studies"][0].clone()
    };
    let as_listed = study(&[]);
    let figures = as_listed["figures"].as_array().unwrap();
    let is_decided = |figure: &&serde_json::Value| figure["role"] == "simulated";
    let (index, figure) =
        figures.iter().enumerate().find(|(_, figure)| is_decided(figure)).unwrap();
    let decider = &figure["decided_by"][0];
    let inputs = as_listed["inputs"].as_array().unwrap();
    let set: Vec<String> = decider["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|by| {
            let input = inputs.iter().find(|input| input["input"] == by["input"]).unwrap();
            ["--set".to_owned(), format!("{}={}", input["key"].as_str().unwrap(), by["value"])]
        })
        .collect();
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let changed = study(&set);
    assert_eq!(changed["figures"][index]["ours"], decider["ours"], "{set:?}");
    assert_eq!(changed["set"].as_array().unwrap().len(), set.len() / 2);
    // Who knows all inputs need assume nothing.
    let all: Vec<String> = inputs
        .iter()
        .flat_map(|input| {
            ["--set".to_owned(), format!("{}={}", input["key"].as_str().unwrap(), input["value"])]
        })
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for figure in study(&all)["figures"].as_array().unwrap() {
        assert_ne!(figure["role"], "simulated", "{figure}");
    }
}

/// How often a third CPU rides free is the chance of a window that somebody chose, and the page says so.
#[test]
fn free_rides_follow_from_the_window_that_is_chosen() {
    let inputs = json(&["study", "ipi-less", "--inputs", "--json"]);
    let inputs = inputs["studies"][0]["inputs"].as_array().unwrap();
    let free_ratio = |window_us: &str| {
        // All others are set, so that nothing is varied.
        let set = inputs.iter().flat_map(|input| {
            let key = input["key"].as_str().unwrap();
            let value =
                if key == "window_us" { window_us.to_owned() } else { input["value"].to_string() };
            ["--set".to_owned(), format!("{key}={value}")]
        });
        let set: Vec<String> = set.collect();
        let set = set.iter().map(String::as_str);
        let arguments: Vec<&str> = ["study", "ipi-less", "--json"].into_iter().chain(set).collect();
        let study = json(&arguments)["studies"][0].clone();
        let figures = study["figures"].as_array().unwrap();
        let name = "free rides of a third CPU that calls within the chosen window";
        figures.iter().find(|figure| figure["figure"] == name).unwrap()["ours"].as_f64().unwrap()
    };
    assert!(free_ratio("20") > 99.0);
    assert!(free_ratio("1000") < 15.0);
}

#[test]
fn lists_what_may_be_set_and_refuses_the_rest() {
    let text = stdout(&["study", "amd-mwait", "--inputs"]);
    assert!(text.contains("ipi_send_ns") && text.contains("plausible"), "{text}");
    assert_eq!(
        json(&["study", "amd-mwait", "--inputs", "--json"])["studies"][0]["study"],
        "amd-mwait"
    );
    for (set, reasons) in [
        ("ipi_sned_ns=1", ["no input 'ipi_sned_ns'", "did you mean 'ipi_send_ns'?"]),
        ("ipi_send_ns", ["expected KEY=VALUE", "--inputs"]),
        ("ipi_send_ns=much", ["expected a number", "ns"]),
        ("ipi_send_ns=-1", ["expected a number", "ns"]),
        ("ipi_send_ns=1e30", ["expected a number", "ns"]),
    ] {
        assert_refused(&["study", "amd-mwait", "--set", set], &reasons);
    }
    let (status, message) = failure(&["study", "--set", "ipi_send_ns=1"]);
    assert!(status == Some(2) && message.contains("<NAME>"), "{message}");
}

#[test]
fn writes_pages_whole_and_only_where_it_may() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    stdout(&["study", QUICK, "--pages", path]);
    let svg = std::fs::read_to_string(folder.path().join("promotion.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_refused(&["study", QUICK, "--pages", path], &["exists", "--force"]);
    assert_refused(&["study", "--pages", "no/such/folder"], &["does not exist"]);
}

#[test]
fn refuses_a_study_that_is_not_there() {
    assert_refused(&["study", "menu-mni"], &["no study 'menu-mni'", "did you mean 'menu-min'?"]);
}

/// The compiler does not say which public names of a library nobody uses. A study's are for its page.
#[test]
fn every_public_name_of_a_study_is_used() {
    let file = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    let folder = |name: &str| -> Vec<(String, String)> {
        let entries = std::fs::read_dir(root().join(name)).unwrap();
        entries.map(|entry| file(&entry.unwrap().path())).collect()
    };
    let studies = folder("crates/idlewise-sim/src/study");
    let mut users = folder("crates/idlewise-report/src/study");
    users.push(file(&root().join("crates/idlewise-cli/src/cmd/study.rs")));
    let count = |text: &str, wanted: &str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| *word == wanted)
            .count()
    };
    let mut names = 0;
    for (file, text) in &studies {
        for line in text.lines() {
            let declared = line.trim_start().strip_prefix("pub ");
            let Some(declared) = declared.filter(|line| !line.starts_with("use ")) else {
                continue;
            };
            let mut words = declared.split(|c: char| !c.is_alphanumeric() && c != '_');
            let kinds = ["const", "fn", "struct", "enum", "type", "mod"];
            let kind = words.clone().next().filter(|word| kinds.contains(word));
            let name = words.find(|word| !kinds.contains(word)).unwrap();
            let is_type = matches!(kind, Some("struct" | "enum" | "type"));
            names += 1;
            // A type is also used by the fields that have it.
            let is_used = users.iter().any(|(_, text)| count(text, name) > 0)
                || is_type && studies.iter().map(|(_, text)| count(text, name)).sum::<usize>() > 1;
            assert!(is_used, "{file}: nobody uses `{name}`");
        }
    }
    assert!(names > 50, "{names}");
}
