//! Compressed input: whatever a user's file is packed with, unpacked in one place for every format.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;
use rustix::io::Errno;

use crate::error::Failure;
use crate::progress::Progress;

/// How many times its size a file may unpack to, and how much any may: a trace of nothing but idle
/// entries shrinks to a hundredth, and a file that is made to fill disks to much less.
const MAX_RATIO: u64 = 2_000;
const MAX_BYTE_COUNT_ANYWAY: u64 = 1 << 28;

/// How much is unpacked at a time.
const BLOCK_BYTE_COUNT: usize = 1 << 18;

/// The longest of the magics below.
const MAGIC_BYTE_COUNT_MAX: usize = 6;

type Unpacker = fn(BufReader<Counted>) -> io::Result<Box<dyn Read>>;

/// What a packed file begins with, and what unpacks it.
const PACKERS: [(&[u8], Unpacker); 3] = [
    (b"\xfd7zXZ\0", |packed| Ok(Box::new(XzDecoder::new_multi_decoder(packed)))),
    (b"\x1f\x8b", |packed| Ok(Box::new(MultiGzDecoder::new(packed)))),
    (b"\x28\xb5\x2f\xfd", |packed| Ok(Box::new(zstd::Decoder::with_buffer(packed)?))),
];

/// The file itself, or what is packed in it as .xz, .gz or .zst, which its first bytes tell, in a
/// file without a name: nobody else can read it, and nothing is left of it.
pub fn unpack(path: &Path, file: File) -> Result<File, Failure> {
    let first = first_bytes(path, &file, MAGIC_BYTE_COUNT_MAX)?;
    match PACKERS.iter().find(|(magic, _)| first.starts_with(magic)) {
        Some((_, unpacker)) => unpack_with(path, file, *unpacker),
        None => Ok(file),
    }
}

fn unpack_with(path: &Path, mut file: File, unpacker: Unpacker) -> Result<File, Failure> {
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
    let limit = packed_byte_count.saturating_mul(MAX_RATIO).max(MAX_BYTE_COUNT_ANYWAY);
    let bar = Progress::bytes("unpacking", packed_byte_count);
    let mut packed = unpacker(BufReader::new(Counted { file, bar })).map_err(fail)?;
    let mut output = unnamed_file()?;
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
        if byte_count > limit {
            return Err(Failure::new(format_args!(
                "{}: unpacks to more than {MAX_RATIO} times its size, as no trace does; if it is \
                 one, unpack it with its own tool",
                path.display()
            )));
        }
        output.write_all(&block[..filled]).map_err(fail_to_write)?;
    }
}

/// A file whose progress is shown as it is read.
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

/// A file without a name in the folder for temporary ones.
pub fn unnamed_file() -> Result<File, Failure> {
    tempfile::tempfile().map_err(|error| {
        Failure::new(format_args!(
            "cannot make a temporary file in {}: {error}; set TMPDIR",
            std::env::temp_dir().display()
        ))
    })
}

/// The first bytes of a file, or as many as it has. It is read on from where it was.
pub fn first_bytes(path: &Path, file: &File, byte_count: usize) -> Result<Vec<u8>, Failure> {
    let mut first = vec![0; byte_count];
    let mut filled = 0;
    while filled < byte_count {
        match file.read_at(&mut first[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A terminal, or another device that can't be read at a place: what reads it says so.
            Err(error) if error.raw_os_error() == Some(Errno::SPIPE.raw_os_error()) => break,
            Err(error) => {
                return Err(Failure::new(format_args!("cannot read {}: {error}", path.display())));
            }
        }
    }
    first.truncate(filled);
    Ok(first)
}
