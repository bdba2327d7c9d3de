//! `idlewise report --format mail`: the result as text for a mailing list.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_lab::topology::Topology;
use idlewise_report::mail::{Mail, MailLog, MailMachine, under_commit};
use idlewise_report::replay::Outcome;
use idlewise_trace::read_small_file;

use super::Report;
use crate::cmd::replay::{outcomes, pool};
use crate::error::{Failure, Result};
use crate::governors::{self, Choice};
use crate::input::{NamedLog, must_have_gaps};
use crate::output;
use crate::program;
use crate::replay_arguments::{MACHINES_DEFAULT, Targets};
use crate::screen;

/// The largest patch that a text is put into.
const PATCH_BYTE_COUNT_MAX: u64 = 64 << 20;

/// Options of the mail, which the command that prints the same figures does not have, and whether they have a
/// value.
const OWN_OPTIONS: [(&str, bool); 7] = [
    ("--format", true),
    ("--commit", true),
    ("--bundle", true),
    ("--output", true),
    ("-o", true),
    ("--gaps", true),
    ("--force", false),
];

impl Report {
    /// Replays everything that was requested, and writes the mail.
    pub(super) fn write_mail(&self) -> Result<ExitCode> {
        if self.shared.json {
            return Err(Failure::new(
                "--json goes with the page; `idlewise replay --json` has the figures of a mail",
            ));
        }
        // Bounds and the oracle fill tables, and who wants them in a mail can name them.
        let choices = governors::distinct(self.governors.choices_or(&governors::usual())?);
        governors::must_decide(&choices)?;
        let machines = self.shared.machines(&choices)?;
        let inputs = self.shared.inputs(&self.governors);
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        // Fail before replaying, not after.
        let commit = match &self.commit {
            Some(path) => Some((path, read_commit(path)?)),
            None => None,
        };
        let to_file = match &self.output {
            Some(path) => Some(output::create(path, self.force, &inputs)?),
            None => None,
        };
        let logs = self.shared.open_logs()?;
        must_have_gaps(&logs)?;
        let Targets { targets, assumed } = machines.on_logs(&logs, &MACHINES_DEFAULT)?;
        let prices = self.shared.prices();
        let mut outcomes =
            outcomes(&self.shared, &logs, &targets, &choices, &prices, &Topology::NONE)?.0;
        let failed: Vec<String> =
            choices.iter().filter(|choice| choice.failure().is_some()).map(Choice::name).collect();
        outcomes.retain(|outcome| !failed.contains(&outcome.governor));
        let pooled = if logs.len() > 1 { pool(&outcomes, &targets) } else { outcomes };
        let mut notes = self.shared.notes(&logs, &targets, &choices);
        assumed.iter().for_each(|assumed| notes.doubt(assumed));
        let broken = pooled.iter().filter_map(Outcome::broken_rules);
        broken.for_each(|text| notes.doubt(text));
        let commit_id = program::described(program::VERSION, program::COMMIT);
        let mail = Mail {
            program: format!("idlewise {commit_id}"),
            logs: logs.iter().map(|named| self.mail_log(named)).collect(),
            machines: targets
                .iter()
                .map(|target| MailMachine {
                    id: target.machine.id.clone(),
                    title: target.machine.title.clone(),
                    power_basis: target.machine.power_basis(),
                })
                .collect(),
            outcomes: &pooled,
            notes: &notes,
            command: replay_command(
                crate::program::arguments()
                    .into_iter()
                    .map(|word| word.to_string_lossy().into_owned()),
            ),
            bundle: self.bundle.clone(),
        };
        let text = mail.to_text();
        match (commit, to_file) {
            (Some((path, patch)), _) => {
                put_under(path, &patch, &text)?;
                let (line_count, name) = (text.lines().count(), screen::name(path));
                writeln!(screen::stdout(), "{name}: {line_count} lines under its ---")?;
            }
            (None, Some(output)) => {
                let mut out = output::report_of(&output)();
                let (byte_count, name) = (text.len(), screen::name(output.path()));
                output::write(output, text)?;
                writeln!(out, "{name}: {byte_count} bytes")?;
            }
            (None, None) => screen::stdout().write_all(text.as_bytes())?,
        }
        let failed = governors::say_failures(&choices, "it is left out of the mail");
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn mail_log(&self, named: &NamedLog) -> MailLog {
        let metadata = &named.log.metadata;
        MailLog {
            name: named.name.clone(),
            gap_count: named.log.gap_count(),
            cpu_count: metadata.cpus.iter().filter(|cpu| cpu.gap_count > 0).count(),
            kernel: metadata.kernel.clone(),
            hz: self.shared.hz(named),
        }
    }
}

/// The command that prints the same figures as a table, from the words of this process.
fn replay_command(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut command = vec!["idlewise".to_owned(), "replay".to_owned()];
    let mut words = words.skip(2);
    while let Some(word) = words.next() {
        let is_with_value = |(option, has_value): &(&str, bool)| {
            *has_value && word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
        };
        match OWN_OPTIONS.iter().find(|(option, _)| *option == word) {
            Some((_, true)) => drop(words.next()),
            Some((_, false)) => {}
            None if OWN_OPTIONS.iter().any(is_with_value) => {}
            None => command.push(word),
        }
    }
    command
}

fn read_commit(path: &Path) -> Result<Vec<u8>> {
    let fail = |error: &dyn std::fmt::Display| {
        Failure::new(format_args!("--commit {}: {error}", path.display()))
    };
    let patch = read_small_file(path, PATCH_BYTE_COUNT_MAX).map_err(|error| fail(&error))?;
    under_commit(&patch, "").map_err(|fault| fail(&fault))?;
    Ok(patch)
}

/// The file is replaced at once, by one that has the same rights.
fn put_under(path: &Path, patch: &[u8], text: &str) -> Result<()> {
    let fail = |error: &dyn std::fmt::Display| {
        Failure::new(format_args!("--commit {}: {error}", path.display()))
    };
    let made = under_commit(patch, text).map_err(|fault| fail(&fault))?;
    let output = output::create(path, true, &[])?;
    let rights = fs::metadata(path).map_err(|error| fail(&error))?.permissions();
    if output.is_file() {
        output.file().set_permissions(rights).map_err(|error| fail(&error))?;
    }
    let mut file = output.file();
    file.write_all(&made).map_err(|error| fail(&error))?;
    output.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_prints_the_same_figures() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let line = "/usr/bin/idlewise report --format mail x.parquet --bundle=u --commit p -o o --force \
                    --machine spr --gaps 3";
        assert_eq!(
            replay_command(words(line).into_iter()),
            words("idlewise replay x.parquet --machine spr")
        );
    }
}
