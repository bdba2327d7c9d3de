//! Puts the inputs of a command into a bundle, and rewrites the command's words with their places there.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use idlewise_lab::target::{RECORDED, recorded_machine};
use idlewise_plugin::{Compiler, GovernorSource, Kernel};
use idlewise_trace::anonymize::{Field, REMAINS};
use idlewise_trace::causes::WorkloadWriter;
use idlewise_trace::log::LogWriter;
use idlewise_trace::tracepoint::Purpose;
use idlewise_trace::{RecordedMachine, read_small_file, read_small_file_of, read_small_text};

use crate::bundled;
use crate::cells;
use crate::cmd::anonymize::{anonymize, anonymize_workload};
use crate::error::{Failure, Result};
use crate::input::{self, NamedLog, Reading, open_stream, read_text};
use crate::output;
use crate::replay_arguments::{ALL_LOGS, MACHINES_DEFAULT};
use idlewise_lab::unpack::Unpacking;

use super::line::{BundleRole, Line, Word};
use super::manifest::{LogNote, MachineNote};
use super::shelf::Shelf;

/// The largest saved measurement.
const SAVED_BYTE_COUNT_MAX: u64 = 64 << 20;
/// The largest C file, header or patch.
const CODE_BYTE_COUNT_MAX: u64 = 16 << 20;

/// The inputs of a line, in the bundle.
pub struct Inputs<'a> {
    shelf: &'a mut Shelf,
    keep: &'a [Field],
    pub logs: Vec<LogNote>,
    pub machines: Vec<MachineNote>,
    pub has_code: bool,
    has_own_machine: bool,
    /// Whether a log does not say its own machine's idle states.
    lacks_states: bool,
    /// Where files and source trees of the user are in the bundle.
    placed: HashMap<PathBuf, String>,
}

/// A governor's file with the options about it.
#[derive(Clone, Default)]
struct Asked {
    index: usize,
    patch: Option<usize>,
    kernel: Option<usize>,
    kernel_source: Option<usize>,
}

impl<'a> Inputs<'a> {
    pub fn new(shelf: &'a mut Shelf, keep: &'a [Field]) -> Self {
        Inputs {
            shelf,
            keep,
            logs: Vec::new(),
            machines: Vec::new(),
            has_code: false,
            has_own_machine: false,
            lacks_states: false,
            placed: HashMap::new(),
        }
    }

    /// Puts all inputs into the bundle, and changes the line's words accordingly.
    pub fn place(&mut self, line: &mut Line) -> Result<()> {
        let unpacking = Unpacking::at_most(line.max_unpacked);
        self.place_logs(line, unpacking)?;
        self.place_code(&mut line.words)?;
        for word in &mut line.words {
            let Some(value) = &mut word.value else { continue };
            match word.role {
                BundleRole::Machine => *value = self.machine(value)?,
                BundleRole::Workload => *value = self.workload(value, unpacking)?,
                BundleRole::Causes => *value = self.causes(value, unpacking)?,
                BundleRole::Saved => *value = self.saved(value)?,
                _ => {}
            }
        }
        let is_named = line.words.iter().any(|word| word.role == BundleRole::Machine);
        let machines: &[&str] = match line.command.name {
            _ if is_named || !self.lacks_states => &[],
            "replay" | "replay --compare" => &MACHINES_DEFAULT,
            "replay --rank" => &cells::MACHINES_DEFAULT,
            _ => &[],
        };
        for id in machines {
            self.machine(id)?;
        }
        Ok(())
    }

    /// What is in the bundle and could still identify somebody.
    pub fn remains(&self, is_private: bool) -> Vec<String> {
        let mut remains: Vec<String> = Vec::new();
        if is_private {
            remains.push(
                "everything that was in the inputs: nothing was removed (--keep-private)"
                    .to_owned(),
            );
        } else if !self.logs.is_empty() {
            remains.extend(REMAINS.iter().map(|&remains| remains.to_owned()));
        }
        if self.has_code {
            remains.push(
                "patches, C files and headers as they are, with the names and addresses in them"
                    .to_owned(),
            );
        }
        if self.has_own_machine {
            remains.push("your machine files as they are, with titles and sources".to_owned());
        }
        remains.push("the command's options, and the names of logs and other files".to_owned());
        remains
    }

    /// Logs become anonymous. Without any, the command replays the bundled ones, which are then in the bundle
    /// too, so that it does not depend on the version that verifies it.
    fn place_logs(&mut self, line: &mut Line, unpacking: Unpacking) -> Result<()> {
        let is_log = |word: &&mut Word| word.role == BundleRole::Log;
        let words: Vec<&mut Word> = line.words.iter_mut().filter(is_log).collect();
        if words.is_empty() && line.command.name.starts_with("replay") {
            for named in bundled::logs()? {
                let value = Some(self.log(&named)?);
                line.words.push(Word { option: None, value, role: BundleRole::Log });
            }
            return Ok(());
        }
        let paths: Vec<PathBuf> =
            words.iter().filter_map(|word| word.value.as_ref()).map(PathBuf::from).collect();
        let names = input::distinct_names(&paths, &[ALL_LOGS]);
        for ((word, path), name) in words.into_iter().zip(paths).zip(names) {
            word.value = Some(self.log(&NamedLog::open_as(&path, name, unpacking)?)?);
        }
        Ok(())
    }

    fn log(&mut self, named: &NamedLog) -> Result<String> {
        let path = self.shelf.new_path("logs", &named.name, ".parquet")?;
        let writer = LogWriter::create(&self.shelf.at(&path), false)?;
        let anonymized = anonymize(named, writer, self.keep)?;
        self.lacks_states |= recorded_machine(&named.name, &anonymized.metadata).is_err();
        let fields = anonymized.dropped.iter().map(|field| field.name().to_owned());
        self.logs.push(LogNote {
            path: path.to_string(),
            gap_count: named.log.gap_count(),
            step_count: None,
            kernel: anonymized.metadata.kernel.clone(),
            hz: anonymized.metadata.hz,
            dropped: fields.collect(),
        });
        Ok(path.to_string())
    }

    /// Returns how the command names a machine in the bundle. A bundled machine keeps its id, and its table is
    /// there to be read and compared.
    fn machine(&mut self, name: &str) -> Result<String> {
        if name == RECORDED {
            return Ok(name.to_owned());
        }
        if let Some(known) = self.machines.iter().find(|machine| machine.name == name) {
            return Ok(known.name.clone());
        }
        if let Some(path) = self.placed.get(Path::new(name)) {
            return Ok(path.clone());
        }
        let machine = bundled::machine(name)?;
        if !bundled::is_path(name) {
            let text = idlewise_machine::bundled_text(name).unwrap_or_default();
            let path = self.shelf.new_path("machines", &machine.id, ".toml")?;
            self.shelf.put(&path, text)?;
            self.machines.push(MachineNote { name: machine.id.clone(), path: path.to_string() });
            return Ok(machine.id);
        }
        let path = self.text_file(name, "machines")?;
        self.has_own_machine = true;
        self.machines.push(MachineNote { name: path.clone(), path: path.clone() });
        Ok(path)
    }

    fn workload(&mut self, name: &str, unpacking: Unpacking) -> Result<String> {
        let path = Path::new(name);
        if path.extension().is_some_and(|extension| extension == "toml") {
            return self.text_file(name, "workloads");
        }
        if !path.is_file() {
            return Ok(name.to_owned());
        }
        let named = NamedLog::open(path, unpacking)?;
        self.log(&named)
    }

    /// A recording with causes becomes an anonymous workload log.
    fn causes(&mut self, name: &str, unpacking: Unpacking) -> Result<String> {
        let from = Path::new(name);
        let reading = Reading { purpose: Purpose::Causes, unpacking, ..Reading::default() };
        let log = input::workload(from, &reading, &RecordedMachine::default())?;
        let path = self.shelf.new_path("logs", &input::short_name(from), ".parquet")?;
        let output = output::create(&self.shelf.at(&path), false, &[from])?;
        let anonymous = anonymize_workload(&log, WorkloadWriter::new(output)?, self.keep)?;
        self.logs.push(LogNote {
            path: path.to_string(),
            gap_count: 0,
            step_count: Some(log.step_count()),
            kernel: anonymous.metadata.kernel.clone(),
            hz: anonymous.metadata.hz,
            dropped: anonymous.dropped.iter().map(|field| field.name().to_owned()).collect(),
        });
        Ok(path.to_string())
    }

    /// A TOML file of the user.
    fn text_file(&mut self, name: &str, folder: &str) -> Result<String> {
        let from = Path::new(name);
        let text = read_text(from)?;
        let stem = from.file_stem().unwrap_or_default().to_string_lossy();
        let path = self.shelf.new_path(folder, &stem, ".toml")?;
        self.shelf.put(&path, text)?;
        self.placed.insert(from.to_owned(), path.to_string());
        Ok(path.to_string())
    }

    fn saved(&mut self, name: &str) -> Result<String> {
        let from = Path::new(name);
        if let Some(path) = self.placed.get(from) {
            return Ok(path.clone());
        }
        let content = read_small_file_of(open_stream(from)?, SAVED_BYTE_COUNT_MAX)
            .map_err(|error| Failure::new(format_args!("cannot read {name}: {error}")))?;
        let stem = from.file_stem().unwrap_or_default().to_string_lossy();
        let path = self.shelf.new_path("measurements", &stem, ".json")?;
        self.shelf.put(&path, content)?;
        self.placed.insert(from.to_owned(), path.to_string());
        Ok(path.to_string())
    }

    /// Puts C files, their headers, and patches into the bundle.
    fn place_code(&mut self, words: &mut [Word]) -> Result<()> {
        let mut before = Asked::default();
        let mut asked: Vec<Asked> = Vec::new();
        for (index, word) in words.iter().enumerate() {
            let value = word.value.as_deref().unwrap_or_default();
            let is_file = word.role == BundleRole::Governor && GovernorSource::is_path(value);
            if word.role == BundleRole::Governor {
                let common = if is_file { before.clone() } else { Asked::default() };
                asked.push(Asked { index, ..common });
                continue;
            }
            // As `--governor` itself does: an option is about the governor before it, or about all files.
            let to = asked.last_mut().unwrap_or(&mut before);
            match word.role {
                BundleRole::Patch => to.patch = Some(index),
                BundleRole::KernelSource => to.kernel_source = Some(index),
                BundleRole::Plain if word.option.as_deref() == Some("--kernel") => {
                    to.kernel = Some(index)
                }
                _ => {}
            }
        }
        let given: Vec<Option<String>> = words.iter().map(|word| word.value.clone()).collect();
        let value = |index: usize| given[index].as_deref().unwrap_or_default();
        for asked in asked.iter().filter(|asked| GovernorSource::is_path(value(asked.index))) {
            let path = |index: Option<usize>| index.map(|index| PathBuf::from(value(index)));
            let kernel = asked.kernel.map(|index| Kernel::parse(value(index))).transpose()?;
            let source = GovernorSource {
                patch: path(asked.patch),
                kernel,
                kernel_source: path(asked.kernel_source),
                ..GovernorSource::new(value(asked.index))
            };
            words[asked.index].value = Some(self.governor(&source)?);
            self.has_code = true;
        }
        // Each of these may be about several governors, or about none that is a file.
        for (word, given) in words.iter_mut().zip(&given) {
            let given = given.as_deref().unwrap_or_default();
            match word.role {
                BundleRole::Patch => word.value = Some(self.patch(Path::new(given))?),
                BundleRole::KernelSource => {
                    word.value = Some(self.kernel_source(Path::new(given))?)
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn governor(&mut self, source: &GovernorSource) -> Result<String> {
        let shown = source.path.display();
        if source.path.extension().is_some_and(|ending| ending == "so") {
            return Err(Failure::new(format_args!(
                "{shown} cannot be in a bundle: nobody can read what a shared object does; name its C file"
            )));
        }
        if source.path.is_dir() {
            return Err(Failure::new(format_args!(
                "{shown} cannot be in a bundle: it is a folder; a bundle has governors of one C file"
            )));
        }
        let files = Compiler::system().files(source)?;
        let tree = source.kernel_source.as_ref().and_then(|tree| tree.canonicalize().ok());
        let in_bundle = match &source.kernel_source {
            Some(tree) => Some(self.kernel_source(tree)?),
            None => None,
        };
        let mut governor = None;
        for file in files {
            let in_tree = tree.as_ref().and_then(|tree| file.strip_prefix(tree).ok());
            let placed = match (in_tree, &in_bundle) {
                (Some(below), Some(in_bundle)) => {
                    self.code(&file, &format!("{in_bundle}/{}", below.display()))?
                }
                _ => self.beside(&file)?,
            };
            // The first is the governor itself.
            governor.get_or_insert(placed);
        }
        governor.ok_or_else(|| Failure::new(format_args!("cannot read {shown}")))
    }

    /// A file of no kernel tree: with its neighbours, in a folder of their own.
    fn beside(&mut self, file: &Path) -> Result<String> {
        let folder = file.parent().unwrap_or(Path::new("/"));
        let count = self.placed.values().filter(|path| path.starts_with("code-")).count();
        let place = self.placed.entry(folder.to_owned());
        let in_bundle = place.or_insert_with(|| format!("code-{}", count + 1)).clone();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        self.code(file, &format!("{in_bundle}/{name}"))
    }

    fn code(&mut self, file: &Path, to: &str) -> Result<String> {
        let path = self.shelf.path(to)?;
        self.shelf.put(&path, read_code(file)?)?;
        Ok(path.to_string())
    }

    fn patch(&mut self, file: &Path) -> Result<String> {
        if let Some(path) = self.placed.get(file) {
            return Ok(path.clone());
        }
        let content = read_code(file)?;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let path = self.shelf.new_path("patches", &stem, ".patch")?;
        self.shelf.put(&path, content)?;
        self.placed.insert(file.to_owned(), path.to_string());
        Ok(path.to_string())
    }

    /// A kernel's source tree, of which there is only what was read, and which kernel it is.
    fn kernel_source(&mut self, tree: &Path) -> Result<String> {
        let cannot_read =
            |error| Failure::new(format_args!("cannot read {}: {error}", tree.display()));
        let tree = tree.canonicalize().map_err(cannot_read)?;
        if let Some(place) = self.placed.get(&tree) {
            return Ok(place.clone());
        }
        let count = self.placed.values().filter(|path| path.starts_with("kernel-")).count();
        let place = format!("kernel-{}", count + 1);
        let makefile = read_small_text(&tree.join("Makefile"));
        let makefile = makefile.map_err(cannot_read)?;
        let is_version = |line: &&str| {
            let name = line.split_once('=').map_or("", |(name, _)| name.trim());
            ["VERSION", "PATCHLEVEL", "SUBLEVEL"].contains(&name)
        };
        let version: Vec<&str> = makefile.lines().filter(is_version).take(3).collect();
        let path = self.shelf.path(&format!("{place}/Makefile"))?;
        self.shelf.put(&path, format!("{}\n", version.join("\n")))?;
        self.placed.insert(tree, place.clone());
        Ok(place)
    }
}

fn read_code(file: &Path) -> Result<Vec<u8>> {
    read_small_file(file, CODE_BYTE_COUNT_MAX)
        .map_err(|error| Failure::new(format_args!("cannot read {}: {error}", file.display())))
}
