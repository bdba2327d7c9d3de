//! Commands that change settings, killed with SIGKILL at each of their system calls: `settings revert` gives back
//! every value. `kernel/tests/machine` does the same on real kernels.
//!
//! By default one point in 29 is tried, several hundred altogether; `make test-killed` tries all.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::settings::Captured;
use crate::{folder, root};

/// killer.c's exit status if the command ended before it could be killed.
const STATUS_ENDED: i32 = 3;

/// Every how many points. A prime, so that it does not follow the rhythm of the calls.
fn step() -> usize {
    let step = std::env::var("IDLEWISE_KILL_STEP").ok();
    step.map_or(29, |step| step.parse().expect("IDLEWISE_KILL_STEP is a number"))
}

/// The program that kills, and the folder that it is in. `None` if there is no compiler.
fn killer() -> Option<(PathBuf, tempfile::TempDir)> {
    let folder = folder();
    let killer = folder.path().join("killer");
    let source = root().join("kernel/tests/machine/killer.c");
    match Command::new("cc").arg("-O2").arg("-o").arg(&killer).arg(source).status() {
        Ok(status) if status.success() => Some((killer, folder)),
        outcome => {
            eprintln!(
                "SKIPPED: commands are not killed: cc does not compile killer.c: {outcome:?}"
            );
            None
        }
    }
}

/// Kills the command at one point after another, from a machine that `prepare` has made ready, and reverts. Returns
/// the number of points that the command has.
fn sweep(command: &[&str], prepare: &str) -> Option<usize> {
    sweep_after(command, |machine| {
        assert!(prepare.is_empty() || machine.settings(prepare).status.success());
    })
}

fn sweep_after(command: &[&str], prepare: impl Fn(&Captured)) -> Option<usize> {
    let (killer, _folder) = killer()?;
    let machine = Captured::new();
    let before = machine.sysfs();
    let run = |point: usize| {
        prepare(&machine);
        let mut killed = Command::new(&killer);
        killed.arg(point.to_string()).arg(env!("CARGO_BIN_EXE_idlewise")).args(&command[..2]);
        // Options go before the command that it runs.
        if command[1] == "quiet" {
            killed.args(["--sysroot", machine.root()]).args(&command[2..]);
        } else {
            killed.args(&command[2..]).args(["--sysroot", machine.root()]);
        }
        // A holder waits for a byte.
        let mut killed = killed
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _ = killed.stdin.take().unwrap().write_all(b".");
        let output = killed.wait_with_output().unwrap();
        let reverted = machine.settings("revert");
        let said = String::from_utf8_lossy(&reverted.stderr).into_owned();
        assert_eq!(reverted.status.code(), Some(0), "killed at {point}: {said}");
        assert_eq!(machine.sysfs(), before, "killed at {point}: {said}");
        let journal = machine.path("run/idlewise/journal.json");
        assert!(!journal.exists(), "killed at {point}: {said}");
        machine.wait_for_holders();
        output
    };
    let output = run(0);
    if output.status.code() != Some(STATUS_ENDED) {
        eprintln!(
            "SKIPPED: commands are not killed: this system forbids ptrace ({})",
            output.status
        );
        return None;
    }
    let all: usize = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .last()
        // A holder has printed that it holds.
        .and_then(|line| line.trim_start_matches('.').parse().ok())
        .expect("killer prints the number of points");
    let points: Vec<usize> = (1..=all).step_by(step()).collect();
    for &point in &points {
        run(point);
    }
    eprintln!("{}: killed at {} of {all} points, all given back", command.join(" "), points.len());
    Some(all)
}

#[test]
fn apply_killed_anywhere_is_given_back() {
    let command =
        ["set", "apply", "--set", "C6=off", "--set", "governor=teo", "--set", "latency=9us@1"];
    let held = [&command[..], &["--set", "latency=30us", "--expires", "1h"]].concat();
    if let Some(all) = sweep(&command, "") {
        assert!(all >= 300, "only {all} points");
        sweep(&held, "");
    }
}

#[test]
fn revert_killed_anywhere_can_be_run_again() {
    let prepare = "apply --set C6=off --set governor=teo --set latency=9us@1";
    if let Some(all) = sweep(&["set", "revert"], prepare) {
        assert!(all >= 300, "only {all} points");
        sweep(&["set", "revert"], &format!("{prepare} --set latency=30us"));
    }
}

#[test]
fn quiet_killed_anywhere_is_given_back() {
    let command = ["set", "quiet", "--cpus", "0-3", "--look", "0", "--", "true"];
    if let Some(all) = sweep(&command, "") {
        assert!(all >= 300, "only {all} points");
    }
}

/// Wakes this machine's CPUs, and forces states in the files.
#[test]
fn measure_killed_anywhere_is_given_back() {
    let allowed = idlewise_probe::allowed_cpus();
    if ![0, 1].iter().all(|cpu| allowed.contains(cpu)) {
        eprintln!("SKIPPED: measure is not killed: it needs the CPUs 0 and 1");
        return;
    }
    let short = ["--state", "C1,C6", "--count", "1", "--gap-us", "1"];
    let command = ["measure", "ipi", "--by", "user-space", "--source", "0", "--target", "1"];
    let command = [&command[..], &short].concat();
    if let Some(all) = sweep(&command, "") {
        assert!(all >= 300, "only {all} points");
        // What others have set is given back as it was found.
        sweep(&command, "apply --set C6=off --set latency=9us@1");
    }
}

#[test]
fn a_holder_killed_anywhere_leaves_nothing() {
    let command = ["set", "hold", "1"];
    // A session whose owner has ended: its holder gives it back.
    let all = sweep_after(&command, |machine| {
        assert!(machine.settings("apply --set C6=off --set latency=9us@1").status.success());
        let journal = machine.path("run/idlewise/journal.json");
        let text = fs::read_to_string(&journal).unwrap();
        fs::write(journal, text.replace("until_reverted", "while_running")).unwrap();
    });
    if let Some(all) = all {
        assert!(all >= 300, "only {all} points");
    }
}
