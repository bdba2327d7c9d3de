//! `--governor` has the same meaning in every command that takes it.

use std::fs;
use std::path::{Path, PathBuf};

use idlewise_lab::roster::OWN;
use idlewise_linux::GOVERNORS;
use idlewise_sim::RIVALS;

use crate::{assert_refused, failure, folder, idlewise, json, root, stdout};

const LOG: &str = "traces/a-idle.parquet";
const SIMULATE: [&str; 10] = [
    "lab",
    "simulate",
    "spr",
    "wakes",
    "--set",
    "package_count=1",
    "--set",
    "core_count=1",
    "--duration-ms",
    "20",
];

/// Selects state 1, or does DEFECT instead in the fifth decision.
const STATE_1: &str = "\
#include <idlewise_governor.h>

static int count;

static int select(struct idlewise_context *context, struct idlewise_device *device, bool *stop_tick)
{
	if (++count == 5)
		DEFECT;
	return 1;
}

IDLEWISE_GOVERNOR(.select = select);
";

/// A governor's file, removed with its folder.
fn c_file(defect: &str) -> (tempfile::TempDir, String) {
    let folder = folder();
    let path = folder.path().join("one.c");
    fs::write(&path, STATE_1.replace("DEFECT", defect)).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn one_list_has_all_and_each_help_names_it() {
    let ids = GOVERNORS.iter().map(|spec| spec.id).chain(OWN.iter().map(|spec| spec.name));
    let rivals = RIVALS.iter().map(|rival| rival.name);
    let mut expected: Vec<&str> =
        ids.chain(rivals).chain(["oracle", "FILE.c", "FILE.so", "FOLDER/"]).collect();
    let list = stdout(&["governors"]);
    for name in &expected {
        assert!(list.lines().any(|line| line.starts_with(&format!("  {name} "))), "{name}");
    }
    let document = json(&["governors", "--json"]);
    let rows = document["governors"].as_array().unwrap().iter();
    let mut names: Vec<&str> = rows.map(|row| row["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
    for command in [
        "replay",
        "replay --compare",
        "replay --rank",
        "predict",
        "report",
        "lab simulate",
        "log export",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = stdout(&words);
        let flat = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("`idlewise governors` lists them"), "{command}");
        assert!(flat.contains("may be repeated [default: "), "{command}");
        assert!(!help.contains("menu-6.12+margin"), "{command}");
    }
}

#[test]
fn a_state_that_the_machine_lacks_gets_the_same_line_in_each() {
    let folder = folder();
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    for state in ["C9", "4", ""] {
        let fixed = format!("fixed={state}");
        let fixed = ["--governor", &fixed];
        let expected =
            format!("idlewise: machine spr has no state {state}: it has POLL, C1, C1E, C6\n");
        let refused = |command: &[&str]| {
            let arguments = [command, &fixed].concat();
            assert_eq!(failure(&arguments), (Some(2), expected.clone()), "{arguments:?}");
        };
        refused(&["replay", LOG, "--machine", "spr"]);
        refused(&["replay", LOG, "--machine", "spr", "--check-recorded"]);
        refused(&["replay", LOG, "--machine", "spr", "--write-log", out]);
        refused(&["replay", "--compare", LOG, "--machine", "spr", "--governor", "menu"]);
        refused(&["log", "export", LOG, "--machine", "spr", "--format", "csv", "-o", out]);
        refused(&SIMULATE);
    }
    assert!(!fs::exists(out).unwrap());
}

/// The machine is the recorded one, not the machines of a replay.
#[test]
fn a_state_that_the_recorded_machine_lacks_is_refused_too() {
    let folder = folder();
    let log = folder.path().join("simulated.parquet");
    let log = log.to_str().unwrap();
    stdout(&["lab", "simulate", "am335x", "poisson", "--duration-ms", "20", "--trace", log]);
    let checked = ["replay", log, "--check-recorded", "--governor", "fixed=2"];
    assert_refused(&checked, &["machine am335x has no state 2"]);
}

#[test]
fn export_takes_files_and_the_oracle() {
    if crate::cannot_compile() {
        return;
    }
    let (folder, file) = c_file("(void)0");
    let governors =
        ["--governor", &file, "--governor", "fixed=1", "--governor", "oracle", "--machine", "spr"];
    let csv =
        stdout(&[&["log", "export", LOG, "--format", "csv", "-o", "-"], &governors[..]].concat());
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|found| *found == name).expect(name);
    let [file_state, file_verdict, state, verdict, oracle] =
        ["one.c_state", "one.c_verdict", "fixed=1_state", "fixed=1_verdict", "oracle_state"]
            .map(column);
    let mut oracle_counts = [0_u64; 4];
    for row in lines {
        assert_eq!((row[file_state], row[file_verdict]), (row[state], row[verdict]));
        oracle_counts[row[oracle].parse::<usize>().unwrap()] += 1;
    }
    // The oracle's price of delay is the middle price of a replay.
    let replay = json(&["replay", LOG, "--machine", "spr", "--governor", "oracle", "--json"]);
    let middle = replay["states"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["governor"].as_str().is_some_and(|name| name.contains("λ=¼")));
    let counts: Vec<u64> = middle.map(|row| row["entry_count"].as_u64().unwrap()).collect();
    assert_eq!(counts, oracle_counts);

    let trace = folder.path().join("trace");
    let trace = trace.to_str().unwrap();
    let to = ["log", "export", LOG, "--format", "perfetto", "-o", trace];
    stdout(&[&to[..], &governors[..]].concat());
    let bytes = fs::read(trace).unwrap();
    for name in ["one.c on spr", "oracle on spr", "fixed=1 on spr"] {
        assert!(bytes.windows(name.len()).any(|window| window == name.as_bytes()), "{name}");
    }
}

#[test]
fn a_simulated_machine_takes_files() {
    if crate::cannot_compile() {
        return;
    }
    let (_folder, file) = c_file("(void)0");
    let run = |governor: &str| {
        let mut document = json(&[&SIMULATE[..], &["--governor", governor, "--json"]].concat());
        for table in ["runs", "spans", "states"] {
            for row in document[table].as_array_mut().unwrap() {
                row.as_object_mut().unwrap().remove("governor");
            }
        }
        let bases = document.as_object_mut().unwrap().remove("bases").unwrap();
        (document, bases.to_string())
    };
    let ((theirs, bases), (ours, _)) = (run(&file), run("fixed=1"));
    assert_eq!(theirs, ours);
    assert!(bases.contains("decisions of one.c"), "{bases}");
}

#[test]
fn a_file_that_fails_takes_nothing_down_but_its_own_rows() {
    if crate::cannot_compile() {
        return;
    }
    let (folder, file) = c_file("*(volatile int *)0 = 1");
    let pair = ["--governor", &file, "--governor", "menu"];
    let output = idlewise(&[&SIMULATE[..], &pair, &["--json"]].concat());
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("one.c crashed (SIGSEGV)"), "{message}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = document["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &runs[0]["governor"]), (1, &"menu".into()));

    let out = folder.path().join("out");
    let to = ["log", "export", LOG, "--format", "csv", "-o", out.to_str().unwrap()];
    let (status, message) = failure(&[&to[..], &pair].concat());
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("one.c crashed (SIGSEGV)"), "{message}");
    assert!(!out.exists());
}

#[test]
fn the_oracle_is_refused_where_something_must_decide() {
    let oracle = ["--governor", "oracle"];
    assert_refused(&[&SIMULATE[..], &oracle].concat(), &["knows each gap in advance"]);
    for option in ["--check-recorded", "--write-log=x"] {
        let replay = ["replay", LOG, "--machine", "spr", option];
        assert_refused(&[&replay[..], &oracle].concat(), &["the oracle knows"]);
    }
}

/// Blocks of code that implement [`idlewise_core::Governor`].
fn implementations() -> Vec<(PathBuf, String)> {
    fn add(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !matches!(name.as_str(), "target" | "tests" | "node_modules") {
                add(&path, found);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                for part in text.split("\nimpl").skip(1).chain(text.split("        impl").skip(1)) {
                    let head = part.lines().next().unwrap_or_default();
                    if head.contains(" Governor for ") {
                        // Up to the end of the block, which closes at the depth where it began.
                        let end = part.find("\n}\n").unwrap_or(part.len());
                        found.push((path.clone(), part[..end].to_owned()));
                    }
                }
            }
        }
    }
    let mut found = Vec::new();
    add(&root().join("crates"), &mut found);
    found
}

/// The default of `forecast_ns` is that there is none, so a wrapper that forgets it compiles.
#[test]
fn every_governor_that_asks_another_passes_on_its_forecast() {
    let all = implementations();
    let wraps = |block: &str| block.contains(".select(context, device)");
    let wrappers: Vec<_> = all.iter().filter(|(_, block)| wraps(block)).collect();
    assert!(all.len() > 15 && wrappers.len() >= 7, "{} of {}", wrappers.len(), all.len());
    for (path, block) in wrappers {
        let head = block.lines().next().unwrap_or_default();
        assert!(block.contains(".forecast_ns()"), "{}: impl{head}", path.display());
    }
}

/// It had been taken for a path.
#[test]
fn a_price_that_is_no_number_is_said_to_be_none() {
    let output = idlewise(&["replay", "traces/a-idle.parquet", "--governor", "hazard:lambda=1/4"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("lambda") && !message.contains(".c"), "{message}");
}
