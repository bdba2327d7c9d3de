//! `idlewise log anonymize`: dropped fields are not in the file, and a replay gives the same result.

use std::fs;
use std::path::Path;

use idlewise_machine::Machine;
use idlewise_trace::log::{IdleLog, LogMetadata, LogSource, LogWriter};
use idlewise_trace::{Doubt, GapSink};

use crate::import::gaps;
use crate::{assert_refused, folder, json, root, stdout};

const SECRETS: [&str; 9] = [
    "acme-backup",
    "/home/alice",
    "deadbeef",
    "117-acme",
    "Xeon-ACME",
    "acme-box",
    "ACME rack 7",
    "alice's note",
    "kprobes:acme",
];

/// A log of a bundled recording with every field filled in.
fn telling_log(path: &Path) {
    let log = IdleLog::open(&root().join("traces/b-redis.parquet")).unwrap();
    let machine = "id = \"acme-box\"\ntitle = \"ACME rack 7\"\narch = \"x86\"\n\
                   model_name = \"Xeon-ACME\"\nsource = \"alice's note\"\n\
                   [[states]]\nname = \"POLL\"\nexit_latency_us = 0\ntarget_residency_us = 0\n\
                   flags = [\"polling\"]\n\
                   [[states]]\nname = \"C1\"\nexit_latency_us = 1.5\ntarget_residency_us = 2\n\
                   desc = \"alice's note\"\npower_mw = 900\npower_source = \"alice's note\"\n";
    let mut doubts = log.metadata.doubts.clone();
    doubts.push("recorded but unreadable: kprobes:acme has no field `state`".to_owned().into());
    let metadata = LogMetadata {
        kernel: Some("6.12.117-acme-backup".to_owned()),
        cpu_model: Some("Xeon-ACME 9000".to_owned()),
        machine: Some(Machine::from_toml(machine).unwrap()),
        doubts,
        source: LogSource {
            blake3: Some("deadbeef".repeat(8)),
            command: Some("perf record -o /home/alice/acme-backup".to_owned()),
            ..log.metadata.source.clone()
        },
        ..log.metadata.clone()
    };
    let mut writer = LogWriter::create(path, false).unwrap();
    writer.take(0, &gaps(&log)).unwrap();
    writer.finish_unchecked(&metadata).unwrap();
}

/// Whether the file contains the words anywhere. A log's metadata is stored uncompressed.
fn holds(path: &Path, words: &str) -> bool {
    let bytes = fs::read(path).unwrap();
    bytes.windows(words.len()).any(|window| window == words.as_bytes())
}

#[test]
fn nothing_that_is_dropped_is_in_the_file() {
    let folder = folder();
    let (telling, anonymous) = (folder.path().join("log.parquet"), folder.path().join("a.parquet"));
    telling_log(&telling);
    let (from, to) = (telling.to_str().unwrap(), anonymous.to_str().unwrap());
    let document = json(&["log", "anonymize", from, "-o", to, "--json"]);
    let dropped = ["command", "source", "kernel", "cpu-model", "machine", "time", "doubts"];
    assert_eq!(document["dropped"], serde_json::json!(dropped));
    for secret in SECRETS {
        assert!(holds(&telling, secret), "{secret} is where it would be found");
        assert!(!holds(&anonymous, secret), "{secret}");
    }
    let before = IdleLog::open(&telling).unwrap();
    let after = IdleLog::open(&anonymous).unwrap();
    assert_eq!(after.metadata.kernel.as_deref(), Some("6.12"));
    assert_eq!(after.metadata.machine.as_ref().unwrap().states[1].exit_latency_ns, 1_500);
    // The doubt with only numbers stays, the other is counted.
    let doubts = &after.metadata.doubts;
    assert_eq!(doubts.len(), 2);
    assert_eq!(doubts[0], before.metadata.doubts[0]);
    assert!(doubts[1] == Doubt::Anonymized { count: 1 });
    // Absolute times are gone from the gaps and from the metadata, but nothing else.
    let (before, mut after) = (gaps(&before), gaps(&after));
    assert!(after[0].start_ns < 100_000_000 && before[0].start_ns > 1_000_000_000_000);
    let shift_ns = before[0].start_ns - after[0].start_ns;
    assert_eq!(shift_ns % 4_000_000, 0, "whole ticks");
    for gap in &mut after {
        gap.start_ns += shift_ns;
    }
    assert_eq!(after, before);
    assert!(stdout(&["log", "validate", to]).contains("nothing is wrong"));
}

#[test]
fn a_replay_gives_the_same_numbers() {
    for name in ["a-idle", "s-softirq500", "e-hackbench"] {
        let folder = folder();
        // The same name, because the name is in the output.
        let anonymous = folder.path().join(format!("{name}.parquet"));
        let log = format!("traces/{name}.parquet");
        stdout(&["log", "anonymize", &log, "-o", anonymous.to_str().unwrap()]);
        let before = stdout(&["replay", &log, "--csv", "--hz", "250"]);
        let after = stdout(&["replay", anonymous.to_str().unwrap(), "--csv", "--hz", "250"]);
        assert_eq!(before, after);
        let other_hz = |log: &str| stdout(&["replay", log, "--csv", "--hz", "1000"]);
        assert_eq!(other_hz(&log), other_hz(anonymous.to_str().unwrap()));
    }
}

#[test]
fn says_what_was_dropped_and_what_remains() {
    let folder = folder();
    let output = folder.path().join("a.parquet");
    let output = output.to_str().unwrap();
    let text =
        stdout(&["log", "anonymize", "traces/a-idle.parquet", "-o", output, "--keep", "cpu-model"]);
    let (dropped, remains) = text.split_once("Remains, and could still identify:").unwrap();
    assert!(dropped.contains("- command") && dropped.contains("- time"), "{text}");
    assert!(!dropped.contains("- cpu-model"), "{text}");
    assert!(remains.contains("rhythm"), "{text}");
    let metadata = &json(&["info", output, "--json"])["metadata"];
    assert_eq!(metadata["cpu_model"], "Intel(R) Xeon(R) Processor");
    assert!(metadata["source"]["command"].is_null());
    // The importers' doubts contain only numbers, so they stay.
    assert_eq!(metadata["doubts"].as_array().unwrap().len(), 3);
    let other = folder.path().join("b.parquet");
    let other = other.to_str().unwrap();
    let again = json(&["log", "anonymize", output, "-o", other, "--keep", "cpu-model", "--json"]);
    assert_eq!(again["dropped"], serde_json::json!([]), "a second time there is nothing left");
}

#[test]
fn refuses_what_it_cannot_do() {
    let folder = folder();
    let output = folder.path().join("a.parquet");
    let output = output.to_str().unwrap();
    let log = "traces/a-idle.parquet";
    assert_refused(&["log", "anonymize", log, "-o", output, "--keep", "comand"], &["'command'"]);
    assert_refused(&["log", "anonymize", "README.md", "-o", output], &["README.md"]);
    assert!(!Path::new(output).exists(), "nothing half-written");
    stdout(&["log", "anonymize", log, "-o", output]);
    assert_refused(&["log", "anonymize", log, "-o", output], &["--force"]);
}
