//! Runs C programs with the library in `LD_PRELOAD`, and the same programs without it.
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts the library: beside the test.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libidlewise_preload.so")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn condition_variables_and_semaphores_are_what_posix_says() {
    if Command::new("gcc").arg("--version").output().is_err() {
        println!("SKIPPED: gcc is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("stress");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stress.c");
    let flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"];
    run(Command::new("gcc").args(flags).arg("-o").arg(&program).arg(source).arg("-ldl"));
    assert_eq!(run(&mut Command::new(&program)), "ok\n", "the program itself is wrong");
    let library = library();
    assert!(library.exists(), "{}", library.display());
    // The machine's own states, sleeping only, and polling then sleeping.
    for states in [None, Some("futex"), Some("spin,futex")] {
        let mut command = Command::new(&program);
        command.arg("ours").env("LD_PRELOAD", &library);
        if let Some(states) = states {
            command.env("IDLEWISE_PARK_STATES", states);
        }
        assert_eq!(run(&mut command), "ok\n", "{states:?}");
    }
}

/// redis with jemalloc used to hang at start, because a failed search for a function allocated memory.
#[test]
fn an_allocator_may_make_condition_variables() {
    if Command::new("gcc").arg("--version").output().is_err() {
        println!("SKIPPED: gcc is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("allocator");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/allocator.c");
    let flags = ["-std=gnu11", "-O1", "-fno-builtin", "-Wall", "-Wextra", "-Werror", "-pthread"];
    run(Command::new("gcc").args(flags).arg("-o").arg(&program).arg(source));
    assert_eq!(run(&mut Command::new(&program)), "ok\n", "the program itself is wrong");
    assert_eq!(run(Command::new(&program).env("LD_PRELOAD", library())), "ok\n");
}

/// It exports what it replaces and nothing else.
#[test]
fn exports_what_it_replaces() {
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output()
    else {
        println!("SKIPPED: nm is not installed");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut names: Vec<&str> =
        text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    names.sort_unstable();
    let conds = ["broadcast", "clockwait", "destroy", "init", "signal", "timedwait", "wait"];
    let mut expected = vec!["pthread_cancel".to_owned()];
    expected.extend(conds.map(|name| format!("pthread_cond_{name}")));
    expected.extend(["clockwait", "timedwait", "wait"].map(|name| format!("sem_{name}")));
    assert_eq!(names, expected);
}
