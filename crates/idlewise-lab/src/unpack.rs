//! Decompresses input files, in one place for all formats.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;
use rustix::io::Errno;

use crate::error::{Failure, Result};
use crate::progress::Progress;

/// How many times its size a file may decompress to, and a size that is always allowed. A trace of
/// nothing but idle entries shrinks to a hundredth; a file made to fill disks, to much less.
const MAX_RATIO: u64 = 2_000;
const MAX_BYTE_COUNT_ANYWAY: u64 = 1 << 28;

/// How much is decompressed at a time.
const BLOCK_BYTE_COUNT: usize = 1 << 18;

/// The length of the longest magic number below.
const MAGIC_BYTE_COUNT_MAX: usize = 6;

/// The share of the space for temporary files that a decompressed recording may take. The log made
/// from it and other programs need some too.
const ROOM_TENTHS: u64 = 9;

type Unpacker = fn(BufReader<Counted>) -> io::Result<Box<dyn Read>>;

/// The magic number and the decoder of each compression.
const PACKERS: [(&[u8], Unpacker); 3] = [
    (b"\xfd7zXZ\0", |packed| Ok(Box::new(XzDecoder::new_multi_decoder(packed)))),
    (b"\x1f\x8b", |packed| Ok(Box::new(MultiGzDecoder::new(packed)))),
    (b"\x28\xb5\x2f\xfd", |packed| Ok(Box::new(zstd::Decoder::with_buffer(packed)?))),
];

/// How packed recordings are unpacked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unpacking {
    max_unpacked: Option<u64>,
}

/// The most bytes that may come out, and what to print if there are more.
struct Limit {
    byte_count: u64,
    reason: String,
}

impl Unpacking {
    /// Unpacks to at most that many bytes, if that is given.
    pub fn at_most(byte_count: Option<u64>) -> Self {
        Unpacking { max_unpacked: byte_count }
    }

    /// Returns the file itself, or its content if its first bytes show .xz, .gz or .zst. The
    /// content is in an unnamed file, which nobody else can read and which leaves nothing behind.
    pub fn unpack(self, path: &Path, file: File) -> Result<File> {
        match unpacker(path, &file)? {
            Some(unpacker) => self.unpack_with(path, file, unpacker),
            None => Ok(file),
        }
    }

    fn limit(self, packed_byte_count: u64, free_byte_count: u64) -> Limit {
        let wanted = match self.max_unpacked {
            Some(byte_count) => Limit {
                byte_count,
                reason: format!("more than {byte_count} bytes, the limit of --max-unpacked"),
            },
            None => Limit {
                byte_count: packed_byte_count.saturating_mul(MAX_RATIO).max(MAX_BYTE_COUNT_ANYWAY),
                reason: format!(
                    "more than {MAX_RATIO} times its size, as no recording does; if it is one, \
                     allow more with --max-unpacked"
                ),
            },
        };
        let room = free_byte_count / 10 * ROOM_TENTHS;
        if wanted.byte_count <= room {
            return wanted;
        }
        let reason = format!(
            "more than {room} bytes, nine tenths of the free space in {}; set TMPDIR to a place \
             with more room",
            std::env::temp_dir().display()
        );
        Limit { byte_count: room, reason }
    }

    fn unpack_with(self, path: &Path, mut file: File, unpacker: Unpacker) -> Result<File> {
        let fail = |error: io::Error| {
            Failure::new(format_args!(
                "{}: cannot unpack: {error}; copy the file again, or unpack it with its own tool",
                path.display()
            ))
        };
        let fail_to_write = |error: io::Error| {
            Failure::new(format_args!(
                "{}: cannot unpack to {}: {error}; set TMPDIR to a place with more room",
                path.display(),
                std::env::temp_dir().display()
            ))
        };
        file.rewind().map_err(fail)?;
        let packed_byte_count = file.metadata().map_err(fail)?.len();
        let bar = Progress::bytes("unpacking", packed_byte_count);
        let mut packed = unpacker(BufReader::new(Counted { file, bar })).map_err(fail)?;
        let mut output = unnamed_file()?;
        let limit = self.limit(packed_byte_count, free_byte_count(&output));
        let mut block = vec![0; BLOCK_BYTE_COUNT];
        let mut byte_count = 0;
        loop {
            let filled = match packed.read(&mut block) {
                Ok(0) => return Ok(output),
                Ok(filled) => filled,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(fail(error)),
            };
            byte_count += filled as u64;
            if byte_count > limit.byte_count {
                let reason = limit.reason;
                return Err(Failure::new(format_args!("{}: unpacks to {reason}", path.display())));
            }
            output.write_all(&block[..filled]).map_err(fail_to_write)?;
        }
    }
}

/// The decoder of a file, if its first bytes show .xz, .gz or .zst.
fn unpacker(path: &Path, file: &File) -> Result<Option<Unpacker>> {
    let first = first_bytes(path, file, MAGIC_BYTE_COUNT_MAX)?;
    let packer = PACKERS.iter().find(|(magic, _)| first.starts_with(magic));
    Ok(packer.map(|(_, unpacker)| *unpacker))
}

/// Returns whether a file is packed, as far as it can be read.
pub fn is_packed(path: &Path, file: &File) -> bool {
    unpacker(path, file).is_ok_and(|unpacker| unpacker.is_some())
}

/// The space on the file's disk that an ordinary user may take; unlimited if unknown.
pub fn free_byte_count(file: &File) -> u64 {
    let disk = rustix::fs::fstatvfs(file);
    match disk {
        Ok(disk) if disk.f_blocks > 0 => disk.f_bavail.saturating_mul(disk.f_frsize),
        // The file system of a file in memory has no size.
        _ => u64::MAX,
    }
}

/// Parses a number of bytes as users write it: `4000`, `64M`, `2G`.
pub fn byte_count(text: &str) -> Result<u64, String> {
    let shifts = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let suffixed = shifts.iter().find_map(|&(suffix, shift)| {
        let number = text.strip_suffix([suffix, suffix.to_ascii_lowercase()])?;
        Some((number, shift))
    });
    let (number, shift) = suffixed.unwrap_or((text, 0));
    let number = number.parse::<u64>().ok();
    let byte_count = number.and_then(|number| number.checked_mul(1 << shift));
    byte_count.ok_or_else(|| "expected a number of bytes, such as 4000, 64M or 2G".to_owned())
}

/// A file whose progress is shown while it is read.
struct Counted {
    file: File,
    bar: Progress,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let byte_count = self.file.read(into)?;
        self.bar.add(byte_count as u64);
        Ok(byte_count)
    }
}

/// Creates an unnamed file in the folder for temporary files.
pub fn unnamed_file() -> Result<File> {
    Ok(idlewise_trace::unnamed_file()?)
}

/// Reads the first bytes of a file, or as many as it has. The file's position does not change.
pub fn first_bytes(path: &Path, file: &File, byte_count: usize) -> Result<Vec<u8>> {
    let mut first = vec![0; byte_count];
    let mut filled = 0;
    while filled < byte_count {
        match file.read_at(&mut first[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A terminal or another device without random access. Its reader reports the error.
            Err(error) if error.raw_os_error() == Some(Errno::SPIPE.raw_os_error()) => break,
            Err(error) => {
                return Err(Failure::new(format_args!("cannot read {}: {error}", path.display())));
            }
        }
    }
    first.truncate(filled);
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_memory_has_room() {
        let name = c"in memory";
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(free_byte_count(&file.into()), u64::MAX);
        assert_ne!(free_byte_count(&tempfile::tempfile().unwrap()), u64::MAX);
    }

    #[test]
    fn the_smallest_of_the_limits_counts() {
        let unpacking = |max_unpacked| Unpacking { max_unpacked };
        let limit = |asked, packed, free| unpacking(asked).limit(packed, free).byte_count;
        assert_eq!(limit(None, 1_000_000, u64::MAX), 2_000_000_000);
        assert_eq!(limit(None, 10, u64::MAX), MAX_BYTE_COUNT_ANYWAY);
        assert_eq!(limit(None, 1_000_000, 1_000_000_000), 900_000_000);
        assert_eq!(limit(Some(5), 1_000_000, 1_000_000_000), 5);
        assert_eq!(limit(Some(u64::MAX), 10, 1_000), 900);
        assert!(unpacking(None).limit(1, 0).reason.contains("TMPDIR"));
    }

    #[test]
    fn sizes_are_read_as_users_write_them() {
        assert_eq!(byte_count("4000"), Ok(4_000));
        assert_eq!((byte_count("64M"), byte_count("2g")), (Ok(64 << 20), Ok(2 << 30)));
        for wrong in ["", "M", "-1", "1.5G", "1MB", "99999999999T"] {
            assert!(byte_count(wrong).is_err(), "{wrong}");
        }
    }
}
