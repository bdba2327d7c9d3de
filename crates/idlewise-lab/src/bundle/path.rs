//! Names of files in a bundle.

use std::fmt;

/// A path below the bundle's folder, such as `logs/server.parquet`. It has only plain components, so it can
/// be joined to a folder without leaving it, can be shown as it is, and cannot be mistaken for an option.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundlePath(String);

/// What is wrong with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathFault {
    /// It is longer than [`BundlePath::BYTE_COUNT_MAX`].
    #[error("longer than {} bytes", BundlePath::BYTE_COUNT_MAX)]
    Long,
    /// A component is empty, as in `/etc`, `a//b` and `a/`.
    #[error("a part of it is empty")]
    EmptyPart,
    /// A component begins with a dot, as `..` does.
    #[error("a part of it begins with a dot")]
    Dot,
    /// A component begins with a minus sign, as options do.
    #[error("a part of it begins with a minus sign")]
    Minus,
    /// It contains something else than letters, digits, and `. _ + -`.
    #[error("it has other characters than letters, digits and . _ + -")]
    Character,
    /// It is not below the bundle's folder.
    #[error("it is not in the folder evidence/")]
    Outside,
}

impl BundlePath {
    /// The longest path. With the top folder it fits into the oldest form of a tar header.
    pub const BYTE_COUNT_MAX: usize = 90;

    /// Checks a path.
    ///
    /// # Errors
    /// If it is not a plain path.
    pub fn new(text: &str) -> Result<Self, PathFault> {
        if text.len() > Self::BYTE_COUNT_MAX {
            return Err(PathFault::Long);
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
        for part in text.split('/') {
            match part.chars().next() {
                None => return Err(PathFault::EmptyPart),
                Some('.') => return Err(PathFault::Dot),
                Some('-') => return Err(PathFault::Minus),
                Some(_) if !part.chars().all(is_plain) => return Err(PathFault::Character),
                Some(_) => {}
            }
        }
        Ok(BundlePath(text.to_owned()))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders that it lies in, from the outermost.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[..at])
    }
}

impl fmt::Display for BundlePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use super::*;

    #[test]
    fn only_plain_paths_are_accepted() {
        for text in ["a", "logs/menu-6.12.parquet", "kernel/include/linux/a_b.h", "x+y"] {
            let path = BundlePath::new(text).unwrap();
            let mut parts = Path::new(path.as_str()).components();
            assert!(parts.all(|part| matches!(part, Component::Normal(_))), "{text}");
        }
        for (text, fault) in [
            ("", PathFault::EmptyPart),
            ("/etc/passwd", PathFault::EmptyPart),
            ("a//b", PathFault::EmptyPart),
            ("a/", PathFault::EmptyPart),
            ("..", PathFault::Dot),
            ("a/../b", PathFault::Dot),
            (".bashrc", PathFault::Dot),
            ("a/./b", PathFault::Dot),
            ("-o", PathFault::Minus),
            ("logs/--unconfined", PathFault::Minus),
            ("a\\..\\b", PathFault::Character),
            ("C:x", PathFault::Character),
            ("a\0b", PathFault::Character),
            ("a\u{1b}[2J", PathFault::Character),
            ("a b", PathFault::Character),
            ("é", PathFault::Character),
            ("a\u{202e}b", PathFault::Character),
        ] {
            assert_eq!(BundlePath::new(text), Err(fault), "{text:?}");
        }
        assert_eq!(BundlePath::new(&"a".repeat(91)), Err(PathFault::Long));
    }

    #[test]
    fn lists_its_folders() {
        let path = BundlePath::new("a/b/c.h").unwrap();
        assert_eq!(path.folders().collect::<Vec<_>>(), ["a", "a/b"]);
    }
}
