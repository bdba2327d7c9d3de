//! The process that holds a limit of the whole machine, and ends a session on time or with its owner.
//!
//! The command that applies settings starts it and waits for it, both by pipes: the holder does nothing until it is
//! told that the journal names it, and it says when the limit is in force.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Signal, getpid, pidfd_send_signal};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::SettingsError;
use super::apply::{Lasts, Which, hold_machine_limit, revert};
use super::journal::{self, Journal, file_error, now_ns};
use super::process::Process;
use crate::Root;

/// How long a holder may take to notice that its session is over: it has nothing else to do.
const END_TIME: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Another command may be changing settings when a session's time is over.
const RETRY_TIME: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A holder that has not been told to begin.
pub(super) struct Waiting(Child);

/// A holder that holds.
#[derive(Debug)]
pub(super) struct Holding(Child);

/// Starts a holder.
pub(super) fn start(root: &Root, program: &Path, id: u64) -> Result<Waiting, SettingsError> {
    let mut command = Command::new(program);
    command.args(["settings", "hold", &id.to_string()]);
    if !root.is_live() {
        command.arg("--sysroot").arg(root.path(""));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A ctrl-c or the end of the terminal is not for it.
    command.process_group(0);
    command.spawn().map(Waiting).map_err(|error| SettingsError::HolderFailed {
        what: format!("{}: {error}", program.display()),
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

/// Waits for the end of a holder whose session is over. One that does not end is killed.
pub(super) fn wait_for_end(holder: Option<Process>) {
    let is_other = |process: &Process| process.pid != getpid().as_raw_pid();
    let Some(process) = holder.filter(is_other).and_then(Process::descriptor) else { return };
    if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&END_TIME)) == Ok(0) {
        let _ = pidfd_send_signal(&process, Signal::KILL);
        let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&END_TIME));
    }
}

/// Holds a session until it is over, its time has come, its owner has ended, or `stop` is readable. In the last three
/// cases the session is given back. Calls `ready` when the limit is in force.
///
/// # Errors
/// Fails if the limit cannot be set, or the settings cannot be given back.
pub fn hold(
    root: &Root,
    id: u64,
    stop: BorrowedFd<'_>,
    ready: impl FnOnce(),
) -> Result<(), SettingsError> {
    let fail = |source: rustix::io::Errno| file_error(root, "run/idlewise", source.into());
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(fail)?;
    let watched =
        WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::DONT_FOLLOW | WatchFlags::ONLYDIR;
    inotify::add_watch(&changes, journal::folder(root), watched).map_err(fail)?;
    let (journal, _) = Journal::read(root)?;
    let Some(session) = journal.session(id).cloned() else { return Ok(()) };
    let limit = session.machine_limit_us.map(|us| hold_machine_limit(root, us));
    let _limit = limit.transpose()?;
    let owner = session.owner.descriptor();
    let timer = session.until_ns.map(timer_at).transpose().map_err(fail)?;
    ready();
    loop {
        let Some(session) = Journal::read(root)?.0.session(id).cloned() else { return Ok(()) };
        // Until all is set, it goes with its owner in any case.
        let is_bound = session.lasts == Lasts::WhileRunning || !session.is_complete;
        let is_stopped = is_readable(stop);
        if is_stopped || session.end(now_ns()).is_some() {
            // The owner may have completed its session and ended since the journal was read. Only under the lock can
            // that be told from an owner that was killed.
            let which = if is_stopped { Which::Session(id) } else { Which::Ended };
            match revert(root, which) {
                Err(SettingsError::NoSession { .. }) => return Ok(()),
                Err(SettingsError::Busy) => {
                    let _ = poll(&mut [], Some(&RETRY_TIME));
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
            continue;
        }
        let owner = owner.as_ref().filter(|_| is_bound).map(AsFd::as_fd);
        let timer = timer.as_ref().map(AsFd::as_fd);
        let files = [Some(changes.as_fd()), Some(stop), owner, timer];
        let mut files: Vec<_> = files
            .into_iter()
            .flatten()
            .map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN))
            .collect();
        let _ = poll(&mut files, None);
        // What changed does not matter: the journal is read anyway.
        while rustix::io::read(&changes, &mut [0_u8; 4096]).is_ok_and(|byte_count| byte_count > 0) {
        }
    }
}

fn is_readable(file: BorrowedFd<'_>) -> bool {
    let mut files = [PollFd::from_borrowed_fd(file, PollFlags::IN)];
    poll(&mut files, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}

/// A timer that is readable at that time since boot, on a clock that nobody can set.
fn timer_at(at_ns: u64) -> Result<OwnedFd, rustix::io::Errno> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    // 0 would mean never.
    let at = Timespec::try_from(Duration::from_nanos(at_ns.max(1))).unwrap_or_default();
    let value = Itimerspec { it_interval: Timespec::default(), it_value: at };
    timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &value)?;
    Ok(timer)
}
