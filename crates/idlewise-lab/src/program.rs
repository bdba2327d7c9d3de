//! Which program this is: version and commit, and how it was started. Python can be what started it.

use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Today's date in UTC.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let [year, month, day] = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Converts days since 1970-01-01 to year, month and day ("chrono-Compatible Low-Level Date
/// Algorithms", Howard Hinnant: years begin in March, so that the leap day is the last).
fn civil(day: u64) -> [u64; 3] {
    let day = day + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    [year_of_era + era * 400 + u64::from(month <= 2), month, day]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        assert_eq!(civil(0), [1970, 1, 1]);
        assert_eq!(civil(11_016), [2000, 2, 29]);
        assert_eq!(civil(20_454), [2026, 1, 1]);
    }
}
