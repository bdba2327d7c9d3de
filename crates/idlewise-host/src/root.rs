//! The file system from which a machine is read.

use std::io::{self, Read};
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
        let mut bytes = Vec::new();
        self.open(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a file that contains a whole number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Returns the CPUs that the kernel lists as online, in order; empty if there is no list.
    pub fn online_cpus(&self) -> Vec<u16> {
        self.cpus_in("sys/devices/system/cpu/online").unwrap_or_default()
    }

    /// Returns the CPUs that the machine has, online or not, in order; those online if there is no list.
    pub fn present_cpus(&self) -> Vec<u16> {
        let present =
            self.cpus_in("sys/devices/system/cpu/present").filter(|cpus| !cpus.is_empty());
        present.unwrap_or_else(|| self.online_cpus())
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

/// Returns whether a list like `0-3,8,10-11` has a CPU, without allocating.
pub(crate) fn cpu_is_in(list: &str, cpu: u16) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&cpu),
            _ => false,
        }
    })
}

/// A list of CPUs that somebody typed and that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{part}' is no CPU and no range of CPUs; give a list such as 0-3,8")]
pub struct CpuListError {
    /// What was found.
    part: String,
}

/// Parses a list like `0-3,8,10-11` that somebody typed. Each CPU is returned once, in order.
///
/// # Errors
/// Fails if a part is no number or range from a lower to a higher one.
pub fn parse_cpu_list(list: &str) -> Result<Vec<u16>, CpuListError> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            (Ok(first), Ok(last)) if first <= last => cpus.extend(first..=last),
            _ => return Err(CpuListError { part: part.to_owned() }),
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Writes CPUs as a list like `0-3,8,10-11`, as the kernel does. They must be in order.
pub fn show_cpu_list(cpus: &[u16]) -> String {
    let runs = cpus.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let run = |run: &[u16]| match run {
        [] => String::new(),
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
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
        let has = |cpu| cpu_is_in("0-3,8,10-11", cpu);
        let found: Vec<u16> = (0..16).filter(|&cpu| has(cpu)).collect();
        assert_eq!(found, cpu_list("0-3,8,10-11"));
        assert!(!cpu_is_in("", 0) && !cpu_is_in("none", 0));
    }

    #[test]
    fn a_typed_list_must_be_right() {
        assert_eq!(parse_cpu_list("8,0-3, 2").unwrap(), [0, 1, 2, 3, 8]);
        for wrong in ["", "3-1", "a", "1,,2", "0-", "-1", "65536"] {
            assert!(parse_cpu_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn writes_lists_of_cpus() {
        assert_eq!(show_cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!((show_cpu_list(&[7]), show_cpu_list(&[])), ("7".to_owned(), String::new()));
        assert_eq!(show_cpu_list(&[65535]), "65535");
    }
}
