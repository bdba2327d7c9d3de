//! The command line that a bundle proves: which commands and options can be in a bundle, and what each value
//! is. Whatever is not in the lists here is refused, both from the user and from somebody else's bundle.
//!
//! A line is parsed by idlewise's own parser, never by a shell, and then written again from what was parsed,
//! with each option before its value. So there is only one way to read it.

use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, ValueHint};
use idlewise_report::{shell_word, shown_in_line};

use crate::cmd::{Definition, arena, compare, predict, replay, simulate, study};
use crate::error::{Failure, Result, did_you_mean};
use crate::governor_arguments::ROLES as GOVERNORS;
use crate::joining::Joining;
use crate::names::in_new_words;
use crate::promoting::Promoting;
use crate::replay_arguments::{ROLES as REPLAY, SHOWN};
use crate::role::Roles;
pub use crate::role::{BundleRole, Promise};

/// A command that can be in a bundle.
pub struct Bundled {
    /// Its words.
    pub name: &'static str,
    pub promise: Promise,
    /// Its options and operands. For a measurement, which does not run again, they are not listed.
    roles: &'static [Roles],
}

impl Bundled {
    /// The role of an option, which stands beside the option in the command's file.
    fn role(&self, id: &str) -> Option<BundleRole> {
        let mut roles = self.roles.iter().copied().flatten();
        roles.find(|(_, ids)| ids.contains(&id)).map(|(role, _)| *role)
    }
}

/// The forms of a replay that `idlewise report` makes: a page to look at, and a text to mail.
pub const PAGE: &str = "page";
pub const MAIL: &str = "mail";

const fn same(name: &'static str, roles: &'static [Roles]) -> Bundled {
    Bundled { name, promise: Promise::Same, roles }
}

/// Every command that can be in a bundle. A form of `replay` comes before it.
pub const COMMANDS: [Bundled; 8] = [
    same("replay --compare", &[GOVERNORS, REPLAY]),
    same("replay --rank", &[GOVERNORS, SHOWN, arena::ROLES]),
    same("replay", &[GOVERNORS, REPLAY, Joining::ROLES, replay::ROLES]),
    same("predict", &[GOVERNORS, SHOWN, Promoting::ROLES, predict::ROLES]),
    same("lab simulate", &[GOVERNORS, SHOWN, Promoting::ROLES, simulate::ROLES]),
    same("lab study", &[study::ROLES]),
    same("lab compare", &[compare::ROLES]),
    Bundled { name: "measure", promise: Promise::Measured, roles: &[] },
];

/// An option or operand that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The option, as in `--machine`; `None` for an operand.
    pub option: Option<String>,
    /// Its value; `None` for a switch.
    pub value: Option<String>,
    /// What the value is.
    pub role: BundleRole,
}

/// A parsed command line.
pub struct Line {
    /// The command.
    pub command: &'static Bundled,
    /// What follows it, in order.
    pub words: Vec<Word>,
    /// The forms of output that it has.
    pub forms: Vec<&'static str>,
    /// To how much the user's recordings may unpack.
    pub max_unpacked: Option<u64>,
}

impl Line {
    /// Parses the words of a command, without the program's name, by the definition of the whole command line.
    ///
    /// # Errors
    /// Fails if they are no valid command line, or if something in it cannot be in a bundle.
    pub fn parse(words: &[OsString], definition: Definition) -> Result<Self> {
        let words = match words.first() {
            Some(first) if first == "idlewise" => &words[1..],
            _ => words,
        };
        let (words, _) = in_new_words(words.to_vec());
        let has_name = |command: &&Bundled| {
            let name: Vec<&str> = command.name.split(' ').collect();
            words.len() >= name.len() && name.iter().zip(&words).all(|(name, word)| word == name)
        };
        let Some(command) = COMMANDS.iter().find(has_name) else {
            let is_group =
                words.first().is_some_and(|word| word == "lab" || word == "log" || word == "set");
            let name =
                words.iter().take(1 + usize::from(is_group)).map(|word| word.to_string_lossy());
            let name = name.collect::<Vec<_>>().join(" ");
            let names = COMMANDS.iter().map(|command| command.name);
            let otherwise =
                format!("it holds one of {}", names.clone().collect::<Vec<_>>().join(", "));
            let hint = did_you_mean(&name, names, &otherwise);
            return Err(Failure::new(format_args!("a bundle cannot hold '{name}'; {hint}")));
        };
        let mut parser = definition();
        let given =
            [OsStr::new("idlewise")].into_iter().chain(words.iter().map(OsString::as_os_str));
        let matches = parser.try_get_matches_from_mut(given).map_err(|error| {
            // Help or an error of several lines: its first paragraph says what it is.
            let text = error.render().to_string();
            let first: Vec<&str> =
                text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let first = first.join(" ");
            Failure::new(format_args!(
                "the bundled command: {}",
                first.trim_start_matches("error: ")
            ))
        })?;
        let (mut matches, mut definition) = (&matches, Some(&parser));
        for word in command.name.split(' ') {
            let Some((_, below)) = matches.subcommand() else {
                return Err(Failure::new("the bundled command: nothing to do"));
            };
            (matches, definition) = (below, definition.and_then(|it| it.find_subcommand(word)));
        }
        if command.promise == Promise::Measured {
            return Self::of_measurement(command, &words[1..], definition, matches);
        }
        let arguments = || definition.into_iter().flat_map(clap::Command::get_arguments);
        let mut words: Vec<(usize, Word)> = Vec::new();
        for argument in arguments() {
            words.extend(given_words(command, argument, matches)?);
        }
        words.sort_by_key(|(index, _)| *index);
        let forms = ["json", "csv"].into_iter();
        let forms = forms.filter(|form| arguments().any(|argument| argument.get_id() == form));
        let words = words.into_iter().map(|(_, word)| word).collect();
        let max_unpacked = arguments()
            .any(|argument| argument.get_id() == "max_unpacked")
            .then(|| matches.get_one::<u64>("max_unpacked").copied())
            .flatten();
        Ok(Line { command, words, forms: forms.collect(), max_unpacked })
    }

    /// A measurement's words are kept as they are. It runs once, here, and never for others.
    fn of_measurement(
        command: &'static Bundled,
        words: &[OsString],
        definition: Option<&clap::Command>,
        matches: &ArgMatches,
    ) -> Result<Self> {
        if let Some((kind, matches)) = matches.subcommand() {
            let definition = definition.and_then(|definition| definition.find_subcommand(kind));
            let arguments = definition.into_iter().flat_map(clap::Command::get_arguments);
            let is_given = |argument: &&Arg| {
                !is_help(argument)
                    && matches.value_source(argument.get_id().as_str())
                        == Some(ValueSource::CommandLine)
            };
            for argument in arguments.filter(is_given) {
                let why = match argument.get_long() {
                    Some("csv") => "a bundle has the JSON, which holds all values",
                    _ if argument.get_value_hint() == ValueHint::AnyPath => {
                        "a bundle of a measurement has its JSON and no other file"
                    }
                    _ => continue,
                };
                return Err(refusal(&format!("measure {kind}"), argument, why));
            }
        }
        let word = |word: &OsString| {
            Ok(Word { option: None, value: Some(utf8(word)?), role: BundleRole::Plain })
        };
        let words: Vec<Word> = words.iter().map(word).collect::<Result<_>>()?;
        // What follows is somebody's command.
        let end = words.iter().position(|word| word.value.as_deref() == Some("--"));
        let (own, rest) = words.split_at(end.unwrap_or(words.len()));
        let own = own.iter().filter(|word| word.value.as_deref() != Some("--json"));
        Ok(Line {
            command,
            words: own.chain(rest).cloned().collect(),
            forms: vec!["json"],
            max_unpacked: None,
        })
    }

    /// Returns whether there is only text.
    pub fn is_only_text(&self) -> bool {
        self.words.iter().any(|word| word.role == BundleRole::OnlyText)
    }

    /// Returns the words with which it runs for one form of output (`text`, `json`, `csv`, [`PAGE`] or [`MAIL`]).
    pub fn words_for(&self, form: &str) -> Vec<String> {
        let is_report = matches!(form, PAGE | MAIL);
        let name = if is_report { "report" } else { self.command.name };
        let mut words: Vec<String> = name.split(' ').map(str::to_owned).collect();
        let is_kept = |word: &&Word| match word.role {
            BundleRole::InText => form == "text",
            BundleRole::InTable => !is_report,
            _ => true,
        };
        let kept = || self.words.iter().filter(is_kept);
        for word in kept().filter(|word| word.option.is_some()) {
            words.extend([&word.option, &word.value].into_iter().flatten().cloned());
        }
        match form {
            _ if self.command.promise == Promise::Measured => {}
            "text" => {}
            PAGE => words.extend(["--output", "report.html"].map(str::to_owned)),
            MAIL => words.extend(["--format", "mail"].map(str::to_owned)),
            form => words.push(format!("--{form}")),
        }
        let operands =
            || kept().filter(|word| word.option.is_none()).filter_map(|word| word.value.as_ref());
        let looks_like_option = |word: &&String| word.starts_with('-');
        if self.command.promise == Promise::Same && operands().any(|word| looks_like_option(&word))
        {
            words.push("--".to_owned());
        }
        if self.command.promise == Promise::Measured {
            // Options of a measurement are among its operands; what it measures may be a command of its own.
            let at = operands().position(|word| word == "--").unwrap_or(operands().count());
            words.extend(operands().take(at).cloned());
            words.push(format!("--{form}"));
            words.extend(operands().skip(at).cloned());
        } else {
            words.extend(operands().cloned());
        }
        words
    }
}

/// The words as one would type them in a shell.
pub fn shown_words(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    shown_in_line(&format!("idlewise {}", words.join(" "))).into_owned()
}

/// The occurrences of one option or operand, each with its place in the line.
fn given_words(
    command: &Bundled,
    argument: &Arg,
    matches: &ArgMatches,
) -> Result<Vec<(usize, Word)>> {
    let id = argument.get_id().as_str();
    if is_help(argument) || matches.value_source(id) != Some(ValueSource::CommandLine) {
        return Ok(Vec::new());
    }
    let option = option_of(argument);
    let role = command.role(id);
    let refused = |why: &str| refusal(command.name, argument, why);
    let role = match role {
        None => return Err(refused("this version does not know what it would have to hold")),
        Some(BundleRole::Refused(why)) => return Err(refused(why)),
        // It is not part of what was computed.
        Some(BundleRole::Here | BundleRole::Form) => return Ok(Vec::new()),
        Some(role) => role,
    };
    let indices = matches.indices_of(id).into_iter().flatten();
    if matches!(argument.get_action(), ArgAction::SetTrue) {
        return Ok(indices
            .take(1)
            .map(|index| (index, Word { option: option.clone(), value: None, role }))
            .collect());
    }
    let values = matches.get_raw(id).into_iter().flatten();
    indices
        .zip(values)
        .map(|(index, value)| {
            Ok((index, Word { option: option.clone(), value: Some(utf8(value)?), role }))
        })
        .collect()
}

fn is_help(argument: &Arg) -> bool {
    let action = argument.get_action();
    matches!(
        action,
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

/// How an option is written; `None` for an operand.
fn option_of(argument: &Arg) -> Option<String> {
    match (argument.is_positional(), argument.get_long()) {
        (true, _) => None,
        (false, Some(long)) => Some(format!("--{long}")),
        (false, None) => argument.get_short().map(|short| format!("-{short}")),
    }
}

fn refusal(command: &str, argument: &Arg, why: &str) -> Failure {
    let shown = option_of(argument).unwrap_or_else(|| argument.get_id().as_str().to_uppercase());
    Failure::new(format_args!("{command} {shown} cannot be in a bundle: {why}"))
}

fn utf8(word: &OsStr) -> Result<String> {
    word.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::new(format_args!(
            "{}: a bundle's command is text, and this is not UTF-8; give the file another name",
            word.to_string_lossy()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::help;

    fn parse(line: &str) -> Result<Line, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Line::parse(&words, help::command).map_err(|failure| match failure {
            Failure::Message(message) => message,
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn a_line_is_written_as_it_was_meant() {
        for (line, expected) in [
            (
                "replay --machine=spr x.parquet --governor menu",
                "replay --machine spr --governor menu x.parquet",
            ),
            ("idlewise replay", "replay"),
            ("replay --json --max-unpacked 4G", "replay"),
            ("replay --promote C1,C1E", "replay --promote C1 --promote C1E"),
            (
                "replay --kernel-source k --governor a.c --governor a.c --patch p x --compare",
                "replay --compare --kernel-source k --governor a.c --governor a.c --patch p x",
            ),
            ("arena x --lambda 1", "replay --rank --lambda 1 x"),
            (
                "simulate spr tcp-lat --set a=1 --seed 7",
                "lab simulate --set a=1 --seed 7 spr tcp-lat",
            ),
            ("lab study menu-min --set hz=100", "lab study --set hz=100 menu-min"),
            (
                "compare a b --more-a c d --percentiles",
                "lab compare --more-a c --more-a d --percentiles a b",
            ),
        ] {
            let parsed = parse(line).unwrap();
            assert_eq!(parsed.words_for("text").join(" "), expected);
            let again = parse(expected).unwrap();
            assert_eq!(again.words_for("text"), parsed.words_for("text"));
        }
        let words = parse("lab compare a b --percentiles").unwrap().words_for("csv");
        assert_eq!(words.join(" "), "lab compare --csv a b");
        let words = |form| parse("replay x --by-log --hz 250").unwrap().words_for(form).join(" ");
        assert_eq!(words("text"), "replay --by-log --hz 250 x");
        assert_eq!(words(PAGE), "report --hz 250 --output report.html x");
        assert_eq!(words(MAIL), "report --hz 250 --format mail x");
        let words = parse("replay -- -x").unwrap().words_for("json");
        assert_eq!(words.join(" "), "replay --json -- -x");
        let words = parse("measure counters --json -- sleep 1").unwrap().words_for("json");
        assert_eq!(words.join(" "), "measure counters --json -- sleep 1");
    }

    #[test]
    fn what_cannot_be_bundled_is_refused() {
        for (line, part) in [
            ("", "cannot hold ''"),
            ("replya", "did you mean 'replay'"),
            ("record -d 1", "cannot hold 'record'"),
            ("bundle -o x -- replay", "cannot hold 'log bundle'"),
            ("lab boot", "cannot hold 'lab boot'"),
            ("plugin-worker", "cannot hold"),
            (
                "replay --write-log x --governor menu --machine spr",
                "--write-log cannot be in a bundle",
            ),
            ("replay --governor a.c --unconfined", "--unconfined cannot be in a bundle"),
            ("lab simulate spr wakes --trace x", "--trace cannot be in a bundle"),
            ("lab study --pages docs", "--pages cannot be in a bundle"),
            ("lab simulate --list", "--list cannot be in a bundle"),
            ("replay --help", "the bundled command"),
            ("replay --no-such-option", "unexpected argument"),
            ("replay --unconfined x.parquet", "required arguments were not provided: --governor"),
        ] {
            let message = parse(line).err().unwrap_or_else(|| panic!("{line} is accepted"));
            assert!(message.contains(part), "{message:?} has no {part:?}");
        }
    }

    #[test]
    fn every_option_has_a_role() {
        let mut parser = help::command();
        parser.build();
        for command in COMMANDS.iter().filter(|command| command.promise == Promise::Same) {
            let mut words = command.name.split(' ');
            let definition = words.try_fold(&parser, |it, word| it.find_subcommand(word)).unwrap();
            let ids = definition.get_arguments().map(|argument| argument.get_id().as_str());
            let ids: Vec<&str> = ids.filter(|id| *id != "help").collect();
            for id in &ids {
                assert!(command.role(id).is_some(), "{} {id}", command.name);
            }
            for known in command.roles.iter().copied().flatten().flat_map(|(_, known)| *known) {
                assert!(ids.contains(known), "{} has no {known}", command.name);
            }
        }
    }
}
