//! The default budget is the process's, so each of these has a process of its own.
#![cfg(not(miri))]

use std::process::Command;
use std::time::Duration;

use idlewise_park::{CPU_BUDGET_VARIABLE, Parker, set_cpu_budget_permille};

const CHILD: &str = "IDLEWISE_PARK_TEST_CHILD";

/// Runs the test of that name again, in a child whose environment says that.
fn in_child(test: &str, budget: &str) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .env(CPU_BUDGET_VARIABLE, budget)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Whether the first wait of a process polls. It knows nothing of its gaps, so it does if it may.
fn does_poll() -> bool {
    let parker = Parker::new();
    // A thread that gets no CPU may find its deadline past already.
    while parker.stats().waits == 0 {
        parker.park_timeout(Duration::from_micros(500));
    }
    parker.stats().entered[0] > 0
}

#[test]
fn the_environment_sets_it() {
    match is_child() {
        true => assert!(!does_poll()),
        false => in_child("the_environment_sets_it", "0"),
    }
}

#[test]
fn without_a_number_it_is_the_default() {
    match is_child() {
        true => assert!(does_poll()),
        false => in_child("without_a_number_it_is_the_default", "much"),
    }
}

#[test]
fn the_program_goes_before_the_environment() {
    if is_child() {
        set_cpu_budget_permille(1000);
        assert!(does_poll());
        set_cpu_budget_permille(0);
        // Of threads that wait for the first time from here on.
        std::thread::spawn(|| assert!(!does_poll())).join().unwrap();
    } else {
        in_child("the_program_goes_before_the_environment", "0");
    }
}
