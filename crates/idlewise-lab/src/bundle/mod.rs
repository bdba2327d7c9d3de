//! The container of an evidence bundle: files that were packed by us, and can be unpacked safely by anybody.
//!
//! A bundle is a tar archive of regular files, compressed with Zstandard. All files lie in one folder,
//! [`TOP`], so that other tools unpack them without mess. The same files always give the same bytes: order,
//! owner, mode and time are fixed.
//!
//! | file | holds |
//! | --- | --- |
//! | `path.rs` | [`BundlePath`]: the only names that a file in a bundle can have |
//! | `tar.rs` | headers; [`unpack_tar`], the reader |
//! | `sums.rs` | [`Sums`]: the file `SHA256SUMS` |
//!
//! # What a reader can rely on
//!
//! Somebody else made the bundle, perhaps to do harm. tar has grown links, devices, sparse files, long names
//! and other extensions, and readers of all that have been tricked often. Here a header is accepted only if it
//! equals, byte for byte, the one that the writer makes for that name and size. So there are regular files
//! only, and their names are paths below the top folder, without `..`. Names are in ascending order, so none
//! occurs twice. [`Limits`] bound how many files there are and how much is unpacked.

mod path;
mod sums;
mod tar;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

pub use path::{BundlePath, PathFault};
pub use sums::{SUMS, Sums, SumsError, sum_of};
pub use tar::unpack_tar;

/// The folder in which all files of a bundle are.
pub const TOP: &str = "evidence";

/// Most of a bundle is logs, which are compressed already. Higher levels take seconds to gain a few percent.
const LEVEL: i32 = 12;
/// The most memory that a bundle can make the decompressor take, as a power of two: 128 MiB.
const WINDOW_LOG_MAX: u32 = 27;
/// How a bundle begins: Zstandard's magic number.
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// What a bundle may contain at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files.
    pub file_count: usize,
    /// Bytes of all files together.
    pub byte_count: u64,
}

impl Limits {
    /// More files than any command needs, and four gigabytes.
    pub const USUAL: Limits = Limits { file_count: 4_096, byte_count: 4 << 30 };
}

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Where it is.
    pub path: BundlePath,
    /// Its size.
    pub byte_count: u64,
    /// The SHA-256 of its content, as hexadecimal digits.
    pub sha256: String,
}

/// Receives the files of a bundle. It is given a file's path and size, and reads its content.
pub type Take<'a> = dyn FnMut(&BundlePath, u64, &mut dyn Read) -> io::Result<()> + 'a;

/// Why a bundle is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// It is something else.
    #[error("it is not a bundle, which `idlewise log bundle` makes: it does not begin as one")]
    NotABundle,
    /// The bundle cannot be read.
    #[error("cannot read: {0}")]
    Read(io::Error),
    /// A file of it cannot be written.
    #[error("{path}: cannot unpack: {error}")]
    Take {
        /// The file.
        path: BundlePath,
        /// The system's error.
        error: io::Error,
    },
    /// It ends within a file or a header.
    #[error("it ends too early, at byte {at_byte} of the archive in it; copy it again")]
    Cut {
        /// Where.
        at_byte: u64,
    },
    /// There are bytes after its end.
    #[error("there is something after its end, at byte {at_byte} of the archive in it")]
    Longer {
        /// Where.
        at_byte: u64,
    },
    /// An entry is not a regular file.
    #[error("{name} is {what}, and a bundle has only regular files")]
    NotAFile {
        /// Its name, escaped.
        name: String,
        /// What it is instead.
        what: &'static str,
    },
    /// An entry has a forbidden name.
    #[error("{name} is no name for a file in a bundle: {fault}")]
    Name {
        /// The name, escaped.
        name: String,
        /// What is wrong with it.
        fault: PathFault,
    },
    /// A header is not one of ours.
    #[error(
        "the header at byte {at_byte} of the archive in it is not one that idlewise writes; was it packed \
         again with another program?"
    )]
    Header {
        /// Where.
        at_byte: u64,
    },
    /// A file is not in order, or is there twice.
    #[error("{path} is not in order, or is there twice")]
    Order {
        /// The file.
        path: BundlePath,
    },
    /// A file has the name of a folder.
    #[error("{path} lies in a file")]
    InAFile {
        /// The file.
        path: BundlePath,
    },
    /// There are too many files.
    #[error("it has more than {file_count_max} files")]
    Files {
        /// The limit.
        file_count_max: usize,
    },
    /// It unpacks to too much.
    #[error(
        "it unpacks to more than {byte_count_max} bytes; if you trust it, allow more with --max-unpacked"
    )]
    Bytes {
        /// The limit.
        byte_count_max: u64,
    },
}

/// Packs files of a folder.
///
/// # Errors
/// If a file cannot be read or the bundle cannot be written.
pub fn pack(folder: &Path, paths: &[BundlePath], to: impl Write) -> io::Result<()> {
    let mut sorted: Vec<&BundlePath> = paths.iter().collect();
    sorted.sort();
    sorted.dedup();
    let mut packer = zstd::Encoder::new(to, LEVEL)?;
    packer.include_checksum(true)?;
    for path in sorted {
        let file = File::open(folder.join(path.as_str()))?;
        let byte_count = file.metadata()?.len();
        packer.write_all(&tar::header(path, byte_count))?;
        // If it grows meanwhile, the rest is left out; if it shrinks, that is an error.
        let written = io::copy(&mut file.take(byte_count), &mut packer)?;
        if written != byte_count {
            return Err(io::Error::other(format!("{path} changed while it was packed")));
        }
        packer.write_all(&tar::ZEROS[..tar::padding(byte_count)])?;
    }
    packer.write_all(&tar::END)?;
    packer.finish()?.flush()
}

/// Reads a bundle, and passes each of its files to `take`. Nothing of a bundle may be used before this
/// returns, because what follows may be wrong.
///
/// # Errors
/// If it is not a bundle, exceeds the limits, or `take` fails.
pub fn unpack(
    mut packed: impl Read,
    limits: Limits,
    take: &mut Take<'_>,
) -> Result<Vec<Unpacked>, BundleError> {
    let mut begin = Vec::new();
    let mut first = packed.by_ref().take(ZSTANDARD.len() as u64);
    first.read_to_end(&mut begin).map_err(BundleError::Read)?;
    // What is shorter ends too early.
    if !ZSTANDARD.starts_with(&begin) {
        return Err(BundleError::NotABundle);
    }
    let packed = begin.as_slice().chain(packed);
    let mut archive = zstd::Decoder::new(packed).map_err(BundleError::Read)?;
    archive.window_log_max(WINDOW_LOG_MAX).map_err(BundleError::Read)?;
    unpack_tar(BufReader::new(archive), limits, take)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn paths(texts: &[&str]) -> Vec<BundlePath> {
        texts.iter().map(|text| BundlePath::new(text).unwrap()).collect()
    }

    fn packed(folder: &Path, texts: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        pack(folder, &paths(texts), &mut bytes).unwrap();
        bytes
    }

    fn unpacked(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, BundleError> {
        let mut files = Vec::new();
        unpack(bytes, Limits::USUAL, &mut |path, _, content| {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes)?;
            files.push((path.to_string(), bytes));
            Ok(())
        })?;
        Ok(files)
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("logs")).unwrap();
        fs::write(folder.path().join("logs/b.parquet"), vec![7; 1_000]).unwrap();
        fs::write(folder.path().join("a.txt"), "").unwrap();
        fs::write(folder.path().join("c.txt"), vec![b'x'; 512]).unwrap();
        folder
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let folder = folder();
        let bytes = packed(folder.path(), &["c.txt", "logs/b.parquet", "a.txt"]);
        let files = unpacked(&bytes).unwrap();
        let expected =
            [("a.txt", vec![]), ("c.txt", vec![b'x'; 512]), ("logs/b.parquet", vec![7; 1_000])];
        assert_eq!(files, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let bytes = packed(folder().path(), &["a.txt", "c.txt", "logs/b.parquet"]);
        // Other times, other inodes, another order.
        assert_eq!(packed(folder().path(), &["logs/b.parquet", "c.txt", "a.txt"]), bytes);
    }

    #[test]
    fn each_cut_is_an_error() {
        let folder = folder();
        let bytes = packed(folder.path(), &["a.txt", "c.txt", "logs/b.parquet"]);
        for length in 0..bytes.len() {
            assert!(unpacked(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
        }
    }

    #[test]
    fn what_is_no_bundle_is_said_to_be_none() {
        for other in [&b"\x1f\x8b\x08\x00 gzip"[..], b"(\xb5/\xfe", b"P"] {
            assert!(matches!(unpacked(other), Err(BundleError::NotABundle)), "{other:?}");
        }
    }

    #[test]
    fn limits_hold() {
        let folder = folder();
        let bytes = packed(folder.path(), &["a.txt", "c.txt", "logs/b.parquet"]);
        let with = |limits| {
            unpack(&bytes[..], limits, &mut |_, _, content| {
                io::copy(content, &mut io::sink()).map(drop)
            })
        };
        assert!(with(Limits { file_count: 3, byte_count: 1_512 }).is_ok());
        let few = with(Limits { file_count: 2, byte_count: 1_512 });
        assert!(matches!(few, Err(BundleError::Files { file_count_max: 2 })), "{few:?}");
        let small = with(Limits { file_count: 3, byte_count: 1_511 });
        assert!(matches!(small, Err(BundleError::Bytes { byte_count_max: 1_511 })), "{small:?}");
    }
}
