//! `idlewise watch`: its lines on captured machines.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub use self::serve::{METRICS, Server};
use crate::captured::{CapturedMachine, More, state_file};
use crate::{WIDTH, assert_refused, json, schemas, stdout};

mod screen;
mod serve;

/// Whatever is waited for comes long before; a test that hangs ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// Readings that follow each other fast.
const FAST: [&str; 2] = ["--interval", "0.05"];

/// A server with two packages of `count` / 2 CPUs, four states each.
fn server_with(count: u16) -> CapturedMachine {
    let (last, first) = (count - 1, count / 2);
    let tree = TREE.replace("LAST", &last.to_string()).replace("MIDDLE", &(first - 1).to_string());
    CapturedMachine::from_tree(&tree.replace("FIRST", &first.to_string()))
}

/// The same with eight CPUs.
fn server() -> CapturedMachine {
    server_with(8)
}

const TREE: &str = "\
== sys/devices/system/cpu/online
0-LAST
== sys/devices/system/cpu/present
0-LAST
== sys/devices/system/cpu/cpuidle/current_driver
intel_idle
== sys/devices/system/cpu/cpuidle/current_governor
menu
== sys/devices/system/cpu/cpu{0-LAST}/power/pm_qos_resume_latency_us
0
== sys/devices/system/cpu/cpu{0-MIDDLE}/topology/physical_package_id
0
== sys/devices/system/cpu/cpu{FIRST-LAST}/topology/physical_package_id
1
== proc/uptime
100.00 0.00
== @cpuidle 0-LAST
name | desc       | latency | residency | disable | usage | time | above | below | rejected
POLL | CORE POLL  | 0       | 0         | 0       | 7     | 70   | 0     | 3     | 0
C1   | MWAIT 0x00 | 1       | 1         | 0       | 7     | 70   | 0     | 3     | 0
C1E  | MWAIT 0x01 | 2       | 4         | 0       | 7     | 70   | 0     | 3     | 0
C6   | MWAIT 0x20 | 290     | 800       | 0       | 9     | 9000 | 1     | 0     | 0
";

fn path(machine: &CapturedMachine) -> &str {
    machine.path().to_str().unwrap()
}

/// Lets a second pass, in which CPUs 0 to 3 enter C6 a thousand times.
fn play(machine: &CapturedMachine) {
    let more = More { usage: 1_000, time_us: 750_000, above: 310, below: 0, rejected: 0 };
    machine.count("0-3", 3, more);
    machine.pass(1.0);
}

/// Plays a machine forward until it is dropped.
struct Playing<'a> {
    is_over: &'a AtomicBool,
}

impl Drop for Playing<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Runs something while a machine is played forward.
fn while_playing<T>(machine: &CapturedMachine, run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                play(machine);
            }
        });
        // Also if `run` panics.
        let _playing = Playing { is_over: &is_over };
        run()
    })
}

/// `idlewise watch --json` beside a machine that is played forward.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(machine: &CapturedMachine, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
            .args(["watch", "--sysroot", path(machine), "--json", "--interval", "0.05"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Watching { child, lines }
    }

    /// Plays the machine forward until a line is as it should be. A line may have caught it half-way.
    fn until(&mut self, what: &str, play: impl Fn(), is_it: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            play();
            let line = self.lines.next().expect("it goes on").unwrap();
            let document: Value = serde_json::from_str(&line).unwrap();
            if is_it(&document) {
                schemas::assert_valid("watch", &document);
                return document;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {document:#}");
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_line_of_json_says_what_each_cpu_did() {
    let machine = server_with(224);
    let mut watching = Watching::start(&machine, &[]);
    let is_played = |document: &Value| {
        let ratio = document["cpus"][0]["too_deep_ratio"].as_f64();
        let rate = document["cpus"][4]["entries_per_s"].as_f64();
        // However many seconds passed, the shares are those of each.
        ratio.is_some_and(|ratio| (ratio - 0.31).abs() < 1e-9) && rate == Some(0.0)
    };
    let document = watching.until("figures", || play(&machine), is_played);
    assert_eq!(
        (&document["driver"], &document["governor"]),
        (&"intel_idle".into(), &"menu".into())
    );
    let cpus = document["cpus"].as_array().unwrap();
    assert_eq!(cpus.len(), 224);
    assert!(cpus[4]["too_deep_ratio"].is_null(), "nothing was entered");
    let states = document["states"].as_array().unwrap();
    assert_eq!(states.len(), 224 * 4);
    assert_eq!(states[3]["state"], "C6");
    assert_eq!(states[3]["exit_latency_ns"], 290_000);
    assert!(states[3]["residency_ratio"].as_f64().is_some_and(|ratio| ratio <= 1.0));
}

/// The first CPU's numbers stood for all.
#[test]
fn latencies_that_differ_between_cpus_are_not_those_of_the_first() {
    let machine = server();
    let latencies = || {
        let options = ["--once", "--json", "--interval", "0.1", "--group", "machine"];
        let document = json(&[&["watch", "--sysroot", path(&machine)][..], &options].concat());
        schemas::assert_valid("watch", &document);
        let rows = document["states"].as_array().unwrap().clone();
        rows.into_iter().map(|row| row["exit_latency_ns"].as_u64()).collect::<Vec<_>>()
    };
    let before = latencies();
    assert!(before.iter().all(Option::is_some), "{before:?}");
    machine.write(&state_file(1, 3, "latency"), "133\n");
    assert_eq!(latencies(), [&before[..3], &[None]].concat());
}

#[test]
fn groups_and_orders_as_it_is_told() {
    let machine = server();
    let options =
        ["--once", "--json", "--interval", "0.2", "--group", "package", "--sort", "entries"];
    let document = while_playing(&machine, || {
        json(&[&["watch", "--sysroot", path(&machine)][..], &options].concat())
    });
    let names: Vec<&str> = document["cpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["cpus"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["package 0", "package 1"]);
    assert_eq!(document["cpus"][0]["cpu_count"], 4);
    let options = ["--json", "--count", "2", "--interval", "0.1", "--cpus", "0-1,7"];
    let text = stdout(&[&["watch", "--sysroot", path(&machine)][..], &options].concat());
    assert_eq!(text.lines().count(), 2, "a line for each interval");
    for line in text.lines() {
        let document: Value = serde_json::from_str(line).unwrap();
        schemas::assert_valid("watch", &document);
        assert_eq!(document["cpus"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn a_pipe_gets_a_table_that_fits() {
    for name in crate::captured::names() {
        let machine = CapturedMachine::unpack(&name);
        let has = |file: &str| machine.path().join(state_file(0, 0, file)).exists();
        if has("usage") && !has("time") {
            // Put together before its times were of interest.
            continue;
        }
        // Some have no driver; idle time is then that of /proc/stat.
        machine.write("proc/stat", "cpu  0\ncpu0 1 0 1 100 0\ncpu1 1 0 1 100 0\nintr 1\n");
        let text = while_playing_time(&machine, || {
            stdout(&["watch", "--sysroot", path(&machine), "--interval", "0.1"])
        });
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{name}: {text}");
        assert!(text.contains("time by state") && text.contains("Measured:"), "{name}: {text}");
    }
}

fn while_playing_time<T>(machine: &CapturedMachine, run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                machine.pass(0.5);
            }
        });
        let _playing = Playing { is_over: &is_over };
        run()
    })
}

#[test]
fn without_a_driver_idle_time_is_that_of_proc_stat() {
    let machine = CapturedMachine::unpack("vm-no-driver");
    assert_refused(&["watch", "--sysroot", path(&machine), "--once"], &["no idle driver"]);
    machine.write("proc/stat", "cpu  0\ncpu0 1 0 1 100 0\ncpu1 1 0 1 100 0\nintr 1\n");
    let document =
        json(&["watch", "--sysroot", path(&machine), "--once", "--json", "--interval", "0.1"]);
    assert!(document["driver"].is_null());
    assert_eq!(document["cpus"][0]["open_ratio"], 0.0);
    assert!(document["cpus"][0]["entries_per_s"].is_null());
    assert!(document["doubts"].to_string().contains("no cpuidle driver"), "{document}");
}

#[test]
fn bad_arguments_are_refused_in_a_line() {
    let machine = server();
    let sysroot = ["watch", "--sysroot", path(&machine)];
    let refused =
        |options: &[&str], parts: &[&str]| assert_refused(&[&sysroot[..], options].concat(), parts);
    refused(&["--cpus", "999"], &["no CPU 999", "0-7"]);
    assert_refused(&["watch", "--sysroot", "/nowhere"], &["/nowhere", "not a folder"]);
    let empty = tempfile::tempdir().unwrap();
    assert_refused(&["watch", "--sysroot", empty.path().to_str().unwrap(), "--once"], &["sys"]);
    for options in
        [&["--interval", "0"][..], &["--cpus", "x"], &["--serve", "9737"], &["--group", "core"]]
    {
        let (status, message) = crate::failure(&[&sysroot[..], options].concat());
        assert_eq!(status, Some(2), "{message}");
    }
}

#[test]
fn says_who_holds_a_latency_limit() {
    let machine = server();
    machine.write("proc/sys/kernel/random/boot_id", "one\n");
    let watch = ["watch", "--sysroot", path(&machine), "--once", "--json", "--interval", "0.1"];
    assert_eq!(json(&watch)["limit_holders"], serde_json::json!([]));
    let set = ["set", "apply", "--sysroot", path(&machine), "--set", "latency=20us@2-3"];
    stdout(&set);
    let document = json(&watch);
    let holder = document["limit_holders"][0].as_str().unwrap_or_else(|| panic!("{document}"));
    assert!(
        holder.starts_with("idlewise set apply (") && holder.ends_with("latency=20us@2-3"),
        "{holder}"
    );
    assert_eq!(document["cpus"][2]["latency_limit_ns"], 20_000);
    assert!(document["cpus"][1]["latency_limit_ns"].is_null());
}

/// A driver that goes, and CPUs that come and go, between two readings.
#[test]
fn a_machine_that_changes_is_read_anew() {
    let machine = server();
    let mut watching = Watching::start(&machine, &["--cpus", "0-3"]);
    let mut until = |what: &str, is_it: &dyn Fn(&Value) -> bool| {
        watching.until(what, || machine.pass(0.1), is_it)
    };
    until("figures", &|document| document["cpus"][3]["entries_per_s"].is_f64());
    machine.set_online("0-2");
    until("offline", &|document| {
        let ratio = |cpu: usize| &document["cpus"][cpu]["entries_per_s"];
        ratio(2).is_f64() && ratio(3).is_null()
    });
    machine.set_online("0-7");
    until("online", &|document| document["cpus"][3]["entries_per_s"].is_f64());
    for cpu in 0..4 {
        for (index, name) in ["POLL", "WFI", "cluster", "off"].iter().enumerate() {
            machine.write(&state_file(cpu, index, "name"), &format!("{name}\n"));
        }
        machine.set_up_states_anew(cpu);
    }
    machine.write("sys/devices/system/cpu/cpuidle/current_driver", "psci_idle\n");
    let document = until("another driver", &|document| document["driver"] == "psci_idle");
    assert_eq!(document["states"][3]["state"], "off");
    kill_process(Pid::from_child(&watching.child), Signal::TERM).unwrap();
    assert!(watching.child.wait().unwrap().success());
}

/// Without /proc/stat, nobody knows what a CPU did that counted nothing.
#[test]
fn what_is_not_known_to_be_idle_is_not_shown_as_running() {
    let machine = server();
    assert!(!machine.path().join("proc/stat").exists() && !machine.path().join("dev").exists());
    let mut watching = Watching::start(&machine, &[]);
    let is_played = |document: &Value| document["cpus"][0]["entries_per_s"].as_f64() > Some(0.0);
    let document = watching.until("figures", || play(&machine), is_played);
    assert!(document["cpus"][7]["running_ratio"].is_null(), "{document:#}");
    assert!(document["cpus"][7]["open_ratio"].is_null(), "{document:#}");
    let doubts = document["doubts"].to_string();
    assert!(doubts.contains("/proc/stat cannot be read"), "{doubts}");
    assert!(
        doubts.contains("there is no /dev/cpu_dma_latency") && !doubts.contains("only root"),
        "{doubts}"
    );
    let text = while_playing(&machine, || {
        stdout(&["watch", "--once", "--sysroot", path(&machine), FAST[0], FAST[1]])
    });
    assert!(text.contains("? not known"), "{text}");
    assert!(text.contains("?????"), "{text}");
}
