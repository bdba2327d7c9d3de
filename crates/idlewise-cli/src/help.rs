//! The command line as a whole: `idlewise --help` with grouped subcommands, and the text of
//! `idlewise` without arguments.

use std::fmt::Write as _;

use clap::{CommandFactory, FromArgMatches, Parser};

use crate::cmd::{self, GROUPS};

const ABOUT: &str = concat!(
    "Which idle state should that CPU have entered, and what did the wrong one cost? ",
    "Record what idle CPUs do, replay it under any Linux cpuidle governor on any machine's ",
    "idle states, and compare each decision with the best one.",
);

/// For users who run `idlewise` for the first time.
const FIRST_STEPS: &str = "\
idlewise replays what idle CPUs did under any Linux cpuidle governor. To begin:

  idlewise replay                 five bundled recordings under the usual governors
  sudo idlewise record -d 10      record this machine for ten seconds, into trace.dat
  idlewise replay trace.dat       the same comparison for your recording

`idlewise --help` lists all commands; each has `--help` with examples.
";

/// Replay idle CPUs under any cpuidle governor
#[derive(Parser)]
#[command(name = "idlewise", version, long_about = ABOUT, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<cmd::Command>,
}

/// Returns the definition of the whole command line.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let template = template(&command);
    command.help_template(template)
}

/// Parses the arguments.
///
/// # Errors
/// Fails if they are invalid, or if they ask for help.
pub fn parse(
    arguments: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns the text of `idlewise` without arguments.
pub fn first_steps() -> &'static str {
    FIRST_STEPS
}

/// clap can list subcommands under one heading only, so the list is made here.
fn template(command: &clap::Command) -> String {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max();
    let width = width.unwrap_or_default();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (group, names) in GROUPS {
        let _ = writeln!(text, "{header}{group}:{header:#}");
        for name in *names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(
                text,
                "  {literal}{name}{literal:#}{:1$}  {about}",
                "",
                width - name.len()
            );
        }
        text.push('\n');
    }
    text.push_str("{options}\n\n`idlewise COMMAND --help` explains a command and shows examples.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that `--help` prints where standard output is no terminal.
    #[test]
    fn no_line_of_a_help_is_longer_than_a_hundred_columns() {
        fn check(command: &clap::Command, name: &str) {
            let mut command = command.clone().term_width(100);
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                let long = help.lines().find(|line| line.chars().count() > 100);
                assert_eq!(long, None, "{name} --help");
            }
            for below in command.get_subcommands() {
                check(below, &format!("{name} {}", below.get_name()));
            }
        }
        check(&command(), "idlewise");
    }

    #[test]
    fn every_subcommand_is_in_one_group() {
        let command = command();
        command.clone().debug_assert();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut visible: Vec<&str> = visible.map(clap::Command::get_name).collect();
        listed.sort_unstable();
        visible.sort_unstable();
        assert_eq!(listed, visible);
    }
}
