//! Applies settings and gives them back.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use super::error::file_error;
use super::holder::{self, Holding};
use super::journal::{
    Journal, Lasts, RunFolder, Session, Slot, check_journal, check_rights, now_ns,
};
use super::others::named_writers;
use super::process::Process;
use super::setting::Setting;
use super::settle::{Change, Settled, settle};
use super::wishes::{MACHINE_LIMIT_FILE, Wishes, is_limit_file, limit_us, wishes};
use super::{SettingsError, journal};
use crate::Root;
use crate::state_lock::lock as lock_measurement;

/// For whom settings are changed.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The command, as others are to see it: `idlewise try`.
    pub command: String,
    /// What for.
    pub reason: Option<String>,
    /// How long.
    pub lasts: Lasts,
    /// They are given back after this time at the latest.
    pub expires_in: Option<Duration>,
    /// The `idlewise` that runs as holder: it gives the settings back even if this process is killed, and on time.
    /// Without one, only the next command notices that.
    pub holder: Option<PathBuf>,
}

impl Owner {
    /// Settings that last while this process runs, without a holder.
    pub fn running(command: &str) -> Self {
        Owner {
            command: command.to_owned(),
            reason: None,
            lasts: Lasts::WhileRunning,
            expires_in: None,
            holder: None,
        }
    }
}

/// Settings that are in force. Dropping them gives them back, unless they were to last.
#[must_use = "dropping it gives the settings back"]
#[derive(Debug)]
pub struct Applied {
    root: Root,
    id: u64,
    lasts: Lasts,
    changes: Vec<Change>,
    is_reverted: bool,
    #[expect(dead_code, reason = "waits for the holder when it is dropped")]
    holding: Option<Holding>,
    #[expect(dead_code, reason = "kept open: that is the limit")]
    machine_limit: Option<File>,
}

impl Applied {
    /// The number of the session, for [`Which::Session`].
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The files that were written.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Gives back what was found, and says what could not be.
    ///
    /// # Errors
    /// Fails if the journal cannot be used; the settings then stay until the next attempt.
    pub fn revert(mut self) -> Result<Reverted, SettingsError> {
        let reverted = revert(&self.root, Which::Session(self.id));
        self.is_reverted = true;
        match reverted {
            // Somebody has given everything back before us.
            Err(SettingsError::NoSession { .. }) => Ok(Reverted::default()),
            reverted => reverted,
        }
    }

    /// Leaves settings in force when this process ends that were to last while it runs.
    ///
    /// # Errors
    /// Fails if the journal cannot be used.
    pub fn keep(mut self) -> Result<(), SettingsError> {
        self.is_reverted = true;
        let folder = RunFolder::lock(&self.root)?;
        let (mut journal, _) = Journal::read(&self.root)?;
        if let Some(session) = journal.sessions.iter_mut().find(|session| session.id == self.id) {
            session.lasts = Lasts::UntilReverted;
        }
        folder.save(&journal)
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if !self.is_reverted && self.lasts == Lasts::WhileRunning {
            // Nobody can be told. What is left is in the journal.
            let _ = revert(&self.root, Which::Session(self.id));
        }
    }
}

/// Which settings to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that are over: whose process or time has ended.
    Ended,
    /// Those that last, and those that are over.
    Lasting,
    /// All, also of commands that are running.
    All,
    /// Those of one session.
    Session(u64),
}

/// What was given back.
#[derive(Debug, Default)]
pub struct Reverted {
    /// The sessions that ended: settings, command, and why it ended without having been asked to.
    pub ended: Vec<(Vec<String>, String, Option<&'static str>)>,
    /// Sessions that go on: settings, command, process, how long.
    pub running: Vec<(Vec<String>, String, i32, Lasts)>,
    /// What happened to the files.
    pub settled: Settled,
    /// Whether there was a journal of another boot, which was discarded.
    pub was_of_another_boot: bool,
}

/// Returns which files would be written. Changes nothing, and needs no rights but to open them.
///
/// # Errors
/// Fails like [`apply`].
pub fn planned(root: &Root, settings: &[Setting]) -> Result<Vec<Change>, SettingsError> {
    check_rights(root)?;
    let (wishes, journal) = checked(root, settings)?;
    let mut changes = Vec::new();
    for (file, value) in &wishes.files {
        let from = read(root, file)?;
        let other = journal.wish(file).filter(|other| limit_us(other) < limit_us(value));
        let to = other.filter(|_| is_limit_file(file)).unwrap_or(value).to_owned();
        changes.push(Change { file: file.clone(), from, to });
    }
    changes.retain(|change| change.from != change.to);
    Ok(changes)
}

/// Returns what keeps this process from applying settings, the machine before the rights: `None` if nothing does. Changes
/// nothing.
pub fn obstacle(root: &Root, settings: &[Setting]) -> Option<SettingsError> {
    checked(root, settings).err()
}

/// What settings wish, and the journal that could take it.
fn checked(root: &Root, settings: &[Setting]) -> Result<(Wishes, Journal), SettingsError> {
    let wishes = wishes(root, settings)?;
    let journal = check_journal(root)?;
    check_contradictions(&journal, &wishes, settings)?;
    Ok((wishes, journal))
}

/// Applies settings: all of them or, if that fails, none.
///
/// # Errors
/// Fails if a setting cannot be, or contradicts another command's; see [`SettingsError`].
pub fn apply(root: &Root, settings: &[Setting], owner: &Owner) -> Result<Applied, SettingsError> {
    let folder = RunFolder::lock(root)?;
    // A measurement would measure the change too.
    let Ok(_lock) = lock_measurement(root) else { return Err(SettingsError::Busy) };
    let (mut journal, _) = Journal::read(root)?;
    let wishes = wishes(root, settings)?;
    let is_bound = owner.lasts == Lasts::WhileRunning;
    if owner.holder.is_none() {
        let what = match (owner.expires_in, wishes.machine_limit_us) {
            (Some(_), _) => Some("a setting with an end"),
            (None, Some(_)) if !is_bound => Some("a latency limit of the whole machine"),
            _ => None,
        };
        if let Some(what) = what {
            return Err(SettingsError::NoHolder { what });
        }
    }
    let now_ns = now_ns();
    journal.sessions.retain(|session| session.end(now_ns).is_none());
    check_contradictions(&journal, &wishes, settings)?;
    make_slots(root, &mut journal, wishes.files.keys())?;
    let settings = settings.iter().map(Setting::to_string).collect();
    let (id, done) =
        begin(root, &folder, journal, Begin { settings, wishes, owner, is_overlay: false })?;
    let (changes, holding, machine_limit) = done;
    let (root, lasts) = (root.clone(), owner.lasts);
    Ok(Applied { root, id, lasts, changes, is_reverted: false, holding, machine_limit })
}

/// What a new session wishes.
pub(super) struct Begin<'a> {
    pub settings: Vec<String>,
    pub wishes: Wishes,
    pub owner: &'a Owner,
    pub is_overlay: bool,
}

/// Adds a session whose slots exist, and sets what it wishes: all of it or, if that fails, nothing.
pub(super) fn begin(
    root: &Root,
    folder: &RunFolder<'_>,
    mut journal: Journal,
    Begin { settings, wishes, owner, is_overlay }: Begin<'_>,
) -> Result<(u64, Done), SettingsError> {
    let now_ns = now_ns();
    let id = journal.take_id();
    let until_ns = owner
        .expires_in
        .map(|time| now_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)));
    let is_bound = owner.lasts == Lasts::WhileRunning;
    let needs_holder = is_bound || until_ns.is_some() || wishes.machine_limit_us.is_some();
    let program = owner.holder.as_deref().filter(|_| needs_holder);
    journal.sessions.push(Session {
        id,
        command: owner.command.clone(),
        reason: owner.reason.clone(),
        owner: Process::current(),
        lasts: owner.lasts,
        since_ns: now_ns,
        until_ns,
        settings,
        files: wishes.files,
        machine_limit_us: wishes.machine_limit_us,
        is_overlay,
        holder: None,
        is_complete: false,
    });
    journal.check_room(root)?;
    match complete(root, folder, &mut journal, program) {
        Ok(done) => Ok((id, done)),
        Err(cause) => Err(undo(root, folder, journal, cause)),
    }
}

pub(super) type Done = (Vec<Change>, Option<Holding>, Option<File>);

/// Sets what the newest session wishes.
fn complete(
    root: &Root,
    folder: &RunFolder<'_>,
    journal: &mut Journal,
    program: Option<&Path>,
) -> Result<Done, SettingsError> {
    let settled = settle(root, folder, journal)?;
    let session = newest(journal);
    let settled = all_of(root, session, settled)?;
    let holding = match program {
        None => None,
        Some(program) => {
            let waiting = holder::start(root, program, session.id)?;
            // The journal knows the holder before that does anything. If we are killed earlier, it ends.
            newest(journal).holder = Some(waiting.process());
            folder.save(journal)?;
            Some(waiting.begin()?)
        }
    };
    let machine_limit = match newest(journal).machine_limit_us.filter(|_| holding.is_none()) {
        Some(us) => Some(hold_machine_limit(root, us)?),
        None => None,
    };
    newest(journal).is_complete = true;
    folder.save(journal)?;
    Ok((settled.changes, holding, machine_limit))
}

/// Fails if not all files of the session are as it wishes.
pub(super) fn all_of(
    root: &Root,
    session: &Session,
    settled: Settled,
) -> Result<Settled, SettingsError> {
    let is_ours = |file: &String| session.files.contains_key(file);
    if let Some(taken) = settled.taken.iter().find(|taken| is_ours(&taken.file)) {
        let others = named_writers(root);
        let (path, found) = (root.path(&taken.file), taken.now.clone());
        return Err(SettingsError::Changed { path, found, others });
    }
    if let Some(file) = settled.gone.iter().find(|file| is_ours(file)) {
        return Err(file_error(root, file, std::io::ErrorKind::NotFound.into()));
    }
    match settled.failed.iter().position(|failed| is_ours(&failed.file)) {
        None => Ok(settled),
        Some(place) => {
            let mut settled = settled;
            Err(settled.failed.swap_remove(place).error)
        }
    }
}

fn newest(journal: &mut Journal) -> &mut Session {
    journal.sessions.last_mut().expect("one was added")
}

/// Takes the newest session back, and returns why.
fn undo(
    root: &Root,
    folder: &RunFolder<'_>,
    mut journal: Journal,
    cause: SettingsError,
) -> SettingsError {
    let session = journal.sessions.pop();
    let settled = settle(root, folder, &mut journal);
    holder::wait_for_end(session.as_ref().and_then(|session| session.holder));
    let id = session.map(|session| session.id);
    let has_it = |journal: &Journal| journal.sessions.iter().any(|it| Some(it.id) == id);
    let left = match settled {
        Ok(settled) if settled.failed.is_empty() => return cause,
        Ok(settled) => settled.failed.iter().map(|failed| failed.error.to_string()).collect(),
        // A full disk may be why nothing could be done, and then there is nothing to undo: a file is changed only after
        // the journal has said so.
        Err(_) if Journal::read(root).is_ok_and(|(on_disk, _)| !has_it(&on_disk)) => return cause,
        Err(error) => vec![error.to_string()],
    };
    SettingsError::NotUndone { cause: Box::new(cause), left: left.join("; ") }
}

/// Opens the whole machine's limit. It lasts as long as the file is open.
pub(super) fn hold_machine_limit(root: &Root, us: u32) -> Result<File, SettingsError> {
    let fail = |source| file_error(root, MACHINE_LIMIT_FILE, source);
    let mut file = root.open_beneath(MACHINE_LIMIT_FILE, OFlags::WRONLY).map_err(fail)?;
    file.write_all(&us.to_ne_bytes()).map_err(fail)?;
    Ok(file)
}

fn check_contradictions(
    journal: &Journal,
    wishes: &Wishes,
    settings: &[Setting],
) -> Result<(), SettingsError> {
    let opponent = wishes.files.iter().find_map(|(file, value)| journal.opponent(file, value));
    opponent.map_or(Ok(()), |session| {
        let setting: Vec<_> = settings.iter().map(Setting::to_string).collect();
        let other = format!(
            "{}, set by `{}` (process {}, number {})",
            session.settings.join(" "),
            session.command,
            session.owner.pid,
            session.id
        );
        Err(SettingsError::Contradiction { setting: setting.join(" "), other })
    })
}

/// Adds slots, and notes what others have written to those that there are.
pub(super) fn make_slots<'a>(
    root: &Root,
    journal: &mut Journal,
    files: impl Iterator<Item = &'a String>,
) -> Result<(), SettingsError> {
    // A search for each of ten thousand files would take longer than all else.
    let places = journal.slot_places();
    for file in files {
        let now = read(root, file)?;
        match places.get(file).map(|&place| &mut journal.slots[place]) {
            Some(slot) if slot.ours.contains(&now) => {}
            Some(slot) => {
                slot.found.clone_from(&now);
                slot.ours = vec![now];
            }
            None => {
                let (file, ours) = (file.clone(), vec![now.clone()]);
                journal.slots.push(Slot { file, found: now, ours });
            }
        }
    }
    Ok(())
}

fn read(root: &Root, file: &str) -> Result<String, SettingsError> {
    root.text_beneath(file).map_err(|source| file_error(root, file, source))
}

/// Gives back what was found before settings were applied, except what somebody else has changed since.
///
/// # Errors
/// Fails if the journal cannot be used. A file that cannot be written is no error: see [`Reverted`].
pub fn revert(root: &Root, which: Which) -> Result<Reverted, SettingsError> {
    check_rights(root)?;
    if !journal::folder(root).exists() {
        return match which {
            Which::Session(id) => Err(SettingsError::NoSession { id }),
            _ => Ok(Reverted::default()),
        };
    }
    let folder = RunFolder::lock(root)?;
    let (mut journal, was_of_another_boot) = Journal::read(root)?;
    if let Which::Session(id) = which
        && journal.session(id).is_none()
    {
        return Err(SettingsError::NoSession { id });
    }
    let mut reverted = Reverted { was_of_another_boot, ..Reverted::default() };
    let now_ns = now_ns();
    let mut holders = Vec::new();
    journal.sessions.retain(|session| {
        let end = session.end(now_ns);
        let is_over = end.is_some()
            || match which {
                Which::All => true,
                Which::Session(id) => session.id == id,
                Which::Ended => false,
                Which::Lasting => session.lasts == Lasts::UntilReverted,
            };
        let (settings, command) = (session.settings.clone(), session.command.clone());
        if is_over {
            reverted.ended.push((settings, command, end));
            holders.extend(session.holder);
        } else {
            reverted.running.push((settings, command, session.owner.pid, session.lasts));
        }
        !is_over
    });
    reverted.settled = settle(root, &folder, &mut journal)?;
    // A holder whose time is over may be waiting for the lock.
    drop(folder);
    holders.into_iter().for_each(|holder| holder::wait_for_end(Some(holder)));
    Ok(reverted)
}
