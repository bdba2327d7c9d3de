//! How an experiment or a command fails: with a message that says where, what was found, and what to do.

use std::fmt::Display;
use std::io;
use std::path::Path;

pub use idlewise_machine::did_you_mean;
use idlewise_plugin::PluginError;
use idlewise_report::without_secrets;
use idlewise_sim::replay::JoinError;
use idlewise_trace::log::LogError;

/// Of a longer message, so much is shown.
const HEAD_CHARS: usize = 2_000;
const TAIL_CHARS: usize = 1_000;

/// What a command or an experiment has, or why it failed.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug)]
pub enum Failure {
    /// A message to the user, in one line.
    Message(String),
    /// The same, followed by another program's output, such as a compiler's.
    Lines(String),
    /// The reader of our output has gone, like `head`. Not an error.
    ClosedPipe,
}

impl Failure {
    /// Makes a failure from a message that says where, what was found, and what to do. Passwords in URLs are hidden.
    pub fn new(message: impl Display) -> Self {
        Failure::Message(without_middle(without_secrets(&message.to_string()).into_owned()))
    }

    /// Adds what to do about it.
    pub fn with(self, todo: &str) -> Self {
        match self {
            Failure::Message(message) => Failure::new(format_args!("{message}; {todo}")),
            other => other,
        }
    }

    /// Adds the file that it is about.
    pub fn within(self, path: &Path) -> Self {
        match self {
            Failure::Message(message) => {
                Failure::new(format_args!("{}: {message}", path.display()))
            }
            other => other,
        }
    }

    /// Returns the message.
    pub fn text(&self) -> String {
        match self {
            Failure::Message(message) | Failure::Lines(message) => message.clone(),
            Failure::ClosedPipe => String::new(),
        }
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Failure::new(error)
    }
}

impl From<PluginError> for Failure {
    fn from(error: PluginError) -> Self {
        match error {
            PluginError::DoesNotCompile { .. } => Failure::Lines(error.to_string()),
            _ => Failure::new(error),
        }
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Log(error) => error.into(),
            other => Failure::new(other),
        }
    }
}

/// For writing to standard output. Errors of named files include the name instead.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::new(format_args!("cannot write output: {error}")),
        }
    }
}

/// Shortens a long message. It quotes something long, such as a line of a file; its beginning says where, and its end what
/// to do.
pub fn without_middle(message: String) -> String {
    let end = message.char_indices().nth(HEAD_CHARS).map(|(at, _)| at);
    let start = message.char_indices().nth_back(TAIL_CHARS - 1).map(|(at, _)| at);
    match (end, start) {
        (Some(end), Some(start)) if end < start => {
            let left_out = message[end..start].chars().count();
            format!("{} [... {left_out} characters ...] {}", &message[..end], &message[start..])
        }
        _ => message,
    }
}

/// Splits the values of `--set`, each `KEY=VALUE`.
///
/// # Errors
/// Fails if one has another form, or if two have the same key: nobody could tell which counts.
pub fn keys_and_values<'a>(sets: &'a [String], hint: &str) -> Result<Vec<(&'a str, &'a str)>> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for set in sets {
        let Some((key, value)) = set.split_once('=') else {
            return Err(Failure::new(format_args!("--set {set}: expected KEY=VALUE{hint}")));
        };
        let (key, value) = (key.trim(), value.trim());
        if let Some((_, before)) = pairs.iter().find(|(known, _)| *known == key) {
            return Err(Failure::new(format_args!(
                "--set {set}: {key} was already set to {before}; give each key once"
            )));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_keeps_its_beginning_and_its_end() {
        let quoted = "\u{e4}".repeat(2_000_000);
        let Failure::Message(message) =
            Failure::new(format_args!("m.toml: line 3: '{quoted}' is wrong; write C6=off"))
        else {
            panic!("it is a message")
        };
        assert!(
            message.starts_with("m.toml: line 3: ") && message.ends_with("is wrong; write C6=off")
        );
        assert!(
            message.chars().count() < 3_100 && message.contains(" characters ...] "),
            "{message}"
        );
        let short = "x".repeat(HEAD_CHARS + TAIL_CHARS);
        assert_eq!(without_middle(short.clone()), short);
        let Failure::Message(again) = Failure::new(message).with(&"y".repeat(5_000)) else {
            panic!()
        };
        assert!(again.chars().count() < 3_100);
    }
}
