//! Foreign text that is full of terminal control characters, given to every command that shows
//! text. None of them may reach the screen.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

use idlewise_machine::Machine;
use idlewise_trace::log::{FORMAT_VERSION, LogMetadata, LogSource, LogWriter};
use idlewise_trace::{CpuSummary, Driver, GapSink, IdleGap, WakeReason};

use crate::{folder, root};

/// Colours, a window title, a backspace, a carriage return, an 8-bit CSI, a delete, direction marks
/// that reverse a line, and a name that looks like a line of our output.
const HOSTILE: &str = "x\u{1b}[31m\u{1b}]0;title\u{7}\u{8}\r\u{9b}2J\u{85}\u{7f}\u{202e}\u{2066}\
                       \u{200f}\u{61c}\u{e0041}\nidlewise: all is well";

/// What no output may contain: everything that `shown` replaces; newlines and tabs are allowed.
fn is_forbidden(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    is_mark || (c.is_control() && !matches!(c, '\n' | '\t'))
}

fn run(folder: &Path, arguments: &[&std::ffi::OsStr]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.current_dir(folder).env("XDG_CACHE_HOME", folder).args(arguments).output().unwrap()
}

/// Runs a command and checks every character that it prints. Returns its output.
fn clean(folder: &Path, arguments: &[&str]) -> (Output, String) {
    let arguments: Vec<_> = arguments.iter().map(|word| word.as_ref()).collect();
    let output = run(folder, &arguments);
    let mut all = String::new();
    for bytes in [&output.stdout, &output.stderr] {
        let text = std::str::from_utf8(bytes).expect("UTF-8");
        if let Some(at) = text.find(is_forbidden) {
            let around: String = text[at..].chars().take(40).collect();
            panic!("{arguments:?} says {around:?}");
        }
        let faked = text.lines().any(|line| line.starts_with("idlewise: all is well"));
        assert!(!faked, "{arguments:?} says a line that is not ours: {text}");
        all += text;
    }
    (output, all)
}

/// A machine file with hostile text in every field that may have any text.
fn hostile_machine() -> String {
    let text = fs::read_to_string(root().join("machines/spr.toml")).unwrap();
    let mut machine: toml::Table = text.parse().unwrap();
    let deepest = machine["states"].as_array_mut().unwrap().last_mut().unwrap();
    let deepest = deepest.as_table_mut().unwrap();
    deepest.insert("exit_percentiles_us".into(), vec![vec![50.0, 100.0]].into());
    deepest.insert("exit_kind".into(), "measured".into());
    deepest.insert("exit_source".into(), "here".into());
    make_hostile(&mut machine, "");
    toml::to_string(&machine).unwrap()
}

fn make_hostile(table: &mut toml::Table, within: &str) {
    const FREE: [&str; 17] = [
        "exit_kind",
        "exit_source",
        "title",
        "source_ref",
        "source",
        "desc",
        "name",
        "driver",
        "kernel",
        "kernel_table",
        "quirks",
        "doubts",
        "vendor",
        "model_name",
        "part_of",
        "cpu_models",
        "note",
    ];
    for (key, value) in table.iter_mut() {
        match value {
            toml::Value::Table(table) => make_hostile(table, key),
            toml::Value::Array(values) => {
                for (index, value) in values.iter_mut().enumerate() {
                    match value {
                        toml::Value::Table(table) => make_hostile(table, key),
                        toml::Value::String(text) if FREE.contains(&key.as_str()) => {
                            *text = format!("{HOSTILE}{index}");
                        }
                        _ => {}
                    }
                }
            }
            // The kind of a source is from a fixed list, and names of states are words.
            toml::Value::String(text)
                if FREE.contains(&key.as_str()) && (within, key.as_str()) != ("", "source") =>
            {
                *text = match key.as_str() {
                    "name" => format!(
                        "{}{text}",
                        HOSTILE.replace(|c: char| c.is_whitespace() || c.is_control(), "_")
                    ),
                    _ => format!("{HOSTILE}{text}"),
                };
            }
            _ => {}
        }
    }
}

/// A log with hostile text in every text field of its metadata.
fn write_hostile_log(path: &Path) {
    let hostile = || Some(HOSTILE.to_owned());
    let mut writer = LogWriter::create(path, false).unwrap();
    let gap = |i: i64| IdleGap {
        cpu: 0,
        start_ns: i * 1_000_000,
        gap_ns: 50_000,
        sleep_length_ns: None,
        next_tick_ns: None,
        tick_stopped: false,
        ran_task: true,
        wake_reason: WakeReason::Unknown,
        latency_limit_ns: None,
        recorded_state: Some(1),
        recorded_idle_ns: Some(50_000),
    };
    let gaps: Vec<IdleGap> = (0..100).map(gap).collect();
    writer.take(0, &gaps).unwrap();
    let metadata = LogMetadata {
        format_version: FORMAT_VERSION,
        created_by: HOSTILE.to_owned(),
        source: LogSource {
            format: HOSTILE.to_owned(),
            blake3: hostile(),
            command: hostile(),
            ..LogSource::default()
        },
        kernel: hostile(),
        hz: Some(250),
        cpu_model: hostile(),
        arch: hostile(),
        governor: hostile(),
        driver: hostile().map(Driver::Named),
        machine: Some(Machine::from_toml(&hostile_machine()).unwrap()),
        topology: None,
        clock: hostile(),
        cpus: vec![CpuSummary {
            cpu: 0,
            observed: true,
            gap_count: 100,
            last_at_ns: 100_000_000,
            ..CpuSummary::default()
        }],
        unknown_columns: vec![HOSTILE.to_owned()],
        doubts: vec![HOSTILE.to_owned().into(), format!("another {HOSTILE}").into()],
    };
    writer.finish_unchecked(&metadata).unwrap();
}

#[test]
fn of_logs_and_machines_never_reach_the_screen() {
    let folder = folder();
    let folder = folder.path();
    // The file's name is hostile too, but cannot contain a slash.
    let log = format!("{}.parquet", HOSTILE.replace('.', " "));
    write_hostile_log(&folder.join(&log));
    fs::write(folder.join("m.toml"), hostile_machine()).unwrap();
    let hostile_toml = format!("./{}.toml", HOSTILE.replace('.', " "));
    fs::write(folder.join(&hostile_toml), hostile_machine()).unwrap();
    let log = log.as_str();
    let ends_well: &[&[&str]] = &[
        &["machines", "m.toml"],
        &["info", log],
        &["info", log, "--csv"],
        &["log", "validate", log],
        &["replay", log, "--machine", "m.toml", "--by-log"],
        &["replay", log, "--machine", "m.toml", "--csv"],
        &["replay", log, log, "--machine", &hostile_toml],
        &["replay", "--compare", log, "--machine", "m.toml"],
        &["replay", "--compare", log, "--machine", "m.toml", "--csv"],
        &["lab", "simulate", "m.toml", "wakes", "--duration-ms", "1"],
        &["lab", "simulate", "m.toml", log, "--duration-ms", "1"],
        &[
            "lab",
            "simulate",
            "m.toml",
            "wakes",
            "--duration-ms",
            "1",
            "--trace",
            "run\u{1b}[1m.parquet",
        ],
        &["machines", "m.toml", "--csv"],
        &["machines", &hostile_toml],
        &["log", "export", log, "--format", "csv"],
        &["log", "export", log, "--format", "perfetto", "--governor", "menu"],
        &["log", "anonymize", log, "-o", "out\u{9b}2J.parquet"],
        &[
            "replay",
            log,
            "--machine",
            "m.toml",
            "--governor",
            "menu",
            "--write-log",
            "new\r.parquet",
        ],
    ];
    for arguments in ends_well {
        let (output, all) = clean(folder, arguments);
        assert!(output.status.success(), "{arguments:?}: {all}");
    }
    let (_, shown) = clean(folder, &["info", log]);
    assert!(shown.contains("Kernel x␛[31m␛]0;title␇␈"), "it is shown all the same: {shown}");
    clean(folder, &["replay", log, "--check-recorded"]);
    clean(folder, &["log", "import", log]);
}

#[test]
fn in_json_are_escaped_and_lose_nothing() {
    let folder = folder();
    write_hostile_log(&folder.path().join("log.parquet"));
    fs::write(folder.path().join("m.toml"), hostile_machine()).unwrap();
    for arguments in [
        &["info", "log.parquet", "--json"][..],
        &["log", "validate", "log.parquet", "--json"],
        &["replay", "log.parquet", "--machine", "m.toml", "--json"],
        &["replay", "--compare", "log.parquet", "--machine", "m.toml", "--json"],
        &["lab", "simulate", "m.toml", "wakes", "--duration-ms", "1", "--json"],
        &["machines", "m.toml", "--json"],
        &["log", "anonymize", "log.parquet", "-o", "out\u{9b}.parquet", "--json"],
        &["log", "export", "log.parquet", "--format", "csv", "-o", "out\u{7f}.csv", "--json"],
    ] {
        let (output, text) = clean(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {text}");
        serde_json::from_str::<serde_json::Value>(&text).expect("it is JSON");
    }
    let (_, text) = clean(folder.path(), &["info", "log.parquet", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["metadata"]["doubts"][0], HOSTILE);
}

/// An error is one line, whatever the names are.
#[test]
fn in_errors_are_one_line() {
    let folder = folder();
    let folder = folder.path();
    fs::write(folder.join(HOSTILE), HOSTILE).unwrap();
    fs::write(folder.join("names.toml"), format!("id = {HOSTILE:?}\nnonsense = {HOSTILE:?}"))
        .unwrap();
    let toml = format!("{HOSTILE}.toml");
    fs::write(folder.join(&toml), HOSTILE).unwrap();
    fs::write(folder.join("text.txt"), format!("# tracer: nop\n{HOSTILE}\n")).unwrap();
    fs::create_dir_all(folder.join("source/drivers/cpuidle/governors")).unwrap();
    let makefile = format!("VERSION = 6\nPATCHLEVEL = 99{HOSTILE}\n");
    fs::write(folder.join("source/Makefile"), makefile).unwrap();
    let commands: &[&[&str]] = &[
        &["info", HOSTILE],
        &["info", "no-such\u{1b}[2J\nidlewise: all is well"],
        &["log", "import", HOSTILE],
        &["log", "import", "text.txt"],
        &["log", "import", HOSTILE, "--formats-from", HOSTILE],
        &["log", "validate", HOSTILE],
        &["replay", HOSTILE],
        &["replay", "--governor", HOSTILE],
        &["replay", "--machine", HOSTILE],
        &["replay", "--machine", &toml],
        &["replay", "--machine", "names.toml"],
        &["replay", "--governor", &format!("{HOSTILE}.c")],
        &["replay", "--governor", "menu", "--disable", HOSTILE],
        &["replay", "--compare", HOSTILE],
        &["log", "export", HOSTILE, "--format", "csv"],
        &["log", "anonymize", HOSTILE, "-o", "out"],
        &["log", "anonymize", HOSTILE, "-o", "out", "--keep", HOSTILE],
        &["lab", "simulate", "spr", HOSTILE],
        &["lab", "simulate", "spr", &toml],
        &["lab", "simulate", "spr", "wakes", "--set", HOSTILE],
        &["lab", "study", HOSTILE],
        &["machines", HOSTILE],
        &["measure", "ipi", "--state", HOSTILE, "--sysroot", HOSTILE],
        &["record", "-o", &format!("no-such-folder/{HOSTILE}"), "-d", "1"],
        &["lab", "verify", "decisions", HOSTILE],
        &["lab", "verify", "sources", "source"],
    ];
    for arguments in commands {
        let (output, all) = clean(folder, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {all}");
        assert_eq!(all.lines().count(), 1, "{arguments:?}: {all}");
    }
    // The option parser's messages, which include the usage.
    for arguments in [&["replay", "--hz", HOSTILE][..], &[HOSTILE], &["measure", "park", HOSTILE]] {
        let (output, all) = clean(folder, arguments);
        assert_eq!(output.status.code(), Some(2), "{all}");
    }
    let name = std::ffi::OsStr::from_bytes(b"not\xffUTF-8\x1b[1m");
    let output = run(folder, &["info".as_ref(), name]);
    assert!(!output.stderr.contains(&0x1b));
}

/// A C compiler quotes the line that it complains about.
#[test]
fn of_a_compiler_never_reach_the_screen() {
    if crate::cannot_compile() {
        return;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: of_a_compiler_never_reach_the_screen: no C compiler (apt install gcc)");
        return;
    }
    let folder = folder();
    let text = "int x = \u{1b}[31m\u{9b}2J\u{202e} no_such_thing;\n#error \u{1b}]0;title\u{7}\n";
    fs::write(folder.path().join("bad.c"), text).unwrap();
    let (output, all) = clean(folder.path(), &["replay", "--governor", "bad.c"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(all.contains("bad.c doesn't compile"), "{all}");
}

/// Escapes in a doubt and in a CPU's description, as found in an audit.
#[test]
fn of_a_recording_never_reach_the_screen() {
    let folder = folder();
    let mut bytes = crate::recording("a-idle");
    let text = b"Intel";
    let places: Vec<usize> =
        bytes.windows(text.len()).enumerate().filter(|(_, w)| *w == text).map(|(i, _)| i).collect();
    assert!(!places.is_empty(), "the recording names its CPU");
    for place in places {
        bytes[place..place + 5].copy_from_slice(b"\x1b[31m");
    }
    fs::write(folder.path().join("perf.data"), bytes).unwrap();
    for arguments in [
        &["info", "perf.data"][..],
        &["log", "import", "perf.data"],
        &["log", "validate", "perf.data"],
    ] {
        let (output, all) = clean(folder.path(), arguments);
        assert!(output.status.success(), "{all}");
    }
    let (_, all) = clean(folder.path(), &["info", "perf.data"]);
    assert!(all.contains("␛[31m"), "{all}");
}
