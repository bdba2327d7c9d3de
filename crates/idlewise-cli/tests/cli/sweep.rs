//! `idlewise lab sweep`: a manifest's cells, each computed once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use idlewise_report::ParquetColumns;
use serde_json::Value;

use super::plugins::KERNEL_STYLE;
use super::schemas::assert_valid;
use super::{folder, idlewise, json, root, stdout};

/// The files below a folder whose names end in `ending`, sorted.
fn files_of(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_of(&path, ending)),
            false if path.to_string_lossy().ends_with(ending) => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

/// The files of a store.
pub fn shards_of(store: &Path) -> Vec<PathBuf> {
    files_of(store, ".parquet")
}

/// How many cells a store has.
pub fn cell_count_of(store: &Path) -> usize {
    let count = |path: PathBuf| {
        let columns = ParquetColumns::of(fs::read(path).unwrap()).unwrap();
        (0..columns.row_count()).filter(|&row| columns.text("failure", row).is_none()).count()
    };
    shards_of(store).into_iter().map(count).sum()
}

/// The number of cells that are there, were computed, and failed.
pub fn counts(document: &Value) -> [u64; 3] {
    ["present_count", "computed_count", "failed_count"]
        .map(|count| document[count].as_u64().unwrap())
}

/// A manifest, and a store beside it.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new(manifest: &str) -> Self {
        let place = Place(folder());
        place.write(manifest);
        place
    }

    /// `LOGS` is the folder of the bundled logs.
    pub fn write(&self, manifest: &str) {
        let logs = root().join("traces");
        let manifest = manifest.replace("LOGS", logs.to_str().unwrap());
        fs::write(self.path("sweep.toml"), manifest).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Copies a bundled log to this one's folder `logs`, under another name.
    pub fn copy(&self, trace: &str, to: &str) {
        let logs = self.path("logs");
        fs::create_dir_all(&logs).unwrap();
        fs::copy(root().join("traces").join(trace), logs.join(to)).unwrap();
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        let manifest = self.path("sweep.toml");
        idlewise(&[&["lab", "sweep"], arguments, &[manifest.to_str().unwrap()]].concat())
    }

    /// Sweeps, and returns the exit status and the document.
    pub fn sweep(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let output = self.run(&[arguments, &["--json"]].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{text}"));
        let is_plan = arguments.first() == Some(&"plan");
        assert_valid(if is_plan { "sweep-plan" } else { "sweep" }, &document);
        (output.status.code(), document)
    }

    pub fn counts(&self, arguments: &[&str]) -> [u64; 3] {
        counts(&self.sweep(arguments).1)
    }

    pub fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {message}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The content of each file of a store.
    pub fn content(&self, store: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let store = self.path(store);
        let content = |path: PathBuf| {
            (path.strip_prefix(&store).unwrap().to_owned(), fs::read(&path).unwrap())
        };
        files_of(&store, "").into_iter().map(content).collect()
    }
}

const TWO_LOGS: &str = "\
logs = [\"LOGS/a-idle.parquet\", \"LOGS/s-*.parquet\"]
machines = [\"spr\", \"milan\"]
governors = [\"menu\"]
";

#[test]
fn what_is_there_is_not_computed_again_and_a_governor_costs_its_own_cells() {
    let place = Place::new(TWO_LOGS);
    // On each log and machine menu, and the oracle at each of three prices.
    assert_eq!(place.counts(&[]), [0, 16, 0]);
    let before = place.content("cells");
    assert_eq!((before.len(), cell_count_of(&place.path("cells"))), (1, 16));
    assert_eq!(place.counts(&[]), [16, 0, 0]);
    assert_eq!(place.counts(&["status"]), [16, 0, 0]);
    place.write(&TWO_LOGS.replace("\"menu\"", "\"menu\", \"teo\", \"menu-6.12\""));
    assert_eq!(place.sweep(&["status"]).1["missing_count"], 4);
    // The last is menu by another name, which counts once.
    assert_eq!(place.counts(&[]), [16, 4, 0]);
    let after = place.content("cells");
    assert!(before.iter().all(|(path, bytes)| after[path] == *bytes));
    assert_eq!((after.len(), cell_count_of(&place.path("cells"))), (2, 20));
    // Another price: the oracle's. Another tick: everything.
    place.write(&format!("{TWO_LOGS}lambda = [0, 0.25, 1, 2]"));
    assert_eq!(place.counts(&[]), [16, 4, 0]);
    place.write(&format!("{TWO_LOGS}hz = [1000]"));
    assert_eq!(place.counts(&[]), [0, 16, 0]);
}

/// What is named twice, by whatever name, is there once.
#[test]
fn nothing_counts_twice() {
    let place = Place::new(
        "logs = [\"a.parquet\", \"a.parquet\", \"./a.parquet\", \"b.parquet\"]\n\
         machines = [\"spr\"]\ngovernors = [\"menu\", \"menu\"]\nlambda = [1]\n",
    );
    for name in ["a.parquet", "b.parquet"] {
        fs::copy(root().join("traces/a-idle.parquet"), place.path(name)).unwrap();
    }
    // The folder may be the current one, where "./a.parquet" is not spelt like "a.parquet".
    let output = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["lab", "sweep", "sweep.toml", "--json"])
        .current_dir(place.0.path())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(counts(&serde_json::from_slice(&output.stdout).unwrap()), [0, 2, 0], "{message}");
    assert!(message.contains("b.parquet is left out, because"), "{message}");
    assert_eq!(place.text(&["collect"]).lines().count(), 1 + 1);
}

/// Nor does a governor's file by two paths, or a governor by two names.
#[test]
fn a_governor_counts_once_by_whatever_name() {
    let place = Place::new(
        "logs = [\"LOGS/a-idle.parquet\"]\nmachines = [\"spr\"]\nlambda = [1]\n\
         governors = [\"./g.c\", \"././g.c\", \"menu\", \"menu-6.12\", \"hazard:lambda=0.25\", \"hazard:lambda=.25\"]\n",
    );
    fs::write(place.path("g.c"), KERNEL_STYLE.replace("DEFECT;", "")).unwrap();
    let output = place.run(&["collect"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("menu-6.12 is left out, because menu is the same"), "{message}");
    // The three governors and the oracle.
    assert_eq!(place.counts(&[]), [0, 4, 0]);
    assert_eq!(place.text(&["collect"]).lines().count(), 1 + 3);
    // Told each price, hazard is another than at the price that is its default.
    place.write(
        "logs = [\"LOGS/a-idle.parquet\"]\nmachines = [\"spr\"]\nlambda = [0, 1, -0.0]\n\
         governors = [\"hazard\", \"hazard:lambda=0.25\"]\n",
    );
    // The oracle at 0, and hazard told 0 and 1.
    assert_eq!(place.counts(&[])[1], 3);
    assert_eq!(place.text(&["collect"]).lines().count(), 1 + 2 * 2);
    // At the price that is its default, it is the same: computed once, and for both.
    place.write(
        "logs = [\"LOGS/a-idle.parquet\"]\nmachines = [\"spr\"]\nlambda = [0.25]\nstore = \"new\"\n\
         governors = [\"hazard\", \"hazard:lambda=0.25\"]\n",
    );
    let [present, computed, failed] = place.counts(&["status"]);
    assert_eq!((present, computed, failed), (0, 0, 0));
    assert_eq!(place.counts(&[]), [0, 3, 0]);
    assert_eq!(place.counts(&["status"]), [3, 0, 0]);
}

/// Patterns find what sweeps wrote. What is named is tried all the same.
#[test]
fn results_are_not_taken_for_logs() {
    let place = Place::new(
        "logs = [\"**/*.parquet\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\nlambda = [1]\n",
    );
    fs::copy(root().join("traces/a-idle.parquet"), place.path("a.parquet")).unwrap();
    assert_eq!(place.counts(&[]), [0, 2, 0]);
    let table = place.path("table.parquet");
    place.text(&["collect", "-o", table.to_str().unwrap()]);
    assert_eq!(place.sweep(&[]).1["cell_count"], 2);
    let message = String::from_utf8(place.run(&["status"]).stderr).unwrap();
    assert!(message.contains("table.parquet is left out, because it is no idle log"), "{message}");
    assert_eq!(place.counts(&[]), [2, 0, 0]);
    place.write("logs = [\"a.parquet\", \"table.parquet\"]\nmachines = \"spr\"\ngovernors = \"menu\"\nlambda = 1\n");
    assert_eq!(place.counts(&[]), [2, 0, 2]);
}

/// `collect` reads the manifest and the hashes of its logs.
#[test]
fn collect_does_not_replace_what_the_sweep_reads() {
    let place =
        Place::new("logs = [\"a.parquet\"]\nmachines = [\"./m.toml\"]\ngovernors = [\"./g.c\"]\n");
    fs::copy(root().join("traces/a-idle.parquet"), place.path("a.parquet")).unwrap();
    fs::copy(root().join("machines/spr.toml"), place.path("m.toml")).unwrap();
    fs::write(place.path("g.c"), KERNEL_STYLE.replace("DEFECT;", "")).unwrap();
    for name in ["a.parquet", "m.toml", "g.c", "sweep.toml"] {
        let before = fs::read(place.path(name)).unwrap();
        let output = place.run(&[
            "collect",
            "--force",
            "--format",
            "csv",
            "-o",
            place.path(name).to_str().unwrap(),
        ]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {message}");
        assert!(message.contains("also read by this command"), "{name}: {message}");
        assert_eq!(fs::read(place.path(name)).unwrap(), before, "{name}");
    }
}

/// A rival has a cell for each shape and price, like the oracle.
#[test]
fn a_sweep_with_a_rival_ends() {
    let place = Place::new(
        "logs = [\"LOGS/a-idle.parquet\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\", \"dpm\", \"hazard\"]\n",
    );
    assert_eq!(place.counts(&[]), [0, 1 + 3 + 3 + 3, 0]);
    assert_eq!(place.counts(&["status"]), [10, 0, 0]);
    // A heading, and three governors at three prices.
    let text = place.text(&["collect", "--format", "json"]);
    let table: Value = serde_json::from_str(&text).unwrap();
    let rows = table["cells"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * 3);
    // The kernel's rule does not apply to a descent, as in `replay`. It had seemed never to be wrong.
    for row in rows {
        let is_judged = row["governor"] != "dpm";
        assert_eq!(row["too_deep_ratio"].is_number(), is_judged, "{row}");
        assert_eq!(row["too_shallow_ratio"].is_number(), is_judged, "{row}");
    }
    place.write(
        "logs = [\"LOGS/a-idle.parquet\"]\nmachines = [\"spr\"]\ngovernors = [\"dpm\"]\nlambda = [1]\nshape = [\"flat\", \"steep\"]\n",
    );
    let parts = ["1/2", "2/2"].map(|part| place.counts(&["--shard", part])[1]);
    assert_eq!(parts.iter().sum::<u64>(), 2 + 2);
    assert_eq!(place.text(&["collect"]).lines().count(), 1 + 2);
}

/// A log names the recording that it was imported from by its hash, so file names do not matter.
#[test]
fn a_recording_and_its_import_are_one_log() {
    let place = Place::new("logs = [\"logs\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n");
    place.copy("a-idle.perf.data.xz", "run.perf.data.xz");
    assert_eq!(place.counts(&[]), [0, 4, 0]);
    place.copy("a-idle.parquet", "run.parquet");
    let said = |command: &[&str]| String::from_utf8(place.run(command).stderr).unwrap();
    let message = said(&[]);
    assert!(message.contains("run.perf.data.xz is left out, because "), "{message}");
    assert!(message.contains("run.parquet is the same recording\n"), "{message}");
    assert_eq!(place.sweep(&["status"]).1["cell_count"], 4);
    assert!(said(&["collect"]).contains("is left out"));
    // Unpacked and renamed; and one that no log here was made of.
    let packed = fs::File::open(root().join("traces/a-idle.perf.data.xz")).unwrap();
    let mut unpacked = fs::File::create(place.path("logs/other.data")).unwrap();
    std::io::copy(&mut liblzma::read::XzDecoder::new(packed), &mut unpacked).unwrap();
    place.copy("b-redis.perf.data.xz", "redis.perf.data.xz");
    place.copy("s-softirq500.parquet", "redis.parquet");
    let message = said(&["status"]);
    assert!(message.contains("other.data is left out, because "), "{message}");
    assert!(message.contains("; so are 1 more"), "{message}");
    assert_eq!(place.sweep(&["status"]).1["cell_count"], 3 * 4);
    // What is left out as a copy does not count as another log of the recording.
    place.copy("a-idle.parquet", "copy.parquet");
    let message = said(&["status"]);
    assert!(message.contains("has the same content"), "{message}");
    assert!(!message.contains("both count"), "{message}");
    fs::remove_file(place.path("logs/copy.parquet")).unwrap();
    // Two recordings without a log.
    fs::remove_file(place.path("logs/run.parquet")).unwrap();
    let message = said(&["status"]);
    assert!(message.contains("run.perf.data.xz is left out, because "), "{message}");
    assert!(message.contains("other.data is the same recording"), "{message}");
}

/// More cells than fit into a unit, so that there are several.
const MANY: &str = "\
logs = [\"LOGS/a-idle.parquet\"]
governors = [\"menu\", \"teo\", \"hazard\", \"ladder\"]
machines = [\"spr\", \"milan\", \"skx\"]
hz = [100, 250, 300, 500, 625, 800, 1000, 1200]
latency_limit_us = [100]
shape = [\"flat\", \"steep\"]
";

#[test]
fn results_do_not_depend_on_parts_workers_or_order() {
    let place = Place::new(MANY);
    let whole = place.path("whole");
    let parts = place.path("parts");
    let (whole, parts) = (whole.to_str().unwrap(), parts.to_str().unwrap());
    assert_eq!(place.counts(&["--store", whole, "--jobs", "1"]), [0, 8 * 3 * 12, 0]);
    let mut computed = 0;
    for part in ["2/2", "1/2"] {
        computed += place.counts(&["--store", parts, "--jobs", "3", "--shard", part])[1];
    }
    assert_eq!(computed, 8 * 3 * 12, "parts do not overlap");
    let table = |store: &str| place.text(&["collect", "--store", store]);
    assert_eq!(table(whole), table(parts));
    // Two at once, into one folder.
    let manifest = place.path("sweep.toml");
    let both = place.path("both");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.args(["lab", "sweep", "--store"]).arg(&both).arg(&manifest).stdout(Stdio::null());
        command.spawn().unwrap()
    };
    let (mut one, mut other) = (start(), start());
    assert!(one.wait().unwrap().success() && other.wait().unwrap().success());
    assert_eq!(table(both.to_str().unwrap()), table(whole));
}

/// Killed when the first file is there: what is there is whole, and only the rest is computed.
#[test]
fn a_killed_sweep_goes_on() {
    let hz: Vec<String> = (0..75).map(|step| (100 + 10 * step).to_string()).collect();
    let place = Place::new(&MANY.replace(
        "hz = [100, 250, 300, 500, 625, 800, 1000, 1200]",
        &format!("hz = [{}]", hz.join(", ")),
    ));
    let cell_count = 75 * 3 * 12;
    let manifest = place.path("sweep.toml");
    let store = place.path("killed");
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.args(["lab", "sweep", "--jobs", "1", "--store"]).arg(&store).arg(&manifest);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    while shards_of(&store).is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let killed = place.content("killed");
    let there = cell_count_of(&store) as u64;
    assert!(there > 0 && place.counts(&[]) == [0, cell_count, 0]);
    let store = store.to_str().unwrap();
    assert_eq!(place.counts(&["--store", store]), [there, cell_count - there, 0]);
    let after = place.content("killed");
    assert!(killed.iter().all(|(path, bytes)| after[path] == *bytes));
    assert_eq!(place.text(&["collect", "--store", store]), place.text(&["collect"]));
}

/// The figures of `idlewise replay --rank`, to the last digit, and its table. Both use the same cells.
#[test]
fn the_collected_table_is_that_of_the_arena() {
    let place = Place::new(
        "logs = [\"LOGS/a-idle.parquet\", \"LOGS/b-redis.parquet\"]\nmachines = [\"spr\"]\n\
         governors = [\"menu\", \"teo\", \"hazard\"]\nshape = [\"default\", \"flat\"]\n",
    );
    place.text(&[]);
    let collected = place.text(&["collect"]);
    let store = place.path("cells");
    let logs = ["a-idle", "b-redis"].map(|log| root().join(format!("traces/{log}.parquet")));
    let mut arena = vec!["replay", "--rank", "--machine", "spr", "--shape", "default,flat"];
    arena.extend(logs.iter().map(|log| log.to_str().unwrap()));
    arena.extend(["--governor", "menu", "--governor", "teo", "--governor", "hazard"]);
    let cells = |text: &str, names: &[&str]| -> Vec<Vec<String>> {
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = lines.next().unwrap();
        let places: Vec<usize> = names
            .iter()
            .map(|name| head.iter().position(|column| column == name).expect(name))
            .collect();
        lines.map(|line| places.iter().map(|&it| line[it].to_owned()).collect()).collect()
    };
    let names = [
        "log",
        "machine",
        "hz",
        "shape",
        "lambda",
        "governor",
        "cost_uj",
        "oracle_cost_uj",
        "regret_ratio",
    ];
    let csv = stdout(&[&arena[..], &["--csv"]].concat());
    assert_eq!(cells(&collected, &names), cells(&csv, &names));
    // The standings, and with the sweep's folder the arena computes nothing.
    let standings = place.text(&["collect", "--standings"]);
    let table = stdout(&arena);
    let body = |text: &str| {
        let rows = text.lines().skip_while(|line| !line.starts_with("governor"));
        rows.take(12).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(body(&standings), body(&table));
    let before = shards_of(&store);
    let stored = stdout(&[&arena[..], &["--csv", "--store", store.to_str().unwrap()]].concat());
    assert_eq!(stored, csv);
    assert_eq!(shards_of(&store), before);
}

#[test]
fn a_table_is_csv_json_or_parquet() {
    let manifest = root().join("crates/idlewise-cli/tests/saved/sweep.toml");
    let manifest = manifest.to_str().unwrap();
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let store = path("cells");
    stdout(&["lab", "sweep", manifest, "--store", &store]);
    let collect = ["lab", "sweep", "collect", manifest, "--store", &store];
    let document = json(&[&collect[..], &["--format", "json"]].concat());
    assert_eq!(document["cells"][0]["governor"], "menu");
    let file = path("table.parquet");
    stdout(&[&collect[..], &["-o", &file]].concat());
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let output = idlewise(&[&collect[..], &["-o", &file]].concat());
    assert!(String::from_utf8(output.stderr).unwrap().contains("--force"));
    let output = idlewise(&[&collect[..], &["-o", &path("table.xlsx")]].concat());
    assert!(String::from_utf8(output.stderr).unwrap().contains("name the form with --format"));
    let output = idlewise(&[&collect[..], &["--format", "parquet"]].concat());
    assert!(String::from_utf8(output.stderr).unwrap().contains("name a file with -o"));
}

#[test]
fn what_fails_is_told_and_the_rest_is_computed() {
    let place = Place::new(
        "logs = [\"missing.parquet\", \"damaged.parquet\", \"LOGS/a-idle.parquet\"]\n\
         machines = [\"spr\", \"milan\"]\ngovernors = [\"menu\", \"./loops.c\"]\nlambda = [1]\n",
    );
    let log = fs::read(root().join("traces/a-idle.parquet")).unwrap();
    fs::write(place.path("damaged.parquet"), &log[..log.len() / 2]).unwrap();
    let loops = KERNEL_STYLE.replace("DEFECT", "for (;;) barrier()");
    fs::write(place.path("loops.c"), loops).unwrap();
    let (status, document) = place.sweep(&[]);
    assert_eq!(status, Some(1));
    // Of the good log menu and the oracle; each log has two machines with three cells.
    assert_eq!(document["computed_count"], 4);
    assert_eq!(document["failed_count"], 6 + 6 + 2);
    let reasons = |part: &str| {
        let failures = document["failures"].as_array().unwrap();
        let has = |failure: &&Value| failure["reason"].as_str().unwrap().contains(part);
        failures.iter().filter(has).count()
    };
    assert_eq!(reasons("missing.parquet: No such file"), 6, "{document:#}");
    assert_eq!(reasons("damaged.parquet"), 6, "{document:#}");
    // For its CPU time, or on a busy machine because it does not answer.
    assert_eq!(reasons("and was stopped"), 2, "{document:#}");
    assert_eq!(cell_count_of(&place.path("cells")), 4);
    // The reasons are kept, for whoever asks later.
    let (status, later) = place.sweep(&["status"]);
    assert_eq!((status, &later["failures"]), (Some(1), &document["failures"]));
    let output = place.run(&["collect"]);
    assert_eq!(output.status.code(), Some(1));
    // Menu, on both machines, under a heading.
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 3);
    // A mended governor is another one.
    fs::write(place.path("loops.c"), KERNEL_STYLE.replace("DEFECT", ";")).unwrap();
    fs::copy(root().join("traces/b-redis.parquet"), place.path("damaged.parquet")).unwrap();
    let (_, document) = place.sweep(&[]);
    assert_eq!(counts(&document), [4, 2 + 6, 6], "{document:#}");
}

#[test]
fn damaged_and_old_files_are_recognised() {
    let place = Place::new(TWO_LOGS);
    place.text(&[]);
    let [shard] = &shards_of(&place.path("cells"))[..] else { panic!("one file") };
    let whole = fs::read(shard).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for damaged in [changed, Vec::new()] {
        fs::write(shard, damaged).unwrap();
        let output = place.run(&["collect"]);
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8(output.stderr).unwrap();
        for part in
            [" is damaged or no file of cells, and is now ", "16 cells missing and left out"]
        {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(place.counts(&[]), [0, 16, 0]);
        assert_eq!(fs::read(shard).unwrap(), whole);
    }
    // A reader that closes the pipe has what it wants.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut collect = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    collect.args(["lab", "sweep", "collect"]).arg(place.path("sweep.toml")).stdout(writer);
    let output = collect.output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    // Another engine's, and what is not ours.
    let (_, document) = place.sweep(&["status"]);
    assert_eq!(document["other_engine_file_count"], 0);
    for folder in ["cells/engine=0", "cells/mine"] {
        fs::create_dir_all(place.path(folder)).unwrap();
        fs::copy(shard, place.path(folder).join("0.parquet")).unwrap();
    }
    let (_, document) = place.sweep(&["status"]);
    assert_eq!(document["other_engine_file_count"], 1);
    assert!(place.text(&["status"]).contains("1 file of other engines than "));
    assert_eq!(counts(&document), [16, 0, 0]);
    // A file of another name is none of ours.
    fs::copy(shard, shard.with_file_name("mine.parquet")).unwrap();
    assert_eq!(place.counts(&["status"]), [16, 0, 0]);
}

/// Something else may have got the name of a file of cells. It is not ours to remove.
#[test]
fn what_has_the_name_of_a_file_of_cells_and_is_none_is_kept() {
    let place = Place::new(TWO_LOGS);
    place.text(&[]);
    let [shard] = &shards_of(&place.path("cells"))[..] else { panic!("one file") };
    let name = shard.file_name().unwrap().to_str().unwrap();
    let whole = fs::read(shard).unwrap();
    let table = fs::read(root().join("traces/a-idle.parquet")).unwrap();
    let asides = || {
        let paths = files_of(&place.path("cells"), ".damaged");
        paths.iter().map(|path| fs::read(path).unwrap()).collect::<BTreeSet<_>>()
    };
    let mut kept = BTreeSet::new();
    for foreign in [&table[..], &table[..table.len() / 2], b"notes"] {
        for command in [&[][..], &["status"], &["collect"]] {
            fs::write(shard, foreign).unwrap();
            let said = String::from_utf8(place.run(command).stderr).unwrap();
            assert!(said.contains(&format!("{name} is damaged or no file of cells")), "{said}");
            kept.insert(foreign.to_vec());
            assert_eq!(asides(), kept);
        }
        assert_eq!(place.counts(&[]), [0, 16, 0]);
        assert_eq!(fs::read(shard).unwrap(), whole);
    }
    // One that cannot be moved is not replaced.
    fs::write(shard, "notes").unwrap();
    for aside in files_of(&place.path("cells"), ".damaged") {
        fs::remove_file(&aside).unwrap();
        fs::create_dir(aside).unwrap();
    }
    let output = place.run(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot be moved") && said.contains("move it away"), "{said}");
    assert_eq!(fs::read(shard).unwrap(), b"notes");
    // One that is larger than any of ours is not even read.
    let byte_count = (1 << 28) + 1;
    fs::File::create(shard).unwrap().set_len(byte_count).unwrap();
    for command in [&[][..], &["status"], &["collect"]] {
        let output = place.run(command);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains(name) && said.contains("move it away"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(fs::metadata(shard).unwrap().len(), byte_count);
}

/// A limit on the sizes of files is an error like a full disk.
#[test]
fn a_full_disk_leaves_no_half_cell() {
    let place = Place::new(TWO_LOGS);
    let mut command = Command::new("bash");
    command.arg("-c").arg("ulimit -f 1; exec \"$0\" lab sweep \"$1\"");
    command.arg(env!("CARGO_BIN_EXE_idlewise")).arg(place.path("sweep.toml"));
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("File too large") && message.contains("run the sweep again"));
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(files_of(&place.path("cells"), "").is_empty());
    assert_eq!(place.counts(&[]), [0, 16, 0]);
}

/// Pipes, sockets and folders where files should be. Opening a pipe would wait for ever.
#[test]
fn what_is_not_a_file_is_said_and_waits_for_nobody() {
    let place = Place::new(
        "logs = [\"LOGS/a-idle.parquet\", \"pipe\", \"socket\", \"folder.parquet/\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n",
    );
    let pipe = |path: &Path| {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    pipe(&place.path("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    fs::create_dir(place.path("folder.parquet")).unwrap();
    fs::copy(root().join("traces/b-redis.parquet"), place.path("folder.parquet/b.parquet"))
        .unwrap();
    // A folder of that name in a folder is no log.
    fs::create_dir(place.path("folder.parquet/c.parquet")).unwrap();
    pipe(&place.path("folder.parquet/d.parquet"));
    let (status, document) = place.sweep(&[]);
    assert_eq!((status, counts(&document)), (Some(1), [0, 2 * 4, 2 * 4]), "{document:#}");
    let reasons = document["failures"].to_string();
    assert!(reasons.contains("pipe: it is a pipe, not a file"), "{reasons}");
    assert!(reasons.contains("socket: it is a socket, not a file"), "{reasons}");
    place.write("logs = [\"LOGS/a-idle.parquet\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n");
    // And in the place of a file of cells.
    fs::remove_dir_all(place.path("cells")).unwrap();
    assert_eq!(place.counts(&[]), [0, 4, 0]);
    let [shard] = &shards_of(&place.path("cells"))[..] else { panic!("one file") };
    for make in [pipe as fn(&Path), |path: &Path| fs::create_dir(path).unwrap()] {
        fs::remove_file(shard).or_else(|_| fs::remove_dir(shard)).unwrap();
        make(shard);
        let output = place.run(&["collect"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("4 cells missing and left out"), "{said}");
        let output = place.run(&[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(
                "something that is not a file has the name of a file of cells; remove it"
            ),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    fs::remove_dir(shard).unwrap();
    assert_eq!(place.counts(&[]), [0, 4, 0]);
}

/// A user's file may be called as a bundled log is.
#[test]
fn a_log_with_the_name_of_a_bundled_one_is_itself() {
    let place = Place::new("logs = [\"a-idle\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n");
    fs::copy(root().join("traces/b-redis.parquet"), place.path("a-idle")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        let output = command.args(arguments).current_dir(place.path("")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    run(&["lab", "sweep", "sweep.toml"]);
    run(&[
        "replay",
        "--rank",
        "a-idle",
        "--machine",
        "spr",
        "--governor",
        "menu",
        "--store",
        "of-arena",
    ]);
    assert_eq!(place.content("cells"), place.content("of-arena"));
    fs::rename(place.path("a-idle"), place.path("redis")).unwrap();
    place.write("logs = [\"redis\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n");
    assert_eq!(place.counts(&["status"]), [4, 0, 0]);
}

/// Reading one takes a multiple of its size in memory.
#[test]
fn a_manifest_has_a_largest_size() {
    let place = Place::new("");
    for manifest in ["sweep.toml", "endless"] {
        let path = place.path(manifest);
        match manifest {
            "endless" => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
            _ => fs::write(&path, format!("hz = [{}]\n", "1000,".repeat((1 << 20) / 5))).unwrap(),
        }
        let output = idlewise(&["lab", "sweep", path.to_str().unwrap()]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.ends_with("it has more than 1 MiB, which no such file has\n"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn a_wrong_manifest_is_refused_with_its_line() {
    for (manifest, part) in [
        (
            "logs = []\nmachine = [\"spr\"]\n",
            "sweep.toml:2: unknown key 'machine'; did you mean 'machines'?",
        ),
        ("governors = [\"tea\"]\n", "did you mean 'teo'?"),
        ("machines = [\"sprr\"]\n", "did you mean 'spr'?"),
        ("governors = [\"oracle\"]\n", "leave the governor 'oracle' out"),
        ("logs = [\"*.parquet\"]\n", "no such files"),
        (" \n", "sweep.toml: the file is empty; for a sweep with all defaults, write a comment"),
        ("hz = \"250\"\n", "sweep.toml:1: "),
        ("governors = [\"./none.c\"]\n", "none.c"),
    ] {
        let place = Place::new(manifest);
        let output = place.run(&[]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{manifest}: {message}");
        assert!(message.contains(part), "{manifest}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(!place.path("cells").exists());
    }
    let place = Place::new(TWO_LOGS);
    for shard in ["3/2", "x"] {
        let output = place.run(&["--shard", shard]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        let expected =
            format!("idlewise: --shard: '{shard}' is not I/N with I from 1 to N, such as 1/16\n");
        assert_eq!(message, expected);
    }
}

/// CI's tests have buckets, so `storage` has a test of the message, too.
#[cfg(not(feature = "buckets"))]
#[test]
fn a_command_without_buckets_says_how_to_get_them() {
    let place = Place::new(TWO_LOGS);
    for arguments in [["--store", "s3://bucket/cells"], ["--store", "gs://bucket/cells"]] {
        let output = place.run(&arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(arguments[1]), "{message}");
        assert!(message.contains("built without buckets"), "{message}");
        assert!(message.contains("--features buckets"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
