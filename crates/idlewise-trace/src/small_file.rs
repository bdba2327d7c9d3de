//! Files that are read at once: machine files, workloads, patches, C sources. Also [`open_regular`], for files of any
//! size that must be files.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Much longer than any text that people write by hand.
pub const TEXT_BYTE_COUNT_MAX: u64 = 16 << 20;

/// Opens a regular file, also through a link. Opening a pipe would wait for somebody who writes to it, and opening a
/// device may do something to it, so both are refused, like folders and sockets.
///
/// # Errors
/// Fails if it cannot be opened, or if it is no regular file; the message then says what it is.
pub fn open_regular(path: &Path) -> io::Result<File> {
    must_be_regular(fs::metadata(path)?.file_type())?;
    // In case it has become a pipe since: with this flag, opening one does not wait. Files ignore it.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    must_be_regular(file.metadata()?.file_type())?;
    Ok(file)
}

fn must_be_regular(kind: FileType) -> io::Result<()> {
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a file")))
}

/// Reads a whole file of at most `byte_count_max` bytes. Memory stays below that even for a device
/// or a sparse file.
///
/// # Errors
/// Fails if the file cannot be read or is longer, or is no regular file ([`open_regular`]).
pub fn read_small_file(path: &Path, byte_count_max: u64) -> io::Result<Vec<u8>> {
    read_small_file_of(open_regular(path)?, byte_count_max)
}

/// Like [`read_small_file`], for an open file, which may be a pipe.
///
/// # Errors
/// Fails if the file cannot be read or is longer.
pub fn read_small_file_of(file: File, byte_count_max: u64) -> io::Result<Vec<u8>> {
    // Unless it is a pipe, or grows: then the limit below counts.
    if file.metadata()?.len() > byte_count_max {
        return Err(too_large(byte_count_max));
    }
    let mut bytes = Vec::new();
    file.take(byte_count_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > byte_count_max {
        return Err(too_large(byte_count_max));
    }
    Ok(bytes)
}

fn too_large(byte_count_max: u64) -> io::Error {
    let most = byte_count_max >> 20;
    let what = format!("it has more than {most} MiB, which no such file has");
    io::Error::new(io::ErrorKind::FileTooLarge, what)
}

/// Like [`read_small_file`], for text of at most [`TEXT_BYTE_COUNT_MAX`] bytes.
///
/// # Errors
/// Fails if the file cannot be read, is longer, or is not UTF-8.
pub fn read_small_text(path: &Path) -> io::Result<String> {
    read_small_text_of(open_regular(path)?, TEXT_BYTE_COUNT_MAX)
}

/// Like [`read_small_text`], for an open file of at most `byte_count_max` bytes.
///
/// # Errors
/// Fails like [`read_small_text`].
pub fn read_small_text_of(file: File, byte_count_max: u64) -> io::Result<String> {
    let bytes = read_small_file_of(file, byte_count_max)?;
    String::from_utf8(bytes).map_err(|error| {
        let at_byte = error.utf8_error().valid_up_to();
        let what = format!("byte {at_byte} is not UTF-8 text");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), kind, mode, 0).unwrap();
        let _listening = UnixListener::bind(path("socket")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_small_text_of(open_regular(&path(name)).unwrap(), 1).unwrap(), "x");
        }
        let refused = |path: &Path| open_regular(path).unwrap_err().to_string();
        assert_eq!(refused(&path("pipe")), "it is a pipe, not a file");
        assert_eq!(refused(&path("socket")), "it is a socket, not a file");
        assert_eq!(refused(folder.path()), "it is a folder, not a file");
        assert_eq!(refused(Path::new("/dev/null")), "it is a device, not a file");
    }
}
