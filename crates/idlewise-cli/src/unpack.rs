//! Compressed input: whatever a user's file is packed with, unpacked in one place for every format.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;
use tempfile::TempDir;

use crate::error::Failure;
use crate::progress::Progress;

/// How many times its size a file may unpack to, and how much any may: a trace of nothing but idle
/// entries shrinks to a hundredth, and a file that is made to fill disks to much less.
const MAX_RATIO: u64 = 2_000;
const MAX_BYTE_COUNT_ANYWAY: u64 = 1 << 28;

/// How much is unpacked at a time.
const BLOCK_BYTE_COUNT: usize = 1 << 18;

/// The longest of the magics below.
const MAGIC_BYTE_COUNT_MAX: u64 = 6;

type Unpacker = fn(BufReader<Counted>) -> io::Result<Box<dyn Read>>;

/// What a packed file begins with, and what unpacks it.
const PACKERS: [(&[u8], Unpacker); 3] = [
    (b"\xfd7zXZ\0", |packed| Ok(Box::new(XzDecoder::new_multi_decoder(packed)))),
    (b"\x1f\x8b", |packed| Ok(Box::new(MultiGzDecoder::new(packed)))),
    (b"\x28\xb5\x2f\xfd", |packed| Ok(Box::new(zstd::Decoder::with_buffer(packed)?))),
];

/// A file that can be read: itself, or what was in it, in a folder that goes when the value does.
pub enum Unpacked<'a> {
    /// It was not packed.
    Plain(&'a Path),
    /// The plain file, and its folder.
    Packed(PathBuf, #[expect(dead_code, reason = "kept for its drop")] TempDir),
}

impl<'a> Unpacked<'a> {
    /// Unpacks a file in .xz, .gz or .zst, which its first bytes tell.
    pub fn new(path: &'a Path) -> Result<Self, Failure> {
        let first = first_bytes(path, MAGIC_BYTE_COUNT_MAX)?;
        let Some((_, unpacker)) = PACKERS.iter().find(|(magic, _)| first.starts_with(magic)) else {
            return Ok(Unpacked::Plain(path));
        };
        let scratch = scratch_folder()?;
        let plain = scratch.path().join("recording");
        unpack(path, *unpacker, &plain)?;
        Ok(Unpacked::Packed(plain, scratch))
    }

    /// The plain file.
    pub fn path(&self) -> &Path {
        match self {
            Unpacked::Plain(path) => path,
            Unpacked::Packed(path, _) => path,
        }
    }
}

fn unpack(path: &Path, unpacker: Unpacker, to: &Path) -> Result<(), Failure> {
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
            to.display()
        ))
    };
    let file = File::open(path).map_err(fail)?;
    let packed_byte_count = file.metadata().map_err(fail)?.len();
    let limit = packed_byte_count.saturating_mul(MAX_RATIO).max(MAX_BYTE_COUNT_ANYWAY);
    let bar = Progress::bytes("unpacking", packed_byte_count);
    let mut packed = unpacker(BufReader::new(Counted { file, bar })).map_err(fail)?;
    let mut output = File::create(to).map_err(fail_to_write)?;
    let mut block = vec![0; BLOCK_BYTE_COUNT];
    let mut byte_count = 0;
    loop {
        let filled = match packed.read(&mut block) {
            Ok(0) => return Ok(()),
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

/// A folder for files that nobody keeps.
pub fn scratch_folder() -> Result<TempDir, Failure> {
    tempfile::Builder::new().prefix("idlewise-").tempdir().map_err(|error| {
        Failure::new(format_args!(
            "cannot make a folder for temporary files in {}: {error}; set TMPDIR",
            std::env::temp_dir().display()
        ))
    })
}

/// The first bytes of a file, or as many as it has.
pub fn first_bytes(path: &Path, byte_count: u64) -> Result<Vec<u8>, Failure> {
    let fail =
        |error: io::Error| Failure::new(format_args!("cannot read {}: {error}", path.display()));
    let mut first = Vec::new();
    let file = File::open(path).map_err(fail)?;
    file.take(byte_count).read_to_end(&mut first).map_err(fail)?;
    Ok(first)
}
