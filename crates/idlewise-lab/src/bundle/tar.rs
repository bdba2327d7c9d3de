//! Headers of tar archives (the form `ustar`), and the reader.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};

use sha2::{Digest, Sha256};

use super::sums::hexadecimal;
use super::{BundleError, BundlePath, Limits, PathFault, TOP, Take, Unpacked};

/// Headers and contents begin at multiples of this.
const BLOCK: usize = 512;
/// After a file, up to the next block.
pub(super) const ZEROS: [u8; BLOCK] = [0; BLOCK];
/// The end of an archive.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// The most bytes that eleven octal digits can say.
const SIZE_MAX: u64 = (1 << 33) - 1;

/// How many zeros follow a file of that size.
pub(super) fn padding(byte_count: u64) -> usize {
    (byte_count.wrapping_neg() % BLOCK as u64) as usize
}

/// The header of a file: of nobody in particular, written at no particular time.
pub(super) fn header(path: &BundlePath, byte_count: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &format!("{TOP}/{path}"));
    put(100, "0000644"); // mode
    put(108, "0000000"); // user
    put(116, "0000000"); // group
    put(124, &format!("{:011o}", byte_count.min(SIZE_MAX)));
    put(136, "00000000000"); // time
    put(148, "        "); // counts as spaces in its own sum
    put(156, "0"); // a regular file
    put(257, "ustar\0" /* and the version */);
    put(263, "00");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Reads an archive, as [`unpack`](super::unpack) does after decompressing.
///
/// # Errors
/// Like [`unpack`](super::unpack).
pub fn unpack_tar(
    archive: impl Read,
    limits: Limits,
    take: &mut Take<'_>,
) -> Result<Vec<Unpacked>, BundleError> {
    let mut archive = Archive { inner: archive, at_byte: 0 };
    let mut files: Vec<Unpacked> = Vec::new();
    let mut folders: BTreeSet<String> = BTreeSet::new();
    let mut byte_count_left = limits.byte_count;
    loop {
        let at_byte = archive.at_byte;
        let block = archive.block()?;
        if block == ZEROS {
            if archive.block()? != ZEROS {
                return Err(BundleError::Header { at_byte });
            }
            return archive.end().map(|()| files);
        }
        let (path, byte_count) = entry(&block, at_byte)?;
        if files.len() == limits.file_count {
            return Err(BundleError::Files { file_count_max: limits.file_count });
        }
        byte_count_left = byte_count_left
            .checked_sub(byte_count)
            .ok_or(BundleError::Bytes { byte_count_max: limits.byte_count })?;
        if files.last().is_some_and(|last| last.path >= path) {
            return Err(BundleError::Order { path });
        }
        // In ascending order, a folder's files come after a file of that name.
        let is_in_a_file =
            |folder: &str| files.binary_search_by(|file| file.path.as_str().cmp(folder)).is_ok();
        if path.folders().any(is_in_a_file) || folders.contains(path.as_str()) {
            return Err(BundleError::InAFile { path });
        }
        folders.extend(path.folders().map(str::to_owned));
        let mut content =
            Content { archive: &mut archive, left: byte_count, sum: Sha256::new(), error: None };
        let taken = take(&path, byte_count, &mut content);
        // What was not taken is still part of the sum.
        let skipped = io::copy(&mut content, &mut io::sink());
        let (sum, error) = (content.sum, content.error);
        if let Some(error) = error {
            return Err(error);
        }
        taken.and(skipped).map_err(|error| BundleError::Take { path: path.clone(), error })?;
        archive.zeros(padding(byte_count))?;
        files.push(Unpacked { path, byte_count, sha256: hexadecimal(&sum.finalize()) });
    }
}

/// The name and the size in a header, if it is one of ours.
fn entry(block: &[u8; BLOCK], at_byte: u64) -> Result<(BundlePath, u64), BundleError> {
    let text = |from: usize, to: usize| {
        let field = &block[from..to];
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        &field[..end]
    };
    if !block[257..].starts_with(b"ustar") {
        return Err(BundleError::Header { at_byte });
    }
    let bytes = [text(345, 500), text(0, 100)].into_iter().filter(|part| !part.is_empty());
    let bytes = bytes.collect::<Vec<_>>().join(&b'/');
    let shown = || bytes.escape_ascii().to_string();
    let what = match block[156] {
        b'0' | 0 => None,
        b'1' => Some("a hard link"),
        b'2' => Some("a symbolic link"),
        b'3' | b'4' => Some("a device"),
        b'5' => Some("a folder"),
        b'6' => Some("a pipe"),
        _ => Some("an extension of tar"),
    };
    if let Some(what) = what {
        return Err(BundleError::NotAFile { name: shown(), what });
    }
    let fault = |fault| BundleError::Name { name: shown(), fault };
    let name = std::str::from_utf8(&bytes).map_err(|_| fault(PathFault::Character))?;
    let below = name.strip_prefix(TOP).and_then(|rest| rest.strip_prefix('/'));
    let path = BundlePath::new(below.ok_or_else(|| fault(PathFault::Outside))?).map_err(fault)?;
    let digits = std::str::from_utf8(&block[124..135]).unwrap_or_default();
    let byte_count = u64::from_str_radix(digits, 8).map_err(|_| BundleError::Header { at_byte })?;
    match *block == header(&path, byte_count) {
        true => Ok((path, byte_count)),
        false => Err(BundleError::Header { at_byte }),
    }
}

/// An archive, and how much of it was read.
struct Archive<R> {
    inner: R,
    at_byte: u64,
}

impl<R: Read> Archive<R> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, BundleError> {
        loop {
            match self.inner.read(into) {
                Ok(count) => {
                    self.at_byte += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(BundleError::Cut { at_byte: self.at_byte });
                }
                Err(error) => return Err(BundleError::Read(error)),
            }
        }
    }

    fn fill(&mut self, mut into: &mut [u8]) -> Result<(), BundleError> {
        while !into.is_empty() {
            match self.read(into)? {
                0 => return Err(BundleError::Cut { at_byte: self.at_byte }),
                count => into = &mut into[count..],
            }
        }
        Ok(())
    }

    fn block(&mut self) -> Result<[u8; BLOCK], BundleError> {
        let mut block = ZEROS;
        self.fill(&mut block)?;
        Ok(block)
    }

    /// Reads what lies between a file and the next block. Nothing can be hidden there.
    fn zeros(&mut self, count: usize) -> Result<(), BundleError> {
        let (mut padding, at_byte) = (ZEROS, self.at_byte);
        self.fill(&mut padding[..count])?;
        if padding == ZEROS { Ok(()) } else { Err(BundleError::Header { at_byte }) }
    }

    fn end(&mut self) -> Result<(), BundleError> {
        match self.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(BundleError::Longer { at_byte: self.at_byte - 1 }),
        }
    }
}

/// The content of one file.
struct Content<'a, R> {
    archive: &'a mut Archive<R>,
    left: u64,
    sum: Sha256,
    /// What is wrong with the bundle, while the reader only sees that something is.
    error: Option<BundleError>,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = self.left.min(into.len() as u64) as usize;
        if most == 0 {
            return Ok(0);
        }
        let at_byte = self.archive.at_byte;
        let count = match self.archive.read(&mut into[..most]) {
            Ok(0) => Err(BundleError::Cut { at_byte }),
            read => read,
        };
        match count {
            Ok(count) => {
                self.left -= count as u64;
                self.sum.update(&into[..count]);
                Ok(count)
            }
            Err(error) => {
                let message = error.to_string();
                self.error.get_or_insert(error);
                Err(io::Error::other(message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive of headers and contents as they are given.
    fn archive(entries: &[([u8; BLOCK], &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (header, content) in entries {
            bytes.extend(header);
            bytes.extend(*content);
            bytes.extend(&ZEROS[..padding(content.len() as u64)]);
        }
        bytes.extend(END);
        bytes
    }

    fn ours(path: &str, byte_count: u64) -> [u8; BLOCK] {
        header(&BundlePath::new(path).unwrap(), byte_count)
    }

    /// A valid header with some bytes changed, and its sum made right again.
    fn changed(changes: &[(usize, &[u8])]) -> [u8; BLOCK] {
        let mut block = ours("file", 0);
        for (at, bytes) in changes {
            block[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    fn read(bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut take = |_: &BundlePath, _: u64, content: &mut dyn Read| {
            io::copy(content, &mut io::sink()).map(drop)
        };
        let files =
            unpack_tar(bytes, Limits::USUAL, &mut take).map_err(|error| error.to_string())?;
        Ok(files.into_iter().map(|file| file.path.to_string()).collect())
    }

    #[test]
    fn each_escape_is_refused() {
        let named = |name: &str| {
            let mut field = [0; 100];
            field[..name.len()].copy_from_slice(name.as_bytes());
            changed(&[(0, &field)])
        };
        for (header, reason) in [
            (named("evidence/../../etc/passwd"), "begins with a dot"),
            (named("/etc/passwd"), "not in the folder"),
            (named("evidence//etc/passwd"), "is empty"),
            (named("../evidence/x"), "not in the folder"),
            (named("evidence/.bashrc"), "begins with a dot"),
            (named("evidence/a/.."), "begins with a dot"),
            (named("evidence/-o"), "minus sign"),
            (named("evidence/a\\b"), "other characters"),
            (named("evidence/a\u{1b}[2J"), "other characters"),
            (named("evidence"), "not in the folder"),
            (named("evidence/"), "is empty"),
            (changed(&[(156, b"1"), (157, b"/etc/passwd")]), "a hard link"),
            (changed(&[(156, b"2"), (157, b"/etc/passwd")]), "a symbolic link"),
            (changed(&[(156, b"3")]), "a device"),
            (changed(&[(156, b"4")]), "a device"),
            (changed(&[(156, b"5")]), "a folder"),
            (changed(&[(156, b"6")]), "a pipe"),
            (changed(&[(156, b"L")]), "an extension"),
            (changed(&[(156, b"x")]), "an extension"),
            (changed(&[(156, b"g")]), "an extension"),
            (changed(&[(156, b"S")]), "an extension"),
            // A prefix moves the name elsewhere.
            (changed(&[(345, b"/etc")]), "not in the folder"),
            (changed(&[(157, b"target")]), "the header at byte 0"),
            (changed(&[(100, b"0004755")]), "the header at byte 0"),
            (changed(&[(108, b"0001750")]), "the header at byte 0"),
            (changed(&[(136, b"00000000001")]), "the header at byte 0"),
            (changed(&[(124, b"7777777777x")]), "the header at byte 0"),
            (changed(&[(124, b"\x80\0\0\0\0\0\0\0\0\0\0\x01")]), "the header at byte 0"),
            (changed(&[(124, b"+0000000001")]), "the header at byte 0"),
            (changed(&[(265, b"root")]), "the header at byte 0"),
        ] {
            let error = read(&archive(&[(header, b"")])).unwrap_err();
            assert!(error.contains(reason), "{error:?} has no {reason:?}");
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.chars().all(|c| !c.is_control()), "{error:?}");
        }
        // So the helper makes valid ones.
        assert_eq!(read(&archive(&[(changed(&[]), b"")])), Ok(vec!["file".to_owned()]));
    }

    #[test]
    fn nothing_is_there_twice_or_in_a_file() {
        let refused = |names: &[&str], reason: &str| {
            let entries: Vec<_> = names.iter().map(|name| (ours(name, 0), &b""[..])).collect();
            let error = read(&archive(&entries)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        refused(&["a", "a"], "twice");
        refused(&["b", "a"], "in order");
        refused(&["a", "a+b", "a/b"], "lies in a file");
        assert!(
            read(&archive(&[(ours("a", 0), b""), (ours("b/c", 0), b""), (ours("b/d", 0), b"")]))
                .is_ok()
        );
    }

    #[test]
    fn nothing_is_hidden() {
        let mut bytes = archive(&[(ours("a", 1), b"x")]);
        assert!(read(&bytes).is_ok());
        bytes[BLOCK + 1] = 1;
        assert!(read(&bytes).unwrap_err().contains("byte 513"), "behind a file");
        bytes[BLOCK + 1] = 0;
        bytes.push(0);
        assert!(read(&bytes).unwrap_err().contains("after its end"));
    }

    #[test]
    fn a_size_is_not_believed() {
        let mut archive = archive(&[(ours("a", SIZE_MAX), b"")]);
        let error = read(&archive).unwrap_err();
        assert!(error.contains("more than 4294967296 bytes"), "{error}");
        archive = ours("a", 1 << 30).to_vec();
        assert!(read(&archive).unwrap_err().contains("ends too early"));
    }
}
