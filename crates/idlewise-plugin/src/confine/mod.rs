//! Limits for what is not ours: the processes that run a governor's code, and the compiler that reads
//! its text. What each may do is in `docs/plugins.md`, "Isolation".

pub(crate) mod compiler;
pub(crate) mod governor;
mod syscalls;

pub(crate) use syscalls::syscall_name;

use std::io;

use rustix::process::{Pid, Signal};

/// Ends a process that leads a group of its own, and all others in that group.
pub(crate) fn kill_group(leader: u32) {
    if let Some(group) = Pid::from_raw(leader as i32) {
        // It may have ended already.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Sets the soft and hard limit of a resource, unless a lower one is set. Async-signal-safe.
fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours.
    if unsafe { libc::getrlimit(resource, &mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let lower =
        libc::rlimit { rlim_cur: value.min(now.rlim_cur), rlim_max: value.min(now.rlim_max) };
    // SAFETY: as above.
    match unsafe { libc::setrlimit(resource, &lower) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
