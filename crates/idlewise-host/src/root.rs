//! The file system from which a machine is read.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any text of a machine that we read: the interrupts of thousands of CPUs are some ten million bytes.
const TEXT_BYTE_COUNT_MAX: u64 = 256 << 20;
/// Longer than any text but that of interrupts: thousands of CPUs are described in some ten million bytes.
const OTHER_TEXT_BYTE_COUNT_MAX: u64 = 32 << 20;
/// Longer than any text of sysfs, where a list of CPUs is the longest.
const SYSFS_TEXT_BYTE_COUNT_MAX: u64 = 1 << 20;

const PAGE_BYTE_COUNT: usize = 4096;

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

    /// Whether this machine's `/proc` or `/sys` is not mounted here, so that a file's absence says nothing.
    pub(crate) fn hides(&self, name: &str) -> bool {
        self.is_live() && !self.can_list(name)
    }

    /// Returns whether something is in the machine's folder `/NAME`.
    pub fn can_list(&self, name: &str) -> bool {
        self.path(name).read_dir().is_ok_and(|mut it| it.next().is_some())
    }

    /// Returns the path of the machine's file `/NAME`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Reads a small text file and trims it. `None` if it cannot be read or is empty.
    pub fn text(&self, name: &str) -> Option<String> {
        let limit = match name {
            "proc/interrupts" => TEXT_BYTE_COUNT_MAX,
            _ if name.starts_with("sys/") => SYSFS_TEXT_BYTE_COUNT_MAX,
            _ => OTHER_TEXT_BYTE_COUNT_MAX,
        };
        self.open(name).and_then(|file| read_whole(file, limit)).ok().and_then(|bytes| {
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            (!text.is_empty()).then_some(text)
        })
    }

    /// Reads a file's bytes.
    pub(crate) fn bytes(&self, name: &str) -> io::Result<Vec<u8>> {
        read_whole(self.open(name)?, TEXT_BYTE_COUNT_MAX)
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

    /// Returns how long ago somebody last moved a copy of a machine's files forward. `None` for files that the kernel
    /// keeps, and where that is not known.
    pub fn copy_age(&self) -> Option<Duration> {
        const SYSFS: u32 = 0x6265_6572;
        let cpus = self.path("sys/devices/system/cpu");
        let kind = rustix::fs::statfs(&cpus).ok()?.f_type;
        if u32::try_from(kind) == Ok(SYSFS) {
            return None;
        }
        let files = ["proc/uptime", "sys/devices/system/cpu/cpu0/cpuidle/state0/usage"];
        let times =
            files.iter().filter_map(|file| self.path(file).metadata().ok()?.modified().ok());
        times.max()?.elapsed().ok()
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

/// Reads all there is.
///
/// # Errors
/// Fails if that is more than so many bytes: half of a text would be taken for all of it.
pub(crate) fn read_whole(file: impl Read, byte_count_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(byte_count_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > byte_count_max {
        true => Err(too_long(byte_count_max)),
        false => Ok(bytes),
    }
}

/// Reads a small file from its beginning into memory that is used again, and trims it.
///
/// # Errors
/// Fails if the file has no text or does not fit: the digits that are missing would make another number.
pub(crate) fn small_text<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    let mut byte_count = file.read_at(buffer, 0)?;
    // sysfs gives a page at a time.
    while byte_count.is_multiple_of(PAGE_BYTE_COUNT) {
        match file.read_at(&mut buffer[byte_count..], byte_count as u64)? {
            0 => break,
            more => byte_count += more,
        }
    }
    if byte_count == buffer.len() {
        return Err(too_long(byte_count as u64 - 1));
    }
    let text = std::str::from_utf8(&buffer[..byte_count]);
    Ok(text.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?.trim())
}

/// Reads a small file that contains a whole number, as [`small_text`] does.
pub(crate) fn small_number(file: &File) -> Option<u64> {
    small_text(file, &mut [0; 32]).ok()?.parse().ok()
}

fn too_long(byte_count_max: u64) -> io::Error {
    let found = format!("it has more than {byte_count_max} bytes, which no such file needs");
    io::Error::new(ErrorKind::FileTooLarge, found)
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

/// Parses a list like `0-3,8,10-11`. Invalid parts are left out. Each CPU is returned once, in order.
pub(crate) fn cpu_list(list: &str) -> Vec<u16> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.trim().parse::<u16>().ok()?, last.trim().parse::<u16>().ok()?))
    };
    let mut ranges: Vec<(u16, u16)> = list.split(',').filter_map(range).collect();
    ranges.sort_unstable();
    let mut cpus: Vec<u16> = Vec::new();
    for (first, last) in ranges {
        // A list that names all CPUs a million times must not take their memory.
        match cpus.last() {
            Some(&end) if end >= last => {}
            Some(&end) if end >= first => cpus.extend(end + 1..=last),
            _ => cpus.extend(first..=last),
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
        assert_eq!(cpu_list("8,0-3,2-5,4,9-8"), [0, 1, 2, 3, 4, 5, 8]);
        assert_eq!(cpu_list(&"0-65535,".repeat(1_000)).len(), 65_536);
        let has = |cpu| cpu_is_in("0-3,8,10-11", cpu);
        let found: Vec<u16> = (0..16).filter(|&cpu| has(cpu)).collect();
        assert_eq!(found, cpu_list("0-3,8,10-11"));
        assert!(!cpu_is_in("", 0) && !cpu_is_in("none", 0));
    }

    #[test]
    fn what_is_too_long_is_an_error_and_is_never_cut() {
        assert_eq!(read_whole(&b"12345"[..], 5).unwrap(), b"12345");
        let error = read_whole(&b"123456"[..], 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        let digits = "7".repeat(40);
        let (_folder, root) = machine(&[("long", &digits), ("short", "00012\n")]);
        let open = |name: &str| root.open(name).unwrap();
        assert_eq!(small_number(&open("short")), Some(12));
        // The first 19 digits are a number too.
        assert_eq!(
            small_text(&open("long"), &mut [0; 19]).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
        assert_eq!(small_number(&open("long")), None);
    }

    #[test]
    fn no_file_of_sysfs_is_read_to_a_far_end() {
        let (folder, root) = machine(&[("sys/huge", "")]);
        // It takes no room on the disk.
        let file = File::options().write(true).open(folder.path().join("sys/huge")).unwrap();
        file.set_len(SYSFS_TEXT_BYTE_COUNT_MAX).unwrap();
        assert!(root.text("sys/huge").is_some());
        file.set_len(8 << 30).unwrap();
        assert_eq!(root.text("sys/huge"), None);
    }

    #[test]
    fn a_typed_list_must_be_right() {
        assert_eq!(parse_cpu_list("8,0-3, 2").unwrap(), [0, 1, 2, 3, 8]);
        for wrong in ["", "3-1", "a", "1,,2", "0-", "-1", "65536"] {
            assert!(parse_cpu_list(wrong).is_err(), "{wrong}");
        }
    }
}
