//! A private folder, in which a compiler or a bundled command works. They need files with names, so this folder
//! could be left behind when idlewise ends. Two rules prevent that:
//!
//! - For a signal that asks idlewise to end, [`end_without_compilers`] stops the compiler and removes all
//!   folders.
//! - For SIGKILL, the folder has a lock (flock) that ends with the process. The next process that creates such a
//!   folder, for whatever purpose, removes the same user's unlocked ones.

use std::env;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::process_group::kill_group;

/// What this process must stop and remove before it ends.
static OWN: Mutex<Own> = Mutex::new(Own { folders: Vec::new(), compilers: Vec::new() });

struct Own {
    folders: Vec<PathBuf>,
    /// The process groups of running compilers.
    compilers: Vec<u32>,
}

fn own() -> MutexGuard<'static, Own> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops all running compilers, removes all private folders, and calls `end`, which ends the process. No new ones
/// start meanwhile.
pub fn end_without_compilers(end: impl FnOnce()) {
    let own = own();
    own.compilers.iter().for_each(|&leader| kill_group(leader));
    for folder in &own.folders {
        let _ = fs::remove_dir_all(folder);
    }
    end();
}

/// Starts a compiler as the leader of its own process group. Call [`has_ended`] afterwards.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    let mut own = own();
    let child = command.spawn()?;
    own.compilers.push(child.id());
    Ok(child)
}

/// Records that the compiler has ended or is about to. Its process id is not reused yet.
pub(crate) fn has_ended(compiler: &Child) {
    own().compilers.retain(|&leader| leader != compiler.id());
}

/// What folders are for: their names begin with one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To compile a governor.
    Compile,
    /// To run a bundled command.
    Bundle,
}

impl Purpose {
    const ALL: [Purpose; 2] = [Purpose::Compile, Purpose::Bundle];

    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Purpose::Compile => "idlewise-compile-",
            Purpose::Bundle => "idlewise-bundle-",
        }
    }
}

/// A private folder, removed when dropped. If this process is killed, the next one that makes a folder removes it.
pub struct WorkFolder {
    path: PathBuf,
    /// `None` if the file system has no locks. Then nobody can mistake the folder for a dead one either.
    _lock: Option<File>,
}

impl WorkFolder {
    /// Removes what dead processes left behind, and creates a new folder.
    ///
    /// # Errors
    /// If the folder for temporary files does not allow it.
    pub fn new(purpose: Purpose) -> io::Result<Self> {
        let parent = env::temp_dir().canonicalize()?;
        remove_dead(&parent);
        loop {
            let path = {
                let mut own = own();
                let folder = tempfile::Builder::new()
                    .prefix(purpose.prefix())
                    .permissions(Permissions::from_mode(0o700))
                    .tempdir_in(&parent)?;
                let path = folder.keep();
                own.folders.push(path.clone());
                path
            };
            let lock = File::open(&path).ok();
            let lock = lock.filter(|lock| flock(lock, FlockOperation::LockExclusive).is_ok());
            let folder = WorkFolder { path, _lock: lock };
            // Before it was locked, it looked like a dead process's folder.
            if folder.path.is_dir() {
                return Ok(folder);
            }
        }
    }

    /// Returns its path, which has no links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        let mut own = own();
        let _ = fs::remove_dir_all(&self.path);
        own.folders.retain(|path| *path != self.path);
    }
}

/// Removes the user's unlocked folders.
fn remove_dead(parent: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_for = |it: &Purpose| name.as_encoded_bytes().starts_with(it.prefix().as_bytes());
        if !Purpose::ALL.iter().any(is_for) {
            continue;
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        // It may be removed before this opens it.
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(entry.path());
        let is_ours = |folder: &File| folder.metadata().is_ok_and(|found| found.uid() == user);
        let Some(folder) = opened.ok().filter(is_ours) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_only_dead_ones_away() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(format!("idlewise-compile-{name}"));
        for name in ["dead", "alive"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("governor.c"), "").unwrap();
        }
        fs::create_dir(parent.path().join("another")).unwrap();
        std::os::unix::fs::symlink(path("alive"), path("link")).unwrap();
        fs::write(path("file"), "").unwrap();
        let alive = File::open(path("alive")).unwrap();
        flock(&alive, FlockOperation::LockExclusive).unwrap();
        // Whatever a killed process left, any other one removes.
        fs::create_dir(parent.path().join("idlewise-bundle-dead")).unwrap();
        fs::create_dir(parent.path().join("idlewise-results")).unwrap();
        let remove_dead = || remove_dead(parent.path());
        remove_dead();
        assert!(!path("dead").exists());
        assert!(!parent.path().join("idlewise-bundle-dead").exists());
        for left in [
            path("alive").join("governor.c"),
            parent.path().join("another"),
            parent.path().join("idlewise-results"),
            path("file"),
        ] {
            assert!(left.exists(), "{}", left.display());
        }
        assert!(path("link").is_symlink());
        drop(alive);
        remove_dead();
        assert!(!path("alive").exists());
    }
}
