//! `idlewise replay --rank`.

use std::fs;
use std::path::PathBuf;

use super::sweep::cells_of;
use super::{failure, json, stdout};

const ONE: [&str; 11] = [
    "replay",
    "--rank",
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
    let replay = [&["replay"], &ONE[2..], &["--lambda-mw", "1000", "--json"]].concat();
    let rows = json(&replay)["rows"].clone();
    for (cell, row) in cells.as_array().unwrap().iter().zip(rows.as_array().unwrap()) {
        assert_eq!(cell["governor"], row["governor"]);
        let [cell, row] =
            [&cell["regret_ratio"], &row["regret_given_ratio"]].map(|it| it.as_f64().unwrap());
        assert!((cell - row).abs() < 1e-9, "{cell} {row}");
    }
}

/// Rules that move down while the CPU is idle have a cell for each shape and price, as the oracle has.
#[test]
fn rules_that_move_down_keep_their_promises() {
    let rivals = ["lower-envelope", "ski-random", "ski-known", "dpm"];
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("cells");
    let named = rivals.iter().flat_map(|name| ["--governor", name]);
    let world =
        ["replay", "--rank", "traces/b-redis.parquet", "--machine", "skx", "--shape", "flat,steep"];
    let more = ["--lambda", "0,0.25,1", "--json", "--store", store.to_str().unwrap()];
    let line: Vec<&str> = world.into_iter().chain(more).chain(named).collect();
    let document = json(&line);
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len(), rivals.len() * 2 * 3);
    let regret = |name: &str, shape: &str, lambda: f64| {
        let is_it = |cell: &&serde_json::Value| {
            (&cell["governor"], &cell["shape"]) == (&name.into(), &shape.into())
                && cell["lambda"].as_f64() == Some(lambda)
        };
        cells.iter().find(is_it).unwrap()["regret_ratio"].as_f64().unwrap()
    };
    for shape in ["flat", "steep"] {
        for lambda in [0.0, 0.25, 1.0] {
            let [envelope, random, known, dpm] = rivals.map(|name| regret(name, shape, lambda));
            assert!(envelope <= 1.0 && known <= envelope + 0.02, "{envelope} {known}");
            assert!(random <= 0.6 && [known, dpm].iter().all(|it| *it > 0.0), "{random} {dpm}");
        }
        assert_ne!(regret("dpm", shape, 0.0), regret("dpm", shape, 1.0));
    }
    // Another run takes them from the store, and replay says the same.
    assert_eq!(cells_of(&store).len(), (rivals.len() + 1) * 2 * 3);
    assert_eq!(json(&line), document);
    let cells = json(&[
        "replay",
        "--rank",
        "traces/b-redis.parquet",
        "--machine",
        "skx",
        "--governor",
        "dpm",
        "--json",
    ]);
    let replay =
        ["replay", "traces/b-redis.parquet", "--machine", "skx", "--governor", "dpm", "--json"];
    let rows = json(&replay);
    let names: Vec<_> =
        rows["rows"].as_array().unwrap().iter().map(|row| &row["governor"]).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let quarter = &rows["rows"][1];
    assert!(quarter["too_deep_ratio"].is_null(), "no single decisions");
    let in_arena = cells["cells"][1]["regret_ratio"].as_f64().unwrap();
    assert!(
        (quarter["regret_quarter_ratio"].as_f64().unwrap() - in_arena).abs() < 1e-9,
        "{quarter}"
    );
}

/// What shows single decisions cannot show a descent.
#[test]
fn rules_that_move_down_are_refused_where_decisions_are_shown() {
    let log = "traces/a-idle.parquet";
    for line in [
        vec!["replay", "--compare", log, "--governor", "menu", "--governor", "dpm"],
        vec!["log", "export", log, "--governor", "dpm", "--format", "csv", "-o", "-"],
        vec!["lab", "simulate", "spr", "pingpong", "--governor", "dpm"],
        vec!["replay", log, "--check-recorded", "--governor", "dpm"],
        vec!["report", log, "--governor", "dpm", "-o", "-"],
    ] {
        let (_, message) = failure(&line);
        assert!(message.contains("dpm moves down while a CPU is idle"), "{line:?}: {message}");
    }
}

#[test]
fn plots_energy_against_delay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("arena.svg");
    let plot = path.to_str().unwrap();
    stdout(&with(&["--governor", "ladder", "--plot", plot]));
    let svg = fs::read_to_string(&path).unwrap();
    for name in ["oracle", "menu", "teo", "hazard", "ladder"] {
        assert!(svg.contains(name), "{name}");
    }
    assert!(failure(&with(&["--plot", plot])).1.contains("--force"), "it would replace the file");
    stdout(&with(&["--plot", plot, "--force"]));
}

/// Without a price, `hazard` is told that of the cell.
#[test]
fn hazard_is_told_the_price() {
    let arena = |governor: &str| {
        let arguments = [
            "replay",
            "--rank",
            "traces/b-redis.parquet",
            "--machine",
            "skx",
            "--lambda",
            "1",
            "--csv",
        ];
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
    let cells = cells_of(&store);
    // On each machine menu and teo, and hazard and the oracle at each of three prices.
    assert_eq!(cells.len(), 2 * (2 + 3 + 3));
    fs::remove_file(&cells[0]).unwrap();
    // A damaged cell is computed again, and an intact one is believed.
    assert_eq!(stdout(&arguments), first);
    let whole = fs::read(&cells[1]).unwrap();
    fs::write(&cells[1], &whole[..whole.len() / 2]).unwrap();
    assert_eq!(stdout(&arguments), first);
    assert_eq!(fs::read(&cells[1]).unwrap(), whole);
    let times = |cells: &[PathBuf]| -> Vec<_> {
        cells.iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect()
    };
    let before = times(&cells);
    assert_eq!(stdout(&arguments), first);
    assert_eq!(times(&cells), before, "nothing was written again");
    // Another price is one more cell of hazard and of the oracle, and another governor only its own.
    stdout(&with(&["--machine", "milan", "--csv", "--store", store_text, "--lambda", "2"]));
    assert_eq!(cells_of(&store).len(), cells.len() + 2 * 2);
    stdout(&[&arguments[..], &["--governor", "ladder"]].concat());
    assert_eq!(cells_of(&store).len(), cells.len() + 2 * 2 + 2);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (status, message) = failure(&with(&["--governor", "oracle"]));
    assert_eq!(status, Some(2));
    assert!(message.contains("leave out --governor oracle"), "{message}");
    assert_eq!(failure(&with(&["--lambda", "17"])).0, Some(2));
}
