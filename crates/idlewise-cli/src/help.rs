//! The command line as a whole: `idlewise --help` with grouped subcommands, and the text of
//! `idlewise` without arguments.

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, CommandFactory, FromArgMatches, Parser};
use idlewise_machine::nearest_name;

use crate::cmd::{self, GROUPS};
use crate::names::{RENAMED, Renamed, in_new_words};

const ABOUT: &str = concat!(
    "Is a machine slow to respond, or does it draw too much power when it has little to do? ",
    "idlewise tells you what idle states cost and what to change, tests the change, and applies it. ",
    "It also records what idle CPUs do, and replays it under any Linux idle governor.",
);

/// For users who run `idlewise` for the first time.
const FIRST_STEPS: &str = "\
idlewise tells you what CPU idle states cost and what to change. To begin:

  idlewise why                    what idle states cost on this machine: ten seconds, no root
  sudo idlewise advise -d 30      what to change, if anything
  idlewise replay                 five bundled recordings under the usual idle governors

`idlewise --help` lists all commands; each has `--help` with examples.
";

/// Find out what CPU idle states cost, and what to change
#[derive(Parser)]
#[command(name = "idlewise", version, long_about = ABOUT, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<cmd::Command>,
}

/// Returns the definition of the whole command line.
pub fn command() -> clap::Command {
    let command = with_negative_numbers(Cli::command());
    let template = template(&command);
    command.help_template(template)
}

/// Takes `-3` after an option for its value, so that the message says what values it has.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let of_option = |argument: Arg| match argument.get_long() {
        Some(_) if argument.get_action().takes_values() => argument.allow_negative_numbers(true),
        _ => argument,
    };
    command.mut_args(of_option).mut_subcommands(with_negative_numbers)
}

/// Parses the arguments. Also returns the old name in them, if there is one.
///
/// # Errors
/// Fails if they are invalid, or if they ask for help.
pub fn parse(arguments: Vec<OsString>) -> (Result<Cli, clap::Error>, Option<&'static Renamed>) {
    let mut arguments = arguments.into_iter();
    let program = arguments.next();
    let (words, renamed) = in_new_words(arguments.collect());
    let mut command =
        match words.iter().take_while(|word| *word != "--").any(|word| word == "--help") {
            true => in_full(command(), &words),
            false => command(),
        };
    let matches = command.try_get_matches_from_mut(program.into_iter().chain(words.clone()));
    let cli = matches.map_err(|error| with_hint(error, &words)).and_then(|matches| {
        Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    });
    (cli, renamed)
}

/// Suggests a command for one that does not exist. clap compares with one level only, and does not find `why` for `wy`.
fn with_hint(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    fn add(command: &clap::Command, place: &str, known: &mut Vec<(String, String)>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let name = below.get_name();
            known.push((name.to_owned(), format!("{place} {name}")));
            add(below, &format!("{place} {name}"), known);
        }
    }
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let mut known = Vec::new();
    add(&command(), "idlewise", &mut known);
    known.extend(RENAMED.iter().map(|(old, new)| ((*old).to_owned(), format!("idlewise {new}"))));
    // Of two that are equally near, the one of the level that the user named.
    let above = words.iter().take_while(|word| *word != unknown.as_str());
    let above: String = above.map(|word| format!("{} ", word.to_string_lossy())).collect();
    known.sort_by_key(|(name, full)| *full != format!("idlewise {above}{name}"));
    let nearest = nearest_name(unknown, known.iter().map(|(name, _)| name.as_str()));
    if let Some((_, full)) = known.iter().find(|(name, _)| Some(name.as_str()) == nearest) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![full.clone()]));
    } else {
        // Perhaps clap's is a hidden command.
        error.remove(ContextKind::SuggestedSubcommand);
    }
    error
}

/// Returns the definition for `--help` of the command that the words name. It has everything, in the layout of `-h`,
/// because clap's own layout for it needs three lines for each option.
fn in_full(command: clap::Command, words: &[OsString]) -> clap::Command {
    if let Some((word, rest)) = words.split_first()
        && let Some(below) = command.find_subcommand(word)
    {
        let name = below.get_name().to_owned();
        return command.mut_subcommand(name, |below| in_full(below, rest));
    }
    let about = command.get_long_about().or(command.get_about()).cloned().unwrap_or_default();
    let after = command.get_after_long_help().or(command.get_after_help()).cloned();
    command
        .about(about)
        .long_about(Resettable::Reset)
        .after_help(after.unwrap_or_default())
        .after_long_help(Resettable::Reset)
        .mut_args(argument_in_full)
}

fn argument_in_full(argument: Arg) -> Arg {
    let help = argument.get_long_help().or(argument.get_help());
    let help = help.map(|help| help.ansi().to_string().replace("\n\n", "\n")).unwrap_or_default();
    let values = argument.get_possible_values();
    let argument = argument.long_help(Resettable::Reset).hide_short_help(false);
    let explained = values.iter().filter_map(|value| Some((value.get_name(), value.get_help()?)));
    let explained: String = explained.map(|(name, help)| format!("\n- {name}: {help}")).collect();
    match explained.is_empty() {
        true => argument.help(help),
        false => argument.help(format!("{help}{explained}")).hide_possible_values(true),
    }
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
    text.push_str("{options}\n\n`idlewise COMMAND --help` explains a command and shows examples.\nThe documents that it names are in ");
    text.push_str(env!("CARGO_PKG_REPOSITORY"));
    text.push('.');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that `--help` prints where standard output is no terminal.
    #[test]
    fn a_help_has_each_option_and_no_line_or_example_longer_than_a_hundred_columns() {
        fn check(command: &clap::Command, name: &str) {
            let mut command = command.clone().term_width(100);
            let mut full = in_full(command.clone(), &[]);
            let text = full.render_long_help().to_string();
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for long in shown.filter_map(Arg::get_long) {
                assert!(text.contains(&format!("--{long}")), "{name} --help lacks --{long}");
            }
            for help in [command.render_help(), full.render_long_help()] {
                let help = help.to_string();
                let long = help.lines().find(|line| line.chars().count() > 100);
                assert_eq!(long, None, "{name} --help");
            }
            // clap wraps examples, too, and half a command cannot be pasted.
            let after = command.get_after_long_help().or(command.get_after_help());
            let after = after.map(ToString::to_string).unwrap_or_default();
            let long =
                after.lines().find(|line| line.starts_with("  ") && line.chars().count() > 100);
            assert_eq!(long, None, "{name} --help: end the line with a backslash earlier");
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
