//! Sessions and slots, the file they are kept in, and the lock that every change takes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::poll;
use rustix::fs::{
    Access, AtFlags, FlockOperation, Mode, OFlags, Timespec, accessat, flock, fstat, fsync,
    mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::SettingsError;
use super::error::file_error;
use super::process::Process;
use super::wishes::{is_limit_file, is_setting_file, limit_us};
use crate::Root;

const FOLDER: &str = "run/idlewise";
const FILE: &str = "run/idlewise/journal.json";
const NAME: &str = "journal.json";
const NEW_NAME: &str = "journal.new";
const LOCK_NAME: &str = "lock";
const VERSION: u32 = 1;
/// So many sessions are never begun.
const NEXT_ID_MAX: u64 = 1 << 53;

/// The longest journal that is read or written. One command that sets every state of 4,096 CPUs needs some ten million
/// bytes, and each further one three.
pub(super) const BYTE_COUNT_MAX: u64 = 64 << 20;
/// A journal with a new wish may have half of that. While wishes are given back it grows, because each file's next value
/// is noted before it is written. Every such value is in it already, so it at most doubles.
const BYTE_COUNT_MAX_OF_NEW: u64 = BYTE_COUNT_MAX / 2;

/// How long to wait for another command's change. That takes milliseconds, and seconds on thousands of CPUs, where
/// several commands may queue.
const LOCK_ATTEMPT_COUNT: u32 = 3_000;
const LOCK_RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// What idlewise has set on a machine, and for whom.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journal {
    version: u32,
    /// The boot in which it is true.
    boot_id: Option<String>,
    /// The number of the next session.
    next_id: u64,
    pub sessions: Vec<Session>,
    pub slots: Vec<Slot>,
}

/// How long settings last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasts {
    /// Until the process that applied them ends, if not given back before.
    WhileRunning,
    /// Until somebody reverts them.
    UntilReverted,
}

/// What one command wishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    pub id: u64,
    pub command: String,
    pub reason: Option<String>,
    pub owner: Process,
    pub lasts: Lasts,
    /// When it began, in nanoseconds since boot. That clock runs in suspend, and nobody can set it.
    pub since_ns: u64,
    /// When it ends.
    pub until_ns: Option<u64>,
    /// The settings as the user wrote them.
    pub settings: Vec<String>,
    /// The value that each file is to have.
    pub files: BTreeMap<String, String>,
    pub machine_limit_us: Option<u32>,
    /// Whether its wishes come before those of others. There is one such session at most.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_overlay: bool,
    pub holder: Option<Process>,
    /// Whether all of it was set.
    pub is_complete: bool,
}

/// A file that sessions wish something of.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slot {
    pub file: String,
    /// What was in it before idlewise wrote to it.
    pub found: String,
    /// What may be in it because of us.
    pub ours: Vec<String>,
}

impl Session {
    /// Why it is over, if it is.
    pub fn end(&self, now_ns: u64) -> Option<&'static str> {
        let is_bound = self.lasts == Lasts::WhileRunning || !self.is_complete;
        match self.until_ns {
            Some(until_ns) if until_ns <= now_ns => Some("its time is over"),
            _ if is_bound && !self.owner.is_running() => match self.is_complete {
                true => Some("its process has ended"),
                false => Some("its process was killed while it changed settings"),
            },
            _ => None,
        }
    }
}

impl Journal {
    fn new(root: &Root) -> Self {
        Journal { version: VERSION, boot_id: boot_id(root), ..Journal::default() }
    }

    /// Reads it. A missing one is empty, and so is the one of another boot: the second value says that there
    /// was such.
    pub fn read(root: &Root) -> Result<(Self, bool), SettingsError> {
        let text = match root.whole_text_beneath(FILE, BYTE_COUNT_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((Self::new(root), false));
            }
            Err(source)
                if matches!(source.kind(), ErrorKind::FileTooLarge | ErrorKind::InvalidData) =>
            {
                let (path, problem) = (root.path(FILE), source.to_string());
                return Err(SettingsError::DamagedJournal { path, problem });
            }
            Err(source) => return Err(file_error(root, FILE, source)),
        };
        let damaged =
            |problem: String| SettingsError::DamagedJournal { path: root.path(FILE), problem };
        let journal: Journal =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if journal.version != VERSION {
            let problem =
                format!("it is of version {}, and this idlewise has {VERSION}", journal.version);
            return Err(damaged(problem));
        }
        if journal.boot_id != boot_id(root) {
            return Ok((Self::new(root), true));
        }
        match journal.problem() {
            Some(problem) => Err(damaged(problem)),
            None => Ok((journal, false)),
        }
    }

    /// What can't be so. Nothing else is ever written, so nothing else may be in it: it says where root writes what.
    fn problem(&self) -> Option<String> {
        let of_sessions = self.sessions.iter().flat_map(|session| session.files.keys());
        let mut files = self.slots.iter().map(|slot| &slot.file).chain(of_sessions);
        if let Some(file) = files.find(|file| !is_setting_file(file)) {
            return Some(format!("it names {file:?}, which is no setting"));
        }
        if self.slot_places().len() < self.slots.len() {
            return Some("it names a file twice".to_owned());
        }
        let ids: BTreeSet<u64> = self.sessions.iter().map(|session| session.id).collect();
        let is_counted = ids.len() == self.sessions.len()
            && ids.last().is_none_or(|&last| last <= self.next_id)
            && self.next_id < NEXT_ID_MAX;
        (!is_counted).then(|| "the numbers of its sessions can't be so".to_owned())
    }

    /// Fails if it is too long to be written with a new wish in it.
    pub fn check_room(&self, root: &Root) -> Result<(), SettingsError> {
        let mut count = ByteCount(0);
        // Counting cannot fail.
        let _ = serde_json::to_writer_pretty(&mut count, self);
        match count.0 > BYTE_COUNT_MAX_OF_NEW {
            true => Err(SettingsError::NoRoom {
                path: root.path(FILE),
                byte_count: count.0,
                byte_count_max: BYTE_COUNT_MAX_OF_NEW,
            }),
            false => Ok(()),
        }
    }

    /// The places of the slots by their files.
    pub fn slot_places(&self) -> HashMap<String, usize> {
        let places = self.slots.iter().enumerate();
        places.map(|(place, slot)| (slot.file.clone(), place)).collect()
    }

    pub fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub fn session(&self, id: u64) -> Option<&Session> {
        self.sessions.iter().find(|session| session.id == id)
    }

    /// Whether anything is in it.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.slots.is_empty()
    }

    /// What the sessions wish of a file: the overlay's wish if there is one. The others agree, or it is a latency
    /// limit and the smallest counts.
    pub fn wish(&self, file: &str) -> Option<&str> {
        let wish = |session: &&Session| session.files.contains_key(file);
        if let Some(overlay) = self.sessions.iter().filter(|session| session.is_overlay).find(wish)
        {
            return overlay.files.get(file).map(String::as_str);
        }
        let wishes = self.sessions.iter().filter_map(|session| session.files.get(file));
        wishes.map(String::as_str).min_by_key(|value| limit_us(value))
    }

    /// The session that wishes another value of a file, if that is a contradiction.
    pub fn opponent(&self, file: &str, value: &str) -> Option<&Session> {
        let differs = |session: &&Session| {
            !session.is_overlay && session.files.get(file).is_some_and(|v| v != value)
        };
        self.sessions.iter().find(differs).filter(|_| !is_limit_file(file))
    }
}

/// The folder with the journal, locked: nobody else changes settings until it is dropped.
pub(super) struct RunFolder<'a> {
    root: &'a Root,
    folder: OwnedFd,
    #[expect(dead_code, reason = "kept for its lock")]
    lock: OwnedFd,
}

impl<'a> RunFolder<'a> {
    /// Makes the folder if it is missing, and takes the lock.
    pub fn lock(root: &'a Root) -> Result<Self, SettingsError> {
        check_rights(root)?;
        let fail = |source: Errno| file_error(root, FOLDER, source.into());
        let mode = Mode::from_raw_mode(0o755);
        let above = root.folder_beneath("").map_err(|source| file_error(root, "", source))?;
        for name in ["run", FOLDER] {
            match mkdirat(&above, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(fail(error)),
            }
        }
        let path =
            root.folder_beneath(FOLDER).map_err(|source| file_error(root, FOLDER, source))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&path, ".", flags, Mode::empty()).map_err(fail)?;
        check_owner(root, &folder, FOLDER)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let lock = openat(&folder, LOCK_NAME, flags, Mode::from_raw_mode(0o600)).map_err(fail)?;
        wait_for(&lock)?;
        Ok(RunFolder { root, folder, lock })
    }

    /// Replaces the journal on disk. An empty one has no file.
    pub fn save(&self, journal: &Journal) -> Result<(), SettingsError> {
        let saved = match journal.is_empty() {
            true => self.remove(),
            false => self.replace(journal),
        };
        saved.map_err(|source| file_error(self.root, FILE, source))
    }

    fn replace(&self, journal: &Journal) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(journal)?;
        text.push(b'\n');
        if text.len() as u64 > BYTE_COUNT_MAX {
            // Nobody could read it back.
            return Err(ErrorKind::FileTooLarge.into());
        }
        // What a killed command left is no journal. It is removed rather than opened: it could be a link.
        let _ = unlinkat(&self.folder, NEW_NAME, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let mut file = File::from(openat(&self.folder, NEW_NAME, flags, mode)?);
        file.write_all(&text)?;
        file.sync_all()?;
        renameat(&self.folder, NEW_NAME, &self.folder, NAME)?;
        Ok(fsync(&self.folder)?)
    }

    fn remove(&self) -> io::Result<()> {
        for name in [NAME, NEW_NAME] {
            match unlinkat(&self.folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(fsync(&self.folder)?)
    }
}

/// Counts what would be written.
struct ByteCount(u64);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The folder to watch for changes of the journal.
pub(super) fn folder(root: &Root) -> std::path::PathBuf {
    root.path(FOLDER)
}

/// Only root may change settings. A captured machine belongs to whoever has the folder.
pub(super) fn check_rights(root: &Root) -> Result<(), SettingsError> {
    match root.is_live() && !geteuid().is_root() {
        true => Err(SettingsError::NotRoot),
        false => Ok(()),
    }
}

/// Reads the journal. Fails if this process may not change settings, or could not write the journal. Creates nothing.
pub(super) fn check_journal(root: &Root) -> Result<Journal, SettingsError> {
    check_rights(root)?;
    check_folder(root)?;
    Ok(Journal::read(root)?.0)
}

/// Fails if the journal could not be written. Creates nothing.
fn check_folder(root: &Root) -> Result<(), SettingsError> {
    let fail = |name: &str, source: Errno| file_error(root, name, source.into());
    // A missing folder is created in the one above.
    for name in [FOLDER, "run", ""] {
        let folder = match root.folder_beneath(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.map_err(|source| file_error(root, name, source))?,
        };
        if name == FOLDER {
            check_owner(root, &folder, name)?;
        }
        let access = Access::WRITE_OK | Access::EXEC_OK;
        return accessat(&folder, ".", access, AtFlags::EACCESS).map_err(|error| fail(name, error));
    }
    Ok(())
}

/// Nobody else may be able to put a journal there.
fn check_owner(root: &Root, folder: &OwnedFd, name: &str) -> Result<(), SettingsError> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let stat = fstat(folder).map_err(|source| file_error(root, name, source.into()))?;
    let is_closed = stat.st_mode & WRITABLE_BY_OTHERS == 0;
    match stat.st_uid {
        owner if is_closed && owner == geteuid().as_raw() => Ok(()),
        0 if is_closed => Err(SettingsError::NotRoot),
        _ => Err(SettingsError::Planted { path: root.path(name) }),
    }
}

fn wait_for(lock: &OwnedFd) -> Result<(), SettingsError> {
    for _ in 0..LOCK_ATTEMPT_COUNT {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let _ = poll(&mut [], Some(&LOCK_RETRY));
            }
            _ => return Ok(()),
        }
    }
    Err(SettingsError::Busy)
}

fn boot_id(root: &Root) -> Option<String> {
    root.text("proc/sys/kernel/random/boot_id")
}

/// Nanoseconds since boot, with the time in suspend.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::try_from(now).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
