//! tracefs, and an instance of our own in it: buffers and events that no other tracer shares.
//!
//! # A recorder that dies
//!
//! An instance outlives the process that made it. Two things keep a killed recorder harmless. It
//! holds the instance's `free_buffer` open, and the kernel, which closes it with the process, then
//! stops the instance's tracing and frees its memory. And it holds a lock on the instance's folder
//! (flock), which goes with the process too: the next recorder takes an `idlewise-` instance that
//! nobody has locked for a dead one's and removes it. Process numbers would not tell, since two
//! containers may both have a process 17; while an instance is being made and has no lock yet, the
//! folder of all instances is locked.
//!
//! Files that control function tracing are never opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::Root;
use crate::record::RecordError;

/// What the names of our instances begin with.
const PREFIX: &str = "idlewise-";

/// A mounted tracefs.
#[derive(Clone, Debug)]
pub struct Tracefs {
    folder: PathBuf,
}

impl Tracefs {
    /// Finds the tracefs of a machine.
    ///
    /// # Errors
    /// If it isn't mounted, the kernel has none, or we may not look into it.
    pub fn find(root: &Root) -> Result<Self, RecordError> {
        let mut folders =
            vec![root.path("sys/kernel/tracing"), root.path("sys/kernel/debug/tracing")];
        let mounts = root.text("proc/mounts").unwrap_or_default();
        folders.extend(mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (folder, kind) = (words.next()?, words.next()?);
            (kind == "tracefs").then(|| root.path(folder.trim_start_matches('/')))
        }));
        for folder in folders {
            match fs::metadata(folder.join("instances")) {
                Ok(_) => return Ok(Tracefs { folder }),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(RecordError::NotPermitted { path: folder, source: error });
                }
                Err(_) => {}
            }
        }
        // `nodev`, a tab, the name.
        let kinds = root.text("proc/filesystems").unwrap_or_default();
        match kinds.lines().any(|line| line.split_whitespace().last() == Some("tracefs")) {
            true => Err(RecordError::NotMounted),
            false => Err(RecordError::NoTracefs),
        }
    }

    /// A file of tracefs as bytes.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, RecordError> {
        read(&self.path(name))
    }

    /// Where a file of tracefs is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn instances(&self) -> PathBuf {
        self.folder.join("instances")
    }
}

/// An instance, removed when dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    folder: PathBuf,
    /// `None` only while the instance goes.
    free_buffer: Option<File>,
    /// Locked as long as we live.
    _lock: File,
}

impl Instance {
    /// Removes the instances of dead recorders, and makes a new one that traces nothing yet.
    /// Returns also how many were removed.
    pub(crate) fn create(tracefs: &Tracefs) -> Result<(Self, usize), RecordError> {
        let instances = tracefs.instances();
        let deny = |source: io::Error| RecordError::tracefs(&instances, source);
        let all = File::open(&instances).map_err(deny)?;
        flock(&all, FlockOperation::LockExclusive).map_err(|error| deny(error.into()))?;
        let removed_count = remove_dead(&instances).map_err(deny)?;
        let (folder, lock) = make(&instances).map_err(deny)?;
        let mut instance = Instance { folder, free_buffer: None, _lock: lock };
        instance.set("tracing_on", "0")?;
        // Kernels before 3.10 can't; there a killed recorder's instance goes on tracing.
        let _ = instance.set("options/disable_on_free", "1");
        let free_buffer = instance.path("free_buffer");
        let opened = OpenOptions::new().write(true).open(&free_buffer);
        instance.free_buffer = Some(opened.map_err(|e| RecordError::tracefs(&free_buffer, e))?);
        Ok((instance, removed_count))
    }

    /// Where a file of the instance is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a control file.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<(), RecordError> {
        let path = self.path(name);
        let mut file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .map_err(|e| RecordError::tracefs(&path, e))?;
        file.write_all(value.as_bytes()).map_err(|e| RecordError::tracefs(&path, e))
    }

    /// Reads a file.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, RecordError> {
        read(&self.path(name))
    }

    /// Removes the instance. All its other files must be closed. Gives it back if somebody else has
    /// one open, as `cat trace_pipe` does; then it has no buffers any more.
    pub(crate) fn remove(mut self) -> Result<(), Self> {
        self.tear_down().map_err(|_| self)
    }

    /// Where it stays, if it does.
    pub(crate) fn into_path(self) -> Option<PathBuf> {
        self.folder.exists().then(|| self.folder.clone())
    }

    fn tear_down(&mut self) -> io::Result<()> {
        if self.free_buffer.take().is_none() && !self.folder.exists() {
            return Ok(());
        }
        fs::remove_dir(&self.folder)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Whoever had to know has called `remove`; the next recorder tries again.
        let _ = self.tear_down();
    }
}

/// Reads a file in large pieces: some of tracefs, such as `events/header_page`, give one piece
/// however small, and then nothing more.
fn read(path: &Path) -> Result<Vec<u8>, RecordError> {
    const PIECE_BYTE_COUNT: usize = 1 << 16;
    let fail = |source| RecordError::tracefs(path, source);
    let mut file = File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    loop {
        let start = bytes.len();
        bytes.resize(start + PIECE_BYTE_COUNT, 0);
        let outcome = file.read(&mut bytes[start..]);
        bytes.truncate(start + *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Ok(0) => return Ok(bytes),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(fail(error)),
        }
    }
}

fn remove_dead(instances: &Path) -> io::Result<usize> {
    let mut removed_count = 0;
    for entry in fs::read_dir(instances)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // It may go before we look.
        let Ok(folder) = File::open(entry.path()) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        // Somebody may be reading what the dead one left.
        removed_count += usize::from(fs::remove_dir(entry.path()).is_ok());
    }
    Ok(removed_count)
}

/// Makes a folder with a name that nobody has, and locks it.
fn make(instances: &Path) -> io::Result<(PathBuf, File)> {
    let process = std::process::id();
    for attempt in 0.. {
        let folder = instances.join(format!("{PREFIX}{process}-{attempt}"));
        match fs::create_dir(&folder) {
            Ok(()) => {
                let lock = File::open(&folder)?;
                flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
                return Ok((folder, lock));
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("names don't run out")
}
