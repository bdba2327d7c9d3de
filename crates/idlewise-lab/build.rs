//! Tells the binary which commit it is built from, for evidence that others repeat with the same one.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What the packager says, where there is no repository.
const NAME: &str = "IDLEWISE_COMMIT";

fn main() {
    println!("cargo:rerun-if-env-changed={NAME}");
    let given = std::env::var(NAME).ok().filter(|commit| !commit.is_empty());
    if let Some(commit) = given.or_else(described).or_else(packed) {
        println!("cargo:rustc-env={NAME}={commit}");
    }
}

/// The checked-out commit, with `-dirty` if a file differs from it.
fn described() -> Option<String> {
    let root = Path::new("../..");
    // A repository around an unpacked source archive is another one.
    if !root.join(".git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // Each commit and each checkout adds a line to it.
    let moves = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={moves}");
    for source in ["crates", "machines", "traces", "Cargo.lock"] {
        // Not the whole folders, which may contain build outputs.
        let files = git(&["ls-files", "--full-name", source])?;
        files.lines().for_each(|file| println!("cargo:rerun-if-changed=../../{file}"));
    }
    git(&["describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"])
}

/// The commit that cargo notes in a package.
fn packed() -> Option<String> {
    let note = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let commit = note.split("\"sha1\": \"").nth(1)?.get(..12)?;
    let suffix = if note.contains("\"dirty\": true") { "-dirty" } else { "" };
    Some(format!("{commit}{suffix}"))
}
