//! Files that are read at once: machine files, workloads, patches, C sources.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Much longer than any text that people write by hand.
pub const TEXT_BYTE_COUNT_MAX: u64 = 16 << 20;

/// Reads a whole file of at most `byte_count_max` bytes. Memory stays below that even for a device
/// or a sparse file.
///
/// # Errors
/// Fails if the file cannot be read or is longer.
pub fn read_small_file(path: &Path, byte_count_max: u64) -> io::Result<Vec<u8>> {
    read_small(File::open(path)?, byte_count_max)
}

fn read_small(file: File, byte_count_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(byte_count_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > byte_count_max {
        let most = byte_count_max >> 20;
        let what = format!("it has more than {most} MiB, which no such file has");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Like [`read_small_file`], for text of at most [`TEXT_BYTE_COUNT_MAX`] bytes.
///
/// # Errors
/// Fails if the file cannot be read, is longer, or is not UTF-8.
pub fn read_small_text(path: &Path) -> io::Result<String> {
    read_small_text_of(File::open(path)?)
}

/// Like [`read_small_text`], for an open file.
///
/// # Errors
/// Fails like [`read_small_text`].
pub fn read_small_text_of(file: File) -> io::Result<String> {
    let bytes = read_small(file, TEXT_BYTE_COUNT_MAX)?;
    String::from_utf8(bytes).map_err(|error| {
        let at_byte = error.utf8_error().valid_up_to();
        let what = format!("byte {at_byte} is not UTF-8 text");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}
