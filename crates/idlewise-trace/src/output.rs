//! The files that commands write: what may be at the path already, and how the file gets there.
//!
//! | what stands at the path | what happens |
//! | --- | --- |
//! | nothing | the file appears there when it is complete |
//! | a regular file | it is replaced when the new one is complete, if the user wants that |
//! | one of the input files | refused |
//! | a pipe, a character device, our own standard output; also through a link | it receives the bytes when all are ready |
//! | any other link, a folder, a socket, a block device | refused |
//!
//! A file has no name until it is complete, so that nothing is left behind if its process is
//! killed. If the file system does not support that (NFS, FAT), it is called `.idlewise-….partial`,
//! and [`end_without_partial_files`] removes it when a signal ends the process.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, MemfdFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::log_error::LogError;

/// Options for writing a file.
#[derive(Clone, Copy, Default)]
pub struct OutputOptions<'a> {
    /// Whether a regular file with that name is replaced.
    pub replace: bool,
    /// Input files, which are never replaced.
    pub inputs: &'a [&'a Path],
    /// Whether only the owner may read it.
    pub is_private: bool,
    /// Whether it gets its name before it is on the disk. After a power cut it may then be damaged.
    pub is_unflushed: bool,
    /// Called before waiting for a pipe to get a reader.
    pub waiting: Option<&'a dyn Fn(&Path)>,
}

/// A file being written. If it is dropped unfinished, nothing is left behind.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: File,
    way: Way,
}

/// What happens to the file at the end.
#[derive(Debug)]
enum Way {
    /// It gets its name. Until then it has none, or that of a partial file.
    Name { replace: bool, is_unflushed: bool, partial: Option<Partial> },
    /// Its bytes are copied to what is at the path.
    Through { to: File, is_stdout: bool },
    /// It never has a name.
    Unnamed,
}

impl OutputFile {
    /// Starts a file that will appear at `path`.
    ///
    /// # Errors
    /// Fails if `path` must not be replaced, or if its folder cannot be written to.
    pub fn create(path: &Path, options: &OutputOptions<'_>) -> Result<Self, LogError> {
        let io = |error| LogError::io(path, error);
        if let Some(to) = existing(path, options)? {
            let file = unnamed_file()?;
            let (to, is_stdout) = to;
            let way = Way::Through { to, is_stdout };
            return Ok(OutputFile { path: path.to_owned(), file, way });
        }
        let folder = folder(path);
        if !folder.is_dir() {
            return Err(LogError::NoFolder { path: path.to_owned() });
        }
        // The second is the usual mode of a new file, before the umask.
        let mode = if options.is_private { 0o600 } else { 0o666 };
        let (file, partial) = match without_name(folder, mode).map_err(io)? {
            Some(file) => (file, None),
            None => Partial::create(folder, mode).map(|(file, it)| (file, Some(it))).map_err(io)?,
        };
        let OutputOptions { replace, is_unflushed, .. } = *options;
        let way = Way::Name { replace, is_unflushed, partial };
        Ok(OutputFile { path: path.to_owned(), file, way })
    }

    /// Starts a file whose bytes go to our standard output when all are ready.
    ///
    /// # Errors
    /// Fails if standard output is closed, or if the folder for temporary files cannot be written to.
    pub fn stdout() -> Result<Self, LogError> {
        let path = PathBuf::from("standard output");
        let to = rustix::io::dup(rustix::stdio::stdout());
        let to = to.map_err(|error| LogError::io(&path, error.into()))?.into();
        let file = unnamed_file()?;
        Ok(OutputFile { path, file, way: Way::Through { to, is_stdout: true } })
    }

    /// Starts a file that never gets a name. Messages show `path` instead.
    ///
    /// # Errors
    /// Fails if the folder for temporary files cannot be written to.
    pub fn unnamed(path: &Path) -> Result<Self, LogError> {
        let file = unnamed_file()?;
        Ok(OutputFile { path: path.to_owned(), file, way: Way::Unnamed })
    }

    /// Where it will appear.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether its bytes go to our standard output, which must then get nothing else.
    pub fn is_stdout(&self) -> bool {
        matches!(self.way, Way::Through { is_stdout: true, .. })
    }

    /// Returns whether it will be a file with that name, which others can open.
    pub fn is_file(&self) -> bool {
        matches!(self.way, Way::Name { .. })
    }

    /// The file, to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Creates an unnamed file on the same disk. It disappears when it is closed.
    ///
    /// # Errors
    /// Fails if the folder cannot be written to.
    pub fn scratch(&self) -> Result<File, LogError> {
        match self.way {
            Way::Name { .. } => tempfile::tempfile_in(folder(&self.path))
                .map_err(|error| LogError::io(&self.path, error)),
            _ => unnamed_file(),
        }
    }

    /// A failure to write to it. A file without a name lies in the folder for temporary files.
    pub(crate) fn fail(&self, error: io::Error) -> LogError {
        match self.way {
            Way::Unnamed => LogError::Scratch { error },
            _ => LogError::io(&self.path, error),
        }
    }

    /// Gives the file its name, or copies its bytes to what is at the path. Returns its size in
    /// bytes.
    ///
    /// # Errors
    /// Fails if the disk is full, or if a file that must not be replaced has appeared.
    pub fn finish(self) -> Result<u64, LogError> {
        let OutputFile { path, mut file, way } = self;
        let io = |error| LogError::io(&path, error);
        let byte_count = file.metadata().map_err(io)?.len();
        match way {
            Way::Unnamed => {}
            Way::Through { mut to, is_stdout } => {
                file.rewind().map_err(io)?;
                match io::copy(&mut file, &mut to) {
                    // A reader that closes the pipe, such as `head -1`, has what it wants.
                    Err(error) if is_stdout && error.kind() == io::ErrorKind::BrokenPipe => {}
                    copied => drop(copied.map_err(io)?),
                }
            }
            Way::Name { replace, is_unflushed, partial } => {
                if !is_unflushed {
                    file.sync_all().map_err(io)?;
                }
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

    /// Returns the file itself, whatever was planned for it.
    pub fn into_file(self) -> File {
        self.file
    }
}

/// Creates a file without a name in the folder for temporary files. It lies in memory where there is no `/tmp` and
/// TMPDIR names nothing else, as in an empty container.
///
/// # Errors
/// Fails if the folder cannot be written to.
pub fn unnamed_file() -> Result<File, LogError> {
    let chosen = std::env::var_os("TMPDIR").filter(|folder| !folder.is_empty());
    let folder = chosen.as_ref().map_or(Path::new("/tmp"), Path::new);
    unnamed_file_in(folder, chosen.is_none()).map_err(|error| LogError::Scratch { error })
}

fn unnamed_file_in(folder: &Path, or_in_memory: bool) -> io::Result<File> {
    match tempfile::tempfile_in(folder) {
        Err(error) if or_in_memory && error.kind() == ErrorKind::NotFound => {
            Ok(rustix::fs::memfd_create("idlewise", MemfdFlags::CLOEXEC)?.into())
        }
        made => made,
    }
}

/// Opens what is at a path if it receives the bytes itself, and says whether it is our standard
/// output. `None` if a file is to be created there.
fn existing(path: &Path, options: &OutputOptions<'_>) -> Result<Option<(File, bool)>, LogError> {
    let io = |error| LogError::io(path, error);
    let refuse = |what| Err(LogError::NotReplaced { path: path.to_owned(), what });
    let itself = match fs::symlink_metadata(path) {
        Ok(itself) => itself.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // A part of the path is a file instead of a folder.
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

/// Duplicates our standard output if the path leads to it. `/dev/stdout` cannot be opened if it is
/// a socket, and starts at the file's beginning if it is a file.
fn own_stdout(target: &Metadata) -> io::Result<Option<File>> {
    let stdout: OwnedFd = match rustix::io::dup(rustix::stdio::stdout()) {
        Ok(stdout) => stdout,
        Err(_) => return Ok(None),
    };
    let stdout = File::from(stdout);
    Ok(is_same(&stdout.metadata()?, target).then_some(stdout))
}

/// Opens a pipe or a device. For a pipe, waits until somebody reads it.
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

/// Paths through which this process can open its own files again.
const OWN_FILES: &str = "/proc/self/fd";

/// Creates a file without a name that can be named later; `None` if the file system cannot.
fn without_name(folder: &Path, mode: u32) -> io::Result<Option<File>> {
    if !Path::new(OWN_FILES).is_dir() {
        return Ok(None);
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)) {
        Ok(file) => Ok(Some(file.into())),
        // Kernels that do not support such files return the second; some file systems, the third.
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
        // A link never replaces a file, but a rename does.
        Err(error) if replace && error.kind() == ErrorKind::AlreadyExists => {
            Partial::named(folder(path), |partial| link(partial))?.1.rename(path, true)
        }
        result => result,
    }
}

/// The named partial files of this process.
static PARTIAL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn partial_files() -> MutexGuard<'static, Vec<PathBuf>> {
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all named partial files and calls `end`, which ends the process. No new ones appear.
pub fn end_without_partial_files(end: impl FnOnce()) {
    let partial = partial_files();
    for path in &*partial {
        let _ = fs::remove_file(path);
    }
    end();
}

/// The name of a partial file. Dropping it removes the file.
#[derive(Debug)]
struct Partial(PathBuf);

impl Partial {
    fn create(folder: &Path, mode: u32) -> io::Result<(File, Self)> {
        Partial::named(folder, |path| {
            OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
        })
    }

    /// Creates a file with an unused name. It is added to the list before it exists.
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
            // Not every file system supports this. A link does not replace a file either.
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

    /// An empty container has no `/tmp`; a folder that the user chose must exist.
    #[test]
    fn without_a_folder_for_temporary_files_they_lie_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("tmp");
        unnamed_file_in(&missing, true).unwrap().write_all(b"kept").unwrap();
        assert_eq!(unnamed_file_in(&missing, false).unwrap_err().kind(), ErrorKind::NotFound);
        unnamed_file_in(folder.path(), true).unwrap();
        assert!(names(folder.path()).is_empty());
    }

    /// On a file system that does not support files without names.
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

        // As on a signal. In the same test because it removes other tests' partial files too.
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

    /// Something appeared at the path while the file was written.
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
