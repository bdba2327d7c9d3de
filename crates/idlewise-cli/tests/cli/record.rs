//! `idlewise record` with this machine's tracefs, next to other recorders. If tracing is not
//! permitted, each test says so. Every recording has its own instance, so tests can run in
//! parallel. Only CPU 0 is checked: some virtual machines record no idle task of others.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::{assert_refused, failure, folder, idlewise};

const TRACEFS: &str = "/sys/kernel/tracing";
/// Some idle entries, wake-ups and timers, in a fraction of a second.
const WORKLOAD: &str = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; done";

/// Whether recording is impossible here. Says why, once for each test.
pub fn is_skipped(test: &str) -> bool {
    let folder = folder();
    let output = folder.path().join("probe.dat");
    let probe = idlewise(&["record", "-o", output.to_str().unwrap(), "--", "true"]);
    if probe.status.success() {
        return false;
    }
    eprintln!("SKIPPED: {test}: {}", String::from_utf8_lossy(&probe.stderr).trim());
    true
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Records the workload. Returns the trace and the recorder's summary.
fn record(folder: &Path, arguments: &[&str]) -> (PathBuf, serde_json::Value) {
    let path = folder.join("trace.dat");
    let mut all = vec!["record", "--json", "-o", path.to_str().unwrap()];
    all.extend(arguments);
    all.extend(["--", "sh", "-c", WORKLOAD]);
    let output = idlewise(&all);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("record", &summary);
    (path, summary)
}

/// A recorder that is running and has printed its first line.
struct Running {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
            .arg("record")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.contains("recording"), "{line}");
        Running { child, stderr }
    }

    fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        // Use the shell's kill, because not every machine has a program of that name.
        let script = format!("kill {name} {process}");
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    }

    /// Returns the exit status and the rest of the output.
    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        let text = std::io::read_to_string(self.stderr).unwrap();
        (status.code(), text)
    }
}

/// The instances of a process.
fn instances_of(process: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(TRACEFS).join("instances")).unwrap();
    let paths = entries.flatten().map(|entry| entry.path());
    let start = format!("idlewise-{process}-");
    paths.filter(|p| p.file_name().unwrap().to_string_lossy().starts_with(&start)).collect()
}

fn report(path: &Path) -> Output {
    Command::new("trace-cmd").arg("report").arg("-i").arg(path).output().unwrap()
}

#[test]
fn trace_cmd_reads_as_many_events_as_the_kernel_counted() {
    if is_skipped("trace_cmd_reads_as_many_events_as_the_kernel_counted") {
        return;
    }
    if !has("trace-cmd") {
        eprintln!("SKIPPED: trace-cmd is not installed (apt-get install trace-cmd)");
        return;
    }
    let folder = folder();
    let (path, summary) = record(folder.path(), &[]);
    let output = report(&path);
    assert!(output.status.success());
    let warnings = String::from_utf8_lossy(&output.stderr);
    assert!(warnings.trim().is_empty(), "{warnings}");
    let text = String::from_utf8_lossy(&output.stdout);
    // The first line has the number of CPUs; the rest are events.
    let events: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(summary["event_count"], events.len());
    assert!(!events.is_empty());
    assert_eq!(summary["lost_event_counts"], serde_json::json!({}));
}

#[test]
fn one_file_is_enough_to_know_the_machine() {
    let test = "one_file_is_enough_to_know_the_machine";
    if is_skipped(test) {
        return;
    }
    let folder = folder();
    let (path, summary) = record(folder.path(), &[]);
    // Not by `import`: others may keep all CPUs busy, and then there are no gaps to import.
    let recording = idlewise_trace::import::open(&path).unwrap();
    let info = recording.info().clone();
    let mut event_count = 0;
    recording.read(&|_| {}, &mut |events| event_count += events.len()).unwrap();
    // The kernel's count is the importer's: every event is useful, except a failed `tick_stop` and
    // those that the kernel has filtered out.
    assert_eq!(summary["event_count"], event_count);
    let note = info.machine_note.unwrap();
    let file = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
    assert_eq!(info.kernel.or(note.kernel), file("/proc/sys/kernel/osrelease"));
    assert_eq!(info.clock.as_deref(), Some("CLOCK_MONOTONIC"));
    let cpuidle = "/sys/devices/system/cpu/cpuidle";
    let driver = file(&format!("{cpuidle}/current_driver")).unwrap_or("none".to_owned());
    assert_eq!(note.driver.map(|driver| driver.to_string()), Some(driver.clone()));
    if driver != "none" {
        assert_eq!(note.governor, file(&format!("{cpuidle}/current_governor_ro")));
        assert!(!note.tables[0].machine.states.is_empty());
    }
    assert!(note.command.contains("record"), "{}", note.command);
    // So it is known which CPUs have a latency limit.
    assert!(note.note_version > 0 && !note.limits_changed);
}

#[test]
fn causes_are_recorded_besides_all_that_gaps_need() {
    if is_skipped("causes_are_recorded_besides_all_that_gaps_need") {
        return;
    }
    let (here, there) = (folder(), folder());
    let (_, plain) = record(here.path(), &[]);
    let (_, causes) = record(there.path(), &["--causes"]);
    let events = |summary: &serde_json::Value| -> Vec<String> {
        serde_json::from_value(summary["events"].clone()).unwrap()
    };
    let causes = events(&causes);
    assert!(events(&plain).iter().all(|event| causes.contains(event)), "{causes:?}");
    for event in ["sched:sched_waking", "sched:sched_wakeup_new", "irq:softirq_exit"] {
        assert!(causes.iter().any(|name| name == event), "{event}: {causes:?}");
        assert!(!events(&plain).iter().any(|name| name == event), "{event}");
    }
}

#[test]
fn ends_with_a_whole_file_on_signals_and_leaves_no_instance() {
    if is_skipped("ends_with_a_whole_file_on_signals_and_leaves_no_instance") {
        return;
    }
    for signal in ["-INT", "-TERM", "-HUP"] {
        let folder = folder();
        let path = folder.path().join("trace.dat");
        let running = Running::start(&["-o", path.to_str().unwrap()]);
        let process = running.child.id();
        assert_eq!(instances_of(process).len(), 1);
        running.signal(signal);
        let (status, text) = running.end();
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains("none lost"), "{text}");
        assert!(fs::read(&path).unwrap().starts_with(b"\x17\x08\x44tracing6\0"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but the trace");
        assert!(instances_of(process).is_empty());
    }
}

/// The kernel refuses to remove an instance while one of its files is open.
#[test]
fn a_reader_of_the_instance_does_not_cost_the_recording() {
    if is_skipped("a_reader_of_the_instance_does_not_cost_the_recording") {
        return;
    }
    for json in [&[][..], &["--json"]] {
        let folder = folder();
        let path = folder.path().join("trace.dat");
        let running = Running::start(&[&["-o", path.to_str().unwrap()], json].concat());
        let process = running.child.id();
        let instance = instances_of(process).pop().unwrap();
        let reader = fs::File::open(instance.join("trace_pipe")).unwrap();
        running.signal("-INT");
        let (status, text) = running.end();
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains(&format!("{} stays", instance.display())), "{text}");
        assert!(fs::read(&path).unwrap().starts_with(b"\x17\x08\x44tracing6\0"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but the trace");
        assert_eq!(fs::read_to_string(instance.join("tracing_on")).unwrap().trim(), "0");
        drop(reader);
        // Another test's recorder may remove it first.
        let probe = folder.path().join("probe.dat");
        assert!(
            idlewise(&["record", "-o", probe.to_str().unwrap(), "--", "true"]).status.success()
        );
        assert!(instances_of(process).is_empty());
    }
}

#[test]
fn passes_on_the_status_of_the_command() {
    if is_skipped("passes_on_the_status_of_the_command") {
        return;
    }
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)] {
        let folder = folder();
        let path = folder.path().join("trace.dat");
        let output = idlewise(&["record", "-o", path.to_str().unwrap(), "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(status), "{script}");
        assert!(path.exists(), "{script}");
    }
    // The command outlasts the recording, but its status is still passed on.
    let folder = folder();
    let path = folder.path().join("trace.dat");
    let path = path.to_str().unwrap();
    let command = ["record", "-o", path, "-d", "0.1", "--", "sh", "-c", "sleep 0.3; exit 5"];
    assert_eq!(idlewise(&command).status.code(), Some(5));
    assert!(Path::new(path).exists());
}

#[test]
fn a_killed_recorder_leaves_an_instance_that_rests_and_that_the_next_one_removes() {
    if is_skipped("a_killed_recorder_leaves_an_instance_that_rests_and_that_the_next_one_removes") {
        return;
    }
    let folder = folder();
    let path = folder.path().join("trace.dat");
    let path = path.to_str().unwrap();
    // A live recorder's instance must survive the clean-up by another.
    let alive = Running::start(&["-o", folder.path().join("alive.dat").to_str().unwrap()]);
    let running = Running::start(&["-o", path]);
    let process = running.child.id();
    running.signal("-KILL");
    assert_eq!(running.end().0, None);
    // Another test's recorder may be faster than this test.
    if let Some(left) = instances_of(process).first()
        && let Ok(is_on) = fs::read_to_string(left.join("tracing_on"))
    {
        assert_eq!(is_on.trim(), "0");
    }
    assert!(idlewise(&["record", "-o", path, "--", "true"]).status.success());
    assert!(instances_of(process).is_empty());
    assert_eq!(instances_of(alive.child.id()).len(), 1);
    alive.signal("-INT");
    assert_eq!(alive.end().0, Some(0));
}

#[test]
fn says_each_second_how_it_goes() {
    if is_skipped("says_each_second_how_it_goes") {
        return;
    }
    let folder = folder();
    let path = folder.path().join("trace.dat");
    let mut running = Running::start(&["-o", path.to_str().unwrap(), "--follow"]);
    let mut line = String::new();
    running.stderr.read_line(&mut line).unwrap();
    running.signal("-INT");
    for part in [" s  ", "idle entries", "events/s", "0 lost", "MB"] {
        assert!(line.contains(part), "{line:?} has no {part:?}");
    }
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn refuses_what_it_can_not_do_with_one_line() {
    assert_refused(&["record", "-o", "no-such-folder/trace.dat", "-d", "1"], &["no-such-folder"]);
    let kept = crate::OwnFile::new("trace.dat", "precious");
    assert_refused(&["record", "-o", kept.path(), "-d", "1"], &["trace.dat", "--force"]);
    // From 4 KiB to 16 GiB.
    for size in ["0", "3", "16777217", "99999999999999999999"] {
        let (status, message) = failure(&["record", "-b", size, "-d", "1"]);
        assert_eq!(status, Some(2));
        assert!(message.contains(size) && message.contains("--buffer-kb"), "{message}");
    }
    let file = "no-such-folder/trace.dat";
    for size in ["4", "16777216"] {
        assert_refused(&["record", "-b", size, "-o", file, "-d", "1"], &["no-such-folder"]);
    }
    assert_eq!(fs::read(&kept.0).unwrap(), b"precious");
    for bad in ["0", "-1", "soon", "inf", "1e300"] {
        let output = idlewise(&["record", "-d", bad]);
        assert_eq!(output.status.code(), Some(2), "{bad}");
    }
}

#[test]
fn leaves_nothing_when_the_command_can_not_be_started() {
    if is_skipped("leaves_nothing_when_the_command_can_not_be_started") {
        return;
    }
    let folder = folder();
    let path = folder.path().join("trace.dat");
    let output = idlewise(&["record", "-o", path.to_str().unwrap(), "--", "no-such-command"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.lines().last().unwrap().contains("no-such-command"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A file size limit simulates a full disk.
#[test]
fn leaves_nothing_when_the_disk_is_full() {
    if is_skipped("leaves_nothing_when_the_disk_is_full") {
        return;
    }
    let folder = folder();
    let path = folder.path().join("trace.dat");
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec '{}' record -o '{}' -- sh -c '{WORKLOAD}'",
        env!("CARGO_BIN_EXE_idlewise"),
        path.display(),
    );
    let child = Command::new("sh").args(["-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.lines().last().unwrap().contains("File too large"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing half-written");
    assert!(instances_of(process).is_empty());
}

#[test]
fn says_what_is_missing_to_a_user_without_rights() {
    let test = "says_what_is_missing_to_a_user_without_rights";
    if is_skipped(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let binary = folder.path().join("idlewise");
    fs::copy(env!("CARGO_BIN_EXE_idlewise"), &binary).unwrap();
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(folder.path(), all).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&binary)
        .args(["record", "-d", "1", "-o"])
        .arg(folder.path().join("trace.dat"))
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: {test}: there is no setpriv here");
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("setpriv:") {
        eprintln!("SKIPPED: {test}: {text}");
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("record as root"), "{text}");
    // With the capability to write there, everybody could write everywhere.
    assert!(!text.contains("setcap"), "{text}");
}
