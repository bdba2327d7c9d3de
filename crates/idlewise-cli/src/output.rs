//! Output files of commands. [`OutputFile`] says what may be written where.

use std::fmt::Display;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use idlewise_trace::{OutputFile, OutputOptions};

use crate::error::{Failure, Result};
use crate::screen::{self, Screen, say};

/// The name of standard output where a file is asked for. A file of that name is `./-`.
pub const STDOUT: &str = "-";

/// Starts a file. With `force`, it replaces any regular file except the command's `inputs`.
///
/// # Errors
/// Fails if there is a file that must not be replaced, or if the folder cannot be written to.
pub fn create(path: &Path, force: bool, inputs: &[&Path]) -> Result<OutputFile> {
    start(path, &OutputOptions { replace: force, inputs, ..OutputOptions::default() })
}

/// Like [`create`], for a file that only its owner may read.
///
/// # Errors
/// Fails like [`create`].
pub fn create_private(path: &Path, force: bool) -> Result<OutputFile> {
    start(path, &OutputOptions { replace: force, is_private: true, ..OutputOptions::default() })
}

fn start(path: &Path, options: &OutputOptions<'_>) -> Result<OutputFile> {
    let waiting = |path: &Path| {
        let name = screen::name(path);
        say(format_args!("idlewise: waiting for {name}, a pipe that nobody reads; ctrl-c ends it"));
    };
    if path == Path::new(STDOUT) {
        return Ok(OutputFile::stdout()?);
    }
    Ok(OutputFile::create(path, &OutputOptions { waiting: Some(&waiting), ..*options })?)
}

/// Returns where to print the summary: not to standard output if the file goes there.
pub fn report_of(output: &OutputFile) -> fn() -> Screen {
    if output.is_stdout() { screen::stderr } else { screen::stdout }
}

/// Writes a text and finishes the file.
///
/// # Errors
/// Fails if the disk is full.
pub fn write(output: OutputFile, text: impl Display) -> Result<()> {
    let mut file = BufWriter::new(output.file());
    let written = write!(file, "{text}").and_then(|()| file.flush());
    drop(file);
    finish(output, written)
}

/// Like [`write`], for what may be no text.
pub fn write_bytes(output: OutputFile, bytes: &[u8]) -> Result<()> {
    let written = output.file().write_all(bytes);
    finish(output, written)
}

fn finish(output: OutputFile, written: io::Result<()>) -> Result<()> {
    written.map_err(|error| Failure::new(format_args!("{}: {error}", output.path().display())))?;
    output.finish()?;
    Ok(())
}
