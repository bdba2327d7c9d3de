//! The lock on the idle states, for what forces them and for what changes their settings.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Root;

/// Somebody else has the lock.
pub(crate) struct Busy;

/// Locks the folder with the idle states: a second measurement would mistake forced states for the
/// machine's own, and changes of settings would be measured.
pub(crate) fn lock(root: &Root) -> Result<Option<File>, Busy> {
    let Ok(folder) = root.open("sys/devices/system/cpu") else { return Ok(None) };
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(Busy),
        // A file system without locks is no machine's own.
        _ => Ok(Some(folder)),
    }
}
