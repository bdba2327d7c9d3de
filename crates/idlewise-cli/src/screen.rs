//! What commands say: standard output and standard error, written to nowhere else. Both pass through
//! [`shown`], since text from recordings, file names and compilers is in nearly every line.
//!
//! Standard error may be gone (`2>&1 | head`, a closed terminal, a full disk). That is no reason to
//! lose a recording, so nothing fails when it can't be written to.

use std::fmt::Display;
use std::io::{self, IsTerminal, StderrLock, StdoutLock, Write};
use std::path::Path;

use idlewise_report::{json_shown, shown, shown_in_line};
use serde::Serialize;

/// The two sequences of our own that a table colours its best values with.
const COLOURS: [&str; 2] = ["\u{1b}[1;32m", "\u{1b}[0m"];

/// A stream that a person may be looking at.
pub enum Screen {
    /// Standard output; errors are the caller's.
    Stdout(StdoutLock<'static>),
    /// Standard error; errors are nobody's.
    Stderr(StderrLock<'static>),
}

/// A document with the number of its shape.
#[derive(Serialize)]
pub struct Numbered<'a, T> {
    /// The number.
    pub schema: u32,
    /// An object.
    #[serde(flatten)]
    pub document: &'a T,
}

/// Standard output, for text and CSV.
pub fn stdout() -> Screen {
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    Screen::Stdout(io::stdout().lock())
}

/// Standard error, for text.
pub fn stderr() -> Screen {
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    Screen::Stderr(io::stderr().lock())
}

/// Standard output, for data in a format of its own: nothing is replaced.
pub fn raw_stdout() -> io::Stdout {
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    io::stdout()
}

/// Whether somebody may be watching standard error.
pub fn is_watched() -> bool {
    #[expect(clippy::disallowed_methods, reason = "only asked whether it is a terminal")]
    io::stderr().is_terminal()
}

/// A file's name within a line.
pub fn name(path: &Path) -> String {
    shown_in_line(&path.to_string_lossy()).into_owned()
}

/// A message on standard error, in a line of its own.
pub fn say(message: impl Display) {
    // A screen that is standard error never fails.
    let _ = writeln!(stderr(), "{message}");
}

impl Screen {
    /// A whole JSON document, with the number of its shape. Its number changes when something that the
    /// shape has is renamed, goes, or means something else; docs/schemas describes each shape.
    ///
    /// # Errors
    /// If standard output can't be written to, or the document is no object.
    pub fn json(&mut self, schema: u32, document: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(&Numbered { schema, document })?;
        text.push('\n');
        self.write_raw(&json_shown(&text))
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

    /// Writes text with our own colours in it, which a terminal alone gets.
    fn write_text(&mut self, text: &str) -> io::Result<()> {
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
    /// Pieces are whole characters, as formatting makes them; what is not UTF-8 becomes `�`.
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
