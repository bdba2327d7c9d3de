//! Runs the examples as programs of their own, and checks that they do what they say.
#![allow(clippy::print_stdout, reason = "a test that cannot run here says so")]

use std::process::Command;

fn run(example: &str) -> String {
    // Cargo builds examples with the tests, into a neighbouring folder.
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap().join("examples");
    let program = folder.join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    let output = Command::new(&program).output().unwrap_or_else(|error| {
        panic!("{}: {error}; cargo test --examples builds it", program.display())
    });
    assert!(output.status.success(), "{example}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn request_response_answers_all() {
    assert!(run("request_response").starts_with("4000 requests answered"));
}

#[test]
fn thread_pool_does_all_tasks() {
    assert!(run("thread_pool").starts_with("10000 tasks done"));
}

#[test]
fn replace_crossbeam_passes_work() {
    assert_eq!(run("replace_crossbeam"), "woken with the work: 42\n");
}

#[test]
fn executor_runs_all_tasks() {
    assert_eq!(run("executor"), "1001 tasks, sum of squares: 332833500\n");
}

/// Where the kernel lacks io_uring, or a sandbox forbids it, the example says so, and so does this test.
#[test]
fn io_uring_hears_the_bell_and_the_word() {
    let told = run("io_uring");
    if told.starts_with("SKIPPED: ") {
        println!("{}", told.trim_end());
    } else {
        assert_eq!(told, "1000 requests by the word, 1000 rings\n");
    }
}
