//! `idlewise set`: changes settings of idle states, restores them, and says what is set.
//!
//! | file | holds |
//! | --- | --- |
//! | `apply.rs` | `set apply`: all settings or none |
//! | `revert.rs` | `set revert`: what was found before |
//! | `status.rs` | `set status`: what is set, by whom |
//! | `quiet.rs` | `set quiet`: a latency limit while a command runs |
//! | `hold.rs` | the process that holds limits for the others; not for users |

mod apply;
mod hold;
mod quiet;
mod revert;
mod status;

pub(super) use apply::time;

use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_host::settings::{Applied, Change, OtherWriter};
use idlewise_report::{counted, shown_in_line};
use serde_json::{Value, json};

use crate::error::{Failure, Result};
use crate::screen::say;

const EXAMPLES: &str = "\
Examples:
  # No C6 on four CPUs, for two hours
  sudo idlewise set apply --set C6=off@4-7 --expires 2h

  # At most 10 us to wake up while a benchmark runs
  sudo idlewise set quiet --latency 10us --cpus 4-7 -- taskset -c 4-7 ./benchmark

  # What is set, and by which command; then undo everything that was applied
  idlewise set status
  sudo idlewise set revert";

/// Change the governor, idle states and latency limits, reversibly
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Set {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Apply(apply::Apply),
    Revert(revert::Revert),
    Status(status::Status),
    Quiet(quiet::Quiet),
    /// Hold settings for a session
    #[command(hide = true)]
    Hold(hold::Hold),
}

impl Set {
    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode> {
        match self.what {
            What::Apply(apply) => apply.run(),
            What::Revert(revert) => revert.run(),
            What::Status(status) => status.run(),
            What::Quiet(quiet) => quiet.run(),
            What::Hold(hold) => hold.run(),
        }
    }
}

/// So many settings or files are shown, and the others counted.
const SHOWN_COUNT: usize = 12;

/// The program that holds settings.
pub(crate) fn holder() -> Option<PathBuf> {
    std::env::current_exe().ok()
}

/// Restores what was found. Fails if that is not what there is then. `place` is what the settings were applied for.
pub(super) fn restore(applied: Applied, place: &str) -> Result<()> {
    let settled = applied.revert().map_err(Failure::new)?.settled;
    settled.failed.first().map_or(Ok(()), |failed| {
        Err(Failure::new(format_args!("{place}: {}", failed.error))
            .with("the settings are not all as they were; as root: idlewise set revert"))
    })
}

/// Says which programs may undo what was set.
pub(super) fn warn_of_others(others: &[OtherWriter]) {
    for other in others.iter().filter(|other| other.is_rival) {
        let how = match other.pid {
            Some(pid) => format!("runs (process {pid})"),
            None => "is started at boot".to_owned(),
        };
        let OtherWriter { name, writes, .. } = other;
        say(format_args!("idlewise: warning: {name} {how} and may write over this: {writes}"));
    }
}

fn changes_json(changes: &[Change]) -> Value {
    let change = |change: &Change| json!({"file": format!("/{}", change.file), "from": change.from, "to": change.to});
    changes.iter().map(change).collect()
}

/// A list of files as a line each, of which the first ones are shown.
fn lines(items: impl ExactSizeIterator<Item = String>, shown_count: usize) -> String {
    let rest_count = items.len().saturating_sub(shown_count);
    let mut text = String::new();
    for item in items.take(shown_count) {
        text.push_str(&format!("  {}\n", shown_in_line(&item)));
    }
    if rest_count > 0 {
        text.push_str(&format!("  and {rest_count} more (--json lists all)\n"));
    }
    text
}

/// Names a few settings, and counts the others.
fn settings_in_short(settings: &[String]) -> String {
    let rest_count = settings.len().saturating_sub(SHOWN_COUNT);
    let mut text = settings[..settings.len() - rest_count].join(" ");
    if rest_count > 0 {
        text += &format!(" and {rest_count} more");
    }
    text
}

fn files(count: usize) -> String {
    counted(count, "file")
}

/// A span in the largest unit that keeps two digits.
fn span(ns: u64) -> String {
    match ns / 1_000_000_000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7_200 => format!("{} min", s / 60),
        s @ 7_200..172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}
