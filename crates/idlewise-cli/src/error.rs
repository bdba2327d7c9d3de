//! How a command fails: one line on standard error, and exit status 2. Exit status 1 means that the
//! command worked and the result is negative (a mismatch, a check that failed).

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use idlewise_host::settings::SettingsError;
use idlewise_machine::nearest_name;
use idlewise_report::shown_in_line;

use crate::screen::say;

/// A failed command.
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
    /// Makes a failure from a message that says where, what was found, and what to do.
    pub fn new(message: impl Display) -> Self {
        Failure::Message(message.to_string())
    }

    /// Adds what to do about it.
    pub fn with(self, todo: &str) -> Self {
        match self {
            Failure::Message(message) => Failure::Message(format!("{message}; {todo}")),
            other => other,
        }
    }

    /// Adds the file that it is about.
    pub fn within(self, path: &Path) -> Self {
        match self {
            Failure::Message(message) => Failure::Message(format!("{}: {message}", path.display())),
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

    /// Prints the failure and returns the exit status.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::Message(message) => {
                // A file name may contain newlines.
                say(format_args!("idlewise: {}", shown_in_line(&message)));
                ExitCode::from(2)
            }
            Failure::Lines(message) => {
                say(format_args!("idlewise: {message}"));
                ExitCode::from(2)
            }
            Failure::ClosedPipe => ExitCode::SUCCESS,
        }
    }
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        Failure::new(error)
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

/// What to do about an unknown name: suggests the most similar one, if any is close.
pub fn did_you_mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    match nearest_name(name, known) {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None => otherwise.to_owned(),
    }
}
