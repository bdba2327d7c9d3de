//! `idlewise set revert`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_host::settings::{
    Change, Failed, Lasts, Reverted, Taken, Which, other_writers, revert,
};
use idlewise_trace::cpus_in_words;
use serde_json::json;

use super::{SHOWN_COUNT, changes_json, files, lines, settings_in_short, warn_of_others};
use crate::error::{Failure, Result};
use crate::screen::{self, say};
use crate::signals::Signals;
use crate::sysroot::root;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// The exit status if something is not as it was found.
const STATUS_LEFT: u8 = 1;

const EXAMPLES: &str = "\
Examples:
  # Restore what was there before `set apply`, and before commands that were killed
  sudo idlewise set revert

  # Also settings of a `set quiet` or `try` that is running
  sudo idlewise set revert --all

  # Only what `set status` shows under number 3
  sudo idlewise set revert 3

A file that another program has changed since is left alone, and named. If this command is \
interrupted, run it again.

Exit status: 0; 1 if another program has changed a file since, one is gone, or one could not be \
written; 2 on other errors.";

/// Restore what was there before settings were applied
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Revert {
    /// Only the settings with this number
    #[arg(value_name = "NUMBER")]
    number: Option<u64>,

    /// Also settings of commands that are running
    #[arg(long, conflicts_with = "number")]
    all: bool,

    /// Only settings that killed commands left
    #[arg(long, conflicts_with_all = ["number", "all"])]
    ended: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

impl Revert {
    /// Reverts and says what was restored.
    pub fn run(self) -> Result<ExitCode> {
        let root = root(self.sysroot.as_deref())?;
        let _signals = Signals::catch()?;
        let which = match (self.number, self.all) {
            (Some(id), _) => Which::Session(id),
            (None, true) => Which::All,
            (None, false) if self.ended => Which::Ended,
            (None, false) => Which::Lasting,
        };
        let reverted = revert(&root, which).map_err(Failure::new)?;
        if self.json {
            screen::stdout().json(SCHEMA, &document(&reverted))?;
            return Ok(status(&reverted));
        }
        let status = say_reverted(&reverted)?;
        if !reverted.settled.taken.is_empty() {
            warn_of_others(&other_writers(&root));
        }
        Ok(status)
    }
}

/// Prints what was restored, and what was not.
pub(super) fn say_reverted(reverted: &Reverted) -> Result<ExitCode> {
    let mut out = screen::stdout();
    let Reverted { ended, settled, was_of_another_boot, .. } = reverted;
    if *was_of_another_boot {
        writeln!(out, "The journal was of another boot, which had undone its settings; discarded")?;
    }
    for (settings, command, why) in ended {
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        let settings = settings_in_short(settings);
        writeln!(out, "Ended {settings}, set by {command}{why}")?;
    }
    if ended.is_empty() && settled.changes.is_empty() {
        writeln!(out, "Nothing to restore")?;
    }
    if !settled.changes.is_empty() {
        writeln!(out, "Restored {}:", files(settled.changes.len()))?;
    }
    let line = |change: &Change| format!("/{}: {} -> {}", change.file, change.from, change.to);
    write!(out, "{}", lines(settled.changes.iter().map(line), SHOWN_COUNT))?;
    drop(out);
    say_left(reverted);
    Ok(status(reverted))
}

/// Says what was not restored.
pub fn say_left(reverted: &Reverted) {
    let Reverted { running, settled, .. } = reverted;
    for (settings, command, pid, lasts) in running {
        let settings = settings_in_short(settings);
        match lasts {
            Lasts::UntilReverted => {
                say(format_args!("idlewise: {settings} stays until `idlewise set revert`"));
            }
            Lasts::WhileRunning => say(format_args!(
                "idlewise: {settings} is left to {command} (process {pid}), which restores it; --all restores it now"
            )),
        }
    }
    for Taken { file, now, wanted } in &settled.taken {
        say(format_args!(
            "idlewise: /{file} is {now} by somebody else, so it is left alone ({wanted} would be written)"
        ));
    }
    let cpu = |file: &String| -> Option<u16> {
        file.strip_prefix("sys/devices/system/cpu/cpu")?.split('/').next()?.parse().ok()
    };
    let cpus: BTreeSet<u16> = settled.gone.iter().filter_map(cpu).collect();
    let cpus: Vec<u16> = cpus.into_iter().collect();
    let others = settled.gone.iter().filter(|file| cpu(file).is_none());
    let others = others.map(|file| (format!("/{file}"), true));
    let cpus = (!cpus.is_empty()).then(|| (cpus_in_words(&cpus), cpus.len() == 1));
    for (what, is_one) in cpus.into_iter().chain(others) {
        let (are, their, they) =
            if is_one { ("is", "its", "it is") } else { ("are", "their", "they are") };
        say(format_args!(
            "idlewise: {what} {are} offline or gone: {their} setting stays noted; run `idlewise set revert` again when \
             {they} back"
        ));
    }
    for Failed { wanted, error, .. } in &settled.failed {
        say(format_args!(
            "idlewise: {error}; then run `idlewise set revert` again, which will write {wanted}"
        ));
    }
}

fn status(reverted: &Reverted) -> ExitCode {
    match reverted.settled.is_whole() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(STATUS_LEFT),
    }
}

fn document(reverted: &Reverted) -> serde_json::Value {
    let Reverted { ended, running, settled, was_of_another_boot } = reverted;
    let ended = ended.iter().map(
        |(settings, command, why)| json!({"settings": settings, "command": command, "why": why}),
    );
    let running = running.iter().map(
        |(settings, command, pid, _)| json!({"settings": settings, "command": command, "pid": pid}),
    );
    let taken = settled.taken.iter().map(|Taken { file, now, wanted }| {
        json!({"file": format!("/{file}"), "now": now, "wanted": wanted})
    });
    let failed = settled.failed.iter().map(|Failed { file, wanted, error }| {
        json!({"file": format!("/{file}"), "wanted": wanted, "error": error.to_string()})
    });
    let gone = settled.gone.iter().map(|file| format!("/{file}"));
    json!({
        "ended": ended.collect::<Vec<_>>(),
        "running": running.collect::<Vec<_>>(),
        "changes": changes_json(&settled.changes),
        "taken": taken.collect::<Vec<_>>(),
        "gone": gone.collect::<Vec<_>>(),
        "failed": failed.collect::<Vec<_>>(),
        "was_of_another_boot": was_of_another_boot,
    })
}
