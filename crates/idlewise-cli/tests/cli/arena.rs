//! `idlewise replay --rank`.

use std::fs;
use std::path::PathBuf;

use idlewise_trace::causes::{Cause, WorkloadLog};
use serde_json::Value;

use super::sweep::{cell_count_of, shards_of};
use super::{failure, json, root, stdout};

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
    assert_eq!(cell_count_of(&store), (rivals.len() + 1) * 2 * 3);
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
    // On each machine menu and teo, and hazard and the oracle at each of three prices.
    let cell_count = 2 * (2 + 3 + 3);
    assert_eq!(cell_count_of(&store), cell_count);
    let cells = shards_of(&store);
    // What is damaged is computed again, and what is intact is believed.
    let whole = fs::read(&cells[0]).unwrap();
    fs::write(&cells[0], &whole[..whole.len() / 2]).unwrap();
    assert_eq!(stdout(&arguments), first);
    assert_eq!(fs::read(&cells[0]).unwrap(), whole);
    let times = |cells: &[PathBuf]| -> Vec<_> {
        cells.iter().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect()
    };
    let before = times(&cells);
    assert_eq!(stdout(&arguments), first);
    assert_eq!(times(&cells), before, "nothing was written again");
    // Another price is one more cell of hazard and of the oracle, and another governor only its own.
    stdout(&with(&["--machine", "milan", "--csv", "--store", store_text, "--lambda", "2"]));
    assert_eq!(cell_count_of(&store), cell_count + 2 * 2);
    stdout(&[&arguments[..], &["--governor", "ladder"]].concat());
    assert_eq!(cell_count_of(&store), cell_count + 2 * 2 + 2);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (status, message) = failure(&with(&["--governor", "oracle"]));
    assert_eq!(status, Some(2));
    assert!(message.contains("leave out --governor oracle"), "{message}");
    assert_eq!(failure(&with(&["--lambda", "17"])).0, Some(2));
}

/// A short play of loads, as JSON.
fn played(loads: &[&str], more: &[&str]) -> Value {
    json(&[&["replay", "--rank", "--played", "--json"], loads, more].concat())
}

fn refused(line: &[&str], part: &str) {
    let (status, message) = failure(line);
    assert!(status == Some(2) && message.contains(part), "{line:?}: {message}");
}

/// A figure of a governor's first cell.
fn figure(document: &Value, governor: &str, name: &str) -> f64 {
    let cells = document["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["governor"] == governor).unwrap();
    cell[name].as_f64().unwrap_or(f64::NAN)
}

/// On the gaps that menu leaves, teo decides as menu does. When it plays, it once takes C2, the wire answers later, and
/// the longer gap is a reason to take C2 again.
#[test]
fn a_play_finds_the_loop_that_a_replay_cannot_see() {
    let options = ["--machine", "milan", "--duration-ms", "200"];
    let document = played(&["tcp-lat"], &options);
    let of = |governor: &str, name: &str| figure(&document, governor, name);
    assert!(of("teo", "replayed_regret_ratio") < 0.01);
    assert!(of("teo", "throughput_ratio") < 0.5 && of("teo", "cost_ratio") > 1.5);
    assert!(of("teo", "cost_low_ratio") > 1.5, "its interval is far from 1");
    assert!(of("teo", "delay_p50_ns") > 10.0 * of("menu", "delay_p50_ns"));
    assert!(of("ladder", "replayed_regret_ratio") > 0.1, "ladder loses both ways");
    let agreement = &document["agreement"];
    assert!(agreement["kendall_tau"].as_f64().unwrap() < 1.0, "{agreement}");
    assert!(agreement["certain_count"].as_u64().unwrap() >= 1, "{agreement}");
    assert!(agreement["worst_pair"].as_str().unwrap().contains("teo costs"), "{agreement}");
    assert_eq!(agreement["kendall_tau_low"], Value::Null, "one load has no interval");
    // The replay is of the first governor's gaps: on its own, which are twice as long, teo takes C2.
    let own = played(
        &["tcp-lat"],
        &[&options[..], &["--governor", "teo", "--governor", "menu"]].concat(),
    );
    assert!(figure(&own, "teo", "replayed_regret_ratio") > 0.3);
    assert_eq!(figure(&own, "teo", "cost_uj"), of("teo", "cost_uj"), "the order changes no play");
}

/// A governor from a file is asked in another process, which learns an outcome with the next question.
#[test]
fn a_file_plays_as_its_port_does() {
    if crate::cannot_compile() {
        return;
    }
    let file = ["--governor", "hazard:lambda=2", "--governor", "kernel/idlewise_hazard.c"];
    let options = ["--machine", "spr,milan", "--replicates", "1"];
    let load = "recordings/causes/kept-apart/disk.parquet";
    let document = played(&[load], &[&options[..], &["--governor", "menu"], &file].concat());
    let cells_of = |governor: &str| -> Vec<Value> {
        let cells = document["cells"].as_array().unwrap().iter();
        let without_name = |cell: &Value| {
            let mut cell = cell.clone();
            cell["governor"] = Value::Null;
            cell
        };
        cells.filter(|cell| cell["governor"] == governor).map(without_name).collect()
    };
    let port = cells_of("hazard:lambda=2");
    assert_eq!(port.len(), 2);
    assert_ne!(port, cells_of("menu"));
    assert_eq!(port, cells_of("idlewise_hazard.c"));
}

#[test]
fn options_of_a_play_do_something() {
    let at_ms = |ms, more: &[&str]| {
        played(&["poisson"], &[&["--machine", "spr", "--duration-ms", ms], more].concat())
    };
    let with = |more: &[&str]| at_ms("50", more);
    let [six, seven] = ["6", "7"].map(|count| with(&["--replicates", count]));
    assert!(figure(&six, "menu", "cost_low_uj").is_nan() && six["replicate_count"] == 6);
    let [low, cost, high] =
        ["cost_low_uj", "cost_uj", "cost_high_uj"].map(|it| figure(&seven, "menu", it));
    assert!(low < cost && cost < high, "{low} {cost} {high}");
    let longer = at_ms("100", &["--replicates", "7"]);
    assert_ne!(figure(&longer, "menu", "cost_uj"), cost);
    // Delay costs more for all, and only hazard is told its price.
    let prices = with(&["--replicates", "7", "--lambda", "0,1"]);
    let at = |governor: &str, name: &str| -> Vec<f64> {
        let cells = prices["cells"].as_array().unwrap().iter();
        cells
            .filter(|cell| cell["governor"] == governor)
            .map(|cell| cell[name].as_f64().unwrap())
            .collect()
    };
    let [menu, hazard] = ["menu", "hazard"].map(|name| at(name, "power_mw"));
    assert!(menu[0] == menu[1] && hazard[0] < hazard[1], "{menu:?} {hazard:?}");
    assert!(at("menu", "cost_uj")[0] < at("menu", "cost_uj")[1]);
    let options = ["--machine", "spr", "--duration-ms", "50"];
    let csv =
        stdout(&[&["replay", "--rank", "--played", "poisson", "--csv"], &options[..]].concat());
    assert!(csv.starts_with("load,machine,lambda,governor,") && csv.lines().count() == 5, "{csv}");
    let text = stdout(&[&["replay", "--rank", "--played", "poisson"], &options[..]].concat());
    assert!(text.contains("10 replicates of each (simulated), λ = 0.25"), "{text}");
    assert!(text.contains("Kendall's τ_b, mean of 1 cell"), "{text}");
}

/// A recording is played as `predict` plays it, on its own machine or on others. One that does not reproduce itself is
/// left out.
#[test]
fn a_recording_is_played_as_predict_plays_it() {
    let log = "traces/c-nginx.trace.dat.xz";
    let options = ["--governor", "menu", "--governor", "teo", "--governor", "hazard"];
    let unfit = "conformance/prediction/pinned/hackbench.parquet";
    let one = ["--replicates", "5", "--lambda", "0"];
    let document = played(&[log, unfit], &[&options[..], &one].concat());
    assert_eq!(document["cells"][0]["machine"], "recorded");
    let left_out = document["left_out"].as_array().unwrap();
    assert!(
        left_out.len() == 1 && left_out[0].as_str().unwrap().contains("does not reproduce itself")
    );
    let predicted = json(&[&["predict", log, "--json"], &options[..]].concat());
    let row = |name: &str| {
        let runs = predicted["runs"].as_array().unwrap().iter();
        runs.clone().find(|row| row["governor"] == name).unwrap()
    };
    for name in ["menu", "teo"] {
        let per_step =
            row(name)["energy_uj"].as_f64().unwrap() / row(name)["step_count"].as_f64().unwrap();
        assert!((figure(&document, name, "cost_uj") / per_step - 1.0).abs() < 1e-9, "{name}");
        let [own, menu] = [name, "menu"].map(|name| figure(&document, name, "throughput_per_s"));
        let change = row(name)["throughput_change_ratio"].as_f64().unwrap();
        assert!((own / menu - 1.0 - change).abs() < 1e-3, "{name}: {own} {menu} {change}");
    }
    let spr = played(&[log], &[&options[..], &one, &["--machine", "spr"]].concat());
    assert_eq!(spr["cells"][0]["machine"], "spr");
    assert_ne!(figure(&spr, "menu", "cost_uj"), figure(&document, "menu", "cost_uj"));
    refused(&["replay", "--rank", "--played", unfit], "no load is left to play");
}

/// `kernel/tests/loads/table` lists the recordings with causes, by folder and name with their CPUs.
#[test]
fn the_recordings_with_causes_are_those_of_their_table() {
    let table = fs::read_to_string(root().join("kernel/tests/loads/table")).unwrap();
    let mut listed: Vec<(String, u32)> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words[1] != "bundled" && !words[1].starts_with("unbound"))
        .map(|words| (format!("{}/{}.parquet", words[1], words[0]), words[2].parse().unwrap()))
        .collect();
    listed.sort();
    let folder = root().join("recordings/causes");
    let mut found = Vec::new();
    for kind in ["made-with", "kept-apart"] {
        for entry in fs::read_dir(folder.join(kind)).unwrap() {
            let path = entry.unwrap().path();
            let log = WorkloadLog::open(&path).unwrap();
            log.check().unwrap();
            let mut woken_count = 0;
            log.each_group(&mut |steps| {
                woken_count += steps.iter().filter(|it| matches!(it.cause, Cause::Task(_))).count();
            })
            .unwrap();
            let metadata = log.metadata;
            assert!(woken_count > 0, "{}: no task wakes another", path.display());
            assert_eq!(metadata.lost_event_count, 0, "{}", path.display());
            assert_eq!(metadata.governor.as_deref(), Some("menu"), "{}", path.display());
            let name = path.file_name().unwrap().to_str().unwrap();
            found.push((format!("{kind}/{name}"), metadata.cpu_count));
        }
    }
    found.sort();
    assert_eq!(found, listed);
}

/// Builds and ping-pongs do not; `recordings/README.md` says which, and why.
#[test]
fn most_recordings_with_causes_reproduce_themselves() {
    let paths = ["made-with", "kept-apart"].map(|kind| root().join("recordings/causes").join(kind));
    let logs = paths.iter().flat_map(|path| fs::read_dir(path).unwrap());
    let logs: Vec<PathBuf> = logs.map(|entry| entry.unwrap().path()).collect();
    let logs: Vec<&str> = logs.iter().map(|path| path.to_str().unwrap()).collect();
    let document = played(&logs, &["--governor", "menu", "--replicates", "1"]);
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len() + document["left_out"].as_array().unwrap().len(), logs.len());
    assert!(cells.len() >= 18, "{}", document["left_out"]);
    assert!(cells.iter().all(|cell| cell["throughput_per_s"].as_f64().unwrap() > 0.0));
}

/// Two loads of one name are two loads, and a file sets a workload's parameters.
#[test]
fn loads_have_their_own_names_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("poisson.toml");
    fs::write(&file, "workload = \"poisson\"\ninterval_ns = 1000000\n").unwrap();
    let options =
        ["--machine", "spr", "--duration-ms", "20", "--replicates", "1", "--governor", "menu"];
    let document = played(&["poisson", file.to_str().unwrap()], &options);
    let cells = document["cells"].as_array().unwrap();
    let name = |cell: &Value| cell["load"].as_str().unwrap().to_owned();
    assert_eq!(cells.iter().map(name).collect::<Vec<_>>(), ["poisson", file.to_str().unwrap()]);
    assert_ne!(cells[0]["throughput_per_s"], cells[1]["throughput_per_s"]);
    assert_eq!(cells[0]["throughput_ratio"], Value::Null, "without teo there is no better one");
}

#[test]
fn a_play_refuses_what_only_a_replay_has() {
    let play = ["replay", "--rank", "--played", "poisson"];
    for (more, message) in [
        (&["--store", "x"][..], "--store"),
        (&["--hz", "100"], "--hz"),
        (&["--shape", "flat"], "--shape"),
        (&["--plot", "x.svg"], "--plot"),
        (&["--governor", "oracle"], "leave out --governor oracle"),
        (&["--governor", "dpm"], "moves down while a CPU is idle"),
        (&["--machine", "recorded"], "name a machine"),
    ] {
        refused(&[&play[..], more].concat(), message);
    }
    refused(&["replay", "--rank", "--replicates", "3"], "--played");
    refused(&["replay", "--rank", "--played", "traces/a-idle.parquet"], "a-idle");
}
