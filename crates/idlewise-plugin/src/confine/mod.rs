//! Limits for foreign code: the processes that run a governor's code, and the compiler that reads its text.
//! "Isolation" in `docs/plugins.md` says what each may do.

pub(crate) mod compiler;
pub(crate) mod governor;

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets the soft and hard limit of a resource, unless a lower one is set. Async-signal-safe.
fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let lower = |now: Option<u64>| Some(now.map_or(value, |now| now.min(value)));
    setrlimit(resource, Rlimit { current: lower(now.current), maximum: lower(now.maximum) })?;
    Ok(())
}

/// Gives up all capabilities of this process except `kept`, one bit each. Async-signal-safe.
fn without_capabilities(kept: u32) -> io::Result<()> {
    // `_LINUX_CAPABILITY_VERSION_3` of `linux/capability.h`, and this process.
    let mut header = [0x2008_0522_u32, 0];
    let mut now = [[0_u32; 3]; 2];
    // SAFETY: the kernel reads the header and fills two sets of three words.
    if unsafe { libc::syscall(libc::SYS_capget, &mut header, &mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let [_, permitted, _] = now[0];
    let kept = permitted & kept;
    let fewer = [[kept, kept, 0], [0; 3]];
    // SAFETY: as above, and the kernel only reads. Ambient ones go with the permitted ones.
    match unsafe { libc::syscall(libc::SYS_capset, &mut header, &fewer) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
