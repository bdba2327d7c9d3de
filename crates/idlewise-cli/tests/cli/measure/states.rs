//! `measure states --by ipi`.

use super::{CPUS, Machine, text};
use crate::assert_refused;

/// The module's samples of wakes out of a state at 2 GHz: a path of 3 us, and what the state takes.
fn state_samples(wake_count: u64, state: usize, exit_us: u64) -> String {
    let head = "# tsc_khz 2000000, given up 0 (the target did not go idle)\n\
                wake_cycles,send_cycles,state\n";
    let line = |i: u64| format!("{},200,{state}\n", 2_000 * (3 + exit_us) + i % 10);
    head.to_owned() + &(0..wake_count).map(line).collect::<String>()
}

#[test]
fn states_are_measured_by_the_modules_ipis_where_it_is_loaded() {
    let machine = Machine::new();
    let mut running = machine.start_states(&["--state", "C1,C6", "--count", "100", "--json"]);
    let mut batch_count = 0;
    while let Some([source, target, wake_count, least_us, most_us]) = running.state_request() {
        assert_eq!((source, target), (0, 2));
        let (state, gap_us, exit_us) = match machine.disabled(2).as_str() {
            "011" => (0, [100, 700], 0),
            "101" => (1, [100, 700], 37),
            "110" => (2, [290, 1_080], 211),
            forced => panic!("{forced}"),
        };
        assert_eq!([least_us, most_us], gap_us);
        batch_count += 1;
        // The kernel counts other wakes too.
        running.enter(target, wake_count + 2);
        running.answer(&state_samples(wake_count, state, exit_us));
    }
    let output = running.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(batch_count, 30, "ten rounds");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-states", &document);
    assert_eq!(document["plan"]["by"], "ipi");
    let rows = document["all"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, expected_ns) in rows.iter().zip([37_000.0, 211_000.0]) {
        let found_ns = row["exit_p50_ns"].as_f64().unwrap();
        assert!((found_ns - expected_ns).abs() <= 10.0, "{row}");
        assert_eq!((&row["wake_count"], &row["dropped_count"]), (&100.into(), &0.into()));
    }
    assert_eq!(document["series"][0]["figure"], "wake of a CPU");
    assert_eq!(machine.disabled(2), "001");
}

/// The module says which state the governor had selected, and the kernel's counts what the driver entered.
#[test]
fn wakes_by_ipi_out_of_other_states_do_not_count() {
    let machine = Machine::new();
    let more = ["--state", "C1", "--count", "100", "--by", "ipi", "--json"];
    let mut running = machine.start_states(&more);
    let mut nth = 0;
    while let Some([_, target, wake_count, ..]) = running.state_request() {
        nth += 1;
        let is_baseline = machine.disabled(2) == "011";
        // Every fourth batch was elsewhere by the kernel's counts, and every fifth by the module's.
        if nth % 4 != 0 {
            running.enter(target, wake_count);
        }
        let state = if is_baseline { 0 } else { 1 };
        let selected = if nth % 5 == 0 { 2 } else { state };
        let exit_us = if nth % 4 == 0 || nth % 5 == 0 { 900 } else { 10 * state as u64 };
        running.answer(&state_samples(wake_count, selected, exit_us));
    }
    let output = running.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found_ns = document["all"][0]["exit_p9999_ns"].as_f64();
    assert_eq!(found_ns, None);
    let found_ns =
        document["all"][0]["exit_p99_ns"].as_f64().or(document["all"][0]["exit_p90_ns"].as_f64());
    assert!((found_ns.unwrap() - 10_000.0).abs() <= 10.0, "{found_ns:?}");
    for drops in document["drops"].as_array().unwrap() {
        assert!(drops["other_state_count"].as_u64().unwrap() >= 10, "{drops}");
        assert_eq!(drops["is_given_up"], false);
    }
    assert_eq!(machine.disabled(2), "001");
}

#[test]
fn a_way_to_wake_that_is_impossible_is_refused() {
    let machine = Machine::new();
    let refused = |more: &[&str], parts: &[&str]| {
        let more = [&["--source", "0", "--target", "2", "--by", "ipi"], more].concat();
        assert_refused(&machine.arguments_of("states", &more), parts);
        assert_eq!(machine.disabled(2), "001");
    };
    refused(&[], &["idlewise_bench is not installed", "idlewise-dkms"]);
    for cpu in 0..4 {
        machine.write(&format!("{CPUS}/cpu{cpu}/cpuidle/state0/name"), "C1_ACPI");
    }
    machine.write("sys/kernel/debug/idlewise_bench/run", "");
    refused(&["--dry-run"], &["CPU 2 has no polling state", "--by futex"]);
    let plan = |by: &str| {
        let arguments = ["--source", "0", "--target", "2", "--dry-run", "--by", by];
        crate::stdout(&machine.arguments_of("states", &arguments))
    };
    assert!(plan("auto").contains("by futex, 10000 times"));
    for cpu in 0..4 {
        machine.write(&format!("{CPUS}/cpu{cpu}/cpuidle/state0/name"), "POLL");
    }
    assert!(plan("auto").contains("by IPI, 10000 times"));
    assert!(plan("futex").contains("by futex, 10000 times"));
}
