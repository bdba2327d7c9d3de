//! The user's request: a file or a folder, a patch for it, and its kernel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use idlewise_trace::{TEXT_BYTE_COUNT_MAX, read_small_file};

use crate::error::PluginError;
use crate::folder::{self, SourceFile};

/// A kernel for which there are headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The stable series.
    pub name: &'static str,
    /// Like `KERNEL_VERSION` in the headers.
    pub(crate) code: u32,
}

/// All kernels, oldest first.
pub const KERNELS: [Kernel; 5] = [
    Kernel { name: "6.1", code: 0x06_01_00 },
    Kernel { name: "6.6", code: 0x06_06_00 },
    Kernel { name: "6.12", code: 0x06_0c_00 },
    Kernel { name: "6.18", code: 0x06_12_00 },
    Kernel { name: "7.2", code: 0x07_02_00 },
];

impl Kernel {
    /// Parses a version such as `6.12` or `6.12.117-1`.
    ///
    /// # Errors
    /// If there are no headers for that series.
    pub fn parse(version: &str) -> Result<Self, PluginError> {
        let mut parts = version.split(['.', '-']);
        let series = match (parts.next(), parts.next()) {
            (Some(major), Some(minor)) => format!("{major}.{minor}"),
            _ => version.to_owned(),
        };
        let found = KERNELS.into_iter().find(|kernel| kernel.name == series);
        found.ok_or_else(|| PluginError::UnknownKernel { version: version.to_owned() })
    }

    /// Returns the kernel of a source tree: the newest one here that is not newer than the tree.
    ///
    /// # Errors
    /// If the folder is not a kernel's source, or the kernel is older than all of these.
    pub fn of_source(folder: &Path) -> Result<Self, PluginError> {
        let missing = |missing| PluginError::NotAKernelSource { path: folder.into(), missing };
        let makefile =
            fs::read_to_string(folder.join("Makefile")).map_err(|_| missing("Makefile"))?;
        let value = |name: &str| -> Option<u32> {
            let mut values = makefile.lines().filter_map(|line| line.split_once('='));
            values.find(|(key, _)| key.trim() == name)?.1.trim().parse().ok()
        };
        let (Some(major), Some(minor)) = (value("VERSION"), value("PATCHLEVEL")) else {
            return Err(missing("VERSION and PATCHLEVEL in its Makefile"));
        };
        let code = major.min(0xff) << 16 | minor.min(0xff) << 8;
        let found = KERNELS.into_iter().rev().find(|kernel| kernel.code <= code);
        found.ok_or_else(|| PluginError::UnknownKernel { version: format!("{major}.{minor}") })
    }
}

/// A governor's file, and how to build it.
#[derive(Clone, Debug)]
pub struct GovernorSource {
    /// The `.c` or `.so` file, or a folder of `.c` files.
    pub path: PathBuf,
    /// A patch to apply to a copy of its C files.
    pub patch: Option<PathBuf>,
    /// The kernel. Default: that of `kernel_source`, or else 6.12.
    pub kernel: Option<Kernel>,
    /// A kernel's source tree, for a governor that needs more than the headers here.
    pub kernel_source: Option<PathBuf>,
    /// Builds for this CONFIG_HZ only, as in a kernel. Otherwise any HZ can be replayed.
    pub fixed_hz: Option<u32>,
}

impl GovernorSource {
    /// Creates a source with default settings.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        GovernorSource {
            path: path.into(),
            patch: None,
            kernel: None,
            kernel_source: None,
            fixed_hz: None,
        }
    }

    /// Returns whether a name is that of a governor's file or folder. A folder is named with a slash.
    pub fn is_path(name: &str) -> bool {
        name.contains('/') || name.ends_with(".c") || name.ends_with(".so")
    }

    /// The file as named, or else in the kernel source's folder of governors.
    pub(crate) fn file(&self) -> PathBuf {
        let in_tree = self.kernel_source.as_ref().map(|tree| governors(tree).join(&self.path));
        match in_tree {
            Some(in_tree) if !self.path.exists() && in_tree.exists() => in_tree,
            _ => self.path.clone(),
        }
    }

    pub(crate) fn kernel(&self) -> Result<Kernel, PluginError> {
        match (self.kernel, &self.kernel_source) {
            (Some(kernel), _) => Ok(kernel),
            (None, Some(tree)) => Kernel::of_source(tree),
            (None, None) => Kernel::parse("6.12"),
        }
    }

    /// The C files, after the patch.
    pub(crate) fn files(&self) -> Result<Vec<SourceFile>, PluginError> {
        let path = self.file();
        let mut files = if path.is_dir() {
            folder::files(&path)?
        } else {
            vec![SourceFile { text: read(&path)?, path: path.clone(), flags: Vec::new() }]
        };
        if let Some(patch) = &self.patch {
            let failed =
                |reason| PluginError::Patch { patch: patch.clone(), path: path.clone(), reason };
            apply(&mut files, &read(patch)?).map_err(failed)?;
        }
        Ok(files)
    }
}

/// Where a kernel's source tree keeps its governors.
pub(crate) fn governors(tree: &Path) -> PathBuf {
    tree.join("drivers/cpuidle/governors")
}

pub(crate) fn read(path: &Path) -> Result<String, PluginError> {
    Ok(String::from_utf8_lossy(&read_bytes(path, TEXT_BYTE_COUNT_MAX)?).into_owned())
}

/// Reads a file, unless it is larger than that or endless.
pub(crate) fn read_bytes(path: &Path, byte_count_max: u64) -> Result<Vec<u8>, PluginError> {
    read_small_file(path, byte_count_max).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => PluginError::TooLarge { path: path.into(), byte_count_max },
        _ => PluginError::Io { path: path.into(), doing: "cannot read", error },
    })
}

/// Applies the parts of a patch for files with these names, of which there must be one.
fn apply(files: &mut [SourceFile], patch: &str) -> Result<(), String> {
    let parts = file_parts(patch);
    if parts.is_empty() {
        return Err(
            "it has no hunk ('--- ', '+++ ', '@@ ' lines); is it a unified diff?".to_owned()
        );
    }
    let mut is_applied = false;
    for file in files {
        let name = file.path.file_name().unwrap_or_default();
        let is_its = |path: &str| path.rsplit('/').next().is_some_and(|base| name == base);
        if let Some((_, part)) = parts.iter().find(|(path, _)| is_its(path)) {
            file.text = apply_part(&file.text, part)?;
            is_applied = true;
        }
    }
    if !is_applied {
        let paths: Vec<&str> = parts.iter().map(|(path, _)| path.as_str()).collect();
        return Err(format!("it is about {}", paths.join(", ")));
    }
    Ok(())
}

/// Applies one file's part. Hunks may have moved, but their context must match exactly.
fn apply_part(text: &str, part: &str) -> Result<String, String> {
    let part = diffy::Patch::from_str(part).map_err(|error| error.to_string())?;
    diffy::apply(text, &part).map_err(|error| {
        let hunk = error.to_string();
        let number = hunk.chars().filter(char::is_ascii_digit).collect::<String>();
        let at = number.parse::<usize>().ok().and_then(|n| part.hunks().get(n.checked_sub(1)?));
        match at {
            Some(hunk) => format!(
                "hunk {number}, about line {}, has other lines around it; is the patch for another \
                 version?",
                hunk.old_range().start()
            ),
            None => hunk,
        }
    })
}

/// The files in a patch, each with its own unified diff. Mail headers, signatures and git's lines are left
/// out.
fn file_parts(patch: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    let mut lines = patch.lines().peekable();
    // How many lines of the old and the new file are left in the hunk.
    let mut left = (0_u64, 0_u64);
    while let Some(line) = lines.next() {
        if left != (0, 0) {
            match line.as_bytes().first() {
                Some(b'-') => left.0 = left.0.saturating_sub(1),
                Some(b'+') => left.1 = left.1.saturating_sub(1),
                Some(b'\\') => {}
                _ => left = (left.0.saturating_sub(1), left.1.saturating_sub(1)),
            }
        } else if let (Some(old), Some(new)) =
            (line.strip_prefix("--- "), lines.peek().and_then(|next| next.strip_prefix("+++ ")))
        {
            let path = if new.starts_with("/dev/null") { old } else { new };
            let path = path.split('\t').next().unwrap_or(path).trim_end();
            parts.push((path.trim_start_matches("b/").to_owned(), format!("{line}\n+++ {new}\n")));
            lines.next();
            continue;
        } else if line.starts_with("@@ ") && !parts.is_empty() {
            left = hunk_lengths(line).unwrap_or_default();
        } else if !line.starts_with('\\') {
            continue;
        }
        if let Some((_, text)) = parts.last_mut() {
            // Mailers remove the space of an empty line.
            text.push_str(if line.is_empty() { " " } else { line });
            text.push('\n');
        }
    }
    parts.retain(|(_, text)| text.contains("\n@@ "));
    parts
}

/// Parses the lengths in `@@ -5,7 +5,8 @@`.
fn hunk_lengths(line: &str) -> Option<(u64, u64)> {
    let mut ranges = line.split(' ').skip(1).map(|range| match range.split_once(',') {
        Some((_, length)) => length.parse().ok(),
        None => Some(1),
    });
    Some((ranges.next()??, ranges.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(text: &str, patch: &str, name: &str) -> Result<String, String> {
        let file = |name: &str, text: &str| SourceFile {
            path: Path::new("a").join(name),
            text: text.to_owned(),
            flags: Vec::new(),
        };
        let mut files = [file("another.c", "another"), file(name, text)];
        super::apply(&mut files, patch)?;
        assert_eq!(files[0].text, "another");
        let [_, file] = files;
        Ok(file.text)
    }

    const TEXT: &str = "one\ntwo\nthree\nfour\n\nfive\n";

    #[test]
    fn applies_what_a_mail_says_about_one_of_its_files() {
        let mail = "From: a\n---\n other.c | 2 +-\n\ndiff --git a/x/other.c b/x/other.c\n\
                    --- a/x/other.c\n+++ b/x/other.c\n@@ -1 +1 @@\n-zero\n+null\n\
                    --- a/x/menu.c\n+++ b/x/menu.c\n@@ -2,5 +2,5 @@ one\n two\n-three\n+THREE\n four\n\n five\n\
                    -- \n2.39.0\n";
        assert_eq!(apply(TEXT, mail, "menu.c").unwrap(), TEXT.replace("three", "THREE"));
        assert_eq!(apply(TEXT, mail, "teo.c").unwrap_err(), "it is about x/other.c, x/menu.c");
    }

    #[test]
    fn says_which_hunk_does_not_fit() {
        let patch = "--- a/menu.c\n+++ b/menu.c\n@@ -2,2 +2,2 @@\n two\n-drei\n+THREE\n";
        let error = apply(TEXT, patch, "menu.c").unwrap_err();
        assert!(error.contains("hunk 1, about line 2"), "{error}");
        assert!(apply(TEXT, "hello\n", "menu.c").unwrap_err().contains("no hunk"));
    }

    #[test]
    fn finds_the_headers_for_a_version() {
        assert_eq!(Kernel::parse("6.12.117-1").unwrap().name, "6.12");
        assert_eq!(
            Kernel::parse("5.4").unwrap_err().to_string(),
            "no headers for Linux '5.4'; there are 6.1, 6.6, 6.12, 6.18, 7.2"
        );
        assert!(KERNELS.is_sorted_by_key(|kernel| kernel.code));
    }
}
