//! `idlewise measure wakes`: with this machine's tracefs, and of recordings.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::record::is_skipped;
use crate::{WIDTH, assert_refused, idlewise, json, schemas, stdout};

fn sum(document: &Value, list: &str, column: &str) -> u64 {
    let rows = document[list].as_array().unwrap();
    rows.iter().map(|row| row[column].as_u64().unwrap_or_else(|| panic!("{column}: {row}"))).sum()
}

/// A recording of a real kernel with the driver's HLT states, by `idlewise record` before it took the driver's
/// tracepoint along: interrupts are known, and their senders are not.
#[test]
fn counts_the_wakes_in_a_recording_without_senders() {
    let recording = "traces/q-menu-6.12.trace.dat.xz";
    let document = json(&["measure", "wakes", "--from", recording, "--json"]);
    let of = |column| sum(&document, "cpus", column);
    assert!(of("ipi_count") > 500, "500 round trips between two CPUs: {document:#}");
    assert!(of("timer_count") > 500, "{document:#}");
    assert_eq!(of("store_count"), 0, "nothing tells of stores: {document:#}");
    let all = ["ipi_count", "timer_count", "device_count", "deadline_count", "unknown_count"];
    assert_eq!(all.map(of).iter().sum::<u64>(), of("stay_count"));
    // Each of those IPIs has an unknown waker.
    let pairs = document["pairs"].as_array().unwrap();
    assert!(pairs.iter().all(|pair| pair["waker"] == "unknown"), "{pairs:?}");
    assert_eq!(sum(&document, "pairs", "ipi_count"), of("ipi_count"));
    let doubts = document["doubts"].to_string();
    for doubt in ["wakes by store", "who sends an IPI"] {
        assert!(doubts.contains(doubt), "{doubt}: {doubts}");
    }
    // The stays are those that the importer sees: gaps, and the ticks that were joined into them.
    let info = json(&["info", recording, "--json"]);
    let gaps = sum(&info, "cpus", "gap_count") + sum(&info, "cpus", "joined_wake_count");
    let stays = of("stay_count");
    assert!(stays.abs_diff(gaps) * 50 < gaps, "{stays} stays, {gaps} gaps and ticks");
}

#[test]
fn a_recordings_tables_fit_the_screen_and_say_what_is_unknown() {
    let text = stdout(&["measure", "wakes", "--from", "traces/q-menu-6.1.trace.dat.xz"]);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    for part in ["Who woke whom:", "unknown  CPU", "CPUs woke each other", "since Linux 6.4"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let csv = stdout(&["measure", "wakes", "--from", "traces/q-menu-6.1.trace.dat.xz", "--csv"]);
    assert!(csv.starts_with("waker,woken,store_count,ipi_count,free_ride_count,"), "{csv}");
}

/// Importing is for gaps: what only says who sends wakes changes no log.
#[test]
fn refuses_what_keeps_no_senders() {
    let text = "traces/l-pingpong.tracefs.txt.xz";
    assert_refused(&["measure", "wakes", "--from", text], &["trace.dat and perf.data"]);
    assert_refused(&["measure", "wakes", "--from", "README.md"], &["README.md"]);
    assert_refused(&["measure", "wakes", "--from", "none.dat"], &["none.dat"]);
}

/// Wakes a CPU many times by a pipe between two processes on two CPUs, if there are two.
fn ping_pong() -> Command {
    let mut command = Command::new("sh");
    let script = "a() { taskset -c 0 \"$@\" 2>/dev/null || \"$@\"; }; \
        i=0; while [ $i -lt 100 ]; do a true | cat; i=$((i + 1)); done";
    command.args(["-c", script]).stdout(Stdio::null());
    command
}

#[test]
fn counts_the_wakes_of_this_machine() {
    if is_skipped("counts_the_wakes_of_this_machine") {
        return;
    }
    let load = std::thread::spawn(|| ping_pong().status());
    let output = idlewise(&["measure", "wakes", "-d", "2", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    schemas::assert_valid("measure-wakes", &document);
    load.join().unwrap().unwrap();
    // A busy CPU goes idle in no stay; then the output says so.
    let seen: Vec<_> = document["cpus"].as_array().unwrap().iter().map(|row| &row["cpu"]).collect();
    let doubts = document["doubts"].to_string();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert!(online.trim().starts_with('0'), "{online}");
    let is_told = doubts.contains("no idle stay ended");
    assert!(seen.contains(&&Value::from(0)) || is_told, "{document:#}");
    assert!(document["span_ns"].as_u64().unwrap() >= 1_900_000_000, "{document:#}");
    let columns = ["store_count", "ipi_count"];
    for column in columns {
        assert_eq!(sum(&document, "pairs", column), sum(&document, "cpus", column), "{document:#}");
    }
}

/// Each interval has its tables, and ctrl-c ends it with those of the whole time.
#[test]
fn follows_until_ctrl_c() {
    if is_skipped("follows_until_ctrl_c") {
        return;
    }
    let child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["measure", "wakes", "--follow", "--interval", "0.3"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let id = child.id();
    let stop = std::thread::spawn(move || {
        // However late the signal comes, the output has the same parts.
        std::thread::park_timeout(Duration::from_millis(1_500));
        // SAFETY: a signal to our own child, which waits to be collected.
        unsafe { libc::kill(id as libc::pid_t, libc::SIGINT) };
    });
    let output = child.wait_with_output().unwrap();
    stop.join().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let (followed, whole) = text.split_once("What ended the stays").expect(&text);
    assert!(followed.contains("the last 0.3 s:"), "{text}");
    assert!(whole.contains("Measured: all counts"), "{text}");
    // Nothing is left behind: the instance goes with the process.
    let folder = std::fs::read_dir("/sys/kernel/tracing/instances").unwrap();
    let own = format!("idlewise-{id}-");
    let left: Vec<_> = folder
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&own))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    for arguments in [
        &["--follow", "--json"][..],
        &["--from", "trace.dat", "-d", "1"],
        &["--interval", "1"],
        &["-d", "0"],
    ] {
        let output = idlewise(&[&["measure", "wakes"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
