//! The system's C compiler, and a cache of what it made.
//!
//! The key of a library is the hash of all that goes in: the preprocessed text with every header,
//! the flags, the compiler's version. A library appears under its key by a rename, so two commands
//! that compile the same file at once do not meet.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::INCLUDE;
use crate::diagnose::diagnose;
use crate::error::PluginError;
use crate::source::{Source, governors};

/// As the kernel is built, where it makes a difference to what C means; and every name that is used
/// must be there.
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

/// A C compiler and the folder that keeps its work.
#[derive(Clone, Debug)]
pub struct Compiler {
    command: String,
    cache: PathBuf,
}

/// Where compiled governors are kept: `idlewise` in the user's cache folder, or in the temporary
/// one if there is none.
pub fn cache_folder() -> PathBuf {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    base.unwrap_or_else(env::temp_dir).join("idlewise/governors")
}

impl Compiler {
    /// The compiler that `$CC` names, or `cc`.
    pub fn system() -> Self {
        let command = env::var("CC").ok().filter(|command| !command.trim().is_empty());
        Compiler { command: command.unwrap_or_else(|| "cc".to_owned()), cache: cache_folder() }
    }

    /// The same with another cache.
    pub fn with_cache(self, cache: impl Into<PathBuf>) -> Self {
        Compiler { cache: cache.into(), ..self }
    }

    /// The library for a source: from the cache, or compiled now. A `.so` is copied there, so that
    /// a rebuild does not change it under a replay.
    ///
    /// `extra` is more C text to compile into it, for benchmarks.
    ///
    /// # Errors
    /// If it can't be compiled.
    pub fn library(&self, source: &Source, extra: Option<&str>) -> Result<PathBuf, PluginError> {
        let path = source.file();
        match path.extension().and_then(OsStr::to_str) {
            Some("so") => {
                let bytes = fs::read(&path).map_err(io_error(&path, "cannot read"))?;
                let kept = self.kept(&blake3::hash(&bytes));
                self.keep(&kept, |to| fs::write(to, &bytes))?;
                Ok(kept)
            }
            Some("c") => self.compiled(source, extra),
            _ => Err(PluginError::NotAGovernor { path }),
        }
    }

    fn compiled(&self, source: &Source, extra: Option<&str>) -> Result<PathBuf, PluginError> {
        let path = source.file();
        let text = source.text()?;
        let kernel = source.kernel()?;
        let is_native = text.contains("idlewise_governor.h");
        let flavour = if is_native {
            "a governor of idlewise_governor.h".to_owned()
        } else {
            format!("a governor of Linux {}", kernel.name)
        };
        let include = self.headers()?;
        let work = tempfile::Builder::new()
            .prefix("compile-")
            .tempdir_in(&self.cache)
            .map_err(io_error(&self.cache, "cannot make a folder in"))?;
        // The compiler sees a copy under the file's own name, which may be patched.
        let file_name = path.file_name().unwrap_or_default();
        let copy = work.path().join(file_name);
        fs::write(&copy, &text).map_err(io_error(&copy, "cannot write"))?;

        let mut arguments: Vec<String> = FLAGS.map(str::to_owned).to_vec();
        let mut add = |flag: &str, folder: &Path| {
            arguments.extend([flag.to_owned(), folder.display().to_string()]);
        };
        add("-iquote", path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new(".")));
        if !is_native {
            // Neighbours such as gov.h are the source's own if there is one.
            if let Some(tree) = &source.kernel_source {
                add("-iquote", &governors(tree));
            }
            add("-I", &include.join("kernel"));
        }
        add("-I", &include);
        if let Some(tree) = source.kernel_source.as_ref().filter(|_| !is_native) {
            add("-idirafter", &tree.join("include"));
        }
        if !is_native {
            arguments.push(format!("-DIDLEWISE_KERNEL={:#x}", kernel.code));
            arguments.extend(source.fixed_hz.map(|hz| format!("-DIDLEWISE_FIXED_HZ={hz}")));
        }
        let mut inputs = vec![copy.clone()];
        if !is_native {
            inputs.push(include.join("kernel/idlewise/shim.c"));
        }
        if let Some(extra) = extra {
            let file = work.path().join("extra.c");
            fs::write(&file, extra).map_err(io_error(&file, "cannot write"))?;
            inputs.push(file);
        }
        let shown = path.display().to_string();
        let failed = |output: &Output| {
            let words = String::from_utf8_lossy(&output.stderr);
            diagnose(&path, &words.replace(&copy.display().to_string(), &shown), &text, &flavour)
        };
        let run =
            |command: &mut Command| {
                command.args(&arguments).args(&inputs).env("LC_ALL", "C").output().map_err(
                    |error| PluginError::NoCompiler { command: self.command.clone(), error },
                )
            };
        let preprocessed = run(self.start().args(["-E", "-P"]))?;
        if !preprocessed.status.success() {
            return Err(failed(&preprocessed));
        }
        let version = self.version_text();
        let mut hasher = blake3::Hasher::new();
        for part in [&preprocessed.stdout, &version, self.command.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.update(FLAGS.join(" ").as_bytes());
        let kept = self.kept(&hasher.finalize());
        if kept.exists() {
            return Ok(kept);
        }
        let library = work.path().join("governor.so");
        let output = run(self.start().args(["-shared", "-Wl,-z,defs", "-o"]).arg(&library))?;
        if !output.status.success() {
            return Err(failed(&output));
        }
        fs::rename(&library, &kept).map_err(io_error(&kept, "cannot write"))?;
        Ok(kept)
    }

    /// What the compiler says it is, in one line; empty if it can't be started.
    pub fn version(&self) -> String {
        String::from_utf8_lossy(&self.version_text()).lines().next().unwrap_or("").to_owned()
    }

    fn version_text(&self) -> Vec<u8> {
        self.start().arg("--version").output().map(|output| output.stdout).unwrap_or_default()
    }

    /// `$CC` may carry arguments, as in `CC="ccache gcc"`.
    fn start(&self) -> Command {
        let mut words = self.command.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("cc"));
        command.args(words);
        command
    }

    fn kept(&self, hash: &blake3::Hash) -> PathBuf {
        self.cache.join(format!("{}.so", &hash.to_hex()[..32]))
    }

    /// Our headers as files, under a name that changes when they do.
    fn headers(&self) -> Result<PathBuf, PluginError> {
        fn add(folder: &include_dir::Dir<'_>, hasher: &mut blake3::Hasher) {
            for file in folder.files() {
                hasher.update(file.path().as_os_str().as_encoded_bytes());
                hasher.update(file.contents());
            }
            folder.dirs().for_each(|folder| add(folder, hasher));
        }
        let mut hasher = blake3::Hasher::new();
        add(&INCLUDE, &mut hasher);
        let kept = self.cache.join(format!("include-{}", &hasher.finalize().to_hex()[..16]));
        self.keep(&kept, |to| {
            fs::create_dir(to)?;
            INCLUDE.extract(to)
        })?;
        Ok(kept)
    }

    /// Makes a file or folder of the cache unless it is there, whole or not at all.
    fn keep(
        &self,
        kept: &Path,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), PluginError> {
        fs::create_dir_all(&self.cache).map_err(io_error(&self.cache, "cannot make"))?;
        if kept.exists() {
            return Ok(());
        }
        let work = tempfile::Builder::new()
            .prefix("make-")
            .tempdir_in(&self.cache)
            .map_err(io_error(&self.cache, "cannot make a folder in"))?;
        let made = work.path().join("made");
        make(&made).map_err(io_error(&made, "cannot write"))?;
        match fs::rename(&made, kept) {
            // Another command was faster.
            Err(_) if kept.exists() => Ok(()),
            result => result.map_err(io_error(kept, "cannot write")),
        }
    }
}

fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> PluginError {
    let path = path.to_owned();
    move |error| PluginError::Io { path, doing, error }
}
