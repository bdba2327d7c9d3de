//! Runs the C compiler on somebody else's text. It is limited in time, memory and files, and can only read
//! what compiling needs, so that `#include "/home/me/.ssh/id_rsa"` reveals nothing.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, path_beneath_rules,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Resource;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::{limit, without_capabilities};
use crate::process_group::kill_group;
use crate::program::find_program;
use crate::work_folder;

/// A governor compiles in a fraction of a second, and in an emulated machine in half a minute.
pub(crate) const WALL_LIMIT: Duration = Duration::from_secs(120);
pub(crate) const CPU_LIMIT_S: u64 = 60;
pub(crate) const MEMORY_BYTE_COUNT: u64 = 2 << 30;
const FILE_BYTE_COUNT: u64 = 64 << 20;
/// How many bytes of its messages are read.
const WORD_BYTE_COUNT: usize = 1 << 20;

/// `1 << CAP_DAC_READ_SEARCH`: root may compile what is in somebody's private folder.
const CAP_DAC_READ_SEARCH: u32 = 1 << 2;

/// Where systems keep compilers, headers and libraries.
const SYSTEM: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/alternatives",
];

/// What a compiler may access besides the system's own files.
pub(crate) struct Place<'a> {
    /// A folder that it may write to.
    pub work: &'a Path,
    /// Files and folders that it may read.
    pub readable: &'a [PathBuf],
    /// The compiler's own folder.
    pub program: Option<&'a Path>,
}

/// The result of a compiler's run.
pub(crate) struct Ran {
    /// `None` if it was stopped.
    pub status: Option<ExitStatus>,
    /// Its messages from both streams together, cut if there are too many.
    pub words: Vec<u8>,
}

impl Ran {
    pub(crate) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns whether one of the limits ended it, or a program that it started: gcc's and clang's words.
    pub(crate) fn was_stopped(&self) -> bool {
        let words = String::from_utf8_lossy(&self.words);
        self.status.is_none_or(|status| status.signal() == Some(libc::SIGKILL))
            || words.contains("fatal error: Killed signal terminated program")
            || words.contains("unable to execute command: Killed")
    }
}

/// Runs a compiler. This reads its messages; everything else it writes to files.
pub(crate) fn run(command: &mut Command, place: &Place<'_>, is_confined: bool) -> io::Result<Ran> {
    let (mut reader, writer) = io::pipe()?;
    command
        .env("LC_ALL", "C")
        .env("TMPDIR", place.work)
        // A wrapper with its own cache would need to write there.
        .env("CCACHE_DISABLE", "1")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let rules = if is_confined { rules(place)? } else { None };
    let filter = if is_confined { no_sockets() } else { None };
    let restrict = move || {
        for (resource, value) in [
            (Resource::Core, 0),
            (Resource::Cpu, CPU_LIMIT_S),
            (Resource::As, MEMORY_BYTE_COUNT),
            (Resource::Fsize, FILE_BYTE_COUNT),
        ] {
            limit(resource, value)?;
        }
        if is_confined {
            without_capabilities(CAP_DAC_READ_SEARCH)?;
        }
        // SAFETY: plain numbers. Older kernels don't have the call; then descriptors that idlewise was
        // given stay open.
        unsafe {
            libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        if let Some(rules) = &rules {
            // SAFETY: a ruleset's descriptor and no flags.
            let result =
                unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if let Some(filter) = &filter {
            // No error text here: the child of a process with threads must not allocate.
            let applied = seccompiler::apply_filter(filter);
            applied.map_err(|_| io::Error::from_raw_os_error(libc::EPERM))?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec this only makes system calls, and allocates nothing.
    unsafe { command.pre_exec(restrict) };
    let mut child = work_folder::start(command)?;
    // The command would keep the pipe's other end open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let words = read_until_end(&mut reader);
    if words.is_none() {
        kill_group(child.id());
    }
    work_folder::has_ended(&child);
    let status = child.wait()?;
    Ok(match words {
        Some(words) => Ran { status: Some(status), words },
        None => Ran { status: None, words: Vec::new() },
    })
}

/// Reads to the end, and keeps up to the limit. Returns `None` if that takes too long.
fn read_until_end(reader: &mut io::PipeReader) -> Option<Vec<u8>> {
    let deadline = Instant::now() + WALL_LIMIT;
    let (mut words, mut bytes) = (Vec::new(), [0; 8 << 10]);
    loop {
        let left = deadline.checked_duration_since(Instant::now())?;
        let timeout = Timespec::try_from(left).ok()?;
        match poll(&mut [PollFd::new(reader, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        }
        match reader.read(&mut bytes) {
            Ok(0) => return Some(words),
            Ok(count) => {
                let room = WORD_BYTE_COUNT - words.len();
                words.extend_from_slice(&bytes[..count.min(room)]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Returns whether this kernel can restrict which files a process may read.
pub(crate) fn has_landlock() -> bool {
    // SAFETY: without attributes and with this flag, the call returns a number.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) > 0 }
}

/// Landlock's rules, or `None` if the kernel has no Landlock.
fn rules(place: &Place<'_>) -> io::Result<Option<OwnedFd>> {
    let abi = ABI::V5;
    let read = AccessFs::from_read(abi);
    let build = || -> Result<Option<OwnedFd>, landlock::RulesetError> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(abi))?
            .handle_access(AccessNet::from_all(abi))?
            .create()?
            // Paths that can't be opened are left out.
            .add_rules(path_beneath_rules(SYSTEM.iter().map(Path::new), read))?
            .add_rules(path_beneath_rules(place.program, read))?
            .add_rules(path_beneath_rules(place.readable, read & !AccessFs::Execute))?
            .add_rules(path_beneath_rules([place.work], AccessFs::from_all(abi)))?
            .add_rules(path_beneath_rules(["/dev/null"], AccessFs::from_all(abi)))?;
        Ok(rules.into())
    };
    build().map_err(|error| io::Error::other(error.to_string()))
}

/// Forbids new sockets; `None` where that is not supported.
fn no_sockets() -> Option<BpfProgram> {
    let rules = [libc::SYS_socket, libc::SYS_io_uring_setup].map(|number| (number, Vec::new()));
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let arch = TargetArch::try_from(std::env::consts::ARCH).ok()?;
    let filter = SeccompFilter::new(rules.into(), SeccompAction::Allow, refuse, arch).ok()?;
    filter.try_into().ok().filter(|_| has_seccomp(libc::SECCOMP_RET_ERRNO))
}

/// Returns whether the kernel knows an action of seccomp filters.
pub(crate) fn has_seccomp(action: u32) -> bool {
    // SAFETY: asks whether the kernel knows the action, and changes nothing.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0 }
}

/// The headers and C files beside a governor's file, which it may include. No other files of that folder,
/// which may well be the user's home.
pub(crate) fn neighbours(file: &Path) -> Vec<PathBuf> {
    let folder = file.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_text = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("h" | "c" | "inc"))
            && std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
    };
    entries.map(|entry| entry.path()).filter(is_text).take(NEIGHBOUR_COUNT_MAX).collect()
}

/// Each of them is a rule.
const NEIGHBOUR_COUNT_MAX: usize = 1_000;

/// The folder of a program found in `PATH`, after resolving links. If that is a `bin` beside a `lib`, it is
/// the folder above, but never the user's home.
pub(crate) fn folder_of(program: &str) -> Option<PathBuf> {
    let program = find_program(program)?;
    let folder = program.parent()?;
    let above = folder.parent().filter(|above| {
        let is_home = std::env::var_os("HOME").is_some_and(|home| **above == *Path::new(&home));
        folder.ends_with("bin")
            && above.join("lib").is_dir()
            && !is_home
            && *above != Path::new("/")
    });
    Some(above.unwrap_or(folder).to_owned())
}
