//! Files that commands write. [`OutputFile`] says what may be written where.

use std::fmt::Display;
use std::io::{BufWriter, Write};
use std::path::Path;

use idlewise_trace::{OutputFile, OutputOptions};

use crate::error::Failure;
use crate::screen::{self, Screen, say};

/// Starts a file. `inputs` are those that the command reads, none of which is replaced; `force` lets
/// any other regular file be.
///
/// # Errors
/// If something stands there that is not replaced, or the folder can't be written to.
pub fn create(path: &Path, force: bool, inputs: &[&Path]) -> Result<OutputFile, Failure> {
    start(path, &OutputOptions { replace: force, inputs, ..OutputOptions::default() })
}

/// The same for a file that only its owner may read.
///
/// # Errors
/// As [`create`].
pub fn create_private(path: &Path, force: bool) -> Result<OutputFile, Failure> {
    start(path, &OutputOptions { replace: force, is_private: true, ..OutputOptions::default() })
}

fn start(path: &Path, options: &OutputOptions<'_>) -> Result<OutputFile, Failure> {
    let waiting = |path: &Path| {
        let name = screen::name(path);
        say(format_args!("idlewise: waiting for {name}, a pipe that nobody reads; ctrl-c ends it"));
    };
    Ok(OutputFile::create(path, &OutputOptions { waiting: Some(&waiting), ..*options })?)
}

/// Where to say what became of a file: beside it, if it goes to standard output.
pub fn report_of(output: &OutputFile) -> fn() -> Screen {
    if output.is_stdout() { screen::stderr } else { screen::stdout }
}

/// Writes a text and finishes the file.
///
/// # Errors
/// If the disk is full.
pub fn write(output: OutputFile, text: impl Display) -> Result<(), Failure> {
    let mut file = BufWriter::new(output.file());
    let written = write!(file, "{text}").and_then(|()| file.flush());
    drop(file);
    written.map_err(|error| Failure::new(format_args!("{}: {error}", output.path().display())))?;
    output.finish()?;
    Ok(())
}
