//! Files that commands write: what may stand where one is to be written, and how it comes there.
//!
//! | what stands at the path | what happens |
//! | --- | --- |
//! | nothing | the file appears there when it is whole |
//! | a regular file | it is replaced when the new one is whole, if the user wants that |
//! | one of the files that are read | refused |
//! | a pipe, a character device, our own standard output; also by way of a link | they get the bytes when all are there |
//! | any other link, a folder, a socket, a block device | refused |
//!
//! Until it is whole a file has no name, so that whatever kills its process leaves nothing behind.
//! Where the file system can't do that (NFS, FAT), it is called `.idlewise-….partial`, which
//! [`end_without_partial_files`] removes when a signal ends the process.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::log::LogError;

/// How a file is written.
#[derive(Clone, Copy, Default)]
pub struct OutputOptions<'a> {
    /// Whether a regular file of that name is replaced.
    pub replace: bool,
    /// Files that are read, and so are never replaced.
    pub inputs: &'a [&'a Path],
    /// Whether nobody but the owner may read it.
    pub is_private: bool,
    /// Told before a pipe without a reader is waited for.
    pub waiting: Option<&'a dyn Fn(&Path)>,
}

/// A file on its way; dropped before its end, it leaves nothing behind.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: File,
    way: Way,
}

/// What happens with the file in the end.
#[derive(Debug)]
enum Way {
    /// It gets its name; until then it has none, or that of a partial file.
    Name { replace: bool, partial: Option<Partial> },
    /// What stands at the path gets its bytes.
    Through { to: File, is_stdout: bool },
    /// It never has a name.
    Unnamed,
}

impl OutputFile {
    /// Starts a file that will appear at `path`.
    ///
    /// # Errors
    /// If something stands at `path` that is not to be replaced, or its folder can't be written to.
    pub fn create(path: &Path, options: &OutputOptions<'_>) -> Result<Self, LogError> {
        let io = |error| LogError::io(path, error);
        if let Some(to) = existing(path, options)? {
            let file = tempfile::tempfile().map_err(|error| LogError::Scratch { error })?;
            let (to, is_stdout) = to;
            let way = Way::Through { to, is_stdout };
            return Ok(OutputFile { path: path.to_owned(), file, way });
        }
        let folder = folder(path);
        if !folder.is_dir() {
            return Err(LogError::NoFolder { path: path.to_owned() });
        }
        // The second is what a new file gets, less the umask.
        let mode = if options.is_private { 0o600 } else { 0o666 };
        let (file, partial) = match without_name(folder, mode).map_err(io)? {
            Some(file) => (file, None),
            None => Partial::create(folder, mode).map(|(file, it)| (file, Some(it))).map_err(io)?,
        };
        let way = Way::Name { replace: options.replace, partial };
        Ok(OutputFile { path: path.to_owned(), file, way })
    }

    /// Starts a file that never gets a name; `path` stands for it in messages.
    ///
    /// # Errors
    /// If the folder for temporary files can't be written to.
    pub fn unnamed(path: &Path) -> Result<Self, LogError> {
        let file = tempfile::tempfile().map_err(|error| LogError::Scratch { error })?;
        Ok(OutputFile { path: path.to_owned(), file, way: Way::Unnamed })
    }

    /// Where it will appear.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its bytes go to our standard output, which then takes nothing else.
    pub fn is_stdout(&self) -> bool {
        matches!(self.way, Way::Through { is_stdout: true, .. })
    }

    /// Whether it will be a file of that name, which others can open.
    pub fn is_file(&self) -> bool {
        matches!(self.way, Way::Name { .. })
    }

    /// The file, to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// An unnamed file on the same disk, gone when it is closed.
    ///
    /// # Errors
    /// If the folder can't be written to.
    pub fn scratch(&self) -> Result<File, LogError> {
        match self.way {
            Way::Name { .. } => tempfile::tempfile_in(folder(&self.path))
                .map_err(|error| LogError::io(&self.path, error)),
            _ => tempfile::tempfile().map_err(|error| LogError::Scratch { error }),
        }
    }

    /// Gives the file its name, or its bytes to what stands there. Returns how many there are.
    ///
    /// # Errors
    /// If the disk is full, or something came to stand at the path meanwhile that may not be
    /// replaced.
    pub fn finish(self) -> Result<u64, LogError> {
        let OutputFile { path, mut file, way } = self;
        let io = |error| LogError::io(&path, error);
        let byte_count = file.metadata().map_err(io)?.len();
        match way {
            Way::Unnamed => {}
            Way::Through { mut to, .. } => {
                file.rewind().map_err(io)?;
                io::copy(&mut file, &mut to).map_err(io)?;
            }
            Way::Name { replace, partial } => {
                file.sync_all().map_err(io)?;
                let named = match partial {
                    Some(partial) => partial.rename(&path, replace),
                    None => give_name(&file, &path, replace),
                };
                named.map_err(|error| match error.kind() {
                    ErrorKind::AlreadyExists => LogError::Exists { path: path.clone() },
                    _ => LogError::io(&path, error),
                })?;
            }
        }
        Ok(byte_count)
    }

    /// The file itself, whatever it was to become.
    pub fn into_file(self) -> File {
        self.file
    }
}

/// What stands at a path, if it takes the bytes itself, and whether it is our standard output; none
/// if a file is to be put there.
fn existing(path: &Path, options: &OutputOptions<'_>) -> Result<Option<(File, bool)>, LogError> {
    let io = |error| LogError::io(path, error);
    let refuse = |what| Err(LogError::NotReplaced { path: path.to_owned(), what });
    let itself = match fs::symlink_metadata(path) {
        Ok(itself) => itself.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // A folder of the path is a file.
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(LogError::NoFolder { path: path.to_owned() });
        }
        Err(error) => return Err(io(error)),
    };
    let Ok(target) = fs::metadata(path) else { return refuse("a link that leads nowhere") };
    let kind = target.file_type();
    let is_same = |input: &&Path| fs::metadata(input).is_ok_and(|input| is_same(&input, &target));
    if !kind.is_char_device() && options.inputs.iter().any(is_same) {
        return Err(LogError::IsInput { path: path.to_owned() });
    }
    if itself.is_file() {
        return match options.replace {
            true => Ok(None),
            false => Err(LogError::Exists { path: path.to_owned() }),
        };
    }
    if let Some(stdout) = own_stdout(&target).map_err(io)? {
        return Ok(Some((stdout, true)));
    }
    if kind.is_fifo() || kind.is_char_device() {
        return Ok(Some((open_through(path, kind, options).map_err(io)?, false)));
    }
    refuse(match () {
        () if itself.is_symlink() => "a link",
        () if kind.is_dir() => "a folder",
        () if kind.is_socket() => "a socket",
        () => "a block device",
    })
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Another handle of our standard output, if the path leads to it: `/dev/stdout` can't be opened
/// where it is a socket, and would begin at the file's start where it is a file.
fn own_stdout(target: &Metadata) -> io::Result<Option<File>> {
    let stdout: OwnedFd = match rustix::io::dup(rustix::stdio::stdout()) {
        Ok(stdout) => stdout,
        Err(_) => return Ok(None),
    };
    let stdout = File::from(stdout);
    Ok(is_same(&stdout.metadata()?, target).then_some(stdout))
}

/// Opens a pipe or a device. A pipe is waited for until somebody reads it.
fn open_through(path: &Path, kind: FileType, options: &OutputOptions<'_>) -> io::Result<File> {
    let mut open = OpenOptions::new();
    open.write(true);
    if !kind.is_fifo() {
        return open.custom_flags(OFlags::NOCTTY.bits().cast_signed()).open(path);
    }
    match open.clone().custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path) {
        Ok(file) => {
            rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
            Ok(file)
        }
        // Nobody has it open for reading.
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            if let Some(waiting) = options.waiting {
                waiting(path);
            }
            open.open(path)
        }
        Err(error) => Err(error),
    }
}

/// The names by which this process's files can be opened again.
const OWN_FILES: &str = "/proc/self/fd";

/// A file without a name, if the file system has such, and a way to give it one.
fn without_name(folder: &Path, mode: u32) -> io::Result<Option<File>> {
    if !Path::new(OWN_FILES).is_dir() {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)) {
        Ok(file) => Ok(Some(file.into())),
        // The second is what kernels say that know no such files, the third some file systems.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn give_name(file: &File, path: &Path, replace: bool) -> io::Result<()> {
    let source = format!("{OWN_FILES}/{}", file.as_raw_fd());
    let link = |to: &Path| -> io::Result<()> {
        Ok(rustix::fs::linkat(CWD, &source, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
    };
    match link(path) {
        // A link never replaces; a rename does.
        Err(error) if replace && error.kind() == ErrorKind::AlreadyExists => {
            Partial::named(folder(path), |partial| link(partial))?.1.rename(path, true)
        }
        result => result,
    }
}

/// The partial files of this process that have names.
static PARTIAL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn partial_files() -> MutexGuard<'static, Vec<PathBuf>> {
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all partial files that have names and calls `end`, which ends the process. No new ones
/// appear meanwhile.
pub fn end_without_partial_files(end: impl FnOnce()) {
    let partial = partial_files();
    for path in &*partial {
        let _ = fs::remove_file(path);
    }
    end();
}

/// A partial file's name; dropped, the file goes.
#[derive(Debug)]
struct Partial(PathBuf);

impl Partial {
    fn create(folder: &Path, mode: u32) -> io::Result<(File, Self)> {
        Partial::named(folder, |path| {
            OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
        })
    }

    /// Makes a file with a name that nobody has. It is listed before it is there.
    fn named<T>(folder: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, Self)> {
        let process = std::process::id();
        for attempt in 0_u64.. {
            let path = folder.join(format!(".idlewise-{process}-{attempt}.partial"));
            let mut files = partial_files();
            if files.contains(&path) {
                continue;
            }
            match make(&path) {
                Ok(made) => {
                    files.push(path.clone());
                    return Ok((made, Partial(path)));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("names don't run out")
    }

    fn rename(self, path: &Path, replace: bool) -> io::Result<()> {
        if replace {
            return match fs::symlink_metadata(path) {
                Ok(found) if !found.is_file() => Err(io::Error::other(
                    "something else than a regular file appeared there; it is left alone",
                )),
                _ => fs::rename(&self.0, path),
            };
        }
        match rustix::fs::renameat_with(CWD, &self.0, CWD, path, RenameFlags::NOREPLACE) {
            // Not every file system can; a link does not replace either.
            Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(&self.0, path),
            result => Ok(result?),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let mut files = partial_files();
        let _ = fs::remove_file(&self.0);
        files.retain(|path| *path != self.0);
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// As where the file system has no files without names.
    #[test]
    fn a_partial_file_with_a_name_goes_or_gets_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut file, partial) = Partial::create(folder.path(), 0o600).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(folder.path()).len(), 1);
        drop(partial);
        assert_eq!(names(folder.path()).len(), 0, "dropped, it leaves nothing");

        for (content, replace) in [("old", false), ("new", true)] {
            let (made, partial) = Partial::create(folder.path(), 0o666).unwrap();
            file = made;
            file.write_all(content.as_bytes()).unwrap();
            partial.rename(&path, replace).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        let (_file, partial) = Partial::create(folder.path(), 0o666).unwrap();
        let error = partial.rename(&path, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(names(folder.path()), ["log"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");

        // A signal. In the same test, for it takes those of others along.
        fs::remove_file(&path).unwrap();
        let (_one, one) = Partial::create(folder.path(), 0o666).unwrap();
        let (_other, other) = Partial::create(folder.path(), 0o666).unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        let mut has_ended = false;
        end_without_partial_files(|| has_ended = true);
        assert!(has_ended);
        assert_eq!(names(folder.path()).len(), 0);
        drop((one, other));
    }

    /// What came to stand at the path while the file was written.
    #[test]
    fn replaces_nothing_that_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let options = OutputOptions { replace: true, ..OutputOptions::default() };
        let output = OutputFile::create(&path, &options).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(output.finish().is_err());
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert_eq!(names(folder.path()), ["log"]);
    }
}
