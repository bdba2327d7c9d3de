//! Ends a compiler or a worker together with whatever it has started.

use rustix::process::{Pid, Signal};

/// Ends a process that leads its own process group, and all others in the group.
pub(crate) fn kill_group(leader: u32) {
    if let Some(group) = Pid::from_raw(leader as i32) {
        // It may have ended already.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}
