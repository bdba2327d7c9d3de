//! Commands that are interrupted by signals, limits or full disks. They must leave nothing behind,
//! and nobody else may read unfinished files. Pipes stop the commands where tests need it.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::{folder, root};

/// A folder to run a command in, with a folder for its temporary files.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Place(folder());
        fs::create_dir(place.path("tmp")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command that signals end even if our own parent ignores them (nohup, or a shell in the
    /// background), because a command respects that.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,HUP", env!("CARGO_BIN_EXE_idlewise")]);
        command.current_dir(self.0.path()).env("TMPDIR", self.path("tmp")).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    /// Every file in it except pipes.
    fn files(&self) -> Vec<PathBuf> {
        fn add(folder: &Path, files: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => add(&entry.path(), files),
                    kind if kind.is_file() => files.push(entry.path()),
                    _ => {}
                }
            }
        }
        let mut files = Vec::new();
        add(self.0.path(), &mut files);
        files
    }
}

/// A child that is killed if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(command: &mut Command) -> Self {
        Running(command.spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        let process = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
    }

    /// Returns the signal that ended it.
    fn ended_by(&mut self) -> Option<i32> {
        self.0.wait().unwrap().signal()
    }

    fn stderr(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.0.stderr.take().unwrap())
    }
}

/// Signals that end a command, and their numbers.
const SIGNALS: [(&str, i32); 4] = [("INT", 2), ("TERM", 15), ("HUP", 1), ("KILL", 9)];

/// The output is being written, and the simulation would take years.
#[test]
fn an_output_on_its_way_leaves_nothing() {
    for (signal, number) in SIGNALS {
        for force in [false, true] {
            let place = Place::new();
            let years = "31536000000";
            let mut command = place.command(&[
                "lab",
                "simulate",
                "spr",
                "wakes",
                "--duration-ms",
                years,
                "--trace",
                "out",
            ]);
            if force {
                fs::write(place.path("out"), "precious").unwrap();
                command.arg("--force");
            }
            let before = place.files();
            let mut running = Running::start(&mut command);
            let open = PathBuf::from(format!("/proc/{}/fd", running.0.id()));
            let is_open = || {
                let links = fs::read_dir(&open).into_iter().flatten().flatten();
                let mut files = links.filter_map(|link| fs::read_link(link.path()).ok());
                files.any(|file| file.starts_with(place.0.path()))
            };
            while !is_open() {
                assert!(running.0.try_wait().unwrap().is_none(), "it runs");
                std::thread::yield_now();
            }
            running.signal(signal);
            assert_eq!(running.ended_by(), Some(number), "{signal}");
            assert_eq!(place.files(), before, "{signal}");
        }
    }
}

/// The first recording is unpacked, and the command waits for the second.
#[test]
fn an_unpacked_recording_has_no_name_and_leaves_nothing() {
    for (signal, number) in SIGNALS {
        let place = Place::new();
        let fifo = place.fifo("formats");
        let recording = root().join("traces/s-softirq500.perf.data.xz");
        let recording = recording.to_str().unwrap();
        let mut command =
            place.command(&["log", "import", recording, "-o", "out", "--formats-from", "formats"]);
        let mut running = Running::start(&mut command);
        // The first is done when the command opens the second.
        let _writer = File::options().write(true).open(fifo).unwrap();
        assert_eq!(place.files(), [] as [PathBuf; 0], "in the middle");
        running.signal(signal);
        assert_eq!(running.ended_by(), Some(number), "{signal}");
        assert_eq!(place.files(), [] as [PathBuf; 0], "{signal}");
        assert_eq!(
            fs::read_dir(place.path("tmp")).unwrap().count(),
            0,
            "{signal}: no folder either"
        );
    }
}

/// A slow compiler that keeps a pipe open as long as it lives.
const SLOW_COMPILER: &str = "\
#!/bin/sh
[ \"$1\" != --version ] || exit 0
mkfifo \"$TMPDIR/alive\"
exec sleep 100 > \"$TMPDIR/alive\"
";

/// A compiler needs files with names, and their folder must be removed too. After SIGKILL, the next
/// command that compiles removes it.
#[test]
fn a_compiler_at_work_is_stopped_and_leaves_nothing() {
    if crate::cannot_compile() {
        return;
    }
    for (signal, number) in SIGNALS {
        let place = Place::new();
        let compiler = place.path("cc");
        fs::write(&compiler, SLOW_COMPILER).unwrap();
        fs::set_permissions(&compiler, Permissions::from_mode(0o700)).unwrap();
        let governor = root().join("crates/idlewise-plugin/examples/break_even.c");
        let log = root().join("traces/a-idle.parquet");
        let arguments = ["replay", log.to_str().unwrap(), "--governor", governor.to_str().unwrap()];
        let command = || {
            let mut command = place.command(&arguments);
            command.env("XDG_CACHE_HOME", place.path("tmp/none")).env_remove("CC");
            command
        };
        let before = place.files();
        let mut running = Running::start(command().env("CC", &compiler));
        let mut alive = loop {
            assert!(running.0.try_wait().unwrap().is_none(), "it compiles");
            let work = fs::read_dir(place.path("tmp")).unwrap().flatten().next();
            match work.map(|work| work.path().join("alive")).filter(|path| path.exists()) {
                Some(path) => break File::open(path).unwrap(),
                None => std::thread::yield_now(),
            }
        };
        running.signal(signal);
        assert_eq!(running.ended_by(), Some(number), "{signal}");
        // Wait until the compiler has ended too.
        assert_eq!(alive.read(&mut [0]).unwrap(), 0);
        if signal == "KILL" {
            let output = command().output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            // The compiled library, if it could be cached there.
            let _ = fs::remove_dir_all(place.path("tmp/none"));
        }
        assert_eq!(place.files(), before, "{signal}");
        let left = fs::read_dir(place.path("tmp")).unwrap().count();
        assert_eq!(left, 0, "{signal}: no folder either");
    }
}

/// A pipe holds the command while it reads its recording.
#[test]
fn a_recording_that_comes_through_a_pipe_leaves_nothing() {
    let bytes = crate::recording("b-redis");
    let commands: [&[&str]; 5] = [
        &["log", "import", "pipe", "-o", "out"],
        &["log", "anonymize", "pipe", "-o", "out"],
        &["log", "export", "pipe", "--format", "arrow", "-o", "out"],
        &["replay", "pipe", "--machine", "spr", "--governor", "menu", "--write-log", "out"],
        &["info", "pipe"],
    ];
    for arguments in commands {
        for (signal, number) in SIGNALS {
            let place = Place::new();
            let fifo = place.fifo("pipe");
            let mut running = Running::start(&mut place.command(arguments));
            let mut writer = File::options().write(true).open(fifo).unwrap();
            // More than a pipe's capacity, so the command has begun to read.
            writer.write_all(&bytes[..200_000]).unwrap();
            assert_eq!(place.files(), [] as [PathBuf; 0], "{arguments:?}: in the middle");
            running.signal(signal);
            assert_eq!(running.ended_by(), Some(number), "{arguments:?} {signal}");
            assert_eq!(place.files(), [] as [PathBuf; 0], "{arguments:?} {signal}");
        }
    }
}

#[test]
fn a_pipe_gives_the_same_as_a_file() {
    let bytes = crate::recording("b-redis");
    let place = Place::new();
    fs::write(place.path("file"), &bytes).unwrap();
    let file = place.command(&["log", "import", "file", "-o", "a.parquet"]).output().unwrap();
    assert!(file.status.success());
    let fifo = place.fifo("pipe");
    let mut running =
        Running::start(&mut place.command(&["log", "import", "pipe", "-o", "b.parquet"]));
    File::options().write(true).open(fifo).unwrap().write_all(&bytes).unwrap();
    assert!(running.0.wait().unwrap().success());
    assert!(
        fs::read(place.path("a.parquet")).unwrap() == fs::read(place.path("b.parquet")).unwrap()
    );
}

#[test]
fn a_pipe_that_nobody_writes_to_is_waited_for_aloud() {
    let commands: [&[&str]; 11] = [
        &["info", "pipe"],
        &["log", "import", "pipe"],
        &["lab", "boot", "--cpuid", "pipe"],
        &["lab", "compare", "pipe", "pipe"],
        &["set", "apply", "pipe"],
        &["log", "bundle", "list", "pipe"],
        &["log", "bundle", "verify", "pipe"],
        &["log", "bundle", "-o", "out", "--keep-private", "--", "lab", "compare", "pipe", "x"],
        &["log", "import", "pipe", "--recorded-machine", "./pipe"],
        &["machines", "./pipe"],
        &[
            "lab",
            "verify",
            "decisions",
            "--governor",
            "menu-6.12",
            "--table",
            "spr",
            "--hz",
            "250",
            "--tables",
            "pipe",
            "x",
        ],
    ];
    let [(signal, number), ..] = SIGNALS;
    for arguments in commands {
        let place = Place::new();
        let _fifo = place.fifo("pipe");
        let mut running = Running::start(&mut place.command(arguments));
        let mut line = String::new();
        running.stderr().read_line(&mut line).unwrap();
        assert!(line.contains("waiting for") && line.contains("pipe"), "{arguments:?}: {line}");
        running.signal(signal);
        assert_eq!(running.ended_by(), Some(number), "{arguments:?}");
    }
    // The pipe is still there for a late writer, and its data is used.
    let place = Place::new();
    let fifo = place.fifo("pipe");
    let mut running = Running::start(&mut place.command(&["log", "validate", "pipe"]));
    let mut stderr = running.stderr();
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("waiting for"), "{line}");
    fs::write(fifo, fs::read(root().join("traces/b-redis.parquet")).unwrap()).unwrap();
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn a_pipe_that_nobody_reads_is_waited_for_aloud() {
    let log = root().join("traces/a-idle.parquet");
    let log = log.to_str().unwrap();
    for (signal, number) in SIGNALS {
        let place = Place::new();
        let _fifo = place.fifo("pipe");
        let arguments = ["log", "export", log, "--format", "csv", "-o", "pipe"];
        let mut running = Running::start(&mut place.command(&arguments));
        let mut line = String::new();
        running.stderr().read_line(&mut line).unwrap();
        assert!(line.contains("waiting for pipe, a pipe that nobody reads"), "{line}");
        running.signal(signal);
        assert_eq!(running.ended_by(), Some(number));
    }
}

/// Commands that write a file, and what they write to the folder for temporary files.
const WRITERS: [&[&str]; 5] = [
    &["log", "import", "recording.xz", "-o", "out/log"],
    &["log", "import", "recording", "-o", "out/log"],
    &["log", "anonymize", "recording", "-o", "out/log"],
    &["log", "export", "recording", "--format", "csv", "-o", "out/log"],
    &["lab", "simulate", "spr", "wakes", "--duration-ms", "2000", "--trace", "out/log"],
];

fn place_of_writers() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("out")).unwrap();
    fs::write(place.path("recording"), crate::recording("e-hackbench")).unwrap();
    fs::copy(root().join("traces/e-hackbench.perf.data.xz"), place.path("recording.xz")).unwrap();
    place
}

/// The limit of `ulimit -f`. The system sends SIGXFSZ, which by default ends a program.
#[test]
fn a_limit_on_file_sizes_is_an_error_that_leaves_nothing() {
    for arguments in WRITERS {
        let place = place_of_writers();
        let before = place.files();
        let mut command = Command::new("sh");
        command.current_dir(place.0.path()).env("TMPDIR", place.path("tmp"));
        command.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_idlewise")]);
        let output = command.args(arguments).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {:?} {message}", output.status);
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("File too large"), "{message}");
        assert_eq!(place.files(), before, "{arguments:?}");
        assert_eq!(fs::read_dir(place.path("tmp")).unwrap().count(), 0, "{arguments:?}");
    }
}

/// A disk of 64 KiB, gone when the test ends.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(path: PathBuf) -> Result<Self, String> {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "idlewise-test"])
            .arg(&path)
            .output()
            .map_err(|error| error.to_string())?;
        match mount.status.success() {
            true => Ok(SmallDisk(path)),
            false => Err(String::from_utf8_lossy(&mount.stderr).trim().to_owned()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_an_error_that_leaves_nothing() {
    for full in ["out", "tmp"] {
        for arguments in WRITERS {
            let needs_tmp =
                arguments[2] == "recording.xz" || matches!(arguments[1], "anonymize" | "export");
            if full == "tmp" && !needs_tmp {
                continue;
            }
            let place = place_of_writers();
            let _disk = match SmallDisk::new(place.path(full)) {
                Ok(disk) => disk,
                Err(reason) => {
                    eprintln!(
                        "SKIPPED: a_full_disk_is_an_error_that_leaves_nothing: {reason} (needs root)"
                    );
                    return;
                }
            };
            let before = place.files();
            let output = place.command(arguments).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?} {full}: {message}");
            assert_eq!(message.lines().count(), 1, "{message}");
            // Unpacking leaves some space for the log.
            let is_full = ["No space left", "nine tenths of the free space"];
            assert!(is_full.iter().any(|words| message.contains(words)), "{message}");
            assert_eq!(place.files(), before, "{arguments:?} {full}");
        }
    }
}
