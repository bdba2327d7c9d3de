//! Opens files below a root so that no link leads outside, and no pipe stops us. A captured machine is a folder that
//! somebody else may have made, and commands that change settings run as root.
//!
//! Reading and listing follow links within the root, because sysfs has some. Settings are written without following any link: each
//! part of a path is opened by itself, relative to the folder before it. `openat2` could do that in one call, but
//! container runtimes often forbid it.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{
    Dir, FileType, Mode, OFlags, ResolveFlags, fstat, ftruncate, open, openat, openat2, readlinkat,
};
use rustix::io::Errno;

use crate::Root;
use crate::root::read_whole;

/// The files of settings have a few bytes. No file of sysfs that has a text is longer than a page.
const SETTING_BYTE_COUNT_MAX: u64 = 4096;

impl Root {
    /// Opens a file for reading. Below a captured machine's folder, links lead where they would on that machine, and
    /// never outside.
    pub(crate) fn open(&self, name: &str) -> io::Result<File> {
        if self.is_live() {
            return File::open(self.path(name));
        }
        // Opening a pipe must not wait for its other end.
        self.open_as(name, OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// Like [`Root::open`], with any flags; also waits for a pipe's other end unless the flags say otherwise.
    pub(crate) fn open_as(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        if self.is_live() {
            return Ok(open(self.path(name), flags, Mode::empty())?.into());
        }
        let folder_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(self.path(""), folder_flags, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match openat2(&root, name, flags, Mode::empty(), resolve) {
            // Where this call is missing or forbidden, no links are followed.
            Err(Errno::NOSYS | Errno::PERM) => {
                let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
                let folder = self.folder_beneath(folder)?;
                Ok(openat(&folder, last, flags | OFlags::NOFOLLOW, Mode::empty())?.into())
            }
            opened => Ok(opened?.into()),
        }
    }

    /// Returns the names in a folder, in no order; none if it cannot be read. Links are followed as by
    /// [`Root::open`].
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let opened = self.open_as(folder, OFlags::RDONLY | OFlags::DIRECTORY);
        let Ok(entries) = opened.and_then(|folder| Ok(Dir::read_from(folder)?)) else {
            return Vec::new();
        };
        let name = |entry: rustix::fs::DirEntry| entry.file_name().to_str().ok().map(str::to_owned);
        let names = entries.flatten().filter_map(name);
        names.filter(|name| name != "." && name != "..").collect()
    }

    /// Returns whether there is such a file or folder. Links are followed as by `Root::open`.
    pub fn has(&self, name: &str) -> bool {
        self.open_as(name, OFlags::PATH).is_ok()
    }

    /// Returns where a link leads, without going there; `None` if it is no link.
    pub(crate) fn link(&self, name: &str) -> Option<String> {
        let (folder, last) = name.rsplit_once('/')?;
        let folder = self.open_as(folder, OFlags::PATH | OFlags::DIRECTORY).ok()?;
        readlinkat(&folder, last, Vec::new()).ok()?.into_string().ok()
    }

    /// Opens a folder below the root, without following links below it.
    pub(crate) fn folder_beneath(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = open(self.path(""), flags, Mode::empty())?;
        for part in name.split('/').filter(|part| !part.is_empty()) {
            if part == "." || part == ".." {
                return Err(io::Error::new(ErrorKind::InvalidInput, "a path with `..` in it"));
            }
            folder = openat(&folder, part, flags | OFlags::NOFOLLOW, Mode::empty())?;
        }
        Ok(folder)
    }

    /// Opens an existing file or device below the root, without following links below it.
    pub(crate) fn open_beneath(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
        let folder = self.folder_beneath(folder)?;
        // Opening a pipe must not wait for its other end.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(openat(&folder, last, flags, Mode::empty())?);
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile | FileType::CharacterDevice => Ok(file),
            _ => Err(io::Error::other("it is no file")),
        }
    }

    /// Reads a setting and trims it, without following links. Fails if it is too long for a setting.
    pub(crate) fn text_beneath(&self, name: &str) -> io::Result<String> {
        Ok(self.whole_text_beneath(name, SETTING_BYTE_COUNT_MAX)?.trim().to_owned())
    }

    /// Reads a text of at most so many bytes, without following links. Fails if it is longer.
    pub(crate) fn whole_text_beneath(&self, name: &str, byte_count_max: u64) -> io::Result<String> {
        let bytes = read_whole(self.open_beneath(name, OFlags::RDONLY)?, byte_count_max)?;
        String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Writes a setting to an existing file, in a single system call, without following links.
    ///
    /// A file of sysfs takes what one call writes. A captured file could be caught between being emptied
    /// and being filled, so the call overwrites all of it, and what is too much is cut afterwards.
    pub(crate) fn write_beneath(&self, name: &str, value: &str) -> io::Result<()> {
        let mut file = self.open_beneath(name, OFlags::WRONLY)?;
        if self.is_live() {
            return file.write_all(value.as_bytes());
        }
        let old_byte_count = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let padded =
            format!("{value}\n{:\n<1$}", "", old_byte_count.saturating_sub(value.len() + 1));
        file.write_all(padded.as_bytes())?;
        Ok(ftruncate(&file, value.len() as u64 + 1)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::SETTING_BYTE_COUNT_MAX;
    use crate::root::tests::machine;

    #[test]
    fn a_link_leads_nowhere() {
        let (folder, root) = machine(&[("sys/real/value", "1\n"), ("target", "secret\n")]);
        let target = folder.path().join("target");
        symlink(&target, folder.path().join("sys/value")).unwrap();
        symlink(folder.path().join("sys/real"), folder.path().join("sys/folder")).unwrap();
        for name in ["sys/value", "sys/folder/value", "sys/../target"] {
            root.text_beneath(name).unwrap_err();
            root.write_beneath(name, "0").unwrap_err();
        }
        assert_eq!(fs::read_to_string(target).unwrap(), "secret\n");
        assert_eq!(root.text_beneath("sys/real/value").unwrap(), "1");
    }

    #[test]
    fn reading_follows_links_within_the_root_only() {
        let (folder, root) = machine(&[("sys/real/value", "1\n"), ("etc/hostname", "captured\n")]);
        let link = |target: &str, name: &str| symlink(target, folder.path().join(name)).unwrap();
        link("../sys/real", "sys/folder");
        link("/etc/hostname", "sys/absolute");
        link("../../../../../../../../../../etc/hostname", "sys/up");
        for (name, expected) in [
            ("sys/folder/value", Some("1")),
            ("sys/absolute", Some("captured")),
            ("sys/up", Some("captured")),
        ] {
            // Where openat2 is forbidden, links are not followed at all.
            let text = root.text(name);
            assert!(text.is_none() || text.as_deref() == expected, "{name}: {text:?}");
        }
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::write(outside.path(), "secret").unwrap();
        link(outside.path().to_str().unwrap(), "sys/outside");
        assert_eq!(root.text("sys/outside"), None);
    }

    #[test]
    fn listing_and_asking_stay_within_the_root_too() {
        let (folder, root) = machine(&[("sys/real/one", ""), ("sys/real/two", "")]);
        let link = |target: &str, name: &str| symlink(target, folder.path().join(name)).unwrap();
        let names = |folder: &str| {
            let mut names = root.names(folder);
            names.sort();
            names
        };
        assert_eq!(names("sys/real"), ["one", "two"]);
        assert!(root.has("sys/real") && root.has("sys/real/one") && !root.has("sys/real/three"));
        link("/sys/real", "sys/inside");
        // Where openat2 is forbidden, links are not followed at all.
        assert!(["one", "two"] == names("sys/inside")[..] || names("sys/inside").is_empty());
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "").unwrap();
        link(outside.path().to_str().unwrap(), "sys/outside");
        assert!(names("sys/outside").is_empty() && !root.has("sys/outside/secret"));
        assert_eq!(root.link("sys/outside").as_deref(), outside.path().to_str());
        assert_eq!((root.link("sys/outside/secret"), root.link("sys/real")), (None, None));
        assert!(names("sys/nowhere").is_empty() && names("sys/real/one").is_empty());
    }

    #[test]
    fn a_pipe_does_not_stop_us() {
        let (folder, root) = machine(&[("sys/value", "1\n")]);
        let pipe = folder.path().join("sys/pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        root.text_beneath("sys/pipe").unwrap_err();
        root.write_beneath("sys/pipe", "0").unwrap_err();
    }

    #[test]
    fn a_setting_that_is_too_long_is_refused_rather_than_cut() {
        let longest = "1".repeat(SETTING_BYTE_COUNT_MAX as usize);
        let (_folder, root) = machine(&[("sys/a", &longest), ("sys/b", &format!("{longest}1"))]);
        assert_eq!(root.text_beneath("sys/a").unwrap(), longest);
        let error = root.text_beneath("sys/b").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_shorter_value_leaves_no_rest() {
        let (folder, root) = machine(&[("sys/governor", "ladder\n")]);
        root.write_beneath("sys/governor", "teo").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("sys/governor")).unwrap(), "teo\n");
    }
}
