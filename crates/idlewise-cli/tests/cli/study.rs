//! `idlewise study`.

use crate::{WIDTH, assert_refused, folder, json, stdout};

/// The fastest study.
const QUICK: &str = "promotion";

#[test]
fn prints_published_beside_ours_with_role_origin_and_judgement() {
    let text = stdout(&["study", QUICK]);
    for part in [
        "published",
        "ours",
        "difference",
        "predicted",
        "arithmetic",
        "What went in:",
        "Sensitivity",
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
    let inputs = study["inputs"].as_array().unwrap();
    for origin in ["calibrated", "documented", "assumed"] {
        assert!(inputs.iter().any(|input| input["origin"] == origin), "{origin}");
    }
    assert!(inputs.iter().any(|input| input["fitted_to"][0] == "10K wakes"));
    let tree = study["tables"].as_array().unwrap().iter();
    let tree = tree.filter(|table| table["title"].as_str().unwrap().contains("decision tree"));
    let rows: Vec<_> = tree.flat_map(|table| table["rows"].as_array().unwrap()).collect();
    assert!(rows.len() > 20);
    for row in rows.into_iter().filter(|row| row[2] != "-") {
        assert_eq!(row[2], row[3], "claimed and ours: {row}");
    }
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
