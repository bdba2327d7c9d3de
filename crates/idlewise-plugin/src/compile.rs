//! Runs the system's C compiler with limits (`confine/compiler.rs`).
//!
//! A library's key in the cache is a hash of all its inputs: the preprocessed text with every header, the
//! flags, and the compiler's version.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use idlewise_trace::TEXT_BYTE_COUNT_MAX;
use rustix::fs::Access;

use crate::INCLUDE;
use crate::cache::{Cache, LIBRARY_BYTE_COUNT_MAX, cache_folder};
use crate::confine::compiler::{self, Place, Ran};
use crate::diagnose::diagnose;
use crate::error::PluginError;
use crate::file::{SourceFile, read_bytes};
use crate::instance::Library;
use crate::program::{find_program, may_access};
use crate::source::{GovernorSource, governors};
use crate::work_folder::{Purpose, WorkFolder};

/// Like the kernel's flags, where they affect the meaning of C. In addition, every name used must be
/// declared.
const FLAGS: [&str; 11] = [
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-delete-null-pointer-checks",
    "-fvisibility=hidden",
    "-w",
    "-Werror=implicit-function-declaration",
    "-fdiagnostics-color=never",
    "-ggdb",
];
/// A kernel governor is linked without a C library, only with our headers. So a name that the headers lack
/// causes an error.
const KERNEL_FLAGS: [&str; 3] = ["-nostdlib", "-fno-stack-protector", "-U_FORTIFY_SOURCE"];
const KERNEL_LIBRARIES: [&str; 1] = ["-lgcc"];

/// What is confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confinement {
    /// The compiler, and the code that it makes.
    #[default]
    All,
    /// The code only. The compiler has all rights of the user.
    Code,
    /// Nothing.
    None,
}

/// A C compiler, its cache folder, and whether the compiler and its output are confined.
#[derive(Clone, Debug)]
pub struct Compiler {
    command: String,
    cache: Option<PathBuf>,
    confinement: Confinement,
}

impl Compiler {
    /// Returns the compiler that `$CC` names, or `cc`, confined.
    pub fn system() -> Self {
        let command = env::var("CC").ok().filter(|command| !command.trim().is_empty());
        Compiler {
            command: command.unwrap_or_else(|| "cc".to_owned()),
            cache: cache_folder(),
            confinement: Confinement::All,
        }
    }

    /// Returns the same compiler with another cache.
    pub fn with_cache(self, cache: impl Into<PathBuf>) -> Self {
        Compiler { cache: Some(cache.into()), ..self }
    }

    /// Returns the same compiler with less confinement, for sources that the user trusts.
    pub fn confined(self, confinement: Confinement) -> Self {
        Compiler { confinement, ..self }
    }

    /// Returns whether the code that it makes is confined.
    pub fn confines_code(&self) -> bool {
        self.confinement != Confinement::None
    }

    /// Returns whether this kernel can keep the compiler from the user's files. If not, a confined one refuses.
    pub fn is_confinable(&self) -> bool {
        compiler::has_landlock()
    }

    /// Returns whether this kernel can confine the code that it makes, as a worker does before it loads any.
    pub fn code_is_confinable(&self) -> bool {
        compiler::has_seccomp(libc::SECCOMP_RET_TRAP)
    }

    /// Returns where the compiler is, without starting it; `None` if it is not installed.
    pub fn place(&self) -> Option<PathBuf> {
        self.command.split_whitespace().next().and_then(find_program)
    }

    /// Returns whether the compiler finds the headers of the C library.
    pub fn has_headers(&self) -> bool {
        let mut command = self.start();
        command.args(["-E", "-include", "limits.h", "-x", "c", "-o", "/dev/null", "/dev/null"]);
        command.output().is_ok_and(|output| output.status.success())
    }

    /// Returns the folder for temporary files, and whether this process may create files in it.
    pub fn temporary_folder(&self) -> (PathBuf, bool) {
        let folder = env::temp_dir();
        let is_usable = folder.is_dir() && may_access(&folder, Access::WRITE_OK | Access::EXEC_OK);
        (folder, is_usable)
    }

    /// Returns the compiler's command.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Returns what is less safe than it could be with this source, as a phrase.
    pub fn doubt(&self, source: &GovernorSource) -> Option<String> {
        let is_compiled = source.file().extension() != Some(OsStr::new("so"));
        match self.confinement {
            Confinement::None => Some("not confined: its code had all your rights".to_owned()),
            Confinement::Code if is_compiled => {
                Some("the compiler was not confined: it could read all your files".to_owned())
            }
            _ => None,
        }
    }

    /// Returns the library for a source: a `.so` unchanged, a `.c` or a folder of them from the cache or
    /// compiled now.
    ///
    /// `extra` is additional C text to compile into it, for benchmarks.
    ///
    /// # Errors
    /// If it can't be compiled.
    pub fn library(
        &self,
        source: &GovernorSource,
        extra: Option<&str>,
    ) -> Result<Library, PluginError> {
        let path = source.file();
        match path.extension().and_then(OsStr::to_str) {
            _ if path.is_dir() => self.compiled(source, extra),
            Some("so") => {
                let bytes = read_bytes(&path, LIBRARY_BYTE_COUNT_MAX)?;
                let key = key_of(blake3::hash(&bytes));
                Ok(Library::new(path, bytes, key))
            }
            Some("c") => self.compiled(source, extra),
            _ => Err(PluginError::NotAGovernor { path }),
        }
    }

    /// Returns the files that compiling a source reads: its own file or files, headers beside it, and headers of the
    /// kernel source, without links. The headers here and the system's are left out.
    ///
    /// # Errors
    /// If it can't be preprocessed.
    pub fn files(&self, source: &GovernorSource) -> Result<Vec<PathBuf>, PluginError> {
        let prepared = self.prepared(source, None)?;
        let listed = prepared.work.path().join("files");
        // The compiler may write a path otherwise than we do.
        let known = |path: &PathBuf| path.canonicalize().ok();
        let readable: Vec<PathBuf> = prepared.readable.iter().filter_map(known).collect();
        let own = prepared.units.iter().map(|unit| &unit.file.path);
        let mut files: Vec<PathBuf> = own.filter_map(known).collect();
        for unit in &prepared.units {
            let mut command = self.start();
            command.args(["-M", "-MF"]).arg(&listed).args(&prepared.arguments);
            command.args(&unit.file.flags).arg(&unit.copy);
            prepared.checked(self.run(&mut command, &prepared)?)?;
            let bytes = read_bytes(&listed, TEXT_BYTE_COUNT_MAX)?;
            let read = prerequisites(&String::from_utf8_lossy(&bytes));
            for file in read.iter().filter_map(known) {
                let is_its = readable.iter().any(|readable| file.starts_with(readable));
                if is_its && !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        Ok(files)
    }

    /// Everything that the compiler needs, in a folder of its own.
    fn prepared(
        &self,
        source: &GovernorSource,
        extra: Option<&str>,
    ) -> Result<Prepared, PluginError> {
        let path = source.file();
        let files = source.files()?;
        let kernel = source.kernel()?;
        let is_native = files.iter().any(|file| file.text.contains("idlewise_governor.h"));
        let flavour = if is_native {
            "a governor of idlewise_governor.h".to_owned()
        } else {
            format!("a governor of Linux {}", kernel.name)
        };
        // A private folder for everything that the compiler writes, and what it reads of ours.
        let folder = WorkFolder::new(Purpose::Compile)
            .map_err(io_error(&env::temp_dir(), "cannot make a folder in"))?;
        let work = folder.path();
        let include = work.join("include");
        INCLUDE.extract(make_folder(&include)?).map_err(io_error(&include, "cannot write"))?;
        let is_folder = path.is_dir();
        // The compiler sees copies under the files' own names, because they may be patched. A folder's are
        // one level further down, where ours may have headers for "../gov.h".
        let mut copies = work.join("source");
        make_folder(&copies)?;
        if is_folder {
            copies.push("folder");
            make_folder(&copies)?;
        }
        let mut units = Vec::new();
        for file in files {
            let copy = copies.join(file.path.file_name().unwrap_or_default());
            fs::write(&copy, &file.text).map_err(io_error(&copy, "cannot write"))?;
            units.push(Unit { file, copy });
        }

        let mut readable = compiler::neighbours(&path);
        if is_folder {
            // Any name in the folder will do.
            readable.extend(compiler::neighbours(&path.join("governor.c")));
        }
        let mut arguments: Vec<String> = FLAGS.map(str::to_owned).to_vec();
        let mut add = |flag: &str, folder: &Path| {
            arguments.extend([flag.to_owned(), folder.display().to_string()]);
        };
        let beside = if is_folder { Some(&*path) } else { path.parent() };
        add("-iquote", beside.filter(|p| *p != Path::new("")).unwrap_or(Path::new(".")));
        if !is_native {
            // Neighbours such as gov.h come from the kernel's source if there is one.
            if let Some(tree) = &source.kernel_source {
                add("-iquote", &governors(tree));
                readable.push(governors(tree));
            }
            if is_folder {
                add("-iquote", make_folder(&include.join("kernel/folder"))?);
            }
            add("-I", &include.join("kernel"));
        }
        add("-I", &include);
        if let Some(tree) = source.kernel_source.as_ref().filter(|_| !is_native) {
            add("-idirafter", &tree.join("include"));
            readable.push(tree.join("include"));
        }
        let mut inputs = Vec::new();
        if !is_native {
            arguments.push(format!("-DIDLEWISE_KERNEL={:#x}", kernel.code));
            arguments.extend(source.fixed_hz.map(|hz| format!("-DIDLEWISE_FIXED_HZ={hz}")));
            arguments.extend(KERNEL_FLAGS.map(str::to_owned));
            inputs.push(include.join("kernel/idlewise/shim.c"));
            inputs.push(include.join("kernel/idlewise/string.c"));
        }
        if let Some(extra) = extra {
            let file = work.join("extra.c");
            fs::write(&file, extra).map_err(io_error(&file, "cannot write"))?;
            inputs.push(file);
        }
        Ok(Prepared { work: folder, path, flavour, units, readable, arguments, inputs, is_native })
    }

    /// Runs the compiler, or part of it.
    fn run(&self, command: &mut Command, prepared: &Prepared) -> Result<Ran, PluginError> {
        let is_confined = self.confinement == Confinement::All;
        if is_confined && !self.is_confinable() {
            return Err(PluginError::NoLandlock { path: prepared.path.clone() });
        }
        let program = self.command.split_whitespace().next().and_then(compiler::folder_of);
        let place = Place {
            work: prepared.work.path(),
            readable: &prepared.readable,
            program: program.as_deref(),
        };
        compiler::run(command, &place, is_confined)
            .map_err(|error| PluginError::NoCompiler { command: self.command.clone(), error })
    }

    fn compiled(
        &self,
        source: &GovernorSource,
        extra: Option<&str>,
    ) -> Result<Library, PluginError> {
        let prepared = self.prepared(source, extra)?;
        let Prepared { path, units, arguments, inputs, is_native, .. } = &prepared;
        let work = prepared.work.path();
        let run = |command: &mut Command| self.run(command, &prepared);
        let version = run(self.start().arg("--version"))?.words;
        let mut hasher = blake3::Hasher::new();
        let mut hash = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        };
        let preprocessed = work.join("preprocessed");
        for Unit { file, copy } in units {
            let mut command = self.start();
            command.args(["-E", "-P", "-o"]).arg(&preprocessed).args(arguments);
            command.args(&file.flags).arg(copy);
            prepared.checked(run(&mut command)?)?;
            let made = fs::read(&preprocessed);
            hash(&made.map_err(io_error(&preprocessed, "cannot read"))?);
            file.flags.iter().for_each(|flag| hash(flag.as_bytes()));
        }
        // The files compiled with it are ours.
        hash_files(&INCLUDE, &mut hash);
        hash(extra.unwrap_or_default().as_bytes());
        for part in [&*version, self.command.as_bytes(), env::consts::ARCH.as_bytes()] {
            hash(part);
        }
        // Folder names are in the preprocessed text; those of this run differ each time.
        arguments
            .iter()
            .filter(|word| word.starts_with('-'))
            .for_each(|word| hash(word.as_bytes()));
        let key = key_of(hasher.finalize());
        let cache = self.cache.as_ref().and_then(|folder| Cache::open(folder));
        if let Some(bytes) = cache.as_ref().and_then(|cache| cache.get(&key)) {
            return Ok(Library::new(path.clone(), bytes, key));
        }
        let mut objects = Vec::new();
        for (number, Unit { file, copy }) in units.iter().enumerate() {
            let object = work.join(format!("{number}.o"));
            let mut command = self.start();
            command.args(["-c", "-o"]).arg(&object).args(arguments).args(&file.flags).arg(copy);
            prepared.checked(run(&mut command)?)?;
            objects.push(object);
        }
        let made = work.join("governor.so");
        let mut command = self.start();
        command.args(["-shared", "-Wl,-z,defs", "-o"]).arg(&made).args(arguments);
        command.args(objects).args(inputs);
        if !*is_native {
            command.args(KERNEL_LIBRARIES);
        }
        prepared.checked(run(&mut command)?)?;
        let bytes = read_bytes(&made, LIBRARY_BYTE_COUNT_MAX)?;
        if let Some(cache) = cache {
            // A failure only costs time.
            let _ = cache.put(&key, &bytes);
        }
        Ok(Library::new(path.clone(), bytes, key))
    }

    /// Returns the compiler's version line, or an empty string if it can't be started.
    pub fn version(&self) -> String {
        let output = self.start().arg("--version").output();
        let words = output.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&words).lines().next().unwrap_or("").to_owned()
    }

    /// `$CC` may contain arguments, as in `CC="ccache gcc"`.
    fn start(&self) -> Command {
        let mut words = self.command.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("cc"));
        command.args(words);
        command
    }
}

/// Half of a hash still has no twin.
fn key_of(hash: blake3::Hash) -> String {
    hash.to_hex()[..32].to_owned()
}

/// A C file, and the copy that is compiled.
struct Unit {
    file: SourceFile,
    copy: PathBuf,
}

/// A source that is ready to be compiled.
struct Prepared {
    work: WorkFolder,
    path: PathBuf,
    /// What kind of governor it is, for messages.
    flavour: String,
    units: Vec<Unit>,
    readable: Vec<PathBuf>,
    arguments: Vec<String>,
    /// Files of ours that are compiled with it.
    inputs: Vec<PathBuf>,
    is_native: bool,
}

impl Prepared {
    /// Returns what is wrong with the source, if the compiler found something.
    fn checked(&self, ran: Ran) -> Result<(), PluginError> {
        if ran.is_success() {
            return Ok(());
        }
        if ran.was_stopped() {
            return Err(PluginError::CompilerStopped { path: self.path.clone() });
        }
        let mut words = String::from_utf8_lossy(&ran.words).into_owned();
        for Unit { file, copy } in &self.units {
            let shown = file.path.display().to_string();
            words = words.replace(&copy.display().to_string(), &shown);
        }
        let is_named = |unit: &&Unit| words.contains(&unit.file.path.display().to_string());
        Err(match self.units.iter().find(is_named) {
            Some(Unit { file, .. }) => diagnose(&file.path, &words, &file.text, &self.flavour),
            None => diagnose(&self.path, &words, "", &self.flavour),
        })
    }
}

/// The files in a rule for make, as `cc -M` writes it: `governor.o: governor.c a\\ b.h`.
fn prerequisites(rule: &str) -> Vec<PathBuf> {
    let files = rule.split_once(": ").map_or("", |(_, files)| files);
    let (mut found, mut file) = (Vec::new(), String::new());
    let mut characters = files.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, characters.peek()) {
            ('\\', Some('\n')) | ('$', Some('$')) | ('\\', Some(' ' | '#')) => {
                let next = characters.next().filter(|next| *next != '\n');
                file.extend(next);
                if next.is_some() {
                    continue;
                }
            }
            (c, _) if !c.is_whitespace() => {
                file.push(c);
                continue;
            }
            _ => {}
        }
        if !file.is_empty() {
            found.push(PathBuf::from(std::mem::take(&mut file)));
        }
    }
    found
}

fn hash_files(folder: &include_dir::Dir<'_>, hash: &mut impl FnMut(&[u8])) {
    for file in folder.files() {
        hash(file.path().as_os_str().as_encoded_bytes());
        hash(file.contents());
    }
    folder.dirs().for_each(|folder| hash_files(folder, hash));
}

/// Creates a folder that only the user can access.
fn make_folder(path: &Path) -> Result<&Path, PluginError> {
    DirBuilder::new().mode(0o700).create(path).map_err(io_error(path, "cannot make"))?;
    Ok(path)
}

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> PluginError {
    let path = path.to_owned();
    move |error| PluginError::Io { path, doing, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_lists_its_files() {
        let rule = "menu.o: /tmp/x/menu.c \\\n ./gov.h a\\ b.h \\\n c$$d.h e\\#f.h\n";
        let expected = ["/tmp/x/menu.c", "./gov.h", "a b.h", "c$d.h", "e#f.h"];
        assert_eq!(prerequisites(rule), expected.map(PathBuf::from));
        assert!(prerequisites("").is_empty());
    }
}
