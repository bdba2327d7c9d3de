//! Input that asks for too much memory: every command under a memory limit.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use idlewise_trace::log::{FORMAT_VERSION, LogMetadata, LogWriter};
use idlewise_trace::{CpuSummary, GapSink, IdleGap, WakeReason};

use crate::{OwnFile, folder, root};

/// Far more than valid input needs, and far less than an endless device would take.
const ADDRESS_SPACE_KB: &str = "400000";

fn limited(arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -v "$0" && exec "$@""#, ADDRESS_SPACE_KB]);
    command.arg(env!("CARGO_BIN_EXE_idlewise")).args(arguments).current_dir(root());
    command.output().expect("it starts")
}

fn assert_refused(arguments: &[&str], parts: &[&str]) {
    let output = limited(arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} has no {part:?}");
    }
}

#[test]
fn a_device_without_an_end_is_no_text() {
    assert_refused(&["machines", "/dev/zero"], &["/dev/zero", "more than 1 MiB"]);
    assert_refused(&["replay", "--machine", "/dev/zero"], &["/dev/zero", "more than 1 MiB"]);
    let folder = folder();
    let workload = folder.path().join("endless.toml");
    symlink("/dev/zero", &workload).unwrap();
    let workload = workload.to_str().unwrap();
    assert_refused(&["lab", "simulate", "spr", workload], &["endless.toml", "more than 1 MiB"]);
}

#[test]
fn a_file_with_a_hole_is_no_text() {
    let machine = OwnFile::new("hole.toml", "id = \"x\"\n");
    File::options().write(true).open(&machine.0).unwrap().set_len(1 << 40).unwrap();
    assert_refused(&["machines", machine.path()], &["hole.toml", "more than 1 MiB"]);
}

/// A cut file would be a file with a fault that it does not have.
#[test]
fn what_is_longer_than_allowed_is_not_cut() {
    let long = OwnFile::new("long.json", "{}");
    File::options().write(true).open(&long.0).unwrap().set_len((64 << 20) + 1).unwrap();
    for command in ["lab compare FILE FILE", "lab boot --cpuid FILE"] {
        let arguments: Vec<&str> = command
            .split(' ')
            .map(|word| if word == "FILE" { long.path() } else { word })
            .collect();
        assert_refused(&arguments, &["long.json", "more than 64 MiB"]);
    }
}

#[test]
fn a_decision_log_without_line_ends_is_refused() {
    let logs = "conformance/decisions";
    let first = fs::read_dir(root().join(logs)).unwrap().next().unwrap().unwrap().file_name();
    let log = format!("{logs}/{}", first.to_str().unwrap());
    assert_refused(
        &["lab", "verify", "decisions", &log, "--tables", "/dev/zero"],
        &["more than 65536 bytes"],
    );
    let folder = folder();
    let endless = folder.path().join("6.12-menu-spr-hz250.csv");
    symlink("/dev/zero", &endless).unwrap();
    let endless = endless.to_str().unwrap();
    assert_refused(
        &["lab", "verify", "decisions", endless, "--tables", "conformance/decisions/tables.csv"],
        &["line 1", "more than 65536 bytes"],
    );
}

#[test]
fn a_packed_file_is_not_unpacked_beyond_its_limit() {
    // Eight MiB of spaces in a few kilobytes: within the allowed ratio, but not a recording.
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&vec![b' '; 8 << 20]).unwrap();
    let bomb = OwnFile::new("bomb.txt.gz", packer.finish().unwrap());
    let folder = folder();
    let output = folder.path().join("x.parquet");
    let output = output.to_str().unwrap();
    for command in
        [&["info"][..], &["log", "import", "--output", output], &["replay", "--machine", "spr"]]
    {
        let limited = [command, &[bomb.path(), "--max-unpacked", "4M"]].concat();
        assert_refused(&limited, &["bomb.txt.gz", "more than 4194304 bytes", "--max-unpacked"]);
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing is left behind");
    // With a higher limit it is refused because of its content.
    assert_refused(&["info", bomb.path(), "--max-unpacked", "9M"], &["bomb.txt.gz", "found"]);
}

#[test]
fn thousands_of_cpus_take_a_row_each_and_no_more() {
    let mut text = String::from("# tracer: nop\n#\n");
    let mut at_us = 1_000_000;
    for _ in 0..2 {
        for (cpu, state) in (0..4_000).map(|cpu| (cpu, 1)).chain((0..4_000).map(|c| (c, u32::MAX)))
        {
            at_us += 1;
            let (s, us) = (at_us / 1_000_000, at_us % 1_000_000);
            text += &format!(
                "          <idle>-0       [{cpu:03}] d..1. {s:5}.{us:06}: \
                 cpu_idle: state={state} cpu_id={cpu}\n"
            );
        }
    }
    let recording = OwnFile::new("wide.txt", text);
    let output = limited(&["info", recording.path(), "--csv"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    let csv = String::from_utf8(output.stdout).unwrap();
    assert_eq!(csv.lines().count(), 1 + 4_000);
    assert!(csv.lines().any(|line| line.starts_with("3999,recorded,1,")), "{csv}");
}

#[test]
fn lanes_of_thousands_of_cpus_are_not_kept() {
    // Ten lanes for each CPU. All at once would exceed the limit.
    let folder = folder();
    let log = folder.path().join("wide.parquet");
    let mut writer = LogWriter::create(&log, true).unwrap();
    let mut cpus = Vec::new();
    for cpu in 0..20_000 {
        let gap = IdleGap {
            cpu,
            start_ns: 1_000_000,
            gap_ns: 500_000,
            sleep_length_ns: Some(3_000_000),
            next_tick_ns: Some(2_000_000),
            tick_stopped: false,
            ran_task: true,
            wake_reason: WakeReason::Irq,
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        };
        writer.take(cpu, &[gap]).unwrap();
        cpus.push(CpuSummary { cpu, observed: true, gap_count: 1, ..CpuSummary::default() });
    }
    let metadata = LogMetadata {
        format_version: FORMAT_VERSION,
        hz: Some(250),
        cpus,
        ..LogMetadata::default()
    };
    writer.finish_unchecked(&metadata).unwrap();
    for command in [&["replay"][..], &["replay", "--compare"]] {
        let log = [log.to_str().unwrap(), "--machine", "spr", "--csv"];
        let output = limited(&[command, &log].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {message}");
    }
}

#[test]
fn arrivals_that_nobody_can_serve_end_a_simulation() {
    let flood = OwnFile::new(
        "flood.toml",
        "workload = \"poisson\"\ninterval_ns = 100\nirq_entry_ns = 10000\n",
    );
    assert_refused(
        &["lab", "simulate", "milan", flood.path(), "--duration-ms", "200"],
        &["interrupts wait at", "make its intervals longer"],
    );
}
