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

use crate::INCLUDE;
use crate::cache::{Cache, LIBRARY_BYTE_COUNT_MAX, cache_folder};
use crate::confine::compiler::{self, Place, Ran};
use crate::diagnose::diagnose;
use crate::error::PluginError;
use crate::instance::Library;
use crate::source::{GovernorSource, governors, read_bytes};
use crate::work_folder::WorkFolder;

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

/// A C compiler, its cache folder, and whether the compiler and its output are confined.
#[derive(Clone, Debug)]
pub struct Compiler {
    command: String,
    cache: Option<PathBuf>,
    is_confined: bool,
}

impl Compiler {
    /// Returns the compiler that `$CC` names, or `cc`, confined.
    pub fn system() -> Self {
        let command = env::var("CC").ok().filter(|command| !command.trim().is_empty());
        Compiler {
            command: command.unwrap_or_else(|| "cc".to_owned()),
            cache: cache_folder(),
            is_confined: true,
        }
    }

    /// Returns the same compiler with another cache.
    pub fn with_cache(self, cache: impl Into<PathBuf>) -> Self {
        Compiler { cache: Some(cache.into()), ..self }
    }

    /// Returns the same compiler without confinement, for sources that the user trusts.
    pub fn unconfined(self) -> Self {
        Compiler { is_confined: false, ..self }
    }

    /// Returns whether the compiler and its output are confined.
    pub fn is_confined(&self) -> bool {
        self.is_confined
    }

    /// Returns what is less safe than it could be with this source, as a phrase.
    pub fn doubt(&self, source: &GovernorSource) -> Option<String> {
        let is_compiled = source.file().extension() != Some(OsStr::new("so"));
        if !self.is_confined {
            Some("not confined: its code had all your rights".to_owned())
        } else if is_compiled && !compiler::has_landlock() {
            let doubt = "this kernel has no Landlock, so the compiler could read all your files";
            Some(doubt.to_owned())
        } else {
            None
        }
    }

    /// Returns the library for a source: a `.so` unchanged, a `.c` from the cache or compiled now.
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
            Some("so") => {
                let bytes = read_bytes(&path, LIBRARY_BYTE_COUNT_MAX)?;
                Ok(Library::new(path, bytes))
            }
            Some("c") => self.compiled(source, extra),
            _ => Err(PluginError::NotAGovernor { path }),
        }
    }

    fn compiled(
        &self,
        source: &GovernorSource,
        extra: Option<&str>,
    ) -> Result<Library, PluginError> {
        let path = source.file();
        let text = source.text()?;
        let kernel = source.kernel()?;
        let is_native = text.contains("idlewise_governor.h");
        let flavour = if is_native {
            "a governor of idlewise_governor.h".to_owned()
        } else {
            format!("a governor of Linux {}", kernel.name)
        };
        // A private folder for everything that the compiler writes, and what it reads of ours.
        let work =
            WorkFolder::new().map_err(io_error(&env::temp_dir(), "cannot make a folder in"))?;
        let work = work.path();
        let include = work.join("include");
        INCLUDE.extract(make_folder(&include)?).map_err(io_error(&include, "cannot write"))?;
        // The compiler sees a copy under the file's own name, because it may be patched.
        let copy = make_folder(&work.join("source"))?.join(path.file_name().unwrap_or_default());
        fs::write(&copy, &text).map_err(io_error(&copy, "cannot write"))?;

        let mut readable = compiler::neighbours(&path);
        let mut arguments: Vec<String> = FLAGS.map(str::to_owned).to_vec();
        let mut add = |flag: &str, folder: &Path| {
            arguments.extend([flag.to_owned(), folder.display().to_string()]);
        };
        add("-iquote", path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new(".")));
        if !is_native {
            // Neighbours such as gov.h come from the kernel's source if there is one.
            if let Some(tree) = &source.kernel_source {
                add("-iquote", &governors(tree));
                readable.push(governors(tree));
            }
            add("-I", &include.join("kernel"));
        }
        add("-I", &include);
        if let Some(tree) = source.kernel_source.as_ref().filter(|_| !is_native) {
            add("-idirafter", &tree.join("include"));
            readable.push(tree.join("include"));
        }
        let mut inputs = vec![copy.clone()];
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
        let program = self.command.split_whitespace().next().and_then(compiler::folder_of);
        let place = Place { work, readable: &readable, program: program.as_deref() };
        let run = |command: &mut Command| {
            compiler::run(command, &place, self.is_confined)
                .map_err(|error| PluginError::NoCompiler { command: self.command.clone(), error })
        };
        let shown = path.display().to_string();
        let checked = |ran: Ran| {
            if ran.is_success() {
                return Ok(());
            }
            if ran.status.is_none() {
                return Err(PluginError::CompilerStopped { path: path.clone() });
            }
            let words = String::from_utf8_lossy(&ran.words);
            let words = words.replace(&copy.display().to_string(), &shown);
            Err(diagnose(&path, &words, &text, &flavour))
        };

        let version = run(self.start().arg("--version"))?.words;
        let mut hasher = blake3::Hasher::new();
        let mut hash = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        };
        let preprocessed = work.join("preprocessed");
        let mut command = self.start();
        command.args(["-E", "-P", "-o"]).arg(&preprocessed).args(&arguments).arg(&copy);
        checked(run(&mut command)?)?;
        let made = fs::read(&preprocessed);
        hash(&made.map_err(io_error(&preprocessed, "cannot read"))?);
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
        let key = hasher.finalize().to_hex()[..32].to_owned();
        let cache = self.cache.as_ref().and_then(|folder| Cache::open(folder));
        if let Some(bytes) = cache.as_ref().and_then(|cache| cache.get(&key)) {
            return Ok(Library::new(path, bytes));
        }
        let made = work.join("governor.so");
        let mut command = self.start();
        command.args(["-shared", "-Wl,-z,defs", "-o"]).arg(&made).args(&arguments).args(&inputs);
        if !is_native {
            command.args(KERNEL_LIBRARIES);
        }
        checked(run(&mut command)?)?;
        let bytes = read_bytes(&made, LIBRARY_BYTE_COUNT_MAX)?;
        if let Some(cache) = cache {
            // A failure only costs time.
            let _ = cache.put(&key, &bytes);
        }
        Ok(Library::new(path, bytes))
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
