//! `idlewise measure ipi`, `measure timer` and `measure states --by ipi`, on a machine made of files. Two pipes replace the
//! kernel module, so that the test decides when to answer. `kernel/tests` runs the real one. From
//! user space this machine's own CPUs are measured, and the files say which states are forced.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::{OwnFile, assert_refused, folder, user};

mod endings;
mod states;
mod timer;
mod user_space;

const CPUS: &str = "sys/devices/system/cpu";

/// CPUs 0 to 3 are online; 1 is 0's SMT sibling, 2 and 3 are in another package. Each has POLL, C1,
/// and C6, which is disabled.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Machine::within(folder())
    }

    fn within(folder: tempfile::TempDir) -> Self {
        let machine = Machine(folder);
        machine.write(&format!("{CPUS}/online"), "0-3");
        machine.write("proc/mounts", "none /sys/kernel/debug debugfs rw 0 0");
        machine.write("proc/self/status", "Name:\tidlewise\nCpus_allowed_list:\t0-3");
        machine.write("proc/sys/kernel/osrelease", "6.12.1");
        machine.write("proc/cpuinfo", "flags\t\t: fpu tsc hypervisor");
        for cpu in 0..4 {
            let folder = format!("{CPUS}/cpu{cpu}");
            let siblings = if cpu < 2 { "0-1" } else { "2-3" };
            machine.write(&format!("{folder}/topology/thread_siblings_list"), siblings);
            machine.write(&format!("{folder}/topology/core_siblings_list"), siblings);
            let states = [("POLL", 0, 0), ("C1", 2, 0), ("C6", 290, 1)];
            for (index, (name, latency_us, disable)) in states.into_iter().enumerate() {
                let state = format!("{folder}/cpuidle/state{index}");
                machine.write(&format!("{state}/name"), name);
                machine.write(&format!("{state}/latency"), &latency_us.to_string());
                machine.write(&format!("{state}/disable"), &disable.to_string());
                machine.write(&format!("{state}/usage"), "0");
                machine.write(&format!("{state}/time"), "0");
            }
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    }

    /// The contents of a CPU's `disable` files, as one word.
    fn disabled(&self, cpu: u16) -> String {
        let file = |index| self.path(&format!("{CPUS}/cpu{cpu}/cpuidle/state{index}/disable"));
        let texts = (0..3).map(|index| fs::read_to_string(file(index)).unwrap());
        texts.map(|text| text.trim().to_owned()).collect()
    }

    fn module(&self, file: &str) -> PathBuf {
        self.path(&format!("sys/kernel/debug/idlewise_bench/{file}"))
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.arguments_of("ipi", more)
    }

    fn arguments_of<'a>(&'a self, what: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["measure", what, "--sysroot", self.0.path().to_str().unwrap()], more].concat()
    }

    /// Asserts that the command fails with one line and does not change the idle states.
    fn assert_refused(&self, more: &[&str], parts: &[&str]) {
        assert_refused(&self.arguments(more), parts);
        assert!((0..4).all(|cpu| self.disabled(cpu) == "001"));
    }

    /// Starts the command with a simulated module.
    fn start(&self, more: &[&str]) -> Running<'_> {
        self.start_with(&self.arguments(more), ["run", "samples"])
    }

    fn start_timer(&self, more: &[&str]) -> Running<'_> {
        // This file is the one that is locked.
        self.write("sys/kernel/debug/idlewise_bench/run", "");
        self.start_with(&self.arguments_of("timer", more), ["timer_run", "timer_samples"])
    }

    /// Starts `measure states` with CPU 0 as the source and CPU 2 as the target.
    fn start_states(&self, more: &[&str]) -> Running<'_> {
        self.write("sys/kernel/debug/idlewise_bench/run", "");
        let more = [&["--source", "0", "--target", "2"], more].concat();
        self.start_with(&self.arguments_of("states", &more), ["state_run", "state_samples"])
    }

    fn start_with(&self, arguments: &[&str], files: [&'static str; 2]) -> Running<'_> {
        fs::create_dir_all(self.module("")).unwrap();
        for file in files {
            assert!(Command::new("mkfifo").arg(self.module(file)).status().unwrap().success());
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        // If the command ends too soon, the test must not wait for it.
        let mut options = File::options();
        let [run, samples] = files.map(|file| self.module(file));
        let run = options.read(true).custom_flags(libc::O_NONBLOCK).open(run);
        Running { machine: self, child, run: BufReader::new(run.unwrap()), samples }
    }
}

/// The command, with the test as its module.
struct Running<'a> {
    machine: &'a Machine,
    child: Child,
    run: BufReader<File>,
    samples: PathBuf,
}

impl Running<'_> {
    /// The next request: source, target, wakes, gap. `None` if the command has ended.
    fn request(&mut self) -> Option<[u64; 4]> {
        self.numbers()?.try_into().ok()
    }

    /// The next request for timers: target, timers, gap.
    fn timer_request(&mut self) -> Option<[u64; 3]> {
        self.numbers()?.try_into().ok()
    }

    /// The next request for wakes out of known states: source, target, wakes, and the gap's two ends.
    fn state_request(&mut self) -> Option<[u64; 5]> {
        self.numbers()?.try_into().ok()
    }

    fn numbers(&mut self) -> Option<Vec<u64>> {
        let mut line = String::new();
        // No line: the command has not opened the file yet, has closed it, or is busy.
        while !matches!(self.run.read_line(&mut line), Ok(1..)) {
            if self.child.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::yield_now();
        }
        Some(line.split_whitespace().map(|word| word.parse().unwrap()).collect())
    }

    fn answer(&self, text: &str) {
        let mut samples = File::options().write(true).open(&self.samples).unwrap();
        samples.write_all(text.as_bytes()).unwrap();
    }

    /// Adds idle entries to the counts of the enabled states.
    fn enter(&self, cpu: u64, count: u64) {
        let file = |i, name| self.machine.path(&format!("{CPUS}/cpu{cpu}/cpuidle/state{i}/{name}"));
        let number = |path| fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap();
        for index in (0..3).filter(|i| file(*i, "disable").exists()) {
            if number(file(index, "disable")) == 0 {
                let usage = number(file(index, "usage")) + count;
                fs::write(file(index, "usage"), format!("{usage}\n")).unwrap();
            }
        }
    }

    /// Answers every request. `given_up_count` of its wakes are given up, but one is measured.
    fn answer_all(mut self, given_up_count: u64) -> Output {
        while let Some([_, target, wake_count, _]) = self.request() {
            let given_up_count = given_up_count.min(wake_count - 1);
            self.enter(target, wake_count);
            self.answer(&samples(target, wake_count - given_up_count, given_up_count));
        }
        self.child.wait_with_output().unwrap()
    }

    fn end(self) -> Output {
        self.child.wait_with_output().unwrap()
    }
}

/// Samples at 2 GHz: 1000 cycles times the CPU number, plus 0 to 9 in turn.
fn samples(target: u64, wake_count: u64, given_up_count: u64) -> String {
    let head = format!(
        "# tsc_khz 2000000, given up {given_up_count} (the target did not go idle)\n\
         wake_cycles,call_cycles,idle_cycles,waking_cycles,busy_cycles\n"
    );
    let line = |i: u64| {
        let wake_cycles = target * 1000 + i % 10;
        format!("{wake_cycles},{},{},200,400\n", wake_cycles + 500, target * 100)
    };
    head + &(0..wake_count).map(line).collect::<String>()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn wakes_one_cpu_of_each_relation_out_of_each_enabled_state() {
    let machine = Machine::new();
    let output = machine.start(&["--count", "1000", "--json"]).answer_all(0);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-ipi", &document);
    let saved = machine.path("saved.json");
    fs::write(&saved, &output.stdout).unwrap();
    let saved = saved.to_str().unwrap();
    let compared =
        crate::stdout(&["lab", "compare", saved, saved, "--a", "POLL", "--b", "C1", "--csv"]);
    let row =
        compared.lines().find(|line| line.starts_with("wake latency,SMT sibling,POLL → C1,50,"));
    assert!(row.is_some_and(|row| row.contains(",50,502,502,")), "{compared}");
    let cases = document["cases"].as_array().unwrap();
    let names = cases.iter().map(|case| {
        let words = ["relation", "state"].map(|key| case[key].as_str().unwrap().to_owned());
        (case["target"].as_u64().unwrap(), words)
    });
    let names: Vec<String> =
        names.map(|(cpu, words)| format!("{cpu} {}", words.join(" "))).collect();
    let expected = [
        "1 SMT sibling POLL",
        "1 SMT sibling C1",
        "2 another package POLL",
        "2 another package C1",
    ];
    assert_eq!(names, expected);
    for case in cases {
        assert_eq!(case["wake_count"], 1000);
        let target = case["target"].as_u64().unwrap();
        let median = &case["percentiles"][2];
        assert_eq!(median["percentile"], "50");
        assert_eq!(median["wake_cycles"], target * 1000 + 4);
        assert_eq!(median["wake_latency_ns"], target * 500 + 2);
        assert_eq!(median["call_latency_ns"], target * 500 + 252);
        assert_eq!(median["send_idle_ns"], target * 50);
        assert_eq!(case["forced_entry_ratio"], 1.0);
        assert_eq!(case["idle_entry_counts"][case["state"].as_str().unwrap()], 1000);
    }
    let c1 = &document["all"][1];
    assert_eq!(c1["exit_latency_ns"], 2000);
    assert_eq!(c1["wake_latency_p99_to_exit_latency_ratio"], 504.0 / 2000.0);
    assert_eq!(document["all"][0]["exit_latency_ns"], serde_json::Value::Null);
    assert_eq!(document["is_virtual_machine"], true);
    let doubts = document["doubts"].to_string();
    for doubt in ["a guest's", "C6 is disabled and was not measured"] {
        assert!(doubts.contains(doubt), "{doubts}");
    }
    assert!((0..4).all(|cpu| machine.disabled(cpu) == "001"));
}

#[test]
fn prints_tables_in_the_published_shape_and_writes_every_wake() {
    let machine = Machine::new();
    let file = machine.path("wakes.csv");
    let more = ["--source", "3", "--target", "1", "--state", "c6", "--count", "400", "--histogram"];
    let more = [&more[..], &["--samples", file.to_str().unwrap()]].concat();
    let mut running = machine.start(&more);
    let first = running.request().unwrap();
    assert_eq!(first, [3, 1, 10, 200]);
    assert_eq!(machine.disabled(1), "110", "C6 alone is enabled while it is measured");
    running.answer(&samples(1, 10, 0));
    let output = running.answer_all(1);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        shown.starts_with("CPU 1 (another package), C6: 400 wakes by CPU 3, 200 us"),
        "{shown}"
    );
    let rows = ["least", "25", "50", "75", "90", "95", "99", "99.5", "99.9", "99.95", "greatest"];
    let mut lines = shown.lines();
    for row in rows {
        assert!(lines.any(|line| line.split(' ').next() == Some(row)), "no {row}: {shown}");
    }
    assert!(shown.contains("more wakes out of C6 were given up"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= crate::WIDTH), "{shown}");
    let csv = fs::read_to_string(&file).unwrap();
    assert_eq!(csv.lines().count(), 401);
    assert_eq!(csv.lines().nth(1), Some("3,1,C6,2000000,1000,1500,100,200,400"));
    assert_eq!(machine.disabled(1), "001");
    machine.assert_refused(&["--samples", file.to_str().unwrap()], &["wakes.csv", "--force"]);
}

/// The driver, the governor or a latency limit may prevent a state.
#[test]
fn doubts_a_state_that_was_not_entered() {
    let machine = Machine::new();
    machine.write(&format!("{CPUS}/cpu1/power/pm_qos_resume_latency_us"), "20");
    let mut running = machine.start(&["--target", "1", "--state", "C6,C1", "--count", "20"]);
    let mut usage = 0;
    while let Some([_, _, wake_count, _]) = running.request() {
        usage += wake_count;
        machine.write(&format!("{CPUS}/cpu1/cpuidle/state0/usage"), &usage.to_string());
        running.answer(&samples(1, wake_count, 0));
    }
    let output = running.end();
    let shown = text(&output.stdout).replace("\n  ", " ");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for doubt in [
        "CPU 1: PM QoS allows 20 us of latency, less than C6's exit latency",
        "CPU 1: only 0.0 % of its idle entries were into C6 (entries: POLL 20)",
        "CPU 1: only 0.0 % of its idle entries were into C1 (entries: POLL 20)",
    ] {
        assert!(shown.contains(doubt), "no {doubt}: {shown}");
    }
}

#[test]
fn one_measurement_at_a_time() {
    let machine = Machine::new();
    let mut running = machine.start(&["--target", "1", "--count", "10"]);
    running.request().unwrap();
    let output = crate::idlewise(&machine.arguments(&["--target", "2"]));
    assert!(text(&output.stderr).contains("another `idlewise measure` is running"));
    assert_eq!(output.status.code(), Some(2));
    running.answer(&samples(1, 10, 0));
    assert!(running.answer_all(0).status.success());
}

#[test]
fn refuses_what_it_can_not_do_with_one_line() {
    let machine = Machine::new();
    machine
        .assert_refused(&["--by", "module"], &["not installed for kernel 6.12.1", "idlewise-dkms"]);
    machine.write("lib/modules/6.12.1/modules.dep", "updates/dkms/idlewise_bench.ko:");
    machine.assert_refused(
        &["--by", "module"],
        &["idlewise_bench is not loaded", "modprobe idlewise_bench"],
    );
    // Mounting debugfs would not bring the module.
    machine.write("proc/mounts", "none /sys sysfs rw 0 0");
    machine.assert_refused(&["--by", "module"], &["idlewise_bench is not loaded"]);
    fs::remove_file(machine.path("lib/modules/6.12.1/modules.dep")).unwrap();
    machine.assert_refused(&["--by", "module"], &["not installed for kernel 6.12.1"]);
    machine.write("sys/module/idlewise_bench/refcnt", "0");
    machine.assert_refused(
        &["--by", "module"],
        &["idlewise_bench is loaded", "mount -t debugfs none /sys/kernel/debug"],
    );

    machine.assert_refused(&["--target", "7"], &["CPU 7 is not online (0-3 are)", "cpu7/online"]);
    machine.assert_refused(&["--source", "4"], &["CPU 4 is not online"]);
    machine.assert_refused(&["--target", "1,0"], &["source and target are both CPU 0"]);
    machine.assert_refused(&["--state", "C9"], &["no idle state C9; it has POLL, C1, C6"]);
    machine.assert_refused(&["--state", "all,C1"], &["stand alone"]);
    machine.assert_refused(&["--samples", "/no-such-folder/x"], &["no-such-folder"]);

    let clocks = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    machine.write(clocks, "hpet acpi_pm");
    machine.assert_refused(&[], &["given up the TSC", "hpet acpi_pm", "dmesg"]);
    machine.write(clocks, "tsc hpet");
    machine.assert_refused(&["--by", "module"], &["mount -t debugfs"]);

    machine.write(&format!("{CPUS}/online"), "0");
    machine.assert_refused(&[], &["CPU 0 is the only one online"]);
    let nothing = folder();
    let sysroot = nothing.path().to_str().unwrap();
    assert_refused(&["measure", "ipi", "--sysroot", sysroot], &["names no CPU"]);
    let kept = OwnFile::new("wakes.csv", "precious");
    machine.assert_refused(&["--samples", kept.path()], &["wakes.csv", "--force"]);
}

/// A module that refuses: a file that nobody can write to.
#[test]
fn passes_on_that_the_module_refused() {
    let machine = Machine::new();
    machine.write("sys/kernel/debug/idlewise_bench/run", "");
    fs::create_dir_all(machine.module("timer_run")).unwrap();
    let arguments = machine.arguments_of("timer", &["--target", "1"]);
    assert_refused(&arguments, &["idlewise_bench/timer_run: Is a directory", "dmesg"]);
    assert_eq!(machine.disabled(1), "001");
}

/// A captured machine may have been made by somebody else.
#[test]
fn a_link_that_leads_outside_is_no_module() {
    let machine = Machine::new();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::create_dir_all(machine.module("")).unwrap();
    std::os::unix::fs::symlink(outside.path(), machine.module("run")).unwrap();
    assert!(!crate::idlewise(&machine.arguments(&["--by", "module"])).status.success());
    assert_eq!(fs::read_to_string(outside.path()).unwrap(), "");
}

#[test]
fn without_a_driver_it_measures_what_the_kernel_does() {
    let machine = Machine::new();
    for cpu in 0..4 {
        fs::remove_dir_all(machine.path(&format!("{CPUS}/cpu{cpu}/cpuidle"))).unwrap();
    }
    let refused = machine.arguments(&["--state", "C1"]);
    assert_refused(&refused, &["no cpuidle driver", "--state configured"]);
    let output = machine.start(&["--target", "1", "--count", "100"]).answer_all(0);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.starts_with("CPU 1 (SMT sibling), no driver: 100 wakes"), "{shown}");
    assert!(!shown.contains("counted no idle entry"), "{shown}");
}

#[test]
fn a_user_without_rights_is_told_to_be_root() {
    // A folder that others can read.
    let machine = Machine::within(tempfile::tempdir().unwrap());
    machine.write("sys/kernel/debug/idlewise_bench/run", "");
    let all = |path: &Path, mode| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    // Independent of the umask.
    let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(machine.0.path()).status();
    assert!(opened.unwrap().success());
    all(&machine.path("sys/kernel/debug"), 0o700);
    let binary = machine.path("idlewise");
    fs::copy(env!("CARGO_BIN_EXE_idlewise"), &binary).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
    if user() != 0 {
        // Here the command runs as the folder's owner, so the owner must have no access either.
        all(&machine.path("sys/kernel/debug"), 0o000);
        command = Command::new(&binary);
    }
    let output = command.args(machine.arguments(&["--by", "module"])).output();
    all(&machine.path("sys/kernel/debug"), 0o700);
    let test = "a_user_without_rights_is_told_to_be_root";
    match output {
        Err(error) => eprintln!("SKIPPED: {test}: setpriv: {error}"),
        Ok(output) => {
            let message = text(&output.stderr);
            match message.starts_with("setpriv:") {
                true => eprintln!("SKIPPED: {test}: {message}"),
                false => {
                    assert!(message.contains("Permission denied (os error 13); run it as root"))
                }
            }
        }
    }
}
