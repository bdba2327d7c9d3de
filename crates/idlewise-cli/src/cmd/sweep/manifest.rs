//! The manifest of a sweep: a TOML file. Paths in it are relative to its folder. Logs, the store and the manifest itself
//! may be behind URLs.

use std::fmt;
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use idlewise_lab::target::Conditions;
use idlewise_plugin::GovernorSource;
use idlewise_sim::contest::{Price, Shape};
use idlewise_sim::replay::{DEFAULT_TICK_WORK_NS, TICK_WORK_MAX_NS};
use idlewise_trace::{open_regular, read_small_text_of};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::bundled;
use crate::error::{Failure, Result, did_you_mean};
use crate::governor_arguments::{GovernorArguments, NamedFile};
use crate::input::read_text_at_most;
use crate::screen::{self, say};
use crate::storage::{self, Remote, Storage, url_of};

/// The largest manifest. Parsed it takes up to a hundred times its size, if it has nothing but tiny tables.
const BYTE_COUNT_MAX: u64 = 1 << 20;

/// The keys of the manifest.
const KEYS: [&str; 9] = [
    "logs",
    "machines",
    "governors",
    "hz",
    "lambda",
    "shape",
    "latency_limit_us",
    "tick_work_ns",
    "store",
];
/// The keys of a governor's file.
const FILE_KEYS: [&str; 4] = ["file", "patch", "kernel", "kernel_source"];

const HZ: std::ops::RangeInclusive<u32> = 10..=10_000;
/// In `machines`: all that are bundled and have states.
const ALL: &str = "all";
/// The files of a folder that are logs or recordings. Others may lie beside them.
const LOG_ENDINGS: [&str; 4] = [".parquet", ".dat", ".data", ".perfetto-trace"];
const PACKED_ENDINGS: [&str; 3] = [".xz", ".gz", ".zst"];

/// The file as it is written.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    logs: List<String>,
    machines: List<String>,
    governors: List<WrittenGovernor>,
    hz: List<u32>,
    lambda: Option<List<f64>>,
    shape: Option<List<String>>,
    latency_limit_us: List<u32>,
    tick_work_ns: List<u64>,
    store: Option<String>,
}

/// A list, or its only element.
struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<T> ListVisitor<T> {
    fn of_one<'de, D: Deserializer<'de>>(one: D) -> Result<List<T>, D::Error>
    where
        T: Deserialize<'de>,
    {
        T::deserialize(one).map(|one| List(vec![one]))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(elements)).map(List)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        Self::of_one(MapAccessDeserializer::new(fields))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Self::of_one(text.into_deserializer())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Self::of_one(number.into_deserializer())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Self::of_one(number.into_deserializer())
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenGovernor {
    Name(String),
    File {
        file: String,
        patch: Option<String>,
        kernel: Option<String>,
        kernel_source: Option<String>,
    },
}

/// A file or a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundLog {
    pub path: PathBuf,
    /// A folder or a pattern has it, which may have other files too; no name is its own.
    pub is_searched: bool,
}

/// What to sweep.
pub struct Manifest {
    /// Names, folders and patterns of logs; none: the bundled ones.
    log_names: Vec<String>,
    /// What they are relative to.
    folder: PathBuf,
    /// The manifest's own name, for messages.
    name: String,
    /// Ids or files; none: the usual ones.
    pub machines: Vec<String>,
    pub governors: GovernorArguments,
    pub settings: Vec<Conditions>,
    pub lambdas: Vec<Price>,
    pub shapes: Vec<Shape>,
    pub store: PathBuf,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// Fails with the line of a fault and the nearest valid name.
    pub fn read(path: &Path) -> Result<Self> {
        let text = match url_of(path) {
            Some(url) => remote_text(url)?,
            None => read_text_at_most(path, BYTE_COUNT_MAX)?,
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let name = screen::name(path);
        let parsed = Self::parse(&text, folder).map_err(|(line, fault)| match line {
            Some(line) => Failure::new(format_args!("{name}:{line}: {fault}")),
            None => Failure::new(format_args!("{name}: {fault}")),
        })?;
        Ok(Manifest { name, ..parsed })
    }

    /// Finds the logs, files or URLs, sorted by path; none: the bundled ones.
    ///
    /// # Errors
    /// Fails if a folder or a pattern has no log.
    pub fn logs(&self) -> Result<Vec<FoundLog>> {
        let Manifest { log_names, folder, name, .. } = self;
        logs(log_names, folder).map_err(|fault| Failure::new(format_args!("{name}: {fault}")))
    }

    fn parse(text: &str, folder: &Path) -> Result<Self, (Option<usize>, String)> {
        let at = |error: &toml::de::Error| {
            error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1)
        };
        let syntax = |error: toml::de::Error| (at(&error), error.message().replace('\n', ", "));
        let parsed = DeTable::parse(text).map_err(syntax)?;
        let table = parsed.get_ref();
        check_keys(text, table, &KEYS)?;
        // All keys may be missing, but this is rather a file that was not written.
        if text.trim().is_empty() {
            return Err((
                None,
                "the file is empty; for a sweep with all defaults, write a comment into it"
                    .to_owned(),
            ));
        }
        // A program that found nothing to name does not mean everything.
        let is_empty = |value: &Spanned<DeValue<'_>>| matches!(value.get_ref(), DeValue::Array(elements) if elements.is_empty());
        if let Some((key, _)) = table.iter().find(|(_, value)| is_empty(value)) {
            let key = key.get_ref().as_ref();
            let fault = format!("{key}: an empty list; name at least one, or leave the key out");
            return Err((line_of(text, key), fault));
        }
        let files = match table.get("governors").map(Spanned::get_ref) {
            Some(DeValue::Array(governors)) => governors.iter().map(Spanned::get_ref).collect(),
            Some(one) => vec![one],
            None => Vec::new(),
        };
        for file in files {
            if let DeValue::Table(file) = file {
                check_keys(text, file, &FILE_KEYS)?;
            }
        }
        let written = Written::deserialize(toml::de::Deserializer::from(parsed)).map_err(syntax)?;
        let plain = |fault: String| (None, fault);
        let of_key = |key: &str, fault: String| (line_of(text, key), fault);

        let lambdas: Option<Vec<Price>> = match written.lambda {
            None => Some(Price::STANDARD.to_vec()),
            // Zero has a sign.
            Some(asked) => asked.0.into_iter().map(|times| Price::times(times + 0.0)).collect(),
        };
        let lambdas = lambdas.ok_or_else(|| {
            let fault = "lambda: numbers from 0 to 16, in times the power of polling".to_owned();
            of_key("lambda", fault)
        })?;
        let names =
            written.shape.map_or_else(|| vec![Shape::Default.name().to_owned()], |list| list.0);
        let shape = |name: &String| {
            Shape::parse(name).ok_or_else(|| {
                let hint =
                    did_you_mean(name, Shape::ALL.map(Shape::name), "flat, default or steep");
                of_key("shape", format!("shape: no '{name}'; {hint}"))
            })
        };
        let shapes: Vec<Shape> = names.iter().map(shape).collect::<Result<_, _>>()?;
        if let Some(hz) = written.hz.0.iter().find(|hz| !HZ.contains(hz)) {
            return Err(of_key("hz", format!("hz: {hz} is not from 10 to 10000")));
        }
        if let Some(ns) = written.tick_work_ns.0.iter().find(|&&ns| ns > TICK_WORK_MAX_NS) {
            let fault = format!("tick_work_ns: {ns} is more than {TICK_WORK_MAX_NS}");
            return Err(of_key("tick_work_ns", fault));
        }
        let here = |name: &str| beside(folder, name).to_string_lossy().into_owned();
        let machine = |name: &String| match bundled::is_path(name) {
            true => here(name),
            false => name.clone(),
        };
        let machines = |name: &String| match name == ALL {
            true => bundled::replayable_ids().map(str::to_owned).collect(),
            false => vec![machine(name)],
        };
        let machines: Vec<String> = written.machines.0.iter().flat_map(machines).collect();
        let named = |governor: &WrittenGovernor| match governor {
            WrittenGovernor::Name(name) if GovernorSource::is_path(name) => {
                NamedFile { name: here(name), ..NamedFile::default() }
            }
            WrittenGovernor::Name(name) => NamedFile { name: name.clone(), ..NamedFile::default() },
            WrittenGovernor::File { file, patch, kernel, kernel_source } => NamedFile {
                // Without a slash it is in the kernel's source.
                name: match kernel_source {
                    Some(_) if !file.contains('/') => file.clone(),
                    _ => here(file),
                },
                patch: patch.as_deref().map(here),
                kernel: kernel.clone(),
                kernel_source: kernel_source.as_deref().map(here),
            },
        };
        let governors: Vec<NamedFile> = written.governors.0.iter().map(named).collect();
        let of_governor =
            |it: &'_ NamedFile| [Some(it.name.clone()), it.patch.clone(), it.kernel_source.clone()];
        let files = governors.iter().flat_map(of_governor).flatten();
        if let Some(url) = machines.iter().cloned().chain(files).find(|name| is_url(name)) {
            let fault =
                "machines and governors are files of this machine; name them by absolute paths";
            return Err(plain(format!("{url}: {fault}")));
        }
        if written.store.as_deref() == Some("") {
            return Err(of_key("store", "store: an empty name".to_owned()));
        }
        Ok(Manifest {
            log_names: written.logs.0,
            folder: folder.to_owned(),
            name: String::new(),
            machines: distinct(machines),
            governors: GovernorArguments::of_files(distinct(governors)),
            settings: settings(
                &distinct(written.hz.0),
                &distinct(written.latency_limit_us.0),
                &distinct(written.tick_work_ns.0),
            ),
            lambdas: distinct(lambdas),
            shapes: distinct(shapes),
            store: beside(folder, written.store.as_deref().unwrap_or("cells")),
        })
    }
}

/// The elements, each once: a result that is there twice would count twice.
fn distinct<T: PartialEq>(elements: Vec<T>) -> Vec<T> {
    let mut found: Vec<T> = Vec::new();
    for element in elements {
        if !found.contains(&element) {
            found.push(element);
        }
    }
    found
}

/// Every combination of the settings. What is not named has its default.
fn settings(hz: &[u32], limits_us: &[u32], works_ns: &[u64]) -> Vec<Conditions> {
    fn or_none<T: Copy>(values: &[T]) -> Vec<Option<T>> {
        match values {
            [] => vec![None],
            values => values.iter().copied().map(Some).collect(),
        }
    }
    let mut settings = Vec::new();
    for hz in or_none(hz) {
        for latency_limit_us in or_none(limits_us) {
            for work_ns in or_none(works_ns) {
                let tick_work_ns = work_ns.unwrap_or(DEFAULT_TICK_WORK_NS);
                settings.push(Conditions { hz, latency_limit_us, tick_work_ns });
            }
        }
    }
    settings
}

fn check_keys(
    text: &str,
    table: &DeTable<'_>,
    known: &[&str],
) -> Result<(), (Option<usize>, String)> {
    for key in table.keys().map(|key| key.get_ref().as_ref()) {
        if !known.contains(&key) {
            let otherwise = format!("there are {}", known.join(", "));
            let hint = did_you_mean(key, known.iter().copied(), &otherwise);
            return Err((line_of(text, key), format!("unknown key '{key}'; {hint}")));
        }
    }
    Ok(())
}

/// The line where a key is first set.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let sets = |line: &str| {
        line.match_indices(key).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let is_begin = before.is_none_or(|c| " {,\t\"'".contains(c));
            let rest = line[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
            is_begin && rest.starts_with('=')
        })
    };
    text.lines().position(sets).map(|index| index + 1)
}

/// A path or a URL, as seen from a folder, which may be behind a URL too.
fn beside(folder: &Path, name: &str) -> PathBuf {
    match is_url(name) {
        true => PathBuf::from(name),
        // A URL takes "./" literally.
        false => {
            let rest = name.strip_prefix("./").filter(|rest| !rest.starts_with('/'));
            folder.join(rest.unwrap_or(name))
        }
    }
}

fn is_url(name: &str) -> bool {
    url_of(Path::new(name)).is_some()
}

/// A manifest behind a URL.
fn remote_text(url: &str) -> Result<String> {
    let (file, _) = storage::fetch(&Remote::open(url)?)?;
    let fail = |error| Failure::new(format_args!("cannot read {url}: {error}"));
    read_small_text_of(file, BYTE_COUNT_MAX).map_err(fail)
}

/// The logs that a URL names: a folder's if it ends with a slash, those that match a pattern, or one.
fn remote_logs(url: &str) -> Result<Vec<FoundLog>, String> {
    let said = |failure: Failure| format!("logs: {}", failure.text());
    // In a URL of a web server, ? begins what is not a part of the name.
    let special: &[char] = if url.starts_with("http") { &['*', '['] } else { &['*', '?', '['] };
    let mut found = Vec::new();
    let searched = |path: String| FoundLog { path: PathBuf::from(path), is_searched: true };
    if let Some(at) = url.find(special) {
        let root = url[..at].rfind('/').map_or("", |slash| &url[..=slash]);
        if root.ends_with("//") {
            return Err(format!("logs: {url}: a bucket's name cannot be a pattern"));
        }
        let pattern = glob::Pattern::new(&url[root.len()..])
            .map_err(|error| format!("logs: {url}: {error}"))?;
        let options =
            glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        let folder = Remote::open(root).map_err(said)?;
        let names = folder.walk().map_err(said)?.into_iter().map(|file| file.name);
        let matching = names.filter(|name| pattern.matches_with(name, options));
        found.extend(matching.map(|name| searched(folder.url_below(&name))));
        if found.is_empty() {
            return Err(format!("logs: {url}: no such objects"));
        }
    } else if url.ends_with('/') {
        let folder = Remote::open(url).map_err(said)?;
        let names = folder.list("").map_err(said)?.into_iter().map(|file| file.name);
        let logs = names.filter(|name| is_log_name(name));
        found.extend(logs.map(|name| searched(folder.url_below(&name))));
        if found.is_empty() {
            return Err(format!("logs: {url}: no logs or recordings in this folder"));
        }
    } else {
        found.push(FoundLog { path: PathBuf::from(url), is_searched: false });
    }
    Ok(found)
}

/// The logs that these paths, folders and patterns name, sorted, each once.
fn logs(names: &[String], folder: &Path) -> Result<Vec<FoundLog>, String> {
    let mut found = Vec::new();
    let searched = |path: PathBuf| FoundLog { path, is_searched: true };
    for name in names {
        if name.is_empty() {
            return Err("logs: an empty name".to_owned());
        }
        let path = beside(folder, name);
        if let Some(url) = url_of(&path) {
            found.extend(remote_logs(url)?);
        } else if path.is_dir() {
            let entries = fs::read_dir(&path).map_err(|error| format!("logs: {name}: {error}"))?;
            let before = found.len();
            let entry = |entry: std::io::Result<DirEntry>| entry.map_err(|it| (path.clone(), it));
            let paths = entries.filter_map(|it| found_or_said(entry(it))).map(|it| it.path());
            found.extend(paths.filter(|path| is_log(path) && is_file(path)).map(searched));
            if found.len() == before {
                return Err(format!("logs: {name}: no logs or recordings in this folder"));
            }
        } else if name.contains(['*', '?', '[']) && !path.exists() {
            // The folder's own name may have characters of patterns.
            let pattern = Path::new(&glob::Pattern::escape(&folder.to_string_lossy())).join(name);
            let paths = glob::glob(&pattern.to_string_lossy())
                .map_err(|error| format!("logs: {name}: {error}"))?;
            let before = found.len();
            let paths = paths.map(|it| it.map_err(|it| (it.path().to_owned(), it.into())));
            let paths = paths.filter_map(found_or_said);
            found.extend(paths.filter(|path| is_file(path)).map(searched));
            if found.len() == before {
                return Err(format!("logs: {name}: no such files"));
            }
        } else if name.ends_with('/') {
            return Err(format!("logs: {name}: no such folder"));
        } else {
            // One that is missing fails alone, like one that is damaged.
            found.push(FoundLog { path, is_searched: false });
        }
    }
    // Of one that is named and searched for, the name counts.
    found.sort();
    found.dedup_by(|later, first| later.path == first.path);
    Ok(found)
}

/// What was found below a folder; says where nobody can look.
fn found_or_said<T>(found: Result<T, (PathBuf, std::io::Error)>) -> Option<T> {
    let said = |(path, error): (PathBuf, std::io::Error)| {
        say(format_args!("idlewise: {} is left out: {error}", screen::name(&path)));
    };
    found.map_err(said).ok()
}

/// Whether it is called like a log or a recording.
fn is_log(path: &Path) -> bool {
    is_log_name(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// Whether it is a file. Says what else is called like a log.
fn is_file(path: &Path) -> bool {
    let found = fs::metadata(path);
    let is_file = found.as_ref().is_ok_and(fs::Metadata::is_file);
    if !is_file && is_log(path) {
        let why = match found.and_then(|_| open_regular(path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                "it is a link to nothing".to_owned()
            }
            Err(error) => error.to_string(),
            // It has become one.
            Ok(_) => return true,
        };
        say(format_args!("idlewise: {} is left out, because {why}", screen::name(path)));
    }
    is_file
}

fn is_log_name(name: &str) -> bool {
    let name = &name.to_ascii_lowercase()[..];
    let plain = PACKED_ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
    // A log packs its columns itself.
    let is_packed_log = plain.is_some_and(|plain| plain.ends_with(LOG_ENDINGS[0]));
    let plain = plain.unwrap_or(name);
    !name.starts_with('.') && !is_packed_log && LOG_ENDINGS.iter().any(|it| plain.ends_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (Option<usize>, String) {
        let parsed = Manifest::parse(text, Path::new("/none"));
        let found = parsed.and_then(|it| logs(&it.log_names, &it.folder).map_err(|it| (None, it)));
        found.expect_err("a fault")
    }

    #[test]
    fn a_typo_gets_its_line_and_the_nearest_name() {
        let (line, message) = fault("logs = []\n\ngovernours = [\"menu\"]\n");
        assert_eq!(line, Some(3));
        assert_eq!(message, "unknown key 'governours'; did you mean 'governors'?");
        let (line, message) = fault("governors = [\n  { file = \"a.c\", pach = \"b\" },\n]\n");
        assert_eq!((line, message.contains("did you mean 'patch'?")), (Some(2), true));
        assert!(fault("shape = [\"step\"]").1.contains("did you mean 'steep'?"));
        assert_eq!(fault("hz = [250]\nlambda = [17]").0, Some(2));
        assert!(fault("hz = [5]").1.contains("10 to 10000"));
        assert_eq!(fault("logs = [\"a\"\nhz = []").0, Some(2));
        assert!(fault("logs = [\"*.parquet\"]").1.contains("no such files"));
        let all = Manifest::parse("machines = [\"all\"]", Path::new("/none")).expect("no fault");
        assert!(idlewise_lab::target::targets(&all.machines, &[]).is_ok());
    }

    #[test]
    fn an_empty_file_is_no_sweep_of_everything() {
        for text in ["", " \n"] {
            assert!(Manifest::parse(text, Path::new("")).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_empty_list_is_no_list_of_everything() {
        for key in KEYS.iter().filter(|key| **key != "store") {
            let (line, message) = fault(&format!("\n{key} = []"));
            assert_eq!((line, message.contains("name at least one")), (Some(2), true), "{message}");
        }
    }

    #[test]
    fn what_is_named_twice_is_there_once() {
        let text = "machines = [\"spr\", \"spr\"]\nhz = [250, 250]\nlambda = [1, 1.0]\nshape = [\"flat\", \"flat\"]\n\
                    governors = [\"dpm\", \"menu\", \"dpm\", { file = \"a.c\" }, { file = \"a.c\" }]";
        let manifest = Manifest::parse(text, Path::new("/m")).unwrap();
        assert_eq!((manifest.machines.len(), manifest.settings.len()), (1, 1));
        assert_eq!((manifest.lambdas.len(), manifest.shapes.len()), (1, 1));
        assert_eq!(manifest.governors.len(), 3);
    }

    #[test]
    fn settings_are_combined_and_have_defaults() {
        let manifest = Manifest::parse("# all defaults", Path::new("")).unwrap();
        assert_eq!(manifest.settings, [Conditions::default()]);
        assert_eq!(manifest.lambdas, Price::STANDARD);
        let text = "hz = [100, 250]\nlatency_limit_us = [5, 50, 500]\nmachines = [\"all\"]";
        let manifest = Manifest::parse(text, Path::new("")).unwrap();
        assert_eq!(manifest.settings.len(), 6);
        assert!(manifest.machines.len() > 100);
        let more =
            Manifest::parse("machines = [\"all\", \"./m.toml\", \"spr\"]", Path::new("")).unwrap();
        assert_eq!(more.machines.len(), manifest.machines.len() + 1);
    }

    #[test]
    fn one_element_needs_no_brackets() {
        let parse = |text: &str| Manifest::parse(text, Path::new("/m")).unwrap();
        let one = parse(
            "logs = \"x.parquet\"\nmachines = \"spr\"\nhz = 250\nlambda = 1\nshape = \"flat\"\nlatency_limit_us = 5\ntick_work_ns = 7",
        );
        assert_eq!((one.log_names.len(), one.machines.as_slice()), (1, &["spr".to_owned()][..]));
        assert_eq!(
            (one.lambdas.as_slice(), one.shapes.as_slice()),
            (&[Price::FULL][..], &[Shape::Flat][..])
        );
        let setting = Conditions { hz: Some(250), latency_limit_us: Some(5), tick_work_ns: 7 };
        assert_eq!(one.settings, [setting]);
        assert_eq!(parse("lambda = 0.5").lambdas, [Price::Times(0.5)]);
        assert_eq!(parse("machines = \"all\"").machines, parse("machines = [\"all\"]").machines);
        let names = |text: &str| {
            let choices = parse(text).governors.choices_or(&[]).unwrap();
            choices.iter().map(crate::governors::Choice::name).collect::<Vec<_>>()
        };
        assert_eq!(names("governors = \"teo\""), ["teo"]);
        // A typo in the table of the only governor.
        assert!(
            fault("governors = { file = \"a.c\", pach = \"b\" }")
                .1
                .contains("did you mean 'patch'?")
        );
        assert_eq!(fault("\nmachines = true").0, Some(2));
        assert_eq!(fault("\nhz = \"x\"").0, Some(2));
        assert_eq!(fault("logs = \"\"").1, "logs: an empty name");
    }

    fn paths(manifest: &Manifest) -> Vec<PathBuf> {
        manifest.logs().unwrap().into_iter().map(|log| log.path).collect()
    }

    #[test]
    fn paths_are_relative_to_the_manifest() {
        let text = "machines = [\"spr\", \"./a.toml\"]\nlogs = [\"x.parquet\", \"/y.parquet\"]";
        let manifest = Manifest::parse(text, Path::new("/m")).unwrap();
        assert_eq!(manifest.machines, ["spr", "/m/a.toml"]);
        assert_eq!(paths(&manifest), [Path::new("/m/x.parquet"), Path::new("/y.parquet")]);
        assert_eq!(manifest.store, Path::new("/m/cells"));
    }

    #[test]
    fn urls_stay_what_they_are_and_can_be_what_paths_are_relative_to() {
        let text = "logs = [\"s3://b/x.parquet\", \"y.parquet\"]\nstore = \"gs://c/cells\"";
        let manifest = Manifest::parse(text, Path::new("/m")).unwrap();
        assert_eq!(paths(&manifest), [Path::new("/m/y.parquet"), Path::new("s3://b/x.parquet")]);
        assert_eq!(manifest.store, Path::new("gs://c/cells"));
        let text = "logs = [\"./x.parquet\", \"/y.parquet\"]";
        let manifest = Manifest::parse(text, Path::new("s3://b/m")).unwrap();
        assert_eq!(paths(&manifest), [Path::new("/y.parquet"), Path::new("s3://b/m/x.parquet")]);
        assert_eq!(manifest.store, Path::new("s3://b/m/cells"));
        let far = Manifest::parse("governors = [\"./a.c\"]", Path::new("s3://b/m")).err().unwrap();
        assert!(far.1.starts_with("s3://b/m/a.c: machines and governors"), "{}", far.1);
        assert!(fault("logs = [\"s3://b*/x\"]").1.contains("a bucket's name cannot be a pattern"));
        let part = match cfg!(feature = "buckets") {
            true => "no such kind of storage",
            false => "built without buckets",
        };
        assert!(fault("logs = [\"s4://b/x/\"]").1.contains(part));
    }
}
