//! What a user names as input: an idle log, a recording, either of them compressed, or nothing for
//! the bundled logs.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use idlewise_trace::import::perf::{self, PerfData};
use idlewise_trace::import::{self, ImportError};
use idlewise_trace::log::{IdleLog, LogError, LogMetadata, LogWriter};
use idlewise_trace::{ConvertError, RecordedMachine, convert};
use liblzma::read::XzDecoder;
use tempfile::TempDir;

use crate::error::Failure;
use crate::progress::Progress;

/// What every Parquet file begins with.
const PARQUET_MAGIC: &[u8] = b"PAR1";
/// What every xz file begins with.
const XZ_MAGIC: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];

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
        let name = short_name(path);
        if begins_with(path, PARQUET_MAGIC)? {
            return Ok(NamedLog { name, log: IdleLog::open(path)?, _scratch: None });
        }
        let scratch = scratch_folder()?;
        let log_path = scratch.path().join("log.parquet");
        import(path, &log_path, false, None, &RecordedMachine::default())?;
        Ok(NamedLog { name, log: IdleLog::open(&log_path)?, _scratch: Some(scratch) })
    }
}

/// Converts a recording at `path` to a log at `output`. If it lacks event formats, those of the
/// recording at `formats_from` are used.
pub fn import(
    path: &Path,
    output: &Path,
    replace: bool,
    formats_from: Option<&Path>,
    recorded: &RecordedMachine,
) -> Result<LogMetadata, Failure> {
    // Before hours of reading, not after.
    let writer = LogWriter::create(output, replace)?;
    let data = Unpacked::new(path)?;
    let fail = |error| import_failure(path, &error);
    let recording = match formats_from {
        None => import::open(&data.path()).map_err(fail)?,
        Some(other) => {
            let formats = perf::formats(&Unpacked::new(other)?.path())
                .map_err(|error| import_failure(other, &error))?;
            Box::new(PerfData::open_with_formats(&data.path(), formats).map_err(fail)?)
        }
    };
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

/// A recording that can be read: the file itself, or what was in an xz file, unpacked into a folder
/// that goes when the value does.
enum Unpacked<'a> {
    Plain(&'a Path),
    Packed(TempDir),
}

impl<'a> Unpacked<'a> {
    fn new(path: &'a Path) -> Result<Self, Failure> {
        if !begins_with(path, XZ_MAGIC)? {
            return Ok(Unpacked::Plain(path));
        }
        let unpacked = Unpacked::Packed(scratch_folder()?);
        let fail = |error: io::Error| {
            Failure::new(format_args!("{}: cannot unpack: {error}", path.display()))
        };
        let mut packed = XzDecoder::new(File::open(path).map_err(fail)?);
        let mut output = File::create(unpacked.path()).map_err(fail)?;
        io::copy(&mut packed, &mut output).map_err(fail)?;
        Ok(unpacked)
    }

    fn path(&self) -> PathBuf {
        match self {
            Unpacked::Plain(path) => path.to_path_buf(),
            Unpacked::Packed(scratch) => scratch.path().join("recording"),
        }
    }
}

fn scratch_folder() -> Result<TempDir, Failure> {
    tempfile::Builder::new().prefix("idlewise-").tempdir().map_err(|error| {
        Failure::new(format_args!(
            "cannot make a folder for temporary files in {}: {error}; set TMPDIR",
            std::env::temp_dir().display()
        ))
    })
}

fn begins_with(path: &Path, magic: &[u8]) -> Result<bool, Failure> {
    let fail =
        |error: io::Error| Failure::new(format_args!("cannot read {}: {error}", path.display()));
    let mut first = Vec::with_capacity(magic.len());
    let file = File::open(path).map_err(fail)?;
    file.take(magic.len() as u64).read_to_end(&mut first).map_err(fail)?;
    Ok(first == magic)
}

/// The file's name up to its first ending.
pub fn short_name(path: &Path) -> String {
    let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
    match name.split_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem.to_owned(),
        _ => name.into_owned(),
    }
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
