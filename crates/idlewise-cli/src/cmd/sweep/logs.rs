//! The logs of a sweep: found, each hashed once, and opened when it is their turn. `idlewise lab sweep plan` keeps them in a
//! table, so that nobody else has to look for them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_lab::bundle::{Sums, sum_of};
use idlewise_report::logs::{LogAbout, LogRow, of_file, to_file};
use idlewise_report::{counted, shown_in_line, without_secrets};
use idlewise_trace::log::{IdleLog, LogError};
use idlewise_trace::{FileIdentity, open_regular};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use serde_json::json;

use super::SCHEMA;
use super::manifest::{FoundLog, Manifest};
use crate::bundled;
use crate::error::{Failure, Result};
use crate::input::{NamedLog, PARQUET_MAGIC, changed, distinct_names, must_be_unchanged};
use crate::output;
use crate::progress::Progress;
use crate::replay_arguments::ALL_LOGS;
use crate::screen::{self, say};
use crate::storage::{self, Remote, url_of};
use crate::twins::without_twins;
use crate::unpack::{Unpacking, first_bytes};

/// How many objects are read at once to be hashed.
const REQUEST_COUNT: usize = 32;
/// A table of as many logs as anybody has.
const TABLE_BYTE_COUNT_MAX: u64 = 4 << 30;
/// In a table, a path that is not UTF-8 is a URL of this kind.
const FILE_URL: &str = "file://";

/// List the logs once, with their hashes, for all who compute parts
///
/// Each of many parts (--shard) would have to look for the logs and read all of them. With `--logs` and this table, a part
/// reads only its own. A log that has changed since is an error, never a result under another's hash. If the table
/// exists, it is renewed, and of objects whose server says that they are the same nothing is read.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  idlewise lab sweep plan sweep.toml -o logs.parquet
  idlewise lab sweep sweep.toml --logs logs.parquet --shard 3/16

Exit status: 0; 1 if a log could not be read; 2 on bad input.")]
pub struct PlanLogs {
    /// What to sweep (TOML), a file or a URL
    manifest: PathBuf,

    /// The table to write (Parquet), a file or a URL of a bucket
    #[arg(short, long, value_name = "FILE|URL")]
    output: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// A log that has not been opened.
#[derive(Clone)]
pub struct PlannedLog {
    /// Its name in results.
    pub name: String,
    /// A file or a URL; `None`: it is bundled.
    pub path: Option<PathBuf>,
    /// Of its file, or why that could not be read.
    pub sha256: Result<String, String>,
    about: LogAbout,
}

/// A log whose content has the planned hash.
pub struct OpenedLog {
    pub log: NamedLog,
    /// A file of this machine, as it was when it was hashed.
    file: Option<(PathBuf, FileIdentity)>,
}

/// Why a log cannot be opened.
#[derive(Clone)]
pub struct Unreadable {
    pub reason: String,
    /// The content with the planned hash is damaged. Otherwise it could not be had.
    pub is_of_content: bool,
}

impl OpenedLog {
    /// Checks that what was replayed had this content until now. What is behind a URL was replayed from a copy.
    ///
    /// # Errors
    /// Fails if the file was replaced or written to.
    pub fn must_be_unchanged(&self) -> Result<()> {
        match &self.file {
            Some((path, identity)) => must_be_unchanged(path, *identity),
            None => Ok(()),
        }
    }
}

impl PlannedLog {
    /// Opens it, or converts a recording.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if it no longer has this content.
    pub fn open(&self) -> Result<OpenedLog, Unreadable> {
        let unreadable = |is_of_content| {
            move |failure: Failure| Unreadable { reason: failure.text(), is_of_content }
        };
        let Some(path) = &self.path else {
            let bytes = bundled_bytes(&self.name).map_err(unreadable(false))?;
            if self.sha256.as_ref() != Ok(&Sums::of(bytes)) {
                return Err(unreadable(false)(Failure::new(format_args!(
                    "{}: this idlewise has another log of this name built in; make the table again with `idlewise lab sweep plan`",
                    shown_in_line(&self.name)
                ))));
            }
            let log = NamedLog::bundled(&self.name, bytes).map_err(unreadable(true))?;
            return Ok(OpenedLog { log, file: None });
        };
        let content = content(path).map_err(unreadable(false))?;
        if self.sha256.as_ref() != Ok(&content.sha256) {
            let name = screen::name(path);
            return Err(unreadable(false)(Failure::new(format_args!(
                "{name}: it has changed since it was hashed; run this again, with --logs after `idlewise lab sweep plan`"
            ))));
        }
        let file = content.identity.map(|identity| (path.clone(), identity));
        let log = NamedLog::of_file(path, content.file, self.name.clone(), Unpacking::default());
        match log {
            Ok(log) => Ok(OpenedLog { log, file }),
            // It may have changed meanwhile.
            Err(failure) => match &file {
                Some((path, identity)) if must_be_unchanged(path, *identity).is_err() => {
                    Err(unreadable(false)(changed(path)))
                }
                _ => Err(unreadable(true)(failure)),
            },
        }
    }
}

fn bundled_bytes(name: &str) -> Result<&'static [u8]> {
    bundled::log_bytes(name).ok_or_else(|| {
        Failure::new(format_args!("{}: no such log is built in", shown_in_line(name)))
    })
}

fn cannot_read(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let name = screen::name(path);
    move |error| Failure::new(format_args!("cannot read {name}: {error}"))
}

/// What is at a path or behind a URL, hashed and at its beginning.
struct Content {
    sha256: String,
    file: File,
    byte_count: u64,
    /// Of a file.
    identity: Option<FileIdentity>,
    /// Of an object, if its server says it.
    version: Option<String>,
}

fn content(path: &Path) -> Result<Content> {
    let fail = cannot_read(path);
    let (mut file, identity, version) = match url_of(path) {
        Some(url) => {
            let (file, version) = storage::fetch(&Remote::open(url)?)?;
            (file, None, version)
        }
        None => {
            let file = open_regular(path).map_err(&fail)?;
            let identity = FileIdentity::of(&file).map_err(&fail)?;
            (file, Some(identity), None)
        }
    };
    let sha256 = sum_of(&file).map_err(&fail)?;
    let byte_count = file.stream_position().map_err(&fail)?;
    if byte_count == 0 {
        return Err(LogError::Empty { path: path.to_owned() }.into());
    }
    file.rewind().map_err(&fail)?;
    Ok(Content { sha256, file, byte_count, identity, version })
}

/// Hashes what is at a path, or takes the hash that is known of this version.
fn hashed(path: &Path, known: &HashMap<(&Path, &str), &PlannedLog>) -> PlannedLog {
    let planned = |sha256, about| PlannedLog {
        name: String::new(),
        path: Some(path.to_owned()),
        sha256,
        about,
    };
    let fail = |failure: Failure| planned(Err(failure.text()), LogAbout::default());
    if !known.is_empty()
        && let Some(url) = url_of(path)
    {
        match Remote::open(url).and_then(|remote| remote.version()) {
            Ok(Some(version)) => {
                if let Some(known) = known.get(&(path, version.as_str())) {
                    return (*known).clone();
                }
            }
            Ok(None) => {}
            Err(failure) => return fail(failure),
        }
    }
    let Content { sha256, file, byte_count, version, .. } = match content(path) {
        Ok(content) => content,
        Err(failure) => return fail(failure),
    };
    let mut about = LogAbout { byte_count: Some(byte_count), version, ..LogAbout::default() };
    // What is wrong with a log is said when it is replayed.
    if first_bytes(path, &file, PARQUET_MAGIC.len()).is_ok_and(|first| first == PARQUET_MAGIC)
        && let Ok(log) = IdleLog::from_file(path, file)
    {
        about.gap_count = Some(log.gap_count());
        about.cpu_count = Some(log.metadata.cpus.len() as u64);
        about.hz = log.metadata.hz.map(u64::from);
    }
    planned(Ok(sha256), about)
}

/// The paths without those that a search found although they are no logs: the store's cells, and other Parquet files,
/// such as a table of cells. Says which are left out.
fn without_results(found: &[FoundLog], store: &Path) -> Vec<PathBuf> {
    let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let store = place(store);
    let is_log = |log: &&FoundLog| {
        if !log.is_searched {
            return true;
        }
        if place(&log.path).starts_with(&store) {
            return false;
        }
        let is_parquet =
            log.path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet"));
        let is_other = is_parquet
            && url_of(&log.path).is_none()
            && matches!(
                IdleLog::open(&log.path),
                Err(LogError::NotIdleLog { .. } | LogError::Workload { .. })
            );
        if is_other {
            let name = screen::name(&log.path);
            say(format_args!("idlewise: {name} is left out, because it is no idle log"));
        }
        !is_other
    };
    found.iter().filter(is_log).map(|log| log.path.clone()).collect()
}

/// The logs without those whose file has the content of an earlier one, which would count twice. Says which are left out.
fn without_copies(logs: Vec<PlannedLog>) -> Vec<PlannedLog> {
    let mut first: HashMap<String, String> = HashMap::new();
    let mut kept = Vec::with_capacity(logs.len());
    for log in logs {
        if let Ok(sha256) = &log.sha256 {
            let name = log.path.as_deref().map_or_else(|| log.name.clone(), screen::name);
            if let Some(first) = first.get(sha256) {
                say(format_args!(
                    "idlewise: {name} is left out, because {first} has the same content"
                ));
                continue;
            }
            first.insert(sha256.clone(), name);
        }
        kept.push(log);
    }
    kept
}

/// The logs that a manifest names, each once and hashed; all that are bundled if it names none. `known` have been hashed
/// before.
///
/// # Errors
/// Fails if none is left. One that cannot be read says so itself.
pub fn planned(found: &[FoundLog], store: &Path, known: &[PlannedLog]) -> Result<Vec<PlannedLog>> {
    if found.is_empty() {
        let bundled = |name: &str| {
            let bytes = bundled_bytes(name)?;
            let about = LogAbout { byte_count: Some(bytes.len() as u64), ..LogAbout::default() };
            let sha256 = Ok(Sums::of(bytes));
            Ok(PlannedLog { name: name.to_owned(), path: None, sha256, about })
        };
        return bundled::log_names().map(bundled).collect();
    }
    let paths = without_results(found, store);
    if paths.is_empty() {
        return Err(Failure::new(format_args!(
            "logs: only cells and other tables were found; what is below the store, {}, counts as cells",
            screen::name(store)
        )));
    }
    let known = known
        .iter()
        .filter_map(|log| Some(((log.path.as_deref()?, log.about.version.as_deref()?), log)));
    let known: HashMap<(&Path, &str), &PlannedLog> = known.collect();
    let bar = Progress::logs("hashing", paths.len() as u64);
    let hash = |path: &PathBuf| {
        let log = hashed(path, &known);
        bar.add(1);
        log
    };
    let hash_all = || paths.par_iter().map(hash).collect();
    // Requests to a server mostly wait.
    let hashed: Vec<PlannedLog> = match paths.iter().any(|path| url_of(path).is_some()) {
        true => ThreadPoolBuilder::new()
            .num_threads(REQUEST_COUNT)
            .build()
            .map_or_else(|_| hash_all(), |pool| pool.install(hash_all)),
        false => hash_all(),
    };
    bar.finish();
    let mut logs = without_copies(hashed);
    let paths: Vec<PathBuf> = logs.iter().filter_map(|log| log.path.clone()).collect();
    let paths = without_twins(&paths, Unpacking::default());
    let names = distinct_names(&paths, &[ALL_LOGS]);
    let mut names: HashMap<PathBuf, String> = paths.into_iter().zip(names).collect();
    // Those of twins that are left out have no names.
    logs.retain_mut(|log| {
        let name = log.path.as_ref().and_then(|path| names.remove(path));
        log.name = name.unwrap_or_default();
        !log.name.is_empty()
    });
    Ok(logs)
}

/// The logs of a table, each once.
///
/// # Errors
/// Fails as [`read_table`] does.
pub fn of_table(path: &Path) -> Result<Vec<PlannedLog>> {
    let mut logs = read_table(path)?;
    let mut row_counts: HashMap<String, usize> = HashMap::new();
    for sha256 in logs.iter().flat_map(|log| &log.sha256) {
        *row_counts.entry(sha256.clone()).or_default() += 1;
    }
    // Rows with the same hash may be wrong, and would then hide right ones.
    for log in &mut logs {
        if log.sha256.as_ref().is_ok_and(|sha256| row_counts[sha256] > 1)
            && let Err(Unreadable { reason, is_of_content: false }) = log.open()
        {
            log.sha256 = Err(reason);
        }
    }
    Ok(without_copies(logs))
}

/// Reads a table of logs, a file or behind a URL.
///
/// # Errors
/// Fails if it cannot be read or is none.
pub fn read_table(path: &Path) -> Result<Vec<PlannedLog>> {
    let fail = cannot_read(path);
    let file = match url_of(path) {
        Some(url) => storage::fetch(&Remote::open(url)?)?.0,
        None => open_regular(path).map_err(&fail)?,
    };
    let mut bytes = Vec::new();
    file.take(TABLE_BYTE_COUNT_MAX).read_to_end(&mut bytes).map_err(&fail)?;
    let name = screen::name(path);
    let rows = of_file(bytes).map_err(|error| match error.to_string() {
        text if text.contains("Disabled feature") => Failure::new(format_args!(
            "{name}: it is packed in another way than with Zstandard; write it again with compression=\"zstd\""
        )),
        text => Failure::new(format_args!(
            "{name}: not a table of logs, which `idlewise lab sweep plan` makes: {text}"
        )),
    })?;
    let log = |(index, row): (usize, LogRow)| {
        let fault = |what| {
            let name = shown_in_line(&row.name);
            let row = format!("row {} of the table of logs: {what}", index + 1);
            Err(if name.is_empty() { row } else { format!("{name}, {row}") })
        };
        let sha256 = match row.sha256 {
            _ if row.url.as_deref() == Some("") => fault("url is empty"),
            Some(sha256) if !Sums::is_sum(&sha256) => {
                fault("log_sha256 is not a SHA-256, which has 64 digits from 0 to 9 and a to f")
            }
            Some(sha256) => Ok(sha256),
            None => row.failure.map_or_else(|| fault("log_sha256 is missing"), Err),
        };
        let path = row.url.as_deref().map(path_of);
        PlannedLog { sha256, about: row.about, name: row.name, path }
    };
    Ok(rows.into_iter().enumerate().map(log).collect())
}

/// A path as a table has it: itself, or a URL if it is not UTF-8.
fn text_of(path: &Path) -> String {
    if let Some(text) = path.to_str() {
        return text.to_owned();
    }
    let encoded = |&byte: &u8| match byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    FILE_URL.to_owned() + &path.as_os_str().as_bytes().iter().map(encoded).collect::<String>()
}

/// The path or the URL that [`text_of`] made a text of.
fn path_of(text: &str) -> PathBuf {
    let Some(encoded) = text.strip_prefix(FILE_URL) else { return PathBuf::from(text) };
    let mut parts = encoded.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(b'%'));
        bytes.extend(part.bytes().skip(if byte.is_some() { 2 } else { 0 }));
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn row(log: &PlannedLog) -> Result<LogRow> {
    // The table may be read in another folder.
    let absolute = |path: &PathBuf| match url_of(path) {
        Some(url) => Ok(url.to_owned()),
        None => std::path::absolute(path).map(|path| text_of(&path)).map_err(cannot_read(path)),
    };
    Ok(LogRow {
        name: log.name.clone(),
        url: log.path.as_ref().map(absolute).transpose()?,
        sha256: log.sha256.clone().ok(),
        failure: log.sha256.clone().err(),
        about: log.about.clone(),
    })
}

impl PlanLogs {
    /// Finds and hashes the logs, and writes the table.
    pub fn run(self) -> Result<ExitCode> {
        let manifest = Manifest::read(&self.manifest)?;
        let known = match url_of(&self.output) {
            // Nothing says whether it is there, except its reader.
            Some(_) => read_table(&self.output).unwrap_or_default(),
            None if self.output.exists() => read_table(&self.output)?,
            None => Vec::new(),
        };
        let mut logs = planned(&manifest.logs()?, &manifest.store, &known)?;
        logs.sort_by(|a, b| a.name.cmp(&b.name));
        let rows: Vec<LogRow> = logs.iter().map(row).collect::<Result<_>>()?;
        let bytes = to_file(&rows);
        match url_of(&self.output).and_then(|url| url.rsplit_once('/')) {
            Some((folder, name)) => {
                storage::at(Path::new(folder))?.write(vec![(name.to_owned(), bytes)])?;
            }
            None => {
                let inputs: Vec<&Path> =
                    logs.iter().filter_map(|log| log.path.as_deref()).collect();
                output::write_bytes(output::create(&self.output, true, &inputs)?, &bytes)?;
            }
        }
        let has_secret = |url: &String| without_secrets(url) != *url;
        if rows.iter().filter_map(|row| row.url.as_ref()).any(has_secret) {
            let name = screen::name(&self.output);
            say(format_args!(
                "idlewise: {name} has the secrets of URLs, as the manifest has; keep both to yourself"
            ));
        }
        let failed: Vec<&PlannedLog> = logs.iter().filter(|log| log.sha256.is_err()).collect();
        let byte_count: u64 = rows.iter().filter_map(|row| row.about.byte_count).sum();
        let mut out = screen::stdout();
        if self.json {
            let failure =
                |log: &&PlannedLog| json!({ "log": log.name, "reason": log.sha256.as_ref().err() });
            let document = json!({
                "log_count": rows.len(),
                "log_byte_count": byte_count,
                "failures": failed.iter().map(failure).collect::<Vec<_>>(),
            });
            out.json(SCHEMA, &document)?;
        } else {
            let name = screen::name(&self.output);
            writeln!(out, "{name}: {}, {byte_count} bytes", counted(rows.len(), "log"))?;
            for log in &failed {
                let reason = log.sha256.as_ref().err().map_or("", String::as_str);
                writeln!(out, "failed: {}: {}", shown_in_line(&log.name), shown_in_line(reason))?;
            }
        }
        Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
