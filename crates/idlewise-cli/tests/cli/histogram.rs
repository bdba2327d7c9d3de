//! `idlewise record --histogram`, and `info` of what it writes. Counting needs root and BPF; where it is not
//! permitted, the test says so. What the programs count is tested with an interpreter in idlewise-host.

use std::fs;
use std::path::Path;

use idlewise_trace::histogram::{Bin, CpuHistogram, IdleHistogram, StateHistogram, place_of};
use idlewise_trace::{MachineNote, NotedTable};
use serde_json::Value;

use crate::{assert_refused, folder, idlewise, schemas, stdout};

/// A second of a CPU that was in C6 for 1000 stays of 20 us and 500 of 700 us.
fn histogram(cpu_count: u16) -> IdleHistogram {
    let bin = |stay_ns: u64, stay_count: u64| Bin {
        place: place_of(stay_ns),
        stay_count,
        stay_sum_ns: stay_ns * stay_count,
    };
    let of = |is_timer, bins| StateHistogram { state: 1, is_timer, bins };
    let states = vec![of(false, vec![bin(20_000, 1_000)]), of(true, vec![bin(700_000, 500)])];
    let cpu = |cpu| CpuHistogram { cpu, states: states.clone(), beyond_count: 0 };
    let machine = serde_json::json!({
        "id": "recorded", "title": "A machine", "arch": "x86", "source": "captured",
        "states": [
            { "name": "C1", "exit_latency_us": 2, "target_residency_us": 2 },
            { "name": "C6", "exit_latency_us": 100, "target_residency_us": 300 },
        ],
    });
    let machine = serde_json::from_value(machine).unwrap();
    let tables = vec![NotedTable { cpus: (0..cpu_count).collect(), machine }];
    let note = MachineNote { tables, ..MachineNote::default() };
    IdleHistogram::new(note, 1_000_000_000, (0..cpu_count).map(cpu).collect())
}

fn saved(folder: &Path, histogram: &IdleHistogram) -> String {
    let path = folder.join("histogram.json");
    fs::write(&path, histogram.to_json()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn counts_what_happens_or_says_why_not() {
    let folder = folder();
    let path = folder.path().join("histogram.json");
    let name = path.to_str().unwrap();
    let workload = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; done";
    let output =
        idlewise(&["record", "--histogram", "--json", "-o", name, "--", "sh", "-c", workload]);
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) && text.contains("cannot count in the kernel") {
        eprintln!("SKIPPED: counts_what_happens_or_says_why_not: {}", text.trim());
        assert!(!path.exists());
        return;
    }
    assert!(output.status.success(), "{text}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    schemas::assert_valid("record-histogram", &summary);
    let file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    schemas::assert_valid("histogram", &file);
    let read = IdleHistogram::read(&path).unwrap().unwrap();
    let stay_count: u64 = read.cpus.iter().map(CpuHistogram::stay_count).sum();
    assert_eq!(summary["stay_count"].as_u64(), Some(stay_count));
    // A few kB for each CPU.
    assert!(summary["kernel_byte_count_per_cpu"].as_u64() < Some(20_000));
    let info: Value = serde_json::from_str(&stdout(&["info", name, "--json"])).unwrap();
    schemas::assert_valid("info-histogram", &info);
    // The file is not replaced by accident, and the command's status is passed on.
    assert_refused(
        &["record", "--histogram", "-o", name, "--", "true"],
        &["histogram.json", "--force"],
    );
    let output =
        idlewise(&["record", "--histogram", "--force", "-o", name, "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn info_shows_a_histogram_and_what_it_cannot_tell() {
    let folder = folder();
    let name = saved(folder.path(), &histogram(2));
    let text = stdout(&["info", &name]);
    for part in [
        "an idle histogram of 2 CPUs over 1.0 s",
        "all  C6",
        "####",
        "no order of stays",
        "ended by a timer",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let csv = stdout(&["info", &name, "--csv"]);
    // All, and each of two CPUs; 1000 of 1500 stays were certainly too short for C6.
    assert_eq!(csv.lines().count(), 4, "{csv}");
    assert!(
        csv.contains("0,C6,1500,1500,0.37,0.3333333333333333,20000,700000,700000,0.6666"),
        "{csv}"
    );
    let info: Value = serde_json::from_str(&stdout(&["info", &name, "--json"])).unwrap();
    schemas::assert_valid("info-histogram", &info);
    assert_refused(&["info", &name, "--why-menu"], &["no order of stays", "without --histogram"]);
}

#[test]
fn advise_says_what_a_limit_would_have_meant_and_what_it_cannot_tell() {
    let folder = folder();
    let name = saved(folder.path(), &histogram(1));
    let text = stdout(&["advise", &name]);
    // 1500 exits of 100 us in a second, or of 2 us.
    for part in [
        "15.000 %",
        "C1 at most: CPUs wait in 0.300 %",
        "--set latency=2us",
        "no order of stays",
        "as recorded",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let advice: Value = serde_json::from_str(&stdout(&["advise", &name, "--json"])).unwrap();
    schemas::assert_valid("advise-histogram", &advice);
    assert_refused(
        &["advise", &name, "--slo", "p99=50us"],
        &["no order of stays", "leave out --slo"],
    );
    let mut none = histogram(1);
    none.note.tables.clear();
    let name = saved(folder.path(), &none);
    assert_refused(&["advise", &name], &["no cpuidle driver, so there is nothing to advise"]);
    // Rarely woken, there is nothing to gain.
    let mut quiet = histogram(1);
    quiet.recorded_ns = 1_000_000_000_000;
    let name = saved(folder.path(), &quiet);
    assert!(stdout(&["advise", &name]).contains("Leave it alone"));
}

#[test]
fn a_damaged_histogram_is_refused_by_name() {
    let folder = folder();
    let name = saved(folder.path(), &histogram(1));
    let text = fs::read_to_string(&name).unwrap();
    for (from, to, part) in [
        ("\"schema\":1", "\"schema\":9", "format 9"),
        ("\"beyond_count\":0", "\"beyond_count\":", "expected value"),
        (",500,350000000]", ",500,350]", "the sum does not fit"),
    ] {
        let changed = text.replace(from, to);
        if changed == text {
            continue;
        }
        fs::write(&name, changed).unwrap();
        assert_refused(&["info", &name], &["histogram.json", part]);
    }
    fs::write(&name, &text[..text.len() / 2]).unwrap();
    assert_refused(&["info", &name], &["histogram.json", "EOF"]);
}

#[test]
fn options_for_events_do_not_go_with_counting() {
    for option in ["--causes", "--follow"] {
        let output = idlewise(&["record", "--histogram", option, "-d", "1"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
}
