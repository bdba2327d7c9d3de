//! `idlewise set apply`.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use idlewise_host::Root;
use idlewise_host::settings::{Change, Lasts, Owner, Setting, apply, other_writers, planned};
use serde_json::json;

use super::{SHOWN_COUNT, changes_json, files, holder, lines, settings_in_short, warn_of_others};
use crate::error::{Failure, Result};
use crate::input::open_stream;
use crate::screen::{self, say};
use crate::signals::Signals;
use crate::sysroot::root;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// A file of settings has a few lines. More would be a mistake.
const FILE_BYTE_COUNT_MAX: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  # No C6 on four CPUs, until it is reverted or the machine reboots
  sudo idlewise set apply --set C6=off@4-7

  # At most 10 us to wake up these CPUs, for an hour, and why
  sudo idlewise set apply --set latency=10us@4-7 --expires 1h --reason 'trading hours'

  # What would be written where
  sudo idlewise set apply --set governor=teo --set C1E=off --dry-run

  # Settings from a file, one per line, # begins a comment
  sudo idlewise set apply /etc/idlewise/settings.conf

  # As a service: in force until it is stopped
  sudo idlewise set apply --on-exit restore /etc/idlewise/settings.conf

Settings: governor=NAME; STATE=off or STATE=on, for all CPUs or @CPUS; latency=TIME@CPUS, the \
longest exit latency allowed there (0us: polling only; none: no limit); latency=TIME for the whole \
machine, which a process in the background holds. All are set, or none. The old values are written \
to /run/idlewise first, so that `idlewise set revert` can always restore them. Several commands \
can limit the same CPU: the smallest limit counts. A reboot undoes everything.

Exit status: 0 on success; 1 if a file could not be restored with --on-exit restore; 2 on an \
error, in which case nothing was changed, unless the message names what could not be undone.";

/// Apply settings, all of them or none, until `set revert` or a reboot
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Apply {
    /// A file with a setting on each line
    #[arg(value_name = "FILE", required_unless_present = "set")]
    file: Option<PathBuf>,

    /// A setting, such as C6=off@4-7
    #[arg(long, value_name = "SETTING", value_parser = setting)]
    set: Vec<Setting>,

    /// After this time, such as 90s, 30min or 2h, restore the previous values
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires: Option<Duration>,

    /// Reason, shown by `set status`
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Keep running until SIGTERM or ctrl-c, then keep the settings or restore the previous values
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "dry_run")]
    on_exit: Option<OnExit>,

    /// Only print what would be written
    #[arg(long)]
    dry_run: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OnExit {
    Keep,
    Restore,
}

impl Apply {
    /// Applies the settings and says what was changed.
    pub fn run(self) -> Result<ExitCode> {
        let root = root(self.sysroot.as_deref())?;
        let mut settings = self.file.as_deref().map(read).transpose()?.unwrap_or_default();
        settings.extend(self.set.iter().cloned());
        if self.dry_run {
            self.print(&root, None, &settings, &planned(&root, &settings).map_err(Failure::new)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        // A ctrl-c must not come between the files.
        let mut signals = Signals::catch()?;
        let owner = Owner {
            command: "idlewise set apply".to_owned(),
            reason: self.reason.clone(),
            lasts: match self.on_exit {
                Some(OnExit::Restore) => Lasts::WhileRunning,
                Some(OnExit::Keep) | None => Lasts::UntilReverted,
            },
            expires_in: self.expires,
            holder: holder(),
        };
        let applied = apply(&root, &settings, &owner).map_err(Failure::new)?;
        match self.print(&root, Some(applied.id()), &settings, applied.changes()) {
            Ok(()) | Err(Failure::ClosedPipe) => {}
            Err(failure) => {
                // An error promises that nothing was changed.
                applied.revert().map_err(Failure::new)?;
                return Err(Failure::new(format_args!(
                    "{}; the settings were undone",
                    failure.text()
                )));
            }
        }
        let Some(on_exit) = self.on_exit else { return Ok(ExitCode::SUCCESS) };
        notify("READY=1")?;
        while !signals.has_ended() {
            signals.wait(Duration::MAX)?;
        }
        notify("STOPPING=1")?;
        match on_exit {
            OnExit::Keep => Ok(ExitCode::SUCCESS),
            OnExit::Restore => {
                super::revert::say_reverted(&applied.revert().map_err(Failure::new)?)
            }
        }
    }

    fn print(
        &self,
        root: &Root,
        id: Option<u64>,
        given: &[Setting],
        changes: &[Change],
    ) -> Result<()> {
        let others = other_writers(root);
        let settings: Vec<String> = given.iter().map(Setting::to_string).collect();
        let mut out = screen::stdout();
        if self.json {
            let document = json!({
                "id": id,
                "is_dry_run": self.dry_run,
                "settings": settings,
                "changes": changes_json(changes),
                "expires_in_s": self.expires.map(|time| time.as_secs()),
                "others": others,
            });
            return Ok(out.json(SCHEMA, &document)?);
        }
        let (set, changed) = match self.dry_run {
            true => ("Would set", "to change"),
            false => ("Set", "changed"),
        };
        let names = settings_in_short(&settings);
        let is_held = |setting: &Setting| {
            matches!(setting, Setting::LatencyLimit { cpus: None, limit: Some(_) })
        };
        match (changes.len(), given.iter().any(is_held)) {
            (0, true) => writeln!(
                out,
                "{set} {names}: a limit of the whole machine is in no file; a process holds it"
            )?,
            (0, false) => writeln!(out, "{names}: nothing to change, it is so already")?,
            (count, _) => writeln!(out, "{set} {names}: {} {changed}", files(count))?,
        }
        let line = |change: &Change| format!("/{}: {} -> {}", change.file, change.from, change.to);
        write!(out, "{}", lines(changes.iter().map(line), SHOWN_COUNT))?;
        drop(out);
        warn_of_others(&others);
        if !self.dry_run && self.on_exit.is_none() {
            say("To go back: sudo idlewise set revert");
        }
        Ok(())
    }
}

/// Reads a file of settings.
fn read(path: &Path) -> Result<Vec<Setting>> {
    let fail =
        |error: &dyn std::fmt::Display| Failure::new(format_args!("{}: {error}", path.display()));
    let mut text = String::new();
    let file = open_stream(path)?;
    file.take(FILE_BYTE_COUNT_MAX + 1).read_to_string(&mut text).map_err(|error| fail(&error))?;
    if text.len() as u64 > FILE_BYTE_COUNT_MAX {
        return Err(fail(&format_args!(
            "it has more than {FILE_BYTE_COUNT_MAX} bytes, so it is no file of settings; write one per line, such as C6=off@4-7"
        )));
    }
    // In `C2#2=off`, no comment begins.
    let is_comment = |before: &str| {
        before.contains('=') || !before.ends_with(|last: char| !last.is_whitespace())
    };
    let setting_end = |line: &str| {
        let mut ends =
            line.match_indices('#').map(|(at, _)| at).filter(|&at| is_comment(&line[..at]));
        ends.next().unwrap_or(line.len())
    };
    // Editors on Windows begin a file with a byte-order mark.
    let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let lines = lines.map(|(i, line)| (i + 1, line[..setting_end(line)].trim()));
    let settings = lines.filter(|(_, line)| !line.is_empty()).map(|(number, line)| {
        line.parse().map_err(|error| fail(&format_args!("line {number}: {error}")))
    });
    let settings: Vec<Setting> = settings.collect::<Result<_, _>>()?;
    match settings.is_empty() {
        true => Err(fail(&"it has no setting; write one per line, such as C6=off@4-7")),
        false => Ok(settings),
    }
}

fn setting(text: &str) -> Result<Setting, String> {
    text.parse().map_err(|error: idlewise_host::settings::SettingError| error.to_string())
}

/// Parses a time such as 90s, 30min or 2h.
pub fn time(text: &str) -> Result<Duration, String> {
    let digit_count = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digit_count);
    let seconds_each = match unit {
        "s" => 1,
        "min" => 60,
        "h" => 3_600,
        _ => 0,
    };
    match number.parse::<u32>() {
        Ok(number) if number > 0 && seconds_each > 0 => {
            Ok(Duration::from_secs(u64::from(number) * seconds_each))
        }
        _ => Err("give a time such as 90s, 30min or 2h".to_owned()),
    }
}

/// Tells systemd how we are, if it started us: a datagram to the socket that it names (sd_notify(3)). The crate
/// sd-notify would do the same.
fn notify(state: &str) -> Result<()> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let fail = |error| Failure::new(format_args!("cannot tell systemd {state}: {error}"));
    let bytes = name.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let address = address.map_err(fail)?;
    let socket = UnixDatagram::unbound().map_err(fail)?;
    socket.send_to_addr(state.as_bytes(), &address).map_err(fail).map(|_| ())
}
