//! How a command fails: one line on standard error, exit status 2. Status 1 means that the command
//! worked and its answer is "no" (a mismatch, a check that failed).

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use idlewise_machine::nearest_name;
use idlewise_report::shown_in_line;

use crate::screen::say;

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// Something to tell the user, in one line.
    Message(String),
    /// The same with words of another program below it, such as a compiler's.
    Lines(String),
    /// The reader of our output went away, as `head` does. Not an error.
    ClosedPipe,
}

impl Failure {
    /// A failure that says `message`: where, what was found, what to do.
    pub fn new(message: impl Display) -> Self {
        Failure::Message(message.to_string())
    }

    /// The same failure with what to do about it.
    pub fn with(self, todo: &str) -> Self {
        match self {
            Failure::Message(message) => Failure::Message(format!("{message}; {todo}")),
            other => other,
        }
    }

    /// Prints the failure and gives the exit status.
    pub fn report(self) -> ExitCode {
        match self {
            Failure::Message(message) => {
                // A file's name may have newlines in it.
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

/// For writing to standard output; errors of named files are wrapped with the name instead.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::new(format_args!("cannot write output: {error}")),
        }
    }
}

/// What to do about a name that nothing has: take the one that was probably meant, if any is close.
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
