//! `idlewise info`.

use idlewise_trace::log::{FORMAT_VERSION, LogMetadata, LogWriter};
use idlewise_trace::{CpuSummary, GapSink, IdleGap, WakeReason};
use serde_json::Value;

use crate::{OwnFile, WIDTH, assert_refused, folder, json, stdout};

#[test]
fn tells_an_unobserved_cpu_from_an_idle_one() {
    let text = stdout(&["info", "traces/s-softirq500.parquet"]);
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    let cpu1 = text.lines().find(|line| line.trim_start().starts_with("1 ")).unwrap();
    assert!(cpu1.contains("unobserved"), "{text}");
    let document = json(&["info", "traces/s-softirq500.parquet", "--json"]);
    let cpus = document["cpus"].as_array().unwrap();
    assert_eq!(cpus[0]["gap_count"], 10144);
    assert!(cpus[1]["gap_count"].is_null() && cpus[1]["idle_ratio"].is_null());
    assert_eq!(document["metadata"]["hz"], 250);
    // The percentiles that traces/ documents for this recording, within rounding.
    let p50_ns = cpus[0]["gap_p50_ns"].as_u64().unwrap();
    assert!((490_000..505_000).contains(&p50_ns), "{p50_ns}");
}

/// With and without doubts to print.
#[test]
fn one_empty_line_is_enough() {
    for log in ["traces/q-menu-6.12.trace.dat.xz", "traces/s-softirq500.parquet"] {
        for text in [stdout(&["info", log]), stdout(&["info", log, "--doubts"])] {
            assert!(!text.contains("\n\n\n"), "{text}");
        }
    }
}

#[test]
fn reads_a_recording_directly() {
    let log = json(&["info", "traces/a-idle.parquet", "--json"]);
    let recording = json(&["info", "traces/a-idle.perf.data.xz", "--json"]);
    assert_eq!(log["cpus"], recording["cpus"]);
}

#[test]
fn refuses_other_files() {
    let parquet = OwnFile::new("x.parquet", b"PAR1 and nothing more PAR1");
    assert_refused(&["info", parquet.path()], &["x.parquet", "not an idle log"]);
    assert_refused(&["info", "README.md"], &["README.md", "perf.data"]);
}

/// The row of all CPUs, and the document.
fn why_menu(arguments: &[&str]) -> (Value, Value) {
    let document = json(&[&["info"], arguments, &["--why-menu", "--json"]].concat());
    let why_menu = document["why_menu"].clone();
    (why_menu["all"][0].clone(), why_menu)
}

/// An interrupt every 500 us and a timer 10 ms after each, with HZ=250; the last gap lasts until its timer.
fn interrupts(
    unknown: &[&str],
    timer_of: impl Fn(i64) -> Option<u64>,
) -> (tempfile::TempDir, String) {
    let gaps: Vec<IdleGap> = (0..100)
        .map(|index| IdleGap {
            cpu: 3,
            start_ns: index * 510_000,
            gap_ns: if index == 99 { 10_000_000 } else { 500_000 },
            sleep_length_ns: timer_of(index),
            next_tick_ns: Some(4_000_000 - (index * 510_000 % 4_000_000) as u32),
            tick_stopped: false,
            ran_task: index == 0,
            wake_reason: if index == 99 { WakeReason::Timer } else { WakeReason::Irq },
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        })
        .collect();
    let folder = folder();
    let path = folder.path().join("log.parquet");
    let mut writer = LogWriter::create(&path, false).unwrap();
    writer.take(3, &gaps).unwrap();
    let metadata = LogMetadata {
        format_version: FORMAT_VERSION,
        hz: Some(250),
        kernel: Some("6.12.117+deb12-amd64".to_owned()),
        unknown_columns: unknown.iter().map(|&name| name.to_owned()).collect(),
        ..LogMetadata::default()
    };
    // Not all that the log claims to lack has the value that a replay assumes.
    writer.finish_unchecked(&metadata).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

/// The first prediction is the timer itself, so menu stops the tick, which nothing restarts. Once it has seen
/// eight interrupts it predicts 500 us and does not believe it.
#[test]
fn counts_how_often_menu_distrusts_a_short_prediction() {
    let (_folder, log) = interrupts(&[], |_| Some(10_000_000));
    let (all, why) = why_menu(&[&log]);
    assert_eq!((&why["governor"], &why["machine"]), (&"menu-6.12".into(), &"spr".into()));
    assert_eq!(why["is_recorded"], false, "the log has no decisions");
    let of = |column: &str| all[column].as_u64().unwrap_or_else(|| panic!("{column}: {all}"));
    assert_eq!((of("select_count"), of("far_timer_count")), (100, 100));
    // All but the first.
    assert_eq!((of("tick_stopped_count"), of("no_task_count")), (99, 99));
    let line = of("line_count");
    assert!((90..=99).contains(&line), "{all}");
    assert_eq!((of("short_prediction_count"), of("all_count")), (line, line));
    assert_eq!((of("before_timer_count"), of("within_tick_count")), (line - 1, line - 1));
    assert_eq!(of("reached_timer_count"), 1, "the last one");
    // C6 for a timer in 10 ms, C1E for 500 us.
    assert_eq!(of("other_state_count"), line);
    let finding = why["finding"].as_str().unwrap();
    assert!(finding.contains(&format!("in {line} of 100 selects")), "{finding}");
    assert_eq!(why["cpus"][0]["cpu"], "3");
}

#[test]
fn what_the_log_lacks_is_unknown_and_not_false() {
    let timers = |_| Some(10_000_000);
    let (_folder, log) = interrupts(&["ran_task", "tick_stopped"], timers);
    let (all, why) = why_menu(&[&log]);
    for column in
        ["tick_stopped_count", "tick_stopped_ratio", "no_task_count", "line_count", "all_count"]
    {
        assert!(all[column].is_null(), "{column}: {all}");
    }
    assert_eq!(all["far_timer_count"], 100, "timers are known: {all}");
    let doubts = why["doubts"].to_string();
    assert!(doubts.contains("whether the tick was stopped is unknown"), "{doubts}");
    assert!(why["finding"].as_str().unwrap().starts_with("The log cannot tell"), "{why}");

    let (_folder, log) = interrupts(&["sleep_length_ns"], |_| None);
    let (all, why) = why_menu(&[&log]);
    for column in ["far_timer_count", "all_count", "before_timer_count", "other_state_count"] {
        assert!(all[column].is_null(), "{column}: {all}");
    }
    assert!(all["tick_stopped_count"].is_u64(), "{all}");
    assert!(why["doubts"].to_string().contains("next timers are unknown"), "{why}");

    // Some timers are unknown: those selects count neither way.
    let (_folder, log) = interrupts(&[], |index| (index % 4 > 0).then_some(10_000_000));
    let (all, why) = why_menu(&[&log]);
    let of = |column: &str| all[column].as_u64().unwrap();
    assert_eq!(of("far_timer_count"), 75);
    assert_eq!(of("unknown_timer_count") + of("far_timer_count"), of("select_count"));
    assert!(why["doubts"].to_string().contains(" selects the next timer is unknown"), "{why}");
}

/// Where a task runs after each interrupt, the tick is restarted and min() has nothing to change. Where softirqs
/// do the work, it has.
#[test]
fn says_where_a_patch_would_matter() {
    let (pingpong, why) = why_menu(&["traces/h-pingpong.parquet"]);
    assert_eq!(pingpong["other_state_count"], 0, "{why}");
    let (softirq, _) = why_menu(&["traces/s-softirq500.parquet"]);
    assert!(softirq["other_state_count"].as_u64() > Some(1_000), "{softirq}");
    assert!(softirq["before_timer_count"].as_u64() > softirq["reached_timer_count"].as_u64());
    let text = stdout(&["info", "traces/s-softirq500.parquet", "--why-menu", "--doubts"]);
    for part in
        ["ticks and stays as it decides", "menu reaches the line in", "as menu would have left it"]
    {
        assert!(text.replace('\n', " ").contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let csv = stdout(&["info", "traces/s-softirq500.parquet", "--why-menu", "--csv"]);
    assert!(csv.starts_with("cpu,select_count,tick_stopped_count,"), "{csv}");
}

/// A recording of a real kernel under menu: the ticks are the recorded ones.
#[test]
fn follows_the_recorded_kernel() {
    let recording = "traces/q-menu-6.12.trace.dat.xz";
    let (all, why) = why_menu(&[recording]);
    assert_eq!((&why["is_recorded"], &why["governor"]), (&true.into(), &"menu-6.12".into()));
    let csv = stdout(&["log", "export", recording, "--format", "csv", "-o", "-"]);
    let mut lines = csv.lines();
    let place = lines.next().unwrap().split(',').position(|name| name == "tick_stopped").unwrap();
    let stopped = lines.filter(|line| line.split(',').nth(place) == Some("true")).count() as u64;
    let counted = all["tick_stopped_count"].as_u64().unwrap();
    // menu may be asked again within a gap, and then the tick may have been stopped before.
    assert!(counted >= stopped && stopped > 0, "{counted} of {stopped} gaps");
    assert_eq!(why_menu(&["traces/q-menu-6.1.trace.dat.xz"]).1["governor"], "menu-6.1");
    // Another machine's states: menu decides itself.
    let (_, other) = why_menu(&[recording, "--machine", "spr"]);
    assert_eq!((&other["is_recorded"], &other["machine"]), (&false.into(), &"spr".into()));
}

#[test]
fn a_machine_is_only_for_menu() {
    let log = "traces/a-idle.parquet";
    let (status, message) = crate::failure(&["info", log, "--machine", "spr"]);
    assert!(status == Some(2) && message.contains("--why-menu"), "{message}");
    assert_refused(&["info", log, "--why-menu", "--machine", "sprr"], &["sprr", "spr"]);
}

/// A log of a CPU that was busy for ten seconds, but for so many gaps. It entered idle once more than it left it.
fn busy(gap_count: u64) -> (tempfile::TempDir, String) {
    let gaps: Vec<IdleGap> = (0..gap_count)
        .map(|index| IdleGap {
            cpu: 0,
            start_ns: 1_000_000 * index as i64,
            gap_ns: 500_000,
            sleep_length_ns: None,
            next_tick_ns: None,
            tick_stopped: false,
            ran_task: true,
            wake_reason: WakeReason::Irq,
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        })
        .collect();
    let folder = folder();
    let path = folder.path().join("busy.parquet");
    let mut writer = LogWriter::create(&path, false).unwrap();
    writer.take(0, &gaps).unwrap();
    let cpu = CpuSummary {
        cpu: 0,
        observed: true,
        gap_count,
        idle_entry_count: gap_count + 1,
        last_at_ns: 10_000_000_000,
        ..CpuSummary::default()
    };
    let metadata = LogMetadata {
        format_version: FORMAT_VERSION,
        hz: Some(250),
        cpus: vec![cpu],
        ..LogMetadata::default()
    };
    writer.finish_unchecked(&metadata).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

#[test]
fn a_log_without_gaps_has_nothing_to_judge() {
    let (_folder, log) = busy(0);
    for command in [&["info"][..], &["log", "validate"]] {
        let text = stdout(&[command, &[&log]].concat());
        assert!(text.contains("0 gaps of 1 CPU: there is nothing to judge"), "{text}");
        assert!(!text.contains("nothing is wrong"), "{text}");
    }
    let document = json(&["info", &log, "--json"]);
    let cpu = document["cpus"][0].as_object().unwrap();
    for column in
        ["idle_ratio", "gap_p10_ns", "gap_p50_ns", "gap_p90_ns", "gap_p99_ns", "gap_max_ns"]
    {
        assert!(cpu[column].is_null(), "{column}: {cpu:?}");
    }
}

#[test]
fn few_gaps_are_a_doubt() {
    let (_folder, log) = busy(1);
    let machine = ["--machine", "spr"];
    for command in [&["info", &log][..], &["replay", &log, machine[0], machine[1]]] {
        let text = stdout(command);
        assert!(text.contains("only 1 gap in busy"), "{text}");
    }
    let verdict = stdout(&["replay", &log, "--machine", "spr"]);
    assert!(verdict.contains("But 1 gap: too few to judge by."), "{verdict}");
    let compared = stdout(&["replay", "--compare", &log, "--machine", "spr"]);
    assert!(
        compared.contains("take the same course in the only gap. But 1 gap: too few to judge"),
        "{compared}"
    );
    let document = json(&["replay", &log, "--machine", "spr", "--json"]);
    assert!(document["doubts"].to_string().contains("too few to judge governors by"), "{document}");
    let (_folder, log) = busy(100);
    assert!(!stdout(&["info", &log, "--doubts"]).contains("only"), "a hundred are enough");
    assert!(
        !stdout(&["replay", &log, "--machine", "spr"]).contains("too few"),
        "a hundred are enough"
    );
}
