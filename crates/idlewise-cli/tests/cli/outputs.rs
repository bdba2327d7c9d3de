//! What may be at the path where a command writes a file. Only regular files are replaced, pipes
//! and devices receive the bytes, and everything else is left alone. Covers all commands.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::{folder, root};

/// A folder with a log, a recording and a machine of the user's.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Place(folder());
        fs::copy(root().join("traces/a-idle.parquet"), place.path("log.parquet")).unwrap();
        fs::copy(root().join("machines/spr.toml"), place.path("m.toml")).unwrap();
        fs::write(place.path("perf.data"), crate::recording("a-idle")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A command that runs here, after a prefix for the shell.
    fn command(&self, before: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let script = format!("{before}; exec \"$0\" \"$@\"");
        command.current_dir(self.0.path()).args(["-c", &script]);
        command.arg(env!("CARGO_BIN_EXE_idlewise")).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(":", arguments).output().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }
}

/// A command without its output and `--force`, the first bytes of the file, and the inputs.
type Writer = (&'static [&'static str], &'static [u8], &'static [&'static str]);

/// Every command that writes one file of any name. `-o` or its equivalent comes last.
const WRITERS: [Writer; 8] = [
    (&["log", "import", "perf.data", "-o"], b"PAR1", &["perf.data"]),
    (
        &[
            "log",
            "import",
            "perf.data",
            "--recorded-machine",
            "./m.toml",
            "--recorded-governor",
            "menu",
            "-o",
        ],
        b"PAR1",
        &["perf.data", "m.toml"],
    ),
    (&["log", "anonymize", "log.parquet", "-o"], b"PAR1", &["log.parquet"]),
    (&["report", "log.parquet", "-o"], b"<!doctype html>", &["log.parquet"]),
    (&["log", "export", "log.parquet", "--format", "csv", "-o"], b"cpu,", &["log.parquet"]),
    (&["log", "export", "log.parquet", "--format", "arrow", "-o"], b"ARROW1", &["log.parquet"]),
    (
        &["log", "export", "log.parquet", "--format", "perfetto", "--machine", "./m.toml", "-o"],
        b"\x0a",
        &["log.parquet", "m.toml"],
    ),
    (
        &["replay", "log.parquet", "--machine", "./m.toml", "--governor", "menu", "--write-log"],
        b"PAR1",
        &["log.parquet", "m.toml"],
    ),
];

/// All of those, and one that writes a second file beside the first.
fn all_writers() -> impl Iterator<Item = Writer> {
    let simulate: Writer = (
        &["lab", "simulate", "./m.toml", "wakes", "--duration-ms", "5", "--trace"],
        b"PAR1",
        &["m.toml"],
    );
    WRITERS.into_iter().chain([simulate])
}

#[test]
fn a_regular_file_is_replaced_only_on_demand() {
    for (arguments, begin, _) in all_writers() {
        let place = Place::new();
        fs::write(place.path("out"), "precious").unwrap();
        let refused = place.run(&[arguments, &["out"]].concat());
        let message = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains("--force"), "{message}");
        assert_eq!(fs::read(place.path("out")).unwrap(), b"precious");
        let output = place.run(&[arguments, &["out", "--force"]].concat());
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(fs::read(place.path("out")).unwrap().starts_with(begin), "{arguments:?}");
    }
}

#[test]
fn what_is_no_file_is_left_alone() {
    for (arguments, _, _) in all_writers() {
        let place = Place::new();
        fs::write(place.path("precious"), "precious").unwrap();
        symlink("precious", place.path("link")).unwrap();
        symlink("nowhere", place.path("dangling")).unwrap();
        fs::create_dir(place.path("folder")).unwrap();
        let _socket = UnixListener::bind(place.path("socket")).unwrap();
        let before = place.names();
        for (name, what) in [
            ("link", "a link"),
            ("dangling", "a link"),
            ("folder", "a folder"),
            ("socket", "a socket"),
        ] {
            for force in [&[][..], &["--force"]] {
                let output = place.run(&[arguments, &[name], force].concat());
                let message = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(2), "{arguments:?} {name}: {message}");
                assert_eq!(message.lines().count(), 1, "{message}");
                assert!(message.contains(what), "{message}");
            }
        }
        assert_eq!(place.names(), before, "{arguments:?}");
        let kind = |name| fs::symlink_metadata(place.path(name)).unwrap().file_type();
        assert!(kind("link").is_symlink() && kind("dangling").is_symlink());
        assert!(kind("folder").is_dir() && kind("socket").is_socket());
        assert_eq!(fs::read(place.path("precious")).unwrap(), b"precious");
    }
}

#[test]
fn an_input_is_never_replaced() {
    for (arguments, _, inputs) in all_writers() {
        for input in inputs {
            let place = Place::new();
            let before = fs::read(place.path(input)).unwrap();
            fs::hard_link(place.path(input), place.path("same")).unwrap();
            symlink(input, place.path("link")).unwrap();
            symlink(place.0.path(), place.path("here")).unwrap();
            for name in [input, "same", "link", format!("here/{input}").as_str()] {
                for force in [&["--force"][..], &[]] {
                    let output = place.run(&[arguments, &[name], force].concat());
                    let message = String::from_utf8_lossy(&output.stderr);
                    assert_eq!(output.status.code(), Some(2), "{arguments:?} {name}: {message}");
                    assert!(message.contains("also read by this command"), "{name}: {message}");
                    assert_eq!(
                        fs::read(place.path(input)).unwrap(),
                        before,
                        "{arguments:?} {name}"
                    );
                }
            }
        }
    }
}

/// The replayed governor's files are inputs too.
#[test]
fn a_governor_is_never_replaced() {
    let place = Place::new();
    fs::write(place.path("my.c"), "precious").unwrap();
    fs::write(place.path("my.patch"), "precious").unwrap();
    for file in ["my.c", "my.patch"] {
        let output = place.run(&[
            "replay",
            "log.parquet",
            "--machine",
            "spr",
            "--governor",
            "./my.c",
            "--patch",
            "./my.patch",
            "--write-log",
            file,
            "--force",
        ]);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(fs::read(place.path(file)).unwrap(), b"precious");
    }
}

#[test]
fn a_pipe_and_a_device_get_the_bytes() {
    let null = ["mknod null c 1 3", "mknod full c 1 7"];
    for (arguments, begin, _) in all_writers() {
        let place = Place::new();
        let fifo = place.fifo("fifo");
        let child = place
            .command(":", &[arguments, &["fifo", "--force"]].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut bytes = Vec::new();
        File::open(&fifo).unwrap().read_to_end(&mut bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {message}");
        assert!(bytes.starts_with(begin), "{arguments:?}");
        assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo(), "{arguments:?}");

        // We make our own devices, so that a mistake cannot destroy the machine's /dev/null.
        let made = place.command(&null.join(" && "), &["--version"]).output().unwrap();
        if !made.stderr.is_empty() {
            eprintln!("SKIPPED: devices: {}(needs root)", String::from_utf8_lossy(&made.stderr));
            continue;
        }
        let before = place.names();
        let output = place.run(&[arguments, &["null", "--force"]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {message}");
        let output = place.run(&[arguments, &["full", "--force"]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains("No space left"), "{message}");
        for device in ["null", "full"] {
            let kind = fs::symlink_metadata(place.path(device)).unwrap().file_type();
            assert!(kind.is_char_device(), "{arguments:?} {device}");
        }
        assert_eq!(place.names(), before, "{arguments:?}: nothing beside it");
    }
}

/// `/dev/stdout` is a link to a pipe, a file or a terminal. Messages go to standard error.
#[test]
fn standard_output_gets_the_bytes_and_nothing_else() {
    for (arguments, begin, _) in WRITERS {
        for json in [&[][..], &["--json"]] {
            if !json.is_empty() && arguments[0] == "replay" {
                continue;
            }
            let place = Place::new();
            let arguments = [arguments, &["/dev/stdout"], json].concat();
            let output = place.run(&arguments);
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arguments:?}: {message}");
            assert!(output.stdout.starts_with(begin), "{arguments:?}");
            assert!(message.contains("/dev/stdout"), "it says what it did: {message}");
            // Never with --force, so that a mistake cannot destroy the machine's /dev/stdout.
            place.command("exec >file", &arguments).output().unwrap();
            assert_eq!(fs::read(place.path("file")).unwrap(), output.stdout, "{arguments:?}");
            fs::write(place.path("file"), "before").unwrap();
            place.command("exec >>file", &arguments).output().unwrap();
            let all = [b"before", &output.stdout[..]].concat();
            assert_eq!(fs::read(place.path("file")).unwrap(), all, "{arguments:?}");
        }
    }
}

#[test]
fn a_dash_is_standard_output() {
    for (arguments, begin, _) in WRITERS {
        let place = Place::new();
        let before = place.names();
        let output = place.run(&[arguments, &["-"]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {message}");
        assert!(output.stdout.starts_with(begin), "{arguments:?}");
        assert_eq!(place.names(), before, "{arguments:?}: no file of that name");
    }
}

#[test]
fn a_recording_goes_through_a_pipe_too() {
    if crate::record::is_skipped("a_recording_goes_through_a_pipe_too") {
        return;
    }
    let place = Place::new();
    let output = place.run(&["record", "-o", "/dev/stdout", "--", "true"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.starts_with(b"\x17\x08\x44tracing6\0"));
    symlink("log.parquet", place.path("link")).unwrap();
    for name in ["link", "."] {
        let output = place.run(&["record", "-o", name, "--force", "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{name}");
    }
    assert!(fs::symlink_metadata(place.path("link")).unwrap().is_symlink());
}

#[test]
fn pages_and_plots_replace_only_files() {
    let place = Place::new();
    fs::create_dir(place.path("pages")).unwrap();
    fs::write(place.path("precious"), "precious").unwrap();
    symlink("../precious", place.path("pages/promotion.svg")).unwrap();
    let output = place.run(&["lab", "study", "promotion", "--pages", "pages", "--force"]);
    assert_eq!(output.status.code(), Some(2));
    let left: Vec<_> = fs::read_dir(place.path("pages")).unwrap().collect();
    assert_eq!(left.len(), 1, "neither page nor plot is written");
    fs::copy(crate::root().join("docs/park/measured.json"), place.path("saved.json")).unwrap();
    for name in ["pages/promotion.svg", "saved.json"] {
        let arguments = ["measure", "park", "--from", "saved.json", "--force", "--plot", name];
        let output = place.run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(fs::read(place.path("precious")).unwrap(), b"precious");
}

#[test]
fn two_files_of_one_name_are_refused_before_the_work() {
    let place = Place::new();
    let before = place.names();
    // Work that would not end.
    let arguments = ["lab", "simulate", "spr", "wakes", "--duration-ms", "31536000000", "--trace"];
    let output = place.run(&[&arguments[..], &["run.pftrace"]].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("run.pftrace") && message.contains("run.parquet"), "{message}");
    assert_eq!(place.names(), before);
}

#[test]
fn names_that_are_no_utf_8_are_as_good_as_any() {
    let name = std::ffi::OsStr::from_bytes(b"out\xff\xfe");
    let is_skipped = crate::record::is_skipped("names_that_are_no_utf_8_are_as_good_as_any");
    let record: Writer = (&["record", "--json", "-o"], b"\x17\x08\x44tracing6\0", &[]);
    for (arguments, begin, _) in WRITERS.into_iter().chain([record]) {
        if arguments[0] == "record" && is_skipped {
            continue;
        }
        let place = Place::new();
        let mut command = place.command(":", arguments);
        command.arg(name);
        match arguments[0] {
            "record" => command.args(["--", "true"]),
            "replay" => &mut command,
            _ => command.arg("--json"),
        };
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {message}");
        assert!(fs::read(place.0.path().join(name)).unwrap().starts_with(begin));
        if arguments[0] != "replay" {
            let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let named = ["log", "file", "output"].iter().find_map(|key| document[key].as_str());
            assert_eq!(named, Some("out\u{fffd}\u{fffd}"), "{arguments:?}");
        }
    }
}

/// The file is private from its first byte on.
#[test]
fn a_recording_is_for_its_owner_alone() {
    if crate::record::is_skipped("a_recording_is_for_its_owner_alone") {
        return;
    }
    let place = Place::new();
    assert!(place.run(&["record", "-o", "t.dat", "--", "true"]).status.success());
    let mode = |name: &str| {
        let metadata = fs::metadata(Path::new(&place.path(name))).unwrap();
        std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777
    };
    assert_eq!(mode("t.dat"), 0o600);
    assert!(
        place
            .command("umask 022", &["log", "export", "log.parquet", "--format", "csv"])
            .output()
            .is_ok()
    );
    assert_eq!(mode("log.csv"), 0o644);
}
