//! All output to standard output and standard error. Both go through [`shown`], because nearly
//! every line contains text from recordings, file names or compilers, and through
//! [`without_secrets`], because a URL may contain a password.
//!
//! Standard error may be unusable (`2>&1 | head`, a closed terminal, a full disk). That must not
//! cost a recording, so failing to write to it is not an error.

use std::fmt::Display;
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};
use std::path::Path;

use idlewise_report::{
    json_shown, json_without_secrets, shell_path, shown, shown_in_line, without_secrets,
};
use serde::Serialize;

/// The two escape sequences with which tables colour their best values.
const COLOURS: [&str; 2] = ["\u{1b}[1;32m", "\u{1b}[0m"];

/// A stream that a person may be reading.
pub enum Screen {
    /// Standard output. Errors are returned to the caller.
    Stdout(StdoutLock<'static>),
    /// Standard error. Errors are ignored.
    Stderr(StderrLock<'static>),
}

/// A document with its schema version.
#[derive(Serialize)]
pub struct Numbered<'a, T> {
    /// The schema version.
    pub schema: u32,
    /// The document, which must be an object.
    #[serde(flatten)]
    pub document: &'a T,
}

/// Returns standard output, for text and CSV.
pub fn stdout() -> Screen {
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    Screen::Stdout(io::stdout().lock())
}

/// Returns standard error, for text.
pub fn stderr() -> Screen {
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    Screen::Stderr(io::stderr().lock())
}

/// Returns standard output for raw data. Nothing is replaced.
pub fn raw_stdout() -> io::Stdout {
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    io::stdout()
}

/// Returns whether somebody may be watching standard error.
pub fn is_watched() -> bool {
    #[expect(clippy::disallowed_methods, reason = "only asked whether it is a terminal")]
    io::stderr().is_terminal()
}

/// Returns a file's name for use within a line.
pub fn name(path: &Path) -> String {
    shown_in_line(&without_secrets(&path.to_string_lossy())).into_owned()
}

/// A file as an operand of a command that can be pasted into a shell.
pub fn operand(path: &Path) -> String {
    without_secrets(&shell_path(path)).into_owned()
}

/// Prints a message on standard error, on its own line.
pub fn say(message: impl Display) {
    // A screen that is standard error never fails.
    // As one text, so that a URL is not in parts.
    let _ = writeln!(stderr(), "{}", without_secrets(&message.to_string()));
}

impl Screen {
    /// Writes a whole JSON document with its schema version. The version changes if something in
    /// the schema is renamed, removed or changes its meaning. docs/schemas describes each schema.
    ///
    /// # Errors
    /// Fails if standard output cannot be written to, or if the document is not an object.
    pub fn json(&mut self, schema: u32, document: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(&Numbered { schema, document })?;
        text.push('\n');
        self.write_raw(&json_shown(&json_without_secrets(&text)))
    }

    /// Like [`Screen::json`], in one line.
    ///
    /// # Errors
    /// Fails like [`Screen::json`].
    pub fn json_line(&mut self, schema: u32, document: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(&Numbered { schema, document })?;
        text.push('\n');
        self.write_raw(&json_shown(&json_without_secrets(&text)))
    }

    fn write_raw(&mut self, text: &str) -> io::Result<()> {
        match self {
            Screen::Stdout(stdout) => stdout.write_all(text.as_bytes()),
            Screen::Stderr(stderr) => {
                let _ = stderr.write_all(text.as_bytes());
                Ok(())
            }
        }
    }

    /// Writes text that contains our own colours, which are kept only for a terminal.
    fn write_text(&mut self, text: &str) -> io::Result<()> {
        let text = &*without_secrets(text);
        if !matches!(self, Screen::Stdout(stdout) if stdout.is_terminal()) {
            return self.write_raw(&shown(text));
        }
        let mut rest = text;
        while let Some((at, colour)) = first_colour(rest) {
            self.write_raw(&shown(&rest[..at]))?;
            self.write_raw(colour)?;
            rest = &rest[at + colour.len()..];
        }
        self.write_raw(&shown(rest))
    }
}

fn first_colour(text: &str) -> Option<(usize, &'static str)> {
    COLOURS.into_iter().filter_map(|colour| Some((text.find(colour)?, colour))).min()
}

impl Write for Screen {
    /// Formatting passes whole characters. Anything that is not UTF-8 becomes `�`.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_text(&String::from_utf8_lossy(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Screen::Stdout(stdout) => stdout.flush(),
            Screen::Stderr(_) => Ok(()),
        }
    }
}
