//! A session whose wishes change while it lasts, and come before those of all others: the idle states that a
//! measurement forces.
//!
//! Not here: which files a state needs (`ipi/forced.rs`), and the lock that keeps a second measurement and
//! `set apply` out. Who makes an overlay must have that (`ipi::lock`).

use std::collections::BTreeMap;

use super::SettingsError;
use super::apply::{Begin, Owner, Which, all_of, begin, make_slots, revert};
use super::holder::Holding;
use super::journal::{Journal, RunFolder, now_ns};
use super::settle::{Settled, settle};
use super::wishes::Wishes;
use crate::Root;

/// Files with values that change together. It begins with the first of them; dropping it gives back what was found.
pub(crate) struct Overlay<'a> {
    root: &'a Root,
    owner: &'a Owner,
    /// The session, once there is one.
    id: Option<u64>,
    /// Waits for the holder when it is dropped.
    holding: Option<Holding>,
}

impl<'a> Overlay<'a> {
    /// An overlay of no files. Changes nothing.
    pub(crate) fn new(root: &'a Root, owner: &'a Owner) -> Self {
        Overlay { root, owner, id: None, holding: None }
    }

    /// Whether anything was set.
    pub(crate) fn has_begun(&self) -> bool {
        self.id.is_some()
    }

    /// Brings files to these values, and those of before that are not among them to what others wish. `words` say
    /// what that means. If it fails, some may have changed: the overlay should end.
    ///
    /// # Errors
    /// Fails if a file cannot be written or somebody else has changed it, or if another command has given the
    /// overlay's files back.
    pub(crate) fn set(
        &mut self,
        words: String,
        files: BTreeMap<String, String>,
    ) -> Result<(), SettingsError> {
        let root = self.root;
        let folder = RunFolder::lock(root)?;
        let (mut journal, _) = Journal::read(root)?;
        let Some(id) = self.id else {
            let now_ns = now_ns();
            journal.sessions.retain(|session| session.end(now_ns).is_none());
            make_slots(root, &mut journal, files.keys())?;
            let wishes = Wishes { files, machine_limit_us: None };
            let new = Begin { settings: vec![words], wishes, owner: self.owner, is_overlay: true };
            let (id, (_, holding, _)) = begin(root, &folder, journal, new)?;
            (self.id, self.holding) = (Some(id), holding);
            return Ok(());
        };
        let Some(place) = journal.sessions.iter().position(|session| session.id == id) else {
            return Err(SettingsError::OverlayEnded);
        };
        // What others have written to a file of ours is not to be taken for its own value.
        let known = &journal.sessions[place].files;
        let new: Vec<String> =
            files.keys().filter(|file| !known.contains_key(*file)).cloned().collect();
        make_slots(root, &mut journal, new.iter())?;
        let session = &mut journal.sessions[place];
        (session.settings, session.files) = (vec![words], files);
        journal.check_room(root)?;
        let settled = settle(root, &folder, &mut journal)?;
        all_of(root, &journal.sessions[place], settled).map(|_| ())
    }

    /// Gives back what was found, and says what could not be.
    ///
    /// # Errors
    /// Fails if the journal cannot be used, or if another command has given the files back.
    pub(crate) fn end(&mut self) -> Result<Settled, SettingsError> {
        let Some(id) = self.id.take() else { return Ok(Settled::default()) };
        match revert(self.root, Which::Session(id)) {
            Err(SettingsError::NoSession { .. }) => Err(SettingsError::OverlayEnded),
            reverted => Ok(reverted?.settled),
        }
    }
}

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        // Nobody can be told. What is left is in the journal.
        let _ = self.end();
    }
}
