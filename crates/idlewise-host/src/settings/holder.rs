//! Starts the process that holds a limit of the whole machine and ends a session on time or with its owner, and waits
//! for it: by pipes. It does nothing until it is told that the journal names it, and says when the limit is in force.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::process::{Signal, getpid, pidfd_send_signal};

use super::SettingsError;
use super::process::Process;
use crate::Root;

/// How long a holder may take to notice that its session is over: it has nothing else to do.
const END_TIME: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Where its error output goes.
const NULL: &str = "/dev/null";

/// What the program is started with.
const COMMAND: [&str; 2] = ["set", "hold"];

/// A holder that has not been told to begin.
pub(super) struct Waiting(Child);

/// A holder that holds.
#[derive(Debug)]
pub(super) struct Holding(Child);

/// Starts a holder.
pub(super) fn start(root: &Root, program: &Path, id: u64) -> Result<Waiting, SettingsError> {
    let mut command = Command::new(program);
    command.args(COMMAND).arg(id.to_string());
    if !root.is_live() {
        command.arg("--sysroot").arg(root.path(""));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A ctrl-c or the end of the terminal is not for it.
    command.process_group(0);
    command.spawn().map(Waiting).map_err(|error| {
        // What is missing may be what its output goes to.
        let is_null_missing = error.kind() == ErrorKind::NotFound && program.exists();
        let what = match is_null_missing && !Path::new(NULL).exists() {
            true => format!("{NULL} is missing; as root: mknod -m 666 {NULL} c 1 3"),
            false => format!("{}: {error}", program.display()),
        };
        SettingsError::HolderFailed { what }
    })
}

impl Waiting {
    pub(super) fn process(&self) -> Process {
        Process::with(self.0.id().cast_signed())
    }

    /// Tells it to begin, and waits until it holds.
    pub(super) fn begin(mut self) -> Result<Holding, SettingsError> {
        let told = self.0.stdin.take().map(|mut pipe| pipe.write_all(b"."));
        let answer = self.0.stdout.take().map(|mut pipe| pipe.read_exact(&mut [0]));
        match (told, answer) {
            (Some(Ok(())), Some(Ok(()))) => Ok(Holding(self.0)),
            _ => {
                let _ = self.0.kill();
                let what = match self.0.wait() {
                    Ok(status) => format!("it ended at once ({status})"),
                    Err(error) => error.to_string(),
                };
                Err(SettingsError::HolderFailed { what })
            }
        }
    }
}

impl Drop for Holding {
    /// One that has ended must not stay a zombie.
    fn drop(&mut self) {
        let _ = self.0.try_wait();
    }
}

/// Waits for the end of a holder whose session is over. One that does not end is killed. A process that is no holder is let
/// be, whatever the journal says: it may be one of a copied tree.
pub(super) fn wait_for_end(holder: Option<Process>) {
    let is_other = |process: &Process| process.pid != getpid().as_raw_pid();
    let Some(holder) = holder.filter(is_other) else { return };
    let [one, other] = COMMAND;
    let descriptor = holder.descriptor().filter(|_| holder.was_started_with(one, other));
    let Some(process) = descriptor else { return };
    if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&END_TIME)) == Ok(0) {
        let _ = pidfd_send_signal(&process, Signal::KILL);
        let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&END_TIME));
    }
}
