//! Which program this is: version and commit, and how it was started. Python can be what started it.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from, with `-dirty` if the sources were changed; unknown outside a repository.
pub const COMMIT: Option<&str> = option_env!("IDLEWISE_COMMIT");

/// Returns a version with its commit, if that is known: `0.1.0 (1a2b3c4d5e6f)`.
pub fn described(version: &str, commit: Option<&str>) -> String {
    match commit {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

/// How to start the program once more, and what it was told.
#[derive(Clone, Debug)]
pub struct Started {
    /// What the system runs.
    pub path: PathBuf,
    /// What comes before idlewise's own arguments.
    pub before: Vec<OsString>,
    /// The file that holds this code.
    pub code: PathBuf,
    /// Its arguments, the program's name first.
    pub arguments: Vec<OsString>,
}

static STARTED: OnceLock<Started> = OnceLock::new();

/// Says that another program, Python, runs the command. It counts only before anything else of this module is used.
pub fn set_started(started: Started) {
    // A second call in a process has the same program.
    let _ = STARTED.set(started);
}

/// Returns whether another program runs the command.
pub fn is_embedded() -> bool {
    STARTED.get().is_some()
}

/// Returns the arguments, the program's name first.
pub fn arguments() -> Vec<OsString> {
    STARTED.get().map_or_else(|| env::args_os().collect(), |started| started.arguments.clone())
}

/// Returns the file that holds this code.
///
/// # Errors
/// Fails without /proc.
pub fn code_file() -> io::Result<PathBuf> {
    STARTED.get().map_or_else(env::current_exe, |started| Ok(started.code.clone()))
}

/// Returns the program and what comes before idlewise's own arguments.
///
/// # Errors
/// Fails without /proc.
pub fn itself() -> io::Result<(PathBuf, Vec<OsString>)> {
    match STARTED.get() {
        Some(started) => Ok((started.path.clone(), started.before.clone())),
        None => Ok((env::current_exe()?, Vec::new())),
    }
}

/// Returns a command that runs idlewise.
///
/// # Errors
/// Fails without /proc.
pub fn command() -> io::Result<Command> {
    let (path, before) = itself()?;
    let mut command = Command::new(path);
    command.args(before);
    Ok(command)
}
