//! Brings the files to what the journal's sessions wish: steps 2 to 5 of the essay in `mod.rs`.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::io::ErrorKind;

use super::SettingsError;
use super::error::file_error;
use super::journal::{Journal, RunFolder};
use crate::Root;

/// What happened to the files.
#[derive(Debug, Default)]
pub struct Settled {
    /// Files that were written.
    pub changes: Vec<Change>,
    /// Files that somebody else has changed; left alone.
    pub taken: Vec<Taken>,
    /// Files that do not exist now, though there is a driver: their CPU is gone. Some drivers keep a CPU's settings until
    /// it is back, so they stay in the journal. Those of a driver that is gone went with it.
    pub gone: Vec<String>,
    /// Files that could not be written. They stay in the journal.
    pub failed: Vec<Failed>,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The file, relative to the root.
    pub file: String,
    /// What was in it.
    pub from: String,
    /// What is in it.
    pub to: String,
}

/// A file that somebody else has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The file, relative to the root.
    pub file: String,
    /// What is in it.
    pub now: String,
    /// What we would have written.
    pub wanted: String,
}

/// A file that could not be written.
#[derive(Debug)]
pub struct Failed {
    /// The file, relative to the root.
    pub file: String,
    /// What was to be written.
    pub wanted: String,
    /// Why not.
    pub error: SettingsError,
}

impl Settled {
    /// Whether every file has the value that it should have.
    pub fn is_whole(&self) -> bool {
        self.taken.is_empty() && self.gone.is_empty() && self.failed.is_empty()
    }
}

/// Brings the files to what the sessions wish. Fails only if the journal cannot be saved, with nothing changed.
pub(super) fn settle(
    root: &Root,
    folder: &RunFolder<'_>,
    journal: &mut Journal,
) -> Result<Settled, SettingsError> {
    let wanted = |journal: &Journal, index: usize| {
        let slot = &journal.slots[index];
        journal.wish(&slot.file).unwrap_or(&slot.found).to_owned()
    };
    let targets: Vec<String> = (0..journal.slots.len()).map(|i| wanted(journal, i)).collect();
    for (slot, target) in journal.slots.iter_mut().zip(&targets) {
        if !slot.ours.contains(target) {
            slot.ours.push(target.clone());
        }
    }
    match folder.save(journal) {
        Ok(()) => {}
        // A full /run must not prevent giving everything back: what was found is never mistaken for foreign, and
        // the journal that is there covers the rest.
        Err(_) if journal.sessions.is_empty() => {}
        Err(error) => return Err(error),
    }
    let mut settled = Settled::default();
    // Enable states before others are disabled, so that a CPU is never without one.
    let mut order: Vec<usize> = (0..targets.len()).collect();
    order.sort_by_key(|&index| targets[index] != "0");
    // All files of a driver go with it, so one look is enough for all of them.
    let driver =
        LazyCell::new(|| root.text_beneath("sys/devices/system/cpu/cpuidle/current_driver"));
    let has_no_driver = || driver.as_ref().is_ok_and(|driver| driver == "none");
    for index in order {
        write(root, journal, index, &targets[index], &has_no_driver, &mut settled);
    }
    let mut targets = targets.into_iter();
    let failed = settled.failed.iter().map(|failed| &failed.file);
    let left: HashSet<&String> = failed.chain(&settled.gone).collect();
    let Journal { slots, sessions, .. } = journal;
    slots.retain_mut(|slot| {
        let target = targets.next().unwrap_or_default();
        if left.contains(&slot.file) {
            return true;
        }
        slot.ours = vec![target];
        sessions.iter().any(|session| session.files.contains_key(&slot.file))
    });
    match folder.save(journal) {
        Ok(()) => Ok(settled),
        // What is on disk still covers what is in the files.
        Err(error) if journal.is_empty() => Err(error),
        Err(_) => Ok(settled),
    }
}

/// Writes a slot's file, unless somebody else has changed it.
fn write(
    root: &Root,
    journal: &Journal,
    index: usize,
    target: &str,
    has_no_driver: &impl Fn() -> bool,
    settled: &mut Settled,
) {
    let slot = &journal.slots[index];
    let file = slot.file.clone();
    let fail = |error| Failed { file: slot.file.clone(), wanted: target.to_owned(), error };
    let from = match root.text_beneath(&file) {
        Ok(from) => from,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return settled.gone.extend((!has_no_driver()).then_some(file));
        }
        Err(error) => return settled.failed.push(fail(file_error(root, &file, error))),
    };
    if from == target {
        return;
    }
    if !slot.ours.contains(&from) {
        return settled.taken.push(Taken { file, now: from, wanted: target.to_owned() });
    }
    // A write that failed may have changed it all the same, so reading decides.
    let written = root.write_beneath(&file, target);
    match (written, root.text_beneath(&file)) {
        (_, Ok(now)) if now == target => {
            settled.changes.push(Change { file, from, to: now });
        }
        (Ok(()), Ok(now)) => settled.taken.push(Taken { file, now, wanted: target.to_owned() }),
        (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::NotFound => {
            settled.gone.push(file);
        }
        (Err(error), _) | (_, Err(error)) => {
            settled.failed.push(fail(file_error(root, &file, error)));
        }
    }
}
