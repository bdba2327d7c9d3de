//! The private folder in which a bundle is put together or unpacked, and the commands that run there.

use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, io};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::error::Failure;
use crate::governors::IN_BUNDLE;

/// What this process must stop and remove before a signal ends it.
static OWN: Mutex<Own> = Mutex::new(Own { folders: Vec::new(), child: None });

struct Own {
    folders: Vec<PathBuf>,
    child: Option<Pid>,
}

fn own() -> MutexGuard<'static, Own> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the bundled command that runs, removes the folder, and calls `end`, which ends the process.
pub fn end_without_bundles(end: impl FnOnce()) {
    let own = own();
    if let Some(child) = own.child {
        let _ = kill_process(child, Signal::KILL);
    }
    for folder in &own.folders {
        let _ = fs::remove_dir_all(folder);
    }
    end();
}

/// A fresh folder that only the user can enter. It is removed when dropped.
pub struct WorkFolder(PathBuf);

impl WorkFolder {
    pub fn new() -> Result<Self, Failure> {
        let parent = env::temp_dir();
        let fail = |error: io::Error| {
            let parent = parent.display();
            Failure::new(format_args!("cannot make a folder in {parent}: {error}; set TMPDIR"))
        };
        let mut own = own();
        let folder = tempfile::Builder::new()
            .prefix("idlewise-bundle-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&parent)
            .and_then(|folder| folder.keep().canonicalize())
            .map_err(fail)?;
        own.folders.push(folder.clone());
        Ok(WorkFolder(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let mut own = own();
        let _ = fs::remove_dir_all(&self.0);
        own.folders.retain(|folder| *folder != self.0);
    }
}

/// Runs idlewise in `folder`. Its standard output goes to a file. Returns its exit status, which is negative
/// if a signal ended it.
pub fn run(
    folder: &Path,
    words: &[String],
    stdout: File,
    stderr: impl Into<Stdio>,
) -> Result<i32, Failure> {
    let fail = |error: io::Error| Failure::new(format_args!("cannot run idlewise itself: {error}"));
    let mut command = Command::new(program().map_err(fail)?);
    command.args(words).current_dir(folder).env(IN_BUNDLE, "1");
    // A pipe that nobody writes to: in an empty root there is no /dev/null.
    command.stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
    let mut child = {
        let mut own = own();
        let mut child = command.spawn().map_err(fail)?;
        drop(child.stdin.take());
        own.child = Some(Pid::from_child(&child));
        child
    };
    end(&mut child).map_err(fail)
}

/// Waits for the end. Until `wait` its number belongs to no other process, so a signal can kill nobody else.
fn end(child: &mut Child) -> io::Result<i32> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let pid = Pid::from_child(child);
    while matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR)) {}
    own().child = None;
    Ok(child.wait()?.code().unwrap_or(-1))
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
