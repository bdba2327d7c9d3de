//! The private folder in which a bundle is put together or unpacked, and the commands that run there. It is not in
//! `cmd/bundle`, because signals end both.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, io};

use idlewise_plugin::{Purpose, WorkFolder};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, set_parent_process_death_signal,
    waitid,
};

use idlewise_lab::roster::IN_BUNDLE;

use crate::error::{Failure, Result};
use crate::role::Promise;

/// The bundled command that runs, which this process must stop before it ends.
static CHILD: Mutex<Option<Pid>> = Mutex::new(None);

fn child() -> MutexGuard<'static, Option<Pid>> {
    CHILD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the bundled command that runs, and calls `end`, which removes the folder and ends the process.
pub fn end_without_bundles(end: impl FnOnce()) {
    let child = child();
    if let Some(child) = *child {
        let _ = kill_process(child, Signal::KILL);
        // Until it has ended it may still write into the folder.
        wait_for(child);
    }
    end();
}

/// A bundled command that is not a measurement ends with the process that started it, even if that is killed.
pub fn end_with_bundle() {
    let started_by = env::var(IN_BUNDLE).ok().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    if started_by.is_none() {
        return;
    }
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It may have been killed before this process asked for the signal.
    if getppid() != started_by {
        std::process::exit(2);
    }
}

/// A fresh folder that only the user can enter. It is removed when dropped.
pub fn work_folder() -> Result<WorkFolder> {
    WorkFolder::new(Purpose::Bundle).map_err(|error| {
        let parent = env::temp_dir();
        let parent = parent.display();
        Failure::new(format_args!("cannot make a folder in {parent}: {error}; set TMPDIR"))
    })
}

/// Runs idlewise in `folder`. Its standard output goes to a file. Returns its exit status, which is negative
/// if a signal ended it.
pub fn run(
    folder: &std::path::Path,
    words: &[String],
    promise: Promise,
    stdout: File,
    stderr: impl Into<Stdio>,
) -> Result<i32> {
    let fail = |error: io::Error| Failure::new(format_args!("cannot run idlewise itself: {error}"));
    let mut command = Command::new(program().map_err(fail)?);
    // A measurement may start any command, another idlewise too, which would take the number for its parent's.
    let starter = match promise {
        Promise::Same => std::process::id().to_string(),
        Promise::Measured => String::new(),
    };
    command.args(words).current_dir(folder).env(IN_BUNDLE, starter);
    // A pipe that nobody writes to: in an empty root there is no /dev/null.
    command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
    let mut started = {
        let mut child = child();
        let mut started = command.spawn().map_err(fail)?;
        drop(started.stdin.take());
        *child = Some(Pid::from_child(&started));
        started
    };
    end(&mut started).map_err(fail)
}

/// Waits for the end. Until `wait` its number belongs to no other process, so a signal can kill nobody else.
fn end(started: &mut Child) -> io::Result<i32> {
    wait_for(Pid::from_child(started));
    *child() = None;
    Ok(started.wait()?.code().unwrap_or(-1))
}

/// Waits for the end of a child, which then still has its number.
fn wait_for(child: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(child), options), Err(Errno::INTR)) {}
}

/// The running program.
fn program() -> io::Result<PathBuf> {
    env::current_exe().or_else(|error| {
        // Without /proc, the kernel's own note of how it was started says it.
        let started = rustix::param::linux_execfn();
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(started.to_bytes()));
        path.canonicalize().map_err(|_| error)
    })
}
