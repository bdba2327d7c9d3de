//! Why a recording is impossible, in one line that says what to do.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use idlewise_trace::log::LogError;

/// Why a recording is impossible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A container or chroot lacks /proc or /sys, so nothing can be said of the kernel.
    #[error(
        "/{name} is not mounted here, so it can't be told what the kernel offers; mount it, or record outside this chroot"
    )]
    Hidden {
        /// `proc` or `sys`.
        name: &'static str,
    },
    /// tracefs is not mounted.
    #[error(
        "tracefs is not mounted; as root: `mount -t tracefs nodev /sys/kernel/tracing`, then record \
         again"
    )]
    NotMounted,
    /// The kernel has no tracefs, or a container hides it.
    #[error(
        "this kernel offers no tracefs (CONFIG_FTRACE, CONFIG_TRACING); record on a kernel with it, \
         and from a container on the host"
    )]
    NoTracefs,
    /// We have no permission to use tracefs.
    #[error(
        "{}: {source}; record as root (mounting tracefs with gid=GROUP lets a group read, which is not enough)",
        path.display()
    )]
    NotPermitted {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file in tracefs rejected the operation.
    #[error("{}: {source}; {}", path.display(), tracefs_advice(source))]
    Tracefs {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel has no idle event.
    #[error(
        "this kernel has no power:cpu_idle event, without which nothing is known of idle CPUs; \
         record on a kernel with CONFIG_CPU_IDLE or CONFIG_CPU_FREQ"
    )]
    NoCpuIdle,
    /// sysfs names no CPU.
    #[error("/sys/devices/system/cpu/online names no CPU; mount sysfs on /sys")]
    NoCpus,
    /// The output exists already, or cannot be created.
    #[error(transparent)]
    Output(#[from] LogError),
    /// The output cannot be written.
    #[error("{}: cannot write: {source}; nothing was kept", path.display())]
    Write {
        /// The output, or its folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A thread cannot be started, or a pipe cannot be created.
    #[error("cannot start a reader: {source}; raise the limits on processes and open files")]
    Reader {
        /// What the system said.
        source: io::Error,
    },
}

impl RecordError {
    /// An error of a file in tracefs.
    pub(crate) fn tracefs(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::PermissionDenied => RecordError::NotPermitted { path, source },
            _ => RecordError::Tracefs { path, source },
        }
    }
}

fn tracefs_advice(source: &io::Error) -> &'static str {
    match source.kind() {
        ErrorKind::ReadOnlyFilesystem => "`idlewise doctor` says how to make it writable",
        _ => "`dmesg` may say why, and -b sets smaller buffers",
    }
}
