//! Files with random access, by several threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ImportError;

/// A source that several threads can read at any offset at once.
pub(super) trait ReadAt: Send + Sync {
    /// Reads some bytes, or none at the end.
    fn read_at(&self, into: &mut [u8], at_byte: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, into: &mut [u8], at_byte: u64) -> io::Result<usize> {
        // The system's file offsets are signed. No file is that long.
        if i64::try_from(at_byte).is_err() {
            return Ok(0);
        }
        FileExt::read_at(self, into, at_byte)
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, into: &mut [u8], at_byte: u64) -> io::Result<usize> {
        let rest = usize::try_from(at_byte).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let byte_count = rest.len().min(into.len());
        if let (Some(into), Some(from)) = (into.get_mut(..byte_count), rest.get(..byte_count)) {
            into.copy_from_slice(from);
        }
        Ok(byte_count)
    }
}

/// What is read, and how many bytes it has.
pub(super) type Source = (Box<dyn ReadAt>, u64);

/// Reads a file.
pub(super) fn of_file(file: File) -> Result<Source, ImportError> {
    let metadata = file.metadata().map_err(|source| ImportError::Io { at_byte: 0, source })?;
    Ok((Box::new(file), metadata.len()))
}

/// Reads a file in memory.
pub(super) fn of_bytes(bytes: Vec<u8>) -> Source {
    let byte_count = bytes.len() as u64;
    (Box::new(bytes), byte_count)
}

/// Opens a file that is neither a folder nor a pipe.
pub(super) fn open(path: &Path) -> Result<File, ImportError> {
    let open = |source| ImportError::Open { path: path.to_owned(), source };
    checked(File::open(path).map_err(open)?)
}

/// Checks that a file is neither a folder nor a pipe.
pub(super) fn checked(file: File) -> Result<File, ImportError> {
    let kind = file.metadata().map_err(|source| ImportError::Io { at_byte: 0, source })?;
    let kind = kind.file_type();
    if kind.is_dir() {
        return Err(ImportError::Unsupported {
            at_byte: 0,
            found: "a directory of perf.data files".to_owned(),
            todo: "record without perf's option --threads",
        });
    }
    if !kind.is_file() {
        return Err(ImportError::Unsupported {
            at_byte: 0,
            found: "a pipe or a device".to_owned(),
            todo: "save what it gives to a file, and import that",
        });
    }
    Ok(file)
}

/// Fills `into` as far as the file has bytes, and returns how many it read.
pub(super) fn fill_at(
    source: &dyn ReadAt,
    into: &mut [u8],
    at_byte: u64,
) -> Result<usize, ImportError> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at_byte = at_byte.saturating_add(filled as u64);
        match source.read_at(rest, at_byte) {
            Ok(0) => break,
            Ok(byte_count) => filled += byte_count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(ImportError::Io { at_byte, source }),
        }
    }
    Ok(filled)
}

/// Reads `byte_count` bytes, or fewer at the end of the file. The buffer grows as bytes are read,
/// so a false count costs no memory.
pub(super) fn bytes_at(
    source: &dyn ReadAt,
    at_byte: u64,
    byte_count: u64,
) -> Result<Vec<u8>, ImportError> {
    const STEP_BYTE_COUNT: usize = 1 << 20;
    let mut bytes = Vec::new();
    loop {
        let start = bytes.len();
        let wanted = usize::try_from(byte_count - start as u64).unwrap_or(usize::MAX);
        let step = wanted.min(STEP_BYTE_COUNT);
        bytes.resize(start + step, 0);
        let into = bytes.get_mut(start..).unwrap_or_default();
        let filled = fill_at(source, into, at_byte.saturating_add(start as u64))?;
        bytes.truncate(start + filled);
        if filled < step || bytes.len() as u64 == byte_count {
            return Ok(bytes);
        }
    }
}
