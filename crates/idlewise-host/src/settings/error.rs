//! Why settings could not be changed, in one line that says what to do.

use std::io;
use std::path::PathBuf;

use idlewise_machine::{hint_before, state_hint};
use rustix::io::Errno;

use crate::Root;

/// Why settings could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Only root may.
    #[error("changing settings needs root; run it with sudo")]
    NotRoot,
    /// A container or chroot lacks /sys, so nothing can be said of this machine.
    #[error(
        "/sys is not mounted here, so this machine's settings can't be seen; as root: mount -t sysfs sysfs /sys"
    )]
    Hidden,
    /// No cpuidle driver.
    #[error(
        "this machine has no cpuidle driver, so there are no idle states to set, and a latency limit would \
         change nothing (most virtual machines are like that; `idlewise lab boot` says how CPUs idle here)"
    )]
    NoDriver,
    /// Nothing to choose.
    #[error(
        "this machine has a single idle state ({state}), so no setting changes which one is entered"
    )]
    OneState {
        /// Its name.
        state: String,
    },
    /// The machine does not list its CPUs.
    #[error("{}: it does not list the CPUs that are online", path.display())]
    NoCpus {
        /// The file.
        path: PathBuf,
    },
    /// A CPU is offline, or there is none with that number.
    #[error("CPU {cpu} is not online ({online} are); leave it out, or put it online first")]
    Offline {
        /// The CPU.
        cpu: u16,
        /// The CPUs that are online.
        online: String,
    },
    /// No CPU has a state of that name.
    #[error("{cpus} no idle state {state}; {}the states are {known}", state_hint(state, known.split(", ")))]
    NoState {
        /// Which CPUs have none, as the beginning of the sentence.
        cpus: String,
        /// The state.
        state: String,
        /// The states there are.
        known: String,
    },
    /// The kernel has no such governor.
    #[error(
        "the kernel has no governor {governor}; {}it has {known}",
        hint_before(governor, known.split_whitespace())
    )]
    NoGovernor {
        /// The governor.
        governor: String,
        /// The governors there are.
        known: String,
    },
    /// The kernel has no file for it.
    #[error("{}: no such file; {why}", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
        /// What that means.
        why: &'static str,
    },
    /// A whole machine's limit can only be added to.
    #[error(
        "latency=none lifts limits of CPUs only (latency=none@4-7); the whole machine's limit is the smallest \
         that any program holds, and only that program can give it up: `idlewise set status` names it"
    )]
    MachineLimitNone,
    /// A lasting limit of the whole machine, or an expiry, needs a process.
    #[error("{what} lasts only while a process holds it, and there is no program to run as one")]
    NoHolder {
        /// What needs it.
        what: &'static str,
    },
    /// The process that holds a limit ended at once.
    #[error("the process that is to hold the settings did not start: {what}; nothing is changed")]
    HolderFailed {
        /// What happened.
        what: String,
    },
    /// Two wishes that cannot both be.
    #[error("{setting} contradicts {other}; nothing is changed")]
    Contradiction {
        /// The setting.
        setting: String,
        /// Who wishes something else.
        other: String,
    },
    /// Another command is changing settings.
    #[error(
        "another idlewise is changing settings or measuring; nothing is changed, try again when it is done"
    )]
    Busy,
    /// Another command gave back what a measurement forces.
    #[error(
        "another command gave the forced idle states back (`set revert --all`), so the measurement ended; \
         everything is as it was: run it again"
    )]
    OverlayEnded,
    /// A file cannot be used.
    #[error("{}: {source}; {}", path.display(), advice(source))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder or a file that only root may own.
    #[error("{}: others than root can write to it; nothing is changed: look who made it, then remove it", path.display())]
    Planted {
        /// The folder or file.
        path: PathBuf,
    },
    /// The journal cannot be read.
    #[error(
        "{}: {problem}; nothing is changed: it lists what idlewise set and what was found, so restore that by \
         hand, then remove it (a reboot does both)", path.display()
    )]
    DamagedJournal {
        /// The journal.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The journal would be too long to be read back.
    #[error(
        "{}: what was found would need {byte_count} bytes there, and {byte_count_max} are allowed; nothing is \
         changed: revert something first (`idlewise set status` says what is set), or name fewer CPUs",
        path.display()
    )]
    NoRoom {
        /// The journal.
        path: PathBuf,
        /// How long it would be.
        byte_count: u64,
        /// How long it may be.
        byte_count_max: u64,
    },
    /// Another program wrote at the same time.
    #[error("{}: another program wrote {found} there at the same time ({others}); nothing is changed, try again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What it contains.
        found: String,
        /// Programs that may have.
        others: String,
    },
    /// Writing failed, and what had been written could not be undone.
    #[error("{cause}; and not everything could be undone: {left}; as root: idlewise set revert")]
    NotUndone {
        /// Why it was to be undone.
        cause: Box<SettingsError>,
        /// What is left.
        left: String,
    },
    /// There is no such session.
    #[error("nothing has the number {id}; `idlewise set status` lists what is set")]
    NoSession {
        /// Its number.
        id: u64,
    },
}

/// What to do about a file that cannot be used.
fn advice(source: &io::Error) -> &'static str {
    if source.kind() == io::ErrorKind::FileTooLarge {
        return "that is no setting: look who made it";
    }
    // A pipe or a folder where the journal should be.
    if source.kind() == io::ErrorKind::Other {
        return "look who made it, and remove it";
    }
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ROFS) => {
            "it is mounted read-only, as in containers: run idlewise on the host, or in a container that \
             may write there (--privileged)"
        }
        Some(Errno::ACCESS | Errno::PERM) => "run it as root, on the host if this is a container",
        Some(Errno::NOSPC) => "/run is full: make room there",
        Some(Errno::LOOP | Errno::NOTDIR) => {
            "it is a link or below one, and links are not followed"
        }
        Some(Errno::NOENT) => "was the CPU put offline, or the driver changed? try again",
        Some(Errno::INVAL) => "the kernel does not take that value",
        _ => "`idlewise set status` says what is set",
    }
}

pub(super) fn file_error(root: &Root, file: &str, source: io::Error) -> SettingsError {
    SettingsError::File { path: root.path(file), source }
}
