//! `idlewise measure switch`. Its figures depend on the machine; statements about them are tested.

use crate::{OwnFile, assert_refused, json, stdout};

#[test]
fn measures_each_way_on_one_cpu_and_saves_it() {
    let arguments = ["measure", "switch", "--slices", "8", "--slice-ms", "2", "--json"];
    let document = json(&arguments);
    assert_eq!(document["measurement"], "switch");
    let all = document["all"].as_array().unwrap();
    let is_of = |way: &str| {
        let is_it = |row: &&serde_json::Value| {
            row["way"] == way && row["place"].as_str().unwrap().starts_with("same CPU (CPU ")
        };
        all.iter().filter(is_it).count() == 1
    };
    assert!(["yield", "futex", "pipe"].into_iter().all(is_of), "{document:#}");
    for row in all {
        assert_eq!(row["slice_count"], 8);
        let ns = |name: &str| row[name].as_f64().unwrap();
        assert!(ns("round_trip_p50_ns") > 0.0 && row["switches_per_s"].as_f64() > Some(0.0));
    }
    let absent = document["absent"].as_array().unwrap();
    assert!(absent.iter().all(|one| !one["reason"].as_str().unwrap().is_empty()));
    // Every place is measured or absent: the sibling, and another core or CPU.
    let named = format!("{}{}", document["all"], document["absent"]);
    let is_named =
        ["SMT sibling", "from one CPU to another"].iter().any(|name| named.contains(name));
    assert!(is_named, "{named}");
    let file = OwnFile::new("a.json", document.to_string());
    let text = stdout(&["lab", "compare", file.path(), file.path()]);
    assert!(text.contains("same CPU"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= crate::WIDTH), "{text}");
}

#[test]
fn names_ways_and_cpus() {
    let first = "measure switch --way yield --slices 1 --slice-ms 1";
    let text = stdout(&first.split(' ').collect::<Vec<_>>());
    assert!(text.starts_with("Two threads pass a token, 1 slice of 1 ms, measured"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("yield  same CPU")), "{text}");
    let refused = |arguments: &str, parts: &[&str]| {
        assert_refused(&arguments.split(' ').collect::<Vec<_>>(), parts);
    };
    refused("measure switch --cpu 9999", &["CPU 9999 is not online"]);
    refused("measure switch --other 9999", &["CPU 9999 is not online"]);
    let (status, message) = crate::failure(&["measure", "switch", "--way", "smoke"]);
    assert_eq!(status, Some(2));
    assert!(message.contains("give yield, futex or pipe"), "{message}");
}
