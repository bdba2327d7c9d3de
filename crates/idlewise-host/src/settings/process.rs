//! A process, as opposed to its number, which the kernel gives to another process later.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::Root;

/// A process of the running machine, also if settings are below another root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot. `None` if /proc does not say.
    #[serde(deserialize_with = "Option::deserialize")] // It may not be left out.
    pub(super) start_ticks: Option<u64>,
}

impl Process {
    /// This process.
    pub(super) fn current() -> Self {
        Self::with(getpid().as_raw_pid())
    }

    /// The process that has the number.
    pub(super) fn with(pid: i32) -> Self {
        Process { pid, start_ticks: stat(pid).map(|(_, start_ticks)| start_ticks) }
    }

    /// Returns whether it runs. One that has ended, but that nobody has waited for, does not.
    pub fn is_running(self) -> bool {
        match stat(self.pid) {
            Some((state, start_ticks)) => {
                state != 'Z' && state != 'X' && self.start_ticks.is_none_or(|t| t == start_ticks)
            }
            None => false,
        }
    }

    /// Whether a word of its command is `one` and the next one is `other`.
    pub(super) fn was_started_with(self, one: &str, other: &str) -> bool {
        let text = Root::live().text(&format!("proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words: Vec<&str> = text.split('\0').collect();
        words.windows(2).any(|two| two == [one, other])
    }

    /// A file descriptor that is readable when it ends. `None` if it has ended.
    pub(super) fn descriptor(self) -> Option<OwnedFd> {
        let descriptor = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Only now can the number not be given away.
        self.is_running().then_some(descriptor)
    }
}

/// The state of a process and its start, from `/proc/PID/stat`. The name before them may contain anything.
fn stat(pid: i32) -> Option<(char, u64)> {
    const START: usize = 19;
    let text = Root::live().text(&format!("proc/{pid}/stat"))?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(START - 1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_given_to_another_process_is_told_apart() {
        let current = Process::current();
        assert!(current.is_running() && current.descriptor().is_some());
        let earlier =
            Process { start_ticks: current.start_ticks.map(|ticks| ticks - 1), ..current };
        assert!(!earlier.is_running() && earlier.descriptor().is_none());
    }

    #[test]
    fn one_that_nobody_waited_for_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = Process::with(child.id().cast_signed());
        let ended = process.descriptor();
        if let Some(ended) = ended {
            let mut events = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut events, None).unwrap();
        }
        assert!(!process.is_running());
        child.wait().unwrap();
    }
}
