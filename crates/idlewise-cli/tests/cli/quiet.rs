//! `idlewise set quiet` on captured machines.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::settings::{Captured, wait_until};
use crate::{WIDTH, idlewise};

fn quiet(machine: &Captured, options: &str, command: &[&str]) -> Output {
    let mut arguments = vec!["set", "quiet", "--sysroot", machine.root(), "--look", "0"];
    arguments.extend(options.split_whitespace());
    arguments.push("--");
    arguments.extend(command);
    idlewise(&arguments)
}

/// A command that prints the limits of all CPUs.
fn limits(machine: &Captured) -> [String; 3] {
    let files = machine.path("sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us");
    ["sh".to_owned(), "-c".to_owned(), format!("cat {}", files.display())]
}

#[test]
fn limits_are_in_force_while_the_command_runs_and_only_then() {
    let machine = Captured::new();
    let before = machine.sysfs();
    let shown = limits(&machine);
    let output = quiet(&machine, "", &shown.each_ref().map(String::as_str));
    assert_eq!(output.stdout, b"0\n10\n10\n0\n", "of the CPUs that the process may run on");
    assert_eq!(machine.sysfs(), before);
    let output = quiet(&machine, "--latency 0us --cpus 3", &shown.each_ref().map(String::as_str));
    assert_eq!(output.stdout, b"0\n0\n0\nn/a\n", "0 would mean no limit");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("latency=0us@3 while sh ran"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    machine.wait_for_holders();
}

#[test]
fn the_noise_before_and_after_is_reported() {
    let machine = Captured::new();
    let arguments = ["set", "quiet", "--sysroot", machine.root(), "--look", "0.01", "--", "true"];
    let text = String::from_utf8(idlewise(&arguments).stderr).unwrap();
    let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(lines, ["idlewise:", "before", "meanwhile", "after"], "{text}");
}

#[test]
fn the_exit_status_is_the_commands() {
    let machine = Captured::new();
    let status = |command: &[&str]| quiet(&machine, "", command).status.code();
    assert_eq!(status(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(status(&["sh", "-c", "kill -TERM $$"]), Some(128 + 15));
    assert_eq!(status(&["sh", "-c", "kill -KILL $$"]), Some(128 + 9));
    assert_eq!(status(&["/nonexistent/command"]), Some(127));
    assert_eq!(status(&["/etc/passwd"]), Some(126));
    let file = machine.path("sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us");
    fs::remove_file(file).unwrap();
    let output = quiet(&machine, "", &["touch", machine.path("ran").to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!machine.path("ran").exists(), "without its limit it does not run");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("COMMAND was not started") && text.lines().count() == 1, "{text}");
}

#[test]
fn input_and_output_are_the_commands() {
    let machine = Captured::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["set", "quiet", "--sysroot", machine.root(), "--look", "0", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let input: Vec<u8> = (0..=255).collect();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), &input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, input);
}

#[test]
fn signals_are_passed_on() {
    let machine = Captured::new();
    let before = machine.sysfs();
    let ready = machine.path("ready");
    for (name, status) in [("TERM", 3), ("INT", 3), ("USR1", 3)] {
        let script =
            format!("trap 'exit 3' {name}; touch {}; while :; do :; done", ready.display());
        let mut child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
            .args([
                "set",
                "quiet",
                "--sysroot",
                machine.root(),
                "--look",
                "0",
                "--",
                "sh",
                "-c",
                &script,
            ])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the command runs", || ready.exists());
        assert_ne!(machine.sysfs(), before);
        let sent =
            Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(status), "{name}");
        assert_eq!(machine.sysfs(), before);
        fs::remove_file(&ready).unwrap();
    }
}

#[test]
fn two_at_once_share_the_smallest_limit() {
    let machine = Captured::new();
    let before = machine.sysfs();
    let limit = "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";
    let inner = format!("cat {}", machine.path(limit).display());
    let outer = [
        env!("CARGO_BIN_EXE_idlewise"),
        "set",
        "quiet",
        "--latency",
        "50us",
        "--look",
        "0",
        "--sysroot",
        machine.root(),
        "--",
        "sh",
        "-c",
        &inner,
    ];
    let output = quiet(&machine, "--latency 20us", &outer);
    assert_eq!(output.stdout, b"20\n");
    let output = quiet(&machine, "--latency 80us", &outer);
    assert_eq!(output.stdout, b"50\n");
    assert_eq!(machine.sysfs(), before);
}
