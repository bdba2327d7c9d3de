//! What a user names as input: an idle log, a recording, either of them compressed, or nothing for
//! the bundled logs.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use idlewise_trace::import::perf::{self, PerfData};
use idlewise_trace::import::{self, ImportError};
use idlewise_trace::log::{IdleLog, LogError, LogMetadata, LogWriter};
use idlewise_trace::{ConvertError, RecordedMachine, convert};
use tempfile::TempDir;

use crate::error::Failure;
use crate::progress::Progress;
use crate::unpack::{Unpacked, first_bytes, scratch_folder};

/// What every Parquet file begins with.
const PARQUET_MAGIC: &[u8] = b"PAR1";

/// A log with the name that results carry.
pub struct NamedLog {
    /// The file's name without folder and endings.
    pub name: String,
    /// The log.
    pub log: IdleLog,
    /// Keeps a converted recording until the log is dropped.
    _scratch: Option<TempDir>,
}

impl NamedLog {
    /// A log that is part of the binary.
    pub fn bundled(name: &str, bytes: &'static [u8]) -> Result<Self, Failure> {
        let log = IdleLog::from_bytes(name, bytes)?;
        Ok(NamedLog { name: name.to_owned(), log, _scratch: None })
    }

    /// Opens a log, or converts a recording to one that lasts as long as this value.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        Self::open_as(path, short_name(path))
    }

    /// As [`NamedLog::open`], under a name.
    pub fn open_as(path: &Path, name: String) -> Result<Self, Failure> {
        if first_bytes(path, PARQUET_MAGIC.len() as u64)? == PARQUET_MAGIC {
            return Ok(NamedLog { name, log: IdleLog::open(path)?, _scratch: None });
        }
        let scratch = scratch_folder()?;
        let log_path = scratch.path().join("log.parquet");
        import(path, &log_path, false, &Reading::default(), &RecordedMachine::default())?;
        Ok(NamedLog { name, log: IdleLog::open(&log_path)?, _scratch: Some(scratch) })
    }
}

/// How a recording is to be read, where it does not tell.
#[derive(Default)]
pub struct Reading<'a> {
    /// Its format, if its first bytes are not enough.
    pub format: Option<&'a str>,
    /// A recording that has the event formats which it lacks.
    pub formats_from: Option<&'a Path>,
}

/// Converts a recording at `path` to a log at `output`.
pub fn import(
    path: &Path,
    output: &Path,
    replace: bool,
    reading: &Reading<'_>,
    recorded: &RecordedMachine,
) -> Result<LogMetadata, Failure> {
    // Before hours of reading, not after.
    let writer = LogWriter::create(output, replace)?;
    let data = Unpacked::new(path)?;
    let fail = |error| import_failure(path, &error);
    let opened = match *reading {
        Reading { formats_from: Some(other), .. } => {
            let formats = perf::formats(Unpacked::new(other)?.path())
                .map_err(|error| import_failure(other, &error))?;
            PerfData::open_with_formats(data.path(), formats)
                .map(|data| Box::new(data) as Box<dyn import::Recording>)
        }
        Reading { format: Some(name), .. } => import::open_as(data.path(), name),
        Reading { .. } => import::open(data.path()),
    };
    let recording = opened.map_err(fail)?;
    let bar = Progress::bytes("importing", recording.info().file_byte_count);
    let (writer, metadata) = convert(recording, writer, recorded, &|done| bar.set(done)).map_err(
        |error| match error {
            ConvertError::Import(error) => fail(error),
            ConvertError::Sink(error) => error.into(),
            ConvertError::UnknownState(unknown) => Failure::new(format_args!(
                "{}: CPU {} enters state {} at {} ns, which the recorded machine doesn't have; \
                 name the right one with --recorded-machine",
                path.display(),
                unknown.cpu,
                unknown.state,
                unknown.at_ns
            )),
        },
    )?;
    bar.finish();
    if metadata.cpus.iter().all(|cpu| !cpu.observed) {
        return Err(Failure::new(format_args!(
            "{}: no idle entries in it although power:cpu_idle was recorded; record all CPUs \
             (perf record -a; trace-cmd record without -M) for longer",
            path.display()
        )));
    }
    writer.finish(&metadata)?;
    Ok(metadata)
}

/// The file's name up to its first ending, which begins with a letter: `menu-6.12.dat` is menu-6.12.
pub fn short_name(path: &Path) -> String {
    let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
    let begins_ending = |&(at, _): &(usize, &str)| {
        at > 0 && name[at + 1..].starts_with(|first: char| first.is_ascii_alphabetic())
    };
    match name.match_indices('.').find(begins_ending) {
        Some((at, _)) => name[..at].to_owned(),
        None => name.into_owned(),
    }
}

/// A name for each path that no other has, nor is among `taken`: the short one if it will do, else
/// with the file's ending, else with as many folders as it takes. Paths that are given twice are
/// numbered.
pub fn distinct_names(paths: &[PathBuf], taken: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = paths.iter().map(|path| short_name(path)).collect();
    let depth_max = paths.iter().map(|path| path.components().count()).max().unwrap_or(0);
    for depth in 1..=depth_max {
        let doubles = doubles(&names, taken);
        if doubles.is_empty() {
            return names;
        }
        for index in doubles {
            names[index] = path_end(&paths[index], depth);
        }
    }
    let mut used: HashSet<String> = taken.iter().map(|&name| name.to_owned()).collect();
    for name in &mut names {
        let plain = name.clone();
        for number in 2.. {
            if used.insert(name.clone()) {
                break;
            }
            *name = format!("{plain} ({number})");
        }
    }
    names
}

/// Which names another one equals, or are taken.
fn doubles(names: &[String], taken: &[&str]) -> Vec<usize> {
    let mut counts: HashMap<&str, usize> = taken.iter().map(|&name| (name, 1)).collect();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    (0..names.len()).filter(|&index| counts[names[index].as_str()] > 1).collect()
}

/// The last components of a path.
fn path_end(path: &Path, depth: usize) -> String {
    let components: Vec<_> = path.components().collect();
    let end = &components[components.len().saturating_sub(depth)..];
    end.iter().collect::<PathBuf>().to_string_lossy().into_owned()
}

fn import_failure(path: &Path, error: &ImportError) -> Failure {
    match error {
        ImportError::Open { .. } => Failure::new(error),
        _ => Failure::new(format_args!("{}: {error}", path.display())),
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Failure::new(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: &[&str]) -> Vec<String> {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        distinct_names(&paths, &["all"])
    }

    #[test]
    fn names_tell_logs_apart() {
        assert_eq!(names(&["x/menu-6.12.parquet", "teo.dat"]), ["menu-6.12", "teo"]);
        // One stem, two endings.
        assert_eq!(
            names(&["run.parquet", "run.trace.dat", "b"]),
            ["run.parquet", "run.trace.dat", "b"]
        );
        // One file name, two folders.
        assert_eq!(names(&["x/a/run.dat", "x/b/run.dat"]), ["a/run.dat", "b/run.dat"]);
        assert_eq!(names(&["a/x/run.dat", "b/x/run.dat"]), ["a/x/run.dat", "b/x/run.dat"]);
        assert_eq!(names(&["/r.dat", "r.dat"]), ["/r.dat", "r.dat"]);
        // One file twice.
        assert_eq!(names(&["a/run.dat", "a/run.dat"]), ["a/run.dat", "a/run.dat (2)"]);
        // What all logs together are called.
        assert_eq!(names(&["all.parquet"]), ["all.parquet"]);
        assert_eq!(names(&["d/all", "all"]), ["d/all", "all (2)"]);
        assert!(names(&[]).is_empty());
    }
}
