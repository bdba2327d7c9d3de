//! The file of checksums, as `sha256sum` writes and checks it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::{BundlePath, Unpacked};

/// The name of the file.
pub const SUMS: &str = "SHA256SUMS";

/// Computes the SHA-256 of what is left to read, as hexadecimal digits.
///
/// # Errors
/// If it cannot be read.
pub fn sum_of(mut content: impl std::io::Read) -> std::io::Result<String> {
    let mut hasher = Hasher(Sha256::new());
    std::io::copy(&mut content, &mut hasher)?;
    Ok(hexadecimal(&hasher.0.finalize()))
}

struct Hasher(Sha256);

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The SHA-256 of each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums(BTreeMap<BundlePath, String>);

/// Why a file of sums cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not a SHA-256, two spaces and the name of a file in the bundle")]
pub struct SumsError {
    /// The line, from 1.
    pub line: usize,
}

impl Sums {
    /// Adds a file.
    pub fn add(&mut self, path: BundlePath, sha256: String) {
        self.0.insert(path, sha256);
    }

    /// Computes the sum of some content, as hexadecimal digits.
    pub fn of(content: &[u8]) -> String {
        hexadecimal(&Sha256::digest(content))
    }

    /// Whether it looks like a sum.
    pub fn is_sum(text: &str) -> bool {
        text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// Parses the file.
    ///
    /// # Errors
    /// If a line is not one of ours.
    pub fn parse(text: &str) -> Result<Self, SumsError> {
        let mut sums = Sums::default();
        for (index, line) in text.lines().enumerate() {
            let error = SumsError { line: index + 1 };
            let (sum, path) = line.split_once("  ").ok_or_else(|| error.clone())?;
            let path = BundlePath::new(path).map_err(|_| error.clone())?;
            if !Self::is_sum(sum) {
                return Err(error);
            }
            if sums.0.insert(path, sum.to_owned()).is_some() {
                return Err(error);
            }
        }
        Ok(sums)
    }

    /// Compares with what was unpacked. Returns a sentence for each file that is not as the sums say.
    pub fn differences(&self, files: &[Unpacked]) -> Vec<String> {
        let mut differences = Vec::new();
        for file in files.iter().filter(|file| file.path.as_str() != SUMS) {
            match self.0.get(&file.path) {
                None => differences.push(format!("{} is not in {SUMS}", file.path)),
                Some(sum) if *sum != file.sha256 => {
                    differences.push(format!("{} is not the file that {SUMS} is about", file.path));
                }
                Some(_) => {}
            }
        }
        for path in self.0.keys() {
            if !files.iter().any(|file| file.path == *path) {
                differences.push(format!("{path} is missing"));
            }
        }
        differences
    }
}

impl std::fmt::Display for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(path, sum)| writeln!(f, "{sum}  {path}"))
    }
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_as_it_was_written() {
        let mut sums = Sums::default();
        sums.add(BundlePath::new("b").unwrap(), Sums::of(b"abc"));
        sums.add(BundlePath::new("a/c").unwrap(), Sums::of(b""));
        let text = sums.to_string();
        // FIPS 180-2's first example.
        assert!(
            text.ends_with("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n"),
            "{text}"
        );
        assert_eq!(Sums::parse(&text), Ok(sums));
    }

    #[test]
    fn other_lines_are_refused() {
        let sum = "0".repeat(64);
        for line in
            ["", "x", &format!("{sum} a"), &format!("{sum}  ../a"), &format!("{sum}  /a"), "00  a"]
        {
            assert_eq!(
                Sums::parse(&format!("{sum}  b\n{line}\n")),
                Err(SumsError { line: 2 }),
                "{line}"
            );
        }
        assert!(Sums::parse(&format!("{sum}  a\n{sum}  a\n")).is_err());
        assert!(Sums::parse(&format!("{}  a\n", "G".repeat(64))).is_err());
    }

    #[test]
    fn each_difference_is_named() {
        let file = |path: &str, content: &[u8]| Unpacked {
            path: BundlePath::new(path).unwrap(),
            byte_count: content.len() as u64,
            sha256: Sums::of(content),
        };
        let mut sums = Sums::default();
        for name in ["same", "changed", "missing"] {
            sums.add(BundlePath::new(name).unwrap(), Sums::of(b""));
        }
        let files =
            [file(SUMS, b"any"), file("same", b""), file("changed", b"x"), file("more", b"")];
        assert_eq!(
            sums.differences(&files),
            [
                "changed is not the file that SHA256SUMS is about",
                "more is not in SHA256SUMS",
                "missing is missing"
            ]
        );
    }
}
