//! What a holder does: it holds a limit of the whole machine, and ends a session on time or with its owner.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::SettingsError;
use super::apply::{Which, hold_machine_limit, revert};
use super::error::file_error;
use super::journal::{self, Journal, Lasts, now_ns};
use crate::Root;

/// Another command may be changing settings when a session's time is over.
const RETRY_TIME: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

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
