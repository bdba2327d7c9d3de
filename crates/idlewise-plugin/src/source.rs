//! The user's request: a file or a folder, a patch for it, and its kernel.

use std::path::{Path, PathBuf};

use idlewise_trace::read_small_text;

use crate::error::PluginError;
use crate::file::{SourceFile, read};
use crate::kernel::{KERNELS, Kernel};
use crate::{folder, patch};

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
        let makefile = read_small_text(&folder.join("Makefile"));
        let makefile = makefile.map_err(|_| missing("Makefile"))?;
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

    /// Returns whether a name is that of a governor's file or folder. A folder is named with a slash. One in what a
    /// governor is told, such as `hazard:lambda=1/4`, is none.
    pub fn is_path(name: &str) -> bool {
        let is_told = name.contains(":lambda=") && !name.ends_with('/');
        name.contains('/') && !is_told || name.ends_with(".c") || name.ends_with(".so")
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
        if let Some(file) = &self.patch {
            let failed =
                |reason| PluginError::Patch { patch: file.clone(), path: path.clone(), reason };
            patch::apply(&mut files, &read(file)?).map_err(failed)?;
        }
        Ok(files)
    }
}

/// Where a kernel's source tree keeps its governors.
pub(crate) fn governors(tree: &Path) -> PathBuf {
    tree.join("drivers/cpuidle/governors")
}

#[cfg(test)]
mod tests {
    use super::*;

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
