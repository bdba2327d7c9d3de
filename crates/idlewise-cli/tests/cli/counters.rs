//! `idlewise measure counters`: on machines made of files what is counted and what is not, on this
//! machine that it counts.

use std::fs;
use std::path::Path;

use crate::{assert_refused, folder, idlewise, root, stdout};

/// A machine of `idlewise-host/tests/counters`.
fn machine(name: &str) -> tempfile::TempDir {
    let file = root().join(format!("crates/idlewise-host/tests/counters/{name}.tree"));
    let folder = folder();
    for file in fs::read_to_string(file).unwrap().split("== ").skip(1) {
        let (path, content) = file.split_once('\n').unwrap();
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

fn list(at: &Path, more: &[&str]) -> String {
    let arguments = ["measure", "counters", "--list", "--sysroot", at.to_str().unwrap()];
    stdout(&[&arguments[..], more].concat())
}

#[test]
fn lists_what_a_machine_counts_and_what_it_lacks() {
    let text = list(machine("sapphire-rapids").path(), &[]);
    let row = |name: &str| {
        let row = text.lines().find(|line| line.starts_with(name));
        row.unwrap_or_else(|| panic!("no {name}: {text}")).to_owned()
    };
    assert!(row("CPU_CLK_UNHALTED.C02 ").contains("at   4 places  cpu/event=0xec,umask=0x20/"));
    assert!(row("package C6 ").contains("at   2 places  cstate_pkg/c6-residency/"));
    assert!(row("CAL (function calls) ").contains("at   4 places  /proc/interrupts"));
    assert!(row("requested C6 ").contains("cpuidle/state*/time"));
    assert!(!text.contains("Not counted here"), "{text}");

    let text = list(machine("epyc").path(), &[]).replace("\n  ", " ");
    assert!(text.contains("Not counted here:"), "{text}");
    assert!(text.contains("cstate_core: AMD's processors do not count it"), "{text}");
    let document = list(machine("epyc").path(), &["--json"]);
    let document = serde_json::from_str(&document).unwrap();
    crate::schemas::assert_valid("measure-counters-list", &document);
    let nothing = folder();
    let text = list(nothing.path(), &[]);
    assert!(text.starts_with("Not counted here:\n"), "{text}");
    assert!(text.contains("/proc/interrupts does not list them by CPU"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= crate::WIDTH), "{text}");
}

#[test]
fn a_machine_that_counts_nothing_is_refused_with_one_line() {
    let nothing = folder();
    let at = nothing.path().to_str().unwrap();
    assert_refused(&["measure", "counters", "--sysroot", at], &["counts nothing", "--list"]);
}

#[test]
fn counts_this_machine_while_a_command_runs() {
    let arguments = "measure counters --slice 0.05 --json -- sh -c";
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done; exit 3";
    let arguments: Vec<&str> = arguments.split(' ').chain([script]).collect();
    let output = idlewise(&arguments);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-counters", &document);
    assert_eq!(document["measurement"], "counters");
    assert!(document["slice_count"].as_u64().unwrap() >= 1);
    let names: Vec<&str> = document["all"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["counter"].as_str().unwrap())
        .collect();
    // Every counter is either counted or absent, whatever the machine.
    let absent = document["absent"].to_string();
    for (counter, group) in [
        ("C0 (MPERF)", "MPERF"),
        ("core C6", "cores were in"),
        ("package C6", "packages were in"),
        ("package energy", "energy"),
        ("CPU_CLK_UNHALTED.C02", "C0.2"),
    ] {
        let is_counted = names.iter().any(|name| name.starts_with(counter));
        assert!(is_counted || absent.contains(group) || absent.contains(counter), "{document:#}");
    }
    let saved = crate::OwnFile::new("counters.json", document.to_string());
    let text = stdout(&["lab", "compare", saved.path(), saved.path()]);
    assert!(text.contains("Means, or medians of runs"), "{text}");
}

#[test]
fn two_settings_take_turns_and_the_first_is_restored() {
    let folder = folder();
    let file = folder.path().join("settings");
    let [a, b] = ["A", "B"].map(|name| format!("printf {name} >> {}", file.display()));
    let arguments = "measure counters -d 0.8 --slice 0.05 --settle 0.01 --json --ab";
    let arguments: Vec<&str> = arguments.split(' ').chain([a.as_str(), &b]).collect();
    let output = idlewise(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(&file).unwrap(), "ABBAABBAABBAABBAA");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-counters-ab", &document);
    let lines = document["lines"].as_array().unwrap();
    assert!(!lines.is_empty());
    for line in lines {
        assert_eq!(line["statistic"], "mean");
        assert_eq!(line["setting"], "A → B");
        assert_eq!(line["improvement_ratio"], serde_json::Value::Null, "neither is better");
    }
    // Eight slices of each are enough, but not for what hardly ever happens.
    assert!(lines.iter().any(|line| line["interval_low_ratio"].is_f64()), "{document:#}");

    fs::remove_file(&file).unwrap();
    let arguments: Vec<&str> = "measure counters --slice 0.01 --settle 0.01 --ab"
        .split(' ')
        .chain([a.as_str(), "exit 7"])
        .collect();
    assert_refused(&arguments, &["--ab: 'exit 7' failed", "7"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "AA", "A is restored");
}
