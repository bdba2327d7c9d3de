//! Changes the settings of idle states so that they can always be given back, whatever ends the command
//! that changed them.
//!
//! # Sessions, slots and the journal
//!
//! A **session** is what one command wishes: values of files in sysfs, a limit for the whole machine, and
//! how long that lasts. A **slot** is a file that sessions wish something of, with the value found before the
//! first of them and the values that may be in it because of us. The **journal** (`/run/idlewise/journal.json`)
//! holds all sessions and slots. A file gets the value found if no session is left, the smallest wish if it is
//! a latency limit (sysfs has one place for it, so somebody must compute the minimum), and otherwise the one
//! value that all sessions wish: a command with another wish is refused.
//!
//! Each change goes the same way, under one lock:
//!
//! 1. The journal is edited: a session is added or removed.
//! 2. For each slot, the new value is added to those that may be in it because of us.
//! 3. The journal is replaced on disk: written beside, fsync, rename, fsync of the folder.
//! 4. Each file whose content is ours and not yet the new value is written, and read back.
//! 5. The journal is replaced again, with one value for each slot, and without slots that nobody needs.
//!
//! A process killed at any point leaves a journal that covers what is in the files, and doing the steps again is
//! harmless. So the next command completes them: it removes sessions whose process is gone before they were
//! complete or should end, and goes on with step 2. A file whose content is not ours was changed by somebody
//! else: it is left alone, and reported.
//!
//! `/run` is empty after a reboot, and so are the settings. Where it isn't, as in a container, the journal of
//! another boot (`boot_id`) is discarded.
//!
//! # The overlay
//!
//! A measurement forces one idle state after another. Its session's wishes change, and they come before those of all
//! others: those are back in force when it ends. Each change of state goes through the steps above, so a
//! measurement that is killed is given back like any other session. There is one measurement at a time, and
//! [`apply()`] refuses to disturb it.
//!
//! # The holder
//!
//! Two things need a process: a limit of the whole machine, which lasts as long as its file is open, and the end
//! of a session on time or with its owner. That is the holder, one for each session that needs it
//! ([`hold`]). It exits when its session is no longer in the journal, which is all that giving a limit back takes.
//!
//! | file | holds |
//! | --- | --- |
//! | `setting.rs` | [`Setting`] and its text form |
//! | `wishes.rs` | from settings to files and values, and what the machine lacks for it |
//! | `journal.rs` | sessions, slots, and the file they are kept in; the lock |
//! | `settle.rs` | steps 2 to 5 |
//! | `apply.rs` | [`apply()`], [`Applied`], [`revert()`] |
//! | `overlay.rs` | `Overlay`: a session of forced states |
//! | `holder.rs` | starts a holder and waits for it |
//! | `hold.rs` | [`hold`]: what a holder does |
//! | `process.rs` | a process, as opposed to its number |
//! | `others.rs` | [`other_writers`]: programs that write the same settings |
//! | `status.rs` | [`status()`] |
//! | `error.rs` | [`SettingsError`] |

mod apply;
mod error;
mod hold;
mod holder;
mod journal;
mod others;
mod overlay;
mod process;
mod setting;
mod settle;
mod status;
#[cfg(test)]
mod tests;
mod wishes;

pub use apply::{Applied, Owner, Reverted, Which, apply, obstacle, planned, revert};
pub use error::SettingsError;
pub use hold::hold;
pub use journal::Lasts;
pub(crate) use others::enabled_units;
pub use others::{OtherWriter, latency_limit_holders, other_writers};
pub(crate) use overlay::Overlay;
pub use process::Process;
pub use setting::{CpuSet, Setting, SettingError, parse_limit};
pub use settle::{Change, Failed, Settled, Taken};
pub use status::{SessionStatus, Status, Unusual, status};
pub use wishes::machine_limit_minor;

/// Fails if this process may not change settings, or could not note what it changes. Creates nothing.
pub(crate) fn check_rights_and_journal(root: &crate::Root) -> Result<(), SettingsError> {
    journal::check_journal(root).map(drop)
}
