//! The file system from which a machine is read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The root folder of a machine: `/`, or a folder with a copy of another machine's files.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// This machine.
    pub fn live() -> Self {
        Root("/".into())
    }

    /// A captured machine: a folder with `sys`, `proc`, `dev` and `boot`, as far as captured.
    pub fn at(folder: &Path) -> Self {
        Root(folder.to_owned())
    }

    /// Whether this is the machine that runs this program.
    pub(crate) fn is_live(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns the path of the machine's file `/NAME`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Reads a small text file and trims it. `None` if it cannot be read or is empty.
    pub fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).ok().and_then(|bytes| {
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            (!text.is_empty()).then_some(text)
        })
    }

    /// Reads a file's bytes.
    pub(crate) fn bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(name))
    }

    /// Reads a file that contains a whole number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Writes to an existing file. Only the kernel can create such files.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.path(name))?;
        file.write_all(text.as_bytes())
    }

    /// Returns the CPUs that the kernel lists as online, in order; empty if there is no list.
    pub fn online_cpus(&self) -> Vec<u16> {
        self.cpus_in("sys/devices/system/cpu/online").unwrap_or_default()
    }

    /// The CPUs in a file that lists them.
    pub(crate) fn cpus_in(&self, name: &str) -> Option<Vec<u16>> {
        self.text(name).map(|list| cpu_list(&list))
    }

    /// The number of CPU numbers on the machine: one more than the last possible CPU.
    pub(crate) fn possible_cpu_count(&self) -> usize {
        let possible = self.cpus_in("sys/devices/system/cpu/possible");
        let last = possible.and_then(|cpus| cpus.last().copied());
        last.or(self.online_cpus().last().copied()).map_or(0, |cpu| usize::from(cpu) + 1)
    }
}

/// Parses a list like `0-3,8,10-11`. Invalid parts are left out.
pub(crate) fn cpu_list(list: &str) -> Vec<u16> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    /// A machine with these files.
    pub(crate) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[test]
    fn reads_lists_of_cpus() {
        assert_eq!(cpu_list("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(cpu_list("0"), [0]);
        assert!(cpu_list("").is_empty() && cpu_list("none").is_empty());
    }
}
