//! `idlewise measure ipi`, `measure timer` and `measure states --by ipi`, on a machine made of files. Two pipes replace the
//! kernel module, so that the test decides when to answer. `kernel/tests` runs the real one. From
//! user space this machine's own CPUs are measured, and the files say which states are forced.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::{OwnFile, assert_refused, folder, user};

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

/// The module's samples of wakes out of a state at 2 GHz: a path of 3 us, and what the state takes.
fn state_samples(wake_count: u64, state: usize, exit_us: u64) -> String {
    let head = "# tsc_khz 2000000, given up 0 (the target did not go idle)\n\
                wake_cycles,send_cycles,state\n";
    let line = |i: u64| format!("{},200,{state}\n", 2_000 * (3 + exit_us) + i % 10);
    head.to_owned() + &(0..wake_count).map(line).collect::<String>()
}

#[test]
fn states_are_measured_by_the_modules_ipis_where_it_is_loaded() {
    let machine = Machine::new();
    let mut running = machine.start_states(&["--state", "C1,C6", "--count", "100", "--json"]);
    let mut batch_count = 0;
    while let Some([source, target, wake_count, least_us, most_us]) = running.state_request() {
        assert_eq!((source, target), (0, 2));
        let (state, gap_us, exit_us) = match machine.disabled(2).as_str() {
            "011" => (0, [100, 700], 0),
            "101" => (1, [100, 700], 37),
            "110" => (2, [290, 1_080], 211),
            forced => panic!("{forced}"),
        };
        assert_eq!([least_us, most_us], gap_us);
        batch_count += 1;
        // The kernel counts other wakes too.
        running.enter(target, wake_count + 2);
        running.answer(&state_samples(wake_count, state, exit_us));
    }
    let output = running.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(batch_count, 30, "ten rounds");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-states", &document);
    assert_eq!(document["plan"]["by"], "ipi");
    let rows = document["all"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, expected_ns) in rows.iter().zip([37_000.0, 211_000.0]) {
        let found_ns = row["exit_p50_ns"].as_f64().unwrap();
        assert!((found_ns - expected_ns).abs() <= 10.0, "{row}");
        assert_eq!((&row["wake_count"], &row["dropped_count"]), (&100.into(), &0.into()));
    }
    assert_eq!(document["series"][0]["figure"], "wake of a CPU");
    assert_eq!(machine.disabled(2), "001");
}

/// The module says which state the governor had selected, and the kernel's counts what the driver entered.
#[test]
fn wakes_by_ipi_out_of_other_states_do_not_count() {
    let machine = Machine::new();
    let more = ["--state", "C1", "--count", "100", "--by", "ipi", "--json"];
    let mut running = machine.start_states(&more);
    let mut nth = 0;
    while let Some([_, target, wake_count, ..]) = running.state_request() {
        nth += 1;
        let is_baseline = machine.disabled(2) == "011";
        // Every fourth batch was elsewhere by the kernel's counts, and every fifth by the module's.
        if nth % 4 != 0 {
            running.enter(target, wake_count);
        }
        let state = if is_baseline { 0 } else { 1 };
        let selected = if nth % 5 == 0 { 2 } else { state };
        let exit_us = if nth % 4 == 0 || nth % 5 == 0 { 900 } else { 10 * state as u64 };
        running.answer(&state_samples(wake_count, selected, exit_us));
    }
    let output = running.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found_ns = document["all"][0]["exit_p9999_ns"].as_f64();
    assert_eq!(found_ns, None);
    let found_ns =
        document["all"][0]["exit_p99_ns"].as_f64().or(document["all"][0]["exit_p90_ns"].as_f64());
    assert!((found_ns.unwrap() - 10_000.0).abs() <= 10.0, "{found_ns:?}");
    for drops in document["drops"].as_array().unwrap() {
        assert!(drops["other_state_count"].as_u64().unwrap() >= 10, "{drops}");
        assert_eq!(drops["is_given_up"], false);
    }
    assert_eq!(machine.disabled(2), "001");
}

#[test]
fn a_way_to_wake_that_is_impossible_is_refused() {
    let machine = Machine::new();
    let refused = |more: &[&str], parts: &[&str]| {
        let more = [&["--source", "0", "--target", "2", "--by", "ipi"], more].concat();
        assert_refused(&machine.arguments_of("states", &more), parts);
        assert_eq!(machine.disabled(2), "001");
    };
    refused(&[], &["idlewise_bench is not installed", "idlewise-dkms"]);
    for cpu in 0..4 {
        machine.write(&format!("{CPUS}/cpu{cpu}/cpuidle/state0/name"), "C1_ACPI");
    }
    machine.write("sys/kernel/debug/idlewise_bench/run", "");
    refused(&["--dry-run"], &["CPU 2 has no polling state", "--by futex"]);
    let plan = |by: &str| {
        let arguments = ["--source", "0", "--target", "2", "--dry-run", "--by", by];
        crate::stdout(&machine.arguments_of("states", &arguments))
    };
    assert!(plan("auto").contains("by futex, 10000 times"));
    for cpu in 0..4 {
        machine.write(&format!("{CPUS}/cpu{cpu}/cpuidle/state0/name"), "POLL");
    }
    assert!(plan("auto").contains("by IPI, 10000 times"));
    assert!(plan("futex").contains("by futex, 10000 times"));
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
fn a_run_that_fails_half_way_leaves_the_states_as_they_were() {
    let wrong = [
        (
            "# tsc_khz 2000000, given up 0 (…)\nwake_cycles,call_cycles,idle_cycles,\
             waking_cycles,busy_cycles\n5,6\n",
            "line 3",
        ),
        ("no such thing\n", "line 1"),
        (&samples(1, 0, 0), "0 wakes, measured or given up, where"),
    ];
    for (answer, part) in wrong {
        let machine = Machine::new();
        let mut running = machine.start(&["--target", "1"]);
        let [_, _, wake_count, _] = running.request().unwrap();
        running.answer(&samples(1, wake_count, 0));
        running.request().unwrap();
        assert_eq!(machine.disabled(1), "011");
        running.answer(answer);
        let output = running.end();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(part) && message.contains("idlewise_bench/samples"), "{message}");
        assert_eq!(machine.disabled(1), "001");
    }
}

#[test]
fn signals_end_it_with_the_states_as_they_were() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let machine = Machine::new();
        let file = machine.path("wakes.csv");
        let mut running =
            machine.start(&["--target", "2", "--samples", file.to_str().unwrap(), "--state", "C1"]);
        running.request().unwrap();
        assert_eq!(machine.disabled(2), "101");
        let process = running.child.id().to_string();
        // Use the shell's kill, because not every machine has a program of that name.
        let script = format!("kill {signal} {process}");
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        running.answer(&samples(2, 10, 0));
        let output = running.answer_all(0);
        assert_eq!(output.status.code(), Some(130));
        let message = text(&output.stderr);
        assert!(message.contains("stopped before the end") && message.lines().count() == 1);
        assert!(output.stdout.is_empty() && !file.exists());
        assert_eq!(machine.disabled(2), "001");
    }
}

#[test]
fn says_what_to_write_where_it_can_not_restore() {
    let machine = Machine::new();
    let mut running = machine.start(&["--target", "1", "--state", "POLL"]);
    running.request().unwrap();
    // No link is followed, so this cannot be written even by root.
    let file = machine.path(&format!("{CPUS}/cpu1/cpuidle/state1/disable"));
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/null", &file).unwrap();
    running.answer("cut");
    let output = running.end();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.trim_end().ends_with(&format!("echo 0 > {}", file.display())), "{message}");
}

/// What a measurement prints that `end` ended during its third answer, with what was measured and the exit status.
/// `None` if something ended it before that.
fn cut_short(end: impl FnOnce(&Running<'_>), more: &[&str], status: i32) -> Option<String> {
    let machine = Machine::new();
    let options = ["--target", "2,1", "--count", "1000000"];
    let mut running = machine.start(&[&options[..], more].concat());
    // POLL of CPU 2 is asked for in parts. The first answer is the warm-up.
    let mut end = Some(end);
    let mut measured_count = 0;
    let mut answer_count = 0;
    while let Some([_, target, wake_count, _]) = running.request() {
        assert_eq!(target, 2);
        running.enter(target, wake_count);
        running.answer(&samples(target, wake_count, 0));
        answer_count += 1;
        measured_count += if answer_count > 1 { wake_count } else { 0 };
        if answer_count == 3 {
            end.take().unwrap()(&running);
        }
    }
    let output = running.end();
    assert!((0..4).all(|cpu| machine.disabled(cpu) == "001"));
    if answer_count < 3 {
        return None;
    }
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("takes 800 s at least; ctrl-c ends it early"), "{said}");
    let shown = text(&output.stdout);
    assert!(shown.contains("POLL"), "{shown}");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let doubt = format!(
        "ended it early: 1 of 4 states of CPUs were measured, the last one by {measured_count} of 1000000 wakes"
    );
    assert!(words.contains(&doubt), "{words:?} has no {doubt:?}");
    Some(words)
}

#[test]
fn what_was_measured_before_a_signal_is_printed() {
    let interrupt = |running: &Running<'_>| {
        let script = format!("kill -INT {}", running.child.id());
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    };
    assert!(cut_short(interrupt, &[], 130).unwrap().contains("a signal ended it early"));
}

#[test]
fn what_was_measured_within_the_time_limit_is_printed() {
    // A quick machine waits until the time is over. A busy one, which used it up before, gets more.
    let cut_after = |seconds: u64| {
        let since = Instant::now();
        let limit = Duration::from_secs(seconds);
        let wait = |_: &Running<'_>| {
            while since.elapsed() < limit {
                std::thread::park_timeout(limit);
            }
        };
        cut_short(wait, &["--time-limit", &seconds.to_string()], 0)
    };
    let words = [1, 8, 64].into_iter().find_map(cut_after).unwrap();
    assert!(words.contains("the time limit ended it early"));
    let machine = Machine::new();
    for bad in ["0", "-1", "x", "inf"] {
        assert_eq!(crate::failure(&machine.arguments(&["--time-limit", bad])).0, Some(2), "{bad}");
    }
}

#[test]
fn a_target_that_never_idles_is_not_waited_for() {
    let machine = Machine::new();
    let mut running = machine.start(&["--target", "1"]);
    while let Some([_, target, wake_count, _]) = running.request() {
        running.answer(&samples(target, 0, wake_count));
    }
    let output = running.end();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("CPU 1 did not go idle in"), "{message}");
    assert_eq!(machine.disabled(1), "001");
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

/// 1000 ns, plus 0 to 9 in turn.
fn timer_samples(count: u64, given_up_count: u64) -> String {
    let head = format!("# given up {given_up_count} (the target was not idle)\ninterrupt_ns\n");
    head + &(0..count).map(|i| format!("{}\n", 1000 + i % 10)).collect::<String>()
}

#[test]
fn timers_measure_the_interrupt_latency_out_of_each_state_asked_for() {
    let machine = Machine::new();
    let file = machine.path("timers.csv");
    let more = ["--target", "2", "--state", "POLL,c6", "--count", "1000", "--gap-us", "300"];
    let more = [&more[..], &["--json", "--samples", file.to_str().unwrap()]].concat();
    let mut running = machine.start_timer(&more);
    let mut forced = Vec::new();
    while let Some([target, count, gap_us]) = running.timer_request() {
        assert_eq!((target, gap_us), (2, 300));
        forced.push(machine.disabled(2));
        running.enter(2, count);
        let given_up_count = 1.min(count - 1);
        running.answer(&timer_samples(count - given_up_count, given_up_count));
    }
    let output = running.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
    forced.dedup();
    assert_eq!(forced, ["011", "110"], "each state alone");
    assert_eq!(machine.disabled(2), "001");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-timer", &document);
    let rows = document["all"].as_array().unwrap();
    for (row, state) in rows.iter().zip(["POLL", "C6"]) {
        assert_eq!((&row["target"], &row["state"]), (&"CPU 2".into(), &state.into()));
        assert_eq!(row["timer_count"], 1000);
        assert_eq!(row["forced_entry_ratio"], 1.0);
        assert_eq!(row["interrupt_latency_p50_ns"], 1004);
        assert_eq!(row["interrupt_latency_p99_ns"], 1009);
    }
    assert_eq!(rows[1]["interrupt_latency_p99_to_exit_latency_ratio"], 1009.0 / 290_000.0);
    assert!(document["doubts"].to_string().contains("more wakes out of C6 were given up"));
    let csv = fs::read_to_string(&file).unwrap();
    assert_eq!(csv.lines().count(), 2001);
    assert_eq!(csv.lines().nth(1), Some("2,POLL,1000"));
}

#[test]
fn timers_need_no_second_cpu_and_tell_what_fails() {
    let machine = Machine::new();
    machine.write(&format!("{CPUS}/online"), "0");
    let mut running = machine.start_timer(&["--state", "C1", "--count", "20"]);
    while let Some([target, count, _]) = running.timer_request() {
        running.enter(target, count);
        running.answer(&timer_samples(count, 0));
    }
    let output = running.end();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.starts_with("20 timers of the CPU's own, set for 200 us"), "{shown}");
    assert!(shown.contains("CPU 0   C1         20    100"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= crate::WIDTH), "{shown}");

    let machine = Machine::new();
    let mut running = machine.start_timer(&["--target", "1", "--state", "C1"]);
    running.timer_request().unwrap();
    running.answer("# given up 0 (the target was not idle)\ninterrupt_ns\n-5\n");
    let output = running.end();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("timer_samples: line 3: '-5' is no number"), "{message}");
    assert_eq!(machine.disabled(1), "001");
}

/// The names of proxies are not those of what the module measures.
#[test]
fn without_the_module_proxies_are_measured_and_labelled() {
    let machine = Machine::new();
    machine.write(&format!("{CPUS}/online"), "0-1");
    if cpu_count() < 2 {
        eprintln!("SKIPPED: without_the_module_proxies_are_measured: it needs two CPUs");
        return;
    }
    let file = machine.path("proxies.csv");
    let more = ["--state", "C1,C6", "--count", "60", "--gap-us", "50", "--json", "--samples"];
    let more = [&more[..], &[file.to_str().unwrap()]].concat();
    let output = crate::idlewise(&machine.arguments(&more));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-ipi-proxy", &document);
    assert_eq!(
        (&document["measurement"], &document["is_proxy"]),
        (&"ipi proxy".into(), &true.into())
    );
    let rows = document["all"].as_array().unwrap();
    for (row, state) in rows.iter().zip(["C1", "C6"]) {
        assert_eq!((&row["proxy"], &row["state"]), (&"futex wake".into(), &state.into()));
        assert_eq!((&row["wake_count"], &row["relation"]), (&60.into(), &"SMT sibling".into()));
        assert!(
            ["proxy_latency_p50_ns", "baseline_p50_ns"].iter().all(|id| row[id].is_u64()),
            "{row}"
        );
    }
    // Where the kernel has no membarrier a doubt says so.
    let doubts = document["doubts"].to_string();
    assert!(
        rows.len() == 3 && rows[2]["proxy"] == "membarrier" || doubts.contains("membarrier was")
    );
    for doubt in
        ["not installed for kernel 6.12.1", "may be compared with what the module measures"]
    {
        assert!(doubts.contains(doubt), "{doubts}");
    }
    let csv = fs::read_to_string(&file).unwrap();
    assert_eq!(csv.lines().filter(|line| line.starts_with("futex wake,0,1,C6,")).count(), 60);
    assert_eq!(machine.disabled(1), "001", "the states are as they were");
    machine.assert_refused(
        &["--histogram"],
        &["--histogram shows what the kernel module", "leave it"],
    );
    // A measurement by the module is of another kind.
    let saved = machine.path("saved.json");
    fs::write(&saved, &output.stdout).unwrap();
    let halt = "crates/idlewise-cli/tests/saved/halt.json";
    let parts = ["A is a measurement of ipi, B one of ipi proxy"];
    assert_refused(&["lab", "compare", halt, saved.to_str().unwrap()], &parts);
}

#[test]
fn timers_from_user_space_are_a_proxy_and_force_the_states_too() {
    let machine = Machine::new();
    machine.write(&format!("{CPUS}/online"), "0");
    let more = ["--by", "user-space", "--state", "POLL,C1", "--count", "50", "--gap-us", "50"];
    let arguments = machine.arguments_of("timer", &more);
    let shown = crate::stdout(&arguments);
    assert!(
        shown.starts_with("A proxy for the interrupt latency, from user space: 50 timers"),
        "{shown}"
    );
    for part in ["POLL", "C1", "to the thread that slept", "user space was asked for", "CPU 0"] {
        assert!(shown.contains(part), "no {part}: {shown}");
    }
    assert!(!shown.contains("interrupt p50"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= crate::WIDTH), "{shown}");
    let output = crate::idlewise(&[&arguments[..], &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schemas::assert_valid("measure-timer-proxy", &document);
    assert_eq!(document["all"][1]["timer_count"], 50);
    assert_eq!(machine.disabled(0), "001");
}

/// A signal comes while a state is forced: the test sees that it is, then sends it.
#[test]
fn a_signal_restores_states_that_user_space_forced() {
    let machine = Machine::new();
    machine.write(&format!("{CPUS}/online"), "0");
    let more = ["--by", "user-space", "--state", "C1", "--count", "1000000"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.args(machine.arguments_of("timer", &more));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while machine.disabled(0) != "101" {
        assert!(child.try_wait().unwrap().is_none(), "it ended before a state was forced");
        std::thread::yield_now();
    }
    let script = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("stopped before the end"), "{}", text(&output.stderr));
    assert_eq!(machine.disabled(0), "001");
}

/// A user who may not force states gets figures of what the governor selects, or one line.
#[test]
fn without_rights_no_state_is_forced() {
    let test = "without_rights_no_state_is_forced";
    if user() != 0 {
        eprintln!("SKIPPED: {test}: it needs root, to become a user who does not own the files");
        return;
    }
    let machine = Machine::within(tempfile::tempdir().unwrap());
    let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(machine.0.path()).status();
    assert!(opened.unwrap().success());
    let binary = machine.path("idlewise");
    fs::copy(env!("CARGO_BIN_EXE_idlewise"), &binary).unwrap();
    let run = |more: &[&str]| {
        let more = [&["--by", "user-space", "--count", "20"], more].concat();
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
        command.args(machine.arguments_of("timer", &more)).output()
    };
    let output = match run(&[]) {
        Ok(output) if !text(&output.stderr).starts_with("setpriv:") => output,
        other => return eprintln!("SKIPPED: {test}: setpriv: {other:?}"),
    };
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.contains("CPU 0   as configured") && shown.contains("no idle state was forced"));
    let output = run(&["--state", "C6"]).unwrap();
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
    assert!(
        message.contains("Permission denied (os error 13); the idle state can't be forced: run")
    );
    assert!(!message.contains("not as they were"), "nothing was changed: {message}");
}

/// How many CPUs this process may use.
fn cpu_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
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
