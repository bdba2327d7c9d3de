//! A standard error that is full or no longer read, as with `2>&1 | head`, must not cost a
//! recording or change the exit status. A full standard output must.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::{folder, root};

/// A full disk, and a pipe whose reader has gone.
fn dead_streams() -> [(&'static str, Stdio); 2] {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (_reader, writer) = std::io::pipe().unwrap();
    [("full", full.into()), ("gone", writer.into())]
}

/// Runs a command with each of them, in a new folder.
fn with_dead_stderr(arguments: &[&str], mut judge: impl FnMut(&str, &Path, Output)) {
    for (name, stderr) in dead_streams() {
        let folder = folder();
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        let output = command.current_dir(folder.path()).args(arguments).stderr(stderr).output();
        judge(&format!("{arguments:?}, {name}"), folder.path(), output.unwrap());
    }
}

#[test]
fn a_recording_is_kept() {
    let test = "a_recording_is_kept";
    if crate::record::is_skipped(test) {
        return;
    }
    for more in [&[][..], &["--follow", "-d", "1.1"], &["--json"]] {
        let command: &[&str] = if more.contains(&"-d") { &[] } else { &["--", "true"] };
        let arguments = [&["record", "-o", "trace.dat"], more, command].concat();
        with_dead_stderr(&arguments, |case, folder, output| {
            assert_eq!(output.status.code(), Some(0), "{case}");
            let trace = fs::read(folder.join("trace.dat")).expect(case);
            assert!(trace.starts_with(b"\x17\x08\x44tracing6\0"), "{case}");
            assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "{case}: nothing but the trace");
        });
    }
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    if crate::record::is_skipped("the_status_of_the_command_is_passed_on") {
        return;
    }
    let arguments = ["record", "-o", "trace.dat", "--", "sh", "-c", "exit 7"];
    with_dead_stderr(&arguments, |case, _, output| {
        assert_eq!(output.status.code(), Some(7), "{case}");
    });
}

#[test]
fn a_failure_has_its_own_status() {
    let commands: [&[&str]; 15] = [
        &["record", "-o", "no-such-folder/trace.dat", "-d", "1"],
        &["log", "import", "no-such-file"],
        &["info", "no-such-file"],
        &["replay", "no-such-file"],
        &["replay", "--governor", "no-such-governor"],
        &["replay", "--compare", "no-such-file"],
        &["log", "export", "no-such-file", "--format", "csv"],
        &["lab", "simulate", "no-such-machine", "wakes"],
        &["lab", "study", "no-such-study"],
        &["log", "validate", "no-such-file"],
        &["log", "anonymize", "no-such-file", "-o", "log"],
        &["measure", "ipi", "--sysroot", "no-such-folder"],
        &["machines", "no-such-machine"],
        &["lab", "verify", "decisions", "no-such-file"],
        &["no-such-command"],
    ];
    for arguments in commands {
        with_dead_stderr(arguments, |case, _, output| {
            assert_eq!(output.status.code(), Some(2), "{case}");
            assert!(output.stdout.is_empty(), "{case}");
        });
    }
}

/// All messages must go through the one writer that tolerates a dead standard error. clippy, which
/// `make test` runs, checks the code; this test checks clippy's rules.
#[test]
fn lints_forbid_every_other_way_to_print() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let workspace: toml::Table = workspace.parse().unwrap();
    let lints = &workspace["workspace"]["lints"]["clippy"];
    assert_eq!((&lints["print_stdout"], &lints["print_stderr"]), (&"deny".into(), &"deny".into()));
    let clippy: toml::Table =
        fs::read_to_string(root().join("clippy.toml")).unwrap().parse().unwrap();
    let methods = clippy["disallowed-methods"].as_array().unwrap();
    for path in ["std::io::stdout", "std::io::stderr"] {
        assert!(methods.iter().any(|method| method["path"].as_str() == Some(path)), "{path}");
    }
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let manifest = fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        assert_eq!(manifest["lints"]["workspace"], true.into(), "{}", manifest["package"]["name"]);
    }
}

/// `idlewise --version > file` on a full disk must not pass for success; `--help | head` must.
#[test]
fn a_help_that_could_not_be_written_is_an_error() {
    for arguments in [&["--version"][..], &["--help"], &["replay", "--help"]] {
        for ((name, stdout), status) in dead_streams().into_iter().zip([2, 0]) {
            let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
            let output = command.args(arguments).stdout(stdout).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(status), "{arguments:?}, {name}: {said}");
            assert_eq!(
                said.contains("No space left"),
                status == 2,
                "{arguments:?}, {name}: {said}"
            );
        }
    }
}
