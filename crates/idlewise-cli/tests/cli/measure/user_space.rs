//! Without the module: this machine's own CPUs are measured, and the files say which states are forced.

use std::fs;
use std::process::{Command, Stdio};

use super::{CPUS, Machine, text};
use crate::{assert_refused, user};

/// The names of proxies are not those of what the module measures.
#[test]
fn without_the_module_proxies_are_measured_and_labelled() {
    let machine = Machine::new();
    machine.write(&format!("{CPUS}/online"), "0-1");
    if cpu_count() < 2 {
        eprintln!("SKIPPED: without_the_module_proxies_are_measured: it needs two CPUs");
        return;
    }
    let file = machine.path("proxies.csv");
    let more = ["--state", "C1,C6", "--count", "60", "--gap-us", "50", "--json", "--samples"];
    let more = [&more[..], &[file.to_str().unwrap()]].concat();
    let output = crate::idlewise(&machine.arguments(&more));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-ipi-proxy", &document);
    assert_eq!(
        (&document["measurement"], &document["is_proxy"]),
        (&"ipi proxy".into(), &true.into())
    );
    let rows = document["all"].as_array().unwrap();
    for (row, state) in rows.iter().zip(["C1", "C6"]) {
        assert_eq!((&row["proxy"], &row["state"]), (&"futex wake".into(), &state.into()));
        assert_eq!((&row["wake_count"], &row["relation"]), (&60.into(), &"SMT sibling".into()));
        assert!(
            ["proxy_latency_p50_ns", "baseline_p50_ns"].iter().all(|id| row[id].is_u64()),
            "{row}"
        );
    }
    // Where the kernel has no membarrier a doubt says so.
    let doubts = document["doubts"].to_string();
    assert!(
        rows.len() == 3 && rows[2]["proxy"] == "membarrier" || doubts.contains("membarrier was")
    );
    for doubt in
        ["not installed for kernel 6.12.1", "may be compared with what the module measures"]
    {
        assert!(doubts.contains(doubt), "{doubts}");
    }
    let csv = fs::read_to_string(&file).unwrap();
    assert_eq!(csv.lines().filter(|line| line.starts_with("futex wake,0,1,C6,")).count(), 60);
    assert_eq!(machine.disabled(1), "001", "the states are as they were");
    machine.assert_refused(
        &["--histogram"],
        &["--histogram shows what the kernel module", "leave it"],
    );
    // A measurement by the module is of another kind.
    let saved = machine.path("saved.json");
    fs::write(&saved, &output.stdout).unwrap();
    let halt = "crates/idlewise-cli/tests/saved/halt.json";
    let parts = ["A is a measurement of ipi, B one of ipi proxy"];
    assert_refused(&["lab", "compare", halt, saved.to_str().unwrap()], &parts);
}

#[test]
fn timers_from_user_space_are_a_proxy_and_force_the_states_too() {
    let machine = Machine::new();
    machine.write(&format!("{CPUS}/online"), "0");
    let more = ["--by", "user-space", "--state", "POLL,C1", "--count", "50", "--gap-us", "50"];
    let arguments = machine.arguments_of("timer", &more);
    let shown = crate::stdout(&arguments);
    assert!(
        shown.starts_with("A proxy for the interrupt latency, from user space: 50 timers"),
        "{shown}"
    );
    for part in ["POLL", "C1", "to the thread that slept", "user space was asked for", "CPU 0"] {
        assert!(shown.contains(part), "no {part}: {shown}");
    }
    assert!(!shown.contains("interrupt p50"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= crate::WIDTH), "{shown}");
    let output = crate::idlewise(&[&arguments[..], &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-timer-proxy", &document);
    assert_eq!(document["all"][1]["timer_count"], 50);
    assert_eq!(machine.disabled(0), "001");
}

/// A signal comes while a state is forced: the test sees that it is, then sends it.
#[test]
fn a_signal_restores_states_that_user_space_forced() {
    let machine = Machine::new();
    machine.write(&format!("{CPUS}/online"), "0");
    let more = ["--by", "user-space", "--state", "C1", "--count", "1000000"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.args(machine.arguments_of("timer", &more));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while machine.disabled(0) != "101" {
        assert!(child.try_wait().unwrap().is_none(), "it ended before a state was forced");
        std::thread::yield_now();
    }
    let script = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("stopped before the end"), "{}", text(&output.stderr));
    assert_eq!(machine.disabled(0), "001");
}

/// A user who may not force states gets figures of what the governor selects, or one line.
#[test]
fn without_rights_no_state_is_forced() {
    let test = "without_rights_no_state_is_forced";
    if user() != 0 {
        eprintln!("SKIPPED: {test}: it needs root, to become a user who does not own the files");
        return;
    }
    let machine = Machine::within(tempfile::tempdir().unwrap());
    let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(machine.0.path()).status();
    assert!(opened.unwrap().success());
    let binary = machine.path("idlewise");
    fs::copy(env!("CARGO_BIN_EXE_idlewise"), &binary).unwrap();
    let run = |more: &[&str]| {
        let more = [&["--by", "user-space", "--count", "20"], more].concat();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
        command.args(machine.arguments_of("timer", &more)).output()
    };
    let output = match run(&[]) {
        Ok(output) if !text(&output.stderr).starts_with("setpriv:") => output,
        other => return eprintln!("SKIPPED: {test}: setpriv: {other:?}"),
    };
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.contains("CPU 0   as configured") && shown.contains("no idle state was forced"));
    let output = run(&["--state", "C6"]).unwrap();
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
    assert!(
        message.contains("Permission denied (os error 13); the idle state can't be forced: run")
    );
    assert!(!message.contains("not as they were"), "nothing was changed: {message}");
}

/// How many CPUs this process may use.
fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
