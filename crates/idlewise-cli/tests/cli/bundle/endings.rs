//! Signals, time limits and SIGKILL: what they leave is nothing.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use super::Made;
use crate::{failure, folder};

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    let long = endless();
    let scratch = folder();
    let mut running = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["log", "bundle", "verify", &long.path()])
        .env("TMPDIR", scratch.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let is_running = || {
        let folders = fs::read_dir(scratch.path()).unwrap();
        folders.flatten().any(|folder| folder.path().join("expected/output.txt").exists())
    };
    while !is_running() {
        assert!(running.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    // SAFETY: the process is our child, and has not been waited for.
    assert_eq!(unsafe { libc::kill(running.id() as i32, libc::SIGTERM) }, 0);
    let status = running.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// A bundle of a simulation that takes longer than any test.
fn endless() -> Made {
    let made = Made::new(&["lab", "simulate", "spr", "tcp-lat", "--duration-ms", "1"]);
    made.with_command(&["lab", "simulate", "spr", "tcp-lat", "--duration-ms", "31536000000"])
}

#[test]
fn a_time_limit_ends_it_and_leaves_nothing() {
    let long = endless();
    let scratch = folder();
    let output = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["log", "bundle", "verify", &long.path(), "--max-time", "1s"])
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("took more than 1 s") && message.contains("--max-time"), "{message}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    let (status, message) = failure(&["log", "bundle", "verify", "x", "--max-time", "0s"]);
    assert_eq!(status, Some(2));
    assert!(message.contains("--max-time") && message.contains("such as 90s"), "{message}");
}

#[test]
fn what_was_killed_goes_on_nowhere_and_its_folder_is_removed_by_the_next() {
    let long = endless();
    let scratch = folder();
    let verify = |made: &Made| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.args(["log", "bundle", "verify", &made.path()]).env("TMPDIR", scratch.path());
        command.stdout(std::process::Stdio::null());
        command
    };
    let mut running = verify(&long).spawn().unwrap();
    // The bundled command, which has a parent of its own.
    let child = loop {
        assert!(running.try_wait().unwrap().is_none(), "it ended by itself");
        let parent = format!("\nPPid:\t{}\n", running.id());
        let mut all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let is_child = |path: &PathBuf| {
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            // Its words are there once it runs.
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            status.contains(&parent) && words.windows(8).any(|part| part == b"simulate")
        };
        if let Some(child) = all.find(is_child) {
            break child;
        }
        std::thread::yield_now();
    };
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nobody could remove it");
    // Whoever has inherited it may take its time to notice.
    let is_there = || {
        let state = fs::read_to_string(child.join("stat")).unwrap_or_default();
        state.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    while is_there() {
        std::thread::yield_now();
    }
    let short = Made::new(&["lab", "simulate", "spr", "tcp-lat", "--duration-ms", "1"]);
    assert!(verify(&short).status().unwrap().success());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// What an output is compared with may be one line of any length.
#[test]
fn a_long_line_takes_no_memory() {
    let made = Made::new(&["lab", "simulate", "spr", "tcp-lat", "--duration-ms", "1"]);
    let long = made.changed(|folder| {
        File::create(folder.join("output.txt")).unwrap().set_len(96 << 20).unwrap();
    });
    // The program's own address space, and less than the line.
    let output = Command::new("sh")
        .args(["-c", r#"ulimit -v 400000 && exec "$@""#, "sh", env!("CARGO_BIN_EXE_idlewise")])
        .args(["log", "bundle", "verify", &long.path()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("\noutput.txt    differs from line 1 on: "), "{text}");
}
