//! Input: an idle log or a recording, compressed or not.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::bundle::{Sums, sum_of};
use idlewise_report::{shown_in_line, time_words, without_secrets};
use idlewise_sim::replay::GroupReader;
use idlewise_trace::causes::{
    CausesError, StepBuilder, WorkloadLog, WorkloadMetadata, WorkloadWriter, convert_causes,
};
use idlewise_trace::import::perf;
use idlewise_trace::import::{self, ImportError, Recording};
use idlewise_trace::log::{GapGroup, IdleLog, LogError, LogMetadata, LogWriter};
use idlewise_trace::tracepoint::Purpose;
use idlewise_trace::{
    ConvertError, CpuFacts, FileIdentity, IdleGap, OutputFile, RecordedMachine,
    TEXT_BYTE_COUNT_MAX, convert, open_regular, read_small_text_of, show_cpu_list,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::error::{Failure, Result};
use crate::progress::{Progress, say};
use crate::unpack::{Unpacking, first_bytes, unnamed_file};

/// The magic number of Parquet files.
pub const PARQUET_MAGIC: &[u8] = b"PAR1";

/// How long a pipe may be silent before we print that we are waiting for it.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A log with its name in results.
pub struct NamedLog {
    /// The file's name without folder and extensions.
    pub name: String,
    /// The log.
    pub log: IdleLog,
    read_from: ReadFrom,
    /// Whether a recording was read, and converted to this log.
    is_converted: bool,
}

/// What the bytes of a log, or of the recording that it was converted from, are known by.
enum ReadFrom {
    Bundled(&'static [u8]),
    /// The file at the log's path, as it was when it was opened.
    File(FileIdentity),
    /// A pipe, or a file without a name.
    Unnamed,
}

impl NamedLog {
    /// Opens a log that is built into the binary.
    pub fn bundled(name: &str, bytes: &'static [u8]) -> Result<Self> {
        let log = IdleLog::from_bytes(name, bytes)?;
        let read_from = ReadFrom::Bundled(bytes);
        Ok(NamedLog { name: name.to_owned(), log, read_from, is_converted: false })
    }

    /// A log without a file that anybody else could open.
    pub fn unnamed(name: String, log: IdleLog) -> Self {
        NamedLog { name, log, read_from: ReadFrom::Unnamed, is_converted: false }
    }

    /// Opens a log, or converts a recording to a log in an unnamed file.
    pub fn open(path: &Path, unpacking: impl Into<Unpacking>) -> Result<Self> {
        Self::open_as(path, short_name(path), unpacking)
    }

    /// Like [`NamedLog::open`], with a given name.
    pub fn open_as(path: &Path, name: String, unpacking: impl Into<Unpacking>) -> Result<Self> {
        let file = open(path)?;
        let read_from = match FileIdentity::of(&file) {
            Ok(identity) if !is_pipe(path) => ReadFrom::File(identity),
            _ => ReadFrom::Unnamed,
        };
        if first_bytes(path, &file, PARQUET_MAGIC.len())? == PARQUET_MAGIC {
            // A thousand logs should not need a thousand descriptors, but a pipe's data stays open.
            let log = match read_from {
                ReadFrom::File(_) => IdleLog::open(path)?,
                _ => IdleLog::from_file(path, file)?,
            };
            return Ok(NamedLog { name, log, read_from, is_converted: false });
        }
        let log = convert_to_log(path, file, unpacking.into())?;
        Ok(NamedLog { name, log, read_from, is_converted: true })
    }

    /// Like [`NamedLog::open_as`], with an open file, which stays open. Messages show `path`.
    pub fn of_file(
        path: &Path,
        file: File,
        name: String,
        unpacking: impl Into<Unpacking>,
    ) -> Result<Self> {
        allow_many_files();
        let is_converted = first_bytes(path, &file, PARQUET_MAGIC.len())? != PARQUET_MAGIC;
        let log = match is_converted {
            false => IdleLog::from_file(path, file)?,
            true => convert_to_log(path, file, unpacking.into())?,
        };
        Ok(NamedLog { name, log, read_from: ReadFrom::Unnamed, is_converted })
    }

    /// Returns the recording that the log was made of here, to read what else it says.
    ///
    /// # Errors
    /// Fails if there is none, or if it can be read only once.
    pub fn recording(&self) -> Result<&Path> {
        let path = self.log.path();
        match (self.is_converted, &self.read_from) {
            (true, ReadFrom::File(_)) => Ok(path),
            (true, _) => Err(Failure::new(format_args!(
                "{}: it cannot be read a second time; save it as a file first",
                path.display()
            ))),
            (false, _) => Err(Failure::new(format_args!(
                "{}: an idle log has gaps only; open the recording that it was made of",
                path.display()
            ))),
        }
    }

    /// Returns the hash of the file that it was read from; `None` if it was a pipe.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if it is not the one that was read.
    pub fn sha256(&self) -> Result<Option<String>> {
        let identity = match self.read_from {
            ReadFrom::Bundled(bytes) => return Ok(Some(Sums::of(bytes))),
            ReadFrom::Unnamed => return Ok(None),
            ReadFrom::File(identity) => identity,
        };
        let path = self.log.path();
        let fail = |error: io::Error| {
            Failure::new(format_args!("cannot read {}: {error}", path.display()))
        };
        let file = open_regular(path).map_err(fail)?;
        if FileIdentity::of(&file).map_err(fail)? != identity {
            return Err(changed(path));
        }
        let sha256 = sum_of(&file).map_err(fail)?;
        self.must_be_unchanged()?;
        Ok(Some(sha256))
    }

    /// Checks that the file that it was read from is still there as it was, so that results are of the content that has
    /// its hash.
    ///
    /// # Errors
    /// Fails if it is not.
    pub fn must_be_unchanged(&self) -> Result<()> {
        match self.read_from {
            ReadFrom::File(identity) => must_be_unchanged(self.log.path(), identity),
            _ => Ok(()),
        }
    }
}

/// Checks that the file at a path is still the one with this identity.
///
/// # Errors
/// Fails if it is not.
pub fn must_be_unchanged(path: &Path, identity: FileIdentity) -> Result<()> {
    match FileIdentity::at(path) {
        Ok(found) if found == identity => Ok(()),
        _ => Err(changed(path)),
    }
}

/// A file that is no longer what it was when it was opened.
pub fn changed(path: &Path) -> Failure {
    Failure::new(format_args!("{}: it changed while it was in use; run this again", path.display()))
}

fn convert_to_log(path: &Path, file: File, unpacking: Unpacking) -> Result<IdleLog> {
    allow_many_files();
    let writer = LogWriter::new(OutputFile::unnamed(path)?)?;
    let reading = Reading { unpacking, ..Reading::default() };
    let recorded = RecordedMachine::default();
    let (writer, metadata) = read(path, file, writer, &reading, &recorded)?;
    Ok(IdleLog::from_file(path, writer.finish_unnamed(&metadata)?)?)
}

/// Takes gaps of a CPU.
pub type GapFn<'a> = &'a mut dyn FnMut(&[IdleGap]) -> Result<()>;
/// Takes what passes on a CPU's gaps.
pub type CpuFn<'a> = &'a mut dyn FnMut(GapFn<'_>) -> Result<()>;

/// Returns the row groups of each CPU.
///
/// # Errors
/// Fails if the log is not sorted by CPU.
pub fn groups_by_cpu(log: &IdleLog) -> Result<Vec<(u16, Vec<GapGroup>)>> {
    log.groups_by_cpu().ok_or_else(|| {
        Failure::new(format_args!(
            "{}: row groups mix CPUs; import the recording again",
            log.path().display()
        ))
    })
}

/// Calls `cpu` once for each CPU of a log, with a function that passes on its gaps.
///
/// # Errors
/// Fails if the log is damaged, or if it is not sorted by CPU.
pub fn each_cpu(named: &NamedLog, mut cpu: impl FnMut(CpuFn<'_>) -> Result<()>) -> Result<()> {
    for (_, groups) in groups_by_cpu(&named.log)? {
        let mut reader = GroupReader::new(&named.log);
        cpu(&mut |take| {
            for &group in &groups {
                take(reader.read(group)?)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Opens a user's file for random access. The data of a pipe is copied to an unnamed file.
pub fn open(path: &Path) -> Result<File> {
    let mut file = open_stream(path)?;
    if !is_pipe(path) {
        return Ok(file);
    }
    let mut kept = unnamed_file()?;
    io::copy(&mut file, &mut kept).map_err(|error| {
        Failure::new(format_args!(
            "{}: cannot keep what the pipe gives in {}: {error}; set TMPDIR to a place with more room",
            path.display(),
            std::env::temp_dir().display()
        ))
    })?;
    Ok(kept)
}

/// Opens a user's file for sequential reading. For a pipe, waits until somebody writes to it, and
/// prints a message if that takes long.
pub fn open_stream(path: &Path) -> Result<File> {
    let fail =
        |error: io::Error| Failure::new(format_args!("cannot read {}: {error}", path.display()));
    if path.is_dir() {
        let path = path.display();
        return Err(Failure::new(format_args!("{path} is a folder; name a file in it")));
    }
    if !is_pipe(path) {
        return File::open(path).map_err(fail);
    }
    // Without this flag, opening a pipe would wait for a writer without a message.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(fail)?;
    if !is_ready(&file, Some(&PATIENCE)).map_err(fail)? {
        let name = shown_in_line(&path.to_string_lossy()).into_owned();
        say(&format!(
            "idlewise: waiting for {name}, a pipe that nobody has written to; ctrl-c ends it"
        ));
        is_ready(&file, None).map_err(fail)?;
    }
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(|error| fail(error.into()))?;
    Ok(file)
}

/// Whether it can be read only once.
pub fn is_pipe(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Raises the limit on open files as far as allowed. A converted recording is an unnamed file,
/// which stays open while it is used.
fn allow_many_files() {
    let mut limits = getrlimit(Resource::Nofile);
    if limits.current < limits.maximum {
        limits.current = limits.maximum;
        let _ = setrlimit(Resource::Nofile, limits);
    }
}

/// Whether a pipe gets data or loses its writer within that time.
fn is_ready(file: &File, at_most: Option<&Timespec>) -> io::Result<bool> {
    loop {
        match poll(&mut [PollFd::new(file, PollFlags::IN)], at_most) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads a user's text file.
pub fn read_text(path: &Path) -> Result<String> {
    read_text_at_most(path, TEXT_BYTE_COUNT_MAX)
}

/// Reads a user's text file of at most so many bytes.
pub fn read_text_at_most(path: &Path, byte_count_max: u64) -> Result<String> {
    read_small_text_of(open_stream(path)?, byte_count_max)
        .map_err(|error| Failure::new(format_args!("cannot read {}: {error}", path.display())))
}

/// How to read a recording, if it does not tell itself.
#[derive(Default)]
pub struct Reading<'a> {
    /// Its format, if its first bytes do not show it.
    pub format: Option<&'a str>,
    /// A recording with the event formats that this one lacks.
    pub formats_from: Option<&'a Path>,
    /// How much it may decompress to.
    pub unpacking: Unpacking,
    /// What its events are for.
    pub purpose: Purpose,
}

/// Converts the recording at `path` to a log. Returns the log's metadata and size.
pub fn import(
    path: &Path,
    output: OutputFile,
    reading: &Reading<'_>,
    recorded: &RecordedMachine,
) -> Result<(LogMetadata, u64)> {
    let writer = LogWriter::new(output)?;
    let (writer, metadata) = read(path, open(path)?, writer, reading, recorded)?;
    let byte_count = writer.finish(&metadata)?;
    Ok((metadata, byte_count))
}

/// Converts the recording at `path` to a workload log. Returns the log's metadata and size.
pub fn import_causes(
    path: &Path,
    output: OutputFile,
    reading: &Reading<'_>,
    recorded: &RecordedMachine,
) -> Result<(WorkloadMetadata, u64)> {
    let writer = WorkloadWriter::new(output)?;
    let (writer, metadata) = read_causes(path, open(path)?, writer, reading, recorded)?;
    let byte_count = writer.finish(&metadata)?;
    Ok((metadata, byte_count))
}

/// Opens a file as a workload log if it is one; `None` if it is an idle log or a recording.
pub fn workload_log(path: &Path) -> Result<Option<WorkloadLog>> {
    if is_pipe(path) {
        return Ok(None);
    }
    let file = open(path)?;
    if first_bytes(path, &file, PARQUET_MAGIC.len())? != PARQUET_MAGIC {
        return Ok(None);
    }
    match WorkloadLog::from_file(path, file) {
        Ok(log) => Ok(Some(log)),
        Err(LogError::NotWorkload { .. } | LogError::NotParquet { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a workload log, or converts a recording to one in an unnamed file.
pub fn workload(
    path: &Path,
    reading: &Reading<'_>,
    recorded: &RecordedMachine,
) -> Result<WorkloadLog> {
    let file = open(path)?;
    if first_bytes(path, &file, PARQUET_MAGIC.len())? == PARQUET_MAGIC {
        return Ok(WorkloadLog::from_file(path, file)?);
    }
    allow_many_files();
    let writer = WorkloadWriter::new(OutputFile::unnamed(path)?)?;
    let (writer, metadata) = read_causes(path, file, writer, reading, recorded)?;
    Ok(WorkloadLog::from_file(path, writer.finish_unnamed(&metadata)?)?)
}

/// What a workload log or a recording says of the recorded machine; nothing for a pipe, which can be read only once.
pub fn said_machine(path: &Path, reading: &Reading<'_>) -> Result<RecordedMachine> {
    if is_pipe(path) {
        return Ok(RecordedMachine::default());
    }
    if let Some(log) = workload_log(path)? {
        return Ok(RecordedMachine {
            machine: log.metadata.machine,
            governor: log.metadata.governor,
        });
    }
    let note = open_recording(path, reading)?.info().machine_note.clone().unwrap_or_default();
    let machine = note.tables.first().map(|table| table.machine.clone());
    Ok(RecordedMachine { machine, governor: note.governor })
}

/// Like [`workload`]; `None` for an idle log, for a recording that does not say what makes tasks run, and for a
/// pipe, which can be read only once.
pub fn workload_if_any(path: &Path, reading: &Reading<'_>) -> Result<Option<WorkloadLog>> {
    if is_pipe(path) {
        return Ok(None);
    }
    let file = open(path)?;
    if first_bytes(path, &file, PARQUET_MAGIC.len())? == PARQUET_MAGIC {
        return workload_log(path);
    }
    let info = recording(path, file, reading)?.info().clone();
    match StepBuilder::new(Vec::new(), info.tracepoints, CpuFacts::default()) {
        Ok(_) => workload(path, reading, &RecordedMachine::default()).map(Some),
        Err(_) => Ok(None),
    }
}

fn read_causes(
    path: &Path,
    file: File,
    writer: WorkloadWriter,
    reading: &Reading<'_>,
    recorded: &RecordedMachine,
) -> Result<(WorkloadWriter, WorkloadMetadata)> {
    let recording = recording(path, file, reading)?;
    let bar = Progress::bytes("importing", recording.info().file_byte_count);
    let converted = convert_causes(recording, writer, recorded, &|done| bar.set(done));
    drop(bar);
    converted.map_err(|error| match error {
        CausesError::Import(error) => import_failure(path, &error),
        CausesError::Sink(error) => error.into(),
        CausesError::Causes(error) => Failure::new(format_args!("{}: {error}", path.display())),
    })
}

/// Opens a user's recording, compressed or not.
pub fn open_recording(path: &Path, reading: &Reading<'_>) -> Result<Box<dyn Recording>> {
    recording(path, open(path)?, reading)
}

fn recording(path: &Path, file: File, reading: &Reading<'_>) -> Result<Box<dyn Recording>> {
    let unpacking = reading.unpacking;
    let data = unpacking.unpack(path, file)?;
    let mut options =
        import::Options { format: reading.format, event_formats: None, purpose: reading.purpose };
    if let Some(other) = reading.formats_from {
        let formats = perf::formats_of_file(unpacking.unpack(other, open(other)?)?)
            .map_err(|error| import_failure(other, &error))?;
        options.event_formats = Some(formats);
    }
    import::open_with(data, options).map_err(|error| import_failure(path, &error))
}

/// Writes the gaps of a recording, and returns its metadata.
fn read(
    path: &Path,
    file: File,
    writer: LogWriter,
    reading: &Reading<'_>,
    recorded: &RecordedMachine,
) -> Result<(LogWriter, LogMetadata)> {
    let recording = recording(path, file, reading)?;
    let fail = |error| import_failure(path, &error);
    let bar = Progress::bytes("importing", recording.info().file_byte_count);
    let is_of_all_cpus = recording.info().machine_note.is_some();
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
    drop(bar);
    if metadata.cpus.iter().all(|cpu| !cpu.observed) {
        let so = match is_of_all_cpus {
            true => ", so there is nothing to judge; record while they have less to do",
            false => {
                ", or their idle tasks were not recorded; record all CPUs for longer (perf record -a; \
                 trace-cmd record without -M)"
            }
        };
        return Err(Failure::new(format_args!(
            "{}: {}{so}",
            path.display(),
            never_idle(&metadata)
        )));
    }
    Ok((writer, metadata))
}

/// Says that the CPUs of a recording were never idle: `CPUs 0-1 were never idle in these 10.0 s`.
fn never_idle(metadata: &LogMetadata) -> String {
    if metadata.cpus.is_empty() {
        return "it has no event of any CPU; record for longer".to_owned();
    }
    let (cpu, were) = if metadata.cpus.len() == 1 { ("CPU", "was") } else { ("CPUs", "were") };
    let (cpus, span_s) = span(metadata);
    format!("{cpu} {cpus} {were} never idle in these {span_s:.1} s")
}

/// Refuses logs that have no gap at all, so that nobody reads a table of dashes.
///
/// # Errors
/// Fails if there are logs and none has a gap.
pub fn must_have_gaps<'a>(logs: impl IntoIterator<Item = &'a NamedLog>) -> Result<()> {
    let mut messages = Vec::new();
    for named in logs {
        if named.log.gap_count() > 0 {
            return Ok(());
        }
        messages.push(no_gaps(&named.name, &named.log.metadata));
    }
    match messages.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(messages.join("; "))),
    }
}

/// Says that a log has no gaps. Its CPUs may have been busy or idle throughout: it doesn't show which.
pub fn no_gaps(name: &str, metadata: &LogMetadata) -> String {
    if metadata.cpus.is_empty() {
        return format!("{name}: no CPU was recorded: nothing to judge");
    }
    let (cpus, span_s) = span(metadata);
    let cpus =
        if metadata.cpus.len() == 1 { format!("CPU {cpus}") } else { format!("CPUs {cpus}") };
    let span = time_words(span_s * 1e9);
    format!("{name}: no idle period of {cpus} began and ended in these {span}: nothing to judge")
}

/// The CPUs of a log, and how many seconds it is about.
fn span(metadata: &LogMetadata) -> (String, f64) {
    let cpus: Vec<u16> = metadata.cpus.iter().map(|cpu| cpu.cpu).collect();
    let first_at_ns = metadata.cpus.iter().map(|cpu| cpu.first_at_ns).min().unwrap_or_default();
    let last_at_ns = metadata.cpus.iter().map(|cpu| cpu.last_at_ns).max().unwrap_or_default();
    let all = if cpus.is_empty() { "none".to_owned() } else { show_cpu_list(&cpus) };
    (all, last_at_ns.saturating_sub(first_at_ns) as f64 / 1e9)
}

/// The file's name up to its first extension with a letter first: `menu-6.12.dat` is menu-6.12.
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

/// Returns a unique name for each path that is not in `taken`: the short name if possible,
/// otherwise with the extension, otherwise with as many folders as necessary. Paths that are given
/// twice are numbered.
pub fn distinct_names(paths: &[PathBuf], taken: &[&str]) -> Vec<String> {
    // Names are in results, which others may read.
    let public = |path: &PathBuf| match without_secrets(&path.to_string_lossy()) {
        Cow::Owned(url) => PathBuf::from(url),
        Cow::Borrowed(_) => path.clone(),
    };
    let paths: Vec<PathBuf> = paths.iter().map(public).collect();
    let short = paths.iter().map(|path| short_name(path)).collect();
    let depth_max = paths.iter().map(|path| path.components().count()).max().unwrap_or(0);
    let mut names =
        told_apart(short, taken, depth_max, |index, depth| path_end(&paths[index], depth));
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

/// Replaces names that are taken or occur more than once by longer ones, for which a number and a depth are given. At the
/// greatest depth, some may be left.
pub fn told_apart(
    mut names: Vec<String>,
    taken: &[&str],
    depth_max: usize,
    longer: impl Fn(usize, usize) -> String,
) -> Vec<String> {
    for depth in 1..=depth_max {
        for index in doubles(&names, taken) {
            names[index] = longer(index, depth);
        }
    }
    names
}

/// The indices of names that are taken or occur more than once.
fn doubles(names: &[String], taken: &[&str]) -> Vec<usize> {
    let mut counts: HashMap<&str, usize> = taken.iter().map(|&name| (name, 1)).collect();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    (0..names.len()).filter(|&index| counts[names[index].as_str()] > 1).collect()
}

/// The last components of a path.
pub fn path_end(path: &Path, depth: usize) -> String {
    let components: Vec<_> = path.components().collect();
    let end = &components[components.len().saturating_sub(depth)..];
    end.iter().collect::<PathBuf>().to_string_lossy().into_owned()
}

/// What is wrong with a recording, and with which.
pub fn import_failure(path: &Path, error: &ImportError) -> Failure {
    match error {
        ImportError::Open { .. } => Failure::new(error),
        _ => Failure::new(format_args!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/a-idle.parquet");
    const RECORDING: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/a-idle.perf.data.xz");

    /// Otherwise `replay --rank --store` keeps a recording's cells under the hash of what has replaced it.
    #[test]
    fn the_hash_is_that_of_what_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for content in [LOG, RECORDING] {
            fs::copy(content, &path).unwrap();
            let named = NamedLog::open(&path, Unpacking::default()).unwrap();
            let sha256 = named.sha256().unwrap().unwrap();
            assert_eq!(sha256, sum_of(File::open(content).unwrap()).unwrap());
            fs::copy(LOG, folder.path().join("other")).unwrap();
            fs::rename(folder.path().join("other"), &path).unwrap();
            let message = named.sha256().unwrap_err().text();
            assert!(
                message.ends_with("it changed while it was in use; run this again"),
                "{message}"
            );
            assert!(named.must_be_unchanged().is_err());
        }
        // Somebody has written the same bytes again, and set the file's time back.
        fs::copy(LOG, &path).unwrap();
        let named = NamedLog::open(&path, Unpacking::default()).unwrap();
        named.must_be_unchanged().unwrap();
        let modified_at = fs::metadata(&path).unwrap().modified().unwrap();
        // Times have the resolution of the kernel's tick.
        while named.must_be_unchanged().is_ok() {
            OpenOptions::new().write(true).open(&path).unwrap().set_modified(modified_at).unwrap();
        }
        assert!(named.sha256().is_err());
    }

    /// A bundled log is known by its name, and a user's file may have the same.
    #[test]
    fn a_file_with_a_bundled_name_is_a_file() {
        let named =
            NamedLog::bundled("a-idle", crate::bundled::log_bytes("a-idle").unwrap()).unwrap();
        let sha256 = named.sha256().unwrap().unwrap();
        assert_eq!(sha256, sum_of(File::open(LOG).unwrap()).unwrap());
        named.must_be_unchanged().unwrap();
    }

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
        assert_eq!(names(&["https://u:p@h", "x/u:p@h"]), ["u:***@h", "u:p@h"]);
        assert_eq!(names(&["s3://t@b/x.dat", "y/x.dat"]), ["***@b/x.dat", "y/x.dat"]);
        // The name of the sum of all logs.
        assert_eq!(names(&["all.parquet"]), ["all.parquet"]);
        assert_eq!(names(&["d/all", "all"]), ["d/all", "all (2)"]);
        assert!(names(&[]).is_empty());
    }
}
