//! Why a governor can't be had from a file.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a plug-in can't be compiled or loaded. Messages name the file and say what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum PluginError {
    /// A file or folder can't be read or written.
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was to be done with it, as in "cannot read".
        doing: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The file is neither C nor a shared object.
    NotAGovernor {
        /// The file.
        path: PathBuf,
    },
    /// There is no such header flavour.
    UnknownKernel {
        /// What was asked for.
        version: String,
    },
    /// A folder is not a kernel's source.
    NotAKernelSource {
        /// The folder.
        path: PathBuf,
        /// What is missing in it.
        missing: &'static str,
    },
    /// The compiler can't be started.
    NoCompiler {
        /// The command.
        command: String,
        /// What the system said.
        error: io::Error,
    },
    /// The compiler refused the file.
    DoesNotCompile {
        /// The file.
        path: PathBuf,
        /// For which interface.
        flavour: String,
        /// The compiler's message, shortened.
        message: String,
    },
    /// The file uses something that our headers don't have.
    MissingInterface {
        /// The file, with a line if it is known.
        place: String,
        /// What is missing.
        name: String,
        /// For which kernel.
        flavour: String,
        /// The nearest names that there are.
        nearest: Vec<&'static str>,
    },
    /// Our headers say why the file can't be for this kernel.
    WrongKernel {
        /// The file.
        path: PathBuf,
        /// For which kernel it was compiled.
        flavour: String,
        /// What the header said.
        reason: String,
    },
    /// A kernel governor's file that never registers one.
    RegistersNothing {
        /// The file.
        path: PathBuf,
    },
    /// A patch can't be read or applied.
    Patch {
        /// The patch.
        patch: PathBuf,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A shared object can't be loaded or has no governor.
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// This system can't confine a governor's code.
    NotConfined {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file includes one that the compiler may not read.
    NotReadable {
        /// The file, with the line.
        place: String,
        /// What it includes.
        name: String,
    },
    /// A file is larger than any governor.
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        byte_count_max: u64,
    },
    /// The compiler was stopped.
    CompilerStopped {
        /// The file.
        path: PathBuf,
    },
    /// The process for foreign code can't be started.
    NoWorker {
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, doing, error } => write!(f, "{doing} {}: {error}", path.display()),
            Self::NotAGovernor { path } => write!(
                f,
                "{}: a governor's file ends in .c (it is compiled) or .so (it has \
                 idlewise_governor.h's interface)",
                path.display()
            ),
            Self::UnknownKernel { version } => write!(
                f,
                "no headers for Linux '{version}'; there are {}",
                crate::KERNELS.map(|kernel| kernel.name).join(", ")
            ),
            Self::NotAKernelSource { path, missing } => write!(
                f,
                "{}: not a kernel's source: it has no {missing}; unpack one, such as Debian's \
                 /usr/src/linux-source-6.12.tar.xz, and name its top folder",
                path.display()
            ),
            Self::NoCompiler { command, error } => write!(
                f,
                "cannot start the C compiler '{command}': {error}; install one (apt install gcc \
                 libc6-dev) or name yours with CC"
            ),
            Self::DoesNotCompile { path, flavour, message } => {
                write!(f, "{} doesn't compile as {flavour}:\n{message}", path.display())
            }
            Self::MissingInterface { place, name, flavour, nearest } => {
                write!(f, "{place}: '{name}' is not provided for {flavour}")?;
                if !nearest.is_empty() {
                    write!(f, " (there is {})", nearest.join(", "))?;
                }
                write!(f, "; docs/plugins.md lists what is, --kernel-source DIR may add more")
            }
            Self::WrongKernel { path, flavour, reason } => {
                write!(f, "{} is not {flavour}: {reason}", path.display())
            }
            Self::RegistersNothing { path } => write!(
                f,
                "{}: it has no postcore_initcall() that registers a governor; for a governor that \
                 was never in a kernel include <idlewise_governor.h>",
                path.display()
            ),
            Self::Patch { patch, path, reason } => {
                write!(f, "{} doesn't apply to {}: {reason}", patch.display(), path.display())
            }
            Self::NotLoadable { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::NotConfined { path, reason } => write!(
                f,
                "{}: this system can't confine a governor's code ({reason}); if you trust the file, \
                 --unconfined runs it with all your rights",
                path.display()
            ),
            Self::NotReadable { place, name } => write!(
                f,
                "{place}: the compiler may not read '{name}': a governor may include the system's \
                 headers and those beside it; if you trust the file, --unconfined lets it read all"
            ),
            Self::TooLarge { path, byte_count_max } => write!(
                f,
                "{}: larger than {} MiB; is it a governor?",
                path.display(),
                byte_count_max >> 20
            ),
            Self::CompilerStopped { path } => {
                write!(f, "{}: the compiler took too long for it and was stopped", path.display())
            }
            Self::NoWorker { error } => {
                write!(f, "cannot start a process for the governor's code: {error}")
            }
        }
    }
}

impl std::error::Error for PluginError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } | Self::NoCompiler { error, .. } | Self::NoWorker { error } => {
                Some(error)
            }
            _ => None,
        }
    }
}
