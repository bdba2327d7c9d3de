//! Checks every log in `conformance/decisions/` against the governor in its name.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use idlewise_core::tick_period_ns;
use idlewise_linux::{GOVERNORS, GovernorSpec};
use idlewise_sim::decision_log::{DecisionReplay, DecisionTables, replay_decisions};
use liblzma::read::XzDecoder;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/decisions")
}

fn tables() -> DecisionTables {
    let file = File::open(folder().join("tables.csv")).expect("conformance has its tables");
    DecisionTables::read(BufReader::new(file)).expect("the tables are valid")
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    let mut log = XzDecoder::new(File::open(path).expect("the log can be opened"));
    log.read_to_string(&mut text).expect("the log can be unpacked");
    text
}

/// The governor and the table in `<series>-<governor>-<table>-hz250`, which a CPU may follow.
fn spec_and_table(stem: &str) -> (&'static GovernorSpec, &str) {
    let (stem, _cpu) = stem.split_once("-hz250").expect("all logs here have HZ = 250");
    let candidates = GOVERNORS.iter().filter_map(|spec| {
        let prefix = format!("{}-{}-", spec.series, spec.name);
        stem.strip_prefix(&prefix).map(|table| (spec, table))
    });
    candidates.max_by_key(|(spec, _)| spec.name.len()).expect("the name tells a governor")
}

fn replay(stem: &str, log: &str) -> DecisionReplay {
    let (spec, table) = spec_and_table(stem);
    let tables = tables();
    let states = tables.get(table).expect("the table is in tables.csv");
    let mut governor = spec.build(tick_period_ns(250));
    replay_decisions(log.as_bytes(), states, &mut governor).expect("the log is well formed")
}

/// Proposed rules that have no log yet. `idlewise lab verify sources` compares them with the patched C files.
const WITHOUT_LOG: [&str; 2] = ["menu-6.12+margin", "menu-7.2+min"];

#[test]
fn decides_as_the_kernel_in_every_log() {
    let mut seen = Vec::new();
    for entry in fs::read_dir(folder()).expect("conformance/decisions exists") {
        let path = entry.expect("its files can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("names are UTF-8");
        let Some(stem) = name.strip_suffix(".csv.xz") else { continue };
        let replay = replay(stem, &unpacked(&path));
        assert_eq!(replay.first_mismatch, None, "{name}");
        // Logs of running kernels have as many rows as those made decisions.
        let is_generated = stem.ends_with("-hz250");
        assert!(replay.row_count == 3_000 || !is_generated && replay.row_count > 1_500, "{name}");
        seen.push(spec_and_table(stem).0.id);
    }
    for spec in GOVERNORS {
        let has_log = seen.contains(&spec.id);
        assert_eq!(has_log, !WITHOUT_LOG.contains(&spec.id), "logs of {}", spec.id);
    }
}

#[test]
fn finds_a_single_flipped_decision() {
    let stem = "6.12-menu-spr-hz250";
    let mut lines: Vec<_> =
        unpacked(&folder().join(format!("{stem}.csv.xz"))).lines().map(String::from).collect();
    let state_column = lines[0].split(',').position(|column| column == "state").unwrap();
    let mut fields: Vec<_> = lines[1_235].split(',').map(String::from).collect();
    fields[state_column] = if fields[state_column] == "0" { "1" } else { "0" }.into();
    lines[1_235] = fields.join(",");

    let replay = replay(stem, &lines.join("\n"));
    let first = replay.first_mismatch.expect("the flip is found");
    assert_eq!((replay.mismatch_count, first.row, first.line), (1, 1_234, 1_236));
    assert_eq!(first.logged.state.to_string(), fields[state_column]);
}

#[test]
fn tells_the_variants_of_menu_apart() {
    let log = unpacked(&folder().join("6.12-menu-spr-hz250.csv.xz"));
    for variant in ["6.12-menu+min-spr-hz250", "6.12-menu+safe-range-spr-hz250"] {
        assert!(replay(variant, &log).mismatch_count > 0, "{variant}");
    }
}
