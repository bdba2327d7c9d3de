//! Why a governor can't be had from a file.

use std::io;
use std::path::PathBuf;

/// Why a plug-in can't be compiled or loaded. Messages name the file and say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// A file or folder can't be read or written.
    #[error("{doing} {}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was to be done with it, as in "cannot read".
        doing: &'static str,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The file is neither C nor a shared object.
    #[error("{}: a governor's file ends in .c (it is compiled) or .so (it has \
         idlewise_governor.h's interface)", path.display())]
    NotAGovernor {
        /// The file.
        path: PathBuf,
    },
    /// There is no such header flavour.
    #[error("no headers for Linux '{version}'; there are {}", crate::KERNELS.map(|kernel| kernel.name).join(", "))]
    UnknownKernel {
        /// What was asked for.
        version: String,
    },
    /// A folder is not a kernel's source.
    #[error("{}: not a kernel's source: it has no {missing}; unpack one, such as Debian's \
         /usr/src/linux-source-6.12.tar.xz, and name its top folder", path.display())]
    NotAKernelSource {
        /// The folder.
        path: PathBuf,
        /// What is missing in it.
        missing: &'static str,
    },
    /// The compiler can't be started.
    #[error(
        "cannot start the C compiler '{command}': {error}; install one (apt install gcc \
         libc6-dev) or name yours with CC"
    )]
    NoCompiler {
        /// The command.
        command: String,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The compiler refused the file.
    #[error("{} doesn't compile as {flavour}:\n{message}", path.display())]
    DoesNotCompile {
        /// The file.
        path: PathBuf,
        /// For which interface.
        flavour: String,
        /// The compiler's message, shortened.
        message: String,
    },
    /// The file uses something that our headers don't have.
    #[error(
        "{place}: '{name}' is not provided for {flavour}{}; docs/plugins.md lists what is, \
         --kernel-source DIR may add more",
        there_is(nearest)
    )]
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
    #[error("{} is not {flavour}: {reason}", path.display())]
    WrongKernel {
        /// The file.
        path: PathBuf,
        /// For which kernel it was compiled.
        flavour: String,
        /// What the header said.
        reason: String,
    },
    /// A kernel governor's file that never registers one.
    #[error("{}: it has no postcore_initcall() that registers a governor; for a governor that \
         was never in a kernel include <idlewise_governor.h>", path.display())]
    RegistersNothing {
        /// The file.
        path: PathBuf,
    },
    /// A patch can't be read or applied.
    #[error("{} doesn't apply to {}: {reason}", patch.display(), path.display())]
    Patch {
        /// The patch.
        patch: PathBuf,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A shared object can't be loaded or has no governor.
    #[error("{}: {reason}", path.display())]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// This system can't confine a governor's code.
    #[error("{}: this system can't confine a governor's code ({reason}); if you trust the file, \
         --unconfined runs it with all your rights", path.display())]
    NotConfined {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file includes one that the compiler may not read.
    #[error(
        "{place}: the compiler may not read '{name}': a governor may include the system's \
         headers and those beside it; if you trust the file, --unconfined lets it read all"
    )]
    NotReadable {
        /// The file, with the line.
        place: String,
        /// What it includes.
        name: String,
    },
    /// A file is larger than any governor.
    #[error("{}: larger than {} MiB; is it a governor?", path.display(), byte_count_max >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        byte_count_max: u64,
    },
    /// The compiler was stopped.
    #[error("{}: the compiler took too long for it and was stopped", path.display())]
    CompilerStopped {
        /// The file.
        path: PathBuf,
    },
    /// The process for foreign code can't be started.
    #[error("cannot start a process for the governor's code: {error}")]
    NoWorker {
        /// What the system said.
        #[source]
        error: io::Error,
    },
}

fn there_is(nearest: &[&str]) -> String {
    if nearest.is_empty() { String::new() } else { format!(" (there is {})", nearest.join(", ")) }
}
