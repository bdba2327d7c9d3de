//! `idlewise set status`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_host::settings::{self, Lasts, SessionStatus, status};
use idlewise_report::shown_in_line;
use serde_json::{Value, json};

use super::{lines, settings_in_short, span};
use crate::error::{Failure, Result};
use crate::screen;
use crate::sysroot::root;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  idlewise set status
  idlewise set status --json

Shows what idlewise has set, by which command, since when and until when; what others have changed \
of it since; and which settings differ from the kernel's defaults without idlewise. Root also sees \
which processes hold the whole machine's latency limit (/dev/cpu_dma_latency).

Exit status: 0, or 2 if the journal is damaged.";

/// Show what is set, by which command, since when and until when
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

impl Status {
    /// Prints what is set.
    pub fn run(self) -> Result<ExitCode> {
        let root = root(self.sysroot.as_deref())?;
        let status = status(&root).map_err(Failure::new)?;
        let mut out = screen::stdout();
        if self.json {
            out.json(SCHEMA, &document(&status))?;
            return Ok(ExitCode::SUCCESS);
        }
        if status.has_journal_of_another_boot {
            writeln!(
                out,
                "There is a journal of another boot, which says nothing about this one."
            )?;
        }
        match status.sessions.is_empty() {
            true => writeln!(out, "idlewise has set nothing.")?,
            false => writeln!(out, "Set by idlewise (`set revert` restores what was found):")?,
        }
        for session in &status.sessions {
            write!(out, "{}", session_text(session))?;
        }
        if !status.taken.is_empty() {
            writeln!(out, "Changed by somebody else since, and left alone by `set revert`:")?;
            let line = |(file, now, ours): &(String, String, String)| {
                let [now, ours] = [now, ours].map(|text| shown_in_line(text));
                format!("/{file}: {now}, where idlewise wrote {ours}")
            };
            write!(out, "{}", lines(status.taken.iter().map(line), usize::MAX))?;
        }
        let mut unusual: Vec<String> = Vec::new();
        for settings::Unusual { cpus, setting, default } in &status.unusual {
            unusual.push(format!("{setting}@{cpus} (default: {default})"));
        }
        if let Some(us) = status.machine_limit_us {
            let holders: Vec<_> = status.machine_limit_holders.iter().map(holder_text).collect();
            let holders =
                if holders.is_empty() { "held by others".to_owned() } else { holders.join(", ") };
            unusual.push(format!("latency={us}us of the whole machine (default: none): {holders}"));
        }
        match unusual.is_empty() {
            true => writeln!(out, "Nothing else differs from the kernel's defaults.")?,
            false => writeln!(out, "Different from the kernel's defaults, whoever set it:")?,
        }
        write!(out, "{}", lines(unusual.into_iter(), usize::MAX))?;
        if let Some(governor) = &status.governor {
            writeln!(out, "Governor: {}", shown_in_line(governor))?;
        }
        for other in &status.others {
            let how = other.pid.map_or("starts at boot".to_owned(), |pid| format!("process {pid}"));
            let is_rival = if other.is_rival { "" } else { ", none of these settings" };
            writeln!(out, "Also here: {} ({how}) writes {}{is_rival}", other.name, other.writes)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn holder_text((pid, name): &(i32, String)) -> String {
    format!("{} (process {pid})", shown_in_line(name))
}

fn session_text(session: &SessionStatus) -> String {
    let SessionStatus { id, settings, command, reason, owner: (pid, is_running), .. } = session;
    let since = span(session.age_ns);
    let until = match (session.end, session.left_ns, session.lasts) {
        (Some(end), _, _) => format!("over, because {end}: the next change restores it"),
        (None, Some(left_ns), _) => format!("for another {}", span(left_ns)),
        (None, None, Lasts::UntilReverted) => "until reverted".to_owned(),
        (None, None, Lasts::WhileRunning) => "until it ends".to_owned(),
    };
    let command = shown_in_line(command);
    let by = match is_running {
        true => format!("{command}, process {pid}"),
        false => command.into_owned(),
    };
    let mut text =
        format!("  {id}  {}\n     by {by}, {since} ago, {until}\n", settings_in_short(settings));
    if let Some(reason) = reason {
        text.push_str(&format!("     reason: {}\n", shown_in_line(reason)));
    }
    if let Some((holder, false)) = session.holder {
        text.push_str(&format!(
            "     its holder (process {holder}) was killed: a limit of the whole machine or an end in time is not in \
             force; revert it and apply it again\n"
        ));
    }
    // The same value of many files is said once.
    let mut found: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (file, value) in &session.found {
        let name = file.rsplit('/').next().unwrap_or(file);
        *found.entry((name, value)).or_default() += 1;
    }
    let found: Vec<_> = found
        .into_iter()
        .map(|((name, value), count)| match count {
            1 => format!("{name} {value}"),
            count => format!("{name} {value} ({count} files)"),
        })
        .collect();
    if !found.is_empty() {
        text.push_str(&format!("     found: {}\n", found.join(", ")));
    }
    text
}

fn document(status: &settings::Status) -> Value {
    let session = |session: &SessionStatus| {
        let found: Vec<_> = session
            .found
            .iter()
            .map(|(file, value)| json!({"file": format!("/{file}"), "found": value}))
            .collect();
        json!({
            "id": session.id,
            "settings": session.settings,
            "command": session.command,
            "reason": session.reason,
            "pid": session.owner.0,
            "is_running": session.owner.1,
            "holder_pid": session.holder.map(|(pid, _)| pid),
            "is_held": session.holder.map(|(_, is_running)| is_running),
            "lasts": session.lasts,
            "age_ns": session.age_ns,
            "left_ns": session.left_ns,
            "end": session.end,
            "found": found,
        })
    };
    let taken = status
        .taken
        .iter()
        .map(|(file, now, wrote)| json!({"file": format!("/{file}"), "now": now, "wrote": wrote}));
    let unusual = status.unusual.iter().map(|unusual| {
        let settings::Unusual { cpus, setting, default } = unusual;
        json!({"setting": setting, "cpus": cpus.to_string(), "default": default})
    });
    let holders = status.machine_limit_holders.iter();
    let holders = holders.map(|(pid, name)| json!({"pid": pid, "name": name}));
    json!({
        "sessions": status.sessions.iter().map(session).collect::<Vec<_>>(),
        "taken": taken.collect::<Vec<_>>(),
        "unusual": unusual.collect::<Vec<_>>(),
        "governor": status.governor,
        "machine_limit_ns": status.machine_limit_us.map(|us| u64::from(us) * 1_000),
        "machine_limit_holders": holders.collect::<Vec<_>>(),
        "others": status.others,
        "has_journal_of_another_boot": status.has_journal_of_another_boot,
    })
}
