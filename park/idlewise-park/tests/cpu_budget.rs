//! The default budget is the process's, so each test here has its own process. What a waiter does with a
//! budget is tested on a virtual machine (`src/waiter`).
#![cfg(not(any(miri, loom)))]

use std::process::Command;

use idlewise_park::{
    CPU_BUDGET_DEFAULT_PERMILLE, CPU_BUDGET_QUOTA_PERMILLE, CPU_BUDGET_VARIABLE,
    cpu_budget_permille, set_cpu_budget_permille,
};

const CHILD: &str = "IDLEWISE_PARK_TEST_CHILD";

/// Runs the named test again, in a child process with this budget in its environment.
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

#[test]
fn the_environment_sets_it() {
    match is_child() {
        true => assert_eq!(cpu_budget_permille(), 7),
        false => in_child("the_environment_sets_it", "7"),
    }
}

#[test]
fn without_a_number_it_is_the_default() {
    if is_child() {
        let budget = cpu_budget_permille();
        let is_default = budget == CPU_BUDGET_DEFAULT_PERMILLE;
        // The default is lower where a quota limits the process.
        assert!(is_default || budget <= CPU_BUDGET_QUOTA_PERMILLE, "{budget}");
    } else {
        in_child("without_a_number_it_is_the_default", "much");
    }
}

#[test]
fn the_program_goes_before_the_environment() {
    if is_child() {
        assert_eq!(cpu_budget_permille(), 7);
        set_cpu_budget_permille(1000);
        assert_eq!(cpu_budget_permille(), 1000);
        set_cpu_budget_permille(0);
        assert_eq!(cpu_budget_permille(), 0);
    } else {
        in_child("the_program_goes_before_the_environment", "7");
    }
}
