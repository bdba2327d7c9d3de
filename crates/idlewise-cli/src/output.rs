//! Small files that commands write beside what they print.

use std::io::Write;
use std::path::Path;

use idlewise_trace::OutputFile;

use crate::error::Failure;

/// Writes a text file, whole or not at all; it replaces one that is there.
pub fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    let output = OutputFile::create(path, true)?;
    let mut file = output.file();
    file.write_all(text.as_bytes())
        .map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))?;
    Ok(output.finish()?)
}
