//! What is set, by whom, and what differs from the defaults without us.

use std::collections::BTreeMap;

use super::journal::{Journal, now_ns};
use super::others::{OtherWriter, latency_limit_holders, other_writers};
use super::setting::{CpuSet, UNLIMITED_US};
use super::wishes::{GOVERNOR_FILE, MACHINE_LIMIT_FILE, limit_file};
use super::{Lasts, SettingsError};
use crate::Root;
use crate::cpuidle::state_folder;

/// The settings of a machine.
#[derive(Debug)]
pub struct Status {
    /// What idlewise has set, oldest first.
    pub sessions: Vec<SessionStatus>,
    /// Files that idlewise has set and somebody else has changed since: the file, what is in it, what we wrote.
    pub taken: Vec<(String, String, String)>,
    /// What differs from the kernel's defaults and is not from idlewise.
    pub unusual: Vec<Unusual>,
    /// The governor.
    pub governor: Option<String>,
    /// The limit of the whole machine in microseconds, if there is one.
    pub machine_limit_us: Option<u32>,
    /// The processes that hold it. Only root sees those of others.
    pub machine_limit_holders: Vec<(i32, String)>,
    /// Programs that write such settings.
    pub others: Vec<OtherWriter>,
    /// Whether there is a journal of another boot, which says nothing about this one.
    pub has_journal_of_another_boot: bool,
}

/// What one command has set.
#[derive(Debug)]
pub struct SessionStatus {
    /// Its number.
    pub id: u64,
    /// The settings.
    pub settings: Vec<String>,
    /// The command.
    pub command: String,
    /// What for.
    pub reason: Option<String>,
    /// The command's process, and whether it runs.
    pub owner: (i32, bool),
    /// The holder's process, and whether it runs.
    pub holder: Option<(i32, bool)>,
    /// How long the settings last.
    pub lasts: Lasts,
    /// For how long they have been set, in nanoseconds.
    pub age_ns: u64,
    /// How long they have left.
    pub left_ns: Option<u64>,
    /// Why it is over, if it is: the next command gives it back.
    pub end: Option<&'static str>,
    /// What was found in each file before idlewise wrote to it.
    pub found: BTreeMap<String, String>,
}

/// A setting that differs from the kernel's default.
#[derive(Debug, PartialEq, Eq)]
pub struct Unusual {
    /// The CPUs.
    pub cpus: CpuSet,
    /// The setting, without CPUs: `C6=off`, `latency=10us`.
    pub setting: String,
    /// The default: `on`, `none`.
    pub default: &'static str,
}

/// Reads what is set. Changes nothing, and needs no rights.
///
/// # Errors
/// Fails if the journal is damaged, or `/sys` is not mounted.
pub fn status(root: &Root) -> Result<Status, SettingsError> {
    if root.hides("sys") {
        return Err(SettingsError::Hidden);
    }
    let (journal, has_journal_of_another_boot) = Journal::read(root)?;
    let now_ns = now_ns();
    let places = journal.slot_places();
    let slot = |file: &String| places.get(file).map(|&place| &journal.slots[place]);
    let sessions = journal.sessions.iter().map(|session| SessionStatus {
        id: session.id,
        settings: session.settings.clone(),
        command: session.command.clone(),
        reason: session.reason.clone(),
        owner: (session.owner.pid, session.owner.is_running()),
        holder: session.holder.map(|holder| (holder.pid, holder.is_running())),
        lasts: session.lasts,
        age_ns: now_ns.saturating_sub(session.since_ns),
        left_ns: session.until_ns.map(|until_ns| until_ns.saturating_sub(now_ns)),
        end: session.end(now_ns),
        found: session
            .files
            .keys()
            .filter_map(|file| Some((file.clone(), slot(file)?.found.clone())))
            .collect(),
    });
    let sessions = sessions.collect();
    let taken = journal.slots.iter().filter_map(|slot| {
        let now = root.text_beneath(&slot.file).ok()?;
        let wanted = journal.wish(&slot.file).unwrap_or(&slot.found);
        (!slot.ours.contains(&now)).then(|| (slot.file.clone(), now, wanted.to_owned()))
    });
    let machine_limit = root.bytes(MACHINE_LIMIT_FILE).ok();
    let machine_limit = machine_limit.and_then(|bytes| bytes.first_chunk().copied());
    Ok(Status {
        sessions,
        taken: taken.collect(),
        unusual: unusual(root, &journal),
        governor: root.text(GOVERNOR_FILE),
        machine_limit_us: machine_limit.map(u32::from_ne_bytes).filter(|us| *us < UNLIMITED_US),
        machine_limit_holders: latency_limit_holders(root),
        others: other_writers(root),
        has_journal_of_another_boot,
    })
}

/// Compares each CPU's states and latency limit with the defaults.
fn unusual(root: &Root, journal: &Journal) -> Vec<Unusual> {
    let places = journal.slot_places();
    let is_ours = |file: &str, now: &str| {
        let slot = places.get(file).map(|&place| &journal.slots[place]);
        slot.is_some_and(|slot| slot.ours.iter().any(|value| value == now) && slot.found != now)
    };
    let mut found: Vec<(String, &'static str, Vec<u16>)> = Vec::new();
    let mut add = |cpu: u16, setting: String, default| match found
        .iter_mut()
        .find(|(known, known_default, _)| *known == setting && *known_default == default)
    {
        Some((_, _, cpus)) => cpus.push(cpu),
        None => found.push((setting, default, vec![cpu])),
    };
    for cpu in root.online_cpus() {
        for index in 0.. {
            let folder = state_folder(cpu, index);
            let Some(name) = root.text(&format!("{folder}/name")) else { break };
            let file = format!("{folder}/disable");
            let Some(now) = root.text(&file) else { continue };
            // Since 5.6 the kernel shows the default.
            let default = root.text(&format!("{folder}/default_status"));
            let default = if default.as_deref() == Some("disabled") { "off" } else { "on" };
            let is = if now == "0" { "on" } else { "off" };
            if is != default && !is_ours(&file, &now) {
                add(cpu, format!("{name}={is}"), default);
            }
        }
        let file = limit_file(cpu);
        match root.text(&file).as_deref() {
            None | Some("0") => {}
            Some(now) if is_ours(&file, now) => {}
            Some("n/a") => add(cpu, "latency=0us".to_owned(), "none"),
            Some(us) if us.bytes().all(|it| it.is_ascii_digit()) => {
                add(cpu, format!("latency={us}us"), "none");
            }
            Some(text) => add(cpu, format!("latency='{text}'"), "none"),
        }
    }
    let unusual = found.into_iter().map(|(setting, default, cpus)| Unusual {
        cpus: cpus.into_iter().collect(),
        setting,
        default,
    });
    unusual.collect()
}
