//! `idlewise set` on captured machines: what is set and given back, how conflicts are told, and the process that
//! holds limits. `killed.rs` kills it everywhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use crate::{WIDTH, folder, idlewise, json};

/// All files below a folder, with their contents.
pub fn files_below(folder: &Path) -> Vec<(PathBuf, String)> {
    fn add(folder: &Path, files: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, files);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    let mut files = Vec::new();
    add(folder, &mut files);
    files.sort();
    files
}

/// A captured machine with four CPUs of three states.
pub struct Captured(tempfile::TempDir);

const GOVERNOR: &str = "sys/devices/system/cpu/cpuidle/current_governor";

impl Captured {
    pub fn new() -> Self {
        let machine = Captured(folder());
        machine.put("proc/sys/kernel/random/boot_id", "one\n");
        machine.put("proc/self/status", "Cpus_allowed_list:\t1-2\n");
        machine.put("proc/1/comm", "systemd\n");
        machine.put("sys/devices/system/cpu/online", "0-3\n");
        machine.put("sys/devices/system/cpu/cpuidle/current_driver", "intel_idle\n");
        machine.put("sys/devices/system/cpu/cpuidle/available_governors", "ladder menu teo\n");
        machine.put(GOVERNOR, "menu\n");
        machine.put("dev/cpu_dma_latency", 2_000_000_000_u32.to_ne_bytes());
        for cpu in 0..4 {
            machine.put(&limit(cpu), "0\n");
            for (index, name) in ["POLL", "C1", "C6"].into_iter().enumerate() {
                let state = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}");
                machine.put(&format!("{state}/name"), format!("{name}\n"));
                machine.put(&format!("{state}/disable"), "0\n");
                machine.put(&format!("{state}/usage"), "17\n");
                for (name, us) in [("latency", 90 * index), ("residency", 200 * index)] {
                    machine.put(&format!("{state}/{name}"), format!("{us}\n"));
                }
            }
        }
        machine
    }

    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn root(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap().trim().to_owned()
    }

    /// The values of all files of sysfs.
    pub fn sysfs(&self) -> Vec<(PathBuf, String)> {
        let files = files_below(&self.path("sys"));
        files.into_iter().map(|(path, text)| (path, text.trim().to_owned())).collect()
    }

    /// The arguments of `idlewise set` on this machine.
    fn arguments<'a>(&'a self, line: &'a str) -> Vec<&'a str> {
        let mut arguments = vec!["set"];
        arguments.extend(line.split_whitespace());
        arguments.extend(["--sysroot", self.root()]);
        arguments
    }

    pub fn settings(&self, line: &str) -> Output {
        idlewise(&self.arguments(line))
    }

    fn json(&self, line: &str) -> serde_json::Value {
        json(&self.arguments(&format!("{line} --json")))
    }

    /// Runs it, and returns its exit status and all that it printed.
    fn said(&self, line: &str) -> (Option<i32>, String) {
        let output = self.settings(line);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }

    fn refused(&self, line: &str, part: &str) {
        let before = self.sysfs();
        let (status, text) = self.said(line);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(part), "{text:?} has no {part:?}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(self.sysfs(), before, "never half applied");
    }

    /// The processes that hold settings of this machine.
    pub fn holders(&self) -> Vec<i32> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let holder = |entry: fs::DirEntry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            let root = self.root().as_bytes();
            let is_holder =
                words.contains(&&b"hold"[..]) && words.iter().any(|w| w.starts_with(root));
            is_holder.then_some(pid)
        };
        processes.filter_map(holder).collect()
    }

    /// Waits until all that one command wishes is set.
    fn wait_for_all(&self) {
        let journal = || fs::read_to_string(self.path("run/idlewise/journal.json"));
        wait_until("all is set", || {
            journal().is_ok_and(|text| text.contains("\"is_complete\": true"))
        });
    }

    /// Waits until no process holds settings.
    pub fn wait_for_holders(&self) {
        wait_until("the holder has ended", || self.holders().is_empty());
    }
}

impl Drop for Captured {
    /// A test that fails leaves no process behind.
    fn drop(&mut self) {
        if !self.holders().is_empty() {
            self.settings("revert --all");
        }
    }
}

/// Waits for what another process does. Fails after so long that only a mistake can be the reason.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed().as_secs() < 60, "{what}");
        std::thread::yield_now();
    }
}

fn limit(cpu: u16) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us")
}

fn disable(cpu: u16, index: usize) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}/disable")
}

#[test]
fn what_was_applied_is_shown_and_given_back() {
    let machine = Captured::new();
    let before = machine.sysfs();
    let apply = "apply --set C6=off@1-2 --set governor=teo --set latency=10us@3 --reason because";
    let planned = machine.json(&format!("{apply} --dry-run"));
    assert_eq!(machine.sysfs(), before, "a dry run changes nothing");
    let applied = machine.json(apply);
    assert_eq!(planned["changes"], applied["changes"]);
    assert_eq!(applied["changes"].as_array().unwrap().len(), 4);
    assert_eq!(machine.text(GOVERNOR), "teo");
    assert_eq!([machine.text(&disable(1, 2)), machine.text(&limit(3))], ["1", "10"]);
    let status = machine.json("status");
    assert_eq!(status["sessions"][0]["reason"], "because");
    let (_, text) = machine.said("status");
    for part in ["C6=off@1-2 governor=teo latency=10us@3", "until reverted", "reason: because"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let reverted = machine.json("revert");
    assert_eq!(reverted["changes"].as_array().unwrap().len(), 4);
    assert_eq!(machine.sysfs(), before);
    // A reason is no second line of ours.
    let mut apply = machine.arguments("apply --set C6=off@1");
    apply.extend(["--reason", "x\n  2  C1=off"]);
    assert!(idlewise(&apply).status.success());
    let text = machine.said("status").1;
    assert!(text.contains("reason: x\u{240a}  2  C1=off\n"), "{text}");
    machine.json("revert");
    let (status, text) = machine.said("revert");
    assert_eq!((status, text.as_str()), (Some(0), "Nothing to restore\n"));
    assert!(machine.said("status").1.contains("idlewise has set nothing"));
}

/// It said that it failed, with status 2, and what it had set stayed.
#[test]
fn what_cannot_be_reported_is_undone() {
    let machine = Captured::new();
    let before = machine.sysfs();
    let run = |stdout: std::process::Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.args(machine.arguments("apply --set C6=off@1-2")).stdout(stdout).output().unwrap()
    };
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = run(full.into());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("No space left") && text.contains("the settings were undone"), "{text}");
    assert_eq!(machine.sysfs(), before);
    // A reader that closes the pipe, such as `head -1`, has what it wants.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(run(writer.into()).status.code(), Some(0));
    assert_eq!(machine.text(&disable(1, 2)), "1");
}

#[test]
fn settings_come_from_a_file_too() {
    let machine = Captured::new();
    machine.put("settings.conf", "# For the benchmark\nC6=off@1   # deep\n\ngovernor=ladder\n");
    let file = machine.path("settings.conf");
    assert!(machine.settings(&format!("apply {}", file.display())).status.success());
    assert_eq!([machine.text(GOVERNOR), machine.text(&disable(1, 2))], ["ladder", "1"]);
    machine.settings("revert");
    machine.put("settings.conf", "C6=off\nC6=of\n");
    machine.refused(&format!("apply {}", file.display()), "line 2: \"C6=of\"");
    machine.put("settings.conf", "# nothing\n");
    machine.refused(&format!("apply {}", file.display()), "it has no setting");
    machine.refused("apply /nonexistent/settings", "No such file");
}

#[test]
fn limits_of_the_whole_machine_are_held_by_a_process() {
    let machine = Captured::new();
    let (status, text) = machine.said("apply --set latency=20us");
    assert_eq!(status, Some(0), "{text}");
    let expected =
        "Set latency=20us: a limit of the whole machine is in no file; a process holds it";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(machine.holders().len(), 1);
    assert_eq!(fs::read(machine.path("dev/cpu_dma_latency")).unwrap(), 20_u32.to_ne_bytes());
    assert_eq!(machine.json("status")["sessions"][0]["is_held"], true);
    let (_, text) = machine.said("revert");
    assert!(text.contains("Ended latency=20us"), "{text}");
    assert!(machine.holders().is_empty(), "revert waits for its end");
}

#[test]
fn an_end_in_time_is_kept_by_a_process() {
    let machine = Captured::new();
    let before = machine.sysfs();
    assert!(machine.settings("apply --set C6=off --expires 1s").status.success());
    assert_ne!(machine.sysfs(), before);
    wait_until("the settings are given back on time", || machine.sysfs() == before);
    machine.wait_for_holders();
    assert!(!machine.path("run/idlewise/journal.json").exists());
}

#[test]
fn a_holder_that_is_asked_to_end_gives_back_and_one_that_is_killed_is_told() {
    let machine = Captured::new();
    let before = machine.sysfs();
    machine.settings("apply --set C6=off --expires 1h");
    kill("-TERM", machine.holders()[0]);
    wait_until("the holder gives back", || machine.sysfs() == before);
    machine.wait_for_holders();
    machine.settings("apply --set C6=off --set latency=9us");
    kill("-KILL", machine.holders()[0]);
    wait_until("the holder has ended", || {
        machine.json("status")["sessions"][0]["is_held"] == false
    });
    assert!(machine.said("status").1.contains("was killed: a limit of the whole machine"));
    assert_eq!(machine.said("revert").0, Some(0));
    assert_eq!(machine.sysfs(), before);
}

fn kill(signal: &str, pid: i32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn what_somebody_else_changed_is_left_and_named() {
    let machine = Captured::new();
    machine.put("proc/812/comm", "tuned\n");
    let (_, text) = machine.said("apply --set latency=10us@1-2");
    assert!(text.contains("warning: tuned runs (process 812)"), "{text}");
    machine.put(&limit(1), "30\n");
    let (_, text) = machine.said("status");
    assert!(text.contains("pm_qos_resume_latency_us: 30, where idlewise wrote 10"), "{text}");
    let (status, text) = machine.said("revert");
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("is 30 by somebody else") && text.contains("warning: tuned"), "{text}");
    assert_eq!([1, 2].map(|cpu| machine.text(&limit(cpu))), ["30", "0"]);
    assert_eq!(machine.said("revert").0, Some(0), "it is theirs, and nothing is left to do");
}

/// powernv keeps what is off while a CPU is offline, so the setting would come back with it.
#[test]
fn a_setting_of_a_cpu_that_is_gone_is_restored_when_it_is_back() {
    let machine = Captured::new();
    let before = machine.sysfs();
    machine.settings("apply --set C6=off");
    let cpu = machine.path("sys/devices/system/cpu/cpu3/cpuidle");
    let away = machine.path("away");
    fs::rename(&cpu, &away).unwrap();
    for _ in 0..2 {
        let (status, text) = machine.said("revert");
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("CPU 3 is offline or gone: its setting stays noted"), "{text}");
        assert!(text.contains("run `idlewise set revert` again when it is back"), "{text}");
    }
    fs::rename(&away, &cpu).unwrap();
    assert_eq!(machine.said("revert").0, Some(0));
    assert_eq!(machine.sysfs(), before);
    assert!(!machine.path("run/idlewise/journal.json").exists());
    // A driver takes its states along, and the next one begins anew.
    machine.settings("apply --set C6=off@3");
    fs::rename(&cpu, &away).unwrap();
    machine.put("sys/devices/system/cpu/cpuidle/current_driver", "none\n");
    assert_eq!(machine.said("revert").0, Some(0));
    assert!(!machine.path("run/idlewise/journal.json").exists());
}

#[test]
fn a_name_means_all_states_that_have_it() {
    let machine = Captured::new();
    for cpu in 0..4 {
        let name = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/name");
        machine.put(&name, "C6\n");
    }
    let off = |machine: &Captured| [1, 2].map(|index| machine.text(&disable(1, index)));
    let (_, text) = machine.said("apply --set C6=off");
    assert_eq!(off(&machine), ["1", "1"], "{text}");
    machine.settings("revert");
    // As `watch` names them.
    let (_, text) = machine.said("apply --set C6#2=off@1");
    assert_eq!(off(&machine), ["0", "1"], "{text}");
    machine.settings("revert");
    machine.put("settings.conf", "#C6#2=off\nC6#1=off@1#shallow\n");
    let file = machine.path("settings.conf");
    let (_, text) = machine.said(&format!("apply {}", file.display()));
    assert_eq!(off(&machine), ["1", "0"], "{text}");
    machine.settings("revert");
    machine.refused("apply --set C6#3=off", "no idle state C6#3");
}

#[test]
fn settings_that_last_are_not_said_to_be_restored_by_their_command() {
    let machine = Captured::new();
    machine.settings("apply --set C6=off");
    machine.settings("apply --set latency=7us@1");
    let (_, text) = machine.said("revert 1");
    assert!(text.contains("latency=7us@1 stays until `idlewise set revert`"), "{text}");
    assert!(!text.contains("is left to"), "{text}");
}

#[test]
fn settings_of_a_running_command_are_left_to_it() {
    let machine = Captured::new();
    let before = machine.sysfs();
    let mut service = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(machine.arguments("apply --set C6=off --on-exit restore"))
        .spawn()
        .unwrap();
    machine.wait_for_all();
    let (status, text) = machine.said("revert");
    assert_eq!(status, Some(0));
    assert!(text.contains("C6=off is left to idlewise set apply"), "{text}");
    machine.refused("apply --set C6=on@1", "contradicts C6=off, set by `idlewise set apply`");
    kill("-TERM", service.id().cast_signed());
    assert!(service.wait().unwrap().success());
    assert_eq!(machine.sysfs(), before);
    machine.wait_for_holders();
}

#[test]
fn a_service_that_keeps_leaves_its_settings() {
    let machine = Captured::new();
    let socket = machine.path("notify");
    let systemd = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    let mut service = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(machine.arguments("apply --set C6=off@1 --on-exit keep"))
        .env("NOTIFY_SOCKET", &socket)
        .spawn()
        .unwrap();
    let mut state = [0; 64];
    let byte_count = systemd.recv(&mut state).unwrap();
    assert_eq!(&state[..byte_count], b"READY=1");
    assert_eq!(machine.text(&disable(1, 2)), "1", "it is ready when all is set");
    kill("-TERM", service.id().cast_signed());
    assert!(service.wait().unwrap().success());
    assert_eq!(machine.text(&disable(1, 2)), "1");
    assert!(machine.settings("revert").status.success());
    assert_eq!(machine.text(&disable(1, 2)), "0");
}

#[test]
fn a_service_that_is_killed_is_cleaned_up_by_its_holder() {
    let machine = Captured::new();
    let before = machine.sysfs();
    let mut service = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(machine.arguments("apply --set C6=off --set latency=3us@1 --on-exit restore"))
        .spawn()
        .unwrap();
    machine.wait_for_all();
    service.kill().unwrap();
    service.wait().unwrap();
    wait_until("the holder gives back", || machine.sysfs() == before);
    machine.wait_for_holders();
}

#[test]
fn what_the_machine_lacks_is_said_in_one_line() {
    let machine = Captured::new();
    machine.refused("apply --set C7=off", "no idle state C7; the states are POLL, C1, C6");
    for (setting, hint) in [
        ("C6s=off", "no idle state C6s; did you mean 'C6'? the states are"),
        ("c6=off", "no idle state c6; did you mean 'C6'? the states are"),
        ("governor=TEO", "no governor TEO; did you mean 'teo'? it has"),
    ] {
        machine.refused(&format!("apply --set {setting}"), hint);
    }
    for (setting, hint) in [
        ("governer=teo", "\"governer\" is no setting; did you mean 'governor'?\n"),
        ("latncy=3us", "\"latncy\" is no setting; did you mean 'latency'?\n"),
        ("C6=OFF", "\"OFF\" is neither on nor off; did you mean 'off'?\n"),
        ("C6=of", "\"of\" is neither on nor off; did you mean 'off'?\n"),
    ] {
        let (status, text) = machine.said(&format!("apply --set {setting}"));
        assert!(status == Some(2) && text.contains(hint), "{text}");
    }
    machine.refused("apply --set C6=off@9", "CPU 9 is not online (0-3 are)");
    machine
        .refused("apply --set governor=x", "the kernel has no governor x; it has ladder menu teo");
    machine.refused("apply --set latency=none", "lifts limits of CPUs only");
    machine.refused("revert 7", "nothing has the number 7");
    let file = machine.path(&limit(2));
    fs::remove_file(&file).unwrap();
    machine.refused("apply --set C6=off --set latency=5us@2", "PM QoS");
    symlink("/etc/hostname", &file).unwrap();
    machine.refused("apply --set latency=5us@2", "links are not followed");
    machine.put("sys/devices/system/cpu/cpuidle/current_driver", "none\n");
    machine.refused("apply --set C6=off", "no cpuidle driver");
    let (status, text) = machine.said("apply --set C6=maybe");
    assert_eq!(status, Some(2));
    assert!(text.contains("neither on nor off"), "{text}");
}

#[test]
fn an_ordinary_user_is_told_to_use_sudo() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.args(["set", "apply", "--set", "C1=off"]).current_dir("/");
    if crate::user() == 0 {
        command.uid(65534).gid(65534);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            return eprintln!("SKIPPED: no other user may execute the program here: {error}");
        }
    };
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
    assert!(text.contains("needs root; run it with sudo"), "{text}");
}

#[test]
fn a_great_many_settings_are_not_echoed() {
    let machine = Captured::new();
    machine.put("settings.conf", "C6=off\n".repeat(100_000));
    let file = machine.path("settings.conf");
    let (status, text) = machine.said(&format!("apply {}", file.display()));
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("C6=off and 99988 more: 4 files changed"), "{text}");
    assert!(text.lines().all(|line| line.len() <= WIDTH + 50), "{text}");
    let (_, text) = machine.said("status");
    assert!(text.contains("C6=off and 99988 more"), "{}", text.len());
    let (_, text) = machine.said("revert");
    assert!(text.contains("C6=off and 99988 more") && text.contains("Restored 4 files"), "{text}");
    // What is so already is not changed, and that is said.
    let (_, text) = machine.said("apply --set C6=on");
    assert!(text.starts_with("C6=on: nothing to change, it is so already"), "{text}");
}

/// A line that is no setting is quoted, and may be as long as the file.
#[test]
fn a_long_line_is_not_echoed_as_a_whole() {
    let machine = Captured::new();
    let apply = |text: &str| {
        machine.put("settings.conf", text);
        let file = machine.path("settings.conf");
        let output =
            idlewise(&["set", "apply", file.to_str().unwrap(), "--sysroot", machine.root()]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = apply(&format!("C6=off\n{}\n", "x".repeat(1_000_000)));
    assert!(said.len() < 4_000 && said.lines().count() == 1, "{}", said.len());
    assert!(
        said.contains("settings.conf: line 2: ") && said.contains(" characters ...] "),
        "{said}"
    );
    assert!(said.trim_end().ends_with("latency=none@4-7"), "what to do: {said}");
    // What is longer than such a file may be is no error of its first megabyte.
    let said = apply(&format!("C6=off\n# {}\n", "x".repeat(2_000_000)));
    assert!(
        said.contains("it has more than 1048576 bytes, so it is no file of settings"),
        "{said}"
    );
    // Arguments of the command line are quoted too.
    let long = format!("C6={}", "x".repeat(100_000));
    let output = idlewise(&["set", "apply", "--set", &long]);
    assert!(output.stderr.len() < 8_000, "{}", output.stderr.len());
}
