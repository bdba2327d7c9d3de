//! tracefs, and a private instance in it, whose buffers and events no other tracer shares.
//!
//! # A recorder that dies
//!
//! An instance outlives the process that created it. Two things make a killed recorder harmless.
//! First, it holds the instance's `free_buffer` open. When the kernel closes that file with the
//! process, it stops the instance's tracing and frees its memory. Second, it holds a lock (flock)
//! on the instance's folder, which is also released with the process. The next recorder treats an
//! unlocked `idlewise-` instance as dead and removes it. Process IDs would not work, because two
//! containers may each have a process 17. While an instance is being created and has no lock yet,
//! the folder of all instances is locked.
//!
//! Files that control function tracing are never opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FlockOperation, OFlags, accessat, flock};

use crate::Root;
use crate::record_error::RecordError;

/// The prefix of our instances' names.
const PREFIX: &str = "idlewise-";

/// A mounted tracefs.
#[derive(Clone, Debug)]
pub struct Tracefs {
    /// Its place below the root.
    name: String,
    folder: PathBuf,
}

impl Tracefs {
    /// Finds the tracefs of a machine.
    ///
    /// # Errors
    /// Fails if it is not mounted, the kernel has none, or we have no permission.
    pub fn find(root: &Root) -> Result<Self, RecordError> {
        // Not debugfs's folder `tracing`, unless it is listed: the kernel mounts tracefs when somebody looks there.
        let mut names = vec!["sys/kernel/tracing".to_owned()];
        let mounts = root.text("proc/mounts").unwrap_or_default();
        names.extend(mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (folder, kind) = (words.next()?, words.next()?);
            (kind == "tracefs").then(|| folder.trim_start_matches('/').to_owned())
        }));
        for name in names {
            let folder = root.path(&name);
            match root.open_as(&format!("{name}/instances"), OFlags::PATH) {
                Ok(_) => return Ok(Tracefs { name, folder }),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(RecordError::NotPermitted { path: folder, source: error });
                }
                Err(_) => {}
            }
        }
        if let Some(name) = ["proc", "sys"].into_iter().find(|name| root.hides(name)) {
            return Err(RecordError::Hidden { name });
        }
        // `nodev`, a tab, the name.
        let kinds = root.text("proc/filesystems").unwrap_or_default();
        match kinds.lines().any(|line| line.split_whitespace().last() == Some("tracefs")) {
            true => Err(RecordError::NotMounted),
            false => Err(RecordError::NoTracefs),
        }
    }

    /// Reads a file of tracefs.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>, RecordError> {
        read(&self.path(name))
    }

    /// The path of a file of tracefs.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn instances(&self) -> PathBuf {
        self.folder.join("instances")
    }

    /// The names of the events of a system.
    pub(crate) fn events_of(&self, root: &Root, system: &str) -> Vec<String> {
        root.names(&format!("{}/events/{system}", self.name))
    }

    /// Fails if an instance could not be created. Creates none.
    pub(crate) fn check_instances(&self, root: &Root) -> Result<(), RecordError> {
        let deny = |source| RecordError::tracefs(&self.instances(), source);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let name = format!("{}/instances", self.name);
        let instances = root.open_as(&name, flags).map_err(deny)?;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        accessat(&instances, ".", access, AtFlags::EACCESS).map_err(|error| deny(error.into()))
    }

    /// Fails if an event's description cannot be opened.
    pub(crate) fn check_event(&self, root: &Root, event: &str) -> Result<(), RecordError> {
        let file = format!("events/{event}/format");
        let opened = root.open(&format!("{}/{file}", self.name));
        opened.map(drop).map_err(|source| RecordError::tracefs(&self.path(&file), source))
    }
}

/// An instance, removed when dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    folder: PathBuf,
    /// `None` only while the instance is being removed.
    free_buffer: Option<File>,
    /// Locked while this value exists.
    _lock: File,
}

impl Instance {
    /// Removes the instances of dead recorders, and creates one that does not trace yet. Also
    /// returns how many were removed.
    pub(crate) fn create(tracefs: &Tracefs) -> Result<(Self, usize), RecordError> {
        let instances = tracefs.instances();
        let deny = |source: io::Error| RecordError::tracefs(&instances, source);
        let all = File::open(&instances).map_err(deny)?;
        flock(&all, FlockOperation::LockExclusive).map_err(|error| deny(error.into()))?;
        let removed_count = remove_dead(&instances).map_err(deny)?;
        let (folder, lock) = make(&instances).map_err(deny)?;
        let mut instance = Instance { folder, free_buffer: None, _lock: lock };
        instance.set("tracing_on", "0")?;
        // Not supported before Linux 3.10, where a killed recorder's instance keeps tracing.
        let _ = instance.set("options/disable_on_free", "1");
        let free_buffer = instance.path("free_buffer");
        let opened = OpenOptions::new().write(true).open(&free_buffer);
        instance.free_buffer = Some(opened.map_err(|e| RecordError::tracefs(&free_buffer, e))?);
        Ok((instance, removed_count))
    }

    /// The path of a file of the instance.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The file that holds a CPU's events as the kernel packed them, page by page.
    pub(crate) fn ring_path(&self, cpu: u16) -> PathBuf {
        self.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"))
    }

    /// Opens it. Reading does not wait for events.
    pub(crate) fn open_ring(&self, cpu: u16) -> Result<File, RecordError> {
        let path = self.ring_path(cpu);
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        options.open(&path).map_err(|source| RecordError::tracefs(&path, source))
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

    /// Removes the instance. All its other files must be closed. If another program has one open,
    /// like `cat trace_pipe`, the instance is returned; its buffers have been freed.
    pub(crate) fn remove(mut self) -> Result<(), Self> {
        self.tear_down().map_err(|_| self)
    }

    /// The path of the instance, if it still exists.
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
        // Callers that need the result have called `remove`. The next recorder tries again.
        let _ = self.tear_down();
    }
}

/// Reads a file in large pieces. Some files of tracefs, such as `events/header_page`, return one
/// piece of any size and then nothing more.
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
        // It may disappear before we open it.
        let Ok(folder) = File::open(entry.path()) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        // Another program may be reading what the dead recorder left.
        removed_count += usize::from(fs::remove_dir(entry.path()).is_ok());
    }
    Ok(removed_count)
}

/// Creates a folder with an unused name, and locks it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn the_folder_of_debugfs_is_left_alone_unless_tracefs_is_mounted_there() {
        let find = |mounts: &str| {
            let (_folder, root) = machine(&[
                ("sys/kernel/debug/tracing/instances/none", ""),
                ("proc/filesystems", "nodev\ttracefs\n"),
                ("proc/mounts", mounts),
            ]);
            Tracefs::find(&root).map(|found| found.name)
        };
        let debugfs = "debugfs /sys/kernel/debug debugfs rw 0 0\n";
        assert!(matches!(find(debugfs), Err(RecordError::NotMounted)));
        let both = format!("{debugfs}tracefs /sys/kernel/debug/tracing tracefs rw 0 0\n");
        assert_eq!(find(&both).unwrap(), "sys/kernel/debug/tracing");
    }
}
