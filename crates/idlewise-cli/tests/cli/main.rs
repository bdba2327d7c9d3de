//! End-to-end tests of the binary: what a user types and sees, including the exit status. There is
//! one module for each subcommand.
#![allow(clippy::print_stderr, reason = "a test that cannot run says so")]

mod advise;
mod alerts;
mod anonymize;
mod arena;
mod boot;
mod bundle;
#[path = "../../../idlewise-host/tests/captured/mod.rs"]
mod captured;
mod check_profile;
mod claims;
mod compare;
#[cfg(target_os = "linux")]
mod confinement;
mod counters;
mod dead_stderr;
mod diff;
mod docs;
#[cfg(target_os = "linux")]
mod doctor;
mod doubts;
mod endings;
mod escapes;
mod examples;
mod export;
mod generate;
mod governors;
mod help;
mod histogram;
mod hybrid;
mod import;
mod info;
mod kernel_governor;
#[cfg(target_os = "linux")]
mod killed;
mod large;
mod limits;
mod machines;
mod mail;
mod manifest;
mod maps;
mod measure;
#[cfg(target_os = "linux")]
mod measure_states;
mod names;
mod outputs;
mod page;
mod perfetto;
#[path = "../../../idlewise-trace/tests/perfetto_writer/mod.rs"]
mod perfetto_writer;
mod plugins;
mod predict;
mod promote;
#[cfg(target_os = "linux")]
mod quiet;
mod record;
mod recorded;
mod recorded_machine;
mod replay;
mod report;
mod schemas;
#[cfg(target_os = "linux")]
mod settings;
mod shared_states;
mod simulate;
mod study;
mod sweep;
mod sweep_logs;
#[cfg(feature = "buckets")]
mod sweep_urls;
mod switch;
mod r#try;
mod validate;
mod verify;
mod versions;
mod wakes;
mod watch;
mod why;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Text must fit this width, however long names and titles are.
const WIDTH: usize = 100;

fn idlewise(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    // The user may have no writable home folder, and a cache must belong to the user.
    let cache = format!("{}/cache-{}", env!("CARGO_TARGET_TMPDIR"), user());
    command.env("XDG_CACHE_HOME", cache);
    command.current_dir(root()).args(arguments).output().expect("it starts")
}

/// The current user.
fn user() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

fn stdout(arguments: &[&str]) -> String {
    let output = idlewise(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let document = serde_json::from_str(&stdout(arguments)).expect("it is JSON");
    schemas::assert_valid(&schemas::name(arguments, &document), &document);
    document
}

/// The exit status and message of a failing command.
fn failure(arguments: &[&str]) -> (Option<i32>, String) {
    let output = idlewise(arguments);
    assert!(output.stdout.is_empty(), "nothing but the error");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Asserts that a command fails with status 2 and one line that contains all of `parts`.
fn assert_refused(arguments: &[&str], parts: &[&str]) {
    let (status, message) = failure(arguments);
    assert_eq!(status, Some(2), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} has no {part:?}");
    }
}

/// Without Landlock no C file is compiled. Then this says which test cannot run.
fn cannot_compile() -> bool {
    // SAFETY: without attributes and with this flag, the call returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) };
    if version <= 0 {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        eprintln!(
            "SKIPPED: {test}: this kernel has no Landlock (5.13 with CONFIG_SECURITY_LANDLOCK)"
        );
    }
    version <= 0
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A bundled perf recording, decompressed.
fn recording(name: &str) -> Vec<u8> {
    unpacked(&format!("{name}.perf.data"))
}

/// The names of every bundled recording with a log, and of that log.
fn manifest_rows() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("traces/MANIFEST.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let rows = manifest["recording"].as_array().unwrap().iter();
    let field = |row: &toml::Value, name: &str| Some(row.get(name)?.as_str()?.to_owned());
    rows.filter_map(|row| Some((field(row, "file")?, field(row, "log")?))).collect()
}

/// A file of traces/, decompressed.
fn unpacked(name: &str) -> Vec<u8> {
    let packed = fs::File::open(root().join(format!("traces/{name}.xz"))).unwrap();
    let mut bytes = Vec::new();
    std::io::copy(&mut liblzma::read::XzDecoder::new(packed), &mut bytes).unwrap();
    bytes
}

/// A folder that is removed when the test ends.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A user's file that is removed when the test ends.
struct OwnFile(PathBuf, #[expect(dead_code, reason = "kept for its drop")] tempfile::TempDir);

impl OwnFile {
    fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let folder = folder();
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        OwnFile(path, folder)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}
