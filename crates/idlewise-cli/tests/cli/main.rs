//! The binary, end to end: what a user types and sees, exit status included. One module for each
//! subcommand.

mod anonymize;
mod import;
mod info;
mod machines;
mod manifest;
mod replay;
mod validate;
mod verify_decisions;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Text must fit this, however long names and titles are.
const WIDTH: usize = 100;

fn idlewise(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.current_dir(root()).args(arguments).output().expect("it starts")
}

fn stdout(arguments: &[&str]) -> String {
    let output = idlewise(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(arguments)).expect("it is JSON")
}

/// What a failing command says, with its status.
fn failure(arguments: &[&str]) -> (Option<i32>, String) {
    let output = idlewise(arguments);
    assert!(output.stdout.is_empty(), "nothing but the error");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Asserts that a command fails with status 2 and one line that has all of `parts`.
fn assert_refused(arguments: &[&str], parts: &[&str]) {
    let (status, message) = failure(arguments);
    assert_eq!(status, Some(2), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for part in parts {
        assert!(message.contains(part), "{message:?} has no {part:?}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A bundled recording, unpacked.
fn recording(name: &str) -> Vec<u8> {
    let packed = fs::File::open(root().join(format!("traces/{name}.perf.data.xz"))).unwrap();
    let mut bytes = Vec::new();
    std::io::copy(&mut liblzma::read::XzDecoder::new(packed), &mut bytes).unwrap();
    bytes
}

/// A folder that goes when the test ends.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file of the user's, gone when the test ends.
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
