//! `measure timer`.

use std::fs;

use super::{CPUS, Machine, text};

/// 1000 ns, plus 0 to 9 in turn.
fn timer_samples(count: u64, given_up_count: u64) -> String {
    let head = format!("# given up {given_up_count} (the target was not idle)\ninterrupt_ns\n");
    head + &(0..count).map(|i| format!("{}\n", 1000 + i % 10)).collect::<String>()
}

#[test]
fn timers_measure_the_interrupt_latency_out_of_each_state_asked_for() {
    let machine = Machine::new();
    let file = machine.path("timers.csv");
    let more = ["--target", "2", "--state", "POLL,c6", "--count", "1000", "--gap-us", "300"];
    let more = [&more[..], &["--json", "--samples", file.to_str().unwrap()]].concat();
    let mut running = machine.start_timer(&more);
    let mut forced = Vec::new();
    while let Some([target, count, gap_us]) = running.timer_request() {
        assert_eq!((target, gap_us), (2, 300));
        forced.push(machine.disabled(2));
        running.enter(2, count);
        let given_up_count = 1.min(count - 1);
        running.answer(&timer_samples(count - given_up_count, given_up_count));
    }
    let output = running.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
    forced.dedup();
    assert_eq!(forced, ["011", "110"], "each state alone");
    assert_eq!(machine.disabled(2), "001");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-timer", &document);
    let rows = document["all"].as_array().unwrap();
    for (row, state) in rows.iter().zip(["POLL", "C6"]) {
        assert_eq!((&row["target"], &row["state"]), (&"CPU 2".into(), &state.into()));
        assert_eq!(row["timer_count"], 1000);
        assert_eq!(row["forced_entry_ratio"], 1.0);
        assert_eq!(row["interrupt_latency_p50_ns"], 1004);
        assert_eq!(row["interrupt_latency_p99_ns"], 1009);
    }
    assert_eq!(rows[1]["interrupt_latency_p99_to_exit_latency_ratio"], 1009.0 / 290_000.0);
    assert!(document["doubts"].to_string().contains("more wakes out of C6 were given up"));
    let csv = fs::read_to_string(&file).unwrap();
    assert_eq!(csv.lines().count(), 2001);
    assert_eq!(csv.lines().nth(1), Some("2,POLL,1000"));
}

#[test]
fn timers_need_no_second_cpu_and_tell_what_fails() {
    let machine = Machine::new();
    machine.write(&format!("{CPUS}/online"), "0");
    let mut running = machine.start_timer(&["--state", "C1", "--count", "20"]);
    while let Some([target, count, _]) = running.timer_request() {
        running.enter(target, count);
        running.answer(&timer_samples(count, 0));
    }
    let output = running.end();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.starts_with("20 timers of the CPU's own, set for 200 us"), "{shown}");
    assert!(shown.contains("CPU 0   C1         20    100"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= crate::WIDTH), "{shown}");

    let machine = Machine::new();
    let mut running = machine.start_timer(&["--target", "1", "--state", "C1"]);
    running.timer_request().unwrap();
    running.answer("# given up 0 (the target was not idle)\ninterrupt_ns\n-5\n");
    let output = running.end();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("timer_samples: line 3: '-5' is no number"), "{message}");
    assert_eq!(machine.disabled(1), "001");
}
