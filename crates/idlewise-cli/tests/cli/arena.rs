//! `idlewise arena`.

use std::fs;

use super::{failure, json, stdout};

const ONE: [&str; 10] = [
    "arena",
    "traces/a-idle.parquet",
    "--machine",
    "spr",
    "--governor",
    "menu",
    "--governor",
    "teo",
    "--governor",
    "hazard",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&ONE[..], more].concat()
}

/// A cell is what `replay` says of the same log, machine and price.
#[test]
fn a_cell_costs_what_a_replay_says() {
    let cells = json(&with(&["--json", "--lambda", "0.25"]))["cells"].clone();
    let replay = [&["replay"], &ONE[1..], &["--lambda-mw", "1000", "--json"]].concat();
    let rows = json(&replay)["rows"].clone();
    for (cell, row) in cells.as_array().unwrap().iter().zip(rows.as_array().unwrap()) {
        assert_eq!(cell["governor"], row["governor"]);
        let [cell, row] =
            [&cell["regret_ratio"], &row["regret_given_ratio"]].map(|it| it.as_f64().unwrap());
        assert!((cell - row).abs() < 1e-9, "{cell} {row}");
    }
}

/// Without a price, `hazard` is told that of the cell.
#[test]
fn hazard_is_told_the_price() {
    let arena = |governor: &str| {
        let arguments =
            ["arena", "traces/b-redis.parquet", "--machine", "skx", "--lambda", "1", "--csv"];
        stdout(&[&arguments[..], &["--governor", governor]].concat()).replace(governor, "hazard")
    };
    assert_eq!(arena("hazard"), arena("hazard:lambda=1"));
    assert_ne!(arena("hazard"), arena("hazard:lambda=0"));
}

#[test]
fn all_cells_are_there_and_powers_matter() {
    let csv = stdout(&with(&["--shape", "flat,default,steep", "--hz", "250,1000", "--csv"]));
    // Two HZ, three governors, three shapes, three prices, and the heading.
    assert_eq!(csv.lines().count(), 2 * 3 * 3 * 3 + 1);
    let of = |shape: &str| {
        csv.lines().find(|line| line.contains(&format!("250,{shape},0,menu"))).unwrap()
    };
    let cost = |shape| of(shape).split(',').nth(6).unwrap().parse::<f64>().unwrap();
    assert!(cost("flat") > cost("default") && cost("default") > cost("steep"));
}

/// An interrupted run has some of the units. The next one computes the others, and prints the same.
#[test]
fn a_store_saves_work_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("cells");
    let store_text = store.to_str().unwrap();
    let arguments = with(&["--machine", "milan", "--csv", "--store", store_text]);
    let first = stdout(&arguments);
    assert_eq!(first, stdout(&with(&["--machine", "milan", "--csv"])));
    let mut units: Vec<_> =
        fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path()).collect();
    units.sort();
    assert_eq!(units.len(), 2);
    fs::remove_file(&units[0]).unwrap();
    // A damaged unit is computed again, and an intact one is believed.
    assert_eq!(stdout(&arguments), first);
    fs::write(&units[0], "[").unwrap();
    assert_eq!(stdout(&arguments), first);
    let text = fs::read_to_string(&units[1]).unwrap();
    fs::write(&units[1], text.replace("cost_uj\":\"", "cost_uj\":\"1")).unwrap();
    assert_ne!(stdout(&arguments), first);
    // Other prices are other units.
    stdout(&with(&["--machine", "milan", "--csv", "--store", store_text, "--lambda", "2"]));
    assert_eq!(fs::read_dir(&store).unwrap().count(), 4);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (status, message) = failure(&with(&["--governor", "oracle"]));
    assert_eq!(status, Some(2));
    assert!(message.contains("leave out --governor oracle"), "{message}");
    assert_eq!(failure(&with(&["--lambda", "17"])).0, Some(2));
}
