//! [`PluginError`]: why a governor can't be compiled or loaded from a file.

use std::io;
use std::path::PathBuf;

use crate::confine::compiler;

/// Why a plug-in can't be compiled or loaded. Messages name the file and say what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// This build has no dynamic loader.
    #[error(
        "this idlewise is linked statically, so it cannot load governors from C files; the one for glibc can \
         (its -linux-gnu.tar.xz, .deb, .rpm or Python package)"
    )]
    Static,
    /// A file or folder can't be read or written.
    #[error("{doing} {}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What failed, such as "cannot read".
        doing: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The file is neither C nor a shared object.
    #[error("{}: a governor's file ends in .c (it is compiled) or .so (it has \
         idlewise_governor.h's interface); of several files name the folder", path.display())]
    NotAGovernor {
        /// The file.
        path: PathBuf,
    },
    /// A folder has no C file.
    #[error("{}: there is no C file in this folder (links do not count); name the folder that has them",
        path.display())]
    NoFile {
        /// The folder.
        path: PathBuf,
    },
    /// A folder has more C files than any governor.
    #[error("{}: more than {count_max} C files; is it a governor?", path.display())]
    TooManyFiles {
        /// The folder.
        path: PathBuf,
        /// The limit.
        count_max: usize,
    },
    /// There are no headers for this kernel.
    #[error("no headers for Linux '{version}'; there are {}", crate::kernel::KERNELS.map(|kernel| kernel.name).join(", "))]
    UnknownKernel {
        /// The requested version.
        version: String,
    },
    /// The folder does not contain a kernel's source.
    #[error("{}: not a kernel's source: it has no {missing}; unpack one, such as Debian's \
         /usr/src/linux-source-6.12.tar.xz, and name its top folder", path.display())]
    NotAKernelSource {
        /// The folder.
        path: PathBuf,
        /// The missing file.
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
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The C library's headers are missing.
    #[error(
        "the C compiler has no headers of the C library ('{name}'); install them: apt install libc6-dev"
    )]
    NoHeaders {
        /// The header.
        name: String,
    },
    /// The compiler rejected the file.
    #[error("{} doesn't compile as {flavour}:\n{message}", path.display())]
    DoesNotCompile {
        /// The file.
        path: PathBuf,
        /// The interface it was compiled for.
        flavour: String,
        /// The compiler's message, shortened.
        message: String,
    },
    /// The file uses a name that the headers lack.
    #[error(
        "{place}: '{name}' is not provided for {flavour}{}; docs/plugins.md lists what is, \
         --kernel-source DIR may add more",
        there_is(nearest)
    )]
    MissingInterface {
        /// The file, with a line if it is known.
        place: String,
        /// The missing name.
        name: String,
        /// The kernel.
        flavour: String,
        /// The most similar names in the headers.
        nearest: Vec<&'static str>,
    },
    /// The headers tell why the file can't be for this kernel.
    #[error("{} is not {flavour}: {reason}", path.display())]
    WrongKernel {
        /// The file.
        path: PathBuf,
        /// The kernel it was compiled for.
        flavour: String,
        /// The header's message.
        reason: String,
    },
    /// A kernel governor's file never registers a governor.
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
        /// The system's message.
        reason: String,
    },
    /// This system can't restrict which files the compiler reads.
    #[error("{}: this kernel has no Landlock (Linux 5.13 and later), so the compiler could read all your files \
         and show them in its messages; if you trust the file, --unconfined=compiler compiles it, and its code \
         is still confined", path.display())]
    NoLandlock {
        /// The file.
        path: PathBuf,
    },
    /// The file includes a file that the compiler may not read.
    #[error(
        "{place}: the compiler may not read '{name}': a governor may include the system's \
         headers and those beside it; if you trust the file, --unconfined=compiler lets it read all"
    )]
    NotReadable {
        /// The file, with the line.
        place: String,
        /// The included file.
        name: String,
    },
    /// The file is larger than any governor.
    #[error("{}: larger than {} MiB; is it a governor?", path.display(), byte_count_max >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        byte_count_max: u64,
    },
    /// The compiler reached one of its limits and was stopped.
    #[error(
        "{}: the compiler was stopped: it may take {} s, of that {} s of CPU time, and {} GiB of memory",
        path.display(), compiler::WALL_LIMIT.as_secs(), compiler::CPU_LIMIT_S, compiler::MEMORY_BYTE_COUNT >> 30
    )]
    CompilerStopped {
        /// The file.
        path: PathBuf,
    },
    /// The process for foreign code can't be started.
    #[error("cannot start a process for the governor's code: {error}")]
    NoWorker {
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

fn there_is(nearest: &[&str]) -> String {
    if nearest.is_empty() { String::new() } else { format!(" (there is {})", nearest.join(", ")) }
}
