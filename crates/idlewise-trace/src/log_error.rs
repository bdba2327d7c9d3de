//! Versions of logs, and why one cannot be read or written.

use std::fmt;
use std::path::{Path, PathBuf};

/// The version of the idle log's schema and metadata together. A reader rejects a newer one.
pub const FORMAT_VERSION: u32 = 1;
/// The version of the workload log's schema and metadata together. A reader rejects a newer one.
pub const WORKLOAD_VERSION: u32 = 2;

/// Why a log can't be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "every variant carries the file and what is said in its message")]
pub enum LogError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{path}: the file is empty")]
    Empty { path: PathBuf },
    #[error(
        "{path}: not an idle log, or not a whole one (no Parquet footer at the end); copy it again, or make one \
         with `idlewise log import`"
    )]
    NotParquet { path: PathBuf },
    #[error(
        "{path}: a Parquet file, but not an idle log: it has no {missing}; make one with `idlewise log \
         import`"
    )]
    NotIdleLog { path: PathBuf, missing: &'static str },
    #[error(
        "{path}: a workload log, which has no gaps; use `predict` or `advise`, or give an idle log or the recording \
         that this was made of"
    )]
    Workload { path: PathBuf },
    #[error(
        "{path}: not a workload log: it has no {missing}; make one with `idlewise log import --causes`"
    )]
    NotWorkload { path: PathBuf, missing: &'static str },
    #[error(
        "{path}: workload log version {version}, but this idlewise reads up to {}; update idlewise",
        WORKLOAD_VERSION
    )]
    NewerWorkload { path: PathBuf, version: u32 },
    #[error(
        "{path}: idle log version {version}, but this idlewise reads up to {FORMAT_VERSION}; update \
         idlewise"
    )]
    Newer { path: PathBuf, version: u32 },
    #[error("{path}: damaged idle log: {what}; import it again")]
    Damaged { path: PathBuf, what: String },
    #[error("{path}: damaged workload log: {what}; import the recording again")]
    DamagedWorkload { path: PathBuf, what: String },
    #[error(
        "{path}: an idle log's columns, but not as idlewise writes them: {what}; another program \
         wrote the file, and docs/rewritten-logs.md converts it"
    )]
    Rewritten { path: PathBuf, what: String },
    #[error("{path}: row {row} is out of order (rows go by CPU, then by time); import it again")]
    Unsorted { path: PathBuf, row: u64 },
    #[error("{path}: exists; use --force to replace it")]
    Exists { path: PathBuf },
    #[error("{path}: is also read by this command, so it is not replaced; write to another file")]
    IsInput { path: PathBuf },
    #[error("{path}: {what} is there, and only a regular file is replaced; write to another path")]
    NotReplaced { path: PathBuf, what: &'static str },
    #[error("{path}: its folder does not exist; make it, or name another")]
    NoFolder { path: PathBuf },
    #[error(
        "a temporary file in {}: {error}; set TMPDIR to another folder",
        std::env::temp_dir().display()
    )]
    Scratch { error: std::io::Error },
    #[error(
        "{path}: not written, because it would break the rule that {rule}{}; check the input with \
         `idlewise log validate`, or send it to us",
        row.map(|row| format!(" (first in row {row})")).unwrap_or_default()
    )]
    Invalid { path: PathBuf, rule: &'static str, row: Option<u64> },
}

impl LogError {
    pub(crate) fn io(path: &Path, error: std::io::Error) -> Self {
        LogError::Io { path: path.to_owned(), error }
    }

    pub(crate) fn damaged(path: &Path, what: impl fmt::Display) -> Self {
        LogError::Damaged { path: path.to_owned(), what: what.to_string() }
    }

    /// Metadata that cannot be read. serde names our types, which tell a user nothing.
    pub(crate) fn metadata(path: &Path, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let (head, place) = text.split_once(" at line ").unwrap_or((&text, ""));
        let (found, expected) = head.split_once(", expected ").unwrap_or((head, ""));
        let expected = match expected {
            "" => String::new(),
            it if it.starts_with("struct ") => ", expected an object".to_owned(),
            "u8" | "u16" | "u32" | "u64" | "i64" => ", expected a whole number".to_owned(),
            other => format!(", expected {other}"),
        };
        let place = if place.is_empty() { place } else { &format!(" (line {place})") };
        Self::damaged(path, format_args!("metadata: {found}{expected}{place}"))
    }

    /// The same of a workload log.
    pub(crate) fn of_workload(self) -> Self {
        match self {
            LogError::Damaged { path, what } => LogError::DamagedWorkload { path, what },
            LogError::Rewritten { path, what } => {
                let what = format!("its columns are not as idlewise writes them: {what}");
                LogError::DamagedWorkload { path, what }
            }
            error => error,
        }
    }

    pub(crate) fn rewritten(path: &Path, what: impl fmt::Display) -> Self {
        LogError::Rewritten { path: path.to_owned(), what: what.to_string() }
    }

    pub(crate) fn refused(path: &Path, refused: Refused) -> Self {
        match refused {
            Refused::Damaged(what) => LogError::damaged(path, what),
            Refused::Foreign(what) => LogError::rewritten(path, what),
        }
    }
}

/// Why a footer was rejected.
pub(crate) enum Refused {
    /// No program writes this.
    Damaged(&'static str),
    /// Valid Parquet, but in a form that idlewise neither writes nor reads.
    Foreign(&'static str),
}

impl From<&'static str> for Refused {
    fn from(what: &'static str) -> Self {
        Refused::Damaged(what)
    }
}
